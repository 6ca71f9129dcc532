/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_OPTIM_EXCHANGE_H
#define TRL_OPTIM_EXCHANGE_H
/*
 * The gradient exchange of data parallelism: afterwards every rank's gradient slab holds the mean
 * over ranks, the same bits on all. Gradients leave in buckets: contiguous runs of the slab, in the
 * order in which backward completes them. A bucket is on its way as soon as its last parameter is
 * ready, while backward goes on. Frozen parameters are not exchanged. One rank: nothing happens.
 *
 *   last micro-step of a window:  trl_exchange_begin(x);
 *                                 trl_model_backward(m, trl_exchange_ready, x, err);
 *                                 trl_exchange_finish(x, err);      then clip, optimiser
 */
#include <stddef.h>

#include "base/err.h"
#include "comm/comm.h"
#include "model/model.h"

enum { TRL_EXCHANGE_BUCKET_BYTES = 25 << 20 };

struct trl_exchange;
/* `c` and `p` are borrowed; p->grads must exist by the first begin. n_ready: trl_model_n_ready().
 * bucket_bytes 0: 25 MB. */
int trl_exchange_new(struct trl_exchange **ret, struct trl_comm *c, struct trl_params *p,
    int n_ready, size_t bucket_bytes, struct trl_err *err);
void trl_exchange_free(struct trl_exchange *x);

void trl_exchange_begin(struct trl_exchange *x);
/* grad_ready of trl_model_backward: ctx is the exchange. Without a begin (earlier micro-steps) it
 * does nothing. */
void trl_exchange_ready(void *ctx, int order);
/* Sends what is not yet under way and waits for all of it. An error here is one inside a step:
 * trl_comm_die. */
int trl_exchange_finish(struct trl_exchange *x, struct trl_err *err);

int trl_exchange_n_buckets(const struct trl_exchange *x);

#endif
