// SPDX-License-Identifier: Apache-2.0
// Measures transfers: copies, the disk through a store like the executor's, and exchanges between
// threads. As many ranks do each of them at once as would train on this machine.
#include "run/measure.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "run/queues.h"
#include "run/swap.h"

enum {
    BUFFER = 64 << 20,
    MOST_FILE = 128 << 20,
    MOST_AHEAD = 16 << 20,
    MOST_MEMORY = 256 << 20,
    MOST_SLICES = 128 << 20
};
static const double sizes[SW_CURVE_POINTS] = {4 << 10, 64 << 10, 1 << 20, 8 << 20};
static const double enough_s = 0.05, small_s = 0.08, large_s = 0.3, both_s = 0.5;
enum { LARGE = 1 << 20 };

struct measuring {
    const struct sw_plan *plan;
    const struct sw_measure_options *options;
    struct sw_speeds *speeds; /* results of the first rank */
    bool has[SW_LOAD_COUNT];  /* there is such work, and its rate is not given */
    bool exchanges;           /* also at a given rate: handing over, copies and sums take time */
    bool moves_activations, adds_activations, messages;
    enum sw_dtype grads, activations; /* dtypes of what is added */
};

/* Makes times ascend: a larger transfer takes at least as long as a smaller one. */
static void make_ascending(struct sw_rate_curve *curve)
{
    for (int k = 1; k < curve->n; k++) {
        curve->at[k].cost.seconds = fmax(curve->at[k].cost.seconds, curve->at[k - 1].cost.seconds);
    }
}

/* ---- copies ---- */

/* Cost of one copy of each size, one at a time. */
static sw_status time_copies(struct sw_copier *c, bool in, int ranks, struct sw_rate_curve *curve)
{
    for (int k = 0; k < SW_CURVE_POINTS; k++) {
        int64_t n = 0;
        const struct sw_stopwatch begin = sw_stopwatch_start();
        do {
            SW_TRY(sw_copier_copy(c, in, (size_t)sizes[k]));
            n++;
        } while (sw_now_s() - begin.wall < enough_s);
        struct sw_cost cost = sw_stopwatch_cost(&begin, ranks);
        cost.seconds /= (double)n;
        curve->at[k] = (struct sw_rate_point){sizes[k], cost};
    }
    curve->n = SW_CURVE_POINTS;
    make_ascending(curve);
    return SW_OK;
}

static sw_status measure_copies(struct measuring *m, struct sw_device *dev,
                                struct sw_speeds *speeds)
{
    const int ranks = m->options->n_devices;
    struct sw_copier c;
    sw_status st = sw_copier_open(dev, &c);
    st = st < 0 ? st : time_copies(&c, true, ranks, &speeds->curves[SW_CURVE_COPY_IN]);
    st = st < 0 ? st : time_copies(&c, false, ranks, &speeds->curves[SW_CURVE_COPY_OUT]);
    sw_copier_close(&c);
    return st;
}

/* ---- the disk ---- */

/* Transfers of one size, consecutive in a part of the store, with as many in flight as the executor
 * has. */
struct stream {
    sw_nvme *store;
    char *memory; /* [room] used in turns: what a step moves is in no cache */
    int64_t room;
    int64_t first, bytes; /* in the store */
    int64_t each;
    bool write;
    int most;          /* in flight */
    int64_t stride;    /* distance between transfers, in transfers */
    atomic_bool *stop; /* NULL = it is not stopped from outside */
};

static sw_status begin_next(const struct stream *s, int64_t i, struct sw_nvme_segment *memory,
                            sw_nvme_ticket *out)
{
    const int64_t at = s->first + i * s->stride % (s->bytes / s->each) * s->each;
    *memory =
        (struct sw_nvme_segment){s->memory + i % (s->room / s->each) * s->each, (size_t)s->each};
    return (s->write ? sw_nvme_begin_write : sw_nvme_begin_read)(s->store, at, memory, 1, out);
}

/* Runs at least `least` transfers, then for `seconds` or until stopped; *out_n: their number. */
static sw_status run_stream(const struct stream *s, int64_t least, double seconds, int64_t *out_n)
{
    struct sw_nvme_segment memory[SW_SWAP_ROWS];
    sw_nvme_ticket tickets[SW_SWAP_ROWS];
    const int64_t most = sw_min_i64(s->most, s->bytes / s->each);
    const double begin = sw_now_s();
    int64_t n = 0, n_begun = 0;
    sw_status st = SW_OK;
    for (;;) {
        const bool late = s->stop ? atomic_load(s->stop) : sw_now_s() - begin >= seconds;
        while (st >= 0 && (!late || n_begun < least) && n_begun - n < most) {
            const int64_t k = n_begun % most;
            st = begin_next(s, n_begun, &memory[k], &tickets[k]);
            n_begun += st >= 0;
        }
        if (n == n_begun) {
            break;
        }
        const sw_status ended = sw_nvme_wait(s->store, tickets[n % most], 0);
        st = st < 0 ? st : ended;
        n++;
    }
    *out_n = n;
    return st;
}

