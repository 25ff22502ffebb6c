// SPDX-License-Identifier: Apache-2.0
// The thread pool. One job at a time; items are handed out by an atomic counter, and the driver
// takes items like everyone else. A thread that has nothing to do spins for a moment and then
// sleeps.
//
// The gate says whether there is a job to join, in one word:
//
//     bits 63..32  serial number of the job
//     bit  31      open: workers may join
//     bits 30..0   workers that joined and have not left
//
// The driver fills in the job, then opens the gate with a new serial; a worker joins by adding one
// to an open gate, and only then reads the job. When the items have run out the driver closes the
// gate and waits for the count to fall to zero. A worker that wakes up late finds the gate closed
// and waits for the next job: nobody ever waits for a thread that did not take part. The job's
// fields are plain: opening (release) comes before joining (acquire), leaving (release) before
// reuse (acquire).
//
// Sleeping: whoever wants to sleep first announces it and then looks at the gate once more; whoever
// changes the gate looks for announcements afterwards. Both are sequentially consistent, so one of
// the two sees the other and no wake-up is lost.
//
// Neighbours: who is woken is put near who woke it, and where every processor has something to do
// that is often the same one: the threads of a job take turns on one processor while another
// program has the next one for itself. So workers keep off the processor that the driver is on.
// While the driver sleeps for some who were kept from running, these may have its processor, too.
// Only the affinity of workers is changed: to that of the driver, which is the caller's, less one
// processor.
#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define GATE_OPEN (UINT64_C(1) << 31)
#define GATE_JOINED (GATE_OPEN - 1)
#define GATE_SERIAL(gate) ((uint32_t)((gate) >> 32))

enum { SPIN_NS = 30000, PAUSES_PER_LOOK = 32 };

struct worker {
    struct sw_pool *pool;
    pthread_t thread;
    int i_worker;        /* 1 .. n_threads-1; the driver is 0 */
    atomic_bool working; /* joined, and has not left */
    int keeps_off;       /* a processor, -1 = none; the driver's */
};

struct sw_pool {
    _Alignas(64) _Atomic uint64_t gate;
    _Alignas(64) _Atomic int64_t next_item;
    /* the job */
    _Alignas(64) sw_pool_fn fn;
    void *ctx;
    int64_t n_items;

    int64_t spin_ns;
    bool apart; /* there are enough processors for workers to keep off the driver's */
    _Atomic bool stop;
    _Atomic int n_sleeping;     /* workers on `work` */
    _Atomic bool driver_sleeps; /* the driver is on `done` */
    pthread_mutex_t lock;
    pthread_cond_t work, done;

    int n_threads, n_started;
    struct worker workers[];
};

/* The item this thread is inside of, so that a run from within it knows where it is. */
struct place {
    const struct sw_pool *pool;
    int i_worker;
};
static _Thread_local struct place current;

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void do_items(struct sw_pool *pool, int i_worker)
{
    const sw_pool_fn fn = pool->fn;
    void *ctx = pool->ctx;
    const int64_t n_items = pool->n_items;
    const struct place before = current; /* an item of one pool may drive another pool */
    current = (struct place){pool, i_worker};
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&pool->next_item, 1, memory_order_relaxed);
        if (i >= n_items) {
            break;
        }
        fn(ctx, i, i_worker);
    }
    current = before;
}

/* ---- workers ---- */

static bool has_news(struct sw_pool *pool, uint32_t seen)
{
    const uint64_t gate = atomic_load(&pool->gate);
    return atomic_load(&pool->stop) || ((gate & GATE_OPEN) && GATE_SERIAL(gate) != seen);
}

static void wait_for_news(struct sw_pool *pool, uint32_t seen)
{
    const int64_t until = sw_now_ns() + pool->spin_ns;
    while (sw_now_ns() < until) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (has_news(pool, seen)) {
                return;
            }
            pause_briefly();
        }
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (!has_news(pool, seen)) {
        pthread_cond_wait(&pool->work, &pool->lock);
    }
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->lock);
}

/* Joins a job that this worker has not seen yet; false when the gate closed in between. */
static bool join(struct sw_pool *pool, uint32_t *seen)
{
    uint64_t gate = atomic_load(&pool->gate);
    while ((gate & GATE_OPEN) && GATE_SERIAL(gate) != *seen) {
        if (atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1)) {
            *seen = GATE_SERIAL(gate);
            return true;
        }
    }
    return false;
}

