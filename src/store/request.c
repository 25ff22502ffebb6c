// SPDX-License-Identifier: Apache-2.0
// Tickets: a request is checked, handed to drive.c, and waited for. A ticket consists of a slot
// number and a serial, so a returned ticket is never mistaken for a later one in its slot. All
// memory is allocated when the store opens.
#include "store/private.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- checks ---- */

static sw_status check_range(const struct sw_nvme *store, const char *what, int64_t offset,
                             const struct sw_nvme_segment *segments, int n_segments,
                             int64_t *out_bytes)
{
    int64_t bytes = 0, end;
    if (n_segments < 0 || (n_segments > 0 && !segments)) {
        return SW_FAIL(SW_E_ARG, "%s of %s: no list of %d segments", what, store->files[0].path,
                       n_segments);
    }
    for (int i = 0; i < n_segments; i++) {
        if (segments[i].bytes > INT64_MAX ||
            !sw_add_i64(bytes, (int64_t)segments[i].bytes, &bytes) ||
            (segments[i].bytes > 0 && !segments[i].data)) {
            return SW_FAIL(SW_E_ARG, "%s of %s: segment %d of %zu bytes at %p", what,
                           store->files[0].path, i, segments[i].bytes, segments[i].data);
        }
    }
    if (offset < 0 || !sw_add_i64(offset, bytes, &end) || end > store->bytes) {
        return SW_FAIL(SW_E_ARG, "%s of %s: %lld bytes at offset %lld, it has %lld", what,
                       store->files[0].path, (long long)bytes, (long long)offset,
                       (long long)store->bytes);
    }
    *out_bytes = bytes;
    return SW_OK;
}

/* Refuses a request that overlaps one in flight if either is a write: their order would be
 * undefined. Lock held. */
static sw_status check_overlap(const struct sw_nvme *store, bool write, int64_t offset,
                               int64_t bytes)
{
    for (const struct request *r = store->oldest; r; r = r->next) {
        if ((r->write || write) && r->offset < offset + bytes && offset < r->offset + r->bytes) {
            return SW_FAIL(
                SW_E_ARG,
                "%s of %s: %lld bytes at offset %lld while a %s of %lld bytes at %lld is in "
                "flight: wait for it first",
                write ? "write" : "read", store->files[0].path, (long long)bytes, (long long)offset,
                r->write ? "write" : "read", (long long)r->bytes, (long long)r->offset);
        }
    }
    return SW_OK;
}

/* Lock held. */
static sw_status check_read(const struct sw_nvme *store, int64_t offset, int64_t bytes)
{
    struct extent gap;
    if (sw_store_extents_gap(&store->extents, offset, offset + bytes, &gap)) {
        return SW_FAIL(
            SW_E_ARG,
            "read of %s: %lld bytes at offset %lld: bytes %lld to %lld were never written",
            store->files[0].path, (long long)bytes, (long long)offset, (long long)gap.begin,
            (long long)gap.end);
    }
    return SW_OK;
}

/* A write in flight adds one range to the set, unless it touches one; a failed one can add more.
 * Lock held. */
static sw_status check_write(const struct sw_nvme *store, int64_t offset, int64_t bytes)
{
    const struct extents *set = &store->extents;
    const int64_t n_writes = store->n_active_writes + 1;
    const bool adds = bytes > 0 && !sw_store_extents_touch(set, offset, offset + bytes);
    if (store->options.read_only) {
        return SW_FAIL(SW_E_ARG, "write of %s: it was opened for reading", store->files[0].path);
    }
    if ((adds && set->n + n_writes > store->options.max_extents) ||
        set->n + RANGES_OF_A_WRITE * n_writes > set->cap) {
        return SW_FAIL(SW_E_NOMEM,
                       "write of %s: %lld separate ranges were written and %lld writes are in "
                       "flight; max_extents %lld leaves no room for one more range",
                       store->files[0].path, (long long)set->n, (long long)n_writes - 1,
                       (long long)store->options.max_extents);
    }
    return SW_OK;
}

