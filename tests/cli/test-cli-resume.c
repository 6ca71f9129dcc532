/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints and resume as a user meets them. kill -9 at random moments: tests/train/test-train-crash.c. */
#include "cli-run.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fileio.h"
#include "base/str.h"

/* A run into cli_path(out) that saves; the folder stays. */
static void begin(struct cli_line *l, const char *out)
{
    cli_begin(l, cli_model("tiny-smollm"), cli_rows("lm_short.jsonl"));
    cli_add(l, "--output_dir", cli_path("%s", out), "--save_strategy", "steps", "--save_steps", "2", "--learning_rate", "1e-3", "--max_steps",
        "8", NULL);
}

static void remove_out(const char *out)
{
    trl_rmtree(cli_path("%s", out), NULL);
}

/* Numbers of the checkpoints, ascending, as "2 4 6". */
static void expect_checkpoints(const char *out, const char *want)
{
    char have[256] = "";
    for (int step = 1; step <= 400; step++)
        if (cli_exists(cli_path("%s/checkpoint-%d", out, step)))
            snprintf(have + strlen(have), sizeof(have) - strlen(have), "%s%d", *have ? " " : "", step);
    assert_string_equal(have, want);
    assert_int_equal(cli_leftovers(cli_path("%s", out)), 0);
}

static void cut(const char *path, off_t size)
{
    assert_int_equal(truncate(path, size), 0);
}

/* Nothing to resume from: it says so and starts; what is broken is skipped with a warning. */
static void test_true(void **state)
{
    (void)state;
    struct cli_line l;
    remove_out("a");
    begin(&l, "a");
    cli_add(&l, "--resume_from_checkpoint", "true", NULL);
    cli_expect(&l, 0, "no complete checkpoint in ", "starting from the beginning", NULL);
    expect_checkpoints("a", "2 4 6 8");
    struct trl_err err;
    assert_trl_ok(trl_mkdirs(cli_path("whole"), &err), &err);
    assert_trl_ok(trl_file_copy(cli_path("a/model.safetensors"), cli_path("whole/model.safetensors"), &err), &err);
    cut(cli_path("a/checkpoint-8/model.safetensors"), 100);
    unlink(cli_path("a/checkpoint-6/trl_manifest.json"));
    unlink(cli_path("a/model.safetensors"));
    begin(&l, "a");
    cli_add(&l, "--resume_from_checkpoint", "true", NULL);
    cli_expect(&l, 0, "warning: ", "checkpoint-8 is skipped: ", "has 100 bytes", "checkpoint-6 is skipped: ", "resuming from ",
        "checkpoint-4 (step 4 of 8)", NULL);
    cli_same_file(cli_path("a/model.safetensors"), cli_path("whole/model.safetensors"));
    expect_checkpoints("a", "2 4 6 8");
}

/* One byte of the optimiser's state differs: the size is right, the hash is not. */
static void test_bit(void **state)
{
    (void)state;
    struct cli_line l;
    remove_out("a");
    begin(&l, "a");
    cli_expect(&l, 0, NULL);
    size_t len;
    const char *path = cli_path("a/checkpoint-8/optimizer.safetensors");
    char *data = cli_read(path, &len);
    data[len / 2] ^= 1;
    cli_write(path, data, len);
    trl_free(data);
    begin(&l, "a");
    cli_add(&l, "--resume_from_checkpoint", cli_path("a/checkpoint-8"), "--output_dir", cli_path("out"), NULL);
    cli_expect(&l, 2, "resume_from_checkpoint", path, NULL);
    assert_false(cli_exists(cli_path("out/model.safetensors")));
    begin(&l, "a");
    cli_add(&l, "--resume_from_checkpoint", "true", NULL);
    cli_expect(&l, 0, "checkpoint-8 is skipped", "checkpoint-6 (step 6 of 8)", NULL);
}

static void test_path(void **state)
{
    (void)state;
    struct cli_line l;
    remove_out("a");
    begin(&l, "a");
    cli_add(&l, "--max_steps", "4", NULL);
    cli_expect(&l, 0, NULL);
    begin(&l, "b");
    cli_add(&l, "--resume_from_checkpoint", cli_path("a/checkpoint-99"), NULL);
    cli_expect(&l, 2, "resume_from_checkpoint", "checkpoint-99 does not exist", NULL);
    begin(&l, "b");
    cli_add(&l, "--resume_from_checkpoint", cli_path("a"), NULL);
    cli_expect(&l, 2, "resume_from_checkpoint", "trl_manifest.json", NULL);
    /* a checkpoint of another model */
    begin(&l, "b");
    cli_add(&l, "--model_name_or_path", cli_model("tiny-llama"), "--resume_from_checkpoint", cli_path("a/checkpoint-4"), NULL);
    cli_expect(&l, 2, "checkpoint-4", NULL);
    begin(&l, "b");
    cli_add(&l, "--resume_from_checkpoint", "false", NULL);
    cli_expect(&l, 0, NULL);
    expect_checkpoints("b", "2 4 6 8");
}

static void test_limit(void **state)
{
    (void)state;
    struct cli_line l;
    remove_out("a");
    begin(&l, "a");
    cli_add(&l, "--save_total_limit", "2", NULL);
    cli_expect(&l, 0, NULL);
    expect_checkpoints("a", "6 8");
    /* without resume an old run's checkpoints stay until the limit takes them */
    begin(&l, "a");
    cli_add(&l, "--max_steps", "2", NULL);
    cli_expect(&l, 0, NULL);
    expect_checkpoints("a", "2 6 8");
}

