/* SPDX-License-Identifier: Apache-2.0 */
#include "data/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/*
 * Open bins by their free space. `tree` holds, over the leaves 1..length, the largest space present below each node: the
 * smallest space >= n is found by going left wherever the left maximum is enough. Bins with equal space form a queue: the one
 * that came to that space first is taken first. A new bin counts as space `length`, which is therefore always present.
 */
struct bins {
    int64_t length, leaves;
    int32_t *tree;        /* [2*leaves] */
    int32_t *head, *tail; /* [length+1] first and last bin of a space, -1: none */
    int32_t *next;        /* [pieces] queue links */
    int32_t *first, *last; /* [pieces] the pieces of a bin */
    int32_t *after;       /* [pieces] the next piece of the same bin */
    int64_t n;
};

static void tree_set(struct bins *b, int64_t space, int32_t value)
{
    int64_t i = b->leaves + space - 1;
    b->tree[i] = value;
    for (i >>= 1; i >= 1; i >>= 1)
        b->tree[i] = b->tree[2 * i] >= b->tree[2 * i + 1] ? b->tree[2 * i] : b->tree[2 * i + 1];
}

static int64_t tree_find(const struct bins *b, int64_t len)
{
    int64_t i = 1;
    while (i < b->leaves)
        i = b->tree[2 * i] >= len ? 2 * i : 2 * i + 1;
    return b->tree[i];
}

static int32_t take_bin(struct bins *b, int64_t space)
{
    int32_t bin = b->head[space];
    b->head[space] = b->next[bin];
    if (b->head[space] < 0) {
        b->tail[space] = -1;
        tree_set(b, space, 0);
    }
    return bin;
}

static void put_bin(struct bins *b, int32_t bin, int64_t space)
{
    if (space == 0)
        return; /* full */
    b->next[bin] = -1;
    if (b->tail[space] >= 0)
        b->next[b->tail[space]] = bin;
    else
        b->head[space] = bin;
    b->tail[space] = bin;
    tree_set(b, space, (int32_t)space);
}

static void place(struct bins *b, int32_t piece, int64_t len)
{
    int64_t space = tree_find(b, len);
    int32_t bin;
    if (space < b->length) {
        bin = take_bin(b, space);
        b->after[b->last[bin]] = piece;
    } else {
        bin = (int32_t)b->n++;
        b->first[bin] = piece;
    }
    b->last[bin] = piece;
    b->after[piece] = -1;
    put_bin(b, bin, space - len);
}

static void bins_reset(struct bins *b)
{
    b->n = 0;
    memset(b->tree, 0, (size_t)(2 * b->leaves) * sizeof(*b->tree));
    memset(b->head, 0xff, (size_t)(b->length + 1) * sizeof(*b->head));
    memset(b->tail, 0xff, (size_t)(b->length + 1) * sizeof(*b->tail));
    tree_set(b, b->length, (int32_t)b->length);
}

struct packer {
    struct trl_store *to;
    const struct trl_store *from;
    int64_t length;
    struct trl_piece *piece; /* of this batch */
    size_t n, cap;
    struct trl_piece *joined; /* of one packed row */
    int32_t *by_length;       /* [n] */
    size_t cap_work;
    struct bins bins;
};

static int add_piece(struct packer *p, int64_t row, int64_t offset, int64_t len, struct trl_err *err)
{
    void *q = p->piece;
    if (p->n >= INT32_MAX || !trl_grow(&q, &p->cap, p->n + 1, sizeof(*p->piece)))
        return trl_fail_nomem(err, p->cap * 2 * sizeof(*p->piece), "packing");
    p->piece = q;
    p->piece[p->n++] = (struct trl_piece){row, offset, len};
    return 0;
}

/* Work arrays for p->n pieces. */
static int reserve_work(struct packer *p, struct trl_err *err)
{
    if (p->n <= p->cap_work && p->cap_work > 0)
        return 0;
    size_t n = p->n < TRL_PACK_BATCH ? TRL_PACK_BATCH : p->n;
    struct bins *b = &p->bins;
    int32_t **lists[] = {&p->by_length, &b->next, &b->first, &b->last, &b->after};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        trl_free(*lists[i]);
        *lists[i] = trl_malloc_array(n, sizeof(int32_t));
        if (!*lists[i])
            return trl_fail_nomem(err, n * sizeof(int32_t), "packing");
    }
    trl_free(p->joined);
    p->joined = trl_malloc_array(n, sizeof(*p->joined));
    if (!p->joined)
        return trl_fail_nomem(err, n * sizeof(*p->joined), "packing");
    p->cap_work = n;
    return 0;
}

