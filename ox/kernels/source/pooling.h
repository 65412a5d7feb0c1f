// Max pooling of planes with the place of each maximum, its gradient, and that of average pooling.
#pragma once
#include "depthwise.h"

namespace ox {

struct Pooling {
    long long height, width, out_height, out_width, kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
};

// A NaN wins, and the first of equal values stays. `places` are indices in the flattened images, or nullptr.
inline void max_pool(long long planes, const Pooling& s, const float* images, float* output, long long* places) {
    parallel_light(planes, ROW_WORK / (s.height * s.width + 1) + 1, [=](long long begin, long long end) {
        static thread_local Scratch memory;
        float* best = memory.floats(2 * s.out_width);
        int* chosen = reinterpret_cast<int*>(best + s.out_width);
        for (long long plane = begin; plane < end; plane++) {
            const float* x = images + plane * s.height * s.width;
            for (long long y = 0; y < s.out_height; y++) {
                for (long long c = 0; c < s.out_width; c++) best[c] = -INFINITY, chosen[c] = -1;
                for (long long i = 0; i < s.kernel_y; i++) {
                    const long long row = y * s.stride_y - s.pad_y + i * s.dilation_y;
                    if (row < 0 || row >= s.height) continue;
                    for (long long j = 0; j < s.kernel_x; j++) {
                        const long long shift = j * s.dilation_x - s.pad_x;
                        const Range range = inside(s.out_width, s.stride_x, shift, s.width);
                        const float* line = x + row * s.width + shift;
                        const int start = (int)(row * s.width + shift), stride = (int)s.stride_x;
#pragma omp simd
                        for (int c = (int)range.begin; c < (int)range.end; c++) {
                            const float value = line[c * stride], now = best[c];
                            const bool better = (value > now) | (chosen[c] < 0) | ((value != value) & (now == now));  // clang keeps branches of ||
                            best[c] = better ? value : now;
                            chosen[c] = better ? start + c * stride : chosen[c];
                        }
                    }
                }
                const long long at = (plane * s.out_height + y) * s.out_width;
                for (long long c = 0; c < s.out_width; c++) output[at + c] = best[c];
                if (places)
                    for (long long c = 0; c < s.out_width; c++) places[at + c] = plane * s.height * s.width + chosen[c];
            }
        }
    });
}

inline void max_pool_backward(long long planes, long long size, long long out_size, const float* gradient, const long long* places, float* result) {
    parallel_light(planes, ROW_WORK / (size + 1) + 1, [=](long long begin, long long end) {
        memset(result + begin * size, 0, (end - begin) * size * 4);
        for (long long at = begin * out_size; at < end * out_size; at++) result[places[at]] += gradient[at];
    });
}

// Taps of a window from `low` up to `high` count; the others lie outside of what is averaged.
struct Averaging {
    Pooling window;
    long long low_y, high_y, low_x, high_x;
};

inline float counted_taps(long long first, long long taps, long long dilation, long long low, long long high) {
    long long count = 0;
    for (long long i = 0; i < taps; i++) count += (first + i * dilation >= low) & (first + i * dilation < high);
    return (float)(count ? count : 1);
}

inline void average_pool_backward(long long planes, const Averaging& a, const float* gradient, float* result) {
    parallel_light(planes, ROW_WORK / (a.window.height * a.window.width + 1) + 1, [=, &a](long long begin, long long end) {
        const Pooling& s = a.window;
        static thread_local Scratch memory;
        float* share = memory.floats(2 * s.out_width);
        float* columns = share + s.out_width;
        for (long long c = 0; c < s.out_width; c++)
            columns[c] = counted_taps(c * s.stride_x - s.pad_x, s.kernel_x, s.dilation_x, a.low_x, a.high_x);
        memset(result + begin * s.height * s.width, 0, (end - begin) * s.height * s.width * 4);
        for (long long plane = begin; plane < end; plane++) {
            float* x = result + plane * s.height * s.width;
            for (long long y = 0; y < s.out_height; y++) {
                const long long first = y * s.stride_y - s.pad_y;
                const float rows = counted_taps(first, s.kernel_y, s.dilation_y, a.low_y, a.high_y);
                const float* g = gradient + (plane * s.out_height + y) * s.out_width;
#pragma omp simd
                for (long long c = 0; c < s.out_width; c++) share[c] = g[c] / (rows * columns[c]);
                for (long long i = 0; i < s.kernel_y; i++) {
                    const long long row = first + i * s.dilation_y;
                    if (row < 0 || row >= s.height) continue;
                    for (long long j = 0; j < s.kernel_x; j++) {
                        const long long shift = j * s.dilation_x - s.pad_x;
                        const Range range = inside(s.out_width, s.stride_x, shift, s.width);
                        float* line = x + row * s.width + shift;
                        const int stride = (int)s.stride_x;
                        if (stride == 1) {
#pragma omp simd
                            for (int c = (int)range.begin; c < (int)range.end; c++) line[c] += share[c];
                        } else {
#pragma omp simd
                            for (int c = (int)range.begin; c < (int)range.end; c++) line[c * stride] += share[c];
                        }
                    }
                }
            }
        }
    });
}

}  // namespace ox
