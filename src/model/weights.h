/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_WEIGHTS_H
#define TRL_MODEL_WEIGHTS_H
/* What the readers of weights share: names, checks, and the way into the slab. */
#include "model/internal.h"

enum { TRL_WEIGHT_UNKNOWN = -1, TRL_WEIGHT_IGNORED = -2 };
/* Index of the parameter that a tensor of this name is, whatever prefix its file uses. */
int trl__weights_find(const struct trl_model *m, const char *name);
bool trl__weights_shape_fits(const struct trl_param *p, const int64_t *shape, int ndim,
    const char *origin, const char *name, struct trl_problems *problems);
void trl__weights_missing(
    const struct trl_model *m, const bool *found, struct trl_problems *problems);
/* Elements [first, first + n) of p from `src` of type t; staging: room for n elements. A NaN is an
 * error. */
int trl__weights_put(struct trl_model *m, const struct trl_param *p, int64_t first, int64_t n,
    const void *src, enum trl_dtype t, void *staging, const char *origin, const char *name,
    struct trl_err *err);
/* Type of the first tensor of a folder. */
int trl__weights_file_dtype(const char *dir, enum trl_dtype *ret, struct trl_err *err);

#endif
