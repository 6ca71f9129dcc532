/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer.h"

#include <string.h>

static const struct trl_trainer *const trainers[] = {&trl_trainer_sft};

/* Trainers of TRL that this program does not have: known, so that the answer is not "did you mean". */
static const char *const others[] = {"dpo", "reward", "kto", "grpo", "rloo", "online_dpo", "distillation", "bco", "cpo", "gkd", "nash_md",
    "orpo", "ppo", "prm", "xpo"};

const struct trl_trainer *trl_trainer_find(const char *name, struct trl_err *err)
{
    for (size_t i = 0; i < sizeof(trainers) / sizeof(trainers[0]); i++)
        if (strcmp(name, trainers[i]->name) == 0)
            return trainers[i];
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(name, others[i]) == 0) {
            trl_fail(err, TRL_E_UNSUPPORTED, "trainer '%s' is not supported by this version; supported: sft", name);
            return NULL;
        }
    trl_fail(err, TRL_E_USAGE, "unknown trainer '%s'; supported: sft", name);
    return NULL;
}
