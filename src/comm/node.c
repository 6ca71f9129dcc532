/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/node.h"

#include <limits.h>
#include <unistd.h>

#include "base/alloc.h"

int trl_comm_node_once(struct trl_comm *c, bool temporary,
    int (*make)(void *ctx, char *ret_path, size_t size, struct trl_err *err),
    int (*use)(void *ctx, const char *path, struct trl_err *err), void *ctx, struct trl_err *err)
{
    char path[PATH_MAX] = "";
    int rc = 0;
    if (c->local_rank == 0)
        rc = make(ctx, path, sizeof(path), err);
    path[sizeof(path) - 1] = '\0';
    rc = trl_comm_agree(c, rc, err);
    if (!rc)
        rc = c->ops->node_bcast(c, path, sizeof(path), err);
    if (!rc) {
        rc = use(ctx, path, err);
        rc = trl_comm_agree(c, rc, err);
    }
    if (temporary && c->local_rank == 0 && path[0])
        unlink(path);
    return rc;
}

/* What a rank tells the others about itself. */
struct place {
    int node_rank, local_rank;
    struct trl_cpuset allowed;
};

static int plan_of_places(struct trl_comm *c, const struct place *all, int n_threads,
    struct trl_bind_plan *ret, struct trl_err *err)
{
    struct trl_cpuset *allowed = trl_calloc((size_t)c->local_world, sizeof(*allowed));
    if (!allowed)
        return trl_fail_nomem(err, (size_t)c->local_world * sizeof(*allowed), "the binding plan");
    for (int r = 0; r < c->world; r++)
        if (all[r].node_rank == c->node_rank)
            allowed[all[r].local_rank] = all[r].allowed;
    struct trl_bind_request req = {.allowed = allowed,
        .n_local = c->local_world,
        .local_rank = c->local_rank,
        .quota = trl_hw_cpu_quota(),
        .n_threads = n_threads};
    int rc = trl_bind_plan(ret, &req, err);
    trl_free(allowed);
    return rc;
}

int trl_comm_bind_plan(
    struct trl_comm *c, int n_threads, struct trl_bind_plan *ret, struct trl_err *err)
{
    if (c->world == 1)
        return trl_bind_plan_alone(ret, n_threads, err);
    struct place mine = {.node_rank = c->node_rank, .local_rank = c->local_rank};
    struct place *all = trl_calloc((size_t)c->world, sizeof(*all));
    int rc = all ? trl_hw_affinity(&mine.allowed, err)
                 : trl_fail_nomem(err, (size_t)c->world * sizeof(*all), "the binding plan");
    rc = trl_comm_agree(c, rc, err);
    if (!rc)
        rc = c->ops->allgather(c, &mine, sizeof(mine), all, err);
    if (!rc) {
        rc = plan_of_places(c, all, n_threads, ret, err);
        rc = trl_comm_agree(c, rc, err);
    }
    trl_free(all);
    return rc;
}
