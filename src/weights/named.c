// SPDX-License-Identifier: Apache-2.0
// The values of a model by the names of its parameters, wherever they are: in a folder, in a
// checkpoint, or in a base and adapters that are added while they are read.
#include <string.h>

#include "weights/private.h"

static sw_status check_shape(const char *where, const char *name, const struct sw_shape *have,
                             const struct sw_shape *want)
{
    char a[96], b[96];
    if (sw_shape_equal(have, want)) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT, "%s: tensor %s has shape %s, the model wants %s", where, name,
                   sw_shape_format(have, a, sizeof a), sw_shape_format(want, b, sizeof b));
}

static sw_status fail_missing(const char *where, const char *name)
{
    return SW_FAIL(SW_E_FORMAT, "%s: tensor %s is missing", where, name);
}

static sw_status fetch_folder(const struct sw_weights *w, const char *name,
                              const struct sw_shape *shape, int64_t first, int64_t n, float *out)
{
    if (sw_onnx_is_import(w->model)) {
        return sw_onnx_model_fetch(w->model, name, shape, first, n, out);
    }
    const struct sw_safetensor *tensor = sw_weights_find_source(w, name);
    if (!tensor) {
        return fail_missing(w->source.folder, name);
    }
    SW_TRY(sw_weights_check_floats(tensor));
    SW_TRY(check_shape(tensor->file, tensor->name, &tensor->shape, shape));
    SW_TRY(sw_safetensor_check(tensor));
    const size_t bytes = sw_dtype_bytes(tensor->dtype);
    sw_convert(SW_F32, out, tensor->dtype, (const char *)tensor->data + (size_t)first * bytes, n);
    sw_safetensor_release(tensor, (size_t)first * bytes, (size_t)n * bytes);
    return SW_OK;
}

static sw_status fetch_checkpoint(struct sw_ckpt *ckpt, const char *name,
                                  const struct sw_shape *shape, int64_t first, int64_t n,
                                  float *out)
{
    const int64_t i = sw_ckpt_find(ckpt, name, "master");
    if (i < 0) {
        return fail_missing(sw_ckpt_path(ckpt), name);
    }
    SW_TRY(check_shape(sw_ckpt_path(ckpt), name, &sw_ckpt_entry(ckpt, i)->shape, shape));
    return sw_ckpt_read_flat(ckpt, i, first, n, SW_F32, out);
}

static sw_status fetch_merged(struct sw_merge *merge, const char *name,
                              const struct sw_shape *shape, int64_t first, int64_t n, float *out)
{
    const int64_t i = sw_merge_find(merge, name);
    if (i < 0) {
        return fail_missing(sw_merge_base(merge), name);
    }
    const struct sw_safetensor_spec spec = sw_merge_spec(merge, i);
    SW_TRY(check_shape(sw_merge_base(merge), name, &spec.shape, shape));
    return sw_merge_fetch(merge, i, first, n, out);
}

sw_status sw_named_values_fetch(void *values, const char *name, const struct sw_shape *shape,
                                int64_t first, int64_t n, float *out)
{
    const struct sw_named_values *v = values;
    return v->merge    ? fetch_merged(v->merge, name, shape, first, n, out)
           : v->folder ? fetch_folder(v->folder, name, shape, first, n, out)
                       : fetch_checkpoint(v->ckpt, name, shape, first, n, out);
}

sw_status sw_weights_take_given(struct sw_weights *w)
{
    enum { TAKEN_ELEMS = SW_WEIGHTS_SCRATCH / 2 };
    float *piece = sw_alloc("engine", TAKEN_ELEMS * sizeof *piece);
    SW_TRY_ALLOC(piece, "weights");
    sw_status st = SW_OK;
    for (int32_t i = 0; i < w->params.n && st >= 0; i++) {
        const struct sw_parameter *param = &w->params.items[i];
        const struct sw_shape *shape = &param->work->layout.whole;
        const int64_t elems = sw_shape_elems(shape);
        for (int64_t at = 0; at < elems && st >= 0; at += TAKEN_ELEMS) {
            const int64_t n = sw_min_i64(TAKEN_ELEMS, elems - at);
            st = sw_named_values_fetch(w->given, param->work->name, shape, at, n, piece);
            st = st < 0 ? st : sw_weights_set(w, param, at, n, piece);
        }
    }
    sw_free(piece);
    return st;
}

/* ---- checkpoints ---- */

static const struct sw_json *part_of(struct sw_ckpt *ckpt, const char *key)
{
    const struct sw_json *run = sw_ckpt_meta(ckpt)->config;
    return run ? sw_json_get(run, key) : NULL;
}

bool sw_weights_has_adapter(struct sw_ckpt *ckpt)
{
    return part_of(ckpt, "adapter") != NULL;
}

sw_status sw_weights_checkpoint_config(struct sw_ckpt *ckpt, struct sw_json_doc **out)
{
    const struct sw_json *model = part_of(ckpt, "model");
    if (!model || model->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s: it was saved by a model without a config.json",
                       sw_ckpt_path(ckpt));
    }
    SW_TRY(sw_json_new("config.json", out));
    for (const struct sw_json *c = model->first; c; c = c->next) {
        if (!sw_json_put_copy(*out, sw_json_root(*out), c->key, c)) {
            sw_json_close(*out);
            return SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
        }
    }
    return SW_OK;
}
