// The cell of a GRU whose reset gate multiplies the product with the state, as PyTorch and cuDNN have it: gates in the
// order z r n, and q, which r multiplies.
#pragma once
#include "recurrent.h"
#include "recurrent_cells.h"

namespace ox {

// totals (steps, samples, 3 units): the inputs' part with the biases of z and r and the inputs' bias of n; `inner` (units,
// or nullptr) is the states' bias of n. Writes gates (steps, 4, samples, units).
struct GruCell {
    static constexpr long long PRODUCTS = 3;
    const Recurrence& s;
    const float *totals, *inner, *first_state, *y;
    float* gates;

    void step(const Cells& c, const float* sums, float* state) const {
        const long long units = s.hidden, between = s.samples * units, place = c.n * units + c.u;
        const float* total = totals + ((c.t * s.samples + c.n) * PRODUCTS) * units + c.u;
        const float* old = c.first ? first_state + place : y + c.before * s.y_step + place;
        float bias[TILE_COLUMNS] = {}, *gate = gates + (c.t * 4 * s.samples + c.n) * units + c.u;
        if (inner)
            for (long long j = 0; j < c.some; j++) bias[j] = inner[c.u + j];
#pragma omp simd
        for (long long j = 0; j < c.some; j++) {
            const float product = sums[2 * TILE + j] + bias[j];
            const GruUnit<float> unit = gru_unit(total[j] + sums[j], total[units + j] + sums[TILE + j], total[2 * units + j], product, old[j]);
            gate[j] = unit.update;
            gate[between + j] = unit.reset;
            gate[2 * between + j] = unit.fresh;
            gate[3 * between + j] = product;
            state[j] = unit.state;
        }
    }

    void keep(const Cells& c) const {
        for (long long gate = 0; gate < 4; gate++)
            memset(gates + ((c.t * 4 + gate) * s.samples + c.n) * s.hidden + c.u, 0, c.some * 4);
    }
};

// Writes the cotangents of what the gates' functions got and of q, result (steps, samples, 4 units) in the order n z r q:
// the first three are those of the inputs' products, the last three those of the states'.
struct GruSlopes {
    static constexpr long long PRODUCTS = 3;
    static constexpr bool CARRIES = true;
    const Recurrence& s;
    const float *first_state, *y, *gates;
    float* result;

    void step(const Cells& c, const float* total, float* slopes, float* carried) const {
        const long long units = s.hidden, between = s.samples * units, place = c.n * units + c.u;
        const float* gate = gates + (c.t * 4 * s.samples + c.n) * units + c.u;
        const float* old = c.first ? first_state + place : y + c.before * s.y_step + place;
        float* row = result + (c.t * s.samples + c.n) * 4 * units + c.u;
#pragma omp simd
        for (long long j = 0; j < c.some; j++) {
            const GruSlope<float> slope = gru_slope(gate[j], gate[between + j], gate[2 * between + j], gate[3 * between + j], old[j], total[j]);
            slopes[j] = slope.update;
            slopes[TILE_COLUMNS + j] = slope.reset;
            slopes[2 * TILE_COLUMNS + j] = slope.product;
            row[j] = slope.fresh;
            row[units + j] = slope.update;
            row[2 * units + j] = slope.reset;
            row[3 * units + j] = slope.product;
            carried[j] = slope.old_state;
        }
    }

    void keep(const Cells& c) const {
        for (long long g = 0; g < 4; g++)
            memset(result + ((c.t * s.samples + c.n) * 4 + g) * s.hidden + c.u, 0, c.some * 4);
    }
};

}  // namespace ox
