// SPDX-License-Identifier: Apache-2.0
// Field tables of the file's top level, optimizer, scheduler, precision, and our own block.
// Defaults are DeepSpeed's; where a row differs from it, docs/differences.md has the rule.
#include "config/table.h"

static const char *const comm_dtypes[] = {"fp32", "fp16", "bf16", NULL};
static const char *const allreduce_ops[] = {"mean", "sum", NULL};
static const char *const log_levels[] = {"debug", "info",     "warning|warn",
                                         "error", "critical", NULL};

static const struct config_field top_fields[] = {
    INT("train_batch_size", AT(batch.train_batch_size), "null", LOWEST, HIGHEST,
        "samples of one optimizer step over all ranks: micro-batch x accumulation x ranks",
        .unit = "samples", .flags = FIELD_NULL, BUILT),
    INT("train_micro_batch_size_per_gpu", AT(batch.micro_batch_size), "null", LOWEST, HIGHEST,
        "samples of one forward and backward on one rank", .unit = "samples", .flags = FIELD_NULL,
        BUILT),
    INT("gradient_accumulation_steps", AT(batch.accumulation_steps), "null", LOWEST, HIGHEST,
        "micro-batches that a rank computes for one optimizer step", .flags = FIELD_NULL, BUILT),
    BOOL("managed_gradient_accumulation", NOWHERE, "true",
         "count micro-batches automatically; false: the caller says when the optimizer steps",
         LATER),
    NUMBER("gradient_clipping", AT(misc.gradient_clipping), "1.0", 0, HIGHEST,
           "largest global norm of the gradients; 0 switches clipping off", BUILT),
    INT("steps_per_print", AT(misc.steps_per_print), "null", 0, HIGHEST,
        "steps between progress lines if there is no live line; null or 0 = one line per step",
        .unit = "steps", .flags = FIELD_NULL, BUILT),
    CHOICE("communication_data_type", NOWHERE, "null", comm_dtypes,
           "dtype that gradients are rounded to for the reduction; null is the working dtype",
           .flags = FIELD_NULL | FIELD_ANY_CASE, BUILT),
    CHOICE("seq_parallel_communication_data_type", NOWHERE, "\"fp32\"", comm_dtypes,
           "the same if spillway.mesh.context is above 1, as its ranks add gradients in the same "
           "reduction; null is communication_data_type",
           .flags = FIELD_NULL | FIELD_ANY_CASE, BUILT),
    BOOL("prescale_gradients", NOWHERE, "false", "divide by the ranks before the reduction",
         NEEDLESS("gradients are summed in fp32 and averaged once, after the sum")),
    NUMBER("gradient_predivide_factor", NOWHERE, "1.0", 0, HIGHEST,
           "part of the division that is done before the reduction", .flags = FIELD_ABOVE,
           NEEDLESS("gradients are summed in fp32 and averaged once, after the sum")),
    CHOICE("gradient_allreduce_op", NOWHERE, "\"mean\"", allreduce_ops,
           "how gradients of the ranks are joined", .flags = FIELD_ANY_CASE, LATER),
    BOOL("sparse_gradients", AT(misc.sparse_gradients), "false",
         "send only the non-zero rows of embedding gradients to their owners, if the plan finds "
         "that shorter; results do not depend on it",
         BUILT),
    BOOL("disable_allgather", NOWHERE, "false", "broadcast updated parameters instead of gathering",
         NEEDLESS("the plan chooses the collectives")),
    BOOL("zero_allow_untested_optimizer", NOWHERE, "false",
         "permit ZeRO with optimizers that were not tested with it",
         NEEDLESS("every optimizer built here is exact at every stage")),
    BOOL("zero_force_ds_cpu_optimizer", NOWHERE, "true",
         "insist on the CPU optimizer when its states are on the CPU",
         NEEDLESS("there is one implementation of each update")),
    BOOL("wall_clock_breakdown", AT(misc.wall_clock_breakdown), "false",
         "print times of forward, backward and update in progress lines and metrics", BUILT),
    BOOL("memory_breakdown", NOWHERE, "false", "print memory use",
         NEEDLESS("the line at the start lists the bytes of each tier")),
    BOOL("dump_state", NOWHERE, "false", "print the configuration at the start",
         NEEDLESS("`spillway config` prints it, and checkpoints keep it")),
    BOOL("disable_python_gc", NOWHERE, "false", "switch Python's collector off in training",
         NEEDLESS("there is no Python")),
    BOOL("dataloader_drop_last", NOWHERE, "false", "drop the last, short batch",
         NEEDLESS("the sampler runs over the end of an epoch: batches are always whole")),
    CHOICE("log_level", NOWHERE, "null", log_levels, "verbosity of messages",
           .flags = FIELD_NULL | FIELD_ANY_CASE, NEEDLESS("the program's own flags decide")),
    INT("vocabulary_size", NOWHERE, "null", 0, HIGHEST,
        "vocabulary size; warn if it is not a multiple of 8", .flags = FIELD_NULL,
        NEEDLESS("matrix products take any size")),
    BOOL("graph_harvesting", NOWHERE, "false", "replay CUDA graphs", GONE),
    BOOL("use_data_before_expert_parallelism", NOWHERE, "false",
         "order of data and expert groups among the ranks", LATER),
    INT("sequence_parallel_size", NOWHERE, "1", 1, HIGHEST,
        "ranks that share one sequence; the same as spillway.mesh.context", .flags = FIELD_QUIET,
        BUILT),
    INT("allgather_size", NOWHERE, "null", 0, HIGHEST,
        "bucket size for the old form \"zero_optimization\": true", .unit = "elements",
        .flags = FIELD_NULL | FIELD_QUIET,
        NEEDLESS("becomes zero_optimization.allgather_bucket_size")),
};
SECTION(sw_config_table_top, "", top_fields, 0, "the file itself");

/* ---- optimizer ---- */

