// The words of CUDA C++ for g++. One thread of the host runs the threads of a kernel one after the other, or as fibers
// (fibers.cpp) where those of a block meet.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include "work.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

#define HOST_CUDA_EXPORT extern "C" __attribute__((externally_visible))  // the rest goes if no kernel calls it
static HostCudaIndex threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;
static char host_cuda_dynamic_memory[1 << 18];  // `extern __shared__`

namespace host_cuda {
// The value that the thread `lane` of the same warp has.
template <class T> static T value_of_lane(T value, int lane) {
    static_assert(sizeof(T) <= 16);
    host_cuda_exchange(&value, sizeof value, lane);
    return value;
}

// How a kernel may be run: with fibers; or, if it strides over its elements, as one thread.
enum Way { EACH_THREAD, FIBERS, ONE_THREAD };

template <Way way, class... A> struct Work {
    void (*kernel)(A...);
    unsigned size[6];
    std::tuple<std::remove_cv_t<std::remove_reference_t<A>>...> arguments;

    static void thread(void* work) {
        Work& w = *static_cast<Work*>(work);
        std::apply(w.kernel, w.arguments);
    }

    static void run(void* work) {
        const unsigned* size = static_cast<Work*>(work)->size;
        gridDim = {size[0], size[1], size[2]};
        blockDim = {size[3], size[4], size[5]};
        if constexpr (way == ONE_THREAD) gridDim = blockDim = {1, 1, 1};
        const unsigned count = blockDim.x * blockDim.y * blockDim.z;
        for (unsigned b = 0; b < gridDim.x * gridDim.y * gridDim.z; ++b) {
            blockIdx = {b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y};
            if constexpr (way == FIBERS) {
                host_cuda_run_block(blockDim, &threadIdx, thread, work);
            } else {
                for (unsigned t = 0; t < count; ++t) {
                    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
                    thread(work);
                }
            }
        }
    }
};

template <Way way, class... A, size_t... I>
static void submit(void (*kernel)(A...), const unsigned* size, void** arguments, std::index_sequence<I...>) {
    Work<way, A...> work{kernel,
                         {size[0], size[1], size[2], size[3], size[4], size[5]},
                         {*static_cast<std::remove_cv_t<std::remove_reference_t<A>>*>(arguments[I])...}};
    host_cuda_submit(Work<way, A...>::run, &work, sizeof work, LAUNCHES);
}

template <Way way, class... A> static void launch(void (*kernel)(A...), const unsigned* size, void** arguments) {
    submit<way>(kernel, size, arguments, std::index_sequence_for<A...>{});
}
}  // namespace host_cuda

static inline void __syncthreads() { host_cuda_meet(MEET_BLOCK); }
static inline void __syncwarp(unsigned = ~0u) { host_cuda_meet(MEET_WARP); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline int __syncthreads_or(int predicate) {
    static int any;
    if (host_cuda_thread() == 0) any = 0;
    __syncthreads();
    any |= predicate != 0;
    __syncthreads();
    const int result = any;
    __syncthreads();  // the next call starts anew
    return result;
}

template <class T> static T __shfl_sync(unsigned, T value, int lane, int = 32) { return host_cuda::value_of_lane(value, lane); }
template <class T> static T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
    return host_cuda::value_of_lane(value, host_cuda_thread() ^ mask);
}
template <class T> static T __shfl_down_sync(unsigned, T value, unsigned distance, int width = 32) {
    const int lane = host_cuda_thread() & 31;
    return host_cuda::value_of_lane(value, lane % width + static_cast<int>(distance) < width ? lane + distance : lane);
}
template <class T> static T __shfl_up_sync(unsigned, T value, unsigned distance, int width = 32) {
    const int lane = host_cuda_thread() & 31;
    return host_cuda::value_of_lane(value, lane % width >= static_cast<int>(distance) ? lane - distance : lane);
}
static inline unsigned __ballot_sync(unsigned, int predicate) {
    unsigned votes = 0;
    for (int lane = 0; lane < 32; ++lane) votes |= static_cast<unsigned>(host_cuda::value_of_lane(predicate, lane) != 0) << lane;
    return votes;
}

