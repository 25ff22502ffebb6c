// SPDX-License-Identifier: Apache-2.0
// Validates a recording before anything runs: the keys of reference.json that `check` reads have
// the right types, and no tensor is empty. A default in place of an invalid value would compare
// with a different run.
#include "check/private.h"

enum wanted { NUMBER, NUMBERS, TEXT, TEXTS, OBJECT };

static const struct {
    const char *path;
    enum wanted wanted;
} keys[] = {
    {"what", TEXT},
    {"model", TEXT},
    {"dtype", TEXT},
    {"ranks", NUMBER},
    {"frozen_parameters", TEXTS},
    {"zero_gradients", TEXTS},
    {"optimizer", OBJECT},
    {"lr_used", NUMBERS},
    {"data.text", TEXT},
    {"data.T", NUMBER},
    {"data.batch", NUMBER},
    {"train", OBJECT},
    {"train.optimizer", TEXT},
    {"train.lr", NUMBER},
    {"train.betas", NUMBERS},
    {"train.eps", NUMBER},
    {"train.momentum", NUMBER},
    {"train.weight_decay", NUMBER},
    {"train.decay_on", TEXT},
    {"train.clip", NUMBER},
    {"train.steps", NUMBER},
    {"train.schedule.kind", TEXT},
    {"train.schedule.warmup", NUMBER},
    {"train.schedule.min_ratio", NUMBER},
    {"tolerance", OBJECT},
    {"tolerance.logits_abs", NUMBER},
    {"tolerance.hidden_abs", NUMBER},
    {"tolerance.router_logits_abs", NUMBER},
    {"tolerance.aux_loss_rel", NUMBER},
    {"tolerance.after_abs", NUMBER},
    {"tolerance.after_update_rel", NUMBER},
    {"tolerance.loss_rel", NUMBER},
    {"tolerance.loss_abs", NUMBER},
    {"tolerance.grad_norm_rel", NUMBER},
    {"tolerance.grad_rel_to_max", NUMBER},
    {"tolerance.rel_to_max", NUMBER},
    {"tolerance.train_loss_rel", NUMBER},
    {"tolerance.train_grad_norm_rel", NUMBER},
    {"validation.tolerance_abs", NUMBER},
};

static bool is_one(const struct sw_json *value, enum wanted wanted)
{
    switch (wanted) {
    case NUMBER:
        return value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT;
    case TEXT:
        return value->type == SW_JSON_STRING;
    case OBJECT:
        return value->type == SW_JSON_OBJECT;
    case NUMBERS:
    case TEXTS:
        break;
    }
    bool all = value->type == SW_JSON_ARRAY;
    for (const struct sw_json *i = value->first; all && i; i = i->next) {
        all = is_one(i, wanted == NUMBERS ? NUMBER : TEXT);
    }
    return all;
}

static sw_status check_types(const struct check *c)
{
    static const char *const names[] = {"a number", "a list of numbers", "a string",
                                        "a list of strings", "an object"};
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        const struct sw_json *value = sw_json_path(sw_json_root(c->doc), keys[i].path);
        if (value && value->type != SW_JSON_NULL && !is_one(value, keys[i].wanted)) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d: %s is not %s", sw_json_name(c->doc), value->line,
                           keys[i].path, names[keys[i].wanted]);
        }
    }
    const struct sw_json *betas = sw_json_path(sw_json_root(c->doc), "train.betas");
    if (betas && betas->type == SW_JSON_ARRAY && betas->n_children != 2) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: train.betas has %lld numbers, wanted 2",
                       sw_json_name(c->doc), betas->line, (long long)betas->n_children);
    }
    return SW_OK;
}

sw_status sw_check_none_empty(const struct sw_safetensors *file)
{
    for (int64_t i = 0; i < sw_safetensors_count(file); i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, i);
        if (sw_check_elems(tensor) < 1) {
            return SW_FAIL(SW_E_FORMAT, "%s: %s is empty: a dimension is 0", tensor->file,
                           tensor->name);
        }
    }
    return SW_OK;
}

sw_status sw_check_reference(const struct check *c)
{
    SW_TRY(check_types(c));
    return sw_check_none_empty(c->ref);
}
