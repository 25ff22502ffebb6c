// SPDX-License-Identifier: Apache-2.0
// One producer, a ring of jobs and a consumer for each queue, and one lock for all. There is no
// deadlock: of the unfinished jobs, the one that was issued first can always proceed. The jobs that
// it waits for are done, and so is what computation waits for before it. A job that fails, or is
// dropped after a failure, counts as done. Computation then proceeds with what is there.
#include "run/queues.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

struct entry {
    struct sw_queue_job job;
    int64_t needs[SW_QUEUE_COUNT]; /* values that the timelines must reach before it begins */
};

struct queue {
    struct sw_queues *all;
    enum sw_queue name;
    struct sw_stream_queue *stream; /* it is in order; NULL = its thread works */
    struct sw_timeline *begins;     /* in order: counts jobs that have begun */
    int64_t begun_ns;               /* in order: when the present job began; 0 = it has not */
    pthread_t thread;
    pthread_cond_t changed; /* its thread has something to do */
    bool running;
    struct entry *ring; /* [most] */
    int64_t most;
    int most_begun;
    int64_t n_issued, n_begun, n_done;
    bool begun[SW_QUEUE_BEGUN]; /* by slot; false = the job was dropped */
    /* used by the producer only: jobs that computation waits for; jobs before a barrier */
    int64_t n_ordered, n_before;
};

struct sw_queues {
    struct queue queues[SW_QUEUE_COUNT];
    struct sw_timeline *timelines[SW_QUEUE_COUNT];
    struct sw_queues_options options;
    int64_t n_signals; /* timeline of computation; used by the producer only */
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a job, for the producer */
    bool quit;
    atomic_int st;
    char message[1024];
};

static int64_t value_of(const struct sw_queues *all, int queue)
{
    struct sw_device *dev = all->options.dev;
    return dev->ops->timeline_get(dev, all->timelines[queue]);
}

/* The caller holds the lock. */
static void note_failure(struct sw_queues *all, sw_status st)
{
    if (st < 0 && atomic_load(&all->st) >= 0) {
        snprintf(all->message, sizeof all->message, "%s", sw_error_message());
        atomic_store(&all->st, (int)st);
    }
}

/* ---- the thread of a queue. The lock is held, and released during work ---- */

/* Begins the next job. After a failure it is dropped instead, but still counts as begun. */
static void begin_job(struct queue *q)
{
    struct sw_queues *all = q->all;
    const int slot = (int)(q->n_begun % SW_QUEUE_BEGUN);
    q->begun[slot] = false;
    if (atomic_load(&all->st) >= 0) {
        const struct sw_queue_job job = q->ring[q->n_begun % q->most].job;
        pthread_mutex_unlock(&all->lock);
        const sw_status st = all->options.ops.begin(all->options.ctx, q->name, &job, slot);
        pthread_mutex_lock(&all->lock);
        q->begun[slot] = st >= 0;
        note_failure(all, st);
    }
    q->n_begun++;
}

static void wake_all(struct sw_queues *all)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        pthread_cond_signal(&all->queues[q].changed);
    }
}

/* Counts an ended job. Wakes the threads whose next job may begin now, and no others, since they
 * would take processors from computation. After a failure all jobs may begin. */
static void count_ended(struct queue *q)
{
    struct sw_queues *all = q->all;
    q->n_done++;
    for (int i = 0; i < SW_QUEUE_COUNT; i++) {
        struct queue *other = &all->queues[i];
        const bool waits = other->n_begun < other->n_issued;
        if (waits && other->ring[other->n_begun % other->most].needs[q->name] == q->n_done) {
            pthread_cond_signal(&other->changed);
        }
    }
    if (atomic_load(&all->st) < 0) {
        wake_all(all);
    }
    pthread_cond_signal(&all->ended);
}