static const struct config_field optimizer_fields[] = {
    STRING("type", NOWHERE, "null", "name of the optimizer, case-insensitive", .flags = FIELD_NULL,
           BUILT),
    BOOL("legacy_fusion", NOWHERE, "false", "old fused optimizer",
         NEEDLESS("there is one implementation of each update")),
};
SECTION(sw_config_table_optimizer, "optimizer", optimizer_fields, 0,
        "the update rule; `params` depends on `type`");

#define LR(def)                                                                                    \
    NUMBER("lr", AT(optimizer.lr), def, 0, HIGHEST, "learning rate; a scheduler replaces it", BUILT)
#define BETAS(def)                                                                                 \
    NUMBERS("betas", AT(optimizer.betas), def, 0, 1,                                               \
            "decay of the running means of gradient and squared gradient", BUILT)
#define EPS(def)                                                                                   \
    NUMBER("eps", AT(optimizer.eps), def, 0, HIGHEST,                                              \
           "term added to the square root in the denominator", BUILT)
#define DECAY                                                                                      \
    NUMBER("weight_decay", AT(optimizer.weight_decay), "0.0", 0, HIGHEST, "weight decay", BUILT)
#define MAX_GRAD_NORM                                                                              \
    NUMBER("max_grad_norm", AT(optimizer.max_grad_norm), "0.0", 0, HIGHEST,                        \
           "former place of gradient_clipping; must equal it",                                     \
           NEEDLESS("gradient_clipping clips"))
#define AMSGRAD BOOL("amsgrad", NOWHERE, "false", "the AMSGrad variant", LATER)
#define TORCH_EXTRAS                                                                               \
    JSON("foreach", "null", "implementation choice of torch", NEEDLESS("one implementation")),     \
        JSON("fused", "null", "implementation choice of torch", NEEDLESS("one implementation")),   \
        BOOL("capturable", NOWHERE, "false", "make the update capturable by CUDA graphs",          \
             NEEDLESS("one implementation")),                                                      \
        BOOL("differentiable", NOWHERE, "false", "compute gradients through the update", LATER)

static const struct config_field adam_fields[] = {
    LR("1e-3"),
    BETAS("[0.9, 0.999]"),
    EPS("1e-8"),
    DECAY,
    BOOL("bias_correction", AT(optimizer.bias_correction), "true",
         "divide the running means by 1 - beta^t", BUILT),
    BOOL("adam_w_mode", AT(optimizer.adam_w_mode), "true",
         "decay weights directly (AdamW) rather than through the gradient; \"AdamW\" and "
         "\"AdamW8bit\" always do",
         BUILT),
    INT("min_8bit_size", AT(optimizer.min_8bit_size), "4096", 0, HIGHEST,
        "elements below which a tensor's 8-bit moments stay in fp32", BUILT),
    BOOL("torch_adam", NOWHERE, "false", "use torch's implementation of Adam",
         NEEDLESS("there is one implementation, with torch's formula")),
    BOOL("fp32_optimizer_states", NOWHERE, "true", "keep the running means in fp32",
         LATER_BECAUSE("\"spillway\": {\"moments\": \"bf16\"} keeps them in bf16")),
    MAX_GRAD_NORM,
    AMSGRAD,
    BOOL("maximize", NOWHERE, "false", "ascend the gradient instead of descending", LATER),
    BOOL("set_grad_none", NOWHERE, "true", "free gradients after the step",
         NEEDLESS("the plan says when memory is free")),
    TORCH_EXTRAS,
};
static SECTION(adam_params, "optimizer.params", adam_fields, SECTION_NULL,
               "for Adam, AdamW, Adam8bit and AdamW8bit");

static const struct config_field sgd_fields[] = {
    LR("1e-3"),
    NUMBER("momentum", AT(optimizer.momentum), "0.0", 0, HIGHEST, "factor of the last update",
           BUILT),
    NUMBER("dampening", AT(optimizer.dampening), "0.0", LOWEST, HIGHEST,
           "dampening of momentum: after the first step the gradient enters with factor 1 - "
           "dampening",
           BUILT),
    DECAY,
    BOOL("nesterov", AT(optimizer.nesterov), "false", "Nesterov's momentum", BUILT),
    BOOL("maximize", AT(optimizer.maximize), "false", "ascend the gradient instead of descending",
         BUILT),
    MAX_GRAD_NORM,
    TORCH_EXTRAS,
};
static SECTION(sgd_params, "optimizer.params", sgd_fields, SECTION_NULL, "for SGD");

static const struct config_field lamb_fields[] = {
    LR("1e-3"),
    BETAS("[0.9, 0.999]"),
    EPS("1e-8"),
    DECAY,
    BOOL("bias_correction", AT(optimizer.bias_correction), "true",
         "correct the step size by sqrt(1 - beta2^t) / (1 - beta1^t)", BUILT),
    BOOL("eps_inside_sqrt", AT(optimizer.eps_inside_sqrt), "false",
         "add eps inside the square root", BUILT),
    NUMBER("max_coeff", AT(optimizer.max_coeff), "10.0", 0, HIGHEST,
           "largest trust ratio of a tensor", BUILT),
    NUMBER("min_coeff", AT(optimizer.min_coeff), "0.01", 0, HIGHEST,
           "smallest trust ratio of a tensor", BUILT),
    MAX_GRAD_NORM,
    AMSGRAD,
};
static SECTION(lamb_params, "optimizer.params", lamb_fields, SECTION_NULL, "for LAMB");

static const struct config_field adagrad_fields[] = {
    LR("1e-2"),
    NUMBER("lr_decay", AT(optimizer.lr_decay), "0.0", 0, HIGHEST,
           "decay of the rate, which is lr / (1 + (step - 1) lr_decay)", BUILT),
    EPS("1e-10"),
    DECAY,
    NUMBER("initial_accumulator_value", AT(optimizer.initial_accumulator_value), "0.0", 0, HIGHEST,
           "initial value of the sum of squares", BUILT),
    AMSGRAD,
    BOOL("maximize", NOWHERE, "false", "ascend the gradient instead of descending", LATER),
    TORCH_EXTRAS,
};
static SECTION(adagrad_params, "optimizer.params", adagrad_fields, SECTION_NULL, "for Adagrad");

