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
/* The number in a group of a rank of the world; -1 = it is no member. */
int sw_comm_member(const struct sw_group_options *group, int world_rank);

/* Longest wait for another rank, in seconds. */
double sw_comm_deadline(const sw_comm *comm);
/* An all-to-all of which only the first sent[r] bytes of slice r go to rank r, and the first
 * received[r] bytes of slice r come from it: the other bytes of dst stay. Both are [size] with at
 * most slice_bytes; a rank sends as many bytes as the other one receives. */
sw_status sw_comm_all_to_all_counted(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                                     const size_t *sent, const size_t *received, const char *what);
/* Counts a call, and the bytes that it sent, of an exchange that passed through no transport. */
void sw_comm_count(sw_comm *comm, enum sw_comm_op op, int64_t bytes);

/* ---- say.c: what errors say ---- */

enum { SW_RANK_TEXT = 24, SW_WHERE_TEXT = 640 };

/* The name of a rank, or "rank N" in `scratch`. names NULL: no rank has a name. */
const char *sw_comm_rank_text(const char *const *names, int rank, char scratch[SW_RANK_TEXT]);
/* "all_gather of w in group tensor", in `scratch` */
const char *sw_comm_where(const struct sw_exchange *x, char scratch[SW_WHERE_TEXT]);
/* Appends a rank to a list of missing ones. host NULL: of this process. */
void sw_comm_list_rank(struct sw_str *list, const struct sw_exchange *x, int rank,
                       const char *host);
/* SW_E_PEER after the deadline. missing: the list, which is freed */
sw_status sw_comm_late(const struct sw_exchange *x, int rank, double deadline_s,
                       struct sw_str *missing);
/* SW_E_PEER: this rank or another one cannot go on, for the reason `why`. */
sw_status sw_comm_ended(const struct sw_exchange *x, int rank, const char *why);
/* SW_E_PEER: a peer is in a different operation. */
sw_status sw_comm_diverged(const struct sw_exchange *mine, int rank, size_t bytes, int peer,
                           const char *op, const char *what, int64_t sequence, size_t peer_bytes);

/* SW_E_PEER: a peer is in the same operation, but its messages do not fit, as `how` says. */
sw_status sw_comm_misfit(const struct sw_exchange *mine, int rank, int peer, const char *how);

/* ---- header.c: what precedes the messages to a peer, in one process's bytes ---- */

/* Not an exchange, but a notice: the sender cannot continue, for the reason in `what`; or because a
 * rank cannot that `what` names. Or it goes on, but has waited long for the ranks in `what`. */
enum { SW_ABORT_OF_SENDER = 1, SW_ABORT_OF_PEER, SW_NOTICE_OF_WAIT };
struct sw_comm_header {
    uint32_t notice; /* 0, or one of these */
    uint32_t n_messages;
    int64_t sequence;
    uint64_t bytes; /* of all messages */
    uint64_t sizes; /* hash of the sizes of the messages, in their order */
    char op[16], what[224];
};
/* Describes the messages of x to a peer, or from it. */
void sw_comm_header_fill(struct sw_comm_header *out, const struct sw_exchange *x, int peer,
                         bool sends);
/* SW_E_PEER if the peer is in another operation than this rank. */
sw_status sw_comm_header_check(const struct sw_comm_header *got, const struct sw_exchange *x,
                               int rank, int peer);
