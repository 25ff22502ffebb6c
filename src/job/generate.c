// SPDX-License-Identifier: Apache-2.0
// Generates a text for each prompt: its continuation or, with an encoder-decoder, the text that
// follows from it.
#include <errno.h>
#include <string.h>

#include "job/private.h"

enum { DEFAULT_TOKENS = 100 };

struct generate {
    const struct sw_generate_options *options;
    bool leads;   /* the first rank, which reads and writes */
    bool answers; /* prompts are the input of an encoder */
    sw_tokenizer *tokenizer;
    sw_engine *engine;
    struct sw_job_settings settings;
    struct sw_ids ids;   /* tokens of all prompts, concatenated */
    struct sw_ids sizes; /* number of tokens of each */
    struct sw_str texts; /* prompts as they were given, each with its NUL; on the first rank */
    int64_t longest, n_new;
    int32_t *out; /* [n_new] */
};

static sw_status add_prompt(struct generate *g, const char *text, size_t len)
{
    const char *prefix = g->options->source_prefix;
    const int64_t before = g->ids.len;
    struct sw_str whole = {0};
    if (prefix) {
        sw_str_puts(&whole, prefix);
    }
    sw_str_append(&whole, text, len);
    sw_str_append(&g->texts, text, len);
    sw_str_putc(&g->texts, '\0');
    const char *all = sw_str_text(&whole);
    sw_status st = whole.failed || g->texts.failed
                       ? SW_FAIL(SW_E_NOMEM, "out of host memory for a prompt")
                   : g->answers ? sw_tokenizer_encode(g->tokenizer, all, whole.len, true, &g->ids)
                                : sw_tokenizer_encode_prompt(g->tokenizer, all, whole.len, &g->ids);
    sw_str_fini(&whole);
    if (st >= 0 && g->ids.len == before) {
        const int32_t eos = sw_tokenizer_eos(g->tokenizer);
        st = sw_ids_push(&g->ids, eos >= 0 ? eos : 0);
    }
    SW_TRY(st);
    const int64_t n = g->ids.len - before;
    g->longest = sw_max_i64(g->longest, n);
    return sw_ids_push(&g->sizes, (int32_t)n);
}

/* Pushes a line without its line break, which may be CRLF, unless it is empty. */
static sw_status add_line(struct generate *g, const struct sw_str *line, int64_t i)
{
    const char *text = sw_str_text(line);
    const size_t n = line->len - (line->len > 0 && text[line->len - 1] == '\r');
    const char *nul = memchr(text, '\0', n);
    if (line->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a prompt");
    }
    if (nul) {
        return SW_FAIL(SW_E_FORMAT, "standard input line %lld: byte %lld is NUL, wanted text",
                       (long long)i, (long long)(nul - text) + 1);
    }
    return n > 0 ? add_prompt(g, text, n) : SW_OK;
}

static sw_status add_lines(struct generate *g, FILE *in)
{
    struct sw_str line = {0};
    int64_t i = 1;
    sw_status st = SW_OK;
    for (int c; st >= 0 && (c = getc(in)) != EOF;) {
        if (c == '\n') {
            st = add_line(g, &line, i++);
            sw_str_clear(&line);
        } else {
            sw_str_putc(&line, (char)c);
        }
    }
    if (st >= 0 && ferror(in)) {
        st = SW_FAIL(SW_E_IO, "prompts cannot be read: %s", strerror(errno));
    }
    st = st < 0 ? st : add_line(g, &line, i);
    sw_str_fini(&line);
    return st;
}

/* Sends numbers of the first rank to the others. */
static sw_status share_ids(const struct generate *g, struct sw_ids *ids)
{
    sw_comm *comm = g->options->comm;
    int64_t n = ids->len;
    SW_TRY(sw_comm_broadcast(comm, 0, &n, sizeof n, "the number of tokens"));
    for (int64_t i = ids->len; i < n; i++) {
        SW_TRY(sw_ids_push(ids, 0));
    }
    return sw_comm_broadcast(comm, 0, ids->ptr, (size_t)n * sizeof *ids->ptr, "tokens of prompts");
}

/* The first rank reads the lines for all. Without a line a decoder begins from nothing. */
static sw_status read_lines(struct generate *g)
{
    sw_status st = g->leads ? add_lines(g, g->options->in) : SW_OK;
    if (st >= 0 && g->leads && !g->answers && g->sizes.len == 0) {
        st = add_prompt(g, "", 0);
    }
    if (!g->options->comm) {
        return st;
    }
    SW_TRY(sw_comm_agree(g->options->comm, st, "reading prompts"));
    SW_TRY(share_ids(g, &g->ids));
    SW_TRY(share_ids(g, &g->sizes));
    for (int64_t i = 0; i < g->sizes.len; i++) {
        g->longest = sw_max_i64(g->longest, g->sizes.ptr[i]);
    }
    return SW_OK;
}

static sw_status read_prompts(struct generate *g)
{
    const struct sw_generate_options *o = g->options;
    if (!o->prompt && o->in) {
        return read_lines(g);
    }
    const char *text = o->prompt ? o->prompt : "";
    return add_prompt(g, text, strlen(text));
}

/* Chooses the number of new tokens. An encoder-decoder defaults to the limit in its files, else to
 * DEFAULT_TOKENS, but at most to its context. */
