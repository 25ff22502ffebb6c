// SPDX-License-Identifier: Apache-2.0
// Weights: initial values, reading a Hugging Face folder, decoded fp32 masters by name. All of it
// passes through one scratch buffer of fixed size; a tensor is never copied whole.
#include <math.h>
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

/* Stores elements of any parameter or state in its own dtype. Ranges are as for
 * sw_weights_get. */
static sw_status store(struct sw_weights *w, const struct sw_persistent *item, int64_t first,
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
        return store(w, item, first, n, src);
    }
    for (int64_t done = 0; done < n; done += SW_PIECE) {
        const int64_t some = sw_min_i64(SW_PIECE, n - done);
        sw_convert(SW_BF16, w->scratch, SW_F32, (const float *)src + done, some);
        SW_TRY(store(w, item, first + done, some, w->scratch));
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
        return store(w, param->work, first, n, src);
    }
    if (param->work->dtype == SW_BF16 && param->master) {
        int16_t *lo = (int16_t *)(w->scratch + SW_PIECE);
        for (int64_t i = 0; i < n; i++) {
            sw_master_split(src[i], (uint16_t *)work + i, &lo[i]);
        }
        SW_TRY(store(w, param->master, first, n, lo));
    } else {
        sw_convert(param->work->dtype, work, SW_F32, src, n);
        if (param->master) {
            SW_TRY(store(w, param->master, first, n, src));
        }
    }
    return store(w, param->work, first, n, work);
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

/* *out = NULL if the parameter is trained. */
static sw_status begin_digest(const struct sw_weights *w, const struct sw_parameter *param,
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

static sw_status end_digest(struct sw_weights *w, struct sw_parameter *param,
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

static sw_status init_param(struct sw_weights *w, struct sw_parameter *param, struct sw_pool *pool,
                            float *piece)
{
    struct sw_digest *digest = NULL;
    sw_status st = begin_digest(w, param, &digest);
    const int64_t elems =
        is_skipped(param, digest) ? 0 : sw_shape_elems(&param->work->layout.whole);
    struct fill f = {.init = &param->work->init,
                     .seed = w->seed,
                     .stream = sw_hash_str(SW_HASH_INIT, param->work->name),
                     .columns = (uint64_t)sw_shape_last(&param->work->layout.whole),
                     .dst = piece};
    for (int64_t at = 0; at < elems && st >= 0; at += SW_PIECE) {
        f.first = at;
        f.n = sw_min_i64(elems - at, SW_PIECE);
        sw_pool_run(pool, sw_ceil_div(f.n, FILL_RUN), fill_item, &f);
        add_to_digest(digest, piece, f.n);
        st = sw_weights_set(w, param, at, f.n, piece);
    }
    return end_digest(w, param, digest, st);
}

sw_status sw_weights_draw(struct sw_weights *w)
{
    float *piece = sw_alloc("engine", SW_PIECE * sizeof *piece);
    SW_TRY_ALLOC(piece, "initial weights");
    struct sw_pool *pool = NULL;
    int64_t done = 0;
    const int64_t all = parameter_bytes(&w->params);
    sw_status st = sw_pool_open((int)w->config->spillway.threads, &pool);
    for (int32_t i = 0; i < w->params.n && st >= 0; i++) {
        sw_work_at("drawing weights", done, all);
        st = init_param(w, &w->params.items[i], pool, piece);
        done += (int64_t)w->params.items[i].work->bytes;
    }
    sw_work_end();
    sw_pool_close(pool);
    sw_free(piece);
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

static sw_status load_values(struct sw_weights *w, const struct sw_parameter *param,
                             const struct sw_safetensor *tensor, struct sw_digest *digest,
                             float *piece)
{
    const int64_t elems = is_skipped(param, digest) ? 0 : sw_shape_elems(&tensor->shape);
    const size_t bytes = sw_dtype_bytes(tensor->dtype);
    for (int64_t at = 0; at < elems; at += SW_PIECE) {
        const int64_t n = sw_min_i64(elems - at, SW_PIECE);
        SW_TRY(sw_safetensor_check(tensor));
        sw_convert(SW_F32, piece, tensor->dtype, (const char *)tensor->data + (size_t)at * bytes,
                   n);
        add_to_digest(digest, piece, n);
        SW_TRY(sw_weights_set(w, param, at, n, piece));
    }
    return SW_OK;
}

sw_status sw_weights_check_floats(const struct sw_safetensor *tensor)
{
    if (tensor->dtype == SW_DTYPE_COUNT || !sw_dtype_is_float(tensor->dtype)) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s has dtype %s, wanted F32, F16, BF16 or F64",
                       tensor->file, tensor->name, tensor->dtype_name);
    }
    return SW_OK;
}

sw_status sw_weights_check_tensor(const struct sw_parameter *param,
                                  const struct sw_safetensor *tensor)
{
    const struct sw_shape *shape = &param->work->layout.whole;
    char have[96], want[96];
    SW_TRY(sw_weights_check_floats(tensor));
    if (!sw_shape_equal(shape, &tensor->shape)) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s has shape %s, the model wants %s", tensor->file,
                       tensor->name, sw_shape_format(&tensor->shape, have, sizeof have),
                       sw_shape_format(shape, want, sizeof want));
    }
    return SW_OK;
}

