/* SPDX-License-Identifier: Apache-2.0 */
#include "ops-test.h"

struct spec {
    int64_t rows, cols, pad;
    bool cast_first, accumulate, frozen;
    float offset;
    enum trl_dtype tx, tw, ty;
};
enum { X, W, Y, RSTD }; /* rmsnorm */
enum { BX, BW, DY, BRSTD, DX, DW }; /* rmsnorm_bwd */
enum { LX, LW, LB, LY, LMEAN, LRSTD };
enum { GX, GW, GDY, GMEAN, GRSTD, GDX, GDW, GDB };

static int run_rms(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_rmsnorm a = {.rows = s->rows,
        .cols = s->cols,
        .ld_x = s->cols + s->pad,
        .ld_y = s->cols + s->pad,
        .x = op_ptr(c, X),
        .w = op_ptr(c, W),
        .y = op_ptr(c, Y),
        .rstd = op_ptr(c, RSTD),
        .eps = 1e-5f,
        .offset = s->offset,
        .cast_first = s->cast_first,
        .x_dtype = s->tx,
        .w_dtype = s->tw,
        .y_dtype = s->ty};
    return be->ops.rmsnorm(be, &a);
}

static int run_rms_bwd(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_rmsnorm_bwd a = {.rows = s->rows,
        .cols = s->cols,
        .ld_x = s->cols + s->pad,
        .ld_dy = s->cols + s->pad,
        .ld_dx = s->cols + s->pad,
        .x = op_ptr(c, BX),
        .w = op_ptr(c, BW),
        .dy = op_ptr(c, DY),
        .rstd = op_ptr(c, BRSTD),
        .dx = op_ptr(c, DX),
        .dw = s->frozen ? NULL : op_ptr(c, DW),
        .offset = s->offset,
        .accumulate_dx = s->accumulate,
        .x_dtype = s->tx,
        .w_dtype = s->tw,
        .dy_dtype = s->ty,
        .dx_dtype = s->ty};
    return be->ops.rmsnorm_bwd(be, &a);
}

static int run_layer(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_layernorm a = {.rows = s->rows,
        .cols = s->cols,
        .x = op_ptr(c, LX),
        .w = op_ptr(c, LW),
        .b = s->frozen ? NULL : op_ptr(c, LB),
        .y = op_ptr(c, LY),
        .mean = op_ptr(c, LMEAN),
        .rstd = op_ptr(c, LRSTD),
        .eps = 1e-5f,
        .x_dtype = s->tx,
        .w_dtype = s->tw,
        .y_dtype = s->ty};
    return be->ops.layernorm(be, &a);
}

static int run_layer_bwd(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_layernorm_bwd a = {.rows = s->rows,
        .cols = s->cols,
        .x = op_ptr(c, GX),
        .w = op_ptr(c, GW),
        .dy = op_ptr(c, GDY),
        .mean = op_ptr(c, GMEAN),
        .rstd = op_ptr(c, GRSTD),
        .dx = op_ptr(c, GDX),
        .dw = s->frozen ? NULL : op_ptr(c, GDW),
        .db = s->frozen ? NULL : op_ptr(c, GDB),
        .accumulate_dx = s->accumulate,
        .x_dtype = s->tx,
        .w_dtype = s->tw,
        .dy_dtype = s->ty,
        .dx_dtype = s->ty};
    return be->ops.layernorm_bwd(be, &a);
}

static void name(struct op_case *c, const char *op, const struct spec *s)
{
    snprintf(c->label, sizeof(c->label),
        "%s %lldx%lld pad %lld, cast_first %d, accumulate %d, offset %g, %s/%s/%s", op,
        (long long)s->rows, (long long)s->cols, (long long)s->pad, s->cast_first, s->accumulate,
        (double)s->offset, trl_dtype_name(s->tx), trl_dtype_name(s->tw), trl_dtype_name(s->ty));
}

