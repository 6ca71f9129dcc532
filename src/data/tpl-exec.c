/* SPDX-License-Identifier: Apache-2.0 */
/* Statements: the tree to text. Scopes: `for`, macros, call blocks, `generation`, `with` and block
 * set have one of their own (what is set inside does not leak); `if` has none. */
#include <string.h>

#include "base/alloc.h"
#include "data/tpl-internal.h"

struct tpl_scope *tpl_scope_new(struct tpl_render *r, struct tpl_scope *parent)
{
    struct tpl_scope *s = tpl_alloc(r, sizeof(*s));
    if (s)
        s->parent = parent;
    return s;
}

int tpl_scope_set(
    struct tpl_render *r, struct tpl_scope *sc, uint32_t name, const struct tpl_value *v)
{
    for (size_t i = 0; i < sc->n; i++) {
        if (sc->vars[i].name == name) {
            sc->vars[i].value = *v;
            return 0;
        }
    }
    if (sc->n == sc->cap) {
        size_t cap = sc->cap ? 2 * sc->cap : 4;
        struct tpl_var *vars = tpl_alloc_array(r, cap, sizeof(*vars));
        if (!vars)
            return TRL_E_DATA;
        if (sc->n)
            memcpy(vars, sc->vars, sc->n * sizeof(*vars));
        sc->vars = vars;
        sc->cap = cap;
    }
    sc->vars[sc->n++] = (struct tpl_var){name, *v};
    return 0;
}

int tpl_out_check(struct tpl_render *r, const struct trl_str *out)
{
    if (out->failed)
        return tpl_raise_code(r, TRL_E_NOMEM, "out of memory");
    size_t start = out == r->out ? r->out_start : 0;
    if (out->len - start > TPL_MAX_OUTPUT)
        return tpl_raise(r, "the output becomes longer than %zu MB", TPL_MAX_OUTPUT >> 20);
    return 0;
}

static int assign_ns(
    struct tpl_render *r, const struct tpl_node *t, const struct tpl_value *v, struct tpl_scope *sc)
{
    struct tpl_value ns, key;
    r->at = t;
    int rc = tpl_resolve(r, sc, t, &ns);
    if (rc != 0)
        return rc;
    if (ns.kind != TPL_NAMESPACE)
        return tpl_raise(r, "cannot assign attribute on non-namespace object");
    if (t->a->text[0] == '_')
        return tpl_raise(r,
            "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
            "'%s'. "
            "Please rename the attribute.",
            t->a->text);
    rc = tpl_str_wrap(r, t->a->text, strlen(t->a->text), &key);
    return rc != 0 ? rc : tpl_dict_set(r, ns.u.dict, &key, v);
}

int tpl_assign(
    struct tpl_render *r, const struct tpl_node *t, const struct tpl_value *v, struct tpl_scope *sc)
{
    if (t->kind == TPL_N_NAME)
        return tpl_scope_set(r, sc, t->name, v);
    if (t->kind == TPL_N_NSREF)
        return assign_ns(r, t, v, sc);
    const struct tpl_value *items;
    size_t n;
    r->at = t;
    if (!tpl_is_iterable(v))
        return tpl_raise(r, "cannot unpack non-iterable %s object", tpl_type_name(v));
    int rc = tpl_items(r, v, &items, &n);
    if (rc != 0)
        return rc;
    if (n < t->list.n)
        return tpl_raise(r, "not enough values to unpack (expected %zu, got %zu)", t->list.n, n);
    if (n > t->list.n)
        return tpl_raise(r, "too many values to unpack (expected %zu)", t->list.n);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = tpl_assign(r, t->list.v[i], &items[i], sc);
    return rc;
}

static int exec_output(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out)
{
    struct tpl_value v;
    int rc = tpl_eval(r, n->a, sc, &v);
    r->at = n;
    if (rc == 0)
        rc = tpl_print(r, &v, out);
    return rc != 0 ? rc : tpl_out_check(r, out);
}

static int exec_if(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out)
{
    const struct tpl_node *branch = n;
    for (size_t i = 0;; i++) {
        bool yes = true;
        if (branch->a) {
            struct tpl_value v;
            int rc = tpl_eval(r, branch->a, sc, &v);
            if (rc == 0)
                rc = tpl_truth(r, &v, &yes);
            if (rc != 0)
                return rc;
        }
        if (yes)
            return tpl_exec(r, &branch->list, sc, out);
        if (i == n->list2.n)
            return 0;
        branch = n->list2.v[i];
    }
}

/* Apply the filters of a `filter` or block set: their chain ends in a filter without input. */
static int apply_filters(
    struct tpl_render *r, const struct tpl_node *f, struct tpl_scope *sc, struct tpl_value *v)
{
    struct tpl_args args = {0};
    if (!f)
        return 0;
    int rc = tpl_enter(r, f, false);
    if (rc != 0)
        return rc;
    rc = apply_filters(r, f->a, sc, v);
    tpl_leave(r, false);
    if (rc == 0)
        rc = tpl_eval_args(r, f, sc, NULL, &args);
    r->at = f;
    if (rc == 0 && !f->builtin)
        return tpl_raise(r, "No filter named '%s'.", f->text);
    struct tpl_value in = *v;
    return rc != 0 ? rc : f->builtin->fn(r, &in, &args, v);
}

