// SPDX-License-Identifier: Apache-2.0
// Model cases: logits, hidden states, loss and gradients of one batch; optimizer steps over
// recorded batches; greedy generation.
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "check/private.h"

/* ---- forward and backward ---- */

/* Largest absolute difference. Rows of masked tokens are left out. */
static double largest(const float *ours, const struct sw_safetensor *ref,
                      const struct sw_safetensor *mask)
{
    const int64_t n = sw_check_elems(ref), n_masked = mask ? sw_check_elems(mask) : 0;
    const int64_t width = n_masked > 0 && n % n_masked == 0 ? n / n_masked : 0;
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        if (width > 0 && sw_check_value(mask, i / width) == 0) {
            continue;
        }
        worst = sw_check_worse(worst, fabs(ours[i] - sw_check_value(ref, i)));
    }
    return worst;
}

/* by_token: the output has a row for each token of the input. */
static sw_status check_output(struct check *c, sw_engine *e, const char *output,
                              const struct sw_safetensor *ref, bool by_token, double tolerance)
{
    const int64_t elems = sw_engine_output_elems(e, output);
    if (elems != sw_check_elems(ref)) {
        sw_check_fail(c, ref->name, elems < 0 ? "the model has no such output" : "another shape");
        return SW_OK;
    }
    float *ours = sw_alloc("check", (size_t)sw_check_elems(ref) * sizeof *ours);
    SW_TRY_ALLOC(ours, "outputs");
    const sw_status st = sw_engine_output(e, output, ours);
    if (st >= 0) {
        const struct sw_safetensor *mask = sw_check_tensor(c, "input.attention_mask");
        mask = mask ? mask : sw_check_tensor(c, "input.segment_ids"); /* 0 is padding in both */
        sw_check_row(c, ref->name, largest(ours, ref, by_token ? mask : NULL), tolerance, NULL);
    }
    sw_free(ours);
    return st;
}

static sw_status check_hidden(struct check *c, sw_engine *e)
{
    static const char *const kinds[] = {"output.hidden.", "output.encoder_hidden.",
                                        "output.decoder_hidden."};
    for (int64_t i = 0; i < sw_safetensors_count(c->ref); i++) {
        const struct sw_safetensor *ref = sw_safetensors_at(c->ref, i);
        for (size_t k = 0; k < SW_LEN(kinds); k++) {
            if (strncmp(ref->name, kinds[k], strlen(kinds[k])) == 0) {
                sw_check_tensor(c, "%s", ref->name);
                SW_TRY(check_output(c, e, ref->name + strlen("output."), ref, k < 2,
                                    sw_check_number(c, "tolerance.hidden_abs", 1e-5)));
            }
        }
    }
    return SW_OK;
}

/* Scores of routers and their load-balancing loss. */
static sw_status check_routers(struct check *c, sw_engine *e)
{
    static const char logits[] = "aux.router_logits.";
    const struct sw_safetensor *loss = sw_check_tensor(c, "output.aux_loss");
    for (int64_t i = 0; i < sw_safetensors_count(c->ref); i++) {
        const struct sw_safetensor *ref = sw_safetensors_at(c->ref, i);
        if (strncmp(ref->name, logits, sizeof logits - 1) == 0) {
            sw_check_tensor(c, "%s", ref->name);
            SW_TRY(check_output(c, e, ref->name + strlen("aux."), ref, true,
                                sw_check_number(c, "tolerance.router_logits_abs", 1e-5)));
        }
    }
    if (loss) {
        SW_TRY(check_output(c, e, "aux_loss", loss, false,
                            sw_check_number(c, "tolerance.aux_loss_rel", 1e-6) *
                                fabs(sw_check_value(loss, 0))));
    }
    return SW_OK;
}

/* True if the output for this loss has one row or one number per token. */
static bool is_by_token(const struct sw_task *task, const struct sw_task_loss *loss)
{
    const struct sw_task_input *labels = sw_task_input_of(task, loss->labels);
    return loss->kind == SW_LOSS_PLACE || (labels->rank > 1 && labels->dims[1] == SW_DIM_TOKENS);
}

