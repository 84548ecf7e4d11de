// The end of a process in which something threw that nobody may catch: a Bug, or an exception of
// the standard library that no code of ours expects.
#pragma once

namespace garam {

// From now on such an exception prints its message and the stack at which it was thrown to stderr,
// and aborts. (Catching it in main would unwind that stack first.)
void install_bug_report();

}  // namespace garam
