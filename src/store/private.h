// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of the room. A request (ticket) is cut into ops as slots become
// free (split.c). An op is one transfer of at most block_bytes in one file. A backend runs ops and
// reports a result for each (struct backend_ops). drive.c takes each op through the backend. Locks:
// store->lock guards the whole store, except for state that an op in flight owns: its own fields,
// its bounce buffer, and the checksums of its granules. A backend's own lock may be taken while
// store->lock is held, never the reverse.
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
    MAX_BUFFERS = 64,      /* registered buffers of one store */
    RANGES_OF_A_WRITE = 3, /* the most that a failed write adds to the written ranges */
    MESSAGE_BYTES = 1024   /* error message of a request */
};

/* ---- written ranges (extents.c): sorted, not touching, at most cap ---- */

struct extent {
    int64_t begin, end;
};
struct extents {
    struct extent *items; /* [cap] */
    int64_t n, cap;
};
/* Whether a range in the set overlaps [begin, end), or touches it. */
bool sw_store_extents_touch(const struct extents *set, int64_t begin, int64_t end);
/* Both functions need room for one more item. */
void sw_store_extents_add(struct extents *set, int64_t begin, int64_t end);
void sw_store_extents_remove(struct extents *set, int64_t begin, int64_t end);
/* Finds the first range in [begin, end) that is not in the set. Returns false if there is none. */
bool sw_store_extents_gap(const struct extents *set, int64_t begin, int64_t end,
                          struct extent *out);

/* ---- requests and ops ---- */

/* A position in a scatter list. */
struct place {
    int i_segment;
    size_t skip; /* offset in the segment */
};

/* A contiguous part of a request. */
struct lane {
    int64_t pos, end; /* offsets in the request: of the next op, and the end of the lane */
    struct place place;
};

enum request_state { REQUEST_FREE, REQUEST_ACTIVE, REQUEST_FINISHED };

struct request {
    enum request_state state;
    bool write, stopped; /* stopped: start no more ops; status has the reason */
    int64_t serial;      /* serial number of the ticket */
    int64_t offset, bytes;
    const struct sw_nvme_segment *segments; /* borrowed until the request ends */
    int n_segments;
    struct sw_nvme_segment single; /* for the blocking calls */
    struct lane *lanes;            /* [n_lanes] */
    int n_lanes, next_lane;
    int n_ops; /* ops in flight */
    sw_status status;
    struct request *next; /* next active request, oldest first */
    char message[MESSAGE_BYTES];
};

enum op_phase { OP_READ, OP_WRITE };

struct op {
    bool busy;
    bool edge;  /* the granule also holds bytes of others */
    bool write; /* direction of the request; an edge op reads first */
    enum op_phase phase;
    struct sw_nvme *store;
    struct request *request;
    int i_file, i_bounce; /* i_bounce -1: transfers directly to or from the caller's memory */
    int64_t file_offset;
    size_t bytes;      /* length of the transfer */
    size_t done;       /* bytes transferred so far */
    int64_t pos;       /* first byte of the request that it moves */
    size_t user_bytes; /* bytes of the request that it moves */
    size_t skip;       /* offset of these bytes in the transfer */
    struct place place;
    struct iovec pieces[OP_PIECES]; /* memory of the remaining bytes */
    int n_pieces;
    int n_retries;
    _Atomic bool cancelled;
    struct op *next; /* used by the backend */
    int64_t due_ns;  /* used by fault/ */
    int result;      /* used by fault/ */
    int n_transfers, n_continued;
};

/* ---- backends ---- */

struct backend;

/*
 * start takes over an op, and kick submits the started ops. Each op's result is reported through
 * sw_store_op_done: bytes moved, or -errno. The report comes from a thread of the backend that
 * holds none of its locks. cancel is called with the store's lock held. It makes an op return soon,
 * as -ECANCELED if it can. close is called when no op is in flight.
 */
struct backend_ops {
    const char *name;
    void (*close)(struct backend *backend);
    void (*start)(struct backend *backend, struct op *op);
    void (*kick)(struct backend *backend);
    void (*cancel)(struct backend *backend, struct op *op);
    /* Optional. Returns false if the system refuses; `index` names the buffer afterwards. */
    bool (*add_buffer)(struct backend *backend, int index, void *data, size_t bytes);
    void (*drop_buffer)(struct backend *backend, int index);
};
struct backend {
    const struct backend_ops *ops;
};
void sw_store_op_done(struct op *op, int result);

/* n_ops: limit on ops in flight. SW_E_UNSUP: this build or the kernel does not support the
 * backend. */
