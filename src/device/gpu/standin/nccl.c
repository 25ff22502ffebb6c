// SPDX-License-Identifier: Apache-2.0
// Stands in for NCCL and RCCL when GPUs are emulated; this file is compiled once for each
// (STANDIN_IS_HIP). Ranks are threads or processes of one machine that share memory. Every argument
// of every call is checked, and the order of calls across ranks. A call that the library would
// refuse, or hang in, is refused with a line on stderr: one that differs from that of another rank,
// or ranks that wait for each other, with the calls of both.
//
// An exchange is begun by the call, and goes on when its stream is polled
// (device/gpu/module/emu_stream.h). Of each two exchanges of a communicator, one takes what it
// sends at once, and writes what it received last. The other takes it when the receiver is there,
// and writes it as it comes. So a buffer that is used too early or too late shows in the results.
//
// SPILLWAY_STANDIN_NCCL=rank=1,fail=7 fails the 7th exchange of member 1 of each communicator.
// Instead of fail, `hang` begins it never, and `exit` ends the process.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "device/gpu/module/emu_stream.h"
#include "device/gpu/nccl.h"
#include "tensor/tensor.h"

#define EXPORT __attribute__((visibility("default")))
#if STANDIN_IS_HIP
#define LIBRARY "RCCL"
enum { VERSION = 22203 };
#else
#define LIBRARY "NCCL"
enum { VERSION = 22105 };
#endif

enum { MOST_RANKS = 64, MOST_OPS = 4096, RING = 16 << 10, CALL = 120, TEXT = 512 };
enum { COMM = 0x434f4d4d };

/* ---- what ranks share ---- */

/* Messages of one rank to another, in order: a header each, then its bytes. */
struct pipe {
    atomic_llong offered, wanted; /* messages that the sender, and the receiver, have begun */
    atomic_llong written, taken;  /* bytes */
    char ring[RING];
};
struct shared {
    atomic_int size, n_joined, vendor;
    atomic_int joined[MOST_RANKS];
    char call[MOST_RANKS][CALL]; /* the exchange of each rank, for messages */
    atomic_int found;            /* 1 = a mistake of several ranks is written below */
    char mistake[TEXT];
    struct pipe pipes[]; /* [from, to] */
};

struct header {
    int64_t sequence, bytes;
    int32_t kind, type, root, index;
    char call[CALL];
};

/* ---- communicators ---- */

enum kind { SEND, RECV, ALL_GATHER, REDUCE_SCATTER, BROADCAST };
static const char *const kind_names[] = {"ncclSend", "ncclRecv", "ncclAllGather",
                                         "ncclReduceScatter", "ncclBroadcast"};

struct op {
    enum kind kind;
    int type, peer;
    size_t count;
    const char *src;
    char *dst;
};

enum fault { NONE, FAIL, HANG, EXIT };
struct comm {
    int magic, rank, size, n_users; /* its owner, and the exchange on its stream */
    atomic_bool aborted;
    int error; /* NCCL_SUCCESS = none so far */
    char text[TEXT];
    pthread_mutex_t lock;
    struct shared *shared;
    size_t bytes;
    struct emu_stream *stream; /* NULL = none yet */
    int64_t sequence;          /* exchanges so far */
    int64_t n_common;          /* exchanges in which all ranks take part */
    enum fault fault;
    int64_t fault_at;
    char path[64];
};

/* A message of an exchange: what is left of it. */
struct message {
    struct header header;
    bool has_header;
    char *data; /* NULL = header only */
    size_t done;
};
struct peer {
    struct message *out, *in; /* [n_out], [n_in] in their order */
    int n_out, n_in, i_out, i_in;
    int64_t first_out, first_in; /* numbers of these messages on the pipes */
};
struct exchange {
    struct comm *comm;
    bool early; /* takes what is sent at once, and writes what arrives last */
    struct op *ops;
    char **arrived; /* [n] memory for what ops receive; NULL = it goes to dst */
    char **sent;    /* [n] copies of what they send; NULL = it is read there */
    int n;
    struct peer peers[MOST_RANKS];
    struct message *messages;
    int n_circles; /* polls in a row that found a circle of waiting ranks */
};

