/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint folders: what is written, what is refused, what is deleted. */
#include "../trl-test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "ckpt/ckpt.h"
#include "ckpt/hash.h"

static char dir[256];

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/trl-ckpt-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return trl_rmtree(dir, NULL);
}

static const char *in_dir(const char *name)
{
    static char buf[4][1024];
    static int next;
    char *p = buf[next++ % 4];
    snprintf(p, sizeof(buf[0]), "%s/%s", dir, name);
    return p;
}

static void write_one(int64_t step)
{
    struct trl_err err;
    struct trl_ckpt *c;
    char *path = NULL, want[64];
    json_t *v = json_pack("{s:I, s:f}", "step", (json_int_t)step, "a", 0.1);
    assert_trl_ok(trl_ckpt_begin(&c, dir, step, &err), &err);
    assert_trl_ok(trl_ckpt_add_json(c, "trl_state.json", v, &err), &err);
    assert_trl_ok(trl_ckpt_add_data(c, "weights", "0123456789abcdef0123456789abcdef0", 33, &err), &err);
    assert_trl_ok(trl_ckpt_add_copy(c, trl_test_data("golden/data/lm_short.jsonl"), "rows", &err), &err);
    assert_trl_ok(trl_ckpt_commit(c, 4, &path, &err), &err);
    snprintf(want, sizeof(want), "checkpoint-%lld", (long long)step);
    assert_string_equal(path, in_dir(want));
    json_decref(v);
    trl_free(path);
}

