// SPDX-License-Identifier: Apache-2.0
// Files on fast disks as one range of bytes: read and written in any place, at any length, from any
// memory, many requests at a time, past the page cache where the file system allows it. Stands
// alone: needs nothing else of the library. The manual page is docs/nvme.md.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_nvme sw_nvme;               /* one range of bytes over one or more files */
typedef struct sw_nvme_buffer sw_nvme_buffer; /* memory that transfers like best */
typedef int64_t sw_nvme_ticket;               /* a request that was begun */

/* AUTO takes O_DIRECT where the file system has it; ON is refused where it has not. */
enum sw_nvme_direct { SW_NVME_DIRECT_AUTO, SW_NVME_DIRECT_ON, SW_NVME_DIRECT_OFF };
/* AUTO takes io_uring where the kernel gives it, else threads, and says so in the log. */
enum sw_nvme_backend { SW_NVME_BACKEND_AUTO, SW_NVME_BACKEND_URING, SW_NVME_BACKEND_THREADS };

/* For tests: what happens instead of, or before, the transfers number at .. at+count-1 that are
 * handed to the backend; parts of requests and their repetitions count one by one, from 1. */
enum sw_nvme_fault_action {
    SW_NVME_FAULT_NONE,
    SW_NVME_FAULT_EIO,
    SW_NVME_FAULT_ENOSPC,
    SW_NVME_FAULT_EINTR,
    SW_NVME_FAULT_SHORT, /* transfers half of what was asked */
    SW_NVME_FAULT_DELAY  /* waits delay_s first; a cancel ends the wait */
};
struct sw_nvme_fault {
    enum sw_nvme_fault_action action;
    int64_t at, count; /* count 0 = 1; -1 = for ever */
    double delay_s;
};

/* A number of 0 means the default in brackets. sw_nvme_options_init fills in all defaults. */
struct sw_nvme_options {
    int64_t block_bytes; /* largest single transfer (1 MiB) */
    int64_t queue_depth; /* transfers in flight a lane (8) */
    /* lanes: contiguous slices of a request served side by side (1) */
    int64_t intra_op_parallelism;
    bool single_submit;         /* hand transfers to the kernel one by one, not in batches */
    bool overlap_events;        /* begin transfers while others complete; false: batch by batch */
    enum sw_nvme_direct direct; /* O_DIRECT */
    enum sw_nvme_backend backend;
    /* [n_paths] NULL = files are opened by their paths. Else new, empty files that the caller made,
     * open for both: the store's from the call on, also where it fails. Paths only name them then,
     * so the caller may unlink them before: nothing is left of a process that is killed. */
    const int *fds;
    bool reopen;            /* keep what the files hold; false: they must not exist yet */
    bool read_only;         /* with reopen */
    bool preallocate;       /* reserve the space when opening */
    int64_t stripe_bytes;   /* bytes on one path before the next one's turn (1 MiB) */
    int64_t checksum_bytes; /* a CRC-32C for each block of so many bytes; 0 = none */
    int64_t max_requests;   /* tickets (256) */
    int64_t max_extents;    /* separate written ranges that are remembered (65536) */
    int64_t bounce_bytes;   /* memory for what is not aligned (4 MiB) */
    double deadline_s;      /* longest wait (300) */
    const struct sw_nvme_fault *fault; /* copied; NULL = none */
};
SW_API void sw_nvme_options_init(struct sw_nvme_options *out);

/*
 * sw_nvme_open - a range of `bytes` bytes over files.
 *
 * The files are created (for their owner alone, mode 0600), or opened where options->reopen says
 * so, locked against a second user, and made as long as needed; their length is rounded up to whole
 * blocks. Nothing but sw_nvme_flush and sw_nvme_buffer_open allocates afterwards.
 *
 * paths        [n_paths] one file each, best on different disks: bytes go round over them
 * bytes        of the range; 0 with reopen and one path: what the file has
 * options      copied; NULL = the defaults
 *
 * SW_E_NOMEM   the disk has too little space: path, what is needed, what is free; or host memory
 * SW_E_IO      path and system's message; also a file that somebody else has open here, and one
 *              that exists where none was to be reopened: it is left as it is
 * SW_E_UNSUP   O_DIRECT or io_uring was insisted on and is not to be had
 * SW_E_FORMAT  reopen with checksums: the side file is missing or not of these files
 */
SW_API sw_status sw_nvme_open(const char *const *paths, int n_paths, int64_t bytes,
                              const struct sw_nvme_options *options, sw_nvme **out);
/* Cancels what is in flight and waits for it. With checksums, call sw_nvme_flush first to learn of
 * a failure; here it is only logged. Buffers opened with the store are closed before. NULL is
 * fine. */
SW_API void sw_nvme_close(sw_nvme *store);
/* Waits until the writes in flight are finished, makes all written bytes durable (fdatasync) and
 * writes the side file of the checksums. Tickets stay to be waited for. */
SW_API sw_status sw_nvme_flush(sw_nvme *store);
/* Removes the files and the side file. Missing ones are fine. */
SW_API sw_status sw_nvme_remove(const char *const *paths, int n_paths);

/* ---- requests ---- */

struct sw_nvme_segment {
    void *data; /* only read by a write; any alignment */
    size_t bytes;
};

