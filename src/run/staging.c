// SPDX-License-Identifier: Apache-2.0
// The thread of a queue copies pieces, waits for them and passes them on. For disk transfers the
// staging memory is double-buffered: one half is at the disk while the other is copied.
#include "run/staging.h"

#include <string.h>

#include "comm/comm.h"

enum { PIECE_ALIGN = 64 }; /* for pieces of exchanges */

/* ---- the parts of the queues ---- */

static bool reaches(const struct sw_device *dev, unsigned caps)
{
    return (dev->caps & caps) == caps;
}

sw_status sw_stages_open(const struct sw_plan *plan, struct sw_device *dev, char *host, int ranks,
                         struct sw_meter *meter, struct sw_stage out[SW_QUEUE_COUNT])
{
    const unsigned all = SW_DEVICE_HOST_VISIBLE | SW_DEVICE_DISK_REACHES | SW_DEVICE_COMM_REACHES;
    const size_t least = 2 * (size_t)ranks * PIECE_ALIGN;
    const struct sw_operand *share = plan->staging.share;
    if (!reaches(dev, all) && (share[SW_QUEUE_READ].bytes < 2 * SW_PLAN_DISK_ALIGN ||
                               share[SW_QUEUE_COMM].bytes < least)) {
        return SW_FAIL(
            SW_E_ARG,
            "the plan reserves %zu bytes of host memory for transfers to device %s; wanted at "
            "least %d, and %zu for %d ranks",
            plan->staging.bytes, dev->ops->name, 16 * SW_PLAN_DISK_ALIGN, 2 * least, ranks);
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const struct sw_operand *part = &share[q];
        out[q].dev = dev;
        out[q].meter = meter;
        out[q].queue = (enum sw_queue)q;
        out[q].bytes = part->bytes;
        out[q].memory = part->bytes > 0 ? host + part->offset : NULL;
    }
    return SW_OK;
}

/* The issuing thread waits itself if the stage is in_order. */
static sw_status wait_now(const struct sw_stage *s)
{
    sw_meter_host_waits(s->meter, s->in_order ? SW_QUEUE_COMPUTE : s->queue);
    return s->dev->ops->stream_wait(s->dev, s->on);
}

sw_status sw_stage_wait(const struct sw_stage *s)
{
    return s->in_order ? SW_OK : wait_now(s);
}

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- the host ---- */

sw_status sw_stage_in(const struct sw_stage *s, void *device, const void *data, size_t bytes)
{
    if (reaches(s->dev, SW_DEVICE_HOST_VISIBLE)) {
        SW_TRY(sw_device_copy(s->dev, s->on, device, data, bytes));
        return sw_stage_wait(s);
    }
    for (size_t done = 0; done < bytes; done += s->bytes) {
        const size_t some = least_of(s->bytes, bytes - done);
        memcpy(s->memory, (const char *)data + done, some);
        SW_TRY(sw_device_copy(s->dev, s->on, (char *)device + done, s->memory, some));
        SW_TRY(sw_stage_wait(s));
    }
    return SW_OK;
}

sw_status sw_stage_out(const struct sw_stage *s, void *data, const void *device, size_t bytes)
{
    if (reaches(s->dev, SW_DEVICE_HOST_VISIBLE)) {
        SW_TRY(sw_device_copy(s->dev, s->on, data, device, bytes));
        return sw_stage_wait(s);
    }
    for (size_t done = 0; done < bytes; done += s->bytes) {
        const size_t some = least_of(s->bytes, bytes - done);
        SW_TRY(sw_device_copy(s->dev, s->on, s->memory, (const char *)device + done, some));
        SW_TRY(sw_stage_wait(s));
        memcpy((char *)data + done, s->memory, some);
    }
    return SW_OK;
}

sw_status sw_stage_words_out(const struct sw_stage *s, int32_t *words, const int32_t *device,
                             size_t stride, int n)
{
    const bool seen = reaches(s->dev, SW_DEVICE_HOST_VISIBLE);
    int32_t *to = seen ? words : (int32_t *)(void *)s->memory;
    SW_ASSERT(seen || (size_t)n * sizeof *words <= s->bytes);
    for (int i = 0; i < n; i++) {
        SW_TRY(sw_device_copy(s->dev, s->on, &to[i], device + (size_t)i * stride, sizeof *to));
    }
    SW_TRY(wait_now(s));
    memmove(words, to, (size_t)n * sizeof *words);
    return SW_OK;
}

