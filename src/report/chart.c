// SPDX-License-Identifier: Apache-2.0
// Curves as SVG. A curve is divided into the columns of the picture. The first, least, greatest and
// last value of each column are drawn, in their order, so that a spike of one step is visible at
// any length of the run. The picture is stretched to the available space. Labels are HTML beside
// it, so that they keep their size.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/private.h"

enum {
    COLUMNS = 1000, /* columns and rows of a picture */
    FEWER_COLUMNS = 500,
    BANDS = 100, /* columns that show their values under the pointer */
    LEAST_LOG = -300,
    LEAST_TICKS = 4,
    TICKS = 6,        /* at most */
    MANY_DOTS = 40,   /* from this number on, dots are drawn smaller */
    SMOOTH_FROM = 100 /* steps from which on a line is smoothed */
};

#define MOST_VALUE 1e300 /* largest value of an axis; larger ones are drawn at its end */

struct axis {
    double lo, hi; /* log10 of the bounds if logarithmic */
    bool log;
    double step; /* between ticks, where it is linear */
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

/* Sets the ticks at multiples of step; false: there would be fewer than four, or more than six. */
static bool ticks_at(struct axis *axis, double step)
{
    const double first = ceil(axis->lo / step), last = floor(axis->hi / step);
    const double n = last - first + 1;
    if (!(n >= LEAST_TICKS && n <= TICKS)) {
        return false;
    }
    axis->step = step;
    axis->n_ticks = (int)n;
    for (int i = 0; i < axis->n_ticks; i++) {
        axis->ticks[i] = (first + i) * step + 0.0; /* no -0 */
    }
    return true;
}

/* The nicest step that gives four to six ticks. Neighbours among all the factors are at most 1.5
 * apart, so that one of them divides any range into four parts or five. */
static void linear_ticks(struct axis *axis, enum sw_unit unit)
{
    static const double of_ten[] = {1, 2, 5, 2.5, 4, 3, 1.5, 6, 8}, of_two[] = {1, 1.5};
    const bool bytes = unit == SW_UNIT_BYTES;
    const double *factors = bytes ? of_two : of_ten, base = bytes ? 2 : 10;
    const int n = bytes ? (int)SW_LEN(of_two) : (int)SW_LEN(of_ten);
    const double power = floor(log2(axis->hi - axis->lo) / log2(base));
    for (int i = 0; i < n; i++) {
        for (int down = 0; down <= 3; down++) {
            if (ticks_at(axis, factors[i] * pow(base, power - down))) {
                return;
            }
        }
    }
}

/* Ticks at parts of every so many-th power of ten. */
static int log_ticks_at(const struct axis *axis, const double *parts, int every, double *out)
{
    int n = 0;
    for (double d = every * floor(axis->lo / every); d <= axis->hi; d += every) {
        for (int i = 0; i < 3 && parts[i] > 0; i++) {
            const double at = d + log10(parts[i]);
            if (at >= axis->lo && at <= axis->hi && n <= TICKS) {
                out[n++] = at;
            }
        }
    }
    return n;
}

/* If no choice gives four to six ticks, the axis grows until it has four. */
static void log_ticks(struct axis *axis)
{
    static const double parts[3][3] = {{1, 2, 5}, {1, 3}, {1}};
    double ticks[TICKS + 1];
    for (int every = 1;; every++) {
        for (int i = every == 1 ? 0 : 2; i < 3; i++) {
            const int n = log_ticks_at(axis, parts[i], every, ticks);
            if (n >= LEAST_TICKS && n <= TICKS) {
                memcpy(axis->ticks, ticks, (size_t)n * sizeof *ticks);
                axis->n_ticks = n;
                return;
            }
        }
        if (log_ticks_at(axis, parts[2], every, ticks) < LEAST_TICKS) {
            const double below = every * (ceil(axis->lo / every) - 1);
            const double above = every * (floor(axis->hi / every) + 1);
            const bool down = axis->lo - below < above - axis->hi && below > LEAST_LOG;
            *(down ? &axis->lo : &axis->hi) = down ? below : above;
            every = 0; /* from the finest again */
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
            lo = fmin(lo, fmax(s.min, -MOST_VALUE));
            hi = fmax(hi, fmin(s.max, MOST_VALUE));
            median = isnan(median) ? s.median : fmax(median, s.median);
        }
    }
    *out_any = lo <= hi;
    /* logarithmic if most of the curve would be flat below a few spikes */
    axis->log = !chart->from_zero && lo > 0 && hi > 20 * median;
    if (axis->log) {
        lo = log10(lo);
        hi = log10(hi);
    } else if (chart->from_zero) {
        lo = fmin(lo, 0);
    }
    const double most = fmax(fabs(lo), fabs(hi));
    const double room = hi - lo > 1e-9 * most ? 0.04 * (hi - lo) : most > 0 ? 0.1 * most : 1;
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

/* Values that fall into one column. */
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

/* Draws an exponential moving average over about a hundredth of the run. */
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
    sw_html_name(p->out, curve->name);
    const bool one = strcmp(min, max) == 0;
    sw_str_printf(p->out, " %s%s%s</u>", min, one ? "" : " to ", one ? "" : max);
}

/* (range + 1) * b / n for b < n, without the product that may be too large. */
static int64_t part_of(int64_t range, int64_t b, int64_t n)
{
    return range / n * b + (range % n + 1) * b / n;
}

static void write_bands(const struct picture *p)
{
    const struct sw_chart *chart = p->chart;
    const int64_t range = chart->last_step - chart->first_step; /* one less than steps */
    const int64_t n = range < BANDS ? range + 1 : BANDS;
    int64_t at[SW_CURVES] = {0};
    sw_str_puts(p->out, "<div class=\"bands\" aria-hidden=\"true\">");
    for (int64_t b = 0; b < n; b++) {
        const int64_t from = chart->first_step + part_of(range, b, n);
        const int64_t to =
            b + 1 == n ? chart->last_step : chart->first_step + part_of(range, b + 1, n) - 1;
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

/* With as many digits as neighbours differ by. */
static const char *tick_text(char *buf, size_t cap, const struct axis *axis, double value,
                             enum sw_unit unit)
{
    static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    const double most = axis->log ? pow(10, axis->hi) : fmax(fabs(axis->lo), fabs(axis->hi));
    const double apart = axis->log ? most : axis->step;
    const int digits = (int)fmin(fmax(floor(log10(most)) - floor(log10(apart)) + 2, 7), 17);
    size_t size = 0;
    if (unit == SW_UNIT_COUNT && fmod(value, 1) == 0) {
        return sw_html_number(buf, cap, value, unit);
    }
    for (; unit == SW_UNIT_BYTES && fabs(value) >= 1024 && size + 1 < SW_LEN(sizes); size++) {
        value /= 1024;
    }
    const bool seconds = unit == SW_UNIT_MS && most >= 1e4;
    const double shown = unit == SW_UNIT_SHARE ? 100 * value : seconds ? value / 1e3 : value;
    snprintf(buf, cap, "%.*g%s%s", digits, shown,
             unit == SW_UNIT_NUMBER || unit == SW_UNIT_COUNT ? "" : " ",
             unit == SW_UNIT_BYTES   ? sizes[size]
             : unit == SW_UNIT_SHARE ? "%"
             : seconds               ? "s"
             : unit == SW_UNIT_MS    ? "ms"
                                     : "");
    return buf;
}

static void write_y(const struct picture *p)
{
    char text[48];
    sw_str_puts(p->out, "<div class=\"y\" aria-hidden=\"true\">");
    for (int i = 0; i < p->y.n_ticks; i++) {
        const double value = p->y.log ? pow(10, p->y.ticks[i]) : p->y.ticks[i];
        sw_str_printf(p->out, "<span style=\"top:%.1f%%\">%s</span>",
                      row_of(&p->y, value) * 100.0 / COLUMNS,
                      tick_text(text, sizeof text, &p->y, value, p->chart->unit));
    }
    sw_str_puts(p->out, "</div>");
}

/* Whole steps, at nice numbers, else counted from the first one. Fewer than four steps have a tick
 * each. */
static int step_ticks(const struct sw_chart *chart, int64_t out[TICKS])
{
    struct axis axis = {.lo = (double)chart->first_step, .hi = (double)chart->last_step};
    const int64_t range = chart->last_step - chart->first_step;
    int n = 0;
    if (range >= TICKS) {
        linear_ticks(&axis, SW_UNIT_COUNT);
    }
    if (axis.n_ticks > 0 && fmod(axis.step, 1) == 0) {
        for (; n < axis.n_ticks; n++) {
            out[n] = (int64_t)fmin(axis.ticks[n], 0x1p62);
        }
        return n;
    }
    const int64_t step = sw_max_i64(sw_ceil_div(range, TICKS - 1), 1);
    for (; n < TICKS && n * step <= range; n++) {
        out[n] = chart->first_step + n * step;
    }
    return n;
}

static void write_x(const struct picture *p)
{
    const struct sw_chart *chart = p->chart;
    char text[48];
    int64_t ticks[TICKS];
    const int n = step_ticks(chart, ticks);
    sw_str_puts(p->out, "<div class=\"x\" aria-hidden=\"true\">");
    for (int i = 0; i < n; i++) {
        const double share = share_of_step(chart, ticks[i]);
        sw_str_printf(p->out, "<span%s style=\"left:%.1f%%\">%s</span>",
                      share > 0.95 ? " class=\"e\"" : "", 100 * share,
                      sw_html_number(text, sizeof text, (double)ticks[i], SW_UNIT_COUNT));
    }
    sw_str_puts(p->out, "</div>");
}

/* Writes the text description for screen readers. */
static sw_status describe(const struct picture *p)
{
    const char *x = p->chart->x ? p->chart->x : "step";
    for (int i = 0; i < p->chart->n_curves; i++) {
        const struct sw_curve *c = &p->chart->curves[i];
        char text[4][48];
        struct sw_stats s;
        SW_TRY(sw_stats_of(c->run->steps, c->values, c->run->n, &s));
        if (s.n == 0 || !c->name) {
            continue;
        }
        const double values[4] = {s.first, s.last, s.min, s.max};
        for (int k = 0; k < 4; k++) {
            sw_html_number(text[k], sizeof text[k], values[k], p->chart->unit);
        }
        sw_html_text(p->out, c->name, strlen(c->name), false);
        sw_str_printf(p->out, ": first %s, last %s; lowest %s at %s %lld, highest %s at %s %lld. ",
                      text[0], text[1], text[2], x, (long long)s.min_step, text[3], x,
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
                  "role=\"img\"><title>%s by %s</title><desc>",
                  COLUMNS, COLUMNS, chart->title, chart->x ? chart->x : "step");
    SW_TRY(describe(&p));
    sw_str_puts(out, "</desc>\n");
    write_grid(&p);
    for (int i = 0; i < chart->n_curves; i++) {
        draw_curve(&p, &chart->curves[i]);
    }
    sw_str_puts(out, "</svg>");
    if (!chart->x) {
        write_bands(&p);
    }
    sw_str_puts(out, "</div>");
    write_x(&p);
    sw_str_puts(out, "</div></figure>\n");
    return SW_OK;
}
