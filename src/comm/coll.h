/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_COMM_COLL_H
#define TRL_COMM_COLL_H
/*
 * Collectives of the ranks of one node through their shared memory, and the node's part of sums
 * over nodes. One thread at a time.
 *
 * All-reduce, chunk by chunk: each rank copies its chunk into its slot; rank j reduces slice j of
 * all slots in rank order and leaves the result in its own slot; everybody copies the other slices
 * out. While one chunk is reduced the next is copied in.
 */
#include "comm/node-shm.h"
#include "comm/reduce.h"

/* Sums over nodes: of `n` float32 (or double) values that are this node's part. NULL when there is
 * one node. */
struct trl__between;
int trl__between_reduce(struct trl__between *b, enum trl__wire wire, void *part, size_t n,
    enum trl_comm_op op, struct trl_err *err);

struct trl__coll {
    struct trl__node *node;
    struct trl__between *between;
    int reducers; /* local ranks that reduce a slice: all; with several nodes as many as the
                     smallest node has */
    void *part; /* with several nodes: one slice in float32 or double */
    const void **srcs; /* [node->size] */
};

int trl__coll_allreduce(struct trl__coll *c, void *buf, size_t n, enum trl__wire wire,
    enum trl_comm_op op, float scale, struct trl_err *err);
int trl__coll_node_barrier(struct trl__coll *c, struct trl_err *err);
int trl__coll_node_bcast(
    struct trl__coll *c, void *buf, size_t bytes, int root, struct trl_err *err);
/* recv: [node->size][bytes] */
int trl__coll_node_allgather(
    struct trl__coll *c, const void *send, size_t bytes, void *recv, struct trl_err *err);

#endif
