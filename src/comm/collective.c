// SPDX-License-Identifier: Apache-2.0
// Collectives as messages, each rank directly to each other. This moves as few bytes as any other
// scheme, and the receiver determines the order of additions. Data that a rank keeps for itself is
// copied here, and never reaches the transport.
#include <string.h>

#include "comm/private.h"

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

/* Bytes of each slice, by rank, that are exchanged. */
struct counts {
    const size_t *sent, *received; /* [size]; NULL = whole slices */
};

static size_t count_of(const size_t *counts, const struct sw_comm_item *item, int rank)
{
    return counts ? counts[rank] : item->slice_bytes;
}

static void add_message(sw_comm *comm, int n, int peer, const void *src, size_t sent, void *dst,
                        size_t received)
{
    const int number = sw_comm_peer_of(comm, peer);
    comm->sends[n] = (struct sw_message){number, slice(src, 0, 0), sent};
    comm->receives[n] = (struct sw_message){number, dst, received};
}

/* The messages of an item with a peer. */
static void add_item(sw_comm *comm, const struct sw_comm_item *item, const struct counts *counts,
                     int n, int peer)
{
    if (item->op == SW_COMM_ALL_REDUCE) {
        const struct part mine = part_of(comm, item, comm->transport.rank);
        const struct part theirs = part_of(comm, item, peer);
        add_message(comm, n, peer, slice(item->src, 1, theirs.first), theirs.bytes,
                    slice(item->workspace, peer, mine.bytes), mine.bytes);
        return;
    }
    void *dst = item->workspace ? item->workspace : item->dst;
    add_message(comm, n, peer, slice_for(item, peer), count_of(counts->sent, item, peer),
                slice(dst, peer, item->slice_bytes), count_of(counts->received, item, peer));
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
static void finish_item(sw_comm *comm, const struct sw_comm_item *item, const struct counts *counts)
{
    const int size = comm->transport.size, rank = comm->transport.rank;
    const void *src = slice_for(item, rank);
    if (item->op == SW_COMM_ALL_REDUCE) {
        const struct part mine = part_of(comm, item, rank);
        add_up(comm, item, slice(src, 1, mine.first), slice(item->dst, 1, mine.first), mine.bytes);
        /* the addends of the others, and later the sum to each of them */
        sw_comm_count(comm, item->op,
                      (int64_t)(item->slice_bytes - mine.bytes + (size_t)(size - 1) * mine.bytes));
        return;
    }
    if (item->workspace) {
        add_up(comm, item, src, item->dst, item->slice_bytes);
    } else {
        void *mine = slice(item->dst, rank, item->slice_bytes);
        const size_t kept = count_of(counts->sent, item, rank);
        if (mine != src && kept > 0) {
            memcpy(mine, src, kept);
        }
    }
    size_t bytes = 0;
    for (int i = 1; i < size; i++) {
        bytes += count_of(counts->sent, item, sw_comm_peer_at(comm, i));
    }
    sw_comm_count(comm, item->op, (int64_t)bytes);
}

/* Sends the sums of ALL_REDUCE items, each from the rank that added it up. */
static sw_status share_sums(sw_comm *comm, const struct sw_comm_item *items, int n_items)
{
    const struct sw_comm_item *first = NULL;
    int n = 0;
    for (int i = 1; i < comm->transport.size; i++) {
        const int peer = sw_comm_peer_at(comm, i);
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
    return first ? sw_comm_exchange(comm, SW_COMM_ALL_REDUCE, n, n, first->what) : SW_OK;
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

/* counts: of all items */
static sw_status run(sw_comm *comm, const struct sw_comm_item *items, int n_items,
                     const struct counts *counts)
{
    int n = 0;
    SW_TRY(sw_comm_reserve(comm, n_items));
    for (int i = 1; i < comm->transport.size; i++) {
        for (int k = 0; k < n_items; k++) {
            add_item(comm, &items[k], counts, n++, sw_comm_peer_at(comm, i));
        }
    }
    SW_TRY(sw_comm_exchange(comm, items[0].op, n, n, items[0].what));
    for (int k = 0; k < n_items; k++) {
        finish_item(comm, &items[k], counts);
    }
    return share_sums(comm, items, n_items);
}

sw_status sw_comm_run(sw_comm *comm, const struct sw_comm_item *items, int n_items)
{
    for (int k = 0; k < n_items; k++) {
        SW_TRY(check_item(&items[k]));
    }
    return run(comm, items, n_items, &(struct counts){.sent = NULL});
}

sw_status sw_comm_run_one(sw_comm *comm, enum sw_comm_op op, const void *src, void *dst,
                          size_t slice_bytes, const char *what)
{
    const struct sw_comm_item item = {
        .op = op, .src = src, .dst = dst, .slice_bytes = slice_bytes, .what = what};
    return sw_comm_run(comm, &item, 1);
}

sw_status sw_comm_all_to_all(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                             const char *what)
{
    return sw_comm_run_one(comm, SW_COMM_ALL_TO_ALL, src, dst, slice_bytes, what);
}

sw_status sw_comm_all_to_all_counted(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                                     const size_t *sent, const size_t *received, const char *what)
{
    const struct sw_comm_item item = {
        .op = SW_COMM_ALL_TO_ALL, .src = src, .dst = dst, .slice_bytes = slice_bytes, .what = what};
    for (int r = 0; r < comm->transport.size; r++) {
        if (sent[r] > slice_bytes || received[r] > slice_bytes) {
            return SW_FAIL(SW_E_ARG,
                           "all_to_all of %s: %zu bytes to rank %d and %zu from it; wanted at most "
                           "%zu",
                           what, sent[r], r, received[r], slice_bytes);
        }
    }
    return run(comm, &item, 1, &(struct counts){sent, received});
}

sw_status sw_comm_all_gather(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                             const char *what)
{
    return sw_comm_run_one(comm, SW_COMM_ALL_GATHER, src, dst, slice_bytes, what);
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
    SW_TRY(sw_comm_run_one(comm, SW_COMM_REDUCE_SCATTER, r->src, r->workspace, slice_bytes, what));
    sw_comm_add_slices(r, comm->transport.size);
    return SW_OK;
}

sw_status sw_comm_all_reduce(sw_comm *comm, const struct sw_reduction *r, float *whole,
                             const char *what)
{
    SW_TRY(sw_comm_reduce_scatter(comm, r, what));
    return sw_comm_all_gather(comm, r->acc, whole, (size_t)r->n * sizeof *whole, what);
}
