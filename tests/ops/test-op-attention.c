/* SPDX-License-Identifier: Apache-2.0 */
#include "ops-test.h"

struct spec {
    int64_t hq, hkv, d, window, pad;
    float softcap, dropout;
    enum trl_dtype dtype, round;
    int64_t n_docs;
    int64_t lengths[20];
};
enum { Q, K, V, DOCS, OUT, LSE, D_OUT, DQ, DK, DV };

static struct trl_op_attention args(struct op_case *c, const struct spec *s)
{
    struct trl_op_attention a = {.n_docs = s->n_docs,
        .hq = s->hq,
        .hkv = s->hkv,
        .d = s->d,
        .window = s->window,
        .softcap = s->softcap,
        .dropout = s->dropout,
        .dropout_seed = 99,
        .scale = 1 / sqrtf((float)s->d),
        .dtype = s->dtype,
        .round = s->round,
        .ld_q = s->hq * s->d + s->pad,
        .ld_k = s->hkv * s->d + s->pad,
        .ld_v = s->hkv * s->d,
        .ld_out = s->hq * s->d + s->pad};
    for (int64_t i = 0; i < s->n_docs; i++)
        a.n += s->lengths[i];
    if (c) {
        a.q = op_ptr(c, Q);
        a.k = op_ptr(c, K);
        a.v = op_ptr(c, V);
        a.doc_start = op_ptr(c, DOCS);
        a.out = op_ptr(c, OUT);
        a.lse = op_ptr(c, LSE);
    }
    return a;
}

static int run_forward(struct trl_backend *be, struct op_case *c)
{
    struct trl_op_attention a = args(c, c->ctx);
    return be->ops.attention(be, &a);
}

static int run_backward(struct trl_backend *be, struct op_case *c)
{
    struct trl_op_attention_bwd b = {.fwd = args(c, c->ctx),
        .d_out = op_ptr(c, D_OUT),
        .dq = op_ptr(c, DQ),
        .dk = op_ptr(c, DK),
        .dv = op_ptr(c, DV)};
    b.ld_dq = b.fwd.ld_q;
    b.ld_dk = b.fwd.ld_k;
    b.ld_dv = b.fwd.ld_v;
    return be->ops.attention_bwd(be, &b);
}

/* Forward and backward of one shape; the backward gets the reference's out and lse. */
static void check(struct spec s)
{
    struct trl_op_attention a = args(NULL, &s);
    int64_t starts[21] = {0};
    for (int64_t i = 0; i < s.n_docs; i++)
        starts[i + 1] = starts[i] + s.lengths[i];
    struct op_case c = {.run = run_forward, .ctx = &s};
    snprintf(c.label, sizeof(c.label),
        "forward of attention %lld/%lld heads of %lld, %lld docs, n %lld, window %lld, softcap %g, "
        "%s, round %s",
        (long long)s.hq, (long long)s.hkv, (long long)s.d, (long long)s.n_docs, (long long)a.n,
        (long long)s.window, (double)s.softcap, trl_dtype_name(s.dtype), trl_dtype_name(s.round));
    size_t n = (size_t)a.n;
    op_add(&c, OP_IN, s.dtype, n * (size_t)a.ld_q, 1.5);
    op_add(&c, OP_IN, s.dtype, n * (size_t)a.ld_k, 1.5);
    op_add(&c, OP_IN, s.dtype, n * (size_t)a.ld_v, 1);
    op_add_raw(&c, OP_IN, sizeof(int64_t), (size_t)s.n_docs + 1, starts);
    op_add(&c, OP_INOUT, s.dtype, n * (size_t)a.ld_out, 0);
    op_add(&c, OP_OUT, TRL_DTYPE_F32, n * (size_t)s.hq, 0);
    /* probabilities are rounded before or after they are normalised */
    enum trl_dtype coarse = s.dtype == TRL_DTYPE_BF16 || s.round == TRL_DTYPE_BF16 ? TRL_DTYPE_BF16
        : s.dtype > s.round                                                        ? s.dtype
                                                                                   : s.round;
    for (int i = OUT; i <= LSE; i++)
        c.bufs[i].tol = op_tolerance(coarse);
    struct op_case b = c;
    op_open_backends();
    op_reset(&c);
    assert_int_equal(run_forward(op_backends[0].be, &c), 0);
    /* the backward's case: the same inputs and the results */
    for (int i = 0; i <= LSE; i++) {
        size_t bytes = b.bufs[i].n * op_elem(&b.bufs[i]);
        b.bufs[i].master = trl_malloc(bytes);
        memcpy(b.bufs[i].master, op_ptr(&c, i), bytes);
        b.bufs[i].now = NULL;
        b.bufs[i].kind = OP_IN;
    }
    op_check(&c);
    b.run = run_backward;
    b.n = D_OUT;
    memcpy(b.label, "BACKWRD", 7);
    op_add(&b, OP_IN, s.dtype, n * (size_t)a.ld_out, 1);
    op_add(&b, OP_INOUT, s.dtype, n * (size_t)a.ld_q, 0);
    op_add(&b, OP_INOUT, s.dtype, n * (size_t)a.ld_k, 0);
    op_add(&b, OP_INOUT, s.dtype, n * (size_t)a.ld_v, 0);
    for (int i = DQ; i <= DV; i++)
        b.bufs[i].tol = 2 * op_tolerance(coarse);
    op_check(&b);
}

