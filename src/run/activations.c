// SPDX-License-Identifier: Apache-2.0
// Exchanges of activations among the members of a group. Slices along an inner dimension consist of
// many runs, and are packed before they are sent, or unpacked when they have arrived. A sum is made
// as that of gradients is: the slices travel to the member that they belong to, which adds them in
// rank order in fp32. It rounds the sum once, and all members get these bits. Of the rows of
// experts only those travel that the router has counted.
#include "run/collectives.h"

struct exchange {
    const struct sw_stage *stage;
    const struct sw_collective_call *call;
    struct sw_comm_item *items;
    struct sw_exchange_areas areas;
    int n, me;
    size_t slice; /* bytes */
};

static char *area(const struct exchange *x, size_t at)
{
    return (char *)x->call->workspace + at;
}

/* Copies the runs of all slices between a tensor and memory in which each slice is contiguous. */
static sw_status copy_slices(const struct exchange *x, char *tensor, char *slices, int32_t runs,
                             bool packs)
{
    const size_t run = x->slice / (size_t)runs, row = (size_t)x->n * run;
    for (int k = 0; k < x->n; k++) {
        for (int32_t j = 0; j < runs; j++) {
            char *at = tensor + (size_t)j * row + (size_t)k * run;
            char *packed = slices + (size_t)k * x->slice + (size_t)j * run;
            SW_TRY(sw_device_copy(x->stage->dev, x->stage->on, packs ? packed : at,
                                  packs ? at : packed, run));
        }
    }
    return SW_OK;
}

/* The slices to send: those of the operand, or a packed copy. */
static sw_status pack(const struct exchange *x, char **out)
{
    const struct sw_instr_exchange *e = &x->call->instr->exchange;
    char *packed = area(x, x->areas.packed);
    *out = x->call->at[0];
    if (e->is_padded) {
        const size_t bytes = x->call->operands[0].bytes, all = (size_t)x->n * x->slice;
        *out = packed;
        SW_TRY(sw_device_copy(x->stage->dev, x->stage->on, packed, x->call->at[0], bytes));
        SW_TRY(sw_device_fill(x->stage->dev, x->stage->on, packed + bytes, 0, all - bytes));
    } else if (e->runs[0] > 1) {
        *out = packed;
        SW_TRY(copy_slices(x, x->call->at[0], packed, e->runs[0], true));
    }
    return *out == packed ? sw_stage_wait(x->stage) : SW_OK;
}

static sw_status travel(const struct exchange *x, enum sw_comm_op op, const void *src, void *dst)
{
    x->items[0] = (struct sw_comm_item){.op = op,
                                        .src = src,
                                        .dst = dst,
                                        .slice_bytes = x->slice,
                                        .what = x->call->instr->about->where,
                                        .dtype = x->call->instr->exchange.dtype};
    return sw_stage_exchange(x->stage, &x->call->route, x->items, 1, x->items + 1);
}

/* Exchanges slices without a sum. */
static sw_status move_slices(const struct exchange *x, enum sw_comm_op op)
{
    const int32_t runs = x->call->instr->exchange.runs[1];
    char *to = runs > 1 ? area(x, x->areas.arrived) : x->call->at[1], *from;
    SW_TRY(pack(x, &from));
    SW_TRY(travel(x, op, from, to));
    if (runs == 1) {
        return SW_OK;
    }
    SW_TRY(copy_slices(x, x->call->at[1], to, runs, false));
    return sw_stage_wait(x->stage);
}

/* Writes this member's slice of the sum to `out`. */
static sw_status add_slices(const struct exchange *x, void *out)
{
    const enum sw_dtype dtype = x->call->instr->exchange.dtype;
    char *from, *arrived = area(x, x->areas.arrived);
    const bool is_wide = dtype == SW_F32; /* the sum needs no rounding */
    SW_TRY(pack(x, &from));
    SW_TRY(travel(x, SW_COMM_REDUCE_SCATTER, from, arrived));
    const struct sw_slice_sum sum = {
        .acc = is_wide ? out : (void *)area(x, x->areas.sums),
        .dtype = dtype,
        .slices = arrived,
        .n = (int64_t)(x->slice / sw_dtype_bytes(dtype)),
        .n_slices = x->stage->library_sums ? 1 : x->n,
        .fresh = true,
        .rounded = is_wide ? NULL : out,
    };
    SW_TRY(sw_device_add_slices(x->stage->dev, x->stage->on, &sum));
    return sw_stage_wait(x->stage);
}

