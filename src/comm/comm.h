// SPDX-License-Identifier: Apache-2.0
// comm - collectives over transports: thread.c, mpi/, fault.c. The public header is the room's
// door; only what its files share is here.
// Invariant: a rank that fails, stays away or does something else is named by all others within the
// deadline, and nobody hangs.
#pragma once

#include "base/base.h"
#include "spillway/comm.h"
#include "tensor/tensor.h"

/* SW_E_ARG unless it is above 0 and at most SW_DEADLINE_MAX_S. */
sw_status sw_comm_check_deadline(double deadline_s);
/* The error of a rank whose peers are at something else than it is. */
sw_status sw_comm_diverged(const struct sw_exchange *mine, int rank, size_t bytes, int peer,
                           const char *op, const char *what, int64_t sequence, int group,
                           size_t peer_bytes);