static void test_shapes(void **state)
{
    (void)state;
    check((struct spec){.hq = 1, .hkv = 1, .d = 1, .n_docs = 1, .lengths = {1}});
    check((struct spec){.hq = 2, .hkv = 1, .d = 3, .n_docs = 3, .lengths = {3, 0, 17}, .pad = 5});
    check((struct spec){.hq = 3, .hkv = 3, .d = 64, .n_docs = 2, .lengths = {65, 63}});
    check((struct spec){
        .hq = 6, .hkv = 2, .d = 16, .n_docs = 4, .lengths = {48, 49, 1, 31}, .pad = 2});
    check((struct spec){.hq = 2, .hkv = 1, .d = 40, .n_docs = 1, .lengths = {230}});
    check((struct spec){.hq = 2,
        .hkv = 1,
        .d = 8,
        .n_docs = 17,
        .lengths = {5, 1, 2, 9, 33, 1, 1, 1, 1, 8, 8, 8, 4, 3, 2, 50, 7}});
    check((struct spec){.hq = 1, .hkv = 1, .d = 8, .n_docs = 0});
}

static void test_dropout(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++)
        check((struct spec){.hq = 4,
            .hkv = 2,
            .d = 16,
            .dropout = 0.25f,
            .n_docs = 2,
            .lengths = {70, 33},
            .round = (enum trl_dtype)round});
}

static void test_window_and_cap(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        enum trl_dtype r = (enum trl_dtype)round;
        check((struct spec){
            .hq = 2, .hkv = 1, .d = 16, .window = 2, .n_docs = 2, .lengths = {20, 70}, .round = r});
        check((struct spec){
            .hq = 2, .hkv = 2, .d = 16, .window = 20, .n_docs = 1, .lengths = {400}, .round = r});
        check((struct spec){
            .hq = 2, .hkv = 1, .d = 16, .window = 200, .n_docs = 1, .lengths = {450}, .round = r});
        check((struct spec){.hq = 2,
            .hkv = 1,
            .d = 32,
            .softcap = 3,
            .n_docs = 2,
            .lengths = {64, 100},
            .round = r});
        check((struct spec){.hq = 2,
            .hkv = 1,
            .d = 32,
            .softcap = 50,
            .window = 30,
            .n_docs = 1,
            .lengths = {300},
            .round = r});
    }
}

static void test_types(void **state)
{
    (void)state;
    for (int t = 0; t < TRL_DTYPE_MAX_; t++)
        for (int r = 0; r < TRL_DTYPE_MAX_; r++)
            check((struct spec){.hq = 4,
                .hkv = 2,
                .d = 24,
                .n_docs = 2,
                .lengths = {70, 130},
                .dtype = (enum trl_dtype)t,
                .round = (enum trl_dtype)r,
                .pad = 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_window_and_cap),
        cmocka_unit_test(test_dropout), cmocka_unit_test(test_types)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, op_close_backends);
}
