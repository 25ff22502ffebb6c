// SPDX-License-Identifier: Apache-2.0
// A CRC-32C for each granule of the store. Checksums are kept in memory, and a flush writes them to
// PATH.sums next to the first file. Granules are written whole (a partial one is read, checked,
// changed and written), so a checksum always covers all bytes of its granule. The side file also
// holds the written ranges. The first write after a flush removes it, so a side file that exists is
// valid. Format, in the machine's byte order: struct header, extents, crc, known, CRC-32C of all
// that precedes.
#include "store/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SUMS_MAGIC "SWSUMS1\n"

struct header {
    char magic[8];
    int64_t bytes, granule, n_files, stripe, n_extents;
};

char *sw_store_sums_path(const char *path)
{
    const size_t size = strlen(path) + sizeof ".sums";
    char *side = sw_alloc("store", size);
    if (side) {
        snprintf(side, size, "%s.sums", path);
    }
    return side;
}

/* ---- granules of an op ---- */

void sw_store_sums_set_known(struct sw_nvme *store, int64_t first, int64_t n, bool known)
{
    memset(store->sums.known + first, known, (size_t)n);
}

/* Calls `call` for each granule of an op, in order, with its CRC. The memory may come in several
 * pieces. Stops when a call returns false. */
static bool each_granule(const struct op *op,
                         bool (*call)(struct sums *sums, int64_t i, uint32_t crc),
                         int64_t *out_granule)
{
    const size_t granule = op->store->granule;
    struct op walk = *op;
    size_t filled = 0;
    uint32_t crc = 0;
    *out_granule = sw_store_op_granule(op);
    for (walk.done = 0; walk.done < op->bytes;) {
        sw_store_op_pieces(&walk);
        for (int i = 0; i < walk.n_pieces; i++) {
            const char *at = walk.pieces[i].iov_base;
            size_t left = walk.pieces[i].iov_len, step;
            for (walk.done += left; left > 0; left -= step, at += step) {
                step = left < granule - filled ? left : granule - filled;
                crc = sw_crc32c(crc, at, step);
                filled += step;
                if (filled == granule) {
                    if (!call(&op->store->sums, *out_granule, crc)) {
                        return false;
                    }
                    ++*out_granule;
                    filled = 0;
                    crc = 0;
                }
            }
        }
    }
    return true;
}

static bool keep(struct sums *sums, int64_t i, uint32_t crc)
{
    sums->crc[i] = crc;
    return true;
}

static bool agrees(struct sums *sums, int64_t i, uint32_t crc)
{
    return !sums->known[i] || sums->crc[i] == crc;
}

void sw_store_sums_of_write(struct op *op)
{
    int64_t granule;
    each_granule(op, keep, &granule);
}

bool sw_store_sums_hold(const struct op *op, int64_t *out_granule)
{
    return each_granule(op, agrees, out_granule);
}

/* ---- the side file ---- */

static sw_status sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    const bool fits = sw_folder_of(path, folder, sizeof folder);
    const int fd = fits ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const bool synced = fd >= 0 && fsync(fd) == 0;
    const sw_status st = synced ? SW_OK
                                : SW_FAIL(SW_E_IO, "cannot sync the folder of %s: %s", path,
                                          fits ? strerror(errno) : "its path is too long");
    if (fd >= 0) {
        close(fd);
    }
    return st;
}

/* The removal is durable before the write: after a loss of power, an older side file beside newer
 * bytes would be taken for theirs. */
void sw_store_sums_outdate(struct sw_nvme *store)
{
    struct sums *sums = &store->sums;
    sums->n_writes++;
    if (sums->on_disk && unlink(sums->path) != 0 && errno != ENOENT) {
        sw_log(SW_LOG_ERROR, "cannot remove %s, which is out of date: %s", sums->path,
               strerror(errno));
    } else if (sums->on_disk && sync_folder_of(sums->path) < 0) {
        sw_log(SW_LOG_ERROR, "%s is out of date, and was removed: %s", sums->path,
               sw_error_message());
    }
    sums->on_disk = false;
}

static size_t side_bytes(const struct sw_nvme *store, int64_t n_extents)
{
    return sizeof(struct header) + (size_t)n_extents * sizeof(struct extent) +
           (size_t)store->sums.n * (sizeof(uint32_t) + 1) + sizeof(uint32_t);
}

