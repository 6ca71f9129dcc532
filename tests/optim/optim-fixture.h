/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIM_FIXTURE_H
#define OPTIM_FIXTURE_H
/* Three small parameters: a matrix at 0 (decays), a vector at 64, a frozen vector at 128. */
#include "../trl-test.h"

#include "optim/optim.h"

enum { ROWS = 5, COLS = 7, VEC = 6, SLAB = 192 };

struct fixture {
    struct trl_backend *be;
    struct trl_params params;
    struct trl_param items[3];
};

static inline void open_fixture(struct fixture *f, const char *backend, enum trl_dtype t, bool copy)
{
    struct trl_err err;
    struct trl_backend_options opt = {.name = backend};
    assert_trl_ok(trl_backend_open(&f->be, &opt, &err), &err);
    memset(f->items, 0, sizeof(f->items));
    f->items[0] = (struct trl_param){.name = (char *)"a.weight", .shape = {ROWS, COLS}, .ndim = 2, .numel = ROWS * COLS,
        .role = TRL_PARAM_LINEAR, .trainable = true, .decay = true, .offset = 0};
    f->items[1] = (struct trl_param){.name = (char *)"a.bias", .shape = {VEC}, .ndim = 1, .numel = VEC,
        .role = TRL_PARAM_BIAS, .trainable = true, .offset = 64};
    f->items[2] = (struct trl_param){.name = (char *)"frozen", .shape = {VEC}, .ndim = 1, .numel = VEC,
        .role = TRL_PARAM_NORM, .offset = 128};
    size_t bytes = SLAB * trl_dtype_size(t);
    f->params = (struct trl_params){.items = f->items, .n = 3, .numel = ROWS * COLS + 2 * VEC, .slab_elems = SLAB, .dtype = t,
        .copy_dtype = TRL_DTYPE_BF16};
    f->params.weights = f->be->mem_alloc(f->be, bytes);
    f->params.grads = f->be->mem_alloc(f->be, bytes);
    if (copy)
        f->params.copy = f->be->mem_alloc(f->be, SLAB * 2);
    for (int i = 0; i < VEC; i++)
        trl_dtype_store(t, trl_param_at(f->params.weights, t, &f->items[2]), (size_t)i, 7);
}

static inline void close_fixture(struct fixture *f)
{
    size_t bytes = SLAB * trl_dtype_size(f->params.dtype);
    f->be->mem_free(f->be, f->params.weights, bytes);
    f->be->mem_free(f->be, f->params.grads, bytes);
    if (f->params.copy)
        f->be->mem_free(f->be, f->params.copy, SLAB * 2);
    trl_backend_close(f->be);
}

#endif