sw_status sw_store_uring_open(const int *fds, int n_fds, int n_ops, struct backend **out);
sw_status sw_store_threads_open(const int *fds, int n_fds, int n_ops, struct backend **out);
/* Takes ownership of inner, even if it fails. */
sw_status sw_store_fault_open(const struct sw_nvme_fault *fault, size_t align,
                              struct backend *inner, struct backend **out);

/* ---- the store ---- */

struct store_file {
    char *path;
    int fd; /* -1 = none */
    int64_t bytes;
    int64_t grown_from; /* its length before this store made it longer; -1 = the same */
    bool made;          /* created by this store */
};

struct sums {
    char *path;       /* path of the side file; NULL = no checksums */
    int64_t n;        /* number of granules */
    uint32_t *crc;    /* [n] */
    uint8_t *known;   /* [n] 1: crc matches the disk */
    bool on_disk;     /* a side file exists, possibly of an older state */
    int64_t n_writes; /* number of writes started */
};

struct sw_nvme {
    struct sw_nvme_options options; /* the options in use, without fault */
    int64_t bytes;
    int64_t written_before;   /* bytes written in the files when they were opened */
    struct store_file *files; /* [n_files] */
    int *fds;                 /* [n_files] for the backend */
    int n_files;
    bool nameless; /* the files have no names, so there is no side file either */
    bool direct, preallocated;
    size_t align, memory_align; /* of O_DIRECT; 1 without */
    size_t granule;             /* align, or the checksum block if that is larger */
    struct backend *backend;
    char backend_name[32], note[256];

    pthread_mutex_t lock;
    pthread_cond_t changed;   /* signalled when a request finishes */
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

/* align.c: alignment that O_DIRECT needs on this file, found by asking or by trying. */
struct alignment {
    bool direct;           /* O_DIRECT works */
    size_t offset, memory; /* bytes */
};
void sw_store_alignment(int fd, const char *path, struct alignment *out);

/* files.c, called in this order: open the files and the range; decide on O_DIRECT, align and
 * memory_align; set the lengths. The O_DIRECT probe needs a file with bytes in it, so lengthen is
 * called before it, and again once the granule is known. */
sw_status sw_store_files_open(struct sw_nvme *store);
sw_status sw_store_files_lengthen(struct sw_nvme *store, int64_t granule);
sw_status sw_store_files_direct(struct sw_nvme *store);
void sw_store_files_close(struct sw_nvme *store, bool failed);

/* split.c: takes the next op that may start; NULL if there is none now. Lock held. */
struct op *sw_store_next_op(struct sw_nvme *store);
/* Cuts a new request into lanes. */
void sw_store_cut_lanes(struct sw_nvme *store, struct request *request);
/* Maps an offset in the store to a file. out_run: contiguous bytes in that file from there. */
int sw_store_locate(const struct sw_nvme *store, int64_t offset, int64_t *out_file_offset,
                    int64_t *out_run);
/* Computes the memory pieces for the rest of an op. */
void sw_store_op_pieces(struct op *op);
/* Copies between the bounce buffer of an op and the caller's memory. */
void sw_store_op_copy(struct op *op, bool to_caller);

/* drive.c: starts all ops that may start. Lock not held. */
void sw_store_pump(struct sw_nvme *store);
/* Ends a request if it has no ops in flight and none left to start. Lock held. */
void sw_store_complete(struct sw_nvme *store, struct request *request);

/* request.c: all requests so far have lower tickets. Lock not held. */
int64_t sw_store_next_ticket(struct sw_nvme *store);
/* Waits for the writes with tickets below `before`. *out_n_writes: how many writes were started, if
 * none was in flight then, else -1. Lock not held. */
sw_status sw_store_wait_for_writes(struct sw_nvme *store, int64_t before, int64_t *out_n_writes);

/* sums.c. Granules are counted over the store's range. */
static inline bool sw_store_has_sums(const struct sw_nvme *store)
{
    return store->sums.path != NULL;
}
sw_status sw_store_sums_open(struct sw_nvme *store);
void sw_store_sums_close(struct sw_nvme *store);
/* Writes the side file, unless a write has started since n_writes were (-1 = one was in flight). */
sw_status sw_store_sums_save(struct sw_nvme *store, int64_t n_writes);
/* A write starts: removes the side file. Lock held. */
void sw_store_sums_outdate(struct sw_nvme *store);
void sw_store_sums_set_known(struct sw_nvme *store, int64_t first, int64_t n, bool known);
/* Computes the checksums of the bytes that an op will write. */
void sw_store_sums_of_write(struct op *op);
/* Returns whether an op has read the bytes that were written. out_granule: the first mismatch. */
bool sw_store_sums_hold(const struct op *op, int64_t *out_granule);
/* The first granule of the store that an op moves. */
int64_t sw_store_op_granule(const struct op *op);
/* The side file's name; the caller frees it (sw_free). */
char *sw_store_sums_path(const char *path);