static __thread struct {
    int depth, n;
    struct comm *comm;
    struct emu_stream *stream;
    struct op *ops; /* [MOST_OPS] */
    char call[CALL];
} group;

static size_t width(int type)
{
    return type == NCCL_UINT8 ? 1 : type == NCCL_FLOAT32 ? 4 : 2;
}

static enum sw_dtype dtype_of(int type)
{
    return type == NCCL_BFLOAT16 ? SW_BF16 : type == NCCL_FLOAT16 ? SW_F16 : SW_F32;
}

static size_t bytes_of(const struct op *op)
{
    return op->count * width(op->type);
}

static int refuse(struct comm *comm, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int refuse(struct comm *comm, int code, const char *format, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "stand-in for " LIBRARY ": %s\n", text);
    if (comm && comm->error == NCCL_SUCCESS) {
        comm->error = code;
        snprintf(comm->text, sizeof comm->text, "%s", text);
    }
    return code;
}

/* A mistake of several ranks. Those that do not meet it themselves hear of it when they poll. */
static void tell_all(struct comm *comm)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&comm->shared->found, &none, -1)) {
        snprintf(comm->shared->mistake, TEXT, "%s", comm->text);
        atomic_store(&comm->shared->found, 1);
    }
}

static struct pipe *pipe_of(const struct comm *comm, int from, int to)
{
    return &comm->shared->pipes[from * comm->size + to];
}

static bool is_comm(const struct comm *comm)
{
    return comm && comm->magic == COMM;
}

static void leave(struct comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const bool last = --comm->n_users == 0;
    pthread_mutex_unlock(&comm->lock);
    if (last) {
        munmap(comm->shared, comm->bytes);
        pthread_mutex_destroy(&comm->lock);
        comm->magic = 0;
        free(comm);
    }
}

/* ---- moving messages ---- */

/* Copies to or from the ring; returns the bytes. */
static size_t write_some(struct pipe *p, const void *data, size_t bytes)
{
    const int64_t written = atomic_load(&p->written);
    const size_t room = RING - (size_t)(written - atomic_load(&p->taken));
    const size_t n = bytes < room ? bytes : room;
    for (size_t i = 0; i < n; i++) {
        p->ring[(size_t)(written + (int64_t)i) % RING] = ((const char *)data)[i];
    }
    atomic_store(&p->written, written + (int64_t)n);
    return n;
}

static size_t take_some(struct pipe *p, void *data, size_t bytes)
{
    const int64_t taken = atomic_load(&p->taken);
    const size_t there = (size_t)(atomic_load(&p->written) - taken);
    const size_t n = bytes < there ? bytes : there;
    for (size_t i = 0; i < n; i++) {
        ((char *)data)[i] = p->ring[(size_t)(taken + (int64_t)i) % RING];
    }
    atomic_store(&p->taken, taken + (int64_t)n);
    return n;
}

/* Header first, whole; then data. True if the message is through. */
static bool pass_out(struct pipe *p, struct message *m)
{
    if (!m->has_header) {
        if (RING - (atomic_load(&p->written) - atomic_load(&p->taken)) <
            (int64_t)sizeof m->header) {
            return false;
        }
        write_some(p, &m->header, sizeof m->header);
        m->has_header = true;
    }
    const size_t all = m->data ? (size_t)m->header.bytes : 0;
    m->done += m->done < all ? write_some(p, m->data + m->done, all - m->done) : 0;
    return m->done == all;
}

static bool same(const struct header *a, const struct header *b)
{
    const bool pair = a->kind == SEND || a->kind == RECV;
    return a->sequence == b->sequence && a->type == b->type && a->root == b->root &&
           a->index == b->index && a->bytes == b->bytes &&
           (pair ? b->kind == SEND : a->kind == b->kind);
}

static bool pass_in(struct comm *comm, int from, struct message *m)
{
    struct pipe *p = pipe_of(comm, from, comm->rank);
    if (!m->has_header) {
        struct header theirs;
        if (atomic_load(&p->written) - atomic_load(&p->taken) < (int64_t)sizeof theirs) {
            return false;
        }
        take_some(p, &theirs, sizeof theirs);
        m->has_header = true;
        if (!same(&m->header, &theirs)) {
            theirs.call[CALL - 1] = '\0';
            refuse(comm, NCCL_INVALID_USAGE,
                   "ranks differ: rank %d is in %s, rank %d in %s (a message of %lld bytes, %lld "
                   "expected)",
                   comm->rank, m->header.call, from, theirs.call, (long long)theirs.bytes,
                   (long long)m->header.bytes);
            tell_all(comm);
            return false;
        }
    }
    const size_t all = m->data ? (size_t)m->header.bytes : 0;
    m->done += m->done < all ? take_some(p, m->data + m->done, all - m->done) : 0;
    return m->done == all;
}

