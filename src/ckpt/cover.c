// SPDX-License-Identifier: Apache-2.0
// Whether boxes cover a tensor, each element once, in time that grows with their number alone.
//
// Each place of each axis has a random number h(axis, place). The worth of a box is the product
// over the axes of h(end) - h(start): a sum over its corners, with signs. Where boxes meet, these
// terms cancel, so boxes that tile a tensor are together worth as much as the tensor. Numbers are
// drawn for each check, in a field of 2^61 - 1 elements: other boxes have the same worth with a
// chance below 2^-57.
#include "ckpt/private.h"

#include <stdlib.h>

static const uint64_t field = (UINT64_C(1) << 61) - 1;

static uint64_t multiply(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b % field);
}

static uint64_t number_at(const struct sw_hash_key *key, int64_t axis, int64_t place)
{
    const int64_t at[2] = {axis, place};
    return sw_hash_keyed(key, at, sizeof(at)) % field;
}

static uint64_t worth(const struct sw_hash_key *key, int rank, const struct sw_box *box)
{
    uint64_t product = 1;
    for (int d = 0; d < rank; d++) {
        const uint64_t start = number_at(key, d, box->start[d]);
        const uint64_t end = number_at(key, d, box->start[d] + box->dims[d]);
        product = multiply(product, (end + field - start) % field);
    }
    return product;
}

static bool is_covered(const struct ckpt_stored *tensor)
{
    struct sw_hash_key key;
    const struct sw_shape *shape = &tensor->entry.shape;
    const struct sw_box whole = sw_box_whole(shape);
    uint64_t sum = 0;
    sw_hash_key_init(&key);
    for (int64_t i = 0; i < tensor->n_pieces; i++) {
        sum = (sum + worth(&key, shape->rank, &tensor->pieces[i].box)) % field;
    }
    return sum == worth(&key, shape->rank, &whole);
}

/* ---- the message ---- */

/* Finds two boxes that overlap, among the first few million pairs. Boxes are sorted by their first
 * start, so each is compared only with those that begin before it ends. */
static bool find_common(const struct ckpt_stored *tensor, struct sw_box *out)
{
    const int rank = tensor->entry.shape.rank;
    int64_t left = 1 << 22;
    for (int64_t i = 0; i < tensor->n_pieces; i++) {
        const struct sw_box *box = &tensor->pieces[i].box;
        for (int64_t j = i + 1; j < tensor->n_pieces; j++) {
            const struct sw_box *other = &tensor->pieces[j].box;
            if (rank > 0 && other->start[0] >= box->start[0] + box->dims[0]) {
                break;
            }
            if (left-- == 0) {
                return false;
            }
            if (sw_box_common(rank, box, other, out)) {
                return true;
            }
        }
    }
    return false;
}

static sw_status fail_cover(const char *where, const struct ckpt_stored *tensor)
{
    const struct sw_ckpt_entry *e = &tensor->entry;
    const int64_t wanted = sw_shape_elems(&e->shape);
    struct sw_box common;
    char text[256];
    int64_t covered = 0;
    if (find_common(tensor, &common)) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s (%s) is stored twice at %s", where, e->param, e->kind,
                       sw_box_format(e->shape.rank, &common, text, sizeof(text)));
    }
    for (int64_t i = 0; i < tensor->n_pieces && covered <= wanted; i++) {
        covered += sw_box_elems(e->shape.rank, &tensor->pieces[i].box);
    }
    if (covered < wanted) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s (%s) has %lld of its %lld elements", where, e->param,
                       e->kind, (long long)covered, (long long)wanted);
    }
    return SW_FAIL(SW_E_FORMAT, "%s: %s (%s): its %lld boxes overlap", where, e->param, e->kind,
                   (long long)tensor->n_pieces);
}

static int compare_starts(const void *a, const void *b)
{
    const struct ckpt_piece *pa = a, *pb = b;
    return (pa->box.start[0] > pb->box.start[0]) - (pa->box.start[0] < pb->box.start[0]);
}

sw_status sw_ckpt_check_cover(const char *where, struct ckpt_stored *tensor)
{
    qsort(tensor->pieces, (size_t)tensor->n_pieces, sizeof(*tensor->pieces), compare_starts);
    return is_covered(tensor) ? SW_OK : fail_cover(where, tensor);
}
