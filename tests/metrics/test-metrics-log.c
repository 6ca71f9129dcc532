/* SPDX-License-Identifier: Apache-2.0 */
/* Sums between logs, trainer_state.json, metrics.jsonl, the last lines. */
#include "../trl-test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "base/log.h"
#include "metrics/bar.h"
#include "metrics/metrics.h"

static char dir[256];

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/trl-metrics-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return trl_rmtree(dir, NULL);
}

static const char *in_dir(const char *name)
{
    static char buf[4][512];
    static int next;
    char *p = buf[next++ % 4];
    snprintf(p, sizeof(buf[0]), "%s/%s", dir, name);
    return p;
}

static char *slurp(const char *name)
{
    struct trl_err err;
    char *text;
    size_t len;
    assert_trl_ok(trl_file_read(in_dir(name), 1 << 20, &text, &len, &err), &err);
    return text;
}

static void test_meter(void **state)
{
    (void)state;
    struct trl_meter m;
    struct trl_err err;
    double v;
    trl_meter_init(&m, true, 6);
    /* two steps of two micro-steps, the returned losses are already divided */
    trl_meter_add_loss(&m, 1.0, 6);
    trl_meter_add_loss(&m, 2.0, 6);
    trl_meter_add_loss(&m, NAN, 7);      /* counts as 3 / (1 + 7 - 6) */
    trl_meter_add_loss(&m, INFINITY, 7); /* as 4.5 / 2 */
    assert_true(m.loss_sum == 6.75f);
    trl_meter_add(&m, "entropy", 1);
    trl_meter_add(&m, "entropy", 2);
    trl_meter_add(&m, "entropy", 6);
    trl_meter_set(&m, "num_tokens", 10);
    trl_meter_set(&m, "num_tokens", 25);
    assert_true(trl_meter_take_loss(&m, m.loss_sum, 8) == 6.75 / 2);
    json_t *r = json_object();
    assert_trl_ok(trl_meter_take(&m, "eval_", r, &err), &err);
    assert_int_equal(json_object_size(r), 2);
    assert_true(trl_json_number(json_object_get(r, "eval_entropy"), &v) && v == 3);
    assert_true(trl_json_number(json_object_get(r, "eval_num_tokens"), &v) && v == 25);
    assert_int_equal(m.n, 0);
    trl_meter_add_loss(&m, 0.25, 8);
    assert_true(trl_meter_train_loss(&m, m.loss_sum, 9) == (6.75 + 0.25) / 3);
    json_decref(r);
    trl_meter_init(&m, false, 0);
    trl_meter_add_loss(&m, NAN, 0);
    assert_true(isnan(m.loss_sum));
}

