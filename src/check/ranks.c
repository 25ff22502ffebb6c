// SPDX-License-Identifier: Apache-2.0
// Recorded runs of several ranks (ZeRO stages 0 to 3). Micro-batch k = accumulation x ranks + rank
// of a step is the recorded [accumulation, rank]. So a case runs on any number of ranks. Here the
// ranks are threads. Errors of the recording program are printed and do not decide.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check/private.h"
#include "layout/layout.h"
#include "spillway/comm.h"

enum { MAX_OWN_SETS = 3 };

struct run { /* one configuration on some ranks */
    struct check *c;
    const char *config; /* path of a file; NULL: config_text is used */
    char *config_text;
    char model[4096], frozen[2048], micro[64];
    const char *sets[64]; /* up to MAX_OWN_SETS of ours, then the user's */
    int n_sets, ranks;
    int64_t k, steps, batch, tokens;
    int64_t recorded_ranks, recorded_accumulation;
    const char *ids, *loss_tolerance; /* name of a tensor; key of a tolerance */
    /* weights are computed by struct formula, not read from a file */
    bool formula;
    double norm_tolerance; /* 0 = use norm_tolerance() */
    uint32_t salt;
    int shift;
    /* results */
    double *losses;      /* [steps, k] */
    double *norms, *lrs; /* [steps] */
    float *weights;      /* [n_weights], all parameters, one after the other */
    int64_t n_weights;
};

/* ---- one rank ---- */

/* Inputs of one micro-batch. */
struct given {
    int32_t *ids, *labels; /* [batch, tokens] */
    struct sw_tensor tensors[2];
};

static sw_status fill(const struct run *run, int64_t step, int64_t k, struct given *out)
{
    const struct sw_safetensor *all = sw_safetensors_find(run->c->ref, run->ids);
    const int64_t n = run->batch * run->tokens;
    const int64_t rank = k % run->recorded_ranks, turn = k / run->recorded_ranks;
    const int64_t at =
        ((step * run->recorded_ranks + rank) * run->recorded_accumulation + turn) * n;
    const struct sw_shape shape = SW_SHAPE(run->batch, run->tokens);
    out->tensors[0] =
        (struct sw_tensor){"input_ids", {.data = out->ids, .dtype = SW_I32, .shape = shape}};
    out->tensors[1] =
        (struct sw_tensor){"labels", {.data = out->labels, .dtype = SW_I32, .shape = shape}};
    for (int64_t i = 0; i < n; i++) {
        const bool last = i % run->tokens == run->tokens - 1;
        const double id = sw_check_value(all, at + i);
        const double label = last ? -100 : sw_check_value(all, at + i + 1);
        if (!(fabs(id) <= INT32_MAX && fabs(label) <= INT32_MAX)) {
            return SW_FAIL(SW_E_FORMAT, "%s: train.input_ids holds %g, wanted an id", all->file,
                           fabs(id) <= INT32_MAX ? label : id);
        }
        out->ids[i] = (int32_t)id;
        out->labels[i] = (int32_t)label;
    }
    return SW_OK;
}

static sw_status train(struct run *run, sw_engine *e, struct given *given, struct sw_batch *batches)
{
    const struct sw_engine_facts facts = sw_engine_facts(e);
    const int64_t local = sw_engine_local_micro_batches(e);
    if (sw_engine_micro_batches(e) != run->k) {
        return SW_FAIL(SW_E_CONFIG,
                       "a step of this case has %lld micro-batches, of the configuration %lld",
                       (long long)run->k, (long long)sw_engine_micro_batches(e));
    }
    for (int64_t s = 0; s < run->steps; s++) {
        struct sw_step_report report;
        for (int64_t j = 0; j < local; j++) {
            SW_TRY(fill(run, s, j * facts.data.size + facts.data.rank, &given[j]));
            batches[j] = (struct sw_batch){given[j].tensors, 2};
        }
        SW_TRY(sw_train_batch(e, batches, local, &report));
        for (int64_t j = 0; j < local; j++) {
            const double *loss = sw_engine_losses(e) + 2 * sw_engine_terms(e) * j;
            run->losses[s * run->k + j * facts.data.size + facts.data.rank] =
                loss[1] > 0 ? loss[0] / loss[1] : 0;
        }
        if (facts.world.rank == 0) {
            run->norms[s] = report.grad_norm;
            run->lrs[s] = report.lr;
        }
    }
    return SW_OK;
}

