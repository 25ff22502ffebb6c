// SPDX-License-Identifier: Apache-2.0
// Opens an engine: configuration -> model -> graphs -> plan -> executor -> weights.
#include <string.h>

#include "engine/agree.h"
#include "engine/private.h"

/* ---- configuration ---- */

/* Reads the configuration with the options' edits, followed by `more` edits of ours. */
static sw_status read_config(struct sw_engine *e, const char *const *more, int n_more)
{
    const struct sw_engine_config *given = &e->options.config;
    const char *text = given->text ? given->text : "{}", **sets = NULL;
    const int n = given->n_sets + n_more;
    SW_TRY(sw_engine_join_sets(given, more, n_more, &sets));
    sw_config_close(e->config);
    e->config = NULL;
    const sw_status st =
        given->path ? sw_config_load(given->path, sets, n, &e->config)
                    : sw_config_parse("configuration", text, strlen(text), sets, n, &e->config);
    sw_free(sets);
    e->weights.config = e->config;
    return st;
}

/* An adapter's own configuration becomes an edit of ours. */
static sw_status edit_of_adapter(struct sw_engine *e, struct sw_str *out)
{
    if (e->config->spillway.lora.r > 0) {
        return SW_FAIL(
            SW_E_CONFIG,
            "an adapter (%s) and spillway.lora are both given; leave spillway.lora out, as the "
            "adapter has its own configuration",
            e->options.model.adapter);
    }
    return sw_weights_open_adapter(&e->weights, out);
}

/* The model's hidden size becomes an edit, too: sizes that are "auto" follow from it. */
static sw_status edit_of_size(struct sw_engine *e, char *out, size_t cap)
{
    int64_t hidden = 0;
    if (!e->options.model.path) {
        return sw_config_refuse_sizes(e->config, "a model of your own has none");
    }
    SW_TRY(sw_model_hidden_size(e->options.model.path, &hidden));
    snprintf(out, cap, "--hidden-size=%lld", (long long)hidden);
    return SW_OK;
}

static sw_status read_config_of_model(struct sw_engine *e)
{
    struct sw_str adapter = {0};
    char size[48], mesh[128];
    const char *more[3];
    int n = 0;
    sw_status st = SW_OK;
    SW_TRY_OR(done, read_config(e, NULL, 0));
    if (e->options.model.adapter) {
        SW_TRY_OR(done, edit_of_adapter(e, &adapter));
        more[n++] = sw_str_text(&adapter);
    }
    if (sw_config_wants_hidden_size(e->config)) {
        SW_TRY_OR(done, edit_of_size(e, size, sizeof size));
        more[n++] = size;
    }
    SW_TRY_OR(done, n > 0 ? read_config(e, more, n) : SW_OK);
    if (e->config->parallel.is_auto) {
        SW_TRY_OR(done, sw_engine_choose_mesh(e, mesh, sizeof mesh));
        more[n++] = mesh;
        SW_TRY_OR(done, read_config(e, more, n));
        sw_config_note_mesh(e->config);
    }
done:
    sw_str_fini(&adapter);
    return st;
}

static sw_status load_config(struct sw_engine *e, const struct sw_engine_options *o)
{
    if (o->config.path && o->config.text) {
        return SW_FAIL(SW_E_ARG, "config.path and config.text are both given");
    }
    SW_TRY(read_config_of_model(e));
    SW_TRY(sw_engine_take_mesh(e));
    SW_TRY(sw_weights_open_lora(&e->weights));
    SW_TRY(sw_engine_keep_choices(e));
    const sw_status st = sw_engine_resolve_batch(e);
    return st < 0 ? sw_engine_blame_choices(e, st) : sw_config_check_built(e->config);
}

sw_status sw_engine_resolve_batch(struct sw_engine *e)
{
    const int ranks = sw_engine_batch_ranks(e);
    SW_TRY(sw_config_resolve(e->config, ranks, 0));
    return ranks == e->data.size || e->config->batch.micro_batches == 0
               ? SW_OK
               : sw_config_resolve(e->config, e->data.size, e->config->batch.micro_batches);
}

