// SPDX-License-Identifier: Apache-2.0
// Makes the plan of an engine: builds the graphs that it is asked for, and passes the configured
// tiers, budgets and slots to the search (search/search.h).
#include <string.h>

#include "engine/private.h"

enum { MOST_PROGRAMS = 5 };
/* Graphs of all programs, kept while a plan is searched for. */
struct graphs {
    struct sw_engine *engine;
    struct sw_program_spec specs[MOST_PROGRAMS];
    struct sw_program_spec same; /* the first one without the expert axis; graph NULL = none */
    int n;
    int64_t batch; /* micro-batch size that they are built for */
    const struct sw_machine_rates *rates;
};

/* A program to be built; most fields are those of struct sw_forward_spec. */
struct recipe {
    enum sw_program_kind kind;
    int *i_program;               /* set to the index of the program in the plan */
    int64_t batch, tokens, cache; /* cache: its tokens; 0 = none */
    bool backward, labels, logits, hidden, source;
    bool alone; /* without the expert axis */
};

/* Adds the forward of a program: the model's or the caller's. */
static sw_value add_forward(struct sw_engine *e, const struct recipe *r, struct sw_graph *g)
{
    const struct sw_spillway_config *c = &e->config->spillway;
    const struct sw_coord experts = sw_mesh_coord(&e->mesh, 1U << SW_AXIS_EXPERT, e->world.rank);
    sw_value loss = SW_NO_VALUE;
    if (!e->weights.model) {
        loss = e->options.model.forward(g, e->options.model.forward_ctx, r->batch);
        sw_output(g, "loss", loss);
        return loss;
    }
    const bool vectors = e->weights.model->task->rows == SW_ROWS_CONTRAST;
    const struct sw_forward_spec forward = {
        .batch = r->batch * (r->cache > 0 ? 1 : e->sizes.rows),
        .tokens = r->tokens,
        .targets = e->sizes.targets,
        .has_mask = e->options.inputs.mask && r->cache == 0,
        .is_packed = c->packing && r->cache == 0,
        .has_labels = r->labels,
        .has_weights = c->token_weights,
        .want_logits = r->logits,
        .want_hidden = r->hidden,
        .smoothing = c->label_smoothing,
        .preference = {.kind = c->preference.loss == SW_PREFERENCE_LOSS_IPO ? SW_PREFERENCE_IPO
                                                                            : SW_PREFERENCE_SIGMOID,
                       .beta = vectors ? c->contrastive.scale : c->preference.beta,
                       .desirable = c->preference.desirable,
                       .undesirable = c->preference.undesirable,
                       .mean = c->preference.log_probs == 1},
        .pools_first = c->contrastive.pooling == 1,
        .capacity_factor = c->capacity_factor,
        .router_aux_loss = c->router_aux_loss,
        .router_z_loss = c->router_z_loss,
        .experts = r->alone ? (struct sw_expert_ranks){0}
                            : (struct sw_expert_ranks){SW_AXIS_EXPERT, experts.size, experts.rank},
        .cache_tokens = r->cache,
        .is_source = r->source,
    };
    e->weights.model->ops->forward(e->weights.model, g, &forward, &loss);
    return loss;
}

/* Ranks of the context axis generate the same text, each with all tokens: a token after the other
 * cannot be cut. */
static bool cuts_tokens(const struct recipe *r)
{
    return r->kind != SW_PROGRAM_DECODE;
}

/* A pattern of spillway.frozen without a parameter is a typing error. */
static sw_status check_frozen(const struct sw_graph *g)
{
    for (int i = 0; i < g->n_frozen; i++) {
        sw_value v = 0;
        while (v < g->n_values && (g->values[v].role != SW_ROLE_PARAM ||
                                   !sw_glob_match(g->frozen[i], g->values[v].name))) {
            v++;
        }
        if (v == g->n_values) {
            return SW_FAIL(SW_E_CONFIG, "spillway.frozen[%d]: no parameter matches \"%.120s\"", i,
                           g->frozen[i]);
        }
    }
    return SW_OK;
}

