/* SPDX-License-Identifier: Apache-2.0 */
/* The reference itself: closed forms, and each backward against central differences of its forward.
 */
#include "ops-test.h"

static struct trl_backend *ref;

static void near_(const char *what, double got, double want, double tol)
{
    if (!(fabs(got - want) <= tol * (1 + fabs(want))))
        fail_msg("%s: %.9g, expected %.9g", what, got, want);
}

/* ---- closed forms ---- */

static void test_closed_forms(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, 4}, w[4] = {1, 1, 1, 1}, y[4], b[4] = {0}, mean, rstd;
    static const double rms[4] = {0.365148, 0.730297, 1.095445, 1.460593},
                        layer[4] = {-1.341641, -0.447214, 0.447214, 1.341641};
    struct trl_op_rmsnorm n = {
        .rows = 1, .cols = 4, .ld_x = 4, .ld_y = 4, .x = x, .w = w, .y = y, .eps = 1e-6f};
    assert_int_equal(ref->ops.rmsnorm(ref, &n), 0);
    for (int i = 0; i < 4; i++)
        near_("rmsnorm", y[i], rms[i], 1e-6);
    struct trl_op_layernorm l = {
        .rows = 1, .cols = 4, .x = x, .w = w, .b = b, .y = y, .mean = &mean, .rstd = &rstd};
    assert_int_equal(ref->ops.layernorm(ref, &l), 0);
    for (int i = 0; i < 4; i++)
        near_("layernorm", y[i], layer[i], 1e-6);
    near_("mean", mean, 2.5, 1e-7);
    static const double act_at_1[TRL_ACT_MAX_] = {0.731059, 0.841192, 0.841345, 1};
    for (int act = 0; act < TRL_ACT_MAX_; act++) {
        struct trl_op_act a = {.rows = 1, .cols = 1, .gate = x, .y = y, .act = (enum trl_act)act};
        assert_int_equal(ref->ops.act(ref, &a), 0);
        near_("activation at 1", y[0], act_at_1[act], 1e-6);
    }
    /* [[1,2],[3,4]] [[1,2],[3,4]] and its transposed forms */
    static const float want[4][4] = {
        {7, 10, 15, 22}, {10, 14, 14, 20}, {5, 11, 11, 25}, {7, 15, 10, 22}};
    for (int t = 0; t < 4; t++) {
        struct trl_op_gemm g = {.m = 2,
            .n = 2,
            .k = 2,
            .trans_a = t & 1,
            .trans_b = t >> 1,
            .a = x,
            .b = x,
            .c = y,
            .lda = 2,
            .ldb = 2,
            .ldc = 2,
            .alpha = 1};
        assert_int_equal(ref->ops.gemm(ref, &g), 0);
        for (int i = 0; i < 4; i++)
            near_("gemm", y[i], want[t][i], 0);
    }
    float cos_t[2] = {0, 1}, sin_t[2] = {1, 0}; /* first pair turns by 90 degrees */
    int32_t position = 0;
    struct trl_op_rope r = {.n = 1,
        .heads = 1,
        .d = 4,
        .ld_x = 4,
        .ld_y = 4,
        .x = x,
        .y = y,
        .cos_table = cos_t,
        .sin_table = sin_t,
        .positions = &position};
    assert_int_equal(ref->ops.rope(ref, &r), 0);
    assert_true(y[0] == -3 && y[1] == 2 && y[2] == 1 && y[3] == 4);
}

