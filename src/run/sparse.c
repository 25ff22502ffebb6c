// SPDX-License-Identifier: Apache-2.0
// Row-sparse gradients on their way to the owners of their rows. Every rank announces the largest
// number of rows that it has for one owner. With the maximum of these numbers, each rank packs an
// index and rows for each owner, in the gradient's memory. The owner adds them in rank order.
// Indices ascend, so the rows of an owner are adjacent. A row that two owners share goes to both.
#include <string.h>

#include "run/collectives.h"

struct range {
    int64_t first, n; /* in rows of the gradient */
};

/* Rows that overlap the shard of rank `to`; none if this rank has no micro-batch now. */
static struct range rows_for(const struct sw_collective_call *call, int to, bool idle)
{
    const struct sw_instr *instr = call->instr;
    const int32_t *index = call->at[3];
    const int64_t n = idle ? 0 : (int64_t)(call->operands[3].bytes / sizeof *index);
    const int64_t slice = instr->bytes / (int64_t)sw_dtype_bytes(instr->exchange.dtype);
    const int64_t begin = slice * to / instr->exchange.row_elems;
    const int64_t end = sw_ceil_div(slice * (to + 1), instr->exchange.row_elems);
    struct range range = {0, 0};
    for (int64_t i = 0; i < n && index[i] >= 0 && index[i] < end; i++) {
        range.first += index[i] < begin;
        range.n += index[i] >= begin;
    }
    return range;
}

struct sw_comm_item sw_sparse_count(const struct sw_collective_call *call, int ranks, bool idle)
{
    int64_t most = 0;
    for (int to = 0; to < ranks; to++) {
        most = sw_max_i64(most, rows_for(call, to, idle).n);
    }
    memcpy(call->at[1], &most, sizeof most);
    return (struct sw_comm_item){.op = SW_COMM_ALL_GATHER,
                                 .src = call->at[1],
                                 .dst = call->workspace,
                                 .slice_bytes = sizeof most,
                                 .what = "how many rows a gradient has"};
}

int64_t sw_sparse_most(const struct sw_collective_call *call, int ranks)
{
    const int64_t *counts = call->workspace;
    int64_t most = 1;
    for (int r = 0; r < ranks; r++) {
        most = sw_max_i64(most, sw_min_i64(counts[r], call->instr->exchange.rows));
    }
    return most;
}

void sw_sparse_pack(const struct sw_collective_call *call, int ranks, bool idle, int64_t most)
{
    const struct sw_instr *instr = call->instr;
    const size_t width = (size_t)instr->exchange.row_elems * sw_dtype_bytes(instr->exchange.dtype);
    const size_t bytes =
        (size_t)sw_instr_rows_bytes(most, instr->exchange.row_elems, instr->exchange.dtype);
    for (int to = 0; to < ranks; to++) {
        const struct range range = rows_for(call, to, idle);
        char *at = (char *)call->at[1] + (size_t)to * bytes;
        int32_t *index = (int32_t *)(at + sizeof most);
        memset(at, 0, bytes);
        memcpy(at, &most, sizeof most);
        for (int64_t i = 0; i < most; i++) {
            index[i] = i < range.n ? ((const int32_t *)call->at[3])[range.first + i] : -1;
        }
        memcpy(index + most, (const char *)call->at[2] + (size_t)range.first * width,
               (size_t)range.n * width);
    }
}

void sw_sparse_add(const struct sw_collective_call *call, int rank, int n_active, bool fresh)
{
    const struct sw_instr *instr = call->instr;
    const int64_t most = *(const int64_t *)call->workspace; /* the same on all ranks */
    const int64_t slice = instr->bytes / (int64_t)sw_dtype_bytes(instr->exchange.dtype);
    const size_t bytes =
        (size_t)sw_instr_rows_bytes(most, instr->exchange.row_elems, instr->exchange.dtype);
    struct sw_row_slice slices[SW_ROWS_RANKS];
    for (int done = 0; done < n_active; done += SW_ROWS_RANKS) {
        const int n = (int)sw_min_i64(SW_ROWS_RANKS, n_active - done);
        for (int k = 0; k < n; k++) {
            const char *at = (const char *)call->workspace + (size_t)(done + k) * bytes;
            const int32_t *index = (const int32_t *)(at + sizeof most);
            slices[k] = (struct sw_row_slice){index, index + most}; /* rows follow the indices */
        }
        sw_add_rows(call->at[0], instr->exchange.dtype, slices, most, instr->exchange.row_elems,
                    slice * rank, slice, n, fresh && done == 0);
    }
}
