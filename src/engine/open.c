// SPDX-License-Identifier: Apache-2.0
// Opening an engine: configuration -> model -> graphs -> plan -> executor -> weights. Also the inputs
// of a program, which every kind of run needs.
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/engine.h"

/* ---- configuration ---- */

static sw_status load_config(struct sw_engine *e, const struct sw_engine_options *o)
{
    if (o->config_path && o->config_text) {
        return SW_FAIL(SW_E_ARG, "config_path and config_text are both given");
    }
    if (o->config_path) {
        SW_TRY(sw_config_load(o->config_path, o->sets, o->n_sets, &e->config));
    } else {
        const char *text = o->config_text ? o->config_text : "{}";
        SW_TRY(
            sw_config_parse("configuration", text, strlen(text), o->sets, o->n_sets, &e->config));
    }
    if (o->batch_ranks > 0 && o->batch_ranks != e->ranks) {
        SW_TRY(sw_config_resolve(e->config, o->batch_ranks, 0));
        SW_TRY(sw_config_resolve(e->config, e->ranks, e->config->batch.micro_batches));
    } else {
        SW_TRY(sw_config_resolve(e->config, e->ranks, 0));
    }
    return sw_config_check_built(e->config);
}

static sw_status settle_config(struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    e->fp16 = c->fp16.enabled;
    e->vertical = c->spillway.schedule == SW_STEP_VERTICAL;
    if (e->vertical && e->options.keep_gradients) {
        return SW_FAIL(SW_E_CONFIG, "spillway.schedule \"vertical\" keeps no gradients of one "
                                    "micro-batch (keep_gradients); \"horizontal\" does");
    }
    e->dtype = c->fp16.enabled ? SW_F16 : c->bf16.enabled ? SW_BF16 : SW_F32;
    e->grad_dtype = c->misc.communication_data_type == SW_DTYPE_COUNT
                        ? e->dtype
                        : (enum sw_dtype)c->misc.communication_data_type;
    e->token_mean = c->spillway.loss == SW_LOSS_TOKENS;
    e->batch = c->batch.micro_batch_size;
    e->micro_batches = c->batch.micro_batches > 0 ? c->batch.micro_batches
                                                  : c->batch.accumulation_steps * c->batch.ranks;
    e->rounds = sw_ceil_div(e->micro_batches, e->ranks);
    e->local = (e->micro_batches - e->rank + e->ranks - 1) / e->ranks;
    e->losses = sw_alloc_zero("engine", 2 * (size_t)e->rounds, sizeof *e->losses);
    e->all_losses =
        sw_alloc_zero("engine", 2 * (size_t)(e->rounds * e->ranks), sizeof *e->all_losses);
    e->statuses = sw_alloc_zero("engine", (size_t)e->ranks, sizeof *e->statuses);
    e->loss_outputs = sw_alloc("engine", 2 * (size_t)e->rounds * sizeof *e->loss_outputs);
    SW_TRY_ALLOC(e->loss_outputs, "the losses of a step");
    SW_TRY_ALLOC(e->losses, "the losses of a step");
    SW_TRY_ALLOC(e->all_losses, "the losses of a step");
    SW_TRY_ALLOC(e->statuses, "the statuses of ranks");
    e->seed = sw_config_origin_of(c, "spillway.seed") > SW_CONFIG_DEFAULT
                  ? (uint64_t)c->spillway.seed
                  : e->options.seed;
    e->trains = !e->options.no_train && c->optimizer.type != SW_OPTIMIZER_NONE;
    if (e->trains) {
        SW_TRY(sw_update_rule_init(&c->optimizer, c->spillway.decay_1d, &e->rule));
        SW_TRY(sw_schedule_init(&e->schedule, c, 1));
    }
    sw_scaler_init(&e->scaler, &c->fp16);
    return SW_OK;
}

/* ---- model ---- */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A plan needs no weights: without them the head is as config.json says. */
static sw_status open_weights(struct sw_engine *e, const struct sw_engine_options *o)
{
    if (o->plan_only && !sw_hf_folder_has_weights(o->model)) {
        return SW_OK;
    }
    SW_TRY(sw_hf_folder_open(o->model, &e->folder));
    return sw_engine_settle_tie(e);
}

static sw_status open_model(struct sw_engine *e, const struct sw_engine_options *o)
{
    if (!o->model) {
        return o->forward ? SW_OK : SW_FAIL(SW_E_ARG, "neither a model nor a forward is given");
    }
    if (o->forward) {
        return SW_FAIL(SW_E_ARG, "a model and a forward are both given");
    }
    struct stat st;
    if (sw_model_is_preset(o->model) && stat(o->model, &st) != 0) {
        SW_TRY(sw_model_preset(o->model, o->vocab_size, o->seq_len, &e->model_doc));
    } else {
        SW_TRY(sw_hf_read_config(o->model, &e->model_doc));
        if (is_folder(o->model)) {
            e->model_folder = sw_strdup("engine", o->model);
            SW_TRY_ALLOC(e->model_folder, "the model's path");
            SW_TRY(open_weights(e, o));
        }
    }
    SW_TRY(sw_model_open(e->model_doc, &e->model));
    e->tokens = o->seq_len > 0 ? o->seq_len : e->model->max_tokens;
    if (e->tokens > e->model->max_tokens) {
        return SW_FAIL(SW_E_CONFIG, "sequence length %lld: the model has positions for %lld tokens",
                       (long long)e->tokens, (long long)e->model->max_tokens);
    }
    if (o->vocab_size > e->model->vocab) {
        return SW_FAIL(SW_E_CONFIG,
                       "the tokenizer has %lld tokens and the model a vocabulary of %lld",
                       (long long)o->vocab_size, (long long)e->model->vocab);
    }
    if (o->generate_tokens != 0 && e->model->head != SW_HEAD_LM) {
        return SW_FAIL(SW_E_UNSUP, "%s: a classifier continues no text", o->model);
    }
    if (o->generate_tokens < 0) {
        e->options.generate_tokens = e->tokens;
    }
    if (o->generate_tokens > e->model->max_tokens) {
        return SW_FAIL(SW_E_CONFIG,
                       "generation up to %lld tokens: the model has positions for %lld",
                       (long long)o->generate_tokens, (long long)e->model->max_tokens);
    }
    return SW_OK;
}

