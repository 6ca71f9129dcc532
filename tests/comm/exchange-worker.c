/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the exchange test: the gradients after it are the mean over ranks, bit by bit, and
 * frozen ones are untouched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "optim/exchange.h"

#define CHECK(cond, ...) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "FAILED %s:%d: %s: ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
            exit(9); \
        } \
    } while (0)

static struct trl_err err;
enum { LAYERS = 5, N = 3 + 3 * LAYERS };

/* embedding (ready last), layers (from the last to the first), norm and head (ready first) */
static void make_params(struct trl_params *p, enum trl_dtype dtype, bool freeze)
{
    static struct trl_param items[N];
    static const int64_t sizes[] = {1000, 64, 37};
    *p = (struct trl_params){.items = items, .n = N, .dtype = dtype};
    int64_t at = 0;
    for (int i = 0; i < N; i++) {
        int layer = i == 0 || i > 3 * LAYERS ? -1 : (i - 1) / 3;
        int64_t n = i == 0 ? 20000 : layer < 0 ? 128 + i : sizes[(i - 1) % 3];
        items[i] = (struct trl_param){.name = (char *)"p",
            .numel = n,
            .offset = at,
            .layer = layer,
            .trainable = !freeze || i % 4 != 2};
        items[i].ready_order = i == 0 ? LAYERS + 1 : layer < 0 ? 0 : LAYERS - layer;
        at += (n + 63) / 64 * 64;
    }
    p->slab_elems = at;
    p->grads = trl_slab_new((size_t)at * 4);
}

static float grad_of(int rank, int64_t i)
{
    return (float)(trl_hash_rng((uint64_t)rank + 5, (uint64_t)i) >> 40) / 16777216.0f - 0.5f;
}

static void fill(const struct trl_params *p, int rank)
{
    for (int k = 0; k < p->n; k++)
        for (int64_t i = p->items[k].offset; i < p->items[k].offset + p->items[k].numel; i++)
            trl_dtype_store(p->dtype, p->grads, (size_t)i, grad_of(rank, i));
}

static void check(const struct trl_comm *c, const struct trl_params *p, bool exchanged)
{
    unsigned char raw[4];
    int64_t at = 0;
    for (int k = 0; k < p->n; k++) {
        const struct trl_param *q = &p->items[k];
        for (; at < q->offset; at++)
            CHECK(
                trl_dtype_load(p->dtype, p->grads, (size_t)at) == 0, "gap at %lld", (long long)at);
        for (; at < q->offset + q->numel; at++) {
            float sum = 0;
            for (int r = 0; r < c->world; r++) {
                trl_dtype_store(p->dtype, raw, 0, grad_of(r, at));
                sum = r ? sum + trl_dtype_load(p->dtype, raw, 0) : trl_dtype_load(p->dtype, raw, 0);
            }
            bool own = !q->trainable || !exchanged;
            trl_dtype_store(
                p->dtype, raw, 0, own ? grad_of(c->rank, at) : sum * (1.0f / (float)c->world));
            float got = trl_dtype_load(p->dtype, p->grads, (size_t)at),
                  want = trl_dtype_load(p->dtype, raw, 0);
            CHECK(got == want, "parameter %d element %lld: %g, not %g", k,
                (long long)(at - q->offset), got, want);
        }
    }
}

static void run(struct trl_comm *c, enum trl_dtype dtype, bool freeze, size_t bucket)
{
    struct trl_params p;
    struct trl_exchange *x;
    make_params(&p, dtype, freeze);
    CHECK(trl_exchange_new(&x, c, &p, LAYERS + 2, bucket, &err) == 0, "%s", err.text);
    CHECK(trl_exchange_n_buckets(x) >= 1 && (bucket || trl_exchange_n_buckets(x) == 1),
        "%d buckets", trl_exchange_n_buckets(x));
    CHECK(bucket != 4096 || trl_exchange_n_buckets(x) > 2, "%d buckets", trl_exchange_n_buckets(x));
    uint64_t calls = 0;
    for (int step = 0; step < 4; step++) {
        if (step == 1)
            calls = trl_alloc_calls();
        fill(&p, c->rank);
        for (int k = 0; k < LAYERS + 2; k++) /* an earlier micro-step of the window */
            trl_exchange_ready(x, k);
        CHECK(trl_exchange_finish(x, &err) == 0, "%s", err.text);
        check(c, &p, false);
        trl_exchange_begin(x);
        for (int k = 0; k < LAYERS + 2 && step != 2; k++) /* step 2: nothing was announced */
            trl_exchange_ready(x, k);
        CHECK(trl_exchange_finish(x, &err) == 0, "%s", err.text);
        check(c, &p, true);
    }
    CHECK(trl_alloc_calls() == calls, "steps allocate");
    trl_exchange_free(x);
    p.items[3].ready_order = LAYERS + 2;
    CHECK(trl_exchange_new(&x, c, &p, LAYERS + 2, bucket, &err) == TRL_E_RANGE ||
            !p.items[3].trainable,
        "an order out of range");
    trl_slab_free(p.grads, (size_t)p.slab_elems * 4);
}

int main(void)
{
    struct trl_comm c;
    CHECK(trl_comm_open(&c, &err) == 0, "%s", err.text);
    static const size_t buckets[] = {0, 1, 4096, 30000};
    for (int t = 0; t < TRL_DTYPE_MAX_; t++)
        for (int freeze = 0; freeze < 2; freeze++)
            for (int b = 0; b < 4; b++)
                run(&c, (enum trl_dtype)t, freeze, buckets[b]);
    trl_comm_close(&c);
    return 0;
}