/* Cost of one transfer of a stream: an average over many. */
static sw_status time_stream(const struct stream *s, int ranks, struct sw_cost *out)
{
    int64_t n = 0;
    const bool large = s->each >= LARGE && s->most > 1;
    const struct sw_stopwatch begin = sw_stopwatch_start();
    SW_TRY(run_stream(s, 1, large ? large_s : small_s, &n));
    *out = sw_stopwatch_cost(&begin, ranks);
    out->seconds /= (double)n;
    return SW_OK;
}

/* Also measures the latency: how much longer a single transfer takes than its share of many. */
static sw_status time_size(struct stream s, int ranks, struct sw_cost *out)
{
    struct sw_cost one;
    SW_TRY(time_stream(&s, ranks, out));
    s.most = 1;
    SW_TRY(time_stream(&s, ranks, &one));
    out->latency = fmax(0, one.seconds - out->seconds);
    return SW_OK;
}

/* Measures writes or reads of ascending sizes, up to that of the whole file. */
static sw_status time_direction(struct stream s, bool write, int ranks, struct sw_rate_curve *curve)
{
    s.write = write;
    for (int k = 0; k < SW_CURVE_POINTS; k++) {
        s.each = sw_min_i64((int64_t)sizes[k], s.bytes);
        s.most = (int)sw_max_i64(2, sw_min_i64(SW_QUEUE_BEGUN, MOST_AHEAD / s.each));
        SW_TRY(time_size(s, ranks, &curve->at[k].cost));
        curve->at[k].bytes = (double)s.each;
        curve->n = k + 1;
        if (s.each == s.bytes) {
            break;
        }
    }
    make_ascending(curve);
    return SW_OK;
}

/* Rows of a table are scattered. */
static sw_status time_rows(struct stream s, int ranks, struct sw_rate_curve *curve)
{
    enum { STRIDE = 7919 };
    s.each = sw_min_i64((int64_t)sizes[0], s.bytes);
    s.most = SW_SWAP_ROWS;
    s.stride = STRIDE;
    SW_TRY(time_size(s, ranks, &curve->at[0].cost));
    curve->at[0].bytes = (double)s.each;
    curve->n = 1;
    return SW_OK;
}

/* Reads one half of the store while writing the other. */
struct both {
    struct stream stream;
    double seconds[2]; /* seconds per transfer, alone */
    double share[2];
    const struct sw_plan *plan;
    struct sw_device *dev; /* it runs the plan's kernels meanwhile, if there is a third rank */
    const struct sw_machine_rates *given;
    atomic_bool stop;
};

/* One of two or three threads: rank 0 reads for a fixed time, rank 1 writes until the reads end,
 * rank 2 computes. Sets the share of its speed alone that each direction keeps. */
static sw_status run_half(void *ctx, sw_comm *comm)
{
    struct both *b = ctx;
    const int write = sw_comm_rank(comm);
    struct stream s = b->stream;
    int64_t n = 0;
    if (write > 1) {
        return sw_run_kernels(b->plan, b->dev, comm, b->given, &b->stop, NULL);
    }
    s.write = write;
    s.bytes /= 2;
    s.first = write ? s.bytes : 0;
    s.stop = write ? &b->stop : NULL; /* the reads stop the writes */
    SW_TRY(sw_comm_barrier(comm, "a measurement begins"));
    const double begin = sw_now_s();
    const sw_status st = run_stream(&s, 1, both_s, &n);
    atomic_store(&b->stop, true);
    b->share[write] = b->seconds[write] * (double)n / (sw_now_s() - begin);
    return st;
}

/* Sets the shares of the disk from reads and writes at the same time, without and with kernels.
 * Leaves them unset if the file is too small for both. */
