// SPDX-License-Identifier: Apache-2.0
// A transport that misbehaves on request: it is slow, fails once, or is silent.
#include <time.h>

#include "comm/comm.h"

struct fault {
    struct sw_transport inner;
    struct sw_fault_options options;
    int64_t n_exchanges;
    bool silent;
};

static void wait_for(double seconds)
{
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* The larger of the bytes sent and the bytes received. */
static size_t most_bytes(const struct sw_exchange *x)
{
    size_t sent = 0, received = 0;
    for (int i = 0; i < x->n_sends; i++) {
        sent += x->sends[i].bytes;
    }
    for (int i = 0; i < x->n_receives; i++) {
        received += x->receives[i].bytes;
    }
    return sent > received ? sent : received;
}

static sw_status exchange(void *ctx, const struct sw_exchange *x)
{
    struct fault *f = ctx;
    const int64_t n = ++f->n_exchanges;
    if (f->options.delay_s > 0) {
        wait_for(f->options.delay_s);
    }
    if (n == f->options.fail_at) {
        return SW_FAIL(SW_E_IO, "rank %d: exchange %lld, %s of %s: injected failure", f->inner.rank,
                       (long long)n, x->op, x->what);
    }
    f->silent = f->silent || n == f->options.silent_at;
    if (f->silent) {
        return SW_FAIL(SW_E_IO, "rank %d: exchange %lld, %s of %s: injected silence", f->inner.rank,
                       (long long)n, x->op, x->what);
    }
    const sw_status st = f->inner.exchange(f->inner.ctx, x);
    if (st >= 0 && f->options.bytes_per_s > 0) {
        wait_for((double)most_bytes(x) / f->options.bytes_per_s);
    }
    return st;
}

/* A silent rank does not announce its failure. */
static void give_up(void *ctx, sw_status reason)
{
    const struct fault *f = ctx;
    if (!f->silent) {
        f->inner.abort(f->inner.ctx, reason);
    }
}

static void close_fault(void *ctx, bool failed)
{
    struct fault *f = ctx;
    if (f->inner.close) {
        f->inner.close(f->inner.ctx, failed);
    }
    sw_free(f);
}

sw_status sw_fault_open(const struct sw_transport *inner, const struct sw_fault_options *options,
                        struct sw_transport *out)
{
    struct fault *f = sw_alloc_zero("comm", 1, sizeof *f);
    SW_TRY_ALLOC(f, "a transport");
    f->inner = *inner;
    f->options = *options;
    *out = (struct sw_transport){.ctx = f,
                                 .rank = inner->rank,
                                 .size = inner->size,
                                 .exchange = exchange,
                                 .abort = give_up,
                                 .close = close_fault};
    return SW_OK;
}
