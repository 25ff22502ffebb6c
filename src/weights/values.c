// SPDX-License-Identifier: Apache-2.0
// Weights: initial values, reading a Hugging Face folder, decoded fp32 masters by name. All of it
// passes through one scratch buffer of fixed size; a tensor is never copied whole.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "weights/private.h"

static size_t elem_bytes(const struct sw_persistent *item)
{
    return sw_dtype_bytes(item->dtype);
}

/* ---- the index ---- */

static void close_index(struct sw_parameters *params)
{
    sw_free(params->items);
    sw_arena_fini(&params->names);
    *params = (struct sw_parameters){0};
}

sw_status sw_weights_index(struct sw_weights *w, const struct sw_plan *plan)
{
    struct sw_parameters *out = &w->params;
    close_index(out);
    w->plan = plan;
    sw_arena_init(&out->names, "engine");
    out->items = sw_alloc_zero("engine", (size_t)plan->n_persistent + 1, sizeof *out->items);
    SW_TRY_ALLOC(out->items, "the index of parameters");
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        if (item->role != SW_ROLE_PARAM) {
            continue;
        }
        struct sw_parameter *param = &out->items[out->n++];
        param->work = item;
        param->master = sw_plan_find_state(
            plan, item->name, item->dtype == SW_BF16 ? SW_STATE_MASTER_LO : SW_STATE_MASTER, 0);
    }
    return SW_OK;
}

void sw_weights_close(struct sw_weights *w)
{
    sw_weights_close_lora(w);
    sw_weights_close_quantizer(w);
    sw_weights_close_source(w);
    close_index(&w->params);
}

const struct sw_parameter *sw_weights_find(const struct sw_weights *w, const char *name)
{
    for (int32_t i = 0; i < w->params.n; i++) {
        if (strcmp(w->params.items[i].work->name, name) == 0) {
            return &w->params.items[i];
        }
    }
    return NULL;
}

static bool is_name_of(const struct sw_weights *w, const struct sw_parameter *param,
                       const char *name)
{
    char buf[512];
    const char *alias = "";
    bool found = false;
    for (int i = 0; w->model && alias && !found; i++) {
        alias = w->model->ops->alias(w->model, param->work->name, i, buf, sizeof buf);
        found = alias && strcmp(alias, name) == 0;
    }
    return found;
}

const struct sw_parameter *sw_weights_of_file(const struct sw_weights *w, const char *name)
{
    const struct sw_parameter *other = NULL;
    for (int32_t i = 0; i < w->params.n; i++) {
        const struct sw_parameter *param = &w->params.items[i];
        if ((param->file_name && strcmp(param->file_name, name) == 0) ||
            strcmp(param->work->name, name) == 0) {
            return param;
        }
        other = !other && is_name_of(w, param, name) ? param : other;
    }
    return sw_weights_ignores(w, name) ? NULL : other;
}

bool sw_weights_ignores(const struct sw_weights *w, const char *name)
{
    return w->model && w->model->ops->ignores(w->model, name);
}

sw_status sw_weights_zero_states(struct sw_weights *w)
{
    const struct sw_plan *plan = w->plan;
    const bool disk = plan->tier_bytes[SW_TIER_DISK] > 0;
    int64_t done = 0, all = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        all += (int64_t)plan->persistent[i].bytes;
    }
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        /* states begin at zero, and so does the padding of shards */
        sw_work_at(disk ? "creating swap files" : "clearing memory", done, all);
        SW_TRY(sw_executor_zero(w->executor, &plan->persistent[i]));
        done += (int64_t)plan->persistent[i].bytes;
    }
    sw_work_end();
    return SW_OK;
}

/* ---- masters ---- */

/* Elements of one piece at most. The scratch buffer holds both parts of a master, in the device's
 * dtype. */
enum { SW_PIECE = SW_WEIGHTS_SCRATCH / 2 };

