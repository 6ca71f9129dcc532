/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to tokens, with Jinja2's whitespace rules under trim_blocks and lstrip_blocks: a newline
 * directly behind a block or comment goes; blanks from the line start to a block or comment go; `-`
 * in a delimiter strips that side; `+` keeps it.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/tpl-internal.h"

struct lexer {
    struct trl_template *t;
    const char *s;
    size_t len, pos;
    struct tpl_tokens *out;
    struct trl_err *err;
    size_t at; /* line and column are those of this offset; it only moves forward */
    uint32_t line, col;
    bool line_starting;
    size_t n_open, cap_open;
    char *open; /* brackets not closed yet: what closes them */
};

static void locate(struct lexer *x, size_t pos)
{
    for (; x->at < pos; x->at++) {
        if (x->s[x->at] == '\n') {
            x->line++;
            x->col = 1;
        } else if (((unsigned char)x->s[x->at] & 0xC0) != 0x80) {
            x->col++;
        }
    }
}

static int fail(struct lexer *x, size_t pos, const char *text)
{
    /* An error may point behind the last token only. */
    locate(x, pos);
    return tpl_fail_at(x->t, x->err, TRL_E_PARSE, x->line, x->col, "%s", text);
}

static struct tpl_token *push(struct lexer *x, enum tpl_token_kind kind, size_t pos)
{
    void *v = x->out->v;
    if (!trl_grow(&v, &x->out->cap, x->out->n + 1, sizeof(struct tpl_token))) {
        trl_fail_nomem(x->err, (x->out->n + 1) * sizeof(struct tpl_token), "template tokens");
        return NULL;
    }
    x->out->v = v;
    struct tpl_token *k = &x->out->v[x->out->n++];
    locate(x, pos);
    *k = (struct tpl_token){.kind = kind, .line = x->line, .col = x->col};
    return k;
}

static bool is_at(const struct lexer *x, size_t pos, const char *text)
{
    size_t n = strlen(text);
    return x->len - pos >= n && memcmp(x->s + pos, text, n) == 0;
}

/* Length of the white-space character at pos, 0 if it is none. */
static size_t space_at(const struct lexer *x, size_t pos)
{
    unsigned cp;
    int n = trl_utf8_decode(x->s + pos, x->len - pos, &cp);
    return n > 0 && tpl_is_space(cp) ? (size_t)n : 0;
}

static size_t skip_space(const struct lexer *x, size_t pos)
{
    size_t n;
    while (pos < x->len && (n = space_at(x, pos)) > 0)
        pos += n;
    return pos;
}

/* End of s[begin..end) without trailing white space. */
static size_t strip_right(const struct lexer *x, size_t begin, size_t end)
{
    while (end > begin) {
        size_t p = end - 1;
        while (p > begin && ((unsigned char)x->s[p] & 0xC0) == 0x80)
            p--;
        if (space_at(x, p) != end - p)
            break;
        end = p;
    }
    return end;
}

static int push_data(struct lexer *x, size_t begin, size_t end)
{
    if (begin == end)
        return 0;
    struct tpl_token *k = push(x, TPL_T_DATA, begin);
    if (!k)
        return TRL_E_NOMEM;
    k->text = x->s + begin;
    k->len = end - begin;
    return 0;
}

/* The text before a delimiter with sign `sign` ('-', '+' or 0). */
static int push_text(struct lexer *x, size_t begin, size_t end, char sign, bool variable)
{
    if (sign == '-') {
        end = strip_right(x, begin, end);
    } else if (sign != '+' && !variable) {
        size_t line = end;
        while (line > begin && x->s[line - 1] != '\n')
            line--;
        if ((line > begin || x->line_starting) && line < end && skip_space(x, line) >= end)
            end = line;
    }
    return push_data(x, begin, end);
}

