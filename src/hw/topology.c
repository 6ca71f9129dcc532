/* SPDX-License-Identifier: Apache-2.0 */
#include "hw/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef TRL_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "base/alloc.h"
#include "base/str.h"

void trl__topology_release(struct trl__topology *t)
{
    trl_free(t->cores);
    *t = (struct trl__topology){0};
}

#ifdef TRL_HAVE_HWLOC

static int open_topology(hwloc_topology_t *ret, const char *source, struct trl_err *err)
{
    hwloc_topology_t t = NULL;
    if (hwloc_topology_init(&t) != 0)
        return trl_fail(err, TRL_E_NOMEM, "hwloc does not start");
    int bad = 0;
    if (source && trl_ends_with(source, ".xml"))
        bad = hwloc_topology_set_xml(t, source);
    else if (source)
        bad = hwloc_topology_set_synthetic(t, source);
    hwloc_topology_set_cache_types_filter(
        t, HWLOC_TYPE_FILTER_KEEP_NONE); /* not needed; devices are off by default */
    if (bad || hwloc_topology_load(t) != 0) {
        hwloc_topology_destroy(t);
        return trl_fail(err, TRL_E_PARSE, "hwloc cannot read the topology %.200s",
            source ? source : "of this machine");
    }
    *ret = t;
    return 0;
}

static void add_core(struct trl__topology *ret, hwloc_obj_t obj)
{
    struct trl__core *c = &ret->cores[ret->n_cores++];
    *c = (struct trl__core){.numa = -1};
    int cpu;
    for (cpu = hwloc_bitmap_first(obj->cpuset); cpu >= 0 && c->n < TRL_BIND_MAX_SIBLINGS;
         cpu = hwloc_bitmap_next(obj->cpuset, cpu))
        c->cpus[c->n++] = cpu;
    if (obj->nodeset)
        c->numa = hwloc_bitmap_first(obj->nodeset);
}

int trl__topology_load(struct trl__topology *ret, const char *source, struct trl_err *err)
{
    hwloc_topology_t t = NULL;
    int rc = open_topology(&t, source, err);
    if (rc)
        return rc;
    hwloc_obj_type_t type =
        hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int n = hwloc_get_nbobjs_by_type(t, type);
    *ret = (struct trl__topology){.cores = trl_calloc(n > 0 ? (size_t)n : 1, sizeof(*ret->cores))};
    if (!ret->cores)
        rc = trl_fail_nomem(err, (size_t)n * sizeof(*ret->cores), "the list of cores");
    for (int i = 0; i < n && !rc; i++)
        add_core(ret, hwloc_get_obj_by_type(t, type, (unsigned)i));
    hwloc_topology_destroy(t);
    return rc;
}

#else

/* The lowest hardware thread of the CPU's core; the CPU itself when the system does not say. */
static int first_sibling(int cpu)
{
    char path[128], text[64] = "";
    snprintf(
        path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (!f)
        return cpu;
    if (!fgets(text, sizeof(text), f))
        text[0] = '\0';
    fclose(f);
    text[strspn(text, "0123456789")] = '\0';
    long long v;
    return trl_parse_i64(text, &v) && v >= 0 && v < TRL_MAX_CPUS ? (int)v : cpu;
}

int trl__topology_load(struct trl__topology *ret, const char *source, struct trl_err *err)
{
    struct trl_cpuset mine;
    if (source)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "topology %.200s: this program was built without hwloc", source);
    int rc = trl_hw_affinity(&mine, err);
    if (rc)
        return rc;
    *ret = (struct trl__topology){.cores = trl_calloc(TRL_MAX_CPUS, sizeof(*ret->cores))};
    if (!ret->cores)
        return trl_fail_nomem(err, TRL_MAX_CPUS * sizeof(*ret->cores), "the list of cores");
    for (int cpu = 0; cpu < TRL_MAX_CPUS; cpu++) {
        if (!trl_cpuset_has(&mine, cpu))
            continue;
        int first = first_sibling(cpu), at = 0;
        while (
            at < ret->n_cores && (first == cpu || first_sibling(ret->cores[at].cpus[0]) != first))
            at++;
        struct trl__core *c = &ret->cores[at];
        if (at == ret->n_cores) {
            c->numa = -1;
            ret->n_cores++;
        }
        if (c->n < TRL_BIND_MAX_SIBLINGS)
            c->cpus[c->n++] = cpu;
    }
    return 0;
}

#endif
