// Sums and extremes of rows. A sum is made in blocks of 64 partial sums, and the blocks are added in pairs, so that rounding
// grows with the logarithm of a row's length.
#pragma once
#include "lines.h"

namespace ox {

constexpr long long SUM_BLOCK = 2048;   // elements that are summed without pairs
constexpr long long LONG_ROW = 1 << 16;  // a row of more elements is shared out

// What is added up: the numbers, their magnitudes or their squares.
struct Plain {
    template <class T> static T of(T x) { return x; }
};
struct Magnitude {
    template <class T> static T of(T x) { return x < 0.0f ? -x : x; }
};
struct Square {
    template <class T> static T of(T x) { return x * x; }
};

template <class Term> inline float sum_of_block(const float* x, long long n) {
    constexpr int RUN = 4 * LANES;
    Vector sums[4] = {};
    long long i = 0;
    for (; i + RUN <= n; i += RUN)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) sums[v] += Term::of(*(const Vector*)(x + i + v * LANES));
    for (; i + LANES <= n; i += LANES) sums[0] += Term::of(*(const Vector*)(x + i));
    float rest = 0.0f;
    for (; i < n; i++) rest += Term::of(x[i]);
    return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

template <class Term> inline float sum_in_pairs(const float* x, long long n) {
    if (n <= SUM_BLOCK) return sum_of_block<Term>(x, n);
    const long long half = (n / 2 + SUM_BLOCK - 1) / SUM_BLOCK * SUM_BLOCK;
    return sum_in_pairs<Term>(x, half) + sum_in_pairs<Term>(x + half, n - half);
}

// The largest number, or with `least` the smallest one; NaN where there is one.
inline float extreme(const float* x, long long n, bool least) {
    constexpr int WIDTH = 4 * LANES;
    const float sign = least ? -1.0f : 1.0f;
    float most[WIDTH];
    int odd[WIDTH] = {};
    for (int v = 0; v < WIDTH; v++) most[v] = -INFINITY;
    long long i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
#pragma omp simd
        for (int v = 0; v < WIDTH; v++) {
            const float value = sign * x[i + v];
            odd[v] |= value != value;
            most[v] = value > most[v] ? value : most[v];
        }
    float found = -INFINITY;
    int nan = 0;
    const bool whole = i > 0;
#pragma omp simd reduction(max : found) reduction(| : nan)
    for (long long at = i; at < n; at++) {
        const float value = sign * x[at];
        nan |= value != value;
        found = value > found ? value : found;
    }
    if (!whole) return nan ? NAN : sign * found;
#pragma omp simd reduction(max : found) reduction(| : nan)
    for (int v = 0; v < WIDTH; v++) {
        nan |= odd[v];
        found = most[v] > found ? most[v] : found;
    }
    return nan ? NAN : sign * found;
}

inline float reduced(const float* x, long long n, long long kind) {
    switch (kind) {
        case 0: return sum_in_pairs<Plain>(x, n);
        case 3: return sum_in_pairs<Magnitude>(x, n);
        case 4: return sum_in_pairs<Square>(x, n);
        default: return extreme(x, n, kind == 2);
    }
}

// result[r] = the sum (kind 0), the largest (1), the smallest (2), the sum of magnitudes (3) or that of squares (4) of
// row r, divided by `divisor`.
inline void reduce_rows(long long rows, long long n, long long kind, float divisor, const float* x, float* result) {
    if (n <= LONG_ROW) {
        parallel_light(rows, ROW_WORK / (n + 1) + 1, [=](long long begin, long long end) {
            for (long long r = begin; r < end; r++) result[r] = reduced(x + r * n, n, kind) / divisor;
        });
        return;
    }
    const long long pieces = (n + LONG_ROW - 1) / LONG_ROW;
    Scratch memory;
    float* parts = memory.floats(rows * pieces);
    parallel_light(rows * pieces, 1, [=](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            const long long first = at % pieces * LONG_ROW, some = n - first < LONG_ROW ? n - first : LONG_ROW;
            parts[at] = reduced(x + at / pieces * n + first, some, kind);
        }
    });
    for (long long r = 0; r < rows; r++) result[r] = reduced(parts + r * pieces, pieces, kind > 2 ? 0 : kind) / divisor;
}

}  // namespace ox