/* ---- programs ---- */

/* What lies elsewhere is updated by so many elements, and travels by so many bytes ahead of its use: a few
 * milliseconds of a disk. */
enum { UPDATE_ELEMS = 1 << 21, LEAST_TRANSFER_BYTES = 1 << 26, MOST_TRANSFER_BYTES = 1 << 30 };

struct recipe {
    enum sw_program_kind kind;
    int *i_program;
    int64_t batch, tokens, cache;
    bool backward, labels, logits, hidden;
};

static sw_status build(struct sw_engine *e, const struct recipe *r, struct sw_program_spec *spec)
{
    const struct sw_config *c = e->config;
    const struct sw_graph_options options = {
        .dtype = e->dtype,
        .grad_dtype = e->grad_dtype,
        .training = r->backward && !e->options.no_dropout,
        .token_mean = e->token_mean,
        .loss_chunk = c->spillway.loss_chunk,
        .frozen = c->spillway.frozen.items,
        .n_frozen = c->spillway.frozen.n,
    };
    struct sw_graph *g = NULL;
    SW_TRY(sw_graph_open(&options, &g));
    sw_value loss = SW_NO_VALUE;
    if (e->model) {
        const struct sw_forward_spec forward = {
            .batch = r->batch,
            .tokens = r->tokens,
            .has_mask = e->options.want_mask && r->cache == 0,
            .has_labels = r->labels,
            .want_logits = r->logits,
            .want_hidden = r->hidden,
            .cache_tokens = r->cache,
        };
        e->model->ops->forward(e->model, g, &forward, &loss);
    } else {
        loss = e->options.forward(g, e->options.forward_ctx, r->batch);
        sw_output(g, "loss", loss);
    }
    sw_status st = sw_graph_status(g);
    if (st >= 0 && r->labels && loss < 0) {
        st = SW_FAIL(SW_E_ARG, "the forward returned no loss");
    }
    if (st >= 0 && r->labels) {
        const struct sw_op *op = &g->ops[g->values[loss].producer];
        if (op->kind != SW_OP_LOSS_MEAN) {
            st = SW_FAIL(SW_E_ARG, "the loss must come from sw_cross_entropy or "
                                   "sw_linear_cross_entropy");
        } else {
            sw_output(g, "loss.sum", op->in[0]);
            sw_output(g, "loss.count", op->in[1]);
        }
    }
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

static uint64_t extra_fingerprint(const struct sw_engine *e)
{
    uint64_t h = sw_hash(SW_HASH_INIT, &e->seed, sizeof e->seed);
    h = sw_hash(h, &e->batch, sizeof e->batch);
    for (int64_t i = 0; e->trains && i < INT64_C(1) << 24; i = i < 64 ? i + 1 : i * 2) {
        const struct sw_rates rates = sw_schedule_at(&e->schedule, 0, i);
        const double values[] = {rates.lr, rates.beta1, rates.beta2};
        h = sw_hash(h, values, sizeof values);
    }
    if (e->config->spillway.reduce == SW_REDUCE_BOUNDARY && e->ranks > 1 &&
        e->micro_batches > e->ranks) {
        h = sw_hash(h, &e->ranks, sizeof e->ranks); /* the order of the sum depends on them */
    }
    return h;
}

static enum sw_tier tier_of(enum sw_offload_device device)
{
    return device == SW_OFFLOAD_CPU    ? SW_TIER_HOST
           : device == SW_OFFLOAD_NVME ? SW_TIER_DISK
                                       : SW_TIER_DEVICE;
}

/* A share of none stays on the device. */
static enum sw_tier states_tier(const struct sw_config *c)
{
    return c->zero.offload_optimizer.ratio > 0 ? tier_of(c->zero.offload_optimizer.device)
                                               : SW_TIER_DEVICE;
}

/* One tier holds both, over the folders of the optimizer's states and those of the parameters that are not among them. */
static sw_status find_folders(struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    const struct {
        enum sw_tier tier;
        const struct sw_config_strings *paths;
    } users[] = {{states_tier(c), &c->zero.offload_optimizer.nvme_path},
                 {tier_of(c->zero.offload_param.device), &c->zero.offload_param.nvme_path}};
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
        .folders = e->folders, .n_folders = e->n_folders, .rank = e->rank};
    sw_nvme_options_init(&swap.nvme);
    swap.nvme.preallocate = true;
    swap.nvme.block_bytes = c->aio.block_size_bytes;
    swap.nvme.queue_depth = c->aio.queue_depth;
    swap.nvme.intra_op_parallelism = c->aio.intra_op_parallelism;
    swap.nvme.single_submit = c->aio.single_submit;
    swap.nvme.overlap_events = c->aio.overlap_events;
    swap.nvme.fault = e->options.disk_fault;
    return swap;
}