/* Ends the oldest job. Jobs that were begun are ended, even after a failure. */
static void end_job(struct queue *q)
{
    struct sw_queues *all = q->all;
    struct sw_device *dev = all->options.dev;
    const int slot = (int)(q->n_done % SW_QUEUE_BEGUN);
    if (q->begun[slot]) {
        const struct sw_queue_job job = q->ring[q->n_done % q->most].job;
        pthread_mutex_unlock(&all->lock);
        const sw_status st = all->options.ops.end(all->options.ctx, q->name, &job, slot);
        pthread_mutex_lock(&all->lock);
        note_failure(all, st); /* must come before anyone proceeds */
    }
    pthread_mutex_unlock(&all->lock);
    const sw_status st = dev->ops->timeline_set(dev, all->timelines[q->name], q->n_done + 1);
    pthread_mutex_lock(&all->lock);
    note_failure(all, st);
    count_ended(q);
}

/* Waits for computation to reach the next job, which is the thread's only one. */
static void await_computation(struct queue *q)
{
    struct sw_queues *all = q->all;
    struct sw_device *dev = all->options.dev;
    const int64_t value = q->ring[q->n_begun % q->most].needs[SW_QUEUE_COMPUTE];
    pthread_mutex_unlock(&all->lock);
    sw_meter_host_waits(all->options.meter, q->name);
    const sw_status st = dev->ops->timeline_wait(dev, all->timelines[SW_QUEUE_COMPUTE], value);
    pthread_mutex_lock(&all->lock);
    note_failure(all, st);
}

static bool has_met_queues(const struct sw_queues *all, const struct entry *entry)
{
    for (int q = SW_QUEUE_COMPUTE + 1; q < SW_QUEUE_COUNT; q++) {
        if (all->queues[q].n_done < entry->needs[q]) {
            return false;
        }
    }
    return true;
}

enum next { BEGIN, END, AWAIT, SLEEP, QUIT };

/* If a job is begun, ends it before waiting for computation, which may wait for that job. */
static enum next next_of(const struct queue *q)
{
    const struct sw_queues *all = q->all;
    const bool failed = atomic_load(&all->st) < 0;
    const struct entry *next = q->n_begun < q->n_issued && q->n_begun - q->n_done < q->most_begun
                                   ? &q->ring[q->n_begun % q->most]
                                   : NULL;
    if (next && !failed && !has_met_queues(all, next)) {
        next = NULL;
    }
    if (next && (failed || value_of(all, SW_QUEUE_COMPUTE) >= next->needs[SW_QUEUE_COMPUTE])) {
        return BEGIN;
    }
    return q->n_begun > q->n_done                   ? END
           : next                                   ? AWAIT
           : all->quit && q->n_begun == q->n_issued ? QUIT
                                                    : SLEEP;
}

/* Asks for short turns of the processor. Linux (from 6.12) then lets this thread begin when it is
 * woken, also if computation has all processors; otherwise it may wait for a tick, which is up to
 * 10 ms. Other versions ignore that or refuse it, which changes nothing. */
static void take_short_turns(void)
{
    struct { /* struct sched_attr of Linux, in its first version */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attr;
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0U) == 0 && attr.policy == SCHED_OTHER) {
        attr.runtime_ns = 100000; /* the shortest that Linux takes */
        syscall(SYS_sched_setattr, 0, &attr, 0U);
    }
}

