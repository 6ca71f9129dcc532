/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 at random moments, also during a save: what is called checkpoint-N is always complete, and the final weights are always the
 * bits of the run that nobody disturbed.   test-train-crash TRL_TRAIN
 */
#include "../trl-test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fileio.h"
#include "base/rng.h"
#include "ckpt/ckpt.h"

enum { KILLS = 50 };

static const char *g_train;

static pid_t start(const char *out)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int fd = open("/dev/null", O_RDWR);
    dup2(fd, 0);
    dup2(fd, 1);
    dup2(fd, 2);
    char *model = trl_asprintf("%s", trl_test_data("golden/models/tiny-smollm"));
    char *data = trl_asprintf("%s", trl_test_data("golden/data/lm_short.jsonl"));
    execl(g_train, g_train, "sft", "--model_name_or_path", model, "--dataset_name", data, "--output_dir", out, "--use_cpu", "true",
        "--bf16", "false", "--max_steps", "30", "--save_steps", "1", "--save_total_limit", "3", "--logging_steps", "1",
        "--learning_rate", "1e-3", "--resume_from_checkpoint", "true", "--num_threads", "1", NULL);
    _exit(127);
}

/* Exit code, or -1 when a signal ended it. */
static int finish(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void check_folders(const char *out)
{
    DIR *d = opendir(out);
    struct trl_err err;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "checkpoint-", 11) != 0)
            continue;
        char *path = trl_path_join(out, e->d_name);
        assert_trl_ok(trl_ckpt_verify(path, NULL, &err), &err);
        trl_free(path);
    }
    if (d)
        closedir(d);
}

static char *weights(const char *out, size_t *ret_len)
{
    struct trl_err err;
    char *path = trl_path_join(out, "model.safetensors"), *data = NULL;
    assert_trl_ok(trl_file_read(path, 64 << 20, &data, ret_len, &err), &err);
    trl_free(path);
    return data;
}

static void test_kill(void **state)
{
    (void)state;
    char tmp[] = "/dev/shm/trl-crash.XXXXXX" /* its fsync costs nothing: more kills a second */;
    assert_non_null(mkdtemp(tmp));
    char *calm = trl_path_join(tmp, "calm"), *out = trl_path_join(tmp, "out");
    double begin = trl_clock_now();
    assert_int_equal(finish(start(calm)), 0);
    double whole = trl_clock_now() - begin;
    size_t want_len, len;
    char *want = weights(calm, &want_len);
    struct trl_mt rng;
    trl_mt_seed(&rng, 20240607);
    int kills = 0, completed = 0;
    while (kills < KILLS) {
        pid_t pid = start(out);
        usleep((useconds_t)(whole * 0.8e6 * trl_mt_uniform(&rng)));
        kill(pid, SIGKILL);
        int code = finish(pid);
        check_folders(out);
        if (code < 0) {
            kills++;
            continue;
        }
        assert_int_equal(code, 0);
        char *got = weights(out, &len);
        assert_int_equal(len, want_len);
        assert_memory_equal(got, want, len);
        trl_free(got);
        completed++;
        assert_int_equal(trl_rmtree(out, NULL), 0);
    }
    /* whatever the last kill left must still come to the same end */
    assert_int_equal(finish(start(out)), 0);
    char *got = weights(out, &len);
    assert_int_equal(len, want_len);
    assert_memory_equal(got, want, len);
    fprintf(stderr, "%d kills, %d undisturbed ends between them\n", kills, completed);
    trl_free(got);
    trl_free(want);
    trl_rmtree(tmp, NULL);
    trl_free(calm);
    trl_free(out);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 99;
    g_train = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kill)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
