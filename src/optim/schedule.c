/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/schedule.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "optim/kwargs.h"

const char *const trl_schedule_names[] = {"linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
    "constant_with_warmup", "inverse_sqrt", "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr",
    "warmup_stable_decay", "greedy", NULL};

static const char *const shape_names[] = {"linear", "cosine", "1-sqrt", NULL};

int64_t trl_schedule_warmup_steps(double warmup_steps, int64_t total)
{
    if (!(warmup_steps > 0))
        return 0;
    if (warmup_steps >= 1)
        return warmup_steps < 9e18 ? (int64_t)warmup_steps : INT64_MAX;
    return (int64_t)ceil((double)total * warmup_steps);
}

static int find_kind(const char *name, enum trl_schedule_kind *ret, struct trl_err *err)
{
    struct trl_str list = {0};
    for (int i = 0; trl_schedule_names[i]; i++) {
        if (!strcmp(trl_schedule_names[i], name)) {
            *ret = (enum trl_schedule_kind)i;
            trl_str_release(&list);
            return 0;
        }
        trl_str_printf(&list, "%s%s", i ? ", " : "", trl_schedule_names[i]);
    }
    int rc = trl_fail(err, TRL_E_USAGE, "lr_scheduler_type \"%.100s\" is unknown; allowed: %s", name, trl_str_get(&list));
    trl_str_release(&list);
    return rc;
}

/* min_lr or min_lr_rate: exactly one */
static int resolve_min_lr(struct trl_schedule *s, bool has_min_lr, double min_lr, bool has_rate, const char *owner,
    struct trl_err *err)
{
    if (has_min_lr && has_rate)
        return trl_fail(err, TRL_E_USAGE, "%s: give min_lr or min_lr_rate, not both", owner);
    if (!has_min_lr && !has_rate)
        return trl_fail(err, TRL_E_USAGE, "%s: one of min_lr (a rate) and min_lr_rate (a share of learning_rate) is needed", owner);
    if (has_min_lr) {
        if (!(s->base_lr > 0))
            return trl_fail(err, TRL_E_USAGE, "%s: min_lr needs a learning_rate above 0, which is %g", owner, s->base_lr);
        s->min_lr_rate = min_lr / s->base_lr;
    }
    return 0;
}

static int check(struct trl_schedule *s, bool has_timescale, bool has_stable, bool has_decay, const char *owner,
    struct trl_err *err)
{
    switch (s->kind) {
    case TRL_SCHEDULE_POLYNOMIAL:
        if (!(s->base_lr > s->lr_end))
            return trl_fail(err, TRL_E_USAGE, "%s: lr_end %g must be below learning_rate %g", owner, s->lr_end, s->base_lr);
        break;
    case TRL_SCHEDULE_INVERSE_SQRT:
        if (!has_timescale)
            s->timescale = s->warmup > 0 ? (double)s->warmup : 10000;
        if (!(s->timescale > 0))
            return trl_fail(err, TRL_E_USAGE, "%s: timescale is %g, but must be above 0", owner, s->timescale);
        break;
    case TRL_SCHEDULE_WARMUP_STABLE_DECAY:
        if (!has_decay)
            return trl_fail(err, TRL_E_USAGE, "%s: num_decay_steps is needed", owner);
        if (!has_stable)
            s->num_stable_steps = s->total - s->warmup - s->num_decay_steps;
        break;
    default:
        break;
    }
    return 0;
}

