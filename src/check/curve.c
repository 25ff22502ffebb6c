// SPDX-License-Identifier: Apache-2.0
// Training curves over a text. Batches are recorded as offsets into the text's tokens, with labels
// already shifted. fp32 runs use the settings of reference.json; 16-bit runs use the
// ds_config.<run>.json of each run. Errors of the recording program are printed and do not decide:
// see docs/differences.md.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/private.h"
#include "data/data.h"

struct curve {
    struct check *c;
    struct sw_ids text;
    int64_t batch, tokens, steps;
    int32_t *ids, *labels; /* [B, T] */
    /* series of the current run, [steps] */
    double *loss, *norm, *lr, *scale, *skipped;
    /* first step whose update raised the recorded scale; `steps` if there is none */
    int64_t doubling;
};

static void curve_fini(struct curve *k)
{
    sw_ids_fini(&k->text);
    sw_free(k->ids);
    sw_free(k->labels);
    sw_free(k->loss);
    sw_free(k->norm);
    sw_free(k->lr);
    sw_free(k->scale);
    sw_free(k->skipped);
}

static sw_status read_text(struct curve *k)
{
    char path[4096], chars[4096];
    char *text = NULL;
    size_t len = 0;
    sw_tokenizer *tokenizer = NULL;
    const char *name = sw_check_text(k->c, "data.text");
    if (!name) {
        return SW_FAIL(SW_E_FORMAT, "%s: data.text of reference.json wants a path", k->c->path);
    }
    sw_check_shared_path(name, path, sizeof path);
    snprintf(chars, sizeof chars, "%s/chars.json", k->c->path);
    SW_TRY(sw_file_read(path, &text, &len));
    sw_status st = sw_tokenizer_open(chars, NULL, &tokenizer);
    st = st < 0 ? st : sw_tokenizer_encode(tokenizer, text, len, false, &k->text);
    sw_tokenizer_close(tokenizer);
    sw_free(text);
    return st;
}

static sw_status curve_init(struct curve *k, struct check *c)
{
    const struct sw_safetensor *offsets = sw_check_tensor(c, "train.offsets");
    *k = (struct curve){.c = c,
                        .batch = (int64_t)sw_check_number(c, "data.batch", 0),
                        .tokens = (int64_t)sw_check_number(c, "data.T", 0)};
    if (!offsets || offsets->shape.rank != 2 || offsets->shape.dims[1] != k->batch ||
        k->tokens < 1) {
        return SW_FAIL(SW_E_FORMAT, "%s: train.offsets wants the shape [steps, data.batch]",
                       c->path);
    }
    k->steps = offsets->shape.dims[0];
    const size_t elems = (size_t)(k->batch * k->tokens), steps = (size_t)k->steps;
    k->ids = sw_alloc("check", elems * sizeof *k->ids);
    k->labels = sw_alloc("check", elems * sizeof *k->labels);
    k->loss = sw_alloc_zero("check", steps, sizeof *k->loss);
    k->norm = sw_alloc_zero("check", steps, sizeof *k->norm);
    k->lr = sw_alloc_zero("check", steps, sizeof *k->lr);
    k->scale = sw_alloc_zero("check", steps, sizeof *k->scale);
    k->skipped = sw_alloc_zero("check", steps, sizeof *k->skipped);
    if (!k->ids || !k->labels || !k->loss || !k->norm || !k->lr || !k->scale || !k->skipped) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a curve");
    }
    return read_text(k);
}

/* Fills the first n rows of a batch. The other rows get no targets. */
static sw_status fill(struct curve *k, const struct sw_safetensor *offsets, int64_t first,
                      int64_t n)
{
    for (int64_t i = n * k->tokens; i < k->batch * k->tokens; i++) {
        k->ids[i] = 0;
        k->labels[i] = -100;
    }
    for (int64_t b = 0; b < n; b++) {
        const double recorded = sw_check_value(offsets, first + b);
        if (!(recorded >= 0 && recorded + (double)k->tokens < (double)k->text.len)) {
            return SW_FAIL(SW_E_FORMAT, "%s: offset %.0f is beyond the text of %lld tokens",
                           k->c->path, recorded, (long long)k->text.len);
        }
        const int64_t at = (int64_t)recorded;
        memcpy(k->ids + b * k->tokens, k->text.ptr + at, (size_t)k->tokens * sizeof *k->ids);
        memcpy(k->labels + b * k->tokens, k->text.ptr + at + 1, (size_t)k->tokens * sizeof *k->ids);
    }
    return SW_OK;
}

