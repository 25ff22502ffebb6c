// SPDX-License-Identifier: Apache-2.0
// Cuts requests into ops. With a granule (O_DIRECT's alignment, or the checksum block) an op covers
// whole granules of the file, in one of four ways:
//
//     body    whole granules, directly from or into the caller's aligned memory
//     bounced whole granules through a bounce buffer, if the memory is not aligned
//     around  a read that begins or ends inside a granule: whole granules into a bounce buffer
//     edge    a write of a part of one granule: read it, change it, write it
//
// A granule at an edge also holds bytes of others. While an op works on such a granule, no other op
// of this store may touch it, unless both only read. So adjacent concurrent writes never lose each
// other's bytes. The file is locked against other stores, so this store sees all writers. A second,
// buffered descriptor is no alternative: the kernel does not promise that the page cache and direct
// writes of one page stay consistent.
//
// There is no hold and wait: an op takes its slot, its bounce buffer and its granules at once, or
// none of them.
#include "store/private.h"

#include <string.h>

/* ---- locations ---- */

int sw_store_locate(const struct sw_nvme *store, int64_t offset, int64_t *out_file_offset,
                    int64_t *out_run)
{
    if (store->n_files == 1) {
        *out_file_offset = offset;
        *out_run = store->files[0].bytes - offset;
        return 0;
    }
    const int64_t unit = store->options.stripe_bytes;
    const int64_t stripe = offset / unit, within = offset % unit;
    *out_file_offset = stripe / store->n_files * unit + within;
    *out_run = unit - within;
    return (int)(stripe % store->n_files);
}

static struct place advance(const struct request *r, struct place at, int64_t bytes)
{
    while (bytes > 0) {
        const size_t left = r->segments[at.i_segment].bytes - at.skip;
        const size_t step = (size_t)sw_min_i64(bytes, (int64_t)left);
        at.skip += step;
        bytes -= (int64_t)step;
        if (at.skip == r->segments[at.i_segment].bytes) {
            at.i_segment++;
            at.skip = 0;
        }
    }
    return at;
}

/* Gathers memory pieces from `at`: at most OP_PIECES, and `bytes` bytes in all. Skips empty
 * segments. Returns the number of pieces; *out_bytes is their total size. */
static int gather(const struct request *r, struct place at, size_t bytes, struct iovec *pieces,
                  size_t *out_bytes)
{
    int n = 0;
    size_t sum = 0;
    for (; sum < bytes && n < OP_PIECES; at.i_segment++, at.skip = 0) {
        const struct sw_nvme_segment *segment = &r->segments[at.i_segment];
        size_t len = segment->bytes - at.skip;
        len = len < bytes - sum ? len : bytes - sum;
        if (len == 0) {
            continue;
        }
        pieces[n++] = (struct iovec){(char *)segment->data + at.skip, len};
        sum += len;
    }
    *out_bytes = sum;
    return n;
}

void sw_store_op_pieces(struct op *op)
{
    struct sw_nvme *store = op->store;
    if (op->i_bounce >= 0) {
        char *memory = store->bounce + (size_t)op->i_bounce * store->bounce_each;
        op->pieces[0] = (struct iovec){memory + op->done, op->bytes - op->done};
        op->n_pieces = 1;
        return;
    }
    size_t sum;
    const struct place from = advance(op->request, op->place, (int64_t)op->done);
    op->n_pieces = gather(op->request, from, op->bytes - op->done, op->pieces, &sum);
}

void sw_store_op_copy(struct op *op, bool to_caller)
{
    struct sw_nvme *store = op->store;
    char *at = store->bounce + (size_t)op->i_bounce * store->bounce_each + op->skip;
    struct place from = op->place;
    size_t left = op->user_bytes;
    while (left > 0) {
        struct iovec pieces[OP_PIECES];
        size_t sum;
        const int n = gather(op->request, from, left, pieces, &sum);
        for (int i = 0; i < n; i++) {
            if (to_caller) {
                memcpy(pieces[i].iov_base, at, pieces[i].iov_len);
            } else {
                memcpy(at, pieces[i].iov_base, pieces[i].iov_len);
            }
            at += pieces[i].iov_len;
        }
        from = advance(op->request, from, (int64_t)sum);
        left -= sum;
    }
}

/* ---- lanes ---- */

/* Lanes begin at whole blocks of the store, so that only the request's own ends may be
 * unaligned. */
void sw_store_cut_lanes(struct sw_nvme *store, struct request *r)
{
    const int64_t block = store->options.block_bytes;
    const int64_t first = r->offset / block;
    const int64_t n_blocks = sw_ceil_div(r->offset + r->bytes, block) - first;
    const int64_t each = sw_ceil_div(n_blocks, store->options.intra_op_parallelism);
    struct place place = {0, 0};
    int64_t pos = 0;
    r->n_lanes = 0;
    r->next_lane = 0;
    while (pos < r->bytes) {
        const int64_t last = (first + (r->n_lanes + 1) * each) * block - r->offset;
        const int64_t end = sw_min_i64(last, r->bytes);
        r->lanes[r->n_lanes++] = (struct lane){.pos = pos, .end = end, .place = place};
        place = advance(r, place, end - pos);
        pos = end;
    }
}

/* ---- making an op ---- */

static bool aligned(const struct sw_nvme *store, const struct iovec *pieces, int n)
{
    if (!store->direct) {
        return true;
    }
    for (int i = 0; i < n; i++) {
        if ((uintptr_t)pieces[i].iov_base % store->memory_align != 0 ||
            pieces[i].iov_len % store->align != 0) {
            return false;
        }
    }
    return true;
}

