/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_HW_BIND_H
#define TRL_HW_BIND_H
/*
 * Cores: which this process may use, how the ranks of a node divide them, and binding of threads.
 * What the launcher or Slurm allows (the affinity mask) is never left; a CPU quota of the cgroup
 * limits the number of threads. A thread gets a whole core: the second hardware thread of a core
 * adds nothing to matrix products.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { TRL_MAX_CPUS = 4096, TRL_BIND_MAX_THREADS = 1024, TRL_BIND_MAX_SIBLINGS = 8 };

/* CPUs by the numbers of the operating system. */
struct trl_cpuset {
    uint64_t bits[TRL_MAX_CPUS / 64];
};
static inline bool trl_cpuset_has(const struct trl_cpuset *s, int cpu)
{
    return cpu >= 0 && cpu < TRL_MAX_CPUS && (s->bits[cpu / 64] >> (cpu % 64) & 1);
}
static inline void trl_cpuset_add(struct trl_cpuset *s, int cpu)
{
    if (cpu >= 0 && cpu < TRL_MAX_CPUS)
        s->bits[cpu / 64] |= (uint64_t)1 << (cpu % 64);
}
/* "0-3,8" */
void trl_cpuset_format(const struct trl_cpuset *s, char *ret, size_t size);

/* The CPUs that the calling thread may run on. */
int trl_hw_affinity(struct trl_cpuset *ret, struct trl_err *err);
/* Cores' worth of time that the control groups of this process grant; 0: no limit. */
double trl_hw_cpu_quota(void);
/* The same from other files (tests): a /proc/self/cgroup, a mounted hierarchy. */
double trl_hw_cpu_quota_in(const char *proc_file, const char *root);

struct trl_bind_core {
    int n; /* hardware threads that may be used */
    int cpus[TRL_BIND_MAX_SIBLINGS];
};

struct trl_bind_request {
    const char *topology; /* NULL: this machine; else hwloc's synthetic text, or the path of an .xml
                             (tests) */
    const struct trl_cpuset *allowed; /* [n_local]: affinity of each rank of this node */
    int n_local, local_rank;
    double quota; /* of all ranks together; 0: none */
    int n_threads; /* 0: one a core */
};

struct trl_bind_plan {
    int n_threads; /* of this rank; >= 1 */
    int n_cores; /* this rank's share */
    bool bind; /* thread i stays on cores[i] */
    bool confine; /* threads stay on this rank's cores, the system chooses which */
    bool oversubscribed; /* ranks or threads outnumber cores */
    struct trl_cpuset cpus; /* this rank's share */
    struct trl_bind_core cores[TRL_BIND_MAX_THREADS];
    char text[256]; /* "4 threads on cores 0-3": for logs */
};

/* Ranks with disjoint masks (mpirun or Slurm bound them) keep theirs; ranks with one mask divide it
 * in the order of the topology, so that neighbours share caches and memory. */
int trl_bind_plan(
    struct trl_bind_plan *ret, const struct trl_bind_request *req, struct trl_err *err);
/* The plan of a process that is alone on its node, n_threads 0: one a core. */
int trl_bind_plan_alone(struct trl_bind_plan *ret, int n_threads, struct trl_err *err);

/* Bind the calling thread as thread `thread` of the team: on_start of trl_pool_new, with the plan
 * as ctx; call it for thread 0 too. Threads that it creates later inherit the binding. */
void trl_bind_thread(void *plan, int thread);

#endif
