// SPDX-License-Identifier: Apache-2.0
// Progress lines: lines that stay and, on a terminal, one live line with a bar that each step
// rewrites. mpirun gives its processes a pseudo-terminal that nobody sees, so they have no bar
// unless asked for. Long work outside of steps has a bar of the same kind (work.c).
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;
    bool terminal; /* the output is a terminal, so lines have a width */
    bool live, coloured;
    bool open;       /* a live line is shown and not yet ended */
    int width;       /* width of the live line */
    double shown_at; /* when the live line was written */
};

/* bar: show a live line even off a terminal. */
struct progress sw_progress_start(FILE *out, bool bar);

/* How a line is shown. */
enum progress_line {
    LINE_PASSES, /* shown in the live line, if there is one */
    LINE_STAYS   /* printed as a line of its own */
};

/*
 * sw_progress_step - shows one step.
 *
 * text      fields separated by tabs, the most important first. A terminal drops the last fields
 *           that do not fit its width.
 * done      share of the whole, 0 .. 1, for the bar
 */
void sw_progress_step(struct progress *progress, const char *text, double done,
                      enum progress_line line);

/* Ends the live line, if there is one, so that other output begins on a line of its own. */
void sw_progress_end(struct progress *progress);
/* Erases the live line instead. */
void sw_progress_clear(struct progress *progress);

/* The recent pace of a run: the line through its position now and a minute ago, or at its start. */
enum { PACE_MARKS = 64, PACE_SECONDS = 60 };
struct pace {
    struct {
        double at_s;
        int64_t step;
    } marks[PACE_MARKS]; /* one mark per second, in a ring */
    int first, n;
};
void sw_pace_mark(struct pace *pace, double now_s, int64_t step);
/* Estimated seconds for n_steps more steps; 0 before the first step is done. */
double sw_pace_left(const struct pace *pace, double now_s, int64_t step, int64_t n_steps);
/* "0:07", "12:34", "1:02:03" */
void sw_format_eta(double seconds, char *buf, size_t cap);
