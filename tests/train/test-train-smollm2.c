/* SPDX-License-Identifier: Apache-2.0 */
/* Six steps on the real SmolLM2-135M-Instruct, read from its GGUF file, against what the real TRL logged on the same rows. */
#include "train-run.h"

enum { STEPS = 6 };

/* key of each step in smollm2/sft_steps.jsonl */
static void recorded(const char *key, double *ret)
{
    FILE *f = fopen(trl_test_data("golden/smollm2/sft_steps.jsonl"), "r");
    assert_non_null(f);
    char line[4096];
    for (int i = 0; i < STEPS; i++) {
        assert_non_null(fgets(line, sizeof(line), f));
        json_t *step = json_loads(line, 0, NULL);
        assert_true(json_is_number(json_object_get(step, key)));
        ret[i] = json_number_value(json_object_get(step, key));
        json_decref(step);
    }
    fclose(f);
}

static void compare(const char *key, double tolerance)
{
    double want[STEPS], got[STEPS];
    recorded(key, want);
    assert_int_equal(train_run_series("smollm2", key, got, STEPS), STEPS);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * fabs(want[i])))
            fail_msg("step %d: %s %.9g instead of %.9g", i + 1, key, got[i], want[i]);
}

static void test_recorded_steps(void **state)
{
    (void)state;
    const char *gguf = getenv("TRL_SMOLLM2_GGUF");
    if (!gguf)
        trl_test_skip("TRL_SMOLLM2_GGUF is not set");
    train_run("smollm2", "--model_name_or_path %s --dataset_name %s --max_length 128 --per_device_train_batch_size 2 --max_steps 6 "
        "--learning_rate 2e-5 --num_threads 2", gguf, trl_test_data("golden/smollm2/sft_rows.jsonl"));
    compare("loss", 1e-4);
    compare("grad_norm", 1e-3);
    compare("learning_rate", 1e-6);
    compare("num_tokens", 0);
}

int main(int argc, char **argv)
{
    if (train_run_init(argc, argv))
        return 99;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded_steps)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
