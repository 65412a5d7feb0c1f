// Attention in blocks of queries and keys: no matrix of all scores is made (Dao et al., FlashAttention, 2022). What the
// gradient needs of the softmax is the logarithm of each row's sum.
#pragma once
#include "float_math.h"
#include "product.h"

namespace ox {

// Of a block. Keys are columns of one product and rows of another.
constexpr long long QUERIES = 64 / TILE_ROWS * TILE_ROWS, KEYS = LANES == 16 ? 128 : TILE_ROWS * TILE_COLUMNS;
static_assert(KEYS % TILE_ROWS == 0 && KEYS % TILE_COLUMNS == 0, "blocks are whole tiles");
constexpr long long FEW_QUERIES = 6;            // of a head of keys: packing its keys would take longer than the products
constexpr long long PACKED = 1 << 20;           // floats of packed keys and values at a time
constexpr long long TASKS_OF_KEYS = 16;         // where heads of keys are fewer, the queries' heads are shared out as well

// Vectors of an array [outer, heads, rows, width] that lies anyhow, but for the contiguous last axis; steps in floats.
struct Rows {
    float* data;
    long long outer_step, head_step, row_step;
    float* of(long long outer, long long head) const { return data + outer * outer_step + head * head_step; }
};

// What belongs to each score [outer, heads, queries, keys], or nothing; steps in elements, 0 where it is broadcast.
struct Mask {
    const void* data;
    long long outer_step, head_step, row_step, column_step;
    long long at(long long outer, long long head, long long row, long long column) const {
        return outer * outer_step + head * head_step + row * row_step + column * column_step;
    }
};

struct Attention {
    long long outer, heads, group, queries, keys, width, value_width;  // `group` heads of queries share one of keys
    long long causal;                                                  // query t sees the keys up to t
    Mask allowed, bias, kept;  // bytes, 1 where attention may go; what is added to scores; factors of weights (dropout)
    Rows q, k, v, y;
    float* logs;  // [outer, heads, queries]
};

struct AttentionGradients {
    Rows y, q, k, v;
};

// A head of queries.
struct Head {
    long long outer, head;
};

inline long long padded_columns(long long columns) { return rounded_up(columns, TILE_COLUMNS); }

inline long long at_most(long long count, long long most) { return count < most ? count : most; }

// How many keys from k0 on the queries [q0, q0 + rows) can see, at most KEYS.
inline long long columns_of(const Attention& s, long long q0, long long rows, long long k0) {
    return at_most((s.causal ? at_most(q0 + rows, s.keys) : s.keys) - k0, KEYS);
}

// A query's scores of the keys from k0 on, as masks leave them; -inf from `columns` on.
inline void mask_scores(const Attention& s, Head h, long long query, long long k0, long long columns, float* row) {
    const float never = -__builtin_inff();
    long long end = s.causal ? at_most(query + 1 - k0, columns) : columns;
    if (end < 0) end = 0;
    if (s.bias.data) {
        const float* added = (const float*)s.bias.data + s.bias.at(h.outer, h.head, query, k0);
        const long long step = s.bias.column_step;
        if (step == 1)
            for (long long j = 0; j < end; j++) row[j] += added[j];
        else
            for (long long j = 0; j < end; j++) row[j] += added[j * step];
    }
    if (s.allowed.data) {
        const unsigned char* may = (const unsigned char*)s.allowed.data + s.allowed.at(h.outer, h.head, query, k0);
        const long long step = s.allowed.column_step;
        if (step == 1)
            for (long long j = 0; j < end; j++) row[j] = may[j] ? row[j] : never;
        else
            for (long long j = 0; j < end; j++) row[j] = may[j * step] ? row[j] : never;
    }
    for (long long j = end; j < KEYS; j++) row[j] = never;
}

// What dropout leaves of a query's numbers.
inline void keep_some(const Attention& s, Head h, long long query, long long k0, long long columns, float* row) {
    const float* factors = (const float*)s.kept.data + s.kept.at(h.outer, h.head, query, k0);
    for (long long j = 0; j < columns; j++) row[j] *= factors[j * s.kept.column_step];
}

// The softmax of a row whose blocks of scores come one after the other.
struct Softmax {
    float most, total;

