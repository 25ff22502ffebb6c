// SPDX-License-Identifier: Apache-2.0
// Opens and closes a store: checks options, opens files and the backend, and allocates all memory
// that requests will need. Also flushes.
#include "store/private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, MOST_BLOCK = 1 << 30, N_BOUNCE_WANTED = 16 };

void sw_nvme_options_init(struct sw_nvme_options *out)
{
    *out = (struct sw_nvme_options){.block_bytes = MIB,
                                    .queue_depth = 8,
                                    .intra_op_parallelism = 1,
                                    .overlap_events = true,
                                    .preallocate = true,
                                    .stripe_bytes = MIB,
                                    .max_requests = 256,
                                    .max_extents = 65536,
                                    .bounce_bytes = 4 * MIB,
                                    .deadline_s = 300};
}

/* ---- options ---- */

struct limit {
    const char *name;
    int64_t *value, most;
    int64_t fallback;
};

static sw_status check_limits(struct sw_nvme_options *o)
{
    struct sw_nvme_options d;
    sw_nvme_options_init(&d);
    const struct limit limits[] = {
        {"block_bytes", &o->block_bytes, MOST_BLOCK, d.block_bytes},
        {"queue_depth", &o->queue_depth, MAX_SLOTS, d.queue_depth},
        {"intra_op_parallelism", &o->intra_op_parallelism, MAX_LANES, d.intra_op_parallelism},
        {"stripe_bytes", &o->stripe_bytes, INT64_C(1) << 40, d.stripe_bytes},
        {"checksum_bytes", &o->checksum_bytes, MOST_BLOCK, 0},
        {"max_requests", &o->max_requests, 1 << 20, d.max_requests},
        {"max_extents", &o->max_extents, 1 << 28, d.max_extents},
        {"bounce_bytes", &o->bounce_bytes, INT64_C(1) << 36, d.bounce_bytes},
    };
    for (size_t i = 0; i < SW_LEN(limits); i++) {
        const struct limit *l = &limits[i];
        *l->value = *l->value == 0 ? l->fallback : *l->value;
        if (*l->value < 0 || *l->value > l->most) {
            return SW_FAIL(SW_E_ARG, "%s is %lld: wanted 1 to %lld", l->name, (long long)*l->value,
                           (long long)l->most);
        }
    }
    o->deadline_s = o->deadline_s > 0 ? o->deadline_s : d.deadline_s;
    return SW_OK;
}

static sw_status check_options(struct sw_nvme_options *o)
{
    SW_TRY(check_limits(o));
    if (o->queue_depth * o->intra_op_parallelism > MAX_SLOTS) {
        return SW_FAIL(SW_E_ARG,
                       "queue_depth %lld x intra_op_parallelism %lld: at most %d in flight",
                       (long long)o->queue_depth, (long long)o->intra_op_parallelism, MAX_SLOTS);
    }
    if (o->stripe_bytes % PAGE != 0) {
        return SW_FAIL(SW_E_ARG, "stripe_bytes is %lld: wanted a multiple of %d",
                       (long long)o->stripe_bytes, PAGE);
    }
    const int64_t sum = o->checksum_bytes;
    if (sum != 0 && (sum < PAGE || (sum & (sum - 1)) != 0)) {
        return SW_FAIL(SW_E_ARG, "checksum_bytes is %lld: wanted a power of two from %d on, or 0",
                       (long long)sum, PAGE);
    }
    if (o->read_only && !o->reopen) {
        return SW_FAIL(SW_E_ARG, "read_only goes with reopen");
    }
    if (o->fds && o->reopen) {
        return SW_FAIL(SW_E_ARG, "reopen goes with paths, not with files that are open");
    }
    o->preallocate = o->preallocate && !o->read_only;
    return SW_OK;
}

/* ---- memory ---- */

static void *take(struct sw_nvme *store, int64_t count, size_t bytes)
{
    store->memory_bytes += count * (int64_t)bytes;
    return sw_alloc_zero("store", (size_t)count, bytes);
}