sw_status sw_weights_store(struct sw_weights *w, const struct sw_persistent *item, int64_t first,
                           int64_t n, const void *src)
{
    const size_t bytes = elem_bytes(item);
    struct sw_run_iter iter;
    struct sw_run run;
    sw_runs_begin_within(&item->layout, first, n, &iter);
    while (sw_runs_next(&iter, &run)) {
        SW_TRY(sw_executor_load(w->executor, item, (size_t)run.here * bytes,
                                (const char *)src + (size_t)(run.first - first) * bytes,
                                (size_t)run.n * bytes));
    }
    return SW_OK;
}

static sw_status fetch(struct sw_weights *w, const struct sw_persistent *item, int64_t first,
                       int64_t n, void *dst)
{
    const size_t bytes = elem_bytes(item);
    struct sw_run_iter iter;
    struct sw_run run;
    int64_t found = 0;
    sw_runs_begin_within(&item->layout, first, n, &iter);
    while (sw_runs_next(&iter, &run)) {
        SW_TRY(sw_executor_save(w->executor, item, (size_t)run.here * bytes,
                                (char *)dst + (size_t)(run.first - first) * bytes,
                                (size_t)run.n * bytes));
        found += run.n;
    }
    if (found < n) {
        return SW_FAIL(SW_E_ARG, "%s: %lld of elements %lld to %lld are on other ranks", item->name,
                       (long long)(n - found), (long long)first, (long long)(first + n));
    }
    return SW_OK;
}

sw_status sw_weights_store_state(struct sw_weights *w, const struct sw_persistent *item,
                                 int64_t first, int64_t n, const void *src)
{
    if (item->dtype != SW_BF16) {
        return sw_weights_store(w, item, first, n, src);
    }
    for (int64_t done = 0; done < n; done += SW_PIECE) {
        const int64_t some = sw_min_i64(SW_PIECE, n - done);
        sw_convert(SW_BF16, w->scratch, SW_F32, (const float *)src + done, some);
        SW_TRY(sw_weights_store(w, item, first + done, some, w->scratch));
    }
    return SW_OK;
}

sw_status sw_weights_fetch_state(struct sw_weights *w, const struct sw_persistent *item,
                                 int64_t first, int64_t n, void *dst)
{
    if (item->dtype != SW_BF16) {
        return fetch(w, item, first, n, dst);
    }
    for (int64_t done = 0; done < n; done += SW_PIECE) {
        const int64_t some = sw_min_i64(SW_PIECE, n - done);
        SW_TRY(fetch(w, item, first + done, some, w->scratch));
        sw_convert(SW_F32, (float *)dst + done, SW_BF16, w->scratch, some);
    }
    return SW_OK;
}

static sw_status set_piece(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                           int64_t n, const float *src)
{
    void *work = w->scratch;
    if (param->work->dtype == SW_F32) {
        return sw_weights_store(w, param->work, first, n, src);
    }
    if (param->work->dtype == SW_BF16 && param->master) {
        int16_t *lo = (int16_t *)(w->scratch + SW_PIECE);
        for (int64_t i = 0; i < n; i++) {
            sw_master_split(src[i], (uint16_t *)work + i, &lo[i]);
        }
        SW_TRY(sw_weights_store(w, param->master, first, n, lo));
    } else {
        sw_convert(param->work->dtype, work, SW_F32, src, n);
        if (param->master) {
            SW_TRY(sw_weights_store(w, param->master, first, n, src));
        }
    }
    return sw_weights_store(w, param->work, first, n, work);
}

