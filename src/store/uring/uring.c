// SPDX-License-Identifier: Apache-2.0
// The backend over io_uring. A caller that starts ops fills the submission queue under a lock; one
// thread of the backend waits for completions. Files are registered, and memory if the system
// allows it. If the kernel, a container or this build lacks io_uring, opening reports that, and the
// caller uses another backend.
#include "store/private.h"

#include <errno.h>
#include <string.h>

#if SW_HAVE_URING

#include <liburing.h>
#include <time.h>

enum { BATCH = 32 };

struct memory {
    char *data; /* NULL = none */
    size_t bytes;
};

struct uring {
    struct backend super;
    struct io_uring ring;
    const int *fds; /* borrowed */
    bool files_registered, buffers_registered;
    struct memory buffers[MAX_BUFFERS]; /* by index; guarded by the lock */
    pthread_mutex_t lock;               /* guards the submission queue */
    pthread_t thread;
    char end_mark, cancel_mark; /* their addresses mark completions that are not ops */
};

/* ---- submitting; lock held ---- */

/* The kernel may be short of resources for a moment; entries that it did not take stay in the
 * queue. */
static void submit(struct uring *u)
{
    const struct timespec moment = {0, 100000};
    int n_failed = 0;
    while (io_uring_sq_ready(&u->ring) > 0) {
        const int n = io_uring_submit(&u->ring);
        if (n < 0 && n != -EINTR) {
            if (++n_failed == 10000) {
                sw_log(SW_LOG_ERROR, "io_uring accepted no request for a second: %s", strerror(-n));
            }
            nanosleep(&moment, NULL);
        }
    }
}

static struct io_uring_sqe *next_entry(struct uring *u)
{
    struct io_uring_sqe *entry;
    while ((entry = io_uring_get_sqe(&u->ring)) == NULL) {
        submit(u);
    }
    return entry;
}

static int registered(const struct uring *u, const struct iovec *piece)
{
    const char *at = piece->iov_base;
    for (int i = 0; i < MAX_BUFFERS; i++) {
        const struct memory *m = &u->buffers[i];
        if (m->data && at >= m->data && at + piece->iov_len <= m->data + m->bytes) {
            return i;
        }
    }
    return -1;
}

static void prepare(struct uring *u, struct io_uring_sqe *entry, const struct op *op)
{
    const int fd = u->files_registered ? op->i_file : u->fds[op->i_file];
    const __u64 at = (__u64)op->file_offset + op->done;
    const struct iovec *first = op->pieces;
    const int index = op->n_pieces == 1 ? registered(u, first) : -1;
    const bool writes = op->phase == OP_WRITE;
    if (index >= 0 && writes) {
        io_uring_prep_write_fixed(entry, fd, first->iov_base, (unsigned)first->iov_len, at, index);
    } else if (index >= 0) {
        io_uring_prep_read_fixed(entry, fd, first->iov_base, (unsigned)first->iov_len, at, index);
    } else if (writes) {
        io_uring_prep_writev(entry, fd, op->pieces, (unsigned)op->n_pieces, at);
    } else {
        io_uring_prep_readv(entry, fd, op->pieces, (unsigned)op->n_pieces, at);
    }
    if (u->files_registered) {
        io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    }
}

static void start(struct backend *backend, struct op *op)
{
    struct uring *u = SW_CONTAINER(backend, struct uring, super);
    pthread_mutex_lock(&u->lock);
    struct io_uring_sqe *entry = next_entry(u);
    prepare(u, entry, op);
    io_uring_sqe_set_data(entry, op);
    pthread_mutex_unlock(&u->lock);
}

static void kick(struct backend *backend)
{
    struct uring *u = SW_CONTAINER(backend, struct uring, super);
    pthread_mutex_lock(&u->lock);
    submit(u);
    pthread_mutex_unlock(&u->lock);
}

static void cancel(struct backend *backend, struct op *op)
{
    struct uring *u = SW_CONTAINER(backend, struct uring, super);
    pthread_mutex_lock(&u->lock);
    struct io_uring_sqe *entry = next_entry(u);
    io_uring_prep_cancel(entry, op, 0);
    io_uring_sqe_set_data(entry, &u->cancel_mark);
    submit(u);
    pthread_mutex_unlock(&u->lock);
}

/* ---- completing ---- */

struct result {
    void *data;
    int value;
};

/* Copies the completions first: an op may be started anew as soon as it is reported. */
static int take_results(struct uring *u, struct result *out)
{
    struct io_uring_cqe *entries[BATCH];
    const unsigned n = io_uring_peek_batch_cqe(&u->ring, entries, BATCH);
    for (unsigned i = 0; i < n; i++) {
        out[i] = (struct result){io_uring_cqe_get_data(entries[i]), entries[i]->res};
    }
    io_uring_cq_advance(&u->ring, n);
    return (int)n;
}