static sw_status time_both(const struct measuring *m, const struct stream *stream,
                           struct sw_device *dev, struct sw_speeds *speeds)
{
    const struct sw_rate_curve *in = &speeds->curves[SW_CURVE_READ];
    const struct sw_rate_curve *out = &speeds->curves[SW_CURVE_WRITE];
    const int k = in->n - 1 > 2 ? 2 : in->n - 1;
    struct both b = {.stream = *stream,
                     .plan = m->plan,
                     .dev = dev,
                     .given = &m->speeds->given,
                     .seconds = {in->at[k].cost.seconds, out->at[k].cost.seconds}};
    b.stream.each = (int64_t)in->at[k].bytes;
    b.stream.most = (int)sw_max_i64(2, sw_min_i64(SW_QUEUE_BEGUN, MOST_AHEAD / b.stream.each));
    if (2 * b.stream.each > b.stream.bytes) {
        return SW_OK;
    }
    SW_TRY(sw_threads_run(2, SW_MEASURE_DEADLINE_S, run_half, &b));
    const double reads = b.share[0], writes = b.share[1];
    speeds->disk_share = (struct sw_disk_share){fmin(1, reads), fmin(1, writes)};
    atomic_store(&b.stop, false);
    SW_TRY(sw_threads_run(3, SW_MEASURE_DEADLINE_S, run_half, &b));
    speeds->disk_beside =
        (struct sw_disk_share){fmin(1, b.share[0] / reads), fmin(1, b.share[1] / writes)};
    return SW_OK;
}

/* Overwrites the store. Sets the curves of reads, writes and rows, and the shares. */
static sw_status time_disk(const struct measuring *m, struct stream s, struct sw_device *dev,
                           struct sw_speeds *speeds)
{
    const int ranks = m->options->n_devices;
    int64_t n = 0;
    s.write = true; /* first pass is not timed: a step overwrites existing data */
    s.each = sw_min_i64((int64_t)sizes[SW_CURVE_POINTS - 1], s.bytes);
    SW_TRY(run_stream(&s, s.bytes / s.each, 0, &n));
    s.bytes = s.bytes / s.each * s.each;
    SW_TRY(time_direction(s, true, ranks, &speeds->curves[SW_CURVE_WRITE]));
    SW_TRY(time_direction(s, false, ranks, &speeds->curves[SW_CURVE_READ]));
    SW_TRY(time_rows(s, ranks, &speeds->curves[SW_CURVE_ROW]));
    return time_both(m, &s, dev, speeds);
}

/* Fills memory with data that no controller can compress. */
static void fill_random(char *memory, size_t bytes)
{
    enum { SOME = 1 << 20 };
    uint64_t *words = (uint64_t *)(void *)memory;
    for (size_t i = 0; i < SOME / sizeof *words; i++) {
        words[i] = sw_philox_u64(1, 0, i);
    }
    for (size_t at = SOME; at < bytes; at += SOME) {
        memcpy(memory + at, memory, bytes - at < SOME ? bytes - at : SOME);
    }
}

/* Bytes of memory that the plan's disk transfers use: that of the device, or staging memory. */
static int64_t memory_of_disk(const struct sw_plan *plan, const struct sw_device *dev)
{
    const bool reaches = dev->caps & SW_DEVICE_DISK_REACHES;
    const size_t bytes = reaches ? plan->tier_bytes[SW_TIER_DEVICE] : plan->staging.bytes;
    return sw_max_i64(MOST_AHEAD, sw_min_i64((int64_t)bytes, MOST_MEMORY));
}

static sw_status measure_disk(const struct measuring *m, struct sw_device *dev,
                              struct sw_speeds *speeds)
{
    const int64_t bytes = sw_min_i64(MOST_FILE, (int64_t)m->plan->tier_bytes[SW_TIER_DISK]);
    const int64_t room = memory_of_disk(m->plan, dev);
    const size_t whole = (size_t)room + SW_PLAN_DISK_ALIGN;
    sw_nvme *store = NULL;
    void *memory = NULL;
    sw_status st;
    SW_TRY(sw_swap_open_files(m->options->swap, bytes, &store));
    SW_TRY_OR(close, sw_device_alloc(dev, SW_MEM_HOST, whole, &memory));
    fill_random(memory, whole);
    const struct stream stream = {.store = store,
                                  .memory =
                                      (char *)sw_round_up((uintptr_t)memory, SW_PLAN_DISK_ALIGN),
                                  .room = room,
                                  .bytes = bytes,
                                  .most = 2,
                                  .stride = 1};
    SW_TRY_OR(close, time_disk(m, stream, dev, speeds));
close:
    sw_device_free(dev, SW_MEM_HOST, memory, whole);
    sw_nvme_close(store);
    return st;
}

/* ---- exchanges ---- */

