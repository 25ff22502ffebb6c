// SPDX-License-Identifier: Apache-2.0
// The loss of a micro-batch is a sum of terms; each is a weight times the mean over the term's own
// targets. A program returns the sum and the count of each term, so that losses of micro-batches
// and ranks can be combined term by term.
#include <math.h>
#include <string.h>

#include "engine/private.h"

/* "loss.sum", "loss.count"; for later terms "loss.1.sum". */
static const char *name_of(int term, bool count, char *buf, size_t cap)
{
    const char *what = count ? "count" : "sum";
    if (term == 0) {
        snprintf(buf, cap, "loss.%s", what);
    } else {
        snprintf(buf, cap, "loss.%d.%s", term, what);
    }
    return buf;
}

void sw_engine_expect_totals(struct engine_loss *l, bool preferences, bool experts)
{
    l->n_totals = (preferences ? (int)SW_PREFERENCE_TOTALS / 2 : 0) + (experts ? (int)SW_LOADS : 0);
    l->has_loads = experts;
}

sw_status sw_engine_open_losses(struct engine_loss *l, int64_t rounds, int ranks)
{
    const size_t n = (size_t)(SW_ENGINE_MAX_SUMS * rounds);
    l->local = sw_alloc_zero("engine", n, sizeof *l->local);
    l->all = sw_alloc_zero("engine", n * (size_t)ranks, sizeof *l->all);
    l->outputs = sw_alloc("engine", n * sizeof *l->outputs);
    l->totals = sw_alloc_zero("engine", (size_t)rounds, sizeof *l->totals);
    SW_TRY_ALLOC(l->local && l->all && l->outputs && l->totals ? l : NULL, "the losses of a step");
    return SW_OK;
}

void sw_engine_close_losses(struct engine_loss *l)
{
    sw_free(l->local);
    sw_free(l->outputs);
    sw_free(l->totals);
    sw_free(l->all);
}

/* ---- graphs ---- */

sw_status sw_engine_learn_loss(struct engine_loss *l, sw_graph *g, sw_value loss, bool backward)
{
    struct sw_loss_term terms[SW_TASK_MAX_TERMS];
    char name[32];
    const int n = sw_graph_loss_terms(g, loss, terms, SW_TASK_MAX_TERMS);
    if (n == 0) {
        return SW_FAIL(SW_E_ARG,
                       "the loss must come from sw_cross_entropy, sw_linear_cross_entropy or "
                       "another mean, or be a sum of up to %d of them, scaled and added",
                       SW_TASK_MAX_TERMS);
    }
    if (l->by_tokens && (n > 1 || terms[0].weight != 1)) {
        return SW_FAIL(
            SW_E_CONFIG,
            "spillway.loss \"tokens\": this loss has %d term%s, scaled, each the mean over its "
            "own targets; use \"microbatch\"",
            n, n > 1 ? "s" : "");
    }
    for (int i = 0; i < n; i++) {
        sw_output(g, name_of(i, false, name, sizeof name), terms[i].sum);
        sw_output(g, name_of(i, true, name, sizeof name), terms[i].count);
        l->weights[i] = terms[i].weight;
        l->of[i] = terms[i].of;
    }
    l->n_terms = n;
    l->row_weight = backward ? terms[0].row_weight : l->row_weight;
    return SW_OK;
}

static void find_outputs(const struct engine_loss *l, const struct sw_program *program, int micro,
                         const struct sw_port **out, const struct sw_port **totals)
{
    char name[32];
    totals[0] = sw_program_output(program, "totals", micro);
    totals[1] = sw_program_output(program, "expert_loads", micro);
    for (int i = 0; i < 2 * l->n_terms; i++) {
        out[i] = sw_program_output(program, name_of(i / 2, i % 2 == 1, name, sizeof name), micro);
    }
}

void sw_engine_find_losses(struct engine_loss *l, const struct sw_plan *plan,
                           const struct engine_programs *p)
{
    if (p->train >= 0) {
        const struct sw_program *program = &plan->programs[p->train];
        for (int micro = 0; micro < program->micro_batches; micro++) {
            find_outputs(l, program, micro, &l->outputs[2 * l->n_terms * micro], l->totals[micro]);
        }
    }
    if (p->eval >= 0) {
        find_outputs(l, &plan->programs[p->eval], 0, l->eval_outputs, l->eval_totals);
    }
}

static double mean_of_term(const double *term)
{
    return term[1] > 0 ? term[0] / term[1] : 0;
}

static double mean(const struct engine_loss *l, const double *terms)
{
    double loss = 0;
    for (int i = 0; i < l->n_terms; i++) {
        const double of_term = mean_of_term(&terms[2 * i]);
        loss = i == 0 && l->weights[0] == 1 ? of_term : loss + l->weights[i] * of_term;
    }
    return loss;
}

double sw_engine_mean_loss(const struct sw_engine *e, const double *terms)
{
    return mean(&e->loss, terms);
}

/* ---- steps ---- */

