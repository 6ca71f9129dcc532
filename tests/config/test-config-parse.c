/* SPDX-License-Identifier: Apache-2.0 */
/* Command line and run file: forms, precedence, derived values, errors, --print_config read back.
 */
#include "../trl-test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "config/options.h"

static char dir[] = "/tmp/trl-test-config-XXXXXX";

static const char *path_of(const char *name)
{
    static char buf[4][256];
    static int next;
    char *p = buf[next++ % 4];
    snprintf(p, sizeof(buf[0]), "%s/%s", dir, name);
    return p;
}

static const char *write_file(const char *name, const char *text)
{
    const char *p = path_of(name);
    struct trl_err err;
    assert_trl_ok(trl_file_write_atomic(p, text, strlen(text), &err), &err);
    return p;
}

/* Words are split at single blanks; a '^' stands for a blank inside a word, %s for `arg`. */
static int parse(struct trl_config *cfg, struct trl_err *err, const char *line, const char *arg)
{
    static char buf[8][4096];
    static int next;
    char *b = buf[next++ % 8], *argv[128];
    int argc = 0;
    const char *at = strstr(line, "%s");
    snprintf(b, sizeof(buf[0]), "%.*s%s%s", at ? (int)(at - line) : (int)strlen(line), line,
        at ? arg : "", at ? at + 2 : "");
    for (char *p = b; *p;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = 0;
    }
    for (int i = 0; i < argc; i++)
        for (char *p = argv[i]; *p; p++)
            if (*p == '^')
                *p = ' ';
    *err = (struct trl_err){0};
    return trl_config_parse(cfg, "sft", argc, argv, err);
}

static void parse_ok(struct trl_config *cfg, const char *line, const char *arg)
{
    struct trl_err err;
    int rc = parse(cfg, &err, line, arg);
    if (rc)
        fail_msg("%s: %s", line, err.text);
}

static void test_forms(void **state)
{
    (void)state;
    struct trl_config c;
    parse_ok(&c,
        "--learning_rate 1e-4 --max-length=256 --packing --no_gradient_checkpointing --bf16 false "
        "--seed 7 --max_steps -1 "
        "--report_to tensorboard --lr_scheduler_kwargs "
        "{\"num_cycles\":2,\"x\":\"0.5\",\"t\":\"True\"} --show_batches 3 json --num_train_epochs "
        "1_0.5 "
        "--dataset_name=a=b --chat_template_kwargs {\"enable_thinking\":^false} --eval_steps 0.25 "
        "--cpu --eos_token=--x",
        NULL);
    assert_true(c.learning_rate == 1e-4);
    assert_true(c.max_length.set && c.max_length.value == 256);
    assert_true(c.packing && c.flat && c.eval_packing.value);
    assert_true(!c.gradient_checkpointing && c.activation_checkpointing.set &&
        !c.activation_checkpointing.value);
    assert_true(c.bf16.set && !c.bf16.value && !c.fp16);
    assert_int_equal(c.seed, 7);
    assert_int_equal(c.max_steps, -1);
    assert_int_equal(json_array_size(c.report_to), 1);
    assert_string_equal(json_string_value(json_array_get(c.report_to, 0)), "tensorboard");
    assert_int_equal(json_integer_value(json_object_get(c.lr_scheduler_kwargs, "num_cycles")), 2);
    assert_true(json_real_value(json_object_get(c.lr_scheduler_kwargs, "x")) == 0.5);
    assert_true(json_is_true(json_object_get(c.lr_scheduler_kwargs, "t")));
    assert_true(c.show_batches.set && c.show_batches.value == 3 && c.show_batches_json);
    assert_true(c.num_train_epochs == 10.5);
    assert_string_equal(c.dataset_name, "a=b");
    assert_true(json_is_false(json_object_get(c.chat_template_kwargs, "enable_thinking")));
    assert_true(c.eval_steps.set && c.eval_steps.value == 0.25);
    assert_string_equal(c.eos_token, "--x");
    assert_string_equal(trl_config_source(&c, "use_cpu"), "--use_cpu on the command line");
    assert_string_equal(
        trl_config_source(&c, "learning_rate"), "--learning_rate on the command line");
    assert_string_equal(trl_config_source(&c, "weight_decay"), "default");
    assert_null(trl_config_source(&c, "nothing"));
    assert_true(trl_config_is_given(&c, "packing") && !trl_config_is_given(&c, "padding_free"));
    trl_config_release(&c);

    parse_ok(&c,
        "--max_length none --packing True --packing false --packing=0 --bf16 --lora_target_modules "
        "q k v --max_length None --seed 1 --seed 2 "
        "--report_to=none --disable_tqdm --eval_packing n --save_total_limit None",
        NULL);
    assert_true(!c.max_length.set && !c.packing && c.bf16.value && c.seed == 2);
    assert_true(json_array_size(c.report_to) == 0);
    assert_int_equal(json_array_size(c.lora_target_modules), 3);
    assert_true(c.disable_tqdm.set && c.disable_tqdm.value);
    assert_true(!c.save_total_limit.set);
    trl_config_release(&c);

    parse_ok(&c, "--fp16", NULL);
    assert_true(c.fp16 && c.bf16.set && !c.bf16.value);
    trl_config_release(&c);
    parse_ok(&c, "--help learning_rate --nonsense", NULL);
    assert_true(c.help && !strcmp(c.help_name, "learning_rate"));
    trl_config_release(&c);
    parse_ok(&c, "-h", NULL);
    assert_true(c.help && !c.help_name);
    trl_config_release(&c);
    parse_ok(&c, "--help --packing", NULL);
    assert_string_equal(c.help_name, "packing");
    trl_config_release(&c);
}

