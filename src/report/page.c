// SPDX-License-Identifier: Apache-2.0
// The page as a whole, with the most important facts first. It has no script and loads nothing. Its
// content security policy enforces both, whatever the run's files hold.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "report/private.h"

enum { PATH_CAP = 4200 };

/* ---- the figures that sum up a run ---- */

struct summary {
    struct sw_stats loss, val, norm, speed, hidden, resident, step_ms;
    double n_units, wanted; /* trained on; steps that were asked for, NaN: not known */
    bool images;            /* the units are images, else tokens */
};

static bool is_of_images(const struct sw_past_run *run)
{
    int64_t i = 0;
    while (i < run->n && !isfinite(run->figures[SW_FIGURE_IMAGES][i])) {
        i++;
    }
    return i < run->n;
}

static sw_status sum_up(const struct sw_past_run *run, struct summary *out)
{
    out->images = is_of_images(run);
    const enum sw_figure speed = out->images ? SW_FIGURE_IMAGES : SW_FIGURE_TOKENS;
    const struct {
        enum sw_figure figure;
        struct sw_stats *to;
    } of[] = {{SW_FIGURE_LOSS, &out->loss},      {SW_FIGURE_VAL_LOSS, &out->val},
              {SW_FIGURE_NORM, &out->norm},      {speed, &out->speed},
              {SW_FIGURE_HIDDEN, &out->hidden},  {SW_FIGURE_RESIDENT, &out->resident},
              {SW_FIGURE_STEP_MS, &out->step_ms}};
    for (size_t i = 0; i < SW_LEN(of); i++) {
        SW_TRY(sw_stats_of(run->steps, run->figures[of[i].figure], run->n, of[i].to));
    }
    out->wanted = sw_past_run_number(run, "flags.steps");
    out->n_units = 0;
    for (int64_t i = 0; i < run->n; i++) {
        const double part = run->figures[speed][i] * run->figures[SW_FIGURE_STEP_MS][i] / 1e3;
        out->n_units += isfinite(part) ? part : 0;
    }
    return SW_OK;
}

static int64_t last_step(const struct sw_past_run *run)
{
    return run->n > 0 ? run->steps[run->n - 1] : 0;
}

static double bytes_of(const struct sw_past_run *run, enum sw_figure figure, const char *tier)
{
    char path[64];
    snprintf(path, sizeof path, "memory.%s.planned", tier);
    const double planned = sw_past_run_number(run, path);
    return isfinite(planned) ? planned : run->n > 0 ? run->figures[figure][run->n - 1] : NAN;
}

/* ---- head ---- */

static void write_head(const struct sw_page *page, struct sw_str *out)
{
    sw_html_begin(out);
    for (int i = 0; i < page->n; i++) {
        sw_str_puts(out, i ? ", " : "");
        sw_html_text(out, page->labels[i], strlen(page->labels[i]), false);
    }
    sw_html_end_head("", out);
}

static void write_about(const struct sw_past_run *run, struct sw_str *out)
{
    char text[48];
    if (!run->doc) {
        return;
    }
    sw_html_name(out, sw_past_run_text(run, "model.name"));
    sw_str_printf(out, ", %s parameters, ",
                  sw_html_number(text, sizeof text, sw_past_run_number(run, "model.parameters"),
                                 SW_UNIT_COUNT));
    sw_html_name(out, sw_past_run_text(run, "model.dtype"));
    sw_str_puts(out, "; ");
    sw_html_name(out, sw_past_run_text(run, "machine.cpu"));
    const double ranks = sw_past_run_number(run, "flags.ranks");
    if (ranks > 1) {
        sw_str_printf(out, ", %.0f ranks", ranks);
    }
}

static void write_title(const struct sw_page *page, struct sw_str *out)
{
    sw_str_puts(out, "<header><h1>");
    if (page->n == 1) {
        sw_html_name(out, page->labels[0]);
    } else {
        sw_str_printf(out, "%d runs", page->n);
    }
    sw_str_puts(out, "</h1>\n<p>");
    if (page->n == 1) {
        write_about(&page->runs[0], out);
    }
    int64_t n_samples = 0;
    for (int i = 0; i < page->n; i++) {
        n_samples += page->runs[i].n_samples;
    }
    sw_str_printf(out,
                  "</p>\n<nav><a href=\"#curves\">curves</a> <a href=\"#memory\">memory</a> "
                  "<a href=\"#time\">time</a> %s<a href=\"#configuration\">configuration</a> <a "
                  "href=\"#machine\">machine</a></nav></header>\n<main>\n",
                  n_samples > 0 ? "<a href=\"#samples\">samples</a> " : "");
}