    // Scores become weights that are not divided by the total yet; what was summed before shrinks by the result.
    float add(float* row) {
        float high = most;
#pragma omp simd reduction(max : high)
        for (long long j = 0; j < KEYS; j++) high = row[j] > high ? row[j] : high;
        const float shift = high == -__builtin_inff() ? 0.0f : high;  // a row that may go nowhere
        const float shrink = ox_exp_below(most - shift);
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (long long j = 0; j < KEYS; j++) {
            row[j] = ox_exp_below(row[j] - shift);
            sum += row[j];
        }
        total = total * shrink + sum;
        most = high;
        return shrink;
    }

    // The output and the logarithm of a query, from its sum of weighted values.
    void finish(const Attention& s, Head h, long long query, const float* sums) const {
        const float factor = total == 0.0f ? 0.0f : 1.0f / total;
        float* to = s.y.of(h.outer, h.head) + query * s.y.row_step;
        for (long long j = 0; j < s.value_width; j++) to[j] = sums[j] * factor;
        s.logs[(h.outer * s.heads + h.head) * s.queries + query] = total == 0.0f ? __builtin_inff() : most + ox_log(total);
    }
};

// A block of a (rows, columns) matrix as panels of columns.
inline void pack_block(const float* from, long long step, long long rows, long long columns, float* to) {
    for (long long c = 0; c < columns; c += TILE_COLUMNS)
        pack_panel({from, step, 1}, 0, rows, c, at_most(columns - c, TILE_COLUMNS), to + c * rows);
}

// The transpose of a (rows, columns) matrix as panels of its rows: depth `columns`.
inline void pack_turned(const float* from, long long step, long long rows, long long columns, float* to) {
    for (long long r = 0; r < rows; r += TILE_COLUMNS)
        pack_panel({from, 1, step}, 0, columns, r, at_most(rows - r, TILE_COLUMNS), to + r * columns);
}

inline void scale_all(float* numbers, long long count, float scale) {
    for (long long i = 0; i < count; i++) numbers[i] *= scale;
}

// A few queries, as where a text is continued: keys and values are read once, as they lie.
inline void attention_of_few(const Attention& s, float scale) {
    const long long key_heads = s.heads / s.group, rows = s.group * s.queries;
    parallel(s.outer * key_heads, 1, [&](long long begin, long long end) {
        static thread_local Scratch memory;
        float* scores = memory.floats(FEW_QUERIES * (KEYS + s.width + s.value_width));
        float *queries = scores + FEW_QUERIES * KEYS, *sums = queries + FEW_QUERIES * s.width;
        Softmax softmax[FEW_QUERIES];
        for (long long at = begin; at < end; at++) {
            const long long outer = at / key_heads, first = at % key_heads * s.group;
            const float *keys = s.k.of(outer, at % key_heads), *values = s.v.of(outer, at % key_heads);
            for (long long i = 0; i < rows; i++) {
                const float* query = s.q.of(outer, first + i / s.queries) + i % s.queries * s.q.row_step;
                for (long long c = 0; c < s.width; c++) queries[i * s.width + c] = query[c] * scale;
                softmax[i] = {-__builtin_inff(), 0.0f};
            }
            memset(sums, 0, rows * s.value_width * 4);
            for (long long k0 = 0; columns_of(s, 0, s.queries, k0) > 0; k0 += KEYS) {
                const long long columns = columns_of(s, 0, s.queries, k0);
                for (long long j = 0; j < columns; j++) {
                    const float* key = keys + (k0 + j) * s.k.row_step;
                    for (long long i = 0; i < rows; i++) {
                        const float* query = queries + i * s.width;
                        float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
                        for (long long c = 0; c < s.width; c++) dot += query[c] * key[c];
                        scores[i * KEYS + j] = dot;
                    }
                }
                for (long long i = 0; i < rows; i++) {
                    const Head h = {outer, first + i / s.queries};
                    mask_scores(s, h, i % s.queries, k0, columns, scores + i * KEYS);
                    const float shrink = softmax[i].add(scores + i * KEYS);
                    if (shrink != 1.0f) scale_all(sums + i * s.value_width, s.value_width, shrink);
                    if (s.kept.data) keep_some(s, h, i % s.queries, k0, columns, scores + i * KEYS);
                }
                for (long long j = 0; j < columns; j++) {
                    const float* value = values + (k0 + j) * s.v.row_step;
                    for (long long i = 0; i < rows; i++) {
                        const float weight = scores[i * KEYS + j];
                        float* sum = sums + i * s.value_width;
                        for (long long c = 0; c < s.value_width; c++) sum[c] += weight * value[c];
                    }
                }
            }
            for (long long i = 0; i < rows; i++)
                softmax[i].finish(s, {outer, first + i / s.queries}, i % s.queries, sums + i * s.value_width);
        }
    });
}

inline void attention_forward(const Attention& s, float scale) {
    if (s.group * s.queries <= FEW_QUERIES) return attention_of_few(s, scale);
    const long long key_heads = s.heads / s.group, all = s.outer * key_heads, width = padded_columns(s.value_width);
    const long long slabs = (s.keys + KEYS - 1) / KEYS, of_keys = padded_columns(s.keys) * s.width, of_head = of_keys + s.keys * width;
    const long long some = at_most(PACKED / of_head + 1, all), blocks = (s.queries + QUERIES - 1) / QUERIES;
    Scratch packing;
    float* packed = packing.floats(some * of_head);
    // keys and values are packed for some heads at a time, so that they take little memory, and the cache has them
    for (long long first = 0; first < all; first += some) {
        const long long heads = at_most(all - first, some);
        parallel(heads * slabs, 1, [&](long long begin, long long end) {
            for (long long at = begin; at < end; at++) {
                const long long kv = first + at / slabs, k0 = at % slabs * KEYS, rows = at_most(s.keys - k0, KEYS);
                float* to = packed + at / slabs * of_head;
                pack_turned(s.k.of(kv / key_heads, kv % key_heads) + k0 * s.k.row_step, s.k.row_step, rows, s.width, to + k0 * s.width);
                scale_all(to + k0 * s.width, padded_columns(rows) * s.width, scale);
                pack_block(s.v.of(kv / key_heads, kv % key_heads) + k0 * s.v.row_step, s.v.row_step, rows, s.value_width, to + of_keys + k0 * width);
            }
        });
        parallel(heads * s.group * blocks, 1, [&](long long begin, long long end) {
            static thread_local Scratch memory;
            float* scores = memory.floats(QUERIES * (KEYS + s.width + width));
            float *queries = scores + QUERIES * KEYS, *sums = queries + QUERIES * s.width;
            Softmax softmax[QUERIES];
            for (long long at = begin; at < end; at++) {
                // the last queries of a causal head have the most work: begin with them
                const long long q0 = (blocks - 1 - at % blocks) * QUERIES, index = first * s.group + at / blocks;
                const Head h = {index / s.heads, index % s.heads};
                const long long rows = at_most(s.queries - q0, QUERIES), padded = rounded_up(rows, TILE_ROWS);
                const float *keys = packed + at / blocks / s.group * of_head, *values = keys + of_keys;
                pack_rows({s.q.of(h.outer, h.head) + q0 * s.q.row_step, s.q.row_step, 1}, 0, s.width, 0, rows, queries);
                for (long long i = 0; i < rows; i++) softmax[i] = {-__builtin_inff(), 0.0f};
                memset(sums, 0, padded * width * 4);
                for (long long k0 = 0; columns_of(s, q0, rows, k0) > 0; k0 += KEYS) {
                    const long long columns = columns_of(s, q0, rows, k0);
                    block(padded, (int)(padded_columns(columns) / TILE_COLUMNS), s.width, queries, keys + k0 * s.width, scores, KEYS, false);
                    for (long long i = 0; i < rows; i++) {
                        float* row = scores + i * KEYS;
                        mask_scores(s, h, q0 + i, k0, columns, row);
                        const float shrink = softmax[i].add(row);
                        if (shrink != 1.0f) scale_all(sums + i * width, width, shrink);
                        if (s.kept.data) keep_some(s, h, q0 + i, k0, columns, row);
                    }
                    block<KEYS, 1>(padded, (int)(width / TILE_COLUMNS), columns, scores, values + k0 * width, sums, width, true, at_most(s.keys - k0, KEYS));
                }
                for (long long i = 0; i < rows; i++) softmax[i].finish(s, h, q0 + i, sums + i * width);
            }
        });
    }
}

// A product whose first factor's rows lie as they do, `step` apart, but for the last ones that are no whole tile: those
// are a panel in `border`.
inline void block_of_rows(long long rows, int panels, long long depth, const float* a, long long step, const float* border, const float* b, float* result, long long stride) {
    for (int panel = 0; panel < panels; panel++, b += TILE_COLUMNS * depth, result += TILE_COLUMNS) {
        long long r = 0;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS) tile_of_steps(depth, a + r * step, step, 1, b, result + r * stride, stride, false);
        if (r < rows) tile(depth, border, b, result + r * stride, stride, false);
    }
}

