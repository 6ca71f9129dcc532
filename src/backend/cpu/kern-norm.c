/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMSNorm and LayerNorm. Rows go to the threads; weight gradients are summed per block of ROWS rows
 * into a line of their own and the lines are added in order, so that the split does not show.
 */
#include <math.h>

#include "backend/cpu/kern.h"

enum { ROWS = 64 };

/* The scratch lines of a backward: n_lines kinds (dw, db), each [blocks][cols]. */
struct lines {
    int64_t rows, cols, blocks;
    float *sum[2];
    void *out[2];
    enum trl_dtype dtype;
};

static int lines_init(struct lines *l, struct trl_backend *be, int64_t rows, int64_t cols, void *dw,
    void *db, enum trl_dtype t)
{
    *l = (struct lines){.rows = rows,
        .cols = cols,
        .blocks = (rows + ROWS - 1) / ROWS,
        .out = {dw, db},
        .dtype = t};
    size_t one = (size_t)(l->blocks * cols);
    l->sum[0] = trl_cpu_work(be, 2 * one * sizeof(float));
    l->sum[1] = l->sum[0] + one;
    return l->sum[0] ? 0 : TRL_E_NOMEM;
}

static void add_lines(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct lines *l = ctx;
    for (int kind = 0; kind < 2; kind++)
        for (int64_t j = begin; j < end && l->out[kind]; j += VW) {
            int64_t n = trl_min64(VW, end - j);
            vf s = v_zero();
            for (int64_t b = 0; b < l->blocks; b++)
                s += v_load_n(TRL_DTYPE_F32, l->sum[kind], b * l->cols + j, n);
            v_store_n(l->dtype, l->out[kind], j, n, v_load_n(l->dtype, l->out[kind], j, n) + s);
        }
}

/* sum += v at column j of a block's line */
INLINE void line_add(float *line, int64_t j, int64_t n, vf v)
{
    v_store_n(TRL_DTYPE_F32, line, j, n, v_load_n(TRL_DTYPE_F32, line, j, n) + v);
}

/* ---- RMSNorm ---- */

INLINE void rms_row(const struct trl_op_rmsnorm *a, int64_t r, enum trl_dtype tx, enum trl_dtype tw,
    enum trl_dtype ty)
{
    int64_t x0 = r * a->ld_x, y0 = r * a->ld_y;
    vf ss = v_zero(), ss1 = v_zero();
    int64_t j = 0;
    for (; j + 2 * VW <= a->cols; j += 2 * VW) {
        vf x = v_load(tx, a->x, x0 + j), x1 = v_load(tx, a->x, x0 + j + VW);
        ss = v_fma(x, x, ss);
        ss1 = v_fma(x1, x1, ss1);
    }
    for (; j < a->cols; j += VW) {
        vf x = v_load_n(tx, a->x, x0 + j, a->cols - j);
        ss = v_fma(x, x, ss);
    }
    float rstd = (float)(1 / sqrt((double)v_sum(ss + ss1) / (double)a->cols + a->eps));
    vf s = v_set(rstd), offset = v_set(a->offset);
    for (j = 0; j < a->cols; j += VW) {
        int64_t n = a->cols - j;
        vf v = v_load_n(tx, a->x, x0 + j, n) * s;
        if (a->cast_first)
            v = v_round(ty, v);
        v_store_n(ty, a->y, y0 + j, n, v * (offset + v_load_n(tw, a->w, j, n)));
    }
    if (a->rstd)
        a->rstd[r] = rstd;
}

static void rms_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_rmsnorm *a = ctx;
    bool same = a->x_dtype == a->w_dtype && a->x_dtype == a->y_dtype;
    for (int64_t r = begin; r < end; r++)
        if (same)
            BY_TYPE(a->x_dtype, rms_row(a, r, T, T, T));
        else
            rms_row(a, r, a->x_dtype, a->w_dtype, a->y_dtype);
}

int KERN(rmsnorm)(struct trl_backend *be, const struct trl_op_rmsnorm *a)
{
    trl_parallel_for(be->pool, a->rows, 8, rms_rows, (void *)a);
    return 0;
}

struct rms_bwd {
    const struct trl_op_rmsnorm_bwd *a;
    struct lines lines;
};

