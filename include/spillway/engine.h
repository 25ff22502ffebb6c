// SPDX-License-Identifier: Apache-2.0
// The engine: a model, a configuration (DeepSpeed's ds_config.json) and a plan, ready to run.
//
//     sw_initialize
//     -> { sw_train_batch | K x (sw_forward, sw_backward) then sw_step } ..
//     -> sw_close
//
// Everything is planned when the engine opens: it fits, or sw_initialize says what is missing.
// After the first step nothing is allocated.
//
// Rules of all calls:
//   - A negative status is an error, and sw_error_message says what is wrong. Outputs are written
//     only on success, except where a call says otherwise.
//   - Pointers are borrowed for the call. A text in `char **out` is the caller's: sw_text_free.
//     Pointers that are "lent" stay valid until the engine closes.
//   - One thread at a time uses an engine. Engines are independent of each other; each may have its
//     own thread.
//   - With a communicator, the ranks of an engine make every call that is marked "Collective", in
//     the same order. All other calls concern this rank alone. On one rank there is no difference.
//   - K is the number of micro-batches of an optimizer step, B the samples of a micro-batch, T the
//     tokens of a row, V the size of the vocabulary.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "spillway/graph.h"
#include "spillway/status.h"
#include "spillway/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_engine sw_engine;
typedef struct sw_comm sw_comm; /* ranks that train one model together: spillway/comm.h */
struct sw_nvme_fault;           /* spillway/nvme.h */

/* A model input, by the name of its sw_input. The data is row-major and borrowed. */
struct sw_tensor {
    const char *name;
    struct sw_view view; /* strides are not read */
};
struct sw_batch {
    const struct sw_tensor *tensors;
    int n_tensors;
};

/* Describes the forward pass of one micro-batch of `batch` samples and returns its loss, f32 [1].
 * The loss is the result of a loss operation such as sw_cross_entropy, or the scaled sum of two.
 * Called once per program. */
typedef sw_value (*sw_forward_fn)(sw_graph *graph, void *ctx, int64_t batch);

/* ---- options ---- */

/* The configuration: a file, or its text, or neither ("{}"). sets: [n_sets] edits "a.b=value", in
 * order. Flags such as "--lr=3e-5" set keys that are "auto": see spillway/config.h. */
struct sw_engine_config {
    const char *path, *text;
    const char *const *sets;
    int n_sets;
};

/* The model: a path, or a forward function of your own. All other fields belong to a path. */
struct sw_engine_model {
    /* A Hugging Face folder, a config.json, or a preset ("gpt2-tiny"). With plan.only also the text
     * of a config.json, which begins with "{". */
    const char *path;
    const char *adapter; /* adapter folder, written by PEFT or by a training; NULL = none */
    /* Tokens of the tokenizer. A preset gets a vocabulary of this size; that of any other model
     * must be at least as large. 0 = not known. */
    int64_t vocab_size;
    /* Task name as in --task ("masked", "classify", ..); NULL = the task of the model's class. For
     * another task than that of its class the model gets a new head with random weights. */
    const char *task;
    int64_t labels;                 /* outputs of a head: classes or numbers; 0 = as config.json */
    const char *const *label_names; /* [labels] for config.json; NULL = keep the names it has */
    /* A padding id for the head of a decoder that finds the last token of a row by it (classify,
     * regression, multi-label, reward). It counts, and exports have it, if config.json has no
     * pad_token_id below vocab_size. */
    bool has_pad_id;
    int32_t pad_id;
    sw_forward_fn forward; /* instead of path */
    void *forward_ctx;     /* borrowed while the engine opens */
};

enum { SW_DEFAULT_TOKENS = 1024 }; /* default limit of tokens per row; contexts may be longer */

