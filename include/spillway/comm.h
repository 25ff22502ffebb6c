// SPDX-License-Identifier: Apache-2.0
// Communication between ranks that train one model together. Each rank has its own engine
// (spillway/engine.h, options.comm). A communicator provides the collectives. A transport carries
// its messages: threads of one process, MPI, TCP, or your own.
//
// Calls that take a sw_comm and return a status are collective: all its ranks make them in the same
// order, and they block until the messages have passed. Exceptions are sw_comm_send,
// sw_comm_receive, sw_comm_reserve and sw_comm_name_ranks. SW_E_PEER: another rank failed, or did
// not come within the deadline; names the rank. Memory is borrowed for the call.
//
// One thread at a time uses a communicator. A world and its groups are different communicators,
// which different threads may use at the same time.
//
// A failed exchange ends the communicator, its world and all groups of it: threads of this rank
// that wait for any of them return, and the other ranks are told.
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

/* Messages that a rank sends and receives concurrently. A rank sends none to itself. Messages from
 * a to b arrive in the order in which a sends them. */
struct sw_exchange {
    const char *op;   /* for example "all_gather" */
    const char *what; /* name of the tensor, for timeout messages */
    int64_t sequence; /* number of the collective, the same on all ranks; -1 = point to point */
    const struct sw_message *sends, *receives;
    int n_sends, n_receives;
    int group;                /* number of the group (sw_comm_open_group); 0 = all ranks */
    const char *group_name;   /* for messages; NULL = none */
    const char *const *names; /* [size] of the transport's ranks; NULL = "rank 0", "rank 1", .. */
};

/* Some ranks of a world. All members give the same. */
struct sw_group_options {
    int number;        /* above 0, unique among the groups that a member has open */
    const int *ranks;  /* [n] ranks of the world, ascending, this rank among them */
    int n;             /* 1 .. size of the world */
    double deadline_s; /* longest wait for a member; 0 = that of the world */
    const char *name;  /* for messages, such as "tensor"; NULL = none */
};

/*
 * A transport carries messages.
 *
 * exchange     returns once everything is received and the send buffers may be reused. SW_E_PEER
 *              names the ranks that missed the deadline, or that came with another operation,
 *              sequence or size
 * abort        announces that this rank cannot go on; ranks that wait for it get SW_E_PEER, and so
 *              do other threads of this rank, in this transport, its world and their groups. May be
 *              called by any thread, several times
 * open_group   opens a transport for a group, whose peers are numbered 0 .. n - 1. It is used at
 *              the same time as this one and other groups, by other threads, and is closed before
 *              this one. All members call it; meanwhile no other thread uses this transport. NULL:
 *              groups use this transport with its ranks and deadline, all from one thread
 */
struct sw_transport {
    void *ctx;
    int rank, size;
    double deadline_s; /* longest wait for another rank, without a byte moved; 0 = unknown */
    sw_status (*exchange)(void *ctx, const struct sw_exchange *exchange);
    void (*abort)(void *ctx, sw_status reason);
    void (*close)(void *ctx, bool failed); /* NULL = nothing to close */
    /* names: [n] of the members, for messages */
    sw_status (*open_group)(void *ctx, const struct sw_group_options *options,
                            const char *const *names, struct sw_transport *out);
};

/* ---- communicators ---- */

typedef struct sw_comm sw_comm;

/* transport  copied; closed with the communicator. If exchange is NULL, the communicator serves
 *            plans only */
SW_API sw_status sw_comm_open(const struct sw_transport *transport, sw_comm **out);
/*
 * sw_comm_name_ranks - name the ranks for messages, for example by their coordinates.
 *
 * Without it they are "rank 0", "rank 1", .. Groups that are opened later have these names too.
 *
 * names    [size] of the communicator; copied
 */
SW_API sw_status sw_comm_name_ranks(sw_comm *comm, const char *const *names);
/*
 * sw_comm_open_group - open a communicator for a subset of the ranks.
 *
 * All members call it, for the groups that they share in the same order, while no other thread uses
 * `world`. The group has its own connections, sequence numbers, deadline and traffic, which also
 * counts in that of `world`. Its exchanges run at the same time as those of other groups and of
 * `world`, from another thread.
 *
 * Two threads that exchange between the same ranks at the same time need two groups of these ranks,
 * with different numbers. Where one thread sends to the next rank and another one receives from
 * it, for example, each direction has a group of the two.
 *
 * world    communicator of all ranks; may be closed before the group
 * options  copied
 * out      close with sw_comm_close; its ranks are 0 .. n - 1, in the order of options->ranks
 *
 * SW_E_ARG     world is a group itself; the number is below 1 or too large for the transport; ranks
 *              are not ascending ranks of world, or do not include this rank; a deadline out of
 *              range
 * SW_E_PEER    a member did not come, or opens another group
 */
SW_API sw_status sw_comm_open_group(sw_comm *world, const struct sw_group_options *options,
                                    sw_comm **out);
/* failed: this rank failed, so the transport must not wait for the others. A world and its groups
 * are closed in any order; the last one closes the transport of the world. NULL is a no-op. */