/* Copies the elements of every parameter that this rank owns to their place in run->weights. */
static sw_status collect(struct run *run, sw_engine *e)
{
    int64_t at = 0;
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const struct sw_parameter *param = &sw_engine_weights(e)->params.items[i];
        const int64_t elems = sw_shape_elems(&param->work->layout.whole);
        struct sw_run_iter iter;
        struct sw_run own;
        if (at + elems > run->n_weights) {
            return SW_FAIL(SW_E_FORMAT, "%s: %s is not in the folder of the model", run->c->path,
                           param->work->name);
        }
        sw_owned_begin(&param->work->layout, &iter);
        while (sw_runs_next(&iter, &own)) {
            SW_TRY(sw_weights_get(sw_engine_weights(e), param, own.first, own.n,
                                  run->weights + at + own.first));
        }
        at += elems;
    }
    return SW_OK;
}

/* ---- weights from a formula: a hash of name and element, with few enough bits for any dtype
 * ---- */

static uint32_t mix(uint32_t h)
{
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    return h ^ h >> 16;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Formula of one parameter, selected by its name. */
struct formula {
    uint32_t base;
    bool is_scale; /* scale of a norm layer: values near 1 */
    float unit;    /* for other parameters: a power of two */
};

static struct formula formula_of(const struct run *run, const char *name)
{
    uint32_t base = 2166136261u ^ run->salt;
    for (const char *c = name; *c; c++) {
        base = (base ^ (uint8_t)*c) * 16777619u;
    }
    return (struct formula){
        .base = mix(base),
        .is_scale = strstr(name, ".ln_") && ends_in(name, "weight"),
        .unit = ldexpf(1, -run->shift - ends_in(name, "c_proj.weight")),
    };
}

static float formula_weight(const struct formula *f, int64_t i)
{
    const uint32_t u = mix(f->base + (uint32_t)i);
    return f->is_scale ? 1 + ((float)(u >> 29) - 4) / 128
                       : (float)(2 * (int)(u >> 24) - 255) * f->unit;
}

static sw_status set_weights(const struct run *run, sw_engine *e)
{
    float chunk[1024];
    for (int32_t p = 0; run->formula && p < sw_engine_n_tensors(e); p++) {
        const struct sw_parameter *param = &sw_engine_weights(e)->params.items[p];
        const struct formula formula = formula_of(run, param->work->name);
        const int64_t n = sw_shape_elems(&param->work->layout.whole);
        for (int64_t first = 0; first < n; first += (int64_t)SW_LEN(chunk)) {
            const int64_t len = sw_min_i64((int64_t)SW_LEN(chunk), n - first);
            for (int64_t i = 0; i < len; i++) {
                chunk[i] = formula_weight(&formula, first + i);
            }
            SW_TRY(sw_weights_set(sw_engine_weights(e), param, first, len, chunk));
        }
    }
    return SW_OK;
}

static sw_status run_rank(void *ctx, sw_comm *comm)
{
    struct run *run = ctx;
    const size_t n = (size_t)(run->batch * run->tokens);
    const struct sw_engine_options options = {
        .config = {.path = run->config,
                   .text = run->config_text,
                   .sets = run->sets,
                   .n_sets = run->n_sets},
        .model.path = run->model,
        .inputs.seq_len = run->tokens,
        .run.comm = comm,
        .train = {.wanted = true, .no_dropout = true},
    };
    sw_engine *e = NULL;
    const size_t most = (size_t)sw_ceil_div(run->k, run->ranks);
    struct given *given = sw_alloc_zero("check", most, sizeof *given);
    struct sw_batch *batches = sw_alloc("check", most * sizeof *batches);
    int32_t *ids = sw_alloc("check", 2 * most * n * sizeof *ids);
    sw_status st =
        given && batches && ids ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a batch");
    for (size_t j = 0; st >= 0 && j < most; j++) {
        given[j].ids = ids + 2 * j * n;
        given[j].labels = given[j].ids + n;
    }
    st = st < 0 ? st : sw_initialize(&options, &e);
    st = st < 0 ? st : set_weights(run, e);
    st = st < 0 ? st : train(run, e, given, batches);
    st = st < 0 || run->formula ? st : collect(run, e);
    sw_free(given);
    sw_free(batches);
    sw_free(ids);
    sw_close(e);
    return st;
}

/* A recorded run is short, so a long wait means a failure. */
static const double deadline_s = 300;

static sw_status run_all(struct run *run)
{
    return sw_threads_run(run->ranks, deadline_s, run_rank, run);
}

/* ---- comparing ---- */

static void compare_losses(struct run *run, const char *series, const char *why)
{
    const struct sw_safetensor *ref = sw_check_tensor(run->c, "%s.loss", series);
    char row[128];
    double worst = 0;
    if (!ref) {
        return;
    }
    const bool mean = ref->shape.rank == 1; /* mean over the micro-batches */
    if (!sw_check_tensor_of(run->c, mean ? run->steps : run->steps * run->k, "%s.loss", series)) {
        return;
    }
    for (int64_t s = 0; s < run->steps; s++) {
        double sum = 0;
        for (int64_t k = 0; k < run->k; k++) {
            const double ours = run->losses[s * run->k + k];
            const int64_t rank = k % run->recorded_ranks, turn = k / run->recorded_ranks;
            const int64_t at = (s * run->recorded_ranks + rank) * run->recorded_accumulation + turn;
            sum += ours;
            if (!mean) {
                const double want = sw_check_value(ref, at);
                worst = sw_check_worse(worst, fabs(ours - want) / fabs(want));
            }
        }
        if (mean) {
            const double want = sw_check_value(ref, s);
            worst = sw_check_worse(worst, fabs(sum / (double)run->k - want) / fabs(want));
        }
    }
    snprintf(row, sizeof row, "%s.loss", series);
    sw_check_row(run->c, row, worst, sw_check_number(run->c, run->loss_tolerance, 1e-6), why);
}

/* Tolerance for norms, which reference.json does not give. It is the largest difference between the
 * recorded runs, times ten in fp32 and three in 16 bit. Its other tolerances use the same
 * factors. */
static double norm_tolerance(const struct check *c)
{
    const char *dtype = sw_check_text(c, "dtype");
    double most = fmax(sw_check_number(c, "plain_to_fp64.max_rel_grad_norm", 0),
                       sw_check_number(c, "fp32_math_to_plain.max_rel_grad_norm", 0));
    for (int stage = 1; stage <= 3; stage++) {
        char path[96];
        snprintf(path, sizeof path, "runs.stage%d.to_plain.max_rel_grad_norm", stage);
        most = fmax(most, sw_check_number(c, path, 0));
    }
    return most * (dtype && strcmp(dtype, "float32") == 0 ? 10 : 3);
}

static void compare_norms(struct run *run, const char *series, const char *why)
{
    const struct sw_safetensor *ref =
        sw_check_tensor_of(run->c, run->steps, "%s.grad_norm", series);
    char row[128];
    double worst = 0;
    int64_t n = 0, n_without = 0;
    for (int64_t s = 0; ref && s < run->steps; s++) {
        const double want = sw_check_value(ref, s);
        n_without += !isfinite(want);
        if (isfinite(want)) {
            worst = sw_check_worse(worst, fabs(run->norms[s] - want) / want);
            n++;
        }
    }
    if (n > 0) {
        snprintf(row, sizeof row, "%s.grad_norm", series);
        sw_check_row(run->c, row, worst,
                     run->norm_tolerance > 0 ? run->norm_tolerance : norm_tolerance(run->c), why);
    }
    sw_check_no_norms(run->c, series, n_without);
}

static void compare_rates(struct run *run, const char *series)
{
    const struct sw_safetensor *ref = sw_check_tensor_of(run->c, run->steps, "%s.lr", series);
    char row[128];
    double worst = 0;
    for (int64_t s = 0; ref && s < run->steps; s++) {
        const double want = sw_check_value(ref, s);
        worst = sw_check_worse(worst, fabs(want != 0 ? run->lrs[s] / want - 1 : run->lrs[s]));
    }
    if (ref) {
        snprintf(row, sizeof row, "%s.lr", series);
        sw_check_row(run->c, row, worst, 1e-12, NULL);
    }
}

static void compare(struct run *run, const char *series, const char *why)
{
    compare_losses(run, series, why);
    compare_norms(run, series, why);
    compare_rates(run, series);
}

/* Compares the weights after the run. Names and offsets of parameters come from the folder. The key
 * third of c_attn.bias has a gradient of zero in exact arithmetic, and Adam amplifies its rounding
 * noise to whole updates. */
static sw_status compare_after(struct run *run)
{
    const struct sw_engine_options options = {
        .config.text = "{\"train_micro_batch_size_per_gpu\": 1}",
        .model.path = run->model,
        .inputs.seq_len = run->tokens,
        .evaluate.loss = true,
        .plan.only = true,
    };
    sw_engine *e = NULL;
    double worst = 0;
    int64_t at = 0, n_tensors = 0;
    SW_TRY(sw_initialize(&options, &e));
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const struct sw_persistent *work = sw_engine_weights(e)->params.items[i].work;
        const struct sw_safetensor *ref = sw_check_tensor(run->c, "after.%s", work->name);
        const int64_t n = sw_shape_elems(&work->layout.whole);
        const bool qkv_bias = strstr(work->name, ".attn.c_attn.bias") != NULL;
        if (ref && !sw_shape_equal(&ref->shape, &work->layout.whole)) {
            sw_check_fail(run->c, ref->name, "the model's has another shape");
            ref = NULL;
        }
        for (int64_t k = 0; ref && k < n; k++) {
            if (!qkv_bias || k < n / 3 || k >= 2 * n / 3) {
                worst = sw_check_worse(worst, fabs(run->weights[at + k] - sw_check_value(ref, k)));
            }
        }
        n_tensors += ref != NULL;
        at += n;
    }
    sw_close(e);
    if (n_tensors > 0) {
        sw_check_row(run->c, "after.*", worst, sw_check_number(run->c, "tolerance.after_abs", 1e-5),
                     NULL);
    }
    return SW_OK;
}

