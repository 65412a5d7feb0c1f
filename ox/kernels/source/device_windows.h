// Where a window of taps stands, in three spatial dimensions (fewer have sizes of 1 in front). PLACE counts elements: int,
// or long long for arrays of 2^31 elements and more.
#pragma once
#include "device_numbers.h"
#include "division.h"

struct Window {
    Divisor<PLACE> size[3], places[3], kernel[3], stride[3];
    PLACE dilation[3], pad[3];  // pad: before the data
};

#define WINDOW_NUMBERS                                                                                               \
    long long n0, long long n1, long long n2, long long p0, long long p1, long long p2, long long k0, long long k1,  \
        long long k2, long long s0, long long s1, long long s2, long long d0, long long d1, long long d2,            \
        long long b0, long long b1, long long b2
#define THREE(n) {Divisor<PLACE>(n##0), Divisor<PLACE>(n##1), Divisor<PLACE>(n##2)}
#define WINDOW                                                                                              \
    Window {                                                                                                \
        THREE(n), THREE(p), THREE(k), THREE(s), {(PLACE)d0, (PLACE)d1, (PLACE)d2}, {(PLACE)b0, (PLACE)b1, (PLACE)b2} \
    }

struct Place {
    PLACE at[3];
};

FUNCTION PLACE product(const Divisor<PLACE>* numbers) { return numbers[0] * numbers[1] * numbers[2]; }

// The place of an element of the last three dimensions; `number` becomes that of these three among others.
FUNCTION Place split(PLACE& number, const Divisor<PLACE>* sizes) {
    Place place;
    for (int d = 2; d >= 0; d--) place.at[d] = split_off(number, sizes[d]);
    return place;
}

FUNCTION PLACE flat(const Place& place, const Divisor<PLACE>* sizes) { return (place.at[0] * sizes[1] + place.at[1]) * sizes[2] + place.at[2]; }

// What a tap meets at a place of the window; -1 outside of the data.
FUNCTION PLACE met(const Window& w, const Place& place, const Place& tap) {
    Place at;
    for (int d = 0; d < 3; d++) {
        at.at[d] = place.at[d] * w.stride[d] + tap.at[d] * w.dilation[d] - w.pad[d];
        if (at.at[d] < 0 || at.at[d] >= w.size[d]) return -1;
    }
    return flat(at, w.size);
}

// Whether there is a place of the window at which a tap meets an element.
FUNCTION bool meets(const Window& w, const Place& element, const Place& tap, Place& place) {
    for (int d = 0; d < 3; d++) {
        PLACE moved = element.at[d] + w.pad[d] - tap.at[d] * w.dilation[d];
        if (moved < 0 || split_off(moved, w.stride[d]) || moved >= w.places[d]) return false;
        place.at[d] = moved;
    }
    return true;
}

// That place; -1 where there is none.
FUNCTION PLACE meeting(const Window& w, const Place& element, const Place& tap) {
    Place place;
    return meets(w, element, tap, place) ? flat(place, w.places) : -1;
}

#define TAPS(tap, sizes)                                  \
    for (Place tap = {}; tap.at[0] < (sizes)[0]; tap.at[0]++) \
        for (tap.at[1] = 0; tap.at[1] < (sizes)[1]; tap.at[1]++) \
            for (tap.at[2] = 0; tap.at[2] < (sizes)[2]; tap.at[2]++)
