// SPDX-License-Identifier: Apache-2.0
// config - DeepSpeed's ds_config.json as field tables, and our own "spillway" block.
//
// Read once into plain structs; after that no room sees JSON, names as choices, or the environment.
// A room takes its own section (`const struct sw_zero_config *`), never the whole. Every value
// remembers where it came from: default, file and line, --set, or derived.
//
// Two kinds of refusal: sw_config_load refuses what is wrong (unknown key, wrong type, impossible
// combination); sw_config_check_built refuses what is right but not built yet, by name.
#pragma once

#include "base/base.h"
#include "tensor/tensor.h"

struct sw_config_impl; /* entries, arena and documents behind the structs; private to this room */
struct sw_json;

/* Lists live as long as the configuration. */
struct sw_config_strings {
    const char *const *items;
    int n;
};
struct sw_config_numbers {
    const double *items;
    int n;        /* 0: null or not given */
    bool is_list; /* a bare number holds for every parameter group; a list has one for each */
};

/* As given; 0 = not given. sw_config_resolve fills what follows from the number of ranks. */
struct sw_batch_config {
    int64_t train_batch_size, micro_batch_size, accumulation_steps;
    int64_t micro_batches; /* K: micro-batches of one global batch, over all ranks */
    int ranks;             /* 0 until resolved */
};

enum sw_optimizer_type {
    SW_OPTIMIZER_NONE, /* no optimizer block */
    SW_OPTIMIZER_ADAM, /* Adam and AdamW: see adam_w_mode; of 8 bits: see spillway.moments */
    SW_OPTIMIZER_SGD,
    SW_OPTIMIZER_LAMB,
    SW_OPTIMIZER_ADAGRAD,
    SW_OPTIMIZER_LION,
    SW_OPTIMIZER_MUON,
    SW_OPTIMIZER_OTHER, /* known by name only */
    SW_OPTIMIZER_SPARSE_ADAM,
    SW_OPTIMIZER_RMSPROP,
    SW_OPTIMIZER_ADAFACTOR
};

struct sw_optimizer_config {
    enum sw_optimizer_type type;
    const char *name; /* as DeepSpeed spells it, "AdamW"; NULL without a block */
    double lr, eps, weight_decay;
    struct sw_config_numbers betas; /* two, or none for optimizers without */
    bool bias_correction;           /* Adam, LAMB */
    bool adam_w_mode;               /* decoupled weight decay; always true for AdamW */
    int64_t min_8bit_size;          /* elements from which on Adam's moments are of 8 bits */
    double momentum, dampening;     /* SGD; momentum also RMSprop, Muon, Adafactor */
    bool nesterov, maximize;
    double max_coeff, min_coeff; /* LAMB: bounds of the trust ratio */
    bool eps_inside_sqrt;
    double lr_decay, initial_accumulator_value; /* Adagrad */
    double alpha;                               /* RMSprop */
    double muon_lr, adam_lr;                    /* Muon; < 0 = lr */
    int64_t ns_steps;
    struct sw_config_numbers adafactor_eps; /* two: of squares, of the parameter's scale */
    double clip_threshold, decay_rate;      /* Adafactor */
    bool scale_parameter, relative_step, warmup_init;
    double max_grad_norm; /* old place of gradient_clipping; 0 = not given */
};

enum sw_scheduler_type {
    SW_SCHEDULER_NONE,
    SW_SCHEDULER_WARMUP,
    SW_SCHEDULER_WARMUP_DECAY,
    SW_SCHEDULER_WARMUP_COSINE,
    SW_SCHEDULER_ONE_CYCLE,
    SW_SCHEDULER_LR_RANGE_TEST,
    SW_SCHEDULER_OTHER, /* known by name only */
    /* schedules of transformers' Trainer, under its names */
    SW_SCHEDULER_CONSTANT,
    SW_SCHEDULER_CONSTANT_WITH_WARMUP,
    SW_SCHEDULER_LINEAR,
    SW_SCHEDULER_COSINE,
    SW_SCHEDULER_INVERSE_SQRT
};
enum sw_warmup_type { SW_WARMUP_LOG, SW_WARMUP_LINEAR };