static const struct config_field lion_fields[] = {
    LR("1e-3"),
    BETAS("[0.9, 0.999]"),
    DECAY,
    BOOL("use_triton", NOWHERE, "false", "implementation choice", NEEDLESS("one implementation")),
};
static SECTION(lion_params, "optimizer.params", lion_fields, SECTION_NULL, "for Lion");

static const struct config_field sparse_adam_fields[] = {
    LR("1e-3"),
    BETAS("[0.9, 0.999]"),
    EPS("1e-8"),
    MAX_GRAD_NORM,
    BOOL("maximize", NOWHERE, "false", "ascend the gradient instead of descending", LATER),
};
static SECTION(sparse_adam_params, "optimizer.params", sparse_adam_fields, SECTION_NULL,
               "for SparseAdam, which leaves rows without gradients unchanged");

static const struct config_field rmsprop_fields[] = {
    LR("1e-2"),
    NUMBER("alpha", AT(optimizer.alpha), "0.99", 0, 1, "decay of the running mean of squares",
           BUILT),
    EPS("1e-8"),
    DECAY,
    NUMBER("momentum", AT(optimizer.momentum), "0.0", 0, HIGHEST, "factor of the last update",
           BUILT),
    BOOL("centered", NOWHERE, "false",
         "divide by the standard deviation, not by the root mean square", LATER),
    MAX_GRAD_NORM,
    BOOL("maximize", AT(optimizer.maximize), "false", "ascend the gradient instead of descending",
         BUILT),
    TORCH_EXTRAS,
};
static SECTION(rmsprop_params, "optimizer.params", rmsprop_fields, SECTION_NULL, "for RMSprop");

static const char *const ns_methods[] = {"gram", "standard", NULL};
static const struct config_field muon_fields[] = {
    LR("1e-3"),
    NUMBER("momentum", AT(optimizer.momentum), "0.95", 0, 1, "decay of the running mean", BUILT),
    DECAY,
    BOOL("nesterov", AT(optimizer.nesterov), "true", "Nesterov's momentum", BUILT),
    BETAS("[0.9, 0.999]"),
    EPS("1e-8"),
    NUMBER("muon_lr", AT(optimizer.muon_lr), "null", 0, HIGHEST,
           "learning rate of matrices; null = lr", .flags = FIELD_NULL, .null_as = -1, BUILT),
    NUMBER("adam_lr", AT(optimizer.adam_lr), "null", 0, HIGHEST,
           "learning rate of all other parameters, which AdamW updates; null = lr",
           .flags = FIELD_NULL, .null_as = -1, BUILT),
    INT("ns_steps", AT(optimizer.ns_steps), "5", 1, 100, "iterations of Newton-Schulz", BUILT),
    CHOICE("ns_method", NOWHERE, "\"gram\"", ns_methods, "method of the Newton-Schulz iteration",
           NEEDLESS("there is one implementation, with torch's formula")),
};
static SECTION(muon_params, "optimizer.params", muon_fields, SECTION_NULL, "for Muon");

static const struct config_field adafactor_fields[] = {
    NUMBER("lr", AT(optimizer.lr), "null", 0, HIGHEST,
           "learning rate, required without relative_step; a scheduler replaces it",
           .flags = FIELD_NULL, BUILT),
    NUMBERS("eps", AT(optimizer.adafactor_eps), "[1e-30, 1e-3]", 0, HIGHEST,
            "two numbers: a term added to squared gradients, and the smallest scale of a "
            "parameter",
            BUILT),
    NUMBER("clip_threshold", AT(optimizer.clip_threshold), "1.0", 0, HIGHEST,
           "largest root mean square of an update direction", BUILT),
    NUMBER("decay_rate", AT(optimizer.decay_rate), "-0.8", LOWEST, 0,
           "exponent of the decay 1 - step^decay_rate of the mean squares", BUILT),
    NUMBER("beta1", AT(optimizer.momentum), "null", 0, 1,
           "decay of the running mean of update directions; null = no running mean",
           .flags = FIELD_NULL, BUILT),
    DECAY,
    BOOL("scale_parameter", AT(optimizer.scale_parameter), "true",
         "scale the rate by the parameter's root mean square", BUILT),
    BOOL("relative_step", AT(optimizer.relative_step), "true",
         "use min(1e-2, 1 / sqrt(step)) as the rate, instead of lr", BUILT),
    BOOL("warmup_init", AT(optimizer.warmup_init), "false",
         "let relative_step begin with 1e-6 x step instead of 1e-2", BUILT),
};
static SECTION(adafactor_params, "optimizer.params", adafactor_fields, SECTION_NULL,
               "for Adafactor, with transformers' names");

#define ONEBIT                                                                                     \
    LR("1e-3"), BETAS("[0.9, 0.999]"), EPS("1e-8"), DECAY,                                         \
        BOOL("bias_correction", NOWHERE, "true",                                                   \
             "divide the running means by 1 - beta^t, as Adam does", BUILT),                       \
        BOOL("eps_inside_sqrt", NOWHERE, "false", "add eps inside the square root", BUILT),        \
        NUMBER("max_grad_norm", NOWHERE, "0.0", 0, HIGHEST, "clipping", BUILT), AMSGRAD,           \
        BOOL("cuda_aware", NOWHERE, "false", "let MPI read device memory", BUILT),                 \
        STRING("comm_backend_name", NOWHERE, "\"nccl\"", "transport", BUILT)

static const struct config_field onebit_adam_fields[] = {
    ONEBIT,
    INT("freeze_step", NOWHERE, "100000", 0, HIGHEST, "steps of plain Adam first", BUILT),
};
static SECTION(onebit_adam_params, "optimizer.params", onebit_adam_fields, SECTION_NULL,
               "for 1-bit Adam");

