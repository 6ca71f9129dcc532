/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <yaml.h>

#include "base/alloc.h"
#include "base/fileio.h"

#define TAG_PREFIX "tag:yaml.org,2002:"
#define MAX_DEPTH 64
#define MAX_NODES 100000
#define MAX_ANCHORS 1000

/* A node: a scalar keeps its text, because an option that is a string wants `1.0` as it was
 * written. */
struct value {
    json_t *json; /* owned */
    const char *raw;
    enum trl_yaml_kind kind;
    size_t nodes, depth; /* with all below, aliases counted in full */
    bool merge; /* a plain << */
};

struct anchor {
    const char *name;
    struct value v;
};

struct reader {
    yaml_parser_t parser;
    yaml_event_t ev;
    bool have_ev;
    struct trl_yaml *y;
    struct trl_err *err;
    const char *text;
    size_t len, depth, nodes;
    struct anchor *anchors;
    size_t n_anchors, cap_anchors;
    size_t cap_top;
};

static int fail_at(struct reader *r, yaml_mark_t at, const char *what, const char *detail)
{
    return trl_fail(r->err, TRL_E_PARSE, "%s:%zu:%zu: %s%s", r->y->name, at.line + 1, at.column + 1,
        what, detail);
}

/* Is the text at a position (columns count characters) a tab, or indented with one? */
static bool is_tab(const struct reader *r, yaml_mark_t at)
{
    const char *p = r->text, *end = r->text + r->len;
    for (size_t line = 0; line < at.line; line++) {
        p = memchr(p, '\n', (size_t)(end - p));
        if (!p)
            return false;
        p++;
    }
    while (p < end && (*p == ' ' || *p == '\t'))
        if (*p++ == '\t')
            return true;
    return false;
}

static int fail_syntax(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return trl_fail_nomem(r->err, 0, "a YAML file");
    if (p->error == YAML_READER_ERROR)
        return trl_fail(r->err, TRL_E_PARSE,
            "%s: byte %zu: %s; YAML is UTF-8 text without control characters", r->y->name,
            p->problem_offset, p->problem ? p->problem : "unreadable");
    if (is_tab(r, p->problem_mark))
        return fail_at(r, p->problem_mark, "a tab in the indentation; YAML wants blanks there", "");
    const char *what = p->problem ? p->problem : "not YAML";
    if (!p->context)
        return fail_at(r, p->problem_mark, "syntax error: ", what);
    return trl_fail(r->err, TRL_E_PARSE, "%s:%zu:%zu: syntax error: %s, %s which began in line %zu",
        r->y->name, p->problem_mark.line + 1, p->problem_mark.column + 1, what, p->context,
        p->context_mark.line + 1);
}

static int next(struct reader *r)
{
    if (r->have_ev)
        yaml_event_delete(&r->ev);
    r->have_ev = false;
    if (!yaml_parser_parse(&r->parser, &r->ev))
        return fail_syntax(r);
    r->have_ev = true;
    return 0;
}

static const char *keep(struct reader *r, const char *text)
{
    return trl_arena_strdup(&r->y->arena, text);
}

static bool tag_is(const char *tag, const char *name)
{
    return tag && trl_starts_with(tag, TAG_PREFIX) && !strcmp(tag + strlen(TAG_PREFIX), name);
}

static json_t *scalar_json(
    const char *raw, enum trl_yaml_kind kind, const struct trl_yaml_scalar *s)
{
    switch (kind) {
    case TRL_YAML_NULL:
        return json_null();
    case TRL_YAML_BOOL:
        return json_boolean(s->i);
    case TRL_YAML_INT:
        if (!s->big)
            return json_integer(s->i);
        return isfinite(s->f) ? json_real(s->f) : json_string(raw);
    case TRL_YAML_FLOAT:
        return isfinite(s->f) ? json_real(s->f) : json_string(raw);
    default:
        return json_string(raw);
    }
}

/* A nested number like 1e-5, which YAML 1.1 takes for a string; nobody means one, and only options
 * know their type. */
static bool is_exponent_number(const char *s, double *ret)
{
    const char *p = s + (*s == '-' || *s == '+');
    return *p >= '0' && *p <= '9' && !p[strspn(p, "0123456789.eE+-")] && strpbrk(p, "eE") &&
        trl_parse_f64(s, ret) && isfinite(*ret);
}

