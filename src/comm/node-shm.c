/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/node-shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fileio.h"

/* How long a sleeper waits before it looks whether its peer is still there. */
enum { CHECK_MS = 200 };
static const char prefix[] = "trl-node-";

size_t trl__node_map_len(int size, size_t slot_bytes)
{
    size_t head = sizeof(struct trl__node_head) + (size_t)size * sizeof(struct trl__node_rank);
    head = (head + 4095) / 4096 * 4096;
    return head + (size_t)size * TRL__SLOTS * slot_bytes;
}

static int map_file(struct trl__node *n, const char *path, struct trl_err *err)
{
    n->map_len = trl__node_map_len(n->size, n->slot_bytes);
    void *p = mmap(NULL, n->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, n->fd, 0);
    if (p == MAP_FAILED)
        return trl_fail_errno(err, "cannot map the shared memory of this node's ranks,", path);
    n->head = p;
    n->slots = (unsigned char *)p + (n->map_len - (size_t)n->size * TRL__SLOTS * n->slot_bytes);
    return 0;
}

static int create_in(
    struct trl__node *n, const char *dir, char *ret_path, size_t path_size, struct trl_err *err)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int len = snprintf(ret_path, path_size, "%s/%s%u-%d-%lld%09ld", dir, prefix, (unsigned)getuid(),
        (int)getpid(), (long long)t.tv_sec, t.tv_nsec);
    if (len < 0 || (size_t)len >= path_size)
        return trl_fail(
            err, TRL_E_RANGE, "the path of folder %s is too long for a shared file", dir);
    n->fd = open(ret_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (n->fd < 0)
        return trl_fail_errno(err, "cannot create", ret_path);
    int e = ENOSPC;
    /* Pages are reserved now: a full /dev/shm would otherwise be a bus error later. */
    for (; e == ENOSPC && n->slot_bytes >= TRL__MIN_SLOT; n->slot_bytes /= 2) {
        e = posix_fallocate(n->fd, 0, (off_t)trl__node_map_len(n->size, n->slot_bytes));
        if (e == 0)
            return 0;
        if (ftruncate(n->fd, 0) != 0)
            break;
    }
    errno = e;
    trl_fail_errno(err, "cannot reserve shared memory in", ret_path);
    unlink(ret_path);
    close(n->fd);
    n->fd = -1;
    return err ? err->code : TRL_E_IO;
}

int trl__node_create(struct trl__node *n, int size, size_t slot_bytes, char *ret_path,
    size_t path_size, struct trl_err *err)
{
    const char *tmp = getenv("TMPDIR");
    const char *dirs[] = {"/dev/shm", tmp && tmp[0] == '/' ? tmp : "/tmp"};
    int rc = TRL_E_IO;
    for (int i = 0; i < 2 && rc; i++) {
        *n = (struct trl__node){.size = size, .fd = -1, .slot_bytes = slot_bytes};
        while (n->slot_bytes > TRL__MIN_SLOT &&
            n->slot_bytes * TRL__SLOTS * (size_t)size > TRL__SHM_TOTAL)
            n->slot_bytes /= 2;
        trl_remove_leftovers(dirs[i], prefix);
        rc = create_in(n, dirs[i], ret_path, path_size, err);
    }
    if (!rc && (rc = map_file(n, ret_path, err)) != 0) {
        unlink(ret_path);
        trl__node_release(n);
    }
    return rc;
}

int trl__node_attach(struct trl__node *n, int rank, int size, const char *path, size_t slot_bytes,
    struct trl_err *err)
{
    *n = (struct trl__node){.rank = rank, .size = size, .slot_bytes = slot_bytes};
    n->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (n->fd < 0)
        return trl_fail_errno(err, "cannot open the shared memory of this node's ranks,", path);
    struct stat st = {0};
    if (fstat(n->fd, &st) != 0 || (size_t)st.st_size != trl__node_map_len(size, slot_bytes) ||
        st.st_uid != geteuid()) {
        trl__node_release(n);
        return trl_fail(err, TRL_E_COMM,
            "%s is not the shared memory of this job's ranks (size %lld)", path,
            (long long)st.st_size);
    }
    int rc = map_file(n, path, err);
    if (rc)
        trl__node_release(n);
    return rc;
}