/* The rows of a micro-batch, for a model with a path. */
struct sw_engine_inputs {
    int64_t seq_len; /* T; 0 = the model's context, at most most_tokens */
    /* limit of T if seq_len is 0, rounded up to a multiple of the context axis; 0 =
     * SW_DEFAULT_TOKENS */
    int64_t most_tokens;
    int64_t target_len; /* target tokens of an encoder-decoder; 0 = T */
    bool mask;          /* decoders take an attention_mask, too, as encoders do anyway */
};

/* Where and how the engine runs. */
struct sw_engine_run {
    /* Communicator of this rank, borrowed until the engine closes; NULL = a single rank. */
    sw_comm *comm;
    /* Number of ranks for the batch arithmetic of the configuration, so that K stays the same if a
     * job continues on fewer ranks. 0 = the size of comm. */
    int batch_ranks;
    /* Device, instead of the configuration's spillway.device: "cpu", "cuda", "hip", "cuda:1",
     * "auto". For tests: "cpu:reference"; "mock" and "mock:early", which run the reference kernels
     * in memory that the host cannot reach; "emu", which emulates a GPU. With plan.only also
     * "sim:NAME", a device of a cluster (docs/clusters.md). */
    const char *device;
    bool verify;          /* checks the plan while it runs; slow */
    bool profile;         /* measures every instruction; spillway.trace records when each ran */
    bool load_unverified; /* sw_load does not compare the digests of a checkpoint's files */
    const struct sw_nvme_fault *disk_fault; /* for tests: faults of this rank's disk; NULL = none */
};

/* Enables sw_train_batch, or sw_forward, sw_backward and sw_step. */
struct sw_engine_train {
    bool wanted;
    bool no_dropout;     /* training programs leave dropout out */
    bool keep_gradients; /* enables sw_gradient */
};

/* Runs batches forward, without dropout. */
struct sw_engine_evaluate {
    bool loss;   /* enables sw_evaluate */
    bool logits; /* enables sw_logits; a forward of your own needs an output named "logits" */
    bool hidden; /* with logits: outputs "hidden.I" of a model with a path */
};

/* Enables sw_embed: the model is opened for the task "embed", and sw_logits gives hidden states. */
struct sw_engine_embed {
    bool wanted;
};

/* Enables sw_generate. */
struct sw_engine_generate {
    bool wanted;
    /* Tokens that a decoder keeps of one text: those of the prompt and the new ones. The prompt of
     * an encoder-decoder goes to its encoder, so only new tokens count. 0 = T, or target_len for an
     * encoder-decoder. */
    int64_t tokens;
};

/* How the plan is made. */
struct sw_engine_plan {
    bool only; /* allocates no memory and reads no weights: for spillway/look.h. Not collective */
    /* Checkpoint folder that sw_load will be given. Keys that are "auto" (spillway.micro_batch,
     * spillway.recompute) take their values from its checkpoint. NULL, or no checkpoint there: the
     * values are chosen. */
    const char *resume_from;
    /* [n_rates] rates of the machine for that choice, as in sw_predict_options; NULL = built-in
     * rates. */
    const char *const *rates;
    int n_rates;
};

/* The options of sw_initialize. They say what runs where (config, model, inputs, run), and what the
 * engine is for: at least one of train, evaluate, embed and generate. All other fields may stay
 * zero. Strings and arrays are borrowed while the engine opens. A NULL pointer to options is
 * SW_E_ARG. */
struct sw_engine_options {
    struct sw_engine_config config;
    struct sw_engine_model model;
    struct sw_engine_inputs inputs;
    struct sw_engine_run run;
    uint64_t seed; /* for initial weights and dropout; a seed in the configuration wins */
    struct sw_engine_train train;
    struct sw_engine_evaluate evaluate;
    struct sw_engine_embed embed;
    struct sw_engine_generate generate;
    struct sw_engine_plan plan;
};

/* ---- opening ---- */

