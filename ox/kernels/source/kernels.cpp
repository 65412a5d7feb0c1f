// All kernels as one library for CPUs: g++ -O3 -march=native -fopenmp-simd -fno-math-errno -fno-trapping-math
#include "cpu.h"

#include "pointwise.cu"
#include "softmax.cu"
#include "normalization.cu"
#include "optimizer.cu"

#include "depthwise.h"
#include "attention.h"
#include "pooling.h"
#include "cpu_only.cpp"

extern "C" void ox_set_threads(long long count) { ox::pool().set_threads((int)count); }
extern "C" long long ox_threads() { return ox::pool().threads(); }
extern "C" long long ox_version() { return 1; }
