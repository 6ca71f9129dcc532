/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/comm-mpi.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/coll.h"
#include "comm/queue.h"
#include "comm/watch.h"

/* Between nodes: local rank r of every node talks to local rank r of the others ("rail"). */
struct trl__between {
    MPI_Comm rail;
    int rank, size; /* node_rank, n_nodes */
    int *counts, *at, *even, *even_at;
    void *recv; /* one slice */
    const void **srcs;
    struct trl__node *node;
};

struct mpi_impl {
    MPI_Comm world, node_comm;
    struct trl__node node;
    struct trl__between between;
    struct trl__coll coll;
    struct trl__queue *queue;
};

/* Bytes of one MPI call: counts are int. */
enum { PIECE = 64 << 20 };

static int mpi_fail(int code, const char *what, struct trl_err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    MPI_Error_string(code, text, &len);
    return trl_fail(err, TRL_E_COMM, "MPI: %s: %s", what, text);
}

/* MPI's own waiting spins on a core; test, then sleep longer and longer (at most 0.2 ms). */
static int finish_request(
    struct trl__node *node, MPI_Request *req, int code, const char *what, struct trl_err *err)
{
    int done = 0;
    double checked = trl_clock_now();
    for (int tries = 0; code == MPI_SUCCESS; tries++) {
        code = MPI_Test(req, &done, MPI_STATUS_IGNORE);
        if (done || code != MPI_SUCCESS)
            break;
        if (tries < 100)
            continue;
        nanosleep(&(struct timespec){.tv_nsec = tries < 1000 ? 20000 : 200000}, NULL);
        if (tries % 100 == 0 && node->head && trl_clock_now() - checked > 0.5) {
            int rc = trl__node_check(node, -1, err);
            if (rc)
                return rc;
            checked = trl_clock_now();
        }
    }
    return code == MPI_SUCCESS ? 0 : mpi_fail(code, what, err);
}

int trl__between_reduce(struct trl__between *b, enum trl__wire wire, void *part, size_t n,
    enum trl_comm_op op, struct trl_err *err)
{
    MPI_Datatype type = wire == TRL__WIRE_F64 ? MPI_DOUBLE : MPI_FLOAT;
    size_t esize = trl__wire_size(wire);
    MPI_Request req;
    /* node i reduces part i of the slice, in node order */
    for (int i = 0; i < b->size; i++) {
        b->at[i] = (int)(n * (size_t)i / (size_t)b->size);
        b->counts[i] = (int)(n * ((size_t)i + 1) / (size_t)b->size) - b->at[i];
    }
    int mine = b->counts[b->rank];
    for (int i = 0; i < b->size; i++) {
        b->even[i] = mine;
        b->even_at[i] = mine * i;
    }
    int code = MPI_Ialltoallv(
        part, b->counts, b->at, type, b->recv, b->even, b->even_at, type, b->rail, &req);
    int rc = finish_request(b->node, &req, code, "exchange of partial sums between nodes", err);
    if (rc)
        return rc;
    char *own = (char *)part + (size_t)b->at[b->rank] * esize;
    for (int i = 0; i < b->size; i++)
        b->srcs[i] = (char *)b->recv + (size_t)b->even_at[i] * esize;
    trl__reduce(wire, own, wire, b->srcs, b->size, (size_t)mine, op, 1.0f);
    code = MPI_Iallgatherv(
        MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, part, b->counts, b->at, type, b->rail, &req);
    return finish_request(b->node, &req, code, "gathering of sums between nodes", err);
}

static int world_bcast(struct mpi_impl *m, void *buf, size_t bytes, int root, struct trl_err *err)
{
    int rc = 0;
    for (size_t at = 0; at < bytes && !rc; at += PIECE) {
        MPI_Request req;
        size_t len = bytes - at < PIECE ? bytes - at : PIECE;
        int code = MPI_Ibcast((char *)buf + at, (int)len, MPI_BYTE, root, m->world, &req);
        rc = finish_request(&m->node, &req, code, "broadcast", err);
    }
    return rc;
}

static int world_allgather(
    struct trl_comm *c, const void *send, size_t bytes, void *recv, struct trl_err *err)
{
    struct mpi_impl *m = c->impl;
    int rc = 0;
    if (bytes <= 1 << 20) {
        MPI_Request req;
        int code =
            MPI_Iallgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, m->world, &req);
        return finish_request(&m->node, &req, code, "gathering", err);
    }
    memcpy((char *)recv + (size_t)c->rank * bytes, send, bytes);
    for (int r = 0; r < c->world && !rc; r++)
        rc = world_bcast(m, (char *)recv + (size_t)r * bytes, bytes, r, err);
    return rc;
}

