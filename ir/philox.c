/* philox.c -- Philox 4x32-10: random numbers as a function of a counter.
 *
 * No state, so a part of a tensor draws what the whole would have drawn at
 * the same global index.  Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC11. */
#include "ir/eval.h"

static void turn(uint32_t c[4], const uint32_t k[2])
{
    uint64_t p = (uint64_t)0xD2511F53 * c[0];
    uint64_t q = (uint64_t)0xCD9E8D57 * c[2];

    c[0] = (uint32_t)(q >> 32) ^ c[1] ^ k[0];
    c[2] = (uint32_t)(p >> 32) ^ c[3] ^ k[1];
    c[1] = (uint32_t)q;
    c[3] = (uint32_t)p;
}

void philox(uint32_t out[4], const uint32_t ctr[4], const uint32_t key[2])
{
    uint32_t k[2] = { key[0], key[1] };

    memcpy(out, ctr, 4 * sizeof *out);
    for (int i = 0; i < 10; i++) {
        turn(out, k);
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
}