static int read_scalar(struct reader *r, struct value *ret)
{
    yaml_mark_t at = r->ev.start_mark;
    const char *text = (const char *)r->ev.data.scalar.value,
               *tag = (const char *)r->ev.data.scalar.tag;
    if (strlen(text) != r->ev.data.scalar.length)
        return fail_at(r, at, "a text with a NUL character", "");
    struct trl_yaml_scalar s = {0};
    bool plain = r->ev.data.scalar.plain_implicit && !tag;
    ret->kind = TRL_YAML_STR;
    if (plain) {
        ret->kind = trl_yaml_resolve(text, &s);
        ret->merge = !strcmp(text, "<<");
        if (ret->kind == TRL_YAML_STR && r->depth > 1 && is_exponent_number(text, &s.f))
            ret->kind = TRL_YAML_FLOAT;
    } else if (tag && strcmp(tag, "!") && !tag_is(tag, "str")) {
        static const struct {
            const char *tag;
            enum trl_yaml_kind kind;
        } tags[] = {{"null", TRL_YAML_NULL}, {"bool", TRL_YAML_BOOL}, {"int", TRL_YAML_INT},
            {"float", TRL_YAML_FLOAT}, {"timestamp", TRL_YAML_TIME}};
        enum trl_yaml_kind is = trl_yaml_resolve(text, &s);
        size_t i = 0;
        while (i < sizeof(tags) / sizeof(tags[0]) && !tag_is(tag, tags[i].tag))
            i++;
        if (i == sizeof(tags) / sizeof(tags[0]))
            return trl_fail(r->err, TRL_E_PARSE, "%s:%zu:%zu: the tag %s is not supported",
                r->y->name, at.line + 1, at.column + 1, tag);
        ret->kind = tags[i].kind;
        if (is == TRL_YAML_INT && ret->kind == TRL_YAML_FLOAT)
            is = TRL_YAML_FLOAT;
        if (is != ret->kind)
            return trl_fail(r->err, TRL_E_PARSE, "%s:%zu:%zu: \"%s\" is not a %s, as its tag says",
                r->y->name, at.line + 1, at.column + 1, text, tags[i].tag);
    }
    ret->raw = keep(r, text);
    ret->json = ret->raw ? scalar_json(ret->raw, ret->kind, &s) : NULL;
    return ret->json ? 0 : trl_fail_nomem(r->err, strlen(text), "a YAML value");
}

static int read_node(struct reader *r, struct value *ret);

/* Count a child, and hold the limits: an alias costs a line of text but stands for everything below
 * its anchor. */
static int count_child(struct reader *r, struct value *v, const struct value *child, yaml_mark_t at)
{
    v->nodes += child->nodes;
    if (child->depth >= v->depth)
        v->depth = child->depth + 1;
    if (v->nodes > MAX_NODES)
        return trl_fail(r->err, TRL_E_PARSE, "%s:%zu:%zu: more than %d values, aliases counted",
            r->y->name, at.line + 1, at.column + 1, MAX_NODES);
    if (v->depth > MAX_DEPTH)
        return trl_fail(r->err, TRL_E_PARSE, "%s:%zu:%zu: nested deeper than %d levels", r->y->name,
            at.line + 1, at.column + 1, MAX_DEPTH);
    return 0;
}

static int read_list(struct reader *r, struct value *ret)
{
    const char *tag = (const char *)r->ev.data.sequence_start.tag;
    if (tag && strcmp(tag, "!") && !tag_is(tag, "seq"))
        return fail_at(r, r->ev.start_mark, "this tag of a list is not supported: ", tag);
    ret->kind = TRL_YAML_LIST;
    ret->json = json_array();
    if (!ret->json)
        return trl_fail_nomem(r->err, 0, "a YAML list");
    for (;;) {
        int rc = next(r);
        if (rc)
            return rc;
        if (r->ev.type == YAML_SEQUENCE_END_EVENT)
            return 0;
        struct value v = {0};
        yaml_mark_t at = r->ev.start_mark;
        rc = read_node(r, &v);
        rc = rc ? rc : count_child(r, ret, &v, at);
        if (rc)
            json_decref(v.json);
        else if (json_array_append_new(ret->json, v.json))
            rc = trl_fail_nomem(r->err, 0, "a YAML list");
        if (rc)
            return rc;
    }
}

static struct trl_yaml_entry *top_find(struct trl_yaml *y, const char *key)
{
    for (size_t i = 0; i < y->n_top; i++)
        if (!strcmp(y->top[i].key, key))
            return &y->top[i];
    return NULL;
}

