/* SPDX-License-Identifier: Apache-2.0 */
/* The command line and run files: what is refused names the option, the value, its source and what is allowed. */
#include "cli-run.h"

#include "base/alloc.h"

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        const char *words[3];
    } cases[] = {
        {"--per_device_train_batch_size", "0", {"per_device_train_batch_size: 0 is out of range", "from 1 to", "on the command line"}},
        {"--per_device_eval_batch_size", "-2", {"per_device_eval_batch_size: -2 is out of range", "from 1 to", ""}},
        {"--gradient_accumulation_steps", "0", {"gradient_accumulation_steps: 0 is out of range", "from 1 to", ""}},
        {"--max_steps", "-5", {"max_steps: -5 is out of range", "at least -1", ""}},
        {"--max_length", "0", {"max_length: 0 is out of range", "whole number or none", ""}},
        {"--learning_rate", "abc", {"learning_rate: \"abc\" is not possible", "number, at least 0", ""}},
        {"--seed", "1.5", {"seed: \"1.5\" is not possible", "whole number from 0", ""}},
        {"--packing", "maybe", {"packing: \"maybe\" is not possible", "true or false", ""}},
        {"--lr_scheduler_type", "linera", {"lr_scheduler_type: \"linera\"", "one of", "linear"}},
        {"--optim", "adamw_8bit", {"optim: \"adamw_8bit\" is not supported", "bitsandbytes", "adamw_torch"}},
        {"--report_to", "wandb", {"report_to: \"wandb\" is not supported", "metrics.jsonl", "tensorboard"}},
        {"--lr_scheduler_kwargs", "{\"a\":", {"lr_scheduler_kwargs: character 5 is not JSON", "{\"a\":", ""}},
        {"--lr_scheduler_kwargs", "5", {"lr_scheduler_kwargs: \"5\" is not possible", "JSON object", ""}},
        {"--lr_scheduler_kwargs", "{\"zzz\": 1}", {"lr_scheduler_kwargs", "unknown entry \"zzz\"", "allowed: none"}},
        {"--show_batches", "0", {"show_batches: 0 is out of range", "at least 1", ""}},
        {"--lerning_rate", "1", {"unknown option --lerning_rate", "did you mean --learning_rate?", ""}},
        {"--packin", "true", {"unknown option --packin", "did you mean --packing?", ""}},
        {"--use_vllm", "true", {"unknown option --use_vllm", "--help", ""}},
        {"--deepspeed", "ds.json", {"deepspeed is not supported: ", "ZeRO", ""}},
        {"--fsdp", "full_shard", {"fsdp is not supported: ", "", ""}},
        {"--push_to_hub", "true", {"push_to_hub is not supported: ", "hf upload", ""}},
        {"--resume_from_checkpoint", "/nonexistent", {"resume_from_checkpoint", "/nonexistent does not exist", ""}},
        {"--accelerate_config", "nosuch", {"nosuch", "single_gpu", "multi_cpu"}},
        {"--seed", NULL, {"--seed wants a value", "whole number", ""}},
        {"word", NULL, {"unexpected word \"word\"", "begin with --", ""}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cli_line l;
        cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
        if (strcmp(cases[i].name, "word") == 0)
            l.n -= 2; /* behind --report_to it would be one more name */
        cli_add(&l, cases[i].name, cases[i].value, NULL);
        cli_expect(&l, 2, cases[i].words[0], cases[i].words[1], cases[i].words[2], NULL);
        assert_false(cli_exists(cli_path("out/metrics.jsonl")));
    }
}

static void test_needed(void **state)
{
    (void)state;
    struct cli_line l = {.n = 0};
    cli_add(&l, "sft", "--dataset_name", cli_rows("lm_short.jsonl"), NULL);
    cli_expect(&l, 2, "model_name_or_path", NULL);
    l.n = 0;
    cli_add(&l, "sft", "--model_name_or_path", cli_model("tiny-qwen2"), NULL);
    cli_expect(&l, 2, "dataset_name", NULL);
}

static void test_trainers(void **state)
{
    (void)state;
    static const char *const known[] = {"dpo", "reward", "kto", "grpo", "rloo", "online_dpo", "distillation", "bco", "cpo", "gkd", "nash_md",
        "orpo", "ppo", "prm", "xpo"};
    struct cli_line l = {.n = 0};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        l.n = 0;
        cli_add(&l, known[i], "--model_name_or_path", "x", NULL);
        char word[64];
        snprintf(word, sizeof(word), "'%s' is not supported", known[i]);
        cli_expect(&l, 2, word, "supported: sft", NULL);
    }
    l.n = 0;
    cli_add(&l, "sff", NULL);
    cli_expect(&l, 2, "unknown trainer 'sff'", "supported: sft", NULL);
}

