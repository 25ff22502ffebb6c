// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a step from the plan and the rates of this machine, or of a described one.
// The report has the figures that the prediction is made of, and the disk writes of a step, because
// disks wear.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json/json.h"
#include "look/private.h"
#include "spillway/look.h"

/* ---- measuring ---- */

/* Measures with one device for each rank that would run on this machine, but no more than it has
 * processors. The first is the engine's own. */
static sw_status measure(struct sw_engine *e, struct sw_speeds *rates)
{
    const struct sw_engine_facts f = sw_engine_facts(e);
    const int n = (int)sw_min_i64(f.world.size, sw_cpu_count());
    const struct sw_swap_options swap = sw_engine_swap(e);
    struct sw_device **devices = sw_alloc_zero("engine", 2 * (size_t)n, sizeof(struct sw_device *));
    SW_TRY_ALLOC(devices, "devices to measure");
    struct sw_device **hosts = devices + n;
    sw_status st = SW_OK;
    devices[0] = f.device;
    hosts[0] = f.host;
    for (int r = 1; r < n && st >= 0; r++) {
        st = sw_engine_open_device(e, &devices[r]);
        st = st < 0 ? st : sw_engine_open_host(e, &hosts[r]);
    }
    if (st >= 0) {
        const struct sw_measure_options options = {.devices = devices,
                                                   .hosts = hosts,
                                                   .n_devices = n,
                                                   .ranks = f.world.size,
                                                   .swap = &swap};
        st = sw_speeds_measure(f.plan, &options, rates);
    }
    for (int r = 1; r < n; r++) {
        sw_device_close(devices[r]);
        sw_device_close(hosts[r]);
    }
    sw_free(devices);
    return st;
}

/* ---- the report ---- */

struct part {             /* one kind of work */
    double work, seconds; /* time if it ran alone */
    double rate;          /* given or computed; 0 = none */
    bool given, unknown;
};

struct stage { /* a stage of a pipeline */
    double seconds, busy, idle;
};

struct report { /* of rank 0 */
    const struct sw_program *program;
    double seconds;       /* of the slowest stage */
    struct stage *stages; /* [n_stages] */
    int n_stages;
    struct part parts[SW_LOAD_COUNT];
    struct sw_clock_report clock;
};

static void sum_parts(const struct sw_plan *plan, const struct sw_speeds *rates,
                      const bool unknown[SW_LOAD_COUNT], struct report *r)
{
    for (int32_t i = 0; i < r->program->n_instrs; i++) {
        const struct sw_clock_instr *clock = &r->clock.instrs[i];
        double work = 0;
        const enum sw_load kind = sw_instr_load(plan, r->program, i, &work);
        r->parts[kind].work += work * (double)clock->runs;
        r->parts[kind].seconds += clock->alone;
    }
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        struct part *part = &r->parts[k];
        const bool by_host = k == SW_LOAD_SENT && (rates->given.node > 0 || rates->given.net > 0);
        part->given = by_host || rates->given.work[k] > 0;
        part->rate = part->given && !by_host ? rates->given.work[k]
                     : part->seconds > 0     ? part->work / part->seconds
                                             : 0;
        r->parts[k].unknown = unknown[k];
    }
}

static bool is_unknown(const struct report *r)
{
    bool unknown = false;
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        unknown |= r->parts[k].unknown;
    }
    return unknown;
}

/* True if no work of the step has a rate. */
static bool is_timeless(const struct report *r)
{
    return is_unknown(r) && r->clock.most <= 0;
}

static const char *words_of(const struct sw_instr *instr)
{
    return instr->about->tensor ? instr->about->tensor : instr->about->where;
}

static void print_part(const struct part *part, const char *label, const char *unit,
                       struct sw_str *out)
{
    char per_second[16];
    sw_str_printf(out, "%-20s %12.3f %-5s", label, part->work / 1e9, unit);
    if (part->unknown) {
        sw_str_puts(out, "  at an unknown rate, not counted\n");
        return;
    }
    snprintf(per_second, sizeof per_second, "%s/s", unit);
    sw_str_printf(out, " %10.2f %-7s %-8s %12.6f s\n", part->rate / 1e9, per_second,
                  part->given ? "given" : "measured", part->seconds);
}

static void print_queues(const struct sw_clock_report *clock, struct sw_str *out)
{
    sw_str_printf(out, "a step takes %.6f s", clock->seconds);
    const char *before = ": ";
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (clock->part[q] > 0) {
            sw_str_printf(out, "%s%s%s %.6f s", before, q > 0 ? "waits for " : "",
                          sw_queue_name((enum sw_queue)q), clock->part[q]);
            before = ", ";
        }
    }
    sw_str_putc(out, '\n');
}

