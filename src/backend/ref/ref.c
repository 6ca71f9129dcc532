/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/ref/ref.h"

#include "backend/host.h"
#include "base/alloc.h"

static const char *describe(struct trl_backend *be)
{
    (void)be;
    return "reference loops (one thread, sums in double)";
}

static void close_ref(struct trl_backend *be)
{
    trl_free(be);
}

int trl_ref_open(
    struct trl_backend **ret, const struct trl_backend_options *opt, struct trl_err *err)
{
    struct trl_backend *be = trl_calloc(1, sizeof(*be));
    if (!be)
        return trl_fail_nomem(err, sizeof(*be), "the reference backend");
    trl_host_fill(be);
    be->name = "ref";
    be->pool = opt->pool;
    be->describe = describe;
    be->close = close_ref;
#define X(name) be->ops.name = trl_ref_##name;
    TRL_OPS(X)
#undef X
    *ret = be;
    return 0;
}
