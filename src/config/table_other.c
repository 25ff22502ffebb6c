// SPDX-License-Identifier: Apache-2.0
// Field tables of monitoring and profiling, and of the blocks that this version knows by name only:
// checkpoint options, and DeepSpeed's larger additions. A block that asks for nothing is accepted;
// one that asks is refused by sw_config_check_built.
#include "config/table.h"

#define ENABLED BOOL("enabled", NOWHERE, "false", "switch the block on", LATER)
#define ENABLED_GONE BOOL("enabled", NOWHERE, "false", "switch the block on", GONE)
#define OTHER(name, where, rows, options, text) static SECTION(name, where, rows, options, text)
#define IDLE (SECTION_QUIET | SECTION_GATED)

#define MONITOR_FIELDS(member)                                                                     \
    {                                                                                              \
        BOOL("enabled", AT(member.enabled), "false", "switch the block on", BUILT),                \
            STRING("output_path", AT(member.output_path), "\"\"",                                  \
                   "folder; files are in its subfolder `job_name`", BUILT),                        \
            STRING("job_name", AT(member.job_name), "\"DeepSpeedJobName\"", "name of the run",     \
                   BUILT),                                                                         \
    }
static const struct config_field tensorboard_fields[] = MONITOR_FIELDS(tensorboard);
static const struct config_field csv_fields[] = MONITOR_FIELDS(csv_monitor);
OTHER(tensorboard, "tensorboard", tensorboard_fields, SECTION_MODEL | SECTION_GATED,
      "event files for TensorBoard");
OTHER(csv_monitor, "csv_monitor", csv_fields, SECTION_MODEL | SECTION_GATED,
      "a CSV file for each number");

static const struct config_field wandb_fields[] = {
    ENABLED,
    STRING("group", NOWHERE, "null", "group of runs", .flags = FIELD_NULL, LATER),
    STRING("team", NOWHERE, "null", "team", .flags = FIELD_NULL, LATER),
    STRING("project", NOWHERE, "\"deepspeed\"", "project", LATER),
};
OTHER(wandb, "wandb", wandb_fields, SECTION_MODEL | SECTION_GATED, "monitoring");

static const struct config_field comet_fields[] = {
    ENABLED,
    INT("samples_log_interval", NOWHERE, "100", LOWEST, HIGHEST, "samples between records", LATER),
    STRING("project", NOWHERE, "null", "project", .flags = FIELD_NULL, LATER),
    STRING("workspace", NOWHERE, "null", "workspace", .flags = FIELD_NULL, LATER),
    STRING("api_key", NOWHERE, "null", "key of the service", .flags = FIELD_NULL, LATER),
    STRING("experiment_name", NOWHERE, "null", "name of the run", .flags = FIELD_NULL, LATER),
    STRING("experiment_key", NOWHERE, "null", "key of the run", .flags = FIELD_NULL, LATER),
    BOOL("online", NOWHERE, "null", "send at once", .flags = FIELD_NULL, LATER),
    STRING("mode", NOWHERE, "null", "create or get", .flags = FIELD_NULL, LATER),
};
OTHER(comet, "comet", comet_fields, SECTION_MODEL | SECTION_GATED, "monitoring");

static const struct config_field comms_logger_fields[] = {
    ENABLED,
    BOOL("prof_all", NOWHERE, "true", "record every collective", LATER),
    STRINGS("prof_ops", NOWHERE, "[]", "collectives to record", LATER),
    BOOL("verbose", NOWHERE, "false", "print each", LATER),
    BOOL("debug", NOWHERE, "false", "name the caller of each collective", LATER),
};
OTHER(comms_logger, "comms_logger", comms_logger_fields, SECTION_MODEL | IDLE,
      "times of collectives");