static void test_precedence(void **state)
{
    (void)state;
    const char *run = write_file("run.yaml",
        "# a run\nenv:\n  TRL_TEST_A: 1\n  TRL_TEST_B: yes\n  TRL_TEST_C: x y\nlearning_rate: "
        "1e-5\nmax_length: \"512\"\n"
        "per_device_train_batch_size: 017\npacking: yes\nmodel_revision: 1.0\nwarmup_steps: "
        "2\nnum_processes: 3\n"
        "seed: 1\nseed: 5\nlr_scheduler_kwargs: {min_lr: 1e-6}\neval_strategy: no\nlora-r: 8\n"
        "datasets:\n  - path: a\n    fraction: 1e-1\n  - {path: b, fraction: 0.9, columns: "
        "[text]}\n");
    struct trl_config c;
    char want[300];
    parse_ok(&c, "--config %s --warmup_steps 0.5", run);
    assert_true(c.learning_rate == 1e-5 && c.max_length.value == 512 &&
        c.per_device_train_batch_size == 15 && c.packing);
    assert_string_equal(c.model_revision, "1.0");
    assert_string_equal(c.eval_strategy, "no");
    assert_true(c.warmup_steps == 0.5 && c.seed == 5);
    assert_true(json_real_value(json_object_get(c.lr_scheduler_kwargs, "min_lr")) == 1e-6);
    assert_int_equal(json_array_size(c.datasets), 2);
    snprintf(want, sizeof(want), "%s:6", run);
    assert_string_equal(trl_config_source(&c, "learning_rate"), want);
    assert_string_equal(
        trl_config_source(&c, "warmup_steps"), "--warmup_steps on the command line");
    assert_string_equal(getenv("TRL_TEST_A"), "1");
    assert_string_equal(getenv("TRL_TEST_B"), "True");
    assert_string_equal(getenv("TRL_TEST_C"), "x y");
    assert_non_null(strstr(trl_str_get(&c.warnings),
        "the key seed is given twice; the last one counts (first in line 13)"));
    assert_non_null(
        strstr(trl_str_get(&c.notices), "lora_r has no effect here: it only counts with use_peft"));
    trl_config_release(&c);

    /* the run file wins over the accelerate file that it names, a later --config over an earlier
     * one */
    write_file("acc.yaml",
        "distributed_type: MULTI_CPU\nnum_processes: 4\nmixed_precision: no\nuse_cpu: true\n");
    char text[512];
    snprintf(text, sizeof(text), "accelerate_config: %s\n", path_of("acc.yaml"));
    write_file("b.yaml", text);
    parse_ok(&c, "--config nothing --config %s", path_of("b.yaml"));
    assert_true(c.num_processes.set && c.num_processes.value == 4);
    assert_true(
        c.bf16
            .value); /* as in TRL: no mixed precision in accelerate's file does not turn bf16 off */
    assert_non_null(strstr(trl_str_get(&c.notices), "mixed_precision no"));
    trl_config_release(&c);
    snprintf(text, sizeof(text), "accelerate_config: %s\nnum_processes: 2\n", path_of("acc.yaml"));
    parse_ok(&c, "--config %s", write_file("b.yaml", text));
    assert_int_equal(c.num_processes.value, 2);
    trl_config_release(&c);
    parse_ok(&c, "--config %s --num_processes 1", path_of("b.yaml"));
    assert_int_equal(c.num_processes.value, 1);
    trl_config_release(&c);
}