/* Move behind a closing delimiter of 2 bytes at pos (in front of it may stand `sign`). */
static void close_tag(struct lexer *x, size_t pos, char sign, bool trim)
{
    pos += 2;
    if (sign == '-')
        pos = skip_space(x, pos);
    else if (sign != '+' && trim && pos < x->len && x->s[pos] == '\n')
        pos++;
    x->pos = pos;
    x->line_starting = pos > 0 && x->s[pos - 1] == '\n';
}

static char sign_at(const struct lexer *x, size_t pos, bool plus)
{
    if (pos < x->len && (x->s[pos] == '-' || (plus && x->s[pos] == '+')))
        return x->s[pos];
    return 0;
}

static int lex_comment(struct lexer *x, size_t begin)
{
    for (size_t p = x->pos; p + 1 < x->len; p++) {
        if (x->s[p] == '#' && x->s[p + 1] == '}') {
            char sign = p > x->pos ? sign_at(x, p - 1, true) : 0;
            close_tag(x, p, sign, true);
            return 0;
        }
    }
    return fail(x, begin, "this comment is not closed (\"#}\" is missing)");
}

/* Behind "{%" and its sign: is this `raw %}`? Then where does its content begin. */
static bool raw_begin(const struct lexer *x, size_t pos, size_t *ret_content)
{
    size_t p = skip_space(x, pos);
    if (!is_at(x, p, "raw"))
        return false;
    p = skip_space(x, p + 3);
    if (is_at(x, p, "-%}"))
        *ret_content = skip_space(x, p + 3);
    else if (is_at(x, p, "%}"))
        *ret_content = p + 2;
    else
        return false;
    return true;
}

static int lex_raw(struct lexer *x, size_t begin, size_t content)
{
    x->line_starting = content > 0 && x->s[content - 1] == '\n';
    for (size_t p = content; p + 1 < x->len; p++) {
        if (x->s[p] != '{' || x->s[p + 1] != '%')
            continue;
        char sign = sign_at(x, p + 2, true);
        size_t q = skip_space(x, p + 2 + (sign != 0));
        if (!is_at(x, q, "endraw"))
            continue;
        q = skip_space(x, q + 6);
        char end_sign = sign_at(x, q, true);
        if (!is_at(x, q + (end_sign != 0), "%}"))
            continue;
        int rc = push_text(x, content, p, sign, false);
        if (rc == 0)
            close_tag(x, q + (end_sign != 0), end_sign, true);
        return rc;
    }
    return fail(x, begin, "this raw block is not closed ({% endraw %} is missing)");
}

static int hex_digits(const char *s, size_t n, unsigned *ret)
{
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isxdigit((unsigned char)s[i]))
            return -1;
        int c = tolower((unsigned char)s[i]);
        *ret = *ret << 4 | (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return 0;
}

/* Decode one escape at s[*pos] (behind the backslash). */
static int lex_escape(struct lexer *x, size_t *pos, size_t end, struct trl_str *out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = x->s[*pos];
    const char *p = c ? strchr(from, c) : NULL;
    if (p) {
        trl_str_putc(out, to[p - from]);
        ++*pos;
    } else if (c == '\n') {
        ++*pos;
    } else if (c >= '0' && c <= '7') {
        unsigned v = 0;
        for (int i = 0; i < 3 && *pos < end && x->s[*pos] >= '0' && x->s[*pos] <= '7'; i++)
            v = v * 8 + (unsigned)(x->s[(*pos)++] - '0');
        trl_str_put_utf8(out, v);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        unsigned v;
        if (end - *pos - 1 < n || hex_digits(x->s + *pos + 1, n, &v) != 0)
            return fail(x, *pos, "truncated \\x, \\u or \\U escape in a string");
        *pos += 1 + n;
        if (v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF))
            return fail(x, *pos - 1 - n, "an escape in a string that is no Unicode character");
        trl_str_put_utf8(out, v);
    } else if (c == 'N') {
        return fail(x, *pos, "\\N{...} escapes are not supported");
    } else {
        trl_str_putc(out, '\\'); /* an unknown escape stays as it is */
    }
    return 0;
}

