/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { BLOCK_SIZE = 64 * 1024, ALIGN = 16 };

struct trl_arena_block {
    struct trl_arena_block *next;
    size_t used, size; /* of data[] */
    _Alignas(16) char data[];
};

void *trl_arena_alloc(struct trl_arena *a, size_t size)
{
    if (size > PTRDIFF_MAX - BLOCK_SIZE)
        return NULL;
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    struct trl_arena_block *b = a->head;
    if (!b || b->size - b->used < size) {
        size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        b = trl_malloc(sizeof(*b) + room);
        if (!b)
            return NULL;
        b->next = a->head;
        b->used = 0;
        b->size = room;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += size;
    return memset(p, 0, size);
}

void *trl_arena_array(struct trl_arena *a, size_t n, size_t size)
{
    return trl_arena_alloc(a, trl_size_mul(n, size));
}

char *trl_arena_strndup(struct trl_arena *a, const char *s, size_t n)
{
    char *p = n == SIZE_MAX ? NULL : trl_arena_alloc(a, n + 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

char *trl_arena_strdup(struct trl_arena *a, const char *s)
{
    return trl_arena_strndup(a, s, strlen(s));
}

char *trl_arena_printf(struct trl_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : trl_arena_alloc(a, (size_t)n + 1);
    if (!p)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

void trl_arena_release(struct trl_arena *a)
{
    struct trl_arena_block *b = a->head;
    while (b) {
        struct trl_arena_block *next = b->next;
        trl_free(b);
        b = next;
    }
    a->head = NULL;
}