/* ---- the table ---- */

static int do_allreduce(struct trl_comm *c, void *buf, size_t n, enum trl__wire wire,
    enum trl_comm_op op, struct trl_err *err)
{
    struct mpi_impl *m = c->impl;
    trl__queue_enter(m->queue);
    int rc = trl__coll_allreduce(&m->coll, buf, n, wire, op, 1.0f, err);
    trl__queue_leave(m->queue);
    return trl__watch_filter(c, rc, err);
}

static int mpi_allreduce(
    struct trl_comm *c, void *buf, size_t n, enum trl_dtype dtype, struct trl_err *err)
{
    return do_allreduce(c, buf, n, trl__wire_of(dtype), TRL_COMM_SUM, err);
}

static int mpi_allreduce_f64(struct trl_comm *c, double *buf, size_t n, int op, struct trl_err *err)
{
    return do_allreduce(c, buf, n, TRL__WIRE_F64, (enum trl_comm_op)op, err);
}

static int mpi_allgather(
    struct trl_comm *c, const void *send, size_t bytes, void *recv, struct trl_err *err)
{
    struct mpi_impl *m = c->impl;
    trl__queue_enter(m->queue);
    int rc = c->n_nodes == 1 ? trl__coll_node_allgather(&m->coll, send, bytes, recv, err)
                             : world_allgather(c, send, bytes, recv, err);
    trl__queue_leave(m->queue);
    return trl__watch_filter(c, rc, err);
}

static int mpi_bcast(struct trl_comm *c, void *buf, size_t bytes, int root, struct trl_err *err)
{
    struct mpi_impl *m = c->impl;
    if (root < 0 || root >= c->world)
        return trl_fail(
            err, TRL_E_RANGE, "broadcast from rank %d in a world of %d", root, c->world);
    trl__queue_enter(m->queue);
    int rc = c->n_nodes == 1 ? trl__coll_node_bcast(&m->coll, buf, bytes, root, err)
                             : world_bcast(m, buf, bytes, root, err);
    trl__queue_leave(m->queue);
    return trl__watch_filter(c, rc, err);
}

static int mpi_node_bcast(struct trl_comm *c, void *buf, size_t bytes, struct trl_err *err)
{
    struct mpi_impl *m = c->impl;
    trl__queue_enter(m->queue);
    int rc = trl__coll_node_bcast(&m->coll, buf, bytes, 0, err);
    trl__queue_leave(m->queue);
    return trl__watch_filter(c, rc, err);
}

static int mpi_barrier(struct trl_comm *c, struct trl_err *err)
{
    struct mpi_impl *m = c->impl;
    trl__queue_enter(m->queue);
    int rc;
    if (c->n_nodes == 1) {
        rc = trl__coll_node_barrier(&m->coll, err);
    } else {
        MPI_Request req;
        int code = MPI_Ibarrier(m->world, &req);
        rc = finish_request(&m->node, &req, code, "barrier", err);
    }
    trl__queue_leave(m->queue);
    return trl__watch_filter(c, rc, err);
}

static void run_started(void *ctx, struct trl_comm_request *r)
{
    struct mpi_impl *m = ctx;
    r->err.code = trl__coll_allreduce(
        &m->coll, r->buf, r->n, trl__wire_of(r->dtype), TRL_COMM_SUM, r->scale, &r->err);
}

static int mpi_start(struct trl_comm *c, void *buf, size_t n, enum trl_dtype dtype, float scale,
    struct trl_comm_request **ret, struct trl_err *err)
{
    struct mpi_impl *m = c->impl;
    return trl__queue_start(m->queue, buf, n, dtype, scale, ret, err);
}

static int mpi_wait(struct trl_comm *c, struct trl_comm_request *r, struct trl_err *err)
{
    struct mpi_impl *m = c->impl;
    return trl__watch_filter(c, trl__queue_wait(m->queue, r, err), err);
}

void trl__mpi_abort_job(int exit_code)
{
    MPI_Abort(MPI_COMM_WORLD, exit_code);
}

struct trl__node *trl__mpi_node(struct trl_comm *c)
{
    return c->impl ? &((struct mpi_impl *)c->impl)->node : NULL;
}

/* ---- opening and closing ---- */

static void release_impl(struct mpi_impl *m)
{
    trl__queue_free(m->queue);
    trl_free(m->coll.part);
    trl_free(m->coll.srcs);
    trl_free(m->between.counts);
    trl_free(m->between.recv);
    trl_free(m->between.srcs);
    trl__node_release(&m->node);
    trl_free(m);
}

