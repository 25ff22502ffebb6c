// SPDX-License-Identifier: Apache-2.0
// The mock device runs the reference kernels with the memory and ordering rules of an accelerator.
// It finds bugs that a device with host memory forgives.
// Late mode: work is only queued. A queue runs when the host waits for it or for a counter that it
// sets, and no further than that. It also runs if another running queue waits for such a counter.
// So work happens as late as its order allows, and a missing wait reads poison or an older value.
// Early mode: work runs when it is queued, or as soon as the counter that it waits for is reached.
// So work happens as early as its order allows, and work queued before its input is ready shows.
// One lock for all: the work of several threads never overlaps.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "device/device.h"
#include "device/mock/memory.h"

enum command_kind {
    COMMAND_COPY,
    COMMAND_FILL,
    COMMAND_ADD_SLICES,
    COMMAND_ADD_WORDS,
    COMMAND_LAUNCH,
    COMMAND_SIGNAL,
    COMMAND_AWAIT,
    COMMAND_EXCHANGE,
    COMMAND_REPLAY
};

/* Staging memory: small, so that transfers take many pieces, of 4 KiB at the disk. Around another
 * device pieces are 32 KiB, since larger models are trained there. */
enum { STAGING_BYTES = 64 << 10, STAGING_BYTES_AROUND = 512 << 10 };

/* Addresses in a command are storage addresses, resolved and checked when it was queued. */
struct command {
    enum command_kind kind;
    void *dst;
    const void *src;
    size_t bytes;
    int byte;
    struct sw_slice_sum sum;
    int64_t n_sets, n; /* n: words per set */
    struct sw_kernel *kernel;
    void *in[SW_MAX_INPUTS], *out[SW_MAX_OUTPUTS], *workspace;
    double *scalars;
    struct sw_timeline *timeline;
    int64_t value;
    struct sw_ccl *ccl;
    struct sw_ccl_op *ops; /* [n], owned */
    bool begun;            /* the library has the exchange */
    struct captured *captured;
};

struct commands {
    struct command *at;
    size_t n, cap;
};

struct captured {
    struct sw_captured super;
    struct sw_captured *inner; /* NULL while it is recorded */
    struct commands recorded;
};

struct sw_stream_queue {
    struct sw_stream_queue *next;
    struct sw_stream_queue *inner; /* exchanges of the inner device; NULL = none so far */
    uint64_t n_done;               /* commands run since the queue was opened */
    size_t head;                   /* queued commands: queued.at[head .. queued.n-1] */
    struct commands queued;
    struct captured *recording; /* work goes there instead; NULL = the queue is not captured */
};

struct sw_timeline {
    atomic_llong value; /* written under the lock */
    int64_t n_queued;   /* queued commands that will set it */
};

struct sw_kernel {
    struct sw_kernel *inner;
    struct sw_op op;
    struct sw_op_desc desc;
    size_t workspace_bytes;
};

struct mock {
    struct sw_device super;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a counter has advanced, or work that will set one is queued */
    bool early;
    struct sw_device *inner; /* CPU, reference kernels */
    struct sw_stream_queue *inner_stream;
    struct mock_memory memory;
    struct sw_stream_queue *streams;
};

static struct mock *mock_of(struct sw_device *dev)
{
    return SW_CONTAINER(dev, struct mock, super);
}

/* ---- queues ---- */

static void set(struct mock *m, struct sw_timeline *timeline, int64_t value)
{
    atomic_store(&timeline->value, value);
    pthread_cond_broadcast(&m->changed);
}

/* Waits until the inner device has run its work. */
static sw_status settle(struct mock *m)
{
    SW_TRY(m->inner->ops->stream_wait(m->inner, m->inner_stream));
    return SW_OK;
}

