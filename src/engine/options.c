// SPDX-License-Identifier: Apache-2.0
// Checks the configuration and the options against the opened model, and sizes rows and texts.
#include <string.h>

#include "engine/private.h"

/* DPO's sigmoid loss takes a share of the pairs as swapped. */
static bool takes_swapped(const struct sw_engine *e, const struct sw_task_loss *loss)
{
    const struct sw_spillway_config *c = &e->config->spillway;
    return loss->kind == SW_LOSS_PREFERENCE && c->preference.loss == SW_PREFERENCE_LOSS_SIGMOID &&
           c->label_smoothing < 0.5;
}

/* Label smoothing applies to cross-entropy losses; other losses refuse it. */
static sw_status check_smoothing(const struct sw_engine *e, const struct sw_engine_options *o)
{
    const double smoothing = e->config->spillway.label_smoothing;
    const struct sw_task *task = e->weights.model ? e->weights.model->task : NULL;
    bool fits = task != NULL;
    for (int i = 0; task && i < task->n_losses; i++) {
        fits =
            fits && (task->losses[i].kind == SW_LOSS_CLASSES ||
                     task->losses[i].kind == SW_LOSS_PLACE || takes_swapped(e, &task->losses[i]));
    }
    if (smoothing == 0 || fits || (!o->train.wanted && !o->evaluate.loss)) {
        return SW_OK;
    }
    if (!task) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.label_smoothing %g: a forward of your own sets its "
                       "smoothing itself (sw_cross_entropy_of)",
                       smoothing);
    }
    return SW_FAIL(SW_E_CONFIG,
                   "spillway.label_smoothing %g: the loss of the task \"%s\" is not a cross "
                   "entropy over classes, nor DPO's sigmoid with smoothing below 0.5",
                   smoothing, task->name);
}

/* Weights of tokens are an input of the task causal; the loss of an imported graph takes none. */
static sw_status check_token_weights(const struct sw_engine *e, const struct sw_engine_options *o)
{
    const struct sw_model *model = e->weights.model;
    if (!e->config->spillway.token_weights || (!o->train.wanted && !o->evaluate.loss)) {
        return SW_OK;
    }
    if (!model) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.token_weights: a forward of your own builds its own loss");
    }
    if (sw_onnx_is_import(model)) {
        return SW_FAIL(SW_E_UNSUP,
                       "spillway.token_weights: %s is an ONNX file, whose loss takes no "
                       "weights",
                       o->model.path);
    }
    if (!sw_task_input_of(model->task, SW_TASK_WEIGHTS)) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.token_weights: the task \"%s\" has no weights of tokens; wanted "
                       "\"causal\"",
                       model->task->name);
    }
    return SW_OK;
}

sw_status sw_engine_check_expert_axis(const struct sw_engine *e)
{
    const struct sw_parallel_config *p = &e->config->parallel;
    const bool has_experts = e->weights.model && e->weights.model->experts > 0;
    char uneven[128];
    snprintf(uneven, sizeof uneven,
             "a step has %lld micro-batches (K); wanted a multiple of the %d ranks along data and "
             "expert",
             (long long)e->sizes.micro_batches, e->data.size);
    const struct {
        bool bad;
        const char *why;
    } rows[] = {
        {!has_experts, "the model has no experts"},
        {sw_engine_runs_at_once(e), "spillway.schedule must be \"horizontal\" or a pipeline's"},
        {e->config->spillway.reduce == SW_REDUCE_BOUNDARY,
         "spillway.reduce \"boundary\" adds in another order"},
        {e->options.train.keep_gradients, "gradients of one micro-batch are not kept with it"},
        {e->options.train.wanted && e->sizes.micro_batches % e->data.size != 0, uneven},
    };
    for (size_t i = 0; i < SW_LEN(rows) && p->expert > 1; i++) {
        if (rows[i].bad) {
            return SW_FAIL(SW_E_CONFIG, "spillway.mesh.expert %lld: %s", (long long)p->expert,
                           rows[i].why);
        }
    }
    return SW_OK;
}

/* Keys of routers are refused for models without them. */
static sw_status check_experts(const struct sw_engine *e)
{
    const struct sw_spillway_config *c = &e->config->spillway;
    const struct {
        const char *key;
        double value;
    } keys[] = {{"capacity_factor", c->capacity_factor},
                {"router_aux_loss", c->router_aux_loss},
                {"router_z_loss", c->router_z_loss}};
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        if (keys[i].value > 0 && !(e->weights.model && e->weights.model->experts > 0)) {
            return SW_FAIL(SW_E_CONFIG, "spillway.%s %g: wanted a model with experts", keys[i].key,
                           keys[i].value);
        }
    }
    return SW_OK;
}