static int count_entries(void)
{
    char cmd[512];
    int n = -1;
    snprintf(cmd, sizeof(cmd), "ls -A '%s' | wc -l", dir);
    FILE *f = popen(cmd, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static void test_hash(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {{"", 0xef46db3751d8e999}, {"a", 0xd24ec4f1a98c6e5b}, {"abc", 0x44bc2cf5ad770999},
        {"Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1}};
    struct trl_xxh64 h;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trl_xxh64_init(&h);
        trl_xxh64_update(&h, cases[i].text, strlen(cases[i].text));
        assert_true(trl_xxh64_get(&h) == cases[i].want);
        /* in pieces of every size */
        for (size_t step = 1; step < 40; step++) {
            trl_xxh64_init(&h);
            for (size_t at = 0, n = strlen(cases[i].text); at < n; at += step)
                trl_xxh64_update(&h, cases[i].text + at, n - at < step ? n - at : step);
            assert_true(trl_xxh64_get(&h) == cases[i].want);
        }
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_ckpt_facts facts = {0};
    char *path;
    json_t *v;
    assert_trl_ok(trl_ckpt_find(dir, "true", &path, &facts, &err), &err);
    assert_null(path);
    assert_trl_ok(trl_ckpt_find(in_dir("nowhere"), "True", &path, &facts, &err), &err);
    assert_null(path);
    write_one(3);
    write_one(12);
    write_one(12); /* replaced */
    assert_int_equal(count_entries(), 2);
    assert_trl_ok(trl_ckpt_find(dir, "true", &path, &facts, &err), &err);
    assert_string_equal(path, in_dir("checkpoint-12"));
    assert_int_equal(facts.step, 12);
    assert_int_equal(facts.world, 4);
    assert_trl_ok(trl_ckpt_read_json(path, "trl_state.json", &v, &err), &err);
    assert_int_equal(json_integer_value(json_object_get(v, "step")), 12);
    json_decref(v);
    trl_free(path);
    assert_trl_ok(trl_ckpt_find(dir, in_dir("checkpoint-3"), &path, &facts, &err), &err);
    assert_int_equal(facts.step, 3);
    trl_free(path);
    assert_trl_ok(trl_ckpt_find(dir, "false", &path, NULL, &err), &err);
    assert_null(path);
    assert_trl_ok(trl_ckpt_find(dir, NULL, &path, NULL, &err), &err);
    assert_null(path);
    assert_int_equal(trl_ckpt_find(dir, in_dir("checkpoint-4"), &path, NULL, &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text, "checkpoint-4 does not exist"));
    /* a folder that is being written is not found, and goes with abort */
    struct trl_ckpt *c;
    assert_trl_ok(trl_ckpt_begin(&c, dir, 99, &err), &err);
    assert_int_equal(count_entries(), 3);
    assert_trl_ok(trl_ckpt_find(dir, "true", &path, &facts, &err), &err);
    assert_int_equal(facts.step, 12);
    trl_free(path);
    trl_ckpt_abort(c);
    assert_int_equal(count_entries(), 2);
}

static void overwrite(const char *name, const char *text, int flags)
{
    int fd = open(in_dir(name), O_WRONLY | flags, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
    close(fd);
}

static void must_break(const char *text)
{
    struct trl_err err = {0};
    char *path;
    struct trl_ckpt_facts facts;
    assert_true(trl_ckpt_verify(in_dir("checkpoint-2"), NULL, &err) != 0);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" lacks \"%s\"", err.text, text);
    assert_trl_ok(trl_ckpt_find(dir, "true", &path, &facts, &err), &err);
    assert_int_equal(facts.step, 1); /* the older one */
    trl_free(path);
}

static void test_damage(void **state)
{
    (void)state;
    struct trl_err err;
    write_one(1);
    write_one(2);
    overwrite("checkpoint-2/weights", "x", 0);
    must_break("is damaged");
    write_one(2);
    overwrite("checkpoint-2/weights", "x", O_APPEND);
    must_break("has 34 bytes, but had 33");
    write_one(2);
    assert_int_equal(unlink(in_dir("checkpoint-2/weights")), 0);
    must_break("weights is missing");
    write_one(2);
    assert_int_equal(truncate(in_dir("checkpoint-2/trl_manifest.json"), 20), 0);
    must_break("trl_manifest.json:");
    overwrite("checkpoint-2/trl_manifest.json", "{\"format\": 2}", O_TRUNC);
    must_break("\"format\" is not 1");
    overwrite("checkpoint-2/trl_manifest.json", "{\"format\": 1, \"step\": -1, \"world\": 1, \"files\": {}}", O_TRUNC);
    must_break("malformed");
    static const char *const names[] = {"../x", "a/../../x", "/etc/passwd", "", "a/.."};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "{\"format\":1,\"step\":1,\"world\":1,\"files\":{\"%s\":{\"size\":1,\"xxh64\":\"0\"}}}", names[i]);
        overwrite("checkpoint-2/trl_manifest.json", text, O_TRUNC);
        must_break("malformed entry");
    }
    assert_int_equal(unlink(in_dir("checkpoint-2/trl_manifest.json")), 0);
    must_break("has no trl_manifest.json");
    write_one(2); /* a broken one can be replaced */
    assert_trl_ok(trl_ckpt_verify(in_dir("checkpoint-2"), NULL, &err), &err);
}

static bool has(int step)
{
    char name[64];
    snprintf(name, sizeof(name), "checkpoint-%d", step);
    return trl_path_exists(in_dir(name));
}

static void test_retention(void **state)
{
    (void)state;
    struct trl_err err;
    for (int i = 1; i <= 5; i++)
        write_one(i * 10);
    assert_trl_ok(trl_ckpt_retain(dir, 0, NULL, NULL, &err), &err);
    assert_int_equal(count_entries(), 5);
    assert_int_equal(mkdir(in_dir("checkpoint-best"), 0777), 0); /* not ours */
    assert_trl_ok(trl_ckpt_retain(dir, 3, in_dir("checkpoint-10/"), in_dir("checkpoint-50"), &err), &err);
    assert_true(has(10) && !has(20) && !has(30) && has(40) && has(50));
    assert_trl_ok(trl_ckpt_retain(dir, 1, "checkpoint-10", NULL, &err), &err);
    assert_true(has(10) && !has(40) && has(50));
    assert_trl_ok(trl_ckpt_retain(dir, 1, NULL, NULL, &err), &err);
    assert_true(!has(10) && has(50));
    /* what an earlier run left goes first, though its number is higher */
    write_one(60);
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, in_dir("checkpoint-60/trl_manifest.json"), old, 0), 0);
    write_one(5);
    assert_trl_ok(trl_ckpt_retain(dir, 2, NULL, in_dir("checkpoint-5"), &err), &err);
    assert_true(has(5) && has(50) && !has(60));
    assert_true(trl_path_exists(in_dir("checkpoint-best")));
    assert_int_equal(count_entries(), 3);
    assert_trl_ok(trl_ckpt_retain(in_dir("nowhere"), 2, NULL, NULL, &err), &err);
}