static void check(struct spec s)
{
    size_t n = (size_t)(s.rows * (s.cols + s.pad)), rows = (size_t)s.rows, cols = (size_t)s.cols;
    enum op_kind out = s.pad ? OP_INOUT : OP_OUT;
    struct op_case c = {.run = run_rms, .ctx = &s};
    name(&c, "rmsnorm", &s);
    op_add(&c, OP_IN, s.tx, n, 2);
    op_add(&c, OP_IN, s.tw, cols, 1);
    op_add(&c, out, s.ty, n, 0);
    op_add(&c, OP_OUT, TRL_DTYPE_F32, rows, 0);
    op_check(&c);

    c = (struct op_case){.run = run_rms_bwd, .ctx = &s};
    name(&c, "rmsnorm_bwd", &s);
    op_add(&c, OP_IN, s.tx, n, 2);
    op_add(&c, OP_IN, s.tw, cols, 1);
    op_add(&c, OP_IN, s.ty, n, 1);
    op_add(&c, OP_IN, TRL_DTYPE_F32, rows, 0.5);
    op_add(&c, s.accumulate || s.pad ? OP_INOUT : OP_OUT, s.ty, n, 1);
    op_add(&c, OP_INOUT, s.tw, cols, 0.1);
    op_check(&c);
}

static void check_layer(struct spec s)
{
    size_t n = (size_t)(s.rows * s.cols), rows = (size_t)s.rows, cols = (size_t)s.cols;
    struct op_case c = {.run = run_layer, .ctx = &s};
    name(&c, "layernorm", &s);
    op_add(&c, OP_IN, s.tx, n, 2);
    op_add(&c, OP_IN, s.tw, cols, 1);
    op_add(&c, OP_IN, s.tw, cols, 1);
    op_add(&c, OP_OUT, s.ty, n, 0);
    op_add(&c, OP_OUT, TRL_DTYPE_F32, rows, 0);
    op_add(&c, OP_OUT, TRL_DTYPE_F32, rows, 0);
    if (s.cols == 1) /* variance 0: nothing but rounding noise is left of x - mean */
        c.bufs[LY].tol = c.bufs[LRSTD].tol = 1e-6;
    op_check(&c);

    c = (struct op_case){.run = run_layer_bwd, .ctx = &s};
    name(&c, "layernorm_bwd", &s);
    op_add(&c, OP_IN, s.tx, n, 2);
    op_add(&c, OP_IN, s.tw, cols, 1);
    op_add(&c, OP_IN, s.ty, n, 1);
    op_add(&c, OP_IN, TRL_DTYPE_F32, rows, 0.1);
    op_add(&c, OP_IN, TRL_DTYPE_F32, rows, 0.5);
    op_add(&c, s.accumulate ? OP_INOUT : OP_OUT, s.ty, n, 1);
    op_add(&c, OP_INOUT, s.tw, cols, 0.1);
    op_add(&c, OP_INOUT, s.tw, cols, 0.1);
    op_check(&c);
}

static const int64_t sizes[][2] = {{0, 5}, {1, 1}, {3, 17}, {2, 63}, {65, 64}, {130, 65}, {5, 576}};

static void test_rmsnorm(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int v = 0; v < 4; v++)
            check((struct spec){.rows = sizes[i][0],
                .cols = sizes[i][1],
                .pad = v == 3 ? 3 : 0,
                .offset = v == 1,
                .accumulate = v >= 2,
                .cast_first = v == 2,
                .frozen = v == 3});
}

static void test_rmsnorm_types(void **state)
{
    (void)state;
    for (int i = 0; i < 27; i++)
        for (int cast = 0; cast < 2; cast++)
            check((struct spec){.rows = 9,
                .cols = 70,
                .cast_first = cast,
                .accumulate = cast,
                .tx = (enum trl_dtype)(i % 3),
                .tw = (enum trl_dtype)(i / 3 % 3),
                .ty = (enum trl_dtype)(i / 9)});
}

static void test_layernorm(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int v = 0; v < 2; v++)
            check_layer((struct spec){
                .rows = sizes[i][0], .cols = sizes[i][1], .accumulate = v, .frozen = v});
    for (int i = 0; i < 27; i++)
        check_layer((struct spec){.rows = 9,
            .cols = 70,
            .accumulate = i & 1,
            .tx = (enum trl_dtype)(i % 3),
            .tw = (enum trl_dtype)(i / 3 % 3),
            .ty = (enum trl_dtype)(i / 9)});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_rmsnorm_types), cmocka_unit_test(test_layernorm)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, op_close_backends);
}
