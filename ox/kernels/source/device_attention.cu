// Attention in blocks of queries and keys on a GPU, as attention.h has it for a CPU: no matrix of all scores is made (Dao
// et al., FlashAttention, 2022). Numbers are NUMBER, sums float. WIDTH is at least the width of a query and of a value.
//
// A block of threads does TILE queries, or for the gradients of keys and values TILE keys, one tile of the others after
// another: so each sum has one order. Its threads are SIDE x SIDE; each has OWN x OWN scores of a tile, and of a sum OWN
// rows of COLUMNS columns.
#include "device_numbers.h"
#include "philox.h"

constexpr int SIDE = 16, THREADS = SIDE * SIDE, OWN = 4, TILE = SIDE * OWN, PITCH = TILE + 4, DEPTH = 32;
constexpr int COLUMNS_OWN = WIDTH / SIDE, TOGETHER = COLUMNS_OWN < 4 ? COLUMNS_OWN : 4;
constexpr int CHUNK = 2 * DEPTH * PITCH, ROWS_OF_CHUNK = CHUNK / WIDTH < TILE ? 4096 / WIDTH : TILE;
static_assert(ROWS_OF_CHUNK * WIDTH <= CHUNK && TILE % ROWS_OF_CHUNK == 0, "a chunk holds whole rows");

// Blocks that a multiprocessor is to hold at once: with more sums it has no registers for two.
constexpr int OF_ONE_SUM = WIDTH > 128 ? 1 : 2, OF_TWO_SUMS = WIDTH > 64 ? 1 : 2;

// Vectors [outer, heads, rows, width], the last axis without gaps; steps in elements.
struct Matrix {
    NUMBER* data;
    long long outer_step, head_step, row_step;
    __device__ __forceinline__ NUMBER* of(long long outer, long long head, long long row) const {
        return data + outer * outer_step + head * head_step + row * row_step;
    }
};

// What belongs to each score [outer, heads, queries, keys], or nothing; steps in elements, 0 where it is broadcast.
template <class N> struct Mask {
    const N* data;
    long long outer_step, head_step, row_step, column_step;
};

struct Attention {
    long long heads, group, queries, keys, width, value_width;  // `group` heads of queries share one of keys
    long long causal;                                           // query t sees the keys up to t
    Mask<unsigned char> allowed;                                // where attention may go
    Mask<NUMBER> bias, kept;                                    // what is added to scores; factors of weights
    Matrix q, k, v, y;
    float* logs;                                // [outer, heads, queries]: logarithms of the softmax's sums
    long long key, counter, blocks;             // of dropout's numbers; no blocks where there is none
    const long long *key_there, *counter_there;  // where key and counter lie in device memory, or nullptr
};

struct AttentionGradients {
    Matrix y, q, k, v;
    float* dots;  // [outer, heads, queries]: products of outputs with their gradients
};

// The sums of a thread: rows `first_row() + i`, columns `column(c)`.
typedef float Scores[OWN][OWN];
typedef float Sums[OWN][COLUMNS_OWN];

FUNCTION int first_row() { return (int)threadIdx.x / SIDE * OWN; }

FUNCTION int first_column() { return (int)threadIdx.x % SIDE * OWN; }

FUNCTION int column(int c) { return c / TOGETHER * SIDE * TOGETHER + (int)threadIdx.x % SIDE * TOGETHER + c % TOGETHER; }

FUNCTION int at_most(long long count, int most) { return count < most ? (int)count : most; }

// Columns [begin, begin + DEPTH) of rows, each column PITCH behind the one before; 0 where there is none.
FUNCTION void load_turned(const NUMBER* RESTRICT from, long long step, int rows, int begin, int width, float* RESTRICT to) {
    const int first = threadIdx.x / DEPTH, d = threadIdx.x % DEPTH;
    const int count = begin + d < width ? rows : 0;
    from += first * step + begin + d;
    to += d * PITCH;
#pragma unroll 4
    for (int row = first; row < TILE; row += THREADS / DEPTH, from += THREADS / DEPTH * step) to[row] = row < count ? LOAD(*from) : 0.0f;
}