static const struct config_field onebit_lamb_fields[] = {
    ONEBIT,
    INT("freeze_step", NOWHERE, "100000", 0, HIGHEST, "steps of plain LAMB first", BUILT),
    NUMBER("max_coeff", NOWHERE, "10.0", 0, HIGHEST, "largest trust ratio", BUILT),
    NUMBER("min_coeff", NOWHERE, "0.01", 0, HIGHEST, "smallest trust ratio", BUILT),
    NUMBER("coeff_beta", NOWHERE, "0.9", 0, 1, "decay of the mean ratio", BUILT),
    NUMBER("factor_max", NOWHERE, "4.0", 0, HIGHEST, "largest factor of a ratio", BUILT),
    NUMBER("factor_min", NOWHERE, "0.5", 0, HIGHEST, "smallest factor of a ratio", BUILT),
    NUMBER("factor_threshold", NOWHERE, "0.1", 0, HIGHEST, "largest change of a factor", BUILT),
};
static SECTION(onebit_lamb_params, "optimizer.params", onebit_lamb_fields, SECTION_NULL,
               "for 1-bit LAMB");

static const struct config_field zero_one_fields[] = {
    ONEBIT,
    INT("var_freeze_step", NOWHERE, "100000", 0, HIGHEST, "step that freezes the variance", BUILT),
    INT("var_update_scaler", NOWHERE, "16", 1, HIGHEST, "interval of variance updates", BUILT),
    INT("local_step_scaler", NOWHERE, "32678", 1, HIGHEST, "growth of local steps", BUILT),
    INT("local_step_clipper", NOWHERE, "16", 1, HIGHEST, "maximum number of local steps", BUILT),
};
static SECTION(zero_one_params, "optimizer.params", zero_one_fields, SECTION_NULL, "for 0/1 Adam");

const struct config_variant sw_config_optimizers[] = {
    {"Adam", SW_OPTIMIZER_ADAM, &adam_params, true},
    {"AdamW", SW_OPTIMIZER_ADAM, &adam_params, true},
    {"Adam8bit", SW_OPTIMIZER_ADAM, &adam_params, true},
    {"AdamW8bit", SW_OPTIMIZER_ADAM, &adam_params, true},
    {"SGD", SW_OPTIMIZER_SGD, &sgd_params, true},
    {"Lamb", SW_OPTIMIZER_LAMB, &lamb_params, true},
    {"Adagrad", SW_OPTIMIZER_ADAGRAD, &adagrad_params, true},
    {"Lion", SW_OPTIMIZER_LION, &lion_params, true},
    {"Muon", SW_OPTIMIZER_MUON, &muon_params, true},
    {"OneBitAdam", SW_OPTIMIZER_OTHER, &onebit_adam_params, false},
    {"OneBitLamb", SW_OPTIMIZER_OTHER, &onebit_lamb_params, false},
    {"ZeroOneAdam", SW_OPTIMIZER_OTHER, &zero_one_params, false},
    {"MuAdam", SW_OPTIMIZER_OTHER, NULL, false},
    {"MuAdamW", SW_OPTIMIZER_OTHER, NULL, false},
    {"MuSGD", SW_OPTIMIZER_OTHER, NULL, false},
    {"Adadelta", SW_OPTIMIZER_OTHER, NULL, false},
    {"Adamax", SW_OPTIMIZER_OTHER, NULL, false},
    {"ASGD", SW_OPTIMIZER_OTHER, NULL, false},
    {"LBFGS", SW_OPTIMIZER_OTHER, NULL, false},
    {"NAdam", SW_OPTIMIZER_OTHER, NULL, false},
    {"RAdam", SW_OPTIMIZER_OTHER, NULL, false},
    {"Rprop", SW_OPTIMIZER_OTHER, NULL, false},
    {"SparseAdam", SW_OPTIMIZER_SPARSE_ADAM, &sparse_adam_params, true},
    {"RMSprop", SW_OPTIMIZER_RMSPROP, &rmsprop_params, true},
    {"Adafactor", SW_OPTIMIZER_ADAFACTOR, &adafactor_params, true},
};
const size_t sw_config_n_optimizers = SW_LEN(sw_config_optimizers);

/* ---- scheduler ---- */

static const struct config_field scheduler_fields[] = {
    STRING("type", NOWHERE, "null", "name of the learning-rate schedule", .flags = FIELD_NULL,
           BUILT),
};
SECTION(sw_config_table_scheduler, "scheduler", scheduler_fields, 0,
        "learning rate over the steps; `params` depends on `type`");

#define WARMUP_STEPS                                                                               \
    INT("warmup_num_steps", AT(scheduler.warmup_num_steps), "1000", 1, HIGHEST,                    \
        "length of the warm-up, at least 2", .unit = "steps", BUILT),                              \
        STRING("warmup_type", NOWHERE, "\"log\"",                                                  \
               "\"log\" or \"linear\"; anything else means log, with a warning", BUILT)
#define WARMUP_MIN                                                                                 \
    NUMBERS("warmup_min_lr", AT(scheduler.warmup_min_lr), "0.0", 0, HIGHEST, "rate at the start",  \
            BUILT)
#define TOTAL_STEPS                                                                                \
    INT("total_num_steps", AT(scheduler.total_num_steps), "null", 0, HIGHEST,                      \
        "steps of the whole training", .unit = "steps", .flags = FIELD_REQUIRED, BUILT)

#define START                                                                                      \
    INT("last_batch_iteration", NOWHERE, "-1", LOWEST, HIGHEST,                                    \
        "index to start from; checkpoints keep the index", .unit = "steps", .flags = FIELD_QUIET,  \
        LATER)

static const struct config_field warmup_fields[] = {
    WARMUP_MIN,
    NUMBERS("warmup_max_lr", AT(scheduler.warmup_max_lr), "null", 0, HIGHEST,
            "rate after the warm-up; null = the optimizer's lr", .flags = FIELD_NULL, BUILT),
    WARMUP_STEPS,
    START,
};
static SECTION(warmup_params, "scheduler.params", warmup_fields, SECTION_NULL, "for WarmupLR");

