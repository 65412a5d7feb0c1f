// Layer and RMS normalization of rows of NUMBER, and their gradients. `parts` and their sums are those of normalization.cu.
#include "device_numbers.h"
#include "block_rows.h"
#include "normalization.cu"

// The sums of parts [parts, n], in `first`, and of those behind them in `second`: a block adds up 32 columns. Warp w of W adds the parts w, w + W, ...
extern "C" __global__ void ox_device_sum_parts(long long parts, const float* RESTRICT sums, NUMBER* RESTRICT first, NUMBER* RESTRICT second, long long n) {
    __shared__ double shares[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const long long c = blockIdx.x * 32ll + lane;
    double sum = 0.0;
    if (c < n)
        for (long long p = warp; p < parts; p += warps) sum += sums[(blockIdx.y * parts + p) * n + c];
    shares[warp][lane] = sum;
    __syncthreads();
    if (warp || c >= n) return;
    for (int w = 1; w < warps; w++) sum += shares[w][lane];
    (blockIdx.y ? second : first)[c] = STORE((float)sum);
}

#ifdef KEPT_COLUMNS
// Gradients of rows that a block keeps in registers: its threads have KEPT_COLUMNS columns each. So everything is read once.
#define EACH_KEPT(k, c) for (int k = 0; k < KEPT_COLUMNS; k++) if (const long long c = threadIdx.x + k * (long long)blockDim.x; c < n)

extern "C" __global__ void ox_device_layer_norm_backward(long long parts, const NUMBER* RESTRICT gradient, const NUMBER* RESTRICT input, const NUMBER* RESTRICT scale, const float* RESTRICT means, const float* RESTRICT inverses, NUMBER* RESTRICT result, float* RESTRICT scale_sums, float* RESTRICT bias_sums, long long rows, long long n) {
    const long long p = blockIdx.x;
    float weights[KEPT_COLUMNS], to_scale[KEPT_COLUMNS], to_bias[KEPT_COLUMNS];
#pragma unroll
    EACH_KEPT(k, c) weights[k] = LOAD(scale[c]), to_scale[k] = to_bias[k] = 0.0f;
    for (long long r = p * rows / parts; r < (p + 1) * rows / parts; r++) {
        const float mean = means[r], inverse = inverses[r];
        float normals[KEPT_COLUMNS], slopes[KEPT_COLUMNS], sums[] = {0.0f, 0.0f};
#pragma unroll
        EACH_KEPT(k, c) {
            const float g = LOAD(gradient[r * n + c]);
            normals[k] = (LOAD(input[r * n + c]) - mean) * inverse;
            slopes[k] = g * weights[k];
            to_scale[k] += g * normals[k];
            to_bias[k] += g;
            sums[0] += slopes[k];
            sums[1] += slopes[k] * normals[k];
        }
        block_sums(sums);
        const float sum = sums[0] / n, product = sums[1] / n;
#pragma unroll
        EACH_KEPT(k, c) result[r * n + c] = STORE(inverse * (slopes[k] - sum - normals[k] * product));
    }
#pragma unroll
    EACH_KEPT(k, c) scale_sums[p * n + c] = to_scale[k], bias_sums[p * n + c] = to_bias[k];
}

extern "C" __global__ void ox_device_rms_norm_backward(long long parts, const NUMBER* RESTRICT gradient, const NUMBER* RESTRICT input, const NUMBER* RESTRICT scale, NUMBER* RESTRICT result, float* RESTRICT scale_sums, float epsilon, long long rows, long long n) {
    const long long p = blockIdx.x;
    float weights[KEPT_COLUMNS], to_scale[KEPT_COLUMNS];
#pragma unroll
    EACH_KEPT(k, c) weights[k] = LOAD(scale[c]), to_scale[k] = 0.0f;
    for (long long r = p * rows / parts; r < (p + 1) * rows / parts; r++) {
        float numbers[KEPT_COLUMNS], gradients[KEPT_COLUMNS], sums[] = {0.0f, 0.0f};
#pragma unroll
        EACH_KEPT(k, c) {
            numbers[k] = LOAD(input[r * n + c]);
            gradients[k] = LOAD(gradient[r * n + c]);
            sums[0] += numbers[k] * numbers[k];
            sums[1] += gradients[k] * weights[k] * numbers[k];
        }
        block_sums(sums);
        const float inverse = 1.0f / sqrtf(sums[0] / n + epsilon), slope = sums[1] / n * inverse * inverse;
#pragma unroll
        EACH_KEPT(k, c) {
            result[r * n + c] = STORE(inverse * (gradients[k] * weights[k] - numbers[k] * slope));
            to_scale[k] += gradients[k] * numbers[k] * inverse;
        }
    }
#pragma unroll
    EACH_KEPT(k, c) scale_sums[p * n + c] = to_scale[k];
}
#endif
