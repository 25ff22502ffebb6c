// SPDX-License-Identifier: Apache-2.0
// Datasets: files -> a corpus (a stream cut into windows, or one row per document) -> numbered
// samples. Window w is tokens w T .. w T + T. Neighbours share one token, so every token but the
// first is a label exactly once per epoch.
#include "data/data.h"

#include "data/order.h"
#include "data/pack.h"
#include "data/rows.h"
#include "data/shuffle.h"
#include "data/source.h"
#include "data/stream.h"
#include "data/task_rows.h"

#include <math.h>
#include <string.h>

enum corpus_shape { SHAPE_UNKNOWN, SHAPE_STREAM, SHAPE_ROWS, SHAPE_TASK };

struct corpus {
    enum corpus_shape shape; /* by the first document; all others must agree */
    bool templated;          /* has texts in the tokenizer's template */
    struct sw_stream stream;
    struct sw_rows rows;
    struct sw_task_rows of_task;
};

/* n samples of one corpus from `first` on. If packed: n rows of documents from `first` on. */
struct piece {
    const struct corpus *corpus;
    int64_t first, n;
    int64_t before; /* samples of the split in earlier pieces */
    bool packed;
    struct sw_packing packing;
};

/* The samples of a split: those of the corpora, one after the other. */
struct part {
    struct piece *pieces; /* [n_pieces] owned */
    int n_pieces;
    int64_t n; /* samples of all of them */
};

struct sw_dataset {
    struct corpus *corpora;   /* [n_corpora] one, or one for each weight */
    struct corpus val_corpus; /* used only with separate validation files */
    int n_corpora;
    struct part parts[2]; /* by enum sw_split */
    struct sw_mix mix;    /* shares of the corpora in the training order */
    /* Samples of a batch, and samples among which batches of similar lengths are made; 0 = none. */
    int64_t batch, group;
    int64_t seq_len;
    uint64_t seed;
    int32_t pad;                /* padding id; excluded from the loss */
    const struct sw_task *task; /* the task of the rows; default: next-token prediction */
    struct sw_task_form form;   /* settings of the task's rows */
    float *reference[2];        /* by split: [n, 2] of preferences; NULL = not set */
};

static void corpus_fini(struct corpus *corpus)
{
    sw_stream_fini(&corpus->stream);
    sw_rows_fini(&corpus->rows);
    sw_task_rows_fini(&corpus->of_task);
}

static void part_fini(struct part *part)
{
    for (int i = 0; i < part->n_pieces; ++i) {
        sw_packing_fini(&part->pieces[i].packing);
    }
    sw_free(part->pieces);
    *part = (struct part){0};
}

void sw_dataset_close(struct sw_dataset *dataset)
{
    if (dataset) {
        for (int i = 0; i < dataset->n_corpora; ++i) {
            corpus_fini(&dataset->corpora[i]);
        }
        sw_free(dataset->corpora);
        corpus_fini(&dataset->val_corpus);
        part_fini(&dataset->parts[SW_SPLIT_TRAIN]);
        part_fini(&dataset->parts[SW_SPLIT_VAL]);
        sw_mix_fini(&dataset->mix);
        sw_task_form_fini(&dataset->form);
        sw_free(dataset->reference[SW_SPLIT_TRAIN]);
        sw_free(dataset->reference[SW_SPLIT_VAL]);
        sw_free(dataset);
    }
}

/* ---- reading files ---- */

struct reading {
    struct corpus *corpus;
    struct sw_tokenizer *tokenizer;
    struct sw_chat *chat;   /* NULL: prompts and completions are joined as they are */
    enum sw_chat_form form; /* form of the file's first chat line */
    struct sw_chat_row row; /* scratch */
    int64_t vocab_size, seq_len;
    bool as_text, packing;
    struct sw_ids ids;  /* scratch */
    struct sw_str text; /* scratch */
    int64_t n_merged;   /* examples whose prompt is cut by a token of the completion */
};

static const char *rows_name(const struct reading *in, bool many)
{
    if (in->chat) {
        return many ? "chats" : "a chat";
    }
    return many ? "prompts and completions" : "prompt and completion";
}

static sw_status set_shape(struct reading *in, enum corpus_shape shape, const char *name)
{
    if (in->corpus->shape != SHAPE_UNKNOWN && in->corpus->shape != shape) {
        return SW_FAIL(SW_E_CONFIG, "%s: %s among %s; give them to two runs", name,
                       shape == SHAPE_STREAM ? "running text" : rows_name(in, false),
                       shape == SHAPE_STREAM ? rows_name(in, true) : "running text");
    }
    in->corpus->shape = shape;
    return SW_OK;
}

static sw_status check_ids(const struct reading *in, const char *name, const struct sw_ids *ids)
{
    for (int64_t i = 0; i < ids->len; ++i) {
        if (ids->ptr[i] >= in->vocab_size) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s: the tokenizer gives the id %d, wanted below the vocabulary's %lld",
                           name, ids->ptr[i], (long long)in->vocab_size);
        }
    }
    return SW_OK;
}

/* Encodes a document with the tokenizer's template. */
static sw_status encode(struct reading *in, const struct sw_document *document, struct sw_ids *out)
{
    sw_ids_clear(out);
    in->corpus->templated = true;
    const sw_status st =
        sw_tokenizer_encode(in->tokenizer, document->text, document->text_len, true, out);
    return st < 0 ? sw_fail_prefix(st, "%s", document->name) : check_ids(in, document->name, out);
}

/* Adds a row of `ids`. The loss counts tokens after the first n_prompt. */
static sw_status add_row(struct reading *in, int64_t n_prompt)
{
    const int64_t n = in->ids.len;
    float *weights = sw_alloc("rows", ((size_t)n + 1) * sizeof *weights);
    SW_TRY_ALLOC(weights, "the rows");
    for (int64_t i = 0; i < n; ++i) {
        weights[i] = i >= n_prompt;
    }
    const sw_status st = sw_rows_add(&in->corpus->rows, in->ids.ptr, weights, n, in->seq_len + 1);
    sw_free(weights);
    return st;
}

