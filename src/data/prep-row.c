/* SPDX-License-Identifier: Apache-2.0 */
#include "data/prep.h"

#include <string.h>

#include "base/alloc.h"

struct specials {
    json_t *o;
    bool failed;
};

static void put_special(void *ctx, const char *name, const char *token)
{
    struct specials *s = ctx;
    s->failed |= json_object_set_new(s->o, name, json_string(token)) != 0;
}

int trl_prep_thread_init(struct trl_prep_thread *t, const struct trl_prep *p, struct trl_err *err)
{
    *t = (struct trl_prep_thread){0};
    t->special = json_object();
    t->kwargs = json_deep_copy(p->template_kwargs);
    if (!t->special || (p->template_kwargs && !t->kwargs))
        return trl_fail_nomem(err, 64, "template variables");
    if (!p->tok)
        return 0; /* tokenised rows need none */
    struct specials s = {.o = t->special};
    trl_tokenizer_each_special(p->tok, put_special, &s);
    if (s.failed)
        return trl_fail_nomem(err, 64, "template variables");
    return trl_tok_scratch_new(&t->scratch, p->tok, err);
}

void trl_prep_thread_release(struct trl_prep_thread *t)
{
    if (!t)
        return;
    trl_tok_scratch_free(t->scratch);
    json_decref(t->special);
    json_decref(t->kwargs);
    trl_str_release(&t->text);
    trl_spans_release(&t->spans);
    trl_ids_release(&t->a);
    trl_ids_release(&t->b);
    trl_free(t->ids.v);
    trl_free(t->other.v);
    trl_free(t->labels);
    *t = (struct trl_prep_thread){0};
}

static json_t *column(const json_t *row, const char *name)
{
    json_t *v = json_object_get(row, name);
    return v && !json_is_null(v) ? v : NULL;
}

/* Whatever is wrong with a row's text is a property of this row, which skip_bad_rows may skip. */
static int as_bad_row(int rc, struct trl_err *err)
{
    if (rc == 0 || rc == TRL_E_NOMEM)
        return rc;
    if (err)
        err->code = TRL_E_DATA;
    return TRL_E_DATA;
}

static int encode(const struct trl_prep *p, struct trl_prep_thread *t, const char *text, size_t len, unsigned flags,
    struct trl_ids *out, struct trl_err *err)
{
    out->len = 0;
    return as_bad_row(trl_tokenizer_encode(p->tok, t->scratch, text, len, flags, out, err), err);
}

static int32_t *labels_of(struct trl_prep_thread *t, size_t n)
{
    void *q = t->labels;
    bool ok = trl_grow(&q, &t->cap_labels, n, sizeof(*t->labels));
    t->labels = q;
    return ok ? t->labels : NULL;
}

static int check_ids(const struct trl_prep *p, const int32_t *ids, int64_t n, struct trl_err *err)
{
    for (int64_t i = 0; p->vocab_size > 0 && i < n; i++)
        if (ids[i] < 0 || ids[i] >= p->vocab_size)
            return trl_fail(err, TRL_E_RANGE, "token %lld of the row has id %d, but the model's vocabulary has %lld entries "
                "(does the tokenizer belong to the model?)", (long long)i, ids[i], (long long)p->vocab_size);
    return 0;
}

/* Cut and store. labels NULL: the ids. */
static int finish(const struct trl_prep *p, const int32_t *ids, const int32_t *labels, int64_t n, struct trl_store *out,
    struct trl_err *err)
{
    int rc = check_ids(p, ids, n, err);
    if (rc != 0)
        return rc;
    int64_t from = 0;
    if (p->cut > 0 && n > p->cut) {
        from = p->keep_end ? n - p->cut : 0;
        n = p->cut;
    }
    return trl_store_add(out, ids + from, n, labels ? labels + from : NULL, NULL, 0, err);
}

/* --- plain text --- */

static int need_eos(const struct trl_prep *p, struct trl_err *err)
{
    return p->eos ? 0 : trl_fail(err, TRL_E_USAGE, "the tokenizer has no eos_token, which plain text must end with; give eos_token");
}

static bool ends_with_eos(const struct trl_prep *p, const char *s, size_t len)
{
    size_t n = strlen(p->eos);
    return len >= n && memcmp(s + len - n, p->eos, n) == 0;
}

