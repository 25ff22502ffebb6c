// SPDX-License-Identifier: Apache-2.0
// Checkpoints: decoded fp32 masters, the optimizer's moments by parameter name, and
// the scalar state that a run resumes from. The form of a tensor in a file does not depend on its
// placement or dtype in memory.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "weights/private.h"

/* One tensor of a checkpoint, and what holds it here. */
struct item {
    const struct sw_parameter *param; /* "master"; NULL for moments */
    /* the moments, or the working copy that belongs to a master */
    const struct sw_persistent *held;
    const char *name, *kind;
};

struct tensors {
    struct sw_weights *weights;
    struct item *items;
    int64_t n_items;
    /* boxes that this rank writes, of all items */
    struct sw_ckpt_tensor *boxes;
    int64_t *i_item, *flat; /* [n_boxes] index of the item, and first element of the box */
    int64_t n_boxes;
};

/* False for states that are not in checkpoints: parts of a master, sums of the current step,
 * caches. */
static bool is_saved(const struct sw_persistent *item)
{
    return sw_state_infos[item->state].purpose == SW_STATE_SAVED;
}

/* Dtype in the file: 8-bit codes stay as they are, all else is f32. */
static enum sw_dtype dtype_of(const struct item *item)
{
    return !item->param && item->held->dtype == SW_U8 ? SW_U8 : SW_F32;
}

static void list_fini(struct tensors *t)
{
    sw_free(t->items);
    sw_free(t->boxes);
    sw_free(t->i_item);
    sw_free(t->flat);
}

/* True if the box `next` lies below `box`: along the first dimension it follows, and all others are
 * equal. */
static bool is_below(int rank, const struct sw_box *box, const struct sw_box *next)
{
    bool is = rank > 1 && next->start[0] == box->start[0] + box->dims[0];
    for (int d = 1; d < rank; d++) {
        is = is && next->start[d] == box->start[d] && next->dims[d] == box->dims[d];
    }
    return is;
}

/* Adds a box to one of the boxes from `first` to `at` that it lies below; false = there is none. If
 * the tensor axis cuts columns, each row would else be a box for each group of the split. */
static bool join_box(struct tensors *t, const struct sw_layout *layout, const struct sw_box *box,
                     int64_t first, int64_t at)
{
    const int64_t last = at - sw_max_i64(layout->split.n_groups, 1);
    for (int64_t k = at - 1; layout->tensor.size > 1 && k >= first && k >= last; k--) {
        if (is_below(layout->whole.rank, &t->boxes[k].box, box)) {
            t->boxes[k].box.dims[0] += box->dims[0];
            return true;
        }
    }
    return false;
}

/* Lists the boxes of item i that this rank writes. With t->boxes NULL, counts them before they are
 * joined. */
static int64_t cut_item(struct tensors *t, int64_t i, int64_t at)
{
    const struct item *item = &t->items[i];
    const struct sw_shape *whole = &item->held->layout.whole;
    const int64_t first = at;
    struct sw_run_iter iter;
    struct sw_run run;
    sw_owned_begin(&item->held->layout, &iter);
    while (sw_runs_next(&iter, &run)) {
        struct sw_box boxes[SW_BOX_MAX_OF_RANGE];
        const int n_boxes = sw_box_of_range(whole, run.first, run.n, boxes);
        int64_t flat = run.first;
        for (int k = 0; k < n_boxes; k++) {
            if (!t->boxes) {
                at++;
            } else if (!join_box(t, &item->held->layout, &boxes[k], first, at)) {
                t->i_item[at] = i;
                t->flat[at] = flat;
                t->boxes[at] = (struct sw_ckpt_tensor){.param = item->name,
                                                       .kind = item->kind,
                                                       .dtype = dtype_of(item),
                                                       .shape = *whole,
                                                       .box = boxes[k]};
                at++;
            }
            flat += sw_box_elems(whole->rank, &boxes[k]);
        }
    }
    return at;
}