struct sw_scheduler_config {
    enum sw_scheduler_type type;
    const char *name;
    /* Warmup*: max is empty when it follows the optimizer's rate */
    struct sw_config_numbers warmup_min_lr, warmup_max_lr;
    int64_t warmup_num_steps, total_num_steps;
    int warmup_type; /* enum sw_warmup_type */
    double warmup_min_ratio, cos_min_ratio;
    /* OneCycle; second_* of -1 follow the first */
    struct sw_config_numbers cycle_min_lr, cycle_max_lr, cycle_min_mom, cycle_max_mom;
    double cycle_first_step_size, cycle_second_step_size;
    int64_t cycle_first_stair_count, cycle_second_stair_count;
    double decay_step_size, decay_lr_rate, decay_mom_rate;
    bool cycle_momentum;
    /* LRRangeTest */
    struct sw_config_numbers range_min_lr;
    int64_t range_step_size;
    double range_step_rate;
    bool range_staircase;
};

struct sw_fp16_config {
    bool enabled, auto_cast;
    double loss_scale; /* 0 = dynamic */
    int64_t initial_scale_power, loss_scale_window, hysteresis, min_loss_scale;
    bool consecutive_hysteresis, master_weights_and_grads;
};

struct sw_bf16_config {
    bool enabled, immediate_grad_update, check_grad_overflow;
    bool master_weights_and_grads, optimizer_states;
};

/* SW_DTYPE_COUNT = not given. */
struct sw_data_types_config {
    int grad_accum, param, buffer; /* enum sw_dtype */
};

enum sw_offload_device { SW_OFFLOAD_NONE, SW_OFFLOAD_CPU, SW_OFFLOAD_NVME };

struct sw_offload_config {
    int device; /* enum sw_offload_device */
    struct sw_config_strings nvme_path;
    int64_t buffer_count, buffer_size_elems, max_in_cpu_elems;
    bool pin_memory, pipeline_read, pipeline_write, fast_init, super_offload;
    double ratio, cpuadam_cores;
};

struct sw_zero_config {
    int64_t stage;
    bool contiguous_gradients, reduce_scatter, allgather_partitions, overlap_comm;
    bool round_robin_gradients, ignore_unused_parameters, memory_efficient_linear;
    bool load_from_fp32_weights, gather_16bit_weights_on_model_save, compute_grad_norm;
    int64_t reduce_bucket_elems, allgather_bucket_elems, sub_group_elems;
    int64_t prefetch_bucket_elems, param_persistence_elems, model_persistence_elems;
    int64_t max_live_elems, max_reuse_elems;
    struct sw_offload_config offload_param, offload_optimizer;
};

struct sw_activation_config {
    bool partition_activations, cpu_checkpointing;
    int64_t number_checkpoints; /* 0 = not given */
};

struct sw_aio_config {
    int64_t block_size_bytes, queue_depth, intra_op_parallelism;
    bool single_submit, overlap_events;
};

/* Keys outside of any block. */
struct sw_misc_config {
    double gradient_clipping; /* largest global norm; 0 = no clipping */
    /* enum sw_dtype, SW_DTYPE_COUNT = the working dtype; with several ranks along context that of
     * seq_parallel_communication_data_type, unless it is null */
    int communication_data_type;
    int64_t steps_per_print; /* 0 = not given */
    bool wall_clock_breakdown;
    bool sparse_gradients; /* send only the rows that are not zero if that is shorter */
    const char *log_level; /* NULL = not given */
};

/* Files that other programs read, in OUTPUT_PATH/JOB_NAME. */
struct sw_monitor_config {
    bool enabled;
    const char *output_path, *job_name;
};

/* A profile of one step by the parts of the model. */
struct sw_profile_config {
    bool enabled, detailed;
    double recompute_fwd_factor;
    int64_t step, module_depth, top_modules; /* depth -1 = the innermost */
    const char *output_file;                 /* NULL = with the other lines */
};

