// SPDX-License-Identifier: Apache-2.0
// monitor - the numbers of a training in files that other programs read while it runs: event files
// for TensorBoard, a CSV file for each number, and a text that Prometheus collects.
//
// A point is written once and at once. A run that goes on from a checkpoint first cuts away what
// lies behind it, so that no point is there twice and none is missing; what an older run left that
// is not gone on with stays, beside the new one's.
#pragma once

#include "base/base.h"

struct sw_point {
    const char *tag; /* "Train/Samples/train_loss" */
    double value;
};

/* Where a run writes, and where it is. */
struct sw_monitor_place {
    const char *folder; /* is made */
    bool goes_on;       /* with what is there .. */
    int64_t last;       /* .. up to this place on the x axis */
};

/* ---- events.c: TensorBoard ---- */

struct sw_events;
/* SW_E_IO names the folder or the file. Files of other programs in the folder are left alone. */
sw_status sw_events_open(const struct sw_monitor_place *place, struct sw_events **out);
/* Points at x, which only grows. */
sw_status sw_events_add(struct sw_events *events, int64_t x, const struct sw_point *points, int n);
void sw_events_close(struct sw_events *events); /* NULL is fine */

/* ---- csv.c: FOLDER/Train_Samples_train_loss.csv, "step,train_loss" and a row a point ---- */

struct sw_csv;
sw_status sw_csv_open(const struct sw_monitor_place *place, struct sw_csv **out);
sw_status sw_csv_add(struct sw_csv *csv, int64_t x, const struct sw_point *points, int n);
void sw_csv_close(struct sw_csv *csv);

/* ---- gauges.c: Prometheus' text format ---- */

struct sw_gauge {
    const char *name, *help; /* one name has one help, and stands together */
    const char *label;       /* "tier=\"host\"" or NULL */
    bool counts;             /* a counter, which only grows; else a gauge */
    double value;
};
void sw_gauges_text(const struct sw_gauge *gauges, int n, struct sw_str *out);
/* A file is whole at any moment: a new one takes its place. A stream gets text after text. */
sw_status sw_gauges_write(struct sw_output *out, const struct sw_gauge *gauges, int n);
