// SPDX-License-Identifier: Apache-2.0
// The reference of a training on preferences: the base without its adapter, or another model. Its
// log-probabilities of all rows are computed once, before the training's engine opens, and kept in
// OUTPUT/reference.bin. The two models are never in memory at the same time.
//
// The file: a line of text with the digest of what they were computed from, a hash of the rows, the
// numbers of rows of both splits and a digest of the values; then the values, two f32 a sample.
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job/training.h"
#include "spillway/comm.h"

static bool has_reference(const struct job *job)
{
    return sw_task_input_of(job->task.task, SW_TASK_REFERENCE) != NULL;
}

static void path_of(const struct job *job, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s/reference.bin", job->options->output);
}

/* ---- what the values depend on ---- */

/* The model of the reference, by the configuration; out->name "": the training's own base. */
static sw_status find_model(const struct job *job, struct sw_str *out)
{
    const struct sw_train_options *o = job->options;
    struct sw_config *c = NULL;
    const char *text = o->config_text ? o->config_text : "{}";
    SW_TRY(o->config_path
               ? sw_config_load(o->config_path, o->sets, o->n_sets, &c)
               : sw_config_parse("configuration", text, strlen(text), o->sets, o->n_sets, &c));
    const char *given = c->spillway.preference.reference;
    sw_str_puts(out, given ? given : o->model);
    sw_config_close(c);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path") : SW_OK;
}

