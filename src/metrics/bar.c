/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/bar.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

static int terminal_width(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

static void put_duration(double seconds, char *buf, size_t size)
{
    long long s = seconds > 0 && seconds < 1e9 ? (long long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(buf, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, size, "%lld:%02lld", s / 60, s % 60);
}

/* Append to a buffer of `size`; *n never passes its end. */
__attribute__((format(printf, 4, 5))) static void add(char *buf, int size, int *n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int more = vsnprintf(buf + *n, (size_t)(size - *n), fmt, ap);
    va_end(ap);
    *n = more < size - *n ? *n + (more > 0 ? more : 0) : size - 1;
}

void trl_bar_format(const struct trl_bar *b, double elapsed, char *buf, int size)
{
    enum { TAIL = 192 };
    char head[96], tail[TAIL] = "", clock[32], cells[64];
    int64_t total = b->total > 0 ? b->total : 1, here = b->done - b->first;
    double share = b->done >= total ? 1 : (double)b->done / (double)total;
    int n = 0;
    snprintf(head, sizeof(head), "%3d%% %lld/%lld", (int)(share * 100), (long long)b->done, (long long)b->total);
    if (b->epoch > 0)
        add(tail, TAIL, &n, "  epoch %.2f", b->epoch);
    if (!isnan(b->loss))
        add(tail, TAIL, &n, "  loss %.4g", b->loss);
    if (b->tokens > 0 && elapsed > 0)
        add(tail, TAIL, &n, "  %.0f tokens/s", (double)b->tokens / elapsed);
    if (here > 0 && b->done < b->total) {
        put_duration(elapsed / (double)here * (double)(b->total - b->done), clock, sizeof(clock));
        add(tail, TAIL, &n, "  %s left", clock);
    }
    if (b->status[0])
        add(tail, TAIL, &n, "  %s", b->status);

    int width = b->width < size ? b->width : size - 1;
    int room = width - (int)strlen(head) - n - 3;
    room = room > 30 ? 30 : room;
    if (room >= 8) {
        for (int i = 0; i < room; i++)
            cells[i] = i < (int)(share * room) ? '#' : '.';
        cells[room] = '\0';
        snprintf(buf, (size_t)size, "%s [%s]%s", head, cells, tail);
    } else {
        snprintf(buf, (size_t)width + 1, "%s%s", head, tail);
    }
}

static void erase(void *ctx)
{
    (void)ctx;
    fputs("\r\033[K", stderr);
}

static void draw(void *ctx)
{
    struct trl_bar *b = ctx;
    char line[512];
    b->width = terminal_width() - 1;
    trl_bar_format(b, trl_clock_now() - b->start, line, sizeof(line));
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
}

void trl_bar_begin(struct trl_bar *b, bool on, int64_t done, int64_t total)
{
    *b = (struct trl_bar){.on = on, .done = done, .first = done, .total = total, .loss = NAN, .start = trl_clock_now(),
        .width = 80};
    if (!on)
        return;
    trl_log_set_bar(erase, draw, b);
    draw(b);
}

void trl_bar_update(struct trl_bar *b, int64_t done, int64_t more_tokens, bool force)
{
    b->done = done;
    b->tokens += more_tokens;
    double now = trl_clock_now();
    if (!b->on || (!force && now - b->last_drawn < 0.1))
        return;
    b->last_drawn = now;
    draw(b);
}

void trl_bar_hide(struct trl_bar *b)
{
    if (b->on)
        erase(b);
}

void trl_bar_end(struct trl_bar *b)
{
    if (!b->on)
        return;
    trl_log_set_bar(NULL, NULL, NULL);
    draw(b);
    fputc('\n', stderr);
    b->on = false;
}
