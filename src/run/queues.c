// SPDX-License-Identifier: Apache-2.0
// One producer; a ring of jobs and a consumer for each queue; one lock for all of them.
#include "run/queues.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

struct entry {
    struct sw_queue_job job;
    int64_t needs[SW_QUEUE_COUNT]; /* jobs of each other queue that are done before */
};

struct queue {
    struct sw_queues *all;
    enum sw_queue name;
    pthread_t thread;
    bool running;
    struct entry *ring; /* [most] */
    int32_t most;
    int most_begun;
    int64_t n_issued, n_begun;
    atomic_llong n_done;
    bool full;                  /* nothing begins before something has ended */
    bool begun[SW_QUEUE_BEGUN]; /* by slot; false: it was left out */
};

struct sw_queues {
    struct queue queues[SW_QUEUE_COUNT];
    struct sw_queue_ops ops;
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool quit;
    atomic_int st;
    char message[1024];
};

static bool has_met(struct sw_queues *all, const struct entry *entry)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (atomic_load(&all->queues[q].n_done) < entry->needs[q]) {
            return false;
        }
    }
    return true;
}

/* The lock is held. */
static void note_failure(struct sw_queues *all, sw_status st)
{
    if (st < 0 && atomic_load(&all->st) >= 0) {
        snprintf(all->message, sizeof all->message, "%s", sw_error_message());
        atomic_store(&all->st, (int)st);
    }
}

/* The lock is held, and let go meanwhile. */
static void begin_job(struct queue *q)
{
    struct sw_queues *all = q->all;
    const int slot = (int)(q->n_begun % SW_QUEUE_BEGUN);
    q->begun[slot] = false;
    if (atomic_load(&all->st) >= 0) {
        const struct sw_queue_job job = q->ring[q->n_begun % q->most].job;
        pthread_mutex_unlock(&all->lock);
        const sw_status st = all->ops.begin(all->ctx, q->name, &job, slot);
        pthread_mutex_lock(&all->lock);
        q->full = st == SW_PENDING;
        if (q->full) {
            return;
        }
        q->begun[slot] = st >= 0;
        note_failure(all, st);
    }
    q->n_begun++;
}

/* The oldest. What was begun is ended, whatever failed meanwhile. */
static void end_job(struct queue *q)
{
    struct sw_queues *all = q->all;
    const int64_t n_done = atomic_load(&q->n_done);
    const int slot = (int)(n_done % SW_QUEUE_BEGUN);
    if (q->begun[slot]) {
        const struct sw_queue_job job = q->ring[n_done % q->most].job;
        pthread_mutex_unlock(&all->lock);
        const sw_status st = all->ops.end(all->ctx, q->name, &job, slot);
        pthread_mutex_lock(&all->lock);
        note_failure(all, st);
    }
    q->full = false;
    atomic_fetch_add(&q->n_done, 1);
    pthread_cond_broadcast(&all->changed);
}

static bool may_begin(struct queue *q)
{
    return q->n_begun < q->n_issued && !q->full &&
           q->n_begun - atomic_load(&q->n_done) < q->most_begun &&
           (atomic_load(&q->all->st) < 0 || has_met(q->all, &q->ring[q->n_begun % q->most]));
}

