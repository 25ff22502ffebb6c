// SPDX-License-Identifier: Apache-2.0
// Carries ops through the backend: fills them, starts them, checks their results, and starts them
// again until all bytes have moved. Short transfers are continued, and EINTR and EAGAIN are
// retried. An edge op first reads, then writes. Any other result stops the request, with a message
// that names path, offset and length. Runs on the caller's thread and on the backend's.
#include "store/private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_RETRIES = 10000 };

enum next_step { AGAIN, DONE, FAILED, STOPPED };

/* ---- failing ---- */

static void stop(struct request *r, sw_status status, const char *message)
{
    if (!r->stopped) {
        r->stopped = true;
        r->status = status;
        snprintf(r->message, sizeof r->message, "%s", message);
    }
}

/* Stops the request, and writes a message with the op's file, range and reason. Lock held. */
static void stop_for(struct op *op, sw_status status, const char *why)
{
    struct request *r = op->request;
    char text[MESSAGE_BYTES];
    snprintf(text, sizeof text,
             "%s %s: %zu bytes at offset %lld, in a request of %lld bytes at %lld: %s",
             op->phase == OP_WRITE ? "writing" : "reading", op->store->files[op->i_file].path,
             op->bytes, (long long)op->file_offset, (long long)r->bytes, (long long)r->offset, why);
    stop(r, status, text);
}

/* ---- results ---- */

/* Number of bytes that must arrive: a file that is not ours may end inside the last granule. */
static size_t needed(const struct op *op)
{
    const bool around = !op->write && op->i_bounce >= 0;
    return around && !sw_store_has_sums(op->store) ? op->skip + op->user_bytes : op->bytes;
}

static void wait_a_little(int n_retries)
{
    const struct timespec t = {0, n_retries < 100 ? 1000 : 1000000};
    nanosleep(&t, NULL);
}

/* Lock held. */
static enum next_step look(struct op *op, int result)
{
    char why[160];
    if (result == -ECANCELED && op->request->stopped) {
        return STOPPED;
    }
    /* The op was not cancelled: the thread that submitted it has ended, and io_uring drops the work
     * of that thread. */
    if ((result == -EINTR || result == -EAGAIN || result == -ECANCELED) &&
        op->n_retries++ < MOST_RETRIES) {
        return op->request->stopped ? STOPPED : AGAIN;
    }
    if (result < 0) {
        stop_for(op, SW_E_IO, strerror(-result));
        return FAILED;
    }
    op->done += (size_t)result;
    if (op->done >= needed(op)) {
        return DONE;
    }
    if (result == 0) {
        snprintf(why, sizeof why,
                 op->phase == OP_WRITE ? "the system wrote nothing after %zu bytes"
                                       : "the file ends after %zu bytes",
                 op->done);
        stop_for(op, SW_E_IO, why);
        return FAILED;
    }
    /* O_DIRECT continues at a granule boundary, so a partial granule is moved again. */
    op->done = op->store->direct ? op->done / op->store->align * op->store->align : op->done;
    op->n_continued++;
    op->n_retries++;
    if (op->n_retries > MOST_RETRIES) {
        stop_for(op, SW_E_IO, "no progress");
        return FAILED;
    }
    return op->request->stopped ? STOPPED : AGAIN;
}

static bool checked(struct op *op)
{
    struct sw_nvme *store = op->store;
    char why[160];
    int64_t granule;
    if (!sw_store_has_sums(store) || op->phase != OP_READ || sw_store_sums_hold(op, &granule)) {
        return true;
    }
    snprintf(why, sizeof why, "checksum mismatch in block %lld (bytes %lld to %lld)",
             (long long)granule, (long long)(granule * (int64_t)store->granule),
             (long long)((granule + 1) * (int64_t)store->granule));
    pthread_mutex_lock(&store->lock);
    stop_for(op, SW_E_FORMAT, why);
    pthread_mutex_unlock(&store->lock);
    return false;
}

/* ---- ending an op ---- */

/* Marks a half-done write as not written: its own bytes, and bytes of others in a granule that it
 * may have corrupted. Requests in flight for these bytes fail, reads too. Lock held. */
static void forget(struct op *op)
{
    struct sw_nvme *store = op->store;
    const int64_t first = sw_store_op_granule(op), granule = (int64_t)store->granule;
    if (op->phase == OP_WRITE && op->edge) {
        const int64_t begin = first * granule, end = begin + granule;
        sw_store_extents_remove(&store->extents, begin, end);
        for (struct request *r = store->oldest, *next; r; r = next) {
            next = r->next;
            if (r->offset < end && begin < r->offset + r->bytes) {
                stop(r, SW_E_IO, op->request->message);
                sw_store_complete(store, r);
            }
        }
    }
    if (op->phase == OP_WRITE && sw_store_has_sums(store)) {
        sw_store_sums_set_known(store, first, (int64_t)(op->bytes / store->granule), false);
    }
}

/* Lock held. */
static void count(struct op *op)
{
    struct sw_nvme_counters *c = &op->store->counters;
    c->n_transfers += op->n_transfers;
    c->n_continued += op->n_continued;
    c->n_retried += op->n_retries - op->n_continued;
}