static void test_closed_xent_and_attention(void **state)
{
    (void)state;
    float logits[6] = {0, 0, 0, 0, 0, 0}, logp[2], entropy[2], mean_logp[2], d[2] = {-1, -1};
    int32_t targets[2] = {1, -1};
    struct trl_op_xent a = {.n = 2,
        .vocab = 3,
        .ld = 3,
        .logits = logits,
        .targets = targets,
        .stats = {.logp = logp, .entropy = entropy, .mean_logp = mean_logp},
        .d_logp = d};
    assert_int_equal(ref->ops.xent(ref, &a), 0);
    near_("log p", logp[0], -log(3), 1e-6);
    near_("log p of an ignored row", logp[1], 0, 0);
    near_("entropy", entropy[1], log(3), 1e-6);
    near_("mean log p", mean_logp[0], -log(3), 1e-6);
    near_("gradient", logits[1], -2.0 / 3, 1e-6);
    near_("gradient", logits[2], 1.0 / 3, 1e-6);
    assert_true(logits[3] == 0 && logits[4] == 0);
    /* equal keys: the mean of the values seen */
    float q[3] = {1, 1, 1}, v[3] = {3, 6, 12}, out[3], lse[3];
    int64_t docs[2] = {0, 3};
    struct trl_op_attention at = {.n = 3,
        .n_docs = 1,
        .hq = 1,
        .hkv = 1,
        .d = 1,
        .doc_start = docs,
        .q = q,
        .k = q,
        .v = v,
        .out = out,
        .lse = lse,
        .ld_q = 1,
        .ld_k = 1,
        .ld_v = 1,
        .ld_out = 1,
        .scale = 2};
    assert_int_equal(ref->ops.attention(ref, &at), 0);
    near_("attention", out[0], 3, 1e-6);
    near_("attention", out[1], 4.5, 1e-6);
    near_("attention", out[2], 7, 1e-6);
    near_("log-sum-exp", lse[2], 2 + log(3), 1e-6);
    at.window = 1;
    assert_int_equal(ref->ops.attention(ref, &at), 0);
    near_("window of one", out[2], 12, 1e-6);
}

/* ---- finite differences ---- */

/* loss(ctx) with x[i] moved by +-h, and +-h/2: Richardson's central difference */
static double slope(double (*loss)(void *), void *ctx, float *x)
{
    const float h = 1.0f / 16, keep = *x;
    double d[2];
    for (int i = 0; i < 2; i++) {
        float step = i ? h / 2 : h;
        *x = keep + step;
        double up = loss(ctx);
        *x = keep - step;
        d[i] = (up - loss(ctx)) / (2 * (double)step);
    }
    *x = keep;
    return (4 * d[1] - d[0]) / 3;
}

static void check_gradient(
    const char *what, double (*loss)(void *), void *ctx, float *x, const float *grad, int n)
{
    for (int i = 0; i < n; i++) {
        double want = slope(loss, ctx, &x[i]);
        if (!(fabs(grad[i] - want) <= 3e-4 * (1 + fabs(want))))
            fail_msg("%s[%d]: gradient %.7g, differences %.7g", what, i, (double)grad[i], want);
    }
}
static void fill(float *x, int n, uint64_t seed, double scale)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(scale * op_random(seed, (uint64_t)i));
}
static double dot(const float *a, const float *b, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)a[i] * (double)b[i];
    return s;
}

enum { R = 3, D = 5, RD = R * D };

