// Batch normalization of x [N, channels, inner * VECTOR] and its gradient. A block works on a part of a channel (blockIdx.x
// of gridDim.x parts, blockIdx.y the channel). Sums of a part, and those of the parts, are added in a fixed order.
#include "block_sums.h"
#include "device_numbers.h"
#include "division.h"

using Numbers = Vector<NUMBER, VECTOR>;

// The sum over a block, for each of its threads.
FUNCTION COMPUTED block_sum(COMPUTED part) {
    COMPUTED sums[] = {part};
    block_sums(sums);
    return sums[0];
}

// The vectors of a channel: `inner` of each image, `share` of each part.
struct Channel {
    long long channels, inner, number, count, share;
};

FUNCTION long long first_of(const Channel& channel, int part) {
    const long long first = part * channel.share;
    return first < channel.count ? first : channel.count;
}

// The numbers of a part.
FUNCTION COMPUTED size_of(const Channel& channel, int part) { return (COMPUTED)((first_of(channel, part + 1) - first_of(channel, part)) * VECTOR); }

#define CHANNEL Channel{channels, inner, blockIdx.y, images * inner, quotient(images * inner + gridDim.x - 1, gridDim.x)}
#define NUMBERS(v) for (int v = 0; v < VECTOR; v++)

// Calls work(where) for the vectors of the block's part that are the thread's. It divides before the first of them only.
template <class F> FUNCTION void each_vector(const Channel& channel, const F& work) {
    const long long inner = channel.inner, end = first_of(channel, blockIdx.x + 1), images = quotient(blockDim.x, inner), rest = blockDim.x - images * inner;
    long long k = first_of(channel, blockIdx.x) + threadIdx.x;
    const long long image = quotient(k, inner);
    long long column = k - image * inner, at = (image * channel.channels + channel.number) * inner + column;
    for (; k < end; k += blockDim.x) {
        work(at);
        at += images * channel.channels * inner + rest;
        column += rest;
        if (column >= inner) {  // of the next image
            column -= inner;
            at += (channel.channels - 1) * inner;
        }
    }
}

