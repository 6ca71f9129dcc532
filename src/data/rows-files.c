/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files make a split. A folder is searched as the `datasets` library does: `data/NAME-00000-of-00001*`, else keywords in
 * folder names, else keywords in file names, else everything is "train"; hidden files and some well-known names are left out.
 */
#include "data/rows.h"

#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fileio.h"

enum { DEPTH_MAX = 32 };
static const size_t FILES_MAX = 1000000;

static const struct {
    const char *split;
    const char *word[5];
} KEYWORDS[] = {
    {"train", {"train", "training"}},
    {"validation", {"validation", "valid", "dev", "val"}},
    {"test", {"test", "testing", "eval", "evaluation"}},
};
enum { SPLITS = 3 };

void trl_files_release(struct trl_files *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++)
        trl_free(f->path[i]);
    trl_free(f->path);
    *f = (struct trl_files){0};
}

/* Takes the path. */
static int add_path(struct trl_files *f, char *path, struct trl_err *err)
{
    void *p = f->path;
    if (!path || !trl_grow(&p, &f->cap, f->n + 1, sizeof(*f->path))) {
        trl_free(path);
        return trl_fail_nomem(err, 256, "a list of files");
    }
    f->path = p;
    f->path[f->n++] = path;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool ignored(const char *name)
{
    static const char *const names[] = {
        "README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"};
    if (name[0] == '.')
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* All files below root/rel, as paths relative to root. */
static int walk(struct trl_files *f, const char *root, const char *rel, int depth, struct trl_err *err)
{
    char *dir = *rel ? trl_path_join(root, rel) : trl_strdup(root);
    if (!dir)
        return trl_fail_nomem(err, 256, "a path");
    DIR *d = opendir(dir);
    int rc = d ? 0 : trl_fail_errno(err, "cannot open folder", dir);
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || strncmp(e->d_name, "__", 2) == 0)
            continue;
        char *sub = *rel ? trl_path_join(rel, e->d_name) : trl_strdup(e->d_name);
        char *full = sub ? trl_path_join(root, sub) : NULL;
        struct stat st;
        if (!full)
            rc = trl_fail_nomem(err, 256, "a path");
        else if (stat(full, &st) == 0 && S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
            rc = walk(f, root, sub, depth + 1, err);
        else if (stat(full, &st) == 0 && S_ISREG(st.st_mode) && !ignored(e->d_name)) {
            rc = add_path(f, sub, err);
            sub = NULL;
        }
        if (rc == 0 && f->n > FILES_MAX)
            rc = trl_fail(err, TRL_E_RANGE, "folder %s holds more than %zu files", root, FILES_MAX);
        trl_free(sub);
        trl_free(full);
    }
    if (d)
        closedir(d);
    trl_free(dir);
    return rc;
}

/* 0: not a data file, 1: JSON, 2: CSV, 3: columnar (refused when opened) */
static int format_of(const char *path)
{
    static const struct {
        const char *end;
        int format;
    } ends[] = {{".jsonl", 1}, {".json", 1}, {".ndjson", 1}, {".csv", 2}, {".tsv", 2}, {".parquet", 3}, {".arrow", 3}, {".feather", 3}};
    static const char *const packed[] = {"", ".gz", ".zst", ".zstd", ".bz2", ".xz"};
    char tail[32];
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        for (size_t k = 0; k < sizeof(packed) / sizeof(packed[0]); k++) {
            snprintf(tail, sizeof(tail), "%s%s", ends[i].end, packed[k]);
            if (trl_ends_with(path, tail))
                return ends[i].format;
        }
    return 0;
}

/* Keep the files of the most common format (the first one in a tie), as `datasets` picks one reader for a folder. */
static void keep_one_format(struct trl_files *f)
{
    size_t count[4] = {0}, n = 0;
    for (size_t i = 0; i < f->n; i++)
        count[format_of(f->path[i])]++;
    int best = count[1] >= count[2] && count[1] >= count[3] ? 1 : count[2] >= count[3] ? 2 : 3;
    for (size_t i = 0; i < f->n; i++) {
        if (format_of(f->path[i]) == best)
            f->path[n++] = f->path[i];
        else
            trl_free(f->path[i]);
    }
    f->n = n;
}

static bool is_separator(char c)
{
    return c == '-' || c == '.' || c == '_' || c == ' ' || (c >= '0' && c <= '9');
}

/* How `word` stands in name[0..len): 1 at the start and followed by a separator, 2 between separators, and for folders 3 the
 * whole name, 4 at the end behind a separator. 0: not at all. */
static int find_word(const char *name, size_t len, const char *word, bool folder)
{
    size_t n = strlen(word);
    for (size_t at = 0; at + n <= len; at++) {
        if (memcmp(name + at, word, n) != 0)
            continue;
        bool before = at > 0 && is_separator(name[at - 1]), after = at + n < len && is_separator(name[at + n]);
        if (at == 0 && after)
            return 1;
        if (before && after)
            return 2;
        if (folder && at == 0 && n == len)
            return 3;
        if (folder && before && at + n == len)
            return 4;
    }
    return 0;
}

/* The pattern by which a path belongs to a keyword, 0: none. */
static int match(const char *rel, const char *word, bool in_folder)
{
    if (!in_folder) {
        const char *base = trl_path_base(rel);
        return find_word(base, strlen(base), word, false);
    }
    for (const char *p = rel, *slash; (slash = strchr(p, '/')) != NULL; p = slash + 1) {
        int m = find_word(p, (size_t)(slash - p), word, true);
        if (m)
            return m;
    }
    return 0;
}

/* "data/NAME-00000-of-00001*": NAME's length, or 0. */
static size_t sharded_name(const char *rel)
{
    if (!trl_starts_with(rel, "data/") || strchr(rel + 5, '/'))
        return 0;
    const char *name = rel + 5, *dash = strchr(name, '-');
    for (; dash; dash = strchr(dash + 1, '-')) {
        static const char pattern[] = "-00000-of-00000";
        size_t i = 0;
        while (pattern[i] && (pattern[i] == '0' ? dash[i] >= '0' && dash[i] <= '9' : dash[i] == pattern[i]))
            i++;
        if (!pattern[i] && dash > name)
            return (size_t)(dash - name);
    }
    return 0;
}

struct splits {
    struct trl_files all; /* sorted, relative to root ("" for globs) */
    const char *root;
    struct trl_str names; /* for the error: the splits there are */
};

static int take(const struct splits *s, struct trl_files *ret, size_t i, struct trl_err *err)
{
    return add_path(ret, s->root ? trl_path_join(s->root, s->all.path[i]) : trl_strdup(s->all.path[i]), err);
}

static void note_name(struct splits *s, const char *name, size_t len)
{
    char quoted[128];
    snprintf(quoted, sizeof(quoted), "'%.*s'", (int)(len < 100 ? len : 100), name);
    if (s->names.len && strstr(trl_str_get(&s->names), quoted))
        return;
    trl_str_printf(&s->names, "%s%s", s->names.len ? ", " : "", quoted);
}

static int pick_sharded(struct splits *s, const char *split, struct trl_files *ret, struct trl_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->all.n && rc == 0; i++) {
        size_t n = sharded_name(s->all.path[i]);
        if (n == 0)
            continue;
        note_name(s, s->all.path[i] + 5, n);
        if (strlen(split) == n && memcmp(split, s->all.path[i] + 5, n) == 0)
            rc = take(s, ret, i, err);
    }
    return rc;
}

