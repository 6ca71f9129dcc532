/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on texts. Their input is printed first, so that numbers and undefined values are fine. */
#include <string.h>

#include "data/tpl-internal.h"
#include "data/tpl-unicode.h"

#define FILTER(name) \
    static int name(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a, \
        struct tpl_value *ret)

/* The filter is the string method of this name. */
static int by_method(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    const char *method, struct tpl_value *ret)
{
    struct tpl_value s;
    int rc = tpl_to_str(r, self, &s);
    if (rc == 0)
        rc = tpl_method_find_str(method)->fn(r, &s, a, ret);
    if (rc == 0 && ret->kind == TPL_STR)
        ret->markup = s.markup;
    return rc;
}

FILTER(filter_trim)
{
    return by_method(r, self, a, "strip", ret);
}

FILTER(filter_upper)
{
    return by_method(r, self, a, "upper", ret);
}

FILTER(filter_lower)
{
    return by_method(r, self, a, "lower", ret);
}

FILTER(filter_capitalize)
{
    return by_method(r, self, a, "capitalize", ret);
}

FILTER(filter_center)
{
    struct tpl_value width = tpl_int(80);
    struct tpl_args one = {.v = &width, .n = 1};
    return by_method(r, self, a->n || a->nk ? a : &one, "center", ret);
}

FILTER(filter_replace)
{
    static const char *const params[] = {"old", "new", "count", NULL};
    const struct tpl_value *slot[3];
    struct tpl_value v[3];
    int rc = tpl_bind(r, a, "replace", params, 2, slot);
    if (rc == 0)
        rc = tpl_to_str(r, slot[0], &v[0]);
    if (rc == 0)
        rc = tpl_to_str(r, slot[1], &v[1]);
    if (rc != 0)
        return rc;
    struct tpl_args args = {.v = v, .n = 2};
    if (slot[2] && slot[2]->kind != TPL_NONE) {
        v[2] = *slot[2];
        args.n = 3;
    }
    return by_method(r, self, &args, "replace", ret);
}

/* Words begin behind blanks, "-", "(", "{", "[" and "<"; the rest of a word is lower case. */
FILTER(filter_title)
{
    struct tpl_value s;
    struct trl_str out = {0};
    int rc = tpl_to_str(r, self, &s);
    if (rc == 0 && (a->n || a->nk))
        return tpl_raise(r, "this filter takes no arguments");
    if (rc != 0)
        return rc;
    const char *p = s.u.str->data;
    size_t len = s.u.str->len, i = 0;
    while (i < len) {
        size_t begin = i;
        unsigned cp;
        bool first = true;
        while (i < len) {
            int n = trl_utf8_decode(p + i, len - i, &cp);
            if (n <= 0)
                n = 1;
            if (tpl_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp))) {
                if (first) {
                    trl_str_append(&out, p + i, (size_t)n);
                    i += (size_t)n;
                    begin = i;
                    continue;
                }
                break;
            }
            if (first) {
                tpl_case_put(&out, cp, TPL_CASE_UPPER);
                begin = i + (size_t)n;
            }
            first = false;
            i += (size_t)n;
        }
        tpl_case_convert(&out, p + begin, i - begin, TPL_CASE_LOWER);
    }
    return tpl_str_take_buf(r, &out, ret);
}

