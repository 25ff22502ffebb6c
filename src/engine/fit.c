// SPDX-License-Identifier: Apache-2.0
// The plan of an engine: the graphs that it is asked for, tiers, budgets and places as the
// configuration says; in tiles where the device has no room for whole parameters; and where nothing
// fits, the change with which it would.
#include <string.h>

#include "engine/private.h"

/* What is offloaded is updated by so many elements, and travels by so many bytes ahead of its
 * use: a few milliseconds of a disk. */
enum { UPDATE_ELEMS = 1 << 21, LEAST_TRANSFER_BYTES = 1 << 26, MOST_TRANSFER_BYTES = 1 << 30 };

enum { MOST_PROGRAMS = 5 };
struct engine_graphs {
    struct sw_program_spec specs[MOST_PROGRAMS];
    int n;
};

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
        if (sw_op_info(op->kind)->attrs != SW_ATTRS_LOSS_MEAN) {
            st = SW_FAIL(SW_E_ARG, "the loss must come from sw_cross_entropy or "
                                   "sw_linear_cross_entropy");
        } else {
            e->loss_weight = r->backward ? op->attrs.loss_mean.weight : e->loss_weight;
            sw_output(g, "loss.sum", op->in[0]);
            sw_output(g, "loss.count", op->in[1]);
        }
    }
    st = st < 0 ? st : sw_engine_learn_inputs(e, g);
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

sw_status sw_engine_find_folders(struct sw_engine *e)
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

/* The graphs of all programs that the engine is asked for. */
static sw_status build_all(struct sw_engine *e)
{
    const struct sw_engine_options *o = &e->options;
    struct engine_programs *p = &e->programs;
    struct engine_graphs *graphs = e->graphs;
    const bool train = !o->no_train;
    const bool generate = o->generate_tokens > 0 && e->model && e->model->head == SW_HEAD_LM;
    const int64_t chunk = sw_min_i64(SW_PREFILL_TOKENS, o->generate_tokens);
    *p = (struct engine_programs){-1, -1, -1, -1, -1};
    const struct {
        bool wanted;
        struct recipe recipe;
    } all[MOST_PROGRAMS] = {
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
    for (size_t i = 0; i < SW_LEN(all); i++) {
        if (all[i].wanted) {
            SW_TRY(build(e, &all[i].recipe, &graphs->specs[graphs->n]));
            *all[i].recipe.i_program = graphs->n++;
        }
    }
    return graphs->n > 0 ? SW_OK : SW_FAIL(SW_E_ARG, "the engine is asked for no program");
}

static void close_graphs(struct sw_engine *e)
{
    for (int i = 0; i < e->graphs->n; i++) {
        sw_graph_close((struct sw_graph *)(uintptr_t)e->graphs->specs[i].graph);
    }
    e->graphs = NULL;
}

static sw_status open_plan(struct sw_engine *e, const struct sw_plan_options *options)
{
    return sw_plan_open(e->graphs->specs, e->graphs->n, options, &e->plan);
}

/* Second slots in host memory, of what is cached there, are room that a cache of more would have.
 * What they would spare the disk, read and written once a step at least, is no more than a small
 * part of what it moves anyway. */
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
    if (o.two_slots && !sw_may_take_two_slots(&o)) {
        if (e->config->spillway.disk_slots == 2) {
            return SW_FAIL(
                SW_E_CONFIG,
                "spillway.disk_slots 2: LAMB of parameters in tiles (of %zu bytes) reads "
                "what it has written, and has one slot for it",
                o.tile_bytes);
        }
        o.two_slots = false;
    }
    const sw_status st = open_plan(e, &o);
    const bool helps = st == SW_E_NOMEM
                           ? refusal->missing / 2 <= refusal->beside || refusal->whatever_the_tiles
                           : st >= 0 && o.two_slots && !is_cheap(e, &o);
    if (!o.two_slots || e->config->spillway.disk_slots == 2 || !helps) {
        return st;
    }
    sw_plan_close(e->plan);
    e->plan = NULL;
    o.two_slots = false;
    return open_plan(e, &o);
}

/* Whatever the tiles: what they forbid is seen with the plan. */
static bool may_take_two_slots(const struct sw_plan_options *options)
{
    struct sw_plan_options whole = *options;
    whole.tile_bytes = 0;
    return sw_may_take_two_slots(&whole);
}

/* Updates of what lies on the disk go beside what was where nothing but the disk needs room for it,
 * or what does has a budget that says how much. */
static bool wants_two_slots(const struct sw_engine *e, const struct sw_plan_options *options)
{
    const int64_t slots = e->config->spillway.disk_slots;
    const enum sw_tier states = options->states_tier, params = options->params_tier;
    if (slots == 1 || e->one_slot || !may_take_two_slots(options)) {
        return false;
    }
    return slots == 2 || ((states == SW_TIER_DISK || options->budget[states] > 0) &&
                          (params == SW_TIER_DISK || options->budget[params] > 0));
}

/* What follows from the tiers that were chosen. */
static void choose_tiers(const struct sw_engine *e, struct sw_plan_options *options)
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
    options->two_slots = wants_two_slots(e, options);
    const size_t asked = (size_t)c->spillway.transfer_bytes;
    const size_t half = options->budget[SW_TIER_DEVICE] / 2;
    options->transfer_bytes = !moves                        ? 0
                              : asked > 0                   ? asked
                              : half < LEAST_TRANSFER_BYTES ? LEAST_TRANSFER_BYTES
                              : half > MOST_TRANSFER_BYTES  ? MOST_TRANSFER_BYTES
                                                            : half;
}