/* Learns the loss, the inputs and the adapted layers of a graph that is still only a forward. */
static sw_status learn(struct sw_engine *e, const struct recipe *r, struct sw_graph *g,
                       sw_value loss)
{
    const struct sw_parallel_config *p = &e->config->parallel;
    const struct sw_shares shares = {p->tensor, cuts_tokens(r) ? p->context : 1};
    SW_TRY(sw_graph_status(g));
    SW_TRY(sw_graph_check_shares(g, &shares));
    if (r->labels && loss < 0) {
        return SW_FAIL(SW_E_ARG, "the forward returned no loss");
    }
    if (r->labels) {
        SW_TRY(sw_engine_learn_loss(&e->loss, g, loss, r->backward));
    }
    SW_TRY(sw_engine_learn_inputs(&e->bounds, g));
    SW_TRY(sw_weights_learn_adapted(&e->weights, g));
    if (!r->backward) {
        return SW_OK;
    }
    SW_TRY(check_frozen(g));
    return sw_engine_bind_groups(&e->optimizer, g);
}

/* Replaces a forward by what this rank of an axis computes of it. */
static sw_status take_part(const struct sw_engine *e, struct sw_ranks ranks, struct sw_graph **g,
                           sw_value *loss)
{
    const struct sw_coord coord = sw_mesh_coord(&e->mesh, 1U << ranks.axis, e->world.rank);
    struct sw_graph *part = NULL;
    if (coord.size <= 1) {
        return SW_OK;
    }
    ranks.n = coord.size;
    ranks.me = coord.rank;
    SW_TRY(sw_graph_part(*g, &ranks, *loss, &part, loss));
    sw_graph_close(*g);
    *g = part;
    return SW_OK;
}

/* Heads are cut by the tensor axis first, then by the context axis. */
static sw_status take_parts(const struct sw_engine *e, const struct recipe *r, struct sw_graph **g,
                            sw_value *loss)
{
    const struct sw_parallel_config *p = &e->config->parallel;
    const struct sw_ranks tensor = {.axis = SW_AXIS_TENSOR,
                                    .rows = p->sequence_parallel,
                                    .next = cuts_tokens(r) ? (int)p->context : 1,
                                    .words = true};
    const struct sw_ranks context = {.axis = SW_AXIS_CONTEXT, .tokens = true};
    SW_TRY(take_part(e, tensor, g, loss));
    return cuts_tokens(r) ? take_part(e, context, g, loss) : SW_OK;
}

/* Builds the graph of a program: forward and, if the recipe has it, backward. */
static sw_status build(struct sw_engine *e, const struct recipe *r, struct sw_program_spec *spec)
{
    const struct sw_spillway_config *c = &e->config->spillway;
    const struct sw_graph_options options = {
        .dtype = e->dtype,
        .grad_dtype = e->grad_dtype,
        .training = r->backward && !e->options.train.no_dropout,
        .token_mean = e->loss.by_tokens,
        .loss_chunk = c->loss_chunk,
        .frozen = c->frozen.items,
        .n_frozen = c->frozen.n,
        .adapter = sw_weights_adapter(&e->weights),
        .quantizer = sw_weights_quantizer(&e->weights),
    };
    struct sw_graph *g = NULL;
    SW_TRY(sw_graph_open(&options, &g));
    sw_value loss = add_forward(e, r, g);
    sw_status st = learn(e, r, g, loss);
    st = st < 0 ? st : take_parts(e, r, &g, &loss);
    if (st >= 0 && r->backward) {
        st = sw_graph_backward(g, loss);
    }
    if (st < 0) {
        sw_graph_close(g);
        return st;
    }
    *spec = (struct sw_program_spec){r->kind, g};
    return SW_OK;
}

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(ctx, desc, out);
}

/* The axes tensor and context cut sums of a micro-batch; pipe and data do not. */
static uint64_t extra_fingerprint(const struct sw_engine *e)
{
    static const enum sw_axis cuts[] = {SW_AXIS_TENSOR, SW_AXIS_CONTEXT};
    uint64_t h = sw_hash(SW_HASH_INIT, &e->seed, sizeof e->seed);
    h = sw_hash(h, &e->sizes.batch, sizeof e->sizes.batch);
    h = sw_engine_hash_rates(&e->optimizer, h);
    if (e->config->spillway.reduce == SW_REDUCE_BOUNDARY &&
        sw_mesh_size(&e->mesh, sw_zero_axes(&e->mesh)) > 1 &&
        e->sizes.micro_batches > e->data.size) {
        /* the order of the sum depends on the ranks */
        h = sw_hash(h, &e->data.size, sizeof e->data.size);
    }
    if (e->agreed.uses_library && e->config->spillway.library_sums) {
        /* so does that of the library */
        const int ranks[] = {e->data.size, 1};
        h = sw_hash(h, ranks, sizeof ranks);
    }
    for (size_t i = 0; i < SW_LEN(cuts); i++) {
        const int cut[] = {(int)cuts[i], sw_mesh_size(&e->mesh, 1U << cuts[i])};
        h = cut[1] > 1 ? sw_hash(h, cut, sizeof cut) : h;
    }
    return h;
}

