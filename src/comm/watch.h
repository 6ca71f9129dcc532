/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_COMM_WATCH_H
#define TRL_COMM_WATCH_H
/* Between a communicator and the watch over this node's ranks (trl_comm_watch_start). */
#include "comm/comm.h"

/* A collective failed. When the reason is that a rank died or failed, the watch is about to end
 * this process with the one message: wait for that. Otherwise returns rc. */
int trl__watch_filter(struct trl_comm *c, int rc, const struct trl_err *err);
/* This rank has no more to say: tell the others of its node and wait until they have not either, or
 * are gone. */
void trl__watch_leave(struct trl_comm *c);
void trl__watch_stop(struct trl_comm *c);

#endif
