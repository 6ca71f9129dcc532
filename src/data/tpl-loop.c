/* SPDX-License-Identifier: Apache-2.0 */
/* `for` with its `loop` object, and calls of macros. The `if` of a loop is asked element by
 * element, just before it is needed, so that a namespace changed by the body counts, as in Jinja2.
 */
#include <string.h>

#include "data/tpl-internal.h"

/* The next element that passes the filter into *ret. */
static int fetch(struct tpl_render *r, struct tpl_loop *l, bool *ok, struct tpl_value *ret)
{
    *ok = false;
    while (l->pos < l->n_items) {
        const struct tpl_value *v = &l->items[l->pos++];
        bool yes = true;
        if (++r->iterations > TPL_MAX_ITERATIONS) {
            r->at = l->node;
            return tpl_raise(
                r, "more than %llu loop iterations", (unsigned long long)TPL_MAX_ITERATIONS);
        }
        if (l->node->c && !l->filtered) {
            struct tpl_value c;
            if (!l->test && !(l->test = tpl_scope_new(r, l->outer)))
                return TRL_E_DATA;
            l->test->n = 0;
            int rc = tpl_assign(r, l->node->a, v, l->test);
            if (rc == 0)
                rc = tpl_eval(r, l->node->c, l->test, &c);
            if (rc == 0)
                rc = tpl_truth(r, &c, &yes);
            if (rc != 0)
                return rc;
        }
        if (yes) {
            *ok = true;
            *ret = *v;
            return 0;
        }
    }
    return 0;
}

static int peek(struct tpl_render *r, struct tpl_loop *l)
{
    return l->has_after ? 0 : fetch(r, l, &l->has_after, &l->after);
}

/* All that is left, filtered, so that the number is known. */
static int length(struct tpl_render *r, struct tpl_loop *l, int64_t *ret)
{
    if (l->length < 0) {
        size_t left = l->n_items - l->pos, n = 0;
        if (l->node->c && !l->filtered) {
            struct tpl_value *rest = tpl_alloc_array(r, left ? left : 1, sizeof(*rest));
            if (!rest)
                return TRL_E_DATA;
            for (bool ok = true; ok; n += ok) {
                struct tpl_value v;
                int rc = fetch(r, l, &ok, &v);
                if (rc != 0)
                    return rc;
                if (ok)
                    rest[n] = v;
            }
            l->items = rest;
            l->n_items = n;
            l->pos = 0;
            l->filtered = true;
            left = n;
        }
        l->length = l->index0 + 1 + l->has_after + (int64_t)left;
    }
    *ret = l->length;
    return 0;
}

static int loop_cycle(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    struct tpl_value *ret)
{
    if (a->n == 0 || a->nk)
        return tpl_raise(r, "no items for cycling given");
    *ret = a->v[self->u.loop->index0 % (int64_t)a->n];
    return 0;
}

static int loop_changed(struct tpl_render *r, const struct tpl_value *self,
    const struct tpl_args *a, struct tpl_value *ret)
{
    struct tpl_loop *l = self->u.loop;
    struct tpl_value now;
    bool same = false;
    int rc = tpl_seq_new(r, TPL_TUPLE, a->n, &now);
    if (rc != 0)
        return rc;
    if (a->n)
        memcpy(now.u.seq->items, a->v, a->n * sizeof(struct tpl_value));
    if (l->has_changed)
        rc = tpl_equal(r, &l->changed, &now, &same);
    l->has_changed = true;
    l->changed = now;
    *ret = tpl_bool(!same);
    return rc;
}

