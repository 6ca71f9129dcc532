/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_COMM_QUEUE_H
#define TRL_COMM_QUEUE_H
/*
 * The communication thread: runs started collectives one after another, in order of start, while
 * the caller computes. A collective that the caller runs itself (enter/leave) comes after those
 * that were started before it. One caller thread. Requests are recycled: after the first step
 * starting one allocates nothing.
 */
#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"

struct trl_comm_request {
    struct trl_comm_request *next;
    void *buf;
    size_t n;
    enum trl_dtype dtype;
    float scale;
    bool done;
    struct trl_err err;
};

struct trl__queue;
/* run(ctx, r) does the work and leaves its status in r->err.code. */
int trl__queue_new(struct trl__queue **ret, void (*run)(void *ctx, struct trl_comm_request *r),
    void *ctx, struct trl_err *err);
void trl__queue_free(struct trl__queue *q); /* finishes what was started */
int trl__queue_start(struct trl__queue *q, void *buf, size_t n, enum trl_dtype dtype, float scale,
    struct trl_comm_request **ret, struct trl_err *err);
int trl__queue_wait(struct trl__queue *q, struct trl_comm_request *r, struct trl_err *err);
void trl__queue_enter(struct trl__queue *q);
void trl__queue_leave(struct trl__queue *q);

#endif