static struct sw_tensor *tensors_of(struct curve *k, struct sw_tensor out[2])
{
    const struct sw_shape shape = SW_SHAPE(k->batch, k->tokens);
    out[0] = (struct sw_tensor){"input_ids", {.data = k->ids, .dtype = SW_I32, .shape = shape}};
    out[1] = (struct sw_tensor){"labels", {.data = k->labels, .dtype = SW_I32, .shape = shape}};
    return out;
}

static sw_status one_step(struct curve *k, sw_engine *e, int64_t s)
{
    struct sw_tensor tensors[2];
    struct sw_step_report report;
    const struct sw_batch batch = {tensors_of(k, tensors), 2};
    SW_TRY(fill(k, sw_check_tensor(k->c, "train.offsets"), s * k->batch, k->batch));
    SW_TRY(sw_train_batch(e, &batch, 1, &report));
    k->loss[s] = report.loss;
    k->norm[s] = report.grad_norm;
    k->lr[s] = report.lr;
    k->scale[s] = report.loss_scale;
    k->skipped[s] = report.skipped;
    return SW_OK;
}

/* ---- fp32, with validation ---- */

/* Mean loss over the recorded validation rows. Surplus rows of the last batch have no targets. */
static sw_status validate(struct curve *k, sw_engine *e, double *out)
{
    const struct sw_safetensor *offsets = sw_check_tensor(k->c, "val.offsets");
    const int64_t rows = offsets ? sw_check_elems(offsets) : 0;
    struct sw_tensor tensors[2];
    const struct sw_batch batch = {tensors_of(k, tensors), 2};
    double sum = 0, count = 0;
    for (int64_t i = 0; i < rows; i += k->batch) {
        double batch_sum = 0, batch_count = 0;
        SW_TRY(fill(k, offsets, i, sw_min_i64(rows - i, k->batch)));
        SW_TRY(sw_evaluate(e, &batch, &batch_sum, &batch_count));
        sum += batch_sum;
        count += batch_count;
    }
    *out = count > 0 ? sum / count : NAN;
    return SW_OK;
}

/* Index of step s in val.steps, which is also its index in val.loss; negative if absent. */
static int64_t validation_at(struct curve *k, int64_t s)
{
    const struct sw_safetensor *steps = sw_check_tensor(k->c, "val.steps");
    for (int64_t i = 0; steps && i < sw_check_elems(steps); i++) {
        if (sw_check_value(steps, i) == (double)s) {
            return i;
        }
    }
    return -1;
}

static sw_status run_fp32(struct curve *k, sw_engine *e, double *worst_val)
{
    const struct sw_safetensor *lr = sw_check_tensor_of(k->c, k->steps, "train.lr");
    const struct sw_safetensor *at = sw_check_tensor(k->c, "val.steps");
    const struct sw_safetensor *val =
        at ? sw_check_tensor_of(k->c, sw_check_elems(at), "val.loss") : NULL;
    int64_t n = 0;
    for (int64_t s = 0; s <= k->steps; s++) {
        const int64_t i = validation_at(k, s);
        if (i >= 0 && val) {
            double loss = 0;
            SW_TRY(validate(k, e, &loss));
            const double error = fabs(loss - sw_check_value(val, i));
            *worst_val = n == 0 ? error : sw_check_worse(*worst_val, error);
            n++;
        }
        if (s < k->steps) {
            sw_engine_override_lr(e, lr ? sw_check_value(lr, s) : NAN);
            SW_TRY(one_step(k, e, s));
        }
    }
    return SW_OK;
}

/* Largest ratio of error to the tolerance of its step; 1 or less passes. */
static void compare_by_step(struct curve *k, const char *what, const double *ours)
{
    struct check *c = k->c;
    const struct sw_safetensor *ref = sw_check_tensor_of(c, k->steps, "train.%s", what);
    const struct sw_safetensor *exact = sw_check_tensor_of(c, k->steps, "train.%s_fp64", what);
    const struct sw_safetensor *tolerance =
        sw_check_tensor_of(c, k->steps, "train.%s_tolerance_abs", what);
    char row[96];
    snprintf(row, sizeof row, "train.%s, error / tolerance of its step", what);
    if (ref && !tolerance) {
        sw_check_fail(c, row, "recorded without the tolerance of each step");
    }
    if (!ref || !tolerance) {
        return;
    }
    double worst = 0;
    for (int64_t s = 0; s < k->steps; s++) {
        const double want = sw_check_value(exact ? exact : ref, s);
        const double allowed = sw_check_value(tolerance, s);
        worst = sw_check_worse(worst, allowed >= 0 ? fabs(ours[s] - want) / allowed : NAN);
    }
    sw_check_row(c, row, worst, 1, NULL);
}

