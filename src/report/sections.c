// SPDX-License-Identifier: Apache-2.0
// Sections of a page about memory and time.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "report/private.h"

struct sw_chart sw_page_chart(const struct sw_page *page, const char *title, enum sw_unit unit)
{
    return (struct sw_chart){
        .title = title, .unit = unit, .first_step = page->first_step, .last_step = page->last_step};
}

void sw_page_add(const struct sw_page *page, struct sw_chart *chart, enum sw_figure figure,
                 const char *name, enum sw_curve_style style, int color)
{
    for (int i = 0; i < page->n; i++) {
        const struct sw_past_run *run = &page->runs[i];
        const bool alone = page->n == 1;
        const struct sw_curve curve = {.run = run,
                                       .values = run->figures[figure],
                                       .name = alone ? name : page->labels[i],
                                       .style = style,
                                       .color = alone ? color : i};
        if (run->n > 0) {
            sw_chart_add(chart, &curve);
        }
    }
}

void sw_page_run(const struct sw_page *page, int i, struct sw_str *out)
{
    if (page->n > 1) {
        sw_str_printf(out, "<h3 class=\"run\"><span class=\"key c%d\"></span>", i % SW_COLORS);
        sw_html_name(out, page->labels[i]);
        sw_str_puts(out, "</h3>\n");
    }
}

/* ---- memory ---- */

static const struct {
    const char *key, *name;
} parts[] = {{"parameters", "parameters"},     {"optimizer", "optimizer states"},
             {"gradients", "gradients"},       {"other", "constants and caches"},
             {"second_slots", "second slots"}, {"transients", "activations and buffers"}};

static double part_of(const struct sw_past_run *run, int tier, const char *key)
{
    char path[64];
    snprintf(path, sizeof path, "memory.%s.%s", sw_tier_name((enum sw_tier)tier), key);
    const double bytes = sw_past_run_number(run, path);
    return isfinite(bytes) ? bytes : 0;
}

static double planned(const struct sw_past_run *run, int tier)
{
    static const enum sw_figure figures[SW_TIER_COUNT] = {
        [SW_TIER_DEVICE] = SW_FIGURE_DEVICE,
        [SW_TIER_HOST] = SW_FIGURE_HOST,
        [SW_TIER_DISK] = SW_FIGURE_DISK,
    };
    const double bytes = part_of(run, tier, "planned");
    const double last = run->n > 0 ? run->figures[figures[tier]][run->n - 1] : 0;
    return bytes > 0 ? bytes : isfinite(last) ? last : 0;
}

/* Share of a bar below which a part would be narrower than a pixel. Such parts are one; the words
 * below the bar name each. */
#define SLIVER 0.005

static void write_bar(const struct sw_past_run *run, int tier, double most, struct sw_str *out)
{
    char text[32];
    const double budget = part_of(run, tier, "budget");
    sw_str_puts(out, "<div class=\"bar\">");
    if (!sw_past_run_fact(run, "memory")) { /* its use is unknown */
        sw_str_printf(out, "<i class=\"p3\" style=\"width:%.2f%%\"></i>",
                      100 * planned(run, tier) / most);
    }
    double slivers = 0;
    for (size_t k = 0; k < SW_LEN(parts); k++) {
        const double bytes = part_of(run, tier, parts[k].key), share = bytes / most;
        if (share >= SLIVER) {
            sw_str_printf(out, "<i class=\"p%d\" style=\"width:%.2f%%\" title=\"%s %s\"></i>",
                          (int)k, 100 * share, parts[k].name,
                          sw_format_bytes(text, sizeof text, bytes));
        } else if (bytes > 0) {
            slivers += bytes;
        }
    }
    if (slivers >= SLIVER * most) {
        sw_str_printf(out, "<i class=\"p3\" style=\"width:%.2f%%\" title=\"smaller parts %s\"></i>",
                      100 * slivers / most, sw_format_bytes(text, sizeof text, slivers));
    }
    if (budget > 0 && budget <= most) {
        sw_str_printf(out, "<b style=\"left:%.2f%%\" title=\"budget %s\"></b>", 100 * budget / most,
                      sw_format_bytes(text, sizeof text, budget));
    }
    sw_str_puts(out, "</div>");
}

static void write_tier(const struct sw_past_run *run, int tier, double most, struct sw_str *out)
{
    char text[32], limit[32] = "none";
    const double plan = planned(run, tier), budget = part_of(run, tier, "budget");
    if (plan <= 0 && budget <= 0) {
        return;
    }
    if (budget > 0) {
        sw_format_bytes(limit, sizeof limit, budget);
    }
    sw_str_printf(out,
                  "<tr><th scope=\"row\">%s<td class=\"n\">%s<td class=\"n\">%s<td "
                  "class=\"w\">",
                  sw_tier_name((enum sw_tier)tier), sw_format_bytes(text, sizeof text, plan),
                  limit);
    write_bar(run, tier, most, out);
    sw_str_puts(out, "<p class=\"parts\">");
    for (size_t k = 0; k < SW_LEN(parts); k++) {
        const double bytes = part_of(run, tier, parts[k].key);
        if (bytes > 0) {
            sw_str_printf(out, "<span class=\"key p%d\">%s %s</span> ", (int)k, parts[k].name,
                          sw_format_bytes(text, sizeof text, bytes));
        }
    }
    sw_str_puts(out, "</p></tr>\n");
}

