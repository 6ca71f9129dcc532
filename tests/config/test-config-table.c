/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole option table against what the real TRL has (tests/data/golden/config-defaults.json,
 * cli-defaults.json): every option is there, with the same default and a compatible type; after
 * parsing nothing, values equal those after TRL's own initialisation.
 */
#include "../trl-test.h"

#include "base/alloc.h"
#include "config/options.h"

static json_t *load(const char *name)
{
    json_error_t e;
    json_t *v = json_load_file(trl_test_data(name), 0, &e);
    if (!v)
        fail_msg("%s: %s", name, e.text);
    return v;
}

/* A default of the table against Python's: null, bool, number, text, list. */
static bool same_default(const struct trl_option *o, const json_t *want)
{
    double f;
    if (json_is_null(want))
        return !o->def;
    if (!o->def)
        return false;
    if (json_is_boolean(want))
        return !strcmp(o->def, json_is_true(want) ? "true" : "false");
    if (json_is_number(want))
        return trl_parse_f64(o->def, &f) && f == json_number_value(want);
    if (json_is_array(want))
        return !strcmp(o->def, "[]") && json_array_size(want) == 0;
    return json_is_string(want) && !strcmp(o->def, json_string_value(want));
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* Is the kind one that holds values of Python's annotation? */
static bool kind_fits(const struct trl_option *o, const char *type)
{
    bool none = has(type, "None");
    if (!strcmp(o->name, "pad_to_multiple_of"))
        return o->kind == TRL_OPT_OPT_INT; /* int, "auto" or None */
    if (!strcmp(o->name, "report_to") || !strcmp(o->name, "optim_target_modules"))
        return o->kind == TRL_OPT_LIST;
    if (!strcmp(o->name, "trackio_static_space_id") ||
        !strcmp(o->name, "include_num_input_tokens_seen") || !strcmp(o->name, "debug"))
        return o->kind == TRL_OPT_STR;
    if (has(type, "dict") || has(type, "ParallelismConfig"))
        return o->kind == TRL_OPT_DICT;
    if (has(type, "list["))
        return o->kind == TRL_OPT_LIST;
    if (has(type, "bool"))
        return o->kind == (none ? TRL_OPT_OPT_BOOL : TRL_OPT_BOOL);
    if (has(type, "float"))
        return o->kind == (none ? TRL_OPT_OPT_FLOAT : TRL_OPT_FLOAT);
    if (has(type, "int") && !has(type, "Interval"))
        return o->kind == (none ? TRL_OPT_OPT_INT : TRL_OPT_INT);
    return o->kind == TRL_OPT_STR;
}

static size_t walk(const json_t *options, const char *origins)
{
    const char *name;
    json_t *v;
    size_t n = 0;
    json_object_foreach((json_t *)options, name, v)
    {
        const struct trl_option *o = trl_option_find(name);
        if (!o)
            fail_msg("option %s is not in the table", name);
        if (!strchr(origins, o->origin))
            fail_msg("option %s: origin %c", name, o->origin);
        if (!same_default(o, json_object_get(v, "default")))
            fail_msg("option %s: default %s differs", name, o->def ? o->def : "none");
        if (!kind_fits(o, json_string_value(json_object_get(v, "type"))))
            fail_msg("option %s: kind %d does not fit %s", name, o->kind,
                json_string_value(json_object_get(v, "type")));
        n++;
    }
    return n;
}

static void test_defaults(void **state)
{
    (void)state;
    json_t *config = load("golden/config-defaults.json"), *cli = load("golden/cli-defaults.json");
    size_t n = walk(json_object_get(json_object_get(config, "configs"), "SFTConfig"), "TS"),
           n_ours = 0;
    n += walk(json_object_get(cli, "ScriptArguments"), "A");
    n += walk(json_object_get(cli, "ModelConfig"), "M");
    n += walk(json_object_get(cli, "DatasetMixtureConfig"), "D");
    for (size_t i = 0; i < trl_n_options; i++)
        n_ours += !strchr("OL", trl_options[i].origin);
    assert_int_equal(
        n + 3, n_ours); /* run_name, accelerator_config and local_rank are not in the goldens */
    json_decref(config);
    json_decref(cli);
}

static void test_words(void **state)
{
    (void)state;
    static const char *const names[] = {"lr_scheduler_type", "optim"};
    json_t *cli = load("golden/cli-defaults.json"), *w;
    for (size_t k = 0; k < 2; k++) {
        const json_t *want = json_object_get(cli, names[k]);
        const struct trl_option *o = trl_option_find(names[k]);
        size_t i, n = 1;
        json_array_foreach(want, i, w)
        {
            if (!trl_word_in(o->choices, json_string_value(w), json_string_length(w)))
                fail_msg("%s: %s is not known", names[k], json_string_value(w));
        }
        for (const char *p = o->choices; *p; p++)
            n += *p == ' ';
        assert_int_equal(n, json_array_size(want));
    }
    json_decref(cli);
}

/* Rows of the table are complete: a reason where one is due, withheld words among the choices, a
 * default that can be read. */
static void test_rows(void **state)
{
    (void)state;
    struct trl_config cfg = {0};
    struct trl_err err;
    assert_trl_ok(trl_options_init(&cfg, &err), &err);
    for (size_t i = 0; i < trl_n_options; i++) {
        const struct trl_option *o = &trl_options[i];
        if ((o->status != TRL_STATUS_SUPPORTED) != (o->why != NULL))
            fail_msg("%s: status and reason do not fit", o->name);
        if (!o->help || !*o->help || o->help[strlen(o->help) - 1] != '.')
            fail_msg("%s: help is not a sentence", o->name);
        for (const char *p = o->withheld; p && *p;) {
            size_t n = strcspn(p, " ");
            if (!trl_word_in(o->choices, p, n))
                fail_msg("%s: withheld word is not a choice", o->name);
            p += n + (p[n] == ' ');
        }
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(o->name, trl_options[j].name);
        assert_ptr_equal(trl_option_find(o->name), o);
    }
    trl_config_release(&cfg);
}

/* After parsing an empty line, every value is what TRL's object holds after __post_init__ (made on
 * a machine without GPUs). */
static void test_after_init(void **state)
{
    (void)state;
    json_t *config = load("golden/config-defaults.json"), *v;
    const json_t *sft = json_object_get(json_object_get(config, "configs"), "SFTConfig");
    struct trl_config cfg;
    struct trl_err err;
    const char *name;
    assert_trl_ok(trl_config_parse(&cfg, "sft", 0, NULL, &err), &err);
    json_object_foreach((json_t *)sft, name, v)
    {
        json_t *want = json_object_get(v, "after_init"),
               *got = trl_option_get(&cfg, trl_option_find(name));
        bool same = json_is_number(want) && json_is_number(got)
            ? json_number_value(want) == json_number_value(got)
            : json_equal(want, got);
        /* a bar only on a terminal; a flag without effect keeps what was given; a list that TRL
         * splits; derived here, not there */
        bool known = !strcmp(name, "disable_tqdm") || !strcmp(name, "dataloader_pin_memory") ||
            !strcmp(name, "debug") || !strcmp(name, "eval_packing");
        if (!same && !known) {
            struct trl_str s = {0};
            trl_yaml_put_json(&s, got);
            fail_msg("%s is %s after parsing", name, trl_str_get(&s));
        }
        json_decref(got);
    }
    assert_true(cfg.use_cpu && cfg.bf16.set && cfg.bf16.value && !cfg.fp16);
    assert_true(cfg.max_shard_bytes == 5000000000);
    assert_true(cfg.learning_rate == 2e-5);
    trl_config_release(&cfg);
    json_decref(config);
}

static void test_suggestions(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
    } cases[] = {
        {"learnin_rate", "; did you mean learning_rate?"},
        {"per-device-train-batchsize", "; did you mean per_device_train_batch_size?"},
        {"gradient_acc", "; did you mean gradient_accumulation_steps?"},
        {"MAX_LENGHT", "; did you mean max_length?"},
        {"max_seq_length", ": it is called max_length now"},
        {"warmup_ratio", ": warmup_steps takes a share below 1"},
        {"zzzzzzzzzzzz", "; trl-train sft --help lists all options"},
        {"", "; trl-train sft --help lists all options"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_str s = {0};
        trl_option_suggest(cases[i].name, "", &s);
        assert_string_equal(trl_str_get(&s), cases[i].text);
        trl_str_release(&s);
    }
}

static void test_help(void **state)
{
    (void)state;
    struct trl_str s = {0};
    struct trl_err err;
    assert_trl_ok(trl_config_help("sft", NULL, &s, &err), &err);
    for (size_t i = 0; i < trl_n_options; i++)
        if (!strstr(trl_str_get(&s), trl_options[i].name))
            fail_msg("--help does not name %s", trl_options[i].name);
    for (size_t i = 0; i < trl_n_options; i++) {
        trl_str_clear(&s);
        assert_trl_ok(trl_config_help("sft", trl_options[i].name, &s, &err), &err);
        assert_true(s.len > 60);
    }
    trl_str_clear(&s);
    assert_trl_ok(trl_config_help("sft", "--use-peft", &s, &err), &err);
    assert_non_null(strstr(trl_str_get(&s), "Not supported: LoRA comes later."));
    assert_int_equal(trl_config_help("sft", "learnin_rate", &s, &err), TRL_E_USAGE);
    assert_string_equal(
        err.text, "--help: unknown option --learnin_rate; did you mean --learning_rate?");
    trl_str_release(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_defaults),
    cmocka_unit_test(test_words),
    cmocka_unit_test(test_rows),
    cmocka_unit_test(test_after_init),
    cmocka_unit_test(test_suggestions),
    cmocka_unit_test(test_help),
};
TRL_TEST_MAIN(tests)
