/* SPDX-License-Identifier: Apache-2.0 */
/* What a run shows and leaves: --show_batches, metrics.jsonl, trainer_state.json, TensorBoard; folders that cannot be written. */
#include "cli-run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fileio.h"

/* ---- --show_batches ---- */

/* The options of a recorded case as a command line. */
static void add_options(struct cli_line *l, const json_t *options)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)options, key, v)
    {
        char *word = (char *)(uintptr_t)cli_path("%s", ""), *value = (char *)(uintptr_t)cli_path("%s", "");
        snprintf(word, 1024, "--%s", key);
        if (strcmp(key, "chat_template_path") == 0)
            snprintf(value, 1024, "%s/%s", trl_test_data("golden"), json_string_value(v));
        else if (json_is_string(v))
            snprintf(value, 1024, "%s", json_string_value(v));
        else if (json_is_null(v))
            snprintf(value, 1024, "none");
        else {
            char *text = json_dumps(v, JSON_ENCODE_ANY);
            snprintf(value, 1024, "%s", text);
            free(text);
        }
        cli_add(l, word, value, NULL);
    }
}

static char *next_line(char **text)
{
    char *line = *text, *end = line ? strchr(line, '\n') : NULL;
    if (!line || !*line)
        return NULL;
    if (end)
        *end = '\0';
    *text = end ? end + 1 : NULL;
    return line;
}

static void compare_batches(const char *name, const char *golden, const char *shown)
{
    static const char *const keys[] = {"rank", "input_ids", "labels", "attention_mask", "position_ids"};
    char *want_text = cli_read(golden, NULL), *w = want_text, *got_text = trl_strdup(shown), *g = got_text, *line;
    int n = 0;
    for (; (line = next_line(&w)) != NULL; n++) {
        char *other = next_line(&g);
        json_t *want = json_loads(line, 0, NULL), *got = other ? json_loads(other, 0, NULL) : NULL;
        if (!got)
            fail_msg("%s: batch %d is missing", name, n);
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            const json_t *v = json_object_get(want, keys[k]);
            if (v && !json_equal(v, json_object_get(got, keys[k])))
                fail_msg("%s: batch %d: %s differs", name, n, keys[k]);
        }
        json_decref(want);
        json_decref(got);
    }
    assert_true(n > 0);
    if (next_line(&g))
        fail_msg("%s: more than %d batches", name, n);
    trl_free(want_text);
    trl_free(got_text);
}

static void test_show_batches(void **state)
{
    (void)state;
    static const char *const cases[] = {"pc-qwen2", "pack-bfd-gpt2", "pack-wrapped-smollm", "padding-free-qwen2", "messages-qwen3",
        "assistant-qwen3-template-file", "pad-multiple-llama"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char dir[1024];
        snprintf(dir, sizeof(dir), "%s", trl_test_data("golden/sft"));
        char path[1200];
        snprintf(path, sizeof(path), "%s/%s/result.json", dir, cases[i]);
        json_t *result = cli_read_json(path);
        const json_t *spec = json_object_get(result, "case");
        assert_null(json_object_get(spec, "rows"));
        struct cli_line l;
        struct cli_result r;
        cli_begin(&l, cli_model(json_string_value(json_object_get(spec, "model"))), cli_rows(json_string_value(json_object_get(spec, "data"))));
        cli_add(&l, "--per_device_train_batch_size", "4", NULL);
        add_options(&l, json_object_get(spec, "base"));
        add_options(&l, json_object_get(spec, "options"));
        cli_add(&l, "--show_batches", "3", "json", NULL);
        cli_run(&l, &r);
        if (r.code != 0)
            fail_msg("%s: %s", cases[i], r.err);
        snprintf(path, sizeof(path), "%s/%s/batches.jsonl", dir, cases[i]);
        compare_batches(cases[i], path, r.out);
        assert_false(cli_exists(cli_path("out"))); /* nothing is written */
        cli_release(&r);
        json_decref(result);
    }
    struct cli_line l;
    struct cli_result r;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("prompt_completion.jsonl"));
    cli_add(&l, "--show_batches", "1", NULL);
    cli_run(&l, &r);
    assert_int_equal(r.code, 0);
    cli_has(&r, r.out, "batch 0, rank 0: 8 rows", "positions: [0, 1, 2", "⟦", "⟧", NULL);
    cli_release(&r);
}

