/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BACKEND_HOST_H
#define TRL_BACKEND_HOST_H
/* What backends on the host's own memory share, and the constructors that registry.c knows. */
#include "tensor/backend.h"

/* Fills the memory functions (slabs) and empty weight caching. */
void trl_host_fill(struct trl_backend *be);

int trl_ref_open(
    struct trl_backend **ret, const struct trl_backend_options *opt, struct trl_err *err);
int trl_cpu_open(
    struct trl_backend **ret, const struct trl_backend_options *opt, struct trl_err *err);

#endif
