/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TRAIN_SIGNALS_H
#define TRL_TRAIN_SIGNALS_H
/* SIGTERM, SIGINT and SIGUSR1 ask for a checkpoint at the next step and an orderly end; a second one ends the program at once. */
#include <stdbool.h>

void trl_signals_install(void);
bool trl_signals_stop_asked(void);

#endif
