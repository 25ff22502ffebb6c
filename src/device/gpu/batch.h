// SPDX-License-Identifier: Apache-2.0
// batch - small tensors' sums, updates, statistics and steps of LAMB that stand in line on a
// stream, each kind in a line of its own, to be launched together: biases and norms would take a
// launch each. They wait for nothing but their neighbours: whatever else is queued on the stream,
// or waited for, goes behind their launch; of their own kinds what touches the same bytes does. So
// lines may be launched in any order, and all that is launched so has the bits that it has alone.
#pragma once

#include "device/gpu/gpu.h"

enum gpu_line_kind { GPU_LINE_SUM, GPU_LINE_UPDATE, GPU_LINE_STATS, GPU_LINE_LAMB, GPU_N_LINES };

/* Bytes that an op touches. */
struct gpu_range {
    const char *begin, *end;
};
/* Ranges of a line: of LAMB a parameter with its master, moments, norms and ratio. */
enum { GPU_LINE_WRITTEN = 6 * GPU_LAMB_MANY, GPU_LINE_READ = GPU_STATS_MANY };

/* What those that are launched together have in common. */
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
    int n, n_blocks, first_block; /* the last one's first */
    struct gpu_range written[GPU_LINE_WRITTEN], read[GPU_LINE_READ];
    int n_written, n_read;
    int norms_at[GPU_LAMB_MANY]; /* LAMB: which of `written` are an item's norms */
};

/* Of a stream; zeros: nobody stands in line. */
struct gpu_batch {
    struct gpu_line line[GPU_N_LINES];
};

/*
 * sw_gpu_batch_sum, _update, _stats, _moments, _apply - puts an op in line (call->batch).
 *
 * out_stands   true: it stands there. False: it is too large, or has row-sparse streams: those of
 *              the lines that must come before it are launched, and it is the caller's to launch
 */
/* acc [n] fp32, and the one stream that is added to it. */
sw_status sw_gpu_batch_sum(const struct gpu_call *call, float *acc,
                           const struct gpu_streams *streams, int64_t n, bool *out_stands);
sw_status sw_gpu_batch_update(const struct gpu_call *call, enum sw_gpu_type type,
                              const struct gpu_update_args *args, bool *out_stands);
/* Launches those of the lines that must come before: with moments of 8 bits none stands there. */
sw_status sw_gpu_batch_clear_coded(const struct gpu_call *call, enum sw_gpu_type type,
                                   const struct gpu_update_coded_args *args);
/* args n: -1 where all streams are row-sparse. */
sw_status sw_gpu_batch_stats(const struct gpu_call *call, const struct gpu_grad_stats_args *args,
                             bool *out_stands);
sw_status sw_gpu_batch_moments(const struct gpu_call *call, enum sw_gpu_type type,
                               const struct gpu_lamb_moments_args *args, bool *out_stands);
/* Stands in line with the moments of its tensor, if those are the last. */
sw_status sw_gpu_batch_apply(const struct gpu_call *call, enum sw_gpu_type type,
                             const struct gpu_lamb_apply_args *args, bool *out_stands);
/* Launches those that stand in line. */
sw_status sw_gpu_batch_launch(struct gpu_batch *batch, struct gpu_device *dev, void *stream);