static void test_clean(void **state)
{
    (void)state;
    struct trl_err err;
    char host[128], name[256];
    gethostname(host, sizeof(host));
    write_one(7);
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    waitpid(dead, NULL, 0);
    static const char *const kinds[] = {"tmp", "del", "old"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), ".%s-checkpoint-7-%s-%ld", kinds[i], host, (long)dead);
        assert_int_equal(mkdir(in_dir(name), 0777), 0);
    }
    /* alive, another host's, not ours: stay */
    snprintf(name, sizeof(name), ".tmp-checkpoint-8-%s-1", host);
    assert_int_equal(mkdir(in_dir(name), 0777), 0);
    assert_int_equal(mkdir(in_dir(".tmp-checkpoint-8-some-other-host-99"), 0777), 0);
    assert_int_equal(mkdir(in_dir(".tmp-checkpoint-8"), 0777), 0);
    assert_int_equal(mkdir(in_dir(".tmp-something"), 0777), 0);
    assert_trl_ok(trl_ckpt_clean(dir, &err), &err);
    assert_int_equal(count_entries(), 5);
    /* a replacement died between its two renames: the old one comes back */
    snprintf(name, sizeof(name), ".old-checkpoint-7-%s-%ld", host, (long)dead);
    assert_int_equal(rename(in_dir("checkpoint-7"), in_dir(name)), 0);
    assert_trl_ok(trl_ckpt_clean(dir, &err), &err);
    assert_trl_ok(trl_ckpt_verify(in_dir("checkpoint-7"), NULL, &err), &err);
    assert_trl_ok(trl_ckpt_clean(in_dir("nowhere"), &err), &err);
}

/* writes fail as on a full disk: nothing is left, what was there stays */
static void test_full(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_ckpt *c;
    struct rlimit old, small;
    static char big[300000];
    write_one(1);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 100000;
    assert_trl_ok(trl_ckpt_begin(&c, dir, 2, &err), &err);
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = trl_ckpt_add_data(c, "weights", big, sizeof(big), &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, TRL_E_IO);
    assert_non_null(strstr(err.text, "weights"));
    trl_ckpt_abort(c);
    assert_int_equal(count_entries(), 1);
    assert_trl_ok(trl_ckpt_verify(in_dir("checkpoint-1"), NULL, &err), &err);
    /* the manifest cannot be written */
    assert_trl_ok(trl_ckpt_begin(&c, dir, 2, &err), &err);
    assert_trl_ok(trl_ckpt_add_data(c, "weights", big, 10, &err), &err);
    small.rlim_cur = 5;
    setrlimit(RLIMIT_FSIZE, &small);
    rc = trl_ckpt_commit(c, 1, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, TRL_E_IO);
    assert_non_null(strstr(err.text, "checkpoint of step 2"));
    assert_int_equal(count_entries(), 1);
    /* no folder can be made */
    assert_true(trl_ckpt_begin(&c, in_dir("checkpoint-1/weights/out"), 2, &err) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retention, setup, teardown),
        cmocka_unit_test_setup_teardown(test_clean, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
