// SPDX-License-Identifier: Apache-2.0
// Injects faults for tests, wrapped around another backend. Transfers are counted when they start;
// those in the fault's range fail, move only half, or are delayed. A separate thread delivers
// failed and delayed ops, because a backend never reports from within start.
#include "store/private.h"

#include <errno.h>
#include <string.h>
#include <time.h>

struct faulty {
    struct backend super;
    struct backend *inner;
    struct sw_nvme_fault fault;
    size_t align; /* alignment of transfer lengths */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct op *held; /* unordered */
    int64_t n_started;
    bool ends;
    pthread_t thread;
};

/* ---- held ops ---- */

/* Removes the op with the earliest due time. Returns NULL if none is due, and when to look again (0
 * = after the next change). */
static struct op *take_due(struct faulty *f, int64_t *out_next_ns)
{
    const int64_t now = sw_now_ns();
    *out_next_ns = 0;
    for (struct op **at = &f->held; *at; at = &(*at)->next) {
        struct op *op = *at;
        if (op->due_ns <= now || atomic_load(&op->cancelled)) {
            *at = op->next;
            return op;
        }
        *out_next_ns = *out_next_ns && *out_next_ns < op->due_ns ? *out_next_ns : op->due_ns;
    }
    return NULL;
}

static void deliver(struct faulty *f, struct op *op)
{
    if (op->result == 0 && !atomic_load(&op->cancelled)) {
        f->inner->ops->start(f->inner, op);
        f->inner->ops->kick(f->inner);
    } else {
        sw_store_op_done(op, op->result ? op->result : -ECANCELED);
    }
}

static void *work(void *ctx)
{
    struct faulty *f = ctx;
    pthread_mutex_lock(&f->lock);
    while (!f->ends) {
        int64_t next_ns;
        struct op *op = take_due(f, &next_ns);
        if (op) {
            pthread_mutex_unlock(&f->lock);
            deliver(f, op);
            pthread_mutex_lock(&f->lock);
        } else if (next_ns) {
            const struct timespec at = {(time_t)(next_ns / 1000000000),
                                        (long)(next_ns % 1000000000)};
            pthread_cond_timedwait(&f->changed, &f->lock, &at);
        } else {
            pthread_cond_wait(&f->changed, &f->lock);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void hold(struct faulty *f, struct op *op, double delay_s, int result)
{
    op->due_ns = sw_now_ns() + (int64_t)(delay_s * 1e9);
    op->result = result;
    pthread_mutex_lock(&f->lock);
    op->next = f->held;
    f->held = op;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* ---- the table of backend operations ---- */

static bool strikes(struct faulty *f)
{
    pthread_mutex_lock(&f->lock);
    const int64_t n = ++f->n_started;
    pthread_mutex_unlock(&f->lock);
    const int64_t count = f->fault.count ? f->fault.count : 1;
    return n >= f->fault.at && (count < 0 || n - f->fault.at < count);
}

/* Cuts the op to half its bytes, in whole units, but at least one unit. */
static void cut(struct op *op, size_t align)
{
    size_t all = 0;
    for (int i = 0; i < op->n_pieces; i++) {
        all += op->pieces[i].iov_len;
    }
    size_t half = all / 2 / align * align;
    half = half ? half : all < align ? all : align;
    for (int i = 0; i < op->n_pieces; i++) {
        if (op->pieces[i].iov_len >= half) {
            op->pieces[i].iov_len = half;
            op->n_pieces = i + 1;
            return;
        }
        half -= op->pieces[i].iov_len;
    }
}

static void start(struct backend *backend, struct op *op)
{
    struct faulty *f = SW_CONTAINER(backend, struct faulty, super);
    static const int errors[] = {[SW_NVME_FAULT_EIO] = -EIO,
                                 [SW_NVME_FAULT_ENOSPC] = -ENOSPC,
                                 [SW_NVME_FAULT_EINTR] = -EINTR};
    if (!strikes(f)) {
        f->inner->ops->start(f->inner, op);
        return;
    }
    if (f->fault.action == SW_NVME_FAULT_SHORT) {
        cut(op, f->align);
        f->inner->ops->start(f->inner, op);
    } else if (f->fault.action == SW_NVME_FAULT_DELAY) {
        hold(f, op, f->fault.delay_s, 0);
    } else {
        hold(f, op, f->fault.delay_s, errors[f->fault.action]);
    }
}

static void kick(struct backend *backend)
{
    struct faulty *f = SW_CONTAINER(backend, struct faulty, super);
    f->inner->ops->kick(f->inner);
}

static void cancel(struct backend *backend, struct op *op)
{
    struct faulty *f = SW_CONTAINER(backend, struct faulty, super);
    pthread_mutex_lock(&f->lock);
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    f->inner->ops->cancel(f->inner, op);
}

static bool add_buffer(struct backend *backend, int index, void *data, size_t bytes)
{
    struct faulty *f = SW_CONTAINER(backend, struct faulty, super);
    return f->inner->ops->add_buffer && f->inner->ops->add_buffer(f->inner, index, data, bytes);
}

static void drop_buffer(struct backend *backend, int index)
{
    struct faulty *f = SW_CONTAINER(backend, struct faulty, super);
    if (f->inner->ops->drop_buffer) {
        f->inner->ops->drop_buffer(f->inner, index);
    }
}

static void close_faulty(struct backend *backend)
{
    struct faulty *f = SW_CONTAINER(backend, struct faulty, super);
    pthread_mutex_lock(&f->lock);
    f->ends = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    f->inner->ops->close(f->inner);
    sw_free(f);
}

static const struct backend_ops fault_ops = {.name = "fault",
                                             .close = close_faulty,
                                             .start = start,
                                             .kick = kick,
                                             .cancel = cancel,
                                             .add_buffer = add_buffer,
                                             .drop_buffer = drop_buffer};

sw_status sw_store_fault_open(const struct sw_nvme_fault *fault, size_t align,
                              struct backend *inner, struct backend **out)
{
    sw_status st = SW_OK;
    pthread_condattr_t monotonic;
    struct faulty *f = sw_alloc_zero("store", 1, sizeof *f);
    if (!f) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for faults");
        goto close_inner;
    }
    f->super.ops = &fault_ops;
    f->inner = inner;
    f->fault = *fault;
    f->align = align;
    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int error = pthread_create(&f->thread, NULL, work, f);
    if (error != 0) {
        st = SW_FAIL(SW_E_NOMEM, "cannot start the thread of faults: %s", strerror(error));
        goto free_faulty;
    }
    *out = &f->super;
    return SW_OK;
free_faulty:
    sw_free(f);
close_inner:
    inner->ops->close(inner);
    return st;
}
