// SPDX-License-Identifier: Apache-2.0
// standin - a product on the CPU, column-major as the libraries have it, for those that stand in
// for cuBLASLt, hipBLASLt and rocBLAS where GPUs are emulated.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* d [m, n] = op(a) [m, k] op(b) [k, n] (+ bias [m], of d's dtype), or GELU of that, by tanh. Sums
 * in fp32, over k from its beginning, or backwards, as another algorithm would; rounded once. */
struct standin_product {
    int64_t m, n, k, lda, ldb, ldd;
    bool ta, tb, backwards, gelu;
    enum sw_dtype in, out;
    const void *a, *b, *bias;
    void *d;
    void *kept; /* NULL, or what GELU was given, of d's dtype, columns ld_kept apart */
    int64_t ld_kept;
};
/* False: no memory. */
bool standin_run(const struct standin_product *p);
/* The arguments of a call are no such product; which, in words, or NULL. */
const char *standin_problem(const struct standin_product *p);