static sw_status run_command(struct mock *m, const struct command *c)
{
    /* the inner device may still batch kernels */
    SW_TRY(c->kind == COMMAND_LAUNCH ? SW_OK : settle(m));
    switch (c->kind) {
    case COMMAND_COPY:
        memmove(c->dst, c->src, c->bytes);
        break;
    case COMMAND_FILL:
        memset(c->dst, c->byte, c->bytes);
        break;
    case COMMAND_ADD_SLICES:
        SW_TRY(sw_device_add_slices(m->inner, m->inner_stream, &c->sum));
        break;
    case COMMAND_ADD_WORDS:
        SW_TRY(sw_device_add_words(m->inner, m->inner_stream, c->dst, c->src, c->n_sets, c->n));
        break;
    case COMMAND_LAUNCH:
        SW_TRY(sw_device_launch(m->inner, m->inner_stream, c->kernel->inner, c->in, c->out,
                                c->workspace, c->scalars));
        break;
    case COMMAND_SIGNAL:
        c->timeline->n_queued--;
        set(m, c->timeline, c->value);
        break;
    case COMMAND_AWAIT: /* already reached */
        break;
    case COMMAND_EXCHANGE: /* already done */
        sw_free(c->ops);
        break;
    case COMMAND_REPLAY:
        SW_TRY(sw_device_replay(m->inner, m->inner_stream, c->captured->inner));
        break;
    }
    return SW_OK;
}

static bool is_empty(const struct sw_stream_queue *stream)
{
    return stream->head == stream->queued.n;
}

/* True if the first command of a queue waits for a counter, or is an exchange that other ranks have
 * not finished. */
static bool is_blocked(struct mock *m, struct sw_stream_queue *stream)
{
    const struct command *first = &stream->queued.at[stream->head];
    bool busy = false;
    if (first->kind == COMMAND_EXCHANGE && first->begun && stream->inner) {
        return m->inner->ccl->busy(m->inner, stream->inner, &busy) >= 0 && busy;
    }
    return first->kind == COMMAND_AWAIT && atomic_load(&first->timeline->value) < first->value;
}

/* Gives an exchange to the library. After a failure it counts as done. */
static sw_status begin_exchange(struct mock *m, struct sw_stream_queue *stream,
                                struct command *first)
{
    first->begun = true;
    SW_TRY(settle(m));
    if (!stream->inner) {
        SW_TRY(m->inner->ops->stream_open(m->inner, &stream->inner));
    }
    return sw_device_exchange(m->inner, stream->inner, first->ccl, first->ops, (int)first->n);
}

/* Runs the first command, which is not blocked, and removes it even if it fails. An exchange is
 * only begun at first. */
static sw_status run_first(struct mock *m, struct sw_stream_queue *stream)
{
    if (stream->queued.at[stream->head].kind == COMMAND_EXCHANGE &&
        !stream->queued.at[stream->head].begun) {
        return begin_exchange(m, stream, &stream->queued.at[stream->head]);
    }
    const struct command first = stream->queued.at[stream->head++];
    stream->n_done++;
    if (is_empty(stream)) {
        stream->head = stream->queued.n = 0;
    }
    return run_command(m, &first);
}

/* Runs everything that can run now, in all queues. */
static sw_status run_all(struct mock *m)
{
    for (bool any = true; any;) {
        any = false;
        for (struct sw_stream_queue *stream = m->streams; stream; stream = stream->next) {
            while (!is_empty(stream) && !is_blocked(m, stream)) {
                any = true;
                SW_TRY(run_first(m, stream));
            }
        }
    }
    return SW_OK;
}

/* The queue that will set the counter, and how many commands it has done then; NULL = none queued
 * yet. */
static struct sw_stream_queue *find_signal(struct mock *m, const struct sw_timeline *timeline,
                                           int64_t value, uint64_t *position)
{
    struct sw_stream_queue *stream = timeline->n_queued > 0 ? m->streams : NULL;
    for (; stream; stream = stream->next) {
        for (size_t i = stream->head; i < stream->queued.n; i++) {
            const struct command *c = &stream->queued.at[i];
            if (c->kind == COMMAND_SIGNAL && c->timeline == timeline && c->value >= value) {
                *position = stream->n_done + (i - stream->head) + 1;
                return stream;
            }
        }
    }
    return NULL;
}

/* The queue to run so that the counter is reached: the one that sets it, or one that it waits for,
 * and so on. NULL: it is up to another thread. */
