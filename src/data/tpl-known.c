/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tpl-known.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"

enum { MAX_FILE = 1 << 20 };

/* The published templates by length and FNV-1a hash of their text: recognised means exactly this
 * text, as in TRL 1.16. */
static const struct {
    size_t len;
    uint64_t hash;
    const char *file;
} known[] = {
    {2246, 0x845fdf813c637ee2u, "deepseek-r1-distill.jinja"}, /* DeepSeek-R1-Distill */
    {591, 0x5c10ee65212d93b3u, "gemma.jinja"}, /* Gemma 1 and 2 */
    {1532, 0xc90dea00b85c935du, "gemma3.jinja"}, /* Gemma 3 */
    {389, 0x0e60067a5537498eu, "llama3.jinja"}, /* Llama 3 */
    {407, 0xecebdb26677c663du, "phi3.jinja"}, /* Phi-3 */
    {430, 0xcf278cde387a54c8u, "phi3.5.jinja"}, /* Phi-3.5 */
    {2507, 0xc2b27ee60f1b8775u, "qwen2.5.jinja"}, /* Qwen2.5 */
    {4168, 0x959a4551391a6549u, "qwen3-training.jinja"}, /* Qwen3 */
    {2630, 0x3751fe8ea48448abu, "qwen3-instruct-2507.jinja"}, /* Qwen3-Instruct-2507 */
};

static uint64_t hash_text(const char *s, size_t len)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 1099511628211u;
    return h;
}

const char *trl_template_training_variant(const char *source)
{
    size_t len = strlen(source);
    uint64_t hash = hash_text(source, len);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].len == len && known[i].hash == hash)
            return known[i].file;
    }
    return NULL;
}

/* DIR + SUB + FILE if that exists. */
static char *try_path(const char *dir, const char *sub, const char *file)
{
    char *p = trl_asprintf("%s/%s/%s", dir, sub, file);
    if (p && !trl_path_exists(p)) {
        trl_free(p);
        p = NULL;
    }
    return p;
}

/* Beside the running program: an installation that was moved, a build folder inside the source
 * tree. */
static char *find_near_program(const char *file)
{
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0)
        return NULL;
    exe[n] = '\0';
    for (int up = 0; up < 6; up++) {
        char *slash = strrchr(exe, '/');
        if (!slash || slash == exe)
            return NULL;
        *slash = '\0';
        char *p = try_path(exe, "share/trl-slurm/templates/chat", file);
        if (!p)
            p = try_path(exe, "share/templates/chat", file);
        if (p)
            return p;
    }
    return NULL;
}

int trl_template_find_shared(char **ret_path, const char *file, struct trl_err *err)
{
    const char *env = getenv("TRL_SHARE_DIR");
    char *p = NULL;
    if (!*file || strchr(file, '/'))
        return trl_fail(err, TRL_E_USAGE, "'%s' is no file name of a chat template", file);
    if (env && *env) {
        p = try_path(env, "templates/chat", file);
        if (!p)
            return trl_fail(err, TRL_E_NOENT,
                "TRL_SHARE_DIR is %s, but there is no templates/chat/%s in it", env, file);
    }
    if (!p)
        p = find_near_program(file);
    if (!p)
        p = try_path(TRL_SHARE_DIR, "templates/chat", file);
    if (!p)
        return trl_fail(err, TRL_E_NOENT,
            "the chat template %s is neither in %s/templates/chat nor near the program; set "
            "TRL_SHARE_DIR to the folder that holds templates/chat",
            file, TRL_SHARE_DIR);
    *ret_path = p;
    return 0;
}

int trl_template_training_source(char **ret_source, const char *source, struct trl_err *err)
{
    const char *file = trl_template_training_variant(source);
    char *path = NULL, *data;
    size_t len;
    if (!file)
        return trl_fail(err, TRL_E_USAGE,
            "assistant_only_loss: the chat template is not training-compatible: it has no {%% "
            "generation %%} markers, and it "
            "is none of the templates for which a variant with markers is known (Llama 3, Qwen2.5, "
            "Qwen3, "
            "Qwen3-Instruct-2507, Gemma 1 to 3, Phi-3, Phi-3.5, DeepSeek-R1-Distill, each as "
            "published). Give "
            "chat_template_path: a template with {%% generation %%} around what the assistant "
            "says; share/templates/chat "
            "holds some, or set assistant_only_loss to false");
    int rc = trl_template_find_shared(&path, file, err);
    if (rc == 0)
        rc = trl_file_read(path, MAX_FILE, &data, &len, err);
    if (rc == 0)
        *ret_source = data;
    trl_free(path);
    return rc;
}