static void test_only_model(void **state)
{
    (void)state;
    struct cli_line l;
    remove_out("a");
    begin(&l, "a");
    cli_add(&l, "--save_only_model", "true", "--max_steps", "2", NULL);
    cli_expect(&l, 0, NULL);
    assert_true(cli_exists(cli_path("a/checkpoint-2/model.safetensors")));
    assert_true(cli_exists(cli_path("a/checkpoint-2/trainer_state.json")));
    assert_false(cli_exists(cli_path("a/checkpoint-2/optimizer.safetensors")));
    begin(&l, "a");
    cli_add(&l, "--resume_from_checkpoint", "true", "--max_steps", "4", NULL);
    cli_expect(&l, 0, "warning: ", "no optimiser state (save_only_model)", "resuming from ", NULL);
}

/* SIGTERM: the step is ended, a checkpoint written, 3 returned, no final weights; then the rest, as if nothing had been. */
static void test_signal(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGUSR1};
    struct cli_line l, calm;
    struct cli_result r;
    remove_out("calm");
    begin(&calm, "calm");
    cli_add(&calm, "--max_steps", "300", "--save_steps", "1000", NULL);
    cli_expect(&calm, 0, NULL);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        remove_out("a");
        begin(&l, "a");
        cli_add(&l, "--max_steps", "300", "--save_steps", "1000", "--resume_from_checkpoint", "true", NULL);
        pid_t pid = cli_start(&l);
        for (int ms = 0; ms < 20000 && trl_file_size(cli_path("a/metrics.jsonl")) < 2000; ms += 5)
            usleep(5000);
        kill(pid, signals[i]);
        cli_finish(pid, &r);
        if (r.code != 3)
            fail_msg("exit code %d instead of 3: %s", r.code, r.err);
        cli_has(&r, r.err, "stopped at step ", " of 300", "checkpoint-", "is complete", "resume_from_checkpoint true", NULL);
        cli_release(&r);
        assert_false(cli_exists(cli_path("a/model.safetensors")));
        assert_false(cli_exists(cli_path("a/config.json")));
        assert_int_equal(cli_leftovers(cli_path("a")), 0);
        cli_expect(&l, 0, "resuming from ", NULL);
        cli_same_file(cli_path("a/model.safetensors"), cli_path("calm/model.safetensors"));
    }
}

/* Loss gets worse with a mad learning rate: the model at the end is the first evaluation's, not the last. */
static void test_best(void **state)
{
    (void)state;
    struct cli_line l;
    const char *rows = cli_path("split");
    struct trl_err err;
    assert_trl_ok(trl_mkdirs(rows, &err), &err);
    assert_trl_ok(trl_file_copy(cli_rows("lm_short.jsonl"), cli_path("split/train.jsonl"), &err), &err);
    assert_trl_ok(trl_file_copy(cli_rows("lm_eval.jsonl"), cli_path("split/test.jsonl"), &err), &err);
    remove_out("a");
    begin(&l, "a");
    cli_add(&l, "--dataset_name", rows, "--eval_strategy", "steps", "--eval_steps", "2", "--load_best_model_at_end", "true",
        "--learning_rate", "3", "--lr_scheduler_type", "constant", "--save_total_limit", "1", "--max_steps", "6", NULL);
    cli_expect(&l, 0, "loading the best model from ", NULL);
    json_t *s = cli_read_json(cli_path("a/trainer_state.json"));
    int step = (int)json_integer_value(json_object_get(s, "best_global_step"));
    assert_true(step == 2 || step == 4);
    double best = json_number_value(json_object_get(s, "best_metric"));
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(s, "log_history"), i, v)
    {
        const json_t *loss = json_object_get(v, "eval_loss");
        assert_true(!loss || json_number_value(loss) >= best);
    }
    json_decref(s);
    char want[32];
    snprintf(want, sizeof(want), "%d", step);
    expect_checkpoints("a", want);
    cli_same_file(cli_path("a/model.safetensors"), cli_path("a/checkpoint-%d/model.safetensors", step));
    begin(&l, "out");
    cli_add(&l, "--load_best_model_at_end", "true", NULL);
    cli_expect(&l, 2, "load_best_model_at_end", "eval_strategy is no", NULL);
}

/* Weights that are not finite are never written over good ones. */
static void test_not_finite(void **state)
{
    (void)state;
    struct cli_line l;
    remove_out("out");
    begin(&l, "out");
    cli_add(&l, "--learning_rate", "1e30", "--lr_scheduler_type", "constant", "--save_steps", "1", "--max_grad_norm", "0", NULL);
    cli_expect(&l, 1, "at step ", "gradient norm", "learning_rate", NULL);
    assert_false(cli_exists(cli_path("out/model.safetensors")));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_true),
    cmocka_unit_test(test_bit),
    cmocka_unit_test(test_path),
    cmocka_unit_test(test_limit),
    cmocka_unit_test(test_only_model),
    cmocka_unit_test(test_signal),
    cmocka_unit_test(test_best),
    cmocka_unit_test(test_not_finite),
};
CLI_TEST_MAIN(tests)
