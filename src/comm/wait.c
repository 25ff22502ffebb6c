// SPDX-License-Identifier: Apache-2.0
// The waits of an exchange; see wait.h.
#include "comm/wait.h"

void sw_comm_wait_start(struct sw_comm_wait *wait, int size, double now)
{
    for (int r = 0; r < size; r++) {
        wait->moved[r] = now;
    }
    wait->told = -1;
}

enum sw_comm_wait_step sw_comm_wait_step(const struct sw_comm_wait *wait, double since, double now,
                                         double *out_left)
{
    const bool told = wait->told == since;
    *out_left = since + (told ? wait->deadline_s : wait->deadline_s * 3 / 4) - now;
    if (*out_left > 0) {
        return SW_WAIT_ON;
    }
    return told ? SW_WAIT_LATE : SW_WAIT_TELL;
}

bool sw_comm_wait_is_long(const struct sw_comm_wait *wait, int peer, double now)
{
    return now - wait->moved[peer] >= wait->deadline_s / 2;
}
