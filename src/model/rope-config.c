/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions in config.json: transformers 4 has rope_theta and rope_scaling, transformers 5
 * rope_parameters. */
#include <math.h>
#include <string.h>

#include "model/config.h"

static const char *const rope_names[] = {
#define X(name, text) text,
    TRL_ROPES(X)
#undef X
};

/* A complaint about field `key` of the object `where`. */
static double sub_num(struct trl_config_reader *r, const char *where, const json_t *o,
    const char *key, double def, double min, double max)
{
    const json_t *j = json_object_get(o, key);
    if (!j || json_is_null(j)) {
        if (isnan(def))
            trl__problem(r->p, TRL_E_DATA, "%s.%s is missing", where, key);
        return def;
    }
    double v = json_number_value(j);
    if (!json_is_number(j) || !(v >= min && v <= max)) {
        trl__problem(r->p, TRL_E_RANGE, "%s.%s is no number from %g to %g", where, key, min, max);
        return isnan(def) ? min : def;
    }
    return v;
}

static void read_yarn(
    struct trl_config_reader *r, struct trl_rope_config *c, const json_t *o, const char *where)
{
    c->beta_fast = sub_num(r, where, o, "beta_fast", 32, 1e-6, 1e6);
    c->beta_slow = sub_num(r, where, o, "beta_slow", 1, 1e-6, 1e6);
    c->truncate = !json_is_false(json_object_get(o, "truncate"));
    double mscale = sub_num(r, where, o, "mscale", 0, 0, 1e6);
    double mscale_all = sub_num(r, where, o, "mscale_all_dim", 0, 0, 1e6);
    double ln = c->factor > 1 ? log(c->factor) : 0;
    double def = mscale > 0 && mscale_all > 0
        ? (0.1 * mscale * ln + 1) / (0.1 * mscale_all * ln + 1)
        : 0.1 * ln + 1;
    c->attention_factor = sub_num(r, where, o, "attention_factor", def, 1e-6, 1e6);
}

void trl__cfg_rope_object(struct trl_config_reader *r, struct trl_model_config *c,
    struct trl_rope_config *ret, const json_t *o, double theta, const char *where)
{
    *ret = (struct trl_rope_config){
        .theta = theta, .factor = 1, .attention_factor = 1, .original_max = c->max_positions};
    if (!o || json_is_null(o))
        return;
    if (!json_is_object(o)) {
        trl__problem(r->p, TRL_E_DATA, "%s is not an object", where);
        return;
    }
    ret->theta = sub_num(r, where, o, "rope_theta", theta, 1e-3, 1e15);
    const json_t *t = json_object_get(o, "rope_type");
    if (!t)
        t = json_object_get(o, "type");
    const char *name = t && !json_is_null(t) ? json_string_value(t) : "default";
    int k = 0;
    while (k < TRL_ROPE_MAX_ && (!name || strcmp(rope_names[k], name) != 0))
        k++;
    if (k == TRL_ROPE_MAX_) {
        trl__problem(r->p, TRL_E_UNSUPPORTED,
            "%s.rope_type \"%.40s\" is not supported (default, linear, dynamic, llama3, yarn are)",
            where, name ? name : "?");
        return;
    }
    ret->kind = (enum trl_rope_kind)k;
    if (sub_num(r, where, o, "partial_rotary_factor", 1, 0, 1) != 1)
        trl__problem(r->p, TRL_E_UNSUPPORTED,
            "%s.partial_rotary_factor other than 1 is not supported", where);
    if (ret->kind == TRL_ROPE_DEFAULT)
        return;
    ret->factor = sub_num(r, where, o, "factor", NAN, 1e-3, 1e6);
    if (ret->kind == TRL_ROPE_LLAMA3 || ret->kind == TRL_ROPE_YARN)
        ret->original_max = (int64_t)sub_num(r, where, o, "original_max_position_embeddings",
            (double)c->max_positions, 1, INT32_MAX);
    if (ret->kind == TRL_ROPE_LLAMA3) {
        ret->low_freq_factor = sub_num(r, where, o, "low_freq_factor", NAN, 1e-6, 1e6);
        ret->high_freq_factor = sub_num(r, where, o, "high_freq_factor", NAN, 1e-6, 1e6);
        if (ret->high_freq_factor <= ret->low_freq_factor)
            trl__problem(
                r->p, TRL_E_DATA, "%s.high_freq_factor is not above low_freq_factor", where);
    }
    if (ret->kind == TRL_ROPE_YARN)
        read_yarn(r, ret, o, where);
}

void trl__cfg_rope(struct trl_config_reader *r, struct trl_model_config *c, double default_theta)
{
    double theta = trl__cfg_num(r, "rope_theta", default_theta, 1e-3, 1e15);
    bool old = trl__cfg_is_null(r, "rope_parameters");
    const char *where = old ? "rope_scaling" : "rope_parameters";
    trl__cfg_rope_object(r, c, &c->ropes[0], json_object_get(r->root, where), theta, where);
    c->n_ropes = 1;
}