int trl_schedule_init(struct trl_schedule *s, const char *name, const json_t *kwargs, double base_lr, int64_t warmup,
    int64_t total, struct trl_err *err)
{
    enum trl_schedule_kind kind = TRL_SCHEDULE_LINEAR;
    int rc = find_kind(name ? name : "", &kind, err);
    if (rc != 0)
        return rc;
    if (!isfinite(base_lr) || base_lr < 0)
        return trl_fail(err, TRL_E_RANGE, "learning_rate is %g, but must be a finite number of at least 0", base_lr);
    *s = (struct trl_schedule){.kind = kind, .base_lr = base_lr, .warmup = warmup < 0 ? 0 : warmup, .total = total,
        .num_cycles = kind == TRL_SCHEDULE_COSINE_WITH_RESTARTS ? 1 : 0.5, .power = 1, .lr_end = 1e-7,
        .warmup_type = TRL_SHAPE_LINEAR, .decay_type = TRL_SHAPE_COSINE};

    double min_lr = 0;
    bool has_min_lr = false, has_rate = false, has_timescale = false, has_stable = false, has_decay = false;
    int warmup_type = TRL_SHAPE_LINEAR, decay_type = TRL_SHAPE_COSINE;
    const struct trl__kw cycles[] = {{"num_cycles", TRL__KW_F64, &s->num_cycles, NULL, NULL}};
    const struct trl__kw poly[] = {
        {"lr_end", TRL__KW_F64, &s->lr_end, NULL, NULL}, {"power", TRL__KW_F64, &s->power, NULL, NULL}};
    const struct trl__kw sqrts[] = {{"timescale", TRL__KW_F64, &s->timescale, &has_timescale, NULL}};
    const struct trl__kw min[] = {{"num_cycles", TRL__KW_F64, &s->num_cycles, NULL, NULL},
        {"min_lr", TRL__KW_F64, &min_lr, &has_min_lr, NULL}, {"min_lr_rate", TRL__KW_F64, &s->min_lr_rate, &has_rate, NULL},
        {"warmup_lr_rate", TRL__KW_F64, &s->warmup_lr_rate, &s->has_warmup_lr_rate, NULL}};
    const struct trl__kw wsd[] = {{"num_decay_steps", TRL__KW_I64, &s->num_decay_steps, &has_decay, NULL},
        {"num_stable_steps", TRL__KW_I64, &s->num_stable_steps, &has_stable, NULL},
        {"warmup_type", TRL__KW_CHOICE, &warmup_type, NULL, shape_names},
        {"decay_type", TRL__KW_CHOICE, &decay_type, NULL, shape_names},
        {"min_lr_ratio", TRL__KW_F64, &s->min_lr_rate, NULL, NULL}, {"num_cycles", TRL__KW_F64, &s->num_cycles, NULL, NULL}};
    char owner[96];
    snprintf(owner, sizeof(owner), "lr_scheduler_kwargs of \"%s\"", trl_schedule_names[kind]);

    switch (kind) {
    case TRL_SCHEDULE_COSINE:
    case TRL_SCHEDULE_COSINE_WITH_RESTARTS:
        rc = trl__kwargs_read(cycles, 1, kwargs, owner, err);
        break;
    case TRL_SCHEDULE_POLYNOMIAL:
        rc = trl__kwargs_read(poly, 2, kwargs, owner, err);
        break;
    case TRL_SCHEDULE_INVERSE_SQRT:
        rc = trl__kwargs_read(sqrts, 1, kwargs, owner, err);
        break;
    case TRL_SCHEDULE_COSINE_WITH_MIN_LR:
    case TRL_SCHEDULE_COSINE_WARMUP_WITH_MIN_LR:
        rc = trl__kwargs_read(min, kind == TRL_SCHEDULE_COSINE_WITH_MIN_LR ? 3 : 4, kwargs, owner, err);
        if (rc == 0)
            rc = resolve_min_lr(s, has_min_lr, min_lr, has_rate, owner, err);
        break;
    case TRL_SCHEDULE_WARMUP_STABLE_DECAY:
        rc = trl__kwargs_read(wsd, sizeof(wsd) / sizeof(wsd[0]), kwargs, owner, err);
        s->warmup_type = (enum trl_schedule_shape)warmup_type;
        s->decay_type = (enum trl_schedule_shape)decay_type;
        break;
    case TRL_SCHEDULE_REDUCE_LR_ON_PLATEAU:
    case TRL_SCHEDULE_GREEDY:
        rc = trl_plateau_init(&s->plateau, kind == TRL_SCHEDULE_GREEDY, kwargs, base_lr, err);
        break;
    case TRL_SCHEDULE_CONSTANT:
    case TRL_SCHEDULE_CONSTANT_WITH_WARMUP:
        if (kwargs && json_object_size(kwargs) > 0)
            trl_warn("%s have no effect: this schedule has none (as in transformers)", owner);
        break;
    default: /* linear */
        rc = trl__kwargs_read(NULL, 0, kwargs, owner, err);
        break;
    }
    return rc != 0 ? rc : check(s, has_timescale, has_stable, has_decay, owner, err);
}

static double at_least_0(double v)
{
    return v > 0 ? v : 0;
}

static double ratio(double part, double whole)
{
    return part / (whole > 1 ? whole : 1);
}

/* 1/2 (1 + cos(2 pi cycles p)), between min_rate and 1 */
static double cosine(double cycles, double p, double min_rate)
{
    double f = 0.5 * (1.0 + cos(M_PI * cycles * 2.0 * p));
    return at_least_0(f * (1.0 - min_rate) + min_rate);
}

