// SPDX-License-Identifier: Apache-2.0
// The rows of "spillway.lora": the keys that PEFT has, under its names. What PEFT can and we cannot
// has a row, too, so that it is refused by name.
#include "config/table.h"

static const char *const biases[] = {"none", "all", "lora_only", NULL};

#define ABSENT .flags = FIELD_QUIET
static const struct config_field lora_fields[] = {
    INT("r", AT(spillway.lora.r), "8", 1, 65536, "rank of an adapter", BUILT),
    NUMBER("lora_alpha", AT(spillway.lora.alpha), "8", 0, HIGHEST,
           "an adapter is scaled by lora_alpha / r", .flags = FIELD_ABOVE, BUILT),
    NUMBER("lora_dropout", AT(spillway.lora.dropout), "0.0", 0, 1,
           "dropout of what goes into an adapter, in training", BUILT),
    BOOL("use_rslora", AT(spillway.lora.rslora), "false", "scaled by lora_alpha / sqrt(r) instead",
         BUILT),
    BOOL("fan_in_fan_out", NOWHERE, "false", "weights are [in, out], as in GPT-2",
         NEEDLESS("the model says it of each layer")),
    STRINGS("target_modules", AT(spillway.lora.target_modules), "[]",
            "layers that get one: a list of names or their ends, a pattern of whole names, or "
            "\"all-linear\": all but the output head",
            .flags = FIELD_REQUIRED, BUILT),
    STRINGS("exclude_modules", AT(spillway.lora.exclude_modules), "null",
            "layers that get none after all: a list, or a pattern", .flags = FIELD_NULL, BUILT),
    NUMBERS("layers_to_transform", AT(spillway.lora.layers_to_transform), "null", 0, HIGHEST,
            "only these blocks, where target_modules has ends of names", .flags = FIELD_NULL,
            BUILT),
    STRINGS("layers_pattern", AT(spillway.lora.layers_pattern), "null",
            "what the lists of blocks are called that layers_to_transform counts in: patterns, as "
            "\"block\" for T5; null = the last number in a name, whatever stands before it",
            .flags = FIELD_NULL, BUILT),
    JSON("rank_pattern", "{}", "{pattern: r} for layers whose names end in what it matches", BUILT),
    JSON("alpha_pattern", "{}", "{pattern: lora_alpha}, likewise", BUILT),
    STRINGS("modules_to_save", AT(spillway.lora.modules_to_save), "null",
            "ends of names of modules that are trained whole", .flags = FIELD_NULL, BUILT),
    CHOICE("bias", NOWHERE, "\"none\"", biases, "which biases are trained, too", LATER),
    JSON("init_lora_weights", "true",
         "how they begin; true: A Kaiming uniform (a = sqrt 5) by the seed, B zero", LATER),
    BOOL("use_dora", NOWHERE, "false", "magnitude and direction apart", LATER, ABSENT),
    BOOL("use_qalora", NOWHERE, "false", "adapters of quantized weights", LATER, ABSENT),
    BOOL("lora_bias", NOWHERE, "false", "B has a bias", LATER, ABSENT),
    JSON("target_parameters", "null", "adapters of parameters of no layer", LATER, ABSENT),
    JSON("trainable_token_indices", "null", "rows of the embedding that are trained", LATER,
         ABSENT),
    JSON("layer_replication", "null", "blocks that occur several times", LATER, ABSENT),
    JSON("loftq_config", "null", "LoftQ: begin at what quantization lost", LATER, ABSENT),
    JSON("eva_config", "null", "EVA: begin at the activations' components", LATER, ABSENT),
    JSON("corda_config", "null", "CorDA", LATER, ABSENT),
    JSON("arrow_config", "null", "routing between adapters", LATER, ABSENT),
    JSON("ensure_weight_tying", "false", "a saved one of a tied pair stays tied", LATER, ABSENT),
};
SECTION(sw_config_table_lora, "spillway.lora", lora_fields, SECTION_NULL | SECTION_QUIET,
        "LoRA: small matrices are trained beside linear layers, and the model is frozen; the keys "
        "of PEFT");
