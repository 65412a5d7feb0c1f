// LSTM, GRU and a plain RNN on a GPU: all that is done at one time step but for the product with the state, which is cuBLAS'.
// A thread does one unit of one sample. NUMBER is float or double.
//
// Arrays lie one row after the other. A step has `units` = samples x hidden states, and `sums` of its products [samples,
// gates x hidden]; from one step to the next lie y_step and gradient_step numbers in Y and in its gradient. `bias` (or nullptr)
// has the biases of inputs, then those of states. `alive` (or nullptr) [steps, samples]: where it is false a sample keeps
// its state, and its gates and all cotangents are 0. `width` is the number of hidden states, as a Divisor<int>.
#include "division.h"

// Of double: before the formulas, which do not find what is declared after them.
FUNCTION double ox_tanh(double x) { return tanh(x); }
FUNCTION double ox_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

#include "recurrent_cells.h"

// Unit i of a step, which is number `step` of a walk along the time.
struct Unit {
    long long t, before;  // the step, and the one before it in the direction's order
    long long i, n, u;    // the unit among all of a step, its sample, and its number in the sample
    bool first, alive;    // whether its sample has none before
};

FUNCTION Unit unit_of(long long i, long long units, const Divisor<int>& width, const bool* alive, long long steps, long long reverse, long long step, bool backward) {
    const long long n = width.divide((int)i), samples = width.divide((int)units);
    const long long t = (reverse != 0) != backward ? steps - 1 - step : step, before = reverse ? t + 1 : t - 1;
    const bool first = before < 0 || before == steps || (reverse && alive && !alive[before * samples + n]);
    return {t, before, i, n, i - n * (int)width, first, !alive || alive[t * samples + n]};
}

// The sum of the products of gate g, out of k gates.
FUNCTION NUMBER product_at(const NUMBER* sums, const Unit& unit, long long hidden, int k, int g) {
    return sums[(unit.n * k + g) * hidden + unit.u];
}

FUNCTION NUMBER bias_at(const NUMBER* bias, const Unit& unit, long long hidden, int g) { return bias ? bias[g * hidden + unit.u] : (NUMBER)0; }

// With the products of the inputs of all steps, `inputs`, and both biases.
FUNCTION NUMBER sum_at(const NUMBER* inputs, const NUMBER* states, const NUMBER* bias, const Unit& unit, long long units, long long hidden, int k, int g) {
    return product_at(inputs + unit.t * k * units, unit, hidden, k, g) + product_at(states, unit, hidden, k, g) + (bias_at(bias, unit, hidden, g) + bias_at(bias, unit, hidden, k + g));
}

// What a step began with, of arrays that lie `distance` numbers apart.
FUNCTION NUMBER state_before(const NUMBER* first, const NUMBER* all, const Unit& unit, long long distance) {
    return unit.first ? first[unit.i] : all[unit.before * distance + unit.i];
}

#define UNIT(backward)                \
    const Divisor<int> divisor(width); \
    const long long hidden = divisor;  \
    const Unit unit = unit_of(i, units, divisor, alive, steps, reverse, step, backward)
#define SUM_AT(k, g) sum_at(inputs, states, bias, unit, units, hidden, k, g)

EACH(ox_device_lstm, i, units, const NUMBER* RESTRICT inputs, const NUMBER* RESTRICT states, const NUMBER* RESTRICT bias, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, NUMBER* y, const NUMBER* RESTRICT first_cell, NUMBER* RESTRICT gates, NUMBER* cells, long long y_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(false);
    const NUMBER old_cell = state_before(first_cell, cells, unit, units);
    LstmUnit<NUMBER> result = {0, 0, 0, 0, old_cell, 0};
    if (unit.alive) result = lstm_unit<NUMBER>(SUM_AT(4, 0), SUM_AT(4, 1), SUM_AT(4, 2), SUM_AT(4, 3), old_cell);
    NUMBER* gate = gates + unit.t * 4 * units + i;
    gate[0] = result.in;
    gate[units] = result.out;
    gate[2 * units] = result.keep;
    gate[3 * units] = result.fresh;
    cells[unit.t * units + i] = result.cell;
    y[unit.t * y_step + i] = unit.alive ? result.state : state_before(first_state, y, unit, y_step);
} END

EACH(ox_device_gru, i, units, const NUMBER* RESTRICT inputs, const NUMBER* RESTRICT states, const NUMBER* RESTRICT bias, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, NUMBER* y, NUMBER* RESTRICT gates, long long y_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(false);
    const NUMBER old_state = state_before(first_state, y, unit, y_step);
    GruUnit<NUMBER> result = {0, 0, 0, old_state};
    NUMBER product = 0;
    if (unit.alive) {
        product = product_at(states, unit, hidden, 3, 2) + bias_at(bias, unit, hidden, 5);
        const NUMBER fresh = product_at(inputs + unit.t * 3 * units, unit, hidden, 3, 2) + bias_at(bias, unit, hidden, 2);
        result = gru_unit<NUMBER>(SUM_AT(3, 0), SUM_AT(3, 1), fresh, product, old_state);
    }
    NUMBER* gate = gates + unit.t * 4 * units + i;
    gate[0] = result.update;
    gate[units] = result.reset;
    gate[2 * units] = result.fresh;
    gate[3 * units] = product;
    y[unit.t * y_step + i] = result.state;
} END

