// SPDX-License-Identifier: Apache-2.0
// What a communicator holds, for comm.c, group.c and collective.c.
#pragma once

#include <pthread.h>

#include "comm/comm.h"

/* Common to a communicator of all ranks and the groups opened from it, which different threads
 * use. */
struct shared {
    pthread_mutex_t lock;          /* of all below, except the transport */
    struct sw_transport transport; /* of all ranks */
    struct sw_traffic traffic;
    int n_open;  /* communicators */
    bool failed; /* one was closed as failed */
    bool broken; /* an exchange failed half way, so the remaining data on the wire is unknown */
    char why[512];
};

struct sw_comm {
    struct shared *shared;
    struct sw_transport transport;       /* rank and size are those of this communicator */
    int *ranks;                          /* [size] in the transport; NULL = the same */
    int number;                          /* number of the group; 0 = not a group */
    char *name;                          /* of the group; NULL = none */
    const char **names;                  /* of the transport's ranks; NULL = "rank N" */
    struct sw_message *sends, *receives; /* [cap_messages] */
    int cap_messages;
    int64_t *statuses; /* [size] */
    int64_t sequence;
    struct sw_traffic traffic; /* of a group */
};

/* A communicator without transport, names and ranks. */
sw_status sw_comm_open_bare(int rank, int size, sw_comm **out);
bool sw_comm_is_group(const sw_comm *comm);
/* Copies names of the transport's ranks, n of them. */
sw_status sw_comm_set_names(sw_comm *comm, const char *const *names, int n);
/* After the first failure: no thread of this rank goes on, and the other ranks are told. */
void sw_comm_break_all(sw_comm *comm, sw_status st);
/* Runs an exchange, unless an earlier one failed. */
sw_status sw_comm_run_exchange(sw_comm *comm, const struct sw_exchange *x);
/* Sends and receives the messages in comm->sends and comm->receives. */
sw_status sw_comm_exchange(sw_comm *comm, enum sw_comm_op op, int n_sends, int n_receives,
                           const char *what);
/* A collective with one item. */
sw_status sw_comm_run_one(sw_comm *comm, enum sw_comm_op op, const void *src, void *dst,
                          size_t slice_bytes, const char *what);

/* Rank in the transport of a rank of this communicator. */
static inline int sw_comm_peer_of(const sw_comm *comm, int rank)
{
    return comm->ranks ? comm->ranks[rank] : rank;
}

/* Peers in the order rank + 1, rank + 2, .. so that not all ranks start with the same one. */
static inline int sw_comm_peer_at(const sw_comm *comm, int i)
{
    return (comm->transport.rank + i) % comm->transport.size;
}
