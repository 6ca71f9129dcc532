/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/trainer-state.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "base/str.h"

enum { STATE_MAX_BYTES = 1 << 30 };

int trl_trainer_state_init(struct trl_trainer_state *s, struct trl_err *err)
{
    *s = (struct trl_trainer_state){.logging_steps = 500, .eval_steps = 500, .save_steps = 500, .log_history = json_array()};
    return s->log_history ? 0 : trl_fail_nomem(err, sizeof(*s), "the trainer state");
}

void trl_trainer_state_release(struct trl_trainer_state *s)
{
    if (!s)
        return;
    json_decref(s->log_history);
    json_decref(s->stateful_callbacks);
    trl_free(s->best_model_checkpoint);
    memset(s, 0, sizeof(*s));
}

int64_t trl_trainer_state_every(double steps, int64_t max_steps)
{
    if (!(steps > 0))
        return 0;
    double every = steps < 1 ? ceil((double)max_steps * steps) : steps;
    return every < 9e18 ? (int64_t)every : INT64_MAX;
}

int trl_trainer_state_set_best(struct trl_trainer_state *s, double metric, int64_t step, const char *checkpoint,
    struct trl_err *err)
{
    char *copy = checkpoint ? trl_strdup(checkpoint) : NULL;
    if (checkpoint && !copy)
        return trl_fail_nomem(err, strlen(checkpoint), "a path");
    trl_free(s->best_model_checkpoint);
    s->best_model_checkpoint = copy;
    s->has_best_metric = true;
    s->best_metric = metric;
    s->best_global_step = step;
    return 0;
}

static json_t *whole_or_real(double v)
{
    return v == floor(v) && fabs(v) < 9e15 ? json_integer((json_int_t)v) : trl_json_real(v);
}

