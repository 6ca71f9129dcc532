/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double trl_clock_now(void)
{
    return seconds(CLOCK_MONOTONIC);
}

double trl_clock_wall(void)
{
    return seconds(CLOCK_REALTIME);
}

double trl_clock_since_exec(void)
{
    char b[1024];
    FILE *f = fopen("/proc/self/stat", "r");
    if (!f)
        return 0;
    size_t n = fread(b, 1, sizeof(b) - 1, f);
    fclose(f);
    b[n] = '\0';
    char *p = strrchr(b, ')'); /* the command name may hold spaces; fields count from 3 after it */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p)
        return 0;
    double started = strtod(p + 1, NULL) / (double)sysconf(_SC_CLK_TCK);
    return seconds(CLOCK_BOOTTIME) - started;
}

long long trl_clock_peak_rss(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (long long)u.ru_maxrss * 1024 : 0;
}