/* A ratio of 0 keeps the states on the device. */
static enum sw_tier states_tier(const struct sw_config *c)
{
    return c->zero.offload_optimizer.ratio > 0 ? sw_tier_of(c->zero.offload_optimizer.device)
                                               : SW_TIER_DEVICE;
}

sw_status sw_engine_find_folders(struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    const struct {
        enum sw_tier tier;
        const struct sw_config_strings *paths;
    } users[] = {{states_tier(c), &c->zero.offload_optimizer.nvme_path},
                 {sw_tier_of(c->zero.offload_param.device), &c->zero.offload_param.nvme_path}};
    const int most = users[0].paths->n + users[1].paths->n;
    e->folders = sw_alloc_zero("engine", (size_t)most + 1, sizeof *e->folders);
    SW_TRY_ALLOC(e->folders, "the folders of the disk");
    for (size_t u = 0; u < SW_LEN(users); u++) {
        for (int i = 0; users[u].tier == SW_TIER_DISK && i < users[u].paths->n; i++) {
            bool known = false;
            for (int k = 0; k < e->n_folders && u > 0; k++) {
                known |= strcmp(e->folders[k], users[u].paths->items[i]) == 0;
            }
            if (!known) {
                e->folders[e->n_folders++] = users[u].paths->items[i];
            }
        }
    }
    return SW_OK;
}

struct sw_swap_options sw_engine_swap(const struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    struct sw_swap_options swap = {
        .folders = e->folders, .n_folders = e->n_folders, .rank = e->world.rank};
    sw_nvme_options_init(&swap.nvme);
    swap.nvme.preallocate = true;
    swap.nvme.block_bytes = c->aio.block_size_bytes;
    swap.nvme.queue_depth = c->aio.queue_depth;
    swap.nvme.intra_op_parallelism = c->aio.intra_op_parallelism;
    swap.nvme.single_submit = c->aio.single_submit;
    swap.nvme.overlap_events = c->aio.overlap_events;
    swap.nvme.fault = e->options.run.disk_fault;
    return swap;
}

/* Learns the adapted layers from a graph of the whole model. It is needed where each program
 * contains only a part of the model. */
static sw_status learn_whole(struct sw_engine *e)
{
    const struct recipe all = {SW_PROGRAM_LOGITS, NULL, e->sizes.batch, e->sizes.tokens,
                               .logits = true};
    struct sw_program_spec spec;
    SW_TRY(build(e, &all, &spec));
    sw_graph_close((struct sw_graph *)(uintptr_t)spec.graph);
    return SW_OK;
}

/* Builds a graph again without the expert axis, which has the same bits. */
static sw_status build_alone(struct graphs *graphs, const struct recipe *r)
{
    struct sw_engine *e = graphs->engine;
    struct recipe alone = *r;
    alone.alone = true;
    return e->config->parallel.expert > 1 ? build(e, &alone, &graphs->same) : SW_OK;
}

