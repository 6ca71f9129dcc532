/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of chat templates: compile, render, free. */
#include "data/template.h"

#include <string.h>

#include "base/alloc.h"
#include "data/tpl-internal.h"

enum { MAX_SOURCE = 4 << 20 };

/* Newlines of every kind become "\n"; one at the end is dropped. */
static int copy_source(struct trl_template *t, const char *source, size_t len, struct trl_err *err)
{
    size_t n = 0;
    t->source = trl_arena_alloc(&t->arena, len + 1);
    if (!t->source)
        return trl_fail_nomem(err, len, "a chat template");
    for (size_t i = 0; i < len; i++) {
        char c = source[i];
        if (c == '\r') {
            c = '\n';
            i += i + 1 < len && source[i + 1] == '\n';
        }
        t->source[n++] = c;
    }
    if (n && t->source[n - 1] == '\n')
        n--;
    t->source[n] = '\0';
    t->source_len = n;
    return 0;
}

static uint32_t find_name(const struct trl_template *t, const char *name)
{
    for (size_t i = 0; i < t->n_names; i++) {
        if (strcmp(t->names[i], name) == 0)
            return (uint32_t)i;
    }
    return UINT32_MAX;
}

int trl_template_compile(struct trl_template **ret, const char *source, size_t len,
    const char *name, struct trl_err *err)
{
    if (len > MAX_SOURCE)
        return trl_fail(err, TRL_E_RANGE,
            "%s: a chat template of %zu bytes; at most %d are allowed", name, len, MAX_SOURCE);
    size_t bad = trl_utf8_check(source, len);
    if (bad < len)
        return trl_fail(
            err, TRL_E_PARSE, "%s: byte %zu of the chat template is not valid UTF-8", name, bad);
    struct trl_template *t = trl_calloc(1, sizeof(*t));
    struct tpl_tokens tokens = {0};
    if (!t)
        return trl_fail_nomem(err, sizeof(*t), "a chat template");
    int rc = 0;
    t->name = trl_arena_strdup(&t->arena, name ? name : "chat template");
    if (!t->name)
        rc = trl_fail_nomem(err, 64, "a chat template");
    if (rc == 0)
        rc = copy_source(t, source, len, err);
    if (rc == 0)
        rc = tpl_lex(t, &tokens, err);
    if (rc == 0)
        rc = tpl_parse(t, &tokens, err);
    trl_free(tokens.v);
    if (rc != 0) {
        trl_template_free(t);
        return rc;
    }
    t->loop_id = find_name(t, "loop");
    t->caller_id = find_name(t, "caller");
    t->varargs_id = find_name(t, "varargs");
    t->kwargs_id = find_name(t, "kwargs");
    *ret = t;
    return 0;
}

void trl_template_free(struct trl_template *t)
{
    if (!t)
        return;
    trl_free(t->names);
    trl_arena_release(&t->arena);
    trl_free(t);
}

int trl_template_has_generation(const struct trl_template *t)
{
    return t->has_generation;
}

void trl_spans_release(struct trl_spans *s)
{
    trl_free(s->begin);
    trl_free(s->end);
    *s = (struct trl_spans){0};
}

/* Spans of blocks whose text was not printed where it was made may point behind the end. */
static void clip_spans(struct trl_spans *s, size_t first, size_t len)
{
    size_t n = first;
    for (size_t i = first; i < s->len; i++) {
        if (s->begin[i] >= len || s->begin[i] == s->end[i])
            continue;
        s->begin[n] = s->begin[i];
        s->end[n++] = s->end[i] < len ? s->end[i] : len;
    }
    s->len = n;
}

int trl_template_render(const struct trl_template *t, const json_t *vars, struct trl_str *out,
    struct trl_spans *spans, struct trl_err *err)
{
    struct tpl_render r = {
        .t = t, .vars = vars, .err = err, .out = out, .out_start = out->len, .spans = spans};
    size_t first_span = spans ? spans->len : 0;
    size_t n = t->n_names ? t->n_names : 1;
    int rc = TRL_E_NOMEM;
    struct tpl_scope *root = NULL;
    r.globals = tpl_alloc_array(&r, n, sizeof(*r.globals));
    if (r.globals)
        r.global_known = tpl_alloc_array(&r, n, sizeof(bool));
    if (r.global_known)
        root = tpl_scope_new(&r, NULL);
    if (root)
        rc = tpl_exec(&r, &t->body, root, out);
    trl_arena_release(&r.arena);
    if (rc != 0) {
        if (out->data) {
            out->len = r.out_start;
            out->data[out->len] = '\0';
        }
        if (spans)
            spans->len = first_span;
        return rc;
    }
    trl_str_append(out, "", 0);
    if (spans)
        clip_spans(spans, first_span, out->len - r.out_start);
    return trl_str_check(out, err);
}
