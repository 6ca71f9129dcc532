/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes that trl-train starts by itself, the files of configs/, and what happens when one process fails. */
#include "cli-run.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fileio.h"
#include "base/str.h"

enum { MAX_SECONDS = 10 };

static const char *config_file(const char *name)
{
    char *p = (char *)(uintptr_t)cli_path("%s", "");
    const char *root = getenv("TRL_SOURCE_ROOT");
    snprintf(p, 1024, "%s/configs/%s", root ? root : ".", name);
    return p;
}

static void expect_world(int world)
{
    char *text = cli_read(cli_path("out/metrics.jsonl"), NULL), want[64];
    snprintf(want, sizeof(want), "\"world_size\": %d,", world);
    if (!strstr(text, want))
        fail_msg("not %d processes: %.500s", world, text);
    trl_free(text);
    assert_true(cli_exists(cli_path("out/model.safetensors")));
}

static void begin(struct cli_line *l)
{
    cli_begin(l, cli_model("tiny-smollm"), cli_rows("lm_short.jsonl"));
}

/* ---- configs/ ---- */

/* Files for GPUs: refused with advice, and the advice works. */
static void test_gpu_files(void **state)
{
    (void)state;
    static const char *const files[] = {"single_gpu.yaml", "multi_gpu.yaml"};
    for (size_t i = 0; i < 2; i++) {
        struct cli_line l = {.n = 0};
        trl_rmtree(cli_path("out"), NULL);
        cli_add(&l, "sft", "--model_name_or_path", cli_model("tiny-smollm"), "--dataset_name", cli_rows("lm_short.jsonl"), "--output_dir",
            cli_path("out"), "--max_steps", "2", "--accelerate_config", config_file(files[i]), NULL);
        cli_expect(&l, 2, files[i], "asks for GPUs", "--use_cpu true --num_processes 2", NULL);
        assert_false(cli_exists(cli_path("out")));
        cli_add(&l, "--use_cpu", "true", "--num_processes", "2", "--num_threads", "1", NULL);
        cli_expect(&l, 0, NULL);
        expect_world(2);
    }
}

/* num_processes of the file starts two; the run file takes any model and rows. */
static void test_cpu_files(void **state)
{
    (void)state;
    struct cli_line l;
    begin(&l);
    cli_add(&l, "--accelerate_config", config_file("multi_cpu.yaml"), NULL);
    cli_expect(&l, 0, NULL);
    expect_world(2);
    l.n = 0;
    trl_rmtree(cli_path("out"), NULL);
    cli_add(&l, "sft", "--config", config_file("sft.yaml"), "--model_name_or_path", cli_model("tiny-smollm"), "--dataset_name",
        cli_rows("lm_short.jsonl"), "--output_dir", cli_path("out"), "--max_steps", "2", "--num_threads", "1", NULL);
    cli_expect(&l, 0, NULL);
    expect_world(1);
    assert_true(cli_exists(cli_path("out/checkpoint-2")));
}

/* An accelerate file of one's own, from a run file. */
static void test_own_file(void **state)
{
    (void)state;
    char text[1200];
    cli_write_text(cli_path("mine.yaml"), "distributed_type: MULTI_CPU\nnum_processes: 3\nnum_machines: 1\nmixed_precision: 'no'\nuse_cpu: true\n");
    snprintf(text, sizeof(text), "accelerate_config: %s\n", cli_path("mine.yaml"));
    cli_write_text(cli_path("run.yaml"), text);
    struct cli_line l;
    begin(&l);
    cli_add(&l, "--config", cli_path("run.yaml"), NULL);
    cli_expect(&l, 0, NULL);
    expect_world(3);
    cli_write_text(cli_path("mine.yaml"), "distributed_type: MULTI_CPU\nnum_proceses: 3\n");
    begin(&l);
    cli_add(&l, "--config", cli_path("run.yaml"), NULL);
    cli_expect(&l, 2, "mine.yaml:2", "num_proceses", "num_processes", NULL);
}

