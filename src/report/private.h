// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of report: a run as it was read, and parts of a page. The public
// header is spillway/report.h.
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "plan/plan.h"
#include "show/show.h"
#include "spillway/report.h"

/* ---- run.c: the files of a training ---- */

enum sw_figure {
    SW_FIGURE_LOSS,
    SW_FIGURE_NORM,
    SW_FIGURE_LR,
    SW_FIGURE_SCALE,
    SW_FIGURE_STEP_MS,
    SW_FIGURE_TOKENS,
    SW_FIGURE_IMAGES, /* in place of tokens, if the run is on pictures */
    SW_FIGURE_DEVICE,
    SW_FIGURE_HOST,
    SW_FIGURE_DISK,
    SW_FIGURE_BESIDES,
    SW_FIGURE_RESIDENT,
    SW_FIGURE_READ,
    SW_FIGURE_WRITE,
    SW_FIGURE_HIDDEN,
    SW_FIGURE_VAL_LOSS,
    SW_FIGURE_AUX_LOSS,
    SW_FIGURE_Z_LOSS,
    SW_FIGURE_LEAST_LOAD,
    SW_FIGURE_MOST_LOAD,
    SW_FIGURE_ENTROPY,
    SW_FIGURE_DROPPED,
    SW_FIGURE_COUNT
};
const char *sw_figure_name(enum sw_figure figure); /* in metrics.jsonl */

enum { SW_PAST_METRICS = 8, SW_METRIC_CAP = 48 };

struct sw_past_sample {
    int64_t step;
    const char *prompt, *text; /* in the run's arena */
    size_t prompt_len, text_len;
};

struct sw_past_run {
    const char *path;                 /* borrowed */
    struct sw_json_doc *doc;          /* run.json; NULL: there is none */
    int64_t n;                        /* steps */
    int64_t *steps;                   /* [n] ascending */
    double *figures[SW_FIGURE_COUNT]; /* [n] each; NaN where a line has none */
    uint8_t *bound;                   /* [n] enum sw_queue; SW_QUEUE_COUNT: not known */
    int64_t n_skipped;
    struct {
        char name[SW_METRIC_CAP]; /* "val_accuracy" */
        double *values;           /* [n] */
    } metrics[SW_PAST_METRICS];
    int n_metrics;
    struct sw_past_sample *samples; /* [n_samples] */
    int64_t n_samples;
    struct sw_arena arena;
};

/* path is borrowed. SW_E_ARG: the path is not a run. */
sw_status sw_past_run_read(const char *path, struct sw_past_run *out);
void sw_past_run_close(struct sw_past_run *run);
/* Member "a.b" of run.json, or NULL. */
const struct sw_json *sw_past_run_fact(const struct sw_past_run *run, const char *path);
/* Source of each key of the configuration; NULL: not known. */
const struct sw_json *sw_past_run_sources(const struct sw_past_run *run);
const char *sw_past_run_text(const struct sw_past_run *run,
                             const char *path); /* "" where there is none */
double sw_past_run_number(const struct sw_past_run *run, const char *path); /* NaN if absent */

/* Statistics over the finite values. Without any, all are NaN and steps are 0. */
struct sw_stats {
    double first, last, min, max, median, sum;
    int64_t n, min_step, max_step, last_step;
};
/* SW_E_NOMEM */
sw_status sw_stats_of(const int64_t *steps, const double *values, int64_t n, struct sw_stats *out);

/* ---- html.c ---- */

/* Writes untrusted text: markup is escaped, control characters and invalid UTF-8 become U+FFFD.
 * lines: keeps line breaks, tabs and direction controls; otherwise they also become U+FFFD. */
void sw_html_text(struct sw_str *out, const char *text, size_t len, bool lines);
void sw_html_name(struct sw_str *out, const char *text); /* one line, with its own direction */
/* Units in which numbers are printed: four digits, "12,345", "1 h 02 min", "1.5 MiB" and so on. */
enum sw_unit { SW_UNIT_NUMBER, SW_UNIT_COUNT, SW_UNIT_BYTES, SW_UNIT_MS, SW_UNIT_SHARE };
const char *sw_html_number(char *buf, size_t cap, double value, enum sw_unit unit);
const char *sw_html_seconds(char *buf, size_t cap, double seconds);
const char *sw_html_style(void);        /* the style sheet */
void sw_html_begin(struct sw_str *out); /* a page up to the text of its title */
/* from there into its body; more_style: after the style sheet */
void sw_html_end_head(const char *more_style, struct sw_str *out);
/* Opens a file for a page. SW_E_ARG: it cannot be written, or has something else; the message
 * begins with the flag that named it. */
sw_status sw_html_open(const char *path, const char *flag, struct sw_output *out);

/* ---- chart.c ---- */

enum sw_curve_style {
    SW_CURVE_NOISY, /* every step, faint, and a smoothed line over it */
    SW_CURVE_PLAIN,
    SW_CURVE_DOTS, /* a dot a value, joined by a dashed line */
    SW_CURVE_LIMIT /* dashed: what was planned */
};
struct sw_curve {
    const struct sw_past_run *run;
    const double *values; /* [run->n] */
    const char *name;     /* for the readout; NULL = it is not read out */
    enum sw_curve_style style;
    int color; /* index of a color of the style sheet */
};
enum { SW_CURVES = 3 * SW_REPORT_MOST_RUNS, SW_COLORS = 8 };
struct sw_chart {
    const char *title, *note;
    const char *x; /* name of what stands in the place of steps, without a readout; NULL = steps */
    enum sw_unit unit;
    bool from_zero; /* the axis begins there; else it may be logarithmic */
    int64_t first_step, last_step;
    struct sw_curve curves[SW_CURVES];
    int n_curves;
};
/* Writes a chart, or nothing if no curve has a value. SW_E_NOMEM */
sw_status sw_chart_write(const struct sw_chart *chart, struct sw_str *out);
void sw_chart_add(struct sw_chart *chart, const struct sw_curve *curve);

/* ---- lanes.c ---- */

/* Writes the lanes of a traced step: of each stage of the pipeline, and of the queues of rank 0; or
 * a line that says why the trace is unreadable. */
sw_status sw_lanes_write(const char *path, int64_t stages, struct sw_str *out);

/* ---- sections.c, facts.c: sections of a page ---- */

struct sw_page {
    struct sw_past_run *runs; /* [n] */
    const char *labels[SW_REPORT_MOST_RUNS];
    int n;
    int64_t first_step, last_step; /* first and last step of all runs */
};
sw_status sw_page_memory(const struct sw_page *page, struct sw_str *out);
sw_status sw_page_time(const struct sw_page *page, struct sw_str *out);
sw_status sw_page_samples(const struct sw_page *page, struct sw_str *out);
sw_status sw_page_config(const struct sw_page *page, struct sw_str *out);
sw_status sw_page_machine(const struct sw_page *page, struct sw_str *out);
/* A chart of one figure of all runs. */
struct sw_chart sw_page_chart(const struct sw_page *page, const char *title, enum sw_unit unit);
void sw_page_add(const struct sw_page *page, struct sw_chart *chart, enum sw_figure figure,
                 const char *name, enum sw_curve_style style, int color);
/* Writes the run's colour and name, as the head of a section about it. Writes nothing if the page
 * has one run. */
void sw_page_run(const struct sw_page *page, int i, struct sw_str *out);
