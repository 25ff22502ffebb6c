// SPDX-License-Identifier: Apache-2.0
// The disk tier of one executor. Private to this folder.
#pragma once

#include "run/run.h"

struct sw_swap;

/*
 * sw_swap_open - creates files of `bytes` bytes in total, with their space reserved.
 *
 * SW_E_NOMEM   the disk has too little space
 * SW_E_IO      the folder does not exist, or a similar error
 */
sw_status sw_swap_open(const struct sw_swap_options *options, size_t bytes, struct sw_swap **out);
/* Creates a file in a folder whose file system cannot create one without a name. The name
 * exists until this returns. *out_path belongs to the arena, *out_fd to the caller. SW_E_IO,
 * SW_E_NOMEM. */
sw_status sw_swap_make_named(const char *folder, int rank, struct sw_arena *names,
                             const char **out_path, int *out_fd);
/* Closes the files, which are deleted then, or when the process ends for any reason. NULL is a
 * no-op. */
void sw_swap_close(struct sw_swap *swap);
sw_status sw_swap_read(struct sw_swap *swap, size_t at, void *data, size_t bytes);
sw_status sw_swap_write(struct sw_swap *swap, size_t at, const void *data, size_t bytes);
/* Reads rows `ids` [n] of a table that begins at byte `at`, into adjacent memory; n <=
 * SW_SWAP_ROWS. Rows that are adjacent on disk are read in one request. */
enum { SW_SWAP_ROWS = 128 };
sw_status sw_swap_read_rows(struct sw_swap *swap, size_t at, size_t row_bytes, const int32_t *ids,
                            int n, void *out);
/* The list of memory belongs to the request until it has ended. */
struct sw_swap_request {
    struct sw_nvme_segment memory;
    sw_nvme_ticket ticket;
};
sw_status sw_swap_begin(struct sw_swap *swap, bool write, size_t at, void *data, size_t bytes,
                        struct sw_swap_request *out);
/* Returns once the memory is no longer used, even after a failure. */
sw_status sw_swap_end(struct sw_swap *swap, const struct sw_swap_request *request);
sw_status sw_swap_zero(struct sw_swap *swap, size_t at, size_t bytes);