static void *work(void *ctx)
{
    struct uring *u = ctx;
    bool ends = false;
    while (!ends) {
        struct io_uring_cqe *entry;
        struct result results[BATCH];
        const int st = io_uring_wait_cqe(&u->ring, &entry);
        if (st < 0 && st != -EINTR && st != -EAGAIN) {
            sw_log(SW_LOG_ERROR, "waiting for io_uring: %s", strerror(-st));
        }
        const int n = take_results(u, results);
        /* From here on, the submitting thread's writes to the op are visible. The kernel guarantees
         * this order; the lock makes it known to the thread sanitizer. */
        pthread_mutex_lock(&u->lock);
        pthread_mutex_unlock(&u->lock);
        for (int i = 0; i < n; i++) {
            if (results[i].data == &u->end_mark) {
                ends = true;
            } else if (results[i].data != &u->cancel_mark) {
                sw_store_op_done(results[i].data, results[i].value);
            }
        }
    }
    return NULL;
}

/* ---- registered memory ---- */

static bool add_buffer(struct backend *backend, int index, void *data, size_t bytes)
{
    struct uring *u = SW_CONTAINER(backend, struct uring, super);
    const struct iovec memory = {data, bytes};
    const __u64 tag = 0;
    if (!u->buffers_registered) {
        return false;
    }
    pthread_mutex_lock(&u->lock);
    const bool added =
        io_uring_register_buffers_update_tag(&u->ring, (unsigned)index, &memory, &tag, 1) == 1;
    if (added) {
        u->buffers[index] = (struct memory){data, bytes};
    }
    pthread_mutex_unlock(&u->lock);
    return added;
}

static void drop_buffer(struct backend *backend, int index)
{
    struct uring *u = SW_CONTAINER(backend, struct uring, super);
    const struct iovec none = {NULL, 0};
    const __u64 tag = 0;
    pthread_mutex_lock(&u->lock);
    u->buffers[index] = (struct memory){NULL, 0};
    io_uring_register_buffers_update_tag(&u->ring, (unsigned)index, &none, &tag, 1);
    pthread_mutex_unlock(&u->lock);
}

/* ---- opening and closing ---- */

static void close_uring(struct backend *backend)
{
    struct uring *u = SW_CONTAINER(backend, struct uring, super);
    pthread_mutex_lock(&u->lock);
    struct io_uring_sqe *entry = next_entry(u);
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data(entry, &u->end_mark);
    submit(u);
    pthread_mutex_unlock(&u->lock);
    pthread_join(u->thread, NULL);
    io_uring_queue_exit(&u->ring);
    pthread_mutex_destroy(&u->lock);
    sw_free(u);
}

static const struct backend_ops uring_ops = {.name = "io_uring",
                                             .close = close_uring,
                                             .start = start,
                                             .kick = kick,
                                             .cancel = cancel,
                                             .add_buffer = add_buffer,
                                             .drop_buffer = drop_buffer};

sw_status sw_store_uring_open(const int *fds, int n_fds, int n_ops, struct backend **out)
{
    struct uring *u = sw_alloc_zero("store", 1, sizeof *u);
    SW_TRY_ALLOC(u, "io_uring");
    int error = sw_fault_point("io_uring") != SW_FAULT_NONE ? -EPERM : 0;
    if (error == 0) {
        error = io_uring_queue_init((unsigned)n_ops, &u->ring, IORING_SETUP_CLAMP);
    }
    if (error < 0) {
        sw_free(u);
        return SW_FAIL(SW_E_UNSUP, "the kernel refuses io_uring: %s", strerror(-error));
    }
    u->super.ops = &uring_ops;
    u->fds = fds;
    u->files_registered = io_uring_register_files(&u->ring, fds, (unsigned)n_fds) == 0;
    u->buffers_registered = io_uring_register_buffers_sparse(&u->ring, MAX_BUFFERS) == 0;
    pthread_mutex_init(&u->lock, NULL);
    error = sw_thread_start(&u->thread, work, u);
    if (error != 0) {
        io_uring_queue_exit(&u->ring);
        pthread_mutex_destroy(&u->lock);
        sw_free(u);
        return SW_FAIL(SW_E_NOMEM, "cannot start the thread of io_uring: %s", strerror(error));
    }
    *out = &u->super;
    return SW_OK;
}

#else

sw_status sw_store_uring_open(const int *fds, int n_fds, int n_ops, struct backend **out)
{
    (void)fds;
    (void)n_fds;
    (void)n_ops;
    (void)out;
    return SW_FAIL(SW_E_UNSUP, "this build was made without liburing");
}

#endif
