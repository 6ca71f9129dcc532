/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_COMM_NODE_SHM_H
#define TRL_COMM_NODE_SHM_H
/*
 * The shared memory of the ranks of one node: the table of the watch, and slots through which
 * collectives move data. The file has no name once all ranks have mapped it, so that nothing is
 * left behind however the job ends.
 *
 * A collective is a sequence of chunks; chunk k (counted over the life of the job, the same on all
 * ranks) uses slot k mod n_slots of each rank. Each rank counts in three words of its own: chunk k
 * is WRITTEN into its slot, REDUCED in its slot, and READ by it from all slots. Waiting sleeps on
 * the word (futex). A rank that waits for one that has ended gets an error.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum trl__phase { TRL__WRITTEN, TRL__REDUCED, TRL__READ, TRL__PHASES };
enum { TRL__SLOTS = 4, TRL__MAX_LOCAL = 4096, TRL__MIN_SLOT = 4096, TRL__SHM_TOTAL = 32 << 20 };
enum trl__rank_state { TRL__RUNNING, TRL__CLOSING, TRL__FINISHED };

struct trl__word {
    _Atomic uint32_t value, waiters;
};

/* What a rank does with a chunk: all ranks must do the same. */
struct trl__chunk_desc {
    uint32_t kind, bytes;
};

/* A row of the table: written by its rank only. */
struct trl__node_rank {
    _Alignas(64) struct trl__word words[TRL__PHASES];
    struct trl__chunk_desc desc[TRL__SLOTS];
    _Alignas(64) _Atomic int state; /* enum trl__rank_state */
    _Atomic int failed; /* 1: `text` and `exit_code` are set */
    _Atomic int64_t step; /* -1: before the first */
    int exit_code;
    int rank; /* of the world */
    pid_t pid;
    char host[64];
    char text[2048];
};

struct trl__node_head {
    _Atomic int speaker; /* who prints the one message: 0 nobody yet, rank + 1, or SPOKEN */
    _Atomic int exit_code;
    _Alignas(64) struct trl__node_rank ranks[];
};
enum { TRL__SPOKEN = -1 };

struct trl__node {
    int rank, size; /* local */
    int fd;
    size_t map_len, slot_bytes;
    struct trl__node_head *head;
    unsigned char *slots;
    uint32_t next; /* number of the next chunk */
};

size_t trl__node_map_len(int size, size_t slot_bytes);
/* The first local rank makes the file; its path (for the others) goes to ret_path. Slots shrink
 * from `slot_bytes` (a power of 2) until they fit. */
int trl__node_create(struct trl__node *n, int size, size_t slot_bytes, char *ret_path,
    size_t path_size, struct trl_err *err);
int trl__node_attach(struct trl__node *n, int rank, int size, const char *path, size_t slot_bytes,
    struct trl_err *err);
/* Fill in this rank's row and take the lock that tells others it is alive. */
int trl__node_join(struct trl__node *n, int world_rank, struct trl_err *err);
void trl__node_release(struct trl__node *n);

static inline unsigned char *trl__node_slot(const struct trl__node *n, int rank, uint32_t chunk)
{
    return n->slots + ((size_t)rank * TRL__SLOTS + chunk % TRL__SLOTS) * n->slot_bytes;
}

/* Chunk `chunk` has reached `phase` on this rank. */
void trl__node_post(struct trl__node *n, enum trl__phase phase, uint32_t chunk);
/* Wait until it has on rank `peer` / on all. */
int trl__node_wait(
    struct trl__node *n, int peer, enum trl__phase phase, uint32_t chunk, struct trl_err *err);
int trl__node_wait_all(
    struct trl__node *n, enum trl__phase phase, uint32_t chunk, struct trl_err *err);

/* Alive: the process holds its lock (true for ourselves). */
bool trl__node_is_alive(const struct trl__node *n, int peer);
/* An error when a rank of this node has died or failed, or when `waited_for` (-1: none) has left.
 */
int trl__node_check(struct trl__node *n, int waited_for, struct trl_err *err);

#endif
