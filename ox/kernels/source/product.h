// Products of matrices with any strides, on the threads of the pool.
#pragma once
#include "gemm.h"

namespace ox {

constexpr long long ROWS_OF_TASK = 16 * TILE_ROWS;
constexpr long long SMALL_COPY = 1 << 16;  // elements that one thread copies

struct Matrix {
    const float* data;
    long long row_step, column_step;  // floats
};

// `columns` columns from `first` on, for the depths [k0, k0 + some), as one panel; missing columns are zeros.
inline void pack_panel(const Matrix& b, long long k0, long long some, long long first, long long columns, float* to) {
    if (columns == TILE_COLUMNS && b.column_step == 1) {
        const float* from = b.data + k0 * b.row_step + first;
        for (long long k = 0; k < some; k++, from += b.row_step, to += TILE_COLUMNS)
            for (int j = 0; j < TILE_COLUMNS; j++) to[j] = from[j];
        return;
    }
    if (columns < TILE_COLUMNS) memset(to, 0, some * TILE_COLUMNS * 4);
    constexpr long long STRIP = 16;  // depths at a time: a line of the cache where the depth is contiguous
    for (long long s = 0; s < some; s += STRIP) {
        const long long stop = s + STRIP < some ? s + STRIP : some;
        for (long long j = 0; j < columns; j++) {
            const float* from = b.data + (k0 + s) * b.row_step + (first + j) * b.column_step;
            for (long long k = s; k < stop; k++, from += b.row_step) to[k * TILE_COLUMNS + j] = *from;
        }
    }
}

// A whole matrix as panels: of each slab of DEPTH in turn, panels of `some` by TILE_COLUMNS.
inline void pack_columns(const Matrix& b, long long depth, long long columns, float* to) {
    const long long panels = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS, slabs = (depth + DEPTH - 1) / DEPTH;
    parallel(panels * slabs, depth * columns < SMALL_COPY ? panels * slabs : 4, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            const long long k0 = at / panels * DEPTH, panel = at % panels, first = panel * TILE_COLUMNS;
            const long long some = depth - k0 < DEPTH ? depth - k0 : DEPTH;
            const long long count = columns - first < TILE_COLUMNS ? columns - first : TILE_COLUMNS;
            pack_panel(b, k0, some, first, count, to + (k0 * panels + panel * some) * TILE_COLUMNS);
        }
    });
}

// `count` rows from `first` on, for the depths [k0, k0 + some), as panels of TILE_ROWS; missing rows are zeros.
inline void pack_rows(const Matrix& a, long long k0, long long some, long long first, long long count, float* to) {
    for (long long r = 0; r < count; r += TILE_ROWS, to += some * TILE_ROWS) {
        const long long real = count - r < TILE_ROWS ? count - r : TILE_ROWS;
        const float* from = a.data + (first + r) * a.row_step + k0 * a.column_step;
        if (real == TILE_ROWS && a.row_step == 1) {
            for (long long k = 0; k < some; k++)
                for (int i = 0; i < TILE_ROWS; i++) to[k * TILE_ROWS + i] = from[k * a.column_step + i];
        } else {
            if (real < TILE_ROWS) memset(to, 0, some * TILE_ROWS * 4);
            for (long long i = 0; i < real; i++)
                for (long long k = 0; k < some; k++) to[k * TILE_ROWS + i] = from[i * a.row_step + k * a.column_step];
        }
    }
}

constexpr long long FEW_ROWS = 4, COLUMNS_OF_TASK = 64;

