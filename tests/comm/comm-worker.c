/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the communicator tests: `mpirun -n N comm-worker MODE`. Exit code 0: all that this
 * rank saw was right. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "comm/node.h"

#define CHECK(cond, ...) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "FAILED %s:%d: %s: ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
            exit(9); \
        } \
    } while (0)
#define OK(call) CHECK((call) == 0, "%s", err.text)

static struct trl_err err;
static const size_t lengths[] = {0, 1, 3, 15, 17, 64, 1000, 4096, 65537, 1000003};
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* Small whole numbers: any order gives the same exact sum, in every type. */
static float whole(int rank, size_t i)
{
    return (float)((int)((i * 7 + (size_t)rank * 13) % 31) - 15);
}

static float uneven(int rank, size_t i)
{
    uint64_t h = trl_hash_rng(77 + (uint64_t)rank, i);
    return ((float)(h >> 40) / 16777216.0f - 0.5f) * ldexpf(1.0f, (int)(h & 15) - 8);
}

static void test_exact(struct trl_comm *c)
{
    for (int t = 0; t < TRL_DTYPE_MAX_; t++)
        for (int l = 0; l < N_LENGTHS; l++) {
            size_t n = lengths[l];
            enum trl_dtype d = (enum trl_dtype)t;
            char *buf = trl_malloc((n + 2) * 4);
            for (size_t i = 0; i < n + 2; i++)
                trl_dtype_store(d, buf, i, whole(c->rank, i));
            OK(c->ops->allreduce_sum(c, buf, n, d, &err));
            for (size_t i = 0; i < n + 2; i++) {
                float want = i >= n ? whole(c->rank, i) : 0;
                for (int r = 0; i < n && r < c->world; r++)
                    want += whole(r, i);
                CHECK(trl_dtype_load(d, buf, i) == want,
                    "type %s length %zu element %zu: %g, not %g", trl_dtype_name(d), n, i,
                    trl_dtype_load(d, buf, i), want);
            }
            trl_free(buf);
        }
}

/* By rank within a node, then by node. */
static float ordered_sum(
    const struct trl_comm *c, enum trl_dtype d, size_t i, int per_node, float scale)
{
    float total = 0;
    unsigned char raw[4];
    for (int first = 0; first < c->world; first += per_node) {
        float part = 0;
        for (int r = first; r < c->world && r < first + per_node; r++) {
            trl_dtype_store(d, raw, 0, uneven(r, i));
            float x = trl_dtype_load(d, raw, 0);
            part = r == first ? x : part + x;
        }
        total = first == 0 ? part : total + part;
    }
    trl_dtype_store(d, raw, 0, total * scale);
    return trl_dtype_load(d, raw, 0);
}

static int ranks_per_node(const struct trl_comm *c)
{
    const char *g = getenv("TRL_COMM_RANKS_PER_NODE");
    return g ? (int)strtol(g, NULL, 10) : c->world;
}

static void test_order(struct trl_comm *c)
{
    for (int t = 0; t < TRL_DTYPE_MAX_; t++)
        for (int l = 0; l < N_LENGTHS; l++) {
            size_t n = lengths[l];
            enum trl_dtype d = (enum trl_dtype)t;
            char *buf = trl_malloc(n * 4);
            for (size_t i = 0; i < n; i++)
                trl_dtype_store(d, buf, i, uneven(c->rank, i));
            OK(c->ops->allreduce_sum(c, buf, n, d, &err));
            for (size_t i = 0; i < n; i++)
                CHECK(trl_dtype_load(d, buf, i) == ordered_sum(c, d, i, ranks_per_node(c), 1.0f),
                    "type %s length %zu element %zu", trl_dtype_name(d), n, i);
            trl_free(buf);
        }
}

