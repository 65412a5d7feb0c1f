// Layer and RMS normalization of rows. Gradients of the weights are summed in `parts` pieces, a fixed number whatever
// the threads, so that the sums are the same on every machine; the caller adds the pieces up. On a GPU, layer and RMS
// normalization are also compiled for rows of halves, which LOAD and STORE convert from and to float (device_norms.cu).
#ifndef NUMBER
#define NUMBER float
#define LOAD(x) (x)
#define STORE(x) (x)
#endif

ROWS(ox_layer_norm, r, rows, n, const NUMBER* RESTRICT input, const NUMBER* RESTRICT scale, const NUMBER* RESTRICT bias, NUMBER* RESTRICT output, float* RESTRICT means, float* RESTRICT inverses, float epsilon, long long n) {
    const NUMBER* x = input + r * n;
    NUMBER* y = output + r * n;
    float mean = SUM(c, n, LOAD(x[c])) / n;
    float variance = SUM(c, n, (LOAD(x[c]) - mean) * (LOAD(x[c]) - mean)) / n;
    float inverse = 1.0f / sqrtf(variance + epsilon);
    if (bias) {
        COLUMNS(c, n) y[c] = STORE((LOAD(x[c]) - mean) * inverse * LOAD(scale[c]) + LOAD(bias[c]));
    } else {
        COLUMNS(c, n) y[c] = STORE((LOAD(x[c]) - mean) * inverse * LOAD(scale[c]));
    }
    if (means) means[r] = mean, inverses[r] = inverse;
} END

// part p has the rows [p * rows / parts, (p + 1) * rows / parts)
ROWS(ox_layer_norm_backward, p, parts, rows * n / parts, const NUMBER* RESTRICT gradient, const NUMBER* RESTRICT input, const NUMBER* RESTRICT scale, const float* RESTRICT means, const float* RESTRICT inverses, NUMBER* RESTRICT result, float* RESTRICT scale_sums, float* RESTRICT bias_sums, long long rows, long long n) {
    float *ds = scale_sums + p * n, *db = bias_sums + p * n;
    COLUMNS(c, n) { ds[c] = 0.0f; db[c] = 0.0f; }
    for (long long r = p * rows / parts; r < (p + 1) * rows / parts; r++) {
        const NUMBER *x = input + r * n, *g = gradient + r * n;
        NUMBER* d = result + r * n;
        float mean = means[r], inverse = inverses[r];
        float sum = SUM(c, n, LOAD(g[c]) * LOAD(scale[c])) / n;
        float product = SUM(c, n, LOAD(g[c]) * LOAD(scale[c]) * (LOAD(x[c]) - mean)) * inverse / n;
        COLUMNS(c, n) {
            float normal = (LOAD(x[c]) - mean) * inverse;
            d[c] = STORE(inverse * (LOAD(g[c]) * LOAD(scale[c]) - sum - normal * product));
            ds[c] += LOAD(g[c]) * normal;
            db[c] += LOAD(g[c]);
        }
    }
} END

ROWS(ox_rms_norm, r, rows, n, const NUMBER* RESTRICT input, const NUMBER* RESTRICT scale, NUMBER* RESTRICT output, float* RESTRICT inverses, float epsilon, long long n) {
    const NUMBER* x = input + r * n;
    NUMBER* y = output + r * n;
    float inverse = 1.0f / sqrtf(SUM(c, n, LOAD(x[c]) * LOAD(x[c])) / n + epsilon);
    COLUMNS(c, n) y[c] = STORE(LOAD(x[c]) * inverse * LOAD(scale[c]));
    if (inverses) inverses[r] = inverse;
} END

// The statistics are taken again; parts as in ox_layer_norm_backward.
ROWS(ox_rms_norm_backward, p, parts, rows * n / parts, const NUMBER* RESTRICT gradient, const NUMBER* RESTRICT input, const NUMBER* RESTRICT scale, NUMBER* RESTRICT result, float* RESTRICT scale_sums, float epsilon, long long rows, long long n) {
    float* ds = scale_sums + p * n;
    COLUMNS(c, n) ds[c] = 0.0f;
    for (long long r = p * rows / parts; r < (p + 1) * rows / parts; r++) {
        const NUMBER *x = input + r * n, *g = gradient + r * n;
        NUMBER* d = result + r * n;
        float inverse = 1.0f / sqrtf(SUM(c, n, LOAD(x[c]) * LOAD(x[c])) / n + epsilon);
        float slope = SUM(c, n, LOAD(g[c]) * LOAD(scale[c]) * LOAD(x[c])) / n * inverse * inverse;
        COLUMNS(c, n) {
            d[c] = STORE(inverse * (LOAD(g[c]) * LOAD(scale[c]) - LOAD(x[c]) * slope));
            ds[c] += LOAD(g[c]) * LOAD(x[c]) * inverse;
        }
    }
} END

