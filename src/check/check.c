// SPDX-License-Identifier: Apache-2.0
// `spillway check`: opens a recorded case, detects its kind, and prints rows. At the end it names
// every recorded tensor that was not used, because an unused tensor would look like a pass.
#include "check/private.h"

#include <glob.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- rows ---- */

void sw_check_row(struct check *c, const char *quantity, double error, double tolerance,
                  const char *why)
{
    const bool passed = error <= tolerance;
    c->n_rows++;
    c->n_failed += !passed && !why;
    fprintf(c->out, "  %-48s %11.3g %11.3g  %s%s%s\n", quantity, error, tolerance,
            passed ? "pass" : (why ? "differs" : "FAIL"), why ? "; does not decide: " : "",
            why ? why : "");
}

void sw_check_fail(struct check *c, const char *quantity, const char *why)
{
    c->n_rows++;
    c->n_failed++;
    fprintf(c->out, "  %-48s %23s  FAIL: %s\n", quantity, "", why);
}

sw_status sw_check_note(struct check *c, sw_status st, const char *prefix)
{
    if (!c->comm || st != SW_E_UNSUP) {
        return st;
    }
    fprintf(c->out, "  %s*: not compared: %s\n", prefix, sw_error_message());
    sw_check_understand(c, prefix);
    sw_check_understand(c, "aux.");
    return SW_OK;
}

void sw_check_heading(struct check *c, const char *run)
{
    fprintf(c->out, "  run %s\n", run);
}

double sw_check_worse(double worst, double error)
{
    return isnan(worst) || isnan(error) ? NAN : fmax(worst, error);
}

void sw_check_no_norms(struct check *c, const char *series, int64_t n)
{
    char row[192];
    snprintf(row, sizeof row, "%s.grad_norm (steps recorded without)", series);
    if (n > 0) {
        sw_check_row(c, row, (double)n, 0, "there is nothing to compare");
    }
}

/* ---- the recording ---- */

static void mark(struct check *c, const struct sw_safetensor *tensor)
{
    c->understood[tensor - sw_safetensors_at(c->ref, 0)] = true;
}