/* Plans all programs that the engine is asked for. */
static sw_status open_plan(struct sw_engine *e, const struct sw_plan_options *options)
{
    const struct sw_engine_options *o = &e->options;
    struct engine_programs *p = &e->programs;
    const bool train = !o->no_train;
    const bool generate = o->generate_tokens > 0 && e->model && e->model->head == SW_HEAD_LM;
    const int64_t chunk = sw_min_i64(SW_PREFILL_TOKENS, o->generate_tokens);
    *p = (struct engine_programs){-1, -1, -1, -1, -1};
    const struct {
        bool wanted;
        struct recipe recipe;
    } all[] = {
        {train,
         {SW_PROGRAM_TRAIN, &p->train, e->batch, e->tokens, .backward = true, .labels = true}},
        {o->want_eval, {SW_PROGRAM_EVAL, &p->eval, e->batch, e->tokens, .labels = true}},
        {o->want_logits,
         {SW_PROGRAM_LOGITS, &p->logits, e->batch, e->tokens, .logits = true,
          .hidden = o->want_hidden}},
        {generate,
         {SW_PROGRAM_DECODE, &p->prefill, 1, chunk, .cache = o->generate_tokens, .logits = true}},
        {generate,
         {SW_PROGRAM_DECODE, &p->decode, 1, 1, .cache = o->generate_tokens, .logits = true}},
    };
    struct sw_program_spec specs[SW_LEN(all)];
    int n = 0;
    for (size_t i = 0; i < SW_LEN(all); i++) {
        if (!all[i].wanted) {
            continue;
        }
        const sw_status st = build(e, &all[i].recipe, &specs[n]);
        if (st < 0) {
            for (int k = 0; k < n; k++) {
                sw_graph_close(specs[k].graph);
            }
            return st;
        }
        *all[i].recipe.i_program = n++;
    }
    if (n == 0) {
        return SW_FAIL(SW_E_ARG, "the engine is asked for no program");
    }
    return sw_plan_open(specs, n, options, &e->plan);
}

/* Second places in host memory, of what is cached there, are room that a cache of more would have. What they would spare
 * the disk, read and written once a step at least, is no more than a small part of what it moves anyway. */
static bool is_cheap(const struct sw_engine *e, const struct sw_plan_options *options)
{
    enum { SMALL_PART = 32 };
    const struct sw_plan *plan = e->plan;
    const struct sw_transfers moves = sw_plan_transfers(plan, e->rounds);
    size_t cache = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        const enum sw_tier meant =
            item->role == SW_ROLE_PARAM ? options->params_tier : options->states_tier;
        cache += item->tier == SW_TIER_HOST && meant == SW_TIER_DISK ? item->slot_bytes : 0;
    }
    return 2 * (int64_t)cache <= (moves.in[SW_TIER_DISK] + moves.out[SW_TIER_DISK]) / SMALL_PART;
}

/* Two places where budgets have room for them, else one. */
static sw_status open_plan_in_places(struct sw_engine *e, const struct sw_plan_options *options,
                                     struct sw_plan_refusal *refusal)
{
    struct sw_plan_options o = *options;
    *refusal = (struct sw_plan_refusal){.beside = SIZE_MAX};
    o.refusal = refusal;
    if (o.two_places && !sw_may_take_two_places(&o)) {
        if (e->config->spillway.disk_slots == 2) {
            return SW_FAIL(
                SW_E_CONFIG,
                "spillway.disk_slots 2: LAMB of parameters in tiles (of %zu bytes) reads "
                "what it has written, and has one place for it",
                o.tile_bytes);
        }
        o.two_places = false;
    }
    const sw_status st = open_plan(e, &o);
    const bool helps = st == SW_E_NOMEM
                           ? refusal->missing / 2 <= refusal->beside || refusal->whatever_the_tiles
                           : st >= 0 && o.two_places && !is_cheap(e, &o);
    if (!o.two_places || e->config->spillway.disk_slots == 2 || !helps) {
        return st;
    }
    sw_plan_close(e->plan);
    e->plan = NULL;
    o.two_places = false;
    return open_plan(e, &o);
}

/* Whatever the tiles: what they forbid is seen with the plan. */
static bool may_take_two_places(const struct sw_plan_options *options)
{
    struct sw_plan_options whole = *options;
    whole.tile_bytes = 0;
    return sw_may_take_two_places(&whole);
}

/* Updates of what lies on the disk go beside what was where nothing but the disk needs room for it, or what does has a
 * budget that says how much. */
static bool wants_two_places(const struct sw_engine *e, const struct sw_plan_options *options)
{
    const int64_t slots = e->config->spillway.disk_slots;
    const enum sw_tier states = options->states_tier, params = options->params_tier;
    if (slots == 1 || e->one_place || !may_take_two_places(options)) {
        return false;
    }
    return slots == 2 || ((states == SW_TIER_DISK || options->budget[states] > 0) &&
                          (params == SW_TIER_DISK || options->budget[params] > 0));
}

