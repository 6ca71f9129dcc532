/* SPDX-License-Identifier: Apache-2.0 */
#include "ops-test.h"

/* One description for all: unused fields stay 0. */
struct spec {
    int64_t rows, cols, pad, heads;
    enum trl_dtype ta, tb, tc;
    enum trl_act act;
    bool plain, in_place, flag;
    float alpha, beta;
};

static void name(struct op_case *c, const char *op, const struct spec *s)
{
    snprintf(c->label, sizeof(c->label),
        "%s %lldx%lld pad %lld heads %lld %s/%s/%s act %d plain %d in place %d flag %d", op,
        (long long)s->rows, (long long)s->cols, (long long)s->pad, (long long)s->heads,
        trl_dtype_name(s->ta), trl_dtype_name(s->tb), trl_dtype_name(s->tc), (int)s->act, s->plain,
        s->in_place, s->flag);
}

static const int64_t sizes[][2] = {{0, 4}, {1, 1}, {3, 17}, {2, 63}, {65, 64}, {40, 65}, {7, 1200}};
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* ---- activations ---- */

static int run_act(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_act a = {.rows = s->rows,
        .cols = s->cols,
        .ld_gate = s->cols + s->pad,
        .ld_up = s->cols + s->pad,
        .ld_y = s->cols + s->pad,
        .gate = op_ptr(c, 0),
        .up = s->plain ? NULL : op_ptr(c, 1),
        .y = s->in_place ? op_ptr(c, 0) : op_ptr(c, 2),
        .act = s->act,
        .dtype = s->ta};
    return be->ops.act(be, &a);
}

static int run_act_bwd(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    int64_t ld = s->cols + s->pad;
    struct trl_op_act_bwd a = {.rows = s->rows,
        .cols = s->cols,
        .ld_gate = ld,
        .ld_up = ld,
        .ld_dy = ld,
        .ld_d_gate = ld,
        .ld_d_up = ld,
        .gate = op_ptr(c, 0),
        .up = s->plain ? NULL : op_ptr(c, 1),
        .dy = op_ptr(c, 2),
        .d_gate = s->in_place ? op_ptr(c, 0) : op_ptr(c, 3),
        .d_up = s->in_place ? op_ptr(c, 1) : op_ptr(c, 4),
        .act = s->act,
        .dtype = s->ta};
    return be->ops.act_bwd(be, &a);
}

static void check_act(struct spec s)
{
    size_t n = (size_t)(s.rows * (s.cols + s.pad));
    enum op_kind in = s.in_place ? OP_INOUT : OP_IN;
    struct op_case c = {.run = run_act, .ctx = &s};
    name(&c, "act", &s);
    op_add(&c, in, s.ta, n, 3);
    op_add(&c, OP_IN, s.ta, n, 1);
    op_add(&c, OP_INOUT, s.ta, n, 0);
    op_check(&c);
    c = (struct op_case){.run = run_act_bwd, .ctx = &s};
    name(&c, "act_bwd", &s);
    op_add(&c, in, s.ta, n, 3);
    op_add(&c, in, s.ta, n, 1);
    op_add(&c, OP_IN, s.ta, n, 1);
    op_add(&c, OP_INOUT, s.ta, n, 0);
    op_add(&c, OP_INOUT, s.ta, n, 0);
    op_check(&c);
}

static void test_act(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES; i++)
        for (int act = 0; act < TRL_ACT_MAX_; act++)
            for (int t = 0; t < TRL_DTYPE_MAX_; t++)
                check_act((struct spec){.rows = sizes[i][0],
                    .cols = sizes[i][1],
                    .pad = t == 1 ? 3 : 0,
                    .ta = (enum trl_dtype)t,
                    .act = (enum trl_act)act,
                    .plain = (i + t) % 3 == 0,
                    .in_place = (i + act) & 1});
}

/* ---- embedding ---- */

enum { VOCAB = 11 };

static int run_embed(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_embed a = {.n = s->rows,
        .h = s->cols,
        .vocab = VOCAB,
        .ids = op_ptr(c, 0),
        .table = op_ptr(c, 1),
        .out = op_ptr(c, 2),
        .scale = s->alpha,
        .table_dtype = s->ta,
        .out_dtype = s->tb};
    return be->ops.embed(be, &a);
}

