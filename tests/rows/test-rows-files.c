/* SPDX-License-Identifier: Apache-2.0 */
/* Which files make which split: the choices of datasets' get_data_patterns(). */
#include "rows-helpers.h"

#include <unistd.h>

#include "data/rows.h"

static char g_root[64];

static void touch(const char *rel)
{
    char path[512];
    struct trl_err err = {0};
    snprintf(path, sizeof(path), "%s/%s", g_root, rel);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_trl_ok(trl_mkdirs(path, &err), &err);
    *slash = '/';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

static int setup(void **state)
{
    (void)state;
    strcpy(g_root, "/tmp/trl-files-XXXXXX");
    return mkdtemp(g_root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    struct trl_err err = {0};
    return trl_rmtree(g_root, &err);
}

/* want: names separated by spaces, relative to the root; NULL: an error whose text holds `why` */
static void find(const char *sub, const char *split, const char *want, const char *why)
{
    char path[512];
    struct trl_files f = {0};
    struct trl_err err = {0};
    struct trl_str got = {0};
    snprintf(path, sizeof(path), "%s/%s", g_root, sub);
    int rc = trl_files_find(&f, &(struct trl_files_spec){.path = path, .split = split, .option = "dataset_name"}, &err);
    for (size_t i = 0; i < f.n; i++)
        trl_str_printf(&got, "%s%s", i ? " " : "", f.path[i] + strlen(g_root) + 1 + (f.path[i][strlen(g_root) + 1] == '/'));
    if (want) {
        assert_trl_ok(rc, &err);
        assert_string_equal(trl_str_get(&got), want);
    } else {
        assert_true(rc < 0);
        if (!strstr(err.text, why))
            fail_msg("%s: %s", why, err.text);
    }
    trl_str_release(&got);
    trl_files_release(&f);
}

static void test_names(void **state)
{
    (void)state;
    touch("a/train.jsonl");
    touch("a/training-2.jsonl");
    touch("a/my_train_part.jsonl.gz");
    touch("a/test.jsonl");
    touch("a/lm_eval.jsonl");
    touch("a/val.jsonl");
    touch("a/other.jsonl");
    touch("a/README.md");
    touch("a/.hidden/train.jsonl");
    touch("a/device.csv");
    find("a", "train", "a/train.jsonl a/my_train_part.jsonl.gz a/training-2.jsonl", NULL);
    find("a", "test", "a/test.jsonl a/lm_eval.jsonl", NULL);
    find("a", "validation", "a/val.jsonl", NULL);
    find("a", "dev", NULL, "'train', 'validation', 'test'");
}

static void test_folders_and_shards(void **state)
{
    (void)state;
    touch("b/test/x.jsonl");
    touch("b/train/y.jsonl");
    touch("b/train/deep/z.jsonl");
    touch("b/lm-train-2/w.jsonl");
    find("b", "train", "b/lm-train-2/w.jsonl b/train/deep/z.jsonl b/train/y.jsonl", NULL);
    find("b", "test", "b/test/x.jsonl", NULL);
    touch("c/data/en-00000-of-00002.jsonl");
    touch("c/data/en-00001-of-00002.jsonl");
    touch("c/data/train.jsonl");
    find("c", "en", "c/data/en-00000-of-00002.jsonl c/data/en-00001-of-00002.jsonl", NULL);
    find("c", "train", NULL, "no split 'train'");
    touch("d/b.jsonl");
    touch("d/a.jsonl");
    find("d", "train", "d/a.jsonl d/b.jsonl", NULL);
    find("d", "test", NULL, "no split 'test'");
    touch("e/notes.txt");
    find("e", "train", NULL, "holds no");
}

static void test_files_and_globs(void **state)
{
    (void)state;
    touch("f/eval-1.jsonl");
    touch("f/eval-2.jsonl");
    find("f/eval-1.jsonl", "train", "f/eval-1.jsonl", NULL);
    find("f/eval-1.jsonl", "test", NULL, "no split");
    find("f/eval-*.jsonl", "train", "f/eval-1.jsonl f/eval-2.jsonl", NULL);
    find("f/none-*.jsonl", "train", NULL, "matches no file");
    find("g/nothing", "train", NULL, "no such file");
    touch("h/train-1.jsonl");
    touch("h/test-1.jsonl");
    find("h/*.jsonl", "train", "h/train-1.jsonl", NULL);
    find("h/*.jsonl", "test", "h/test-1.jsonl", NULL);
    find("h", "train[:10%]", NULL, "slices");
}

static void test_data_files(void **state)
{
    (void)state;
    touch("i/sub/one.jsonl");
    touch("i/sub/two.jsonl");
    char path[128], glob[192];
    snprintf(path, sizeof(path), "%s/i", g_root);
    snprintf(glob, sizeof(glob), "%s/i/sub/*.jsonl", g_root);
    struct trl_files f = {0};
    struct trl_err err = {0};
    json_t *files = json_pack("{s:[s], s:s}", "train", "sub/one.jsonl", "test", "sub/two.jsonl");
    struct trl_files_spec spec = {.path = path, .data_files = files, .split = "test", .option = "datasets"};
    assert_trl_ok(trl_files_find(&f, &spec, &err), &err);
    assert_int_equal(f.n, 1);
    assert_non_null(strstr(f.path[0], "two"));
    trl_files_release(&f);
    spec.split = "dev";
    assert_int_equal(trl_files_find(&f, &spec, &err), TRL_E_NOENT);
    json_decref(files);
    files = json_string(glob);
    spec = (struct trl_files_spec){.path = "json", .data_files = files, .split = "train", .option = "datasets"};
    assert_trl_ok(trl_files_find(&f, &spec, &err), &err);
    assert_int_equal(f.n, 2);
    trl_files_release(&f);
    json_decref(files);
    spec = (struct trl_files_spec){.path = path, .data_dir = "sub", .split = "train", .option = "datasets"};
    assert_trl_ok(trl_files_find(&f, &spec, &err), &err);
    assert_int_equal(f.n, 2);
    trl_files_release(&f);
    spec = (struct trl_files_spec){.path = "json", .split = "train", .option = "datasets"};
    assert_int_equal(trl_files_find(&f, &spec, &err), TRL_E_USAGE);
    spec = (struct trl_files_spec){.path = "trl-lib/Capybara", .split = "train", .option = "dataset_name"};
    assert_int_equal(trl_files_find(&f, &spec, &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text, "hf download"));
    files = json_integer(3);
    spec = (struct trl_files_spec){.path = path, .data_files = files, .split = "train", .option = "datasets"};
    assert_int_equal(trl_files_find(&f, &spec, &err), TRL_E_USAGE);
    json_decref(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_folders_and_shards),
        cmocka_unit_test(test_files_and_globs),
        cmocka_unit_test(test_data_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, setup, teardown);
}