/* Builds the graphs of all programs that the engine is asked for. */
static sw_status build_all(struct sw_engine *e, struct graphs *graphs)
{
    const struct sw_engine_options *o = &e->options;
    struct engine_programs *p = &e->programs;
    const bool train = o->train.wanted, generate = o->generate.wanted && e->weights.model;
    const bool answers = generate && sw_model_is_seq2seq(e->weights.model);
    const int64_t chunk =
        answers ? e->sizes.tokens : sw_min_i64(SW_PREFILL_TOKENS, o->generate.tokens);
    SW_TRY(sw_engine_check_expert_axis(e));
    *p = (struct engine_programs){-1, -1, -1, -1, -1};
    if (e->weights.lora && answers && !train && !o->evaluate.loss && !o->evaluate.logits) {
        SW_TRY(learn_whole(e));
    }
    const struct {
        bool wanted;
        struct recipe recipe;
    } all[MOST_PROGRAMS] = {
        {train,
         {SW_PROGRAM_TRAIN, &p->train, e->sizes.batch, e->sizes.tokens, .backward = true,
          .labels = true}},
        {o->evaluate.loss,
         {SW_PROGRAM_EVAL, &p->eval, e->sizes.batch, e->sizes.tokens, .labels = true}},
        {o->evaluate.logits,
         {SW_PROGRAM_LOGITS, &p->logits, e->sizes.batch, e->sizes.tokens, .logits = true,
          .hidden = o->evaluate.hidden}},
        {generate,
         {SW_PROGRAM_DECODE, &p->prefill, 1, chunk, .cache = o->generate.tokens, .logits = !answers,
          .source = answers}},
        {generate,
         {SW_PROGRAM_DECODE, &p->decode, 1, answers ? e->sizes.tokens : 1,
          .cache = o->generate.tokens, .logits = true}},
    };
    for (size_t i = 0; i < SW_LEN(all); i++) {
        if (all[i].wanted) {
            SW_TRY(build(e, &all[i].recipe, &graphs->specs[graphs->n]));
            *all[i].recipe.i_program = graphs->n++;
            SW_TRY(graphs->n == 1 ? build_alone(graphs, &all[i].recipe) : SW_OK);
        }
    }
    return graphs->n > 0 ? SW_OK
                         : SW_FAIL(SW_E_ARG, "the engine has no purpose; wanted one of train, "
                                             "evaluate, embed and generate");
}

static void close_graphs(struct graphs *graphs)
{
    for (int i = 0; i < graphs->n; i++) {
        sw_graph_close((struct sw_graph *)(uintptr_t)graphs->specs[i].graph);
    }
    sw_graph_close((struct sw_graph *)(uintptr_t)graphs->same.graph);
    graphs->same.graph = NULL;
    graphs->n = 0;
}

/* The stages are the same in all programs, so that each has the same parameters in all of them. */
static sw_status cut_blocks(struct sw_engine *e, const struct graphs *graphs)
{
    const int parts = sw_mesh_size(&e->mesh, 1U << SW_AXIS_PIPE) * (int)e->config->parallel.chunks;
    return e->stage_blocks ? sw_engine_cut_blocks(graphs->specs, graphs->n, e->config,
                                                  graphs->rates, parts, e->stage_blocks)
                           : SW_OK;
}

static sw_status lend_graphs(void *ctx, const struct sw_policy *policy,
                             struct sw_search_graphs *out)
{
    struct graphs *graphs = ctx;
    struct sw_engine *e = graphs->engine;
    e->sizes.batch = policy->micro_batch;
    e->sizes.micro_batches = policy->micro_batches;
    if (graphs->n == 0 || graphs->batch != e->sizes.batch) {
        close_graphs(graphs);
        sw_engine_forget_inputs(&e->bounds);
        graphs->batch = e->sizes.batch;
        SW_TRY(build_all(e, graphs));
        SW_TRY(cut_blocks(e, graphs));
    }
    *out = (struct sw_search_graphs){
        graphs->specs, graphs->n, {extra_fingerprint(e), graphs->same.graph}};
    return SW_OK;
}

/* Plan options that do not depend on the policy. */
static struct sw_plan_options fixed_options(const struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    return (struct sw_plan_options){
        .device = {query, e->device},
        .host = {e->host ? query : NULL, e->host},
        .kernel_set = sw_device_kernel_set(e->device),
        .fp16 = c->fp16.enabled,
        .clip = c->misc.gradient_clipping,
        .rule = e->optimizer.trains ? &e->optimizer.rule : NULL,
        .keep_gradients = e->options.train.keep_gradients,
        .keep_cheap = !c->spillway.recompute_cheap,
        .gathers_again = c->parallel.gather_again,
        .mesh = e->mesh,
        .me = e->world.rank,
        .stage_blocks = e->stage_blocks,
        .reduces = (c->misc.sparse_gradients && sw_engine_packs_rows(e) ? SW_REDUCES_ROWS : 0) |
                   (c->spillway.reduce == SW_REDUCE_BOUNDARY ? SW_REDUCES_SUMS : 0),
        .staging_bytes = e->device->staging_bytes,
        .overlap = c->zero.overlap_comm,
        .limits = {.persistence_elems = c->zero.param_persistence_elems,
                   .persistence_total = c->zero.model_persistence_elems,
                   .max_live_elems = c->zero.max_live_elems,
                   .kept_elems = e->agreed.brings_again ? 0 : c->zero.max_live_elems,
                   .reduce_bucket_elems = c->zero.reduce_bucket_elems,
                   .allgather_bucket_elems = c->zero.allgather_bucket_elems,
                   .host_param_elems = c->zero.offload_param.max_in_cpu_elems},
    };
}

