// Copies in another order: of arrays whose axes were exchanged, and of triangles.
#pragma once
#include <string.h>

#include "pool.h"

namespace ox {

constexpr long long COPY_TILE = 16;  // numbers: a line of the cache in both directions
constexpr int MOST_AXES = 8;

// An output's axes: their sizes and, in floats, the input's steps along them.
struct Copying {
    long long axes, sizes[MOST_AXES], steps[MOST_AXES];
};

// The input's start for the i-th index of the axes before `last`.
inline long long start_of(const Copying& c, long long last, long long i) {
    long long start = 0;
    for (long long a = last - 1; a >= 0; a--) {
        start += i % c.sizes[a] * c.steps[a];
        i /= c.sizes[a];
    }
    return start;
}

// Rows of the output whose numbers lie one behind the other in the input.
inline void copy_rows(const Copying& c, const float* from, float* to) {
    const long long last = c.axes - 1, n = c.sizes[last];
    long long count = 1;
    for (long long a = 0; a < last; a++) count *= c.sizes[a];
    parallel_light(count, ROW_WORK / (n + 1) + 1, [&](long long begin, long long end) {
        for (long long i = begin; i < end; i++) memcpy(to + i * n, from + start_of(c, last, i), n * 4);
    });
}

// Axis `line` is the one whose numbers lie one behind the other in the input: tiles of it and of the last axis.
inline void copy_tiles(const Copying& c, long long line, const float* from, float* to) {
    const long long last = c.axes - 1, columns = c.sizes[last], rows = c.sizes[line], step = c.steps[last];
    Copying others = {0, {}, {}};  // the axes beside these two, and their steps in the output
    long long out_steps[MOST_AXES], out_step = columns, row_step = 0, count = 1;
    for (long long a = last - 1; a >= 0; a--) {
        if (a == line) {
            row_step = out_step;
        } else {
            others.sizes[others.axes] = c.sizes[a];
            others.steps[others.axes] = c.steps[a];
            out_steps[others.axes++] = out_step;
            count *= c.sizes[a];
        }
        out_step *= c.sizes[a];
    }
    const long long bands = (rows + COPY_TILE - 1) / COPY_TILE;
    parallel_light(count * bands, ROW_WORK / (COPY_TILE * columns + 1) + 1, [&](long long begin, long long end) {
        float tile[COPY_TILE * COPY_TILE];
        for (long long at = begin; at < end; at++) {
            const long long first = at % bands * COPY_TILE, some = rows - first < COPY_TILE ? rows - first : COPY_TILE;
            long long start = first, out = first * row_step, i = at / bands;
            for (long long a = 0; a < others.axes; a++) {
                start += i % others.sizes[a] * others.steps[a];
                out += i % others.sizes[a] * out_steps[a];
                i /= others.sizes[a];
            }
            for (long long k = 0; k < columns; k += COPY_TILE) {
                const long long width = columns - k < COPY_TILE ? columns - k : COPY_TILE;
                if (width == COPY_TILE && some == COPY_TILE) {
                    for (long long j = 0; j < COPY_TILE; j++) memcpy(tile + j * COPY_TILE, from + start + (k + j) * step, COPY_TILE * 4);
                    for (long long r = 0; r < COPY_TILE; r++)
                        for (long long j = 0; j < COPY_TILE; j++) to[out + r * row_step + k + j] = tile[j * COPY_TILE + r];
                    continue;
                }
                for (long long r = 0; r < some; r++)
                    for (long long j = 0; j < width; j++) to[out + r * row_step + k + j] = from[start + r + (k + j) * step];
            }
        }
    });
}

// `count` matrices of `columns` elements of `bytes` bytes a row: what is on the k-th diagonal and above it (`upper`) or
// below it, and zeros elsewhere.
inline void triangles(long long count, long long rows, long long columns, long long bytes, long long k, bool upper, const char* from, char* to) {
    const long long line = columns * bytes;
    parallel_light(count * rows, ROW_WORK / (columns + 1) + 1, [=](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            long long edge = at % rows + k + (upper ? 0 : 1);  // the first column that belongs to the other part
            edge = (edge < 0 ? 0 : edge > columns ? columns : edge) * bytes;
            const char* x = from + at * line;
            char* y = to + at * line;
            if (upper) {
                memset(y, 0, edge);
                memcpy(y + edge, x + edge, line - edge);
            } else {
                memcpy(y, x, edge);
                memset(y + edge, 0, line - edge);
            }
        }
    });
}

}  // namespace ox
