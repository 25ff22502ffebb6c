// SPDX-License-Identifier: Apache-2.0
// Weights that stay quantized: which ones, and their codes and scales. These are taken from a
// folder that bitsandbytes wrote, or made of values that are read in pieces. A quantized weight is
// never in memory as floats; only its scales are.
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "weights/private.h"

enum {
    CHUNK = SW_NF4_BLOCK * SW_NF4_NESTED, /* elements under one nested scale */
    BATCH = 32 * CHUNK                    /* elements that threads encode before codes are stored */
};

/* ---- which ones ---- */

struct item {
    const char *name;
    struct sw_shape shape;
    struct sw_quantized_form form; /* kind NONE: it is stored as it is */
};

struct sw_weights_quantizer {
    struct sw_quantizer super;
    const struct sw_weights *weights;
    struct sw_arena arena;
    struct sw_names names;
    struct item **items; /* [n] those that a graph has asked for */
    int32_t n, cap;
};

static const struct sw_json *config_of(const struct sw_weights *w)
{
    const struct sw_json *config =
        w->source.doc ? sw_json_get(sw_json_root(w->source.doc), "quantization_config") : NULL;
    return config && config->type == SW_JSON_OBJECT ? config : NULL;
}

static bool is_set(const struct sw_json *object, const char *key)
{
    const struct sw_json *v = sw_json_get(object, key);
    return v && v->type == SW_JSON_BOOL && v->boolean;
}

/* A plan needs no weights: linear layers are then quantized as config.json says. */
static struct sw_quantized_form form_of_config(const struct sw_json *config, enum sw_dtype dtype)
{
    struct sw_quantized_form form = {SW_QUANTIZED_NF4, is_set(config, "bnb_4bit_use_double_quant"),
                                     dtype};
    if (is_set(config, "load_in_8bit")) {
        form = (struct sw_quantized_form){SW_QUANTIZED_INT8, false, SW_F32};
    }
    return form;
}

static bool is_in_head(const struct sw_weights *w, const char *param)
{
    const char *head = w->model->head_module;
    const size_t n = head ? strlen(head) : 0;
    return head && strncmp(param, head, n) == 0 && param[n] == '.';
}

/* The form of a frozen parameter of the folder; kind NONE: it is not quantized there. */
static sw_status find_form(const struct sw_weights *w, const char *param,
                           const struct sw_shape *shape, enum sw_dtype dtype,
                           struct sw_quantized_form *out)
{
    const enum sw_quantized_kind wanted = (enum sw_quantized_kind)w->config->spillway.quantize;
    const struct sw_safetensor *tensor = w->source.files ? sw_weights_find_source(w, param) : NULL;
    const struct sw_json *config = config_of(w);
    struct sw_hf_quantized q = {.q.form.kind = SW_QUANTIZED_NONE};
    if (tensor) {
        SW_TRY(sw_hf_quantized_open(w->source.files, tensor, &q));
    }
    if (q.q.form.kind != SW_QUANTIZED_NONE && !sw_shape_equal(shape, &q.shape)) {
        char have[96], want[96];
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s has quantized shape %s, the model wants %s",
                       tensor->file, tensor->name, sw_shape_format(&q.shape, have, sizeof have),
                       sw_shape_format(shape, want, sizeof want));
    }
    if (q.q.form.kind != SW_QUANTIZED_NONE) {
        *out = q.q.form;
    } else if (config && !w->source.files && !is_in_head(w, param)) {
        *out = form_of_config(config, dtype);
    } else if (wanted != SW_QUANTIZED_NONE && !is_in_head(w, param)) {
        *out = (struct sw_quantized_form){wanted, wanted == SW_QUANTIZED_NF4, dtype};
    }
    return SW_OK;
}

static sw_status add_item(struct sw_weights_quantizer *z, const char *param,
                          const struct sw_shape *shape, const struct sw_quantized_form *form)
{
    struct item *item = sw_arena_array(&z->arena, 1, sizeof *item);
    char *name = sw_arena_strdup(&z->arena, param);
    if (z->n == z->cap) {
        const int32_t cap = z->cap > 0 ? 2 * z->cap : 64;
        struct item **items = sw_arena_array(&z->arena, (size_t)cap, sizeof(struct item *));
        SW_TRY_ALLOC(items, "quantized weights");
        if (z->n > 0) {
            memcpy(items, z->items, (size_t)z->n * sizeof(struct item *));
        }
        z->items = items;
        z->cap = cap;
    }
    if (!item || !name || !sw_names_add(&z->names, 0, name, z->n)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for quantized weights");
    }
    *item = (struct item){name, *shape, *form};
    z->items[z->n++] = item;
    return SW_OK;
}