/* ---- the disk ---- */

bool sw_stage_is_for_disk(const struct sw_stage *s)
{
    return !reaches(s->dev, SW_DEVICE_DISK_REACHES);
}

/* The transfers of the two halves, if any. */
struct halves {
    struct sw_swap *swap;
    struct sw_swap_request requests[2];
    bool begun[2];
};

static sw_status end_half(struct halves *h, int i)
{
    const bool begun = h->begun[i];
    h->begun[i] = false;
    return begun ? sw_swap_end(h->swap, &h->requests[i]) : SW_OK;
}

/* Ends all transfers, since their memory is reused. The first failure is returned. */
static sw_status end_halves(struct halves *h, sw_status st)
{
    for (int i = 0; i < 2; i++) {
        const sw_status ended = end_half(h, i);
        st = st < 0 ? st : ended;
    }
    return st;
}

static sw_status begin_half(struct halves *h, int i, bool write, size_t at, char *memory,
                            size_t bytes)
{
    SW_TRY(sw_swap_begin(h->swap, write, at, memory, bytes, &h->requests[i]));
    h->begun[i] = true;
    return SW_OK;
}

sw_status sw_stage_read(const struct sw_stage *s, struct sw_swap *swap, size_t at, void *device,
                        size_t bytes)
{
    const size_t half = s->bytes / 2;
    struct halves h = {.swap = swap};
    sw_status st = begin_half(&h, 0, false, at, s->memory, least_of(half, bytes));
    int i = 0;
    for (size_t done = 0; st >= 0 && done < bytes; done += half, i = !i) {
        const size_t some = least_of(half, bytes - done), next = done + some;
        if (next < bytes) {
            SW_TRY_OR(end, begin_half(&h, !i, false, at + next, s->memory + (size_t)!i * half,
                                      least_of(half, bytes - next)));
        }
        SW_TRY_OR(end, end_half(&h, i));
        SW_TRY_OR(end, sw_device_copy(s->dev, s->on, (char *)device + done,
                                      s->memory + (size_t)i * half, some));
        SW_TRY_OR(end, sw_stage_wait(s));
    }
end:
    return end_halves(&h, st);
}

sw_status sw_stage_write(const struct sw_stage *s, struct sw_swap *swap, size_t at,
                         const void *device, size_t bytes)
{
    const size_t half = s->bytes / 2;
    struct halves h = {.swap = swap};
    sw_status st = SW_OK;
    int i = 0;
    for (size_t done = 0; done < bytes; done += half, i = !i) {
        const size_t some = least_of(half, bytes - done);
        char *memory = s->memory + (size_t)i * half;
        SW_TRY_OR(end, end_half(&h, i));
        SW_TRY_OR(end, sw_device_copy(s->dev, s->on, memory, (const char *)device + done, some));
        SW_TRY_OR(end, sw_stage_wait(s));
        SW_TRY_OR(end, begin_half(&h, i, true, at + done, memory, some));
    }
end:
    return end_halves(&h, st);
}

sw_status sw_stage_read_rows(const struct sw_stage *s, struct sw_swap *swap, size_t at,
                             size_t row_bytes, const int32_t *ids, int n, void *device)
{
    if (!sw_stage_is_for_disk(s)) {
        return sw_swap_read_rows(swap, at, row_bytes, ids, n, device);
    }
    const int fit = row_bytes > 0 ? (int)least_of(s->bytes / row_bytes, (size_t)n) : n;
    for (int i = 0, some; i < n; i += some) {
        char *to = (char *)device + (size_t)i * row_bytes;
        some = fit > 0 ? (int)least_of((size_t)fit, (size_t)(n - i)) : 1;
        if (fit == 0) {
            SW_TRY(sw_stage_read(s, swap, at + (size_t)ids[i] * row_bytes, to, row_bytes));
            continue;
        }
        SW_TRY(sw_swap_read_rows(swap, at, row_bytes, ids + i, some, s->memory));
        SW_TRY(sw_device_copy(s->dev, s->on, to, s->memory, (size_t)some * row_bytes));
        SW_TRY(sw_stage_wait(s));
    }
    return SW_OK;
}

/* ---- pieces of exchanges ---- */

