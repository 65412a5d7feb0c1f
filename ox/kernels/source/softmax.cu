// Softmax and log-softmax over the last axis, their gradients, and the cross entropy of both.

ROWS(ox_softmax, r, rows, n, const float* RESTRICT input, float* RESTRICT output, long long n) {
    const float* x = input + r * n;
    float* y = output + r * n;
    float most = MAX(c, n, x[c]);
    COLUMNS(c, n) y[c] = ox_exp(x[c] - most);
    float scale = 1.0f / SUM(c, n, y[c]);
    COLUMNS(c, n) y[c] *= scale;
} END

ROWS(ox_softmax_backward, r, rows, n, const float* RESTRICT gradient, const float* RESTRICT output, float* RESTRICT result, long long n) {
    const float *g = gradient + r * n, *y = output + r * n;
    float* d = result + r * n;
    float dot = SUM(c, n, g[c] * y[c]);
    COLUMNS(c, n) d[c] = y[c] * (g[c] - dot);
} END

ROWS(ox_log_softmax, r, rows, n, const float* RESTRICT input, float* RESTRICT output, long long n) {
    const float* x = input + r * n;
    float* y = output + r * n;
    float most = MAX(c, n, x[c]);
    float shift = most + ox_log(SUM(c, n, ox_exp(x[c] - most)));
    COLUMNS(c, n) y[c] = x[c] - shift;
} END

ROWS(ox_log_softmax_backward, r, rows, n, const float* RESTRICT gradient, const float* RESTRICT output, float* RESTRICT result, long long n) {
    const float *g = gradient + r * n, *y = output + r * n;
    float* d = result + r * n;
    float sum = SUM(c, n, g[c]);
    COLUMNS(c, n) d[c] = g[c] - ox_exp(y[c]) * sum;
} END

// Of rows of scores and one target each: the losses, and the logarithms of the sums of exp(scores). A target of
// `ignored` costs 0, one that is no class NaN.
ROWS(ox_cross_entropy, r, rows, n, const float* RESTRICT scores, const long long* RESTRICT targets, float* RESTRICT losses, float* RESTRICT logs, long long ignored, long long n) {
    const float* x = scores + r * n;
    long long target = targets[r];
    float most = MAX(c, n, x[c]);
    float shift = most == INFINITY || most == -INFINITY ? most : most + ox_log(SUM(c, n, ox_exp(x[c] - most)));
    losses[r] = target == ignored ? 0.0f : target < 0 || target >= n ? NAN : shift - x[target];
    logs[r] = shift;
} END

// The gradient of the scores, where `weights` are the gradients of the losses.
ROWS(ox_cross_entropy_backward, r, rows, n, const float* RESTRICT weights, const float* RESTRICT scores, const long long* RESTRICT targets, const float* RESTRICT logs, float* RESTRICT result, long long ignored, long long n) {
    const float* x = scores + r * n;
    float* d = result + r * n;
    long long target = targets[r];
    float weight = weights[r], shift = logs[r];
    if (target == ignored) {
        COLUMNS(c, n) d[c] = 0.0f;
    } else {
        COLUMNS(c, n) d[c] = weight * (ox_exp(x[c] - shift) - (c == target ? 1.0f : 0.0f));
    }
} END
