// Kernels over many tensors at once. A table has a line for each tensor: addresses, then its number of elements; a plan has
// a line for each block of at most BLOCK elements: the number of its tensor, and its first element.
#pragma once

constexpr long long BLOCK = 16384;
constexpr long long PIECE = 2048;  // elements whose sum is made in float

FUNCTION long long block_end(long long begin, long long size) { return begin + BLOCK < size ? begin + BLOCK : size; }