/* Remember a key of the outermost map, in place of `e` if that is given. `v->json` is borrowed from
 * the map. */
static int top_put(
    struct reader *r, struct trl_yaml_entry *e, const char *key, const struct value *v, size_t line)
{
    struct trl_yaml *y = r->y;
    if (!e) {
        void *top = y->top;
        if (!trl_grow(&top, &r->cap_top, y->n_top + 1, sizeof(*y->top)))
            return trl_fail_nomem(r->err, sizeof(*y->top), "YAML keys");
        y->top = top;
        e = &y->top[y->n_top++];
    }
    *e = (struct trl_yaml_entry){
        .key = keep(r, key), .value = v->json, .raw = v->raw, .kind = v->kind, .line = line};
    return e->key ? 0 : trl_fail_nomem(r->err, strlen(key), "a YAML key");
}

static void describe(const json_t *j, struct value *ret, struct trl_arena *a)
{
    static const enum trl_yaml_kind kinds[] = {[JSON_OBJECT] = TRL_YAML_MAP,
        [JSON_ARRAY] = TRL_YAML_LIST,
        [JSON_STRING] = TRL_YAML_STR,
        [JSON_INTEGER] = TRL_YAML_INT,
        [JSON_REAL] = TRL_YAML_FLOAT,
        [JSON_TRUE] = TRL_YAML_BOOL,
        [JSON_FALSE] = TRL_YAML_BOOL,
        [JSON_NULL] = TRL_YAML_NULL};
    *ret = (struct value){.json = (json_t *)j, .kind = kinds[json_typeof(j)]};
    if (ret->kind == TRL_YAML_STR) {
        ret->raw = json_string_value(j);
    } else if (ret->kind != TRL_YAML_MAP && ret->kind != TRL_YAML_LIST) {
        struct trl_str s = {0};
        trl_yaml_put_json(&s, j);
        ret->raw = trl_arena_strdup(a, trl_str_get(&s));
        trl_str_release(&s);
    }
}

