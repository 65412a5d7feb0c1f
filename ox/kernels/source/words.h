// What cpu.h and generated.h share: the language of the kernels on a CPU, on top of an `ox::parallel_light`.
#pragma once

#define FUNCTION static inline __attribute__((always_inline))
#define RESTRICT __restrict__
#define SIMD(text) _Pragma(#text)

#include "float_math.h"

namespace ox {
constexpr long long ELEMENTS = 1 << 14;  // of one block of an elementwise kernel: 64 KiB of each array
constexpr long long ROW_WORK = 1 << 14;  // elements of the rows of one block
inline long long rows_of_block(long long columns) { return columns >= ROW_WORK ? 1 : ROW_WORK / (columns + 1) + 1; }
}  // namespace ox

// A kernel of one statement for each element: EACH(name, i, count, parameters...) { ... } END
#define EACH(name, i, count, ...)                                                 \
    extern "C" void name(long long count, __VA_ARGS__) {                          \
        ox::parallel_light(count, ox::ELEMENTS, [=](long long ox_begin, long long ox_end) { \
            _Pragma("omp simd") for (long long i = ox_begin; i < ox_end; i++)
#define END \
    });     \
    }
// A kernel of one block of statements for each row; `width` is the parameter that says how long a row is.
#define ROWS(name, r, count, width, ...)                                                       \
    extern "C" void name(long long count, __VA_ARGS__) {                                       \
        ox::parallel_light(count, ox::rows_of_block(width), [=](long long ox_begin, long long ox_end) { \
            for (long long r = ox_begin; r < ox_end; r++)
// A loop over a row's columns, and sums and maxima over them. Their closures hold copies: through references compilers
// take a pointer for another one in each turn, and gather.
#define COLUMNS(c, n) _Pragma("omp simd") for (long long c = 0; c < (n); c++)
#define SUM(c, n, expression) ox_sum(n, [=](long long c) { return expression; })
#define MAX(c, n, expression) ox_max(n, [=](long long c) { return expression; })
// An array of `n` numbers for the columns of a row, that its loops share; the number of column c is kept[KEPT_AT(c)]. These
// loops are UNROLLED_COLUMNS, ox_unrolled_sum and ox_unrolled_max, for a GPU.
#define UNROLLED_COLUMNS(c, n) COLUMNS(c, n)
#define KEPT(type, name, n) type name[n]
#define KEPT_AT(c) (c)

namespace ox {
constexpr long long SUM_PART = 1024;  // numbers that float32 adds up, one sum a lane; the sums of parts are added in double
}  // namespace ox

template <class F> FUNCTION float ox_sum(long long n, const F& f) {
    double total = 0.0;
    for (long long first = 0; first < n; first += ox::SUM_PART) {
        const long long end = first + ox::SUM_PART < n ? first + ox::SUM_PART : n;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (long long c = first; c < end; c++) sum += f(c);
        total += sum;
    }
    return (float)total;
}

template <class F> FUNCTION float ox_max(long long n, const F& f) {
    float most = -INFINITY;
    int nan = 0;
#pragma omp simd reduction(max : most) reduction(| : nan)
    for (long long c = 0; c < n; c++) {
        float value = f(c);
        nan |= value != value;
        most = value > most ? value : most;
    }
    return nan ? NAN : most;
}

template <long long n, class F> FUNCTION float ox_unrolled_sum(const F& f) { return ox_sum(n, f); }
template <long long n, class F> FUNCTION float ox_unrolled_max(const F& f) { return ox_max(n, f); }

// In order: rounding does not depend on threads.
FUNCTION double ox_sum_of(const double* RESTRICT numbers, long long n) {
    double sum = 0.0;
    for (long long k = 0; k < n; k++) sum += numbers[k];
    return sum;
}
