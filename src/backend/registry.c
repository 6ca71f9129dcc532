/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "backend/host.h"
#include "base/alloc.h"
#include "base/clock.h"

/* Best first. A backend that is not built in has no open function, only the reason. */
static const struct {
    const char *name;
    int (*open)(
        struct trl_backend **ret, const struct trl_backend_options *opt, struct trl_err *err);
    const char *why_not;
} backends[] = {
    {"cuda", NULL, "no GPU kernels in this version"},
    {"cpu", trl_cpu_open, NULL},
    {"ref", trl_ref_open, NULL},
};
enum { N_BACKENDS = sizeof(backends) / sizeof(backends[0]) };

int trl_backend_open(
    struct trl_backend **ret, const struct trl_backend_options *opt, struct trl_err *err)
{
    for (int i = 0; i < N_BACKENDS; i++) {
        if (opt->name && strcmp(opt->name, backends[i].name))
            continue;
        if (backends[i].open)
            return backends[i].open(ret, opt, err);
        if (opt->name)
            return trl_fail(err, TRL_E_UNSUPPORTED,
                "backend '%s' is not available: %s; built in are cpu, ref", opt->name,
                backends[i].why_not);
    }
    return trl_fail(err, TRL_E_USAGE, "there is no backend '%s'; built in are cpu, ref", opt->name);
}

void trl_backend_close(struct trl_backend *be)
{
    if (be)
        be->close(be);
}

/* Best GFLOP/s of an n x n x n product within `seconds`; *once: the fastest single run */
static double time_square(
    struct trl_backend *be, enum trl_dtype type, int64_t n, double seconds, double *once)
{
    size_t in = (size_t)(n * n) * trl_dtype_size(type), out = (size_t)(n * n) * sizeof(float);
    char *a = be->mem_alloc(be, in), *b = be->mem_alloc(be, in), *c = be->mem_alloc(be, out);
    *once = INFINITY;
    if (a && b && c) {
        struct trl_op_gemm op = {.m = n,
            .n = n,
            .k = n,
            .trans_b = true,
            .a = a,
            .b = b,
            .c = c,
            .lda = n,
            .ldb = n,
            .ldc = n,
            .a_dtype = type,
            .b_dtype = type,
            .c_dtype = TRL_DTYPE_F32,
            .round = type,
            .alpha = 1};
        double start = trl_clock_now(), now = start;
        do {
            double begin = now;
            if (be->ops.gemm(be, &op) != 0 || be->sync(be) != 0)
                break;
            now = trl_clock_now();
            *once = now - begin < *once ? now - begin : *once;
        } while (now - start < seconds);
    }
    be->mem_free(be, a, in);
    be->mem_free(be, b, in);
    be->mem_free(be, c, out);
    return 2e-9 * (double)n * (double)n * (double)n / *once;
}

double trl_backend_gemm_peak(struct trl_backend *be, enum trl_dtype round, double seconds)
{
    /* grow the product until one run is long enough to be the steady state */
    double once, best = 0;
    for (int64_t n = 128; n <= 2048; n *= 2) {
        double rate = time_square(be, round, n, 0, &once);
        best = rate > best ? rate : best;
        if (n == 2048 || once > seconds / 16) {
            rate = time_square(be, round, n, seconds, &once);
            return rate > best ? rate : best;
        }
    }
    return best;
}
