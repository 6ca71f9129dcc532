/* SPDX-License-Identifier: Apache-2.0 */
/* Which optimisers there are, which we have, and their optim_args. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "optim/optim-impl.h"

#define WHY_BNB "it is the quantised or paged optimiser of bitsandbytes, whose states and kernels exist on GPUs only"
#define WHY_GALORE "its low-rank projection of gradients is not built"
#define WHY_PACKAGE "it comes from a separate Python package whose algorithm is not built"

static const struct name {
    const char *name;
    int kind; /* enum trl_optim_kind, -1: refused */
    const char *why, *instead;
} names[] = {
    {"adamw_torch", TRL_OPTIM_ADAMW, NULL, NULL},
    {"adamw_torch_fused", TRL_OPTIM_ADAMW, NULL, NULL},
    {"adafactor", TRL_OPTIM_ADAFACTOR, NULL, NULL},
    {"sgd", TRL_OPTIM_SGD, NULL, NULL},
    {"lion_32bit", TRL_OPTIM_LION, NULL, NULL},
    {"paged_lion_32bit", TRL_OPTIM_LION, NULL, NULL}, /* the same numbers; paging only moves GPU state */
    {"adamw_torch_xla", -1, "it needs a TPU", "adamw_torch"},
    {"adamw_torch_npu_fused", -1, "it needs an Ascend NPU", "adamw_torch"},
    {"adamw_anyprecision", -1, WHY_PACKAGE, "adamw_torch"},
    {"adamw_torch_4bit", -1, "4-bit optimiser states (torchao) are not built", "adamw_torch"},
    {"adamw_torch_8bit", -1, "8-bit optimiser states (torchao) are not built", "adamw_torch"},
    {"ademamix", -1, WHY_BNB, "adamw_torch"},
    {"adagrad", -1, "there is no backend kernel for it", "adamw_torch"},
    {"adamw_bnb_8bit", -1, WHY_BNB, "adamw_torch"},
    {"adamw_8bit", -1, WHY_BNB, "adamw_torch"},
    {"ademamix_8bit", -1, WHY_BNB, "adamw_torch"},
    {"lion_8bit", -1, WHY_BNB, "lion_32bit"},
    {"paged_adamw_32bit", -1, WHY_BNB, "adamw_torch"},
    {"paged_adamw_8bit", -1, WHY_BNB, "adamw_torch"},
    {"paged_ademamix_32bit", -1, WHY_BNB, "adamw_torch"},
    {"paged_ademamix_8bit", -1, WHY_BNB, "adamw_torch"},
    {"paged_lion_8bit", -1, WHY_BNB, "lion_32bit"},
    {"rmsprop", -1, "there is no backend kernel for it", "adamw_torch"},
    {"rmsprop_bnb", -1, WHY_BNB, "adamw_torch"},
    {"rmsprop_bnb_8bit", -1, WHY_BNB, "adamw_torch"},
    {"rmsprop_bnb_32bit", -1, WHY_BNB, "adamw_torch"},
    {"galore_adamw", -1, WHY_GALORE, "adamw_torch"},
    {"galore_adamw_8bit", -1, WHY_GALORE, "adamw_torch"},
    {"galore_adafactor", -1, WHY_GALORE, "adafactor"},
    {"galore_adamw_layerwise", -1, WHY_GALORE, "adamw_torch"},
    {"galore_adamw_8bit_layerwise", -1, WHY_GALORE, "adamw_torch"},
    {"galore_adafactor_layerwise", -1, WHY_GALORE, "adafactor"},
    {"lomo", -1, "it fuses the step into the backward pass, which is not built", "sgd"},
    {"adalomo", -1, "it fuses the step into the backward pass, which is not built", "adafactor"},
    {"grokadamw", -1, WHY_PACKAGE, "adamw_torch"},
    {"schedule_free_radam", -1, WHY_PACKAGE, "adamw_torch"},
    {"schedule_free_adamw", -1, WHY_PACKAGE, "adamw_torch"},
    {"schedule_free_sgd", -1, WHY_PACKAGE, "sgd"},
    {"apollo_adamw", -1, WHY_GALORE, "adamw_torch"},
    {"apollo_adamw_layerwise", -1, WHY_GALORE, "adamw_torch"},
    {"stable_adamw", -1, WHY_PACKAGE, "adamw_torch"},
};
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static int find_name(const char *text, const struct name **ret, struct trl_err *err)
{
    struct trl_str list = {0};
    for (int i = 0; i < N_NAMES; i++) {
        if (!strcmp(names[i].name, text)) {
            *ret = &names[i];
            trl_str_release(&list);
            return 0;
        }
        if (names[i].kind >= 0)
            trl_str_printf(&list, "%s%s", list.len ? ", " : "", names[i].name);
    }
    int rc = trl_fail(err, TRL_E_USAGE, "optim \"%.100s\" is unknown; allowed: %s", text, trl_str_get(&list));
    trl_str_release(&list);
    return rc;
}

static int parse_number(const char *key, const char *text, double *ret, struct trl_err *err)
{
    if (!trl_parse_f64(text, ret) || !isfinite(*ret))
        return trl_fail(err, TRL_E_USAGE, "optim_args: %s is \"%.100s\", but must be a number", key, text);
    return 0;
}

