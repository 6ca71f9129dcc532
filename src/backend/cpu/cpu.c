/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

#include <stdio.h>

#include "backend/host.h"
#include "base/alloc.h"

/* Address space, not memory: pages are taken when they are touched. Generous steps, so that a later, longer batch seldom
 * needs a new slab. */
enum { WORK_STEP = 64 << 20 };

void *trl_cpu_work(struct trl_backend *be, size_t size)
{
    struct trl_cpu_impl *impl = trl_cpu_impl(be);
    if (size > impl->work_size || !impl->work) {
        size = (size / WORK_STEP + 1) * WORK_STEP;
        trl_slab_free(impl->work, impl->work_size);
        impl->work = trl_slab_new(size);
        impl->work_size = impl->work ? size : 0;
    }
    return impl->work;
}

static const char *describe(struct trl_backend *be)
{
    struct trl_cpu_impl *impl = trl_cpu_impl(be);
    const struct trl_gemm_kern *b = impl->gemm_bf16;
    snprintf(impl->describe, sizeof(impl->describe),
        "%s kernels; matrix products: float32 by %s, bfloat16 by %s%s; %d threads",
        trl_isa_name(impl->isa), impl->table->gemm_f32->name,
        b ? b->name : impl->table->gemm_f32->name, b ? "" : " (inputs rounded, then widened)",
        trl_pool_size(be->pool));
    return impl->describe;
}

static void close_cpu(struct trl_backend *be)
{
    struct trl_cpu_impl *impl = trl_cpu_impl(be);
    trl_cpu_free_packed(be);
    trl_slab_free(impl->work, impl->work_size);
    trl_free(impl);
    trl_free(be);
}

/* The level to use: the machine's best, or the asked one if the machine has it. */
static int choose_isa(enum trl_isa *ret, const char *name, struct trl_err *err)
{
    enum trl_isa best = trl_cpu_get()->best, built = TRL_ISA_BASELINE;
#ifdef TRL_HAVE_X86_KERNELS
    built = TRL_ISA_AVX512;
#endif
#ifdef TRL_HAVE_AMX
    built = TRL_ISA_AMX;
#endif
    *ret = best < built ? best : built;
    if (!name)
        return 0;
    enum trl_isa limit;
    if (trl_isa_find(name, &limit) != 0)
        return trl_fail(err, TRL_E_USAGE,
            "there is no instruction set '%s' here; known are baseline, avx2, avx512, amx", name);
    *ret = limit < *ret ? limit : *ret;
    return 0;
}

static void set_kernels(struct trl_backend *be, struct trl_cpu_impl *impl)
{
    impl->table = &trl_baseline_table;
#ifdef TRL_HAVE_X86_KERNELS
    if (impl->isa >= TRL_ISA_AVX512)
        impl->table = &trl_avx512_table;
    else if (impl->isa == TRL_ISA_AVX2)
        impl->table = &trl_avx2_table;
#endif
#ifdef TRL_HAVE_AMX
    if (impl->isa == TRL_ISA_AMX)
        impl->gemm_bf16 = &trl_amx_gemm_kern;
#endif
    be->ops = impl->table->ops;
}

int trl_cpu_open(
    struct trl_backend **ret, const struct trl_backend_options *opt, struct trl_err *err)
{
    enum trl_isa isa;
    int rc = choose_isa(&isa, opt->isa, err);
    if (rc != 0)
        return rc;
    struct trl_backend *be = trl_calloc(1, sizeof(*be));
    struct trl_cpu_impl *impl = trl_calloc(1, sizeof(*impl));
    if (!be || !impl) {
        trl_free(be);
        trl_free(impl);
        return trl_fail_nomem(err, sizeof(*impl), "the CPU backend");
    }
    trl_host_fill(be);
    be->name = "cpu";
    be->pool = opt->pool;
    be->impl = impl;
    impl->isa = isa;
    set_kernels(be, impl);
    be->weights_changed = trl_cpu_weights_changed;
    be->weight_pack_bytes = trl_cpu_weight_pack_bytes;
    be->describe = describe;
    be->close = close_cpu;
    *ret = be;
    return 0;
}
