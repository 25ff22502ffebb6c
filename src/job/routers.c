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

int64_t sw_job_routed(const struct sw_engine_facts *facts)
{
    const int group = sw_plan_group(facts->plan, 1U << SW_AXIS_EXPERT);
    struct sw_traffic traffic = {.calls = {0}};
    if (group >= 0) {
        sw_executor_traffic(facts->executor, group, &traffic);
    }
    return traffic.sent[SW_COMM_ALL_TO_ALL];
}

struct sw_job_loads sw_job_expert_loads(const struct sw_engine_facts *facts)
{
    struct sw_transfers moved;
    struct sw_job_loads sum = {0, 0};
    sw_executor_transferred(facts->executor, &moved);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sum.chosen += moved.chosen[t];
        sum.most += moved.chosen[t] + moved.unchosen[t];
    }
    return sum;
}

void sw_job_count_routers(const sw_engine *e, const int64_t most[SW_JOB_NUMBERS],
                          struct sw_job_routers *out)
{
    const struct sw_config *c = sw_engine_facts(e).config;
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
    if (c->spillway.capacity_factor > 0) {
        put(out, "dropped_choices", "spillway_dropped_choices",
            "Choices of experts that the capacity dropped in the step.", r.dropped);
        put(out, "dropped_share", "spillway_dropped_share", "Dropped choices among all choices.",
            r.dropped / r.choices);
    }
    if (c->parallel.expert > 1) {
        put(out, "expert_sent_bytes", "spillway_expert_sent_bytes",
            "Bytes that the rank with the most sent along the expert axis.",
            (double)most[SW_JOB_ROUTED]);
    }
    if (most[SW_JOB_EXPERTS_MOST] > 0) {
        put(out, "expert_loaded_bytes", "spillway_expert_loaded_bytes",
            "Bytes of experts that the rank with the most loaded, since tokens had chosen them.",
            (double)most[SW_JOB_EXPERTS_LOADED]);
        put(out, "expert_most_bytes", "spillway_expert_most_bytes",
            "Bytes of these loads if tokens had chosen all experts.",
            (double)most[SW_JOB_EXPERTS_MOST]);
    }
}
