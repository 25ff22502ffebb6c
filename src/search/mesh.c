// SPDX-License-Identifier: Apache-2.0
// Chooses the sizes of a mesh that is "auto": the fastest one that fits. Meshes that cut sums
// within a micro-batch (tensor, context) change bits, so they are tried only if no other fits. The
// number of tries depends on the work of planning, never on a clock.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "search/private.h"

enum {
    MOST_OF_FITTING = 8 * MOST_INSTRS, /* stop there once a mesh fits */
    MOST_OF_ALL = 64 * MOST_INSTRS
};

/* ---- names and the order of tries ---- */

const char *sw_mesh_words(const struct sw_mesh *mesh, char buf[SW_MESH_WORDS])
{
    size_t len = 0;
    for (unsigned a = 0; a < SW_AXIS_COUNT; a++) {
        const int n = sw_mesh_size(mesh, 1U << a);
        if (n > 1 && len < SW_MESH_WORDS) {
            len += (size_t)snprintf(buf + len, SW_MESH_WORDS - len, "%s%s %d", len > 0 ? " x " : "",
                                    sw_axis_name((enum sw_axis)a), n);
        }
    }
    if (len == 0) {
        snprintf(buf, SW_MESH_WORDS, "data 1");
    }
    return buf;
}

static int cut_of(const struct sw_mesh *mesh)
{
    return sw_mesh_size(mesh, 1U << SW_AXIS_TENSOR | 1U << SW_AXIS_CONTEXT);
}

/* Seconds for a sample, as the micro-batch may differ. */
static double pace_of(const struct sw_mesh_try *t)
{
    return t->samples > 0 ? t->seconds / t->samples : t->seconds;
}

/* The better one first: those that fit by their time, then those that lack memory by how much, then
 * those that are refused. */
static int compare_tries(const void *a, const void *b)
{
    const struct sw_mesh_try *x = a, *y = b;
    const double p = pace_of(x), q = pace_of(y);
    char names[2][SW_MESH_WORDS];
    if (x->result != y->result) {
        return x->result < y->result ? -1 : 1;
    }
    if (x->result == SW_MESH_FITS && p != q) {
        return p < q ? -1 : 1;
    }
    if (x->result == SW_MESH_MISSES && x->missing != y->missing) {
        return x->missing < y->missing ? -1 : 1;
    }
    return strcmp(sw_mesh_words(&x->mesh, names[0]), sw_mesh_words(&y->mesh, names[1]));
}

/* Meshes in the order of tries: those that cut least first, then by the number of stages. */
static int compare_cuts(const void *a, const void *b)
{
    const struct sw_mesh *x = &((const struct sw_mesh_try *)a)->mesh;
    const struct sw_mesh *y = &((const struct sw_mesh_try *)b)->mesh;
    return cut_of(x) != cut_of(y) ? cut_of(x) - cut_of(y)
           : x->size[SW_AXIS_PIPE] != y->size[SW_AXIS_PIPE]
               ? x->size[SW_AXIS_PIPE] - y->size[SW_AXIS_PIPE]
               : x->size[SW_AXIS_CONTEXT] - y->size[SW_AXIS_CONTEXT];
}

/* Lists all meshes of the ranks. tries: NULL, or room for all of them. Returns their number. */
static int list_meshes(const struct sw_mesh_search *s, struct sw_mesh_try *tries)
{
    int n = 0;
    for (int pipe = 1; pipe <= s->ranks; pipe++) {
        for (int context = 1; s->ranks % pipe == 0 && context <= s->ranks / pipe; context++) {
            const int rest = s->ranks / pipe / context;
            const bool divides = s->ranks / pipe % context == 0;
            for (int tensor = 1; divides && tensor <= rest; tensor++) {
                const bool is_kept = (s->tensor == 0 || tensor == s->tensor) &&
                                     (s->context == 0 || context == s->context);
                if (rest % tensor != 0 || !is_kept) {
                    continue;
                }
                if (tries) {
                    tries[n] = (struct sw_mesh_try){.mesh.size = {[SW_AXIS_PIPE] = pipe,
                                                                  [SW_AXIS_DATA] = rest / tensor,
                                                                  [SW_AXIS_CONTEXT] = context,
                                                                  [SW_AXIS_TENSOR] = tensor}};
                }
                n++;
            }
        }
    }
    return n;
}

/* ---- the search ---- */

/* The one that is best as far as known; NULL = none fits. */
static struct sw_mesh_try *find_best(struct sw_mesh_try *tries, int n)
{
    struct sw_mesh_try *best = NULL;
    for (int i = 0; i < n; i++) {
        const bool fits = tries[i].result == SW_MESH_FITS;
        best = fits && (!best || compare_tries(&tries[i], best) < 0) ? &tries[i] : best;
    }
    return best;
}

/* Replaces bounds by times until the best of n tries has a time. Others have bounds that are no
 * better. *out_fits: there is one */
static sw_status settle(const struct sw_mesh_search *s, struct sw_mesh_try *tries, int n,
                        bool *out_fits)
{
    struct sw_mesh_try *best = find_best(tries, n);
    while (best && best->is_bound) {
        best->is_bound = false;
        SW_TRY(s->measure(s->ctx, best));
        best = find_best(tries, n);
    }
    *out_fits = best != NULL;
    return SW_OK;
}

