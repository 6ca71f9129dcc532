/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a tokenizer from a folder, from texts, from a GGUF file; looking things up. */
#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/gguf.h"
#include "data/tok-internal.h"

enum { JSON_MAX = 256 * 1024 * 1024, CONFIG_MAX = 64 * 1024 * 1024 };

struct trl_tokenizer *trl__tok_new(const char *origin, struct trl_err *err)
{
    struct trl_tokenizer *t = trl_calloc(1, sizeof(*t));
    if (t) {
        t->vocab.max_id = t->added_ids.max_id = t->model.raw_words.max_id = -1;
        t->origin = trl_arena_strdup(&t->arena, origin);
    }
    if (!t || !t->origin) {
        trl_tokenizer_free(t);
        trl_fail_nomem(err, sizeof(*t), "a tokenizer");
        return NULL;
    }
    return t;
}

void trl_tokenizer_free(struct trl_tokenizer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_norm; i++)
        trl__regex_release(&t->norm[i].re);
    for (size_t i = 0; i < t->n_pre; i++)
        trl__regex_release(&t->pre[i].re);
    for (size_t i = 0; i < t->n_dec; i++)
        trl__regex_release(&t->dec[i].re);
    for (int i = 0; i < TRL_TOKEN_MAX_; i++)
        trl_free(t->special[i]);
    trl__model_release(&t->model);
    trl__vocab_release(&t->vocab);
    trl__vocab_release(&t->added_ids);
    trl_free(t->norm);
    trl_free(t->pre);
    trl_free(t->dec);
    trl_free(t->added);
    trl_free(t->added_by_id);
    trl_free(t->raw_match.at);
    trl_free(t->norm_match.at);
    trl_free(t->special_names);
    trl_free(t->templates);
    trl_free(t->json_text);
    trl_free(t->config_text);
    trl_arena_release(&t->arena);
    trl_free(t);
}

/* A byte map that is the last step can be left to a BPE model, which then reads raw bytes. */
static int choose_raw(struct trl_tokenizer *t, struct trl_err *err)
{
    const struct tok_model *m = &t->model;
    size_t maps = 0;
    for (size_t i = 0; i < t->n_pre; i++)
        maps += t->pre[i].kind == TOK_PRE_BYTE_MAP;
    if (m->kind != TOK_BPE || m->prefix || m->suffix || m->byte_fallback || maps != 1 ||
        t->pre[t->n_pre - 1].kind != TOK_PRE_BYTE_MAP)
        return 0;
    t->n_pre--;
    return trl__bpe_prepare_raw(t, err);
}

/* tokenizer.json alone: everything but what depends on the other files. */
static int load_json(struct trl_tokenizer *t, const char *json, size_t len, struct trl_err *err)
{
    struct tok_json j;
    int rc = trl__tok_json_split(&j, json, len, t->origin, err);
    if (rc)
        goto out;
    if ((rc = trl__model_load(t, &j, err)) ||
        (rc = trl__norm_load(t, json_object_get(j.rest, "normalizer"), err)) ||
        (rc = trl__pre_load(t, json_object_get(j.rest, "pre_tokenizer"), err)) ||
        (rc = trl__post_load(t, json_object_get(j.rest, "post_processor"), err)) ||
        (rc = trl__dec_load(t, json_object_get(j.rest, "decoder"), err)))
        goto out;
    rc = trl__added_load(t, json_object_get(j.rest, "added_tokens"), err);
out:
    trl__tok_json_release(&j);
    return rc;
}

static int finish(struct trl_tokenizer *t, struct trl_err *err)
{
    int rc = choose_raw(t, err);
    return rc ? rc : trl__added_prepare(t, err);
}

int trl__tok_open_parsed(struct trl_tokenizer *t, const char *json, size_t json_len,
    const char *config, size_t config_len, struct trl_err *err)
{
    int rc = load_json(t, json, json_len, err);
    if (!rc && config)
        rc = trl__config_load(t, config, config_len, err);
    return rc ? rc : finish(t, err);
}