static sw_status check_fp32(struct curve *k)
{
    const struct check_meaning plain = {"", false, false};
    char config[1024];
    sw_engine *e = NULL;
    double worst_val = NAN; /* NaN until a step is validated */
    SW_TRY(sw_check_train_config(k->c, k->batch, 1, &plain, config, sizeof config));
    SW_TRY(sw_check_engine(k->c,
                           (struct sw_engine_options){.config.text = config,
                                                      .model.path = k->c->path,
                                                      .inputs.seq_len = k->tokens,
                                                      .train.wanted = true,
                                                      .evaluate.loss = true},
                           &e));
    const sw_status st = run_fp32(k, e, &worst_val);
    sw_close(e);
    SW_TRY(st);
    compare_by_step(k, "loss", k->loss);
    compare_by_step(k, "grad_norm", k->norm);
    sw_check_tensor(k->c, "val.loss_fp64");
    if (sw_safetensors_find(k->c->ref, "val.loss")) {
        sw_check_row(k->c, "val.loss", worst_val,
                     sw_check_number(k->c, "validation.tolerance_abs", 1e-5), NULL);
    }
    return SW_OK;
}

/* ---- 16 bit: one run per configuration ---- */

static int64_t first_doubling(const struct curve *k, const struct sw_safetensor *scale)
{
    for (int64_t s = 0; scale && s + 1 < k->steps; s++) {
        if (sw_check_value(scale, s + 1) > sw_check_value(scale, s)) {
            return s;
        }
    }
    return k->steps;
}

struct part { /* steps [from, end) */
    int64_t from, end;
    const char *why;
};

static void print_row(struct curve *k, const char *prefix, const char *what, double error,
                      double tolerance, const struct part *part)
{
    char row[192];
    snprintf(row, sizeof row, part->from > 0 ? "%s.%s from step %lld" : "%s.%s", prefix, what,
             (long long)part->from);
    sw_check_row(k->c, row, error, tolerance, part->why);
}

static void compare_losses(struct curve *k, const char *prefix, struct part part)
{
    const struct sw_safetensor *ref = sw_check_tensor(k->c, "%s.loss", prefix);
    double worst = 0;
    for (int64_t s = part.from; ref && s < part.end; s++) {
        worst = sw_check_worse(worst, fabs(k->loss[s] - sw_check_value(ref, s)));
    }
    if (ref && part.from < part.end) {
        print_row(k, prefix, "loss", worst, sw_check_number(k->c, "tolerance.loss_abs", 1e-3),
                  &part);
    }
}

static void compare_norms(struct curve *k, const char *prefix, struct part part)
{
    const struct sw_safetensor *ref = sw_check_tensor(k->c, "%s.grad_norm", prefix);
    double worst = 0;
    int64_t n = 0, n_without = 0;
    for (int64_t s = part.from; ref && s < part.end; s++) {
        const double want = sw_check_value(ref, s);
        n_without += k->skipped[s] == 0 && !isfinite(want);
        if (k->skipped[s] == 0 &&
            isfinite(want)) { /* other norms are stale or were never computed */
            worst = sw_check_worse(worst, fabs(k->norm[s] - want) / want);
            n++;
        }
    }
    if (n > 0) {
        print_row(k, prefix, "grad_norm", worst,
                  sw_check_number(k->c, "tolerance.grad_norm_rel", 1e-2), &part);
    }
    sw_check_no_norms(k->c, prefix, n_without);
}

static void compare_exactly(struct curve *k, const char *prefix, const char *what,
                            const double *ours, struct part part)
{
    const struct sw_safetensor *ref = sw_check_tensor(k->c, "%s.%s", prefix, what);
    char row[64];
    double wrong = 0;
    for (int64_t s = part.from; ref && s < part.end; s++) {
        wrong += !(ours[s] == sw_check_value(ref, s));
    }
    if (ref && part.from < part.end) {
        snprintf(row, sizeof row, "%s (steps that differ)", what);
        print_row(k, prefix, row, wrong, 0, &part);
    }
}

static void compare_rates(struct curve *k, const char *prefix, struct part part)
{
    const struct sw_safetensor *ref = sw_check_tensor(k->c, "%s.lr", prefix);
    double worst = 0;
    for (int64_t s = part.from; ref && s < part.end; s++) {
        const double want = sw_check_value(ref, s);
        worst = sw_check_worse(worst, fabs(want != 0 ? k->lr[s] / want - 1 : k->lr[s]));
    }
    if (ref && part.from < part.end) {
        print_row(k, prefix, "lr", worst, 1e-12, &part);
    }
}

/* Checks that every series has a value for each step. Later comparisons rely on that. */
static bool has_all_steps(struct curve *k, const char *prefix)
{
    static const char *const names[] = {"loss", "grad_norm", "lr", "scale", "skipped"};
    bool all = true;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        all &= !sw_check_tensor(k->c, "%s.%s", prefix, names[i]) ||
               sw_check_tensor_of(k->c, k->steps, "%s.%s", prefix, names[i]) != NULL;
    }
    return all;
}