struct norm {
    float x[RD], w[D], b[D], y[RD], c[RD], mean[R], rstd[R], offset;
};
static double rms_loss(void *ctx)
{
    struct norm *s = ctx;
    struct trl_op_rmsnorm a = {.rows = R,
        .cols = D,
        .ld_x = D,
        .ld_y = D,
        .x = s->x,
        .w = s->w,
        .y = s->y,
        .rstd = s->rstd,
        .eps = 1e-5f,
        .offset = s->offset};
    assert_int_equal(ref->ops.rmsnorm(ref, &a), 0);
    return dot(s->y, s->c, RD);
}
static double layer_loss(void *ctx)
{
    struct norm *s = ctx;
    struct trl_op_layernorm a = {.rows = R,
        .cols = D,
        .x = s->x,
        .w = s->w,
        .b = s->b,
        .y = s->y,
        .mean = s->mean,
        .rstd = s->rstd,
        .eps = 1e-5f};
    assert_int_equal(ref->ops.layernorm(ref, &a), 0);
    return dot(s->y, s->c, RD);
}
static void test_norm_gradients(void **state)
{
    (void)state;
    struct norm s = {.offset = 1};
    fill(s.x, RD, 1, 1.5);
    fill(s.w, D, 2, 1);
    fill(s.b, D, 3, 1);
    fill(s.c, RD, 4, 1);
    float dx[RD], dw[D] = {0}, db[D] = {0};
    rms_loss(&s);
    struct trl_op_rmsnorm_bwd a = {.rows = R,
        .cols = D,
        .ld_x = D,
        .ld_dy = D,
        .ld_dx = D,
        .x = s.x,
        .w = s.w,
        .dy = s.c,
        .rstd = s.rstd,
        .dx = dx,
        .dw = dw,
        .offset = 1};
    assert_int_equal(ref->ops.rmsnorm_bwd(ref, &a), 0);
    check_gradient("rmsnorm dx", rms_loss, &s, s.x, dx, RD);
    check_gradient("rmsnorm dw", rms_loss, &s, s.w, dw, D);
    memset(dw, 0, sizeof(dw));
    layer_loss(&s);
    struct trl_op_layernorm_bwd l = {.rows = R,
        .cols = D,
        .x = s.x,
        .w = s.w,
        .dy = s.c,
        .mean = s.mean,
        .rstd = s.rstd,
        .dx = dx,
        .dw = dw,
        .db = db};
    assert_int_equal(ref->ops.layernorm_bwd(ref, &l), 0);
    check_gradient("layernorm dx", layer_loss, &s, s.x, dx, RD);
    check_gradient("layernorm dw", layer_loss, &s, s.w, dw, D);
    check_gradient("layernorm db", layer_loss, &s, s.b, db, D);
}

struct act {
    float gate[8], up[8], y[8], c[8];
    enum trl_act act;
    bool gated;
};
static double act_loss(void *ctx)
{
    struct act *s = ctx;
    struct trl_op_act a = {.rows = 1,
        .cols = 8,
        .gate = s->gate,
        .up = s->gated ? s->up : NULL,
        .y = s->y,
        .act = s->act};
    assert_int_equal(ref->ops.act(ref, &a), 0);
    return dot(s->y, s->c, 8);
}
static void test_act_gradients(void **state)
{
    (void)state;
    for (int act = 0; act < TRL_ACT_MAX_; act++)
        for (int gated = 0; gated < 2; gated++) {
            struct act s = {.act = (enum trl_act)act, .gated = gated};
            float dg[8], du[8];
            for (int i = 0; i < 8; i++)
                s.gate[i] = (float)(i - 4) + 0.4f; /* ReLU's corner is not inside a step */
            fill(s.up, 8, 5, 1);
            fill(s.c, 8, 6, 1);
            struct trl_op_act_bwd a = {.rows = 1,
                .cols = 8,
                .gate = s.gate,
                .up = gated ? s.up : NULL,
                .dy = s.c,
                .d_gate = dg,
                .d_up = du,
                .act = s.act};
            assert_int_equal(ref->ops.act_bwd(ref, &a), 0);
            check_gradient("act d_gate", act_loss, &s, s.gate, dg, 8);
            if (gated)
                check_gradient("act d_up", act_loss, &s, s.up, du, 8);
        }
}

