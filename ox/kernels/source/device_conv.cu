// Convolutions: data unfolded into columns and columns added up again, for products; and, for groups, each output by a
// thread. Sums are of COMPUTED, in a fixed order.
#include "device_windows.h"

// Images x [N, C, ...] to columns, of which row c * taps + tap has what a tap of a channel meets at all places. Columns
// are [N, C * taps, places], or [C * taps, N, places] where `images` is N and not 0. A thread does VECTOR of them, which the
// last dimension of the places has `vectors` times.
EACH(ox_device_unfold, i, count, const NUMBER* RESTRICT x, Vector<NUMBER, VECTOR>* RESTRICT columns, long long images, long long channels, long long vectors, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    PLACE rest = (PLACE)i;
    Place place;
    place.at[2] = split_off(rest, Divisor<PLACE>(vectors)) * VECTOR;
    for (int d = 1; d >= 0; d--) place.at[d] = split_off(rest, w.places[d]);
    const PLACE n = images ? split_off(rest, Divisor<PLACE>(images)) : 0;
    const Place tap = split(rest, w.kernel);  // what is left is the channel, and the image where these are first
    const NUMBER* data = x + (n * (PLACE)channels + rest) * (long long)product(w.size);
    Vector<NUMBER, VECTOR> column;
    for (int v = 0; v < VECTOR; v++, place.at[2]++) {
        const PLACE at = met(w, place, tap);
        column.at[v] = at < 0 ? (NUMBER)0 : data[at];
    }
    columns[i] = column;
} END

// Columns [N, C * taps, places] added up where they came from, plus a bias (or nullptr): images [N, C, ...].
EACH(ox_device_fold, i, count, const NUMBER* RESTRICT columns, const NUMBER* RESTRICT bias, NUMBER* RESTRICT y, long long channels, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE P = product(w.places);
    PLACE image = (PLACE)i;
    const Place element = split(image, w.size);
    const NUMBER* column = columns + image * product(w.kernel) * (long long)P;
    COMPUTED sum = bias ? LOAD(bias[split_off(image, Divisor<PLACE>(channels))]) : (COMPUTED)0;
    TAPS(tap, w.kernel) {
        const PLACE at = meeting(w, element, tap);
        if (at >= 0) sum += LOAD(column[at]);
        column += P;
    }
    y[i] = STORE(sum);
} END

// x [N, groups * inputs, ...] with weights [groups * outputs, inputs, ...], plus a bias (or nullptr).
EACH(ox_device_grouped_conv, i, count, const NUMBER* RESTRICT x, const NUMBER* RESTRICT weights, const NUMBER* RESTRICT bias, NUMBER* RESTRICT y, long long groups, long long inputs, long long outputs, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE S = product(w.size);
    PLACE row = (PLACE)i;  // of the groups of the images
    const Place place = split(row, w.places);
    const PLACE output = split_off(row, Divisor<PLACE>(outputs));
    const NUMBER* data = x + row * (PLACE)inputs * (long long)S;
    const PLACE m = split_off(row, Divisor<PLACE>(groups)) * (PLACE)outputs + output;
    const NUMBER* weight = weights + m * (PLACE)inputs * (long long)product(w.kernel);
    COMPUTED sum = bias ? LOAD(bias[m]) : (COMPUTED)0;
    for (PLACE c = 0; c < (PLACE)inputs; c++, data += S) {
        TAPS(tap, w.kernel) {
            const PLACE at = met(w, place, tap);
            if (at >= 0) sum += LOAD(data[at]) * LOAD(*weight);
            weight++;
        }
    }
    y[i] = STORE(sum);
} END

// The transpose: x [N, groups * inputs, places] with weights [groups * inputs, outputs, ...] gives y [N, groups *
// outputs, sizes], plus a bias (or nullptr).
EACH(ox_device_grouped_conv_transpose, i, count, const NUMBER* RESTRICT x, const NUMBER* RESTRICT weights, const NUMBER* RESTRICT bias, NUMBER* RESTRICT y, long long groups, long long inputs, long long outputs, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE P = product(w.places), taps = product(w.kernel);
    PLACE row = (PLACE)i;  // of the groups of the images
    const Place element = split(row, w.size);
    const PLACE output = split_off(row, Divisor<PLACE>(outputs));
    const NUMBER* data = x + row * (PLACE)inputs * (long long)P;
    const PLACE group = split_off(row, Divisor<PLACE>(groups)), m = group * (PLACE)outputs + output;
    const NUMBER* weight = weights + (group * (PLACE)inputs * (PLACE)outputs + output) * (long long)taps;
    COMPUTED sum = bias ? LOAD(bias[m]) : (COMPUTED)0;
    PLACE number = 0;
    TAPS(tap, w.kernel) {
        const PLACE at = meeting(w, element, tap);
        if (at >= 0) {
            for (PLACE c = 0; c < (PLACE)inputs; c++) sum += LOAD(data[c * P + at]) * LOAD(weight[c * (PLACE)outputs * (long long)taps + number]);
        }
        number++;
    }
    y[i] = STORE(sum);
} END

// The gradient of weights [groups * outputs, inputs, ...] from x [N, groups * inputs, ...] and g [N, groups * outputs,
// places]: a warp does an element.
ROWS(ox_device_grouped_conv_weights, r, rows, warp, const NUMBER* RESTRICT x, const NUMBER* RESTRICT g, NUMBER* RESTRICT result, long long images, long long groups, long long inputs, long long outputs, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE P = product(w.places), S = product(w.size), X = (PLACE)groups * (PLACE)inputs, Y = (PLACE)groups * (PLACE)outputs;
    PLACE m = (PLACE)r;
    const Place tap = split(m, w.kernel);
    const PLACE input = split_off(m, Divisor<PLACE>(inputs)), c = Divisor<PLACE>(outputs).divide(m) * (PLACE)inputs + input;
    COMPUTED sum = 0;
    COLUMNS(k, (PLACE)images * P) {
        PLACE n = (PLACE)k;
        const Place place = split(n, w.places);
        const PLACE at = met(w, place, tap);
        if (at >= 0) sum += LOAD(x[(n * X + c) * S + at]) * LOAD(g[(n * Y + m) * P + flat(place, w.places)]);
    }
    for (int distance = 16; distance; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
    if ((threadIdx.x & 31) == 0) result[r] = STORE(sum);
} END
