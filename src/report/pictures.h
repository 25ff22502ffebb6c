// SPDX-License-Identifier: Apache-2.0
// Parts of a page of pictures (picture.c). They draw nodes of the JSON of `spillway plan`. Private
// to this folder.
#pragma once

#include "report/private.h"

enum sw_picture_unit {
    SW_PICTURE_RATE, /* one digit after the point */
    SW_PICTURE_SECONDS,
    SW_PICTURE_BYTES,
    SW_PICTURE_SHARE,
    SW_PICTURE_COUNT,
    SW_PICTURE_PERCENT, /* one digit after the point */
    SW_PICTURE_ERROR    /* the same with its sign */
};

/* Writes the attributes that say where a number is from. */
void sw_picture_source(const struct sw_json *value, struct sw_str *out);
/* Writes a number as text with its source; a dash if there is none. */
void sw_picture_number(const struct sw_json *value, enum sw_picture_unit unit, struct sw_str *out);
double sw_picture_value(const struct sw_json *of, const char *path);    /* NaN = there is none */
const char *sw_picture_text(const struct sw_json *of, const char *key); /* "" = there is none */

/* ---- bars.c ---- */

/* Bytes by tier against what there is. of: has "tiers"; name: of the accounting, or NULL */
void sw_picture_tiers(const struct sw_json *of, const char *name, struct sw_str *out);

struct sw_picture_stack {
    const struct sw_json *of; /* has "step_seconds" and "of_step" */
    const char *name;
};
/* The parts of steps by queue, all to one scale. */
void sw_picture_stacks(const char *title, const struct sw_picture_stack *stacks, int n,
                       struct sw_str *out);
/* A bar of the parts of one step over the whole width. */
void sw_picture_stack_bar(const struct sw_picture_stack *stack, double most, struct sw_str *out);
/* The legend of the queues that have a part of a step. parts: [SW_QUEUE_COUNT] */
void sw_picture_queue_keys(const bool parts[], struct sw_str *out);
/* Adds the queues with a part of a step: [SW_QUEUE_COUNT] */
void sw_picture_find_parts(const struct sw_json *of, bool parts[]);

/* Speed over devices or nodes, published and predicted, with the line that is linear. */
struct sw_picture_line {
    const char *title, *x;
    struct sw_past_run run; /* has the places along x */
    double *values[3];      /* [n] predicted, published, linear */
};
sw_status sw_picture_line_open(struct sw_picture_line *line, int most);
/* NaN = there is no such value. x ascends. */
void sw_picture_line_add(struct sw_picture_line *line, int64_t x, double predicted,
                         double published, double linear);
sw_status sw_picture_line_write(const struct sw_picture_line *line, struct sw_str *out);
void sw_picture_line_close(struct sw_picture_line *line);

/* The queues of one rank of each stage: the list of look/step_lanes.c. */
sw_status sw_picture_lanes(const struct sw_json *lanes, struct sw_str *out);

/* ---- published.c ---- */

sw_status sw_picture_runs(const struct sw_json *root, struct sw_str *out);
