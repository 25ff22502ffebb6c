// SPDX-License-Identifier: Apache-2.0
// Searches combinations of choices: starts for each value of the first family, then coordinate
// descent from the best of them. What a value means is its caller's; here it is a number. The tries
// depend on the verdicts alone, never on a clock.
#include <stdlib.h>
#include <string.h>

#include "search/private.h"

enum {
    MOST_TRIES = 2048,
    DESCENTS = 4 /* starts from which the search goes on */
};

struct look {
    const struct sw_choice_space *space;
    struct sw_choices *found;
    int64_t planned, most; /* work so far, and the most for now */
};

static bool is_same(const struct look *l, const struct sw_choice *a, const struct sw_choice *b)
{
    return memcmp(a->at, b->at, (size_t)l->space->n_families * sizeof a->at[0]) == 0;
}

static int find(const struct look *l, const struct sw_choice *choice)
{
    for (int i = 0; i < l->found->n; i++) {
        if (is_same(l, &l->found->tries[i].choice, choice)) {
            return i;
        }
    }
    return -1;
}

static bool is_done(struct look *l)
{
    l->found->is_cut = l->found->is_cut || l->found->n >= MOST_TRIES || l->planned > l->most;
    return l->found->is_cut;
}

/* Tries a combination once. *out: its number; -1 = it is not tried. */
static sw_status try_one(struct look *l, int family, struct sw_choice choice, int *out)
{
    *out = -1;
    if (!l->space->adapt(l->space->ctx, family, &choice)) {
        return SW_OK;
    }
    *out = find(l, &choice);
    if (*out >= 0 || is_done(l)) {
        return SW_OK;
    }
    struct sw_choice_try *t = &l->found->tries[l->found->n];
    *t = (struct sw_choice_try){.choice = choice};
    SW_TRY(l->space->judge(l->space->ctx, t));
    l->planned += t->n_instrs;
    *out = l->found->n++;
    return SW_OK;
}

static bool is_faster(const struct look *l, int a, int b)
{
    const struct sw_choice_try *x = &l->found->tries[a], *y = &l->found->tries[b];
    return x->result == SW_MESH_FITS && (y->result != SW_MESH_FITS || x->seconds < y->seconds);
}

static sw_status try_starts(struct look *l)
{
    for (int v = 0; v < l->space->n_values[0]; v++) {
        bool fits = false;
        for (int s = 0; s < l->space->n_starts && !fits; s++) {
            struct sw_choice choice = l->space->starts[s];
            int at;
            choice.at[0] = v;
            SW_TRY(try_one(l, 0, choice, &at));
            fits = at >= 0 && l->found->tries[at].result == SW_MESH_FITS;
        }
    }
    return SW_OK;
}

/* Goes to the best value of one family. *at: the try that has it */
static sw_status go_along(struct look *l, int family, int *at)
{
    const struct sw_choice from = l->found->tries[*at].choice;
    for (int v = 0; v < l->space->n_values[family]; v++) {
        struct sw_choice choice = from;
        int other;
        choice.at[family] = v;
        SW_TRY(try_one(l, family, choice, &other));
        *at = other >= 0 && is_faster(l, other, *at) ? other : *at;
    }
    return SW_OK;
}

static sw_status descend(struct look *l, int at)
{
    for (int before = -1; before != at && !is_done(l);) {
        before = at;
        for (int f = 1; f < l->space->n_families; f++) {
            SW_TRY(go_along(l, f, &at));
        }
    }
    return SW_OK;
}

/* The best of the first n tries that is not among those taken; -1 = none fits. */
static int next_best(const struct look *l, int n, const int *taken, int n_taken)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        bool is_taken = l->found->tries[i].result != SW_MESH_FITS;
        for (int k = 0; k < n_taken; k++) {
            is_taken |= taken[k] == i;
        }
        best = !is_taken && (best < 0 || is_faster(l, i, best)) ? i : best;
    }
    return best;
}

static sw_status search(struct look *l)
{
    int taken[DESCENTS];
    l->most = l->space->most_instrs / 2;
    SW_TRY(try_starts(l));
    l->most = l->space->most_instrs;
    l->found->has_all_starts = !l->found->is_cut;
    l->found->is_cut = false;
    const int n = l->found->n;
    for (int k = 0; k < DESCENTS; k++) {
        taken[k] = next_best(l, n, taken, k);
        if (taken[k] < 0) {
            break;
        }
        SW_TRY(descend(l, taken[k]));
    }
    return SW_OK;
}

static int compare_tries(const void *a, const void *b)
{
    const struct sw_choice_try *x = a, *y = b;
    if (x->result != y->result) {
        return x->result < y->result ? -1 : 1;
    }
    if (x->result == SW_MESH_FITS && x->seconds != y->seconds) {
        return x->seconds < y->seconds ? -1 : 1;
    }
    if (x->result == SW_MESH_MISSES && x->missing != y->missing) {
        return x->missing < y->missing ? -1 : 1;
    }
    for (int f = 0; f < SW_CHOICE_FAMILIES; f++) {
        if (x->choice.at[f] != y->choice.at[f]) {
            return x->choice.at[f] < y->choice.at[f] ? -1 : 1;
        }
    }
    return 0;
}

sw_status sw_search_choices(const struct sw_choice_space *space, struct sw_choices *out)
{
    struct look l = {.space = space, .found = out};
    *out = (struct sw_choices){0};
    out->tries = sw_alloc_zero("search", MOST_TRIES, sizeof *out->tries);
    SW_TRY_ALLOC(out->tries, "the choices of a plan");
    const sw_status st = search(&l);
    if (st < 0) {
        sw_free(out->tries);
        *out = (struct sw_choices){0};
        return st;
    }
    qsort(out->tries, (size_t)out->n, sizeof *out->tries, compare_tries);
    out->is_cut |= !out->has_all_starts;
    while (out->n_fit < out->n && out->tries[out->n_fit].result == SW_MESH_FITS) {
        out->n_fit++;
    }
    return SW_OK;
}

const struct sw_choice_try *sw_choices_with(const struct sw_choice_space *space,
                                            const struct sw_choices *choices, int family, int value)
{
    for (int i = 0; family == 0 && i < choices->n; i++) {
        if (choices->tries[i].choice.at[0] == value) {
            return &choices->tries[i];
        }
    }
    const struct look l = {.space = space, .found = (struct sw_choices *)(uintptr_t)choices};
    struct sw_choice wanted = choices->tries[0].choice;
    wanted.at[family] = value;
    const bool is_there = family > 0 && space->adapt(space->ctx, family, &wanted);
    const int at = is_there ? find(&l, &wanted) : -1;
    return at >= 0 ? &choices->tries[at] : NULL;
}
