// SPDX-License-Identifier: Apache-2.0
// Weights as bitsandbytes stores them. 4 bits: X holds codes [n / 2, 1]; X.absmax has the scales,
// or their codes with X.nested_absmax and X.nested_quant_map; X.quant_map has the levels; and
// X.quant_state.bitsandbytes__nf4 is JSON text. 8 bits: X is I8 [out, in], and the scale of row r
// is that of SCB, the largest value of the row, over 127.
#include <stdio.h>
#include <string.h>

#include "hf/hf.h"
#include "json/json.h"

static const struct sw_safetensor *beside(const struct sw_hf_folder *folder, const char *name,
                                          const char *what)
{
    char text[640];
    snprintf(text, sizeof text, "%s.%s", name, what);
    return sw_hf_folder_find(folder, text);
}

/* The tensor X.what with at least n elements of a type. */
static sw_status get(const struct sw_hf_folder *folder, const struct sw_safetensor *weight,
                     const char *what, enum sw_dtype dtype, int64_t n, const void **out)
{
    const struct sw_safetensor *t = beside(folder, weight->name, what);
    if (!t) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s is quantized, and %s.%s is missing",
                       weight->file, weight->name, weight->name, what);
    }
    SW_TRY(sw_safetensor_check(t));
    if (t->dtype != dtype || sw_shape_elems(&t->shape) < n) {
        char have[96];
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s is %s%s, wanted %s with %lld elements", t->file,
                       t->name, t->dtype_name, sw_shape_format(&t->shape, have, sizeof have),
                       sw_dtype_name(dtype), (long long)n);
    }
    *out = t->data;
    return SW_OK;
}

static sw_status fail_state(const struct sw_safetensor *t, const char *why)
{
    return SW_FAIL(SW_E_UNSUP, "%s: tensor %s: %s", t->file, t->name, why);
}

static bool is_number(const struct sw_json *v, int64_t wanted)
{
    return v && v->type == SW_JSON_INT && v->integer == wanted;
}

static sw_status read_shape(const struct sw_safetensor *t, const struct sw_json *list,
                            struct sw_shape *out)
{
    *out = (struct sw_shape){0};
    for (const struct sw_json *d = list && list->type == SW_JSON_ARRAY ? list->first : NULL; d;
         d = d->next) {
        if (d->type != SW_JSON_INT || d->integer < 1 || d->integer > INT32_MAX ||
            out->rank == SW_MAX_RANK) {
            return fail_state(t, "\"shape\" is not a shape");
        }
        out->dims[out->rank++] = d->integer;
    }
    return out->rank > 0 ? SW_OK : fail_state(t, "\"shape\" is missing");
}

static sw_status read_state(const struct sw_safetensor *t, const struct sw_json *state,
                            struct sw_hf_quantized *out)
{
    struct sw_quantized_form *form = &out->q.form;
    const struct sw_json *type = sw_json_get(state, "quant_type");
    const struct sw_json *dtype = sw_json_get(state, "dtype");
    const struct sw_json *offset = sw_json_get(state, "nested_offset");
    static const struct {
        const char *name;
        enum sw_dtype dtype;
    } dtypes[] = {{"float32", SW_F32}, {"bfloat16", SW_BF16}, {"float16", SW_F16}};
    if (!type || type->type != SW_JSON_STRING || strcmp(type->string, "nf4") != 0) {
        return fail_state(t, "\"quant_type\" is not \"nf4\"");
    }
    if (!is_number(sw_json_get(state, "blocksize"), SW_NF4_BLOCK)) {
        return fail_state(t, "\"blocksize\" is not 64");
    }
    form->dtype = SW_DTYPE_COUNT;
    for (size_t i = 0; i < SW_LEN(dtypes) && dtype && dtype->type == SW_JSON_STRING; i++) {
        form->dtype = strcmp(dtypes[i].name, dtype->string) == 0 ? dtypes[i].dtype : form->dtype;
    }
    if (form->dtype == SW_DTYPE_COUNT) {
        return fail_state(t, "\"dtype\" is not float32, bfloat16 or float16");
    }
    form->is_nested = offset != NULL;
    if (form->is_nested && (!is_number(sw_json_get(state, "nested_blocksize"), SW_NF4_NESTED) ||
                            (offset->type != SW_JSON_FLOAT && offset->type != SW_JSON_INT))) {
        return fail_state(t, "\"nested_blocksize\" is not 256, or \"nested_offset\" no number");
    }
    out->q.offset = form->is_nested ? (float)offset->number : 0;
    return read_shape(t, sw_json_get(state, "shape"), &out->shape);
}

