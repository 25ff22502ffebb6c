// SPDX-License-Identifier: Apache-2.0
// What the files of the room share. A request (ticket) is cut into ops, each one transfer of at
// most block_bytes in one file, made as slots become free (split.c); a backend carries ops and
// reports each with a result (backend.h); drive.c takes an op from one to the other.
// Locks: store->lock guards everything of the store except what an op in flight owns (its own
// fields, its bounce buffer, the checksums of its granules). A backend's own lock is taken inside
// or after it, never the other way round.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "store/store.h"

enum {
    OP_PIECES = 16,   /* memory pieces of one op */
    MAX_LANES = 64,   /* intra_op_parallelism */
    MAX_SLOTS = 4096, /* queue_depth x lanes */
    MAX_PATHS = 256,
    MAX_BUFFERS = 64,    /* registered with one store */
    MESSAGE_BYTES = 1024 /* of a failed request */
};

/* ---- written ranges (extents.c): sorted, apart from each other, never more than cap ---- */

struct extent {
    int64_t begin, end;
};
struct extents {
    struct extent *items; /* [cap] */
    int64_t n, cap;
};
/* Both need room for one more. */
void sw_store_extents_add(struct extents *set, int64_t begin, int64_t end);
void sw_store_extents_remove(struct extents *set, int64_t begin, int64_t end);
/* The first range in [begin, end) that is not in the set; false when there is none. */
bool sw_store_extents_gap(const struct extents *set, int64_t begin, int64_t end,
                          struct extent *out);

/* ---- requests and ops ---- */

/* A place in a scatter list. */
struct place {
    int i_segment;
    size_t skip; /* bytes of it that lie before */
};

/* A contiguous slice of a request. */
struct lane {
    int64_t pos, end; /* in bytes of the request: the next op's, the slice's end */
    struct place place;
};

enum request_state { REQUEST_FREE, REQUEST_ACTIVE, REQUEST_FINISHED };

struct request {
    enum request_state state;
    bool write, stopped; /* stopped: no more ops; status says why */
    int64_t serial;      /* the ticket */
    int64_t offset, bytes;
    const struct sw_nvme_segment *segments; /* borrowed until the end */
    int n_segments;
    struct sw_nvme_segment single; /* for the blocking calls */
    struct lane *lanes;            /* [n_lanes] */
    int n_lanes, next_lane;
    int n_ops; /* in flight */
    sw_status status;
    struct request *next; /* of the active ones, oldest first */
    char message[MESSAGE_BYTES];
};

enum op_phase { OP_READ, OP_WRITE };

struct op {
    bool busy;
    bool edge;  /* the granule holds bytes of others too */
    bool write; /* what the request wants; an edge reads first */
    enum op_phase phase;
    struct sw_nvme *store;
    struct request *request;
    int i_file, i_bounce; /* i_bounce -1: into the caller's memory */
    int64_t file_offset;
    size_t bytes;      /* of the transfer */
    size_t done;       /* of them */
    int64_t pos;       /* first byte of the request that it moves */
    size_t user_bytes; /* bytes of the request that it moves */
    size_t skip;       /* they begin here in the transfer */
    struct place place;
    struct iovec pieces[OP_PIECES]; /* of what is left */
    int n_pieces;
    int n_retries;
    _Atomic bool cancelled;
    struct op *next; /* for the backend */
    int64_t due_ns;  /* for fault/ */
    int result;      /* for fault/ */
    int n_transfers, n_continued;
};

/* ---- backends ---- */

struct backend;

/*
 * start takes over an op and kick passes on those started; the result of each comes back by
 * sw_store_op_done, from a thread of the backend with none of its locks held: bytes moved, or
 * -errno. cancel, called with the store's lock held, makes an op return soon, as -ECANCELED if it
 * can. close is called when no op is in flight.
 */
struct backend_ops {
    const char *name;
    void (*close)(struct backend *backend);
    void (*start)(struct backend *backend, struct op *op);
    void (*kick)(struct backend *backend);
    void (*cancel)(struct backend *backend, struct op *op);
    /* Optional: false when the system refused; the index names it afterwards. */
    bool (*add_buffer)(struct backend *backend, int index, void *data, size_t bytes);
    void (*drop_buffer)(struct backend *backend, int index);
};
struct backend {
    const struct backend_ops *ops;
};
void sw_store_op_done(struct op *op, int result);

/* n_ops in flight at most. SW_E_UNSUP: this build, or the kernel, has it not. */
sw_status sw_store_uring_open(const int *fds, int n_fds, int n_ops, struct backend **out);
sw_status sw_store_threads_open(const int *fds, int n_fds, int n_ops, struct backend **out);
/* Owns inner from here on, also when it fails. */
sw_status sw_store_fault_open(const struct sw_nvme_fault *fault, size_t align,
                              struct backend *inner, struct backend **out);

