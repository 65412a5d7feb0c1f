// Random numbers in [0, 1), and dropout by them.
#include "philox.h"

// The first `count` of 4 blocks of numbers in [0, 1).
FUNCTION void draw_uniform(Words words, long long i, long long blocks, float* RESTRICT output, long long count) {
    output[i] = to_unit(words.a);
    if (i + blocks < count) output[i + blocks] = to_unit(words.b);
    if (i + 2 * blocks < count) output[i + 2 * blocks] = to_unit(words.c);
    if (i + 3 * blocks < count) output[i + 3 * blocks] = to_unit(words.d);
}

EACH(ox_random_uniform, i, blocks, float* RESTRICT output, long long key, long long counter, long long count) {
    draw_uniform(philox(key, counter + i), i, blocks, output, count);
} END

// Each element times `scale`, or times 0 where its number is below `p`.
EACH(ox_dropout, i, blocks, const float* RESTRICT input, float* RESTRICT output, long long key, long long counter, float p, float scale, long long count) {
    Words words = philox(key, counter + i);
    output[i] = input[i] * (to_unit(words.a) >= p ? scale : 0.0f);
    if (i + blocks < count) output[i + blocks] = input[i + blocks] * (to_unit(words.b) >= p ? scale : 0.0f);
    if (i + 2 * blocks < count) output[i + 2 * blocks] = input[i + 2 * blocks] * (to_unit(words.c) >= p ? scale : 0.0f);
    if (i + 3 * blocks < count) output[i + 3 * blocks] = input[i + 3 * blocks] * (to_unit(words.d) >= p ? scale : 0.0f);
} END
