// SPDX-License-Identifier: Apache-2.0
// The plan of a step against the rates of this machine, measured in seconds or given: an estimate,
// with every number that it is made of. Also what a step writes to the disk, which wears.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"

/* ---- what moves between tiers ---- */

static double parameters_of(const struct sw_plan *plan)
{
    double sum = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        sum += item->role == SW_ROLE_PARAM ? (double)sw_shape_elems(&item->shape) : 0;
    }
    return sum;
}

void sw_engine_print_moves(const struct sw_engine *e, bool json, struct sw_str *out)
{
    const struct sw_transfers t = sw_plan_transfers(e->plan, e->rounds);
    const double written = (double)t.out[SW_TIER_DISK], n = parameters_of(e->plan);
    const double each = n > 0 ? written / n : 0, tb = written * 1000 / 1e12;
    if (json) {
        sw_str_printf(out, "\"moved_in_a_step\":{");
        for (int tier = SW_TIER_HOST; tier < SW_TIER_COUNT; tier++) {
            const char *name = sw_tier_name((enum sw_tier)tier);
            sw_str_printf(out, "\"from_%s\":%lld,\"to_%s\":%lld,", name, (long long)t.in[tier],
                          name, (long long)t.out[tier]);
        }
        sw_str_puts(out, "\"disk_written_a_parameter\":");
        sw_json_write_f64(each, out);
        sw_str_puts(out, ",\"disk_tb_in_1000_steps\":");
        sw_json_write_f64(tb, out);
        sw_str_putc(out, '}');
        return;
    }
    for (int tier = SW_TIER_HOST; tier < SW_TIER_COUNT; tier++) {
        if (t.in[tier] + t.out[tier] == 0) {
            continue;
        }
        sw_str_printf(out, "a step moves %lld bytes from the %s and %lld to it",
                      (long long)t.in[tier], sw_tier_name((enum sw_tier)tier),
                      (long long)t.out[tier]);
        if (tier == SW_TIER_DISK) {
            sw_str_printf(out, ": %.3g written a parameter, %.3g TB in 1000 steps", each, tb);
        }
        sw_str_putc(out, '\n');
    }
}

/* ---- rates ---- */

/* In units of 1e9 a second, as people give them. */
static const struct {
    const char *name;
    enum sw_load kinds[3];
    int n_kinds;
} given[] = {
    {"f32", {SW_LOAD_PRODUCTS_F32}, 1},
    {"bf16", {SW_LOAD_PRODUCTS_BF16}, 1},
    {"f16", {SW_LOAD_PRODUCTS_F16}, 1},
    {"copy", {SW_LOAD_OTHER, SW_LOAD_COPIES_IN, SW_LOAD_COPIES_OUT}, 3},
    {"disk_read", {SW_LOAD_DISK_READ}, 1},
    {"disk_write", {SW_LOAD_DISK_WRITTEN}, 1},
    {"comm", {SW_LOAD_SENT}, 1},
};

static sw_status take_rate(const char *text, double rates[SW_LOAD_COUNT])
{
    const char *names[SW_LEN(given)];
    const char *equals = strchr(text, '=');
    for (size_t i = 0; equals && i < SW_LEN(given); i++) {
        char *end = NULL;
        if (strlen(given[i].name) != (size_t)(equals - text) ||
            strncmp(given[i].name, text, (size_t)(equals - text)) != 0) {
            continue;
        }
        const double value = strtod(equals + 1, &end);
        if (end == equals + 1 || *end || !(value > 0 && isfinite(value))) {
            return SW_FAIL(SW_E_ARG, "--rates %s: wanted a number above 0", text);
        }
        for (int k = 0; k < given[i].n_kinds; k++) {
            rates[given[i].kinds[k]] = value * 1e9;
        }
        return SW_OK;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - text) : 60, text);
    for (size_t i = 0; i < SW_LEN(given); i++) {
        names[i] = given[i].name;
    }
    const char *nearest = sw_nearest(name, names, SW_LEN(names));
    return SW_FAIL(SW_E_ARG,
                   "--rates %s: wanted NAME=NUMBER with f32, bf16, f16 (GFLOP/s), copy, disk_read, "
                   "disk_write or comm (GB/s)%s%s",
                   text, nearest ? "; the nearest is " : "", nearest ? nearest : "");
}

sw_status sw_engine_take_rates(const char *const *texts, int n, double rates[SW_LOAD_COUNT])
{
    for (int i = 0; i < n; i++) {
        SW_TRY(take_rate(texts[i], rates));
    }
    return SW_OK;
}

