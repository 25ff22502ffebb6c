// SPDX-License-Identifier: Apache-2.0
// spillway eval - computes loss and perplexity of a model over every window of a text. For other
// tasks it computes the loss and the metrics over every row.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model_flags.h"

struct run {
    const char *model, *adapter, *tokenizer, *config;
    struct words data, sets;
    int64_t seq_len, batch, batches;
    bool json, as_text, no_bos;
    struct chat_flags chats;
    struct sw_chat_options chat; /* options for chats */
    struct task_flags task;
    const char *predictions;
    sw_comm *comm; /* of a process that a launcher started; else NULL */
};

/* Gathers the n sums and counts of each rank's batch. data: NULL = one rank */
static sw_status gather(sw_comm *data, const double *mine, int n, double *all)
{
    const size_t bytes = (size_t)n * sizeof *mine;
    if (!data) {
        memcpy(all, mine, bytes);
        return SW_OK;
    }
    return sw_comm_all_gather(data, mine, all, bytes, "the losses of batches");
}

/* Number of batches that are evaluated. */
static int64_t count_batches(const struct run *run, const sw_dataset *dataset, int64_t batch)
{
    const int64_t n = (sw_dataset_n_samples(dataset, SW_SPLIT_VAL) + batch - 1) / batch;
    return run->batches > 0 && run->batches < n ? run->batches : n;
}

struct ranks {
    sw_comm *data; /* NULL = one rank */
    int me, n;
};

/* Adds up sums and counts of the loss terms of all batches. Ranks along the data axis take the
 * batches in turn. They are added in the order of the batches, as one rank adds them.
 * terms: [n_terms]; work: [1 + ranks, n_terms] */
static sw_status sum_batches(const struct run *run, sw_engine *engine, sw_dataset *dataset,
                             const struct ranks *ranks, const struct sw_batch *given,
                             const struct sw_row_input *rows, double *work, double *terms)
{
    const int64_t batch = sw_engine_micro_batch_size(engine);
    const int64_t n_batches = count_batches(run, dataset, batch);
    const int n_terms = 2 * sw_engine_terms(engine);
    double *all = work + n_terms;
    sw_status st = SW_OK;
    for (int64_t i = 0; st >= 0 && i < n_batches; i += ranks->n) {
        /* rows after the last one are blank */
        st = sw_dataset_fetch_inputs(dataset, SW_SPLIT_VAL, (i + ranks->me) * batch, batch, rows,
                                     given->n_tensors);
        st = st < 0 ? st : sw_evaluate_terms(engine, given, work);
        st = st < 0 ? st : gather(ranks->data, work, n_terms, all);
        for (int r = 0; st >= 0 && r < ranks->n && i + r < n_batches; r++) {
            for (int k = 0; k < n_terms; k++) {
                terms[k] += all[r * n_terms + k];
            }
        }
    }
    return st;
}

/* The loss over all batches, and the number of targets or the sum of their weights. */
static sw_status measure_loss(const struct run *run, bool weighted, sw_engine *engine,
                              sw_dataset *dataset, double *loss, double *count)
{
    const int64_t batch = sw_engine_micro_batch_size(engine), tokens = sw_engine_seq_len(engine);
    const size_t n_terms = 2 * (size_t)sw_engine_terms(engine);
    struct ranks ranks = {NULL, 0, 1};
    sw_status st = sw_engine_axis(engine, "data", &ranks.me, &ranks.n);
    st = st < 0 || ranks.n == 1 ? st : sw_engine_group(engine, "data", &ranks.data);
    if (st < 0) {
        return st;
    }
    int32_t *ids = malloc((size_t)(batch * tokens) * sizeof *ids);
    int32_t *labels = malloc((size_t)(batch * tokens) * sizeof *labels);
    float *weights = malloc((size_t)(batch * tokens) * sizeof *weights);
    double *terms = calloc((size_t)(ranks.n + 2) * n_terms, sizeof *terms);
    st = ids && labels && weights && terms ? SW_OK : SW_E_NOMEM;
    const struct sw_shape shape = {2, {batch, tokens}};
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = labels, .dtype = SW_I32, .shape = shape}},
        {"weights", {.data = weights, .dtype = SW_F32, .shape = shape}}};
    const struct sw_row_input rows[] = {
        {"input_ids", ids}, {"labels", labels}, {"weights", weights}};
    const struct sw_batch given = {tensors, weighted ? 3 : 2};
    st = st < 0 ? st
                : sum_batches(run, engine, dataset, &ranks, &given, rows, terms + n_terms, terms);
    if (st >= 0) {
        *count = terms[1];
        *loss = terms[1] > 0 ? sw_engine_mean_loss(engine, terms) : NAN;
    }
    free(ids);
    free(labels);
    free(weights);
    free(terms);
    return st;
}

/* The sets of the configuration, and the weights of messages if the data has some; the caller frees
 * them. */