static int lex_string(struct lexer *x)
{
    size_t begin = x->pos, end = begin + 1;
    char quote = x->s[begin];
    while (end < x->len && x->s[end] != quote)
        end += x->s[end] == '\\' && end + 1 < x->len ? 2 : 1;
    if (end >= x->len)
        return fail(x, begin, "this string is not closed");
    struct tpl_token *k = push(x, TPL_T_STRING, begin);
    if (!k)
        return TRL_E_NOMEM;
    size_t at = x->out->n - 1;
    struct trl_str out = {0};
    int rc = 0;
    for (size_t p = begin + 1; p < end && rc == 0;) {
        if (x->s[p] == '\\') {
            p++;
            rc = lex_escape(x, &p, end, &out);
        } else {
            trl_str_putc(&out, x->s[p++]);
        }
    }
    if (rc == 0)
        rc = trl_str_check(&out, x->err);
    if (rc == 0) {
        k = &x->out->v[at];
        k->text = trl_arena_strndup(&x->t->arena, trl_str_get(&out), out.len);
        k->len = out.len;
        rc = k->text ? 0 : trl_fail_nomem(x->err, out.len, "a template string");
    }
    trl_str_release(&out);
    x->pos = end + 1;
    return rc;
}

/* digits with single underscores between them; end of them */
static size_t digits(const struct lexer *x, size_t p, int base)
{
    size_t begin = p;
    while (p < x->len) {
        char c = x->s[p];
        bool ok = base == 16 ? isxdigit((unsigned char)c) : c >= '0' && c < '0' + base;
        bool sep = c == '_' && p + 1 < x->len && p > begin && x->s[p - 1] != '_';
        if (sep) {
            char d = x->s[p + 1];
            sep = base == 16 ? isxdigit((unsigned char)d) : d >= '0' && d < '0' + base;
        }
        if (!ok && !sep)
            break;
        p++;
    }
    return p;
}

static int lex_number(struct lexer *x)
{
    size_t begin = x->pos, p = begin;
    int base = 10;
    if (x->s[p] == '0' && p + 1 < x->len && strchr("bBoOxX", x->s[p + 1]) && x->s[p + 1]) {
        int c = tolower((unsigned char)x->s[p + 1]), b = c == 'b' ? 2 : c == 'o' ? 8 : 16;
        size_t q = p + 2 < x->len && x->s[p + 2] == '_' ? p + 3 : p + 2;
        if (digits(x, q, b) > q) {
            base = b;
            begin = q;
            p = digits(x, q, b);
        }
    }
    bool real = false;
    if (base == 10) {
        p = digits(x, p, 10);
        bool after_dot = begin > 0 && x->s[begin - 1] == '.';
        size_t q = p;
        if (!after_dot && q + 1 < x->len && x->s[q] == '.' && isdigit((unsigned char)x->s[q + 1])) {
            q = digits(x, q + 1, 10);
            real = true;
            p = q;
        }
        if (!after_dot && q < x->len && (x->s[q] == 'e' || x->s[q] == 'E')) {
            q++;
            if (q < x->len && (x->s[q] == '+' || x->s[q] == '-'))
                q++;
            if (q < x->len && isdigit((unsigned char)x->s[q])) {
                p = digits(x, q, 10);
                real = true;
            }
        }
    }
    char b[400];
    size_t n = 0;
    for (size_t i = begin; i < p; i++) {
        if (x->s[i] == '_')
            continue;
        if (n + 1 >= sizeof(b))
            return fail(x, x->pos, "this number has too many digits");
        b[n++] = x->s[i];
    }
    b[n] = '\0';
    if (!real && base == 10 && n > 1 && b[0] == '0' && strspn(b, "0") != n)
        return fail(x, x->pos, "a number may not begin with 0");
    struct tpl_token *k = push(x, real ? TPL_T_FLOAT : TPL_T_INT, x->pos);
    if (!k)
        return TRL_E_NOMEM;
    errno = 0;
    if (real) {
        k->f = strtod(b, NULL);
    } else {
        k->i = strtoll(b, NULL, base);
        if (errno == ERANGE)
            return fail(x, x->pos, "this integer has more than 64 bits");
    }
    x->pos = p;
    return 0;
}

