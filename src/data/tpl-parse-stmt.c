/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to syntax tree: statements. */
#include <string.h>

#include "base/alloc.h"
#include "data/tpl-internal.h"

/* Statements until one of the names (NULL-terminated) opens a block; stands on that name then. */
static int parse_body(struct tpl_parser *p, const struct tpl_token *begin, const char *const *ends,
    struct tpl_nodes *ret);

/* Behind the tag's own tokens: "%}", the body, then the end name, which is consumed. */
static int block_body(
    struct tpl_parser *p, const struct tpl_token *begin, const char *end, struct tpl_nodes *ret)
{
    const char *const ends[] = {end, NULL};
    int rc = tpl_expect(p, TPL_T_BLOCK_END);
    if (rc == 0)
        rc = parse_body(p, begin, ends, ret);
    if (rc == 0)
        p->tok++;
    return rc;
}

static bool reserved(const char *name)
{
    static const char *const names[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

static int target_name(struct tpl_parser *p, bool namespace_ok, struct tpl_node **ret)
{
    const struct tpl_token *k = p->tok;
    if (k->kind != TPL_T_NAME)
        return tpl_unexpected(p, "a name to assign to");
    p->tok++;
    bool ns = namespace_ok && p->tok->kind == TPL_T_DOT;
    if (reserved(k->text))
        return tpl_syntax(p, k, "can't assign to '%s'", k->text);
    struct tpl_node *n = tpl_node_new(p, ns ? TPL_N_NSREF : TPL_N_NAME, k);
    if (!n)
        return TRL_E_NOMEM;
    *ret = n;
    n->text = k->text;
    if (ns) {
        p->tok++;
        if (p->tok->kind != TPL_T_NAME)
            return tpl_unexpected(p, "an attribute name");
        n->a = tpl_node_new(p, TPL_N_NAME, p->tok);
        if (!n->a)
            return TRL_E_NOMEM;
        n->a->text = (p->tok++)->text;
    }
    return tpl_intern(p, k->text, &n->name);
}

/* A name, `ns.attr`, or a tuple of them (with or without parentheses). */
int tpl_parse_target(struct tpl_parser *p, const char *end_name, bool namespace_ok, bool tuple_ok,
    struct tpl_node **ret)
{
    const struct tpl_token *at = p->tok;
    struct tpl_node *item, *tuple;
    int rc;
    if (!tuple_ok)
        return target_name(p, namespace_ok, ret);
    tuple = tpl_node_new(p, TPL_N_TUPLE, at);
    if (!tuple)
        return TRL_E_NOMEM;
    bool is_tuple = false;
    for (;;) {
        enum tpl_token_kind k = p->tok->kind;
        if (tuple->list.n &&
            (k == TPL_T_BLOCK_END || k == TPL_T_RPAREN || k == TPL_T_ASSIGN ||
                (end_name && tpl_at_name(p, end_name))))
            break;
        if (k == TPL_T_LPAREN) {
            if (++p->depth > TPL_MAX_PARSE_DEPTH)
                return tpl_syntax(p, p->tok, "nested deeper than %d levels", TPL_MAX_PARSE_DEPTH);
            p->tok++;
            rc = tpl_parse_target(p, NULL, namespace_ok, true, &item);
            if (rc == 0)
                rc = tpl_expect(p, TPL_T_RPAREN);
            p->depth--;
        } else {
            rc = target_name(p, namespace_ok, &item);
        }
        if (rc == 0)
            rc = tpl_nodes_add(p, &tuple->list, item);
        if (rc != 0)
            return rc;
        if (p->tok->kind != TPL_T_COMMA)
            break;
        is_tuple = true;
        p->tok++;
    }
    *ret = is_tuple ? tuple : tuple->list.v[0];
    return 0;
}

static int parse_if(struct tpl_parser *p, struct tpl_node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    const struct tpl_token *begin = p->tok - 1;
    struct tpl_node *head = n;
    p->soft++;
    for (;;) {
        int rc = tpl_parse_tuple(p, false, NULL, false, &n->a);
        if (rc == 0)
            rc = tpl_expect(p, TPL_T_BLOCK_END);
        if (rc == 0)
            rc = parse_body(p, begin, ends, &n->list);
        if (rc != 0)
            return rc;
        if (tpl_skip_name(p, "elif")) {
            n = tpl_node_new(p, TPL_N_IF, p->tok);
            if (!n || tpl_nodes_add(p, &head->list2, n) != 0)
                return TRL_E_NOMEM;
            continue;
        }
        if (tpl_skip_name(p, "else")) {
            /* the else branch hangs on the last condition */
            struct tpl_node *other = tpl_node_new(p, TPL_N_IF, p->tok - 1);
            if (!other || tpl_nodes_add(p, &head->list2, other) != 0)
                return TRL_E_NOMEM;
            rc = block_body(p, begin, "endif", &other->list);
        } else {
            p->tok++;
        }
        p->soft--;
        return rc;
    }
}

static bool names_loop(const struct tpl_node *target)
{
    bool hit = target->kind == TPL_N_NAME && strcmp(target->text, "loop") == 0;
    for (size_t i = 0; i < target->list.n && !hit; i++)
        hit = names_loop(target->list.v[i]);
    return hit;
}

static int parse_for(struct tpl_parser *p, struct tpl_node *n)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    const struct tpl_token *begin = p->tok - 1;
    int rc = tpl_parse_target(p, "in", false, true, &n->a);
    if (rc == 0 && names_loop(n->a))
        return tpl_syntax(p, begin, "Can't assign to special loop variable in for-loop target");
    if (rc == 0 && !tpl_skip_name(p, "in"))
        rc = tpl_unexpected(p, "'in'");
    if (rc == 0)
        rc = tpl_parse_tuple(p, false, "recursive", false, &n->b);
    if (rc == 0 && tpl_skip_name(p, "if"))
        rc = tpl_parse_expr(p, &n->c);
    if (rc == 0) {
        n->flag = tpl_skip_name(p, "recursive");
        rc = tpl_expect(p, TPL_T_BLOCK_END);
    }
    p->loops++;
    if (rc == 0)
        rc = parse_body(p, begin, ends, &n->list);
    p->loops--;
    if (rc == 0 && tpl_skip_name(p, "else"))
        rc = block_body(p, begin, "endfor", &n->list2);
    else if (rc == 0)
        p->tok++;
    return rc;
}

static int parse_set(struct tpl_parser *p, struct tpl_node *n)
{
    const struct tpl_token *begin = p->tok - 1;
    int rc = tpl_parse_target(p, NULL, true, true, &n->a);
    if (rc != 0)
        return rc;
    if (p->tok->kind == TPL_T_ASSIGN) {
        p->tok++;
        return tpl_parse_tuple(p, true, NULL, false, &n->b);
    }
    n->kind = TPL_N_SET_BLOCK;
    while (rc == 0 && p->tok->kind == TPL_T_PIPE) {
        p->tok++;
        rc = tpl_parse_filter(p, n->b, &n->b); /* the innermost filter's input is the body's text */
    }
    return rc != 0 ? rc : block_body(p, begin, "endset", &n->list);
}

/* (a, b=1): names in list2, defaults in `list` of a node each; a name node's `a` is its default. */
static int parse_signature(struct tpl_parser *p, struct tpl_node *n)
{
    int rc = tpl_expect(p, TPL_T_LPAREN);
    bool defaults = false;
    while (rc == 0 && p->tok->kind != TPL_T_RPAREN) {
        struct tpl_node *arg;
        if (n->list2.n && (rc = tpl_expect(p, TPL_T_COMMA)) != 0)
            break;
        if ((rc = target_name(p, false, &arg)) != 0)
            break;
        if (p->tok->kind == TPL_T_ASSIGN) {
            p->tok++;
            rc = tpl_parse_expr(p, &arg->a);
            defaults = true;
        } else if (defaults) {
            rc = tpl_syntax(p, p->tok, "non-default argument follows default argument");
        }
        if (rc == 0)
            rc = tpl_nodes_add(p, &n->list2, arg);
    }
    return rc != 0 ? rc : tpl_expect(p, TPL_T_RPAREN);
}

/* The body of something that runs as a function: `break` does not reach out of it. */
static int function_body(
    struct tpl_parser *p, const struct tpl_token *begin, const char *end, struct tpl_node *n)
{
    struct tpl_node *outer = p->macro;
    int loops = p->loops;
    uint32_t id;
    p->macro = n;
    p->loops = 0;
    int rc = block_body(p, begin, end, &n->list);
    p->macro = outer;
    p->loops = loops;
    if (outer) { /* names used inside are seen by what is around */
        outer->flag |= n->flag;
        outer->varargs |= n->varargs;
        outer->kwargs |= n->kwargs;
    }
    if (rc == 0 && n->flag)
        rc = tpl_intern(p, "caller", &id);
    if (rc == 0 && n->varargs)
        rc = tpl_intern(p, "varargs", &id);
    if (rc == 0 && n->kwargs)
        rc = tpl_intern(p, "kwargs", &id);
    return rc;
}

static int parse_macro(struct tpl_parser *p, struct tpl_node *n)
{
    const struct tpl_token *begin = p->tok - 1;
    int rc = target_name(p, false, &n->a);
    struct tpl_node *outer = p->macro;
    p->macro = n; /* defaults belong to the macro */
    if (rc == 0)
        rc = parse_signature(p, n);
    p->macro = outer;
    if (rc == 0)
        n->text = n->a->text;
    return rc != 0 ? rc : function_body(p, begin, "endmacro", n);
}

static int parse_call_block(struct tpl_parser *p, struct tpl_node *n)
{
    const struct tpl_token *begin = p->tok - 1;
    int rc = p->tok->kind == TPL_T_LPAREN ? parse_signature(p, n) : 0;
    if (rc == 0)
        rc = tpl_parse_expr(p, &n->b);
    if (rc == 0 && n->b->kind != TPL_N_CALL)
        return tpl_syntax(p, begin, "expected call");
    n->text = "caller";
    return rc != 0 ? rc : function_body(p, begin, "endcall", n);
}

static int parse_with(struct tpl_parser *p, struct tpl_node *n)
{
    const struct tpl_token *begin = p->tok - 1;
    int rc = 0;
    while (rc == 0 && p->tok->kind != TPL_T_BLOCK_END) {
        struct tpl_node *target;
        if (n->list2.n && (rc = tpl_expect(p, TPL_T_COMMA)) != 0)
            break;
        rc = tpl_parse_target(p, NULL, false, false, &target);
        if (rc == 0)
            rc = tpl_expect(p, TPL_T_ASSIGN);
        if (rc == 0)
            rc = tpl_parse_expr(p, &target->a);
        if (rc == 0)
            rc = tpl_nodes_add(p, &n->list2, target);
    }
    return rc != 0 ? rc : block_body(p, begin, "endwith", &n->list);
}

static int parse_filter_block(struct tpl_parser *p, struct tpl_node *n)
{
    const struct tpl_token *begin = p->tok - 1;
    int rc = tpl_parse_filter(p, NULL, &n->b);
    while (rc == 0 && p->tok->kind == TPL_T_PIPE) {
        p->tok++;
        rc = tpl_parse_filter(p, n->b, &n->b);
    }
    return rc != 0 ? rc : block_body(p, begin, "endfilter", &n->list);
}

static int parse_flow(struct tpl_parser *p, struct tpl_node *n)
{
    if (p->loops == 0)
        return tpl_syntax(p, p->tok - 1, "'%s' outside a loop", p->tok[-1].text);
    (void)n;
    return 0;
}

static int parse_generation(struct tpl_parser *p, struct tpl_node *n)
{
    int loops = p->loops;
    p->loops = 0;
    p->t->has_generation = 1;
    int rc = block_body(p, p->tok - 1, "endgeneration", &n->list);
    p->loops = loops;
    return rc;
}

/* Behind "{%": one statement, through its "%}". */
static int parse_statement(struct tpl_parser *p, struct tpl_nodes *ret)
{
    static const struct {
        const char *name;
        enum tpl_node_kind kind;
        int (*parse)(struct tpl_parser *, struct tpl_node *);
    } table[] = {
        {"if", TPL_N_IF, parse_if},
        {"for", TPL_N_FOR, parse_for},
        {"set", TPL_N_SET, parse_set},
        {"macro", TPL_N_MACRO, parse_macro},
        {"call", TPL_N_CALL_BLOCK, parse_call_block},
        {"filter", TPL_N_FILTER_BLOCK, parse_filter_block},
        {"with", TPL_N_WITH, parse_with},
        {"generation", TPL_N_GENERATION, parse_generation},
        {"break", TPL_N_BREAK, parse_flow},
        {"continue", TPL_N_CONTINUE, parse_flow},
    };
    static const char *const refused[] = {
        "extends", "block", "include", "import", "from", "autoescape", "print"};
    const struct tpl_token *k = p->tok;
    if (k->kind != TPL_T_NAME)
        return tpl_unexpected(p, "the name of a statement");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].name, k->text) != 0)
            continue;
        p->tok++;
        struct tpl_node *n = tpl_node_new(p, table[i].kind, k);
        if (!n)
            return TRL_E_NOMEM;
        int rc = table[i].parse(p, n);
        if (rc == 0)
            rc = tpl_expect(p, TPL_T_BLOCK_END);
        return rc != 0 ? rc : tpl_nodes_add(p, ret, n);
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (strcmp(refused[i], k->text) == 0)
            return tpl_syntax(
                p, k, "the statement '%s' is not supported in chat templates", k->text);
    }
    return tpl_syntax(p, k, "Encountered unknown tag '%s'.", k->text);
}

