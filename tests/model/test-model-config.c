/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: styles, defaults, refusals; rotary frequencies; where models are looked for. */
#include "model-test.h"

#include <unistd.h>

#include "base/alloc.h"

static int parse(struct trl_model_config *c, const char *text, struct trl_err *err)
{
    return trl__config_parse(c, text, strlen(text), "config.json", err);
}

#define TINY \
    "\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":4,\"num_" \
    "attention_heads\":4"

static const struct {
    const char *json, *text;
} refused[] = {
    {"", "config.json:1:0"},
    {"[1]", "not a JSON object"},
    {"{\"model_type\":\"mamba\"}",
        "model_type \"mamba\" is not supported (llama, mistral, qwen2, qwen3, gpt2, gemma2, "
        "gemma3_text are)"},
    {"{}", "model_type \"\" is not supported"},
    {"{\"model_type\":7}", "model_type is 7"},
    {"{\"model_type\":\"llama\",\"hidden_size\":8194,\"num_attention_heads\":1}",
        "heads of 8194 elements"},
    {"{\"model_type\":\"gpt2\",\"n_embd\":8194,\"n_head\":1}", "heads of 8194 elements"},
    {"{\"model_type\":\"llama\"," TINY ",\"hidden_act\":\"xielu\"}",
        "hidden_act \"xielu\" is not supported"},
    {"{\"model_type\":\"llama\"," TINY ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}",
        "\"longrope\" is not supported"},
    {"{\"model_type\":\"llama\"," TINY ",\"rope_scaling\":{\"type\":\"linear\"}}",
        "rope_scaling.factor is missing"},
    {"{\"model_type\":\"llama\"," TINY ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"x\"}}",
        "rope_scaling.factor is no number"},
    {"{\"model_type\":\"llama\"," TINY ",\"rope_scaling\":[]}", "rope_scaling is not an object"},
    {"{\"model_type\":\"llama\"," TINY ",\"num_key_value_heads\":3}",
        "num_attention_heads 4 is no multiple"},
    {"{\"model_type\":\"llama\"," TINY ",\"num_attention_heads\":5}",
        "hidden_size 32 is no multiple of num_attention_heads 5"},
    {"{\"model_type\":\"llama\"," TINY ",\"head_dim\":7}", "head_dim 7 is odd"},
    {"{\"model_type\":\"llama\"," TINY ",\"hidden_size\":0}",
        "hidden_size is 0, a whole number from 1"},
    {"{\"model_type\":\"llama\"," TINY ",\"hidden_size\":1e30}", "hidden_size is 1e30"},
    {"{\"model_type\":\"llama\"," TINY ",\"hidden_size\":-5}", "hidden_size is -5"},
    {"{\"model_type\":\"llama\"," TINY ",\"num_hidden_layers\":\"x\"}",
        "num_hidden_layers is \"x\""},
    {"{\"model_type\":\"llama\"," TINY ",\"num_hidden_layers\":2.5}", "num_hidden_layers is 2.5"},
    {"{\"model_type\":\"llama\"," TINY ",\"attention_bias\":1}",
        "attention_bias is 1, true or false"},
    {"{\"model_type\":\"llama\"," TINY ",\"partial_rotary_factor\":0.5}",
        "partial_rotary_factor other than 1"},
    {"{\"model_type\":\"llama\"," TINY ",\"quantization_config\":{\"bits\":4}}",
        "quantised weights"},
    {"{\"model_type\":\"llama\"," TINY ",\"pad_token_id\":64}",
        "pad_token_id 64 is beyond vocab_size 64"},
    {"{\"model_type\":\"qwen2\"," TINY ",\"layer_types\":[\"full_attention\"]}",
        "layer_types is no list of num_hidden_layers = 4"},
    {"{\"model_type\":\"qwen2\"," TINY
     ",\"num_key_value_heads\":2,\"layer_types\":[\"full_attention\",\"x\",\"x\",\"x\"]}",
        "layer_types[1] is \"x\""},
    {"{\"model_type\":\"gemma3_text\"," TINY ",\"use_bidirectional_attention\":true}",
        "use_bidirectional_attention true"},
    {"{\"model_type\":\"gpt2\",\"n_embd\":30,\"n_head\":4}",
        "n_embd 30 is no multiple of n_head 4"},
    {"{\"model_type\":\"llama\"," TINY ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
     "\"low_freq_factor\":4,\"high_freq_factor\":4}}",
        "high_freq_factor is not above"},
};

static void refusals(void **state)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct trl_model_config c;
        struct trl_err err = {0};
        int rc = parse(&c, refused[i].json, &err);
        if (rc == 0 || !strstr(err.text, refused[i].text))
            fail_msg("case %zu: %d, \"%s\" does not say \"%s\"", i, rc, err.text, refused[i].text);
    }
}

