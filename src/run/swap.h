// SPDX-License-Identifier: Apache-2.0
// The disk tier of one executor. Private to the room.
#pragma once

#include "run/run.h"

struct sw_swap;

/*
 * sw_swap_open - files of `bytes` bytes, with their space reserved.
 *
 * SW_E_NOMEM   the disk has too little space
 * SW_E_IO      no such folder, and the like
 */
sw_status sw_swap_open(const struct sw_swap_options *options, size_t bytes, struct sw_swap **out);
/* A new file in a folder whose file system makes none without a name: it has one until this
 * returns. *out_path is the arena's, *out_fd the caller's. SW_E_IO, SW_E_NOMEM. */
sw_status sw_swap_make_named(const char *folder, int rank, struct sw_arena *names,
                             const char **out_path, int *out_fd);
/* The files are gone with it, or with the process, however that ends. NULL is fine. */
void sw_swap_close(struct sw_swap *swap);
sw_status sw_swap_read(struct sw_swap *swap, size_t at, void *data, size_t bytes);
sw_status sw_swap_write(struct sw_swap *swap, size_t at, const void *data, size_t bytes);
/* Rows `ids` [n] of a table that begins at byte `at`, side by side; n <= SW_SWAP_ROWS. Those that
 * follow each other on the disk, too, are one request. */
enum { SW_SWAP_ROWS = 128 };
sw_status sw_swap_read_rows(struct sw_swap *swap, size_t at, size_t row_bytes, const int32_t *ids,
                            int n, void *out);
/* The list of memory is the request's until it has ended. */
struct sw_swap_request {
    struct sw_nvme_segment memory;
    sw_nvme_ticket ticket;
};
sw_status sw_swap_begin(struct sw_swap *swap, bool write, size_t at, void *data, size_t bytes,
                        struct sw_swap_request *out);
/* Returns when the memory is no longer used, whatever happened. */
sw_status sw_swap_end(struct sw_swap *swap, const struct sw_swap_request *request);
sw_status sw_swap_zero(struct sw_swap *swap, size_t at, size_t bytes);
