/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of strings. Positions and widths count code points. */
#include <string.h>

#include "data/tpl-internal.h"
#include "data/tpl-unicode.h"

#define METHOD(name) \
    static int name(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a, \
        struct tpl_value *ret)

static const struct tpl_str *text(const struct tpl_value *v)
{
    return v->u.str;
}

/* ---- case ---- */

static int convert(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    enum tpl_case how, struct tpl_value *ret)
{
    struct trl_str out = {0};
    if (a->n || a->nk)
        return tpl_raise(r, "this string method takes no arguments");
    tpl_case_convert(&out, text(self)->data, text(self)->len, how);
    return tpl_str_take_buf(r, &out, ret);
}

METHOD(str_upper)
{
    return convert(r, self, a, TPL_CASE_UPPER, ret);
}

METHOD(str_lower)
{
    return convert(r, self, a, TPL_CASE_LOWER, ret);
}

METHOD(str_title)
{
    return convert(r, self, a, TPL_CASE_TITLE, ret);
}

METHOD(str_capitalize)
{
    return convert(r, self, a, TPL_CASE_CAPITALIZE, ret);
}

METHOD(str_swapcase)
{
    return convert(r, self, a, TPL_CASE_SWAP, ret);
}

/* ---- strip ---- */

static bool in_set(const struct tpl_str *set, unsigned cp)
{
    unsigned c;
    for (size_t i = 0; i < set->len;) {
        int n = trl_utf8_decode(set->data + i, set->len - i, &c);
        if (n > 0 && c == cp)
            return true;
        i += n > 0 ? (size_t)n : 1;
    }
    return false;
}

static int strip(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    int sides, struct tpl_value *ret)
{
    static const char *const params[] = {"chars", NULL};
    const struct tpl_value *slot[1];
    const struct tpl_str *s = text(self), *set = NULL;
    int rc = tpl_bind(r, a, "strip()", params, 0, slot);
    if (rc == 0 && slot[0] && slot[0]->kind != TPL_NONE)
        rc = tpl_want_str(r, slot[0], "strip arg", &set);
    if (rc == 0)
        rc = tpl_charge(r, set ? set->len : 1);
    if (rc != 0)
        return rc;
    size_t begin = 0, end = s->len;
    unsigned cp;
    while ((sides & 1) && begin < end) {
        int n = trl_utf8_decode(s->data + begin, end - begin, &cp);
        if (n <= 0 || !(set ? in_set(set, cp) : tpl_is_space(cp)))
            break;
        begin += (size_t)n;
    }
    while ((sides & 2) && end > begin) {
        size_t p = end - 1;
        while (p > begin && ((unsigned char)s->data[p] & 0xC0) == 0x80)
            p--;
        int n = trl_utf8_decode(s->data + p, end - p, &cp);
        if (n <= 0 || !(set ? in_set(set, cp) : tpl_is_space(cp)))
            break;
        end = p;
    }
    rc = tpl_str_wrap(r, s->data + begin, end - begin, ret);
    if (rc == 0)
        ret->markup = self->markup;
    return rc;
}

METHOD(str_strip)
{
    return strip(r, self, a, 3, ret);
}

METHOD(str_lstrip)
{
    return strip(r, self, a, 1, ret);
}

METHOD(str_rstrip)
{
    return strip(r, self, a, 2, ret);
}

