// Elements by place, of ELEMENT (a type of their size), and sums by place, of NUMBER. Places are of INDEX; what is outside
// is reported, and read as 0.
#include "device_checks.h"
#include "device_numbers.h"
#include "division.h"

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

// The same of sorted places (device_sort.cu): a run of equal places is added in parts of `length` rows, from its first row,
// and then the parts, in order. A thread does VECTOR of the `width` columns of a part.
struct Sorted {
    const long long* keys;
    long long count, bits;
    __device__ __forceinline__ long long place(long long i) const { return keys[i] >> bits; }
    __device__ __forceinline__ long long row(long long i) const { return keys[i] & ((1ll << bits) - 1); }
};

// The first place that is not less.
FUNCTION long long first_of_run(const Sorted& sorted, long long place) {
    long long low = 0, high = sorted.count;
    while (low < high) {
        const long long middle = (low + high) / 2;
        if (sorted.place(middle) < place) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The end of the part that begins at `first`. Most runs are short: steps grow from 1.
FUNCTION long long end_of_part(const Sorted& sorted, long long first, long long length) {
    const long long most = first + length < sorted.count ? first + length : sorted.count, place = sorted.place(first);
    long long last = first, step = 1;
    auto reaches = [&] { return last + step < most && sorted.place(last + step) == place; };
    for (; reaches(); step *= 2) last += step;
    for (; step; step /= 2)
        if (reaches()) last += step;
    return last + 1;
}

using Numbers = Vector<NUMBER, VECTOR>;
using Sums = Vector<COMPUTED, VECTOR>;

// The rows of a part. Where it ends is known before, so that several loads are under way at once.
FUNCTION void add_part(Sums& sums, const Sorted& sorted, const Numbers* RESTRICT g, long long first, long long end, long long width, long long c) {
#pragma unroll 8
    for (long long i = first; i < end; i++) {
        const Numbers row = g[sorted.row(i) * width + c];
        for (int v = 0; v < VECTOR; v++) sums.at[v] += LOAD(row.at[v]);
    }
}

// All parts but the first ones of runs. Of these no two begin within `length` places from a multiple of it, by which they are
// numbered.
EACH(ox_device_segment_parts, t, threads, const Numbers* RESTRICT g, const long long* RESTRICT keys, long long count, long long bits, long long length, Sums* RESTRICT parts, long long width, long long n) {
    const Sorted sorted = {keys, count, bits};
    const long long part = quotient(t, width), begin = part * length, place = sorted.place(begin);
    if (begin == 0 || place >= n || sorted.place(begin - 1) != place) continue;
    const long long run = first_of_run(sorted, place), first = run + quotient(begin - run + length - 1, length) * length;
    if (first >= count || sorted.place(first) != place) continue;
    Sums sums = {};
    add_part(sums, sorted, g, first, end_of_part(sorted, first, length), width, t - part * width);
    parts[t] = sums;
} END

// The first part of each run, and the sums of its others.
EACH(ox_device_segment_add, t, threads, const Numbers* RESTRICT g, const long long* RESTRICT keys, long long count, long long bits, long long length, const Sums* RESTRICT parts, Numbers* RESTRICT result, long long width, long long n) {
    const Sorted sorted = {keys, count, bits};
    const long long first = quotient(t, width), c = t - first * width, place = sorted.place(first);
    if (place >= n || (first > 0 && sorted.place(first - 1) == place)) continue;
    const Numbers old = result[place * width + c];
    Sums sums;
    for (int v = 0; v < VECTOR; v++) sums.at[v] = LOAD(old.at[v]);
    const long long end = end_of_part(sorted, first, length);
    add_part(sums, sorted, g, first, end, width, c);
    if (end == first + length) {
        const Sums* RESTRICT rest = parts + (quotient(first, length) + 1) * width + c;
        const long long others = quotient(end_of_part(sorted, first, count) - first - 1, length);
#pragma unroll 8
        for (long long k = 0; k < others; k++)
            for (int v = 0; v < VECTOR; v++) sums.at[v] += rest[k * width].at[v];
    }
    Numbers sum;
    for (int v = 0; v < VECTOR; v++) sum.at[v] = STORE(sums.at[v]);
    result[place * width + c] = sum;
} END
