// SPDX-License-Identifier: Apache-2.0
// args_lstm - LSTM, one block per sample; then sums for the weights.
#pragma once

#include <stdint.h>

#define SW_GPU_LSTM_KERNELS(X) X(lstm) X(lstm_steps_back) X(lstm_weights)

enum { GPU_LSTM_HIDDEN = 2048 }; /* most hidden units: shared memory holds a sample's state */

struct gpu_lstm_args {
    const double *skip;
    const void *x, *w, *bias; /* x: forward; same type as y */
    const int32_t *mask;      /* [B,T] or NULL */
    void *y;                  /* backward: read */
    float *gates, *cells;     /* forward: NULL = not wanted */
    const void *dy;           /* backward only, and all below */
    float *dz;                /* [B,T,4H] */
    void *dx, *dw, *dbias;    /* NULL = not wanted */
    int64_t batch, tokens, hidden;
    int reverse, dy_type, dx_type, dw_type, dbias_type;
};
