/* SPDX-License-Identifier: Apache-2.0 */
/* Where a logged record goes: log_history, metrics.jsonl, TensorBoard, terminal. */
#include "metrics/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "metrics/bar.h"
#include "metrics/events.h"

enum { JSONL_MAX_BYTES = 1 << 30 };

struct trl_metrics {
    bool enabled;
    struct trl_trainer_state *state; /* borrowed */
    char *path;                      /* metrics.jsonl */
    int fd;
    struct trl_events *events;
    struct trl_bar bar;
};

/* ---- metrics.jsonl ---- */

static int write_line(struct trl_metrics *m, const json_t *v, struct trl_err *err)
{
    struct trl_str s = {0};
    trl_json_put(&s, v, 0, false);
    trl_str_putc(&s, '\n');
    int rc = trl_str_check(&s, err);
    if (rc == 0)
        rc = trl_write_all(m->fd, s.data, s.len, m->path, err);
    trl_str_release(&s);
    return rc;
}

/* Does this line stay when the run goes on from `step`? The first line (facts) has no step; a torn last line has no end. */
static bool keep_line(const char *line, size_t len, int64_t step)
{
    json_t *v = NULL;
    if (trl_json_parse(line, len, "line", &v, NULL) != 0)
        return false;
    const json_t *at = json_object_get(v, "step");
    bool keep = json_is_object(v) && (!at || json_integer_value(at) <= step);
    json_decref(v);
    return keep;
}

/* Steps that are about to be made again, and a torn last line, go. */
static int cut_back(const char *path, int64_t step, bool *ret_empty, struct trl_err *err)
{
    char *text = NULL;
    size_t len = 0;
    struct trl_str kept = {0};
    *ret_empty = true;
    if (trl_file_size(path) <= 0)
        return 0;
    int rc = trl_file_read(path, JSONL_MAX_BYTES, &text, &len, err);
    for (const char *p = text, *end = text + len, *eol; rc == 0 && p < end; p = eol + 1) {
        eol = memchr(p, '\n', (size_t)(end - p));
        if (!eol)
            break;
        if (keep_line(p, (size_t)(eol - p), step))
            trl_str_append(&kept, p, (size_t)(eol + 1 - p));
    }
    if (rc == 0)
        rc = trl_str_check(&kept, err);
    if (rc == 0 && kept.len != len)
        rc = trl_file_write_atomic(path, trl_str_get(&kept), kept.len, err);
    *ret_empty = kept.len == 0;
    trl_str_release(&kept);
    trl_free(text);
    return rc;
}

static int open_jsonl(struct trl_metrics *m, const struct trl_metrics_options *opt, struct trl_err *err)
{
    bool empty = true;
    int rc = trl_mkdirs(opt->output_dir, err);
    if (rc != 0)
        return rc;
    m->path = trl_path_join(opt->output_dir, "metrics.jsonl");
    if (!m->path)
        return trl_fail_nomem(err, strlen(opt->output_dir), "a path");
    if (opt->resumed)
        rc = cut_back(m->path, m->state->global_step, &empty, err);
    if (rc != 0)
        return rc;
    m->fd = open(m->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (opt->resumed ? 0 : O_TRUNC), 0666);
    if (m->fd < 0)
        return trl_fail_errno(err, "cannot create", m->path);
    return empty && opt->facts ? write_line(m, opt->facts, err) : 0;
}

/* ---- TensorBoard ---- */