/*
 * sw_initialize - plan everything, take the memory, set or read the weights.
 *
 * options      borrowed for the call; run.comm until the engine closes
 * out          close with sw_close, before its communicator
 *
 * SW_E_ARG     the engine has no purpose, or two options exclude each other
 * SW_E_CONFIG  the configuration or the options are wrong: the message names the key
 * SW_E_UNSUP   something asked for is not built
 * SW_E_NOMEM   a budget or the machine is too small: the message has the bytes
 * SW_E_IO, SW_E_FORMAT  a file of the model is missing or damaged
 * SW_E_PEER    another rank failed, or would compute something else: names the rank
 *
 * Collective, except with plan.only.
 */
SW_API sw_status sw_initialize(const struct sw_engine_options *options, sw_engine **out);
/* Frees the engine, its memory and its files of the disk tier. The communicator stays open. NULL is
 * a no-op. Not collective. */
SW_API void sw_close(sw_engine *engine);

/*
 * sw_model_find - resolve a model name to a path.
 *
 * A name that exists as a path, or is a preset, is returned as it is. Otherwise ORG/NAME or NAME is
 * a model in Hugging Face's local cache (HF_HUB_CACHE, HF_HOME), and the path is its main snapshot.
 *
 * out          the caller's: sw_text_free
 *
 * SW_E_IO      not found; the message has the command that downloads it
 */
SW_API sw_status sw_model_find(const char *name, char **out);
/* SW_E_ARG if a path for a model is a run of sw_train or a checkpoint. The message says where its
 * model is, or how to export one. */
SW_API sw_status sw_model_check_path(const char *path);
/*
 * sw_model_hidden_size - the width that transformers calls hidden_size, or the largest of
 * hidden_sizes.
 *
 * model        as sw_engine_model.path; its weights are not read
 * out          elements
 *
 * SW_E_CONFIG  the model has neither
 * SW_E_IO, SW_E_FORMAT  there is no config.json, or it is damaged
 */
SW_API sw_status sw_model_hidden_size(const char *model, int64_t *out);

/* ---- sizes ---- */

SW_API int64_t sw_engine_micro_batches(const sw_engine *engine);    /* K, over all ranks */
SW_API int64_t sw_engine_micro_batch_size(const sw_engine *engine); /* B */
/* Number of micro-batches of a step that this rank runs: k = r, r + R, .. below K, with r and R of
 * sw_engine_batch_axis. */
SW_API int64_t sw_engine_local_micro_batches(const sw_engine *engine);
SW_API int64_t sw_engine_seq_len(const sw_engine *engine);    /* T; 0 for a forward of your own */
SW_API int64_t sw_engine_vocab(const sw_engine *engine);      /* V; 0 for a forward of your own */
SW_API int64_t sw_engine_width(const sw_engine *engine);      /* of hidden states; 0 likewise */
SW_API int64_t sw_engine_parameters(const sw_engine *engine); /* elements of all parameters */
SW_API int64_t sw_engine_step(const sw_engine *engine);       /* optimizer steps so far */
SW_API int64_t sw_engine_samples(const sw_engine *engine);    /* samples of all ranks so far */
/* Seed of initial weights and dropout. A seed in the configuration overrides the options. */
SW_API uint64_t sw_engine_seed(const sw_engine *engine);

/* ---- ranks ---- */

/* This rank's number along an axis of spillway.mesh ("pipe", "data", "expert", "context" or
 * "tensor"), and the number of ranks there. SW_E_ARG: there is no such axis. */
SW_API sw_status sw_engine_axis(const sw_engine *engine, const char *axis, int *out_rank,
                                int *out_size);
/* This rank's number r among the R ranks that divide the micro-batches of a step. They differ along
 * the axes data and expert. */
SW_API void sw_engine_batch_axis(const sw_engine *engine, int *out_rank, int *out_size);
/*
 * sw_engine_group - the communicator of the ranks that differ from this one along one axis only.
 *
 * For the caller's own exchanges (spillway/comm.h), between other calls of the engine. Its messages
 * do not mix with those of the engine.
 *
 * axis         as for sw_engine_axis
 * out          lent; its size is 1 if the axis has one rank
 *
 * SW_E_ARG     there is no such axis; or the engine was opened with plan.only
 *
 * Collective, among all ranks of the engine: the first call for an axis opens the communicator.
 */