static int64_t cut_items(struct tensors *t)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t->n_items; i++) {
        n = cut_item(t, i, n);
    }
    return n;
}

static void list_items(const struct sw_weights *w, struct tensors *t)
{
    for (int32_t i = 0; i < w->params.n; i++) {
        const struct sw_parameter *param = &w->params.items[i];
        if (sw_weights_keeps(w, param->work->name)) {
            t->items[t->n_items++] = (struct item){param, param->work, param->work->name,
                                                   sw_state_infos[SW_STATE_MASTER].name};
        }
    }
    for (int32_t i = 0; i < w->plan->n_persistent; i++) {
        const struct sw_persistent *state = &w->plan->persistent[i];
        if (is_saved(state)) {
            t->items[t->n_items++] =
                (struct item){NULL, state, state->param, sw_state_infos[state->state].name};
        }
    }
}

static sw_status list_init(struct sw_weights *w, struct tensors *t)
{
    *t = (struct tensors){.weights = w};
    t->items = sw_alloc_zero("engine", (size_t)w->plan->n_persistent + 1, sizeof *t->items);
    SW_TRY_ALLOC(t->items, "a checkpoint");
    list_items(w, t);
    const size_t n = (size_t)cut_items(t) + 1;
    t->i_item = sw_alloc_zero("engine", n, sizeof *t->i_item);
    t->flat = sw_alloc_zero("engine", n, sizeof *t->flat);
    t->boxes = sw_alloc_zero("engine", n, sizeof *t->boxes);
    if (!t->boxes || !t->i_item || !t->flat) {
        list_fini(t);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a checkpoint");
    }
    t->n_boxes = cut_items(t);
    return SW_OK;
}

/* ---- saving ---- */

/* Elements [at, at + n) of the flattened tensor. */
static sw_status read_range(const struct tensors *t, const struct item *item, int64_t at, int64_t n,
                            void *dst)
{
    return item->param ? sw_weights_get(t->weights, item->param, at, n, dst)
                       : sw_weights_fetch_state(t->weights, item->held, at, n, dst);
}

/* Elements [first, first + n) of a box. Each index along its first dimension is one range. */
static sw_status read_box(const struct tensors *t, int64_t i_box, int64_t first, int64_t n,
                          void *dst)
{
    const struct item *item = &t->items[t->i_item[i_box]];
    const struct sw_ckpt_tensor *of = &t->boxes[i_box];
    const int rank = of->shape.rank;
    int64_t width = sw_box_elems(rank, &of->box), stride = sw_shape_elems(&of->shape);
    sw_work_at("saving a checkpoint", i_box, t->n_boxes);
    if (rank > 0) {
        width /= of->box.dims[0];
        stride /= of->shape.dims[0];
    }
    if (width == stride) { /* all of it is one range */
        return read_range(t, item, t->flat[i_box] + first, n, dst);
    }
    for (int64_t done = 0, some = 0; done < n; done += some) {
        const int64_t row = (first + done) / width, column = (first + done) % width;
        some = sw_min_i64(n - done, width - column);
        SW_TRY(read_range(t, item, t->flat[i_box] + row * stride + column, some,
                          (char *)dst + (size_t)done * sw_dtype_bytes(of->dtype)));
    }
    return SW_OK;
}

static bool all_finite(const float *values, int64_t n)
{
    const uint32_t exponent = 0x7f800000;
    bool good = true;
    for (int64_t i = 0; i < n; i++) { /* without a branch, so that it is a vector loop */
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        good &= (bits & exponent) != exponent;
    }
    return good;
}

/* A checkpoint with a trained weight that is NaN or infinite is of no use, and would take the place
 * of older ones. Frozen weights are as the model has them. */
