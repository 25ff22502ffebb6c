// SPDX-License-Identifier: Apache-2.0
// Exports a checkpoint as a Hugging Face folder, or a model as ONNX: chooses the checkpoint, then
// writes its weights and the files of its run.
#include "spillway/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hf/hf.h"
#include "job/private.h"

/* Describes a checkpoint: "runs/a/checkpoint-20, step 20, validation loss 1.2345, accuracy 0.9 (128
 * of 200 rows)". The best one adds its metric: "; best by accuracy". */
static void describe(const struct sw_ckpt *ckpt, bool best, struct sw_str *out)
{
    const struct sw_ckpt_meta *meta = sw_ckpt_meta(ckpt);
    const struct sw_job_coverage coverage = sw_job_coverage_of(meta);
    char rows[64];
    sw_str_printf(out, "%s, step %lld", sw_ckpt_path(ckpt), (long long)meta->step);
    if (!isfinite(meta->val_loss)) {
        return;
    }
    sw_str_printf(out, ", validation loss %.4f", meta->val_loss);
    if (meta->metric.name) {
        sw_str_printf(out, ", %s %.4f", meta->metric.name, meta->metric.value);
    }
    sw_job_coverage_text(&coverage, rows, sizeof rows);
    sw_str_printf(out, *rows ? " (%s)" : "%s", rows);
    if (best) {
        sw_str_printf(out, "; best by %s",
                      meta->metric.name ? meta->metric.name : "validation loss");
    }
}

/* Is this the path of `best`, the name of the best checkpoint? */
static bool is_best(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && strcmp(name, "/best") == 0;
}

/* Opens a checkpoint and verifies all its files, because damage would not show in the exported
 * folder. */
static sw_status open_one(const char *path, struct sw_ckpt **out)
{
    struct sw_ckpt *ckpt = NULL;
    sw_status st = sw_ckpt_open(path, &ckpt);
    if (st != SW_PENDING) {
        st = st < 0 ? st : sw_ckpt_verify(ckpt);
        if (st < 0) {
            sw_ckpt_close(ckpt);
            return st;
        }
        *out = ckpt;
        return SW_OK;
    }
    if (is_best(path)) {
        return SW_FAIL(SW_E_IO,
                       "%.*s: no checkpoint has a validation loss; train with --eval-every",
                       (int)(strrchr(path, '/') - path), path);
    }
    return SW_FAIL(SW_E_IO, "%s: no complete checkpoint", path);
}

sw_status sw_job_export_saved(const char *path, const char *folder, enum sw_dtype dtype, char *note,
                              size_t cap)
{
    struct sw_ckpt *ckpt = NULL;
    struct sw_str text = {0};
    SW_TRY(open_one(path, &ckpt));
    describe(ckpt, is_best(path), &text);
    snprintf(note, cap, "%s", sw_str_text(&text));
    sw_str_fini(&text);
    const sw_status st = sw_weights_export_checkpoint(ckpt, folder, &dtype);
    sw_ckpt_close(ckpt);
    return st;
}

static sw_status put_tokenizer(const char *path, const char *folder)
{
    sw_tokenizer *tokenizer = NULL;
    if (!path) {
        return SW_OK;
    }
    SW_TRY(sw_tokenizer_open(path, NULL, &tokenizer));
    sw_tokenizer_remove(folder);
    const sw_status st = sw_tokenizer_save(tokenizer, folder);
    sw_tokenizer_close(tokenizer);
    return st;
}

/* Copies the files that accompany the weights from the run's folder. A tokenizer given by the user
 * replaces the run's. */
static sw_status put_beside(const char *checkpoint, const char *tokenizer_path, const char *folder)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/../tokenizer", checkpoint);
    if (n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0) {
        sw_tokenizer_remove(folder); /* left by an earlier export */
        SW_TRY(sw_hf_copy_sidecars(path, folder));
    }
    return put_tokenizer(tokenizer_path, folder);
}

static sw_status write_one(const struct sw_checkpoint_export_options *o, struct sw_ckpt *ckpt,
                           enum sw_dtype *dtype)
{
    struct sw_engine_merge m = {0};
    if (!o->merge) {
        return sw_weights_export_checkpoint(ckpt, o->folder, dtype);
    }
    SW_TRY(sw_engine_open_merge_of(ckpt, o->model, &m));
    const sw_status st = sw_weights_export_merged(m.merge, o->folder, dtype);
    sw_engine_close_merge(&m);
    return st;
}