// Threads run one after the other, so nothing comes between a read and a write.
#define HOST_CUDA_ATOMIC(name, type, expression)       \
    static inline type name(type* address, type v) {   \
        const type old = *address;                     \
        *address = expression;                         \
        return old;                                    \
    }
#define HOST_CUDA_NUMBER(type)                                           \
    HOST_CUDA_ATOMIC(atomicAdd, type, old + v)                           \
    HOST_CUDA_ATOMIC(atomicExch, type, v)                                \
    static inline type atomicCAS(type* address, type expected, type v) { \
        const type old = *address;                                       \
        if (old == expected) *address = v;                               \
        return old;                                                      \
    }
#define HOST_CUDA_INTEGER(type)                           \
    HOST_CUDA_NUMBER(type)                                \
    HOST_CUDA_ATOMIC(atomicMax, type, v > old ? v : old)  \
    HOST_CUDA_ATOMIC(atomicMin, type, v < old ? v : old)  \
    HOST_CUDA_ATOMIC(atomicOr, type, old | v)             \
    HOST_CUDA_ATOMIC(atomicAnd, type, old & v)            \
    HOST_CUDA_ATOMIC(atomicXor, type, old ^ v)
HOST_CUDA_INTEGER(int)
HOST_CUDA_INTEGER(unsigned)
HOST_CUDA_INTEGER(unsigned long long)
HOST_CUDA_NUMBER(unsigned short)
HOST_CUDA_NUMBER(float)
HOST_CUDA_NUMBER(double)

namespace host_cuda {
template <class To, class From> static To bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace host_cuda
static inline int __float_as_int(float x) { return host_cuda::bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return host_cuda::bits<unsigned>(x); }
static inline float __int_as_float(int x) { return host_cuda::bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return host_cuda::bits<float>(x); }
static inline long long __double_as_longlong(double x) { return host_cuda::bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return host_cuda::bits<double>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned long long>(a) * b >> 32; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned __int128>(a) * b >> 64;
}
template <class T> static T __ldg(const T* address) { return *address; }

using std::abs, std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atan2, std::atanh, std::cbrt, std::ceil, std::copysign;
using std::cos, std::cosh, std::erf, std::erfc, std::exp, std::exp2, std::expm1, std::fabs, std::floor, std::fma, std::fmax, std::fmin;
using std::fmod, std::frexp, std::hypot, std::ilogb, std::isfinite, std::isinf, std::isnan, std::ldexp, std::lgamma, std::log;
using std::log10, std::log1p, std::log2, std::logb, std::modf, std::nearbyint, std::nextafter, std::pow, std::remainder, std::rint;
using std::round, std::signbit, std::sin, std::sinh, std::sqrt, std::tan, std::tanh, std::tgamma, std::trunc;
static inline float rsqrt(float x) { return 1 / std::sqrt(x); }
static inline double rsqrt(double x) { return 1 / std::sqrt(x); }
static inline float rsqrtf(float x) { return rsqrt(x); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float saturate(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
#define __expf expf
#define __logf logf
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __fdividef fdividef

// CUDA's min and max of numbers leave NaN out.
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static inline std::common_type_t<A, B> min(A a, B b) {
    using C = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<C>) return std::fmin(static_cast<C>(a), static_cast<C>(b));
    return static_cast<C>(a) < static_cast<C>(b) ? a : b;
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static inline std::common_type_t<A, B> max(A a, B b) {
    using C = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<C>) return std::fmax(static_cast<C>(a), static_cast<C>(b));
    return static_cast<C>(a) > static_cast<C>(b) ? a : b;
}

// What nearly all kernels of CuPy include; here, the compiler has read it once for all of them.
#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
#include <cupy/float16.cuh>
#include <cupy/bfloat16.cuh>
