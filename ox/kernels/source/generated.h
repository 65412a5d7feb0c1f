// What generated kernels of a CPU include: the words of the language, and the threads of the kernel library.
#pragma once
// C's functions alone: the overloads that libstdc++ adds take compilers as long as the rest of a kernel does.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>

namespace ox {

using Task = void (*)(const void* context, long long begin, long long end);
using Parallel = void (*)(long long count, long long block, Task task, const void* context);

inline Parallel& shared_parallel() {
    static Parallel one = nullptr;
    return one;
}

template <class F> __attribute__((noinline)) void run_block(const void* body, long long begin, long long end) {
    (*static_cast<const F*>(body))(begin, end);
}

// Runs body on [0, count) in blocks, on the threads of the kernel library. Inlined where a thread is enough, too, each
// kernel would be compiled twice.
template <class F> inline void parallel_light(long long count, long long block, const F& body) {
    if (count > block) shared_parallel()(count, block, run_block<F>, &body);
    else if (count > 0) run_block<F>(&body, 0, count);
}

}  // namespace ox

extern "C" void ox_share_threads(ox::Parallel parallel) { ox::shared_parallel() = parallel; }

#include "words.h"
#include "blocks.h"