// The last rows of a block, if they are no whole tile, as a panel.
inline void pack_border(const float* from, long long step, long long rows, long long depth, float* to) {
    if (rows % TILE_ROWS) pack_rows({from, step, 1}, 0, depth, rows / TILE_ROWS * TILE_ROWS, rows % TILE_ROWS, to);
}

// The part of a gradient that some heads of queries, which share a head of keys, give: all of their own, and what they add
// to that of keys and values.
class AttentionBackward {
  public:
    AttentionBackward(const Attention& s, const AttentionGradients& to, float scale) : s(s), to(to), scale(scale), width(padded_columns(s.width)), value_width(padded_columns(s.value_width)) {
        const long long of_keys = KEYS * (s.width + s.value_width + 2 * width + value_width);
        const long long of_queries = QUERIES * (2 * width + value_width + 2 * KEYS) + TILE_ROWS * (s.width + s.value_width);
        static thread_local Scratch memory;
        keys_turned = memory.floats(of_keys + of_queries + s.group * s.queries);
        values_turned = keys_turned + KEYS * s.width, keys_packed = values_turned + KEYS * s.value_width;
        key_sums = keys_packed + KEYS * width, value_sums = key_sums + KEYS * width;
        query_block = value_sums + KEYS * value_width, gradient_block = query_block + QUERIES * width;
        query_sums = gradient_block + QUERIES * value_width, weights = query_sums + QUERIES * width;
        slopes = weights + QUERIES * KEYS, query_border = slopes + QUERIES * KEYS;
        gradient_border = query_border + TILE_ROWS * s.width, dots = gradient_border + TILE_ROWS * s.value_width;
    }

