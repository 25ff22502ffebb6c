// SPDX-License-Identifier: Apache-2.0
// progress - lines that stay, and on a terminal one live line with a bar that each step writes anew.
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct progress {
    FILE *out;
    bool terminal;
    bool open; /* the live line stands, without a line break */
};

struct progress sw_progress_start(FILE *out);

/*
 * sw_progress_step - show one step.
 *
 * text      what is known of it, without a line break
 * done      share of the whole, 0 .. 1, for the bar
 * lasting   keep the line on a terminal, too; elsewhere every line is kept
 */
void sw_progress_step(struct progress *progress, const char *text, double done, bool lasting);

/* Ends the live line, if there is one, so that other output begins on a line of its own. */
void sw_progress_end(struct progress *progress);
