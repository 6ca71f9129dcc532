/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/phases.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

void trl_phases_init(struct trl_phases *p)
{
    memset(p, 0, sizeof(*p));
    p->start = p->last = trl_clock_now() - trl_clock_since_exec();
}

void trl_phases_mark(struct trl_phases *p, const char *name)
{
    double now = trl_clock_now();
    int i = 0;
    while (i < p->n && strcmp(p->items[i].name, name))
        i++;
    if (i == TRL_PHASES_MAX)
        i--; /* too many names: the last one takes the rest */
    if (i == p->n) {
        snprintf(p->items[i].name, sizeof(p->items[i].name), "%s", name);
        p->n++;
    }
    p->items[i].seconds += now - p->last;
    p->items[i].count++;
    p->last = now;
}

double trl_phases_get(const struct trl_phases *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->items[i].name, name))
            return p->items[i].seconds;
    return 0;
}

double trl_phases_total(const struct trl_phases *p)
{
    double sum = 0;
    for (int i = 0; i < p->n; i++)
        sum += p->items[i].seconds;
    return sum;
}

json_t *trl_phases_json(const struct trl_phases *p)
{
    json_t *o = json_object();
    for (int i = 0; o && i < p->n; i++)
        if (json_object_set_new(o, p->items[i].name, json_real(p->items[i].seconds)) != 0) {
            json_decref(o);
            return NULL;
        }
    return o;
}
