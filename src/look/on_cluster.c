// SPDX-License-Identifier: Apache-2.0
// A plan held against a cluster: the bytes of each tier against what there is.
#include <string.h>

#include "cluster/cluster.h"
#include "json/json.h"
#include "look/private.h"
#include "spillway/look.h"

static sw_status check_numbers(const struct sw_plan_cluster *on)
{
    if (!on->name || on->nodes < 0 || on->ranks < 0) {
        return SW_FAIL(SW_E_ARG,
                       "a cluster: wanted a name, and 0 or more nodes and ranks, got %s, "
                       "%lld and %lld",
                       on->name ? on->name : "no name", (long long)on->nodes, (long long)on->ranks);
    }
    return SW_OK;
}

sw_status sw_plan_cluster_size(struct sw_plan_cluster *on)
{
    struct sw_cluster *cluster = NULL;
    SW_TRY_OPTIONS(on);
    SW_TRY(check_numbers(on));
    SW_TRY(sw_cluster_open(on->name, &cluster));
    const int64_t each = (int64_t)cluster->node.devices.value;
    const int64_t nodes = on->nodes > 0 ? on->nodes : sw_max_i64(1, sw_ceil_div(on->ranks, each));
    sw_status st = sw_cluster_check_size(cluster, nodes, 1);
    const int64_t ranks = on->ranks > 0 || st < 0 ? on->ranks : nodes * each;
    st = st < 0 ? st : sw_cluster_check_size(cluster, nodes, ranks);
    sw_cluster_close(cluster);
    SW_TRY(st);
    on->nodes = nodes;
    on->ranks = ranks;
    return SW_OK;
}

/* ---- the report ---- */

struct report {
    const struct sw_plan_cluster *on;
    const struct sw_cluster *cluster;
    struct sw_cost_mesh mesh;
    size_t bytes[SW_TIER_COUNT], there[SW_TIER_COUNT]; /* of the rank that takes most */
    const struct sw_program *program;                  /* of the stage that computes longest */
    struct sw_clock_report clock;
    double flops; /* of a rank's kernels in a step, the mean of all stages */
};

static const char *words_of(const struct sw_instr *instr)
{
    return instr->about->tensor ? instr->about->tensor : instr->about->where;
}

/* The time of a step at the cluster's rates. */
static sw_status find_time(const struct sw_lineup *lineup, struct report *r)
{
    int stage;
    SW_TRY(sw_look_cluster_stage(lineup, &r->mesh, &r->clock, &r->flops, &stage));
    r->program = &sw_engine_facts(lineup->stages[stage].engine).plan->programs[0];
    return SW_OK;
}

static double tflops_of(const struct report *r)
{
    return r->clock.seconds > 0 ? r->flops / r->clock.seconds / 1e12 : 0;
}

static void print_time(const struct report *r, struct sw_str *out)
{
    const struct sw_clock_report *clock = &r->clock;
    const char *before = ": ";
    sw_str_printf(out, "a step takes %.6f s", clock->seconds);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (clock->part[q] > 0) {
            sw_str_printf(out, "%s%s%s %.6f s", before, q > 0 ? "waits for " : "",
                          sw_queue_name((enum sw_queue)q), clock->part[q]);
            before = ", ";
        }
    }
    sw_str_printf(out, "\n%.2f TFLOP/s per device\n", tflops_of(r));
    if (clock->longest >= 0) {
        const struct sw_instr *instr = &r->program->instrs[clock->longest];
        sw_str_printf(out, "%s bounds it, most of all instruction %d (%s of %s): %.6f s\n",
                      sw_queue_name(clock->bound), clock->longest, instr->about->name,
                      words_of(instr), clock->instrs[clock->longest].charge);
    }
}

static void print_text(const struct report *r, struct sw_str *out)
{
    const struct sw_plan_cluster *on = r->on;
    sw_str_printf(out, "\non %s: %lld rank%s on %lld node%s of %.0f x %s\n", r->cluster->name,
                  (long long)on->ranks, on->ranks == 1 ? "" : "s", (long long)on->nodes,
                  on->nodes == 1 ? "" : "s", r->cluster->node.devices.value,
                  r->cluster->device.name);
    sw_look_print_tiers(r->bytes, r->there, out);
    print_time(r, out);
}

static sw_status print_json(const struct report *r, const struct sw_lineup *lineup,
                            struct sw_str *out)
{
    sw_look_put_text("{\"name\":", r->cluster->name, out);
    sw_str_printf(out, ",\"nodes\":%lld,\"ranks\":%lld,", (long long)r->on->nodes,
                  (long long)r->on->ranks);
    sw_look_put_tiers(r->bytes, r->there, out);
    sw_look_put_number(",\"step_seconds\":", r->clock.seconds, out);
    sw_look_put_number(",\"tflops_per_device\":", tflops_of(r), out);
    sw_look_put_number(",\"flops\":", r->flops, out);
    sw_str_printf(out, ",\"bound\":\"%s\"", sw_queue_name(r->clock.bound));
    for (int k = 0; k < 2; k++) {
        const double *of = k == 0 ? r->clock.part : r->clock.alone;
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            sw_str_printf(out, "%s\"%s\":",
                          q > 0    ? ","
                          : k == 0 ? ",\"of_step\":{"
                                   : ",\"seconds\":{",
                          sw_queue_name((enum sw_queue)q));
            sw_json_write_f64(of[q], out);
        }
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, ",\"lanes\":");
    SW_TRY(sw_look_put_lanes(lineup, &r->mesh, r->clock.seconds, out));
    sw_str_putc(out, '}');
    return SW_OK;
}

static sw_status report(const struct sw_lineup *lineup, struct report *r, struct sw_str *out)
{
    sw_status st = SW_OK;
    sw_look_tiers(lineup, r->bytes, r->there);
    SW_TRY(find_time(lineup, r));
    if (r->on->json) {
        st = print_json(r, lineup, out);
    } else {
        print_text(r, out);
    }
    sw_free(r->clock.instrs);
    return st;
}

/* The device is that of the cluster, and the ranks exchange nothing. */
static sw_status plan_on(const struct sw_engine_options *options, struct report *r,
                         struct sw_str *out)
{
    struct sw_engine_options o = *options;
    struct sw_str device = {0};
    struct sw_lineup lineup;
    sw_str_printf(&device, "sim:%s", r->on->name);
    SW_TRY_ALLOC(device.ptr, "a plan");
    o.run.device = device.ptr;
    sw_status st = sw_lineup_open(&o, (int)r->on->ranks, &lineup);
    if (st >= 0) {
        st = report(&lineup, r, out);
        sw_lineup_close(&lineup);
    }
    sw_str_fini(&device);
    return st;
}

sw_status sw_plan_cluster_text(const struct sw_engine_options *options,
                               const struct sw_plan_cluster *on, char **out)
{
    struct report r = {.on = on};
    struct sw_cluster *cluster = NULL;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY_OPTIONS(on);
    SW_TRY(check_numbers(on));
    SW_TRY(sw_cluster_open(on->name, &cluster));
    r.cluster = cluster;
    r.mesh = (struct sw_cost_mesh){.cluster = cluster, .ranks = on->ranks};
    sw_status st = sw_cluster_check_size(cluster, on->nodes, on->ranks);
    st = st < 0 ? st : plan_on(options, &r, &text);
    sw_cluster_close(cluster);
    return sw_look_give(st, &text, out);
}
