// SPDX-License-Identifier: Apache-2.0
// Field tables of zero_optimization and its blocks, activation_checkpointing and aio.
#include "config/table.h"

#define ELEMS .unit = "elements"

static const struct config_field zero_fields[] = {
    INT("stage", AT(zero.stage), "0", 0, 3,
        "what ranks shard: 0 nothing, 1 optimizer states, 2 gradients too, 3 parameters too",
        .flags = FIELD_CHOICE_INT, BUILT),
    BOOL("contiguous_gradients", AT(zero.contiguous_gradients), "true",
         "copy gradients into one buffer as they are produced",
         NEEDLESS("the memory map has no fragmentation")),
    BOOL("reduce_scatter", AT(zero.reduce_scatter), "true", "reduce to owners rather than to all",
         NEEDLESS("gradients go to their owners at stages 1 to 3")),
    INT("reduce_bucket_size", AT(zero.reduce_bucket_elems), "500000000", 1, HIGHEST,
        "maximum gradient elements sent together; never more than one block", ELEMS, BUILT),
    BOOL("use_multi_rank_bucket_allreduce", NOWHERE, "true",
         "join buckets of several owners in one reduction",
         NEEDLESS("the plan coalesces by scope")),
    BOOL("allgather_partitions", AT(zero.allgather_partitions), "true",
         "gather updated parameters rather than broadcast them",
         NEEDLESS("the plan chooses the collectives")),
    INT("allgather_bucket_size", AT(zero.allgather_bucket_elems), "500000000", 0, HIGHEST,
        "maximum elements of updated parameters sent together", ELEMS, BUILT),
    BOOL("overlap_comm", AT(zero.overlap_comm), "null",
         "overlap collectives with computation; null = at stage 3 only", .flags = FIELD_NULL,
         BUILT),
    BOOL("compute_grad_norm", AT(zero.compute_grad_norm), "true",
         "compute the gradient norm even without clipping; false only at stages 1 and 2", LATER),
    BOOL("load_from_fp32_weights", AT(zero.load_from_fp32_weights), "true",
         "restore masters from saved masters", LATER),
    BOOL("elastic_checkpoint", NOWHERE, "false", "deprecated: load on another number of ranks",
         NEEDLESS("every checkpoint loads on any number of ranks")),
    INT("sub_group_size", AT(zero.sub_group_elems), "1000000000", 0, HIGHEST,
        "elements per piece of an update of offloaded states, at most 2097152; 0 = tensor by "
        "tensor",
        ELEMS, BUILT),
    INT("prefetch_bucket_size", AT(zero.prefetch_bucket_elems), "50000000", 0, HIGHEST,
        "elements gathered ahead of use; a budget may lower it", ELEMS,
        .alias = "stage3_prefetch_bucket_size", BUILT),
    INT("param_persistence_threshold", AT(zero.param_persistence_elems), "100000", 0, HIGHEST,
        "size up to which parameters stay gathered", ELEMS,
        .alias = "stage3_param_persistence_threshold", BUILT),
    INT("model_persistence_threshold", AT(zero.model_persistence_elems), "9223372036854775807", 0,
        HIGHEST, "maximum elements that stay gathered", ELEMS,
        .alias = "stage3_model_persistence_threshold", BUILT),
    INT("max_live_parameters", AT(zero.max_live_elems), "1000000000", 0, HIGHEST,
        "maximum elements gathered ahead of use, and maximum elements that stay gathered from one "
        "micro-batch to the next; the block in use is always whole",
        ELEMS, .alias = "stage3_max_live_parameters", BUILT),
    INT("max_reuse_distance", AT(zero.max_reuse_elems), "1000000000", 0, HIGHEST,
        "keep parameters gathered that are used again within so many elements", ELEMS,
        .alias = "stage3_max_reuse_distance",
        NEEDLESS("a copy serves its block and the next one that reads weights, at any distance; "
                 "longer, it would take memory")),
    BOOL("gather_16bit_weights_on_model_save", AT(zero.gather_16bit_weights_on_model_save), "false",
         "write whole 16-bit weights at the end",
         NEEDLESS("an export streams whole tensors at every stage"),
         .alias = "stage3_gather_16bit_weights_on_model_save"),
    INT("module_granularity_threshold", NOWHERE, "0", LOWEST, HIGHEST,
        "treat fine-grained modules as one", .alias = "stage3_module_granularity_threshold",
        NEEDLESS("the plan coalesces by scope")),
    BOOL("use_all_reduce_for_fetch_params", NOWHERE, "false", "gather by a sum over zeros",
         .alias = "stage3_use_all_reduce_for_fetch_params",
         NEEDLESS("the plan chooses the collectives")),
    BOOL("allgather_sequential", NOWHERE, "false", "one gather at a time",
         .alias = "stage3_allgather_sequential", NEEDLESS("the plan chooses the order")),
    BOOL("ignore_unused_parameters", AT(zero.ignore_unused_parameters), "true",
         "tolerate parameters without gradient",
         NEEDLESS("the graph knows which parameters are used")),
    BOOL("legacy_stage1", NOWHERE, "false", "old stage 1; true is an error in DeepSpeed too",
         LATER),
    BOOL("round_robin_gradients", AT(zero.round_robin_gradients), "false",
         "deal parameters to ranks in turn, for even offload",
         NEEDLESS("every parameter is split over all ranks")),
    BOOL("parameter_alignment", NOWHERE, "false", "align parameters in flat buffers",
         NEEDLESS("every tensor is aligned")),
    INT("zero_hpz_partition_size", NOWHERE, "1", 0, HIGHEST, "ZeRO++: second partition in a node",
        LATER),
    BOOL("zero_quantized_weights", NOWHERE, "false", "ZeRO++: gather in 8 bits", LATER),
    BOOL("zero_quantized_nontrainable_weights", NOWHERE, "false",
         "ZeRO++: 8 bits for frozen parameters", LATER),
    BOOL("zero_quantized_gradients", NOWHERE, "false", "ZeRO++: reduce in 4 bits", LATER),
    INT("mics_shard_size", NOWHERE, "-1", LOWEST, HIGHEST, "MiCS: ranks of one partition", GONE),
    BOOL("mics_hierarchical_params_gather", NOWHERE, "false", "MiCS: gather in two steps", GONE),
    BOOL("memory_efficient_linear", AT(zero.memory_efficient_linear), "true",
         "do not keep gathered weights alive for backward",
         NEEDLESS("the plan gathers again for backward")),
    BOOL("pipeline_loading_checkpoint", NOWHERE, "false", "overlap the loading of shards",
         NEEDLESS("files are mapped")),
    BOOL("override_module_apply", NOWHERE, "true", "gather in Module.apply",
         NEEDLESS("there are no modules")),
    BOOL("log_trace_cache_warnings", NOWHERE, "false", "report changes of the order of modules",
         NEEDLESS("the order is planned and cannot change")),
    BOOL("enable_sanity_checks", NOWHERE, "false", "check ranks against each other",
         NEEDLESS("plans are checked before they run")),
    BOOL("save_muon_momentum_buffer_in_memory", NOWHERE, "false",
         "keep Muon's momentum in memory when offloading", LATER),
    BOOL("cpu_offload_use_pin_memory", NOWHERE, "null", "deprecated, without effect in DeepSpeed",
         .flags = FIELD_NULL, NEEDLESS("offload_optimizer.pin_memory decides")),
};
SECTION(sw_config_table_zero, "zero_optimization", zero_fields, SECTION_MODEL,
        "ZeRO; true is stage 1 and false stage 0, as in 2020");