enum sw_loss_mean {
    SW_LOSS_MICROBATCH, /* mean over micro-batches of each one's mean, as DeepSpeed */
    SW_LOSS_TOKENS      /* mean over all targets of the global batch */
};
/* Where states that lie in host memory are updated. */
enum sw_update_place { SW_PLACE_AUTO, SW_PLACE_DEVICE, SW_PLACE_HOST };
/* When offloaded parameters are updated under clipping. */
enum sw_clipped_update { SW_CLIPPED_END, SW_CLIPPED_NEXT_FORWARD };
enum sw_moments { SW_MOMENTS_FP32, SW_MOMENTS_BF16, SW_MOMENTS_8BIT };
/* Who exchanges among the devices of ranks. AUTO: the library on GPUs that have one. */
enum sw_comm_by { SW_COMM_BY_AUTO, SW_COMM_BY_LIBRARY, SW_COMM_BY_HOST };
enum sw_reduce_order { SW_REDUCE_CANONICAL, SW_REDUCE_BOUNDARY };
/* The schedules of micro-batches: name, and value of spillway.schedule. plan/order.c has a row for
 * each. Those after VERTICAL are for pipelines, with spillway.mesh.pipe above 1. */
#define SW_STEP_SCHEDULES(X)                                                                       \
    X(HORIZONTAL, "horizontal")                                                                    \
    X(VERTICAL, "vertical")                                                                        \
    X(GPIPE, "gpipe")                                                                              \
    X(1F1B, "1f1b")                                                                                \
    X(INTERLEAVED, "interleaved")                                                                  \
    X(ZERO_BUBBLE, "zero-bubble")
#define SW_STEP_SCHEDULE(NAME, name) SW_STEP_##NAME,
enum sw_step_schedule { SW_STEP_SCHEDULES(SW_STEP_SCHEDULE) SW_STEP_SCHEDULE_COUNT };
#undef SW_STEP_SCHEDULE
static inline bool sw_schedule_is_of_pipeline(enum sw_step_schedule schedule)
{
    return schedule > SW_STEP_VERTICAL;
}
enum sw_kernel_set { SW_KERNELS_FAST, SW_KERNELS_REFERENCE, SW_KERNELS_ONEDNN };

enum sw_micro_batch {
    SW_MICRO_BATCH_AUTO, /* chosen by what fits: sw_config_choose */
    SW_MICRO_BATCH_GIVEN /* given by the batch keys */
};
/* Stored instead of a number for "auto". */
enum { SW_CONFIG_AUTO = -1 };

/* Low-rank adapters, under PEFT's names. Members that are JSON are read by sw_config_value. */
struct sw_lora_config {
    int64_t r; /* 0 = the block is absent */
    double alpha, dropout;
    bool rslora, dora;
    int bias; /* enum sw_lora_bias */
    struct sw_config_strings target_modules, exclude_modules, modules_to_save, layers_pattern;
    struct sw_config_numbers layers_to_transform;
};

/* Losses of preferences (tasks dpo, orpo, kto), under TRL's names where it has them. */
enum sw_preference_loss { SW_PREFERENCE_LOSS_SIGMOID, SW_PREFERENCE_LOSS_IPO };
struct sw_preference_config {
    int64_t loss; /* enum sw_preference_loss */
    double beta, desirable, undesirable;
    const char *reference; /* model folder or preset; NULL = the base of the training */
    int64_t log_probs;     /* 0: sums over the tokens of a response; 1: means */
};

/* The contrastive task. */
struct sw_contrastive_config {
    double scale;
    int64_t pooling; /* 0: mean over tokens; 1: first token */
};

/* Activation recomputation: activations that backward computes again instead of keeping them. */
struct sw_recompute {
    int64_t every;  /* keep only the input of every n blocks; 0 = keep all; or SW_CONFIG_AUTO */
    int64_t blocks; /* applies to the first n blocks; the others keep all; 0 = all blocks */
};

/* How blocks are divided among the stages of a pipeline. */
enum sw_partition_by {
    SW_PARTITION_TIME,       /* equal predicted time, embedding and head included */
    SW_PARTITION_PARAMETERS, /* equal trainable elements */
    SW_PARTITION_UNIFORM,    /* equal numbers of blocks */
    SW_PARTITION_TYPE,       /* equal numbers of blocks whose name matches */
    SW_PARTITION_BOUNDS      /* as given */
};
struct sw_partition_config {
    enum sw_partition_by by;
    const char *type; /* TYPE: regular expression for names of blocks */
    /* BOUNDS: [pipe * chunks + 1] first block of each chunk, ascending from 0, and the end */
    struct sw_config_numbers bounds;
};

