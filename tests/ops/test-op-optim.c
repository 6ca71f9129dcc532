/* SPDX-License-Identifier: Apache-2.0 */
#include "ops-test.h"

struct spec {
    int64_t n, batch, rows, cols;
    enum trl_dtype p, g, s, copy;
    bool fused, momentum, nesterov, first, vector;
    double wd, scale;
};
enum { P, G, M, V, COPY };
enum { AP, AG, ROW, COL, SQ, AM, SCRATCH, ACOPY };

static int run_adamw(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_adamw a = {.n = s->n,
        .p = op_ptr(c, P),
        .g = op_ptr(c, G),
        .m = op_ptr(c, M),
        .v = op_ptr(c, V),
        .p_copy = op_ptr(c, COPY),
        .lr = 1e-3,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = s->wd,
        .grad_scale = s->scale,
        .bias1 = 1 - 0.9 * 0.9,
        .bias2 = 1 - 0.999 * 0.999,
        .fused = s->fused,
        .p_dtype = s->p,
        .g_dtype = s->g,
        .state_dtype = s->s,
        .copy_dtype = s->copy};
    /* second moments are not negative */
    for (int64_t i = 0; i < s->n; i++)
        trl_dtype_store(s->s, a.v, (size_t)i, fabsf(trl_dtype_load(s->s, a.v, (size_t)i)));
    return be->ops.adamw(be, &a);
}

static int run_sgd(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_sgd a = {.n = s->n,
        .p = op_ptr(c, P),
        .g = op_ptr(c, G),
        .buf = s->momentum ? op_ptr(c, M) : NULL,
        .p_copy = op_ptr(c, COPY),
        .lr = 1e-2,
        .momentum = 0.9,
        .dampening = s->nesterov ? 0 : 0.1,
        .weight_decay = s->wd,
        .grad_scale = s->scale,
        .nesterov = s->nesterov,
        .first = s->first,
        .p_dtype = s->p,
        .g_dtype = s->g,
        .state_dtype = s->s,
        .copy_dtype = s->copy};
    return be->ops.sgd(be, &a);
}

static int run_lion(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_lion a = {.n = s->n,
        .p = op_ptr(c, P),
        .g = op_ptr(c, G),
        .m = op_ptr(c, M),
        .p_copy = op_ptr(c, COPY),
        .lr = 1e-2,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .weight_decay = s->wd,
        .grad_scale = s->scale,
        .p_dtype = s->p,
        .g_dtype = s->g,
        .state_dtype = s->s,
        .copy_dtype = s->copy};
    return be->ops.lion(be, &a);
}

static int run_adafactor(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_adafactor a = {.batch = s->batch,
        .rows = s->rows,
        .cols = s->cols,
        .p = op_ptr(c, AP),
        .g = op_ptr(c, AG),
        .row_sq = s->vector ? NULL : op_ptr(c, ROW),
        .col_sq = op_ptr(c, COL),
        .sq = op_ptr(c, SQ),
        .m = s->momentum ? op_ptr(c, AM) : NULL,
        .scratch = op_ptr(c, SCRATCH),
        .p_copy = op_ptr(c, ACOPY),
        .lr = 1e-3,
        .eps1 = 1e-30,
        .clip_threshold = 1,
        .beta2t = s->first ? 0 : 0.6,
        .beta1 = 0.9,
        .weight_decay = s->wd,
        .grad_scale = s->scale,
        .p_dtype = s->p,
        .g_dtype = s->g,
        .copy_dtype = s->copy};
    for (int k = ROW; k <= SQ; k++)
        for (size_t i = 0; i < c->bufs[k].n; i++)
            ((float *)op_ptr(c, k))[i] = fabsf(((float *)op_ptr(c, k))[i]);
    return be->ops.adafactor(be, &a);
}

