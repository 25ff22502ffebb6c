// SPDX-License-Identifier: Apache-2.0
// Files on fast disks as one range of bytes. Requests may have any offset, any length and any
// memory, and many may be in flight. They bypass the page cache if the file system allows it. This
// part needs nothing else of the library. The manual page is docs/nvme.md.
//
// Any thread may begin and wait. One thread opens and closes, while no other uses the store.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_nvme sw_nvme;               /* one range of bytes over one or more files */
typedef struct sw_nvme_buffer sw_nvme_buffer; /* memory for the fastest transfers */
typedef int64_t sw_nvme_ticket;               /* a request in flight */

/* AUTO uses O_DIRECT if the file system supports it. ON fails if it does not. */
enum sw_nvme_direct { SW_NVME_DIRECT_AUTO, SW_NVME_DIRECT_ON, SW_NVME_DIRECT_OFF };
/* AUTO uses io_uring if the kernel allows it; else it uses threads and logs that. */
enum sw_nvme_backend { SW_NVME_BACKEND_AUTO, SW_NVME_BACKEND_URING, SW_NVME_BACKEND_THREADS };

/* For tests: a fault of transfers at .. at+count-1. Transfers to the backend count from 1; each
 * part of a request and each retry counts. */
enum sw_nvme_fault_action {
    SW_NVME_FAULT_NONE,
    SW_NVME_FAULT_EIO,
    SW_NVME_FAULT_ENOSPC,
    SW_NVME_FAULT_EINTR,
    SW_NVME_FAULT_SHORT, /* transfers half of the bytes */
    SW_NVME_FAULT_DELAY  /* waits delay_s first; a cancel ends the wait */
};
struct sw_nvme_fault {
    enum sw_nvme_fault_action action;
    int64_t at, count; /* count 0 = 1; -1 = all from `at` on */
    double delay_s;    /* of DELAY, and before EIO, ENOSPC and EINTR */
};

/* A number of 0 means the default in brackets. sw_nvme_options_init fills in all defaults. */
struct sw_nvme_options {
    int64_t block_bytes; /* largest single transfer (1 MiB) */
    int64_t queue_depth; /* transfers in flight per lane (8) */
    /* Lanes: number of contiguous slices of a request that are served in parallel (1). */
    int64_t intra_op_parallelism;
    bool single_submit;         /* submit transfers to the kernel one by one, not in batches */
    bool overlap_events;        /* submit transfers while others complete; false: in batches */
    enum sw_nvme_direct direct; /* O_DIRECT */
    enum sw_nvme_backend backend;
    /* [n_paths] descriptors of new, empty files, open for reading and writing; NULL = open the
     * files by their paths. The store owns the descriptors from the call on, even if it fails.
     * Paths then serve only as names. The caller may unlink the files first, so that a killed
     * process leaves nothing behind. */
    const int *fds;
    bool reopen;            /* keep the content of the files; false: they must not exist yet */
    bool read_only;         /* only with reopen */
    bool preallocate;       /* reserve the space when opening */
    int64_t stripe_bytes;   /* bytes per stripe; stripes rotate over the paths (1 MiB) */
    int64_t checksum_bytes; /* block size of CRC-32C checksums; 0 = no checksums */
    int64_t max_requests;   /* number of tickets (256) */
    int64_t max_extents;    /* maximum of separate written ranges (65536) */
    int64_t bounce_bytes;   /* buffer for unaligned transfers (4 MiB) */
    double deadline_s;      /* longest wait (300) */
    const struct sw_nvme_fault *fault; /* copied; NULL = none */
};
/* Sets every field to its default. */
SW_API void sw_nvme_options_init(struct sw_nvme_options *out);

/*
 * sw_nvme_open - open a range of `bytes` bytes over files.
 *
 * The files are created (mode 0600), or opened if options->reopen is set. They are locked against
 * other users and extended as needed, to a multiple of the block size. After this call only
 * sw_nvme_flush and sw_nvme_buffer_open allocate memory.
 *
 * paths        [n_paths] one file each, best on different disks; the range is striped over them
 * bytes        length of the range; 0 with reopen and one path: the length of the file
 * options      copied; NULL = the defaults
 *
 * SW_E_NOMEM   the disk has too little space (path, bytes needed, bytes free), or host memory is
 *              exhausted
 * SW_E_IO      path and the system's message; also if another store has the file open, or if the
 *              file exists and reopen is not set: it is then left unchanged
 * SW_E_UNSUP   O_DIRECT or io_uring was required and is not available
 * SW_E_FORMAT  reopen with checksums: the side file is missing or belongs to other files
 *
 * A failure leaves the files as they were, and no new ones.
 */
SW_API sw_status sw_nvme_open(const char *const *paths, int n_paths, int64_t bytes,
                              const struct sw_nvme_options *options, sw_nvme **out);
/* Cancels the requests in flight and waits for them. With checksums, call sw_nvme_flush first to
 * learn of a failure, because this call only logs it. Close the store's buffers first. NULL is a
 * no-op. */
SW_API void sw_nvme_close(sw_nvme *store);
/* Waits until the writes in flight are finished, makes all written bytes durable (fdatasync) and
 * writes the side file of the checksums. Tickets must still be waited for. Writes that begin
 * meanwhile are not waited for; the side file is then not written. */
SW_API sw_status sw_nvme_flush(sw_nvme *store);
/* Removes the files and the side file. Missing files are not an error. */
SW_API sw_status sw_nvme_remove(const char *const *paths, int n_paths);

/* ---- requests ---- */

struct sw_nvme_segment {
    void *data; /* only read by a write; any alignment */
    size_t bytes;
};