/* Ranks of the tensor axis have parts of NF4, whose scales they keep as floats: blocks of scales do
 * not fit parts. */
static sw_status fit_to_ranks(const struct sw_weights *w, const char *param,
                              const struct sw_shape *shape, struct sw_quantized_form *form)
{
    if (form->kind != SW_QUANTIZED_NF4 || !w->config || w->config->parallel.tensor <= 1) {
        return SW_OK;
    }
    if (shape->dims[1] % SW_NF4_BLOCK != 0) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: its rows of %lld elements have parts of a block of NF4, which are not "
                       "cut; wanted a multiple of %d, or spillway.mesh.tensor 1, got %lld",
                       param, (long long)shape->dims[1], SW_NF4_BLOCK,
                       (long long)w->config->parallel.tensor);
    }
    form->is_nested = false;
    return SW_OK;
}

/* The files are closed when later graphs are built, so answers are kept. */
static sw_status give_form(struct sw_quantizer *by, const char *param, const struct sw_shape *shape,
                           struct sw_quantized_form *out)
{
    struct sw_weights_quantizer *z = SW_CONTAINER(by, struct sw_weights_quantizer, super);
    const struct sw_weights *w = z->weights;
    const int32_t known = sw_names_find(&z->names, 0, param);
    if (known >= 0) {
        *out = z->items[known]->form;
        return SW_OK;
    }
    if (!w->options->train.wanted || !sw_weights_keeps(w, param)) {
        SW_TRY(find_form(w, param, shape, out->dtype == SW_F64 ? SW_F32 : out->dtype, out));
        SW_TRY(fit_to_ranks(w, param, shape, out));
    }
    return add_item(z, param, shape, out);
}

/* The quantized weight of that name; NULL = it is stored as it is. */
static const struct item *find_item(const struct sw_weights *w, const char *param)
{
    const int32_t i = w->quantizer ? sw_names_find(&w->quantizer->names, 0, param) : -1;
    return i >= 0 && w->quantizer->items[i]->form.kind != SW_QUANTIZED_NONE ? w->quantizer->items[i]
                                                                            : NULL;
}

bool sw_weights_is_quantized(const struct sw_weights *w, const char *param)
{
    return find_item(w, param) != NULL;
}

struct sw_shape sw_weights_quantized_shape(const struct sw_weights *w, const char *param)
{
    return find_item(w, param)->shape;
}

bool sw_weights_is_scales(const struct sw_weights *w, const char *param)
{
    const char *dot = strrchr(param, '.');
    char name[512];
    if (!w->quantizer || !dot || (strcmp(dot, ".absmax") != 0 && strcmp(dot, ".nested") != 0)) {
        return false;
    }
    snprintf(name, sizeof name, "%.*s", (int)(dot - param), param);
    return find_item(w, name) != NULL;
}

int64_t sw_weights_elems(const struct sw_weights *w, const struct sw_parameter *param)
{
    const struct item *item = find_item(w, param->work->name);
    return item ? sw_shape_elems(&item->shape)
           : sw_weights_is_scales(w, param->work->name)
               ? 0
               : sw_shape_elems(&param->work->layout.whole);
}

struct sw_quantized_sizes sw_weights_quantized_sizes(const struct sw_weights *w)
{
    struct sw_quantized_sizes sum = {0};
    for (int32_t i = 0; i < w->params.n && w->quantizer; i++) {
        const struct sw_persistent *work = w->params.items[i].work;
        const struct item *item = find_item(w, work->name);
        if (item) {
            sum.n++;
            sum.kind = item->form.kind;
            sum.elems += sw_shape_elems(&item->shape);
        }
        if (item || sw_weights_is_scales(w, work->name)) {
            sum.bytes += sw_shape_bytes(&work->layout.whole, work->dtype);
        }
    }
    return sum;
}