int tpl_loop_getattr(
    struct tpl_render *r, struct tpl_loop *l, const char *name, bool *found, struct tpl_value *ret)
{
    static const struct tpl_builtin methods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
    int64_t n = 0;
    int rc = 0;
    *found = true;
    if (strcmp(name, "index") == 0) {
        *ret = tpl_int(l->index0 + 1);
    } else if (strcmp(name, "index0") == 0) {
        *ret = tpl_int(l->index0);
    } else if (strcmp(name, "first") == 0) {
        *ret = tpl_bool(l->index0 == 0);
    } else if (strcmp(name, "last") == 0) {
        rc = peek(r, l);
        *ret = tpl_bool(!l->has_after);
    } else if (strcmp(name, "length") == 0) {
        rc = length(r, l, &n);
        *ret = tpl_int(n);
    } else if (strcmp(name, "revindex") == 0) {
        rc = length(r, l, &n);
        *ret = tpl_int(n - l->index0);
    } else if (strcmp(name, "revindex0") == 0) {
        rc = length(r, l, &n);
        *ret = tpl_int(n - l->index0 - 1);
    } else if (strcmp(name, "previtem") == 0) {
        if (!l->has_before)
            return tpl_undef_new(r, ret, "there is no previous item");
        *ret = l->before;
    } else if (strcmp(name, "nextitem") == 0) {
        if ((rc = peek(r, l)) != 0)
            return rc;
        if (!l->has_after)
            return tpl_undef_new(r, ret, "there is no next item");
        *ret = l->after;
    } else if (strcmp(name, "depth") == 0) {
        *ret = tpl_int(l->depth0 + 1);
    } else if (strcmp(name, "depth0") == 0) {
        *ret = tpl_int(l->depth0);
    } else {
        const struct tpl_builtin *b = TPL_FIND(methods, name);
        struct tpl_func *f = b ? tpl_alloc(r, sizeof(*f)) : NULL;
        *found = b != NULL;
        if (b && !f)
            return TRL_E_DATA;
        if (b) {
            f->builtin = b;
            f->self = (struct tpl_value){.kind = TPL_LOOP, .u.loop = l};
            *ret = (struct tpl_value){.kind = TPL_FUNC, .u.func = f};
        }
    }
    return rc;
}

int tpl_loop_run(struct tpl_render *r, const struct tpl_node *n, const struct tpl_value *iterable,
    struct tpl_scope *sc, int depth0, struct trl_str *out)
{
    struct tpl_loop *l = tpl_alloc(r, sizeof(*l));
    if (!l)
        return TRL_E_DATA;
    *l = (struct tpl_loop){.node = n, .outer = sc, .index0 = -1, .depth0 = depth0, .length = -1};
    r->at = n->b;
    int rc = tpl_items(r, iterable, &l->items, &l->n_items);
    struct tpl_value self = {.kind = TPL_LOOP, .u.loop = l};
    bool ran = false;
    while (rc == 0) {
        struct tpl_value v;
        bool ok = l->has_after;
        if (ok) {
            v = l->after;
            l->has_after = false;
        } else if ((rc = fetch(r, l, &ok, &v)) != 0) {
            break;
        }
        if (!ok)
            break;
        ran = true;
        l->index0++;
        l->has_before = l->index0 > 0;
        l->before = l->current;
        l->current = v;
        if (!l->body || l->body->captured) {
            l->body = tpl_scope_new(r, sc);
            if (!l->body)
                return TRL_E_DATA;
        }
        l->body->n = 0;
        if (r->t->loop_id != UINT32_MAX)
            rc = tpl_scope_set(r, l->body, r->t->loop_id, &self);
        if (rc == 0)
            rc = tpl_assign(r, n->a, &v, l->body);
        if (rc == 0)
            rc = tpl_exec(r, &n->list, l->body, out);
        if (rc == TPL_FLOW_CONTINUE)
            rc = 0;
    }
    if (rc == TPL_FLOW_BREAK)
        return 0;
    if (rc == 0 && !ran && n->list2.n) {
        struct tpl_scope *other = tpl_scope_new(r, sc);
        rc = other ? tpl_exec(r, &n->list2, other, out) : TRL_E_DATA;
    }
    return rc;
}