struct yaml_case {
    const char *text;
    int code;
    const char *words[3];
};

static void test_run_files(void **state)
{
    (void)state;
    static const struct yaml_case cases[] = {
        {"learning_rate: 0.001\n\tseed: 3\n", 2, {"run.yaml:2:1", "tab", ""}},
        {"learning_rate: [1, 2]\n", 2, {"run.yaml:1", "learning_rate: [1, 2] is not possible", "number, at least 0"}},
        {"seed: 1\nlearning_rate: fast\n", 2, {"run.yaml:2", "learning_rate: \"fast\" is not possible", "number"}},
        {"seed: 1.5\n", 2, {"run.yaml:1", "seed", "whole number"}},
        {"bf16: maybe\n", 2, {"run.yaml:1", "bf16: \"maybe\"", "true, false"}},
        {"per_device_train_batch_size: 0\n", 2, {"run.yaml:1", "per_device_train_batch_size: 0 is out of range", "from 1"}},
        {"\nlerning_rate: 1\n", 2, {"run.yaml:2", "unknown key lerning_rate", "did you mean learning_rate?"}},
        {"fsdp: full_shard\n", 2, {"run.yaml:1", "fsdp is not supported", ""}},
        {"env: 3\n", 2, {"run.yaml:1", "env wants a map", ""}},
        {"- a\n- b\n", 2, {"run.yaml", "not a map", "learning_rate: "}},
        {"a: b: c\n", 2, {"run.yaml:1:5", "syntax", ""}},
        {"config: other.yaml\n", 2, {"run.yaml:1", "another run file", ""}},
        {"seed: 1\nseed: 2\n", 0, {"warning: ", "run.yaml:2: the key seed is given twice", "the last one counts"}},
        {"packing: 'yes'\n", 0, {"", "", ""}},
        {"\xef\xbb\xbfseed: 1\r\nlearning_rate: 0.001\r\n", 0, {"", "", ""}},
        {"", 0, {"", "", ""}},
    };
    const char *path = cli_path("run.yaml");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct yaml_case *c = &cases[i];
        cli_write_text(path, c->text);
        struct cli_line l;
        cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
        cli_add(&l, "--config", path, NULL);
        cli_expect(&l, c->code, c->words[0], c->words[1], c->words[2], NULL);
        assert_int_equal(cli_exists(cli_path("out")), c->code == 0);
    }
    struct cli_line l;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--config", cli_path("none.yaml"), NULL);
    cli_expect(&l, 2, "--config", "none.yaml", "No such file", NULL);
}

/* env: of a run file reaches what reads the environment; here the folder of the hub's cache. */
static void test_env(void **state)
{
    (void)state;
    struct cli_line l = {.n = 0};
    char text[1200];
    snprintf(text, sizeof(text), "env:\n  HF_HUB_CACHE: %s\nmodel_name_or_path: a/b\ndataset_name: x\n", cli_path("cache"));
    cli_write_text(cli_path("run.yaml"), text);
    cli_add(&l, "sft", "--config", cli_path("run.yaml"), NULL);
    cli_expect(&l, 2, "a/b", cli_path("cache"), NULL);
}

/* The value that --print_config shows, up to the comment. */
static void expect_setting(const struct cli_line *l, const char *line)
{
    struct cli_result r;
    struct cli_line p = *l;
    cli_add(&p, "--print_config", NULL);
    cli_run(&p, &r);
    char needle[256];
    snprintf(needle, sizeof(needle), "\n%s  #", line);
    assert_int_equal(r.code, 0);
    cli_has(&r, r.out, needle, NULL);
    cli_release(&r);
}

static void test_forms(void **state)
{
    (void)state;
    struct cli_line l = {.n = 0};
    cli_add(&l, "sft", "--packing", "false", "--packing", NULL);
    expect_setting(&l, "packing: true");
    cli_add(&l, "--no_packing", NULL);
    expect_setting(&l, "packing: false");
    cli_add(&l, "--learning-rate=3e-4", NULL);
    expect_setting(&l, "learning_rate: 0.0003");
    cli_add(&l, "--seed", "1", "--seed", "2", NULL);
    expect_setting(&l, "seed: 2");
    cli_add(&l, "--lr_scheduler_type", "cosine_with_restarts", "--lr_scheduler_kwargs", "{\"num_cycles\": 2}", NULL);
    expect_setting(&l, "lr_scheduler_kwargs: {\"num_cycles\": 2}");
}

