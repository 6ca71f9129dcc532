/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TOK_VOCAB_H
#define TRL_DATA_TOK_VOCAB_H
/* Tokens by id and ids by token; pairs of ids to merges. Open-addressing tables, read-only after
 * loading. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum { TOK_ID_MAX = 4 * 1024 * 1024 }; /* ids index tables: a larger one is a broken file */

struct tok_entry {
    const char *s; /* NUL-terminated; NULL: no such id */
    uint32_t len;
};

struct tok_vocab {
    struct trl_arena arena;
    struct tok_entry *by_id; /* [cap] */
    size_t cap;
    int32_t max_id; /* -1: empty */
    int32_t count;
    uint32_t *slots; /* id + 1, or 0 */
    uint32_t mask;
};

uint64_t trl__tok_hash(const char *s, size_t len);

/* TRL_E_DATA when the id is out of range or taken, or the token is there already with another id.
 */
int trl__vocab_add(struct tok_vocab *v, const char *s, size_t len, int64_t id, const char *origin,
    struct trl_err *err);
int32_t trl__vocab_find(const struct tok_vocab *v, const char *s, size_t len); /* -1: none */
void trl__vocab_release(struct tok_vocab *v);

static inline const struct tok_entry *trl__vocab_get(const struct tok_vocab *v, int64_t id)
{
    return id < 0 || id > v->max_id || !v->by_id[id].s ? NULL : &v->by_id[id];
}

struct tok_merge {
    uint64_t pair; /* (left << 32 | right) + 1; 0: empty */
    uint32_t rank;
    int32_t id;
};

struct tok_merges {
    struct tok_merge *slots;
    uint64_t mask;
    size_t count;
};

int trl__merges_reserve(struct tok_merges *m, size_t n, struct trl_err *err);
/* A pair given twice: the later rank counts. The table must have room. */
void trl__merges_add(struct tok_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id);
void trl__merges_release(struct tok_merges *m);

static inline uint64_t trl__merges_hash(uint64_t pair)
{
    pair *= UINT64_C(0x9E3779B97F4A7C15);
    return pair ^ pair >> 29;
}

static inline const struct tok_merge *trl__merges_find(
    const struct tok_merges *m, int32_t left, int32_t right)
{
    uint64_t pair = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    for (uint64_t i = trl__merges_hash(pair) & m->mask;; i = (i + 1) & m->mask) {
        if (m->slots[i].pair == pair)
            return &m->slots[i];
        if (m->slots[i].pair == 0)
            return NULL;
    }
}

#endif