/* ---- the progress of an exchange ---- */

static float as_float(const char *at, int type)
{
    float value;
    sw_convert(SW_F32, &value, dtype_of(type), at, 1);
    return value;
}

/* Adds the slices around the ring, from the rank after this one on, rounded each time. */
static void add_up(const struct comm *comm, const struct op *op, const char *mine,
                   const char *arrived)
{
    const enum sw_dtype dtype = dtype_of(op->type);
    const size_t w = width(op->type), slice = bytes_of(op);
    for (size_t i = 0; i < op->count; i++) {
        float sum = 0;
        for (int k = 1; k <= comm->size; k++) {
            const int r = (comm->rank + k) % comm->size;
            const char *at = r == comm->rank ? mine : arrived + (size_t)r * slice;
            char rounded[4];
            sum = k == 1 ? as_float(at + i * w, op->type) : sum + as_float(at + i * w, op->type);
            sw_convert(dtype, rounded, SW_F32, &sum, 1);
            sum = as_float(rounded, op->type);
        }
        sw_convert(dtype, op->dst + i * w, SW_F32, &sum, 1);
    }
}

/* The slice that this rank keeps of those that it sends. */
static const char *own_slice(const struct comm *comm, const struct exchange *x, int i)
{
    const struct op *op = &x->ops[i];
    const char *src = x->sent[i] ? x->sent[i] : op->src;
    return op->kind == REDUCE_SCATTER ? src + (size_t)comm->rank * bytes_of(op) : src;
}

static void finish_op(const struct comm *comm, const struct exchange *x, int i)
{
    const struct op *op = &x->ops[i];
    const size_t bytes = bytes_of(op);
    switch (op->kind) {
    case SEND:
        break;
    case RECV:
        if (x->arrived[i]) {
            memcpy(op->dst, x->arrived[i], bytes);
        }
        break;
    case ALL_GATHER:
        for (int r = 0; r < comm->size; r++) {
            char *to = op->dst + (size_t)r * bytes;
            if (r == comm->rank) {
                memmove(to, own_slice(comm, x, i), bytes);
            } else if (x->arrived[i]) {
                memcpy(to, x->arrived[i] + (size_t)r * bytes, bytes);
            }
        }
        break;
    case REDUCE_SCATTER:
        add_up(comm, op, own_slice(comm, x, i), x->arrived[i]);
        break;
    case BROADCAST:
        if (op->peer == comm->rank) {
            memmove(op->dst, own_slice(comm, x, i), bytes);
        } else if (x->arrived[i]) {
            memcpy(op->dst, x->arrived[i], bytes);
        }
        break;
    }
}

static void free_exchange(struct exchange *x)
{
    for (int i = 0; i < x->n; i++) {
        free(x->arrived[i]);
        free(x->sent[i]);
    }
    leave(x->comm);
    free(x->arrived);
    free(x->sent);
    free(x->ops);
    free(x->messages);
    free(x);
}

/* Rank i has begun a message that rank j has not begun. */
static bool waits(const struct comm *comm, int i, int j)
{
    const struct pipe *to = pipe_of(comm, i, j), *from = pipe_of(comm, j, i);
    return atomic_load(&to->offered) > atomic_load(&to->wanted) ||
           atomic_load(&from->wanted) > atomic_load(&from->offered);
}

/* Follows the ranks that wait for each other, from this one on. Each is in one exchange at a time,
 * so a circle never ends, unless a rank of it is just beginning an exchange. */
