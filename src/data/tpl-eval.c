/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions: the tree to a value. */
#include <string.h>

#include "data/tpl-internal.h"

int tpl_enter(struct tpl_render *r, const struct tpl_node *n, bool call)
{
    if (call && r->call_depth >= TPL_MAX_CALL_DEPTH) {
        r->at = n;
        return tpl_raise(r, "macros or recursive loops call each other deeper than %d levels",
            TPL_MAX_CALL_DEPTH);
    }
    if (r->eval_depth >= TPL_MAX_EVAL_DEPTH) {
        r->at = n;
        return tpl_raise(r, "expressions and calls nest deeper than %d levels", TPL_MAX_EVAL_DEPTH);
    }
    r->call_depth += call;
    r->eval_depth++;
    return 0;
}

void tpl_leave(struct tpl_render *r, bool call)
{
    r->call_depth -= call;
    r->eval_depth--;
}

int tpl_resolve(
    struct tpl_render *r, struct tpl_scope *sc, const struct tpl_node *n, struct tpl_value *ret)
{
    for (; sc; sc = sc->parent) {
        for (size_t i = 0; i < sc->n; i++) {
            if (sc->vars[i].name == n->name) {
                *ret = sc->vars[i].value;
                return 0;
            }
        }
    }
    if (!r->global_known[n->name]) {
        const json_t *j = json_object_get(r->vars, n->text);
        const struct tpl_builtin *b = j ? NULL : tpl_func_find(n->text);
        struct tpl_value *g = &r->globals[n->name];
        int rc;
        if (j) {
            rc = tpl_from_json(r, j, g);
        } else if (b) {
            struct tpl_func *f = tpl_alloc(r, sizeof(*f));
            rc = f ? 0 : TRL_E_DATA;
            if (f) {
                f->builtin = b;
                *g = (struct tpl_value){.kind = TPL_FUNC, .u.func = f};
            }
        } else {
            rc = tpl_undef_new(r, g, "'%s' is undefined", n->text);
        }
        if (rc != 0)
            return rc;
        r->global_known[n->name] = true;
    }
    *ret = r->globals[n->name];
    return 0;
}

static int eval_list(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    int rc = tpl_seq_new(r, n->kind == TPL_N_LIST ? TPL_LIST : TPL_TUPLE, n->list.n, ret);
    for (size_t i = 0; i < n->list.n && rc == 0; i++)
        rc = tpl_eval(r, n->list.v[i], sc, &ret->u.seq->items[i]);
    return rc;
}

static int eval_dict(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    struct tpl_value key, val;
    int rc = tpl_dict_new(r, TPL_DICT, n->list.n, ret);
    for (size_t i = 0; i < n->list.n && rc == 0; i++) {
        rc = tpl_eval(r, n->list.v[i], sc, &key);
        if (rc == 0)
            rc = tpl_eval(r, n->list2.v[i], sc, &val);
        r->at = n;
        if (rc == 0)
            rc = tpl_dict_set(r, ret->u.dict, &key, &val);
    }
    return rc;
}

static int eval_slice(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    const struct tpl_node *part[3] = {n->a, n->b, n->c};
    struct tpl_slice *s = tpl_alloc(r, sizeof(*s));
    if (!s)
        return TRL_E_DATA;
    for (int i = 0; i < 3; i++) {
        s->part[i] = tpl_none();
        int rc = part[i] ? tpl_eval(r, part[i], sc, &s->part[i]) : 0;
        if (rc != 0)
            return rc;
    }
    *ret = (struct tpl_value){.kind = TPL_SLICE, .u.slice = s};
    return 0;
}

