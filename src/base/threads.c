/* SPDX-License-Identifier: Apache-2.0 */
#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"

/* Waiting threads spin this often before they sleep: kernels follow one another within microseconds. */
enum { SPINS = 4000 };

struct worker {
    struct trl_pool *pool;
    int index;
    pthread_t id;
};

struct trl_pool {
    int n;
    void (*fn)(void *ctx, int thread, int n_threads);
    void *ctx;
    atomic_uint generation; /* a new value: there is work */
    atomic_int running;     /* workers that have not finished it */
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    void (*on_start)(void *, int);
    void *start_ctx;
    struct worker workers[];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wait_for_work(struct trl_pool *p, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen)
            return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->generation) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct trl_pool *p = w->pool;
    if (p->on_start)
        p->on_start(p->start_ctx, w->index);
    unsigned seen = 0;
    for (;;) {
        wait_for_work(p, seen);
        seen = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (atomic_load(&p->stop))
            return NULL;
        p->fn(p->ctx, w->index, p->n);
        if (atomic_fetch_sub(&p->running, 1) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void start_round(struct trl_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->generation, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

int trl_pool_new(struct trl_pool **ret, int n, void (*on_start)(void *ctx, int thread), void *ctx, struct trl_err *err)
{
    if (n < 1)
        return trl_fail(err, TRL_E_RANGE, "a thread team needs at least 1 thread, not %d", n);
    struct trl_pool *p = trl_calloc(1, sizeof(*p) + (size_t)n * sizeof(p->workers[0]));
    if (!p)
        return trl_fail_nomem(err, sizeof(*p), "a thread team");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    p->on_start = on_start;
    p->start_ctx = ctx;
    p->n = 1;
    for (int i = 1; i < n; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i};
        if (pthread_create(&p->workers[i].id, NULL, worker_main, &p->workers[i]) != 0) {
            trl_pool_free(p);
            return trl_fail(err, TRL_E_FAIL, "cannot start thread %d of %d (limit on processes?)", i + 1, n);
        }
        p->n = i + 1;
    }
    *ret = p;
    return 0;
}

void trl_pool_free(struct trl_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    start_round(p);
    for (int i = 1; i < p->n; i++)
        pthread_join(p->workers[i].id, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    trl_free(p);
}

int trl_pool_size(const struct trl_pool *p)
{
    return p ? p->n : 1;
}

void trl_pool_run(struct trl_pool *p, void (*fn)(void *ctx, int thread, int n_threads), void *ctx)
{
    if (!p || p->n == 1) {
        fn(ctx, 0, 1);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    atomic_store(&p->running, p->n - 1);
    start_round(p);
    fn(ctx, 0, p->n);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->running, memory_order_acquire) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->running) != 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

struct range {
    int64_t n, grain;
    void (*fn)(void *, int64_t, int64_t, int);
    void *ctx;
};

static void run_range(void *ctx, int thread, int n_threads)
{
    const struct range *r = ctx;
    int64_t grains = (r->n + r->grain - 1) / r->grain;
    int64_t begin = grains * thread / n_threads * r->grain;
    int64_t end = grains * (thread + 1) / n_threads * r->grain;
    if (end > r->n)
        end = r->n;
    if (begin < end)
        r->fn(r->ctx, begin, end, thread);
}

void trl_parallel_for(struct trl_pool *p, int64_t n, int64_t grain,
    void (*fn)(void *ctx, int64_t begin, int64_t end, int thread), void *ctx)
{
    if (n <= 0)
        return;
    struct range r = {.n = n, .grain = grain > 0 ? grain : 1, .fn = fn, .ctx = ctx};
    trl_pool_run(n <= r.grain ? NULL : p, run_range, &r);
}
