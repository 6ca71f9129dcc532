/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times every op on the shapes of a SmolLM2-135M training step (1024 tokens). One JSON object a
 * line: op, case, type, best seconds, GFLOP/s or GB/s and, for products, the share of the large
 * square product's rate on this machine. Usage: bench-ops [threads [isa [name of op]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "tensor/backend.h"

enum { N = 1024, H = 576, I = 1536, V = 49152, KV = 192, CHUNK = 512 };

static struct trl_backend *be;
static double peak[TRL_DTYPE_MAX_];
static const char *only;
static char *mem[8];
static const size_t mem_size = (size_t)V * 1024 * 4;

/* One thread: its processor time, so that other programs count less. Several: elapsed time. */
static double now(void)
{
    struct timespec t;
    if (trl_pool_size(be->pool) > 1)
        return trl_clock_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Shortest of many runs, about a quarter of a second of them. */
static double best_of(void (*run)(const void *), const void *arg)
{
    double best = 1e9, start = trl_clock_now();
    for (int i = 0; i < 3 || trl_clock_now() - start < 0.25; i++) {
        double t = now();
        run(arg);
        t = now() - t;
        best = t < best ? t : best;
    }
    return best;
}

static void report(const char *op, const char *what, enum trl_dtype t, double seconds, double flops,
    double bytes, double of)
{
    printf("{\"op\": \"%s\", \"case\": \"%s\", \"type\": \"%s\", \"ms\": %.4f", op, what,
        trl_dtype_name(t), seconds * 1e3);
    if (flops > 0)
        printf(", \"gflops\": %.1f", flops / seconds * 1e-9);
    if (bytes > 0)
        printf(", \"gb_per_s\": %.1f", bytes / seconds * 1e-9);
    if (of > 0)
        printf(", \"of_peak\": %.3f", flops / seconds * 1e-9 / of);
    printf("}\n");
    fflush(stdout);
}

static bool wanted(const char *op)
{
    return !only || !strcmp(only, op);
}

#define RUNNER(name) \
    __attribute__((unused)) static void run_##name(const void *arg) \
    { \
        if (be->ops.name(be, arg) != 0) \
            abort(); \
    }
TRL_OPS(RUNNER)

static void bench_gemm(void)
{
    static const struct {
        int64_t m, n, k;
        bool ta, tb;
        const char *what;
    } shapes[] = {
        {N, H, H, false, true, "q_proj"},
        {N, KV, H, false, true, "k_proj"},
        {N, I, H, false, true, "gate_proj"},
        {N, H, I, false, true, "down_proj"},
        {N, H, H, false, false, "q_proj dX"},
        {N, H, I, false, false, "gate_proj dX"},
        {N, I, H, false, false, "down_proj dX"},
        {H, H, N, true, false, "q_proj dW"},
        {KV, H, N, true, false, "k_proj dW"},
        {I, H, N, true, false, "gate_proj dW"},
        {H, I, N, true, false, "down_proj dW"},
        {CHUNK, V, H, false, true, "head"},
        {CHUNK, H, V, false, false, "head dX"},
        {V, H, CHUNK, true, false, "head dW"},
    };
    for (int type = 0; type < 3; type++)
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            enum trl_dtype store = type == 2 ? TRL_DTYPE_BF16 : TRL_DTYPE_F32,
                           round = type ? TRL_DTYPE_BF16 : TRL_DTYPE_F32;
            bool grad = shapes[i].ta;
            struct trl_op_gemm a = {.m = shapes[i].m,
                .n = shapes[i].n,
                .k = shapes[i].k,
                .trans_a = shapes[i].ta,
                .trans_b = shapes[i].tb,
                .a = mem[0],
                .b = mem[1],
                .c = mem[2],
                .lda = shapes[i].ta ? shapes[i].m : shapes[i].k,
                .ldb = shapes[i].tb ? shapes[i].k : shapes[i].n,
                .ldc = shapes[i].n,
                .a_dtype = store,
                .b_dtype = store,
                .c_dtype = grad ? TRL_DTYPE_F32 : store,
                .round = round,
                .alpha = 1,
                .beta = grad,
                .b_is_weight = !grad};
            char what[64];
            snprintf(
                what, sizeof(what), "%s%s", shapes[i].what, type == 1 ? ", float32 rounded" : "");
            double s = best_of(run_gemm, &a);
            report("gemm", what, round, s, 2.0 * (double)a.m * (double)a.n * (double)a.k, 0,
                peak[round]);
        }
}

