/* SPDX-License-Identifier: Apache-2.0 */
/* Launcher environments and the rank that follows from them. */
#include "../trl-test.h"
#include "job/job.h"

static const char *const known[] = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE", "PMI_RANK",
    "MPI_LOCALNRANKS", "MPI_LOCALRANKID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES", "PMIX_RANK"};

/* What the launcher left: "NAME=value NAME=value" */
static int read_job(const char *env, struct trl_job *ret, struct trl_err *err)
{
    char text[1024], *save = NULL;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        unsetenv(known[i]);
    snprintf(text, sizeof(text), "%s", env);
    for (char *p = strtok_r(text, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(p, '=');
        assert_non_null(eq);
        *eq = '\0';
        setenv(p, eq + 1, 1);
    }
    return trl_job_read(ret, err);
}

static void expect(
    const char *env, const char *launcher, int rank, int world, int local_rank, int local_world)
{
    struct trl_job j;
    struct trl_err err;
    assert_trl_ok(read_job(env, &j, &err), &err);
    assert_string_equal(j.launcher, launcher);
    assert_int_equal(j.rank, rank);
    assert_int_equal(j.world, world);
    assert_int_equal(j.local_rank, local_rank);
    assert_int_equal(j.local_world, local_world);
    assert_true(j.host[0] != '\0');
}

static void test_launchers(void **state)
{
    expect("", "none", 0, 1, 0, 1);
    expect("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 "
           "OMPI_COMM_WORLD_LOCAL_SIZE=2",
        "mpirun (Open MPI)", 3, 4, 1, 2);
    expect(
        "PMI_SIZE=3 PMI_RANK=2 MPI_LOCALNRANKS=3 MPI_LOCALRANKID=2", "mpiexec (PMI)", 2, 3, 2, 3);
    expect("PMI_SIZE=3 PMI_RANK=2", "mpiexec (PMI)", 2, 3, -1, -1);
    expect("SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=6 SLURM_NTASKS=8 SLURM_PROCID=5 SLURM_LOCALID=1 "
           "SLURM_NODEID=2 SLURM_STEP_NUM_NODES=3",
        "srun", 5, 6, 1, -1);
    expect("SLURM_STEP_ID=0 SLURM_NTASKS=8 SLURM_PROCID=5", "srun", 5, 8, -1, -1);
}

static void test_who_counts(void **state)
{
    /* a batch script is no step, whatever PROCID says */
    expect("SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_LOCALID=0", "none", 0, 1, 0, 1);
    /* mpirun inside an allocation: the Slurm variables are those of its daemon */
    expect("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=2 "
           "SLURM_PROCID=1",
        "mpirun (Open MPI)", 3, 4, -1, -1);
    expect("PMI_SIZE=4 PMI_RANK=3 MPI_LOCALNRANKS=4 MPI_LOCALRANKID=3 SLURM_STEP_ID=1 "
           "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
        "mpiexec (PMI)", 3, 4, 3, 4);
    /* srun with PMI-2 */
    expect("PMI_SIZE=4 PMI_RANK=3 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3", "srun", 3,
        4, -1, -1);
}

static void expect_refused(const char *env, const char *text)
{
    struct trl_job j;
    struct trl_err err = {0};
    int rc = read_job(env, &j, &err);
    if (rc != TRL_E_RANGE || !strstr(err.text, text))
        fail_msg("%s: %d: %s", env, rc, err.text);
}

static void test_refused(void **state)
{
    expect_refused("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_RANK=2");
    expect_refused("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is missing");
    expect_refused("OMPI_COMM_WORLD_SIZE=2x OMPI_COMM_WORLD_RANK=0", "\"2x\"");
    expect_refused("OMPI_COMM_WORLD_SIZE=0 OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE");
    expect_refused("OMPI_COMM_WORLD_SIZE=99999999999 OMPI_COMM_WORLD_RANK=0", "99999999999");
    expect_refused("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=-1", "-1");
    expect_refused("SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID is missing");
    expect_refused(
        "PMI_SIZE=4 PMI_RANK=3 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=2", "MPI_LOCALRANKID=2");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_launchers),
    cmocka_unit_test(test_who_counts),
    cmocka_unit_test(test_refused),
};
TRL_TEST_MAIN(tests)