/* Longest first, equal lengths in their order. */
static int by_length_cmp(const void *pa, const void *pb, void *ctx)
{
    const struct trl_piece *piece = ctx;
    int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;
    if (piece[a].len != piece[b].len)
        return piece[a].len > piece[b].len ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int pack_best_fit(struct packer *p, struct trl_err *err)
{
    int rc = reserve_work(p, err);
    if (rc != 0)
        return rc;
    struct bins *b = &p->bins;
    bins_reset(b);
    for (size_t i = 0; i < p->n; i++)
        p->by_length[i] = (int32_t)i;
    qsort_r(p->by_length, p->n, sizeof(*p->by_length), by_length_cmp, p->piece);
    for (size_t i = 0; i < p->n; i++)
        place(b, p->by_length[i], p->piece[p->by_length[i]].len);
    for (int64_t bin = 0; bin < b->n && rc == 0; bin++) {
        size_t n = 0;
        for (int32_t i = b->first[bin]; i >= 0; i = b->after[i])
            p->joined[n++] = p->piece[i];
        rc = trl_store_add_joined(p->to, p->from, p->joined, n, true, err);
    }
    return rc;
}

/* Pieces of a row: the start (bfd) or all of it (bfd_split). Empty rows vanish. */
static int cut_row(struct packer *p, int64_t row, bool split, struct trl_err *err)
{
    int64_t len = p->from->len[row];
    int rc = 0;
    for (int64_t at = 0; at < len && rc == 0; at += p->length) {
        rc = add_piece(p, row, at, len - at < p->length ? len - at : p->length, err);
        if (!split)
            break;
    }
    return rc;
}

static int pack_wrapped(struct packer *p, const int64_t *order, int64_t n, struct trl_err *err)
{
    int64_t filled = 0;
    int rc = 0;
    p->n = 0;
    for (int64_t i = 0; i < n && rc == 0; i++) {
        int64_t len = p->from->len[order[i]];
        for (int64_t at = 0; at < len && rc == 0;) {
            int64_t part = len - at < p->length - filled ? len - at : p->length - filled;
            rc = add_piece(p, order[i], at, part, err);
            at += part;
            filled += part;
            if (rc == 0 && filled == p->length) {
                rc = trl_store_add_joined(p->to, p->from, p->piece, p->n, false, err);
                p->n = 0;
                filled = 0;
            }
        }
    }
    if (rc == 0 && p->n > 0)
        rc = trl_store_add_joined(p->to, p->from, p->piece, p->n, false, err);
    return rc;
}

static int bins_init(struct bins *b, int64_t length, struct trl_err *err)
{
    b->length = length;
    for (b->leaves = 1; b->leaves < length;)
        b->leaves *= 2;
    b->tree = trl_malloc_array((size_t)(2 * b->leaves), sizeof(*b->tree));
    b->head = trl_malloc_array((size_t)(length + 1), sizeof(*b->head));
    b->tail = trl_malloc_array((size_t)(length + 1), sizeof(*b->tail));
    if (!b->tree || !b->head || !b->tail)
        return trl_fail_nomem(err, (size_t)length * 16, "packing");
    return 0;
}

static void packer_release(struct packer *p)
{
    struct bins *b = &p->bins;
    void *all[] = {p->piece, p->joined, p->by_length, b->tree, b->head, b->tail, b->next, b->first, b->last, b->after};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        trl_free(all[i]);
}

/* With rows in file order, tokens before the next batch are done with. */
static bool in_order(const struct trl_store *s, const int64_t *order, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (s->begin[order[i]] < s->begin[order[i - 1]])
            return false;
    return true;
}

int trl_pack_rows(struct trl_store *to, struct trl_store *from, const int64_t *order, int64_t n, enum trl_packing strategy,
    int64_t length, bool consume, struct trl_err *err)
{
    if (length < 1 || length > INT32_MAX / 4)
        return trl_fail(err, TRL_E_RANGE, "packing needs max_length between 1 and %d, not %lld", INT32_MAX / 4,
            (long long)length);
    struct packer p = {.to = to, .from = from, .length = length};
    int rc = strategy == TRL_PACK_WRAPPED ? 0 : bins_init(&p.bins, length, err);
    consume = consume && in_order(from, order, n);
    for (int64_t i = 0; i < n && rc == 0; i += TRL_PACK_BATCH) {
        int64_t m = n - i < TRL_PACK_BATCH ? n - i : TRL_PACK_BATCH;
        if (consume && i / TRL_PACK_BATCH % 16 == 0)
            trl_store_forget(from, from->begin[order[i]]);
        if (strategy == TRL_PACK_WRAPPED) {
            rc = pack_wrapped(&p, order + i, m, err);
            continue;
        }
        p.n = 0;
        for (int64_t k = 0; k < m && rc == 0; k++)
            rc = cut_row(&p, order[i + k], strategy == TRL_PACK_BFD_SPLIT, err);
        if (rc == 0)
            rc = pack_best_fit(&p, err);
    }
    packer_release(&p);
    return rc;
}