static const char *const devices[] = {"none", "cpu", "nvme", NULL};

#define OFFLOAD_COMMON(member, count)                                                              \
    CHOICE("device", AT(member.device), "\"none\"", devices,                                       \
           "tier that holds it: none is the device, cpu host memory, nvme the disk", BUILT),       \
        STRINGS("nvme_path", AT(member.nvme_path), "null",                                         \
                "folder on the disk, or a list of folders to stripe over", .flags = FIELD_NULL,    \
                BUILT),                                                                            \
        INT("buffer_count", AT(member.buffer_count), count, 0, HIGHEST,                            \
            "buffers between disk and memory", NEEDLESS("the plan computes buffers")),             \
        BOOL("pin_memory", AT(member.pin_memory), "true", "page-locked host memory", BUILT)

static const struct config_field offload_param_fields[] = {
    OFFLOAD_COMMON(zero.offload_param, "5"),
    INT("buffer_size", AT(zero.offload_param.buffer_size_elems), "100000000", 0, HIGHEST,
        "size of a buffer", ELEMS, NEEDLESS("the plan computes buffers")),
    INT("max_in_cpu", AT(zero.offload_param.max_in_cpu_elems), "1000000000", 0, HIGHEST,
        "elements that stay in host memory when nvme is on", ELEMS, BUILT),
};
SECTION(sw_config_table_offload_param, "zero_optimization.offload_param", offload_param_fields,
        SECTION_MODEL | SECTION_NULL | SECTION_OPTIONAL, "parameters outside the device");

static const struct config_field offload_optimizer_fields[] = {
    OFFLOAD_COMMON(zero.offload_optimizer, "4"),
    BOOL("pipeline_read", AT(zero.offload_optimizer.pipeline_read), "false", "prefetch reads",
         NEEDLESS("always overlapped")),
    BOOL("pipeline_write", AT(zero.offload_optimizer.pipeline_write), "false",
         "write back asynchronously", NEEDLESS("always overlapped")),
    BOOL("fast_init", AT(zero.offload_optimizer.fast_init), "false", "quick start on nvme",
         NEEDLESS("the start streams")),
    NUMBER("ratio", AT(zero.offload_optimizer.ratio), "1.0", 0, 1,
           "fraction of the update that runs on the CPU; below 1 only at stage 3", BUILT),
    BOOL("super_offload", AT(zero.offload_optimizer.super_offload), "false",
         "schedule for closely coupled CPU and GPU", LATER),
    NUMBER("cpuadam_cores_perc", AT(zero.offload_optimizer.cpuadam_cores), "0.8", 0, 1,
           "fraction of the cores used by the CPU update", NEEDLESS("spillway.threads decides")),
};
SECTION(sw_config_table_offload_optimizer, "zero_optimization.offload_optimizer",
        offload_optimizer_fields, SECTION_MODEL | SECTION_NULL | SECTION_OPTIONAL,
        "optimizer states outside the device");