static void test_json_text(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_str s = {0};
    json_t *v;
    static const char text[] = "{\"b\": NaN, \"a\": [-Infinity, Infinity, 1e-05, 1.0, 3], \"s\": \"NaN is \\\" Infinity\"}";
    assert_trl_ok(trl_json_parse(text, strlen(text), "t", &v, &err), &err);
    trl_json_put(&s, v, 0, false);
    assert_string_equal(trl_str_get(&s), text);
    trl_str_clear(&s);
    trl_json_put(&s, v, 2, true);
    assert_string_equal(trl_str_get(&s), "{\n  \"a\": [\n    -Infinity,\n    Infinity,\n    1e-05,\n    1.0,\n    3\n  ],\n"
                                         "  \"b\": NaN,\n  \"s\": \"NaN is \\\" Infinity\"\n}");
    json_decref(v);
    trl_str_clear(&s);
    v = json_pack("{s:[], s:{}, s:n, s:b}", "a", "o", "n", "t", 1);
    trl_json_put(&s, v, 2, true);
    assert_string_equal(trl_str_get(&s), "{\n  \"a\": [],\n  \"n\": null,\n  \"o\": {},\n  \"t\": true\n}");
    json_decref(v);
    trl_str_release(&s);
    static const char big[] = "[9223372036854775807, 9223372036854775808, 1000000000000000019884624838656, 0.1234567890123456789012, "
                              "\"1234567890123456789012\"]";
    assert_trl_ok(trl_json_parse(big, strlen(big), "t", &v, &err), &err);
    assert_int_equal(json_integer_value(json_array_get(v, 0)), INT64_MAX);
    assert_true(json_real_value(json_array_get(v, 1)) == 0x1p63 && json_real_value(json_array_get(v, 2)) == 1e30);
    assert_true(json_real_value(json_array_get(v, 3)) == 0.1234567890123456789012);
    assert_string_equal(json_string_value(json_array_get(v, 4)), "1234567890123456789012");
    json_decref(v);
    static const char *const bad[] = {"", "NaN", "{\"a\": NaNN}", "{\"a\": 1NaN}", "[1", "{\"a\": \"\\", "-", "[\"", "[-Infinit]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(trl_json_parse(bad[i], strlen(bad[i]), "t", &v, &err), TRL_E_PARSE);
}

static const char *const fields[] = {"best_global_step", "best_metric", "best_model_checkpoint", "epoch", "eval_steps",
    "global_step", "is_hyper_param_search", "is_local_process_zero", "is_world_process_zero", "log_history", "logging_steps",
    "max_steps", "num_input_tokens_seen", "num_train_epochs", "save_steps", "stateful_callbacks", "total_flos",
    "train_batch_size", "trial_name", "trial_params"};

static void test_trainer_state(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_trainer_state s, t;
    size_t n = sizeof(fields) / sizeof(fields[0]);
    assert_trl_ok(trl_trainer_state_init(&s, &err), &err);
    s.epoch = 0.5;
    s.global_step = 12;
    s.max_steps = 12;
    s.num_train_epochs = 1;
    s.train_batch_size = 4;
    s.logging_steps = 1;
    s.total_flos = 123456;
    s.should_training_stop = true;
    assert_trl_ok(trl_trainer_state_set_best(&s, 2.5, 8, "out/checkpoint-8", &err), &err);
    json_array_append_new(s.log_history, json_pack("{s:o, s:o, s:i}", "loss", trl_json_real(0.1), "grad_norm",
                                             trl_json_real(NAN), "step", 12));
    assert_trl_ok(trl_trainer_state_write(&s, in_dir("trainer_state.json"), &err), &err);
    char *text = slurp("trainer_state.json");
    /* every field, sorted, two spaces in */
    const char *at = text;
    for (size_t i = 0; i < n; i++) {
        char key[64];
        snprintf(key, sizeof(key), "\n  \"%s\": ", fields[i]);
        const char *next = strstr(at, key);
        if (!next)
            fail_msg("%s is missing or out of order", fields[i]);
        at = next;
    }
    assert_non_null(strstr(text, "\"epoch\": 0.5,\n"));
    assert_non_null(strstr(text, "\"total_flos\": 123456.0,\n"));
    assert_non_null(strstr(text, "\"logging_steps\": 1,\n"));
    assert_non_null(strstr(text, "      \"grad_norm\": NaN,\n"));
    assert_non_null(strstr(text, "\"should_training_stop\": true\n"));
    assert_string_equal(text + strlen(text) - 3, "\n}\n");
    trl_free(text);

    assert_trl_ok(trl_trainer_state_init(&t, &err), &err);
    assert_trl_ok(trl_trainer_state_read(&t, in_dir("trainer_state.json"), &err), &err);
    assert_true(t.epoch == 0.5 && t.global_step == 12 && t.has_best_metric && t.best_metric == 2.5 && t.best_global_step == 8);
    assert_string_equal(t.best_model_checkpoint, "out/checkpoint-8");
    json_t *a = trl_trainer_state_json(&s), *b = trl_trainer_state_json(&t);
    json_object_del(a, "stateful_callbacks"); /* control flags are not read back */
    json_object_del(b, "stateful_callbacks");
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    trl_trainer_state_release(&t);
    trl_trainer_state_release(&s);
}

static void test_bad_trainer_state(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "[]", "{}", "{\"global_step\": -1, \"log_history\": []}",
        "{\"global_step\": 1.5, \"log_history\": []}", "{\"global_step\": 1, \"log_history\": [1]}",
        "{\"global_step\": 1, \"log_history\": {}}", "{\"global_step\": 1, \"log_history\": [], \"epoch\": \"x\"}",
        "{\"global_step\": 1, \"log_history\": [], \"best_metric\": \"x\"}",
        "{\"global_step\": 1, \"log_history\": [], \"best_metric\": 1, \"best_model_checkpoint\": 1}",
        "{\"global_step\": 1, \"log_history\": [], \"stateful_callbacks\": 1}"};
    struct trl_err err = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct trl_trainer_state s;
        assert_trl_ok(trl_trainer_state_init(&s, &err), &err);
        assert_trl_ok(trl_file_write_atomic(in_dir("x.json"), bad[i], strlen(bad[i]), &err), &err);
        if (trl_trainer_state_read(&s, in_dir("x.json"), &err) == 0)
            fail_msg("accepted: %s", bad[i]);
        assert_non_null(strstr(err.text, "x.json"));
        trl_trainer_state_release(&s);
    }
}