/* Ranks along the axes of the mesh; the other ranks form the data axis. DeepSpeed's keys for the
 * same sizes are included. */
struct sw_parallel_config {
    bool is_auto;                          /* the sizes are to be chosen, and 1 until then */
    int64_t pipe, tensor, context, expert; /* at least 1 */
    struct sw_partition_config partition;
    int64_t chunks;         /* chunks of blocks per stage, at least 1 */
    bool sequence_parallel; /* norms and residuals run on 1 / tensor of the rows */
    bool gather_again;      /* backward gathers inputs of products again */
};

/* The "spillway" block. Bytes of 0 = no budget given. */
struct sw_spillway_config {
    int64_t micro_batches;                 /* K; 0 = from the batch keys and the ranks */
    int micro_batch;                       /* enum sw_micro_batch */
    int update;                            /* enum sw_update_place */
    int loss;                              /* enum sw_loss_mean */
    double label_smoothing;                /* in [0, 1) */
    double capacity_factor;                /* 0 = no bound */
    double router_aux_loss, router_z_loss; /* weights; aux < 0: as the model's config.json says */
    bool token_weights;                    /* labels of tokens have weights */
    bool packing;                    /* several documents per row, which do not see each other */
    int moments;                     /* enum sw_moments */
    double layer_decay;              /* 0 = none; groups are JSON: sw_config_value */
    bool decay_1d;                   /* false: no weight decay on parameters of one dimension */
    struct sw_config_strings frozen; /* name patterns with * and ? */
    int64_t threads;                 /* 0 = all processors available to the process */
    int64_t seed;
    const char *device; /* sw_device_open's name, or "auto" */
    int64_t device_memory_bytes, host_memory_bytes, nvme_space_bytes;
    /* Copies on disk of the data that a step updates, 1 or 2; 0 = by the available space. */
    int64_t disk_slots;
    int clipped_update; /* enum sw_clipped_update */
    double next_forward_share;
    struct sw_recompute recompute;
    bool recompute_cheap;
    int reduce; /* enum sw_reduce_order */
    int comm;   /* enum sw_comm_by */
    bool library_sums;
    bool capture;
    int schedule; /* enum sw_step_schedule */
    int kernels;  /* enum sw_kernel_set */
    bool allow_other_math;
    int64_t loss_chunk; /* columns of the vocabulary at a time; 0 = the program's fixed choice */
    /* Offloaded parameters above this size are used in tiles; 0 = chosen by the budget. */
    int64_t tile_bytes;
    int64_t transfer_bytes;          /* most bytes of prefetch; 0 = by the budget */
    const char *trace;               /* file; NULL = none */
    int64_t trace_first, trace_last; /* steps; 0 = not given */
    int quantize;                    /* enum sw_quantized_kind */
    struct sw_lora_config lora;
    struct sw_preference_config preference;
    struct sw_contrastive_config contrastive;
};

struct sw_config {
    struct sw_config_impl *impl; /* owns everything reachable from here */
    struct sw_batch_config batch;
    struct sw_optimizer_config optimizer;
    struct sw_scheduler_config scheduler;
    struct sw_fp16_config fp16;
    struct sw_bf16_config bf16;
    struct sw_data_types_config data_types;
    struct sw_zero_config zero;
    struct sw_activation_config activation;
    struct sw_aio_config aio;
    struct sw_misc_config misc;
    struct sw_monitor_config tensorboard, csv_monitor;
    struct sw_profile_config profile;
    struct sw_spillway_config spillway;
    struct sw_parallel_config parallel;
};

/*
 * sw_config_load - read, check and take over a ds_config.json.
 *
 * Comments, trailing commas, unquoted keys and "auto" in DeepSpeed's model blocks are accepted.
 * Keys that are "auto" for transformers' Trainer get the value of a flag among the edits, or else
 * the Trainer's default.
 *
 * path         file to read
 * sets         [n_sets] edits of the JSON tree, applied in order before it is read:
 *                "a.b=value"   value is JSON, or else a string
 *                "a.b?=value"  refused if the file has another value (a flag for the same key)
 *                "a.b:=value"  applies only if the key is not given ("default of a training")
 *                "--lr=3e-5"   a flag for keys that are "auto" (trainer.c)
 * out          close with sw_config_close
 *
 * SW_E_CONFIG  "ds.json:4: zero_optimization.stage: 7 is not one of the allowed values (0..3)"
 * SW_E_FORMAT  not JSON; SW_E_IO not readable
 */