struct xent {
    float logits[4 * 6], work[4 * 6], logp[4], entropy[4], mean[4], d_logp[4], d_entropy[4],
        d_mean[4], softcap;
    int32_t targets[4];
};
static double xent_loss(void *ctx)
{
    struct xent *s = ctx;
    memcpy(s->work, s->logits, sizeof(s->work));
    struct trl_op_xent a = {.n = 4,
        .vocab = 6,
        .ld = 6,
        .logits = s->work,
        .targets = s->targets,
        .stats = {.logp = s->logp, .entropy = s->entropy, .mean_logp = s->mean},
        .softcap = s->softcap};
    assert_int_equal(ref->ops.xent(ref, &a), 0);
    return dot(s->logp, s->d_logp, 4) + dot(s->entropy, s->d_entropy, 4) +
        dot(s->mean, s->d_mean, 4);
}
static void test_xent_gradients(void **state)
{
    (void)state;
    for (int cap = 0; cap < 2; cap++) {
        struct xent s = {.softcap = cap ? 3.0f : 0.0f, .targets = {0, 5, -1, 2}};
        fill(s.logits, 24, 7, 2);
        fill(s.d_logp, 4, 8, 1);
        fill(s.d_entropy, 4, 9, 1);
        fill(s.d_mean, 4, 10, 1);
        float grad[24];
        memcpy(grad, s.logits, sizeof(grad));
        struct trl_op_xent a = {.n = 4,
            .vocab = 6,
            .ld = 6,
            .logits = grad,
            .targets = s.targets,
            .d_logp = s.d_logp,
            .d_entropy = s.d_entropy,
            .d_mean = s.d_mean,
            .softcap = s.softcap};
        assert_int_equal(ref->ops.xent(ref, &a), 0);
        check_gradient("xent", xent_loss, &s, s.logits, grad, 24);
    }
}

enum { T = 7, HQ = 2, AD = 3 };
struct attention {
    float q[T * HQ * AD], k[T * AD], v[T * AD], out[T * HQ * AD], lse[HQ * T], c[T * HQ * AD];
    int64_t docs[3], window;
    float softcap;
};
static struct trl_op_attention attention_args(struct attention *s)
{
    return (struct trl_op_attention){.n = T,
        .n_docs = 2,
        .hq = HQ,
        .hkv = 1,
        .d = AD,
        .doc_start = s->docs,
        .q = s->q,
        .k = s->k,
        .v = s->v,
        .out = s->out,
        .lse = s->lse,
        .ld_q = HQ * AD,
        .ld_k = AD,
        .ld_v = AD,
        .ld_out = HQ * AD,
        .scale = 0.7f,
        .softcap = s->softcap,
        .window = s->window};
}
static double attention_loss(void *ctx)
{
    struct attention *s = ctx;
    struct trl_op_attention a = attention_args(s);
    assert_int_equal(ref->ops.attention(ref, &a), 0);
    return dot(s->out, s->c, T * HQ * AD);
}
static void test_attention_gradients(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        struct attention s = {
            .docs = {0, 5, T}, .window = v & 1 ? 2 : 0, .softcap = v & 2 ? 2.0f : 0.0f};
        float dq[T * HQ * AD], dk[T * AD], dv[T * AD];
        fill(s.q, T * HQ * AD, 11, 1);
        fill(s.k, T * AD, 12, 1);
        fill(s.v, T * AD, 13, 1);
        fill(s.c, T * HQ * AD, 14, 1);
        attention_loss(&s);
        struct trl_op_attention_bwd b = {.fwd = attention_args(&s),
            .d_out = s.c,
            .dq = dq,
            .dk = dk,
            .dv = dv,
            .ld_dq = HQ * AD,
            .ld_dk = AD,
            .ld_dv = AD};
        assert_int_equal(ref->ops.attention_bwd(ref, &b), 0);
        check_gradient("attention dq", attention_loss, &s, s.q, dq, T * HQ * AD);
        check_gradient("attention dk", attention_loss, &s, s.k, dk, T * AD);
        check_gradient("attention dv", attention_loss, &s, s.v, dv, T * AD);
    }
}

