// An LSTM over time: its steps in one call, each shared out by units. A task does the products of its units' gates and
// what follows from them, so that a step has one meeting of the threads.
#pragma once
#include "float_math.h"
#include "product.h"

namespace ox {

constexpr long long GATES = 4;  // in the order i o f c

// Tensors of one direction; `y_step` floats from one step's states to the next one's.
struct Lstm {
    long long steps, samples, hidden, reverse, y_step;
};

inline long long units_of(long long units, long long first) { return units - first < TILE_COLUMNS ? units - first : TILE_COLUMNS; }

// The rows of tasks: panels of TILE_ROWS samples with the units as depth.
inline void pack_states(const float* from, long long samples, long long units, float* to) {
    pack_rows(Matrix{from, units, 1}, 0, units, 0, samples, to);
}

// totals (steps, samples, 4 units): the inputs' part with both biases. Writes y (held where it lies), gates
// (steps, 4, samples, units) and cells (steps, samples, units).
inline void lstm_forward(const Lstm& s, const float* totals, const float* recurrent, const float* first_state, const float* first_cell, float* y, float* gates, float* cells) {
    const long long units = s.hidden, samples = s.samples, blocks = (units + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const long long padded = rounded_up(samples, TILE_ROWS), panel = units * TILE_COLUMNS;
    Scratch memory;
    float* weights = memory.floats(blocks * GATES * panel + 2 * padded * units);
    float* states[2] = {weights + blocks * GATES * panel, weights + blocks * GATES * panel + padded * units};
    parallel(blocks * GATES, 1, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++) {
            const long long u = at / GATES * TILE_COLUMNS, gate = at % GATES;
            pack_panel({recurrent + gate * units * units, 1, units}, 0, units, u, units_of(units, u), weights + at * panel);
        }
    });
    memset(states[0], 0, 2 * padded * units * 4);
    pack_states(first_state, samples, units, states[0]);
    for (long long step = 0; step < s.steps; step++) {
        const long long t = s.reverse ? s.steps - 1 - step : step, before = s.reverse ? t + 1 : t - 1;
        const float* cell = step ? cells + before * samples * units : first_cell;
        const float* now = states[step % 2];
        float* next = states[(step + 1) % 2];
        parallel(blocks, 1, [&](long long begin, long long end) {
            float sums[GATES][TILE_ROWS * TILE_COLUMNS];
            for (long long at = begin; at < end; at++) {
                const long long u = at * TILE_COLUMNS, some = units_of(units, u);
                for (long long n0 = 0; n0 < samples; n0 += TILE_ROWS) {
                    for (long long gate = 0; gate < GATES; gate++)
                        tile(units, now + n0 * units, weights + (at * GATES + gate) * panel, sums[gate], TILE_COLUMNS, false);
                    const long long rows = samples - n0 < TILE_ROWS ? samples - n0 : TILE_ROWS;
                    for (long long r = 0; r < rows; r++) {
                        const long long n = n0 + r;
                        const float* total = totals + ((t * samples + n) * GATES) * units + u;
                        float* gate = gates + (t * GATES * samples + n) * units + u;
                        const float* old = cell + n * units + u;
                        float *c = cells + (t * samples + n) * units + u, *state = y + t * s.y_step + n * units + u;
                        const long long between = samples * units;
                        float packed[TILE_COLUMNS];
#pragma omp simd
                        for (long long j = 0; j < some; j++) {
                            const float in = ox_sigmoid(total[j] + sums[0][r * TILE_COLUMNS + j]);
                            const float out = ox_sigmoid(total[units + j] + sums[1][r * TILE_COLUMNS + j]);
                            const float keep = ox_sigmoid(total[2 * units + j] + sums[2][r * TILE_COLUMNS + j]);
                            const float fresh = ox_tanh(total[3 * units + j] + sums[3][r * TILE_COLUMNS + j]);
                            const float value = keep * old[j] + in * fresh;
                            gate[j] = in;
                            gate[between + j] = out;
                            gate[2 * between + j] = keep;
                            gate[3 * between + j] = fresh;
                            c[j] = value;
                            packed[j] = out * ox_tanh(value);
                            state[j] = packed[j];
                        }
                        float* to = next + n0 * units + u * TILE_ROWS + r;
                        for (long long j = 0; j < some; j++) to[j * TILE_ROWS] = packed[j];
                    }
                }
            }
        });
    }
}