static sw_status check_forward(struct check *c, sw_engine *e, const struct check_batch *given)
{
    SW_TRY(sw_logits(e, &given->batch, NULL));
    SW_TRY(check_hidden(c, e));
    SW_TRY(check_routers(c, e));
    SW_TRY(sw_check_tables(c, e));
    for (int i = 0; i < c->task->n_losses; i++) {
        const struct sw_task_loss *loss = &c->task->losses[i];
        const struct sw_safetensor *ref =
            sw_check_tensor(c, "output.%s", loss->recorded ? loss->recorded : loss->output);
        if (ref) {
            SW_TRY(check_output(c, e, loss->output, ref, is_by_token(c->task, loss),
                                sw_check_number(c, "tolerance.logits_abs", 1e-5)));
        }
    }
    return SW_OK;
}

/* Looks up a parameter by its name in a model's file or in an adapter's. */
static const struct sw_parameter *param_of(const sw_engine *e, const char *name)
{
    static const char adapted[] = "base_model.model.";
    const size_t n = sizeof adapted - 1;
    static const char wrapped[] = ".base_layer.bias"; /* of a layer with an adapter */
    char plain[600];
    name += sw_engine_facts(e).lora && strncmp(name, adapted, n) == 0 ? n : 0;
    const char *end = sw_engine_facts(e).lora ? strstr(name, wrapped) : NULL;
    if (end) {
        snprintf(plain, sizeof plain, "%.*s.bias", (int)(end - name), name);
        name = plain;
    }
    return sw_weights_of_file(sw_engine_facts(e).weights, name);
}

static bool listed(const struct check *c, const char *list, const char *name)
{
    const struct sw_json *items = sw_json_get(sw_json_root(c->doc), list);
    for (const struct sw_json *i = items ? items->first : NULL; i; i = i->next) {
        if (i->type == SW_JSON_STRING && strcmp(i->string, name) == 0) {
            return true;
        }
    }
    return false;
}

static double largest_value(const struct sw_safetensor *tensor)
{
    double most = 0;
    for (int64_t i = 0; i < sw_check_elems(tensor); i++) {
        most = fmax(most, fabs(sw_check_value(tensor, i)));
    }
    return most;
}

static sw_status check_gradient(struct check *c, sw_engine *e, const struct sw_safetensor *ref,
                                double largest_of_all)
{
    const struct sw_parameter *param = param_of(e, ref->name + 5);
    if (!param &&
        sw_weights_ignores(sw_engine_weights(e),
                           ref->name + 5)) { /* nothing uses it, so its gradient must be zero */
        sw_check_row(c, ref->name, largest_value(ref), 0, NULL);
        return SW_OK;
    }
    if (!param || !sw_shape_equal(&param->work->layout.whole, &ref->shape)) {
        sw_check_fail(c, ref->name, param ? "another shape" : "the model has no such parameter");
        return SW_OK;
    }
    float *ours = sw_alloc("check", (size_t)sw_check_elems(ref) * sizeof *ours);
    SW_TRY_ALLOC(ours, "a gradient");
    const sw_status st = sw_gradient(e, param->work->name, ours);
    if (st >= 0 && listed(c, "zero_gradients", ref->name + 5)) {
        double most = 0; /* zero in exact arithmetic: only its size can be checked */
        for (int64_t i = 0; i < sw_check_elems(ref); i++) {
            most = sw_check_worse(most, fabs(ours[i]));
        }
        sw_check_row(c, ref->name, most / largest_of_all, 1e-5, NULL);
    } else if (st >= 0) {
        const double scale = fmax(largest_value(ref), largest_of_all / 1000);
        sw_check_row(c, ref->name, largest(ours, ref, NULL) / scale,
                     sw_check_number(c, "tolerance.grad_rel_to_max", 1e-5), NULL);
    }
    sw_free(ours);
    return st;
}

