/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/coll.h"

#include <string.h>

enum op_kind { KIND_BARRIER, KIND_BCAST, KIND_GATHER, KIND_REDUCE };

static uint32_t kind_of(enum op_kind kind, int a, int b)
{
    return (uint32_t)kind << 16 | (uint32_t)a << 8 | (uint32_t)b;
}

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"a barrier", "a broadcast", "a gather", "a sum"};
    return kind >> 16 < 4 ? names[kind >> 16] : "nothing known";
}

/* This rank's slot of chunk k is free once all ranks have read chunk k - TRL__SLOTS. */
static int claim_slot(struct trl__coll *c, uint32_t k, struct trl_err *err)
{
    return trl__node_wait_all(c->node, TRL__READ, k - TRL__SLOTS, err);
}

static void post_written(struct trl__coll *c, uint32_t k, uint32_t kind, size_t bytes)
{
    struct trl__node *n = c->node;
    n->head->ranks[n->rank].desc[k % TRL__SLOTS] =
        (struct trl__chunk_desc){.kind = kind, .bytes = (uint32_t)bytes};
    trl__node_post(n, TRL__WRITTEN, k);
}

static int check_same(struct trl__coll *c, uint32_t k, int peer, struct trl_err *err)
{
    const struct trl__node_rank *rows = c->node->head->ranks, *mine = &rows[c->node->rank],
                                *other = &rows[peer];
    const struct trl__chunk_desc *a = &mine->desc[k % TRL__SLOTS],
                                 *b = &other->desc[k % TRL__SLOTS];
    if (a->kind == b->kind && a->bytes == b->bytes)
        return 0;
    return trl_fail(err, TRL_E_COMM,
        "ranks disagree on what to exchange: rank %d %s of %u bytes (kind %x), rank %d %s of %u "
        "bytes (kind %x)",
        mine->rank, kind_name(a->kind), a->bytes, a->kind, other->rank, kind_name(b->kind),
        b->bytes, b->kind);
}

static int wait_written(struct trl__coll *c, uint32_t k, struct trl_err *err)
{
    int rc = trl__node_wait_all(c->node, TRL__WRITTEN, k, err);
    for (int i = 0; i < c->node->size && !rc; i++)
        rc = check_same(c, k, i, err);
    return rc;
}

/* For operations without a reduction. */
static void post_read(struct trl__coll *c, uint32_t k)
{
    trl__node_post(c->node, TRL__REDUCED, k);
    trl__node_post(c->node, TRL__READ, k);
}

int trl__coll_node_barrier(struct trl__coll *c, struct trl_err *err)
{
    uint32_t k = c->node->next++;
    int rc = claim_slot(c, k, err);
    if (rc)
        return rc;
    post_written(c, k, kind_of(KIND_BARRIER, 0, 0), 0);
    rc = wait_written(c, k, err);
    post_read(c, k);
    return rc;
}

int trl__coll_node_bcast(
    struct trl__coll *c, void *buf, size_t bytes, int root, struct trl_err *err)
{
    struct trl__node *n = c->node;
    for (size_t at = 0; at < bytes; at += n->slot_bytes) {
        size_t len = bytes - at < n->slot_bytes ? bytes - at : n->slot_bytes;
        uint32_t k = n->next++;
        int rc = claim_slot(c, k, err);
        if (rc)
            return rc;
        if (n->rank == root)
            memcpy(trl__node_slot(n, root, k), (char *)buf + at, len);
        post_written(c, k, kind_of(KIND_BCAST, root & 255, 0), len);
        if (n->rank != root) {
            if ((rc = trl__node_wait(n, root, TRL__WRITTEN, k, err)) != 0 ||
                (rc = check_same(c, k, root, err)) != 0)
                return rc;
            memcpy((char *)buf + at, trl__node_slot(n, root, k), len);
        }
        post_read(c, k);
    }
    return 0;
}

int trl__coll_node_allgather(
    struct trl__coll *c, const void *send, size_t bytes, void *recv, struct trl_err *err)
{
    struct trl__node *n = c->node;
    for (size_t at = 0; at < bytes; at += n->slot_bytes) {
        size_t len = bytes - at < n->slot_bytes ? bytes - at : n->slot_bytes;
        uint32_t k = n->next++;
        int rc = claim_slot(c, k, err);
        if (rc)
            return rc;
        memcpy(trl__node_slot(n, n->rank, k), (const char *)send + at, len);
        post_written(c, k, kind_of(KIND_GATHER, 0, 0), len);
        if ((rc = wait_written(c, k, err)) != 0)
            return rc;
        for (int i = 0; i < n->size; i++)
            memcpy((char *)recv + (size_t)i * bytes + at, trl__node_slot(n, i, k), len);
        post_read(c, k);
    }
    return 0;
}

/* One all-reduce: its chunks and how they are cut into slices. */
struct sum {
    struct trl__coll *c;
    char *buf;
    size_t n, per_chunk, esize;
    enum trl__wire wire;
    enum trl_comm_op op;
    float scale;
    uint32_t first;
};