static void size_step(const struct sw_config *c, int rank, int ranks, struct engine_sizes *out)
{
    out->batch = c->batch.micro_batch_size;
    out->micro_batches = c->batch.micro_batches > 0 ? c->batch.micro_batches
                                                    : c->batch.accumulation_steps * c->batch.ranks;
    out->rounds = sw_ceil_div(out->micro_batches, ranks);
    out->local = (out->micro_batches - rank + ranks - 1) / ranks;
}

sw_status sw_engine_take_batch(struct sw_engine *e)
{
    size_step(e->config, e->data.rank, e->data.size, &e->sizes);
    return sw_engine_open_losses(&e->loss, e->sizes.rounds, e->world.size);
}

static sw_status resolve_config(struct sw_engine *e)
{
    const struct sw_config *c = e->config;
    if (c->parallel.pipe > 1 && e->options.train.keep_gradients) {
        return SW_FAIL(SW_E_UNSUP,
                       "spillway.mesh.pipe %lld: stages keep no gradients of one micro-batch "
                       "(train.keep_gradients); ranks along data, tensor and context do",
                       (long long)c->parallel.pipe);
    }
    if (sw_engine_runs_at_once(e) && e->options.train.keep_gradients) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.schedule \"%s\" keeps no gradients of one micro-batch "
                       "(train.keep_gradients); \"horizontal\" does",
                       sw_schedule_name((enum sw_step_schedule)c->spillway.schedule));
    }
    e->dtype = c->fp16.enabled ? SW_F16 : c->bf16.enabled ? SW_BF16 : SW_F32;
    e->grad_dtype = c->misc.communication_data_type == SW_DTYPE_COUNT
                        ? e->dtype
                        : (enum sw_dtype)c->misc.communication_data_type;
    e->loss.by_tokens = c->spillway.loss == SW_LOSS_TOKENS;
    if (c->spillway.micro_batch != SW_MICRO_BATCH_AUTO) { /* otherwise the search does, in fit.c */
        SW_TRY(sw_engine_take_batch(e));
    }
    e->words = sw_alloc_zero("engine", (size_t)e->world.size, sizeof *e->words);
    SW_TRY_ALLOC(e->words, "the fingerprints of ranks");
    e->seed = sw_config_origin_of(c, "spillway.seed") > SW_CONFIG_DEFAULT
                  ? (uint64_t)c->spillway.seed
                  : e->options.seed;
    e->weights.seed = e->seed;
    return sw_engine_open_optimizer(c, e->options.train.wanted, &e->optimizer);
}

/* ---- open and close ---- */

/* Detects ranks with different arithmetic before the first step. */
static sw_status check_same_math(struct sw_engine *e)
{
    const int64_t mine = (int64_t)e->plan->fingerprint;
    SW_TRY(sw_engine_gather(e, mine, "the math fingerprint"));
    for (int r = 0; r < e->world.size; r++) {
        if (e->words[r] != mine) {
            return SW_FAIL(
                SW_E_PEER,
                "rank %d would compute different results: its math fingerprint is %016llx, that of "
                "rank %d is %016llx (model, configuration, --seed, --seq-len, or a processor with "
                "other kernels)",
                r, (unsigned long long)e->words[r], e->world.rank, (unsigned long long)mine);
        }
    }
    return SW_OK;
}

/* *out: `mine` is true on some rank. */
static sw_status is_any(struct sw_engine *e, bool mine, const char *what, bool *out)
{
    SW_TRY(sw_engine_gather(e, mine, what));
    for (int r = 0; r < e->world.size; r++) {
        *out |= e->words[r] != 0;
    }
    return SW_OK;
}

static sw_status plan_anew(struct sw_engine *e)
{
    sw_plan_close(e->plan);
    e->plan = NULL;
    SW_TRY(sw_engine_make_plan(e));
    return sw_weights_index(&e->weights, e->plan);
}

/* A hash of which gathers run once a step. */
static int64_t hash_of_once(const struct sw_plan *plan)
{
    uint64_t h = SW_HASH_INIT;
    for (int k = 0; k < plan->n_programs; k++) {
        const struct sw_program *program = &plan->programs[k];
        int32_t n = 0; /* gathers so far */
        for (int32_t i = 0; i < program->n_instrs; i++) {
            const struct sw_instr *instr = &program->instrs[i];
            n += instr->verb == SW_VERB_GATHER;
            if (instr->verb == SW_VERB_GATHER && instr->turn.once) {
                h = sw_hash(h, &n, sizeof n);
            }
        }
    }
    return (int64_t)h;
}