static void check(const char *op, int (*run)(struct trl_backend *, struct op_case *), struct spec s)
{
    struct op_case c = {.run = run, .ctx = &s};
    snprintf(c.label, sizeof(c.label),
        "%s n %lld %s/%s/%s fused %d momentum %d nesterov %d first %d decay %g scale %g", op,
        (long long)s.n, trl_dtype_name(s.p), trl_dtype_name(s.g), trl_dtype_name(s.s), s.fused,
        s.momentum, s.nesterov, s.first, s.wd, s.scale);
    op_add(&c, OP_INOUT, s.p, (size_t)s.n, 1);
    op_add(&c, OP_IN, s.g, (size_t)s.n, 0.1);
    op_add(&c, OP_INOUT, s.s, (size_t)s.n, 0.1);
    op_add(&c, OP_INOUT, s.s, (size_t)s.n, 0.01);
    op_add(&c, OP_INOUT, s.copy, (size_t)s.n, 0);
    for (int i = 0; i < c.n; i++)
        c.bufs[i].tol = 0; /* the same operations in the same order: the same bits */
    op_check(&c);
}

static void check_adafactor(struct spec s)
{
    struct op_case c = {.run = run_adafactor, .ctx = &s};
    size_t n = (size_t)(s.batch * s.rows * s.cols);
    snprintf(c.label, sizeof(c.label),
        "adafactor %lldx%lldx%lld vector %d %s/%s momentum %d first %d", (long long)s.batch,
        (long long)s.rows, (long long)s.cols, s.vector, trl_dtype_name(s.p), trl_dtype_name(s.g),
        s.momentum, s.first);
    op_add(&c, OP_INOUT, s.p, n, 1);
    op_add(&c, OP_IN, s.g, n, 0.1);
    op_add(&c, OP_INOUT, TRL_DTYPE_F32, s.vector ? 0 : (size_t)(s.batch * s.rows), 0.01);
    op_add(&c, OP_INOUT, TRL_DTYPE_F32, s.vector ? 0 : (size_t)(s.batch * s.cols), 0.01);
    op_add(&c, OP_INOUT, TRL_DTYPE_F32, s.vector ? n : 0, 0.01);
    op_add(&c, OP_INOUT, TRL_DTYPE_F32, n, 1e-4);
    op_add(&c, OP_INOUT, TRL_DTYPE_F32, n, 0);
    op_add(&c, OP_INOUT, s.copy, n, 0);
    op_check(&c);
}

static const int64_t sizes[] = {0, 1, 3, 17, 63, 64, 65, 9000};

static void test_elementwise(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int v = 0; v < 8; v++) {
            struct spec s = {.n = sizes[i],
                .p = (enum trl_dtype)(v % 3 == 1),
                .g = (enum trl_dtype)(v % 3),
                .s = (enum trl_dtype)(v % 3 == 1),
                .copy = TRL_DTYPE_BF16,
                .fused = v & 1,
                .momentum = v > 0,
                .nesterov = v & 1,
                .first = v == 4,
                .wd = v & 2 ? 0.01 : 0,
                .scale = v & 4 ? 0.37 : 1};
            check("adamw", run_adamw, s);
            check("sgd", run_sgd, s);
            check("lion", run_lion, s);
        }
}

static void test_adafactor(void **state)
{
    (void)state;
    for (size_t i = 1; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int v = 0; v < 4; v++)
            check_adafactor((struct spec){.batch = 1,
                .rows = 1,
                .cols = sizes[i],
                .vector = true,
                .momentum = v & 1,
                .first = v & 2,
                .wd = 0.1,
                .scale = 1,
                .copy = TRL_DTYPE_F16});
    static const int64_t shapes[][3] = {
        {1, 1, 1}, {1, 3, 17}, {2, 5, 7}, {1, 130, 65}, {3, 63, 64}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int v = 0; v < 6; v++)
            check_adafactor((struct spec){.batch = shapes[i][0],
                .rows = shapes[i][1],
                .cols = shapes[i][2],
                .momentum = v & 1,
                .first = v & 2,
                .wd = v & 1 ? 0.1 : 0,
                .scale = v & 1 ? 0.5 : 1,
                .p = (enum trl_dtype)(v % 3),
                .g = (enum trl_dtype)(v % 3),
                .copy = TRL_DTYPE_BF16});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_adafactor)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, op_close_backends);
}