static struct sw_stream_queue *find_runnable(struct mock *m, const struct sw_timeline *timeline,
                                             int64_t value, uint64_t *position)
{
    /* longest chain of queues that wait for each other; a longer one is a cycle */
    enum { MOST = 64 };
    for (int i = 0; i < MOST; i++) {
        struct sw_stream_queue *stream = find_signal(m, timeline, value, position);
        if (!stream || !is_blocked(m, stream)) {
            return stream;
        }
        if (stream->queued.at[stream->head].kind == COMMAND_EXCHANGE) {
            return NULL;
        }
        timeline = stream->queued.at[stream->head].timeline;
        value = stream->queued.at[stream->head].value;
    }
    return NULL;
}

static bool has_exchange(const struct mock *m)
{
    const struct sw_stream_queue *stream = m->streams;
    while (stream && (is_empty(stream) || !stream->queued.at[stream->head].begun)) {
        stream = stream->next;
    }
    return stream != NULL;
}

/* Releases the lock until another thread changes something. Nobody tells when another rank does, so
 * exchanges are looked at now and then. */
static sw_status wait_for_others(struct mock *m)
{
    enum { LOOK_NS = 100000, SECOND_NS = 1000000000 };
    struct timespec until;
    if (!has_exchange(m)) {
        pthread_cond_wait(&m->changed, &m->lock);
        return SW_OK;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec >= SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&m->changed, &m->lock, &until);
    return m->early ? run_all(m) : SW_OK;
}

/* Brings the counter to value: runs the queue that sets it, or waits, without the lock, for the
 * thread that will. */
static sw_status bring(struct mock *m, const struct sw_timeline *timeline, int64_t value)
{
    while (atomic_load(&timeline->value) < value) {
        uint64_t position;
        struct sw_stream_queue *stream = find_runnable(m, timeline, value, &position);
        if (!stream) {
            SW_TRY(wait_for_others(m));
        }
        while (stream && stream->n_done < position && !is_blocked(m, stream)) {
            SW_TRY(run_first(m, stream));
        }
    }
    return SW_OK;
}

static sw_status run_until(struct mock *m, struct sw_stream_queue *stream, uint64_t position)
{
    while (stream->n_done < position) {
        if (is_blocked(m, stream)) {
            const struct command first = stream->queued.at[stream->head];
            SW_TRY(first.kind == COMMAND_EXCHANGE ? wait_for_others(m)
                                                  : bring(m, first.timeline, first.value));
        } else {
            SW_TRY(run_first(m, stream));
        }
    }
    return SW_OK;
}

static void reap_when_idle(struct mock *m)
{
    for (const struct sw_stream_queue *stream = m->streams; stream; stream = stream->next) {
        if (!is_empty(stream)) {
            return;
        }
    }
    sw_mock_memory_reap(&m->memory);
}

static sw_status append(struct commands *to, const struct command *command)
{
    if (to->n == to->cap) {
        const size_t cap = to->cap ? to->cap * 2 : 64;
        struct command *grown = sw_realloc("device", to->at, cap * sizeof *grown);
        SW_TRY_ALLOC(grown, "a queue of the mock device");
        to->at = grown;
        to->cap = cap;
    }
    to->at[to->n++] = *command;
    return SW_OK;
}

static bool is_capturable(const struct command *command)
{
    return command->kind <= COMMAND_LAUNCH;
}

static sw_status push(struct mock *m, struct sw_stream_queue *stream, const struct command *command)
{
    if (stream->recording) {
        return is_capturable(command)
                   ? append(&stream->recording->recorded, command)
                   : SW_FAIL(SW_E_ARG, "device mock: only kernels, copies, fills and sums can be "
                                       "captured");
    }
    SW_TRY(append(&stream->queued, command));
    if (command->kind == COMMAND_SIGNAL) {
        command->timeline->n_queued++;
        pthread_cond_broadcast(&m->changed);
    }
    return m->early ? run_all(m) : SW_OK;
}

static uint64_t position_now(const struct sw_stream_queue *stream)
{
    return stream->n_done + (stream->queued.n - stream->head);
}