static sw_status choose_sets(const struct run *run, const sw_chat *chat, bool *weighted,
                             const char ***out)
{
    *out = malloc((size_t)(run->sets.n + 1) * sizeof **out);
    if (!*out) {
        return SW_E_NOMEM;
    }
    for (int i = 0; i < run->sets.n; i++) {
        (*out)[i] = run->sets.items[i];
    }
    (*out)[run->sets.n] = "spillway.token_weights:=true";
    return chat ? sw_data_has_weights(run->data.items, run->data.n, weighted) : SW_OK;
}

/* *out is NULL if the data is text. */
static sw_status open_chat(const struct run *run, sw_tokenizer *tokenizer, sw_chat **out)
{
    enum sw_data_kind kind;
    struct sw_chat_options options = run->chat;
    options.folder = cli_tokenizer_folder(run->tokenizer, run->adapter, run->model);
    options.tokenizer = tokenizer;
    const sw_status st = sw_data_kind_of(run->data.items, run->data.n, run->as_text, &kind);
    return st < 0 ? st : sw_chat_open_for(&options, kind, out);
}

static void print_chat(const sw_chat *chat, const sw_dataset *dataset, const sw_engine *engine)
{
    printf("data: %lld chats in rows of %lld tokens, template of %s, loss on %s; %lld cut, %lld "
           "left out\n",
           (long long)sw_dataset_n_samples(dataset, SW_SPLIT_VAL),
           (long long)sw_engine_seq_len(engine), sw_chat_source(chat),
           sw_loss_on_name(sw_chat_loss_on(chat)),
           (long long)sw_dataset_n_cut(dataset, SW_SPLIT_VAL),
           (long long)sw_dataset_n_dropped(dataset, SW_SPLIT_VAL));
}

/* count: of targets; weighted: the sum of their weights */
static void print_loss(bool json, bool weighted, double mean, double count)
{
    const double loss = isnan(mean) ? fabs(mean) : mean; /* drop the sign of NaN, which C prints */
    if (!json) {
        printf("loss %.6f, perplexity %.4f, ", loss, exp(loss));
        printf(weighted ? "sum of weights %g\n" : "%.0f targets\n", count);
        return;
    }
    fputs("{\"loss\":", stdout);
    cli_print_number(loss, true);
    fputs(",\"perplexity\":", stdout);
    cli_print_number(exp(loss), true);
    printf(weighted ? ",\"weights\":%.17g}\n" : ",\"targets\":%.0f}\n", count);
}

static sw_status evaluate(const struct run *run, bool *started)
{
    sw_tokenizer *tokenizer = NULL;
    sw_chat *chat = NULL;
    sw_engine *engine = NULL;
    sw_dataset *dataset = NULL;
    char batch[64];
    const char **sets = NULL;
    bool weighted = false;
    double loss = NAN, count = 0;
    snprintf(batch, sizeof batch, "{\"train_micro_batch_size_per_gpu\": %lld}",
             (long long)run->batch);
    sw_status st =
        cli_open_tokenizer(cli_tokenizer_folder(run->tokenizer, run->adapter, run->model),
                           run->model, run->no_bos, &tokenizer);
    st = st < 0 ? st : open_chat(run, tokenizer, &chat);
    st = st < 0 ? st : choose_sets(run, chat, &weighted, &sets);
    const struct sw_engine_options options = {
        .config = {.path = run->config,
                   .text = run->config ? NULL : batch,
                   .sets = sets,
                   .n_sets = run->sets.n + weighted},
        .model = {.path = run->model,
                  .adapter = run->adapter,
                  .vocab_size = tokenizer ? sw_tokenizer_vocab_size(tokenizer) : 0},
        .inputs.seq_len = run->seq_len,
        .run.comm = run->comm,
        .evaluate.loss = true,
    };
    st = st < 0 ? st : sw_initialize(&options, &engine);
    if (st >= 0) {
        const struct sw_dataset_options data = {
            .files = run->data.items,
            .n_files = run->data.n,
            .val_files = run->data.items,
            .n_val_files = run->data.n,
            .tokenizer = tokenizer,
            .vocab_size = sw_engine_vocab(engine),
            .seq_len = sw_engine_seq_len(engine),
            .as_text = run->as_text,
            .chat = chat,
        };
        st = sw_dataset_open(&data, &dataset);
    }
    if (st >= 0 && chat && !run->json && cli_leads(run->comm)) {
        print_chat(chat, dataset, engine);
    }
    if (st >= 0) {
        *started = true;
        st = measure_loss(run, weighted, engine, dataset, &loss, &count);
    }
    if (st >= 0 && cli_leads(run->comm)) {
        print_loss(run->json, weighted, loss, count);
    }
    sw_dataset_close(dataset);
    sw_close(engine);
    sw_chat_close(chat);
    sw_tokenizer_close(tokenizer);
    free(sets);
    return st;
}

