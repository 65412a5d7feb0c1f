// Batch normalization of x [N, channels, inner] and its gradient. A block works on a part of a channel (blockIdx.x of
// gridDim.x parts, blockIdx.y the channel). Sums of a part, and those of the parts, are added in a fixed order.
#include "block_sums.h"
#include "device_numbers.h"

// The sum over a block, for each of its threads.
FUNCTION COMPUTED block_sum(COMPUTED part) {
    COMPUTED sums[] = {part};
    block_sums(sums);
    return sums[0];
}

// The elements of a channel: which belong to a part, and where they lie.
struct Channel {
    long long channels, inner, number, count;
};

FUNCTION long long first_of(const Channel& channel, int part) {
    const long long first = part * ((channel.count + gridDim.x - 1) / gridDim.x);
    return first < channel.count ? first : channel.count;
}

FUNCTION long long size_of(const Channel& channel, int part) { return first_of(channel, part + 1) - first_of(channel, part); }

FUNCTION long long place(const Channel& channel, long long k) { return (k / channel.inner * channel.channels + channel.number) * channel.inner + k % channel.inner; }

#define CHANNEL Channel{channels, inner, blockIdx.y, images * inner}
#define EACH_OF_PART(k) for (long long k = first_of(channel, blockIdx.x) + threadIdx.x; k < first_of(channel, blockIdx.x + 1); k += blockDim.x)

// Mean and mean square distance from it, of a channel; `parts` has those of each part, the second one as a sum.
struct Statistics {
    COMPUTED mean, variance;
};

FUNCTION Statistics combined(const Channel& channel, const COMPUTED* parts) {
    COMPUTED mean = 0, distance = 0;
    for (int p = 0; p < gridDim.x; p++) mean += parts[2 * p] * (COMPUTED)size_of(channel, p);
    mean /= (COMPUTED)channel.count;
    for (int p = 0; p < gridDim.x; p++) {
        const COMPUTED from_mean = parts[2 * p] - mean;
        distance += parts[2 * p + 1] + from_mean * from_mean * (COMPUTED)size_of(channel, p);
    }
    return {mean, distance / (COMPUTED)channel.count};
}

extern "C" __global__ void ox_device_batch_statistics(const NUMBER* RESTRICT x, COMPUTED* RESTRICT parts, long long images, long long channels, long long inner) {
    const Channel channel = CHANNEL;
    const long long size = size_of(channel, blockIdx.x);
    BlockedSum<COMPUTED> sum, squares;
    EACH_OF_PART(k) sum += LOAD(x[place(channel, k)]);
    const COMPUTED mean = size ? block_sum(sum.value()) / (COMPUTED)size : (COMPUTED)0;
    EACH_OF_PART(k) {
        const COMPUTED distance = LOAD(x[place(channel, k)]) - mean;
        squares += distance * distance;
    }
    const COMPUTED distances = block_sum(squares.value());
    if (threadIdx.x == 0) {
        COMPUTED* own = parts + 2 * (channel.number * gridDim.x + blockIdx.x);
        own[0] = mean;
        own[1] = distances;
    }
}

// By the statistics of the parts, or without them (nullptr) by the given mean and variance. scale and bias are of one
// type, the statistics and the running ones of another.
extern "C" __global__ void ox_device_batch_normalize(const NUMBER* RESTRICT x, NUMBER* RESTRICT y, const COMPUTED* RESTRICT parts, long long scale, long long bias, long long scale_kind, long long mean, long long variance, long long running_mean, long long running_variance, long long kind, double epsilon, double momentum, long long images, long long channels, long long inner) {
    const Channel channel = CHANNEL;
    const long long c = channel.number;
    const Statistics given = {load_number<COMPUTED>(mean, (int)kind, c), load_number<COMPUTED>(variance, (int)kind, c)};
    const Statistics own = parts ? combined(channel, parts + 2 * c * gridDim.x) : given;
    const COMPUTED factor = load_number<COMPUTED>(scale, (int)scale_kind, c) / sqrt(own.variance + (COMPUTED)epsilon), added = load_number<COMPUTED>(bias, (int)scale_kind, c);
    EACH_OF_PART(k) y[place(channel, k)] = STORE((LOAD(x[place(channel, k)]) - own.mean) * factor + added);
    if (parts && threadIdx.x == 0 && blockIdx.x == 0) {
        const COMPUTED old = (COMPUTED)momentum, now = (COMPUTED)(1.0 - momentum);
        store_number<COMPUTED>(running_mean, (int)kind, c, old * given.mean + now * own.mean);
        store_number<COMPUTED>(running_variance, (int)kind, c, old * given.variance + now * own.variance);
    }
}