static void test_every(void **state)
{
    (void)state;
    assert_int_equal(trl_trainer_state_every(0.1, 16), 2);
    assert_int_equal(trl_trainer_state_every(0.25, 16), 4);
    assert_int_equal(trl_trainer_state_every(3, 16), 3);
    assert_int_equal(trl_trainer_state_every(0, 16), 0);
    assert_int_equal(trl_trainer_state_every(NAN, 16), 0);
}

/* stdout of the logger goes to the TAP stream otherwise */
static void quiet(bool on)
{
    static int keep = -1;
    fflush(stdout);
    if (on) {
        keep = dup(1);
        int fd = open("/dev/null", O_WRONLY);
        dup2(fd, 1);
        close(fd);
    } else {
        dup2(keep, 1);
        close(keep);
    }
}

static int log_one(struct trl_metrics *m, struct trl_trainer_state *s, int64_t step, struct trl_err *err)
{
    struct trl_metrics_speed speed = {0.25, 1000};
    s->global_step = step;
    s->epoch = (double)step / 24;
    quiet(true);
    int rc = trl_metrics_log(m, json_pack("{s:o, s:o}", "loss", trl_json_real(7.5), "grad_norm", trl_json_real(INFINITY)),
        &speed, err);
    quiet(false);
    return rc;
}

static void test_jsonl(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_trainer_state s;
    struct trl_metrics *m;
    json_t *facts = json_pack("{s:s, s:i}", "model", "tiny", "ranks", 1);
    struct trl_metrics_options opt = {.enabled = true, .output_dir = in_dir("out"), .facts = facts};
    char out[300];
    snprintf(out, sizeof(out), "%s", opt.output_dir);
    opt.output_dir = out;
    assert_trl_ok(trl_trainer_state_init(&s, &err), &err);
    s.max_steps = 12;
    assert_trl_ok(trl_metrics_open(&m, &opt, &s, &err), &err);
    for (int i = 1; i <= 3; i++)
        assert_trl_ok(log_one(m, &s, i, &err), &err);
    trl_metrics_step(m, 100);
    trl_metrics_status(m, "saving");
    trl_metrics_close(m);
    char *text = slurp("out/metrics.jsonl");
    assert_string_equal(text,
        "{\"model\": \"tiny\", \"ranks\": 1}\n"
        "{\"loss\": 7.5, \"grad_norm\": Infinity, \"epoch\": 0.041666666666666664, \"step\": 1, \"step_time\": 0.25, "
        "\"tokens_per_second\": 1000.0}\n"
        "{\"loss\": 7.5, \"grad_norm\": Infinity, \"epoch\": 0.08333333333333333, \"step\": 2, \"step_time\": 0.25, "
        "\"tokens_per_second\": 1000.0}\n"
        "{\"loss\": 7.5, \"grad_norm\": Infinity, \"epoch\": 0.125, \"step\": 3, \"step_time\": 0.25, "
        "\"tokens_per_second\": 1000.0}\n");
    assert_int_equal(json_array_size(s.log_history), 3);
    assert_null(json_object_get(json_array_get(s.log_history, 2), "step_time"));

    /* killed in the middle of a line, then resumed from step 2: step 3 is made again */
    text[strlen(text) - 10] = '\0';
    assert_trl_ok(trl_file_write_atomic(in_dir("out/metrics.jsonl"), text, strlen(text), &err), &err);
    trl_free(text);
    s.global_step = 2;
    opt.resumed = true;
    assert_trl_ok(trl_metrics_open(&m, &opt, &s, &err), &err);
    assert_trl_ok(log_one(m, &s, 3, &err), &err);
    trl_metrics_close(m);
    s.global_step = 2; /* a whole line of a step that is made again goes, too */
    assert_trl_ok(trl_metrics_open(&m, &opt, &s, &err), &err);
    assert_trl_ok(log_one(m, &s, 4, &err), &err);
    trl_metrics_close(m);
    text = slurp("out/metrics.jsonl");
    int lines = 0;
    for (char *p = text; *p; p++)
        lines += *p == '\n';
    assert_int_equal(lines, 4);
    assert_null(strstr(text, "\"step\": 3"));
    assert_int_equal(strncmp(text, "{\"model\"", 8), 0);
    trl_free(text);

    /* other ranks write nothing */
    opt.enabled = false;
    assert_trl_ok(trl_metrics_open(&m, &opt, &s, &err), &err);
    size_t before = json_array_size(s.log_history);
    assert_trl_ok(log_one(m, &s, 5, &err), &err);
    assert_int_equal(json_array_size(s.log_history), before);
    trl_metrics_close(m);
    /* a folder that cannot be */
    opt.enabled = true;
    opt.output_dir = "/proc/self/comm/x";
    assert_true(trl_metrics_open(&m, &opt, &s, &err) != 0);
    trl_trainer_state_release(&s);
    json_decref(facts);
}

