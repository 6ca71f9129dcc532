/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that must give the same numbers: repeated, with other threads, in other layouts, resumed.   test-train-same TRL_TRAIN */
#include "train-run.h"

#include "base/alloc.h"

#define EVAL "--test_split_size 6 --eval_strategy steps --eval_steps 2 --per_device_eval_batch_size 2 "

static void test_repeated(void **state)
{
    (void)state;
    static const char line[] = EVAL "--model_name_or_path @models/tiny-qwen3 --per_device_train_batch_size 3";
    train_run("a", "%s", line);
    train_run("b", "%s", line);
    train_run("c", EVAL "--model_name_or_path @models/tiny-qwen3 --per_device_train_batch_size 3 --num_threads 3");
    train_run_assert_same("a", "b");
    train_run_assert_same("a", "c");
    train_run("d", EVAL "--bf16 true --model_name_or_path @models/tiny-gpt2 --max_length 128 --packing true");
    train_run("e", EVAL "--bf16 true --model_name_or_path @models/tiny-gpt2 --max_length 128 --packing true --num_threads 2");
    train_run_assert_same("d", "e");
}

static void test_ranks(void **state)
{
    (void)state;
    train_run_needs_ranks();
    train_run("a", EVAL "--num_processes 2 --per_device_train_batch_size 2 --gradient_accumulation_steps 2");
    train_run("b", EVAL "--num_processes 2 --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --num_threads 2");
    train_run_assert_same("a", "b");
}

/* 8 rows a step in three ways */
static void test_triple(void **state)
{
    (void)state;
    train_run("w1b8", "--per_device_train_batch_size 8");
    train_run("w1b2a4", "--per_device_train_batch_size 2 --gradient_accumulation_steps 4");
    train_run_assert_close("w1b8", "w1b2a4", 1e-5);
    train_run_needs_ranks();
    train_run("w4b2", "--per_device_train_batch_size 2 --num_processes 4");
    train_run_assert_close("w1b8", "w4b2", 1e-5);
}

struct resume_case {
    const char *name, *options;
    int at; /* the step whose checkpoint is taken */
};

/* 8 steps, then again from the checkpoint of a middle one */
static void resume(const struct resume_case *c)
{
    char whole[64], again[64];
    snprintf(whole, sizeof(whole), "%s-whole", c->name);
    snprintf(again, sizeof(again), "%s-again", c->name);
    train_run(whole, "--max_steps 8 --save_strategy steps --save_steps 1 %s", c->options);
    train_run(again, "--max_steps 8 %s --resume_from_checkpoint @out/%s/checkpoint-%d", c->options, whole, c->at);
    size_t na, nb;
    char *a = train_run_text(whole, "/model.safetensors", &na), *b = train_run_text(again, "/model.safetensors", &nb);
    assert_int_equal(na, nb);
    if (memcmp(a, b, na) != 0)
        fail_msg("%s: weights after a resume differ", c->name);
    trl_free(a);
    trl_free(b);
    static const char *const keys[] = {"loss", "grad_norm", "learning_rate"};
    for (int k = 0; k < 3; k++) {
        double x[16], y[16];
        assert_int_equal(train_run_series(whole, keys[k], x, 16), 8);
        assert_int_equal(train_run_series(again, keys[k], y, 16), 8);
        for (int i = 0; i < 8; i++)
            if (x[i] != y[i] && !(isnan(x[i]) && isnan(y[i])))
                fail_msg("%s: %s of step %d is %.17g, resumed %.17g", c->name, keys[k], i + 1, x[i], y[i]);
    }
}

static void test_resume(void **state)
{
    (void)state;
    static const struct resume_case cases[] = {
        {"bf16", "--bf16 true", 3},
        {"fp16", "--fp16 true --learning_rate 1e-2", 4},
        {"weights16", "--dtype bfloat16 --weight_decay 0.1", 5},
        {"epoch2", "--per_device_train_batch_size 9 --gradient_accumulation_steps 2 --model_name_or_path @models/tiny-gpt2 --max_length 64",
            5},
        {"packing", "--packing true --max_length 64 --per_device_train_batch_size 2 --neftune_noise_alpha 5", 3},
        {"group", "--train_sampling_strategy group_by_length --per_device_train_batch_size 11 " EVAL, 5},
        {"plateau", EVAL "--lr_scheduler_type reduce_lr_on_plateau --lr_scheduler_kwargs {\"patience\":0,\"threshold\":0.5}", 5},
        {"adafactor", "--optim adafactor --lr_scheduler_type cosine --warmup_steps 3", 4},
        {"ranks", "--num_processes 2 --per_device_train_batch_size 2 " EVAL, 3},
    };
    size_t n = sizeof(cases) / sizeof(cases[0]) - !TRAIN_RUN_RANKS;
    for (size_t i = 0; i < n; i++)
        resume(&cases[i]);
}

/* The rows go on where they stopped when the rows of a step stay the same. */
static void test_resume_other_ranks(void **state)
{
    (void)state;
    train_run_needs_ranks();
    train_run("two", "--num_processes 2 --per_device_train_batch_size 2 --save_strategy steps --save_steps 3");
    train_run("two-one", "--per_device_train_batch_size 4 --resume_from_checkpoint @out/two/checkpoint-3");
    train_run_assert_close("two", "two-one", 1e-5);
    train_run("one", "--per_device_train_batch_size 4 --save_strategy steps --save_steps 3");
    train_run("one-four", "--num_processes 4 --per_device_train_batch_size 1 --resume_from_checkpoint @out/one/checkpoint-3");
    train_run_assert_close("one", "one-four", 1e-5);
}

int main(int argc, char **argv)
{
    int rc = train_run_init(argc, argv);
    if (rc)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_triple),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_other_ranks),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