SW_API void sw_comm_close(sw_comm *comm, bool failed);
/* This rank's number, 0 .. size - 1, and the number of ranks. Not collective. */
SW_API int sw_comm_rank(const sw_comm *comm);
SW_API int sw_comm_size(const sw_comm *comm);

/* Ranks of one process share its CPUs; more ranks than this would only wait for each other. */
enum { SW_THREAD_RANKS_MAX = 64, SW_DEADLINE_MAX_S = 1000000 };

/*
 * sw_threads_open - open communicators for ranks that are threads of this process.
 *
 * size         1 .. SW_THREAD_RANKS_MAX; rank r needs its own thread, which uses out_comms[r]
 * deadline_s   longest wait for the others; after it, the error on every rank names the missing
 * out_comms    [size] filled; close each with sw_comm_close once no rank uses any of them
 *
 * SW_E_ARG     size or deadline_s is out of range
 */
SW_API sw_status sw_threads_open(int size, double deadline_s, sw_comm **out_comms);
/* Opens, calls fn once per rank, each on its own thread, and closes. A rank that fails aborts. The
 * returned error is the original failure, with the prefix "rank R: ", not the SW_E_PEER of the
 * others. */
typedef sw_status (*sw_rank_fn)(void *ctx, sw_comm *comm);
SW_API sw_status sw_threads_run(int size, double deadline_s, sw_rank_fn fn, void *ctx);

/* Ranks that are processes on one or several machines. All pairs are connected by TCP. */
struct sw_tcp_options {
    int rank, size;
    const char *host; /* address on which rank 0 listens */
    int port;         /* port on which rank 0 listens */
    double deadline_s;
    /* [16] Shared secret of all ranks. Each pair proves that it knows the secret before they talk;
     * the secret itself is not sent. NULL: host must be a loopback address, and any user of that
     * machine can take part. */
    const unsigned char *secret;
    const char *job; /* distinguishes starts of the job that share the secret; NULL: "" */
};
/*
 * sw_tcp_open - connect to the other ranks through rank 0.
 *
 * Rank 0 turns away peers that do not prove the secret or that expect another number of ranks; it
 * keeps waiting for the others. The members of a group connect anew, with the same proof. Later
 * messages are neither encrypted nor signed. Raises the soft limit of open files to what the ranks
 * need. Strings are borrowed for the call.
 *
 * SW_E_PEER    names the ranks that did not come; or says why this rank was turned away
 * SW_E_CONFIG  no secret and a host that is not loopback; or a limit of open files that is too low
 */
SW_API sw_status sw_tcp_open(const struct sw_tcp_options *options, struct sw_transport *out);

/*
 * sw_world_open - connect to the other ranks that the launcher started, if any.
 *
 * mpirun and srun: Open MPI and MPICH are used through modules beside the library, which are loaded
 * only here. SPILLWAY_MPI=off ignores them. SPILLWAY_MODULES names the folder of the modules.
 *
 * Launchers that set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, such as `spillway launch`: TCP.
 * The secret is SPILLWAY_JOB_SECRET (32 hexadecimal digits), or is read from the file
 * SPILLWAY_JOB_SECRET_FILE (mode 0600). Without a secret, only loopback is allowed, and a line on
 * standard error says so.
 *
 * out          NULL if this process was started alone
 *
 * SW_E_UNSUP   the process is one of several, but this build has no module for that MPI; or the MPI
 *              finds no other rank, as under srun without --mpi
 * SW_E_CONFIG  WORLD_SIZE without the other variables, or one of them is no number of its range; no
 *              secret and a MASTER_ADDR that is not loopback
 */
SW_API sw_status sw_world_open(double deadline_s, sw_comm **out);
/* Whether mpirun or srun started this process. Its output is then forwarded, even if it looks like
 * a terminal. */
SW_API bool sw_world_is_mpi(void);
/* Lists the MPIs that sw_world_open can use, one line each. Free the text with sw_text_free. */
SW_API sw_status sw_world_text(char **out_text);

/* Faults to inject into a transport, for tests. Exchanges count from 1; 0 = never. */
struct sw_fault_options {
    int64_t fail_at;   /* this exchange fails with SW_E_IO */
    int64_t silent_at; /* the rank sends nothing from this exchange on */
    double delay_s;    /* delay before each exchange */
    /* Bandwidth of a simulated full-duplex wire; 0 = unlimited. The rank sleeps for the time that
     * the bytes would take, as if a network card did the work. */
    double bytes_per_s;
};
/* Wraps a transport. Its groups share the faults: exchanges are counted over all of them, and the
 * wire is shared. inner: copied, and closed with out. The communicator that is given `out`
 * closes it. */
SW_API sw_status sw_fault_open(const struct sw_transport *inner,
                               const struct sw_fault_options *options, struct sw_transport *out);
/* The transports that sw_threads_open uses, for callers that wrap them. */
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
    X(AGREE,          "agree")            \
    X(ALL_REDUCE,     "all_reduce")
// clang-format on
enum sw_comm_op {
#define SW_COMM_ENUM(name, text) SW_COMM_##name,
    SW_COMM_OP_LIST(SW_COMM_ENUM)
#undef SW_COMM_ENUM
        SW_COMM_OP_COUNT
};

