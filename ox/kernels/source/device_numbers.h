// Numbers in the memory of a GPU, of four element types, which kernels compute in float (of double in double).
#pragma once
#include <cuda_fp16.h>

constexpr int FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2, FLOAT64 = 3;

FUNCTION float from_half(unsigned short bits) { return __half2float(__ushort_as_half(bits)); }
FUNCTION unsigned short to_half(float x) { return __half_as_ushort(__float2half_rn(x)); }

template <class C> FUNCTION C load_number(long long address, int kind, long long i) {
    if (kind == FLOAT32) return (C)((const float*)address)[i];
    if (kind == FLOAT16) return (C)from_half(((const unsigned short*)address)[i]);
    if (kind == BFLOAT16) return (C)from_bfloat16(((const unsigned short*)address)[i]);
    return (C)((const double*)address)[i];
}

template <class C> FUNCTION void store_number(long long address, int kind, long long i, C value) {
    if (kind == FLOAT32) ((float*)address)[i] = (float)value;
    else if (kind == FLOAT16) ((unsigned short*)address)[i] = to_half((float)value);
    else if (kind == BFLOAT16) ((unsigned short*)address)[i] = to_bfloat16((float)value);
    else ((double*)address)[i] = (double)value;
}

// Numbers that lie together, and are read and written at once.
template <class T, int N> struct alignas(sizeof(T) * N) Vector {
    T at[N];
};

// The elements of tensor blockIdx.x of a table, shared among the blocks of one column of the grid. The first dimension of a grid
// has room for 2^31 - 1 tensors, the second one for 65,535.
#define TENSOR_ELEMENTS(i, size) \
    for (long long i = blockIdx.y * (long long)blockDim.x + threadIdx.x; i < (size); i += (long long)gridDim.y * blockDim.x)
