/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text: Python's str() and repr(), json.dumps, HTML escapes. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "data/tpl-internal.h"

static bool printable(unsigned cp)
{
    if (cp < 0x7F)
        return cp >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static void repr_str(struct trl_str *out, const char *s, size_t len)
{
    bool single = len && memchr(s, '\'', len), dbl = len && memchr(s, '"', len);
    char quote = single && !dbl ? '"' : '\'';
    trl_str_putc(out, quote);
    for (size_t i = 0; i < len;) {
        unsigned cp = (unsigned char)s[i];
        int n = trl_utf8_decode(s + i, len - i, &cp);
        if (n <= 0)
            n = 1;
        if (cp == (unsigned char)quote || cp == '\\') {
            trl_str_putc(out, '\\');
            trl_str_putc(out, (char)cp);
        } else if (cp == '\n') {
            trl_str_puts(out, "\\n");
        } else if (cp == '\r') {
            trl_str_puts(out, "\\r");
        } else if (cp == '\t') {
            trl_str_puts(out, "\\t");
        } else if (printable(cp)) {
            trl_str_append(out, s + i, (size_t)n);
        } else {
            trl_str_printf(out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        }
        i += (size_t)n;
    }
    trl_str_putc(out, quote);
}

/* A text that grows here, outside the arena, has the limit of the output. */
static int check_out(struct tpl_render *r, const struct trl_str *out)
{
    return out->len > TPL_MAX_OUTPUT
        ? tpl_raise(r, "the output becomes longer than %zu MB", TPL_MAX_OUTPUT >> 20)
        : 0;
}

static int repr_at(struct tpl_render *r, const struct tpl_value *v, int depth, struct trl_str *out);

static int repr_items(struct tpl_render *r, const struct tpl_value *v, int depth, const char *open,
    const char *close, struct trl_str *out)
{
    int rc = tpl_seq_load(r, v->u.seq);
    trl_str_puts(out, open);
    for (size_t i = 0; i < v->u.seq->len && rc == 0; i++) {
        if (i)
            trl_str_puts(out, ", ");
        rc = repr_at(r, &v->u.seq->items[i], depth + 1, out);
    }
    if (v->kind == TPL_TUPLE && v->u.seq->len == 1)
        trl_str_putc(out, ',');
    trl_str_puts(out, close);
    return rc;
}

static int repr_dict(struct tpl_render *r, struct tpl_dict *d, int depth, struct trl_str *out)
{
    int rc = tpl_dict_load(r, d);
    trl_str_putc(out, '{');
    for (size_t i = 0; rc == 0 && i < d->len; i++) {
        if (i)
            trl_str_puts(out, ", ");
        rc = repr_at(r, &d->keys[i], depth + 1, out);
        trl_str_puts(out, ": ");
        if (rc == 0)
            rc = repr_at(r, &d->vals[i], depth + 1, out);
    }
    trl_str_putc(out, '}');
    return rc;
}

static int repr_at(struct tpl_render *r, const struct tpl_value *v, int depth, struct trl_str *out)
{
    if (depth > TPL_MAX_VALUE_DEPTH)
        return tpl_raise(r, "values nested deeper than %d levels", TPL_MAX_VALUE_DEPTH);
    int rc = check_out(r, out);
    if (rc != 0)
        return rc;
    switch (v->kind) {
    case TPL_UNDEF:
        trl_str_puts(out, "Undefined");
        return 0;
    case TPL_NONE:
        trl_str_puts(out, "None");
        return 0;
    case TPL_BOOL:
        trl_str_puts(out, v->u.i ? "True" : "False");
        return 0;
    case TPL_INT:
        trl_str_printf(out, "%lld", (long long)v->u.i);
        return 0;
    case TPL_FLOAT:
        trl_str_put_double(out, v->u.f);
        return 0;
    case TPL_STR:
        if (v->markup)
            trl_str_puts(out, "Markup(");
        repr_str(out, v->u.str->data, v->u.str->len);
        if (v->markup)
            trl_str_putc(out, ')');
        return 0;
    case TPL_LIST:
        return repr_items(r, v, depth, "[", "]", out);
    case TPL_TUPLE:
        return repr_items(r, v, depth, "(", ")", out);
    case TPL_DICT_KEYS:
        return repr_items(r, v, depth, "dict_keys([", "])", out);
    case TPL_DICT_VALUES:
        return repr_items(r, v, depth, "dict_values([", "])", out);
    case TPL_DICT_ITEMS:
        return repr_items(r, v, depth, "dict_items([", "])", out);
    case TPL_RANGE:
        trl_str_printf(
            out, "range(%lld, %lld", (long long)v->u.seq->start, (long long)v->u.seq->stop);
        if (v->u.seq->step != 1)
            trl_str_printf(out, ", %lld", (long long)v->u.seq->step);
        trl_str_putc(out, ')');
        return 0;
    case TPL_DICT:
        return repr_dict(r, v->u.dict, depth, out);
    case TPL_NAMESPACE:
        trl_str_puts(out, "<Namespace ");
        rc = repr_dict(r, v->u.dict, depth, out);
        trl_str_putc(out, '>');
        return rc;
    case TPL_MACRO:
        trl_str_printf(out, "<Macro '%s'>", v->u.macro->def->text);
        return 0;
    case TPL_FUNC:
        trl_str_printf(out, "<function %s>", v->u.func->builtin->name);
        return 0;
    default:
        trl_str_printf(out, "<%s>", tpl_type_name(v));
        return 0;
    }
}

int tpl_repr(struct tpl_render *r, const struct tpl_value *v, struct trl_str *out)
{
    return repr_at(r, v, 0, out);
}

int tpl_print(struct tpl_render *r, const struct tpl_value *v, struct trl_str *out)
{
    if (v->kind == TPL_UNDEF)
        return 0;
    if (v->kind != TPL_STR)
        return repr_at(r, v, 0, out);
    trl_str_append(out, v->u.str->data, v->u.str->len);
    return check_out(r, out);
}

int tpl_to_str(struct tpl_render *r, const struct tpl_value *v, struct tpl_value *ret)
{
    if (v->kind == TPL_STR) {
        *ret = *v;
        return 0;
    }
    struct trl_str s = {0};
    int rc = tpl_print(r, v, &s);
    if (rc == 0)
        return tpl_str_take_buf(r, &s, ret);
    trl_str_release(&s);
    return rc;
}

void tpl_escape(struct trl_str *out, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char *e = s[i] == '&' ? "&amp;"
            : s[i] == '<'           ? "&lt;"
            : s[i] == '>'           ? "&gt;"
            : s[i] == '"'           ? "&#34;"
            : s[i] == '\''          ? "&#39;"
                                    : NULL;
        if (e)
            trl_str_puts(out, e);
        else
            trl_str_putc(out, s[i]);
    }
}

int tpl_escaped(struct tpl_render *r, const struct tpl_value *v, struct tpl_value *ret)
{
    struct tpl_value s;
    int rc = tpl_to_str(r, v, &s);
    if (rc == 0 && !s.markup) {
        struct trl_str out = {0};
        tpl_escape(&out, s.u.str->data, s.u.str->len);
        rc = tpl_str_take_buf(r, &out, &s);
    }
    if (rc == 0) {
        *ret = s;
        ret->markup = true;
    }
    return rc;
}

/* ---- json.dumps ---- */

struct dump {
    struct tpl_render *r;
    struct trl_str *out;
    bool pretty, ascii, sort;
    struct trl_str indent, item_sep, key_sep;
};

static void dump_str(const struct dump *d, const char *s, size_t len)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    trl_str_putc(d->out, '"');
    for (size_t i = 0; i < len;) {
        unsigned cp = (unsigned char)s[i];
        int n = trl_utf8_decode(s + i, len - i, &cp);
        if (n <= 0)
            n = 1;
        const char *e = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
        if (e) {
            trl_str_putc(d->out, '\\');
            trl_str_putc(d->out, to[e - from]);
        } else if (cp < 0x20 || (d->ascii && cp > 0x7E && cp < 0x10000 && cp != 0x7F)) {
            trl_str_printf(d->out, "\\u%04x", cp);
        } else if (d->ascii && cp >= 0x10000) {
            trl_str_printf(d->out, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                0xDC00 + ((cp - 0x10000) & 0x3FF));
        } else {
            trl_str_append(d->out, s + i, (size_t)n);
        }
        i += (size_t)n;
    }
    trl_str_putc(d->out, '"');
}

