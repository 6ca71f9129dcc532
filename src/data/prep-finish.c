/* SPDX-License-Identifier: Apache-2.0 */
#include "data/prep-finish.h"

#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"

/* Cut rows to max_length where they are not yet. */
static void cut(struct trl_store *s, int64_t row, const struct trl_finish *f)
{
    if (f->max_length <= 0 || s->len[row] <= f->max_length)
        return;
    if (f->keep_end)
        s->begin[row] += s->len[row] - f->max_length;
    s->len[row] = (int32_t)f->max_length;
}

/* Rows that are left fully masked contribute nothing: TRL drops them when it cuts rows, that is when max_length is set. */
static int64_t cut_and_drop(struct trl_store *s, int64_t *order, int64_t n, const struct trl_finish *f)
{
    if (f->max_length <= 0)
        return n;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        cut(s, order[i], f);
        if (trl_store_any_label(s, order[i]))
            order[kept++] = order[i];
    }
    return kept;
}

/* datasets' shuffle(seed): row i becomes row permutation[i]. */
static int shuffle(int64_t *order, int64_t n, uint64_t seed, struct trl_err *err)
{
    int64_t *perm = trl_malloc_array((size_t)n, sizeof(*perm)), *old = trl_malloc_array((size_t)n, sizeof(*old));
    if (!perm || !old) {
        trl_free(perm);
        trl_free(old);
        return trl_fail_nomem(err, (size_t)n * 2 * sizeof(*perm), "shuffling");
    }
    struct trl_pcg64 g;
    trl_pcg64_seed(&g, seed);
    trl_pcg64_permutation(&g, perm, n);
    memcpy(old, order, (size_t)n * sizeof(*old));
    for (int64_t i = 0; i < n; i++)
        order[i] = old[perm[i]];
    trl_free(perm);
    trl_free(old);
    return 0;
}

static int64_t *identity(int64_t n)
{
    int64_t *order = trl_malloc_array((size_t)n, sizeof(*order));
    for (int64_t i = 0; order && i < n; i++)
        order[i] = i;
    return order;
}

static int check_lengths(const struct trl_dataset *d, const struct trl_finish *f, struct trl_err *err)
{
    for (int64_t i = 0, n = f->max_positions > 0 ? trl_dataset_n_rows(d) : 0; i < n; i++) {
        struct trl_row r;
        trl_dataset_get_row(d, i, &r);
        bool docs = f->flat && r.doc_len;
        for (int64_t k = 0; k < (docs ? r.n_docs : 1); k++) {
            int64_t len = docs ? r.doc_len[k] : r.len;
            if (len > f->max_positions)
                return trl_fail(err, TRL_E_RANGE, "%s row %lld has %lld tokens, but the model has %lld learned positions; set "
                    "max_length to %lld or less", f->what, (long long)i, (long long)len, (long long)f->max_positions,
                    (long long)f->max_positions);
        }
    }
    return 0;
}

static int copy_rows(struct trl_store *to, const struct trl_store *from, const int64_t *order, int64_t n, struct trl_err *err)
{
    int rc = 0;
    for (int64_t i = 0; i < n && rc == 0; i++)
        rc = trl_store_add_joined(to, from, &(struct trl_piece){order[i], 0, from->len[order[i]]}, 1, false, err);
    return rc;
}

static int none_left(int64_t n, const struct trl_finish *f, struct trl_err *err)
{
    if (n == 0)
        return trl_fail(err, TRL_E_DATA, "the %s data has no rows", f->what);
    if (f->packing)
        return trl_fail(err, TRL_E_DATA, "all %lld rows of the %s data are empty", (long long)n, f->what);
    return trl_fail(err, TRL_E_DATA, "none of the %lld rows of the %s data is left: cut to max_length %lld, no token of them counts "
        "in the loss (are the prompts longer than max_length?)", (long long)n, f->what, (long long)f->max_length);
}

int trl_finish_rows(struct trl_dataset **ret, struct trl_store *s, const int64_t *order, int64_t n, bool take,
    const struct trl_finish *f, struct trl_err *err)
{
    struct trl_store packed = {0}, *from = s;
    struct trl_dataset *d = NULL;
    int rc = 0;
    if (!order)
        n = (int64_t)s->n_rows;
    int64_t given = n, *mine = identity(n);
    if (!mine)
        return trl_fail_nomem(err, (size_t)n * sizeof(*mine), "the order of rows");
    if (order)
        memcpy(mine, order, (size_t)n * sizeof(*mine));
    if (!f->keep_all && !f->packing)
        n = cut_and_drop(s, mine, n, f);
    if (!f->keep_all && f->packing) {
        if (f->shuffle)
            rc = shuffle(mine, n, f->seed, err);
        if (rc == 0)
            rc = trl_pack_rows(&packed, s, mine, n, f->strategy, f->max_length, take, err);
        trl_free(mine);
        n = (int64_t)packed.n_rows;
        mine = identity(n);
        from = &packed;
        if (rc == 0 && !mine)
            rc = trl_fail_nomem(err, (size_t)n * sizeof(*mine), "the order of rows");
        if (rc == 0 && take)
            trl_store_release(s);
    }
    if (rc == 0 && n == 0)
        rc = none_left(given, f, err);
    if (rc == 0 && !f->keep_all && f->shuffle)
        rc = shuffle(mine, n, f->seed, err);
    if (rc == 0 && from == s && !take) {
        rc = copy_rows(&packed, s, mine, n, err);
        from = &packed;
        for (int64_t i = 0; i < n; i++)
            mine[i] = i;
    }
    if (rc == 0)
        rc = trl_dataset_new(&d, from, mine, n, f->flat, err);
    if (rc == 0)
        rc = check_lengths(d, f, err);
    trl_free(mine);
    trl_store_release(&packed);
    if (rc != 0) {
        trl_dataset_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}