static sw_status check_backward(struct check *c, sw_engine *e, const struct check_batch *given)
{
    const struct sw_safetensor *loss = sw_check_tensor_of(c, 1, "output.loss");
    double ours = 0, largest_of_all = 0;
    if (!loss) {
        return SW_OK;
    }
    SW_TRY(sw_forward(e, &given->batch, &ours));
    SW_TRY(sw_backward(e));
    const double want = sw_check_value(loss, 0);
    sw_check_row(c, "output.loss", fabs(ours - want) / fabs(want),
                 sw_check_number(c, "tolerance.loss_rel", 1e-6), NULL);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_safetensors_count(c->ref); i++) {
            const struct sw_safetensor *ref = sw_safetensors_at(c->ref, i);
            if (strncmp(ref->name, "grad.", 5) != 0) {
                continue;
            }
            if (pass == 0) {
                largest_of_all = fmax(largest_of_all, largest_value(ref));
            } else {
                sw_check_tensor(c, "%s", ref->name);
                SW_TRY(check_gradient(c, e, ref, largest_of_all));
            }
        }
    }
    return SW_OK;
}

static sw_status take_prompt(const struct check *c, const struct sw_safetensor *prompt,
                             size_t vocab, int32_t *out)
{
    for (int64_t i = 0; i < sw_check_elems(prompt); i++) {
        const double id = sw_check_value(prompt, i);
        if (!(id >= 0 && id < (double)vocab)) {
            return SW_FAIL(SW_E_FORMAT, "%s: input.prompt holds %g, wanted ids below %zu", c->path,
                           id, vocab);
        }
        out[i] = (int32_t)id;
    }
    return SW_OK;
}

static void check_ids(struct check *c, const int32_t *ids, const struct sw_safetensor *recorded)
{
    double n_other = 0;
    for (int64_t i = 0; i < sw_check_elems(recorded); i++) {
        n_other += (double)ids[i] != sw_check_value(recorded, i);
    }
    sw_check_row(c, "output.greedy (ids that differ)", n_other, 0, NULL);
}

static sw_status check_generate(struct check *c)
{
    const struct sw_safetensor *prompt = sw_check_tensor(c, "input.prompt");
    const struct sw_safetensor *greedy = sw_check_tensor(c, "output.greedy");
    if (!prompt && !greedy) {
        return SW_OK;
    }
    if (!prompt || !greedy || sw_check_elems(prompt) < 1 || sw_check_elems(greedy) < 1) {
        sw_check_fail(c, "output.greedy", "wants ids in input.prompt and in output.greedy");
        return SW_OK;
    }
    const int64_t n_prompt = sw_check_elems(prompt), n_new = sw_check_elems(greedy);
    const bool answers = strcmp(c->task->head, "seq2seq") == 0;
    sw_engine *e = NULL;
    int64_t n = 0;
    sw_status st = sw_check_engine(
        c,
        (struct sw_engine_options){
            .config.text = "{\"train_micro_batch_size_per_gpu\": 1}",
            .model.path = c->path,
            .inputs.seq_len = answers ? n_prompt : 0,
            .generate = {.wanted = true, .tokens = answers ? n_new : n_prompt + n_new},
        },
        &e);
    if (st < 0) {
        return sw_check_note(c, st, "output.");
    }
    const size_t vocab = (size_t)sw_engine_vocab(e);
    const struct sw_safetensor *logits =
        sw_check_tensor_of(c, n_new * (int64_t)vocab, "output.step_logits");
    int32_t *ids = sw_alloc("check", (size_t)(n_prompt + n_new) * sizeof *ids);
    float *ours = sw_alloc("check", (size_t)n_new * vocab * sizeof *ours);
    st = ids && ours ? take_prompt(c, prompt, vocab, ids)
                     : SW_FAIL(SW_E_NOMEM, "out of host memory for generation");
    const struct sw_sampling sampling = {.stop_id = -1};
    st = st < 0 ? st : sw_generate(e, ids, n_prompt, n_new, &sampling, ids + n_prompt, &n, ours);
    if (st >= 0) {
        check_ids(c, ids + n_prompt, greedy);
    }
    if (st >= 0 && logits) {
        sw_check_row(c, "output.step_logits", largest(ours, logits, NULL),
                     sw_check_number(c, "tolerance.logits_abs", 1e-5), NULL);
    }
    sw_free(ids);
    sw_free(ours);
    sw_close(e);
    return st;
}

/* ---- optimizer steps ---- */

