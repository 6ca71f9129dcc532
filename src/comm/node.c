/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/node.h"

#include <limits.h>
#include <unistd.h>

int trl_comm_node_once(struct trl_comm *c, bool temporary, int (*make)(void *ctx, char *ret_path, size_t size, struct trl_err *err),
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
