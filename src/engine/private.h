// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of the engine. Private to the room.
#pragma once

#include <stdio.h>

#include "base/base.h"
#include "config/config.h"
#include "device/device.h"
#include "engine/engine.h"
#include "json/json.h"
#include "layout/layout.h"
#include "optim/optim.h"
#include "task/task.h"
#include "weights/weights.h"

/* Indexes of the plan's programs; -1 = not planned. */
struct engine_programs {
    int train, eval, logits;
    /* a chunk of a prompt, SW_PREFILL_TOKENS; encoder-decoder: the whole source text */
    int prefill;
    int decode; /* one token */
};
enum { SW_PREFILL_TOKENS = 32 };

/* Trace of the steps first .. last; see trace.c. */
struct engine_trace {
    struct sw_trace *trace;    /* NULL = none */
    int64_t first, last;       /* 0 = not yet known */
    int64_t begin_ns, base_ns; /* start of the current step; start of the first step */
    bool began;                /* true after the first step has begun, traced or not */
    bool recording, done, written;
    struct sw_output output; /* on rank 0 */
};

enum { SW_ENGINE_TOTALS = 2 }; /* outputs with totals: of preferences, of experts */

/* The loss of a micro-batch is a sum of terms; each term is a weight times a mean. A program
 * returns a sum and a count for each term. See loss.c. */
struct engine_loss {
    bool by_tokens; /* weighted by 1 / targets of the step, instead of the micro-batch */
    int n_terms;
    int n_totals;   /* sums and counts for metrics, after those of the terms */
    bool has_loads; /* the last SW_LOADS of them */
    double weights[SW_TASK_MAX_TERMS];
    enum sw_loss_of of[SW_TASK_MAX_TERMS];
    double row_weight; /* attrs.loss_mean.weight */
    /* training program: [rounds, terms, 2]; [1, terms, 2] if it holds one micro-batch */
    const struct sw_port **outputs;
    const struct sw_port *eval_outputs[2 * SW_TASK_MAX_TERMS]; /* [terms, 2] */
    /* [rounds] or [1], likewise, of each output of totals; NULL = there is none */
    const struct sw_port *(*totals)[SW_ENGINE_TOTALS], *eval_totals[SW_ENGINE_TOTALS];
    double *local;                                /* [rounds, terms + totals, 2] of this rank */
    double *all;                                  /* [world, rounds, terms + totals, 2] */
    double step_totals[2 * SW_ENGINE_MAX_TOTALS]; /* of the last step, over all ranks */
    double step_terms[SW_TASK_MAX_TERMS];         /* likewise: means over its micro-batches */
    /* Last step, added up in the order of k: sum and count of the first term, and the losses of the
     * micro-batches. */
    double sum, count, means;
};

/* See optimizer.c. */
struct engine_optimizer {
    bool trains; /* false: there is no optimizer, and rule, schedule and rates are zero */
    struct sw_update_rule rule;
    struct sw_schedule schedule;
    struct sw_rates rates;   /* of the current step */
    double lr_override;      /* learning rate of the next step; NaN = the schedule's */
    struct sw_scaler scaler; /* loss scale */
};

/* Sizes of a step; they follow from the configuration, the model and the ranks. */
struct engine_sizes {
    int64_t batch, tokens, targets; /* of a micro-batch: B, T, and U for an encoder-decoder */
    int64_t micro_batches;          /* of a step, over all ranks: K */
    int64_t rows;                   /* of a sample in a micro-batch: 1, or 2 for preferences */
    int64_t rounds, local;          /* on this rank: micro-steps, ceil(K / R), and micro-batches */
};
static inline int64_t sw_engine_scratch_elems(const struct engine_sizes *s)
{
    return sw_max_i64(SW_WEIGHTS_SCRATCH, s->rows * s->batch * sw_max_i64(s->tokens, s->targets));
}

/* Progress of the training. */
struct engine_progress {
    int64_t step, applied, samples; /* steps, applied updates, samples */
    int32_t phase;                  /* next phase of the plan's step; 0 = no step is in progress */
    bool failed;                    /* a step failed halfway: the state must not be used */
    bool rolled_back;               /* the previous step was rolled back */
};

/* Value ranges of the inputs of all programs; see inputs.c. */
struct engine_bounds {
    struct engine_bound *items;
    int n;
    struct sw_arena names;
};