static void test_derived(void **state)
{
    (void)state;
    struct trl_config c;
    parse_ok(&c,
        "--eval_strategy steps --logging_steps 0.1 --load_best_model_at_end --save_steps 0.2",
        NULL);
    assert_true(c.eval_steps.set && c.eval_steps.value == 0.1);
    assert_string_equal(c.metric_for_best_model, "loss");
    assert_true(c.greater_is_better.set && !c.greater_is_better.value);
    trl_config_release(&c);
    parse_ok(&c,
        "--eval_strategy epoch --save_strategy best --metric_for_best_model mean_token_accuracy "
        "--activation_checkpointing false",
        NULL);
    assert_true(c.greater_is_better.value && !c.gradient_checkpointing);
    trl_config_release(&c);
    parse_ok(&c,
        "--loss_type chunked_nll --padding_free --max_length none --pad_to_multiple_of 16 "
        "--output_dir ~/x --bf16 false --mixed_precision fp16",
        NULL);
    assert_string_equal(c.loss_type, "nll");
    assert_true(c.flat && c.pad_to_multiple_of.value == 16 && c.fp16 && !c.bf16.value);
    assert_true(!getenv("HOME") || c.output_dir[0] == '/');
    trl_config_release(&c);
    parse_ok(&c,
        "--packing --packing_strategy wrapped --eval_packing false --pad_to_multiple_of auto "
        "--resume_from_checkpoint true",
        NULL);
    assert_true(!c.flat && !c.eval_packing.value && !c.pad_to_multiple_of.set);
    assert_string_equal(c.resume_from_checkpoint, "true");
    trl_config_release(&c);
    parse_ok(&c,
        "--model_init_kwargs {\"dtype\":\"torch.bfloat16\",\"attn_implementation\":\"eager\"} "
        "--resume_from_checkpoint false",
        NULL);
    assert_string_equal(c.dtype, "bfloat16");
    assert_string_equal(c.attn_implementation, "eager");
    assert_null(c.resume_from_checkpoint);
    trl_config_release(&c);
    parse_ok(&c,
        "--accelerator_config {\"even_batches\":true,\"split_batches\":false} --dataset_kwargs "
        "{\"skip_prepare_dataset\":\"false\"} "
        "--max_shard_size 1.5MiB --fsdp_config none --use_peft false --attn_implementation sdpa",
        NULL);
    assert_int_equal(c.max_shard_bytes, 1572864);
    assert_non_null(strstr(
        trl_str_get(&c.notices), "attn_implementation has no effect here: attention is built in"));
    trl_config_log_notices(&c); /* to stderr */
    trl_config_release(&c);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int rc;
        const char *text;
    } cases[] = {
        {"--learnin_rate 1", TRL_E_USAGE,
            "unknown option --learnin_rate; did you mean --learning_rate?"},
        {"--max_seq_length 5", TRL_E_USAGE,
            "unknown option --max_seq_length: it is called max_length now"},
        {"learning_rate", TRL_E_USAGE,
            "unexpected word \"learning_rate\" on the command line; options begin with --"},
        {"--learning_rate", TRL_E_USAGE, "--learning_rate wants a value: number, at least 0"},
        {"--learning_rate abc", TRL_E_USAGE,
            "learning_rate: \"abc\" is not possible (--learning_rate on the command line); wanted: "
            "number, at least 0"},
        {"--learning_rate nan", TRL_E_USAGE, "learning_rate: \"nan\" is not possible"},
        {"--learning_rate 0x1p3", TRL_E_USAGE, "learning_rate: \"0x1p3\" is not possible"},
        {"--learning_rate=-1", TRL_E_RANGE, "learning_rate: -1 is out of range"},
        {"--per_device_train_batch_size 0", TRL_E_RANGE,
            "per_device_train_batch_size: 0 is out of range (--per_device_train_batch_size on the "
            "command line); "
            "wanted: whole number from 1 to 1048576 (rows)"},
        {"--per_device_train_batch_size 1.5", TRL_E_USAGE,
            "per_device_train_batch_size: \"1.5\" is not possible"},
        {"--seed 99999999999999999999", TRL_E_USAGE,
            "seed: \"99999999999999999999\" is not possible"},
        {"--adam_beta1 1", TRL_E_RANGE,
            "adam_beta1: 1 is out of range (--adam_beta1 on the command line); wanted: number from "
            "0 to below 1"},
        {"--packing maybe", TRL_E_USAGE,
            "packing: \"maybe\" is not possible (--packing on the command line); wanted: true or "
            "false"},
        {"--no_packing=1", TRL_E_USAGE, "--no_packing takes no value; write --packing=1"},
        {"--no_seed", TRL_E_USAGE, "unknown option --no_seed"},
        {"--loss_type foo", TRL_E_USAGE,
            "loss_type: \"foo\" is not possible (--loss_type on the command line); wanted: one of: "
            "nll, dft, chunked_nll"},
        {"--optim paged_adamw_8bit", TRL_E_UNSUPPORTED,
            "optim: \"paged_adamw_8bit\" is not supported: it belongs to a package"},
        {"--report_to wandb", TRL_E_UNSUPPORTED,
            "report_to: \"wandb\" is not supported: it needs a Python client"},
        {"--report_to none tensorboard", TRL_E_USAGE, "report_to: none stands beside other names"},
        {"--use_peft --push_to_hub", TRL_E_UNSUPPORTED,
            "use_peft is not supported: LoRA comes later (--use_peft on the command line); "
            "push_to_hub is not supported"},
        {"--deepspeed ds.json", TRL_E_UNSUPPORTED,
            "deepspeed is not supported: ZeRO sharding comes later (--deepspeed on the command "
            "line)"},
        {"--fsdp", TRL_E_UNSUPPORTED,
            "fsdp is not supported: sharding comes later (--fsdp on the command line)"},
        {"--fsdp full_shard", TRL_E_UNSUPPORTED, "fsdp is not supported: sharding comes later"},
        {"--lr_scheduler_kwargs {1}", TRL_E_USAGE, "lr_scheduler_kwargs: character 2 is not JSON"},
        {"--lr_scheduler_kwargs 5", TRL_E_USAGE,
            "lr_scheduler_kwargs: \"5\" is not possible (--lr_scheduler_kwargs on the command "
            "line); wanted: JSON object"},
        {"--fp16 --bf16", TRL_E_USAGE, "fp16 and bf16 are both on"},
        {"--logging_steps 0", TRL_E_RANGE, "logging_steps: 0 is not possible"},
        {"--save_steps 1.5", TRL_E_RANGE, "save_steps: 1.5 is not possible"},
        {"--load_best_model_at_end", TRL_E_USAGE,
            "load_best_model_at_end wants equal eval_strategy and save_strategy"},
        {"--load_best_model_at_end --eval_strategy steps --eval_steps 3", TRL_E_USAGE,
            "load_best_model_at_end wants save_steps to be a multiple of eval_steps"},
        {"--load_best_model_at_end --eval_strategy steps --eval_steps 0.1", TRL_E_USAGE,
            "load_best_model_at_end wants save_steps to be a multiple"},
        {"--lr_scheduler_type reduce_lr_on_plateau", TRL_E_USAGE,
            "lr_scheduler_type: reduce_lr_on_plateau follows the evaluation"},
        {"--save_strategy best", TRL_E_USAGE, "save_strategy: best wants metric_for_best_model"},
        {"--packing --max_length none", TRL_E_USAGE, "packing wants a max_length, and it is none"},
        {"--padding_free", TRL_E_USAGE,
            "padding_free without packing does not hold max_length, which is 1024"},
        {"--model_init_kwargs {\"foo\":1}", TRL_E_UNSUPPORTED,
            "model_init_kwargs: the key foo is not supported"},
        {"--model_init_kwargs {\"dtype\":\"int4\"}", TRL_E_USAGE,
            "dtype: \"int4\" is not possible (--model_init_kwargs on the command line)"},
        {"--accelerator_config {\"split_batches\":true}", TRL_E_UNSUPPORTED,
            "accelerator_config: only the default of split_batches is supported"},
        {"--accelerator_config {\"splitbatches\":true}", TRL_E_USAGE,
            "accelerator_config: unknown key splitbatches"},
        {"--dataset_kwargs {\"skip_prepare_dataset\":true}", TRL_E_UNSUPPORTED,
            "dataset_kwargs: skip_prepare_dataset is not supported"},
        {"--datasets [{\"split\":\"x\"}]", TRL_E_USAGE, "datasets: entry 1 has no path"},
        {"--datasets [{\"path\":\"x\",\"fraction\":1},{\"path\":\"y\"}]", TRL_E_USAGE,
            "datasets: 1 of 2 entries have a fraction"},
        {"--datasets [{\"path\":\"x\",\"fraction\":-1}]", TRL_E_USAGE,
            "datasets: entry 1: the value of fraction is not possible"},
        {"--datasets [{\"path\":\"x\",\"pth\":1}]", TRL_E_USAGE,
            "datasets: entry 1 has the unknown key pth"},
        {"--max_shard_size 5XB", TRL_E_USAGE,
            "max_shard_size: \"5XB\" is not a size; wanted: a number with a unit, as 5GB or "
            "500MiB"},
        {"--machine_rank 1", TRL_E_RANGE, "machine_rank: 1 is out of range"},
        {"--num_processes 3 --num_machines 2", TRL_E_RANGE, "num_processes: 3"},
        {"--fp16 --dtype float16", TRL_E_USAGE,
            "fp16 (--fp16 on the command line) with dtype float16"},
        {"--test_split_size 1.5", TRL_E_RANGE, "test_split_size: 1.5 is not possible"},
        {"--config /nonexistent/x.yaml", TRL_E_NOENT, "--config"},
        {"--eos_token \xff", TRL_E_USAGE, "eos_token: the text is not UTF-8"},
        {"--datasets \xff", TRL_E_USAGE, "datasets: \"\xff\" is not UTF-8"},
        {"--output_dir=", TRL_E_USAGE, "output_dir: the text is empty"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_config c;
        struct trl_err err;
        int rc = parse(&c, &err, cases[i].line, "");
        if (rc != cases[i].rc || strncmp(err.text, cases[i].text, strlen(cases[i].text)))
            fail_msg("%s gives %d: %s", cases[i].line, rc, err.text);
    }
    struct trl_config c;
    struct trl_err err;
    assert_int_equal(trl_config_parse(&c, "dpo", 0, NULL, &err), TRL_E_USAGE);
}

