/* SPDX-License-Identifier: Apache-2.0 */
#include "train/signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t g_asked;

static void on_signal(int number)
{
    if (g_asked)
        _exit(128 + number);
    g_asked = 1;
    static const char text[] = "signal received: stopping with a checkpoint after this step\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)n;
}

void trl_signals_install(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof(a));
    a.sa_handler = on_signal;
    a.sa_flags = SA_RESTART;
    sigemptyset(&a.sa_mask);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGUSR1, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool trl_signals_stop_asked(void)
{
    return g_asked != 0;
}
