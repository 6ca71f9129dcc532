/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_ALLOC_H
#define TRL_BASE_ALLOC_H
/*
 * Counted heap memory and large slabs. Every allocation of ours goes through here, so that a test can prove
 * that training steps allocate nothing (trl_alloc_calls) and a summary can say what was used.
 * All functions return NULL when memory is short (the caller reports it); sizes are checked for overflow.
 * Thread-safe. A size of 0 gives a valid pointer.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *trl_malloc(size_t size);
void *trl_calloc(size_t n, size_t size);
void *trl_malloc_array(size_t n, size_t size);
void *trl_realloc(void *p, size_t size);
/* Grow *p so that it holds at least `need` elements (doubling); updates *cap. False: nothing changed. */
bool trl_grow(void **p, size_t *cap, size_t need, size_t elem_size);
void trl_free(void *p);
char *trl_strdup(const char *s);
char *trl_strndup(const char *s, size_t n);
char *trl_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A slab: zeroed, page-aligned, huge pages asked for, pages taken from the system only when touched. */
void *trl_slab_new(size_t size);
void trl_slab_free(void *p, size_t size);

uint64_t trl_alloc_calls(void); /* allocations and slabs so far, this process */

/* n * size, or SIZE_MAX on overflow (which no allocator grants). */
size_t trl_size_mul(size_t n, size_t size);

#endif