static sw_status export_checkpoint(const struct sw_checkpoint_export_options *o,
                                   struct sw_ckpt *ckpt, FILE *out)
{
    struct sw_str note = {0};
    enum sw_dtype dtype = o->dtype < 0 ? SW_DTYPE_COUNT : (enum sw_dtype)o->dtype;
    SW_TRY(write_one(o, ckpt, &dtype));
    SW_TRY(put_beside(sw_ckpt_path(ckpt), o->tokenizer, o->folder));
    SW_TRY(sw_job_write_card(ckpt, o->folder, dtype, o->merge));
    describe(ckpt, o->best, &note);
    fprintf(out, "%s: %s weights of %s\n", o->folder, sw_dtype_name(dtype), sw_str_text(&note));
    sw_str_fini(&note);
    return SW_OK;
}

/* Does the path hold a manifest, so that it is one checkpoint and not a folder of them? */
static bool is_one(const char *path)
{
    char manifest[4096];
    const int n = snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    return n > 0 && (size_t)n < sizeof manifest && access(manifest, F_OK) == 0;
}

static bool is_adapter(const char *path)
{
    char config[4096];
    const int n = snprintf(config, sizeof config, "%s/adapter_config.json", path);
    return n > 0 && (size_t)n < sizeof config && access(config, F_OK) == 0;
}

/* Exports an adapter's folder merged into its base. */
static sw_status merge_adapter(const struct sw_checkpoint_export_options *o, FILE *out)
{
    struct sw_engine_merge m = {0};
    enum sw_dtype dtype = o->dtype < 0 ? SW_DTYPE_COUNT : (enum sw_dtype)o->dtype;
    if (!o->merge || o->best) {
        return SW_FAIL(SW_E_ARG,
                       "%s is an adapter already; --merge --model BASE makes a model of it",
                       o->path);
    }
    SW_TRY(sw_engine_open_merge(o->path, o->model, &m));
    sw_status st = sw_weights_export_merged(m.merge, o->folder, &dtype);
    if (st >= 0) {
        fprintf(out, "%s: %s weights of %s with %s added\n", o->folder, sw_dtype_name(dtype),
                sw_merge_base(m.merge), o->path);
    }
    st = st < 0 ? st : sw_job_write_merged_card(o->path, sw_merge_base(m.merge), o->folder);
    sw_engine_close_merge(&m);
    const char *own = sw_tokenizer_is_there(o->path) ? o->path : NULL; /* may not be its base's */
    return st < 0 ? st : put_tokenizer(o->tokenizer ? o->tokenizer : own, o->folder);
}

/* Opens the checkpoint that a path stands for, or the best one of a folder. */
static sw_status open_path(const char *path, bool want_best, struct sw_ckpt **out)
{
    struct sw_str best = {0};
    if (want_best && is_one(path)) {
        return SW_FAIL(SW_E_ARG,
                       "--best chooses among the checkpoints of a folder, and %s is one of them",
                       path);
    }
    sw_str_puts(&best, path);
    while (best.len > 1 && best.ptr[best.len - 1] == '/') {
        best.ptr[--best.len] = '\0';
    }
    sw_str_puts(&best, want_best ? "/best" : "");
    const sw_status st = best.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path")
                                     : open_one(best.ptr, out);
    sw_str_fini(&best);
    return st;
}

sw_status sw_checkpoint_export(const struct sw_checkpoint_export_options *options, FILE *out)
{
    struct sw_ckpt *ckpt = NULL;
    SW_TRY_OPTIONS(options);
    if (options->model && !options->merge) {
        return SW_FAIL(SW_E_ARG, "--model is the base of adapters; it needs --merge");
    }
    if (is_adapter(options->path)) {
        return merge_adapter(options, out);
    }
    if (sw_onnx_is_file(options->path)) {
        return SW_FAIL(SW_E_ARG, "%s: a graph has no family; --onnx DIR writes it", options->path);
    }
    SW_TRY(open_path(options->path, options->best, &ckpt));
    const sw_status st = export_checkpoint(options, ckpt, out);
    sw_ckpt_close(ckpt);
    return st;
}

/* ---- ONNX ---- */

/* An export, and the file of random batches that verifies it. */
struct onnx_job {
    struct sw_engine_onnx to;
    struct sw_onnx_summary summary;
    char case_path[4096]; /* "" = none */
};

static void begin_onnx(const struct sw_onnx_options *o, struct onnx_job *job)
{
    *job = (struct onnx_job){.to = {.folder = o->folder,
                                    .dtype = o->dtype < 0 ? SW_F32 : (enum sw_dtype)o->dtype,
                                    .opset = o->opset > 0 ? o->opset : SW_ONNX_OPSET,
                                    .is_asked = o->opset > 0 || o->dtype >= 0}};
    if (o->verify) {
        snprintf(job->case_path, sizeof job->case_path, "%s/.verify.safetensors", o->folder);
        job->to.case_path = job->case_path;
    }
}

