/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_COMM_COMM_H
#define TRL_COMM_COMM_H
/*
 * Ranks and collectives behind one table: self (one rank), mpi. Buffers are host memory.
 * Collectives are called by all ranks in the same order, by one thread of each. Sums have a fixed
 * order (by rank within a node, then by node): equal inputs and an equal layout give equal bits,
 * the same on every rank. Failures return TRL_E_COMM. Waiting sleeps: it takes no core from ranks
 * that compute.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

struct trl_comm {
    const char *name; /* "self", "mpi" */
    int rank, world, local_rank, local_world, node_rank, n_nodes;
    const struct trl_comm_ops *ops;
    void *impl;
};

struct trl_comm_request; /* an all-reduce under way */

struct trl_comm_ops {
    /* in place; BF16/F16 are summed in float32 and rounded once */
    int (*allreduce_sum)(
        struct trl_comm *c, void *buf, size_t n, enum trl_dtype dtype, struct trl_err *err);
    int (*allreduce_f64)(struct trl_comm *c, double *buf, size_t n, int op /* enum trl_comm_op */,
        struct trl_err *err);
    int (*allgather)(
        struct trl_comm *c, const void *send, size_t bytes, void *recv, struct trl_err *err);
    int (*bcast)(struct trl_comm *c, void *buf, size_t bytes, int root, struct trl_err *err);
    int (*node_bcast)(struct trl_comm *c, void *buf, size_t bytes,
        struct trl_err *err); /* each node: from its first rank */
    int (*barrier)(struct trl_comm *c, struct trl_err *err);
    /* Overlapped sum, times `scale` before it is rounded: starts in the background (a communication
     * thread), wait() ends it and must be called once for each. Requests complete in order of
     * start; other collectives come after those started before. */
    int (*allreduce_start)(struct trl_comm *c, void *buf, size_t n, enum trl_dtype dtype,
        float scale, struct trl_comm_request **ret, struct trl_err *err);
    int (*wait)(struct trl_comm *c, struct trl_comm_request *r, struct trl_err *err);
    void (*close)(struct trl_comm *c);
};
enum trl_comm_op { TRL_COMM_SUM, TRL_COMM_MAX, TRL_COMM_MIN };

/* One rank. Never fails. */
void trl_comm_open_self(struct trl_comm *c);
/* MPI when mpirun or srun started this process as one of several, self otherwise (MPI is not even
 * started then). Refuses an MPI world that differs from what the environment says. */
int trl_comm_open(struct trl_comm *c, struct trl_err *err);
/* Every rank calls it before it exits, also after an error that all agreed on: one that goes without
 * counts as dead. Waits for the other ranks of the node. */
void trl_comm_close(struct trl_comm *c);

/* All ranks learn status and text of the lowest failing rank (prefixed "rank R on HOST: "). Every
 * set-up step that may fail on one rank alone ends with it. Returns the agreed status; err is
 * filled on all ranks. */
int trl_comm_agree(struct trl_comm *c, int rc, struct trl_err *err);

/* Start this program again under mpirun with n processes and wait. *ret_code: its exit code. SIGTERM, SIGINT, SIGHUP and SIGUSR1
 * reach the ranks as SIGUSR1 (stop with a checkpoint); a second one ends them. */
int trl_comm_run_mpirun(int n, char **argv, int *ret_code, struct trl_err *err);

/* The watch: a table in shared memory with pid, rank, step and a "failed" text of each local rank.
 * When a rank dies (kill -9) or reports a failure, the others end within 10 s with one message that
 * names rank, host and step. */
int trl_comm_watch_start(struct trl_comm *c, struct trl_err *err);
void trl_comm_watch_step(struct trl_comm *c, int64_t step);
/* A rank fails alone inside a step: prints the one message, ends all ranks. Does not return. */
void trl_comm_die(struct trl_comm *c, const struct trl_err *err, int64_t step)
    __attribute__((noreturn));

#endif
