/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to syntax tree: expressions. Binding from weak to strong: if-else, or, and, not, comparisons, + -, ~, * / // %, **,
 * unary, then postfix ( . [] () ) and filters and tests. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/tpl-internal.h"

enum { MAX_CHAIN = 800 }; /* operators of one level in a row: each makes the tree one level deeper */

int tpl_fail_at(const struct trl_template *t, struct trl_err *err, int code, uint32_t line, uint32_t col,
    const char *fmt, ...)
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
        return tpl_syntax(p, k, "expected %s, got '%.*s'", wanted, (int)(k->len < 80 ? k->len : 80), k->text);
    return tpl_syntax(p, k, "expected %s, got '%s'", wanted, tpl_token_name(k->kind));
}

static int nomem(struct tpl_parser *p)
{
    return trl_fail_nomem(p->err, sizeof(struct tpl_node), "a template's syntax tree");
}

struct tpl_node *tpl_node_new(struct tpl_parser *p, enum tpl_node_kind kind, const struct tpl_token *at)
{
    struct tpl_node *n = trl_arena_alloc(&p->t->arena, sizeof(*n));
    if (!n) {
        nomem(p);
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
            return nomem(p);
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
            return nomem(p);
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
        return nomem(p);
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

static bool skip(struct tpl_parser *p, enum tpl_token_kind kind)
{
    if (p->tok->kind != kind)
        return false;
    p->tok++;
    return true;
}

static int deeper(struct tpl_parser *p)
{
    if (++p->depth > TPL_MAX_PARSE_DEPTH)
        return tpl_syntax(p, p->tok, "nested deeper than %d levels", TPL_MAX_PARSE_DEPTH);
    return 0;
}

static int new_node(struct tpl_parser *p, enum tpl_node_kind kind, const struct tpl_token *at, struct tpl_node *a,
    struct tpl_node *b, struct tpl_node **ret)
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

static int parse_unary(struct tpl_parser *p, bool filters, struct tpl_node **ret);
static int parse_or(struct tpl_parser *p, struct tpl_node **ret);

/* One name as a variable; notes what the macro around it uses. */
static int name_node(struct tpl_parser *p, struct tpl_node **ret)
{
    const struct tpl_token *k = p->tok++;
    struct tpl_node *n = tpl_node_new(p, TPL_N_NAME, k);
    if (!n)
        return TRL_E_NOMEM;
    n->text = k->text;
    if (p->macro) {
        p->macro->flag |= strcmp(k->text, "caller") == 0;
        p->macro->varargs |= strcmp(k->text, "varargs") == 0;
        p->macro->kwargs |= strcmp(k->text, "kwargs") == 0;
    }
    *ret = n;
    return tpl_intern(p, k->text, &n->name);
}

static int const_node(struct tpl_parser *p, struct tpl_value v, struct tpl_node **ret)
{
    struct tpl_node *n = tpl_node_new(p, TPL_N_CONST, p->tok++);
    if (!n)
        return TRL_E_NOMEM;
    n->value = v;
    *ret = n;
    return 0;
}

/* A constant string in the template's arena. */
static int string_value(struct tpl_parser *p, const char *data, size_t len, struct tpl_value *ret)
{
    struct tpl_str *s = trl_arena_alloc(&p->t->arena, sizeof(*s));
    if (!s)
        return nomem(p);
    s->data = data;
    s->len = len;
    *ret = (struct tpl_value){.kind = TPL_STR, .u.str = s};
    return 0;
}

/* Adjacent strings are one. */
static int parse_string(struct tpl_parser *p, struct tpl_node **ret)
{
    const struct tpl_token *first = p->tok;
    size_t len = 0, n = 0;
    for (; first[n].kind == TPL_T_STRING; n++)
        len += first[n].len;
    const char *data = first->text;
    if (n > 1) {
        char *b = trl_arena_alloc(&p->t->arena, len + 1);
        if (!b)
            return nomem(p);
        data = b;
        for (size_t i = 0; i < n; b += first[i].len, i++)
            memcpy(b, first[i].text, first[i].len);
    }
    struct tpl_value v;
    int rc = string_value(p, data, len, &v);
    if (rc == 0)
        rc = const_node(p, v, ret);
    p->tok = first + n;
    return rc;
}

static int parse_list(struct tpl_parser *p, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok++;
    struct tpl_node *n = NULL, *item;
    int rc = new_node(p, TPL_N_LIST, at, NULL, NULL, &n);
    while (rc == 0 && p->tok->kind != TPL_T_RBRACKET) {
        if (n->list.n && (rc = tpl_expect(p, TPL_T_COMMA)) != 0)
            break;
        if (p->tok->kind == TPL_T_RBRACKET)
            break;
        rc = tpl_parse_expr(p, &item);
        if (rc == 0)
            rc = tpl_nodes_add(p, &n->list, item);
    }
    if (rc == 0)
        rc = tpl_expect(p, TPL_T_RBRACKET);
    *ret = n;
    return rc;
}

static int parse_dict(struct tpl_parser *p, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok++;
    struct tpl_node *n = NULL, *key, *val;
    int rc = new_node(p, TPL_N_DICT, at, NULL, NULL, &n);
    while (rc == 0 && p->tok->kind != TPL_T_RBRACE) {
        if (n->list.n && (rc = tpl_expect(p, TPL_T_COMMA)) != 0)
            break;
        if (p->tok->kind == TPL_T_RBRACE)
            break;
        if ((rc = tpl_parse_expr(p, &key)) != 0 || (rc = tpl_expect(p, TPL_T_COLON)) != 0 ||
            (rc = tpl_parse_expr(p, &val)) != 0 || (rc = tpl_nodes_add(p, &n->list, key)) != 0)
            break;
        rc = tpl_nodes_add(p, &n->list2, val);
    }
    if (rc == 0)
        rc = tpl_expect(p, TPL_T_RBRACE);
    *ret = n;
    return rc;
}

static int parse_primary(struct tpl_parser *p, struct tpl_node **ret)
{
    const struct tpl_token *k = p->tok;
    int rc;
    switch (k->kind) {
    case TPL_T_NAME:
        if (tpl_at_name(p, "true") || tpl_at_name(p, "True"))
            return const_node(p, tpl_bool(true), ret);
        if (tpl_at_name(p, "false") || tpl_at_name(p, "False"))
            return const_node(p, tpl_bool(false), ret);
        if (tpl_at_name(p, "none") || tpl_at_name(p, "None"))
            return const_node(p, tpl_none(), ret);
        return name_node(p, ret);
    case TPL_T_STRING:
        return parse_string(p, ret);
    case TPL_T_INT:
        return const_node(p, tpl_int(k->i), ret);
    case TPL_T_FLOAT:
        return const_node(p, tpl_float(k->f), ret);
    case TPL_T_LPAREN:
        p->tok++;
        rc = tpl_parse_tuple(p, true, NULL, true, ret);
        return rc != 0 ? rc : tpl_expect(p, TPL_T_RPAREN);
    case TPL_T_LBRACKET:
        return parse_list(p, ret);
    case TPL_T_LBRACE:
        return parse_dict(p, ret);
    default:
        return tpl_unexpected(p, "an expression");
    }
}

static int parse_subscribed(struct tpl_parser *p, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok;
    struct tpl_node *part[3] = {0};
    int rc = 0;
    if (p->tok->kind != TPL_T_COLON) {
        rc = tpl_parse_expr(p, &part[0]);
        if (rc != 0 || p->tok->kind != TPL_T_COLON) {
            *ret = part[0];
            return rc;
        }
    }
    for (int i = 1; i < 3 && rc == 0 && skip(p, TPL_T_COLON); i++) {
        enum tpl_token_kind k = p->tok->kind;
        if (k != TPL_T_COLON && k != TPL_T_RBRACKET && k != TPL_T_COMMA)
            rc = tpl_parse_expr(p, &part[i]);
    }
    if (rc == 0)
        rc = new_node(p, TPL_N_SLICE, at, part[0], part[1], ret);
    if (rc == 0)
        (*ret)->c = part[2];
    return rc;
}

static int parse_subscript(struct tpl_parser *p, struct tpl_node *obj, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok++;
    struct tpl_node *n, *arg;
    int rc = new_node(p, TPL_N_ITEM, at, obj, NULL, &n);
    if (rc != 0)
        return rc;
    *ret = n;
    if (at->kind == TPL_T_DOT) {
        if (p->tok->kind == TPL_T_NAME) {
            n->kind = TPL_N_ATTR;
            n->text = p->tok->text;
            p->tok++;
            return 0;
        }
        if (p->tok->kind != TPL_T_INT)
            return tpl_unexpected(p, "a name or number behind '.'");
        return const_node(p, tpl_int(p->tok->i), &n->b);
    }
    struct tpl_node *tuple = NULL;
    size_t count = 0;
    for (; p->tok->kind != TPL_T_RBRACKET; count++) {
        if (count && (rc = tpl_expect(p, TPL_T_COMMA)) != 0)
            return rc;
        if ((rc = parse_subscribed(p, &arg)) != 0)
            return rc;
        if (!tuple && (rc = new_node(p, TPL_N_TUPLE, at, NULL, NULL, &tuple)) != 0)
            return rc;
        if ((rc = tpl_nodes_add(p, &tuple->list, arg)) != 0)
            return rc;
    }
    if (count == 0)
        return tpl_unexpected(p, "an expression");
    n->b = count == 1 ? tuple->list.v[0] : tuple;
    return tpl_expect(p, TPL_T_RBRACKET);
}

/* The arguments of a call, filter or test into its node. */
int tpl_parse_call_args(struct tpl_parser *p, struct tpl_node *call)
{
    const struct tpl_token *open = p->tok;
    int rc = tpl_expect(p, TPL_T_LPAREN);
    size_t cap = 0;
    bool comma = false;
    while (rc == 0 && p->tok->kind != TPL_T_RPAREN) {
        struct tpl_node *v = NULL;
        if (comma && (rc = tpl_expect(p, TPL_T_COMMA)) != 0)
            return rc;
        if (comma && p->tok->kind == TPL_T_RPAREN)
            break;
        comma = true;
        if (skip(p, TPL_T_MUL)) {
            if (call->dyn_args || call->dyn_kwargs)
                return tpl_syntax(p, open, "invalid syntax for function call expression");
            rc = tpl_parse_expr(p, &call->dyn_args);
        } else if (skip(p, TPL_T_POW)) {
            if (call->dyn_kwargs)
                return tpl_syntax(p, open, "invalid syntax for function call expression");
            rc = tpl_parse_expr(p, &call->dyn_kwargs);
        } else if (p->tok->kind == TPL_T_NAME && p->tok[1].kind == TPL_T_ASSIGN) {
            if (call->dyn_kwargs)
                return tpl_syntax(p, open, "invalid syntax for function call expression");
            const char *key = p->tok->text;
            for (size_t i = 0; i < call->list2.n; i++) {
                if (strcmp(call->knames[i], key) == 0)
                    return tpl_syntax(p, p->tok, "keyword argument repeated: %s", key);
            }
            p->tok += 2;
            if ((rc = tpl_parse_expr(p, &v)) != 0)
                return rc;
            if (call->list2.n == cap) {
                cap = cap ? 2 * cap : 4;
                const char **names = trl_arena_array(&p->t->arena, cap, sizeof(char *));
                if (!names)
                    return nomem(p);
                if (call->list2.n)
                    memcpy(names, call->knames, call->list2.n * sizeof(char *));
                call->knames = names;
            }
            call->knames[call->list2.n] = key;
            rc = tpl_nodes_add(p, &call->list2, v);
        } else {
            if (call->dyn_args || call->dyn_kwargs || call->list2.n)
                return tpl_syntax(p, open, "invalid syntax for function call expression");
            if ((rc = tpl_parse_expr(p, &v)) == 0)
                rc = tpl_nodes_add(p, &call->list, v);
        }
    }
    return rc != 0 ? rc : tpl_expect(p, TPL_T_RPAREN);
}

static int parse_postfix(struct tpl_parser *p, struct tpl_node *n, struct tpl_node **ret)
{
    int rc = 0, chain = 0;
    while (rc == 0) {
        enum tpl_token_kind k = p->tok->kind;
        if (k != TPL_T_DOT && k != TPL_T_LBRACKET && k != TPL_T_LPAREN)
            break;
        if (++chain > TPL_MAX_PARSE_DEPTH)
            return tpl_syntax(p, p->tok, "more than %d accesses in a row", TPL_MAX_PARSE_DEPTH);
        if (k == TPL_T_LPAREN) {
            struct tpl_node *call = NULL;
            rc = new_node(p, TPL_N_CALL, p->tok, n, NULL, &call);
            if (rc == 0)
                rc = tpl_parse_call_args(p, call);
            n = call;
        } else {
            rc = parse_subscript(p, n, &n);
        }
    }
    *ret = n;
    return rc;
}

/* name, dotted parts joined */
static int dotted_name(struct tpl_parser *p, const char **ret)
{
    if (p->tok->kind != TPL_T_NAME)
        return tpl_unexpected(p, "a name");
    *ret = (p->tok++)->text;
    while (skip(p, TPL_T_DOT)) {
        if (p->tok->kind != TPL_T_NAME)
            return tpl_unexpected(p, "a name");
        *ret = trl_arena_printf(&p->t->arena, "%s.%s", *ret, (p->tok++)->text);
        if (!*ret)
            return nomem(p);
    }
    return 0;
}

int tpl_parse_filter(struct tpl_parser *p, struct tpl_node *input, struct tpl_node **ret)
{
    struct tpl_node *n;
    const struct tpl_token *at = p->tok;
    int rc = new_node(p, TPL_N_FILTER, at, input, NULL, &n);
    if (rc == 0)
        rc = dotted_name(p, &n->text);
    if (rc != 0)
        return rc;
    n->builtin = tpl_filter_find(n->text);
    if (!n->builtin && !p->soft)
        return tpl_syntax(p, at, "No filter named '%s'.", n->text);
    *ret = n;
    return p->tok->kind == TPL_T_LPAREN ? tpl_parse_call_args(p, n) : 0;
}

static bool starts_test_arg(const struct tpl_parser *p)
{
    switch (p->tok->kind) {
    case TPL_T_NAME:
        return !tpl_at_name(p, "else") && !tpl_at_name(p, "or") && !tpl_at_name(p, "and");
    case TPL_T_STRING:
    case TPL_T_INT:
    case TPL_T_FLOAT:
    case TPL_T_LBRACKET:
    case TPL_T_LBRACE:
        return true;
    default:
        return false;
    }
}

static int parse_test(struct tpl_parser *p, struct tpl_node *input, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok++;
    bool negated = tpl_skip_name(p, "not");
    struct tpl_node *n, *arg;
    int rc = new_node(p, TPL_N_TEST, at, input, NULL, &n);
    if (rc == 0)
        rc = dotted_name(p, &n->text);
    if (rc != 0)
        return rc;
    n->builtin = tpl_test_find(n->text);
    if (!n->builtin && !p->soft)
        return tpl_syntax(p, at, "No test named '%s'.", n->text);
    if (p->tok->kind == TPL_T_LPAREN) {
        rc = tpl_parse_call_args(p, n);
    } else if (starts_test_arg(p)) {
        if (tpl_at_name(p, "is"))
            return tpl_syntax(p, p->tok, "You cannot chain multiple tests with is");
        if ((rc = parse_primary(p, &arg)) == 0 && (rc = parse_postfix(p, arg, &arg)) == 0)
            rc = tpl_nodes_add(p, &n->list, arg);
    }
    *ret = n;
    if (rc == 0 && negated)
        rc = new_node(p, TPL_N_NOT, at, n, NULL, ret);
    return rc;
}

static int parse_filter_expr(struct tpl_parser *p, struct tpl_node *n, struct tpl_node **ret)
{
    int rc = 0, chain = 0;
    while (rc == 0) {
        if (++chain > TPL_MAX_PARSE_DEPTH)
            return tpl_syntax(p, p->tok, "more than %d filters in a row", TPL_MAX_PARSE_DEPTH);
        if (skip(p, TPL_T_PIPE)) {
            rc = tpl_parse_filter(p, n, &n);
        } else if (tpl_at_name(p, "is")) {
            rc = parse_test(p, n, &n);
        } else if (p->tok->kind == TPL_T_LPAREN) {
            rc = parse_postfix(p, n, &n);
        } else {
            break;
        }
    }
    *ret = n;
    return rc;
}

static int parse_unary(struct tpl_parser *p, bool filters, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok;
    struct tpl_node *n = NULL;
    int rc = deeper(p);
    if (rc == 0 && (at->kind == TPL_T_SUB || at->kind == TPL_T_ADD)) {
        p->tok++;
        rc = parse_unary(p, false, &n);
        if (rc == 0)
            rc = new_node(p, at->kind == TPL_T_SUB ? TPL_N_NEG : TPL_N_POS, at, n, NULL, &n);
    } else if (rc == 0) {
        rc = parse_primary(p, &n);
    }
    if (rc == 0)
        rc = parse_postfix(p, n, &n);
    if (rc == 0 && filters)
        rc = parse_filter_expr(p, n, &n);
    p->depth--;
    *ret = n;
    return rc;
}

/* Binary operators of one level (0: * / // %, 1: **), left to right. */
static int parse_product(struct tpl_parser *p, int level, struct tpl_node **ret)
{
    struct tpl_node *left, *right;
    if (level == 2)
        return parse_unary(p, true, ret);
    int rc = parse_product(p, level + 1, &left), chain = 0;
    while (rc == 0) {
        const struct tpl_token *at = p->tok;
        enum tpl_token_kind k = at->kind;
        if (level == 1 ? k != TPL_T_POW : k != TPL_T_MUL && k != TPL_T_DIV && k != TPL_T_FLOORDIV && k != TPL_T_MOD)
            break;
        if (++chain > MAX_CHAIN)
            return tpl_syntax(p, at, "more than %d operators in a row", MAX_CHAIN);
        p->tok++;
        rc = parse_product(p, level + 1, &right);
        if (rc == 0)
            rc = new_node(p, TPL_N_BINARY, at, left, right, &left);
    }
    *ret = left;
    return rc;
}

static int parse_concat(struct tpl_parser *p, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok;
    struct tpl_node *n, *cat = NULL;
    int rc = parse_product(p, 0, &n);
    *ret = n;
    while (rc == 0 && p->tok->kind == TPL_T_TILDE) {
        if (!cat) {
            rc = new_node(p, TPL_N_CONCAT, at, NULL, NULL, &cat);
            if (rc == 0)
                rc = tpl_nodes_add(p, &cat->list, n);
            if (rc != 0)
                return rc;
            *ret = cat;
        }
        p->tok++;
        rc = parse_product(p, 0, &n);
        if (rc == 0)
            rc = tpl_nodes_add(p, &cat->list, n);
    }
    return rc;
}

static int parse_sum(struct tpl_parser *p, struct tpl_node **ret)
{
    struct tpl_node *left, *right;
    int rc = parse_concat(p, &left), chain = 0;
    while (rc == 0 && (p->tok->kind == TPL_T_ADD || p->tok->kind == TPL_T_SUB)) {
        const struct tpl_token *at = p->tok++;
        if (++chain > MAX_CHAIN)
            return tpl_syntax(p, at, "more than %d operators in a row", MAX_CHAIN);
        rc = parse_concat(p, &right);
        if (rc == 0)
            rc = new_node(p, TPL_N_BINARY, at, left, right, &left);
    }
    *ret = left;
    return rc;
}

static int parse_compare(struct tpl_parser *p, struct tpl_node **ret)
{
    struct tpl_node *n, *cmp = NULL, *right;
    int rc = parse_sum(p, &n);
    *ret = n;
    while (rc == 0) {
        const struct tpl_token *at = p->tok;
        int op = (int)at->kind;
        if (op >= TPL_T_EQ && op <= TPL_T_GE) {
            p->tok++;
        } else if (tpl_skip_name(p, "in")) {
            op = TPL_T_IN;
        } else if (tpl_at_name(p, "not") && p->tok[1].kind == TPL_T_NAME && strcmp(p->tok[1].text, "in") == 0) {
            op = TPL_T_NOT_IN;
            p->tok += 2;
        } else {
            break;
        }
        if (!cmp) {
            if ((rc = new_node(p, TPL_N_COMPARE, at, n, NULL, &cmp)) != 0)
                return rc;
            *ret = cmp;
        }
        rc = parse_sum(p, &right);
        if (rc == 0) {
            struct tpl_node *part; /* operator and right side */
            rc = new_node(p, TPL_N_COMPARE, at, right, NULL, &part);
            if (rc == 0) {
                part->op = op;
                rc = tpl_nodes_add(p, &cmp->list, part);
            }
        }
    }
    return rc;
}

static int parse_not(struct tpl_parser *p, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok;
    if (!tpl_skip_name(p, "not"))
        return parse_compare(p, ret);
    struct tpl_node *n = NULL;
    int rc = deeper(p);
    if (rc == 0)
        rc = parse_not(p, &n);
    p->depth--;
    return rc != 0 ? rc : new_node(p, TPL_N_NOT, at, n, NULL, ret);
}

static int parse_logic(struct tpl_parser *p, bool is_or, struct tpl_node **ret)
{
    struct tpl_node *left, *right;
    const struct tpl_token *at = p->tok;
    int rc = is_or ? parse_logic(p, false, &left) : parse_not(p, &left), chain = 0;
    while (rc == 0 && tpl_skip_name(p, is_or ? "or" : "and")) {
        if (++chain > MAX_CHAIN)
            return tpl_syntax(p, at, "more than %d operators in a row", MAX_CHAIN);
        rc = is_or ? parse_logic(p, false, &right) : parse_not(p, &right);
        if (rc == 0)
            rc = new_node(p, is_or ? TPL_N_OR : TPL_N_AND, at, left, right, &left);
    }
    *ret = left;
    return rc;
}

static int parse_or(struct tpl_parser *p, struct tpl_node **ret)
{
    return parse_logic(p, true, ret);
}

int tpl_parse_expr(struct tpl_parser *p, struct tpl_node **ret)
{
    struct tpl_node *n = NULL, *test = NULL, *other;
    const struct tpl_token *at = p->tok;
    int rc = deeper(p), chain = 0;
    if (rc == 0)
        rc = parse_or(p, &n);
    while (rc == 0 && tpl_skip_name(p, "if")) {
        other = NULL;
        rc = parse_or(p, &test);
        if (rc == 0 && tpl_skip_name(p, "else"))
            rc = tpl_parse_expr(p, &other);
        if (rc != 0 || (rc = new_node(p, TPL_N_COND, at, n, test, &n)) != 0)
            break;
        n->c = other;
        if (++chain > MAX_CHAIN)
            rc = tpl_syntax(p, p->tok, "more than %d operators in a row", MAX_CHAIN);
    }
    p->depth--;
    *ret = n;
    return rc;
}

int tpl_parse_tuple(struct tpl_parser *p, bool condexpr, const char *end_name, bool parens, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok;
    struct tpl_node *n = NULL, *item;
    int rc = new_node(p, TPL_N_TUPLE, at, NULL, NULL, &n);
    bool is_tuple = false;
    while (rc == 0) {
        if (n->list.n && (rc = tpl_expect(p, TPL_T_COMMA)) != 0)
            return rc;
        enum tpl_token_kind k = p->tok->kind;
        if (k == TPL_T_VAR_END || k == TPL_T_BLOCK_END || k == TPL_T_RPAREN || (end_name && tpl_at_name(p, end_name)))
            break;
        rc = condexpr ? tpl_parse_expr(p, &item) : parse_or(p, &item);
        if (rc == 0)
            rc = tpl_nodes_add(p, &n->list, item);
        if (rc != 0 || p->tok->kind != TPL_T_COMMA)
            break;
        is_tuple = true;
    }
    *ret = n;
    if (rc == 0 && !is_tuple) {
        if (n->list.n)
            *ret = n->list.v[0];
        else if (!parens)
            rc = tpl_unexpected(p, "an expression");
    }
    return rc;
}