/* A graph from a file has no splits of its weights, and its texts are not cut. */
static sw_status check_imported(const struct sw_engine *e)
{
    const struct sw_parallel_config *p = &e->config->parallel;
    if (!sw_onnx_is_import(e->weights.model) || (p->tensor <= 1 && p->context <= 1)) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_UNSUP,
                   "spillway.mesh.%s %lld: a model from an ONNX file is not cut along this axis; "
                   "data and pipe are there for it",
                   p->tensor > 1 ? "tensor" : "context",
                   (long long)(p->tensor > 1 ? p->tensor : p->context));
}

static sw_status check_task(const struct sw_engine *e, const struct sw_engine_options *o)
{
    const struct sw_task *task = e->weights.model->task;
    SW_TRY(check_smoothing(e, o));
    SW_TRY(check_token_weights(e, o));
    SW_TRY(check_experts(e));
    SW_TRY(check_imported(e));
    if (e->config->spillway.packing && !sw_task_input_of(task, "segments")) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: the task \"%s\" reads one text a row; spillway.packing is for "
                       "language models",
                       o->model.path, task->name);
    }
    if (o->generate.wanted && !sw_model_is_causal(e->weights.model) &&
        !sw_model_is_seq2seq(e->weights.model)) {
        return SW_FAIL(SW_E_UNSUP, "%s: a model for the task \"%s\" does not generate text",
                       o->model.path, task->name);
    }
    if (task->n_losses == 0 && (o->train.wanted || o->evaluate.loss)) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: %s has no head, so there is no loss; wanted a task, which selects a "
                       "head",
                       o->model.path, e->weights.model->class_name);
    }
    return SW_OK;
}

/* context: size of that axis, which divides the tokens of a row */
static sw_status size_texts(const struct sw_engine_options *o, const struct sw_model *model,
                            int64_t context, struct engine_sizes *out)
{
    const int64_t asked = o->inputs.most_tokens > 0 ? o->inputs.most_tokens : SW_DEFAULT_TOKENS;
    const int64_t most = sw_ceil_div(asked, context) * context;
    out->tokens = o->inputs.seq_len > 0 ? o->inputs.seq_len : sw_min_i64(model->max_tokens, most);
    if (out->tokens > model->max_tokens && !model->is_endless) {
        return SW_FAIL(SW_E_CONFIG, "sequence length %lld: the model has positions for %lld tokens",
                       (long long)out->tokens, (long long)model->max_tokens);
    }
    out->targets = o->inputs.target_len > 0 ? o->inputs.target_len : out->tokens;
    return SW_OK;
}

/* Sets the default limit on generated tokens. */
static sw_status size_generation(struct sw_engine *e)
{
    struct sw_engine_generate *g = &e->options.generate;
    if (g->tokens > e->weights.model->max_tokens && !e->weights.model->is_endless) {
        return SW_FAIL(SW_E_CONFIG,
                       "generation up to %lld tokens: the model has positions for %lld",
                       (long long)g->tokens, (long long)e->weights.model->max_tokens);
    }
    if (g->wanted && g->tokens == 0) {
        g->tokens = sw_model_is_seq2seq(e->weights.model) ? e->sizes.targets : e->sizes.tokens;
    }
    return SW_OK;
}

sw_status sw_engine_open_source(struct sw_engine *e)
{
    const struct sw_engine_options *o = &e->options;
    e->weights.source.dtype = SW_F32;
    e->sizes.rows = 1;
    if (!o->model.path) {
        if (!o->model.forward) {
            return SW_FAIL(SW_E_ARG, "neither a model nor a forward is given");
        }
        SW_TRY(check_smoothing(e, o));
        return check_token_weights(e, o);
    }
    if (o->model.forward) {
        return SW_FAIL(SW_E_ARG, "a model and a forward are both given");
    }
    SW_TRY(sw_weights_open(&e->weights));
    e->sizes.rows = sw_task_rows(e->weights.model->task);
    sw_engine_expect_totals(&e->loss, e->sizes.rows > 1, e->weights.model->experts > 0);
    SW_TRY(size_texts(o, e->weights.model, e->config->parallel.context, &e->sizes));
    if (o->model.vocab_size > e->weights.model->vocab) {
        return SW_FAIL(SW_E_CONFIG,
                       "the tokenizer has %lld tokens and the model a vocabulary of %lld",
                       (long long)o->model.vocab_size, (long long)e->weights.model->vocab);
    }
    SW_TRY(check_task(e, o));
    return size_generation(e);
}