static sw_status get_piece(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                           int64_t n, float *out)
{
    if (param->master && param->master->dtype == SW_F32) {
        return fetch(w, param->master, first, n, out);
    }
    if (param->work->dtype == SW_F32) {
        return fetch(w, param->work, first, n, out);
    }
    uint16_t *hi = (uint16_t *)w->scratch;
    SW_TRY(fetch(w, param->work, first, n, hi));
    if (!sw_dtype_is_float(param->work->dtype)) { /* codes, as numbers */
        for (int64_t i = 0; i < n; i++) {
            out[i] = (float)sw_load_f64(param->work->dtype, hi, i);
        }
        return SW_OK;
    }
    if (!param->master) {
        sw_convert(SW_F32, out, param->work->dtype, hi, n);
        return SW_OK;
    }
    int16_t *lo = (int16_t *)(w->scratch + SW_PIECE);
    SW_TRY(fetch(w, param->master, first, n, lo));
    for (int64_t i = 0; i < n; i++) {
        out[i] = sw_master_join(hi[i], lo[i]);
    }
    return SW_OK;
}

sw_status sw_weights_set(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                         int64_t n, const float *src)
{
    for (int64_t at = 0; at < n; at += SW_PIECE) {
        SW_TRY(set_piece(w, param, first + at, sw_min_i64(n - at, SW_PIECE), src + at));
    }
    return SW_OK;
}

sw_status sw_weights_get(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                         int64_t n, float *out)
{
    for (int64_t at = 0; at < n; at += SW_PIECE) {
        SW_TRY(get_piece(w, param, first + at, sw_min_i64(n - at, SW_PIECE), out + at));
    }
    return SW_OK;
}

/* ---- initial values ---- */

struct fill {
    const struct sw_init *init;
    uint64_t seed, stream;
    uint64_t columns; /* columns of the whole parameter */
    int64_t first, n;
    float *dst; /* [n] */
};

enum { FILL_RUN = 1024 }; /* elements that a thread draws at a time */

/* Row p, column j: the sine or cosine of p / 10000^(2 (j/2) / columns). apart: the even columns
 * precede the odd ones */
static float sine(uint64_t columns, uint64_t i, bool apart)
{
    const uint64_t at = i % columns, sines = (columns + 1) / 2;
    const uint64_t j = !apart ? at : at < sines ? 2 * at : 2 * (at - sines) + 1;
    const double power = (double)(j / 2 * 2) / (double)columns;
    const double angle = (double)(i / columns) / pow(10000, power);
    return (float)(j % 2 == 0 ? sin(angle) : cos(angle));
}

static float initial(const struct fill *f, uint64_t i)
{
    switch (f->init->kind) {
    case SW_INIT_NORMAL:
        return (float)(f->init->std * sw_philox_normal(f->seed, f->stream, i));
    case SW_INIT_UNIFORM: /* 53 bits of [0, 1), scaled to [-std, std) */
        return (float)(f->init->std *
                       (0x1p-52 * (double)(sw_philox_u64(f->seed, f->stream, i) >> 11) - 1));
    case SW_INIT_SINES:
    case SW_INIT_SINES_APART:
        return sine(f->columns, i, f->init->kind == SW_INIT_SINES_APART);
    case SW_INIT_ONE:
        return 1;
    case SW_INIT_ZERO:
        break;
    }
    return 0;
}

static void fill_item(void *ctx, int64_t item, int worker)
{
    (void)worker;
    const struct fill *f = ctx;
    const int64_t end = sw_min_i64((item + 1) * FILL_RUN, f->n);
    for (int64_t i = item * FILL_RUN; i < end; i++) {
        f->dst[i] = initial(f, (uint64_t)(f->first + i));
    }
}

/* True if another stage of the pipeline has the parameter, and its values are not hashed here. */
static bool is_skipped(const struct sw_parameter *param, const struct sw_digest *digest)
{
    return param->work->layout.is_absent && !digest;
}

/* ---- the base of adapters ---- */

sw_status sw_weights_begin_digest(const struct sw_weights *w, const struct sw_parameter *param,
                                  struct sw_digest **out)
{
    return sw_weights_keeps(w, param->work->name) ? SW_OK : sw_digest_open(out);
}