SW_API sw_status sw_engine_group(sw_engine *engine, const char *axis, sw_comm **out);

/* ---- inputs ---- */

/* One input tensor of a micro-batch. The inputs are those of the training program; without one,
 * those of sw_evaluate, and without that, those of sw_logits. */
struct sw_input_info {
    const char *name; /* lent */
    enum sw_dtype dtype;
    struct sw_shape shape;
    bool optional; /* a batch may leave it out */
};
SW_API int32_t sw_engine_n_inputs(const sw_engine *engine);
/* Input i of sw_engine_n_inputs. SW_E_ARG: there is no input i. */
SW_API sw_status sw_engine_input(const sw_engine *engine, int32_t i, struct sw_input_info *out);

/* How to make an input of a micro-batch from a batch of transformers' collators. */
struct sw_hf_input {
    const char *name; /* key in that batch, such as "position_ids"; lent */
    /* Padding of a shorter row: the model's padding id (-1: it has none, and any id will do), -100
     * for label ids, NaN for label numbers, 0 for all others. */
    double pad;
    int32_t start; /* id that a decoder reads before these labels; -1 = it does not read them */
    bool shifted;  /* labels (and weights) are shifted left by one: a label is the next token */
};
/* How to make input i of sw_engine_n_inputs. SW_E_ARG: there is no input i. */
SW_API sw_status sw_engine_hf_input(const sw_engine *engine, int32_t i, struct sw_hf_input *out);

/* ---- training (train.wanted) ---- */

struct sw_step_report {
    int64_t step;    /* optimizer steps so far, skipped ones included */
    int64_t applied; /* optimizer steps that were applied */
    int64_t samples; /* samples of all ranks so far */
    double loss, grad_norm, lr, loss_scale;
    bool skipped;   /* gradients overflowed, and no weight was changed */
    double targets; /* labels that counted in this step (sum of their weights), first loss term */
};

/*
 * sw_train_batch - run one whole step.
 *
 * micro_batches  [n], n = sw_engine_local_micro_batches. All are checked before the first one runs
 * out            report of the step; NULL = not needed
 *
 * SW_E_ARG       names a tensor that is missing or has another shape, or an id or label that is out
 *                of range, and its position. The engine is unchanged
 * SW_E_CONFIG    the configuration has no optimizer
 * SW_E_PEER      the step failed on another rank
 *
 * After another failure the engine is rolled back to the state before the step in two cases:
 *   - on one rank, if nothing was updated yet;
 *   - with two slots on disk (spillway.disk_slots), for any disk failure on any rank.
 * The next micro-batch then begins a step. In all other cases, and if a rank is lost, the engine
 * refuses to step until it has loaded a checkpoint. Collective.
 */
SW_API sw_status sw_train_batch(sw_engine *engine, const struct sw_batch *micro_batches, int64_t n,
                                struct sw_step_report *out);
/*
 * sw_forward, sw_backward, sw_step - the same step in parts, as in DeepSpeed.
 *
 * For each of its micro-batches a rank calls sw_forward, then sw_backward; then it calls sw_step.
 * The last sw_backward may already update weights if gradients are not clipped (docs/zero.md, "When
 * the update runs"). With two slots on disk the updated weights take effect in sw_step. Then, on
 * several ranks, a disk failure is reported by sw_step on all of them, and the losses before it are
 * meaningless.
 *
 * out_loss     mean loss of this micro-batch; NULL = not needed
 * out          report of the step; NULL = not needed
 *
 * SW_E_ARG     the calls are not in this order; or a tensor is wrong, as in sw_train_batch
 * SW_E_CONFIG  spillway.schedule is "vertical", or spillway.mesh.pipe is above 1: all micro-batches
 *              of a step run together; or the configuration has no optimizer (sw_step)
 * SW_E_PEER    the step failed on another rank
 *
 * Other failures are as in sw_train_batch. Collective: each rank makes all calls of a step.
 */