static sw_status stream_open(struct sw_device *dev, struct sw_stream_queue **out)
{
    struct mock *m = mock_of(dev);
    struct sw_stream_queue *stream = sw_alloc_zero("device", 1, sizeof *stream);
    SW_TRY_ALLOC(stream, "a stream");
    pthread_mutex_lock(&m->lock);
    stream->next = m->streams;
    m->streams = stream;
    pthread_mutex_unlock(&m->lock);
    *out = stream;
    return SW_OK;
}

static sw_status stream_wait(struct sw_device *dev, struct sw_stream_queue *stream)
{
    struct mock *m = mock_of(dev);
    pthread_mutex_lock(&m->lock);
    sw_status st = stream->recording
                       ? SW_FAIL(SW_E_ARG, "device mock: a wait for a stream that is captured")
                       : run_until(m, stream, position_now(stream));
    st = st < 0 ? st : settle(m);
    reap_when_idle(m);
    pthread_mutex_unlock(&m->lock);
    return st;
}

static void stream_close(struct sw_device *dev, struct sw_stream_queue *stream)
{
    struct mock *m = mock_of(dev);
    if (!stream) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    if (run_until(m, stream, position_now(stream)) < 0 || settle(m) < 0) {
        sw_log(SW_LOG_ERROR, "device mock: work of a closed stream failed: %s", sw_error_message());
    }
    struct sw_stream_queue **at = &m->streams;
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    pthread_mutex_unlock(&m->lock);
    if (stream->inner) {
        m->inner->ops->stream_close(m->inner, stream->inner);
    }
    sw_free(stream->queued.at);
    sw_free(stream);
}

/* Queues a command if its addresses were valid, and releases the lock. */
static sw_status push_resolved(struct mock *m, struct sw_stream_queue *on,
                               const struct command *command, sw_status resolved)
{
    const sw_status st = resolved < 0 ? resolved : push(m, on, command);
    pthread_mutex_unlock(&m->lock);
    return st;
}

/* ---- timelines ---- */

static sw_status timeline_open(struct sw_device *dev, struct sw_timeline **out)
{
    (void)dev;
    struct sw_timeline *timeline = sw_alloc_zero("device", 1, sizeof *timeline);
    SW_TRY_ALLOC(timeline, "a timeline");
    *out = timeline;
    return SW_OK;
}

static void timeline_close(struct sw_device *dev, struct sw_timeline *timeline)
{
    (void)dev;
    sw_free(timeline);
}

static sw_status push_of_timeline(struct sw_device *dev, struct sw_stream_queue *on,
                                  const struct command *command)
{
    struct mock *m = mock_of(dev);
    pthread_mutex_lock(&m->lock);
    return push_resolved(m, on, command, SW_OK);
}

static sw_status stream_signal(struct sw_device *dev, struct sw_stream_queue *on,
                               struct sw_timeline *timeline, int64_t value)
{
    return push_of_timeline(
        dev, on, &(struct command){.kind = COMMAND_SIGNAL, .timeline = timeline, .value = value});
}

static sw_status stream_await(struct sw_device *dev, struct sw_stream_queue *on,
                              struct sw_timeline *timeline, int64_t value)
{
    return push_of_timeline(
        dev, on, &(struct command){.kind = COMMAND_AWAIT, .timeline = timeline, .value = value});
}

static sw_status timeline_set(struct sw_device *dev, struct sw_timeline *timeline, int64_t value)
{
    struct mock *m = mock_of(dev);
    pthread_mutex_lock(&m->lock);
    set(m, timeline, value);
    const sw_status st = m->early ? run_all(m) : SW_OK;
    pthread_mutex_unlock(&m->lock);
    return st;
}

static int64_t timeline_get(struct sw_device *dev, const struct sw_timeline *timeline)
{
    (void)dev;
    return atomic_load(&timeline->value);
}

static sw_status timeline_wait(struct sw_device *dev, struct sw_timeline *timeline, int64_t value)
{
    struct mock *m = mock_of(dev);
    pthread_mutex_lock(&m->lock);
    const sw_status st = bring(m, timeline, value);
    pthread_mutex_unlock(&m->lock);
    return st;
}