static void find_deadlock(struct comm *comm, struct exchange *x)
{
    enum { SURE = 20 };
    int before[MOST_RANKS], order[MOST_RANKS], n = 0;
    memset(before, -1, sizeof before);
    order[n++] = comm->rank;
    for (int k = 0; k < n; k++) {
        const int i = order[k];
        for (int j = 0; j < comm->size; j++) {
            if (j == i || !waits(comm, i, j)) {
                continue;
            }
            if (j == comm->rank && ++x->n_circles < SURE) {
                return;
            }
            if (j == comm->rank) {
                refuse(comm, NCCL_INVALID_USAGE,
                       "ranks wait for each other: rank %d in %s, rank %d in %s", comm->rank,
                       comm->shared->call[comm->rank], i, comm->shared->call[i]);
                tell_all(comm);
                return;
            }
            if (before[j] < 0) {
                before[j] = i;
                order[n++] = j;
            }
        }
    }
    x->n_circles = 0;
}

static int poll_exchange(void *work)
{
    struct exchange *x = work;
    struct comm *comm = x->comm;
    bool done = true;
    for (int r = 0; r < comm->size && !comm->aborted && comm->error == NCCL_SUCCESS; r++) {
        struct peer *peer = &x->peers[r];
        struct pipe *to = pipe_of(comm, comm->rank, r);
        while (peer->i_out < peer->n_out &&
               atomic_load(&to->wanted) > peer->first_out + peer->i_out &&
               pass_out(to, &peer->out[peer->i_out])) {
            peer->i_out++;
        }
        while (peer->i_in < peer->n_in && comm->error == NCCL_SUCCESS &&
               pass_in(comm, r, &peer->in[peer->i_in])) {
            peer->i_in++;
        }
        done = done && peer->i_out == peer->n_out && peer->i_in == peer->n_in;
    }
    if (!done && !comm->aborted && comm->error == NCCL_SUCCESS) {
        if (atomic_load(&comm->shared->found) == 1) {
            refuse(comm, NCCL_INVALID_USAGE, "%s", comm->shared->mistake);
        } else {
            find_deadlock(comm, x);
        }
    }
    if (comm->aborted) { /* the stream goes on without results */
        free_exchange(x);
        return 0;
    }
    if (comm->error != NCCL_SUCCESS || !done) {
        return 1; /* after an error, until the communicator is aborted */
    }
    for (int i = 0; i < x->n; i++) {
        finish_op(comm, x, i);
    }
    free_exchange(x);
    return 0;
}

/* ---- beginning an exchange ---- */