// The products of rows of `a` with rows of `b`, which are `width` wide.
FUNCTION void multiply(const NUMBER* RESTRICT a, long long a_step, int a_rows, const NUMBER* RESTRICT b, long long b_step, int b_rows, int width, float* RESTRICT chunk, Scores& sums) {
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int j = 0; j < OWN; j++) sums[i][j] = 0.0f;
    for (int begin = 0; begin < width; begin += DEPTH) {
        __syncthreads();  // what is in the chunk is read
        load_turned(a, a_step, a_rows, begin, width, chunk);
        load_turned(b, b_step, b_rows, begin, width, chunk + DEPTH * PITCH);
        __syncthreads();
#pragma unroll 4
        for (int d = 0; d < DEPTH; d++) {
            const float *x = chunk + d * PITCH + first_row(), *y = chunk + (DEPTH + d) * PITCH + first_column();
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < OWN; j++) sums[i][j] += x[i] * y[j];
        }
    }
}

// Adds the product of a tile, whose columns are PITCH apart, with `rows` rows of x.
FUNCTION void accumulate(const float* RESTRICT tile, const NUMBER* RESTRICT x, long long step, int rows, int width, float* RESTRICT chunk, Sums& sums) {
    for (int begin = 0; begin < rows; begin += ROWS_OF_CHUNK) {
        __syncthreads();  // the tile is written, and what is in the chunk is read
        const int first = threadIdx.x / WIDTH, c = threadIdx.x % WIDTH, count = c < width ? rows - begin : 0;
        const NUMBER* from = x + (begin + first) * step + c;
#pragma unroll 4
        for (int row = first; row < ROWS_OF_CHUNK; row += THREADS / WIDTH, from += THREADS / WIDTH * step) chunk[row * WIDTH + c] = row < count ? LOAD(*from) : 0.0f;
        __syncthreads();
#pragma unroll 2
        for (int k = 0; k < ROWS_OF_CHUNK; k++)
#pragma unroll
            for (int c = 0; c < COLUMNS_OWN; c++) {
                const float y = chunk[k * WIDTH + column(c)];
#pragma unroll
                for (int i = 0; i < OWN; i++) sums[i][c] += tile[(begin + k) * PITCH + first_row() + i] * y;
            }
    }
}

FUNCTION void store(const Sums& sums, NUMBER* RESTRICT to, long long step, int rows, int width) {
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS_OWN; c++)
            if (first_row() + i < rows && column(c) < width) to[(first_row() + i) * step + column(c)] = STORE(sums[i][c]);
}