// A group or instance is a row of `channels` planes of `size` elements; scale and bias belong to channels, which repeat
// after `groups` rows.
ROWS(ox_group_norm, r, rows, channels * size, const float* RESTRICT input, const float* RESTRICT scale, const float* RESTRICT bias, float* RESTRICT output, float* RESTRICT means, float* RESTRICT inverses, float epsilon, long long groups, long long channels, long long size) {
    long long n = channels * size;
    const float* x = input + r * n;
    float* y = output + r * n;
    float mean = SUM(c, n, x[c]) / n;
    float variance = SUM(c, n, (x[c] - mean) * (x[c] - mean)) / n;
    float inverse = 1.0f / sqrtf(variance + epsilon);
    for (long long k = 0; k < channels; k++) {
        long long channel = r % groups * channels + k;
        float factor = inverse * scale[channel], shift = bias[channel] - mean * factor;
        COLUMNS(c, size) y[k * size + c] = x[k * size + c] * factor + shift;
    }
    means[r] = mean;
    inverses[r] = inverse;
} END

// The statistics are taken again. `scale_sums` and `bias_sums` are rows by channels: one pair for each plane.
ROWS(ox_group_norm_backward, r, rows, channels * size, const float* RESTRICT gradient, const float* RESTRICT input, const float* RESTRICT scale, float* RESTRICT result, float* RESTRICT scale_sums, float* RESTRICT bias_sums, float epsilon, long long groups, long long channels, long long size) {
    long long n = channels * size;
    const float *x = input + r * n, *g = gradient + r * n, *weights = scale + r % groups * channels;
    float *d = result + r * n, *ds = scale_sums + r * channels, *db = bias_sums + r * channels;
    float mean = SUM(c, n, x[c]) / n;
    float variance = SUM(c, n, (x[c] - mean) * (x[c] - mean)) / n;
    float inverse = 1.0f / sqrtf(variance + epsilon), sum = 0.0f, product = 0.0f;
    for (long long k = 0; k < channels; k++) {
        float plain = SUM(c, size, g[k * size + c]);
        float scaled = SUM(c, size, g[k * size + c] * (x[k * size + c] - mean)) * inverse;
        ds[k] = scaled;
        db[k] = plain;
        sum += weights[k] * plain;
        product += weights[k] * scaled;
    }
    float offset = sum / n * inverse, slope = product / n * inverse * inverse;
    for (long long k = 0; k < channels; k++) {
        float factor = weights[k] * inverse;
        COLUMNS(c, size) d[k * size + c] = g[k * size + c] * factor - offset - (x[k * size + c] - mean) * slope;
    }
} END

// Batch normalization of (samples, channels, size) by its own statistics: a row is a channel over all samples. Mean and
// variance go to `means` and `variances`.
ROWS(ox_batch_norm, k, channels, samples * size, const float* RESTRICT input, const float* RESTRICT scale, const float* RESTRICT bias, float* RESTRICT output, float* RESTRICT means, float* RESTRICT variances, float epsilon, long long samples, long long size) {
    long long step = channels * size;
    const float* x = input + k * size;
    float* y = output + k * size;
    float n = (float)samples * size;
    double sum = 0.0, squares = 0.0;
    for (long long s = 0; s < samples; s++) sum += SUM(c, size, x[s * step + c]);
    float mean = sum / n;
    for (long long s = 0; s < samples; s++) squares += SUM(c, size, (x[s * step + c] - mean) * (x[s * step + c] - mean));
    float variance = squares / n, factor = scale[k] / sqrtf(variance + epsilon), shift = bias[k];
    means[k] = mean;
    variances[k] = variance;
    for (long long s = 0; s < samples; s++) {
        COLUMNS(c, size) y[s * step + c] = (x[s * step + c] - mean) * factor + shift;
    }
} END

// Its gradient.
// The statistics are taken again, which costs less than keeping them with the graph.
ROWS(ox_batch_norm_backward, k, channels, samples * size, const float* RESTRICT gradient, const float* RESTRICT input, const float* RESTRICT scale, float* RESTRICT result, float* RESTRICT scale_sums, float* RESTRICT bias_sums, float epsilon, long long samples, long long size) {
    long long step = channels * size;
    const float *x = input + k * size, *g = gradient + k * size;
    float* d = result + k * size;
    float n = (float)samples * size;
    double sum = 0.0, squares = 0.0, plain_sum = 0.0, scaled_sum = 0.0;
    for (long long s = 0; s < samples; s++) sum += SUM(c, size, x[s * step + c]);
    float mean = sum / n;
    for (long long s = 0; s < samples; s++) {
        squares += SUM(c, size, (x[s * step + c] - mean) * (x[s * step + c] - mean));
        plain_sum += SUM(c, size, g[s * step + c]);
        scaled_sum += SUM(c, size, g[s * step + c] * (x[s * step + c] - mean));
    }
    float inverse = 1.0f / sqrtf((float)squares / n + epsilon), plain = plain_sum, scaled = (float)scaled_sum * inverse;
    scale_sums[k] = scaled;
    bias_sums[k] = plain;
    float factor = scale[k] * inverse, slope = scaled / n * inverse, offset = plain / n;
    for (long long s = 0; s < samples; s++) {
        COLUMNS(c, size) d[s * step + c] = factor * (g[s * step + c] - offset - (x[s * step + c] - mean) * slope);
    }
} END
