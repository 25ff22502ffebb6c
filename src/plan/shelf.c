// SPDX-License-Identifier: Apache-2.0
// Address allocation for values with a lifetime: each gets the lowest address that is free over its
// whole life.
//
// The structure is a segment tree over the instructions; a leaf covers a few of them. A node knows
// the addresses that are taken during all of its time (`through`), and those that are taken at any
// moment of it (`any`). Both are minimal lists of address runs. A leaf also knows each life that
// begins or ends inside it. A query looks at few lists: the leaves where the life begins and ends,
// `any` of the nodes that it covers, and `through` of all nodes above. Most lives are short. They
// are added to a leaf, and further up only if they take addresses that were free.
#include <string.h>

#include "plan/private.h"

enum { LEAF = 128 }; /* in instructions */

struct run { /* a range of addresses */
    size_t begin, end;
};
/* Sorted by address; runs neither overlap nor touch. */
struct runs {
    struct run *items;
    int32_t n, cap;
};
struct life {
    size_t begin, end;
    int32_t first, last;
};
struct lives { /* sorted by address */
    struct life *items;
    int32_t n, cap;
};

struct sw_shelf_node {
    struct runs through, any;
};
struct sw_shelf_leaf {
    struct lives lives;
};

/* Lists that a search upwards through the addresses has to pass. */
enum { MOST_LISTS = 4 * 32 }; /* two per level of the tree, of each kind */
struct search {
    const struct runs *runs[MOST_LISTS];
    /* index of the first run of each list that does not lie below the address */
    int32_t next[MOST_LISTS];
    int n;
    const struct lives *lives[2];
    int32_t next_life[2];
    int n_lives;
    int32_t first, last;
    size_t bytes, align;
};

/* ---- lists ---- */

/* Grows a list, and recycles its old memory: free_lists[i] has blocks of LEAST << i items, and the
 * first bytes of a block point to the next one. */
static void *grown(struct sw_shelf *shelf, void *items, int32_t n, int32_t *cap, size_t item_bytes,
                   void **free_lists)
{
    enum { LEAST = 4 };
    const int32_t more = *cap > 0 ? 2 * *cap : LEAST;
    const int i = __builtin_ctz((unsigned)more / LEAST);
    void *mem = free_lists[i];
    if (mem) {
        memcpy(&free_lists[i], mem, sizeof mem);
    } else {
        mem = sw_arena_alloc(&shelf->arena, (size_t)more * item_bytes);
    }
    if (mem && *cap > 0) {
        memcpy(mem, items, (size_t)n * item_bytes);
        memcpy(items, &free_lists[i - 1], sizeof mem);
        free_lists[i - 1] = items;
    }
    *cap = mem ? more : *cap;
    return mem;
}

