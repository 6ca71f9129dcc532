/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines and run files that the real TRL 1.16 parsed (tests/data/config/trl-parse.jsonl;
 * each with --use_cpu): `values` are the attributes that then differ from those of an empty line,
 * `error` says that TRL refused. Both directions are compared.
 */
#include "../trl-test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "config/options.h"

static char dir[] = "/tmp/trl-test-config-trl-XXXXXX";

/* Not compared: derived in TRL's trainer and not its configuration, a path with HOME, or a flag
 * that nothing reads. */
static bool is_skipped(const char *name)
{
    static const char *const names[] = {
        "do_eval", "output_dir", "dataloader_pin_memory", "disable_tqdm", "eval_packing"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

static bool same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

static int parse_row(const json_t *row, struct trl_config *cfg, struct trl_err *err)
{
    static char line[2048], path[300];
    char *argv[64];
    int argc = 0;
    const char *yaml = json_string_value(json_object_get(row, "yaml"));
    snprintf(line, sizeof(line), "%s", json_string_value(json_object_get(row, "line")));
    if (*yaml) {
        snprintf(path, sizeof(path), "%s/run.yaml", dir);
        assert_trl_ok(trl_file_write_atomic(path, yaml, strlen(yaml), err), err);
        argv[argc++] = (char *)"--config";
        argv[argc++] = path;
    }
    argv[argc++] = (char *)"--use_cpu";
    for (char *p = line; *p;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = 0;
    }
    *err = (struct trl_err){0};
    return trl_config_parse(cfg, "sft", argc, argv, err);
}

static void check_values(
    const json_t *row, const struct trl_config *cfg, const struct trl_config *empty)
{
    json_t *values = json_object_get(row, "values");
    char *text = json_dumps(row, 0);
    for (size_t i = 0; i < trl_n_options; i++) {
        const struct trl_option *o = &trl_options[i];
        json_t *got = trl_option_get(cfg, o), *plain = trl_option_get(empty, o),
               *want = json_object_get(values, o->name);
        bool from_kwargs = json_object_get(values, "model_init_kwargs") &&
            (!strcmp(o->name, "dtype") || !strcmp(o->name, "attn_implementation"));
        bool named = want || strchr("OL", o->origin);
        if (!is_skipped(o->name) && !from_kwargs && !o->mode &&
            (want ? !same(got, want) : !named && !same(got, plain)))
            fail_msg("%s differs from TRL's: %s", o->name, text);
        json_decref(got);
        json_decref(plain);
    }
    free(text);
}

static void test_rows(void **state)
{
    (void)state;
    struct trl_config cfg, empty;
    struct trl_err err;
    char *text, *flag[] = {(char *)"--use_cpu"};
    size_t len, n = 0;
    assert_trl_ok(trl_config_parse(&empty, "sft", 1, flag, &err), &err);
    assert_trl_ok(
        trl_file_read(trl_test_data("config/trl-parse.jsonl"), 1 << 20, &text, &len, &err), &err);
    for (char *p = text, *nl; (nl = strchr(p, '\n')); p = nl + 1, n++) {
        json_t *row = json_loadb(p, (size_t)(nl - p), 0, NULL);
        assert_non_null(row);
        int rc = parse_row(row, &cfg, &err);
        bool refused = json_object_get(row, "error") != NULL;
        if ((rc != 0) != refused)
            fail_msg("%.*s: %s", (int)(nl - p), p, rc ? err.text : "accepted");
        if (!rc) {
            check_values(row, &cfg, &empty);
            trl_config_release(&cfg);
        }
        json_decref(row);
    }
    assert_int_equal(n, 62);
    trl_free(text);
    trl_config_release(&empty);
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
    cmocka_unit_test(test_rows),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