const struct sw_safetensor *sw_check_tensor(struct check *c, const char *fmt, ...)
{
    char name[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    const struct sw_safetensor *tensor = sw_safetensors_find(c->ref, name);
    if (tensor) {
        mark(c, tensor);
    }
    return tensor;
}

const struct sw_safetensor *sw_check_tensor_of(struct check *c, int64_t elems, const char *fmt, ...)
{
    char name[512], why[96];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    const struct sw_safetensor *tensor = sw_check_tensor(c, "%s", name);
    if (!tensor || sw_check_elems(tensor) == elems) {
        return tensor;
    }
    snprintf(why, sizeof why, "%lld values recorded, wanted %lld",
             (long long)sw_check_elems(tensor), (long long)elems);
    sw_check_fail(c, name, why);
    return NULL;
}

double sw_check_value(const struct sw_safetensor *tensor, int64_t i)
{
    return sw_load_f64(tensor->dtype, tensor->data, i);
}

int64_t sw_check_elems(const struct sw_safetensor *tensor)
{
    return sw_shape_elems(&tensor->shape);
}

double sw_check_number(const struct check *c, const char *path, double fallback)
{
    const struct sw_json *value = sw_json_path(sw_json_root(c->doc), path);
    const bool number = value && (value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT);
    return number ? value->number : fallback;
}

const char *sw_check_text(const struct check *c, const char *path)
{
    const struct sw_json *value = sw_json_path(sw_json_root(c->doc), path);
    return value && value->type == SW_JSON_STRING ? value->string : NULL;
}

void sw_check_understand(struct check *c, const char *prefix)
{
    for (int64_t i = 0; i < sw_safetensors_count(c->ref); i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(c->ref, i);
        if (strncmp(tensor->name, prefix, strlen(prefix)) == 0) {
            mark(c, tensor);
        }
    }
}

/* ---- running ---- */

sw_status sw_check_engine(const struct check *c, struct sw_engine_options options, sw_engine **out)
{
    options.run.comm = c->comm;
    options.config.sets = c->options->sets;
    options.config.n_sets = c->options->n_sets;
    options.train.no_dropout = true; /* recordings are made without dropout */
    options.model.task = c->asked;
    options.model.adapter = c->adapter[0] ? c->adapter : NULL;
    return sw_initialize(&options, out);
}

bool sw_check_is_packed(const struct check *c)
{
    return sw_safetensors_find(c->ref, "input.segment_ids") ||
           sw_safetensors_find(c->ref, "train.segment_ids");
}

sw_status sw_check_train_config(const struct check *c, int64_t batch, int64_t micro_batches,
                                const struct check_meaning *meaning, char *buf, size_t cap)
{
    const char *optimizer = sw_check_text(c, "train.optimizer");
    const char *decay_on = sw_check_text(c, "train.decay_on");
    const struct sw_json *betas = sw_json_path(sw_json_root(c->doc), "train.betas");
    const bool adam = optimizer && strcmp(optimizer, "Adam") == 0;
    const bool adamw = optimizer && strcmp(optimizer, "AdamW") == 0;
    if (!adam && !adamw && !(optimizer && strcmp(optimizer, "SGD") == 0)) {
        return SW_FAIL(SW_E_UNSUP, "%s: train.optimizer \"%s\" is not one this check runs", c->path,
                       optimizer ? optimizer : "");
    }
    char params[256], decay[48] = "";
    if (!meaning->sparse) {
        snprintf(decay, sizeof decay, ", \"weight_decay\": %.17g",
                 sw_check_number(c, "train.weight_decay", 0));
    }
    if (adam || adamw) { /* torch's Adam adds weight decay to the gradient */
        snprintf(params, sizeof params,
                 "\"lr\": %.17g, \"betas\": [%.17g, %.17g], \"eps\": %.17g%s",
                 sw_check_number(c, "train.lr", 1e-3),
                 betas && betas->first ? betas->first->number : 0.9,
                 betas && betas->last ? betas->last->number : 0.999,
                 sw_check_number(c, "train.eps", 1e-8),
                 adam && !meaning->sparse ? ", \"adam_w_mode\": false" : "");
    } else {
        snprintf(params, sizeof params, "\"lr\": %.17g, \"momentum\": %.17g",
                 sw_check_number(c, "train.lr", 1e-3), sw_check_number(c, "train.momentum", 0));
    }
    snprintf(buf, cap,
             "{\"train_micro_batch_size_per_gpu\": %lld, \"gradient_clipping\": %.17g, "
             "\"optimizer\": {\"type\": \"%s\", \"params\": {%s"
             "%s}}, \"spillway\": {\"micro_batches\": %lld, \"decay_1d\": %s, \"loss\": \"%s\", "
             "\"packing\": %s, \"label_smoothing\": %.17g}}",
             (long long)batch, sw_check_number(c, "train.clip", 0),
             meaning->sparse ? "SparseAdam" : optimizer, params, decay, (long long)micro_batches,
             decay_on && strncmp(decay_on, "matrices", 8) == 0 ? "false" : "true",
             meaning->tokens ? "tokens" : "microbatch", sw_check_is_packed(c) ? "true" : "false",
             sw_check_number(c, "label_smoothing", 0));
    return SW_OK;
}

sw_status sw_check_each_run(const struct check *c, sw_status (*visit)(void *ctx, const char *run),
                            void *ctx, int *out_n)
{
    static const char prefix[] = "/ds_config.", suffix[] = ".json";
    struct sw_str pattern = {0};
    /* matches patterns inside the path, but not the folder's own name */
    for (const char *p = c->path; *p; p++) {
        sw_str_printf(&pattern, strchr("*?[\\", *p) ? "\\%c" : "%c", *p);
    }
    sw_str_printf(&pattern, "%s*%s", prefix, suffix);
    sw_status st = pattern.failed ? SW_FAIL(SW_E_NOMEM, "%s: out of host memory", c->path) : SW_OK;
    glob_t found = {0};
    *out_n = 0;
    if (st >= 0 && glob(sw_str_text(&pattern), 0, NULL, &found) == 0) {
        for (size_t i = 0; st >= 0 && i < found.gl_pathc; i++) {
            const char *name = strrchr(found.gl_pathv[i], '/') + sizeof prefix - 1;
            char run[256];
            snprintf(run, sizeof run, "%.*s", (int)(strlen(name) - (sizeof suffix - 1)), name);
            st = visit(ctx, run);
            (*out_n)++;
        }
    }
    globfree(&found);
    sw_str_fini(&pattern);
    return st;
}

void sw_check_shared_path(const char *name, char *buf, size_t cap)
{
    const char *root = getenv("SPILLWAY_FIXTURES");
    if (strncmp(name, "shared/", 7) != 0) {
        snprintf(buf, cap, "%s", name);
    } else if (root && root[0]) {
        snprintf(buf, cap, "%s/../%s", root, name + 7);
    } else {
        snprintf(buf, cap, "../shared/%s", name + 7);
    }
}

/* ---- the case ---- */

static sw_status open_case(struct check *c)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/reference.json", c->path);
    SW_TRY(sw_json_read(path, SW_JSON_STRICT, &c->doc));
    snprintf(path, sizeof path, "%s/reference.safetensors", c->path);
    SW_TRY(sw_safetensors_open(path, &c->ref));
    c->understood =
        sw_alloc_zero("check", (size_t)sw_safetensors_count(c->ref) + 1, sizeof *c->understood);
    SW_TRY_ALLOC(c->understood, "a recorded case");
    return sw_check_reference(c);
}