/* The thread of a queue. */
static void *work(void *arg)
{
    struct queue *q = arg;
    struct sw_queues *all = q->all;
    bool quits = false;
    take_short_turns();
    pthread_mutex_lock(&all->lock);
    while (!quits) {
        switch (next_of(q)) {
        case BEGIN:
            begin_job(q);
            break;
        case END:
            end_job(q);
            break;
        case AWAIT:
            await_computation(q);
            break;
        case SLEEP:
            pthread_cond_wait(&q->changed, &all->lock);
            break;
        case QUIT:
            quits = true;
            break;
        }
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* ---- a queue that is in order ---- */

/* Waits for a counter of the device. The wait also returns failures of other work. They are noted,
 * and it is tried again; after TRIES failures the work counts as done. */
static void await(struct queue *q, const struct sw_queue_job *job, struct sw_timeline *timeline,
                  int64_t value)
{
    enum { TRIES = 100 };
    struct sw_queues *all = q->all;
    struct sw_device *dev = all->options.dev;
    sw_status st = SW_E_ARG;
    for (int i = 0; i < TRIES && st < 0; i++) {
        st = dev->ops->timeline_wait(dev, timeline, value);
        st = st < 0 ? all->options.ops.blame(all->options.ctx, q->name, job, st) : st;
        sw_queues_fail(all, st);
    }
}

/* Notes when the next job begins and ends. */
static void watch_job(struct queue *q)
{
    struct sw_queues *all = q->all;
    const struct sw_queue_job job = q->ring[q->n_done % q->most].job;
    const int64_t n = q->n_done + 1;
    pthread_mutex_unlock(&all->lock);
    await(q, &job, q->begins, n);
    const int64_t begun = sw_now_ns();
    pthread_mutex_lock(&all->lock);
    q->begun_ns = begun;
    pthread_mutex_unlock(&all->lock);
    await(q, &job, all->timelines[q->name], n);
    all->options.ops.passed(all->options.ctx, q->name, &job, begun, sw_now_ns());
    pthread_mutex_lock(&all->lock);
    q->begun_ns = 0;
    q->n_begun = n;
    count_ended(q);
}

static void *look_on(void *arg)
{
    struct queue *q = arg;
    struct sw_queues *all = q->all;
    pthread_mutex_lock(&all->lock);
    while (q->n_done < q->n_issued || !all->quit) {
        if (q->n_done < q->n_issued) {
            watch_job(q);
        } else {
            pthread_cond_wait(&q->changed, &all->lock);
        }
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* Queues what a job waits for, the job, and what tells that it is done. */
static sw_status enqueue(struct queue *q, const struct entry *entry, int64_t n)
{
    struct sw_queues *all = q->all;
    const struct sw_device_ops *ops = all->options.dev->ops;
    struct sw_device *dev = all->options.dev;
    for (int r = 0; r < SW_QUEUE_COUNT; r++) {
        if (r != (int)q->name && entry->needs[r] > 0) {
            SW_TRY(ops->stream_await(dev, q->stream, all->timelines[r], entry->needs[r]));
        }
    }
    SW_TRY(ops->stream_signal(dev, q->stream, q->begins, n));
    const sw_status st = atomic_load(&all->st) < 0
                             ? SW_OK
                             : all->options.ops.enqueue(all->options.ctx, q->name, &entry->job);
    sw_queues_fail(all, st);
    return ops->stream_signal(dev, q->stream, all->timelines[q->name], n);
}

/* Without its signals nobody would learn that the job is over. */
static sw_status issue_in_order(struct queue *q, const struct entry *entry, int64_t n)
{
    struct sw_device *dev = q->all->options.dev;
    const sw_status st = enqueue(q, entry, n);
    if (st < 0) {
        sw_queues_fail(q->all, st);
        dev->ops->timeline_set(dev, q->begins, n);
        dev->ops->timeline_set(dev, q->all->timelines[q->name], n);
    }
    return sw_queues_status(q->all);
}

bool sw_queues_find_stuck(struct sw_queues *all, int64_t ns, enum sw_queue *out_queue,
                          struct sw_queue_job *out)
{
    const int64_t before = sw_now_ns() - ns;
    bool found = false;
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < SW_QUEUE_COUNT && !found; i++) {
        const struct queue *q = &all->queues[i];
        found = q->begun_ns > 0 && q->begun_ns < before && q->n_done < q->n_issued;
        if (found) {
            *out_queue = q->name;
            *out = q->ring[q->n_done % q->most].job;
        }
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}

void sw_queues_fail(struct sw_queues *all, sw_status st)
{
    pthread_mutex_lock(&all->lock);
    note_failure(all, st);
    pthread_mutex_unlock(&all->lock);
}

/* ---- opening and closing ---- */

/* Opens a queue that has jobs. Computation has a timeline, but no ring and no thread. */
static sw_status open_queue(struct sw_queues *all, int name)
{
    struct queue *q = &all->queues[name];
    struct sw_device *dev = all->options.dev;
    q->all = all;
    q->name = (enum sw_queue)name;
    /* one more, since others may learn first that the last one is done */
    q->most = all->options.most_jobs[name] + 1;
    q->most_begun = all->options.ops.most_begun[name];
    if (all->options.most_jobs[name] == 0 && name != SW_QUEUE_COMPUTE) {
        return SW_OK;
    }
    SW_TRY(dev->ops->timeline_open(dev, &all->timelines[name]));
    if (name == SW_QUEUE_COMPUTE) {
        return SW_OK;
    }
    q->stream = all->options.in_order[name];
    SW_TRY(q->stream ? dev->ops->timeline_open(dev, &q->begins) : SW_OK);
    q->ring = sw_alloc_zero("run", (size_t)q->most, sizeof *q->ring);
    q->running = q->ring && pthread_create(&q->thread, NULL, q->stream ? look_on : work, q) == 0;
    return q->running ? SW_OK
                      : SW_FAIL(SW_E_NOMEM, "no memory or no thread for the queue \"%s\"",
                                sw_queue_name(q->name));
}

sw_status sw_queues_open(const struct sw_queues_options *options, struct sw_queues **out)
{
    struct sw_queues *all = sw_alloc_zero("run", 1, sizeof *all);
    SW_TRY_ALLOC(all, "the queues");
    all->options = *options;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->ended, NULL);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        pthread_cond_init(&all->queues[q].changed, NULL);
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const sw_status st = open_queue(all, q);
        if (st < 0) {
            sw_queues_close(all);
            return sw_frame_at(__FILE__, __LINE__, st);
        }
    }
    *out = all;
    return SW_OK;
}

void sw_queues_close(struct sw_queues *all)
{
    if (!all) {
        return;
    }
    struct sw_device *dev = all->options.dev;
    pthread_mutex_lock(&all->lock);
    all->quit = true;
    wake_all(all);
    pthread_mutex_unlock(&all->lock);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (all->queues[q].running) {
            pthread_join(all->queues[q].thread, NULL);
        }
        sw_free(all->queues[q].ring);
    }
    /* computation may still signal the timelines, or wait for them */
    dev->ops->stream_wait(dev, all->options.compute);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (all->queues[q].stream) {
            dev->ops->stream_wait(dev, all->queues[q].stream);
        }
        if (all->queues[q].begins) {
            dev->ops->timeline_close(dev, all->queues[q].begins);
        }
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (all->timelines[q]) {
            dev->ops->timeline_close(dev, all->timelines[q]);
        }
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        pthread_cond_destroy(&all->queues[q].changed);
    }
    pthread_cond_destroy(&all->ended);
    pthread_mutex_destroy(&all->lock);
    sw_free(all);
}