static void add_to_digest(struct sw_digest *digest, const float *piece, int64_t n)
{
    if (digest) {
        sw_digest_update(digest, piece, (size_t)n * sizeof *piece);
    }
}

sw_status sw_weights_end_digest(struct sw_weights *w, struct sw_parameter *param,
                                struct sw_digest *digest, sw_status st)
{
    char text[33];
    if (digest && st >= 0) {
        sw_digest_hex(digest, text);
        param->digest = sw_arena_strdup(&w->params.names, text);
        st = param->digest ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a digest");
    }
    sw_digest_close(digest);
    return st;
}

static int64_t parameter_bytes(const struct sw_parameters *params)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < params->n; i++) {
        bytes += (int64_t)params->items[i].work->bytes;
    }
    return bytes;
}

/* Draws elements first .. first + n - 1 of a parameter. */
struct drawing {
    struct fill fill;
    struct sw_pool *pool;
};

static sw_status draw(void *ctx, int64_t first, int64_t n, float *out)
{
    const struct drawing *d = ctx;
    struct fill fill = d->fill;
    fill.first = first;
    fill.n = n;
    fill.dst = out;
    sw_pool_run(d->pool, sw_ceil_div(n, FILL_RUN), fill_item, &fill);
    return SW_OK;
}

static struct drawing drawing_of(const struct sw_weights *w, const struct sw_parameter *param)
{
    return (struct drawing){{.init = &param->work->init,
                             .seed = w->seed,
                             .stream = sw_hash_str(SW_HASH_INIT, param->work->name),
                             .columns = (uint64_t)sw_shape_last(&param->work->layout.whole)},
                            w->pool};
}

/* Stores values piece by piece. */
static sw_status set_values(struct sw_weights *w, struct sw_parameter *param,
                            const struct sw_values *values, float *piece)
{
    struct sw_digest *digest = NULL;
    sw_status st = sw_weights_begin_digest(w, param, &digest);
    const int64_t elems =
        is_skipped(param, digest) ? 0 : sw_shape_elems(&param->work->layout.whole);
    for (int64_t at = 0; at < elems && st >= 0; at += SW_PIECE) {
        const int64_t n = sw_min_i64(elems - at, SW_PIECE);
        st = values->fetch(values->ctx, at, n, piece);
        if (st >= 0) {
            add_to_digest(digest, piece, n);
            st = sw_weights_set(w, param, at, n, piece);
        }
    }
    return sw_weights_end_digest(w, param, digest, st);
}

static sw_status init_param(struct sw_weights *w, struct sw_parameter *param, float *piece)
{
    struct drawing d = drawing_of(w, param);
    const struct sw_values values = {draw, &d, SW_F32};
    return sw_weights_is_scales(w, param->work->name) ? SW_OK
           : sw_weights_is_quantized(w, param->work->name)
               ? sw_weights_put_quantized(w, param, NULL, &values)
               : set_values(w, param, &values, piece);
}

/* Magnitudes of DoRA begin as the norms of the rows of their weight. values: of the weight;
 * decoded: those of its codes */
