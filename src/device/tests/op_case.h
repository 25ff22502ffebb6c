// SPDX-License-Identifier: Apache-2.0
// op_case - one op with hand-made operands, filled with numbers that depend only on the case, and
// its run on any device. Shared by the tests of the device room.
#pragma once

#include "device/device.h"

struct case_tensor {
    /* data: initial bytes of an input, result of an output; owned by the case */
    struct sw_view view;
    size_t bytes;
    int alias; /* output: the input whose storage it shares, -1 = its own */
};

struct op_case {
    char name[128];
    struct sw_op op;
    struct case_tensor in[SW_MAX_INPUTS], out[SW_MAX_OUTPUTS];
    double scalars[SW_SCALAR_COUNT];
    bool exact;         /* every kernel must give the same bits */
    bool is_predicated; /* as in desc */
    double slack;       /* multiplies the tolerance; long sums have more rounding */
    int64_t shift;      /* operands start so many elements after the start of their device memory */
    uint64_t n_made;    /* operands made so far: selects the stream of random numbers */
    const int32_t *labels; /* labels of LINEAR_CE's rows, an input; NULL: all rows are read */
};

void case_init(struct op_case *c, enum sw_op_kind kind, const char *fmt, ...) SW_PRINTF(3, 4);
void case_fini(struct op_case *c);

/* Add inputs; each function returns the input's index. Floats are uniform in [low, high). */
int case_in(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape, double low, double high);
int case_in_strided(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape,
                    const int64_t *strides);
int case_in_ints(struct op_case *c, struct sw_shape shape, int64_t low, int64_t high);
/* Adds the given i32 values. */
int case_in_i32(struct op_case *c, int64_t n, const int32_t *values);
int case_in_zero(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape);
void case_out(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape);
void case_out_in_place(struct op_case *c, int i_in);
void case_out_absent(struct op_case *c);
/* The random element that case_in would put there. */
double case_random(const struct op_case *c, uint64_t stream, uint64_t i, double low, double high);

/* Runs the case. Results go to result->out[..].view.data (bytes as in c) and result->scalars;
 * result is a copy of c that the caller frees with case_fini. SW_E_UNSUP if the device has no
 * kernel. */
sw_status case_run(struct sw_device *dev, const struct op_case *c, struct op_case *result);
/* Runs several cases one after the other, with the first one's table of scalars, and nothing queued
 * between their kernels. */
enum { CASES_AT_ONCE = 128 };
sw_status case_run_many(struct sw_device *dev, const struct op_case *c, int n,
                        struct op_case *result);
/* Runs the case by a graph (dev->capture). It is captured while its scalars are NaN; they come
 * before it is replayed. */
sw_status case_run_captured(struct sw_device *dev, const struct op_case *c, struct op_case *result);

/* For a joined op (`apart` of its row): recomputes some outputs with the op that makes them from
 * the other outputs in `result`. SW_E_ARG if the bits differ. Other ops pass. */
sw_status case_run_apart(struct sw_device *dev, const struct op_case *c,
                         const struct op_case *result);

/* Copies between the test's memory and the device's; complete when they return. */
sw_status case_to_device(struct sw_device *dev, struct sw_stream_queue *on, void *to,
                         const void *from, size_t bytes);
sw_status case_to_host(struct sw_device *dev, struct sw_stream_queue *on, void *to,
                       const void *from, size_t bytes);

/* Largest |a - b| of output i over max |b| (0/0 = 0; NaN in one only = infinite). */
double case_error(const struct op_case *a, const struct op_case *b, int i_out);
/* Limit of case_error for output i of a fast kernel. 16-bit inputs are exact in fp32; differences
 * come from rounded intermediates, if the op has them. */
double case_tolerance(const struct op_case *c, int i_out);
/* All NaNs count as equal: processors make different ones. */
bool case_same_bits(const struct op_case *a, const struct op_case *b, int i_out);
