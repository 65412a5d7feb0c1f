// Where BLOCK_ROWS is defined, a row is a block's, in place of a warp's: long rows, which one warp would take long for.
#pragma once
#include "block_sums.h"

#ifdef BLOCK_ROWS
template <class F> FUNCTION float ox_block_sum(long long n, const F& f) {
    BlockedSum<float> own;
    for (long long c = threadIdx.x; c < n; c += blockDim.x) own += f(c);
    float sums[] = {own.value()};
    block_sums(sums);
    return sums[0];
}

template <class F> FUNCTION float ox_block_max(long long n, const F& f) {
    __shared__ float parts[32];
    float most = -INFINITY;
    for (long long c = threadIdx.x; c < n; c += blockDim.x) most = larger(most, f(c));
    for (int distance = 16; distance; distance >>= 1) most = larger(most, __shfl_xor_sync(~0u, most, distance));
    __syncthreads();  // others may still read the parts before
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) most = larger(most, parts[w]);
    return most;
}

#undef ROWS
#undef COLUMNS
#undef SUM
#undef MAX
#define ROWS(name, r, count, width, ...)                            \
    extern "C" __global__ void name(long long count, __VA_ARGS__) { \
        {                                                           \
            _Pragma("unroll 1")                                     \
            for (long long r = blockIdx.x; r < count; r += gridDim.x)
#define COLUMNS(c, n) for (long long c = threadIdx.x; c < (n); c += blockDim.x)
#define SUM(c, n, expression) ox_block_sum(n, [&](long long c) { return expression; })
#define MAX(c, n, expression) ox_block_max(n, [&](long long c) { return expression; })
#endif