static const char *step_text(char buf[48], int64_t step)
{
    return sw_html_number(buf, 48, (double)step, SW_UNIT_COUNT);
}

/* ---- headline numbers ---- */

static void tile(struct sw_str *out, const char *name, const char *value, const char *more)
{
    sw_str_printf(out, "<div class=\"tile\"><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", name,
                  value, more);
}

/* of: the part of the data that the loss covers; "" = all. */
static void tile_of_loss(const char *name, const struct sw_stats *s, const char *of,
                         struct sw_str *out)
{
    char last[48], least[48], step[48], more[256];
    if (s->n > 0) {
        sw_html_number(least, sizeof least, s->min, SW_UNIT_NUMBER);
        snprintf(more, sizeof more, "lowest %s at step %s%s%s", least, step_text(step, s->min_step),
                 *of ? "; of " : "", of);
        tile(out, name, sw_html_number(last, sizeof last, s->last, SW_UNIT_NUMBER), more);
    }
}

static bool ended_early(const struct sw_past_run *run)
{
    return strncmp(sw_past_run_text(run, "end.why"), "early stopping", 14) == 0;
}

static const char *state_of(const struct sw_past_run *run, const struct summary *s)
{
    return !isfinite(s->wanted)                  ? ""
           : (double)last_step(run) >= s->wanted ? "finished"
           : ended_early(run)                    ? "ended early"
           : run->n == 0                         ? "no step yet"
                                                 : "not finished";
}

static void tile_of_steps(const struct sw_past_run *run, const struct summary *s,
                          struct sw_str *out)
{
    char step[48], wanted[48], value[128];
    step_text(step, last_step(run));
    sw_html_number(wanted, sizeof wanted, s->wanted, SW_UNIT_COUNT);
    snprintf(value, sizeof value, isfinite(s->wanted) ? "%s <em>of %s</em>" : "%s", step, wanted);
    tile(out, "Steps", value, state_of(run, s));
}

static void tile_of_speed(const struct summary *s, struct sw_str *out)
{
    char value[48], units[48], seconds[48], more[128];
    if (s->speed.n > 0) {
        sw_html_number(units, sizeof units, s->n_units, SW_UNIT_COUNT);
        sw_html_seconds(seconds, sizeof seconds, s->step_ms.sum / 1e3);
        snprintf(more, sizeof more, "%s %s; all steps took %s", units,
                 s->images ? "images" : "tokens", seconds);
        tile(out, s->images ? "Images per second" : "Tokens per second",
             sw_html_number(value, sizeof value, floor(s->speed.median + 0.5), SW_UNIT_COUNT),
             more);
    }
}

static void tile_of_memory(const struct sw_past_run *run, const struct summary *s,
                           struct sw_str *out)
{
    char device[32], host[32], disk[32], peak[32], more[160];
    sw_html_number(device, sizeof device, bytes_of(run, SW_FIGURE_DEVICE, "device"), SW_UNIT_BYTES);
    sw_html_number(host, sizeof host, bytes_of(run, SW_FIGURE_HOST, "host"), SW_UNIT_BYTES);
    sw_html_number(disk, sizeof disk, bytes_of(run, SW_FIGURE_DISK, "disk"), SW_UNIT_BYTES);
    const int n = snprintf(more, sizeof more, "host %s, disk %s", host, disk);
    if (s->resident.n > 0) {
        sw_html_number(peak, sizeof peak, s->resident.max, SW_UNIT_BYTES);
        snprintf(more + n, sizeof more - (size_t)n, "; peak of the process %s", peak);
    }
    tile(out, "Device memory, planned", device, more);
}

static void tile_of_hidden(const struct summary *s, struct sw_str *out)
{
    char value[48];
    if (s->hidden.n > 0) {
        tile(out, "Transfers hidden",
             sw_html_number(value, sizeof value, s->hidden.median, SW_UNIT_SHARE),
             "behind compute; median of the steps");
    }
}

