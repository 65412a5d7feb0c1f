// Philox 4x32-10 (Salmon and others, 2011): four words of 32 bits from a key and a counter, as ox/ops/random/philox.py has
// them. Block i of a call draws the numbers i, i + blocks, i + 2 blocks and i + 3 blocks.

struct Words {
    unsigned a, b, c, d;
};

FUNCTION Words philox(unsigned long long key, unsigned long long place) {
    unsigned a = (unsigned)place, b = (unsigned)(place >> 32), c = 0, d = 0;
    unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        unsigned long long p0 = (unsigned long long)a * 0xD2511F53u, p1 = (unsigned long long)c * 0xCD9E8D57u;
        a = (unsigned)(p1 >> 32) ^ b ^ k0;
        c = (unsigned)(p0 >> 32) ^ d ^ k1;
        b = (unsigned)p1;
        d = (unsigned)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {a, b, c, d};
}

FUNCTION float to_unit(unsigned word) { return (float)(int)(word >> 8) * 5.9604644775390625e-08f; }

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
