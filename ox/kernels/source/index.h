// An embedding: rows at places that may repeat, and its gradient, sums of rows at such places.
#pragma once
#include "pool.h"

namespace ox {

// result[i] = rows[places[i]] of `width` floats; `size` rows, a negative place counts from the end.
inline void take_rows(long long size, long long count, long long width, const long long* places, const float* rows, float* result) {
    parallel_light(count, ROW_WORK / (width + 1) + 1, [=](long long begin, long long end) {
        for (long long i = begin; i < end; i++)
            memcpy(result + i * width, rows + (places[i] < 0 ? places[i] + size : places[i]) * width, width * 4);
    });
}

// result[places[i]] += rows[i] of `width` floats, in the order of i, over zeros [size, width]. A negative place counts
// from the end. Each piece of the result looks through all places, so that no two threads add to one row.
inline void index_add(long long size, long long count, long long width, const long long* places, const float* rows, float* result) {
    constexpr long long PIECES = 16;
    parallel_light(size, size / PIECES + 1, [=](long long begin, long long end) {
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