static char *copy_of(const char *data, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (copy && data) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

/* Adds a message of op i with a peer. */
static void add_message(struct exchange *x, struct message **next, int i, int r, bool sends)
{
    const struct comm *comm = x->comm;
    const struct op *op = &x->ops[i];
    const bool pair = op->kind == SEND || op->kind == RECV;
    const bool cut = op->kind == REDUCE_SCATTER;
    const size_t bytes = bytes_of(op);
    const int source = sends ? comm->rank : r;
    const bool has_data = op->kind != BROADCAST || op->peer == source;
    struct message *m = (*next)++;
    m->header = (struct header){.sequence = pair ? -1 : comm->n_common,
                                .bytes = (int64_t)bytes,
                                .kind = (int32_t)op->kind,
                                .type = op->type,
                                .root = op->kind == BROADCAST ? op->peer : -1,
                                .index = pair ? 0 : i};
    snprintf(m->header.call, CALL, "%s", comm->shared->call[comm->rank]);
    if (!has_data) {
        m->data = NULL;
    } else if (sends) {
        char *src = x->sent[i] ? x->sent[i] : (char *)(uintptr_t)op->src;
        m->data = src + (cut ? (size_t)r * bytes : 0);
    } else {
        char *dst = x->arrived[i] ? x->arrived[i] : op->dst;
        m->data = dst + (cut || op->kind == ALL_GATHER ? (size_t)r * bytes : 0);
    }
}

/* The messages of all ops, by peer, in the order of the ops. */
static void add_messages(struct exchange *x)
{
    struct comm *comm = x->comm;
    struct message *next = x->messages;
    for (int r = 0; r < comm->size; r++) {
        struct peer *peer = &x->peers[r];
        for (int sends = 1; sends >= 0; sends--) {
            struct message *first = next;
            for (int i = 0; i < x->n && r != comm->rank; i++) {
                const struct op *op = &x->ops[i];
                const bool pair = op->kind == SEND || op->kind == RECV;
                if (!pair || (op->peer == r && (op->kind == SEND) == (sends == 1))) {
                    add_message(x, &next, i, r, sends == 1);
                }
            }
            const int n = (int)(next - first);
            struct pipe *p = sends ? pipe_of(comm, comm->rank, r) : pipe_of(comm, r, comm->rank);
            if (sends) {
                peer->out = first;
                peer->n_out = n;
                peer->first_out = atomic_fetch_add(&p->offered, n);
            } else {
                peer->in = first;
                peer->n_in = n;
                peer->first_in = atomic_fetch_add(&p->wanted, n);
            }
        }
    }
}

static struct exchange *make_exchange(struct comm *comm, const struct op *ops, int n)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x) {
        return NULL;
    }
    x->comm = comm;
    x->n = n;
    x->early = (comm->sequence + comm->rank) % 2 == 0;
    x->ops = malloc((size_t)n * sizeof *ops);
    x->arrived = calloc((size_t)n, sizeof *x->arrived);
    x->sent = calloc((size_t)n, sizeof *x->sent);
    x->messages = calloc((size_t)n * 2 * (size_t)comm->size, sizeof *x->messages);
    if (!x->ops || !x->arrived || !x->sent || !x->messages) {
        x->n = 0;
        free_exchange(x);
        return NULL;
    }
    memcpy(x->ops, ops, (size_t)n * sizeof *ops);
    for (int i = 0; i < n; i++) {
        const struct op *op = &ops[i];
        const size_t bytes = bytes_of(op);
        const bool gathers = op->kind == ALL_GATHER || op->kind == REDUCE_SCATTER;
        const bool gives = op->kind != RECV && (op->kind != BROADCAST || op->peer == comm->rank);
        if (x->early && gives) {
            x->sent[i] =
                copy_of(op->src, op->kind == REDUCE_SCATTER ? bytes * (size_t)comm->size : bytes);
        }
        if (op->kind == REDUCE_SCATTER || (x->early && op->kind != SEND)) {
            x->arrived[i] = copy_of(NULL, gathers ? bytes * (size_t)comm->size : bytes);
        }
    }
    return x;
}

/* The fault that was asked for, on this exchange. */
static int inject(struct comm *comm)
{
    if (comm->fault == NONE || comm->sequence != comm->fault_at) {
        return NCCL_SUCCESS;
    }
    if (comm->fault == EXIT) {
        kill(getpid(), SIGKILL);
    }
    return comm->fault == FAIL ? refuse(comm, NCCL_SYSTEM_ERROR, "rank %d: injected failure in %s",
                                        comm->rank, comm->shared->call[comm->rank])
                               : NCCL_SUCCESS;
}

static int hang(void *work)
{
    struct comm *comm = work;
    const bool ends = comm->aborted;
    if (ends) {
        leave(comm);
    }
    return !ends;
}

/* Ranks without messages leave out an exchange of pairs. */
static bool has_common(const struct op *ops, int n)
{
    int i = 0;
    while (i < n && (ops[i].kind == SEND || ops[i].kind == RECV)) {
        i++;
    }
    return i < n;
}

static int begin(struct comm *comm, struct emu_stream *stream, const struct op *ops, int n)
{
    if (comm->aborted || comm->error != NCCL_SUCCESS) {
        return comm->error == NCCL_SUCCESS ? NCCL_INVALID_USAGE : comm->error;
    }
    if (comm->stream && comm->stream != stream) {
        return refuse(comm, NCCL_INVALID_USAGE, "%s: another stream than that of earlier calls",
                      kind_names[ops[0].kind]);
    }
    if (stream->record) {
        return refuse(comm, NCCL_INVALID_USAGE, "%s: the stream is captured",
                      kind_names[ops[0].kind]);
    }
    if (stream->poll) {
        return refuse(comm, NCCL_INVALID_USAGE, "%s: the stream's last exchange is not done",
                      kind_names[ops[0].kind]);
    }
    comm->stream = stream;
    comm->sequence++;
    comm->n_common += has_common(ops, n);
    snprintf(comm->shared->call[comm->rank], CALL, "exchange %lld: %s of %zu x type %d%s%s",
             (long long)comm->sequence, kind_names[ops[0].kind], ops[0].count, ops[0].type,
             ops[0].kind == SEND   ? " to "
             : ops[0].kind == RECV ? " from "
                                   : "",
             ops[0].kind <= RECV ? (char[2]){(char)('0' + ops[0].peer % 10), 0} : "");
    const int code = inject(comm);
    if (code != NCCL_SUCCESS) {
        return code;
    }
    pthread_mutex_lock(&comm->lock);
    comm->n_users++;
    pthread_mutex_unlock(&comm->lock);
    if (comm->fault == HANG && comm->sequence == comm->fault_at) {
        stream->work = comm;
        stream->poll = hang;
        return NCCL_SUCCESS;
    }
    struct exchange *x = make_exchange(comm, ops, n);
    if (!x) {
        return NCCL_SYSTEM_ERROR;
    }
    add_messages(x);
    stream->work = x;
    stream->poll = poll_exchange;
    return NCCL_SUCCESS;
}

