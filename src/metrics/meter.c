/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "metrics/metrics.h"

void trl_meter_init(struct trl_meter *m, bool nan_inf_filter, int64_t global_step)
{
    memset(m, 0, sizeof(*m));
    m->nan_inf_filter = nan_inf_filter;
    m->start_step = m->last_logged = global_step;
}

void trl_meter_add_loss(struct trl_meter *m, double loss, int64_t global_step)
{
    /* float32 as transformers' running sum */
    if (m->nan_inf_filter && !isfinite(loss))
        m->loss_sum += m->loss_sum / (float)(1 + global_step - m->last_logged);
    else
        m->loss_sum += (float)loss;
}

static struct trl_meter_item *find_item(struct trl_meter *m, const char *name)
{
    int i = 0;
    while (i < m->n && strcmp(m->items[i].name, name))
        i++;
    if (i == TRL_METER_MAX)
        trl_bug("more than %d metrics, no room for %s", TRL_METER_MAX, name);
    if (i == m->n) {
        memset(&m->items[i], 0, sizeof(m->items[i]));
        snprintf(m->items[i].name, sizeof(m->items[i].name), "%s", name);
        m->n++;
    }
    return &m->items[i];
}

void trl_meter_add(struct trl_meter *m, const char *name, double value)
{
    struct trl_meter_item *it = find_item(m, name);
    it->sum += value;
    it->count++;
}

void trl_meter_set(struct trl_meter *m, const char *name, double value)
{
    struct trl_meter_item *it = find_item(m, name);
    it->sum = value;
    it->count = 1;
    it->overwrite = true;
}

double trl_meter_take_loss(struct trl_meter *m, double mean_loss_sum, int64_t global_step)
{
    int64_t steps = global_step - m->last_logged;
    m->loss_sum = 0;
    m->total_loss += mean_loss_sum;
    m->last_logged = global_step;
    return mean_loss_sum / (double)(steps > 0 ? steps : 1);
}

double trl_meter_train_loss(const struct trl_meter *m, double mean_loss_sum, int64_t global_step)
{
    double steps = (double)(global_step - m->start_step);
    return (m->total_loss + mean_loss_sum) / (steps > 0.001 ? steps : 0.001);
}

int trl_meter_take(struct trl_meter *m, const char *prefix, json_t *record, struct trl_err *err)
{
    char key[80];
    for (int i = 0; i < m->n; i++) {
        const struct trl_meter_item *it = &m->items[i];
        snprintf(key, sizeof(key), "%s%s", prefix, it->name);
        if (json_object_set_new(record, key, trl_json_real(it->sum / (double)it->count)) != 0)
            return trl_fail_nomem(err, sizeof(key), "a log record");
    }
    m->n = 0;
    return 0;
}