// Of each part: the sum of g, and that of g times the distance of x from its mean.
extern "C" __global__ void ox_device_batch_gradient_sums(const NUMBER* RESTRICT g, const NUMBER* RESTRICT x, const COMPUTED* RESTRICT parts, COMPUTED* RESTRICT sums, long long images, long long channels, long long inner) {
    const Channel channel = CHANNEL;
    const COMPUTED mean = combined(channel, parts + 2 * channel.number * gridDim.x).mean;
    BlockedSum<COMPUTED> plain_sum, weighted_sum;
    EACH_OF_PART(k) {
        const COMPUTED gradient = LOAD(g[place(channel, k)]);
        plain_sum += gradient;
        weighted_sum += gradient * (LOAD(x[place(channel, k)]) - mean);
    }
    const COMPUTED total = block_sum(plain_sum.value()), weighted = block_sum(weighted_sum.value());
    if (threadIdx.x == 0) {
        COMPUTED* own = sums + 2 * (channel.number * gridDim.x + blockIdx.x);
        own[0] = total;
        own[1] = weighted;
    }
}

extern "C" __global__ void ox_device_batch_norm_backward(const NUMBER* RESTRICT g, const NUMBER* RESTRICT x, const NUMBER* RESTRICT scale, const COMPUTED* RESTRICT parts, const COMPUTED* RESTRICT sums, NUMBER* RESTRICT result, NUMBER* RESTRICT to_scale, NUMBER* RESTRICT to_bias, double epsilon, long long images, long long channels, long long inner) {
    const Channel channel = CHANNEL;
    const long long c = channel.number;
    const Statistics own = combined(channel, parts + 2 * c * gridDim.x);
    COMPUTED total = 0, weighted = 0;
    for (int p = 0; p < gridDim.x; p++) {
        total += sums[2 * (c * gridDim.x + p)];
        weighted += sums[2 * (c * gridDim.x + p) + 1];
    }
    const COMPUTED inverse = (COMPUTED)1 / sqrt(own.variance + (COMPUTED)epsilon), count = (COMPUTED)channel.count;
    const COMPUTED factor = inverse * LOAD(scale[c]), taken = total / count, slope = inverse * inverse * weighted / count;
    EACH_OF_PART(k) {
        const long long at = place(channel, k);
        result[at] = STORE((LOAD(g[at]) - taken - (LOAD(x[at]) - own.mean) * slope) * factor);
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        to_scale[c] = STORE(weighted * inverse);
        to_bias[c] = STORE(total);
    }
}

// Running statistics moved by `part` towards those of a batch, of which the variance counts `correction` times.
EACH(ox_device_running_statistics, c, channels, const NUMBER* RESTRICT running_mean, const NUMBER* RESTRICT running_variance, const NUMBER* RESTRICT mean, const NUMBER* RESTRICT variance, NUMBER* RESTRICT moved_mean, NUMBER* RESTRICT moved_variance, double part, double correction) {
    const COMPUTED m = LOAD(running_mean[c]), v = LOAD(running_variance[c]);
    moved_mean[c] = STORE((LOAD(mean[c]) - m) * (COMPUTED)part + m);
    moved_variance[c] = STORE((LOAD(variance[c]) * (COMPUTED)correction - v) * (COMPUTED)part + v);
} END