static sw_status read_piece(void *ctx, int64_t i_box, int64_t first, int64_t n, void *dst)
{
    const struct tensors *t = ctx;
    const struct item *item = &t->items[t->i_item[i_box]];
    SW_TRY(read_box(t, i_box, first, n, dst));
    if (item->param && !sw_config_is_frozen(t->weights->config, item->name) &&
        !all_finite(dst, n)) {
        return SW_FAIL(SW_E_ARG,
                       "weight %s has a value that is NaN or infinite, so no checkpoint is written",
                       item->name);
    }
    return SW_OK;
}

/* The worst status of all ranks; on one rank: st. */
static sw_status agree(const struct sw_weights_run *run, sw_status st, const char *what)
{
    return run->ranks == 1 ? st : sw_comm_agree(run->comm, st, what);
}

/* Rank 0 begins and commits; in between, every rank writes its own part. The ranks agree after each
 * turn, so that none continues alone. */
static sw_status write_parts(const struct sw_weights_run *run, const char *folder,
                             const struct sw_ckpt_save_options *save,
                             const struct sw_ckpt_meta *meta, struct tensors *t)
{
    if (run->ranks == 1) {
        const sw_status alone = sw_ckpt_save(save, meta, t->boxes, t->n_boxes, read_piece, t);
        sw_work_end();
        return alone;
    }
    const bool leads = run->rank == 0;
    uint64_t token = 0;
    SW_TRY(agree(run, leads ? sw_ckpt_begin(save->lock, meta->step, &token) : SW_OK,
                 "beginning a checkpoint"));
    sw_status st =
        sw_comm_broadcast(run->comm, 0, &token, sizeof token, "the name of a checkpoint");
    if (st >= 0) {
        st = agree(run,
                   sw_ckpt_write_part(folder, meta->step, token, run->rank, t->boxes, t->n_boxes,
                                      read_piece, t),
                   "writing a checkpoint");
    }
    sw_work_end();
    if (st >= 0) {
        st = agree(run, leads ? sw_ckpt_commit(save, meta, token, run->ranks) : SW_OK,
                   "committing a checkpoint");
    }
    if (st < 0 && leads) {
        sw_ckpt_drop(save->lock, meta->step, token);
    }
    return st;
}

/* Describes the model's original folder, which an export should match: its dtype and its names of
 * tensors. */
static bool put_export(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *root)
{
    struct sw_json *as = sw_json_put(doc, root, "export", SW_JSON_OBJECT);
    struct sw_json *names = as ? sw_json_put(doc, as, "names", SW_JSON_OBJECT) : NULL;
    bool good = names && sw_json_put_str(doc, as, "dtype", sw_dtype_name(w->source.dtype));
    for (int32_t i = 0; good && i < w->params.n; i++) {
        const struct sw_parameter *param = &w->params.items[i];
        if (param->file_name && strcmp(param->file_name, param->work->name) != 0) {
            good = sw_json_put_str(doc, names, param->work->name, param->file_name) != NULL;
        }
    }
    return good;
}

/* A training run holds the folder's lock from the start. Otherwise the lock is held for this save
 * only. */
static sw_status hold_and_write(const struct sw_weights_run *run, const char *folder, int keep_last,
                                const struct sw_ckpt_meta *meta, struct tensors *t)
{
    struct sw_ckpt_lock *own = NULL;
    const bool held =
        run->training->lock && strcmp(sw_ckpt_lock_dir(run->training->lock), folder) == 0;
    sw_status st = run->rank == 0 && !held ? sw_ckpt_acquire(folder, SW_CKPT_WAIT_S, &own) : SW_OK;
    st = agree(run, st, "holding the folder of checkpoints");
    if (st >= 0) {
        const struct sw_ckpt_save_options save = {.lock = own ? own : run->training->lock,
                                                  .keep_last = keep_last};
        st = write_parts(run, folder, &save, meta, t);
    }
    sw_ckpt_release(own);
    return st;
}

/* Describes the run for a checkpoint: the effective configuration, and the model's config.json.
 * With it a checkpoint can be exported by itself. */
