// What LSTM, GRU and a plain RNN over time share: their steps in one call, each shared out by units. A task does the
// products of its units with the states and what follows from them, so that a step has one meeting of the threads.
#pragma once
#include "float_math.h"
#include "product.h"

namespace ox {

// Of one direction; floats from one step to the next in the states and in their gradient; a plain RNN's function.
struct Recurrence {
    long long steps, samples, hidden, reverse, y_step, gradient_step, function;
};

constexpr long long TILE = TILE_ROWS * TILE_COLUMNS;

// Units of one sample at one step: `before` is the step that came before in the direction's order, `first` that none did.
struct Cells {
    long long t, before, n, u, some;
    bool first;
    long long at(long long step, const Recurrence& s) const { return (step * s.samples + n) * s.hidden + u; }
};

inline long long units_of(long long units, long long first) { return units - first < TILE_COLUMNS ? units - first : TILE_COLUMNS; }

// The rows of tasks: panels of TILE_ROWS samples with the units as depth.
inline void pack_states(const float* from, long long samples, long long units, float* to) {
    pack_rows(Matrix{from, units, 1}, 0, units, 0, samples, to);
}

// `lengths` (or nullptr): from these steps on a sample keeps its state. `cell.step(cells, sums, state)` makes states of the
// products (TILE floats from one product's to the next), `cell.keep(cells)` stands in its place after a sample's end.
template <class Cell> inline void recurrent_forward(const Recurrence& s, const float* recurrent, const float* first_state, const long long* lengths, float* y, const Cell& cell) {
    constexpr long long PRODUCTS = Cell::PRODUCTS;
    const long long units = s.hidden, samples = s.samples, blocks = (units + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const long long padded = rounded_up(samples, TILE_ROWS), panel = units * TILE_COLUMNS;
    Scratch memory;
    float* weights = memory.floats(blocks * PRODUCTS * panel + 2 * padded * units);
    float* states[2] = {weights + blocks * PRODUCTS * panel, weights + blocks * PRODUCTS * panel + padded * units};
    parallel(blocks * PRODUCTS, 1, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            const long long u = at / PRODUCTS * TILE_COLUMNS, gate = at % PRODUCTS;
            pack_panel({recurrent + gate * units * units, 1, units}, 0, units, u, units_of(units, u), weights + at * panel);
        }
    });
    memset(states[0], 0, 2 * padded * units * 4);
    pack_states(first_state, samples, units, states[0]);
    for (long long step = 0; step < s.steps; step++) {
        const long long t = s.reverse ? s.steps - 1 - step : step, before = s.reverse ? t + 1 : t - 1;
        const float* now = states[step % 2];
        float* next = states[(step + 1) % 2];
        parallel(blocks, 1, [&](long long begin, long long end) {
            float sums[PRODUCTS * TILE], state[TILE_COLUMNS];
            for (long long at = begin; at < end; at++) {
                const long long u = at * TILE_COLUMNS, some = units_of(units, u);
                for (long long n0 = 0; n0 < samples; n0 += TILE_ROWS) {
                    for (long long gate = 0; gate < PRODUCTS; gate++)
                        tile(units, now + n0 * units, weights + (at * PRODUCTS + gate) * panel, sums + gate * TILE, TILE_COLUMNS, false);
                    const long long rows = samples - n0 < TILE_ROWS ? samples - n0 : TILE_ROWS;
                    for (long long r = 0; r < rows; r++) {
                        const Cells cells = {t, before, n0 + r, u, some, step == 0};
                        const long long packed = n0 * units + u * TILE_ROWS + r;
                        if (lengths && t >= lengths[n0 + r]) {
                            for (long long j = 0; j < some; j++) state[j] = now[packed + j * TILE_ROWS];
                            cell.keep(cells);
                        } else {
                            cell.step(cells, sums + r * TILE_COLUMNS, state);
                        }
                        float* result = y + t * s.y_step + (n0 + r) * units + u;
                        for (long long j = 0; j < some; j++) result[j] = state[j];
                        for (long long j = 0; j < some; j++) next[packed + j * TILE_ROWS] = state[j];
                    }
                }
            }
        });
    }
}

