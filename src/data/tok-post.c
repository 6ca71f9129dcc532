/* SPDX-License-Identifier: Apache-2.0 */
/* Post-processors: ids around the sequence, and offsets without white space. All are reduced to
 * struct tok_post. */
#include <string.h>

#include "data/tok-internal.h"

/* Put `n` ids outside of what is there: before it, or behind it. */
static int wrap(
    struct trl_tokenizer *t, bool behind, const int32_t *ids, size_t n, struct trl_err *err)
{
    struct tok_post *p = &t->post;
    size_t have = behind ? p->n_after : p->n_before;
    if (n == 0)
        return 0;
    int32_t *v = trl_arena_array(&t->arena, have + n, sizeof(*v));
    if (!v)
        return trl_fail_nomem(err, (have + n) * sizeof(*v), "the post-processor");
    if (behind) {
        memcpy(v + have, ids, n * sizeof(*v));
        if (have)
            memcpy(v, p->after, have * sizeof(*v));
        p->after = v;
        p->n_after = have + n;
    } else {
        memcpy(v, ids, n * sizeof(*v));
        if (have)
            memcpy(v + n, p->before, have * sizeof(*v));
        p->before = v;
        p->n_before = have + n;
    }
    return 0;
}

int trl__post_template(struct trl_tokenizer *t, int32_t bos, int32_t eos, struct trl_err *err)
{
    t->post = (struct tok_post){0};
    int rc = bos >= 0 ? wrap(t, false, &bos, 1, err) : 0;
    return rc || eos < 0 ? rc : wrap(t, true, &eos, 1, err);
}

/* ids of {"SpecialToken": {"id": name}} by the template's own table */
static int special_ids(const json_t *v, const json_t *piece, int32_t *ids, size_t max,
    size_t *ret_n, const char *where, struct trl_err *err)
{
    const char *name = NULL;
    size_t len, i;
    const json_t *id;
    int rc = trl__tok_get_str(piece, "id", true, &name, &len, where, err);
    if (rc)
        return rc;
    const json_t *list =
        json_object_get(json_object_get(json_object_get(v, "special_tokens"), name), "ids");
    if (!json_is_array(list))
        return trl_fail(err, TRL_E_DATA,
            "%s: the template uses '%.80s', which its special_tokens do not define", where, name);
    json_array_foreach(list, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= TOK_ID_MAX || *ret_n == max)
            return trl_fail(err, TRL_E_DATA, "%s: bad ids of special token '%.80s'", where, name);
        ids[(*ret_n)++] = (int32_t)json_integer_value(id);
    }
    return 0;
}

static int load_template(
    struct trl_tokenizer *t, const json_t *v, const char *where, struct trl_err *err)
{
    int32_t ids[2][64];
    size_t n[2] = {0, 0}, i;
    const json_t *single = json_object_get(v, "single"), *piece;
    int behind = 0, rc;
    if (!json_is_array(single))
        return trl_fail(err, TRL_E_DATA, "%s: TemplateProcessing needs a list 'single'", where);
    json_array_foreach(single, i, piece)
    {
        const json_t *special = json_object_get(piece, "SpecialToken"),
                     *seq = json_object_get(piece, "Sequence");
        if (special) {
            if ((rc = special_ids(v, special, ids[behind], 64, &n[behind], where, err)))
                return rc;
            continue;
        }
        const char *id = json_string_value(json_object_get(seq, "id"));
        if (!id || strcmp(id, "A") != 0 || behind)
            return trl_fail(err, TRL_E_UNSUPPORTED,
                "%s: 'single' must hold SpecialToken entries and sequence A once", where);
        behind = 1;
    }
    if (!behind)
        return trl_fail(err, TRL_E_UNSUPPORTED, "%s: 'single' does not hold sequence A", where);
    if ((rc = wrap(t, false, ids[0], n[0], err)))
        return rc;
    return wrap(t, true, ids[1], n[1], err);
}

/* "cls": ["[CLS]", 101], "sep": ["[SEP]", 102] */
static int load_cls_sep(
    struct trl_tokenizer *t, const json_t *v, const char *where, struct trl_err *err)
{
    static const char *const names[] = {"cls", "sep"};
    for (int k = 0; k < 2; k++) {
        const json_t *id = json_array_get(json_object_get(v, names[k]), 1);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= TOK_ID_MAX)
            return trl_fail(err, TRL_E_DATA, "%s: '%s' must be [token, id]", where, names[k]);
        int32_t i = (int32_t)json_integer_value(id);
        int rc = wrap(t, k == 1, &i, 1, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int load_trim(
    struct trl_tokenizer *t, const json_t *v, const char *where, struct trl_err *err)
{
    bool trim = true, prefix = true;
    int rc;
    if ((rc = trl__tok_get_bool(v, "trim_offsets", &trim, where, err)) ||
        (rc = trl__tok_get_bool(v, "add_prefix_space", &prefix, where, err)))
        return rc;
    if (trim) {
        t->post.trim = true;
        t->post.trim_prefix_space = prefix;
    }
    return 0;
}

static int load_one(
    struct trl_tokenizer *t, const json_t *v, int depth, const char *where, struct trl_err *err)
{
    const char *type = NULL;
    size_t len, i;
    const json_t *e, *list;
    int rc = trl__tok_get_str(v, "type", true, &type, &len, where, err);
    if (rc)
        return rc;
    if (strcmp(type, "Sequence") == 0) {
        list = json_object_get(v, "processors");
        if (!json_is_array(list) || depth > 8)
            return trl_fail(
                err, TRL_E_DATA, "%s: a Sequence needs a list (at most 8 levels)", where);
        json_array_foreach(list, i, e) if ((rc = load_one(t, e, depth + 1, where, err))) return rc;
        return 0;
    }
    if (strcmp(type, "TemplateProcessing") == 0)
        return load_template(t, v, where, err);
    if (strcmp(type, "ByteLevel") == 0)
        return load_trim(t, v, where, err);
    if (strcmp(type, "BertProcessing") == 0)
        return load_cls_sep(t, v, where, err);
    if (strcmp(type, "RobertaProcessing") == 0) {
        rc = load_trim(t, v, where, err);
        return rc ? rc : load_cls_sep(t, v, where, err);
    }
    return trl_fail(err, TRL_E_UNSUPPORTED,
        "%s: type '%.60s' is not supported (TemplateProcessing, ByteLevel, BertProcessing, "
        "RobertaProcessing and Sequence are)",
        where, type);
}

int trl__post_load(struct trl_tokenizer *t, const json_t *v, struct trl_err *err)
{
    char where[512];
    if (!v || json_is_null(v))
        return 0;
    snprintf(where, sizeof(where), "%s: post_processor", t->origin);
    return load_one(t, v, 0, where, err);
}
