/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/ref/ref.h"
#include "base/alloc.h"

int trl_ref_rmsnorm(struct trl_backend *be, const struct trl_op_rmsnorm *a)
{
    (void)be;
    for (int64_t r = 0; r < a->rows; r++) {
        double ss = 0;
        for (int64_t j = 0; j < a->cols; j++) {
            double x = ref_get(a->x_dtype, a->x, r * a->ld_x + j);
            ss += x * x;
        }
        double rstd = 1 / sqrt(ss / (double)a->cols + a->eps);
        for (int64_t j = 0; j < a->cols; j++) {
            double n = ref_get(a->x_dtype, a->x, r * a->ld_x + j) * rstd;
            if (a->cast_first)
                n = ref_round(a->y_dtype, (float)n);
            ref_put(
                a->y_dtype, a->y, r * a->ld_y + j, n * (a->offset + ref_get(a->w_dtype, a->w, j)));
        }
        if (a->rstd)
            a->rstd[r] = (float)rstd;
    }
    return 0;
}

/* With n = x*rstd, g = dy*(offset+w):  dx = rstd * (g - n * mean(g*n)),  dw = sum over rows of dy*n
 */
int trl_ref_rmsnorm_bwd(struct trl_backend *be, const struct trl_op_rmsnorm_bwd *a)
{
    (void)be;
    double *dw = trl_calloc((size_t)a->cols, sizeof(*dw));
    if (!dw)
        return TRL_E_NOMEM;
    for (int64_t r = 0; r < a->rows; r++) {
        double rstd = a->rstd[r], mean = 0;
        for (int64_t j = 0; j < a->cols; j++) {
            double n = ref_get(a->x_dtype, a->x, r * a->ld_x + j) * rstd;
            double dy = ref_get(a->dy_dtype, a->dy, r * a->ld_dy + j);
            mean += dy * (a->offset + ref_get(a->w_dtype, a->w, j)) * n;
            dw[j] += dy * n;
        }
        mean /= (double)a->cols;
        for (int64_t j = 0; j < a->cols; j++) {
            double n = ref_get(a->x_dtype, a->x, r * a->ld_x + j) * rstd;
            double dy = ref_get(a->dy_dtype, a->dy, r * a->ld_dy + j);
            double dx = rstd * (dy * (a->offset + ref_get(a->w_dtype, a->w, j)) - n * mean);
            if (a->accumulate_dx)
                dx += ref_get(a->dx_dtype, a->dx, r * a->ld_dx + j);
            ref_put(a->dx_dtype, a->dx, r * a->ld_dx + j, dx);
        }
    }
    if (a->dw)
        for (int64_t j = 0; j < a->cols; j++)
            ref_put(a->w_dtype, a->dw, j, ref_get(a->w_dtype, a->dw, j) + dw[j]);
    trl_free(dw);
    return 0;
}

int trl_ref_layernorm(struct trl_backend *be, const struct trl_op_layernorm *a)
{
    (void)be;
    for (int64_t r = 0; r < a->rows; r++) {
        double mean = 0, var = 0;
        for (int64_t j = 0; j < a->cols; j++)
            mean += ref_get(a->x_dtype, a->x, r * a->cols + j);
        mean /= (double)a->cols;
        for (int64_t j = 0; j < a->cols; j++) {
            double d = ref_get(a->x_dtype, a->x, r * a->cols + j) - mean;
            var += d * d;
        }
        double rstd = 1 / sqrt(var / (double)a->cols + a->eps);
        for (int64_t j = 0; j < a->cols; j++) {
            double n = (ref_get(a->x_dtype, a->x, r * a->cols + j) - mean) * rstd;
            double b = a->b ? ref_get(a->w_dtype, a->b, j) : 0;
            ref_put(a->y_dtype, a->y, r * a->cols + j, n * ref_get(a->w_dtype, a->w, j) + b);
        }
        if (a->mean)
            a->mean[r] = (float)mean;
        if (a->rstd)
            a->rstd[r] = (float)rstd;
    }
    return 0;
}

/* With n = (x-mean)*rstd, g = dy*w:  dx = rstd * (g - mean(g) - n * mean(g*n)),  dw = sum dy*n,  db
 * = sum dy */
int trl_ref_layernorm_bwd(struct trl_backend *be, const struct trl_op_layernorm_bwd *a)
{
    (void)be;
    double *dw = trl_calloc((size_t)a->cols, 2 * sizeof(*dw));
    if (!dw)
        return TRL_E_NOMEM;
    double *db = dw + a->cols;
    for (int64_t r = 0; r < a->rows; r++) {
        double rstd = a->rstd[r], mg = 0, mgn = 0;
        for (int64_t j = 0; j < a->cols; j++) {
            double n = (ref_get(a->x_dtype, a->x, r * a->cols + j) - a->mean[r]) * rstd;
            double dy = ref_get(a->dy_dtype, a->dy, r * a->cols + j);
            double g = dy * ref_get(a->w_dtype, a->w, j);
            mg += g;
            mgn += g * n;
            dw[j] += dy * n;
            db[j] += dy;
        }
        mg /= (double)a->cols;
        mgn /= (double)a->cols;
        for (int64_t j = 0; j < a->cols; j++) {
            double n = (ref_get(a->x_dtype, a->x, r * a->cols + j) - a->mean[r]) * rstd;
            double g = ref_get(a->dy_dtype, a->dy, r * a->cols + j) * ref_get(a->w_dtype, a->w, j);
            double dx = rstd * (g - mg - n * mgn);
            if (a->accumulate_dx)
                dx += ref_get(a->dx_dtype, a->dx, r * a->cols + j);
            ref_put(a->dx_dtype, a->dx, r * a->cols + j, dx);
        }
    }
    for (int64_t j = 0; j < a->cols; j++) {
        if (a->dw)
            ref_put(a->w_dtype, a->dw, j, ref_get(a->w_dtype, a->dw, j) + dw[j]);
        if (a->db)
            ref_put(a->w_dtype, a->db, j, ref_get(a->w_dtype, a->db, j) + db[j]);
    }
    trl_free(dw);
    return 0;
}
