// SPDX-License-Identifier: Apache-2.0
// Chooses the sizes of a mesh that is "auto", for plans of it: once for all that is printed.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cluster/cluster.h"
#include "cost/cost.h"
#include "json/json.h"
#include "look/private.h"
#include "spillway/look.h"

static void json_try(const struct sw_mesh_try *t, struct sw_str *out)
{
    char words[SW_MESH_WORDS];
    sw_str_printf(out, "{\"name\":\"%s\"", sw_mesh_words(&t->mesh, words));
    for (unsigned a = 0; a < SW_AXIS_COUNT; a++) {
        sw_str_printf(out, ",\"%s\":%d", sw_axis_name((enum sw_axis)a),
                      sw_mesh_size(&t->mesh, 1U << a));
    }
    switch (t->result) {
    case SW_MESH_FITS:
        sw_str_puts(out, ",\"step_seconds\":");
        sw_json_write_f64(t->seconds, out);
        break;
    case SW_MESH_MISSES:
        sw_str_printf(out, ",\"missing_bytes\":%zu,\"tier\":\"%s\",\"stage\":%d", t->missing,
                      sw_tier_name(t->tier), t->stage);
        break;
    case SW_MESH_REFUSED:
        sw_str_puts(out, ",\"refused\":");
        sw_json_write_string(t->refused, strlen(t->refused), out);
        break;
    }
    sw_str_putc(out, '}');
}

static void print_json(const struct sw_mesh_choice *c, struct sw_str *out)
{
    sw_str_printf(out, "{\"cuts_sums\":%s,\"not_tried\":%d,\"meshes\":[",
                  c->cuts ? "true" : "false", c->spared + c->untried);
    for (int i = 0; i < c->n; i++) {
        sw_str_puts(out, i > 0 ? "," : "");
        json_try(&c->tries[i], out);
    }
    sw_str_putc(out, ']');
    if (c->boundary > 0) {
        sw_str_puts(out, ",\"boundary_seconds\":");
        sw_json_write_f64(c->boundary, out);
    }
    sw_str_putc(out, '}');
}

/* Reads from the configuration whether the mesh is "auto". */
static sw_status read_auto(const struct sw_engine_config *given, bool *out)
{
    struct sw_config *config = NULL;
    const char *text = given->text ? given->text : "{}";
    SW_TRY(given->path ? sw_config_load(given->path, given->sets, given->n_sets, &config)
                       : sw_config_parse("configuration", text, strlen(text), given->sets,
                                         given->n_sets, &config));
    *out = config->parallel.is_auto;
    sw_config_close(config);
    return SW_OK;
}

static void describe(const sw_engine *e, bool json, struct sw_str *edit, struct sw_str *out)
{
    const struct sw_mesh_choice *choice = sw_engine_mesh_choice(e);
    const struct sw_parallel_config *p = &sw_engine_facts(e).config->parallel;
    sw_str_printf(edit, "spillway.mesh={\"pipe\":%lld,\"tensor\":%lld,\"context\":%lld}",
                  (long long)p->pipe, (long long)p->tensor, (long long)p->context);
    if (choice && json) {
        print_json(choice, out);
    } else if (choice) {
        sw_mesh_choice_print(choice, out);
    } else {
        sw_str_puts(out, json ? "null" : "");
    }
}

/* ---- the rates of a cluster ---- */

enum { MOST_RATES = 16 };
struct texts {
    char of[MOST_RATES][48];
    const char *at[MOST_RATES];
    int n;
};

/* Adds a rate in its unit, if it is known. */
static void add_rate(struct texts *t, const char *name, double rate, double unit)
{
    if (rate > 0 && isfinite(rate)) {
        SW_ASSERT(t->n < MOST_RATES);
        snprintf(t->of[t->n], sizeof t->of[0], "%s=%.6g", name, rate / unit);
        t->at[t->n] = t->of[t->n];
        t->n++;
    }
}

/* Writes the rates of "sim:CLUSTER" as --rates has them; none if the device is another one. */
static sw_status cluster_rates(const char *device, int ranks, struct texts *out)
{
    static const char sim[] = "sim:";
    struct sw_cost_mesh mesh = {.ranks = ranks};
    struct sw_cluster *cluster = NULL;
    struct sw_machine_rates r;
    out->n = 0;
    if (!device || strncmp(device, sim, sizeof sim - 1) != 0) {
        return SW_OK;
    }
    SW_TRY(sw_cluster_open(device + sizeof sim - 1, &cluster));
    mesh.cluster = cluster;
    sw_cost_rates(&mesh, &r);
    sw_cluster_close(cluster);
    add_rate(out, "f32", r.work[SW_LOAD_PRODUCTS_F32], 1e9);
    add_rate(out, "bf16", r.work[SW_LOAD_PRODUCTS_BF16], 1e9);
    add_rate(out, "f16", r.work[SW_LOAD_PRODUCTS_F16], 1e9);
    add_rate(out, "copy", r.work[SW_LOAD_COPIES_IN], 1e9);
    add_rate(out, "memory", r.work[SW_LOAD_OTHER], 1e9);
    add_rate(out, "disk_read", r.work[SW_LOAD_DISK_READ], 1e9);
    add_rate(out, "disk_write", r.work[SW_LOAD_DISK_WRITTEN], 1e9);
    add_rate(out, "host", r.work[SW_LOAD_HOST], 1e9);
    add_rate(out, "comm", r.work[SW_LOAD_SENT], 1e9);
    add_rate(out, "node", r.node, 1e9);
    add_rate(out, "net", r.net, 1e9);
    add_rate(out, "node_ranks", r.node_ranks, 1);
    add_rate(out, "comm_latency", r.latency, 1e-6);
    return SW_OK;
}

static void print_rates(const struct texts *t, struct sw_str *out)
{
    sw_str_puts(out, t->n > 0 ? "  predicted at the rates of the cluster: --rates" : "");
    for (int i = 0; i < t->n; i++) {
        sw_str_printf(out, " %s", t->at[i]);
    }
    sw_str_puts(out, t->n > 0 ? "\n" : "");
}

/* ---- entry point ---- */

sw_status sw_plan_mesh_choice(const struct sw_engine_options *options, int ranks, bool json,
                              char **out_edit, char **out)
{
    const struct sw_transport none = {.size = ranks};
    struct sw_engine_options o;
    struct sw_str edit = {0}, text = {0};
    struct texts rates = {.n = 0};
    sw_engine *e = NULL;
    bool is_auto = false;
    *out_edit = *out = NULL;
    SW_TRY_OPTIONS(options);
    SW_TRY(read_auto(&options->config, &is_auto));
    if (!is_auto) {
        return SW_OK;
    }
    o = *options;
    o.plan.only = true;
    if (o.plan.n_rates == 0) {
        SW_TRY(cluster_rates(o.run.device, ranks, &rates));
        o.plan.rates = rates.at;
        o.plan.n_rates = rates.n;
    }
    SW_TRY(sw_comm_open(&none, &o.run.comm));
    const sw_status st = sw_initialize(&o, &e);
    if (st >= 0) {
        describe(e, json, &edit, &text);
        print_rates(json ? &(struct texts){.n = 0} : &rates, &text);
    }
    sw_close(e);
    sw_comm_close(o.run.comm, st < 0);
    text.failed |= edit.failed;
    const sw_status given = sw_look_give(st, &text, out);
    if (given < 0) {
        sw_str_fini(&edit);
        return given;
    }
    *out_edit = edit.ptr;
    return SW_OK;
}
