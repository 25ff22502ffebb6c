// SPDX-License-Identifier: Apache-2.0
// A communicator: opening, closing, failures, and operations between pairs of ranks. Collectives
// are in collective.c, groups in group.c.
#include <stdio.h>
#include <string.h>

#include "comm/private.h"

const char *sw_comm_op_name(enum sw_comm_op op)
{
    static const char *const names[] = {
#define SW_COMM_NAME(name, text) text,
        SW_COMM_OP_LIST(SW_COMM_NAME)
#undef SW_COMM_NAME
    };
    return names[op];
}

/* ---- opening and closing ---- */

/* A communicator without transport, names and ranks. */
sw_status sw_comm_open_bare(int rank, int size, sw_comm **out)
{
    sw_comm *comm = sw_alloc_zero("comm", 1, sizeof *comm);
    SW_TRY_ALLOC(comm, "a communicator");
    comm->transport.rank = rank;
    comm->transport.size = size;
    comm->statuses = sw_alloc_zero("comm", (size_t)size, sizeof *comm->statuses);
    if (!comm->statuses || sw_comm_reserve(comm, 1) < 0) {
        sw_comm_close(comm, true);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a communicator");
    }
    *out = comm;
    return SW_OK;
}

sw_status sw_comm_open(const struct sw_transport *transport, sw_comm **out)
{
    if (transport->size < 1 || transport->rank < 0 || transport->rank >= transport->size) {
        return SW_FAIL(SW_E_ARG, "rank %d of %d ranks does not exist", transport->rank,
                       transport->size);
    }
    sw_comm *comm;
    SW_TRY(sw_comm_open_bare(transport->rank, transport->size, &comm));
    comm->shared = sw_alloc_zero("comm", 1, sizeof *comm->shared);
    if (!comm->shared) {
        sw_comm_close(comm, true);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a communicator");
    }
    pthread_mutex_init(&comm->shared->lock, NULL);
    comm->shared->n_open = 1;
    comm->shared->transport = comm->transport = *transport;
    *out = comm;
    return SW_OK;
}

bool sw_comm_is_group(const sw_comm *comm)
{
    return comm->number > 0;
}

static void leave(struct shared *shared, bool failed)
{
    pthread_mutex_lock(&shared->lock);
    shared->failed = shared->failed || failed;
    const bool last = --shared->n_open == 0;
    pthread_mutex_unlock(&shared->lock);
    if (last && shared->transport.close) {
        shared->transport.close(shared->transport.ctx, shared->failed);
    }
    if (last) {
        pthread_mutex_destroy(&shared->lock);
        sw_free(shared);
    }
}

void sw_comm_close(sw_comm *comm, bool failed)
{
    if (!comm) {
        return;
    }
    if (sw_comm_is_group(comm) && comm->transport.close) {
        comm->transport.close(comm->transport.ctx, failed);
    }
    if (comm->shared) {
        leave(comm->shared, failed);
    }
    sw_free(comm->sends);
    sw_free(comm->receives);
    sw_free(comm->statuses);
    sw_free(comm->ranks);
    sw_free(comm->name);
    sw_free(comm->names);
    sw_free(comm);
}

/* One block with the pointers and the texts. */
sw_status sw_comm_set_names(sw_comm *comm, const char *const *names, int n)
{
    size_t bytes = (size_t)n * sizeof *names;
    for (int r = 0; r < n; r++) {
        bytes += strlen(names[r]) + 1;
    }
    const char **copy = sw_alloc("comm", bytes);
    SW_TRY_ALLOC(copy, "the names of ranks");
    char *at = (char *)(copy + n);
    for (int r = 0; r < n; r++) {
        const size_t len = strlen(names[r]) + 1;
        copy[r] = memcpy(at, names[r], len);
        at += len;
    }
    sw_free(comm->names);
    comm->names = copy;
    return SW_OK;
}

/* A group that shares the world's transport has names of all its ranks. */
static sw_status name_some(sw_comm *comm, const char *const *names)
{
    const int n = comm->shared->transport.size;
    char(*text)[SW_RANK_TEXT] = sw_alloc("comm", (size_t)n * sizeof *text);
    const char **all = sw_alloc("comm", (size_t)n * sizeof *all);
    sw_status st = SW_E_NOMEM;
    if (text && all) {
        for (int r = 0; r < n; r++) {
            all[r] = sw_comm_rank_text(comm->names, r, text[r]);
        }
        for (int i = 0; i < comm->transport.size; i++) {
            all[comm->ranks[i]] = names[i];
        }
        st = sw_comm_set_names(comm, all, n);
    }
    sw_free(text);
    sw_free(all);
    return st < 0 ? SW_FAIL(st, "out of host memory for the names of ranks") : SW_OK;
}