static void all_at_once(void **state)
{
    struct trl_model_config c;
    struct trl_err err = {0};
    assert_int_not_equal(parse(&c,
                             "{\"model_type\":\"llama\"," TINY
                             ",\"hidden_act\":\"xielu\",\"head_dim\":7,\"rope_theta\":\"a\"}",
                             &err),
        0);
    assert_non_null(strstr(err.text, "3 problems"));
    assert_non_null(strstr(err.text, "xielu"));
    assert_non_null(strstr(err.text, "head_dim 7"));
    assert_non_null(strstr(err.text, "rope_theta is \"a\""));
}

/* Either spelling of the rope, and of a scaling, means the same. */
static void rope_styles(void **state)
{
    static const char *const same[] = {
        "{\"model_type\":\"llama\"," TINY
        ",\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4}}",
        "{\"model_type\":\"llama\"," TINY
        ",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}}",
        "{\"model_type\":\"llama\"," TINY
        ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":500000}}",
    };
    for (int i = 0; i < 3; i++) {
        struct trl_model_config c;
        struct trl_err err = {0};
        assert_trl_ok(parse(&c, same[i], &err), &err);
        assert_int_equal(c.ropes[0].kind, TRL_ROPE_LINEAR);
        assert_true(c.ropes[0].theta == 5e5 && c.ropes[0].factor == 4);
        trl__config_release(&c);
    }
}