/* ---- memory ---- */

static sw_status mem_alloc(struct sw_device *dev, enum sw_mem kind, size_t bytes, void **out)
{
    struct mock *m = mock_of(dev);
    pthread_mutex_lock(&m->lock);
    const sw_status st = sw_mock_memory_alloc(&m->memory, kind, bytes, out);
    pthread_mutex_unlock(&m->lock);
    return st;
}

static void mem_free(struct sw_device *dev, enum sw_mem kind, void *mem, size_t bytes)
{
    struct mock *m = mock_of(dev);
    (void)kind;
    (void)bytes;
    pthread_mutex_lock(&m->lock);
    sw_mock_memory_release(&m->memory, mem);
    reap_when_idle(m);
    pthread_mutex_unlock(&m->lock);
}

static sw_status copy(struct sw_device *dev, struct sw_stream_queue *on, void *dst, const void *src,
                      size_t bytes)
{
    struct mock *m = mock_of(dev);
    struct command command = {.kind = COMMAND_COPY, .bytes = bytes};
    void *from = NULL;
    pthread_mutex_lock(&m->lock);
    sw_status st = sw_mock_memory_resolve(&m->memory, dst, bytes, false, &command.dst);
    st = st < 0 ? st : sw_mock_memory_resolve(&m->memory, src, bytes, false, &from);
    command.src = from;
    return push_resolved(m, on, &command, st);
}

static sw_status fill(struct sw_device *dev, struct sw_stream_queue *on, void *dst, int byte,
                      size_t bytes)
{
    struct mock *m = mock_of(dev);
    struct command command = {.kind = COMMAND_FILL, .byte = byte, .bytes = bytes};
    pthread_mutex_lock(&m->lock);
    const sw_status st = sw_mock_memory_resolve(&m->memory, dst, bytes, false, &command.dst);
    return push_resolved(m, on, &command, st);
}

/* ---- sums ---- */

static sw_status add_slices(struct sw_device *dev, struct sw_stream_queue *on,
                            const struct sw_slice_sum *sum)
{
    struct mock *m = mock_of(dev);
    struct command command = {.kind = COMMAND_ADD_SLICES, .sum = *sum};
    const size_t all = (size_t)sum->n_slices * (size_t)sum->n * sw_dtype_bytes(sum->dtype);
    void *acc = NULL, *slices = NULL, *rounded = NULL;
    pthread_mutex_lock(&m->lock);
    sw_status st =
        sw_mock_memory_resolve(&m->memory, sum->acc, (size_t)sum->n * sizeof *sum->acc, true, &acc);
    st = st < 0 ? st : sw_mock_memory_resolve(&m->memory, sum->slices, all, true, &slices);
    if (st >= 0 && sum->rounded) {
        st = sw_mock_memory_resolve(&m->memory, sum->rounded,
                                    (size_t)sum->n * sw_dtype_bytes(sum->dtype), true, &rounded);
    }
    command.sum.acc = acc;
    command.sum.slices = slices;
    command.sum.rounded = rounded;
    return push_resolved(m, on, &command, st);
}

static sw_status add_words(struct sw_device *dev, struct sw_stream_queue *on, int64_t *out,
                           const int64_t *words, int64_t n_sets, int64_t n)
{
    struct mock *m = mock_of(dev);
    struct command command = {.kind = COMMAND_ADD_WORDS, .n_sets = n_sets, .n = n};
    const size_t bytes = (size_t)n * sizeof *out;
    void *from = NULL;
    pthread_mutex_lock(&m->lock);
    sw_status st = sw_mock_memory_resolve(&m->memory, out, bytes, true, &command.dst);
    st = st < 0 ? st
                : sw_mock_memory_resolve(&m->memory, words, (size_t)n_sets * bytes, true, &from);
    command.src = from;
    return push_resolved(m, on, &command, st);
}

/* ---- exchanges ---- */

static sw_status ccl_facts(struct sw_device *dev, struct sw_ccl_facts *out)
{
    return mock_of(dev)->inner->ccl->facts(mock_of(dev)->inner, out);
}

