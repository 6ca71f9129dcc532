/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sampler.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"

struct sort_item {
    int64_t row, len, at;
};

struct trl_sampler {
    const struct trl_dataset *data;
    struct trl_sampler_options opt;
    int64_t n;       /* rows */
    int64_t full;    /* whole batches over all ranks */
    int64_t batches; /* per rank */
    int64_t epoch;   /* whose order is in `order`; -1: none */
    int64_t *order;  /* [n] */
    struct sort_item *sorted; /* [mega]: a mega-batch of group_by_length */
    int64_t mega;
};

static int check(const struct trl_sampler_options *o, int64_t n, struct trl_err *err)
{
    if (o->batch_size < 1)
        return trl_fail(err, TRL_E_RANGE, "the batch size of a device is %lld; it must be at least 1",
            (long long)o->batch_size);
    if (o->world < 1)
        return trl_fail(err, TRL_E_RANGE, "%d processes; there must be at least 1", o->world);
    if (o->kind == TRL_SAMPLING_GROUP_BY_LENGTH && o->group_window < 1)
        return trl_fail(err, TRL_E_RANGE, "group_by_length over %lld rows; it must be at least 1",
            (long long)o->group_window);
    if (n < 1)
        return trl_fail(err, TRL_E_DATA, "the data set has no rows after preparation");
    return 0;
}

/* Rows of a mega-batch: 50 windows, or less so that there are four. */
static int64_t mega_batch(int64_t window, int64_t n)
{
    int64_t mult = n / (window * 4) < 50 ? n / (window * 4) : 50;
    int64_t mega = (mult > 0 ? mult : 1) * window;
    return mega < n ? mega : n;
}

int trl_sampler_new(struct trl_sampler **ret, const struct trl_dataset *d, const struct trl_sampler_options *opt,
    struct trl_err *err)
{
    int64_t n = trl_dataset_n_rows(d);
    int rc = check(opt, n, err);
    if (rc != 0)
        return rc;
    struct trl_sampler *s = trl_calloc(1, sizeof(*s));
    if (!s)
        return trl_fail_nomem(err, sizeof(*s), "a sampler");
    *s = (struct trl_sampler){.data = d, .opt = *opt, .n = n, .epoch = -1};
    s->full = n / opt->batch_size;
    int64_t all = s->full + (n % opt->batch_size != 0 && !opt->drop_last);
    s->batches = opt->drop_last ? all / opt->world : (all + opt->world - 1) / opt->world;
    if (s->batches == 0) {
        trl_free(s);
        return trl_fail(err, TRL_E_DATA,
            "%lld rows do not fill one batch of %lld on each of %d processes, and dataloader_drop_last drops the rest",
            (long long)n, (long long)opt->batch_size, opt->world);
    }
    s->order = trl_malloc_array((size_t)n, sizeof(*s->order));
    if (opt->kind == TRL_SAMPLING_GROUP_BY_LENGTH) {
        s->mega = mega_batch(opt->group_window, n);
        s->sorted = trl_malloc_array((size_t)s->mega, sizeof(*s->sorted));
    }
    if (!s->order || (s->mega && !s->sorted)) {
        trl_sampler_free(s);
        return trl_fail_nomem(err, (size_t)n * sizeof(*s->order), "the order of rows");
    }
    *ret = s;
    return 0;
}

void trl_sampler_free(struct trl_sampler *s)
{
    if (!s)
        return;
    trl_free(s->order);
    trl_free(s->sorted);
    trl_free(s);
}

int64_t trl_sampler_batches(const struct trl_sampler *s)
{
    return s->batches;
}

int64_t trl_sampler_batch_size(const struct trl_sampler *s)
{
    return s->opt.batch_size;
}

static int64_t row_len(const struct trl_sampler *s, int64_t row)
{
    struct trl_row r;
    trl_dataset_get_row(s->data, row, &r);
    return r.len;
}

