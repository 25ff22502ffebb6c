// SPDX-License-Identifier: Apache-2.0
// What others could hold: the number that they published, the one that their bytes give, and
// whether a plan of ours fits.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json/json.h"
#include "look/published.h"

struct result {
    const struct pub_capacity *of;
    double by_bytes, error; /* 0 = there is no rule */
    char why[256];          /* why our plan does not fit; "" = it fits, or there is none */
    bool fits;
    struct look_most most; /* 0 layers = not sought */
    bool is_met;
};

double sw_published_by_bytes(const struct pub_capacity *c)
{
    const double p = c->by.parameters, ranks = (double)c->by.ranks, h = (double)c->by.hidden;
    const double layers = (double)c->by.layers;
    const double states[] = {16 * p, 4 * p + 12 * p / ranks, 2 * p + 14 * p / ranks,
                             16 * p / ranks};
    switch (c->rule) {
    case PUB_STATES:
        return c->by.stage < 4 && ranks > 0 ? states[c->by.stage] : 0;
    case PUB_SPACE:
        return c->by.bytes > 0 ? c->by.gb * 1e9 * (double)c->by.nodes / c->by.bytes : 0;
    case PUB_DEVICES:
        return c->by.gb > 0 ? p * c->by.bytes / (c->by.gb * 1e9) : 0;
    case PUB_LAYERS:
        return layers * (12 * h * h + 13 * h) + (double)(c->by.vocab + c->by.seq_len) * h;
    case PUB_LAYER:
        return 16 * h * h;
    default:
        return 0;
    }
}

static void find(const struct pub_capacity *c, bool ours, struct result *out)
{
    struct pub_prediction p = {0};
    *out = (struct result){.of = c, .by_bytes = sw_published_by_bytes(c)};
    out->error = c->rule ? out->by_bytes / c->published - 1 : 0;
    if (c->plan.cluster && (ours || c->judge == PUB_FITS)) {
        const sw_status st = sw_published_fits(&c->plan, &p);
        sw_str_fini(&p.assumed);
        out->fits = st >= 0;
        if (st < 0) {
            snprintf(out->why, sizeof out->why, "%s", sw_error_message());
        }
    }
    if (c->most && ours && sw_published_most(&c->plan, &out->most) < 0) {
        snprintf(out->why, sizeof out->why, "%s", sw_error_message());
    }
    out->is_met = c->judge == PUB_INFORMATIVE ||
                  (c->judge == PUB_FITS ? out->fits : fabs(out->error) <= c->tolerance);
}

static void print_row(const struct result *one, struct sw_str *out)
{
    const struct pub_capacity *c = one->of;
    char by[24] = "-", error[16] = "-", ours[40] = "-";
    if (c->rule) {
        snprintf(by, sizeof by, "%.4g", one->by_bytes);
        snprintf(error, sizeof error, "%+.1f%%", 100 * one->error);
    }
    if (one->most.layers > 0) {
        snprintf(ours, sizeof ours, "%s%.4g", one->most.is_cut ? ">= " : "",
                 (double)one->most.parameters);
    } else if (one->fits || *one->why) {
        snprintf(ours, sizeof ours, "%s", one->fits ? "fits" : "does not fit");
    }
    sw_str_printf(out, "%-24s %10.4g %10s %7s %12s %-10s %-6s %s\n", c->id, c->published, by, error,
                  ours, c->unit, one->is_met ? "met" : "MISSED", c->what);
    if (*one->why) {
        sw_str_printf(out, "  %s\n", one->why);
    }
    if (c->note) {
        sw_str_printf(out, "  note: %s\n", c->note);
    }
}

static void put_row(const struct result *one, struct sw_str *out)
{
    const struct pub_capacity *c = one->of;
    sw_look_put_text("{\"id\":", c->id, out);
    sw_look_put_text(",\"unit\":", c->unit, out);
    sw_look_put_number(",\"published\":", c->published, out);
    if (c->rule) {
        sw_look_put_number(",\"by_bytes\":", one->by_bytes, out);
        sw_look_put_number(",\"error\":", one->error, out);
    }
    if (one->fits || *one->why) {
        sw_str_printf(out, ",\"fits\":%s", one->fits ? "true" : "false");
    }
    if (*one->why) {
        sw_look_put_text(",\"refused\":", one->why, out);
    }
    if (c->note) {
        sw_look_put_text(",\"note\":", c->note, out);
    }
    if (one->most.layers > 0) {
        sw_str_printf(out, ",\"most_parameters\":%lld,\"all_tried\":%s",
                      (long long)one->most.parameters, one->most.is_cut ? "false" : "true");
    }
    sw_str_printf(out, ",\"met\":%s}", one->is_met ? "true" : "false");
}

static bool is_wanted(const struct pub_capacity *c, const char *id)
{
    return strcmp(id, "all") == 0 || strcmp(id, "capacities") == 0 || strcmp(id, c->id) == 0;
}

void sw_published_print_capacities(const struct pub_file *file,
                                   const struct sw_plan_published *wanted, int *n, bool *missed,
                                   struct sw_str *out)
{
    *n = 0;
    for (int i = 0; i < file->n_capacities; i++) {
        struct result one;
        if (!is_wanted(&file->capacities[i], wanted->id)) {
            continue;
        }
        find(&file->capacities[i], wanted->ours, &one);
        *missed |= !one.is_met;
        if (wanted->json) {
            sw_str_puts(out, *n > 0 ? "," : "");
            put_row(&one, out);
        } else if (*n == 0) {
            sw_str_printf(out, "%-24s %10s %10s %7s %12s\n", "capacity", "published", "by bytes",
                          "error", "ours");
        }
        if (!wanted->json) {
            print_row(&one, out);
        }
        ++*n;
    }
}