static void bench_attention(void)
{
    int64_t starts[5];
    float *lse = (float *)mem[5];
    for (int docs = 1; docs <= 4; docs += 3)
        for (int type = 0; type < 3; type++) {
            enum trl_dtype store = type == 2 ? TRL_DTYPE_BF16 : TRL_DTYPE_F32,
                           round = type ? TRL_DTYPE_BF16 : TRL_DTYPE_F32;
            for (int i = 0; i <= docs; i++)
                starts[i] = (int64_t)i * N / docs;
            struct trl_op_attention a = {.n = N,
                .n_docs = docs,
                .hq = 9,
                .hkv = 3,
                .d = 64,
                .doc_start = starts,
                .q = mem[0],
                .k = mem[1],
                .v = mem[2],
                .out = mem[3],
                .lse = lse,
                .ld_q = H,
                .ld_k = KV,
                .ld_v = KV,
                .ld_out = H,
                .scale = 0.125f,
                .dtype = store,
                .round = round};
            struct trl_op_attention_bwd b = {.fwd = a,
                .d_out = mem[4],
                .dq = mem[6],
                .dk = mem[7],
                .dv = mem[7] + N * H * 4,
                .ld_dq = H,
                .ld_dk = KV,
                .ld_dv = KV};
            double len = (double)N / docs, pairs = docs * len * (len + 1) / 2 * 9;
            char what[64];
            snprintf(what, sizeof(what), "%dx%d%s", docs, N / docs,
                type == 1 ? ", float32 rounded" : "");
            report("attention", what, round, best_of(run_attention, &a), 4 * pairs * 64, 0,
                peak[round]);
            report("attention_bwd", what, round, best_of(run_attention_bwd, &b), 10 * pairs * 64, 0,
                peak[round]);
        }
}

static void bench_xent(void)
{
    static int32_t targets[CHUNK];
    static float logp[CHUNK], d_logp[CHUNK];
    static uint8_t hit[CHUNK];
    for (int type = 0; type < 2; type++) {
        size_t size = trl_dtype_size((enum trl_dtype)type);
        for (int i = 0; i < CHUNK; i++) {
            targets[i] = i;
            d_logp[i] = -1e-3f;
        }
        struct trl_op_xent a = {.n = CHUNK,
            .vocab = V,
            .ld = V,
            .logits = mem[0],
            .targets = targets,
            .stats = {.logp = logp, .hit = hit},
            .logits_dtype = (enum trl_dtype)type};
        report("xent", "forward", a.logits_dtype, best_of(run_xent, &a), 0,
            (double)CHUNK * V * (double)size, 0);
        a.d_logp = d_logp;
        report("xent", "with gradient", a.logits_dtype, best_of(run_xent, &a), 0,
            3.0 * CHUNK * V * (double)size, 0);
    }
}

