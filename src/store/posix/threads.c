// SPDX-License-Identifier: Apache-2.0
// The portable backend: threads that read and write one op at a time. There is one thread for each
// op in flight, up to a limit. Further ops wait in the queue and start in order.
#include "store/private.h"

#include <errno.h>
#include <string.h>

enum { MOST_THREADS = 64 };

struct threads {
    struct backend super;
    const int *fds; /* borrowed */
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct op *first, *last; /* waiting ops */
    bool ends;
    int n_threads;
    pthread_t threads[MOST_THREADS];
};

static int move(const struct threads *t, const struct op *op)
{
    const off_t at = (off_t)op->file_offset + (off_t)op->done;
    const int fd = t->fds[op->i_file];
    if (atomic_load(&op->cancelled)) {
        return -ECANCELED;
    }
    const ssize_t n = op->phase == OP_WRITE ? pwritev(fd, op->pieces, op->n_pieces, at)
                                            : preadv(fd, op->pieces, op->n_pieces, at);
    return n < 0 ? -errno : (int)n;
}

static void *work(void *ctx)
{
    struct threads *t = ctx;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->first && !t->ends) {
            pthread_cond_wait(&t->work, &t->lock);
        }
        struct op *op = t->first;
        if (!op) {
            break;
        }
        t->first = op->next;
        t->last = t->first ? t->last : NULL;
        pthread_mutex_unlock(&t->lock);
        sw_store_op_done(op, move(t, op));
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void start(struct backend *backend, struct op *op)
{
    struct threads *t = SW_CONTAINER(backend, struct threads, super);
    op->next = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->last) {
        t->last->next = op;
    } else {
        t->first = op;
    }
    t->last = op;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

static void kick(struct backend *backend)
{
    (void)backend;
}

/* A thread checks the mark when it takes the op; an op that has begun runs to its end. */
static void cancel(struct backend *backend, struct op *op)
{
    (void)backend;
    (void)op;
}

static void close_threads(struct backend *backend)
{
    struct threads *t = SW_CONTAINER(backend, struct threads, super);
    pthread_mutex_lock(&t->lock);
    t->ends = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n_threads; i++) {
        pthread_join(t->threads[i], NULL);
    }
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    sw_free(t);
}

static const struct backend_ops threads_ops = {
    .name = "threads", .close = close_threads, .start = start, .kick = kick, .cancel = cancel};

sw_status sw_store_threads_open(const int *fds, int n_fds, int n_ops, struct backend **out)
{
    (void)n_fds;
    struct threads *t = sw_alloc_zero("store", 1, sizeof *t);
    SW_TRY_ALLOC(t, "the threads that read and write");
    t->super.ops = &threads_ops;
    t->fds = fds;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    const int wanted = n_ops < MOST_THREADS ? n_ops : MOST_THREADS;
    int error = 0;
    while (t->n_threads < wanted && error == 0) {
        error = sw_thread_start(&t->threads[t->n_threads], work, t);
        t->n_threads += error == 0;
    }
    if (t->n_threads == 0) {
        close_threads(&t->super);
        return SW_FAIL(SW_E_NOMEM, "cannot start a thread that reads and writes: %s",
                       strerror(error));
    }
    *out = &t->super;
    return SW_OK;
}
