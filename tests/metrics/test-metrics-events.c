/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard event files, byte for byte. */
#include "../trl-test.h"

#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "metrics/events.h"
#include "metrics/metrics.h"

static void check_hex(struct trl_str *s, const char *want)
{
    struct trl_str hex = {0};
    for (size_t i = 0; i < s->len; i++)
        trl_str_printf(&hex, "%02x", (unsigned char)s->data[i]);
    assert_string_equal(trl_str_get(&hex), want);
    trl_str_release(&hex);
    trl_str_release(s);
}

static void test_crc(void **state)
{
    (void)state;
    uint8_t bytes[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(trl_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(trl_crc32c("", 0), 0);
    /* against the definition, bit by bit */
    uint32_t c = 0xffffffff;
    for (int i = 0; i < 256; i++) {
        c ^= bytes[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0x82f63b78 : 0);
    }
    assert_int_equal(trl_crc32c(bytes, 256), ~c);
}

static void test_vectors(void **state)
{
    (void)state;
    struct trl_str s = {0};
    trl_events_put_version(&s, 1.0);
    check_hex(&s, "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
    trl_events_put_scalar(&s, "loss", 0.5f, 1, 1.0);
    check_hex(&s, "1a00000000000000129bd82d09000000000000f03f10012a0d0a0b0a046c6f7373150000003f27f95db1");
}

/* walk the frames of a file; returns how many, *ret_text: does `text` occur in one */
static int walk(const char *data, size_t len, const char *text, bool *ret_text)
{
    int n = 0;
    *ret_text = false;
    for (size_t at = 0; at < len; n++) {
        uint64_t size = 0;
        uint32_t crc = 0;
        assert_true(len - at >= 16);
        for (int i = 0; i < 8; i++)
            size |= (uint64_t)(unsigned char)data[at + (size_t)i] << (8 * i);
        assert_true(size <= len - at - 16);
        for (int i = 0; i < 4; i++)
            crc |= (uint32_t)(unsigned char)data[at + 12 + size + (size_t)i] << (8 * i);
        uint32_t want = trl_crc32c(data + at + 12, size);
        assert_int_equal(crc, (want >> 15 | want << 17) + 0xa282ead8u);
        *ret_text |= memmem(data + at + 12, size, text, strlen(text)) != NULL;
        at += 16 + size;
    }
    return n;
}

static void test_run(void **state)
{
    (void)state;
    char dir[256], pattern[512];
    const char *tmp = getenv("TMPDIR");
    struct trl_err err = {0};
    struct trl_trainer_state s;
    struct trl_metrics *m;
    unsetenv("TENSORBOARD_LOGGING_DIR");
    snprintf(dir, sizeof(dir), "%s/trl-events-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    assert_trl_ok(trl_trainer_state_init(&s, &err), &err);
    struct trl_metrics_options opt = {.enabled = true, .output_dir = dir, .tensorboard = true, .args_text = "{\"lr\": 1}",
        .model_text = "{}"};
    assert_trl_ok(trl_metrics_open(&m, &opt, &s, &err), &err);
    fflush(stdout);
    int keep = dup(1), null = open("/dev/null", O_WRONLY);
    assert_true(null >= 0 && dup2(null, 1) == 1);
    close(null);
    s.global_step = 5;
    int rc = trl_metrics_log(m, json_pack("{s:f, s:f}", "loss", 2.0, "eval_loss", 3.0), NULL, &err);
    if (rc == 0)
        rc = trl_metrics_log(m, json_pack("{s:s}", "note", "text"), NULL, &err);
    fflush(stdout);
    dup2(keep, 1);
    close(keep);
    assert_trl_ok(rc, &err);
    trl_metrics_close(m);

    glob_t g;
    snprintf(pattern, sizeof(pattern), "%s/runs/*_*/events.out.tfevents.??????????.*.%ld.0", dir, (long)getpid());
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    assert_int_equal(g.gl_pathc, 1);
    char *data;
    size_t len;
    bool found;
    assert_trl_ok(trl_file_read(g.gl_pathv[0], 1 << 20, &data, &len, &err), &err);
    /* version, args, model_config, loss, eval_loss, epoch, epoch */
    assert_int_equal(walk(data, len, "train/loss", &found), 7);
    assert_true(found);
    walk(data, len, "eval/loss", &found);
    assert_true(found);
    walk(data, len, "args/text_summary", &found);
    assert_true(found);
    if (getenv("TRL_TEST_KEEP"))
        fprintf(stderr, "kept: %s\n", dir);
    else
        assert_trl_ok(trl_rmtree(dir, &err), &err);
    trl_free(data);
    globfree(&g);
    trl_trainer_state_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_run),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