/* Files in the order of keyword, pattern, name; each once. */
static int pick_by_keyword(struct splits *s, const char *split, bool in_folder, struct trl_files *ret, struct trl_err *err)
{
    bool *taken = trl_calloc(s->all.n + 1, sizeof(*taken));
    if (!taken)
        return trl_fail_nomem(err, s->all.n, "a list of files");
    int rc = 0;
    for (int k = 0; k < SPLITS; k++)
        for (int w = 0; w < 5 && KEYWORDS[k].word[w]; w++)
            for (int pattern = 1; pattern <= 4; pattern++)
                for (size_t i = 0; i < s->all.n && rc == 0; i++) {
                    if (match(s->all.path[i], KEYWORDS[k].word[w], in_folder) != pattern)
                        continue;
                    note_name(s, KEYWORDS[k].split, strlen(KEYWORDS[k].split));
                    if (strcmp(split, KEYWORDS[k].split) != 0 || taken[i])
                        continue;
                    taken[i] = true;
                    rc = take(s, ret, i, err);
                }
    trl_free(taken);
    return rc;
}

static int pick_split(struct splits *s, const char *split, struct trl_files *ret, struct trl_err *err)
{
    int rc = pick_sharded(s, split, ret, err);
    if (rc == 0 && s->names.len == 0)
        rc = pick_by_keyword(s, split, true, ret, err);
    if (rc == 0 && s->names.len == 0)
        rc = pick_by_keyword(s, split, false, ret, err);
    if (rc == 0 && s->names.len == 0) {
        note_name(s, "train", 5);
        for (size_t i = 0; i < s->all.n && rc == 0 && strcmp(split, "train") == 0; i++)
            rc = take(s, ret, i, err);
    }
    return rc;
}

