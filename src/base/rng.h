/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_RNG_H
#define TRL_BASE_RNG_H
/*
 * Random numbers that equal other people's.
 *  - mt19937: PyTorch's CPU generator (32-bit words, standard initialiser 1812433253).
 *  - trl_mt_permutation: torch.randperm(n) for n < 2^32/20: r = identity; for i in 0..n-2: z = word mod (n-i);
 *    swap r[i], r[i+z].
 *  - trl_pcg64: numpy.random.default_rng(seed) (SeedSequence + PCG64); trl_pcg64_permutation equals
 *    Generator.permutation(n), which `datasets` uses for shuffle() and train_test_split().
 */
#include <stdint.h>

struct trl_mt {
    uint32_t state[624];
    int index;
};
void trl_mt_seed(struct trl_mt *g, uint64_t seed); /* torch keeps the low 32 bits */
uint32_t trl_mt_next(struct trl_mt *g);
/* torch's float uniform in [0,1): 24 bits of one word */
float trl_mt_uniform(struct trl_mt *g);
void trl_mt_permutation(struct trl_mt *g, int64_t *ret, int64_t n);

struct trl_pcg64 {
    unsigned __int128 state, inc;
    uint32_t buffered; /* numpy hands out a 64-bit word as two 32-bit ones */
    int has_buffered;
};
void trl_pcg64_seed(struct trl_pcg64 *g, uint64_t seed);
uint64_t trl_pcg64_next64(struct trl_pcg64 *g);
void trl_pcg64_permutation(struct trl_pcg64 *g, int64_t *ret, int64_t n);

/* Counter-based noise (SplitMix64 finaliser): the same (seed, counter) gives the same word anywhere, so that a
 * backward pass or another thread can draw it again. */
uint64_t trl_hash_rng(uint64_t seed, uint64_t counter);

#endif