static sw_status init_magnitudes(struct sw_weights *w, const struct sw_parameter *param,
                                 const struct sw_values *values, bool decoded, float *piece)
{
    const char *name = param->work->name;
    const int64_t n_out = sw_shape_elems(&param->work->layout.whole);
    const struct sw_adapted_layer *layer = sw_weights_layer_of(w, name);
    char of[512];
    snprintf(of, sizeof of, "%s.weight", layer->module);
    const int64_t elems = sw_weights_elems(w, sw_weights_find(w, of)), n_in = elems / n_out;
    struct sw_decoding decoding;
    double *squares = sw_alloc_zero("engine", (size_t)n_out, sizeof *squares);
    SW_TRY_ALLOC(squares, "magnitudes");
    sw_status st = sw_weights_begin_decoding(w, decoded ? NULL : of, values, piece, &decoding);
    for (int64_t at = 0, n = 0; at < elems && st >= 0; at += n) {
        n = sw_min_i64(decoding.run, elems - at);
        st = sw_weights_fetch_decoded(&decoding, at, n, piece);
        for (int64_t i = at; i < at + n && st >= 0; i++) {
            squares[layer->in_out ? i % n_out : i / n_in] +=
                (double)piece[i - at] * (double)piece[i - at];
        }
    }
    for (int64_t at = 0; at < n_out && st >= 0; at += SW_PIECE) {
        const int64_t n = sw_min_i64(SW_PIECE, n_out - at);
        for (int64_t i = 0; i < n; i++) {
            piece[i] = (float)sqrt(squares[at + i]);
        }
        st = sw_weights_set(w, param, at, n, piece);
    }
    sw_free(squares);
    return st;
}

/* The weight whose rows a parameter has the magnitudes of. */
static const struct sw_parameter *weight_of(const struct sw_weights *w,
                                            const struct sw_parameter *magnitudes)
{
    char of[512];
    snprintf(of, sizeof of, "%s.weight", sw_weights_layer_of(w, magnitudes->work->name)->module);
    return sw_weights_find(w, of);
}

static sw_status draw_param(struct sw_weights *w, struct sw_parameter *param, float *piece)
{
    if (!sw_lora_is_magnitude(param->work->name)) {
        return init_param(w, param, piece);
    }
    struct drawing d = drawing_of(w, weight_of(w, param));
    const struct sw_values values = {draw, &d, SW_F32};
    return init_magnitudes(w, param, &values, false, piece);
}

/* piece: [SW_PIECE], the caller's; free with end_values */
static sw_status begin_values(struct sw_weights *w, float **piece)
{
    *piece = sw_alloc("engine", SW_PIECE * sizeof **piece);
    SW_TRY_ALLOC(*piece, "reading weights");
    return sw_pool_open((int)w->config->spillway.threads, &w->pool);
}

static void end_values(struct sw_weights *w, float *piece)
{
    sw_work_end();
    sw_pool_close(w->pool);
    w->pool = NULL;
    sw_free(piece);
}

sw_status sw_weights_draw(struct sw_weights *w)
{
    float *piece = NULL;
    int64_t done = 0;
    const int64_t all = parameter_bytes(&w->params);
    sw_status st = begin_values(w, &piece);
    for (int32_t i = 0; i < w->params.n && st >= 0; i++) {
        sw_work_at("drawing weights", done, all);
        st = draw_param(w, &w->params.items[i], piece);
        done += (int64_t)w->params.items[i].work->bytes;
    }
    end_values(w, piece);
    return st;
}

/* ---- a Hugging Face folder ---- */

const struct sw_safetensor *sw_weights_find_in_folder(const struct sw_weights *w, const char *name)
{
    char buf[512];
    for (int i = 0;; i++) {
        const char *alias = w->model->ops->alias(w->model, name, i, buf, sizeof buf);
        const struct sw_safetensor *tensor =
            alias ? sw_hf_folder_find(w->source.files, alias) : NULL;
        if (alias && !tensor) {
            continue;
        }
        const struct sw_model *m = w->model; /* a tied pair may be stored under either name */
        const bool is_tied = m->tied && m->lm_head_name && strcmp(name, m->embedding_name) == 0;
        return tensor || !is_tied ? tensor : sw_weights_find_in_folder(w, m->lm_head_name);
    }
}

