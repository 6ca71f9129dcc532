/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TPL_PATH_H
#define TRL_DATA_TPL_PATH_H
/* The `attribute` argument of filters: "a.b.0" or a number. */
#include "data/tpl-internal.h"

/* attr NULL or none: the value itself. An undefined step becomes `fallback` where one is given. */
int tpl_path_get(struct tpl_render *r, const struct tpl_value *v, const struct tpl_value *attr,
    const struct tpl_value *fallback, struct tpl_value *ret);

#endif