enum { CHUNK = 16 << 20, MOST_BYTES = 256 << 20 };
static const double disk_s = 2; /* of each direction */

static void fill(uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* what no controller makes smaller */
        words[i] = sw_philox_u64(1, 0, i);
    }
}

static sw_status measure_direction(sw_nvme *store, char *memory, int64_t bytes, bool in,
                                   int64_t *done, double *rate)
{
    const double begin = sw_now_s();
    int64_t at = 0;
    while (at < bytes && (at == 0 || sw_now_s() - begin < disk_s)) {
        const size_t n = (size_t)sw_min_i64(CHUNK, bytes - at);
        SW_TRY(in ? sw_nvme_read(store, at, memory, n) : sw_nvme_write(store, at, memory, n));
        at += (int64_t)n;
    }
    *done = at;
    *rate = (double)at / (sw_now_s() - begin);
    return SW_OK;
}

/* A file in each folder of nvme_path, as large as the plan's, but no larger than some seconds
 * take. */
static sw_status measure_disk(const struct sw_engine *e, double *read_rate, double *write_rate)
{
    const struct sw_swap_options swap = sw_engine_swap(e);
    sw_nvme *store = NULL;
    sw_nvme_buffer *buffer = NULL;
    struct sw_nvme_buffer_info info;
    sw_status st;
    const int64_t bytes = sw_min_i64(MOST_BYTES, (int64_t)e->plan->tier_bytes[SW_TIER_DISK]);
    int64_t written = 0, read = 0;
    SW_TRY(sw_swap_open_files(&swap, bytes, &store));
    SW_TRY_OR(close, sw_nvme_buffer_open(store, CHUNK, &buffer));
    sw_nvme_buffer_get_info(buffer, &info);
    fill(info.data, CHUNK / sizeof(uint64_t));
    SW_TRY_OR(close, measure_direction(store, info.data, bytes, false, &written, write_rate));
    SW_TRY_OR(close, measure_direction(store, info.data, written, true, &read, read_rate));
close:
    sw_nvme_buffer_close(buffer);
    sw_nvme_close(store);
    return st;
}

/* Of what the plan has work for, and nobody has given. */
static sw_status measure(const struct sw_engine *e, const double loads[SW_LOAD_COUNT],
                         double rates[SW_LOAD_COUNT], bool measured[SW_LOAD_COUNT])
{
    bool processor = false, disk = false;
    double found[SW_LOAD_COUNT] = {0};
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        measured[k] = loads[k] > 0 && rates[k] <= 0 && k != SW_LOAD_SENT;
        const bool on_disk = k == SW_LOAD_DISK_READ || k == SW_LOAD_DISK_WRITTEN;
        processor |= measured[k] && !on_disk;
        disk |= measured[k] && on_disk;
    }
    if (processor) {
        struct sw_cpu_report report;
        SW_TRY(sw_device_cpu_report(e->device, &report));
        for (size_t i = 0; i < SW_LEN(report.peak); i++) {
            found[report.peak[i].dtype == SW_BF16  ? SW_LOAD_PRODUCTS_BF16
                  : report.peak[i].dtype == SW_F16 ? SW_LOAD_PRODUCTS_F16
                                                   : SW_LOAD_PRODUCTS_F32] =
                report.peak[i].product_gflops * 1e9;
        }
        found[SW_LOAD_OTHER] = found[SW_LOAD_COPIES_IN] = found[SW_LOAD_COPIES_OUT] =
            report.copy_gb_s * 1e9;
    }
    if (disk) {
        SW_TRY(measure_disk(e, &found[SW_LOAD_DISK_READ], &found[SW_LOAD_DISK_WRITTEN]));
    }
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        rates[k] = measured[k] ? found[k] : rates[k];
    }
    return SW_OK;
}

/* ---- the report ---- */

struct report {
    double loads[SW_LOAD_COUNT], rates[SW_LOAD_COUNT]; /* 0 = unknown */
    bool measured[SW_LOAD_COUNT];
    struct sw_prediction prediction;
};