/*
 * sw_nvme_begin_read, sw_nvme_begin_write - start a transfer of a contiguous range of the store.
 *
 * thread       any; several threads may use one store
 *
 * offset       offset of the first byte; any alignment
 * segments     [n_segments] memory, in the order of the file. The list and the memory belong to the
 *              request until it has been waited for or polled to its end, also after a cancel
 *
 * SW_OK        accepted; sw_nvme_wait or sw_nvme_poll return the result
 * SW_E_ARG     the range is outside of the store; or a read covers bytes that were never written
 *              (named); or the range overlaps a request in flight and one of the two writes: wait
 *              for that request first
 * SW_E_NOMEM   all tickets are taken (the call does not wait, because only the caller can release
 *              one), or too many separate ranges were written (max_extents)
 */
SW_API sw_status sw_nvme_begin_read(sw_nvme *store, int64_t offset,
                                    const struct sw_nvme_segment *segments, int n_segments,
                                    sw_nvme_ticket *out_ticket);
SW_API sw_status sw_nvme_begin_write(sw_nvme *store, int64_t offset,
                                     const struct sw_nvme_segment *segments, int n_segments,
                                     sw_nvme_ticket *out_ticket);

/*
 * sw_nvme_wait - wait for a request, return its result and release its ticket.
 *
 * deadline_s   0 = deadline of the store
 *
 * SW_E_IO      a transfer failed: path, offset, length, the system's message. After a failed or
 *              cancelled write its bytes count as never written.
 *              Also if the deadline passed. The request then goes on and keeps its ticket: cancel
 *              it, or wait again. sw_nvme_in_flight tells the two cases apart
 * SW_E_FORMAT  a block does not match its checksum: path and block
 * SW_E_STOP    the request was cancelled
 * SW_E_ARG     no such ticket
 */
SW_API sw_status sw_nvme_wait(sw_nvme *store, sw_nvme_ticket ticket, double deadline_s);
/* Waits for all tickets as sw_nvme_wait does. Returns the first failure once all are finished,
 * without those of tickets that other threads wait for. */
SW_API sw_status sw_nvme_wait_all(sw_nvme *store, double deadline_s);
/* Returns SW_PENDING if the request is in flight, else the same as sw_nvme_wait. */
SW_API sw_status sw_nvme_poll(sw_nvme *store, sw_nvme_ticket ticket);
/* Asks a request to stop. Its ticket must still be waited for; the result is SW_E_STOP, or that of
 * the request if it finished first. */
SW_API sw_status sw_nvme_cancel(sw_nvme *store, sw_nvme_ticket ticket);
/* Whether the ticket is still taken. After a failed wait, true means that only the deadline
 * passed. */
SW_API bool sw_nvme_in_flight(sw_nvme *store, sw_nvme_ticket ticket);

/* Begin a request and wait for it. If the deadline passes, the request is cancelled. The calls
 * return once the memory is no longer used. */
SW_API sw_status sw_nvme_read(sw_nvme *store, int64_t offset, void *data, size_t bytes);
SW_API sw_status sw_nvme_write(sw_nvme *store, int64_t offset, const void *data, size_t bytes);

/* Reads every block that has a checksum and compares it. *out_bytes (may be NULL) is the number of
 * bytes compared. SW_E_FORMAT: path and block of the first mismatch. SW_E_ARG: the store was opened
 * without checksums. */
SW_API sw_status sw_nvme_verify(sw_nvme *store, int64_t *out_bytes);

/* ---- memory ---- */

struct sw_nvme_buffer_info {
    void *data; /* aligned to 4096 bytes; buffers of 16 MiB or more are aligned to 2 MiB */
    size_t bytes;
    bool locked;     /* pinned in physical memory by registration or mlock */
    bool huge_pages; /* the system accepted the request for huge pages */
    bool registered; /* registered with io_uring, which saves page lookups in the kernel */
};
/* Allocates a transfer buffer. store: the store whose io_uring registers it; NULL = none. Features
 * that the system refuses are left out, as sw_nvme_buffer_get_info reports. */
SW_API sw_status sw_nvme_buffer_open(sw_nvme *store, size_t bytes, sw_nvme_buffer **out);
SW_API void sw_nvme_buffer_close(sw_nvme_buffer *buffer); /* NULL is a no-op */
SW_API void sw_nvme_buffer_get_info(const sw_nvme_buffer *buffer, struct sw_nvme_buffer_info *out);

/* ---- information and counters ---- */

struct sw_nvme_info {
    const char *backend; /* "io_uring" or "threads"; with the prefix "fault:" in tests */
    const char *note;    /* reason why io_uring is not used; "" if it is, or was not requested */
    bool direct, preallocated;
    int64_t bytes;         /* length of the range */
    int64_t block_bytes;   /* block size in use */
    int64_t granule_bytes; /* unit of transfers with O_DIRECT and of checksums */
    int64_t memory_align;  /* memory with less alignment is copied through a bounce buffer */
    int64_t memory_bytes;  /* memory of the store itself */
};
/* Reads what was chosen when the store opened. Strings are lent until it closes. */
SW_API void sw_nvme_get_info(const sw_nvme *store, struct sw_nvme_info *out);

struct sw_nvme_counters {                      /* totals since opening */
    int64_t read_bytes, write_bytes;           /* bytes of requests that succeeded */
    int64_t disk_read_bytes, disk_write_bytes; /* bytes of transfers, with edges and retries */
    int64_t n_transfers, n_bounced, n_edges;   /* n_edges: granules read, modified and written */
    int64_t n_continued, n_retried;            /* after a short transfer; after EINTR, EAGAIN */
};
/* Reads the counters; any thread. */
SW_API void sw_nvme_get_counters(sw_nvme *store, struct sw_nvme_counters *out);

#ifdef __cplusplus
}
#endif
