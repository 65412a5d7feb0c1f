// libcublas on the host: products of real matrices with sums in float64. Everything else is refused (build.py adds its names).
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <vector>

#include "work.h"

namespace {
enum Type { FLOAT32 = 0, FLOAT64 = 1, FLOAT16 = 2, INT8 = 3, INT32 = 10, BFLOAT16 = 14 };

// cublasComputeType_t: what the factors alpha and beta are
double factor(const void* value, int compute) {
    if (compute == 70 || compute == 71) return *static_cast<const double*>(value);
    if (compute == 72 || compute == 73) return *static_cast<const int32_t*>(value);
    if (compute == 64 || compute == 65) return *static_cast<const _Float16*>(value);
    return *static_cast<const float*>(value);
}

int size_of(int type) { return type == FLOAT64 ? 8 : type == FLOAT32 || type == INT32 ? 4 : type == INT8 ? 1 : 2; }

double read(const void* from, long i, int type) {
    switch (type) {
        case FLOAT32: return static_cast<const float*>(from)[i];
        case FLOAT64: return static_cast<const double*>(from)[i];
        case FLOAT16: return static_cast<const _Float16*>(from)[i];
        case INT8: return static_cast<const int8_t*>(from)[i];
        case INT32: return static_cast<const int32_t*>(from)[i];
        default: break;
    }
    const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(from)[i]) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void write(void* to, long i, int type, double value) {
    switch (type) {
        case FLOAT32: static_cast<float*>(to)[i] = value; return;
        case FLOAT64: static_cast<double*>(to)[i] = value; return;
        case FLOAT16: static_cast<_Float16*>(to)[i] = static_cast<float>(value); return;
        case INT8: static_cast<int8_t*>(to)[i] = value; return;
        case INT32: static_cast<int32_t*>(to)[i] = value; return;
        default: break;
    }
    const float rounded = value;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    const uint32_t even = 0x7fff + ((bits >> 16) & 1);
    static_cast<uint16_t*>(to)[i] = rounded == rounded ? (bits + even) >> 16 : 0x7fc0;
}

double rounded(double value, int type) {
    double memory;
    write(&memory, 0, type, value);
    return read(&memory, 0, type);
}

// A matrix in memory: the elements between rows, columns and the matrices of a batch, or an array of pointers to those.
struct Matrix {
    const void* data;
    int type;
    long down, across, step = 0;
    bool pointers = false;

    void* of(int batch) const {
        if (pointers) return static_cast<void* const*>(data)[batch];
        return const_cast<char*>(static_cast<const char*>(data)) + batch * step * size_of(type);
    }
};

Matrix columns_first(const void* data, int type, long stride, long step = 0, int turned = 0, bool pointers = false) {
    return turned ? Matrix{data, type, stride, 1, step, pointers} : Matrix{data, type, 1, stride, step, pointers};
}

// cublasMath_t: without this a product of halves may be split over its depth and the parts' sums rounded to halves.
constexpr int DISALLOW_REDUCED_PRECISION_REDUCTION = 16;
constexpr int LEAST_SPLIT = 16384;  // depth

struct Product {
    int rows, columns, depth, batch;
    double alpha, beta;
    Matrix a, b, c;
    bool rounds_parts = false;

    static void run(void* product) {
        const Product& p = *static_cast<const Product*>(product);
        for (int i = 0; i < p.batch; ++i) p.multiply(p.a.of(i), p.b.of(i), p.c.of(i));
    }

    void multiply(const void* a_data, const void* b_data, void* c_data) const {
        std::vector<double> left(static_cast<size_t>(rows) * depth), right(static_cast<size_t>(columns) * depth);
        for (int i = 0; i < rows; ++i)
            for (int k = 0; k < depth; ++k) left[static_cast<size_t>(i) * depth + k] = read(a_data, i * a.down + k * a.across, a.type);
        for (int j = 0; j < columns; ++j)
            for (int k = 0; k < depth; ++k) right[static_cast<size_t>(j) * depth + k] = read(b_data, k * b.down + j * b.across, b.type);
        for (int j = 0; j < columns; ++j)
            for (int i = 0; i < rows; ++i) {
                const double *x = &left[static_cast<size_t>(i) * depth], *y = &right[static_cast<size_t>(j) * depth];
                double sum = 0;
                for (int k = 0; k < depth; ++k) {
                    sum += x[k] * y[k];
                    if (rounds_parts && k % LEAST_SPLIT == 0) sum = rounded(sum, c.type);
                }
                const long at = i * c.down + j * c.across;
                write(c_data, at, c.type, alpha * sum + (beta != 0 ? beta * read(c_data, at, c.type) : 0));
            }
    }
};

int submit(const Product& product) {
    host_cuda_submit(Product::run, &product, sizeof product, PRODUCTS);
    return 0;
}

// y = alpha op(A) x + beta y; A has m rows and n columns
int times_vector(int turned, int m, int n, double alpha, Matrix a, const void* x, int step_x, double beta, void* y, int step_y) {
    return submit({turned ? n : m, 1, turned ? m : n, 1, alpha, beta, a, {x, a.type, step_x, 0}, {y, a.type, step_y, 0}});
}

int dot(int n, const void* x, int step_x, const void* y, int step_y, void* result, int type) {
    return submit({1, 1, n, 1, 1, 0, {x, type, 0, step_x}, {y, type, step_y, 0}, {result, type, 1, 1}});
}

struct Handle {
    int math_mode = 0;
    void* stream = nullptr;
};

int pointer_mode;
}  // namespace

