/* SPDX-License-Identifier: Apache-2.0 */
#include "train-run.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "base/str.h"

enum { MAX_ARGS = 128, MAX_SERIES = 256 };

static const char *g_train;
static char g_tmp[] = "/dev/shm/trl-runs.XXXXXX"; /* fsync costs nothing there */

static void remove_tmp(void)
{
    trl_rmtree(g_tmp, NULL);
}

int train_run_init(int argc, char **argv)
{
    if (argc != 2 || !mkdtemp(g_tmp))
        return 99;
    g_train = argv[1];
    atexit(remove_tmp);
    return 0;
}

char *train_run_path(const char *name)
{
    char *p = trl_path_join(g_tmp, name);
    assert_non_null(p);
    return p;
}

/* ---- starting ---- */

struct args {
    char *v[MAX_ARGS];
    int n;
};

static void add(struct args *a, const char *word, size_t len)
{
    assert_true(a->n < MAX_ARGS - 1);
    char *text = trl_strndup(word, len);
    assert_non_null(text);
    if (text[0] == '@') {
        char *path = strncmp(text, "@out/", 5) == 0 ? train_run_path(text + 5)
                                                    : trl_asprintf("%s/%s", trl_test_data("golden"), text + 1);
        trl_free(text);
        text = path;
    }
    a->v[a->n++] = text;
    a->v[a->n] = NULL;
}

static void add_line(struct args *a, const char *line)
{
    while (*(line += strspn(line, " "))) {
        size_t len = strcspn(line, " ");
        add(a, line, len);
        line += len;
    }
}

static int start(struct args *a, const char *name)
{
    char *log = trl_asprintf("%s/%s.log", g_tmp, name);
    assert_non_null(log);
    pid_t pid = fork();
    if (pid == 0) {
        int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(in, 0);
        dup2(out, 1);
        dup2(out, 2);
        for (int i = 0; i < a->n; i++)
            if (strcmp(a->v[i], "--num_processes") == 0)
                setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* Open MPI keeps some memory */
        execv(g_train, a->v);
        _exit(127);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    trl_free(log);
    assert_true(pid > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

__attribute__((format(printf, 2, 0))) static int run(const char *name, const char *fmt, va_list ap)
{
    static const char base[] = "--model_name_or_path @models/tiny-smollm --dataset_name @data/lm_short.jsonl --use_cpu true "
        "--bf16 false --learning_rate 1e-3 --num_threads 1 --logging_steps 1 --save_strategy no --max_steps 6 --report_to none";
    struct args a = {0};
    char line[2048], out[128];
    vsnprintf(line, sizeof(line), fmt, ap);
    add_line(&a, "trl-train sft");
    add_line(&a, base);
    snprintf(out, sizeof(out), "--output_dir @out/%s", name);
    add_line(&a, out);
    add_line(&a, line);
    int code = start(&a, name);
    for (int i = 0; i < a.n; i++)
        trl_free(a.v[i]);
    return code;
}

int train_run_status(const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int code = run(name, fmt, ap);
    va_end(ap);
    return code;
}

void train_run(const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int code = run(name, fmt, ap);
    va_end(ap);
    if (code == 0)
        return;
    size_t len;
    char *text = train_run_text(name, ".log", &len);
    fail_msg("run %s (%s) ended with %d: %s", name, fmt, code, text + (len > 2000 ? len - 2000 : 0)); /* does not return */
}

/* ---- what it left ---- */

char *train_run_text(const char *name, const char *suffix, size_t *ret_len)
{
    struct trl_err err = {0};
    char *path = trl_asprintf("%s/%s%s", g_tmp, name, suffix), *text = NULL;
    size_t len = 0;
    assert_trl_ok(trl_file_read(path, 64 << 20, &text, &len, &err), &err);
    trl_free(path);
    if (ret_len)
        *ret_len = len;
    return text;
}

double train_run_number(const char *name, const char *key)
{
    char *text = train_run_text(name, ".log", NULL), *at = strstr(text, key);
    if (!at)
        fail_msg("%s printed no '%s': %s", name, key, text);
    double v = strtod(at + strlen(key), NULL);
    trl_free(text);
    return v;
}

json_t *train_run_history(const char *name)
{
    size_t len;
    char *text = train_run_text(name, "/trainer_state.json", &len);
    struct trl_err err;
    json_t *state = NULL, *log;
    assert_trl_ok(trl_json_parse(text, len, name, &state, &err), &err); /* knows NaN, as Python's writer does */
    log = json_object_get(state, "log_history");
    trl_free(text);
    assert_true(json_is_array(log));
    json_incref(log);
    json_decref(state);
    return log;
}

int train_run_series(const char *name, const char *key, double *ret, int max)
{
    json_t *log = train_run_history(name), *v;
    size_t i;
    int n = 0;
    json_array_foreach(log, i, v)
    {
        const json_t *x = json_object_get(v, key);
        if (!json_object_get(v, "loss") || !x)
            continue;
        assert_true(n < max);
        assert_true(trl_json_number(x, &ret[n]));
        n++;
    }
    json_decref(log);
    return n;
}

static json_t *without_clocks(const char *name)
{
    static const char *const clocks[] = {"_runtime", "_per_second"};
    json_t *log = train_run_history(name), *v, *x;
    size_t i;
    json_array_foreach(log, i, v)
    {
        const char *key;
        void *next;
        json_object_foreach_safe(v, next, key, x)
        {
            for (int k = 0; k < 2; k++)
                if (strlen(key) > strlen(clocks[k]) && strcmp(key + strlen(key) - strlen(clocks[k]), clocks[k]) == 0) {
                    json_object_del(v, key);
                    break;
                }
        }
    }
    return log;
}

void train_run_assert_same(const char *a, const char *b)
{
    size_t na, nb;
    char *wa = train_run_text(a, "/model.safetensors", &na), *wb = train_run_text(b, "/model.safetensors", &nb);
    assert_int_equal(na, nb);
    if (memcmp(wa, wb, na) != 0)
        fail_msg("%s and %s: the weights differ", a, b);
    trl_free(wa);
    trl_free(wb);
    json_t *la = without_clocks(a), *lb = without_clocks(b);
    if (!json_equal(la, lb))
        fail_msg("%s and %s: the logs differ:\n%s\n%s", a, b, json_dumps(la, JSON_INDENT(0)), json_dumps(lb, JSON_INDENT(0)));
    json_decref(la);
    json_decref(lb);
}

void train_run_assert_close(const char *a, const char *b, double tolerance)
{
    static const char *const keys[] = {"loss", "grad_norm"};
    for (int k = 0; k < 2; k++) {
        double x[MAX_SERIES], y[MAX_SERIES];
        int n = train_run_series(a, keys[k], x, MAX_SERIES), m = train_run_series(b, keys[k], y, MAX_SERIES);
        assert_int_equal(n, m);
        assert_true(n > 0);
        for (int i = 0; i < n; i++)
            if (!(fabs(x[i] - y[i]) <= tolerance * fabs(x[i])))
                fail_msg("%s and %s: %s of record %d is %.9g and %.9g", a, b, keys[k], i, x[i], y[i]);
    }
}
