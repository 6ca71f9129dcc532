/* SPDX-License-Identifier: Apache-2.0 */
#include "hw/bind.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "hw/topology.h"

void trl_cpuset_format(const struct trl_cpuset *s, char *ret, size_t size)
{
    size_t at = 0;
    if (size)
        ret[0] = '\0';
    for (int i = 0; i < TRL_MAX_CPUS; i++) {
        int last = i;
        if (!trl_cpuset_has(s, i))
            continue;
        while (trl_cpuset_has(s, last + 1))
            last++;
        char item[32];
        int n = last > i ? snprintf(item, sizeof(item), "%s%d-%d", at ? "," : "", i, last)
                         : snprintf(item, sizeof(item), "%s%d", at ? "," : "", i);
        if (at + (size_t)n + 4 > size) {
            if (at + 4 <= size)
                memcpy(ret + at, "...", 4);
            return;
        }
        memcpy(ret + at, item, (size_t)n + 1);
        at += (size_t)n;
        i = last;
    }
}

int trl_hw_affinity(struct trl_cpuset *ret, struct trl_err *err)
{
    cpu_set_t *set = CPU_ALLOC(TRL_MAX_CPUS);
    size_t size = CPU_ALLOC_SIZE(TRL_MAX_CPUS);
    if (!set)
        return trl_fail_nomem(err, size, "a set of CPUs");
    CPU_ZERO_S(size, set);
    if (sched_getaffinity(0, size, set) != 0) {
        CPU_FREE(set);
        return trl_fail(
            err, TRL_E_FAIL, "cannot ask which CPUs this process may use: %s", strerror(errno));
    }
    memset(ret, 0, sizeof(*ret));
    for (int i = 0; i < TRL_MAX_CPUS; i++)
        if (CPU_ISSET_S(i, size, set))
            trl_cpuset_add(ret, i);
    CPU_FREE(set);
    return 0;
}

static bool may_use(const struct trl__core *core, const struct trl_cpuset *allowed)
{
    for (int i = 0; i < core->n; i++)
        if (trl_cpuset_has(allowed, core->cpus[i]))
            return true;
    return false;
}

/* Do two ranks contend for a core, and do they contend for all of theirs? */
static bool overlap(const struct trl__topology *t, const struct trl_cpuset *a,
    const struct trl_cpuset *b, bool *ret_same)
{
    bool any = false;
    for (int i = 0; i < t->n_cores; i++) {
        bool x = may_use(&t->cores[i], a), y = may_use(&t->cores[i], b);
        any |= x && y;
        if (x != y)
            *ret_same = false;
    }
    return any;
}

/* owner[i]: the rank that gets core i, or -1. Masks that overlap in part: each core to the rank
 * that has fewest so far. */
static void divide_unequal(
    const struct trl__topology *t, const struct trl_bind_request *req, int *owner, int *counts)
{
    for (int i = 0; i < t->n_cores; i++) {
        owner[i] = -1;
        for (int r = 0; r < req->n_local; r++)
            if (may_use(&t->cores[i], &req->allowed[r]) &&
                (owner[i] < 0 || counts[r] < counts[owner[i]]))
                owner[i] = r;
        if (owner[i] >= 0)
            counts[owner[i]]++;
    }
}

/* Mark in `owner` the cores of this rank (its own number); others' are of no interest. Returns
 * their number; 0: ranks outnumber cores. */
static int divide(
    const struct trl__topology *t, const struct trl_bind_request *req, int *owner, int *counts)
{
    const struct trl_cpuset *mine = &req->allowed[req->local_rank];
    int sharers = 0, index = 0, cores = 0, n = 0, seen = 0;
    bool same = true;
    for (int r = 0; r < req->n_local; r++) {
        bool equal = true;
        if (!overlap(t, mine, &req->allowed[r], &equal))
            continue;
        same &= equal;
        index += r < req->local_rank;
        sharers++;
    }
    if (!same) {
        divide_unequal(t, req, owner, counts);
        for (int i = 0; i < t->n_cores; i++)
            n += owner[i] == req->local_rank;
        return n;
    }
    for (int i = 0; i < t->n_cores; i++)
        cores += may_use(&t->cores[i], mine);
    int64_t begin = (int64_t)cores * index / (sharers ? sharers : 1),
            end = (int64_t)cores * (index + 1) / (sharers ? sharers : 1);
    for (int i = 0; i < t->n_cores; i++) {
        owner[i] = -1;
        if (!may_use(&t->cores[i], mine))
            continue;
        if (seen >= begin && seen < end) {
            owner[i] = req->local_rank;
            n++;
        }
        seen++;
    }
    return n;
}

static void take_cores(struct trl_bind_plan *p, const struct trl__topology *t, const int *owner,
    const struct trl_bind_request *req, bool *ret_far)
{
    int node = -2;
    for (int i = 0; i < t->n_cores; i++) {
        if (owner[i] != req->local_rank)
            continue;
        struct trl_bind_core *c = p->n_cores < TRL_BIND_MAX_THREADS ? &p->cores[p->n_cores] : NULL;
        for (int k = 0; k < t->cores[i].n; k++) {
            int cpu = t->cores[i].cpus[k];
            if (!trl_cpuset_has(&req->allowed[req->local_rank], cpu))
                continue;
            trl_cpuset_add(&p->cpus, cpu);
            if (c && c->n < TRL_BIND_MAX_SIBLINGS)
                c->cpus[c->n++] = cpu;
        }
        *ret_far |= node != -2 && t->cores[i].numa != node;
        node = t->cores[i].numa;
        p->n_cores++;
    }
}

