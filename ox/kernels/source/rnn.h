// The cell of a plain RNN: tanh, relu or sigmoid of one product.
#pragma once
#include "recurrent.h"

namespace ox {

enum : long long { TANH, RELU, SIGMOID };  // Recurrence::function

// totals (steps, samples, units): the inputs' part with both biases.
struct RnnCell {
    static constexpr long long PRODUCTS = 1;
    const Recurrence& s;
    const float* totals;

    void step(const Cells& c, const float* sums, float* state) const {
        const float* total = totals + c.at(c.t, s);
        if (s.function == TANH) {
#pragma omp simd
            for (long long j = 0; j < c.some; j++) state[j] = ox_tanh(total[j] + sums[j]);
        } else if (s.function == RELU) {
#pragma omp simd
            for (long long j = 0; j < c.some; j++) state[j] = total[j] + sums[j] < 0.0f ? 0.0f : total[j] + sums[j];
        } else {
#pragma omp simd
            for (long long j = 0; j < c.some; j++) state[j] = ox_sigmoid(total[j] + sums[j]);
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
            for (long long j = 0; j < c.some; j++) slopes[j] = total[j] * (1.0f - state[j] * state[j]);
        } else if (s.function == RELU) {
            for (long long j = 0; j < c.some; j++) slopes[j] = total[j] * (state[j] > 0.0f ? 1.0f : 0.0f);
        } else {
            for (long long j = 0; j < c.some; j++) slopes[j] = total[j] * (state[j] * (1.0f - state[j]));
        }
        for (long long j = 0; j < c.some; j++) row[j] = slopes[j];
    }

    void keep(const Cells& c) const { memset(result + c.at(c.t, s), 0, c.some * 4); }
};

}  // namespace ox
