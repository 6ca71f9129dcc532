/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_LOG_H
#define TRL_BASE_LOG_H
/*
 * Messages for people, on stderr. Library code may inform and warn (a value that has no effect, a skipped
 * checkpoint); errors are returned, and printed once by the program. Info is printed by rank 0 only, warnings by
 * all; with more than one rank a line starts with "[rank R/W host]". A progress bar that owns the last
 * terminal line registers itself so that messages do not run into it.
 */

enum trl_log_level { TRL_LOG_DEBUG, TRL_LOG_INFO, TRL_LOG_WARN, TRL_LOG_ERROR, TRL_LOG_MAX_ };

void trl_log_init(int rank, int world, const char *host); /* before that: rank 0 of 1 */
void trl_log_set_level(enum trl_log_level least);
void trl_log(enum trl_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define trl_info(...) trl_log(TRL_LOG_INFO, __VA_ARGS__)
#define trl_warn(...) trl_log(TRL_LOG_WARN, __VA_ARGS__)
/* Called around each message: erase the bar / draw it again. NULL: none. */
void trl_log_set_bar(void (*erase)(void *), void (*draw)(void *), void *ctx);

#endif
