"""Kernels whose threads meet, at a barrier of the block and in a warp; on host_cuda they are fibers."""

from __future__ import annotations

import numpy as np
import pytest

from ox.devices.gpu.cupy_device import cupy

pytestmark = pytest.mark.gpu

SUM_OF_A_BLOCK = r"""
extern "C" __global__ void sum(const float* x, float* y, int n) {
    __shared__ float part[64];
    extern __shared__ float scale[];
    int t = threadIdx.x;
    if (t == 0) scale[0] = 2;
    part[t] = t < n ? x[blockIdx.x * n + t] : 0;
    __syncthreads();
    for (int distance = 32; distance; distance >>= 1) {
        if (t < distance) part[t] += part[t + distance];
        __syncthreads();
    }
    if (!t) y[blockIdx.x] = part[0] * scale[0];
}
"""
SHUFFLES = r"""
extern "C" __global__ void shuffle(int* y) {
    int t = threadIdx.x, sum = t;
    for (int distance = 16; distance; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
    y[t] = sum;
    y[64 + t] = __shfl_down_sync(~0u, t, 3);
    y[128 + t] = __shfl_up_sync(~0u, t, 3);
    y[192 + t] = __popc(__ballot_sync(~0u, t % 3 == 0));
    atomicAdd(&y[256], t);
}
"""


def test_a_block() -> None:
    xp = cupy()
    x, y = xp.arange(150, dtype=np.float32).reshape(3, 50), xp.zeros(3, np.float32)
    xp.RawKernel(SUM_OF_A_BLOCK, "sum")((3,), (64,), (x, y, np.int32(50)), shared_mem=4)
    assert y.tolist() == (2 * x.get().sum(1)).tolist()


def test_warps() -> None:
    xp = cupy()
    y = xp.zeros(257, np.int32)
    xp.RawKernel(SHUFFLES, "shuffle")((1,), (64,), (y,))
    lanes, warps = np.arange(64) % 32, np.arange(64) // 32
    found = y.get()
    assert found[:64].tolist() == [sum(range(32)) if warp == 0 else sum(range(32, 64)) for warp in warps]
    assert found[64:128].tolist() == [t + 3 if lane + 3 < 32 else t for t, lane in enumerate(lanes)]
    assert found[128:192].tolist() == [t - 3 if lane >= 3 else t for t, lane in enumerate(lanes)]
    assert found[192:256].tolist() == [11] * 64  # multiples of 3 in each warp
    assert found[256] == sum(range(64))
