// SPDX-License-Identifier: Apache-2.0
// Published runs on a page of pictures: bars of what was published, of what is predicted in that
// system's accounting and of ours; where the steps go; and speeds over devices.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/pictures.h"

enum { WIDTH = 1000, NAME_CAP = 128, UNBOUNDED = 1000 };

static double tflops_of(const struct sw_json *run, const char *accounting)
{
    char path[64];
    snprintf(path, sizeof path, "%s.tflops_per_device", accounting);
    return sw_picture_value(run, path);
}

/* The ends of the published range; an open one has no upper end. */
static const struct sw_json *published_of(const struct sw_json *run, double out[2])
{
    const struct sw_json *range = sw_json_get(run, "published");
    out[0] = range->first->number;
    out[1] = range->last->number;
    return range;
}

/* ---- bars ---- */

static double most_of(const struct sw_json *first, const struct sw_json *end)
{
    double most = 0;
    for (const struct sw_json *run = first; run != end; run = run->next) {
        double published[2];
        published_of(run, published);
        most = fmax(most, published[1] < UNBOUNDED ? published[1] : published[0]);
        most = fmax(most, fmax(tflops_of(run, "predicted"), tflops_of(run, "ours")));
    }
    return 1.05 * most;
}

static void bar(const struct sw_json *value, int color, int y, double most, struct sw_str *out)
{
    if (value && value->number > 0) {
        sw_str_printf(out, "<rect class=\"b%d\" y=\"%d\" height=\"8\" width=\"%.2f\"", color, y,
                      WIDTH * value->number / most);
        sw_picture_source(value, out);
        sw_str_puts(out, "/>");
    }
}

/* The range that counts as met, over the bar of the prediction. */
static void tolerance(const struct sw_json *run, double most, struct sw_str *out)
{
    double published[2];
    const double share = sw_picture_value(run, "tolerance");
    published_of(run, published);
    if (published[0] > 0 && strcmp(sw_picture_text(run, "judge"), "informative") != 0) {
        const double from = WIDTH * published[0] * (1 - share) / most;
        const double to = WIDTH * fmin(published[1] * (1 + share) / most, 1);
        sw_str_printf(out, "<rect class=\"tol\" x=\"%.2f\" y=\"9\" height=\"12\" width=\"%.2f\"/>",
                      from, to - from);
    }
}

static void bars(const struct sw_json *run, double most, struct sw_str *out)
{
    double published[2];
    const struct sw_json *range = published_of(run, published);
    sw_str_printf(out,
                  "<svg viewBox=\"0 0 %d 30\" preserveAspectRatio=\"none\" role=\"img\"><title>"
                  "TFLOP/s of a device</title>",
                  WIDTH);
    bar(range->first, 0, 1, most, out);
    bar(sw_json_path(run, "predicted.tflops_per_device"), 1, 11, most, out);
    bar(sw_json_path(run, "ours.tflops_per_device"), 2, 21, most, out);
    tolerance(run, most, out);
    sw_str_puts(out, "</svg>");
}

static void published_as_text(const struct sw_json *run, struct sw_str *out)
{
    double published[2];
    const struct sw_json *range = published_of(run, published);
    if (published[0] == 0) {
        sw_str_puts(out, "–");
        return;
    }
    sw_str_puts(out, published[1] >= UNBOUNDED ? "at least " : "");
    sw_picture_number(range->first, SW_PICTURE_RATE, out);
    if (published[1] > published[0] && published[1] < UNBOUNDED) {
        sw_str_puts(out, " to ");
        sw_picture_number(range->last, SW_PICTURE_RATE, out);
    }
}

static void figures(const struct sw_json *run, struct sw_str *out)
{
    double published[2];
    const struct sw_json *ours = sw_json_path(run, "ours.tflops_per_device");
    const struct sw_json *met = sw_json_get(run, "met");
    const bool is_judged = strcmp(sw_picture_text(run, "judge"), "informative") != 0;
    published_of(run, published);
    sw_str_puts(out, "<span class=\"figs\">");
    published_as_text(run, out);
    if (sw_json_path(run, "predicted.tflops_per_device")) {
        sw_str_puts(out, ", predicted ");
        sw_picture_number(sw_json_path(run, "predicted.tflops_per_device"), SW_PICTURE_RATE, out);
        if (published[0] > 0) {
            sw_str_puts(out, is_judged && !met->boolean ? " <span class=\"miss\">(" : " (");
            sw_picture_number(sw_json_get(run, "error"), SW_PICTURE_ERROR, out);
            sw_str_puts(out, is_judged && !met->boolean ? ")</span>" : ")");
        }
    }
    if (ours) {
        sw_str_puts(out, ", ours ");
        sw_picture_number(ours, SW_PICTURE_RATE, out);
    }
    sw_str_puts(out, "</span>");
}

