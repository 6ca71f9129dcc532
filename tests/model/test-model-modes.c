/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to run: checkpointing, packing, mixed precision, 16-bit weights, frozen parameters, noise;
 * and their memory. */
#include "model-test.h"

#include <jansson.h>

#include "base/alloc.h"

static const struct {
    const char *dtype;
    enum trl_dtype compute;
} modes[] = {{NULL, TRL_DTYPE_F32}, {NULL, TRL_DTYPE_BF16}, {NULL, TRL_DTYPE_F16},
    {"bfloat16", TRL_DTYPE_F32}};

static void *copy_grads(const struct model_test *t)
{
    void *p = malloc(t->m->grads_size);
    memcpy(p, t->m->params.grads, t->m->grads_size);
    return p;
}

/* Recomputing a layer gives the same bits as having kept it. */
static void checkpointing(void **state)
{
    for (int i = 0; model_test_names[i]; i++)
        for (int k = 0; k < 4; k++) {
            void *grads[2];
            double loss[2];
            size_t size = 0;
            for (int ck = 0; ck < 2; ck++) {
                struct model_test t;
                struct model_test_batch b;
                model_test_open(
                    &t, "cpu", model_test_names[i], modes[k].dtype, modes[k].compute, true, ck);
                model_test_batch_open(&b, &t, "batch_right");
                t.m->cfg.resid_dropout = t.m->cfg.learned_positions ? 0.1 : 0;
                t.m->cfg.embd_dropout = t.m->cfg.attn_dropout = t.m->cfg.resid_dropout;
                loss[ck] = model_test_step(&t, &b);
                grads[ck] = copy_grads(&t);
                size = t.m->grads_size;
                model_test_batch_close(&b);
                model_test_close(&t);
            }
            if (loss[0] != loss[1] || memcmp(grads[0], grads[1], size) != 0)
                fail_msg(
                    "%s in mode %d: checkpointing changes the gradients", model_test_names[i], k);
            free(grads[0]);
            free(grads[1]);
        }
}

/* Three sequences in one micro-batch, in another order, give what each gives alone. */
static void packed_rows(void **state)
{
    static const char *const seq[] = {"seq_b", "seq_a", "seq_c"};
    for (int i = 0; model_test_names[i]; i++) {
        struct model_test t;
        struct trl_err err = {0};
        int32_t ids[128], pos[128];
        int64_t start[4] = {0}, n = 0;
        model_test_open(&t, "cpu", model_test_names[i], NULL, TRL_DTYPE_F32, false, false);
        int64_t v = t.m->cfg.vocab;
        for (int s = 0; s < 3; s++) {
            struct model_test_batch b;
            model_test_batch_open(&b, &t, seq[s]);
            memcpy(ids + n, b.ids, (size_t)b.tk.n * 4);
            memcpy(pos + n, b.positions, (size_t)b.tk.n * 4);
            n += b.tk.n;
            start[s + 1] = n;
            model_test_batch_close(&b);
        }
        struct trl_tokens tk = {.n = n,
            .n_docs = 3,
            .ids = ids,
            .positions = pos,
            .doc_start = start,
            .padded_length = n};
        assert_trl_ok(trl_model_forward(t.m, &tk, false, &err), &err);
        float *logits = malloc((size_t)(n * v) * 4);
        int32_t all[128];
        for (int k = 0; k < n; k++)
            all[k] = k;
        assert_trl_ok(trl_model_logits(t.m, all, n, logits, &err), &err);
        for (int s = 0; s < 3; s++) {
            char name[64];
            int64_t size;
            snprintf(name, sizeof(name), "%s.logits", seq[s]);
            float *want = model_test_tensor(&t, name, &size, NULL);
            double rel = model_test_rel(logits + start[s] * v, want, size);
            if (!(rel <= 1e-4))
                fail_msg("%s packed: %s is off by %g", model_test_names[i], seq[s], rel);
            free(want);
        }
        free(logits);
        model_test_close(&t);
    }
}

/* Loss and gradient norms of torch under autocast (recorded in autocast.json), within the spread of
 * the rounding. */
