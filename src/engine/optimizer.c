// SPDX-License-Identifier: Apache-2.0
// The optimizer of an engine: the update rule and its parameter groups, the rates of each step, and
// the loss scale. Without an optimizer only the loss scale is used, and it is 1.
#include <math.h>

#include "engine/private.h"

sw_status sw_engine_open_optimizer(const struct sw_config *c, bool wanted,
                                   struct engine_optimizer *out)
{
    out->lr_override = NAN;
    out->trains = wanted && c->optimizer.type != SW_OPTIMIZER_NONE;
    if (out->trains) {
        SW_TRY(sw_config_check_steps(c));
        SW_TRY(sw_update_rule_init(&c->optimizer, c->spillway.decay_1d, &out->rule));
        SW_TRY(sw_update_groups_open(c, &out->rule.groups));
        out->rule.moments = (enum sw_moments)c->spillway.moments;
        SW_TRY(sw_schedule_init(&out->schedule, c, 1));
    }
    sw_scaler_init(&out->scaler, &c->fp16);
    return SW_OK;
}

void sw_engine_close_optimizer(struct engine_optimizer *o)
{
    sw_update_groups_close(o->rule.groups);
}

sw_status sw_engine_bind_groups(struct engine_optimizer *o, const struct sw_graph *g)
{
    if (!o->rule.groups) {
        return SW_OK;
    }
    const char **names = sw_alloc("engine", ((size_t)g->n_values + 1) * sizeof *names);
    SW_TRY_ALLOC(names, "groups of parameters");
    int64_t n = 0;
    for (sw_value v = 0; v < g->n_values; v++) {
        if (g->values[v].role == SW_ROLE_PARAM) {
            names[n++] = g->values[v].name;
        }
    }
    const sw_status st = sw_update_groups_bind(o->rule.groups, names, n);
    sw_free(names);
    return st;
}

uint64_t sw_engine_hash_rates(const struct engine_optimizer *o, uint64_t h)
{
    for (int64_t i = 0; o->trains && i < INT64_C(1) << 24; i = i < 64 ? i + 1 : i * 2) {
        const struct sw_rates rates = sw_schedule_at(&o->schedule, 0, i);
        const double values[] = {rates.lr, rates.beta1, rates.beta2};
        h = sw_hash(h, values, sizeof values);
    }
    return h;
}

void sw_engine_next_rates(struct engine_optimizer *o, int64_t applied)
{
    o->rates = sw_schedule_at(&o->schedule, 0, applied);
    if (!isnan(o->lr_override)) {
        o->rates.lr = o->lr_override;
    }
}
