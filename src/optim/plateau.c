/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/plateau.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "optim/kwargs.h"

static const char *const mode_names[] = {"min", "max", NULL};
static const char *const threshold_names[] = {"rel", "abs", NULL};

static void reset(struct trl_plateau *p)
{
    p->best = p->mode_max ? -INFINITY : INFINITY;
    p->n_bad = p->n_good = p->cooldown_left = p->warmup_left = 0;
    p->reset_left = p->reset_start;
    p->window_n = 0;
    p->window_sum = 0;
}

static int check(const struct trl_plateau *p, const char *owner, struct trl_err *err)
{
    if (!(p->factor > 0 && p->factor < 1))
        return trl_fail(err, TRL_E_USAGE, "%s: factor is %g, but must be above 0 and below 1", owner, p->factor);
    if (p->patience < 0 || p->cooldown < 0 || p->warmup < 0)
        return trl_fail(err, TRL_E_USAGE, "%s: patience, cooldown and warmup must be at least 0", owner);
    if (p->smooth && (p->window_size < 1 || p->window_size > TRL_PLATEAU_WINDOW_MAX))
        return trl_fail(err, TRL_E_USAGE, "%s: window_size is %lld; allowed: 1 to %d", owner, (long long)p->window_size,
            TRL_PLATEAU_WINDOW_MAX);
    return 0;
}

int trl_plateau_init(struct trl_plateau *p, bool greedy, const json_t *kwargs, double base_lr, struct trl_err *err)
{
    int mode = 0, abs = greedy ? 1 : 0;
    bool verbose = false; /* prints to stdout in transformers; the rate is in every log record anyway */
    *p = (struct trl_plateau){.greedy = greedy, .factor = greedy ? 0.95 : 0.1, .threshold = greedy ? 1e-6 : 1e-4,
        .patience = 10, .min_lr = greedy ? 1e-3 : 0, .max_lr = 1, .eps = 1e-8, .window_size = 50, .reset_start = 500,
        .base_lr = base_lr, .lr = base_lr};
    const struct trl__kw table[] = {{"mode", TRL__KW_CHOICE, &mode, NULL, mode_names},
        {"factor", TRL__KW_F64, &p->factor, NULL, NULL}, {"patience", TRL__KW_I64, &p->patience, NULL, NULL},
        {"threshold", TRL__KW_F64, &p->threshold, NULL, NULL},
        {"threshold_mode", TRL__KW_CHOICE, &abs, NULL, threshold_names},
        {"cooldown", TRL__KW_I64, &p->cooldown, NULL, NULL}, {"min_lr", TRL__KW_F64, &p->min_lr, NULL, NULL},
        {"eps", TRL__KW_F64, &p->eps, NULL, NULL},
        /* greedy only */
        {"warmup", TRL__KW_I64, &p->warmup, NULL, NULL}, {"max_lr", TRL__KW_F64, &p->max_lr, NULL, NULL},
        {"verbose", TRL__KW_BOOL, &verbose, NULL, NULL}, {"smooth", TRL__KW_BOOL, &p->smooth, NULL, NULL},
        {"window_size", TRL__KW_I64, &p->window_size, NULL, NULL},
        {"reset_start", TRL__KW_I64, &p->reset_start, NULL, NULL}};
    const char *owner = greedy ? "lr_scheduler_kwargs of \"greedy\"" : "lr_scheduler_kwargs of \"reduce_lr_on_plateau\"";
    int rc = trl__kwargs_read(table, greedy ? sizeof(table) / sizeof(table[0]) : 8, kwargs, owner, err);
    if (rc != 0)
        return rc;
    p->mode_max = mode == 1;
    p->threshold_abs = abs == 1;
    reset(p);
    return check(p, owner, err);
}

static bool is_better(const struct trl_plateau *p, double v)
{
    double sign = p->mode_max ? 1 : -1;
    double limit = p->threshold_abs ? p->best + sign * p->threshold : p->best * (1.0 + sign * p->threshold);
    return p->mode_max ? v > limit : v < limit;
}

static void reduce(struct trl_plateau *p)
{
    double lr = fmax(p->lr * p->factor, p->min_lr);
    if (p->lr - lr > p->eps)
        p->lr = lr;
    /* greedy: long enough at the lower bound, start over */
    if (p->greedy && p->lr <= p->min_lr && --p->reset_left <= 0) {
        p->lr = p->base_lr;
        reset(p);
    }
}

