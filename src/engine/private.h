// SPDX-License-Identifier: Apache-2.0
// What the files of the engine share. Private to the room.
#pragma once

#include <stdio.h>

#include "base/base.h"
#include "config/config.h"
#include "device/device.h"
#include "engine/engine.h"
#include "hf/hf.h"
#include "json/json.h"
#include "layout/layout.h"
#include "model/model.h"
#include "optim/optim.h"
#include "task/task.h"

/* Which program of the plan computes what; -1 = not planned. */
struct engine_programs {
    int train, eval, logits;
    int prefill; /* a chunk of a prompt, SW_PREFILL_TOKENS; of an encoder-decoder the whole text */
    int decode;  /* one token */
};
enum { SW_PREFILL_TOKENS = 32 };

/* Of steps first .. last; see trace.c. */
struct engine_trace {
    struct sw_trace *trace;    /* NULL = none */
    int64_t first, last;       /* 0 = not settled yet */
    int64_t begin_ns, base_ns; /* of the step under way, of the first one */
    bool began;                /* a step has begun, in the window or not */
    bool recording, done, written;
    struct sw_output output; /* of rank 0 */
};

/* A micro-batch's loss is a sum of terms, each a weight times a mean; of each there are a sum and a
 * count. See loss.c. */
struct engine_loss {
    bool by_tokens; /* weighted by 1 / targets of the step, not of a micro-batch */
    int n_terms;
    double weights[SW_TASK_MAX_LOSSES];
    double row_weight; /* attrs.loss_mean.weight */
    /* [rounds, terms, 2] in the training program; one round where it holds one */
    const struct sw_port **outputs;
    const struct sw_port *eval_outputs[2 * SW_TASK_MAX_LOSSES]; /* [terms, 2] */
    double *local;                                              /* [rounds, terms, 2] this rank's */
    double *all;                                                /* [ranks, rounds, terms, 2] */
    /* of the last step: of the first term over k, in the order of k; of the losses of
     * micro-batches */
    double sum, count, means;
};

/* See optimizer.c. */
struct engine_optimizer {
    bool trains; /* there is one; else rule, schedule and rates are zeros */
    struct sw_update_rule rule;
    struct sw_schedule schedule;
    struct sw_rates rates;   /* of the step under way */
    double lr_override;      /* of the next step, instead of the schedule's; NaN = none */
    struct sw_scaler scaler; /* of the loss */
};

/* Where the model comes from; see source.c. */
struct engine_source {
    struct sw_json_doc *doc;      /* config.json; NULL for a user's own forward */
    char *folder;                 /* NULL for presets */
    struct sw_hf_folder *weights; /* of the folder, while they are read */
    enum sw_dtype dtype;          /* that they had there; f32 without */
};

/* What a step is made of, by the configuration, the model and the ranks. */
struct engine_sizes {
    int64_t batch, tokens, targets; /* of a micro-batch: B, T, and U of an encoder-decoder */
    int64_t micro_batches;          /* of a step, on all ranks: K */
    int64_t rounds, local;          /* of this rank: micro-steps, ceil(K / R), and micro-batches */
};
enum { SW_SCRATCH_ELEMS = 1 << 16 };
static inline int64_t sw_engine_scratch_elems(const struct engine_sizes *s)
{
    return sw_max_i64(SW_SCRATCH_ELEMS, s->batch * sw_max_i64(s->tokens, s->targets));
}

/* How far a training is. */
struct engine_progress {
    int64_t step, applied, samples; /* steps, those of them that updated, samples */
    int32_t phase;    /* of the plan's step, that comes next; 0 = no step is under way */
    bool failed;      /* a step broke in the middle: state is not to be trusted */
    bool rolled_back; /* the step before was given up */
};

/* What the inputs of all programs may hold; see inputs.c. */
struct engine_bounds {
    struct engine_bound *items;
    int n;
    struct sw_arena names;
};

