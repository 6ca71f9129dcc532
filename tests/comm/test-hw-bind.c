/* SPDX-License-Identifier: Apache-2.0 */
/* Division of cores between the ranks of a node, on made-up machines; CPU quotas; binding of real
 * threads. */
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../trl-test.h"
#include "base/fileio.h"
#include "base/threads.h"
#include "hw/bind.h"

static struct trl_err err;

static struct trl_cpuset cpus(int first, int last)
{
    struct trl_cpuset s = {0};
    for (int i = first; i <= last; i++)
        trl_cpuset_add(&s, i);
    return s;
}

static void need_hwloc(void)
{
#ifndef TRL_HAVE_HWLOC
    trl_test_skip("built without hwloc");
#endif
}

static const struct trl_bind_plan *plan(const char *topology, const struct trl_cpuset *allowed,
    int n_local, int local_rank, double quota, int n_threads)
{
    static struct trl_bind_plan p;
    struct trl_bind_request req = {.topology = topology,
        .allowed = allowed,
        .n_local = n_local,
        .local_rank = local_rank,
        .quota = quota,
        .n_threads = n_threads};
    assert_trl_ok(trl_bind_plan(&p, &req, &err), &err);
    return &p;
}

static void expect(const struct trl_bind_plan *p, int n_threads, bool bind, const char *set)
{
    char text[256];
    trl_cpuset_format(&p->cpus, text, sizeof(text));
    assert_string_equal(text, set);
    assert_int_equal(p->n_threads, n_threads);
    assert_int_equal(p->bind, bind);
}

static void test_format(void **state)
{
    char text[64];
    struct trl_cpuset s = cpus(0, 3);
    trl_cpuset_add(&s, 8);
    trl_cpuset_add(&s, 4095);
    trl_cpuset_add(&s, 4096); /* not there */
    trl_cpuset_format(&s, text, sizeof(text));
    assert_string_equal(text, "0-3,8,4095");
    trl_cpuset_format(&s, text, 8);
    assert_string_equal(text, "0-3...");
}

/* Two sockets of 4 cores with 2 hardware threads each: CPUs 0-7 and 8-15. */
static const char two_sockets[] = "node:2 core:4 pu:2";

static void test_one_mask(void **state)
{
    need_hwloc();
    struct trl_cpuset all = cpus(0, 15), same[8] = {all, all, all, all, all, all, all, all};
    const struct trl_bind_plan *p = plan(two_sockets, same, 1, 0, 0, 0);
    expect(p, 8, true, "0-15"); /* memory is far from some: bind even alone */
    assert_int_equal(p->cores[1].n, 2);
    assert_int_equal(p->cores[1].cpus[0], 2);
    expect(plan(two_sockets, same, 2, 0, 0, 0), 4, true, "0-7");
    expect(plan(two_sockets, same, 2, 1, 0, 0), 4, true, "8-15");
    expect(plan(two_sockets, same, 4, 3, 0, 0), 2, true, "12-15");
    expect(plan(two_sockets, same, 3, 0, 0, 0), 2, true, "0-3");
    expect(plan(two_sockets, same, 3, 1, 0, 0), 3, true, "4-9");
    expect(plan(two_sockets, same, 3, 2, 0, 0), 3, true, "10-15");
    expect(plan(two_sockets, same, 8, 7, 0, 0), 1, true, "14-15");
    p = plan(two_sockets, same, 2, 1, 0, 2); /* fewer threads than cores */
    expect(p, 2, false, "8-15");
    assert_true(p->confine);
    p = plan(two_sockets, same, 2, 0, 0, 6);
    assert_int_equal(p->n_threads, 6);
    assert_true(p->oversubscribed && !p->bind);
}

static void test_more_ranks_than_cores(void **state)
{
    need_hwloc();
    struct trl_cpuset all = cpus(0, 1), same[4] = {all, all, all, all};
    int total = 0;
    for (int r = 0; r < 4; r++) {
        const struct trl_bind_plan *p = plan("core:2 pu:1", same, 4, r, 0, 0);
        assert_int_equal(p->n_threads, 1);
        total += p->n_cores;
        assert_true(p->bind || p->n_cores == 0);
    }
    assert_int_equal(total, 2);
}