// From cotangents of the states (y_gradient may be nullptr) and of the last one. `cell.step(cells, total, slopes, carried)`
// gets those of one step's states and makes those of its products (TILE_COLUMNS floats from one's to the next); where
// Cell::CARRIES, it writes to `carried` what reaches the step before without a product. `to_state`: of the first state.
template <class Cell> inline void recurrent_backward(const Recurrence& s, const float* recurrent, const long long* lengths, const float* y_gradient, const float* state_gradient, float* to_state, const Cell& cell) {
    constexpr long long PRODUCTS = Cell::PRODUCTS;
    const long long units = s.hidden, samples = s.samples, blocks = (units + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const long long padded = rounded_up(samples, TILE_ROWS), depth = PRODUCTS * units, panel = depth * TILE_COLUMNS;
    const bool carries = Cell::CARRIES || lengths;
    Scratch memory;
    float* weights = memory.floats(blocks * panel + padded * depth * 2);
    float* packed[2] = {weights + blocks * panel, weights + blocks * panel + padded * depth};
    parallel(blocks, 1, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++)
            pack_panel({recurrent, units, 1}, 0, depth, at * TILE_COLUMNS, units_of(units, at * TILE_COLUMNS), weights + at * panel);
    });
    memset(packed[0], 0, 2 * padded * depth * 4);
    for (long long step = 0; step <= s.steps; step++) {
        const long long t = s.reverse ? step : s.steps - 1 - step, before = s.reverse ? t + 1 : t - 1;
        const float* now = packed[step % 2];
        float* next = packed[(step + 1) % 2];
        parallel(blocks, 1, [&](long long begin, long long end) {
            float sums[TILE], total[TILE_COLUMNS], slopes[PRODUCTS * TILE_COLUMNS];
            for (long long at = begin; at < end; at++) {
                const long long u = at * TILE_COLUMNS, some = units_of(units, u);
                for (long long n0 = 0; n0 < samples; n0 += TILE_ROWS) {
                    if (step) tile(depth, now + n0 * depth, weights + at * panel, sums, TILE_COLUMNS, false);
                    const long long rows = samples - n0 < TILE_ROWS ? samples - n0 : TILE_ROWS;
                    for (long long r = 0; r < rows; r++) {
                        const long long n = n0 + r, place = n * units + u;
                        const float* arrived = step ? sums + r * TILE_COLUMNS : state_gradient + place;
                        float* carried = to_state + place;
                        if (carries && step) {
                            for (long long j = 0; j < some; j++) total[j] = arrived[j] + carried[j];
                        } else {
                            for (long long j = 0; j < some; j++) total[j] = arrived[j];
                        }
                        const bool ended = lengths && t >= lengths[n];
                        if (step == s.steps || ended)
                            for (long long j = 0; j < some; j++) carried[j] = total[j];
                        if (step == s.steps) continue;
                        const bool first = step + 1 == s.steps || (s.reverse && lengths && t + 1 == lengths[n]);
                        const Cells cells = {t, before, n, u, some, first};
                        if (ended) {
                            memset(slopes, 0, sizeof slopes);
                            cell.keep(cells);
                        } else {
                            if (y_gradient) {
                                const float* from_y = y_gradient + t * s.gradient_step + place;
                                for (long long j = 0; j < some; j++) total[j] += from_y[j];
                            }
                            if (carries && !Cell::CARRIES) memset(carried, 0, some * 4);
                            cell.step(cells, total, slopes, carried);
                        }
                        for (long long gate = 0; gate < PRODUCTS; gate++) {
                            float* to = next + n0 * depth + (gate * units + u) * TILE_ROWS + r;
                            for (long long j = 0; j < some; j++) to[j * TILE_ROWS] = slopes[gate * TILE_COLUMNS + j];
                        }
                    }
                }
            }
        });
    }
}

}  // namespace ox
