// SPDX-License-Identifier: Apache-2.0
// Weights: initial values, reading a Hugging Face folder, decoded fp32 masters by name. All of it
// passes through one scratch buffer of fixed size; a tensor is never copied whole.
#include <math.h>
#include <string.h>

#include "engine/adapter.h"

static size_t elem_bytes(const struct sw_persistent *item)
{
    return sw_dtype_bytes(item->dtype);
}

/* ---- the index ---- */

sw_status sw_engine_index_params(const struct sw_plan *plan, struct engine_params *out)
{
    sw_engine_close_params(out);
    sw_arena_init(&out->names, "engine");
    out->items = sw_alloc_zero("engine", (size_t)plan->n_persistent + 1, sizeof *out->items);
    SW_TRY_ALLOC(out->items, "the index of parameters");
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        if (item->role != SW_ROLE_PARAM) {
            continue;
        }
        struct engine_param *param = &out->items[out->n++];
        param->work = item;
        param->master = sw_plan_find_state(
            plan, item->name, item->dtype == SW_BF16 ? SW_STATE_MASTER_LO : SW_STATE_MASTER, 0);
    }
    return SW_OK;
}

void sw_engine_close_params(struct engine_params *params)
{
    sw_free(params->items);
    sw_arena_fini(&params->names);
    *params = (struct engine_params){0};
}

const struct engine_param *sw_engine_find_param(const struct sw_engine *e, const char *name)
{
    for (int32_t i = 0; i < e->params.n; i++) {
        if (strcmp(e->params.items[i].work->name, name) == 0) {
            return &e->params.items[i];
        }
    }
    return NULL;
}

sw_status sw_engine_zero_states(struct sw_engine *e)
{
    const struct sw_plan *plan = e->plan;
    const bool disk = plan->tier_bytes[SW_TIER_DISK] > 0;
    int64_t done = 0, all = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        all += (int64_t)plan->persistent[i].bytes;
    }
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        /* states begin at zero, and so does the padding of shards */
        sw_work_at(disk ? "creating swap files" : "clearing memory", done, all);
        SW_TRY(sw_executor_zero(e->executor, &plan->persistent[i]));
        done += (int64_t)plan->persistent[i].bytes;
    }
    sw_work_end();
    return SW_OK;
}

/* ---- masters ---- */

/* Elements of one piece at most. The scratch buffer holds both parts of a master, in the device's
 * dtype. */
enum { SW_PIECE = SW_SCRATCH_ELEMS / 2 };

/* Stores elements of any parameter or state in its own dtype. Ranges are as for
 * sw_engine_get_master. */
static sw_status store(struct sw_engine *e, const struct sw_persistent *item, int64_t first,
                       int64_t n, const void *src)
{
    const size_t bytes = elem_bytes(item);
    struct sw_run_iter iter;
    struct sw_run run;
    sw_runs_begin_within(&item->layout, first, n, &iter);
    while (sw_runs_next(&iter, &run)) {
        SW_TRY(sw_executor_load(e->executor, item, (size_t)run.here * bytes,
                                (const char *)src + (size_t)(run.first - first) * bytes,
                                (size_t)run.n * bytes));
    }
    return SW_OK;
}