static sw_status check_run(void *ctx, const char *name)
{
    struct run *run = ctx;
    char config[4096];
    const char *dtype = sw_check_text(run->c, "dtype");
    const bool wide = dtype && strcmp(dtype, "float32") == 0;
    snprintf(config, sizeof config, "%s/ds_config.%s.json", run->c->path, name);
    run->config = config;
    SW_TRY(run_all(run));
    sw_check_heading(run->c, name);
    compare(run, name,
            !wide && strncmp(name, "stage0", 6) == 0
                ? "DeepSpeed's 16-bit stage 0 takes an empty step at construction"
                : NULL);
    if (strcmp(name, "stage3") == 0) {
        compare(run, "train", NULL);
        compare(run, "plain", NULL);
        compare(run, "fp32_math", NULL);
        compare(run, "fp64", wide ? NULL : "it does not round to 16 bit");
        compare(run, "plain_after_empty_step", "it repeats a defect of DeepSpeed's stage 0");
        SW_TRY(compare_after(run));
    }
    return SW_OK;
}

/* ---- the case ---- */

static void add_set(struct run *run, const char *text)
{
    run->sets[run->n_sets++] = text;
}

/* ids: [steps, ranks, accumulation, B, T] */
static sw_status take_shape(struct run *run, const struct sw_safetensor *ids)
{
    const int most = (int)SW_LEN(run->sets) - MAX_OWN_SETS;
    if (run->c->options->n_sets > most) {
        return SW_FAIL(SW_E_ARG, "--set: %d edits, at most %d for a case of several ranks",
                       run->c->options->n_sets, most);
    }
    run->steps = ids->shape.dims[0];
    run->recorded_ranks = ids->shape.dims[1];
    run->recorded_accumulation = ids->shape.dims[2];
    run->batch = ids->shape.dims[3];
    run->tokens = ids->shape.dims[4];
    run->k = run->recorded_ranks * run->recorded_accumulation;
    run->ranks = run->c->options->ranks > 0 ? run->c->options->ranks : (int)run->recorded_ranks;
    snprintf(run->micro, sizeof run->micro, "spillway.micro_batches=%lld", (long long)run->k);
    add_set(run, run->micro);
    return SW_OK;
}

