// SPDX-License-Identifier: Apache-2.0
// fast_streams - the gradient streams of one parameter, for the fast rows that read them:
// ACCUMULATE, GRAD_STATS, UPDATE, LAMB_MOMENTS.
#pragma once

#include "device/cpu/fast.h"

struct cpu_grad_stream {
    enum sw_dtype dtype;
    const char *data;
    const int32_t *index; /* NULL: dense */
    int64_t n_rows;       /* rows that are present */
    int64_t first;        /* offset of element 0 of the computation in the stream */
};

struct cpu_streams {
    struct cpu_grad_stream stream[SW_MAX_INPUTS];
    int n;
    int64_t n_elems, row_elems;
};

/* Takes the streams from input `first` on. n_elems: elements of the parameter; -1: as far as the
 * streams reach. */
void sw_cpu_streams_of(struct cpu_streams *s, const struct cpu_call *call, int first,
                       int64_t n_elems);
/* Adds s0 + s1 + .. for elements start .. start+n-1 into `buffer`, or returns the only stream's own
 * memory. */
const float *sw_cpu_streams_sum(const struct cpu_vector *vector, const struct cpu_streams *s,
                                int64_t start, int64_t n, float *buffer);
/* An item's run of at most CPU_STREAM_ELEMS elements of the parameter. */
struct cpu_streams_item {
    int64_t start, n;
    float buffer[CPU_STREAM_ELEMS];
};
/* Finds item i_item and returns the sum of the streams over it, as sw_cpu_streams_sum does. */
const float *sw_cpu_streams_item(const struct cpu_vector *vector, const struct cpu_streams *s,
                                 int64_t i_item, struct cpu_streams_item *out);
/* True if the inputs from `first` on are streams of fast dtypes. */
bool sw_cpu_takes_streams(const struct sw_op_desc *desc, int first);

/* Adds the squares of n <= CPU_STREAM_ELEMS elements to stats; the first one begins a run. */
void sw_cpu_add_squares(const struct cpu_vector *vector, int64_t *stats, const float *x, int64_t n);

/* The constants of an op whose inputs begin with a parameter and its states. */
struct cpu_update sw_cpu_update_of(const struct cpu_call *call);
