// SPDX-License-Identifier: Apache-2.0
// A model with its adapters merged: W + scaling B A, computed per element in fp32 and rounded once.
// The base is read from its folder in pieces. Only A and B of the current tensor are in memory.
#include "weights/private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One tensor of the result. */
struct merged {
    const struct sw_parameter *param;
    const struct sw_adapted_layer *adapted; /* NULL = no adapter */
    const struct sw_safetensor *base;       /* NULL = the adapter replaces the tensor */
    const char *name;                       /* in the base's file */
};

struct sw_merge {
    const struct sw_weights *weights; /* describe the model with its adapters; borrowed */
    struct sw_adapter_source from;
    struct merged *items;
    int64_t n;
    int64_t ready; /* tensor whose A and B are in memory; -1 = none */
    float *a, *b;  /* [r, in], [out, r] */
    float *m;      /* [out] of DoRA: magnitude over norm of each row; NULL = no DoRA */
    int64_t r, in, out;
};

/* ---- opening ---- */

static const struct sw_adapted_layer *adapted_of(const struct sw_weights *w, const char *param)
{
    for (int32_t i = 0; i < w->lora->n_layers; i++) {
        const size_t n = strlen(w->lora->layers[i].module);
        if (strncmp(w->lora->layers[i].module, param, n) == 0 &&
            strcmp(param + n, ".weight") == 0) {
            return &w->lora->layers[i];
        }
    }
    return NULL;
}

static sw_status add_item(struct sw_merge *m, const struct sw_parameter *param)
{
    const char *name = param->work->name;
    if (sw_weights_keeps(m->weights, name)) {
        SW_TRY(sw_adapter_check(&m->from, name, &param->work->layout.whole));
    }
    if (sw_lora_is_adapter(name)) {
        return SW_OK;
    }
    const struct sw_safetensor *tensor = sw_weights_find_source(m->weights, name);
    SW_TRY(tensor
               ? sw_weights_check_tensor(param, tensor)
               : SW_FAIL(SW_E_FORMAT, "%s: tensor %s is missing", m->weights->source.folder, name));
    /* false for the second tensor of a tied pair */
    const bool own = sw_weights_find_in_folder(m->weights, name) == tensor;
    m->items[m->n++] = (struct merged){param, adapted_of(m->weights, name),
                                       sw_weights_keeps(m->weights, name) ? NULL : tensor,
                                       own ? tensor->name : name};
    return SW_OK;
}

static sw_status list_items(struct sw_merge *m)
{
    m->items = sw_alloc_zero("merge", (size_t)m->weights->params.n + 1, sizeof *m->items);
    SW_TRY_ALLOC(m->items, "a merge");
    for (int32_t i = 0; i < m->weights->params.n; i++) {
        SW_TRY(add_item(m, &m->weights->params.items[i]));
    }
    return SW_OK;
}

sw_status sw_merge_open(const struct sw_weights *weights, struct sw_adapter_source *from,
                        struct sw_merge **out)
{
    if (weights->quantizer) {
        return SW_FAIL(
            SW_E_UNSUP,
            "%s: its weights are quantized; an adapter is merged into the model that was "
            "quantized: wanted its folder as --model",
            weights->options->model.path);
    }
    struct sw_merge *m = sw_alloc_zero("merge", 1, sizeof *m);
    SW_TRY_ALLOC(m, "a merge");
    m->weights = weights;
    m->from = *from;
    *from = (struct sw_adapter_source){0};
    m->ready = -1;
    const sw_status st = list_items(m);
    if (st < 0) {
        sw_merge_close(m);
        return st;
    }
    *out = m;
    return SW_OK;
}

void sw_merge_close(struct sw_merge *m)
{
    if (m) {
        sw_adapter_close(&m->from);
        sw_free(m->items);
        sw_free(m->a);
        sw_free(m->b);
        sw_free(m->m);
        sw_free(m);
    }
}

/* ---- output ---- */

int64_t sw_merge_n(const struct sw_merge *m)
{
    return m->n;
}

struct sw_safetensor_spec sw_merge_spec(const struct sw_merge *m, int64_t i)
{
    const struct merged *item = &m->items[i];
    return (struct sw_safetensor_spec){item->name, SW_F32, item->param->work->layout.whole};
}

int64_t sw_merge_find(const struct sw_merge *m, const char *param)
{
    for (int64_t i = 0; i < m->n; i++) {
        if (strcmp(m->items[i].param->work->name, param) == 0) {
            return i;
        }
    }
    return -1;
}

bool sw_merge_changes(const struct sw_merge *m, int64_t i)
{
    return m->items[i].adapted || !m->items[i].base;
}

enum sw_dtype sw_merge_dtype(const struct sw_merge *m)
{
    for (int64_t i = 0; i < m->n; i++) {
        const struct sw_safetensor *base = m->items[i].base;
        if (base) {
            return base->dtype == SW_F64 ? SW_F32 : base->dtype;
        }
    }
    return SW_F32;
}

