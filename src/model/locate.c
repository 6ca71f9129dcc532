/* SPDX-License-Identifier: Apache-2.0 */
/* Where a model is: a folder, a GGUF file, or a name in the caches of the Hugging Face hub. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/gguf.h"
#include "base/str.h"
#include "model/model.h"

/* `dir`/models--org--name, '/' of the name replaced. NULL when out of memory. */
static char *cache_folder(const char *dir, const char *name)
{
    struct trl_str s = {0};
    trl_str_printf(&s, "%s/models--", dir);
    for (const char *p = name; *p; p++)
        trl_str_puts(&s, *p == '/' ? "--" : (char[]){*p, '\0'});
    if (trl_str_check(&s, NULL) != 0) {
        trl_str_release(&s);
        return NULL;
    }
    return trl_str_take(&s);
}

/* Commit that a branch or tag means: refs/REVISION holds it; a commit names its snapshot itself. */
static char *snapshot(const char *folder, const char *revision)
{
    char *ref = trl_asprintf("%s/refs/%s", folder, revision), *text = NULL, *path = NULL;
    size_t len = 0;
    if (ref && trl_path_exists(ref) && trl_file_read(ref, 4096, &text, &len, NULL) == 0) {
        text[strcspn(text, " \r\n")] = '\0';
        path = strchr(text, '/') || !text[0] ? NULL : trl_asprintf("%s/snapshots/%s", folder, text);
    } else {
        path = trl_asprintf("%s/snapshots/%s", folder, revision);
    }
    trl_free(text);
    trl_free(ref);
    char *config = path ? trl_path_join(path, "config.json") : NULL;
    if (!config || !trl_path_exists(config)) {
        trl_free(path);
        path = NULL;
    }
    trl_free(config);
    return path;
}

static char *env_path(const char *var, const char *below)
{
    const char *v = getenv(var);
    return v && v[0] ? trl_asprintf("%s%s", v, below) : NULL;
}

/* "name" or "org/name" of letters, digits, '.', '_', '-' */
static bool is_hub_name(const char *s)
{
    int slashes = 0;
    for (const char *p = s; *p; p++) {
        slashes += *p == '/';
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/", *p))
            return false;
    }
    return s[0] && s[0] != '/' && s[0] != '.' && slashes <= 1 && s[strlen(s) - 1] != '/' &&
        !strstr(s, "..");
}

static int locate_in_caches(const char *name, const char *revision, char **ret, struct trl_err *err)
{
    char *dirs[] = {env_path("HF_HUB_CACHE", ""), env_path("HUGGINGFACE_HUB_CACHE", ""),
        env_path("HF_HOME", "/hub"), env_path("XDG_CACHE_HOME", "/huggingface/hub"),
        env_path("HOME", "/.cache/huggingface/hub")};
    struct trl_str tried = {0};
    *ret = NULL;
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        char *folder = dirs[i] && !*ret ? cache_folder(dirs[i], name) : NULL;
        if (folder) {
            trl_str_printf(&tried, "%s%s", tried.len ? ", " : "", dirs[i]);
            *ret = snapshot(folder, revision);
        }
        trl_free(folder);
        trl_free(dirs[i]);
    }
    int rc = 0;
    if (!*ret)
        rc = trl_fail(err, TRL_E_NOENT,
            "model %s (revision %s) is neither a folder with config.json, nor a .gguf file, nor in "
            "the Hugging Face caches "
            "(%s); download it first, for example: huggingface-cli download %s --revision %s",
            name, revision, tried.len ? trl_str_get(&tried) : "none is set", name, revision);
    trl_str_release(&tried);
    return rc;
}

int trl_model_locate(const char *path, const char *revision, char **ret, struct trl_err *err)
{
    if (!path || !path[0])
        return trl_fail(err, TRL_E_USAGE,
            "model_name_or_path is empty: a folder, a .gguf file or a hub name is needed");
    if (!revision || !revision[0])
        revision = "main";
    if (trl_path_is_dir(path)) {
        char *config = trl_path_join(path, "config.json");
        bool ok = config && trl_path_exists(config);
        trl_free(config);
        if (!ok)
            return trl_fail(err, TRL_E_NOENT, "model folder %s has no config.json", path);
        *ret = trl_strdup(path);
        return *ret ? 0 : trl_fail_nomem(err, strlen(path), "a path");
    }
    if (trl_path_exists(path)) {
        if (!trl_gguf_is_file(path))
            return trl_fail(err, TRL_E_UNSUPPORTED, "model_name_or_path: the file %s is not in GGUF format; of a model in Hugging Face layout, name the folder", path);
        *ret = trl_strdup(path);
        return *ret ? 0 : trl_fail_nomem(err, strlen(path), "a path");
    }
    if (!is_hub_name(path) || trl_ends_with(path, ".gguf"))
        return trl_fail(err, TRL_E_NOENT, "model %s does not exist", path);
    if (strchr(revision, '/') || strstr(revision, ".."))
        return trl_fail(
            err, TRL_E_USAGE, "model_revision %s is not a branch, tag or commit", revision);
    return locate_in_caches(path, revision, ret, err);
}
