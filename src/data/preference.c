// SPDX-License-Identifier: Apache-2.0
// Rows of preferences: a prompt with a chosen and a rejected response, as texts or chats; for KTO
// also single responses with a label. A pair of which a side has no token of its response left
// within the row is left out, and so is a pair of a reward model that does not fit.
#include "data/record.h"
#include "data/task_rows.h"

#include <string.h>

static const char *const wanted_fields = "\"prompt\", \"chosen\" and \"rejected\"";

static bool is_unpaired(const struct sw_task_reading *in)
{
    return in->form->task->losses[0].kind == SW_LOSS_UNPAIRED;
}

static bool is_scored(const struct sw_task_reading *in)
{
    return in->form->task->losses[0].kind == SW_LOSS_REWARD;
}

/* ---- fields ---- */

static sw_status fail_absent(const struct sw_task_reading *in, const struct sw_json_doc *doc,
                             const struct sw_json *record, const char *name)
{
    struct sw_str has = {0};
    for (const struct sw_json *v = record->first; v; v = v->next) {
        sw_str_printf(&has, "%s\"%s\"", has.len ? ", " : "", v->key);
    }
    const sw_status st = SW_FAIL(
        SW_E_FORMAT, "%s: no \"%s\"; wanted %s%s, found %s", sw_json_name(doc), name, wanted_fields,
        is_unpaired(in) ? ", or \"prompt\", \"completion\" and \"label\"" : "",
        has.len ? sw_str_text(&has) : "no field");
    sw_str_fini(&has);
    return st;
}

/* A text, or a list of messages. */
static sw_status get(const struct sw_task_reading *in, const struct sw_json_doc *doc,
                     const struct sw_json *record, const char *name, const struct sw_json **out)
{
    *out = sw_json_get(record, name);
    if (!*out || (*out)->type == SW_JSON_NULL) {
        return fail_absent(in, doc, record, name);
    }
    if ((*out)->type != SW_JSON_STRING && (*out)->type != SW_JSON_ARRAY) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %s, wanted a text or a list of messages",
                       sw_json_name(doc), name, sw_json_type_name((*out)->type));
    }
    return SW_OK;
}

/* ---- one side ---- */

/* Takes over the ids of a side. Returns false in *fits if it must be left out. */
static sw_status add_side(struct sw_task_reading *in, const char *name, const struct sw_ids *ids,
                          int64_t begin, int64_t end, struct sw_task_side *out, bool *fits)
{
    struct sw_task_rows *r = in->rows;
    const int64_t most = is_scored(in) ? in->form->T : in->form->T + 1;
    *out =
        (struct sw_task_side){r->ids.len, sw_min_i64(ids->len, most), begin, sw_min_i64(end, most)};
    for (int64_t i = 0; i < ids->len; i++) {
        if (ids->ptr[i] >= in->vocab_size) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s: the tokenizer gives the id %d, wanted below the vocabulary's %lld",
                           name, ids->ptr[i], (long long)in->vocab_size);
        }
        SW_TRY(i < out->n ? sw_ids_push(&r->ids, ids->ptr[i]) : SW_OK);
    }
    r->n_cut += ids->len > most;
    *fits =
        *fits && out->begin < out->end && out->begin > 0 && (!is_scored(in) || ids->len <= most);
    return SW_OK;
}

void sw_warn_merged(const char *name, int64_t n_merged, int64_t n, const char *what)
{
    if (n_merged > 0) {
        sw_log(SW_LOG_WARN,
               "%s: in %lld of %lld %s the prompt has other tokens alone than before the text that "
               "follows, which begins where they differ; end prompts where a token ends, with a "
               "line end or before a space",
               name, (long long)n_merged, (long long)n, what);
    }
}

/* A prompt and a response as texts, joined as prompts and completions are. */
static sw_status encode_text(struct sw_task_reading *in, const struct sw_json *prompt,
                             const struct sw_json *response, struct sw_ids *ids, int64_t *begin)
{
    bool merged;
    const size_t n_prompt = prompt ? prompt->string_len : 0;
    sw_str_clear(&in->joined);
    sw_str_append(&in->joined, prompt ? prompt->string : "", n_prompt);
    sw_str_append(&in->joined, response->string, response->string_len);
    if (in->joined.failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a text");
    }
    SW_TRY(sw_tokenizer_encode_example(in->options->tokenizer, &in->joined, n_prompt, ids, begin,
                                       &merged));
    in->n_responses++;
    in->n_merged += merged;
    return SW_OK;
}

static bool put_message(struct sw_json_doc *doc, struct sw_json *list, const char *role,
                        const struct sw_json *text)
{
    struct sw_json *message = sw_json_put(doc, list, NULL, SW_JSON_OBJECT);
    return message && sw_json_put_str(doc, message, "role", role) &&
           sw_json_put_copy(doc, message, "content", text);
}