static const struct config_field flops_fields[] = {
    BOOL("enabled", AT(profile.enabled), "false", "switch the block on", BUILT),
    NUMBER("recompute_fwd_factor", AT(profile.recompute_fwd_factor), "0.0", 0, HIGHEST,
           "fraction of forward that the model reruns in backward; recomputation by Spillway is "
           "counted anyway",
           BUILT),
    INT("profile_step", AT(profile.step), "1", 1, HIGHEST, "step to profile", .unit = "steps",
        BUILT),
    INT("module_depth", AT(profile.module_depth), "-1", -1, HIGHEST,
        "depth down to which the largest parts are listed; -1 = all", BUILT),
    INT("top_modules", AT(profile.top_modules), "1", 1, HIGHEST, "parts listed at each depth",
        BUILT),
    BOOL("detailed", AT(profile.detailed), "true", "print the tree", BUILT),
    STRING("output_file", AT(profile.output_file), "null",
           "output file; null = the lines of the training", .flags = FIELD_NULL, BUILT),
};
OTHER(flops_profiler, "flops_profiler", flops_fields, SECTION_GATED,
      "FLOPs, parameters and time of each part of the model in one step");

static const struct config_field timers_fields[] = {
    BOOL("enabled", NOWHERE, "true", "measure throughput", NEEDLESS("always measured")),
    BOOL("synchronized", NOWHERE, "true", "wait for the device", NEEDLESS("always measured")),
};
static const struct config_section timers = {.path = "timers", .help = "timers"};
OTHER(throughput, "timers.throughput", timers_fields, SECTION_MODEL, "throughput of steps");

static const struct config_field torch_autocast_fields[] = {
    ENABLED,
    DTYPE("dtype", NOWHERE, "null", "dtype of the autocast region", .flags = FIELD_NULL, LATER),
    JSON("lower_precision_safe_modules", "null", "classes that may run in it", LATER),
};
OTHER(torch_autocast, "torch_autocast", torch_autocast_fields, SECTION_GATED,
      "casts at run time, by torch");

static const char *const no_words[] = {NULL};
static const struct config_field pipeline_fields[] = {
    WORD("stages", NOWHERE, "\"auto\"", no_words,
         "stages of the pipeline, the same as spillway.mesh.pipe; auto = that key decides",
         .flags = FIELD_AUTO, .why = "or give the number of stages", BUILT),
    JSON("partition", "\"best\"", "the same as spillway.partition, which wins over \"best\"",
         BUILT),
    BOOL("seed_layers", NOWHERE, "false", "a seed for each layer",
         NEEDLESS("random numbers depend on the place in the model, not on the order")),
    INT("activation_checkpoint_interval", NOWHERE, "0", LOWEST, HIGHEST, "blocks recomputed as one",
        LATER_BECAUSE("spillway.recompute does this")),
    BOOL("pipe_partitioned", NOWHERE, "true", "split activations on the way",
         NEEDLESS("spillway.sequence_parallel decides it")),
    BOOL("grad_partitioned", NOWHERE, "true", "split gradients on the way",
         NEEDLESS("spillway.sequence_parallel decides it")),
    BOOL("use_reentrant", NOWHERE, "true", "flavour of torch's recomputation",
         NEEDLESS("recomputation is a pass over the graph")),
};
OTHER(pipeline, "pipeline", pipeline_fields, 0, "pipeline parallelism");

static const char *const tag_modes[] = {"WARN", "IGNORE", "FAIL", NULL};
static const struct config_field checkpoint_fields[] = {
    CHOICE("tag_validation", NOWHERE, "\"WARN\"", tag_modes,
           "response to ranks that disagree on the tag", .flags = FIELD_ANY_CASE,
           NEEDLESS("ranks that disagree are always an error")),
    BOOL("load_universal", NOWHERE, "false", "read a converted checkpoint",
         NEEDLESS("every checkpoint loads on any number of ranks")),
    BOOL("use_node_local_storage", NOWHERE, "false", "each node writes to its own disk", LATER),
    BOOL("checkpoint_serialization", NOWHERE, "true", "format of torch.save",
         NEEDLESS("files are safetensors")),
};
OTHER(checkpoint, "checkpoint", checkpoint_fields, 0, "checkpoint options");

