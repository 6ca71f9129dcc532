/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <stddef.h>

enum { N = 624, M = 397 };

void trl_mt_seed(struct trl_mt *g, uint64_t seed)
{
    g->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < N; i++)
        g->state[i] = 1812433253u * (g->state[i - 1] ^ (g->state[i - 1] >> 30)) + i;
    g->index = N;
}

static void mt_refill(struct trl_mt *g)
{
    uint32_t *s = g->state;
    for (int i = 0; i < N; i++) {
        uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
        s[i] = s[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    g->index = 0;
}

uint32_t trl_mt_next(struct trl_mt *g)
{
    if (g->index >= N)
        mt_refill(g);
    uint32_t y = g->state[g->index++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

float trl_mt_uniform(struct trl_mt *g)
{
    return (float)(trl_mt_next(g) & 0xFFFFFF) * 0x1p-24f;
}

void trl_mt_permutation(struct trl_mt *g, int64_t *ret, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ret[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t z = (int64_t)(trl_mt_next(g) % (uint64_t)(n - i));
        int64_t t = ret[i];
        ret[i] = ret[i + z];
        ret[i + z] = t;
    }
}

/* numpy SeedSequence(seed).generate_state(4, uint64): pool of 4 words, hash constants of the reference. */
static uint32_t ss_hash(uint32_t value, uint32_t *hash_const)
{
    value ^= *hash_const;
    *hash_const *= 0x931e8875u;
    value *= *hash_const;
    return value ^ (value >> 16);
}

static uint32_t ss_mix(uint32_t x, uint32_t y)
{
    uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ (r >> 16);
}

static void seed_sequence(uint64_t seed, uint64_t ret[4])
{
    uint32_t entropy[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    size_t n_entropy = entropy[1] ? 2 : 1;
    uint32_t pool[4], hc = 0x43b0d7e5u;
    for (size_t i = 0; i < 4; i++)
        pool[i] = ss_hash(i < n_entropy ? entropy[i] : 0, &hc);
    for (size_t src = 0; src < 4; src++)
        for (size_t dst = 0; dst < 4; dst++)
            if (src != dst)
                pool[dst] = ss_mix(pool[dst], ss_hash(pool[src], &hc));
    uint32_t hb = 0x8b51f9ddu, words[8];
    for (size_t i = 0; i < 8; i++) {
        uint32_t v = pool[i % 4] ^ hb;
        hb *= 0x58f38dedu;
        v *= hb;
        words[i] = v ^ (v >> 16);
    }
    for (size_t i = 0; i < 4; i++)
        ret[i] = (uint64_t)words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
}

static void pcg_step(struct trl_pcg64 *g)
{
    const unsigned __int128 mul = ((unsigned __int128)2549297995355413924ULL << 64) + 4865540595714422341ULL;
    g->state = g->state * mul + g->inc;
}

void trl_pcg64_seed(struct trl_pcg64 *g, uint64_t seed)
{
    uint64_t w[4];
    seed_sequence(seed, w);
    unsigned __int128 init = (unsigned __int128)w[0] << 64 | w[1];
    unsigned __int128 seq = (unsigned __int128)w[2] << 64 | w[3];
    g->state = 0;
    g->inc = seq << 1 | 1;
    pcg_step(g);
    g->state += init;
    pcg_step(g);
    g->has_buffered = 0;
    g->buffered = 0;
}

uint64_t trl_pcg64_next64(struct trl_pcg64 *g)
{
    pcg_step(g);
    uint64_t x = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    unsigned rot = (unsigned)(g->state >> 122);
    return x >> rot | x << ((64 - rot) & 63);
}

static uint32_t pcg_next32(struct trl_pcg64 *g)
{
    if (g->has_buffered) {
        g->has_buffered = 0;
        return g->buffered;
    }
    uint64_t w = trl_pcg64_next64(g);
    g->has_buffered = 1;
    g->buffered = (uint32_t)(w >> 32);
    return (uint32_t)w;
}

/* numpy's random_interval: masked rejection of [0, max] */
static uint64_t pcg_interval(struct trl_pcg64 *g, uint64_t max)
{
    if (max == 0)
        return 0;
    uint64_t mask = ~0ULL >> __builtin_clzll(max), v;
    do
        v = (max <= 0xffffffffULL ? pcg_next32(g) : trl_pcg64_next64(g)) & mask;
    while (v > max);
    return v;
}

void trl_pcg64_permutation(struct trl_pcg64 *g, int64_t *ret, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ret[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)pcg_interval(g, (uint64_t)i);
        int64_t t = ret[i];
        ret[i] = ret[j];
        ret[j] = t;
    }
}

uint64_t trl_hash_rng(uint64_t seed, uint64_t counter)
{
    uint64_t z = seed + (counter + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}
