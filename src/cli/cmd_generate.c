// SPDX-License-Identifier: Apache-2.0
// spillway generate - continues a prompt, generates a text for each input, or answers in a chat;
// writes to standard output.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/model_flags.h"

enum { NOT_GIVEN = -1 };
enum { CHAT_CONTEXT = 4096 }; /* limit on a conversation, if the model has room for more */

struct run {
    const char *model, *adapter, *tokenizer, *prompt, *source_prefix;
    int64_t tokens, seed;
    bool ignore_eos, no_bos, chat;
    struct sw_sampling sampling;
    struct words sets;
    sw_comm *comm; /* of a process that a launcher started; else NULL */
    struct chat_flags chats;
    struct sw_chat_options chat_options; /* options for chats */
    char refused[160];                   /* what is wrong with standard input; "" = nothing */
};

static sw_status generate(struct run *run, bool *started)
{
    const struct sw_generate_options options = {.model = run->model,
                                                .adapter = run->adapter,
                                                .tokenizer = run->tokenizer,
                                                .sets = run->sets.items,
                                                .n_sets = run->sets.n,
                                                .prompt = run->prompt,
                                                .in = stdin,
                                                .source_prefix = run->source_prefix,
                                                .tokens = run->tokens,
                                                .sampling = run->sampling,
                                                .ignore_eos = run->ignore_eos,
                                                .no_bos = run->no_bos,
                                                .comm = run->comm};
    return sw_generate_text(&options, stdout, started);
}

/* ---- chats ---- */

struct talk {
    struct run *run;
    sw_tokenizer *tokenizer;
    sw_chat *chat;
    sw_engine *engine;
    struct sw_writing *writing;
    struct sw_ids prompt;
    int32_t *out; /* [the context] */
};

static sw_status open_talk(struct talk *t)
{
    const struct run *run = t->run;
    struct sw_chat_options chat = run->chat_options;
    struct sw_engine_options options = {
        .config = {.text = "{\"train_micro_batch_size_per_gpu\": 1}",
                   .sets = run->sets.items,
                   .n_sets = run->sets.n},
        .model = {.path = run->model, .adapter = run->adapter},
        .inputs.most_tokens = CHAT_CONTEXT,
        .run.comm = run->comm,
        .generate.wanted = true,
    };
    chat.folder = cli_tokenizer_folder(run->tokenizer, run->adapter, run->model);
    sw_status st = cli_open_tokenizer(chat.folder, run->model, false, &t->tokenizer);
    chat.tokenizer = t->tokenizer;
    st = st < 0 ? st : sw_chat_open(&chat, &t->chat);
    st = st < 0 ? st : sw_writing_open(run->model, t->tokenizer, &run->sampling, &t->writing);
    if (st >= 0) {
        options.model.vocab_size = sw_tokenizer_vocab_size(t->tokenizer);
        st = sw_initialize(&options, &t->engine);
    }
    if (st >= 0) {
        t->out = malloc((size_t)sw_engine_seq_len(t->engine) * sizeof *t->out);
        st = t->out ? SW_OK : SW_E_NOMEM;
    }
    return st;
}

static sw_status print_token(void *ctx, const int32_t *ids, int64_t n)
{
    return sw_text_write(ctx, ids, n, false);
}

static sw_status answer(struct talk *t, const char *question)
{
    const struct run *run = t->run;
    const bool prints = cli_leads(run->comm);
    char *text = NULL;
    int64_t n = 0;
    struct sw_text_writer writer = {.tokenizer = t->tokenizer, .to = stdout};
    const struct sw_each_token each = {print_token, &writer};
    struct sw_sampling sampling = run->sampling;
    sw_ids_clear(&t->prompt);
    sw_status st = sw_chat_say(t->chat, "user", question);
    st = st < 0 ? st : sw_chat_prompt(t->chat, &t->prompt);
    if (st >= 0) {
        sw_writing_apply(t->writing, t->prompt.len, !run->ignore_eos, &sampling);
        const int64_t room = sw_engine_seq_len(t->engine) - t->prompt.len;
        int64_t n_new = run->tokens > 0 && run->tokens < room ? run->tokens : room;
        n_new = n_new < 1 ? 1 : n_new; /* generation then reports that there is no room */
        st = sw_generate_each(t->engine, t->prompt.ptr, t->prompt.len, n_new, &sampling,
                              prints ? &each : NULL, t->out, &n);
    }
    st = st < 0 || !prints ? st : sw_text_write(&writer, t->out, n, true);
    st = st < 0 ? st : sw_tokenizer_decode(t->tokenizer, t->out, n, true, &text, NULL);
    st = st < 0 ? st : sw_chat_say(t->chat, "assistant", text);
    if (st >= 0 && prints) {
        putchar('\n');
        fflush(stdout);
    }
    sw_text_free(text);
    return st;
}

