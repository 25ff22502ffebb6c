// SPDX-License-Identifier: Apache-2.0
// A transport that misbehaves on request: it is slow, fails once, or is silent.
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include "comm/comm.h"

/* Common to a transport and its groups. */
struct faults {
    struct sw_fault_options options;
    pthread_mutex_t lock; /* of all below */
    int64_t n_exchanges;
    bool silent;
    double sent_until, received_until; /* the times at which the wire is free again */
};

struct fault {
    struct sw_transport inner;
    struct faults *faults;
};

/* Without the slack of timers, which is as long as many messages take. */
static void wait_for(double seconds)
{
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    const int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    nanosleep(&t, NULL);
    prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
}

static size_t sum_bytes(const struct sw_message *messages, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += messages[i].bytes;
    }
    return sum;
}

static double use_wire(double *until, double now, double seconds)
{
    *until = (*until > now ? *until : now) + seconds;
    return *until;
}

/* Waits while the wire is busy with these bytes, after those of other threads. */
static void wait_for_wire(struct faults *f, const struct sw_exchange *x)
{
    const double rate = f->options.bytes_per_s, now = sw_now_s();
    const double sent = (double)sum_bytes(x->sends, x->n_sends);
    const double received = (double)sum_bytes(x->receives, x->n_receives);
    pthread_mutex_lock(&f->lock);
    const double out = sent > 0 ? use_wire(&f->sent_until, now, sent / rate) : now;
    const double in = received > 0 ? use_wire(&f->received_until, now, received / rate) : now;
    pthread_mutex_unlock(&f->lock);
    wait_for((out > in ? out : in) - now);
}

static sw_status exchange(void *ctx, const struct sw_exchange *x)
{
    const struct fault *fault = ctx;
    struct faults *f = fault->faults;
    char me[SW_RANK_TEXT], where[SW_WHERE_TEXT];
    if (f->options.delay_s > 0) {
        wait_for(f->options.delay_s);
    }
    pthread_mutex_lock(&f->lock);
    const int64_t n = ++f->n_exchanges;
    f->silent = f->silent || n == f->options.silent_at;
    const bool silent = f->silent;
    pthread_mutex_unlock(&f->lock);
    if (silent || n == f->options.fail_at) {
        return SW_FAIL(SW_E_IO, "%s: exchange %lld, %s: injected %s",
                       sw_comm_rank_text(x->names, fault->inner.rank, me), (long long)n,
                       sw_comm_where(x, where), silent ? "silence" : "failure");
    }
    const sw_status st = fault->inner.exchange(fault->inner.ctx, x);
    if (st >= 0 && f->options.bytes_per_s > 0) {
        wait_for_wire(f, x);
    }
    return st;
}

/* A silent rank does not announce its failure. */
static void give_up(void *ctx, sw_status reason)
{
    const struct fault *fault = ctx;
    pthread_mutex_lock(&fault->faults->lock);
    const bool silent = fault->faults->silent;
    pthread_mutex_unlock(&fault->faults->lock);
    if (!silent) {
        fault->inner.abort(fault->inner.ctx, reason);
    }
}

static void close_group(void *ctx, bool failed)
{
    struct fault *fault = ctx;
    if (fault->inner.close) {
        fault->inner.close(fault->inner.ctx, failed);
    }
    sw_free(fault);
}

static void close_fault(void *ctx, bool failed)
{
    struct faults *f = ((struct fault *)ctx)->faults;
    close_group(ctx, failed);
    pthread_mutex_destroy(&f->lock);
    sw_free(f);
}

static struct sw_transport wrapped(struct fault *fault)
{
    return (struct sw_transport){.ctx = fault,
                                 .rank = fault->inner.rank,
                                 .size = fault->inner.size,
                                 .exchange = exchange,
                                 .abort = give_up,
                                 .deadline_s = fault->inner.deadline_s,
                                 .close = close_group};
}

static sw_status open_group(void *ctx, const struct sw_group_options *options,
                            const char *const *names, struct sw_transport *out)
{
    const struct fault *world = ctx;
    struct fault *fault = sw_alloc_zero("comm", 1, sizeof *fault);
    SW_TRY_ALLOC(fault, "a transport");
    const sw_status st = world->inner.open_group(world->inner.ctx, options, names, &fault->inner);
    if (st < 0) {
        sw_free(fault);
        return st;
    }
    fault->faults = world->faults;
    *out = wrapped(fault);
    return SW_OK;
}

sw_status sw_fault_open(const struct sw_transport *inner, const struct sw_fault_options *options,
                        struct sw_transport *out)
{
    struct fault *fault = sw_alloc_zero("comm", 1, sizeof *fault);
    struct faults *f = sw_alloc_zero("comm", 1, sizeof *f);
    if (!fault || !f) {
        sw_free(fault);
        sw_free(f);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a transport");
    }
    pthread_mutex_init(&f->lock, NULL);
    f->options = *options;
    fault->inner = *inner;
    fault->faults = f;
    *out = wrapped(fault);
    out->close = close_fault;
    out->open_group = inner->open_group ? open_group : NULL;
    return SW_OK;
}