// Of the SIDE threads that share rows.
FUNCTION float sum_of_row(float x) {
    for (int distance = SIDE / 2; distance; distance >>= 1) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

FUNCTION float most_of_row(float x) {
    for (int distance = SIDE / 2; distance; distance >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

// One head of queries, with what belongs to its scores.
struct Head {
    const Attention& s;
    long long outer, head;
    unsigned long long key, counter;

    __device__ __forceinline__ Head(const Attention& s, long long outer, long long head)
        : s(s), outer(outer), head(head), key(s.key_there ? *s.key_there : s.key), counter(s.counter_there ? *s.counter_there : s.counter) {}

    template <class N> __device__ __forceinline__ N at(const Mask<N>& mask, long long query, long long k) const {
        return mask.data[outer * mask.outer_step + head * mask.head_step + query * mask.row_step + k * mask.column_step];
    }

    // A score as masks leave it.
    __device__ __forceinline__ float masked(float score, long long query, long long k) const {
        if (query >= s.queries || k >= s.keys || (s.causal && k > query)) return -INFINITY;
        if (s.allowed.data && !at(s.allowed, query, k)) return -INFINITY;
        return s.bias.data ? score + LOAD(at(s.bias, query, k)) : score;
    }

    // What dropout makes of a weight: 0 where its number is below p, else `left` times as much.
    __device__ __forceinline__ float factor(long long query, long long k, float p, float left) const {
        if (query >= s.queries || k >= s.keys) return 0.0f;
        if (s.kept.data) return LOAD(at(s.kept, query, k));
        if (!s.blocks) return 1.0f;
        const long long number = ((outer * s.heads + head) * s.queries + query) * s.keys + k;
        const int part = (number >= s.blocks) + (number >= 2 * s.blocks) + (number >= 3 * s.blocks);
        const Words words = philox(key, counter + (number - part * s.blocks));
        return to_unit(part == 0 ? words.a : part == 1 ? words.b : part == 2 ? words.c : words.d) >= p ? left : 0.0f;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, OF_ONE_SUM) ox_device_attention(const Attention s, float scale, float p, float left) {
    alignas(16) __shared__ float chunk[CHUNK];
    alignas(16) __shared__ float tile[TILE * PITCH];
    const long long tiles = (s.queries + TILE - 1) / TILE, at = blockIdx.x / tiles;
    const long long q0 = (tiles - 1 - blockIdx.x % tiles) * TILE;  // where the causal ones have most to do comes first
    const Head head(s, at / s.heads, at % s.heads);
    const long long shared = head.head / s.group, end = s.causal && q0 + TILE < s.keys ? q0 + TILE : s.keys;
    const int rows = at_most(s.queries - q0, TILE);
    float most[OWN], total[OWN];
    Sums sums;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        most[i] = -INFINITY, total[i] = 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS_OWN; c++) sums[i][c] = 0.0f;
    }
    for (long long k0 = 0; k0 < end; k0 += TILE) {
        const int keys = at_most(s.keys - k0, TILE);
        Scores scores;
        multiply(s.q.of(head.outer, head.head, q0), s.q.row_step, rows, s.k.of(head.outer, shared, k0), s.k.row_step, keys, (int)s.width, chunk, scores);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const long long query = q0 + first_row() + i, key = k0 + first_column();
            float high = most[i], sum = 0.0f;
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                scores[i][j] = head.masked(scores[i][j] * scale, query, key + j);
                high = fmaxf(high, scores[i][j]);
            }
            high = most_of_row(high);
            const float shift = high == -INFINITY ? 0.0f : high;  // a row that may go nowhere
            const float shrink = expf(most[i] - shift);
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const float weight = expf(scores[i][j] - shift);
                sum += weight;
                tile[(first_column() + j) * PITCH + first_row() + i] = weight * head.factor(query, key + j, p, left);
            }
            total[i] = total[i] * shrink + sum_of_row(sum);
            most[i] = high;
#pragma unroll
            for (int c = 0; c < COLUMNS_OWN; c++) sums[i][c] *= shrink;
        }
        accumulate(tile, s.v.of(head.outer, shared, k0), s.v.row_step, keys, (int)s.value_width, chunk, sums);
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const float share = total[i] == 0.0f ? 0.0f : 1.0f / total[i];
#pragma unroll
        for (int c = 0; c < COLUMNS_OWN; c++) sums[i][c] *= share;
        if (first_column() == 0 && first_row() + i < rows)
            s.logs[at * s.queries + q0 + first_row() + i] = total[i] == 0.0f ? INFINITY : most[i] + logf(total[i]);
    }
    store(sums, s.y.of(head.outer, head.head, q0), s.y.row_step, rows, (int)s.value_width);
}

