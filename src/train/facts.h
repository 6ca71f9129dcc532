/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TRAIN_FACTS_H
#define TRL_TRAIN_FACTS_H
/* What is known about a run and told to its user: the first line of metrics.jsonl, the closing summary. */
#include "train/loop.h"

/* {"model": ..., "parameters": ..., "ranks": ..., "backend": ...}; NULL when out of memory. */
json_t *trl_facts_json(const struct trl_run *run, int64_t max_steps);
/* Parameters outside embeddings, as transformers counts for total_flos. */
double trl_facts_non_embedding(const struct trl_params *p);
void trl_facts_optim_config(const struct trl_config *cfg, struct trl_optim_config *ret);
bool trl_facts_reports_to(const struct trl_config *cfg, const char *tracker);
/* The first optimiser step is done: say how long it took from exec. */
void trl_facts_first_step(struct trl_run *run);
/* Collective: peak memory is the largest of all ranks. */
int trl_facts_summary(struct trl_loop *l, double seconds, struct trl_err *err);

#endif