static sw_status ccl_new_id(struct sw_device *dev, unsigned char id[SW_CCL_ID_BYTES])
{
    return mock_of(dev)->inner->ccl->new_id(mock_of(dev)->inner, id);
}

static sw_status ccl_open(struct sw_device *dev, const struct sw_ccl_options *options,
                          struct sw_ccl **out)
{
    return mock_of(dev)->inner->ccl->open(mock_of(dev)->inner, options, out);
}

static void ccl_close(struct sw_device *dev, struct sw_ccl *ccl, bool failed)
{
    mock_of(dev)->inner->ccl->close(mock_of(dev)->inner, ccl, failed);
}

static sw_status ccl_check(struct sw_device *dev, struct sw_ccl *ccl)
{
    return mock_of(dev)->inner->ccl->check(mock_of(dev)->inner, ccl);
}

static void ccl_abort(struct sw_device *dev, struct sw_ccl *ccl)
{
    mock_of(dev)->inner->ccl->abort(mock_of(dev)->inner, ccl);
}

/* Resolves the operands of an op. The number of members is not known here, so only the first slice
 * of each is checked. */
static sw_status resolve_op(const struct mock_memory *memory, struct sw_ccl_op *op)
{
    void *src = NULL, *dst = NULL;
    if (op->verb != SW_CCL_RECEIVE) {
        SW_TRY(sw_mock_memory_resolve(memory, op->src, op->bytes, true, &src));
    }
    if (op->verb != SW_CCL_SEND) {
        SW_TRY(sw_mock_memory_resolve(memory, op->dst, op->bytes, true, &dst));
    }
    op->src = src;
    op->dst = dst;
    return SW_OK;
}

static sw_status ccl_exchange(struct sw_device *dev, struct sw_stream_queue *on, struct sw_ccl *ccl,
                              const struct sw_ccl_op *ops, int n)
{
    struct mock *m = mock_of(dev);
    struct command command = {.kind = COMMAND_EXCHANGE, .ccl = ccl, .n = n};
    sw_status st = SW_OK;
    command.ops = sw_alloc("device", (size_t)n * sizeof *ops);
    SW_TRY_ALLOC(command.ops, "an exchange");
    memcpy(command.ops, ops, (size_t)n * sizeof *ops);
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < n && st >= 0; i++) {
        st = resolve_op(&m->memory, &command.ops[i]);
    }
    if (st < 0) {
        sw_free(command.ops);
    }
    return push_resolved(m, on, &command, st);
}

static const struct sw_ccl_ops mock_ccl = {
    .facts = ccl_facts,
    .new_id = ccl_new_id,
    .open = ccl_open,
    .close = ccl_close,
    .check = ccl_check,
    .abort = ccl_abort,
    .exchange = ccl_exchange,
};

/* ---- captured work ---- */

static sw_status capture_begin(struct sw_device *dev, struct sw_stream_queue *on)
{
    struct mock *m = mock_of(dev);
    struct captured *captured = sw_alloc_zero("device", 1, sizeof *captured);
    SW_TRY_ALLOC(captured, "captured work");
    pthread_mutex_lock(&m->lock);
    const bool twice = on->recording != NULL;
    on->recording = twice ? on->recording : captured;
    pthread_mutex_unlock(&m->lock);
    if (twice) {
        sw_free(captured);
        return SW_FAIL(SW_E_ARG, "device mock: the stream is captured already");
    }
    return SW_OK;
}

/* Gives a recorded command to the inner device, which captures. Its own copies and fills run at
 * once otherwise. */
static sw_status record_inner(struct mock *m, const struct command *c)
{
    switch (c->kind) {
    case COMMAND_COPY:
        return sw_device_copy(m->inner, m->inner_stream, c->dst, c->src, c->bytes);
    case COMMAND_FILL:
        return sw_device_fill(m->inner, m->inner_stream, c->dst, c->byte, c->bytes);
    case COMMAND_ADD_SLICES:
        return sw_device_add_slices(m->inner, m->inner_stream, &c->sum);
    case COMMAND_ADD_WORDS:
        return sw_device_add_words(m->inner, m->inner_stream, c->dst, c->src, c->n_sets, c->n);
    default:
        return sw_device_launch(m->inner, m->inner_stream, c->kernel->inner, c->in, c->out,
                                c->workspace, c->scalars);
    }
}

