// SPDX-License-Identifier: Apache-2.0
// The loss of a micro-batch: a sum of terms, each a weight times the mean over the term's own
// targets. What leaves a program is the sum and the count of each, so that losses of micro-batches
// and ranks can be put together term by term.
#include "engine/private.h"

/* "loss.sum", "loss.count"; of further terms "loss.1.sum". */
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

sw_status sw_engine_learn_loss(struct sw_engine *e, sw_graph *g, sw_value loss, bool backward)
{
    struct sw_loss_term terms[SW_TASK_MAX_LOSSES];
    char name[32];
    const int n = sw_graph_loss_terms(g, loss, terms, SW_TASK_MAX_LOSSES);
    if (n == 0) {
        return SW_FAIL(SW_E_ARG,
                       "the loss must come from sw_cross_entropy, sw_linear_cross_entropy or "
                       "another mean, or be a sum of up to %d of them, scaled and added",
                       SW_TASK_MAX_LOSSES);
    }
    if (e->token_mean && (n > 1 || terms[0].weight != 1)) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.loss \"tokens\": this loss has %d term%s, scaled, each the mean "
                       "over targets of its own; \"microbatch\" takes them",
                       n, n > 1 ? "s" : "");
    }
    for (int i = 0; i < n; i++) {
        sw_output(g, name_of(i, false, name, sizeof name), terms[i].sum);
        sw_output(g, name_of(i, true, name, sizeof name), terms[i].count);
        e->loss.weights[i] = terms[i].weight;
    }
    e->loss.n_terms = n;
    e->loss.row_weight = backward ? terms[0].row_weight : e->loss.row_weight;
    return SW_OK;
}

static void find_outputs(const struct sw_engine *e, const struct sw_program *program, int micro,
                         const struct sw_port **out)
{
    char name[32];
    for (int i = 0; i < 2 * e->loss.n_terms; i++) {
        out[i] = sw_program_output(program, name_of(i / 2, i % 2 == 1, name, sizeof name), micro);
    }
}

void sw_engine_find_losses(struct sw_engine *e)
{
    const struct engine_programs *p = &e->programs;
    if (p->train >= 0) {
        const struct sw_program *program = &e->plan->programs[p->train];
        for (int micro = 0; micro < program->micro_batches; micro++) {
            find_outputs(e, program, micro, &e->loss.outputs[2 * e->loss.n_terms * micro]);
        }
    }
    if (p->eval >= 0) {
        find_outputs(e, &e->plan->programs[p->eval], 0, e->loss.eval_outputs);
    }
}

double sw_engine_mean_loss(const struct sw_engine *e, const double *terms)
{
    double loss = 0;
    for (int i = 0; i < e->loss.n_terms; i++) {
        const double *term = &terms[2 * i];
        const double mean = term[1] > 0 ? term[0] / term[1] : 0;
        loss = i == 0 && e->loss.weights[0] == 1 ? mean : loss + e->loss.weights[i] * mean;
    }
    return loss;
}