sw_status sw_comm_name_ranks(sw_comm *comm, const char *const *names)
{
    return comm->ranks ? name_some(comm, names)
                       : sw_comm_set_names(comm, names, comm->transport.size);
}

/* ---- failures ---- */

/* After the first failure: no thread of this rank goes on, and the other ranks are told. */
void sw_comm_break_all(sw_comm *comm, sw_status st)
{
    struct shared *shared = comm->shared;
    pthread_mutex_lock(&shared->lock);
    const bool first = !shared->broken;
    if (first) {
        shared->broken = true;
        snprintf(shared->why, sizeof shared->why, "%s", sw_error_message());
    }
    pthread_mutex_unlock(&shared->lock);
    if (first) {
        sw_comm_abort(comm, st);
    }
}

/* The error of an exchange after a failed one, or SW_OK. */
static sw_status check_broken(sw_comm *comm, const struct sw_exchange *x)
{
    char where[SW_WHERE_TEXT];
    sw_status st = SW_OK;
    pthread_mutex_lock(&comm->shared->lock);
    if (comm->shared->broken) {
        st = SW_FAIL(SW_E_PEER, "%s: an earlier exchange failed: %s", sw_comm_where(x, where),
                     comm->shared->why);
    }
    pthread_mutex_unlock(&comm->shared->lock);
    return st;
}

sw_status sw_comm_run_exchange(sw_comm *comm, const struct sw_exchange *x)
{
    char where[SW_WHERE_TEXT];
    if (!comm->transport.exchange) {
        return SW_FAIL(SW_E_ARG, "%s: these ranks are for planning only", sw_comm_where(x, where));
    }
    SW_TRY(check_broken(comm, x));
    const sw_status st = comm->transport.exchange(comm->transport.ctx, x);
    if (st < 0) {
        sw_comm_break_all(comm, st);
    }
    return st;
}

/* ---- one communicator ---- */

int sw_comm_rank(const sw_comm *comm)
{
    return comm->transport.rank;
}

int sw_comm_size(const sw_comm *comm)
{
    return comm->transport.size;
}

double sw_comm_deadline(const sw_comm *comm)
{
    enum { DEFAULT_S = 300 };
    return comm->transport.deadline_s > 0 ? comm->transport.deadline_s : DEFAULT_S;
}

void sw_comm_traffic(const sw_comm *comm, struct sw_traffic *out)
{
    pthread_mutex_lock(&comm->shared->lock);
    *out = sw_comm_is_group(comm) ? comm->traffic : comm->shared->traffic;
    pthread_mutex_unlock(&comm->shared->lock);
}

void sw_comm_abort(sw_comm *comm, sw_status reason)
{
    const struct sw_transport *transport = &comm->shared->transport;
    if (transport->abort) {
        transport->abort(transport->ctx, reason);
    }
}

/* ---- one exchange ---- */

sw_status sw_comm_reserve(sw_comm *comm, int n_items)
{
    const int n = n_items * comm->transport.size;
    if (n <= comm->cap_messages) {
        return SW_OK;
    }
    void *sends = sw_realloc("comm", comm->sends, (size_t)n * sizeof *comm->sends);
    comm->sends = sends ? sends : comm->sends;
    void *receives = sw_realloc("comm", comm->receives, (size_t)n * sizeof *comm->receives);
    comm->receives = receives ? receives : comm->receives;
    if (!sends || !receives) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %d messages", n);
    }
    comm->cap_messages = n;
    return SW_OK;
}

/* Sends and receives the messages in comm->sends and comm->receives. */
sw_status sw_comm_exchange(sw_comm *comm, enum sw_comm_op op, int n_sends, int n_receives,
                           const char *what)
{
    const bool pair = op == SW_COMM_SEND || op == SW_COMM_RECEIVE;
    const struct sw_exchange x = {
        /* both ends of a message between two ranks use one name */
        .op = sw_comm_op_name(op == SW_COMM_RECEIVE ? SW_COMM_SEND : op),
        .what = what,
        .sequence = pair ? -1 : comm->sequence++,
        .sends = comm->sends,
        .receives = comm->receives,
        .n_sends = n_sends,
        .n_receives = n_receives,
        .group = comm->number,
        .group_name = comm->name,
        .names = comm->names,
    };
    return n_sends + n_receives > 0 ? sw_comm_run_exchange(comm, &x) : SW_OK;
}