/* "128 of 200 rows"; "" where validations look at all, or nobody told. */
static const char *validated(const struct sw_past_run *run, char *buf, size_t cap)
{
    const double rows = sw_past_run_number(run, "validation.rows");
    const double of = sw_past_run_number(run, "validation.of");
    char text[2][48];
    buf[0] = '\0';
    if (rows < of) {
        snprintf(buf, cap, "%s of %s rows",
                 sw_html_number(text[0], sizeof text[0], rows, SW_UNIT_COUNT),
                 sw_html_number(text[1], sizeof text[1], of, SW_UNIT_COUNT));
    }
    return buf;
}

static void write_tiles(const struct sw_past_run *run, const struct summary *s, struct sw_str *out)
{
    char rows[128];
    sw_str_puts(out, "<dl class=\"tiles\">\n");
    tile_of_loss("Loss", &s->loss, "", out);
    tile_of_loss("Validation loss", &s->val, validated(run, rows, sizeof rows), out);
    tile_of_steps(run, s, out);
    tile_of_speed(s, out);
    tile_of_memory(run, s, out);
    tile_of_hidden(s, out);
    sw_str_puts(out, "</dl>\n");
}

static void cell(struct sw_str *out, double value, enum sw_unit unit)
{
    char text[48];
    sw_str_printf(out, "<td class=\"n\">%s", sw_html_number(text, sizeof text, value, unit));
}

static void write_row(const struct sw_page *page, int i, const struct summary *s,
                      struct sw_str *out)
{
    const struct sw_past_run *run = &page->runs[i];
    sw_str_printf(out, "<tr><th scope=\"row\"><span class=\"key c%d\">", i % SW_COLORS);
    sw_html_name(out, page->labels[i]);
    sw_str_puts(out, "</span>");
    cell(out, s->loss.last, SW_UNIT_NUMBER);
    cell(out, s->loss.min, SW_UNIT_NUMBER);
    cell(out, s->val.min, SW_UNIT_NUMBER);
    cell(out, (double)last_step(run), SW_UNIT_COUNT);
    sw_str_printf(out, "<td>%s", state_of(run, s));
    cell(out, floor(s->speed.median + 0.5), SW_UNIT_COUNT);
    cell(out, bytes_of(run, SW_FIGURE_DEVICE, "device"), SW_UNIT_BYTES);
    cell(out, s->hidden.median, SW_UNIT_SHARE);
    sw_str_puts(out, "</tr>\n");
}

static const char *head_of_speed(const struct sw_page *page)
{
    int n = 0;
    for (int i = 0; i < page->n; i++) {
        n += is_of_images(&page->runs[i]);
    }
    return n == 0 ? "tokens/s" : n == page->n ? "images/s" : "tokens/s or images/s";
}

static sw_status write_headline(const struct sw_page *page, struct sw_str *out)
{
    const char *const heads[] = {
        "loss",   "lowest",          "lowest validation loss", "steps", "", head_of_speed(page),
        "device", "transfers hidden"};
    struct summary s;
    if (page->n == 1) {
        SW_TRY(sum_up(&page->runs[0], &s));
        write_tiles(&page->runs[0], &s, out);
        return SW_OK;
    }
    sw_str_puts(out, "<div class=\"scroll\"><table class=\"runs\"><thead><tr><th "
                     "scope=\"col\">run");
    for (size_t i = 0; i < SW_LEN(heads); i++) {
        sw_str_printf(out, "<th scope=\"col\" class=\"n\">%s", heads[i]);
    }
    sw_str_puts(out, "</tr></thead><tbody>\n");
    for (int i = 0; i < page->n; i++) {
        SW_TRY(sum_up(&page->runs[i], &s));
        write_row(page, i, &s, out);
    }
    sw_str_puts(out, "</tbody></table></div>\n");
    return SW_OK;
}

/* ---- what stands out ---- */

static void note_norm(const struct summary *s, struct sw_str *out)
{
    char max[48], median[48], step[48];
    if (s->norm.n > 20 && s->norm.max > 20 * s->norm.median) {
        sw_html_number(max, sizeof max, s->norm.max, SW_UNIT_NUMBER);
        sw_html_number(median, sizeof median, s->norm.median, SW_UNIT_NUMBER);
        sw_str_printf(out,
                      "<li>The norm of the gradient had a spike: %s at step %s; its median is "
                      "%s.</li>\n",
                      max, step_text(step, s->norm.max_step), median);
    }
}