static const struct config_field leaf_module_fields[] = {
    JSON("classes",
         "[\"transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock\", "
         "\"transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock\", "
         "\"transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock\"]",
         "classes gathered as one", NEEDLESS("the graph shows every use of a parameter")),
    STRINGS("names", NOWHERE, "[]", "modules gathered as one",
            NEEDLESS("the graph shows every use of a parameter")),
    STRINGS("name_suffixes", NOWHERE, "[]", "modules gathered as one",
            NEEDLESS("the graph shows every use of a parameter")),
};
SECTION(sw_config_table_leaf_module, "zero_optimization.leaf_module", leaf_module_fields,
        SECTION_MODEL, "modules whose parameters are fetched together");

static const struct config_field zenflow_fields[] = {
    NUMBER("topk_ratio", NOWHERE, "0.1", 0, 1, "fraction of the gradients applied at once", LATER),
    STRING("select_strategy", NOWHERE, "\"auto\"", "unit of the interval between selections",
           LATER),
    JSON("select_interval", "\"auto\"", "interval between selections", LATER),
    JSON("update_interval", "\"auto\"", "steps between updates of the rest", LATER),
    BOOL("overlap_step", NOWHERE, "false", "update the rest beside the next step", LATER),
    BOOL("offload", NOWHERE, "false", "offload the selected gradients, too", LATER),
    NUMBER("auto_ratio", NOWHERE, "0.99", 0, 1, "threshold of the automatic interval", LATER),
    INT("full_warm_up_rounds", NOWHERE, "0", LOWEST, HIGHEST,
        "full updates before the first selection", LATER),
    NUMBER("pt_reserved_cores_perc", NOWHERE, "0.5", 0, 1, "cores left to torch", LATER),
    INT("steps_per_epoch", NOWHERE, "null", LOWEST, HIGHEST, "length of an epoch",
        .flags = FIELD_NULL, LATER),
};
SECTION(sw_config_table_zenflow, "zero_optimization.zenflow", zenflow_fields,
        SECTION_MODEL | SECTION_NULL | SECTION_OPTIONAL | SECTION_ASKS, "stall-free offload");

static const struct config_field loco_fields[] = {
    NUMBER("err_beta", NOWHERE, "0.8", 0, 1, "decay of the mean error", GONE),
    INT("reset_T", NOWHERE, "1024", 1, HIGHEST, "steps after which the error is cleared", GONE),
};
SECTION(sw_config_table_loco, "zero_optimization.zeropp_loco_param", loco_fields,
        SECTION_NULL | SECTION_OPTIONAL | SECTION_QUIET | SECTION_ASKS, "ZeRO++: error feedback");

static const struct config_field activation_fields[] = {
    BOOL("partition_activations", AT(activation.partition_activations), "false",
         "split kept activations over the tensor axis",
         NEEDLESS("spillway.gather_again decides it")),
    BOOL("contiguous_memory_optimization", NOWHERE, "false", "store kept activations in one buffer",
         NEEDLESS("the memory map has no fragmentation")),
    BOOL("cpu_checkpointing", AT(activation.cpu_checkpointing), "false",
         "store kept activations in host memory", BUILT),
    INT("number_checkpoints", AT(activation.number_checkpoints), "null", 1, HIGHEST,
        "number of block inputs that are kept; the rest is recomputed", .flags = FIELD_NULL, BUILT),
    BOOL("synchronize_checkpoint_boundary", NOWHERE, "false", "wait for the device at boundaries",
         NEEDLESS("nothing to gain")),
    BOOL("profile", NOWHERE, "false", "time forward and backward of recomputed blocks",
         NEEDLESS("the trace times every instruction")),
};
SECTION(sw_config_table_activation, "activation_checkpointing", activation_fields, 0,
        "recomputation, for every model");

static const struct config_field aio_fields[] = {
    FIELD_ROW("block_size", FIELD_BYTES, AT(aio.block_size_bytes), "1048576",
              "bytes of one request", .lo = 1, .hi = 1 << 30, BUILT),
    INT("queue_depth", AT(aio.queue_depth), "8", 1, 4096,
        "requests in flight per thread; of all threads together 4096", BUILT),
    INT("intra_op_parallelism", AT(aio.intra_op_parallelism), "1", 1, 64, "queues of one transfer",
        .alias = "thread_count", BUILT),
    BOOL("single_submit", AT(aio.single_submit), "false", "submit requests one by one", BUILT),
    BOOL("overlap_events", AT(aio.overlap_events), "true", "submit while others complete", BUILT),
    BOOL("use_gds", NOWHERE, "false", "GPUDirect Storage", LATER),
};
SECTION(sw_config_table_aio, "aio", aio_fields, SECTION_NULL, "transfers to and from the disk");
