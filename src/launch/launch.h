// SPDX-License-Identifier: Apache-2.0
// launch - starting a program with many ranks (spillway/launch.h), and the connection by which a
// rank tells the launcher that it is alive. Invariant: nothing here knows what the program does.
#pragma once

#include "base/base.h"
#include "spillway/launch.h"

/*
 * A rank's connection to the launcher, if SPILLWAY_LAUNCH=host:port is set. A separate thread
 * reports the rank's position every second, so that the launcher can tell a dead rank from a slow
 * one.
 */
struct sw_launch_link;

/* Opens the connection. *out is NULL if SPILLWAY_LAUNCH is not set; the calls below accept NULL. */
sw_status sw_launch_link_open(int rank, struct sw_launch_link **out);
/* From any thread; cheap. `what` is cut to some 60 bytes of one word. */
void sw_launch_link_at(struct sw_launch_link *link, int64_t step, const char *what);
/* Says goodbye with the exit status that is to follow. */
void sw_launch_link_close(struct sw_launch_link *link, int status);
