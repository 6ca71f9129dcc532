/* SPDX-License-Identifier: Apache-2.0 */
/* Optimiser state through a file: the steps after a restart have the same bits; foreign files change nothing. */
#include "optim-fixture.h"

#include <unistd.h>

#include "base/fileio.h"
#include "base/rng.h"

static char dir[256];

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/trl-optim-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return trl_rmtree(dir, NULL);
}

static const char *in_dir(const char *name)
{
    static char buf[2][512];
    static int next;
    char *p = buf[next++ % 2];
    snprintf(p, sizeof(buf[0]), "%s/%s", dir, name);
    return p;
}

static void noise(struct fixture *f, void *slab, uint64_t seed)
{
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < f->items[k].numel; i++)
            trl_dtype_store(f->params.dtype, trl_param_at(slab, f->params.dtype, &f->items[k]), (size_t)i,
                (float)(trl_hash_rng(seed, (uint64_t)(f->items[k].offset + i)) >> 40) / 16777216.0f - 0.5f);
}

static void steps(struct fixture *f, struct trl_optim *o, int from, int to)
{
    struct trl_err err;
    for (int i = from; i < to; i++) {
        noise(f, f->params.grads, (uint64_t)i + 100);
        assert_trl_ok(trl_optim_step(o, 0.01, 0.5, &err), &err);
    }
}

static void check_resume(const char *name, const char *args, enum trl_dtype t)
{
    struct trl_err err;
    struct fixture f, g;
    struct trl_optim *o, *p;
    struct trl_optim_config cfg = {.name = name, .args = args, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1};
    size_t bytes = SLAB * trl_dtype_size(t);
    open_fixture(&f, "ref", t, false);
    open_fixture(&g, "ref", t, false);
    noise(&f, f.params.weights, 1);
    assert_trl_ok(trl_optim_new(&o, f.be, &f.params, &cfg, &err), &err);
    steps(&f, o, 0, 3);
    assert_trl_ok(trl_optim_save(o, in_dir("optimizer.safetensors"), &err), &err);
    memcpy(g.params.weights, f.params.weights, bytes);
    assert_trl_ok(trl_optim_new(&p, g.be, &g.params, &cfg, &err), &err);
    assert_trl_ok(trl_optim_load(p, in_dir("optimizer.safetensors"), &err), &err);
    assert_int_equal(trl_optim_steps(p), 3);
    steps(&f, o, 3, 6);
    steps(&g, p, 3, 6);
    assert_memory_equal(f.params.weights, g.params.weights, bytes);
    trl_optim_free(o);
    trl_optim_free(p);
    close_fixture(&f);
    close_fixture(&g);
}

static void test_resume(void **state)
{
    (void)state;
    check_resume("adamw_torch", NULL, TRL_DTYPE_F32);
    check_resume("adamw_torch_fused", NULL, TRL_DTYPE_BF16);
    check_resume("sgd", NULL, TRL_DTYPE_F32);
    check_resume("sgd", "momentum=0.9", TRL_DTYPE_F32);
    check_resume("lion_32bit", NULL, TRL_DTYPE_F32);
    check_resume("adafactor", NULL, TRL_DTYPE_F32);
    check_resume("adafactor", NULL, TRL_DTYPE_BF16);
}

static void must_fail(struct trl_optim *o, const char *text)
{
    struct trl_err err = {0};
    assert_true(trl_optim_load(o, in_dir("optimizer.safetensors"), &err) != 0);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" lacks \"%s\"", err.text, text);
    assert_int_equal(trl_optim_steps(o), 0);
}

static void test_foreign(void **state)
{
    (void)state;
    struct trl_err err;
    struct fixture f;
    struct trl_optim *adam, *sgd, *other;
    struct trl_optim_config a = {.name = "adamw_torch", .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, s = a;
    s.name = "sgd";
    open_fixture(&f, "ref", TRL_DTYPE_F32, false);
    assert_trl_ok(trl_optim_new(&adam, f.be, &f.params, &a, &err), &err);
    assert_trl_ok(trl_optim_new(&sgd, f.be, &f.params, &s, &err), &err);
    assert_trl_ok(trl_optim_save(sgd, in_dir("optimizer.safetensors"), &err), &err);
    must_fail(adam, "exp_avg.a.weight\" is missing");
    assert_trl_ok(trl_optim_save(adam, in_dir("optimizer.safetensors"), &err), &err);
    must_fail(sgd, "has 5 tensors");
    f.items[0].shape[0] = COLS;
    f.items[0].shape[1] = ROWS;
    assert_trl_ok(trl_optim_new(&other, f.be, &f.params, &a, &err), &err);
    must_fail(other, "another shape");
    trl_optim_free(other);
    assert_int_equal(truncate(in_dir("optimizer.safetensors"), 100), 0);
    must_fail(adam, "optimizer.safetensors");
    assert_int_equal(unlink(in_dir("optimizer.safetensors")), 0);
    must_fail(adam, "optimizer.safetensors");
    assert_true(trl_optim_save(adam, in_dir("no/such/folder"), &err) != 0);
    trl_optim_free(adam);
    trl_optim_free(sgd);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