static void print_text(const struct report *r, struct sw_str *out)
{
    static const char *const labels[SW_LOAD_COUNT] = {
        "products, f32",      "products, bf16",       "products, f16",
        "other computation",  "copied to the device", "copied to the host",
        "read from the disk", "written to the disk",  "sent to other ranks"};
    const struct sw_prediction *p = &r->prediction;
    sw_str_puts(out, "\nan estimate of a step's time, by rates that a step need not reach:\n");
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        const char *unit = k < SW_LOAD_OTHER ? "GFLOP" : "GB";
        if (r->loads[k] <= 0) {
            continue;
        }
        sw_str_printf(out, "%-20s %12.3f %-5s", labels[k], r->loads[k] / 1e9, unit);
        if (r->rates[k] > 0) {
            char per_second[16];
            snprintf(per_second, sizeof per_second, "%s/s", unit);
            sw_str_printf(out, " %10.2f %-7s %-8s %12.6f s\n", r->rates[k] / 1e9, per_second,
                          r->measured[k] ? "measured" : "given", p->part[k]);
        } else {
            sw_str_puts(out, "  at an unknown rate, not counted\n");
        }
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (p->seconds[q] > 0) {
            sw_str_printf(out, "= %-18s %46.6f s\n", sw_queue_name((enum sw_queue)q),
                          p->seconds[q]);
        }
    }
    sw_str_printf(out,
                  "a step takes %.6f s or more where %s hides all others, %.6f s where nothing is "
                  "hidden%s\n",
                  p->least, sw_queue_name(p->bound), p->most,
                  p->unknown ? ", and more for what has no rate" : "");
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

static void print_json(const struct report *r, struct sw_str *out)
{
    const struct sw_prediction *p = &r->prediction;
    sw_str_puts(out, "{\"parts\":{");
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        sw_str_printf(out, "%s\"%s\":{", k > 0 ? "," : "", sw_load_name((enum sw_load)k));
        json_number(out, "work", r->loads[k]);
        sw_str_putc(out, ',');
        json_number(out, "rate", r->rates[k] > 0 ? r->rates[k] : NAN);
        sw_str_printf(out, ",\"measured\":%s,", r->measured[k] ? "true" : "false");
        json_number(out, "seconds", p->part[k]);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, "},\"seconds\":{");
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        sw_str_puts(out, q > 0 ? "," : "");
        json_number(out, sw_queue_name((enum sw_queue)q), p->seconds[q]);
    }
    sw_str_puts(out, "},");
    json_number(out, "least_seconds", p->least);
    sw_str_putc(out, ',');
    json_number(out, "sum_seconds", p->most);
    sw_str_printf(out, ",\"bound\":\"%s\",\"unknown\":%s}", sw_queue_name(p->bound),
                  p->unknown ? "true" : "false");
}

static double sent_by(const struct sw_engine *e)
{
    const struct sw_plan_options options = {.ranks = e->ranks,
                                            .stage = (int)e->config->zero.stage,
                                            .micro_batches = e->micro_batches,
                                            .rule = e->trains ? &e->rule : NULL};
    struct sw_plan_table table;
    double sum = 0;
    if (e->ranks < 2 || sw_plan_tabulate(e->plan, &options, &table) < 0) {
        return 0;
    }
    for (int k = 0; k < SW_SENT_COUNT; k++) {
        sum += (double)table.sent[k].bytes;
    }
    return sum;
}

static sw_status predict(const struct sw_engine_options *options,
                         const struct sw_predict_options *wanted, struct report *r)
{
    sw_engine *e = NULL;
    SW_TRY(sw_initialize(options, &e));
    sw_plan_loads(e->plan, e->programs.train >= 0 ? e->rounds : 1, r->loads);
    r->loads[SW_LOAD_SENT] = sent_by(e);
    const sw_status st = wanted->measure ? measure(e, r->loads, r->rates, r->measured) : SW_OK;
    sw_predict(r->loads, r->rates, &r->prediction);
    sw_close(e);
    return st;
}

sw_status sw_plan_predict_text(const struct sw_engine_options *options,
                               const struct sw_predict_options *wanted, char **out)
{
    struct report r;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY_OPTIONS(wanted);
    memset(&r, 0, sizeof r);
    SW_TRY(sw_engine_take_rates(wanted->rates, wanted->n_rates, r.rates));
    struct sw_engine_options o = *options;
    o.plan_only = true;
    if (wanted->ranks > 1) { /* nobody is talked to */
        SW_TRY(sw_comm_open(&(struct sw_transport){.size = wanted->ranks}, &o.comm));
    }
    const sw_status st = predict(&o, wanted, &r);
    if (wanted->ranks > 1) {
        sw_comm_close(o.comm, st < 0);
    }
    SW_TRY(st);
    (wanted->json ? print_json : print_text)(&r, &text);
    if (text.failed) {
        sw_str_fini(&text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
    }
    *out = text.ptr;
    return SW_OK;
}
