// SPDX-License-Identifier: Apache-2.0
// Verifies the memory map of a finished plan. Each buffer lies inside its tier and budget, and two
// buffers that are live at the same time do not overlap. In a large plan, millions of transients
// share a few hundred addresses. Therefore addresses are sorted, not buffers. What a step reads for
// the next one stays where that one looks for it.
#include <stdlib.h>
#include <string.h>

#include "plan/private.h"

/* Bytes from the start of its first slot to the end of its last. */
static size_t extent_of(const struct sw_buffer *buffer)
{
    return buffer->slot_bytes + buffer->bytes;
}

/* A buffer ends within its tier and the budget. */
static sw_status check_tier(const struct sw_plan *plan, const struct sw_program *program, int32_t i)
{
    const struct sw_buffer *a = &program->buffers[i];
    const size_t tier = plan->tier_bytes[a->tier], budget = plan->tier_budget[a->tier];
    const size_t end = a->offset + extent_of(a);
    if (end > tier || (budget > 0 && end > budget)) {
        return SW_FAIL(SW_E_ARG, "plan: buffer %d ends at %zu, beyond the %zu bytes of its tier", i,
                       end, budget > 0 && budget < tier ? budget : tier);
    }
    return SW_OK;
}

static bool share_bytes(const struct sw_buffer *a, const struct sw_buffer *b)
{
    return a->tier == b->tier && a->bytes > 0 && b->bytes > 0 &&
           a->offset < b->offset + extent_of(b) && b->offset < a->offset + extent_of(a);
}

static sw_status check_apart(const struct sw_program *program, int32_t a, int32_t b)
{
    const struct sw_buffer *buffers = program->buffers;
    return share_bytes(&buffers[a], &buffers[b])
               ? SW_FAIL(SW_E_ARG, "plan: buffers %d and %d live at once in the same bytes", a, b)
               : SW_OK;
}

/* A buffer, to be sorted by address. */
struct fixed {
    enum sw_tier tier;
    size_t offset;
    int32_t buffer;
};

static int by_offset(const void *a, const void *b)
{
    const struct fixed *x = a, *y = b;
    return x->tier != y->tier       ? (x->tier > y->tier) - (x->tier < y->tier)
           : x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
                                    : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* Persistent buffers are always live: neighbours must not overlap, and transients must lie after
 * them. */
static sw_status check_fixed(const struct sw_program *program, enum sw_tier tier,
                             struct fixed *fixed)
{
    size_t end = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        if (buffer->persistent && buffer->tier == tier && buffer->bytes > 0) {
            fixed[n++] = (struct fixed){tier, buffer->offset, i};
            const size_t its = buffer->offset + extent_of(buffer);
            end = its > end ? its : end;
        }
    }
    qsort(fixed, (size_t)n, sizeof *fixed, by_offset);
    for (int32_t k = 1; k < n; k++) {
        SW_TRY(check_apart(program, fixed[k - 1].buffer, fixed[k].buffer));
    }
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        const bool before = !buffer->persistent && buffer->tier == tier && buffer->offset < end;
        for (int32_t k = 0; before && k < n; k++) {
            SW_TRY(check_apart(program, fixed[k].buffer, i));
        }
    }
    return SW_OK;
}

/* An ordered set of places: one bit each, and on higher levels one bit that says whether any of 64
 * is set. */
enum { MOST_LEVELS = 6 };
struct places {
    uint64_t *bits[MOST_LEVELS]; /* level 0 has a bit per place */
    int n_levels;
};

/* Opens an empty set with room for n places. false = out of memory */
static bool open_places(struct places *p, int32_t n)
{
    *p = (struct places){0};
    size_t words = (size_t)n;
    do {
        words = words / 64 + 1;
        p->bits[p->n_levels] = sw_alloc_zero("plan", words, sizeof **p->bits);
        if (!p->bits[p->n_levels++]) {
            return false;
        }
    } while (words > 1);
    return true;
}

static void close_places(struct places *p)
{
    for (int l = 0; l < p->n_levels; l++) {
        sw_free(p->bits[l]);
    }
}