sw_status sw_weights_describe_run(const struct sw_weights *w, int64_t tokens,
                                  struct sw_json_doc **out)
{
    struct sw_str text = {0};
    struct sw_json_doc *config = NULL, *doc = NULL;
    sw_config_write_json(w->config, 0, &text);
    sw_status st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for the configuration")
                               : sw_json_parse("effective configuration", sw_str_text(&text),
                                               text.len, SW_JSON_STRICT, &config);
    sw_str_fini(&text);
    SW_TRY(st);
    st = sw_json_new("run", &doc);
    if (st >= 0) {
        struct sw_json *root = sw_json_root(doc);
        const struct sw_json *model = w->source.doc ? sw_json_root(w->source.doc) : NULL;
        if (!sw_json_put_copy(doc, root, "ds_config", sw_json_root(config)) ||
            (model && !sw_json_put_copy(doc, root, "model", model)) ||
            (model && !sw_json_put_i64(doc, root, "seq_len", tokens)) ||
            (model && !put_export(w, doc, root)) || !sw_weights_put_lora(w, doc, root)) {
            sw_json_close(doc);
            st = SW_FAIL(SW_E_NOMEM, "out of host memory for the configuration");
        } else {
            *out = doc;
        }
    }
    sw_json_close(config);
    return st;
}

sw_status sw_weights_save(struct sw_weights *w, const struct sw_weights_run *run,
                          const char *folder, const struct sw_save_options *options)
{
    struct sw_json_doc *config = NULL;
    struct sw_str algorithms = {0};
    struct tensors t;
    SW_TRY(sw_weights_describe_run(w, run->tokens, &config));
    sw_device_algorithms(run->device, &algorithms);
    sw_status st = algorithms.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a checkpoint")
                                     : list_init(w, &t);
    if (st >= 0) {
        const struct sw_ckpt_meta meta = {
            .step = run->step,
            .applied = run->applied,
            .samples = run->samples,
            .seed = w->seed,
            .val_loss = options ? options->val_loss : NAN,
            .metric = {.name = options ? options->metric : NULL,
                       .value = options ? options->metric_value : NAN,
                       .falls = options && options->metric_falls},
            .fingerprint = w->plan->fingerprint,
            .kernel_set = sw_device_kernel_set(run->device),
            .algorithms = algorithms.ptr,
            .scaler = {run->scaler.scale, run->scaler.iteration, run->scaler.last_overflow,
                       run->scaler.hysteresis_left},
            .config = sw_json_root(config),
            .data = run->training->data,
            .training = run->training->state,
        };
        st = hold_and_write(run, folder, options ? options->keep_last : 0, &meta, &t);
        list_fini(&t);
    }
    sw_str_fini(&algorithms);
    sw_json_close(config);
    return st;
}

/* Counts masters and moments in fp32, and codes. Headers and the manifest are negligible.
 * Parameters of other stages count with as many states as those of this one. */
int64_t sw_weights_checkpoint_bytes(const struct sw_weights *w)
{
    int64_t elems = 0, absent = 0, states = 0;
    for (int32_t i = 0; i < w->params.n; i++) {
        const struct sw_persistent *work = w->params.items[i].work;
        const int64_t n = sw_weights_keeps(w, work->name) ? sw_shape_elems(&work->layout.whole) : 0;
        elems += n;
        absent += work->layout.is_absent ? n : 0;
    }
    for (int32_t i = 0; i < w->plan->n_persistent; i++) {
        const struct sw_persistent *state = &w->plan->persistent[i];
        const int64_t size = state->dtype == SW_U8 ? 1 : (int64_t)sizeof(float);
        states += is_saved(state) ? size * sw_shape_elems(&state->layout.whole) : 0;
    }
    if (absent > 0 && elems > absent) {
        states = (int64_t)((double)states * (double)elems / (double)(elems - absent));
    }
    return elems * (int64_t)sizeof(float) + states;
}

/* ---- loading ---- */