static bool name_char(const struct lexer *x, size_t pos, size_t *ret_n)
{
    unsigned char c = (unsigned char)x->s[pos];
    unsigned cp;
    if (c < 0x80) {
        *ret_n = 1;
        return isalnum(c) || c == '_';
    }
    int n = trl_utf8_decode(x->s + pos, x->len - pos, &cp);
    *ret_n = n > 0 ? (size_t)n : 1;
    return n > 0 && !tpl_is_space(cp);
}

static int lex_name(struct lexer *x)
{
    size_t p = x->pos, n;
    while (p < x->len && name_char(x, p, &n))
        p += n;
    struct tpl_token *k = push(x, TPL_T_NAME, x->pos);
    if (!k)
        return TRL_E_NOMEM;
    k->text = trl_arena_strndup(&x->t->arena, x->s + x->pos, p - x->pos);
    k->len = p - x->pos;
    if (!k->text)
        return trl_fail_nomem(x->err, k->len, "a template name");
    x->pos = p;
    return 0;
}

static const struct {
    const char *text;
    enum tpl_token_kind kind;
} operators[] = {
    /* longer ones first */
    {"**", TPL_T_POW},
    {"//", TPL_T_FLOORDIV},
    {"==", TPL_T_EQ},
    {"!=", TPL_T_NE},
    {"<=", TPL_T_LE},
    {">=", TPL_T_GE},
    {"+", TPL_T_ADD},
    {"-", TPL_T_SUB},
    {"*", TPL_T_MUL},
    {"/", TPL_T_DIV},
    {"%", TPL_T_MOD},
    {"~", TPL_T_TILDE},
    {"<", TPL_T_LT},
    {">", TPL_T_GT},
    {"=", TPL_T_ASSIGN},
    {".", TPL_T_DOT},
    {",", TPL_T_COMMA},
    {":", TPL_T_COLON},
    {"|", TPL_T_PIPE},
    {"(", TPL_T_LPAREN},
    {")", TPL_T_RPAREN},
    {"[", TPL_T_LBRACKET},
    {"]", TPL_T_RBRACKET},
    {"{", TPL_T_LBRACE},
    {"}", TPL_T_RBRACE},
    {";", TPL_T_SEMICOLON},
};

const char *tpl_token_name(enum tpl_token_kind kind)
{
    static const char *const names[] = {
        [TPL_T_EOF] = "end of template",
        [TPL_T_DATA] = "text",
        [TPL_T_VAR_BEGIN] = "{{",
        [TPL_T_VAR_END] = "}}",
        [TPL_T_BLOCK_BEGIN] = "{%",
        [TPL_T_BLOCK_END] = "%}",
        [TPL_T_NAME] = "name",
        [TPL_T_STRING] = "string",
        [TPL_T_INT] = "integer",
        [TPL_T_FLOAT] = "float",
        [TPL_T_IN] = "in",
        [TPL_T_NOT_IN] = "not in",
    };
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        if (operators[i].kind == kind)
            return operators[i].text;
    }
    return names[kind] ? names[kind] : "?";
}

static int bracket(struct lexer *x, enum tpl_token_kind kind)
{
    static const enum tpl_token_kind opens[] = {TPL_T_LPAREN, TPL_T_LBRACKET, TPL_T_LBRACE};
    static const char closes[] = ")]}";
    for (int i = 0; i < 3; i++) {
        if (kind == opens[i]) {
            void *p = x->open;
            if (!trl_grow(&p, &x->cap_open, x->n_open + 1, 1))
                return trl_fail_nomem(x->err, x->n_open + 1, "a template's brackets");
            x->open = p;
            x->open[x->n_open++] = closes[i];
            return 0;
        }
    }
    char c = kind == TPL_T_RPAREN ? ')'
        : kind == TPL_T_RBRACKET  ? ']'
        : kind == TPL_T_RBRACE    ? '}'
                                  : 0;
    if (!c)
        return 0;
    char text[48];
    if (x->n_open == 0) {
        snprintf(text, sizeof(text), "unexpected '%c'", c);
        return fail(x, x->pos, text);
    }
    char want = x->open[--x->n_open];
    if (want != c) {
        snprintf(text, sizeof(text), "unexpected '%c', expected '%c'", c, want);
        return fail(x, x->pos, text);
    }
    return 0;
}