static bool take_bounce(struct sw_nvme *store)
{
    const int64_t granule = (int64_t)store->granule, all = store->options.bounce_bytes;
    if (granule == 1) {
        return true; /* all transfers go directly to the caller's memory */
    }
    int64_t each = sw_max_i64(all / N_BOUNCE_WANTED / granule, 1) * granule;
    each = sw_min_i64(each, store->options.block_bytes);
    store->bounce_each = (size_t)each;
    store->n_bounce = (int)sw_min_i64(sw_max_i64(all / each, 1), store->n_ops);
    store->bounce = sw_alloc_aligned("store", sw_max_i64(PAGE, (int64_t)store->memory_align),
                                     (size_t)each * (size_t)store->n_bounce);
    store->free_bounce = take(store, store->n_bounce, sizeof *store->free_bounce);
    store->memory_bytes += each * store->n_bounce;
    if (!store->bounce || !store->free_bounce) {
        return false;
    }
    memset(store->bounce, 0, (size_t)each * (size_t)store->n_bounce);
    while (store->n_free_bounce < store->n_bounce) {
        store->free_bounce[store->n_free_bounce] = store->n_free_bounce;
        store->n_free_bounce++;
    }
    return true;
}

static sw_status take_memory(struct sw_nvme *store)
{
    const struct sw_nvme_options *o = &store->options;
    store->n_ops = (int)(o->queue_depth * o->intra_op_parallelism);
    store->ops = take(store, store->n_ops, sizeof *store->ops);
    store->requests = take(store, o->max_requests, sizeof *store->requests);
    store->lanes = take(store, o->max_requests * o->intra_op_parallelism, sizeof *store->lanes);
    store->extents.cap = o->max_extents + (int64_t)RANGES_OF_A_WRITE * o->max_requests;
    store->extents.items = take(store, store->extents.cap, sizeof *store->extents.items);
    if (!store->ops || !store->requests || !store->lanes || !store->extents.items ||
        !take_bounce(store)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the requests of %s",
                       store->files[0].path);
    }
    for (int64_t i = 0; i < o->max_requests; i++) {
        store->requests[i].lanes = store->lanes + i * o->intra_op_parallelism;
    }
    sw_store_extents_add(&store->extents, 0, sw_min_i64(store->bytes, store->written_before));
    return SW_OK;
}

/* ---- files ---- */

static sw_status take_paths(struct sw_nvme *store, const char *const *paths)
{
    store->files = sw_alloc_zero("store", (size_t)store->n_files, sizeof *store->files);
    SW_TRY_ALLOC(store->files, "files");
    for (int i = 0; i < store->n_files; i++) {
        store->files[i].fd = store->options.fds ? store->options.fds[i] : -1;
        store->files[i].grown_from = -1;
    }
    store->nameless = store->options.fds != NULL;
    store->options.fds = NULL; /* the files own the descriptors now */
    for (int i = 0; i < store->n_files; i++) {
        store->files[i].path = sw_strdup("store", paths[i]);
        SW_TRY_ALLOC(store->files[i].path, "a path");
    }
    return SW_OK;
}

static sw_status fix_sizes(struct sw_nvme *store)
{
    struct sw_nvme_options *o = &store->options;
    const size_t sum = (size_t)o->checksum_bytes;
    store->granule = store->align > sum ? store->align : sum;
    store->granule = store->granule ? store->granule : 1;
    o->block_bytes = (int64_t)sw_round_up((size_t)o->block_bytes, store->granule);
    if (store->n_files > 1 && o->stripe_bytes % (int64_t)store->granule != 0) {
        return SW_FAIL(SW_E_ARG, "stripe_bytes is %lld: wanted a multiple of %zu",
                       (long long)o->stripe_bytes, store->granule);
    }
    return SW_OK;
}