static void note_validation(const struct summary *s, struct sw_str *out)
{
    char min[48], last[48], step[48];
    if (s->val.n > 2 && s->val.last > s->val.min * 1.005 && s->val.min_step < s->val.last_step) {
        sw_html_number(min, sizeof min, s->val.min, SW_UNIT_NUMBER);
        sw_html_number(last, sizeof last, s->val.last, SW_UNIT_NUMBER);
        sw_str_printf(out,
                      "<li>The validation loss was lowest at step %s, %s; the last one is "
                      "%s.</li>\n",
                      step_text(step, s->val.min_step), min, last);
    }
}

static sw_status write_notes(const struct sw_page *page, struct sw_str *out)
{
    struct sw_str notes = {0};
    struct summary s;
    sw_status st = SW_OK;
    for (int i = 0; i < page->n && page->n == 1 && st >= 0; i++) {
        const struct sw_past_run *run = &page->runs[i];
        st = sum_up(run, &s);
        if (st < 0) {
            break;
        }
        if (run->n_skipped > 0) {
            sw_str_printf(&notes,
                          "<li>%lld of %lld steps were skipped, because a gradient "
                          "overflowed.</li>\n",
                          (long long)run->n_skipped, (long long)run->n);
        }
        note_norm(&s, &notes);
        note_validation(&s, &notes);
        if (ended_early(run)) {
            sw_str_printf(&notes, "<li>The run ended at step %lld: ", (long long)last_step(run));
            sw_html_name(&notes, sw_past_run_text(run, "end.why"));
            sw_str_puts(&notes, ".</li>\n");
        } else if (run->n > 0 && isfinite(s.wanted) && (double)last_step(run) < s.wanted) {
            sw_str_puts(&notes, "<li>The run has not taken all its steps: it is still running, or "
                                "it was stopped. <code>spillway train --resume</code> continues "
                                "from its last checkpoint.</li>\n");
        }
    }
    if (notes.len > 0) {
        sw_str_puts(out, "<ul class=\"notes\">\n");
        sw_str_puts(out, sw_str_text(&notes));
        sw_str_puts(out, "</ul>\n");
    }
    out->failed |= notes.failed;
    sw_str_fini(&notes);
    return st;
}

/* ---- curves ---- */

/* "val_f1": each its own axis. Of later runs those that the first one has, too. */
static sw_status write_metrics(const struct sw_page *page, struct sw_str *out)
{
    for (int m = 0; m < page->runs[0].n_metrics; m++) {
        const char *name = page->runs[0].metrics[m].name;
        struct sw_str title = {0};
        sw_html_text(&title, name, strlen(name), false);
        struct sw_chart chart = sw_page_chart(page, sw_str_text(&title), SW_UNIT_NUMBER);
        chart.note = "by validation";
        for (int i = 0; i < page->n; i++) {
            const struct sw_past_run *run = &page->runs[i];
            for (int k = 0; k < run->n_metrics; k++) {
                if (strcmp(run->metrics[k].name, name) == 0) {
                    const struct sw_curve curve = {.run = run,
                                                   .values = run->metrics[k].values,
                                                   .name = page->n == 1 ? name : page->labels[i],
                                                   .style = SW_CURVE_DOTS,
                                                   .color = page->n == 1 ? 1 : i};
                    sw_chart_add(&chart, &curve);
                }
            }
        }
        const sw_status st = sw_chart_write(&chart, out);
        out->failed |= title.failed;
        sw_str_fini(&title);
        SW_TRY(st);
    }
    return SW_OK;
}

/* A scale that never moved says nothing. */
static sw_status write_scale(const struct sw_page *page, struct sw_str *out)
{
    struct sw_chart chart = sw_page_chart(page, "Loss scale", SW_UNIT_NUMBER);
    bool moved = false;
    for (int i = 0; i < page->n; i++) {
        struct sw_stats s;
        SW_TRY(sw_stats_of(page->runs[i].steps, page->runs[i].figures[SW_FIGURE_SCALE],
                           page->runs[i].n, &s));
        moved = moved || s.max > s.min;
    }
    sw_page_add(page, &chart, SW_FIGURE_SCALE, "scale", SW_CURVE_PLAIN, 6);
    return moved ? sw_chart_write(&chart, out) : SW_OK;
}