static int no_split(struct splits *s, const struct trl_files_spec *spec, struct trl_err *err)
{
    return trl_fail(err, TRL_E_NOENT, "%s %s has no split '%s', only %s (splits follow from names: train*, test*, validation*)",
        spec->option, spec->path, spec->split, trl_str_get(&s->names));
}

static int from_folder(struct trl_files *ret, const struct trl_files_spec *spec, const char *dir, struct trl_err *err)
{
    struct splits s = {.root = dir};
    int rc = walk(&s.all, dir, "", 0, err);
    if (rc == 0 && s.all.n > 0) {
        qsort(s.all.path, s.all.n, sizeof(*s.all.path), by_text);
        keep_one_format(&s.all);
    }
    if (rc == 0 && s.all.n == 0)
        rc = trl_fail(err, TRL_E_NOENT, "%s %s: the folder holds no .jsonl, .json, .ndjson, .csv or .tsv file", spec->option, dir);
    if (rc == 0)
        rc = pick_split(&s, spec->split, ret, err);
    if (rc == 0 && ret->n == 0)
        rc = no_split(&s, spec, err);
    trl_files_release(&s.all);
    trl_str_release(&s.names);
    return rc;
}

/* Files (no folders) of a glob, sorted. A name without wildcards must exist. */
static int expand(struct trl_files *ret, const char *pattern, struct trl_err *err)
{
    glob_t g = {0};
    int z = glob(pattern, GLOB_NOSORT | GLOB_BRACE, NULL, &g);
    int rc = z == GLOB_NOSPACE ? trl_fail_nomem(err, 4096, "a list of files") : 0;
    for (size_t i = 0; rc == 0 && z == 0 && i < g.gl_pathc; i++)
        if (!trl_path_is_dir(g.gl_pathv[i]))
            rc = add_path(ret, trl_strdup(g.gl_pathv[i]), err);
    globfree(&g);
    if (rc == 0 && ret->n > 0)
        qsort(ret->path, ret->n, sizeof(*ret->path), by_text);
    return rc;
}

/* A glob whose files all belong to one split is that user's "train". */
static int from_glob(struct trl_files *ret, const struct trl_files_spec *spec, struct trl_err *err)
{
    struct splits s = {0};
    int rc = expand(&s.all, spec->path, err);
    if (rc == 0 && s.all.n == 0)
        rc = trl_fail(err, TRL_E_NOENT, "%s %s matches no file", spec->option, spec->path);
    if (rc == 0)
        rc = pick_by_keyword(&s, spec->split, false, ret, err);
    bool one = !strchr(trl_str_get(&s.names), ',');
    if (rc == 0 && ret->n == 0 && one && strcmp(spec->split, "train") == 0)
        for (size_t i = 0; i < s.all.n && rc == 0; i++)
            rc = take(&s, ret, i, err);
    if (rc == 0 && ret->n == 0) {
        if (s.names.len == 0)
            note_name(&s, "train", 5);
        rc = no_split(&s, spec, err);
    }
    trl_files_release(&s.all);
    trl_str_release(&s.names);
    return rc;
}

static int add_pattern(struct trl_files *ret, const struct trl_files_spec *spec, const char *base, const char *pattern,
    struct trl_err *err)
{
    struct trl_files some = {0};
    char *full = base && pattern[0] != '/' ? trl_path_join(base, pattern) : trl_strdup(pattern);
    int rc = full ? expand(&some, full, err) : trl_fail_nomem(err, 256, "a path");
    if (rc == 0 && some.n == 0)
        rc = trl_fail(err, TRL_E_NOENT, "data_files %s of %s %s matches no file", full, spec->option, spec->path);
    for (size_t i = 0; i < some.n && rc == 0; i++) {
        rc = add_path(ret, some.path[i], err);
        some.path[i] = NULL;
    }
    trl_files_release(&some);
    trl_free(full);
    return rc;
}