/* Adds a text as its own row. */
static sw_status add_text_row(struct reading *in, const struct sw_document *document)
{
    SW_TRY(set_shape(in, SHAPE_ROWS, document->name));
    SW_TRY(encode(in, document, &in->ids));
    if (!sw_tokenizer_has_end(in->tokenizer)) {
        SW_TRY(sw_tokenizer_push_end(in->tokenizer, &in->ids));
    }
    return add_row(in, 0);
}

static sw_status add_text(struct reading *in, const struct sw_document *document)
{
    struct sw_stream *stream = &in->corpus->stream;
    const int32_t eos = sw_tokenizer_has_end(in->tokenizer) ? -1 : sw_tokenizer_eos(in->tokenizer);
    if (in->packing) {
        return add_text_row(in, document);
    }
    SW_TRY(set_shape(in, SHAPE_STREAM, document->name));
    SW_TRY(encode(in, document, &in->ids));
    if (stream->n > 0 && eos >= 0) {
        SW_TRY(sw_stream_add(stream, document->name, &eos, 1));
    }
    return sw_stream_add(stream, document->name, in->ids.ptr, in->ids.len);
}

static sw_status add_example(struct reading *in, const struct sw_document *document)
{
    int64_t n_prompt;
    bool merged;
    SW_TRY(set_shape(in, SHAPE_ROWS, document->name));
    in->corpus->templated = true;
    sw_str_clear(&in->text);
    sw_str_append(&in->text, document->text, document->text_len);
    sw_str_append(&in->text, document->completion, document->completion_len);
    if (in->text.failed) {
        return SW_FAIL(SW_E_NOMEM, "%s: out of host memory for a text", document->name);
    }
    const sw_status st = sw_tokenizer_encode_example(in->tokenizer, &in->text, document->text_len,
                                                     &in->ids, &n_prompt, &merged);
    if (st < 0) {
        return sw_fail_prefix(st, "%s", document->name);
    }
    in->n_merged += merged;
    SW_TRY(check_ids(in, document->name, &in->ids));
    return add_row(in, n_prompt);
}

/* All documents of a file must have the same form. */
static sw_status check_form(struct reading *in, const struct sw_document *document)
{
    in->form = in->form == SW_CHAT_NONE ? document->form : in->form;
    if (document->form == in->form) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT, "%s: it has %s, and the lines before it %s", document->name,
                   sw_chat_form_keys(document->form), sw_chat_form_keys(in->form));
}

static sw_status add_chat(struct reading *in, const struct sw_document *document)
{
    if (!in->chat) {
        return SW_FAIL(SW_E_CONFIG, "%s: a chat (%s), and no chat template was given",
                       document->name, sw_chat_form_keys(document->form));
    }
    SW_TRY(set_shape(in, SHAPE_ROWS, document->name));
    SW_TRY(sw_chat_encode(in->chat, document->doc, document->line, &in->row));
    SW_TRY(check_ids(in, document->name, &in->row.ids));
    return sw_rows_add(&in->corpus->rows, in->row.ids.ptr, in->row.weights, in->row.ids.len,
                       in->seq_len + 1);
}

static sw_status add_document(void *ctx, const struct sw_document *document)
{
    struct reading *in = ctx;
    if (document->form != SW_CHAT_NONE) {
        SW_TRY(check_form(in, document));
        if (in->chat || document->form != SW_CHAT_PAIR) {
            return add_chat(in, document);
        }
    }
    return document->has_completion ? add_example(ctx, document) : add_text(ctx, document);
}

static sw_status add_file(struct reading *in, const char *path)
{
    if (!in->as_text && sw_source_kind_of(path) == SW_SOURCE_SHARD) {
        if (in->packing) {
            return SW_FAIL(SW_E_CONFIG,
                           "%s: a shard does not mark documents, which spillway.packing needs",
                           path);
        }
        SW_TRY(set_shape(in, SHAPE_STREAM, path));
        return sw_stream_add_shard(&in->corpus->stream, path);
    }
    if (!in->tokenizer) {
        return SW_FAIL(SW_E_CONFIG, "%s: text needs a tokenizer", path);
    }
    in->form = SW_CHAT_NONE;
    return sw_source_read(path, in->as_text, add_document, in);
}

static int64_t n_samples_of(const struct corpus *corpus, int64_t seq_len)
{
    if (corpus->shape == SHAPE_TASK) {
        return corpus->of_task.n;
    }
    return corpus->shape == SHAPE_ROWS ? corpus->rows.n
                                       : sw_max_i64(corpus->stream.n - 1, 0) / seq_len;
}

/* The files must hold enough data for at least one sample. */
static sw_status check_size(const struct reading *in, const char *path, int n_files)
{
    const struct corpus *corpus = in->corpus;
    const struct sw_rows *rows = &corpus->rows;
    if (!in->chat && rows->n_cut + rows->n_dropped > 0) { /* for chats the caller reports it */
        sw_log(SW_LOG_WARN,
               "%s: of %lld %s %lld are cut at %lld tokens and %lld left out, with no token "
               "%s",
               path, (long long)(rows->n + rows->n_dropped), in->packing ? "documents" : "examples",
               (long long)rows->n_cut, (long long)in->seq_len, (long long)rows->n_dropped,
               in->packing ? "to predict" : "of the completion left");
    }
    sw_warn_merged(path, in->n_merged, rows->n + rows->n_dropped, "examples");
    if (n_samples_of(corpus, in->seq_len) > 0) {
        return SW_OK;
    }
    if (corpus->shape == SHAPE_ROWS) {
        return SW_FAIL(SW_E_CONFIG, "%s: no %s within %lld tokens", path,
                       in->chat ? "chat has a token that the loss counts"
                                : "example has a completion",
                       (long long)in->seq_len);
    }
    return SW_FAIL(SW_E_CONFIG,
                   "%s%s: %lld tokens, wanted at least %lld (one sequence of %lld and the label of "
                   "its last token)",
                   path, n_files > 1 ? " and more" : "", (long long)corpus->stream.n,
                   (long long)in->seq_len + 1, (long long)in->seq_len);
}

