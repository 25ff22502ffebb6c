// SPDX-License-Identifier: Apache-2.0
// Checkpoints of an engine: decoded fp32 masters and the optimizer's moments by parameter name, with the
// plain values a run goes on from. What the placement or the dtype adds to a tensor never reaches a file.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "engine/engine.h"

/* What tensor i of a checkpoint is in this engine. */
struct source {
    const struct engine_param *param;  /* "master" */
    const struct sw_persistent *state; /* moments; NULL for a master */
};

struct tensors {
    struct sw_engine *engine;
    struct sw_ckpt_tensor *list;
    struct source *sources;
    int64_t n;
};

/* "exp_avg" of "exp_avg/transformer.wte.weight"; NULL for states that a checkpoint does not hold: parts
 * of a master, sums of a step under way, caches. */
static const char *state_kind(const struct sw_persistent *item, char *buf, size_t cap)
{
    static const char *const kinds[] = {"exp_avg", "exp_avg_sq", "momentum"};
    const char *slash = strchr(item->name, '/');
    if (item->role != SW_ROLE_STATE || !item->param || !slash) {
        return NULL;
    }
    snprintf(buf, cap, "%.*s", (int)(slash - item->name), item->name);
    for (size_t i = 0; i < SW_LEN(kinds); i++) {
        if (strcmp(kinds[i], buf) == 0) {
            return kinds[i];
        }
    }
    return NULL;
}

static void add(struct tensors *t, const char *param, const char *kind,
                const struct sw_shape *shape, struct source source)
{
    t->sources[t->n] = source;
    t->list[t->n++] = (struct sw_ckpt_tensor){
        .param = param, .kind = kind, .dtype = SW_F32, .shape = *shape, .box = sw_box_whole(shape)};
}

static void list_fini(struct tensors *t)
{
    sw_free(t->list);
    sw_free(t->sources);
}

static sw_status list_init(struct sw_engine *e, struct tensors *t)
{
    const size_t most = (size_t)e->plan->n_persistent + 1;
    *t = (struct tensors){.engine = e,
                          .list = sw_alloc_zero("engine", most, sizeof *t->list),
                          .sources = sw_alloc_zero("engine", most, sizeof *t->sources)};
    if (!t->list || !t->sources) {
        list_fini(t);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a checkpoint");
    }
    for (int32_t i = 0; i < e->n_params; i++) {
        const struct sw_persistent *work = e->params[i].work;
        add(t, work->name, "master", &work->shape, (struct source){.param = &e->params[i]});
    }
    for (int32_t i = 0; i < e->plan->n_persistent; i++) {
        const struct sw_persistent *item = &e->plan->persistent[i];
        char buf[64];
        const char *kind = state_kind(item, buf, sizeof buf);
        if (kind) {
            add(t, item->param, kind, &item->shape, (struct source){.state = item});
        }
    }
    return SW_OK;
}

/* ---- saving ---- */

static sw_status read_piece(void *ctx, int64_t i_tensor, int64_t first, int64_t n, void *dst)
{
    const struct tensors *t = ctx;
    const struct source *source = &t->sources[i_tensor];
    if (source->param) {
        return sw_engine_get_master(t->engine, source->param, first, n, dst);
    }
    return sw_executor_save(t->engine->executor, source->state, (size_t)first * sizeof(float), dst,
                            (size_t)n * sizeof(float));
}

/* What a checkpoint says of its run: the effective configuration, and the model's config.json, so that
 * a checkpoint can be exported by itself. */
static sw_status describe_run(const struct sw_engine *e, struct sw_json_doc **out)
{
    struct sw_str text = {0};
    struct sw_json_doc *config = NULL, *doc = NULL;
    sw_config_write_json(e->config, 0, &text);
    sw_status st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for the configuration")
                               : sw_json_parse("effective configuration", sw_str_text(&text),
                                               text.len, SW_JSON_STRICT, &config);
    sw_str_fini(&text);
    SW_TRY(st);
    st = sw_json_new("run", &doc);
    if (st >= 0) {
        struct sw_json *root = sw_json_root(doc);
        const struct sw_json *model = e->model_doc ? sw_json_root(e->model_doc) : NULL;
        if (!sw_json_put_copy(doc, root, "ds_config", sw_json_root(config)) ||
            (model && !sw_json_put_copy(doc, root, "model", model))) {
            sw_json_close(doc);
            st = SW_FAIL(SW_E_NOMEM, "out of host memory for the configuration");
        } else {
            *out = doc;
        }
    }
    sw_json_close(config);
    return st;
}

sw_status sw_save(sw_engine *e, const char *folder, const struct sw_save_options *options)
{
    if (e->failed || e->n_forward != 0) {
        return SW_FAIL(SW_E_ARG, "sw_save: a step is under way or failed half way");
    }
    struct sw_json_doc *config = NULL;
    struct tensors t;
    SW_TRY(describe_run(e, &config));
    sw_status st = list_init(e, &t);
    if (st >= 0) {
        const struct sw_ckpt_meta meta = {
            .step = e->step,
            .applied = e->applied,
            .samples = e->samples,
            .seed = e->seed,
            .val_loss = options ? options->val_loss : NAN,
            .fingerprint = e->plan->fingerprint,
            .kernel_set = sw_device_kernel_set(e->device),
            .scaler = {e->scaler.scale, e->scaler.iteration, e->scaler.last_overflow,
                       e->scaler.hysteresis_left},
            .config = sw_json_root(config),
        };
        const struct sw_ckpt_save_options save = {.dir = folder,
                                                  .keep_last = options ? options->keep_last : 0};
        st = sw_ckpt_save(&save, &meta, t.list, t.n, read_piece, &t);
        list_fini(&t);
    }
    sw_json_close(config);
    return st;
}