static sw_status open_files(struct sw_nvme *store)
{
    const struct sw_nvme_options *o = &store->options;
    SW_TRY(sw_store_files_open(store));
    SW_TRY(sw_store_files_lengthen(store, sw_max_i64(PAGE, o->checksum_bytes)));
    SW_TRY(sw_store_files_direct(store));
    SW_TRY(fix_sizes(store));
    if (store->granule > PAGE) {
        SW_TRY(sw_store_files_lengthen(store, (int64_t)store->granule));
    }
    store->fds = sw_alloc_zero("store", (size_t)store->n_files, sizeof *store->fds);
    SW_TRY_ALLOC(store->fds, "files");
    for (int i = 0; i < store->n_files; i++) {
        store->fds[i] = store->files[i].fd;
    }
    return SW_OK;
}

/* ---- backend ---- */

static sw_status open_backend(struct sw_nvme *store, const struct sw_nvme_fault *fault)
{
    const enum sw_nvme_backend wanted = store->options.backend;
    sw_status st = SW_E_UNSUP;
    if (wanted != SW_NVME_BACKEND_THREADS) {
        st = sw_store_uring_open(store->fds, store->n_files, store->n_ops, &store->backend);
        if (st < 0 && (st != SW_E_UNSUP || wanted == SW_NVME_BACKEND_URING)) {
            return st;
        }
    }
    if (st < 0 && wanted == SW_NVME_BACKEND_AUTO) {
        snprintf(store->note, sizeof store->note, "%s", sw_error_message());
        sw_log(SW_HAVE_URING ? SW_LOG_WARN : SW_LOG_INFO, "%s: threads read and write: %s",
               store->files[0].path, store->note);
    }
    if (st < 0) {
        SW_TRY(sw_store_threads_open(store->fds, store->n_files, store->n_ops, &store->backend));
    }
    const bool faulty = fault && fault->action != SW_NVME_FAULT_NONE;
    snprintf(store->backend_name, sizeof store->backend_name, "%s%s", faulty ? "fault:" : "",
             store->backend->ops->name);
    if (faulty) {
        struct backend *inner = store->backend;
        store->backend = NULL;
        SW_TRY(sw_store_fault_open(fault, store->align, inner, &store->backend));
    }
    if (store->bounce && store->backend->ops->add_buffer) {
        store->buffer_used[0] = true;
        store->backend->ops->add_buffer(store->backend, 0, store->bounce,
                                        store->bounce_each * (size_t)store->n_bounce);
    }
    return SW_OK;
}

/* ---- opening and closing ---- */

static void free_store(struct sw_nvme *store, bool failed)
{
    if (store->backend) {
        store->backend->ops->close(store->backend);
    }
    for (int i = 0; store->options.fds && i < store->n_files; i++) {
        close(store->options.fds[i]); /* descriptors that no file owns yet */
    }
    sw_store_sums_close(store);
    sw_store_files_close(store, failed);
    sw_free(store->fds);
    sw_free(store->ops);
    sw_free(store->requests);
    sw_free(store->lanes);
    sw_free(store->extents.items);
    sw_free(store->bounce);
    sw_free(store->free_bounce);
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->lock);
    sw_free(store);
}