static void leave(struct sw_pool *pool)
{
    const uint64_t gate = atomic_fetch_sub(&pool->gate, 1) - 1;
    if (!(gate & (GATE_OPEN | GATE_JOINED)) && atomic_load(&pool->driver_sleeps)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct sw_pool *pool = self->pool;
    uint32_t seen = 0;
    while (!atomic_load(&pool->stop)) {
        if (join(pool, &seen)) {
            atomic_store_explicit(&self->working, true, memory_order_relaxed);
            do_items(pool, self->i_worker);
            atomic_store_explicit(&self->working, false, memory_order_relaxed);
            leave(pool);
        } else {
            wait_for_news(pool, seen);
        }
    }
    return NULL;
}

/* ---- driver ---- */

/* -1 = no processor. What fails here costs time and nothing else. */
static void keep_off(struct worker *worker, int processor)
{
    cpu_set_t set;
    if (worker->keeps_off == processor) {
        return;
    }
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        if (processor >= 0 && CPU_COUNT(&set) >= worker->pool->n_threads) {
            CPU_CLR(processor, &set);
        }
        pthread_setaffinity_np(worker->thread, sizeof set, &set);
    }
    worker->keeps_off = processor;
}

static void leave_the_driver_its_processor(struct sw_pool *pool)
{
    const int processor = pool->apart ? sched_getcpu() : -1;
    for (int i = 0; i < pool->n_started; i++) {
        keep_off(&pool->workers[i], processor);
    }
}

static void lend_the_processor(struct sw_pool *pool)
{
    for (int i = 0; i < pool->n_started; i++) {
        if (atomic_load_explicit(&pool->workers[i].working, memory_order_relaxed)) {
            keep_off(&pool->workers[i], -1);
        }
    }
}

static bool all_left(struct sw_pool *pool)
{
    return (atomic_load(&pool->gate) & GATE_JOINED) == 0;
}

static void wait_until_all_left(struct sw_pool *pool)
{
    const int64_t until = sw_now_ns() + pool->spin_ns;
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (all_left(pool)) {
                return;
            }
            pause_briefly();
        }
    } while (sw_now_ns() < until);
    lend_the_processor(pool);
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->driver_sleeps, true);
    while (!all_left(pool)) {
        pthread_cond_wait(&pool->done, &pool->lock);
    }
    atomic_store(&pool->driver_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

static void wake_workers(struct sw_pool *pool, int64_t n_useful)
{
    if (atomic_load(&pool->n_sleeping) == 0) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    if (n_useful >= pool->n_threads - 1) {
        pthread_cond_broadcast(&pool->work);
    } else {
        for (int64_t i = 0; i < n_useful; i++) {
            pthread_cond_signal(&pool->work);
        }
    }
    pthread_mutex_unlock(&pool->lock);
}

void sw_pool_run(struct sw_pool *pool, int64_t n_items, sw_pool_fn fn, void *ctx)
{
    const bool nested = pool && current.pool == pool;
    if (!pool || nested || pool->n_threads == 1 || n_items <= 1) {
        /* Nested, the worker keeps its number: what is indexed by it stays its own. */
        const int i_worker = nested ? current.i_worker : 0;
        for (int64_t i = 0; i < n_items; i++) {
            fn(ctx, i, i_worker);
        }
        return;
    }
    pool->fn = fn;
    pool->ctx = ctx;
    pool->n_items = n_items;
    atomic_store_explicit(&pool->next_item, 0, memory_order_relaxed);
    const uint64_t serial = (uint64_t)GATE_SERIAL(atomic_load(&pool->gate)) + 1;
    atomic_store(&pool->gate, serial << 32 | GATE_OPEN);
    leave_the_driver_its_processor(pool);
    wake_workers(pool, n_items - 1);

    do_items(pool, 0);
    atomic_fetch_and(&pool->gate, ~GATE_OPEN);
    wait_until_all_left(pool);
}

int sw_pool_threads(const struct sw_pool *pool)
{
    return pool ? pool->n_threads : 1;
}

void sw_pool_close(struct sw_pool *pool)
{
    if (!pool) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_started; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    sw_free(pool);
}

sw_status sw_pool_open(int n_threads, struct sw_pool **out)
{
    if (n_threads < 0 || n_threads > 4096) {
        return SW_FAIL(SW_E_ARG, "a thread pool of %d threads: wanted 0 (automatic) to 4096",
                       n_threads);
    }
    const int n_cpus = sw_cpu_count();
    n_threads = n_threads ? n_threads : n_cpus;
    const size_t n_workers = (size_t)n_threads - 1;
    const size_t bytes = sizeof(struct sw_pool) + n_workers * sizeof(struct worker);
    struct sw_pool *pool = sw_alloc_aligned("thread pool", _Alignof(struct sw_pool), bytes);
    SW_TRY_ALLOC(pool, "the thread pool");
    memset(pool, 0, bytes);
    pool->n_threads = n_threads;
    /* With more threads than processors, who spins keeps another from working. */
    pool->apart = n_threads <= n_cpus;
    pool->spin_ns = pool->apart ? SPIN_NS : 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (size_t i = 0; i < n_workers; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .i_worker = (int)i + 1, .keeps_off = -1};
        const int error = sw_thread_start(&worker->thread, worker_main, worker);
        if (error != 0) {
            sw_pool_close(pool);
            return SW_FAIL(SW_E_NOMEM, "cannot start thread %zu of %d: %s", i + 2, n_threads,
                           strerror(error));
        }
        pool->n_started++;
    }
    *out = pool;
    return SW_OK;
}