void sw_engine_total_losses(struct engine_loss *l, const struct engine_sizes *s,
                            const struct sw_mesh *mesh)
{
    const int ranks = sw_mesh_size(mesh, SW_BATCH_AXES);
    const double *all = sw_mesh_ranks(mesh) > 1 ? l->all : l->local;
    int from[SW_AXIS_COUNT] = {[SW_AXIS_PIPE] = sw_mesh_size(mesh, 1U << SW_AXIS_PIPE) - 1};
    const int n = sw_engine_n_sums(l);
    l->sum = l->count = l->means = 0;
    memset(l->step_totals, 0, sizeof l->step_totals);
    memset(l->step_terms, 0, sizeof l->step_terms);
    for (int64_t k = 0; k < s->micro_batches; k++) {
        sw_mesh_place_batch(mesh, (int)(k % ranks), from);
        const double *loss = &all[n * (sw_mesh_rank(mesh, from) * s->rounds + k / ranks)];
        l->sum += loss[0];
        l->count += loss[1];
        l->means += mean(l, loss);
        for (int i = 0; i < l->n_terms; i++) {
            l->step_terms[i] += mean_of_term(&loss[2 * i]) / (double)s->micro_batches;
        }
        for (int i = 0; i < 2 * l->n_totals; i++) {
            l->step_totals[i] += loss[2 * l->n_terms + i];
        }
    }
}

/* ---- metrics of preferences and experts ---- */

_Static_assert(2 * (int)SW_ENGINE_MAX_TOTALS == (int)SW_PREFERENCE_TOTALS + 2 * (int)SW_LOADS,
               "all totals are kept");
_Static_assert((int)SW_ENGINE_MAX_SUMS <= (int)SW_FETCHED, "an executor fetches them");

int sw_engine_n_totals(const sw_engine *e)
{
    return e->loss.n_totals;
}

const double *sw_engine_totals(const sw_engine *e)
{
    return e->loss.step_totals;
}

static double mean_of(const double *totals, int at)
{
    return totals[at + 1] > 0 ? totals[at] / totals[at + 1] : (double)NAN;
}

bool sw_engine_routers(const sw_engine *e, struct sw_engine_routers *out)
{
    const struct engine_loss *l = &e->loss;
    *out = (struct sw_engine_routers){.aux_loss = NAN, .z_loss = NAN};
    if (!l->has_loads) {
        return false;
    }
    const double *loads = l->step_totals + 2 * (l->n_totals - (int)SW_LOADS);
    out->least_load = mean_of(loads, 2 * SW_LOAD_LEAST);
    out->most_load = mean_of(loads, 2 * SW_LOAD_MOST);
    out->entropy = mean_of(loads, 2 * SW_LOAD_ENTROPY);
    out->dropped = loads[2 * SW_LOAD_DROPPED];
    out->choices = loads[2 * SW_LOAD_DROPPED + 1];
    for (int i = 0; i < l->n_terms; i++) {
        out->aux_loss = l->of[i] == SW_LOSS_OF_BALANCE ? l->step_terms[i] : out->aux_loss;
        out->z_loss = l->of[i] == SW_LOSS_OF_Z ? l->step_terms[i] : out->z_loss;
    }
    return true;
}

double sw_engine_metric(enum sw_metric metric, const double *totals)
{
    const double chosen = mean_of(totals, SW_PREFERENCE_CHOSEN);
    const double rejected = mean_of(totals, SW_PREFERENCE_REJECTED);
    switch (metric) {
    case SW_METRIC_ACCURACY:
    case SW_METRIC_REWARDS_ACCURACIES:
        return mean_of(totals, SW_PREFERENCE_RIGHT);
    case SW_METRIC_REWARDS_MARGINS:
    case SW_METRIC_MARGIN:
        return chosen - rejected;
    case SW_METRIC_REWARDS_CHOSEN:
        return chosen;
    case SW_METRIC_REWARDS_REJECTED:
        return rejected;
    case SW_METRIC_MEAN_REWARD:
        return (chosen + rejected) / 2;
    case SW_METRIC_LOGPS_CHOSEN:
        return mean_of(totals, SW_PREFERENCE_LOGPS_CHOSEN);
    case SW_METRIC_LOGPS_REJECTED:
        return mean_of(totals, SW_PREFERENCE_LOGPS_REJECTED);
    case SW_METRIC_NLL:
        return -mean_of(totals, SW_PREFERENCE_LOGPS_CHOSEN);
    case SW_METRIC_LOG_ODDS_RATIO:
    case SW_METRIC_KL:
        return mean_of(totals, SW_PREFERENCE_MORE);
    case SW_METRIC_LOG_ODDS_CHOSEN:
        return mean_of(totals, SW_PREFERENCE_ODDS);
    default:
        return NAN;
    }
}

double sw_engine_step_loss(const struct engine_loss *l, const struct engine_sizes *s)
{
    return l->by_tokens ? (l->count > 0 ? l->sum / l->count : 0)
                        : l->means / (double)s->micro_batches;
}

double sw_engine_loss_share(const struct engine_loss *l, const struct engine_sizes *s)
{
    return !l->by_tokens  ? 1.0 / (double)s->micro_batches
           : l->count > 0 ? 1 / (l->row_weight * l->count)
                          : 0;
}
