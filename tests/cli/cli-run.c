/* SPDX-License-Identifier: Apache-2.0 */
#include "cli-run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/fileio.h"
#include "base/json.h"

static const char *g_train;
static char g_dir[64];
static double g_started;
static struct trl_arena g_words;

int cli_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
    if (argc != 2)
        return 99;
    g_train = argv[1];
    snprintf(g_dir, sizeof(g_dir), "%s/trl-cli.XXXXXX", trl_path_is_dir("/dev/shm") ? "/dev/shm" : "/tmp");
    if (!mkdtemp(g_dir)) {
        perror(g_dir);
        return 99;
    }
    trl_test_output();
    int rc = _cmocka_run_group_tests("cli", tests, n, NULL, NULL);
    trl_rmtree(g_dir, NULL);
    trl_arena_release(&g_words);
    return rc;
}

/* lives until the test program ends: command lines keep the words */
static char *next_buffer(void)
{
    char *p = trl_arena_alloc(&g_words, 1024);
    assert_non_null(p);
    return p;
}

const char *cli_path(const char *fmt, ...)
{
    char *p = next_buffer();
    int n = snprintf(p, 1024, "%s/", g_dir);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p + n, 1024 - (size_t)n, fmt, ap);
    va_end(ap);
    return p;
}

static const char *golden(const char *folder, const char *name)
{
    char *p = next_buffer();
    const char *root = getenv("TRL_TEST_DATA");
    snprintf(p, 1024, "%s/golden/%s/%s", root ? root : "tests/data", folder, name);
    return p;
}

const char *cli_model(const char *name)
{
    return golden("models", name);
}

const char *cli_rows(const char *name)
{
    return golden("data", name);
}

/* ---- command lines ---- */

static void add_word(struct cli_line *l, const char *word)
{
    assert_true(l->n < CLI_MAX_WORDS - 1);
    l->words[l->n++] = word;
    l->words[l->n] = NULL;
}

void cli_add(struct cli_line *l, ...)
{
    va_list ap;
    va_start(ap, l);
    for (const char *w; (w = va_arg(ap, const char *)) != NULL;)
        add_word(l, w);
    va_end(ap);
}

void cli_begin(struct cli_line *l, const char *model, const char *rows)
{
    const char *out = cli_path("out");
    trl_rmtree(out, NULL);
    l->n = 0;
    cli_add(l, "sft", "--model_name_or_path", model, "--dataset_name", rows, "--output_dir", out, "--use_cpu", "true", "--bf16", "false",
        "--max_steps", "2", "--save_strategy", "no", "--logging_steps", "1", "--num_threads", "1", "--report_to", "none", NULL);
}

static void redirect(const char *path, int to)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    dup2(fd, to);
}

pid_t cli_start(const struct cli_line *l)
{
    const char *out = cli_path("stdout"), *err = cli_path("stderr");
    g_started = trl_clock_now();
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    char *argv[CLI_MAX_WORDS + 1] = {(char *)(uintptr_t)g_train};
    for (int i = 0; i < l->n; i++)
        argv[1 + i] = (char *)(uintptr_t)l->words[i];
    redirect("/dev/null", 0);
    redirect(out, 1);
    redirect(err, 2);
    execv(g_train, argv);
    _exit(127);
}

void cli_finish(pid_t pid, struct cli_result *ret)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    ret->seconds = trl_clock_now() - g_started;
    ret->code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    ret->out = cli_read(cli_path("stdout"), NULL);
    ret->err = cli_read(cli_path("stderr"), NULL);
}

void cli_run(const struct cli_line *l, struct cli_result *ret)
{
    cli_finish(cli_start(l), ret);
}

void cli_release(struct cli_result *r)
{
    trl_free(r->out);
    trl_free(r->err);
    *r = (struct cli_result){0};
}

/* ---- what it says ---- */

static void check_words(const struct cli_result *r, const char *text, va_list ap)
{
    for (const char *w; (w = va_arg(ap, const char *)) != NULL;)
        if (!strstr(text, w))
            fail_msg("'%s' is missing; exit code %d, it said:\n%.1500s\n%.500s", w, r->code, r->err, r->out);
}

void cli_has(const struct cli_result *r, const char *text, ...)
{
    va_list ap;
    va_start(ap, text);
    check_words(r, text, ap);
    va_end(ap);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p += strlen(word))
        n++;
    return n;
}

void cli_expect(const struct cli_line *l, int code, ...)
{
    struct cli_result r;
    cli_run(l, &r);
    if (r.code != code)
        fail_msg("exit code %d instead of %d; it said:\n%.1500s\n%.500s", r.code, code, r.err, r.out);
    va_list ap;
    va_start(ap, code);
    check_words(&r, r.err, ap);
    va_end(ap);
    if (code == 1 || code == 2) {
        if (count(r.err, "trl-train: ") != 1 && count(r.err, "error: ") != 1)
            fail_msg("not one message:\n%.1500s", r.err);
        assert_false(cli_exists(cli_path("out/model.safetensors")));
        assert_false(cli_exists(cli_path("out/config.json")));
        assert_int_equal(cli_leftovers(cli_path("out")), 0);
    }
    cli_release(&r);
}

/* ---- files ---- */

void cli_write(const char *path, const void *data, size_t len)
{
    struct trl_err err;
    assert_trl_ok(trl_file_write_atomic(path, data, len, &err), &err);
}

void cli_write_text(const char *path, const char *text)
{
    cli_write(path, text, strlen(text));
}

char *cli_read(const char *path, size_t *ret_len)
{
    struct trl_err err;
    char *data = NULL;
    size_t len = 0;
    assert_trl_ok(trl_file_read(path, (size_t)256 << 20, &data, &len, &err), &err);
    if (ret_len)
        *ret_len = len;
    return data;
}

void cli_copy_dir(const char *from, const char *to)
{
    struct trl_err err;
    char src[2048], dst[2048];
    trl_rmtree(to, NULL);
    assert_trl_ok(trl_mkdirs(to, &err), &err);
    DIR *d = opendir(from);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        size_t len;
        snprintf(src, sizeof(src), "%s/%s", from, e->d_name);
        snprintf(dst, sizeof(dst), "%s/%s", to, e->d_name);
        char *data = cli_read(src, &len);
        cli_write(dst, data, len);
        trl_free(data);
    }
    closedir(d);
}

json_t *cli_read_json(const char *path)
{
    struct trl_err err;
    size_t len;
    char *text = cli_read(path, &len);
    json_t *v = NULL;
    assert_trl_ok(trl_json_parse(text, len, path, &v, &err), &err);
    trl_free(text);
    return v;
}

bool cli_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

int cli_leftovers(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && (e->d_name[0] == '.' || strstr(e->d_name, "tmp"))) {
            fprintf(stderr, "left over: %s/%s\n", dir, e->d_name);
            n++;
        }
    if (d)
        closedir(d);
    return n;
}

void cli_same_file(const char *a, const char *b)
{
    size_t n, m;
    char *x = cli_read(a, &n), *y = cli_read(b, &m);
    if (n != m || memcmp(x, y, n))
        fail_msg("%s and %s differ", a, b);
    trl_free(x);
    trl_free(y);
}