/* Adds messages, or the text of one from `role`. */
static bool put_messages(struct sw_json_doc *doc, struct sw_json *list, const char *role,
                         const struct sw_json *from)
{
    bool good = true;
    if (from->type == SW_JSON_STRING) {
        return put_message(doc, list, role, from);
    }
    for (const struct sw_json *m = from->first; m && good; m = m->next) {
        good = sw_json_put_copy(doc, list, NULL, m) != NULL;
    }
    return good;
}

static bool is_answer(const struct sw_json *message)
{
    const struct sw_json *role = sw_json_get(message, "role");
    return role && role->type == SW_JSON_STRING && strcmp(role->string, "assistant") == 0;
}

/* A list that begins with another role than the assistant's is the whole conversation, whatever
 * the prompt says. */
static bool is_whole(const struct sw_json *prompt, const struct sw_json *response)
{
    return !prompt || (prompt->type == SW_JSON_STRING && response->type == SW_JSON_ARRAY &&
                       response->first && !is_answer(response->first));
}

static sw_status check_answers(const struct sw_json_doc *doc, const struct sw_json *messages,
                               const struct sw_json *response)
{
    if (!messages->last || !is_answer(messages->last)) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" does not end with a message of the assistant",
                       sw_json_name(doc), response->key);
    }
    return SW_OK;
}

/* A chat; the response is its last answer. */
static sw_status encode_chat(struct sw_task_reading *in, const struct sw_json_doc *doc,
                             const struct sw_json *prompt, const struct sw_json *response,
                             int64_t *begin, int64_t *end)
{
    struct sw_json_doc *line = NULL;
    sw_status st;
    SW_TRY(sw_json_new(sw_json_name(doc), &line));
    struct sw_json *list = sw_json_put(line, sw_json_root(line), "messages", SW_JSON_ARRAY);
    const bool good = list &&
                      (is_whole(prompt, response) || put_messages(line, list, "user", prompt)) &&
                      put_messages(line, list, "assistant", response);
    if (!good) {
        st = SW_FAIL(SW_E_NOMEM, "%s: out of host memory for a chat", sw_json_name(doc));
        goto done;
    }
    SW_TRY_OR(done, check_answers(doc, list, response));
    SW_TRY_OR(done, sw_chat_encode(in->options->chat, line, sw_json_root(line), &in->chat_row));
    *begin = 0;
    const float *weights = in->chat_row.weights;
    while (*begin < in->chat_row.ids.len && weights[*begin] == 0) {
        ++*begin;
    }
    *end = in->chat_row.ids.len;
    while (*end > *begin && weights[*end - 1] == 0) {
        --*end;
    }
    if (*begin < *end && weights[*begin] != 1) {
        st = SW_FAIL(SW_E_FORMAT, "%s: a response has the weight %g; responses have none but 1",
                     sw_json_name(doc), (double)weights[*begin]);
    }
done:
    sw_json_close(line);
    return st;
}

static sw_status encode_side(struct sw_task_reading *in, const struct sw_json_doc *doc,
                             const struct sw_json *prompt, const struct sw_json *response,
                             struct sw_task_side *out, bool *fits)
{
    const char *name = sw_json_name(doc);
    const bool texts =
        response->type == SW_JSON_STRING && (!prompt || prompt->type == SW_JSON_STRING);
    int64_t begin, end;
    if (in->options->chat && (prompt || !texts)) {
        SW_TRY(encode_chat(in, doc, prompt, response, &begin, &end));
        return add_side(in, name, &in->chat_row.ids, begin, end, out, fits);
    }
    if (!texts) {
        return SW_FAIL(SW_E_CONFIG, "%s: \"%s\" is a chat, and no chat template was given", name,
                       response->type == SW_JSON_STRING ? "prompt" : response->key);
    }
    const sw_status st = encode_text(in, prompt, response, &in->chat_row.ids, &begin);
    if (st < 0) {
        return sw_fail_prefix(st, "%s", name);
    }
    return add_side(in, name, &in->chat_row.ids, sw_max_i64(begin, 1), in->chat_row.ids.len, out,
                    fits);
}

/* ---- records ---- */

/* The ids of both sides as they were before they were cut to the row. */
static sw_status check_different(const struct sw_json_doc *doc, const struct sw_ids *a,
                                 const struct sw_ids *b)
{
    if (a->len != b->len || memcmp(a->ptr, b->ptr, (size_t)a->len * sizeof *a->ptr) != 0) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT,
                   "%s: \"chosen\" and \"rejected\" are the same %lld tokens; wanted two "
                   "responses, and a template that keeps both",
                   sw_json_name(doc), (long long)a->len);
}

