/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TPL_INTERNAL_H
#define TRL_DATA_TPL_INTERNAL_H
/*
 * Inside the chat template engine: values, syntax tree, the state of one rendering. A template is
 * lexed and parsed once into an arena of its own (read-only afterwards); every rendering has a
 * second arena for its values. Values follow Python: the same kinds, truth, equality, printing and
 * (for what templates can see) error texts.
 */
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "data/template.h"

enum {
    TPL_MAX_PARSE_DEPTH = 200, /* nesting of expressions and of blocks in the source */
    TPL_MAX_CALL_DEPTH = 200, /* macros, call blocks, recursive loops */
    TPL_MAX_EVAL_DEPTH = 2000, /* all of them and the expressions inside: bounds the C stack */
    TPL_MAX_VALUE_DEPTH = 500, /* nesting of lists and dicts */
    TPL_MAX_RANGE = 100000, /* as the sandbox of Jinja2 */
};
#define TPL_MAX_ITERATIONS ((uint64_t)10 * 1000 * 1000)
#define TPL_MAX_OUTPUT ((size_t)64 << 20)
#define TPL_MAX_MEMORY ((size_t)1 << 30)
#define TPL_MAX_WORK ((uint64_t)4 << 30) /* bytes and elements touched by filters and comparisons \
                                          */

/* ---- values ---- */

enum tpl_kind {
    TPL_UNDEF,
    TPL_NONE,
    TPL_BOOL, /* u.i */
    TPL_INT,
    TPL_FLOAT,
    TPL_STR,
    /* u.seq */
    TPL_LIST,
    TPL_TUPLE,
    TPL_RANGE,
    TPL_GEN, /* a generator: can be walked once */
    TPL_DICT_KEYS,
    TPL_DICT_VALUES,
    TPL_DICT_ITEMS,
    /* u.dict */
    TPL_DICT,
    TPL_NAMESPACE,
    TPL_MACRO,
    TPL_FUNC, /* global function or bound method */
    TPL_LOOP,
    TPL_SLICE, /* only between [ and ] */
};

struct tpl_value {
    enum tpl_kind kind;
    bool markup; /* a string that passed `safe`: escapes what is joined to it, as Markup does */
    union {
        int64_t i;
        double f;
        struct tpl_str *str;
        struct tpl_seq *seq;
        struct tpl_dict *dict;
        struct tpl_undef *undef;
        struct tpl_macro *macro;
        struct tpl_func *func;
        struct tpl_loop *loop;
        struct tpl_slice *slice;
    } u;
};

struct tpl_buf {
    size_t used, cap;
    char *data;
};
/* Immutable UTF-8. `buf` lets a growing string be extended in place: the bytes behind `data + len`
 * are free when they are the end of the used part of the buffer. */
struct tpl_str {
    const char *data;
    size_t len;
    struct tpl_buf *buf;
};
struct tpl_seq {
    struct tpl_value *items; /* NULL while `src` is not read yet */
    size_t len;
    const json_t *src;
    int64_t start, stop, step; /* of a range */
};
struct tpl_dict {
    struct tpl_value *keys, *vals; /* in insertion order */
    size_t len, cap;
    const json_t *src; /* not read yet */
    uint32_t *index; /* hash table of positions + 1, for large ones */
    size_t index_size; /* a power of two */
};
struct tpl_undef {
    const char *text; /* what using it says */
};
struct tpl_slice {
    struct tpl_value part[3];
};
struct tpl_macro {
    const struct tpl_node *def;
    struct tpl_scope *closure;
};

struct tpl_render;
struct tpl_args {
    const struct tpl_value *v;
    size_t n;
    const char *const *knames;
    const struct tpl_value *kv;
    size_t nk;
};
typedef int tpl_fn(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    struct tpl_value *ret);
struct tpl_builtin {
    const char *name;
    tpl_fn *fn;
};
struct tpl_func {
    const struct tpl_builtin *builtin;
    struct tpl_value self;
};

/* ---- syntax tree ---- */