/* Processor time of this thread. */
static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct slices {
    struct sw_device *dev; /* it adds; NULL = the host does */
    struct sw_stream_queue *on;
    char *own, *all; /* [room] what is sent; what arrives from all ranks */
    float *sum;      /* [2 room] */
    size_t room, at; /* size, and next place to use: a step does not use the same one twice */
    enum sw_curve curve;
    enum sw_dtype dtype; /* of what is added */
};

/* Takes the next place for so many bytes. A kernel has just written activations and gradients, but
 * not weights that are gathered. */
static void take_place(struct slices *s, size_t bytes)
{
    s->at = s->at + 2 * bytes > s->room ? 0 : s->at + bytes;
    if (s->curve != SW_CURVE_GATHER) {
        memset(s->own + s->at, 1, bytes);
    }
}

/* Adds what has arrived: gradients to a sum, activations to their rounded sum. */
static sw_status add(struct slices *s, int64_t n, int n_slices)
{
    const bool rounds = s->curve == SW_CURVE_SUM;
    const struct sw_slice_sum sum = {
        .acc = rounds ? s->sum : s->sum + s->at / sizeof *s->sum,
        .dtype = s->dtype,
        .slices = s->all,
        .n = n,
        .n_slices = n_slices,
        .fresh = rounds,
        .rounded = rounds && s->dtype != SW_F32 ? s->own + s->at : NULL,
    };
    if (s->dev) {
        SW_TRY(sw_device_add_slices(s->dev, s->on, &sum));
        return s->dev->ops->stream_wait(s->dev, s->on);
    }
    sw_add_slices(sum.acc, sum.dtype, sum.slices, n, n_slices, sum.fresh);
    if (sum.rounded) {
        sw_convert(sum.dtype, sum.rounded, SW_F32, sum.acc, n);
    }
    return SW_OK;
}

/* Exchanges as the executor does on the host: see collectives.c and activations.c. What is added
 * arrives in a workspace. */
static sw_status exchange(struct slices *s, sw_comm *comm, size_t bytes)
{
    const bool adds = s->curve == SW_CURVE_REDUCE || s->curve == SW_CURVE_SUM;
    const struct sw_comm_item item = {.op = adds ? SW_COMM_REDUCE_SCATTER : SW_COMM_ALL_GATHER,
                                      .src = s->own + s->at,
                                      .dst = s->all + (adds ? 0 : s->at),
                                      .slice_bytes = bytes,
                                      .what = "a measurement"};
    SW_TRY(sw_comm_run(comm, &item, 1));
    return adds ? add(s, (int64_t)(bytes / sw_dtype_bytes(s->dtype)), sw_comm_size(comm)) : SW_OK;
}

/* Time of n exchanges; without: of what comes before each of them. */
static sw_status time_some(struct slices *s, sw_comm *comm, size_t bytes, int64_t n, bool without,
                           struct sw_stopwatch *out)
{
    SW_TRY(sw_comm_barrier(comm, "a measurement begins"));
    const struct sw_stopwatch begin = sw_stopwatch_start();
    for (int64_t i = 0; i < n; i++) { /* the same number on all ranks */
        take_place(s, bytes * (size_t)sw_comm_size(comm));
        SW_TRY(without ? SW_OK : exchange(s, comm, bytes));
    }
    const struct sw_stopwatch end = sw_stopwatch_start();
    *out = (struct sw_stopwatch){end.wall - begin.wall, end.processor - begin.processor};
    return SW_OK;
}

/* Measures exchanges of ascending sizes. All ranks stop at the same size. */
static sw_status time_exchanges(struct slices *s, sw_comm *comm, enum sw_curve kind,
                                enum sw_dtype dtype, struct sw_speeds *speeds)
{
    enum { LEAST = 8, MOST = 200 };
    struct sw_rate_curve *curve = &speeds->curves[kind];
    const int size = sw_comm_size(comm);
    s->curve = kind;
    s->dtype = dtype;
    s->at = 0;
    curve->n = 0;
    for (int k = 0; k < SW_CURVE_POINTS; k++) {
        const size_t bytes = (size_t)sizes[k];
        struct sw_stopwatch with, without;
        if (bytes * (size_t)size > s->room) {
            break;
        }
        const int64_t n = sw_max_i64(LEAST, sw_min_i64(MOST, (int64_t)(BUFFER / sizes[k])));
        SW_TRY(time_some(s, comm, bytes, 1, false, &with));
        SW_TRY(time_some(s, comm, bytes, n, true, &without));
        SW_TRY(time_some(s, comm, bytes, n, false, &with));
        const double seconds = fmax(0, with.wall - without.wall);
        const double processor = fmax(0, with.processor - without.processor) / size;
        curve->at[curve->n++] = (struct sw_rate_point){
            sizes[k],
            {.seconds = seconds / (double)n, .cores = fmin(1, processor / fmax(seconds, 1e-9))}};
    }
    make_ascending(curve);
    return SW_OK;
}

