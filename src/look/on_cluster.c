// SPDX-License-Identifier: Apache-2.0
// A plan held against a cluster: the bytes of each tier against what there is.
#include <string.h>

#include "cluster/cluster.h"
#include "engine/engine.h"
#include "json/json.h"
#include "spillway/comm.h"
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
    size_t bytes[SW_TIER_COUNT], there[SW_TIER_COUNT]; /* of a rank */
};

static void find_tiers(const struct sw_engine_facts *f, struct report *r)
{
    const size_t there[SW_TIER_COUNT] = {[SW_TIER_DEVICE] = f->device->memory_bytes,
                                         [SW_TIER_HOST] = f->device->host_bytes,
                                         [SW_TIER_DISK] = f->device->disk_bytes};
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        r->bytes[t] = f->plan->tier_bytes[t];
        r->there[t] = there[t];
    }
}

static void print_text(const struct report *r, struct sw_str *out)
{
    const struct sw_plan_cluster *on = r->on;
    sw_str_printf(out, "\non %s: %lld rank%s on %lld node%s of %.0f x %s\n", r->cluster->name,
                  (long long)on->ranks, on->ranks == 1 ? "" : "s", (long long)on->nodes,
                  on->nodes == 1 ? "" : "s", r->cluster->node.devices.value,
                  r->cluster->device.name);
    sw_str_printf(out, "%-22s %16s %16s %8s\n", "bytes of a rank", "it takes", "there are",
                  "share");
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(out, "  %-20s %16zu %16zu", sw_tier_name((enum sw_tier)t), r->bytes[t],
                      r->there[t]);
        if (r->there[t] > 0) {
            sw_str_printf(out, " %7.2f%%", 100 * (double)r->bytes[t] / (double)r->there[t]);
        }
        sw_str_putc(out, '\n');
    }
}

static void print_json(const struct report *r, struct sw_str *out)
{
    sw_str_puts(out, "{\"name\":");
    sw_json_write_string(r->cluster->name, strlen(r->cluster->name), out);
    sw_str_printf(out, ",\"nodes\":%lld,\"ranks\":%lld,\"tiers\":{", (long long)r->on->nodes,
                  (long long)r->on->ranks);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(out, "%s\"%s\":{\"bytes\":%zu,\"there_are\":%zu}", t > 0 ? "," : "",
                      sw_tier_name((enum sw_tier)t), r->bytes[t], r->there[t]);
    }
    sw_str_puts(out, "}}");
}

static sw_status report(const struct sw_engine_options *options, struct report *r,
                        struct sw_str *out)
{
    sw_engine *e = NULL;
    SW_TRY(sw_initialize(options, &e));
    const struct sw_engine_facts f = sw_engine_facts(e);
    find_tiers(&f, r);
    (r->on->json ? print_json : print_text)(r, out);
    sw_close(e);
    return SW_OK;
}

/* The device is that of the cluster, and the ranks exchange nothing. */
static sw_status plan_on(const struct sw_engine_options *options, struct report *r,
                         struct sw_str *out)
{
    struct sw_engine_options o = *options;
    struct sw_str device = {0};
    sw_comm *comm = NULL;
    sw_str_printf(&device, "sim:%s", r->on->name);
    SW_TRY_ALLOC(device.ptr, "a plan");
    o.plan.only = true;
    o.run.device = device.ptr;
    sw_status st = SW_OK;
    if (r->on->ranks > 1) {
        st = sw_comm_open(&(struct sw_transport){.size = (int)r->on->ranks}, &comm);
    }
    o.run.comm = comm;
    st = st < 0 ? st : report(&o, r, out);
    if (comm) {
        sw_comm_close(comm, st < 0);
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
    sw_status st = sw_cluster_check_size(cluster, on->nodes, on->ranks);
    st = st < 0 ? st : plan_on(options, &r, &text);
    sw_cluster_close(cluster);
    if (st < 0 || text.failed) {
        sw_str_fini(&text);
        return st < 0 ? st : SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
    }
    *out = text.ptr;
    return SW_OK;
}
