// Sums over a block of threads, in a fixed order.
#pragma once

// The sums over a block of each of a thread's numbers, for each of its threads.
template <class C, int N> FUNCTION void block_sums(C (&numbers)[N]) {
    __shared__ C sums[N][32];
    for (int n = 0; n < N; n++)
        for (int distance = 16; distance; distance >>= 1) numbers[n] += __shfl_down_sync(~0u, numbers[n], distance);
    __syncthreads();  // others may still read the sums before
    for (int n = 0; n < N; n++)
        if (threadIdx.x % 32 == 0) sums[n][threadIdx.x / 32] = numbers[n];
    __syncthreads();
    for (int n = 0; n < N; n++) {
        numbers[n] = 0;
        for (int w = 0; w < blockDim.x / 32; w++) numbers[n] += sums[n][w];
    }
}
