/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_THREADS_H
#define TRL_BASE_THREADS_H
/*
 * A fixed team of threads that runs one function at a time, with a static split: the same size gives the same
 * split, hence the same bits. Thread 0 is the caller. Not re-entrant; one owner. After new() nothing allocates.
 * A pool pointer of NULL means: run in the caller alone.
 */
#include <stdint.h>

#include "base/err.h"

struct trl_pool;
/* n >= 1. on_start(ctx, thread) runs once in every thread but thread 0 (binding, thread-local set-up). */
int trl_pool_new(struct trl_pool **ret, int n, void (*on_start)(void *ctx, int thread), void *ctx, struct trl_err *err);
void trl_pool_free(struct trl_pool *p);
int trl_pool_size(const struct trl_pool *p);

/* fn(ctx, thread, n_threads) in every thread; returns when all are done. */
void trl_pool_run(struct trl_pool *p, void (*fn)(void *ctx, int thread, int n_threads), void *ctx);
/* fn(ctx, begin, end, thread) over [0, n) in contiguous parts that are multiples of `grain` (but the last). */
void trl_parallel_for(struct trl_pool *p, int64_t n, int64_t grain,
    void (*fn)(void *ctx, int64_t begin, int64_t end, int thread), void *ctx);

#endif