/* a full disk is an error that names the file */
static void test_full(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_trainer_state s;
    struct trl_metrics *m;
    struct rlimit old, small;
    struct trl_metrics_options opt = {.enabled = true, .output_dir = dir};
    assert_trl_ok(trl_trainer_state_init(&s, &err), &err);
    assert_trl_ok(trl_metrics_open(&m, &opt, &s, &err), &err);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 20;
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = log_one(m, &s, 1, &err);
    int state_rc = trl_trainer_state_write(&s, in_dir("trainer_state.json"), NULL);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, TRL_E_IO);
    assert_non_null(strstr(err.text, "metrics.jsonl"));
    assert_int_equal(state_rc, TRL_E_IO);
    assert_false(trl_path_exists(in_dir("trainer_state.json")));
    trl_metrics_close(m);
    trl_trainer_state_release(&s);
}

/* on a terminal: the bar is drawn, moves, steps aside for a message, and stays as the last line */
static void test_terminal(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_trainer_state s;
    struct trl_metrics *m;
    char seen[8192];
    int pty = posix_openpt(O_RDWR | O_NOCTTY);
    if (pty < 0 || grantpt(pty) != 0 || unlockpt(pty) != 0)
        trl_test_skip("no pseudo-terminal here");
    int term = open(ptsname(pty), O_RDWR | O_NOCTTY), keep = dup(2);
    assert_true(term >= 0);
    struct trl_metrics_options opt = {.enabled = true, .output_dir = dir, .progress = true};
    assert_trl_ok(trl_trainer_state_init(&s, &err), &err);
    s.max_steps = 10;
    dup2(term, 2);
    int rc = trl_metrics_open(&m, &opt, &s, &err);
    if (rc == 0)
        rc = log_one(m, &s, 1, &err);
    trl_info("a message");
    trl_metrics_step(m, 100);
    trl_metrics_status(m, "saving");
    trl_metrics_close(m);
    fputs("THE END\n", stderr);
    fflush(stderr);
    dup2(keep, 2);
    close(keep);
    assert_trl_ok(rc, &err);
    size_t n = 0; /* the text comes in pieces */
    for (seen[0] = '\0'; !strstr(seen, "THE END"); seen[n] = '\0') {
        struct pollfd p = {.fd = pty, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 10000), 1);
        ssize_t more = read(pty, seen + n, sizeof(seen) - 1 - n);
        assert_true(more > 0);
        n += (size_t)more;
    }
    static const char *const parts[] = {"  0% 0/10", " 10% 1/10", "loss 7.5", "\r\x1b[Ka message\r\n", "left  saving"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (!strstr(seen, parts[i]))
            fail_msg("the terminal did not show \"%s\"", parts[i]);
    close(term);
    close(pty);
    trl_trainer_state_release(&s);
}