/* Tiles are for what is offloaded, and are updated by themselves. */
static bool may_tile(const struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    return c->zero.offload_param.device != SW_OFFLOAD_NONE &&
           (!e->trains || (states_tier(c) != SW_TIER_DEVICE && !e->options.keep_gradients));
}

enum { LEAST_TILE = 1 << 15 }; /* bytes */

/* Tiles that nobody asked for take no second slot away from who asked for it. */
static bool tiles_keep_places(const struct sw_engine *e, const struct sw_plan_options *options)
{
    struct sw_plan_options tiled = *options;
    tiled.tile_bytes = LEAST_TILE;
    return e->config->spillway.disk_slots != 2 || !options->two_slots ||
           sw_may_take_two_slots(&tiled);
}

/* Where the device's memory is too small for whole parameters, with the largest tiles that it has
 * room for. */
static sw_status open_plan_in_tiles(struct sw_engine *e, const struct sw_plan_options *options,
                                    struct sw_plan_refusal *refusal)
{
    /* However large the model, some are tried; then as many as are planned in about a second. By
     * work, not by a clock: the same question has the same answer. */
    enum { LEAST_TRIES = 4, MOST_INSTRS = 1 << 18 };
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
    int64_t planned = st == SW_E_NOMEM ? refusal->n_instrs : 0;
    o.tile_bytes = (size_t)c->spillway.device_memory_bytes;
    const bool helps = !asked && refusal->tier == SW_TIER_DEVICE && !refusal->whatever_the_tiles &&
                       may_tile(e) && tiles_keep_places(e, &o);
    for (int i = 0; st == SW_E_NOMEM && helps; i++) {
        o.tile_bytes /= 2;
        if (o.tile_bytes < LEAST_TILE || (i >= LEAST_TRIES && planned > MOST_INSTRS)) {
            break;
        }
        st = open_plan_in_places(e, &o, &last);
        planned += last.n_instrs;
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

/* On the disk, two slots that are asked for, and cannot be had. */
static bool wants_other_places(const struct sw_engine *e, const struct sw_plan_options *options)
{
    const bool on_disk = options->rule && (options->states_tier == SW_TIER_DISK ||
                                           options->params_tier == SW_TIER_DISK);
    return e->config->spillway.disk_slots == 2 && on_disk && !may_take_two_slots(options);
}

/* host_memory alone, and nothing offloaded: it is the budget of all, and the host no other
 * place. */
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
    choose_tiers(e, options);
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

/* Whether it makes the plan fit, also in tiles, which the run then finds as well. Plans that are
 * put in order are counted; what the host or the disk refuses is known before. */
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

/* After a refusal: the smallest change that makes it fit joins the message. How many are tried
 * depends on the plan alone, so that the same refusal names the same. */
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

/* The outputs that the parts of a step read. */
static void find_losses(struct sw_engine *e)
{
    const struct engine_programs *p = &e->programs;
    if (p->train >= 0) {
        const struct sw_program *program = &e->plan->programs[p->train];
        for (int micro = 0; micro < program->micro_batches; micro++) {
            const struct sw_port **loss = &e->loss_outputs[2 * micro];
            loss[0] = sw_program_output(program, "loss.sum", micro);
            loss[1] = sw_program_output(program, "loss.count", micro);
        }
    }
    if (p->eval >= 0) {
        const struct sw_program *program = &e->plan->programs[p->eval];
        e->eval_sum = sw_program_output(program, "loss.sum", 0);
        e->eval_count = sw_program_output(program, "loss.count", 0);
    }
}

sw_status sw_engine_make_plan(struct sw_engine *e)
{
    const struct sw_engine_options *o = &e->options;
    const struct sw_config *c = e->config;
    struct sw_plan_options options = {
        .query = query,
        .query_ctx = e->device,
        .kernel_set = sw_device_kernel_set(e->device),
        .micro_batches = e->micro_batches,
        .vertical = sw_engine_is_vertical(e),
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
        .staging_bytes = e->device->staging_bytes,
        .host_param_elems = c->zero.offload_param.max_in_cpu_elems,
        .overlap = c->zero.overlap_comm,
        .prefetch_elems = c->zero.prefetch_bucket_elems,
        .max_live_elems = c->zero.max_live_elems,
        .reduce_bucket_elems = c->zero.reduce_bucket_elems,
        .allgather_bucket_elems = c->zero.allgather_bucket_elems,
    };
    choose_tiers(e, &options);
    if (wants_other_places(e, &options)) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.disk_slots 2 wants all optimizer states off the device: "
                       "zero_optimization.offload_optimizer with a ratio of 1");
    }
    struct sw_plan_refusal refusal;
    struct engine_graphs graphs = {.n = 0};
    e->graphs = &graphs;
    sw_status st = build_all(e);
    if (st >= 0) {
        st = open_plan_in_tiles(e, &options, &refusal);
        st = st == SW_E_NOMEM ? name_remedy(e, &options, &refusal, st) : st;
    }
    close_graphs(e);
    SW_TRY(st);
    find_losses(e);
    return SW_OK;
}