/* Checks that the schedule in reference.json gives the recorded rates. */
static void check_rates(struct check *c, const struct sw_safetensor *lr)
{
    const char *kind = sw_check_text(c, "train.schedule.kind");
    const bool constant = kind && strcmp(kind, "constant") == 0;
    const bool cosine = kind && strcmp(kind, "warmup_cosine") == 0;
    if (!kind) {
        return;
    }
    if (!constant && !cosine && strcmp(kind, "warmup_linear") != 0) {
        sw_check_fail(c, "train.schedule.kind", "recorded, but not understood");
        return;
    }
    const double warmup = sw_check_number(c, "train.schedule.warmup", 0);
    const double ratio = sw_check_number(c, "train.schedule.min_ratio", 0);
    const double most = sw_check_number(c, "train.lr", 0);
    const double steps = sw_check_number(c, "train.steps", 1);
    double worst = 0;
    for (int64_t s = 0; s < sw_check_elems(lr); s++) {
        const double p = ((double)s - warmup) / (steps - warmup);
        const double left = cosine ? (1 + cos(M_PI * p)) / 2 : 1 - p;
        const double want = constant             ? most
                            : (double)s < warmup ? most * (double)(s + 1) / warmup
                                                 : most * (ratio + (1 - ratio) * left);
        worst = sw_check_worse(worst, fabs(sw_check_value(lr, s) - want) / most);
    }
    sw_check_row(c, "train.lr (by its rule)", worst, 1e-12, NULL);
}

/* Distance of the weights from the recorded ones after all steps. */
struct distance {
    double worst, sum_error, sum_update;
    int64_t n_tensors;
};

/* Adds one tensor, whose elements are `ours`. mask NULL: every element counts. */
static void add_distance(const float *ours, const struct sw_safetensor *ref,
                         const struct sw_safetensor *start, const struct sw_safetensor *mask,
                         struct distance *d)
{
    const int64_t n = sw_check_elems(ref);
    for (int64_t k = 0; k < n; k++) {
        if (mask && sw_check_value(mask, k) == 0) {
            continue;
        }
        const double want = sw_check_value(ref, k), error = ours[k] - want;
        d->worst = sw_check_worse(d->worst, fabs(error));
        d->sum_error += error * error;
        d->sum_update += (want - sw_check_value(start, k)) * (want - sw_check_value(start, k));
    }
    d->n_tensors++;
}

/* Reads a tensor and adds it. */
static sw_status measure(const struct check *c, sw_engine *e, const struct sw_parameter *param,
                         const struct sw_safetensor *ref, const struct sw_safetensor *start,
                         const struct sw_safetensor *mask, struct distance *d)
{
    float *ours = sw_alloc("check", (size_t)sw_check_elems(ref) * sizeof *ours);
    SW_TRY_ALLOC(ours, "weights");
    const sw_status st = sw_check_weight(c, e, param, ours);
    if (st >= 0) {
        add_distance(ours, ref, start, mask, d);
    }
    sw_free(ours);
    return st;
}

/* Initial weights of a training: the tensors of the model, or of its adapter. */
struct before {
    struct sw_hf_folder *folder;
    struct sw_safetensors *adapter;
};

static sw_status before_open(const struct check *c, struct before *out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", c->adapter);
    return c->adapter[0] ? sw_safetensors_open(path, &out->adapter)
                         : sw_hf_folder_open(c->path, &out->folder);
}

/* Looks up a tensor by its name in the recording, then by the folder's name for the parameter. */
static const struct sw_safetensor *before_find(const struct before *b, const char *name,
                                               const struct sw_parameter *param)
{
    if (b->adapter) {
        return sw_safetensors_find(b->adapter, name);
    }
    const struct sw_safetensor *found = sw_hf_folder_find(b->folder, name);
    const char *other = param ? param->file_name : NULL;
    return found || !other ? found : sw_hf_folder_find(b->folder, other);
}

static void before_close(struct before *b)
{
    sw_hf_folder_close(b->folder);
    sw_safetensors_close(b->adapter);
}