// The sum of work(part) over all parts, which the lanes of each warp share.
template <class F> FUNCTION COMPUTED sum_over_parts(const F& work) {
    COMPUTED sum = 0;
    for (int p = threadIdx.x & 31; p < gridDim.x; p += 32) sum += work(p);
    for (int distance = 16; distance; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

// Mean and mean square distance from it, of a channel; `parts` has those of each part, the second one as a sum.
struct Statistics {
    COMPUTED mean, variance;
};

FUNCTION Statistics combined(const Channel& channel, const COMPUTED* parts) {
    const COMPUTED count = (COMPUTED)(channel.count * VECTOR);
    const COMPUTED mean = sum_over_parts([&](int p) { return parts[2 * p] * size_of(channel, p); }) / count;
    const COMPUTED distance = sum_over_parts([&](int p) {
        const COMPUTED from_mean = parts[2 * p] - mean;
        return parts[2 * p + 1] + from_mean * from_mean * size_of(channel, p);
    });
    return {mean, distance / count};
}

extern "C" __global__ void ox_device_batch_statistics(const Numbers* RESTRICT x, COMPUTED* RESTRICT parts, long long images, long long channels, long long inner) {
    const Channel channel = CHANNEL;
    const COMPUTED size = size_of(channel, blockIdx.x);
    BlockedSum<COMPUTED> sum, squares;
    each_vector(channel, [&](long long at) {
        const Numbers own = x[at];
        NUMBERS(v) sum += LOAD(own.at[v]);
    });
    const COMPUTED mean = size ? block_sum(sum.value()) / size : (COMPUTED)0;
    each_vector(channel, [&](long long at) {
        const Numbers own = x[at];
        NUMBERS(v) {
            const COMPUTED distance = LOAD(own.at[v]) - mean;
            squares += distance * distance;
        }
    });
    const COMPUTED distances = block_sum(squares.value());
    if (threadIdx.x == 0) {
        COMPUTED* own = parts + 2 * (channel.number * gridDim.x + blockIdx.x);
        own[0] = mean;
        own[1] = distances;
    }
}

// By the statistics of the parts, or without them (nullptr) by the given mean and variance. scale and bias are of one
// type, the statistics and the running ones of another.
extern "C" __global__ void ox_device_batch_normalize(const Numbers* RESTRICT x, Numbers* RESTRICT y, const COMPUTED* RESTRICT parts, long long scale, long long bias, long long scale_kind, long long mean, long long variance, long long running_mean, long long running_variance, long long kind, double epsilon, double momentum, long long images, long long channels, long long inner) {
    const Channel channel = CHANNEL;
    const long long c = channel.number;
    const Statistics given = {load_number<COMPUTED>(mean, (int)kind, c), load_number<COMPUTED>(variance, (int)kind, c)};
    const Statistics own = parts ? combined(channel, parts + 2 * c * gridDim.x) : given;
    const COMPUTED factor = load_number<COMPUTED>(scale, (int)scale_kind, c) / sqrt(own.variance + (COMPUTED)epsilon), added = load_number<COMPUTED>(bias, (int)scale_kind, c);
    each_vector(channel, [&](long long at) {
        Numbers numbers = x[at];
        NUMBERS(v) numbers.at[v] = STORE((LOAD(numbers.at[v]) - own.mean) * factor + added);
        y[at] = numbers;
    });
    if (parts && threadIdx.x == 0 && blockIdx.x == 0) {
        const COMPUTED old = (COMPUTED)momentum, now = (COMPUTED)(1.0 - momentum);
        store_number<COMPUTED>(running_mean, (int)kind, c, old * given.mean + now * own.mean);
        store_number<COMPUTED>(running_variance, (int)kind, c, old * given.variance + now * own.variance);
    }
}

// Of each part: the sum of g, and that of g times the distance of x from its mean.
extern "C" __global__ void ox_device_batch_gradient_sums(const Numbers* RESTRICT g, const Numbers* RESTRICT x, const COMPUTED* RESTRICT parts, COMPUTED* RESTRICT sums, long long images, long long channels, long long inner) {
    const Channel channel = CHANNEL;
    const COMPUTED mean = combined(channel, parts + 2 * channel.number * gridDim.x).mean;
    BlockedSum<COMPUTED> plain_sum, weighted_sum;
    each_vector(channel, [&](long long at) {
        const Numbers gradients = g[at], own = x[at];
        NUMBERS(v) {
            const COMPUTED gradient = LOAD(gradients.at[v]);
            plain_sum += gradient;
            weighted_sum += gradient * (LOAD(own.at[v]) - mean);
        }
    });
    const COMPUTED total = block_sum(plain_sum.value()), weighted = block_sum(weighted_sum.value());
    if (threadIdx.x == 0) {
        COMPUTED* own = sums + 2 * (channel.number * gridDim.x + blockIdx.x);
        own[0] = total;
        own[1] = weighted;
    }
}

extern "C" __global__ void ox_device_batch_norm_backward(const Numbers* RESTRICT g, const Numbers* RESTRICT x, const NUMBER* RESTRICT scale, const COMPUTED* RESTRICT parts, const COMPUTED* RESTRICT sums, Numbers* RESTRICT result, NUMBER* RESTRICT to_scale, NUMBER* RESTRICT to_bias, double epsilon, long long images, long long channels, long long inner) {
    const Channel channel = CHANNEL;
    const long long c = channel.number;
    const Statistics own = combined(channel, parts + 2 * c * gridDim.x);
    const COMPUTED* of_parts = sums + 2 * c * gridDim.x;
    const COMPUTED total = sum_over_parts([&](int p) { return of_parts[2 * p]; }), weighted = sum_over_parts([&](int p) { return of_parts[2 * p + 1]; });
    const COMPUTED inverse = (COMPUTED)1 / sqrt(own.variance + (COMPUTED)epsilon), count = (COMPUTED)(channel.count * VECTOR);
    const COMPUTED factor = inverse * LOAD(scale[c]), mean_gradient = total / count, slope = inverse * inverse * weighted / count;
    each_vector(channel, [&](long long at) {
        const Numbers gradients = g[at];
        Numbers numbers = x[at];
        NUMBERS(v) numbers.at[v] = STORE((LOAD(gradients.at[v]) - mean_gradient - (LOAD(numbers.at[v]) - own.mean) * slope) * factor);
        result[at] = numbers;
    });
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