/* A string or a list of strings. */
static int add_patterns(struct trl_files *ret, const struct trl_files_spec *spec, const char *base, const json_t *value,
    struct trl_err *err)
{
    if (json_is_string(value))
        return add_pattern(ret, spec, base, json_string_value(value), err);
    if (!json_is_array(value) || json_array_size(value) == 0)
        return trl_fail(err, TRL_E_USAGE, "data_files of %s %s must be a name, a list of names, or a mapping of splits to them",
            spec->option, spec->path);
    int rc = 0;
    size_t i;
    json_t *v;
    json_array_foreach (value, i, v) {
        if (!json_is_string(v))
            return trl_fail(err, TRL_E_USAGE, "data_files of %s %s: entry %zu is not a name", spec->option, spec->path, i + 1);
        rc = add_pattern(ret, spec, base, json_string_value(v), err);
        if (rc != 0)
            return rc;
    }
    return rc;
}

static int from_data_files(struct trl_files *ret, const struct trl_files_spec *spec, const char *base, struct trl_err *err)
{
    const json_t *value = spec->data_files;
    struct splits s = {0};
    if (json_is_object(value)) {
        const char *name;
        json_t *v;
        json_object_foreach ((json_t *)(uintptr_t)value, name, v)
            note_name(&s, name, strlen(name));
        value = json_object_get(value, spec->split);
    } else if (strcmp(spec->split, "train") != 0) {
        note_name(&s, "train", 5);
        value = NULL;
    }
    int rc = value ? add_patterns(ret, spec, base, value, err) : no_split(&s, spec, err);
    trl_str_release(&s.names);
    return rc;
}

static bool is_reader_name(const char *path)
{
    return strcmp(path, "json") == 0 || strcmp(path, "csv") == 0;
}

static int no_such_path(const struct trl_files_spec *spec, struct trl_err *err)
{
    bool hub = spec->path[0] != '/' && spec->path[0] != '.' && strchr(spec->path, '/') && !format_of(spec->path);
    if (hub)
        return trl_fail(err, TRL_E_NOENT,
            "%s %s: no such file or folder here, and data sets of the hub are not fetched; get it with: hf download "
            "--repo-type dataset %s --local-dir data, and name the folder", spec->option, spec->path, spec->path);
    return trl_fail(err, TRL_E_NOENT, "%s %s: no such file or folder", spec->option, spec->path);
}

/* One named file is "train" whatever its name; it may also be asked for by the split its name says. */
static int from_file(struct trl_files *ret, const struct trl_files_spec *spec, struct trl_err *err)
{
    struct splits s = {0};
    int rc = add_path(&s.all, trl_strdup(spec->path), err);
    if (rc == 0 && strcmp(spec->split, "train") == 0)
        rc = take(&s, ret, 0, err);
    note_name(&s, "train", 5);
    if (rc == 0 && ret->n == 0)
        rc = no_split(&s, spec, err);
    trl_files_release(&s.all);
    trl_str_release(&s.names);
    return rc;
}

int trl_files_find(struct trl_files *ret, const struct trl_files_spec *spec, struct trl_err *err)
{
    struct trl_files found = {0};
    bool reader = is_reader_name(spec->path) && !trl_path_exists(spec->path);
    char *dir = NULL;
    int rc;
    if (spec->data_dir)
        dir = reader ? trl_strdup(spec->data_dir) : trl_path_join(spec->path, spec->data_dir);
    else if (!reader && trl_path_is_dir(spec->path))
        dir = trl_strdup(spec->path);
    if (strpbrk(spec->split, "[+("))
        rc = trl_fail(err, TRL_E_UNSUPPORTED, "split '%s' of %s %s: slices and sums of splits are not supported, name one split",
            spec->split, spec->option, spec->path);
    else if (spec->data_files && !json_is_null(spec->data_files))
        rc = from_data_files(&found, spec, dir, err);
    else if (dir)
        rc = from_folder(&found, spec, dir, err);
    else if (reader)
        rc = trl_fail(err, TRL_E_USAGE, "%s %s names a reader; it needs data_files or data_dir too", spec->option, spec->path);
    else if (trl_path_exists(spec->path))
        rc = from_file(&found, spec, err);
    else if (strpbrk(spec->path, "*?[{"))
        rc = from_glob(&found, spec, err);
    else
        rc = no_such_path(spec, err);
    trl_free(dir);
    if (rc != 0) {
        trl_files_release(&found);
        return rc;
    }
    *ret = found;
    return 0;
}
