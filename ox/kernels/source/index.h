// Sums of rows at places that may repeat: the gradient of an embedding.
#pragma once
#include "pool.h"

namespace ox {

// result[places[i]] += rows[i] of `width` floats, in the order of i, over zeros [size, width]. A negative place counts
// from the end. Each piece of the result looks through all places, so that no two threads add to one row.
inline void index_add(long long size, long long count, long long width, const long long* places, const float* rows, float* result) {
    constexpr long long PIECES = 16;
    parallel(size, size / PIECES + 1, [=](long long begin, long long end) {
        memset(result + begin * width, 0, (end - begin) * width * 4);
        for (long long i = 0; i < count; i++) {
            const long long place = places[i] < 0 ? places[i] + size : places[i];
            if (place < begin || place >= end) continue;
            const float* row = rows + i * width;
            float* sum = result + place * width;
#pragma omp simd
            for (long long c = 0; c < width; c++) sum[c] += row[c];
        }
    });
}

}  // namespace ox