static sw_status make_room(struct run *run, int64_t n_weights)
{
    run->losses = sw_alloc_zero("check", (size_t)(run->steps * run->k), sizeof *run->losses);
    run->norms = sw_alloc_zero("check", (size_t)run->steps, sizeof *run->norms);
    run->lrs = sw_alloc_zero("check", (size_t)run->steps, sizeof *run->lrs);
    run->weights = sw_alloc_zero("check", (size_t)n_weights + 1, sizeof *run->weights);
    run->n_weights = n_weights;
    return run->losses && run->norms && run->lrs && run->weights
               ? SW_OK
               : SW_FAIL(SW_E_NOMEM, "out of host memory for a run");
}

static sw_status run_init(struct run *run, struct check *c)
{
    const struct sw_safetensor *ids = sw_check_tensor(c, "train.input_ids");
    const struct sw_json *frozen = sw_json_get(sw_json_root(c->doc), "frozen_parameters");
    const char *model = sw_check_text(c, "model"), *decay_on = sw_check_text(c, "train.decay_on");
    *run = (struct run){
        .c = c, .ids = "train.input_ids", .loss_tolerance = "tolerance.train_loss_rel"};
    if (!ids || ids->shape.rank != 5 || !model) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: a case of several ranks wants train.input_ids [steps, ranks, "
                       "accumulation, B, T] and the folder of its model",
                       c->path);
    }
    SW_TRY(take_shape(run, ids));
    snprintf(run->model, sizeof run->model, "%s/%s", c->path, model);
    if (decay_on && strncmp(decay_on, "matrices", 8) == 0) {
        add_set(run, "spillway.decay_1d=false");
    }
    if (frozen && frozen->n_children > 0) {
        struct sw_str text = {0};
        sw_str_puts(&text, "spillway.frozen=");
        sw_json_write(frozen, 0, &text);
        snprintf(run->frozen, sizeof run->frozen, "%s", sw_str_text(&text));
        sw_str_fini(&text);
        add_set(run, run->frozen);
    }
    for (int i = 0; i < c->options->n_sets; i++) {
        add_set(run, c->options->sets[i]);
    }
    struct sw_hf_folder *folder = NULL;
    int64_t elems = 0;
    SW_TRY(sw_hf_folder_open(run->model, &folder));
    for (int64_t i = 0; i < sw_hf_folder_count(folder); i++) {
        elems += sw_shape_elems(&sw_hf_folder_at(folder, i)->shape);
    }
    sw_hf_folder_close(folder);
    return make_room(run, elems);
}