static int parse_text(struct tpl_parser *p, struct tpl_nodes *ret)
{
    struct tpl_node *n = tpl_node_new(p, TPL_N_TEXT, p->tok);
    struct tpl_str *s = trl_arena_alloc(&p->t->arena, sizeof(*s));
    if (!n || !s)
        return trl_fail_nomem(p->err, sizeof(*s), "a template's text");
    s->data = p->tok->text;
    s->len = p->tok->len;
    n->value = (struct tpl_value){.kind = TPL_STR, .u.str = s};
    p->tok++;
    return tpl_nodes_add(p, ret, n);
}

static int parse_output(struct tpl_parser *p, struct tpl_nodes *ret)
{
    p->tok++;
    struct tpl_node *n = tpl_node_new(p, TPL_N_OUTPUT, p->tok);
    if (!n)
        return TRL_E_NOMEM;
    int rc = tpl_parse_tuple(p, true, NULL, false, &n->a);
    if (rc == 0)
        rc = tpl_expect(p, TPL_T_VAR_END);
    return rc != 0 ? rc : tpl_nodes_add(p, ret, n);
}

static int parse_body(struct tpl_parser *p, const struct tpl_token *begin, const char *const *ends,
    struct tpl_nodes *ret)
{
    int rc = 0;
    if (++p->depth > TPL_MAX_PARSE_DEPTH)
        return tpl_syntax(p, p->tok, "nested deeper than %d levels", TPL_MAX_PARSE_DEPTH);
    while (rc == 0) {
        if (p->tok->kind == TPL_T_DATA) {
            rc = parse_text(p, ret);
        } else if (p->tok->kind == TPL_T_VAR_BEGIN) {
            rc = parse_output(p, ret);
        } else if (p->tok->kind == TPL_T_BLOCK_BEGIN) {
            p->tok++;
            for (size_t i = 0; ends && ends[i]; i++) {
                if (tpl_at_name(p, ends[i])) {
                    p->depth--;
                    return 0;
                }
            }
            rc = parse_statement(p, ret);
        } else { /* the end */
            p->depth--;
            if (!ends)
                return 0;
            return tpl_syntax(p, begin, "the block '%.*s' is not closed",
                (int)(begin->len < 80 ? begin->len : 80), begin->text);
        }
    }
    return rc;
}

int tpl_parse(struct trl_template *t, const struct tpl_tokens *tokens, struct trl_err *err)
{
    struct tpl_parser p = {.t = t, .tok = tokens->v, .err = err};
    int rc = parse_body(&p, tokens->v, NULL, &t->body);
    trl_free(p.intern.head);
    trl_free(p.intern.next);
    return rc;
}