/*
 * One collective of a sw_comm_run. A slice has slice_bytes.
 *
 * op               src             dst                                 workspace
 * ALL_TO_ALL       [size] slices   [size] slices, in rank order        NULL
 * ALL_GATHER       a slice         [size] slices, in rank order        NULL
 * REDUCE_SCATTER   [size] slices   [size] slices, not added up yet     NULL
 *                  [size] slices   a slice: the sum, of type dtype     [size] slices
 * ALL_REDUCE       a slice         a slice: the sum, of type dtype     [size] parts
 *
 * A sum is added in rank order in fp32 and rounded once to dtype (SW_F32, SW_BF16, SW_F16); all
 * ranks get the same bits. Each rank adds up a part of an ALL_REDUCE, so the workspace has
 * sw_comm_all_reduce_workspace bytes. dst of a sum may be src.
 */
struct sw_comm_item {
    enum sw_comm_op op;
    const void *src;
    void *dst;
    size_t slice_bytes;
    const char *what;
    void *workspace;     /* of a sum; else NULL */
    enum sw_dtype dtype; /* of a sum */
};
SW_API size_t sw_comm_all_reduce_workspace(int size, size_t slice_bytes, enum sw_dtype dtype);
/* Runs several collectives in one exchange, or in two if one is an ALL_REDUCE. All ranks must give
 * the same items. */
SW_API sw_status sw_comm_run(sw_comm *comm, const struct sw_comm_item *items, int n_items);
/* Reserves memory for sw_comm_run with n_items items, so that later calls do not allocate. */
SW_API sw_status sw_comm_reserve(sw_comm *comm, int n_items);

/* Slice r of src ([size] slices) goes to rank r; dst [size] slices in rank order. */
SW_API sw_status sw_comm_all_to_all(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                                    const char *what);
/* dst [size] slices in rank order; src may be this rank's slice of dst. */
SW_API sw_status sw_comm_all_gather(sw_comm *comm, const void *src, void *dst, size_t slice_bytes,
                                    const char *what);

/* A sum over ranks in the canonical order: rank by rank onto acc, in fp32 for every dtype. */
struct sw_reduction {
    enum sw_dtype dtype; /* of src and workspace: SW_F32, SW_BF16, SW_F16 */
    const void *src;     /* [size, n] */
    void *workspace;     /* [size, n] */
    float *acc;          /* [n] the slice of this rank */
    int64_t n;
    bool fresh;         /* acc is not initialized: copy the first addend */
    int n_contributors; /* add only what the first n ranks send; 0 = all */
};
/* Adds the received slices: workspace [size, n] in rank order, acc as in struct sw_reduction. */
SW_API void sw_comm_add_slices(const struct sw_reduction *reduction, int n_ranks);
/* Sends as many bytes as an all-to-all, because a classic reduce-scatter has no fixed order. */
SW_API sw_status sw_comm_reduce_scatter(sw_comm *comm, const struct sw_reduction *reduction,
                                        const char *what);
/* Like sw_comm_reduce_scatter, but every rank gets all slices in `whole` [size, n], fp32. acc may
 * be this rank's slice of `whole`. The traffic counts both exchanges; see also SW_COMM_ALL_REDUCE.
 */
SW_API sw_status sw_comm_all_reduce(sw_comm *comm, const struct sw_reduction *reduction,
                                    float *whole, const char *what);
/* Copies data [bytes] of rank `root` to all others. */
SW_API sw_status sw_comm_broadcast(sw_comm *comm, int root, void *data, size_t bytes,
                                   const char *what);
/* Point to point; the peer must make the matching call. */
SW_API sw_status sw_comm_send(sw_comm *comm, int peer, const void *data, size_t bytes,
                              const char *what);
SW_API sw_status sw_comm_receive(sw_comm *comm, int peer, void *data, size_t bytes,
                                 const char *what);
/* Returns once all ranks have called it. what: for messages. */
SW_API sw_status sw_comm_barrier(sw_comm *comm, const char *what);
/* Exchanges a status between all ranks. Returns SW_OK if all are SW_OK. Otherwise returns this
 * rank's own failure, or SW_E_PEER with the first rank that failed. */
SW_API sw_status sw_comm_agree(sw_comm *comm, sw_status mine, const char *what);
/* Announces that this rank cannot go on. Ranks that wait for it get an error, and so do threads of
 * this rank that wait in the communicator, its world or a group of it. Any thread may call it. */
SW_API void sw_comm_abort(sw_comm *comm, sw_status reason);

/* ---- traffic, counted by the sender ---- */

/* For example "all_gather"; static storage. */
SW_API const char *sw_comm_op_name(enum sw_comm_op op);

struct sw_traffic { /* of one rank, since the communicator was opened */
    int64_t calls[SW_COMM_OP_COUNT];
    int64_t sent[SW_COMM_OP_COUNT]; /* bytes to other ranks */
};
/* Reads the counters of this rank. Not collective. */
SW_API void sw_comm_traffic(const sw_comm *comm, struct sw_traffic *out);

#ifdef __cplusplus
}
#endif