/* Runs of models without experts have no such figures, and then no chart is written. */
static sw_status write_routers(const struct sw_page *page, struct sw_str *out)
{
    struct sw_chart load = sw_page_chart(page, "Load of experts", SW_UNIT_NUMBER);
    struct sw_chart entropy = sw_page_chart(page, "Entropy of experts", SW_UNIT_NUMBER);
    struct sw_chart dropped = sw_page_chart(page, "Dropped choices", SW_UNIT_SHARE);
    struct sw_chart aux = sw_page_chart(page, "Load-balancing loss", SW_UNIT_NUMBER);
    struct sw_chart z = sw_page_chart(page, "Router z-loss", SW_UNIT_NUMBER);
    load.from_zero = dropped.from_zero = true;
    load.note = page->n > 1 ? "least and most; 1 is an equal share"
                            : "<span class=\"key c0\">least</span><span class=\"key c1\">most"
                              "</span>; 1 is an equal share";
    entropy.note = "of the experts' shares; 1 is that of equal ones";
    aux.note = z.note = "without its weight";
    sw_page_add(page, &load, SW_FIGURE_LEAST_LOAD, "least", SW_CURVE_NOISY, 0);
    sw_page_add(page, &load, SW_FIGURE_MOST_LOAD, "most", SW_CURVE_NOISY, 1);
    sw_page_add(page, &entropy, SW_FIGURE_ENTROPY, "entropy", SW_CURVE_NOISY, 2);
    sw_page_add(page, &dropped, SW_FIGURE_DROPPED, "dropped", SW_CURVE_NOISY, 3);
    sw_page_add(page, &aux, SW_FIGURE_AUX_LOSS, "loss", SW_CURVE_NOISY, 4);
    sw_page_add(page, &z, SW_FIGURE_Z_LOSS, "loss", SW_CURVE_NOISY, 5);
    struct sw_chart *const charts[] = {&load, &entropy, &dropped, &aux, &z};
    for (size_t i = 0; i < SW_LEN(charts); i++) {
        SW_TRY(sw_chart_write(charts[i], out));
    }
    return SW_OK;
}

static sw_status write_curves(const struct sw_page *page, struct sw_str *out)
{
    struct sw_chart loss = sw_page_chart(page, "Loss", SW_UNIT_NUMBER);
    struct sw_chart norm = sw_page_chart(page, "Norm of the gradient", SW_UNIT_NUMBER);
    struct sw_chart lr = sw_page_chart(page, "Learning rate", SW_UNIT_NUMBER);
    struct sw_chart tokens = sw_page_chart(page, "Tokens per second", SW_UNIT_COUNT);
    struct sw_chart images = sw_page_chart(page, "Images per second", SW_UNIT_COUNT);
    loss.note = page->n == 1 ? "<span class=\"key c0\">training</span><span class=\"key c1\">"
                               "validation</span>"
                             : "dots: validation";
    lr.from_zero = tokens.from_zero = images.from_zero = true;
    sw_page_add(page, &loss, SW_FIGURE_LOSS, "training", SW_CURVE_NOISY, 0);
    sw_page_add(page, &loss, SW_FIGURE_VAL_LOSS, "validation", SW_CURVE_DOTS, 1);
    sw_page_add(page, &norm, SW_FIGURE_NORM, "norm", SW_CURVE_NOISY, 3);
    norm.note = "before clipping";
    sw_page_add(page, &lr, SW_FIGURE_LR, "rate", SW_CURVE_PLAIN, 2);
    sw_page_add(page, &tokens, SW_FIGURE_TOKENS, "tokens/s", SW_CURVE_NOISY, 5);
    sw_page_add(page, &images, SW_FIGURE_IMAGES, "images/s", SW_CURVE_NOISY, 5);
    sw_str_puts(out, "<section id=\"curves\"><h2>Curves</h2>\n<div class=\"charts\">\n");
    SW_TRY(sw_chart_write(&loss, out));
    SW_TRY(write_metrics(page, out));
    SW_TRY(sw_chart_write(&norm, out));
    SW_TRY(sw_chart_write(&lr, out));
    SW_TRY(sw_chart_write(&tokens, out));
    SW_TRY(sw_chart_write(&images, out));
    SW_TRY(write_scale(page, out));
    SW_TRY(write_routers(page, out));
    sw_str_puts(out, "</div></section>\n");
    return SW_OK;
}

