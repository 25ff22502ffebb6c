// SPDX-License-Identifier: Apache-2.0
// Which ranks share something and so have one time, and which of a group are walked.
#include <string.h>

#include "walk/ranks.h"

/* ---- circles ---- */

/* The members of a group that are walked. seen: [n] all false, also afterwards */
static sw_status find_circle(struct clock *c, const struct sw_group *group, bool *seen,
                             struct circle *out)
{
    *out = (struct circle){0, NULL};
    for (int i = 0; i < group->n; i++) {
        const int index = sw_clock_index(c, group->ranks[i]);
        out->n += index >= 0 && !seen[index];
        if (index >= 0) {
            seen[index] = true;
        }
    }
    out->who = sw_arena_array(&c->arena, (size_t)out->n + 1, sizeof *out->who);
    int n = 0;
    for (int i = 0; i < group->n && out->who; i++) {
        const int index = sw_clock_index(c, group->ranks[i]);
        if (index >= 0 && seen[index]) {
            int at = n++;
            for (; at > 0 && out->who[at - 1] > index; at--) {
                out->who[at] = out->who[at - 1];
            }
            out->who[at] = index;
            seen[index] = false;
        }
    }
    SW_TRY_ALLOC(out->who, "the clock of a step");
    return SW_OK;
}

static sw_status find_circles(struct clock *c)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        n += c->ranks[i].plan->n_groups;
    }
    bool *seen = sw_arena_array(&c->arena, (size_t)c->n, sizeof *seen);
    SW_TRY_ALLOC(seen, "the clock of a step");
    memset(seen, 0, (size_t)c->n * sizeof *seen);
    c->circles = sw_alloc_zero("walk", (size_t)n + 1, sizeof *c->circles);
    SW_TRY_ALLOC(c->circles, "the clock of a step");
    struct circle *next = c->circles;
    for (int i = 0; i < c->n; i++) {
        struct rank *r = &c->ranks[i];
        r->circles = next;
        for (int g = 0; g < r->plan->n_groups; g++) {
            SW_TRY(find_circle(c, &r->plan->groups[g], seen, next++));
        }
    }
    return SW_OK;
}

/* ---- units ---- */

/* Kinds of things that the costs of a rank name. */
static int count_kinds(const struct rank *r)
{
    const struct sw_program *program = &r->plan->programs[0];
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs && r->asked->shared; i++) {
        const int32_t way = r->pace->costs[i][0].way;
        for (int k = 0; way > 0 && k < r->pace->ways[way - 1].n; k++) {
            n = (int)sw_max_i64(n, r->pace->ways[way - 1].uses[k].kind + 1);
        }
    }
    return n;
}

static int root_of(const int *parent, int i)
{
    while (parent[i] != i) {
        i = parent[i];
    }
    return i;
}

/* Joins each rank with the first one that has the same thing. The root of a unit is its first
 * rank. */
static sw_status join_ranks(const struct clock *c, int *parent)
{
    int n_ids = 0;
    for (int pass = 0; pass < 2; pass++) {
        int *owner = sw_alloc("walk", ((size_t)n_ids + 1) * sizeof *owner);
        SW_TRY_ALLOC(owner, "the clock of a step");
        memset(owner, 0xff, ((size_t)n_ids + 1) * sizeof *owner);
        for (int i = 0; i < c->n; i++) {
            const struct rank *r = &c->ranks[i];
            const int kinds = count_kinds(r);
            for (int k = 0; k < kinds; k++) {
                const int id = r->asked->shared[k].id;
                if (pass == 0) {
                    n_ids = id >= n_ids ? id + 1 : n_ids;
                    continue;
                }
                owner[id] = owner[id] < 0 ? i : owner[id];
                const int a = root_of(parent, owner[id]), b = root_of(parent, i);
                parent[a > b ? a : b] = a > b ? b : a;
            }
        }
        sw_free(owner);
    }
    return SW_OK;
}

/* Makes a unit of the ranks with each root, which is the first of them. */
static sw_status make_units(struct clock *c, const int *parent)
{
    int *who = sw_arena_array(&c->arena, (size_t)c->n, sizeof *who), most = 0;
    SW_TRY_ALLOC(who, "the clock of a step");
    for (int i = 0; i < c->n; i++) {
        const int root = root_of(parent, i);
        c->ranks[i].unit = root == i ? c->n_units++ : c->ranks[root].unit;
        c->units[c->ranks[i].unit].n++;
    }
    for (int i = 0; i < c->n_units; i++) {
        struct unit *u = &c->units[i];
        const int n = u->n;
        *u = (struct unit){.who = who, .place = -1};
        who += n;
    }
    for (int i = 0; i < c->n; i++) {
        struct unit *u = &c->units[c->ranks[i].unit];
        u->who[u->n++] = i;
        most = u->n > most ? u->n : most;
    }
    c->flows = sw_alloc("walk", (size_t)most * SW_QUEUE_COUNT * SW_WAY_USES * sizeof *c->flows);
    SW_TRY_ALLOC(c->flows, "the clock of a step");
    return SW_OK;
}

sw_status sw_clock_open_units(struct clock *c)
{
    const size_t n = (size_t)c->n;
    sw_arena_init(&c->arena, "walk");
    SW_TRY(n > 1 ? find_circles(c) : SW_OK);
    c->units = sw_alloc_zero("walk", n, sizeof *c->units);
    SW_TRY_ALLOC(c->units, "the clock of a step");
    c->ready = sw_alloc("walk", n * sizeof *c->ready);
    SW_TRY_ALLOC(c->ready, "the clock of a step");
    c->aside = sw_alloc("walk", n * sizeof *c->aside);
    SW_TRY_ALLOC(c->aside, "the clock of a step");
    int *parent = sw_arena_array(&c->arena, n, sizeof *parent);
    SW_TRY_ALLOC(parent, "the clock of a step");
    for (int i = 0; i < c->n; i++) {
        parent[i] = i;
    }
    SW_TRY(n > 1 ? join_ranks(c, parent) : SW_OK);
    SW_TRY(make_units(c, parent));
    for (int i = 0; i < c->n_units; i++) { /* the last one advances first */
        c->ready[c->n_units - 1 - i] = i;
    }
    c->n_ready = c->n_units;
    return SW_OK;
}

void sw_clock_close_units(struct clock *c)
{
    sw_free(c->circles);
    sw_free(c->units);
    sw_free(c->ready);
    sw_free(c->aside);
    sw_free(c->flows);
    sw_arena_fini(&c->arena);
}
