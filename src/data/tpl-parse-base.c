/* SPDX-License-Identifier: Apache-2.0 */
/* What both halves of the parser stand on: errors with a place, nodes, names, tokens. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/tpl-internal.h"

int tpl_fail_at(const struct trl_template *t, struct trl_err *err, int code, uint32_t line,
    uint32_t col, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    trl_vfail(err, code, fmt, ap);
    va_end(ap);
    return trl_err_prefix(err, code, "%s, line %u, column %u", t->name, line, col);
}

int tpl_syntax(struct tpl_parser *p, const struct tpl_token *at, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return tpl_fail_at(p->t, p->err, TRL_E_PARSE, at->line, at->col, "%s", text);
}

int tpl_unexpected(struct tpl_parser *p, const char *wanted)
{
    const struct tpl_token *k = p->tok;
    if (k->kind == TPL_T_NAME || k->kind == TPL_T_STRING)
        return tpl_syntax(
            p, k, "expected %s, got '%.*s'", wanted, (int)(k->len < 80 ? k->len : 80), k->text);
    return tpl_syntax(p, k, "expected %s, got '%s'", wanted, tpl_token_name(k->kind));
}

int tpl_parse_nomem(struct tpl_parser *p)
{
    return trl_fail_nomem(p->err, sizeof(struct tpl_node), "a template's syntax tree");
}

struct tpl_node *tpl_node_new(
    struct tpl_parser *p, enum tpl_node_kind kind, const struct tpl_token *at)
{
    struct tpl_node *n = trl_arena_alloc(&p->t->arena, sizeof(*n));
    if (!n) {
        tpl_parse_nomem(p);
        return NULL;
    }
    n->kind = kind;
    n->line = at->line;
    n->col = at->col;
    return n;
}

int tpl_nodes_add(struct tpl_parser *p, struct tpl_nodes *l, struct tpl_node *n)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        struct tpl_node **v = trl_arena_array(&p->t->arena, cap, sizeof(struct tpl_node *));
        if (!v)
            return tpl_parse_nomem(p);
        if (l->n)
            memcpy(v, l->v, l->n * sizeof(struct tpl_node *));
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return 0;
}

int tpl_intern(struct tpl_parser *p, const char *name, uint32_t *ret)
{
    enum { BUCKETS = 1024 };
    if (!p->intern.head) {
        p->intern.head = trl_calloc(BUCKETS, sizeof(uint32_t));
        if (!p->intern.head)
            return tpl_parse_nomem(p);
    }
    uint32_t h = 2166136261u;
    for (const char *c = name; *c; c++)
        h = (h ^ (unsigned char)*c) * 16777619u;
    h %= BUCKETS;
    for (uint32_t i = p->intern.head[h]; i; i = p->intern.next[i - 1]) {
        if (strcmp(p->t->names[i - 1], name) == 0) {
            *ret = i - 1;
            return 0;
        }
    }
    void *names = p->t->names, *next = p->intern.next;
    bool ok = trl_grow(&names, &p->intern.cap_names, p->t->n_names + 1, sizeof(char *));
    p->t->names = names;
    ok = ok && trl_grow(&next, &p->intern.cap_next, p->t->n_names + 1, sizeof(uint32_t));
    p->intern.next = next;
    if (!ok)
        return tpl_parse_nomem(p);
    *ret = (uint32_t)p->t->n_names++;
    p->t->names[*ret] = name;
    p->intern.next[*ret] = p->intern.head[h];
    p->intern.head[h] = *ret + 1;
    return 0;
}

bool tpl_at_name(const struct tpl_parser *p, const char *name)
{
    return p->tok->kind == TPL_T_NAME && strcmp(p->tok->text, name) == 0;
}

bool tpl_skip_name(struct tpl_parser *p, const char *name)
{
    if (!tpl_at_name(p, name))
        return false;
    p->tok++;
    return true;
}

int tpl_expect(struct tpl_parser *p, enum tpl_token_kind kind)
{
    if (p->tok->kind != kind) {
        char wanted[32];
        snprintf(wanted, sizeof(wanted), "'%s'", tpl_token_name(kind));
        return tpl_unexpected(p, wanted);
    }
    p->tok++;
    return 0;
}

bool tpl_skip(struct tpl_parser *p, enum tpl_token_kind kind)
{
    if (p->tok->kind != kind)
        return false;
    p->tok++;
    return true;
}

int tpl_deeper(struct tpl_parser *p)
{
    if (++p->depth > TPL_MAX_PARSE_DEPTH)
        return tpl_syntax(p, p->tok, "nested deeper than %d levels", TPL_MAX_PARSE_DEPTH);
    return 0;
}

int tpl_node_make(struct tpl_parser *p, enum tpl_node_kind kind, const struct tpl_token *at,
    struct tpl_node *a, struct tpl_node *b, struct tpl_node **ret)
{
    struct tpl_node *n = tpl_node_new(p, kind, at);
    if (!n)
        return TRL_E_NOMEM;
    n->a = a;
    n->b = b;
    n->op = (int)at->kind;
    *ret = n;
    return 0;
}