/* The ranks of a stage gather the same weights once a step: if their budgets differ, those that
 * only some of them have room for would be gathered by only some. Then all gather them again. */
static sw_status agree_on_once(struct sw_engine *e)
{
    bool same = true;
    const unsigned pipe = 1U << SW_AXIS_PIPE;
    SW_TRY(sw_engine_gather(e, hash_of_once(e->plan), "the weights that stay"));
    for (int r = 0; r < e->world.size; r++) {
        for (int s = 0; s < r; s++) {
            same &= e->words[r] == e->words[s] ||
                    sw_mesh_coord(&e->mesh, pipe, r).rank != sw_mesh_coord(&e->mesh, pipe, s).rank;
        }
    }
    e->agreed.brings_again |= !same;
    return same ? SW_OK : plan_anew(e);
}

static sw_status plan_in_one_slot(struct sw_engine *e)
{
    e->agreed.one_slot = true;
    SW_TRY(plan_anew(e));
    return agree_on_once(e);
}

/* Without a budget the disk itself decides whether two slots fit. All ranks get two slots, or all
 * get one. Updates within the next forward need two. */
static sw_status open_executor(struct sw_engine *e, struct sw_executor_options options)
{
    bool full = false;
    options.disk_full = &full;
    const sw_status st = sw_executor_open(e->plan, e->device, &options, &e->executor);
    char message[1024];
    snprintf(message, sizeof message, "%s", full ? sw_error_message() : "another rank's disk");
    if (full && e->plan->update.in_forward) {
        return SW_FAIL(st,
                       "%s; a smaller spillway.next_forward_share, or spillway.clipped_update "
                       "\"end\", needs less",
                       message);
    }
    if (!e->plan->update.two_slots || e->plan->update.in_forward ||
        e->config->spillway.disk_slots == 2) {
        return st;
    }
    SW_TRY(is_any(e, full, "the room for states", &full));
    if (!full) {
        return st;
    }
    sw_executor_close(e->executor);
    e->executor = NULL;
    sw_log(SW_LOG_WARN, "%s: updates have one slot on the disk, not two", message);
    SW_TRY(plan_in_one_slot(e));
    if (e->world.size > 1) { /* retry in the space that all ranks have freed */
        SW_TRY(sw_comm_barrier(e->options.run.comm, "the room for states"));
    }
    return sw_executor_open(e->plan, e->device, &options, &e->executor);
}

/* Warns about settings that have no effect: flags that no key takes, and sparse_gradients if the
 * host cannot pack the rows. */
static void warn(const struct sw_engine *e)
{
    /* look/stages.c warns once for all stages */
    const bool of_stages = e->options.plan.only && e->options.run.comm;
    if (e->world.rank == 0 && !of_stages) {
        sw_config_warn(e->config);
    }
    if (e->config->spillway.capture && e->device->no_capture && e->world.rank == 0) {
        sw_log(SW_LOG_WARN, "spillway.capture: launches are not captured: %s",
               e->device->no_capture);
    }
    if (e->config->misc.sparse_gradients && e->data.size > 1 && e->world.rank == 0 &&
        !sw_engine_packs_rows(e)) {
        sw_log(SW_LOG_WARN, "sparse_gradients: on device %s gradients are sent as slices, not rows",
               e->device->ops->name);
    }
}