static sw_status load_item(struct sw_weights *w, const struct item *item, struct sw_ckpt *ckpt,
                           void *piece, int64_t piece_elems)
{
    const int64_t at = sw_ckpt_find(ckpt, item->name, item->kind);
    if (at < 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s of %s is missing", sw_ckpt_path(ckpt), item->kind,
                       item->name);
    }
    const struct sw_ckpt_entry *entry = sw_ckpt_entry(ckpt, at);
    if (!sw_shape_equal(&entry->shape, &item->held->layout.whole)) {
        char have[96], want[96];
        return SW_FAIL(SW_E_FORMAT, "%s: %s of %s has shape %s, the model wants %s",
                       sw_ckpt_path(ckpt), item->kind, item->name,
                       sw_shape_format(&entry->shape, have, sizeof have),
                       sw_shape_format(&item->held->layout.whole, want, sizeof want));
    }
    if ((entry->dtype == SW_U8) != (dtype_of(item) == SW_U8)) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: %s of %s is %s, wanted %s: it was saved with another spillway.moments",
                       sw_ckpt_path(ckpt), item->kind, item->name, sw_dtype_name(entry->dtype),
                       sw_dtype_name(dtype_of(item)));
    }
    struct sw_run_iter iter;
    struct sw_run run;
    sw_runs_begin(&item->held->layout, &iter);
    while (sw_runs_next(&iter, &run)) {
        for (int64_t first = run.first; first < run.first + run.n; first += piece_elems) {
            const int64_t n = sw_min_i64(run.first + run.n - first, piece_elems);
            SW_TRY(sw_ckpt_read_flat(ckpt, at, first, n, dtype_of(item), piece));
            SW_TRY(item->param ? sw_weights_set(w, item->param, first, n, piece)
                               : sw_weights_store_state(w, item->held, first, n, piece));
        }
    }
    return SW_OK;
}

int sw_weights_saved_size(const struct sw_ckpt *ckpt, const char *axis)
{
    const struct sw_json *run = sw_ckpt_meta(ckpt)->config;
    const struct sw_json *mesh = run ? sw_json_path(run, "ds_config.spillway.mesh") : NULL;
    const struct sw_json *size =
        mesh && mesh->type == SW_JSON_OBJECT ? sw_json_get(mesh, axis) : NULL;
    return size && size->type == SW_JSON_INT && size->integer > 0 && size->integer <= INT_MAX
               ? (int)size->integer
               : 1;
}

/* 8-bit moments: the codes and the scales of the item's parameter and moment; NULL = it is
 * neither. */
struct coded {
    const struct sw_persistent *codes, *scales;
};

static struct coded coded_of(const struct tensors *t, const struct item *item)
{
    const struct sw_persistent *mine = item->held;
    struct coded out = {NULL, NULL};
    enum sw_codes kind;
    for (int64_t i = 0; !item->param && i < t->n_items; i++) {
        const struct sw_persistent *other = t->items[i].held;
        if (t->items[i].param || strcmp(t->items[i].name, item->name) != 0) {
            continue;
        }
        if (mine->dtype == SW_U8 && other->state == sw_state_scales(mine->state, &kind)) {
            out = (struct coded){mine, other};
        } else if (other->dtype == SW_U8 && mine->state == sw_state_scales(other->state, &kind)) {
            out = (struct coded){other, mine};
        }
    }
    return out;
}

/* Number of parts in which so many ranks of the tensor axis have the codes. */
static int count_parts(const struct sw_persistent *codes, int ranks)
{
    const struct sw_layout layout = {
        .whole = codes->layout.whole, .split = codes->layout.split, .tensor.size = ranks};
    return sw_layout_parts(&layout);
}

/* Loads item i. If runs of the checkpoint's parts are others, codes are encoded again, and scales
 * come with them. */