static void strip_comments(char *text)
{
    char *to = text;
    for (char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        char *mark = memmem(p, n, "  # ", 4);
        size_t keep = mark ? (size_t)(mark - p) : n;
        if (p[0] != '#') {
            memmove(to, p, keep);
            to += keep;
            *to++ = '\n';
        }
        p += n + (p[n] != '\0');
    }
    *to = '\0';
}

static void test_round_trip(void **state)
{
    (void)state;
    struct cli_line l;
    struct cli_result a, b;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--lr_scheduler_type", "cosine_with_restarts", "--lr_scheduler_kwargs", "{\"num_cycles\": 2}", "--packing", "--max_length",
        "64", "--learning_rate=3e-4", "--eos_token", "a: 'b' # \"c\"", "--adam_epsilon", "1e-9", "--print_config", NULL);
    cli_run(&l, &a);
    assert_int_equal(a.code, 0);
    cli_has(&a, a.out, "packing: true  # --packing on the command line", NULL);
    cli_write_text(cli_path("run.yaml"), a.out);
    l.n = 0;
    cli_add(&l, "sft", "--config", cli_path("run.yaml"), "--print_config", NULL);
    cli_run(&l, &b);
    assert_int_equal(b.code, 0);
    cli_has(&b, b.out, "run.yaml:", NULL);
    strip_comments(a.out);
    strip_comments(b.out);
    assert_string_equal(a.out, b.out);
    cli_release(&a);
    cli_release(&b);
}

static void expect_out(int code, const char *w1, const char *w2, const char *w3, const char *word, ...)
{
    struct cli_line l = {.n = 0};
    struct cli_result r;
    va_list ap;
    va_start(ap, word);
    for (; word; word = va_arg(ap, const char *))
        cli_add(&l, word, NULL);
    va_end(ap);
    cli_run(&l, &r);
    if (r.code != code)
        fail_msg("exit code %d instead of %d: %s %s", r.code, code, r.out, r.err);
    cli_has(&r, code == 0 ? r.out : r.err, w1, w2, w3, NULL);
    cli_release(&r);
}

static void test_help(void **state)
{
    (void)state;
    expect_out(0, "trl-train ", ".", "", "--version", NULL);
    expect_out(0, "usage: ", "sft", "--help", "--help", NULL);
    expect_out(0, "--model_name_or_path", "--learning_rate", "--packing", "sft", "--help", NULL);
    expect_out(0, "--packing", "Default: false", "SFTConfig", "sft", "--help", "packing", NULL);
    expect_out(0, "--packing", "Default: false", "SFTConfig", "sft", "--help=packing", NULL);
    expect_out(2, "packin;", "did you mean --packing?", "", "sft", "--help", "packin", NULL);
    expect_out(2, "usage: ", "", "", NULL);
}

static void test_plan(void **state)
{
    (void)state;
    const char *model = cli_model("tiny-qwen2");
    expect_out(0, "132672 parameters", "optimiser state", "peak", "sft", "--plan", "--model_name_or_path", model, NULL);
    expect_out(0, "4 processes", "exchange: ", "peak", "sft", "--plan", "--model_name_or_path", model, "--num_processes", "4", NULL);
    expect_out(1, "this run needs ", " GB on one machine, which has ", "lower per_device_train_batch_size or max_length", "sft", "--plan",
        "--model_name_or_path", model, "--per_device_train_batch_size", "200000", "--max_length", "4096", NULL);
    expect_out(2, "is not possible", "lower per_device_train_batch_size", "", "sft", "--plan", "--model_name_or_path", model,
        "--per_device_train_batch_size", "1000000", "--max_length", "100000", NULL);
    expect_out(2, "model_name_or_path", "", "", "sft", "--plan", NULL);
    expect_out(2, "256 learned positions", "max_length", "", "sft", "--plan", "--model_name_or_path", cli_model("tiny-gpt2"), NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_values),
    cmocka_unit_test(test_needed),
    cmocka_unit_test(test_trainers),
    cmocka_unit_test(test_run_files),
    cmocka_unit_test(test_env),
    cmocka_unit_test(test_forms),
    cmocka_unit_test(test_round_trip),
    cmocka_unit_test(test_help),
    cmocka_unit_test(test_plan),
};
CLI_TEST_MAIN(tests)
