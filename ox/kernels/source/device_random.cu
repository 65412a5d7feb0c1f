// Random numbers on a GPU, with the bits of random.cu; normal ones by Box and Muller in double.
#include "device_numbers.h"
#include "random.cu"

FUNCTION void draw_normal(Words words, long long i, long long blocks, float* RESTRICT output, long long count) {
    double first = sqrt(log(((double)words.a + 0.5) * 2.3283064365386963e-10) * -2.0), along = (double)words.b * 1.4629180792671596e-09;
    double second = sqrt(log(((double)words.c + 0.5) * 2.3283064365386963e-10) * -2.0), across = (double)words.d * 1.4629180792671596e-09;
    output[i] = (float)(first * cos(along));
    if (i + blocks < count) output[i + blocks] = (float)(second * cos(across));
    if (i + 2 * blocks < count) output[i + 2 * blocks] = (float)(first * sin(along));
    if (i + 3 * blocks < count) output[i + 3 * blocks] = (float)(second * sin(across));
}

EACH(ox_device_random_normal, i, blocks, float* RESTRICT output, long long key, long long counter, long long count) {
    draw_normal(philox(key, counter + i), i, blocks, output, count);
} END

FUNCTION void drop(Words words, long long i, long long blocks, const NUMBER* RESTRICT input, NUMBER* RESTRICT output, float p, float scale, long long count) {
    const unsigned drawn[4] = {words.a, words.b, words.c, words.d};
    for (int part = 0; part < 4; part++) {
        const long long k = i + part * blocks;
        if (k < count) output[k] = STORE(LOAD(input[k]) * (to_unit(drawn[part]) >= p ? scale : 0.0f));
    }
}

EACH(ox_device_dropout, i, blocks, const NUMBER* RESTRICT input, NUMBER* RESTRICT output, long long key, long long counter, float p, float scale, long long count) {
    drop(philox(key, counter + i), i, blocks, input, output, p, scale, count);
} END

// The same with key and counter in device memory: a CUDA graph reads those of each launch.

EACH(ox_dropout_by_device_key, i, blocks, const NUMBER* RESTRICT input, NUMBER* RESTRICT output, const long long* RESTRICT key, const long long* RESTRICT counter, float p, float scale, long long count) {
    drop(philox(*key, *counter + i), i, blocks, input, output, p, scale, count);
} END

EACH(ox_uniform_by_device_key, i, blocks, float* RESTRICT output, const long long* RESTRICT key, const long long* RESTRICT counter, long long* RESTRICT next, long long count) {
    draw_uniform(philox(*key, *counter + i), i, blocks, output, count);
    if (i == 0) *next = *counter + blocks;
} END

EACH(ox_normal_by_device_key, i, blocks, float* RESTRICT output, const long long* RESTRICT key, const long long* RESTRICT counter, long long* RESTRICT next, long long count) {
    draw_normal(philox(*key, *counter + i), i, blocks, output, count);
    if (i == 0) *next = *counter + blocks;
} END