/* The inverse rotation is the transpose: <rope(x), y> = <x, inverse(y)>. Embedding likewise. */
static void test_transposes(void **state)
{
    (void)state;
    enum { N = 3, HD = 8 };
    float x[N * HD], y[N * HD], rx[N * HD], ry[N * HD], c[5 * 4], s[5 * 4];
    int32_t pos[N] = {0, 4, 2};
    fill(x, N * HD, 15, 1);
    fill(y, N * HD, 16, 1);
    fill(c, 20, 17, 1);
    fill(s, 20, 18, 1);
    struct trl_op_rope a = {.n = N,
        .heads = 1,
        .d = HD,
        .ld_x = HD,
        .ld_y = HD,
        .x = x,
        .y = rx,
        .cos_table = c,
        .sin_table = s,
        .positions = pos};
    assert_int_equal(ref->ops.rope(ref, &a), 0);
    a.x = y;
    a.y = ry;
    a.inverse = true;
    assert_int_equal(ref->ops.rope(ref, &a), 0);
    near_("rope's transpose", dot(rx, y, N * HD), dot(x, ry, N * HD), 1e-6);
    float table[5 * HD], d_table[5 * HD] = {0}, out[N * HD];
    fill(table, 5 * HD, 19, 1);
    struct trl_op_embed e = {
        .n = N, .h = HD, .vocab = 5, .ids = pos, .table = table, .out = out, .scale = 3};
    assert_int_equal(ref->ops.embed(ref, &e), 0);
    struct trl_op_embed_bwd eb = {
        .n = N, .h = HD, .vocab = 5, .ids = pos, .d_out = y, .d_table = d_table, .scale = 3};
    assert_int_equal(ref->ops.embed_bwd(ref, &eb), 0);
    near_("embedding's transpose", dot(out, y, N * HD), dot(table, d_table, 5 * HD), 1e-6);
}

/* ---- opening backends ---- */

static void test_open(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_backend *be = NULL;
    struct trl_backend_options opt = {.name = "cuda"};
    assert_int_equal(trl_backend_open(&be, &opt, &err), TRL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cpu, ref"));
    opt.name = "tpu";
    assert_int_equal(trl_backend_open(&be, &opt, &err), TRL_E_USAGE);
    opt = (struct trl_backend_options){.isa = "mmx"};
    assert_int_equal(trl_backend_open(&be, &opt, &err), TRL_E_USAGE);
    assert_non_null(strstr(err.text, "'mmx'"));
    opt = (struct trl_backend_options){0};
    assert_trl_ok(trl_backend_open(&be, &opt, &err), &err);
    assert_string_equal(be->name, "cpu");
    assert_non_null(strstr(be->describe(be), trl_isa_name(trl_cpu_get()->best)));
    assert_true(trl_backend_gemm_peak(be, TRL_DTYPE_F32, 0.01) > 0);
    char *p = be->mem_alloc(be, 100), back[100];
    memset(back, 1, sizeof(back));
    assert_int_equal(be->copy_in(be, p, back, 100), 0);
    memset(back, 2, sizeof(back));
    assert_int_equal(be->copy_out(be, back, p, 100), 0);
    assert_int_equal(back[99], 1);
    assert_int_equal(be->fill_zero(be, p, 100), 0);
    assert_int_equal(p[50], 0);
    assert_int_equal(be->sync(be), 0);
    be->mem_free(be, p, 100);
    /* only weights that are used several times a step are kept packed, and only in 16 bits */
    struct trl_op_gemm g = {.m = 8,
        .n = 576,
        .k = 576,
        .trans_b = true,
        .ldb = 576,
        .round = TRL_DTYPE_BF16,
        .b_is_weight = true};
    assert_int_equal(be->weight_pack_bytes(be, &g), 0);
    g.n = 49152;
    size_t bytes = be->weight_pack_bytes(be, &g);
    assert_true(bytes == 0 || bytes == 49152 * 576 * 2);
    trl_backend_close(be);
}

static int setup(void **state)
{
    (void)state;
    op_open_backends();
    ref = op_backends[0].be;
    assert_non_null(ref->describe(ref));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_closed_xent_and_attention), cmocka_unit_test(test_norm_gradients),
        cmocka_unit_test(test_act_gradients), cmocka_unit_test(test_xent_gradients),
        cmocka_unit_test(test_attention_gradients), cmocka_unit_test(test_transposes),
        cmocka_unit_test(test_open)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, setup, op_close_backends);
}
