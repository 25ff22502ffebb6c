// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes connected by TCP. Private to the room.
#pragma once

#include "comm/comm.h"

enum { SW_TCP_HOST_CAP = 64 };

/*
 * sw_tcp_meet - every rank gets a socket to every other: they meet at rank 0, which tells all where the
 * others listen.
 *
 * out_fds      [size] filled, not blocking; -1 at the own rank. The caller's, to close
 * out_hosts    [size] names of the machines
 *
 * SW_E_PEER    who did not come within the deadline, by name
 */
sw_status sw_tcp_meet(const struct sw_tcp_options *options, int *out_fds,
                      char (*out_hosts)[SW_TCP_HOST_CAP]);