// A GRU whose reset gate multiplies the state before its product, as ONNX has it by default, in two kernels around that product:
// the gates z and r with `resets`, reset times state [units]; then n, from the `product` of `resets`, and the state.
EACH(ox_device_gru_gates, i, units, const NUMBER* RESTRICT inputs, const NUMBER* RESTRICT states, const NUMBER* RESTRICT bias, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, const NUMBER* y, NUMBER* RESTRICT gates, NUMBER* RESTRICT resets, long long y_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(false);
    const NUMBER old_state = state_before(first_state, y, unit, y_step);
    NUMBER results[2] = {0, 0};
    for (int g = 0; unit.alive && g < 2; g++)
        results[g] = ox_sigmoid(product_at(inputs + unit.t * 3 * units, unit, hidden, 3, g) + product_at(states, unit, hidden, 2, g) + (bias_at(bias, unit, hidden, g) + bias_at(bias, unit, hidden, 3 + g)));
    NUMBER* gate = gates + unit.t * 4 * units + i;
    gate[0] = results[0];
    gate[units] = results[1];
    gate[3 * units] = unit.alive ? old_state : (NUMBER)0;
    resets[i] = results[1] * old_state;
} END

EACH(ox_device_gru_state, i, units, const NUMBER* RESTRICT inputs, const NUMBER* RESTRICT product, const NUMBER* RESTRICT bias, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, NUMBER* y, NUMBER* RESTRICT gates, long long y_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(false);
    const NUMBER old_state = state_before(first_state, y, unit, y_step);
    NUMBER* gate = gates + unit.t * 4 * units + i;
    NUMBER fresh = 0, state = old_state;
    if (unit.alive) {
        fresh = ox_tanh(product_at(inputs + unit.t * 3 * units, unit, hidden, 3, 2) + product[i] + (bias_at(bias, unit, hidden, 2) + bias_at(bias, unit, hidden, 5)));
        state = (old_state - fresh) * gate[0] + fresh;
    }
    gate[2 * units] = fresh;
    y[unit.t * y_step + i] = state;
} END

EACH(ox_device_rnn, i, units, const NUMBER* RESTRICT inputs, const NUMBER* RESTRICT states, const NUMBER* RESTRICT bias, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, NUMBER* y, long long function, long long y_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(false);
    NUMBER* state = y + unit.t * y_step + i;
    if (!unit.alive) *state = state_before(first_state, y, unit, y_step);
    else if (function == TANH) *state = rnn_unit<TANH>(SUM_AT(1, 0));
    else if (function == RELU) *state = rnn_unit<RELU>(SUM_AT(1, 0));
    else *state = rnn_unit<SIGMOID>(SUM_AT(1, 0));
} END

// Backward, `to_state` has the cotangent of the states after a step, from later steps; y_gradient (or nullptr) has more of it.
// The kernels leave in it what reaches the states before without a product; the product of the slopes with the weights is
// then added. They write the cotangents of the sums of products to `slopes` [steps, samples, gates x hidden], and to
// `starts` [steps, units] the states that the steps began with.

FUNCTION NUMBER total_at(const NUMBER* to_state, const NUMBER* y_gradient, const Unit& unit, long long gradient_step) {
    return to_state[unit.i] + (y_gradient ? y_gradient[unit.t * gradient_step + unit.i] : (NUMBER)0);
}

FUNCTION NUMBER* slopes_of(NUMBER* slopes, const Unit& unit, long long units, long long hidden, int k) {
    return slopes + unit.t * k * units + unit.n * k * hidden + unit.u;
}

EACH(ox_device_lstm_backward, i, units, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, const NUMBER* RESTRICT y, const NUMBER* RESTRICT y_gradient, NUMBER* RESTRICT to_state, NUMBER* RESTRICT starts, NUMBER* RESTRICT slopes, const NUMBER* RESTRICT gates, const NUMBER* RESTRICT first_cell, const NUMBER* RESTRICT cells, NUMBER* RESTRICT to_cell, long long y_step, long long gradient_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(true);
    LstmSlope<NUMBER> result = {0, 0, 0, 0, 0};
    if (unit.alive) {
        const NUMBER* gate = gates + unit.t * 4 * units + i;
        result = lstm_slope<NUMBER>(gate[0], gate[units], gate[2 * units], gate[3 * units], cells[unit.t * units + i], state_before(first_cell, cells, unit, units), total_at(to_state, y_gradient, unit, gradient_step), to_cell[i]);
        to_cell[i] = result.old_cell;
        to_state[i] = 0;
    }
    NUMBER* slope = slopes_of(slopes, unit, units, hidden, 4);
    slope[0] = result.in;
    slope[hidden] = result.out;
    slope[2 * hidden] = result.keep;
    slope[3 * hidden] = result.fresh;
    starts[unit.t * units + i] = unit.alive ? state_before(first_state, y, unit, y_step) : (NUMBER)0;
} END

