// SPDX-License-Identifier: Apache-2.0
// progress - lines that stay, and on a terminal one live line with a bar that each step writes
// anew. mpirun gives its processes a pseudo-terminal that nobody sees: without a bar there, unless
// asked for.
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct progress {
    FILE *out;
    bool terminal; /* lines have a width */
    bool live;
    bool open; /* the live line stands, without a line break */
};

/* bar: a live line in any case. */
struct progress sw_progress_start(FILE *out, bool bar);

/*
 * sw_progress_step - show one step.
 *
 * text      what is known of it, in fields with a tab between, the most important first: on a
 *           terminal those at the end that its width has no room for are left out
 * done      share of the whole, 0 .. 1, for the bar
 * lasting   keep the line on a terminal, too; elsewhere every line is kept
 */
void sw_progress_step(struct progress *progress, const char *text, double done, bool lasting);

/* Ends the live line, if there is one, so that other output begins on a line of its own. */
void sw_progress_end(struct progress *progress);