/* ---- the store ---- */

struct store_file {
    char *path;
    int fd; /* -1 = none */
    int64_t bytes;
    bool made; /* was not there before */
};

struct sums {
    char *path;       /* of the side file; NULL = no checksums */
    int64_t n;        /* granules */
    uint32_t *crc;    /* [n] */
    uint8_t *known;   /* [n] 1: crc is that of the disk */
    bool on_disk;     /* the side file exists, perhaps of an older state */
    int64_t n_writes; /* that began */
};

struct sw_nvme {
    struct sw_nvme_options options; /* as used; fault not kept */
    int64_t bytes;
    int64_t written_before;   /* what the files held when they were opened */
    struct store_file *files; /* [n_files] */
    int *fds;                 /* [n_files] for the backend */
    int n_files;
    bool nameless; /* nothing finds the files again: no side file either */
    bool direct, preallocated;
    size_t align, memory_align; /* of O_DIRECT; 1 without */
    size_t granule;             /* align, or the block of the checksums where that is larger */
    struct backend *backend;
    char backend_name[32], note[256];

    pthread_mutex_t lock;
    pthread_cond_t changed;   /* a request finished */
    struct request *requests; /* [max_requests] */
    struct lane *lanes;       /* [max_requests, intra_op_parallelism] */
    struct request *oldest, *newest;
    int64_t n_tickets, next_serial, n_active_writes;
    struct op *ops; /* [n_ops] */
    int n_ops, n_busy;
    char *bounce; /* [n_bounce, bounce_each] */
    size_t bounce_each;
    int *free_bounce; /* [n_bounce] a stack */
    int n_bounce, n_free_bounce;
    struct extents extents;
    struct sums sums;
    struct sw_nvme_counters counters;
    bool buffer_used[MAX_BUFFERS];
    int64_t memory_bytes;
};

/* align.c: alignment that O_DIRECT wants on this file, by asking or by trying. */
struct alignment {
    bool direct;           /* it works at all */
    size_t offset, memory; /* bytes */
};
void sw_store_alignment(int fd, const char *path, struct alignment *out);

/* files.c, in this order: the files and the range; whether O_DIRECT, with align and memory_align;
 * lengths. O_DIRECT is probed on a file with bytes in it, so lengthen comes before and, with the
 * granule found, again. */
sw_status sw_store_files_open(struct sw_nvme *store);
sw_status sw_store_files_lengthen(struct sw_nvme *store, int64_t granule);
sw_status sw_store_files_direct(struct sw_nvme *store);
void sw_store_files_close(struct sw_nvme *store, bool failed);

/* split.c: the next op that may start, taken; NULL when there is none now. Lock held. */
struct op *sw_store_next_op(struct sw_nvme *store);
/* Cuts a fresh request into lanes. */
void sw_store_cut_lanes(struct sw_nvme *store, struct request *request);
/* Where a byte of the store lies. out_run: bytes from there on in the same file without a break. */
int sw_store_locate(const struct sw_nvme *store, int64_t offset, int64_t *out_file_offset,
                    int64_t *out_run);
/* The pieces of memory of what an op has left to move. */
void sw_store_op_pieces(struct op *op);
/* Copies between the bounce buffer of an op and the caller's memory. */
void sw_store_op_copy(struct op *op, bool to_caller);

/* drive.c: starts what may start. Lock not held. */
void sw_store_pump(struct sw_nvme *store);
/* Ends a request if it has nothing in flight and nothing to come. Lock held. */
void sw_store_complete(struct sw_nvme *store, struct request *request);

/* sums.c. Granules are those of the store's range. */
static inline bool sw_store_has_sums(const struct sw_nvme *store)
{
    return store->sums.path != NULL;
}
sw_status sw_store_sums_open(struct sw_nvme *store);
void sw_store_sums_close(struct sw_nvme *store);
sw_status sw_store_sums_save(struct sw_nvme *store);
/* The side file no longer describes the files. Lock held. */
void sw_store_sums_outdate(struct sw_nvme *store);
void sw_store_sums_set_known(struct sw_nvme *store, int64_t first, int64_t n, bool known);
/* Computes the checksums of what an op is about to write. */
void sw_store_sums_of_write(struct op *op);
/* Whether what an op has read is what was written; out_granule is the first that is not. */
bool sw_store_sums_hold(const struct op *op, int64_t *out_granule);
/* The first granule of the store that an op moves. */
int64_t sw_store_op_granule(const struct op *op);
/* The side file's name; the caller's (sw_free). */
char *sw_store_sums_path(const char *path);