struct sw_quantizer *sw_weights_quantizer(const struct sw_weights *w)
{
    return w->quantizer ? &w->quantizer->super : NULL;
}

static sw_status check(const struct sw_weights *w, const char *what)
{
    if (w->options->train.wanted && !w->lora) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: only adapters are trained on quantized weights; wanted spillway.lora",
                       what);
    }
    if (sw_onnx_is_import(w->model)) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: weights of ONNX files are not quantized in this version; wanted a "
                       "Hugging Face folder",
                       what);
    }
    return SW_OK;
}

sw_status sw_weights_open_quantizer(struct sw_weights *w)
{
    const enum sw_quantized_kind wanted =
        w->config ? (enum sw_quantized_kind)w->config->spillway.quantize : SW_QUANTIZED_NONE;
    const struct sw_json *config = config_of(w);
    char what[600];
    if (wanted == SW_QUANTIZED_NONE && !config) {
        return SW_OK;
    }
    snprintf(what, sizeof what, "%s",
             wanted != SW_QUANTIZED_NONE ? "spillway.quantize" : w->options->model.path);
    if (wanted != SW_QUANTIZED_NONE && config) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.quantize is \"%s\", and the weights of %s are quantized already; "
                       "leave spillway.quantize out",
                       sw_quantized_name(wanted), w->options->model.path);
    }
    if (w->config) {
        SW_TRY(check(w, what));
    }
    w->quantizer = sw_alloc_zero("engine", 1, sizeof *w->quantizer);
    SW_TRY_ALLOC(w->quantizer, "quantized weights");
    w->quantizer->super.form = give_form;
    w->quantizer->weights = w;
    sw_arena_init(&w->quantizer->arena, "engine");
    return SW_OK;
}

void sw_weights_close_quantizer(struct sw_weights *w)
{
    if (w->quantizer) {
        sw_names_close(&w->quantizer->names);
        sw_arena_fini(&w->quantizer->arena);
        sw_free(w->quantizer);
        w->quantizer = NULL;
    }
}

/* ---- storing ---- */

/* The parameters of a quantized weight, and their digests. */
struct target {
    struct sw_weights *w;
    struct sw_parameter *codes, *scales, *nested; /* nested: NULL = none */
    struct sw_digest *digests[2]; /* of the codes, and of all scales as a file has them */
};

static struct sw_parameter *find_beside(const struct sw_weights *w, const char *name,
                                        const char *suffix)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    const struct sw_parameter *found = sw_weights_find(w, full);
    return found ? &w->params.items[found - w->params.items] : NULL;
}

static void add_to_digest(struct sw_digest *digest, const void *data, size_t bytes)
{
    if (digest) {
        sw_digest_update(digest, data, bytes);
    }
}

/* Codes, or scales that no others scale; first and n count elements. */
static sw_status put(const struct target *t, const struct sw_parameter *param, int64_t first,
                     int64_t n, const void *data)
{
    add_to_digest(t->digests[param != t->codes], data,
                  (size_t)n * sw_dtype_bytes(param->work->dtype));
    return sw_weights_store(t->w, param->work, first, n, data);
}

/* Stores head [SW_NESTED_SCALES], which all 8-bit codes of scales have in common. */
static sw_status put_head(const struct target *t, const float *head)
{
    add_to_digest(t->digests[1], head, SW_NESTED_SCALES * sizeof *head);
    return t->nested ? sw_weights_store(t->w, t->nested->work, 0, SW_NESTED_SCALES, head) : SW_OK;
}

/* Stores scales first .. first + n - 1 under one nested scale, as codes; or as floats, if the
 * parameter has these. */
static sw_status put_scales(const struct target *t, const float *head, int64_t first, int64_t n,
                            const uint8_t *codes, float peak)
{
    float scales[SW_NF4_NESTED];
    add_to_digest(t->digests[1], codes, (size_t)n);
    add_to_digest(t->digests[1], &peak, sizeof peak);
    if (t->nested) {
        SW_TRY(sw_weights_store(t->w, t->nested->work, SW_NESTED_SCALES + first / SW_NF4_NESTED, 1,
                                &peak));
        return sw_weights_store(t->w, t->scales->work, first, n, codes);
    }
    for (int64_t i = 0; i < n; i++) {
        scales[i] = head[codes[i]] * peak + head[SW_NESTED_OFFSET];
    }
    return sw_weights_store(t->w, t->scales->work, first, n, scales);
}

