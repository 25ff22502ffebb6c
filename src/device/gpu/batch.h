// SPDX-License-Identifier: Apache-2.0
// batch - updates of small tensors that stand in line on a stream, to be launched together: biases
// and norms would take a launch each. They wait for nothing but their neighbours: whatever else is
// queued on the stream, or waited for, goes behind their launch; an update of what one of them
// touches, too. What is launched so has the bits that it has alone.
#pragma once

#include "device/gpu/gpu.h"

/* Bytes that an update touches. */
struct gpu_range {
    const char *begin, *end;
};
enum { GPU_UPDATE_BLOCKS = 8192 }; /* of a launch, at most */
enum { GPU_WRITTEN = 4 };          /* ranges of a parameter and its states */

/* Of a stream; zeros: nobody stands in line. */
struct gpu_batch {
    struct gpu_update_many_args args;
    enum sw_gpu_type type;
    double *scalars;
    bool is_predicated;
    int n_blocks;
    struct gpu_range written[GPU_UPDATE_MANY * GPU_WRITTEN], read[GPU_UPDATE_MANY];
    int n_written;
};

/* Threads of updates with `each` elements at a time go over n of them. */
struct gpu_grid sw_gpu_update_grid(int64_t n, int64_t each);
/* Launches an update, at once or with its neighbours (call->batch; NULL: at once). */
sw_status sw_gpu_batch_update(const struct gpu_call *call, enum sw_gpu_type type,
                              struct gpu_update_args *args);
/* Launches those that stand in line. */
sw_status sw_gpu_batch_launch(struct gpu_batch *batch, struct gpu_device *dev, void *stream);
