// SPDX-License-Identifier: Apache-2.0
// Collectives as messages, each rank directly to each other. This moves as few bytes as any other
// scheme, and the receiver determines the order of additions. Data that a rank keeps for itself is
// copied here, and never reaches the transport.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

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
static sw_status open_bare(int rank, int size, sw_comm **out)
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
    SW_TRY(open_bare(transport->rank, transport->size, &comm));
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

static bool is_group(const sw_comm *comm)
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
    if (is_group(comm) && comm->transport.close) {
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
static sw_status set_names(sw_comm *comm, const char *const *names, int n)
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

sw_status sw_comm_name_ranks(sw_comm *comm, const char *const *names)
{
    return set_names(comm, names, comm->transport.size);
}

/* ---- failures ---- */

/* After the first failure: no thread of this rank goes on, and the other ranks are told. */
static void break_all(sw_comm *comm, sw_status st)
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

static sw_status run_exchange(sw_comm *comm, const struct sw_exchange *x)
{
    char where[SW_WHERE_TEXT];
    if (!comm->transport.exchange) {
        return SW_FAIL(SW_E_ARG, "%s: these ranks are for planning only", sw_comm_where(x, where));
    }
    SW_TRY(check_broken(comm, x));
    const sw_status st = comm->transport.exchange(comm->transport.ctx, x);
    if (st < 0) {
        break_all(comm, st);
    }
    return st;
}

/* ---- groups ---- */

int sw_comm_member(const struct sw_group_options *group, int world_rank)
{
    int i = 0;
    while (i < group->n && group->ranks[i] != world_rank) {
        i++;
    }
    return i < group->n ? i : -1;
}

static sw_status check_group(const sw_comm *world, const struct sw_group_options *o)
{
    bool good = !is_group(world) && o->number > 0 && o->n >= 1;
    for (int i = 0; good && i < o->n; i++) {
        good = o->ranks[i] >= 0 && o->ranks[i] < sw_comm_size(world) &&
               (i == 0 || o->ranks[i] > o->ranks[i - 1]);
    }
    if (!good || sw_comm_member(o, sw_comm_rank(world)) < 0) {
        return SW_FAIL(
            SW_E_ARG,
            "group %d of %d ranks: wanted a number above 0 and ascending ranks below %d that "
            "include rank %d, in a communicator that is not a group",
            o->number, o->n, sw_comm_size(world), sw_comm_rank(world));
    }
    return o->deadline_s == 0 ? SW_OK : sw_comm_check_deadline(o->deadline_s);
}

/* Members have their names in the world, which are "rank N" by default. */
static sw_status name_members(const sw_comm *world, const struct sw_group_options *o, sw_comm *comm)
{
    char(*text)[SW_RANK_TEXT] = sw_alloc("comm", (size_t)o->n * sizeof *text);
    const char **names = sw_alloc("comm", (size_t)o->n * sizeof *names);
    for (int i = 0; text && names && i < o->n; i++) {
        names[i] = sw_comm_rank_text(world->names, o->ranks[i], text[i]);
    }
    const sw_status st = text && names
                             ? set_names(comm, names, o->n)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for the names of ranks");
    sw_free(text);
    sw_free(names);
    return st;
}

/* Members find out here whether all of them open this group. */
static sw_status meet(sw_comm *world, const struct sw_group_options *o, sw_comm *comm)
{
    char what[sizeof((struct sw_comm_header){0}).what];
    const char *name = o->name ? o->name : "no name";
    size_t len =
        (size_t)snprintf(what, sizeof what, "group %d (%.40s) of %d ranks,", o->number, name, o->n);
    int n = 0;
    for (int i = 0; i < o->n; i++) {
        if (len < sizeof what) {
            len += (size_t)snprintf(what + len, sizeof what - len, " %d", o->ranks[i]);
        }
        if (o->ranks[i] != sw_comm_rank(world)) {
            comm->sends[n].peer = comm->receives[n].peer = o->ranks[i];
            comm->sends[n].bytes = comm->receives[n].bytes = 0;
            n++;
        }
    }
    const struct sw_exchange x = {.op = "open_group",
                                  .what = what,
                                  .sequence = -1,
                                  .sends = comm->sends,
                                  .receives = comm->receives,
                                  .n_sends = n,
                                  .n_receives = n,
                                  .names = world->names};
    return run_exchange(world, &x);
}

/* The transport of the world, which has no groups: ranks keep their numbers. */
static sw_status share_transport(const sw_comm *world, const struct sw_group_options *o,
                                 sw_comm *comm)
{
    comm->ranks = sw_alloc("comm", (size_t)o->n * sizeof *comm->ranks);
    SW_TRY_ALLOC(comm->ranks, "a communicator");
    memcpy(comm->ranks, o->ranks, (size_t)o->n * sizeof *o->ranks);
    comm->transport.ctx = world->transport.ctx;
    comm->transport.exchange = world->transport.exchange;
    return world->names ? set_names(comm, world->names, sw_comm_size(world)) : SW_OK;
}

static sw_status connect_group(sw_comm *world, const struct sw_group_options *o, sw_comm *comm)
{
    const struct sw_transport *transport = &world->transport;
    if (!transport->exchange || o->n == 1) {
        return SW_OK;
    }
    SW_TRY(meet(world, o, comm));
    if (!transport->open_group) {
        return share_transport(world, o, comm);
    }
    sw_status st = name_members(world, o, comm);
    st = st < 0 ? st : transport->open_group(transport->ctx, o, comm->names, &comm->transport);
    if (st < 0) {
        break_all(world, st); /* members may wait for this one */
    }
    return st;
}

sw_status sw_comm_open_group(sw_comm *world, const struct sw_group_options *options, sw_comm **out)
{
    sw_comm *comm;
    SW_TRY(check_group(world, options));
    SW_TRY(open_bare(sw_comm_member(options, sw_comm_rank(world)), options->n, &comm));
    comm->number = options->number;
    comm->name = options->name ? sw_strdup("comm", options->name) : NULL;
    const sw_status st = options->name && !comm->name
                             ? SW_FAIL(SW_E_NOMEM, "out of host memory for a communicator")
                             : connect_group(world, options, comm);
    if (st < 0) {
        sw_comm_close(comm, true);
        return st;
    }
    pthread_mutex_lock(&world->shared->lock);
    world->shared->n_open++;
    pthread_mutex_unlock(&world->shared->lock);
    comm->shared = world->shared;
    *out = comm;
    return SW_OK;
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

void sw_comm_traffic(const sw_comm *comm, struct sw_traffic *out)
{
    pthread_mutex_lock(&comm->shared->lock);
    *out = is_group(comm) ? comm->traffic : comm->shared->traffic;
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
        .group_name = comm->name,
        .names = comm->names,
    };
    return n_sends + n_receives > 0 ? run_exchange(comm, &x) : SW_OK;
}

static void count(sw_comm *comm, enum sw_comm_op op, int64_t bytes)
{
    struct sw_traffic *counted[] = {&comm->shared->traffic, &comm->traffic};
    pthread_mutex_lock(&comm->shared->lock);
    for (int i = 0; i < 2; i++) {
        counted[i]->calls[op]++;
        counted[i]->sent[op] += bytes;
    }
    pthread_mutex_unlock(&comm->shared->lock);
}

/* Rank in the transport of a rank of this communicator. */
static int peer_of(const sw_comm *comm, int rank)
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
    const int number = peer_of(comm, peer);
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
        comm->sends[i - 1] = (struct sw_message){peer_of(comm, peer_at(comm, i)), data, bytes};
    }
    comm->receives[0] = (struct sw_message){peer_of(comm, root), data, bytes};
    SW_TRY(exchange(comm, SW_COMM_BROADCAST, n_sends, sends ? 0 : 1, what));
    count(comm, SW_COMM_BROADCAST, (int64_t)n_sends * (int64_t)bytes);
    return SW_OK;
}

sw_status sw_comm_send(sw_comm *comm, int peer, const void *data, size_t bytes, const char *what)
{
    SW_TRY(check_peer(comm, SW_COMM_SEND, peer, false));
    comm->sends[0] = (struct sw_message){peer_of(comm, peer), slice(data, 0, 0), bytes};
    SW_TRY(exchange(comm, SW_COMM_SEND, 1, 0, what));
    count(comm, SW_COMM_SEND, (int64_t)bytes);
    return SW_OK;
}

sw_status sw_comm_receive(sw_comm *comm, int peer, void *data, size_t bytes, const char *what)
{
    SW_TRY(check_peer(comm, SW_COMM_RECEIVE, peer, false));
    comm->receives[0] = (struct sw_message){peer_of(comm, peer), data, bytes};
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
            char name[SW_RANK_TEXT];
            return SW_FAIL(SW_E_PEER, "%s: %s failed: %s", what,
                           sw_comm_rank_text(comm->names, peer_of(comm, r), name),
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
