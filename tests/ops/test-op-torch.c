/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three optimiser steps against numbers written by torch 2.15 (and transformers' Adafactor) on a
 * CPU: p = ((7i mod 11) - 5)/4 + 0.3 seen as [3, 4], g of step s = (((5i + 3s) mod 13) - 6)/40,
 * both rounded to the type. bf16 must be bit-equal; float32 may differ by the multiply-adds that
 * torch fuses.
 */
#include "ops-test.h"

enum { N = 12, ROWS = 3, COLS = 4 };

struct state {
    enum trl_dtype t;
    float p[N], m[N], v[N], g[N], row[ROWS], col[COLS],
        scratch[N]; /* p, m, v, g hold elements of type t */
};

static int adamw(struct trl_backend *be, struct state *s, int step, bool fused)
{
    struct trl_op_adamw a = {.n = N,
        .p = s->p,
        .g = s->g,
        .m = s->m,
        .v = s->v,
        .lr = 1e-2,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = 0.1,
        .grad_scale = 1,
        .bias1 = 1 - pow(0.9, step),
        .bias2 = 1 - pow(0.999, step),
        .fused = fused,
        .p_dtype = s->t,
        .g_dtype = s->t,
        .state_dtype = s->t};
    return be->ops.adamw(be, &a);
}
static int plain(struct trl_backend *be, struct state *s, int step)
{
    return adamw(be, s, step, false);
}
static int fused(struct trl_backend *be, struct state *s, int step)
{
    return adamw(be, s, step, true);
}
static int sgd(struct trl_backend *be, struct state *s, int step)
{
    struct trl_op_sgd a = {.n = N,
        .p = s->p,
        .g = s->g,
        .buf = s->m,
        .lr = 1e-1,
        .momentum = 0.9,
        .dampening = 0.1,
        .weight_decay = 0.01,
        .grad_scale = 1,
        .first = step == 1,
        .p_dtype = s->t,
        .g_dtype = s->t,
        .state_dtype = s->t};
    return be->ops.sgd(be, &a);
}
static int nesterov(struct trl_backend *be, struct state *s, int step)
{
    struct trl_op_sgd a = {.n = N,
        .p = s->p,
        .g = s->g,
        .buf = s->m,
        .lr = 1e-1,
        .momentum = 0.9,
        .nesterov = true,
        .grad_scale = 1,
        .first = step == 1,
        .p_dtype = s->t,
        .g_dtype = s->t,
        .state_dtype = s->t};
    return be->ops.sgd(be, &a);
}
static int adafactor(struct trl_backend *be, struct state *s, int step)
{
    struct trl_op_adafactor a = {.batch = 1,
        .rows = ROWS,
        .cols = COLS,
        .p = s->p,
        .g = s->g,
        .row_sq = s->row,
        .col_sq = s->col,
        .m = s->m,
        .scratch = s->scratch,
        .lr = 1e-2,
        .eps1 = 1e-30,
        .clip_threshold = 1,
        .beta2t = 1 - pow(step, -0.8),
        .beta1 = 0.9,
        .weight_decay = 0.1,
        .grad_scale = 1,
        .p_dtype = s->t,
        .g_dtype = s->t};
    return be->ops.adafactor(be, &a);
}

static const struct {
    const char *name;
    int (*step)(struct trl_backend *be, struct state *s, int step);
    float f32[N];
    uint16_t bf16[N];
} cases[] = {
    {"adamw", plain,
        {-0.931337714f, 0.77726078f, -0.172902346f, 1.54469049f, 0.545069039f, -0.427388191f,
            1.2786845f, 0.287448823f, -0.689834774f, 1.02409697f, 0.0744686276f, -0.962872505f},
        {0xbf6e, 0x3f48, 0xbe32, 0x3fc6, 0x3f0c, 0xbedb, 0x3fa4, 0x3e94, 0xbf30, 0x3f84, 0x3d99,
            0xbf77}},
    {"adamw fused", fused,
        {-0.931337714f, 0.77726078f, -0.172902346f, 1.54469049f, 0.545069039f, -0.427388191f,
            1.2786845f, 0.287448823f, -0.689834774f, 1.02409697f, 0.0744686201f, -0.962872505f},
        {0xbf6e, 0x3f47, 0xbe31, 0x3fc5, 0x3f0b, 0xbedb, 0x3fa4, 0x3e94, 0xbf30, 0x3f83, 0x3d98,
            0xbf77}},
    {"sgd", sgd,
        {-0.931400657f, 0.772099614f, -0.145519197f, 1.52873099f, 0.552398324f, -0.420769095f,
            1.28273118f, 0.277148485f, -0.696019053f, 1.00748122f, 0.0898624212f, -0.971268952f},
        {0xbf6f, 0x3f47, 0xbe15, 0x3fc3, 0x3f0d, 0xbed8, 0x3fa4, 0x3e8e, 0xbf32, 0x3f80, 0x3db8,
            0xbf78}},
    {"sgd nesterov", nesterov,
        {-0.938457489f, 0.772679985f, -0.128089994f, 1.52129745f, 0.57051003f, -0.418335021f,
            1.29280245f, 0.280265033f, -0.708579957f, 1.0025574f, 0.101787508f, -0.998824954f},
        {0xbf6f, 0x3f47, 0xbe04, 0x3fc3, 0x3f12, 0xbed5, 0x3fa4, 0x3e8f, 0xbf35, 0x3f7f, 0x3dd0,
            0xbf80}},
    {"adafactor", adafactor,
        {-0.945388615f, 0.794490755f, -0.194088176f, 1.54355454f, 0.549102902f, -0.445668668f,
            1.29533374f, 0.297323108f, -0.697623372f, 1.04168999f, 0.054163944f, -0.950526536f},
        {0xbf73, 0x3f4c, 0xbe47, 0x3fc6, 0x3f0d, 0xbee3, 0x3fa6, 0x3e99, 0xbf33, 0x3f86, 0x3d5e,
            0xbf73}},
};

static void test_steps(void **state)
{
    (void)state;
    op_open_backends();
    for (int b = 0; b < op_n_backends; b++)
        for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++)
            for (int t = 0; t < 2; t++) {
                struct state s = {.t = (enum trl_dtype)t};
                for (int i = 0; i < N; i++)
                    trl_dtype_store(s.t, s.p, (size_t)i, (float)((i * 7 % 11 - 5) / 4.0 + 0.3));
                for (int step = 1; step <= 3; step++) {
                    for (int i = 0; i < N; i++)
                        trl_dtype_store(
                            s.t, s.g, (size_t)i, (float)(((i * 5 + 3 * step) % 13 - 6) / 40.0));
                    assert_int_equal(cases[k].step(op_backends[b].be, &s, step), 0);
                }
                for (int i = 0; i < N; i++) {
                    float got = trl_dtype_load(s.t, s.p, (size_t)i);
                    float want = t ? trl_bf16_to_f32(cases[k].bf16[i]) : cases[k].f32[i];
                    if (!(fabsf(got - want) <= (t ? 0.0f : 3e-7f)))
                        fail_msg("%s in %s on %s: element %d is %.9g, torch has %.9g",
                            cases[k].name, trl_dtype_name(s.t), b ? op_backends[b].where : "ref", i,
                            (double)got, (double)want);
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, op_close_backends);
}