static int apply_arg(const struct trl_optim_config *cfg, struct trl__optim_rule *r, const char *key, const char *value,
    struct trl_err *err)
{
    if (r->kind == TRL_OPTIM_SGD && !strcmp(key, "momentum"))
        return parse_number(key, value, &r->momentum, err);
    if (r->kind == TRL_OPTIM_SGD && !strcmp(key, "dampening"))
        return parse_number(key, value, &r->dampening, err);
    if (r->kind == TRL_OPTIM_SGD && !strcmp(key, "nesterov")) {
        r->nesterov = !strcasecmp(value, "true") || !strcmp(value, "1") || !strcasecmp(value, "yes");
        return 0;
    }
    /* transformers ignores what the optimiser does not read; sgd's weight_decay loses against the option's */
    trl_warn("optim_args: \"%s\" has no effect with optim %s (as in transformers)%s", key, cfg->name,
        r->kind == TRL_OPTIM_SGD ? "; momentum, dampening and nesterov have" : "");
    return 0;
}

static int parse_args(const struct trl_optim_config *cfg, struct trl__optim_rule *r, struct trl_err *err)
{
    if (!cfg->args || !*cfg->args)
        return 0;
    char *text = trl_strdup(cfg->args), *p, *next;
    if (!text)
        return trl_fail_nomem(err, strlen(cfg->args), "optim_args");
    /* spaces anywhere are ignored */
    size_t n = 0;
    for (p = text; *p; p++)
        if (*p != ' ')
            text[n++] = *p;
    text[n] = '\0';
    int rc = 0;
    for (p = text; p && rc == 0; p = next) {
        next = strchr(p, ',');
        if (next)
            *next++ = '\0';
        char *eq = strchr(p, '=');
        if (!eq || eq == p || strchr(eq + 1, '=')) {
            rc = trl_fail(err, TRL_E_USAGE, "optim_args: \"%.100s\" is not of the form key=value[,key=value...]", p);
        } else {
            *eq = '\0';
            rc = apply_arg(cfg, r, p, eq + 1, err);
        }
    }
    trl_free(text);
    return rc;
}

static int check_ranges(const struct trl_optim_config *cfg, const struct trl__optim_rule *r, struct trl_err *err)
{
    bool betas = r->kind == TRL_OPTIM_ADAMW || r->kind == TRL_OPTIM_LION;
    if (betas && !(cfg->beta1 >= 0 && cfg->beta1 < 1))
        return trl_fail(err, TRL_E_RANGE, "adam_beta1 is %g; allowed: 0 or more and below 1", cfg->beta1);
    if (betas && !(cfg->beta2 >= 0 && cfg->beta2 < 1))
        return trl_fail(err, TRL_E_RANGE, "adam_beta2 is %g; allowed: 0 or more and below 1", cfg->beta2);
    if (r->kind == TRL_OPTIM_ADAMW && !(cfg->eps >= 0 && isfinite(cfg->eps)))
        return trl_fail(err, TRL_E_RANGE, "adam_epsilon is %g; allowed: a finite number of at least 0", cfg->eps);
    if (!(cfg->weight_decay >= 0 && isfinite(cfg->weight_decay)))
        return trl_fail(err, TRL_E_RANGE, "weight_decay is %g; allowed: a finite number of at least 0", cfg->weight_decay);
    if (r->momentum < 0)
        return trl_fail(err, TRL_E_RANGE, "optim_args: momentum is %g; allowed: at least 0", r->momentum);
    if (r->nesterov && (r->momentum <= 0 || r->dampening != 0))
        return trl_fail(err, TRL_E_USAGE, "optim_args: nesterov needs momentum above 0 and dampening 0 (they are %g and %g)",
            r->momentum, r->dampening);
    return 0;
}

int trl__optim_resolve(const struct trl_optim_config *cfg, struct trl__optim_rule *ret, struct trl_err *err)
{
    const struct name *n = NULL;
    int rc = find_name(cfg->name ? cfg->name : "", &n, err);
    if (rc != 0)
        return rc;
    if (n->kind < 0)
        return trl_fail(err, TRL_E_UNSUPPORTED, "optim \"%s\" is not supported: %s; use for example \"%s\"", n->name, n->why,
            n->instead);
    struct trl__optim_rule r = {.kind = (enum trl_optim_kind)n->kind, .fused = !strcmp(n->name, "adamw_torch_fused")};
    rc = parse_args(cfg, &r, err);
    if (rc == 0)
        rc = check_ranges(cfg, &r, err);
    if (rc != 0)
        return rc;
    if (r.kind == TRL_OPTIM_ADAMW || r.kind == TRL_OPTIM_LION || (r.kind == TRL_OPTIM_SGD && r.momentum != 0))
        r.n_slabs = r.kind == TRL_OPTIM_ADAMW ? 2 : 1;
    r.slab_names[0] = r.kind == TRL_OPTIM_SGD ? "momentum_buffer" : "exp_avg";
    r.slab_names[1] = "exp_avg_sq";
    *ret = r;
    return 0;
}

int trl_optim_check(const struct trl_optim_config *cfg, struct trl_err *err)
{
    struct trl__optim_rule r;
    return trl__optim_resolve(cfg, &r, err);
}
