/* SPDX-License-Identifier: Apache-2.0 */
/* Models on disk: saved, sharded, read back, fresh, from GGUF; and folders that contradict
 * themselves. */
#include "model-test.h"

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "gguf-writer.h"
#include "model/weights.h"

static char tmp_dir[64];

static int make_tmp(void **state)
{
    snprintf(tmp_dir, sizeof(tmp_dir), "/tmp/trl-model-XXXXXX");
    return mkdtemp(tmp_dir) ? 0 : -1;
}
static int drop_tmp(void **state)
{
    return trl_rmtree(tmp_dir, NULL);
}
static const char *in_tmp(const char *name)
{
    static char buf[4][256];
    static int k;
    snprintf(buf[++k % 4], 256, "%s/%s", tmp_dir, name);
    return buf[k % 4];
}

static struct trl_backend *ref(void)
{
    static struct trl_backend *be;
    struct trl_err err = {0};
    if (!be)
        assert_trl_ok(
            trl_backend_open(&be, &(struct trl_backend_options){.name = "ref"}, &err), &err);
    return be;
}

static struct trl_model *load(const char *path, const char *dtype)
{
    struct trl_err err = {0};
    struct trl_model *m;
    assert_trl_ok(
        trl_model_load(&m, ref(), &(struct trl_model_options){.path = path, .dtype = dtype}, &err),
        &err);
    return m;
}

static void expect_load_error(const char *path, const char *const *texts)
{
    struct trl_err err = {0};
    struct trl_model *m = NULL;
    int rc = trl_model_load(&m, ref(), &(struct trl_model_options){.path = path}, &err);
    if (rc == 0)
        fail_msg("%s loads, it should not", path);
    for (; *texts; texts++)
        if (!strstr(err.text, *texts))
            fail_msg("\"%s\" does not say \"%s\"", err.text, *texts);
}

static const char *golden(const char *name)
{
    char rel[128];
    snprintf(rel, sizeof(rel), "golden/models/%s", name);
    return trl_test_data(rel);
}

static void same_weights(const struct trl_model *a, const struct trl_model *b, double limit)
{
    assert_int_equal(a->params.n, b->params.n);
    for (int i = 0; i < a->params.n; i++) {
        const struct trl_param *p = &a->params.items[i];
        assert_string_equal(p->name, b->params.items[i].name);
        double rel = model_test_rel(trl_param_at(b->params.weights, TRL_DTYPE_F32, p),
            trl_param_at(a->params.weights, TRL_DTYPE_F32, p), p->numel);
        if (!(rel <= limit))
            fail_msg("%s is off by %g", p->name, rel);
    }
}

static void fresh_folder(const char *name)
{
    struct trl_err err = {0};
    trl_rmtree(in_tmp(name), NULL);
    assert_trl_ok(trl_mkdirs(in_tmp(name), &err), &err);
}

/* Whole and sharded, every family: the same bits come back, and stale files of an earlier save are
 * gone. */
static void save_and_load(void **state)
{
    struct trl_err err = {0};
    for (int i = 0; model_test_names[i]; i++) {
        struct trl_model *m = load(golden(model_test_names[i]), NULL);
        fresh_folder("out");
        for (int shards = 1; shards >= 0; shards--) {
            assert_trl_ok(trl_model_save(m, in_tmp("out"), NULL, shards ? 100000 : 0, &err), &err);
            assert_true(trl_path_exists(in_tmp("out/model.safetensors.index.json")) == shards);
            assert_true(trl_path_exists(in_tmp("out/model.safetensors")) == !shards);
            assert_true(trl_path_exists(in_tmp("out/generation_config.json")));
            struct trl_model *b = load(in_tmp("out"), NULL);
            same_weights(m, b, 0);
            trl_model_free(b);
        }
        trl_model_free(m);
    }
}

/* Greedy shards in order: 738560 bytes, limit 300000: the golden sharded model has the same split.
 */