static char *default_log_dir(const char *output_dir)
{
    char when[32], host[256] = "localhost";
    time_t now = time(NULL);
    struct tm tm;
    /* English month names whatever the locale */
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    localtime_r(&now, &tm);
    snprintf(when, sizeof(when), "%s%02d_%02d-%02d-%02d", months[tm.tm_mon], tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    gethostname(host, sizeof(host) - 1);
    return trl_asprintf("%s/runs/%s_%s", output_dir, when, host);
}

static int open_events(struct trl_metrics *m, const struct trl_metrics_options *opt, struct trl_err *err)
{
    const char *given = opt->logging_dir ? opt->logging_dir : getenv("TENSORBOARD_LOGGING_DIR");
    char *dir = given && *given ? trl_strdup(given) : default_log_dir(opt->output_dir);
    if (!dir)
        return trl_fail_nomem(err, strlen(opt->output_dir), "a path");
    int rc = trl_events_open(&m->events, dir, err);
    trl_free(dir);
    if (rc == 0 && opt->args_text)
        rc = trl_events_text(m->events, "args", opt->args_text, 0, err);
    if (rc == 0 && opt->model_text)
        rc = trl_events_text(m->events, "model_config", opt->model_text, 0, err);
    return rc == 0 ? trl_events_flush(m->events, err) : rc;
}

static int log_events(struct trl_metrics *m, const json_t *record, struct trl_err *err)
{
    static const char *const splits[] = {"eval_", "test_"};
    const char *key;
    json_t *value;
    char tag[128];
    int rc = 0;
    json_object_foreach((json_t *)record, key, value)
    {
        double v;
        if (!strcmp(key, "step") || !trl_json_number(value, &v))
            continue;
        const char *split = "train", *rest = key;
        for (int i = 0; i < 2; i++)
            if (trl_starts_with(key, splits[i])) {
                split = i == 0 ? "eval" : "test";
                rest = key + strlen(splits[i]);
            }
        snprintf(tag, sizeof(tag), "%s/%s", split, rest);
        rc = trl_events_scalar(m->events, tag, v, m->state->global_step, err);
        if (rc != 0)
            return rc;
    }
    return trl_events_flush(m->events, err);
}

/* ---- terminal ---- */

/* "step 12  loss 2.315  grad_norm 1.04 ...": numbers with five digits, learning_rate and friends as %g */
static int print_line(struct trl_metrics *m, const json_t *record, struct trl_err *err)
{
    struct trl_str s = {0};
    const char *key;
    json_t *value;
    trl_str_printf(&s, "step %lld", (long long)m->state->global_step);
    if (m->state->max_steps > 0)
        trl_str_printf(&s, "/%lld", (long long)m->state->max_steps);
    json_object_foreach((json_t *)record, key, value)
    {
        double v;
        if (!strcmp(key, "step") || !strcmp(key, "total_flos"))
            continue;
        if (json_is_integer(value))
            trl_str_printf(&s, "  %s %lld", key, (long long)json_integer_value(value));
        else if (trl_json_number(value, &v))
            trl_str_printf(&s, v == floor(v) && fabs(v) < 1e15 ? "  %s %.0f" : "  %s %.5g", key, v);
        else if (json_is_string(value))
            trl_str_printf(&s, "  %s %.100s", key, json_string_value(value));
    }
    int rc = trl_str_check(&s, err);
    if (rc == 0) {
        trl_bar_hide(&m->bar);
        puts(s.data);
        fflush(stdout);
    }
    trl_str_release(&s);
    return rc;
}

/* ---- the whole ---- */

int trl_metrics_open(struct trl_metrics **ret, const struct trl_metrics_options *opt, struct trl_trainer_state *state,
    struct trl_err *err)
{
    struct trl_metrics *m = trl_calloc(1, sizeof(*m));
    if (!m)
        return trl_fail_nomem(err, sizeof(*m), "metrics");
    m->enabled = opt->enabled;
    m->state = state;
    m->fd = -1;
    int rc = opt->enabled ? open_jsonl(m, opt, err) : 0;
    if (rc == 0 && opt->enabled && opt->tensorboard)
        rc = open_events(m, opt, err);
    if (rc != 0) {
        trl_metrics_close(m);
        return rc;
    }
    trl_bar_begin(&m->bar, opt->enabled && opt->progress && isatty(STDERR_FILENO), state->global_step, state->max_steps);
    *ret = m;
    return 0;
}

void trl_metrics_close(struct trl_metrics *m)
{
    if (!m)
        return;
    trl_bar_end(&m->bar);
    trl_events_close(m->events);
    if (m->fd >= 0)
        close(m->fd);
    trl_free(m->path);
    trl_free(m);
}

static int set(json_t *o, const char *key, json_t *value, struct trl_err *err)
{
    return json_object_set_new(o, key, value) == 0 ? 0 : trl_fail_nomem(err, strlen(key), "a log record");
}

static void update_bar(struct trl_metrics *m, const json_t *record)
{
    double loss;
    m->bar.epoch = m->state->epoch;
    if (trl_json_number(json_object_get(record, "loss"), &loss))
        m->bar.loss = loss;
    trl_bar_update(&m->bar, m->state->global_step, 0, true);
}

int trl_metrics_log(struct trl_metrics *m, json_t *record, const struct trl_metrics_speed *speed, struct trl_err *err)
{
    json_t *full = NULL;
    int rc = record ? 0 : trl_fail_nomem(err, sizeof(*m), "a log record");
    if (!m->enabled || rc != 0)
        goto out;
    rc = set(record, "epoch", trl_json_real(m->state->epoch), err);
    if (rc == 0)
        rc = set(record, "step", json_integer(m->state->global_step), err);
    if (rc == 0 && json_array_append(m->state->log_history, record) != 0)
        rc = trl_fail_nomem(err, sizeof(*m), "the log history");
    full = json_copy(record);
    if (rc == 0 && !full)
        rc = trl_fail_nomem(err, sizeof(*m), "a log record");
    if (rc == 0 && speed)
        rc = set(full, "step_time", trl_json_real(speed->step_time), err);
    if (rc == 0 && speed)
        rc = set(full, "tokens_per_second", trl_json_real(speed->tokens_per_second), err);
    if (rc == 0)
        rc = write_line(m, full, err);
    if (rc == 0 && m->events)
        rc = log_events(m, full, err);
    if (rc == 0)
        rc = print_line(m, full, err);
    if (rc == 0)
        update_bar(m, record);
out:
    json_decref(full);
    json_decref(record);
    return rc;
}

void trl_metrics_step(struct trl_metrics *m, int64_t tokens)
{
    if (!m->enabled)
        return;
    m->bar.epoch = m->state->epoch;
    trl_bar_update(&m->bar, m->state->global_step, tokens, false);
}

void trl_metrics_status(struct trl_metrics *m, const char *text)
{
    if (!m->enabled)
        return;
    snprintf(m->bar.status, sizeof(m->bar.status), "%s", text ? text : "");
    trl_bar_update(&m->bar, m->bar.done, 0, false);
}

/* Python's round(v, digits): the decimal nearest to the double, read back */
static double rounded(double v, int digits)
{
    char buf[64];
    double r;
    if (!(fabs(v) < 1e15))
        return v;
    snprintf(buf, sizeof(buf), "%.*f", digits, v);
    return trl_parse_f64(buf, &r) ? r : v;
}

int trl_metrics_add_speed(json_t *record, const char *split, double seconds, int64_t samples, int64_t steps,
    struct trl_err *err)
{
    char key[64];
    snprintf(key, sizeof(key), "%s_runtime", split);
    int rc = set(record, key, json_real(rounded(seconds, 4)), err);
    if (rc != 0 || !(seconds > 0))
        return rc;
    snprintf(key, sizeof(key), "%s_samples_per_second", split);
    rc = set(record, key, json_real(rounded((double)samples / seconds, 3)), err);
    if (rc != 0 || steps < 0)
        return rc;
    snprintf(key, sizeof(key), "%s_steps_per_second", split);
    return set(record, key, json_real(rounded((double)steps / seconds, 3)), err);
}

int trl_metrics_add_token_speed(json_t *record, const char *split, double seconds, int64_t tokens, struct trl_err *err)
{
    char key[64];
    snprintf(key, sizeof(key), "%s_runtime", split);
    int rc = set(record, key, json_real(rounded(seconds, 4)), err);
    if (rc != 0 || !(seconds > 0))
        return rc;
    snprintf(key, sizeof(key), "%s_tokens_per_second", split);
    return set(record, key, json_real(rounded((double)tokens / seconds, 3)), err);
}
