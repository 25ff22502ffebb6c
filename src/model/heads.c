// SPDX-License-Identifier: Apache-2.0
// The heads on a trunk: outputs and losses by the task's table, and the heads of decoders.
#include "model/heads.h"

#include <stdio.h>

#include "model/decoder.h"

/* ---- the task's table ---- */

static sw_value labels_of(const struct sw_head *head, int i)
{
    return sw_model_input(head->g, head->model, head->spec, head->model->task->losses[i].labels);
}

sw_value sw_head_end(const struct sw_head *head)
{
    if (head->loss >= 0) {
        sw_output(head->g, "loss", head->loss);
    }
    return head->loss;
}

static void add_term(struct sw_head *head, int i, sw_value mean)
{
    const double weight = head->model->task->losses[i].weight;
    const sw_value term = weight != 1 ? sw_scale(head->g, mean, weight) : mean;
    head->loss = head->loss < 0 ? term : sw_add(head->g, head->loss, term);
}

/* Names what metrics and references are made of: the log-probabilities of rows, and totals. */
static sw_value preference_of(const struct sw_head *head, const struct sw_preference_spec *spec)
{
    sw_value values, totals;
    const sw_value loss = sw_preference_loss(head->g, spec, &values, &totals);
    if (loss >= 0) {
        sw_output(head->g, "log_probs", values);
        sw_output(head->g, "totals", totals);
    }
    return loss;
}

/* Scores [R,1]; labels f32 [R], NaN for rows that do not count. */
static sw_value reward_loss(const struct sw_head *head, sw_value scores, sw_value labels)
{
    sw_graph *g = head->g;
    const int64_t rows = head->spec->batch;
    scores = sw_to_statistic(g, scores);
    const struct sw_preference_spec spec = {
        .attrs = {.kind = SW_PREFERENCE_REWARD, .beta = 1},
        .x = sw_reshape(g, sw_scale(g, scores, -1), SW_SHAPE(rows, 1)),
        .counts = sw_reshape(g, labels, SW_SHAPE(rows, 1)),
        .reference = SW_NO_VALUE,
        .kinds = SW_NO_VALUE,
    };
    return preference_of(head, &spec);
}

/* The kind of the loss, and the inputs that only some kinds have. */
static struct sw_preference_spec preference_spec(const struct sw_head *head, int i)
{
    const struct sw_task *task = head->model->task;
    struct sw_preference_spec out = {
        .attrs = head->spec->preference, .reference = SW_NO_VALUE, .kinds = SW_NO_VALUE};
    switch (task->losses[i].kind) {
    case SW_LOSS_ODDS:
        out.attrs.kind = SW_PREFERENCE_ORPO;
        out.attrs.mean = true;
        break;
    case SW_LOSS_UNPAIRED:
        out.attrs.kind = SW_PREFERENCE_KTO;
        out.kinds = sw_model_input(head->g, head->model, head->spec, "kinds");
        break;
    default:
        out.attrs.smoothing = head->spec->smoothing;
        break;
    }
    if (sw_task_input_of(task, SW_TASK_REFERENCE)) {
        out.reference = sw_model_input(head->g, head->model, head->spec, SW_TASK_REFERENCE);
    }
    return out;
}

/* The log-probabilities of tokens, which logits = h weight^T + bias give, compared by row. */
static sw_value token_preference(const struct sw_head *head, int i, sw_value h, sw_value weight,
                                 sw_value bias, double cap)
{
    struct sw_preference_spec spec = preference_spec(head, i);
    spec.x =
        sw_linear_token_losses(head->g, h, weight, bias, labels_of(head, i), cap, &spec.counts);
    return preference_of(head, &spec);
}

static sw_value loss_of(const struct sw_head *head, int i, sw_value logits)
{
    const sw_value labels = labels_of(head, i);
    struct sw_cross_entropy_spec spec = {.smoothing = head->spec->smoothing};
    switch (head->model->task->losses[i].kind) {
    case SW_LOSS_BITS:
        return sw_binary_cross_entropy(head->g, logits, labels);
    case SW_LOSS_SQUARES:
        return sw_mean_squared_error(head->g, logits, labels);
    case SW_LOSS_REWARD:
        return reward_loss(head, logits, labels);
    case SW_LOSS_PLACE:
        spec.ignores_beyond = true;
        break;
    default:
        break;
    }
    return sw_cross_entropy_of(head->g, logits, labels, &spec);
}

