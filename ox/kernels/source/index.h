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

// sums[places[i] - begin] += rows[i] where begin <= places[i] < end.
template <class Sum>
inline void add_rows(long long begin, long long end, long long size, long long count, long long width, const long long* places, const float* rows, Sum* sums) {
    for (long long i = 0; i < count; i++) {
        const long long place = places[i] < 0 ? places[i] + size : places[i];
        if (place < begin || place >= end) continue;
        const float* row = rows + i * width;
        Sum* sum = sums + (place - begin) * width;
#pragma omp simd
        for (long long c = 0; c < width; c++) sum[c] += row[c];
    }
}

// result[places[i]] += rows[i] of `width` floats, in the order of i, over zeros [size, width]. A negative place counts
// from the end. Each piece of the result looks through all places, so that no two threads add to one row. A sum of many
// rows, which there is where they are more than the places, is made in double and rounded once.
inline void index_add(long long size, long long count, long long width, const long long* places, const float* rows, float* result) {
    constexpr long long PIECES = 16;
    parallel_light(size, size / PIECES + 1, [=](long long begin, long long end) {
        const long long cells = (end - begin) * width;
        if (size > count) {
            memset(result + begin * width, 0, cells * 4);
            add_rows(begin, end, size, count, width, places, rows, result + begin * width);
            return;
        }
        std::vector<double> sums(cells);
        add_rows(begin, end, size, count, width, places, rows, sums.data());
        for (long long c = 0; c < cells; c++) result[begin * width + c] = float(sums[c]);
    });
}

}  // namespace ox
