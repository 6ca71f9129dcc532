/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TPL_UNICODE_H
#define TRL_DATA_TPL_UNICODE_H
/* Letter case and character classes of UTF-8 texts, as Python's str methods see them. */
#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

enum tpl_case {
    TPL_CASE_UPPER,
    TPL_CASE_LOWER,
    TPL_CASE_TITLE,
    TPL_CASE_CAPITALIZE,
    TPL_CASE_SWAP
};
void tpl_case_convert(struct trl_str *out, const char *s, size_t len, enum tpl_case how);
/* str.isupper / str.islower */
bool tpl_case_is(const char *s, size_t len, bool upper);

enum tpl_class {
    TPL_CLASS_ALPHA,
    TPL_CLASS_ALNUM,
    TPL_CLASS_DIGIT,
    TPL_CLASS_DECIMAL,
    TPL_CLASS_NUMERIC,
    TPL_CLASS_SPACE,
    TPL_CLASS_ASCII,
};
bool tpl_class_is(unsigned cp, enum tpl_class c);
/* One character's upper (how UPPER) or lower form appended. */
void tpl_case_put(struct trl_str *out, unsigned cp, enum tpl_case how);
bool tpl_is_cased(unsigned cp);

#endif
