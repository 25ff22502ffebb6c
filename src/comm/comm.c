// SPDX-License-Identifier: Apache-2.0
// Collectives as messages, each rank directly to each other. This moves as few bytes as any other
// scheme, and the receiver determines the order of additions. Data that a rank keeps for itself is
// copied here, and never reaches the transport.
#include <stdio.h>
#include <string.h>

#include "comm/comm.h"

struct sw_comm {
    struct sw_transport transport;       /* rank and size are those of this communicator */
    sw_comm *world;                      /* group: the communicator of all ranks; else itself */
    int *ranks;                          /* group: [size] ranks in the world; NULL = all of them */
    int number;                          /* number of the group; 0 = not a group */
    struct sw_message *sends, *receives; /* [cap_messages] */
    int cap_messages;
    int64_t *statuses; /* [size] */
    int64_t sequence;
    bool broken; /* an exchange failed half way, so the remaining data on the wire is unknown */
    struct sw_traffic traffic;
};

const char *sw_comm_op_name(enum sw_comm_op op)
{
    static const char *const names[] = {
#define SW_COMM_NAME(name, text) text,
        SW_COMM_OP_LIST(SW_COMM_NAME)
#undef SW_COMM_NAME
    };
    return names[op];
}

sw_status sw_comm_open(const struct sw_transport *transport, sw_comm **out)
{
    if (transport->size < 1 || transport->rank < 0 || transport->rank >= transport->size) {
        return SW_FAIL(SW_E_ARG, "rank %d of %d ranks does not exist", transport->rank,
                       transport->size);
    }
    sw_comm *comm = sw_alloc_zero("comm", 1, sizeof *comm);
    SW_TRY_ALLOC(comm, "a communicator");
    comm->transport.size = transport->size;
    comm->statuses = sw_alloc_zero("comm", (size_t)transport->size, sizeof *comm->statuses);
    if (!comm->statuses || sw_comm_reserve(comm, 1) < 0) {
        sw_comm_close(comm, true);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a communicator");
    }
    comm->transport = *transport;
    comm->world = comm;
    *out = comm;
    return SW_OK;
}

sw_status sw_comm_open_group(sw_comm *world, int number, const int *ranks, int n, sw_comm **out)
{
    int me = -1;
    bool good = world->world == world && number > 0 && n >= 1;
    for (int i = 0; good && i < n; i++) {
        good =
            ranks[i] >= 0 && ranks[i] < sw_comm_size(world) && (i == 0 || ranks[i] > ranks[i - 1]);
        me = ranks[i] == sw_comm_rank(world) ? i : me;
    }
    if (!good || me < 0) {
        return SW_FAIL(
            SW_E_ARG,
            "group %d of %d ranks: wanted a number above 0 and ascending ranks below %d that "
            "include rank %d, in a communicator that is not a group",
            number, n, sw_comm_size(world), sw_comm_rank(world));
    }
    struct sw_transport transport = world->transport;
    transport.rank = me;
    transport.size = n;
    transport.close = NULL;
    sw_comm *comm;
    SW_TRY(sw_comm_open(&transport, &comm));
    comm->ranks = sw_alloc("comm", (size_t)n * sizeof *comm->ranks);
    if (!comm->ranks) {
        sw_comm_close(comm, true);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a communicator");
    }
    memcpy(comm->ranks, ranks, (size_t)n * sizeof *ranks);
    comm->world = world;
    comm->number = number;
    *out = comm;
    return SW_OK;
}

void sw_comm_close(sw_comm *comm, bool failed)
{
    if (!comm) {
        return;
    }
    if (comm->transport.close) {
        comm->transport.close(comm->transport.ctx, failed);
    }
    sw_free(comm->sends);
    sw_free(comm->receives);
    sw_free(comm->statuses);
    sw_free(comm->ranks);
    sw_free(comm);
}

int sw_comm_rank(const sw_comm *comm)
{
    return comm->transport.rank;
}

int sw_comm_size(const sw_comm *comm)
{
    return comm->transport.size;
}

void sw_comm_traffic(const sw_comm *comm, struct sw_traffic *out)
{
    *out = comm->traffic;
}

