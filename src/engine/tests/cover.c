// SPDX-License-Identifier: Apache-2.0
// A greedy covering array. Each row is the best of many drawn ones, so rows come in the order of
// the tuples that they cover; the last tenth of the tuples takes half of the rows.
#include "engine/tests/cover.h"

#include "base/base.h"

/* Marks the tuples that are covered. A pair is a triple whose last two members are equal. */
struct tuples {
    int strength, n_axes;
    const int *counts;
    int first[COVER_AXES]; /* number of the axis' first choice among the choices of all axes */
    int n_choices;         /* of all axes */
    bool *met;             /* [n_choices, n_choices, n_choices]; pairs: [n_choices, n_choices] */
};

static bool *find(const struct tuples *t, const struct cover_row *row, int a, int b, int d)
{
    const size_t n = (size_t)t->n_choices, i = (size_t)(t->first[a] + row->at[a]),
                 j = (size_t)(t->first[b] + row->at[b]);
    return t->strength == 2 ? &t->met[i * n + j]
                            : &t->met[(i * n + j) * n + (size_t)(t->first[d] + row->at[d])];
}

/* Counts the uncovered tuples of the row that contain axis x. mark: marks them as covered. */
static int new_tuples(const struct tuples *t, const struct cover_row *row, int x, bool mark)
{
    int n = 0;
    for (int a = 0; a < t->n_axes; a++) {
        for (int b = a + 1; b < t->n_axes && row->at[a] >= 0; b++) {
            const int end = t->strength == 2 ? b + 1 : t->n_axes;
            for (int d = t->strength == 2 ? b : b + 1; d < end; d++) {
                if ((a != x && b != x && d != x) || row->at[b] < 0 || row->at[d] < 0) {
                    continue;
                }
                bool *met = find(t, row, a, b, d);
                n += !*met;
                *met |= mark;
            }
        }
    }
    return n;
}

/* Fills the axes in an order drawn by `draw`, each with the choice that covers most. Returns the
 * number of new tuples. */
static int draw_row(const struct tuples *t, uint64_t draw, struct cover_row *row)
{
    int order[COVER_AXES], n = 0;
    for (int a = 0; a < t->n_axes; a++) {
        const int at = (int)(sw_philox_u64(draw, 1, (uint64_t)a) % (uint64_t)(a + 1));
        order[a] = order[at];
        order[at] = a;
        row->at[a] = -1;
    }
    for (int i = 0; i < t->n_axes; i++) {
        const int a = order[i], count = t->counts[a];
        const int first = (int)(sw_philox_u64(draw, 2, (uint64_t)a) % (uint64_t)count);
        int best = -1, best_new = -1;
        for (int j = 0; j < count; j++) {
            row->at[a] = (int8_t)((first + j) % count);
            const int n_new = new_tuples(t, row, a, false);
            if (n_new > best_new) {
                best = row->at[a];
                best_new = n_new;
            }
        }
        row->at[a] = (int8_t)best;
        n += best_new;
    }
    return n;
}

static int n_tuples(const struct tuples *t)
{
    int n = 0;
    for (int a = 0; a < t->n_axes; a++) {
        for (int b = a + 1; b < t->n_axes; b++) {
            const int pairs = t->counts[a] * t->counts[b];
            n += t->strength == 2 ? pairs : 0;
            for (int d = b + 1; t->strength == 3 && d < t->n_axes; d++) {
                n += pairs * t->counts[d];
            }
        }
    }
    return n;
}

int cover(int strength, int n_axes, const int *counts, int left_out, cover_fn fn, void *ctx)
{
    enum { DRAWS = 50 };
    struct tuples t = {.strength = strength, .n_axes = n_axes, .counts = counts};
    SW_ASSERT((strength == 2 || strength == 3) && n_axes >= strength && n_axes <= COVER_AXES);
    for (int a = 0; a < n_axes; a++) {
        t.first[a] = t.n_choices;
        t.n_choices += counts[a];
    }
    const size_t n = (size_t)t.n_choices;
    t.met = sw_alloc_zero("test", strength == 2 ? n * n : n * n * n, sizeof *t.met);
    SW_ASSERT(t.met);
    int left = n_tuples(&t), n_rows = 0;
    const int enough = left * left_out / 100;
    for (uint64_t draw = 0; left > enough; n_rows++) {
        struct cover_row best = {0}, row = {0};
        int best_new = 0;
        for (int i = 0; i < DRAWS || best_new == 0; i++) {
            const int n_new = draw_row(&t, draw++, &row);
            if (n_new > best_new) {
                best = row;
                best_new = n_new;
            }
        }
        for (int a = 0; a < n_axes; a++) {
            left -= new_tuples(&t, &best, a, true);
        }
        fn(ctx, &best);
    }
    sw_free(t.met);
    return n_rows;
}