static sw_status choose_length(struct generate *g)
{
    const int64_t asked = g->options->tokens, said = sw_job_settings_most(&g->settings);
    int64_t context = 0;
    if (asked > 0 || !g->answers) {
        g->n_new = asked;
        return SW_OK;
    }
    SW_TRY(sw_weights_find_context(g->options->model, &context));
    g->n_new = sw_min_i64(context, said > 0 ? said : DEFAULT_TOKENS);
    return SW_OK;
}

static sw_status open_engine(struct generate *g)
{
    const struct sw_generate_options *o = g->options;
    const int64_t known = g->answers ? g->n_new : g->n_new > 0 ? g->longest + g->n_new : 0;
    const struct sw_engine_options options = {
        .config = {.text = "{\"train_micro_batch_size_per_gpu\": 1}",
                   .sets = o->sets,
                   .n_sets = o->n_sets},
        .model = {.path = o->model,
                  .adapter = o->adapter,
                  .vocab_size = sw_tokenizer_vocab_size(g->tokenizer)},
        /* without a limit the cache would hold a whole context */
        .inputs = {.seq_len = g->answers ? sw_max_i64(g->longest, 1) : 0,
                   .most_tokens = g->longest + DEFAULT_TOKENS},
        .run.comm = o->comm,
        .generate = {.wanted = true, .tokens = known},
    };
    SW_TRY(sw_initialize(&options, &g->engine));
    if (g->n_new < 1) { /* default: the room that the model has */
        const int64_t room = sw_engine_seq_len(g->engine) - g->longest;
        g->n_new = room < 1 ? 1 : room < DEFAULT_TOKENS ? room : DEFAULT_TOKENS;
    }
    g->out = sw_alloc("generate", (size_t)g->n_new * sizeof *g->out);
    SW_TRY_ALLOC(g->out, "a text");
    return SW_OK;
}

static sw_status open_all(struct generate *g)
{
    const struct sw_generate_options *o = g->options;
    const struct sw_task *task;
    SW_TRY(sw_model_check_path(o->model));
    SW_TRY(sw_weights_find_task(o->model, NULL, 0, &task));
    g->answers = sw_job_answers(task);
    if (o->source_prefix && !g->answers) {
        return SW_FAIL(SW_E_ARG, "--source-prefix does not apply to the task \"%s\"", task->name);
    }
    if (o->no_bos && g->answers) {
        return SW_FAIL(SW_E_ARG, "--no-bos: an encoder reads a text in the tokenizer's template");
    }
    const struct sw_tokenizer_options words = {.no_bos = o->no_bos};
    const char *folder = sw_job_tokenizer_folder(o->tokenizer, o->adapter, o->model);
    SW_TRY(sw_tokenizer_open(folder, &words, &g->tokenizer));
    SW_TRY(sw_job_settings_read(o->model, g->answers, &o->sampling, &g->settings));
    SW_TRY(sw_job_settings_stop(&g->settings, g->tokenizer));
    SW_TRY(read_prompts(g));
    SW_TRY(choose_length(g));
    return open_engine(g);
}

/* Prints the prompt before the first token that continues it. */
struct printing {
    struct sw_text_writer writer;
    const char *before;
};

static sw_status print_token(void *ctx, const int32_t *ids, int64_t n)
{
    struct printing *p = ctx;
    if (n == 1 && fputs(p->before, p->writer.to) < 0) {
        return SW_FAIL(SW_E_IO, "the text cannot be written");
    }
    return sw_text_write(&p->writer, ids, n, false);
}

/* text: the prompt */
static sw_status write_text(struct generate *g, const char *text, const int32_t *prompt,
                            int64_t n_prompt, FILE *out)
{
    struct sw_sampling sampling = g->options->sampling;
    struct printing printing = {.writer = {.tokenizer = g->tokenizer,
                                           .to = out,
                                           .prompt = prompt,
                                           .n_prompt = g->answers ? 0 : n_prompt},
                                .before = g->answers ? "" : text};
    const struct sw_each_token each = {print_token, &printing};
    int64_t n = 0;
    sw_job_settings_apply(&g->settings, n_prompt, !g->options->ignore_eos, &sampling);
    SW_TRY(sw_generate_each(g->engine, prompt, n_prompt, g->n_new, &sampling,
                            g->leads ? &each : NULL, g->out, &n));
    if (!g->leads) {
        return SW_OK;
    }
    SW_TRY(sw_text_write(&printing.writer, g->out, n, true));
    return fputs("\n", out) >= 0 && fflush(out) == 0
               ? SW_OK
               : SW_FAIL(SW_E_IO, "the text cannot be written");
}

sw_status sw_generate_text(const struct sw_generate_options *options, FILE *out, bool *started)
{
    SW_TRY_OPTIONS(options);
    struct generate g = {.options = options,
                         .leads = !options->comm || sw_comm_rank(options->comm) == 0};
    *started = false;
    sw_status st = open_all(&g);
    int64_t at = 0;
    const char *text = sw_str_text(&g.texts);
    for (int64_t i = 0; i < g.sizes.len && st >= 0; i++) {
        *started = true;
        st = write_text(&g, text, g.ids.ptr + at, g.sizes.ptr[i], out);
        at += g.sizes.ptr[i];
        text += g.leads ? strlen(text) + 1 : 0;
    }
    sw_free(g.out);
    sw_job_settings_fini(&g.settings);
    sw_ids_fini(&g.ids);
    sw_ids_fini(&g.sizes);
    sw_str_fini(&g.texts);
    sw_close(g.engine);
    sw_tokenizer_close(g.tokenizer);
    return st;
}