static void run_fini(struct run *run)
{
    sw_free(run->losses);
    sw_free(run->norms);
    sw_free(run->lrs);
    sw_free(run->weights);
    sw_free(run->config_text);
}

sw_status sw_check_ranks(struct check *c)
{
    struct run run;
    int n_runs = 0;
    sw_status st = run_init(&run, c);
    st = st < 0 ? st : sw_check_each_run(c, check_run, &run, &n_runs);
    run_fini(&run);
    return st;
}

/* ---- offload cases: weights from a formula; ranks and dtype from the name of each run ---- */

/* Largest recorded difference of the run's norms, times the factor of its loss tolerances. */
static double offload_norm_tolerance(const struct check *c, const char *name, bool wide)
{
    char path[320];
    snprintf(path, sizeof path, "runs.%s.to_stage3_without_offload.max_rel_grad_norm", name);
    return fmax(sw_check_number(c, path, 0), wide ? 2e-5 : 2e-3) * (wide ? 10 : 3);
}

/* Reads a configuration, with NVME_DIR replaced by the folder for temporary files. */
static sw_status read_config(const char *path, char **out)
{
    static const char name[] = "NVME_DIR";
    const char *folder = getenv("TMPDIR");
    struct sw_str text = {0};
    char *file = NULL;
    size_t len;
    SW_TRY(sw_file_read(path, &file, &len));
    const char *from = file;
    for (const char *at = strstr(from, name); at; at = strstr(from, name)) {
        sw_str_append(&text, from, (size_t)(at - from));
        sw_str_puts(&text, folder ? folder : "/tmp");
        from = at + sizeof name - 1;
    }
    sw_str_puts(&text, from);
    sw_free(file);
    if (text.failed) {
        sw_str_fini(&text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    }
    *out = text.ptr;
    return SW_OK;
}

static sw_status check_offload_run(void *ctx, const char *name)
{
    struct check *c = ctx;
    const bool wide = strstr(name, "_fp32.") != NULL;
    char ids_name[64], config[4096], plain[320];
    int ranks = 0;
    struct run run = {.c = c, .formula = true, .ids = ids_name};
    if (sscanf(name, "w%d_", &ranks) != 1 || ranks < 1) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: ds_config.%s.json: wanted a name that begins with w<ranks>_", c->path,
                       name);
    }
    snprintf(ids_name, sizeof ids_name, "w%d.train.input_ids", ranks);
    const struct sw_safetensor *ids = sw_check_tensor(c, "%s", ids_name);
    if (!ids || ids->shape.rank != 5) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s: wanted [steps, ranks, accumulation, B, T]", c->path,
                       ids_name);
    }
    run.loss_tolerance = wide ? "tolerance.train_loss_rel_fp32" : "tolerance.train_loss_rel_bf16";
    run.salt = (uint32_t)sw_check_number(c, "weights.salt", 0);
    run.shift = (int)sw_check_number(c, "weights.shift", 0);
    snprintf(config, sizeof config, "%s/ds_config.%s.json", c->path, name);
    snprintf(run.model, sizeof run.model, "%s/config.json", c->path);
    sw_status st = read_config(config, &run.config_text);
    st = st < 0 ? st : take_shape(&run, ids);
    for (int i = 0; i < c->options->n_sets; i++) {
        add_set(&run, c->options->sets[i]);
    }
    st = st < 0 ? st : make_room(&run, 0);
    st = st < 0 ? st : run_all(&run);
    if (st >= 0) {
        sw_check_heading(c, name);
        run.norm_tolerance = offload_norm_tolerance(c, name, wide);
        compare(&run, name, NULL);
        snprintf(plain, sizeof plain, "plain.%.*s", (int)strcspn(name, "."), name);
        compare(&run, plain, NULL);
    }
    run_fini(&run);
    return st;
}