SW_API sw_status sw_forward(sw_engine *engine, const struct sw_batch *batch, double *out_loss);
SW_API sw_status sw_backward(sw_engine *engine);
SW_API sw_status sw_step(sw_engine *engine, struct sw_step_report *out);
/*
 * sw_gradient - gradient of a parameter for the last micro-batch of this rank
 * (train.keep_gradients): unscaled, summed over all uses of the parameter.
 *
 * With several ranks along tensor or context all of them get the gradient of the whole parameter,
 * for the micro-batch that they share. Then it is collective, among all ranks of the engine: each
 * rank gives the same names in the same order.
 *
 * name         as sw_engine_tensor gives it
 * out          [elements of the parameter]
 *
 * SW_E_ARG     there is no such parameter; or the engine does not keep gradients
 * SW_E_PEER    another rank along tensor or context failed
 */
SW_API sw_status sw_gradient(sw_engine *engine, const char *name, float *out);

/* ---- evaluation ---- */

/*
 * sw_evaluate - the loss of one batch, without dropout (evaluate.loss).
 *
 * batch        of B samples
 * out_sum      sum of the losses of all targets; with several terms, the loss times out_count
 * out_count    number of targets, or sum of their weights, of the first term
 *
 * SW_E_ARG     names the option that the engine was opened without; or a tensor that is missing or
 *              has another shape, or an id or label that is out of range; or a step is in progress
 *
 * Collective.
 */
SW_API sw_status sw_evaluate(sw_engine *engine, const struct sw_batch *batch, double *out_sum,
                             double *out_count);
/*
 * sw_evaluate_terms - sw_evaluate, term by term.
 *
 * The loss over several batches is sw_engine_mean_loss of these numbers, added up over the batches.
 *
 * out          [sw_engine_terms, 2]: sum of the losses of each term, and number of its targets, or
 *              sum of their weights
 *
 * SW_E_ARG     as for sw_evaluate
 *
 * Collective.
 */
SW_API sw_status sw_evaluate_terms(sw_engine *engine, const struct sw_batch *batch, double *out);
/* Terms of the loss of a micro-batch: one for each loss of the task, then those of the routers of
 * experts. */
SW_API int sw_engine_terms(const sw_engine *engine);
/* The loss for sums and counts of terms: the sum of their means, weighted as in training. */
SW_API double sw_engine_mean_loss(const sw_engine *engine, const double *terms);
/*
 * sw_logits - the outputs of the head for one batch, without dropout (evaluate.logits).
 *
 * batch        of B samples; labels are not read
 * out          [sw_logits_elems] as f32: [B,T,V]; [B,labels] for a classifier; hidden states
 *              [B,T,width] for the task "embed". A task with several outputs gives the first one.
 *              NULL: the outputs are computed and not copied
 *
 * SW_E_ARG     as for sw_evaluate; or a forward of your own has no output "logits"
 *
 * Collective.
 */
SW_API sw_status sw_logits(sw_engine *engine, const struct sw_batch *batch, float *out);
/* Elements that sw_logits writes; 0 if the engine was opened without evaluate.logits. */
SW_API int64_t sw_logits_elems(const sw_engine *engine);
/*
 * sw_logits_shape - the shape of what sw_logits writes.
 *
 * out          the first dimension has the rows of the batch
 * out_tokens   dimension of the tokens of a row, or -1 if the output has no such dimension
 *
 * SW_E_ARG     the engine was opened without evaluate.logits; or a forward of your own has no
 *              output "logits"
 */
SW_API sw_status sw_logits_shape(const sw_engine *engine, struct sw_shape *out, int *out_tokens);

/* ---- embedding (embed.wanted) ---- */

