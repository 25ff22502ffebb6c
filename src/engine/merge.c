// SPDX-License-Identifier: Apache-2.0
// Opens adapters together with their base model. A plan that takes no memory describes the model
// with its adapters; the room weights merges them.
#include "engine/private.h"

static sw_status open_engine(const struct sw_adapter_source *from, const char *base,
                             sw_engine **out)
{
    struct sw_str edit = {0};
    if (from->ckpt) { /* the engine reads a PEFT folder itself */
        sw_adapter_edit(from->config, &edit);
    }
    const char *const sets[] = {sw_str_text(&edit)};
    const struct sw_engine_options options = {
        .config = {.text = "{\"train_micro_batch_size_per_gpu\": 1}",
                   .sets = sets,
                   .n_sets = from->ckpt ? 1 : 0},
        .model = {.path = base, .adapter = from->ckpt ? NULL : from->path},
        .inputs.seq_len = 1,
        .evaluate.loss = true,
        .plan.only = true,
    };
    const sw_status st = edit.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a merge")
                                     : sw_initialize(&options, out);
    sw_str_fini(&edit);
    return st < 0 ? sw_fail_prefix(st, "%s", from->path) : st;
}

/* Opens the base that is given, or the one that the adapters name. */
static sw_status open_base(const struct sw_adapter_source *from, const char *base, sw_engine **out)
{
    const struct sw_json *named = sw_json_get(from->config, "base_model_name_or_path");
    if (!base && !(named && named->type == SW_JSON_STRING)) {
        return SW_FAIL(SW_E_ARG, "%s does not name the base model of its adapters; wanted --model",
                       from->path);
    }
    base = base ? base : named->string;
    SW_TRY(open_engine(from, base, out));
    return (*out)->weights.source.files ? SW_OK
           : sw_onnx_is_import((*out)->weights.model)
               ? SW_FAIL(SW_E_UNSUP, "%s: adapters are not merged into the graph of an ONNX file",
                         base)
               : SW_FAIL(SW_E_IO, "%s: it has no base weights to add adapters to", base);
}

/* Takes ownership of the source, even if it fails. */
static sw_status open_of(struct sw_adapter_source from, const char *base,
                         struct sw_engine_merge *out)
{
    struct sw_engine_merge m = {0};
    sw_status st = open_base(&from, base, &m.engine);
    st = st < 0 ? st : sw_merge_open(&m.engine->weights, &from, &m.merge);
    sw_adapter_close(&from);
    if (st < 0) {
        sw_engine_close_merge(&m);
        return st;
    }
    *out = m;
    return SW_OK;
}

sw_status sw_engine_open_merge(const char *adapter, const char *base, struct sw_engine_merge *out)
{
    struct sw_adapter_source from;
    SW_TRY(sw_adapter_open(adapter, &from));
    return open_of(from, base, out);
}

sw_status sw_engine_open_merge_of(struct sw_ckpt *ckpt, const char *base,
                                  struct sw_engine_merge *out)
{
    struct sw_adapter_source from;
    SW_TRY(sw_adapter_of_checkpoint(ckpt, &from));
    return open_of(from, base, out);
}

void sw_engine_close_merge(struct sw_engine_merge *m)
{
    sw_merge_close(m->merge);
    sw_close(m->engine);
    *m = (struct sw_engine_merge){0};
}
