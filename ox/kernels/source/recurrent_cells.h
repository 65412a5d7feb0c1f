// The formulas of one unit of LSTM, GRU and a plain RNN at one step, and their derivatives: of float, on a GPU also of double.
// A unit gets the sums of the products with inputs and states and of the biases.
#pragma once
#include "float_math.h"

// Gates as ONNX has them: i, o, f and c.
template <class C> struct LstmUnit {
    C in, out, keep, fresh, cell, state;
};

template <class C> FUNCTION LstmUnit<C> lstm_unit(C to_in, C to_out, C to_keep, C to_fresh, C old_cell) {
    const C in = ox_sigmoid(to_in), out = ox_sigmoid(to_out), keep = ox_sigmoid(to_keep), fresh = ox_tanh(to_fresh);
    const C cell = keep * old_cell + in * fresh;
    return {in, out, keep, fresh, cell, out * ox_tanh(cell)};
}

// Cotangents of the sums, and of the cell before.
template <class C> struct LstmSlope {
    C in, out, keep, fresh, old_cell;
};

template <class C> FUNCTION LstmSlope<C> lstm_slope(C in, C out, C keep, C fresh, C cell, C old_cell, C to_state, C to_cell) {
    const C squashed = ox_tanh(cell);
    const C value = to_cell + to_state * out * ((C)1 - squashed * squashed);
    return {value * fresh * in * ((C)1 - in), to_state * squashed * out * ((C)1 - out), value * old_cell * keep * ((C)1 - keep),
            value * in * ((C)1 - fresh * fresh), value * keep};
}

// A GRU whose reset gate multiplies the product with the state and its bias, as PyTorch and cuDNN have it: gates z, r and n.
template <class C> struct GruUnit {
    C update, reset, fresh, state;
};

template <class C> FUNCTION GruUnit<C> gru_unit(C to_update, C to_reset, C to_fresh, C product, C old_state) {
    const C update = ox_sigmoid(to_update), reset = ox_sigmoid(to_reset), fresh = ox_tanh(to_fresh + reset * product);
    return {update, reset, fresh, (old_state - fresh) * update + fresh};
}

// Cotangents of the sums (`fresh` without the product that reset multiplies), of that product, and of the state before as
// far as it comes without a product.
template <class C> struct GruSlope {
    C update, reset, fresh, product, old_state;
};

template <class C> FUNCTION GruSlope<C> gru_slope(C update, C reset, C fresh, C product, C old_state, C to_state) {
    const C through = to_state * ((C)1 - update) * ((C)1 - fresh * fresh);
    return {to_state * (old_state - fresh) * update * ((C)1 - update), through * product * reset * ((C)1 - reset), through,
            through * reset, to_state * update};
}

enum RnnFunction : long long { TANH, RELU, SIGMOID };

template <RnnFunction F, class C> FUNCTION C rnn_unit(C sum) {
    if (F == TANH) return ox_tanh(sum);
    if (F == RELU) return sum < (C)0 ? (C)0 : sum;
    return ox_sigmoid(sum);
}

template <RnnFunction F, class C> FUNCTION C rnn_slope(C state, C to_state) {
    if (F == TANH) return to_state * ((C)1 - state * state);
    if (F == RELU) return to_state * (state > (C)0 ? (C)1 : (C)0);
    return to_state * (state * ((C)1 - state));
}
