// The words of the kernels' language on a GPU: an element a thread, a row a warp. cpu.h has the same for a CPU.
#pragma once

#define FUNCTION static __device__ __forceinline__
#define RESTRICT __restrict__
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

#include "float_math.h"

// Their loops are not unrolled: most threads take one turn, and the number of turns would cost them a division of 64 bits.
#define EACH(name, i, count, ...)                                                                                     \
    extern "C" __global__ void name(long long count, __VA_ARGS__) {                                                   \
        {                                                                                                             \
            _Pragma("unroll 1")                                                                                       \
            for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x)
#define END \
    }       \
    }
#define ROWS(name, r, count, width, ...)                            \
    extern "C" __global__ void name(long long count, __VA_ARGS__) { \
        {                                                           \
            _Pragma("unroll 1")                                     \
            for (long long r = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32; r < count; r += (long long)gridDim.x * blockDim.x / 32)
#define COLUMNS(c, n) for (long long c = threadIdx.x & 31; c < (n); c += 32)
#define SUM(c, n, expression) ox_sum(n, [&](long long c) { return expression; })
#define MAX(c, n, expression) ox_max(n, [&](long long c) { return expression; })
// Columns of a row of literal length, in a loop that is unrolled: then KEPT numbers are in registers, whose numbers are literals.
#define UNROLLED_COLUMNS(c, n)                                     \
    _Pragma("unroll")                                              \
    for (int ox_turn = 0; ox_turn < ((n) + 31) / 32; ox_turn++) \
        if (const long long c = 32 * ox_turn + (threadIdx.x & 31); c < (n))
#define KEPT(type, name, n) type name[((n) + 31) / 32]
#define KEPT_AT(c) ((c) >> 5)

// A sum of what a thread meets: float adds up 32 numbers, and double these sums.
template <class C> struct BlockedSum {
    C part = 0;
    double total = 0.0;
    int count = 0;
    __device__ __forceinline__ void operator+=(C x) {
        part += x;
        if (++count == 32) {
            total += part;
            part = 0;
            count = 0;
        }
    }
    __device__ __forceinline__ C value() const { return (C)(total + part); }
};

FUNCTION float warp_sum(float sum) {
    for (int distance = 16; distance; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

// NaN where one of them is.
FUNCTION float larger(float a, float b) { return b > a || b != b ? b : a; }

FUNCTION float warp_max(float most) {
    for (int distance = 16; distance; distance >>= 1) most = larger(most, __shfl_xor_sync(~0u, most, distance));
    return most;
}

template <class F> FUNCTION float ox_sum(long long n, const F& f) {
    BlockedSum<float> own;
    COLUMNS(c, n) own += f(c);
    return warp_sum(own.value());
}

template <class F> FUNCTION float ox_max(long long n, const F& f) {
    float most = -INFINITY;
    COLUMNS(c, n) most = larger(most, f(c));
    return warp_max(most);
}

template <long long n, class F> FUNCTION float ox_unrolled_sum(const F& f) {
    BlockedSum<float> own;
    UNROLLED_COLUMNS(c, n) own += f(c);
    return warp_sum(own.value());
}

template <long long n, class F> FUNCTION float ox_unrolled_max(const F& f) {
    float most = -INFINITY;
    UNROLLED_COLUMNS(c, n) most = larger(most, f(c));
    return warp_max(most);
}

FUNCTION double ox_sum_of(const double* RESTRICT numbers, long long n) {
    double sum = 0.0;
    for (long long k = threadIdx.x & 31; k < n; k += 32) sum += numbers[k];
    for (int distance = 16; distance; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}