/* A run file and the message behind its name. */
static void test_file_errors(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *text;
    } cases[] = {
        {"max_lenght: 5\n", ":1: unknown key max_lenght; did you mean max_length?"},
        {"warmup_ratio: 0.1\n", ":1: unknown key warmup_ratio: warmup_steps takes a share below 1"},
        {"- a\n", ": the run file is not a map"},
        {"config: x.yaml\n", ":1: a run file cannot name another run file"},
        {"env: [a]\n", ":1: env wants a map of environment variables"},
        {"env: {A: [1]}\n", ":1: env: the value of A is a list or a map; wanted: text"},
        {"env: {'A=B': 1}\n", ":1: env: \"A=B\" cannot be an environment variable"},
        {"\n\tseed: 1\n", ":2:1: a tab in the indentation; YAML wants blanks there"},
    };
    static const struct {
        const char *yaml, *text;
    } values[] = {
        {"\nseed: abc\n",
            "seed: \"abc\" is not possible (%s:2); wanted: whole number from 0 to 4294967295"},
        {"seed: true\n", "seed: \"true\" is not possible (%s:1)"},
        {"seed: 8.0\n", "seed: \"8.0\" is not possible (%s:1)"},
        {"seed: [1]\n", "seed: [1] is not possible (%s:1)"},
        {"seed: null\n", "seed: \"none\" is not possible (%s:1)"},
        {"seed: 99999999999999999999\n", "seed: \"99999999999999999999\" is not possible (%s:1)"},
        {"learning_rate: .inf\n", "learning_rate: \".inf\" is not possible (%s:1)"},
        {"packing: 2\n", "packing: \"2\" is not possible (%s:1); wanted: true or false"},
        {"loss_type: 5\n",
            "loss_type: \"5\" is not possible (%s:1); wanted: one of: nll, dft, chunked_nll"},
        {"loss_type:\n", "loss_type: \"null\" is not possible (%s:1)"},
        {"lr_scheduler_kwargs: [a]\n",
            "lr_scheduler_kwargs: [\"a\"] is not possible (%s:1); wanted: JSON object"},
        {"report_to: [tensorboard, 3]\n", "report_to: entry 2 is not a word (%s:1)"},
        {"use_peft: true\n", "use_peft is not supported: LoRA comes later (%s:1)"},
        {"fsdp: {a: 1}\n", "fsdp is not supported: sharding comes later (%s:1)"},
    };
    const char *path = path_of("bad.yaml");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) + sizeof(values) / sizeof(values[0]);
         i++) {
        struct trl_config c;
        struct trl_err err;
        char want[1024];
        bool first = i < sizeof(cases) / sizeof(cases[0]);
        const char *yaml =
            first ? cases[i].yaml : values[i - sizeof(cases) / sizeof(cases[0])].yaml;
        if (first) {
            snprintf(want, sizeof(want), "%s%s", path, cases[i].text);
        } else {
            const char *t = values[i - sizeof(cases) / sizeof(cases[0])].text,
                       *at = strstr(t, "%s");
            snprintf(want, sizeof(want), "%.*s%s%s", (int)(at - t), t, path, at + 2);
        }
        write_file("bad.yaml", yaml);
        int rc = parse(&c, &err, "--config %s", path);
        if (!rc || !strstr(err.text, want))
            fail_msg("%s gives %d: %s instead of %s", yaml, rc, err.text, want);
    }
}

