/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"

#include <string.h>

#include "base/alloc.h"

static void *mem_alloc(struct trl_backend *be, size_t size)
{
    (void)be;
    return trl_slab_new(size);
}

static void mem_free(struct trl_backend *be, void *p, size_t size)
{
    (void)be;
    trl_slab_free(p, size);
}

static int copy_in(struct trl_backend *be, void *dev, const void *host, size_t size)
{
    (void)be;
    if (size)
        memcpy(dev, host, size);
    return 0;
}

static int copy_out(struct trl_backend *be, void *host, const void *dev, size_t size)
{
    return copy_in(be, host, dev, size);
}

static int fill_zero(struct trl_backend *be, void *dev, size_t size)
{
    (void)be;
    if (size)
        memset(dev, 0, size);
    return 0;
}

static int nothing_to_wait_for(struct trl_backend *be)
{
    (void)be;
    return 0;
}

static void nothing_packed(struct trl_backend *be)
{
    (void)be;
}

static size_t no_pack_bytes(struct trl_backend *be, const struct trl_op_gemm *a)
{
    (void)be;
    (void)a;
    return 0;
}

void trl_host_fill(struct trl_backend *be)
{
    be->mem_alloc = mem_alloc;
    be->mem_free = mem_free;
    be->copy_in = copy_in;
    be->copy_out = copy_out;
    be->fill_zero = fill_zero;
    be->sync = nothing_to_wait_for;
    be->weights_changed = nothing_packed;
    be->weight_pack_bytes = no_pack_bytes;
}