int tpl_eval_args(struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc,
    const struct tpl_value *caller, struct tpl_args *ret)
{
    const struct tpl_value *dyn = NULL;
    struct tpl_value extra;
    size_t n_dyn = 0, n_kw = n->list2.n + (caller != NULL);
    struct tpl_dict *dyn_kw = NULL;
    int rc = 0;
    struct tpl_value *v = tpl_alloc_array(r, n->list.n + 1, sizeof(*v));
    if (!v)
        return TRL_E_DATA;
    for (size_t i = 0; i < n->list.n; i++) {
        if ((rc = tpl_eval(r, n->list.v[i], sc, &v[i])) != 0)
            return rc;
    }
    if (n->dyn_args) {
        if ((rc = tpl_eval(r, n->dyn_args, sc, &extra)) != 0 ||
            (rc = tpl_items(r, &extra, &dyn, &n_dyn)) != 0)
            return rc;
        struct tpl_value *all = tpl_alloc_array(r, n->list.n + n_dyn + 1, sizeof(*all));
        if (!all)
            return TRL_E_DATA;
        memcpy(all, v, n->list.n * sizeof(*v));
        if (n_dyn)
            memcpy(all + n->list.n, dyn, n_dyn * sizeof(*v));
        v = all;
    }
    if (n->dyn_kwargs) {
        if ((rc = tpl_eval(r, n->dyn_kwargs, sc, &extra)) != 0)
            return rc;
        if (extra.kind != TPL_DICT)
            return tpl_raise(
                r, "argument after ** must be a mapping, not %s", tpl_type_name(&extra));
        dyn_kw = extra.u.dict;
        if ((rc = tpl_dict_load(r, dyn_kw)) != 0)
            return rc;
        n_kw += dyn_kw->len;
    }
    *ret = (struct tpl_args){.v = v, .n = n->list.n + n_dyn};
    if (n_kw == 0)
        return 0;
    const char **names = tpl_alloc_array(r, n_kw, sizeof(*names));
    struct tpl_value *kv = names ? tpl_alloc_array(r, n_kw, sizeof(*kv)) : NULL;
    if (!kv)
        return TRL_E_DATA;
    size_t k = 0;
    for (; k < n->list2.n; k++) {
        names[k] = n->knames[k];
        if ((rc = tpl_eval(r, n->list2.v[k], sc, &kv[k])) != 0)
            return rc;
    }
    for (size_t i = 0; dyn_kw && i < dyn_kw->len; i++, k++) {
        struct tpl_value name;
        if (dyn_kw->keys[i].kind != TPL_STR)
            return tpl_raise(r, "keywords must be strings");
        if ((rc = tpl_str_new(r, dyn_kw->keys[i].u.str->data, dyn_kw->keys[i].u.str->len, &name)) !=
            0)
            return rc;
        names[k] = name.u.str->data;
        kv[k] = dyn_kw->vals[i];
    }
    if (caller) {
        names[k] = "caller";
        kv[k++] = *caller;
    }
    ret->knames = names;
    ret->kv = kv;
    ret->nk = k;
    return 0;
}

int tpl_call(struct tpl_render *r, const struct tpl_value *fn, const struct tpl_args *a,
    struct tpl_value *ret)
{
    switch (fn->kind) {
    case TPL_UNDEF:
        return tpl_use_undef(r, fn);
    case TPL_FUNC:
        return fn->u.func->builtin->fn(r, &fn->u.func->self, a, ret);
    case TPL_MACRO:
        return tpl_macro_call(r, fn->u.macro, a, ret);
    case TPL_LOOP: {
        struct tpl_loop *l = fn->u.loop;
        struct trl_str out = {0};
        if (!l->node->flag)
            return tpl_raise(
                r, "The loop must have the 'recursive' marker to be called recursively.");
        if (a->n != 1 || a->nk)
            return tpl_raise(r, "loop() takes exactly one argument");
        int rc = tpl_enter(r, r->at, true);
        if (rc != 0)
            return rc;
        rc = tpl_loop_run(r, l->node, &a->v[0], l->outer, l->depth0 + 1, &out);
        tpl_leave(r, true);
        if (rc == 0)
            return tpl_str_take_buf(r, &out, ret);
        trl_str_release(&out);
        return rc;
    }
    default:
        return tpl_raise(r, "'%s' object is not callable", tpl_type_name(fn));
    }
}

/* Filters and tests: input, arguments, function. */
static int eval_apply(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    struct tpl_value input;
    struct tpl_args args = {0};
    int rc = tpl_eval(r, n->a, sc, &input);
    if (rc == 0 && (n->list.n || n->list2.n || n->dyn_args || n->dyn_kwargs))
        rc = tpl_eval_args(r, n, sc, NULL, &args);
    r->at = n;
    if (rc == 0 && !n->builtin)
        return tpl_raise(
            r, "No %s named '%s'.", n->kind == TPL_N_FILTER ? "filter" : "test", n->text);
    return rc != 0 ? rc : n->builtin->fn(r, &input, &args, ret);
}

static int eval_call(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    struct tpl_value fn;
    struct tpl_args args;
    int rc = tpl_eval(r, n->a, sc, &fn);
    if (rc == 0)
        rc = tpl_eval_args(r, n, sc, NULL, &args);
    r->at = n;
    return rc != 0 ? rc : tpl_call(r, &fn, &args, ret);
}