// With `slopes` of the products with the inputs, and `state_slopes` of those with the states.
EACH(ox_device_gru_backward, i, units, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, const NUMBER* RESTRICT y, const NUMBER* RESTRICT y_gradient, NUMBER* RESTRICT to_state, NUMBER* RESTRICT starts, NUMBER* RESTRICT slopes, NUMBER* RESTRICT state_slopes, const NUMBER* RESTRICT gates, long long y_step, long long gradient_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(true);
    GruSlope<NUMBER> result = {0, 0, 0, 0, 0};
    const NUMBER old_state = unit.alive ? state_before(first_state, y, unit, y_step) : (NUMBER)0;
    if (unit.alive) {
        const NUMBER* gate = gates + unit.t * 4 * units + i;
        result = gru_slope<NUMBER>(gate[0], gate[units], gate[2 * units], gate[3 * units], old_state, total_at(to_state, y_gradient, unit, gradient_step));
        to_state[i] = result.old_state;
    }
    NUMBER *slope = slopes_of(slopes, unit, units, hidden, 3), *state_slope = slopes_of(state_slopes, unit, units, hidden, 3);
    slope[0] = state_slope[0] = result.update;
    slope[hidden] = state_slope[hidden] = result.reset;
    slope[2 * hidden] = result.fresh;
    state_slope[2 * hidden] = result.product;
    starts[unit.t * units + i] = old_state;
} END

// Of a GRU whose reset gate multiplies the state before its product: the slopes of z and n, and `resets` [steps, units], reset
// times state; then that of r, from the `product` of the slopes of n with their weights.
EACH(ox_device_gru_state_backward, i, units, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, const NUMBER* RESTRICT y, const NUMBER* RESTRICT y_gradient, NUMBER* RESTRICT to_state, NUMBER* RESTRICT starts, NUMBER* RESTRICT slopes, const NUMBER* RESTRICT gates, NUMBER* RESTRICT resets, long long y_step, long long gradient_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(true);
    const NUMBER old_state = unit.alive ? state_before(first_state, y, unit, y_step) : (NUMBER)0;
    const NUMBER* gate = gates + unit.t * 4 * units + i;
    const NUMBER update = gate[0], fresh = gate[2 * units];
    NUMBER to_update = 0, to_fresh = 0;
    if (unit.alive) {
        const NUMBER total = total_at(to_state, y_gradient, unit, gradient_step);
        to_update = total * (old_state - fresh) * update * ((NUMBER)1 - update);
        to_fresh = total * ((NUMBER)1 - update) * ((NUMBER)1 - fresh * fresh);
        to_state[i] = total * update;
    }
    NUMBER* slope = slopes_of(slopes, unit, units, hidden, 3);
    slope[0] = to_update;
    slope[2 * hidden] = to_fresh;
    starts[unit.t * units + i] = old_state;
    resets[unit.t * units + i] = unit.alive ? gate[units] * old_state : (NUMBER)0;
} END

EACH(ox_device_gru_gates_backward, i, units, const bool* RESTRICT alive, const NUMBER* RESTRICT product, NUMBER* RESTRICT to_state, NUMBER* RESTRICT slopes, const NUMBER* RESTRICT gates, long long width, long long steps, long long reverse, long long step) {
    UNIT(true);
    const NUMBER* gate = gates + unit.t * 4 * units + i;
    const NUMBER reset = gate[units];
    slopes_of(slopes, unit, units, hidden, 3)[hidden] = unit.alive ? product[i] * gate[3 * units] * reset * ((NUMBER)1 - reset) : (NUMBER)0;
    if (unit.alive) to_state[i] += product[i] * reset;
} END

EACH(ox_device_rnn_backward, i, units, const bool* RESTRICT alive, const NUMBER* RESTRICT first_state, const NUMBER* RESTRICT y, const NUMBER* RESTRICT y_gradient, NUMBER* RESTRICT to_state, NUMBER* RESTRICT starts, NUMBER* RESTRICT slopes, long long function, long long y_step, long long gradient_step, long long width, long long steps, long long reverse, long long step) {
    UNIT(true);
    NUMBER result = 0;
    if (unit.alive) {
        const NUMBER state = y[unit.t * y_step + i], total = total_at(to_state, y_gradient, unit, gradient_step);
        if (function == TANH) result = rnn_slope<TANH>(state, total);
        else if (function == RELU) result = rnn_slope<RELU>(state, total);
        else result = rnn_slope<SIGMOID>(state, total);
        to_state[i] = 0;
    }
    *slopes_of(slopes, unit, units, hidden, 1) = result;
    starts[unit.t * units + i] = unit.alive ? state_before(first_state, y, unit, y_step) : (NUMBER)0;
} END
