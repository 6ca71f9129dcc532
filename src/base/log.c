/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static struct {
    pthread_mutex_t lock;
    int rank, world;
    char host[64];
    enum trl_log_level least;
    void (*erase)(void *);
    void (*draw)(void *);
    void *bar;
} g = {.lock = PTHREAD_MUTEX_INITIALIZER, .world = 1, .least = TRL_LOG_INFO};

void trl_log_init(int rank, int world, const char *host)
{
    g.rank = rank;
    g.world = world;
    snprintf(g.host, sizeof(g.host), "%s", host ? host : "");
}

void trl_log_set_level(enum trl_log_level least)
{
    g.least = least;
}

void trl_log_set_bar(void (*erase)(void *), void (*draw)(void *), void *ctx)
{
    pthread_mutex_lock(&g.lock);
    g.erase = erase;
    g.draw = draw;
    g.bar = ctx;
    pthread_mutex_unlock(&g.lock);
}

void trl_log(enum trl_log_level level, const char *fmt, ...)
{
    static const char *const names[TRL_LOG_MAX_] = {"debug: ", "", "warning: ", "error: "};
    if (level < g.least || (level <= TRL_LOG_INFO && g.rank != 0))
        return;
    char line[4096];
    int n = 0;
    if (g.world > 1)
        n = snprintf(line, sizeof(line), "[rank %d/%d %s] ", g.rank, g.world, g.host);
    n += snprintf(line + n, sizeof(line) - (size_t)n, "%s", names[level]);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&g.lock);
    if (g.erase)
        g.erase(g.bar);
    fprintf(stderr, "%s\n", line);
    if (g.draw)
        g.draw(g.bar);
    pthread_mutex_unlock(&g.lock);
}
