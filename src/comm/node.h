/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_COMM_NODE_H
#define TRL_COMM_NODE_H
/* What the ranks of a node arrange among themselves: one of them works for all; cores are divided.
 */
#include "comm/comm.h"
#include "hw/bind.h"

/*
 * The first rank of each node calls make(), which writes a file (in /dev/shm or on a disk of the
 * node) and puts its path into ret_path; then every rank of the node calls use() with the path
 * (open, map). A failure anywhere fails on all ranks with the same message. `temporary`: the file
 * is removed once all have used it (a mapping stays valid), or when something failed.
 */
int trl_comm_node_once(struct trl_comm *c, bool temporary,
    int (*make)(void *ctx, char *ret_path, size_t size, struct trl_err *err),
    int (*use)(void *ctx, const char *path, struct trl_err *err), void *ctx, struct trl_err *err);

/* This rank's threads and cores (hw/bind.h), so that the ranks of a node do not compete. n_threads
 * 0: one a core. Call it before any thread is bound. */
int trl_comm_bind_plan(
    struct trl_comm *c, int n_threads, struct trl_bind_plan *ret, struct trl_err *err);

#endif
