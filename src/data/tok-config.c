/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_config.json, special_tokens_map.json and chat templates. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "data/tok-internal.h"

enum { TEMPLATE_MAX = 4 * 1024 * 1024, TEMPLATES_MAX = 64 };

static const char *const special_keys[TRL_TOKEN_MAX_] = {
    "bos_token", "eos_token", "pad_token", "unk_token"};
static const char *const other_keys[] = {"sep_token", "cls_token", "mask_token"};

/* A special token is a string or an AddedToken object. */
static int read_token(const json_t *v, struct tok_added *a, const char *where, struct trl_err *err)
{
    *a = (struct tok_added){.special = true};
    size_t len = 0;
    int rc;
    if (json_is_string(v)) {
        a->content = json_string_value(v);
        a->len = (uint32_t)json_string_length(v);
        return 0;
    }
    if (!json_is_object(v))
        return trl_fail(
            err, TRL_E_DATA, "%s must be a string, an object with 'content', or null", where);
    if ((rc = trl__tok_get_str(v, "content", true, &a->content, &len, where, err)) ||
        (rc = trl__tok_get_bool(v, "single_word", &a->single_word, where, err)) ||
        (rc = trl__tok_get_bool(v, "lstrip", &a->lstrip, where, err)) ||
        (rc = trl__tok_get_bool(v, "rstrip", &a->rstrip, where, err)) ||
        (rc = trl__tok_get_bool(v, "normalized", &a->normalized, where, err)))
        return rc;
    a->len = (uint32_t)len;
    return 0;
}

static int set_name(
    struct trl_tokenizer *t, const char *name, const char *token, struct trl_err *err)
{
    const char *copy = trl_arena_strdup(&t->arena, token);
    if (!copy)
        return trl_fail_nomem(err, strlen(token), "a special token");
    for (size_t i = 0; i < t->n_special_names; i++)
        if (strcmp(t->special_names[i].name, name) == 0) {
            t->special_names[i].token = copy;
            return 0;
        }
    void *p = t->special_names;
    struct tok_special_name *n =
        trl__tok_append(&p, &t->n_special_names, &t->special_names_cap, sizeof(*n));
    if (!n)
        return trl_fail_nomem(err, sizeof(*n), "a special token");
    t->special_names = p;
    n->token = copy;
    n->name = trl_arena_strdup(&t->arena, name);
    return n->name ? 0 : trl_fail_nomem(err, strlen(name), "a special token");
}

static int set_special(
    struct trl_tokenizer *t, enum trl_special which, const char *token, struct trl_err *err)
{
    char *copy = trl_strdup(token);
    if (!copy)
        return trl_fail_nomem(err, strlen(token), "a special token");
    trl_free(t->special[which]);
    t->special[which] = copy;
    return set_name(t, special_keys[which], token, err);
}

/* One named token of `config`; added to the tokenizer when it does not know it, as transformers
 * does. */
static int load_named(
    struct trl_tokenizer *t, const json_t *config, const char *key, int which, struct trl_err *err)
{
    char where[512];
    struct tok_added a;
    const json_t *v = json_object_get(config, key);
    if (!v || json_is_null(v))
        return 0;
    snprintf(where, sizeof(where), "%s: tokenizer_config.json: '%s'", t->origin, key);
    int rc = read_token(v, &a, where, err);
    if (rc)
        return rc;
    if (a.len == 0)
        return 0;
    if ((rc = trl__added_add(t, &a, err)))
        return rc;
    return which >= 0 ? set_special(t, (enum trl_special)which, a.content, err)
                      : set_name(t, key, a.content, err);
}

/* additional_special_tokens / extra_special_tokens: a list, or an object of named ones. */
static int load_extra(
    struct trl_tokenizer *t, const json_t *list, const char *key, struct trl_err *err)
{
    char where[512];
    struct tok_added a;
    size_t i;
    const char *name;
    json_t *v;
    int rc = 0;
    snprintf(where, sizeof(where), "%s: tokenizer_config.json: '%s'", t->origin, key);
    if (!list || json_is_null(list))
        return 0;
    if (json_is_object(list)) {
        json_object_foreach((json_t *)list, name, v) if ((rc = read_token(v, &a, where, err)) ||
            (rc = trl__added_add(t, &a, err)) ||
            (rc = set_name(t, name, a.content, err))) return rc;
        return 0;
    }
    json_array_foreach(list, i,
        v) if ((rc = read_token(v, &a, where, err)) || (rc = trl__added_add(t, &a, err))) return rc;
    return json_is_array(list) ? 0
                               : trl_fail(err, TRL_E_DATA, "%s must be a list or an object", where);
}

static int cmp_id(const void *a, const void *b)
{
    long x = strtol(*(const char *const *)a, NULL, 10),
         y = strtol(*(const char *const *)b, NULL, 10);
    return (x > y) - (x < y);
}

/* added_tokens_decoder {"id": AddedToken}: those that tokenizer.json does not have are added in the
 * order of their ids. */
