/* SPDX-License-Identifier: Apache-2.0 */
#include "ops-test.h"

struct spec {
    int64_t n, vocab, pad;
    float softcap;
    enum trl_dtype dtype;
    int stats, gradient; /* bits: 1 logp/d_logp, 2 entropy, 4 mean */
    bool callback;
    double scale;
};
enum { LOGITS, TARGETS, D_LOGP, D_ENT, D_MEAN, LOGP, ENT, MEAN, HIT, COEF };

/* the coefficients that the callback makes: -p, as dynamic fine-tuning does */
static void coef(void *ctx, int64_t n, const struct trl_xent_stats *stats)
{
    float *d = ctx;
    for (int64_t i = 0; i < n; i++)
        d[i] = -expf(stats->logp[i]);
}

static int run(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_xent a = {.n = s->n,
        .vocab = s->vocab,
        .ld = s->vocab + s->pad,
        .logits = op_ptr(c, LOGITS),
        .targets = op_ptr(c, TARGETS),
        .softcap = s->softcap,
        .logits_dtype = s->dtype};
    if (s->stats & 1)
        a.stats.logp = op_ptr(c, LOGP);
    if (s->stats & 2)
        a.stats.entropy = op_ptr(c, ENT);
    if (s->stats & 4)
        a.stats.mean_logp = op_ptr(c, MEAN);
    if (s->stats)
        a.stats.hit = op_ptr(c, HIT);
    if (s->gradient & 1)
        a.d_logp = op_ptr(c, D_LOGP);
    if (s->gradient & 2)
        a.d_entropy = op_ptr(c, D_ENT);
    if (s->gradient & 4)
        a.d_mean = op_ptr(c, D_MEAN);
    if (s->callback) {
        a.coef = coef;
        a.coef_ctx = op_ptr(c, COEF);
        a.d_logp = op_ptr(c, COEF);
    }
    return be->ops.xent(be, &a);
}

static void check(struct spec s)
{
    struct op_case c = {.run = run, .ctx = &s};
    size_t n = (size_t)s.n;
    int32_t targets[256];
    for (int64_t i = 0; i < s.n; i++)
        targets[i] = i % 4 == 3 ? -100 : (int32_t)((i * 37 + 5) % s.vocab);
    snprintf(c.label, sizeof(c.label),
        "xent %lldx%lld pad %lld softcap %g %s stats %d gradient %d callback %d scale %g",
        (long long)s.n, (long long)s.vocab, (long long)s.pad, (double)s.softcap,
        trl_dtype_name(s.dtype), s.stats, s.gradient, s.callback, s.scale);
    op_add(&c, OP_INOUT, s.dtype, n * (size_t)(s.vocab + s.pad), s.scale);
    op_add_raw(&c, OP_IN, 4, n, targets);
    for (int i = D_LOGP; i <= D_MEAN; i++)
        op_add(&c, OP_IN, TRL_DTYPE_F32, n, 1);
    for (int i = LOGP; i <= MEAN; i++)
        op_add(&c, OP_OUT, TRL_DTYPE_F32, n, 0);
    op_add_raw(&c, OP_INOUT, 1, n, NULL);
    op_add(&c, OP_INOUT, TRL_DTYPE_F32, n, 0);
    op_check(&c);
}

static void test_shapes(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {
        {0, 3}, {1, 1}, {3, 17}, {5, 63}, {4, 64}, {7, 65}, {9, 1100}, {2, 5000}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int g = 0; g < 8; g++)
            check((struct spec){.n = sizes[i][0],
                .vocab = sizes[i][1],
                .pad = g == 3 ? 5 : 0,
                .stats = 7 - g,
                .gradient = g,
                .scale = 2});
}

static void test_types(void **state)
{
    (void)state;
    for (int t = 0; t < TRL_DTYPE_MAX_; t++)
        for (int cap = 0; cap < 2; cap++)
            for (int call = 0; call < 2; call++)
                check((struct spec){.n = 6,
                    .vocab = 300,
                    .softcap = cap ? 5.0f : 0.0f,
                    .dtype = (enum trl_dtype)t,
                    .stats = 7,
                    .gradient = 7,
                    .callback = call,
                    .scale = 3});
}

static void test_large_values(void **state)
{
    (void)state;
    check((struct spec){.n = 4, .vocab = 200, .stats = 7, .gradient = 1, .scale = 60});
    check((struct spec){.n = 4, .vocab = 200, .stats = 7, .gradient = 7, .scale = 1e4});
}

/* ties: the lowest index wins; NaN is not hidden */
static void test_ties_and_nan(void **state)
{
    (void)state;
    op_open_backends();
    for (int i = 0; i < op_n_backends; i++) {
        float logits[2 * 40] = {0}, logp[2];
        uint8_t hit[2];
        int32_t targets[2] = {5, 6};
        logits[5] = logits[6] = logits[45] = logits[46] = 2;
        struct trl_op_xent a = {.n = 2,
            .vocab = 40,
            .ld = 40,
            .logits = logits,
            .targets = targets,
            .stats = {.logp = logp, .hit = hit}};
        assert_int_equal(op_backends[i].be->ops.xent(op_backends[i].be, &a), 0);
        assert_int_equal(hit[0], 1);
        assert_int_equal(hit[1], 0);
        logits[20] = NAN;
        assert_int_equal(op_backends[i].be->ops.xent(op_backends[i].be, &a), 0);
        assert_true(isnan(logp[0]));
        assert_false(isnan(logp[1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_types),
        cmocka_unit_test(test_large_values), cmocka_unit_test(test_ties_and_nan)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, op_close_backends);
}
