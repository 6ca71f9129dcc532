/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_HW_CPU_H
#define TRL_HW_CPU_H
/* What the processor can do AND the operating system has enabled for this process. */
#include <stdbool.h>

/* Levels of vector instructions that kernels are compiled for, each including the ones before. */
#define TRL_ISAS(X) \
    X(BASELINE, "baseline") \
    X(AVX2, "avx2") \
    X(AVX512, "avx512") \
    X(AMX, "amx")

enum trl_isa {
#define X(name, text) TRL_ISA_##name,
    TRL_ISAS(X)
#undef X
        TRL_ISA_MAX_
};

struct trl_cpu {
    char model[64]; /* "Intel(R) Xeon(R) Processor"; "unknown" where cpuid does not tell */
    bool avx2; /* with FMA and F16C */
    bool avx512; /* F, BW, DQ, VL */
    bool avx512_bf16;
    bool amx_bf16; /* tiles granted to this process by arch_prctl */
    enum trl_isa best;
};
/* Looked up once; asks the kernel for the AMX state on first use. Call it before threads start. */
const struct trl_cpu *trl_cpu_get(void);
const char *trl_isa_name(enum trl_isa isa);
int trl_isa_find(const char *name, enum trl_isa *ret); /* 0 or -1 */

#endif
