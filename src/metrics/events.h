/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_METRICS_EVENTS_H
#define TRL_METRICS_EVENTS_H
/*
 * TensorBoard event files: TFRecord framing (masked crc32c) around protobuf Event messages. Scalars and texts.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct trl_events;
/* Creates `dir` and in it events.out.tfevents.<seconds>.<host>.<pid>.<counter>. */
int trl_events_open(struct trl_events **ret, const char *dir, struct trl_err *err);
int trl_events_scalar(struct trl_events *e, const char *tag, double value, int64_t step, struct trl_err *err);
int trl_events_text(struct trl_events *e, const char *tag, const char *text, int64_t step, struct trl_err *err);
int trl_events_flush(struct trl_events *e, struct trl_err *err);
void trl_events_close(struct trl_events *e); /* NULL is fine */

/* The encoders, for tests: append one framed record to `s`. */
void trl_events_put_version(struct trl_str *s, double wall_time);
void trl_events_put_scalar(struct trl_str *s, const char *tag, float value, int64_t step, double wall_time);
void trl_events_put_text(struct trl_str *s, const char *tag, const char *text, int64_t step, double wall_time);
uint32_t trl_crc32c(const void *data, size_t len);

#endif
