// SPDX-License-Identifier: Apache-2.0
// Ranks that train one model together, each with an engine of its own (spillway/engine.h,
// options.comm). A communicator has the collectives; what carries its messages is a transport:
// threads of one process, MPI, TCP, or the caller's own. Calls block, and come in the same order on
// every rank.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spillway/status.h"
#include "spillway/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- transports ---- */

struct sw_message {
    int peer;
    void *data; /* read only when sent */
    size_t bytes;
};

/* Messages that a rank sends and receives at once, none with itself. The n-th from a to b is what b
 * receives n-th from a. */
struct sw_exchange {
    const char *op;   /* for example "all_gather" */
    const char *what; /* the tensor, for whoever waits too long */
    int64_t sequence; /* of the collective, the same on all ranks; -1 = between two ranks only */
    const struct sw_message *sends, *receives;
    int n_sends, n_receives;
    int group; /* number of the communicator that it belongs to: sw_comm_open_group; 0 = of all */
};

/*
 * What carries messages. exchange returns when everything was received and may be overwritten where
 * it was sent from; SW_E_PEER names the ranks that did not come within the deadline, or came with
 * another operation, sequence or size. abort: this rank cannot go on; whoever waits for it gets
 * SW_E_PEER.
 */
struct sw_transport {
    void *ctx;
    int rank, size;
    sw_status (*exchange)(void *ctx, const struct sw_exchange *exchange);
    void (*abort)(void *ctx, sw_status reason);
    void (*close)(void *ctx, bool failed); /* NULL = nothing to close */
};

/* ---- communicators ---- */

typedef struct sw_comm sw_comm;

/* transport  copied; closed with the communicator. exchange may be NULL: good for plans only */
SW_API sw_status sw_comm_open(const struct sw_transport *transport, sw_comm **out);
/*
 * sw_comm_open_group - some of the ranks of a communicator, as one of its own: its collectives go
 * among its members, have a sequence of their own, and come in any order between those of other
 * groups. Bytes travel by the transport of `world`, and count there, too; a failure ends both.
 *
 * world    of all ranks; borrowed, closed after the group
 * number   above 0, the same on all members; tells it from other groups in use
 * ranks    [n] of world, ascending; this rank is one of them; copied
 * out      sw_comm_close; its ranks are 0 .. n - 1, in the order of `ranks`
 *
 * SW_E_ARG     world is a group itself; number is below 1; ranks are not ascending ranks of it, or
 *              lack this one
 */
SW_API sw_status sw_comm_open_group(sw_comm *world, int number, const int *ranks, int n,
                                    sw_comm **out);
/* failed: this rank did not end well, so a transport must not wait for the others. NULL is fine. */
SW_API void sw_comm_close(sw_comm *comm, bool failed);
SW_API int sw_comm_rank(const sw_comm *comm);
SW_API int sw_comm_size(const sw_comm *comm);

/* Ranks of one process share its processors: more than this many only wait for each other. */
enum { SW_THREAD_RANKS_MAX = 64, SW_DEADLINE_MAX_S = 1000000 };

/*
 * sw_threads_open - ranks that are threads of this process.
 *
 * size         1 .. SW_THREAD_RANKS_MAX; rank r is driven by a thread of its own, with comms[r]
 * deadline_s   longest wait for the others; then those who are missing are named, on every rank
 * out_comms    [size] filled; each sw_comm_close, when no rank uses any of them any more
 *
 * SW_E_ARG     size or deadline_s is out of range
 */
SW_API sw_status sw_threads_open(int size, double deadline_s, sw_comm **out_comms);
/* Opens, calls fn once a rank, each on a thread of its own, and closes. A rank that fails aborts;
 * the failure that the others only report is returned, with "rank R: " in front. */
typedef sw_status (*sw_rank_fn)(void *ctx, sw_comm *comm);
SW_API sw_status sw_threads_run(int size, double deadline_s, sw_rank_fn fn, void *ctx);

/* Ranks that are processes, on one machine or several, each connected to each by TCP. */
struct sw_tcp_options {
    int rank, size;
    const char *host; /* where rank 0 listens, .. */
    int port;         /* .. as all know */
    double deadline_s;
    /* [16] The same on all ranks and known to nobody else: each proves it to each before they take
     * part; it is not sent. NULL: host must be a loopback address, and any user of that machine can
     * take part. */
    const unsigned char *secret;
    const char *job; /* tells this start of the job from others with that secret; NULL: "" */
};
/*
 * sw_tcp_open - meets the others at rank 0. Who proves nothing, or counts other ranks, is turned
 * away without ending the meeting. What is sent afterwards is neither enciphered nor signed. Raises
 * the soft limit of open files to what the ranks need. Strings are borrowed for the call.
 *
 * SW_E_PEER    who did not come, by name; or this rank was turned away, and why
 * SW_E_CONFIG  no secret, and a host that is not loopback; a limit of open files below the ranks
 */
SW_API sw_status sw_tcp_open(const struct sw_tcp_options *options, struct sw_transport *out);

/*
 * sw_world_open - the ranks that a launcher started, if one did.
 *
 * mpirun and srun: Open MPI and MPICH are reached through modules beside the library, opened only
 * here; SPILLWAY_MPI=off ignores them, SPILLWAY_MODULES names the folder of the modules. Launchers
 * that say RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as `spillway launch` does: TCP, with the
 * secret that SPILLWAY_JOB_SECRET is (32 hexadecimal digits), or that is in the file (of mode 0600)
 * SPILLWAY_JOB_SECRET_FILE. Without one, on loopback only, and a line on standard error says so.
 *
 * out          NULL when this process was started alone
 *
 * SW_E_UNSUP   started as one of several, and this build has no module for that MPI, or that MPI,
 *              as under an srun without its --mpi, finds nobody else
 * SW_E_CONFIG  WORLD_SIZE without the others; no secret and a MASTER_ADDR that is not loopback
 */