/* The parameters of a plan. */
struct engine_params {
    struct engine_param *items;
    int32_t n;
    struct sw_arena names; /* file_name, digest */
};

struct engine_lora; /* adapter.h */

struct sw_engine {
    struct sw_engine_options options; /* strings borrowed only while opening */
    struct sw_config *config;
    struct engine_source source;
    struct sw_model *model;   /* NULL for a user's own forward */
    struct engine_lora *lora; /* NULL = the model itself is trained */
    enum sw_dtype dtype, grad_dtype;
    struct engine_sizes sizes;
    int rank, ranks; /* of the data axis; there are no others today */
    int64_t *words;  /* [ranks] what each said last, see sw_engine_gather */
    struct engine_optimizer optimizer;
    struct sw_device *device, *host; /* host: see sw_engine_open_host */
    struct sw_plan *plan;
    struct sw_executor *executor;
    const char **folders; /* [n_folders] of the disk; owned, the strings are the configuration's */
    int n_folders;
    struct engine_programs programs;
    struct engine_trace trace;
    struct engine_params params;
    struct engine_bounds bounds; /* of what enters */
    struct engine_loss loss;
    float *scratch; /* [sw_engine_scratch_elems] for conversions, and inputs that are left out */
    struct engine_progress progress;
    uint64_t seed;
    bool one_slot; /* some rank has no room for two, see sw_plan_options */

    struct sw_engine_training training; /* that it is in, on rank 0; zeros elsewhere */
};

/* All micro-batches of a block before the next block. */
static inline bool sw_engine_is_vertical(const struct sw_engine *e)
{
    return e->config->spillway.schedule == SW_STEP_VERTICAL;
}

/* ---- inputs.c ---- */
/* What each input of a graph, as its forward describes it, may hold: before passes divide the
 * tables that it indexes. */
sw_status sw_engine_learn_inputs(struct engine_bounds *bounds, const struct sw_graph *g);
/* Before the graphs of a plan, and at the end. */
void sw_engine_forget_inputs(struct engine_bounds *bounds);
/* SW_E_ARG names a tensor that is missing, of another shape or dtype, or with ids or labels that
 * are out of range; nothing has run then. micro: which micro-batch of a program that holds several,
 * else 0. */
sw_status sw_engine_check_inputs(const struct sw_engine *e, int i_program, int micro,
                                 const struct sw_batch *batch);
/* Of a batch that was checked. */
/* round: the micro-step that they are for; -1 = of no step. */
sw_status sw_engine_give_inputs(struct sw_engine *e, int i_program, int micro, int64_t round,
                                const struct sw_batch *batch);

/* ---- rules.c ---- */
/* A text while it is written: what stood there, then what is new. */
struct engine_text {
    const int32_t *before, *fresh;
    int64_t n_before, n_fresh, most; /* most: of what is new */
};
/* The next token where a rule says which one, else -1; logits of what it must not be fall to
 * minus infinity then. */
int32_t sw_engine_apply_rules(const struct engine_text *text, const struct sw_sampling *sampling,
                              float *logits, int64_t vocab);
bool sw_engine_ends_text(const struct sw_sampling *sampling, int32_t id);

/* ---- device.c ---- */
/* One like the engine's own: kernels, and the threads that a rank has. Of several ranks that run,
 * all call it together. */
sw_status sw_engine_open_device(const struct sw_engine *e, struct sw_device **out);
/* The processors that update what lies in host memory, where the device does not reach it and the
 * configuration lets them; else NULL. */
sw_status sw_engine_open_host(const struct sw_engine *e, struct sw_device **out);
/* The host packs rows of gradients, and ranks read them where they lie. */
bool sw_engine_packs_rows(const struct sw_engine *e);
/* Bytes of it that a plan may use: what the configuration says, of a GPU what is free at most; 0 =
 * as many as it likes. */