// A product of a few rows reads its second factor once, so it is not packed.
inline void product_of_few_rows(long long rows, long long depth, long long columns, const Matrix& a, const Matrix& b, const float* bias, float* result, long long step) {
    static thread_local Scratch copied;
    float* left = copied.floats(rows * depth);
    for (long long i = 0; i < rows; i++)
        for (long long k = 0; k < depth; k++) left[i * depth + k] = a.data[i * a.row_step + k * a.column_step];
    const long long block = depth * columns < SMALL_COPY ? columns : COLUMNS_OF_TASK;
    parallel(columns, block, [=](long long begin, long long end) {
        for (long long i = 0; i < rows; i++) {
            const float* x = left + i * depth;
            float* y = result + i * step;
            if (b.row_step == 1) {
                for (long long j = begin; j < end; j++) {
                    const float* column = b.data + j * b.column_step;
                    double total = 0.0;
                    for (long long k0 = 0; k0 < depth; k0 += 16 * DEPTH) {
                        const long long stop = k0 + 16 * DEPTH < depth ? k0 + 16 * DEPTH : depth;
                        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                        for (long long k = k0; k < stop; k++) sum += x[k] * column[k];
                        total += sum;
                    }
                    y[j] = (float)total + (bias ? bias[j] : 0.0f);
                }
            } else {
                for (long long first = begin; first < end; first += COLUMNS_OF_TASK) {
                    const long long count = end - first < COLUMNS_OF_TASK ? end - first : COLUMNS_OF_TASK;
                    double totals[COLUMNS_OF_TASK];
                    for (long long j = 0; j < count; j++) totals[j] = bias ? bias[first + j] : 0.0f;
                    for (long long k0 = 0; k0 < depth; k0 += DEPTH) {
                        float sums[COLUMNS_OF_TASK] = {};
                        for (long long k = k0; k < depth && k < k0 + DEPTH; k++) {
                            const float *row = b.data + k * b.row_step + first * b.column_step, factor = x[k];
                            for (long long j = 0; j < count; j++) sums[j] += factor * row[j * b.column_step];
                        }
                        for (long long j = 0; j < count; j++) totals[j] += sums[j];
                    }
                    for (long long j = 0; j < count; j++) y[first + j] = (float)totals[j];
                }
            }
        }
    });
}

// A slab's part of a block: panels of rows in `a`, of columns in `b`. Tiles at the border are written by way of a copy.
inline void block_of_slab(long long rows, long long columns, long long depth, const float* a, const float* b, float* result, long long step, bool add) {
    for (long long c = 0; c < columns; c += TILE_COLUMNS)
        for (long long r = 0; r < rows; r += TILE_ROWS) {
            float* to = result + r * step + c;
            if (rows - r >= TILE_ROWS && columns - c >= TILE_COLUMNS) {
                tile(depth, a + r * depth, b + c * depth, to, step, add);
                continue;
            }
            float sums[TILE_ROWS * TILE_COLUMNS];
            tile(depth, a + r * depth, b + c * depth, sums, TILE_COLUMNS, false);
            for (long long i = 0; i < TILE_ROWS && r + i < rows; i++)
                for (long long j = 0; j < TILE_COLUMNS && c + j < columns; j++)
                    to[i * step + j] = sums[i * TILE_COLUMNS + j] + (add ? to[i * step + j] : 0.0f);
        }
}

constexpr long long ROWS_TURNED = 128;  // so many rows at most make it worth not to pack a large second factor

// A product of some rows with a matrix whose columns lie contiguous: the matrix is read as it lies as the first factor of
// the turned product, and only the rows are packed.
inline void turned_product(long long rows, long long depth, long long columns, const Matrix& a, const Matrix& b, const float* bias, float* result, long long step) {
    constexpr long long COLUMNS = 8 * TILE_ROWS;  // of a task
    const long long panels = (rows + TILE_COLUMNS - 1) / TILE_COLUMNS, width = panels * TILE_COLUMNS;
    static thread_local Scratch packing;
    float* packed = packing.floats(width * depth);
    pack_columns({a.data, a.column_step, a.row_step}, depth, rows, packed);
    const long long tasks = (columns + COLUMNS - 1) / COLUMNS;
    parallel(tasks, rows * depth * columns < SMALL_PRODUCT ? tasks : 1, [&](long long begin, long long end) {
        float sums[COLUMNS * (ROWS_TURNED + TILE_COLUMNS)], border[TILE_ROWS * DEPTH];
        for (long long at = begin; at < end; at++) {
            const long long first = at * COLUMNS, count = columns - first < COLUMNS ? columns - first : COLUMNS;
            for (long long k0 = 0; k0 < depth; k0 += DEPTH) {
                const long long some = depth - k0 < DEPTH ? depth - k0 : DEPTH;
                for (long long c = 0; c < count; c += TILE_ROWS) {
                    const float* lines = b.data + (first + c) * b.column_step + k0;
                    const bool whole = count - c >= TILE_ROWS;
                    if (!whole) pack_rows({b.data + k0, b.column_step, 1}, 0, some, first + c, count - c, border);
                    for (long long panel = 0; panel < panels; panel++) {
                        const float* right = packed + k0 * width + panel * some * TILE_COLUMNS;
                        float* to = sums + c * width + panel * TILE_COLUMNS;
                        if (whole) {
                            tile_of_steps(some, lines, b.column_step, 1, right, to, width, k0 > 0);
                        } else {
                            tile(some, border, right, to, width, k0 > 0);
                        }
                    }
                }
            }
            for (long long i = 0; i < rows; i++)
                for (long long j = 0; j < count; j++)
                    result[i * step + first + j] = sums[j * width + i] + (bias ? bias[first + j] : 0.0f);
        }
    });
}

