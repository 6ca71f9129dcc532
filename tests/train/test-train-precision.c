/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 and fp16: what is rounded, on every instruction set, and loss scaling.   test-train-precision TRL_TRAIN */
#include "train-run.h"

#include "base/alloc.h"

static double first_loss(const char *name)
{
    double x[64];
    assert_true(train_run_series(name, "loss", x, 64) > 0);
    return x[0];
}

/* The plain loops of `ref` and the fast kernels round the same values; sums in another order flip a last bit here and there. */
static void test_bf16_rounds(void **state)
{
    (void)state;
    static const char *const models[] = {"tiny-llama", "tiny-qwen3", "tiny-gpt2", "tiny-gemma2"};
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        static const char line[] = "--model_name_or_path @models/%s --max_length 100 --max_steps 1 --bf16 %s --backend %s";
        train_run("ref", line, models[i], "true", "ref");
        train_run("cpu", line, models[i], "true", "cpu");
        train_run("f32", line, models[i], "false", "cpu");
        double ref = first_loss("ref"), cpu = first_loss("cpu"), f32 = first_loss("f32");
        fprintf(stderr, "%s: bf16 ref %.8f cpu %.8f, float32 %.8f\n", models[i], ref, cpu, f32);
        assert_true(fabs(ref - cpu) <= 5e-4 * ref);
        assert_true(fabs(ref - f32) > 1e-6 * f32 && fabs(ref - f32) < 2e-3 * f32);
        assert_true(fabs(cpu - f32) > 1e-6 * f32 && fabs(cpu - f32) < 2e-3 * f32);
        train_run("ref32", line, models[i], "false", "ref");
        assert_true(fabs(first_loss("ref32") - f32) <= 1e-6 * f32);
    }
}

/* cpu_isa is an upper limit: what the machine lacks falls back, and the numbers stay within the noise of bf16. */
static void test_isa(void **state)
{
    (void)state;
    static const char *const levels[] = {"avx2", "avx512", "amx"};
    train_run("baseline", "--cpu_isa baseline --bf16 true");
    train_run("baseline32", "--cpu_isa baseline");
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        char line[64];
        snprintf(line, sizeof(line), "--cpu_isa %s --bf16 true", levels[i]);
        train_run("isa", "%s", line);
        train_run_assert_close("baseline", "isa", 5e-3);
        train_run("isa32", "--cpu_isa %s", levels[i]);
        train_run_assert_close("baseline32", "isa32", 1e-4);
    }
}

static void test_weights_16(void **state)
{
    (void)state;
    /* the second moments of AdamW sink below float16 soon, in torch, too: two steps */
    static const struct {
        const char *type;
        int steps;
    } cases[] = {{"bfloat16", 6}, {"float16", 2}};
    for (int i = 0; i < 2; i++) {
        static const char line[] = "--learning_rate 1e-4 --max_steps %d --dtype %s --backend %s";
        train_run("f32", line, cases[i].steps, "float32", "cpu");
        train_run("w16", line, cases[i].steps, cases[i].type, "cpu");
        train_run("w16ref", line, cases[i].steps, cases[i].type, "ref");
        train_run_assert_close("f32", "w16", 5e-3);
        train_run_assert_close("w16", "w16ref", 5e-3);
    }
}

static void series(const char *name, const char *key, double *ret, int n)
{
    assert_int_equal(train_run_series(name, key, ret, n), n);
}

/* With many tokens in a step nothing overflows: the same losses as in float32, within the noise of float16. */
static void test_fp16(void **state)
{
    (void)state;
    train_run("f32", "--max_steps 8");
    train_run("fp16", "--max_steps 8 --fp16 true");
    train_run_assert_close("f32", "fp16", 2e-3);
}

/* The scale starts at 65536, too large for the gradient of a single token: such a step is left out, its norm is logged as it is, and
 * the schedule waits for the next one, as with torch's GradScaler under accelerate. */
static void test_fp16_overflow(void **state)
{
    (void)state;
    enum { STEPS = 8 };
    double norm[STEPS], lr[STEPS], ideal[STEPS];
    train_run("over", "--model_name_or_path @models/tiny-qwen3 --fp16 true --max_length 2 --per_device_train_batch_size 1 --max_steps 8");
    train_run("ideal", "--model_name_or_path @models/tiny-qwen3 --max_length 2 --per_device_train_batch_size 1 --max_steps 8");
    series("over", "grad_norm", norm, STEPS);
    series("over", "learning_rate", lr, STEPS);
    series("ideal", "learning_rate", ideal, STEPS);
    int skipped = 0;
    for (int i = 0; i < STEPS; i++) {
        assert_true(lr[i] == ideal[i - skipped]);
        skipped += !isfinite(norm[i]);
    }
    fprintf(stderr, "%d of %d steps left out\n", skipped, STEPS);
    assert_true(skipped >= 1 && skipped <= 3);
}

int main(int argc, char **argv)
{
    int rc = train_run_init(argc, argv);
    if (rc)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_rounds),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_weights_16),
        cmocka_unit_test(test_fp16),
        cmocka_unit_test(test_fp16_overflow),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
