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

// The same with a weight for each class (or nullptr). `spreads` (or nullptr) are the means over all classes of what each
// would cost, for label smoothing.
ROWS(ox_weighted_cross_entropy, r, rows, n, const float* RESTRICT scores, const long long* RESTRICT targets, const float* RESTRICT weights, float* RESTRICT losses, float* RESTRICT logs, float* RESTRICT spreads, long long ignored, long long n) {
    const float* x = scores + r * n;
    long long target = targets[r];
    bool counts = target != ignored, known = target >= 0 && target < n;
    float most = MAX(c, n, x[c]);
    float shift = most == INFINITY || most == -INFINITY ? most : most + ox_log(SUM(c, n, ox_exp(x[c] - most)));
    float cost = known ? shift - x[target] : NAN;
    losses[r] = !counts ? 0.0f : weights && known ? weights[target] * cost : cost;
    logs[r] = shift;
    if (spreads) {
        float sum = 0.0f;
        if (weights) {
            sum = SUM(c, n, weights[c] * (shift - x[c]));
        } else {
            sum = SUM(c, n, shift - x[c]);
        }
        spreads[r] = counts ? sum / n : 0.0f;
    }
} END

// The gradient of the scores from those of the losses and of the spreads (each may be nullptr); `total` is the sum of the
// weights of all classes.
ROWS(ox_weighted_cross_entropy_backward, r, rows, n, const float* RESTRICT scores, const long long* RESTRICT targets, const float* RESTRICT logs, const float* RESTRICT weights, const float* RESTRICT from_losses, const float* RESTRICT from_spreads, float* RESTRICT result, float total, long long ignored, long long n) {
    const float* x = scores + r * n;
    float* d = result + r * n;
    long long target = targets[r];
    bool known = target >= 0 && target < n;
    float shift = logs[r], spread = from_spreads ? from_spreads[r] / n : 0.0f, all = total;
    float direct = from_losses ? (weights && known ? weights[target] * from_losses[r] : from_losses[r]) : 0.0f;
    if (target == ignored) {
        COLUMNS(c, n) d[c] = 0.0f;
    } else if (!from_spreads) {
        COLUMNS(c, n) d[c] = direct * (ox_exp(x[c] - shift) - (c == target ? 1.0f : 0.0f));
    } else if (weights) {
        COLUMNS(c, n) {
            float share = ox_exp(x[c] - shift);
            d[c] = direct * (share - (c == target ? 1.0f : 0.0f)) + spread * (all * share - weights[c]);
        }
    } else {
        COLUMNS(c, n) {
            float share = ox_exp(x[c] - shift);
            d[c] = direct * (share - (c == target ? 1.0f : 0.0f)) + spread * (all * share - 1.0f);
        }
    }
} END

// Of rows of scores and of probabilities, which become keep * p + rest (label smoothing), with a weight for each class (or
// nullptr).
ROWS(ox_soft_cross_entropy, r, rows, n, const float* RESTRICT scores, const float* RESTRICT targets, const float* RESTRICT weights, float* RESTRICT losses, float* RESTRICT logs, float keep, float rest, long long n) {
    const float *x = scores + r * n, *p = targets + r * n;
    float most = MAX(c, n, x[c]);
    float shift = most == INFINITY || most == -INFINITY ? most : most + ox_log(SUM(c, n, ox_exp(x[c] - most)));
    float sum = 0.0f;
    if (weights) {
        sum = SUM(c, n, weights[c] * (keep * p[c] + rest) * (shift - x[c]));
    } else {
        sum = SUM(c, n, (keep * p[c] + rest) * (shift - x[c]));
    }
    losses[r] = sum;
    logs[r] = shift;
} END

ROWS(ox_soft_cross_entropy_backward, r, rows, n, const float* RESTRICT gradients, const float* RESTRICT scores, const float* RESTRICT targets, const float* RESTRICT logs, const float* RESTRICT weights, float* RESTRICT result, float keep, float rest, long long n) {
    const float *x = scores + r * n, *p = targets + r * n;
    float* d = result + r * n;
    float shift = logs[r], g = gradients[r], part = keep, share = rest;
    if (weights) {
        float total = SUM(c, n, weights[c] * (part * p[c] + share));
        COLUMNS(c, n) d[c] = g * (ox_exp(x[c] - shift) * total - weights[c] * (part * p[c] + share));
    } else {
        float total = SUM(c, n, part * p[c] + share);
        COLUMNS(c, n) d[c] = g * (ox_exp(x[c] - shift) * total - (part * p[c] + share));
    }
} END