static sw_status load_param(struct sw_weights *w, struct sw_parameter *param,
                            const struct sw_safetensor *tensor, float *piece)
{
    SW_TRY(sw_weights_check_tensor(param, tensor));
    SW_TRY(check_copies(w, param->work->name));
    struct sw_digest *digest = NULL;
    sw_status st = begin_digest(w, param, &digest);
    st = st < 0 ? st : load_values(w, param, tensor, digest, piece);
    return end_digest(w, param, digest, st);
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
        bool used = w->model->ops->ignores(w->model, tensor->name);
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

static sw_status load_imported(struct sw_weights *w, struct sw_parameter *param, float *piece)
{
    const struct sw_shape *shape = &param->work->layout.whole;
    struct sw_digest *digest = NULL;
    sw_status st = begin_digest(w, param, &digest);
    const int64_t elems = is_skipped(param, digest) ? 0 : sw_shape_elems(shape);
    for (int64_t at = 0; at < elems && st >= 0; at += SW_PIECE) {
        const int64_t n = sw_min_i64(elems - at, SW_PIECE);
        st = sw_onnx_model_fetch(w->model, param->work->name, shape, at, n, piece);
        add_to_digest(digest, piece, st < 0 ? 0 : n);
        st = st < 0 ? st : sw_weights_set(w, param, at, n, piece);
    }
    return end_digest(w, param, digest, st);
}

sw_status sw_weights_read_imported(struct sw_weights *w)
{
    float *piece = sw_alloc("engine", SW_PIECE * sizeof *piece);
    SW_TRY_ALLOC(piece, "reading weights");
    sw_status st = SW_OK;
    int64_t done = 0;
    const int64_t all = parameter_bytes(&w->params);
    for (int32_t i = 0; i < w->params.n && st >= 0; i++) {
        struct sw_parameter *param = &w->params.items[i];
        sw_work_at("reading weights", done, all);
        done += (int64_t)param->work->bytes;
        st = sw_lora_is_adapter(param->work->name) ? init_param(w, param, NULL, piece)
                                                   : load_imported(w, param, piece);
    }
    sw_work_end();
    sw_free(piece);
    return st;
}

sw_status sw_weights_read_folder(struct sw_weights *w)
{
    float *piece = sw_alloc("engine", SW_PIECE * sizeof *piece);
    SW_TRY_ALLOC(piece, "reading weights");
    sw_status st = SW_OK;
    int64_t done = 0;
    const int64_t all = parameter_bytes(&w->params);
    for (int32_t i = 0; i < w->params.n && st >= 0; i++) {
        struct sw_parameter *param = &w->params.items[i];
        const struct sw_safetensor *tensor = sw_weights_find_source(w, param->work->name);
        sw_work_at("reading weights", done, all);
        done += (int64_t)param->work->bytes;
        if (sw_lora_is_adapter(param->work->name) ||
            (tensor && is_of_other_head(w, param, tensor))) {
            st = init_param(w, param, NULL, piece);
        } else if (tensor) {
            st = load_param(w, param, tensor, piece);
            param->file_name = sw_arena_strdup(&w->params.names, tensor->name);
            if (i == 0 && !w->lora) { /* adapters and their masters are f32 */
                w->source.dtype = tensor->dtype == SW_F64 ? SW_F32 : tensor->dtype;
            }
        } else if (param->work->init.kind == SW_INIT_SINES_APART) { /* files may omit them */
            st = init_param(w, param, NULL, piece);
        } else if (sw_model_may_begin(w->model, param->work->name)) {
            if (!sw_weights_adapter_has(w, param->work->name)) {
                sw_log(SW_LOG_WARN, "%s: %s is not in the folder; the new head starts at random",
                       w->source.folder, param->work->name);
            }
            st = init_param(w, param, NULL, piece);
        } else {
            st = SW_FAIL(SW_E_FORMAT, "%s: tensor %s is missing", w->source.folder,
                         param->work->name);
        }
    }
    sw_work_end();
    if (st >= 0) {
        warn_unused(w);
    }
    sw_free(piece);
    return st;
}
