// SPDX-License-Identifier: Apache-2.0
// Divides the items of a model (what comes before the blocks, each block, what comes after them)
// among the parts of a pipeline, in order. Two rules are DeepSpeed's; a third balances time.
#include <math.h>
#include <string.h>

#include "plan/pipe.h"

void sw_partition_uniform(int n_items, int parts, int *bounds)
{
    const int each = n_items / parts, more = n_items % parts;
    for (int i = 0; i <= parts; i++) {
        bounds[i] = i * each + (i < more ? i : more);
    }
}

/* ---- balanced, as DeepSpeed ---- */

/* The chosen cut of the first i items into j parts, at index i * (parts + 1) + j. */
struct cut {
    double largest, smallest; /* weights of its parts */
    int start;                /* first item of the last part */
};

/* The cut of the first i items into j parts. It extends the chosen cuts into j - 1 parts, of which
 * each has an item. sums: [i + 1] weights of prefixes */
static struct cut best_cut(const struct cut *cuts, const double *sums, int parts, int i, int j)
{
    struct cut best = {.largest = INFINITY};
    for (int k = j - 1; k < i; k++) {
        const struct cut *before = &cuts[k * (parts + 1) + j - 1];
        const double weight = sums[i] - sums[k];
        const struct cut cut = {fmax(before->largest, weight), fmin(before->smallest, weight), k};
        if ((j > 1 || k == 0) && cut.largest - cut.smallest <= best.largest - best.smallest) {
            best = cut;
        }
    }
    return best;
}