static const struct config_field parallel_write_fields[] = {
    BOOL("pipeline_stage", NOWHERE, "false", "replicas share the writing of a stage",
         NEEDLESS("all ranks write in parallel")),
};
OTHER(parallel_write, "checkpoint.parallel_write", parallel_write_fields, 0, "ranks that write");

static const char *const writers[] = {"MOCK", "PYTHON", "FAST", NULL};
static const char *const writer_spread[] = {"REPLICA", "SOCKET", "MACHINE", NULL};
static const struct config_field writer_fields[] = {
    CHOICE("type", NOWHERE, "\"FAST\"", writers, "implementation", .flags = FIELD_ANY_CASE, LATER),
    BOOL("decoupled", NOWHERE, "false", "write beside the training", LATER),
    INT("io_buffer_size", NOWHERE, "67108864", 1, HIGHEST, "buffer", .unit = "bytes", LATER),
    BOOL("io_buffer_double", NOWHERE, "true", "two buffers", LATER),
    BOOL("show_statistics", NOWHERE, "false", "print rates", LATER),
    CHOICE("data_parallel", NOWHERE, "null", writer_spread, "ranks that write",
           .flags = FIELD_ANY_CASE | FIELD_NULL, LATER),
    INT("io_multiplier", NOWHERE, "1", 1, HIGHEST, "writers for each path", LATER),
};
OTHER(writer, "checkpoint.writer", writer_fields, SECTION_NULL | SECTION_OPTIONAL | SECTION_ASKS,
      "FastPersist");

static const char *const tuners[] = {"gridsearch", "random", "model_based", NULL};
static const struct config_field autotuning_fields[] = {
    ENABLED,
    BOOL("fast", NOWHERE, "true", "tune ZeRO stage and micro-batch only", LATER),
    STRING("results_dir", NOWHERE, "\"autotuning_results\"", "folder of results", LATER),
    STRING("exps_dir", NOWHERE, "\"autotuning_exps\"", "folder of experiments", LATER),
    BOOL("overwrite", NOWHERE, "true", "forget earlier results", LATER),
    INT("start_profile_step", NOWHERE, "3", LOWEST, HIGHEST, "first measured step", LATER),
    INT("end_profile_step", NOWHERE, "5", LOWEST, HIGHEST, "last measured step", LATER),
    STRING("metric", NOWHERE, "\"throughput\"", "quantity to maximize", LATER),
    STRING("metric_path", NOWHERE, "null", "file that the metric is read from", .flags = FIELD_NULL,
           LATER),
    CHOICE("tuner_type", NOWHERE, "\"gridsearch\"", tuners, "search", LATER),
    INT("tuner_early_stopping", NOWHERE, "5", LOWEST, HIGHEST, "patience", LATER),
    INT("tuner_num_trials", NOWHERE, "50", LOWEST, HIGHEST, "maximum number of trials", LATER),
    JSON("arg_mappings", "null", "mapping of tuned keys to flags of the user's script", LATER),
    INT("max_train_batch_size", NOWHERE, "null", LOWEST, HIGHEST, "bound", .flags = FIELD_NULL,
        LATER),
    INT("min_train_batch_size", NOWHERE, "1", LOWEST, HIGHEST, "bound", LATER),
    INT("max_train_micro_batch_size_per_gpu", NOWHERE, "1024", LOWEST, HIGHEST, "bound", LATER),
    INT("min_train_micro_batch_size_per_gpu", NOWHERE, "1", LOWEST, HIGHEST, "bound", LATER),
    INT("num_tuning_micro_batch_sizes", NOWHERE, "3", LOWEST, HIGHEST, "sizes to try", LATER),
    INT("mp_size", NOWHERE, "1", LOWEST, HIGHEST, "model-parallel ranks", LATER),
    STRING("model_info_path", NOWHERE, "null", "file", .flags = FIELD_NULL, LATER),
    JSON("model_info", "null", "profile, num_params, hidden_size, num_layers", LATER),
    JSON("template", "null", "configuration to start from", LATER),
};
OTHER(autotuning, "autotuning", autotuning_fields, IDLE, "search for a fast configuration");

