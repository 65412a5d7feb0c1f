// Philox 4x32-10 (Salmon and others, 2011): four words of 32 bits from a key and a counter, as ox/ops/random/philox.py has
// them. Block i of a call draws the numbers i, i + blocks, i + 2 blocks and i + 3 blocks.
#pragma once

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