enum sw_pooling {
    SW_POOL_MEAN, /* mean over the tokens of attention_mask; over all tokens without it */
    SW_POOL_CLS   /* the first token */
};
struct sw_embed_options {
    enum sw_pooling pool;
    bool normalize; /* to length 1 */
};
/*
 * sw_embed - one vector for each row of a batch.
 *
 * batch        of B samples; labels are not read
 * out          [B, sw_engine_width]
 *
 * SW_E_ARG     as for sw_evaluate; or options is NULL
 *
 * Collective.
 */
SW_API sw_status sw_embed(sw_engine *engine, const struct sw_batch *batch,
                          const struct sw_embed_options *options, float *out);

/* ---- generation (generate.wanted) ---- */

/* Generation rules other than sampling, as in generation_config.json. -1 disables an id, 0 any
 * other field. */
struct sw_text_rules {
    int32_t start_id;      /* start token of the decoder of an encoder-decoder; -1 = the model's */
    int32_t first_id;      /* forced first token, after at most one other */
    int32_t last_id;       /* forced last token, at position n_new */
    int64_t least;         /* minimum number of new tokens before the text may end */
    int64_t no_repeat;     /* n-grams of this length occur only once */
    double repetition;     /* repetition penalty: divides positive logits of tokens already in the
                              text, and multiplies negative ones; 0 or 1 = no change */
    const int32_t *never;  /* [n_never] tokens that are never chosen */
    const int32_t *begins; /* [n_begins] tokens not allowed as the first token that is not forced */
    int64_t n_never, n_begins;
};
struct sw_sampling {
    double temperature; /* 0 = greedy */
    int64_t top_k;      /* 0 = all */
    double top_p;       /* 0 or 1 = all */
    uint64_t seed;
    int32_t stop_id;         /* token that ends the text; -1 = none */
    const int32_t *stop_ids; /* [n_stop_ids] more tokens that end the text */
    int64_t n_stop_ids;
    const struct sw_text_rules *rules; /* NULL = none */
};
/*
 * sw_generate - continue a prompt; an encoder-decoder reads the prompt and writes another text.
 *
 * prompt       [n_prompt] at least one token. A decoder needs n_prompt + n_new <= generate.tokens.
 *              An encoder-decoder needs n_prompt <= T and n_new <= generate.tokens
 * n_new        maximum number of new tokens
 * sampling     NULL: greedy, with no stop token
 * out          [n_new]; *out_n of them are written, a stop token included
 * logits       [n_new, V], or NULL: the model's logits for each new token, before any rule
 *
 * SW_E_ARG     the engine was opened without generation; or a length, an id or a rule is out of
 *              range; or a step is in progress
 *
 * Collective; all ranks give the same prompt and get the same text.
 */
SW_API sw_status sw_generate(sw_engine *engine, const int32_t *prompt, int64_t n_prompt,
                             int64_t n_new, const struct sw_sampling *sampling, int32_t *out,
                             int64_t *out_n, float *logits);
/* Callback for tokens while a text is generated. After each token, including the last, fn gets all
 * new tokens so far, ids [n]. An error that fn returns ends the text and is returned. */
struct sw_each_token {
    sw_status (*fn)(void *ctx, const int32_t *ids, int64_t n);
    void *ctx;
};
/* Like sw_generate, and calls each->fn after each token, on the calling thread. */
SW_API sw_status sw_generate_each(sw_engine *engine, const int32_t *prompt, int64_t n_prompt,
                                  int64_t n_new, const struct sw_sampling *sampling,
                                  const struct sw_each_token *each, int32_t *out, int64_t *out_n);

/* ---- weights: decoded fp32 values by name ---- */

SW_API int32_t sw_engine_n_tensors(const sw_engine *engine);
/* Name (lent) and whole shape of parameter i of sw_engine_n_tensors. SW_E_ARG: there is no
 * parameter i. */
