/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_ARENA_H
#define TRL_BASE_ARENA_H
/*
 * An arena: many small objects with one lifetime, freed together. Not shared between threads.
 * A zeroed struct is a valid empty arena. Allocation returns zeroed, 16-byte aligned memory, or NULL.
 */
#include <stddef.h>

struct trl_arena_block;
struct trl_arena {
    struct trl_arena_block *head;
};

void *trl_arena_alloc(struct trl_arena *a, size_t size);
void *trl_arena_array(struct trl_arena *a, size_t n, size_t size);
char *trl_arena_strdup(struct trl_arena *a, const char *s);
char *trl_arena_strndup(struct trl_arena *a, const char *s, size_t n);
char *trl_arena_printf(struct trl_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trl_arena_release(struct trl_arena *a); /* frees all; the arena is empty and usable again */

#endif
