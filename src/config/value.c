/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options: from words and YAML into the fields of struct trl_config, and back. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "config/options.h"

static void *field(const struct trl_config *cfg, const struct trl_option *o)
{
    return (char *)cfg + o->offset;
}

static const char *keep(struct trl_config *cfg, const char *text)
{
    return trl_arena_strdup(&cfg->arena, text);
}

/* "NAME: VALUE is not WHAT (FROM); wanted: ..." */
static int fail_value(
    const struct trl_option *o, const char *text, const char *from, struct trl_err *err)
{
    struct trl_str s = {0};
    trl_option_allowed(o, &s);
    int rc = trl_fail(err, TRL_E_USAGE, "%s: %s%.200s%s is not possible (%s); wanted: %s", o->name,
        *text == '[' || *text == '{' ? "" : "\"", text, *text == '[' || *text == '{' ? "" : "\"",
        from, trl_str_get(&s));
    trl_str_release(&s);
    return rc;
}

static bool same_word(const char *a, const char *b)
{
    for (; *a && tolower((unsigned char)*a) == *b; a++, b++)
        ;
    return !*a && !*b;
}

static bool is_none(const char *s)
{
    return same_word(s, "none") || same_word(s, "null");
}

static bool parse_bool(const char *s, bool *ret)
{
    static const char *const yes[] = {"yes", "true", "t", "y", "1", "on"},
                             *const no[] = {"no", "false", "f", "n", "0", "off"};
    for (size_t i = 0; i < 6; i++)
        if (same_word(s, yes[i]) || same_word(s, no[i])) {
            *ret = same_word(s, yes[i]);
            return true;
        }
    return false;
}

/* Digits may be grouped by single '_' as in Python. */
static bool ungroup(const char *s, char *buf, size_t size)
{
    size_t n = 0;
    for (const char *p = s; *p; p++) {
        if (*p == '_' && p > s && isdigit((unsigned char)p[-1]) && isdigit((unsigned char)p[1]))
            continue;
        if (n + 1 >= size)
            return false;
        buf[n++] = *p;
    }
    buf[n] = 0;
    return n > 0;
}

static bool parse_int(const char *s, int64_t *ret)
{
    char buf[64];
    long long v;
    if (!ungroup(s, buf, sizeof(buf)) ||
        !trl_parse_i64(buf[0] == '+' && isdigit((unsigned char)buf[1]) ? buf + 1 : buf, &v))
        return false;
    *ret = v;
    return true;
}

static bool parse_float(const char *s, double *ret)
{
    char buf[400];
    return ungroup(s, buf, sizeof(buf)) && !strpbrk(buf, "xXpP") && trl_parse_f64(buf, ret) &&
        isfinite(*ret);
}

static int check_bounds(
    const struct trl_option *o, double v, const char *text, const char *from, struct trl_err *err)
{
    if ((o->has_min && !(o->min_open ? v > o->min : v >= o->min)) ||
        (o->has_max && !(o->max_open ? v < o->max : v <= o->max))) {
        struct trl_str s = {0};
        trl_option_allowed(o, &s);
        int rc = trl_fail(err, TRL_E_RANGE, "%s: %s is out of range (%s); wanted: %s", o->name,
            text, from, trl_str_get(&s));
        trl_str_release(&s);
        return rc;
    }
    return 0;
}

static int check_choice(
    const struct trl_option *o, const char *word, const char *from, struct trl_err *err)
{
    if (!o->choices)
        return 0;
    if (!trl_word_in(o->choices, word, strlen(word)))
        return fail_value(o, word, from, err);
    if (!trl_word_in(o->withheld, word, strlen(word)))
        return 0;
    struct trl_str s = {0};
    trl_option_allowed(o, &s);
    int rc = trl_fail(err, TRL_E_UNSUPPORTED, "%s: \"%s\" is not supported: %s (%s); wanted: %s",
        o->name, word, o->withheld_why, from, trl_str_get(&s));
    trl_str_release(&s);
    return rc;
}

static int set_bool(struct trl_config *cfg, const struct trl_option *o, struct trl_opt_bool v)
{
    if (o->kind == TRL_OPT_BOOL)
        *(bool *)field(cfg, o) = v.value;
    else
        *(struct trl_opt_bool *)field(cfg, o) = v;
    return 0;
}