/* Every member adds one slice; then they exchange the sums. */
static sw_status all_reduce(const struct exchange *x)
{
    const bool is_padded = x->call->instr->exchange.is_padded;
    char *all = is_padded ? area(x, x->areas.packed) : x->call->at[1];
    char *mine = all + (size_t)x->me * x->slice;
    SW_TRY(add_slices(x, mine));
    SW_TRY(travel(x, SW_COMM_ALL_GATHER, mine, all));
    if (!is_padded) {
        return SW_OK;
    }
    SW_TRY(sw_device_copy(x->stage->dev, x->stage->on, x->call->at[1], all,
                          x->call->operands[1].bytes));
    return sw_stage_wait(x->stage);
}

/* The bytes of each slice that travel; operand k counts their rows, see sw_instr_is_counted. */
static sw_status read_counts(const struct exchange *x, int k, size_t *out)
{
    const struct sw_instr_exchange *e = &x->call->instr->exchange;
    const size_t row = (size_t)e->row_elems * sw_dtype_bytes(e->dtype);
    const size_t width = x->call->operands[k].bytes / sizeof(int32_t) / (size_t)x->n;
    const int32_t *offsets = x->call->at[k];
    int32_t rows[SW_MOST_EXPERT_RANKS];
    SW_TRY(sw_stage_words_out(x->stage, rows, offsets + width - SW_OFFSETS_BEHIND, width, x->n));
    for (int r = 0; r < x->n; r++) {
        out[r] = (size_t)rows[r] * row;
        if (rows[r] < 0 || out[r] > x->slice) {
            return SW_FAIL(SW_E_ARG, "%d rows %s member %d of the group; wanted 0 to %zu", rows[r],
                           k == 2 ? "to" : "from", r, x->slice / row);
        }
    }
    return SW_OK;
}

/* Exchanges the rows that are counted at run time; those that no member sends become 0. Subtracts
 * the bytes of other rows from *more. */
static sw_status move_counted(const struct exchange *x, struct sw_instr_traffic *more)
{
    size_t counts[4 * SW_MOST_EXPERT_RANKS], *sent = counts, *received = counts + x->n;
    SW_TRY(read_counts(x, 2, sent));
    SW_TRY(read_counts(x, 3, received));
    for (int r = 0; r < x->n; r++) {
        char *rest = (char *)x->call->at[1] + (size_t)r * x->slice + received[r];
        const size_t bytes = x->slice - received[r];
        SW_TRY(bytes == 0 ? SW_OK : sw_device_fill(x->stage->dev, x->stage->on, rest, 0, bytes));
        more->sent -= r == x->me ? 0 : (int64_t)(x->slice - sent[r]);
        more->received -= r == x->me ? 0 : (int64_t)bytes;
    }
    SW_TRY(sw_stage_wait(x->stage));
    return sw_stage_exchange_counted(
        x->stage, &x->call->route,
        &(struct sw_counted_slices){.src = x->call->at[0],
                                    .dst = x->call->at[1],
                                    .slice_bytes = x->slice,
                                    .sent = sent,
                                    .received = received,
                                    .scratch = received + x->n,
                                    .what = x->call->instr->about->where});
}

static sw_status pass(const struct exchange *x, enum sw_comm_op op, int peer)
{
    return sw_stage_pass(x->stage, &x->call->route, op, peer, x->call->at[0], x->slice,
                         x->call->instr->about->where);
}

sw_status sw_activation_run(const struct sw_stage *stage, const struct sw_collective_call *call,
                            struct sw_comm_item *items, struct sw_instr_traffic *more)
{
    const struct sw_instr *instr = call->instr;
    const struct exchange x = {
        .stage = stage,
        .call = call,
        .items = items,
        .areas = sw_instr_areas(instr, sw_comm_size(call->route.comm)),
        .n = sw_comm_size(call->route.comm),
        .me = sw_comm_rank(call->route.comm),
        .slice = (size_t)instr->bytes,
    };
    switch (instr->verb) {
    case SW_VERB_ALL_GATHER:
        return move_slices(&x, SW_COMM_ALL_GATHER);
    case SW_VERB_ALL_TO_ALL:
        return sw_instr_is_counted(instr) ? move_counted(&x, more)
                                          : move_slices(&x, SW_COMM_ALL_TO_ALL);
    case SW_VERB_REDUCE_SCATTER:
        return add_slices(&x, call->at[1]);
    case SW_VERB_ALL_REDUCE:
        return all_reduce(&x);
    case SW_VERB_BROADCAST:
        return pass(&x, SW_COMM_BROADCAST, instr->exchange.peer);
    case SW_VERB_SEND:
        return pass(&x, SW_COMM_SEND, 1 - x.me);
    default:
        return pass(&x, SW_COMM_RECEIVE, 1 - x.me);
    }
}