/* Prepares the plan for running: executor, buffers and weights. */
static sw_status prepare(struct sw_engine *e, const struct sw_engine_options *o)
{
    e->scratch =
        sw_alloc("engine", (size_t)sw_engine_scratch_elems(&e->sizes) * sizeof *e->scratch);
    SW_TRY_ALLOC(e->scratch, "conversions");
    e->weights.scratch = e->scratch;
    SW_TRY(check_same_math(e));
    /* a plan with two slots has collectives that a plan with one slot does not have */
    SW_TRY(is_any(e, !e->plan->update.two_slots, "the places of states", &e->agreed.one_slot));
    if (e->agreed.one_slot && e->plan->update.two_slots) {
        SW_TRY(plan_anew(e));
    }
    SW_TRY(agree_on_once(e));
    const struct sw_executor_options options = {.swap = sw_engine_swap(e),
                                                .comm = o->run.comm,
                                                .library = e->agreed.uses_library,
                                                .library_sums = e->config->spillway.library_sums,
                                                .host = e->host,
                                                .capture = e->config->spillway.capture,
                                                .verify = o->run.verify,
                                                .profile = o->run.profile,
                                                .phase_times =
                                                    e->config->misc.wall_clock_breakdown};
    SW_TRY(open_executor(e, options));
    e->weights.executor = e->executor;
    SW_TRY(sw_engine_agree_on_algorithms(e));
    SW_TRY(sw_engine_open_trace(e));
    SW_TRY(sw_weights_zero_states(&e->weights));
    /* training prints this in its first lines */
    const bool imported = sw_onnx_is_import(e->weights.model);
    if (e->weights.model && !e->weights.source.files && !e->weights.given && !imported &&
        !o->train.wanted) {
        sw_log(SW_LOG_WARN, "%s: there is no folder with weights; they are drawn with seed %llu",
               o->model.path, (unsigned long long)e->seed);
    }
    SW_TRY(e->weights.source.files ? sw_weights_read_folder(&e->weights)
           : e->weights.given      ? sw_weights_take_given(&e->weights)
           : imported              ? sw_weights_read_imported(&e->weights)
                                   : sw_weights_draw(&e->weights));
    sw_weights_close_files(&e->weights);
    return sw_weights_read_adapter(&e->weights);
}

/* A plan that does not fit is one of this stage of the pipeline. */
static sw_status make_plan(struct sw_engine *e)
{
    const struct sw_coord pipe = sw_mesh_coord(&e->mesh, 1U << SW_AXIS_PIPE, e->world.rank);
    const sw_status st = sw_engine_make_plan(e);
    return st == SW_E_NOMEM && pipe.size > 1 && !e->search.refusal
               ? sw_fail_prefix(st, "stage %d of %d", pipe.rank, pipe.size)
               : st;
}

static sw_status open_engine(struct sw_engine *e, const struct sw_engine_options *o)
{
    SW_TRY(load_config(e, o));
    SW_TRY(resolve_config(e));
    SW_TRY(sw_engine_find_folders(e));
    SW_TRY(sw_engine_open_source(e));
    SW_TRY(sw_engine_find_hosts(e));
    e->machine.threads = sw_engine_share_threads(e);
    SW_TRY(sw_engine_open_device(e, &e->device));
    SW_TRY(sw_engine_open_host(e, &e->host));
    SW_TRY(sw_engine_choose_library(e));
    warn(e);
    if (!o->plan.only) { /* before the ranks search for a plan together */
        SW_TRY(sw_engine_agree_on_setup(e));
    }
    SW_TRY(make_plan(e));
    SW_TRY(sw_weights_index(&e->weights, e->plan));
    return o->plan.only ? SW_OK : prepare(e, o);
}

/* Embedding asks for the hidden states of the task "embed". */
static sw_status take_options(const struct sw_engine_options *options, struct sw_engine *e)
{
    struct sw_engine_options *o = &e->options;
    *o = *options;
    e->weights.options = o;
    if (o->embed.wanted) {
        if (o->model.task && strcmp(o->model.task, "embed") != 0) {
            return SW_FAIL(SW_E_ARG, "embed.wanted: the task is \"%s\", wanted \"embed\" or none",
                           o->model.task);
        }
        o->model.task = "embed";
        o->evaluate.logits = true;
    }
    if (o->generate.tokens < 0 || (o->generate.tokens > 0 && !o->generate.wanted)) {
        return SW_FAIL(SW_E_ARG, "generate.tokens is %lld; wanted 0, or more with generate.wanted",
                       (long long)o->generate.tokens);
    }
    return SW_OK;
}

static struct sw_coord world_of(const sw_comm *comm)
{
    return comm ? (struct sw_coord){sw_comm_rank(comm), sw_comm_size(comm)}
                : (struct sw_coord){0, 1};
}

