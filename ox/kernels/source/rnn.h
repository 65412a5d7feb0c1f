// The cell of a plain RNN: tanh, relu or sigmoid of one product.
#pragma once
#include "recurrent.h"
#include "recurrent_cells.h"

namespace ox {

// totals (steps, samples, units): the inputs' part with both biases.
struct RnnCell {
    static constexpr long long PRODUCTS = 1;
    const Recurrence& s;
    const float* totals;

    void step(const Cells& c, const float* sums, float* state) const {
        const float* total = totals + c.at(c.t, s);
        if (s.function == TANH) {
#pragma omp simd
            for (long long j = 0; j < c.some; j++) state[j] = rnn_unit<TANH>(total[j] + sums[j]);
        } else if (s.function == RELU) {
#pragma omp simd
            for (long long j = 0; j < c.some; j++) state[j] = rnn_unit<RELU>(total[j] + sums[j]);
        } else {
#pragma omp simd
            for (long long j = 0; j < c.some; j++) state[j] = rnn_unit<SIGMOID>(total[j] + sums[j]);
        }
    }

    void keep(const Cells&) const {}
};

// Writes the cotangents of what the function got, result (steps, samples, units).
struct RnnSlopes {
    static constexpr long long PRODUCTS = 1;
    static constexpr bool CARRIES = false;
    const Recurrence& s;
    const float* y;
    float* result;

    void step(const Cells& c, const float* total, float* slopes, float*) const {
        const float* state = y + c.t * s.y_step + c.n * s.hidden + c.u;
        float* row = result + c.at(c.t, s);
        if (s.function == TANH) {
            for (long long j = 0; j < c.some; j++) slopes[j] = rnn_slope<TANH>(state[j], total[j]);
        } else if (s.function == RELU) {
            for (long long j = 0; j < c.some; j++) slopes[j] = rnn_slope<RELU>(state[j], total[j]);
        } else {
            for (long long j = 0; j < c.some; j++) slopes[j] = rnn_slope<SIGMOID>(state[j], total[j]);
        }
        for (long long j = 0; j < c.some; j++) row[j] = slopes[j];
    }

    void keep(const Cells& c) const { memset(result + c.at(c.t, s), 0, c.some * 4); }
};

}  // namespace ox
