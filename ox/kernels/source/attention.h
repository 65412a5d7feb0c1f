// Attention in blocks of queries and keys: no matrix of all scores is made (Dao et al., FlashAttention, 2022). What the
// gradient needs of the softmax is the logarithm of each row's sum.
#pragma once
#include "float_math.h"
#include "product.h"

namespace ox {

// Of a block. Keys are columns of one product and rows of another.
constexpr long long QUERIES = 64 / TILE_ROWS * TILE_ROWS, KEYS = LANES == 16 ? 128 : TILE_ROWS * TILE_COLUMNS;
static_assert(KEYS % TILE_ROWS == 0 && KEYS % TILE_COLUMNS == 0, "blocks are whole tiles");

// Sizes, steps in floats (the last axis is contiguous), and where attention may go.
struct Attention {
    long long heads, group, queries, keys, width, value_width;  // `group` heads of queries share one of keys and values
    long long causal;                                           // query t sees the keys up to t
    const unsigned char* allowed;                               // 1 where attention may go, or nullptr
    long long allowed_head, allowed_row, allowed_column;        // its steps, 0 where it is broadcast
};

inline long long padded_columns(long long columns) { return rounded_up(columns, TILE_COLUMNS); }

// How many keys from k0 on the queries of a block can see, at most KEYS.
inline long long columns_of(const Attention& s, long long q0, long long rows, long long k0) {
    const long long end = s.causal && q0 + rows < s.keys ? q0 + rows : s.keys;
    return end - k0 < KEYS ? end - k0 : KEYS;
}

inline long long slab_of(const Attention& s, long long k0) { return s.keys - k0 < KEYS ? s.keys - k0 : KEYS; }

// Scores of one block of queries (packed) and keys (packed), masked; rows KEYS apart.
inline void scores_of(const Attention& s, long long head, const float* queries, const float* keys, long long q0, long long rows, long long k0, long long columns, float* scores) {
    const int panels = (int)((columns + TILE_COLUMNS - 1) / TILE_COLUMNS);
    block(rounded_up(rows, TILE_ROWS), panels, s.width, queries, keys, scores, KEYS, false);
    const float never = -__builtin_inff();
    for (long long i = 0; i < rows; i++) {
        float* row = scores + i * KEYS;
        long long end = columns;
        if (s.causal && q0 + i + 1 - k0 < end) end = q0 + i + 1 - k0 < 0 ? 0 : q0 + i + 1 - k0;
        for (long long j = end; j < KEYS; j++) row[j] = never;
        if (s.allowed) {
            const unsigned char* may = s.allowed + head * s.allowed_head + (q0 + i) * s.allowed_row + k0 * s.allowed_column;
            for (long long j = 0; j < end; j++) row[j] = may[j * s.allowed_column] ? row[j] : never;
        }
    }
}

// A (rows, columns) matrix as panels of columns, one slab of `slab` rows after the other.
inline void pack_slabs(const float* from, long long rows, long long columns, long long slab, float* to) {
    const long long width = padded_columns(columns);
    for (long long r = 0; r < rows; r += slab) {
        const long long some = rows - r < slab ? rows - r : slab;
        for (long long c = 0; c < columns; c += TILE_COLUMNS)
            pack_panel({from, columns, 1}, r, some, c, columns - c < TILE_COLUMNS ? columns - c : TILE_COLUMNS, to + r * width + c * some);
    }
}

// The transpose of a (rows, columns) matrix as panels of its rows: depth `columns`.
inline void pack_turned(const float* from, long long rows, long long columns, float* to) {
    for (long long r = 0; r < rows; r += TILE_COLUMNS)
        pack_panel({from, 1, columns}, 0, columns, r, rows - r < TILE_COLUMNS ? rows - r : TILE_COLUMNS, to + r * columns);
}

inline void attention_forward(const Attention& s, float scale, const float* queries, const float* keys, const float* values, float* output, float* logs) {
    const long long key_heads = s.heads / s.group, width = padded_columns(s.value_width), all_keys = padded_columns(s.keys);
    Scratch packing;
    float* packed_keys = packing.floats(key_heads * all_keys * (s.width + width));
    float* packed_values = packed_keys + key_heads * all_keys * s.width;
    parallel(key_heads, 1, [&](long long begin, long long end) {
        for (long long h = begin; h < end; h++) {
            pack_turned(keys + h * s.keys * s.width, s.keys, s.width, packed_keys + h * all_keys * s.width);
            pack_slabs(values + h * s.keys * s.value_width, s.keys, s.value_width, KEYS, packed_values + h * all_keys * width);
        }
    });
    const long long blocks = (s.queries + QUERIES - 1) / QUERIES;
    parallel(s.heads * blocks, 1, [&](long long begin, long long end) {
        static thread_local Scratch memory;
        float* scores = memory.floats(QUERIES * (KEYS + s.width + width));
        float *packed_queries = scores + QUERIES * KEYS, *sums = packed_queries + QUERIES * s.width;
        float most[QUERIES], total[QUERIES];
        for (long long at = begin; at < end; at++) {
            // the last queries of a causal head have the most work: begin with them
            const long long head = at / blocks, b = blocks - 1 - at % blocks, q0 = b * QUERIES;
            const long long rows = s.queries - q0 < QUERIES ? s.queries - q0 : QUERIES, padded = rounded_up(rows, TILE_ROWS);
            const float* own_keys = packed_keys + head / s.group * all_keys * s.width;
            const float* own_values = packed_values + head / s.group * all_keys * width;
            pack_rows({queries + head * s.queries * s.width, s.width, 1}, 0, s.width, q0, rows, packed_queries);
            for (long long i = 0; i < padded * s.width; i++) packed_queries[i] *= scale;
            for (long long i = 0; i < rows; i++) most[i] = -__builtin_inff(), total[i] = 0.0f;
            memset(sums, 0, padded * width * 4);
            for (long long k0 = 0; k0 < s.keys; k0 += KEYS) {
                if (columns_of(s, q0, rows, k0) <= 0) break;
                const long long columns = columns_of(s, q0, rows, k0);
                scores_of(s, head, packed_queries, own_keys + k0 * s.width, q0, rows, k0, columns, scores);
                for (long long i = 0; i < rows; i++) {
                    float* row = scores + i * KEYS;
                    float high = most[i];
#pragma omp simd reduction(max : high)
                    for (long long j = 0; j < KEYS; j++) high = row[j] > high ? row[j] : high;
                    const float shift = high == -__builtin_inff() ? 0.0f : high;  // a row that may go nowhere
                    const float shrink = ox_exp(most[i] - shift);
                    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                    for (long long j = 0; j < KEYS; j++) {
                        row[j] = ox_exp(row[j] - shift);
                        sum += row[j];
                    }
                    total[i] = total[i] * shrink + sum;
                    most[i] = high;
                    if (shrink != 1.0f) {
                        float* to = sums + i * width;
                        for (long long j = 0; j < width; j++) to[j] *= shrink;
                    }
                }
                block<KEYS, 1>(padded, (int)(width / TILE_COLUMNS), columns, scores, own_values + k0 * width, sums, width, true, slab_of(s, k0));
            }
            for (long long i = 0; i < rows; i++) {
                const float factor = total[i] == 0.0f ? 0.0f : 1.0f / total[i];
                float* to = output + (head * s.queries + q0 + i) * s.value_width;
                for (long long j = 0; j < s.value_width; j++) to[j] = sums[i * width + j] * factor;
                logs[head * s.queries + q0 + i] = total[i] == 0.0f ? __builtin_inff() : most[i] + ox_log(total[i]);
            }
        }
    });
}

// The gradients of queries, keys and values; a head of keys is one task, with all heads of queries that share it.
inline void attention_backward(const Attention& s, float scale, const float* gradient, const float* queries, const float* keys, const float* values, const float* output, const float* logs, float* to_queries, float* to_keys, float* to_values) {
    const long long width = padded_columns(s.width), value_width = padded_columns(s.value_width);
    const long long all_keys = padded_columns(s.keys), key_rows = rounded_up(s.keys, TILE_ROWS);
    parallel(s.heads / s.group, 1, [&](long long begin, long long end) {
        static thread_local Scratch memory;
        const long long of_keys = all_keys * (s.width + s.value_width + width) + (key_rows + KEYS) * (width + value_width);
        const long long of_queries = QUERIES * (s.width + s.value_width + 2 * width + value_width);
        float* keys_turned = memory.floats(of_keys + of_queries + 2 * QUERIES * KEYS + QUERIES);
        float *values_turned = keys_turned + all_keys * s.width, *keys_packed = values_turned + all_keys * s.value_width;
        float *key_sums = keys_packed + all_keys * width, *value_sums = key_sums + (key_rows + KEYS) * width;
        float *query_rows = value_sums + (key_rows + KEYS) * value_width, *gradient_rows = query_rows + QUERIES * s.width;
        float *query_slab = gradient_rows + QUERIES * s.value_width, *gradient_slab = query_slab + QUERIES * width;
        float *query_sums = gradient_slab + QUERIES * value_width, *chances = query_sums + QUERIES * width;
        float *slopes = chances + QUERIES * KEYS, *dots = slopes + QUERIES * KEYS;
        for (long long kv = begin; kv < end; kv++) {
            const float *k = keys + kv * s.keys * s.width, *v = values + kv * s.keys * s.value_width;
            pack_turned(k, s.keys, s.width, keys_turned);
            pack_turned(v, s.keys, s.value_width, values_turned);
            pack_slabs(k, s.keys, s.width, KEYS, keys_packed);
            memset(key_sums, 0, (key_rows + KEYS) * width * 4);
            memset(value_sums, 0, (key_rows + KEYS) * value_width * 4);
            for (long long head = kv * s.group; head < (kv + 1) * s.group; head++) {
                for (long long q0 = 0; q0 < s.queries; q0 += QUERIES) {
                    const long long rows = s.queries - q0 < QUERIES ? s.queries - q0 : QUERIES, padded = rounded_up(rows, TILE_ROWS);
                    const float *q = queries + (head * s.queries + q0) * s.width, *g = gradient + (head * s.queries + q0) * s.value_width;
                    const float *y = output + (head * s.queries + q0) * s.value_width, *log_sum = logs + head * s.queries + q0;
                    pack_rows({q, s.width, 1}, 0, s.width, 0, rows, query_rows);
                    for (long long i = 0; i < padded * s.width; i++) query_rows[i] *= scale;
                    pack_rows({g, s.value_width, 1}, 0, s.value_width, 0, rows, gradient_rows);
                    pack_slabs(q, rows, s.width, QUERIES, query_slab);
                    pack_slabs(g, rows, s.value_width, QUERIES, gradient_slab);
                    for (long long i = 0; i < rows; i++) {
                        float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
                        for (long long j = 0; j < s.value_width; j++) dot += g[i * s.value_width + j] * y[i * s.value_width + j];
                        dots[i] = dot;
                    }
                    memset(query_sums, 0, padded * width * 4);
                    for (long long k0 = 0; k0 < s.keys; k0 += KEYS) {
                        if (columns_of(s, q0, rows, k0) <= 0) break;
                        const long long columns = columns_of(s, q0, rows, k0), key_padded = rounded_up(columns, TILE_ROWS);
                        const int panels = (int)((columns + TILE_COLUMNS - 1) / TILE_COLUMNS);
                        scores_of(s, head, query_rows, keys_turned + k0 * s.width, q0, rows, k0, columns, chances);
                        block(padded, panels, s.value_width, gradient_rows, values_turned + k0 * s.value_width, slopes, KEYS, false);
                        for (long long i = 0; i < rows; i++) {
                            float *p = chances + i * KEYS, *d = slopes + i * KEYS;
                            const float shift = log_sum[i], dot = dots[i];
#pragma omp simd
                            for (long long j = 0; j < columns; j++) {
                                p[j] = ox_exp(p[j] - shift);
                                d[j] = p[j] * (d[j] - dot) * scale;
                            }
                            for (long long j = columns; j < KEYS; j++) p[j] = d[j] = 0.0f;
                        }
                        block<KEYS, 1>(padded, (int)(width / TILE_COLUMNS), columns, slopes, keys_packed + k0 * width, query_sums, width, true, slab_of(s, k0));
                        block<1, KEYS>(key_padded, (int)(value_width / TILE_COLUMNS), rows, chances, gradient_slab, value_sums + k0 * value_width, value_width, true);
                        block<1, KEYS>(key_padded, (int)(width / TILE_COLUMNS), rows, slopes, query_slab, key_sums + k0 * width, width, true);
                    }
                    for (long long i = 0; i < rows; i++)
                        memcpy(to_queries + (head * s.queries + q0 + i) * s.width, query_sums + i * width, s.width * 4);
                }
            }
            for (long long i = 0; i < s.keys; i++) {
                memcpy(to_keys + (kv * s.keys + i) * s.width, key_sums + i * width, s.width * 4);
                memcpy(to_values + (kv * s.keys + i) * s.value_width, value_sums + i * value_width, s.value_width * 4);
            }
        }
    });
}

}  // namespace ox