    // The heads [begin, end) of `outer`.
    void run(long long outer, long long begin, long long end, const Rows& to_k, const Rows& to_v) {
        const long long kv = begin / s.group;
        for (long long head = begin; head < end; head++) multiply({outer, head}, dots + (head - begin) * s.queries);
        for (long long k0 = 0; k0 < s.keys; k0 += KEYS) {
            const long long keys = at_most(s.keys - k0, KEYS);
            const float *k = s.k.of(outer, kv) + k0 * s.k.row_step, *v = s.v.of(outer, kv) + k0 * s.v.row_step;
            pack_turned(k, s.k.row_step, keys, s.width, keys_turned);
            scale_all(keys_turned, padded_columns(keys) * s.width, scale);
            pack_turned(v, s.v.row_step, keys, s.value_width, values_turned);
            pack_block(k, s.k.row_step, keys, s.width, keys_packed);
            memset(key_sums, 0, KEYS * (width + value_width) * 4);
            for (long long head = begin; head < end; head++)
                for (long long q0 = s.causal ? k0 / QUERIES * QUERIES : 0; q0 < s.queries; q0 += QUERIES)
                    if (columns_of(s, q0, at_most(s.queries - q0, QUERIES), k0) > 0) add({outer, head}, q0, k0, dots + (head - begin) * s.queries);
            for (long long i = 0; i < keys; i++) {
                memcpy(to_k.of(outer, kv) + (k0 + i) * to_k.row_step, key_sums + i * width, s.width * 4);
                memcpy(to_v.of(outer, kv) + (k0 + i) * to_v.row_step, value_sums + i * value_width, s.value_width * 4);
            }
        }
    }

  private:
    // The product of each output with its gradient: what the softmax of a row has in common.
    void multiply(Head h, float* result) const {
        for (long long i = 0; i < s.queries; i++) {
            const float *g = to.y.of(h.outer, h.head) + i * to.y.row_step, *y = s.y.of(h.outer, h.head) + i * s.y.row_step;
            float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
            for (long long j = 0; j < s.value_width; j++) dot += g[j] * y[j];
            result[i] = dot;
        }
    }