/* What follows from the tiers that were chosen. */
static void settle_tiers(const struct sw_engine *e, struct sw_plan_options *options)
{
    const struct sw_config *c = e->config;
    const bool away = options->states_tier != SW_TIER_DEVICE;
    const bool moves = away || options->params_tier != SW_TIER_DEVICE ||
                       options->activations_tier != SW_TIER_DEVICE;
    options->grads_tier = away ? SW_TIER_HOST : SW_TIER_DEVICE;
    options->update_elems = moves ? sw_min_i64(c->zero.sub_group_elems, UPDATE_ELEMS) : 0;
    options->budget[SW_TIER_DEVICE] = (size_t)c->spillway.device_memory_bytes;
    options->budget[SW_TIER_HOST] = (size_t)c->spillway.host_memory_bytes;
    if (!moves && options->budget[SW_TIER_DEVICE] == 0) {
        /* nothing is anywhere else, and on the CPU both are the same memory */
        options->budget[SW_TIER_DEVICE] = options->budget[SW_TIER_HOST];
    }
    options->budget[SW_TIER_DISK] = (size_t)c->spillway.nvme_space_bytes;
    options->two_places = wants_two_places(e, options);
    const size_t asked = (size_t)c->spillway.transfer_bytes;
    const size_t half = options->budget[SW_TIER_DEVICE] / 2;
    options->transfer_bytes = !moves                        ? 0
                              : asked > 0                   ? asked
                              : half < LEAST_TRANSFER_BYTES ? LEAST_TRANSFER_BYTES
                              : half > MOST_TRANSFER_BYTES  ? MOST_TRANSFER_BYTES
                                                            : half;
}

/* Tiles are for what lies elsewhere, and are updated by themselves. */
static bool may_tile(const struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    return c->zero.offload_param.device != SW_OFFLOAD_NONE &&
           (!e->trains || (states_tier(c) != SW_TIER_DEVICE && !e->options.keep_gradients));
}

enum { LEAST_TILE = 1 << 15 }; /* bytes */

/* Tiles that nobody asked for take no second place away from who asked for it. */
static bool tiles_keep_places(const struct sw_engine *e, const struct sw_plan_options *options)
{
    struct sw_plan_options tiled = *options;
    tiled.tile_bytes = LEAST_TILE;
    return e->config->spillway.disk_slots != 2 || !options->two_places ||
           sw_may_take_two_places(&tiled);
}

/* Where the device's memory is too small for whole parameters, with the largest tiles that it has room for. */
static sw_status open_plan_in_tiles(struct sw_engine *e, const struct sw_plan_options *options,
                                    struct sw_plan_refusal *refusal)
{
    enum { LEAST_TRIES = 4 };
    const double begun = sw_now_s();
    const struct sw_config *c = e->config;
    struct sw_plan_options o = *options;
    if (o.tile_bytes > 0 && !may_tile(e)) {
        return SW_FAIL(SW_E_CONFIG, "spillway.tile_bytes: tiles want stage 3 with "
                                    "zero_optimization.offload_param and offload_optimizer, and no "
                                    "keep_gradients");
    }
    const bool asked = o.tile_bytes > 0;
    struct sw_plan_refusal last;
    sw_status st = open_plan_in_places(e, &o, refusal);
    o.tile_bytes = (size_t)c->spillway.device_memory_bytes;
    const bool helps = !asked && refusal->tier == SW_TIER_DEVICE && !refusal->whatever_the_tiles &&
                       may_tile(e) && tiles_keep_places(e, &o);
    for (int i = 0; st == SW_E_NOMEM && helps; i++) {
        o.tile_bytes /= 2;
        const bool late = e->ranks == 1 && sw_now_s() - begun > 0.5; /* ranks choose alike */
        if (o.tile_bytes < LEAST_TILE || (i >= LEAST_TRIES && late)) {
            break;
        }
        st = open_plan_in_places(e, &o, &last);
    }
    return st;
}

/* A change that makes a plan smaller. */
struct remedy {
    bool recompute;
    enum sw_tier states, params; /* at least so far away */
};

/* The stage that its tiers want. */
static int stage_of(const struct remedy *remedy)
{
    return remedy->params > SW_TIER_DEVICE || remedy->states == SW_TIER_DISK ? 3
           : remedy->states > SW_TIER_DEVICE                                 ? 1
                                                                             : 0;
}

/* On the disk, two places that are asked for, and cannot be had. */
static bool wants_other_places(const struct sw_engine *e, const struct sw_plan_options *options)
{
    const bool on_disk = options->rule && (options->states_tier == SW_TIER_DISK ||
                                           options->params_tier == SW_TIER_DISK);
    return e->config->spillway.disk_slots == 2 && on_disk && !may_take_two_places(options);
}

/* host_memory alone, and nothing offloaded: it is the budget of all, and the host no other place. */
static bool is_one_memory(const struct sw_engine *e, const struct sw_plan_options *options)
{
    return e->config->spillway.device_memory_bytes == 0 && options->budget[SW_TIER_DEVICE] > 0;
}

enum { HOST_PART = 4 }; /* of one memory, that is, where something is on the disk */

