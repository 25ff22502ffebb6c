// SPDX-License-Identifier: Apache-2.0
// spillway embed - writes a vector for each line of text, standard input to standard output.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model_flags.h"

struct run {
    const char *model, *tokenizer, *config, *pool;
    struct words data, sets;
    int64_t seq_len, batch;
    bool normalize, json;
    sw_comm *comm; /* of a process that a launcher started; else NULL */
};

/* The tokens of all lines, concatenated. */
struct lines {
    struct sw_ids ids;
    int64_t *ends; /* [n] */
    int64_t n, cap;
};

static void lines_fini(struct lines *lines)
{
    sw_ids_fini(&lines->ids);
    free(lines->ends);
}

static sw_status add_line(sw_tokenizer *tokenizer, const char *text, size_t len,
                          struct lines *lines)
{
    if (lines->n == lines->cap) {
        const int64_t cap = lines->cap > 0 ? 2 * lines->cap : 256;
        int64_t *ends = realloc(lines->ends, (size_t)cap * sizeof *ends);
        if (!ends) {
            return SW_E_NOMEM;
        }
        lines->ends = ends;
        lines->cap = cap;
    }
    const sw_status st = sw_tokenizer_encode(tokenizer, text, len, true, &lines->ids);
    lines->ends[lines->n++] = lines->ids.len;
    return st;
}

/* Returns -1 to go on, else the exit status. */
static int read_lines(const struct command *command, sw_tokenizer *tokenizer, const char *name,
                      FILE *in, struct lines *lines)
{
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;
    int status = -1;
    for (long long line = 1; status < 0 && (len = getline(&text, &cap, in)) >= 0; line++) {
        len -= len > 0 && text[len - 1] == '\n';
        len -= len > 0 && text[len - 1] == '\r';
        if (add_line(tokenizer, text, (size_t)len, lines) < 0) {
            status = cli_fail(command, CLI_REFUSED, "%s:%lld: %s", name, line, sw_error_message());
        }
    }
    if (status < 0 && ferror(in)) {
        status = cli_fail(command, CLI_REFUSED, "cannot read %s: %s", name, strerror(errno));
    }
    free(text);
    return status;
}

static int read_all(const struct command *command, const struct run *run, sw_tokenizer *tokenizer,
                    struct lines *lines)
{
    if (run->data.n == 0) {
        return read_lines(command, tokenizer, "standard input", stdin, lines);
    }
    int status = -1;
    for (int i = 0; status < 0 && i < run->data.n; i++) {
        const char *name = run->data.items[i];
        FILE *in = fopen(name, "r");
        if (!in) {
            return cli_fail(command, CLI_REFUSED, "cannot open %s: %s", name, strerror(errno));
        }
        status = read_lines(command, tokenizer, name, in, lines);
        fclose(in);
    }
    return status;
}

/* Sends the lines of the first rank to the others. */
static sw_status share_lines(const struct run *run, struct lines *lines)
{
    int64_t sizes[2] = {lines->n, lines->ids.len};
    if (!run->comm) {
        return SW_OK;
    }
    sw_status st = sw_comm_broadcast(run->comm, 0, sizes, sizeof sizes, "the number of lines");
    if (st >= 0 && !cli_leads(run->comm)) {
        lines->n = lines->cap = sizes[0];
        lines->ends = calloc((size_t)sizes[0] + 1, sizeof *lines->ends);
        st = lines->ends ? st : SW_E_NOMEM;
        while (st >= 0 && lines->ids.len < sizes[1]) {
            st = sw_ids_push(&lines->ids, 0);
        }
    }
    st = st < 0 || sizes[0] == 0
             ? st
             : sw_comm_broadcast(run->comm, 0, lines->ends, (size_t)sizes[0] * sizeof *lines->ends,
                                 "the ends of lines");
    return st < 0 || sizes[1] == 0 ? st
                                   : sw_comm_broadcast(run->comm, 0, lines->ids.ptr,
                                                       (size_t)sizes[1] * sizeof *lines->ids.ptr,
                                                       "the tokens of lines");
}

