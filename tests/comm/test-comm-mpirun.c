/* SPDX-License-Identifier: Apache-2.0 */
/* Runs comm-worker under mpirun, with 1 to 4 ranks: collectives, agreement, and how a job ends. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../trl-test.h"
#include "base/clock.h"

static char output[1 << 16];
static double seconds;

/* The exit code of `env... mpirun -n ranks comm-worker mode`; its output (both streams) is in
 * `output`. */
static int run(int ranks, const char *env, const char *mode)
{
    char cmd[2048];
    const char *worker =
        getenv(strcmp(mode, "exchange") == 0 ? "TRL_EXCHANGE_WORKER" : "TRL_COMM_WORKER");
    if (!worker)
        fail_msg("TRL_COMM_WORKER and TRL_EXCHANGE_WORKER must name the programs");
    if (ranks == 0)
        snprintf(cmd, sizeof(cmd), "%s timeout 40 '%s' %s 2>&1", env, worker, mode);
    else /* MPI libraries leak: a sanitizer is to look at the rest */
        snprintf(cmd, sizeof(cmd),
            "ASAN_OPTIONS=detect_leaks=0 %s timeout 40 mpirun %s --oversubscribe --bind-to none -n "
            "%d '%s' %s 2>&1",
            env, geteuid() == 0 ? "--allow-run-as-root" : "", ranks, worker, mode);
    double start = trl_clock_now();
    FILE *f = popen(cmd, "r");
    assert_non_null(f);
    size_t n = fread(output, 1, sizeof(output) - 1, f);
    output[n] = '\0';
    int status = pclose(f);
    seconds = trl_clock_now() - start;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void need_mpirun(void)
{
#ifndef TRL_HAVE_MPI
    trl_test_skip("built without MPI");
#endif
    if (system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") != 0)
        trl_test_skip("no mpirun of Open MPI in PATH");
}

static void expect_ok(int ranks, const char *env, const char *mode)
{
    int rc = run(ranks, env, mode);
    if (rc != 0)
        fail_msg("%s mpirun -n %d comm-worker %s: exit code %d\n%s", env, ranks, mode, rc, output);
}

static void test_alone(void **state)
{
    expect_ok(0, "", "all");
}

static void test_one_node(void **state)
{
    need_mpirun();
    for (int n = 1; n <= 4; n++)
        expect_ok(n, "", "all");
}

static void test_several_nodes(void **state)
{
    need_mpirun();
    expect_ok(4, "TRL_COMM_RANKS_PER_NODE=2", "all");
    expect_ok(3, "TRL_COMM_RANKS_PER_NODE=1", "all");
    expect_ok(4, "TRL_COMM_RANKS_PER_NODE=3", "all"); /* uneven */
}

static void test_exchange(void **state)
{
    expect_ok(0, "", "exchange");
    need_mpirun();
    for (int n = 2; n <= 4; n++)
        expect_ok(n, "", "exchange");
}

static void test_wrong_use(void **state)
{
    need_mpirun();
    expect_ok(3, "", "mismatch");
    expect_ok(3, "", "leave");
}

static void test_starts_mpirun(void **state)
{
    need_mpirun();
    expect_ok(0, "ASAN_OPTIONS=detect_leaks=0", "exec");
    int rc = run(0, "TRL_STARTED_BY_MPIRUN=1", "exec");
    assert_int_not_equal(rc, 0);
    assert_non_null(strstr(output, "left no rank"));
    rc = run(0, "env PATH=/nowhere", "exec");
    assert_int_not_equal(rc, 0);
}

static int count(const char *needle)
{
    int n = 0;
    for (const char *p = output; (p = strstr(p, needle)) != NULL; p += strlen(needle))
        n++;
    return n;
}

static void expect_end(
    int ranks, const char *env, const char *mode, int exit_code, const char *text)
{
    int rc = run(ranks, env, mode);
    if (rc == 0 || (exit_code && rc != exit_code) || seconds > 10 || count("error: ") != 1 ||
        count(text) != 1 || count("FAILED"))
        fail_msg("%s mpirun -n %d comm-worker %s: exit code %d after %.1f s; expected one message "
                 "with \"%s\"\n%s",
            env, ranks, mode, rc, seconds, text, output);
}

static void test_killed_rank(void **state)
{
    need_mpirun();
    expect_end(2, "", "watch-kill", 0, "rank 1 of 2 on ");
    expect_end(4, "", "watch-kill", 0, " died at step 17 without a message");
    expect_end(2, "", "watch-kill-compute", 0, " died at step 17 without a message");
    expect_end(4, "TRL_COMM_RANKS_PER_NODE=2", "watch-kill-compute", 0, "rank 3 of 4 on ");
}

static void test_failing_rank(void **state)
{
    need_mpirun();
    expect_end(2, "", "watch-die", 2, " failed at step 17: the loss is not a number");
    expect_end(4, "", "watch-die", 2, " failed at step 17: the loss is not a number");
    expect_end(4, "", "watch-all-die", 0, " failed at step 17: ");
    expect_end(4, "TRL_COMM_RANKS_PER_NODE=2", "watch-die", 0, "rank 3 on ");
    expect_ok(2, "", "watch-clean");
    assert_string_equal(output, "");
}

/* Somebody ends the whole job: no rank is to blame. */
static void test_terminated(void **state)
{
    need_mpirun();
    int rc = run(3, "timeout -s TERM 2", "watch-sleep");
    assert_int_not_equal(rc, 0);
    if (count("error: ") || seconds > 8)
        fail_msg("after %.1f s\n%s", seconds, output);
}

/* The environment speaks of several ranks, MPI of one: N processes would each train alone. */
static void test_world_of_one(void **state)
{
    need_mpirun();
    int rc = run(0,
        "env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1 SLURM_LOCALID=1 "
        "OMPI_MCA_ess=singleton",
        "all");
    assert_int_not_equal(rc, 0);
    assert_non_null(strstr(output, "--mpi="));
    rc = run(0, "env OMPI_COMM_WORLD_RANK=x", "all");
    assert_int_equal(rc, 2);
    assert_non_null(strstr(output, "OMPI_COMM_WORLD_RANK"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_alone),
    cmocka_unit_test(test_one_node),
    cmocka_unit_test(test_several_nodes),
    cmocka_unit_test(test_exchange),
    cmocka_unit_test(test_wrong_use),
    cmocka_unit_test(test_starts_mpirun),
    cmocka_unit_test(test_killed_rank),
    cmocka_unit_test(test_failing_rank),
    cmocka_unit_test(test_terminated),
    cmocka_unit_test(test_world_of_one),
};
TRL_TEST_MAIN(tests)
