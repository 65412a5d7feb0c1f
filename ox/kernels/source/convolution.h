// Convolution of images (samples, channels, height, width) on a CPU, as products that gather their second factor from
// the images while they pack it: no unfolded copy is made. Forward and the gradient of the images are one gather with
// different taps; the gradient of the weights is a product along all positions, of images with the channels last.
#pragma once
#include "gemm.h"

namespace ox {

// A place of the window: its channel, and how far it lies from a column's origin.
struct Tap {
    int channel, y, x;
};

// Columns of a product: the positions (sample, y, x) of a grid, each with an origin in the images.
struct Grid {
    long long samples, height, width;          // of the grid
    long long stride_y, stride_x;              // of the origins
    long long image_height, image_width;       // of the images
    long long sample_step;                     // floats from a sample's images to the next one's
};

// `count` columns from `first` on of one tap's row, from images that start at the tap's channel.
inline void gather_row(const Grid& grid, const float* images, const Tap& tap, long long first, long long count, float* to) {
    const long long plane = grid.height * grid.width, image_plane = grid.image_height * grid.image_width;
    long long sample = first / plane, y = first % plane / grid.width, x = first % grid.width;
    const float* channel = images + tap.channel * image_plane;
    while (count) {
        long long run = grid.width - x < count ? grid.width - x : count;
        long long row = y * grid.stride_y + tap.y;
        if (row < 0 || row >= grid.image_height) {
            memset(to, 0, run * 4);
        } else {
            const float* line = channel + sample * grid.sample_step + row * grid.image_width;
            long long from = x * grid.stride_x + tap.x;
            if (grid.stride_x == 1) {
                long long before = from < 0 ? -from : 0;
                before = before < run ? before : run;
                long long inside = grid.image_width - (from + before);
                inside = inside < 0 ? 0 : inside < run - before ? inside : run - before;
                for (long long i = 0; i < before; i++) to[i] = 0.0f;
                for (long long i = 0; i < inside; i++) to[before + i] = line[from + before + i];
                for (long long i = before + inside; i < run; i++) to[i] = 0.0f;
            } else {
                for (long long i = 0; i < run; i++, from += grid.stride_x)
                    to[i] = from >= 0 && from < grid.image_width ? line[from] : 0.0f;
            }
        }
        to += run;
        count -= run;
        x = 0;
        if (++y == grid.height) y = 0, sample++;
    }
}

// Where a product's rows and columns are written.
struct Target {
    float* data;
    long long row_step, sample_step, y_step, x_step;
    const float* bias;  // one of each row, or nullptr
};

inline void write_rows(const Grid& grid, const Target& to, const float* block, long long rows, long long first, long long count) {
    const long long plane = grid.height * grid.width;
    for (long long i = 0; i < rows; i++) {
        const float* from = block + i * BLOCK_COLUMNS;
        const float bias = to.bias ? to.bias[i] : 0.0f;
        long long sample = first / plane, y = first % plane / grid.width, x = first % grid.width, left = count;
        while (left) {
            long long run = grid.width - x < left ? grid.width - x : left;
            float* out = to.data + i * to.row_step + sample * to.sample_step + y * to.y_step + x * to.x_step;
            if (to.x_step == 1) {
                for (long long j = 0; j < run; j++) out[j] = from[j] + bias;
            } else {
                for (long long j = 0; j < run; j++) out[j * to.x_step] = from[j] + bias;
            }
            from += run;
            left -= run;
            x = 0;
            if (++y == grid.height) y = 0, sample++;
        }
    }
}

// target = weights (packed rows by taps) times the gathered images, some columns a task.
inline void gathered_product(const Grid& grid, const float* images, const Tap* taps, long long depth, const float* packed, long long rows, const Target& target) {
    const long long columns = grid.samples * grid.height * grid.width, padded = rounded_up(rows, TILE_ROWS);
    const long long blocks = (columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    parallel(blocks, 1, [&](long long begin, long long end) {
        static thread_local Scratch packing, results;
        float* b = packing.floats((long long)DEPTH * BLOCK_COLUMNS);
        float* c = results.floats(padded * BLOCK_COLUMNS);
        float line[BLOCK_COLUMNS];
        for (long long at = begin; at < end; at++) {
            const long long first = at * BLOCK_COLUMNS;
            const long long count = columns - first < BLOCK_COLUMNS ? columns - first : BLOCK_COLUMNS;
            const int panels = (int)((count + TILE_COLUMNS - 1) / TILE_COLUMNS);
            for (long long i = count; i < BLOCK_COLUMNS; i++) line[i] = 0.0f;
            for (long long k0 = 0; k0 < depth; k0 += DEPTH) {
                const long long some = depth - k0 < DEPTH ? depth - k0 : DEPTH;
                for (long long k = 0; k < some; k++) {
                    gather_row(grid, images, taps[k0 + k], first, count, line);
                    for (int p = 0; p < panels; p++)
                        memcpy(b + (p * some + k) * TILE_COLUMNS, line + p * TILE_COLUMNS, TILE_COLUMNS * 4);
                }
                block(padded, panels, some, packed + k0 * padded, b, c, BLOCK_COLUMNS, k0 > 0);
            }
            write_rows(grid, target, c, rows, first, count);
        }
    });
}

// Panels of rows for each DEPTH taps in turn; `weight(row, tap)` gives the numbers.
template <class F> inline void pack_weights(long long rows, long long depth, float* to, const F& weight) {
    const long long padded = rounded_up(rows, TILE_ROWS);
    parallel((depth + DEPTH - 1) / DEPTH, 1, [&](long long begin, long long end) {
        for (long long part = begin; part < end; part++) {
            const long long k0 = part * DEPTH, some = depth - k0 < DEPTH ? depth - k0 : DEPTH;
            float* out = to + k0 * padded;
            for (long long first = 0; first < padded; first += TILE_ROWS)
                for (long long k = 0; k < some; k++)
                    for (int i = 0; i < TILE_ROWS; i++, out++)
                        *out = first + i < rows ? weight(first + i, k0 + k) : 0.0f;
        }
    });
}

// The shape of a convolution; sizes of one group's channels.
struct Convolution {
    long long samples, groups, inputs, outputs, height, width, out_height, out_width;
    long long kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
    long long window() const { return kernel_y * kernel_x; }
    bool steps_of_one() const { return stride_y == 1 && stride_x == 1; }
    bool small() const { return samples * groups * inputs * outputs * window() * out_height * out_width < SMALL_PRODUCT; }
};

inline void convolution_forward(const Convolution& s, const float* images, const float* weights, const float* bias, float* output) {
    const long long depth = s.inputs * s.window(), plane = s.height * s.width, out_plane = s.out_height * s.out_width;
    std::vector<Tap> taps(depth);
    for (long long k = 0; k < depth; k++)
        taps[k] = {(int)(k / s.window()), (int)(k % s.window() / s.kernel_x * s.dilation_y - s.pad_y), (int)(k % s.kernel_x * s.dilation_x - s.pad_x)};
    Grid grid = {s.samples, s.out_height, s.out_width, s.stride_y, s.stride_x, s.height, s.width, s.groups * s.inputs * plane};
    Scratch packing;
    float* packed = packing.floats(rounded_up(s.outputs, TILE_ROWS) * depth);
    for (long long group = 0; group < s.groups; group++) {
        const float* w = weights + group * s.outputs * depth;
        pack_weights(s.outputs, depth, packed, [=](long long row, long long k) { return w[row * depth + k]; });
        Target target = {output + group * s.outputs * out_plane, out_plane, s.groups * s.outputs * out_plane, s.out_width, 1, bias ? bias + group * s.outputs : nullptr};
        gathered_product(grid, images + group * s.inputs * plane, taps.data(), depth, packed, s.outputs, target);
    }
}

// The gradient of the images. Positions that lie alike to the strides share their taps: one product for each such phase.
inline void convolution_backward_images(const Convolution& s, const float* gradient, const float* weights, const float* bias, float* result) {
    const long long plane = s.height * s.width, out_plane = s.out_height * s.out_width, window = s.window();
    Scratch packing;
    for (long long group = 0; group < s.groups; group++) {
        const float* w = weights + group * s.outputs * s.inputs * window;
        for (long long a = 0; a < s.stride_y; a++) {
            for (long long b = 0; b < s.stride_x; b++) {
                long long rows = (s.height - a + s.stride_y - 1) / s.stride_y, columns = (s.width - b + s.stride_x - 1) / s.stride_x;
                if (rows <= 0 || columns <= 0) continue;
                std::vector<Tap> taps;
                std::vector<long long> places;
                for (long long o = 0; o < s.outputs; o++)
                    for (long long i = 0; i < s.kernel_y; i++)
                        for (long long j = 0; j < s.kernel_x; j++) {
                            long long y = a + s.pad_y - i * s.dilation_y, x = b + s.pad_x - j * s.dilation_x;
                            if (y % s.stride_y || x % s.stride_x) continue;
                            taps.push_back({(int)o, (int)(y / s.stride_y), (int)(x / s.stride_x)});
                            places.push_back(o * s.inputs * window + i * s.kernel_x + j);
                        }
                const long long depth = (long long)taps.size();
                Grid grid = {s.samples, rows, columns, 1, 1, s.out_height, s.out_width, s.groups * s.outputs * out_plane};
                Target target = {result + group * s.inputs * plane + a * s.width + b, plane, s.groups * s.inputs * plane, s.stride_y * s.width, s.stride_x, bias ? bias + group * s.inputs : nullptr};
                if (!depth) {  // no tap reaches these positions
                    for (long long n = 0; n < s.samples; n++)
                        for (long long c = 0; c < s.inputs; c++)
                            for (long long y = 0; y < rows; y++)
                                for (long long x = 0; x < columns; x++)
                                    target.data[n * target.sample_step + c * plane + y * target.y_step + x * target.x_step] = target.bias ? target.bias[c] : 0.0f;
                    continue;
                }
                float* packed = packing.floats(rounded_up(s.inputs, TILE_ROWS) * depth);
                const long long* place = places.data();
                pack_weights(s.inputs, depth, packed, [=](long long row, long long k) { return w[place[k] + row * window]; });
                gathered_product(grid, gradient + group * s.outputs * out_plane, taps.data(), depth, packed, s.inputs, target);
            }
        }
    }
}

// (channels, plane) of each sample as (plane, channels); channels of one group of `whole`.
inline void channels_last(const float* from, long long samples, long long whole, long long channels, long long plane, float* to) {
    constexpr long long SIDE = 32;
    const long long strips = (plane + SIDE - 1) / SIDE;
    parallel(samples * strips, 8, [=](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            const long long sample = at / strips, first = at % strips * SIDE, last = first + SIDE < plane ? first + SIDE : plane;
            const float* x = from + sample * whole * plane;
            float* y = to + sample * channels * plane;
            for (long long c0 = 0; c0 < channels; c0 += SIDE) {
                const long long c1 = c0 + SIDE < channels ? c0 + SIDE : channels;
                for (long long p = first; p < last; p++)
                    for (long long c = c0; c < c1; c++) y[p * channels + c] = x[c * plane + p];
            }
        }
    });
}

inline void convolution_backward_weights(const Convolution& s, const float* gradient, const float* images, float* result) {
    const long long plane = s.height * s.width, out_plane = s.out_height * s.out_width, window = s.window();
    const long long depth = window * s.inputs, positions = s.samples * out_plane;
    const long long padded_rows = rounded_up(s.outputs, TILE_ROWS);
    const long long blocks = (depth + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    // pieces of the positions, by the shape alone, so that the sums do not depend on the number of threads
    long long pieces = blocks >= 8 ? 1 : (8 + blocks - 1) / blocks;
    const long long most = (positions + 2 * DEPTH - 1) / (2 * DEPTH);
    pieces = pieces < most ? pieces : most < 1 ? 1 : most;
    const long long piece = rounded_up((positions + pieces - 1) / pieces, DEPTH);
    pieces = (positions + piece - 1) / piece;  // none is empty
    Scratch image_memory, gradient_memory, sum_memory;
    float* x = image_memory.floats(s.samples * plane * s.inputs);
    float* g = gradient_memory.floats(positions * s.outputs);
    float* sums = sum_memory.floats(pieces * blocks * padded_rows * BLOCK_COLUMNS);
    for (long long group = 0; group < s.groups; group++) {
        channels_last(images + group * s.inputs * plane, s.samples, s.groups * s.inputs, s.inputs, plane, x);
        channels_last(gradient + group * s.outputs * out_plane, s.samples, s.groups * s.outputs, s.outputs, out_plane, g);
        parallel(pieces * blocks, 1, [&](long long begin, long long end) {
            static thread_local Scratch rows_memory, columns_memory;
            float* a = rows_memory.floats(padded_rows * DEPTH);
            float* b = columns_memory.floats((long long)DEPTH * BLOCK_COLUMNS);
            for (long long at = begin; at < end; at++) {
                const long long part = at / blocks, k0 = at % blocks * BLOCK_COLUMNS;
                const long long columns = depth - k0 < BLOCK_COLUMNS ? depth - k0 : BLOCK_COLUMNS;
                const int panels = (int)((columns + TILE_COLUMNS - 1) / TILE_COLUMNS);
                float* c = sums + at * padded_rows * BLOCK_COLUMNS;
                const long long stop = (part + 1) * piece < positions ? (part + 1) * piece : positions;
                bool add = false;
                float line[BLOCK_COLUMNS] = {};
                for (long long first = part * piece; first < stop; first += DEPTH, add = true) {
                    const long long some = stop - first < DEPTH ? stop - first : DEPTH;
                    for (long long r = 0; r < padded_rows; r += TILE_ROWS) {
                        const long long real = s.outputs - r < TILE_ROWS ? s.outputs - r : TILE_ROWS;
                        float* out = a + r * some;
                        for (long long p = 0; p < some; p++, out += TILE_ROWS) {
                            const float* from = g + (first + p) * s.outputs + r;
                            if (real == TILE_ROWS) {
                                for (int i = 0; i < TILE_ROWS; i++) out[i] = from[i];
                            } else {
                                for (int i = 0; i < TILE_ROWS; i++) out[i] = i < real ? from[i] : 0.0f;
                            }
                        }
                    }
                    for (long long p = 0; p < some; p++) {
                        const long long position = first + p, sample = position / out_plane;
                        const long long y = position % out_plane / s.out_width * s.stride_y - s.pad_y;
                        const long long z = position % s.out_width * s.stride_x - s.pad_x;
                        for (long long k = k0; k < k0 + columns;) {
                            const long long tap = k / s.inputs, c0 = k % s.inputs;
                            long long run = s.inputs - c0 < k0 + columns - k ? s.inputs - c0 : k0 + columns - k;
                            const long long row = y + tap / s.kernel_x * s.dilation_y, column = z + tap % s.kernel_x * s.dilation_x;
                            float* out = line + (k - k0);
                            if (row < 0 || row >= s.height || column < 0 || column >= s.width) {
                                for (long long i = 0; i < run; i++) out[i] = 0.0f;
                            } else {
                                const float* from = x + ((sample * s.height + row) * s.width + column) * s.inputs + c0;
                                for (long long i = 0; i < run; i++) out[i] = from[i];
                            }
                            k += run;
                        }
                        for (int panel = 0; panel < panels; panel++)
                            memcpy(b + (panel * some + p) * TILE_COLUMNS, line + panel * TILE_COLUMNS, TILE_COLUMNS * 4);
                    }
                    block(padded_rows, panels, some, a, b, c, BLOCK_COLUMNS, add);
                }
            }
        });
        // (output, window, channel) of all pieces, as (output, channel, window)
        float* to = result + group * s.outputs * depth;
        parallel(s.outputs, 8, [&](long long begin, long long end) {
            for (long long o = begin; o < end; o++)
                for (long long k = 0; k < depth; k++) {
                    const float* from = sums + (k / BLOCK_COLUMNS * padded_rows + o) * BLOCK_COLUMNS + k % BLOCK_COLUMNS;
                    float sum = 0.0f;
                    for (long long part = 0; part < pieces; part++) sum += from[part * blocks * padded_rows * BLOCK_COLUMNS];
                    to[o * depth + k % s.inputs * window + k / s.inputs] = sum;
                }
        });
    }
}

}  // namespace ox
