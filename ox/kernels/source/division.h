// Division of whole numbers that are not negative. Processors divide 32 bits by some twenty instructions, and 64 bits by a
// loop.
#pragma once

FUNCTION long long quotient(long long a, long long b) { return (a | b) >> 32 ? a / b : (unsigned)a / (unsigned)b; }

// A divisor that is the same for all threads.
template <class N> struct Divisor;

// Of numbers below 2^31, by a multiplication with 2^(31 + L) / value, rounded up, where 2^L is the least power of two that is
// not below the value: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
// ox/devices/gpu/kernels.py packs the two numbers.
template <> struct Divisor<int> {
    int value;
    unsigned factor;
    __device__ __forceinline__ explicit Divisor(long long packed) : value((int)packed), factor((unsigned)((unsigned long long)packed >> 32)) {}
    __device__ __forceinline__ operator int() const { return value; }
    __device__ __forceinline__ int divide(int n) const { return (int)((unsigned long long)(unsigned)n * factor >> (63 - __clz(value - 1))); }
};

template <> struct Divisor<long long> {
    long long value;
    __device__ __forceinline__ explicit Divisor(long long value) : value(value) {}
    __device__ __forceinline__ operator long long() const { return value; }
    __device__ __forceinline__ long long divide(long long n) const { return quotient(n, value); }
};

// The remainder; `n` becomes the quotient.
template <class N> FUNCTION N split_off(N& n, const Divisor<N>& divisor) {
    const N divided = divisor.divide(n), rest = n - divided * (N)divisor;
    n = divided;
    return rest;
}