/* The stages of a pipeline; nothing if there is one. */
static void print_stages(const struct report *r, struct sw_str *out)
{
    if (r->n_stages == 1) {
        return;
    }
    sw_str_printf(out,
                  "the stages together: a step takes %.6f s\n"
                  "stage     computes         idle, from the first forward to the last backward\n",
                  r->seconds);
    for (int s = 0; s < r->n_stages; s++) {
        sw_str_printf(out, "%5d %10.6f s %11.1f%%\n", s, r->stages[s].busy,
                      100 * r->stages[s].idle);
    }
}

static void print_text(const struct report *r, struct sw_str *out)
{
    static const char *const labels[SW_LOAD_COUNT] = {
        "products, f32",        "products, bf16",     "products, f16",      "other computation",
        "copied to the device", "copied to the host", "read from the disk", "written to the disk",
        "sent to other ranks",  "updates on the host"};
    const struct sw_clock_report *clock = &r->clock;
    sw_str_printf(out,
                  "\nan estimate of a step's time%s; what each kind of work takes by itself:\n",
                  r->n_stages > 1 ? " on rank 0, of stage 0" : "");
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        if (r->parts[k].work > 0) {
            print_part(&r->parts[k], labels[k], k < SW_LOAD_OTHER ? "GFLOP" : "GB", out);
        }
    }
    if (is_timeless(r)) {
        sw_str_puts(out, "the time of a step is unknown: none of this work has a rate (--rates), "
                         "and nothing is measured without --predict\n");
        return;
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (clock->alone[q] > 0) {
            sw_str_printf(out, "= %-18s %46.6f s\n", sw_queue_name((enum sw_queue)q),
                          clock->alone[q]);
        }
    }
    print_queues(clock, out);
    if (clock->longest >= 0) {
        const struct sw_instr *instr = &r->program->instrs[clock->longest];
        sw_str_printf(out, "%s bounds it, most of all instruction %d (%s of %s): %.6f s\n",
                      sw_queue_name(clock->bound), clock->longest, instr->about->name,
                      words_of(instr), clock->instrs[clock->longest].charge);
    }
    sw_str_printf(out,
                  "it would take %.6f s if all others hid behind one queue, %.6f s if nothing was "
                  "hidden%s\n",
                  clock->least, clock->most,
                  is_unknown(r) ? ", and more for what has no rate" : "");
    print_stages(r, out);
}

static void json_number(struct sw_str *out, const char *key, double value)
{
    sw_str_printf(out, "\"%s\":", key);
    if (isfinite(value)) {
        sw_json_write_f64(value, out);
    } else {
        sw_str_puts(out, "null");
    }
}

static void json_parts(const struct report *r, struct sw_str *out)
{
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        const struct part *part = &r->parts[k];
        sw_str_printf(out, "%s\"%s\":{", k > 0 ? "," : "", sw_load_name((enum sw_load)k));
        json_number(out, "work", part->work);
        sw_str_putc(out, ',');
        json_number(out, "rate", part->rate > 0 ? part->rate : NAN);
        sw_str_printf(out, ",\"measured\":%s,",
                      part->work > 0 && !part->given && !part->unknown ? "true" : "false");
        json_number(out, "seconds", part->unknown ? NAN : part->seconds);
        sw_str_putc(out, '}');
    }
}

static void json_queues(const char *key, const double of[SW_QUEUE_COUNT], struct sw_str *out)
{
    sw_str_printf(out, ",\"%s\":{", key);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        sw_str_puts(out, q > 0 ? "," : "");
        json_number(out, sw_queue_name((enum sw_queue)q), of[q]);
    }
    sw_str_putc(out, '}');
}

static void json_string(struct sw_str *out, const char *text)
{
    sw_json_write_string(text, strlen(text), out);
}

static void json_longest(const struct report *r, struct sw_str *out)
{
    const int32_t i = r->clock.longest;
    if (i < 0) {
        sw_str_puts(out, ",\"bound_instruction\":null");
        return;
    }
    sw_str_printf(out, ",\"bound_instruction\":{\"number\":%d,\"name\":", i);
    json_string(out, r->program->instrs[i].about->name);
    sw_str_puts(out, ",\"of\":");
    json_string(out, words_of(&r->program->instrs[i]));
    sw_str_putc(out, ',');
    json_number(out, "seconds", r->clock.instrs[i].charge);
    sw_str_putc(out, '}');
}

static void json_stages(const struct report *r, struct sw_str *out)
{
    sw_str_puts(out, ",\"stages\":[");
    for (int s = 0; s < r->n_stages; s++) {
        sw_str_puts(out, s > 0 ? ",{" : "{");
        json_number(out, "seconds", r->stages[s].seconds);
        sw_str_putc(out, ',');
        json_number(out, "busy_seconds", r->stages[s].busy);
        sw_str_putc(out, ',');
        json_number(out, "idle_share", r->stages[s].idle);
        sw_str_putc(out, '}');
    }
    sw_str_putc(out, ']');
}