/* The policy that the configuration asks for. */
static struct sw_policy asked_policy(const struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    return (struct sw_policy){
        .host_updates = c->spillway.update == SW_PLACE_HOST,
        .clipped_update = (enum sw_clipped_update)c->spillway.clipped_update,
        .late_share = c->spillway.next_forward_share,
        .micro_batch = e->sizes.batch,
        .micro_batches = e->sizes.micro_batches,
        .recompute = sw_config_recompute(c, e->weights.model ? e->weights.model->layers : 0),
        .schedule = (enum sw_step_schedule)c->spillway.schedule,
        .chunks = (int)c->parallel.chunks,
        .stage = (int)c->zero.stage,
        .states_tier = states_tier(c),
        .params_tier = sw_tier_of(c->zero.offload_param.device),
        .activations_tier = c->activation.cpu_checkpointing ? SW_TIER_HOST : SW_TIER_DEVICE,
        .states_share = c->zero.offload_optimizer.ratio,
        .tile_bytes = (size_t)c->spillway.tile_bytes,
        .prefetch_elems = c->zero.prefetch_bucket_elems,
    };
}

static void next_micro_batch(void *ctx, int64_t most, struct sw_policy *policy)
{
    const struct graphs *graphs = ctx;
    sw_engine_next_micro_batch(graphs->engine, most, policy);
}

static sw_status agree_on_try(void *ctx, struct sw_verdict *verdict)
{
    const struct graphs *graphs = ctx;
    return sw_engine_agree_on_try(graphs->engine, verdict);
}

static sw_status search(struct sw_engine *e, struct sw_policy *out)
{
    const struct sw_spillway_config *c = &e->config->spillway;
    struct graphs graphs = {.engine = e};
    struct sw_search search = {
        .fixed = fixed_options(e),
        .asked = asked_policy(e),
        .slots = c->disk_slots,
        .one_slot = e->agreed.one_slot,
        .transfer_bytes = (size_t)c->transfer_bytes,
        .sub_group_elems = e->config->zero.sub_group_elems,
        .any_micro_batch = c->micro_batch == SW_MICRO_BATCH_AUTO,
        .any_recompute = c->recompute.every == SW_CONFIG_AUTO,
        .any_update = c->update == SW_PLACE_AUTO,
        .refusal = e->search.refusal,
        .ctx = &graphs,
        .graphs = lend_graphs,
        .next = next_micro_batch,
        .agree = agree_on_try,
    };
    graphs.rates = &search.rates;
    sw_engine_budgets(e, search.memory);
    SW_TRY(sw_engine_find_rates(e, &search.rates));
    const sw_status st = sw_search_open(&search, out, &e->plan);
    close_graphs(&graphs);
    return st;
}

sw_status sw_engine_make_plan(struct sw_engine *e)
{
    struct sw_policy policy;
    sw_work_at("planning", 0, 0);
    const sw_status st = search(e, &policy);
    sw_work_end();
    if (st < 0) {
        return sw_engine_blame_choices(e, st);
    }
    if (sw_config_is_auto(e->config)) {
        const bool batch = e->config->spillway.micro_batch == SW_MICRO_BATCH_AUTO;
        SW_TRY(sw_config_choose(e->config, policy.micro_batch, policy.recompute, NULL));
        SW_TRY(sw_engine_resolve_batch(e));
        SW_TRY(batch ? sw_engine_take_batch(e) : SW_OK);
    }
    sw_engine_find_losses(&e->loss, e->plan, &e->programs);
    return SW_OK;
}