/* A body in a scope of its own, as a string. */
static int capture(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    struct trl_str text = {0};
    struct tpl_scope *inner = tpl_scope_new(r, sc);
    int rc = inner ? tpl_exec(r, &n->list, inner, &text) : TRL_E_DATA;
    r->at = n;
    if (rc == 0)
        return tpl_str_take_buf(r, &text, ret);
    trl_str_release(&text);
    return rc;
}

static int exec_captured(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out)
{
    struct tpl_value v;
    int rc = capture(r, n, sc, &v);
    if (rc == 0)
        rc = apply_filters(r, n->b, sc, &v);
    if (rc != 0)
        return rc;
    if (n->kind == TPL_N_SET_BLOCK)
        return tpl_assign(r, n->a, &v, sc);
    rc = tpl_print(r, &v, out);
    return rc != 0 ? rc : tpl_out_check(r, out);
}

static int add_span(struct tpl_render *r, size_t begin, size_t end)
{
    struct trl_spans *s = r->spans;
    if (!s)
        return 0;
    if (s->len == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 8;
        size_t *b = trl_realloc(s->begin, cap * sizeof(*b));
        if (b)
            s->begin = b;
        size_t *e = b ? trl_realloc(s->end, cap * sizeof(*e)) : NULL;
        if (!e)
            return tpl_raise_code(r, TRL_E_NOMEM, "out of memory");
        s->end = e;
        s->cap = cap;
    }
    s->begin[s->len] = begin;
    s->end[s->len++] = end;
    return 0;
}

/* Where the text will stand is what the root output holds now: exact unless the block is inside a
 * macro or a captured body, where transformers has the same value. */
static int exec_generation(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out)
{
    struct tpl_value v;
    int rc = capture(r, n, sc, &v);
    if (rc == 0) {
        size_t begin = r->out->len - r->out_start;
        rc = add_span(r, begin, begin + v.u.str->len);
    }
    if (rc != 0)
        return rc;
    trl_str_append(out, v.u.str->data, v.u.str->len);
    return tpl_out_check(r, out);
}

static int new_macro(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret)
{
    struct tpl_macro *m = tpl_alloc(r, sizeof(*m));
    if (!m)
        return TRL_E_DATA;
    m->def = n;
    m->closure = sc;
    for (; sc && !sc->captured; sc = sc->parent)
        sc->captured = true;
    *ret = (struct tpl_value){.kind = TPL_MACRO, .u.macro = m};
    return 0;
}

static int exec_macro(struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc)
{
    struct tpl_value m;
    int rc = new_macro(r, n, sc, &m);
    return rc != 0 ? rc : tpl_scope_set(r, sc, n->a->name, &m);
}

static int exec_call_block(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out)
{
    struct tpl_value caller, fn, v;
    struct tpl_args args;
    int rc = new_macro(r, n, sc, &caller);
    if (rc == 0)
        rc = tpl_eval(r, n->b->a, sc, &fn);
    if (rc == 0)
        rc = tpl_eval_args(r, n->b, sc, &caller, &args);
    r->at = n->b;
    if (rc == 0)
        rc = tpl_call(r, &fn, &args, &v);
    if (rc == 0)
        rc = tpl_print(r, &v, out);
    return rc != 0 ? rc : tpl_out_check(r, out);
}

static int exec_with(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out)
{
    struct tpl_scope *inner = tpl_scope_new(r, sc);
    int rc = inner ? 0 : TRL_E_DATA;
    for (size_t i = 0; i < n->list2.n && rc == 0; i++) {
        struct tpl_value v;
        rc = tpl_eval(r, n->list2.v[i]->a, sc, &v);
        if (rc == 0)
            rc = tpl_scope_set(r, inner, n->list2.v[i]->name, &v);
    }
    return rc != 0 ? rc : tpl_exec(r, &n->list, inner, out);
}

static int exec_one(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out)
{
    struct tpl_value v;
    int rc;
    switch (n->kind) {
    case TPL_N_TEXT:
        trl_str_append(out, n->value.u.str->data, n->value.u.str->len);
        r->at = n;
        return tpl_out_check(r, out);
    case TPL_N_OUTPUT:
        return exec_output(r, n, sc, out);
    case TPL_N_IF:
        return exec_if(r, n, sc, out);
    case TPL_N_FOR:
        return tpl_exec_for(r, n, sc, out);
    case TPL_N_SET:
        rc = tpl_eval(r, n->b, sc, &v);
        return rc != 0 ? rc : tpl_assign(r, n->a, &v, sc);
    case TPL_N_SET_BLOCK:
    case TPL_N_FILTER_BLOCK:
        return exec_captured(r, n, sc, out);
    case TPL_N_MACRO:
        return exec_macro(r, n, sc);
    case TPL_N_CALL_BLOCK:
        return exec_call_block(r, n, sc, out);
    case TPL_N_WITH:
        return exec_with(r, n, sc, out);
    case TPL_N_GENERATION:
        return exec_generation(r, n, sc, out);
    case TPL_N_BREAK:
        return TPL_FLOW_BREAK;
    case TPL_N_CONTINUE:
        return TPL_FLOW_CONTINUE;
    default:
        r->at = n;
        return tpl_raise(r, "this is no statement");
    }
}

int tpl_exec(
    struct tpl_render *r, const struct tpl_nodes *body, struct tpl_scope *sc, struct trl_str *out)
{
    if (body->n == 0)
        return 0;
    int rc = tpl_enter(r, body->v[0], false);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < body->n && rc == 0; i++)
        rc = exec_one(r, body->v[i], sc, out);
    tpl_leave(r, false);
    return rc;
}