static json_t *callbacks_json(const struct trl_trainer_state *s)
{
    json_t *o = s->stateful_callbacks ? json_copy(s->stateful_callbacks) : json_object();
    json_t *control = json_pack("{s:{s:b, s:b, s:b, s:b, s:b}, s:{}}", "args", "should_epoch_stop", s->should_epoch_stop,
        "should_evaluate", s->should_evaluate, "should_log", s->should_log, "should_save", s->should_save,
        "should_training_stop", s->should_training_stop, "attributes");
    if (json_object_set_new(o, "TrainerControl", control) != 0) { /* takes control also when o is NULL */
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *trl_trainer_state_json(const struct trl_trainer_state *s)
{
    return json_pack("{s:o, s:o, s:s?, s:o, s:o, s:I, s:b, s:b, s:b, s:O, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:n, s:n}",
        "best_global_step", s->has_best_metric ? json_integer(s->best_global_step) : json_null(), "best_metric",
        s->has_best_metric ? trl_json_real(s->best_metric) : json_null(), "best_model_checkpoint", s->best_model_checkpoint,
        "epoch", trl_json_real(s->epoch), "eval_steps", whole_or_real(s->eval_steps), "global_step",
        (json_int_t)s->global_step, "is_hyper_param_search", 0, "is_local_process_zero", 1, "is_world_process_zero", 1,
        "log_history", s->log_history, "logging_steps", whole_or_real(s->logging_steps), "max_steps", (json_int_t)s->max_steps,
        "num_input_tokens_seen", (json_int_t)s->num_input_tokens_seen, "num_train_epochs", (json_int_t)s->num_train_epochs,
        "save_steps", whole_or_real(s->save_steps), "stateful_callbacks", callbacks_json(s), "total_flos",
        trl_json_real(s->total_flos), "train_batch_size", (json_int_t)s->train_batch_size, "trial_name", "trial_params");
}

int trl_trainer_state_write(const struct trl_trainer_state *s, const char *path, struct trl_err *err)
{
    struct trl_str text = {0};
    json_t *doc = trl_trainer_state_json(s);
    if (!doc)
        return trl_fail_nomem(err, sizeof(*s), "the trainer state");
    trl_json_put(&text, doc, 2, true);
    trl_str_putc(&text, '\n');
    json_decref(doc);
    int rc = trl_str_check(&text, err);
    if (rc == 0)
        rc = trl_file_write_atomic(path, text.data, text.len, err);
    trl_str_release(&text);
    return rc;
}

/* ---- reading ---- */

static int bad(const char *path, const char *key, const char *wanted, struct trl_err *err)
{
    return trl_fail(err, TRL_E_DATA, "%s: \"%s\" must be %s", path, key, wanted);
}

static int read_numbers(struct trl_trainer_state *s, const json_t *doc, const char *path, struct trl_err *err)
{
    const struct {
        const char *key;
        double *real;
        int64_t *whole;
    } fields[] = {
        {"epoch", &s->epoch, NULL}, {"global_step", NULL, &s->global_step}, {"max_steps", NULL, &s->max_steps},
        {"num_train_epochs", NULL, &s->num_train_epochs}, {"train_batch_size", NULL, &s->train_batch_size},
        {"num_input_tokens_seen", NULL, &s->num_input_tokens_seen}, {"logging_steps", &s->logging_steps, NULL},
        {"eval_steps", &s->eval_steps, NULL}, {"save_steps", &s->save_steps, NULL}, {"total_flos", &s->total_flos, NULL},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const json_t *v = json_object_get(doc, fields[i].key);
        double d;
        if (!v || json_is_null(v))
            continue;
        if (!trl_json_number(v, &d) || !isfinite(d) || d < 0)
            return bad(path, fields[i].key, "a number of at least 0", err);
        if (fields[i].whole && (d != floor(d) || d > 9e15))
            return bad(path, fields[i].key, "a whole number", err);
        if (fields[i].whole)
            *fields[i].whole = (int64_t)d;
        else
            *fields[i].real = d;
    }
    if (!json_is_integer(json_object_get(doc, "global_step")))
        return bad(path, "global_step", "a whole number", err);
    return 0;
}

static int read_best(struct trl_trainer_state *s, const json_t *doc, const char *path, struct trl_err *err)
{
    const json_t *metric = json_object_get(doc, "best_metric"), *step = json_object_get(doc, "best_global_step");
    const json_t *where = json_object_get(doc, "best_model_checkpoint");
    double v;
    if (!metric || json_is_null(metric))
        return 0;
    if (!trl_json_number(metric, &v))
        return bad(path, "best_metric", "a number or null", err);
    if (where && !json_is_null(where) && !json_is_string(where))
        return bad(path, "best_model_checkpoint", "a path or null", err);
    return trl_trainer_state_set_best(s, v, json_integer_value(step), json_string_value(where), err);
}

static int read_history(struct trl_trainer_state *s, const json_t *doc, const char *path, struct trl_err *err)
{
    json_t *log = json_object_get(doc, "log_history"), *callbacks = json_object_get(doc, "stateful_callbacks");
    size_t i;
    json_t *row;
    if (!json_is_array(log))
        return bad(path, "log_history", "an array", err);
    json_array_foreach(log, i, row)
    {
        if (!json_is_object(row))
            return trl_fail(err, TRL_E_DATA, "%s: entry %zu of \"log_history\" must be an object", path, i);
    }
    if (callbacks && !json_is_null(callbacks) && !json_is_object(callbacks))
        return bad(path, "stateful_callbacks", "an object", err);
    json_decref(s->log_history);
    s->log_history = json_incref(log);
    json_decref(s->stateful_callbacks);
    s->stateful_callbacks = json_is_object(callbacks) ? json_incref(callbacks) : NULL;
    json_object_del(s->stateful_callbacks, "TrainerControl"); /* made anew each time */
    return 0;
}

int trl_trainer_state_read(struct trl_trainer_state *s, const char *path, struct trl_err *err)
{
    char *text = NULL;
    size_t len;
    json_t *doc = NULL;
    int rc = trl_file_read(path, STATE_MAX_BYTES, &text, &len, err);
    if (rc == 0)
        rc = trl_json_parse(text, len, path, &doc, err);
    trl_free(text);
    if (rc == 0 && !json_is_object(doc))
        rc = trl_fail(err, TRL_E_DATA, "%s: must hold a JSON object", path);
    if (rc == 0)
        rc = read_numbers(s, doc, path, err);
    if (rc == 0)
        rc = read_best(s, doc, path, err);
    if (rc == 0)
        rc = read_history(s, doc, path, err);
    json_decref(doc);
    return rc;
}