int trl_tokenizer_open_json(struct trl_tokenizer **ret, const char *json, size_t json_len,
    const char *config, size_t config_len, const char *origin, struct trl_err *err)
{
    struct trl_tokenizer *t = trl__tok_new(origin, err);
    if (!t)
        return TRL_E_NOMEM;
    int rc = trl__tok_open_parsed(t, json, json_len, config, config_len, err);
    t->json_text = trl_strndup(json, json_len);
    t->json_len = json_len;
    t->config_text = config ? trl_strndup(config, config_len) : NULL;
    t->config_len = config_len;
    if (!rc && (!t->json_text || (config && !t->config_text)))
        rc = trl_fail_nomem(err, json_len, "a tokenizer");
    if (rc) {
        trl_tokenizer_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

/* An optional file of the folder; *ret_text stays NULL when it does not exist. */
static int read_optional(
    const char *folder, const char *file, char **ret_text, size_t *ret_len, struct trl_err *err)
{
    char *path = trl_path_join(folder, file);
    if (!path)
        return trl_fail_nomem(err, strlen(folder), "a path");
    int rc = trl_path_exists(path) ? trl_file_read(path, CONFIG_MAX, ret_text, ret_len, err) : 0;
    trl_free(path);
    return rc;
}

static int fail_no_json(const char *folder, struct trl_err *err)
{
    static const char *const old[] = {"tokenizer.model", "vocab.json", "tekken.json", "vocab.txt"};
    for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
        char *path = trl_path_join(folder, old[i]);
        bool there = path && trl_path_exists(path);
        trl_free(path);
        if (there)
            return trl_fail(err, TRL_E_UNSUPPORTED,
                "%s has %s but no tokenizer.json, which is what is read; load the folder with "
                "transformers' AutoTokenizer and save_pretrained() once to get it",
                folder, old[i]);
    }
    return trl_fail(err, TRL_E_NOENT, "%s: no tokenizer.json in the folder", folder);
}

static int open_folder(
    struct trl_tokenizer *t, const char *path, const char *json_path, struct trl_err *err)
{
    char *json = NULL, *config = NULL, *map = NULL;
    size_t json_len = 0, config_len = 0, map_len = 0;
    int rc;
    if ((rc = trl_file_read(json_path, JSON_MAX, &json, &json_len, err)) ||
        (rc = read_optional(path, "tokenizer_config.json", &config, &config_len, err)) ||
        (rc = read_optional(path, "special_tokens_map.json", &map, &map_len, err)))
        goto out;
    if ((rc = load_json(t, json, json_len, err)) || (rc = trl__config_templates(t, path, err)) ||
        (config && (rc = trl__config_load(t, config, config_len, err))) ||
        (map && (rc = trl__config_load_map(t, map, map_len, err))))
        goto out;
    t->folder = trl_arena_strdup(&t->arena, path);
    rc = t->folder ? finish(t, err) : trl_fail_nomem(err, strlen(path), "a path");
out:
    trl_free(json);
    trl_free(config);
    trl_free(map);
    return rc;
}

int trl_tokenizer_open(struct trl_tokenizer **ret, const char *path, struct trl_err *err)
{
    bool folder = trl_path_is_dir(path);
    char *json_path = folder ? trl_path_join(path, "tokenizer.json") : trl_strdup(path);
    if (!json_path)
        return trl_fail_nomem(err, strlen(path), "a path");
    struct trl_tokenizer *t = NULL;
    int rc = 0;
    if (!trl_path_exists(path))
        rc = trl_fail(err, TRL_E_NOENT, "%s: no such model folder or .gguf file", path);
    else if (folder && !trl_path_exists(json_path))
        rc = fail_no_json(path, err);
    else if (!folder && !trl_gguf_is_file(path))
        rc = trl_fail(err, TRL_E_USAGE, "%s: neither a model folder nor a GGUF file", path);
    else if (!(t = trl__tok_new(json_path, err)))
        rc = TRL_E_NOMEM;
    else
        rc = folder ? open_folder(t, path, json_path, err) : trl__tok_from_gguf(t, path, err);
    trl_free(json_path);
    if (rc) {
        trl_tokenizer_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

/* ---- looking things up ---- */

int64_t trl_tokenizer_vocab_size(const struct trl_tokenizer *t)
{
    return (int64_t)t->added_by_id_len;
}

int trl_tokenizer_find(const struct trl_tokenizer *t, const char *token)
{
    const struct tok_added *a = trl__added_find(t, token, strlen(token));
    return a ? a->id : trl__vocab_find(&t->vocab, token, strlen(token));
}

static const struct tok_added *added_by_id(const struct trl_tokenizer *t, int id)
{
    int32_t i = id >= 0 && (size_t)id < t->added_by_id_len ? t->added_by_id[id] : -1;
    return i >= 0 ? &t->added[i] : NULL;
}

const char *trl_tokenizer_token(const struct trl_tokenizer *t, int id)
{
    const struct tok_added *a = added_by_id(t, id);
    const struct tok_entry *e = trl__vocab_get(&t->vocab, id);
    return a ? a->content : e ? e->s : NULL;
}

bool trl_tokenizer_is_special(const struct trl_tokenizer *t, int id)
{
    const struct tok_added *a = added_by_id(t, id);
    return a && a->special;
}