static void mpi_close(struct trl_comm *c)
{
    struct mpi_impl *m = c->impl;
    trl__queue_free(m->queue);
    m->queue = NULL;
    trl__watch_leave(c); /* waits until the others of this node leave too */
    MPI_Finalize();
    trl__watch_stop(c);
    release_impl(m);
    c->impl = NULL;
}

static const struct trl_comm_ops mpi_ops = {
    .allreduce_sum = mpi_allreduce,
    .allreduce_f64 = mpi_allreduce_f64,
    .allgather = mpi_allgather,
    .bcast = mpi_bcast,
    .node_bcast = mpi_node_bcast,
    .barrier = mpi_barrier,
    .allreduce_start = mpi_start,
    .wait = mpi_wait,
    .close = mpi_close,
};

/* TRL_COMM_RANKS_PER_NODE=g: treat each g local ranks as a node of their own, to exercise several
 * nodes on one machine. */
static int split_node(MPI_Comm *node, struct trl_err *err)
{
    const char *text = getenv("TRL_COMM_RANKS_PER_NODE");
    int group = text ? (int)strtol(text, NULL, 10) : 0, rank, size;
    MPI_Bcast(&group, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (group <= 0)
        return 0;
    MPI_Comm whole = *node;
    MPI_Comm_rank(whole, &rank);
    MPI_Comm_size(whole, &size);
    int code = MPI_Comm_split(whole, rank / group, rank, node);
    MPI_Comm_free(&whole);
    return code == MPI_SUCCESS ? 0 : mpi_fail(code, "splitting the ranks of a node", err);
}

/* Which ranks share memory, and which node is which: nodes are numbered by their lowest rank. */
static int find_nodes(struct trl_comm *c, struct mpi_impl *m, struct trl_err *err)
{
    int code =
        MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &m->node_comm);
    if (code != MPI_SUCCESS)
        return mpi_fail(code, "finding the ranks of this node", err);
    int rc = split_node(&m->node_comm, err);
    if (rc)
        return rc;
    MPI_Comm_rank(m->node_comm, &c->local_rank);
    MPI_Comm_size(m->node_comm, &c->local_world);
    MPI_Comm leaders;
    int place[2] = {0, 1};
    MPI_Comm_split(m->world, c->local_rank == 0 ? 0 : MPI_UNDEFINED, c->rank, &leaders);
    if (leaders != MPI_COMM_NULL) {
        MPI_Comm_rank(leaders, &place[0]);
        MPI_Comm_size(leaders, &place[1]);
        MPI_Comm_free(&leaders);
    }
    MPI_Bcast(place, 2, MPI_INT, 0, m->node_comm);
    c->node_rank = place[0];
    c->n_nodes = place[1];
    return 0;
}

/* Each step may fail on one rank alone: all go on to the next only when none has. */
static int all_ok(MPI_Comm comm, int rc, struct trl_err *err)
{
    int worst = rc;
    MPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, comm);
    if (rc)
        return rc;
    return worst ? trl_fail(err, worst, "another rank could not connect; its own message says why")
                 : 0;
}

/* Small slots stay in the cache of a core; more ranks need longer slices; across nodes longer
 * messages pay. */
static size_t wanted_slot(const struct trl_comm *c)
{
    size_t bytes = c->n_nodes > 1 ? 1 << 20 : 128 << 10;
    while (bytes < 1 << 20 && bytes < (size_t)c->local_world * (32 << 10))
        bytes *= 2;
    return bytes;
}

static int join_shared_memory(struct trl_comm *c, struct mpi_impl *m, struct trl_err *err)
{
    struct {
        char path[512];
        size_t slot_bytes;
    } where = {"", 0};
    int rc = 0;
    if (c->local_rank == 0) {
        rc = trl__node_create(
            &m->node, c->local_world, wanted_slot(c), where.path, sizeof(where.path), err);
        where.slot_bytes = m->node.slot_bytes;
    }
    if ((rc = all_ok(m->world, rc, err)) != 0) {
        if (c->local_rank == 0 && where.path[0])
            unlink(where.path);
        return rc;
    }
    MPI_Bcast(&where, (int)sizeof(where), MPI_BYTE, 0, m->node_comm);
    if (c->local_rank != 0)
        rc = trl__node_attach(
            &m->node, c->local_rank, c->local_world, where.path, where.slot_bytes, err);
    if (!rc)
        rc = trl__node_join(&m->node, c->rank, err);
    rc = all_ok(m->world, rc, err);
    if (c->local_rank == 0)
        unlink(where.path);
    return rc;
}

