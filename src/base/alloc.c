/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_ullong g_calls;

size_t trl_size_mul(size_t n, size_t size)
{
    size_t total;
    return __builtin_mul_overflow(n, size, &total) ? SIZE_MAX : total;
}

void *trl_malloc(size_t size)
{
    atomic_fetch_add_explicit(&g_calls, 1, memory_order_relaxed);
    return size > PTRDIFF_MAX ? NULL : malloc(size ? size : 1);
}

void *trl_calloc(size_t n, size_t size)
{
    atomic_fetch_add_explicit(&g_calls, 1, memory_order_relaxed);
    size_t total = trl_size_mul(n, size);
    return total > PTRDIFF_MAX ? NULL : calloc(1, total ? total : 1);
}

void *trl_malloc_array(size_t n, size_t size)
{
    return trl_malloc(trl_size_mul(n, size));
}

void *trl_realloc(void *p, size_t size)
{
    atomic_fetch_add_explicit(&g_calls, 1, memory_order_relaxed);
    return size > PTRDIFF_MAX ? NULL : realloc(p, size ? size : 1);
}

bool trl_grow(void **p, size_t *cap, size_t need, size_t elem_size)
{
    if (need <= *cap)
        return true;
    size_t n = *cap > 8 ? *cap : 8;
    while (n < need) {
        if (n > SIZE_MAX / 2)
            return false;
        n *= 2;
    }
    void *q = trl_realloc(*p, trl_size_mul(n, elem_size));
    if (!q)
        return false;
    *p = q;
    *cap = n;
    return true;
}

void trl_free(void *p)
{
    free(p);
}

char *trl_strndup(const char *s, size_t n)
{
    char *p = n == SIZE_MAX ? NULL : trl_malloc(n + 1);
    if (p) {
        memcpy(p, s, n);
        p[n] = '\0';
    }
    return p;
}

char *trl_strdup(const char *s)
{
    return trl_strndup(s, strlen(s));
}

char *trl_asprintf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : trl_malloc((size_t)n + 1);
    if (!p)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

void *trl_slab_new(size_t size)
{
    atomic_fetch_add_explicit(&g_calls, 1, memory_order_relaxed);
    if (size == 0)
        size = 1;
    if (size > PTRDIFF_MAX)
        return NULL;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, size, MADV_HUGEPAGE);
    return p;
}

void trl_slab_free(void *p, size_t size)
{
    if (!p)
        return;
    if (size == 0)
        size = 1;
    munmap(p, size);
}

uint64_t trl_alloc_calls(void)
{
    return atomic_load(&g_calls);
}