static void *work(void *arg)
{
    struct queue *q = arg;
    struct sw_queues *all = q->all;
    pthread_mutex_lock(&all->lock);
    for (;;) {
        if (may_begin(q)) {
            begin_job(q);
        } else if (q->n_begun > atomic_load(&q->n_done)) {
            end_job(q);
        } else if (all->quit && q->n_begun == q->n_issued) {
            break;
        } else {
            pthread_cond_wait(&all->changed, &all->lock);
        }
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static bool open_queue(struct sw_queues *all, int name, int32_t most)
{
    struct queue *q = &all->queues[name];
    q->all = all;
    q->name = (enum sw_queue)name;
    q->most = most;
    q->most_begun = all->ops.most_begun[name];
    if (most == 0) {
        return true;
    }
    q->ring = sw_alloc_zero("run", (size_t)most, sizeof *q->ring);
    q->running = q->ring && pthread_create(&q->thread, NULL, work, q) == 0;
    return q->running;
}

sw_status sw_queues_open(const int32_t most_jobs[SW_QUEUE_COUNT], const struct sw_queue_ops *ops,
                         void *ctx, struct sw_queues **out)
{
    struct sw_queues *all = sw_alloc_zero("run", 1, sizeof *all);
    SW_TRY_ALLOC(all, "the queues");
    all->ops = *ops;
    all->ctx = ctx;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (!open_queue(all, q, most_jobs[q])) {
            sw_queues_close(all);
            return SW_FAIL(SW_E_NOMEM, "no memory or no thread for the queue \"%s\"",
                           sw_queue_name((enum sw_queue)q));
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
    pthread_mutex_lock(&all->lock);
    all->quit = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (all->queues[q].running) {
            pthread_join(all->queues[q].thread, NULL);
        }
        sw_free(all->queues[q].ring);
    }
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    sw_free(all);
}

/* How many jobs of a queue there are up to instruction `instr`; those of earlier runs of the
 * program are done. What was left out was not issued, and nobody waits for it. */
static int64_t jobs_until(const struct queue *q, int32_t instr)
{
    int64_t n = q->n_issued;
    for (; n > atomic_load(&q->n_done); n--) {
        if (q->ring[(n - 1) % q->most].job.instr <= instr) {
            break;
        }
    }
    return n;
}

void sw_queues_issue(struct sw_queues *all, enum sw_queue queue, const struct sw_queue_job *job)
{
    const int32_t *waits = job->program->instrs[job->instr].waits;
    struct queue *q = &all->queues[queue];
    pthread_mutex_lock(&all->lock);
    while (q->n_issued - atomic_load(&q->n_done) == q->most) {
        pthread_cond_wait(&all->changed, &all->lock);
    }
    struct entry *entry = &q->ring[q->n_issued % q->most];
    entry->job = *job;
    for (int r = 0; r < SW_QUEUE_COUNT; r++) {
        entry->needs[r] =
            r == (int)queue || waits[r] < 0 ? 0 : jobs_until(&all->queues[r], waits[r]);
    }
    q->n_issued++;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

static sw_status status_of(struct sw_queues *all)
{
    const int st = atomic_load(&all->st);
    return st < 0 ? SW_FAIL((sw_status)st, "%s", all->message) : SW_OK;
}

sw_status sw_queues_wait(struct sw_queues *all, enum sw_queue queue, int32_t instr,
                         const struct sw_waiter *waiter)
{
    enum { LOOKS = 40 };
    struct queue *q = &all->queues[queue];
    pthread_mutex_lock(&all->lock);
    const int64_t target = jobs_until(q, instr);
    if (atomic_load(&q->n_done) < target) {
        const int64_t begin = sw_now_ns();
        pthread_mutex_unlock(&all->lock);
        for (int i = 0; i < LOOKS && atomic_load(&q->n_done) < target; i++) {
            sched_yield(); /* it is often nearly there */
        }
        pthread_mutex_lock(&all->lock);
        while (atomic_load(&q->n_done) < target) {
            pthread_cond_wait(&all->changed, &all->lock);
        }
        sw_meter_waited(waiter->meter, &(struct sw_span){.queue = queue,
                                                         .program = waiter->i_program,
                                                         .instr = waiter->instr,
                                                         .begin_ns = begin,
                                                         .end_ns = sw_now_ns()});
    }
    const sw_status st = status_of(all);
    pthread_mutex_unlock(&all->lock);
    return st;
}

sw_status sw_queues_drain(struct sw_queues *all, const struct sw_waiter *waiter)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        SW_TRY(sw_queues_wait(all, (enum sw_queue)q, INT32_MAX, waiter));
    }
    return SW_OK;
}

void sw_queues_stop(struct sw_queues *all)
{
    pthread_mutex_lock(&all->lock);
    if (atomic_load(&all->st) >= 0) {
        snprintf(all->message, sizeof all->message, "an instruction before it failed");
        atomic_store(&all->st, (int)SW_E_ARG);
    }
    pthread_cond_broadcast(&all->changed);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        while (atomic_load(&all->queues[q].n_done) < all->queues[q].n_issued) {
            pthread_cond_wait(&all->changed, &all->lock);
        }
    }
    atomic_store(&all->st, SW_OK);
    pthread_mutex_unlock(&all->lock);
}