/* Values in the dtype whose values are quantized. */
static sw_status fetch(const struct item *item, const struct sw_values *values, int64_t first,
                       int64_t n, float *piece)
{
    uint16_t narrow[1024];
    const bool is_exact = item->form.dtype == SW_F32 || item->form.dtype == values->dtype;
    SW_TRY(values->fetch(values->ctx, first, n, piece));
    for (int64_t at = 0; at < n && !is_exact; at += (int64_t)SW_LEN(narrow)) {
        const int64_t some = sw_min_i64(n - at, (int64_t)SW_LEN(narrow));
        sw_convert(item->form.dtype, narrow, SW_F32, piece + at, some);
        sw_convert(SW_F32, piece + at, item->form.dtype, narrow, some);
    }
    return SW_OK;
}

static void add_all(const float *scales, int64_t n, double *sum)
{
    for (int64_t i = 0; i < n; i++) {
        *sum += (double)scales[i];
    }
}

/* Encodes a weight batch by batch. Threads encode the units of a batch side by side; their results
 * are stored in order. */
struct encoder {
    const struct item *item;
    const struct sw_values *values;
    int64_t elems, unit; /* of the weight; encoded at a time: rows, or CHUNK of NF4 */
    int64_t first;       /* unit of the batch */
    float *pieces;       /* [threads][CHUNK] */
    float *scales;       /* of the weight's blocks or rows */
    uint8_t *codes;      /* of the batch */
    atomic_bool failed;
};

/* Encodes rows that fit a piece together. */
static sw_status encode_rows(const struct encoder *e, int64_t row, int64_t n, float *piece,
                             int8_t *codes)
{
    const int64_t columns = e->item->shape.dims[1];
    SW_TRY(fetch(e->item, e->values, row * columns, n * columns, piece));
    for (int64_t i = 0; i < n; i++) {
        e->scales[row + i] = sw_quantized_peak(piece + i * columns, columns);
        sw_int8_encode(piece + i * columns, columns, e->scales[row + i], codes + i * columns);
    }
    return SW_OK;
}

/* Encodes a row that does not fit a piece. */
static sw_status encode_row(const struct encoder *e, int64_t row, float *piece, int8_t *codes)
{
    const int64_t columns = e->item->shape.dims[1];
    float peak = 0;
    for (int64_t at = 0; at < columns; at += CHUNK) {
        const int64_t some = sw_min_i64(columns - at, CHUNK);
        SW_TRY(fetch(e->item, e->values, row * columns + at, some, piece));
        const float of_piece = sw_quantized_peak(piece, some);
        peak = of_piece > peak ? of_piece : peak;
    }
    for (int64_t at = 0; at < columns; at += CHUNK) {
        const int64_t some = sw_min_i64(columns - at, CHUNK);
        SW_TRY(fetch(e->item, e->values, row * columns + at, some, piece));
        sw_int8_encode(piece, some, peak, codes + at);
    }
    e->scales[row] = peak;
    return SW_OK;
}

static sw_status encode_unit(const struct encoder *e, int64_t i, float *piece)
{
    const int64_t at = (e->first + i) * e->unit, n = sw_min_i64(e->unit, e->elems - at);
    if (e->item->form.kind == SW_QUANTIZED_INT8) {
        const int64_t columns = e->item->shape.dims[1];
        int8_t *codes = (int8_t *)e->codes + i * e->unit;
        return columns > CHUNK ? encode_row(e, at / columns, piece, codes)
                               : encode_rows(e, at / columns, n / columns, piece, codes);
    }
    SW_TRY(fetch(e->item, e->values, at, n, piece));
    sw_nf4_scales(piece, n, e->scales + at / SW_NF4_BLOCK);
    sw_nf4_encode(piece, n, e->scales + at / SW_NF4_BLOCK, e->codes + i * e->unit / 2);
    return SW_OK;
}

static void encode_item(void *ctx, int64_t i, int i_worker)
{
    struct encoder *e = ctx;
    if (encode_unit(e, i, e->pieces + (int64_t)i_worker * CHUNK) < 0) {
        atomic_store(&e->failed, true);
    }
}