static void raise_lr(struct trl_plateau *p)
{
    double lr = fmin(p->lr / p->factor, p->max_lr);
    if (lr - p->lr > p->eps)
        p->lr = lr;
    p->reset_left = p->reset_start;
}

static double window_mean(struct trl_plateau *p, double v)
{
    p->window_sum += v;
    if (p->window_n == p->window_size) {
        p->window_sum -= p->window[0];
        memmove(p->window, p->window + 1, (size_t)(p->window_n - 1) * sizeof(p->window[0]));
        p->window_n--;
    }
    p->window[p->window_n++] = v;
    return p->window_sum / (double)p->window_n;
}

static void count(struct trl_plateau *p, double v)
{
    bool better = is_better(p, v);
    if (better)
        p->best = v;
    p->n_bad = better ? 0 : p->n_bad + 1;
    p->n_good = better ? p->n_good + 1 : 0;
}

static void greedy_step(struct trl_plateau *p, double v)
{
    if (p->smooth)
        v = window_mean(p, v);
    if (p->cooldown_left > 0 || p->warmup_left > 0) {
        if (p->cooldown_left > 0)
            p->cooldown_left--;
        else
            p->warmup_left--;
        p->n_bad = p->n_good = 0;
        return;
    }
    count(p, v);
    if (p->n_good > p->patience) {
        raise_lr(p);
        p->warmup_left = p->warmup;
        p->n_good = 0;
    } else if (p->n_bad > p->patience) {
        reduce(p);
        p->cooldown_left = p->cooldown;
        p->n_bad = 0;
    }
}

void trl_plateau_step(struct trl_plateau *p, double v)
{
    p->epoch++;
    if (p->greedy) {
        greedy_step(p, v);
        return;
    }
    count(p, v);
    if (p->cooldown_left > 0) {
        p->cooldown_left--;
        p->n_bad = 0;
    }
    if (p->n_bad > p->patience) {
        reduce(p);
        p->cooldown_left = p->cooldown;
        p->n_bad = 0;
    }
}

json_t *trl_plateau_state(const struct trl_plateau *p)
{
    json_t *window = json_array();
    for (int64_t i = 0; window && i < p->window_n; i++)
        if (json_array_append_new(window, trl_json_real(p->window[i])) != 0) {
            json_decref(window);
            window = NULL;
        }
    if (!window)
        return NULL;
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "lr", trl_json_real(p->lr), "best",
        trl_json_real(p->best), "n_bad", (json_int_t)p->n_bad, "n_good", (json_int_t)p->n_good, "cooldown_left",
        (json_int_t)p->cooldown_left, "warmup_left", (json_int_t)p->warmup_left, "reset_left", (json_int_t)p->reset_left,
        "epoch", (json_int_t)p->epoch, "window_sum", trl_json_real(p->window_sum), "window", window);
}

int trl_plateau_set_state(struct trl_plateau *p, const json_t *state, struct trl_err *err)
{
    static const char *const reals[] = {"lr", "best", "window_sum"};
    static const char *const ints[] = {"n_bad", "n_good", "cooldown_left", "warmup_left", "reset_left", "epoch"};
    double *const real_to[] = {&p->lr, &p->best, &p->window_sum};
    int64_t *const int_to[] = {&p->n_bad, &p->n_good, &p->cooldown_left, &p->warmup_left, &p->reset_left, &p->epoch};

    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
        if (!trl_json_number(json_object_get(state, reals[i]), real_to[i]))
            return trl_fail(err, TRL_E_DATA, "schedule state: \"%s\" is missing or not a number", reals[i]);
    for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
        const json_t *v = json_object_get(state, ints[i]);
        if (!json_is_integer(v))
            return trl_fail(err, TRL_E_DATA, "schedule state: \"%s\" is missing or not a whole number", ints[i]);
        *int_to[i] = json_integer_value(v);
    }
    const json_t *window = json_object_get(state, "window");
    size_t n = json_array_size(window);
    if (!json_is_array(window) || n > (size_t)p->window_size || n > TRL_PLATEAU_WINDOW_MAX)
        return trl_fail(err, TRL_E_DATA, "schedule state: \"window\" is missing or longer than window_size %lld",
            (long long)p->window_size);
    for (size_t i = 0; i < n; i++)
        if (!trl_json_number(json_array_get(window, i), &p->window[i]))
            return trl_fail(err, TRL_E_DATA, "schedule state: entry %zu of \"window\" is not a number", i);
    p->window_n = (int64_t)n;
    return 0;
}