enum tpl_node_kind {
    TPL_N_TEXT, /* statements */
    TPL_N_OUTPUT,
    TPL_N_IF,
    TPL_N_FOR,
    TPL_N_SET,
    TPL_N_SET_BLOCK,
    TPL_N_MACRO,
    TPL_N_CALL_BLOCK,
    TPL_N_FILTER_BLOCK,
    TPL_N_WITH,
    TPL_N_GENERATION,
    TPL_N_BREAK,
    TPL_N_CONTINUE,
    TPL_N_DO,
    TPL_N_CONST, /* expressions */
    TPL_N_NAME,
    TPL_N_NSREF,
    TPL_N_TUPLE,
    TPL_N_LIST,
    TPL_N_DICT,
    TPL_N_ATTR,
    TPL_N_ITEM,
    TPL_N_SLICE,
    TPL_N_CALL,
    TPL_N_FILTER,
    TPL_N_TEST,
    TPL_N_COND,
    TPL_N_AND,
    TPL_N_OR,
    TPL_N_NOT,
    TPL_N_NEG,
    TPL_N_POS,
    TPL_N_BINARY,
    TPL_N_CONCAT,
    TPL_N_COMPARE,
};

struct tpl_nodes {
    struct tpl_node **v;
    size_t n, cap;
};
struct tpl_node {
    enum tpl_node_kind kind;
    int op; /* token of an operator; first one of a comparison */
    uint32_t line, col;
    uint32_t name; /* id of the name */
    const char *text; /* its text, or that of a filter, test, attribute */
    bool flag; /* recursive loop; macro: uses `caller` */
    bool varargs, kwargs; /* macro uses these */
    struct tpl_value value; /* constant, raw text */
    struct tpl_node *a, *b, *c;
    struct tpl_nodes list, list2; /* arguments / body; defaults / else */
    const char **knames; /* keyword arguments: names; values in list2 */
    struct tpl_node *dyn_args, *dyn_kwargs;
    const struct tpl_builtin *builtin;
};

struct trl_template {
    struct trl_arena arena;
    const char *name;
    char *source; /* newlines normalised */
    size_t source_len;
    const char **names; /* [n_names] every identifier that may be a variable */
    size_t n_names;
    uint32_t loop_id, caller_id, varargs_id,
        kwargs_id; /* names that are set by the engine; UINT32_MAX: not mentioned */
    struct tpl_nodes body;
    int has_generation;
};

/* ---- lexer ---- */

enum tpl_token_kind {
    TPL_T_EOF,
    TPL_T_DATA,
    TPL_T_VAR_BEGIN,
    TPL_T_VAR_END,
    TPL_T_BLOCK_BEGIN,
    TPL_T_BLOCK_END,
    TPL_T_NAME,
    TPL_T_STRING,
    TPL_T_INT,
    TPL_T_FLOAT,
    TPL_T_ADD,
    TPL_T_SUB,
    TPL_T_MUL,
    TPL_T_POW,
    TPL_T_DIV,
    TPL_T_FLOORDIV,
    TPL_T_MOD,
    TPL_T_TILDE,
    TPL_T_EQ,
    TPL_T_NE,
    TPL_T_LT,
    TPL_T_LE,
    TPL_T_GT,
    TPL_T_GE,
    TPL_T_IN, /* made by the parser */
    TPL_T_NOT_IN, /* made by the parser */
    TPL_T_ASSIGN,
    TPL_T_DOT,
    TPL_T_COMMA,
    TPL_T_COLON,
    TPL_T_PIPE,
    TPL_T_LPAREN,
    TPL_T_RPAREN,
    TPL_T_LBRACKET,
    TPL_T_RBRACKET,
    TPL_T_LBRACE,
    TPL_T_RBRACE,
    TPL_T_SEMICOLON,
};
struct tpl_token {
    enum tpl_token_kind kind;
    uint32_t line, col;
    const char *text; /* NUL-terminated for names; the decoded string; data */
    size_t len;
    int64_t i;
    double f;
};
struct tpl_tokens {
    struct tpl_token *v;
    size_t n, cap;
};
/* Tokens of t->source, from trl_malloc; texts live in t->arena or in the source. */
int tpl_lex(struct trl_template *t, struct tpl_tokens *ret, struct trl_err *err);
/* "NAME, line L, column C: text". Returns `code`. */
int tpl_fail_at(const struct trl_template *t, struct trl_err *err, int code, uint32_t line,
    uint32_t col, const char *fmt, ...) __attribute__((format(printf, 6, 7), cold));
const char *tpl_token_name(enum tpl_token_kind kind);

/* ---- parser ---- */