int tpl_exec_for(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out)
{
    struct tpl_value v;
    int rc = tpl_eval(r, n->b, sc, &v);
    return rc != 0 ? rc : tpl_loop_run(r, n, &v, sc, 0, out);
}

/* ---- macros ---- */

static int bind_macro(
    struct tpl_render *r, const struct tpl_macro *m, const struct tpl_args *a, struct tpl_scope *sc)
{
    const struct tpl_node *def = m->def;
    size_t n = def->list2.n;
    bool *used = tpl_alloc_array(r, a->nk + 1, sizeof(bool));
    int rc = used ? 0 : TRL_E_DATA;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct tpl_node *param = def->list2.v[i];
        struct tpl_value v;
        bool given = i < a->n;
        if (given)
            v = a->v[i];
        for (size_t k = 0; k < a->nk && !given; k++) {
            if (strcmp(a->knames[k], param->text) == 0) {
                used[k] = given = true;
                v = a->kv[k];
            }
        }
        if (!given && param->a)
            rc = tpl_eval(r, param->a, sc, &v);
        else if (!given)
            rc = tpl_undef_new(r, &v, "parameter '%s' was not provided", param->text);
        if (rc == 0)
            rc = tpl_scope_set(r, sc, param->name, &v);
    }
    if (rc == 0 && def->flag) {
        struct tpl_value caller = tpl_none();
        bool given = false;
        for (size_t k = 0; k < a->nk; k++) {
            if (!used[k] && strcmp(a->knames[k], "caller") == 0) {
                used[k] = given = true;
                caller = a->kv[k];
            }
        }
        if (!given)
            rc = tpl_undef_new(r, &caller, "No caller defined");
        if (rc == 0)
            rc = tpl_scope_set(r, sc, r->t->caller_id, &caller);
    }
    if (rc == 0 && def->kwargs) {
        struct tpl_value d, key;
        rc = tpl_dict_new(r, TPL_DICT, a->nk, &d);
        for (size_t k = 0; k < a->nk && rc == 0; k++) {
            if (used[k])
                continue;
            used[k] = true;
            rc = tpl_str_wrap(r, a->knames[k], strlen(a->knames[k]), &key);
            if (rc == 0)
                rc = tpl_dict_set(r, d.u.dict, &key, &a->kv[k]);
        }
        if (rc == 0)
            rc = tpl_scope_set(r, sc, r->t->kwargs_id, &d);
    }
    for (size_t k = 0; k < a->nk && rc == 0; k++) {
        if (!used[k])
            return tpl_raise(
                r, "macro '%s' takes no keyword argument '%s'", def->text, a->knames[k]);
    }
    if (rc == 0 && def->varargs) {
        struct tpl_value rest;
        size_t extra = a->n > n ? a->n - n : 0;
        rc = tpl_seq_new(r, TPL_TUPLE, extra, &rest);
        if (rc == 0 && extra)
            memcpy(rest.u.seq->items, a->v + n, extra * sizeof(struct tpl_value));
        if (rc == 0)
            rc = tpl_scope_set(r, sc, r->t->varargs_id, &rest);
    } else if (rc == 0 && a->n > n) {
        return tpl_raise(r, "macro '%s' takes not more than %zu argument(s)", def->text, n);
    }
    return rc;
}

int tpl_macro_call(struct tpl_render *r, const struct tpl_macro *m, const struct tpl_args *a,
    struct tpl_value *ret)
{
    int rc = tpl_enter(r, r->at ? r->at : m->def, true);
    if (rc != 0)
        return rc;
    struct trl_str text = {0};
    struct tpl_scope *sc = tpl_scope_new(r, m->closure);
    rc = sc ? bind_macro(r, m, a, sc) : TRL_E_DATA;
    if (rc == 0)
        rc = tpl_exec(r, &m->def->list, sc, &text);
    tpl_leave(r, true);
    if (rc == 0)
        return tpl_str_take_buf(r, &text, ret);
    trl_str_release(&text);
    return rc;
}
