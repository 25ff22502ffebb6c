// SPDX-License-Identifier: Apache-2.0
// The fastest plans of a model on a cluster, and why other choices lost.
#include <math.h>
#include <string.h>

#include "json/json.h"
#include "look/choices.h"
#include "spillway/look.h"

enum { BEST = 5 };

struct report {
    const struct sw_plan_search *wanted;
    const struct sw_cluster *cluster;
    struct choices choices;
    struct sw_choices found;
    double tokens; /* of a step; 0 = the model has none */
};

/* ---- figures ---- */

static double hours_of(const struct report *r, const struct sw_choice_try *t)
{
    return r->wanted->tokens / (r->tokens / t->seconds) / 3600;
}

static double money_of(const struct report *r, const struct sw_choice_try *t)
{
    return hours_of(r, t) * (double)r->choices.ranks * r->wanted->price;
}

static double slower(const struct report *r, const struct sw_choice_try *t)
{
    return t->seconds / r->found.tries[0].seconds - 1;
}

/* ---- text ---- */

static void print_plan(const struct report *r, const struct sw_choice_try *t, struct sw_str *out)
{
    const char *before = "";
    for (int f = 0; f < CHOICE_COUNT; f++) {
        const int at = t->choice.at[f];
        sw_str_puts(out, before);
        before = ", ";
        sw_str_printf(out, "%s", f == CHOICE_MESH ? "" : sw_choice_name((enum choice_family)f));
        sw_str_puts(out, f == CHOICE_MESH ? "" : " ");
        sw_choice_print(&r->choices, (enum choice_family)f, at, out);
    }
    sw_str_putc(out, '\n');
}

static void print_best(const struct report *r, struct sw_str *out)
{
    sw_str_printf(out, "%12s %12s %9s", "seconds", "samples/s", "TFLOP/s");
    sw_str_printf(out, "%s%s bound    plan\n", r->wanted->tokens > 0 ? "       days" : "",
                  r->wanted->price > 0 ? "          money" : "");
    for (int i = 0; i < r->found.n_fit && i < BEST; i++) {
        const struct sw_choice_try *t = &r->found.tries[i];
        sw_str_printf(out, "%12.6f %12.3f %9.2f", t->seconds,
                      (double)r->choices.samples / t->seconds, t->flops / t->seconds / 1e12);
        if (r->wanted->tokens > 0) {
            sw_str_printf(out, " %10.2f", hours_of(r, t) / 24);
        }
        if (r->wanted->price > 0) {
            sw_str_printf(out, " %14.0f", money_of(r, t));
        }
        sw_str_printf(out, " %-8s ", sw_queue_name(t->bound));
        print_plan(r, t, out);
    }
}

static void print_verdict(const struct report *r, const struct sw_choice_try *t, struct sw_str *out)
{
    char bytes[32];
    switch (t->result) {
    case SW_MESH_FITS:
        sw_str_printf(out, "%.1f%% slower, bound by %s", 100 * slower(r, t),
                      sw_queue_name(t->bound));
        return;
    case SW_MESH_MISSES:
        sw_str_printf(out, "lacks %zu bytes (%s) of %s memory", t->missing,
                      sw_format_bytes(bytes, sizeof bytes, (double)t->missing),
                      sw_tier_name(t->tier));
        return;
    case SW_MESH_REFUSED:
        sw_str_printf(out, "is refused: %s", t->refused);
    }
}

static void print_family(const struct report *r, enum choice_family family, struct sw_str *out)
{
    const struct choices *c = &r->choices;
    const int taken = r->found.tries[0].choice.at[family];
    sw_str_printf(out, "%s: ", sw_choice_name(family));
    sw_choice_print(c, family, taken, out);
    sw_str_puts(out, c->is_kept[family] ? ", as configured\n" : "\n");
    for (int v = 0; v < c->space.n_values[family]; v++) {
        const struct sw_choice_try *t =
            v == taken ? NULL : sw_choices_with(&c->space, &r->found, (int)family, v);
        struct sw_str name = {0};
        if (t) {
            sw_choice_print(c, family, v, &name);
            sw_str_printf(out, "  %-28s ", sw_str_text(&name));
            print_verdict(r, t, out);
            sw_str_putc(out, '\n');
        }
        sw_str_fini(&name);
    }
}

