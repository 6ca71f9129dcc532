/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of tokenizer.json are written for Oniguruma (Ruby syntax, Unicode); PCRE2 runs them.
 * What the two read differently is rewritten: \s and \w (other sets in PCRE2), \h (hexadecimal
 * digit in Ruby), {n,m}+ (in Ruby not possessive), script properties (PCRE2 would take script
 * extensions); ^ and $ match at line ends. Class intersections (&&) and classes inside classes have
 * no counterpart and are refused.
 */
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

#define SPACE_SET \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define POSIX_WORD \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{" \
    "1f169}\\x{1f170}-\\x{1f189}"
#define WORD_SET \
    POSIX_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" /* \w alone has the fractions of Latin-1 */

enum { GROUP_DEPTH_MAX = 64 };

struct rewrite {
    const char *p, *end;
    struct trl_str out;
    size_t atom; /* where the last atom begins in `out` */
    size_t group[GROUP_DEPTH_MAX]; /* where the open groups begin */
    int depth;
    const char *where, *pattern;
};

static int fail_pattern(const struct rewrite *r, struct trl_err *err, const char *why)
{
    return trl_fail(
        err, TRL_E_UNSUPPORTED, "%s: the pattern '%.300s' %s", r->where, r->pattern, why);
}

static bool is_script(const char *name, size_t len)
{
    char text[80];
    int number;
    PCRE2_SIZE at;
    snprintf(text, sizeof(text), "\\p{sc:%.*s}", (int)len, name);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &number, &at, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* \p{Name}: a script by its name means the script, not its extensions; everything else is the same
 * in both. */
static int rewrite_property(struct rewrite *r, struct trl_err *err)
{
    const char *close = memchr(r->p, '}', (size_t)(r->end - r->p));
    if (r->end - r->p < 4 || r->p[2] != '{' || !close)
        return fail_pattern(r, err, "has \\p without {...}");
    const char *name = r->p + 3;
    bool negated = name < close && *name == '^';
    size_t len = (size_t)(close - name) - negated;
    name += negated;
    if (len > 60)
        return fail_pattern(r, err, "has an unknown property");
    const char *sc = len > 2 && is_script(name, len) ? "sc:" : "";
    trl_str_printf(&r->out, "\\%c{%s%s%.*s}", r->p[1], negated ? "^" : "", sc, (int)len, name);
    r->p = close + 1;
    return 0;
}

/* POSIX names, as properties (\p{Alpha}) and in classes ([:alpha:]). */
static const struct named_set {
    const char *name, *set;
} named_sets[] = {{"alpha", "\\p{Alphabetic}"}, {"digit", "\\p{Nd}"}, {"space", SPACE_SET},
    {"upper", "\\p{Uppercase}"}, {"lower", "\\p{Lowercase}"}, {"punct", "\\p{P}"},
    {"word", POSIX_WORD}, {"alnum", "\\p{Alphabetic}\\p{Nd}"}, {"xdigit", "0-9a-fA-F"},
    {"letter", "\\p{L}"}, {"mark", "\\p{M}"}, {"number", "\\p{N}"}, {"punctuation", "\\p{P}"},
    {"symbol", "\\p{S}"}, {"separator", "\\p{Z}"}, {"other", "\\p{C}"}};

/* Does p begin with `open`, a known name, `close`? */
static bool named_set(const char *p, size_t left, const char *open, const char *close,
    const char **ret, size_t *ret_used)
{
    size_t o = strlen(open), c = strlen(close);
    for (size_t i = 0; i < sizeof(named_sets) / sizeof(named_sets[0]); i++) {
        size_t n = strlen(named_sets[i].name);
        if (left >= o + n + c && memcmp(p, open, o) == 0 &&
            strncasecmp(p + o, named_sets[i].name, n) == 0 && memcmp(p + o + n, close, c) == 0) {
            *ret = named_sets[i].set;
            *ret_used = o + n + c;
            return true;
        }
    }
    return false;
}

static int rewrite_escape(struct rewrite *r, bool in_class, struct trl_err *err)
{
    const char *set = NULL;
    size_t used = 2;
    if (r->end - r->p < 2)
        return fail_pattern(r, err, "ends in a backslash");
    char c = r->p[1];
    bool upper = c == 'S' || c == 'W' || c == 'H';
    if (c == 's' || c == 'S')
        set = SPACE_SET;
    else if (c == 'w' || c == 'W')
        set = WORD_SET;
    else if (c == 'h' || c == 'H')
        set = "0-9a-fA-F";
    else if (named_set(r->p, (size_t)(r->end - r->p), "\\p{", "}", &set, &used))
        upper = false;
    else if (c == 'p' || c == 'P')
        return rewrite_property(r, err);
    if (!set) {
        trl_str_append(&r->out, r->p, 2);
        r->p += 2;
        return 0;
    }
    if (in_class && upper && c != 'S')
        return fail_pattern(r, err, "has \\W or \\H inside a class, which is not supported");
    if (in_class && upper)
        trl_str_puts(&r->out, "\\S"); /* differs from the set in U+180E alone */
    else if (in_class)
        trl_str_puts(&r->out, set);
    else
        trl_str_printf(&r->out, upper ? "[^%s]" : "[%s]", set);
    r->p += used;
    return 0;
}

static int rewrite_class(struct rewrite *r, struct trl_err *err)
{
    trl_str_putc(&r->out, *r->p++);
    if (r->p < r->end && *r->p == '^')
        trl_str_putc(&r->out, *r->p++);
    for (bool first = true;; first = false) {
        if (r->p >= r->end)
            return fail_pattern(r, err, "has a class without ]");
        if (*r->p == ']' && !first)
            break;
        if (*r->p == '\\') {
            int rc = rewrite_escape(r, true, err);
            if (rc)
                return rc;
            continue;
        }
        const char *set;
        size_t used;
        if (named_set(r->p, (size_t)(r->end - r->p), "[:", ":]", &set, &used)) {
            trl_str_puts(&r->out, set);
            if (r->p[2] == 'p' || r->p[2] == 'P') /* [:punct:], unlike \p{Punct}, has the symbols */
                trl_str_puts(&r->out, "\\p{S}");
            r->p += used;
            continue;
        }
        if (*r->p == '[')
            return fail_pattern(r, err, "has a class inside a class, which is not supported");
        if (*r->p == '&' && r->end - r->p > 1 && r->p[1] == '&')
            return fail_pattern(r, err, "has a class intersection (&&), which is not supported");
        trl_str_putc(&r->out, *r->p++);
    }
    trl_str_putc(&r->out, *r->p++);
    return 0;
}

/* {n,m}: copied; a '+' behind it means "again" in Ruby, where PCRE2 would read "possessive". */
static void rewrite_interval(struct rewrite *r)
{
    const char *close = memchr(r->p, '}', (size_t)(r->end - r->p));
    size_t n = close ? (size_t)(close + 1 - r->p) : 1;
    bool interval = close && n > 2;
    for (const char *q = r->p + 1; interval && q < close; q++)
        interval = (*q >= '0' && *q <= '9') || *q == ',';
    if (!interval)
        n = 1;
    if (interval && close + 1 < r->end && close[1] == '+') {
        struct trl_str tail = {0};
        trl_str_append(&tail, trl_str_get(&r->out) + r->atom, r->out.len - r->atom);
        r->out.len = r->atom;
        trl_str_puts(&r->out, "(?:");
        trl_str_append(&r->out, trl_str_get(&tail), tail.len);
        trl_str_append(&r->out, r->p, n);
        trl_str_putc(&r->out, ')');
        trl_str_release(&tail);
    } else {
        trl_str_append(&r->out, r->p, n);
    }
    r->p += n;
}

static int rewrite_one(struct rewrite *r, struct trl_err *err)
{
    char c = *r->p;
    if (c == '{') {
        rewrite_interval(r);
        return 0;
    }
    if (c == '*' || c == '+' || c == '?') {
        trl_str_putc(&r->out, c);
        r->p++;
        return 0;
    }
    if (c == ')' && r->depth > 0) {
        r->atom = r->group[--r->depth];
        trl_str_putc(&r->out, c);
        r->p++;
        return 0;
    }
    r->atom = r->out.len;
    if (c == '\\')
        return rewrite_escape(r, false, err);
    if (c == '[')
        return rewrite_class(r, err);
    if (c == '(') {
        if (r->depth >= GROUP_DEPTH_MAX)
            return fail_pattern(r, err, "has too many nested groups");
        r->group[r->depth++] = r->out.len;
        trl_str_putc(&r->out, '(');
        r->p++;
        if (r->p < r->end && *r->p == '?') /* the '?' of (?: is no quantifier */
            trl_str_putc(&r->out, *r->p++);
        return 0;
    }
    trl_str_putc(&r->out, c);
    r->p++;
    return 0;
}

int trl__regex_compile(
    struct tok_regex *r, const char *pattern, size_t len, const char *where, struct trl_err *err)
{
    struct rewrite rw = {.p = pattern, .end = pattern + len, .where = where, .pattern = pattern};
    int rc = 0, number;
    PCRE2_SIZE at;
    PCRE2_UCHAR text[160];
    while (!rc && rw.p < rw.end)
        rc = rewrite_one(&rw, err);
    if (!rc)
        rc = trl_str_check(&rw.out, err);
    if (rc)
        goto out;
    pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
    if (!ctx) {
        rc = trl_fail_nomem(err, 0, "a pattern");
        goto out;
    }
    pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((PCRE2_SPTR)trl_str_get(&rw.out), rw.out.len,
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &number, &at, ctx);
    pcre2_compile_context_free(ctx);
    if (!r->code) {
        pcre2_get_error_message(number, text, sizeof(text));
        rc = trl_fail(err, TRL_E_DATA, "%s: the pattern '%.300s' is refused: %s", where, pattern,
            (const char *)text);
        goto out;
    }
    pcre2_jit_compile(
        r->code, PCRE2_JIT_COMPLETE); /* without JIT support the interpreter runs it */
out:
    trl_str_release(&rw.out);
    return rc;
}

int trl__regex_load(struct tok_regex *r, struct trl_arena *a, const json_t *v, const char *where,
    struct trl_err *err)
{
    const json_t *lit = json_is_string(v) ? v : json_object_get(v, "String"),
                 *re = json_object_get(v, "Regex");
    if (json_is_string(lit)) {
        r->literal_len = json_string_length(lit);
        r->literal = trl_arena_strndup(a, json_string_value(lit), r->literal_len);
        if (!r->literal)
            return trl_fail_nomem(err, r->literal_len, "a pattern");
        return r->literal_len ? 0 : trl_fail(err, TRL_E_DATA, "%s: an empty pattern", where);
    }
    if (!json_is_string(re))
        return trl_fail(
            err, TRL_E_DATA, "%s: 'pattern' must be {\"String\": ...} or {\"Regex\": ...}", where);
    if (strlen(json_string_value(re)) != json_string_length(re))
        return trl_fail(err, TRL_E_UNSUPPORTED, "%s: a pattern with a NUL character", where);
    return trl__regex_compile(r, json_string_value(re), json_string_length(re), where, err);
}

void trl__regex_release(struct tok_regex *r)
{
    pcre2_code_free(r->code);
    *r = (struct tok_regex){0};
}

void trl__regex_start(struct tok_finder *f, const struct tok_regex *r, struct trl_tok_scratch *s,
    const char *p, size_t len)
{
    *f = (struct tok_finder){.r = r, .s = s, .p = p, .len = len};
}

static int next_literal(struct tok_finder *f, size_t *ret_b, size_t *ret_e)
{
    const char *hit = f->len - f->pos < f->r->literal_len
        ? NULL
        : memmem(f->p + f->pos, f->len - f->pos, f->r->literal, f->r->literal_len);
    if (!hit)
        return 0;
    *ret_b = (size_t)(hit - f->p);
    *ret_e = f->pos = *ret_b + f->r->literal_len;
    return 1;
}

int trl__regex_next(struct tok_finder *f, size_t *ret_b, size_t *ret_e, struct trl_err *err)
{
    if (!f->r->code)
        return next_literal(f, ret_b, ret_e);
    while (f->pos <= f->len) {
        int n = pcre2_match(f->r->code, (PCRE2_SPTR)f->p, f->len, f->pos, PCRE2_NO_UTF_CHECK,
            f->s->match, f->s->match_ctx);
        if (n == PCRE2_ERROR_NOMATCH)
            return 0;
        if (n < 0) {
            PCRE2_UCHAR text[160];
            pcre2_get_error_message(n, text, sizeof(text));
            return trl_fail(err, TRL_E_DATA, "%s: a pattern failed on a text of %zu bytes: %s",
                f->s->t->origin, f->len, (const char *)text);
        }
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(f->s->match);
        size_t b = o[0], e = o[1];
        if (b > e || b < f->pos) /* \K inside a look-around */
            return trl_fail(err, TRL_E_DATA, "%s: a pattern matched backwards", f->s->t->origin);
        if (b == e && f->had_match &&
            f->last_end == e) { /* no empty match right behind the last one */
            int step = 1;
            if (f->pos < f->len)
                trl__uc_next(f->p + f->pos, &step);
            f->pos += (size_t)step;
            continue;
        }
        f->pos = f->last_end = e;
        f->had_match = true;
        *ret_b = b;
        *ret_e = e;
        return 1;
    }
    return 0;
}