sw_status sw_config_load(const char *path, const char *const *sets, int n_sets,
                         struct sw_config **out);
/* The same from text. `name` is used in messages. "{}" gives the defaults. */
sw_status sw_config_parse(const char *name, const char *text, size_t len, const char *const *sets,
                          int n_sets, struct sw_config **out);
void sw_config_close(struct sw_config *config);

/*
 * sw_config_resolve - the batch arithmetic of DeepSpeed for a number of data-parallel ranks.
 *
 * train = micro x accumulation x ranks, with missing numbers derived. K may be fixed by
 * `micro_batches` or by "spillway": {"micro_batches": K}. Then train = micro x K for any number of
 * ranks, and accumulation is ceil(K / ranks), whatever the file says. May be called again. If the
 * micro-batch is "auto" and not chosen yet, it, accumulation and K are 0. So is the global batch if
 * it is derived from them.
 *
 * micro_batches  K, 0 = not fixed by the caller
 *
 * SW_E_CONFIG    the numbers do not agree; config unchanged
 */
sw_status sw_config_resolve(struct sw_config *config, int ranks, int64_t micro_batches);

/* ---- trainer.c: "auto" that follows from flags and the model ---- */

/* Whether a size is "auto" that follows from the model's width, and no edit "--hidden-size=N" gave
 * the width. The size has DeepSpeed's default until then. */
bool sw_config_wants_hidden_size(const struct sw_config *config);
/* Fails with SW_E_CONFIG, which names all such sizes. why: for example "no model is given". */
sw_status sw_config_refuse_sizes(const struct sw_config *config, const char *why);

/* SW_E_CONFIG: a schedule has "auto" that needs the number of steps, and no edit "--steps=N" gave
 * it. */
sw_status sw_config_check_steps(const struct sw_config *config);

/* Prints one line per flag without effect, because the file lacks the block of its key; or logs
 * them as warnings. */
void sw_config_print_warnings(const struct sw_config *config, struct sw_str *out);
void sw_config_warn(const struct sw_config *config);

/* ---- mesh.c ---- */

/* Whether the micro-batches of a step do not depend on the number of data-parallel ranks. */
bool sw_config_fixes_batch(const struct sw_config *config);
/* Fails as sw_config_refuse_key does, with the key of the mesh's largest size. */
sw_status sw_config_refuse_mesh(const struct sw_config *config, const char *why);
/* Notes that the sizes of the mesh, which were given as an edit, were chosen for "auto". */
void sw_config_note_mesh(struct sw_config *config);

/* ---- choose.c: keys that are "auto" ---- */

/* Whether a key that is "auto" is not chosen yet. */
bool sw_config_is_auto(const struct sw_config *config);
/* The largest micro-batch up to `most` that satisfies the batch keys, if the micro-batch is "auto".
 * 0 = there is none. ranks, micro_batches: as for sw_config_resolve. */
int64_t sw_config_largest_micro_batch(const struct sw_config *config, int ranks,
                                      int64_t micro_batches, int64_t most);
/* Number K of micro-batches per step with that micro-batch. */
int64_t sw_config_micro_batches_of(const struct sw_config *config, int ranks, int64_t micro_batches,
                                   int64_t micro_batch);
/*
 * sw_config_choose - replace "auto" by values; keys with a value keep it. Micro-batch 0, and
 * recomputation SW_CONFIG_AUTO, leave the key "auto".
 *
 * Afterwards the values count as given, also in the effective configuration. The caller must
 * resolve the batch keys again.
 *
 * from         source of the values, for sw_config_print_chosen; NULL = they are new
 */
sw_status sw_config_choose(struct sw_config *config, int64_t micro_batch,
                           struct sw_recompute recompute, const char *from);
/* For inspection without a plan: sets a train_micro_batch_size_per_gpu that is "auto" to its
 * maximum. The caller must resolve the batch keys again. */
