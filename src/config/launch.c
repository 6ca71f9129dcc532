/* SPDX-License-Identifier: Apache-2.0 */
/* What the files say about processes against what the launcher really started. The launcher is the
 * truth; a difference is an error. */
#include "config/options.h"
#include "job/job.h"

int trl__config_check_launch(const struct trl_config *cfg, struct trl_err *err)
{
    struct trl_job job;
    if (cfg->print_config || cfg->plan)
        return 0;
    int rc = trl_job_read(&job, err);
    if (rc)
        return rc;
    if (!job.launched && cfg->num_machines > 1)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "num_machines: %lld (%s): a start of each machine by hand is not supported; "
            "wanted: one start of all "
            "processes, as mpirun -n N trl-train ... or srun trl-train ...",
            (long long)cfg->num_machines, trl_config_source(cfg, "num_machines"));
    if (job.launched && cfg->num_processes.set && cfg->num_processes.value != job.world)
        return trl_fail(err, TRL_E_USAGE,
            "num_processes: %lld (%s), and %s has started %d (%s); wanted: equal numbers, or no "
            "num_processes",
            (long long)cfg->num_processes.value, trl_config_source(cfg, "num_processes"),
            job.launcher, job.world, job.world_var);
    if (job.launched && cfg->num_machines > 1 && job.n_nodes > 0 &&
        cfg->num_machines != job.n_nodes)
        return trl_fail(err, TRL_E_USAGE,
            "num_machines: %lld (%s), and %s runs on %d; wanted: equal numbers, or no num_machines",
            (long long)cfg->num_machines, trl_config_source(cfg, "num_machines"), job.launcher,
            job.n_nodes);
    return 0;
}