FILTER(filter_indent)
{
    static const char *const params[] = {"width", "first", "blank", NULL};
    const struct tpl_value *slot[3], *line;
    struct tpl_value s, lines, newline;
    struct tpl_args none = {0};
    struct trl_str pad = {0}, out = {0};
    bool first = false, blank = false;
    size_t n;
    int rc = tpl_bind(r, a, "indent", params, 0, slot);
    if (rc == 0 && slot[1])
        rc = tpl_truth(r, slot[1], &first);
    if (rc == 0 && slot[2])
        rc = tpl_truth(r, slot[2], &blank);
    int64_t width = 4;
    if (rc == 0 && slot[0] && slot[0]->kind != TPL_STR)
        rc = tpl_want_int(r, slot[0], "the width of indent", &width);
    if (rc == 0 && width > 10000)
        rc = tpl_raise(r, "indent(%lld): at most 10000 is allowed", (long long)width);
    if (rc == 0 && self->kind == TPL_UNDEF)
        return tpl_use_undef(r, self);
    if (rc == 0 && self->kind == TPL_LIST)
        return tpl_raise(r, "'list' object has no attribute 'splitlines'");
    if (rc == 0 && self->kind != TPL_STR)
        return tpl_raise(
            r, "unsupported operand type(s) for +=: '%s' and 'str'", tpl_type_name(self));
    s = *self;
    if (rc == 0)
        rc = tpl_str_wrap(r, "\n", 1, &newline);
    if (rc == 0)
        rc = tpl_str_concat(r, &s, &newline, &s); /* so that there is at least one line */
    if (rc == 0)
        rc = tpl_method_find_str("splitlines")->fn(r, &s, &none, &lines);
    if (rc == 0)
        rc = tpl_items(r, &lines, &line, &n);
    if (rc != 0)
        return rc;
    if (slot[0] && slot[0]->kind == TPL_STR) {
        trl_str_append(&pad, slot[0]->u.str->data, slot[0]->u.str->len);
    } else {
        for (int64_t i = 0; i < width; i++)
            trl_str_putc(&pad, ' ');
    }
    for (size_t i = 0; i < n && out.len <= TPL_MAX_OUTPUT; i++) {
        if (i)
            trl_str_putc(&out, '\n');
        if (i ? blank || line[i].u.str->len : first)
            trl_str_append(&out, trl_str_get(&pad), pad.len);
        trl_str_append(&out, line[i].u.str->data, line[i].u.str->len);
    }
    trl_str_release(&pad);
    return tpl_str_take_buf(r, &out, ret);
}

FILTER(filter_wordcount)
{
    struct tpl_value s;
    int64_t words = 0;
    bool inside = false;
    int rc = tpl_to_str(r, self, &s);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < s.u.str->len;) {
        unsigned cp = 0;
        int n = trl_utf8_decode(s.u.str->data + i, s.u.str->len - i, &cp);
        bool word = cp == '_' || tpl_class_is(cp, TPL_CLASS_ALNUM);
        words += word && !inside;
        inside = word;
        i += n > 0 ? (size_t)n : 1;
    }
    *ret = tpl_int(words);
    return 0;
}

FILTER(filter_truncate)
{
    static const char *const params[] = {"length", "killwords", "end", "leeway", NULL};
    const struct tpl_value *slot[4];
    struct tpl_value s, cut, dots;
    int64_t length = 255, leeway = 5, len, n_end;
    bool kill = false;
    int rc = tpl_bind(r, a, "truncate", params, 0, slot);
    if (rc == 0)
        rc = tpl_str_wrap(r, "...", 3, &dots);
    if (rc == 0 && slot[2])
        rc = tpl_to_str(r, slot[2], &dots);
    if (rc == 0 && slot[0])
        rc = tpl_want_int(r, slot[0], "length", &length);
    if (rc == 0 && slot[1])
        rc = tpl_truth(r, slot[1], &kill);
    if (rc == 0 && slot[3] && slot[3]->kind != TPL_NONE)
        rc = tpl_want_int(r, slot[3], "leeway", &leeway);
    s = *self;
    if (rc == 0)
        rc = tpl_len(r, &dots, &n_end);
    if (rc == 0)
        rc = tpl_len(r, &s, &len);
    if (rc != 0)
        return rc;
    if (length < n_end)
        return tpl_raise(
            r, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway < 0)
        return tpl_raise(r, "expected leeway >= 0, got %lld", (long long)leeway);
    *ret = s;
    if (len <= length || len - length <= leeway)
        return 0;
    if (s.kind != TPL_STR)
        return tpl_raise(r, "a '%s' cannot be truncated", tpl_type_name(&s));
    struct tpl_slice sl = {{tpl_none(), tpl_int(length - n_end), tpl_none()}};
    struct tpl_value key = {.kind = TPL_SLICE, .u.slice = &sl};
    if ((rc = tpl_getitem(r, &s, &key, &cut)) != 0)
        return rc;
    if (!kill) { /* back to the last blank */
        size_t n = cut.u.str->len;
        const char *blank = n ? memrchr(cut.u.str->data, ' ', n) : NULL;
        if (blank &&
            (rc = tpl_str_wrap(r, cut.u.str->data, (size_t)(blank - cut.u.str->data), &cut)) != 0)
            return rc;
    }
    return tpl_str_concat(r, &cut, &dots, ret);
}

const struct tpl_builtin *tpl_filter_find_text(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"trim", filter_trim},
        {"upper", filter_upper},
        {"lower", filter_lower},
        {"capitalize", filter_capitalize},
        {"center", filter_center},
        {"replace", filter_replace},
        {"title", filter_title},
        {"indent", filter_indent},
        {"wordcount", filter_wordcount},
        {"truncate", filter_truncate},
    };
    return TPL_FIND(table, name);
}