static int open_rails(struct trl_comm *c, struct mpi_impl *m, struct trl_err *err)
{
    struct trl__between *b = &m->between;
    MPI_Allreduce(&c->local_world, &m->coll.reducers, 1, MPI_INT, MPI_MIN, m->world);
    bool reduces = c->local_rank < m->coll.reducers;
    int code =
        MPI_Comm_split(m->world, reduces ? c->local_rank : MPI_UNDEFINED, c->node_rank, &b->rail);
    if (code != MPI_SUCCESS)
        return mpi_fail(code, "connecting the nodes", err);
    size_t n = (size_t)c->n_nodes;
    b->rank = c->node_rank;
    b->size = c->n_nodes;
    b->node = &m->node;
    b->counts = trl_calloc(4 * n, sizeof(int));
    b->srcs = trl_calloc(n, sizeof(*b->srcs));
    /* a slice of a 2-byte type is twice as long in float32; parts are rounded up once a node */
    size_t slice = 2 * m->node.slot_bytes + 64 * 8 + n * 8;
    b->recv = trl_malloc(slice);
    m->coll.part = trl_malloc(slice);
    if (!b->counts || !b->srcs || !b->recv || !m->coll.part)
        return trl_fail_nomem(err, 2 * slice, "sums between nodes");
    b->at = b->counts + n;
    b->even = b->counts + 2 * n;
    b->even_at = b->counts + 3 * n;
    m->coll.between = b;
    return 0;
}

static int check_world(struct trl_comm *c, const struct trl_job *job, struct trl_err *err)
{
    if (c->world == job->world)
        return 0;
    char lib[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int len = 0;
    MPI_Get_library_version(lib, &len);
    lib[strcspn(lib, "\n,")] = '\0';
    return trl_fail(err, TRL_E_COMM,
        "%s=%d, but MPI (%.60s) sees %d process%s: the launcher and this MPI do not know each "
        "other. Under Slurm choose the plugin that "
        "fits with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH, Intel MPI); `srun --mpi=list` "
        "shows what there is. Otherwise use "
        "the mpirun that belongs to this MPI",
        job->world_var, job->world, lib, c->world, c->world == 1 ? "" : "es");
}

static int start_mpi(
    struct trl_comm *c, struct mpi_impl *m, const struct trl_job *job, struct trl_err *err)
{
    int provided = MPI_THREAD_SINGLE;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (code != MPI_SUCCESS)
        return mpi_fail(code, "MPI_Init_thread", err);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    m->world = MPI_COMM_WORLD;
    MPI_Comm_rank(m->world, &c->rank);
    MPI_Comm_size(m->world, &c->world);
    int rc = check_world(c, job, err);
    if (!rc && provided < MPI_THREAD_SERIALIZED)
        rc = trl_fail(err, TRL_E_COMM,
            "this MPI was built without thread support (MPI_THREAD_SERIALIZED is needed)");
    return rc;
}

static int connect_ranks(struct trl_comm *c, struct mpi_impl *m, struct trl_err *err)
{
    int rc = find_nodes(c, m, err);
    if (!rc)
        rc = join_shared_memory(c, m, err);
    if (rc)
        return rc;
    m->coll.node = &m->node;
    m->coll.reducers = c->local_world;
    m->coll.srcs = trl_calloc((size_t)c->local_world, sizeof(*m->coll.srcs));
    if (!m->coll.srcs)
        rc =
            trl_fail_nomem(err, (size_t)c->local_world * sizeof(*m->coll.srcs), "the communicator");
    if (!rc && c->n_nodes > 1)
        rc = open_rails(c, m, err);
    if (!rc)
        rc = trl__queue_new(&m->queue, run_started, m, err);
    return all_ok(m->world, rc, err);
}

int trl__mpi_open(struct trl_comm *c, const struct trl_job *job, struct trl_err *err)
{
    struct mpi_impl *m = trl_calloc(1, sizeof(*m));
    if (!m)
        return trl_fail_nomem(err, sizeof(*m), "the communicator");
    m->node.fd = -1;
    *c = (struct trl_comm){.name = "mpi", .ops = &mpi_ops, .impl = m};
    int rc = start_mpi(c, m, job, err);
    if (!rc)
        rc = connect_ranks(c, m, err);
    if (rc) {
        int inited = 0;
        MPI_Initialized(&inited);
        if (inited)
            MPI_Finalize();
        release_impl(m);
        trl_comm_open_self(c);
    }
    return rc;
}
