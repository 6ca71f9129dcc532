/* SPDX-License-Identifier: Apache-2.0 */
#include "hw/cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static struct trl_cpu cpu = {.model = "unknown"};
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
/* arch_prctl: permission for a state component that is off by default (Linux 5.16) */
enum { ARCH_GET_XCOMP_PERM_ = 0x1022, ARCH_REQ_XCOMP_PERM_ = 0x1023, XFEATURE_XTILEDATA_ = 18 };
/* XCR0 bits: SSE, AVX; opmask, upper halves, upper registers; tile configuration and data */
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_AMX = 0x60000 };

static uint64_t enabled_states(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool amx_granted(void)
{
    uint64_t mask = 0;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_, XFEATURE_XTILEDATA_) != 0)
        return false;
    return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_PERM_, &mask) == 0 &&
        (mask >> XFEATURE_XTILEDATA_ & 1);
}

static void read_model(void)
{
    uint32_t r[12] = {0};
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u)
        return;
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    char text[sizeof(r) + 1] = {0};
    memcpy(text, r, sizeof(r));
    const char *p = text;
    while (*p == ' ')
        p++;
    if (*p) {
        memcpy(cpu.model, p, strlen(p) + 1);
        for (size_t n = strlen(cpu.model); n > 0 && cpu.model[n - 1] == ' '; n--)
            cpu.model[n - 1] = '\0';
    }
}

static void detect(void)
{
    uint32_t a, b, c, d, b7, c7, d7;
    read_model();
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return;
    uint64_t states = enabled_states();
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return;
    cpu.avx2 = (states & XCR0_AVX) == XCR0_AVX && (c & bit_AVX) && (c & bit_FMA) &&
        (c & bit_F16C) && (b7 & bit_AVX2);
    uint32_t want = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    cpu.avx512 = cpu.avx2 && (states & XCR0_AVX512) == XCR0_AVX512 && (b7 & want) == want;
    uint32_t a71 = 0;
    if (a >= 1 && __get_cpuid_count(7, 1, &a71, &b, &c, &d))
        cpu.avx512_bf16 = cpu.avx512 && (a71 >> 5 & 1);
    bool tiles = (d7 >> 22 & 1) && (d7 >> 24 & 1); /* AMX-BF16, AMX-TILE */
    cpu.amx_bf16 = cpu.avx512_bf16 && tiles && (states & XCR0_AMX) == XCR0_AMX && amx_granted();
    cpu.best = cpu.amx_bf16 ? TRL_ISA_AMX
        : cpu.avx512        ? TRL_ISA_AVX512
        : cpu.avx2          ? TRL_ISA_AVX2
                            : TRL_ISA_BASELINE;
}
#else
static void detect(void)
{
    cpu.best = TRL_ISA_BASELINE;
}
#endif

const struct trl_cpu *trl_cpu_get(void)
{
    pthread_once(&once, detect);
    return &cpu;
}

static const char *const isa_names[TRL_ISA_MAX_] = {
#define X(name, text) text,
    TRL_ISAS(X)
#undef X
};

const char *trl_isa_name(enum trl_isa isa)
{
    return isa_names[isa];
}

int trl_isa_find(const char *name, enum trl_isa *ret)
{
    for (int i = 0; i < TRL_ISA_MAX_; i++)
        if (!strcmp(name, isa_names[i])) {
            *ret = (enum trl_isa)i;
            return 0;
        }
    return -1;
}
