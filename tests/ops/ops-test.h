/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_OPS_TEST_H
#define TRL_OPS_TEST_H
/*
 * One case = a list of buffers and a function that runs an op on them. op_check() runs it on the
 * reference and on every instruction set of this machine with 1..4 threads, twice, and holds the
 * outputs against the reference (normalised mean square error), the guard zones, the inputs, and
 * the bits of the other runs.
 */
#include "../trl-test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "hw/cpu.h"
#include "tensor/backend.h"

enum op_kind { OP_IN, OP_OUT, OP_INOUT };
enum { OP_MAX_BUFS = 24, OP_GUARD = 128, OP_MAX_RAW = 8 };

struct op_buf {
    enum op_kind kind;
    enum trl_dtype dtype;
    size_t raw; /* bytes an element where it is no float; 0: dtype */
    size_t n;
    size_t misalign; /* bytes */
    double tol; /* normalised MSE */
    char *master; /* what each run starts from */
    char *now; /* base of the run's copy, guards included */
};
struct op_case {
    char label[200];
    int n;
    struct op_buf bufs[OP_MAX_BUFS];
    int (*run)(struct trl_backend *be, struct op_case *c);
    void *ctx;
    bool bits_may_differ_by_isa;
};

static inline size_t op_elem(const struct op_buf *b)
{
    return b->raw ? b->raw : trl_dtype_size(b->dtype);
}
/* The pointer that run() uses. */
static inline void *op_ptr(struct op_case *c, int i)
{
    return c->bufs[i].now + OP_GUARD + c->bufs[i].misalign;
}
/* Values like activations: a sum of uniforms (mean 0, deviation `scale`), fixed by the seed. */
static inline double op_random(uint64_t seed, uint64_t i)
{
    double sum = 0;
    for (uint64_t j = 0; j < 4; j++)
        sum += (double)(trl_hash_rng(seed, 4 * i + j) >> 11) * 0x1p-53 - 0.5;
    return sum * 1.7320508;
}
static inline double op_tolerance(enum trl_dtype t)
{
    /* squared unit roundoff with room for results that round the other way */
    return t == TRL_DTYPE_F32 ? 1e-12 : t == TRL_DTYPE_BF16 ? 3e-5 : 5e-7;
}

/* scale 0: zeros. OUT buffers start as NaN. Returns the buffer's number. */
static inline int op_add(
    struct op_case *c, enum op_kind kind, enum trl_dtype dtype, size_t n, double scale)
{
    assert_true(c->n < OP_MAX_BUFS);
    struct op_buf *b = &c->bufs[c->n];
    *b = (struct op_buf){.kind = kind,
        .dtype = dtype,
        .n = n,
        .tol = op_tolerance(dtype),
        .misalign = (size_t)(c->n % 3) * trl_dtype_size(dtype)};
    b->master = trl_malloc(n * op_elem(b));
    for (size_t i = 0; i < n; i++)
        trl_dtype_store(dtype, b->master, i,
            kind == OP_OUT ? NAN : (float)(scale * op_random((uint64_t)(1000 + c->n), i)));
    return c->n++;
}
/* Elements of another type; data copied. */
static inline int op_add_raw(
    struct op_case *c, enum op_kind kind, size_t elem, size_t n, const void *data)
{
    assert_true(c->n < OP_MAX_BUFS);
    struct op_buf *b = &c->bufs[c->n];
    *b = (struct op_buf){.kind = kind, .raw = elem, .n = n};
    b->master = trl_calloc(n, elem);
    if (data && n)
        memcpy(b->master, data, n * elem);
    return c->n++;
}

static inline void op_reset(struct op_case *c)
{
    for (int i = 0; i < c->n; i++) {
        struct op_buf *b = &c->bufs[i];
        size_t bytes = b->n * op_elem(b), total = bytes + b->misalign + 2 * OP_GUARD;
        if (!b->now)
            b->now = trl_malloc(total);
        memset(b->now, 0xa5, total);
        memcpy(b->now + OP_GUARD + b->misalign, b->master, bytes);
    }
}
static inline void op_check_guards(struct op_case *c)
{
    for (int i = 0; i < c->n; i++) {
        struct op_buf *b = &c->bufs[i];
        size_t bytes = b->n * op_elem(b), begin = OP_GUARD + b->misalign,
               total = begin + bytes + OP_GUARD;
        for (size_t j = 0; j < total; j++)
            if ((j < begin || j >= begin + bytes) && (unsigned char)b->now[j] != 0xa5)
                fail_msg("%s: buffer %d: byte %zd outside its %zu bytes was written", c->label, i,
                    (ssize_t)j - (ssize_t)begin, bytes);
        if (b->kind == OP_IN && memcmp(b->now + begin, b->master, bytes) != 0)
            fail_msg("%s: input buffer %d was changed", c->label, i);
    }
}
static inline double op_nmse(enum trl_dtype t, const void *got, const void *want, size_t n)
{
    double err = 0, ref = 0;
    for (size_t i = 0; i < n; i++) {
        double x = trl_dtype_load(t, got, i), y = trl_dtype_load(t, want, i);
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        err += (x - y) * (x - y);
        ref += y * y;
    }
    for (size_t i = 0; i < n; i++) {
        double x = trl_dtype_load(t, got, i), y = trl_dtype_load(t, want, i);
        ref += x == y && isfinite(y) ? y * y : 0;
    }
    return err == 0 ? 0 : err / (ref > 1e-30 ? ref : 1e-30);
}

