/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_CKPT_HASH_H
#define TRL_CKPT_HASH_H
/* XXH64 (Yann Collet's xxHash, 64 bits, seed 0): a fast check against damage, not against attackers. */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct trl_xxh64 {
    uint64_t acc[4], total;
    uint8_t rest[32]; /* what is left of the last block */
    size_t rest_len;
};
void trl_xxh64_init(struct trl_xxh64 *h);
void trl_xxh64_update(struct trl_xxh64 *h, const void *data, size_t len);
uint64_t trl_xxh64_get(const struct trl_xxh64 *h);

/* A file's size and hash. sync: also fsync it. */
int trl_hash_file(const char *path, int sync, uint64_t *ret_size, uint64_t *ret_hash, struct trl_err *err);

#endif
