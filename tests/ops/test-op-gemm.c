/* SPDX-License-Identifier: Apache-2.0 */
#include "ops-test.h"

enum { A, B, C, BIAS };

static int run(struct trl_backend *be, struct op_case *c)
{
    struct trl_op_gemm a = *(const struct trl_op_gemm *)c->ctx;
    a.a = op_ptr(c, A);
    a.b = op_ptr(c, B);
    a.c = op_ptr(c, C);
    a.bias = c->n > BIAS ? op_ptr(c, BIAS) : NULL;
    int rc = be->ops.gemm(be, &a);
    be->weights_changed(be);
    return rc;
}

static void check(struct trl_op_gemm a, bool bias, int64_t pad)
{
    struct op_case c = {.run = run, .ctx = &a};
    a.lda = (a.trans_a ? a.m : a.k) + pad;
    a.ldb = (a.trans_b ? a.k : a.n) + pad;
    a.ldc = a.n + pad;
    snprintf(c.label, sizeof(c.label),
        "gemm m%lld n%lld k%lld %c%c %s,%s->%s round %s alpha %g beta %g bias %d pad %lld",
        (long long)a.m, (long long)a.n, (long long)a.k, a.trans_a ? 't' : 'n',
        a.trans_b ? 't' : 'n', trl_dtype_name(a.a_dtype), trl_dtype_name(a.b_dtype),
        trl_dtype_name(a.c_dtype), trl_dtype_name(a.round), (double)a.alpha, (double)a.beta, bias,
        (long long)pad);
    op_add(&c, OP_IN, a.a_dtype, (size_t)((a.trans_a ? a.k : a.m) * a.lda), 1);
    op_add(&c, OP_IN, a.b_dtype, (size_t)((a.trans_b ? a.n : a.k) * a.ldb), 0.05);
    op_add(&c, a.beta != 0 || pad ? OP_INOUT : OP_OUT, a.c_dtype, (size_t)(a.m * a.ldc), 0.3);
    if (bias)
        op_add(&c, OP_IN, a.bias_dtype, (size_t)a.n, 0.3);
    op_check(&c);
}

static void test_shapes(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {3, 17, 5}, {63, 65, 64}, {64, 48, 33},
        {65, 96, 17}, {8, 48, 1}, {1, 200, 70}, {200, 1, 70}, {33, 33, 0}, {0, 4, 4}, {4, 0, 4},
        {130, 70, 96}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int trans = 0; trans < 4; trans++)
            for (int round = 0; round < TRL_DTYPE_MAX_; round++) {
                struct trl_op_gemm a = {.m = sizes[i][0],
                    .n = sizes[i][1],
                    .k = sizes[i][2],
                    .trans_a = trans & 1,
                    .trans_b = trans >> 1,
                    .round = (enum trl_dtype)round,
                    .alpha = 1};
                check(a, false, 0);
            }
}

static void test_types(void **state)
{
    (void)state;
    for (int ta = 0; ta < TRL_DTYPE_MAX_; ta++)
        for (int tb = 0; tb < TRL_DTYPE_MAX_; tb++)
            for (int tc = 0; tc < TRL_DTYPE_MAX_; tc++)
                for (int round = 0; round < TRL_DTYPE_MAX_; round++) {
                    struct trl_op_gemm a = {.m = 35,
                        .n = 50,
                        .k = 45,
                        .trans_a = ta & 1,
                        .trans_b = tb & 1,
                        .a_dtype = (enum trl_dtype)ta,
                        .b_dtype = (enum trl_dtype)tb,
                        .c_dtype = (enum trl_dtype)tc,
                        .bias_dtype = (enum trl_dtype)ta,
                        .round = (enum trl_dtype)round,
                        .alpha = 0.5f,
                        .beta = tc == 1 ? 0.0f : 1.5f};
                    check(a, ta != 1, 3);
                }
}

