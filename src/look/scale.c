// SPDX-License-Identifier: Apache-2.0
// A training on a growing part of a cluster: a row for each number of nodes.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json/json.h"
#include "look/private.h"
#include "spillway/look.h"

struct row {
    int64_t nodes, ranks;
    char why[512];                          /* why there is no plan; "" = there is one */
    double seconds, samples, tokens, flops; /* of a step; FLOPs of a device */
    enum sw_queue bound;
};

struct report {
    const struct sw_plan_scale *wanted;
    struct sw_cluster *cluster;
    struct row *rows;
    int64_t n;
};

static sw_status check(const struct sw_plan_scale *w)
{
    if (!w->cluster || w->first < 1 || w->last < w->first) {
        return SW_FAIL(
            SW_E_ARG, "a cluster: wanted a name and 1 <= first <= last, got %s, %lld, %lld",
            w->cluster ? w->cluster : "no name", (long long)w->first, (long long)w->last);
    }
    if (!isfinite(w->tokens) || !isfinite(w->price) || w->tokens < 0 || w->price < 0) {
        return SW_FAIL(SW_E_ARG, "tokens and price: wanted 0 or more, got %g and %g", w->tokens,
                       w->price);
    }
    if (w->price > 0 && w->tokens == 0) {
        return SW_FAIL(SW_E_ARG, "a price needs tokens, which say how long devices are rented");
    }
    return SW_OK;
}

/* ---- a row ---- */

static sw_status walk(const struct report *r, const struct sw_lineup *lineup, struct row *row)
{
    const struct sw_cost_mesh mesh = {.cluster = r->cluster, .ranks = row->ranks};
    const struct sw_engine_facts f = sw_engine_facts(lineup->stages[0].engine);
    struct sw_clock_report clock;
    row->samples = (double)f.sizes.of[SW_DIM_BATCH] * (double)f.rounds * f.data.size;
    row->tokens = row->samples * (double)f.sizes.of[SW_DIM_TOKENS];
    if (r->wanted->tokens > 0 && row->tokens <= 0) {
        return SW_FAIL(SW_E_UNSUP, "this model has no tokens; leave out --tokens");
    }
    SW_TRY(sw_look_cluster_step(lineup, &mesh, &clock, &row->flops));
    row->seconds = clock.seconds;
    row->bound = clock.bound;
    return SW_OK;
}

static sw_status open_and_walk(const struct sw_engine_options *options, const struct report *r,
                               struct row *row)
{
    struct sw_lineup lineup;
    SW_TRY(sw_lineup_open(options, (int)row->ranks, &lineup));
    const sw_status st = walk(r, &lineup, row);
    sw_lineup_close(&lineup);
    return st;
}

/* A mesh that is "auto" is chosen for each number of nodes. */
static sw_status plan_row(const struct sw_engine_options *options, const struct report *r,
                          struct row *row)
{
    struct sw_engine_options o = *options;
    char *edit = NULL, *choice = NULL;
    const char **sets = NULL;
    sw_status st = sw_plan_mesh_choice(options, (int)row->ranks, false, &edit, &choice);
    if (st >= 0 && edit) {
        const char *more[] = {edit};
        st = sw_engine_join_sets(&options->config, more, 1, &sets);
        o.config.sets = sets;
        o.config.n_sets++;
    }
    st = st < 0 ? st : open_and_walk(&o, r, row);
    sw_text_free(edit);
    sw_text_free(choice);
    sw_free(sets);
    return st;
}

/* Rows without a plan have a reason. The last one's is the error if there is no other row. */
static sw_status plan_rows(const struct sw_engine_options *options, struct report *r)
{
    const int64_t each = (int64_t)r->cluster->node.devices.value;
    bool any = false;
    sw_status st = SW_OK;
    for (int64_t i = 0; i < r->n; i++) {
        struct row *row = &r->rows[i];
        row->nodes = r->wanted->first + i;
        row->ranks = row->nodes * each;
        st = plan_row(options, r, row);
        any = any || st >= 0;
        if (st < 0) {
            snprintf(row->why, sizeof row->why, "%s", sw_error_message());
        }
    }
    return any ? SW_OK : st;
}

/* ---- figures ---- */

static double tflops_of(const struct row *row)
{
    return row->flops / row->seconds / 1e12;
}

/* Samples per second and device, over those of the first row that has a plan. */
static double linear_of(const struct report *r, const struct row *row)
{
    const struct row *first = r->rows;
    while (*first->why) {
        first++;
    }
    return row->samples / row->seconds / (double)row->ranks /
           (first->samples / first->seconds / (double)first->ranks);
}

static double hours_of(const struct report *r, const struct row *row)
{
    return r->wanted->tokens / (row->tokens / row->seconds) / 3600;
}

static double money_of(const struct report *r, const struct row *row)
{
    return hours_of(r, row) * (double)row->ranks * r->wanted->price;
}

/* ---- text ---- */

