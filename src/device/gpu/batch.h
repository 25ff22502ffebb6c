// SPDX-License-Identifier: Apache-2.0
// batch - sums, updates, statistics and LAMB steps of small tensors, queued on a stream to be
// launched together. Biases and norms would otherwise take a launch each. Each kind has its own
// line. Any other work queued on the stream, or waited for, first launches the lines. Within a
// kind, an op that touches the same bytes does so, too. So lines may be launched in any order, and
// each op has the bits that it has alone.
#pragma once

#include "device/gpu/gpu.h"

enum gpu_line_kind { GPU_LINE_SUM, GPU_LINE_UPDATE, GPU_LINE_STATS, GPU_LINE_LAMB, GPU_N_LINES };

/* The bytes that an op touches. */
struct gpu_range {
    const char *begin, *end;
};
/* Most ranges of a line; a LAMB item has a parameter, its master, moments, norms and ratio. */
enum { GPU_LINE_WRITTEN = 6 * GPU_LAMB_MANY, GPU_LINE_READ = GPU_STATS_MANY };

/* Properties that ops launched together share. */
struct gpu_kin {
    struct gpu_rule rule;
    int64_t *stats;
    int64_t overflow_skips;
};

struct gpu_line {
    union {
        struct gpu_accumulate_many_args sum;
        struct gpu_update_many_args update;
        struct gpu_grad_stats_many_args stats;
        struct gpu_lamb_many_args lamb;
    } args;
    struct gpu_kin kin;
    enum sw_gpu_type type;
    double *scalars;
    bool is_predicated;
    int n, n_blocks, first_block; /* first_block: of the last item */
    struct gpu_range written[GPU_LINE_WRITTEN], read[GPU_LINE_READ];
    int n_written, n_read;
    int norms_at[GPU_LAMB_MANY]; /* LAMB: index in `written` of each item's norms */
};

/* The lines of a stream; all zeros = empty. */
struct gpu_batch {
    struct gpu_line line[GPU_N_LINES];
};

/*
 * sw_gpu_batch_sum, _update, _stats, _moments, _apply - add an op to a line (call->batch).
 *
 * out_stands   true: the op was added. False: it is too large or has row-sparse streams; the lines
 *              that must come before it have been launched, and the caller launches it
 */
/* acc [n] fp32, and the one stream added to it. */
sw_status sw_gpu_batch_sum(const struct gpu_call *call, float *acc,
                           const struct gpu_streams *streams, int64_t n, bool *out_stands);
sw_status sw_gpu_batch_update(const struct gpu_call *call, enum sw_gpu_type type,
                              const struct gpu_update_args *args, bool *out_stands);
/* Launches the lines that must come before; ops with 8-bit moments never join a line. */
sw_status sw_gpu_batch_clear_coded(const struct gpu_call *call, enum sw_gpu_type type,
                                   const struct gpu_update_coded_args *args);
/* args n: -1 if all streams are row-sparse. */
sw_status sw_gpu_batch_stats(const struct gpu_call *call, const struct gpu_grad_stats_args *args,
                             bool *out_stands);
sw_status sw_gpu_batch_moments(const struct gpu_call *call, enum sw_gpu_type type,
                               const struct gpu_lamb_moments_args *args, bool *out_stands);
/* Joins the moments of its tensor, if those are the last item. */
sw_status sw_gpu_batch_apply(const struct gpu_call *call, enum sw_gpu_type type,
                             const struct gpu_lamb_apply_args *args, bool *out_stands);
/* Launches all lines. */
sw_status sw_gpu_batch_launch(struct gpu_batch *batch, struct gpu_device *dev, void *stream);
