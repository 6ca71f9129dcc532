/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products. K is cut into blocks; for each block one factor (the smaller) is packed whole by
 * all threads, then every thread takes panels of the other one: packs a panel, multiplies it with
 * all panels of the first while it is in cache. K is never divided between threads, so the bits do
 * not depend on their number.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/alloc.h"

enum {
    SMALL_FLOPS = 200000, /* below: not worth waking threads */
    PACK_WEIGHT_MIN = 1 << 22, /* elements of a weight whose packed copy is kept: the head, used
                                  several times a step */
    ITEMS_PER_THREAD = 8,
    GROUP_ROWS = 64, /* rows of a factor packed together, so that whole cache lines of a transposed
                        one are used */
};

struct product {
    const struct trl_op_gemm *a;
    const struct trl_gemm_kern *kern;
    void (*finish)(const struct trl_gemm_out *, int64_t, int64_t, const float *, int64_t);
    struct trl_pack_src src[2]; /* A, B */
    int64_t panels[2]; /* of A (rows of C), of B (columns) */
    int64_t group[2]; /* panels packed together */
    int whole; /* which factor is packed whole: 0 A, 1 B */
    const struct trl_packed_weight *cached; /* B, packed earlier */
    int64_t n_blocks, block; /* K blocks and their length */
    int64_t chunks; /* parts that the whole factor's panels are cut into per item */
    /* this block */
    int64_t index, k0, k, k_pad;
    /* work memory */
    char *whole_data, *stream_data, *tiles;
    size_t stream_size, tile_size;
    float *acc; /* [m_pad, n_pad] sums between K blocks, or NULL: kept in C */
    int64_t ld_acc;
};

static int width(const struct product *g, int factor)
{
    return factor ? g->kern->nr : g->kern->mr;
}

static int64_t extent(const struct product *g, int factor)
{
    return factor ? g->a->n : g->a->m;
}

static size_t panel_bytes(const struct product *g, int factor, int64_t k_pad)
{
    return (size_t)(width(g, factor) * k_pad) * (size_t)g->kern->elem;
}

/* `count` panels from `panel` on */
static void pack_panels(const struct product *g, int factor, int64_t panel, int64_t count,
    int64_t k0, int64_t k, void *dst)
{
    int64_t i0 = panel * width(g, factor),
            rows = trl_min64(count * width(g, factor), extent(g, factor) - i0);
    size_t stride = panel_bytes(g, factor, trl_round_up(k, g->kern->k_step));
    (factor ? g->kern->pack_b : g->kern->pack_a)(dst, stride, &g->src[factor], i0, rows, k0, k);
}

static char *cached_panel(const struct product *g, int64_t block, int64_t panel)
{
    int64_t before = block * g->block; /* blocks before the last are full and padded already */
    int64_t k_pad = trl_round_up(trl_min64(g->block, g->a->k - before), g->kern->k_step);
    return (char *)g->cached->data +
        (size_t)(before * g->panels[1]) * (size_t)(g->kern->nr * g->kern->elem) +
        (size_t)panel * panel_bytes(g, 1, k_pad);
}

static void pack_whole(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    struct product *g = ctx;
    size_t step = panel_bytes(g, g->whole, g->k_pad);
    for (int64_t p = begin; p < end; p += g->group[g->whole])
        pack_panels(g, g->whole, p, trl_min64(g->group[g->whole], end - p), g->k0, g->k,
            g->whole_data + (size_t)p * step);
}

static void one_tile(
    const struct product *g, int64_t pm, int64_t pn, const void *pa, const void *pb, float *tile)
{
    const struct trl_op_gemm *a = g->a;
    const struct trl_gemm_kern *kern = g->kern;
    int64_t i0 = pm * kern->mr, j0 = pn * kern->nr;
    int64_t rows = trl_min64(kern->mr, a->m - i0), cols = trl_min64(kern->nr, a->n - j0);
    bool first = g->index == 0, last = g->index == g->n_blocks - 1;
    size_t at = (size_t)(i0 * a->ldc + j0) * trl_dtype_size(a->c_dtype);
    struct trl_gemm_out out = {.c = (char *)a->c + at,
        .bias = a->bias,
        .bias_at = j0,
        .ldc = a->ldc,
        .c_dtype = a->c_dtype,
        .bias_dtype = a->bias_dtype,
        .alpha = a->alpha,
        .beta = a->beta};
    if (g->acc) {
        float *acc = g->acc + i0 * g->ld_acc + j0;
        kern->micro(g->k_pad, pa, pb, acc, g->ld_acc, !first);
        if (last)
            g->finish(&out, rows, cols, acc, g->ld_acc);
        return;
    }
    if (!first) {
        out.beta = 1;
        out.bias = NULL;
    }
    if (a->c_dtype == TRL_DTYPE_F32 && rows == kern->mr && cols == kern->nr && out.alpha == 1 &&
        !out.bias && (out.beta == 0 || out.beta == 1)) {
        kern->micro(g->k_pad, pa, pb, (float *)out.c, a->ldc, out.beta == 1);
        return;
    }
    kern->micro(g->k_pad, pa, pb, tile, kern->nr, false);
    g->finish(&out, rows, cols, tile, kern->nr);
}