/* Tries meshes until the work of planning is done, or others would cut sums needlessly. *n_tried:
 * out */
static sw_status try_meshes(const struct sw_mesh_search *s, struct sw_mesh_choice *choice, int n,
                            int *n_tried)
{
    int64_t planned = 0;
    bool fits = false, fits_uncut = false;
    int i = 0;
    for (; i < n; i++) {
        struct sw_mesh_try *t = &choice->tries[i];
        const bool cuts = cut_of(&t->mesh) > 1;
        if (fits_uncut && cuts) {
            SW_TRY(settle(s, choice->tries, i, &fits_uncut));
        }
        if (fits_uncut && cuts) {
            choice->spared = n - i;
            break;
        }
        if (planned > (fits ? MOST_OF_FITTING : MOST_OF_ALL)) {
            choice->untried = n - i;
            break;
        }
        SW_TRY(s->judge(s->ctx, t));
        fits = fits || t->result == SW_MESH_FITS;
        fits_uncut = fits_uncut || (t->result == SW_MESH_FITS && !cuts);
        planned += t->n_instrs;
    }
    *n_tried = i;
    return settle(s, choice->tries, i, &fits);
}

sw_status sw_search_mesh(const struct sw_mesh_search *s, struct sw_mesh_choice *out)
{
    const int n = list_meshes(s, NULL);
    *out = (struct sw_mesh_choice){.ranks = s->ranks, .is_kept = s->tensor > 0};
    out->tries = sw_alloc_zero("search", (size_t)n + 1, sizeof *out->tries);
    SW_TRY_ALLOC(out->tries, "the meshes");
    list_meshes(s, out->tries);
    qsort(out->tries, (size_t)n, sizeof *out->tries, compare_cuts);
    const sw_status st = try_meshes(s, out, n, &out->n);
    if (st < 0) {
        sw_mesh_choice_fini(out);
        return st;
    }
    qsort(out->tries, (size_t)out->n, sizeof *out->tries, compare_tries);
    out->found = out->n > 0 && out->tries[0].result == SW_MESH_FITS;
    out->cuts = out->found && cut_of(&out->tries[0].mesh) > 1;
    return SW_OK;
}

void sw_mesh_choice_fini(struct sw_mesh_choice *choice)
{
    sw_free(choice->tries);
    *choice = (struct sw_mesh_choice){0};
}

/* ---- why ---- */

void sw_mesh_try_print(const struct sw_mesh_try *t, struct sw_str *out)
{
    char bytes[32];
    if (t->result == SW_MESH_REFUSED) {
        sw_str_printf(out, "is refused: %s", t->refused);
        return;
    }
    sw_str_printf(out, "lacks %zu bytes (%s) of %s memory", t->missing,
                  sw_format_bytes(bytes, sizeof bytes, (double)t->missing), sw_tier_name(t->tier));
    if (sw_mesh_size(&t->mesh, 1U << SW_AXIS_PIPE) > 1) {
        sw_str_printf(out, " on stage %d", t->stage);
    }
}

static void print_line(const struct sw_mesh_choice *c, int i, struct sw_str *out)
{
    const struct sw_mesh_try *t = &c->tries[i];
    char words[SW_MESH_WORDS];
    sw_str_printf(out, "  %-36s ", sw_mesh_words(&t->mesh, words));
    if (t->result != SW_MESH_FITS) {
        sw_mesh_try_print(t, out);
    } else if (i == 0) {
        sw_str_printf(out, "%.6g s a step, taken", t->seconds);
    } else {
        sw_str_printf(out, "%s%.6g s a step, %.1f%% slower", t->is_bound ? "at least " : "",
                      t->seconds, 100 * (pace_of(t) / pace_of(&c->tries[0]) - 1));
    }
    sw_str_putc(out, '\n');
}

void sw_mesh_choice_print(const struct sw_mesh_choice *c, struct sw_str *out)
{
    enum { MOST_LINES = 20 };
    sw_str_printf(out, "spillway.mesh \"auto\": %d of the meshes of %d ranks, the best first\n",
                  c->n, c->ranks);
    for (int i = 0; i < c->n && i < MOST_LINES; i++) {
        print_line(c, i, out);
    }
    if (c->n > MOST_LINES) {
        sw_str_printf(out, "  and %d others, worse than these\n", c->n - MOST_LINES);
    }
    if (c->is_kept) {
        sw_str_puts(out, "  tensor and context are those of the checkpoint, as they cut sums\n");
    } else if (c->cuts) {
        sw_str_puts(out,
                    "  no mesh of pipe and data fits, so this one cuts sums (tensor, context): "
                    "other sizes would train to other bits\n");
    } else if (c->spared > 0) {
        sw_str_printf(out,
                      "  %d more would cut sums (tensor, context), and train to other bits: they "
                      "are not tried, as others fit\n",
                      c->spared);
    }
    if (c->other_rates) {
        sw_str_puts(out, "  predicted at --rates or built-in rates, not at those of the cluster\n");
    }
    if (c->untried > 0) {
        sw_str_printf(out, "  %d more are not tried, as planning them takes long\n", c->untried);
    }
    if (c->found && c->boundary > 0 && c->boundary < c->tries[0].seconds) {
        sw_str_printf(
            out,
            "  \"reduce\": \"boundary\" would take %.6g s a step; it adds in an order that "
            "depends on the ranks, so it is not chosen\n",
            c->boundary);
    }
}