/* Fills e->scales, and stores the codes. */
static sw_status encode_units(const struct target *t, struct encoder *e)
{
    const int64_t units = sw_ceil_div(e->elems, e->unit), most = sw_max_i64(1, BATCH / e->unit);
    const bool is_int8 = e->item->form.kind == SW_QUANTIZED_INT8;
    for (e->first = 0; e->first < units; e->first += most) {
        const int64_t n = sw_min_i64(most, units - e->first), at = e->first * e->unit;
        const int64_t elems = sw_min_i64(n * e->unit, e->elems - at);
        sw_pool_run(t->w->pool, n, encode_item, e);
        for (int64_t i = 0; i < n && e->failed; i++) { /* this thread needs the message */
            SW_TRY(encode_unit(e, i, e->pieces));
        }
        SW_TRY(is_int8 ? put(t, t->codes, at, elems, e->codes)
                       : put(t, t->codes, at / 2, (elems + 1) / 2, e->codes));
    }
    return SW_OK;
}

/* Stores the scales of all blocks of a weight as codes under nested scales. */
static sw_status put_nested(const struct target *t, const float *scales, int64_t n)
{
    float head[SW_NESTED_SCALES], peak;
    uint8_t codes[SW_NF4_NESTED];
    double sum = 0;
    sw_nf4_map(head);
    add_all(scales, n, &sum);
    head[SW_NESTED_OFFSET] = (float)(sum / (double)n);
    SW_TRY(put_head(t, head));
    for (int64_t at = 0; at < n; at += SW_NF4_NESTED) {
        const int64_t some = sw_min_i64(n - at, SW_NF4_NESTED);
        sw_nf4_encode_scales(scales + at, some, head, head[SW_NESTED_OFFSET], codes, &peak);
        SW_TRY(put_scales(t, head, at, some, codes, peak));
    }
    return SW_OK;
}

static sw_status encode(const struct target *t, const struct item *item,
                        const struct sw_values *values)
{
    const bool is_int8 = item->form.kind == SW_QUANTIZED_INT8;
    const int64_t columns = item->shape.dims[1];
    struct encoder e = {.item = item,
                        .values = values,
                        .elems = sw_shape_elems(&item->shape),
                        .unit = is_int8 ? sw_max_i64(1, CHUNK / columns) * columns : CHUNK};
    const int64_t n_scales = sw_ceil_div(e.elems, is_int8 ? columns : SW_NF4_BLOCK);
    const int64_t n_pieces = (int64_t)CHUNK * sw_max_i64(1, sw_pool_threads(t->w->pool));
    float *floats = sw_alloc("engine", (size_t)(n_pieces + n_scales) * sizeof *floats);
    e.codes = sw_alloc("engine", (size_t)sw_max_i64(BATCH, e.unit));
    sw_status st = SW_OK;
    if (!floats || !e.codes) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for quantizing %s", item->name);
    } else {
        e.pieces = floats;
        e.scales = floats + n_pieces;
        st = encode_units(t, &e);
        st = st < 0    ? st
             : is_int8 ? put(t, t->scales, 0, n_scales, e.scales)
                       : put_nested(t, e.scales, n_scales);
    }
    sw_free(e.codes);
    sw_free(floats);
    return st;
}

/* Takes the codes and scales that bitsandbytes wrote. */
static sw_status copy(const struct target *t, const struct sw_hf_quantized *from)
{
    const struct sw_quantized *q = &from->q;
    const int64_t n_codes = sw_shape_elems(&t->codes->work->layout.whole);
    const int64_t n_scales = sw_shape_elems(&t->scales->work->layout.whole);
    float head[SW_NESTED_SCALES];
    SW_TRY(put(t, t->codes, 0, n_codes, q->codes));
    if (!q->form.is_nested) {
        return put(t, t->scales, 0, n_scales, q->scales);
    }
    memcpy(head, q->map, SW_NESTED_OFFSET * sizeof *head);
    head[SW_NESTED_OFFSET] = q->offset;
    SW_TRY(put_head(t, head));
    for (int64_t at = 0; at < n_scales; at += SW_NF4_NESTED) {
        SW_TRY(put_scales(t, head, at, sw_min_i64(n_scales - at, SW_NF4_NESTED),
                          (const uint8_t *)q->scales + at, q->nested[at / SW_NF4_NESTED]));
    }
    return SW_OK;
}