static const struct config_field warmup_decay_fields[] = {
    TOTAL_STEPS,
    WARMUP_MIN,
    NUMBERS("warmup_max_lr", AT(scheduler.warmup_max_lr), "0.001", 0, HIGHEST,
            "rate after the warm-up", BUILT),
    WARMUP_STEPS,
    START,
};
static SECTION(warmup_decay_params, "scheduler.params", warmup_decay_fields, SECTION_NULL,
               "for WarmupDecayLR");

static const struct config_field warmup_cosine_fields[] = {
    TOTAL_STEPS,
    NUMBER("warmup_min_ratio", AT(scheduler.warmup_min_ratio), "0.0", 0, HIGHEST,
           "part of the optimizer's lr at the start", BUILT),
    WARMUP_STEPS,
    NUMBER("cos_min_ratio", AT(scheduler.cos_min_ratio), "0.0001", 0, HIGHEST,
           "part of the optimizer's lr at the end", BUILT),
    START,
};
static SECTION(warmup_cosine_params, "scheduler.params", warmup_cosine_fields, SECTION_NULL,
               "for WarmupCosineLR");

static const struct config_field one_cycle_fields[] = {
    NUMBERS("cycle_min_lr", AT(scheduler.cycle_min_lr), "null", 0, HIGHEST,
            "rate at both ends of the cycle", .flags = FIELD_REQUIRED, BUILT),
    NUMBERS("cycle_max_lr", AT(scheduler.cycle_max_lr), "null", 0, HIGHEST,
            "rate in the middle of the cycle", .flags = FIELD_REQUIRED, BUILT),
    NUMBER("decay_lr_rate", AT(scheduler.decay_lr_rate), "0.0", LOWEST, HIGHEST,
           "decay of the rate after the cycle; it is divided by 1 + decay_lr_rate x intervals",
           BUILT),
    NUMBER("cycle_first_step_size", AT(scheduler.cycle_first_step_size), "2000", 0, HIGHEST,
           "length of the rising half", .unit = "steps", .flags = FIELD_ABOVE, BUILT),
    NUMBER("cycle_second_step_size", AT(scheduler.cycle_second_step_size), "null", 0, HIGHEST,
           "length of the falling half; null = the length of the rising half", .unit = "steps",
           .null_as = -1, .flags = FIELD_NULL, BUILT),
    INT("cycle_first_stair_count", AT(scheduler.cycle_first_stair_count), "0", 0, HIGHEST,
        "stairs of the rising half; 0 = a ramp", BUILT),
    INT("cycle_second_stair_count", AT(scheduler.cycle_second_stair_count), "null", 0, HIGHEST,
        "stairs of the falling half; null = as many as the rising half has", .null_as = -1,
        .flags = FIELD_NULL, BUILT),
    NUMBER("decay_step_size", AT(scheduler.decay_step_size), "0", 0, HIGHEST,
           "length of an interval of decay; 0 switches decay off", .unit = "steps", BUILT),
    BOOL("cycle_momentum", AT(scheduler.cycle_momentum), "true",
         "lower beta1 while the rate rises, and set beta2 to 0.99", BUILT),
    NUMBERS("cycle_min_mom", AT(scheduler.cycle_min_mom), "0.8", LOWEST, HIGHEST, "lowest beta1",
            BUILT),
    NUMBERS("cycle_max_mom", AT(scheduler.cycle_max_mom), "0.9", LOWEST, HIGHEST, "highest beta1",
            BUILT),
    NUMBER("decay_mom_rate", AT(scheduler.decay_mom_rate), "0.0", LOWEST, HIGHEST,
           "growth of beta1 after the cycle; it is multiplied by 1 + decay_mom_rate x intervals",
           BUILT),
    START,
};
static SECTION(one_cycle_params, "scheduler.params", one_cycle_fields, SECTION_NULL,
               "for OneCycle");

static const struct config_field range_test_fields[] = {
    NUMBERS("lr_range_test_min_lr", AT(scheduler.range_min_lr), "0.001", 0, HIGHEST,
            "rate at the start", BUILT),
    INT("lr_range_test_step_size", AT(scheduler.range_step_size), "2000", 1, HIGHEST,
        "length of an interval", .unit = "steps", BUILT),
    NUMBER("lr_range_test_step_rate", AT(scheduler.range_step_rate), "1.0", LOWEST, HIGHEST,
           "growth of the rate in an interval", BUILT),
    BOOL("lr_range_test_staircase", AT(scheduler.range_staircase), "false",
         "grow at the end of intervals only", BUILT),
    START,
};
static SECTION(range_test_params, "scheduler.params", range_test_fields, SECTION_NULL,
               "for LRRangeTest");

/* ---- schedules of transformers' Trainer ---- */

#define TRAINER_WARMUP                                                                             \
    INT("warmup_num_steps", AT(scheduler.warmup_num_steps), "0", 0, HIGHEST,                       \
        "length N of the linear warm-up; step k has the rate (k - 1) / N x lr", .unit = "steps",   \
        BUILT)

static const struct config_field constant_fields[] = {START};
static SECTION(constant_params, "scheduler.params", constant_fields, SECTION_NULL,
               "for constant, the optimizer's lr at every step");

static const struct config_field trainer_warmup_fields[] = {TRAINER_WARMUP, START};
static SECTION(trainer_warmup_params, "scheduler.params", trainer_warmup_fields, SECTION_NULL,
               "for constant_with_warmup and inverse_sqrt, as in transformers' Trainer");

static const struct config_field trainer_decay_fields[] = {TOTAL_STEPS, TRAINER_WARMUP, START};
static SECTION(trainer_decay_params, "scheduler.params", trainer_decay_fields, SECTION_NULL,
               "for linear and cosine, as in transformers' Trainer");