/* False: it changes nothing, or is not allowed. */
static bool apply(const struct sw_engine *e, const struct remedy *remedy,
                  struct sw_plan_options *options)
{
    const bool one_memory = is_one_memory(e, options);
    const size_t device = options->budget[SW_TIER_DEVICE];
    if (one_memory && (remedy->states == SW_TIER_HOST || remedy->params == SW_TIER_HOST)) {
        return false;
    }
    const bool recompute =
        remedy->recompute && options->recompute_every == 0 && e->programs.train >= 0;
    const bool states = remedy->states > options->states_tier && options->rule;
    const bool params = remedy->params > options->params_tier;
    if (recompute != remedy->recompute || states != (remedy->states > SW_TIER_DEVICE) ||
        params != (remedy->params > SW_TIER_DEVICE)) {
        return false; /* part of it is so already: another remedy is the rest alone */
    }
    options->recompute_every = recompute ? 1 : options->recompute_every;
    options->states_tier = states ? remedy->states : options->states_tier;
    options->params_tier = params ? remedy->params : options->params_tier;
    options->stage = options->stage < stage_of(remedy) ? stage_of(remedy) : options->stage;
    if ((options->boundary && options->stage >= 2) ||
        (states && e->config->zero.offload_optimizer.ratio <= 0)) {
        return false;
    }
    settle_tiers(e, options);
    if (one_memory && (states || params)) { /* part of the remedy, see describe */
        options->budget[SW_TIER_HOST] = device / HOST_PART;
        options->budget[SW_TIER_DEVICE] = device - device / HOST_PART;
    }
    return !wants_other_places(e, options);
}

/* More than this it cannot spare; recomputing leaves something. */
static bool is_hopeless(const struct remedy *remedy, const struct sw_plan_refusal *refusal)
{
    const size_t transients =
        remedy->recompute || remedy->states > SW_TIER_DEVICE || remedy->params > SW_TIER_DEVICE
            ? refusal->transients
            : 0;
    return refusal->tier == SW_TIER_DEVICE &&
           refusal->missing > transients + (remedy->states > SW_TIER_DEVICE ? refusal->states : 0) +
                                  (remedy->params > SW_TIER_DEVICE ? refusal->params : 0);
}

/* As keys of the configuration. */
static void describe(const struct sw_engine *e, const struct sw_plan_options *options,
                     const struct remedy *remedy, bool tiles, struct sw_str *out)
{
    static const char *const devices[] = {"none", "cpu", "nvme"};
    const char *path = remedy->states == SW_TIER_DISK || remedy->params == SW_TIER_DISK
                           ? " with its nvme_path"
                           : "";
    char items[6][96];
    int n = 0;
    if (remedy->recompute) {
        snprintf(items[n++], sizeof *items, "spillway.recompute \"blocks\"");
    }
    if (e->config->zero.stage < stage_of(remedy)) {
        snprintf(items[n++], sizeof *items, "zero_optimization.stage %d", stage_of(remedy));
    }
    if (remedy->states > SW_TIER_DEVICE) {
        snprintf(items[n++], sizeof *items, "zero_optimization.offload_optimizer.device \"%s\"%s",
                 devices[remedy->states], path);
    }
    if (remedy->params > SW_TIER_DEVICE) {
        snprintf(items[n++], sizeof *items, "zero_optimization.offload_param.device \"%s\"%s",
                 devices[remedy->params], path);
    }
    if (stage_of(remedy) > 0 && is_one_memory(e, options)) {
        const size_t all = options->budget[SW_TIER_DEVICE];
        snprintf(items[n++], sizeof *items, "spillway.device_memory %zu", all - all / HOST_PART);
        snprintf(items[n++], sizeof *items, "spillway.host_memory %zu", all / HOST_PART);
    }
    for (int i = 0; i < n; i++) {
        sw_str_printf(out, "%s%s",
                      i == 0       ? "; it fits with "
                      : i + 1 == n ? " and "
                                   : ", ",
                      items[i]);
    }
    sw_str_puts(out, tiles ? ", in tiles" : "");
}

/* Whether it makes the plan fit, also in tiles, which the run then finds as well. Plans that are put in order are counted;
 * what the host or the disk refuses is known before. */
static bool fits_with(struct sw_engine *e, const struct sw_plan_options *options,
                      const struct remedy *remedy, bool *tiles, int *n_plans)
{
    enum { PART = 8 };
    struct sw_plan_options o = *options;
    struct sw_plan_refusal refusal;
    *tiles = false;
    if (!apply(e, remedy, &o)) {
        return false;
    }
    sw_status st = open_plan_in_places(e, &o, &refusal);
    *n_plans += st != SW_E_NOMEM || refusal.transients > 0;
    if (st == SW_E_NOMEM && o.tile_bytes == 0 && refusal.tier == SW_TIER_DEVICE &&
        !refusal.whatever_the_tiles && o.params_tier != SW_TIER_DEVICE &&
        (!options->rule || o.states_tier != SW_TIER_DEVICE) && !o.keep_gradients &&
        o.budget[SW_TIER_DEVICE] / PART >= LEAST_TILE && tiles_keep_places(e, &o)) {
        o.tile_bytes = o.budget[SW_TIER_DEVICE] / PART;
        *tiles = true;
        *n_plans += 1;
        st = open_plan_in_places(e, &o, &refusal);
    }
    if (st >= 0) {
        sw_plan_close(e->plan);
        e->plan = NULL;
    }
    return st >= 0;
}

/* After a refusal: the smallest change that makes it fit joins the message. How many are tried depends on the plan alone,
 * so that the same refusal names the same. */