static int64_t longest(const struct lines *lines)
{
    int64_t most = 1;
    for (int64_t i = 0; i < lines->n; i++) {
        const int64_t n = lines->ends[i] - (i > 0 ? lines->ends[i - 1] : 0);
        most = n > most ? n : most;
    }
    return most;
}

/* Fills a row of a batch. A line that is too long keeps its beginning and its last token, which the
 * tokenizer's template appends. */
static bool fill(const struct lines *lines, int64_t line, int64_t tokens, int32_t pad, int32_t *ids,
                 int32_t *mask)
{
    const int64_t first = line > 0 && line < lines->n ? lines->ends[line - 1] : 0;
    const int64_t n = line < lines->n ? lines->ends[line] - first : 0;
    for (int64_t t = 0; t < tokens; t++) {
        mask[t] = t < n;
        ids[t] = t < n ? lines->ids.ptr[first + t] : pad;
    }
    if (n > tokens) {
        ids[tokens - 1] = lines->ids.ptr[first + n - 1];
    }
    return n > tokens;
}

static void print_vector(const float *vector, int64_t width, bool json)
{
    printf("%s", json ? "{\"embedding\":[" : "");
    for (int64_t c = 0; c < width; c++) {
        fputs(c == 0 ? "" : json ? "," : " ", stdout);
        cli_print_number(vector[c], json);
    }
    printf("%s\n", json ? "]}" : "");
}