/* Each rank keeps what its launcher gave it; masks that overlap in part are not used twice. */
static void test_bound_by_launcher(void **state)
{
    need_hwloc();
    struct trl_cpuset own[2] = {cpus(4, 7), cpus(8, 9)};
    expect(plan(two_sockets, own, 2, 0, 0, 0), 2, true, "4-7");
    expect(plan(two_sockets, own, 2, 1, 0, 0), 1, true, "8-9");
    struct trl_cpuset half[2] = {cpus(1, 1), cpus(3, 3)}; /* one hardware thread of a core each */
    expect(plan(two_sockets, half, 2, 1, 0, 0), 1, true, "3");
    struct trl_cpuset part[2] = {cpus(0, 7), cpus(4, 11)};
    struct trl_bind_plan a = *plan(two_sockets, part, 2, 0, 0, 0),
                         b = *plan(two_sockets, part, 2, 1, 0, 0);
    for (int i = 0; i < 16; i++) {
        assert_false(trl_cpuset_has(&a.cpus, i) && trl_cpuset_has(&b.cpus, i));
        assert_int_equal(trl_cpuset_has(&a.cpus, i) || trl_cpuset_has(&b.cpus, i), i < 12);
    }
    struct trl_cpuset pairs[4] = {
        cpus(0, 7), cpus(0, 7), cpus(8, 15), cpus(8, 15)}; /* bound to sockets, two ranks each */
    expect(plan(two_sockets, pairs, 4, 1, 0, 0), 2, true, "4-7");
    expect(plan(two_sockets, pairs, 4, 2, 0, 0), 2, true, "8-11");
}

/* Numbers of hardware threads interleaved, as on most servers: 0-3 first threads, 4-7 their
 * siblings. */
static void test_siblings(void **state)
{
    need_hwloc();
    const char *t = "core:4 pu:2(indexes=0,4,1,5,2,6,3,7)";
    struct trl_cpuset all = cpus(0, 7), same[2] = {all, all}, first = cpus(0, 3);
    expect(plan(t, same, 2, 0, 0, 0), 2, true, "0-1,4-5");
    expect(plan(t, same, 2, 1, 0, 0), 2, true, "2-3,6-7");
    expect(
        plan(t, &first, 1, 0, 0, 0), 4, false, "0-3"); /* alone and near: the system may choose */
}

static void test_large(void **state)
{
    need_hwloc();
    struct trl_cpuset all = cpus(0, 4095), same[16];
    for (int i = 0; i < 16; i++)
        same[i] = all;
    assert_int_equal(
        plan("node:8 core:256 pu:1", same, 1, 0, 0, 0)->n_threads, TRL_BIND_MAX_THREADS);
    const struct trl_bind_plan *p = plan("node:8 core:16 pu:2", same, 16, 15, 0, 0);
    expect(p, 8, true, "240-255");
}

static void test_refused(void **state)
{
    struct trl_cpuset all = cpus(0, 7);
    static struct trl_bind_plan p;
    struct trl_bind_request req = {.topology = "no topology", .allowed = &all, .n_local = 1};
    int rc = trl_bind_plan(&p, &req, &err);
    assert_true(rc == TRL_E_PARSE || rc == TRL_E_UNSUPPORTED);
    req = (struct trl_bind_request){.allowed = &all, .n_local = 1, .n_threads = 100000};
    assert_int_equal(trl_bind_plan(&p, &req, &err), TRL_E_RANGE);
    req = (struct trl_bind_request){.allowed = &all, .n_local = 1, .local_rank = 1};
    assert_int_equal(trl_bind_plan(&p, &req, &err), TRL_E_RANGE);
}

static void test_quota_limits_threads(void **state)
{
    need_hwloc();
    struct trl_cpuset all = cpus(0, 15), same[2] = {all, all};
    const struct trl_bind_plan *p = plan(two_sockets, same, 1, 0, 2.5, 0);
    assert_int_equal(p->n_threads, 2);
    assert_false(p->bind); /* other containers may be on any core */
    assert_int_equal(plan(two_sockets, same, 2, 1, 6, 0)->n_threads, 3);
    assert_int_equal(plan(two_sockets, same, 2, 1, 0.5, 0)->n_threads, 1);
    assert_int_equal(plan(two_sockets, same, 2, 1, 100, 0)->n_threads, 4);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_trl_ok(trl_file_write_atomic(path, text, strlen(text), &err), &err);
}