/* Items are (group of panels of the streamed factor, part of the whole factor's panels). */
static void multiply(void *ctx, int64_t begin, int64_t end, int thread)
{
    struct product *g = ctx;
    int stream = 1 - g->whole;
    char *buf = g->stream_data + (size_t)thread * g->stream_size;
    float *tile = (float *)(void *)(g->tiles + (size_t)thread * g->tile_size);
    int64_t n_whole = g->panels[g->whole], have = -1, count = 0;
    size_t step = panel_bytes(g, g->whole, g->k_pad),
           stream_step = panel_bytes(g, stream, g->k_pad);
    const char *whole = g->whole == 1 && g->cached ? cached_panel(g, g->index, 0) : g->whole_data;
    const char *streamed = buf;
    if (g->kern->begin)
        g->kern->begin();
    for (int64_t item = begin; item < end; item++) {
        int64_t s = item / g->chunks * g->group[stream], c = item % g->chunks;
        if (s != have) {
            have = s;
            count = trl_min64(g->group[stream], g->panels[stream] - s);
            if (stream == 1 && g->cached)
                streamed = cached_panel(g, g->index, s);
            else
                pack_panels(g, stream, s, count, g->k0, g->k, buf);
        }
        for (int64_t w = n_whole * c / g->chunks; w < n_whole * (c + 1) / g->chunks; w++)
            for (int64_t i = 0; i < count; i++) {
                const char *pw = whole + (size_t)w * step, *ps = streamed + (size_t)i * stream_step;
                if (stream == 1)
                    one_tile(g, w, s + i, pw, ps, tile);
                else
                    one_tile(g, s + i, w, ps, pw, tile);
            }
    }
    if (g->kern->end)
        g->kern->end();
}

static void choose_kernel(
    struct product *g, const struct trl_cpu_impl *impl, const struct trl_op_gemm *a)
{
    bool bf16 = (a->a_dtype == TRL_DTYPE_BF16 || a->round == TRL_DTYPE_BF16) &&
        (a->b_dtype == TRL_DTYPE_BF16 || a->round == TRL_DTYPE_BF16) && a->round != TRL_DTYPE_F16;
    g->a = a;
    g->kern = bf16 && impl->gemm_bf16 ? impl->gemm_bf16 : impl->table->gemm_f32;
    g->finish = impl->table->gemm_finish;
    g->src[0] = (struct trl_pack_src){a->a, a->lda, a->a_dtype, a->round, !a->trans_a};
    g->src[1] = (struct trl_pack_src){a->b, a->ldb, a->b_dtype, a->round, a->trans_b};
    g->panels[0] = (a->m + g->kern->mr - 1) / g->kern->mr;
    g->panels[1] = (a->n + g->kern->nr - 1) / g->kern->nr;
    for (int i = 0; i < 2; i++)
        g->group[i] = width(g, i) < GROUP_ROWS ? GROUP_ROWS / width(g, i) : 1;
    g->n_blocks = a->k > 0 ? (a->k + g->kern->k_block - 1) / g->kern->k_block : 1;
    g->block = trl_round_up((a->k + g->n_blocks - 1) / g->n_blocks, g->kern->k_step);
    if (g->block > 0)
        g->n_blocks = (a->k + g->block - 1) / g->block;
}

static bool worth_keeping(const struct product *g)
{
    return g->a->b_is_weight && g->kern->elem == 2 && g->a->n * g->a->k >= PACK_WEIGHT_MIN;
}

static size_t packed_size(const struct product *g)
{
    int64_t k_pad = trl_round_up(g->a->k, g->kern->k_step);
    return (size_t)(k_pad * g->panels[1]) * (size_t)(g->kern->nr * g->kern->elem);
}

size_t trl_cpu_weight_pack_bytes(struct trl_backend *be, const struct trl_op_gemm *a)
{
    struct product g = {0};
    choose_kernel(&g, trl_cpu_impl(be), a);
    return worth_keeping(&g) ? packed_size(&g) : 0;
}

static void pack_cached(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    struct product *g = ctx;
    for (int64_t i = begin; i < end; i++) {
        int64_t block = i / g->panels[1], panel = i % g->panels[1], k0 = block * g->block;
        pack_panels(
            g, 1, panel, 1, k0, trl_min64(g->block, g->a->k - k0), cached_panel(g, block, panel));
    }
}