/* Size and time of each file of a folder, in any order. */
static uint64_t hash_folder(const char *folder)
{
    uint64_t h = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char path[PATH_MAX];
        struct stat st;
        const int n = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (n < (int)sizeof path && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            const int64_t words[] = {st.st_size, st.st_mtime};
            h ^= sw_hash(sw_hash_str(0, entry->d_name), words, sizeof words);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return h;
}

static void key_of(const struct job *job, const char *model, char out[33])
{
    const struct sw_train_options *o = job->options;
    struct sw_str key = {0};
    uint8_t digest[16];
    char *file = NULL;
    size_t len = 0;
    sw_str_printf(&key, "%s;%016llx;%s;%lld;%lld;", model, (unsigned long long)hash_folder(model),
                  job->task.task->name, (long long)o->seq_len,
                  o->has_seed ? (long long)o->seed : -1);
    if (o->config_path && sw_file_read(o->config_path, &file, &len) == SW_OK) {
        sw_str_append(&key, file, len);
        sw_free(file);
    }
    sw_str_puts(&key, o->config_text ? o->config_text : "");
    for (int i = 0; i < o->n_sets; i++) {
        sw_str_printf(&key, ";%s", o->sets[i]);
    }
    sw_blake2s(NULL, 0, sw_str_text(&key), key.len, digest, sizeof digest);
    sw_str_fini(&key);
    sw_hex_write(digest, sizeof digest, out);
}

/* ---- the file ---- */

struct sw_job_reference {
    char key[33];
    uint64_t rows; /* hash of the rows */
    int64_t n[2];  /* samples by split */
    bool has_values;
    float *values; /* [n[0] + n[1], 2] */
};

enum { LINE = 192 };

static int64_t n_values(const struct sw_job_reference *r)
{
    return 2 * (r->n[0] + r->n[1]);
}

static void write_line(const struct sw_job_reference *r, char line[LINE])
{
    uint8_t digest[8];
    char hex[17];
    sw_blake2s(NULL, 0, r->values, (size_t)n_values(r) * sizeof *r->values, digest, sizeof digest);
    sw_hex_write(digest, sizeof digest, hex);
    const int n =
        snprintf(line, LINE, "spillway-reference 1 %s %016llx %lld %lld %s", r->key,
                 (unsigned long long)r->rows, (long long)r->n[0], (long long)r->n[1], hex);
    memset(line + n, ' ', (size_t)(LINE - 1 - n));
    line[LINE - 1] = '\n';
}

/* Takes over a file that has this key and whose values are whole; else has_values stays false. */
static void read_file(const char *path, struct sw_job_reference *r)
{
    char *data = NULL, key[33] = "", line[LINE];
    size_t len = 0;
    unsigned long long rows = 0;
    long long n[2] = {0};
    if (access(path, R_OK) != 0 || sw_file_read(path, &data, &len) != SW_OK) {
        return;
    }
    memcpy(line, data, sw_min_i64((int64_t)len, LINE));
    line[LINE - 1] = '\0';
    if (len >= LINE &&
        sscanf(line, "spillway-reference 1 %32s %llx %lld %lld", key, &rows, &n[0], &n[1]) == 4 &&
        strcmp(key, r->key) == 0 && n[0] >= 0 && n[1] >= 0 &&
        len == LINE + 2 * (size_t)(n[0] + n[1]) * sizeof *r->values) {
        struct sw_job_reference found = *r;
        found.rows = rows;
        found.n[0] = n[0];
        found.n[1] = n[1];
        found.values = sw_alloc("reference", len);
        if (found.values) {
            memcpy(found.values, data + LINE, len - LINE);
            write_line(&found, line);
            found.has_values = memcmp(line, data, LINE) == 0;
        }
        if (found.has_values) {
            *r = found;
        } else {
            sw_free(found.values);
        }
    }
    if (!r->has_values) {
        sw_log(SW_LOG_WARN, "%s: of another model or configuration, or damaged: computed again",
               path);
    }
    sw_free(data);
}

static sw_status write_file(const char *path, const struct sw_job_reference *r)
{
    char line[LINE];
    struct sw_output out;
    write_line(r, line);
    SW_TRY(sw_output_open(path, false, &out));
    sw_status st = sw_output_begin(&out);
    st = st < 0 ? st : sw_output_add(&out, line, LINE);
    st = st < 0 ? st : sw_output_add(&out, r->values, (size_t)n_values(r) * sizeof *r->values);
    st = st < 0 ? st : sw_output_commit(&out, true);
    sw_output_close(&out);
    return st;
}

/* All ranks take what rank 0 has read. */
static sw_status share(const struct job *job, struct sw_job_reference *r)
{
    if (!job->comm) {
        return SW_OK;
    }
    struct sw_job_reference mine = *r;
    SW_TRY(sw_comm_broadcast(job->comm, 0, &mine, sizeof mine, "the reference"));
    mine.values = r->values;
    *r = mine;
    if (r->has_values && !r->values) {
        r->values = sw_alloc("reference", (size_t)n_values(r) * sizeof *r->values + 1);
    }
    const sw_status st = !r->has_values || r->values
                             ? SW_OK
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for the reference");
    SW_TRY(sw_comm_agree(job->comm, st, "the reference"));
    return r->has_values
               ? sw_comm_broadcast(job->comm, 0, r->values, (size_t)n_values(r) * sizeof *r->values,
                                   "the reference")
               : SW_OK;
}

/* ---- computing them ---- */

/* Computes the values of a split: micro-batch k by data rank k % R, as in a step, so that they do
 * not depend on the number of ranks. */
static sw_status compute_split(struct job *job, enum sw_split split, float *out)
{
    const int ranks = job->facts.data.size;
    const int64_t n = sw_dataset_n_samples(job->dataset, split), batch = job->batch;
    const int64_t rounds = sw_ceil_div(sw_ceil_div(n, batch), ranks), width = 2 * batch;
    const size_t slice = (size_t)(rounds * width) * sizeof *out;
    double sums[SW_ENGINE_MAX_SUMS];
    sw_status st = SW_OK;
    float *mine = sw_alloc("reference", slice + 1);
    float *all = sw_alloc("reference", slice * (size_t)job->facts.world.size + 1);
    SW_TRY_OR(done, mine && all ? SW_OK
                                : SW_FAIL(SW_E_NOMEM, "out of host memory for the "
                                                      "reference's log-probabilities"));
    for (int64_t j = 0; j < rounds; j++) {
        const int64_t k = j * ranks + job->facts.data.rank;
        sw_work_at("reference log-probabilities", j, rounds);
        SW_TRY_OR(done,
                  sw_job_rows_fetch_in_order(&job->rows, job->dataset, split, k * batch, batch));
        SW_TRY_OR(done, sw_engine_evaluate(job->engine, &job->rows.batches[0], sums));
        SW_TRY_OR(done, sw_engine_evaluated(job->engine, "log_probs", mine + j * width));
    }
    if (job->facts.world.size > 1) {
        SW_TRY_OR(done, sw_comm_all_gather(job->comm, mine, all, slice, "the reference"));
    } else {
        memcpy(all, mine, slice);
    }
    sw_job_in_order(job, all, n, 2, out);
done:
    sw_work_end();
    sw_free(mine);
    sw_free(all);
    return st;
}

static sw_status compute(struct job *job, const char *model, struct sw_job_reference *r)
{
    char path[PATH_MAX];
    SW_TRY(sw_job_open_reference(job, model));
    SW_TRY(sw_job_open_dataset(job));
    SW_TRY(sw_job_rows_open(job->task.task, &job->facts, 1, &job->rows));
    r->rows = sw_dataset_hash_sides(job->dataset);
    for (int i = 0; i < 2; i++) {
        r->n[i] = sw_dataset_n_samples(job->dataset, (enum sw_split)i);
    }
    r->values = sw_alloc("reference", (size_t)n_values(r) * sizeof *r->values + 1);
    SW_TRY_ALLOC(r->values, "the reference's log-probabilities");
    SW_TRY(compute_split(job, SW_SPLIT_TRAIN, r->values));
    SW_TRY(compute_split(job, SW_SPLIT_VAL, r->values + 2 * r->n[0]));
    r->has_values = true;
    path_of(job, path, sizeof path);
    const sw_status st = job->leads ? write_file(path, r) : SW_OK;
    return job->comm ? sw_comm_agree(job->comm, st, "writing the reference") : st;
}

sw_status sw_job_prepare_reference(struct job *job)
{
    char path[PATH_MAX];
    struct sw_str model = {0};
    if (!has_reference(job)) {
        return SW_OK;
    }
    struct sw_job_reference *r = sw_alloc_zero("reference", 1, sizeof *r);
    SW_TRY_ALLOC(r, "the reference");
    job->task.reference = r;
    sw_status st = find_model(job, &model);
    if (st >= 0) {
        key_of(job, sw_str_text(&model), r->key);
        path_of(job, path, sizeof path);
        if (job->leads) {
            read_file(path, r);
        }
        st = share(job, r);
    }
    if (st >= 0 && !r->has_values) {
        st = compute(job, sw_str_text(&model), r);
        sw_job_rows_close(&job->rows);
        sw_close(job->engine);
        job->engine = NULL;
    }
    sw_str_fini(&model);
    return st;
}

sw_status sw_job_give_reference(struct job *job)
{
    const struct sw_job_reference *r = job->task.reference;
    if (!r) {
        return SW_OK;
    }
    if (r->rows != sw_dataset_hash_sides(job->dataset)) {
        char path[PATH_MAX];
        path_of(job, path, sizeof path);
        return SW_FAIL(SW_E_CONFIG,
                       "%s: its log-probabilities are those of other rows (%lld and %lld samples); "
                       "remove it, or give the same --data",
                       path, (long long)r->n[0], (long long)r->n[1]);
    }
    SW_TRY(sw_dataset_set_reference(job->dataset, SW_SPLIT_TRAIN, r->values));
    return sw_dataset_set_reference(job->dataset, SW_SPLIT_VAL, r->values + 2 * r->n[0]);
}

void sw_job_close_reference(struct job *job)
{
    if (job->task.reference) {
        sw_free(job->task.reference->values);
        sw_free(job->task.reference);
    }
}