static sw_status fetch(struct sw_engine *e, const struct sw_persistent *item, int64_t first,
                       int64_t n, void *dst)
{
    const size_t bytes = elem_bytes(item);
    struct sw_run_iter iter;
    struct sw_run run;
    int64_t found = 0;
    sw_runs_begin_within(&item->layout, first, n, &iter);
    while (sw_runs_next(&iter, &run)) {
        SW_TRY(sw_executor_save(e->executor, item, (size_t)run.here * bytes,
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

sw_status sw_engine_store_state(struct sw_engine *e, const struct sw_persistent *item,
                                int64_t first, int64_t n, const void *src)
{
    if (item->dtype != SW_BF16) {
        return store(e, item, first, n, src);
    }
    for (int64_t done = 0; done < n; done += SW_PIECE) {
        const int64_t some = sw_min_i64(SW_PIECE, n - done);
        sw_convert(SW_BF16, e->scratch, SW_F32, (const float *)src + done, some);
        SW_TRY(store(e, item, first + done, some, e->scratch));
    }
    return SW_OK;
}

sw_status sw_engine_fetch_state(struct sw_engine *e, const struct sw_persistent *item,
                                int64_t first, int64_t n, void *dst)
{
    if (item->dtype != SW_BF16) {
        return fetch(e, item, first, n, dst);
    }
    for (int64_t done = 0; done < n; done += SW_PIECE) {
        const int64_t some = sw_min_i64(SW_PIECE, n - done);
        SW_TRY(fetch(e, item, first + done, some, e->scratch));
        sw_convert(SW_F32, (float *)dst + done, SW_BF16, e->scratch, some);
    }
    return SW_OK;
}

static sw_status set_piece(struct sw_engine *e, const struct engine_param *param, int64_t first,
                           int64_t n, const float *src)
{
    void *work = e->scratch;
    if (param->work->dtype == SW_F32) {
        return store(e, param->work, first, n, src);
    }
    if (param->work->dtype == SW_BF16 && param->master) {
        int16_t *lo = (int16_t *)(e->scratch + SW_PIECE);
        for (int64_t i = 0; i < n; i++) {
            sw_master_split(src[i], (uint16_t *)work + i, &lo[i]);
        }
        SW_TRY(store(e, param->master, first, n, lo));
    } else {
        sw_convert(param->work->dtype, work, SW_F32, src, n);
        if (param->master) {
            SW_TRY(store(e, param->master, first, n, src));
        }
    }
    return store(e, param->work, first, n, work);
}

static sw_status get_piece(struct sw_engine *e, const struct engine_param *param, int64_t first,
                           int64_t n, float *out)
{
    if (param->master && param->master->dtype == SW_F32) {
        return fetch(e, param->master, first, n, out);
    }
    if (param->work->dtype == SW_F32) {
        return fetch(e, param->work, first, n, out);
    }
    uint16_t *hi = (uint16_t *)e->scratch;
    SW_TRY(fetch(e, param->work, first, n, hi));
    if (!param->master) {
        sw_convert(SW_F32, out, param->work->dtype, hi, n);
        return SW_OK;
    }
    int16_t *lo = (int16_t *)(e->scratch + SW_PIECE);
    SW_TRY(fetch(e, param->master, first, n, lo));
    for (int64_t i = 0; i < n; i++) {
        out[i] = sw_master_join(hi[i], lo[i]);
    }
    return SW_OK;
}

sw_status sw_engine_set_master(struct sw_engine *e, const struct engine_param *param, int64_t first,
                               int64_t n, const float *src)
{
    for (int64_t at = 0; at < n; at += SW_PIECE) {
        SW_TRY(set_piece(e, param, first + at, sw_min_i64(n - at, SW_PIECE), src + at));
    }
    return SW_OK;
}

sw_status sw_engine_get_master(struct sw_engine *e, const struct engine_param *param, int64_t first,
                               int64_t n, float *out)
{
    for (int64_t at = 0; at < n; at += SW_PIECE) {
        SW_TRY(get_piece(e, param, first + at, sw_min_i64(n - at, SW_PIECE), out + at));
    }
    return SW_OK;
}

static sw_status find_range(const struct sw_engine *e, const char *name, int64_t first, int64_t n,
                            const struct engine_param **out)
{
    const struct engine_param *param = sw_engine_find_param(e, name);
    if (!param) {
        return SW_FAIL(SW_E_ARG, "no parameter \"%s\" in this model", name);
    }
    const int64_t elems = sw_shape_elems(&param->work->layout.whole);
    if (first < 0 || n < 0 || first > elems - n) {
        return SW_FAIL(SW_E_ARG, "%s: elements %lld to %lld of %lld", name, (long long)first,
                       (long long)(first + n), (long long)elems);
    }
    *out = param;
    return SW_OK;
}

sw_status sw_get_weight(sw_engine *e, const char *name, int64_t first, int64_t n, float *out)
{
    const struct engine_param *param = NULL;
    SW_TRY(find_range(e, name, first, n, &param));
    return sw_engine_get_master(e, param, first, n, out);
}

sw_status sw_set_weight(sw_engine *e, const char *name, int64_t first, int64_t n, const float *src)
{
    const struct engine_param *param = NULL;
    SW_TRY(find_range(e, name, first, n, &param));
    return sw_engine_set_master(e, param, first, n, src);
}

int32_t sw_engine_n_tensors(const sw_engine *e)
{
    return e->params.n;
}

sw_status sw_engine_tensor(const sw_engine *e, int32_t i, const char **out_name,
                           struct sw_shape *out_shape)
{
    if (i < 0 || i >= e->params.n) {
        return SW_FAIL(SW_E_ARG, "tensor %d of %d", i, e->params.n);
    }
    *out_name = e->params.items[i].work->name;
    *out_shape = e->params.items[i].work->layout.whole;
    return SW_OK;
}

int64_t sw_engine_parameters(const sw_engine *e)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < e->params.n; i++) {
        sum += sw_shape_elems(&e->params.items[i].work->layout.whole);
    }
    return sum;
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

/* Row p, column j: the sine or cosine of p / 10000^(2 (j/2) / columns). */
static float sine(uint64_t columns, uint64_t i)
{
    const uint64_t j = i % columns;
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
        return sine(f->columns, i);
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

/* ---- the base of adapters ---- */

/* *out = NULL if the parameter is trained. */
static sw_status begin_digest(const struct sw_engine *e, const struct engine_param *param,
                              struct sw_digest **out)
{
    return sw_engine_keeps(e, param->work->name) ? SW_OK : sw_digest_open(out);
}

static void add_to_digest(struct sw_digest *digest, const float *piece, int64_t n)
{
    if (digest) {
        sw_digest_update(digest, piece, (size_t)n * sizeof *piece);
    }
}

static sw_status end_digest(struct sw_engine *e, struct engine_param *param,
                            struct sw_digest *digest, sw_status st)
{
    char text[33];
    if (digest && st >= 0) {
        sw_digest_hex(digest, text);
        param->digest = sw_arena_strdup(&e->params.names, text);
        st = param->digest ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a digest");
    }
    sw_digest_close(digest);
    return st;
}

static int64_t parameter_bytes(const struct engine_params *params)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < params->n; i++) {
        bytes += (int64_t)params->items[i].work->bytes;
    }
    return bytes;
}

static sw_status init_param(struct sw_engine *e, struct engine_param *param, struct sw_pool *pool,
                            float *piece)
{
    struct sw_digest *digest = NULL;
    sw_status st = begin_digest(e, param, &digest);
    const int64_t elems = sw_shape_elems(&param->work->layout.whole);
    struct fill f = {.init = &param->work->init,
                     .seed = e->seed,
                     .stream = sw_hash_str(SW_HASH_INIT, param->work->name),
                     .columns = (uint64_t)sw_shape_last(&param->work->layout.whole),
                     .dst = piece};
    for (int64_t at = 0; at < elems && st >= 0; at += SW_PIECE) {
        f.first = at;
        f.n = sw_min_i64(elems - at, SW_PIECE);
        sw_pool_run(pool, sw_ceil_div(f.n, FILL_RUN), fill_item, &f);
        add_to_digest(digest, piece, f.n);
        st = sw_engine_set_master(e, param, at, f.n, piece);
    }
    return end_digest(e, param, digest, st);
}

sw_status sw_engine_init_weights(struct sw_engine *e)
{
    float *piece = sw_alloc("engine", SW_PIECE * sizeof *piece);
    SW_TRY_ALLOC(piece, "initial weights");
    struct sw_pool *pool = NULL;
    int64_t done = 0;
    const int64_t all = parameter_bytes(&e->params);
    sw_status st = sw_pool_open((int)e->config->spillway.threads, &pool);
    for (int32_t i = 0; i < e->params.n && st >= 0; i++) {
        sw_work_at("drawing weights", done, all);
        st = init_param(e, &e->params.items[i], pool, piece);
        done += (int64_t)e->params.items[i].work->bytes;
    }
    sw_work_end();
    sw_pool_close(pool);
    sw_free(piece);
    return st;
}

/* ---- a Hugging Face folder ---- */

const struct sw_safetensor *sw_engine_find_in_folder(const struct sw_engine *e, const char *name)
{
    char buf[512];
    for (int i = 0;; i++) {
        const char *alias = e->model->ops->alias(e->model, name, i, buf, sizeof buf);
        const struct sw_safetensor *tensor =
            alias ? sw_hf_folder_find(e->source.weights, alias) : NULL;
        if (alias && !tensor) {
            continue;
        }
        const struct sw_model *m = e->model; /* a tied pair may be stored under either name */
        const bool is_tied = m->tied && m->lm_head_name && strcmp(name, m->embedding_name) == 0;
        return tensor || !is_tied ? tensor : sw_engine_find_in_folder(e, m->lm_head_name);
    }
}

static bool are_equal(const struct sw_safetensor *a, const struct sw_safetensor *b)
{
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

/* A folder may store one parameter under several names; the copies must be equal. */
static sw_status check_copies(const struct sw_engine *e, const char *name)
{
    const struct sw_safetensor *first = NULL;
    char buf[512];
    for (int i = 0;; i++) {
        const char *alias = e->model->ops->alias(e->model, name, i, buf, sizeof buf);
        const struct sw_safetensor *tensor =
            alias ? sw_hf_folder_find(e->source.weights, alias) : NULL;
        if (!alias) {
            return SW_OK;
        }
        if (!tensor || (first && e->model->ops->ignores(e->model, alias))) {
            continue;
        }
        SW_TRY(sw_safetensor_check(tensor));
        if (first && !are_equal(first, tensor)) {
            return SW_FAIL(SW_E_UNSUP,
                           "%s: tensors %s and %s differ; in this version both stand for %s",
                           e->source.folder, first->name, tensor->name, name);
        }
        first = first ? first : tensor;
    }
}

/* Reads the folder's tensor for a parameter that is stored under an alias. */
static sw_status read_alias(const struct sw_engine *e, const char *name,
                            const struct sw_safetensor **out)
{
    *out = sw_engine_find_in_folder(e, name);
    return *out ? sw_safetensor_check(*out) : SW_OK;
}

sw_status sw_engine_resolve_tie(struct sw_engine *e)
{
    const struct sw_safetensor *head = NULL, *table = NULL;
    const struct sw_model *m = e->model;
    if (!e->source.weights || !m->lm_head_name || !(m->tied || m->ties_absent_head)) {
        return SW_OK;
    }
    SW_TRY(read_alias(e, m->lm_head_name, &head));
    SW_TRY(read_alias(e, m->embedding_name, &table));
    if (!m->tied) {
        return head || !m->head_name ? SW_OK : sw_engine_tie(e, true);
    }
    return !head || !table || are_equal(head, table) ? SW_OK : sw_engine_tie(e, false);
}

static sw_status load_values(struct sw_engine *e, const struct engine_param *param,
                             const struct sw_safetensor *tensor, struct sw_digest *digest,
                             float *piece)
{
    const int64_t elems = sw_shape_elems(&tensor->shape);
    const size_t bytes = sw_dtype_bytes(tensor->dtype);
    for (int64_t at = 0; at < elems; at += SW_PIECE) {
        const int64_t n = sw_min_i64(elems - at, SW_PIECE);
        SW_TRY(sw_safetensor_check(tensor));
        sw_convert(SW_F32, piece, tensor->dtype, (const char *)tensor->data + (size_t)at * bytes,
                   n);
        add_to_digest(digest, piece, n);
        SW_TRY(sw_engine_set_master(e, param, at, n, piece));
    }
    return SW_OK;
}

sw_status sw_engine_check_floats(const struct sw_safetensor *tensor)
{
    if (tensor->dtype == SW_DTYPE_COUNT || !sw_dtype_is_float(tensor->dtype)) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s has dtype %s, wanted F32, F16, BF16 or F64",
                       tensor->file, tensor->name, tensor->dtype_name);
    }
    return SW_OK;
}

sw_status sw_engine_check_tensor(const struct engine_param *param,
                                 const struct sw_safetensor *tensor)
{
    const struct sw_shape *shape = &param->work->layout.whole;
    char have[96], want[96];
    SW_TRY(sw_engine_check_floats(tensor));
    if (!sw_shape_equal(shape, &tensor->shape)) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s has shape %s, the model wants %s", tensor->file,
                       tensor->name, sw_shape_format(&tensor->shape, have, sizeof have),
                       sw_shape_format(shape, want, sizeof want));
    }
    return SW_OK;
}