static void shard_index(void **state)
{
    struct trl_err err = {0};
    struct trl_model *m = load(golden("tiny-llama-sharded"), NULL),
                     *one = load(golden("tiny-llama"), NULL);
    same_weights(one, m, 0);
    fresh_folder("out");
    json_t *want = json_load_file(
        trl_test_data("golden/models/tiny-llama-sharded/model.safetensors.index.json"), 0, NULL);
    assert_trl_ok(trl_model_save(m, in_tmp("out"), NULL, 400000, &err), &err);
    json_t *got = json_load_file(in_tmp("out/model.safetensors.index.json"), 0, NULL);
    assert_true(json_equal(json_object_get(want, "metadata"), json_object_get(got, "metadata")));
    assert_true(
        json_equal(json_object_get(want, "weight_map"), json_object_get(got, "weight_map")));
    json_decref(want);
    json_decref(got);
    trl_model_free(one);
    trl_model_free(m);
}

static void save_dtype(void **state)
{
    struct trl_err err = {0};
    struct trl_model *m = load(golden("tiny-llama3"), NULL);
    fresh_folder("out");
    assert_int_equal(trl_model_save(m, in_tmp("out"), "int4", 0, &err), TRL_E_USAGE);
    assert_trl_ok(trl_model_save(m, in_tmp("out"), "bfloat16", 0, &err), &err);
    json_t *c = json_load_file(in_tmp("out/config.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(c, "dtype")), "bfloat16");
    assert_null(json_object_get(c, "torch_dtype"));
    assert_non_null(json_object_get(c, "rope_scaling"));
    json_decref(c);
    struct trl_model *b = load(in_tmp("out"), "auto");
    assert_int_equal(b->params.dtype, TRL_DTYPE_BF16);
    const float *w = m->params.weights;
    const uint16_t *h = b->params.weights;
    for (int64_t i = 0; i < m->params.slab_elems; i++)
        assert_int_equal(h[i], trl_f32_to_bf16(w[i]));
    /* back into the float32 model: rounded values */
    assert_trl_ok(trl_model_reload(m, in_tmp("out"), &err), &err);
    for (int64_t i = 0; i < m->params.slab_elems; i++)
        assert_true(w[i] == trl_bf16_to_f32(h[i]));
    trl_model_free(b);
    trl_model_free(m);
}

static void cannot_write(void **state)
{
    struct trl_err err = {0};
    struct trl_model *m = load(golden("tiny-llama"), NULL);
    assert_int_equal(trl_model_save(m, in_tmp("nowhere"), NULL, 0, &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text, "nowhere"));
    trl_model_free(m);
}

/* ---- contradictions ---- */

static void copy_model(const char *from, const char *to)
{
    static const char *const files[] = {"config.json", "model.safetensors",
        "model.safetensors.index.json", "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors"};
    fresh_folder(to);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char a[512], b[512];
        struct trl_err err = {0};
        snprintf(a, sizeof(a), "%s/%s", golden(from), files[i]);
        snprintf(b, sizeof(b), "%s/%s", in_tmp(to), files[i]);
        if (trl_path_exists(a))
            assert_trl_ok(trl_file_copy(a, b, &err), &err);
    }
}

/* Replace one field of config.json. */
static void edit_config(const char *dir, const char *field, json_t *value)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/config.json", in_tmp(dir));
    json_t *c = json_load_file(path, 0, NULL);
    json_object_set_new(c, field, value);
    json_dump_file(c, path, 0);
    json_decref(c);
}

static void patch(const char *file, const char *find, const char *replace)
{
    char *text;
    size_t len;
    struct trl_err err = {0};
    assert_trl_ok(trl_file_read(in_tmp(file), 1 << 24, &text, &len, &err), &err);
    char *at = memmem(text, len, find, strlen(find));
    assert_non_null(at);
    memcpy(at, replace, strlen(replace));
    assert_trl_ok(trl_file_write_atomic(in_tmp(file), text, len, &err), &err);
    trl_free(text);
}

