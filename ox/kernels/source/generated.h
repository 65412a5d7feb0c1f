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

// Runs body on [0, count) in blocks, on the threads of the kernel library.
template <class F> inline void parallel_light(long long count, long long block, const F& body) {
    if (count <= block) {
        if (count > 0) body(0LL, count);
        return;
    }
    shared_parallel()(count, block, [](const void* context, long long begin, long long end) {
        (*static_cast<const F*>(context))(begin, end);
    }, &body);
}

}  // namespace ox

extern "C" void ox_share_threads(ox::Parallel parallel) { ox::shared_parallel() = parallel; }

#include "words.h"
#include "blocks.h"