static void autocast(void **state)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/tests/model/autocast.json", getenv("TRL_SOURCE_ROOT"));
    json_t *gold = json_load_file(path, 0, NULL), *g;
    const char *key;
    assert_non_null(gold);
    json_object_foreach(gold, key, g)
    {
        char name[64];
        bool f16 = strstr(key, "/float16");
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(key, "/"), key);
        for (int be = 0; be < 2; be++) {
            struct model_test t;
            struct model_test_batch b;
            model_test_open(&t, be ? "cpu" : "ref", name, NULL,
                f16 ? TRL_DTYPE_F16 : TRL_DTYPE_BF16, true, false);
            model_test_batch_open(&b, &t, "batch_right");
            double loss = model_test_step(&t, &b),
                   want = json_number_value(json_object_get(g, "loss"));
            if (!(fabs(loss - want) <= (f16 ? 5e-4 : 8e-3)))
                fail_msg("%s: loss %.6f, torch has %.6f", key, loss, want);
            const json_t *l2 = json_object_get(g, "l2");
            for (int k = 0; k < t.m->params.n; k++) {
                const struct trl_param *p = &t.m->params.items[k];
                const float *x = trl_param_at(t.m->params.grads, TRL_DTYPE_F32, p);
                double sq = 0, w = json_number_value(json_object_get(l2, p->name));
                for (int64_t e = 0; e < p->numel; e++)
                    sq += (double)x[e] * x[e];
                if (!(fabs(sqrt(sq) - w) <= (f16 ? 3e-3 : 2e-2) * w))
                    fail_msg(
                        "%s: gradient of %s has norm %g, torch has %g", key, p->name, sqrt(sq), w);
            }
            model_test_batch_close(&b);
            model_test_close(&t);
        }
    }
    json_decref(gold);
}

/* Rounding really takes place: the loss moves by about the epsilon of the type. */
static void rounding_shows(void **state)
{
    double loss[3];
    for (int k = 0; k < 3; k++) {
        struct model_test t;
        struct model_test_batch b;
        model_test_open(&t, "cpu", "tiny-llama", NULL, modes[k].compute, true, false);
        model_test_batch_open(&b, &t, "batch_right");
        loss[k] = model_test_step(&t, &b);
        model_test_batch_close(&b);
        model_test_close(&t);
    }
    assert_true(fabs(loss[1] - loss[0]) > 1e-5 && fabs(loss[1] - loss[0]) < 1e-2);
    assert_true(fabs(loss[2] - loss[0]) > 1e-7 && fabs(loss[2] - loss[0]) < 1e-3);
}

/* 16-bit weights, gradients and residual stream, against the golden of the bfloat16 model */
static void bf16_weights(void **state)
{
    struct model_test t;
    struct model_test_batch b;
    model_test_open(&t, "cpu", "tiny-llama-bf16", "auto", TRL_DTYPE_F32, true, false);
    assert_int_equal(t.m->params.dtype, TRL_DTYPE_BF16);
    assert_null(t.m->params.copy);
    model_test_batch_open(&b, &t, "batch_right");
    json_t *g = json_load_file(trl_test_data("golden/model-goldens/tiny-llama-bf16.json"), 0, NULL);
    double want = json_number_value(json_object_get(g, "loss")), loss = model_test_step(&t, &b);
    assert_true(fabs(loss - want) < 1e-2);
    for (int k = 0; k < t.m->params.n; k++) {
        const struct trl_param *p = &t.m->params.items[k];
        char name[256];
        snprintf(name, sizeof(name), "grad.%s", p->name);
        float *w = model_test_tensor(&t, name, NULL, NULL), *x = malloc((size_t)p->numel * 4);
        trl_dtype_convert(TRL_DTYPE_F32, x, TRL_DTYPE_BF16,
            trl_param_at(t.m->params.grads, TRL_DTYPE_BF16, p), (size_t)p->numel);
        if (w && !(model_test_rel(x, w, p->numel) < 4e-2))
            fail_msg("%s is off by %g", name, model_test_rel(x, w, p->numel));
        free(w);
        free(x);
    }
    json_decref(g);
    model_test_batch_close(&b);
    model_test_close(&t);
}

/* Frozen parameters get no gradient, the others theirs as before. */
static void frozen(void **state)
{
    for (int i = 0; model_test_names[i]; i++) {
        struct model_test t;
        struct model_test_batch b;
        model_test_open(&t, "cpu", model_test_names[i], NULL, TRL_DTYPE_F32, true, false);
        model_test_batch_open(&b, &t, "batch_right");
        model_test_step(&t, &b);
        float *all = copy_grads(&t);
        for (int k = 0; k < t.m->params.n; k++)
            t.m->params.items[k].trainable = k % 3 != 0;
        model_test_step(&t, &b);
        for (int k = 0; k < t.m->params.n; k++) {
            const struct trl_param *p = &t.m->params.items[k];
            const float *g = trl_param_at(t.m->params.grads, TRL_DTYPE_F32, p);
            double rel = model_test_rel(g, all + p->offset, p->numel), max = 0;
            for (int64_t e = 0; e < p->numel; e++)
                max = fmax(max, fabs((double)g[e]));
            if (p->trainable ? !(rel < 1e-5) : max != 0)
                fail_msg("%s: %s trainable %d: rel %g max %g", model_test_names[i], p->name,
                    p->trainable, rel, max);
        }
        free(all);
        model_test_batch_close(&b);
        model_test_close(&t);
    }
}

