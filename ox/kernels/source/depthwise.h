// Convolutions with one input channel a group: no product to block, so rows of the images are added up as they lie.
#pragma once
#include "lines.h"

namespace ox {

// The columns x of [0, count) for which x * stride + shift lies in [0, size).
struct Range {
    long long begin, end;
};

inline Range inside(long long count, long long stride, long long shift, long long size) {
    long long begin = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    long long end = size <= shift ? 0 : (size - shift + stride - 1) / stride;
    end = end < count ? end : count;
    return {begin, begin < end ? end : begin};
}

inline void depthwise_forward_in_lines(const Convolution& s, const float* images, const float* weights, const float* bias, float* output) {
    const Lines lines(s, s.out_height, s.out_width);
    parallel(s.samples * s.groups, 4, [&](long long begin, long long end) {
        static thread_local Scratch memory;
        float *x = memory.floats(2 * lines.size()), *sums = x + lines.size();
        for (long long at = begin; at < end; at++) {
            lines.copy(images + at * s.height * s.width, s.height, s.width, s.pad_y, s.pad_x, x);
            for (long long o = 0; o < s.outputs; o++) {
                const long long channel = at % s.groups * s.outputs + o;
                const float start = bias ? bias[channel] : 0.0f;
                for (long long p = 0; p < lines.size(); p++) sums[p] = start;
                lines.correlate(x, weights + channel * lines.taps, 1, sums);
                float* out = output + (at * s.outputs + o) * s.out_height * s.out_width;
                for (long long y = 0; y < s.out_height; y++)
                    for (long long c = 0; c < s.out_width; c++) out[y * s.out_width + c] = sums[y * lines.length + c];
            }
        }
    });
}

inline void depthwise_backward_images_in_lines(const Convolution& s, const float* gradient, const float* weights, const float* bias, float* result) {
    const Lines lines(s, s.height, s.width);
    const long long top = (s.kernel_y - 1) * s.dilation_y - s.pad_y, left = (s.kernel_x - 1) * s.dilation_x - s.pad_x;
    parallel(s.samples * s.groups, 4, [&](long long begin, long long end) {
        static thread_local Scratch memory;
        float *g = memory.floats(2 * lines.size()), *sums = g + lines.size();
        for (long long at = begin; at < end; at++) {
            const float start = bias ? bias[at % s.groups] : 0.0f;
            for (long long p = 0; p < lines.size(); p++) sums[p] = start;
            for (long long o = 0; o < s.outputs; o++) {
                const long long channel = at % s.groups * s.outputs + o;
                lines.copy(gradient + (at * s.outputs + o) * s.out_height * s.out_width, s.out_height, s.out_width, top, left, g);
                lines.correlate(g, weights + (channel + 1) * lines.taps - 1, -1, sums);
            }
            float* x = result + at * s.height * s.width;
            for (long long y = 0; y < s.height; y++)
                for (long long c = 0; c < s.width; c++) x[y * s.width + c] = sums[y * lines.length + c];
        }
    });
}

inline void depthwise_backward_weights_in_lines(const Convolution& s, const float* gradient, const float* images, float* result) {
    const Lines lines(s, s.out_height, s.out_width);
    parallel(s.groups, 1, [&](long long begin, long long end) {
        static thread_local Scratch memory;
        float *x = memory.floats(2 * lines.size()), *g = x + lines.size();
        for (long long group = begin; group < end; group++) {
            float* sums = result + group * s.outputs * lines.taps;
            for (long long t = 0; t < s.outputs * lines.taps; t++) sums[t] = 0.0f;
            for (long long sample = 0; sample < s.samples; sample++) {
                const long long at = sample * s.groups + group;
                lines.copy(images + at * s.height * s.width, s.height, s.width, s.pad_y, s.pad_x, x);
                for (long long o = 0; o < s.outputs; o++) {
                    lines.copy(gradient + (at * s.outputs + o) * s.out_height * s.out_width, s.out_height, s.out_width, 0, 0, g);
                    for (long long t = 0; t < lines.taps; t++) sums[o * lines.taps + t] += lines.product(g, x, lines.distances[t]);
                }
            }
        }
    });
}

inline void depthwise_forward(const Convolution& s, const float* images, const float* weights, const float* bias, float* output) {
    if (s.steps_of_one()) {
        depthwise_forward_in_lines(s, images, weights, bias, output);
        return;
    }
    const long long channels = s.groups * s.outputs;
    parallel(s.samples * channels, 4, [=](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            const long long sample = at / channels, channel = at % channels;
            const float* x = images + (sample * s.groups + channel / s.outputs) * s.height * s.width;
            const float* w = weights + channel * s.window();
            const float start = bias ? bias[channel] : 0.0f;
            for (long long y = 0; y < s.out_height; y++) {
                float* out = output + (at * s.out_height + y) * s.out_width;
                for (long long i = 0; i < s.out_width; i++) out[i] = start;
                for (long long i = 0; i < s.kernel_y; i++) {
                    const long long row = y * s.stride_y - s.pad_y + i * s.dilation_y;
                    if (row < 0 || row >= s.height) continue;
                    for (long long j = 0; j < s.kernel_x; j++) {
                        const long long shift = j * s.dilation_x - s.pad_x;
                        const Range range = inside(s.out_width, s.stride_x, shift, s.width);
                        const float* line = x + row * s.width + shift;
                        const float weight = w[i * s.kernel_x + j];
                        if (s.stride_x == 1) {
                            for (long long c = range.begin; c < range.end; c++) out[c] += weight * line[c];
                        } else {
                            for (long long c = range.begin; c < range.end; c++) out[c] += weight * line[c * s.stride_x];
                        }
                    }
                }
            }
        }
    });
}