const struct sw_json *sw_merge_config(const struct sw_merge *m)
{
    return sw_json_root(m->weights->source.doc);
}

const char *sw_merge_base(const struct sw_merge *m)
{
    return m->weights->source.folder;
}

static sw_status read_tensor(const struct sw_merge *m, const char *module, const char *which,
                             struct sw_shape *shape, float **out)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", module, which);
    const struct sw_parameter *param = sw_weights_find(m->weights, name);
    *shape = param->work->layout.whole;
    sw_free(*out);
    *out = sw_alloc("merge", (size_t)sw_shape_elems(shape) * sizeof **out);
    SW_TRY_ALLOC(*out, "a merge");
    return sw_adapter_read(&m->from, name, 0, sw_shape_elems(shape), *out);
}

static sw_status read_base(const struct merged *item, int64_t first, int64_t n, float *out)
{
    SW_TRY(sw_safetensor_check(item->base));
    const size_t bytes = sw_dtype_bytes(item->base->dtype);
    sw_convert(SW_F32, out, item->base->dtype,
               (const char *)item->base->data + (size_t)first * bytes, n);
    sw_safetensor_release(item->base, (size_t)first * bytes, (size_t)n * bytes);
    return SW_OK;
}

/* The row and the column of element `at` as outputs and inputs. */
static int64_t output_of(const struct sw_merge *m, const struct sw_adapted_layer *adapted,
                         int64_t at, int64_t *i_in)
{
    const int64_t width = adapted->in_out ? m->out : m->in;
    *i_in = adapted->in_out ? at / width : at % width;
    return adapted->in_out ? at % width : at / width;
}

static void add_product(const struct sw_merge *m, const struct sw_adapted_layer *adapted,
                        int64_t first, int64_t n, float *out)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t i_in;
        const int64_t i_out = output_of(m, adapted, first + k, &i_in);
        float sum = 0;
        for (int64_t j = 0; j < m->r; j++) {
            sum += m->b[i_out * m->r + j] * m->a[j * m->in + i_in];
        }
        out[k] += (float)adapted->scaling * sum;
    }
}

/* DoRA: divides the magnitudes by the norms of the rows of W + scaling B A. */
static sw_status divide_magnitudes(struct sw_merge *m, const struct merged *item)
{
    enum { RUN = 4096 };
    float piece[RUN];
    double *squares = sw_alloc_zero("merge", (size_t)m->out, sizeof *squares);
    sw_status st = SW_OK;
    SW_TRY_ALLOC(squares, "a merge");
    for (int64_t at = 0; at < m->in * m->out && st >= 0; at += RUN) {
        const int64_t n = sw_min_i64(RUN, m->in * m->out - at);
        st = read_base(item, at, n, piece);
        if (st >= 0) {
            add_product(m, item->adapted, at, n, piece);
        }
        for (int64_t k = 0; k < n && st >= 0; k++) {
            int64_t i_in;
            squares[output_of(m, item->adapted, at + k, &i_in)] +=
                (double)piece[k] * (double)piece[k];
        }
    }
    for (int64_t i = 0; i < m->out && st >= 0; i++) {
        m->m[i] /= (float)sqrt(squares[i]);
    }
    sw_free(squares);
    return st;
}

static sw_status make_ready(struct sw_merge *m, int64_t i)
{
    const char *module = m->items[i].adapted->module;
    struct sw_shape a, b, magnitude;
    if (m->ready == i) {
        return SW_OK;
    }
    m->ready = -1;
    SW_TRY(read_tensor(m, module, "lora_A.weight", &a, &m->a));
    SW_TRY(read_tensor(m, module, "lora_B.weight", &b, &m->b));
    m->r = a.dims[0];
    m->in = a.dims[1];
    m->out = b.dims[0];
    if (m->weights->lora->spec.dora) {
        SW_TRY(read_tensor(m, module, "lora_magnitude_vector", &magnitude, &m->m));
        SW_TRY(divide_magnitudes(m, &m->items[i]));
    }
    m->ready = i;
    return SW_OK;
}

sw_status sw_merge_fetch(struct sw_merge *m, int64_t i, int64_t first, int64_t n, float *out)
{
    const struct merged *item = &m->items[i];
    if (!item->base) {
        return sw_adapter_read(&m->from, item->param->work->name, first, n, out);
    }
    SW_TRY(read_base(item, first, n, out));
    if (!item->adapted) {
        return SW_OK;
    }
    SW_TRY(make_ready(m, i));
    add_product(m, item->adapted, first, n, out);
    for (int64_t k = 0; k < n && m->m; k++) {
        int64_t i_in;
        out[k] *= m->m[output_of(m, item->adapted, first + k, &i_in)];
    }
    return SW_OK;
}