static void dump_line(const struct dump *d, int depth)
{
    if (!d->pretty)
        return;
    trl_str_putc(d->out, '\n');
    for (int i = 0; i < depth; i++)
        trl_str_append(d->out, trl_str_get(&d->indent), d->indent.len);
}

static void dump_float(struct trl_str *out, double f)
{
    if (isnan(f))
        trl_str_puts(out, "NaN");
    else if (isinf(f))
        trl_str_puts(out, f < 0 ? "-Infinity" : "Infinity");
    else
        trl_str_put_double(out, f);
}

static int dump_key(const struct dump *d, const struct tpl_value *k)
{
    if (k->kind == TPL_STR) {
        dump_str(d, k->u.str->data, k->u.str->len);
        return 0;
    }
    if (k->kind != TPL_NONE && !tpl_is_num(k))
        return tpl_raise(
            d->r, "keys must be str, int, float, bool or None, not %s", tpl_type_name(k));
    trl_str_putc(d->out, '"');
    if (k->kind == TPL_FLOAT)
        dump_float(d->out, k->u.f);
    else if (k->kind == TPL_INT)
        trl_str_printf(d->out, "%lld", (long long)k->u.i);
    else
        trl_str_puts(d->out, k->kind == TPL_NONE ? "null" : k->u.i ? "true" : "false");
    trl_str_putc(d->out, '"');
    return 0;
}