static sw_status embed_lines(const struct run *run, sw_engine *engine, const struct lines *lines,
                             int32_t pad)
{
    const struct sw_embed_options options = {.pool = strcmp(run->pool, "cls") == 0 ? SW_POOL_CLS
                                                                                   : SW_POOL_MEAN,
                                             .normalize = run->normalize};
    const int64_t batch = sw_engine_micro_batch_size(engine), tokens = sw_engine_seq_len(engine);
    const int64_t width = sw_engine_width(engine);
    int32_t *ids = malloc((size_t)(2 * batch * tokens) * sizeof *ids);
    float *vectors = malloc((size_t)(batch * width) * sizeof *vectors);
    sw_status st = ids && vectors ? SW_OK : SW_E_NOMEM;
    const struct sw_shape shape = {2, {batch, tokens}};
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"attention_mask", {.data = ids + batch * tokens, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch given = {tensors, 2};
    int64_t n_cut = 0;
    for (int64_t first = 0; st >= 0 && first < lines->n; first += batch) {
        for (int64_t b = 0; b < batch; b++) {
            n_cut +=
                fill(lines, first + b, tokens, pad, ids + b * tokens, ids + (batch + b) * tokens);
        }
        st = sw_embed(engine, &given, &options, vectors);
        const int64_t end = st >= 0 && cli_leads(run->comm) ? lines->n : 0;
        for (int64_t b = 0; b < batch && first + b < end; b++) {
            print_vector(vectors + b * width, width, run->json);
        }
    }
    if (st >= 0 && n_cut > 0 && cli_leads(run->comm)) {
        fprintf(stderr, "spillway embed: %lld of %lld lines are longer than %lld tokens: cut\n",
                (long long)n_cut, (long long)lines->n, (long long)tokens);
    }
    free(ids);
    free(vectors);
    return st;
}

/* Opens the engine for rows as long as the longest line, limited to the model's positions. */
static sw_status open_engine(const struct run *run, const struct lines *lines, sw_engine **out)
{
    char batch[64];
    snprintf(batch, sizeof batch, "{\"train_micro_batch_size_per_gpu\": %lld}",
             (long long)run->batch);
    const int64_t most = longest(lines);
    const bool whole = run->seq_len == 0 || most < run->seq_len;
    const struct sw_engine_options options = {
        .config = {.path = run->config,
                   .text = run->config ? NULL : batch,
                   .sets = run->sets.items,
                   .n_sets = run->sets.n},
        .model.path = run->model,
        .inputs = {.seq_len = whole ? 0 : run->seq_len, .most_tokens = whole ? most : 0},
        .run.comm = run->comm,
        .embed.wanted = true,
    };
    return sw_initialize(&options, out);
}

/* Returns the exit status, as the next function. */
static int embed(const struct command *command, const struct run *run)
{
    sw_tokenizer *tokenizer = NULL;
    sw_engine *engine = NULL;
    struct lines lines = {{0}, NULL, 0, 0};
    const char *folder = cli_tokenizer_folder(run->tokenizer, NULL, run->model);
    if (cli_open_tokenizer(folder, run->model, false, &tokenizer) < 0) {
        return cli_error(command, CLI_REFUSED);
    }
    int status = cli_leads(run->comm) ? read_all(command, run, tokenizer, &lines) : -1;
    if (status < 0 && (share_lines(run, &lines) < 0 || open_engine(run, &lines, &engine) < 0)) {
        status = cli_error(command, CLI_REFUSED);
    }
    if (status < 0) {
        const int32_t pad = sw_tokenizer_pad(tokenizer);
        status = embed_lines(run, engine, &lines, pad < 0 ? 0 : pad) >= 0
                     ? CLI_DONE
                     : cli_error(command, CLI_FAILED);
    }
    lines_fini(&lines);
    sw_close(engine);
    sw_tokenizer_close(tokenizer);
    return status;
}

/* Embeds as one of the ranks that a launcher started, or alone. */
static int run_ranks(const struct command *command, struct run *run)
{
    if (sw_world_open(CLI_DEADLINE_S, &run->comm) < 0) {
        return cli_error(command, CLI_REFUSED);
    }
    const int status = embed(command, run);
    cli_close_world(run->comm, status == CLI_DONE ? SW_OK : SW_E_ARG);
    return status;
}

int sw_cmd_embed(int argc, char **argv)
{
    struct run run = {.batch = 8, .pool = "mean"};
    struct cli_device device = {0};
    const struct flag flags[] = {
        CLI_HEADING("Model and texts"),
        {"--model", FLAG_TEXT, &run.model, "DIR", "Hugging Face folder of an encoder", 0},
        {"--tokenizer", FLAG_TEXT, &run.tokenizer, "DIR",
         "folder of tokenizer files (default: the model's)", 0},
        {"--data", FLAG_LIST, &run.data, "FILE", "texts, one per line (default: standard input)",
         true},
        {"--pool", FLAG_TEXT, &run.pool, "mean|cls",
         "mean over the tokens of a text, or vector of its first token (default: mean)", 0},
        {"--normalize", FLAG_BOOL, &run.normalize, NULL, "scale vectors to length 1", 0},
        {"--json", FLAG_BOOL, &run.json, NULL, "print lines {\"embedding\": [..]}", 0},
        {"--seq-len", FLAG_INT, &run.seq_len, "T",
         "tokens read per text (default: as many as the longest text has, up to the model's "
         "context)",
         0},
        {"--batch", FLAG_INT, &run.batch, "B", "texts at a time, without --deepspeed (default: 8)",
         0},
        CLI_HEADING("Configuration and devices"),
        {"--deepspeed", FLAG_TEXT, &run.config, "FILE",
         "ds_config.json, for the dtype and the micro-batch", 0},
        CLI_DEVICE_FLAG(device.name),
        {"--set", FLAG_LIST, &run.sets, "KEY=VALUE", "edit the configuration; may be repeated", 0},
    };
    const struct command command = {
        "embed", "--model DIR [--pool mean|cls] [--normalize] [--json] < IN",
        "Writes a vector for each line of text. Ranks of a launcher embed the same lines\n"
        "together; the first one reads and prints.",
        CLI_FLAGS(flags),
        "--model bert --data texts.txt\n"
        "--model bert --pool cls --normalize --data texts.txt\n"
        "--model bert --json --data texts.txt\n"};
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0 && (!run.model || run.batch < 1)) {
        status =
            cli_fail(&command, CLI_REFUSED, "--model and --batch >= 1 are required; see --help");
    }
    if (status < 0 && strcmp(run.pool, "mean") != 0 && strcmp(run.pool, "cls") != 0) {
        status =
            cli_fail(&command, CLI_REFUSED, "--pool: wanted mean or cls, got \"%s\"", run.pool);
    }
    if (status < 0 && !cli_add_device(&run.sets, &device)) {
        status = cli_fail(&command, CLI_FAILED, "out of memory");
    }
    status = status < 0 ? run_ranks(&command, &run) : status;
    cli_free_words(&run.data);
    cli_free_words(&run.sets);
    free(device.edit);
    return status;
}
