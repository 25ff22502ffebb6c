// SPDX-License-Identifier: Apache-2.0
// Spellings of earlier years, rewritten in the JSON tree before the tables read it: the boolean
// zero_optimization of 2020, cpu_offload, the fp16 name of gathering weights, bfloat16.
// Rewritten nodes keep the line they came from.
#include "config/private.h"

#include <stdio.h>
#include <string.h>

static void stamp(struct sw_json *node, const struct sw_json *origin)
{
    node->line = origin->line;
    node->column = origin->column;
    node->key_line = origin->key_line;
    node->key_column = origin->key_column;
}

/* true = stage 1, false = stage 0; allgather_size beside it is today's bucket. */
static sw_status boolean_zero(struct sw_config_impl *impl, struct sw_json *root)
{
    struct sw_json *zero = sw_json_get(root, "zero_optimization");
    if (!zero || zero->type != SW_JSON_BOOL) {
        return SW_OK;
    }
    impl->old_zero_form = true;
    const struct sw_json was = *zero;
    zero = sw_json_put(impl->given, root, "zero_optimization", SW_JSON_OBJECT);
    SW_TRY_ALLOC(zero, "the configuration");
    stamp(zero, &was);
    struct sw_json *stage = sw_json_put_i64(impl->given, zero, "stage", was.boolean);
    SW_TRY_ALLOC(stage, "the configuration");
    stamp(stage, &was);
    struct sw_json *size = sw_json_get(root, "allgather_size");
    if (!size) {
        return SW_OK;
    }
    struct sw_json *bucket = sw_json_put_copy(impl->given, zero, "allgather_bucket_size", size);
    SW_TRY_ALLOC(bucket, "the configuration");
    stamp(bucket, size);
    sw_json_remove(root, size);
    return SW_OK;
}

/* Deprecated flags of ZeRO, each of which stands for a block with device cpu. */
static const struct {
    const char *flag, *block;
} cpu_flags[] = {{"cpu_offload", "offload_optimizer"}, {"cpu_offload_param", "offload_param"}};

static sw_status cpu_flag(struct sw_config_impl *impl, struct sw_json *zero, const char *old_key,
                          const char *new_key)
{
    struct sw_json *flag = sw_json_get(zero, old_key);
    if (!flag) {
        return SW_OK;
    }
    const struct sw_json was = *flag;
    if (sw_config_says_auto(flag)) {
        sw_json_remove(zero, flag);
        return SW_OK;
    }
    const struct sw_json *block = sw_json_get(zero, new_key);
    if (block && !sw_config_says_auto(block)) {
        return sw_config_refuse(impl, was.line, "zero_optimization",
                                "the deprecated key %s and its replacement %s are both given",
                                old_key, new_key);
    }
    bool on = false;
    const char *why = was.type == SW_JSON_NULL ? NULL : sw_config_to_bool(flag, true, &on);
    if (why) {
        return sw_config_refuse(impl, was.line, "zero_optimization", "%s %s", old_key, why);
    }
    sw_json_remove(zero, flag);
    if (!on) {
        return SW_OK;
    }
    struct sw_json *object = sw_json_put(impl->given, zero, new_key, SW_JSON_OBJECT);
    SW_TRY_ALLOC(object, "the configuration");
    stamp(object, &was);
    struct sw_json *device = sw_json_put_str(impl->given, object, "device", "cpu");
    SW_TRY_ALLOC(device, "the configuration");
    stamp(device, &was);
    return SW_OK;
}

static sw_status renamed(struct sw_config_impl *impl, struct sw_json *zero)
{
    static const char *const old_key = "stage3_gather_fp16_weights_on_model_save";
    static const char *const new_key = "gather_16bit_weights_on_model_save";
    struct sw_json *old = sw_json_get(zero, old_key);
    if (!old) {
        return SW_OK;
    }
    if (sw_json_get(zero, new_key) ||
        sw_json_get(zero, "stage3_gather_16bit_weights_on_model_save")) {
        return sw_config_refuse(impl, old->line, "zero_optimization",
                                "the deprecated key %s and its replacement %s are both given",
                                old_key, new_key);
    }
    struct sw_json *copy = sw_json_put_copy(impl->given, zero, new_key, old);
    SW_TRY_ALLOC(copy, "the configuration");
    stamp(copy, old);
    sw_json_remove(zero, old);
    return SW_OK;
}

sw_status sw_config_modern_path(struct sw_config_impl *impl, char **path)
{
    static const struct {
        const char *old, *now;
    } renamed_paths[] = {
        {"bfloat16", "bf16"},
        {"allgather_size", "zero_optimization.allgather_bucket_size"},
        {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
         "zero_optimization.gather_16bit_weights_on_model_save"},
    };
    for (size_t i = 0; i < SW_LEN(renamed_paths); i++) {
        const char *old = renamed_paths[i].old, *now = renamed_paths[i].now;
        const size_t len = strlen(old);
        if (strncmp(*path, old, len) != 0 || ((*path)[len] != '\0' && (*path)[len] != '.') ||
            (strcmp(old, "allgather_size") == 0 && !impl->old_zero_form)) {
            continue;
        }
        const size_t bytes = strlen(now) + strlen(*path + len) + 1;
        char *copy = sw_arena_array(&impl->arena, bytes, 1);
        SW_TRY_ALLOC(copy, "--set");
        snprintf(copy, bytes, "%s%s", now, *path + len);
        *path = copy;
        return SW_OK;
    }
    return SW_OK;
}

const char *sw_config_block_of_flag(const char *block, const char *key)
{
    const bool is_zero = strcmp(block, "zero_optimization") == 0;
    for (size_t i = 0; is_zero && i < SW_LEN(cpu_flags); i++) {
        if (strcmp(key, cpu_flags[i].flag) == 0) {
            return cpu_flags[i].block;
        }
    }
    return NULL;
}

/* The block's old name counts when the new one is absent or null. */
static sw_status bfloat16(struct sw_config_impl *impl, struct sw_json *root)
{
    struct sw_json *old = sw_json_get(root, "bfloat16");
    struct sw_json *now = sw_json_get(root, "bf16");
    if (now && now->type == SW_JSON_NULL) {
        sw_json_remove(root, now);
        now = NULL;
    }
    if (!old) {
        return SW_OK;
    }
    if (!now) {
        struct sw_json *copy = sw_json_put_copy(impl->given, root, "bf16", old);
        SW_TRY_ALLOC(copy, "the configuration");
        stamp(copy, old);
        for (struct sw_json *to = copy->first, *from = old->first; to && from;
             to = to->next, from = from->next) {
            stamp(to, from);
        }
    }
    sw_json_remove(root, old);
    return SW_OK;
}

sw_status sw_config_modernise(struct sw_config_impl *impl)
{
    struct sw_json *root = sw_json_root(impl->given);
    SW_TRY(boolean_zero(impl, root));
    SW_TRY(bfloat16(impl, root));
    struct sw_json *zero = sw_json_get(root, "zero_optimization");
    if (zero && zero->type == SW_JSON_OBJECT) {
        for (size_t i = 0; i < SW_LEN(cpu_flags); i++) {
            SW_TRY(cpu_flag(impl, zero, cpu_flags[i].flag, cpu_flags[i].block));
        }
        SW_TRY(renamed(impl, zero));
    }
    return SW_OK;
}