static bool are_equal(const struct sw_safetensor *a, const struct sw_safetensor *b)
{
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

/* A folder may store one parameter under several names; the copies must be equal. */
static sw_status check_copies(const struct sw_weights *w, const char *name)
{
    const struct sw_safetensor *first = NULL;
    char buf[512];
    for (int i = 0;; i++) {
        const char *alias = w->model->ops->alias(w->model, name, i, buf, sizeof buf);
        const struct sw_safetensor *tensor =
            alias ? sw_hf_folder_find(w->source.files, alias) : NULL;
        if (!alias) {
            return SW_OK;
        }
        if (!tensor || (first && w->model->ops->ignores(w->model, alias))) {
            continue;
        }
        SW_TRY(sw_safetensor_check(tensor));
        if (first && !are_equal(first, tensor)) {
            return SW_FAIL(SW_E_UNSUP,
                           "%s: tensors %s and %s differ; in this version both stand for %s",
                           w->source.folder, first->name, tensor->name, name);
        }
        first = first ? first : tensor;
    }
}

/* Reads the folder's tensor for a parameter that is stored under an alias. */
static sw_status read_alias(const struct sw_weights *w, const char *name,
                            const struct sw_safetensor **out)
{
    *out = sw_weights_find_in_folder(w, name);
    return *out ? sw_safetensor_check(*out) : SW_OK;
}

sw_status sw_weights_resolve_tie(struct sw_weights *w)
{
    const struct sw_safetensor *head = NULL, *table = NULL;
    const struct sw_model *m = w->model;
    if (!w->source.files || !m->lm_head_name || !(m->tied || m->ties_absent_head)) {
        return SW_OK;
    }
    SW_TRY(read_alias(w, m->lm_head_name, &head));
    SW_TRY(read_alias(w, m->embedding_name, &table));
    if (!m->tied) {
        return head || !m->head_name ? SW_OK : sw_weights_tie(w, true);
    }
    return !head || !table || are_equal(head, table) ? SW_OK : sw_weights_tie(w, false);
}

sw_status sw_weights_check_floats(const struct sw_safetensor *tensor)
{
    if (tensor->dtype == SW_DTYPE_COUNT || !sw_dtype_is_float(tensor->dtype)) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s has dtype %s, wanted F32, F16, BF16 or F64",
                       tensor->file, tensor->name, tensor->dtype_name);
    }
    return SW_OK;
}

static sw_status check_shape(const struct sw_safetensor *tensor, const struct sw_shape *have,
                             const struct sw_shape *want)
{
    char a[96], b[96];
    return sw_shape_equal(have, want)
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s: tensor %s has shape %s, the model wants %s",
                         tensor->file, tensor->name, sw_shape_format(have, a, sizeof a),
                         sw_shape_format(want, b, sizeof b));
}

sw_status sw_weights_check_tensor(const struct sw_parameter *param,
                                  const struct sw_safetensor *tensor)
{
    SW_TRY(sw_weights_check_floats(tensor));
    return check_shape(tensor, &tensor->shape, &param->work->layout.whole);
}

/* A tensor of the folder, whose values are decoded if it is quantized. */
struct reading {
    const struct sw_safetensor *tensor;
    struct sw_hf_quantized quantized;
};

static sw_status read_values(void *ctx, int64_t first, int64_t n, float *out)
{
    const struct reading *r = ctx;
    const struct sw_safetensor *tensor = r->tensor;
    SW_TRY(sw_safetensor_check(tensor));
    if (r->quantized.q.form.kind != SW_QUANTIZED_NONE) {
        sw_quantized_decode(&r->quantized.q, first, n, SW_F32, out);
        return SW_OK;
    }
    const size_t bytes = sw_dtype_bytes(tensor->dtype);
    sw_convert(SW_F32, out, tensor->dtype, (const char *)tensor->data + (size_t)first * bytes, n);
    sw_safetensor_release(tensor, (size_t)first * bytes, (size_t)n * bytes);
    return SW_OK;
}