/* ---- loading ---- */

static sw_status load_tensor(struct tensors *t, int64_t i, struct sw_ckpt *ckpt, float *piece,
                             int64_t piece_elems)
{
    const struct sw_ckpt_tensor *tensor = &t->list[i];
    struct sw_engine *e = t->engine;
    const int64_t at = sw_ckpt_find(ckpt, tensor->param, tensor->kind);
    if (at < 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s of %s is missing", sw_ckpt_path(ckpt), tensor->kind,
                       tensor->param);
    }
    const struct sw_ckpt_entry *entry = sw_ckpt_entry(ckpt, at);
    if (!sw_shape_equal(&entry->shape, &tensor->shape)) {
        char have[96], want[96];
        return SW_FAIL(SW_E_FORMAT, "%s: %s of %s has shape %s, the model wants %s",
                       sw_ckpt_path(ckpt), tensor->kind, tensor->param,
                       sw_shape_format(&entry->shape, have, sizeof have),
                       sw_shape_format(&tensor->shape, want, sizeof want));
    }
    const int64_t elems = sw_shape_elems(&tensor->shape);
    for (int64_t first = 0; first < elems; first += piece_elems) {
        const int64_t n = sw_min_i64(elems - first, piece_elems);
        SW_TRY(sw_ckpt_read_flat(ckpt, at, first, n, SW_F32, piece));
        if (t->sources[i].param) {
            SW_TRY(sw_engine_set_master(e, t->sources[i].param, first, n, piece));
        } else {
            SW_TRY(sw_executor_load(e->executor, t->sources[i].state, (size_t)first * sizeof *piece,
                                    piece, (size_t)n * sizeof *piece));
        }
    }
    return SW_OK;
}

static sw_status check_math(const struct sw_engine *e, struct sw_ckpt *ckpt)
{
    const struct sw_ckpt_meta *meta = sw_ckpt_meta(ckpt);
    if (meta->fingerprint == e->plan->fingerprint) {
        return SW_OK;
    }
    const char *kernels = sw_device_kernel_set(e->device);
    if (e->config->spillway.allow_other_math) {
        sw_log(SW_LOG_WARN,
               "%s: written under other arithmetic (kernels %s, here %s); goes on because "
               "spillway.allow_other_math is set",
               sw_ckpt_path(ckpt), meta->kernel_set ? meta->kernel_set : "unknown", kernels);
        return SW_OK;
    }
    return SW_FAIL(SW_E_CONFIG,
                   "%s: its math fingerprint is %016llx and this run's %016llx: model, dtypes, "
                   "micro-batch, seed, optimizer or kernels differ (kernels then: %s, now: %s); "
                   "--set spillway.allow_other_math=true goes on all the same",
                   sw_ckpt_path(ckpt), (unsigned long long)meta->fingerprint,
                   (unsigned long long)e->plan->fingerprint,
                   meta->kernel_set ? meta->kernel_set : "unknown", kernels);
}

static sw_status load_all(struct sw_engine *e, struct sw_ckpt *ckpt)
{
    enum { PIECE = SW_CKPT_PIECE_BYTES / (int)sizeof(float) };
    struct tensors t;
    SW_TRY(check_math(e, ckpt));
    SW_TRY(list_init(e, &t));
    sw_status st = SW_OK;
    float *piece = sw_alloc("engine", PIECE * sizeof *piece);
    if (!piece) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a checkpoint");
    }
    e->failed = true; /* until all of it is there */
    for (int64_t i = 0; i < t.n && st >= 0; i++) {
        st = load_tensor(&t, i, ckpt, piece, PIECE);
    }
    sw_free(piece);
    list_fini(&t);
    SW_TRY(st);
    const struct sw_ckpt_meta *meta = sw_ckpt_meta(ckpt);
    e->failed = false;
    e->n_forward = e->n_backward = 0;
    e->step = meta->step;
    e->applied = meta->applied;
    e->samples = meta->samples;
    e->scaler.scale = meta->scaler.scale;
    e->scaler.iteration = meta->scaler.iteration;
    e->scaler.last_overflow = meta->scaler.last_overflow;
    e->scaler.hysteresis_left = meta->scaler.hysteresis_left;
    return SW_OK;
}

sw_status sw_load(sw_engine *e, const char *folder)
{
    struct sw_ckpt *ckpt = NULL;
    const sw_status found = sw_ckpt_open(folder, &ckpt);
    if (found != SW_OK) {
        return found; /* SW_PENDING: there is none */
    }
    const sw_status st = load_all(e, ckpt);
    sw_ckpt_close(ckpt);
    return st;
}