/* True if an unused tensor is unchanged. */
static bool has_stayed(const struct sw_safetensor *ref, const struct sw_safetensor *start)
{
    return start && start->bytes == ref->bytes && memcmp(start->data, ref->data, ref->bytes) == 0;
}

static bool has_prefix(const struct check *c, const char *prefix)
{
    bool found = false;
    for (int64_t i = 0; i < sw_safetensors_count(c->ref) && !found; i++) {
        found = strncmp(sw_safetensors_at(c->ref, i)->name, prefix, strlen(prefix)) == 0;
    }
    return found;
}

static sw_status check_after(struct check *c, sw_engine *e, const char *suffix)
{
    char prefix[64], mask_prefix[64];
    snprintf(prefix, sizeof prefix, "after%s.", suffix);
    snprintf(mask_prefix, sizeof mask_prefix, "after_mask%s.", suffix);
    struct before before = {0};
    struct distance d = {0};
    sw_status st = has_prefix(c, prefix) ? before_open(c, &before) : SW_OK;
    for (int64_t i = 0; st >= 0 && i < sw_safetensors_count(c->ref); i++) {
        const struct sw_safetensor *ref = sw_safetensors_at(c->ref, i);
        if (strncmp(ref->name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        const char *name = ref->name + strlen(prefix);
        const struct sw_parameter *param = param_of(e, name);
        const struct sw_safetensor *start = before_find(&before, name, param);
        const int64_t n = sw_check_elems(ref);
        const struct sw_safetensor *mask = sw_check_tensor_of(c, n, "%s%s", mask_prefix, name);
        mask = mask ? mask : sw_check_tensor_of(c, n, "after_mask.%s", name); /* for all runs */
        sw_check_tensor(c, "%s", ref->name);
        if (!param && sw_weights_ignores(sw_engine_weights(e), name) && has_stayed(ref, start)) {
            continue;
        }
        if (!param || !start || !sw_shape_equal(&param->work->layout.whole, &ref->shape) ||
            !sw_shape_equal(&start->shape, &ref->shape)) {
            sw_check_fail(c, ref->name, "the model has no such parameter of this shape");
            continue;
        }
        st = measure(c, e, param, ref, start, mask, &d);
    }
    before_close(&before);
    if (st >= 0 && d.n_tensors > 0) {
        char row[96];
        snprintf(row, sizeof row, "after%s.*", suffix);
        sw_check_row(c, row, d.worst, sw_check_number(c, "tolerance.after_abs", 1e-5), NULL);
        snprintf(row, sizeof row, "after%s.* over all updates", suffix);
        sw_check_row(c, row, sqrt(d.sum_error / d.sum_update),
                     sw_check_number(c, "tolerance.after_update_rel", 1e-4), NULL);
    }
    return st;
}

/* Runs step s of the recording: in parts on one rank, at once on several. */
static sw_status run_step(struct check *c, sw_engine *e, const struct check_group *group, int64_t s,
                          struct sw_step_report *report)
{
    enum { MOST = 64 };
    struct check_batch given[MOST];
    struct sw_batch batches[MOST];
    const struct sw_coord data = sw_engine_facts(e).data;
    const int64_t k = sw_engine_micro_batches(e);
    sw_status st = SW_OK;
    int64_t n = 0;
    if (sw_engine_local_micro_batches(e) > MOST) {
        return SW_FAIL(SW_E_UNSUP, "%s: %lld micro-batches on a rank; wanted at most %d", c->path,
                       (long long)sw_engine_local_micro_batches(e), MOST);
    }
    for (int64_t m = data.rank; m < k && st >= 0; m += data.size, n++) {
        st = sw_check_batch_open(c, group, s * k + m, &given[n]);
        batches[n] = given[n].batch;
        if (!c->comm) {
            st = st < 0 ? st : sw_forward(e, &given[n].batch, NULL);
            st = st < 0 ? st : sw_backward(e);
        }
    }
    if (st >= 0) {
        st = c->comm ? sw_train_batch(e, batches, n, report) : sw_step(e, report);
    }
    while (n > 0) {
        sw_check_batch_close(&given[--n]);
    }
    return st;
}

static sw_status train_steps(struct check *c, sw_engine *e, const struct check_meaning *meaning,
                             const struct check_group *group)
{
    const int64_t steps = group->steps;
    const struct sw_safetensor *lr = sw_check_tensor_of(c, steps, "train.lr");
    const struct sw_safetensor *loss =
        sw_check_tensor_of(c, steps, "train.loss%s", meaning->suffix);
    const struct sw_safetensor *norm =
        sw_check_tensor_of(c, steps, "train.grad_norm%s", meaning->suffix);
    double worst_loss = 0, worst_norm = 0;
    for (int64_t s = 0; s < steps; s++) {
        struct sw_step_report report;
        sw_engine_override_lr(e, lr ? sw_check_value(lr, s) : NAN); /* backward may update */
        SW_TRY(run_step(c, e, group, s, &report));
        if (loss) {
            const double want = sw_check_value(loss, s);
            worst_loss = sw_check_worse(worst_loss, fabs(report.loss - want) / fabs(want));
        }
        if (norm) {
            const double want = sw_check_value(norm, s);
            worst_norm = sw_check_worse(worst_norm, fabs(report.grad_norm - want) / want);
        }
    }
    if (loss) {
        sw_check_row(c, loss->name, worst_loss,
                     sw_check_number(c, "tolerance.train_loss_rel", 1e-6), NULL);
    }
    if (norm) {
        sw_check_row(c, norm->name, worst_norm,
                     sw_check_number(c, "tolerance.train_grad_norm_rel", 1e-5), NULL);
    }
    return check_after(c, e, meaning->suffix);
}

/* Opens an engine for batches of the group's sizes. */
static sw_status open_for(const struct check *c, const struct check_group *group,
                          struct sw_engine_options options, sw_engine **out)
{
    options.model.path = c->path;
    options.inputs.seq_len = group->sizes.of[SW_DIM_TOKENS];
    options.inputs.target_len = group->sizes.of[SW_DIM_TARGETS];
    options.inputs.mask = group->has_mask;
    return sw_check_engine(c, options, out);
}

static sw_status train_with(struct check *c, const struct check_meaning *meaning,
                            const struct check_group *group)
{
    char config[1024];
    sw_engine *e = NULL;
    SW_TRY(sw_check_train_config(c, group->sizes.of[SW_DIM_BATCH], group->micro_batches, meaning,
                                 config, sizeof config));
    SW_TRY(open_for(c, group,
                    (struct sw_engine_options){.config.text = config, .train.wanted = true}, &e));
    const sw_status st = train_steps(c, e, meaning, group);
    sw_close(e);
    return st;
}

static sw_status check_training(struct check *c)
{
    static const struct check_meaning meanings[] = {{"", false, false},
                                                    {"_tokens", true, false},
                                                    {"_microbatch", false, false},
                                                    {"_dense", false, false},
                                                    {"_sparse", false, true}};
    const struct sw_safetensor *lr = sw_check_tensor(c, "train.lr");
    struct check_group group;
    SW_TRY(sw_check_group_open(c, "train", &group));
    if (group.steps == 0) {
        return SW_OK;
    }
    if (lr) {
        check_rates(c, lr);
    }
    for (size_t i = 0; i < SW_LEN(meanings); i++) {
        char name[64];
        snprintf(name, sizeof name, "train.loss%s", meanings[i].suffix);
        if (!sw_safetensors_find(c->ref, name)) {
            continue;
        }
        SW_TRY(train_with(c, &meanings[i], &group));
    }
    return SW_OK;
}

/* Refuses a recording with the inputs of another class of model. */
static sw_status refuse_inputs(const struct check *c)
{
    const struct sw_task_input *first = &c->task->inputs[0];
    const char *name = first->recorded ? first->recorded : first->name;
    char input[64], train[64];
    snprintf(input, sizeof input, "input.%s", name);
    snprintf(train, sizeof train, "train.%s", name);
    if (sw_safetensors_find(c->ref, input) || sw_safetensors_find(c->ref, train) ||
        sw_safetensors_find(c->ref, "train.pixels") ||
        sw_safetensors_find(c->ref, "input.prompt")) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_UNSUP,
                   "%s: neither %s nor %s is recorded, which models for the task \"%s\" read",
                   c->path, input, train, c->task->name);
}

/* ---- adapters ---- */

static sw_status check_merged_tensor(struct check *c, struct sw_merge *merge, int64_t i)
{
    const struct sw_safetensor_spec spec = sw_merge_spec(merge, i);
    const int64_t n = sw_shape_elems(&spec.shape);
    const struct sw_safetensor *ref = sw_check_tensor_of(c, n, "merged.%s", spec.name);
    if (!ref) {
        if (sw_merge_changes(merge, i)) {
            sw_check_fail(c, spec.name, "merging changes it, and its recording does not");
        }
        return SW_OK;
    }
    float *ours = sw_alloc("check", (size_t)n * sizeof *ours);
    SW_TRY_ALLOC(ours, "a merged tensor");
    const sw_status st = sw_merge_fetch(merge, i, 0, n, ours);
    if (st >= 0) {
        sw_check_row(c, ref->name, largest(ours, ref, NULL),
                     sw_check_number(c, "tolerance.merged_abs", 1e-6), NULL);
    }
    sw_free(ours);
    return st;
}

static sw_status check_merged(struct check *c)
{
    struct sw_engine_merge m = {0};
    if (!c->adapter[0]) {
        return SW_OK;
    }
    SW_TRY(sw_engine_open_merge(c->adapter, c->path, &m));
    sw_status st = SW_OK;
    for (int64_t i = 0; i < sw_merge_n(m.merge) && st >= 0; i++) {
        st = check_merged_tensor(c, m.merge, i);
    }
    sw_engine_close_merge(&m);
    return st;
}

static bool find_adapter(struct check *c)
{
    const int n = snprintf(c->adapter, sizeof c->adapter, "%s/adapter", c->path);
    const bool fits = n > 0 && (size_t)n < sizeof c->adapter;
    if (!fits || access(c->adapter, F_OK) != 0) {
        c->adapter[0] = '\0';
    }
    return fits;
}

/* Checks forward and backward of one batch. */
static sw_status check_alone(struct check *c, const struct check_group *group, const char *config)
{
    struct check_batch given;
    sw_engine *e = NULL;
    SW_TRY(open_for(c, group,
                    (struct sw_engine_options){.config.text = config,
                                               .train = {.wanted = true, .keep_gradients = true},
                                               .evaluate = {.logits = true, .hidden = true}},
                    &e));
    sw_status st = sw_check_batch_open(c, group, 0, &given);
    st = st < 0 ? st : check_forward(c, e, &given);
    st = st < 0 ? st : check_backward(c, e, &given);
    sw_check_sparse(c);
    sw_check_batch_close(&given);
    sw_close(e);
    return st;
}

static sw_status check_loss(struct check *c, sw_engine *e, const struct check_batch *given)
{
    const struct sw_safetensor *loss = sw_check_tensor_of(c, 1, "output.loss");
    double terms[2 * SW_TASK_MAX_TERMS];
    if (!loss) {
        return SW_OK;
    }
    SW_TRY(sw_engine_evaluate(e, &given->batch, terms));
    const double want = sw_check_value(loss, 0);
    sw_check_row(c, loss->name, fabs(sw_engine_mean_loss(e, terms) - want) / fabs(want),
                 sw_check_number(c, "tolerance.loss_rel", 1e-6), NULL);
    return SW_OK;
}

/* Checks loss and gradients of one batch on ranks that keep gradients. Returns how opening the
 * engine ended; *st: how the rest did. */
static sw_status check_kept(struct check *c, const struct check_group *group,
                            struct sw_engine_options options, const struct check_batch *given,
                            sw_status *st)
{
    sw_engine *e = NULL;
    options.train = (struct sw_engine_train){.wanted = true, .keep_gradients = true};
    SW_TRY(open_for(c, group, options, &e));
    *st = check_backward(c, e, given);
    sw_check_sparse(c);
    sw_close(e);
    return SW_OK;
}

/* The same if the stages of a pipeline keep none: the ranks have them without stages. */
static sw_status check_without_stages(struct check *c, const struct check_group *group,
                                      struct sw_engine_options options,
                                      const struct check_batch *given, sw_status *st)
{
    const struct sw_check_options *asked = c->options;
    struct sw_check_options one_stage = *asked;
    const char **sets = sw_alloc("check", (size_t)(asked->n_sets + 1) * sizeof *sets);
    SW_TRY_ALLOC(sets, "settings");
    for (int i = 0; i < asked->n_sets; i++) {
        sets[i] = asked->sets[i];
    }
    sets[asked->n_sets] = "spillway.mesh.pipe=1";
    one_stage.sets = sets;
    one_stage.n_sets = asked->n_sets + 1;
    c->options = &one_stage;
    fprintf(c->out, "  gradients by the same ranks without stages\n");
    const sw_status opened = check_kept(c, group, options, given, st);
    c->options = asked;
    sw_free(sets);
    return opened;
}

/* Checks the gradients of one batch on meshes that have them. */
static sw_status check_gradients(struct check *c, const struct check_group *group,
                                 struct sw_engine_options options, const struct check_batch *given)
{
    sw_status st = SW_OK;
    sw_status opened = check_kept(c, group, options, given, &st);
    if (opened == SW_E_UNSUP) {
        opened = check_without_stages(c, group, options, given, &st);
    }
    return opened < 0 ? sw_check_note(c, opened, "grad") : st;
}

/* Checks the loss of one batch, and its outputs on meshes that have them. */
static sw_status check_on_ranks(struct check *c, const struct check_group *group,
                                const char *config)
{
    struct sw_engine_options options = {.config.text = config, .evaluate.loss = true};
    struct check_batch given;
    sw_engine *e = NULL;
    SW_TRY(open_for(c, group, options, &e));
    sw_status st = sw_check_batch_open(c, group, 0, &given);
    st = st < 0 ? st : check_loss(c, e, &given);
    sw_close(e);
    e = NULL;
    options.evaluate.loss = false;
    st = st < 0 ? st : check_gradients(c, group, options, &given);
    options.evaluate.logits = options.evaluate.hidden = true;
    if (st >= 0) {
        st = open_for(c, group, options, &e);
        st = st < 0 ? sw_check_note(c, st, "output.") : check_forward(c, e, &given);
    }
    sw_check_batch_close(&given);
    sw_close(e);
    return st;
}

static sw_status check_batch(struct check *c)
{
    char config[192];
    struct check_group group;
    SW_TRY(sw_check_group_open(c, "input", &group));
    if (group.steps == 0) {
        return SW_OK;
    }
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %lld, \"spillway\": {\"packing\": %s, "
             "\"label_smoothing\": %.17g}}",
             (long long)group.sizes.of[SW_DIM_BATCH], sw_check_is_packed(c) ? "true" : "false",
             sw_check_number(c, "label_smoothing", 0));
    return c->comm ? check_on_ranks(c, &group, config) : check_alone(c, &group, config);
}