void sw_comm_abort(sw_comm *comm, sw_status reason)
{
    if (comm->transport.abort) {
        comm->transport.abort(comm->transport.ctx, reason);
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
static sw_status exchange(sw_comm *comm, enum sw_comm_op op, int n_sends, int n_receives,
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
    };
    if (n_sends + n_receives == 0) {
        return SW_OK;
    }
    if (!comm->transport.exchange) {
        return SW_FAIL(SW_E_ARG, "%s of %s: these ranks are for planning only", x.op, what);
    }
    if (comm->world->broken) {
        return SW_FAIL(SW_E_PEER, "%s of %s: an earlier exchange failed", x.op, what);
    }
    const sw_status st = comm->transport.exchange(comm->transport.ctx, &x);
    comm->world->broken = st < 0;
    return st;
}

static void count(sw_comm *comm, enum sw_comm_op op, int64_t bytes)
{
    sw_comm *counted[] = {comm, comm->world};
    for (int i = 0; i < (comm == comm->world ? 1 : 2); i++) {
        counted[i]->traffic.calls[op]++;
        counted[i]->traffic.sent[op] += bytes;
    }
}

/* Rank in the transport of a rank of this communicator. */
static int world_rank(const sw_comm *comm, int rank)
{
    return comm->ranks ? comm->ranks[rank] : rank;
}

/* Peers in the order rank + 1, rank + 2, .. so that not all ranks start with the same one. */
static int peer_at(const sw_comm *comm, int i)
{
    return (comm->transport.rank + i) % comm->transport.size;
}

static void *slice(const void *base, int i, size_t bytes)
{
    return (char *)(uintptr_t)base + (size_t)i * bytes;
}

/* An all-gather sends the same shard to all ranks; other collectives send a different one to
 * each. */
static const void *slice_for(const struct sw_comm_item *item, int rank)
{
    const bool cut = item->op == SW_COMM_ALL_TO_ALL || item->op == SW_COMM_REDUCE_SCATTER;
    return cut ? slice(item->src, rank, item->slice_bytes) : item->src;
}

/* Bytes [first, first + bytes) of the slice of an ALL_REDUCE, which a rank adds up. */
struct part {
    size_t first, bytes;
};

static size_t most_part_bytes(int size, size_t slice_bytes, enum sw_dtype dtype)
{
    const size_t width = sw_dtype_bytes(dtype), n = slice_bytes / width;
    return (n + (size_t)size - 1) / (size_t)size * width;
}

size_t sw_comm_all_reduce_workspace(int size, size_t slice_bytes, enum sw_dtype dtype)
{
    return (size_t)size * most_part_bytes(size, slice_bytes, dtype);
}

static struct part part_of(const sw_comm *comm, const struct sw_comm_item *item, int rank)
{
    const size_t most = most_part_bytes(comm->transport.size, item->slice_bytes, item->dtype);
    const size_t first = most * (size_t)rank, all = item->slice_bytes;
    const size_t last = first + most;
    return (struct part){first < all ? first : all,
                         (last < all ? last : all) - (first < all ? first : all)};
}

static void add_message(sw_comm *comm, int n, int peer, const void *src, size_t sent, void *dst,
                        size_t received)
{
    const int number = world_rank(comm, peer);
    comm->sends[n] = (struct sw_message){number, slice(src, 0, 0), sent};
    comm->receives[n] = (struct sw_message){number, dst, received};
}

/* The messages of an item with a peer. */
static void add_item(sw_comm *comm, const struct sw_comm_item *item, int n, int peer)
{
    if (item->op == SW_COMM_ALL_REDUCE) {
        const struct part mine = part_of(comm, item, comm->transport.rank);
        const struct part theirs = part_of(comm, item, peer);
        add_message(comm, n, peer, slice(item->src, 1, theirs.first), theirs.bytes,
                    slice(item->workspace, peer, mine.bytes), mine.bytes);
        return;
    }
    void *dst = item->workspace ? item->workspace : item->dst;
    add_message(comm, n, peer, slice_for(item, peer), item->slice_bytes,
                slice(dst, peer, item->slice_bytes), item->slice_bytes);
}

/* Adds the addends [size, bytes] of this rank's sum in rank order, a run at a time. */
static void add_up(const sw_comm *comm, const struct sw_comm_item *item, const void *mine,
                   void *dst, size_t bytes)
{
    enum { RUN = 1024 };
    float acc[RUN];
    const size_t width = sw_dtype_bytes(item->dtype);
    for (size_t at = 0; at < bytes; at += RUN * width) {
        const size_t left = (bytes - at) / width;
        const int64_t n = left < RUN ? (int64_t)left : RUN;
        for (int r = 0; r < comm->transport.size; r++) {
            const char *addend =
                r == comm->transport.rank ? mine : slice(item->workspace, r, bytes);
            sw_add_slices(acc, item->dtype, addend + at, n, 1, r == 0);
        }
        sw_convert(item->dtype, slice(dst, 1, at), SW_F32, acc, n);
    }
}

/* After the messages of an item: adds up, or copies what this rank keeps for itself. */
static void finish_item(sw_comm *comm, const struct sw_comm_item *item)
{
    const int size = comm->transport.size, rank = comm->transport.rank;
    const void *src = slice_for(item, rank);
    if (item->op == SW_COMM_ALL_REDUCE) {
        const struct part mine = part_of(comm, item, rank);
        add_up(comm, item, slice(src, 1, mine.first), slice(item->dst, 1, mine.first), mine.bytes);
        /* the addends of the others, and later the sum to each of them */
        count(comm, item->op,
              (int64_t)(item->slice_bytes - mine.bytes + (size_t)(size - 1) * mine.bytes));
        return;
    }
    if (item->workspace) {
        add_up(comm, item, src, item->dst, item->slice_bytes);
    } else {
        void *mine = slice(item->dst, rank, item->slice_bytes);
        if (mine != src && item->slice_bytes > 0) {
            memcpy(mine, src, item->slice_bytes);
        }
    }
    count(comm, item->op, (int64_t)(size - 1) * (int64_t)item->slice_bytes);
}

/* Sends the sums of ALL_REDUCE items, each from the rank that added it up. */
static sw_status share_sums(sw_comm *comm, const struct sw_comm_item *items, int n_items)
{
    const struct sw_comm_item *first = NULL;
    int n = 0;
    for (int i = 1; i < comm->transport.size; i++) {
        const int peer = peer_at(comm, i);
        for (int k = 0; k < n_items; k++) {
            const struct sw_comm_item *item = &items[k];
            if (item->op == SW_COMM_ALL_REDUCE) {
                const struct part mine = part_of(comm, item, comm->transport.rank);
                const struct part theirs = part_of(comm, item, peer);
                add_message(comm, n++, peer, slice(item->dst, 1, mine.first), mine.bytes,
                            slice(item->dst, 1, theirs.first), theirs.bytes);
                first = first ? first : item;
            }
        }
    }
    return first ? exchange(comm, SW_COMM_ALL_REDUCE, n, n, first->what) : SW_OK;
}

static sw_status check_item(const struct sw_comm_item *item)
{
    const bool adds =
        item->op == SW_COMM_ALL_REDUCE || (item->op == SW_COMM_REDUCE_SCATTER && item->workspace);
    const bool floats = item->dtype == SW_F32 || item->dtype == SW_BF16 || item->dtype == SW_F16;
    if (adds && !floats) {
        return SW_FAIL(SW_E_ARG, "%s of %s: wanted f32, bf16 or f16, found %s",
                       sw_comm_op_name(item->op), item->what, sw_dtype_name(item->dtype));
    }
    if (adds && (!item->workspace || item->slice_bytes % sw_dtype_bytes(item->dtype) != 0)) {
        return SW_FAIL(SW_E_ARG, "%s of %s: wanted a workspace and whole elements, found %zu bytes",
                       sw_comm_op_name(item->op), item->what, item->slice_bytes);
    }
    return SW_OK;
}

sw_status sw_comm_run(sw_comm *comm, const struct sw_comm_item *items, int n_items)
{
    int n = 0;
    for (int k = 0; k < n_items; k++) {
        SW_TRY(check_item(&items[k]));
    }
    SW_TRY(sw_comm_reserve(comm, n_items));
    for (int i = 1; i < comm->transport.size; i++) {
        for (int k = 0; k < n_items; k++) {
            add_item(comm, &items[k], n++, peer_at(comm, i));
        }
    }
    SW_TRY(exchange(comm, items[0].op, n, n, items[0].what));
    for (int k = 0; k < n_items; k++) {
        finish_item(comm, &items[k]);
    }
    return share_sums(comm, items, n_items);
}

static sw_status run_one(sw_comm *comm, enum sw_comm_op op, const void *src, void *dst,
                         size_t slice_bytes, const char *what)
{
    const struct sw_comm_item item = {
        .op = op, .src = src, .dst = dst, .slice_bytes = slice_bytes, .what = what};
    return sw_comm_run(comm, &item, 1);
}

sw_status sw_comm_all_to_all(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                             const char *what)
{
    return run_one(comm, SW_COMM_ALL_TO_ALL, src, dst, slice_bytes, what);
}

sw_status sw_comm_all_gather(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                             const char *what)
{
    return run_one(comm, SW_COMM_ALL_GATHER, src, dst, slice_bytes, what);
}

/* ---- sums ---- */

void sw_comm_add_slices(const struct sw_reduction *r, int n_ranks)
{
    const int n = r->n_contributors > 0 ? r->n_contributors : n_ranks;
    sw_add_slices(r->acc, r->dtype, r->workspace, r->n, n, r->fresh);
}

sw_status sw_comm_reduce_scatter(sw_comm *comm, const struct sw_reduction *r, const char *what)
{
    if (r->dtype != SW_F32 && r->dtype != SW_BF16 && r->dtype != SW_F16) {
        return SW_FAIL(SW_E_ARG, "reduce_scatter of %s: wanted f32, bf16 or f16, found %s", what,
                       sw_dtype_name(r->dtype));
    }
    const size_t slice_bytes = (size_t)r->n * sw_dtype_bytes(r->dtype);
    SW_TRY(run_one(comm, SW_COMM_REDUCE_SCATTER, r->src, r->workspace, slice_bytes, what));
    sw_comm_add_slices(r, comm->transport.size);
    return SW_OK;
}

sw_status sw_comm_all_reduce(sw_comm *comm, const struct sw_reduction *r, float *whole,
                             const char *what)
{
    SW_TRY(sw_comm_reduce_scatter(comm, r, what));
    return sw_comm_all_gather(comm, r->acc, whole, (size_t)r->n * sizeof *whole, what);
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
        comm->sends[i - 1] = (struct sw_message){world_rank(comm, peer_at(comm, i)), data, bytes};
    }
    comm->receives[0] = (struct sw_message){world_rank(comm, root), data, bytes};
    SW_TRY(exchange(comm, SW_COMM_BROADCAST, n_sends, sends ? 0 : 1, what));
    count(comm, SW_COMM_BROADCAST, (int64_t)n_sends * (int64_t)bytes);
    return SW_OK;
}

