/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_HW_TOPOLOGY_H
#define TRL_HW_TOPOLOGY_H
/* The cores of a machine in topology order (neighbours are close), through hwloc, or from sysfs in
 * a build without it. */
#include "hw/bind.h"

struct trl__core {
    int n, cpus[TRL_BIND_MAX_SIBLINGS]; /* hardware threads, by the system's numbers */
    int numa; /* -1: unknown */
};
struct trl__topology {
    int n_cores;
    struct trl__core *cores;
};

/* `source`: NULL this machine, else as in trl_bind_request. */
int trl__topology_load(struct trl__topology *ret, const char *source, struct trl_err *err);
void trl__topology_release(struct trl__topology *t);

#endif