/* Byte `rank` of the file is locked by the living process: the kernel drops the lock with the
 * process, whatever killed it, and unlike a pid it is never reused and means the same in every
 * container. */
static struct flock lock_of(int rank)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

int trl__node_join(struct trl__node *n, int world_rank, struct trl_err *err)
{
    struct trl__node_rank *r = &n->head->ranks[n->rank];
    r->rank = world_rank;
    r->pid = getpid();
    char host[sizeof(r->host)] = "unknown";
    gethostname(host, sizeof(host) - 1); /* on failure it stays unknown */
    memcpy(r->host, host, sizeof(host));
    atomic_store(&r->step, -1);
    struct flock l = lock_of(n->rank);
    if (fcntl(n->fd, F_SETLK, &l) != 0)
        return trl_fail(err, TRL_E_COMM, "cannot lock byte %d of the shared memory file: %s",
            n->rank, strerror(errno));
    return 0;
}

void trl__node_release(struct trl__node *n)
{
    if (n->head)
        munmap(n->head, n->map_len);
    if (n->fd >= 0)
        close(n->fd);
    *n = (struct trl__node){.fd = -1};
}

bool trl__node_is_alive(const struct trl__node *n, int peer)
{
    struct flock l = lock_of(peer);
    if (peer == n->rank)
        return true; /* our own lock never conflicts with ourselves */
    return fcntl(n->fd, F_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

int trl__node_check(struct trl__node *n, int waited_for, struct trl_err *err)
{
    for (int i = 0; i < n->size; i++) {
        struct trl__node_rank *r = &n->head->ranks[i];
        if (i == n->rank)
            continue;
        if (atomic_load(&r->failed))
            return trl_fail(
                err, TRL_E_COMM, "rank %d on %s failed: %.1500s", r->rank, r->host, r->text);
        if (atomic_load(&r->state) != TRL__RUNNING) {
            if (i == waited_for)
                return trl_fail(err, TRL_E_COMM,
                    "rank %d on %s has ended while others still waited for it", r->rank, r->host);
        } else if (!trl__node_is_alive(n, i)) {
            return trl_fail(
                err, TRL_E_COMM, "rank %d on %s (process %d) died", r->rank, r->host, (int)r->pid);
        }
    }
    return 0;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, (uint32_t *)word, op, value, timeout, NULL, 0);
}

void trl__node_post(struct trl__node *n, enum trl__phase phase, uint32_t chunk)
{
    struct trl__word *w = &n->head->ranks[n->rank].words[phase];
    atomic_store(&w->value, chunk + 1);
    if (atomic_load(&w->waiters) > 0)
        futex(&w->value, FUTEX_WAKE, INT_MAX, NULL);
}

static bool has_reached(uint32_t value, uint32_t chunk)
{
    return (int32_t)(value - (chunk + 1)) >= 0; /* counters wrap */
}

int trl__node_wait(
    struct trl__node *n, int peer, enum trl__phase phase, uint32_t chunk, struct trl_err *err)
{
    struct trl__word *w = &n->head->ranks[peer].words[phase];
    if (has_reached(atomic_load_explicit(&w->value, memory_order_acquire), chunk))
        return 0;
    static const struct timespec nap = {.tv_nsec = CHECK_MS * 1000000L};
    int rc = 0;
    /* Ranks may outnumber cores, and this may be the communication thread beside a computing one:
     * no spinning. */
    atomic_fetch_add(&w->waiters, 1);
    for (;;) {
        uint32_t v = atomic_load(&w->value);
        if (has_reached(v, chunk))
            break;
        if (futex(&w->value, FUTEX_WAIT, v, &nap) != 0 && errno == ETIMEDOUT &&
            (rc = trl__node_check(n, peer, err)) != 0)
            break;
    }
    atomic_fetch_sub(&w->waiters, 1);
    /* what it was about to say it may have said in between */
    return has_reached(atomic_load(&w->value), chunk) ? 0 : rc;
}

int trl__node_wait_all(
    struct trl__node *n, enum trl__phase phase, uint32_t chunk, struct trl_err *err)
{
    int rc = 0;
    for (int i = 0; i < n->size && !rc; i++)
        if (i != n->rank)
            rc = trl__node_wait(n, i, phase, chunk, err);
    return rc;
}