static sw_status name_remedy(struct sw_engine *e, const struct sw_plan_options *options,
                             const struct sw_plan_refusal *refusal, sw_status st)
{
    static const enum sw_tier here = SW_TIER_DEVICE, host = SW_TIER_HOST, disk = SW_TIER_DISK;
    const struct remedy remedies[] = {
        {true, here, here},  {false, host, here}, {true, host, here},  {false, here, host},
        {false, host, host}, {true, host, host},  {false, disk, here}, {false, here, disk},
        {false, disk, disk}, {true, disk, disk},
    };
    enum {
        MESSAGE = 2048,
        MOST_INSTRS = 12000
    }; /* that are planned for this: a fraction of a second */
    char *message = sw_alloc("engine", MESSAGE);
    if (!message) {
        return st;
    }
    snprintf(message, MESSAGE, "%s", sw_error_message());
    struct sw_str text = {0};
    int n_plans = 0;
    for (size_t i = 0; i < SW_LEN(remedies) && text.len == 0; i++) {
        bool tiles;
        if (n_plans * refusal->n_instrs <= MOST_INSTRS && !is_hopeless(&remedies[i], refusal) &&
            fits_with(e, options, &remedies[i], &tiles, &n_plans)) {
            describe(e, options, &remedies[i], tiles, &text);
        }
    }
    st = SW_FAIL(SW_E_NOMEM, "%s%s", message, sw_str_text(&text));
    sw_str_fini(&text);
    sw_free(message);
    return st;
}

static sw_status make_plan(struct sw_engine *e)
{
    const struct sw_engine_options *o = &e->options;
    const struct engine_programs *p = &e->programs;
    const struct sw_config *c = e->config;
    struct sw_plan_options options = {
        .query = query,
        .query_ctx = e->device,
        .kernel_set = sw_device_kernel_set(e->device),
        .micro_batches = e->micro_batches,
        .vertical = e->vertical,
        .fp16 = e->fp16,
        .clip = c->misc.gradient_clipping,
        .rule = e->trains ? &e->rule : NULL,
        .recompute_every =
            e->model ? sw_config_recompute_every(c, e->model->layers) : c->spillway.recompute_every,
        .keep_gradients = o->keep_gradients,
        .extra_fingerprint = extra_fingerprint(e),
        .ranks = e->ranks,
        .rank = e->rank,
        .stage = (int)c->zero.stage,
        .boundary = c->spillway.reduce == SW_REDUCE_BOUNDARY,
        .persistence_elems = c->zero.param_persistence_elems,
        .persistence_total = c->zero.model_persistence_elems,
        .states_tier = states_tier(c),
        .params_tier = tier_of(c->zero.offload_param.device),
        .activations_tier = c->activation.cpu_checkpointing ? SW_TIER_HOST : SW_TIER_DEVICE,
        .states_share = c->zero.offload_optimizer.ratio,
        .tile_bytes = (size_t)c->spillway.tile_bytes,
        .host_param_elems = c->zero.offload_param.max_in_cpu_elems,
        .overlap = c->zero.overlap_comm,
        .prefetch_elems = c->zero.prefetch_bucket_elems,
        .max_live_elems = c->zero.max_live_elems,
        .reduce_bucket_elems = c->zero.reduce_bucket_elems,
        .allgather_bucket_elems = c->zero.allgather_bucket_elems,
    };
    settle_tiers(e, &options);
    if (wants_other_places(e, &options)) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.disk_slots 2 wants all optimizer states off the device: "
                       "zero_optimization.offload_optimizer with a ratio of 1");
    }
    struct sw_plan_refusal refusal;
    const sw_status st = open_plan_in_tiles(e, &options, &refusal);
    if (st < 0) {
        return st == SW_E_NOMEM ? name_remedy(e, &options, &refusal, st) : st;
    }
    if (p->train >= 0) {
        const struct sw_program *program = &e->plan->programs[p->train];
        for (int micro = 0; micro < program->micro_batches; micro++) {
            sw_value *loss = &e->loss_outputs[2 * micro];
            loss[0] = sw_graph_find_output_of(program->graph, "loss.sum", micro);
            loss[1] = sw_graph_find_output_of(program->graph, "loss.count", micro);
        }
    }
    if (p->eval >= 0) {
        const struct sw_graph *g = e->plan->programs[p->eval].graph;
        e->eval_sum = sw_graph_find_output(g, "loss.sum");
        e->eval_count = sw_graph_find_output(g, "loss.count");
    }
    return SW_OK;
}

/* ---- open and close ---- */

/* Ranks that would not compute the same find out before the first step. */
static sw_status check_same_math(struct sw_engine *e)
{
    if (e->ranks == 1) {
        return SW_OK;
    }
    const int64_t mine = (int64_t)e->plan->fingerprint;
    SW_TRY(sw_comm_all_gather(e->options.comm, &mine, e->statuses, sizeof mine,
                              "the math fingerprint"));
    for (int r = 0; r < e->ranks; r++) {
        if (e->statuses[r] != mine) {
            return SW_FAIL(SW_E_PEER,
                           "rank %d would compute something else: its math fingerprint is %016llx, "
                           "that of rank %d is %016llx (model, configuration, --seed, --seq-len, "
                           "or a processor with other kernels)",
                           r, (unsigned long long)e->statuses[r], e->rank,
                           (unsigned long long)mine);
        }
    }
    return SW_OK;
}

/* A plan with two places has collectives that one with one has not. */
static sw_status agree_on_places(struct sw_engine *e)
{
    const int64_t mine = e->plan->two_places;
    if (e->ranks == 1) {
        return SW_OK;
    }
    SW_TRY(sw_comm_all_gather(e->options.comm, &mine, e->statuses, sizeof mine,
                              "the places of states"));
    for (int r = 0; r < e->ranks; r++) {
        e->one_place |= e->statuses[r] == 0;
    }
    return SW_OK;
}