static sw_status load_one(struct sw_weights *w, const struct tensors *t, int64_t i,
                          struct sw_ckpt *ckpt, float *piece, int64_t piece_elems)
{
    const struct item *item = &t->items[i];
    const struct coded coded = coded_of(t, item);
    const int ranks = sw_weights_saved_size(ckpt, "tensor");
    const int64_t at =
        coded.codes ? sw_ckpt_find(ckpt, item->name, sw_state_infos[coded.codes->state].name) : -1;
    if (at < 0 || sw_ckpt_entry(ckpt, at)->dtype != SW_U8 ||
        count_parts(coded.codes, ranks) ==
            count_parts(coded.codes, (int)sw_max_i64(w->config->parallel.tensor, 1))) {
        return load_item(w, item, ckpt, piece, piece_elems);
    }
    return item->held == coded.codes ? sw_weights_recode(w, ckpt, coded.codes, coded.scales, ranks)
                                     : SW_OK;
}

static sw_status load_tensors(struct sw_weights *w, struct sw_ckpt *ckpt)
{
    enum { PIECE = SW_CKPT_PIECE_BYTES / (int)sizeof(float) };
    struct tensors t;
    SW_TRY(list_init(w, &t));
    sw_status st = SW_OK;
    float *piece = sw_alloc("engine", PIECE * sizeof *piece);
    if (!piece) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a checkpoint");
    }
    for (int64_t i = 0; i < t.n_items && st >= 0; i++) {
        sw_work_at("loading a checkpoint", i, t.n_items);
        st = load_one(w, &t, i, ckpt, piece, PIECE);
    }
    sw_work_end();
    sw_free(piece);
    list_fini(&t);
    return st;
}

/* Each file is read a second time for its digest, by one rank, in parallel with the load. */
static sw_status load_and_verify(struct sw_weights *w, const struct sw_weights_run *run,
                                 struct sw_ckpt *ckpt)
{
    struct sw_ckpt_verification *v = NULL;
    if (!w->options->run.load_unverified) {
        SW_TRY(sw_ckpt_verify_begin(ckpt, run->rank, run->ranks, &v));
    }
    const sw_status st = load_tensors(w, ckpt);
    const sw_status good = sw_ckpt_verify_wait(v, st < 0);
    if (st >= 0 && good < 0) {
        return SW_FAIL(good, "%s; --no-verify (run.load_unverified) loads it anyway",
                       sw_error_message());
    }
    return st;
}

/* True if the run that saved the checkpoint had a dynamic loss scale. A checkpoint without a
 * configuration is taken to be of this one. */
static bool was_dynamic(const struct sw_ckpt_meta *meta, const struct sw_fp16_config *fp16)
{
    if (!meta->config) {
        return fp16->enabled && fp16->loss_scale == 0;
    }
    const struct sw_json *enabled = sw_json_path(meta->config, "ds_config.fp16.enabled");
    const struct sw_json *scale = sw_json_path(meta->config, "ds_config.fp16.loss_scale");
    return enabled && enabled->type == SW_JSON_BOOL && enabled->boolean &&
           (!scale || scale->number == 0);
}

static void take_over(const struct sw_weights *w, const struct sw_ckpt_meta *meta,
                      struct sw_weights_run *run)
{
    const struct sw_fp16_config *fp16 = &w->config->fp16;
    const struct sw_scaler saved = {.scale = meta->scaler.scale,
                                    .iteration = meta->scaler.iteration,
                                    .last_overflow = meta->scaler.last_overflow,
                                    .hysteresis_left = meta->scaler.hysteresis_left};
    run->step = meta->step;
    run->applied = meta->applied;
    run->samples = meta->samples;
    sw_scaler_resume(&run->scaler, fp16, &saved, was_dynamic(meta, fp16));
    if (run->scaler.scale != saved.scale) {
        sw_log(run->rank == 0 ? SW_LOG_WARN : SW_LOG_DEBUG,
               "the loss scale is %g, as configured (fp16); that of the checkpoint was %g",
               run->scaler.scale, saved.scale);
    }
}

/* ---- choosing the checkpoint on several ranks ---- */

