/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/exchange.h"

#include <stdlib.h>

#include "base/alloc.h"

/* Elements [begin, end) of the slab; a bucket is a few runs (one, unless frozen parameters lie
 * between). */
struct run {
    int64_t begin, end;
    int bucket;
    struct trl_comm_request *request;
};

struct trl_exchange {
    struct trl_comm *comm;
    struct trl_params *params;
    int n_ready, n_runs, n_buckets;
    struct run *runs; /* in order of buckets */
    int *bucket_order; /* ready when grad_ready has been called with this number */
    bool active;
    int next_run, n_started;
    int rc;
    struct trl_err err; /* of a start inside backward */
};

/* Order of completion; inside one number from the end of the slab to its start, as backward walks
 * the layers, so that runs grow. */
static int compare_ready(const void *a, const void *b)
{
    const struct trl_param *p = *(const struct trl_param *const *)a,
                           *q = *(const struct trl_param *const *)b;
    if (p->ready_order != q->ready_order)
        return p->ready_order < q->ready_order ? -1 : 1;
    return p->offset == q->offset ? 0 : p->offset > q->offset ? -1 : 1;
}

/* Parameters start at multiples of 64 elements; the gap behind one is zero on all ranks. */
static int64_t padded_end(const struct trl_param *p)
{
    return (p->offset + p->numel + 63) / 64 * 64;
}

static void add_param(
    struct trl_exchange *x, const struct trl_param *p, int64_t *bucket_elems, int64_t limit)
{
    struct run *last = x->n_runs ? &x->runs[x->n_runs - 1] : NULL;
    if (!last ||
        *bucket_elems + p->numel >
            limit) { /* a large one that is ready later does not hold others back */
        x->n_buckets++;
        *bucket_elems = 0;
        last = NULL;
    }
    x->bucket_order[x->n_buckets - 1] = p->ready_order; /* the largest: parameters come in order */
    *bucket_elems += p->numel;
    int64_t end = p->offset + p->numel;
    if (last && padded_end(p) == last->begin)
        last->begin = p->offset;
    else if (last && p->offset == (last->end + 63) / 64 * 64)
        last->end = end;
    else
        x->runs[x->n_runs++] =
            (struct run){.begin = p->offset, .end = end, .bucket = x->n_buckets - 1};
}

int trl_exchange_new(struct trl_exchange **ret, struct trl_comm *c, struct trl_params *p,
    int n_ready, size_t bucket_bytes, struct trl_err *err)
{
    struct trl_exchange *x = trl_calloc(1, sizeof(*x));
    const struct trl_param **sorted = trl_calloc((size_t)p->n + 1, sizeof(*sorted));
    int n = 0, rc = 0;
    if (x) {
        x->runs = trl_calloc((size_t)p->n + 1, sizeof(*x->runs));
        x->bucket_order = trl_calloc((size_t)p->n + 1, sizeof(*x->bucket_order));
    }
    if (!x || !sorted || !x->runs || !x->bucket_order) {
        rc = trl_fail_nomem(err, (size_t)p->n * sizeof(*x->runs), "the gradient exchange");
        goto out;
    }
    x->comm = c;
    x->params = p;
    x->n_ready = n_ready;
    for (int i = 0; i < p->n; i++)
        if (p->items[i].trainable)
            sorted[n++] = &p->items[i];
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_ready);
    size_t esize = trl_dtype_size(p->dtype);
    int64_t elems = 0,
            limit = (int64_t)((bucket_bytes ? bucket_bytes : TRL_EXCHANGE_BUCKET_BYTES) / esize);
    for (int i = 0; i < n && !rc; i++) {
        if (sorted[i]->ready_order < 0 || sorted[i]->ready_order >= n_ready)
            rc = trl_fail(err, TRL_E_RANGE, "parameter %s becomes ready at %d of %d",
                sorted[i]->name, sorted[i]->ready_order, n_ready);
        else
            add_param(x, sorted[i], &elems, limit);
    }
out:
    trl_free(sorted);
    if (rc)
        trl_exchange_free(x);
    else
        *ret = x;
    return rc;
}

void trl_exchange_free(struct trl_exchange *x)
{
    if (!x)
        return;
    trl_free(x->runs);
    trl_free(x->bucket_order);
    trl_free(x);
}

void trl_exchange_begin(struct trl_exchange *x)
{
    x->active = x->comm->world > 1;
    x->next_run = x->n_started = 0;
    x->rc = 0;
}

/* Buckets leave in their order, whatever the caller's, so that all ranks send them in the same one.
 */
static void start_until(struct trl_exchange *x, int order)
{
    float scale = 1.0f / (float)x->comm->world;
    size_t esize = trl_dtype_size(x->params->dtype);
    while (!x->rc && x->next_run < x->n_runs &&
        x->bucket_order[x->runs[x->next_run].bucket] <= order) {
        struct run *r = &x->runs[x->next_run++];
        x->rc = x->comm->ops->allreduce_start(x->comm,
            (char *)x->params->grads + (size_t)r->begin * esize, (size_t)(r->end - r->begin),
            x->params->dtype, scale, &r->request, &x->err);
        if (!x->rc)
            x->n_started++;
    }
}

void trl_exchange_ready(void *ctx, int order)
{
    struct trl_exchange *x = ctx;
    if (x->active)
        start_until(x, order);
}

int trl_exchange_finish(struct trl_exchange *x, struct trl_err *err)
{
    if (!x->active)
        return 0;
    start_until(x, x->n_ready);
    int rc = x->rc;
    if (rc && err)
        *err = x->err;
    for (int i = 0; i < x->n_started; i++) {
        int bad = x->comm->ops->wait(x->comm, x->runs[i].request, rc ? NULL : err);
        if (!rc)
            rc = bad;
    }
    x->active = false;
    return rc;
}

int trl_exchange_n_buckets(const struct trl_exchange *x)
{
    return x->n_buckets;
}