static sw_status read_corpus(const struct sw_dataset_options *options, const char *const *files,
                             int n_files, int64_t vocab_size, struct corpus *corpus)
{
    sw_status st;
    struct sw_file_list list = {0};
    struct reading in = {.corpus = corpus,
                         .tokenizer = options->tokenizer,
                         .chat = options->chat,
                         .vocab_size = vocab_size,
                         .seq_len = options->seq_len,
                         .as_text = options->as_text,
                         .packing = options->packing};
    sw_stream_init(&corpus->stream, vocab_size);
    SW_TRY_OR(done, sw_file_list_init(&list, files, n_files));
    for (int i = 0; i < list.n; ++i) {
        sw_work_at("tokenising", i, list.n > 1 ? list.n : 0);
        SW_TRY_OR(done, add_file(&in, list.paths[i]));
    }
    SW_TRY_OR(done, check_size(&in, list.paths[0], list.n));
done:
    sw_work_end();
    sw_file_list_fini(&list);
    sw_ids_fini(&in.ids);
    sw_str_fini(&in.text);
    sw_chat_row_fini(&in.row);
    return st;
}

/* Reads the files of a task other than next-token prediction. */
static sw_status read_task(const struct sw_dataset_options *options, const char *const *files,
                           int n_files, const struct sw_dataset *dataset, struct corpus *corpus)
{
    sw_status st;
    struct sw_file_list list = {0};
    struct sw_task_reading in = {
        .form = &dataset->form,
        .options = options,
        .columns = sw_columns_of(options),
        .vocab_size = dataset->form.n_ids,
        .rows = &corpus->of_task,
    };
    corpus->shape = SHAPE_TASK;
    SW_TRY_OR(done,
              sw_labels_init(&in.labels, options->task->label_names, options->task->n_labels));
    SW_TRY_OR(done, sw_file_list_init(&list, files, n_files));
    for (int i = 0; i < list.n; ++i) {
        sw_work_at("reading records", i, list.n > 1 ? list.n : 0);
        SW_TRY_OR(done, sw_task_read_file(&in, list.paths[i]));
    }
    SW_TRY_OR(done, sw_task_read_end(&in));
    if (corpus->of_task.n == 0) {
        st = SW_FAIL(SW_E_FORMAT, "%s%s: no row for the task \"%s\" in it", list.paths[0],
                     list.n > 1 ? " and more" : "", dataset->task->name);
    }
done:
    sw_work_end();
    sw_file_list_fini(&list);
    sw_task_reading_fini(&in);
    return st;
}

static sw_status read_files(const struct sw_dataset_options *options, const char *const *files,
                            int n_files, int64_t vocab_size, const struct sw_dataset *dataset,
                            struct corpus *corpus)
{
    return dataset->task->rows == SW_ROWS_TEXT
               ? read_corpus(options, files, n_files, vocab_size, corpus)
               : read_task(options, files, n_files, dataset, corpus);
}

/* Reads the training files: as one corpus, or, with weights, each of the paths as its own. */
static sw_status read_training(const struct sw_dataset_options *options, int64_t vocab_size,
                               struct sw_dataset *dataset)
{
    const int n = options->weights ? options->n_files : 1;
    dataset->corpora = sw_alloc_zero("dataset", (size_t)n, sizeof *dataset->corpora);
    SW_TRY_ALLOC(dataset->corpora, "a dataset");
    dataset->n_corpora = n;
    for (int i = 0; i < n; ++i) {
        SW_TRY(read_files(options, options->files + i, n > 1 ? 1 : options->n_files, vocab_size,
                          dataset, &dataset->corpora[i]));
    }
    return options->weights ? sw_mix_init(&dataset->mix, options->weights, n) : SW_OK;
}

/* ---- opening ---- */

static sw_status check_options(const struct sw_dataset_options *options, int64_t vocab_size)
{
    if (options->n_files < 1) {
        return SW_FAIL(SW_E_ARG, "dataset: no files");
    }
    if (options->seq_len < 1 || options->seq_len >= INT32_MAX) {
        return SW_FAIL(SW_E_CONFIG, "sequence length %lld, wanted 1 or more",
                       (long long)options->seq_len);
    }
    if (!(options->val_fraction >= 0.0 && options->val_fraction < 1.0)) {
        return SW_FAIL(SW_E_CONFIG, "validation fraction %g, wanted 0 or more and below 1",
                       options->val_fraction);
    }
    if (vocab_size < 1 && !options->task) {
        return SW_FAIL(SW_E_ARG, "dataset: neither a tokenizer nor the size of a vocabulary");
    }
    return SW_OK;
}

static sw_status make_pieces(struct part *part, int n)
{
    part->pieces = sw_alloc_zero("dataset", (size_t)n, sizeof *part->pieces);
    SW_TRY_ALLOC(part->pieces, "a dataset");
    part->n_pieces = n;
    return SW_OK;
}

/* Counts the samples of a split, when its pieces are complete. */
static void count_samples(struct part *part)
{
    part->n = 0;
    for (int i = 0; i < part->n_pieces; ++i) {
        part->pieces[i].before = part->n;
        part->n += part->pieces[i].n;
    }
}

/* Number of samples of a corpus that are held out: never all of them. */
static int64_t n_held_out(const struct corpus *corpus, int64_t n, double val_fraction)
{
    int64_t n_val = (int64_t)floor((double)n * val_fraction);
    n_val = val_fraction > 0.0 && n_val == 0 && n > 1 ? 1 : n_val;
    if (corpus->of_task.n_questions > 0) { /* windows of a question stay together */
        const struct sw_task_row *rows = corpus->of_task.rows;
        while (n_val > 0 && n_val < n && rows[n - n_val].question == rows[n - n_val - 1].question) {
            n_val++;
        }
        n_val = n_val < n ? n_val : 0;
    }
    return n_val;
}

