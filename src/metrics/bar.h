/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_METRICS_BAR_H
#define TRL_METRICS_BAR_H
/*
 * The progress bar: owns the last line of a terminal (stderr) and steps aside for log messages. Used through metrics.h; the tokeniser
 * of large data sets may use it, too. Caller's storage; one at a time.
 */
#include <stdbool.h>
#include <stdint.h>

struct trl_bar {
    bool on;
    int64_t first, done, total, tokens; /* first: done at begin (a resumed run) */
    double start, last_drawn;
    double epoch, loss; /* loss NaN: not known yet */
    char status[64];
    int width;
};
/* on = false: all calls do nothing. */
void trl_bar_begin(struct trl_bar *b, bool on, int64_t done, int64_t total);
void trl_bar_update(struct trl_bar *b, int64_t done, int64_t more_tokens, bool force);
/* Erase the line (something else is printed); the next update draws it again. */
void trl_bar_hide(struct trl_bar *b);
void trl_bar_end(struct trl_bar *b);
/* The line as text, for tests: at most `width` columns. `elapsed` since begin. */
void trl_bar_format(const struct trl_bar *b, double elapsed, char *buf, int size);

#endif
