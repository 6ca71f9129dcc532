/* SPDX-License-Identifier: Apache-2.0 */
/* Accelerate files: the shipped ones, values taken, hardware and sharding refused by name, unknown
 * keys. */
#include "../trl-test.h"

#include <unistd.h>

#include "base/fileio.h"
#include "config/config.h"

static char dir[] = "/tmp/trl-test-accelerate-XXXXXX";

/* Parse with an accelerate file of this text and up to four more words. */
static int parse(struct trl_config *cfg, struct trl_err *err, const char *text, const char *file,
    char *const more[4])
{
    static char path[300];
    char *argv[8] = {(char *)"--accelerate_config", path};
    int argc = 2;
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    assert_trl_ok(trl_file_write_atomic(path, text, strlen(text), err), err);
    for (int i = 0; more && i < 4 && more[i]; i++)
        argv[argc++] = more[i];
    *err = (struct trl_err){0};
    return trl_config_parse(cfg, "sft", argc, argv, err);
}

static void test_values(void **state)
{
    (void)state;
    struct trl_config c;
    struct trl_err err;
    static char *const print[4] = {
        (char *)"--print_config"}; /* two machines are not started by hand */
    assert_trl_ok(parse(&c, &err,
                      "compute_environment: LOCAL_MACHINE\ndistributed_type: "
                      "MULTI_CPU\nnum_processes: 4\nnum_machines: 2\nmachine_rank: 1\n"
                      "main_process_ip: 10.0.0.1\nmain_process_port: 1234\nmixed_precision: "
                      "'no'\nuse_cpu: true\nmpirun_config: {mpirun_ccl: '1'}\n"
                      "parallelism_config: {parallelism_config_tp_size: 1}\ndynamo_config: "
                      "{dynamo_backend: INDUCTOR}\ntpu_env: []\n"
                      "fsdp_config: {}\n",
                      "a.yaml", print),
        &err);
    assert_true(c.num_processes.value == 4 && c.num_machines == 2 && c.machine_rank == 1 &&
        c.main_process_port.value == 1234);
    assert_string_equal(c.main_process_ip, "10.0.0.1");
    assert_string_equal(c.mixed_precision, "no");
    assert_non_null(strstr(trl_config_source(&c, "num_processes"), "a.yaml:3"));
    trl_config_release(&c);

    /* plain no and NO are false in YAML 1.1; processes count only when distributed; old fp16 key */
    static char *const no_bf16[4] = {(char *)"--bf16", (char *)"false"};
    assert_trl_ok(
        parse(&c, &err, "distributed_type: NO\nnum_processes: 8\nfp16: true\n", "a.yaml", no_bf16),
        &err);
    assert_true(!c.num_processes.set && c.fp16 && !c.bf16.value);
    trl_config_release(&c);
    assert_trl_ok(parse(&c, &err, "distributed_type: NO\nmixed_precision: no\nuse_cpu: yes\n",
                      "a.yaml", no_bf16),
        &err);
    assert_true(!c.fp16 && !c.bf16.value);
    trl_config_release(&c);
    assert_trl_ok(parse(&c, &err,
                      "{\n\t\"distributed_type\": \"MULTI_CPU\", \"num_processes\": 2, "
                      "\"mixed_precision\": null}\n",
                      "a.json", NULL),
        &err);
    assert_int_equal(c.num_processes.value, 2);
    trl_config_release(&c);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        const char *want;
    } cases[] = {
        {"distributed_type: MULTI_GPU\nnum_processes: 8\n", TRL_E_UNSUPPORTED,
            "asks for GPUs (distributed_type: MULTI_GPU), and this program trains on CPUs here; "
            "add `--use_cpu true --num_processes 2`"},
        {"distributed_type: 'NO'\ngpu_ids: all\n", TRL_E_UNSUPPORTED,
            "asks for GPUs (distributed_type: NO)"},
        {"distributed_type: DEEPSPEED\n", TRL_E_UNSUPPORTED,
            ":1: distributed_type: DEEPSPEED is not supported: sharding comes later"},
        {"distributed_type: FSDP\n", TRL_E_UNSUPPORTED,
            ":1: distributed_type: FSDP is not supported"},
        {"distributed_type: XLA\n", TRL_E_UNSUPPORTED,
            ":1: distributed_type: TPUs are not supported"},
        {"distributed_type: MULTI\n", TRL_E_USAGE,
            ":1: distributed_type: \"MULTI\" is not known; wanted: one of NO MULTI_CPU"},
        {"distributed_type: [a]\n", TRL_E_USAGE,
            ":1: distributed_type: \"a list or a map\" is not known"},
        {"num_processes: 8\n", TRL_E_USAGE, "distributed_type is missing"},
        {"- a\n", TRL_E_USAGE, "the accelerate file is not a map"},
        {"", TRL_E_USAGE, "the accelerate file is not a map"},
        {"distributed_type: MULTI_CPU\nnum_proceses: 2\n", TRL_E_USAGE,
            ":2: unknown key num_proceses in an accelerate file; did you mean num_processes?"},
        {"distributed_type: MULTI_CPU\nnum_processes: two\n", TRL_E_USAGE,
            "num_processes: \"two\" is not possible"},
        {"distributed_type: MULTI_CPU\nnum_processes: 0\n", TRL_E_RANGE,
            "num_processes: 0 is out of range"},
        {"distributed_type: MULTI_CPU\nmixed_precision: fp8\n", TRL_E_UNSUPPORTED,
            "mixed_precision: \"fp8\" is not supported: it needs a GPU"},
        {"distributed_type: MULTI_CPU\nmixed_precision: [a]\n", TRL_E_USAGE,
            ":2: mixed_precision: wanted: no, fp16 or bf16"},
        {"distributed_type: MULTI_CPU\ncompute_environment: AMAZON_SAGEMAKER\n", TRL_E_UNSUPPORTED,
            ":2: compute_environment: only LOCAL_MACHINE is supported"},
        {"distributed_type: MULTI_CPU\nregion: us-east-1\n", TRL_E_UNSUPPORTED,
            ":2: region: SageMaker is not supported"},
        {"distributed_type: MULTI_CPU\nparallelism_config: {parallelism_config_cp_size: 2}\n",
            TRL_E_UNSUPPORTED,
            ":2: parallelism_config (with parallelism_config_cp_size) is not supported"},
        {"distributed_type: MULTI_CPU\ndeepspeed_config: {zero_stage: 2}\n", TRL_E_UNSUPPORTED,
            ":2: deepspeed_config (with zero_stage) is not supported"},
        {"distributed_type: MULTI_CPU\nfsdp_config: 3\n", TRL_E_USAGE,
            ":2: fsdp_config: wanted: a map"},
        {"distributed_type: MULTI_CPU\n\tx: 3\n", TRL_E_PARSE, ":2:1: a tab in the indentation"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_config c;
        struct trl_err err;
        int rc = parse(&c, &err, cases[i].text, "a.yaml", NULL);
        if (rc != cases[i].rc || !strstr(err.text, cases[i].want))
            fail_msg("%s gives %d: %s", cases[i].text, rc, err.text);
    }
}