size_t sw_engine_device_budget(const struct sw_engine *e);

/* ---- optimizer.c ---- */
/* wanted: the engine is to train, where the configuration has an optimizer. */
sw_status sw_engine_open_optimizer(const struct sw_config *c, bool wanted,
                                   struct engine_optimizer *out);
void sw_engine_close_optimizer(struct engine_optimizer *o);
/* The parameters of a graph, for the groups of the rule. */
sw_status sw_engine_bind_groups(struct engine_optimizer *o, const struct sw_graph *g);
/* Of the rates of all steps, as far as a hash sees. */
uint64_t sw_engine_hash_rates(const struct engine_optimizer *o, uint64_t h);
/* Those of the update that comes behind so many others. */
void sw_engine_next_rates(struct engine_optimizer *o, int64_t applied);

/* ---- loss.c ---- */
/* Room for those of a step. */
sw_status sw_engine_open_losses(struct engine_loss *l, int64_t rounds, int ranks);
void sw_engine_close_losses(struct engine_loss *l);
/* The terms of a loss that the forward of a graph returned: their sums and counts become outputs.
 * SW_E_ARG: it is no sum of scaled means. */
sw_status sw_engine_learn_loss(struct engine_loss *l, sw_graph *g, sw_value loss, bool backward);
/* Where the parts of a step read them. */
void sw_engine_find_losses(struct engine_loss *l, const struct sw_plan *plan,
                           const struct engine_programs *programs);
/* Adds up those of a step on so many ranks, which are `local` on one and `all` on several. */
void sw_engine_total_losses(struct engine_loss *l, const struct engine_sizes *s, int ranks);
/* The step's loss by those sums; .. */
double sw_engine_step_loss(const struct engine_loss *l, const struct engine_sizes *s);
/* .. and what gradients summed over its micro-batches are multiplied with, for their mean. */
double sw_engine_loss_share(const struct engine_loss *l, const struct engine_sizes *s);

/* ---- open.c ---- */
/* Reads an f32 (or f64) scalar output. */
sw_status sw_engine_read_scalar(struct sw_engine *e, const struct sw_port *port, double *out);

/* Ranks that the batch keys count. */
int sw_engine_batch_ranks(const struct sw_engine *e);
/* The batch arithmetic, again after a choice; and what follows from the batch. */
sw_status sw_engine_resolve_batch(struct sw_engine *e);
sw_status sw_engine_take_batch(struct sw_engine *e);

/* ---- source.c ---- */
sw_status sw_engine_open_source(struct sw_engine *e);
void sw_engine_close_source(struct sw_engine *e);
void sw_engine_close_weights(struct engine_source *source);
/* Opens the model again: its head and its embedding are one parameter, or two. What config.json
 * says otherwise stays. */
sw_status sw_engine_tie(struct sw_engine *e, bool tied);
/* config.json of a folder, a file or a preset; *out_folder: it is a folder. */
sw_status sw_engine_read_model(const struct sw_engine_options *o, struct sw_json_doc **out,
                               bool *out_folder);

/* ---- choose.c: keys that are "auto" ---- */
/* Those of the checkpoint that the run goes on from, where there is one. Collective. */
sw_status sw_engine_keep_choices(struct sw_engine *e);
/* After a failure under values that were chosen before: the message says which. */
sw_status sw_engine_blame_choices(const struct sw_engine *e, sw_status st);
/* The same rates on all ranks. Collective where a key is "auto". */
sw_status sw_engine_find_rates(struct sw_engine *e, double rates[SW_LOAD_COUNT]);
/* Of struct sw_search: next and agree. */
void sw_engine_next_micro_batch(const struct sw_engine *e, int64_t most, struct sw_policy *policy);
sw_status sw_engine_agree_on_try(struct sw_engine *e, struct sw_verdict *verdict);

/* ---- fit.c ---- */
/* One disk tier holds states and parameters, over the folders of the optimizer's and those of the
 * parameters' that are not among them. */