/* Adds or removes a place. A higher level changes only if a word below becomes empty or used. */
static void set_place(struct places *p, int32_t i, bool on)
{
    bool above = true;
    for (int l = 0; l < p->n_levels && above; l++, i /= 64) {
        uint64_t *word = &p->bits[l][i / 64];
        const uint64_t bit = UINT64_C(1) << (i % 64);
        *word = on ? *word | bit : *word & ~bit;
        above = on || *word == 0;
    }
}

static bool has_place(const struct places *p, int32_t i)
{
    return p->bits[0][i / 64] >> (i % 64) & 1;
}

/* Descends from bit i of a level to the first or last place below it. */
static int32_t descend(const struct places *p, int l, int32_t i, bool first)
{
    for (; l > 0; l--) {
        const uint64_t word = p->bits[l - 1][i];
        i = i * 64 + (first ? __builtin_ctzll(word) : 63 - __builtin_clzll(word));
    }
    return i;
}

/* The nearest place of the set after i, or before i; -1 = none. */
static int32_t next_place(const struct places *p, int32_t i, bool after)
{
    for (int l = 0; l < p->n_levels; l++, i /= 64) {
        const int at = i % 64;
        const uint64_t mask =
            after ? (at == 63 ? 0 : ~UINT64_C(0) << (at + 1)) : (UINT64_C(1) << at) - 1;
        const uint64_t word = p->bits[l][i / 64] & mask;
        if (word != 0) {
            const int bit = after ? __builtin_ctzll(word) : 63 - __builtin_clzll(word);
            return descend(p, l, i / 64 * 64 + bit, after);
        }
    }
    return -1;
}

/* An address that transients use one after the other. */
struct spot {
    enum sw_tier tier;
    size_t offset;
    int32_t number; /* in order of discovery */
};

struct lives {
    const struct sw_program *program;
    struct spot *spots; /* [n] sorted by address once all are known; room for cap / 2 */
    int32_t *table;     /* [cap] open addressing: numbers of spots, -1 = free; at most half full */
    int32_t n, cap;
    int32_t *spot_of; /* [n_buffers] for transients, the number of its spot */
    int32_t *rank_of; /* [n] by number: its index by address */
    int32_t *who;     /* [n] by rank: the live buffer there */
    /* transients sorted by the instruction at which they become live, and at which they die; *_at:
     * [n_instrs + 2] */
    int32_t *begin_at, *begin, *end_at, *end;
    struct places alive; /* a set of ranks */
};

static bool is_transient(const struct sw_buffer *buffer)
{
    return !buffer->persistent && buffer->bytes > 0;
}

/* The table entry of an address, or the free entry for it. */
static int32_t *find_spot(const struct lives *l, enum sw_tier tier, size_t offset)
{
    const uint64_t mask = (uint64_t)l->cap - 1;
    uint64_t at = ((uint64_t)offset + (uint64_t)tier) * UINT64_C(0x9e3779b97f4a7c15);
    for (at ^= at >> 32;; at++) {
        int32_t *number = &l->table[at & mask];
        const struct spot *spot = *number < 0 ? NULL : &l->spots[*number];
        if (!spot || (spot->tier == tier && spot->offset == offset)) {
            return number;
        }
    }
}

/* false = out of memory */
static bool grow(struct lives *l)
{
    enum { LEAST = 64 };
    const int32_t cap = l->cap > 0 ? 2 * l->cap : LEAST;
    struct spot *spots = sw_realloc("plan", l->spots, (size_t)cap / 2 * sizeof *spots);
    int32_t *table = spots ? sw_alloc("plan", (size_t)cap * sizeof *table) : NULL;
    l->spots = spots ? spots : l->spots;
    if (!table) {
        return false;
    }
    memset(table, 0xff, (size_t)cap * sizeof *table);
    sw_free(l->table);
    l->table = table;
    l->cap = cap;
    for (int32_t i = 0; i < l->n; i++) {
        *find_spot(l, l->spots[i].tier, l->spots[i].offset) = i;
    }
    return true;
}