static sw_status load_param(struct sw_engine *e, struct engine_param *param,
                            const struct sw_safetensor *tensor, float *piece)
{
    SW_TRY(sw_engine_check_tensor(param, tensor));
    SW_TRY(check_copies(e, param->work->name));
    struct sw_digest *digest = NULL;
    sw_status st = begin_digest(e, param, &digest);
    st = st < 0 ? st : load_values(e, param, tensor, digest, piece);
    return end_digest(e, param, digest, st);
}

/* Warns about float tensors that match no parameter and that the family does not ignore. A task
 * without a head has no warnings: heads are expected to be left out. */
static void warn_unused(const struct sw_engine *e)
{
    if (e->model->task->n_losses == 0) {
        return;
    }
    for (int64_t i = 0; i < sw_hf_folder_count(e->source.weights); i++) {
        const struct sw_safetensor *tensor = sw_hf_folder_at(e->source.weights, i);
        bool used = e->model->ops->ignores(e->model, tensor->name);
        for (int32_t p = 0; p < e->params.n && !used; p++) {
            used = sw_engine_is_name_of(e, &e->params.items[p], tensor->name);
        }
        if (!used) {
            sw_log(SW_LOG_WARN, "%s: tensor %s is not part of this model and is left out",
                   e->source.folder, tensor->name);
        }
    }
}

