/* SPDX-License-Identifier: Apache-2.0 */
/* What a run uses: memory against --plan, allocations in steps, time to the first step.   test-train-memory TRL_TRAIN */
#include "train-run.h"

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/str.h"

#ifdef __SANITIZE_ADDRESS__
#define needs_true_memory() trl_test_skip("the address sanitizer takes memory of its own")
#else
#define needs_true_memory() (void)0
#endif

/* Rows of n tokens each, so that a batch is as large as the plan takes it to be. */
static void write_rows(const char *name, int rows, int n)
{
    struct trl_str s = {0};
    for (int r = 0; r < rows; r++) {
        trl_str_puts(&s, "{\"input_ids\": [");
        for (int i = 0; i < n; i++)
            trl_str_printf(&s, "%s%d", i ? ", " : "", 5 + (r * 131 + i * 17) % 600);
        trl_str_puts(&s, "]}\n");
    }
    char *path = train_run_path(name);
    struct trl_err err;
    assert_trl_ok(trl_file_write_atomic(path, trl_str_get(&s), s.len, &err), &err);
    trl_free(path);
    trl_str_release(&s);
}

/* In MB: the plan's peak, and what the same options then take. */
static void measure(const char *name, const char *options, double *ret_plan, double *ret_used)
{
    char plan[64];
    snprintf(plan, sizeof(plan), "%s-plan", name);
    train_run(plan, "%s --plan", options);
    train_run(name, "%s", options);
    *ret_plan = train_run_number(plan, "\n  peak ");
    *ret_used = train_run_number(name, "\n  memory ") * 1.048576;
}

/* What is neither in the plan nor on purpose: 12 MB (rows, logs, libraries that are loaded on demand) and 10 %. */
static void check_plan(const char *name, const char *options)
{
    double plan, used;
    measure(name, options, &plan, &used);
    fprintf(stderr, "%s: plan %.1f MB, used %.1f MB\n", name, plan, used);
    if (fabs(used - plan) > 0.1 * plan + 12)
        fail_msg("%s: plan %.1f MB, used %.1f MB", options, plan, used);
}

#define LONG_ROWS "--dataset_name @out/rows.jsonl --max_length 512 --max_steps 2 "

static void test_plan(void **state)
{
    (void)state;
    needs_true_memory();
    write_rows("rows.jsonl", 32, 512);
    check_plan("plain", LONG_ROWS "--per_device_train_batch_size 16 --gradient_checkpointing false");
    check_plan("checkpointing", LONG_ROWS "--per_device_train_batch_size 16 --gradient_checkpointing true --bf16 true");
    check_plan("bf16", LONG_ROWS "--per_device_train_batch_size 8 --gradient_checkpointing false --bf16 true "
                                 "--model_name_or_path @models/tiny-qwen3");
}

static void test_short_rows(void **state)
{
    (void)state;
    needs_true_memory();
    double plan, full, less;
    measure("full", LONG_ROWS "--per_device_train_batch_size 16", &plan, &full);
    write_rows("short.jsonl", 32, 40);
    measure("less", LONG_ROWS "--per_device_train_batch_size 16 --dataset_name @out/short.jsonl", &plan, &less);
    assert_true(less < full);
}

/* A real model, when there is one. */
static void test_plan_smollm2(void **state)
{
    (void)state;
    const char *gguf = getenv("TRL_SMOLLM2_GGUF");
    needs_true_memory();
    if (!gguf)
        trl_test_skip("TRL_SMOLLM2_GGUF is not set");
    char line[1024];
    double plan, used;
    snprintf(line, sizeof(line), "--model_name_or_path %s --dataset_name @out/rows.jsonl --max_length 256 --max_steps 2 "
        "--per_device_train_batch_size 1 --bf16 true --num_threads 2", gguf);
    measure("smollm2", line, &plan, &used);
    fprintf(stderr, "SmolLM2: plan %.1f MB, used %.1f MB\n", plan, used);
    assert_true(fabs(used - plan) < 0.1 * used);
}

static void test_allocations(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "--bf16 true --test_split_size 6 --eval_strategy steps --eval_steps 3 --save_strategy steps --save_steps 4 --num_threads 2",
        "--model_name_or_path @models/tiny-qwen3 --train_sampling_strategy group_by_length --gradient_checkpointing true --optim adafactor",
        "--packing true --max_length 64 --fp16 true --per_device_train_batch_size 1",
        "--model_name_or_path @models/tiny-gpt2 --neftune_noise_alpha 5 --max_length 100 --gradient_accumulation_steps 2",
        "--model_name_or_path @models/tiny-gemma3 --dtype bfloat16 --optim sgd --loss_type dft",
        "--padding_free true --max_length None --include_num_input_tokens_seen all --label_smoothing_factor 0.1",
        "--num_processes 2 --per_device_train_batch_size 2",
    };
    size_t n_lines = sizeof(lines) / sizeof(lines[0]) - !TRAIN_RUN_RANKS;
    for (size_t i = 0; i < n_lines; i++) {
        train_run("allocations", "--max_steps 20 --per_device_train_batch_size 8 %s", lines[i]);
        double n = train_run_number("allocations", "allocations in steps after the first: ");
        if (n != 0)
            fail_msg("%s: %g allocations in steps after the first", lines[i], n);
    }
}

/* The best of some tries: the machine may be busy. */
static void test_start(void **state)
{
    (void)state;
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        train_run("start", "--max_steps 1 --num_threads 2");
        double t = train_run_number("start", "first step done ");
        best = t < best ? t : best;
    }
    fprintf(stderr, "first step done %.2f s after exec\n", best);
    assert_true(best < 1);
}

int main(int argc, char **argv)
{
    int rc = train_run_init(argc, argv);
    if (rc)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_short_rows),
        cmocka_unit_test(test_plan_smollm2),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_start),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