/* n = x rstd, g = dy (offset+w):  dx = rstd (g - n mean(g n)),  dw += dy n */
INLINE void rms_bwd_row(const struct trl_op_rmsnorm_bwd *a, int64_t r, float *line,
    enum trl_dtype tx, enum trl_dtype tw, enum trl_dtype tdy, enum trl_dtype tdx)
{
    int64_t x0 = r * a->ld_x, y0 = r * a->ld_dy, d0 = r * a->ld_dx;
    vf rstd = v_set(a->rstd[r]), offset = v_set(a->offset), sum = v_zero();
    for (int64_t j = 0; j < a->cols; j += VW) {
        int64_t n = a->cols - j;
        vf xn = v_load_n(tx, a->x, x0 + j, n) * rstd, dy = v_load_n(tdy, a->dy, y0 + j, n);
        sum = v_fma(dy * (offset + v_load_n(tw, a->w, j, n)), xn, sum);
    }
    vf mean = v_set(v_sum(sum) / (float)a->cols);
    for (int64_t j = 0; j < a->cols; j += VW) {
        int64_t n = a->cols - j;
        vf xn = v_load_n(tx, a->x, x0 + j, n) * rstd, dy = v_load_n(tdy, a->dy, y0 + j, n);
        vf dx = rstd * (dy * (offset + v_load_n(tw, a->w, j, n)) - xn * mean);
        if (a->dw)
            line_add(line, j, n, dy * xn);
        if (a->accumulate_dx)
            dx += v_load_n(tdx, a->dx, d0 + j, n);
        v_store_n(tdx, a->dx, d0 + j, n, dx);
    }
}

static void rms_bwd_blocks(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct rms_bwd *b = ctx;
    const struct trl_op_rmsnorm_bwd *a = b->a;
    bool same = a->x_dtype == a->w_dtype && a->x_dtype == a->dy_dtype && a->x_dtype == a->dx_dtype;
    for (int64_t k = begin; k < end; k++) {
        float *line = b->lines.sum[0] + k * a->cols;
        memset(line, 0, (size_t)a->cols * sizeof(float));
        for (int64_t r = k * ROWS; r < trl_min64((k + 1) * ROWS, a->rows); r++)
            if (same)
                BY_TYPE(a->x_dtype, rms_bwd_row(a, r, line, T, T, T, T));
            else
                rms_bwd_row(a, r, line, a->x_dtype, a->w_dtype, a->dy_dtype, a->dx_dtype);
    }
}

int KERN(rmsnorm_bwd)(struct trl_backend *be, const struct trl_op_rmsnorm_bwd *a)
{
    struct rms_bwd b = {.a = a};
    int rc = lines_init(&b.lines, be, a->rows, a->cols, a->dw, NULL, a->w_dtype);
    if (rc != 0)
        return rc;
    trl_parallel_for(be->pool, b.lines.blocks, 1, rms_bwd_blocks, &b);
    trl_parallel_for(be->pool, a->cols, 256, add_lines, &b.lines);
    return 0;
}

/* ---- LayerNorm ---- */

INLINE void layer_row(const struct trl_op_layernorm *a, int64_t r, enum trl_dtype tx,
    enum trl_dtype tw, enum trl_dtype ty)
{
    int64_t x0 = r * a->cols;
    vf sum = v_zero(), ss = v_zero();
    for (int64_t j = 0; j < a->cols; j += VW)
        sum += v_load_n(tx, a->x, x0 + j, a->cols - j);
    float mean = v_sum(sum) / (float)a->cols;
    int64_t j = 0;
    for (; j + VW <= a->cols; j += VW) {
        vf d = v_load(tx, a->x, x0 + j) - v_set(mean);
        ss = v_fma(d, d, ss);
    }
    double var = (double)v_sum(ss);
    for (; j < a->cols; j++) {
        double d = (double)trl_dtype_load(tx, a->x, (size_t)(x0 + j)) - (double)mean;
        var += d * d;
    }
    float rstd = (float)(1 / sqrt(var / (double)a->cols + a->eps));
    for (j = 0; j < a->cols; j += VW) {
        int64_t n = a->cols - j;
        vf v = (v_load_n(tx, a->x, x0 + j, n) - v_set(mean)) * v_set(rstd);
        vf b = a->b ? v_load_n(tw, a->b, j, n) : v_zero();
        v_store_n(ty, a->y, x0 + j, n, v_fma(v, v_load_n(tw, a->w, j, n), b));
    }
    if (a->mean)
        a->mean[r] = mean;
    if (a->rstd)
        a->rstd[r] = rstd;
}

