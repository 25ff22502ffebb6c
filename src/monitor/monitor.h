// SPDX-License-Identifier: Apache-2.0
// The monitor writes a training run's metrics to files that other programs read while it runs:
// event files for TensorBoard, a CSV file for each tag, and a text that Prometheus collects.
//
// A point is written once, immediately. A run that resumes from a checkpoint first cuts off the
// points after it, so no point is repeated or missing. Files of other runs are kept next to the new
// ones: several runs may share a folder.
#pragma once

#include "base/base.h"

struct sw_point {
    const char *tag; /* "Train/Samples/train_loss" */
    double value;
};

/* The folder of a run, and its position on the x axis. */
struct sw_monitor_place {
    const char *folder; /* created if missing */
    const char *run;    /* identity of the run: the same text at each of its starts */
    bool goes_on;       /* resumes the files of this run in the folder */
    int64_t last;       /* last x to keep when resuming */
};

/* ---- events.c: TensorBoard ---- */

struct sw_events;
/* SW_E_IO names the folder or the file. Files of other programs in the folder are not touched. */
sw_status sw_events_open(const struct sw_monitor_place *place, struct sw_events **out);
/* Adds points at x; x must not decrease. */
sw_status sw_events_add(struct sw_events *events, int64_t x, const struct sw_point *points, int n);
void sw_events_close(struct sw_events *events); /* NULL is fine */

/* ---- csv.c: FOLDER/Train_Samples_train_loss.csv, "step,train_loss" and one row per point ---- */

struct sw_csv;
sw_status sw_csv_open(const struct sw_monitor_place *place, struct sw_csv **out);
sw_status sw_csv_add(struct sw_csv *csv, int64_t x, const struct sw_point *points, int n);
void sw_csv_close(struct sw_csv *csv);

/* ---- gauges.c: Prometheus' text format ---- */

struct sw_gauge {
    const char *name, *help; /* gauges of one name are adjacent, and share one help */
    const char *label;       /* "tier=\"host\"" or NULL */
    bool counts;             /* a counter, which only increases; else a gauge */
    double value;
};
void sw_gauges_text(const struct sw_gauge *gauges, int n, struct sw_str *out);
/* Replaces a file atomically; appends to a stream. */
sw_status sw_gauges_write(struct sw_output *out, const struct sw_gauge *gauges, int n);
