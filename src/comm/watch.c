/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/comm-mpi.h"
#include "comm/node-shm.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { POLL_MS = 500, POLL_MS_WITHOUT_PIDFD = 100, TERM_GRACE_MS = 300 };

/* One communicator of a process can be watched; the signal handler needs it to be static. */
static struct {
    bool running, took_term;
    pthread_t thread;
    struct trl__node *node;
    int n_nodes, world;
    int wake_fd; /* stop, or SIGTERM arrived */
    atomic_bool stop, terminated;
    struct pollfd *fds; /* [0]: wake_fd, [1 + i]: local rank i's process */
} g;

static struct trl__node *node_of(struct trl_comm *c)
{
#ifdef TRL_HAVE_MPI
    return strcmp(c->name, "mpi") == 0 ? trl__mpi_node(c) : NULL;
#else
    return NULL;
#endif
}

static void nap_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

#ifdef TRL_HAVE_MPI
static void *abort_main(void *arg)
{
    trl__mpi_abort_job(*(int *)arg);
    return NULL;
}
#endif

/* Does not return. On one node every rank sees the table and ends itself; ranks elsewhere need
 * MPI's help. */
static void __attribute__((noreturn)) end_process(int exit_code, bool speaker, int n_nodes)
{
#ifdef TRL_HAVE_MPI
    static int code;
    pthread_t t;
    code = exit_code;
    if (n_nodes > 1 && speaker && pthread_create(&t, NULL, abort_main, &code) == 0)
        nap_ms(3000);
#endif
    _exit(exit_code);
}

static bool claim_speech(struct trl__node *n)
{
    struct trl__node_head *h = n->head;
    for (int waited = 0;;) {
        int who = 0;
        if (atomic_compare_exchange_strong(&h->speaker, &who, n->rank + 1))
            return true;
        if (who == TRL__SPOKEN || waited > 2000)
            return false;
        /* the speaker may itself die before it has spoken */
        if (who != n->rank + 1 && !trl__node_is_alive(n, who - 1) &&
            atomic_compare_exchange_strong(&h->speaker, &who, n->rank + 1))
            return true;
        nap_ms(5);
        waited += 5;
    }
}

/* The one message of the job, then the end. */
static void __attribute__((noreturn))
speak_and_end(struct trl__node *n, int n_nodes, int exit_code, const char *text)
{
    alarm(5); /* whatever blocks the message must not keep us alive */
    bool speaker = claim_speech(n);
    if (speaker) {
        atomic_store(&n->head->exit_code, exit_code);
        trl_log(TRL_LOG_ERROR, "%s", text);
        fflush(stderr);
        atomic_store(&n->head->speaker, TRL__SPOKEN);
    } else if (atomic_load(&n->head->exit_code) != 0) {
        exit_code = atomic_load(&n->head->exit_code);
    }
    end_process(exit_code, speaker, n_nodes);
}

static void describe_step(int64_t step, char *ret, size_t size)
{
    if (step < 0)
        snprintf(ret, size, "before the first step");
    else
        snprintf(ret, size, "at step %lld", (long long)step);
}

/* What ended rank r; after an agreement `what` begins with the rank that had the trouble. */
static void describe_failure(char *ret, size_t size, const struct trl__node_rank *r, const char *when, const char *what)
{
    if (strncmp(what, "rank ", 5) == 0)
        snprintf(ret, size, "failed %s: %s", when, what);
    else
        snprintf(ret, size, "rank %d on %s failed %s: %s", r->rank, r->host, when, what);
}

static void check_peers(void)
{
    struct trl__node *n = g.node;
    char text[2600], when[64];
    for (int i = 0; i < n->size; i++) {
        struct trl__node_rank *r = &n->head->ranks[i];
        if (i == n->rank)
            continue;
        describe_step(atomic_load(&r->step), when, sizeof(when));
        if (atomic_load(&r->failed)) {
            describe_failure(text, sizeof(text), r, when, r->text);
            speak_and_end(n, g.n_nodes, r->exit_code, text);
        }
        /* `finished` is set before the lock goes: look at the lock first */
        bool alive = trl__node_is_alive(n, i);
        if (!alive && atomic_load(&r->state) != TRL__FINISHED) {
            snprintf(text, sizeof(text),
                "rank %d of %d on %s (process %d) died %s without a message (killed, out of "
                "memory, or crashed); all ranks end",
                r->rank, g.world, r->host, (int)r->pid, when);
            speak_and_end(n, g.n_nodes, 1, text);
        }
    }
}

/* mpirun answers the death of one rank with SIGTERM to the others: if that is why it came, the
 * message is ours to give. */
static void handle_term(void)
{
    for (int ms = 0; ms < TERM_GRACE_MS; ms += 20) {
        check_peers();
        nap_ms(20);
    }
    /* somebody wants all to end: the others, who got it too, need not wonder */
    atomic_store(&g.node->head->ranks[g.node->rank].state, TRL__FINISHED);
    signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
}

