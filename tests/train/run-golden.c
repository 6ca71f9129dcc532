/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs trl-train on recorded trajectories of the real TRL and compares what it logs, step by step, and its final weights.
 *   run-golden TRL_TRAIN CASE...      (cases are folders of tests/data/golden/sft)
 * Each case is written as a run file and started as a user would start it, with mpirun for several ranks. TAP on stdout.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/str.h"
#include "golden-weights.h"

/* absolute and relative tolerance in float32; wider for bf16 autocast (15) and bf16 weights (60) */
struct tolerance {
    const char *name;
    double abs, rel;
    bool widen;
};
static const struct tolerance tolerances[] = {
    {"loss", 2e-5, 1e-4, true},
    {"grad_norm", 1e-4, 1e-3, true},
    {"learning_rate", 1e-12, 1e-6, false},
    {"epoch", 1e-9, 1e-9, false},
    {"num_tokens", 0, 0, false},
    {"step", 0, 0, false},
    {"mean_token_accuracy", 2e-3, 0, true},
    {"entropy", 1e-4, 1e-4, true},
    {"train_loss", 2e-5, 1e-4, true},
};
static const struct tolerance other = {"", 2e-4, 1e-3, true};

struct golden_case {
    char *dir, *tmp, *out;
    json_t *result, *options;
    const json_t *spec;
    double wide;
    int ranks;
};

static const char *g_train, *g_golden;
static int g_tests, g_failed;

static const struct tolerance *find_tolerance(const char *key)
{
    const char *name = strncmp(key, "eval_", 5) == 0 ? key + 5 : key;
    for (size_t i = 0; i < sizeof(tolerances) / sizeof(tolerances[0]); i++)
        if (strcmp(tolerances[i].name, name) == 0)
            return &tolerances[i];
    return &other;
}

static int compare_entry(size_t i, const json_t *want, const json_t *got, double wide)
{
    const char *key;
    json_t *v;
    int bad = 0;
    json_object_foreach((json_t *)(uintptr_t)want, key, v)
    {
        const json_t *g = json_object_get(got, key);
        if (!json_is_number(v) || !json_is_number(g)) {
            if (!g || !json_equal(v, g)) {
                printf("# entry %zu: %s is missing or differs\n", i, key);
                bad++;
            }
            continue;
        }
        const struct tolerance *t = find_tolerance(key);
        double w = json_number_value(v), x = json_number_value(g), f = t->widen ? wide : 1;
        if (!(fabs(x - w) <= f * (t->abs + t->rel * fabs(w)))) {
            printf("# entry %zu: %s %.9g instead of %.9g\n", i, key, x, w);
            bad++;
        }
    }
    return bad;
}

static int compare_log(const struct golden_case *c, const char *prefix)
{
    struct trl_err err = {0};
    char *path = trl_asprintf("%s/%ssteps.jsonl", c->dir, prefix), *text = NULL, *state_path = trl_path_join(c->out, "trainer_state.json");
    json_error_t je;
    json_t *state = json_load_file(state_path, 0, &je);
    const json_t *log = json_object_get(state, "log_history");
    int bad = 0;
    size_t n = 0;
    if (!state || trl_file_read(path, 64 << 20, &text, NULL, &err)) {
        printf("# %s\n", state ? err.text : je.text);
        bad = 1;
    }
    for (char *line = text; line && *line; n++) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        json_t *want = json_loads(line, 0, &je);
        bad += compare_entry(n, want, json_array_get(log, n), c->wide);
        json_decref(want);
        line = end ? end + 1 : NULL;
    }
    if (!bad && n != json_array_size(log)) {
        printf("# %zu log entries instead of %zu\n", json_array_size(log), n);
        bad++;
    }
    json_decref(state);
    trl_free(text);
    trl_free(path);
    trl_free(state_path);
    return bad;
}

/* ---- running ---- */