/* Reads a line without its line break, which may be CRLF. *len: below 0 = there is none */
static sw_status read_line(struct run *run, long long i, char **line, size_t *cap, int64_t *len)
{
    *len = getline(line, cap, stdin);
    if (*len < 0 && feof(stdin)) {
        return SW_OK;
    }
    if (*len < 0) {
        snprintf(run->refused, sizeof run->refused, "cannot read standard input: %s",
                 strerror(errno));
        return SW_E_IO;
    }
    *len -= *len > 0 && (*line)[*len - 1] == '\n';
    *len -= *len > 0 && (*line)[*len - 1] == '\r';
    (*line)[*len] = '\0';
    const int64_t n = (int64_t)strlen(*line);
    if (n < *len) {
        snprintf(run->refused, sizeof run->refused,
                 "standard input line %lld: byte %lld is NUL, wanted text", i, (long long)n + 1);
        return SW_E_FORMAT;
    }
    return SW_OK;
}

/* Sends a line of the first rank to the others. len: below 0 = there is none */
static sw_status share_line(const struct run *run, sw_status st, char **line, size_t *cap,
                            int64_t *len)
{
    if (!run->comm) {
        return st;
    }
    st = sw_comm_agree(run->comm, st, "reading a line");
    st = st < 0 ? st : sw_comm_broadcast(run->comm, 0, len, sizeof *len, "the length of a line");
    if (st < 0 || *len < 0) {
        return st;
    }
    if (*cap < (size_t)*len + 1) {
        char *more = realloc(*line, (size_t)*len + 1);
        if (!more) {
            return SW_E_NOMEM;
        }
        *line = more;
        *cap = (size_t)*len + 1;
    }
    return sw_comm_broadcast(run->comm, 0, *line, (size_t)*len + 1, "a line");
}

static sw_status answer_lines(struct talk *t)
{
    char *line = NULL;
    size_t cap = 0;
    int64_t len = 0;
    sw_status st = SW_OK;
    const bool reads = cli_leads(t->run->comm), asks = reads && isatty(STDIN_FILENO) == 1;
    for (long long i = 1; st >= 0; i++) {
        if (asks) {
            fputs("> ", stdout);
            fflush(stdout);
        }
        st = reads ? read_line(t->run, i, &line, &cap, &len) : SW_OK;
        st = share_line(t->run, st, &line, &cap, &len);
        if (st < 0 || len < 0) {
            break;
        }
        st = len > 0 ? answer(t, line) : SW_OK;
    }
    fputs(asks ? "\n" : "", stdout);
    free(line);
    return st;
}

static sw_status talk(struct run *run, bool *started)
{
    struct talk t = {.run = run};
    sw_status st = open_talk(&t);
    if (st >= 0) {
        *started = true;
        st = run->prompt && *run->prompt ? answer(&t, run->prompt) : answer_lines(&t);
    }
    free(t.out);
    sw_ids_fini(&t.prompt);
    sw_writing_close(t.writing);
    sw_close(t.engine);
    sw_chat_close(t.chat);
    sw_tokenizer_close(t.tokenizer);
    return st;
}

/* Generates as one of the ranks that a launcher started, or alone. */
static sw_status run_ranks(struct run *run, bool *started)
{
    /* others wait while the first rank waits for a line of its user */
    sw_status st = sw_world_open(run->chat ? SW_DEADLINE_MAX_S : CLI_DEADLINE_S, &run->comm);
    st = st < 0 ? st : (run->chat ? talk : generate)(run, started);
    cli_close_world(run->comm, st);
    return st;
}