struct ready {
    struct model_test *t;
    float *final;
    int next;
    bool ok;
};

static void on_ready(void *ctx, int order)
{
    struct ready *r = ctx;
    r->ok = r->ok && order == r->next++;
    for (int k = 0; k < r->t->m->params.n; k++) {
        const struct trl_param *p = &r->t->m->params.items[k];
        if (p->ready_order == order)
            memcpy(r->final + p->offset, trl_param_at(r->t->m->params.grads, TRL_DTYPE_F32, p),
                (size_t)p->numel * 4);
    }
}

/* A gradient does not change any more after it was announced. */
static void ready_order(void **state)
{
    for (int i = 0; model_test_names[i]; i++) {
        struct model_test t;
        struct model_test_batch b;
        struct trl_err err = {0};
        model_test_open(&t, "cpu", model_test_names[i], NULL, TRL_DTYPE_F32, true, true);
        model_test_batch_open(&b, &t, "batch_right");
        struct ready r = {&t, calloc(1, t.m->grads_size), 0, true};
        struct model_test_mean mean = {44};
        struct trl_head_args args = {.targets = b.targets,
            .want_grad = true,
            .coef = model_test_mean_coef,
            .coef_ctx = &mean};
        assert_trl_ok(trl_model_forward(t.m, &b.tk, true, &err), &err);
        assert_trl_ok(trl_model_head(t.m, &args, &err), &err);
        assert_trl_ok(trl_model_backward(t.m, on_ready, &r, &err), &err);
        assert_true(r.ok);
        assert_int_equal(r.next, trl_model_n_ready(t.m));
        assert_memory_equal(r.final, t.m->params.grads, t.m->grads_size);
        free(r.final);
        /* a second backward, or logits after it, have nothing to work on */
        float row[1024];
        assert_int_equal(trl_model_backward(t.m, NULL, NULL, &err), TRL_E_USAGE);
        assert_int_equal(trl_model_logits(t.m, (int32_t[]){0}, 1, row, &err), TRL_E_USAGE);
        model_test_batch_close(&b);
        model_test_close(&t);
    }
}

/* The plan is what prepare takes. */
static int count_params(void *ctx, const struct trl_params *params, struct trl_err *err)
{
    (void)err;
    *(int64_t *)ctx = params->numel;
    return 0;
}

static void memory(void **state)
{
    for (int i = 0; model_test_names[i]; i++)
        for (int ck = 0; ck < 2; ck++) {
            struct model_test t;
            struct trl_err err = {0};
            struct trl_model_plan plan;
            struct trl_model_info info;
            int64_t n_params;
            char path[256];
            model_test_open(&t, "cpu", model_test_names[i], NULL, TRL_DTYPE_BF16, true, ck);
            snprintf(path, sizeof(path), "golden/models/%s", model_test_names[i]);
            struct trl_model_options o = {.path = trl_test_data(path), .compute = TRL_DTYPE_BF16};
            assert_trl_ok(
                trl_model_plan(&o, t.be, &t.m->cap, &plan, &info, count_params, &n_params, &err),
                &err);
            assert_int_equal(plan.weights, t.m->weights_size);
            assert_int_equal(plan.copy, t.m->copy_size);
            assert_int_equal(plan.grads, t.m->grads_size);
            assert_int_equal(plan.activations + plan.head + plan.scratch, t.m->slab_size);
            assert_int_equal(n_params, t.m->params.numel);
            model_test_close(&t);
        }
}

/* After the first step nothing is allocated, whatever is scored and however long the rows are. */
static void no_allocation(void **state)
{
    static const char *const seq[] = {"seq_a", "batch_right", "seq_b", "seq_c"};
    for (int i = 0; model_test_names[i]; i++)
        for (int k = 0; k < 4; k++) {
            struct model_test t;
            model_test_open(
                &t, "cpu", model_test_names[i], modes[k].dtype, modes[k].compute, true, k % 2);
            uint64_t calls = 0;
            for (int s = 0; s < 4; s++) {
                struct model_test_batch b;
                model_test_batch_open(&b, &t, seq[s]);
                model_test_step(&t, &b);
                if (s == 0)
                    calls = trl_alloc_calls();
                b.targets[3] = -1;
                model_test_step(&t, &b);
                if (trl_alloc_calls() != calls)
                    fail_msg("%s in mode %d allocates in step %d", model_test_names[i], k, s);
                model_test_batch_close(&b);
            }
            model_test_close(&t);
        }
}