/* Python's sorted(reverse=True) keeps equal elements in their order. */
static int longest_first(const void *pa, const void *pb)
{
    const struct sort_item *a = pa, *b = pb;
    if (a->len != b->len)
        return a->len > b->len ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* transformers' LengthGroupedSampler on a permutation in s->order: mega-batches sorted by length, the longest row first of all. */
static void group_by_length(struct trl_sampler *s)
{
    int64_t mega = s->mega;
    struct sort_item *item = s->sorted;
    int64_t best = 0, best_len = -1;
    for (int64_t i = 0; i < s->n; i += mega) {
        int64_t m = s->n - i < mega ? s->n - i : mega;
        for (int64_t k = 0; k < m; k++)
            item[k] = (struct sort_item){s->order[i + k], row_len(s, s->order[i + k]), k};
        qsort(item, (size_t)m, sizeof(*item), longest_first);
        for (int64_t k = 0; k < m; k++)
            s->order[i + k] = item[k].row;
        if (item[0].len > best_len) {
            best = i;
            best_len = item[0].len;
        }
    }
    int64_t t = s->order[0];
    s->order[0] = s->order[best];
    s->order[best] = t;
}

/* One stream through all epochs; a data loader, also that of an evaluation, draws its 64-bit base seed when it starts. */
static void global_permutation(struct trl_sampler *s, struct trl_mt *g, int64_t epoch)
{
    int64_t loaders = 0;
    for (int64_t e = 0; e <= epoch; e++) {
        int64_t wanted = e + 1 + (s->opt.evaluations ? s->opt.evaluations(s->opt.evaluations_ctx, e) : 0);
        for (; loaders < wanted; loaders++) {
            trl_mt_next(g);
            trl_mt_next(g);
        }
        trl_mt_permutation(g, s->order, s->n);
    }
}

static void make_order(struct trl_sampler *s, int64_t epoch)
{
    struct trl_mt g;
    switch (s->opt.kind) {
    case TRL_SAMPLING_SEQUENTIAL:
        for (int64_t i = 0; i < s->n; i++)
            s->order[i] = i;
        break;
    case TRL_SAMPLING_RANDOM:
        trl_mt_seed(&g, s->opt.seed + (uint64_t)epoch);
        trl_mt_permutation(&g, s->order, s->n);
        break;
    case TRL_SAMPLING_GROUP_BY_LENGTH:
        trl_mt_seed(&g, s->opt.seed);
        if (s->opt.own_generator)
            trl_mt_permutation(&g, s->order, s->n);
        else
            global_permutation(s, &g, epoch);
        group_by_length(s);
        break;
    default:
        trl_bug("sampling kind %d", (int)s->opt.kind);
    }
    s->epoch = epoch;
}

int trl_sampler_get(struct trl_sampler *s, int64_t epoch, int64_t micro_step, int rank, int64_t *rows, int64_t *ret_n,
    struct trl_err *err)
{
    if (epoch < 0 || micro_step < 0 || micro_step >= s->batches || rank < 0 || rank >= s->opt.world)
        return trl_fail(err, TRL_E_RANGE, "no batch at epoch %lld, step %lld of %lld, rank %d of %d", (long long)epoch,
            (long long)micro_step, (long long)s->batches, rank, s->opt.world);
    if (epoch != s->epoch)
        make_order(s, epoch);
    int64_t b = s->opt.batch_size, first = (micro_step * s->opt.world + rank) * b;
    if (s->opt.world == 1 && first + b > s->n) {
        *ret_n = s->n - first; /* one process: the last batch is simply smaller */
    } else {
        *ret_n = b;
    }
    /* The tail cycles through the rows of the first batch of every rank, as accelerate's BatchSamplerShard does. */
    int64_t head = s->n < b * s->opt.world ? s->n : b * s->opt.world;
    for (int64_t i = 0; i < *ret_n; i++) {
        int64_t at = first + i;
        rows[i] = s->order[at < s->n ? at : (at - s->n) % head];
    }
    return 0;
}
