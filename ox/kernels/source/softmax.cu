// Softmax and log-softmax over the last axis, their gradients, and the cross entropy of both.

ROWS(ox_softmax, r, rows, n, const float* RESTRICT input, float* RESTRICT output, long long n) {
    const float* x = input + r * n;
    float* y = output + r * n;
    float most = MAX(c, n, x[c]);
    COLUMNS(c, n) y[c] = ox_exp_below(x[c] - most);
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
    float log = ox_log(SUM(c, n, ox_exp_below(x[c] - most)));  // apart from the maximum, whose digits it would lose
    COLUMNS(c, n) y[c] = x[c] - most - log;
} END

ROWS(ox_log_softmax_backward, r, rows, n, const float* RESTRICT gradient, const float* RESTRICT output, float* RESTRICT result, long long n) {
    const float *g = gradient + r * n, *y = output + r * n;
    float* d = result + r * n;
    float sum = SUM(c, n, g[c]);
    COLUMNS(c, n) d[c] = g[c] - ox_exp_below(y[c]) * sum;
} END

// The logarithm of a sum of exp(x) from that of exp(x - most). It is rounded: what needs its digits keeps both apart.
FUNCTION float log_of_sum(float most, float log) { return most == INFINITY || most == -INFINITY ? most : most + log; }

// Of rows of scores and one target each: the losses, and the logarithms of the sums of exp(scores). A target of
// `ignored` costs 0, one that is no class NaN.
ROWS(ox_cross_entropy, r, rows, n, const float* RESTRICT scores, const long long* RESTRICT targets, float* RESTRICT losses, float* RESTRICT logs, long long ignored, long long n) {
    const float* x = scores + r * n;
    long long target = targets[r];
    float most = MAX(c, n, x[c]);
    float log = ox_log(SUM(c, n, ox_exp_below(x[c] - most)));
    losses[r] = target == ignored ? 0.0f : target < 0 || target >= n ? NAN : most - x[target] + log;
    logs[r] = log_of_sum(most, log);
} END

// The gradient of the scores, where `weights` are the gradients of the losses.
ROWS(ox_cross_entropy_backward, r, rows, n, const float* RESTRICT weights, const float* RESTRICT scores, const long long* RESTRICT targets, float* RESTRICT result, long long ignored, long long n) {
    const float* x = scores + r * n;
    float* d = result + r * n;
    long long target = targets[r];
    float weight = weights[r];
    if (target == ignored) {
        COLUMNS(c, n) d[c] = 0.0f;
        continue;
    }
    float most = MAX(c, n, x[c]);
    COLUMNS(c, n) d[c] = ox_exp_below(x[c] - most);
    float scale = 1.0f / SUM(c, n, d[c]);
    COLUMNS(c, n) d[c] = weight * (d[c] * scale - (c == target ? 1.0f : 0.0f));
} END

// The same with a weight for each class (or nullptr). `spreads` (or nullptr) are the means over all classes of what each
// would cost, for label smoothing.
ROWS(ox_weighted_cross_entropy, r, rows, n, const float* RESTRICT scores, const long long* RESTRICT targets, const float* RESTRICT weights, float* RESTRICT losses, float* RESTRICT logs, float* RESTRICT spreads, long long ignored, long long n) {
    const float* x = scores + r * n;
    long long target = targets[r];
    bool counts = target != ignored, known = target >= 0 && target < n;
    float most = MAX(c, n, x[c]);
    float log = ox_log(SUM(c, n, ox_exp_below(x[c] - most)));
    float cost = known ? most - x[target] + log : NAN;
    losses[r] = !counts ? 0.0f : weights && known ? weights[target] * cost : cost;
    logs[r] = log_of_sum(most, log);
    if (spreads) {
        float sum = 0.0f;
        if (weights) {
            sum = SUM(c, n, weights[c] * (most - x[c] + log));
        } else {
            sum = SUM(c, n, most - x[c] + log);
        }
        spreads[r] = counts ? sum / n : 0.0f;
    }
} END

// The gradient of the scores from those of the losses and of the spreads (each may be nullptr); `total` is the sum of the
// weights of all classes.
ROWS(ox_weighted_cross_entropy_backward, r, rows, n, const float* RESTRICT scores, const long long* RESTRICT targets, const float* RESTRICT weights, const float* RESTRICT from_losses, const float* RESTRICT from_spreads, float* RESTRICT result, float total, long long ignored, long long n) {
    const float* x = scores + r * n;
    float* d = result + r * n;
    long long target = targets[r];
    bool known = target >= 0 && target < n;
    float spread = from_spreads ? from_spreads[r] / n : 0.0f, all = total;
    float direct = from_losses ? (weights && known ? weights[target] * from_losses[r] : from_losses[r]) : 0.0f;
    if (target == ignored) {
        COLUMNS(c, n) d[c] = 0.0f;
        continue;
    }
    float most = MAX(c, n, x[c]);
    COLUMNS(c, n) d[c] = ox_exp_below(x[c] - most);
    float scale = 1.0f / SUM(c, n, d[c]);
    if (!from_spreads) {
        COLUMNS(c, n) d[c] = direct * (d[c] * scale - (c == target ? 1.0f : 0.0f));
    } else if (weights) {
        COLUMNS(c, n) {
            float share = d[c] * scale;
            d[c] = direct * (share - (c == target ? 1.0f : 0.0f)) + spread * (all * share - weights[c]);
        }
    } else {
        COLUMNS(c, n) {
            float share = d[c] * scale;
            d[c] = direct * (share - (c == target ? 1.0f : 0.0f)) + spread * (all * share - 1.0f);
        }
    }
} END

// Of rows of scores and of probabilities, which become keep * p + rest (label smoothing), with a weight for each class (or
// nullptr).
ROWS(ox_soft_cross_entropy, r, rows, n, const float* RESTRICT scores, const float* RESTRICT targets, const float* RESTRICT weights, float* RESTRICT losses, float* RESTRICT logs, float keep, float rest, long long n) {
    const float *x = scores + r * n, *p = targets + r * n;
    float most = MAX(c, n, x[c]);
    float log = ox_log(SUM(c, n, ox_exp_below(x[c] - most)));
    float sum = 0.0f;
    if (weights) {
        sum = SUM(c, n, weights[c] * (keep * p[c] + rest) * (most - x[c] + log));
    } else {
        sum = SUM(c, n, (keep * p[c] + rest) * (most - x[c] + log));
    }
    losses[r] = sum;
    logs[r] = log_of_sum(most, log);
} END

ROWS(ox_soft_cross_entropy_backward, r, rows, n, const float* RESTRICT gradients, const float* RESTRICT scores, const float* RESTRICT targets, const float* RESTRICT weights, float* RESTRICT result, float keep, float rest, long long n) {
    const float *x = scores + r * n, *p = targets + r * n;
    float* d = result + r * n;
    float g = gradients[r], part = keep, share = rest, most = MAX(c, n, x[c]);
    COLUMNS(c, n) d[c] = ox_exp_below(x[c] - most);
    float scale = 1.0f / SUM(c, n, d[c]);
    if (weights) {
        float total = SUM(c, n, weights[c] * (part * p[c] + share)) * scale;
        COLUMNS(c, n) d[c] = g * (d[c] * total - weights[c] * (part * p[c] + share));
    } else {
        float total = SUM(c, n, part * p[c] + share) * scale;
        COLUMNS(c, n) d[c] = g * (d[c] * total - (part * p[c] + share));
    }
} END
