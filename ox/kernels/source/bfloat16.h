// Products of bfloat16 matrices, in sums of float32 that are rounded once. Where the processor has AVX512-BF16, an
// instruction multiplies and adds two numbers of a pair in each lane: twice the work of float32. Subnormal numbers
// count as zeros there. On other processors the panels hold float32, and the product runs at the speed of float32.
#pragma once
#include "product.h"

#if defined(__AVX512F__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace ox {

typedef unsigned short Bfloat16;

struct HalfMatrix {
    const Bfloat16* data;
    long long row_step, column_step;  // numbers
};

inline bool multiplies_pairs() {
#if defined(__AVX512F__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    static const bool found = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
    return found;
#else
    return false;
#endif
}

constexpr long long UNITS = 256;  // of a slab; a unit is a pair of numbers of neighbouring depths, or one as float32

// `b`: panels of units in the depth by TILE_COLUMNS, `a`: by TILE_ROWS.
template <bool PAIRS> inline void half_tile(long long units, const unsigned* a, const unsigned* b, float* result, long long stride, bool add) {
    tile(units, (const float*)a, (const float*)b, result, stride, add);
}

#if defined(__AVX512F__)
template <> __attribute__((target("avx512bf16"))) inline void half_tile<true>(long long units, const unsigned* a, const unsigned* b, float* result, long long stride, bool add) {
    __m512 sums[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) sums[i][j] = _mm512_setzero_ps();
    for (long long k = 0; k < units; k++, a += TILE_ROWS, b += TILE_COLUMNS) {
        __m512i columns[TILE_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) columns[j] = _mm512_loadu_si512(b + j * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
            for (int j = 0; j < TILE_VECTORS; j++) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], (__m512bh)_mm512_set1_epi32((int)a[i]), (__m512bh)columns[j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) {
            float* to = result + i * stride + j * LANES;
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sums[i][j]) : sums[i][j]);
        }
}
#endif

// The units of `lines` lines (columns of b, rows of a) from depth `k` on, side by side for each depth: to[unit * WIDTH +
// line]. `along` and `across` are the steps in depth and from line to line; lines up to WIDTH and depths from `stop` on
// are zeros.
template <bool PAIRS, int WIDTH> inline void pack_units(const Bfloat16* from, long long along, long long across, long long units, long long depth, long long lines, unsigned* to) {
    if (lines < WIDTH) memset(to, 0, units * WIDTH * 4);
    const long long whole = PAIRS ? depth / 2 : depth;
    if (across == 1) {
        for (long long u = 0; u < whole; u++, to += WIDTH) {
            const Bfloat16 *low = from + (PAIRS ? 2 * u : u) * along, *high = low + along;
            if (lines == WIDTH) {
                for (int j = 0; j < WIDTH; j++) to[j] = PAIRS ? low[j] | (unsigned)high[j] << 16 : (unsigned)low[j] << 16;
            } else {
                for (long long j = 0; j < lines; j++) to[j] = PAIRS ? low[j] | (unsigned)high[j] << 16 : (unsigned)low[j] << 16;
            }
        }
    } else {
        constexpr long long STRIP = 16;  // units at a time: a line of the cache where the depth is contiguous
        for (long long s = 0; s < whole; s += STRIP) {
            const long long stop = s + STRIP < whole ? s + STRIP : whole;
            for (long long j = 0; j < lines; j++) {
                const Bfloat16* line = from + j * across;
                if (PAIRS && along == 1) {
                    for (long long u = s; u < stop; u++) memcpy(to + u * WIDTH + j, line + 2 * u, 4);
                } else {
                    for (long long u = s; u < stop; u++) to[u * WIDTH + j] = PAIRS ? line[2 * u * along] | (unsigned)line[(2 * u + 1) * along] << 16 : (unsigned)line[u * along] << 16;
                }
            }
        }
        to += whole * WIDTH;
    }
    if (whole < units) {  // the last pair lacks its second number
        for (int j = 0; j < WIDTH; j++) to[j] = j < lines ? from[2 * whole * along + j * across] : 0;
    }
}