/* several blocks of K, several panels a thread, weights that are kept packed */
static void test_large(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        enum trl_dtype r = (enum trl_dtype)round;
        struct trl_op_gemm a = {
            .m = 70, .n = 100, .k = 2500, .trans_b = true, .round = r, .alpha = 1, .beta = 1};
        check(a, true, 0);
        a.c_dtype = TRL_DTYPE_BF16;
        check(a, true, 0);
        a = (struct trl_op_gemm){.m = 20,
            .n = 2100,
            .k = 2000,
            .trans_b = true,
            .round = r,
            .alpha = 1,
            .b_is_weight = true};
        check(a, false, 0);
        a = (struct trl_op_gemm){
            .m = 200, .n = 64, .k = 300, .trans_a = true, .round = r, .alpha = 1, .beta = 1};
        check(a, false, 0);
    }
}

/* A packed weight is used again until weights_changed, then packed anew. */
static void test_weight_cache(void **state)
{
    (void)state;
    op_open_backends();
    struct trl_backend *be = op_backends[op_n_backends - 1].be;
    enum { N = 2048, K = 2048 };
    float *a = trl_calloc(K, sizeof(*a)), *b = trl_calloc((size_t)N * K, sizeof(*b)),
          *c = trl_calloc(N, sizeof(*c));
    struct trl_op_gemm g = {.m = 1,
        .n = N,
        .k = K,
        .trans_b = true,
        .a = a,
        .b = b,
        .c = c,
        .lda = K,
        .ldb = K,
        .ldc = N,
        .round = TRL_DTYPE_BF16,
        .alpha = 1,
        .b_is_weight = true};
    a[7] = 2;
    for (int turn = 1; turn <= 3; turn++) {
        for (int64_t j = 0; j < N; j++)
            b[j * K + 7] = (float)(turn * (j % 5));
        be->weights_changed(be);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(be->ops.gemm(be, &g), 0);
            for (int64_t j = 0; j < N; j++)
                assert_true(c[j] == (float)(2 * turn * (j % 5)));
        }
    }
    trl_free(a);
    trl_free(b);
    trl_free(c);
}

/* Inputs that need rounding: bf16 results equal the reference's rounding and differ from float32's.
 */
static void test_rounding_is_real(void **state)
{
    (void)state;
    op_open_backends();
    enum { M = 40, N = 56, K = 64 };
    static float a[M * K], b[N * K], want[M * N], got[M * N], plain[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = (float)op_random(1, (uint64_t)i);
    for (int i = 0; i < N * K; i++)
        b[i] = (float)op_random(2, (uint64_t)i);
    struct trl_op_gemm g = {.m = M,
        .n = N,
        .k = K,
        .trans_b = true,
        .a = a,
        .b = b,
        .c = plain,
        .lda = K,
        .ldb = K,
        .ldc = N,
        .alpha = 1};
    assert_int_equal(op_backends[0].be->ops.gemm(op_backends[0].be, &g), 0);
    for (int round = 1; round < TRL_DTYPE_MAX_; round++) {
        g.round = (enum trl_dtype)round;
        g.c = want;
        assert_int_equal(op_backends[0].be->ops.gemm(op_backends[0].be, &g), 0);
        double gap = op_nmse(TRL_DTYPE_F32, want, plain, M * N);
        assert_true(gap > 1e-8);
        for (int i = 1; i < op_n_backends; i++) {
            g.c = got;
            assert_int_equal(op_backends[i].be->ops.gemm(op_backends[i].be, &g), 0);
            double e = op_nmse(TRL_DTYPE_F32, got, want, M * N);
            if (!(e < 1e-12))
                fail_msg("%s, rounding to %s: %g from the reference", op_backends[i].where,
                    trl_dtype_name(g.round), e);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_types),
        cmocka_unit_test(test_large), cmocka_unit_test(test_weight_cache),
        cmocka_unit_test(test_rounding_is_real)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, op_close_backends);
}