/* false = out of memory */
static bool list_spots(struct lives *l)
{
    for (int32_t b = 0; b < l->program->n_buffers; b++) {
        const struct sw_buffer *buffer = &l->program->buffers[b];
        if (!is_transient(buffer)) {
            continue;
        }
        if (l->n >= l->cap / 2 && !grow(l)) {
            return false;
        }
        int32_t *number = find_spot(l, buffer->tier, buffer->offset);
        if (*number < 0) {
            l->spots[l->n] = (struct spot){buffer->tier, buffer->offset, l->n};
            *number = l->n++;
        }
        l->spot_of[b] = *number;
    }
    return true;
}

static int by_address(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    return x->tier != y->tier ? (x->tier > y->tier) - (x->tier < y->tier)
                              : (x->offset > y->offset) - (x->offset < y->offset);
}

/* false = out of memory */
static bool rank_spots(struct lives *l)
{
    const size_t n = (size_t)l->n + 1;
    l->rank_of = sw_alloc("plan", n * sizeof *l->rank_of);
    l->who = sw_alloc("plan", n * sizeof *l->who);
    if (!l->rank_of || !l->who || !open_places(&l->alive, l->n)) {
        return false;
    }
    if (l->n > 0) {
        qsort(l->spots, (size_t)l->n, sizeof *l->spots, by_address);
    }
    for (int32_t i = 0; i < l->n; i++) {
        l->rank_of[l->spots[i].number] = i;
    }
    return true;
}

static int32_t when(const struct lives *l, int32_t b, bool end)
{
    const struct sw_buffer *buffer = &l->program->buffers[b];
    const int32_t last = buffer->last > buffer->first ? buffer->last : buffer->first;
    const int32_t at = end ? last : buffer->first, most = l->program->n_instrs;
    return at < 0 ? 0 : at > most ? most : at;
}

/* The transients of instruction i are out[at[i]] .. out[at[i + 1] - 1]. */
static void sort_by_instr(const struct lives *l, bool end, int32_t *at, int32_t *out)
{
    const int32_t n_instrs = l->program->n_instrs, n_buffers = l->program->n_buffers;
    int32_t n = 0;
    for (int32_t b = 0; b < n_buffers; b++) {
        if (is_transient(&l->program->buffers[b])) {
            at[when(l, b, end) + 1]++;
            n++;
        }
    }
    for (int32_t i = 0; i <= n_instrs; i++) {
        at[i + 1] += at[i];
    }
    for (int32_t b = n_buffers - 1; b >= 0; b--) { /* at[i + 1] becomes the start of i */
        if (is_transient(&l->program->buffers[b])) {
            out[--at[when(l, b, end) + 1]] = b;
        }
    }
    memmove(at, at + 1, ((size_t)n_instrs + 1) * sizeof *at);
    at[n_instrs + 1] = n;
}

/* Live buffers never overlap. So a buffer that becomes live can only overlap the one at its own
 * spot, or the neighbours. */
static sw_status begin_life(struct lives *l, int32_t b)
{
    const int32_t rank = l->rank_of[l->spot_of[b]];
    if (has_place(&l->alive, rank)) {
        return check_apart(l->program, l->who[rank], b);
    }
    for (int behind = 0; behind < 2; behind++) {
        const int32_t next = next_place(&l->alive, rank, behind);
        SW_TRY(next < 0 ? SW_OK : check_apart(l->program, l->who[next], b));
    }
    set_place(&l->alive, rank, true);
    l->who[rank] = b;
    return SW_OK;
}

/* Follows the instructions and keeps the set of live spots. Each buffer is checked when its life
 * begins. */
static sw_status walk(struct lives *l)
{
    sort_by_instr(l, false, l->begin_at, l->begin);
    sort_by_instr(l, true, l->end_at, l->end);
    for (int32_t i = 0; i <= l->program->n_instrs; i++) {
        for (int32_t k = l->begin_at[i]; k < l->begin_at[i + 1]; k++) {
            SW_TRY(begin_life(l, l->begin[k]));
        }
        for (int32_t k = l->end_at[i]; k < l->end_at[i + 1]; k++) {
            set_place(&l->alive, l->rank_of[l->spot_of[l->end[k]]], false);
        }
    }
    return SW_OK;
}

