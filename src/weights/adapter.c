// SPDX-License-Identifier: Apache-2.0
// Reads adapters from a PEFT folder, byte for byte as PEFT writes it, or from a checkpoint. A key
// of the PEFT configuration that would change the mathematics is either applied or refused by name.
#include "weights/private.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "base_model.model.";

/* Keys that are applied. */
static const char *const used[] = {"r",
                                   "lora_alpha",
                                   "lora_dropout",
                                   "use_rslora",
                                   "use_dora",
                                   "bias",
                                   "fan_in_fan_out",
                                   "target_modules",
                                   "exclude_modules",
                                   "layers_to_transform",
                                   "layers_pattern",
                                   "rank_pattern",
                                   "alpha_pattern",
                                   "modules_to_save"};
/* Keys that do not change how an existing adapter is used. */
static const char *const told[] = {
    "task_type",     "base_model_name_or_path", "inference_mode",    "peft_version", "revision",
    "megatron_core", "qalora_group_size",       "init_lora_weights", "auto_mapping"};

static bool is_in(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_text(const struct sw_json *value, const char *text)
{
    return value->type == SW_JSON_STRING && strcmp(value->string, text) == 0;
}

/* True if a key is switched off, whatever its type. */
static bool is_idle(const struct sw_json *value)
{
    return value->type == SW_JSON_NULL || (value->type == SW_JSON_BOOL && !value->boolean) ||
           (value->type >= SW_JSON_ARRAY && value->n_children == 0);
}

static bool is_taken(const struct sw_json *value)
{
    if (strcmp(value->key, "peft_type") == 0) {
        return is_text(value, "LORA");
    }
    if (strcmp(value->key, "init_lora_weights") == 0) { /* other values change the base's weights */
        return value->type == SW_JSON_BOOL || value->type == SW_JSON_NULL ||
               is_text(value, "gaussian");
    }
    return is_in(value->key, used, SW_LEN(used)) || is_in(value->key, told, SW_LEN(told)) ||
           is_idle(value);
}

static sw_status check_config(const char *path, const struct sw_json *config)
{
    if (config->type != SW_JSON_OBJECT || !sw_json_get(config, "peft_type")) {
        return SW_FAIL(SW_E_FORMAT, "%s: not a configuration of PEFT: it has no peft_type", path);
    }
    for (const struct sw_json *m = config->first; m; m = m->next) {
        if (!is_taken(m)) {
            struct sw_str text = {0};
            sw_json_write(m, 0, &text);
            const sw_status st = SW_FAIL(SW_E_UNSUP, "%s: %s %.80s is not built in this version",
                                         path, m->key, sw_str_text(&text));
            sw_str_fini(&text);
            return st;
        }
    }
    return SW_OK;
}

static sw_status open_files(const char *folder, struct sw_adapter_source *out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    if (access(path, F_OK) != 0) {
        return SW_FAIL(SW_E_IO, "%s: no adapter in this folder; wanted adapter_config.json",
                       folder);
    }
    SW_TRY(sw_json_read(path, SW_JSON_STRICT, &out->doc));
    out->config = sw_json_root(out->doc);
    SW_TRY(check_config(path, out->config));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    return sw_safetensors_open(path, &out->file);
}

sw_status sw_adapter_open(const char *folder, struct sw_adapter_source *out)
{
    struct sw_adapter_source source = {.path = folder};
    const sw_status st = open_files(folder, &source);
    if (st < 0) {
        sw_adapter_close(&source);
        return st;
    }
    *out = source;
    return SW_OK;
}

sw_status sw_adapter_of_checkpoint(struct sw_ckpt *ckpt, struct sw_adapter_source *out)
{
    const struct sw_json *run = sw_ckpt_meta(ckpt)->config;
    const struct sw_json *config = run ? sw_json_get(run, "adapter") : NULL;
    if (!config) {
        return SW_FAIL(SW_E_ARG, "%s: it holds a model without adapters; --merge needs adapters",
                       sw_ckpt_path(ckpt));
    }
    SW_TRY(check_config(sw_ckpt_path(ckpt), config));
    *out = (struct sw_adapter_source){.path = sw_ckpt_path(ckpt), .config = config, .ckpt = ckpt};
    return SW_OK;
}

void sw_adapter_close(struct sw_adapter_source *source)
{
    sw_safetensors_close(source->file);
    sw_json_close(source->doc);
    *source = (struct sw_adapter_source){0};
}

const char *sw_adapter_name(const char *param, bool wrapped, char *buf, size_t cap)
{
    const size_t n = strlen(param) - (wrapped ? strlen("bias") : 0);
    snprintf(buf, cap, "%s%.*s%s", prefix, (int)n, param, wrapped ? "base_layer.bias" : "");
    return buf;
}

bool sw_adapter_beside_bias(const char *param, char *out, size_t cap)
{
    static const char ending[] = ".bias";
    const size_t len = strlen(param), n = sizeof ending - 1;
    if (len <= n || strcmp(param + len - n, ending) != 0) {
        return false;
    }
    snprintf(out, cap, "%.*s.lora_A.weight", (int)(len - n), param);
    return true;
}

static const struct sw_safetensor *find_tensor(const struct sw_adapter_source *source,
                                               const char *name)
{
    char full[600], a[600];
    const bool is_bias = sw_adapter_beside_bias(name, a, sizeof a);
    const struct sw_safetensor *tensor =
        sw_safetensors_find(source->file, sw_adapter_name(name, false, full, sizeof full));
    return tensor || !is_bias
               ? tensor
               : sw_safetensors_find(source->file, sw_adapter_name(name, true, full, sizeof full));
}

static sw_status missing(const struct sw_adapter_source *source, const char *name)
{
    return SW_FAIL(SW_E_FORMAT, "%s: tensor %s%s is missing; the adapter belongs to another base",
                   source->path, prefix, name);
}

sw_status sw_adapter_check(const struct sw_adapter_source *source, const char *name,
                           const struct sw_shape *shape)
{
    const struct sw_shape *found = NULL;
    char have[96], want[96];
    if (source->ckpt) {
        const int64_t at = sw_ckpt_find(source->ckpt, name, "master");
        SW_TRY(at < 0 ? missing(source, name) : SW_OK);
        found = &sw_ckpt_entry(source->ckpt, at)->shape;
    } else {
        const struct sw_safetensor *tensor = find_tensor(source, name);
        SW_TRY(tensor ? sw_weights_check_floats(tensor) : missing(source, name));
        found = &tensor->shape;
    }
    if (!sw_shape_equal(found, shape)) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s: tensor %s%s has shape %s, this model wants %s; the adapter belongs to another "
            "base",
            source->path, prefix, name, sw_shape_format(found, have, sizeof have),
            sw_shape_format(shape, want, sizeof want));
    }
    return SW_OK;
}

sw_status sw_adapter_read(const struct sw_adapter_source *source, const char *name, int64_t first,
                          int64_t n, float *out)
{
    if (source->ckpt) {
        return sw_ckpt_read_flat(source->ckpt, sw_ckpt_find(source->ckpt, name, "master"), first, n,
                                 SW_F32, out);
    }
    const struct sw_safetensor *tensor = find_tensor(source, name);
    SW_TRY(sw_safetensor_check(tensor));
    sw_convert(SW_F32, out, tensor->dtype,
               (const char *)tensor->data + (size_t)first * sw_dtype_bytes(tensor->dtype), n);
    return SW_OK;
}

void sw_adapter_edit(const struct sw_json *config, struct sw_str *out)
{
    const char *separator = "";
    sw_str_puts(out, "spillway.lora={");
    for (const struct sw_json *m = config->first; m; m = m->next) {
        if (is_in(m->key, used, SW_LEN(used)) && m->type != SW_JSON_NULL) {
            sw_str_printf(out, "%s\"%s\": ", separator, m->key);
            sw_json_write(m, 0, out);
            separator = ", ";
        }
    }
    sw_str_puts(out, "}");
}
