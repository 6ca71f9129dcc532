/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to syntax tree: what operators join: names, literals, accesses, calls, filters, tests. */
#include <string.h>

#include "data/tpl-internal.h"

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
        return tpl_parse_nomem(p);
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
            return tpl_parse_nomem(p);
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
    int rc = tpl_node_make(p, TPL_N_LIST, at, NULL, NULL, &n);
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
    int rc = tpl_node_make(p, TPL_N_DICT, at, NULL, NULL, &n);
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

int tpl_parse_primary(struct tpl_parser *p, struct tpl_node **ret)
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
    for (int i = 1; i < 3 && rc == 0 && tpl_skip(p, TPL_T_COLON); i++) {
        enum tpl_token_kind k = p->tok->kind;
        if (k != TPL_T_COLON && k != TPL_T_RBRACKET && k != TPL_T_COMMA)
            rc = tpl_parse_expr(p, &part[i]);
    }
    if (rc == 0)
        rc = tpl_node_make(p, TPL_N_SLICE, at, part[0], part[1], ret);
    if (rc == 0)
        (*ret)->c = part[2];
    return rc;
}

static int parse_subscript(struct tpl_parser *p, struct tpl_node *obj, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok++;
    struct tpl_node *n, *arg;
    int rc = tpl_node_make(p, TPL_N_ITEM, at, obj, NULL, &n);
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
        if (!tuple && (rc = tpl_node_make(p, TPL_N_TUPLE, at, NULL, NULL, &tuple)) != 0)
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
        if (tpl_skip(p, TPL_T_MUL)) {
            if (call->dyn_args || call->dyn_kwargs)
                return tpl_syntax(p, open, "invalid syntax for function call expression");
            rc = tpl_parse_expr(p, &call->dyn_args);
        } else if (tpl_skip(p, TPL_T_POW)) {
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
                    return tpl_parse_nomem(p);
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

int tpl_parse_postfix(struct tpl_parser *p, struct tpl_node *n, struct tpl_node **ret)
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
            rc = tpl_node_make(p, TPL_N_CALL, p->tok, n, NULL, &call);
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
    while (tpl_skip(p, TPL_T_DOT)) {
        if (p->tok->kind != TPL_T_NAME)
            return tpl_unexpected(p, "a name");
        *ret = trl_arena_printf(&p->t->arena, "%s.%s", *ret, (p->tok++)->text);
        if (!*ret)
            return tpl_parse_nomem(p);
    }
    return 0;
}

int tpl_parse_filter(struct tpl_parser *p, struct tpl_node *input, struct tpl_node **ret)
{
    struct tpl_node *n;
    const struct tpl_token *at = p->tok;
    int rc = tpl_node_make(p, TPL_N_FILTER, at, input, NULL, &n);
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
    int rc = tpl_node_make(p, TPL_N_TEST, at, input, NULL, &n);
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
        if ((rc = tpl_parse_primary(p, &arg)) == 0 && (rc = tpl_parse_postfix(p, arg, &arg)) == 0)
            rc = tpl_nodes_add(p, &n->list, arg);
    }
    *ret = n;
    if (rc == 0 && negated)
        rc = tpl_node_make(p, TPL_N_NOT, at, n, NULL, ret);
    return rc;
}

int tpl_parse_filter_expr(struct tpl_parser *p, struct tpl_node *n, struct tpl_node **ret)
{
    int rc = 0, chain = 0;
    while (rc == 0) {
        if (++chain > TPL_MAX_PARSE_DEPTH)
            return tpl_syntax(p, p->tok, "more than %d filters in a row", TPL_MAX_PARSE_DEPTH);
        if (tpl_skip(p, TPL_T_PIPE)) {
            rc = tpl_parse_filter(p, n, &n);
        } else if (tpl_at_name(p, "is")) {
            rc = parse_test(p, n, &n);
        } else if (p->tok->kind == TPL_T_LPAREN) {
            rc = tpl_parse_postfix(p, n, &n);
        } else {
            break;
        }
    }
    *ret = n;
    return rc;
}