static void bench_rows(enum trl_dtype t)
{
    double size = (double)trl_dtype_size(t);
    struct trl_op_rmsnorm norm = {.rows = N,
        .cols = H,
        .ld_x = H,
        .ld_y = H,
        .x = mem[0],
        .w = mem[1],
        .y = mem[2],
        .rstd = (float *)mem[3],
        .eps = 1e-5f,
        .cast_first = true,
        .x_dtype = t,
        .w_dtype = t,
        .y_dtype = t};
    struct trl_op_rmsnorm_bwd norm_bwd = {.rows = N,
        .cols = H,
        .ld_x = H,
        .ld_dy = H,
        .ld_dx = H,
        .x = mem[0],
        .w = mem[1],
        .dy = mem[2],
        .rstd = (float *)mem[3],
        .dx = mem[4],
        .dw = mem[5],
        .x_dtype = t,
        .w_dtype = t,
        .dy_dtype = t,
        .dx_dtype = t};
    struct trl_op_act act = {.rows = N,
        .cols = I,
        .ld_gate = I,
        .ld_up = I,
        .ld_y = I,
        .gate = mem[0],
        .up = mem[1],
        .y = mem[2],
        .dtype = t};
    struct trl_op_act_bwd act_bwd = {.rows = N,
        .cols = I,
        .ld_gate = I,
        .ld_up = I,
        .ld_dy = I,
        .ld_d_gate = I,
        .ld_d_up = I,
        .gate = mem[0],
        .up = mem[1],
        .dy = mem[2],
        .d_gate = mem[3],
        .d_up = mem[4],
        .dtype = t};
    static int32_t positions[N];
    struct trl_op_rope rope = {.n = N,
        .heads = 9,
        .d = 64,
        .ld_x = H,
        .ld_y = H,
        .x = mem[0],
        .y = mem[0],
        .cos_table = (float *)mem[1],
        .sin_table = (float *)mem[2],
        .positions = positions,
        .dtype = t};
    struct trl_op_add add = {.n = N * H,
        .a = mem[0],
        .b = mem[1],
        .y = mem[2],
        .a_dtype = t,
        .b_dtype = t,
        .y_dtype = t};
    struct trl_op_embed embed = {.n = N,
        .h = H,
        .vocab = V,
        .ids = positions,
        .table = mem[0],
        .out = mem[1],
        .scale = 1,
        .table_dtype = t,
        .out_dtype = t};
    struct trl_op_embed_bwd embed_bwd = {.n = N,
        .h = H,
        .vocab = V,
        .ids = positions,
        .d_table = mem[0],
        .d_out = mem[1],
        .scale = 1,
        .table_dtype = t,
        .out_dtype = t};
    for (int i = 0; i < N; i++)
        positions[i] = i;
    double row = (double)N * H * size, wide = (double)N * I * size;
    report("rmsnorm", "1024x576", t, best_of(run_rmsnorm, &norm), 0, 2 * row, 0);
    report("rmsnorm_bwd", "1024x576", t, best_of(run_rmsnorm_bwd, &norm_bwd), 0, 3 * row, 0);
    report("act", "silu 1024x1536", t, best_of(run_act, &act), 0, 3 * wide, 0);
    report("act_bwd", "silu 1024x1536", t, best_of(run_act_bwd, &act_bwd), 0, 5 * wide, 0);
    report("rope", "1024x9x64", t, best_of(run_rope, &rope), 0, 2 * row, 0);
    report("add", "1024x576", t, best_of(run_add, &add), 0, 3 * row, 0);
    report("embed", "1024x576", t, best_of(run_embed, &embed), 0, 2 * row, 0);
    report("embed_bwd", "1024x576", t, best_of(run_embed_bwd, &embed_bwd), 0, 3 * row, 0);
}

static void bench_optim(enum trl_dtype t)
{
    int64_t n = 40000000;
    double size = (double)trl_dtype_size(t), sum;
    struct trl_op_adamw adamw = {.n = n,
        .p = mem[0],
        .g = mem[1],
        .m = mem[2],
        .v = mem[3],
        .lr = 1e-5,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .grad_scale = 1,
        .bias1 = 0.1,
        .bias2 = 0.001,
        .p_dtype = t,
        .g_dtype = t,
        .state_dtype = t};
    struct trl_op_sumsq sumsq = {.n = n, .x = mem[1], .ret = &sum, .dtype = t};
    report("adamw", "40M", t, best_of(run_adamw, &adamw), 0, 7 * (double)n * size, 0);
    report("sumsq", "40M", t, best_of(run_sumsq, &sumsq), 0, (double)n * size, 0);
}

int main(int argc, char **argv)
{
    struct trl_err err = {0};
    struct trl_pool *pool = NULL;
    long long threads = 2;
    if (argc > 1 && !trl_parse_i64(argv[1], &threads))
        return 2;
    only = argc > 3 ? argv[3] : NULL;
    struct trl_backend_options opt = {
        .name = "cpu", .isa = argc > 2 && strcmp(argv[2], "-") ? argv[2] : NULL};
    if (trl_pool_new(&pool, (int)threads, NULL, NULL, &err) != 0)
        goto fail;
    opt.pool = pool;
    if (trl_backend_open(&be, &opt, &err) != 0)
        goto fail;
    for (int i = 0; i < 8; i++)
        if (!(mem[i] = be->mem_alloc(be, mem_size)))
            goto fail;
    for (int t = 0; t < 2; t++)
        peak[t] = trl_backend_gemm_peak(be, (enum trl_dtype)t, 0.5);
    printf("{\"backend\": \"%s\", \"float32_peak\": %.0f, \"bfloat16_peak\": %.0f}\n",
        be->describe(be), peak[0], peak[1]);
    if (wanted("gemm"))
        bench_gemm();
    if (wanted("attention"))
        bench_attention();
    if (wanted("xent"))
        bench_xent();
    for (int t = 0; t < 2 && wanted("rows"); t++)
        bench_rows((enum trl_dtype)t);
    for (int t = 0; t < 2 && wanted("optim"); t++)
        bench_optim((enum trl_dtype)t);
    for (int i = 0; i < 8; i++)
        be->mem_free(be, mem[i], mem_size);
    trl_backend_close(be);
    trl_pool_free(pool);
    return 0;
fail:
    fprintf(stderr, "bench-ops: %s\n", err.text[0] ? err.text : "out of memory");
    return 1;
}
