/* SPDX-License-Identifier: Apache-2.0 */
/* The last lines of a run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "metrics/metrics.h"

static void put_seconds(struct trl_str *s, double t)
{
    if (t < 120)
        trl_str_printf(s, "%.*f s", t < 10 ? 2 : 1, t);
    else if (t < 7200)
        trl_str_printf(s, "%.1f min", t / 60);
    else
        trl_str_printf(s, "%.1f h", t / 3600);
}

static void put_count(struct trl_str *s, int64_t n, const char *what)
{
    trl_str_printf(s, "%lld %s%s", (long long)n, what, n == 1 ? "" : "s");
}

/* phases that took 1 % or more, largest first */
static void put_phases(struct trl_str *s, const struct trl_phases *p)
{
    double total = trl_phases_total(p), shown = 0;
    bool done[TRL_PHASES_MAX] = {false};
    if (!(total > 0))
        return;
    trl_str_puts(s, "  time       ");
    put_seconds(s, total);
    trl_str_puts(s, ":");
    for (int k = 0; k < p->n; k++) {
        int best = -1;
        for (int i = 0; i < p->n; i++)
            if (!done[i] && (best < 0 || p->items[i].seconds > p->items[best].seconds))
                best = i;
        done[best] = true;
        if (p->items[best].seconds < 0.01 * total)
            break;
        trl_str_printf(s, "%s %s %.0f%%", k ? "," : "", p->items[best].name, 100 * p->items[best].seconds / total);
        shown += p->items[best].seconds;
    }
    if (total - shown > 0.005 * total)
        trl_str_printf(s, ", other %.0f%%", 100 * (total - shown) / total);
    trl_str_putc(s, '\n');
}

void trl_summary_put(struct trl_str *out, const struct trl_summary *s)
{
    trl_str_puts(out, "done: ");
    put_count(out, s->steps, "step");
    trl_str_puts(out, ", ");
    put_count(out, s->tokens, "token");
    trl_str_puts(out, " in ");
    put_seconds(out, s->seconds);
    trl_str_putc(out, '\n');
    if (s->steps > 0 && !isnan(s->loss_before) && !isnan(s->loss_after))
        trl_str_printf(out, "  loss       %.4f -> %.4f (%s)\n", s->loss_before, s->loss_after,
            s->has_eval ? (s->eval_before ? "evaluation, before and after" : "evaluation, first and last") : "training, first and last logged");
    if (s->seconds > 0 && s->tokens > 0) {
        trl_str_printf(out, "  speed      %.0f tokens/s", (double)s->tokens / s->seconds);
        if (s->flops > 0)
            trl_str_printf(out, ", %.1f GFLOP/s", s->flops / s->seconds * 1e-9);
        if (s->flops > 0 && s->peak_flops > 0)
            trl_str_printf(out, " = %.0f%% of this machine's measured matmul peak of %.0f GFLOP/s",
                100 * s->flops / s->seconds / s->peak_flops, s->peak_flops * 1e-9);
        trl_str_putc(out, '\n');
    }
    if (s->peak_bytes > 0)
        trl_str_printf(out, "  memory     %.0f MiB at most in one process; allocations in steps after the first: %lld\n",
            (double)s->peak_bytes / 1048576, (long long)s->allocations);
    if (s->phases)
        put_phases(out, s->phases);
    if (s->output_dir)
        trl_str_printf(out, "  output     %s\n", s->output_dir);
}

void trl_summary_print(const struct trl_summary *s)
{
    struct trl_str out = {0};
    trl_summary_put(&out, s);
    fputs(trl_str_get(&out), stdout);
    fflush(stdout);
    trl_str_release(&out);
}
