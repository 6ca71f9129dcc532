/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TESTS_CLI_RUN_H
#define TRL_TESTS_CLI_RUN_H
/*
 * Starting trl-train as a user does, and looking at what it says and leaves. Every test program gets the path of trl-train as its
 * argument. Folders are in memory (/dev/shm): nobody waits for a disk.
 */
#include "../trl-test.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

struct cli_result {
    int code;       /* exit code; -signal when a signal ended it */
    char *out, *err; /* what it wrote to stdout and stderr */
    double seconds;
};

/* main() of a test program: keeps argv[1], makes the folder, runs the tests, removes the folder. */
int cli_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n);
#define CLI_TEST_MAIN(tests)                                                                       \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return cli_main(argc, argv, tests, sizeof(tests) / sizeof((tests)[0]));                    \
    }

/* A path below the test's folder; it lives until the program ends. */
const char *cli_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* tests/data/golden/models/NAME and tests/data/golden/data/NAME */
const char *cli_model(const char *name);
const char *cli_rows(const char *name);

/* Words of a command line; NULL ends them. */
enum { CLI_MAX_WORDS = 96 };
struct cli_line {
    const char *words[CLI_MAX_WORDS];
    int n;
};
void cli_add(struct cli_line *l, ...) __attribute__((sentinel));
/* trl-train sft with a tiny model and rows, 2 steps, nothing saved but the final model, into cli_path("out"), which is removed
 * before. Options that are added later win. */
void cli_begin(struct cli_line *l, const char *model, const char *rows);

pid_t cli_start(const struct cli_line *l); /* its output goes to files of the test's folder */
void cli_finish(pid_t pid, struct cli_result *ret);
void cli_run(const struct cli_line *l, struct cli_result *ret);
void cli_release(struct cli_result *r);

/* The command line ends with this code and stderr has all these words (NULL ends them). With a code of failure: exactly one message,
 * and output_dir (cli_path("out")) was not made or has nothing that is half written. */
void cli_expect(const struct cli_line *l, int code, ...) __attribute__((sentinel));
/* Words in what a run said; the test fails with the whole text otherwise. */
void cli_has(const struct cli_result *r, const char *text, ...) __attribute__((sentinel));

/* Files */
void cli_write(const char *path, const void *data, size_t len);
void cli_write_text(const char *path, const char *text);
char *cli_read(const char *path, size_t *ret_len); /* trl_free */
void cli_copy_dir(const char *from, const char *to); /* flat; `to` is removed before */
json_t *cli_read_json(const char *path);
bool cli_exists(const char *path);
/* Names in a folder that begin with a dot or hold "tmp": leftovers. */
int cli_leftovers(const char *dir);
/* Both files have the same bytes. */
void cli_same_file(const char *a, const char *b);

#endif