/* Measures messages of ascending sizes from each rank with an even number to the next one. Each
 * side has its own processor time: threads of one process leave the copying to the receiver. */
static sw_status time_messages(struct slices *s, sw_comm *comm, struct sw_rate_curve *curve)
{
    enum { LEAST = 8, MOST = 200 };
    const int rank = sw_comm_rank(comm), peer = rank ^ 1;
    const bool sends = rank % 2 == 0;
    for (int k = 0; k < SW_CURVE_POINTS && peer < sw_comm_size(comm); k++) {
        const size_t bytes = (size_t)sizes[k];
        const int64_t n = sw_max_i64(LEAST, sw_min_i64(MOST, (int64_t)(BUFFER / sizes[k])));
        if (bytes > s->room) {
            break;
        }
        double begin = 0, processor = 0;
        for (int64_t i = -1; i < n; i++) { /* the first one lets both sides begin together */
            s->at = s->at + bytes > s->room ? 0 : s->at;
            SW_TRY(sends ? sw_comm_send(comm, peer, s->own + s->at, bytes, "a measurement")
                         : sw_comm_receive(comm, peer, s->all + s->at, bytes, "a measurement"));
            s->at += bytes;
            begin = i < 0 ? sw_now_s() : begin;
            processor = i < 0 ? thread_s() : processor;
        }
        const double seconds = sw_now_s() - begin;
        curve->at[curve->n++] = (struct sw_rate_point){
            sizes[k],
            {.seconds = seconds / (double)n, .cores = (thread_s() - processor) / seconds}};
    }
    make_ascending(curve);
    return SW_OK;
}

/* Memory for exchanges; sums are made by the rank's device if it reaches that memory. */
static sw_status open_slices(const struct measuring *m, int rank, struct slices *s)
{
    const struct sw_measure_options *o = m->options;
    struct sw_device *dev = o ? o->devices[rank % o->n_devices] : NULL;
    if (dev && (dev->caps & SW_DEVICE_HOST_VISIBLE)) {
        SW_TRY(dev->ops->stream_open(dev, &s->on));
        s->dev = dev;
    }
    s->own = sw_alloc("run", s->room);
    s->all = sw_alloc("run", s->room);
    s->sum = sw_alloc("run", 2 * s->room); /* four bytes of sum for two bytes that are sent */
    if (!s->own || !s->all || !s->sum) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for slices");
    }
    memset(s->own, 1, s->room); /* untouched memory would be one page of zeros, in every cache */
    memset(s->all, 1, s->room);
    memset(s->sum, 1, 2 * s->room);
    return SW_OK;
}

static void close_slices(struct slices *s)
{
    sw_free(s->own);
    sw_free(s->all);
    sw_free(s->sum);
    if (s->dev) {
        s->dev->ops->stream_close(s->dev, s->on);
    }
}

/* Measures exchanges on one rank. Rank 0 stores the curves for all; that of a receiver is rank
 * 1's. */
static sw_status exchange_rank(void *ctx, sw_comm *comm)
{
    const struct measuring *m = ctx;
    const int size = sw_comm_size(comm);
    struct sw_speeds speeds = {0};
    struct sw_rate_curve messages = {.n = 0};
    struct slices s = {.room = (size_t)(MOST_SLICES / size)};
    sw_status st;
    SW_TRY_OR(close, open_slices(m, sw_comm_rank(comm), &s));
    SW_TRY_OR(close, time_exchanges(&s, comm, SW_CURVE_GATHER, SW_F32, &speeds));
    SW_TRY_OR(close, time_exchanges(&s, comm, SW_CURVE_REDUCE, m->grads, &speeds));
    if (m->moves_activations) {
        SW_TRY_OR(close, time_exchanges(&s, comm, SW_CURVE_MOVE, SW_F32, &speeds));
    }
    if (m->adds_activations) {
        SW_TRY_OR(close, time_exchanges(&s, comm, SW_CURVE_SUM, m->activations, &speeds));
    }
    if (m->messages) {
        SW_TRY_OR(close, time_messages(&s, comm, &messages));
    }
    if (sw_comm_rank(comm) < 2 && size > 1) {
        m->speeds->curves[SW_CURVE_SEND + sw_comm_rank(comm)] = messages;
    }
    if (sw_comm_rank(comm) == 0) {
        memcpy(&m->speeds->curves[SW_CURVE_GATHER], &speeds.curves[SW_CURVE_GATHER],
               (SW_CURVE_SEND - SW_CURVE_GATHER) * sizeof *speeds.curves);
        m->speeds->meeting = speeds.curves[SW_CURVE_GATHER].at[0].cost.seconds;
    }
close:
    close_slices(&s);
    return st;
}