static void print_json(const struct report *r, struct sw_str *out)
{
    const struct sw_clock_report *clock = &r->clock;
    sw_str_puts(out, "{");
    json_number(out, "step_seconds", is_timeless(r) ? NAN : r->seconds);
    sw_str_puts(out, ",\"parts\":{");
    json_parts(r, out);
    sw_str_puts(out, "}");
    json_queues("seconds", clock->alone, out);
    json_queues("of_step", clock->part, out);
    sw_str_putc(out, ',');
    json_number(out, "least_seconds", clock->least);
    sw_str_putc(out, ',');
    json_number(out, "sum_seconds", clock->most);
    sw_str_printf(out, ",\"bound\":\"%s\"", sw_queue_name(clock->bound));
    json_longest(r, out);
    json_stages(r, out);
    sw_str_printf(out, ",\"unknown\":%s}", is_unknown(r) ? "true" : "false");
}

/* ---- entry points ---- */

/* Stages of a pipeline with their speeds. Measured kernels differ from stage to stage. */
struct walked {
    struct sw_clock_rank *ranks; /* [n] */
    struct sw_clock_report *reports;
    struct sw_speeds *speeds;
    const struct sw_speeds **each;
};

static sw_status open_walked(const struct sw_lineup *lineup, struct walked *out)
{
    const size_t n = (size_t)lineup->n;
    out->ranks = sw_alloc_zero("look", n, sizeof *out->ranks);
    out->reports = sw_alloc_zero("look", n, sizeof *out->reports);
    out->speeds = sw_alloc_zero("look", n, sizeof *out->speeds);
    out->each = sw_alloc_zero("look", n, sizeof *out->each);
    return out->ranks && out->reports && out->speeds && out->each
               ? SW_OK
               : SW_FAIL(SW_E_NOMEM, "out of host memory for a prediction");
}

static void close_walked(struct walked *w, int n)
{
    for (int s = 0; s < n; s++) {
        if (w->speeds) {
            sw_speeds_close(&w->speeds[s]);
        }
        if (w->reports) {
            sw_free(w->reports[s].instrs);
        }
    }
    sw_free(w->ranks);
    sw_free(w->reports);
    sw_free(w->speeds);
    sw_free(w->each);
}

/* Walks the stages together. A stage alone is a step of its own. */
static sw_status walk(const struct sw_lineup *lineup, const struct sw_predict_options *wanted,
                      const struct sw_machine_rates *rates, struct walked *w, struct report *r)
{
    bool unknown[SW_LOAD_COUNT];
    sw_status st = SW_OK;
    for (int s = 0; s < lineup->n && st >= 0; s++) {
        w->speeds[s].given = *rates;
        w->each[s] = &w->speeds[s];
        w->ranks[s] = (struct sw_clock_rank){.plan = sw_engine_facts(lineup->stages[s].engine).plan,
                                             .report = &w->reports[s]};
        st = wanted->measure ? measure(lineup->stages[s].engine, &w->speeds[s]) : SW_OK;
    }
    SW_TRY(st);
    SW_TRY(sw_speeds_stages(w->ranks, w->each, lineup->n, unknown, &r->seconds));
    r->clock = w->reports[0];
    r->program = &w->ranks[0].plan->programs[0];
    sum_parts(w->ranks[0].plan, &w->speeds[0], unknown, r);
    for (int s = 0; s < lineup->n; s++) {
        r->stages[s] =
            (struct stage){w->ranks[s].seconds, w->reports[s].passes.busy, w->ranks[s].idle};
    }
    return SW_OK;
}

static sw_status predict(const struct sw_lineup *lineup, const struct sw_predict_options *wanted,
                         const struct sw_machine_rates *rates, struct sw_str *out)
{
    struct report r;
    struct walked w = {0};
    memset(&r, 0, sizeof r);
    r.n_stages = lineup->n;
    r.stages = sw_alloc_zero("look", (size_t)lineup->n, sizeof *r.stages);
    sw_status st = open_walked(lineup, &w);
    st = st < 0 || r.stages ? st : SW_FAIL(SW_E_NOMEM, "out of host memory for a prediction");
    st = st < 0 ? st : walk(lineup, wanted, rates, &w, &r);
    if (st >= 0) {
        (wanted->json ? print_json : print_text)(&r, out);
    }
    close_walked(&w, lineup->n);
    sw_free(r.stages);
    return st;
}

sw_status sw_plan_predict_text(const struct sw_engine_options *options,
                               const struct sw_predict_options *wanted, char **out)
{
    struct sw_machine_rates rates;
    struct sw_lineup lineup;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY_OPTIONS(wanted);
    memset(&rates, 0, sizeof rates);
    SW_TRY(sw_engine_take_rates(wanted->rates, wanted->n_rates, &rates));
    SW_TRY(sw_lineup_open(options, wanted->ranks > 1 ? wanted->ranks : 1, &lineup));
    const sw_status st = predict(&lineup, wanted, &rates, &text);
    sw_lineup_close(&lineup);
    return sw_look_give(st, &text, out);
}
