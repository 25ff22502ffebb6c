// SPDX-License-Identifier: Apache-2.0
// Plans the first rank of each stage of a pipeline. The other ranks of a stage hold and send as
// much, so these stand for all ranks of a mesh.
#include <stdio.h>

#include "engine/private.h"

sw_status sw_engine_join_sets(const struct sw_engine_config *config, const char *const *more,
                              int n_more, const char ***out)
{
    const int n = config->n_sets;
    const char **sets = sw_alloc("engine", ((size_t)n + (size_t)n_more + 1) * sizeof *sets);
    SW_TRY_ALLOC(sets, "the configuration");
    for (int i = 0; i < n + n_more; i++) {
        sets[i] = i < n ? config->sets[i] : more[i - n];
    }
    *out = sets;
    return SW_OK;
}

/* Opens a rank for its plan. The communicator of the rank exchanges nothing. */
static sw_status open_rank(const struct sw_engine_options *options, int rank, int ranks,
                           struct sw_plan_refusal *refusal, struct sw_lined_rank *out)
{
    struct sw_engine_options o = *options;
    const struct sw_transport none = {.rank = rank, .size = ranks};
    o.plan.only = true;
    SW_TRY(sw_comm_open(&none, &o.run.comm));
    const sw_status st = sw_engine_try(&o, refusal, NULL, &out->engine);
    if (st < 0) {
        sw_comm_close(o.run.comm, true);
        return st;
    }
    out->comm = o.run.comm;
    out->rank = rank;
    return SW_OK;
}

/* ---- which stages ---- */

/* The arguments of a lineup. */
struct wanted {
    const struct sw_engine_options *options;
    int ranks;
    struct sw_plan_refusal *refusal;
    bool some; /* a few stages stand for the others */
};

/* Blocks of one chunk of a stage. The first stage knows the whole partition. */
static int count_blocks(const struct sw_engine *e, int stages, int stage, int chunk)
{
    const int *first = &e->stage_blocks[chunk * stages + stage];
    return first[1] - first[0];
}

static bool are_alike(const struct sw_engine *e, int stages, int a, int b)
{
    for (int c = 0; c < e->config->parallel.chunks; c++) {
        if (count_blocks(e, stages, a, c) != count_blocks(e, stages, b, c)) {
            return false;
        }
    }
    return true;
}

/* Finds an earlier stage that stands for this one; -1 = none does. The first and the last stage
 * have embedding and head. */
static int find_alike(const struct sw_engine *first, int stages, int stage, const int *like)
{
    for (int s = 1; s < stage && stage < stages - 1; s++) {
        if (are_alike(first, stages, s, stage)) {
            return like[s];
        }
    }
    return -1;
}

/* Opens the stages after the first one, which is open. On failure, out->n is the stage. */
static sw_status open_others(const struct wanted *w, const struct sw_lined_rank *first,
                             struct sw_lineup *out)
{
    enum { FEW = 3 };
    const int n = sw_mesh_size(&first->engine->mesh, 1U << SW_AXIS_PIPE);
    const bool some = w->some && n > FEW;
    sw_status st = SW_OK;
    int failed = 0;
    out->stages = sw_alloc_zero("engine", (size_t)n, sizeof *out->stages);
    out->like = some ? sw_alloc_zero("engine", (size_t)n, sizeof *out->like) : NULL;
    if (!out->stages || (some && !out->like)) {
        sw_close(first->engine);
        sw_comm_close(first->comm, true);
        sw_lineup_close(out);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for plans");
    }
    out->stages[out->n++] = *first;
    for (int s = 1; s < n && st >= 0; s++) { /* the pipe axis varies slowest */
        const int like = some ? find_alike(first->engine, n, s, out->like) : -1;
        if (like < 0) {
            st = open_rank(w->options, s * (w->ranks / n), w->ranks, w->refusal,
                           &out->stages[out->n]);
            failed = s;
            out->n += st >= 0;
        }
        if (some) {
            out->like[s] = like < 0 ? out->n - 1 : like;
        }
    }
    if (st < 0) {
        /* one that does not fit names its stage itself */
        st = w->refusal || st == SW_E_NOMEM ? st : sw_fail_prefix(st, "stage %d of %d", failed, n);
        sw_lineup_close(out);
        out->n = failed;
    }
    return st;
}

static sw_status open_all(const struct wanted *w, struct sw_lineup *out)
{
    struct sw_lined_rank first = {0};
    *out = (struct sw_lineup){0};
    SW_TRY(open_rank(w->options, 0, w->ranks, w->refusal, &first));
    return open_others(w, &first, out);
}