static void print_text(const struct report *r, struct sw_str *out)
{
    const struct sw_choices *found = &r->found;
    char edits[CHOICE_EDITS][CHOICE_EDIT];
    sw_str_printf(out, "on %s: %d ranks on %lld nodes of %.0f x %s, steps of %lld samples\n",
                  r->cluster->name, r->choices.ranks, (long long)r->wanted->nodes,
                  r->cluster->node.devices.value, r->cluster->device.name,
                  (long long)r->choices.samples);
    sw_str_printf(out, "%d plans were tried, and %d fit%s\n", found->n, found->n_fit,
                  found->is_cut ? "; others were not tried, as planning them takes long" : "");
    print_best(r, out);
    sw_str_puts(out, "\nWhy others lost (the mesh: its best plan; else the best plan with this one "
                     "change)\n");
    for (int f = 0; f < CHOICE_COUNT; f++) {
        print_family(r, (enum choice_family)f, out);
    }
    sw_str_puts(out, "\nThe first one is the plan with these options, without --batch-size and "
                     "--accumulate:\n");
    const int n = sw_choice_edits(&r->choices, &found->tries[0].choice, edits);
    for (int i = 0; i < n; i++) {
        sw_str_printf(out, "  --set '%s'\n", edits[i]);
    }
}

/* ---- JSON ---- */

static void put_value(const struct report *r, const char *before, enum choice_family family, int v,
                      struct sw_str *out)
{
    struct sw_str name = {0};
    sw_choice_print(&r->choices, family, v, &name);
    sw_look_put_text(before, sw_str_text(&name), out);
    sw_str_fini(&name);
}

static void put_best(const struct report *r, const struct sw_choice_try *t, struct sw_str *out)
{
    char edits[CHOICE_EDITS][CHOICE_EDIT];
    const int n = sw_choice_edits(&r->choices, &t->choice, edits);
    sw_look_put_number("{\"step_seconds\":", t->seconds, out);
    sw_look_put_number(",\"tflops_per_device\":", t->flops / t->seconds / 1e12, out);
    sw_look_put_text(",\"bound\":", sw_queue_name(t->bound), out);
    if (r->wanted->tokens > 0) {
        sw_look_put_number(",\"days\":", hours_of(r, t) / 24, out);
    }
    if (r->wanted->price > 0) {
        sw_look_put_number(",\"money\":", money_of(r, t), out);
    }
    for (int f = 0; f < CHOICE_COUNT; f++) {
        sw_look_put_text(f > 0 ? "," : ",\"choices\":{", sw_choice_name((enum choice_family)f),
                         out);
        put_value(r, ":", (enum choice_family)f, t->choice.at[f], out);
    }
    for (int i = 0; i < n; i++) {
        sw_look_put_text(i > 0 ? "," : "},\"sets\":[", edits[i], out);
    }
    sw_str_puts(out, "]}");
}

static void put_lost(const struct report *r, const struct sw_choice_try *t, struct sw_str *out)
{
    switch (t->result) {
    case SW_MESH_FITS:
        sw_look_put_number(",\"slower\":", slower(r, t), out);
        sw_look_put_text(",\"bound\":", sw_queue_name(t->bound), out);
        return;
    case SW_MESH_MISSES:
        sw_str_printf(out, ",\"missing_bytes\":%zu", t->missing);
        sw_look_put_text(",\"tier\":", sw_tier_name(t->tier), out);
        return;
    case SW_MESH_REFUSED:
        sw_look_put_text(",\"refused\":", t->refused, out);
    }
}

static void put_family(const struct report *r, enum choice_family family, struct sw_str *out)
{
    const int taken = r->found.tries[0].choice.at[family];
    const char *before = "{\"value\":";
    sw_look_put_text("", sw_choice_name(family), out);
    sw_str_puts(out, ":[");
    for (int v = 0; v < r->choices.space.n_values[family]; v++) {
        const struct sw_choice_try *t =
            v == taken ? NULL : sw_choices_with(&r->choices.space, &r->found, (int)family, v);
        if (t) {
            put_value(r, before, family, v, out);
            put_lost(r, t, out);
            sw_str_putc(out, '}');
            before = ",{\"value\":";
        }
    }
    sw_str_putc(out, ']');
}

static void print_json(const struct report *r, struct sw_str *out)
{
    sw_look_put_text("{\"name\":", r->cluster->name, out);
    sw_str_printf(out, ",\"nodes\":%lld,\"ranks\":%d,\"samples\":%lld,\"tried\":%d,\"fit\":%d",
                  (long long)r->wanted->nodes, r->choices.ranks, (long long)r->choices.samples,
                  r->found.n, r->found.n_fit);
    sw_str_printf(out, ",\"all_tried\":%s,\"best\":[", r->found.is_cut ? "false" : "true");
    for (int i = 0; i < r->found.n_fit && i < BEST; i++) {
        sw_str_puts(out, i > 0 ? "," : "");
        put_best(r, &r->found.tries[i], out);
    }
    for (int f = 0; f < CHOICE_COUNT; f++) {
        sw_str_puts(out, f > 0 ? "," : "],\"lost\":{");
        put_family(r, (enum choice_family)f, out);
    }
    sw_str_puts(out, "}}\n");
}

