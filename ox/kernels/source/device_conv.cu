// Convolutions: data unfolded into columns and columns added up again, for products; and, for groups, each output by a
// thread. Sums are of COMPUTED, in a fixed order.
#include "device_windows.h"

// Images x [N, C, ...] to columns, of which row c * taps + tap has what a tap of a channel meets at all places. Columns
// are [N, C * taps, places], or [C * taps, N, places] without images_first.
EACH(ox_device_unfold, i, count, const NUMBER* RESTRICT x, NUMBER* RESTRICT columns, long long images_first, long long images, long long channels, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE P = product(w.places), taps = product(w.kernel), K = (PLACE)channels * taps, rest = (PLACE)i / P;
    const PLACE row = images_first ? rest % K : rest / (PLACE)images, n = images_first ? rest / K : rest % (PLACE)images;
    const PLACE at = met(w, split((PLACE)i % P, w.places), split(row % taps, w.kernel));
    columns[i] = at < 0 ? (NUMBER)0 : x[(n * (PLACE)channels + row / taps) * product(w.size) + at];
} END

// Columns [N, C * taps, places] added up where they came from, plus a bias (or nullptr): images [N, C, ...].
EACH(ox_device_fold, i, count, const NUMBER* RESTRICT columns, const NUMBER* RESTRICT bias, NUMBER* RESTRICT y, long long channels, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE P = product(w.places), S = product(w.size), image = (PLACE)i / S;
    const Place element = split((PLACE)i % S, w.size);
    const NUMBER* column = columns + image * product(w.kernel) * (long long)P;
    COMPUTED sum = bias ? LOAD(bias[image % (PLACE)channels]) : (COMPUTED)0;
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
    const PLACE P = product(w.places), S = product(w.size), channels = (PLACE)(groups * outputs);
    const PLACE m = (PLACE)i / P % channels, n = (PLACE)i / P / channels;
    const Place place = split((PLACE)i % P, w.places);
    const NUMBER *data = x + (n * (PLACE)groups + m / (PLACE)outputs) * (PLACE)inputs * (long long)S, *weight = weights + m * (PLACE)inputs * (long long)product(w.kernel);
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
    const PLACE P = product(w.places), S = product(w.size), taps = product(w.kernel), channels = (PLACE)(groups * outputs);
    const PLACE m = (PLACE)i / S % channels, n = (PLACE)i / S / channels, group = m / (PLACE)outputs;
    const Place element = split((PLACE)i % S, w.size);
    const NUMBER *data = x + (n * (PLACE)groups + group) * (PLACE)inputs * (long long)P, *weight = weights + (group * (PLACE)inputs * (PLACE)outputs + m % (PLACE)outputs) * (long long)taps;
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
    const PLACE P = product(w.places), S = product(w.size), taps = product(w.kernel);
    const PLACE m = (PLACE)r / taps / (PLACE)inputs, c = m / (PLACE)outputs * (PLACE)inputs + (PLACE)r / taps % (PLACE)inputs;
    const Place tap = split((PLACE)r % taps, w.kernel);
    COMPUTED sum = 0;
    COLUMNS(k, (PLACE)images * P) {
        const PLACE n = (PLACE)k / P, p = (PLACE)k % P, at = met(w, split(p, w.places), tap);
        if (at >= 0) sum += LOAD(x[(n * (PLACE)(groups * inputs) + c) * S + at]) * LOAD(g[(n * (PLACE)(groups * outputs) + m) * P + p]);
    }
    for (int distance = 16; distance; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
    if ((threadIdx.x & 31) == 0) result[r] = STORE(sum);
} END
