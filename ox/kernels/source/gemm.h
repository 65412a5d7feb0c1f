// Matrix products in packed blocks, single-threaded: tasks of the pool call them. After the BLIS design (Van Zee and
// van de Geijn, 2015): a block of registers of ROWS_OF_TILE by COLUMNS_OF_TILE numbers, panels of both factors beside it.
#pragma once
#include <stdlib.h>
#include <string.h>

#include <new>

namespace ox {

#if defined(__AVX512F__)
constexpr int LANES = 16, TILE_ROWS = 8, TILE_VECTORS = 2;
#elif defined(__AVX2__)
constexpr int LANES = 8, TILE_ROWS = 6, TILE_VECTORS = 2;
#else
constexpr int LANES = 4, TILE_ROWS = 8, TILE_VECTORS = 2;
#endif
constexpr int TILE_COLUMNS = LANES * TILE_VECTORS;
constexpr int DEPTH = 256;                       // of the panels
constexpr int PANELS = 8;                        // of the second factor in a block
constexpr int BLOCK_COLUMNS = PANELS * TILE_COLUMNS;
constexpr long long SMALL_PRODUCT = 1 << 20;        // multiplications that one thread does

typedef float Vector __attribute__((vector_size(LANES * 4), aligned(4)));

// Keeps a vector that is used several times in a register: compilers load it from memory again in each use.
#if defined(__x86_64__)
#define IN_REGISTER(vector) asm("" : "+v"(vector))
#elif defined(__aarch64__)
#define IN_REGISTER(vector) asm("" : "+w"(vector))
#else
#define IN_REGISTER(vector)
#endif

inline long long rounded_up(long long count, long long unit) { return (count + unit - 1) / unit * unit; }

// Memory of a thread that is kept for its next task.
class Scratch {
  public:
    ~Scratch() { free(data_); }
    float* floats(long long count) {
        if (count > size_) {
            free(data_);
            data_ = (float*)aligned_alloc(64, rounded_up(count * 4, 64));
            size_ = data_ ? count : 0;
            if (!data_) throw std::bad_alloc();
        }
        return data_;
    }

  private:
    float* data_ = nullptr;
    long long size_ = 0;
};

// result (TILE_ROWS by TILE_COLUMNS, rows `stride` apart) = or += a (TILE_ROWS by depth) and b (depth by TILE_COLUMNS);
// the steps of `a` are those of a packed panel, or of rows or columns that are read as they lie.
inline __attribute__((always_inline)) void tile_of_steps(long long depth, const float* a, long long row_step, long long depth_step, const float* b, float* result, long long stride, bool add) {
    Vector sums[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) sums[i][j] = Vector{};
    for (long long k = 0; k < depth; k++) {
        Vector columns[TILE_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) columns[j] = *(const Vector*)(b + j * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
            for (int j = 0; j < TILE_VECTORS; j++) sums[i][j] += a[i * row_step] * columns[j];
        a += depth_step;
        b += TILE_COLUMNS;
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) {
            Vector* to = (Vector*)(result + i * stride + j * LANES);
            *to = add ? *to + sums[i][j] : sums[i][j];
        }
}

// The same with steps that are known to the compiler.
template <long long ROW_STEP = 1, long long DEPTH_STEP = TILE_ROWS>
inline void tile(long long depth, const float* a, const float* b, float* result, long long stride, bool add) {
    tile_of_steps(depth, a, ROW_STEP, DEPTH_STEP, b, result, stride, add);
}

// All tiles of one block: `a` holds panels of rows, `panels` panels of columns lie in `b`. A panel of columns stays in
// the first cache while the rows pass. `panel_depth`: of the panels, where they are deeper than the product.
template <long long ROW_STEP = 1, long long DEPTH_STEP = TILE_ROWS>
inline void block(long long rows, int panels, long long depth, const float* a, const float* b, float* result, long long stride, bool add, long long panel_depth = 0) {
    const long long next = DEPTH_STEP == TILE_ROWS && ROW_STEP == 1 ? TILE_ROWS * depth : TILE_ROWS * ROW_STEP;
    for (int panel = 0; panel < panels; panel++)
        for (long long first = 0, at = 0; first < rows; first += TILE_ROWS, at += next)
            tile<ROW_STEP, DEPTH_STEP>(depth, a + at, b + panel * TILE_COLUMNS * (panel_depth ? panel_depth : depth), result + first * stride + panel * TILE_COLUMNS, stride, add);
}

}  // namespace ox