/* ---- entry point ---- */

/* Tokens of a row, from the first plan that fits. */
static sw_status find_tokens(struct report *r)
{
    struct sw_lineup lineup;
    SW_TRY(sw_choice_open(&r->choices, &r->found.tries[0].choice, NULL, &lineup));
    const struct sw_engine_facts f = sw_engine_facts(lineup.stages[0].engine);
    r->tokens = (double)r->choices.samples * (double)f.sizes.of[SW_DIM_TOKENS];
    sw_lineup_close(&lineup);
    return r->tokens > 0 || r->wanted->tokens <= 0
               ? SW_OK
               : SW_FAIL(SW_E_UNSUP, "this model has no tokens; leave out --tokens");
}

/* Nothing was tried: values that the configuration gives contradict each other. */
static sw_status refuse_given(const struct report *r)
{
    const struct choices *c = &r->choices;
    struct sw_str given = {0};
    for (int f = 0; f < CHOICE_COUNT; f++) {
        if (c->is_kept[f]) {
            sw_str_printf(&given, "%s%s ", given.len > 0 ? ", " : "",
                          sw_choice_name((enum choice_family)f));
            sw_choice_print(c, (enum choice_family)f, 0, &given);
        }
    }
    const sw_status st = SW_FAIL(SW_E_CONFIG,
                                 "no plan has all that the configuration gives: %s; leave one of "
                                 "them out",
                                 sw_str_text(&given));
    sw_str_fini(&given);
    return st;
}

static sw_status refuse(const struct report *r)
{
    const struct sw_choice_try *t = &r->found.tries[0];
    struct sw_str why = {0};
    if (r->found.n == 0) {
        return refuse_given(r);
    }
    print_verdict(r, t, &why);
    sw_str_puts(&why, ": ");
    print_plan(r, t, &why);
    why.len -= why.len > 0;
    const sw_status st = SW_FAIL(t->result == SW_MESH_MISSES ? SW_E_NOMEM : SW_E_CONFIG,
                                 "none of %d plans on %d ranks fits; the nearest one %.*s",
                                 r->found.n, r->choices.ranks, (int)why.len, sw_str_text(&why));
    sw_str_fini(&why);
    return st;
}

static sw_status search(const struct sw_engine_options *options, struct report *r,
                        struct sw_str *out)
{
    struct sw_engine_options o = *options;
    struct sw_str device = {0};
    sw_str_printf(&device, "sim:%s", r->wanted->cluster);
    SW_TRY_ALLOC(device.ptr, "a plan");
    o.run.device = device.ptr;
    sw_status st = sw_choices_open(&o, r->cluster, (int)r->wanted->ranks, &r->choices);
    if (st >= 0) {
        st = sw_search_choices(&r->choices.space, &r->found);
        st = st < 0 ? st : r->found.n_fit == 0 ? refuse(r) : find_tokens(r);
        if (st >= 0) {
            (r->wanted->json ? print_json : print_text)(r, out);
        }
        sw_free(r->found.tries);
        sw_choices_close(&r->choices);
    }
    sw_str_fini(&device);
    return st;
}

sw_status sw_plan_search_text(const struct sw_engine_options *options,
                              const struct sw_plan_search *wanted, char **out)
{
    struct report r = {.wanted = wanted};
    struct sw_cluster *cluster = NULL;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY_OPTIONS(wanted);
    if (!wanted->cluster || wanted->ranks < 1 || wanted->ranks > INT32_MAX ||
        !(wanted->tokens >= 0) || !(wanted->price >= 0)) {
        return SW_FAIL(SW_E_ARG,
                       "a search: wanted a cluster, ranks, and tokens and a price of 0 or "
                       "more, got %s, %lld, %g and %g",
                       wanted->cluster ? wanted->cluster : "no cluster", (long long)wanted->ranks,
                       wanted->tokens, wanted->price);
    }
    SW_TRY(sw_cluster_open(wanted->cluster, &cluster));
    r.cluster = cluster;
    sw_status st = sw_cluster_check_size(cluster, wanted->nodes, wanted->ranks);
    st = st < 0 ? st : search(options, &r, &text);
    sw_cluster_close(cluster);
    return sw_look_give(st, &text, out);
}