/* Validation gets the last samples of each corpus. */
static sw_status split(struct sw_dataset *dataset, double val_fraction)
{
    SW_TRY(make_pieces(&dataset->parts[SW_SPLIT_TRAIN], dataset->n_corpora));
    SW_TRY(make_pieces(&dataset->parts[SW_SPLIT_VAL], dataset->n_corpora));
    for (int i = 0; i < dataset->n_corpora; ++i) {
        const struct corpus *corpus = &dataset->corpora[i];
        const int64_t n = n_samples_of(corpus, dataset->seq_len);
        const int64_t n_val = n_held_out(corpus, n, val_fraction);
        dataset->parts[SW_SPLIT_TRAIN].pieces[i] = (struct piece){.corpus = corpus, .n = n - n_val};
        dataset->parts[SW_SPLIT_VAL].pieces[i] =
            (struct piece){.corpus = corpus, .first = n - n_val, .n = n_val};
    }
    return SW_OK;
}

/* Packs the documents of a piece into rows. The split comes first: a row belongs to one part, and
 * validation is not biased towards short documents. */
static sw_status pack_piece(struct piece *part, int64_t seq_len)
{
    int64_t *lengths = sw_alloc("packing", ((size_t)part->n + 1) * sizeof(*lengths));
    SW_TRY_ALLOC(lengths, "the rows");
    for (int64_t i = 0; i < part->n; ++i) { /* the last token is a label only */
        lengths[i] = sw_rows_at(&part->corpus->rows, part->first + i).n - 1;
    }
    const sw_status st = sw_pack(lengths, part->n, seq_len, &part->packing);
    sw_free(lengths);
    part->packed = st >= 0;
    part->n = st >= 0 ? part->packing.n_rows : 0;
    return st;
}

static sw_status find_task(const struct sw_dataset_options *options, const struct sw_task **out)
{
    const char *name = options->task ? options->task->name : "causal";
    *out = sw_task_of(name);
    if (!*out) {
        struct sw_str names = {0};
        sw_task_list(&names);
        const sw_status st =
            SW_FAIL(SW_E_CONFIG, "task \"%s\": there are %s", name, sw_str_text(&names));
        sw_str_fini(&names);
        return st;
    }
    if ((*out)->rows == SW_ROWS_NONE) {
        return SW_FAIL(SW_E_CONFIG, "task \"%s\" is not trained: it has no labels", name);
    }
    const bool chats = (*out)->rows == SW_ROWS_TEXT || (*out)->rows == SW_ROWS_PREFERENCES;
    if ((options->packing && (*out)->rows != SW_ROWS_TEXT) || (options->chat && !chats)) {
        return SW_FAIL(SW_E_CONFIG, "task \"%s\": %s of texts that are continued", name,
                       options->chat && !chats ? "chats are" : "spillway.packing is for rows");
    }
    if (options->tokenizer && sw_tokenizer_has_sides(options->tokenizer) &&
        (*out)->rows != SW_ROWS_TARGETS) {
        return SW_FAIL(
            SW_E_UNSUP,
            "task \"%s\": the tokenizer is %s: it is for pairs of texts; wanted the task "
            "\"seq2seq\"",
            name, sw_tokenizer_kind(options->tokenizer));
    }
    return SW_OK;
}

/* Validation pictures must have the same classes as the training pictures. */
static sw_status check_classes(const struct sw_dataset *dataset)
{
    const struct sw_pictures *others = &dataset->val_corpus.of_task.images.pictures;
    for (int i = 0; i < dataset->n_corpora; ++i) {
        const struct sw_pictures *trained = &dataset->corpora[i].of_task.images.pictures;
        SW_TRY(trained->n > 0 && others->n > 0 ? sw_pictures_same_classes(trained, others) : SW_OK);
    }
    return SW_OK;
}

/* Reads the validation files. Records that are also trained on are not read again. */
static sw_status read_val(const struct sw_dataset_options *options, int64_t vocab_size,
                          struct sw_dataset *dataset)
{
    struct part *part = &dataset->parts[SW_SPLIT_VAL];
    const bool same = options->val_files == options->files &&
                      options->n_val_files == options->n_files && dataset->n_corpora == 1 &&
                      dataset->task->rows != SW_ROWS_TEXT;
    const struct corpus *corpus = same ? &dataset->corpora[0] : &dataset->val_corpus;
    if (!same) {
        SW_TRY(read_files(options, options->val_files, options->n_val_files, vocab_size, dataset,
                          &dataset->val_corpus));
        SW_TRY(check_classes(dataset));
    }
    part_fini(part);
    SW_TRY(make_pieces(part, 1));
    part->pieces[0] = (struct piece){.corpus = corpus, .n = n_samples_of(corpus, dataset->seq_len)};
    return SW_OK;
}

/* Metrics of other tasks than text and preferences go through the rows of one corpus. */
static sw_status check_mix(const struct sw_dataset_options *options, const struct sw_task *task)
{
    const bool scored = task->rows != SW_ROWS_TEXT && task->rows != SW_ROWS_PREFERENCES;
    if (options->weights && scored && options->n_val_files == 0 && options->val_fraction > 0 &&
        options->n_files > 1) {
        return SW_FAIL(SW_E_CONFIG,
                       "task \"%s\": data with weights is validated on files of its own; wanted "
                       "--val-data",
                       task->name);
    }
    return SW_OK;
}

/* Batches of similar lengths are made among this many of them, as in transformers. */
enum { GROUPED_BATCHES = 50 };

static sw_status set_group(const struct sw_dataset_options *options, struct sw_dataset *dataset)
{
    const enum corpus_shape shape = dataset->corpora[0].shape;
    const int64_t n = dataset->parts[SW_SPLIT_TRAIN].n, batch = options->group_by_length;
    if (batch == 0) {
        return SW_OK;
    }
    if (batch < 0 || options->packing || shape == SHAPE_STREAM ||
        dataset->task->rows == SW_ROWS_IMAGES) {
        return SW_FAIL(SW_E_CONFIG, "group_by_length: %s",
                       batch < 0               ? "wanted a number of samples"
                       : options->packing      ? "packed rows are full"
                       : shape == SHAPE_STREAM ? "the rows of running text have one length"
                                               : "images have no length");
    }
    dataset->batch = batch;
    dataset->group = batch * sw_min_i64(sw_max_i64(n / (4 * batch), 1), GROUPED_BATCHES);
    return SW_OK;
}