SW_API sw_status sw_engine_tensor(const sw_engine *engine, int32_t i, const char **out_name,
                                  struct sw_shape *out_shape);
/*
 * sw_get_weight, sw_set_weight - elements [first, first + n) of the whole parameter.
 *
 * collective   after a step, with spillway.clipped_update "next_forward": its update runs first
 * out, src     [n]. Getting reads the master if there is one; setting writes it and the working
 *              copy
 *
 * SW_E_ARG     there is no such parameter or range; when getting, another rank holds a part of it;
 *              when setting, a step is under way. Setting writes what this rank holds, so all ranks
 *              set the same values
 */
SW_API sw_status sw_get_weight(sw_engine *engine, const char *name, int64_t first, int64_t n,
                               float *out);
SW_API sw_status sw_set_weight(sw_engine *engine, const char *name, int64_t first, int64_t n,
                               const float *src);

/* ---- folders ---- */

/*
 * sw_export - write a Hugging Face folder: weights, config.json, and the files that lay beside the
 * weights in the model's original folder, except its model card (README.md).
 *
 * folder       created if it is missing; rank 0 writes
 * dtype        SW_F32, SW_BF16, SW_F16, or SW_DTYPE_COUNT for the original dtype
 *
 * SW_E_IO      names the file that could not be written
 *
 * Collective.
 */
SW_API sw_status sw_export(sw_engine *engine, const char *folder, enum sw_dtype dtype);

/* ---- checkpoints ---- */

struct sw_save_options {
    int keep_last;   /* 0 = all */
    double val_loss; /* NaN = unknown; the best checkpoint is kept in addition to keep_last */
    /* Metric that selects the best checkpoint, instead of the validation loss: its name (NULL =
     * none), its value (NaN = unknown), and whether lower is better. */
    const char *metric;
    double metric_value;
    bool metric_falls;
};
/*
 * sw_save - write a checkpoint of the state between two steps into a folder, which all ranks see.
 *
 * folder       created if it is missing; holds one checkpoint per step
 * options      NULL: all are kept, and the validation loss is unknown
 *
 * SW_E_ARG     a step is in progress, or has failed halfway; or names a trained weight that is NaN
 *              or infinite: earlier checkpoints stay as they are
 * SW_E_IO      names the file that could not be written; earlier checkpoints are intact
 * SW_E_PEER    another rank failed
 *
 * Collective.
 */
SW_API sw_status sw_save(sw_engine *engine, const char *folder,
                         const struct sw_save_options *options);
/*
 * sw_load - load the newest complete checkpoint of a folder, or a given checkpoint.
 *
 * A loaded checkpoint ends a step that is under way. Rank 0 chooses for all ranks. Each file is
 * read once in full, in addition to loading, and compared with its digest (run.load_unverified: no
 * digests).
 *
 * SW_PENDING   there is no checkpoint
 * SW_E_CONFIG  the checkpoint was written with other arithmetic; names every key that changed
 * SW_E_FORMAT  a file is damaged; the engine takes no step until it has loaded another checkpoint
 * SW_E_PEER    names a rank that sees another checkpoint than rank 0
 *
 * Collective.
 */
SW_API sw_status sw_load(sw_engine *engine, const char *folder);

/* ---- measurements of an open engine ---- */

/* Bytes that the plan keeps in a tier: 0 device, 1 host, 2 disk. 0 for any other number. */
SW_API int64_t sw_engine_tier_bytes(const sw_engine *engine, int tier);
/* Highest byte of the arena that a kernel touched (run.verify). */
SW_API int64_t sw_engine_high_water(const sw_engine *engine);
/* Number of allocations by the library and the device so far. Constant after the first step. */
SW_API int64_t sw_engine_allocations(const sw_engine *engine);
/* Floating-point operations of one optimizer step; 0 without training. */
SW_API double sw_engine_step_flops(const sw_engine *engine);

#ifdef __cplusplus
}
#endif