static void layer_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_layernorm *a = ctx;
    bool same = a->x_dtype == a->w_dtype && a->x_dtype == a->y_dtype;
    for (int64_t r = begin; r < end; r++)
        if (same)
            BY_TYPE(a->x_dtype, layer_row(a, r, T, T, T));
        else
            layer_row(a, r, a->x_dtype, a->w_dtype, a->y_dtype);
}

int KERN(layernorm)(struct trl_backend *be, const struct trl_op_layernorm *a)
{
    trl_parallel_for(be->pool, a->rows, 8, layer_rows, (void *)a);
    return 0;
}

struct layer_bwd {
    const struct trl_op_layernorm_bwd *a;
    struct lines lines;
};

/* n = (x - mean) rstd, g = dy w:  dx = rstd (g - mean(g) - n mean(g n)),  dw += dy n,  db += dy */
INLINE void layer_bwd_row(const struct trl_op_layernorm_bwd *a, int64_t r, float *dw, float *db,
    enum trl_dtype tx, enum trl_dtype tw, enum trl_dtype tdy, enum trl_dtype tdx)
{
    int64_t x0 = r * a->cols;
    vf rstd = v_set(a->rstd[r]), mean = v_set(a->mean[r]), sg = v_zero(), sgn = v_zero();
    for (int64_t j = 0; j < a->cols; j += VW) {
        int64_t n = a->cols - j;
        vf xn = (v_load_n(tx, a->x, x0 + j, n) - mean) * rstd;
        vf g = v_load_n(tdy, a->dy, x0 + j, n) * v_load_n(tw, a->w, j, n); /* missing lanes: 0 */
        sg += g;
        sgn = v_fma(g, xn, sgn);
    }
    vf mg = v_set(v_sum(sg) / (float)a->cols), mgn = v_set(v_sum(sgn) / (float)a->cols);
    for (int64_t j = 0; j < a->cols; j += VW) {
        int64_t n = a->cols - j;
        vf xn = (v_load_n(tx, a->x, x0 + j, n) - mean) * rstd, dy = v_load_n(tdy, a->dy, x0 + j, n);
        vf dx = rstd * (dy * v_load_n(tw, a->w, j, n) - mg - xn * mgn);
        if (a->dw)
            line_add(dw, j, n, dy * xn);
        if (a->db)
            line_add(db, j, n, dy);
        if (a->accumulate_dx)
            dx += v_load_n(tdx, a->dx, x0 + j, n);
        v_store_n(tdx, a->dx, x0 + j, n, dx);
    }
}

static void layer_bwd_blocks(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct layer_bwd *b = ctx;
    const struct trl_op_layernorm_bwd *a = b->a;
    bool same = a->x_dtype == a->w_dtype && a->x_dtype == a->dy_dtype && a->x_dtype == a->dx_dtype;
    for (int64_t k = begin; k < end; k++) {
        float *dw = b->lines.sum[0] + k * a->cols, *db = b->lines.sum[1] + k * a->cols;
        memset(dw, 0, (size_t)a->cols * sizeof(float));
        memset(db, 0, (size_t)a->cols * sizeof(float));
        for (int64_t r = k * ROWS; r < trl_min64((k + 1) * ROWS, a->rows); r++)
            if (same)
                BY_TYPE(a->x_dtype, layer_bwd_row(a, r, dw, db, T, T, T, T));
            else
                layer_bwd_row(a, r, dw, db, a->x_dtype, a->w_dtype, a->dy_dtype, a->dx_dtype);
    }
}

int KERN(layernorm_bwd)(struct trl_backend *be, const struct trl_op_layernorm_bwd *a)
{
    struct layer_bwd b = {.a = a};
    int rc = lines_init(&b.lines, be, a->rows, a->cols, a->dw, a->db, a->w_dtype);
    if (rc != 0)
        return rc;
    trl_parallel_for(be->pool, b.lines.blocks, 1, layer_bwd_blocks, &b);
    trl_parallel_for(be->pool, a->cols, 256, add_lines, &b.lines);
    return 0;
}
