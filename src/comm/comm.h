// SPDX-License-Identifier: Apache-2.0
// comm - collectives over transports: thread.c, tcp/, mpi/, fault.c. The public interface is the
// public header; this header is shared by the files of this folder. Invariant: if a rank fails, is
// absent or does something else, all others name it within the deadline, and none hangs.
#pragma once

#include "base/base.h"
#include "spillway/comm.h"
#include "tensor/tensor.h"

/* SW_E_ARG unless the deadline is above 0 and at most SW_DEADLINE_MAX_S. */
sw_status sw_comm_check_deadline(double deadline_s);
/* The error for a rank whose peers are in a different operation. */
sw_status sw_comm_diverged(const struct sw_exchange *mine, int rank, size_t bytes, int peer,
                           const char *op, const char *what, int64_t sequence, int group,
                           size_t peer_bytes);

/* ---- header.c: what precedes the messages to a peer, in one process's bytes ---- */

struct sw_comm_header {
    uint32_t abort; /* not an exchange: the sender cannot continue, for the reason in `what` */
    uint32_t n_messages;
    int64_t sequence, group;
    uint64_t bytes; /* of all messages */
    char op[16], what[224];
};
/* Describes the messages of x to a peer, or from it. */
void sw_comm_header_fill(struct sw_comm_header *out, const struct sw_exchange *x, int peer,
                         bool sends);
/* SW_E_PEER if the peer is in another operation than this rank. */
sw_status sw_comm_header_check(const struct sw_comm_header *got, const struct sw_exchange *x,
                               int rank, int peer);