sw_status sw_dataset_open(const struct sw_dataset_options *options, struct sw_dataset **out)
{
    sw_status st;
    const struct sw_task *task;
    SW_TRY_OPTIONS(options);
    int64_t vocab_size = options->vocab_size;
    if (vocab_size == 0 && options->tokenizer) {
        vocab_size = sw_tokenizer_vocab_size(options->tokenizer);
    }
    SW_TRY(check_options(options, vocab_size));
    SW_TRY(find_task(options, &task));
    SW_TRY(check_mix(options, task));
    struct sw_dataset *dataset = sw_alloc_zero("dataset", 1, sizeof(*dataset));
    SW_TRY_ALLOC(dataset, "a dataset");
    dataset->seq_len = options->seq_len;
    dataset->seed = options->seed;
    dataset->pad = sw_tokenizer_padding(options->tokenizer);
    dataset->task = task;
    if (task->rows != SW_ROWS_TEXT) {
        SW_TRY_OR(fail, sw_task_form_init(&dataset->form, task, options, vocab_size));
    }
    SW_TRY_OR(fail, read_training(options, vocab_size, dataset));
    SW_TRY_OR(fail, split(dataset, options->n_val_files > 0 ? 0.0 : options->val_fraction));
    if (options->n_val_files > 0) {
        SW_TRY_OR(fail, read_val(options, vocab_size, dataset));
    }
    for (int i = 0; i < 2; ++i) {
        struct part *part = &dataset->parts[i];
        for (int k = 0; k < part->n_pieces && options->packing; ++k) {
            SW_TRY_OR(fail, pack_piece(&part->pieces[k], dataset->seq_len));
        }
        count_samples(part);
    }
    SW_TRY_OR(fail, set_group(options, dataset));
    *out = dataset;
    return SW_OK;
fail:
    sw_dataset_close(dataset);
    return st;
}

int64_t sw_dataset_n_samples(const struct sw_dataset *dataset, enum sw_split split)
{
    return dataset->parts[split].n;
}

static int64_t corpus_tokens(const struct corpus *corpus)
{
    return corpus->stream.n + corpus->rows.tokens.len + corpus->of_task.ids.len;
}

int64_t sw_dataset_n_tokens(const struct sw_dataset *dataset)
{
    int64_t n = corpus_tokens(&dataset->val_corpus);
    for (int i = 0; i < dataset->n_corpora; ++i) {
        n += corpus_tokens(&dataset->corpora[i]);
    }
    return n;
}

bool sw_dataset_is_templated(const struct sw_dataset *dataset)
{
    bool templated = false;
    for (int i = 0; i < dataset->n_corpora; ++i) {
        templated = templated || dataset->corpora[i].templated;
    }
    return templated;
}

int64_t sw_dataset_n_documents(const struct sw_dataset *dataset, enum sw_split split)
{
    int64_t n = 0;
    for (int i = 0; i < dataset->parts[split].n_pieces; ++i) {
        const struct corpus *corpus = dataset->parts[split].pieces[i].corpus;
        n += corpus->rows.n + corpus->of_task.n_documents;
    }
    return n;
}

int64_t sw_dataset_n_cut(const struct sw_dataset *dataset, enum sw_split split)
{
    int64_t n = 0;
    for (int i = 0; i < dataset->parts[split].n_pieces; ++i) {
        const struct corpus *corpus = dataset->parts[split].pieces[i].corpus;
        n += corpus->rows.n_cut + corpus->of_task.n_cut;
    }
    return n;
}

int64_t sw_dataset_n_dropped(const struct sw_dataset *dataset, enum sw_split split)
{
    int64_t n = 0;
    for (int i = 0; i < dataset->parts[split].n_pieces; ++i) {
        const struct corpus *corpus = dataset->parts[split].pieces[i].corpus;
        n += corpus->rows.n_dropped + corpus->of_task.n_dropped;
    }
    return n;
}

bool sw_dataset_put_steps(const struct sw_dataset *dataset, struct sw_str *out)
{
    if (dataset->task->rows == SW_ROWS_IMAGES) {
        sw_image_steps_text(&dataset->form.steps, out);
    }
    return dataset->corpora[0].of_task.images.pictures.n > 0;
}

/* ---- kinds of files ---- */

struct glance {
    enum sw_data_kind kind;
    bool found;
};

/* Looks at the first document only. */
static sw_status glance_at(void *ctx, const struct sw_document *document)
{
    struct glance *glance = ctx;
    glance->found = true;
    glance->kind = document->form == SW_CHAT_NONE   ? SW_DATA_TEXT
                   : document->form == SW_CHAT_PAIR ? SW_DATA_PAIRS
                                                    : SW_DATA_CHATS;
    return SW_E_STOP;
}

sw_status sw_data_kind_of(const char *const *files, int n_files, bool as_text,
                          enum sw_data_kind *out)
{
    struct sw_file_list list;
    struct glance glance = {.kind = SW_DATA_TEXT};
    sw_status st = SW_OK;
    SW_TRY(sw_file_list_init(&list, files, n_files));
    for (int i = 0; i < list.n && !as_text && !glance.found && st >= 0; ++i) {
        if (sw_source_kind_of(list.paths[i]) == SW_SOURCE_JSONL) {
            st = sw_source_read(list.paths[i], false, glance_at, &glance);
        }
    }
    sw_file_list_fini(&list);
    if (st < 0 && !glance.found) {
        return st;
    }
    *out = glance.kind;
    return SW_OK;
}

/* ---- weights ---- */