const struct config_variant sw_config_schedulers[] = {
    {"WarmupLR", SW_SCHEDULER_WARMUP, &warmup_params, true},
    {"WarmupDecayLR", SW_SCHEDULER_WARMUP_DECAY, &warmup_decay_params, true},
    {"WarmupCosineLR", SW_SCHEDULER_WARMUP_COSINE, &warmup_cosine_params, true},
    {"OneCycle", SW_SCHEDULER_ONE_CYCLE, &one_cycle_params, true},
    {"LRRangeTest", SW_SCHEDULER_LR_RANGE_TEST, &range_test_params, true},
    {"constant", SW_SCHEDULER_CONSTANT, &constant_params, true},
    {"constant_with_warmup", SW_SCHEDULER_CONSTANT_WITH_WARMUP, &trainer_warmup_params, true},
    {"inverse_sqrt", SW_SCHEDULER_INVERSE_SQRT, &trainer_warmup_params, true},
    {"linear", SW_SCHEDULER_LINEAR, &trainer_decay_params, true},
    {"cosine", SW_SCHEDULER_COSINE, &trainer_decay_params, true},
    {"LambdaLR", SW_SCHEDULER_OTHER, NULL, false},
    {"MultiplicativeLR", SW_SCHEDULER_OTHER, NULL, false},
    {"StepLR", SW_SCHEDULER_OTHER, NULL, false},
    {"MultiStepLR", SW_SCHEDULER_OTHER, NULL, false},
    {"ConstantLR", SW_SCHEDULER_OTHER, NULL, false},
    {"LinearLR", SW_SCHEDULER_OTHER, NULL, false},
    {"ExponentialLR", SW_SCHEDULER_OTHER, NULL, false},
    {"PolynomialLR", SW_SCHEDULER_OTHER, NULL, false},
    {"CosineAnnealingLR", SW_SCHEDULER_OTHER, NULL, false},
    {"CosineAnnealingWarmRestarts", SW_SCHEDULER_OTHER, NULL, false},
    {"ChainedScheduler", SW_SCHEDULER_OTHER, NULL, false},
    {"SequentialLR", SW_SCHEDULER_OTHER, NULL, false},
    {"ReduceLROnPlateau", SW_SCHEDULER_OTHER, NULL, false},
    {"CyclicLR", SW_SCHEDULER_OTHER, NULL, false},
    {"OneCycleLR", SW_SCHEDULER_OTHER, NULL, false},
};
const size_t sw_config_n_schedulers = SW_LEN(sw_config_schedulers);

/* ---- precision ---- */

static const struct config_field fp16_fields[] = {
    BOOL("enabled", AT(fp16.enabled), "false", "train in fp16 with fp32 masters", BUILT),
    BOOL("auto_cast", AT(fp16.auto_cast), "false", "cast the model's inputs to fp16",
         NEEDLESS("the graph casts where the model says so")),
    NUMBER("loss_scale", AT(fp16.loss_scale), "0", 0, HIGHEST, "loss scale; 0 = dynamic",
           .flags = FIELD_NO_BOOL, BUILT),
    INT("initial_scale_power", AT(fp16.initial_scale_power), "16", -126, 127,
        "exponent of the first dynamic scale, a power of 2", BUILT),
    INT("loss_scale_window", AT(fp16.loss_scale_window), "1000", LOWEST, HIGHEST,
        "steps without overflow after which the scale doubles", .unit = "steps",
        .flags = FIELD_NO_BOOL, BUILT),
    INT("hysteresis", AT(fp16.hysteresis), "2", LOWEST, HIGHEST,
        "overflows after which the scale is halved; 0 = never", BUILT),
    BOOL("consecutive_hysteresis", AT(fp16.consecutive_hysteresis), "false",
         "reset the count of overflows after a step without one", BUILT),
    INT("min_loss_scale", AT(fp16.min_loss_scale), "1", LOWEST, HIGHEST,
        "smallest scale; an overflow at this scale ends the training", .flags = FIELD_NO_BOOL,
        BUILT),
    BOOL("fp16_master_weights_and_grads", AT(fp16.master_weights_and_grads), "false",
         "masters and gradients in fp16", LATER),
};
SECTION(sw_config_table_fp16, "fp16", fp16_fields, SECTION_MODEL, "half precision");

static const struct config_field bf16_fields[] = {
    BOOL("enabled", AT(bf16.enabled), "false", "train in bf16 with fp32 masters", BUILT),
    BOOL("immediate_grad_update", AT(bf16.immediate_grad_update), "false",
         "accumulate a gradient as soon as it exists",
         NEEDLESS("the plan accumulates as soon as a gradient is final")),
    BOOL("check_grad_overflow", AT(bf16.check_grad_overflow), "true",
         "check gradients for NaN and infinity",
         NEEDLESS("gradients are always checked; a NaN or infinity ends `spillway train`")),
    BOOL("bf16_master_weights_and_grads", AT(bf16.master_weights_and_grads), "false",
         "masters and gradients in bf16", LATER),
    BOOL("bf16_optimizer_states", AT(bf16.optimizer_states), "false", "running means in bf16",
         LATER_BECAUSE("\"spillway\": {\"moments\": \"bf16\"} keeps them in bf16")),
};
SECTION(sw_config_table_bf16, "bf16", bf16_fields, SECTION_MODEL,
        "bfloat16; the old name of the block is bfloat16");

static const struct config_field data_types_fields[] = {
    DTYPE("grad_accum_dtype", AT(data_types.grad_accum), "null",
          "dtype of the sum over micro-batches; null is fp32", .null_as = SW_DTYPE_COUNT,
          .flags = FIELD_NULL, BUILT),
    DTYPE("param_dtype", AT(data_types.param), "null", "dtype that the model is read in",
          .null_as = SW_DTYPE_COUNT, .flags = FIELD_NULL, LATER),
    DTYPE("buffer_dtype", AT(data_types.buffer), "null", "dtype of buffers",
          .null_as = SW_DTYPE_COUNT, .flags = FIELD_NULL, LATER),
    JSON("keep_in_fp32_modules", "\"auto\"", "modules that stay in fp32", LATER),
};
SECTION(sw_config_table_data_types, "data_types", data_types_fields, 0, "dtypes by use");

/* ---- our own block ---- */