static void test_print(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "--learning_rate 1e-7 --packing --lr_scheduler_kwargs "
        "{\"num_cycles\":0.5,\"lr_end\":1e-07} --report_to tensorboard --bf16 false --eos_token "
        "<|x|>",
        "--eval_strategy steps --load_best_model_at_end --logging_steps 0.25 --save_steps 0.5 "
        "--seed 0 --output_dir a#b:^c --dataset_name ~ --dtype bfloat16",
        "--max_length none --padding_free --num_processes 2 --mixed_precision no "
        "--model_init_kwargs {\"dtype\":\"float16\"} --chat_template_kwargs {\"a\":[1,null]}",
        "--hub_token secret --datasets [{\"path\":\"x\",\"fraction\":1e-9}] --run_name yes "
        "--test_split_size 0.1 --resume_from_checkpoint true",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct trl_config a, b;
        struct trl_str s = {0};
        parse_ok(&a, lines[i], NULL);
        trl_config_print(&a, &s);
        assert_null(strstr(trl_str_get(&s), "secret"));
        parse_ok(&b, "--config %s", write_file("printed.yaml", trl_str_get(&s)));
        for (size_t k = 0; k < trl_n_options; k++) {
            const struct trl_option *o = &trl_options[k];
            json_t *x = trl_option_get(&a, o), *y = trl_option_get(&b, o);
            if (!o->mode && !o->secret && !json_equal(x, y))
                fail_msg("%s changed when printed and read again", o->name);
            json_decref(x);
            json_decref(y);
        }
        json_t *all = trl_config_to_json(&a);
        assert_true(json_object_size(all) > 180);
        assert_null(json_object_get(all, "hub_token"));
        json_decref(all);
        if (i == 1)
            assert_non_null(strstr(trl_str_get(&s),
                "\nlearning_rate: 1.0e-07  # --learning_rate on the command line\n"));
        trl_str_release(&s);
        trl_config_release(&a);
        trl_config_release(&b);
    }
}

