/* SPDX-License-Identifier: Apache-2.0 */
/* trl-train TRAINER [options]: the run, from top to bottom. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/comm.h"
#include "config/config.h"
#include "job/job.h"
#include "train/run.h"
#include "train/trainer.h"

static int usage(FILE *out, int code)
{
    fputs("usage: trl-train TRAINER [options]\n"
          "       trl-train TRAINER --help [NAME]\n"
          "       trl-train --version\n"
          "trainers: sft (supervised fine-tuning)\n", out);
    return code;
}

/* Print text on stdout. */
static int show(struct trl_str *text, struct trl_err *err)
{
    int rc = trl_str_check(text, err);
    if (rc == 0)
        fputs(trl_str_get(text), stdout);
    trl_str_release(text);
    return rc;
}

/* What ends before any rank is started. True: done, *ret_rc is the outcome. */
static bool early_mode(struct trl_run *run, struct trl_config *cfg, int *ret_rc, struct trl_err *err)
{
    struct trl_str text = {0};
    if (cfg->help) {
        *ret_rc = trl_config_help(run->trainer->name, cfg->help_name, &text, err);
        if (*ret_rc == 0)
            *ret_rc = show(&text, err);
    } else if (cfg->print_config) {
        trl_config_print(cfg, &text);
        *ret_rc = show(&text, err);
    } else if (cfg->plan) {
        trl_comm_open_self(&run->comm);
        *ret_rc = trl_run_locate(run, err);
        if (*ret_rc == 0)
            *ret_rc = trl_run_open_backend(run, err);
        if (*ret_rc == 0)
            *ret_rc = trl_run_open_text(run, err); /* so that its memory counts */
        if (*ret_rc == 0)
            *ret_rc = trl_run_plan(run, err);
    } else {
        return false;
    }
    trl_str_release(&text);
    return true;
}

/* num_processes without a launcher: this process only starts the ranks and waits. *ret_code: theirs; untouched otherwise. */
static int launch(const struct trl_config *cfg, char **argv, int *ret_code, struct trl_err *err)
{
    struct trl_job job;
    int rc = trl_job_read(&job, err);
    if (rc == 0 && cfg->num_processes.set && cfg->num_processes.value > 1 && !job.launched)
        rc = trl_comm_run_mpirun((int)cfg->num_processes.value, argv, ret_code, err);
    return rc;
}

static int open_ranks(struct trl_run *run, struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    struct trl_job job;
    int rc = trl_job_read(&job, err);
    if (rc == 0)
        rc = trl_comm_open(&run->comm, err);
    if (rc)
        return rc;
    run->comm_open = true;
    trl_log_init(run->comm.rank, run->comm.world, job.host);
    trl_config_log_notices(cfg);
    trl_phases_mark(&run->phases, "ranks");
    return trl_comm_agree(&run->comm, trl_comm_watch_start(&run->comm, err), err);
}

/* A part that may fail on one rank alone: all learn of it. */
static int together(struct trl_run *run, int (*part)(struct trl_run *, struct trl_err *), int rc, struct trl_err *err)
{
    return rc ? rc : trl_comm_agree(&run->comm, part(run, err), err);
}

static int train(struct trl_run *run, struct trl_config *cfg, int argc, char **argv, int *ret_code,
    struct trl_err *err)
{
    run->trainer = trl_trainer_find(argv[1], err);
    if (!run->trainer)
        return err->code;
    int rc = trl_config_parse(cfg, argv[1], argc - 2, argv + 2, err);
    if (rc)
        return rc;
    run->cfg = cfg;
    trl_phases_mark(&run->phases, "config");
    if (early_mode(run, cfg, &rc, err))
        return rc;
    rc = trl_config_require(cfg, err);
    rc = rc ? rc : launch(cfg, argv, ret_code, err);
    if (rc || *ret_code >= 0)
        return rc;
    rc = open_ranks(run, err);
    rc = together(run, trl_run_locate, rc, err);
    rc = together(run, trl_run_open_backend, rc, err);
    rc = together(run, trl_run_open_text, rc, err);
    rc = together(run, trl_run_open_model, rc, err);
    rc = together(run, trl_run_open_data, rc, err);
    if (rc == 0 && cfg->show_batches.set)
        return trl_run_show_batches(run, err);
    return rc ? rc : trl_run_train(run, err);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return argc < 2 ? usage(stderr, 2) : usage(stdout, 0);
    if (!strcmp(argv[1], "--version")) {
        puts("trl-train " TRL_VERSION);
        return 0;
    }
    static struct trl_run run;
    static struct trl_config cfg;
    static struct trl_err err;
    trl_phases_init(&run.phases);
    int code = -1, rc = train(&run, &cfg, argc, argv, &code, &err);
    if (rc && run.comm.rank == 0)
        fprintf(stderr, "trl-train: %s\n", err.text);
    trl_run_close(&run);
    trl_config_release(&cfg);
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == 0) {
        perror("trl-train: stdout");
        return 1;
    }
    return rc == 0 && code >= 0 ? code : trl_status_exit(rc);
}