/* ---- what is written ---- */

static void test_metrics(void **state)
{
    (void)state;
    struct cli_line l;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--max_steps", "3", NULL);
    cli_expect(&l, 0, NULL);
    char *text = cli_read(cli_path("out/metrics.jsonl"), NULL), *p = text, *line;
    int n = 0;
    for (; (line = next_line(&p)) != NULL; n++) {
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        if (n == 0) {
            assert_string_equal(json_string_value(json_object_get(v, "trainer")), "sft");
            assert_int_equal(json_integer_value(json_object_get(v, "world_size")), 1);
            assert_int_equal(json_integer_value(json_object_get(v, "parameters")), 132672);
            assert_null(json_object_get(v, "step"));
        } else if (n <= 3) {
            static const char *const keys[] = {"loss", "grad_norm", "learning_rate", "num_tokens", "mean_token_accuracy", "entropy", "epoch"};
            assert_int_equal(json_integer_value(json_object_get(v, "step")), n);
            assert_true(json_number_value(json_object_get(v, "step_time")) > 0);
            assert_true(json_number_value(json_object_get(v, "tokens_per_second")) > 0);
            for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
                assert_true(json_is_number(json_object_get(v, keys[k])));
        } else {
            assert_true(json_is_number(json_object_get(v, "train_loss")));
        }
        json_decref(v);
    }
    assert_int_equal(n, 5);
    trl_free(text);
    json_t *s = cli_read_json(cli_path("out/trainer_state.json")); /* whatever save_strategy says */
    assert_int_equal(json_integer_value(json_object_get(s, "global_step")), 3);
    assert_int_equal(json_array_size(json_object_get(s, "log_history")), 4);
    json_decref(s);
    assert_false(cli_exists(cli_path("out/checkpoint-3")));
    assert_false(cli_exists(cli_path("out/runs")));
}

static int count_files(const char *dir, const char *word)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[2048];
        struct stat st;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.' || stat(path, &st) != 0)
            continue;
        n += S_ISDIR(st.st_mode) ? count_files(path, word) : strstr(e->d_name, word) && st.st_size > 100;
    }
    if (d)
        closedir(d);
    return n;
}

static void test_tensorboard(void **state)
{
    (void)state;
    struct cli_line l;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--report_to", "tensorboard", NULL);
    cli_expect(&l, 0, NULL);
    assert_int_equal(count_files(cli_path("out/runs"), "events.out.tfevents."), 1);
}