static int load_decoder_table(struct trl_tokenizer *t, const json_t *table, struct trl_err *err)
{
    char where[512];
    const char *key;
    json_t *v;
    size_t n = 0, i = 0;
    int rc = 0;
    if (!json_is_object(table))
        return 0;
    n = json_object_size(table);
    const char **keys = trl_malloc_array(n, sizeof(*keys));
    if (!keys)
        return trl_fail_nomem(err, n * sizeof(*keys), "the added tokens");
    json_object_foreach((json_t *)table, key, v) keys[i++] = key;
    qsort(keys, n, sizeof(*keys), cmp_id);
    for (i = 0; i < n && !rc; i++) {
        struct tok_added a;
        bool special = false;
        v = json_object_get(table, keys[i]);
        snprintf(where, sizeof(where), "%s: tokenizer_config.json: added_tokens_decoder '%.20s'",
            t->origin, keys[i]);
        if ((rc = read_token(v, &a, where, err)) ||
            (json_is_object(v) && (rc = trl__tok_get_bool(v, "special", &special, where, err))))
            break;
        a.special = special;
        rc = trl__added_add(t, &a, err);
    }
    trl_free(keys);
    return rc;
}

/* With add_bos_token or add_eos_token in the file, the post-processor follows them and not
 * tokenizer.json. */
static int load_bos_eos(struct trl_tokenizer *t, const json_t *config, struct trl_err *err)
{
    char where[512];
    bool bos = false, eos = false;
    int rc;
    if (!json_object_get(config, "add_bos_token") && !json_object_get(config, "add_eos_token"))
        return 0;
    snprintf(where, sizeof(where), "%s: tokenizer_config.json", t->origin);
    if ((rc = trl__tok_get_bool(config, "add_bos_token", &bos, where, err)) ||
        (rc = trl__tok_get_bool(config, "add_eos_token", &eos, where, err)))
        return rc;
    return trl__post_template(t, bos ? trl_tokenizer_special_id(t, TRL_TOKEN_BOS) : -1,
        eos ? trl_tokenizer_special_id(t, TRL_TOKEN_EOS) : -1, err);
}

/* A template by its name; the first one given wins (files are read before tokenizer_config.json).
 */
static int add_template(
    struct trl_tokenizer *t, const char *name, const char *text, struct trl_err *err)
{
    for (size_t i = 0; i < t->n_templates; i++)
        if (strcmp(t->templates[i].name, name) == 0)
            return 0;
    void *p = t->templates;
    struct tok_file_template *n =
        trl__tok_append(&p, &t->n_templates, &t->templates_cap, sizeof(*n));
    if (!n)
        return trl_fail_nomem(err, sizeof(*n), "a chat template");
    t->templates = p;
    n->name = trl_arena_strdup(&t->arena, name);
    n->text = trl_arena_strdup(&t->arena, text);
    return n->name && n->text ? 0 : trl_fail_nomem(err, strlen(text), "a chat template");
}

int trl__config_add_template(
    struct trl_tokenizer *t, const char *name, const char *text, size_t len, struct trl_err *err)
{
    if (len > TEMPLATE_MAX || memchr(text, 0, len) || trl_utf8_check(text, len) != len)
        return trl_fail(err, TRL_E_DATA,
            "%s: chat template '%s' is longer than %d bytes, or is not UTF-8 text", t->origin, name,
            TEMPLATE_MAX);
    char *copy = trl_strndup(text, len);
    int rc = copy ? add_template(t, name, copy, err) : trl_fail_nomem(err, len, "a chat template");
    trl_free(copy);
    return rc;
}

static int load_templates(struct trl_tokenizer *t, const json_t *v, struct trl_err *err)
{
    size_t i;
    const json_t *e;
    int rc;
    if (!v || json_is_null(v))
        return 0;
    if (json_is_string(v))
        return trl__config_add_template(
            t, "default", json_string_value(v), json_string_length(v), err);
    if (!json_is_array(v))
        return trl_fail(err, TRL_E_DATA,
            "%s: tokenizer_config.json: 'chat_template' must be a string or a list", t->origin);
    json_array_foreach(v, i, e)
    {
        const char *name = json_string_value(json_object_get(e, "name"));
        const json_t *text = json_object_get(e, "template");
        if (!name || !json_is_string(text))
            return trl_fail(err, TRL_E_DATA,
                "%s: tokenizer_config.json: chat_template[%zu] needs 'name' and 'template'",
                t->origin, i);
        if ((rc = trl__config_add_template(
                 t, name, json_string_value(text), json_string_length(text), err)))
            return rc;
    }
    return 0;
}

static int parse_object(struct trl_tokenizer *t, const char *what, const char *text, size_t len,
    json_t **ret, struct trl_err *err)
{
    json_t *v = NULL;
    int rc = trl_json_parse(text, len, what, &v, err);
    if (rc)
        return trl_err_prefix(err, rc, "%s", t->origin);
    if (!json_is_object(v)) {
        json_decref(v);
        return trl_fail(err, TRL_E_DATA, "%s: %s is not a JSON object", t->origin, what);
    }
    *ret = v;
    return 0;
}

