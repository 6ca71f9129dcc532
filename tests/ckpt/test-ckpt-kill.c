/* SPDX-License-Identifier: Apache-2.0 */
/* kill -9 at random moments of a loop that does nothing but save: every checkpoint-N is complete, none that was reported is lost. */
#include "../trl-test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/rng.h"
#include "ckpt/ckpt.h"

enum { KILLS = 50, WORDS = 20000, LIMIT = 2 };

static uint64_t words[WORDS];

static void fill(int64_t step)
{
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = trl_hash_rng((uint64_t)step, i);
}

/* The child: goes on from the newest checkpoint, saves each step (some twice), reports what is committed. */
static void child(const char *dir, int report)
{
    struct trl_err err = {0};
    struct trl_ckpt_facts facts = {0};
    char *path = NULL;
    if (trl_ckpt_clean(dir, &err) != 0 || trl_ckpt_find(dir, "true", &path, &facts, &err) != 0)
        _exit(1);
    for (int64_t step = (path ? facts.step : 0) + 1;; step++) {
        for (int again = 0; again < (step % 3 == 0 ? 2 : 1); again++) {
            struct trl_ckpt *c;
            char *done = NULL;
            json_t *v = json_pack("{s:I}", "step", (json_int_t)step);
            fill(step);
            if (trl_ckpt_begin(&c, dir, step, &err) != 0 ||
                trl_ckpt_add_data(c, "weights", words, sizeof(words), &err) != 0 ||
                trl_ckpt_add_json(c, "trl_state.json", v, &err) != 0 || trl_ckpt_commit(c, 1, &done, &err) != 0)
                _exit(1);
            json_decref(v);
            if (write(report, &step, sizeof(step)) != sizeof(step) ||
                trl_ckpt_retain(dir, LIMIT, NULL, done, &err) != 0)
                _exit(1);
            trl_free(done);
        }
    }
}

static void check_content(const char *path, int64_t step)
{
    struct trl_err err;
    char *file = trl_path_join(path, "weights"), *data;
    size_t len;
    assert_trl_ok(trl_file_read(file, 1 << 20, &data, &len, &err), &err);
    fill(step);
    assert_int_equal(len, sizeof(words));
    assert_memory_equal(data, words, len);
    trl_free(data);
    trl_free(file);
}

/* every visible checkpoint is whole; returns how many */
static int check_all(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct trl_err err = {0};
        struct trl_ckpt_facts facts;
        if (strncmp(e->d_name, "checkpoint-", 11) != 0)
            continue;
        char *path = trl_path_join(dir, e->d_name);
        assert_trl_ok(trl_ckpt_verify(path, &facts, &err), &err);
        assert_int_equal(facts.step, atoll(e->d_name + 11));
        check_content(path, facts.step);
        trl_free(path);
        n++;
    }
    closedir(d);
    return n;
}

static void test_kill(void **state)
{
    (void)state;
    char dir[256];
    const char *tmp = getenv("TMPDIR");
    struct trl_mt rng;
    struct trl_err err;
    int64_t reported = 0, step;
    int before = LIMIT;
    snprintf(dir, sizeof(dir), "%s/trl-kill-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    trl_mt_seed(&rng, 20250101);
    for (int k = 0; k < KILLS; k++) {
        int fds[2], status;
        assert_int_equal(pipe(fds), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(fds[0]);
            child(dir, fds[1]);
        }
        close(fds[1]);
        usleep(trl_mt_next(&rng) % 40000);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        while (read(fds[0], &step, sizeof(step)) == sizeof(step))
            reported = step;
        close(fds[0]);

        /* before any cleaning: what is visible is whole; at most LIMIT and the one just written, or one more than the
         * former child left when each was killed right behind a rename */
        int visible = check_all(dir);
        assert_true(visible <= before + 1);
        before = visible > LIMIT ? visible : LIMIT;
        assert_trl_ok(trl_ckpt_clean(dir, &err), &err);
        char *path;
        struct trl_ckpt_facts facts = {0};
        assert_trl_ok(trl_ckpt_find(dir, "true", &path, &facts, &err), &err);
        assert_true(facts.step >= reported);
        trl_free(path);
    }
    assert_true(reported > 0);
    /* nothing but checkpoints is left */
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            assert_int_equal(strncmp(e->d_name, "checkpoint-", 11), 0);
    closedir(d);
    assert_trl_ok(trl_rmtree(dir, &err), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
