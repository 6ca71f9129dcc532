/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/ref/ref.h"

#include "base/alloc.h"

int trl_ref_gemm(struct trl_backend *be, const struct trl_op_gemm *a)
{
    (void)be;
    float *bt =
        trl_malloc_array(trl_size_mul((size_t)a->n, (size_t)a->k), sizeof(*bt)); /* op(B)^T [n,k] */
    float *row = trl_malloc_array((size_t)a->k, sizeof(*row));
    int rc = TRL_E_NOMEM;
    if (!bt || !row)
        goto out;
    for (int64_t j = 0; j < a->n; j++)
        for (int64_t p = 0; p < a->k; p++)
            bt[j * a->k + p] = ref_round(a->round,
                (float)ref_get(a->b_dtype, a->b, a->trans_b ? j * a->ldb + p : p * a->ldb + j));
    for (int64_t i = 0; i < a->m; i++) {
        for (int64_t p = 0; p < a->k; p++)
            row[p] = ref_round(a->round,
                (float)ref_get(a->a_dtype, a->a, a->trans_a ? p * a->lda + i : i * a->lda + p));
        for (int64_t j = 0; j < a->n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < a->k; p++)
                sum += (double)row[p] * bt[j * a->k + p];
            double v = a->alpha * sum;
            if (a->beta != 0)
                v += a->beta * ref_get(a->c_dtype, a->c, i * a->ldc + j);
            if (a->bias)
                v += ref_get(a->bias_dtype, a->bias, j);
            ref_put(a->c_dtype, a->c, i * a->ldc + j, v);
        }
    }
    rc = 0;
out:
    trl_free(bt);
    trl_free(row);
    return rc;
}
