// All kernels as one library for CPUs: g++ -O3 -march=native -fopenmp-simd -fno-math-errno -fno-trapping-math
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include "cpu.h"

#include "pointwise.cu"
#include "softmax.cu"
#include "normalization.cu"
#include "optimizer.cu"
#include "random.cu"

#include "depthwise.h"
#include "winograd.h"
#include "attention.h"
#include "bfloat16.h"
#include "gru.h"
#include "lstm.h"
#include "rnn.h"
#include "pooling.h"
#include "index.h"
#include "reduction.h"
#include "copying.h"
#include "cpu_only.cpp"

extern "C" void ox_set_threads(long long count) { ox::pool().set_threads((int)count); }
extern "C" long long ox_multiplies_bfloat16() { return ox::multiplies_pairs(); }
extern "C" void ox_parallel(long long count, long long block, ox::Task task, const void* context) { ox::pool().run_light(count, block, task, context); }
extern "C" long long ox_threads() { return ox::pool().threads(); }

// Arrays of one step are freed and made again in the next: kept by malloc, they cost no page faults (half the time of a
// light kernel). Up to `bytes` of free memory stay with the process. Where malloc is glibc's.
extern "C" void ox_keep_memory(long long bytes) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, (int)bytes);
    mallopt(M_TRIM_THRESHOLD, (int)bytes);
#endif
}