/* dtype: that of the values */
static sw_status load_param(struct sw_weights *w, struct sw_parameter *param,
                            const struct sw_safetensor *tensor, float *piece, enum sw_dtype *dtype)
{
    struct reading r = {.tensor = tensor};
    struct sw_values values = {read_values, &r, SW_F32};
    const struct sw_shape *shape = &param->work->layout.whole;
    SW_TRY(sw_safetensor_check(tensor));
    SW_TRY(sw_hf_quantized_open(w->source.files, tensor, &r.quantized));
    const bool decodes = r.quantized.q.form.kind != SW_QUANTIZED_NONE;
    *dtype = values.dtype = decodes ? r.quantized.q.form.dtype : tensor->dtype;
    SW_TRY(check_copies(w, param->work->name));
    if (sw_weights_is_quantized(w, param->work->name)) {
        const struct sw_shape whole = sw_weights_quantized_shape(w, param->work->name);
        SW_TRY(decodes ? SW_OK : sw_weights_check_floats(tensor));
        SW_TRY(check_shape(tensor, decodes ? &r.quantized.shape : &tensor->shape, &whole));
        SW_TRY(sw_weights_put_quantized(w, param, decodes ? &r.quantized : NULL, &values));
        sw_safetensor_release(tensor, 0, tensor->bytes);
        return SW_OK;
    }
    SW_TRY(decodes ? check_shape(tensor, &r.quantized.shape, shape)
                   : sw_weights_check_tensor(param, tensor));
    return set_values(w, param, &values, piece);
}

static sw_status load_magnitudes(struct sw_weights *w, const struct sw_parameter *param,
                                 float *piece)
{
    const struct sw_parameter *weight = weight_of(w, param);
    struct reading r = {.tensor = sw_weights_find_source(w, weight->work->name)};
    struct sw_values values = {read_values, &r, SW_F32};
    if (!r.tensor) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s is missing", w->source.folder,
                       weight->work->name);
    }
    SW_TRY(sw_safetensor_check(r.tensor));
    SW_TRY(sw_hf_quantized_open(w->source.files, r.tensor, &r.quantized));
    const bool decoded = r.quantized.q.form.kind != SW_QUANTIZED_NONE;
    SW_TRY(decoded ? SW_OK : sw_weights_check_floats(r.tensor));
    values.dtype = decoded ? r.quantized.q.form.dtype : r.tensor->dtype;
    return init_magnitudes(w, param, &values, decoded, piece);
}

/* Warns about float tensors that match no parameter and that the family does not ignore. A task
 * without a head has no warnings: heads are expected to be left out. */
static void warn_unused(const struct sw_weights *w)
{
    if (w->model->task->n_losses == 0) {
        return;
    }
    for (int64_t i = 0; i < sw_hf_folder_count(w->source.files); i++) {
        const struct sw_safetensor *tensor = sw_hf_folder_at(w->source.files, i);
        bool used =
            w->model->ops->ignores(w->model, tensor->name) || sw_hf_is_quantization(tensor->name);
        for (int32_t p = 0; p < w->params.n && !used; p++) {
            used = is_name_of(w, &w->params.items[p], tensor->name);
        }
        if (!used) {
            sw_log(SW_LOG_WARN, "%s: tensor %s is not part of this model and is left out",
                   w->source.folder, tensor->name);
        }
    }
}

const struct sw_safetensor *sw_weights_find_source(const struct sw_weights *w, const char *name)
{
    const struct sw_safetensor *tensor = sw_weights_find_in_folder(w, name);
    const bool other = !tensor && w->lora && w->lora->untied && w->model->head_name &&
                       strcmp(name, w->model->head_name) == 0;
    return other ? sw_weights_find_in_folder(w, w->model->embedding_name) : tensor;
}

/* True for a head with another number of classes: training then uses the folder's trunk only. */
static bool is_of_other_head(const struct sw_weights *w, const struct sw_parameter *param,
                             const struct sw_safetensor *tensor)
{
    const struct sw_shape *shape = &param->work->layout.whole;
    char have[96], want[96];
    if (!w->options->train.wanted || !sw_model_has_other_head(w->model, param->work->name) ||
        sw_shape_equal(shape, &tensor->shape)) {
        return false;
    }
    sw_log(SW_LOG_WARN,
           "%s: %s has shape %s, for other classes, the model wants %s; the new head "
           "starts at random",
           w->source.folder, tensor->name, sw_shape_format(&tensor->shape, have, sizeof have),
           sw_shape_format(shape, want, sizeof want));
    return true;
}