/* ---- the producer ---- */

/* Number of jobs of a queue up to order `until`, counted from the last barrier. From there on, the
 * jobs of a queue are issued in order. Instructions that did not run have no job, and nobody waits
 * for them. */
static int64_t jobs_until(const struct queue *q, int64_t until)
{
    int64_t n = q->n_issued;
    while (n > q->n_before && n > q->n_done && q->ring[(n - 1) % q->most].job.order > until) {
        n--;
    }
    return n;
}

sw_status sw_queues_issue(struct sw_queues *all, enum sw_queue queue,
                          const struct sw_queue_job *job)
{
    struct queue *q = &all->queues[queue];
    struct sw_device *dev = all->options.dev;
    const int64_t value = ++all->n_signals;
    SW_TRY(dev->ops->stream_signal(dev, all->options.compute, all->timelines[SW_QUEUE_COMPUTE],
                                   value));
    pthread_mutex_lock(&all->lock);
    if (q->n_issued - q->n_done == q->most) {
        sw_meter_host_waits(all->options.meter, SW_QUEUE_COMPUTE);
    }
    while (q->n_issued - q->n_done == q->most) {
        pthread_cond_wait(&all->ended, &all->lock);
    }
    struct entry *entry = &q->ring[q->n_issued % q->most];
    entry->job = *job;
    entry->needs[SW_QUEUE_COMPUTE] = value;
    for (int r = SW_QUEUE_COMPUTE + 1; r < SW_QUEUE_COUNT; r++) {
        entry->needs[r] = job->needs[r] < 0 ? 0 : jobs_until(&all->queues[r], job->needs[r]);
    }
    q->n_issued++;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&all->lock);
    /* only this thread changes the entry and n_issued */
    return q->stream ? issue_in_order(q, entry, q->n_issued) : SW_OK;
}