/* Why a run has no prediction; one that has them for both accountings has no words. */
static void reasons(const struct sw_json *run, struct sw_str *out)
{
    static const char *const of[] = {"predicted", "ours"};
    const char *before = "";
    for (size_t k = 0; k < SW_LEN(of); k++) {
        const char *why = sw_picture_text(sw_json_get(run, of[k]), "refused");
        if (*why && strcmp(why, before) != 0) {
            sw_str_printf(out, "<p class=\"why\"><small>%s: ", of[k]);
            sw_html_name(out, why);
            sw_str_puts(out, "</small></p>");
            before = why;
        }
    }
}

static void write_bars(const struct sw_json *first, const struct sw_json *end, struct sw_str *out)
{
    const double most = most_of(first, end);
    sw_str_puts(out, "<figure class=\"chart\"><figcaption><h3>TFLOP/s of a device</h3><span><span "
                     "class=\"key b0\">published</span><span class=\"key b1\">predicted in that "
                     "system's accounting</span><span class=\"key b2\">ours</span>shaded: what "
                     "counts as met</span></figcaption>\n");
    for (const struct sw_json *run = first; run != end; run = run->next) {
        sw_str_puts(out, "<div class=\"row\"><span>");
        sw_html_name(out, sw_picture_text(run, "id"));
        sw_str_puts(out, " <small>");
        sw_html_name(out, sw_picture_text(run, "judge"));
        sw_str_puts(out, "</small></span>");
        bars(run, most > 0 ? most : 1, out);
        figures(run, out);
        sw_str_puts(out, "</div>\n");
    }
    sw_str_puts(out, "</figure>\n");
    for (const struct sw_json *run = first; run != end; run = run->next) {
        if (run->next == end && run == first) {
            reasons(run, out);
        }
    }
}

/* ---- where steps go ---- */

static void step_row(const struct sw_json *run, const struct sw_picture_stack *stack,
                     struct sw_str *out)
{
    sw_str_puts(out, "<div class=\"row\"><span>");
    sw_html_name(out, sw_picture_text(run, "id"));
    sw_str_puts(out, "</span>");
    sw_picture_stack_bar(stack, sw_picture_value(stack->of, "step_seconds"), out);
    sw_str_puts(out, "<span class=\"figs\">");
    sw_picture_number(sw_json_get(stack->of, "step_seconds"), SW_PICTURE_SECONDS, out);
    sw_str_puts(out, ", bound by ");
    sw_html_name(out, sw_picture_text(stack->of, "bound"));
    sw_str_puts(out, "</span></div>\n");
}

/* Each step over the whole width, since those of a group are of unequal models. */
static void write_steps(const struct sw_json *first, const struct sw_json *end,
                        const char *accounting, const char *title, struct sw_str *out)
{
    bool parts[SW_QUEUE_COUNT] = {false};
    for (const struct sw_json *run = first; run != end; run = run->next) {
        sw_picture_find_parts(sw_json_get(run, accounting), parts);
    }
    if (!parts[SW_QUEUE_COMPUTE]) {
        return;
    }
    sw_str_printf(out, "<figure class=\"chart\"><figcaption><h3>%s</h3><span>", title);
    sw_picture_queue_keys(parts, out);
    sw_str_puts(out, "</span></figcaption>\n");
    for (const struct sw_json *run = first; run != end; run = run->next) {
        const struct sw_picture_stack stack = {sw_json_get(run, accounting), ""};
        if (sw_picture_value(stack.of, "step_seconds") > 0) {
            step_row(run, &stack, out);
        }
    }
    sw_str_puts(out, "</figure>\n");
}

/* ---- speeds over devices ---- */

/* The id of a run with a star in the place of its devices: runs that share it differ by these. */
static const char *series_of(const struct sw_json *run, char buf[NAME_CAP])
{
    char number[32];
    const char *id = sw_picture_text(run, "id");
    snprintf(number, sizeof number, "-%lld", (long long)sw_picture_value(run, "devices"));
    const char *at = strstr(id, number);
    while (at && at[strlen(number)] != '-' && at[strlen(number)]) {
        at = strstr(at + 1, number);
    }
    snprintf(buf, NAME_CAP, "%.*s-*%s", at ? (int)(at - id) : (int)strlen(id), id,
             at ? at + strlen(number) : "");
    return at ? buf : NULL;
}