sw_status sw_engine_try(const struct sw_engine_options *options, struct sw_plan_refusal *refusal,
                        struct sw_named_values *given, sw_engine **out)
{
    struct sw_engine *e = sw_alloc_zero("engine", 1, sizeof *e);
    SW_TRY_ALLOC(e, "the engine");
    e->world = world_of(options->run.comm);
    e->search.refusal = refusal;
    e->weights.given = given;
    sw_status st = take_options(options, e);
    st = st < 0 ? st : open_engine(e, &e->options);
    if (st < 0) {
        sw_close(e);
        return st;
    }
    *out = e;
    return SW_OK;
}

sw_status sw_initialize(const struct sw_engine_options *options, sw_engine **out)
{
    SW_TRY_OPTIONS(options);
    return sw_engine_try(options, NULL, NULL, out);
}

/* ---- the mesh alone ---- */

static sw_status describe_mesh(struct sw_engine *e, struct sw_str *out)
{
    enum { MOST = 16 };
    char name[96];
    SW_TRY(read_config(e, NULL, 0));
    if (e->config->parallel.is_auto) {
        sw_str_puts(out, "mesh: \"auto\", chosen for a model (spillway plan --model)\n");
        return SW_OK;
    }
    SW_TRY(sw_engine_take_mesh(e));
    SW_TRY(sw_engine_find_hosts(e));
    sw_engine_print_mesh(e, out);
    for (int r = 0; r < e->world.size && r < MOST && e->world.size > 1; r++) {
        const char *host = sw_engine_host(e, r);
        sw_str_printf(out, "  rank %-4d %s%s%s\n", r,
                      sw_mesh_format(&e->mesh, r, name, sizeof name), host ? " on " : "",
                      host ? host : "");
    }
    sw_str_puts(out, e->world.size > MOST ? "  ..\n"
                     : e->world.size == 1 ? "mesh: one rank\n"
                                          : "");
    return SW_OK;
}

sw_status sw_engine_describe_mesh(const struct sw_engine_options *options, struct sw_str *out)
{
    struct sw_engine *e = sw_alloc_zero("engine", 1, sizeof *e);
    SW_TRY_ALLOC(e, "the engine");
    e->options = *options;
    e->world = world_of(options->run.comm);
    const sw_status st = describe_mesh(e, out);
    sw_close(e);
    return st;
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
    sw_device_close(e->host);
    sw_weights_close(&e->weights);
    sw_engine_close_optimizer(&e->optimizer);
    sw_config_close(e->config);
    sw_engine_close_lent(e);
    sw_free(e->machine.hosts);
    sw_free(e->folders);
    sw_free(e->stage_blocks);
    sw_mesh_choice_fini(&e->search.mesh);
    sw_engine_close_losses(&e->loss);
    sw_free(e->words);
    sw_engine_forget_inputs(&e->bounds);
    sw_free(e->scratch);
    sw_free(e);
}

/* ---- properties ---- */

sw_status sw_engine_read_scalar(struct sw_engine *e, const struct sw_port *port, double *out)
{
    float value = 0;
    SW_TRY(sw_executor_read(e->executor, port, &value, sizeof value));
    *out = value;
    return SW_OK;
}

int64_t sw_engine_micro_batches(const sw_engine *e)
{
    return e->sizes.micro_batches;
}

int64_t sw_engine_local_micro_batches(const sw_engine *e)
{
    return e->sizes.local;
}

int64_t sw_engine_micro_batch_size(const sw_engine *e)
{
    return e->sizes.batch;
}

int64_t sw_engine_seq_len(const sw_engine *e)
{
    return e->sizes.tokens;
}

int64_t sw_engine_vocab(const sw_engine *e)
{
    return e->weights.model ? e->weights.model->vocab : 0;
}

int64_t sw_engine_step(const sw_engine *e)
{
    return e->progress.step;
}

int64_t sw_engine_samples(const sw_engine *e)
{
    return e->progress.samples;
}
uint64_t sw_engine_seed(const sw_engine *e)
{
    return e->seed;
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
    double each = 0, once = 0; /* per micro-batch, per step */
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool updates =
            instr->last_only || instr->turn.first_only || instr->segment >= SW_SEGMENT_UPDATE;
        if (instr->verb == SW_VERB_KERNEL) {
            *(updates ? &once : &each) += (double)instr->flops * sw_instr_pieces(program, instr);
        }
    }
    return each / program->micro_batches * (double)e->sizes.micro_batches + once;
}