/* Writes a model with rows that are not multiples of the disk's block. It runs with the
 * configuration of a swapping run, and must match the run without swapping. */
static sw_status write_misaligned_model(const struct check *c, char *path, size_t cap)
{
    static const char *const keys[] = {"n_layer", "n_head",     "n_embd",
                                       "n_inner", "vocab_size", "n_positions"};
    const char *folder = getenv("TMPDIR");
    struct sw_str text = {0};
    sw_str_puts(&text, "{\"model_type\": \"gpt2\"");
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        char key[64];
        snprintf(key, sizeof key, "misaligned.model.%s", keys[i]);
        sw_str_printf(&text, ", \"%s\": %.0f", keys[i], sw_check_number(c, key, 0));
    }
    sw_str_puts(&text, "}");
    snprintf(path, cap, "%s/spillway-check-%d.json", folder ? folder : "/tmp", (int)getpid());
    const sw_status st = sw_file_write_str(path, &text);
    sw_str_fini(&text);
    return st;
}

static void compare_misaligned(struct run *run)
{
    static const char *const right[] = {"plain", "none", "optimizer_cpu"};
    static const char *const wrong[] = {"optimizer_nvme", "optimizer_nvme_pipelined"};
    char series[64];
    sw_check_heading(run->c, "misaligned");
    for (size_t i = 0; i < SW_LEN(right); i++) {
        snprintf(series, sizeof series, "misaligned.%s", right[i]);
        compare(run, series, NULL);
    }
    for (size_t i = 0; i < SW_LEN(wrong); i++) {
        snprintf(series, sizeof series, "misaligned.%s", wrong[i]);
        compare(run, series, "DeepSpeed's transfers fail there, unseen: it trains on stale bytes");
    }
}

static sw_status check_misaligned(struct check *c)
{
    char config[4096];
    struct run run = {.c = c,
                      .formula = true,
                      .ids = "misaligned.train.input_ids",
                      .loss_tolerance = "tolerance.train_loss_rel_fp32",
                      /* twice the distance of the recorded in-memory runs from the plain run */
                      .norm_tolerance = 2.5e-4};
    const struct sw_safetensor *ids = sw_check_tensor(c, "%s", run.ids);
    if (!ids || ids->shape.rank != 5) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s: wanted [steps, ranks, accumulation, B, T]", c->path,
                       run.ids);
    }
    run.salt = (uint32_t)sw_check_number(c, "weights.salt", 0);
    run.shift = (int)sw_check_number(c, "misaligned.model.shift", 0);
    snprintf(config, sizeof config, "%s/ds_config.w1_fp32.optimizer_nvme.json", c->path);
    SW_TRY(write_misaligned_model(c, run.model, sizeof run.model));
    sw_status st = read_config(config, &run.config_text);
    st = st < 0 ? st : take_shape(&run, ids);
    st = st < 0 ? st : make_room(&run, 0);
    st = st < 0 ? st : run_all(&run);
    unlink(run.model);
    if (st >= 0) {
        compare_misaligned(&run);
    }
    run_fini(&run);
    return st;
}

sw_status sw_check_offload(struct check *c)
{
    int n_runs = 0;
    SW_TRY(sw_check_each_run(c, check_offload_run, c, &n_runs));
    return sw_json_get(sw_json_root(c->doc), "misaligned") ? check_misaligned(c) : SW_OK;
}