static double largest_tier(const struct sw_page *page)
{
    double most = 1;
    for (int i = 0; i < page->n; i++) {
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            most = fmax(most, planned(&page->runs[i], t));
            const double budget = part_of(&page->runs[i], t, "budget");
            most = budget < 4 * most ? fmax(most, budget) : most;
        }
    }
    return most;
}

/* Planned bytes in the memory of the process. A GPU's memory does not belong to it. */
static double planned_of_process(const struct sw_past_run *run)
{
    const bool cpu = strncmp(sw_past_run_text(run, "machine.device"), "cpu", 3) == 0;
    return planned(run, SW_TIER_HOST) + (cpu ? planned(run, SW_TIER_DEVICE) : 0);
}

static sw_status write_measured(const struct sw_page *page, struct sw_str *out)
{
    struct sw_chart chart = sw_page_chart(page, "Memory of the process", SW_UNIT_BYTES);
    double *limits[SW_REPORT_MOST_RUNS] = {NULL};
    chart.from_zero = true;
    bool many = false;
    for (int i = 0; i < page->n; i++) {
        many = many || sw_past_run_number(&page->runs[i], "flags.ranks") > 1;
    }
    chart.note = many ? "measured; dashed: planned for one rank" : "measured; dashed: planned";
    sw_page_add(page, &chart, SW_FIGURE_RESIDENT, "in memory", SW_CURVE_PLAIN, 0);
    sw_status st = SW_OK;
    for (int i = 0; i < page->n && st >= 0; i++) {
        const struct sw_past_run *run = &page->runs[i];
        limits[i] = sw_alloc("report", ((size_t)run->n + 1) * sizeof *limits[i]);
        st = limits[i] ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
        for (int64_t k = 0; k < run->n && st >= 0; k++) {
            limits[i][k] =
                isfinite(run->figures[SW_FIGURE_RESIDENT][k]) ? planned_of_process(run) : NAN;
        }
        const struct sw_curve limit = {.run = run,
                                       .values = limits[i],
                                       .name = "planned",
                                       .style = SW_CURVE_LIMIT,
                                       .color = page->n > 1 ? i : 1};
        if (st >= 0 && run->n > 0) {
            sw_chart_add(&chart, &limit);
        }
    }
    st = st < 0 ? st : sw_chart_write(&chart, out);
    for (int i = 0; i < page->n; i++) {
        sw_free(limits[i]);
    }
    return st;
}

sw_status sw_page_memory(const struct sw_page *page, struct sw_str *out)
{
    const double most = largest_tier(page);
    sw_str_puts(out, "<section id=\"memory\"><h2>Memory</h2>\n");
    for (int i = 0; i < page->n; i++) {
        sw_page_run(page, i, out);
        sw_str_puts(out, "<table class=\"tiers\"><thead><tr><th scope=\"col\">tier<th "
                         "scope=\"col\" class=\"n\">planned<th scope=\"col\" class=\"n\">budget<th "
                         "scope=\"col\" class=\"w\">contents, per rank</tr></thead><tbody>\n");
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            write_tier(&page->runs[i], t, most, out);
        }
        sw_str_puts(out, "</tbody></table>\n");
    }
    SW_TRY(write_measured(page, out));
    sw_str_puts(out, "</section>\n");
    return SW_OK;
}

/* ---- time ---- */

/* Sums, for each queue, the time of the steps that it bound. Returns the total. */
static double bound_time(const struct sw_past_run *run, double out[SW_QUEUE_COUNT])
{
    double sum = 0;
    memset(out, 0, SW_QUEUE_COUNT * sizeof *out);
    for (int64_t i = 0; i < run->n; i++) {
        const double ms = run->figures[SW_FIGURE_STEP_MS][i];
        if (run->bound[i] < SW_QUEUE_COUNT && isfinite(ms)) {
            out[run->bound[i]] += ms;
            sum += ms;
        }
    }
    return sum;
}

static void write_bound_words(const double by_queue[SW_QUEUE_COUNT], double sum, struct sw_str *out)
{
    char share[32];
    sw_str_puts(out, "<p class=\"legend\">");
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (by_queue[q] > 0) {
            sw_str_printf(out, "<span class=\"key q%d\">%s %s</span>", q,
                          sw_queue_name((enum sw_queue)q),
                          sw_html_number(share, sizeof share, by_queue[q] / sum, SW_UNIT_SHARE));
        }
    }
    sw_str_puts(out, "</p>\n");
}

enum { STRIP = 240 }; /* columns, none narrower than a pixel on a phone */