static int copy_rows(const char *from, const char *to, int64_t first, int64_t end)
{
    char *text = NULL;
    size_t len;
    struct trl_str out = {0};
    if (trl_file_read(from, 64 << 20, &text, &len, NULL))
        return -1;
    int64_t n = 0;
    for (char *line = text; *line;) {
        char *nl = strchr(line, '\n');
        size_t k = nl ? (size_t)(nl - line) : strlen(line);
        if (k && n >= first && n < end) {
            trl_str_append(&out, line, k);
            trl_str_putc(&out, '\n');
        }
        n += k != 0;
        line += k + (nl != NULL);
    }
    int rc = trl_file_write_atomic(to, trl_str_get(&out), out.len, NULL);
    trl_str_release(&out);
    trl_free(text);
    return rc;
}

static void copy_span(const char *data, const char *dir, const char *name, const json_t *span)
{
    char *from = trl_asprintf("%s/data/%s", g_golden, data), *to = trl_path_join(dir, name);
    int64_t first = json_integer_value(json_array_get(span, 0));
    int64_t end = json_is_array(span) ? json_integer_value(json_array_get(span, 1)) : INT64_MAX;
    if (copy_rows(from, to, first, end))
        printf("# cannot copy %s\n", from);
    trl_free(from);
    trl_free(to);
}

static char *data_path(const struct golden_case *c)
{
    const char *data = json_string_value(json_object_get(c->spec, "data"));
    const json_t *rows = json_object_get(c->spec, "rows"), *eval_rows = json_object_get(c->spec, "eval_rows");
    const char *eval_data = json_string_value(json_object_get(c->spec, "eval_data"));
    if (!json_is_array(rows) && !json_is_array(eval_rows) && !eval_data)
        return trl_asprintf("%s/data/%s", g_golden, data);
    char *dir = trl_path_join(c->tmp, "data");
    trl_mkdirs(dir, NULL);
    copy_span(data, dir, "train.jsonl", rows);
    if (json_is_array(eval_rows))
        copy_span(data, dir, "test.jsonl", eval_rows);
    if (eval_data)
        copy_span(eval_data, dir, "test.jsonl", NULL);
    return dir;
}

static void set_string(json_t *o, const char *key, char *value)
{
    json_object_set_new(o, key, json_string(value));
    trl_free(value);
}

static json_t *case_options(const struct golden_case *c)
{
    json_t *o = json_pack("{s:f,s:i,s:i,s:i,s:i,s:b,s:b,s:s,s:s,s:b,s:b,s:s,s:s}", "learning_rate", 1e-3, "per_device_train_batch_size",
        4, "max_steps", 12, "logging_steps", 1, "seed", 42, "bf16", 0, "gradient_checkpointing", 0, "report_to", "none", "save_strategy",
        "no", "use_cpu", 1, "disable_tqdm", 1, "optim", "adamw_torch", "dtype", "float32");
    json_object_update(o, json_object_get(c->spec, "base"));
    json_object_update(o, json_object_get(c->spec, "options"));
    json_t *kwargs = json_incref(json_object_get(o, "model_init_kwargs"));
    if (kwargs) {
        json_object_del(o, "model_init_kwargs");
        json_object_update(o, kwargs);
        json_decref(kwargs);
    }
    const char *tpl = json_string_value(json_object_get(o, "chat_template_path"));
    if (tpl)
        set_string(o, "chat_template_path", trl_path_join(g_golden, tpl));
    set_string(o, "model_name_or_path", trl_asprintf("%s/models/%s", g_golden, json_string_value(json_object_get(c->spec, "model"))));
    set_string(o, "dataset_name", data_path(c));
    json_object_set_new(o, "output_dir", json_string(c->out));
    return o;
}

/* JSON values are YAML values; floats need a dot in YAML 1.1, so they are written without exponents. */
static int write_run_file(const json_t *options, const char *path)
{
    struct trl_str s = {0};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)options, key, v)
    {
        if (json_is_real(v)) {
            trl_str_printf(&s, "%s: %.15f\n", key, json_real_value(v));
            continue;
        }
        char *text = json_dumps(v, JSON_ENCODE_ANY);
        trl_str_printf(&s, "%s: %s\n", key, text);
        free(text);
    }
    int rc = trl_file_write_atomic(path, trl_str_get(&s), s.len, NULL);
    trl_str_release(&s);
    return rc;
}