static bool has_role(const struct sw_json *message, const char *key, const char *role)
{
    const struct sw_json *value = sw_json_get(message, key);
    return value && value->type == SW_JSON_STRING && strcmp(value->string, role) == 0;
}

static sw_status look_for_weights(void *ctx, const struct sw_document *document)
{
    bool *found = ctx;
    const bool turns = document->form == SW_CHAT_CONVERSATIONS;
    const bool listed = turns || document->form == SW_CHAT_MESSAGES;
    const struct sw_json *list =
        listed ? sw_json_get(document->line, turns ? "conversations" : "messages") : NULL;
    const struct sw_json *m = list && list->type == SW_JSON_ARRAY ? list->first : NULL;
    for (; m && !*found; m = m->next) {
        const bool answer = m->type == SW_JSON_OBJECT &&
                            (turns ? has_role(m, "from", "gpt") || has_role(m, "from", "assistant")
                                   : has_role(m, "role", "assistant"));
        const struct sw_json *weight = answer ? sw_json_get(m, "weight") : NULL;
        const bool number =
            weight && (weight->type == SW_JSON_INT || weight->type == SW_JSON_FLOAT);
        *found = number && weight->number != 0 && weight->number != 1;
    }
    return *found ? SW_E_STOP : SW_OK;
}

sw_status sw_data_has_weights(const char *const *files, int n_files, bool *out)
{
    struct sw_file_list list;
    bool found = false;
    sw_status st = SW_OK;
    SW_TRY(sw_file_list_init(&list, files, n_files));
    for (int i = 0; i < list.n && !found && st >= 0; ++i) {
        if (sw_source_kind_of(list.paths[i]) == SW_SOURCE_JSONL) {
            st = sw_source_read(list.paths[i], false, look_for_weights, &found);
        }
    }
    sw_file_list_fini(&list);
    if (st < 0 && !found) {
        return st;
    }
    *out = found;
    return SW_OK;
}

/* ---- fetching ---- */

/* Output buffers of a row, [T] each. All but the first two may be NULL. */
struct row_out {
    int32_t *ids, *labels, *mask, *positions, *segments;
    float *weights;
};

static struct row_out row_of(const struct row_out *all, int64_t offset)
{
    return (struct row_out){all->ids + offset,
                            all->labels + offset,
                            all->mask ? all->mask + offset : NULL,
                            all->positions ? all->positions + offset : NULL,
                            all->segments ? all->segments + offset : NULL,
                            all->weights ? all->weights + offset : NULL};
}

static sw_status read_window(const struct sw_dataset *dataset, const struct corpus *corpus,
                             int64_t i_window, int32_t *ids, int32_t *labels)
{
    const int64_t n = dataset->seq_len, first = i_window * n;
    SW_TRY(sw_stream_read(&corpus->stream, first, n, ids));
    memcpy(labels, ids + 1, (size_t)(n - 1) * sizeof(*labels));
    return sw_stream_read(&corpus->stream, first + n, 1, labels + n - 1);
}

/* weight 0: the label is ignored */
static void put_token(const struct row_out *out, int64_t t, int32_t id, int32_t label, float weight,
                      int32_t position, int32_t segment)
{
    out->ids[t] = id;
    out->labels[t] = weight > 0 ? label : SW_IGNORED_LABEL;
    if (out->weights) {
        out->weights[t] = weight;
    }
    if (out->mask) {
        out->mask[t] = segment > 0;
    }
    if (out->positions) {
        out->positions[t] = position;
    }
    if (out->segments) {
        out->segments[t] = segment;
    }
}

/* Fills a row without a sample. Its mask marks tokens, because attention over no tokens would
 * divide by zero. */
static void blank_row(const struct sw_dataset *dataset, const struct row_out *out)
{
    for (int64_t t = 0; t < dataset->seq_len; ++t) {
        put_token(out, t, 0, SW_IGNORED_LABEL, 0, 0, 1);
    }
}

/* Writes documents one after another, then padding. */
static void read_rows(const struct sw_dataset *dataset, const struct piece *part, int64_t at,
                      const struct row_out *out)
{
    const int64_t first = part->packed ? part->packing.first[at] : at;
    const int64_t end = part->packed ? part->packing.first[at + 1] : at + 1;
    int64_t t = 0;
    for (int64_t d = first; d < end; ++d) {
        const int64_t document = part->packed ? part->first + part->packing.documents[d] : d;
        const struct sw_row row = sw_rows_at(&part->corpus->rows, document);
        for (int64_t i = 0; i + 1 < row.n; ++i, ++t) {
            put_token(out, t, row.ids[i], row.ids[i + 1], row.weights[i + 1], (int32_t)i,
                      (int32_t)(d - first + 1));
        }
    }
    for (; t < dataset->seq_len; ++t) {
        put_token(out, t, dataset->pad, SW_IGNORED_LABEL, 0, 0, 0);
    }
}

/* A sample of a piece: its index in the corpus, or among the rows of a packed piece. -1: a blank
 * row. */
struct place {
    const struct piece *piece;
    int64_t at;
};

static struct place place_in(const struct piece *piece, int64_t i)
{
    return (struct place){piece, (piece->packed ? 0 : piece->first) + i};
}

/* Sample i of a split, in the order of the files. */
static struct place in_order(const struct part *part, int64_t i)
{
    int k = 0;
    if (i >= part->n) {
        return (struct place){&part->pieces[0], -1};
    }
    while (i >= part->pieces[k].before + part->pieces[k].n) {
        k++;
    }
    return place_in(&part->pieces[k], i - part->pieces[k].before);
}

/* Sample i of the training order, before lengths are grouped. */
static struct place shuffled(const struct sw_dataset *dataset, int64_t i)
{
    const struct sw_mixed mixed = sw_mix_at(&dataset->mix, dataset->seed, i);
    const struct piece *piece = &dataset->parts[SW_SPLIT_TRAIN].pieces[mixed.source];
    /* equal lists of two sources do not run in parallel */
    const uint64_t seed = dataset->seed + (uint64_t)mixed.source * UINT64_C(0x9e3779b97f4a7c15);
    return place_in(piece,
                    sw_shuffle(seed, mixed.number / piece->n, piece->n, mixed.number % piece->n));
}

