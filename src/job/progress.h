// SPDX-License-Identifier: Apache-2.0
// progress - lines that stay, and on a terminal one live line with a bar that each step writes
// anew. mpirun gives its processes a pseudo-terminal that nobody sees: without a bar there, unless
// asked for. Long work outside of steps has a bar of the same kind (work.c).
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;
    bool terminal; /* lines have a width */
    bool live, coloured;
    bool open;       /* the live line stands, without a line break */
    int width;       /* of the live line */
    double shown_at; /* when it was written */
};

/* bar: a live line in any case. */
struct progress sw_progress_start(FILE *out, bool bar);

/* What becomes of a line. */
enum progress_line {
    LINE_PASSES, /* a live line, if there is one */
    LINE_STAYS   /* a line of its own */
};

/*
 * sw_progress_step - show one step.
 *
 * text      what is known of it, in fields with a tab between, the most important first: on a
 *           terminal those at the end that its width has no room for are left out
 * done      share of the whole, 0 .. 1, for the bar
 */
void sw_progress_step(struct progress *progress, const char *text, double done,
                      enum progress_line line);

/* Ends the live line, if there is one, so that other output begins on a line of its own. */
void sw_progress_end(struct progress *progress);
/* Takes it away instead. */
void sw_progress_clear(struct progress *progress);

/* How fast a run has been of late: a line through where it is and where it was a minute ago, or
 * when it began. */
enum { PACE_MARKS = 64, PACE_SECONDS = 60 };
struct pace {
    struct {
        double at_s;
        int64_t step;
    } marks[PACE_MARKS]; /* one a second, in a ring */
    int first, n;
};
void sw_pace_mark(struct pace *pace, double now_s, int64_t step);
/* Seconds that so many steps take; 0 before the first one is done. */
double sw_pace_left(const struct pace *pace, double now_s, int64_t step, int64_t n_steps);
/* "0:07", "12:34", "1:02:03" */
void sw_format_eta(double seconds, char *buf, size_t cap);
