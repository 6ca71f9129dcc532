/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/queue.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/alloc.h"

struct trl__queue {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    struct trl_comm_request *first, **last, *spare;
    bool busy, stop;
    void (*run)(void *, struct trl_comm_request *);
    void *ctx;
};

static void *queue_main(void *arg)
{
    struct trl__queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while ((!q->first || q->busy) && !q->stop)
            pthread_cond_wait(&q->work, &q->lock);
        struct trl_comm_request *r = q->first;
        if (!r)
            break;
        q->busy = true;
        pthread_mutex_unlock(&q->lock);
        q->run(q->ctx, r);
        pthread_mutex_lock(&q->lock);
        q->first = r->next;
        if (!q->first)
            q->last = &q->first;
        r->done = true;
        q->busy = false;
        pthread_cond_broadcast(&q->idle);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

int trl__queue_new(struct trl__queue **ret, void (*run)(void *ctx, struct trl_comm_request *r),
    void *ctx, struct trl_err *err)
{
    struct trl__queue *q = trl_calloc(1, sizeof(*q));
    if (!q)
        return trl_fail_nomem(err, sizeof(*q), "the communication thread");
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->idle, NULL);
    q->last = &q->first;
    q->run = run;
    q->ctx = ctx;
    /* signals are for the thread that trains */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(&q->thread, NULL, queue_main, q);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e != 0) {
        trl_free(q);
        return trl_fail(err, TRL_E_FAIL, "cannot start the communication thread: %s", strerror(e));
    }
    *ret = q;
    return 0;
}

void trl__queue_free(struct trl__queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    while (q->spare) {
        struct trl_comm_request *r = q->spare;
        q->spare = r->next;
        trl_free(r);
    }
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->idle);
    pthread_mutex_destroy(&q->lock);
    trl_free(q);
}

int trl__queue_start(struct trl__queue *q, void *buf, size_t n, enum trl_dtype dtype, float scale,
    struct trl_comm_request **ret, struct trl_err *err)
{
    struct trl_comm_request *r = q->spare; /* touched by the caller's thread only */
    if (r)
        q->spare = r->next;
    else if (!(r = trl_malloc(sizeof(*r))))
        return trl_fail_nomem(err, sizeof(*r), "a started all-reduce");
    r->next = NULL;
    r->buf = buf;
    r->n = n;
    r->dtype = dtype;
    r->scale = scale;
    r->done = false;
    r->err.code = 0;
    pthread_mutex_lock(&q->lock);
    *q->last = r;
    q->last = &r->next;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
    *ret = r;
    return 0;
}

int trl__queue_wait(struct trl__queue *q, struct trl_comm_request *r, struct trl_err *err)
{
    pthread_mutex_lock(&q->lock);
    while (!r->done)
        pthread_cond_wait(&q->idle, &q->lock);
    pthread_mutex_unlock(&q->lock);
    int rc = r->err.code;
    if (rc && err)
        *err = r->err;
    r->next = q->spare;
    q->spare = r;
    return rc;
}

void trl__queue_enter(struct trl__queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->first || q->busy)
        pthread_cond_wait(&q->idle, &q->lock);
    q->busy = true;
    pthread_mutex_unlock(&q->lock);
}

void trl__queue_leave(struct trl__queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->busy = false;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}