static int run_embed_bwd(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_embed_bwd a = {.n = s->rows,
        .h = s->cols,
        .vocab = VOCAB,
        .ids = op_ptr(c, 0),
        .d_table = op_ptr(c, 1),
        .d_out = op_ptr(c, 2),
        .scale = s->alpha,
        .table_dtype = s->ta,
        .out_dtype = s->tb};
    return be->ops.embed_bwd(be, &a);
}

static void test_embed(void **state)
{
    (void)state;
    int32_t ids[65];
    for (int i = 0; i < 65; i++)
        ids[i] = i * 7 % VOCAB;
    for (int i = 0; i < N_SIZES; i++)
        for (int t = 0; t < 9; t++) {
            struct spec s = {.rows = sizes[i][0],
                .cols = sizes[i][1],
                .ta = (enum trl_dtype)(t / 3),
                .tb = (enum trl_dtype)(t % 3),
                .alpha = t & 1 ? 1.5f : 1.0f};
            struct op_case c = {.run = run_embed, .ctx = &s};
            name(&c, "embed", &s);
            op_add_raw(&c, OP_IN, 4, (size_t)s.rows, ids);
            op_add(&c, OP_IN, s.ta, (size_t)(VOCAB * s.cols), 1);
            op_add(&c, OP_OUT, s.tb, (size_t)(s.rows * s.cols), 0);
            op_check(&c);
            c = (struct op_case){.run = run_embed_bwd, .ctx = &s};
            name(&c, "embed_bwd", &s);
            op_add_raw(&c, OP_IN, 4, (size_t)s.rows, ids);
            op_add(&c, OP_INOUT, s.ta, (size_t)(VOCAB * s.cols), 1);
            op_add(&c, OP_IN, s.tb, (size_t)(s.rows * s.cols), 1);
            op_check(&c);
        }
}

/* ---- rope ---- */

static int run_rope(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_rope a = {.n = s->rows,
        .heads = s->heads,
        .d = s->cols,
        .ld_x = s->heads * s->cols + s->pad,
        .ld_y = s->heads * s->cols + s->pad,
        .x = op_ptr(c, 3),
        .y = s->in_place ? op_ptr(c, 3) : op_ptr(c, 4),
        .cos_table = op_ptr(c, 0),
        .sin_table = op_ptr(c, 1),
        .positions = op_ptr(c, 2),
        .inverse = s->flag,
        .dtype = s->ta};
    return be->ops.rope(be, &a);
}

static void test_rope(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{0, 1, 2}, {1, 1, 2}, {3, 3, 6}, {17, 2, 64}, {65, 9, 34}};
    int32_t pos[65];
    for (int i = 0; i < 65; i++)
        pos[i] = i * 5 % 23;
    for (int i = 0; i < 5; i++)
        for (int t = 0; t < TRL_DTYPE_MAX_; t++)
            for (int v = 0; v < 4; v++) {
                struct spec s = {.rows = shapes[i][0],
                    .heads = shapes[i][1],
                    .cols = shapes[i][2],
                    .pad = v == 1 ? 6 : 0,
                    .ta = (enum trl_dtype)t,
                    .in_place = v & 1,
                    .flag = v >> 1};
                size_t n = (size_t)(s.rows * (s.heads * s.cols + s.pad));
                struct op_case c = {.run = run_rope, .ctx = &s};
                name(&c, "rope", &s);
                op_add(&c, OP_IN, TRL_DTYPE_F32, (size_t)(23 * s.cols / 2), 1);
                op_add(&c, OP_IN, TRL_DTYPE_F32, (size_t)(23 * s.cols / 2), 1);
                op_add_raw(&c, OP_IN, 4, (size_t)s.rows, pos);
                op_add(&c, s.in_place ? OP_INOUT : OP_IN, s.ta, n, 1);
                op_add(&c, OP_INOUT, s.ta, n, 0);
                op_check(&c);
            }
}

/* ---- vectors ---- */

static int run_axpby(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_axpby a = {.n = s->rows * s->cols,
        .x = op_ptr(c, 0),
        .y = op_ptr(c, 1),
        .alpha = s->alpha,
        .beta = s->beta,
        .x_dtype = s->ta,
        .y_dtype = s->tb};
    return be->ops.axpby(be, &a);
}