// result (rows by columns, its rows `step` apart) = a b, plus a bias for each column.
inline void product(long long rows, long long depth, long long columns, const Matrix& a, const Matrix& b, const float* bias, float* result, long long step) {
    if (rows <= FEW_ROWS && depth > 1) {
        product_of_few_rows(rows, depth, columns, a, b, bias, result, step);
        return;
    }
    if (rows <= ROWS_TURNED && b.row_step == 1 && b.column_step != 1 && depth > 1) {
        turned_product(rows, depth, columns, a, b, bias, result, step);
        return;
    }
    const long long panels = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    static thread_local Scratch packing;
    float* packed = packing.floats(panels * TILE_COLUMNS * depth);
    pack_columns(b, depth, columns, packed);
    const long long row_tasks = (rows + ROWS_OF_TASK - 1) / ROWS_OF_TASK;
    // few rows: the columns are shared out as well, in runs of panels
    const long long run = row_tasks >= 4 ? panels : (panels + 3) / 4 < 1 ? 1 : (panels + 3) / 4;
    const long long column_tasks = (panels + run - 1) / run;
    const long long tasks = row_tasks * column_tasks;
    parallel(tasks, rows * depth * columns < SMALL_PRODUCT ? tasks : 1, [&](long long begin, long long end) {
        static thread_local Scratch rows_memory;
        for (long long at = begin; at < end; at++) {
            const long long first = at / column_tasks * ROWS_OF_TASK, p0 = at % column_tasks * run;
            const long long count = rows - first < ROWS_OF_TASK ? rows - first : ROWS_OF_TASK;
            const long long some_panels = panels - p0 < run ? panels - p0 : run, c0 = p0 * TILE_COLUMNS;
            const long long width = some_panels * TILE_COLUMNS < columns - c0 ? some_panels * TILE_COLUMNS : columns - c0;
            float* left = rows_memory.floats(rounded_up(count, TILE_ROWS) * DEPTH);
            float* to = result + first * step + c0;
            if (bias || !depth)
                for (long long i = 0; i < count; i++)
                    for (long long j = 0; j < width; j++) to[i * step + j] = bias ? bias[c0 + j] : 0.0f;
            for (long long k0 = 0; k0 < depth; k0 += DEPTH) {
                const long long some = depth - k0 < DEPTH ? depth - k0 : DEPTH;
                pack_rows(a, k0, some, first, count, left);
                // a few panels at a time: they stay in the cache while the rows pass
                for (long long c = 0; c < width; c += BLOCK_COLUMNS)
                    block_of_slab(count, width - c < BLOCK_COLUMNS ? width - c : BLOCK_COLUMNS, some, left, packed + (k0 * panels + p0 * some) * TILE_COLUMNS + c * some, to + c, step, bias || k0 > 0);
            }
        }
    });
}

// `count` products, their matrices the given numbers of floats apart.
inline void products(long long count, long long rows, long long depth, long long columns, Matrix a, long long a_step, Matrix b, long long b_step, float* result) {
    const long long small = SMALL_PRODUCT / (rows * depth * columns + 1) + 1;
    parallel(count, small, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++)
            product(rows, depth, columns, {a.data + at * a_step, a.row_step, a.column_step}, {b.data + at * b_step, b.row_step, b.column_step}, nullptr, result + at * rows * columns, columns);
    });
}

}  // namespace ox