static int eval_compare(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    struct tpl_value left, right;
    bool hit = true;
    int rc = tpl_eval(r, n->a, sc, &left);
    for (size_t i = 0; i < n->list.n && rc == 0 && hit; i++) {
        const struct tpl_node *part = n->list.v[i];
        rc = tpl_eval(r, part->a, sc, &right);
        r->at = part;
        if (rc == 0)
            rc = tpl_compare_op(r, part->op, &left, &right, &hit);
        left = right;
    }
    *ret = tpl_bool(hit);
    return rc;
}

static int eval_concat(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    struct tpl_value *v = tpl_alloc_array(r, n->list.n, sizeof(*v));
    int rc = v ? 0 : TRL_E_DATA;
    for (size_t i = 0; i < n->list.n && rc == 0; i++)
        rc = tpl_eval(r, n->list.v[i], sc, &v[i]);
    r->at = n;
    for (size_t i = 0; i < n->list.n && rc == 0; i++) {
        rc = tpl_to_str(r, &v[i], &v[i]);
        if (rc == 0 && i)
            rc = tpl_str_concat(r, &v[0], &v[i], &v[0]);
    }
    if (rc == 0) {
        *ret = v[0];
        ret->markup = false;
    }
    return rc;
}

static int eval_logic(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    bool yes = false;
    int rc = tpl_eval(r, n->a, sc, ret);
    if (rc == 0)
        rc = tpl_truth(r, ret, &yes);
    if (rc != 0)
        return rc;
    if (n->kind == TPL_N_NOT) {
        *ret = tpl_bool(!yes);
        return 0;
    }
    return yes == (n->kind == TPL_N_AND) ? tpl_eval(r, n->b, sc, ret) : 0;
}

static int eval_cond(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    bool yes = false;
    int rc = tpl_eval(r, n->b, sc, ret);
    if (rc == 0)
        rc = tpl_truth(r, ret, &yes);
    if (rc != 0)
        return rc;
    if (yes)
        return tpl_eval(r, n->a, sc, ret);
    if (n->c)
        return tpl_eval(r, n->c, sc, ret);
    return tpl_undef_new(r, ret,
        "the inline if-expression on line %u evaluated to false and no else section was defined.",
        n->line);
}

static int eval_node(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    struct tpl_value a, b;
    int rc;
    switch (n->kind) {
    case TPL_N_CONST:
        *ret = n->value;
        return 0;
    case TPL_N_NAME:
        r->at = n;
        return tpl_resolve(r, sc, n, ret);
    case TPL_N_TUPLE:
    case TPL_N_LIST:
        return eval_list(r, n, sc, ret);
    case TPL_N_DICT:
        return eval_dict(r, n, sc, ret);
    case TPL_N_ATTR:
        rc = tpl_eval(r, n->a, sc, &a);
        r->at = n;
        return rc != 0 ? rc : tpl_getattr(r, &a, n->text, ret);
    case TPL_N_ITEM:
        rc = tpl_eval(r, n->a, sc, &a);
        if (rc == 0)
            rc = tpl_eval(r, n->b, sc, &b);
        r->at = n;
        return rc != 0 ? rc : tpl_getitem(r, &a, &b, ret);
    case TPL_N_SLICE:
        return eval_slice(r, n, sc, ret);
    case TPL_N_CALL:
        return eval_call(r, n, sc, ret);
    case TPL_N_FILTER:
    case TPL_N_TEST:
        return eval_apply(r, n, sc, ret);
    case TPL_N_COND:
        return eval_cond(r, n, sc, ret);
    case TPL_N_AND:
    case TPL_N_OR:
    case TPL_N_NOT:
        return eval_logic(r, n, sc, ret);
    case TPL_N_NEG:
    case TPL_N_POS:
        rc = tpl_eval(r, n->a, sc, &a);
        r->at = n;
        return rc != 0 ? rc : tpl_negate(r, &a, n->kind == TPL_N_NEG, ret);
    case TPL_N_BINARY:
        rc = tpl_eval(r, n->a, sc, &a);
        if (rc == 0)
            rc = tpl_eval(r, n->b, sc, &b);
        r->at = n;
        return rc != 0 ? rc : tpl_arith(r, n->op, &a, &b, ret);
    case TPL_N_CONCAT:
        return eval_concat(r, n, sc, ret);
    case TPL_N_COMPARE:
        return eval_compare(r, n, sc, ret);
    default:
        r->at = n;
        return tpl_raise(r, "this is no expression");
    }
}

int tpl_eval(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    int rc = tpl_enter(r, n, false);
    if (rc != 0)
        return rc;
    rc = eval_node(r, n, sc, ret);
    tpl_leave(r, false);
    return rc;
}