static int run_add(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_add a = {.n = s->rows * s->cols,
        .a = op_ptr(c, 0),
        .b = op_ptr(c, 1),
        .y = s->in_place ? op_ptr(c, 0) : op_ptr(c, 2),
        .a_dtype = s->ta,
        .b_dtype = s->tb,
        .y_dtype = s->in_place ? s->ta : s->tc};
    return be->ops.add(be, &a);
}

static int run_colsum(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_colsum a = {.rows = s->rows,
        .cols = s->cols,
        .ld_x = s->cols + s->pad,
        .x = op_ptr(c, 0),
        .out = op_ptr(c, 1),
        .x_dtype = s->ta,
        .out_dtype = s->tb};
    return be->ops.colsum(be, &a);
}

static int run_sumsq(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    double sum = NAN;
    struct trl_op_sumsq a = {
        .n = s->rows * s->cols, .x = op_ptr(c, 0), .ret = &sum, .dtype = s->ta};
    int rc = be->ops.sumsq(be, &a);
    *(float *)op_ptr(c, 1) = (float)sum;
    return rc;
}

static int run_rows(struct trl_backend *be, struct op_case *c)
{
    const struct spec *s = c->ctx;
    struct trl_op_rows a = {.rows = s->rows,
        .cols = s->cols,
        .index = op_ptr(c, 0),
        .src = op_ptr(c, 1),
        .dst = op_ptr(c, 2),
        .scatter = s->flag,
        .dtype = s->ta};
    return be->ops.rows(be, &a);
}

static void check_vectors(struct spec s)
{
    size_t n = (size_t)(s.rows * s.cols), cols = (size_t)s.cols;
    struct op_case c = {.run = run_axpby, .ctx = &s};
    name(&c, "axpby", &s);
    op_add(&c, OP_IN, s.ta, n, 1);
    op_add(&c, s.beta != 0 ? OP_INOUT : OP_OUT, s.tb, n, 1);
    op_check(&c);
    c = (struct op_case){.run = run_add, .ctx = &s};
    name(&c, "add", &s);
    op_add(&c, s.in_place ? OP_INOUT : OP_IN, s.ta, n, 1);
    op_add(&c, OP_IN, s.tb, n, 1);
    op_add(&c, OP_INOUT, s.tc, n, 0);
    op_check(&c);
    c = (struct op_case){.run = run_colsum, .ctx = &s};
    name(&c, "colsum", &s);
    op_add(&c, OP_IN, s.ta, (size_t)(s.rows * (s.cols + s.pad)), 1);
    op_add(&c, OP_INOUT, s.tb, cols, 1);
    op_check(&c);
    c = (struct op_case){.run = run_sumsq, .ctx = &s};
    name(&c, "sumsq", &s);
    op_add(&c, OP_IN, s.ta, n, 1);
    op_add(&c, OP_OUT, TRL_DTYPE_F32, 1, 0);
    op_check(&c);
    int32_t index[256];
    for (int i = 0; i < 256; i++)
        index[i] = (int32_t)((i * 37 + 11) % 256);
    c = (struct op_case){.run = run_rows, .ctx = &s};
    name(&c, "rows", &s);
    op_add_raw(&c, OP_IN, 4, (size_t)s.rows, index);
    op_add(&c, OP_IN, s.ta, (s.flag ? (size_t)s.rows : 256) * cols, 1);
    op_add(&c, OP_INOUT, s.ta, (s.flag ? 256 : (size_t)s.rows) * cols, 0);
    op_check(&c);
}

static void test_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES; i++)
        for (int t = 0; t < 27; t++)
            check_vectors((struct spec){.rows = sizes[i][0],
                .cols = sizes[i][1],
                .pad = t & 1,
                .ta = (enum trl_dtype)(t % 3),
                .tb = (enum trl_dtype)(t / 3 % 3),
                .tc = (enum trl_dtype)(t / 9),
                .in_place = t & 1,
                .flag = t & 2,
                .alpha = t & 1 ? 1.0f : 0.7f,
                .beta = t & 2 ? 0.0f : 1.3f});
    check_vectors((struct spec){.rows = 200, .cols = 301, .alpha = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_act), cmocka_unit_test(test_embed),
        cmocka_unit_test(test_rope), cmocka_unit_test(test_vectors)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, op_close_backends);
}