static bool is_cut(const struct sw_comm_item *item)
{
    return item->op != SW_COMM_ALL_GATHER;
}

/* Number of shards that an item has in staging memory: the one sent, and those from all ranks. */
static size_t n_slices(const struct sw_comm_item *item, int size)
{
    return (size_t)size + (is_cut(item) ? (size_t)size : 1);
}

/* Fills the stage with as much of the items, from byte `at` of shard k on, as fits. scratch[i]
 * belongs to items[k + i]. */
static int fill_stage(const struct sw_stage *s, const struct sw_comm_item *items, int k, int n,
                      size_t at, int size, struct sw_comm_item *scratch)
{
    size_t used = 0;
    int some = 0;
    for (; k < n; k++, at = 0) {
        const size_t slices = n_slices(&items[k], size);
        const size_t room = (s->bytes - used) / slices / PIECE_ALIGN * PIECE_ALIGN;
        const size_t bytes = least_of(room, items[k].slice_bytes - at);
        const size_t n_sent = slices - (size_t)size;
        if (bytes == 0 && items[k].slice_bytes > at) {
            break;
        }
        scratch[some] = items[k];
        scratch[some].src = s->memory + used;
        scratch[some].dst = s->memory + used + n_sent * bytes;
        scratch[some++].slice_bytes = bytes;
        used += sw_round_up(slices * bytes, PIECE_ALIGN);
        if (bytes < items[k].slice_bytes - at) {
            break;
        }
    }
    return some;
}

static sw_status copy_out(const struct sw_stage *s, const struct sw_comm_item *item, size_t at,
                          int size, const struct sw_comm_item *piece)
{
    const int n = is_cut(item) ? size : 1;
    for (int r = 0; r < n; r++) {
        SW_TRY(sw_device_copy(
            s->dev, s->on, (char *)(uintptr_t)piece->src + (size_t)r * piece->slice_bytes,
            (const char *)item->src + (size_t)r * item->slice_bytes + at, piece->slice_bytes));
    }
    return SW_OK;
}

/* A shard that was sent from its own place in the target is there already, and is not copied. */
static sw_status copy_in(const struct sw_stage *s, const struct sw_comm_item *item, size_t at,
                         int size, const struct sw_comm_item *piece)
{
    for (int r = 0; r < size; r++) {
        char *to = (char *)item->dst + (size_t)r * item->slice_bytes;
        if (to != item->src) {
            SW_TRY(sw_device_copy(s->dev, s->on, to + at,
                                  (const char *)piece->dst + (size_t)r * piece->slice_bytes,
                                  piece->slice_bytes));
        }
    }
    return SW_OK;
}

/* ---- other ranks, by the devices' library ---- */

static void *slice_of(const void *base, int rank, size_t bytes)
{
    return (char *)(uintptr_t)base + (size_t)rank * bytes;
}

/* Bytes of slice r that travel; counts: NULL = all */
static size_t some_of(const struct sw_counted_slices *x, const size_t *counts, int r)
{
    return counts ? counts[r] : x->slice_bytes;
}

/* Messages to and from each other member. Both know which ones have no bytes, and leave them out.
 * This rank keeps its own slice. */
static sw_status add_messages(const struct sw_stage *s, const struct sw_counted_slices *x, int me,
                              int size, int *n)
{
    const size_t own = some_of(x, x->sent, me);
    for (int i = 1; i < size; i++) {
        const int peer = (me + i) % size;
        const size_t sent = some_of(x, x->sent, peer), received = some_of(x, x->received, peer);
        if (sent > 0) {
            s->ops[(*n)++] = (struct sw_ccl_op){.verb = SW_CCL_SEND,
                                                .peer = peer,
                                                .src = slice_of(x->src, peer, x->slice_bytes),
                                                .bytes = sent};
        }
        if (received > 0) {
            s->ops[(*n)++] = (struct sw_ccl_op){.verb = SW_CCL_RECEIVE,
                                                .peer = peer,
                                                .dst = slice_of(x->dst, peer, x->slice_bytes),
                                                .bytes = received};
        }
    }
    return own == 0 ? SW_OK
                    : sw_device_copy(s->dev, s->on, slice_of(x->dst, me, x->slice_bytes),
                                     slice_of(x->src, me, x->slice_bytes), own);
}