// Cotangents of the states (y_gradient may be nullptr), last state and last cell. Writes those of what the gates' functions
// got, slopes (steps, samples, 4 units), and of the first state and cell.
inline void lstm_backward(const Lstm& s, const float* recurrent, const float* first_cell, const float* gates, const float* cells, const float* y_gradient, const float* state_gradient, const float* cell_gradient, float* slopes, float* to_state, float* to_cell) {
    const long long units = s.hidden, samples = s.samples, blocks = (units + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const long long padded = rounded_up(samples, TILE_ROWS), depth = GATES * units, panel = depth * TILE_COLUMNS;
    Scratch memory;
    float* weights = memory.floats(blocks * panel + padded * depth * 2);
    float* packed[2] = {weights + blocks * panel, weights + blocks * panel + padded * depth};
    parallel(blocks, 1, [&](long long begin, long long end) {
        for (long long at = begin; at < end; at++)
            pack_panel({recurrent, units, 1}, 0, depth, at * TILE_COLUMNS, units_of(units, at * TILE_COLUMNS), weights + at * panel);
    });
    memset(packed[0], 0, 2 * padded * depth * 4);
    memcpy(to_cell, cell_gradient, samples * units * 4);
    for (long long step = 0; step <= s.steps; step++) {
        const long long t = s.reverse ? step : s.steps - 1 - step, before = s.reverse ? t + 1 : t - 1;
        const float* now = packed[step % 2];
        float* next = packed[(step + 1) % 2];
        const bool last = step == s.steps;
        parallel(blocks, 1, [&](long long begin, long long end) {
            float sums[TILE_ROWS * TILE_COLUMNS];
            for (long long at = begin; at < end; at++) {
                const long long u = at * TILE_COLUMNS, some = units_of(units, u);
                for (long long n0 = 0; n0 < samples; n0 += TILE_ROWS) {
                    if (step) tile(depth, now + n0 * depth, weights + at * panel, sums, TILE_COLUMNS, false);
                    const long long rows = samples - n0 < TILE_ROWS ? samples - n0 : TILE_ROWS;
                    for (long long r = 0; r < rows; r++) {
                        const long long n = n0 + r, place = n * units + u;
                        const float* arrived = step ? sums + r * TILE_COLUMNS : state_gradient + place;
                        if (last) {
                            for (long long j = 0; j < some; j++) to_state[place + j] = arrived[j];
                            continue;
                        }
                        const long long between = samples * units;
                        const float* gate = gates + (t * GATES * samples + n) * units + u;
                        const float* cell = cells + (t * samples + n) * units + u;
                        const float* old = step + 1 < s.steps ? cells + (before * samples + n) * units + u : first_cell + place;
                        const float* from_y = y_gradient ? y_gradient + t * s.y_step + place : nullptr;
                        float *slope = slopes + (t * samples + n) * depth + u, *to = to_cell + place;
                        float parts[GATES][TILE_COLUMNS];
#pragma omp simd
                        for (long long j = 0; j < some; j++) {
                            const float in = gate[j], out = gate[between + j], keep = gate[2 * between + j], fresh = gate[3 * between + j];
                            const float state = arrived[j] + (from_y ? from_y[j] : 0.0f), squashed = ox_tanh(cell[j]);
                            const float value = to[j] + state * out * (1.0f - squashed * squashed);
                            parts[0][j] = value * fresh * in * (1.0f - in);
                            parts[1][j] = state * squashed * out * (1.0f - out);
                            parts[2][j] = value * old[j] * keep * (1.0f - keep);
                            parts[3][j] = value * in * (1.0f - fresh * fresh);
                            to[j] = value * keep;
                        }
                        for (long long g = 0; g < GATES; g++) {
                            float* out = next + n0 * depth + (g * units + u) * TILE_ROWS + r;
                            for (long long j = 0; j < some; j++) slope[g * units + j] = parts[g][j];
                            for (long long j = 0; j < some; j++) out[j * TILE_ROWS] = parts[g][j];
                        }
                    }
                }
            }
        });
    }
}

}  // namespace ox
