// SPDX-License-Identifier: Apache-2.0
// Streams of lines through a tokenizer: what `spillway tokenize` does between its two ends. A line
// is cut at \n; a carriage return stays in its text.
#include "chat/chat.h"
#include "json/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct stream_job {
    struct sw_tokenizer *tokenizer;
    const struct sw_tokenize_options *options;
    const char *name;
    bool targets; /* texts are those that a model writes */
    struct sw_ids ids;
    struct sw_str line, out;
};

static void put_ids(const struct sw_ids *ids, const char *separator, struct sw_str *out)
{
    for (int64_t i = 0; i < ids->len; ++i) {
        sw_str_printf(out, "%s%d", i > 0 ? separator : "", ids->ptr[i]);
    }
}

static sw_status push_id(struct stream_job *job, int64_t id)
{
    if (id < 0 || id > INT32_MAX) {
        return SW_FAIL(SW_E_FORMAT, "the id %lld, wanted 0 to %d", (long long)id, INT32_MAX);
    }
    return sw_ids_push(&job->ids, (int32_t)id);
}

/* ---- plain lines ---- */

static sw_status encode_text(struct stream_job *job, const char *text, size_t len)
{
    return (job->targets ? sw_tokenizer_encode_target : sw_tokenizer_encode)(
        job->tokenizer, text, len, job->options->special, &job->ids);
}

static sw_status encode_line(struct stream_job *job, const char *line, size_t len)
{
    SW_TRY(encode_text(job, line, len));
    put_ids(&job->ids, " ", &job->out);
    return SW_OK;
}

static sw_status decode_line(struct stream_job *job, const char *line, size_t len)
{
    const char *at = line;
    while (at[strspn(at, " \t\r")] != '\0') {
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (end == at || errno != 0 || !strchr(" \t\r", *end)) {
            at += strspn(at, " \t\r");
            return SW_FAIL(SW_E_FORMAT, "wanted token ids, found '%.*s'", (int)strcspn(at, " \t\r"),
                           at);
        }
        SW_TRY(push_id(job, id));
        at = end;
    }
    if (at + strspn(at, " \t\r") != line + len) {
        return SW_FAIL(SW_E_FORMAT, "wanted token ids, found a zero byte");
    }
    return sw_tokenizer_decode_str(job->tokenizer, job->ids.ptr, job->ids.len,
                                   !job->options->special, &job->out);
}

/* ---- JSON lines ---- */

static sw_status encode_object(struct stream_job *job, const struct sw_json *object)
{
    const struct sw_json *text = sw_json_get(object, "text"), *pair = sw_json_get(object, "pair");
    if (text && !pair && text->type == SW_JSON_STRING) {
        SW_TRY(encode_text(job, text->string, text->string_len));
    } else if (pair && !text && !job->targets && pair->type == SW_JSON_ARRAY &&
               pair->n_children == 2 && pair->first->type == SW_JSON_STRING &&
               pair->last->type == SW_JSON_STRING) {
        SW_TRY(sw_tokenizer_encode_pair(
            job->tokenizer, pair->first->string, pair->first->string_len, pair->last->string,
            pair->last->string_len, job->options->special, &job->ids, NULL));
    } else {
        return SW_FAIL(SW_E_FORMAT, "wanted {\"text\": ..}%s of strings",
                       job->targets ? "" : " or {\"pair\": [.., ..]}");
    }
    sw_str_puts(&job->out, "{\"ids\":[");
    put_ids(&job->ids, ",", &job->out);
    sw_str_puts(&job->out, "]}");
    return SW_OK;
}

static sw_status decode_object(struct stream_job *job, const struct sw_json *object)
{
    sw_status st;
    struct sw_str text = {0};
    const struct sw_json *ids = sw_json_get(object, "ids");
    if (!ids || ids->type != SW_JSON_ARRAY) {
        return SW_FAIL(SW_E_FORMAT, "wanted {\"ids\": [..]}");
    }
    for (const struct sw_json *id = ids->first; id; id = id->next) {
        if (id->type != SW_JSON_INT) {
            return SW_FAIL(SW_E_FORMAT, "an id is %s, wanted a whole number",
                           sw_json_type_name(id->type));
        }
        SW_TRY(push_id(job, id->integer));
    }
    SW_TRY_OR(done, sw_tokenizer_decode_str(job->tokenizer, job->ids.ptr, job->ids.len,
                                            !job->options->special, &text));
    sw_str_puts(&job->out, "{\"text\":");
    sw_json_write_string(sw_str_text(&text), text.len, &job->out);
    sw_str_puts(&job->out, "}");
done:
    sw_str_fini(&text);
    return st;
}

