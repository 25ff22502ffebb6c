// SPDX-License-Identifier: Apache-2.0
// Chooses the sizes of a mesh that is "auto" (search/mesh.c). Rank 0 plans a few stages of every
// mesh and walks each of them alone, for the least time of a step. It plans all stages of those
// meshes that may be the fastest, and lets the clock walk them together. It tells the others its
// choice, so all ranks agree.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/private.h"

struct judging {
    const struct sw_engine *engine;
    struct sw_machine_rates rates;
    const char *reduce; /* an edit; NULL = as configured */
};

static void write_edit(const struct sw_mesh *mesh, char *out, size_t cap)
{
    snprintf(out, cap, "spillway.mesh={\"pipe\":%d,\"tensor\":%d,\"context\":%d}",
             sw_mesh_size(mesh, 1U << SW_AXIS_PIPE), sw_mesh_size(mesh, 1U << SW_AXIS_TENSOR),
             sw_mesh_size(mesh, 1U << SW_AXIS_CONTEXT));
}

/* Predicts the step of a lineup. */
static sw_status predict(const struct judging *j, const struct sw_lineup *lineup,
                         struct sw_mesh_try *t)
{
    const size_t n = (size_t)lineup->n;
    bool unknown[SW_LOAD_COUNT];
    struct sw_speeds speeds;
    struct sw_clock_rank *stages = sw_alloc_zero("engine", n, sizeof *stages);
    const struct sw_speeds **each = sw_alloc_zero("engine", n, sizeof *each);
    sw_status st =
        stages && each ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the clock of a mesh");
    memset(&speeds, 0, sizeof speeds);
    speeds.given = j->rates;
    for (int s = 0; s < lineup->n && st >= 0; s++) {
        const struct sw_engine *e = lineup->stages[s].engine;
        stages[s].plan = e->plan;
        each[s] = &speeds;
        t->n_instrs += sw_plan_count_ops(e->plan);
        t->samples = (double)e->sizes.micro_batches * (double)e->sizes.batch;
    }
    st = st < 0 ? st : sw_speeds_stages(stages, each, lineup->n, unknown, &t->seconds);
    sw_free(stages);
    sw_free(each);
    return st;
}

/* Each stage adds at least this share of a micro-batch's forward and backward to the time in which
 * the pipeline fills and drains. Zero-bubble schedules can fill that time with gradients of
 * weights. */
static double fill_of(const struct sw_config *c)
{
    return c->spillway.schedule == SW_STEP_ZERO_BUBBLE
               ? 0
               : 1.0 / (double)sw_max_i64(c->parallel.chunks, 1);
}

/* A lower bound of the step's time, from sketched stages. Each stage is assumed never to wait.
 * Before its first forward and after its last backward, the stages before it compute. */
static sw_status bound(const struct judging *j, const struct sw_lineup *lineup,
                       struct sw_mesh_try *t)
{
    const struct sw_engine *first = lineup->stages[0].engine;
    const int n = sw_mesh_size(&first->mesh, 1U << SW_AXIS_PIPE);
    double *alone = sw_alloc_zero("engine", 2 * (size_t)lineup->n, sizeof *alone);
    double *fill = alone + lineup->n, filled = 0;
    sw_status st = SW_OK;
    SW_TRY_ALLOC(alone, "the clock of a mesh");
    for (int i = 0; i < lineup->n && st >= 0; i++) {
        const struct sw_engine *e = lineup->stages[i].engine;
        st = sw_speeds_alone(e->plan, &j->rates, &alone[i], &fill[i]);
        t->n_instrs += sw_plan_count_ops(e->plan);
    }
    t->samples = (double)first->sizes.micro_batches * (double)first->sizes.batch;
    t->is_bound = true;
    for (int s = 0; s < n && st >= 0; s++) {
        t->seconds = fmax(t->seconds, filled + alone[lineup->like[s]]);
        filled += fill[lineup->like[s]] * fill_of(first->config);
    }
    sw_free(alone);
    return st;
}

/* Keeps the first sentence of the message. */
static void take_refusal(struct sw_mesh_try *t)
{
    const char *message = sw_error_message();
    t->result = SW_MESH_REFUSED;
    snprintf(t->refused, sizeof t->refused, "%.*s", (int)strcspn(message, ";\n"), message);
}

typedef sw_status (*line_up_fn)(const struct sw_engine_options *options, int ranks,
                                struct sw_plan_refusal *refusal, struct sw_lineup *out);

static sw_status plan_mesh(const struct judging *j, line_up_fn line_up, struct sw_mesh_try *t)
{
    struct sw_engine_options o = j->engine->options;
    struct sw_plan_refusal refusal = {.missing = 0};
    struct sw_lineup lineup;
    char edit[128];
    const char *more[] = {edit, j->reduce}, **sets = NULL;
    const int n_more = j->reduce ? 2 : 1;
    write_edit(&t->mesh, edit, sizeof edit);
    SW_TRY(sw_engine_join_sets(&o.config, more, n_more, &sets));
    o.config.sets = sets;
    o.config.n_sets += n_more;
    sw_status st = line_up(&o, j->engine->world.size, &refusal, &lineup);
    sw_free(sets);
    if (st >= 0) {
        st = lineup.like ? bound(j, &lineup, t) : predict(j, &lineup, t);
        sw_lineup_close(&lineup);
    } else if (st == SW_E_NOMEM && refusal.missing > 0) {
        t->result = SW_MESH_MISSES;
        t->missing = refusal.missing;
        t->tier = refusal.tier;
        t->stage = lineup.n;
        t->n_instrs += refusal.n_instrs;
        st = SW_OK;
    } else if (st == SW_E_CONFIG || st == SW_E_UNSUP) {
        take_refusal(t);
        st = SW_OK;
    }
    return st;
}