/* Adds a row; KTO compares it with the response `apart` rows before. */
static sw_status add_row(struct sw_task_reading *in, const struct sw_task_side sides[2],
                         int32_t label, int32_t apart)
{
    struct sw_task_rows *r = in->rows;
    const struct sw_task_row row = {.label = label, .question = apart};
    SW_TRY_ALLOC(sw_task_grow(&r->sides, 2 * r->n, &r->sides_cap, 2 * sizeof *r->sides) ? r : NULL,
                 "the rows");
    r->sides[2 * r->n] = sides[0];
    r->sides[2 * r->n + 1] = sides[1];
    return sw_task_add_row(in, &row);
}

static sw_status add_pair(struct sw_task_reading *in, const struct sw_json_doc *doc,
                          const struct sw_json *prompt, const struct sw_json *const responses[2])
{
    struct sw_task_side sides[2], none = {0};
    struct sw_ids chosen = {0};
    bool fits = true;
    sw_status st;
    SW_TRY(encode_side(in, doc, prompt, responses[0], &sides[0], &fits));
    for (int64_t i = 0; i < in->chat_row.ids.len; i++) {
        SW_TRY_OR(done, sw_ids_push(&chosen, in->chat_row.ids.ptr[i]));
    }
    SW_TRY_OR(done, encode_side(in, doc, prompt, responses[1], &sides[1], &fits));
    SW_TRY_OR(done, check_different(doc, &chosen, &in->chat_row.ids));
    if (!in->options->chat) { /* both begin after the tokens that they share with the prompt */
        const int64_t begin = sw_min_i64(sides[0].begin, sides[1].begin);
        sides[0].begin = sides[1].begin = begin;
    }
    in->rows->n_dropped += !fits;
    if (fits && is_unpaired(in)) {
        SW_TRY_OR(done, add_row(in, (const struct sw_task_side[2]){sides[0], none}, 1, 2));
        SW_TRY_OR(done, add_row(in, (const struct sw_task_side[2]){sides[1], none}, 0, 2));
    } else if (fits) {
        SW_TRY_OR(done, add_row(in, sides, 1, 0));
    }
done:
    sw_ids_fini(&chosen);
    return st;
}

/* A response that is desirable or not. */
static sw_status add_single(struct sw_task_reading *in, const struct sw_json_doc *doc,
                            const struct sw_json *record, const struct sw_json *prompt)
{
    const struct sw_json *response, *label = sw_json_get(record, "label");
    struct sw_task_side sides[2] = {{0}};
    bool fits = true;
    SW_TRY(get(in, doc, record, "completion", &response));
    const bool number = label && label->type == SW_JSON_INT;
    if (!label || (label->type != SW_JSON_BOOL && !number) ||
        (number && label->integer != 0 && label->integer != 1)) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"label\" is %s, wanted true or false", sw_json_name(doc),
                       label ? sw_json_type_name(label->type) : "absent");
    }
    SW_TRY(encode_side(in, doc, prompt, response, &sides[0], &fits));
    in->rows->n_dropped += !fits;
    return fits ? add_row(in, sides, number ? (int32_t)label->integer : label->boolean, 1) : SW_OK;
}

sw_status sw_task_add_preference(struct sw_task_reading *in, const struct sw_json_doc *doc,
                                 const struct sw_json *record)
{
    const struct sw_json *prompt = sw_json_get(record, "prompt"), *responses[2];
    const bool single = is_unpaired(in) && sw_json_get(record, "completion");
    if (single) {
        SW_TRY(get(in, doc, record, "prompt", &prompt));
        return add_single(in, doc, record, prompt);
    }
    SW_TRY(get(in, doc, record, "chosen", &responses[0]));
    SW_TRY(get(in, doc, record, "rejected", &responses[1]));
    if (prompt || (responses[0]->type == SW_JSON_STRING && !is_scored(in))) {
        SW_TRY(get(in, doc, record, "prompt", &prompt));
    }
    return add_pair(in, doc, prompt, responses);
}

/* ---- kinds of files ---- */

struct glance {
    enum sw_data_kind kind;
    bool found;
};

static sw_status glance_at(void *ctx, const struct sw_json_doc *doc, const struct sw_json *record)
{
    static const char *const names[] = {"prompt", "chosen", "rejected", "completion"};
    struct glance *glance = ctx;
    (void)doc;
    glance->found = true;
    glance->kind = sw_json_get(record, "prompt") ? SW_DATA_PAIRS : SW_DATA_TEXT;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        const struct sw_json *v = sw_json_get(record, names[i]);
        glance->kind = v && v->type == SW_JSON_ARRAY ? SW_DATA_CHATS : glance->kind;
    }
    return SW_E_STOP;
}

sw_status sw_preferences_kind(const char *path, enum sw_data_kind *out)
{
    struct glance glance = {.kind = SW_DATA_TEXT};
    const sw_status st = sw_records_read(path, false, glance_at, &glance);
    *out = glance.kind;
    return glance.found ? SW_OK : st;
}