/* ---- beginning ---- */

static struct request *free_request(struct sw_nvme *store)
{
    for (int64_t i = 0; i < store->options.max_requests; i++) {
        if (store->requests[i].state == REQUEST_FREE) {
            return &store->requests[i];
        }
    }
    return NULL;
}

/* Combines a serial with the slot in its lowest digits. */
static sw_nvme_ticket ticket_of(struct sw_nvme *store, const struct request *r)
{
    return store->next_serial++ * store->options.max_requests + (r - store->requests);
}

static void enqueue(struct sw_nvme *store, struct request *r)
{
    if (store->newest) {
        store->newest->next = r;
    } else {
        store->oldest = r;
    }
    store->newest = r;
}

/* Lock held. */
static sw_status accept(struct sw_nvme *store, const struct request *wanted,
                        sw_nvme_ticket *out_ticket)
{
    SW_TRY(check_overlap(store, wanted->write, wanted->offset, wanted->bytes));
    SW_TRY(wanted->write ? check_write(store, wanted->offset, wanted->bytes)
                         : check_read(store, wanted->offset, wanted->bytes));
    struct request *r = free_request(store);
    if (!r) {
        return SW_FAIL(SW_E_NOMEM, "%s: all %lld tickets are taken: wait for one first",
                       store->files[0].path, (long long)store->options.max_requests);
    }
    struct lane *lanes = r->lanes;
    *r = *wanted;
    r->lanes = lanes;
    if (wanted->segments == &wanted->single) {
        r->segments = &r->single;
    }
    r->serial = ticket_of(store, r);
    r->state = REQUEST_ACTIVE;
    store->n_tickets++;
    sw_store_cut_lanes(store, r);
    enqueue(store, r);
    if (r->write) {
        store->n_active_writes++;
        sw_store_sums_outdate(store);
    }
    *out_ticket = r->serial;
    sw_store_complete(store, r); /* a request of 0 bytes is complete */
    return SW_OK;
}

static sw_status begin(struct sw_nvme *store, struct request *wanted, sw_nvme_ticket *out_ticket)
{
    SW_TRY(check_range(store, wanted->write ? "write" : "read", wanted->offset, wanted->segments,
                       wanted->n_segments, &wanted->bytes));
    pthread_mutex_lock(&store->lock);
    const sw_status st = accept(store, wanted, out_ticket);
    pthread_mutex_unlock(&store->lock);
    SW_TRY(st);
    sw_store_pump(store);
    return SW_OK;
}

sw_status sw_nvme_begin_read(sw_nvme *store, int64_t offset, const struct sw_nvme_segment *segments,
                             int n_segments, sw_nvme_ticket *out_ticket)
{
    struct request wanted = {
        .write = false, .offset = offset, .segments = segments, .n_segments = n_segments};
    return begin(store, &wanted, out_ticket);
}

sw_status sw_nvme_begin_write(sw_nvme *store, int64_t offset,
                              const struct sw_nvme_segment *segments, int n_segments,
                              sw_nvme_ticket *out_ticket)
{
    struct request wanted = {
        .write = true, .offset = offset, .segments = segments, .n_segments = n_segments};
    return begin(store, &wanted, out_ticket);
}

/* ---- waiting ---- */

/* Returns NULL if there is no such ticket. Lock held. */
static struct request *find(sw_nvme *store, sw_nvme_ticket ticket)
{
    if (ticket < 0) {
        return NULL;
    }
    struct request *r = &store->requests[ticket % store->options.max_requests];
    return r->state != REQUEST_FREE && r->serial == ticket ? r : NULL;
}

static sw_status no_ticket(const sw_nvme *store, sw_nvme_ticket ticket)
{
    return SW_FAIL(SW_E_ARG, "%s: there is no request with ticket %lld, or it was waited for",
                   store->files[0].path, (long long)ticket);
}