inline void depthwise_backward_images(const Convolution& s, const float* gradient, const float* weights, const float* bias, float* result) {
    if (s.steps_of_one()) {
        depthwise_backward_images_in_lines(s, gradient, weights, bias, result);
        return;
    }
    parallel(s.samples * s.groups, 4, [=](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            const long long sample = at / s.groups, group = at % s.groups;
            float* x = result + at * s.height * s.width;
            const float start = bias ? bias[group] : 0.0f;
            for (long long i = 0; i < s.height * s.width; i++) x[i] = start;
            for (long long o = 0; o < s.outputs; o++) {
                const long long channel = group * s.outputs + o;
                const float* g = gradient + (sample * s.groups * s.outputs + channel) * s.out_height * s.out_width;
                const float* w = weights + channel * s.window();
                for (long long y = 0; y < s.out_height; y++) {
                    for (long long i = 0; i < s.kernel_y; i++) {
                        const long long row = y * s.stride_y - s.pad_y + i * s.dilation_y;
                        if (row < 0 || row >= s.height) continue;
                        for (long long j = 0; j < s.kernel_x; j++) {
                            const long long shift = j * s.dilation_x - s.pad_x;
                            const Range range = inside(s.out_width, s.stride_x, shift, s.width);
                            float* line = x + row * s.width + shift;
                            const float *from = g + y * s.out_width, weight = w[i * s.kernel_x + j];
                            if (s.stride_x == 1) {
                                for (long long c = range.begin; c < range.end; c++) line[c] += weight * from[c];
                            } else {
                                for (long long c = range.begin; c < range.end; c++) line[c * s.stride_x] += weight * from[c];
                            }
                        }
                    }
                }
            }
        }
    });
}

inline void depthwise_backward_weights(const Convolution& s, const float* gradient, const float* images, float* result) {
    if (s.steps_of_one()) {
        depthwise_backward_weights_in_lines(s, gradient, images, result);
        // the zeros between the lines meet infinite pixels that have no part in a sum
        if (all_finite(result, s.groups * s.outputs * s.window())) return;
    }
    const long long channels = s.groups * s.outputs;
    parallel(channels, 1, [=](long long begin, long long end) {
        for (long long channel = begin; channel < end; channel++) {
            for (long long i = 0; i < s.kernel_y; i++) {
                for (long long j = 0; j < s.kernel_x; j++) {
                    const long long shift = j * s.dilation_x - s.pad_x;
                    const Range range = inside(s.out_width, s.stride_x, shift, s.width);
                    float sum = 0.0f;
                    for (long long sample = 0; sample < s.samples; sample++) {
                        const float* x = images + (sample * s.groups + channel / s.outputs) * s.height * s.width + shift;
                        const float* g = gradient + (sample * channels + channel) * s.out_height * s.out_width;
                        for (long long y = 0; y < s.out_height; y++) {
                            const long long row = y * s.stride_y - s.pad_y + i * s.dilation_y;
                            if (row < 0 || row >= s.height) continue;
                            const float *line = x + row * s.width, *from = g + y * s.out_width;
                            float part = 0.0f;
                            if (s.stride_x == 1) {
#pragma omp simd reduction(+ : part)
                                for (long long c = range.begin; c < range.end; c++) part += from[c] * line[c];
                            } else {
#pragma omp simd reduction(+ : part)
                                for (long long c = range.begin; c < range.end; c++) part += from[c] * line[c * s.stride_x];
                            }
                            sum += part;
                        }
                    }
                    result[channel * s.window() + i * s.kernel_x + j] = sum;
                }
            }
        }
    });
}

}  // namespace ox