    // One block of queries and keys.
    void add(Head h, long long q0, long long k0, const float* of_rows) {
        const long long rows = at_most(s.queries - q0, QUERIES), padded = rounded_up(rows, TILE_ROWS);
        const long long columns = columns_of(s, q0, rows, k0), keys = rounded_up(columns, TILE_ROWS);
        const int panels = (int)(padded_columns(columns) / TILE_COLUMNS);
        const float *q = s.q.of(h.outer, h.head) + q0 * s.q.row_step, *g = to.y.of(h.outer, h.head) + q0 * to.y.row_step;
        const float* logs = s.logs + (h.outer * s.heads + h.head) * s.queries + q0;
        pack_border(q, s.q.row_step, rows, s.width, query_border);
        pack_border(g, to.y.row_step, rows, s.value_width, gradient_border);
        block_of_rows(rows, panels, s.width, q, s.q.row_step, query_border, keys_turned, weights, KEYS);
        block_of_rows(rows, panels, s.value_width, g, to.y.row_step, gradient_border, values_turned, slopes, KEYS);
        for (long long i = 0; i < rows; i++) {
            float *p = weights + i * KEYS, *d = slopes + i * KEYS;
            const float shift = logs[i], dot = of_rows[q0 + i];
            mask_scores(s, h, q0 + i, k0, columns, p);
            if (s.kept.data) keep_some(s, h, q0 + i, k0, columns, d);
#pragma omp simd
            for (long long j = 0; j < columns; j++) {
                p[j] = ox_exp_below(p[j] - shift);
                d[j] = p[j] * (d[j] - dot) * scale;
            }
            if (s.kept.data) keep_some(s, h, q0 + i, k0, columns, p);
            for (long long j = columns; j < KEYS; j++) p[j] = d[j] = 0.0f;
        }
        pack_block(q, s.q.row_step, rows, s.width, query_block);
        pack_block(g, to.y.row_step, rows, s.value_width, gradient_block);
        block<1, KEYS>(keys, (int)(value_width / TILE_COLUMNS), rows, weights, gradient_block, value_sums, value_width, true);
        block<1, KEYS>(keys, (int)(width / TILE_COLUMNS), rows, slopes, query_block, key_sums, width, true);
        float* result = to.q.of(h.outer, h.head) + q0 * to.q.row_step;
        const bool whole = padded == rows && width == s.width;
        block<KEYS, 1>(padded, (int)(width / TILE_COLUMNS), columns, slopes, keys_packed, whole ? result : query_sums, whole ? to.q.row_step : width, whole && k0 > 0, at_most(s.keys - k0, KEYS));
        if (whole) return;
        for (long long i = 0; i < rows; i++)
            for (long long j = 0; j < s.width; j++)
                result[i * to.q.row_step + j] = query_sums[i * width + j] + (k0 ? result[i * to.q.row_step + j] : 0.0f);
    }

    const Attention& s;
    const AttentionGradients& to;
    const float scale;
    const long long width, value_width;  // whole tiles
    float *keys_turned, *values_turned, *keys_packed, *key_sums, *value_sums;
    float *query_block, *gradient_block, *query_sums, *weights, *slopes, *query_border, *gradient_border, *dots;
};

// The gradients of queries, keys and values. A task is a head of keys with the heads of queries that share it, or with a
// part of those; what the parts add to keys and values is summed in their order.
inline void attention_backward(const Attention& s, const AttentionGradients& to, float scale) {
    const long long key_heads = s.heads / s.group, all = s.outer * key_heads;
    const long long parts = at_most((TASKS_OF_KEYS + all - 1) / all, s.group), others = parts - 1;
    const long long of_keys = s.keys * s.width, of_part = of_keys + s.keys * s.value_width;
    Scratch memory;
    float* sums = others ? memory.floats(all * others * of_part) : nullptr;  // of all parts but the first one
    parallel(all * parts, 1, [&](long long begin, long long end) {
        AttentionBackward backward(s, to, scale);
        for (long long at = begin; at < end; at++) {
            const long long h = at / parts, outer = h / key_heads, kv = h % key_heads, part = at % parts;
            const long long first = kv * s.group + part * s.group / parts, last = kv * s.group + (part + 1) * s.group / parts;
            float* own = part ? sums + (h * others + part - 1) * of_part : nullptr;
            const Rows own_k = {own, 0, 0, s.width}, own_v = {own + of_keys, 0, 0, s.value_width};
            backward.run(outer, first, last, own ? own_k : to.k, own ? own_v : to.v);
        }
    });
    if (!others) return;
    parallel(all, 1, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            float *to_k = to.k.of(at / key_heads, at % key_heads), *to_v = to.v.of(at / key_heads, at % key_heads);
            for (const float* k = sums + at * others * of_part; k < sums + (at + 1) * others * of_part; k += of_part)
                for (long long i = 0; i < s.keys; i++) {
                    const float *row = k + i * s.width, *value_row = k + of_keys + i * s.value_width;
                    for (long long j = 0; j < s.width; j++) to_k[i * to.k.row_step + j] += row[j];
                    for (long long j = 0; j < s.value_width; j++) to_v[i * to.v.row_step + j] += value_row[j];
                }
        }
    });
}

}  // namespace ox