static void test_small(struct trl_comm *c)
{
    double v[3] = {c->rank + 0.5, -c->rank, c->rank == 1 ? NAN : 1}, s[1] = {c->rank},
           m[2] = {c->rank, -c->rank};
    OK(c->ops->allreduce_f64(c, v, 3, TRL_COMM_SUM, &err));
    int w = c->world;
    CHECK(
        v[0] == w * (w - 1) / 2.0 + 0.5 * w && v[1] == -w * (w - 1) / 2.0 && isnan(v[2]) == (w > 1),
        "%g %g", v[0], v[1]);
    OK(c->ops->allreduce_f64(c, s, 1, TRL_COMM_MAX, &err));
    OK(c->ops->allreduce_f64(c, m, 2, TRL_COMM_MIN, &err));
    CHECK(s[0] == w - 1 && m[0] == 0 && m[1] == -(w - 1), "%g %g %g", s[0], m[0], m[1]);
    static const size_t sizes[] = {1, 7, 4096, 3 << 20};
    for (size_t k = 0; k < 4; k++) {
        unsigned char *mine = trl_malloc(sizes[k]), *all = trl_malloc(sizes[k] * (size_t)w);
        for (size_t i = 0; i < sizes[k]; i++)
            mine[i] = (unsigned char)(i * 3 + (size_t)c->rank * 101);
        OK(c->ops->allgather(c, mine, sizes[k], all, &err));
        for (int r = 0; r < w; r++)
            for (size_t i = 0; i < sizes[k]; i++)
                CHECK(all[(size_t)r * sizes[k] + i] == (unsigned char)(i * 3 + (size_t)r * 101),
                    "gather %d %zu", r, i);
        for (int root = 0; root < w; root++) {
            memset(mine, c->rank, sizes[k]);
            OK(c->ops->bcast(c, mine, sizes[k], root, &err));
            CHECK(mine[0] == root && mine[sizes[k] - 1] == root, "broadcast");
        }
        memset(mine, c->rank, sizes[k]);
        OK(c->ops->node_bcast(c, mine, sizes[k], &err));
        CHECK(mine[sizes[k] / 2] == c->rank - c->local_rank, "node broadcast");
        trl_free(mine);
        trl_free(all);
    }
    for (int i = 0; i < 100; i++)
        OK(c->ops->barrier(c, &err));
    CHECK(c->ops->bcast(c, v, 8, c->world, &err) == TRL_E_RANGE, "a root outside the world");
}

static void test_agree(struct trl_comm *c)
{
    OK(trl_comm_agree(c, 0, &err));
    for (int bad = 0; bad < c->world; bad++) {
        struct trl_err e = {0};
        int rc = c->rank >= bad
            ? trl_fail(&e, TRL_E_DATA - (c->rank > bad), "row %d is bad", c->rank)
            : 0;
        rc = trl_comm_agree(c, rc, &e);
        char want[64];
        snprintf(want, sizeof(want), "rank %d on ", bad);
        CHECK(rc == TRL_E_DATA && e.code == rc, "%d %s", rc, e.text);
        CHECK(c->world == 1 || strncmp(e.text, want, strlen(want)) == 0, "%s", e.text);
        snprintf(want, sizeof(want), "row %d is bad", bad);
        CHECK(strstr(e.text, want), "%s", e.text);
        CHECK(trl_comm_agree(c, c->rank == bad ? TRL_E_IO : 0, NULL) == TRL_E_IO, "without a text");
    }
}

/* Sums under way while other memory is worked on; a collective in between; requests recycled. */
static void test_overlap(struct trl_comm *c)
{
    enum { BUCKETS = 5, N = 300001 };
    float *bufs = trl_malloc_array((size_t)BUCKETS * N, sizeof(float));
    struct trl_comm_request *reqs[BUCKETS];
    uint64_t calls = 0;
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            calls = trl_alloc_calls();
        for (int b = 0; b < BUCKETS; b++) {
            for (size_t i = 0; i < N; i++)
                bufs[(size_t)b * N + i] = uneven(c->rank, i + (size_t)b);
            OK(c->ops->allreduce_start(
                c, bufs + (size_t)b * N, N, TRL_DTYPE_F32, 0.25f, &reqs[b], &err));
        }
        double one = 1;
        OK(c->ops->allreduce_f64(c, &one, 1, TRL_COMM_SUM, &err));
        CHECK(one == c->world, "a sum behind started ones");
        for (int b = 0; b < BUCKETS; b++)
            OK(c->ops->wait(c, reqs[b], &err));
        for (int b = 0; b < BUCKETS; b++)
            for (size_t i = 0; i < N; i += 997)
                CHECK(bufs[(size_t)b * N + i] ==
                        ordered_sum(c, TRL_DTYPE_F32, i + (size_t)b, ranks_per_node(c), 0.25f),
                    "bucket %d", b);
    }
    CHECK(trl_alloc_calls() == calls, "steps allocate");
    trl_free(bufs);
}

static void test_mismatch(struct trl_comm *c)
{
    float x[8] = {0};
    int rc = c->ops->allreduce_sum(c, x, c->rank == 1 ? 7 : 8, TRL_DTYPE_F32, &err);
    CHECK(rc == TRL_E_COMM && strstr(err.text, "disagree"), "%d %s", rc, err.text);
}