sw_status sw_comm_send(sw_comm *comm, int peer, const void *data, size_t bytes, const char *what)
{
    SW_TRY(check_peer(comm, SW_COMM_SEND, peer, false));
    comm->sends[0] = (struct sw_message){world_rank(comm, peer), slice(data, 0, 0), bytes};
    SW_TRY(exchange(comm, SW_COMM_SEND, 1, 0, what));
    count(comm, SW_COMM_SEND, (int64_t)bytes);
    return SW_OK;
}

sw_status sw_comm_receive(sw_comm *comm, int peer, void *data, size_t bytes, const char *what)
{
    SW_TRY(check_peer(comm, SW_COMM_RECEIVE, peer, false));
    comm->receives[0] = (struct sw_message){world_rank(comm, peer), data, bytes};
    SW_TRY(exchange(comm, SW_COMM_RECEIVE, 0, 1, what));
    count(comm, SW_COMM_RECEIVE, 0);
    return SW_OK;
}

sw_status sw_comm_barrier(sw_comm *comm, const char *what)
{
    char none = 0;
    return run_one(comm, SW_COMM_BARRIER, &none, comm->statuses, 0, what);
}

sw_status sw_comm_agree(sw_comm *comm, sw_status mine, const char *what)
{
    const int64_t word = mine;
    SW_TRY(run_one(comm, SW_COMM_AGREE, &word, comm->statuses, sizeof word, what));
    for (int r = 0; r < comm->transport.size && mine >= 0; r++) {
        if (comm->statuses[r] < 0) {
            return SW_FAIL(SW_E_PEER, "%s: rank %d failed: %s", what, world_rank(comm, r),
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

sw_status sw_comm_diverged(const struct sw_exchange *mine, int rank, size_t bytes, int peer,
                           const char *op, const char *what, int64_t sequence, int group,
                           size_t peer_bytes)
{
    char plain_op[64], plain_what[512], of_mine[32] = "", of_theirs[32] = "";
    if (mine->group != group) {
        snprintf(of_mine, sizeof of_mine, " of group %d", mine->group);
        snprintf(of_theirs, sizeof of_theirs, " of group %d", group);
    }
    return SW_FAIL(
        SW_E_PEER,
        "ranks diverge: rank %d is at collective %lld%s, %s of %s with %zu bytes a message, "
        "rank %d at %lld%s, %s of %s with %zu",
        rank, (long long)mine->sequence, of_mine, mine->op, mine->what, bytes, peer,
        (long long)sequence, of_theirs, sw_plain_words(op, plain_op, sizeof plain_op),
        sw_plain_words(what, plain_what, sizeof plain_what), peer_bytes);
}