static struct header header_of(const struct sw_nvme *store)
{
    struct header h = {.bytes = store->bytes,
                       .granule = (int64_t)store->granule,
                       .n_files = store->n_files,
                       .stripe = store->options.stripe_bytes,
                       .n_extents = store->extents.n};
    memcpy(h.magic, SUMS_MAGIC, sizeof h.magic);
    return h;
}

/* Lock held. */
static void pack(const struct sw_nvme *store, char *at)
{
    const char *begin = at;
    const struct sums *sums = &store->sums;
    const struct header h = header_of(store);
    memcpy(at, &h, sizeof h);
    at += sizeof h;
    memcpy(at, store->extents.items, (size_t)h.n_extents * sizeof(struct extent));
    at += (size_t)h.n_extents * sizeof(struct extent);
    memcpy(at, sums->crc, (size_t)sums->n * sizeof *sums->crc);
    at += (size_t)sums->n * sizeof *sums->crc;
    memcpy(at, sums->known, (size_t)sums->n);
    at += sums->n;
    const uint32_t crc = sw_crc32c(0, begin, (size_t)(at - begin));
    memcpy(at, &crc, sizeof crc);
}

/* Packs the table for the side file, unless a write has started. Its checksums are then unknown
 * until it ends, and the file would be outdated at once. */
static bool pack_current(struct sw_nvme *store, int64_t n_writes, char *side, size_t *out_bytes)
{
    pthread_mutex_lock(&store->lock);
    const bool current = store->sums.n_writes == n_writes;
    if (current) {
        *out_bytes = side_bytes(store, store->extents.n);
        pack(store, side);
    }
    pthread_mutex_unlock(&store->lock);
    return current;
}

/* Names the file only if no write has started meanwhile, so that not even a killed process leaves
 * an outdated one. */
static sw_status name_current(struct sw_nvme *store, int64_t n_writes, struct sw_output *out)
{
    struct sums *sums = &store->sums;
    sw_status st = SW_OK;
    pthread_mutex_lock(&store->lock);
    const bool current = sums->n_writes == n_writes;
    if (current) {
        st = sw_output_commit(out, false);
        sums->on_disk = sums->on_disk || !out->temp;
    }
    pthread_mutex_unlock(&store->lock);
    return st < 0 || !current ? st : sync_folder_of(sums->path);
}

static sw_status write_side(struct sw_nvme *store, int64_t n_writes, const char *side, size_t bytes)
{
    struct sw_output out = {0};
    SW_TRY(sw_output_open(store->sums.path, false, &out));
    sw_status st = sw_output_begin(&out);
    st = st < 0 ? st : sw_output_add(&out, side, bytes);
    if (st >= 0 && (sw_fault_fails("fsync", NULL) || fsync(out.fd) != 0)) {
        st = SW_FAIL(SW_E_IO, "cannot sync %s: %s", store->sums.path, strerror(errno));
    }
    st = st < 0 ? st : name_current(store, n_writes, &out);
    sw_output_close(&out);
    return st;
}

sw_status sw_store_sums_save(struct sw_nvme *store, int64_t n_writes)
{
    size_t bytes;
    if (store->nameless) {
        return SW_OK;
    }
    char *side = sw_alloc("store", side_bytes(store, store->extents.cap));
    SW_TRY_ALLOC(side, store->sums.path);
    const bool current = pack_current(store, n_writes, side, &bytes);
    const sw_status st = current ? write_side(store, n_writes, side, bytes) : SW_OK;
    sw_free(side);
    return st;
}

static bool sorted(const struct sw_nvme *store, const struct extent *items, int64_t n)
{
    int64_t end = -1;
    for (int64_t i = 0; i < n; i++) {
        if (items[i].begin <= end || items[i].end <= items[i].begin ||
            items[i].end > store->bytes) {
            return false;
        }
        end = items[i].end;
    }
    return true;
}