sw_status sw_engine_find_folders(struct sw_engine *e);
struct sw_swap_options sw_engine_swap(const struct sw_engine *e);
/* Plans all programs that the engine is asked for. SW_E_NOMEM has the missing bytes, and a change
 * with which it fits. */
sw_status sw_engine_make_plan(struct sw_engine *e);

/* ---- predict.c ---- */
/* "bf16=800" and the like, into those that there are. SW_E_ARG: no such rate. */
sw_status sw_engine_take_rates(const char *const *texts, int n, double rates[SW_LOAD_COUNT]);
/* Bytes that a step moves between tiers: lines, or a member of a JSON object. */
void sw_engine_print_moves(const struct sw_engine *e, bool json, struct sw_str *out);

/* ---- trace.c ---- */
sw_status sw_engine_open_trace(struct sw_engine *e);
/* Around every step; the second one writes the file after the last step. Collective. */
void sw_engine_begin_trace(struct sw_engine *e);
/* The step is given up: what runs until it begins again is no part of it. */
void sw_engine_pause_trace(struct sw_engine *e);
sw_status sw_engine_end_trace(struct sw_engine *e);
void sw_engine_close_trace(struct sw_engine *e);

/* ---- step.c ---- */
/* SW_E_ARG: a step is under way, and `what` waits for its end. */
sw_status sw_engine_check_idle(const struct engine_progress *p, const char *what);

/* Any float output, widened to f32. */
sw_status sw_engine_read_output(struct sw_engine *e, const struct sw_port *port, float *out);

/* ---- agree.c ---- */
/* The worst status of all ranks, the same answer everywhere. Alone: st. */
sw_status sw_engine_agree(struct sw_engine *e, sw_status st, const char *what);
/* A word of each rank, into e->words. Collective. */
sw_status sw_engine_gather(const struct sw_engine *e, int64_t mine, const char *what);

/* ---- weights.c ---- */
/* A head in the file that differs from the embedding is used untied, whatever the config says. */
sw_status sw_engine_resolve_tie(struct sw_engine *e);
sw_status sw_engine_zero_states(struct sw_engine *e);
/* Forgets those of another plan. */
sw_status sw_engine_index_params(const struct sw_plan *plan, struct engine_params *out);
void sw_engine_close_params(struct engine_params *params);
sw_status sw_engine_init_weights(struct sw_engine *e);
sw_status sw_engine_load_folder(struct sw_engine *e);
/* Of any parameter or state, as a checkpoint has it: in fp32 what is fp32 or bf16, codes of 8 bits
 * as they are; ranges as of sw_engine_get_master. */
sw_status sw_engine_store_state(struct sw_engine *e, const struct sw_persistent *item,
                                int64_t first, int64_t n, const void *src);
sw_status sw_engine_fetch_state(struct sw_engine *e, const struct sw_persistent *item,
                                int64_t first, int64_t n, void *dst);
const struct engine_param *sw_engine_find_param(const struct sw_engine *e, const char *name);
/* A file may call the parameter so. */
bool sw_engine_is_name_of(const sw_engine *e, const struct engine_param *param, const char *name);
/* The tensor of the folder that holds parameter `name`; NULL if there is none. */
const struct sw_safetensor *sw_engine_find_in_folder(const struct sw_engine *e, const char *name);
/* The one that it begins with: of a tied pair that is two parameters here, the file may have
 * one. */
const struct sw_safetensor *sw_engine_find_values(const struct sw_engine *e, const char *name);
/* SW_E_FORMAT: the tensor holds no floats that are read here (its shape may be unknown, then), or
 * it has not the parameter's shape. */
sw_status sw_engine_check_floats(const struct sw_safetensor *tensor);
sw_status sw_engine_check_tensor(const struct engine_param *param,
                                 const struct sw_safetensor *tensor);