sw_status sw_speeds_measure_exchanges(sw_comm *comm, struct sw_speeds *speeds)
{
    struct measuring m = {.speeds = speeds, .grads = SW_F32};
    return exchange_rank(&m, comm);
}

/* ---- memory and threads ---- */

struct copying {
    double bytes_per_s; /* of all threads */
    pthread_mutex_t lock;
};

/* Copies memory that is in no cache, beside the other threads. */
static sw_status copy_memory(void *ctx, sw_comm *comm)
{
    struct copying *c = ctx;
    char *memory = sw_alloc("run", 2 * (size_t)BUFFER);
    SW_TRY_ALLOC(memory, "a measurement");
    memset(memory, 1, 2 * (size_t)BUFFER);
    sw_status st = comm ? sw_comm_barrier(comm, "a measurement begins") : SW_OK;
    const double begin = sw_now_s();
    int64_t n = 0;
    do {
        memcpy(memory, memory + BUFFER, BUFFER);
        n++;
    } while (sw_now_s() - begin < small_s);
    pthread_mutex_lock(&c->lock);
    c->bytes_per_s += 2.0 * BUFFER * (double)n / (sw_now_s() - begin);
    pthread_mutex_unlock(&c->lock);
    sw_free(memory);
    return st;
}

/* The bandwidth of a rank, if the ranks share it equally. */
static sw_status measure_memory(int ranks, struct sw_speeds *speeds)
{
    const int n =
        (int)sw_cpu_count() < SW_THREAD_RANKS_MAX ? (int)sw_cpu_count() : SW_THREAD_RANKS_MAX;
    struct copying c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    SW_TRY(n > 1 ? sw_threads_run(n, SW_MEASURE_DEADLINE_S, copy_memory, &c)
                 : copy_memory(&c, NULL));
    speeds->bandwidth = c.bytes_per_s / ranks;
    return SW_OK;
}

/* Ranks that hand jobs over to a queue and wait for it, while all processors compute. */
struct ringing {
    const struct sw_measure_options *options;
    bool exchanges;
    struct sw_speeds *speeds; /* of the first rank */
    atomic_int n_left;        /* ranks that still do */
};

enum { THREADS = 8, RINGS = 25, SMALL = 64 };
static const double compute_s = 0.0003; /* between two jobs: threads sleep meanwhile */

/* A job is a small exchange of the ranks; comm NULL = nothing. */
static sw_status do_job(sw_comm *comm)
{
    char mine[SMALL] = "", all[SW_THREAD_RANKS_MAX * SMALL];
    return comm ? sw_comm_all_gather(comm, mine, all, sizeof mine, "a measurement") : SW_OK;
}

static sw_status begin_ring(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                            int slot)
{
    (void)queue;
    (void)job;
    (void)slot;
    return do_job(ctx);
}

static sw_status end_ring(void *ctx, enum sw_queue queue, const struct sw_queue_job *job, int slot)
{
    (void)ctx;
    (void)queue;
    (void)job;
    (void)slot;
    return SW_OK;
}

static void compute_until(double end)
{
    while (sw_now_s() < end) {
    }
}

/* Sums or means, in seconds. Without a queue, no thread sleeps. */
struct ring_times {
    double without; /* of a job without a queue */
    double issue;   /* of handing it over */
    double both;    /* and waiting for it */
};

/* Adds the times of RINGS jobs. */
static sw_status time_rings(struct sw_queues *queues, struct sw_device *dev,
                            struct sw_stream_queue *on, sw_comm *comm, struct ring_times *sum)
{
    const struct sw_waiter waiter = {0, 0};
    for (int i = 0; i < RINGS; i++) {
        compute_until(sw_now_s() + compute_s);
        const double begin = sw_now_s();
        SW_TRY(do_job(comm));
        sum->without += sw_now_s() - begin;
    }
    for (int i = 0; i < RINGS; i++) {
        const struct sw_queue_job job = {.order = i};
        compute_until(sw_now_s() + compute_s);
        const double begin = sw_now_s();
        SW_TRY(sw_queues_issue(queues, SW_QUEUE_COMM, &job));
        sum->issue += sw_now_s() - begin;
        SW_TRY(sw_queues_order(queues, SW_QUEUE_COMM, SW_WALK_ALL, &waiter));
        SW_TRY(dev->ops->stream_wait(dev, on));
        sum->both += sw_now_s() - begin;
    }
    return SW_OK;
}