/* Keys of `from` that `into` has not. */
static int merge_map(struct reader *r, json_t *into, const json_t *from, size_t line)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)from, key, v)
    {
        if (json_object_get(into, key))
            continue;
        if (json_object_set(into, key, v))
            return trl_fail_nomem(r->err, 0, "a YAML map");
        if (r->depth == 1) {
            struct value d;
            describe(v, &d, &r->y->arena);
            int rc = top_put(r, NULL, key, &d, line);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int merge_value(struct reader *r, json_t *into, const json_t *from, yaml_mark_t at)
{
    size_t i;
    json_t *item;
    int rc = 0;
    if (json_is_object(from))
        return merge_map(r, into, from, at.line + 1);
    if (!json_is_array(from))
        return fail_at(r, at, "<< wants a map or a list of maps", "");
    json_array_foreach(from, i, item)
    {
        if (!json_is_object(item))
            return fail_at(r, at, "<< wants a map or a list of maps", "");
        rc = rc ? rc : merge_map(r, into, item, at.line + 1);
    }
    return rc;
}

static int put_pair(struct reader *r, json_t *map, const char *key, struct value *v, yaml_mark_t at)
{
    struct trl_yaml_entry *old = NULL;
    if (json_object_get(map, key)) {
        old = r->depth == 1 ? top_find(r->y, key) : NULL;
        trl_str_printf(&r->y->warnings, "%s:%zu: the key %s is given twice; the last one counts",
            r->y->name, at.line + 1, key);
        if (old)
            trl_str_printf(&r->y->warnings, " (first in line %zu)", old->line);
        trl_str_putc(&r->y->warnings, '\n');
    }
    if (json_object_set_new(map, key, v->json)) {
        v->json = NULL;
        return trl_fail_nomem(r->err, 0, "a YAML map");
    }
    return r->depth == 1 ? top_put(r, old, key, v, at.line + 1) : 0;
}

static int read_pair(struct reader *r, struct value *ret, json_t *merges)
{
    yaml_mark_t at = r->ev.start_mark;
    struct value key = {0}, v = {0};
    int rc = read_node(r, &key);
    if (!rc && !key.raw)
        rc = fail_at(r, at, "a list or a map cannot be a key", "");
    if (!rc && trl_utf8_check(key.raw, strlen(key.raw)) != strlen(key.raw))
        rc = fail_at(r, at, "a key that is not UTF-8", "");
    rc = rc ? rc : next(r);
    rc = rc ? rc : read_node(r, &v);
    rc = rc ? rc : count_child(r, ret, &key, at);
    rc = rc ? rc : count_child(r, ret, &v, at);
    if (!rc && key.merge) {
        if (json_array_append(merges, v.json))
            rc = trl_fail_nomem(r->err, 0, "a YAML map");
    } else if (!rc) {
        rc = put_pair(r, ret->json, key.raw, &v, at);
        v.json = NULL;
    }
    json_decref(key.json);
    json_decref(v.json);
    return rc;
}

static int read_map(struct reader *r, struct value *ret)
{
    yaml_mark_t at = r->ev.start_mark;
    const char *tag = (const char *)r->ev.data.mapping_start.tag;
    if (tag && strcmp(tag, "!") && !tag_is(tag, "map"))
        return fail_at(r, at, "this tag of a map is not supported: ", tag);
    json_t *merges = json_array();
    ret->kind = TRL_YAML_MAP;
    ret->json = json_object();
    int rc = ret->json && merges ? 0 : trl_fail_nomem(r->err, 0, "a YAML map");
    while (!rc) {
        rc = next(r);
        if (rc || r->ev.type == YAML_MAPPING_END_EVENT)
            break;
        rc = read_pair(r, ret, merges);
    }
    size_t i;
    json_t *m;
    json_array_foreach(merges, i, m)
    {
        rc = rc ? rc : merge_value(r, ret->json, m, at);
    }
    json_decref(merges);
    return rc;
}

static int read_alias(struct reader *r, struct value *ret)
{
    const char *name = (const char *)r->ev.data.alias.anchor;
    for (size_t i = r->n_anchors; i-- > 0;) {
        if (strcmp(r->anchors[i].name, name))
            continue;
        if (!r->anchors[i].v.json)
            return fail_at(
                r, r->ev.start_mark, "this alias lies inside what it stands for: *", name);
        *ret = r->anchors[i].v;
        json_incref(ret->json);
        return 0;
    }
    return fail_at(r, r->ev.start_mark, "no anchor has this name: *", name);
}

static int add_anchor(struct reader *r, const char *name, size_t *ret)
{
    void *a = r->anchors;
    if (r->n_anchors == MAX_ANCHORS)
        return fail_at(r, r->ev.start_mark, "more than 1000 anchors", "");
    if (!trl_grow(&a, &r->cap_anchors, r->n_anchors + 1, sizeof(*r->anchors)))
        return trl_fail_nomem(r->err, sizeof(*r->anchors), "YAML anchors");
    r->anchors = a;
    *ret = r->n_anchors;
    r->anchors[r->n_anchors++] = (struct anchor){.name = keep(r, name)};
    return r->anchors[*ret].name ? 0 : trl_fail_nomem(r->err, strlen(name), "a YAML anchor");
}

static int read_node(struct reader *r, struct value *ret)
{
    yaml_mark_t at = r->ev.start_mark;
    const char *name = NULL;
    size_t anchor = 0;
    int rc;
    if (r->ev.type == YAML_ALIAS_EVENT) {
        rc = read_alias(r, ret);
    } else {
        if (r->ev.type == YAML_SCALAR_EVENT)
            name = (const char *)r->ev.data.scalar.anchor;
        else if (r->ev.type == YAML_SEQUENCE_START_EVENT)
            name = (const char *)r->ev.data.sequence_start.anchor;
        else if (r->ev.type == YAML_MAPPING_START_EVENT)
            name = (const char *)r->ev.data.mapping_start.anchor;
        else
            return fail_at(r, at, "syntax error: a value is missing", "");
        rc = name ? add_anchor(r, name, &anchor) : 0;
        if (rc)
            return rc;
        ret->nodes = 1;
        if (r->ev.type == YAML_SCALAR_EVENT) {
            rc = read_scalar(r, ret);
        } else if (++r->depth > MAX_DEPTH) {
            rc = trl_fail(r->err, TRL_E_PARSE, "%s:%zu:%zu: nested deeper than %d levels",
                r->y->name, at.line + 1, at.column + 1, MAX_DEPTH);
        } else {
            rc = r->ev.type == YAML_SEQUENCE_START_EVENT ? read_list(r, ret) : read_map(r, ret);
            r->depth--;
        }
    }
    if (!rc && name) {
        r->anchors[anchor].v = *ret;
        json_incref(ret->json);
    }
    return rc;
}

static int read_document(struct reader *r)
{
    struct value v = {0};
    int rc = next(r); /* the start of the stream */
    rc = rc ? rc : next(r);
    if (!rc && r->ev.type == YAML_STREAM_END_EVENT)
        return 0;
    rc = rc ? rc : next(r); /* behind the start of the document */
    rc = rc ? rc : read_node(r, &v);
    rc = rc ? rc : next(r); /* the end of the document */
    rc = rc ? rc : next(r);
    if (!rc && r->ev.type != YAML_STREAM_END_EVENT)
        rc = fail_at(r, r->ev.start_mark, "a second document; one is wanted", "");
    if (rc || v.kind == TRL_YAML_NULL)
        json_decref(v.json);
    else
        r->y->root = v.json;
    return rc;
}

static int check_text(const char *text, size_t len, const char *name, struct trl_err *err)
{
    if (len > TRL_YAML_MAX_BYTES)
        return trl_fail(err, TRL_E_PARSE, "%s: %zu bytes; a YAML file may have %zu", name, len,
            TRL_YAML_MAX_BYTES);
    size_t bad = trl_utf8_check(text, len);
    if (bad == len)
        return 0;
    size_t line = 1;
    for (size_t i = 0; i < bad; i++)
        line += text[i] == '\n';
    return trl_fail(err, TRL_E_PARSE, "%s:%zu: byte %zu is not UTF-8", name, line, bad);
}

int trl_yaml_parse(
    struct trl_yaml *y, const char *text, size_t len, const char *name, struct trl_err *err)
{
    *y = (struct trl_yaml){0};
    y->name = trl_arena_strdup(&y->arena, name);
    if (!y->name)
        return trl_fail_nomem(err, strlen(name), "a file name");
    int rc = check_text(text, len, name, err);
    struct reader r = {.y = y, .err = err, .text = text, .len = len};
    if (!rc && !yaml_parser_initialize(&r.parser))
        rc = trl_fail_nomem(err, 0, "the YAML parser");
    if (!rc) {
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
        rc = read_document(&r);
        if (r.have_ev)
            yaml_event_delete(&r.ev);
        yaml_parser_delete(&r.parser);
    }
    for (size_t i = 0; i < r.n_anchors; i++)
        json_decref(r.anchors[i].v.json);
    trl_free(r.anchors);
    rc = rc ? rc : trl_str_check(&y->warnings, err);
    if (rc)
        trl_yaml_release(y);
    return rc;
}

static int parse_json(
    struct trl_yaml *y, const char *text, size_t len, const char *name, struct trl_err *err)
{
    json_error_t je;
    struct reader r = {.y = y, .err = err, .depth = 1};
    *y = (struct trl_yaml){0};
    y->name = trl_arena_strdup(&y->arena, name);
    if (!y->name)
        return trl_fail_nomem(err, strlen(name), "a file name");
    int rc = check_text(text, len, name, err);
    if (!rc) {
        y->root = json_loadb(text, len, 0, &je);
        if (!y->root)
            rc = trl_fail(err, TRL_E_PARSE, "%s:%d:%d: syntax error in JSON: %s", name, je.line,
                je.column, je.text);
    }
    const char *key;
    json_t *v;
    json_object_foreach(y->root, key, v)
    {
        struct value d;
        describe(v, &d, &y->arena);
        rc = rc ? rc : top_put(&r, NULL, key, &d, 0);
    }
    if (rc)
        trl_yaml_release(y);
    return rc;
}

int trl_yaml_read(struct trl_yaml *y, const char *path, struct trl_err *err)
{
    char *text;
    size_t len;
    *y = (struct trl_yaml){0};
    int rc = trl_file_read(path, TRL_YAML_MAX_BYTES, &text, &len, err);
    if (rc)
        return rc;
    rc = trl_ends_with(path, ".json") ? parse_json(y, text, len, path, err)
                                      : trl_yaml_parse(y, text, len, path, err);
    trl_free(text);
    return rc;
}

const struct trl_yaml_entry *trl_yaml_find(const struct trl_yaml *y, const char *key)
{
    return top_find((struct trl_yaml *)y, key);
}

void trl_yaml_release(struct trl_yaml *y)
{
    if (!y)
        return;
    json_decref(y->root);
    trl_free(y->top);
    trl_str_release(&y->warnings);
    trl_arena_release(&y->arena);
    *y = (struct trl_yaml){0};
}