static sw_status capture_inner(struct mock *m, struct captured *captured)
{
    sw_status st = SW_OK;
    SW_TRY(settle(m));
    SW_TRY(sw_device_capture_begin(m->inner, m->inner_stream));
    for (size_t i = 0; i < captured->recorded.n && st >= 0; i++) {
        st = record_inner(m, &captured->recorded.at[i]);
    }
    if (st < 0) {
        m->inner->capture->end(m->inner, m->inner_stream, NULL);
        return st;
    }
    SW_TRY(sw_device_capture_end(m->inner, m->inner_stream, &captured->inner));
    captured->super = *captured->inner;
    return SW_OK;
}

static void free_captured(struct mock *m, struct captured *captured)
{
    sw_device_captured_close(m->inner, captured->inner);
    sw_free(captured->recorded.at);
    sw_free(captured);
}

static sw_status capture_end(struct sw_device *dev, struct sw_stream_queue *on,
                             struct sw_captured **out)
{
    struct mock *m = mock_of(dev);
    pthread_mutex_lock(&m->lock);
    struct captured *captured = on->recording;
    on->recording = NULL;
    sw_status st = !captured ? SW_FAIL(SW_E_ARG, "device mock: the stream is not captured")
                   : out     ? capture_inner(m, captured)
                             : SW_OK;
    if (captured && (st < 0 || !out)) {
        free_captured(m, captured);
    }
    pthread_mutex_unlock(&m->lock);
    if (st >= 0 && out) {
        *out = &captured->super;
    }
    return st;
}

static sw_status capture_replay(struct sw_device *dev, struct sw_stream_queue *on,
                                struct sw_captured *captured)
{
    struct mock *m = mock_of(dev);
    const struct command command = {.kind = COMMAND_REPLAY,
                                    .captured = SW_CONTAINER(captured, struct captured, super)};
    pthread_mutex_lock(&m->lock);
    return push_resolved(m, on, &command, SW_OK);
}

static void capture_close(struct sw_device *dev, struct sw_captured *captured)
{
    struct mock *m = mock_of(dev);
    pthread_mutex_lock(&m->lock);
    free_captured(m, SW_CONTAINER(captured, struct captured, super));
    pthread_mutex_unlock(&m->lock);
}

static const struct sw_capture_ops mock_capture = {
    .begin = capture_begin,
    .end = capture_end,
    .replay = capture_replay,
    .close = capture_close,
};

/* ---- kernels ---- */

static void query(struct sw_device *dev, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(mock_of(dev)->inner, desc, out);
}

