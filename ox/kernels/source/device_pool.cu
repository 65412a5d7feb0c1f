// Pools and their gradients. Each output is a thread's, so that sums have a fixed order.
#include "device_windows.h"

FUNCTION PLACE clipped(PLACE at, PLACE size) { return at < 0 ? 0 : at < size ? at : size - 1; }

// The largest value under the window; NaN is larger than all, and of equals the first counts. `indices` (or nullptr) takes
// its place in the flattened x; a place in the pads is that of the nearest element.
EACH(ox_device_max_pool, i, count, const NUMBER* RESTRICT x, NUMBER* RESTRICT y, long long* RESTRICT indices, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE S = product(w.size);
    PLACE image = (PLACE)i;
    const Place place = split(image, w.places);
    const NUMBER* data = x + image * (long long)S;
    COMPUTED best = 0;
    PLACE chosen = -1;
    TAPS(tap, w.kernel) {
        PLACE at = met(w, place, tap);
        const COMPUTED value = at < 0 ? (COMPUTED)-INFINITY : (COMPUTED)LOAD(data[at]);
        if (chosen >= 0 && !(value > best) && !(value != value && best == best)) continue;
        if (at < 0) {
            Place near;
            for (int d = 0; d < 3; d++) near.at[d] = clipped(place.at[d] * w.stride[d] + tap.at[d] * w.dilation[d] - w.pad[d], w.size[d]);
            at = flat(near, w.size);
        }
        best = value;
        chosen = at;
    }
    y[i] = STORE(best);
    if (indices) indices[i] = image * (long long)S + chosen;
} END

// The gradient of x [images, ...]: the sum of those g whose index it is. A window reaches over `kernel` elements here, and
// the elements at the borders also stand for the pads beside them.
EACH(ox_device_max_pool_backward, i, count, const NUMBER* RESTRICT g, const long long* RESTRICT indices, NUMBER* RESTRICT result, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    PLACE image = (PLACE)i;
    const Place element = split(image, w.size);
    const long long first = image * (long long)product(w.places);
    PLACE low[3], high[3];
    for (int d = 0; d < 3; d++) {
        const PLACE end = element.at[d] + w.pad[d], begin = end - w.kernel[d] + 1;
        low[d] = element.at[d] == 0 || begin <= 0 ? 0 : w.stride[d].divide(begin + w.stride[d] - 1);
        high[d] = end < 0 ? -1 : w.stride[d].divide(end);
        if (element.at[d] == w.size[d] - 1 || high[d] >= w.places[d]) high[d] = w.places[d] - 1;
    }
    COMPUTED sum = 0;
    Place place;
    for (place.at[0] = low[0]; place.at[0] <= high[0]; place.at[0]++)
        for (place.at[1] = low[1]; place.at[1] <= high[1]; place.at[1]++)
            for (place.at[2] = low[2]; place.at[2] <= high[2]; place.at[2]++) {
                const long long at = first + flat(place, w.places);
                if (indices[at] == i) sum += LOAD(g[at]);
            }
    result[i] = STORE(sum);
} END

// How many taps of a window count: those from `from` up to `to` in each dimension.
FUNCTION PLACE taps_between(const Window& w, const Place& place, const PLACE* from, const PLACE* to) {
    PLACE made = 1;
    for (int d = 0; d < 3; d++) {
        PLACE inside = 0;
        for (PLACE t = 0; t < w.kernel[d]; t++) {
            const PLACE at = place.at[d] * w.stride[d] + t * w.dilation[d] - w.pad[d];
            inside += at >= from[d] && at < to[d];
        }
        made *= inside > 1 ? inside : 1;
    }
    return made;
}

#define COUNTED long long f0, long long f1, long long f2, long long t0, long long t1, long long t2

EACH(ox_device_average_pool, i, count, const NUMBER* RESTRICT x, NUMBER* RESTRICT y, COUNTED, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE from[3] = {(PLACE)f0, (PLACE)f1, (PLACE)f2}, to[3] = {(PLACE)t0, (PLACE)t1, (PLACE)t2};
    PLACE image = (PLACE)i;
    const Place place = split(image, w.places);
    const NUMBER* data = x + image * (long long)product(w.size);
    COMPUTED sum = 0;
    TAPS(tap, w.kernel) {
        const PLACE at = met(w, place, tap);
        if (at >= 0) sum += LOAD(data[at]);
    }
    y[i] = STORE(sum / (COMPUTED)taps_between(w, place, from, to));
} END

EACH(ox_device_average_pool_backward, i, count, const NUMBER* RESTRICT g, NUMBER* RESTRICT result, COUNTED, WINDOW_NUMBERS) {
    const Window w = WINDOW;
    const PLACE from[3] = {(PLACE)f0, (PLACE)f1, (PLACE)f2}, to[3] = {(PLACE)t0, (PLACE)t1, (PLACE)t2};
    PLACE image = (PLACE)i;
    const Place element = split(image, w.size);
    const NUMBER* gradients = g + image * (long long)product(w.places);
    COMPUTED sum = 0;
    TAPS(tap, w.kernel) {
        Place place;
        if (meets(w, element, tap, place)) sum += LOAD(gradients[flat(place, w.places)]) / (COMPUTED)taps_between(w, place, from, to);
    }
    result[i] = STORE(sum);
} END