void sw_comm_count(sw_comm *comm, enum sw_comm_op op, int64_t bytes)
{
    struct sw_traffic *counted[] = {&comm->shared->traffic, &comm->traffic};
    pthread_mutex_lock(&comm->shared->lock);
    for (int i = 0; i < 2; i++) {
        counted[i]->calls[op]++;
        counted[i]->sent[op] += bytes;
    }
    pthread_mutex_unlock(&comm->shared->lock);
}

/* ---- other operations ---- */

static sw_status check_peer(const sw_comm *comm, enum sw_comm_op op, int peer, bool may_be_self)
{
    if (peer < 0 || peer >= comm->transport.size ||
        (!may_be_self && peer == comm->transport.rank)) {
        return SW_FAIL(SW_E_ARG, "%s: rank %d is not another one of the %d ranks",
                       sw_comm_op_name(op), peer, comm->transport.size);
    }
    return SW_OK;
}

sw_status sw_comm_broadcast(sw_comm *comm, int root, void *data, size_t bytes, const char *what)
{
    SW_TRY(check_peer(comm, SW_COMM_BROADCAST, root, true));
    const bool sends = comm->transport.rank == root;
    const int n_sends = sends ? comm->transport.size - 1 : 0;
    for (int i = 1; i <= n_sends; i++) {
        comm->sends[i - 1] =
            (struct sw_message){sw_comm_peer_of(comm, sw_comm_peer_at(comm, i)), data, bytes};
    }
    comm->receives[0] = (struct sw_message){sw_comm_peer_of(comm, root), data, bytes};
    SW_TRY(sw_comm_exchange(comm, SW_COMM_BROADCAST, n_sends, sends ? 0 : 1, what));
    sw_comm_count(comm, SW_COMM_BROADCAST, (int64_t)n_sends * (int64_t)bytes);
    return SW_OK;
}

sw_status sw_comm_send(sw_comm *comm, int peer, const void *data, size_t bytes, const char *what)
{
    SW_TRY(check_peer(comm, SW_COMM_SEND, peer, false));
    comm->sends[0] =
        (struct sw_message){sw_comm_peer_of(comm, peer), (void *)(uintptr_t)data, bytes};
    SW_TRY(sw_comm_exchange(comm, SW_COMM_SEND, 1, 0, what));
    sw_comm_count(comm, SW_COMM_SEND, (int64_t)bytes);
    return SW_OK;
}

sw_status sw_comm_receive(sw_comm *comm, int peer, void *data, size_t bytes, const char *what)
{
    SW_TRY(check_peer(comm, SW_COMM_RECEIVE, peer, false));
    comm->receives[0] = (struct sw_message){sw_comm_peer_of(comm, peer), data, bytes};
    SW_TRY(sw_comm_exchange(comm, SW_COMM_RECEIVE, 0, 1, what));
    sw_comm_count(comm, SW_COMM_RECEIVE, 0);
    return SW_OK;
}

sw_status sw_comm_barrier(sw_comm *comm, const char *what)
{
    char none = 0;
    return sw_comm_run_one(comm, SW_COMM_BARRIER, &none, comm->statuses, 0, what);
}

sw_status sw_comm_agree(sw_comm *comm, sw_status mine, const char *what)
{
    const int64_t word = mine;
    SW_TRY(sw_comm_run_one(comm, SW_COMM_AGREE, &word, comm->statuses, sizeof word, what));
    for (int r = 0; r < comm->transport.size && mine >= 0; r++) {
        if (comm->statuses[r] < 0) {
            char name[SW_RANK_TEXT];
            return SW_FAIL(SW_E_PEER, "%s: %s failed: %s", what,
                           sw_comm_rank_text(comm->names, sw_comm_peer_of(comm, r), name),
                           sw_status_string((sw_status)comm->statuses[r]));
        }
    }
    return mine;
}

sw_status sw_comm_check_deadline(double deadline_s)
{
    if (!(deadline_s > 0 && deadline_s <= SW_DEADLINE_MAX_S)) {
        return SW_FAIL(SW_E_ARG, "a deadline of %g s; wanted above 0, at most %d", deadline_s,
                       SW_DEADLINE_MAX_S);
    }
    return SW_OK;
}