static void close_case(struct check *c)
{
    sw_safetensors_close(c->ref);
    sw_json_close(c->doc);
    sw_free(c->understood);
}

/* A rank of a model case. The first one prints and has the verdict. */
static sw_status run_rank(void *ctx, sw_comm *comm)
{
    struct check *first = ctx;
    if (sw_comm_rank(comm) == 0) {
        first->comm = comm;
        return sw_check_model(first);
    }
    struct check c = {.path = first->path, .options = first->options, .comm = comm};
    c.out = fopen("/dev/null", "w");
    sw_status st = c.out ? open_case(&c) : SW_FAIL(SW_E_IO, "/dev/null: cannot open it");
    st = st < 0 ? st : sw_check_model(&c);
    close_case(&c);
    if (c.out) {
        fclose(c.out);
    }
    return st;
}

static sw_status run_model(struct check *c)
{
    enum { DEADLINE_S = 300 }; /* a case is short, so a long wait means a failure */
    return c->options->ranks > 1 ? sw_threads_run(c->options->ranks, DEADLINE_S, run_rank, c)
                                 : sw_check_model(c);
}

static sw_status run_case(struct check *c)
{
    SW_TRY(open_case(c));
    const char *what = sw_check_text(c, "what");
    fprintf(c->out, "%s%s%s\n  %-48s %11s %11s\n", c->path, what ? ": " : "", what ? what : "",
            "quantity", "error", "tolerance");
    const struct sw_json *root = sw_json_root(c->doc);
    if (sw_json_get(root, "optimizer")) {
        SW_TRY(sw_check_optimizer(c));
    } else if (sw_json_path(root, "data.text")) {
        SW_TRY(sw_check_curve(c));
    } else if (sw_json_path(root, "weights.formula")) {
        SW_TRY(sw_check_offload(c));
    } else if (sw_json_get(root, "ranks")) {
        SW_TRY(sw_check_ranks(c));
    } else {
        SW_TRY(run_model(c));
    }
    for (int64_t i = 0; i < sw_safetensors_count(c->ref); i++) {
        if (!c->understood[i]) {
            sw_check_fail(c, sw_safetensors_at(c->ref, i)->name, "recorded, but not understood");
        }
    }
    if (c->n_rows == 0) {
        sw_check_fail(c, "the case", "nothing in it could be compared");
    }
    return SW_OK;
}

sw_status sw_check_case(const char *path, const struct sw_check_options *options, FILE *out,
                        int *out_failed)
{
    static const struct sw_check_options as_recorded;
    struct check c = {.path = path, .options = options ? options : &as_recorded, .out = out};
    const sw_status st = run_case(&c);
    close_case(&c);
    *out_failed = c.n_failed;
    return st;
}