static sw_status add_item(const struct sw_stage *s, const struct sw_comm_item *item, int me,
                          int size, int *n)
{
    const bool adds = s->library_sums && item->op == SW_COMM_REDUCE_SCATTER;
    if (item->op != SW_COMM_ALL_GATHER && !adds) {
        const struct sw_counted_slices whole = {
            .src = item->src, .dst = item->dst, .slice_bytes = item->slice_bytes};
        return add_messages(s, &whole, me, size, n);
    }
    if (size == 1) {
        return item->dst == item->src
                   ? SW_OK
                   : sw_device_copy(s->dev, s->on, item->dst, item->src, item->slice_bytes);
    }
    s->ops[(*n)++] = (struct sw_ccl_op){.verb = adds ? SW_CCL_REDUCE_SCATTER : SW_CCL_ALL_GATHER,
                                        .src = item->src,
                                        .dst = item->dst,
                                        .bytes = item->slice_bytes,
                                        .dtype = item->dtype};
    return SW_OK;
}

static sw_status queue_items(const struct sw_stage *s, const struct sw_route *route,
                             const struct sw_comm_item *items, int n_items)
{
    const int me = sw_comm_rank(route->comm), size = sw_comm_size(route->comm);
    int n = 0;
    for (int k = 0; k < n_items; k++) {
        if (items[k].slice_bytes > 0) {
            SW_TRY(add_item(s, &items[k], me, size, &n));
        }
        sw_comm_count(route->comm, items[k].op,
                      (int64_t)(size - 1) * (int64_t)items[k].slice_bytes);
    }
    return sw_device_exchange(s->dev, s->on, route->ccl, s->ops, n);
}

static sw_status queue_counted(const struct sw_stage *s, const struct sw_route *route,
                               const struct sw_counted_slices *x)
{
    const int me = sw_comm_rank(route->comm), size = sw_comm_size(route->comm);
    int64_t sent = 0;
    int n = 0;
    for (int r = 0; r < size; r++) {
        sent += r == me ? 0 : (int64_t)x->sent[r];
    }
    sw_comm_count(route->comm, SW_COMM_ALL_TO_ALL, sent);
    SW_TRY(add_messages(s, x, me, size, &n));
    return sw_device_exchange(s->dev, s->on, route->ccl, s->ops, n);
}

static sw_status queue_pass(const struct sw_stage *s, const struct sw_route *route,
                            enum sw_comm_op op, int peer, void *data, size_t bytes)
{
    const struct sw_ccl_op one = {.verb = op == SW_COMM_SEND      ? SW_CCL_SEND
                                          : op == SW_COMM_RECEIVE ? SW_CCL_RECEIVE
                                                                  : SW_CCL_BROADCAST,
                                  .peer = peer,
                                  .src = data,
                                  .dst = data,
                                  .bytes = bytes};
    const int size = sw_comm_size(route->comm);
    const bool is_root = op == SW_COMM_BROADCAST && peer == sw_comm_rank(route->comm);
    const int n_sent = op == SW_COMM_SEND ? 1 : is_root ? size - 1 : 0;
    sw_comm_count(route->comm, op, (int64_t)n_sent * (int64_t)bytes);
    return bytes == 0 || size == 1 ? SW_OK : sw_device_exchange(s->dev, s->on, route->ccl, &one, 1);
}

/* ---- other ranks ---- */

sw_status sw_stage_exchange(const struct sw_stage *s, const struct sw_route *route,
                            const struct sw_comm_item *items, int n, struct sw_comm_item *scratch)
{
    sw_comm *comm = route->comm;
    const int size = sw_comm_size(comm);
    if (s->in_order) {
        return queue_items(s, route, items, n);
    }
    if (reaches(s->dev, SW_DEVICE_COMM_REACHES)) {
        return sw_comm_run(comm, items, n);
    }
    size_t at = 0;
    for (int k = 0; k < n;) {
        const int some = fill_stage(s, items, k, n, at, size, scratch);
        for (int i = 0; i < some; i++) {
            SW_TRY(copy_out(s, &items[k + i], i == 0 ? at : 0, size, &scratch[i]));
        }
        SW_TRY(sw_stage_wait(s));
        SW_TRY(sw_comm_run(comm, scratch, some));
        for (int i = 0; i < some; i++) {
            SW_TRY(copy_in(s, &items[k + i], i == 0 ? at : 0, size, &scratch[i]));
        }
        SW_TRY(sw_stage_wait(s));
        const size_t last = (some == 1 ? at : 0) + scratch[some - 1].slice_bytes;
        const bool whole = last == items[k + some - 1].slice_bytes;
        k += whole ? some : some - 1;
        at = whole ? 0 : last;
    }
    return SW_OK;
}

