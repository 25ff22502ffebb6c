// SPDX-License-Identifier: Apache-2.0
// launch - starting a program on many places (spillway/launch.h), and the line by which a started
// rank tells the launcher that it is alive. Invariant: nothing here knows what the program does.
#pragma once

#include "base/base.h"
#include "spillway/launch.h"

/*
 * A rank's line to the launcher, where SPILLWAY_LAUNCH=host:port was given to it. A thread of its
 * own says every second where the rank is, so that the launcher can tell a dead rank from a slow
 * one.
 */
struct sw_launch_link;

/* SW_OK with *out NULL where SPILLWAY_LAUNCH is not set; the calls below take NULL. */
sw_status sw_launch_link_open(int rank, struct sw_launch_link **out);
/* From any thread; cheap. `what` is cut to some 60 bytes of one word. */
void sw_launch_link_at(struct sw_launch_link *link, int64_t step, const char *what);
/* Says goodbye with the exit status that is to follow. */
void sw_launch_link_close(struct sw_launch_link *link, int status);
