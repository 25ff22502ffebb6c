// SPDX-License-Identifier: Apache-2.0
// The numbers of a step's routers, as metrics.jsonl and the monitors name them.
#include "job/private.h"

static void put(struct sw_job_routers *out, const char *name, const char *gauge, const char *help,
                double value)
{
    out->items[out->n].name = name;
    out->items[out->n].gauge = (struct sw_gauge){gauge, help, NULL, false, value};
    out->n++;
}

void sw_job_count_routers(const sw_engine *e, bool drops, struct sw_job_routers *out)
{
    struct sw_engine_routers r;
    out->n = 0;
    if (!sw_engine_routers(e, &r)) {
        return;
    }
    if (!isnan(r.aux_loss)) {
        put(out, "router_aux_loss", "spillway_router_aux_loss",
            "Load-balancing loss of the routers, without its weight.", r.aux_loss);
    }
    if (!isnan(r.z_loss)) {
        put(out, "router_z_loss", "spillway_router_z_loss",
            "Mean square of log sum exp of the routers' scores.", r.z_loss);
    }
    put(out, "expert_least_load", "spillway_expert_least_load",
        "Rows of the expert with the fewest; 1 is an equal share.", r.least_load);
    put(out, "expert_most_load", "spillway_expert_most_load",
        "Rows of the expert with the most; 1 is an equal share.", r.most_load);
    put(out, "router_entropy", "spillway_router_entropy",
        "Entropy of the experts' shares; 1 is that of equal shares.", r.entropy);
    if (drops) {
        put(out, "dropped_choices", "spillway_dropped_choices",
            "Choices of experts that the capacity dropped in the step.", r.dropped);
        put(out, "dropped_share", "spillway_dropped_share", "Dropped choices among all choices.",
            r.dropped / r.choices);
    }
}