static void append_with_eos(const struct trl_prep *p, struct trl_str *s, const json_t *text)
{
    const char *v = json_string_value(text);
    size_t n = json_string_length(text);
    trl_str_append(s, v, n);
    if (!ends_with_eos(p, v, n))
        trl_str_puts(s, p->eos);
}

static int text_row(const struct trl_prep *p, struct trl_prep_thread *t, const json_t *row, struct trl_store *out,
    struct trl_err *err)
{
    int rc = need_eos(p, err);
    if (rc != 0)
        return rc;
    trl_str_clear(&t->text);
    append_with_eos(p, &t->text, column(row, p->text_field));
    rc = trl_str_check(&t->text, err);
    if (rc == 0)
        rc = encode(p, t, trl_str_get(&t->text), t->text.len, TRL_TOK_ADD_SPECIAL, &t->a, err);
    return rc == 0 ? finish(p, t->a.ids, NULL, (int64_t)t->a.len, out, err) : rc;
}

/* --- prompt and completion: t->a holds the prompt's ids, t->b those of both --- */

/* The completion begins where the two part, which may be before the end of the prompt. */
static size_t common_prefix(struct trl_prep_thread *t)
{
    size_t n = 0;
    while (n < t->a.len && n < t->b.len && t->a.ids[n] == t->b.ids[n])
        n++;
    if (n < t->a.len)
        t->prompt_differs = true;
    return n;
}

static int finish_completion(const struct trl_prep *p, struct trl_prep_thread *t, bool assistant, struct trl_store *out,
    struct trl_err *err)
{
    size_t prompt = common_prefix(t);
    int32_t *l = t->labels; /* assistant labels are there already */
    if (!assistant) {
        if (!p->completion_only)
            return finish(p, t->b.ids, NULL, (int64_t)t->b.len, out, err);
        l = labels_of(t, t->b.len);
        if (!l)
            return trl_fail_nomem(err, t->b.len * sizeof(*l), "labels");
        memcpy(l, t->b.ids, t->b.len * sizeof(*l));
    }
    for (size_t i = 0; p->completion_only && i < prompt; i++)
        l[i] = TRL_IGNORE_LABEL;
    return finish(p, t->b.ids, l, (int64_t)t->b.len, out, err);
}

static int prompt_row(const struct trl_prep *p, struct trl_prep_thread *t, const json_t *row, struct trl_store *out,
    struct trl_err *err)
{
    json_t *prompt = column(row, "prompt"), *completion = column(row, "completion"), *text = column(row, p->text_field);
    int rc = need_eos(p, err);
    if (rc != 0)
        return rc;
    /* TRL adds EOS to the text column if there is one that lacks it, and to the completion otherwise. */
    bool to_text = json_is_string(text) && !ends_with_eos(p, json_string_value(text), json_string_length(text));
    trl_str_clear(&t->text);
    trl_str_append(&t->text, json_string_value(prompt), json_string_length(prompt));
    if (to_text && strcmp(p->text_field, "completion") != 0)
        trl_str_append(&t->text, json_string_value(completion), json_string_length(completion));
    else
        append_with_eos(p, &t->text, completion);
    rc = trl_str_check(&t->text, err);
    if (rc == 0)
        rc = encode(p, t, trl_str_get(&t->text), json_string_length(prompt), TRL_TOK_ADD_SPECIAL, &t->a, err);
    if (rc == 0)
        rc = encode(p, t, trl_str_get(&t->text), t->text.len, TRL_TOK_ADD_SPECIAL, &t->b, err);
    return rc == 0 ? finish_completion(p, t, false, out, err) : rc;
}

/* --- conversations --- */

static json_t *reasoning_of(const json_t *m)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (int i = 0; i < 3; i++)
        if (column(m, names[i]))
            return column(m, names[i]);
    return NULL;
}