/* A rank that leaves while others wait for it is an error there, not a hang. */
static void test_leave(struct trl_comm *c)
{
    if (c->rank == c->world - 1)
        return;
    int rc = c->ops->barrier(c, &err);
    CHECK(rc == TRL_E_COMM && strstr(err.text, "has ended"), "%d %s", rc, err.text);
}

static int make_file(void *ctx, char *ret_path, size_t size, struct trl_err *e)
{
    int *fail_rank = ctx;
    if (*fail_rank == 0)
        return trl_fail(e, TRL_E_DATA, "nothing to tokenise");
    snprintf(ret_path, size, "/tmp/comm-worker-%d", (int)getpid());
    FILE *f = fopen(ret_path, "w");
    if (!f)
        return trl_fail_errno(e, "cannot write", ret_path);
    fputs("tokens", f);
    fclose(f);
    return 0;
}

static char used_path[4096];
static int use_file(void *ctx, const char *path, struct trl_err *e)
{
    char text[16] = "";
    snprintf(used_path, sizeof(used_path), "%s", path);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(text, sizeof(text), f))
        return trl_fail_errno(e, "cannot read", path);
    fclose(f);
    return strcmp(text, "tokens") == 0 ? 0 : trl_fail(e, TRL_E_DATA, "wrong text");
}

static void test_node_once(struct trl_comm *c)
{
    int none = -1, first = 0;
    OK(trl_comm_node_once(c, true, make_file, use_file, &none, &err));
    OK(c->ops->barrier(c, &err));
    CHECK(used_path[0] && access(used_path, F_OK) != 0, "%s is still there", used_path);
    int rc = trl_comm_node_once(c, true, make_file, use_file, &first, &err);
    CHECK(rc == TRL_E_DATA && strstr(err.text, "nothing to tokenise"), "%d %s", rc, err.text);
}

static void test_place(struct trl_comm *c)
{
    int per = ranks_per_node(c);
    CHECK(c->local_rank == c->rank % per && c->node_rank == c->rank / per &&
            c->n_nodes == (c->world + per - 1) / per,
        "%d %d %d", c->local_rank, c->node_rank, c->n_nodes);
}

/* The ranks of a node divide its cores. */
static void test_bind(struct trl_comm *c)
{
    static struct trl_bind_plan p;
    OK(trl_comm_bind_plan(c, 0, &p, &err));
    struct trl_cpuset *all = trl_calloc((size_t)c->world, sizeof(*all));
    OK(c->ops->allgather(c, &p.cpus, sizeof(p.cpus), all, &err));
    CHECK(p.n_threads >= 1 && p.text[0], "%d threads", p.n_threads);
    for (int r = 0; r < c->world; r++)
        for (int i = 0; i < TRL_MAX_CPUS && ranks_per_node(c) == c->world; i++)
            CHECK(r == c->rank || !trl_cpuset_has(&p.cpus, i) || !trl_cpuset_has(&all[r], i),
                "CPU %d is used by ranks %d and %d", i, r, c->rank);
    trl_free(all);
    CHECK(trl_comm_bind_plan(c, TRL_BIND_MAX_THREADS + 1, &p, &err) == TRL_E_RANGE,
        "too many threads");
}

/* ---- the watch: these end the job ---- */

static void step_forever(struct trl_comm *c, int64_t bad_step, const char *how)
{
    float x[1000] = {0};
    for (int64_t step = 0; step < 20000; step++) {
        trl_comm_watch_step(c, step);
        if (step == bad_step && c->rank == c->world - 1 && strcmp(how, "sleep") != 0) {
            if (strcmp(how, "kill") == 0 || strcmp(how, "kill-compute") == 0)
                raise(SIGKILL);
            trl_fail(&err, TRL_E_DATA, "the loss is not a number");
            trl_comm_die(c, &err, step);
        }
        if (step == bad_step && strcmp(how, "all-die") == 0) {
            trl_fail(&err, TRL_E_NUMERIC, "everybody found this");
            trl_comm_die(c, &err, step);
        }
        if (step >= bad_step && (strcmp(how, "kill-compute") == 0 || strcmp(how, "sleep") == 0))
            sleep(30); /* a long computation without communication */
        int rc = c->ops->allreduce_sum(c, x, 1000, TRL_DTYPE_F32, &err);
        if (rc) {
            fprintf(stderr, "FAILED: a survivor returned: %s\n", err.text);
            exit(9);
        }
    }
}