void sw_head_term(struct sw_head *head, int i, sw_value logits)
{
    if (head->spec->want_logits) {
        sw_output(head->g, head->model->task->losses[i].output, logits);
    }
    if (head->spec->has_labels) {
        add_term(head, i, loss_of(head, i, logits));
    }
}

/* cap tanh(x / cap), as Gemma 2 bounds its logits. */
static sw_value capped(sw_graph *g, sw_value x, double cap)
{
    return cap > 0 ? sw_scale(g, sw_act(g, sw_scale(g, x, 1 / cap), SW_ACT_TANH), cap) : x;
}

void sw_head_linear_term(struct sw_head *head, int i, sw_value h, sw_value read, sw_value weight,
                         sw_value bias, double cap)
{
    sw_graph *g = head->g;
    if (head->spec->want_logits) {
        sw_output(g, head->model->task->losses[i].output,
                  capped(g, sw_linear(g, read, weight, bias, false), cap));
    }
    if (head->spec->has_labels && sw_task_rows(head->model->task) > 1) {
        add_term(head, i, token_preference(head, i, h, weight, bias, cap));
    } else if (head->spec->has_labels && head->spec->has_weights) {
        const sw_value weights = sw_model_input(g, head->model, head->spec, SW_TASK_WEIGHTS);
        add_term(
            head, i,
            sw_weighted_linear_cross_entropy(g, h, weight, bias, labels_of(head, i), weights, cap));
    } else if (head->spec->has_labels) {
        add_term(head, i,
                 sw_smoothed_linear_cross_entropy(g, h, weight, bias, labels_of(head, i), cap,
                                                  head->spec->smoothing));
    }
}

/* ---- decoders ---- */

sw_value sw_head_lm(const struct sw_decoder *m, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value h, sw_value table, sw_value more)
{
    const struct sw_model *model = &m->super;
    struct sw_head head = {model, g, spec, SW_NO_VALUE};
    char name[112];
    const sw_value head_VC =
        model->tied ? table
                    : sw_param(g, model->head_name, SW_SHAPE(model->vocab, m->table_width),
                               (struct sw_init){SW_INIT_NORMAL, m->spec.init_range});
    snprintf(name, sizeof name, "%s.bias", m->names.head);
    const sw_value bias = m->spec.head_bias ? sw_param(g, name, SW_SHAPE(model->vocab),
                                                       (struct sw_init){SW_INIT_ZERO, 0})
                                            : SW_NO_VALUE;
    h = m->spec.logits_scale > 0 ? sw_scale(g, h, m->spec.logits_scale) : h;
    sw_value read = h;
    sw_nn_split_words(g, head_VC, 0);
    sw_nn_split_words(g, bias, 0);
    if (spec->want_logits && spec->cache_tokens > 0) {
        read = sw_select_rows(g, h, sw_input(g, "last", SW_I32, SW_SHAPE(spec->batch)));
    }
    sw_head_linear_term(&head, 0, h, read, head_VC, bias, m->spec.logits_cap);
    if (head.loss >= 0 && more >= 0) {
        head.loss = sw_add(g, head.loss, more);
    }
    return sw_head_end(&head);
}

sw_value sw_head_classify(const struct sw_decoder *m, sw_graph *g,
                          const struct sw_forward_spec *spec, sw_value h, sw_value ids)
{
    const struct sw_model *model = &m->super;
    struct sw_head head = {model, g, spec, SW_NO_VALUE};
    const sw_value score_LC = sw_param(g, "score.weight", SW_SHAPE(model->labels, m->table_width),
                                       (struct sw_init){SW_INIT_NORMAL, m->spec.init_range});
    const sw_value x_BC = sw_select_rows(g, h, sw_last_index(g, ids, model->pad_id));
    sw_head_term(&head, 0, sw_matmul(g, x_BC, false, score_LC, true));
    return sw_head_end(&head);
}