static bool overlap(const char *a, size_t n_a, const char *b, size_t n_b)
{
    return a < b + n_b && b < a + n_a;
}

/* The problem with the operands of a call, or NULL. */
static const char *problem(const struct comm *comm, const struct op *op)
{
    const size_t bytes = bytes_of(op), all = bytes * (size_t)comm->size;
    const char *mine = op->kind == ALL_GATHER && op->dst ? op->dst + (size_t)comm->rank * bytes
                       : op->src                         ? op->src + (size_t)comm->rank * bytes
                                                         : NULL;
    if (op->type != NCCL_UINT8 && op->type != NCCL_FLOAT32 && op->type != NCCL_FLOAT16 &&
        op->type != NCCL_BFLOAT16) {
        return "the type";
    }
    if (op->count > (size_t)1 << 46 || (op->kind != RECV && !op->src) ||
        (op->kind != SEND && !op->dst)) {
        return "a count, or an address that is missing";
    }
    if ((uintptr_t)op->src % width(op->type) || (uintptr_t)op->dst % width(op->type)) {
        return "an address that is not aligned to the type";
    }
    switch (op->kind) {
    case ALL_GATHER:
        return op->src != mine && overlap(op->src, bytes, op->dst, all) ? "src and dst overlap"
                                                                        : NULL;
    case REDUCE_SCATTER:
        return op->type == NCCL_UINT8                                     ? "a sum of bytes"
               : op->dst != mine && overlap(op->dst, bytes, op->src, all) ? "src and dst overlap"
                                                                          : NULL;
    case BROADCAST:
        return op->peer < 0 || op->peer >= comm->size ? "the root"
               : op->src != op->dst && overlap(op->src, bytes, op->dst, bytes)
                   ? "src and dst overlap"
                   : NULL;
    default:
        return op->peer < 0 || op->peer >= comm->size || op->peer == comm->rank ? "the peer" : NULL;
    }
}

static int queue(void *handle, void *stream, const struct op *op)
{
    struct comm *comm = handle;
    if (!is_comm(comm) || !stream) {
        return refuse(NULL, NCCL_INVALID_ARGUMENT, "%s: no communicator or no stream",
                      kind_names[op->kind]);
    }
    const char *wrong = problem(comm, op);
    if (wrong) {
        return refuse(comm, NCCL_INVALID_ARGUMENT, "%s: %s", kind_names[op->kind], wrong);
    }
    if (group.depth == 0) {
        if (op->kind == SEND && op->peer == comm->rank) {
            return refuse(comm, NCCL_INVALID_USAGE, "a message to the rank itself");
        }
        return begin(comm, stream, op, 1);
    }
    if ((group.comm && group.comm != comm) || (group.stream && group.stream != stream) ||
        group.n == MOST_OPS) {
        return refuse(comm, NCCL_INVALID_USAGE,
                      "%s: a group with another communicator or stream, or of more than %d calls",
                      kind_names[op->kind], MOST_OPS);
    }
    group.comm = comm;
    group.stream = stream;
    group.ops[group.n++] = *op;
    return NCCL_SUCCESS;
}

/* ---- the library's functions ---- */

EXPORT int ncclGroupStart(void)
{
    if (group.depth > 0) {
        return refuse(group.comm, NCCL_INVALID_USAGE, "ncclGroupStart in a group that has no end");
    }
    group.ops = malloc(MOST_OPS * sizeof *group.ops);
    group.depth = 1;
    group.n = 0;
    group.comm = NULL;
    group.stream = NULL;
    return group.ops ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}