static int set_number(struct trl_config *cfg, const struct trl_option *o, const char *text,
    const char *from, struct trl_err *err)
{
    bool is_int = o->kind == TRL_OPT_INT || o->kind == TRL_OPT_OPT_INT,
         is_opt = o->kind == TRL_OPT_OPT_INT || o->kind == TRL_OPT_OPT_FLOAT;
    int64_t i = 0;
    double f = 0;
    bool none =
        is_opt && (is_none(text) || (o->def && !strcmp(o->def, "auto") && same_word(text, "auto")));
    if (!none && !(is_int ? parse_int(text, &i) : parse_float(text, &f)))
        return fail_value(o, text, from, err);
    int rc = none ? 0 : check_bounds(o, is_int ? (double)i : f, text, from, err);
    if (rc)
        return rc;
    if (o->kind == TRL_OPT_INT)
        *(int64_t *)field(cfg, o) = i;
    else if (o->kind == TRL_OPT_FLOAT)
        *(double *)field(cfg, o) = f;
    else if (o->kind == TRL_OPT_OPT_INT)
        *(struct trl_opt_int *)field(cfg, o) = (struct trl_opt_int){!none, i};
    else
        *(struct trl_opt_float *)field(cfg, o) = (struct trl_opt_float){!none, f};
    return 0;
}

static int set_json(struct trl_config *cfg, const struct trl_option *o, json_t *v)
{
    json_t **f = field(cfg, o);
    json_decref(*f);
    *f = v;
    return 0;
}

/* Strings inside a JSON object that was typed as text become booleans and numbers where they look
 * like them, as transformers does. */
static void loosen_strings(json_t *obj)
{
    const char *key;
    json_t *v;
    void *tmp;
    json_object_foreach_safe(obj, tmp, key, v)
    {
        const char *s = json_string_value(v);
        json_t *to = NULL;
        int64_t i;
        double f;
        if (json_is_object(v))
            loosen_strings(v);
        else if (s && (same_word(s, "true") || same_word(s, "false")))
            to = json_boolean(same_word(s, "true"));
        else if (s && *s && !s[strspn(s, "0123456789")] && parse_int(s, &i))
            to = json_integer(i);
        else if (s && *s && !s[strspn(s, "0123456789.")] && parse_float(s, &f))
            to = json_real(f);
        if (to)
            json_object_set_new(obj, key, to);
    }
}

static int set_dict_text(struct trl_config *cfg, const struct trl_option *o, const char *text,
    const char *from, struct trl_err *err)
{
    json_error_t je;
    if (is_none(text))
        return set_json(cfg, o, NULL);
    if (*text != '{')
        return fail_value(o, text, from, err);
    json_t *v = json_loads(text, 0, &je);
    if (!v)
        return trl_fail(err, TRL_E_USAGE,
            "%s: character %d is not JSON: %s (%s); the text is %.200s", o->name, je.position,
            je.text, from, text);
    loosen_strings(v);
    return set_json(cfg, o, v);
}

static int check_words(
    const struct trl_option *o, const json_t *list, const char *from, struct trl_err *err)
{
    size_t i;
    json_t *v;
    int rc = 0;
    json_array_foreach(list, i, v)
    {
        if (o->choices && !json_is_string(v))
            return trl_fail(
                err, TRL_E_USAGE, "%s: entry %zu is not a word (%s)", o->name, i + 1, from);
        rc = rc || !o->choices ? rc : check_choice(o, json_string_value(v), from, err);
    }
    return rc;
}

static int set_list(struct trl_config *cfg, const struct trl_option *o, json_t *list,
    const char *from, struct trl_err *err)
{
    int rc = list ? check_words(o, list, from, err) : trl_fail_nomem(err, 0, o->name);
    if (rc) {
        json_decref(list);
        return rc;
    }
    return set_json(cfg, o, list);
}