sw_status sw_partition_balanced(const double *weights, int n_items, int parts, int *bounds)
{
    if (n_items <= parts) {
        sw_partition_uniform(n_items, parts, bounds);
        return SW_OK;
    }
    const size_t n = (size_t)(n_items + 1) * (size_t)(parts + 1);
    double *sums = sw_alloc("plan", (size_t)(n_items + 1) * sizeof *sums);
    struct cut *cuts = sw_alloc("plan", n * sizeof *cuts);
    if (!sums || !cuts) {
        sw_free(sums);
        sw_free(cuts);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    sums[0] = 0;
    for (int i = 0; i < n_items; i++) {
        sums[i + 1] = sums[i] + weights[i];
    }
    cuts[0] = (struct cut){.smallest = INFINITY};
    for (int i = 1; i <= n_items; i++) {
        for (int j = 1; j <= parts && j <= i; j++) {
            cuts[i * (parts + 1) + j] = best_cut(cuts, sums, parts, i, j);
        }
    }
    bounds[parts] = n_items;
    for (int j = parts; j > 0; j--) {
        bounds[j - 1] = cuts[bounds[j] * (parts + 1) + j].start;
    }
    sw_free(sums);
    sw_free(cuts);
    return SW_OK;
}

/* ---- the least largest part ---- */

/* True if `parts` parts suffice, none of which has more weight than `most`. */
static bool is_enough(const int64_t *weights, int n_items, int parts, int64_t most)
{
    int64_t left = most;
    for (int i = 0; i < n_items; i++) {
        if (weights[i] > left) {
            parts--;
            left = most;
        }
        if (weights[i] > left) {
            return false;
        }
        left -= weights[i];
    }
    return parts > 0;
}

static int64_t least_largest(const int64_t *weights, int n_items, int parts, int64_t sum)
{
    int64_t low = 0, high = sum;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (is_enough(weights, n_items, parts, middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* The cut of a prefix into so many parts. */
struct even_cut {
    int64_t squares; /* sum of the squares of its parts; -1 = there is none */
    int start;       /* first item of the last part */
};

/* Chooses the cut of the first i items into j parts of weight `most` or less. shift: bits
 * that weights lose before they are squared, so that the sum does not overflow */
static struct even_cut most_even(const struct even_cut *cuts, const int64_t *sums, int parts, int i,
                                 int j, int64_t most, int shift)
{
    struct even_cut best = {.squares = -1};
    for (int k = i - 1; k >= j - 1 && sums[i] - sums[k] <= most; k--) {
        const int64_t before = cuts[k * (parts + 1) + j - 1].squares;
        const int64_t weight = (sums[i] - sums[k]) >> shift;
        if (before >= 0 && (best.squares < 0 || before + weight * weight <= best.squares)) {
            best = (struct even_cut){before + weight * weight, k};
        }
    }
    return best;
}

/* Finds the bounds. cuts: workspace; sums: [n_items + 1] weights of prefixes */
static void cut_evenly(const int64_t *sums, int n_items, int parts, int64_t most,
                       struct even_cut *cuts, int *bounds)
{
    enum { BITS = 30 };
    int shift = 0;
    while (sums[n_items] >> shift >> BITS) {
        shift++;
    }
    for (int i = 0; i <= n_items; i++) {
        cuts[i * (parts + 1)] = (struct even_cut){.squares = i == 0 ? 0 : -1};
        for (int j = 1; j <= parts; j++) {
            cuts[i * (parts + 1) + j] = most_even(cuts, sums, parts, i, j, most, shift);
        }
    }
    bounds[parts] = n_items;
    for (int j = parts; j > 0; j--) {
        bounds[j - 1] = cuts[bounds[j] * (parts + 1) + j].start;
    }
}

sw_status sw_partition_least(const int64_t *weights, int n_items, int parts, int *bounds)
{
    SW_ASSERT(n_items >= parts);
    const size_t n = (size_t)(n_items + 1) * (size_t)(parts + 1);
    int64_t *sums = sw_alloc("plan", (size_t)(n_items + 1) * sizeof *sums);
    struct even_cut *cuts = sw_alloc("plan", n * sizeof *cuts);
    const bool good = sums && cuts;
    if (good) {
        sums[0] = 0;
        for (int i = 0; i < n_items; i++) {
            sums[i + 1] = sums[i] + weights[i];
        }
        const int64_t most = least_largest(weights, n_items, parts, sums[n_items]);
        cut_evenly(sums, n_items, parts, most, cuts, bounds);
    }
    sw_free(sums);
    sw_free(cuts);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

/* ---- blocks ---- */

sw_status sw_blocks_add(struct sw_blocks *blocks, const struct sw_graph *g)
{
    for (int32_t i = 0; i < g->n_scopes; i++) {
        if (!g->scopes[i].is_block || sw_blocks_find(blocks, g->scopes[i].name) >= 0) {
            continue;
        }
        if (!sw_names_add(&blocks->numbers, 0, g->scopes[i].name, blocks->n)) {
            return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
        }
        blocks->n++;
    }
    return SW_OK;
}

int sw_blocks_find(const struct sw_blocks *blocks, const char *name)
{
    return sw_names_find(&blocks->numbers, 0, name);
}

void sw_blocks_close(struct sw_blocks *blocks)
{
    sw_names_close(&blocks->numbers);
    *blocks = (struct sw_blocks){.n = 0};
}

void sw_partition_to_blocks(int n_blocks, int parts, int *bounds)
{
    for (int i = 0; i <= parts; i++) {
        const int block = bounds[i] - 1;
        bounds[i] = block < 0 ? 0 : block > n_blocks ? n_blocks : block;
    }
}

sw_status sw_partition_check(const int64_t *bounds, int64_t n_bounds, int64_t n_blocks, int parts)
{
    if (n_bounds != parts + 1) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.partition: wanted the first block of each of the %d chunks and "
                       "the number of blocks, %d numbers; got %lld",
                       parts, parts + 1, (long long)n_bounds);
    }
    if (bounds[0] != 0 || bounds[parts] != n_blocks) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.partition: wanted bounds from 0 to the %lld blocks of the model; "
                       "got %lld to %lld",
                       (long long)n_blocks, (long long)bounds[0], (long long)bounds[parts]);
    }
    for (int i = 0; i < parts; i++) {
        const bool may_be_empty = i == 0 || i == parts - 1;
        if (bounds[i + 1] < bounds[i] + (may_be_empty ? 0 : 1)) {
            return SW_FAIL(SW_E_CONFIG,
                           "spillway.partition: wanted ascending bounds; chunk %d has blocks from "
                           "%lld to before %lld",
                           i, (long long)bounds[i], (long long)bounds[i + 1]);
        }
    }
    return SW_OK;
}
