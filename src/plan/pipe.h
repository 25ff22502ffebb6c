// SPDX-License-Identifier: Apache-2.0
// pipe - a pipeline of stages: which blocks a stage has (partition.c), and in which order it works
// on the micro-batches of a step (phases.c). Both are pure, so that all ranks agree without a
// message.
#pragma once

#include "plan/plan.h"

/* ---- phases.c: schedules ---- */

/* Each stage has `chunks` chunks of consecutive blocks: chunk c of stage s is part c * stages + s
 * of the model. */
struct sw_pipe {
    int stages, chunks, micro_batches;
};

/* A stage runs a segment of one of its chunks for one micro-batch: forward, backward or weights,
 * which come first in enum sw_segment. */
struct sw_pipe_phase {
    int32_t chunk, micro;
    enum sw_segment segment;
};
enum { SW_PIPE_SEGMENTS = SW_SEGMENT_WEIGHTS + 1 };

/* The phase in which an instruction of a stage runs, before the update; of any micro-batch. */
static inline struct sw_pipe_phase sw_pipe_phase_of(const struct sw_instr *instr)
{
    return (struct sw_pipe_phase){.chunk = (int32_t)instr->chunk, .segment = instr->segment};
}

/*
 * A schedule lists the phases of each stage. The following holds for every schedule:
 *
 * - Each chunk has each of its segments once for every micro-batch, in the order of forward,
 *   backward, weights.
 * - Micro-batches ascend within each segment of a chunk. Gradients are therefore added in their
 *   order.
 * - The stages do not deadlock if each runs its phases in order, and sends what a phase produces
 *   without waiting for the receiver.
 */
struct sw_pipe_schedule {
    bool has_weights; /* gradients of weights are a segment of their own */
    /* Lists all phases of a stage in order. out: [sw_pipe_phases] */
    void (*list)(const struct sw_pipe *pipe, int stage, struct sw_pipe_phase *out);
    int (*late)(const struct sw_pipe *pipe); /* see sw_pipe_late; NULL = 1 */
};
/* All of forward, then all of backward. */
extern const struct sw_pipe_schedule sw_pipe_gpipe;
/* A stage keeps at most min(stages - stage, micro-batches) micro-batches in flight. It does the
 * backward of the oldest one before the forward of another. */
extern const struct sw_pipe_schedule sw_pipe_1f1b;
/* 1F1B with several chunks per stage: the time to fill and to drain is divided by their number. */
extern const struct sw_pipe_schedule sw_pipe_interleaved;
/* ZB-H1: stage s puts off the weights of s micro-batches, which then fill the time to drain. */
extern const struct sw_pipe_schedule sw_pipe_zero_bubble;

/* Number of phases of a stage. */
int64_t sw_pipe_phases(const struct sw_pipe_schedule *schedule, const struct sw_pipe *pipe);
/* Phases after its own during which a message may be in flight: 1, unless the next chunk of the
 * model is due later. */
int sw_pipe_late(const struct sw_pipe_schedule *schedule, const struct sw_pipe *pipe);
/* Most micro-batches for which a value is in use at once. It is made in a phase like `from`, and
 * last read in one like `until`; chunk and segment count. A message uses it longer: `early` phases
 * before, if it is received, and `late` phases after, if it is sent. The micro-batches are
 * neighbours, so micro-batch k can use slot k modulo this number. */
int sw_pipe_slots(const struct sw_pipe_phase *phases, int64_t n, const struct sw_pipe_phase *from,
                  const struct sw_pipe_phase *until, int early, int late);

/* ---- partition.c: blocks ---- */

/* The blocks of a model, numbered in the order in which its programs first have them. A program may
 * lack some, such as those of an encoder. */
struct sw_blocks {
    struct sw_names numbers;
    int n;
};
/* Numbers the blocks of another program. The graph must outlive the table. SW_E_NOMEM */
sw_status sw_blocks_add(struct sw_blocks *blocks, const struct sw_graph *g);
int sw_blocks_find(const struct sw_blocks *blocks, const char *name); /* -1 = unknown */
void sw_blocks_close(struct sw_blocks *blocks);

/* ---- partition.c: part i of a model has the items bounds[i] .. bounds[i + 1] - 1 ---- */

/* Parts of equal length; the first ones have an item more. With fewer items than parts, the last
 * parts have none. As DeepSpeed's "uniform". bounds: [parts + 1], as below */
void sw_partition_uniform(int n_items, int parts, int *bounds);
/* Parts of balanced weight, as DeepSpeed's "parameters" and "type:REGEX": for each prefix of the
 * items it keeps the cut with the least difference of the largest and the smallest part, and the
 * later one of equals. With no more items than parts it is uniform. SW_E_NOMEM */
sw_status sw_partition_balanced(const double *weights, int n_items, int parts, int *bounds);
/* Parts whose largest weight is the least possible. Ties: the parts whose squares have the least
 * sum; then the earlier cut, since later stages keep fewer micro-batches. Every part has an item.
 *
 * weights      not negative; their sum fits an int64_t
 * n_items      at least `parts`
 *
 * SW_E_NOMEM */
sw_status sw_partition_least(const int64_t *weights, int n_items, int parts, int *bounds);
/* Converts bounds of items to bounds of blocks. Item 0 is all that comes before the first block,
 * item 1 is block 0, and the last item is all that comes after the last block. */
void sw_partition_to_blocks(int n_blocks, int parts, int *bounds);
/* SW_E_CONFIG: the bounds of blocks that a user gives do not make up the parts. The first part may
 * have no block, and so may the last one. */
sw_status sw_partition_check(const int64_t *bounds, int64_t n_bounds, int64_t n_blocks, int parts);