/* Compares the current run with one recorded series. sound: the recording divided its gradients by
 * the scale that backward used, as we do. Other recordings halve the update on the step that
 * doubles the scale. From the next step on their weights differ, and later their overflows, too. */
static void compare(struct curve *k, const char *prefix, bool sound, const char *why)
{
    static const char halved[] = "DeepSpeed halves the update on which the scale doubles";
    if (!has_all_steps(k, prefix)) {
        return;
    }
    const int64_t norms = sound ? k->steps : k->doubling;
    const int64_t losses = sw_min_i64(norms + 1, k->steps);
    /* the doubling itself is still comparable */
    const int64_t scales = sw_min_i64(norms + 2, k->steps);
    const char *after = why ? why : halved;
    compare_exactly(k, prefix, "scale", k->scale, (struct part){0, scales, why});
    compare_exactly(k, prefix, "scale", k->scale, (struct part){scales, k->steps, after});
    compare_exactly(k, prefix, "skipped", k->skipped, (struct part){0, losses, why});
    compare_exactly(k, prefix, "skipped", k->skipped, (struct part){losses, k->steps, after});
    compare_rates(k, prefix, (struct part){0, scales, why});
    compare_rates(k, prefix, (struct part){scales, k->steps, after});
    compare_losses(k, prefix, (struct part){0, losses, why});
    compare_losses(k, prefix, (struct part){losses, k->steps, after});
    compare_norms(k, prefix, (struct part){0, norms, why});
    compare_norms(k, prefix, (struct part){norms, k->steps, after});
}

/* A step must be skipped exactly if the largest scaled gradient does not fit fp16. */
static void check_margin(struct curve *k, const char *family)
{
    const struct sw_safetensor *largest =
        sw_check_tensor_of(k->c, k->steps, "%s.max_abs_unscaled_grad", family);
    char row[192];
    double wrong = 0;
    for (int64_t s = 0; largest && s < k->doubling; s++) {
        wrong += (sw_check_value(largest, s) * k->scale[s] > 65504) != (k->skipped[s] != 0);
    }
    if (largest) {
        snprintf(row, sizeof row, "%s.max_abs_unscaled_grad (skips it disagrees with)", family);
        sw_check_row(k->c, row, wrong, 0, NULL);
    }
}

static sw_status train_run(struct curve *k, const char *config)
{
    sw_engine *e = NULL;
    SW_TRY(sw_check_engine(k->c,
                           (struct sw_engine_options){.config.path = config,
                                                      .model.path = k->c->path,
                                                      .inputs.seq_len = k->tokens,
                                                      .train.wanted = true},
                           &e));
    sw_status st = SW_OK;
    for (int64_t s = 0; st >= 0 && s < k->steps; s++) {
        st = one_step(k, e, s);
    }
    sw_close(e);
    return st;
}

static sw_status check_run(void *ctx, const char *run)
{
    struct curve *k = ctx;
    char config[4096], family[128], series[160];
    snprintf(config, sizeof config, "%s/ds_config.%s.json", k->c->path, run);
    SW_TRY(train_run(k, config));
    sw_check_heading(k->c, run);
    k->doubling = first_doubling(k, sw_check_tensor_of(k->c, k->steps, "%s.scale", run));
    const char *stage = strstr(run, "stage");
    const bool stage0 = stage && strncmp(stage, "stage0", 6) == 0;
    compare(k, run, false,
            stage0 ? "DeepSpeed's 16-bit stage 0 takes an empty step at construction" : NULL);
    snprintf(family, sizeof family, "%s", run);
    char *dot = strrchr(family, '.');
    if (dot) { /* "<scaler case>.stage<k>" names a series of the case, not a run of its own */
        *dot = 0;
        snprintf(series, sizeof series, "%s.fp32_math", family);
        compare(k, series, false, NULL);
        snprintf(series, sizeof series, "%s.unscaled_with_used_scale", family);
        compare(k, series, true, NULL);
        check_margin(k, family);
    } else if (!stage0) {
        compare(k, "train", false, NULL);
        compare(k, "fp32_math", false, NULL);
        compare(k, "plain_after_empty_step", false, "it repeats a defect of DeepSpeed's stage 0");
    }
    return SW_OK;
}

sw_status sw_check_curve(struct check *c)
{
    struct curve k;
    int n_runs = 0;
    sw_status st = curve_init(&k, c);
    st = st < 0 ? st : sw_check_each_run(c, check_run, &k, &n_runs);
    if (st >= 0 && n_runs == 0) {
        st = check_fp32(&k);
    }
    curve_fini(&k);
    return st;
}
