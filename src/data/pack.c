// SPDX-License-Identifier: Apache-2.0
// Rows are indexed by the room they have left: one queue per number of tokens, and one bit per
// non-empty queue. A bit scan then finds the fullest row with room.
#include "data/pack.h"

#include <string.h>

enum { BITS = 64 };

struct packer {
    int64_t T;
    int64_t *head, *tail; /* [T + 1] by room: first and last row of the queue; -1: empty */
    uint64_t *bits;       /* by room */
    int64_t *next;        /* [n] by row: the next row in its queue */
    int64_t *row;         /* [n] by document: its row */
    int64_t *order;       /* [n] documents, longest first */
    int64_t n_rows;
};

static sw_status packer_init(struct packer *p, int64_t n, int64_t T)
{
    const size_t rooms = (size_t)T + 1;
    *p = (struct packer){.T = T};
    p->head = sw_alloc("packing", rooms * sizeof *p->head);
    p->tail = sw_alloc("packing", rooms * sizeof *p->tail);
    p->bits = sw_alloc_zero("packing", rooms / BITS + 1, sizeof *p->bits);
    p->next = sw_alloc("packing", ((size_t)n + 1) * sizeof *p->next);
    p->row = sw_alloc("packing", ((size_t)n + 1) * sizeof *p->row);
    p->order = sw_alloc("packing", ((size_t)n + 1) * sizeof *p->order);
    if (!p->head || !p->tail || !p->bits || !p->next || !p->row || !p->order) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for packing %lld documents", (long long)n);
    }
    memset(p->head, -1, rooms * sizeof *p->head);
    return SW_OK;
}

static void packer_fini(struct packer *p)
{
    sw_free(p->head);
    sw_free(p->tail);
    sw_free(p->bits);
    sw_free(p->next);
    sw_free(p->row);
    sw_free(p->order);
}

/* Counting sort: longest first, stable. */
static void sort_documents(struct packer *p, const int64_t *lengths, int64_t n)
{
    int64_t *begin = p->tail; /* unused until rows are queued */
    memset(begin, 0, ((size_t)p->T + 1) * sizeof *begin);
    for (int64_t i = 0; i < n; i++) {
        begin[p->T - lengths[i]]++;
    }
    for (int64_t room = 0, at = 0; room <= p->T; room++) {
        const int64_t count = begin[room];
        begin[room] = at;
        at += count;
    }
    for (int64_t i = 0; i < n; i++) {
        p->order[begin[p->T - lengths[i]]++] = i;
    }
}

static void put(struct packer *p, int64_t row, int64_t room)
{
    p->next[row] = -1;
    if (p->head[room] < 0) {
        p->head[room] = row;
        p->bits[room / BITS] |= UINT64_C(1) << room % BITS;
    } else {
        p->next[p->tail[room]] = row;
    }
    p->tail[room] = row;
}

static int64_t take(struct packer *p, int64_t room)
{
    const int64_t row = p->head[room];
    p->head[room] = p->next[row];
    if (p->head[room] < 0) {
        p->bits[room / BITS] &= ~(UINT64_C(1) << room % BITS);
    }
    return row;
}

/* The smallest room of at least `least` that a row has; -1: no row has it. */
static int64_t find_room(const struct packer *p, int64_t least)
{
    uint64_t word = p->bits[least / BITS] & (~UINT64_C(0) << least % BITS);
    int64_t at = least / BITS;
    while (!word && at < p->T / BITS) {
        word = p->bits[++at];
    }
    return word ? at * BITS + __builtin_ctzll(word) : -1;
}

/* Assigns each document to a row. */
static void assign(struct packer *p, const int64_t *lengths, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t document = p->order[i], length = lengths[document];
        SW_ASSERT(length >= 1 && length <= p->T);
        const int64_t room = find_room(p, length);
        const int64_t row = room < 0 ? p->n_rows++ : take(p, room);
        p->row[document] = row;
        put(p, row, (room < 0 ? p->T : room) - length);
    }
}

/* Lists documents by row, in the order in which they were added to the row. */
static void collect(const struct packer *p, int64_t n, struct sw_packing *out)
{
    for (int64_t i = 0; i < n; i++) {
        out->first[p->row[i] + 1]++;
    }
    for (int64_t row = 0; row < p->n_rows; row++) {
        out->first[row + 1] += out->first[row];
        p->next[row] = out->first[row];
    }
    for (int64_t i = 0; i < n; i++) {
        out->documents[p->next[p->row[p->order[i]]]++] = p->order[i];
    }
}

sw_status sw_pack(const int64_t *lengths, int64_t n, int64_t T, struct sw_packing *out)
{
    struct packer p;
    sw_status st = packer_init(&p, n, T);
    *out = (struct sw_packing){0};
    if (st >= 0) {
        sort_documents(&p, lengths, n);
        assign(&p, lengths, n);
        out->n_rows = p.n_rows;
        out->first = sw_alloc_zero("packing", (size_t)p.n_rows + 1, sizeof *out->first);
        out->documents = sw_alloc("packing", ((size_t)n + 1) * sizeof *out->documents);
        st = out->first && out->documents
                 ? SW_OK
                 : SW_FAIL(SW_E_NOMEM, "out of host memory for packing %lld documents",
                           (long long)n);
    }
    if (st >= 0) {
        collect(&p, n, out);
    } else {
        sw_packing_fini(out);
    }
    packer_fini(&p);
    return st;
}

void sw_packing_fini(struct sw_packing *packing)
{
    sw_free(packing->first);
    sw_free(packing->documents);
    *packing = (struct sw_packing){0};
}