EXPORT int ncclGroupEnd(void)
{
    if (group.depth == 0) {
        return refuse(NULL, NCCL_INVALID_USAGE, "ncclGroupEnd without ncclGroupStart");
    }
    const int code =
        group.n > 0 ? begin(group.comm, group.stream, group.ops, group.n) : NCCL_SUCCESS;
    free(group.ops);
    group.ops = NULL;
    group.depth = 0;
    return code;
}

EXPORT int ncclSend(const void *src, size_t count, int type, int peer, void *comm, void *stream)
{
    return queue(
        comm, stream,
        &(struct op){.kind = SEND, .type = type, .peer = peer, .count = count, .src = src});
}

EXPORT int ncclRecv(void *dst, size_t count, int type, int peer, void *comm, void *stream)
{
    return queue(
        comm, stream,
        &(struct op){.kind = RECV, .type = type, .peer = peer, .count = count, .dst = dst});
}

EXPORT int ncclAllGather(const void *src, void *dst, size_t count, int type, void *comm,
                         void *stream)
{
    return queue(
        comm, stream,
        &(struct op){.kind = ALL_GATHER, .type = type, .count = count, .src = src, .dst = dst});
}

EXPORT int ncclReduceScatter(const void *src, void *dst, size_t count, int type, int op, void *comm,
                             void *stream)
{
    if (op != NCCL_SUM) {
        return refuse(is_comm(comm) ? comm : NULL, NCCL_INVALID_ARGUMENT,
                      "ncclReduceScatter: not a sum");
    }
    return queue(
        comm, stream,
        &(struct op){.kind = REDUCE_SCATTER, .type = type, .count = count, .src = src, .dst = dst});
}

EXPORT int ncclBroadcast(const void *src, void *dst, size_t count, int type, int root, void *comm,
                         void *stream)
{
    return queue(
        comm, stream,
        &(struct op){
            .kind = BROADCAST, .type = type, .peer = root, .count = count, .src = src, .dst = dst});
}

EXPORT int ncclGetVersion(int *version)
{
    const char *older = getenv("SPILLWAY_STANDIN_NCCL_VERSION");
    *version = older ? atoi(older) : VERSION;
    return NCCL_SUCCESS;
}

EXPORT int ncclGetUniqueId(struct nccl_id *id)
{
    memset(id, 0, sizeof *id);
    return getrandom(id->internal, sizeof id->internal, 0) == sizeof id->internal
               ? NCCL_SUCCESS
               : NCCL_SYSTEM_ERROR;
}

static void read_fault(struct comm *comm)
{
    const char *text = getenv("SPILLWAY_STANDIN_NCCL");
    char what[8];
    int rank;
    long long at;
    if (text && sscanf(text, "rank=%d,%7[a-z]=%lld", &rank, what, &at) == 3 && rank == comm->rank) {
        comm->fault = strcmp(what, "fail") == 0 ? FAIL : strcmp(what, "hang") == 0 ? HANG : EXIT;
        comm->fault_at = at;
    }
}

/* All ranks map the same file, which has no name once all have come. */
static int map(struct comm *comm, const struct nccl_id *id)
{
    const size_t pairs = (size_t)comm->size * (size_t)comm->size;
    size_t n = (size_t)snprintf(comm->path, sizeof comm->path, "%s/spillway-nccl-",
                                access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    for (int i = 0; i < 12; i++) {
        n += (size_t)snprintf(comm->path + n, sizeof comm->path - n, "%02x",
                              (unsigned char)id->internal[i]);
    }
    comm->bytes = sizeof(struct shared) + pairs * sizeof(struct pipe);
    const int file = open(comm->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)comm->bytes) != 0) {
        return refuse(NULL, NCCL_SYSTEM_ERROR, "%s cannot be opened", comm->path);
    }
    comm->shared = mmap(NULL, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return comm->shared == MAP_FAILED ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS;
}