/* Tokens of a sample; of the longer one of two rows. */
static int64_t length_of(const struct place *place)
{
    const struct corpus *corpus = place->piece->corpus;
    if (corpus->shape == SHAPE_ROWS) {
        return sw_rows_at(&corpus->rows, place->at).n;
    }
    if (corpus->of_task.sides) {
        const struct sw_task_side *sides = corpus->of_task.sides + 2 * place->at;
        return sw_max_i64(sides[0].n, sides[1].n);
    }
    const struct sw_task_row *row = &corpus->of_task.rows[place->at];
    return row->n + sw_max_i64(row->n_second, 0);
}

/* A reader of samples. It keeps the group of samples that it looked at last. */
struct cursor {
    const struct sw_dataset *dataset;
    enum sw_split split;
    bool in_order;           /* the samples of the training split as in the files */
    struct sw_length *items; /* [2 group] the group in its order, then scratch; NULL = none yet */
    int64_t number;          /* of the group */
};

static void cursor_fini(struct cursor *cursor)
{
    sw_free(cursor->items);
}

static sw_status look_at_group(struct cursor *cursor, int64_t number)
{
    const struct sw_dataset *d = cursor->dataset;
    const size_t bytes = 2 * (size_t)d->group * sizeof *cursor->items;
    if (cursor->items && cursor->number == number) {
        return SW_OK;
    }
    cursor->items = cursor->items ? cursor->items : sw_alloc("dataset", bytes);
    SW_TRY_ALLOC(cursor->items, "the lengths of rows");
    cursor->number = number;
    for (int64_t i = 0; i < d->group; ++i) {
        const int64_t sample = number * d->group + i;
        const struct place place = shuffled(d, sample);
        cursor->items[i] = (struct sw_length){length_of(&place), sample};
    }
    sw_lengths_group(cursor->items, d->group, d->batch, d->seed, number, cursor->items + d->group);
    return SW_OK;
}

static sw_status find(struct cursor *cursor, int64_t sample, struct place *out)
{
    const struct sw_dataset *d = cursor->dataset;
    if (cursor->split == SW_SPLIT_VAL || cursor->in_order) {
        *out = in_order(&d->parts[cursor->split], sample);
        return SW_OK;
    }
    if (d->group > 0) {
        SW_TRY(look_at_group(cursor, sample / d->group));
        sample = cursor->items[sample % d->group].sample;
    }
    *out = shuffled(d, sample);
    return SW_OK;
}

static sw_status read_row(const struct sw_dataset *dataset, const struct place *place,
                          const struct row_out *out)
{
    const struct corpus *corpus = place->piece->corpus;
    if (corpus->rows.has_weights && !out->weights) {
        return SW_FAIL(SW_E_CONFIG,
                       "the data has weights of messages, which the loss needs: wanted "
                       "spillway.token_weights");
    }
    if (place->at < 0) {
        blank_row(dataset, out);
    } else if (corpus->shape == SHAPE_ROWS) {
        read_rows(dataset, place->piece, place->at, out);
    } else {
        SW_TRY(read_window(dataset, corpus, place->at, out->ids, out->labels));
        for (int64_t t = 0; t < dataset->seq_len; ++t) {
            put_token(out, t, out->ids[t], out->labels[t], 1, (int32_t)t, 1);
        }
    }
    return SW_OK;
}

static sw_status check_range(const struct sw_dataset *dataset, enum sw_split split, int64_t first,
                             int64_t n_rows)
{
    const struct part *part = &dataset->parts[split];
    if (first < 0 || n_rows < 0 || (split == SW_SPLIT_TRAIN && part->n == 0)) {
        return SW_FAIL(SW_E_ARG, "dataset: samples %lld to %lld are not among the %lld there are",
                       (long long)first, (long long)(first + n_rows), (long long)part->n);
    }
    return SW_OK;
}

static sw_status fetch(const struct sw_dataset *dataset, enum sw_split split, int64_t first,
                       int64_t n_rows, const struct row_out *out)
{
    struct cursor cursor = {.dataset = dataset, .split = split};
    sw_status st = SW_OK;
    SW_TRY(check_range(dataset, split, first, n_rows));
    if (dataset->task->rows != SW_ROWS_TEXT) {
        return SW_FAIL(SW_E_ARG, "dataset: rows of the task \"%s\" are fetched by names of inputs",
                       dataset->task->name);
    }
    for (int64_t row = 0; row < n_rows && st >= 0; ++row) {
        const struct row_out one = row_of(out, row * dataset->seq_len);
        struct place place;
        st = find(&cursor, first + row, &place);
        st = st < 0 ? st : read_row(dataset, &place, &one);
    }
    cursor_fini(&cursor);
    return st;
}

sw_status sw_dataset_fetch(const struct sw_dataset *dataset, enum sw_split split, int64_t first,
                           int64_t n_rows, int32_t *ids, int32_t *labels, int32_t *mask)
{
    const struct row_out out = {.ids = ids, .labels = labels, .mask = mask};
    return fetch(dataset, split, first, n_rows, &out);
}

sw_status sw_dataset_fetch_packed(const struct sw_dataset *dataset, enum sw_split split,
                                  int64_t first, int64_t n_rows, int32_t *ids, int32_t *labels,
                                  int32_t *positions, int32_t *segments)
{
    const struct row_out out = {
        .ids = ids, .labels = labels, .positions = positions, .segments = segments};
    return fetch(dataset, split, first, n_rows, &out);
}

