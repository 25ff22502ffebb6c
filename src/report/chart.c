// SPDX-License-Identifier: Apache-2.0
// Curves as SVG. A curve is cut into as many columns as the picture has, and of each column its
// first, least, greatest and last value are drawn, in their order: what a spike of one step was is
// seen at any length of the run. The picture is stretched to the room that it gets; words stand
// beside it as HTML, so that they stay as large as they are.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/private.h"

enum {
    COLUMNS = 1000, /* of a picture, and its rows */
    FEWER_COLUMNS = 500,
    BANDS = 100, /* that say their values under the pointer */
    TICKS = 8,
    MANY_DOTS = 40,   /* that are drawn smaller */
    SMOOTH_FROM = 100 /* steps from which on a smoothed line says more */
};

struct axis {
    double lo, hi; /* of log10 where it is logarithmic */
    bool log;
    double ticks[TICKS];
    int n_ticks;
};

struct picture {
    const struct sw_chart *chart;
    struct axis y;
    int columns;
    struct sw_str *out;
};

void sw_chart_add(struct sw_chart *chart, const struct sw_curve *curve)
{
    if (chart->n_curves < SW_CURVES) {
        chart->curves[chart->n_curves++] = *curve;
    }
}

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten, of bytes a power of two. */
static double nice_step(double range, int n, enum sw_unit unit)
{
    const double raw = range / n;
    if (unit == SW_UNIT_BYTES) {
        return pow(2, ceil(log2(fmax(raw, 1))));
    }
    const double ten = pow(10, floor(log10(raw)));
    const double m = raw / ten;
    return ten * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static void linear_ticks(struct axis *axis, enum sw_unit unit)
{
    const double step = nice_step(axis->hi - axis->lo, 5, unit);
    for (double k = ceil(axis->lo / step); k * step <= axis->hi && axis->n_ticks < TICKS; k++) {
        axis->ticks[axis->n_ticks++] = k * step;
    }
}

static void log_ticks(struct axis *axis)
{
    const double decades = axis->hi - axis->lo;
    const int every = (int)ceil(decades / (TICKS - 1));
    const double parts[] = {1, 2, 5};
    const int n_parts = decades < 2 ? 3 : 1;
    for (double d = floor(axis->lo); d <= axis->hi; d += every > 0 ? every : 1) {
        for (int i = 0; i < n_parts && axis->n_ticks < TICKS; i++) {
            const double at = d + log10(parts[i]);
            if (at >= axis->lo && at <= axis->hi) {
                axis->ticks[axis->n_ticks++] = at;
            }
        }
    }
}

/* false: no curve has a value. */
static sw_status find_axis(const struct sw_chart *chart, struct axis *axis, bool *out_any)
{
    double lo = INFINITY, hi = -INFINITY, median = NAN;
    for (int i = 0; i < chart->n_curves; i++) {
        const struct sw_curve *c = &chart->curves[i];
        struct sw_stats s;
        SW_TRY(sw_stats_of(c->run->steps, c->values, c->run->n, &s));
        if (s.n > 0) {
            lo = fmin(lo, s.min);
            hi = fmax(hi, s.max);
            median = isnan(median) ? s.median : fmax(median, s.median);
        }
    }
    *out_any = lo <= hi;
    /* where most of the curve would lie flat below a few spikes */
    axis->log = !chart->from_zero && lo > 0 && hi > 20 * median;
    if (axis->log) {
        lo = log10(lo);
        hi = log10(hi);
    } else if (chart->from_zero) {
        lo = fmin(lo, 0);
    }
    const double room = hi > lo ? 0.04 * (hi - lo) : fmax(fabs(hi), 1e-9) * 0.1;
    axis->lo = chart->from_zero && lo == 0 ? 0 : lo - room;
    axis->hi = chart->unit == SW_UNIT_SHARE && hi <= 1 ? 1.02 : hi + room;
    if (axis->log) {
        log_ticks(axis);
    } else if (*out_any) {
        linear_ticks(axis, chart->unit);
    }
    return SW_OK;
}

static int row_of(const struct axis *axis, double value)
{
    const double at = axis->log ? log10(fmax(value, 1e-300)) : value;
    const double share = (at - axis->lo) / (axis->hi - axis->lo);
    return (int)lround(COLUMNS * (1 - fmin(fmax(share, 0), 1)));
}

static double share_of_step(const struct sw_chart *chart, int64_t step)
{
    const int64_t range = chart->last_step - chart->first_step;
    return range > 0 ? (double)(step - chart->first_step) / (double)range : 0.5;
}

/* ---- curves ---- */

/* A path that is written as steps from point to point, the shortest way to say it. */
struct pen {
    struct sw_str *out;
    int x, y;
    bool down;
};

static void move_to(struct pen *pen, int x, int y)
{
    if (!pen->down) {
        sw_str_printf(pen->out, "M%d %d", x, y);
    } else if (x == pen->x && y != pen->y) {
        sw_str_printf(pen->out, "v%d", y - pen->y);
    } else if (y == pen->y && x != pen->x) {
        sw_str_printf(pen->out, "h%d", x - pen->x);
    } else if (x != pen->x) {
        sw_str_printf(pen->out, "l%d %d", x - pen->x, y - pen->y);
    }
    *pen = (struct pen){pen->out, x, y, true};
}

/* What a column has seen. */
struct column {
    int at; /* -1: nothing */
    double first, min, max, last;
    int64_t i_min, i_max;
};

static void draw_column(const struct picture *p, const struct column *c, struct pen *pen)
{
    const int x = c->at * (COLUMNS / p->columns);
    const bool falls = c->i_max < c->i_min;
    move_to(pen, x, row_of(&p->y, c->first));
    move_to(pen, x, row_of(&p->y, falls ? c->max : c->min));
    move_to(pen, x, row_of(&p->y, falls ? c->min : c->max));
    move_to(pen, x, row_of(&p->y, c->last));
}

static void add_to_column(struct column *c, int at, double v, int64_t i)
{
    if (c->at != at) {
        *c = (struct column){at, v, v, v, v, i, i};
    }
    if (v < c->min) {
        c->min = v;
        c->i_min = i;
    }
    if (v > c->max) {
        c->max = v;
        c->i_max = i;
    }
    c->last = v;
}

/* A gap in the values is one in the curve, unless they are apart anyway. */
static void draw_values(const struct picture *p, const struct sw_curve *curve, bool gaps)
{
    struct pen pen = {.out = p->out};
    struct column column = {.at = -1};
    for (int64_t i = 0; i < curve->run->n; i++) {
        const double v = curve->values[i];
        if (!isfinite(v)) {
            if (gaps && column.at >= 0) {
                draw_column(p, &column, &pen);
                column.at = -1;
                pen.down = false;
            }
            continue;
        }
        const double share = share_of_step(p->chart, curve->run->steps[i]);
        const int at = (int)lround(share * p->columns);
        if (column.at >= 0 && column.at != at) {
            draw_column(p, &column, &pen);
        }
        add_to_column(&column, at, v, i);
    }
    if (column.at >= 0) {
        draw_column(p, &column, &pen);
    }
}

/* An average that forgets: of about a hundredth of the run. */
static void draw_smoothed(const struct picture *p, const struct sw_curve *curve)
{
    struct pen pen = {.out = p->out};
    const double keep = 1 - 1 / fmax((double)curve->run->n / 100, 2);
    double sum = 0, weight = 0;
    int last = -1;
    for (int64_t i = 0; i < curve->run->n; i++) {
        const double v = curve->values[i];
        if (!isfinite(v)) {
            continue;
        }
        sum = keep * sum + (p->y.log ? log10(fmax(v, 1e-300)) : v);
        weight = keep * weight + 1;
        const double share = share_of_step(p->chart, curve->run->steps[i]);
        const int at = (int)lround(share * p->columns / 2); /* it is smooth */
        if (at != last || i + 1 == curve->run->n) {
            const double mean = sum / weight;
            move_to(&pen, at * 2 * (COLUMNS / p->columns),
                    row_of(&p->y, p->y.log ? pow(10, mean) : mean));
            last = at;
        }
    }
}

static void draw_dots(const struct picture *p, const struct sw_curve *curve)
{
    int64_t last_x = -1, last_y = -1;
    for (int64_t i = 0; i < curve->run->n; i++) {
        if (isfinite(curve->values[i])) {
            const double share = share_of_step(p->chart, curve->run->steps[i]);
            const int x = (int)lround(share * COLUMNS), y = row_of(&p->y, curve->values[i]);
            if (x != last_x || y != last_y) {
                sw_str_printf(p->out, "M%d %dh0", x, y);
            }
            last_x = x;
            last_y = y;
        }
    }
}

static bool many_dots(const struct sw_curve *curve)
{
    int64_t n = 0;
    for (int64_t i = 0; i < curve->run->n; i++) {
        n += isfinite(curve->values[i]) != 0;
    }
    return n > MANY_DOTS;
}

static void draw_curve(const struct picture *p, const struct sw_curve *curve)
{
    static const char *const classes[] = {[SW_CURVE_NOISY] = "raw",
                                          [SW_CURVE_PLAIN] = "line",
                                          [SW_CURVE_DOTS] = "dash",
                                          [SW_CURVE_LIMIT] = "limit"};
    const bool smooth = curve->style == SW_CURVE_NOISY && curve->run->n >= SMOOTH_FROM;
    const char *style = curve->style == SW_CURVE_NOISY && !smooth ? "line" : classes[curve->style];
    sw_str_printf(p->out, "<path class=\"%s c%d\" d=\"", style, curve->color % SW_COLORS);
    draw_values(p, curve, curve->style != SW_CURVE_DOTS);
    sw_str_puts(p->out, "\"/>\n");
    if (smooth) {
        sw_str_printf(p->out, "<path class=\"line c%d\" d=\"", curve->color % SW_COLORS);
        draw_smoothed(p, curve);
        sw_str_puts(p->out, "\"/>\n");
    } else if (curve->style == SW_CURVE_DOTS) {
        sw_str_printf(p->out, "<path class=\"dots%s c%d\" d=\"", many_dots(curve) ? " many" : "",
                      curve->color % SW_COLORS);
        draw_dots(p, curve);
        sw_str_puts(p->out, "\"/>\n");
    }
}

/* ---- what stands under the pointer ---- */

struct reading {
    double min, max;
    int64_t n;
};

static struct reading read_band(const struct sw_curve *curve, int64_t from, int64_t to, int64_t *at)
{
    struct reading r = {INFINITY, -INFINITY, 0};
    for (; *at < curve->run->n && curve->run->steps[*at] <= to; (*at)++) {
        const double v = curve->values[*at];
        if (isfinite(v) && curve->run->steps[*at] >= from) {
            r.min = fmin(r.min, v);
            r.max = fmax(r.max, v);
            r.n++;
        }
    }
    return r;
}

static void write_reading(const struct picture *p, const struct sw_curve *curve,
                          const struct reading *r)
{
    char min[48], max[48];
    sw_html_number(min, sizeof min, r->min, p->chart->unit);
    sw_html_number(max, sizeof max, r->max, p->chart->unit);
    sw_str_printf(p->out, "<u class=\"c%d\">", curve->color % SW_COLORS);
    sw_html_text(p->out, curve->name, strlen(curve->name), false);
    const bool one = strcmp(min, max) == 0;
    sw_str_printf(p->out, " %s%s%s</u>", min, one ? "" : " to ", one ? "" : max);
}

static void write_bands(const struct picture *p)
{
    const struct sw_chart *chart = p->chart;
    const int64_t steps = chart->last_step - chart->first_step + 1;
    const int64_t n = sw_min_i64(steps, BANDS);
    int64_t at[SW_CURVES] = {0};
    sw_str_puts(p->out, "<div class=\"bands\" aria-hidden=\"true\">");
    for (int64_t b = 0; b < n; b++) {
        const int64_t from = chart->first_step + steps * b / n;
        const int64_t to = chart->first_step + steps * (b + 1) / n - 1;
        char first[32], last[32];
        sw_html_number(first, sizeof first, (double)from, SW_UNIT_COUNT);
        sw_html_number(last, sizeof last, (double)to, SW_UNIT_COUNT);
        sw_str_printf(p->out, "<i><b%s>step%s %s%s%s", 2 * b >= n ? " class=\"l\"" : "",
                      from < to ? "s" : "", first, from < to ? " to " : "", from < to ? last : "");
        for (int i = 0; i < chart->n_curves; i++) {
            const struct reading r = read_band(&chart->curves[i], from, to, &at[i]);
            if (r.n > 0) {
                write_reading(p, &chart->curves[i], &r);
            }
        }
        sw_str_puts(p->out, "</b></i>");
    }
    sw_str_puts(p->out, "</div>");
}

/* ---- the figure ---- */

static void write_grid(const struct picture *p)
{
    sw_str_puts(p->out, "<path class=\"grid\" d=\"");
    for (int i = 0; i < p->y.n_ticks; i++) {
        const double at = p->y.log ? pow(10, p->y.ticks[i]) : p->y.ticks[i];
        sw_str_printf(p->out, "M0 %dh%d", row_of(&p->y, at), COLUMNS);
    }
    sw_str_puts(p->out, "\"/>\n");
}

static void write_y(const struct picture *p)
{
    char text[48];
    sw_str_puts(p->out, "<div class=\"y\" aria-hidden=\"true\">");
    for (int i = 0; i < p->y.n_ticks; i++) {
        const double tick = p->y.ticks[i];
        const double value = p->y.log                                  ? pow(10, tick)
                             : fabs(tick) < 1e-9 * (p->y.hi - p->y.lo) ? 0
                                                                       : tick;
        sw_str_printf(p->out, "<span style=\"top:%.1f%%\">%s</span>",
                      row_of(&p->y, value) * 100.0 / COLUMNS,
                      sw_html_number(text, sizeof text, value, p->chart->unit));
    }
    sw_str_puts(p->out, "</div>");
}

static void write_x(const struct picture *p)
{
    const struct sw_chart *chart = p->chart;
    char text[48];
    const double range = (double)(chart->last_step - chart->first_step);
    const double step = fmax(nice_step(fmax(range, 1), 5, SW_UNIT_NUMBER), 1);
    sw_str_puts(p->out, "<div class=\"x\" aria-hidden=\"true\">");
    for (double k = ceil((double)chart->first_step / step); k * step <= (double)chart->last_step;
         k++) {
        const double share = share_of_step(chart, (int64_t)(k * step));
        sw_str_printf(p->out, "<span%s style=\"left:%.1f%%\">%s</span>",
                      share > 0.95 ? " class=\"e\"" : "", 100 * share,
                      sw_html_number(text, sizeof text, k * step, SW_UNIT_COUNT));
    }
    sw_str_puts(p->out, "</div>");
}

/* For who hears the page instead of seeing it. */
static sw_status describe(const struct picture *p)
{
    for (int i = 0; i < p->chart->n_curves; i++) {
        const struct sw_curve *c = &p->chart->curves[i];
        char text[4][48];
        struct sw_stats s;
        SW_TRY(sw_stats_of(c->run->steps, c->values, c->run->n, &s));
        if (s.n == 0) {
            continue;
        }
        const double values[4] = {s.first, s.last, s.min, s.max};
        for (int k = 0; k < 4; k++) {
            sw_html_number(text[k], sizeof text[k], values[k], p->chart->unit);
        }
        sw_html_text(p->out, c->name, strlen(c->name), false);
        sw_str_printf(p->out,
                      ": %s at first, %s at last; least %s at step %lld, greatest %s at step "
                      "%lld. ",
                      text[0], text[1], text[2], (long long)s.min_step, text[3],
                      (long long)s.max_step);
    }
    return SW_OK;
}

sw_status sw_chart_write(const struct sw_chart *chart, struct sw_str *out)
{
    struct picture p = {
        .chart = chart, .out = out, .columns = chart->n_curves > 4 ? FEWER_COLUMNS : COLUMNS};
    bool any = false;
    SW_TRY(find_axis(chart, &p.y, &any));
    if (!any) {
        return SW_OK;
    }
    sw_str_printf(out,
                  "<figure class=\"chart\"><figcaption><h3>%s</h3><span>%s%s%s</span>"
                  "</figcaption>\n<div class=\"plot\">",
                  chart->title, chart->note ? chart->note : "", chart->note && p.y.log ? "; " : "",
                  p.y.log ? "logarithmic" : "");
    write_y(&p);
    sw_str_printf(out,
                  "<div class=\"area\"><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
                  "role=\"img\"><title>%s by step</title><desc>",
                  COLUMNS, COLUMNS, chart->title);
    SW_TRY(describe(&p));
    sw_str_puts(out, "</desc>\n");
    write_grid(&p);
    for (int i = 0; i < chart->n_curves; i++) {
        draw_curve(&p, &chart->curves[i]);
    }
    sw_str_puts(out, "</svg>");
    write_bands(&p);
    sw_str_puts(out, "</div>");
    write_x(&p);
    sw_str_puts(out, "</div></figure>\n");
    return SW_OK;
}