/* A whole model in one file after one in shards: only the new form is left, and it can be trained again. */
static void test_output_again(void **state)
{
    (void)state;
    struct cli_line l;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--max_shard_size", "200KB", NULL);
    cli_expect(&l, 0, NULL);
    assert_true(cli_exists(cli_path("out/model.safetensors.index.json")));
    assert_false(cli_exists(cli_path("out/model.safetensors")));
    trl_rmtree(cli_path("first"), NULL);
    assert_int_equal(rename(cli_path("out"), cli_path("first")), 0);
    cli_begin(&l, cli_path("first"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--output_dir", cli_path("first"), NULL);
    cli_expect(&l, 0, NULL);
    assert_false(cli_exists(cli_path("first/model.safetensors.index.json")));
    assert_true(cli_exists(cli_path("first/model.safetensors")));
    assert_int_equal(cli_leftovers(cli_path("first")), 0);
}

/* ---- folders that cannot be written ---- */

static void test_file_in_path(void **state)
{
    (void)state;
    struct cli_line l;
    cli_write_text(cli_path("file"), "x");
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--output_dir", cli_path("file"), NULL);
    cli_expect(&l, 1, "cannot create folder", cli_path("file"), NULL);
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--output_dir", cli_path("file/sub"), NULL);
    cli_expect(&l, 1, "cannot create folder", cli_path("file/sub"), NULL);
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--output_dir", "", NULL);
    cli_expect(&l, 2, "output_dir", "empty", NULL);
}

/* A small disk at cli_path("disk"); false (and why) when this user may not mount. */
static bool mount_disk(const char *options)
{
    struct trl_err err;
    assert_trl_ok(trl_mkdirs(cli_path("disk"), &err), &err);
    if (mount("none", cli_path("disk"), "tmpfs", 0, options) == 0)
        return true;
    fprintf(stderr, "skip: a small tmpfs cannot be mounted here: %s\n", strerror(errno));
    return false;
}

static int unmount_disk(void **state)
{
    (void)state;
    umount2(cli_path("disk"), MNT_DETACH);
    return 0;
}

static void begin_on_disk(struct cli_line *l)
{
    cli_begin(l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(l, "--output_dir", cli_path("disk/out"), NULL);
}

static void test_read_only(void **state)
{
    (void)state;
    if (!mount_disk("size=1m"))
        skip();
    assert_int_equal(mount("none", cli_path("disk"), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m"), 0);
    struct cli_line l;
    begin_on_disk(&l);
    cli_expect(&l, 1, cli_path("disk/out"), "Read-only file system", NULL);
    cli_add(&l, "--output_dir", cli_path("disk"), NULL);
    cli_expect(&l, 1, cli_path("disk"), "Read-only file system", NULL);
}

static void test_full_for_model(void **state)
{
    (void)state;
    if (!mount_disk("size=400k"))
        skip();
    struct cli_line l;
    begin_on_disk(&l);
    cli_expect(&l, 1, "cannot save the model", cli_path("disk/out"), "No space left on device", NULL);
    assert_false(cli_exists(cli_path("disk/out/config.json")));
    assert_false(cli_exists(cli_path("disk/out/model.safetensors")));
    assert_int_equal(cli_leftovers(cli_path("disk/out")), 0);
}

/* One checkpoint fits, a second does not: the first stays, and its run can go on elsewhere. */
static void test_full_for_checkpoint(void **state)
{
    (void)state;
    if (!mount_disk("size=2560k"))
        skip();
    struct cli_line l;
    begin_on_disk(&l);
    cli_add(&l, "--save_strategy", "steps", "--save_steps", "1", "--max_steps", "4", NULL);
    cli_expect(&l, 1, "cannot save checkpoint-2", cli_path("disk/out"), "No space left on device", NULL);
    assert_true(cli_exists(cli_path("disk/out/checkpoint-1/trl_manifest.json")));
    assert_false(cli_exists(cli_path("disk/out/checkpoint-2")));
    assert_int_equal(cli_leftovers(cli_path("disk/out")), 0);
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("lm_short.jsonl"));
    cli_add(&l, "--resume_from_checkpoint", cli_path("disk/out/checkpoint-1"), NULL);
    cli_expect(&l, 0, "resuming from ", "checkpoint-1 (step 1 of 2)", NULL);
}

/* Not even the log fits. */
static void test_full_for_log(void **state)
{
    (void)state;
    if (!mount_disk("size=8k"))
        skip();
    char *pages = trl_calloc(1, 8192);
    int fd = creat(cli_path("disk/filler"), 0600);
    ssize_t n = write(fd, pages, 8192);
    close(fd);
    trl_free(pages);
    assert_true(n > 0);
    struct cli_line l;
    begin_on_disk(&l);
    cli_expect(&l, 1, cli_path("disk/out"), "No space left on device", NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_show_batches),
    cmocka_unit_test(test_metrics),
    cmocka_unit_test(test_tensorboard),
    cmocka_unit_test(test_output_again),
    cmocka_unit_test(test_file_in_path),
    cmocka_unit_test_teardown(test_read_only, unmount_disk),
    cmocka_unit_test_teardown(test_full_for_model, unmount_disk),
    cmocka_unit_test_teardown(test_full_for_checkpoint, unmount_disk),
    cmocka_unit_test_teardown(test_full_for_log, unmount_disk),
};
CLI_TEST_MAIN(tests)
