/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tok-vocab.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

/* 8 bytes a step; tokens are short, so mixing matters more than bulk speed. */
uint64_t trl__tok_hash(const char *s, size_t len)
{
    uint64_t h = len * UINT64_C(0x9E3779B97F4A7C15), w;
    for (; len >= 8; s += 8, len -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * UINT64_C(0xBF58476D1CE4E5B9);
        h ^= h >> 32;
    }
    if (len) {
        w = 0;
        memcpy(&w, s, len);
        h = (h ^ w) * UINT64_C(0xBF58476D1CE4E5B9);
        h ^= h >> 32;
    }
    h *= UINT64_C(0x94D049BB133111EB);
    return h ^ h >> 31;
}

static void insert_slot(struct tok_vocab *v, int32_t id)
{
    const struct tok_entry *e = &v->by_id[id];
    uint32_t i = (uint32_t)trl__tok_hash(e->s, e->len) & v->mask;
    while (v->slots[i])
        i = (i + 1) & v->mask;
    v->slots[i] = (uint32_t)id + 1;
}

/* Keep the table at most half full. */
static int grow_slots(struct tok_vocab *v, struct trl_err *err)
{
    uint32_t n = v->slots ? (v->mask + 1) * 2 : 1024;
    uint32_t *slots = trl_calloc(n, sizeof(*slots));
    if (!slots)
        return trl_fail_nomem(err, n * sizeof(*slots), "the vocabulary");
    trl_free(v->slots);
    v->slots = slots;
    v->mask = n - 1;
    for (int32_t id = 0; id <= v->max_id; id++)
        if (v->by_id[id].s)
            insert_slot(v, id);
    return 0;
}

static int reserve_id(struct tok_vocab *v, int64_t id, struct trl_err *err)
{
    size_t old = v->cap;
    void *p = v->by_id;
    if (!trl_grow(&p, &v->cap, (size_t)id + 1, sizeof(*v->by_id)))
        return trl_fail_nomem(err, ((size_t)id + 1) * sizeof(*v->by_id), "the vocabulary");
    v->by_id = p;
    if (v->cap > old)
        memset(v->by_id + old, 0, (v->cap - old) * sizeof(*v->by_id));
    return 0;
}

int trl__vocab_add(struct tok_vocab *v, const char *s, size_t len, int64_t id, const char *origin,
    struct trl_err *err)
{
    if (id < 0 || id >= TOK_ID_MAX)
        return trl_fail(err, TRL_E_DATA,
            "%s: token '%.*s' has id %" PRId64 "; ids run from 0 to %d", origin,
            (int)(len < 80 ? len : 80), s, id, TOK_ID_MAX - 1);
    const struct tok_entry *taken = trl__vocab_get(v, id);
    if (taken)
        return trl_fail(err, TRL_E_DATA, "%s: tokens '%.80s' and '%.*s' have the same id %" PRId64,
            origin, taken->s, (int)(len < 80 ? len : 80), s, id);
    int32_t other = trl__vocab_find(v, s, len);
    if (other >= 0)
        return trl_fail(err, TRL_E_DATA, "%s: token '%.*s' occurs twice, with ids %d and %" PRId64,
            origin, (int)(len < 80 ? len : 80), s, other, id);
    int rc = 0;
    if ((size_t)id >= v->cap && (rc = reserve_id(v, id, err)))
        return rc;
    if ((!v->slots || (uint32_t)v->count >= v->mask / 2) && (rc = grow_slots(v, err)))
        return rc;
    char *copy = trl_arena_strndup(&v->arena, s, len);
    if (!copy)
        return trl_fail_nomem(err, len, "a token");
    v->by_id[id] = (struct tok_entry){.s = copy, .len = (uint32_t)len};
    if (id > v->max_id || v->count == 0)
        v->max_id = (int32_t)id;
    v->count++;
    insert_slot(v, (int32_t)id);
    return 0;
}

int32_t trl__vocab_find(const struct tok_vocab *v, const char *s, size_t len)
{
    if (!v->slots)
        return -1;
    for (uint32_t i = (uint32_t)trl__tok_hash(s, len) & v->mask; v->slots[i];
         i = (i + 1) & v->mask) {
        const struct tok_entry *e = &v->by_id[v->slots[i] - 1];
        if (e->len == len && memcmp(e->s, s, len) == 0)
            return (int32_t)(v->slots[i] - 1);
    }
    return -1;
}

void trl__vocab_release(struct tok_vocab *v)
{
    trl_arena_release(&v->arena);
    trl_free(v->by_id);
    trl_free(v->slots);
    *v = (struct tok_vocab){.max_id = -1};
}

int trl__merges_reserve(struct tok_merges *m, size_t n, struct trl_err *err)
{
    size_t size = 16;
    while (size < n * 2)
        size *= 2;
    m->slots = trl_calloc(size, sizeof(*m->slots));
    if (!m->slots)
        return trl_fail_nomem(err, size * sizeof(*m->slots), "the merges");
    m->mask = size - 1;
    return 0;
}

void trl__merges_add(struct tok_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    uint64_t i = trl__merges_hash(pair) & m->mask;
    while (m->slots[i].pair && m->slots[i].pair != pair)
        i = (i + 1) & m->mask;
    m->count += m->slots[i].pair == 0;
    m->slots[i] = (struct tok_merge){.pair = pair, .rank = rank, .id = id};
}

void trl__merges_release(struct tok_merges *m)
{
    trl_free(m->slots);
    *m = (struct tok_merges){0};
}