static void test_speed(void **state)
{
    (void)state;
    struct trl_err err;
    struct trl_str s = {0};
    json_t *r = json_object();
    assert_trl_ok(trl_metrics_add_speed(r, "train", 3.00005, 48, 12, &err), &err);
    assert_trl_ok(trl_metrics_add_speed(r, "eval", 0.12345, 48, -1, &err), &err);
    trl_json_put(&s, r, 0, false);
    assert_string_equal(trl_str_get(&s), "{\"train_runtime\": 3.0, \"train_samples_per_second\": 16.0, "
                                         "\"train_steps_per_second\": 4.0, \"eval_runtime\": 0.1235, "
                                         "\"eval_samples_per_second\": 388.821}");
    trl_str_release(&s);
    json_decref(r);
}

static void test_phases(void **state)
{
    (void)state;
    struct trl_phases p;
    trl_phases_init(&p);
    trl_phases_mark(&p, "start");
    usleep(2000);
    trl_phases_mark(&p, "model");
    trl_phases_mark(&p, "start");
    assert_int_equal(p.n, 2);
    assert_int_equal(p.items[0].count, 2);
    assert_true(trl_phases_get(&p, "model") >= 0.002 && trl_phases_get(&p, "start") >= 0);
    assert_true(fabs(trl_phases_total(&p) - (p.last - p.start)) < 1e-6);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p%d", i);
        trl_phases_mark(&p, name);
    }
    assert_int_equal(p.n, TRL_PHASES_MAX);
    assert_true(fabs(trl_phases_total(&p) - (p.last - p.start)) < 1e-6);
    json_t *o = trl_phases_json(&p);
    assert_int_equal(json_object_size(o), TRL_PHASES_MAX);
    json_decref(o);
}

static void test_summary(void **state)
{
    (void)state;
    struct trl_str out = {0};
    struct trl_phases p = {.n = 3, .items = {{"model", 1, 1}, {"forward", 30, 20}, {"data", 0.1, 20}}};
    struct trl_summary s = {.steps = 20, .tokens = 20480, .seconds = 30, .has_eval = true, .eval_before = true, .loss_before = 2.5,
        .loss_after = 1.25, .flops = 30e9 * 30, .peak_flops = 60e9, .peak_bytes = 1 << 30, .phases = &p, .output_dir = "out"};
    trl_summary_put(&out, &s);
    assert_string_equal(trl_str_get(&out),
        "done: 20 steps, 20480 tokens in 30.0 s\n"
        "  loss       2.5000 -> 1.2500 (evaluation, before and after)\n"
        "  speed      683 tokens/s, 30.0 GFLOP/s = 50% of this machine's measured matmul peak of 60 GFLOP/s\n"
        "  memory     1024 MiB at most in one process; allocations in steps after the first: 0\n"
        "  time       31.1 s: forward 96%, model 3%\n"
        "  output     out\n");
    trl_str_clear(&out);
    s = (struct trl_summary){.loss_before = NAN};
    trl_summary_put(&out, &s);
    assert_string_equal(trl_str_get(&out), "done: 0 steps, 0 tokens in 0.00 s\n");
    trl_str_release(&out);
}

static void test_bar(void **state)
{
    (void)state;
    struct trl_bar b = {.done = 30, .first = 10, .total = 100, .tokens = 5000, .epoch = 0.3, .loss = 2.34567, .width = 100};
    char buf[512];
    trl_bar_format(&b, 10, buf, sizeof(buf));
    assert_string_equal(buf, " 30% 30/100 [#########.....................]  epoch 0.30  loss 2.346  500 tokens/s  0:35 left");
    for (b.width = 1; b.width < 400; b.width++) {
        trl_bar_format(&b, 10, buf, sizeof(buf));
        assert_true((int)strlen(buf) <= b.width);
    }
    b = (struct trl_bar){.loss = NAN, .width = 30};
    trl_bar_format(&b, 0, buf, sizeof(buf));
    b = (struct trl_bar){.loss = 1e300, .epoch = 1e300, .tokens = INT64_MAX, .total = INT64_MAX, .width = 300};
    memset(b.status, 'x', sizeof(b.status) - 1);
    trl_bar_format(&b, 1e-300, buf, sizeof(buf));
    assert_true(strlen(buf) <= 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meter),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test_setup_teardown(test_trainer_state, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_trainer_state, setup, teardown),
        cmocka_unit_test(test_every),
        cmocka_unit_test_setup_teardown(test_jsonl, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_terminal, setup, teardown),
        cmocka_unit_test(test_speed),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_bar),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