static const struct config_field elasticity_fields[] = {
    BOOL("enabled", NOWHERE, "false", "let the block decide the batch", BUILT),
    INT("max_train_batch_size", NOWHERE, "2000", 1, HIGHEST, "largest global batch", BUILT),
    JSON("micro_batch_sizes", "[2, 4, 6]", "micro-batches to choose from", BUILT),
    INT("min_gpus", NOWHERE, "1", 1, HIGHEST, "minimum number of ranks", BUILT),
    INT("max_gpus", NOWHERE, "10000", 1, HIGHEST, "maximum number of ranks", BUILT),
    INT("min_time", NOWHERE, "0", 0, HIGHEST, "minutes between changes",
        NEEDLESS("the launcher decides when")),
    BOOL("prefer_larger_batch", NOWHERE, "true", "prefer the larger of equally good batches", BUILT,
         .alias = "prefer_large_batch"),
    BOOL("ignore_non_elastic_batch_info", NOWHERE, "false", "ignore the batch keys", BUILT),
    NUMBER("version", NOWHERE, "0.2", 0, HIGHEST, "algorithm", BUILT),
    INT("num_gpus_per_node", NOWHERE, "1", 1, HIGHEST, "ranks of a node", BUILT),
    INT("model_parallel_size", NOWHERE, "1", 1, HIGHEST, "ranks of one model", BUILT),
};
OTHER(elasticity, "elasticity", elasticity_fields, IDLE | SECTION_NULL,
      "batch sizes that many numbers of ranks divide");

static const struct config_field nebula_fields[] = {
    ENABLED_GONE,
    STRING("persistent_storage_path", NOWHERE, "null", "folder", .flags = FIELD_NULL, GONE),
    INT("persistent_time_interval", NOWHERE, "100", LOWEST, HIGHEST, "seconds", GONE),
    INT("num_of_version_in_retention", NOWHERE, "2", LOWEST, HIGHEST, "versions kept", GONE),
    BOOL("enable_nebula_load", NOWHERE, "true", "load from it", GONE),
    STRING("nebula_load_path", NOWHERE, "null", "folder", .flags = FIELD_NULL, GONE),
};
OTHER(nebula, "nebula", nebula_fields, IDLE | SECTION_NULL, "checkpoint service");

static const struct config_field amp_fields[] = {
    ENABLED_GONE,
    STRING("opt_level", NOWHERE, "\"O1\"", "level of Apex", GONE),
    JSON("loss_scale", "null", "loss scale of Apex", GONE),
};
OTHER(amp, "amp", amp_fields, IDLE | SECTION_NULL, "Apex; use bf16 or fp16");