/*
 * sw_nvme_begin_read, sw_nvme_begin_write - start a transfer of a contiguous range of the store.
 *
 * thread       any; several may use one store
 *
 * offset       of the first byte; any
 * segments     [n_segments] memory, in the order of the file. The list and the memory belong to the
 *              request until it has been waited for or polled to its end, also after a cancel
 *
 * SW_OK        accepted; the result comes with sw_nvme_wait or sw_nvme_poll
 * SW_E_ARG     outside of the store; read of bytes that were never written, naming them; overlap
 *              with a request in flight of which one writes: wait for it first
 * SW_E_NOMEM   all tickets are taken (never waits for one: only the caller can give one back), or
 *              too many separate ranges were written (max_extents)
 */
SW_API sw_status sw_nvme_begin_read(sw_nvme *store, int64_t offset,
                                    const struct sw_nvme_segment *segments, int n_segments,
                                    sw_nvme_ticket *out_ticket);
SW_API sw_status sw_nvme_begin_write(sw_nvme *store, int64_t offset,
                                     const struct sw_nvme_segment *segments, int n_segments,
                                     sw_nvme_ticket *out_ticket);

/*
 * sw_nvme_wait - the result of a request; gives its ticket back.
 *
 * deadline_s   0 = that of the store
 *
 * SW_E_IO      a transfer failed: path, offset, length, the system's message. After a failed or
 *              cancelled write its bytes count as never written.
 *              Also: not finished within the deadline; then the request goes on and the ticket is
 *              still taken (sw_nvme_in_flight tells the two apart): cancel it, or wait again
 * SW_E_FORMAT  a block does not have its checksum: path and block
 * SW_E_STOP    cancelled
 * SW_E_ARG     no such ticket
 */
SW_API sw_status sw_nvme_wait(sw_nvme *store, sw_nvme_ticket ticket, double deadline_s);
/* All tickets, each as sw_nvme_wait; the first failure is returned when all are finished. */
SW_API sw_status sw_nvme_wait_all(sw_nvme *store, double deadline_s);
/* SW_PENDING, or as sw_nvme_wait. */
SW_API sw_status sw_nvme_poll(sw_nvme *store, sw_nvme_ticket ticket);
/* Asks a request to stop. It is still to be waited for: SW_E_STOP, or its result if it was
 * faster. */
SW_API sw_status sw_nvme_cancel(sw_nvme *store, sw_nvme_ticket ticket);
/* Whether the ticket is still taken: after a wait that failed, whether only its deadline passed. */
SW_API bool sw_nvme_in_flight(sw_nvme *store, sw_nvme_ticket ticket);

/* Begin and wait. When the deadline passes the request is cancelled; they return when the memory is
 * no longer used. */
SW_API sw_status sw_nvme_read(sw_nvme *store, int64_t offset, void *data, size_t bytes);
SW_API sw_status sw_nvme_write(sw_nvme *store, int64_t offset, const void *data, size_t bytes);

/* Reads every block that has a checksum and compares; out_bytes (may be NULL) were compared.
 * SW_E_FORMAT: path and block of the first that differs. SW_E_ARG: opened without checksums. */
SW_API sw_status sw_nvme_verify(sw_nvme *store, int64_t *out_bytes);

/* ---- memory ---- */

struct sw_nvme_buffer_info {
    void *data; /* aligned to 4096, from 16 MiB on to 2 MiB */
    size_t bytes;
    bool locked;     /* in physical memory: registered, or by mlock */
    bool huge_pages; /* the system was asked for them and did not refuse */
    bool registered; /* with io_uring: the kernel need not look the pages up again */
};
/* store  whose io_uring it is registered with; NULL = none. What the system does not give is left
 *        out, and the info says so. */
SW_API sw_status sw_nvme_buffer_open(sw_nvme *store, size_t bytes, sw_nvme_buffer **out);
SW_API void sw_nvme_buffer_close(sw_nvme_buffer *buffer); /* NULL is fine */
SW_API void sw_nvme_buffer_get_info(const sw_nvme_buffer *buffer, struct sw_nvme_buffer_info *out);

/* ---- what was opened, and what it did ---- */

struct sw_nvme_info {
    const char *backend; /* "io_uring" or "threads"; behind "fault:" for tests */
    const char *note;    /* why not io_uring; "" when it was not wanted or is used */
    bool direct, preallocated;
    int64_t bytes;         /* of the range */
    int64_t block_bytes;   /* as used */
    int64_t granule_bytes; /* transfers past the page cache, and checksums, are in whole granules */
    int64_t memory_align;  /* memory not aligned so goes through a copy */
    int64_t memory_bytes;  /* that the store itself holds */
};
SW_API void sw_nvme_get_info(const sw_nvme *store, struct sw_nvme_info *out);

struct sw_nvme_counters {                      /* since opening */
    int64_t read_bytes, write_bytes;           /* of requests that succeeded */
    int64_t disk_read_bytes, disk_write_bytes; /* of transfers: with heads, tails and repetitions */
    int64_t n_transfers, n_bounced, n_edges;   /* n_edges: granules read, changed and written */
    int64_t n_continued, n_retried;            /* after a short transfer; after EINTR, EAGAIN */
};
SW_API void sw_nvme_get_counters(sw_nvme *store, struct sw_nvme_counters *out);

#ifdef __cplusplus
}
#endif
