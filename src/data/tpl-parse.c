/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to syntax tree: operators. Binding from weak to strong: if-else, or, and, not,
 * comparisons, + -, ~, * / // %, **, unary, then postfix ( . [] () ), filters and tests. */
#include <string.h>

#include "data/tpl-internal.h"

enum {
    MAX_CHAIN = 800
}; /* operators of one level in a row: each makes the tree one level deeper */

static int parse_or(struct tpl_parser *p, struct tpl_node **ret);

static int parse_unary(struct tpl_parser *p, bool filters, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok;
    struct tpl_node *n = NULL;
    int rc = tpl_deeper(p);
    if (rc == 0 && (at->kind == TPL_T_SUB || at->kind == TPL_T_ADD)) {
        p->tok++;
        rc = parse_unary(p, false, &n);
        if (rc == 0)
            rc = tpl_node_make(p, at->kind == TPL_T_SUB ? TPL_N_NEG : TPL_N_POS, at, n, NULL, &n);
    } else if (rc == 0) {
        rc = tpl_parse_primary(p, &n);
    }
    if (rc == 0)
        rc = tpl_parse_postfix(p, n, &n);
    if (rc == 0 && filters)
        rc = tpl_parse_filter_expr(p, n, &n);
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
        if (level == 1 ? k != TPL_T_POW
                       : k != TPL_T_MUL && k != TPL_T_DIV && k != TPL_T_FLOORDIV && k != TPL_T_MOD)
            break;
        if (++chain > MAX_CHAIN)
            return tpl_syntax(p, at, "more than %d operators in a row", MAX_CHAIN);
        p->tok++;
        rc = parse_product(p, level + 1, &right);
        if (rc == 0)
            rc = tpl_node_make(p, TPL_N_BINARY, at, left, right, &left);
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
            rc = tpl_node_make(p, TPL_N_CONCAT, at, NULL, NULL, &cat);
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
            rc = tpl_node_make(p, TPL_N_BINARY, at, left, right, &left);
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
        } else if (tpl_at_name(p, "not") && p->tok[1].kind == TPL_T_NAME &&
            strcmp(p->tok[1].text, "in") == 0) {
            op = TPL_T_NOT_IN;
            p->tok += 2;
        } else {
            break;
        }
        if (!cmp) {
            if ((rc = tpl_node_make(p, TPL_N_COMPARE, at, n, NULL, &cmp)) != 0)
                return rc;
            *ret = cmp;
        }
        rc = parse_sum(p, &right);
        if (rc == 0) {
            struct tpl_node *part; /* operator and right side */
            rc = tpl_node_make(p, TPL_N_COMPARE, at, right, NULL, &part);
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
    int rc = tpl_deeper(p);
    if (rc == 0)
        rc = parse_not(p, &n);
    p->depth--;
    return rc != 0 ? rc : tpl_node_make(p, TPL_N_NOT, at, n, NULL, ret);
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
            rc = tpl_node_make(p, is_or ? TPL_N_OR : TPL_N_AND, at, left, right, &left);
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
    int rc = tpl_deeper(p), chain = 0;
    if (rc == 0)
        rc = parse_or(p, &n);
    while (rc == 0 && tpl_skip_name(p, "if")) {
        other = NULL;
        rc = parse_or(p, &test);
        if (rc == 0 && tpl_skip_name(p, "else"))
            rc = tpl_parse_expr(p, &other);
        if (rc != 0 || (rc = tpl_node_make(p, TPL_N_COND, at, n, test, &n)) != 0)
            break;
        n->c = other;
        if (++chain > MAX_CHAIN)
            rc = tpl_syntax(p, p->tok, "more than %d operators in a row", MAX_CHAIN);
    }
    p->depth--;
    *ret = n;
    return rc;
}

int tpl_parse_tuple(
    struct tpl_parser *p, bool condexpr, const char *end_name, bool parens, struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok;
    struct tpl_node *n = NULL, *item;
    int rc = tpl_node_make(p, TPL_N_TUPLE, at, NULL, NULL, &n);
    bool is_tuple = false;
    while (rc == 0) {
        if (n->list.n && (rc = tpl_expect(p, TPL_T_COMMA)) != 0)
            return rc;
        enum tpl_token_kind k = p->tok->kind;
        if (k == TPL_T_VAR_END || k == TPL_T_BLOCK_END || k == TPL_T_RPAREN ||
            (end_name && tpl_at_name(p, end_name)))
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