/* The same layout gives the same bits. */
static void test_equal_bits(void **state)
{
    (void)state;
    struct cli_line l;
    begin(&l);
    cli_add(&l, "--num_processes", "2", NULL);
    cli_expect(&l, 0, NULL);
    trl_rmtree(cli_path("first"), NULL);
    assert_int_equal(rename(cli_path("out"), cli_path("first")), 0);
    begin(&l);
    cli_add(&l, "--num_processes", "2", NULL);
    cli_expect(&l, 0, NULL);
    cli_same_file(cli_path("first/model.safetensors"), cli_path("out/model.safetensors"));
}

/* Batches of both ranks, as the recorded run of two has them. */
static void test_show_batches(void **state)
{
    (void)state;
    struct cli_line l;
    struct cli_result r;
    begin(&l);
    cli_add(&l, "--num_processes", "2", "--per_device_train_batch_size", "2", "--show_batches", "2", "json", NULL);
    cli_run(&l, &r);
    assert_int_equal(r.code, 0);
    int ranks[2] = {0}, n = 0;
    for (const char *p = r.out; (p = strstr(p, "{\"rank\": ")) != NULL; p++, n++)
        ranks[p[9] == '1']++;
    assert_int_equal(n, 4);
    assert_int_equal(ranks[0], 2);
    assert_int_equal(ranks[1], 2);
    cli_release(&r);
}

/* ---- failures ---- */

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        n++;
    return n;
}

/* One message of ours (mpirun's own text may stand beside it), in time, nobody left. */
static void expect_end(struct cli_result *r, const char *message)
{
    if (r->code == 0 || count(r->err, message) != 1)
        fail_msg("exit code %d, '%s' %d times in:\n%.2500s", r->code, message, count(r->err, message), r->err);
    assert_true(count(r->err, "trl-train: ") + count(r->err, "error: ") == 1);
}

static void test_bad_row(void **state)
{
    (void)state;
    struct cli_line l;
    struct cli_result r;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("malformed/missing_column.jsonl"));
    cli_add(&l, "--num_processes", "2", NULL);
    cli_run(&l, &r);
    expect_end(&r, "missing_column.jsonl:3: ");
    cli_has(&r, r.err, "rank 0 on ", NULL);
    assert_int_equal(count(r.err, "rank 0 on "), 1);
    assert_int_equal(r.code, 2);
    assert_true(r.seconds < MAX_SECONDS);
    assert_false(cli_exists(cli_path("out")));
    cli_release(&r);
}

static void test_not_finite(void **state)
{
    (void)state;
    struct cli_line l;
    struct cli_result r;
    begin(&l);
    cli_add(&l, "--num_processes", "2", "--learning_rate", "1e30", "--max_grad_norm", "0", "--max_steps", "20", NULL);
    cli_run(&l, &r);
    expect_end(&r, "gradient norm is ");
    cli_has(&r, r.err, "rank ", " on ", "failed at step ", NULL);
    assert_int_equal(r.code, 1);
    assert_true(r.seconds < MAX_SECONDS);
    assert_false(cli_exists(cli_path("out/model.safetensors")));
    cli_release(&r);
}

static void test_full_disk(void **state)
{
    (void)state;
    struct trl_err err;
    assert_trl_ok(trl_mkdirs(cli_path("disk"), &err), &err);
    if (mount("none", cli_path("disk"), "tmpfs", 0, "size=1m") != 0)
        trl_test_skip("a small tmpfs cannot be mounted here");
    struct cli_line l;
    struct cli_result r;
    begin(&l);
    cli_add(&l, "--num_processes", "2", "--output_dir", cli_path("disk/out"), "--save_strategy", "steps", "--save_steps", "1", NULL);
    cli_run(&l, &r);
    int left = cli_leftovers(cli_path("disk/out"));
    umount2(cli_path("disk"), MNT_DETACH);
    expect_end(&r, "No space left on device");
    cli_has(&r, r.err, "rank 0 on ", "at step 1", "cannot save checkpoint-1", cli_path("disk/out"), NULL);
    assert_int_equal(r.code, 1);
    assert_true(r.seconds < MAX_SECONDS);
    assert_int_equal(left, 0);
    cli_release(&r);
}

