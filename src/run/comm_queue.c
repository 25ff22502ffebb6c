// SPDX-License-Identifier: Apache-2.0
// One producer, one consumer, a ring of jobs between them.
#include "run/comm_queue.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

struct sw_comm_queue {
    sw_comm *comm;
    struct sw_comm_item *items; /* scratch of a group */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sw_comm_job *jobs; /* [most_jobs] ring */
    int32_t most_jobs;
    int64_t n_issued;
    atomic_llong n_done;
    bool quit;
    sw_status st;
    char message[1024];
    int64_t busy_ns, waited_ns;
};

static void *work(void *arg)
{
    struct sw_comm_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->quit && atomic_load(&q->n_done) == q->n_issued) {
            pthread_cond_wait(&q->changed, &q->lock);
        }
        if (atomic_load(&q->n_done) == q->n_issued) {
            break;
        }
        const struct sw_comm_job *job = &q->jobs[atomic_load(&q->n_done) % q->most_jobs];
        if (q->st >= 0) {
            pthread_mutex_unlock(&q->lock);
            const int64_t begin = sw_now_ns();
            const sw_status st = sw_collectives_run(q->comm, job, q->items);
            const int64_t ns = sw_now_ns() - begin;
            pthread_mutex_lock(&q->lock);
            q->busy_ns += ns;
            if (st < 0) {
                q->st = st;
                snprintf(q->message, sizeof q->message, "%s", sw_error_message());
            }
        }
        atomic_fetch_add(&q->n_done, 1);
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

sw_status sw_comm_queue_open(sw_comm *comm, int32_t most_calls, int32_t most_jobs,
                             struct sw_comm_queue **out)
{
    struct sw_comm_queue *q = sw_alloc_zero("run", 1, sizeof *q);
    SW_TRY_ALLOC(q, "the queue of collectives");
    q->comm = comm;
    q->most_jobs = most_jobs;
    q->items = sw_alloc_zero("run", (size_t)most_calls + 1, sizeof *q->items);
    q->jobs = sw_alloc_zero("run", (size_t)most_jobs, sizeof *q->jobs);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    if (!q->items || !q->jobs || sw_comm_reserve(comm, most_calls) < 0 ||
        pthread_create(&q->thread, NULL, work, q) != 0) {
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->lock);
        sw_free(q->items);
        sw_free(q->jobs);
        sw_free(q);
        return SW_FAIL(SW_E_NOMEM, "no memory or no thread for the queue of collectives");
    }
    *out = q;
    return SW_OK;
}

void sw_comm_queue_close(struct sw_comm_queue *q)
{
    if (!q) {
        return;
    }
    pthread_mutex_lock(&q->lock);
    q->quit = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    sw_free(q->items);
    sw_free(q->jobs);
    sw_free(q);
}

void sw_comm_queue_issue(struct sw_comm_queue *q, const struct sw_comm_job *job)
{
    pthread_mutex_lock(&q->lock);
    while (q->n_issued - atomic_load(&q->n_done) == q->most_jobs) {
        pthread_cond_wait(&q->changed, &q->lock);
    }
    q->jobs[q->n_issued % q->most_jobs] = *job;
    q->n_issued++;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

/* Jobs up to the one that holds `instr`; those of earlier segments are done. */
static int64_t jobs_until(const struct sw_comm_queue *q, int32_t instr)
{
    int64_t n = q->n_issued;
    for (; n > atomic_load(&q->n_done); n--) {
        if (q->jobs[(n - 1) % q->most_jobs].instr <= instr) {
            break;
        }
    }
    return n;
}

sw_status sw_comm_queue_wait(struct sw_comm_queue *q, int32_t instr, const struct sw_waiter *waiter)
{
    enum { LOOKS = 40 };
    pthread_mutex_lock(&q->lock);
    const int64_t target = jobs_until(q, instr);
    if (atomic_load(&q->n_done) < target) {
        const int64_t begin = sw_now_ns();
        pthread_mutex_unlock(&q->lock);
        for (int i = 0; i < LOOKS && atomic_load(&q->n_done) < target; i++) {
            sched_yield(); /* it is often nearly there */
        }
        pthread_mutex_lock(&q->lock);
        while (atomic_load(&q->n_done) < target) {
            pthread_cond_wait(&q->changed, &q->lock);
        }
        const int64_t end = sw_now_ns();
        q->waited_ns += end - begin;
        sw_meter_waited(waiter->meter, &(struct sw_span){.queue = SW_QUEUE_COMM,
                                                         .program = waiter->i_program,
                                                         .instr = waiter->instr,
                                                         .begin_ns = begin,
                                                         .end_ns = end});
    }
    const sw_status st = q->st < 0 ? SW_FAIL(q->st, "%s", q->message) : SW_OK;
    pthread_mutex_unlock(&q->lock);
    return st;
}

void sw_comm_queue_stop(struct sw_comm_queue *q)
{
    pthread_mutex_lock(&q->lock);
    if (q->st >= 0) {
        q->st = SW_E_ARG;
        snprintf(q->message, sizeof q->message, "an instruction before it failed");
    }
    while (atomic_load(&q->n_done) < q->n_issued) {
        pthread_cond_wait(&q->changed, &q->lock);
    }
    pthread_mutex_unlock(&q->lock);
}

void sw_comm_queue_times(const struct sw_comm_queue *q, int64_t *out_busy_ns,
                         int64_t *out_waited_ns)
{
    *out_busy_ns = q->busy_ns;
    *out_waited_ns = q->waited_ns;
}