static void test_quota_files(void **state)
{
    char root[] = "/tmp/trl-hw-bind-XXXXXX", dir[512], proc[512];
    assert_non_null(mkdtemp(root));
    snprintf(dir, sizeof(dir), "%s/a/b", root);
    assert_trl_ok(trl_mkdirs(dir, &err), &err);
    snprintf(proc, sizeof(proc), "%s/proc", root);
    put(root, "proc", "0::/a/b\n");
    assert_true(trl_hw_cpu_quota_in(proc, root) == 0);
    put(dir, "cpu.max", "max 100000\n");
    assert_true(trl_hw_cpu_quota_in(proc, root) == 0);
    put(dir, "cpu.max", "400000 100000\n");
    assert_true(trl_hw_cpu_quota_in(proc, root) == 4);
    snprintf(dir, sizeof(dir), "%s/a", root);
    put(dir, "cpu.max", "150000 100000\n"); /* the smaller one above */
    assert_true(trl_hw_cpu_quota_in(proc, root) == 1.5);
    put(root, "proc", "4:memory:/x\n2:cpu,cpuacct:/job\n1:cpuset:/x\n");
    snprintf(dir, sizeof(dir), "%s/cpu/job", root);
    assert_trl_ok(trl_mkdirs(dir, &err), &err);
    put(dir, "cpu.cfs_quota_us", "-1\n");
    put(dir, "cpu.cfs_period_us", "100000\n");
    assert_true(trl_hw_cpu_quota_in(proc, root) == 0);
    put(dir, "cpu.cfs_quota_us", "300000\n");
    assert_true(trl_hw_cpu_quota_in(proc, root) == 3);
    put(root, "proc", "broken\n0\n:\n0::/not/there\n");
    assert_true(trl_hw_cpu_quota_in(proc, root) == 0);
    assert_true(trl_hw_cpu_quota_in("/not/there", root) == 0);
    assert_trl_ok(trl_rmtree(root, &err), &err);
}

static struct trl_bind_plan real;
static int seen[8];
static void see(void *ctx, int thread, int n_threads)
{
    if (thread < 8) {
        cpu_set_t s;
        CPU_ZERO(&s);
        seen[thread] = sched_getaffinity(0, sizeof(s), &s) == 0 ? CPU_COUNT(&s) : -1;
    }
}

static void test_this_machine(void **state)
{
    struct trl_cpuset mine;
    assert_trl_ok(trl_hw_affinity(&mine, &err), &err);
    assert_trl_ok(trl_bind_plan_alone(&real, 0, &err), &err);
    assert_true(real.n_threads >= 1 && real.n_cores >= 1 && real.text[0]);
    struct trl_cpuset same[2] = {mine, mine};
    struct trl_bind_request req = {.allowed = same, .n_local = 2, .local_rank = 1};
    assert_trl_ok(trl_bind_plan(&real, &req, &err), &err);
    if (!real.bind)
        return; /* one core */
    struct trl_pool *pool = NULL;
    assert_trl_ok(trl_pool_new(&pool, real.n_threads, trl_bind_thread, &real, &err), &err);
    trl_bind_thread(&real, 0);
    trl_pool_run(pool, see, NULL);
    for (int i = 0; i < real.n_threads && i < 8; i++)
        assert_int_equal(seen[i], real.cores[i].n);
    trl_pool_free(pool);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_format),
    cmocka_unit_test(test_one_mask),
    cmocka_unit_test(test_more_ranks_than_cores),
    cmocka_unit_test(test_bound_by_launcher),
    cmocka_unit_test(test_siblings),
    cmocka_unit_test(test_large),
    cmocka_unit_test(test_refused),
    cmocka_unit_test(test_quota_limits_threads),
    cmocka_unit_test(test_quota_files),
    cmocka_unit_test(test_this_machine),
};
TRL_TEST_MAIN(tests)