/* One token inside {{ }} or {% %}. */
static int lex_inner(struct lexer *x)
{
    char c = x->s[x->pos];
    size_t n;
    if ((n = space_at(x, x->pos)) > 0) {
        x->pos += n;
        return 0;
    }
    if (isdigit((unsigned char)c))
        return lex_number(x);
    if (name_char(x, x->pos, &n))
        return lex_name(x);
    if (c == '\'' || c == '"')
        return lex_string(x);
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        if (!is_at(x, x->pos, operators[i].text))
            continue;
        int rc = bracket(x, operators[i].kind);
        if (rc != 0)
            return rc;
        if (!push(x, operators[i].kind, x->pos))
            return TRL_E_NOMEM;
        x->pos += strlen(operators[i].text);
        return 0;
    }
    char text[48];
    snprintf(text, sizeof(text), "unexpected character '%c'", isprint((unsigned char)c) ? c : '?');
    return fail(x, x->pos, text);
}

/* From behind the opening delimiter through the closing one. */
static int lex_tag(struct lexer *x, size_t begin, bool variable)
{
    const char *close = variable ? "}}" : "%}";
    x->n_open = 0;
    while (x->pos < x->len) {
        if (x->n_open == 0) {
            char sign = sign_at(x, x->pos, !variable);
            if (is_at(x, x->pos + (sign != 0), close)) {
                if (!push(x, variable ? TPL_T_VAR_END : TPL_T_BLOCK_END, x->pos))
                    return TRL_E_NOMEM;
                close_tag(x, x->pos + (sign != 0), sign, !variable);
                return 0;
            }
        }
        int rc = lex_inner(x);
        if (rc != 0)
            return rc;
    }
    (void)begin;
    return fail(x, x->len,
        variable ? "unexpected end of template, expected \"}}\""
                 : "unexpected end of template, expected \"%}\"");
}

static int lex_all(struct lexer *x)
{
    x->line_starting = true;
    while (x->pos < x->len) {
        size_t begin = x->pos, p = begin;
        while (p < x->len &&
            !(x->s[p] == '{' && p + 1 < x->len && strchr("%{#", x->s[p + 1]) && x->s[p + 1]))
            p++;
        if (p >= x->len)
            return push_data(x, begin, x->len);
        char type = x->s[p + 1], sign = sign_at(x, p + 2, true);
        int rc = push_text(x, begin, p, sign, type == '{');
        if (rc != 0)
            return rc;
        x->pos = p + 2 + (sign != 0);
        size_t content;
        if (type == '#') {
            rc = lex_comment(x, p);
        } else if (type == '%' && raw_begin(x, x->pos, &content)) {
            rc = lex_raw(x, p, content);
        } else {
            if (!push(x, type == '{' ? TPL_T_VAR_BEGIN : TPL_T_BLOCK_BEGIN, p))
                return TRL_E_NOMEM;
            rc = lex_tag(x, p, type == '{');
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}

int tpl_lex(struct trl_template *t, struct tpl_tokens *ret, struct trl_err *err)
{
    struct lexer x = {
        .t = t, .s = t->source, .len = t->source_len, .out = ret, .err = err, .line = 1, .col = 1};
    int rc = lex_all(&x);
    if (rc == 0 && !push(&x, TPL_T_EOF, x.len))
        rc = TRL_E_NOMEM;
    trl_free(x.open);
    return rc;
}