static sw_status compare_identities(const struct sw_weights_run *run, const struct sw_ckpt *ckpt)
{
    const struct sw_ckpt_identity mine = sw_ckpt_identity(ckpt);
    struct sw_ckpt_identity *all = sw_alloc("engine", (size_t)run->ranks * sizeof *all);
    sw_status st = agree(run, all ? SW_OK : SW_E_NOMEM, "comparing checkpoints");
    if (st >= 0) {
        st = sw_comm_all_gather(run->comm, &mine, all, sizeof mine, "the identity of a checkpoint");
    }
    for (int r = 1; st >= 0 && r < run->ranks; r++) {
        const struct sw_ckpt_identity *a = &all[0], *b = &all[r];
        if (memcmp(a, b, sizeof *a) != 0) {
            st = SW_FAIL(SW_E_PEER,
                         "%s: rank %d sees another checkpoint than rank 0: save %lld, "
                         "step %lld, %lld samples, manifest %016llx; rank 0 has save "
                         "%lld, step %lld, %lld samples, manifest %016llx; give all "
                         "ranks the same folder",
                         sw_ckpt_path(ckpt), r, (long long)b->serial, (long long)b->step,
                         (long long)b->samples, (unsigned long long)b->manifest,
                         (long long)a->serial, (long long)a->step, (long long)a->samples,
                         (unsigned long long)a->manifest);
        }
    }
    sw_free(all);
    return st;
}

struct choice {
    int64_t found; /* sw_status on rank 0 */
    char name[NAME_MAX + 1];
};

/* Opens the checkpoint that rank 0 chose. */
static sw_status follow(const struct sw_weights_run *run, const char *folder,
                        const struct choice *choice, struct sw_ckpt **out)
{
    if (run->rank == 0) {
        return SW_OK;
    }
    if (strchr(choice->name, '/')) {
        return SW_FAIL(SW_E_PEER, "rank 0 chose a checkpoint in another folder");
    }
    const sw_status st = sw_ckpt_open_named(folder, choice->name, out);
    return st < 0 ? sw_fail_prefix(st, "rank 0 chose %s", choice->name) : st;
}

/* Collective. Rank 0 chooses, because ranks may see different files while files come and go.
 * SW_PENDING: there is no checkpoint; the same on all ranks. *out may be set even on failure. */
static sw_status open_chosen(const struct sw_weights_run *run, const char *folder,
                             struct sw_ckpt **out)
{
    struct choice choice = {0};
    if (run->rank == 0) {
        const sw_status found = sw_ckpt_open(folder, out);
        if (run->ranks == 1) {
            return found;
        }
        choice.found = found;
        snprintf(choice.name, sizeof choice.name, "%s", found == SW_OK ? sw_ckpt_name(*out) : "");
    }
    SW_TRY(agree(run, choice.found < 0 ? (sw_status)choice.found : SW_OK, "choosing a checkpoint"));
    SW_TRY(sw_comm_broadcast(run->comm, 0, &choice, sizeof choice, "the choice of a checkpoint"));
    choice.name[NAME_MAX] = '\0';
    if (choice.found != SW_OK) {
        return SW_PENDING;
    }
    SW_TRY(agree(run, follow(run, folder, &choice, out), "opening a checkpoint"));
    return compare_identities(run, *out);
}

sw_status sw_weights_load(struct sw_weights *w, struct sw_weights_run *run, const char *folder,
                          bool *out_begun)
{
    struct sw_ckpt *ckpt = NULL;
    *out_begun = false;
    sw_status st = open_chosen(run, folder, &ckpt);
    if (st == SW_OK) {
        st = agree(run, sw_weights_check_resume(w, run, ckpt),
                   "comparing a checkpoint with this run");
        if (st >= 0) {
            *out_begun = true;
            sw_executor_forget_due(w->executor);
            st = agree(run, load_and_verify(w, run, ckpt), "loading a checkpoint");
        }
        if (st >= 0) {
            take_over(w, sw_ckpt_meta(ckpt), run);
        }
    }
    sw_ckpt_close(ckpt);
    return st;
}