static bool file_holds(const char *path, const char *word)
{
    char buf[65536];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(buf, 1, sizeof(buf), f) : 0;
    if (f)
        fclose(f);
    return n && memmem(buf, n, word, strlen(word));
}

/* The process of a rank of our run; 0: none. */
static pid_t find_rank(int rank)
{
    char path[300], open_mpi[64], pmi[64];
    const char *mine = cli_path("out");
    snprintf(open_mpi, sizeof(open_mpi), "OMPI_COMM_WORLD_RANK=%d", rank);
    snprintf(pmi, sizeof(pmi), "PMI_RANK=%d", rank);
    DIR *d = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *e; d && !found && (e = readdir(d)) != NULL;) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
        if (!file_holds(path, mine))
            continue;
        snprintf(path, sizeof(path), "/proc/%s/environ", e->d_name);
        if (file_holds(path, open_mpi) || file_holds(path, pmi))
            found = (pid_t)strtol(e->d_name, NULL, 10);
    }
    if (d)
        closedir(d);
    return found;
}

static void wait_for_steps(void)
{
    for (int ms = 0; ms < 30000 && trl_file_size(cli_path("out/metrics.jsonl")) < 2500; ms += 10)
        usleep(10000);
}

static pid_t start_long(struct cli_line *l)
{
    begin(l);
    cli_add(l, "--num_processes", "3", "--max_steps", "1000000", NULL);
    pid_t pid = cli_start(l);
    wait_for_steps();
    return pid;
}

static void test_kill(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim += 2) {
        struct cli_line l;
        struct cli_result r;
        char text[64];
        pid_t pid = start_long(&l), rank = find_rank(victim);
        assert_true(rank > 0);
        double before = trl_clock_now();
        kill(rank, SIGKILL);
        cli_finish(pid, &r);
        assert_true(trl_clock_now() - before < MAX_SECONDS);
        snprintf(text, sizeof(text), "rank %d of 3 on ", victim);
        expect_end(&r, text);
        cli_has(&r, r.err, "died at step ", NULL);
        cli_release(&r);
        for (int i = 0; i < 3; i++)
            assert_int_equal(find_rank(i), 0);
    }
}

/* A signal to what the user started: a checkpoint, 3, and the rest later. */
static void test_stop(void **state)
{
    (void)state;
    struct cli_line l;
    struct cli_result r;
    pid_t pid = start_long(&l);
    kill(pid, SIGTERM);
    cli_finish(pid, &r);
    if (r.code != 3)
        fail_msg("exit code %d instead of 3: %s", r.code, r.err);
    cli_has(&r, r.err, "stopped at step ", "resume_from_checkpoint true", NULL);
    assert_int_equal(count(r.err, "stopped at step "), 1);
    cli_release(&r);
    assert_false(cli_exists(cli_path("out/model.safetensors")));
    for (int i = 0; i < 3; i++)
        assert_int_equal(find_rank(i), 0);
}

/* The launcher itself is killed: its ranks do not stay behind. */
static void test_launcher_killed(void **state)
{
    (void)state;
    struct cli_line l;
    struct cli_result r;
    pid_t pid = start_long(&l);
    kill(pid, SIGKILL);
    cli_finish(pid, &r);
    assert_int_equal(r.code, -SIGKILL);
    cli_release(&r);
    for (int ms = 0; ms < MAX_SECONDS * 1000 && (find_rank(0) || find_rank(1) || find_rank(2)); ms += 50)
        usleep(50000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(find_rank(i), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gpu_files),
    cmocka_unit_test(test_cpu_files),
    cmocka_unit_test(test_own_file),
    cmocka_unit_test(test_equal_bits),
    cmocka_unit_test(test_show_batches),
    cmocka_unit_test(test_bad_row),
    cmocka_unit_test(test_not_finite),
    cmocka_unit_test(test_full_disk),
    cmocka_unit_test(test_kill),
    cmocka_unit_test(test_stop),
    cmocka_unit_test(test_launcher_killed),
};

int main(int argc, char **argv)
{
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI itself frees not all that it has */
    return cli_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