extern "C" {
int cublasCreate_v2(void** made) { return *made = new Handle, 0; }
int cublasDestroy_v2(void* handle) { return delete static_cast<Handle*>(handle), 0; }
int cublasGetVersion_v2(void*, int* version) { return *version = 130000, 0; }
int cublasSetStream_v2(void* handle, void* stream) { return static_cast<Handle*>(handle)->stream = stream, 0; }
int cublasGetStream_v2(void* handle, void** stream) { return *stream = static_cast<Handle*>(handle)->stream, 0; }
int cublasSetWorkspace_v2(void*, void*, size_t) { return 0; }
int cublasSetMathMode(void* handle, int mode) { return static_cast<Handle*>(handle)->math_mode = mode, 0; }
int cublasGetMathMode(void* handle, int* mode) { return *mode = static_cast<Handle*>(handle)->math_mode, 0; }
int cublasSetPointerMode_v2(void*, int mode) { return pointer_mode = mode, 0; }
int cublasGetPointerMode_v2(void*, int* mode) { return *mode = pointer_mode, 0; }

#define OF_TYPE(letter, number, type)                                                                                             \
    int cublas##letter##gemm_v2(void*, int ta, int tb, int m, int n, int k, const number* alpha, const void* a, int lda,          \
                                const void* b, int ldb, const number* beta, void* c, int ldc) {                                   \
        return submit({m, n, k, 1, *alpha, *beta, columns_first(a, type, lda, 0, ta), columns_first(b, type, ldb, 0, tb),         \
                       columns_first(c, type, ldc)});                                                                             \
    }                                                                                                                             \
    int cublas##letter##gemmStridedBatched(void*, int ta, int tb, int m, int n, int k, const number* alpha, const void* a,        \
                                           int lda, long long step_a, const void* b, int ldb, long long step_b,                   \
                                           const number* beta, void* c, int ldc, long long step_c, int batch) {                   \
        return submit({m, n, k, batch, *alpha, *beta, columns_first(a, type, lda, step_a, ta),                                    \
                       columns_first(b, type, ldb, step_b, tb), columns_first(c, type, ldc, step_c)});                            \
    }                                                                                                                             \
    int cublas##letter##gemmBatched(void*, int ta, int tb, int m, int n, int k, const number* alpha, const void* a, int lda,      \
                                    const void* b, int ldb, const number* beta, void* c, int ldc, int batch) {                    \
        return submit({m, n, k, batch, *alpha, *beta, columns_first(a, type, lda, 0, ta, true),                                   \
                       columns_first(b, type, ldb, 0, tb, true), columns_first(c, type, ldc, 0, 0, true)});                       \
    }                                                                                                                             \
    int cublas##letter##gemv_v2(void*, int turned, int m, int n, const number* alpha, const void* a, int lda, const void* x,      \
                                int step_x, const number* beta, void* y, int step_y) {                                            \
        return times_vector(turned, m, n, *alpha, columns_first(a, type, lda, 0, turned), x, step_x, *beta, y, step_y);           \
    }                                                                                                                             \
    int cublas##letter##dot_v2(void*, int n, const void* x, int step_x, const void* y, int step_y, void* result) {                \
        return dot(n, x, step_x, y, step_y, result, type);                                                                        \
    }
OF_TYPE(S, float, FLOAT32)
OF_TYPE(D, double, FLOAT64)

int cublasSgemmEx(void*, int ta, int tb, int m, int n, int k, const float* alpha, const void* a, int a_type, int lda,
                  const void* b, int b_type, int ldb, const float* beta, void* c, int c_type, int ldc) {
    return submit({m, n, k, 1, *alpha, *beta, columns_first(a, a_type, lda, 0, ta), columns_first(b, b_type, ldb, 0, tb),
                   columns_first(c, c_type, ldc)});
}

int cublasGemmStridedBatchedEx(void* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int a_type, int lda,
                               long long step_a, const void* b, int b_type, int ldb, long long step_b, const void* beta, void* c,
                               int c_type, int ldc, long long step_c, int batch, int compute, int) {
    const bool disallowed = static_cast<Handle*>(handle)->math_mode & DISALLOW_REDUCED_PRECISION_REDUCTION;
    return submit({m, n, k, batch, factor(alpha, compute), factor(beta, compute), columns_first(a, a_type, lda, step_a, ta),
                   columns_first(b, b_type, ldb, step_b, tb), columns_first(c, c_type, ldc, step_c),
                   size_of(c_type) == 2 && !disallowed});
}

int cublasGemmEx(void* cublas, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int a_type, int lda,
                 const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc, int compute, int algorithm) {
    return cublasGemmStridedBatchedEx(cublas, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc, 0,
                                      1, compute, algorithm);
}
}
