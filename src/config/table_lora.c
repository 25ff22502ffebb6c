// SPDX-License-Identifier: Apache-2.0
// The rows of "spillway.lora": the keys that PEFT has, under its names. What PEFT can and we cannot
// has a row, too, so that it is refused by name.
#include "config/table.h"

static const char *const biases[] = {"none", "all", "lora_only", NULL};

#define ABSENT .flags = FIELD_QUIET
static const struct config_field lora_fields[] = {
    INT("r", AT(spillway.lora.r), "8", 1, 65536, "rank of an adapter", BUILT),
    NUMBER("lora_alpha", AT(spillway.lora.alpha), "8", 0, HIGHEST,
           "scale of adapters; their output is multiplied by lora_alpha / r", .flags = FIELD_ABOVE,
           BUILT),
    NUMBER("lora_dropout", AT(spillway.lora.dropout), "0.0", 0, 1,
           "dropout rate of the inputs of adapters, in training", BUILT),
    BOOL("use_rslora", AT(spillway.lora.rslora), "false",
         "scale adapters by lora_alpha / sqrt(r) instead", BUILT),
    BOOL("fan_in_fan_out", NOWHERE, "false", "weights are [in, out], as in GPT-2",
         NEEDLESS("the model knows the layout of each layer")),
    STRINGS("target_modules", AT(spillway.lora.target_modules), "[]",
            "layers that get an adapter: a list of names or name suffixes, a pattern of whole "
            "names, or \"all-linear\", which is all but the output head",
            .flags = FIELD_REQUIRED, BUILT),
    STRINGS("exclude_modules", AT(spillway.lora.exclude_modules), "null",
            "layers excluded from target_modules: a list or a pattern", .flags = FIELD_NULL, BUILT),
    NUMBERS("layers_to_transform", AT(spillway.lora.layers_to_transform), "null", 0, HIGHEST,
            "numbers of the only blocks to adapt, if target_modules has name suffixes",
            .flags = FIELD_NULL, BUILT),
    STRINGS("layers_pattern", AT(spillway.lora.layers_pattern), "null",
            "names of the lists of blocks that layers_to_transform counts in, as patterns such "
            "as \"block\" for T5; null = the last number in a name counts",
            .flags = FIELD_NULL, BUILT),
    JSON("rank_pattern", "{}", "{pattern: r} for layers with a name suffix that matches", BUILT),
    JSON("alpha_pattern", "{}", "{pattern: lora_alpha} for layers with a name suffix that matches",
         BUILT),
    STRINGS("modules_to_save", AT(spillway.lora.modules_to_save), "null",
            "name suffixes of modules that are trained in full", .flags = FIELD_NULL, BUILT),
    CHOICE("bias", AT(spillway.lora.bias), "\"none\"", biases,
           "biases that are trained as well: none, all, or those of layers with an adapter", BUILT),
    JSON("init_lora_weights", "true",
         "initialization; true = A is Kaiming uniform (a = sqrt 5), B is zero", LATER),
    BOOL("use_dora", AT(spillway.lora.dora), "false",
         "DoRA: train the norm of each row of an adapted weight, too; its direction is that of the "
         "weight with its adapter",
         BUILT),
    BOOL("use_qalora", NOWHERE, "false", "adapters of quantized weights", LATER, ABSENT),
    BOOL("lora_bias", NOWHERE, "false", "add a bias to B", LATER, ABSENT),
    JSON("target_parameters", "null", "parameters outside of layers that get adapters", LATER,
         ABSENT),
    JSON("trainable_token_indices", "null", "rows of the embedding that are trained", LATER,
         ABSENT),
    JSON("layer_replication", "null", "blocks that are repeated", LATER, ABSENT),
    JSON("loftq_config", "null", "LoftQ: start from the quantization error", LATER, ABSENT),
    JSON("eva_config", "null", "EVA: start from the principal components of activations", LATER,
         ABSENT),
    JSON("corda_config", "null", "CorDA", LATER, ABSENT),
    JSON("arrow_config", "null", "routing between adapters", LATER, ABSENT),
    JSON("ensure_weight_tying", "false", "keep a saved module of a tied pair tied", LATER, ABSENT),
};
SECTION(sw_config_table_lora, "spillway.lora", lora_fields, SECTION_NULL | SECTION_QUIET,
        "LoRA, with PEFT's keys: small matrices beside linear layers are trained, the model is "
        "frozen");