sw_status sw_config_assume_micro_batch(struct sw_config *config, int ranks);
/* Prints the chosen values: spillway.micro_batch 4, spillway.recompute "none"; or as members of a
 * JSON object. Prints nothing if no key was "auto". */
void sw_config_print_chosen(const struct sw_config *config, bool json, struct sw_str *out);
/* Prefix of a refusal: the tried values that the message is about. Micro-batch 0, or recomputation
 * SW_CONFIG_AUTO: that key was not "auto". */
void sw_config_print_auto(int64_t micro_batch, int64_t recompute_every, struct sw_str *out);

/* A global batch that is divisible by many numbers of ranks. */
struct sw_config_elastic {
    int64_t train_batch_size;
    int64_t micro_batch_size; /* on world_size ranks; 0 without one */
    int64_t *ranks;           /* [n_ranks] data-parallel ranks that divide it, ascending; owned */
    int n_ranks;
};

/*
 * sw_config_elastic - compute the batch of DeepSpeed's `elasticity` block, version 0.1 or 0.2.
 *
 * world_size   available ranks; 0 = not known yet, which version 0.2 refuses
 * out          free with sw_config_elastic_fini
 *
 * SW_E_CONFIG  no enabled block, bounds that cannot be met, or world_size is not in the list
 */
sw_status sw_config_elastic(const struct sw_config *config, int64_t world_size,
                            struct sw_config_elastic *out);
void sw_config_elastic_fini(struct sw_config_elastic *elastic);

/* SW_E_UNSUP names the first key that needs a feature which this version does not have. */
sw_status sw_config_check_built(const struct sw_config *config);
/* Lists all such keys, one per line, with file and line. SW_E_UNSUP if there was any. */
sw_status sw_config_list_unbuilt(const struct sw_config *config, struct sw_str *out);

/* ---- sources of values ---- */

enum sw_config_origin {
    SW_CONFIG_UNKNOWN_KEY,
    SW_CONFIG_DEFAULT,
    SW_CONFIG_FILE,
    SW_CONFIG_SET,
    SW_CONFIG_TRAINER, /* "auto", and the default of transformers' Trainer, without a flag */
    SW_CONFIG_PLANNED, /* "auto", and chosen because it fits */
    SW_CONFIG_DERIVED
};
/* Origin of a key, such as "zero_optimization.stage". Tells flags of the program whether the file
 * sets it. */
enum sw_config_origin sw_config_origin_of(const struct sw_config *config, const char *key);
/* "default", "ds.json:4", "--set", "--lr=3e-5", "Trainer's default", "planned", "derived"; in
 * buf. */
const char *sw_config_source(const struct sw_config *config, const char *key, char *buf,
                             size_t cap);
/* Fails with SW_E_CONFIG "<source>: <key>: <why>". */
sw_status sw_config_refuse_key(const struct sw_config *config, const char *key, const char *why);
/* Effective value, NULL for unknown keys and blocks that were not given; borrowed. */
const struct sw_json *sw_config_value(const struct sw_config *config, const char *key);

/* Whether `name` matches one of the patterns of spillway.frozen. */
bool sw_config_is_frozen(const struct sw_config *config, const char *name);
/* Recomputation for a model of n_blocks, from spillway.recompute and recompute_blocks, or else from
 * activation_checkpointing.number_checkpoints. */
struct sw_recompute sw_config_recompute(const struct sw_config *config, int64_t n_blocks);

/* ---- printing; the configuration may be resolved or not ---- */

/* Writes the effective configuration as JSON that loads again to the same values. Checkpoints store
 * it. */
void sw_config_write_json(const struct sw_config *config, int indent, struct sw_str *out);
/* Prints one line per key: name, value, source. */
void sw_config_print(const struct sw_config *config, struct sw_str *out);
/* Prints members of a JSON object: "config" (effective values), "source" ({key: source}) and
 * "not_built" ([..]). */
void sw_config_print_json(const struct sw_config *config, struct sw_str *out);
/* Type, default, range, meaning and state of a key or of all keys of a block; SW_E_CONFIG with the
 * nearest name when there is none. */
sw_status sw_config_explain(const char *key, struct sw_str *out);
/* docs/config.md */
void sw_config_write_docs(struct sw_str *out);