/* What transformers does to a message before a template sees it: null fields vanish, a reasoning field gets its other names. */
static json_t *plain_message(const json_t *m)
{
    json_t *r = reasoning_of(m), *copy = json_object(), *v;
    const char *key;
    int rc = copy ? 0 : -1;
    if (rc == 0 && r)
        rc = json_object_set(copy, "thinking", r);
    json_object_foreach ((json_t *)(uintptr_t)m, key, v)
        if (rc == 0 && !json_is_null(v))
            rc = json_object_set(copy, key, v);
    if (rc == 0 && r)
        rc = json_object_set(copy, "reasoning_content", r);
    if (rc != 0) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

static int add_messages(json_t *list, const json_t *from)
{
    size_t i;
    json_t *m;
    json_array_foreach (from, i, m) {
        json_t *copy = plain_message(m);
        if (!copy || json_array_append_new(list, copy) != 0)
            return -1;
    }
    return 0;
}

/* Variables from an object: options for all rows, or a row's own. */
static int add_kwargs(json_t *vars, const json_t *kwargs, struct trl_err *err)
{
    if (!kwargs)
        return 0;
    if (!json_is_object(kwargs))
        return trl_fail(err, TRL_E_DATA, "column 'chat_template_kwargs' is not an object");
    return json_object_update(vars, (json_t *)(uintptr_t)kwargs) == 0 ? 0 : trl_fail_nomem(err, 256, "template variables");
}

/* The column `tools`: a list, or a string of JSON that holds one. New reference; a missing one is none. */
static json_t *tools_of(const json_t *row, struct trl_err *err)
{
    json_t *v = column(row, "tools");
    if (!v)
        return json_null();
    if (json_is_string(v)) {
        struct trl_json_reader r = {.text = json_string_value(v), .len = json_string_length(v)};
        v = trl_json_read(&r);
        if (v)
            trl_json_skip_space(&r);
        if (!v || r.at < r.len) {
            trl_fail(err, TRL_E_DATA, "column 'tools' is a string that is no JSON, at character %zu: %s", (v ? r.at : r.why_at) + 1,
                v ? "text behind the value" : r.why);
            json_decref(v);
            v = NULL;
        }
        trl_str_release(&r.scratch);
        if (!v)
            return NULL;
    } else {
        json_incref(v);
    }
    if (!json_is_array(v) && !json_is_null(v)) {
        json_decref(v);
        trl_fail(err, TRL_E_DATA, "column 'tools' is not a list of tools");
        return NULL;
    }
    return v;
}

static int template_vars(json_t **ret, const struct trl_prep_thread *t, const json_t *row,
    const json_t *first, const json_t *second, bool generation_prompt, struct trl_err *err)
{
    json_t *tools = tools_of(row, err);
    if (!tools)
        return TRL_E_DATA;
    json_t *vars = json_copy(t->special), *list = json_array();
    int bad = !vars || !list || add_messages(list, first) != 0 || (second && add_messages(list, second) != 0);
    bad = bad || json_object_set(vars, "messages", list) != 0 || json_object_set(vars, "tools", tools) != 0 ||
        json_object_set_new(vars, "documents", json_null()) != 0 ||
        json_object_set_new(vars, "add_generation_prompt", json_boolean(generation_prompt)) != 0;
    json_decref(list);
    json_decref(tools);
    int rc = bad ? trl_fail_nomem(err, 1024, "template variables") : 0;
    if (rc == 0)
        rc = add_kwargs(vars, t->kwargs, err);
    if (rc == 0)
        rc = add_kwargs(vars, column(row, "chat_template_kwargs"), err);
    if (rc != 0) {
        json_decref(vars);
        return rc;
    }
    *ret = vars;
    return 0;
}

static int render(const struct trl_prep *p, struct trl_prep_thread *t, const json_t *row, const json_t *first,
    const json_t *second, bool generation_prompt, bool spans, struct trl_ids *out, struct trl_err *err)
{
    if (!p->tpl)
        return trl_fail(err, TRL_E_USAGE, "the row is a conversation, but the tokenizer has no chat template; give chat_template_path");
    json_t *vars;
    int rc = template_vars(&vars, t, row, first, second, generation_prompt, err);
    if (rc != 0)
        return rc;
    trl_str_clear(&t->text);
    t->spans.len = 0;
    rc = as_bad_row(trl_template_render(p->tpl, vars, &t->text, spans ? &t->spans : NULL, err), err);
    json_decref(vars);
    if (rc == 0)
        rc = trl_str_check(&t->text, err);
    return rc == 0 ? encode(p, t, trl_str_get(&t->text), t->text.len, spans ? TRL_TOK_OFFSETS : 0, out, err) : rc;
}

/* Labels of the tokens that overlap a span of {% generation %}; the others are not in the loss. */
static int assistant_labels(struct trl_prep_thread *t, const struct trl_ids *ids, struct trl_err *err)
{
    int32_t *l = labels_of(t, ids->len);
    if (!l)
        return trl_fail_nomem(err, ids->len * sizeof(*l), "labels");
    size_t s = 0, n = 0;
    for (size_t i = 0; i < ids->len; i++) {
        while (s < t->spans.len && ids->begin[i] >= t->spans.end[s])
            s++;
        bool in = s < t->spans.len && ids->end[i] > t->spans.begin[s];
        l[i] = in ? ids->ids[i] : TRL_IGNORE_LABEL;
        n += in;
    }
    if (n == 0)
        return trl_fail(err, TRL_E_DATA, "assistant_only_loss is on, but no token of the row is marked as the assistant's "
            "({%% generation %%} in the chat template)");
    return 0;
}

static int messages_row(const struct trl_prep *p, struct trl_prep_thread *t, const json_t *row, struct trl_store *out,
    struct trl_err *err)
{
    bool only = p->assistant_only;
    int rc = render(p, t, row, column(row, "messages"), NULL, false, only, &t->a, err);
    if (rc == 0 && only)
        rc = assistant_labels(t, &t->a, err);
    return rc == 0 ? finish(p, t->a.ids, only ? t->labels : NULL, (int64_t)t->a.len, out, err) : rc;
}

static int prompt_chat_row(const struct trl_prep *p, struct trl_prep_thread *t, const json_t *row, struct trl_store *out,
    struct trl_err *err)
{
    bool only = p->assistant_only;
    json_t *prompt = column(row, "prompt");
    int rc = render(p, t, row, prompt, NULL, true, false, &t->a, err);
    if (rc == 0)
        rc = render(p, t, row, prompt, column(row, "completion"), false, only, &t->b, err);
    if (rc == 0 && only)
        rc = assistant_labels(t, &t->b, err);
    return rc == 0 ? finish_completion(p, t, only, out, err) : rc;
}

/* --- tokenised rows --- */

static int read_ints(const json_t *list, const char *name, int64_t min, struct trl_ints *ret, struct trl_err *err)
{
    size_t i;
    json_t *v;
    if (!json_is_array(list))
        return trl_fail(err, TRL_E_DATA, "column '%s' is not a list of numbers", name);
    void *p = ret->v;
    bool ok = trl_grow(&p, &ret->cap, json_array_size(list), sizeof(*ret->v));
    ret->v = p;
    if (!ok)
        return trl_fail_nomem(err, json_array_size(list) * sizeof(*ret->v), "tokens");
    ret->n = json_array_size(list);
    json_array_foreach (list, i, v) {
        json_int_t x = json_integer_value(v);
        if (!json_is_integer(v) || x < min || x > INT32_MAX)
            return trl_fail(err, TRL_E_DATA, "column '%s': entry %zu is not a whole number from %lld to %d", name, i,
                (long long)min, INT32_MAX);
        ret->v[i] = (int32_t)x;
    }
    return 0;
}

/* A column of one number a token, into t->other. */
static int read_beside(struct trl_prep_thread *t, const json_t *row, const char *name, int64_t min, struct trl_err *err)
{
    int rc = read_ints(column(row, name), name, min, &t->other, err);
    if (rc == 0 && t->other.n != t->ids.n)
        rc = trl_fail(err, TRL_E_DATA, "column '%s' has %zu entries, 'input_ids' %zu", name, t->other.n, t->ids.n);
    return rc;
}

/* Set the labels to -100 where a mask column holds 0. */
static int apply_mask(struct trl_prep_thread *t, const json_t *row, const char *name, bool *masked, struct trl_err *err)
{
    if (!column(row, name))
        return 0;
    int rc = read_beside(t, row, name, 0, err);
    if (rc != 0)
        return rc;
    if (!*masked) {
        if (!labels_of(t, t->ids.n))
            return trl_fail_nomem(err, t->ids.n * sizeof(*t->labels), "labels");
        if (t->ids.n > 0)
            memcpy(t->labels, t->ids.v, t->ids.n * sizeof(*t->labels));
        *masked = true;
    }
    for (size_t i = 0; i < t->ids.n; i++)
        if (!t->other.v[i])
            t->labels[i] = TRL_IGNORE_LABEL;
    return 0;
}

static int own_labels(const struct trl_prep *p, struct trl_prep_thread *t, const json_t *row, struct trl_err *err)
{
    int rc = read_beside(t, row, "labels", TRL_IGNORE_LABEL, err);
    for (size_t i = 0; rc == 0 && i < t->other.n; i++) {
        int32_t l = t->other.v[i];
        if (l != TRL_IGNORE_LABEL && (l < 0 || (p->vocab_size > 0 && l >= p->vocab_size)))
            rc = trl_fail(err, TRL_E_RANGE, "label %zu of the row is %d; labels are -100 or ids of the vocabulary of %lld", i, l,
                (long long)p->vocab_size);
    }
    return rc;
}

/* Rows that say where their documents end; only rows taken as they are, since cutting would break the lengths. */
static int add_with_docs(struct trl_prep_thread *t, const json_t *row, const int32_t *labels, struct trl_store *out,
    struct trl_err *err)
{
    struct trl_ints docs = {0};
    int64_t sum = 0;
    int rc = read_ints(column(row, "seq_lengths"), "seq_lengths", 1, &docs, err);
    for (size_t i = 0; i < docs.n && rc == 0; i++)
        sum += docs.v[i];
    if (rc == 0 && sum != (int64_t)t->ids.n)
        rc = trl_fail(err, TRL_E_DATA, "column 'seq_lengths' sums to %lld, but 'input_ids' has %zu entries", (long long)sum, t->ids.n);
    if (rc == 0)
        rc = trl_store_add(out, t->ids.v, sum, labels, docs.v, (int64_t)docs.n, err);
    trl_free(docs.v);
    return rc;
}

static int token_row(const struct trl_prep *p, struct trl_prep_thread *t, const json_t *row, struct trl_store *out,
    struct trl_err *err)
{
    int rc = read_ints(column(row, "input_ids"), "input_ids", 0, &t->ids, err);
    if (rc != 0)
        return rc;
    const int32_t *labels = NULL;
    if (column(row, "labels")) {
        rc = own_labels(p, t, row, err);
        labels = t->other.v;
    } else if (p->skip_prepare && (column(row, "completion_mask") || column(row, "assistant_masks"))) {
        rc = trl_fail(err, TRL_E_DATA, "the row has a mask but no 'labels', and skip_prepare_dataset leaves masks out; add labels");
    } else {
        bool masked = false;
        if (p->completion_only)
            rc = apply_mask(t, row, "completion_mask", &masked, err);
        if (rc == 0)
            rc = apply_mask(t, row, "assistant_masks", &masked, err);
        labels = masked ? t->labels : NULL;
    }
    if (rc == 0)
        rc = check_ids(p, t->ids.v, (int64_t)t->ids.n, err);
    if (rc == 0 && p->skip_prepare && column(row, "seq_lengths"))
        return add_with_docs(t, row, labels, out, err);
    return rc == 0 ? finish(p, t->ids.v, labels, (int64_t)t->ids.n, out, err) : rc;
}

int trl_prep_row(const struct trl_prep *p, struct trl_prep_thread *t, json_t *row, struct trl_store *out, struct trl_err *err)
{
    enum trl_row_type type;
    int rc = trl_prep_recognise(p, row, &type, err);
    if (rc != 0)
        return rc;
    if (type != TRL_ROW_TOKENS && !p->tok)
        return trl_fail(err, TRL_E_USAGE, "the row is text, but there is no tokenizer");
    switch (type) {
    case TRL_ROW_TEXT:
        return text_row(p, t, row, out, err);
    case TRL_ROW_PROMPT:
        return prompt_row(p, t, row, out, err);
    case TRL_ROW_MESSAGES:
        return messages_row(p, t, row, out, err);
    case TRL_ROW_PROMPT_CHAT:
        return prompt_chat_row(p, t, row, out, err);
    default:
        return token_row(p, t, row, out, err);
    }
}