static sw_status judge(void *ctx, struct sw_mesh_try *t)
{
    return plan_mesh(ctx, sw_lineup_sketch, t);
}

static sw_status measure(void *ctx, struct sw_mesh_try *t)
{
    return plan_mesh(ctx, sw_lineup_try, t);
}

/* The ranks of a host, if the rates do not say: those of the host with the fewest neighbours. */
static int node_ranks_of(const struct sw_engine *e)
{
    int least = INT_MAX;
    for (int first = 0, end; e->machine.hosts && first < e->world.size; first = end) {
        for (end = first + 1;
             end < e->world.size && strcmp(sw_engine_host(e, end), sw_engine_host(e, first)) == 0;
             end++) {
        }
        least = end - first < least ? end - first : least;
    }
    return e->machine.hosts ? least : 0;
}

/* Finds the time with "reduce": "boundary", which is only named. */
static sw_status try_boundary(struct judging *j, struct sw_mesh_choice *choice)
{
    const struct sw_config *c = j->engine->config;
    struct sw_mesh_try t = {.mesh = choice->tries[0].mesh};
    if (c->spillway.reduce == SW_REDUCE_BOUNDARY || c->zero.stage >= 2 ||
        sw_mesh_size(&t.mesh, 1U << SW_AXIS_DATA) == 1) {
        return SW_OK;
    }
    j->reduce = "spillway.reduce=boundary";
    SW_TRY(measure(j, &t));
    choice->boundary = t.result == SW_MESH_FITS ? t.seconds : 0;
    return SW_OK;
}

static sw_status refuse_all(const struct sw_mesh_choice *choice)
{
    char words[SW_MESH_WORDS];
    struct sw_str why = {0};
    const struct sw_mesh_try *best = &choice->tries[0];
    sw_mesh_try_print(best, &why);
    const sw_status st = SW_FAIL(
        best->result == SW_MESH_MISSES ? SW_E_NOMEM : SW_E_CONFIG,
        "spillway.mesh \"auto\": none of the %d meshes of %d ranks is possible; the nearest one, "
        "%s, %s",
        choice->n, choice->ranks, sw_mesh_words(&best->mesh, words), sw_str_text(&why));
    sw_str_fini(&why);
    return st;
}

static sw_status search(struct sw_engine *e)
{
    struct judging j = {.engine = e};
    struct sw_mesh_search s = {
        .ranks = e->world.size, .ctx = &j, .judge = judge, .measure = measure};
    sw_builtin_rates(&j.rates);
    SW_TRY(sw_engine_take_rates(e->options.plan.rates, e->options.plan.n_rates, &j.rates));
    j.rates.node_ranks = j.rates.node_ranks > 0 ? j.rates.node_ranks : node_ranks_of(e);
    SW_TRY(sw_engine_keep_cuts(e, &s.tensor, &s.context));
    SW_TRY(sw_search_mesh(&s, &e->search.mesh));
    const char *device = e->options.run.device ? e->options.run.device : e->config->spillway.device;
    e->search.mesh.other_rates = strncmp(device, "sim:", 4) == 0 && e->options.plan.n_rates == 0;
    return e->search.mesh.found ? try_boundary(&j, &e->search.mesh) : refuse_all(&e->search.mesh);
}

/* The choice of rank 0, as sent to the others. */
struct chosen {
    int64_t status;
    struct sw_mesh mesh;
};

sw_status sw_engine_choose_mesh(struct sw_engine *e, char *edit, size_t cap)
{
    struct chosen chosen = {.status = SW_OK};
    const bool alone = e->world.size == 1 || e->options.plan.only;
    if (e->world.size > 1 && !sw_config_fixes_batch(e->config)) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.mesh \"auto\": the batch of a step follows from the ranks along "
                       "data; give train_batch_size or spillway.micro_batches, so that all meshes "
                       "train the same");
    }
    SW_TRY(sw_engine_find_hosts(e));
    if (e->world.size > 1 && (alone || e->world.rank == 0)) {
        chosen.status = search(e);
        chosen.mesh = e->search.mesh.found ? e->search.mesh.tries[0].mesh : chosen.mesh;
    }
    const sw_status mine = (sw_status)chosen.status;
    if (!alone) {
        SW_TRY(sw_comm_broadcast(e->options.run.comm, 0, &chosen, sizeof chosen,
                                 "the choice of a mesh"));
        if (chosen.status < 0 && e->world.rank != 0) {
            return SW_FAIL(SW_E_PEER, "rank 0 finds no mesh for spillway.mesh \"auto\"");
        }
    }
    SW_TRY(mine);
    write_edit(&chosen.mesh, edit, cap);
    return SW_OK;
}
