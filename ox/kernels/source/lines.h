// Convolutions of few channels with steps of 1: what a tap meets is a line of a padded plane, so that nothing is packed.
#pragma once
#include "convolution.h"

namespace ox {

inline float sum_of_lanes(const Vector& numbers) {
    typedef float Half __attribute__((vector_size(LANES * 2)));
    Half low, high;
    memcpy(&low, &numbers, sizeof low);
    memcpy(&high, (const char*)&numbers + sizeof low, sizeof high);
    low += high;
    float sums[LANES / 2];
    memcpy(sums, &low, sizeof low);
    for (int half = LANES / 4; half; half /= 2)
        for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    return sums[0];
}

// With steps of 1, planes are copied into rows of one length with zeros around them, and taken as one line of numbers: each
// tap is then a distance, and an output the sum of the numbers at all distances.
struct Lines {
    long long length, height, count, taps;  // of a row; rows with those around; of outputs in a line; of the window
    std::vector<long long> distances;
    static constexpr long long RUN = 4 * LANES;

    // of `rows` by `columns` outputs
    Lines(const Convolution& s, long long rows, long long columns) : length(columns + (s.kernel_x - 1) * s.dilation_x), height(rows + (s.kernel_y - 1) * s.dilation_y), count(rows * length), taps(s.window()) {
        for (long long i = 0; i < s.kernel_y; i++)
            for (long long j = 0; j < s.kernel_x; j++) distances.push_back(i * s.dilation_y * length + j * s.dilation_x);
    }
    long long size() const { return height * length + RUN + (taps ? distances.back() : 0); }

    // A plane of `rows` by `columns` from row `top` and column `left` on, up to row `limit`; what does not fit is left out.
    void copy(const float* plane, long long rows, long long columns, long long top, long long left, float* to, long long limit) const {
        memset(to, 0, size() * 4);
        const long long first = top < 0 ? -top : 0, last = limit - top < rows ? limit - top : rows;
        const long long begin = left < 0 ? -left : 0, end = length - left < columns ? length - left : columns;
        for (long long y = first; y < last; y++)
            for (long long x = begin; x < end; x++) to[(y + top) * length + left + x] = plane[y * columns + x];
    }

    void copy(const float* plane, long long rows, long long columns, long long top, long long left, float* to) const {
        copy(plane, rows, columns, top, left, to, height);
    }

    // sums[p] += the numbers at all distances from p, each times its weight; `step` from a weight to the next one
    void correlate(const float* numbers, const float* weights, long long step, float* sums) const {
        for (long long p = 0; p < count; p += RUN) {
            Vector run[4];
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) run[v] = *(const Vector*)(sums + p + v * LANES);
            for (long long t = 0; t < taps; t++) {
                const float* from = numbers + p + distances[t];
                const float weight = weights[t * step];
#pragma GCC unroll 4
                for (int v = 0; v < 4; v++) run[v] += weight * *(const Vector*)(from + v * LANES);
            }
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) *(Vector*)(sums + p + v * LANES) = run[v];
        }
    }

    // The sum of the products of two lines, one of them `distance` on.
    float product(const float* line, const float* numbers, long long distance) const {
        Vector sums[4] = {};
        for (long long p = 0; p < count; p += RUN)
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) sums[v] += *(const Vector*)(line + p + v * LANES) * *(const Vector*)(numbers + p + distance + v * LANES);
        return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
};