static sw_status prepare(struct sw_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel **out)
{
    struct mock *m = mock_of(dev);
    struct sw_kernel_info info;
    struct sw_kernel *kernel = sw_alloc_zero("device", 1, sizeof *kernel);
    SW_TRY_ALLOC(kernel, "a kernel");
    sw_device_query(m->inner, desc, &info);
    kernel->op = *desc->op;
    kernel->desc = *desc;
    kernel->desc.op = &kernel->op;
    kernel->workspace_bytes = info.workspace_bytes;
    const sw_status st = sw_device_prepare(m->inner, desc, &kernel->inner);
    if (st < 0) {
        sw_free(kernel);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = kernel;
    return SW_OK;
}

static void release(struct sw_device *dev, struct sw_kernel *kernel)
{
    if (kernel) {
        struct sw_device *inner = mock_of(dev)->inner;
        inner->ops->release(inner, kernel->inner);
        sw_free(kernel);
    }
}

/* Bytes from element 0 of a view to the end of its last element. */
static size_t extent_bytes(const struct sw_view *view)
{
    int64_t last = 0;
    for (int d = 0; d < view->shape.rank; d++) {
        if (view->shape.dims[d] == 0) {
            return 0;
        }
        last += (view->shape.dims[d] - 1) * view->strides[d];
    }
    return (size_t)(last + 1) * sw_dtype_bytes(view->dtype);
}

static sw_status resolve_views(const struct mock_memory *memory, const struct sw_view *views, int n,
                               void *const *addresses, void **out)
{
    for (int i = 0; i < n; i++) {
        out[i] = NULL;
        if (addresses[i] && views[i].shape.rank >= 0) {
            SW_TRY(sw_mock_memory_resolve(memory, addresses[i], extent_bytes(&views[i]), true,
                                          &out[i]));
        }
    }
    return SW_OK;
}

static sw_status resolve_call(const struct mock_memory *memory, const struct sw_kernel *kernel,
                              void *const *in, void *const *out, void *workspace, double *scalars,
                              struct command *command)
{
    void *table;
    SW_TRY(resolve_views(memory, kernel->desc.in, kernel->op.n_in, in, command->in));
    SW_TRY(resolve_views(memory, kernel->desc.out, kernel->op.n_out, out, command->out));
    if (kernel->workspace_bytes > 0) {
        SW_TRY(sw_mock_memory_resolve(memory, workspace, kernel->workspace_bytes, true,
                                      &command->workspace));
    }
    SW_TRY(
        sw_mock_memory_resolve(memory, scalars, SW_SCALAR_COUNT * sizeof *scalars, true, &table));
    command->scalars = table;
    return SW_OK;
}

static sw_status launch(struct sw_device *dev, struct sw_stream_queue *on, struct sw_kernel *kernel,
                        void *const *in, void *const *out, void *workspace, double *scalars)
{
    struct mock *m = mock_of(dev);
    struct command command = {.kind = COMMAND_LAUNCH, .kernel = kernel};
    pthread_mutex_lock(&m->lock);
    const sw_status st = resolve_call(&m->memory, kernel, in, out, workspace, scalars, &command);
    return push_resolved(m, on, &command, st);
}

/* ---- the device ---- */

static void close_device(struct sw_device *dev)
{
    struct mock *m = mock_of(dev);
    while (m->streams) {
        stream_close(dev, m->streams);
    }
    sw_mock_memory_fini(&m->memory);
    if (m->inner && m->inner_stream) {
        m->inner->ops->stream_close(m->inner, m->inner_stream);
    }
    sw_device_close(m->inner);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    sw_free(m);
}

static void algorithms(struct sw_device *dev, struct sw_str *out)
{
    sw_device_algorithms(mock_of(dev)->inner, out);
}

static const struct sw_device_ops mock_ops = {
    .name = "mock",
    SW_DEVICE_OPS,
    .algorithms = algorithms,
};

sw_status sw_device_open_mock(const struct sw_mock_options *options, struct sw_device **out)
{
    const struct sw_cpu_options cpu = {.n_threads = options->n_threads, .reference = true};
    struct sw_device *inner = options->inner;
    sw_status st;
    struct mock *m = sw_alloc_zero("device", 1, sizeof *m);
    SW_TRY_ALLOC(m, "the mock device");
    m->super.ops = &mock_ops;
    m->super.staging_bytes = inner ? STAGING_BYTES_AROUND : STAGING_BYTES;
    m->early = options->early;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    m->inner = inner;
    if (!inner) {
        SW_TRY_OR(close, sw_device_open_cpu(&cpu, &m->inner));
    }
    SW_TRY_OR(close, m->inner->ops->stream_open(m->inner, &m->inner_stream));
    m->super.kernel_set = m->inner->kernel_set; /* the same kernels, the same bits */
    m->super.memory_bytes = m->inner->memory_bytes;
    m->super.address = m->inner->address;
    m->super.ccl = m->inner->ccl ? &mock_ccl : NULL;
    m->super.ccl_bytes = m->inner->ccl_bytes;
    m->super.capture = m->inner->capture ? &mock_capture : NULL;
    m->super.no_capture = m->inner->no_capture;
    m->super.what = inner ? inner->what : "mock";
    *out = &m->super;
    return SW_OK;
close:
    close_device(&m->super);
    return st;
}