static void contradictions(void **state)
{
    copy_model("tiny-llama", "x");
    edit_config("x", "intermediate_size", json_integer(161));
    edit_config("x", "num_hidden_layers", json_integer(3));
    expect_load_error(in_tmp("x"),
        (const char *const[]){
            "model.layers.0.mlp.gate_proj.weight has shape [160, 64], config.json asks "
            "for [161, 64]",
            "tensor model.layers.2.self_attn.q_proj.weight is missing", "problems", NULL});
    copy_model("tiny-llama", "x");
    edit_config("x", "num_hidden_layers", json_integer(1));
    expect_load_error(in_tmp("x"),
        (const char *const[]){
            "tensor model.layers.1.self_attn.q_proj.weight is none of a llama model", NULL});
    copy_model("tiny-llama", "x");
    patch("x/model.safetensors", "model.norm.weight", "model.nork.weight");
    expect_load_error(in_tmp("x"),
        (const char *const[]){"model.nork.weight is none of", "tensor model.norm.weight is missing",
            "2 problems", NULL});
    /* float32 bytes under another type's name */
    copy_model("tiny-llama", "x");
    patch("x/model.safetensors", "\"F32\"", "\"I32\"");
    expect_load_error(
        in_tmp("x"), (const char *const[]){"has type I32 (F32, F16, BF16 are supported)", NULL});
    copy_model("tiny-llama-sharded", "x");
    assert_int_equal(unlink(in_tmp("x/model-00002-of-00002.safetensors")), 0);
    expect_load_error(in_tmp("x"),
        (const char *const[]){"shard model-00002-of-00002.safetensors", "No such file", NULL});
    copy_model("tiny-llama-sharded", "x");
    patch("x/model.safetensors.index.json", "model-00002-of-00002", "../../../etc/passwdx");
    expect_load_error(in_tmp("x"), (const char *const[]){"no file name beside the index", NULL});
    copy_model("tiny-llama-sharded", "x");
    patch("x/model.safetensors.index.json", "\"weight_map\"", "\"weight_mop\"");
    expect_load_error(in_tmp("x"), (const char *const[]){"weight_map is missing", NULL});
    fresh_folder("x");
    copy_model("tiny-llama", "x");
    assert_int_equal(truncate(in_tmp("x/model.safetensors"), 100000), 0);
    expect_load_error(in_tmp("x"), (const char *const[]){"truncated", NULL});
    assert_int_equal(unlink(in_tmp("x/model.safetensors")), 0);
    expect_load_error(in_tmp("x"), (const char *const[]){"no weights", NULL});
    struct trl_err err = {0};
    assert_trl_ok(trl_file_write_atomic(in_tmp("x/pytorch_model.bin"), "x", 1, &err), &err);
    expect_load_error(in_tmp("x"), (const char *const[]){"pickle", NULL});
}

static void nan_weights(void **state)
{
    static const struct {
        const char *model;
        int size;
        uint32_t nan;
    } t[] = {{"tiny-llama", 4, 0x7fc00000}, {"tiny-llama-bf16", 2, 0xffc0}};
    for (size_t i = 0; i < 2; i++) {
        struct trl_st_file f;
        struct trl_err err = {0};
        copy_model(t[i].model, "x");
        assert_trl_ok(trl_st_open(&f, in_tmp("x/model.safetensors"), &err), &err);
        const struct trl_st_tensor *w = trl_st_find(&f, "model.layers.1.mlp.up_proj.weight");
        FILE *o = fopen(in_tmp("x/model.safetensors"), "r+b");
        fseek(o, (long)(f.data_offset + w->begin) + 5000 * t[i].size, SEEK_SET);
        fwrite(&t[i].nan, (size_t)t[i].size, 1, o);
        fclose(o);
        trl_st_close(&f);
        expect_load_error(in_tmp("x"),
            (const char *const[]){
                "tensor model.layers.1.mlp.up_proj.weight: element 5000 is NaN", NULL});
    }
}