/* Results of searches, beside the plan. */
struct engine_search {
    struct sw_mesh_choice mesh;      /* without tries if the mesh was not "auto" */
    struct sw_plan_refusal *refusal; /* see struct sw_search; borrowed while opening */
};

/* All ranks agree on these. */
struct engine_agreed {
    bool one_slot;     /* some rank has no room for two slots, see sw_plan_options */
    bool brings_again; /* ranks have room for different weights, so no gathered ones stay */
    bool uses_library; /* library.c: the devices' library exchanges among ranks */
};

enum { SW_HOST_NAME = 64 }; /* bytes, with the terminating NUL */

/* Where a rank runs. In a plan without ranks, cpus is 0. */
struct engine_host {
    char name[SW_HOST_NAME];
    uint64_t cpus; /* sw_cpu_mask */
};

struct engine_machine {
    struct engine_host *hosts; /* [world]; NULL = not known */
    int threads;               /* sw_engine_share_threads */
};

struct sw_engine {
    struct sw_engine_options options; /* strings are valid only while opening */
    struct sw_config *config;
    struct sw_weights weights;
    enum sw_dtype dtype, grad_dtype;
    struct engine_sizes sizes;
    struct sw_mesh mesh;
    struct sw_coord world, data; /* this rank among all ranks, and along the data axis */
    struct engine_machine machine;
    sw_comm *lent[SW_AXIS_COUNT]; /* communicators of sw_engine_group; NULL = not asked for yet */
    int64_t *words;               /* [world] results of sw_engine_gather */
    struct engine_optimizer optimizer;
    struct sw_device *device, *host; /* host: see sw_engine_open_host */
    struct sw_plan *plan;
    struct sw_executor *executor;
    /* [n_folders] disk folders; the array is owned, the strings are the configuration's */
    const char **folders;
    int n_folders;
    int *stage_blocks; /* see struct sw_plan_options; NULL = there is one stage */
    struct engine_programs programs;
    struct engine_trace trace;
    struct engine_bounds bounds; /* of the inputs */
    struct engine_loss loss;
    float *scratch; /* [sw_engine_scratch_elems] for conversions and for omitted inputs */
    struct engine_progress progress;
    uint64_t seed;
    struct engine_search search;
    struct engine_agreed agreed;

    /* the run that drives the engine, on rank 0; zeros elsewhere */
    struct sw_training training;
};

/* True if one run of a program computes all micro-batches of this rank. */
static inline bool sw_engine_runs_at_once(const struct sw_engine *e)
{
    return sw_schedule_is_at_once((enum sw_step_schedule)e->config->spillway.schedule);
}

/* ---- mesh.c ---- */
/* Arranges the ranks as the configuration says. SW_E_CONFIG: the sizes do not make up the ranks. */
sw_status sw_engine_take_mesh(struct sw_engine *e);
/* Gathers the hosts of all ranks. With plan.only, takes those that the rates
 * describe. Collective, except with plan.only. */
sw_status sw_engine_find_hosts(struct sw_engine *e);
void sw_engine_close_lent(struct sw_engine *e);
/* Number of data ranks that the batch keys assume. */
int sw_engine_batch_ranks(const struct sw_engine *e);

/* ---- inputs.c ---- */
/* Learns the value range of each input of a graph. Call it on the graph as the forward describes
 * it, before passes shard the tables that inputs index. */
sw_status sw_engine_learn_inputs(struct engine_bounds *bounds, const struct sw_graph *g);
/* Call it before the graphs of a plan are learned, and when the engine closes. */
void sw_engine_forget_inputs(struct engine_bounds *bounds);
/* SW_E_ARG names a tensor that is missing, has another shape or dtype, or holds ids or labels out
 * of range. Nothing has run then. micro: the micro-batch, in a program that holds several; else
 * 0. */
sw_status sw_engine_check_inputs(const struct sw_engine *e, int i_program, int micro,
                                 const struct sw_batch *batch);
/* Passes the inputs of a checked batch to the program. */
/* round: micro-step that the inputs are for; -1 = not part of a step. */
sw_status sw_engine_give_inputs(struct sw_engine *e, int i_program, int micro, int64_t round,
                                const struct sw_batch *batch);

