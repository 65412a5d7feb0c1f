// Random numbers on a GPU, with the bits of random.cu; normal ones by Box and Muller in double.
#include "device_numbers.h"
#include "random.cu"

EACH(ox_device_random_normal, i, blocks, float* RESTRICT output, long long key, long long counter, long long count) {
    Words words = philox(key, counter + i);
    double first = sqrt(log(((double)words.a + 0.5) * 2.3283064365386963e-10) * -2.0), along = (double)words.b * 1.4629180792671596e-09;
    double second = sqrt(log(((double)words.c + 0.5) * 2.3283064365386963e-10) * -2.0), across = (double)words.d * 1.4629180792671596e-09;
    output[i] = (float)(first * cos(along));
    if (i + blocks < count) output[i + blocks] = (float)(second * cos(across));
    if (i + 2 * blocks < count) output[i + 2 * blocks] = (float)(first * sin(along));
    if (i + 3 * blocks < count) output[i + 3 * blocks] = (float)(second * sin(across));
} END

EACH(ox_device_dropout, i, blocks, const NUMBER* RESTRICT input, NUMBER* RESTRICT output, long long key, long long counter, float p, float scale, long long count) {
    Words words = philox(key, counter + i);
    const unsigned drawn[4] = {words.a, words.b, words.c, words.d};
    for (int part = 0; part < 4; part++) {
        const long long k = i + part * blocks;
        if (k < count) output[k] = STORE(LOAD(input[k]) * (to_unit(drawn[part]) >= p ? scale : 0.0f));
    }
} END