/* Copies bytes [at, at + some[r]) of each slice r between a tensor and staging memory, in which
 * pieces have `piece` bytes. */
static sw_status copy_counted(const struct sw_stage *s, const struct sw_counted_slices *x, int size,
                              size_t at, size_t piece, bool in)
{
    char *stage = s->memory + (in ? (size_t)size * piece : 0);
    char *tensor = in ? x->dst : (char *)(uintptr_t)x->src;
    const size_t *some = x->scratch + (in ? size : 0);
    for (size_t r = 0; r < (size_t)size; r++) {
        char *there = tensor + r * x->slice_bytes + at, *here = stage + r * piece;
        SW_TRY(some[r] == 0
                   ? SW_OK
                   : sw_device_copy(s->dev, s->on, in ? there : here, in ? here : there, some[r]));
    }
    return sw_stage_wait(s);
}

sw_status sw_stage_exchange_counted(const struct sw_stage *s, const struct sw_route *route,
                                    const struct sw_counted_slices *x)
{
    sw_comm *comm = route->comm;
    const int size = sw_comm_size(comm);
    if (s->in_order) {
        return queue_counted(s, route, x);
    }
    if (reaches(s->dev, SW_DEVICE_COMM_REACHES)) {
        return sw_comm_all_to_all_counted(comm, x->src, x->dst, x->slice_bytes, x->sent,
                                          x->received, x->what);
    }
    const size_t piece = s->bytes / (2 * (size_t)size) / PIECE_ALIGN * PIECE_ALIGN;
    size_t *sent = x->scratch, *received = x->scratch + size;
    for (size_t at = 0; at < x->slice_bytes; at += piece) { /* equally often on all ranks */
        for (int r = 0; r < size; r++) {
            sent[r] = x->sent[r] > at ? least_of(x->sent[r] - at, piece) : 0;
            received[r] = x->received[r] > at ? least_of(x->received[r] - at, piece) : 0;
        }
        SW_TRY(copy_counted(s, x, size, at, piece, false));
        SW_TRY(sw_comm_all_to_all_counted(comm, s->memory, s->memory + (size_t)size * piece, piece,
                                          sent, received, x->what));
        SW_TRY(copy_counted(s, x, size, at, piece, true));
    }
    return SW_OK;
}

static sw_status pass(sw_comm *comm, enum sw_comm_op op, int peer, void *data, size_t bytes,
                      const char *what)
{
    return op == SW_COMM_SEND      ? sw_comm_send(comm, peer, data, bytes, what)
           : op == SW_COMM_RECEIVE ? sw_comm_receive(comm, peer, data, bytes, what)
                                   : sw_comm_broadcast(comm, peer, data, bytes, what);
}

sw_status sw_stage_pass(const struct sw_stage *s, const struct sw_route *route, enum sw_comm_op op,
                        int peer, void *data, size_t bytes, const char *what)
{
    sw_comm *comm = route->comm;
    if (s->in_order) {
        return queue_pass(s, route, op, peer, data, bytes);
    }
    const bool gives =
        op == SW_COMM_SEND || (op == SW_COMM_BROADCAST && peer == sw_comm_rank(comm));
    if (reaches(s->dev, SW_DEVICE_COMM_REACHES)) {
        return pass(comm, op, peer, data, bytes, what);
    }
    for (size_t done = 0; done < bytes; done += s->bytes) {
        const size_t some = least_of(s->bytes, bytes - done);
        char *here = (char *)data + done;
        SW_TRY(gives ? sw_device_copy(s->dev, s->on, s->memory, here, some) : SW_OK);
        SW_TRY(gives ? sw_stage_wait(s) : SW_OK);
        SW_TRY(pass(comm, op, peer, s->memory, some, what));
        SW_TRY(gives ? SW_OK : sw_device_copy(s->dev, s->on, here, s->memory, some));
        SW_TRY(gives ? SW_OK : sw_stage_wait(s));
    }
    return SW_OK;
}