static bool is_in(const struct sw_json *run, const char *series)
{
    char name[NAME_CAP];
    const char *its = series_of(run, name);
    return its && strcmp(its, series) == 0;
}

static sw_status write_series(const struct sw_json *first, const struct sw_json *end,
                              const char *series, struct sw_str *out)
{
    enum { LEAST = 3 };
    struct sw_str title = {0};
    double each = NAN;
    sw_str_puts(&title, "PFLOP/s of all devices, ");
    sw_html_text(&title, series, strlen(series), false);
    SW_TRY_ALLOC(title.ptr, "a picture");
    struct sw_picture_line line = {.title = title.ptr, .x = "devices"};
    sw_status st = sw_picture_line_open(&line, (int)first->parent->n_children);
    for (const struct sw_json *run = first; run != end && st >= 0; run = run->next) {
        double published[2];
        published_of(run, published);
        if (is_in(run, series)) {
            const double devices = sw_picture_value(run, "devices");
            const double there = published[0] > 0 ? published[0] : NAN;
            each = isfinite(each) ? each : isfinite(there) ? there : tflops_of(run, "predicted");
            sw_picture_line_add(&line, (int64_t)devices,
                                tflops_of(run, "predicted") * devices / 1e3, there * devices / 1e3,
                                each * devices / 1e3);
        }
    }
    if (st >= 0 && line.run.n >= LEAST && isfinite(each)) {
        st = sw_picture_line_write(&line, out);
    }
    sw_picture_line_close(&line);
    sw_str_fini(&title);
    return st;
}

static sw_status write_lines(const struct sw_json *first, const struct sw_json *end,
                             struct sw_str *out)
{
    sw_str_puts(out, "<div class=\"charts\">");
    for (const struct sw_json *run = first; run != end; run = run->next) {
        char name[NAME_CAP];
        const char *series = series_of(run, name);
        bool is_new = series != NULL;
        for (const struct sw_json *other = first; other != run && is_new; other = other->next) {
            is_new = !is_in(other, series);
        }
        SW_TRY(is_new ? write_series(first, end, series, out) : SW_OK);
    }
    sw_str_puts(out, "</div>\n");
    return SW_OK;
}

/* ---- sections ---- */

static sw_status write_group(const struct sw_json *root, const struct sw_json *first,
                             const struct sw_json *end, struct sw_str *out)
{
    const char *name = sw_picture_text(first, "group");
    const struct sw_json *errors = sw_json_get(sw_json_get(root, "groups"), name);
    sw_str_puts(out, "<section><h2>");
    sw_html_name(out, name);
    sw_str_puts(out, "</h2>\n");
    if (errors) {
        sw_str_puts(out, "<p>Errors of judged runs: median ");
        sw_picture_number(sw_json_get(errors, "median_error"), SW_PICTURE_PERCENT, out);
        sw_str_puts(out, ", worst ");
        sw_picture_number(sw_json_get(errors, "worst_error"), SW_PICTURE_PERCENT, out);
        sw_str_puts(out, ".</p>\n");
    }
    write_bars(first, end, out);
    if (first->next != end) {
        write_steps(first, end, "predicted", "Where the steps go, predicted", out);
        write_steps(first, end, "ours", "Where the steps go, in our accounting", out);
        SW_TRY(write_lines(first, end, out));
    }
    sw_str_puts(out, "</section>\n");
    return SW_OK;
}

/* The two accountings of a run alone, to one scale. */
static void write_one(const struct sw_json *run, struct sw_str *out)
{
    static const char *const of[] = {"predicted", "ours"};
    struct sw_picture_stack stacks[SW_LEN(of)];
    int n = 0;
    for (size_t k = 0; k < SW_LEN(of); k++) {
        const struct sw_json *prediction = sw_json_get(run, of[k]);
        if (sw_json_get(prediction, "step_seconds")) {
            stacks[n++] = (struct sw_picture_stack){prediction, of[k]};
        }
    }
    sw_picture_stacks("Where the step goes", stacks, n, out);
    for (int i = 0; i < n; i++) {
        sw_picture_tiers(stacks[i].of, stacks[i].name, out);
    }
}

sw_status sw_picture_runs(const struct sw_json *root, struct sw_str *out)
{
    const struct sw_json *runs = sw_json_get(root, "runs");
    for (const struct sw_json *first = runs->first, *end; first; first = end) {
        const char *group = sw_picture_text(first, "group");
        end = first->next;
        while (end && strcmp(sw_picture_text(end, "group"), group) == 0) {
            end = end->next;
        }
        SW_TRY(write_group(root, first, end, out));
    }
    if (runs->n_children == 1) {
        write_one(runs->first, out);
    }
    return SW_OK;
}