static struct sw_nvme *new_store(void)
{
    struct sw_nvme *store = sw_alloc_zero("store", 1, sizeof *store);
    pthread_condattr_t monotonic;
    if (store) {
        pthread_mutex_init(&store->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&store->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
    }
    return store;
}

/* Removes a side file of an older store: it no longer describes these files. */
static sw_status drop_side(const struct sw_nvme *store)
{
    char *side = sw_store_sums_path(store->files[0].path);
    SW_TRY_ALLOC(side, "the name of the checksums");
    const bool gone = unlink(side) == 0 || errno == ENOENT;
    const sw_status st =
        gone ? SW_OK : SW_FAIL(SW_E_IO, "cannot remove %s: %s", side, strerror(errno));
    sw_free(side);
    return st;
}

static sw_status open_all(struct sw_nvme *store, const char *const *paths,
                          const struct sw_nvme_fault *fault)
{
    SW_TRY(take_paths(store, paths));
    SW_TRY(open_files(store));
    SW_TRY(take_memory(store));
    if (store->options.checksum_bytes != 0) {
        SW_TRY(sw_store_sums_open(store));
    }
    SW_TRY(open_backend(store, fault));
    /* last, because a refusal leaves all files as they were */
    if (!store->nameless && (!store->options.reopen ||
                             (store->options.checksum_bytes == 0 && !store->options.read_only))) {
        SW_TRY(drop_side(store));
    }
    return SW_OK;
}

sw_status sw_nvme_open(const char *const *paths, int n_paths, int64_t bytes,
                       const struct sw_nvme_options *options, sw_nvme **out)
{
    struct sw_nvme_options defaults;
    sw_nvme_options_init(&defaults);
    const bool good = paths && n_paths >= 1 && n_paths <= MAX_PATHS;
    struct sw_nvme *store = good ? new_store() : NULL;
    if (!store) {
        for (int i = 0; options && options->fds && i < n_paths; i++) {
            close(options->fds[i]);
        }
        return good ? SW_FAIL(SW_E_NOMEM, "out of host memory for a store")
                    : SW_FAIL(SW_E_ARG, "%d paths: wanted 1 to %d", n_paths, MAX_PATHS);
    }
    store->options = options ? *options : defaults;
    store->options.fault = NULL;
    store->n_files = n_paths;
    store->bytes = bytes;
    sw_status st = check_options(&store->options);
    if (st == SW_OK) {
        st = open_all(store, paths, options ? options->fault : NULL);
    }
    if (st < 0) {
        free_store(store, true);
        SW_TRY(st);
    }
    *out = store;
    return SW_OK;
}

void sw_nvme_close(sw_nvme *store)
{
    if (!store) {
        return;
    }
    for (int64_t i = 0; i < store->options.max_requests; i++) {
        while (store->requests[i].state != REQUEST_FREE) {
            const sw_nvme_ticket ticket = store->requests[i].serial;
            sw_nvme_cancel(store, ticket);
            sw_nvme_wait(store, ticket, 0);
        }
    }
    if (sw_store_has_sums(store) && !store->sums.on_disk && !store->options.read_only &&
        sw_nvme_flush(store) < 0) {
        sw_log(SW_LOG_ERROR, "%s: %s", store->files[0].path, sw_error_message());
    }
    free_store(store, false);
}

sw_status sw_nvme_flush(sw_nvme *store)
{
    if (store->options.read_only) {
        return SW_OK;
    }
    int64_t n_writes;
    SW_TRY(sw_store_wait_for_writes(store, sw_store_next_ticket(store), &n_writes));
    for (int i = 0; i < store->n_files; i++) {
        if (sw_fault_point("fsync") != SW_FAULT_NONE) {
            errno = EIO;
            return SW_FAIL(SW_E_IO, "cannot sync %s: %s", store->files[i].path, strerror(errno));
        }
        if (fdatasync(store->fds[i]) != 0) {
            return SW_FAIL(SW_E_IO, "cannot sync %s: %s", store->files[i].path, strerror(errno));
        }
    }
    if (sw_store_has_sums(store)) {
        SW_TRY(sw_store_sums_save(store, n_writes));
    }
    return SW_OK;
}

/* ---- queries ---- */

void sw_nvme_get_info(const sw_nvme *store, struct sw_nvme_info *out)
{
    *out = (struct sw_nvme_info){.backend = store->backend_name,
                                 .note = store->note,
                                 .direct = store->direct,
                                 .preallocated = store->preallocated,
                                 .bytes = store->bytes,
                                 .block_bytes = store->options.block_bytes,
                                 .granule_bytes = (int64_t)store->granule,
                                 .memory_align = (int64_t)store->memory_align,
                                 .memory_bytes = store->memory_bytes};
}

void sw_nvme_get_counters(sw_nvme *store, struct sw_nvme_counters *out)
{
    pthread_mutex_lock(&store->lock);
    *out = store->counters;
    pthread_mutex_unlock(&store->lock);
}