/* The first run that ends at or above this address. */
static int32_t find_run(const struct runs *runs, int32_t from, size_t at)
{
    int32_t low = from, high = runs->n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (runs->items[middle].end < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* *changed: part of it was free */
static bool add_run(struct sw_shelf *shelf, struct runs *runs, struct run run, bool *changed)
{
    const int32_t i = find_run(runs, 0, run.begin);
    int32_t end = i;
    *changed = i == runs->n || runs->items[i].begin > run.begin || runs->items[i].end < run.end;
    if (!*changed) {
        return true;
    }
    for (; end < runs->n && runs->items[end].begin <= run.end; end++) {
        const struct run *met = &runs->items[end];
        run.begin = met->begin < run.begin ? met->begin : run.begin;
        run.end = met->end > run.end ? met->end : run.end;
    }
    if (end == i && runs->n == runs->cap) {
        void *mem = grown(shelf, runs->items, runs->n, &runs->cap, sizeof run, shelf->free_runs);
        if (!mem) {
            return false;
        }
        runs->items = mem;
    }
    memmove(&runs->items[i + 1], &runs->items[end], (size_t)(runs->n - end) * sizeof run);
    runs->n += 1 - (end - i);
    runs->items[i] = run;
    return true;
}

/* The first life that begins above this address. */
static int32_t find_life(const struct lives *lives, size_t at)
{
    int32_t low = 0, high = lives->n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (lives->items[middle].begin > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Inserts a life in the order of addresses. false = out of memory */
static bool add_life(struct sw_shelf *shelf, struct lives *lives, const struct life *life)
{
    if (lives->n == lives->cap) {
        void *mem =
            grown(shelf, lives->items, lives->n, &lives->cap, sizeof *life, shelf->free_lives);
        if (!mem) {
            return false;
        }
        lives->items = mem;
    }
    const int32_t at = find_life(lives, life->begin);
    memmove(&lives->items[at + 1], &lives->items[at], (size_t)(lives->n - at) * sizeof *life);
    lives->n++;
    lives->items[at] = *life;
    return true;
}

/* ---- the tree ---- */

/* Node 1 is the root. Nodes 2 i and 2 i + 1 are below node i. Leaf k is node n_leaves + k. */

sw_status sw_shelf_open(struct sw_shelf *shelf, int32_t n_instrs)
{
    *shelf = (struct sw_shelf){.n_leaves = 1};
    sw_arena_init(&shelf->arena, "plan");
    while (shelf->n_leaves <= n_instrs / LEAF) {
        shelf->n_leaves *= 2;
    }
    const size_t n = (size_t)shelf->n_leaves;
    shelf->nodes = sw_alloc_zero("plan", 2 * n, sizeof *shelf->nodes);
    shelf->leaves = sw_alloc_zero("plan", n, sizeof *shelf->leaves);
    if (!shelf->nodes || !shelf->leaves) {
        sw_shelf_close(shelf);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the memory map");
    }
    return SW_OK;
}

void sw_shelf_close(struct sw_shelf *shelf)
{
    sw_free(shelf->nodes);
    sw_free(shelf->leaves);
    sw_arena_fini(&shelf->arena);
    *shelf = (struct sw_shelf){0};
}

/* Calls do_node for the nodes that together cover leaves low .. high. false = a call failed */
static bool for_nodes(struct sw_shelf *shelf, int32_t low, int32_t high,
                      bool (*do_node)(struct sw_shelf *shelf, int32_t node, void *ctx), void *ctx)
{
    int32_t a = low + shelf->n_leaves, b = high + shelf->n_leaves + 1;
    bool good = true;
    for (; a < b && good; a /= 2, b /= 2) {
        if (a % 2 == 1) {
            good = do_node(shelf, a++, ctx);
        }
        if (b % 2 == 1 && good) {
            good = do_node(shelf, --b, ctx);
        }
    }
    return good;
}

/* Leaves *low .. *high are fully covered by a life; it begins and ends in the leaves just
 * outside. */
static void covered(int32_t first, int32_t last, int32_t *low, int32_t *high)
{
    *low = (first + LEAF - 1) / LEAF;
    *high = (last + 1) / LEAF - 1;
}

/* ---- finding room ---- */

static bool add_any(struct sw_shelf *shelf, int32_t node, void *ctx)
{
    struct search *s = ctx;
    if (shelf->nodes[node].any.n > 0) {
        s->next[s->n] = 0;
        s->runs[s->n++] = &shelf->nodes[node].any;
    }
    return true;
}

static void add_through(const struct sw_shelf *shelf, int32_t node, struct search *s)
{
    if (shelf->nodes[node].through.n > 0) {
        s->next[s->n] = 0;
        s->runs[s->n++] = &shelf->nodes[node].through;
    }
}

/* Adds `through` of the two leaves where a life begins and ends, and of all nodes above them, once
 * each. Those include all nodes above the nodes that the life covers. */
static void add_above(const struct sw_shelf *shelf, int32_t begins, int32_t ends, struct search *s)
{
    int32_t a = begins + shelf->n_leaves, b = ends + shelf->n_leaves;
    for (; a != b; a /= 2, b /= 2) {
        add_through(shelf, a, s);
        add_through(shelf, b, s);
    }
    for (; a >= 1; a /= 2) {
        add_through(shelf, a, s);
    }
}

static void add_leaf(const struct sw_shelf *shelf, int32_t leaf, struct search *s)
{
    s->next_life[s->n_lives] = 0;
    s->lives[s->n_lives++] = &shelf->leaves[leaf].lives;
}

/* The lowest address from `at` on with room between the runs. */
static size_t pass_runs(const struct search *s, const struct runs *runs, int32_t *next, size_t at)
{
    if (*next < runs->n && runs->items[*next].end < at) {
        *next = find_run(runs, *next + 1, at);
    }
    for (; *next < runs->n && runs->items[*next].begin < at + s->bytes; (*next)++) {
        const size_t end = runs->items[*next].end;
        at = end > at ? sw_round_up(end, s->align) : at;
    }
    return at;
}

/* Moves `at` up past all lives that would overlap there, in time and in bytes. */
static size_t pass_lives(const struct search *s, const struct lives *lives, int32_t *next,
                         size_t at)
{
    for (; *next < lives->n && lives->items[*next].begin < at + s->bytes; (*next)++) {
        const struct life *life = &lives->items[*next];
        if (life->first <= s->last && s->first <= life->last && life->end > at) {
            at = sw_round_up(life->end, s->align);
        }
    }
    return at;
}

/* Moves up past obstacles, list by list, until all lists in a row accept the address. */
static size_t find_place(struct search *s)
{
    const int n = s->n_lives + s->n;
    size_t at = 0;
    for (int i = 0, passed = 0; passed < n; i = i + 1 < n ? i + 1 : 0) {
        const size_t before = at;
        const int k = i - s->n_lives;
        at = k < 0 ? pass_lives(s, s->lives[i], &s->next_life[i], at)
                   : pass_runs(s, s->runs[k], &s->next[k], at);
        passed = at == before ? passed + 1 : 1;
    }
    return at;
}

/* The lowest aligned address with so many bytes free from instruction `first` through `last`. */
static size_t search(struct sw_shelf *shelf, int32_t first, int32_t last, size_t bytes,
                     size_t align)
{
    struct search s;
    int32_t low, high;
    s.n = s.n_lives = 0;
    s.first = first;
    s.last = last;
    s.bytes = bytes;
    s.align = align;
    covered(first, last, &low, &high);
    const int32_t begins = first / LEAF, ends = last / LEAF;
    if (begins < low) {
        add_leaf(shelf, begins, &s);
    }
    if (ends > high && !(ends == begins && begins < low)) {
        add_leaf(shelf, ends, &s);
    }
    if (low <= high) {
        for_nodes(shelf, low, high, add_any, &s);
    }
    add_above(shelf, begins, ends, &s);
    return find_place(&s);
}

/* ---- taking room ---- */

/* Adds the run to `any` from a node upwards, as long as it changes something. */
static bool tell(struct sw_shelf *shelf, int32_t node, struct run run)
{
    bool good = true, changed = true;
    for (; node >= 1 && good && changed; node /= 2) {
        good = add_run(shelf, &shelf->nodes[node].any, run, &changed);
    }
    return good;
}

static bool take_node(struct sw_shelf *shelf, int32_t node, void *ctx)
{
    const struct run *run = ctx;
    bool changed;
    return add_run(shelf, &shelf->nodes[node].through, *run, &changed) && tell(shelf, node, *run);
}

/* Records a placed life in the tree. false = out of memory */
static bool take(struct sw_shelf *shelf, const struct life *life)
{
    struct run run = {life->begin, life->end};
    int32_t low, high;
    covered(life->first, life->last, &low, &high);
    const int32_t begins = life->first / LEAF, ends = life->last / LEAF;
    bool good = true;
    if (begins < low) {
        good = add_life(shelf, &shelf->leaves[begins].lives, life) &&
               tell(shelf, begins + shelf->n_leaves, run);
    }
    if (good && ends > high && !(ends == begins && begins < low)) {
        good = add_life(shelf, &shelf->leaves[ends].lives, life) &&
               tell(shelf, ends + shelf->n_leaves, run);
    }
    return good && (low > high || for_nodes(shelf, low, high, take_node, &run));
}

sw_status sw_shelf_put(struct sw_shelf *shelf, int32_t first, int32_t last, size_t bytes,
                       size_t align, size_t *out)
{
    *out = search(shelf, first, last, bytes, align);
    const struct life life = {*out, *out + bytes, first, last};
    return bytes == 0 || take(shelf, &life)
               ? SW_OK
               : SW_FAIL(SW_E_NOMEM, "out of host memory for the memory map");
}
