/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "comm/comm-mpi.h"
#include "job/job.h"

int trl_comm_open(struct trl_comm *c, struct trl_err *err)
{
    struct trl_job job;
    trl_comm_open_self(c);
    int rc = trl_job_read(&job, err);
    if (rc)
        return rc;
    if (job.world == 1)
        return 0; /* starting MPI would cost more than a tiny run */
#ifdef TRL_HAVE_MPI
    return trl__mpi_open(c, &job, err);
#else
    return trl_fail(err, TRL_E_UNSUPPORTED,
        "%s started %d processes (%s=%d), but this program was built without MPI: install Open MPI "
        "or MPICH with its headers and build "
        "again (meson setup -Dmpi=enabled), or start one process",
        job.launcher, job.world, job.world_var, job.world);
#endif
}

void trl_comm_close(struct trl_comm *c)
{
    if (c && c->ops)
        c->ops->close(c);
    if (c)
        *c = (struct trl_comm){0};
}

int trl_comm_agree(struct trl_comm *c, int rc, struct trl_err *err)
{
    if (c->world == 1)
        return rc;
    /* the lowest failing rank, and what happened there */
    double first = rc ? c->rank : c->world;
    int bad = c->ops->allreduce_f64(c, &first, 1, TRL_COMM_MIN, err);
    if (bad || first >= c->world)
        return bad;
    struct trl_err said = {0};
    if ((int)first == c->rank) {
        if (err)
            said = *err;
        else
            trl_fail(&said, rc, "%s", trl_status_name(rc));
        said.code = rc;
        char host[64] = "unknown";
        if (gethostname(host, sizeof(host) - 1) != 0)
            memcpy(host, "unknown", sizeof("unknown"));
        if (!trl_starts_with(said.text, "rank ")) /* agreed on before, in a part of the part */
            trl_err_prefix(&said, rc, "rank %d on %s", c->rank, host);
    }
    bad = c->ops->bcast(c, &said, sizeof(said), (int)first, err);
    if (bad)
        return bad;
    said.text[sizeof(said.text) - 1] = '\0';
    if (err)
        *err = said;
    return said.code ? said.code : TRL_E_FAIL;
}
