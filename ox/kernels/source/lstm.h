// The cell of an LSTM: gates in the order i o f c.
#pragma once
#include "recurrent.h"
#include "recurrent_cells.h"

namespace ox {

// totals (steps, samples, 4 units): the inputs' part with both biases. Writes gates (steps, 4, samples, units) and cells
// (steps, samples, units).
struct LstmCell {
    static constexpr long long PRODUCTS = 4;
    const Recurrence& s;
    const float *totals, *first_cell;
    float *gates, *cells;

    const float* old(const Cells& c) const { return c.first ? first_cell + c.n * s.hidden + c.u : cells + c.at(c.before, s); }

    void step(const Cells& c, const float* sums, float* state) const {
        const long long units = s.hidden, between = s.samples * units;
        const float *total = totals + ((c.t * s.samples + c.n) * PRODUCTS) * units + c.u, *from = old(c);
        float *gate = gates + (c.t * PRODUCTS * s.samples + c.n) * units + c.u, *cell = cells + c.at(c.t, s);
#pragma omp simd
        for (long long j = 0; j < c.some; j++) {
            const LstmUnit<float> unit = lstm_unit(total[j] + sums[j], total[units + j] + sums[TILE + j], total[2 * units + j] + sums[2 * TILE + j], total[3 * units + j] + sums[3 * TILE + j], from[j]);
            gate[j] = unit.in;
            gate[between + j] = unit.out;
            gate[2 * between + j] = unit.keep;
            gate[3 * between + j] = unit.fresh;
            cell[j] = unit.cell;
            state[j] = unit.state;
        }
    }

    void keep(const Cells& c) const {
        const float* from = old(c);
        for (long long j = 0; j < c.some; j++) cells[c.at(c.t, s) + j] = from[j];
        for (long long gate = 0; gate < PRODUCTS; gate++)
            memset(gates + ((c.t * PRODUCTS + gate) * s.samples + c.n) * s.hidden + c.u, 0, c.some * 4);
    }
};

// Writes the cotangents of what the gates' functions got, result (steps, samples, 4 units), and of the first cell, which
// begins as that of the last one.
struct LstmSlopes {
    static constexpr long long PRODUCTS = 4;
    static constexpr bool CARRIES = false;
    const Recurrence& s;
    const float *first_cell, *gates, *cells;
    float *result, *to_cell;

    void step(const Cells& c, const float* total, float* slopes, float*) const {
        const long long units = s.hidden, between = s.samples * units, place = c.n * units + c.u;
        const float *gate = gates + (c.t * PRODUCTS * s.samples + c.n) * units + c.u, *cell = cells + c.at(c.t, s);
        const float* old = c.first ? first_cell + place : cells + c.at(c.before, s);
        float* to = to_cell + place;
#pragma omp simd
        for (long long j = 0; j < c.some; j++) {
            const LstmSlope<float> slope = lstm_slope(gate[j], gate[between + j], gate[2 * between + j], gate[3 * between + j], cell[j], old[j], total[j], to[j]);
            slopes[j] = slope.in;
            slopes[TILE_COLUMNS + j] = slope.out;
            slopes[2 * TILE_COLUMNS + j] = slope.keep;
            slopes[3 * TILE_COLUMNS + j] = slope.fresh;
            to[j] = slope.old_cell;
        }
        float* row = result + (c.t * s.samples + c.n) * PRODUCTS * units + c.u;
        for (long long g = 0; g < PRODUCTS; g++)
            for (long long j = 0; j < c.some; j++) row[g * units + j] = slopes[g * TILE_COLUMNS + j];
    }

    void keep(const Cells& c) const {
        for (long long g = 0; g < PRODUCTS; g++)
            memset(result + ((c.t * s.samples + c.n) * PRODUCTS + g) * s.hidden + c.u, 0, c.some * 4);
    }
};

}  // namespace ox