static int join(struct comm *comm)
{
    int none = 0, no_vendor = 0, absent = 0;
    struct shared *s = comm->shared;
    atomic_compare_exchange_strong(&s->size, &none, comm->size);
    atomic_compare_exchange_strong(&s->vendor, &no_vendor, VERSION);
    if (atomic_load(&s->size) != comm->size || atomic_load(&s->vendor) != VERSION) {
        return refuse(comm, NCCL_INVALID_USAGE, "rank %d: another number of ranks, or library",
                      comm->rank);
    }
    if (!atomic_compare_exchange_strong(&s->joined[comm->rank], &absent, 1)) {
        return refuse(comm, NCCL_INVALID_USAGE, "rank %d comes twice", comm->rank);
    }
    if (atomic_fetch_add(&s->n_joined, 1) + 1 == comm->size) {
        unlink(comm->path);
    }
    return NCCL_SUCCESS;
}

EXPORT int ncclCommInitRankConfig(void **out, int n_ranks, struct nccl_id id, int rank,
                                  struct nccl_config *config)
{
    if (n_ranks < 1 || n_ranks > MOST_RANKS || rank < 0 || rank >= n_ranks || !config ||
        config->size != sizeof *config || config->magic != (unsigned)NCCL_MAGIC ||
        config->version < NCCL_OLDEST || config->blocking != 0 ||
        config->split_share != NCCL_UNDEFINED || config->cga_cluster_size != NCCL_UNDEFINED) {
        return refuse(NULL, NCCL_INVALID_ARGUMENT,
                      "ncclCommInitRankConfig: rank %d of %d, or the configuration", rank, n_ranks);
    }
    struct comm *comm = calloc(1, sizeof *comm);
    if (!comm) {
        return NCCL_SYSTEM_ERROR;
    }
    *comm = (struct comm){.magic = COMM, .rank = rank, .size = n_ranks, .n_users = 1};
    pthread_mutex_init(&comm->lock, NULL);
    read_fault(comm);
    int code = map(comm, &id);
    if (code != NCCL_SUCCESS) {
        free(comm);
        return code;
    }
    code = join(comm);
    *out = comm;
    return code == NCCL_SUCCESS ? NCCL_IN_PROGRESS : code;
}

EXPORT int ncclCommGetAsyncError(void *handle, int *error)
{
    const struct comm *comm = handle;
    if (!is_comm(comm)) {
        return refuse(NULL, NCCL_INVALID_ARGUMENT, "ncclCommGetAsyncError: no communicator");
    }
    *error = comm->error != NCCL_SUCCESS                         ? comm->error
             : atomic_load(&comm->shared->n_joined) < comm->size ? NCCL_IN_PROGRESS
                                                                 : NCCL_SUCCESS;
    return NCCL_SUCCESS;
}

EXPORT int ncclCommFinalize(void *handle)
{
    struct comm *comm = handle;
    if (!is_comm(comm) || comm->aborted) {
        return refuse(NULL, NCCL_INVALID_ARGUMENT, "ncclCommFinalize: no communicator");
    }
    return group.depth > 0 ? refuse(comm, NCCL_INVALID_USAGE, "ncclCommFinalize in a group")
                           : NCCL_SUCCESS;
}

EXPORT int ncclCommDestroy(void *handle)
{
    struct comm *comm = handle;
    if (!is_comm(comm) || comm->n_users > 1) {
        return refuse(NULL, NCCL_INVALID_USAGE, "ncclCommDestroy: no communicator, or one in use");
    }
    leave(comm);
    return NCCL_SUCCESS;
}

EXPORT int ncclCommAbort(void *handle)
{
    struct comm *comm = handle;
    if (!is_comm(comm)) {
        return refuse(NULL, NCCL_INVALID_ARGUMENT, "ncclCommAbort: no communicator");
    }
    unlink(comm->path); /* if not all ranks came */
    comm->aborted = true;
    leave(comm);
    return NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(int error)
{
    return error == NCCL_SUCCESS            ? "no error"
           : error == NCCL_SYSTEM_ERROR     ? "unhandled system error"
           : error == NCCL_INVALID_ARGUMENT ? "invalid argument"
           : error == NCCL_INVALID_USAGE    ? "invalid usage"
                                            : "remote process exited or there was a network error";
}

EXPORT const char *ncclGetLastError(void *handle)
{
    return is_comm(handle) ? ((const struct comm *)handle)->text : "";
}