static void test_require(void **state)
{
    (void)state;
    struct trl_config c;
    struct trl_err err;
    parse_ok(&c, "--dataset_name x", NULL);
    assert_int_equal(trl_config_require(&c, &err), TRL_E_USAGE);
    trl_config_release(&c);
    parse_ok(&c, "--model_name_or_path x", NULL);
    assert_int_equal(trl_config_require(&c, &err), TRL_E_USAGE);
    trl_config_release(&c);
    parse_ok(&c, "--model_name_or_path x --datasets [{\"path\":\"y\"}]", NULL);
    assert_int_equal(trl_config_require(&c, &err), 0);
    trl_config_release(&c);
    trl_config_release(&c);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want; /* 0: an error */
    } cases[] = {{"5GB", 5000000000}, {"5 gb", 5000000000}, {"1GiB", 1073741824}, {"1000", 1000},
        {"0.5KB", 500}, {"3tb", 3000000000000}, {"7B", 7}, {"", 0}, {"GB", 0}, {"5XB", 0},
        {"-1GB", 0}, {"0", 0}, {"1.2.3", 0}, {"99999999999TB", 0}, {"5GBGBGBGB", 0}, {"1e3", 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t got = 0;
        int rc = trl_config_parse_size(cases[i].text, &got, NULL);
        assert_int_equal(rc == 0, cases[i].want != 0);
        assert_true(got == cases[i].want);
    }
}

static int set_up(void **state)
{
    (void)state;
    static const char *const launchers[] = {
        "OMPI_COMM_WORLD_RANK", "MPI_LOCALNRANKS", "SLURM_STEP_ID", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
        unsetenv(launchers[i]);
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return trl_rmtree(dir, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_forms),
    cmocka_unit_test(test_precedence),
    cmocka_unit_test(test_derived),
    cmocka_unit_test(test_errors),
    cmocka_unit_test(test_file_errors),
    cmocka_unit_test(test_print),
    cmocka_unit_test(test_require),
    cmocka_unit_test(test_sizes),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
