/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TEMPLATE_H
#define TRL_DATA_TEMPLATE_H
/*
 * Chat templates: the Jinja2 subset that published templates use, with transformers' environment (trim_blocks, lstrip_blocks,
 * `tojson` as json.dumps(ensure_ascii=False), raise_exception, strftime_now, {% generation %}).
 * A compiled template is read-only and usable from many threads. Errors name template, line and column. Limits: depth 200,
 * 10 million loop iterations, 64 MB of output: a template that loops or recurses ends in an error.
 */
#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct trl_template;
int trl_template_compile(struct trl_template **ret, const char *source, size_t len, const char *name, struct trl_err *err);
void trl_template_free(struct trl_template *t);
/* Does the source hold a {% generation %} block? */
int trl_template_has_generation(const struct trl_template *t);

/* Byte ranges of the output that were rendered inside {% generation %}, in order. */
struct trl_spans {
    size_t *begin, *end;
    size_t len, cap;
};
void trl_spans_release(struct trl_spans *s);

/* Spans count from the first byte that this call appends. On an error *out is as before.
 * vars: an object of the template's variables (messages, tools, add_generation_prompt, bos_token ...), borrowed, not changed.
 * Appends to *out; spans may be NULL. */
int trl_template_render(const struct trl_template *t, const json_t *vars, struct trl_str *out, struct trl_spans *spans,
    struct trl_err *err);

#endif