/* Returns the result and frees the slot. Lock held. */
static sw_status collect(sw_nvme *store, struct request *r)
{
    r->state = REQUEST_FREE;
    store->n_tickets--;
    return r->status < 0 ? SW_FAIL(r->status, "%s", r->message) : SW_OK;
}

struct moment {
    struct timespec at;
    double seconds;
};

static struct moment deadline_of(const sw_nvme *store, double seconds)
{
    struct moment m;
    clock_gettime(CLOCK_MONOTONIC, &m.at);
    m.seconds = seconds > 0 ? seconds : store->options.deadline_s;
    const double most = 1e9;
    const double bounded = m.seconds < most ? m.seconds : most;
    const int64_t ns = m.at.tv_nsec + (int64_t)((bounded - (double)(int64_t)bounded) * 1e9);
    m.at.tv_sec += (time_t)bounded + (time_t)(ns / 1000000000);
    m.at.tv_nsec = (long)(ns % 1000000000);
    return m;
}

static sw_status say_late(const sw_nvme *store, const struct request *r, double seconds)
{
    int64_t file_offset, run;
    const int i_file = sw_store_locate(store, r->offset, &file_offset, &run);
    return SW_FAIL(SW_E_IO, "%s of %s: %lld bytes at offset %lld did not finish within %.3g s",
                   r->write ? "write" : "read", store->files[i_file].path, (long long)r->bytes,
                   (long long)r->offset, seconds);
}

static int64_t count_writes(const sw_nvme *store, int64_t before)
{
    int64_t n = 0;
    for (const struct request *r = store->oldest; r; r = r->next) {
        n += r->write && r->serial < before;
    }
    return n;
}

int64_t sw_store_next_ticket(sw_nvme *store)
{
    pthread_mutex_lock(&store->lock);
    const int64_t ticket = store->next_serial * store->options.max_requests;
    pthread_mutex_unlock(&store->lock);
    return ticket;
}

sw_status sw_store_wait_for_writes(sw_nvme *store, int64_t before, int64_t *out_n_writes)
{
    const struct moment until = deadline_of(store, 0);
    sw_status st = SW_OK;
    pthread_mutex_lock(&store->lock);
    while (count_writes(store, before) > 0 && st == SW_OK) {
        if (pthread_cond_timedwait(&store->changed, &store->lock, &until.at) == ETIMEDOUT &&
            count_writes(store, before) > 0) {
            st = SW_FAIL(SW_E_IO, "flush of %s: %lld writes did not finish within %.3g s",
                         store->files[0].path, (long long)count_writes(store, before),
                         until.seconds);
        }
    }
    *out_n_writes = store->n_active_writes == 0 ? store->sums.n_writes : -1;
    pthread_mutex_unlock(&store->lock);
    return st;
}

/* Lock held. */
static sw_status await(sw_nvme *store, struct request *r, const struct moment *until)
{
    const int64_t serial = r->serial;
    while (r->state == REQUEST_ACTIVE && r->serial == serial) {
        if (pthread_cond_timedwait(&store->changed, &store->lock, &until->at) == ETIMEDOUT &&
            r->state == REQUEST_ACTIVE && r->serial == serial) {
            return say_late(store, r, until->seconds);
        }
    }
    return r->state == REQUEST_FINISHED && r->serial == serial ? SW_OK : no_ticket(store, serial);
}

sw_status sw_nvme_wait(sw_nvme *store, sw_nvme_ticket ticket, double deadline_s)
{
    const struct moment until = deadline_of(store, deadline_s);
    pthread_mutex_lock(&store->lock);
    struct request *r = find(store, ticket);
    sw_status st = r ? await(store, r, &until) : no_ticket(store, ticket);
    if (st == SW_OK) {
        st = collect(store, r);
    }
    pthread_mutex_unlock(&store->lock);
    return st;
}