// The weights of a tile from q0 and k0 on, after dropout, and the gradients of its scores before they were scaled.
FUNCTION void slopes(const AttentionGradients& to, const Head& head, long long q0, long long k0, float scale, float p, float left, const float (&logs)[OWN], const float (&dots)[OWN], float* RESTRICT chunk, Scores& weights, Scores& found) {
    const Attention& s = head.s;
    const long long shared = head.head / s.group;
    const int rows = at_most(s.queries - q0, TILE), keys = at_most(s.keys - k0, TILE);
    multiply(s.q.of(head.outer, head.head, q0), s.q.row_step, rows, s.k.of(head.outer, shared, k0), s.k.row_step, keys, (int)s.width, chunk, weights);
    multiply(to.y.of(head.outer, head.head, q0), to.y.row_step, rows, s.v.of(head.outer, shared, k0), s.v.row_step, keys, (int)s.value_width, chunk, found);
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const long long query = q0 + first_row() + i, key = k0 + first_column() + j;
            const float weight = expf(head.masked(weights[i][j] * scale, query, key) - logs[i]);
            const float factor = head.factor(query, key, p, left);
            found[i][j] = weight * (found[i][j] * factor - dots[i]) * scale;
            weights[i][j] = weight * factor;
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, OF_ONE_SUM) ox_device_attention_to_q(const Attention s, const AttentionGradients to, float scale, float p, float left) {
    alignas(16) __shared__ float chunk[CHUNK];
    alignas(16) __shared__ float tile[TILE * PITCH];
    const long long tiles = (s.queries + TILE - 1) / TILE, at = blockIdx.x / tiles;
    const long long q0 = (tiles - 1 - blockIdx.x % tiles) * TILE;
    const Head head(s, at / s.heads, at % s.heads);
    const long long end = s.causal && q0 + TILE < s.keys ? q0 + TILE : s.keys;
    const int rows = at_most(s.queries - q0, TILE);
    float logs[OWN], dots[OWN];
    Sums sums;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const bool there = first_row() + i < rows;
        const long long query = q0 + first_row() + i;
        const NUMBER *y = s.y.of(head.outer, head.head, query), *g = to.y.of(head.outer, head.head, query);
        float dot = 0.0f;
        for (long long c = threadIdx.x % SIDE; there && c < s.value_width; c += SIDE) dot += LOAD(y[c]) * LOAD(g[c]);
        dots[i] = sum_of_row(dot);
        logs[i] = there ? s.logs[at * s.queries + query] : INFINITY;
        if (there && first_column() == 0) to.dots[at * s.queries + query] = dots[i];
#pragma unroll
        for (int c = 0; c < COLUMNS_OWN; c++) sums[i][c] = 0.0f;
    }
    for (long long k0 = 0; k0 < end; k0 += TILE) {
        Scores weights, found;
        slopes(to, head, q0, k0, scale, p, left, logs, dots, chunk, weights, found);
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int j = 0; j < OWN; j++) tile[(first_column() + j) * PITCH + first_row() + i] = found[i][j];
        accumulate(tile, s.k.of(head.outer, head.head / s.group, k0), s.k.row_step, at_most(s.keys - k0, TILE), (int)s.width, chunk, sums);
    }
    store(sums, to.q.of(head.outer, head.head, q0), to.q.row_step, rows, (int)s.width);
}

// After the gradient of the queries, which leaves the dots.
extern "C" __global__ void __launch_bounds__(THREADS, OF_TWO_SUMS) ox_device_attention_to_keys(const Attention s, const AttentionGradients to, float scale, float p, float left) {
    alignas(16) __shared__ float chunk[CHUNK];
    alignas(16) __shared__ float tile[TILE * PITCH];
    const long long tiles = (s.keys + TILE - 1) / TILE, at = blockIdx.x / tiles, key_heads = s.heads / s.group;
    const long long k0 = blockIdx.x % tiles * TILE, outer = at / key_heads, shared = at % key_heads;
    const int keys = at_most(s.keys - k0, TILE);
    Sums to_k, to_v;
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS_OWN; c++) to_k[i][c] = to_v[i][c] = 0.0f;
    for (long long h = shared * s.group; h < (shared + 1) * s.group; h++) {
        const Head head(s, outer, h);
        const long long first = (outer * s.heads + h) * s.queries;
        for (long long q0 = s.causal ? k0 : 0; q0 < s.queries; q0 += TILE) {
            const int rows = at_most(s.queries - q0, TILE);
            float logs[OWN], dots[OWN];
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                const bool there = first_row() + i < rows;
                logs[i] = there ? s.logs[first + q0 + first_row() + i] : INFINITY;
                dots[i] = there ? to.dots[first + q0 + first_row() + i] : 0.0f;
            }
            Scores weights, found;
            slopes(to, head, q0, k0, scale, p, left, logs, dots, chunk, weights, found);
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < OWN; j++) tile[(first_row() + i) * PITCH + first_column() + j] = weights[i][j];
            accumulate(tile, to.y.of(outer, h, q0), to.y.row_step, rows, (int)s.value_width, chunk, to_v);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < OWN; j++) tile[(first_row() + i) * PITCH + first_column() + j] = found[i][j];
            accumulate(tile, s.q.of(outer, h, q0), s.q.row_step, rows, (int)s.width, chunk, to_k);
        }
    }
    store(to_k, to.k.of(outer, shared, k0), to.k.row_step, keys, (int)s.width);
    store(to_v, to.v.of(outer, shared, k0), to.v.row_step, keys, (int)s.value_width);
}