/* ---- rules.c ---- */
/* A text being generated: the tokens before, then the new tokens. */
struct engine_text {
    const int32_t *before, *fresh;
    int64_t n_before, n_fresh, most; /* most: limit on new tokens */
};
/* Returns the next token if a rule fixes it, else -1. In that case the logits of forbidden tokens
 * become minus infinity. */
int32_t sw_engine_apply_rules(const struct engine_text *text, const struct sw_sampling *sampling,
                              float *logits, int64_t vocab);
bool sw_engine_ends_text(const struct sw_sampling *sampling, int32_t id);

/* ---- device.c ---- */
/* Compute threads of this rank: the configured number, or its share of the host's processors. */
int sw_engine_share_threads(const struct sw_engine *e);
/* True if the host packs rows of gradients, and ranks read them in place. */
bool sw_engine_packs_rows(const struct sw_engine *e);
/* Bytes of each tier that a plan may use: the configured budgets; on a GPU, at most its free
 * memory; on a simulated one, what its cluster has unless the key is given. 0 = unlimited. */
void sw_engine_budgets(const struct sw_engine *e, size_t out[SW_TIER_COUNT]);

/* ---- library.c ---- */
/* Sets uses_library: the device's library exchanges among ranks. SW_E_CONFIG names ranks that
 * cannot do so together. Collective, except with plan.only. */
sw_status sw_engine_choose_library(struct sw_engine *e);
/* Device memory that its communicators take. */
size_t sw_engine_library_bytes(const struct sw_engine *e);

/* ---- optimizer.c ---- */
/* wanted: train if the configuration has an optimizer. */
sw_status sw_engine_open_optimizer(const struct sw_config *c, bool wanted,
                                   struct engine_optimizer *out);
void sw_engine_close_optimizer(struct engine_optimizer *o);
/* Assigns the parameters of a graph to the parameter groups of the rule. */
sw_status sw_engine_bind_groups(struct engine_optimizer *o, const struct sw_graph *g);
/* Hashes the rates of a sample of steps. */
uint64_t sw_engine_hash_rates(const struct engine_optimizer *o, uint64_t h);
/* Sets the learning rates for update number `applied`. */
void sw_engine_next_rates(struct engine_optimizer *o, int64_t applied);

/* ---- loss.c ---- */
/* Numbers of a micro-batch: sums and counts of its terms, then of its totals. */
static inline int sw_engine_n_sums(const struct engine_loss *l)
{
    return 2 * (l->n_terms + l->n_totals);
}
/* The totals of a model: those of preferences, those of experts. */
void sw_engine_expect_totals(struct engine_loss *l, bool preferences, bool experts);
/* Allocates the losses of a step. */
sw_status sw_engine_open_losses(struct engine_loss *l, int64_t rounds, int ranks);
void sw_engine_close_losses(struct engine_loss *l);
/* Makes the sums and counts of the terms of a graph's loss outputs of the graph. SW_E_ARG: the loss
 * is not a sum of scaled means. */
sw_status sw_engine_learn_loss(struct engine_loss *l, sw_graph *g, sw_value loss, bool backward);
/* Finds the loss outputs of the training and evaluation programs. */
void sw_engine_find_losses(struct engine_loss *l, const struct sw_plan *plan,
                           const struct engine_programs *programs);
/* Adds up the losses of a step: `local` on one rank, `all` on several. The last stage of a pipeline
 * has them, and each rank of its tensor and context axes has the same. */
void sw_engine_total_losses(struct engine_loss *l, const struct engine_sizes *s,
                            const struct sw_mesh *mesh);
/* The loss of the step, from those sums. */
double sw_engine_step_loss(const struct engine_loss *l, const struct engine_sizes *s);
/* Factor that turns gradients summed over the step's micro-batches into their mean. */
double sw_engine_loss_share(const struct engine_loss *l, const struct engine_sizes *s);

/* ---- choose_mesh.c ---- */
/* Chooses the sizes of a mesh that is "auto", and writes them as an edit of the configuration.
 * Collective. */
sw_status sw_engine_choose_mesh(struct sw_engine *e, char *edit, size_t cap);

/* ---- open.c ---- */
/* sw_initialize. refusal: see struct sw_search; may be NULL. given: values of the weights instead
 * of a folder's or drawn ones; NULL = none */