/* Number of bytes that can be transferred directly to or from the caller's memory, in whole
 * granules of those `bytes`. 0 = use a bounce buffer. */
static size_t body_bytes(const struct sw_nvme *store, const struct request *r,
                         const struct lane *lane, size_t bytes)
{
    struct iovec pieces[OP_PIECES];
    size_t sum;
    gather(r, lane->place, bytes, pieces, &sum);
    const size_t whole = sum / store->granule * store->granule;
    const int n = gather(r, lane->place, whole, pieces, &sum);
    return aligned(store, pieces, n) ? whole : 0;
}

/* Decides everything about the next op of a lane, except its slot and bounce buffer. */
static bool shape(const struct sw_nvme *store, struct request *r, const struct lane *lane,
                  struct op *op)
{
    const int64_t offset = r->offset + lane->pos, granule = (int64_t)store->granule;
    int64_t run, file_offset;
    op->i_file = sw_store_locate(store, offset, &file_offset, &run);
    run = sw_min_i64(run, lane->end - lane->pos);
    const int64_t block = store->options.block_bytes;
    run = sw_min_i64(run, block - offset % block);
    const int64_t skip = file_offset % granule;
    op->pos = lane->pos;
    op->place = lane->place;
    op->write = r->write;
    op->edge = skip != 0 || run < granule;
    op->phase = r->write ? OP_WRITE : OP_READ;
    const int64_t whole = run / granule * granule;
    if (!op->edge) {
        op->user_bytes = body_bytes(store, r, lane, (size_t)whole);
    }
    const bool bounce = op->edge || op->user_bytes == 0;
    int64_t bytes = bounce ? 0 : (int64_t)op->user_bytes;
    if (bounce && r->write) {
        bytes = op->edge ? granule : sw_min_i64(whole, (int64_t)store->bounce_each);
        op->user_bytes = (size_t)sw_min_i64(run, bytes - skip);
        op->phase = op->edge ? OP_READ : OP_WRITE;
    } else if (bounce) {
        bytes = sw_ceil_div(skip + run, granule) * granule;
        bytes = sw_min_i64(bytes, (int64_t)store->bounce_each);
        op->user_bytes = (size_t)sw_min_i64(run, bytes - skip);
        op->edge = op->edge || (size_t)bytes != op->user_bytes;
    }
    op->skip = (size_t)skip;
    op->bytes = (size_t)bytes;
    op->file_offset = file_offset - skip;
    return bounce;
}

/* True if another op works on the same bytes of the file and one of the two writes. Requests never
 * overlap, so this can only be a granule at an edge. */
static bool disturbed(const struct sw_nvme *store, const struct op *op)
{
    for (int i = 0; i < store->n_ops && op->edge; i++) {
        const struct op *o = &store->ops[i];
        if (o->busy && o->edge && (o->write || op->write) && o->i_file == op->i_file &&
            o->file_offset < op->file_offset + (int64_t)op->bytes &&
            op->file_offset < o->file_offset + (int64_t)o->bytes) {
            return true;
        }
    }
    return false;
}

static struct op *free_op(struct sw_nvme *store)
{
    for (int i = 0; i < store->n_ops && store->n_busy < store->n_ops; i++) {
        if (!store->ops[i].busy) {
            return &store->ops[i];
        }
    }
    return NULL;
}

/* Marks the op as started. The checksums of granules that it overwrites become unknown until it is
 * done. */
static void take(struct sw_nvme *store, struct request *r, struct lane *lane, struct op *op)
{
    op->busy = true;
    store->n_busy++;
    r->n_ops++;
    lane->place = advance(r, lane->place, (int64_t)op->user_bytes);
    lane->pos += (int64_t)op->user_bytes;
    if (sw_store_has_sums(store) && op->write && !op->edge) {
        sw_store_sums_set_known(store, sw_store_op_granule(op),
                                (int64_t)(op->bytes / store->granule), false);
    }
}

static struct op *op_of_lane(struct sw_nvme *store, struct request *r, struct lane *lane)
{
    struct op *op = free_op(store);
    if (!op) {
        return NULL;
    }
    struct op made = {.store = store, .request = r, .i_bounce = -1};
    const bool bounce = shape(store, r, lane, &made);
    if ((bounce && store->n_free_bounce == 0) || disturbed(store, &made)) {
        return NULL;
    }
    if (bounce) {
        made.i_bounce = store->free_bounce[--store->n_free_bounce];
        store->counters.n_bounced++;
    }
    store->counters.n_edges += made.edge && made.write;
    *op = made;
    take(store, r, lane, op);
    return op;
}

struct op *sw_store_next_op(struct sw_nvme *store)
{
    for (struct request *r = store->oldest; r && store->n_busy < store->n_ops; r = r->next) {
        for (int i = 0; i < r->n_lanes && !r->stopped; i++) {
            struct lane *lane = &r->lanes[r->next_lane];
            r->next_lane = (r->next_lane + 1) % r->n_lanes;
            struct op *op = lane->pos < lane->end ? op_of_lane(store, r, lane) : NULL;
            if (op) {
                return op;
            }
        }
    }
    return NULL;
}

int64_t sw_store_op_granule(const struct op *op)
{
    return (op->request->offset + op->pos) / (int64_t)op->store->granule;
}