static void window_rules(void **state)
{
    static const struct {
        const char *json;
        int64_t window[4];
        int rope[4];
    } w[] = {
        {"{\"model_type\":\"mistral\"," TINY ",\"num_key_value_heads\":2}",
            {4096, 4096, 4096, 4096}, {0}},
        {"{\"model_type\":\"mistral\"," TINY ",\"num_key_value_heads\":2,\"sliding_window\":null}",
            {0}, {0}},
        {"{\"model_type\":\"qwen2\"," TINY ",\"num_key_value_heads\":2,\"sliding_window\":8}", {0},
            {0}},
        {"{\"model_type\":\"qwen2\"," TINY ",\"num_key_value_heads\":2,\"sliding_window\":8,\"use_"
         "sliding_window\":true,\"max_window_layers\":2}",
            {0, 0, 8, 8}, {0}},
        {"{\"model_type\":\"qwen3\"," TINY ",\"num_key_value_heads\":2,\"sliding_window\":8,\"use_"
         "sliding_window\":true,\"layer_types\":"
         "[\"sliding_attention\",\"full_attention\",\"full_attention\",\"sliding_attention\"]}",
            {8, 0, 0, 8}, {0}},
        {"{\"model_type\":\"gemma2\"," TINY "}", {4096, 0, 4096, 0}, {0}},
        {"{\"model_type\":\"gemma3_text\"," TINY
         ",\"sliding_window\":6,\"sliding_window_pattern\":2}",
            {6, 0, 6, 0}, {1, 0, 1, 0}},
        {"{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\"," TINY
         ",\"sliding_window\":6}}",
            {6, 6, 6, 6}, {1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof(w) / sizeof(w[0]); i++) {
        struct trl_model_config c;
        struct trl_err err = {0};
        assert_trl_ok(parse(&c, w[i].json, &err), &err);
        for (int l = 0; l < 4; l++)
            if (c.layer[l].window != w[i].window[l] || c.layer[l].rope != w[i].rope[l])
                fail_msg("case %zu layer %d: window %lld rope %d", i, l,
                    (long long)c.layer[l].window, c.layer[l].rope);
        trl__config_release(&c);
    }
}

static void frequencies(
    const struct trl_rope_config *r, int64_t d, const int *index, const double *want, int n)
{
    double inv[128], scale;
    trl__rope_frequencies(r, d, 131072, 0, inv, &scale);
    for (int i = 0; i < n; i++)
        if (!(fabs(inv[index[i]] - want[i]) <= 1e-7 * want[i]))
            fail_msg("d %lld: frequency %d is %.9g, want %.9g", (long long)d, index[i],
                inv[index[i]], want[i]);
}

static void rope_values(void **state)
{
    struct trl_rope_config r = {.kind = TRL_ROPE_LLAMA3,
        .theta = 5e5,
        .factor = 32,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .original_max = 8192,
        .attention_factor = 1};
    static const int i1[] = {1, 8, 14, 15, 16, 17, 18, 20, 31};
    static const double v1[] = {0.663601238, 0.0376060309, 0.00321144599, 0.00129054793,
        0.000429556797, 9.7082878e-05, 1.94616382e-05, 8.57025549e-06, 9.41830673e-08};
    frequencies(&r, 64, i1, v1, 9);
    r.factor = 8;
    static const int i2[] = {28, 30, 32, 34, 35, 36, 63};
    static const double v2[] = {0.00321144599, 0.00137189357, 0.000524846161, 0.000178507813,
        9.55621235e-05, 7.78465527e-05, 3.06892599e-07};
    frequencies(&r, 128, i2, v2, 7);
    /* yarn: frequencies below dimension 23 stay, from 40 on they are divided by 4 */
    struct trl_model_config c;
    struct trl_err err = {0};
    assert_trl_ok(
        parse(&c,
            "{\"model_type\":\"llama\"," TINY
            ",\"head_dim\":128,\"rope_theta\":1000000,\"rope_scaling\":{\"rope_type\":\"yarn\","
            "\"factor\":4,\"original_max_position_embeddings\":32768}}",
            &err),
        &err);
    double inv[64], scale;
    trl__rope_frequencies(&c.ropes[0], 128, 131072, 0, inv, &scale);
    assert_true(fabs(scale - 1.138629436) < 1e-9);
    for (int i = 0; i < 64; i++) {
        double base = pow(1e6, -i / 64.0), want = i <= 23 ? base : i >= 40 ? base / 4 : 0;
        if (want != 0 ? fabs(inv[i] - want) > 1e-12 * want : !(inv[i] < base && inv[i] > base / 4))
            fail_msg("yarn frequency %d is %g", i, inv[i]);
    }
    trl__config_release(&c);
    struct trl_rope_config dyn = {
        .kind = TRL_ROPE_DYNAMIC, .theta = 1e4, .factor = 2, .attention_factor = 1};
    trl__rope_frequencies(&dyn, 64, 100, 100, inv, &scale);
    assert_true(fabs(inv[1] - pow(1e4, -2.0 / 64)) < 1e-12);
    trl__rope_frequencies(&dyn, 64, 100, 200, inv, &scale);
    assert_true(fabs(inv[1] - pow(1e4 * pow(3, 64.0 / 62), -2.0 / 64)) < 1e-12);
}

static void touch(const char *dir, const char *name, const char *text)
{
    char *p = trl_path_join(dir, name);
    struct trl_err err = {0};
    assert_trl_ok(trl_file_write_atomic(p, text, strlen(text), &err), &err);
    trl_free(p);
}

static void locate(void **state)
{
    char dir[] = "/tmp/trl-hub-XXXXXX", *found = NULL;
    struct trl_err err = {0};
    assert_non_null(mkdtemp(dir));
    char *snap = trl_asprintf("%s/models--org--tiny/snapshots/abc123", dir);
    char *refs = trl_asprintf("%s/models--org--tiny/refs", dir);
    assert_trl_ok(trl_mkdirs(snap, &err), &err);
    assert_trl_ok(trl_mkdirs(refs, &err), &err);
    touch(snap, "config.json", "{}");
    touch(refs, "main", "abc123\n");
    touch(refs, "evil", "../../../x\n");
    setenv("HF_HUB_CACHE", dir, 1);
    setenv("HF_HOME", "/nonexistent", 1);
    assert_trl_ok(trl_model_locate("org/tiny", NULL, &found, &err), &err);
    assert_string_equal(found, snap);
    trl_free(found);
    assert_trl_ok(trl_model_locate("org/tiny", "abc123", &found, &err), &err);
    trl_free(found);
    assert_trl_ok(trl_model_locate(snap, NULL, &found, &err), &err);
    assert_string_equal(found, snap);
    trl_free(found);
    assert_int_equal(trl_model_locate("org/tiny", "evil", &found, &err), TRL_E_NOENT);
    assert_int_equal(trl_model_locate("org/tiny", "v2", &found, &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text, "huggingface-cli download org/tiny"));
    assert_int_equal(trl_model_locate("org/other", NULL, &found, &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text, dir));
    assert_int_equal(trl_model_locate("/nonexistent/m", NULL, &found, &err), TRL_E_NOENT);
    assert_int_equal(trl_model_locate(refs, NULL, &found, &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text, "has no config.json"));
    assert_int_equal(trl_model_locate("", NULL, &found, &err), TRL_E_USAGE);
    char *file = trl_path_join(snap, "config.json");
    assert_int_equal(trl_model_locate(file, NULL, &found, &err), TRL_E_UNSUPPORTED);
    trl_free(file);
    trl_rmtree(dir, NULL);
    trl_free(snap);
    trl_free(refs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(rope_styles),
        cmocka_unit_test(window_rules),
        cmocka_unit_test(rope_values),
        cmocka_unit_test(locate),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