/* Runs the script on the case. Its last line says what it found. */
static sw_status run_script(const struct onnx_job *job, FILE *out)
{
    enum { SKIPPED = 77 };
    const char *within = job->to.dtype == SW_F32   ? "1e-4"
                         : job->to.dtype == SW_F16 ? "0.05"
                                                   : "0.5";
    char script[4096];
    pid_t pid;
    int status = -1;
    if (!sw_share_find("onnx_verify.py", script, sizeof script)) {
        return SW_FAIL(SW_E_IO, "%s: the script that verifies an export is missing", script);
    }
    char *const words[] = {"python3",      script, (char *)job->to.folder, (char *)job->case_path,
                           (char *)within, NULL};
    fflush(out);
    if (posix_spawnp(&pid, words[0], NULL, NULL, words, environ) != 0) {
        fprintf(out, "not verified: there is no python3 in PATH\n");
        return SW_OK;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SKIPPED)) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_PEER, "%s: ONNX Runtime %s the model that was exported", job->to.folder,
                   WIFEXITED(status) && WEXITSTATUS(status) == 1 ? "does not agree with"
                                                                 : "did not run");
}

static sw_status end_onnx(const struct onnx_job *job, sw_status st, FILE *out)
{
    st = st < 0 || !*job->case_path ? st : run_script(job, out);
    if (*job->case_path) {
        unlink(job->case_path);
    }
    return st;
}

static void print_onnx(const struct sw_engine_onnx *to, const struct sw_onnx_summary *summary,
                       const char *from, FILE *out)
{
    char bytes[32];
    for (int i = 0; i < summary->n_files; i++) {
        fprintf(out, "%s%s/%s", i > 0 ? ", " : "", to->folder, summary->files[i]);
    }
    fprintf(out, ": opset %d, %lld nodes, %lld weights%s%s, %s%s; of %s\n", summary->opset,
            (long long)summary->nodes, (long long)summary->weights,
            summary->is_rewritten ? "" : " in ",
            summary->is_rewritten ? "" : sw_dtype_name(to->dtype),
            sw_format_bytes(bytes, sizeof bytes, (double)summary->bytes),
            summary->external ? ", weights in .data" : "", from);
}

static sw_status onnx_checkpoint(const struct sw_onnx_options *o, struct sw_ckpt *ckpt, FILE *out)
{
    struct onnx_job job;
    struct sw_str note = {0};
    begin_onnx(o, &job);
    sw_status st = sw_engine_onnx_checkpoint(ckpt, o->model, &job.to, &job.summary);
    st = st < 0 ? st : put_beside(sw_ckpt_path(ckpt), o->tokenizer, o->folder);
    if (st >= 0) {
        describe(ckpt, o->best, &note);
        print_onnx(&job.to, &job.summary, sw_str_text(&note), out);
    }
    sw_str_fini(&note);
    return end_onnx(&job, st, out);
}

/* A folder with a model, or with adapters, is no checkpoint. */
static sw_status onnx_folder(const struct sw_onnx_options *o, FILE *out)
{
    struct onnx_job job;
    if (o->best) {
        return SW_FAIL(SW_E_ARG, "--best chooses among checkpoints, and %s is a model", o->path);
    }
    begin_onnx(o, &job);
    sw_status st = is_adapter(o->path)
                       ? sw_engine_onnx_adapter(o->path, o->model, &job.to, &job.summary)
                       : sw_engine_onnx_folder(o->path, &job.to, &job.summary);
    st = st < 0 ? st : put_tokenizer(o->tokenizer, o->folder);
    if (st >= 0) {
        print_onnx(&job.to, &job.summary, o->path, out);
    }
    return end_onnx(&job, st, out);
}

static bool is_model(const char *path)
{
    char config[4096];
    const int n = snprintf(config, sizeof config, "%s/config.json", path);
    return n > 0 && (size_t)n < sizeof config && access(config, F_OK) == 0;
}

sw_status sw_export_onnx(const struct sw_onnx_options *options, FILE *out)
{
    struct sw_ckpt *ckpt = NULL;
    SW_TRY_OPTIONS(options);
    if (is_adapter(options->path) || is_model(options->path) || sw_onnx_is_file(options->path)) {
        return onnx_folder(options, out);
    }
    SW_TRY(open_path(options->path, options->best, &ckpt));
    const sw_status st = onnx_checkpoint(options, ckpt, out);
    sw_ckpt_close(ckpt);
    return st;
}