static void finish(struct op *op, bool good)
{
    struct sw_nvme *store = op->store;
    struct request *r = op->request;
    pthread_mutex_lock(&store->lock);
    if (good && op->write && sw_store_has_sums(store)) {
        sw_store_sums_set_known(store, sw_store_op_granule(op),
                                (int64_t)(op->bytes / store->granule), true);
    } else if (!good && op->write) {
        forget(op);
    }
    count(op);
    if (op->i_bounce >= 0) {
        store->free_bounce[store->n_free_bounce++] = op->i_bounce;
    }
    op->busy = false;
    store->n_busy--;
    r->n_ops--;
    sw_store_complete(store, r);
    pthread_mutex_unlock(&store->lock);
    sw_store_pump(store);
}

static bool exhausted(const struct request *r)
{
    for (int i = 0; i < r->n_lanes; i++) {
        if (r->lanes[i].pos < r->lanes[i].end) {
            return false;
        }
    }
    return true;
}

static void unlink_request(struct sw_nvme *store, struct request *r)
{
    struct request **at = &store->oldest, *before = NULL;
    while (*at != r) {
        before = *at;
        at = &before->next;
    }
    *at = r->next;
    store->newest = store->newest == r ? before : store->newest;
}

void sw_store_complete(struct sw_nvme *store, struct request *r)
{
    if (r->state != REQUEST_ACTIVE || r->n_ops > 0 || !(r->stopped || exhausted(r))) {
        return;
    }
    if (!r->stopped) {
        *(r->write ? &store->counters.write_bytes : &store->counters.read_bytes) += r->bytes;
    }
    if (r->write && !r->stopped) {
        sw_store_extents_add(&store->extents, r->offset, r->offset + r->bytes);
    } else if (r->write) {
        sw_store_extents_remove(&store->extents, r->offset, r->offset + r->bytes);
    }
    store->n_active_writes -= r->write;
    r->state = REQUEST_FINISHED;
    unlink_request(store, r);
    pthread_cond_broadcast(&store->changed);
}

/* ---- starting ---- */

static void begin_transfer(struct op *op)
{
    sw_store_op_pieces(op);
    op->n_transfers++;
    op->store->backend->ops->start(op->store->backend, op);
}

/* Fills the bounce buffer: with the caller's bytes for a write; for an edge, over the bytes that
 * were read. */
static void fill(struct op *op)
{
    if (op->write && op->phase == OP_WRITE) {
        if (op->i_bounce >= 0) {
            sw_store_op_copy(op, false);
        }
        if (sw_store_has_sums(op->store)) {
            sw_store_sums_of_write(op);
        }
    }
}

/* Starts the second half of an edge op. Returns false if the request was stopped meanwhile; then
 * the file is unchanged. */
static bool turn_to_writing(struct op *op)
{
    struct sw_nvme *store = op->store;
    pthread_mutex_lock(&store->lock);
    const bool stopped = op->request->stopped;
    if (!stopped) {
        op->phase = OP_WRITE;
        op->done = 0;
        if (sw_store_has_sums(store)) {
            sw_store_sums_set_known(store, sw_store_op_granule(op), 1, false);
        }
    }
    pthread_mutex_unlock(&store->lock);
    return !stopped;
}

void sw_store_op_done(struct op *op, int result)
{
    struct sw_nvme *store = op->store;
    pthread_mutex_lock(&store->lock);
    if (result > 0) {
        struct sw_nvme_counters *c = &store->counters;
        *(op->phase == OP_WRITE ? &c->disk_write_bytes : &c->disk_read_bytes) += result;
    }
    enum next_step step = look(op, result);
    pthread_mutex_unlock(&store->lock);
    if (step == DONE && !checked(op)) {
        step = FAILED;
    } else if (step == DONE && op->write && op->phase == OP_READ) {
        step = turn_to_writing(op) ? AGAIN : STOPPED;
        if (step == AGAIN) {
            fill(op);
        }
    } else if (step == DONE && !op->write && op->i_bounce >= 0) {
        sw_store_op_copy(op, true);
    }
    if (step != AGAIN) {
        finish(op, step == DONE);
        return;
    }
    if (result == -EAGAIN) {
        wait_a_little(op->n_retries);
    }
    begin_transfer(op);
    store->backend->ops->kick(store->backend);
}

void sw_store_pump(struct sw_nvme *store)
{
    const struct sw_nvme_options *o = &store->options;
    struct backend *backend = store->backend;
    bool started = false;
    struct op *op;
    pthread_mutex_lock(&store->lock);
    const bool waits = !o->overlap_events && store->n_busy > 0;
    while (!waits && (op = sw_store_next_op(store)) != NULL) {
        pthread_mutex_unlock(&store->lock);
        fill(op);
        begin_transfer(op);
        started = true;
        if (o->single_submit) {
            backend->ops->kick(backend);
        }
        pthread_mutex_lock(&store->lock);
    }
    pthread_mutex_unlock(&store->lock);
    if (started && !o->single_submit) {
        backend->ops->kick(backend);
    }
}