/* Names as other programs write them: without prefix, with a multimodal one, with buffers and a
 * second tied head. */
static void prefixes(void **state)
{
    static const struct {
        const char *model, *strip, *add;
    } t[] = {{"tiny-gpt2", "transformer.", ""}, {"tiny-gemma3", "model.", "language_model.model."},
        {"tiny-gemma3", "model.", "model.language_model."}};
    for (size_t i = 0; i < 3; i++) {
        struct trl_model *m = load(golden(t[i].model), NULL);
        for (int k = 0; k < m->params.n; k++) {
            char name[256];
            snprintf(
                name, sizeof(name), "%s%s", t[i].add, m->params.items[k].name + strlen(t[i].strip));
            assert_int_equal(trl__weights_find(m, name), k);
        }
        trl_model_free(m);
    }
    struct trl_model *m = load(golden("tiny-gpt2"), NULL);
    assert_int_equal(trl__weights_find(m, "h.0.attn.bias"), TRL_WEIGHT_IGNORED);
    assert_int_equal(trl__weights_find(m, "transformer.h.1.attn.masked_bias"), TRL_WEIGHT_IGNORED);
    assert_int_equal(trl__weights_find(m, "lm_head.weight"), TRL_WEIGHT_IGNORED);
    assert_int_equal(trl__weights_find(m, "h.9.attn.c_attn.weight"), TRL_WEIGHT_UNKNOWN);
    trl_model_free(m);
}

static void from_scratch(void **state)
{
    for (int i = 0; model_test_names[i]; i++) {
        struct trl_err err = {0};
        struct trl_model *m[3];
        for (int k = 0; k < 3; k++) {
            struct trl_model_options o = {
                .path = golden(model_test_names[i]), .from_scratch = true, .seed = (uint64_t)k / 2};
            assert_trl_ok(trl_model_load(&m[k], ref(), &o, &err), &err);
        }
        const float *w = m[0]->params.weights;
        assert_memory_equal(w, m[1]->params.weights, (size_t)m[0]->params.slab_elems * 4);
        assert_memory_not_equal(w, m[2]->params.weights, (size_t)m[0]->params.slab_elems * 4);
        const struct trl_model_config *c = &m[0]->cfg;
        for (int k = 0; k < m[0]->params.n; k++) {
            const struct trl_param *p = &m[0]->params.items[k];
            double sq = 0, std = c->init_range;
            for (int64_t e = 0; e < p->numel; e++)
                sq += (double)w[p->offset + e] * w[p->offset + e];
            double rms = sqrt(sq / (double)p->numel);
            double norm = c->norm == TRL_NORM_RMS_PLUS1 ? 0 : 1;
            if (strstr(p->name, "c_proj.weight"))
                std /= sqrt(2.0 * (double)c->layers);
            if (p->role == TRL_PARAM_NORM || p->role == TRL_PARAM_BIAS)
                assert_true(rms == (p->role == TRL_PARAM_NORM ? norm : 0));
            else if (!(fabs(rms - std) < 0.05 * std))
                fail_msg(
                    "%s: %s has deviation %g, wanted %g", model_test_names[i], p->name, rms, std);
        }
        if (c->pad_row >= 0)
            for (int64_t e = 0; e < c->hidden; e++)
                assert_true(
                    w[m[0]->params.items[m[0]->lay.embed].offset + c->pad_row * c->hidden + e] ==
                    0);
        for (int k = 0; k < 3; k++)
            trl_model_free(m[k]);
    }
}

/* ---- GGUF ---- */