static double polynomial(const struct trl_schedule *s, double step)
{
    double span = (double)(s->total - s->warmup);
    if (step > (double)s->total || span <= 0)
        return s->lr_end / s->base_lr;
    double left = 1.0 - (step - (double)s->warmup) / span;
    return ((s->base_lr - s->lr_end) * pow(left, s->power) + s->lr_end) / s->base_lr;
}

static double stable_decay(const struct trl_schedule *s, double step)
{
    double w = (double)s->warmup, stable = (double)s->num_stable_steps, decay = (double)s->num_decay_steps, f;
    if (step < w) {
        double p = ratio(step, w);
        f = s->warmup_type == TRL_SHAPE_LINEAR ? p
            : s->warmup_type == TRL_SHAPE_COSINE ? 0.5 * (1.0 - cos(M_PI * p)) : 1.0 - sqrt(1.0 - p);
    } else if (step < w + stable) {
        return 1.0;
    } else if (step < w + stable + decay) {
        double p = ratio(step - w - stable, decay);
        f = s->decay_type == TRL_SHAPE_LINEAR ? 1.0 - p
            : s->decay_type == TRL_SHAPE_COSINE ? 0.5 * (1.0 + cos(M_PI * s->num_cycles * 2.0 * p)) : 1.0 - sqrt(p);
    } else {
        return s->min_lr_rate;
    }
    return at_least_0(f * (1.0 - s->min_lr_rate) + s->min_lr_rate);
}

/* cosine_warmup_with_min_lr counts its steps from 1 */
static double cosine_from_1(const struct trl_schedule *s, double step)
{
    double w = (double)s->warmup;
    if (step < w)
        return s->has_warmup_lr_rate ? s->warmup_lr_rate + (1.0 - s->warmup_lr_rate) * step / fmax(1, w - 1)
                                     : (step + 1.0) / fmax(1, w);
    return cosine(s->num_cycles, ratio(step - w + 1.0, (double)s->total - w), s->min_lr_rate);
}

/* The schedules whose warm-up is linear from 0. */
static double after_warmup(const struct trl_schedule *s, double step)
{
    double w = (double)s->warmup, rest = (double)(s->total - s->warmup), p = ratio(step - w, rest);
    switch (s->kind) {
    case TRL_SCHEDULE_COSINE:
    case TRL_SCHEDULE_COSINE_WITH_MIN_LR:
        return cosine(s->num_cycles, p, s->min_lr_rate);
    case TRL_SCHEDULE_COSINE_WITH_RESTARTS:
        return p >= 1.0 ? 0.0 : at_least_0(0.5 * (1.0 + cos(M_PI * fmod(s->num_cycles * p, 1.0))));
    case TRL_SCHEDULE_POLYNOMIAL:
        return polynomial(s, step);
    case TRL_SCHEDULE_INVERSE_SQRT:
        return 1.0 / sqrt((step + (s->timescale - w)) / s->timescale);
    case TRL_SCHEDULE_CONSTANT_WITH_WARMUP:
        return 1.0;
    default:
        return at_least_0(ratio((double)s->total - step, rest));
    }
}

double trl_schedule_lr(const struct trl_schedule *s, int64_t step_index)
{
    double step = (double)step_index, f;
    switch (s->kind) {
    case TRL_SCHEDULE_CONSTANT:
        return s->base_lr;
    case TRL_SCHEDULE_REDUCE_LR_ON_PLATEAU:
    case TRL_SCHEDULE_GREEDY:
        return s->plateau.lr;
    case TRL_SCHEDULE_WARMUP_STABLE_DECAY:
        f = stable_decay(s, step);
        break;
    case TRL_SCHEDULE_COSINE_WARMUP_WITH_MIN_LR:
        f = cosine_from_1(s, step);
        break;
    default:
        f = step_index < s->warmup ? ratio(step, (double)s->warmup) : after_warmup(s, step);
    }
    return s->base_lr * f;
}

bool trl_schedule_is_metric_driven(const struct trl_schedule *s)
{
    return s->kind == TRL_SCHEDULE_REDUCE_LR_ON_PLATEAU || s->kind == TRL_SCHEDULE_GREEDY;
}

void trl_schedule_metric(struct trl_schedule *s, double value)
{
    if (trl_schedule_is_metric_driven(s))
        trl_plateau_step(&s->plateau, value);
}

json_t *trl_schedule_state(const struct trl_schedule *s)
{
    return trl_schedule_is_metric_driven(s) ? trl_plateau_state(&s->plateau) : json_object();
}

int trl_schedule_set_state(struct trl_schedule *s, const json_t *state, struct trl_err *err)
{
    return trl_schedule_is_metric_driven(s) ? trl_plateau_set_state(&s->plateau, state, err) : 0;
}