// As `tile`, where the k-th row of the second factor lies at offsets[k].
inline void tile_at(long long depth, const float* a, const float* b, const long long* offsets, float* result, long long stride) {
    Vector sums[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) sums[i][j] = Vector{};
    for (long long k = 0; k < depth; k++, a += TILE_ROWS) {
        Vector columns[TILE_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) columns[j] = *(const Vector*)(b + offsets[k] + j * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
            for (int j = 0; j < TILE_VECTORS; j++) sums[i][j] += a[i] * columns[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) *(Vector*)(result + i * stride + j * LANES) = sums[i][j];
}

constexpr long long BAND = 1024;  // about so many positions of a task

// A convolution as the lines see it: `images` of `inputs` channels a group give `output` of `outputs` channels.
struct LinesOfChannels {
    long long samples, groups, inputs, outputs, height, width, out_height, out_width, top, left;  // zeros around images
};

// `weight(group, output, k)`: the number for the k-th tap, of inputs * window.
template <class F> inline void convolution_in_lines(const Convolution& s, const LinesOfChannels& c, const float* images, const float* bias, float* output, const F& weight) {
    const long long length = c.out_width + (s.kernel_x - 1) * s.dilation_x, rows = BAND / length < 1 ? 1 : BAND / length < c.out_height ? BAND / length : c.out_height;
    const Lines lines(s, rows, c.out_width);
    const long long depth = c.inputs * lines.taps, padded = rounded_up(c.outputs, TILE_ROWS), bands = (c.out_height + rows - 1) / rows;
    const long long columns = rounded_up(lines.count, TILE_COLUMNS);
    std::vector<long long> offsets(depth);
    for (long long k = 0; k < depth; k++) offsets[k] = k / lines.taps * lines.size() + lines.distances[k % lines.taps];
    Scratch packing;
    float* packed = packing.floats(c.groups * padded * depth);
    for (long long group = 0; group < c.groups; group++)
        for (long long first = 0; first < padded; first += TILE_ROWS)
            for (long long k = 0; k < depth; k++)
                for (long long i = 0; i < TILE_ROWS; i++)
                    packed[(group * padded + first) * depth + k * TILE_ROWS + i] = first + i < c.outputs ? weight(group, first + i, k) : 0.0f;
    parallel(c.samples * c.groups * bands, 1, [&](long long begin, long long end) {
        static thread_local Scratch memory;
        float *x = memory.floats(c.inputs * lines.size() + TILE_ROWS * columns), *sums = x + c.inputs * lines.size();
        for (long long at = begin; at < end; at++) {
            const long long plane = at / bands, group = plane % c.groups, y0 = at % bands * rows;
            const long long real_rows = c.out_height - y0 < rows ? c.out_height - y0 : rows;
            for (long long i = 0; i < c.inputs; i++)
                lines.copy(images + (plane * c.inputs + i) * c.height * c.width, c.height, c.width, c.top - y0, c.left, x + i * lines.size());
            for (long long first = 0; first < c.outputs; first += TILE_ROWS) {
                for (long long p = 0; p < real_rows * lines.length; p += TILE_COLUMNS)
                    tile_at(depth, packed + (group * padded + first) * depth, x + p, offsets.data(), sums + p, columns);
                for (long long o = first; o < c.outputs && o < first + TILE_ROWS; o++) {
                    const float more = bias ? bias[group * c.outputs + o] : 0.0f;
                    for (long long y = 0; y < real_rows; y++) {
                        float* to = output + ((plane * c.outputs + o) * c.out_height + y0 + y) * c.out_width;
                        const float* from = sums + (o - first) * columns + y * lines.length;
                        for (long long z = 0; z < c.out_width; z++) to[z] = from[z] + more;
                    }
                }
            }
        }
    });
}

inline void convolution_forward_in_lines(const Convolution& s, const float* images, const float* weights, const float* bias, float* output) {
    const long long depth = s.inputs * s.window();
    convolution_in_lines(s, {s.samples, s.groups, s.inputs, s.outputs, s.height, s.width, s.out_height, s.out_width, s.pad_y, s.pad_x}, images, bias, output,
        [=](long long group, long long o, long long k) { return weights[(group * s.outputs + o) * depth + k]; });
}

inline void convolution_backward_images_in_lines(const Convolution& s, const float* gradient, const float* weights, const float* bias, float* result) {
    const long long window = s.window(), top = (s.kernel_y - 1) * s.dilation_y - s.pad_y, left = (s.kernel_x - 1) * s.dilation_x - s.pad_x;
    convolution_in_lines(s, {s.samples, s.groups, s.outputs, s.inputs, s.out_height, s.out_width, s.height, s.width, top, left}, gradient, bias, result,
        [=](long long group, long long c, long long k) { return weights[((group * s.outputs + k / window) * s.inputs + c) * window + window - 1 - k % window]; });
}

inline bool all_finite(const float* numbers, long long count) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (long long i = 0; i < count; i++) sum += numbers[i] - numbers[i];
    return sum == 0.0f;
}

inline void convolution_backward_weights_in_lines(const Convolution& s, const float* gradient, const float* images, float* result) {
    constexpr long long SIDE = 4, PIECES = 16, BAND = 256;  // pairs of lines at a time; parts of the samples, whatever the threads; positions
    const long long length = s.out_width + (s.kernel_x - 1) * s.dilation_x, rows = BAND / length < 1 ? 1 : BAND / length < s.out_height ? BAND / length : s.out_height;
    const Lines lines(s, rows, s.out_width);
    const long long depth = s.inputs * lines.taps, bands = (s.out_height + rows - 1) / rows, all = s.samples * bands, pieces = all < PIECES ? all : PIECES;
    Scratch sum_memory;
    float* sums = sum_memory.floats(pieces * s.groups * s.outputs * depth);
    parallel(pieces * s.groups, 1, [&](long long begin, long long end) {
        static thread_local Scratch memory;
        float *x = memory.floats((s.inputs + s.outputs) * lines.size()), *g = x + s.inputs * lines.size();
        for (long long at = begin; at < end; at++) {
            const long long piece = at / s.groups, group = at % s.groups;
            float* sum = sums + at * s.outputs * depth;
            memset(sum, 0, s.outputs * depth * 4);
            for (long long part = piece * all / pieces; part < (piece + 1) * all / pieces; part++) {
                const long long plane = part / bands * s.groups + group, y0 = part % bands * rows;
                const long long real_rows = s.out_height - y0 < rows ? s.out_height - y0 : rows;
                for (long long i = 0; i < s.inputs; i++)
                    lines.copy(images + (plane * s.inputs + i) * s.height * s.width, s.height, s.width, s.pad_y - y0, s.pad_x, x + i * lines.size());
                for (long long o = 0; o < s.outputs; o++)
                    lines.copy(gradient + (plane * s.outputs + o) * s.out_height * s.out_width, s.out_height, s.out_width, -y0, 0, g + o * lines.size(), real_rows);
                for (long long o = 0; o < s.outputs; o += SIDE)
                    for (long long k = 0; k < depth; k += SIDE) {
                        const float *left[SIDE], *right[SIDE];
                        for (long long i = 0; i < SIDE; i++) {  // beyond the last one: that one again, which nobody takes
                            const long long row = o + i < s.outputs ? o + i : s.outputs - 1, tap = k + i < depth ? k + i : depth - 1;
                            left[i] = g + row * lines.size();
                            right[i] = x + tap / lines.taps * lines.size() + lines.distances[tap % lines.taps];
                        }
                        Vector products[SIDE][SIDE];
#pragma GCC unroll 4
                        for (int i = 0; i < SIDE; i++)
#pragma GCC unroll 4
                            for (int j = 0; j < SIDE; j++) products[i][j] = Vector{};
                        for (long long p = 0; p < real_rows * lines.length; p += LANES) {
                            Vector numbers[SIDE];
#pragma GCC unroll 4
                            for (int j = 0; j < SIDE; j++) {
                                numbers[j] = *(const Vector*)(right[j] + p);
                                IN_REGISTER(numbers[j]);
                            }
#pragma GCC unroll 4
                            for (int i = 0; i < SIDE; i++) {
                                Vector slope = *(const Vector*)(left[i] + p);
                                IN_REGISTER(slope);
#pragma GCC unroll 4
                                for (int j = 0; j < SIDE; j++) products[i][j] += slope * numbers[j];
                            }
                        }
                        for (long long i = 0; i < SIDE && o + i < s.outputs; i++)
                            for (long long j = 0; j < SIDE && k + j < depth; j++)
                                sum[(o + i) * depth + k + j] += sum_of_lanes(products[i][j]);
                    }
            }
        }
    });
    const long long size = s.groups * s.outputs * depth;
    for (long long k = 0; k < size; k++) {
        float total = 0.0f;
        for (long long piece = 0; piece < pieces; piece++) total += sums[piece * size + k];
        result[k] = total;
    }
    // the zeros between the lines meet infinite pixels that have no part in a sum
    if (!all_finite(result, size)) convolution_backward_weights(s, gradient, images, result);
}

// Whether so few channels meet that packing them would take as long as the products.
inline bool few_channels(const Convolution& s, long long inputs, long long outputs) {
    return s.steps_of_one() && inputs * s.window() <= 160 && outputs <= 64 && s.out_width >= 8;
}

}  // namespace ox
