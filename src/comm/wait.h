// SPDX-License-Identifier: Apache-2.0
// How long an exchange between processes has waited for each peer. The deadline counts from the
// last byte that moved, in either direction, so that a long transfer is not late while it goes on.
// Pure: the caller gives the time, in seconds of one clock.
#pragma once

#include <stdbool.h>

struct sw_comm_wait {
    double deadline_s;
    double *moved; /* [size] when a byte last moved between this rank and a peer */
    double told;   /* the beginning of the wait that the peers have heard of; < 0 = none */
};

enum sw_comm_wait_step {
    SW_WAIT_ON,
    SW_WAIT_TELL, /* tell the peers for whom this rank waits, and set `told` */
    SW_WAIT_LATE
};

/* An exchange begins: nothing has moved. */
void sw_comm_wait_start(struct sw_comm_wait *wait, int size, double now);
/*
 * What to do about the peer from which nothing has moved since `since`, the longest of those that
 * the exchange waits for. It tells at 3/4 of the deadline, so that its peers know before their own
 * deadlines pass.
 *
 * out_left     seconds until the next step
 */
enum sw_comm_wait_step sw_comm_wait_step(const struct sw_comm_wait *wait, double since, double now,
                                         double *out_left);
/* Whether a peer belongs into the list of those that this rank waits for: bytes of the others still
 * move. */
bool sw_comm_wait_is_long(const struct sw_comm_wait *wait, int peer, double now);