/* false = out of memory */
static bool open_lives(struct lives *l)
{
    const size_t n = (size_t)l->program->n_buffers + 1, n_instrs = (size_t)l->program->n_instrs + 2;
    l->spot_of = sw_alloc("plan", n * sizeof *l->spot_of);
    l->begin_at = sw_alloc_zero("plan", n_instrs, sizeof *l->begin_at);
    l->end_at = sw_alloc_zero("plan", n_instrs, sizeof *l->end_at);
    l->begin = sw_alloc("plan", n * sizeof *l->begin);
    l->end = sw_alloc("plan", n * sizeof *l->end);
    return l->spot_of && l->begin_at && l->end_at && l->begin && l->end && list_spots(l) &&
           rank_spots(l);
}

static sw_status check_transients(const struct sw_program *program)
{
    struct lives l = {.program = program};
    const sw_status st =
        open_lives(&l) ? walk(&l) : SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
    sw_free(l.spots);
    sw_free(l.table);
    sw_free(l.spot_of);
    sw_free(l.rank_of);
    sw_free(l.who);
    sw_free(l.begin_at);
    sw_free(l.begin);
    sw_free(l.end_at);
    sw_free(l.end);
    close_places(&l.alive);
    return st;
}

/* The next read from i on that is `for_next`, or `from_last`. */
static int32_t find_across(const struct sw_program *program, int32_t i, bool for_next)
{
    while (i < program->n_instrs &&
           !(for_next ? program->instrs[i].turn.for_next : program->instrs[i].turn.from_last)) {
        i++;
    }
    return i;
}

/* True if what instruction i reads for the next step stays where instruction j looks for it. */
static bool stays(const struct sw_program *program, int32_t i, int32_t j)
{
    const struct sw_ir *ir = program->ir;
    const struct sw_instr *instr = &program->instrs[i];
    const int32_t b = program->buffer_of[sw_ir_root(ir, ir->ops[program->instrs[j].op].out[0])];
    const struct sw_buffer *first = &program->buffers[b];
    const struct sw_buffer *second =
        instr->workspace < 0 ? first : &program->buffers[instr->workspace];
    return first->first == 0 && second->first <= i && second->last == program->n_instrs &&
           first->tier == second->tier && first->offset == second->offset &&
           first->bytes == second->bytes;
}

/* Reads of forward that the step before does, one by one: they are the same reads, in the last
 * backward, and nothing else has their memory at the end of a step and at the start of the next. */
static sw_status check_across(const struct sw_program *program)
{
    int32_t i = -1, j = -1;
    do {
        i = find_across(program, i + 1, true);
        j = find_across(program, j + 1, false);
        const struct sw_instr *instr = &program->instrs[i], *other = &program->instrs[j];
        const bool ends = i == program->n_instrs || j == program->n_instrs;
        if (ends ? i != j
                 : instr->op != other->op || instr->segment != SW_SEGMENT_BACKWARD ||
                       other->segment != SW_SEGMENT_FORWARD || !instr->last_only ||
                       !stays(program, i, j)) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d does not read for the next step what instruction "
                           "%d wants there",
                           i, j);
        }
    } while (i < program->n_instrs);
    return SW_OK;
}

sw_status sw_plan_check_lives(const struct sw_plan *plan, const struct sw_program *program)
{
    int32_t n = 0;
    for (int32_t b = 0; b < program->n_buffers; b++) {
        SW_TRY(check_tier(plan, program, b));
        n += program->buffers[b].persistent;
    }
    struct fixed *fixed = sw_alloc("plan", ((size_t)n + 1) * sizeof *fixed);
    SW_TRY_ALLOC(fixed, "checking the plan");
    sw_status st = SW_OK;
    for (int t = 0; t < SW_TIER_COUNT && st >= 0; t++) {
        st = check_fixed(program, (enum sw_tier)t, fixed);
    }
    sw_free(fixed);
    st = st < 0 ? st : check_across(program);
    return st < 0 ? st : check_transients(program);
}