struct importing {
    const struct sw_model *model;
    const struct sw_parameter *param;
};

static sw_status read_import(void *ctx, int64_t first, int64_t n, float *out)
{
    const struct importing *i = ctx;
    return sw_onnx_model_fetch(i->model, i->param->work->name, &i->param->work->layout.whole, first,
                               n, out);
}

static sw_status load_imported(struct sw_weights *w, struct sw_parameter *param, float *piece)
{
    const bool magnitude = sw_lora_is_magnitude(param->work->name);
    struct importing import = {w->model, magnitude ? weight_of(w, param) : param};
    const struct sw_values values = {read_import, &import, SW_F32};
    return magnitude ? init_magnitudes(w, param, &values, false, piece)
                     : set_values(w, param, &values, piece);
}

sw_status sw_weights_read_imported(struct sw_weights *w)
{
    float *piece = NULL;
    int64_t done = 0;
    const int64_t all = parameter_bytes(&w->params);
    sw_status st = begin_values(w, &piece);
    for (int32_t i = 0; i < w->params.n && st >= 0; i++) {
        struct sw_parameter *param = &w->params.items[i];
        sw_work_at("reading weights", done, all);
        done += (int64_t)param->work->bytes;
        const bool drawn =
            sw_lora_is_adapter(param->work->name) && !sw_lora_is_magnitude(param->work->name);
        st = drawn ? init_param(w, param, piece) : load_imported(w, param, piece);
    }
    end_values(w, piece);
    return st;
}

sw_status sw_weights_read_folder(struct sw_weights *w)
{
    float *piece = NULL;
    int64_t done = 0;
    const int64_t all = parameter_bytes(&w->params);
    sw_status st = begin_values(w, &piece);
    for (int32_t i = 0; i < w->params.n && st >= 0; i++) {
        struct sw_parameter *param = &w->params.items[i];
        const struct sw_safetensor *tensor = sw_weights_find_source(w, param->work->name);
        sw_work_at("reading weights", done, all);
        done += (int64_t)param->work->bytes;
        if (sw_weights_is_scales(w, param->work->name)) {
            continue; /* they come with the codes */
        }
        if (sw_lora_is_magnitude(param->work->name)) {
            st = load_magnitudes(w, param, piece);
        } else if (sw_lora_is_adapter(param->work->name) ||
                   (tensor && is_of_other_head(w, param, tensor))) {
            st = init_param(w, param, piece);
        } else if (tensor) {
            enum sw_dtype dtype = SW_F32;
            st = load_param(w, param, tensor, piece, &dtype);
            param->file_name = sw_arena_strdup(&w->params.names, tensor->name);
            if (i == 0 && !w->lora) { /* adapters and their masters are f32 */
                w->source.dtype = dtype == SW_F64 ? SW_F32 : dtype;
            }
        } else if (param->work->init.kind == SW_INIT_SINES_APART) { /* files may omit them */
            st = init_param(w, param, piece);
        } else if (sw_model_may_begin(w->model, param->work->name)) {
            if (!sw_weights_adapter_has(w, param->work->name)) {
                sw_log(SW_LOG_WARN, "%s: %s is not in the folder; the new head starts at random",
                       w->source.folder, param->work->name);
            }
            st = init_param(w, param, piece);
        } else {
            st = SW_FAIL(SW_E_FORMAT, "%s: tensor %s is missing", w->source.folder,
                         param->work->name);
        }
    }
    end_values(w, piece);
    if (st >= 0) {
        warn_unused(w);
    }
    return st;
}