static int dump_at(const struct dump *d, const struct tpl_value *v, int depth);

static int dump_dict(const struct dump *d, struct tpl_dict *dict, int depth)
{
    int rc = tpl_dict_load(d->r, dict);
    if (rc != 0)
        return rc;
    if (dict->len == 0) {
        trl_str_puts(d->out, "{}");
        return 0;
    }
    struct tpl_value *keys = dict->keys, *vals = dict->vals;
    if (d->sort) {
        keys = tpl_alloc_array(d->r, dict->len, sizeof(*keys));
        vals = keys ? tpl_alloc_array(d->r, dict->len, sizeof(*vals)) : NULL;
        if (!vals)
            return TRL_E_DATA;
        memcpy(keys, dict->keys, dict->len * sizeof(*keys));
        memcpy(vals, dict->vals, dict->len * sizeof(*vals));
        if ((rc = tpl_sort(d->r, vals, keys, dict->len, false)) != 0)
            return rc;
    }
    trl_str_putc(d->out, '{');
    for (size_t i = 0; i < dict->len && rc == 0; i++) {
        if (i)
            trl_str_append(d->out, trl_str_get(&d->item_sep), d->item_sep.len);
        dump_line(d, depth + 1);
        rc = dump_key(d, &keys[i]);
        trl_str_append(d->out, trl_str_get(&d->key_sep), d->key_sep.len);
        if (rc == 0)
            rc = dump_at(d, &vals[i], depth + 1);
    }
    dump_line(d, depth);
    trl_str_putc(d->out, '}');
    return rc;
}

static int dump_list(const struct dump *d, struct tpl_seq *s, int depth)
{
    int rc = tpl_seq_load(d->r, s);
    if (rc != 0)
        return rc;
    if (s->len == 0) {
        trl_str_puts(d->out, "[]");
        return 0;
    }
    trl_str_putc(d->out, '[');
    for (size_t i = 0; i < s->len && rc == 0; i++) {
        if (i)
            trl_str_append(d->out, trl_str_get(&d->item_sep), d->item_sep.len);
        dump_line(d, depth + 1);
        rc = dump_at(d, &s->items[i], depth + 1);
    }
    dump_line(d, depth);
    trl_str_putc(d->out, ']');
    return rc;
}

