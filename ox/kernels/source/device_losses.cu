// Cross entropies of rows of float32 scores and their classes. A class that is not there is reported, and costs NaN.
#include "block_sums.h"
#include "device_checks.h"

ROWS(ox_device_cross_entropy, r, rows, n, const float* RESTRICT scores, const long long* RESTRICT targets, float* RESTRICT losses, float* RESTRICT logs, long long ignored, long long* RESTRICT record, long long check, long long n) {
    const float* x = scores + r * n;
    const long long target = targets[r];
    const bool known = target >= 0 && target < n;
    float most = MAX(c, n, x[c]);
    float log = logf(SUM(c, n, expf(x[c] - most)));
    if (target != ignored && !known) report(record, check, target);
    losses[r] = target == ignored ? 0.0f : known ? most - x[target] + log : NAN;
    logs[r] = most == INFINITY || most == -INFINITY ? most : most + log;
} END

// `step` is 1 where each loss has a gradient of its own, 0 where one is for all.
ROWS(ox_device_cross_entropy_backward, r, rows, n, const float* RESTRICT gradients, const float* RESTRICT scores, const long long* RESTRICT targets, float* RESTRICT result, long long ignored, long long step, long long n) {
    const float *x = scores + r * n, weight = gradients[r * step];
    const long long target = targets[r];
    if (target == ignored) {
        COLUMNS(c, n) result[r * n + c] = 0.0f;
        continue;
    }
    float most = MAX(c, n, x[c]);
    float scale = 1.0f / SUM(c, n, expf(x[c] - most));
    COLUMNS(c, n) result[r * n + c] = weight * (expf(x[c] - most) * scale - (c == target ? 1.0f : 0.0f));
} END

// The sum of the losses whose targets count, and how many these are: of each block; of a single one, the mean.
extern "C" __global__ void ox_device_loss_sums(long long rows, const float* RESTRICT losses, const long long* RESTRICT targets, double* RESTRICT sums, float* RESTRICT mean, float* RESTRICT counted, long long ignored) {
    double own[] = {0.0, 0.0};
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < rows; k += (long long)gridDim.x * blockDim.x) {
        own[0] += losses[k];
        own[1] += targets[k] != ignored;
    }
    block_sums(own);
    if (threadIdx.x) return;
    if (gridDim.x == 1) {
        *counted = (float)own[1];
        *mean = (float)own[0] / (float)own[1];
    } else {
        sums[blockIdx.x] = own[0];
        sums[gridDim.x + blockIdx.x] = own[1];
    }
}

// The mean by the sums of several blocks.
ROWS(ox_device_mean_loss, r, one, blocks, const double* RESTRICT sums, float* RESTRICT mean, float* RESTRICT counted, long long blocks) {
    const double sum = ox_sum_of(sums, blocks), count = ox_sum_of(sums + blocks, blocks);
    *counted = (float)count;
    *mean = (float)sum / (float)count;
} END