SW_API sw_status sw_world_open(double deadline_s, sw_comm **out);
/* Whether the mpirun or srun of an MPI started this process: what it prints is carried elsewhere
 * then, though it may look like a terminal. */
SW_API bool sw_world_is_mpi(void);
/* Which MPIs sw_world_open can reach, one line each, for people. The caller's: sw_text_free. */
SW_API sw_status sw_world_text(char **out_text);

/* The transport `inner` with faults, for tests: exchanges count from 1, 0 = never. */
struct sw_fault_options {
    int64_t fail_at;   /* SW_E_IO instead of this exchange */
    int64_t silent_at; /* from this exchange on the rank says nothing more */
    double delay_s;    /* before each exchange */
    /* Of a wire, 0 = none: an exchange takes so much longer, both directions at once. Its rank
     * sleeps, as beside a network card. */
    double bytes_per_s;
};
/* inner  copied; closed with out. out is closed by the communicator it is given to. */
SW_API sw_status sw_fault_open(const struct sw_transport *inner,
                               const struct sw_fault_options *options, struct sw_transport *out);
/* Transports of sw_threads_open, for those who wrap them. */
SW_API sw_status sw_thread_transports_open(int size, double deadline_s,
                                           struct sw_transport *out_transports);

/* ---- collectives ---- */

// clang-format off
#define SW_COMM_OP_LIST(X)                \
    X(ALL_TO_ALL,     "all_to_all")       \
    X(ALL_GATHER,     "all_gather")       \
    X(REDUCE_SCATTER, "reduce_scatter")   \
    X(BROADCAST,      "broadcast")        \
    X(SEND,           "send")             \
    X(RECEIVE,        "receive")          \
    X(BARRIER,        "barrier")          \
    X(AGREE,          "agree")
// clang-format on
enum sw_comm_op {
#define SW_COMM_ENUM(name, text) SW_COMM_##name,
    SW_COMM_OP_LIST(SW_COMM_ENUM)
#undef SW_COMM_ENUM
        SW_COMM_OP_COUNT
};

/* One of several that travel together. */
struct sw_comm_item {
    /* SW_COMM_ALL_TO_ALL, SW_COMM_REDUCE_SCATTER (its exchange) or _ALL_GATHER */
    enum sw_comm_op op;
    const void *src;
    void *dst;
    size_t slice_bytes;
    const char *what;
};
/* The same items on every rank, in one exchange. */
SW_API sw_status sw_comm_run(sw_comm *comm, const struct sw_comm_item *items, int n_items);
/* Memory for sw_comm_run of so many items, so that no later call allocates. */
SW_API sw_status sw_comm_reserve(sw_comm *comm, int n_items);

/* Slice r of src ([size] slices) goes to rank r; dst [size] slices in rank order. */
SW_API sw_status sw_comm_all_to_all(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                                    const char *what);
/* dst [size] slices in rank order; src may be its own place in dst. */
SW_API sw_status sw_comm_all_gather(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                                    const char *what);

/* A sum over ranks in the canonical order: rank by rank onto acc, in fp32 whatever dtype is
 * sent. */
struct sw_reduction {
    enum sw_dtype dtype; /* of src and workspace: SW_F32, SW_BF16, SW_F16 */
    const void *src;     /* [size, n] */
    void *workspace;     /* [size, n] */
    float *acc;          /* [n] the slice of this rank */
    int64_t n;
    bool fresh;         /* acc holds nothing yet: the first addend is copied */
    int n_contributors; /* the first ranks; what the others send is not added. 0 = all */
};
/* Adds what the ranks sent: workspace [size, n] in rank order, acc as in struct sw_reduction. */
SW_API void sw_comm_add_slices(const struct sw_reduction *reduction, int n_ranks);
/* Bytes of an all-to-all; the classic reduce-scatter has no fixed order. */
SW_API sw_status sw_comm_reduce_scatter(sw_comm *comm, const struct sw_reduction *reduction,
                                        const char *what);
/* The same, and everybody gets all slices: whole [size, n] fp32; acc may lie in its own place
 * there. */
SW_API sw_status sw_comm_all_reduce(sw_comm *comm, const struct sw_reduction *reduction,
                                    float *whole, const char *what);
SW_API sw_status sw_comm_broadcast(sw_comm *comm, int root, void *data, size_t bytes,
                                   const char *what);
/* Between two ranks; peer must do the other half. */
SW_API sw_status sw_comm_send(sw_comm *comm, int peer, const void *data, size_t bytes,
                              const char *what);
SW_API sw_status sw_comm_receive(sw_comm *comm, int peer, void *data, size_t bytes,
                                 const char *what);
SW_API sw_status sw_comm_barrier(sw_comm *comm, const char *what);
/* Everybody gives a status; SW_OK when all did well, else this rank's own failure, else SW_E_PEER
 * naming the first rank that failed. */
SW_API sw_status sw_comm_agree(sw_comm *comm, sw_status mine, const char *what);
/* This rank cannot go on: whoever waits for it gets an error instead. */
SW_API void sw_comm_abort(sw_comm *comm, sw_status reason);

/* ---- what was sent, counted where it leaves ---- */

SW_API const char *sw_comm_op_name(enum sw_comm_op op);

struct sw_traffic { /* of one rank, since the communicator was opened */
    int64_t calls[SW_COMM_OP_COUNT];
    int64_t sent[SW_COMM_OP_COUNT]; /* bytes to other ranks */
};
SW_API void sw_comm_traffic(const sw_comm *comm, struct sw_traffic *out);

#ifdef __cplusplus
}
#endif