static void *watch_main(void *arg)
{
    bool all_pidfds = true;
    for (int i = 0; i < g.node->size; i++) {
        int fd =
            i == g.node->rank ? -1 : (int)syscall(SYS_pidfd_open, g.node->head->ranks[i].pid, 0);
        g.fds[1 + i] = (struct pollfd){.fd = fd, .events = POLLIN};
        if (fd < 0 && i != g.node->rank)
            all_pidfds = false;
    }
    g.fds[0] = (struct pollfd){.fd = g.wake_fd, .events = POLLIN};
    while (!atomic_load(&g.stop)) {
        poll(g.fds, (nfds_t)g.node->size + 1, all_pidfds ? POLL_MS : POLL_MS_WITHOUT_PIDFD);
        if (atomic_load(&g.stop))
            break;
        if (atomic_exchange(&g.terminated, false))
            handle_term();
        /* A pid may mean another process (containers) or be reused: it only wakes us up, the lock
         * decides. */
        for (int i = 1; i <= g.node->size; i++)
            if (g.fds[i].fd >= 0 && g.fds[i].revents) {
                close(g.fds[i].fd);
                g.fds[i].fd = -1;
            }
        check_peers();
    }
    for (int i = 1; i <= g.node->size; i++)
        if (g.fds[i].fd >= 0)
            close(g.fds[i].fd);
    return NULL;
}

static void wake(void)
{
    uint64_t one = 1;
    ssize_t n = write(g.wake_fd, &one, sizeof(one));
    (void)n; /* a full counter wakes as well */
}

static void on_term(int sig)
{
    int saved = errno;
    atomic_store(&g.terminated, true);
    wake();
    errno = saved;
}

int trl_comm_watch_start(struct trl_comm *c, struct trl_err *err)
{
    struct trl__node *n = node_of(c);
    if (!n || g.running)
        return 0;
    g.node = n;
    g.n_nodes = c->n_nodes;
    g.world = c->world;
    atomic_store(&g.stop, false);
    atomic_store(&g.terminated, false);
    g.fds = trl_calloc((size_t)n->size + 1, sizeof(*g.fds));
    if (!g.fds)
        return trl_fail_nomem(err, (size_t)n->size * sizeof(*g.fds), "the watch over local ranks");
    g.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = g.wake_fd < 0 ? errno : pthread_create(&g.thread, NULL, watch_main, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e != 0) {
        if (g.wake_fd >= 0)
            close(g.wake_fd);
        trl_free(g.fds);
        g.fds = NULL;
        return trl_fail(
            err, TRL_E_FAIL, "cannot start the watch over local ranks: %s", strerror(e));
    }
    g.running = true;
    struct sigaction was;
    if (sigaction(SIGTERM, NULL, &was) == 0 && was.sa_handler == SIG_DFL) {
        struct sigaction sa = {.sa_handler = on_term, .sa_flags = SA_RESTART};
        g.took_term = sigaction(SIGTERM, &sa, NULL) == 0;
    }
    return 0;
}

void trl__watch_stop(struct trl_comm *c)
{
    if (!g.running || g.node != node_of(c))
        return;
    struct sigaction is;
    if (g.took_term && sigaction(SIGTERM, NULL, &is) == 0 && is.sa_handler == on_term)
        signal(SIGTERM, SIG_DFL);
    atomic_store(&g.stop, true);
    wake();
    pthread_join(g.thread, NULL);
    close(g.wake_fd);
    trl_free(g.fds);
    g.fds = NULL;
    g.running = false;
}

void trl__watch_leave(struct trl_comm *c)
{
    struct trl__node *n = node_of(c);
    if (!n)
        return;
    atomic_store(&n->head->ranks[n->rank].state, TRL__CLOSING);
    for (int i = 0; i < n->size; i++)
        while (atomic_load(&n->head->ranks[i].state) == TRL__RUNNING && trl__node_is_alive(n, i))
            nap_ms(2);
    atomic_store(&n->head->ranks[n->rank].state, TRL__FINISHED);
}

int trl__watch_filter(struct trl_comm *c, int rc, const struct trl_err *err)
{
    struct trl__node *n = node_of(c);
    if (rc != TRL_E_COMM || !n || !g.running)
        return rc;
    double until = trl_clock_now() + 8;
    while (trl_clock_now() < until && trl__node_check(n, -1, NULL) != 0)
        nap_ms(20);
    return rc;
}

void trl_comm_watch_step(struct trl_comm *c, int64_t step)
{
    struct trl__node *n = node_of(c);
    if (n)
        atomic_store_explicit(&n->head->ranks[n->rank].step, step, memory_order_relaxed);
}

void trl_comm_die(struct trl_comm *c, const struct trl_err *err, int64_t step)
{
    struct trl__node *n = node_of(c);
    int code = trl_status_exit(err->code);
    if (code == 0)
        code = 1;
    if (!n) {
        trl_log(TRL_LOG_ERROR, "%s", err->text);
        exit(code);
    }
    struct trl__node_rank *r = &n->head->ranks[n->rank];
    char text[2600], when[64];
    r->exit_code = code;
    snprintf(r->text, sizeof(r->text), "%s", err->text);
    atomic_store(&r->step, step);
    atomic_store(&r->failed, 1);
    describe_step(step, when, sizeof(when));
    describe_failure(text, sizeof(text), r, when, err->text);
    speak_and_end(n, c->n_nodes, code, text);
}