static int load_names(struct trl_tokenizer *t, const json_t *config, struct trl_err *err)
{
    int rc;
    for (int i = 0; i < TRL_TOKEN_MAX_; i++)
        if (!t->special[i] && (rc = load_named(t, config, special_keys[i], i, err)))
            return rc;
    for (size_t i = 0; i < sizeof(other_keys) / sizeof(other_keys[0]); i++)
        if ((rc = load_named(t, config, other_keys[i], -1, err)))
            return rc;
    if ((rc = load_extra(
             t, json_object_get(config, "extra_special_tokens"), "extra_special_tokens", err)) ||
        (rc = load_extra(t, json_object_get(config, "model_specific_special_tokens"),
             "model_specific_special_tokens", err)))
        return rc;
    return load_extra(
        t, json_object_get(config, "additional_special_tokens"), "additional_special_tokens", err);
}

int trl__config_load(struct trl_tokenizer *t, const char *text, size_t len, struct trl_err *err)
{
    json_t *config = NULL;
    int rc = parse_object(t, "tokenizer_config.json", text, len, &config, err);
    if (rc)
        return rc;
    if (!(rc = load_decoder_table(t, json_object_get(config, "added_tokens_decoder"), err)) &&
        !(rc = load_names(t, config, err)) &&
        !(rc = load_templates(t, json_object_get(config, "chat_template"), err)))
        rc = load_bos_eos(t, config, err);
    json_decref(config);
    return rc;
}

/* The names that tokenizer_config.json does not give. */
int trl__config_load_map(struct trl_tokenizer *t, const char *text, size_t len, struct trl_err *err)
{
    json_t *map = NULL;
    int rc = parse_object(t, "special_tokens_map.json", text, len, &map, err);
    if (!rc)
        rc = load_names(t, map, err);
    json_decref(map);
    return rc;
}

static int read_template(struct trl_tokenizer *t, const char *dir, const char *file,
    const char *name, struct trl_err *err)
{
    char *path = trl_path_join(dir, file), *text = NULL;
    size_t len;
    if (!path)
        return trl_fail_nomem(err, strlen(dir), "a path");
    int rc = trl_path_exists(path) ? trl_file_read(path, TEMPLATE_MAX, &text, &len, err) : 0;
    if (text)
        rc = trl__config_add_template(t, name, text, len, err);
    trl_free(text);
    trl_free(path);
    return rc;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int trl__config_templates(struct trl_tokenizer *t, const char *folder, struct trl_err *err)
{
    int rc = read_template(t, folder, "chat_template.jinja", "default", err);
    char *dir = trl_path_join(folder, "additional_chat_templates");
    struct dirent **list = NULL;
    if (rc || !dir) {
        trl_free(dir);
        return rc ? rc : trl_fail_nomem(err, strlen(folder), "a path");
    }
    int n = trl_path_is_dir(dir) ? scandir(dir, &list, NULL, by_name) : 0;
    for (int i = 0; i < n; i++) {
        const char *file = list[i]->d_name;
        char name[256];
        if (!rc && i < TEMPLATES_MAX && trl_ends_with(file, ".jinja") && strlen(file) > 6) {
            snprintf(name, sizeof(name), "%.*s", (int)strlen(file) - 6, file);
            rc = read_template(t, dir, file, name, err);
        }
        free(list[i]);
    }
    free(list);
    trl_free(dir);
    return rc;
}

/* ---- public ---- */

const char *trl_tokenizer_chat_template(const struct trl_tokenizer *t, const char *name)
{
    if (!name)
        name = "default";
    for (size_t i = 0; i < t->n_templates; i++)
        if (strcmp(t->templates[i].name, name) == 0)
            return t->templates[i].text;
    return NULL;
}

int trl_tokenizer_special_id(const struct trl_tokenizer *t, enum trl_special which)
{
    const char *s = trl_tokenizer_special(t, which);
    return s ? trl_tokenizer_find(t, s) : -1;
}

const char *trl_tokenizer_special(const struct trl_tokenizer *t, enum trl_special which)
{
    return which < 0 || which >= TRL_TOKEN_MAX_ ? NULL : t->special[which];
}

int trl_tokenizer_set_special(
    struct trl_tokenizer *t, enum trl_special which, const char *token, struct trl_err *err)
{
    if (which < 0 || which >= TRL_TOKEN_MAX_)
        return trl_fail(err, TRL_E_RANGE, "no special token number %d", (int)which);
    if (trl_tokenizer_find(t, token) < 0)
        return trl_fail(err, TRL_E_USAGE,
            "%s '%.80s' is not in the vocabulary of %s; a token that exists is needed",
            special_keys[which], token, t->origin);
    if (t->special[which] && strcmp(t->special[which], token) == 0)
        return 0;
    t->special_changed[which] = true;
    return set_special(t, which, token, err);
}

void trl_tokenizer_each_special(const struct trl_tokenizer *t,
    void (*fn)(void *ctx, const char *name, const char *token), void *ctx)
{
    for (size_t i = 0; i < t->n_special_names; i++)
        fn(ctx, t->special_names[i].name, t->special_names[i].token);
}