static int remove_affix(struct tpl_render *r, const struct tpl_value *self,
    const struct tpl_args *a, bool prefix, struct tpl_value *ret)
{
    static const char *const params[] = {"affix", NULL};
    const struct tpl_value *slot[1];
    const struct tpl_str *s = text(self), *x;
    int rc = tpl_bind(r, a, prefix ? "removeprefix()" : "removesuffix()", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_str(r, slot[0], "the argument", &x);
    if (rc != 0)
        return rc;
    bool hit = x->len && s->len >= x->len &&
        memcmp(prefix ? s->data : s->data + s->len - x->len, x->data, x->len) == 0;
    size_t cut = hit ? x->len : 0;
    return tpl_str_wrap(r, s->data + (prefix ? cut : 0), s->len - cut, ret);
}

METHOD(str_removeprefix)
{
    return remove_affix(r, self, a, true, ret);
}

METHOD(str_removesuffix)
{
    return remove_affix(r, self, a, false, ret);
}

/* ---- search ---- */

/* The part of `self` that start and end (code points, as in slices) select. */
static int window(struct tpl_render *r, const struct tpl_value *self, const struct tpl_value *start,
    const struct tpl_value *end, struct tpl_value *ret, int64_t *ret_start)
{
    struct tpl_slice sl = {{start ? *start : tpl_none(), end ? *end : tpl_none(), tpl_none()}};
    int64_t len, step, count;
    *ret = *self;
    *ret_start = 0;
    if (!start && !end)
        return 0;
    struct tpl_value key = {.kind = TPL_SLICE, .u.slice = &sl};
    int rc = tpl_len(r, self, &len);
    if (rc == 0)
        rc = tpl_slice_resolve(r, &sl, len, ret_start, &step, &count);
    if (rc == 0 && start && start->kind != TPL_NONE && start->u.i > len)
        *ret_start = -1; /* nothing is found behind the end, not even "" */
    return rc != 0 ? rc : tpl_getitem(r, self, &key, ret);
}

static int affix(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    bool at_end, struct tpl_value *ret)
{
    static const char *const params[] = {"prefix", "start", "end", NULL};
    const struct tpl_value *slot[3];
    struct tpl_value part;
    int64_t start;
    int rc = tpl_bind(r, a, at_end ? "endswith()" : "startswith()", params, 1, slot);
    if (rc == 0)
        rc = window(r, self, slot[1], slot[2], &part, &start);
    if (rc != 0)
        return rc;
    const struct tpl_value *v = slot[0];
    size_t n = 1;
    if (v->kind == TPL_TUPLE && (rc = tpl_items(r, slot[0], &v, &n)) != 0)
        return rc;
    bool hit = false;
    for (size_t i = 0; i < n && !hit; i++) {
        const struct tpl_str *x, *s = text(&part);
        if ((rc = tpl_want_str(r, &v[i], "the first argument of startswith() or endswith()", &x)) !=
            0)
            return rc;
        hit = start >= 0 && s->len >= x->len &&
            (x->len == 0 ||
                memcmp(at_end ? s->data + s->len - x->len : s->data, x->data, x->len) == 0);
    }
    *ret = tpl_bool(hit);
    return 0;
}

METHOD(str_startswith)
{
    return affix(r, self, a, false, ret);
}

METHOD(str_endswith)
{
    return affix(r, self, a, true, ret);
}

static const char *find_last(const char *s, size_t len, const char *x, size_t n)
{
    if (n > len)
        return NULL;
    for (size_t i = len - n + 1; i-- > 0;) {
        if (n == 0 || memcmp(s + i, x, n) == 0)
            return s + i;
    }
    return NULL;
}

static const char *find_first(const char *s, size_t len, const char *x, size_t n)
{
    return n == 0 ? s : len < n ? NULL : memmem(s, len, x, n);
}

static int find(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    bool last, bool must, struct tpl_value *ret)
{
    static const char *const params[] = {"sub", "start", "end", NULL};
    const struct tpl_value *slot[3];
    struct tpl_value part;
    const struct tpl_str *x;
    int64_t start;
    int rc = tpl_bind(r, a, "find()", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_str(r, slot[0], "the first argument of find()", &x);
    if (rc == 0)
        rc = window(r, self, slot[1], slot[2], &part, &start);
    if (rc == 0)
        rc = tpl_charge(r, text(&part)->len * (last ? 1 + x->len / 16 : 1));
    if (rc != 0)
        return rc;
    const struct tpl_str *s = text(&part);
    const char *p = start < 0 ? NULL
        : last                ? find_last(s->data, s->len, x->data, x->len)
                              : find_first(s->data, s->len, x->data, x->len);
    if (!p && must)
        return tpl_raise(r, "substring not found");
    *ret = tpl_int(p ? start + (int64_t)tpl_utf8_count(s->data, (size_t)(p - s->data)) : -1);
    return 0;
}

METHOD(str_find)
{
    return find(r, self, a, false, false, ret);
}

METHOD(str_rfind)
{
    return find(r, self, a, true, false, ret);
}

METHOD(str_index)
{
    return find(r, self, a, false, true, ret);
}

METHOD(str_rindex)
{
    return find(r, self, a, true, true, ret);
}

METHOD(str_count)
{
    static const char *const params[] = {"sub", "start", "end", NULL};
    const struct tpl_value *slot[3];
    struct tpl_value part;
    const struct tpl_str *x;
    int64_t start, n = 0;
    int rc = tpl_bind(r, a, "count()", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_str(r, slot[0], "the first argument of count()", &x);
    if (rc == 0)
        rc = window(r, self, slot[1], slot[2], &part, &start);
    if (rc == 0)
        rc = tpl_charge(r, text(&part)->len);
    if (rc != 0)
        return rc;
    const struct tpl_str *s = text(&part);
    if (x->len == 0) {
        n = start < 0 ? 0 : (int64_t)tpl_utf8_count(s->data, s->len) + 1;
    } else {
        const char *p = s->data, *end = s->data + s->len;
        while ((p = find_first(p, (size_t)(end - p), x->data, x->len)) != NULL) {
            n++;
            p += x->len;
        }
    }
    *ret = tpl_int(n);
    return 0;
}

METHOD(str_replace)
{
    static const char *const params[] = {"old", "new", "count", NULL};
    const struct tpl_value *slot[3];
    const struct tpl_str *s = text(self), *from, *to;
    int64_t left = -1;
    int rc = tpl_bind(r, a, "replace()", params, 2, slot);
    if (rc == 0)
        rc = tpl_want_str(r, slot[0], "replace() argument 1", &from);
    if (rc == 0)
        rc = tpl_want_str(r, slot[1], "replace() argument 2", &to);
    if (rc == 0 && slot[2] && slot[2]->kind != TPL_NONE)
        rc = tpl_want_int(r, slot[2], "the count of replace()", &left);
    if (rc == 0)
        rc = tpl_charge(r, s->len);
    if (rc != 0)
        return rc;
    struct trl_str out = {0};
    size_t p = 0;
    while (left != 0 && out.len <= TPL_MAX_OUTPUT) {
        if (from->len == 0) { /* between all characters, and at both ends */
            trl_str_append(&out, to->data, to->len);
            left--;
            if (p >= s->len)
                break;
            unsigned cp;
            int n = trl_utf8_decode(s->data + p, s->len - p, &cp);
            n = n > 0 ? n : 1;
            trl_str_append(&out, s->data + p, (size_t)n);
            p += (size_t)n;
            continue;
        }
        const char *hit = find_first(s->data + p, s->len - p, from->data, from->len);
        if (!hit)
            break;
        size_t at = (size_t)(hit - s->data);
        trl_str_append(&out, s->data + p, at - p);
        trl_str_append(&out, to->data, to->len);
        p = at + from->len;
        left--;
    }
    trl_str_append(&out, s->data + p, s->len - p);
    return tpl_str_take_buf(r, &out, ret);
}

/* ---- padding ---- */

static int pad(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    int how, struct tpl_value *ret)
{
    static const char *const params[] = {"width", "fillchar", NULL};
    const struct tpl_value *slot[2];
    const struct tpl_str *s = text(self), *fill = NULL;
    int64_t width, len;
    int rc = tpl_bind(r, a, "center(), ljust() or rjust()", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_int(r, slot[0], "the width", &width);
    if (rc == 0 && slot[1])
        rc = tpl_want_str(r, slot[1], "the fill character", &fill);
    if (rc == 0)
        rc = tpl_len(r, self, &len);
    if (rc != 0)
        return rc;
    if (fill && tpl_utf8_count(fill->data, fill->len) != 1)
        return tpl_raise(r, "The fill character must be exactly one character long");
    if (width > (int64_t)TPL_MAX_OUTPUT)
        return tpl_raise(r, "a string becomes longer than %zu MB", TPL_MAX_OUTPUT >> 20);
    int64_t room = width > len ? width - len : 0;
    int64_t left = how < 0 ? 0 : how > 0 ? room : room / 2 + (room & width & 1);
    struct trl_str out = {0};
    for (int64_t i = 0; i < left; i++)
        trl_str_append(&out, fill ? fill->data : " ", fill ? fill->len : 1);
    trl_str_append(&out, s->data, s->len);
    for (int64_t i = left; i < room; i++)
        trl_str_append(&out, fill ? fill->data : " ", fill ? fill->len : 1);
    return tpl_str_take_buf(r, &out, ret);
}

METHOD(str_center)
{
    return pad(r, self, a, 0, ret);
}

METHOD(str_ljust)
{
    return pad(r, self, a, -1, ret);
}

METHOD(str_rjust)
{
    return pad(r, self, a, 1, ret);
}

METHOD(str_zfill)
{
    static const char *const params[] = {"width", NULL};
    const struct tpl_value *slot[1];
    int64_t width, len;
    int rc = tpl_bind(r, a, "zfill()", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_int(r, slot[0], "the width", &width);
    if (rc == 0)
        rc = tpl_len(r, self, &len);
    if (rc != 0)
        return rc;
    if (width > (int64_t)TPL_MAX_OUTPUT)
        return tpl_raise(r, "a string becomes longer than %zu MB", TPL_MAX_OUTPUT >> 20);
    const struct tpl_str *s = text(self);
    size_t sign = s->len && (s->data[0] == '-' || s->data[0] == '+');
    struct trl_str out = {0};
    trl_str_append(&out, s->data, sign);
    for (int64_t i = len; i < width; i++)
        trl_str_putc(&out, '0');
    trl_str_append(&out, s->data + sign, s->len - sign);
    return tpl_str_take_buf(r, &out, ret);
}

/* ---- classes ---- */

static int all_are(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    enum tpl_class c, struct tpl_value *ret)
{
    const struct tpl_str *s = text(self);
    bool yes = s->len > 0 || c == TPL_CLASS_ASCII;
    if (a->n || a->nk)
        return tpl_raise(r, "this string method takes no arguments");
    for (size_t i = 0; i < s->len && yes;) {
        unsigned cp = 0;
        int n = trl_utf8_decode(s->data + i, s->len - i, &cp);
        yes = tpl_class_is(cp, c);
        i += n > 0 ? (size_t)n : 1;
    }
    *ret = tpl_bool(yes);
    return 0;
}

METHOD(str_isalpha)
{
    return all_are(r, self, a, TPL_CLASS_ALPHA, ret);
}

METHOD(str_isalnum)
{
    return all_are(r, self, a, TPL_CLASS_ALNUM, ret);
}

METHOD(str_isdigit)
{
    return all_are(r, self, a, TPL_CLASS_DIGIT, ret);
}

METHOD(str_isdecimal)
{
    return all_are(r, self, a, TPL_CLASS_DECIMAL, ret);
}

METHOD(str_isnumeric)
{
    return all_are(r, self, a, TPL_CLASS_NUMERIC, ret);
}

METHOD(str_isspace)
{
    return all_are(r, self, a, TPL_CLASS_SPACE, ret);
}

METHOD(str_isascii)
{
    return all_are(r, self, a, TPL_CLASS_ASCII, ret);
}

METHOD(str_isupper)
{
    *ret = tpl_bool(tpl_case_is(text(self)->data, text(self)->len, true));
    return a->n || a->nk ? tpl_raise(r, "isupper() takes no arguments") : 0;
}

METHOD(str_islower)
{
    *ret = tpl_bool(tpl_case_is(text(self)->data, text(self)->len, false));
    return a->n || a->nk ? tpl_raise(r, "islower() takes no arguments") : 0;
}

const struct tpl_builtin *tpl_method_find_str(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"strip", str_strip},
        {"lstrip", str_lstrip},
        {"rstrip", str_rstrip},
        {"startswith", str_startswith},
        {"endswith", str_endswith},
        {"replace", str_replace},
        {"upper", str_upper},
        {"lower", str_lower},
        {"title", str_title},
        {"capitalize", str_capitalize},
        {"swapcase", str_swapcase},
        {"find", str_find},
        {"rfind", str_rfind},
        {"index", str_index},
        {"rindex", str_rindex},
        {"count", str_count},
        {"removeprefix", str_removeprefix},
        {"removesuffix", str_removesuffix},
        {"center", str_center},
        {"ljust", str_ljust},
        {"rjust", str_rjust},
        {"zfill", str_zfill},
        {"isalpha", str_isalpha},
        {"isalnum", str_isalnum},
        {"isdigit", str_isdigit},
        {"isdecimal", str_isdecimal},
        {"isnumeric", str_isnumeric},
        {"isspace", str_isspace},
        {"isascii", str_isascii},
        {"isupper", str_isupper},
        {"islower", str_islower},
        {"format", tpl_method_str_format},
        {"casefold", str_lower},
    };
    const struct tpl_builtin *b = TPL_FIND(table, name);
    return b ? b : tpl_method_find_split(name);
}
