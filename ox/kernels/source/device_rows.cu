// Rows of NUMBER, which LOAD and STORE convert from and to float: softmax with and without masks, log-softmax, their
// gradients, one row many times. A row is a warp's or a block's.
#include "device_numbers.h"
#include "block_rows.h"

ROWS(ox_device_softmax, r, rows, n, const NUMBER* RESTRICT input, NUMBER* RESTRICT output, long long n) {
    const NUMBER* x = input + r * n;
    float most = MAX(c, n, LOAD(x[c]));
    float scale = 1.0f / SUM(c, n, expf(LOAD(x[c]) - most));
    COLUMNS(c, n) output[r * n + c] = STORE(expf(LOAD(x[c]) - most) * scale);
} END

// Softmax of scores + bias (nullptr for none), where `allowed` (bytes, or nullptr) lets them; else 0. Where nothing is
// allowed, all is 0. A score that is not allowed counts as `least`. Scores are [.., matrices, height, n]; bias and allowed
// have steps b0 to b3 and a0 to a3 along these dimensions.
ROWS(ox_device_masked_softmax, r, rows, n, const NUMBER* RESTRICT input, const NUMBER* RESTRICT bias, const unsigned char* RESTRICT allowed, NUMBER* RESTRICT output, float least, long long b0, long long b1, long long b2, long long b3, long long a0, long long a1, long long a2, long long a3, long long matrices, long long height, long long n) {
    const NUMBER* x = input + r * n;
    const long long first = r / height / matrices, second = r / height % matrices, third = r % height;
    const NUMBER* b = bias ? bias + first * b0 + second * b1 + third * b2 : nullptr;
    const unsigned char* a = allowed ? allowed + first * a0 + second * a1 + third * a2 : nullptr;
    auto score = [&](long long c) {
        if (a && !a[c * a3]) return least;
        return b ? LOAD(x[c]) + LOAD(b[c * b3]) : LOAD(x[c]);
    };
    float most = MAX(c, n, score(c));
    float scale = 1.0f / SUM(c, n, expf(score(c) - most));
    COLUMNS(c, n) output[r * n + c] = STORE(a && !a[c * a3] ? 0.0f : expf(score(c) - most) * scale);
} END

ROWS(ox_device_repeat_row, r, rows, n, const NUMBER* RESTRICT input, NUMBER* RESTRICT output, long long n) {
    COLUMNS(c, n) output[r * n + c] = input[c];
} END

ROWS(ox_device_softmax_backward, r, rows, n, const NUMBER* RESTRICT gradient, const NUMBER* RESTRICT output, NUMBER* RESTRICT result, long long n) {
    const NUMBER *g = gradient + r * n, *y = output + r * n;
    float dot = SUM(c, n, LOAD(g[c]) * LOAD(y[c]));
    COLUMNS(c, n) result[r * n + c] = STORE(LOAD(y[c]) * (LOAD(g[c]) - dot));
} END

ROWS(ox_device_log_softmax, r, rows, n, const NUMBER* RESTRICT input, NUMBER* RESTRICT output, long long n) {
    const NUMBER* x = input + r * n;
    float most = MAX(c, n, LOAD(x[c]));
    float log = logf(SUM(c, n, expf(LOAD(x[c]) - most)));
    COLUMNS(c, n) output[r * n + c] = STORE(LOAD(x[c]) - most - log);
} END

ROWS(ox_device_log_softmax_backward, r, rows, n, const NUMBER* RESTRICT gradient, const NUMBER* RESTRICT output, NUMBER* RESTRICT result, long long n) {
    const NUMBER *g = gradient + r * n, *y = output + r * n;
    float sum = SUM(c, n, LOAD(g[c]));
    COLUMNS(c, n) result[r * n + c] = STORE(LOAD(g[c]) - expf(LOAD(y[c])) * sum);
} END
