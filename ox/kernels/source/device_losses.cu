// Cross entropies of rows of scores, which are NUMBER, and their classes, with a weight for each class (or nullptr) and
// label smoothing. A class that is not there is reported, and costs NaN. What they give and take of losses is float.
#include "device_numbers.h"
#include "block_rows.h"
#include "device_checks.h"

// Logarithms up to which rounding moves exp(x - log) by less than 2e-6 of it.
constexpr float PRECISE_LOG = 64.0f;

// `spreads` (or nullptr) are the means over all classes of what each would cost.
ROWS(ox_device_cross_entropy, r, rows, n, const NUMBER* RESTRICT scores, const long long* RESTRICT targets, const NUMBER* RESTRICT weights, float* RESTRICT losses, float* RESTRICT logs, float* RESTRICT spreads, long long ignored, long long* RESTRICT record, long long check, long long n) {
    const NUMBER* x = scores + r * n;
    const long long target = targets[r];
    const bool counts = target != ignored, known = target >= 0 && target < n;
    float most = MAX(c, n, LOAD(x[c]));
    float log = logf(SUM(c, n, expf(LOAD(x[c]) - most)));
    const float cost = known ? most - LOAD(x[target]) + log : NAN;
    if (counts && !known) report(record, check, target);
    losses[r] = !counts ? 0.0f : weights && known ? LOAD(weights[target]) * cost : cost;
    logs[r] = most == INFINITY || most == -INFINITY ? most : most + log;
    if (!spreads) continue;
    float sum = SUM(c, n, (weights ? LOAD(weights[c]) : 1.0f) * (most - LOAD(x[c]) + log));
    spreads[r] = counts ? sum / n : 0.0f;
} END

// The gradient of the scores, by the logarithms `logs` of the sums of exp(scores), from those of the losses and of the
// spreads (each may be nullptr), times `keep` and `rest`. `step` is 1 where each row has gradients of its own, 0 where one
// is for all.
ROWS(ox_device_cross_entropy_backward, r, rows, n, const NUMBER* RESTRICT scores, const long long* RESTRICT targets, const float* RESTRICT logs, const NUMBER* RESTRICT weights, const float* RESTRICT from_losses, const float* RESTRICT from_spreads, NUMBER* RESTRICT result, float keep, float rest, long long ignored, long long step, long long n) {
    const NUMBER* x = scores + r * n;
    NUMBER* d = result + r * n;
    const long long target = targets[r];
    if (target == ignored) {
        COLUMNS(c, n) d[c] = STORE(0.0f);
        continue;
    }
    float shift = logs[r], scale = 1.0f;
    if (!(shift > -PRECISE_LOG && shift < PRECISE_LOG)) {
        shift = MAX(c, n, LOAD(x[c]));
        scale = 1.0f / SUM(c, n, expf(LOAD(x[c]) - shift));
    }
    float direct = from_losses ? keep * from_losses[r * step] : 0.0f;
    if (weights && target >= 0 && target < n) direct *= LOAD(weights[target]);
    if (!from_spreads) {
        COLUMNS(c, n) d[c] = STORE(direct * (expf(LOAD(x[c]) - shift) * scale - (c == target ? 1.0f : 0.0f)));
        continue;
    }
    const float spread = rest * from_spreads[r * step] / n;
    float total = (float)n;
    if (weights) total = SUM(c, n, LOAD(weights[c]));
    COLUMNS(c, n) {
        const float share = expf(LOAD(x[c]) - shift) * scale;
        d[c] = STORE(direct * (share - (c == target ? 1.0f : 0.0f)) + spread * (total * share - (weights ? LOAD(weights[c]) : 1.0f)));
    }
} END

// sums: of the losses and spreads whose targets count, and of the weights of these.
FUNCTION void store_mean(const double* sums, bool spread, float smoothing, float* mean, float* counted) {
    const float count = (float)sums[2];
    *counted = count;
    *mean = (float)sums[0] / count;
    if (spread) *mean = (1.0f - smoothing) * *mean + smoothing * ((float)sums[1] / count);  // each part is NaN by itself
}

// The mean of losses and, with label smoothing, of spreads (or nullptr): by a single block, or the sums of each block.
extern "C" __global__ void ox_device_loss_sums(long long rows, const float* RESTRICT losses, const float* RESTRICT spreads, const long long* RESTRICT targets, const NUMBER* RESTRICT weights, double* RESTRICT sums, float* RESTRICT mean, float* RESTRICT counted, float smoothing, long long ignored, long long classes) {
    double own[] = {0.0, 0.0, 0.0};
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < rows; k += (long long)gridDim.x * blockDim.x) {
        const long long target = targets[k];
        own[0] += losses[k];
        if (spreads) own[1] += spreads[k];
        if (target != ignored) own[2] += !weights ? 1.0f : target >= 0 && target < classes ? LOAD(weights[target]) : 0.0f;
    }
    block_sums(own);
    if (threadIdx.x) return;
    if (gridDim.x == 1) store_mean(own, spreads, smoothing, mean, counted);
    else for (int k = 0; k < 3; k++) sums[k * gridDim.x + blockIdx.x] = own[k];
}

// The mean by the sums of several blocks.
extern "C" __global__ void ox_device_mean_loss(long long blocks, const double* RESTRICT sums, long long spread, float smoothing, float* RESTRICT mean, float* RESTRICT counted) {
    double own[3];
    for (int k = 0; k < 3; k++) own[k] = ox_sum_of(sums + k * blocks, blocks);
    if (threadIdx.x == 0) store_mean(own, spread, smoothing, mean, counted);
}