static void choose_threads(struct trl_bind_plan *p, const struct trl_bind_request *req, bool far)
{
    int most = p->n_cores > 0 ? p->n_cores : 1;
    bool limited = req->quota > 0 && req->quota < (double)most * req->n_local;
    if (limited) {
        int share = (int)(req->quota / req->n_local);
        most = share < 1 ? 1 : share < most ? share : most;
    }
    if (most > TRL_BIND_MAX_THREADS)
        most = TRL_BIND_MAX_THREADS;
    p->n_threads = req->n_threads > 0 ? req->n_threads : most;
    p->oversubscribed = p->n_threads > (p->n_cores ? p->n_cores : 0);
    char set[128];
    trl_cpuset_format(&p->cpus, set, sizeof(set));
    const char *plural = p->n_threads == 1 ? "" : "s";
    if (p->n_cores == 0) {
        snprintf(p->text, sizeof(p->text),
            "%d thread%s, not bound: %d ranks on this node have fewer cores", p->n_threads, plural,
            req->n_local);
    } else if (limited) {
        snprintf(p->text, sizeof(p->text),
            "%d thread%s, not bound: the control group grants %.3g cores", p->n_threads, plural,
            req->quota);
    } else if (p->n_threads == p->n_cores && (req->n_local > 1 || far)) {
        p->bind = true;
        snprintf(p->text, sizeof(p->text), "%d thread%s, one a core, bound to CPUs %s",
            p->n_threads, plural, set);
    } else if (req->n_local > 1) {
        p->confine = true;
        snprintf(p->text, sizeof(p->text), "%d thread%s on CPUs %s", p->n_threads, plural, set);
    } else { /* alone, memory equally near: the system may move threads away from others' work */
        snprintf(p->text, sizeof(p->text), "%d thread%s, not bound, on CPUs %s", p->n_threads,
            plural, set);
    }
}

int trl_bind_plan(
    struct trl_bind_plan *ret, const struct trl_bind_request *req, struct trl_err *err)
{
    struct trl__topology t = {0};
    if (req->n_local < 1 || req->local_rank < 0 || req->local_rank >= req->n_local)
        return trl_fail(err, TRL_E_RANGE, "local rank %d of %d", req->local_rank, req->n_local);
    if (req->n_threads < 0 || req->n_threads > TRL_BIND_MAX_THREADS)
        return trl_fail(err, TRL_E_RANGE,
            "%d threads a process; 1 to %d are possible, 0 means one a core", req->n_threads,
            TRL_BIND_MAX_THREADS);
    int rc = trl__topology_load(&t, req->topology, err);
    if (rc)
        return rc;
    memset(ret, 0, sizeof(*ret));
    int *owner = trl_calloc((size_t)t.n_cores + 1, sizeof(*owner)),
        *counts = trl_calloc((size_t)req->n_local, sizeof(*counts));
    if (!owner || !counts) {
        rc = trl_fail_nomem(err, (size_t)t.n_cores * sizeof(*owner), "the binding plan");
    } else {
        bool far = false;
        if (divide(&t, req, owner, counts) > 0)
            take_cores(ret, &t, owner, req, &far);
        choose_threads(ret, req, far);
    }
    trl_free(owner);
    trl_free(counts);
    trl__topology_release(&t);
    return rc;
}

int trl_bind_plan_alone(struct trl_bind_plan *ret, int n_threads, struct trl_err *err)
{
    struct trl_cpuset mine;
    int rc = trl_hw_affinity(&mine, err);
    if (rc)
        return rc;
    return trl_bind_plan(ret,
        &(struct trl_bind_request){
            .allowed = &mine, .n_local = 1, .quota = trl_hw_cpu_quota(), .n_threads = n_threads},
        err);
}

void trl_bind_thread(void *plan, int thread)
{
    const struct trl_bind_plan *p = plan;
    if (!p->bind && !p->confine)
        return;
    cpu_set_t *set = CPU_ALLOC(TRL_MAX_CPUS);
    size_t size = CPU_ALLOC_SIZE(TRL_MAX_CPUS);
    if (!set)
        return; /* unbound is slower at worst */
    CPU_ZERO_S(size, set);
    if (p->bind && thread >= 0 && thread < p->n_threads) {
        for (int i = 0; i < p->cores[thread].n; i++)
            CPU_SET_S(p->cores[thread].cpus[i], size, set);
    } else {
        for (int i = 0; i < TRL_MAX_CPUS; i++)
            if (trl_cpuset_has(&p->cpus, i))
                CPU_SET_S(i, size, set);
    }
    sched_setaffinity(
        0, size, set); /* refused when CPUs were taken away meanwhile: the mask stays */
    CPU_FREE(set);
}