/* The shipped files, by name: the GPU ones are refused unless use_cpu overrides them. */
static void test_profiles(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool gpu;
        int64_t processes; /* with --use_cpu true; -1: none */
    } cases[] = {{"single_gpu", true, -1}, {"multi_gpu", true, 8}, {"multi_gpu.yaml", true, 8},
        {"multi_cpu", false, 2}};
    char configs[1024];
    snprintf(configs, sizeof(configs), "%s/configs", getenv("TRL_SOURCE_ROOT"));
    setenv("TRL_CONFIG_DIR", configs, 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_config c;
        struct trl_err err;
        char *argv[] = {(char *)"--config_file", (char *)cases[i].name, (char *)"--use_cpu",
            (char *)"true", (char *)"--num_processes", (char *)"3"};
        int rc = trl_config_parse(&c, "sft", 2, argv, &err);
        assert_int_equal(rc, cases[i].gpu ? TRL_E_UNSUPPORTED : 0);
        if (!rc)
            trl_config_release(&c);
        assert_trl_ok(trl_config_parse(&c, "sft", 4, argv, &err), &err);
        assert_true(c.num_processes.set ? c.num_processes.value == cases[i].processes
                                        : cases[i].processes == -1);
        assert_true(c.bf16.value);
        trl_config_release(&c);
        assert_trl_ok(trl_config_parse(&c, "sft", 6, argv, &err), &err);
        assert_int_equal(c.num_processes.value, 3);
        trl_config_release(&c);
    }
    struct trl_config c;
    struct trl_err err;
    char *missing[] = {(char *)"--accelerate_config", (char *)"zero9"};
    assert_int_equal(trl_config_parse(&c, "sft", 2, missing, &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text,
        "there is no file \"zero9\" and no installed profile of that name; installed are "
        "single_gpu, multi_gpu and multi_cpu"));
    /* the run file that is shipped */
    char run[1100], *args[] = {(char *)"--config", run};
    snprintf(run, sizeof(run), "%s/sft.yaml", configs);
    assert_trl_ok(trl_config_parse(&c, "sft", 2, args, &err), &err);
    assert_true(c.learning_rate == 2e-5 && c.gradient_accumulation_steps == 4);
    trl_config_release(&c);
    /* without the variable they are found beside the program or in the source tree around the build
     * folder */
    unsetenv("TRL_CONFIG_DIR");
    char *by_name[] = {(char *)"--accelerate_config", (char *)"multi_cpu"};
    int rc = trl_config_parse(&c, "sft", 2, by_name, &err);
    assert_true(rc == 0 || rc == TRL_E_NOENT); /* a build folder may lie anywhere */
    trl_config_release(&c);
}

/* What a launcher started is the truth. */
static void test_launch(void **state)
{
    (void)state;
    struct trl_config c;
    struct trl_err err;
    char *two[] = {(char *)"--num_machines", (char *)"2", (char *)"--num_processes", (char *)"4",
        (char *)"--print_config"};
    assert_int_equal(trl_config_parse(&c, "sft", 4, two, &err), TRL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text,
        "num_machines: 2 (--num_machines on the command line): a start of each machine by hand"));
    assert_trl_ok(trl_config_parse(&c, "sft", 5, two, &err), &err);
    trl_config_release(&c);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_trl_ok(trl_config_parse(&c, "sft", 4, two, &err), &err);
    trl_config_release(&c);
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    assert_int_equal(trl_config_parse(&c, "sft", 4, two, &err), TRL_E_USAGE);
    assert_non_null(strstr(err.text,
        "num_processes: 4 (--num_processes on the command line), and mpirun (Open MPI) has started "
        "8 (OMPI_COMM_WORLD_SIZE)"));
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

static int set_up(void **state)
{
    (void)state;
    static const char *const launchers[] = {
        "OMPI_COMM_WORLD_RANK", "MPI_LOCALNRANKS", "SLURM_STEP_ID", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
        unsetenv(launchers[i]);
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return trl_rmtree(dir, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_values),
    cmocka_unit_test(test_errors),
    cmocka_unit_test(test_profiles),
    cmocka_unit_test(test_launch),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