static void bad_tokens(void **state)
{
    struct model_test t;
    struct trl_err err = {0};
    model_test_open(&t, "ref", "tiny-gpt2", NULL, TRL_DTYPE_F32, false, false);
    int32_t ids[3] = {1, 2, 3}, pos[3] = {0, 1, 2}, targets[3] = {2, 3, -1};
    int64_t start[2] = {0, 3};
    struct trl_tokens tk = {
        .n = 3, .n_docs = 1, .ids = ids, .positions = pos, .doc_start = start, .padded_length = 3};
    ids[1] = 640;
    assert_int_equal(trl_model_forward(t.m, &tk, false, &err), TRL_E_RANGE);
    assert_non_null(strstr(err.text, "token id 640 at index 1"));
    ids[1] = -1;
    assert_int_equal(trl_model_forward(t.m, &tk, false, &err), TRL_E_RANGE);
    ids[1] = 2;
    pos[2] = 160;
    assert_int_equal(trl_model_forward(t.m, &tk, false, &err), TRL_E_RANGE);
    pos[2] = 2;
    start[1] = 2;
    assert_int_equal(trl_model_forward(t.m, &tk, false, &err), TRL_E_RANGE);
    start[1] = 3;
    tk.n = 161;
    assert_int_equal(trl_model_forward(t.m, &tk, false, &err), TRL_E_RANGE);
    tk.n = 3;
    assert_int_equal(trl_model_forward(t.m, &tk, true, &err), TRL_E_USAGE);
    struct trl_head_args args = {.targets = targets};
    assert_int_equal(trl_model_head(t.m, &args, &err), TRL_E_USAGE);
    assert_trl_ok(trl_model_forward(t.m, &tk, false, &err), &err);
    targets[0] = 640;
    assert_int_equal(trl_model_head(t.m, &args, &err), TRL_E_RANGE);
    model_test_close(&t);
    /* learned positions end at 256 */
    struct trl_model_options o = {.path = trl_test_data("golden/models/tiny-gpt2")};
    struct trl_model_capacity cap = {.max_tokens = 300, .max_docs = 1, .max_position = 300};
    struct trl_model_plan plan;
    assert_int_equal(trl_model_plan(&o, NULL, &cap, &plan, NULL, NULL, NULL, &err), TRL_E_RANGE);
    assert_non_null(strstr(err.text, "256 learned positions"));
}

/* A micro-batch without a token, or without a label, has a zero gradient. */
static void nothing_scored(void **state)
{
    struct model_test t;
    struct model_test_batch b;
    struct trl_err err = {0};
    model_test_open(&t, "cpu", "tiny-qwen3", NULL, TRL_DTYPE_F32, true, false);
    model_test_batch_open(&b, &t, "batch_right");
    for (int64_t n = 0; n <= b.tk.n; n += b.tk.n) {
        struct trl_tokens tk = b.tk;
        struct model_test_mean mean = {1};
        int64_t none[2] = {0, 0};
        tk.n = n;
        if (n == 0) {
            tk.doc_start = none;
            tk.n_docs = 1;
        }
        for (int64_t i = 0; i < n; i++)
            b.targets[i] = -1;
        struct trl_head_args args = {.targets = b.targets,
            .want_grad = true,
            .coef = model_test_mean_coef,
            .coef_ctx = &mean};
        assert_trl_ok(trl_model_zero_grads(t.m, &err), &err);
        assert_trl_ok(trl_model_forward(t.m, &tk, true, &err), &err);
        assert_trl_ok(trl_model_head(t.m, &args, &err), &err);
        assert_trl_ok(trl_model_backward(t.m, NULL, NULL, &err), &err);
        const float *g = t.m->params.grads;
        for (int64_t i = 0; i < t.m->params.slab_elems; i++)
            assert_true(g[i] == 0);
    }
    model_test_batch_close(&b);
    model_test_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpointing),
        cmocka_unit_test(packed_rows),
        cmocka_unit_test(autocast),
        cmocka_unit_test(rounding_shows),
        cmocka_unit_test(bf16_weights),
        cmocka_unit_test(frozen),
        cmocka_unit_test(ready_order),
        cmocka_unit_test(memory),
        cmocka_unit_test(no_allocation),
        cmocka_unit_test(bad_tokens),
        cmocka_unit_test(nothing_scored),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