/* Words; those with choices may also be joined by commas. */
int trl_option_set_words(struct trl_config *cfg, const struct trl_option *o, char **words, size_t n,
    const char *from, struct trl_err *err)
{
    if (n == 1 && (*words[0] == '[' || is_none(words[0])) && !(o->choices && is_none(words[0])))
        return trl_option_set_text(cfg, o, words[0], from, err);
    json_t *list = json_array();
    for (size_t i = 0; i < n && list; i++) {
        for (const char *p = words[i];;) {
            size_t len = o->choices ? strcspn(p, ",") : strlen(p);
            if (json_array_append_new(list, json_stringn(p, len))) {
                json_decref(list);
                return trl_fail(
                    err, TRL_E_USAGE, "%s: \"%s\" is not UTF-8 (%s)", o->name, words[i], from);
            }
            p += len;
            if (!*p)
                break;
            p++;
        }
    }
    return set_list(cfg, o, list, from, err);
}

static int set_list_text(struct trl_config *cfg, const struct trl_option *o, const char *text,
    const char *from, struct trl_err *err)
{
    json_error_t je;
    if (*text != '[') {
        char *word = (char *)text;
        return is_none(text) && !o->choices ? set_json(cfg, o, NULL)
                                            : trl_option_set_words(cfg, o, &word, 1, from, err);
    }
    json_t *v = json_loads(text, 0, &je);
    if (!v)
        return trl_fail(err, TRL_E_USAGE,
            "%s: character %d is not JSON: %s (%s); the text is %.200s", o->name, je.position,
            je.text, from, text);
    return set_list(cfg, o, v, from, err);
}

static int set_str(struct trl_config *cfg, const struct trl_option *o, const char *text,
    const char *from, struct trl_err *err)
{
    /* an option that is off by None and has words to choose from takes "none" as None; other texts
     * stand for themselves */
    bool on;
    if (o->flag_word && parse_bool(text, &on))
        text = on ? o->flag_word : o->def;
    bool none =
        !o->def && o->choices && is_none(text) && !trl_word_in(o->choices, text, strlen(text));
    int rc = none ? 0 : check_choice(o, text, from, err);
    if (rc)
        return rc;
    if (trl_utf8_check(text, strlen(text)) != strlen(text))
        return trl_fail(err, TRL_E_USAGE, "%s: the text is not UTF-8 (%s)", o->name, from);
    const char *copy = none ? NULL : keep(cfg, text);
    if (!none && !copy)
        return trl_fail_nomem(err, strlen(text), o->name);
    *(const char **)field(cfg, o) = copy;
    return 0;
}

int trl_option_set_text(struct trl_config *cfg, const struct trl_option *o, const char *text,
    const char *from, struct trl_err *err)
{
    struct trl_opt_bool b = {.set = true};
    switch (o->kind) {
    case TRL_OPT_BOOL:
    case TRL_OPT_OPT_BOOL:
        if (o->kind == TRL_OPT_OPT_BOOL && is_none(text))
            b.set = false;
        else if (!parse_bool(text, &b.value))
            return fail_value(o, text, from, err);
        return set_bool(cfg, o, b);
    case TRL_OPT_STR:
        return set_str(cfg, o, text, from, err);
    case TRL_OPT_DICT:
        return set_dict_text(cfg, o, text, from, err);
    case TRL_OPT_LIST:
        return set_list_text(cfg, o, text, from, err);
    default:
        return set_number(cfg, o, text, from, err);
    }
}

static int set_none(
    struct trl_config *cfg, const struct trl_option *o, const char *from, struct trl_err *err)
{
    switch (o->kind) {
    case TRL_OPT_STR:
        if (o->def) /* Python would take None, and fail where it is used */
            return fail_value(o, "null", from, err);
        *(const char **)field(cfg, o) = NULL;
        return 0;
    case TRL_OPT_DICT:
    case TRL_OPT_LIST:
        return set_json(cfg, o, NULL);
    default:
        return trl_option_set_text(cfg, o, "none", from, err);
    }
}

static int fail_kind(const struct trl_option *o, const struct trl_yaml_entry *e, const char *from,
    struct trl_err *err)
{
    struct trl_str s = {0};
    trl_yaml_put_json(&s, e->value);
    int rc = fail_value(o, e->raw ? e->raw : trl_str_get(&s), from, err);
    trl_str_release(&s);
    return rc;
}