static inline void op_compare(struct op_case *c, char *const *want, const char *where)
{
    for (int i = 0; i < c->n; i++) {
        struct op_buf *b = &c->bufs[i];
        if (b->kind == OP_IN)
            continue;
        if (b->raw) {
            if (memcmp(op_ptr(c, i), want[i], b->n * b->raw) != 0)
                fail_msg("%s on %s: buffer %d differs", c->label, where, i);
            continue;
        }
        double e = op_nmse(b->dtype, op_ptr(c, i), want[i], b->n);
        if (!(e <= b->tol))
            fail_msg("%s on %s: buffer %d: normalised MSE %g, allowed %g", c->label, where, i, e,
                b->tol);
    }
}
static inline void op_save(struct op_case *c, char **to)
{
    for (int i = 0; i < c->n; i++) {
        size_t bytes = c->bufs[i].n * op_elem(&c->bufs[i]);
        to[i] = trl_malloc(bytes);
        memcpy(to[i], op_ptr(c, i), bytes);
    }
}
static inline void op_drop(struct op_case *c, char **p)
{
    for (int i = 0; i < c->n; i++)
        trl_free(p[i]);
}

/* Backends shared by all cases of a process: [0] the reference, then ISA x threads. */
struct op_backend {
    struct trl_backend *be;
    struct trl_pool *pool;
    char where[64];
    int isa, threads;
};
static struct op_backend op_backends[1 + TRL_ISA_MAX_ * 4];
static int op_n_backends;

static inline void op_open_backends(void)
{
    struct trl_err err = {0};
    if (op_n_backends)
        return;
    struct trl_backend_options ref = {.name = "ref"};
    assert_trl_ok(trl_backend_open(&op_backends[op_n_backends++].be, &ref, &err), &err);
    for (int isa = 0; isa <= (int)trl_cpu_get()->best; isa++)
        for (int threads = 1; threads <= 4; threads++) {
            struct op_backend *b = &op_backends[op_n_backends++];
            b->isa = isa;
            b->threads = threads;
            assert_trl_ok(trl_pool_new(&b->pool, threads, NULL, NULL, &err), &err);
            struct trl_backend_options opt = {
                .name = "cpu", .isa = trl_isa_name((enum trl_isa)isa), .pool = b->pool};
            assert_trl_ok(trl_backend_open(&b->be, &opt, &err), &err);
            snprintf(b->where, sizeof(b->where), "%s, %d threads", trl_isa_name((enum trl_isa)isa),
                threads);
        }
}
static inline int op_close_backends(void **state)
{
    (void)state;
    for (int i = 0; i < op_n_backends; i++) {
        trl_backend_close(op_backends[i].be);
        trl_pool_free(op_backends[i].pool);
    }
    op_n_backends = 0;
    return 0;
}

/* Bits of this run against those of the same instruction set with one thread. */
static inline void op_same_bits(struct op_case *c, char *const *first, const char *where)
{
    for (int i = 0; i < c->n; i++)
        if (c->bufs[i].kind != OP_IN &&
            memcmp(op_ptr(c, i), first[i], c->bufs[i].n * op_elem(&c->bufs[i])) != 0)
            fail_msg("%s on %s: buffer %d: other bits than with one thread", c->label, where, i);
}

/* Runs and frees the case. */
static inline void op_check(struct op_case *c)
{
    char *want[OP_MAX_BUFS], *first[OP_MAX_BUFS];
    op_open_backends();
    op_reset(c);
    assert_int_equal(c->run(op_backends[0].be, c), 0);
    op_check_guards(c);
    op_save(c, want);
    for (int i = 1; i < op_n_backends; i++) {
        struct op_backend *b = &op_backends[i];
        for (int again = 0; again < (b->threads == 1 ? 2 : 1); again++) {
            op_reset(c);
            assert_int_equal(c->run(b->be, c), 0);
            op_check_guards(c);
            if (b->threads == 1 && again == 0) {
                op_compare(c, want, b->where);
                op_save(c, first);
            } else {
                op_same_bits(c, first, b->where);
            }
        }
        if (b->threads == 4)
            op_drop(c, first);
    }
    op_drop(c, want);
    for (int i = 0; i < c->n; i++) {
        trl_free(c->bufs[i].master);
        trl_free(c->bufs[i].now);
    }
    *c = (struct op_case){0};
}

#endif