static sw_status plan_in_one_place(struct sw_engine *e)
{
    sw_plan_close(e->plan);
    e->plan = NULL;
    e->one_place = true;
    SW_TRY(make_plan(e));
    sw_free(e->params);
    e->params = NULL;
    e->n_params = 0;
    return sw_engine_index_params(e);
}

/* Without a budget the disk itself says whether it has room for two places: on all ranks, or all take one. */
static sw_status open_executor(struct sw_engine *e, struct sw_executor_options options)
{
    bool full = false;
    options.disk_full = &full;
    const sw_status st = sw_executor_open(e->plan, e->device, &options, &e->executor);
    if (!e->plan->two_places || e->config->spillway.disk_slots == 2) {
        return st;
    }
    char message[1024];
    snprintf(message, sizeof message, "%s", full ? sw_error_message() : "another rank's disk");
    if (e->ranks > 1) {
        const int64_t mine = full;
        SW_TRY(sw_comm_all_gather(e->options.comm, &mine, e->statuses, sizeof mine,
                                  "the room for states"));
        for (int r = 0; r < e->ranks; r++) {
            full |= e->statuses[r] != 0;
        }
    }
    if (!full) {
        return st;
    }
    sw_executor_close(e->executor);
    e->executor = NULL;
    sw_log(SW_LOG_WARN, "%s: what a step updates takes one place on the disk, not two", message);
    SW_TRY(plan_in_one_place(e));
    if (e->ranks > 1) { /* the room that all have given back */
        SW_TRY(sw_comm_barrier(e->options.comm, "the room for states"));
    }
    return sw_executor_open(e->plan, e->device, &options, &e->executor);
}

static sw_status open_engine(struct sw_engine *e, const struct sw_engine_options *o)
{
    SW_TRY(load_config(e, o));
    SW_TRY(settle_config(e));
    SW_TRY(find_folders(e));
    SW_TRY(open_model(e, o));
    const struct sw_cpu_options cpu = {
        .n_threads = e->config->spillway.threads > 0 || e->ranks == 1
                         ? (int)e->config->spillway.threads
                         : (int)sw_max_i64(1, sw_cpu_count() / e->ranks),
        .reference = e->config->spillway.kernels == SW_KERNELS_REFERENCE,
    };
    SW_TRY(sw_device_open_cpu(&cpu, &e->device));
    SW_TRY(make_plan(e));
    SW_TRY(sw_engine_index_params(e));
    if (o->plan_only) {
        return SW_OK;
    }
    e->scratch = sw_alloc("engine", SW_SCRATCH_ELEMS * sizeof *e->scratch);
    SW_TRY_ALLOC(e->scratch, "conversions");
    SW_TRY(check_same_math(e));
    SW_TRY(agree_on_places(e));
    if (e->one_place && e->plan->two_places) {
        SW_TRY(plan_in_one_place(e));
    }
    const struct sw_executor_options options = {
        .swap = sw_engine_swap(e), .comm = o->comm, .verify = o->verify, .profile = o->profile};
    SW_TRY(open_executor(e, options));
    SW_TRY(sw_engine_open_trace(e));
    SW_TRY(sw_engine_zero_states(e));
    SW_TRY(e->folder ? sw_engine_load_folder(e) : sw_engine_init_weights(e));
    sw_hf_folder_close(e->folder);
    e->folder = NULL;
    return SW_OK;
}

sw_status sw_initialize(const struct sw_engine_options *options, sw_engine **out)
{
    SW_TRY_OPTIONS(options);
    struct sw_engine *e = sw_alloc_zero("engine", 1, sizeof *e);
    SW_TRY_ALLOC(e, "the engine");
    e->options = *options;
    e->export_dtype = SW_F32;
    e->lr_override = NAN;
    e->mesh = sw_mesh_of_data(options->comm ? sw_comm_size(options->comm) : 1);
    int place[SW_AXIS_COUNT];
    sw_mesh_place(&e->mesh, options->comm ? sw_comm_rank(options->comm) : 0, place);
    e->rank = place[SW_AXIS_DATA];
    e->ranks = e->mesh.size[SW_AXIS_DATA];
    sw_arena_init(&e->names, "engine");
    const sw_status st = open_engine(e, options);
    if (st < 0) {
        sw_close(e);
        return st;
    }
    *out = e;
    return SW_OK;
}

void sw_close(sw_engine *e)
{
    if (!e) {
        return;
    }
    sw_engine_close_trace(e);
    sw_executor_close(e->executor);
    sw_plan_close(e->plan);
    sw_device_close(e->device);
    sw_model_close(e->model);
    sw_json_close(e->model_doc);
    sw_hf_folder_close(e->folder);
    sw_config_close(e->config);
    sw_free(e->model_folder);
    sw_free(e->folders);
    sw_free(e->losses);
    sw_free(e->loss_outputs);
    sw_free(e->all_losses);
    sw_free(e->statuses);
    sw_free(e->params);
    sw_arena_fini(&e->names);
    sw_free(e->scratch);
    sw_free(e);
}

/* ---- inputs ---- */

static const struct sw_tensor *find_tensor(const struct sw_batch *batch, const char *name)
{
    for (int i = 0; i < batch->n_tensors; i++) {
        if (strcmp(batch->tensors[i].name, name) == 0) {
            return &batch->tensors[i];
        }
    }
    return NULL;
}