static void from_gguf(void **state)
{
    static const struct {
        const char *model, *arch;
    } t[] = {{"tiny-llama", "llama"}, {"tiny-smollm", "llama"}, {"tiny-qwen2", "qwen2"},
        {"tiny-qwen3", "qwen3"}, {"tiny-gpt2", "gpt2"}, {"tiny-gemma2", "gemma2"},
        {"tiny-gemma3", "gemma3"}};
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
        for (int q8 = 0; q8 < 2; q8++) {
            struct trl_err err = {0};
            struct trl_model *m = load(golden(t[i].model), NULL);
            gguf_write_model(m, t[i].arch, in_tmp("m.gguf"), q8);
            struct trl_model *g = load(in_tmp("m.gguf"), NULL);
            same_weights(m, g, q8 ? 1e-2 : 1e-6);
            assert_true(fabs(g->cfg.eps - m->cfg.eps) < 1e-12);
            assert_int_equal(g->cfg.heads, m->cfg.heads);
            assert_int_equal(g->cfg.head_dim, m->cfg.head_dim);
            assert_int_equal(g->cfg.eos_id, m->cfg.eos_id);
            assert_true(g->cfg.tied == m->cfg.tied);
            /* the file does not say which layers of Gemma 3 slide: every sixth does not */
            for (int64_t l = 0; l < m->cfg.layers && strcmp(t[i].arch, "gemma3") != 0; l++)
                assert_int_equal(g->cfg.layer[l].rope, m->cfg.layer[l].rope);
            /* and out as a folder again */
            fresh_folder("out");
            assert_trl_ok(trl_model_save(g, in_tmp("out"), NULL, 0, &err), &err);
            struct trl_model *b = load(in_tmp("out"), NULL);
            same_weights(g, b, 0);
            trl_model_free(b);
            trl_model_free(g);
            trl_model_free(m);
        }
}

static void bad_gguf(void **state)
{
    struct trl_model *m = load(golden("tiny-llama"), NULL);
    gguf_write_model(m, "llama", in_tmp("m.gguf"), false);
    patch("m.gguf", "blk.1.ffn_up.weight", "blk.1.ffn_xx.weight");
    expect_load_error(in_tmp("m.gguf"),
        (const char *const[]){
            "blk.1.ffn_xx.weight is none of a llama", "up_proj.weight is missing", NULL});
    gguf_write_model(m, "mamba", in_tmp("m.gguf"), false);
    expect_load_error(in_tmp("m.gguf"), (const char *const[]){"\"mamba\" is not supported", NULL});
    gguf_write_model(m, "llama", in_tmp("m.gguf"), false);
    patch("m.gguf", "embedding_length", "embedding_lengtx");
    expect_load_error(
        in_tmp("m.gguf"), (const char *const[]){"llama.embedding_length is missing", NULL});
    gguf_write_model(m, "llama", in_tmp("m.gguf"), false);
    assert_int_equal(truncate(in_tmp("m.gguf"), 200000), 0);
    expect_load_error(in_tmp("m.gguf"), (const char *const[]){"m.gguf", NULL});
    trl_model_free(m);
}

static void options(void **state)
{
    struct trl_err err = {0};
    struct trl_model *m;
    struct trl_model_options o = {.path = golden("tiny-llama"), .dtype = "int8"};
    assert_int_equal(trl_model_load(&m, ref(), &o, &err), TRL_E_USAGE);
    o = (struct trl_model_options){
        .path = golden("tiny-llama"), .dtype = "bfloat16", .compute = TRL_DTYPE_F16};
    assert_int_equal(trl_model_load(&m, ref(), &o, &err), TRL_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save_and_load),
        cmocka_unit_test(shard_index),
        cmocka_unit_test(save_dtype),
        cmocka_unit_test(cannot_write),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(nan_weights),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(from_scratch),
        cmocka_unit_test(from_gguf),
        cmocka_unit_test(bad_gguf),
        cmocka_unit_test(options),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_tmp, drop_tmp);
}