static const struct config_field compile_fields[] = {
    BOOL("deepcompile", NOWHERE, "false", "compile the step", LATER),
    BOOL("free_activation", NOWHERE, "false", "release activations early",
         NEEDLESS("the plan does")),
    INT("free_activation_threshold", NOWHERE, "10485760", LOWEST, HIGHEST, "from this size",
        .unit = "bytes", NEEDLESS("the plan does")),
    BOOL("offload_activation", NOWHERE, "false", "activations to the host", LATER),
    BOOL("offload_activation_pin_memory", NOWHERE, "true", "page-locked", LATER),
    BOOL("offload_opt_states", NOWHERE, "false", "states to the host", LATER),
    BOOL("double_buffer", NOWHERE, "true", "two buffers", LATER),
    BOOL("symmetric_memory", NOWHERE, "false", "symmetric memory", LATER),
    BOOL("debug_log", NOWHERE, "false", "log passes", LATER),
    BOOL("offload_parameters", NOWHERE, "false", "parameters to the host", LATER),
    BOOL("sync_before_reduce", NOWHERE, "false", "wait", LATER),
    BOOL("sync_after_reduce", NOWHERE, "false", "wait", LATER),
    BOOL("sync_before_allgather", NOWHERE, "false", "wait", LATER),
    BOOL("sync_after_allgather", NOWHERE, "false", "wait", LATER),
    BOOL("keep_int_input_tensors", NOWHERE, "true", "keep integer graph inputs alive", LATER),
    BOOL("keep_all_input_tensors", NOWHERE, "false", "keep all graph inputs alive", LATER),
    JSON("passes", "null", "passes to run", LATER),
};
OTHER(compile, "compile", compile_fields, SECTION_MODEL | SECTION_QUIET, "DeepCompile");

static const struct config_field hybrid_fields[] = {
    ENABLED,
    INT("max_out_tokens", NOWHERE, "512", LOWEST, HIGHEST, "longest answer", LATER),
    INT("inference_tp_size", NOWHERE, "1", LOWEST, HIGHEST, "tensor-parallel ranks", LATER),
    BOOL("release_inference_cache", NOWHERE, "false", "free the cache", LATER),
    BOOL("pin_parameters", NOWHERE, "true", "page-locked", LATER),
    INT("tp_gather_partition_size", NOWHERE, "8", LOWEST, HIGHEST, "ranks gathered at once", LATER),
    BOOL("enable_cuda_graph", NOWHERE, "false", "replay CUDA graphs", LATER),
};
OTHER(hybrid, "hybrid_engine", hybrid_fields, SECTION_MODEL | IDLE,
      "training and generation in turn");

static const char *const sparse_modes[] = {"dense",   "fixed",        "variable",
                                           "bigbird", "bslongformer", NULL};
static const struct config_field sparse_attention_fields[] = {
    CHOICE("mode", NOWHERE, "\"fixed\"", sparse_modes, "pattern", GONE),
    INT("block", NOWHERE, "16", 1, HIGHEST, "side of a block", GONE),
    BOOL("different_layout_per_head", NOWHERE, "false", "a pattern for each head", GONE),
    INT("num_local_blocks", NOWHERE, "4", 1, HIGHEST, "window", GONE),
    INT("num_global_blocks", NOWHERE, "1", 0, HIGHEST, "seen by all", GONE),
    STRING("attention", NOWHERE, "\"bidirectional\"", "direction: bidirectional or unidirectional",
           GONE),
    BOOL("horizontal_global_attention", NOWHERE, "false", "global blocks see all", GONE),
    INT("num_different_global_patterns", NOWHERE, "1", 1, HIGHEST, "patterns", GONE),
    INT("num_random_blocks", NOWHERE, "0", 0, HIGHEST, "random blocks", GONE),
    JSON("local_window_blocks", "[4]", "windows", GONE),
    JSON("global_block_indices", "[0]", "global blocks", GONE),
    JSON("global_block_end_indices", "null", "their ends", GONE),
    INT("num_sliding_window_blocks", NOWHERE, "3", 1, HIGHEST, "sliding window", GONE),
};
OTHER(sparse_attention, "sparse_attention", sparse_attention_fields,
      SECTION_QUIET | SECTION_NULL | SECTION_OPTIONAL | SECTION_ASKS, "block-sparse attention");

static const struct config_field pld_fields[] = {
    ENABLED_GONE,
    NUMBER("theta", NOWHERE, "1.0", 0, 1, "keep probability at the end", GONE),
    NUMBER("gamma", NOWHERE, "0.001", 0, HIGHEST, "speed of the change", GONE),
};
OTHER(pld, "progressive_layer_drop", pld_fields, IDLE | SECTION_NULL, "dropping whole layers");

