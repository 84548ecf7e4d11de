// Work shared among the processor's cores.
//
// parallel_for cuts [0, count) into pieces of `grain` (the last one shorter) and calls
// body(begin, end) once for each, on any thread, in any order. The cut depends on count and grain
// only, never on the number of threads: a reduction that keeps one partial result a piece and adds
// them in order is bit-equal for any number of threads. A call from within a body, or while another
// thread's call is under way, runs on the calling thread alone. The first exception thrown by a body
// is rethrown after all pieces ended. A forked child may call it.
#pragma once

#include <cstdint>
#include <functional>

namespace garam {

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body);

// Threads that parallel_for uses, the calling one included; 1 or more. Default: the processors that
// this process may run on.
int num_threads();
// Not while a parallel_for is under way.
void set_num_threads(int threads);

}  // namespace garam
