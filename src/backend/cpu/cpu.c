/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"

int trl_cpu_open(struct trl_backend **ret, const struct trl_backend_options *opt, struct trl_err *err)
{
    int rc = trl_ref_open(ret, opt, err);
    if (rc == 0)
        (*ret)->name = "cpu";
    return rc;
}