int sw_cmd_generate(int argc, char **argv)
{
    struct run run = {.tokens = NOT_GIVEN, .seed = 42, .sampling.temperature = NAN /* not given */};
    struct cli_device device = {0};
    const struct flag flags[] = {
        CLI_HEADING("Model"),
        {"--model", FLAG_TEXT, &run.model, "DIR", "Hugging Face folder", 0},
        {"--adapter", FLAG_TEXT, &run.adapter, "DIR", "PEFT folder with adapters of the model", 0},
        {"--tokenizer", FLAG_TEXT, &run.tokenizer, "DIR",
         "folder of tokenizer files (default: the adapter's, else the model's)", 0},
        CLI_HEADING("Text"),
        {"--prompt", FLAG_TEXT, &run.prompt, "TEXT",
         "text to continue, or that an encoder-decoder reads (default: each line of standard "
         "input; without a line, a decoder begins from nothing)",
         0},
        {"--source-prefix", FLAG_TEXT, &run.source_prefix, "TEXT",
         "text put before what an encoder-decoder reads, such as \"summarize: \"", 0},
        {"--tokens", FLAG_INT, &run.tokens, "N",
         "maximum number of new tokens (default: 100 or the room in the context, if that is "
         "less; for an answer that room; for an encoder-decoder what its files say)",
         0},
        CLI_NO_BOS_FLAG(run.no_bos),
        CLI_HEADING("Sampling"),
        {"--temperature", FLAG_REAL, &run.sampling.temperature, "X",
         "sampling temperature; 0 is greedy (default: 0, or 1 with --top-k or --top-p)", 0},
        {"--top-k", FLAG_INT, &run.sampling.top_k, "K",
         "draw from the K likeliest tokens (default: all)", 0},
        {"--top-p", FLAG_REAL, &run.sampling.top_p, "P",
         "draw from the likeliest tokens with a total probability of P (default: all)", 0},
        {"--seed", FLAG_INT, &run.seed, "S", "seed of the draws (default: 42)", 0},
        {"--ignore-eos", FLAG_BOOL, &run.ignore_eos, NULL, "do not stop at the end-of-text token",
         0},
        CLI_HEADING("Chats"),
        {"--chat", FLAG_BOOL, &run.chat, NULL,
         "answer --prompt, or each line of standard input in turn, using the chat template", 0},
        CLI_CHAT_FLAGS(run.chats),
        CLI_HEADING("Configuration and devices"),
        CLI_DEVICE_FLAG(device.name),
        {"--set", FLAG_LIST, &run.sets, "KEY=VALUE", "edit the configuration; may be repeated", 0},
    };
    const struct command command = {
        "generate", "--model DIR --prompt TEXT [..]",
        "Continues a prompt, transforms a text (encoder-decoders), or chats (--chat). Ranks of a\n"
        "launcher generate one text together; the first one reads and prints.",
        CLI_FLAGS(flags),
        "--model run/model --prompt 'Once upon a time' --tokens 100\n"
        "--model org/name --chat --temperature 0.7 --top-p 0.9\n"
        "--model t5 --source-prefix 'summarize: ' --prompt \"$(cat text.txt)\"\n"};
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0 && !run.model) {
        status = cli_fail(&command, CLI_REFUSED, "--model is required; see --help");
    }
    if (status < 0 && (run.tokens == 0 || run.tokens > INT32_MAX || run.sampling.top_p > 1)) {
        status = cli_fail(&command, CLI_REFUSED,
                          "--tokens or --top-p is out of range; wanted 1 <= --tokens <= %d and "
                          "--top-p <= 1",
                          INT32_MAX);
    }
    if (status < 0 && run.chat && (run.source_prefix || run.no_bos)) {
        status = cli_fail(&command, CLI_REFUSED, "%s and --chat exclude each other",
                          run.no_bos ? "--no-bos" : "--source-prefix");
    }
    if (status < 0 && !run.chat && (run.chats.template || run.chats.date)) {
        status = cli_fail(&command, CLI_REFUSED, "--chat-template and --chat-date need --chat");
    }
    status = status < 0 ? cli_chat_options(&command, &run.chats, &run.chat_options) : status;
    if (status < 0 && !cli_add_device(&run.sets, &device)) {
        status = cli_fail(&command, CLI_FAILED, "out of memory");
    }
    if (isnan(run.sampling.temperature)) {
        const bool draws = run.sampling.top_k > 0 || run.sampling.top_p > 0;
        run.sampling.temperature = draws ? 1 : 0;
    }
    if (status < 0) {
        bool started = false;
        run.sampling.seed = (uint64_t)run.seed;
        const sw_status st = run_ranks(&run, &started);
        const int failed = started ? CLI_FAILED : CLI_REFUSED;
        status = st >= 0        ? CLI_DONE
                 : *run.refused ? cli_fail(&command, failed, "%s", run.refused)
                                : cli_error(&command, failed);
    }
    cli_free_words(&run.sets);
    free(device.edit);
    return status;
}