sw_status sw_engine_try(const struct sw_engine_options *options, struct sw_plan_refusal *refusal,
                        struct sw_named_values *given, sw_engine **out);
/* Reads an f32 (or f64) scalar output. */
sw_status sw_engine_read_scalar(struct sw_engine *e, const struct sw_port *port, double *out);

/* Computes the batch sizes, again after a choice, and the sizes that follow from them. */
sw_status sw_engine_resolve_batch(struct sw_engine *e);
sw_status sw_engine_take_batch(struct sw_engine *e);

/* ---- options.c ---- */
/* Opens the model and checks the options against it, or checks that a forward is given. */
sw_status sw_engine_open_source(struct sw_engine *e);

/* SW_E_CONFIG: spillway.mesh.expert, and what it cannot be combined with. Once the device is open
 * and the number of micro-batches is known. */
sw_status sw_engine_check_expert_axis(const struct sw_engine *e);

/* ---- choose.c: keys that are "auto" ---- */
/* Keeps the choices of the checkpoint that the run resumes from, if there is one. Collective. */
sw_status sw_engine_keep_choices(struct sw_engine *e);
/* Finds the sizes of the tensor and context axes in the checkpoint that the run resumes from; 0 =
 * there is none. */
sw_status sw_engine_keep_cuts(const struct sw_engine *e, int *tensor, int *context);
/* Adds to an error that happened under values chosen earlier: the message names those values. */
sw_status sw_engine_blame_choices(const struct sw_engine *e, sw_status st);
/* Finds the rates; they are the same on all ranks. Collective if a key is "auto". */
sw_status sw_engine_find_rates(struct sw_engine *e, struct sw_machine_rates *rates);
/* Callbacks of struct sw_search: next and agree. */
void sw_engine_next_micro_batch(const struct sw_engine *e, int64_t most, struct sw_policy *policy);
sw_status sw_engine_agree_on_try(struct sw_engine *e, struct sw_verdict *verdict);

/* ---- fit.c ---- */
/* Collects the folders of the disk tier. One tier holds states and parameters; its folders are
 * those of the optimizer, then further ones of the parameters. */
sw_status sw_engine_find_folders(struct sw_engine *e);
/* Plans all programs that the engine is asked for. SW_E_NOMEM names the missing bytes and a change
 * that makes it fit. */
sw_status sw_engine_make_plan(struct sw_engine *e);

/* ---- partition.c ---- */
/* Divides the blocks of all programs, which each part needs one of at least. rates: for "time".
 * bounds: [parts + 1] first block of each part, and the number of blocks. SW_E_CONFIG: more
 * chunks than blocks, a list of blocks that does not suit the model, or a pattern that no block
 * matches. */
sw_status sw_engine_cut_blocks(const struct sw_program_spec *specs, int n_specs,
                               const struct sw_config *config, const struct sw_machine_rates *rates,
                               int parts, int *bounds);

/* ---- trace.c ---- */
sw_status sw_engine_open_trace(struct sw_engine *e);
/* Called before and after every step. The end of the last step writes the file. Collective. */
void sw_engine_begin_trace(struct sw_engine *e);
/* Abandons the current step: work until it begins again is not traced. */
void sw_engine_pause_trace(struct sw_engine *e);
sw_status sw_engine_end_trace(struct sw_engine *e);
void sw_engine_close_trace(struct sw_engine *e);

/* ---- step.c ---- */
/* SW_E_ARG: a step is in progress, and `what` must wait for its end. */
sw_status sw_engine_check_idle(const struct engine_progress *p, const char *what);

/* Reads any float output, widened to f32. */
sw_status sw_engine_read_output(struct sw_engine *e, const struct sw_port *port, float *out);

/* ---- agree.c ---- */
/* Returns the worst status of all ranks, the same everywhere. On one rank: st. */
sw_status sw_engine_agree(struct sw_engine *e, sw_status st, const char *what);
/* Gathers one word of each rank into e->words. Collective. */
sw_status sw_engine_gather(const struct sw_engine *e, int64_t mine, const char *what);

/* ---- onnx_case.c ---- */
/* Writes 8 random batches and their logits, "0.input_ids", .., "0.logits", to a safetensors file.
 * config: the model's config.json. Takes the memory of the model. */
sw_status sw_engine_write_case(const struct sw_model *model, const char *config,
                               struct sw_named_values *values, const char *path);