// result (rows by columns, contiguous) = a b, plus a bias for each column.
template <bool PAIRS> inline void half_product_of(long long rows, long long depth, long long columns, const HalfMatrix& a, const HalfMatrix& b, const Bfloat16* bias, Bfloat16* result) {
    constexpr long long DEPTHS = PAIRS ? 2 * UNITS : UNITS;  // of a slab
    const auto units_of = [](long long depths) { return PAIRS ? (depths + 1) / 2 : depths; };
    const long long panels = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS, slabs = (depth + DEPTHS - 1) / DEPTHS;
    const long long units = units_of(depth);
    static thread_local Scratch packing;
    unsigned* packed = (unsigned*)packing.floats(panels * TILE_COLUMNS * units);
    parallel(panels * slabs, depth * columns < SMALL_COPY ? panels * slabs : 4, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            const long long k0 = at / panels * DEPTHS, panel = at % panels, first = panel * TILE_COLUMNS;
            const long long depths = depth - k0 < DEPTHS ? depth - k0 : DEPTHS, some = units_of(depths);
            const long long count = columns - first < TILE_COLUMNS ? columns - first : TILE_COLUMNS;
            pack_units<PAIRS, TILE_COLUMNS>(b.data + k0 * b.row_step + first * b.column_step, b.row_step, b.column_step, some, depths, count, packed + (units_of(k0) * panels + panel * some) * TILE_COLUMNS);
        }
    });
    const long long row_tasks = (rows + ROWS_OF_TASK - 1) / ROWS_OF_TASK;
    const long long blocks = (columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS, run = row_tasks >= 4 ? blocks : 1;
    const long long column_tasks = (blocks + run - 1) / run, tasks = row_tasks * column_tasks;
    parallel(tasks, rows * depth * columns < SMALL_PRODUCT ? tasks : 1, [&](long long begin, long long end) {
        static thread_local Scratch rows_memory, sums_memory;
        for (long long at = begin; at < end; at++) {
            const long long first = at / column_tasks * ROWS_OF_TASK, count = rows - first < ROWS_OF_TASK ? rows - first : ROWS_OF_TASK;
            const long long padded = rounded_up(count, TILE_ROWS);
            unsigned* left = (unsigned*)rows_memory.floats(padded * units);
            float* sums = sums_memory.floats(padded * BLOCK_COLUMNS);
            for (long long k0 = 0; k0 < depth; k0 += DEPTHS) {
                const long long depths = depth - k0 < DEPTHS ? depth - k0 : DEPTHS, some = units_of(depths);
                for (long long r = 0; r < count; r += TILE_ROWS)
                    pack_units<PAIRS, TILE_ROWS>(a.data + (first + r) * a.row_step + k0 * a.column_step, a.column_step, a.row_step, some, depths, count - r < TILE_ROWS ? count - r : TILE_ROWS, left + units_of(k0) * padded + r * some);
            }
            const long long from = at % column_tasks * run * BLOCK_COLUMNS, to = from + run * BLOCK_COLUMNS;
            for (long long c0 = from; c0 < to && c0 < columns; c0 += BLOCK_COLUMNS) {
                const long long width = columns - c0 < BLOCK_COLUMNS ? columns - c0 : BLOCK_COLUMNS;
                for (long long k0 = 0; k0 < depth; k0 += DEPTHS) {
                    const long long some = units_of(depth - k0 < DEPTHS ? depth - k0 : DEPTHS), before = units_of(k0);
                    for (long long c = 0; c < width; c += TILE_COLUMNS)
                        for (long long r = 0; r < count; r += TILE_ROWS)
                            half_tile<PAIRS>(some, left + before * padded + r * some, packed + before * panels * TILE_COLUMNS + (c0 + c) * some, sums + r * BLOCK_COLUMNS + c, BLOCK_COLUMNS, k0 > 0);
                }
                for (long long i = 0; i < count; i++) {
                    const float* sum = sums + i * BLOCK_COLUMNS;
                    Bfloat16* y = result + (first + i) * columns + c0;
                    if (bias) {
                        for (long long j = 0; j < width; j++) y[j] = to_bfloat16(sum[j] + from_bfloat16(bias[c0 + j]));
                    } else {
                        for (long long j = 0; j < width; j++) y[j] = to_bfloat16(sum[j]);
                    }
                }
            }
        }
    });
}

inline void half_product(long long rows, long long depth, long long columns, const HalfMatrix& a, const HalfMatrix& b, const Bfloat16* bias, Bfloat16* result) {
#if defined(__AVX512F__)
    if (multiplies_pairs()) return half_product_of<true>(rows, depth, columns, a, b, bias, result);
#endif
    half_product_of<false>(rows, depth, columns, a, b, bias, result);
}

// `count` products, their matrices the given numbers apart.
inline void half_products(long long count, long long rows, long long depth, long long columns, const HalfMatrix& a, long long a_step, const HalfMatrix& b, long long b_step, Bfloat16* result) {
    const long long small = SMALL_PRODUCT / (rows * depth * columns + 1) + 1;
    parallel(count, small, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++)
            half_product(rows, depth, columns, {a.data + at * a_step, a.row_step, a.column_step}, {b.data + at * b_step, b.row_step, b.column_step}, nullptr, result + at * rows * columns);
    });
}

}  // namespace ox