/* ---- keys that are "auto" ---- */

static int64_t recomputed_by(const struct sw_engine *e)
{
    const struct sw_recompute *r = &e->config->spillway.recompute;
    return r->every == 0 ? 0 : r->blocks > 0 ? r->blocks : INT64_MAX;
}

/* The stage with the smallest micro-batch, and of those the one that recomputes most. *differ: the
 * stages have chosen differently. */
static const struct sw_engine *find_tightest(const struct sw_lineup *lineup, bool *differ)
{
    const struct sw_engine *least = lineup->stages[0].engine;
    *differ = false;
    for (int s = 1; s < lineup->n; s++) {
        const struct sw_engine *e = lineup->stages[s].engine;
        const bool same = e->sizes.batch == least->sizes.batch;
        *differ = *differ || !same || recomputed_by(e) != recomputed_by(least) ||
                  e->config->spillway.recompute.every != least->config->spillway.recompute.every;
        if (e->sizes.batch < least->sizes.batch ||
            (same && recomputed_by(e) > recomputed_by(least))) {
            least = e;
        }
    }
    return least;
}

/* Opens all stages with this micro-batch and recomputation. */
static sw_status open_with(const struct wanted *w, int64_t batch, struct sw_recompute r,
                           struct sw_lineup *out)
{
    enum { EDITS = 4, EDIT = 80 };
    char edits[EDITS][EDIT];
    const char *more[EDITS] = {edits[0], edits[1], edits[2], edits[3]}, **sets = NULL;
    const int n = r.blocks > 0 ? EDITS : EDITS - 1;
    struct sw_engine_options o = *w->options;
    struct wanted edited = *w;
    edited.options = &o;
    snprintf(edits[0], EDIT, "train_micro_batch_size_per_gpu=%lld", (long long)batch);
    snprintf(edits[1], EDIT, "spillway.micro_batch=null");
    snprintf(edits[2], EDIT, r.every > 0 ? "spillway.recompute=%lld" : "spillway.recompute=none",
             (long long)r.every);
    snprintf(edits[3], EDIT, "spillway.recompute_blocks=%lld", (long long)r.blocks);
    SW_TRY(sw_engine_join_sets(&w->options->config, more, n, &sets));
    o.config.sets = sets;
    o.config.n_sets += n;
    const sw_status st = open_all(&edited, out);
    sw_free(sets);
    return st;
}

/* Opens all stages again with the choices of one of them, as ranks that train agree on one. The
 * first blocks of the model are not on all stages: if that is too little for another one, all
 * blocks are recomputed. */
static sw_status open_alike(const struct wanted *w, struct sw_lineup *out)
{
    const struct sw_recompute all = {.every = 1};
    bool differ;
    const struct sw_engine *e = find_tightest(out, &differ);
    const struct sw_recompute r = e->config->spillway.recompute;
    const int64_t batch = e->sizes.batch;
    const bool chosen =
        sw_config_origin_of(e->config, "spillway.recompute") == SW_CONFIG_PLANNED && r.blocks > 0;
    if (!differ) {
        return SW_OK;
    }
    sw_lineup_close(out);
    const sw_status st = open_with(w, batch, r, out);
    return st == SW_E_NOMEM && chosen ? open_with(w, batch, all, out) : st;
}

sw_status sw_lineup_try(const struct sw_engine_options *options, int ranks,
                        struct sw_plan_refusal *refusal, struct sw_lineup *out)
{
    const struct wanted w = {options, ranks, refusal, false};
    SW_TRY(open_all(&w, out));
    return open_alike(&w, out);
}

sw_status sw_lineup_sketch(const struct sw_engine_options *options, int ranks,
                           struct sw_plan_refusal *refusal, struct sw_lineup *out)
{
    const struct wanted w = {options, ranks, refusal, true};
    SW_TRY(open_all(&w, out));
    return open_alike(&w, out);
}

sw_status sw_lineup_open(const struct sw_engine_options *options, int ranks, struct sw_lineup *out)
{
    return sw_lineup_try(options, ranks, NULL, out);
}

void sw_lineup_close(struct sw_lineup *lineup)
{
    for (int s = 0; s < lineup->n; s++) {
        sw_close(lineup->stages[s].engine);
        sw_comm_close(lineup->stages[s].comm, false);
    }
    sw_free(lineup->stages);
    sw_free(lineup->like);
    *lineup = (struct sw_lineup){0};
}