/* Hands jobs over to a queue of its own, with a new thread. */
static sw_status ring_with(struct sw_device *dev, sw_comm *comm, struct ring_times *sum)
{
    struct sw_meter meter = {.trace = NULL};
    struct sw_stream_queue *on = NULL;
    struct sw_queues *queues = NULL;
    sw_status st = SW_OK;
    SW_TRY(dev->ops->stream_open(dev, &on));
    const struct sw_queues_options options = {
        .dev = dev,
        .compute = on,
        .meter = &meter,
        .ops = {.begin = begin_ring, .end = end_ring, .most_begun = {[SW_QUEUE_COMM] = 1}},
        .ctx = comm,
        .most_jobs = {[SW_QUEUE_COMM] = 1}};
    SW_TRY_OR(close, sw_queues_open(&options, &queues));
    SW_TRY_OR(close, time_rings(queues, dev, on, comm, sum));
close:
    sw_queues_close(queues);
    dev->ops->stream_close(dev, on);
    return st;
}

/* Sets what handing over costs: a mean over threads. The system leaves a thread on its processor,
 * which is that of computation or another one: what one thread costs says nothing about the
 * next. */
static sw_status ring(struct sw_device *dev, sw_comm *comm, struct sw_speeds *out)
{
    const double n = THREADS * RINGS;
    struct ring_times sum = {.issue = 0};
    for (int i = 0; i < THREADS; i++) {
        SW_TRY(ring_with(dev, comm, &sum));
    }
    out->issue = sum.issue / n;
    out->wake = fmax(0, sum.both - sum.without) / n / 2;
    return SW_OK;
}

/* The ranks among the threads, which exchange. */
static sw_status ring_together(const struct ringing *r, sw_comm *comm, struct sw_speeds *out)
{
    int ranks[SW_THREAD_RANKS_MAX];
    const int n = r->options->n_devices;
    const struct sw_group_options group = {
        .number = 1, .ranks = ranks, .n = n, .name = "measured ranks"};
    sw_comm *between = NULL;
    for (int i = 0; i < n; i++) {
        ranks[i] = i;
    }
    SW_TRY(sw_comm_open_group(comm, &group, &between));
    const sw_status st = ring(r->options->devices[sw_comm_rank(comm)], between, out);
    sw_comm_close(between, st < 0);
    return st;
}

/* Threads beyond the ranks compute until these are done. */
static sw_status ring_or_compute(void *ctx, sw_comm *comm)
{
    struct ringing *r = ctx;
    const int rank = comm ? sw_comm_rank(comm) : 0;
    struct sw_speeds speeds = {0};
    SW_TRY(comm ? sw_comm_barrier(comm, "a measurement begins") : SW_OK);
    if (rank >= r->options->n_devices) {
        while (atomic_load(&r->n_left) > 0) {
            compute_until(sw_now_s() + compute_s);
        }
        return SW_OK;
    }
    const sw_status st = r->exchanges && r->options->n_devices > 1
                             ? ring_together(r, comm, &speeds)
                             : ring(r->options->devices[rank], NULL, &speeds);
    atomic_fetch_sub(&r->n_left, 1);
    if (rank == 0) {
        r->speeds->wake = speeds.wake;
        r->speeds->issue = speeds.issue;
    }
    return st;
}

static sw_status measure_wake(const struct measuring *m, struct sw_speeds *speeds)
{
    const struct sw_measure_options *options = m->options;
    struct ringing r = {.options = options, .exchanges = m->exchanges, .speeds = speeds};
    const int64_t cores = sw_min_i64((int64_t)sw_cpu_count(), SW_THREAD_RANKS_MAX);
    const int n = (int)sw_max_i64(cores, options->n_devices);
    atomic_init(&r.n_left, options->n_devices);
    return n > 1 ? sw_threads_run(n, SW_MEASURE_DEADLINE_S, ring_or_compute, &r)
                 : ring_or_compute(&r, NULL);
}