int trl_option_set_entry(struct trl_config *cfg, const struct trl_option *o,
    const struct trl_yaml_entry *e, const char *from, struct trl_err *err)
{
    bool number = o->kind == TRL_OPT_INT || o->kind == TRL_OPT_OPT_INT ||
        o->kind == TRL_OPT_FLOAT || o->kind == TRL_OPT_OPT_FLOAT;
    if (e->kind == TRL_YAML_NULL)
        return set_none(cfg, o, from, err);
    if (o->kind == TRL_OPT_LIST && e->kind == TRL_YAML_LIST)
        return set_list(cfg, o, json_deep_copy(e->value), from, err);
    if (o->kind == TRL_OPT_DICT && e->kind == TRL_YAML_MAP) {
        json_t *copy = json_deep_copy(e->value);
        return copy ? set_json(cfg, o, copy) : trl_fail_nomem(err, 0, o->name);
    }
    if (!e->raw || (number && e->kind == TRL_YAML_BOOL))
        return fail_kind(o, e, from, err);
    if (number && e->kind == TRL_YAML_INT) { /* in any of YAML's notations */
        char buf[32];
        snprintf(buf, sizeof(buf), "%lld", (long long)json_integer_value(e->value));
        return json_is_integer(e->value) ? set_number(cfg, o, buf, from, err)
                                         : fail_kind(o, e, from, err);
    }
    if ((o->kind == TRL_OPT_FLOAT || o->kind == TRL_OPT_OPT_FLOAT) && e->kind == TRL_YAML_FLOAT &&
        json_is_real(e->value)) {
        struct trl_str s = {0};
        trl_str_put_double(&s, json_real_value(e->value));
        int rc = trl_str_check(&s, err);
        rc = rc ? rc : set_number(cfg, o, trl_str_get(&s), from, err);
        trl_str_release(&s);
        return rc;
    }
    if (o->kind == TRL_OPT_BOOL || o->kind == TRL_OPT_OPT_BOOL)
        if (e->kind == TRL_YAML_BOOL)
            return set_bool(cfg, o, (struct trl_opt_bool){true, json_is_true(e->value)});
    return trl_option_set_text(cfg, o, e->raw, from, err);
}

int trl_options_init(struct trl_config *cfg, struct trl_err *err)
{
    for (size_t i = 0; i < trl_n_options; i++) {
        const struct trl_option *o = &trl_options[i];
        int rc = o->def ? trl_option_set_text(cfg, o, o->def, "the option table", err) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

json_t *trl_option_get(const struct trl_config *cfg, const struct trl_option *o)
{
    const void *f = field(cfg, o);
    const struct trl_opt_bool *ob = f;
    const struct trl_opt_int *oi = f;
    const struct trl_opt_float *of = f;
    switch (o->kind) {
    case TRL_OPT_BOOL:
        return json_boolean(*(const bool *)f);
    case TRL_OPT_OPT_BOOL:
        return ob->set ? json_boolean(ob->value) : json_null();
    case TRL_OPT_INT:
        return json_integer(*(const int64_t *)f);
    case TRL_OPT_OPT_INT:
        return oi->set ? json_integer(oi->value) : json_null();
    case TRL_OPT_FLOAT:
        return json_real(*(const double *)f);
    case TRL_OPT_OPT_FLOAT:
        return of->set ? json_real(of->value) : json_null();
    case TRL_OPT_STR:
        return *(const char *const *)f ? json_string(*(const char *const *)f) : json_null();
    case TRL_OPT_DICT:
    case TRL_OPT_LIST:
        return *(json_t *const *)f ? json_incref(*(json_t *const *)f) : json_null();
    }
    return NULL;
}

/* A text that YAML reads back as the same text without quotes. */
static bool is_plain(const char *s)
{
    struct trl_yaml_scalar v;
    return isalpha((unsigned char)*s) &&
        !s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+")] &&
        trl_yaml_resolve(s, &v) == TRL_YAML_STR;
}

void trl_option_put(const struct trl_config *cfg, const struct trl_option *o, struct trl_str *ret)
{
    json_t *v = trl_option_get(cfg, o);
    const char *s = json_string_value(v);
    if (o->secret && s)
        trl_str_puts(ret, "\"<HIDDEN>\"");
    else if (s && is_plain(s))
        trl_str_puts(ret, s);
    else
        trl_yaml_put_json(ret, v);
    json_decref(v);
}