static sw_status unpack(struct sw_nvme *store, const char *side, size_t bytes)
{
    struct sums *sums = &store->sums;
    struct header h, want = header_of(store);
    uint32_t crc;
    if (bytes < sizeof h + sizeof crc) {
        return SW_FAIL(SW_E_FORMAT, "%s has %zu bytes: no checksums", sums->path, bytes);
    }
    memcpy(&h, side, sizeof h);
    memcpy(&crc, side + bytes - sizeof crc, sizeof crc);
    want.n_extents = h.n_extents;
    if (memcmp(&h, &want, sizeof h) != 0) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s has the checksums of %lld bytes in blocks of %lld, %lld paths, stripes of "
            "%lld; wanted %lld in blocks of %lld, %lld paths, stripes of %lld",
            sums->path, (long long)h.bytes, (long long)h.granule, (long long)h.n_files,
            (long long)h.stripe, (long long)want.bytes, (long long)want.granule,
            (long long)want.n_files, (long long)want.stripe);
    }
    if (h.n_extents < 0 || h.n_extents > store->extents.cap ||
        bytes != side_bytes(store, h.n_extents) || crc != sw_crc32c(0, side, bytes - sizeof crc)) {
        return SW_FAIL(SW_E_FORMAT, "%s is damaged, or has more ranges than max_extents %lld",
                       sums->path, (long long)store->options.max_extents);
    }
    const char *at = side + sizeof h;
    memcpy(store->extents.items, at, (size_t)h.n_extents * sizeof(struct extent));
    if (!sorted(store, store->extents.items, h.n_extents)) {
        return SW_FAIL(SW_E_FORMAT, "%s: its written ranges are out of order", sums->path);
    }
    store->extents.n = h.n_extents;
    at += (size_t)h.n_extents * sizeof(struct extent);
    memcpy(sums->crc, at, (size_t)sums->n * sizeof *sums->crc);
    memcpy(sums->known, at + (size_t)sums->n * sizeof *sums->crc, (size_t)sums->n);
    sums->on_disk = true;
    return SW_OK;
}

static sw_status load(struct sw_nvme *store)
{
    char *side;
    size_t bytes;
    if (access(store->sums.path, F_OK) != 0 && errno == ENOENT) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s is missing: the store had no checksums, or was not flushed after its last "
            "write",
            store->sums.path);
    }
    SW_TRY(sw_file_read(store->sums.path, &side, &bytes));
    const sw_status st = unpack(store, side, bytes);
    sw_free(side);
    return st;
}

/* ---- opening ---- */

sw_status sw_store_sums_open(struct sw_nvme *store)
{
    struct sums *sums = &store->sums;
    sums->path = sw_store_sums_path(store->files[0].path);
    SW_TRY_ALLOC(sums->path, "the name of the checksums");
    sums->n = sw_ceil_div(store->bytes, (int64_t)store->granule);
    sums->crc = sw_alloc_zero("store", (size_t)sums->n, sizeof *sums->crc);
    sums->known = sw_alloc_zero("store", (size_t)sums->n, 1);
    if (!sums->crc || !sums->known) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the checksums of %lld blocks",
                       (long long)sums->n);
    }
    store->memory_bytes += sums->n * 5;
    if (store->options.reopen) {
        SW_TRY(load(store));
    }
    return SW_OK;
}

void sw_store_sums_close(struct sw_nvme *store)
{
    sw_free(store->sums.path);
    sw_free(store->sums.crc);
    sw_free(store->sums.known);
}

/* ---- verifying everything ---- */

/* The next written range from `at` on, of at most `most` bytes; empty at the end. */
static struct extent next_written(sw_nvme *store, int64_t at, int64_t most)
{
    struct extent found = {store->bytes, store->bytes};
    pthread_mutex_lock(&store->lock);
    for (int64_t i = 0; i < store->extents.n; i++) {
        const struct extent e = store->extents.items[i];
        if (e.end > at) {
            found.begin = sw_max_i64(e.begin, at);
            found.end = sw_min_i64(e.end, found.begin + most);
            break;
        }
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

sw_status sw_nvme_verify(sw_nvme *store, int64_t *out_bytes)
{
    const int64_t most = 8 << 20;
    int64_t total = 0;
    sw_status st = SW_OK;
    if (!sw_store_has_sums(store)) {
        return SW_FAIL(SW_E_ARG, "%s was opened without checksums", store->files[0].path);
    }
    void *memory = sw_alloc_aligned("store", 4096, (size_t)most);
    SW_TRY_ALLOC(memory, "reading everything");
    for (int64_t at = 0; at < store->bytes && st == SW_OK;) {
        const struct extent e = next_written(store, at, most);
        st = sw_nvme_read(store, e.begin, memory, (size_t)(e.end - e.begin));
        total += e.end - e.begin;
        at = e.end;
    }
    sw_free(memory);
    SW_TRY(st);
    if (out_bytes) {
        *out_bytes = total;
    }
    return SW_OK;
}
