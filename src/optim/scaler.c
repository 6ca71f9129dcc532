/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/json.h"
#include "optim/optim.h"

enum { GROWTH_INTERVAL = 2000 };

void trl_scaler_init(struct trl_scaler *s, bool enabled)
{
    *s = (struct trl_scaler){.enabled = enabled, .scale = enabled ? 65536 : 1};
}

double trl_scaler_get(const struct trl_scaler *s)
{
    return s->enabled ? s->scale : 1;
}

void trl_scaler_update(struct trl_scaler *s, bool found_inf)
{
    if (!s->enabled)
        return;
    if (found_inf) {
        s->scale *= 0.5;
        s->good_steps = 0;
    } else if (++s->good_steps == GROWTH_INTERVAL) {
        if (s->scale * 2 <= 0x1p127) /* torch keeps it a finite float32 */
            s->scale *= 2;
        s->good_steps = 0;
    }
}

json_t *trl_scaler_state(const struct trl_scaler *s)
{
    return json_pack("{s:b, s:f, s:I}", "enabled", s->enabled, "scale", s->scale, "good_steps", (json_int_t)s->good_steps);
}

int trl_scaler_set_state(struct trl_scaler *s, const json_t *state, struct trl_err *err)
{
    double scale;
    const json_t *good = json_object_get(state, "good_steps");
    if (!trl_json_number(json_object_get(state, "scale"), &scale) || !(scale > 0) || !isfinite(scale) ||
        !json_is_integer(good) || json_integer_value(good) < 0 || json_integer_value(good) >= GROWTH_INTERVAL)
        return trl_fail(err, TRL_E_DATA, "loss scaler state: \"scale\" must be above 0, \"good_steps\" from 0 to %d",
            GROWTH_INTERVAL - 1);
    if (s->enabled && json_is_true(json_object_get(state, "enabled"))) {
        s->scale = scale;
        s->good_steps = json_integer_value(good);
    }
    return 0;
}
