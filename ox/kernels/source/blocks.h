// Kernels over many tensors at once. A table has a line for each tensor: addresses, then its number of elements; a plan has
// a line for each block of at most BLOCK elements: the number of its tensor, and its first element.
#pragma once

#ifdef __CUDACC_RTC__
constexpr long long BLOCK = 1024;  // what a warp does
#else
constexpr long long BLOCK = 16384;
#endif
constexpr long long PIECE = 2048;  // elements whose sum is made in float

FUNCTION long long block_end(long long begin, long long size) { return begin + BLOCK < size ? begin + BLOCK : size; }

// Rows of a block of which each has so many elements.
FUNCTION long long block_rows(long long columns) { return columns < BLOCK ? BLOCK / columns : 1; }