static int spawn(char *const argv[], const char *log)
{
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666), null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        execvp(argv[0], argv);
        _exit(127);
    }
    int status;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void show_log(const char *path)
{
    char *text = NULL, *save;
    if (trl_file_read(path, 1 << 20, &text, NULL, NULL))
        return;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        printf("# | %s\n", line);
    trl_free(text);
}

static int run_once(const struct golden_case *c, const json_t *options, const char *prefix)
{
    char *run = trl_asprintf("%s/run.yaml", c->tmp), *log = trl_asprintf("%s/%slog.txt", c->tmp, prefix), ranks[16];
    snprintf(ranks, sizeof(ranks), "%d", c->ranks);
    char *alone[] = {(char *)(uintptr_t)g_train, (char *)"sft", (char *)"--config", run, NULL};
    char *many[] = {(char *)"mpirun", (char *)"--allow-run-as-root", (char *)"--oversubscribe", (char *)"--bind-to", (char *)"none",
        (char *)"-n", ranks, alone[0], alone[1], alone[2], alone[3], NULL};
    int bad = write_run_file(options, run);
    int code = bad ? -1 : spawn(c->ranks > 1 ? many : alone, log);
    if (code != 0) {
        printf("# exit code %d\n", code);
        show_log(log);
        bad = 1;
    } else {
        bad = compare_log(c, prefix) + trl_golden_compare_weights(c->dir, prefix, c->out, c->wide);
    }
    trl_free(run);
    trl_free(log);
    return bad;
}

static int run_case(struct golden_case *c)
{
    c->options = case_options(c);
    int64_t at = json_integer_value(json_object_get(c->spec, "resume_at"));
    int bad = run_once(c, c->options, "");
    if (!bad && at) {
        json_object_set_new(c->options, "save_strategy", json_string("no"));
        set_string(c->options, "resume_from_checkpoint", trl_asprintf("%s/checkpoint-%lld", c->out, (long long)at));
        bad = run_once(c, c->options, "resumed_");
    }
    return bad;
}

static void test_case(const char *name)
{
    struct golden_case c = {0};
    char tmp[] = "/tmp/trl-golden.XXXXXX";
    json_error_t je;
    c.dir = trl_asprintf("%s/sft/%s", g_golden, name);
    char *path = trl_path_join(c.dir, "result.json");
    c.result = json_load_file(path, 0, &je);
    c.spec = json_object_get(c.result, "case");
    int bad = 1;
    if (!c.spec || !mkdtemp(tmp)) {
        printf("# %s: %s\n", path, je.text);
    } else {
        c.tmp = tmp;
        c.out = trl_path_join(tmp, "out");
        const json_t *options = json_object_get(c.spec, "options");
        char *kind = json_dumps(options, 0);
        c.wide = strstr(kind, "bfloat16") ? 60 : json_is_true(json_object_get(options, "bf16")) ? 15 : 1;
        free(kind);
        c.ranks = json_is_integer(json_object_get(c.spec, "ranks")) ? (int)json_integer_value(json_object_get(c.spec, "ranks")) : 1;
        bad = run_case(&c);
        trl_rmtree(tmp, NULL);
    }
    printf("%s %d - %s\n", bad ? "not ok" : "ok", ++g_tests, name);
    fflush(stdout);
    g_failed += bad != 0;
    trl_free(path);
    trl_free(c.dir);
    trl_free(c.out);
    json_decref(c.result);
    json_decref(c.options);
}

int main(int argc, char **argv)
{
    const char *data = getenv("TRL_TEST_DATA");
    if (argc < 3 || !data) {
        fprintf(stderr, "usage: TRL_TEST_DATA=DIR run-golden TRL_TRAIN CASE...\n");
        return 99;
    }
    g_train = argv[1];
    char *golden = trl_path_join(data, "golden");
    g_golden = golden;
    printf("1..%d\n", argc - 2);
    for (int i = 2; i < argc; i++)
        test_case(argv[i]);
    trl_free(golden);
    return g_failed != 0;
}
