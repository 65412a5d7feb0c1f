// The best numbers of rows, the best first and of equal ones that of the lowest column; NaN is above all others.
#include "block_sums.h"
#include "device_numbers.h"

constexpr int THREADS = 256;  // of a block; ox/devices/gpu/top_k.py has it, too
constexpr int CANDIDATES = 1024;

// A number with its column: the better, the larger. None is 0.
FUNCTION unsigned long long ranked(float x, long long column) {
    unsigned bits = __float_as_uint(x);
    if (bits << 1 == 0) bits = 0;  // -0 equals 0; by its bits, because comparisons flush subnormal numbers
    bits = x != x ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (unsigned long long)bits << 32 | (0xffffffffu - (unsigned)column);
}

// What `ranked` came from: the bits of the number, above its column. Of NaN it is one of them.
FUNCTION unsigned long long unranked(unsigned long long key) {
    unsigned bits = (unsigned)(key >> 32);
    bits = bits >> 31 ? bits & 0x7fffffffu : ~bits;
    return (unsigned long long)bits << 32 | (0xffffffffu - (unsigned)key);
}

// A block finds the `k` best of a row of `width`, `k` at most THREADS and `width`; `best` [rows, k + 1] has after them,
// where it is asked for, the sum of exp(x - the largest x), of double.
extern "C" __global__ void ox_device_best(const NUMBER* RESTRICT numbers, unsigned long long* RESTRICT best, long long width, long long k, long long sums) {
    __shared__ unsigned long long keys[THREADS];
    __shared__ unsigned long long candidates[CANDIDATES];
    __shared__ unsigned long long bound;
    __shared__ int count;
    const int t = threadIdx.x;
    const NUMBER* row = numbers + blockIdx.x * width;
    best += blockIdx.x * (k + 1);

    // The k-th largest of what each thread has met: there are k numbers from it on, and seldom many more.
    unsigned long long own = 0;
    for (long long c = t; c < width; c += THREADS) {
        const unsigned long long key = ranked((float)LOAD(row[c]), c);
        own = key > own ? key : own;
    }
    keys[t] = own;
    if (t == 0) count = 0;
    __syncthreads();
    int above = 0;
    for (int i = 0; i < THREADS; i++) above += keys[i] > own;
    if (above == k - 1 && own) bound = own;
    __syncthreads();
    for (long long c = t; c < width; c += THREADS) {
        const unsigned long long key = ranked((float)LOAD(row[c]), c);
        if (key < bound) continue;
        const int place = atomicAdd(&count, 1);
        if (place < CANDIDATES) candidates[place] = key;
    }
    __syncthreads();
    if (count <= CANDIDATES) {
        for (int i = t; i < count; i += THREADS) {
            int rank = 0;
            for (int j = 0; j < count; j++) rank += candidates[j] > candidates[i];
            if (rank < k) best[rank] = unranked(candidates[i]);
        }
    } else {  // they lie in few threads: one after the other
        unsigned long long last = 0;
        for (long long place = 0; place < k; place++) {
            unsigned long long next = 0;
            for (long long c = t; c < width; c += THREADS) {
                const unsigned long long key = ranked((float)LOAD(row[c]), c);
                if ((place == 0 || key < last) && key > next) next = key;
            }
            __syncthreads();
            keys[t] = next;
            __syncthreads();
            for (int i = 0; i < THREADS; i++) next = keys[i] > next ? keys[i] : next;
            if (t == 0) best[place] = unranked(next);
            last = next;
        }
    }
    if (!sums) return;
    __syncthreads();
    keys[t] = own;
    __syncthreads();
    for (int i = 0; i < THREADS; i++) own = keys[i] > own ? keys[i] : own;
    const double most = (double)__uint_as_float((unsigned)(unranked(own) >> 32));
    double sum[1] = {0.0};
    for (long long c = t; c < width; c += THREADS) sum[0] += exp((double)LOAD(row[c]) - most);
    block_sums(sum);
    if (t == 0) best[k] = __double_as_longlong(sum[0]);
}

// A block sets the numbers of a row of `width` whose bits in `allowed` [rows, words] are 0 to minus infinity.
extern "C" __global__ void ox_device_forbid(NUMBER* RESTRICT numbers, const unsigned* RESTRICT allowed, long long width, long long words) {
    NUMBER* row = numbers + blockIdx.x * width;
    allowed += blockIdx.x * words;
    for (long long c = threadIdx.x; c < width; c += blockDim.x)
        if (!(allowed[c >> 5] >> (c & 31) & 1)) row[c] = STORE(__uint_as_float(0xff800000u));
}