/* Without a problem_type, float labels mean a multi-label task. */
static sw_status find_task(struct check *c)
{
    static const char *const names[] = {"input.labels", "train.labels"};
    static const char *const tasks[][2] = {{"classify", "multi-label"},
                                           {"images", "images-multi-label"}};
    SW_TRY(sw_weights_find_task(c->path, NULL, 0, &c->task));
    for (size_t i = 0; i < SW_LEN(names); i++) {
        const struct sw_safetensor *labels = sw_safetensors_find(c->ref, names[i]);
        for (size_t k = 0; k < SW_LEN(tasks) && labels && labels->dtype == SW_F32; k++) {
            if (strcmp(c->task->name, tasks[k][0]) == 0) {
                c->asked = tasks[k][1];
                SW_TRY(sw_weights_find_task(c->path, c->asked, 0, &c->task));
            }
        }
    }
    return SW_OK;
}

sw_status sw_check_model(struct check *c)
{
    if (!find_adapter(c)) {
        return SW_FAIL(SW_E_ARG, "%s: the path is too long", c->path);
    }
    SW_TRY(find_task(c));
    SW_TRY(refuse_inputs(c));
    SW_TRY(check_batch(c));
    SW_TRY(check_merged(c));
    SW_TRY(check_generate(c));
    return check_training(c);
}