static sw_status write_page(const struct sw_page *page, struct sw_str *out)
{
    static sw_status (*const sections[])(const struct sw_page *page, struct sw_str *out) = {
        write_headline, write_notes,     write_curves,   sw_page_memory,
        sw_page_time,   sw_page_samples, sw_page_config, sw_page_machine};
    write_head(page, out);
    write_title(page, out);
    for (size_t i = 0; i < SW_LEN(sections); i++) {
        SW_TRY(sections[i](page, out));
    }
    sw_str_printf(
        out,
        "</main>\n<footer>Written by spillway %s report. A curve keeps the lowest and the "
        "highest value of each of its columns.</footer>\n</body></html>\n",
        sw_version());
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a report") : SW_OK;
}

/* ---- files ---- */

static void find_output(const struct sw_report_options *o, char *path, size_t cap)
{
    if (o->output) {
        snprintf(path, cap, "%s", o->output);
    } else if (o->n_runs == 1) {
        snprintf(path, cap, "%s/report.html", o->runs[0]);
    } else {
        snprintf(path, cap, "report.html");
    }
}

/* The last part of its path, or all of it where another run has the same. */
static void label_runs(struct sw_page *page)
{
    for (int i = 0; i < page->n; i++) {
        const char *slash = strrchr(page->runs[i].path, '/');
        page->labels[i] = slash && slash[1] ? slash + 1 : page->runs[i].path;
    }
    for (int i = 0; i < page->n; i++) {
        for (int k = 0; k < i; k++) {
            if (strcmp(page->labels[i], page->labels[k]) == 0) {
                page->labels[i] = page->runs[i].path;
                page->labels[k] = page->runs[k].path;
            }
        }
    }
}

static void find_range(struct sw_page *page)
{
    page->first_step = INT64_MAX;
    page->last_step = 0;
    for (int i = 0; i < page->n; i++) {
        const struct sw_past_run *run = &page->runs[i];
        if (run->n > 0) {
            page->first_step = sw_min_i64(page->first_step, run->steps[0]);
            page->last_step = sw_max_i64(page->last_step, last_step(run));
        }
    }
    page->first_step = sw_min_i64(page->first_step, page->last_step);
}

static sw_status write_runs(struct sw_page *page, struct sw_output *to)
{
    struct sw_str out = {0};
    label_runs(page);
    find_range(page);
    sw_status st = write_page(page, &out);
    st = st < 0 ? st : sw_output_put(to, out.ptr, out.len, true);
    sw_str_fini(&out);
    return st;
}

sw_status sw_report_write(const struct sw_report_options *options, char **out_path)
{
    SW_TRY_OPTIONS(options);
    char path[PATH_CAP];
    struct sw_page page = {0};
    struct sw_output output = {.fd = -1};
    sw_status st = SW_OK;
    if (options->n_runs < 1 || options->n_runs > SW_REPORT_MOST_RUNS) {
        return SW_FAIL(SW_E_ARG, "a report takes 1 to %d runs; %d were given", SW_REPORT_MOST_RUNS,
                       options->n_runs);
    }
    find_output(options, path, sizeof path);
    page.runs = sw_alloc_zero("report", (size_t)options->n_runs, sizeof *page.runs);
    SW_TRY_ALLOC(page.runs, "a report");
    for (; page.n < options->n_runs && st >= 0; page.n += st >= 0) {
        st = sw_past_run_read(options->runs[page.n], &page.runs[page.n]);
    }
    st = st < 0 ? st : sw_html_open(path, "--output", &output);
    st = st < 0 ? st : write_runs(&page, &output);
    sw_output_close(&output);
    for (int i = 0; i < page.n; i++) {
        sw_past_run_close(&page.runs[i]);
    }
    sw_free(page.runs);
    SW_TRY(st);
    *out_path = sw_strdup("text", path);
    SW_TRY_ALLOC(*out_path, "a path");
    return SW_OK;
}