static const char *const losses[] = {"microbatch", "tokens", NULL};
static const char *const micro_batches[] = {"auto", NULL};
static const char *const recomputes[] = {"none", "blocks", NULL};
static const char *const moments[] = {"fp32", "bf16", "8bit", NULL};
static const char *const reduces[] = {"canonical", "boundary", NULL};
static const char *const quantized[] = {"none", "nf4", "int8", NULL};
static const char *const comms[] = {"auto", "library", "host", NULL};
static const char *const updates[] = {"auto", "device", "host", NULL};
#define NAME(NAME, name) name,
static const char *const schedules[] = {SW_STEP_SCHEDULES(NAME) NULL};
#undef NAME
static const char *const clipped_updates[] = {"end", "next_forward", NULL};
static const char *const kernels[] = {"fast", "reference", "onednn", NULL};

static const struct config_field spillway_fields[] = {
    INT("micro_batches", AT(spillway.micro_batches), "null", 1, HIGHEST,
        "micro-batches (K) of a global batch over all ranks; fixes the batch for any number of "
        "ranks",
        .flags = FIELD_NULL, BUILT),
    CHOICE("micro_batch", AT(spillway.micro_batch), "null", micro_batches,
           "auto = the largest train_micro_batch_size_per_gpu that fits the budgets and divides "
           "train_batch_size; null = the batch keys decide",
           .flags = FIELD_NULL, .null_as = SW_MICRO_BATCH_GIVEN,
           .why = "the size is set by \"train_micro_batch_size_per_gpu\", the number by "
                  "\"micro_batches\"",
           BUILT),
    CHOICE("loss", AT(spillway.loss), "\"microbatch\"", losses,
           "loss of a step: the mean of the micro-batches' means, or the mean over all targets "
           "(default for chats: tokens)",
           BUILT),
    NUMBER("label_smoothing", AT(spillway.label_smoothing), "0", 0, 1,
           "label smoothing e, below 1, for cross-entropy losses in training and validation: (1 - "
           "e) x loss + e x the mean of -log p over all classes",
           BUILT),
    NUMBER("capacity_factor", AT(spillway.capacity_factor), "0", 0, HIGHEST,
           "in training an expert takes at most this times an equal share of its layer's choices, "
           "and others are dropped; 0 = no bound",
           BUILT),
    NUMBER("router_aux_loss", AT(spillway.router_aux_loss), "null", 0, HIGHEST,
           "weight of the load-balancing loss of routers; null = router_aux_loss_coef of "
           "config.json, if output_router_logits is true",
           .flags = FIELD_NULL, .null_as = -1, BUILT),
    NUMBER("router_z_loss", AT(spillway.router_z_loss), "0", 0, HIGHEST,
           "weight of the mean square of log sum exp of the routers' scores", BUILT),
    BOOL("token_weights", AT(spillway.token_weights), "false",
         "batches of the task causal have weights, f32 [B,T]: the loss is the sum of weighted "
         "losses of tokens over the sum of weights (default for chats with weights: true)",
         BUILT),
    BOOL("packing", AT(spillway.packing), "false",
         "pack several documents or conversations into a row, by best-fit decreasing; they do not "
         "attend to each other, and positions restart",
         BUILT),
    CHOICE("moments", AT(spillway.moments), "\"fp32\"", moments,
           "format of the running means of Adam and AdamW; bf16 is rounded stochastically, by "
           "seed, step and element only; 8bit (the types Adam8bit and AdamW8bit) has one scale "
           "per 256 elements",
           BUILT),
    JSON("groups", "null",
         "parameter groups: a list of {\"match\": pattern or patterns, \"lr_scale\", \"betas\", "
         "\"weight_decay\"}; a parameter is in the first group that matches its name; * and ? "
         "match any text and any character",
         BUILT),
    NUMBER("layer_decay", AT(spillway.layer_decay), "null", 0, 1,
           "factor d of the learning rate per layer: 1 after the last layer, d in the last, d^2 in "
           "the one before, .., d^(layers + 1) before the first; an encoder and its decoder count "
           "separately, and shared embeddings by the deeper one",
           .flags = FIELD_NULL | FIELD_ABOVE, BUILT),
    BOOL("decay_1d", AT(spillway.decay_1d), "true",
         "apply weight decay to one-dimensional parameters (biases, norms), too", BUILT),
    STRINGS("frozen", AT(spillway.frozen), "[]",
            "names of parameters that are not trained; * and ? match any text and any character",
            BUILT),
    INT("threads", AT(spillway.threads), "0", 0, 4096,
        "compute threads of a rank; 0 = its share of its host's processors", BUILT),
    INT("seed", AT(spillway.seed), "1234", 0, HIGHEST, "seed of all random numbers", BUILT),
    STRING("device", AT(spillway.device), "\"auto\"",
           "device that computes: cpu, cuda, hip, or one of several as cuda:1; auto = a GPU if "
           "there is one, else the CPU",
           BUILT),
    BYTES("device_memory", AT(spillway.device_memory_bytes), "null", 1,
          "maximum device memory that a rank's plan may use; null = no budget, or on a GPU the "
          "free memory",
          .flags = FIELD_NULL, BUILT),
    BYTES("host_memory", AT(spillway.host_memory_bytes), "null", 1,
          "maximum host memory per rank for offloaded data and for a cache of the disk; if "
          "nothing is offloaded and device_memory is null, for everything on the CPU; null = no "
          "budget, and no cache",
          .flags = FIELD_NULL, BUILT),
    BYTES("nvme_space", AT(spillway.nvme_space_bytes), "null", 1,
          "maximum disk space that a rank's plan may use; null = the free space",
          .flags = FIELD_NULL, BUILT),
    INT("disk_slots", AT(spillway.disk_slots), "null", 1, 2,
        "slots on disk of what a step updates: 1, or 2 that take turns, so that a failed step "
        "changes nothing; null = 2 if there is room",
        .flags = FIELD_NULL, BUILT),
    WORD("recompute", AT(spillway.recompute.every), "\"none\"", recomputes,
         "keep the input of every n-th block and recompute the rest in backward; \"blocks\" = 1; "
         "auto = none if that fits the budgets, else the fastest n and recompute_blocks that fit",
         .flags = FIELD_AUTO, BUILT),
    INT("recompute_blocks", AT(spillway.recompute.blocks), "null", 1, HIGHEST,
        "number of blocks to recompute, from the first on; later blocks, which backward reaches "
        "first, keep what it reads; null = all",
        .flags = FIELD_NULL, BUILT),
    BOOL("recompute_cheap", AT(spillway.recompute_cheap), "true",
         "recompute outputs of cheap ops (activations, norms) in backward, from inputs that it "
         "reads anyway",
         BUILT),
    CHOICE("reduce", AT(spillway.reduce), "\"canonical\"", reduces,
           "order in which gradients are summed: micro-batch by micro-batch (canonical), or per "
           "rank first (boundary)",
           BUILT),
    CHOICE(
        "quantize", AT(spillway.quantize), "\"none\"", quantized,
        "storage of the frozen linear layers under adapters: nf4 (4 bits in blocks of 64, double "
        "quantization) or int8 (a scale for each row), as bitsandbytes has them; embeddings, norms "
        "and the output head keep the run's dtype",
        BUILT),
    CHOICE(
        "comm", AT(spillway.comm), "\"auto\"", comms,
        "how GPUs of different ranks exchange: by NCCL or RCCL (library), or through host memory "
        "and the transport that started the job (host); auto = the library on GPUs, or host "
        "memory if no rank has one",
        BUILT),
    BOOL("capture", AT(spillway.capture), "true",
         "on GPUs: capture the launches of a phase once, as graphs, and replay these; same bits. "
         "Off where the driver is too old, which a warning says",
         BUILT),
    BOOL("library_sums", AT(spillway.library_sums), "false",
         "let NCCL or RCCL add up what ranks send, in its own order instead of that of ranks; "
         "results then depend on the number of ranks",
         BUILT),
    CHOICE("schedule", AT(spillway.schedule), "\"horizontal\"", schedules,
           "order of a step: one micro-batch after the other (horizontal), or all of them block by "
           "block, so that parameters move once per step (vertical); for pipelines: all forward "
           "first (gpipe), backward as early as possible (1f1b, their default), the same with "
           "several chunks per stage (interleaved), or with gradients of weights put off "
           "(zero-bubble)",
           BUILT),
    JSON("partition", "\"time\"",
         "division of blocks among the stages of a pipeline: by predicted time (time, also called "
         "best), trainable elements (parameters), number (uniform), number of the blocks whose "
         "name matches, such as decoder.layers.3 (type:REGEX), or a list of the first block of "
         "each chunk and the number of blocks",
         BUILT),
    INT("chunks", AT(parallel.chunks), "1", 1, 4095,
        "chunks of blocks on each stage of a pipeline, above 1 with schedule \"interleaved\"; each "
        "needs a block",
        BUILT),
    BOOL("sequence_parallel", AT(parallel.sequence_parallel), "true",
         "between products, tensor ranks compute norms, dropout and residuals on parts of the "
         "rows; false: on all rows",
         BUILT),
    BOOL("gather_again", AT(parallel.gather_again), "false",
         "gather the inputs of products again in backward, so that tensor ranks keep parts of "
         "the rows only; needs sequence_parallel",
         BUILT),
    CHOICE(
        "update", AT(spillway.update), "\"auto\"", updates,
        "where optimizer states offloaded to \"cpu\" are updated: on the device, which loads and "
        "stores them, or on the host, which gets gradients and returns parameters; auto = the "
        "faster one; results do not depend on it, and on the CPU both are the same",
        BUILT),
    CHOICE(
        "clipped_update", AT(spillway.clipped_update), "\"end\"", clipped_updates,
        "with gradient_clipping, when offloaded parameters are updated: at the end of the step, or "
        "within the next forward, which hides transfers behind it and reads fewer bytes, but "
        "keeps gradients twice; results do not depend on it",
        BUILT),
    NUMBER("next_forward_share", AT(spillway.next_forward_share), "1.0", 0.01, 1,
           "with clipped_update \"next_forward\", the share of the offloaded parameters that are "
           "updated there; the others are updated at the end of the step, and keep gradients once",
           BUILT),
    CHOICE("kernels", AT(spillway.kernels), "\"fast\"", kernels,
           "kernels to use: fast ones, plain C, or fast ones with oneDNN's products", BUILT),
    BOOL("allow_other_math", AT(spillway.allow_other_math), "false",
         "resume a checkpoint whose math fingerprint differs", BUILT),
    INT("loss_chunk", AT(spillway.loss_chunk), "0", 0, HIGHEST,
        "columns of the vocabulary that the loss computes at a time; 0 = automatic", BUILT),
    BYTES("tile_bytes", AT(spillway.tile_bytes), "null", 0,
          "size of tiles that larger offloaded parameters are split into; null or 0 = tiles only "
          "if device_memory is too small without",
          .flags = FIELD_NULL, BUILT),
    BYTES(
        "transfer_bytes", AT(spillway.transfer_bytes), "null", 0,
        "maximum bytes loaded ahead of use, with those of updates within forward that wait to be "
        "stored (a quarter more with such updates), and maximum bytes of weights that stay loaded "
        "from one micro-batch to the next; stores in flight during an update are limited to as "
        "many and to 128MiB; a budget may lower all of these; null = half of device_memory, from "
        "64MiB to 1GiB",
        .flags = FIELD_NULL, BUILT),
    STRING("trace", AT(spillway.trace), "null", "trace file of some steps, for Perfetto or Chrome",
           .flags = FIELD_NULL, BUILT),
    INT("trace_first", AT(spillway.trace_first), "null", 1, HIGHEST,
        "first step of the trace; null = the second of the run", .flags = FIELD_NULL, BUILT),
    INT("trace_last", AT(spillway.trace_last), "null", 1, HIGHEST,
        "last step of the trace; null = two after the first", .flags = FIELD_NULL, BUILT),
};
SECTION(sw_config_table_spillway, "spillway", spillway_fields, 0,
        "keys of this program; DeepSpeed ignores the block");