sw_status sw_queues_status(struct sw_queues *all)
{
    if (atomic_load(&all->st) >= 0) {
        return SW_OK;
    }
    pthread_mutex_lock(&all->lock);
    const sw_status st = SW_FAIL((sw_status)atomic_load(&all->st), "%s", all->message);
    pthread_mutex_unlock(&all->lock);
    return st;
}

/* Makes later computation wait for the first n jobs of a queue. If streams run on the issuing
 * thread, that thread waits here, and the wait is metered. */
static sw_status order(struct sw_queues *all, struct queue *q, int64_t n,
                       const struct sw_waiter *waiter)
{
    struct sw_device *dev = all->options.dev;
    if (n <= q->n_ordered) {
        return SW_OK;
    }
    q->n_ordered = n;
    if (value_of(all, (int)q->name) >= n) {
        return SW_OK;
    }
    const int64_t begin = sw_now_ns();
    SW_TRY(dev->ops->stream_await(dev, all->options.compute, all->timelines[q->name], n));
    sw_meter_waited(all->options.meter, &(struct sw_span){.queue = q->name,
                                                          .program = waiter->i_program,
                                                          .instr = waiter->instr,
                                                          .begin_ns = begin,
                                                          .end_ns = sw_now_ns()});
    return SW_OK;
}

sw_status sw_queues_order(struct sw_queues *all, enum sw_queue queue, int64_t until,
                          const struct sw_waiter *waiter)
{
    struct queue *q = &all->queues[queue];
    pthread_mutex_lock(&all->lock);
    const int64_t n = jobs_until(q, until);
    pthread_mutex_unlock(&all->lock);
    SW_TRY(order(all, q, n, waiter));
    return sw_queues_status(all);
}

sw_status sw_queues_barrier(struct sw_queues *all, const struct sw_waiter *waiter)
{
    for (int i = SW_QUEUE_COMPUTE + 1; i < SW_QUEUE_COUNT; i++) {
        struct queue *q = &all->queues[i];
        SW_TRY(order(all, q, q->n_issued, waiter)); /* only this thread changes it */
        q->n_before = q->n_issued;
    }
    return sw_queues_status(all);
}

void sw_queues_stop(struct sw_queues *all)
{
    pthread_mutex_lock(&all->lock);
    if (atomic_load(&all->st) >= 0) {
        snprintf(all->message, sizeof all->message, "an instruction before it failed");
        atomic_store(&all->st, (int)SW_E_ARG);
    }
    wake_all(all);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        while (all->queues[q].n_done < all->queues[q].n_issued) {
            pthread_cond_wait(&all->ended, &all->lock);
        }
    }
    atomic_store(&all->st, SW_OK);
    pthread_mutex_unlock(&all->lock);
}
