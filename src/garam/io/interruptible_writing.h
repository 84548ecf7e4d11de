// Ctrl-C while a model is written: what was begun is removed, gigabytes under a temporary name that nobody would find.
#pragma once

namespace garam {

// Thrown out of the functions of atomic_write.h by the thread that writes; 128 + signal is the exit status.
struct WritingInterrupted {
    int signal;
};

// While one lives, the first SIGINT, SIGTERM or SIGHUP makes the next AtomicFile::write() throw WritingInterrupted, or
// what was about to put a file or folder in its place, and a second one of the same kind ends the process at once. The
// handlers that stood before come back when it is destroyed. At most one at a time in a process, and on the thread that
// writes.
class InterruptibleWriting {
  public:
    InterruptibleWriting();
    ~InterruptibleWriting();
    InterruptibleWriting(const InterruptibleWriting&) = delete;
    InterruptibleWriting& operator=(const InterruptibleWriting&) = delete;
};

// Throws WritingInterrupted where one lives and a signal came.
void throw_if_interrupted();

}  // namespace garam