static sw_status evaluate_task(const struct run *run, bool *started)
{
    const struct sw_eval_options options = {.model = run->model,
                                            .adapter = run->adapter,
                                            .tokenizer = run->tokenizer,
                                            .data = run->data.items,
                                            .n_data = run->data.n,
                                            .task = run->task.o,
                                            .config_path = run->config,
                                            .sets = run->sets.items,
                                            .n_sets = run->sets.n,
                                            .batch = run->batch,
                                            .seq_len = run->seq_len,
                                            .batches = run->batches,
                                            .predictions = run->predictions,
                                            .chat = &run->chat,
                                            .as_text = run->as_text,
                                            .json = run->json,
                                            .comm = run->comm};
    return sw_eval(&options, stdout, started);
}

/* Returns the exit status. */
static int evaluate_any(const struct command *command, struct run *run)
{
    bool text, started = false;
    sw_status st = sw_task_is_text(run->model, &run->task.o, &text);
    text = st >= 0 && text && !run->predictions;
    if (st >= 0 && run->no_bos && !text) {
        return cli_fail(command, CLI_REFUSED,
                        "--no-bos: rows of this task keep the tokenizer's template");
    }
    st = st < 0 ? st : sw_world_open(CLI_DEADLINE_S, &run->comm);
    st = st < 0 ? st : text ? evaluate(run, &started) : evaluate_task(run, &started);
    cli_close_world(run->comm, st);
    return st >= 0 ? CLI_DONE : cli_error(command, started ? CLI_FAILED : CLI_REFUSED);
}

int sw_cmd_eval(int argc, char **argv)
{
    struct run run = {.batch = 8};
    struct cli_device device = {0};
    char *packing = NULL; /* rows are evaluated one by one, even if the training packed them */
    const struct flag flags[] = {
        CLI_HEADING("Model, data and task"),
        {"--model", FLAG_TEXT, &run.model, "DIR", "Hugging Face folder", 0},
        {"--adapter", FLAG_TEXT, &run.adapter, "DIR", "PEFT folder with adapters of the model", 0},
        {"--data", FLAG_LIST, &run.data, "FILE",
         "text, JSONL (text or chats) or .bin token shards; docs/tasks.md has the files of other "
         "tasks",
         true},
        CLI_TASK_FLAGS(run.task),
        {"--predictions", FLAG_TEXT, &run.predictions, "FILE",
         "file to write: answers as a JSON object from ids to texts, or generated texts, one per "
         "line",
         0},
        {"--as-text", FLAG_BOOL, &run.as_text, NULL,
         "read every data file as plain text, whatever its name and content", 0},
        {"--tokenizer", FLAG_TEXT, &run.tokenizer, "DIR",
         "folder of tokenizer files (default: the adapter's, else the model's)", 0},
        CLI_NO_BOS_FLAG(run.no_bos),
        CLI_CHAT_FLAGS(run.chats),
        {"--loss-on", FLAG_TEXT, &run.chats.loss_on, "answers|last|all",
         "part of a conversation that the loss counts (default: answers)", 0},
        CLI_HEADING("Configuration and devices"),
        {"--deepspeed", FLAG_TEXT, &run.config, "FILE",
         "ds_config.json, for the dtype and the micro-batch", 0},
        CLI_DEVICE_FLAG(device.name),
        {"--set", FLAG_LIST, &run.sets, "KEY=VALUE", "edit the configuration; may be repeated", 0},
        CLI_HEADING("Rows"),
        {"--seq-len", FLAG_INT, &run.seq_len, "T",
         "tokens per window (default: the model's context, at most 1024)", 0},
        {"--batch", FLAG_INT, &run.batch, "B",
         "windows at a time, without --deepspeed (default: 8)", 0},
        {"--batches", FLAG_INT, &run.batches, "N",
         "number of batches after which to stop (default: all)", 0},
        {"--json", FLAG_BOOL, &run.json, NULL, "print one JSON object", 0},
    };
    const struct command command = {
        "eval", "--model DIR --data FILE.. [..]",
        "Measures the loss and metrics over every row of the data. Ranks of a launcher evaluate\n"
        "together, and the first one prints. Along the data axis they divide the windows of a\n"
        "text; rows of other tasks are the same on all ranks.",
        CLI_FLAGS(flags),
        "--model run/model --data test.txt\n"
        "--model bert-reviews --data reviews.csv --task classify\n"
        "--model org/name --adapter run/adapter --data chats.jsonl --json\n"};
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0 && (!run.model || run.data.n == 0 || run.batch < 1)) {
        status = cli_fail(&command, CLI_REFUSED,
                          "--model, --data and --batch >= 1 are required; see --help");
    }
    status = status < 0 ? cli_chat_options(&command, &run.chats, &run.chat) : status;
    if (status < 0 && (!cli_add_set(&run.sets, &packing, "spillway.packing", "false") ||
                       !cli_add_device(&run.sets, &device))) {
        status = cli_fail(&command, CLI_FAILED, "out of memory");
    }
    cli_task_resolve(&run.task);
    status = status < 0 ? evaluate_any(&command, &run) : status;
    cli_task_fini(&run.task);
    cli_free_words(&run.data);
    cli_free_words(&run.sets);
    free(device.edit);
    free(packing);
    return status;
}
