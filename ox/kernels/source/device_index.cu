// Elements by place, of ELEMENT (a type of their size), and sums by place, of NUMBER. Places are of INDEX; what is outside
// is reported, and read as 0.
#include "device_checks.h"
#include "device_numbers.h"

// Of numbers that are not negative. Processors divide 32 bits, and 64 bits by a loop.
FUNCTION long long quotient(long long a, long long b) { return (a | b) >> 32 ? a / b : (unsigned)a / (unsigned)b; }

// data [outer, n, inner] at places [k] gives [outer, k, inner].
EACH(ox_device_gather, i, count, const ELEMENT* RESTRICT data, const INDEX* RESTRICT indices, ELEMENT* RESTRICT output, long long k, long long n, long long inner, long long* RESTRICT record, long long check) {
    const long long line = quotient(i, inner), outer = quotient(line, k);
    const long long index = indices[line - outer * k], at = index < 0 ? index + n : index;
    const bool inside = at >= 0 && at < n;
    if (!inside) report(record, check, index);
    const ELEMENT nothing = {};
    output[i] = inside ? data[(outer * n + at) * inner + i - line * inner] : nothing;
} END

EACH(ox_device_check_range, i, count, const INDEX* RESTRICT values, long long low, long long high, long long ignored, long long* RESTRICT record, long long check) {
    const long long value = values[i];
    if ((value < low || value > high) && value != ignored) report(record, check, value);
} END

// Whether an index, which may count from the end, is this place.
FUNCTION bool stands_for(long long index, long long place, long long n) { return index == place || index == place - n; }

// g [k, width] is added by places to `sums`. A block does the rows of one place, in their order: that of the first of them.
extern "C" __global__ void ox_device_index_add(long long k, const NUMBER* RESTRICT g, const INDEX* RESTRICT indices, NUMBER* RESTRICT sums, long long width, long long n) {
    for (long long i = blockIdx.x; i < k; i += gridDim.x) {
        const long long index = indices[i], at = index < 0 ? index + n : index;
        int earlier = at < 0 || at >= n;
        for (long long j = threadIdx.x; j < i && !earlier; j += blockDim.x) earlier = stands_for(indices[j], at, n);
        if (__syncthreads_or(earlier)) continue;
        for (long long c = threadIdx.x; c < width; c += blockDim.x) {
            COMPUTED sum = LOAD(sums[at * width + c]);
            for (long long j = i; j < k; j++)
                if (stands_for(indices[j], at, n)) sum += LOAD(g[j * width + c]);
            sums[at * width + c] = STORE(sum);
        }
    }
}

// The same of sorted places (device_sort.cu): a block does a run of equal places.
extern "C" __global__ void ox_device_segment_add(long long k, const NUMBER* RESTRICT g, const long long* RESTRICT keys, long long bits, NUMBER* RESTRICT sums, long long width, long long n) {
    const long long position = (1ll << bits) - 1;
    for (long long i = blockIdx.x; i < k; i += gridDim.x) {
        const long long at = keys[i] >> bits;
        if ((i > 0 && keys[i - 1] >> bits == at) || at >= n) continue;
        for (long long c = threadIdx.x; c < width; c += blockDim.x) {
            COMPUTED sum = LOAD(sums[at * width + c]);
            for (long long j = i; j < k && keys[j] >> bits == at; j++) sum += LOAD(g[(keys[j] & position) * width + c]);
            sums[at * width + c] = STORE(sum);
        }
    }
}