static double bench_one(struct trl_comm *c, float *buf, size_t n, int rounds)
{
    double best = 1e9;
    for (int i = 0; i < rounds; i++) {
        OK(c->ops->barrier(c, &err));
        double t = trl_clock_now();
        OK(c->ops->allreduce_sum(c, buf, n, TRL_DTYPE_F32, &err));
        t = trl_clock_now() - t;
        if (t < best)
            best = t;
    }
    return best;
}

/* Arithmetic that stays in the cache. */
static double compute(double x, int64_t n)
{
    double a = x, b = x + 1, d = x + 2, e = x + 3;
    for (int64_t i = 0; i < n; i++) {
        a = a * 0.999 + 0.1;
        b = b * 0.998 + 0.2;
        d = d * 0.997 + 0.3;
        e = e * 0.996 + 0.4;
    }
    return a + b + d + e;
}

/* Computation and a sum in 20 parts: one after the other, and overlapped. */
static void bench_overlap(struct trl_comm *c)
{
    enum { PARTS = 20 };
    size_t n = 6750000;
    float *buf = trl_slab_new(PARTS * n * sizeof(float));
    struct trl_comm_request *r[PARTS];
    double best[3] = {1e9, 1e9, 1e9}, x = 1;
    for (int round = 0; round < 4; round++)
        for (int mode = 0; mode < 3; mode++) { /* compute, communicate, both */
            OK(c->ops->barrier(c, &err));
            double t = trl_clock_now();
            for (int p = 0; p < PARTS; p++) {
                if (mode != 1)
                    x = compute(x, 50000000 / PARTS * 4);
                if (mode != 0)
                    OK(c->ops->allreduce_start(
                        c, buf + (size_t)p * n, n, TRL_DTYPE_F32, 0.5f, &r[p], &err));
            }
            for (int p = 0; p < PARTS && mode != 0; p++)
                OK(c->ops->wait(c, r[p], &err));
            t = trl_clock_now() - t;
            best[mode] = t < best[mode] ? t : best[mode];
        }
    if (c->rank == 0)
        printf("compute %.3f s, exchange %.3f s, overlapped %.3f s (%g)\n", best[0], best[1],
            best[2], x);
    trl_slab_free(buf, PARTS * n * sizeof(float));
}

static void bench(struct trl_comm *c)
{
    size_t n = 135000000;
    float *buf = trl_malloc_array(n, sizeof(float));
    for (size_t i = 0; i < n; i++)
        buf[i] = 0;
    double t = bench_one(c, buf, n, 5), small = bench_one(c, buf, 1, 200);
    if (c->rank == 0)
        printf("all-reduce of %zu MB on %d ranks: %.3f s, %.2f GB/s; of one number: %.1f us\n",
            n * 4 / 1000000, c->world, t, (double)n * 4e-9 / t, small * 1e6);
    trl_free(buf);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct trl_comm *);
    } modes[] = {{"exact", test_exact}, {"order", test_order}, {"small", test_small},
        {"agree", test_agree}, {"overlap", test_overlap}, {"node-once", test_node_once},
        {"place", test_place}, {"bind", test_bind}, {"mismatch", test_mismatch},
        {"leave", test_leave}, {"bench", bench}, {"bench-overlap", bench_overlap}};
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "exec") == 0 && !getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMI_SIZE")) {
        char *args[] = {argv[0], (char *)"place", NULL};
        int code;
        if (trl_comm_run_mpirun(3, args, &code, &err) == 0)
            return code;
        fprintf(stderr, "FAILED %s\n", err.text);
        return 9;
    }
    struct trl_comm c;
    int rc = trl_comm_open(&c, &err);
    if (rc) {
        fprintf(stderr, "%s\n", err.text);
        return trl_status_exit(rc);
    }
    trl_log_init(c.rank, c.world, "host");
    if (strncmp(mode, "watch-", 6) == 0) {
        OK(trl_comm_watch_start(&c, &err));
        step_forever(&c, strcmp(mode, "watch-clean") == 0 ? 99999 : 17, mode + 6);
        trl_comm_close(&c);
        return 0;
    }
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(modes[i].name, mode) == 0 || (strcmp(mode, "all") == 0 && i < 8))
            modes[i].run(&c);
    trl_comm_close(&c);
    return 0;
}