struct tpl_parser {
    struct trl_template *t;
    const struct tpl_token *tok; /* current */
    struct trl_err *err;
    int depth, loops,
        soft; /* soft: inside an if, where an unknown filter is an error only when reached */
    struct tpl_node *macro; /* innermost macro or call block */
    struct {
        uint32_t *head, *next;
        size_t n_head, cap_names, cap_next;
    } intern;
};
int tpl_parse(struct trl_template *t, const struct tpl_tokens *tokens, struct trl_err *err);
/* Shared by the two halves of the parser. */
int tpl_parse_expr(struct tpl_parser *p, struct tpl_node **ret);
int tpl_parse_tuple(
    struct tpl_parser *p, bool condexpr, const char *end_name, bool parens, struct tpl_node **ret);
int tpl_parse_target(struct tpl_parser *p, const char *end_name, bool namespace_ok, bool tuple_ok,
    struct tpl_node **ret);
int tpl_parse_call_args(struct tpl_parser *p, struct tpl_node *call);
int tpl_parse_filter(struct tpl_parser *p, struct tpl_node *input, struct tpl_node **ret);
int tpl_syntax(struct tpl_parser *p, const struct tpl_token *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
int tpl_unexpected(struct tpl_parser *p, const char *wanted) __attribute__((cold));
struct tpl_node *tpl_node_new(
    struct tpl_parser *p, enum tpl_node_kind kind, const struct tpl_token *at);
int tpl_nodes_add(struct tpl_parser *p, struct tpl_nodes *l, struct tpl_node *n);
int tpl_intern(struct tpl_parser *p, const char *name, uint32_t *ret);
bool tpl_at_name(const struct tpl_parser *p, const char *name);
bool tpl_skip_name(struct tpl_parser *p, const char *name);
int tpl_expect(struct tpl_parser *p, enum tpl_token_kind kind);
bool tpl_skip(struct tpl_parser *p, enum tpl_token_kind kind);
int tpl_deeper(
    struct tpl_parser *p); /* one level of nesting more; the caller takes it back from p->depth */
int tpl_parse_nomem(struct tpl_parser *p) __attribute__((cold));
int tpl_node_make(struct tpl_parser *p, enum tpl_node_kind kind, const struct tpl_token *at,
    struct tpl_node *a, struct tpl_node *b, struct tpl_node **ret);
int tpl_parse_primary(struct tpl_parser *p, struct tpl_node **ret);
int tpl_parse_postfix(struct tpl_parser *p, struct tpl_node *n, struct tpl_node **ret);
int tpl_parse_filter_expr(struct tpl_parser *p, struct tpl_node *n, struct tpl_node **ret);

/* ---- rendering ---- */

struct tpl_var {
    uint32_t name;
    struct tpl_value value;
};
struct tpl_scope {
    struct tpl_scope *parent;
    struct tpl_var *vars;
    size_t n, cap;
    bool captured; /* a macro refers to it: it must outlive its block */
};
struct tpl_loop {
    const struct tpl_node *node;
    struct tpl_scope *outer;
    const struct tpl_value *items;
    size_t n_items, pos;
    bool filtered; /* items passed the `if` of the loop already */
    int64_t index0;
    int depth0;
    bool has_after, has_before, has_changed;
    struct tpl_value before, current, after, changed;
    int64_t length; /* -1: not known yet */
    struct tpl_scope *body, *test; /* scopes of the iteration and of the filter, reused */
};

struct tpl_render {
    const struct trl_template *t;
    const json_t *vars;
    struct trl_arena arena;
    struct trl_err *err;
    struct trl_str *out; /* the root output */
    size_t out_start;
    struct trl_spans *spans;
    struct tpl_value *globals; /* [n_names] */
    bool *global_known;
    const struct tpl_node *at; /* where errors point to */
    int call_depth, eval_depth;
    uint64_t iterations, work;
    size_t memory;
};

/* Error at r->at; returns TRL_E_DATA. */
int tpl_raise(struct tpl_render *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));
int tpl_raise_code(struct tpl_render *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
void *tpl_alloc(struct tpl_render *r, size_t size); /* NULL: the error is written */
void *tpl_alloc_array(struct tpl_render *r, size_t n, size_t size);
int tpl_charge(struct tpl_render *r, uint64_t work);

/* tpl-value.c */
struct tpl_value tpl_none(void);
struct tpl_value tpl_bool(bool b);
struct tpl_value tpl_int(int64_t i);
struct tpl_value tpl_float(double f);
int tpl_str_new(
    struct tpl_render *r, const char *data, size_t len, struct tpl_value *ret); /* copies */
int tpl_str_wrap(
    struct tpl_render *r, const char *data, size_t len, struct tpl_value *ret); /* borrows */
int tpl_str_take_buf(
    struct tpl_render *r, struct trl_str *s, struct tpl_value *ret); /* copies, releases s */
int tpl_str_concat(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b,
    struct tpl_value *ret);
int tpl_seq_new(struct tpl_render *r, enum tpl_kind kind, size_t n,
    struct tpl_value *ret); /* items to be set */
int tpl_undef_new(struct tpl_render *r, struct tpl_value *ret, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int tpl_dict_new(struct tpl_render *r, enum tpl_kind kind, size_t reserve, struct tpl_value *ret);
int tpl_dict_set(struct tpl_render *r, struct tpl_dict *d, const struct tpl_value *key,
    const struct tpl_value *val);
/* *ret NULL: absent */
int tpl_dict_find(struct tpl_render *r, struct tpl_dict *d, const struct tpl_value *key,
    const struct tpl_value **ret);
int tpl_dict_load(struct tpl_render *r, struct tpl_dict *d);
int tpl_seq_load(struct tpl_render *r, struct tpl_seq *s);
int tpl_from_json(struct tpl_render *r, const json_t *j, struct tpl_value *ret);

bool tpl_is_seq(const struct tpl_value *v); /* u.seq */
bool tpl_is_num(const struct tpl_value *v); /* bool, int, float */
bool tpl_is_int(const struct tpl_value *v); /* bool, int */
double tpl_num(const struct tpl_value *v);
const char *tpl_type_name(const struct tpl_value *v);
size_t tpl_utf8_count(const char *s, size_t len);
bool tpl_is_space(unsigned cp); /* str.isspace */
bool tpl_str_is(const struct tpl_value *v, const char *text);

/* tpl-compare.c */
int tpl_truth(struct tpl_render *r, const struct tpl_value *v, bool *ret);
int tpl_equal(
    struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b, bool *ret);
int tpl_less(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b,
    const char *op, int *ret);
int tpl_compare_op(
    struct tpl_render *r, int op, const struct tpl_value *a, const struct tpl_value *b, bool *ret);
int tpl_contains(
    struct tpl_render *r, const struct tpl_value *item, const struct tpl_value *in, bool *ret);
int tpl_len(struct tpl_render *r, const struct tpl_value *v, int64_t *ret);
bool tpl_is_iterable(const struct tpl_value *v);
/* The elements as an array (a string's characters, a dict's keys); a generator is used up by it. */
int tpl_items(
    struct tpl_render *r, const struct tpl_value *v, const struct tpl_value **ret, size_t *ret_n);
int tpl_hashable(struct tpl_render *r, const struct tpl_value *v);
/* Stable sort of v[n] by keys[n] (keys are moved too). */
int tpl_sort(
    struct tpl_render *r, struct tpl_value *v, struct tpl_value *keys, size_t n, bool reverse);
int tpl_use_undef(struct tpl_render *r, const struct tpl_value *v)
    __attribute__((cold)); /* raises its text */

/* tpl-print.c */
int tpl_print(struct tpl_render *r, const struct tpl_value *v, struct trl_str *out); /* str() */
int tpl_repr(struct tpl_render *r, const struct tpl_value *v, struct trl_str *out);
int tpl_to_str(
    struct tpl_render *r, const struct tpl_value *v, struct tpl_value *ret); /* a TPL_STR */
tpl_fn tpl_filter_tojson;
void tpl_escape(struct trl_str *out, const char *s, size_t len); /* HTML */
int tpl_escaped(struct tpl_render *r, const struct tpl_value *v,
    struct tpl_value *ret); /* escape() -> markup */

/* tpl-arith.c */
int tpl_arith(struct tpl_render *r, int op, const struct tpl_value *a, const struct tpl_value *b,
    struct tpl_value *ret);
int tpl_negate(
    struct tpl_render *r, const struct tpl_value *a, bool negative, struct tpl_value *ret);

/* tpl-format.c */
int tpl_format_percent(struct tpl_render *r, const struct tpl_value *fmt,
    const struct tpl_value *args, const struct tpl_value *kwargs, struct tpl_value *ret);
tpl_fn tpl_method_str_format;

/* tpl-attr.c */
int tpl_getattr(
    struct tpl_render *r, const struct tpl_value *v, const char *name, struct tpl_value *ret);
int tpl_getitem(struct tpl_render *r, const struct tpl_value *v, const struct tpl_value *key,
    struct tpl_value *ret);
const struct tpl_builtin *tpl_method_find_str(const char *name);
const struct tpl_builtin *tpl_method_find_split(const char *name);
const struct tpl_builtin *tpl_method_find_dict(const char *name);
const struct tpl_builtin *tpl_method_find_seq(const char *name);
/* Resolve a slice against a length: first index, step, count. */
int tpl_slice_resolve(struct tpl_render *r, const struct tpl_slice *s, int64_t len,
    int64_t *ret_first, int64_t *ret_step, int64_t *ret_count);

/* tpl-filter*.c, tpl-test.c, tpl-func.c: NULL when there is none of that name */
const struct tpl_builtin *tpl_filter_find(const char *name);
const struct tpl_builtin *tpl_filter_find_text(const char *name);
const struct tpl_builtin *tpl_filter_find_seq(const char *name);
const struct tpl_builtin *tpl_filter_find_select(const char *name);
const struct tpl_builtin *tpl_test_find(const char *name);
const struct tpl_builtin *tpl_func_find(const char *name);
const struct tpl_builtin *tpl_builtin_in(
    const struct tpl_builtin *table, size_t n, const char *name);
#define TPL_FIND(table, name) tpl_builtin_in(table, sizeof(table) / sizeof((table)[0]), name)

/* Arguments into slots by position or keyword; slot NULL = not given. params: names,
 * NULL-terminated. */
int tpl_bind(struct tpl_render *r, const struct tpl_args *a, const char *what,
    const char *const *params, size_t n_required, const struct tpl_value **slot);
int tpl_want_int(struct tpl_render *r, const struct tpl_value *v, const char *what, int64_t *ret);
int tpl_want_str(
    struct tpl_render *r, const struct tpl_value *v, const char *what, const struct tpl_str **ret);

/* tpl-eval.c, tpl-exec.c, tpl-loop.c */
int tpl_eval(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct tpl_value *ret);
int tpl_call(struct tpl_render *r, const struct tpl_value *fn, const struct tpl_args *a,
    struct tpl_value *ret);
int tpl_eval_args(struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc,
    const struct tpl_value *caller, struct tpl_args *ret);
enum { TPL_FLOW_BREAK = 1, TPL_FLOW_CONTINUE = 2 };
/* 0, TPL_FLOW_* or an error */
int tpl_exec(
    struct tpl_render *r, const struct tpl_nodes *body, struct tpl_scope *sc, struct trl_str *out);
int tpl_exec_for(
    struct tpl_render *r, const struct tpl_node *n, struct tpl_scope *sc, struct trl_str *out);
int tpl_loop_run(struct tpl_render *r, const struct tpl_node *n, const struct tpl_value *iterable,
    struct tpl_scope *sc, int depth0, struct trl_str *out);
int tpl_loop_getattr(
    struct tpl_render *r, struct tpl_loop *l, const char *name, bool *found, struct tpl_value *ret);
int tpl_macro_call(struct tpl_render *r, const struct tpl_macro *m, const struct tpl_args *a,
    struct tpl_value *ret);
int tpl_assign(struct tpl_render *r, const struct tpl_node *target, const struct tpl_value *v,
    struct tpl_scope *sc);
struct tpl_scope *tpl_scope_new(struct tpl_render *r, struct tpl_scope *parent);
int tpl_scope_set(
    struct tpl_render *r, struct tpl_scope *sc, uint32_t name, const struct tpl_value *v);
int tpl_resolve(
    struct tpl_render *r, struct tpl_scope *sc, const struct tpl_node *name, struct tpl_value *ret);
int tpl_enter(struct tpl_render *r, const struct tpl_node *n, bool call);
void tpl_leave(struct tpl_render *r, bool call);
int tpl_out_check(struct tpl_render *r, const struct trl_str *out);

#endif