static void print_row(const struct report *r, const struct row *row, struct sw_str *out)
{
    sw_str_printf(out, "%6lld %8lld", (long long)row->nodes, (long long)row->ranks);
    if (*row->why) {
        sw_str_printf(out, "  no plan: %s\n", row->why);
        return;
    }
    sw_str_printf(out, " %10.0f %12.6f %12.3f %9.2f %7.1f%%", row->samples, row->seconds,
                  row->samples / row->seconds, tflops_of(row), 100 * linear_of(r, row));
    if (r->wanted->tokens > 0) {
        sw_str_printf(out, " %10.2f", hours_of(r, row) / 24);
    }
    if (r->wanted->price > 0) {
        sw_str_printf(out, " %14.0f", money_of(r, row));
    }
    sw_str_printf(out, " %s\n", sw_queue_name(row->bound));
}

static void print_text(const struct report *r, struct sw_str *out)
{
    sw_str_printf(out, "on %s: nodes of %.0f x %s\n", r->cluster->name,
                  r->cluster->node.devices.value, r->cluster->device.name);
    sw_str_printf(out, "%6s %8s %10s %12s %12s %9s %8s", "nodes", "devices", "samples", "seconds",
                  "samples/s", "TFLOP/s", "linear");
    sw_str_printf(out, "%s%s bound\n", r->wanted->tokens > 0 ? "       days" : "",
                  r->wanted->price > 0 ? "          money" : "");
    for (int64_t i = 0; i < r->n; i++) {
        print_row(r, &r->rows[i], out);
    }
    sw_str_puts(out, "(samples and seconds of a step, TFLOP/s of a device, speed of a device over "
                     "that of the first row)\n");
}

/* ---- JSON ---- */

static void put_row(const struct report *r, const struct row *row, struct sw_str *out)
{
    sw_str_printf(out, "{\"nodes\":%lld,\"ranks\":%lld", (long long)row->nodes,
                  (long long)row->ranks);
    if (*row->why) {
        sw_str_puts(out, ",\"refused\":");
        sw_json_write_string(row->why, strlen(row->why), out);
    } else {
        sw_look_put_number(",\"samples\":", row->samples, out);
        sw_look_put_number(",\"tokens\":", row->tokens, out);
        sw_look_put_number(",\"step_seconds\":", row->seconds, out);
        sw_look_put_number(",\"samples_per_second\":", row->samples / row->seconds, out);
        sw_look_put_number(",\"linear_samples_per_second\":",
                           row->samples / row->seconds / linear_of(r, row), out);
        sw_look_put_number(",\"tflops_per_device\":", tflops_of(row), out);
        sw_look_put_number(",\"of_linear\":", linear_of(r, row), out);
        sw_str_printf(out, ",\"bound\":\"%s\"", sw_queue_name(row->bound));
    }
    if (!*row->why && r->wanted->tokens > 0) {
        sw_look_put_number(",\"days\":", hours_of(r, row) / 24, out);
    }
    if (!*row->why && r->wanted->price > 0) {
        sw_look_put_number(",\"money\":", money_of(r, row), out);
    }
    sw_str_putc(out, '}');
}

static void print_json(const struct report *r, struct sw_str *out)
{
    sw_str_puts(out, "{\"name\":");
    sw_json_write_string(r->cluster->name, strlen(r->cluster->name), out);
    sw_str_puts(out, ",\"rows\":[");
    for (int64_t i = 0; i < r->n; i++) {
        sw_str_puts(out, i > 0 ? "," : "");
        put_row(r, &r->rows[i], out);
    }
    sw_str_puts(out, "]}\n");
}

/* ---- entry point ---- */

static sw_status report(const struct sw_engine_options *options, struct report *r,
                        struct sw_str *out)
{
    const struct sw_plan_scale *w = r->wanted;
    struct sw_engine_options o = *options;
    struct sw_str device = {0};
    SW_TRY(sw_cluster_check_size(r->cluster, w->last,
                                 w->last * (int64_t)r->cluster->node.devices.value));
    r->n = w->last - w->first + 1;
    r->rows = sw_alloc_zero("look", (size_t)r->n, sizeof *r->rows);
    SW_TRY_ALLOC(r->rows, "rows of nodes");
    sw_str_printf(&device, "sim:%s", w->cluster);
    SW_TRY_ALLOC(device.ptr, "a plan");
    o.run.device = device.ptr;
    const sw_status st = plan_rows(&o, r);
    if (st >= 0) {
        (w->json ? print_json : print_text)(r, out);
    }
    sw_str_fini(&device);
    return st;
}

sw_status sw_plan_scale_text(const struct sw_engine_options *options,
                             const struct sw_plan_scale *scale, char **out)
{
    struct report r = {.wanted = scale};
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY_OPTIONS(scale);
    SW_TRY(check(scale));
    SW_TRY(sw_cluster_open(scale->cluster, &r.cluster));
    const sw_status st = report(options, &r, &text);
    sw_cluster_close(r.cluster);
    sw_free(r.rows);
    return sw_look_give(st, &text, out);
}