static sw_status json_line(struct stream_job *job, const char *line, size_t len)
{
    sw_status st;
    struct sw_json_doc *doc;
    SW_TRY(sw_json_parse("JSON", line, len, SW_JSON_STRICT, &doc));
    st = job->options->decode ? decode_object(job, sw_json_root(doc))
                              : encode_object(job, sw_json_root(doc));
    sw_json_close(doc);
    return st;
}

/* ---- conversations ---- */

static sw_status chat_line(struct stream_job *job, const char *line, size_t len)
{
    struct sw_json_doc *doc;
    struct sw_chat_row row = {0};
    SW_TRY(sw_json_parse("JSON", line, len, SW_JSON_STRICT, &doc));
    const sw_status st = sw_chat_encode(job->options->chat, doc, sw_json_root(doc), &row);
    if (st >= 0) {
        sw_str_puts(&job->out, "{\"text\":");
        sw_json_write_string(sw_str_text(&row.text), row.text.len, &job->out);
        sw_str_puts(&job->out, ",\"ids\":[");
        put_ids(&row.ids, ",", &job->out);
        sw_str_puts(&job->out, "],\"mask\":[");
        for (int64_t i = 0; i < row.ids.len; ++i) {
            sw_str_puts(&job->out, i == 0 ? "" : ",");
            sw_str_putc(&job->out, row.weights[i] > 0 ? '1' : '0');
        }
        sw_str_puts(&job->out, "]}");
    }
    sw_chat_row_fini(&row);
    sw_json_close(doc);
    return st;
}

/* ---- the loop ---- */

static sw_status do_line(struct stream_job *job, const char *line, size_t len)
{
    sw_ids_clear(&job->ids);
    sw_str_clear(&job->out);
    if (job->options->chat) {
        SW_TRY(chat_line(job, line, len));
    } else if (job->options->json) {
        SW_TRY(json_line(job, line, len));
    } else if (job->options->decode) {
        SW_TRY(decode_line(job, line, len));
    } else {
        SW_TRY(encode_line(job, line, len));
    }
    sw_str_putc(&job->out, '\n');
    return job->out.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a line") : SW_OK;
}

static bool skipped(const struct stream_job *job, const char *line, size_t len)
{
    return (job->options->json || job->options->chat) && strspn(line, " \t\r") == len;
}

/* The next line without its \n; false at the end of the input. */
static bool get_line(FILE *in, struct sw_str *line)
{
    int c;
    sw_str_clear(line);
    while ((c = getc_unlocked(in)) != EOF && c != '\n') {
        sw_str_putc(line, (char)c);
    }
    return c != EOF || line->len > 0;
}

static sw_status do_lines(struct stream_job *job, FILE *in, FILE *out)
{
    for (int64_t i_line = 1; get_line(in, &job->line); ++i_line) {
        const char *line = sw_str_text(&job->line);
        if (job->line.failed) {
            return SW_FAIL(SW_E_NOMEM, "%s line %lld: out of host memory", job->name,
                           (long long)i_line);
        }
        if (skipped(job, line, job->line.len)) {
            continue;
        }
        const sw_status st = do_line(job, line, job->line.len);
        if (st < 0) {
            return sw_fail_prefix(st, "%s line %lld", job->name, (long long)i_line);
        }
        if (fwrite(job->out.ptr, 1, job->out.len, out) != job->out.len) {
            return SW_FAIL(SW_E_IO, "writing the result: %s", strerror(errno));
        }
    }
    if (ferror(in)) {
        return SW_FAIL(SW_E_IO, "%s: %s", job->name, strerror(errno));
    }
    return SW_OK;
}

static sw_status do_stream(struct sw_tokenizer *tokenizer,
                           const struct sw_tokenize_options *options, bool targets, FILE *in,
                           FILE *out)
{
    static const struct sw_tokenize_options plain;
    options = options ? options : &plain;
    struct stream_job job = {.tokenizer = tokenizer,
                             .options = options,
                             .name = options->name ? options->name : "standard input",
                             .targets = targets};
    sw_status st = do_lines(&job, in, out);
    if (fflush(out) != 0 && st >= 0) {
        st = SW_FAIL(SW_E_IO, "writing the result: %s", strerror(errno));
    }
    sw_str_fini(&job.line);
    sw_ids_fini(&job.ids);
    sw_str_fini(&job.out);
    return st;
}

sw_status sw_tokenize_stream(struct sw_tokenizer *tokenizer,
                             const struct sw_tokenize_options *options, FILE *in, FILE *out)
{
    return do_stream(tokenizer, options, false, in, out);
}

sw_status sw_tokenize_targets(struct sw_tokenizer *tokenizer,
                              const struct sw_tokenize_options *options, FILE *in, FILE *out)
{
    return do_stream(tokenizer, options, true, in, out);
}