sw_status sw_weights_put_quantized(struct sw_weights *w, struct sw_parameter *param,
                                   const struct sw_hf_quantized *from,
                                   const struct sw_values *values)
{
    const struct item *item = find_item(w, param->work->name);
    struct target t = {.w = w,
                       .codes = param,
                       .scales = find_beside(w, item->name, ".absmax"),
                       .nested = find_beside(w, item->name, ".nested")};
    struct sw_parameter *const params[] = {t.codes, t.scales};
    sw_status st = SW_OK;
    for (int i = 0; i < 2 && st >= 0; i++) {
        st = sw_weights_begin_digest(w, params[i], &t.digests[i]);
    }
    if (st >= 0 && (!param->work->layout.is_absent || t.digests[0])) {
        st = from ? copy(&t, from) : encode(&t, item, values);
    }
    for (int i = 0; i < 2; i++) {
        st = sw_weights_end_digest(w, params[i], t.digests[i], st);
    }
    return st;
}

/* ---- what decoding will give ---- */

/* The mean of the scales of all blocks. */
static sw_status find_offset(const struct item *item, const struct sw_values *values, float *piece,
                             float *out)
{
    const int64_t n = sw_shape_elems(&item->shape);
    float scales[SW_NF4_NESTED];
    double sum = 0;
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t some = sw_min_i64(n - at, CHUNK);
        SW_TRY(fetch(item, values, at, some, piece));
        sw_nf4_scales(piece, some, scales);
        add_all(scales, sw_ceil_div(some, SW_NF4_BLOCK), &sum);
    }
    *out = (float)(sum / (double)sw_ceil_div(n, SW_NF4_BLOCK));
    return SW_OK;
}

sw_status sw_weights_begin_decoding(const struct sw_weights *w, const char *name,
                                    const struct sw_values *values, float *piece,
                                    struct sw_decoding *out)
{
    const struct item *item = name ? find_item(w, name) : NULL;
    *out = (struct sw_decoding){
        .values = values, .w = w, .name = item ? item->name : NULL, .run = SW_WEIGHTS_SCRATCH / 2};
    if (item && item->form.kind == SW_QUANTIZED_NF4) {
        out->run = CHUNK;
        return find_offset(item, values, piece, &out->offset);
    }
    if (item && item->shape.dims[1] > CHUNK) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: rows of %lld elements are not quantized under DoRA; at most %d", name,
                       (long long)item->shape.dims[1], CHUNK);
    }
    out->run = item ? item->shape.dims[1] : out->run;
    return SW_OK;
}

sw_status sw_weights_fetch_decoded(const struct sw_decoding *decoding, int64_t first, int64_t n,
                                   float *out)
{
    const struct item *item = decoding->name ? find_item(decoding->w, decoding->name) : NULL;
    if (!item) {
        return decoding->values->fetch(decoding->values->ctx, first, n, out);
    }
    float map[SW_NESTED_OFFSET], scales[SW_NF4_NESTED], peak;
    uint8_t codes[CHUNK], scale_codes[SW_NF4_NESTED];
    struct sw_quantized q = {.form = item->form,
                             .columns = n,
                             .codes = codes,
                             .scales = &peak,
                             .map = map,
                             .nested = &peak,
                             .offset = decoding->offset};
    SW_TRY(fetch(item, decoding->values, first, n, out));
    if (item->form.kind == SW_QUANTIZED_INT8) { /* one row */
        peak = sw_quantized_peak(out, n);
        sw_int8_encode(out, n, peak, (int8_t *)codes);
    } else {
        q.form.is_nested = true;
        sw_nf4_map(map);
        sw_nf4_scales(out, n, scales);
        sw_nf4_encode(out, n, scales, codes);
        sw_nf4_encode_scales(scales, sw_ceil_div(n, SW_NF4_BLOCK), map, q.offset, scale_codes,
                             &peak);
        q.scales = scale_codes;
    }
    sw_quantized_decode(&q, 0, n, SW_F32, out);
    return SW_OK;
}
