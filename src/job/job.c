/* SPDX-License-Identifier: Apache-2.0 */
#include "job/job.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

/* The names under which a launcher tells its processes who they are. NULL: it does not. */
struct launcher_vars {
    const char *name;
    const char *guard; /* must be set too, or this launcher did not start us */
    const char *world[2];
    const char *rank, *local_rank, *local_world, *node_rank, *n_nodes;
};

static const struct launcher_vars launchers[] = {
    {.name = "mpirun (Open MPI)",
        .guard = "OMPI_COMM_WORLD_RANK",
        .world = {"OMPI_COMM_WORLD_SIZE", NULL},
        .rank = "OMPI_COMM_WORLD_RANK",
        .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
        .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {.name = "mpiexec (PMI)",
        .guard = "MPI_LOCALNRANKS", /* Hydra; srun's PMI-2 sets PMI_RANK alone */
        .world = {"PMI_SIZE", NULL},
        .rank = "PMI_RANK",
        .local_rank = "MPI_LOCALRANKID",
        .local_world = "MPI_LOCALNRANKS"},
    {.name = "srun",
        .guard = "SLURM_STEP_ID",
        .world = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
        .rank = "SLURM_PROCID",
        .local_rank = "SLURM_LOCALID",
        .node_rank = "SLURM_NODEID",
        .n_nodes = "SLURM_STEP_NUM_NODES"},
    {.name = "mpiexec (PMI)", .guard = "PMI_SIZE", .world = {"PMI_SIZE", NULL}, .rank = "PMI_RANK"},
};

static int read_int(const char *name, long long least, int *ret, struct trl_err *err)
{
    const char *text = name ? getenv(name) : NULL;
    long long v;
    if (!text)
        return 0; /* *ret keeps "not said" */
    if (!trl_parse_i64(text, &v) || v < least || v > INT_MAX)
        return trl_fail(err, TRL_E_RANGE,
            "environment variable %s is \"%.100s\"; a number from %lld is needed", name, text,
            least);
    *ret = (int)v;
    return 0;
}

static int read_launcher(const struct launcher_vars *l, struct trl_job *j, struct trl_err *err)
{
    j->launched = true;
    j->launcher = l->name;
    j->world_var = l->world[1] && !getenv(l->world[0]) ? l->world[1] : l->world[0];
    j->rank = j->world = -1;
    int rc = read_int(j->world_var, 1, &j->world, err);
    if (!rc)
        rc = read_int(l->rank, 0, &j->rank, err);
    if (!rc)
        rc = read_int(l->local_rank, 0, &j->local_rank, err);
    if (!rc)
        rc = read_int(l->local_world, 1, &j->local_world, err);
    if (!rc)
        rc = read_int(l->node_rank, 0, &j->node_rank, err);
    if (!rc)
        rc = read_int(l->n_nodes, 1, &j->n_nodes, err);
    if (rc)
        return rc;
    if (j->world < 0 || j->rank < 0)
        return trl_fail(err, TRL_E_RANGE,
            "%s is set, so %s started this process, but %s is missing", l->guard, l->name,
            j->world < 0 ? j->world_var : l->rank);
    if (j->rank >= j->world)
        return trl_fail(err, TRL_E_RANGE,
            "%s=%d and %s=%d contradict each other: a rank is less than the number of processes",
            l->rank, j->rank, j->world_var, j->world);
    if (j->local_rank >= 0 && j->local_world >= 0 && j->local_rank >= j->local_world)
        return trl_fail(err, TRL_E_RANGE, "%s=%d and %s=%d contradict each other", l->local_rank,
            j->local_rank, l->local_world, j->local_world);
    return 0;
}

int trl_job_read(struct trl_job *ret, struct trl_err *err)
{
    struct trl_job j = {.world = 1,
        .local_rank = -1,
        .local_world = -1,
        .node_rank = -1,
        .n_nodes = -1,
        .launcher = "none",
        .world_var = ""};
    if (gethostname(j.host, sizeof(j.host)) != 0 || j.host[0] == '\0')
        memcpy(j.host, "unknown", sizeof("unknown"));
    j.host[sizeof(j.host) - 1] = '\0';
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        if (!getenv(launchers[i].guard))
            continue;
        int rc = read_launcher(&launchers[i], &j, err);
        if (rc)
            return rc;
        break;
    }
    if (!j.launched)
        j.local_rank = j.node_rank = 0, j.local_world = j.n_nodes = 1;
    *ret = j;
    return 0;
}