sw_status sw_nvme_wait_all(sw_nvme *store, double deadline_s)
{
    const struct moment until = deadline_of(store, deadline_s);
    sw_status first = SW_OK;
    char message[MESSAGE_BYTES] = "";
    pthread_mutex_lock(&store->lock);
    for (int64_t i = 0; i < store->options.max_requests; i++) {
        struct request *r = &store->requests[i];
        if (r->state == REQUEST_FREE) {
            continue;
        }
        const int64_t ticket = r->serial;
        sw_status st = await(store, r, &until);
        if (find(store, ticket) != r) {
            continue; /* another thread has waited for it, and has its result */
        }
        if (st == SW_OK) {
            st = collect(store, r);
        }
        if (st < 0 && first == SW_OK) {
            first = st;
            snprintf(message, sizeof message, "%s", sw_error_message());
        }
    }
    pthread_mutex_unlock(&store->lock);
    return first < 0 ? SW_FAIL(first, "%s", message) : SW_OK;
}

sw_status sw_nvme_poll(sw_nvme *store, sw_nvme_ticket ticket)
{
    pthread_mutex_lock(&store->lock);
    struct request *r = find(store, ticket);
    const sw_status st = !r                             ? no_ticket(store, ticket)
                         : r->state == REQUEST_FINISHED ? collect(store, r)
                                                        : SW_PENDING;
    pthread_mutex_unlock(&store->lock);
    return st;
}

bool sw_nvme_in_flight(sw_nvme *store, sw_nvme_ticket ticket)
{
    pthread_mutex_lock(&store->lock);
    const bool taken = find(store, ticket) != NULL;
    pthread_mutex_unlock(&store->lock);
    return taken;
}

sw_status sw_nvme_cancel(sw_nvme *store, sw_nvme_ticket ticket)
{
    pthread_mutex_lock(&store->lock);
    struct request *r = find(store, ticket);
    const sw_status st = r ? SW_OK : no_ticket(store, ticket);
    if (r && r->state == REQUEST_ACTIVE && !r->stopped) {
        r->stopped = true;
        r->status = SW_E_STOP;
        snprintf(r->message, sizeof r->message, "%s of %s: %lld bytes at offset %lld was cancelled",
                 r->write ? "write" : "read", store->files[0].path, (long long)r->bytes,
                 (long long)r->offset);
        for (int i = 0; i < store->n_ops; i++) {
            struct op *op = &store->ops[i];
            if (op->busy && op->request == r) {
                atomic_store(&op->cancelled, true);
                store->backend->ops->cancel(store->backend, op);
            }
        }
        sw_store_complete(store, r);
    }
    pthread_mutex_unlock(&store->lock);
    return st;
}

/* ---- blocking ---- */

/* The caller gets its memory back when this returns, so a missed deadline is followed by a
 * cancel. */
static sw_status transfer(sw_nvme *store, struct request *wanted)
{
    sw_nvme_ticket ticket;
    char message[MESSAGE_BYTES];
    wanted->segments = &wanted->single;
    wanted->n_segments = 1;
    SW_TRY(begin(store, wanted, &ticket));
    const sw_status st = sw_nvme_wait(store, ticket, 0);
    if (st == SW_OK || !sw_nvme_in_flight(store, ticket)) {
        return st;
    }
    snprintf(message, sizeof message, "%s", sw_error_message());
    sw_nvme_cancel(store, ticket);
    while (sw_nvme_in_flight(store, ticket)) {
        sw_nvme_wait(store, ticket, 0);
    }
    return SW_FAIL(st, "%s", message);
}

sw_status sw_nvme_read(sw_nvme *store, int64_t offset, void *data, size_t bytes)
{
    struct request wanted = {.write = false, .offset = offset, .single = {data, bytes}};
    return transfer(store, &wanted);
}

sw_status sw_nvme_write(sw_nvme *store, int64_t offset, const void *data, size_t bytes)
{
    struct request wanted = {.write = true, .offset = offset, .single = {(void *)data, bytes}};
    return transfer(store, &wanted);
}