static int dump_at(const struct dump *d, const struct tpl_value *v, int depth)
{
    if (depth > TPL_MAX_VALUE_DEPTH)
        return tpl_raise(d->r, "values nested deeper than %d levels", TPL_MAX_VALUE_DEPTH);
    int rc = check_out(d->r, d->out);
    if (rc != 0)
        return rc;
    switch (v->kind) {
    case TPL_NONE:
        trl_str_puts(d->out, "null");
        return 0;
    case TPL_BOOL:
        trl_str_puts(d->out, v->u.i ? "true" : "false");
        return 0;
    case TPL_INT:
        trl_str_printf(d->out, "%lld", (long long)v->u.i);
        return 0;
    case TPL_FLOAT:
        dump_float(d->out, v->u.f);
        return 0;
    case TPL_STR:
        dump_str(d, v->u.str->data, v->u.str->len);
        return 0;
    case TPL_LIST:
    case TPL_TUPLE:
        return dump_list(d, v->u.seq, depth);
    case TPL_DICT:
        return dump_dict(d, v->u.dict, depth);
    default:
        return tpl_raise(d->r, "Object of type %s is not JSON serializable", tpl_type_name(v));
    }
}

static int dump_options(struct dump *d, const struct tpl_value **slot)
{
    int rc = 0;
    const struct tpl_value *indent = slot[1], *sep = slot[2];
    d->pretty = indent && indent->kind != TPL_NONE;
    if (slot[0] && (rc = tpl_truth(d->r, slot[0], &d->ascii)) != 0)
        return rc;
    if (slot[3] && (rc = tpl_truth(d->r, slot[3], &d->sort)) != 0)
        return rc;
    trl_str_puts(&d->item_sep, d->pretty ? "," : ", ");
    trl_str_puts(&d->key_sep, ": ");
    if (d->pretty && indent->kind == TPL_STR) {
        trl_str_append(&d->indent, indent->u.str->data, indent->u.str->len);
    } else if (d->pretty) {
        int64_t n;
        if ((rc = tpl_want_int(d->r, indent, "tojson(indent)", &n)) != 0)
            return rc;
        if (n > 1000)
            return tpl_raise(d->r, "tojson(indent=%lld): at most 1000 is allowed", (long long)n);
        for (int64_t i = 0; i < n; i++)
            trl_str_putc(&d->indent, ' ');
    }
    if (!sep || sep->kind == TPL_NONE)
        return 0;
    const struct tpl_value *part;
    size_t n;
    if ((rc = tpl_items(d->r, sep, &part, &n)) != 0)
        return rc;
    if (n != 2 || part[0].kind != TPL_STR || part[1].kind != TPL_STR)
        return tpl_raise(d->r, "tojson(separators) must be two strings");
    trl_str_clear(&d->item_sep);
    trl_str_clear(&d->key_sep);
    trl_str_append(&d->item_sep, part[0].u.str->data, part[0].u.str->len);
    trl_str_append(&d->key_sep, part[1].u.str->data, part[1].u.str->len);
    return 0;
}

int tpl_filter_tojson(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    struct tpl_value *ret)
{
    static const char *const params[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
    const struct tpl_value *slot[4];
    int rc = tpl_bind(r, a, "tojson", params, 0, slot);
    if (rc != 0)
        return rc;
    struct trl_str out = {0};
    struct dump d = {.r = r, .out = &out};
    rc = dump_options(&d, slot);
    if (rc == 0)
        rc = dump_at(&d, self, 0);
    if (rc == 0)
        rc = tpl_str_take_buf(r, &out, ret);
    trl_str_release(&out);
    trl_str_release(&d.indent);
    trl_str_release(&d.item_sep);
    trl_str_release(&d.key_sep);
    return rc;
}
