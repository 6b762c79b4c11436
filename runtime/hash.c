/* hash.c -- XXH3-128 of a stream, as 32 letters of hex.
 *
 * The library is used as a header, so that a trained binary links one thing
 * less.  Hex is canonical (big endian): what `xxhsum -H2` prints. */
#include "runtime/hash.h"

#include <stdio.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct DpcHash { XXH3_state_t *state; };

DpcHash *dpc_hash_open(void)
{
    DpcHash *h = malloc(sizeof *h);
    if (h && !(h->state = XXH3_createState())) {
        free(h);
        h = NULL;
    }
    if (h)
        dpc_hash_reset(h);
    return h;
}

void dpc_hash_close(DpcHash *h)
{
    if (h)
        XXH3_freeState(h->state);
    free(h);
}

void dpc_hash_reset(DpcHash *h) { XXH3_128bits_reset(h->state); }

void dpc_hash_add(DpcHash *h, const void *p, size_t n)
{
    XXH3_128bits_update(h->state, p, n);
}

void dpc_hash_hex(const DpcHash *h, char hex[DPC_HASH])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits_digest(h->state));
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", c.digest[i]);
}