/* Finds the buffers of a text row among the inputs, by name. */
static sw_status name_inputs(const struct sw_row_input *inputs, int n_inputs, struct row_out *out)
{
    const struct {
        const char *name;
        int32_t **to;
    } known[] = {{"input_ids", &out->ids},
                 {"labels", &out->labels},
                 {"attention_mask", &out->mask},
                 {"positions", &out->positions},
                 {"segments", &out->segments}};
    for (int i = 0; i < n_inputs; ++i) {
        if (strcmp(inputs[i].name, SW_TASK_WEIGHTS) == 0) {
            out->weights = inputs[i].data;
            continue;
        }
        size_t k = 0;
        while (k < SW_LEN(known) && strcmp(known[k].name, inputs[i].name) != 0) {
            k++;
        }
        if (k == SW_LEN(known)) {
            return SW_FAIL(SW_E_ARG, "rows of text have no input \"%s\"", inputs[i].name);
        }
        *known[k].to = inputs[i].data;
    }
    return out->ids && out->labels
               ? SW_OK
               : SW_FAIL(SW_E_ARG, "rows of text have input_ids and labels: both are wanted");
}

/* in_order: the samples of the training split are numbered as in the files */
static sw_status fetch_task(const struct sw_dataset *dataset, enum sw_split split, bool in_order,
                            int64_t first, int64_t n_rows, const struct sw_row_input *inputs,
                            int n_inputs)
{
    struct cursor cursor = {.dataset = dataset, .split = split, .in_order = in_order};
    sw_status st = SW_OK;
    SW_TRY(check_range(dataset, split, first, n_rows));
    for (int64_t row = 0; row < n_rows && st >= 0; ++row) {
        struct place place;
        SW_TRY_OR(done, find(&cursor, first + row, &place));
        const struct piece *piece = place.piece;
        const float *reference = dataset->reference[split];
        const struct sw_task_part of = {.form = &dataset->form,
                                        .rows = &piece->corpus->of_task,
                                        .first = piece->first,
                                        .n = piece->n,
                                        .split = split,
                                        .reference =
                                            reference ? reference + 2 * piece->before : NULL};
        SW_TRY_OR(done, sw_task_put_row(&of, place.at, first + row, inputs, n_inputs, row));
    }
done:
    cursor_fini(&cursor);
    return st;
}

sw_status sw_dataset_fetch_in_order(const struct sw_dataset *dataset, enum sw_split split,
                                    int64_t first, int64_t n_rows,
                                    const struct sw_row_input *inputs, int n_inputs)
{
    SW_ASSERT(dataset->task->rows != SW_ROWS_TEXT);
    return fetch_task(dataset, split, true, first, n_rows, inputs, n_inputs);
}

sw_status sw_dataset_set_reference(struct sw_dataset *dataset, enum sw_split split,
                                   const float *values)
{
    const size_t bytes = 2 * (size_t)dataset->parts[split].n * sizeof *values;
    float *copy = sw_alloc("dataset", bytes + 1);
    SW_TRY_ALLOC(copy, "the log-probabilities of the reference");
    memcpy(copy, values, bytes);
    sw_free(dataset->reference[split]);
    dataset->reference[split] = copy;
    return SW_OK;
}

static uint64_t hash_sides(uint64_t h, const struct piece *piece)
{
    const struct sw_task_rows *rows = &piece->corpus->of_task;
    h = sw_hash(h, &piece->n, sizeof piece->n);
    for (int64_t r = 0; r < piece->n; r++) {
        const struct sw_task_row *row = &rows->rows[piece->first + r];
        h = sw_hash(sw_hash(h, &row->label, sizeof row->label), &row->question,
                    sizeof row->question);
        for (int side = 0; side < 2; side++) {
            const struct sw_task_side *s = &rows->sides[2 * (piece->first + r) + side];
            h = sw_hash(h, &s->n, 3 * sizeof s->n);
            h = sw_hash(h, rows->ids.ptr + s->first, (size_t)s->n * sizeof *rows->ids.ptr);
        }
    }
    return h;
}

uint64_t sw_dataset_hash_sides(const struct sw_dataset *dataset)
{
    uint64_t h = sw_hash_str(0, dataset->task->name);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < dataset->parts[i].n_pieces; k++) {
            h = hash_sides(h, &dataset->parts[i].pieces[k]);
        }
    }
    return h;
}

sw_status sw_dataset_fetch_inputs(const struct sw_dataset *dataset, enum sw_split split,
                                  int64_t first, int64_t n_rows, const struct sw_row_input *inputs,
                                  int n_inputs)
{
    struct row_out out = {0};
    if (dataset->task->rows == SW_ROWS_TEXT) {
        SW_TRY(name_inputs(inputs, n_inputs, &out));
        return fetch(dataset, split, first, n_rows, &out);
    }
    return fetch_task(dataset, split, false, first, n_rows, inputs, n_inputs);
}

sw_status sw_score_open(const struct sw_dataset *dataset, enum sw_split split, FILE *predictions,
                        struct sw_score **out)
{
    const struct piece *piece = &dataset->parts[split].pieces[0];
    if (dataset->task->rows == SW_ROWS_TEXT) {
        return SW_FAIL(SW_E_ARG, "rows of text have no metric but the loss");
    }
    SW_ASSERT(dataset->parts[split].n_pieces == 1);
    return sw_score_open_part(&dataset->form, &piece->corpus->of_task, piece->first, piece->n,
                              predictions, out);
}

static int64_t tokens_of(const struct piece *piece)
{
    const int64_t n = piece->packed ? piece->packing.first[piece->n] : piece->n;
    int64_t n_tokens = 0;
    for (int64_t i = 0; i < n; ++i) {
        n_tokens += sw_rows_at(&piece->corpus->rows, piece->first + i).n - 1;
    }
    return n_tokens;
}

double sw_dataset_padding(const struct sw_dataset *dataset, enum sw_split split)
{
    const struct part *part = &dataset->parts[split];
    int64_t n_rows = 0, n_tokens = 0;
    for (int i = 0; i < part->n_pieces; ++i) {
        if (part->pieces[i].corpus->shape == SHAPE_ROWS) {
            n_rows += part->pieces[i].n;
            n_tokens += tokens_of(&part->pieces[i]);
        }
    }
    return n_rows > 0 ? 1 - (double)n_tokens / ((double)n_rows * (double)dataset->seq_len) : 0;
}
