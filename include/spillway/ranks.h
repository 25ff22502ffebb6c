// SPDX-License-Identifier: Apache-2.0
// Ranks that train one model together, each with an engine of its own (spillway/engine.h, options.ranks).
// Here they are threads of one process; another transport fills the same table.
#pragma once

#include <stddef.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an engine needs of the other ranks; blocking, called in the order of the plan, the same on every
 * rank. `what` names the tensor, for whoever waits too long. */
struct sw_collectives {
    void *ctx;
    int rank, size;
    /* Slice r of src ([size] slices) goes to rank r; dst [size] slices in rank order. */
    sw_status (*all_to_all)(void *ctx, const void *src, void *dst, size_t slice_bytes,
                            const char *what);
    /* dst [size] slices in rank order; src may be its own place in dst. */
    sw_status (*all_gather)(void *ctx, const void *src, void *dst, size_t slice_bytes,
                            const char *what);
    /* This rank cannot go on: whoever waits for it gets an error instead. NULL = not needed. */
    void (*abort)(void *ctx, sw_status reason);
};

/* Ranks of one process share its processors: more than this many only wait for each other. */
enum { SW_THREAD_RANKS_MAX = 64, SW_THREAD_DEADLINE_MAX_S = 1000000 };

/*
 * sw_thread_ranks_open - ranks that are threads of this process.
 *
 * size         1 .. SW_THREAD_RANKS_MAX: each rank r is driven by a thread of its own, with
 *              sw_thread_ranks_at(.., r)
 * deadline_s   longest wait for the others; then those who are missing are named, on every rank
 *
 * SW_E_ARG     size or deadline_s is out of range
 */
struct sw_thread_ranks;
SW_API sw_status sw_thread_ranks_open(int size, double deadline_s, struct sw_thread_ranks **out);
/* When no rank uses it any more. */
SW_API void sw_thread_ranks_close(struct sw_thread_ranks *ranks);
/* Lent until close. */
SW_API const struct sw_collectives *sw_thread_ranks_at(const struct sw_thread_ranks *ranks,
                                                       int rank);

#ifdef __cplusplus
}
#endif