/* Ids and labels index tables: one outside would read beyond them. */
static sw_status check_ids(const struct sw_engine *e, const char *name, const struct sw_view *view)
{
    if (!e->model) {
        return SW_OK;
    }
    const bool labels = strcmp(name, "labels") == 0;
    if (!labels && strcmp(name, "input_ids") != 0) {
        return SW_OK;
    }
    const int64_t limit =
        labels && e->model->head == SW_HEAD_CLASSIFY ? e->model->labels : e->model->vocab;
    const int32_t *ids = view->data;
    const int64_t n = sw_shape_elems(&view->shape);
    for (int64_t i = 0; i < n; i++) {
        if ((ids[i] < 0 || ids[i] >= limit) && !(labels && ids[i] == -100)) {
            return SW_FAIL(SW_E_ARG, "%s: %d at element %lld; wanted 0 .. %lld%s", name, ids[i],
                           (long long)i, (long long)limit - 1, labels ? " or -100" : "");
        }
    }
    return SW_OK;
}

static sw_status give_positions(struct sw_engine *e, int i_program, sw_value v)
{
    const struct sw_value_info *info = &e->plan->programs[i_program].graph->values[v];
    const int64_t n = sw_shape_elems(&info->shape);
    SW_ASSERT(n <= SW_SCRATCH_ELEMS);
    int32_t *ids = (int32_t *)e->scratch;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)i;
    }
    return sw_executor_write(e->executor, i_program, v, ids, (size_t)n * sizeof *ids);
}

sw_status sw_engine_give_inputs(struct sw_engine *e, int i_program, int micro,
                                const struct sw_batch *batch)
{
    const struct sw_graph *g = e->plan->programs[i_program].graph;
    for (sw_value v = 0; v < g->n_values; v++) {
        const struct sw_value_info *info = &g->values[v];
        if (info->role != SW_ROLE_INPUT || info->producer >= 0 || info->micro != micro) {
            continue;
        }
        const struct sw_tensor *tensor = find_tensor(batch, info->name);
        if (!tensor && e->model && strcmp(info->name, "positions") == 0) {
            SW_TRY(give_positions(e, i_program, v));
            continue;
        }
        if (!tensor) {
            return SW_FAIL(SW_E_ARG, "the batch has no tensor \"%s\"", info->name);
        }
        if (tensor->view.dtype != info->dtype ||
            !sw_shape_equal(&tensor->view.shape, &info->shape)) {
            char have[96], want[96];
            return SW_FAIL(
                SW_E_ARG, "%s: wanted %s%s, got %s%s", info->name, sw_dtype_name(info->dtype),
                sw_shape_format(&info->shape, want, sizeof want), sw_dtype_name(tensor->view.dtype),
                sw_shape_format(&tensor->view.shape, have, sizeof have));
        }
        SW_TRY(check_ids(e, info->name, &tensor->view));
        SW_TRY(
            sw_executor_write(e->executor, i_program, v, tensor->view.data, sw_value_bytes(info)));
    }
    return SW_OK;
}

sw_status sw_engine_read_scalar(struct sw_engine *e, int i_program, sw_value v, double *out)
{
    float value = 0;
    SW_TRY(sw_executor_read(e->executor, i_program, v, &value, sizeof value));
    *out = value;
    return SW_OK;
}

/* ---- what it is ---- */

int64_t sw_engine_micro_batches(const sw_engine *e)
{
    return e->micro_batches;
}

int64_t sw_engine_local_micro_batches(const sw_engine *e)
{
    return e->local;
}

int64_t sw_engine_micro_batch_size(const sw_engine *e)
{
    return e->batch;
}

int64_t sw_engine_seq_len(const sw_engine *e)
{
    return e->tokens;
}

int64_t sw_engine_vocab(const sw_engine *e)
{
    return e->model ? e->model->vocab : 0;
}

int64_t sw_engine_step(const sw_engine *e)
{
    return e->step;
}

int64_t sw_engine_samples(const sw_engine *e)
{
    return e->samples;
}

int64_t sw_engine_tier_bytes(const sw_engine *e, int tier)
{
    return tier >= 0 && tier < SW_TIER_COUNT ? (int64_t)e->plan->tier_bytes[tier] : 0;
}

int64_t sw_engine_high_water(const sw_engine *e)
{
    return e->executor ? (int64_t)sw_executor_high_water(e->executor) : 0;
}

int64_t sw_engine_allocations(const sw_engine *e)
{
    struct sw_alloc_stats stats;
    sw_alloc_get_stats(&stats);
    return stats.n_calls + e->device->n_allocs;
}

double sw_engine_step_flops(const sw_engine *e)
{
    if (e->programs.train < 0) {
        return 0;
    }
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    double flops[SW_SEGMENT_COUNT] = {0};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_op *op = &program->graph->ops[program->instrs[i].op];
        if (!sw_op_is_collective(op->kind) && !sw_op_is_transfer(op->kind)) {
            flops[op->phase] += (double)sw_op_flops(program->graph, op);
        }
    }
    const double once = flops[SW_SEGMENT_FORWARD] + flops[SW_SEGMENT_BACKWARD];
    return once / program->micro_batches * (double)e->micro_batches +
           flops[SW_SEGMENT_UPDATE] * (double)e->micro_batches;
}