/* The packed copy of this weight, made now if it is not there or stale. NULL: not kept. */
static const struct trl_packed_weight *find_packed(struct trl_backend *be, struct product *g)
{
    struct trl_cpu_impl *impl = trl_cpu_impl(be);
    const struct trl_op_gemm *a = g->a;
    if (!worth_keeping(g))
        return NULL;
    struct trl_packed_weight *w = NULL;
    for (int i = 0; i < impl->n_packed && !w; i++) {
        struct trl_packed_weight *e = &impl->packed[i];
        if (e->b == a->b && e->n == a->n && e->k == a->k && e->ldb == a->ldb &&
            e->trans_b == a->trans_b && e->kern == g->kern && e->dtype == a->b_dtype &&
            e->round == a->round)
            w = e;
    }
    if (!w) {
        if (impl->n_packed == TRL_MAX_PACKED)
            return NULL;
        void *data = trl_slab_new(packed_size(g));
        if (!data)
            return NULL;
        w = &impl->packed[impl->n_packed++];
        *w = (struct trl_packed_weight){.b = a->b,
            .n = a->n,
            .k = a->k,
            .ldb = a->ldb,
            .trans_b = a->trans_b,
            .kern = g->kern,
            .dtype = a->b_dtype,
            .round = a->round,
            .data = data,
            .size = packed_size(g)};
    }
    if (!w->fresh) {
        g->cached = w;
        trl_parallel_for(be->pool, g->n_blocks * g->panels[1], 1, pack_cached, g);
        w->fresh = true;
    }
    return w;
}

void trl_cpu_weights_changed(struct trl_backend *be)
{
    struct trl_cpu_impl *impl = trl_cpu_impl(be);
    for (int i = 0; i < impl->n_packed; i++)
        impl->packed[i].fresh = false;
}

void trl_cpu_free_packed(struct trl_backend *be)
{
    struct trl_cpu_impl *impl = trl_cpu_impl(be);
    for (int i = 0; i < impl->n_packed; i++)
        trl_slab_free(impl->packed[i].data, impl->packed[i].size);
    impl->n_packed = 0;
}

static int lay_out_memory(struct trl_backend *be, struct product *g, int threads)
{
    int64_t k_pad = trl_round_up(trl_min64(g->block, g->a->k), g->kern->k_step);
    int64_t m_pad = g->panels[0] * g->kern->mr, n_pad = g->panels[1] * g->kern->nr;
    size_t whole = (size_t)g->panels[g->whole] * panel_bytes(g, g->whole, k_pad);
    bool keep = g->n_blocks > 1 && g->a->c_dtype != TRL_DTYPE_F32;
    size_t acc = keep ? (size_t)(m_pad * n_pad) * sizeof(float) : 0;
    if (g->whole == 1 && g->cached)
        whole = 0;
    whole = (whole + 63) & ~(size_t)63;
    g->stream_size =
        (panel_bytes(g, 1 - g->whole, k_pad) * (size_t)g->group[1 - g->whole] + 63) & ~(size_t)63;
    g->tile_size = (size_t)(g->kern->mr * g->kern->nr) * sizeof(float);
    char *p = trl_cpu_work(be, whole + acc + (size_t)threads * (g->stream_size + g->tile_size));
    if (!p)
        return TRL_E_NOMEM;
    g->whole_data = p;
    g->acc = keep ? (float *)(void *)(p + whole) : NULL;
    g->ld_acc = n_pad;
    g->stream_data = p + whole + acc;
    g->tiles = g->stream_data + (size_t)threads * g->stream_size;
    return 0;
}

int trl_cpu_gemm(struct trl_backend *be, const struct trl_op_gemm *a)
{
    struct product g = {0};
    if (a->m <= 0 || a->n <= 0)
        return 0;
    choose_kernel(&g, trl_cpu_impl(be), a);
    double flops = 2.0 * (double)a->m * (double)a->n * (double)(a->k > 0 ? a->k : 1);
    struct trl_pool *pool = flops < SMALL_FLOPS ? NULL : be->pool;
    int threads = trl_pool_size(pool);
    g.cached = find_packed(be, &g);
    g.whole = a->m > a->n;
    int rc = lay_out_memory(be, &g, threads);
    if (rc != 0)
        return rc;
    int64_t group = g.group[1 - g.whole], streamed = (g.panels[1 - g.whole] + group - 1) / group;
    g.chunks = streamed >= (int64_t)ITEMS_PER_THREAD * threads || threads == 1
        ? 1
        : trl_min64(g.panels[g.whole], (ITEMS_PER_THREAD * threads + streamed - 1) / streamed);
    for (g.index = 0; g.index < g.n_blocks; g.index++) {
        g.k0 = g.index * g.block;
        g.k = trl_min64(g.block, a->k - g.k0);
        g.k_pad = trl_round_up(g.k, g.kern->k_step);
        if (g.whole == 0 || !g.cached)
            trl_parallel_for(pool, g.panels[g.whole], g.group[g.whole], pack_whole, &g);
        trl_parallel_for(pool, streamed * g.chunks, 1, multiply, &g);
    }
    return 0;
}
