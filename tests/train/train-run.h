/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TEST_TRAIN_RUN_H
#define TRL_TEST_TRAIN_RUN_H
/* Runs of trl-train for tests: a scratch folder, a start with a line of options, and what a run leaves. Failures end the test. */
#include "../trl-test.h"

#include <jansson.h>

/* Tests of several ranks need a build with MPI. */
#define train_run_needs_ranks()                                                                                                     \
    do {                                                                                                                            \
        if (!TRAIN_RUN_RANKS)                                                                                                       \
            trl_test_skip("built without MPI");                                                                                     \
    } while (0)

/* The program under test and a scratch folder that goes at exit. Returns 99 on bad arguments. */
int train_run_init(int argc, char **argv);
/* Path in the scratch folder; free it with trl_free. */
char *train_run_path(const char *name);
/*
 * trl-train sft into the scratch folder's `name` with a formatted line of options, split at spaces; later options win over
 *   tiny-smollm, lm_short.jsonl, f32, learning_rate 1e-3, 1 thread, a line a step, no checkpoints.
 * "@models/x" and "@data/x" stand for golden test data, "@out/x" for another run's folder. What it prints goes to name.log.
 */
int train_run_status(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void train_run(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* exit code 0 asked for */
/* Text of the scratch folder's file name + suffix. */
char *train_run_text(const char *name, const char *suffix, size_t *ret_len);
/* The number after `key` in what the run printed. */
double train_run_number(const char *name, const char *key);

/* log_history of a run; json_decref it. */
json_t *train_run_history(const char *name);
/* The value of key in each training record (those that have "loss"), at most max; returns how many. */
int train_run_series(const char *name, const char *key, double *ret, int max);
/* The same weights, bit by bit, and the same log but for what clocks say. */
void train_run_assert_same(const char *a, const char *b);
/* Losses and gradient norms agree within a relative tolerance. */
void train_run_assert_close(const char *a, const char *b, double tolerance);

#endif