/* The queue that bound most steps of each column. */
static void write_strip(const struct sw_page *page, const struct sw_past_run *run,
                        struct sw_str *out)
{
    const double range = (double)(page->last_step - page->first_step + 1);
    int64_t at = 0;
    int last = -1, from = 0;
    sw_str_printf(out,
                  "<svg class=\"strip\" viewBox=\"0 0 %d 10\" preserveAspectRatio=\"none\" "
                  "role=\"img\"><title>Bottleneck of each step</title>",
                  STRIP);
    for (int c = 0; c <= STRIP; c++) {
        int64_t n[SW_QUEUE_COUNT + 1] = {0};
        const double end = (double)page->first_step + range * (c + 1) / STRIP;
        int most = SW_QUEUE_COUNT;
        for (; at < run->n && c < STRIP && (double)run->steps[at] < end; at++) {
            n[run->bound[at]]++;
        }
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            most = n[q] > n[most] ? q : most;
        }
        /* a step that is wider than a column */
        const double begin = (double)page->first_step + range * c / STRIP;
        const bool inside = at > 0 && begin < (double)run->steps[run->n - 1] + 1;
        const bool empty = n[most] == 0 && c < STRIP && inside;
        const int look = c == STRIP ? -2 : empty ? last : n[most] == 0 ? SW_QUEUE_COUNT : most;
        if (look != last) {
            if (last >= 0 && last < SW_QUEUE_COUNT) {
                sw_str_printf(out, "<rect class=\"q%d\" x=\"%d\" width=\"%d\" height=\"10\"/>",
                              last, from, c - from);
            }
            last = look;
            from = c;
        }
    }
    sw_str_puts(out, "</svg>\n");
}

static void write_bound(const struct sw_page *page, struct sw_str *out)
{
    bool any = false;
    for (int i = 0; i < page->n; i++) {
        double by_queue[SW_QUEUE_COUNT];
        const double sum = bound_time(&page->runs[i], by_queue);
        if (sum <= 0) {
            continue;
        }
        sw_str_puts(out, any ? ""
                             : "<figure class=\"chart wide\"><figcaption><h3>Bottleneck of each "
                               "step</h3><span>share of the time; compute, or the queue that "
                               "it waited for most</span></figcaption>\n");
        any = true;
        sw_page_run(page, i, out);
        write_strip(page, &page->runs[i], out);
        write_bound_words(by_queue, sum, out);
    }
    sw_str_puts(out, any ? "</figure>\n" : "");
}

static sw_status write_curves_of_time(const struct sw_page *page, struct sw_str *out)
{
    struct sw_chart step = sw_page_chart(page, "Time of a step", SW_UNIT_MS);
    struct sw_chart hidden = sw_page_chart(page, "Transfers hidden behind compute", SW_UNIT_SHARE);
    struct sw_chart disk = sw_page_chart(page, "Disk, GB/s", SW_UNIT_NUMBER);
    hidden.from_zero = disk.from_zero = true;
    sw_page_add(page, &step, SW_FIGURE_STEP_MS, "step", SW_CURVE_NOISY, 0);
    sw_page_add(page, &hidden, SW_FIGURE_HIDDEN, "hidden", SW_CURVE_NOISY, 2);
    sw_page_add(page, &disk, SW_FIGURE_READ, "read", SW_CURVE_NOISY, 0);
    sw_page_add(page, &disk, SW_FIGURE_WRITE, "written", SW_CURVE_NOISY, 1);
    disk.note = page->n > 1 ? "read and written"
                            : "<span class=\"key c0\">read</span><span class=\"key c1\">written"
                              "</span>";
    SW_TRY(sw_chart_write(&step, out));
    SW_TRY(sw_chart_write(&hidden, out));
    return sw_chart_write(&disk, out);
}

/* The trace is at its recorded path, or in the run's folder if the run was moved. */
static sw_status write_trace(const struct sw_past_run *run, struct sw_str *out)
{
    char beside[4200];
    const char *path = sw_past_run_text(run, "trace"), *slash = strrchr(path, '/');
    const struct sw_json *config = sw_past_run_fact(run, "config");
    const struct sw_json *pipe = config ? sw_json_path(config, "spillway.mesh.pipe") : NULL;
    snprintf(beside, sizeof beside, "%s/%s", run->path, slash ? slash + 1 : path);
    return sw_lanes_write(access(path, R_OK) != 0 && access(beside, R_OK) == 0 ? beside : path,
                          pipe && pipe->type == SW_JSON_INT ? pipe->integer : 1, out);
}

sw_status sw_page_time(const struct sw_page *page, struct sw_str *out)
{
    sw_str_puts(out, "<section id=\"time\"><h2>Time</h2>\n<div class=\"charts\">\n");
    write_bound(page, out);
    SW_TRY(write_curves_of_time(page, out));
    sw_str_puts(out, "</div>\n");
    for (int i = 0; i < page->n; i++) {
        if (*sw_past_run_text(&page->runs[i], "trace")) {
            sw_page_run(page, i, out);
            SW_TRY(write_trace(&page->runs[i], out));
        }
    }
    sw_str_puts(out, "</section>\n");
    return SW_OK;
}
