/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the tokenizer files. A folder's files are carried over byte for byte; only a special
 * token that was set by an option changes tokenizer_config.json (special_tokens_map.json, which
 * repeats it, is then left out).
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "data/tok-internal.h"

static const char *const carried[] = {
    "tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model", "added_tokens.json"};
static const char *const special_keys[TRL_TOKEN_MAX_] = {
    "bos_token", "eos_token", "pad_token", "unk_token"};

static bool any_changed(const struct trl_tokenizer *t)
{
    bool changed = false;
    for (int i = 0; i < TRL_TOKEN_MAX_; i++)
        changed = changed || t->special_changed[i];
    return changed;
}

/* `file` of the source folder, when it is there, to the same name in `dir`; a folder saved onto
 * itself stays as it is. */
static int carry(const char *folder, const char *file, const char *dir, struct trl_err *err)
{
    char *from = trl_path_join(folder, file), *to = trl_path_join(dir, file);
    char *real_from = NULL, *real_to = NULL;
    int rc = from && to ? 0 : trl_fail_nomem(err, strlen(folder), "a path");
    if (!rc && trl_path_exists(from)) {
        real_from = realpath(from, NULL);
        real_to = realpath(to, NULL);
        if (!real_from || !real_to || strcmp(real_from, real_to) != 0)
            rc = trl_file_copy(from, to, err);
    }
    free(real_from);
    free(real_to);
    trl_free(from);
    trl_free(to);
    return rc;
}

static int write_text(
    const char *dir, const char *file, const char *text, size_t len, struct trl_err *err)
{
    char *path = trl_path_join(dir, file);
    if (!path)
        return trl_fail_nomem(err, strlen(dir), "a path");
    int rc = trl_file_write_atomic(path, text, len, err);
    trl_free(path);
    return rc;
}

/* transformers' int(1e30), "no limit", was read as a real: it is written with all its digits again. */
static void put_exact(struct trl_str *out, const char *text)
{
    static const char key[] = "\"model_max_length\": ", real[] = "1e+30";
    const char *at = strstr(text, key), *number = at ? at + sizeof(key) - 1 : NULL;
    if (number && trl_starts_with(number, real)) {
        trl_str_append(out, text, (size_t)(number - text));
        trl_str_puts(out, "1000000000000000019884624838656");
        text = number + sizeof(real) - 1;
    }
    trl_str_puts(out, text);
}

/* tokenizer_config.json with the special tokens as they are now; other keys keep their place. */
static int write_changed_config(const struct trl_tokenizer *t, const char *text, size_t len,
    const char *dir, struct trl_err *err)
{
    struct trl_str out = {0}, exact = {0};
    json_t *config = NULL;
    int rc = 0;
    if (!text)
        config = json_object();
    else
        rc = trl_json_parse(text, len, "tokenizer_config.json", &config, err);
    if (rc)
        goto out;
    if (!json_is_object(config)) {
        rc =
            trl_fail(err, TRL_E_PARSE, "%s: tokenizer_config.json is not a JSON object", t->origin);
        goto out;
    }
    for (int i = 0; i < TRL_TOKEN_MAX_ && !rc; i++)
        if (t->special_changed[i] &&
            json_object_set_new(config, special_keys[i], json_string(t->special[i])) != 0)
            rc = trl_fail_nomem(err, 64, "tokenizer_config.json");
    trl_json_put(&out, config, 2, false);
    trl_str_putc(&out, '\n');
    if (!rc)
        rc = trl_str_check(&out, err);
    if (!rc)
        put_exact(&exact, trl_str_get(&out));
    if (!rc && !(rc = trl_str_check(&exact, err)))
        rc = write_text(dir, "tokenizer_config.json", exact.data, exact.len, err);
out:
    json_decref(config);
    trl_str_release(&out);
    trl_str_release(&exact);
    return rc;
}

static int save_config(const struct trl_tokenizer *t, const char *dir, struct trl_err *err)
{
    char *text = NULL, *path;
    size_t len = 0;
    int rc = 0;
    if (!t->folder && !any_changed(t))
        return t->config_text
            ? write_text(dir, "tokenizer_config.json", t->config_text, t->config_len, err)
            : 0;
    if (!t->folder)
        return write_changed_config(t, t->config_text, t->config_len, dir, err);
    if (!any_changed(t)) {
        rc = carry(t->folder, "special_tokens_map.json", dir, err);
        return rc ? rc : carry(t->folder, "tokenizer_config.json", dir, err);
    }
    path = trl_path_join(t->folder, "tokenizer_config.json");
    if (!path)
        return trl_fail_nomem(err, strlen(t->folder), "a path");
    if (trl_path_exists(path))
        rc = trl_file_read(path, SIZE_MAX / 2, &text, &len, err);
    if (!rc)
        rc = write_changed_config(t, text, len, dir, err);
    trl_free(text);
    trl_free(path);
    return rc;
}

/* Named templates other than the default: additional_chat_templates/NAME.jinja. */
static int save_named(const struct trl_tokenizer *t, const char *dir, struct trl_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < t->n_templates && !rc; i++) {
        if (strcmp(t->templates[i].name, "default") == 0 || strchr(t->templates[i].name, '/'))
            continue;
        char *sub = trl_path_join(dir, "additional_chat_templates");
        char *file = trl_asprintf("%s.jinja", t->templates[i].name);
        rc = sub && file ? trl_mkdirs(sub, err) : trl_fail_nomem(err, strlen(dir), "a path");
        if (!rc)
            rc = write_text(sub, file, t->templates[i].text, strlen(t->templates[i].text), err);
        trl_free(sub);
        trl_free(file);
    }
    return rc;
}

/* Does the folder keep its templates in files of their own? (If not, they are in
 * tokenizer_config.json, which is carried over.) */
static bool has_template_files(const struct trl_tokenizer *t, const char *name)
{
    char *path = t->folder ? trl_path_join(t->folder, name) : NULL;
    bool has = path && trl_path_exists(path);
    trl_free(path);
    return has || (!t->folder && t->n_templates > 0);
}

static int save_templates(
    const struct trl_tokenizer *t, const char *dir, const char *chat_template, struct trl_err *err)
{
    const char *text = chat_template;
    int rc = 0;
    if (!text && has_template_files(t, "chat_template.jinja"))
        text = trl_tokenizer_chat_template(t, NULL);
    if (text)
        rc = write_text(dir, "chat_template.jinja", text, strlen(text), err);
    if (!rc && has_template_files(t, "additional_chat_templates"))
        rc = save_named(t, dir, err);
    return rc;
}

int trl_tokenizer_save(
    const struct trl_tokenizer *t, const char *dir, const char *chat_template, struct trl_err *err)
{
    int rc = trl_mkdirs(dir, err);
    if (!rc && !t->folder)
        rc = write_text(dir, "tokenizer.json", t->json_text, t->json_len, err);
    for (size_t i = 0; t->folder && i < sizeof(carried) / sizeof(carried[0]) && !rc; i++)
        rc = carry(t->folder, carried[i], dir, err);
    if (!rc)
        rc = save_config(t, dir, err);
    return rc ? rc : save_templates(t, dir, chat_template, err);
}