static sw_status open_nf4(const struct sw_hf_folder *folder, const struct sw_safetensor *weight,
                          const struct sw_safetensor *state, struct sw_hf_quantized *out)
{
    struct sw_quantized *q = &out->q;
    struct sw_json_doc *doc = NULL;
    const void *levels = NULL, *nested = NULL, *map = NULL;
    SW_TRY(sw_safetensor_check(state));
    SW_TRY(sw_json_parse(state->name, state->data, state->bytes, SW_JSON_STRICT, &doc));
    const sw_status st = read_state(state, sw_json_root(doc), out);
    sw_json_close(doc);
    SW_TRY(st);
    const int64_t n = sw_shape_elems(&out->shape), n_blocks = sw_ceil_div(n, SW_NF4_BLOCK);
    SW_TRY(sw_safetensor_check(weight));
    if (weight->dtype != SW_U8 || (int64_t)weight->bytes != (n + 1) / 2) {
        return fail_state(weight, "it has another number of codes than its shape has elements");
    }
    SW_TRY(get(folder, weight, "quant_map", SW_F32, 16, &levels));
    for (int i = 0; i < 16; i++) {
        float level;
        memcpy(&level, (const char *)levels + (size_t)i * sizeof level, sizeof level);
        if (level != sw_nf4_level(i)) {
            return fail_state(weight, "its levels are not those of NF4");
        }
    }
    SW_TRY(get(folder, weight, "absmax", q->form.is_nested ? SW_U8 : SW_F32, n_blocks, &q->scales));
    if (q->form.is_nested) {
        SW_TRY(get(folder, weight, "nested_absmax", SW_F32, sw_ceil_div(n_blocks, SW_NF4_NESTED),
                   &nested));
        SW_TRY(get(folder, weight, "nested_quant_map", SW_F32, 256, &map));
    }
    q->nested = nested;
    q->map = map;
    q->codes = weight->data;
    q->columns = sw_shape_last(&out->shape);
    q->form.kind = SW_QUANTIZED_NF4;
    return SW_OK;
}

/* X.weight has its scales in X.SCB. */
static sw_status open_int8(const struct sw_safetensor *weight, const struct sw_safetensor *rows,
                           struct sw_hf_quantized *out)
{
    SW_TRY(sw_safetensor_check(weight));
    SW_TRY(sw_safetensor_check(rows));
    if (weight->dtype != SW_I8 || weight->shape.rank != 2 || rows->dtype != SW_F32 ||
        sw_shape_elems(&rows->shape) != weight->shape.dims[0]) {
        return fail_state(weight, "wanted I8 [out, in], with F32 [out] in SCB");
    }
    out->shape = weight->shape;
    out->q = (struct sw_quantized){.form = {SW_QUANTIZED_INT8, false, SW_F32},
                                   .columns = weight->shape.dims[1],
                                   .codes = weight->data,
                                   .scales = rows->data};
    return SW_OK;
}

sw_status sw_hf_quantized_open(const struct sw_hf_folder *folder,
                               const struct sw_safetensor *weight, struct sw_hf_quantized *out)
{
    static const char ending[] = ".weight";
    const size_t len = strlen(weight->name), n = sizeof ending - 1;
    const struct sw_safetensor *state =
        beside(folder, weight->name, "quant_state.bitsandbytes__nf4");
    *out = (struct sw_hf_quantized){0};
    if (state) {
        return open_nf4(folder, weight, state, out);
    }
    if (beside(folder, weight->name, "quant_state.bitsandbytes__fp4")) {
        return fail_state(weight, "it is quantized to fp4; nf4 and int8 are read");
    }
    if (len > n && len < 512 && strcmp(weight->name + len - n, ending) == 0) {
        char module[512];
        snprintf(module, sizeof module, "%.*s", (int)(len - n), weight->name);
        state = beside(folder, module, "SCB");
    }
    return state ? open_int8(weight, state, out) : SW_OK;
}

bool sw_hf_is_quantization(const char *name)
{
    static const char *const endings[] = {".absmax",
                                          ".quant_map",
                                          ".nested_absmax",
                                          ".nested_quant_map",
                                          ".quant_state.bitsandbytes__nf4",
                                          ".SCB",
                                          ".weight_format"};
    const size_t len = strlen(name);
    for (size_t i = 0; i < SW_LEN(endings); i++) {
        const size_t n = strlen(endings[i]);
        if (len > n && strcmp(name + len - n, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}
