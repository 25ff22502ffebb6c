// SPDX-License-Identifier: Apache-2.0
// standin - a column-major product on the CPU, for the libraries that stand in for cuBLASLt,
// hipBLASLt and rocBLAS when GPUs are emulated.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* d [m, n] = op(a) [m, k] op(b) [k, n] (+ bias [m], of d's dtype), or the tanh GELU of that. Sums
 * are in fp32, over k forwards, or backwards as another algorithm would; rounded once. */
struct standin_product {
    int64_t m, n, k, lda, ldb, ldd;
    bool ta, tb, backwards, gelu;
    enum sw_dtype in, out;
    const void *a, *b, *bias;
    void *d;
    void *kept; /* NULL, or the input of GELU, in d's dtype, with column stride ld_kept */
    int64_t ld_kept;
};
/* False: out of memory. */
bool standin_run(const struct standin_product *p);
/* Describes the problem with the arguments of a call, or returns NULL. */
const char *standin_problem(const struct standin_product *p);