static const struct config_field eigenvalue_fields[] = {
    ENABLED_GONE,
    BOOL("verbose", NOWHERE, "false", "print", GONE),
    INT("max_iter", NOWHERE, "100", 1, HIGHEST, "iterations", GONE),
    NUMBER("tol", NOWHERE, "0.01", 0, HIGHEST, "tolerance", GONE),
    NUMBER("stability", NOWHERE, "1e-6", 0, HIGHEST, "added to the divisor", GONE),
    INT("gas_boundary_resolution", NOWHERE, "1", 1, HIGHEST, "steps between", GONE),
    STRING("layer_name", NOWHERE, "\"bert.encoder.layer\"", "layers looked at", GONE),
    INT("layer_num", NOWHERE, "0", 0, HIGHEST, "how many", GONE),
};
OTHER(eigenvalue, "eigenvalue", eigenvalue_fields, IDLE | SECTION_NULL,
      "eigenvalues of the curvature");

static const struct config_field curriculum_fields[] = {
    ENABLED_GONE,
    STRING("curriculum_type", NOWHERE, "\"seqlen\"", "quantity that grows", GONE),
    INT("min_difficulty", NOWHERE, "1", LOWEST, HIGHEST, "at the start", GONE),
    INT("max_difficulty", NOWHERE, "10", LOWEST, HIGHEST, "at the end", GONE),
    STRING("schedule_type", NOWHERE, "\"fixed_linear\"", "fixed_linear, _root or _discrete", GONE),
    JSON("schedule_config", "null",
         "total_curriculum_step, difficulty_step, root_degree, difficulty, max_step", GONE),
};
OTHER(curriculum, "curriculum_learning", curriculum_fields, IDLE | SECTION_NULL,
      "sequences that grow");

static const struct config_field data_efficiency_fields[] = {
    ENABLED,
    INT("seed", NOWHERE, "1234", LOWEST, HIGHEST, "seed of the sampling", LATER),
    JSON("data_sampling", "null",
         "num_epochs, num_workers, pin_memory, curriculum_learning, dynamic_batching", LATER),
    JSON("data_routing", "null", "random_ltd", LATER),
};
OTHER(data_efficiency, "data_efficiency", data_efficiency_fields, IDLE, "sampling by difficulty");

/* Blocks whose inside is not described: anything but nothing is refused. */
#define UNDESCRIBED(k, text, state) JSON(k, "null", text, state, .flags = FIELD_QUIET)
static const struct config_field undescribed_fields[] = {
    UNDESCRIBED("quantize_training", "MoQ: quantised training", GONE),
    UNDESCRIBED("compression_training", "pruning and quantisation", GONE),
    UNDESCRIBED("weight_quantization", "quantised weights for inference", LATER),
    UNDESCRIBED("datastates_ckpt", "third-party checkpoints", LATER),
    UNDESCRIBED("expert_parallel", "AutoEP", LATER),
    UNDESCRIBED("sequence_parallel", "Ulysses", LATER),
    UNDESCRIBED("parallelism", "layout of ranks", LATER),
};
OTHER(undescribed, "", undescribed_fields, SECTION_QUIET, "larger additions, known by name");

const struct config_section *const sw_config_other_tables[] = {
    &tensorboard,
    &csv_monitor,
    &wandb,
    &comet,
    &comms_logger,
    &flops_profiler,
    &timers,
    &throughput,
    &torch_autocast,
    &pipeline,
    &checkpoint,
    &parallel_write,
    &writer,
    &autotuning,
    &elasticity,
    &nebula,
    &amp,
    &compile,
    &hybrid,
    &sparse_attention,
    &pld,
    &eigenvalue,
    &curriculum,
    &data_efficiency,
    &undescribed,
};
const size_t sw_config_n_other_tables = SW_LEN(sw_config_other_tables);