const struct sw_safetensor *sw_engine_find_values(const struct sw_engine *e, const char *name)
{
    const struct sw_safetensor *tensor = sw_engine_find_in_folder(e, name);
    const bool other = !tensor && e->lora && e->lora->untied && e->model->head_name &&
                       strcmp(name, e->model->head_name) == 0;
    return other ? sw_engine_find_in_folder(e, e->model->embedding_name) : tensor;
}

/* True for a head with another number of classes: training then uses the folder's trunk only. */
static bool is_of_other_head(const struct sw_engine *e, const struct engine_param *param,
                             const struct sw_safetensor *tensor)
{
    const struct sw_shape *shape = &param->work->layout.whole;
    char have[96], want[96];
    if (!e->options.train.wanted || !sw_model_has_other_head(e->model, param->work->name) ||
        sw_shape_equal(shape, &tensor->shape)) {
        return false;
    }
    sw_log(SW_LOG_WARN,
           "%s: %s has shape %s, for other classes, the model wants %s; the new head "
           "starts at random",
           e->source.folder, tensor->name, sw_shape_format(&tensor->shape, have, sizeof have),
           sw_shape_format(shape, want, sizeof want));
    return true;
}

sw_status sw_engine_load_folder(struct sw_engine *e)
{
    float *piece = sw_alloc("engine", SW_PIECE * sizeof *piece);
    SW_TRY_ALLOC(piece, "reading weights");
    sw_status st = SW_OK;
    int64_t done = 0;
    const int64_t all = parameter_bytes(&e->params);
    for (int32_t i = 0; i < e->params.n && st >= 0; i++) {
        struct engine_param *param = &e->params.items[i];
        const struct sw_safetensor *tensor = sw_engine_find_values(e, param->work->name);
        sw_work_at("reading weights", done, all);
        done += (int64_t)param->work->bytes;
        if (sw_lora_is_adapter(param->work->name) ||
            (tensor && is_of_other_head(e, param, tensor))) {
            st = init_param(e, param, NULL, piece);
        } else if (tensor) {
            st = load_param(e, param, tensor, piece);
            param->file_name = sw_arena_strdup(&e->params.names, tensor->name);
            if (i == 0 && !e->lora) { /* adapters and their masters are f32 */
                e->source.dtype = tensor->dtype == SW_F64 ? SW_F32 : tensor->dtype;
            }
        } else if (sw_model_may_begin(e->model, param->work->name)) {
            if (!sw_engine_adapter_has(e, param->work->name)) {
                sw_log(SW_LOG_WARN, "%s: %s is not in the folder; the new head starts at random",
                       e->source.folder, param->work->name);
            }
            st = init_param(e, param, NULL, piece);
        } else {
            st = SW_FAIL(SW_E_FORMAT, "%s: tensor %s is missing", e->source.folder,
                         param->work->name);
        }
    }
    sw_work_end();
    if (st >= 0) {
        warn_unused(e);
    }
    sw_free(piece);
    return st;
}
