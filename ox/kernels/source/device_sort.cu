// A bitonic sort (Batcher, "Sorting networks and their applications", 1968) of places in [0, n): no two keys are equal, so
// that the order is that of a stable sort, and the launches depend on the count alone.

constexpr int TILE = 2048;  // keys that a block holds; ox/devices/gpu/sort.py has the number, too

// Each place with its position in the lower bits; what is outside of [-n, n), and what fills up a power of two, as n.
EACH(ox_device_sort_keys, i, padded, const INDEX* RESTRICT places, long long* RESTRICT keys, long long count, long long n, long long bits) {
    const long long place = i < count ? (long long)places[i] : n, at = place < 0 ? place + n : place;
    keys[i] = (at < 0 || at > n ? n : at) << bits | i;
} END

FUNCTION void order(long long* keys, long long i, long long j, bool ascending) {
    const long long one = keys[i], other = keys[j];
    if ((one > other) == ascending) keys[i] = other, keys[j] = one;
}

// One step between keys that lie `stride` apart, in runs of `size`, which alternate between ascending and descending.
EACH(ox_device_sort_step, t, pairs, long long* RESTRICT keys, long long size, long long stride) {
    const long long i = 2 * t - (t & (stride - 1));
    order(keys, i, i + stride, (i & size) == 0);
} END

// The steps within a tile: of runs from `first` to `last`. A block does a tile.
extern "C" __global__ void ox_device_sort_tile(long long* RESTRICT keys, long long count, long long first, long long last) {
    __shared__ long long tile[TILE];
    for (long long begin = blockIdx.x * (long long)TILE; begin < count; begin += gridDim.x * (long long)TILE) {
        const int length = count - begin < TILE ? (int)(count - begin) : TILE;
        for (int i = threadIdx.x; i < length; i += blockDim.x) tile[i] = keys[begin + i];
        __syncthreads();
        for (long long size = first; size <= last; size *= 2) {
            for (int stride = (int)(size / 2 < length / 2 ? size / 2 : length / 2); stride > 0; stride /= 2) {
                for (int t = threadIdx.x; t < length / 2; t += blockDim.x) {
                    const int i = 2 * t - (t & (stride - 1));
                    order(tile, i, i + stride, ((begin + i) & size) == 0);
                }
                __syncthreads();
            }
        }
        for (int i = threadIdx.x; i < length; i += blockDim.x) keys[begin + i] = tile[i];
        __syncthreads();
    }
}