/* Queues share the memory that they all reach. Those of a GPU have its own beside the host's. */
static sw_status measure_sharing(const struct measuring *m, struct sw_speeds *speeds)
{
    const struct sw_measure_options *options = m->options;
    SW_TRY(options->comm ? SW_OK : measure_wake(m, speeds)); /* others measure at the same time */
    if (options->devices[0]->staging_bytes > 0 || options->devices[0]->memory_bytes > 0) {
        return SW_OK;
    }
    SW_TRY(measure_memory(options->ranks, speeds));
    const bool copies = m->has[SW_LOAD_COPIES_IN] || m->has[SW_LOAD_COPIES_OUT];
    return copies && !options->comm ? sw_measure_yield(m->plan, options, speeds) : SW_OK;
}

/* ---- all measurements ---- */

/* Finds the loads that the plan has and whose rates are not given, and the dtypes of sums. */
static void find_wanted(struct measuring *m)
{
    const struct sw_program *program = &m->plan->programs[0];
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        double work = 0;
        const enum sw_load load = sw_instr_load(m->plan, program, i, &work);
        m->has[load] |= work > 0 && m->speeds->given.work[load] <= 0;
        m->exchanges |= work > 0 && load == SW_LOAD_SENT;
        m->grads = instr->verb == SW_VERB_REDUCE ? instr->exchange.dtype : m->grads;
        const bool adds =
            instr->verb == SW_VERB_REDUCE_SCATTER || instr->verb == SW_VERB_ALL_REDUCE;
        m->adds_activations |= adds;
        m->moves_activations |=
            instr->verb >= SW_VERB_ALL_GATHER && instr->verb <= SW_VERB_BROADCAST;
        m->activations = adds ? instr->exchange.dtype : m->activations;
        m->messages |= instr->verb == SW_VERB_SEND || instr->verb == SW_VERB_RECV;
    }
}

/* Measures what ranks do on their own, at the same time; comm NULL = a single rank. */
static sw_status measure_rank(void *ctx, sw_comm *comm)
{
    struct measuring *m = ctx;
    const int rank = comm && !m->options->comm ? sw_comm_rank(comm) : 0;
    const size_t n = (size_t)m->plan->programs[0].n_instrs;
    struct sw_device *dev = m->options->devices[rank];
    struct sw_speeds speeds = {.kernels = sw_alloc_zero("run", n + 1, sizeof *speeds.kernels)};
    sw_status st = SW_OK;
    SW_TRY_ALLOC(speeds.kernels, "measurements");
    SW_TRY_OR(close, sw_measure_kernels(m->plan, SW_QUEUE_COMPUTE, dev, comm, &m->speeds->given,
                                        speeds.kernels));
    SW_TRY_OR(close, sw_measure_kernels(m->plan, SW_QUEUE_HOST,
                                        m->options->hosts ? m->options->hosts[rank] : NULL, comm,
                                        &m->speeds->given, speeds.kernels));
    if (m->has[SW_LOAD_COPIES_IN] || m->has[SW_LOAD_COPIES_OUT]) {
        SW_TRY_OR(close, measure_copies(m, dev, &speeds));
    }
    if (m->has[SW_LOAD_DISK_READ] || m->has[SW_LOAD_DISK_WRITTEN]) {
        SW_TRY_OR(close, measure_disk(m, dev, &speeds));
    }
close:
    if (rank == 0 && st >= 0) {
        speeds.given = m->speeds->given;
        *m->speeds = speeds;
    } else {
        sw_speeds_close(&speeds);
    }
    return st;
}

sw_status sw_speeds_measure(const struct sw_plan *plan, const struct sw_measure_options *options,
                            struct sw_speeds *speeds)
{
    struct measuring m = {.plan = plan, .options = options, .speeds = speeds};
    find_wanted(&m);
    SW_TRY(options->n_devices > 1
               ? sw_threads_run(options->n_devices, SW_MEASURE_DEADLINE_S, measure_rank, &m)
               : measure_rank(&m, options->comm));
    if (m.exchanges && options->ranks > 1 && options->ranks <= SW_THREAD_RANKS_MAX) {
        SW_TRY(sw_threads_run(options->ranks, SW_MEASURE_DEADLINE_S, exchange_rank, &m));
    }
    for (int c = SW_CURVE_READ; c <= SW_CURVE_ROW; c++) {
        /* scales to ranks that did not take part in the measurement */
        for (int k = 0; k < speeds->curves[c].n; k++) {
            speeds->curves[c].at[k].cost.seconds *= (double)options->ranks / options->n_devices;
        }
    }
    speeds->cores = (double)sw_cpu_count() / options->ranks;
    return measure_sharing(&m, speeds);
}
