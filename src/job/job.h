/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_JOB_JOB_H
#define TRL_JOB_JOB_H
/*
 * Which rank of which job is this process, by the environment its launcher left: mpirun of Open
 * MPI, a Slurm step (srun), or a PMI launcher (MPICH's and Intel's mpiexec). Nothing is started or
 * asked; it works before and without MPI. Only a launcher's own per-process variables count. A
 * Slurm batch script also has SLURM_PROCID=0, so without SLURM_STEP_ID there is no step; inside
 * mpirun the Slurm variables describe mpirun's daemon, so Open MPI's come first.
 */
#include <stdbool.h>

#include "base/err.h"

struct trl_job {
    int rank, world; /* 0, 1 when alone */
    int local_rank, local_world; /* on this node; -1: the launcher does not say */
    int node_rank, n_nodes; /* -1: the launcher does not say */
    bool launched; /* some launcher set a rank */
    const char *launcher; /* "mpirun (Open MPI)", "srun", "mpiexec (PMI)", "none" */
    const char *world_var; /* the variable that gave `world`, for messages */
    char host[64];
};

/* A value that is no number, or a rank outside its world, is an error that names the variable. */
int trl_job_read(struct trl_job *ret, struct trl_err *err);

#endif
