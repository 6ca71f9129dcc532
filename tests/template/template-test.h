/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEMPLATE_TEST_H
#define TEMPLATE_TEST_H
/* Helpers of the template tests. */
#include <jansson.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "data/template.h"
#include "../trl-test.h"

/* Compile and render; *out holds the text on success. */
static inline int render_source(const char *source, size_t len, const json_t *vars,
    struct trl_str *out, struct trl_spans *spans, struct trl_err *err)
{
    struct trl_template *t = NULL;
    int rc = trl_template_compile(&t, source, len, "template under test", err);
    if (rc == 0)
        rc = trl_template_render(t, vars, out, spans, err);
    trl_template_free(t);
    return rc;
}

/* fn for each line of a JSON Lines file, which must exist; returns the number of lines. */
static inline int each_line(
    const char *path, void (*fn)(void *ctx, json_t *line, int number), void *ctx)
{
    struct trl_err err = {0};
    char *data;
    size_t len;
    int n = 0;
    assert_trl_ok(trl_file_read(path, 64 << 20, &data, &len, &err), &err);
    for (char *p = data, *end; p < data + len; p = end + 1) {
        end = memchr(p, '\n', (size_t)(data + len - p));
        if (!end)
            end = data + len;
        json_error_t je;
        json_t *line = json_loadb(p, (size_t)(end - p), JSON_ALLOW_NUL, &je);
        if (!line)
            fail_msg("%s:%d: %s", path, n + 1, je.text);
        fn(ctx, line, ++n);
        json_decref(line);
    }
    trl_free(data);
    return n;
}

#endif