/* Slice j of `of` begins at a multiple of 16 elements of the chunk, or at its end. */
static size_t slice_begin(size_t n, int j, int of)
{
    size_t at = (n + 15) / 16 * (size_t)j / (size_t)of * 16;
    return at < n ? at : n;
}

static size_t chunk_len(const struct sum *s, size_t k)
{
    size_t at = k * s->per_chunk;
    return s->n - at < s->per_chunk ? s->n - at : s->per_chunk;
}

static int put_chunk(const struct sum *s, size_t k, struct trl_err *err)
{
    struct trl__node *n = s->c->node;
    uint32_t chunk = s->first + (uint32_t)k;
    int rc = claim_slot(s->c, chunk, err);
    if (rc)
        return rc;
    /* our own slice need not leave: we reduce it ourselves */
    size_t len = chunk_len(s, k), lo = len, hi = len;
    if (n->rank < s->c->reducers) {
        lo = slice_begin(len, n->rank, s->c->reducers);
        hi = slice_begin(len, n->rank + 1, s->c->reducers);
    }
    unsigned char *slot = trl__node_slot(n, n->rank, chunk);
    const char *src = s->buf + k * s->per_chunk * s->esize;
    memcpy(slot, src, lo * s->esize);
    memcpy(slot + hi * s->esize, src + hi * s->esize, (len - hi) * s->esize);
    post_written(s->c, chunk, kind_of(KIND_REDUCE, (int)s->wire, (int)s->op), len * s->esize);
    return 0;
}

static int reduce_slice(const struct sum *s, size_t k, struct trl_err *err)
{
    struct trl__coll *c = s->c;
    struct trl__node *n = c->node;
    uint32_t chunk = s->first + (uint32_t)k;
    size_t len = chunk_len(s, k);
    size_t lo = slice_begin(len, n->rank, c->reducers),
           hi = slice_begin(len, n->rank + 1, c->reducers);
    char *mine = s->buf + (k * s->per_chunk + lo) * s->esize;
    void *out = trl__node_slot(n, n->rank, chunk) + lo * s->esize;
    for (int i = 0; i < n->size; i++)
        c->srcs[i] = i == n->rank ? (void *)mine : trl__node_slot(n, i, chunk) + lo * s->esize;
    if (!c->between) {
        trl__reduce(s->wire, out, s->wire, c->srcs, n->size, hi - lo, s->op, s->scale);
    } else {
        enum trl__wire acc = s->wire == TRL__WIRE_F64 ? TRL__WIRE_F64 : TRL__WIRE_F32;
        trl__reduce(acc, c->part, s->wire, c->srcs, n->size, hi - lo, s->op, 1.0f);
        int rc = trl__between_reduce(c->between, acc, c->part, hi - lo, s->op, err);
        if (rc)
            return rc;
        const void *part = c->part;
        trl__reduce(s->wire, out, acc, &part, 1, hi - lo, s->op, s->scale);
    }
    memcpy(mine, out, (hi - lo) * s->esize);
    return 0;
}

static int get_chunk(const struct sum *s, size_t k, struct trl_err *err)
{
    struct trl__coll *c = s->c;
    uint32_t chunk = s->first + (uint32_t)k;
    size_t len = chunk_len(s, k);
    char *dst = s->buf + k * s->per_chunk * s->esize;
    for (int j = 0; j < c->reducers; j++) {
        if (j == c->node->rank)
            continue;
        int rc = trl__node_wait(c->node, j, TRL__REDUCED, chunk, err);
        if (rc)
            return rc;
        size_t lo = slice_begin(len, j, c->reducers), hi = slice_begin(len, j + 1, c->reducers);
        if (lo < hi)
            memcpy(dst + lo * s->esize, trl__node_slot(c->node, j, chunk) + lo * s->esize,
                (hi - lo) * s->esize);
    }
    trl__node_post(c->node, TRL__READ, chunk);
    return 0;
}

int trl__coll_allreduce(struct trl__coll *c, void *buf, size_t n, enum trl__wire wire,
    enum trl_comm_op op, float scale, struct trl_err *err)
{
    struct sum s = {.c = c,
        .buf = buf,
        .n = n,
        .esize = trl__wire_size(wire),
        .wire = wire,
        .op = op,
        .scale = scale};
    s.per_chunk = c->node->slot_bytes / s.esize;
    s.first = c->node->next;
    size_t n_chunks = (n + s.per_chunk - 1) / s.per_chunk;
    c->node->next += (uint32_t)n_chunks;
    int rc = n_chunks ? put_chunk(&s, 0, err) : 0;
    for (size_t k = 0; k < n_chunks && !rc; k++) {
        if (k + 1 < n_chunks && (rc = put_chunk(&s, k + 1, err)) != 0)
            break;
        if ((rc = wait_written(c, s.first + (uint32_t)k, err)) != 0)
            break;
        if (c->node->rank < c->reducers && (rc = reduce_slice(&s, k, err)) != 0)
            break;
        trl__node_post(c->node, TRL__REDUCED, s.first + (uint32_t)k);
        rc = get_chunk(&s, k, err);
    }
    return rc;
}
