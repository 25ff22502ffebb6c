// SPDX-License-Identifier: Apache-2.0
// A conversation as the model reads it: the rendered text, its ids, and the ids that the loss
// counts.
//
// If the template marks the model's text ({% generation %}), the loss counts that. Otherwise
// answers are found by rendering parts of the conversation. An answer begins where the earlier
// messages, with the prompt for an answer, end. It ends after the first special token after the
// start of its content. Without one, it ends where the messages up to it no longer agree with the
// whole. The bounds of the content are found by rendering the whole with one character added there.
// Control tokens typed into an answer end it too early. An answer without a span is refused.
#include "chat/private.h"

#include "text/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sw_chat {
    struct sw_tokenizer *tokenizer; /* borrowed */
    struct sw_chat_templates templates;
    int64_t date;
    enum sw_loss_on loss_on;
    bool from_file; /* the template is not the folder's */
    char digest[33];
    struct sw_json_doc *said; /* the conversation of sw_chat_say; NULL: nothing yet */
};

void sw_chat_row_fini(struct sw_chat_row *row)
{
    sw_str_fini(&row->text);
    sw_ids_fini(&row->ids);
    sw_free(row->weights);
    *row = (struct sw_chat_row){0};
}

/* ---- rendering ---- */

/* Sets the template variables besides messages and tools, as transformers does. */
static sw_status put_variables(const struct sw_chat *chat, struct sw_json_doc *doc)
{
    struct sw_json *root = sw_json_root(doc);
    const struct sw_json *token = sw_json_root(chat->templates.tokens)->first;
    bool good = sw_json_put(doc, root, "documents", SW_JSON_NULL);
    for (; token && good; token = token->next) {
        good = sw_json_put_copy(doc, root, token->key, token);
    }
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a conversation");
}

static struct sw_chat_template *template_for(struct sw_chat *chat, const struct sw_json *root)
{
    const struct sw_json *tools = sw_json_get(root, "tools");
    const bool with_tools = tools && tools->type == SW_JSON_ARRAY;
    return with_tools && chat->templates.with_tools.text ? &chat->templates.with_tools
                                                         : &chat->templates.plain;
}

static sw_status render(struct sw_chat *chat, struct sw_json_doc *doc, bool prompt,
                        struct sw_jinja_text *out)
{
    struct sw_json *root = sw_json_root(doc);
    if (!sw_json_put_bool(doc, root, "add_generation_prompt", prompt)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a conversation");
    }
    struct sw_chat_template *template = template_for(chat, root);
    SW_TRY(sw_chat_template_read(template));
    return sw_jinja_render(template->jinja, root, chat->date, out);
}

/* ---- what counts ---- */

struct span { /* bytes of the text */
    size_t first, end;
    /* Without marks: the first special token from `content` on ends the span. If there is none
     * before `end`, the span ends at `sure`; 0: its end is then unknown. */
    size_t content, sure;
    size_t inside; /* offset after the first character of the content */
    int64_t message;
    double weight;
};

struct spans {
    struct span *items; /* [n] owned */
    size_t n;
    bool by_prefix; /* found without marks */
};

static sw_status add_span(struct spans *spans, struct span span)
{
    struct span *items = sw_realloc("conversation", spans->items, (spans->n + 1) * sizeof(*items));
    SW_TRY_ALLOC(items, "a conversation");
    spans->items = items;
    items[spans->n++] = span;
    return SW_OK;
}

static bool begins_with(const struct sw_str *text, const struct sw_str *with)
{
    return text->len >= with->len && memcmp(sw_str_text(text), sw_str_text(with), with->len) == 0;
}

/* Length of the common prefix of two texts, in bytes of whole characters. */
static size_t common(const struct sw_str *a, const struct sw_str *b)
{
    const char *x = sw_str_text(a), *y = sw_str_text(b);
    size_t n = 0;
    while (n < a->len && n < b->len && x[n] == y[n]) {
        n++;
    }
    while (n > 0 && n < a->len && !sw_utf8_begins(x[n])) {
        n--;
    }
    return n;
}

enum { MOST_WEIGHT = 1000000 };

static bool is_answer(const struct sw_json *message)
{
    const struct sw_json *role = sw_json_get(message, "role");
    return role && role->type == SW_JSON_STRING && strcmp(role->string, "assistant") == 0;
}

/* The member "weight" of an answer, by default 1. */
static double weight_of(const struct sw_json *message)
{
    const struct sw_json *weight = sw_json_get(message, "weight");
    return !weight || weight->type == SW_JSON_NULL ? 1 : weight->number;
}

static bool counts(const struct sw_json *message)
{
    return is_answer(message) && weight_of(message) > 0;
}

/* An answer has a weight of 0 or more. Another message is never counted, so 1 is refused there; any
 * other weight is left to the template. *some: at least one answer has another weight than 1. */
static sw_status check_weights(const struct sw_chat *chat, const struct sw_json *root, bool *some)
{
    int64_t i = 0;
    for (const struct sw_json *m = sw_json_get(root, "messages")->first; m; m = m->next, ++i) {
        const struct sw_json *w = sw_json_get(m, "weight");
        if (!w || w->type == SW_JSON_NULL) {
            continue;
        }
        const bool number = w->type == SW_JSON_INT || w->type == SW_JSON_FLOAT;
        if (is_answer(m) && !(number && w->number >= 0 && w->number <= MOST_WEIGHT)) {
            return SW_FAIL(SW_E_FORMAT, "the weight of message %lld is not a number from 0 to %d",
                           (long long)i, MOST_WEIGHT);
        }
        if (number && w->number == 1 && !is_answer(m)) {
            return SW_FAIL(SW_E_FORMAT,
                           "the weight of message %lld is 1; wanted it for an answer, as the loss "
                           "counts no other messages",
                           (long long)i);
        }
        *some = *some || (is_answer(m) && w->number != 1);
    }
    return !*some || chat->loss_on != SW_LOSS_ON_ALL
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG,
                         "an answer has a weight, and --loss-on all counts all tokens alike");
}

static sw_status fail_prefix(int64_t i, const char *why)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", why);
    return SW_FAIL(
        SW_E_UNSUP,
        "the answer of message %lld cannot be located in the output of this template: %s; "
        "give a --chat-template FILE with {%% generation %%} blocks",
        (long long)i, reason);
}

/* Renders the messages up to message i. */
static sw_status render_part(struct sw_chat *chat, struct sw_json_doc *doc, int64_t i, bool prompt,
                             struct sw_jinja_text *out)
{
    const sw_status st = render(chat, doc, prompt, out);
    return st < 0 && out->error != SW_JINJA_NONE ? fail_prefix(i, sw_error_message()) : st;
}

/* The whole conversation, the part up to a message while it is built, and the texts of both. */
struct parts {
    const struct sw_str *text; /* of the whole */
    struct sw_json_doc *doc, *whole;
    struct sw_json *messages; /* of doc */
    struct sw_jinja_text before, until, changed;
};

enum { NOT_KNOWN = -1, NOT_THERE = -2 };

/* Offset at which the text first differs if a character is added before (or after) the content
 * of message i. NOT_THERE: no difference. NOT_KNOWN: the content is not a text, or the
 * template fails. */
static sw_status find_content(struct sw_chat *chat, struct parts *p, int64_t i, bool after,
                              int64_t *out)
{
    struct sw_json *message = sw_json_get(sw_json_root(p->whole), "messages")->first;
    for (int64_t k = 0; k < i; k++) {
        message = message->next;
    }
    struct sw_json *content = sw_json_get(message, "content");
    *out = NOT_KNOWN;
    if (!content || content->type != SW_JSON_STRING) {
        return SW_OK;
    }
    sw_status st = SW_E_NOMEM;
    struct sw_str changed = {0};
    const struct sw_json kept = *content; /* its text may hold NUL */
    const bool taken = memmem(kept.string, kept.string_len, "\xee\x80\x80", 3) != NULL;
    const char *more = taken ? "\xee\x80\x81" : "\xee\x80\x80";
    sw_str_puts(&changed, after ? "" : more);
    sw_str_append(&changed, kept.string, kept.string_len);
    sw_str_puts(&changed, after ? more : "");
    if (!changed.failed) {
        content->string = changed.ptr;
        content->string_len = changed.len;
        st = render(chat, p->whole, false, &p->changed);
        *content = kept;
        if (st >= 0) {
            const size_t at = common(&p->changed.text, p->text);
            *out = at == p->text->len && at == p->changed.text.len ? NOT_THERE : (int64_t)at;
        }
        st = st < 0 && p->changed.error != SW_JINJA_NONE ? SW_OK : st;
    }
    sw_str_fini(&changed);
    return st == SW_E_NOMEM ? SW_FAIL(st, "out of host memory for a conversation") : st;
}

/* A template may write an answer differently before other messages than at the end. The end is then
 * a special token between its content and that of the next message. */
static sw_status find_end(struct sw_chat *chat, struct parts *p, bool is_last, struct span *span)
{
    int64_t after = NOT_KNOWN, next = NOT_KNOWN;
    const size_t agrees = common(&p->until.text, p->text);
    SW_TRY(find_content(chat, p, span->message, true, &after));
    SW_TRY(is_last ? SW_OK : find_content(chat, p, span->message + 1, false, &next));
    span->end = next > 0 ? (size_t)next : p->text->len;
    span->sure = agrees > span->first && (after < 0 || (int64_t)agrees >= after) ? agrees : 0;
    return SW_OK;
}

/* The offset after the character at offset `at`. */
static size_t behind(const struct sw_str *text, size_t at)
{
    at += at < text->len;
    while (at < text->len && !sw_utf8_begins(sw_str_text(text)[at])) {
        at++;
    }
    return at;
}

static sw_status find_answer(struct sw_chat *chat, struct parts *p, const struct sw_json *message,
                             int64_t i, struct spans *spans)
{
    if (i == 0) {
        return fail_prefix(i, "nothing comes before it");
    }
    SW_TRY(render_part(chat, p->doc, i, true, &p->before));
    SW_TRY_ALLOC(sw_json_put_copy(p->doc, p->messages, NULL, message), "a conversation");
    SW_TRY(render_part(chat, p->doc, i, false, &p->until));
    if (!begins_with(p->text, &p->before.text) || !begins_with(&p->until.text, &p->before.text)) {
        return fail_prefix(
            i, "it writes the messages before the answer differently once there is an answer");
    }
    int64_t content;
    struct span span = {.first = p->before.text.len, .message = i, .weight = weight_of(message)};
    SW_TRY(find_content(chat, p, i, false, &content));
    if (content == NOT_THERE) { /* it may begin with a thought, which the template drops */
        SW_TRY(find_content(chat, p, i, true, &content));
    }
    if (content == NOT_THERE) {
        return fail_prefix(i, "it leaves its content out");
    }
    span.content = content < (int64_t)span.first ? span.first : (size_t)content;
    span.inside = behind(p->text, span.content);
    if (begins_with(p->text, &p->until.text)) {
        span.end = span.sure = p->until.text.len;
    } else {
        SW_TRY(find_end(chat, p, message->next == NULL, &span));
    }
    return add_span(spans, span);
}

static sw_status copy_conversation(const struct sw_json *root, const struct sw_json *without,
                                   struct sw_json_doc **out)
{
    SW_TRY(sw_json_new("conversation", out));
    for (const struct sw_json *v = root->first; v; v = v->next) {
        if (v != without && !sw_json_put_copy(*out, sw_json_root(*out), v->key, v)) {
            return SW_FAIL(SW_E_NOMEM, "out of host memory for a conversation");
        }
    }
    return SW_OK;
}

/* Each answer costs several renderings, each of up to the whole text. */
static sw_status check_work(const struct sw_str *text, int64_t n_answers)
{
    const int64_t most = (int64_t)1 << 28;
    return n_answers <= most / (int64_t)(text->len + 1)
               ? SW_OK
               : SW_FAIL(SW_E_UNSUP,
                         "locating %lld answers in a text of %zu bytes takes more "
                         "than %lld bytes of work; give a --chat-template FILE with "
                         "{%% generation %%} blocks",
                         (long long)n_answers, text->len, (long long)most);
}

static sw_status find_answers(struct sw_chat *chat, const struct sw_json *root,
                              const struct sw_str *text, struct spans *spans)
{
    sw_status st;
    struct parts p = {.text = text};
    const struct sw_json *messages = sw_json_get(root, "messages"), *last = NULL;
    int64_t i = 0, n_answers = 0;
    for (const struct sw_json *m = messages->first; m; m = m->next) {
        last = is_answer(m) ? m : last;
        n_answers += counts(m);
    }
    SW_TRY(check_work(text, chat->loss_on == SW_LOSS_ON_ANSWERS ? n_answers : 1));
    SW_TRY_OR(done, copy_conversation(root, messages, &p.doc));
    SW_TRY_OR(done, copy_conversation(root, NULL, &p.whole));
    p.messages = sw_json_put(p.doc, sw_json_root(p.doc), "messages", SW_JSON_ARRAY);
    for (const struct sw_json *m = messages->first; m && p.messages && st >= 0; m = m->next, ++i) {
        const bool wanted = counts(m) && (chat->loss_on == SW_LOSS_ON_ANSWERS || m == last);
        if (wanted) {
            st = find_answer(chat, &p, m, i, spans);
        } else if (!sw_json_put_copy(p.doc, p.messages, NULL, m)) {
            p.messages = NULL;
        }
    }
    if (st >= 0 && !p.messages) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a conversation");
    }
    spans->by_prefix = true;
done:
    sw_jinja_text_fini(&p.before);
    sw_jinja_text_fini(&p.until);
    sw_jinja_text_fini(&p.changed);
    sw_json_close(p.doc);
    sw_json_close(p.whole);
    return st;
}

/* Checks that the template marks each answer once, so that weights find theirs. */
static sw_status check_marks(const struct sw_json *root, size_t n)
{
    size_t n_answers = 0;
    for (const struct sw_json *m = sw_json_get(root, "messages")->first; m; m = m->next) {
        n_answers += is_answer(m);
    }
    return n == n_answers
               ? SW_OK
               : SW_FAIL(SW_E_UNSUP,
                         "an answer has a weight, and the template marks %zu texts of %zu "
                         "answers; wanted a {%% generation %%} block for each",
                         n, n_answers);
}

/* The spans that the template marks, without those of answers of weight 0. */
static sw_status take_marks(const struct sw_chat *chat, const struct sw_json *root, bool some,
                            const struct sw_jinja_text *text, struct spans *spans)
{
    const size_t n = text->n_spans;
    const struct sw_json *m = sw_json_get(root, "messages")->first;
    SW_TRY(some ? check_marks(root, n) : SW_OK);
    for (size_t i = 0; i < n; ++i) {
        while (some && !is_answer(m)) {
            m = m->next;
        }
        const double weight = some ? weight_of(m) : 1;
        if ((chat->loss_on == SW_LOSS_ON_ANSWERS || i + 1 == n) && weight > 0) {
            SW_TRY(add_span(spans, (struct span){.first = text->spans[i].first,
                                                 .end = text->spans[i].end,
                                                 .weight = weight}));
        }
        m = some ? m->next : m;
    }
    return SW_OK;
}

static sw_status find_spans(struct sw_chat *chat, const struct sw_json *root,
                            const struct sw_jinja_text *text, struct spans *spans)
{
    bool some = false;
    SW_TRY(check_weights(chat, root, &some));
    if (chat->loss_on == SW_LOSS_ON_ALL) {
        return SW_OK;
    }
    if (!sw_jinja_marks(template_for(chat, root)->jinja)) {
        return find_answers(chat, root, &text->text, spans);
    }
    return take_marks(chat, root, some, text, spans);
}

/* ---- tokens ---- */

static int compare_places(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* The first token that has passed n_edges edges. */
static int64_t first_behind(const struct sw_ids *passed, int32_t n_edges)
{
    int64_t low = 0, high = passed->len;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (passed->ptr[middle] < n_edges) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* passed: for each token, the number of edges at or before its first character. */
static sw_status mark_span(const struct sw_chat *chat, const struct spans *spans, size_t i_span,
                           const struct sw_edges *edges, const struct sw_ids *passed,
                           struct sw_chat_row *out)
{
    const struct span *span = &spans->items[i_span];
    const int32_t content = sw_edges_to(edges, span->content);
    const int32_t inside = sw_edges_to(edges, span->inside);
    const int64_t end = first_behind(passed, sw_edges_to(edges, span->end));
    for (int64_t t = first_behind(passed, sw_edges_to(edges, span->first)); t < end; ++t) {
        /* A token that includes the spaces before it may begin before the content. */
        const bool reaches = t + 1 == out->ids.len || passed->ptr[t + 1] >= inside;
        out->weights[t] = (float)span->weight;
        if (spans->by_prefix && (passed->ptr[t] >= content || reaches) &&
            chat->tokenizer->ops->special->is_special(chat->tokenizer, out->ids.ptr[t])) {
            return SW_OK;
        }
    }
    if (!spans->by_prefix || span->sure == span->end) {
        return SW_OK;
    }
    if (span->sure == 0) {
        return fail_prefix(span->message, "no special token ends it");
    }
    for (int64_t t = first_behind(passed, sw_edges_to(edges, span->sure)); t < end; ++t) {
        out->weights[t] = 0;
    }
    return SW_OK;
}

static sw_status reserve_weights(struct sw_chat_row *row)
{
    if (row->ids.len > row->weights_cap) {
        float *weights =
            sw_realloc("conversation", row->weights, (size_t)row->ids.len * sizeof *weights);
        SW_TRY_ALLOC(weights, "a conversation");
        row->weights = weights;
        row->weights_cap = row->ids.len;
    }
    return SW_OK;
}

/* Encodes the text into out->ids, which is empty before, and sets out->weights of tokens in spans.
 * The bounds of spans, up to five each, are the edges; the tokenizer counts for each token those
 * that it has passed. */
static sw_status encode_text(const struct sw_chat *chat, const struct sw_str *text,
                             const struct spans *spans, struct sw_chat_row *out)
{
    sw_status st;
    struct sw_ids passed = {0};
    struct sw_edges edges = {0};
    size_t *at = sw_alloc("conversation", (5 * spans->n + 1) * sizeof(*at));
    SW_TRY_ALLOC(at, "a conversation");
    for (size_t i = 0; i < spans->n; ++i) {
        at[edges.n++] = spans->items[i].first;
        at[edges.n++] = spans->items[i].end;
        if (spans->by_prefix) {
            at[edges.n++] = spans->items[i].content;
            at[edges.n++] = spans->items[i].inside;
            at[edges.n++] = spans->items[i].sure;
        }
    }
    qsort(at, edges.n, sizeof(*at), compare_places);
    edges.at = at;
    SW_TRY_OR(done, chat->tokenizer->ops->special->encode_edges(
                        chat->tokenizer, sw_str_text(text), text->len, &edges, &out->ids, &passed));
    SW_TRY_OR(done, reserve_weights(out));
    for (int64_t t = 0; t < out->ids.len; ++t) {
        out->weights[t] = chat->loss_on == SW_LOSS_ON_ALL;
    }
    for (size_t i = 0; i < spans->n && st >= 0; ++i) {
        st = mark_span(chat, spans, i, &edges, &passed, out);
    }
done:
    sw_ids_fini(&passed);
    sw_free(at);
    return st;
}

sw_status sw_chat_encode(struct sw_chat *chat, const struct sw_json_doc *line_doc,
                         const struct sw_json *line, struct sw_chat_row *out)
{
    sw_status st;
    struct sw_json_doc *doc = NULL;
    struct spans spans = {0};
    struct sw_jinja_text text = {.text = out->text}; /* uses its memory again */
    sw_ids_clear(&out->ids);
    SW_TRY(sw_json_new("conversation", &doc));
    SW_TRY_OR(done, sw_chat_read_line(line_doc, line, doc, sw_json_root(doc)));
    st = put_variables(chat, doc);
    st = st < 0 ? st : render(chat, doc, false, &text);
    st = st < 0 ? st : find_spans(chat, sw_json_root(doc), &text, &spans);
    st = st < 0 ? st : encode_text(chat, &text.text, &spans, out);
    if (st < 0) {
        sw_fail_prefix(st, "%s", sw_json_name(line_doc));
    }
done:
    out->text = text.text;
    text.text = (struct sw_str){0};
    sw_jinja_text_fini(&text);
    sw_free(spans.items);
    sw_json_close(doc);
    return st;
}

/* ---- talking ---- */

static sw_status begin_talk(const struct sw_chat *chat, struct sw_json_doc **out)
{
    struct sw_json_doc *said = NULL;
    SW_TRY(sw_json_new("conversation", &said));
    sw_status st = put_variables(chat, said);
    if (st >= 0 && (!sw_json_put(said, sw_json_root(said), "tools", SW_JSON_NULL) ||
                    !sw_json_put(said, sw_json_root(said), "messages", SW_JSON_ARRAY))) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a conversation");
    }
    if (st < 0) {
        sw_json_close(said);
        return st;
    }
    *out = said;
    return SW_OK;
}

sw_status sw_chat_say(struct sw_chat *chat, const char *role, const char *content)
{
    if (!chat->said) {
        SW_TRY(begin_talk(chat, &chat->said));
    }
    struct sw_json *message = sw_json_put(
        chat->said, sw_json_get(sw_json_root(chat->said), "messages"), NULL, SW_JSON_OBJECT);
    if (!message || !sw_json_put_str(chat->said, message, "role", role) ||
        !sw_json_put_str(chat->said, message, "content", content)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a conversation");
    }
    return SW_OK;
}

sw_status sw_chat_prompt(struct sw_chat *chat, struct sw_ids *ids)
{
    struct sw_jinja_text text = {0};
    if (!chat->said) {
        return SW_FAIL(SW_E_ARG, "chat: nothing was said yet");
    }
    sw_status st = render(chat, chat->said, true, &text);
    if (st >= 0) {
        st = sw_tokenizer_encode(chat->tokenizer, sw_str_text(&text.text), text.text.len, false,
                                 ids);
    }
    sw_jinja_text_fini(&text);
    return st;
}

sw_status sw_chat_ask(struct sw_chat *chat, const char *content, struct sw_ids *ids)
{
    struct sw_json_doc *said = chat->said;
    chat->said = NULL;
    sw_status st = sw_chat_say(chat, "user", content);
    st = st < 0 ? st : sw_chat_prompt(chat, ids);
    sw_json_close(chat->said);
    chat->said = said;
    return st;
}

/* ---- words ---- */

static const char *const loss_names[] = {
    [SW_LOSS_ON_ANSWERS] = "answers", [SW_LOSS_ON_LAST] = "last", [SW_LOSS_ON_ALL] = "all"};

const char *sw_loss_on_name(enum sw_loss_on loss_on)
{
    return loss_names[loss_on];
}

bool sw_loss_on_by_name(const char *name, enum sw_loss_on *out)
{
    for (size_t i = 0; i < SW_LEN(loss_names); ++i) {
        if (strcmp(name, loss_names[i]) == 0) {
            *out = (enum sw_loss_on)i;
            return true;
        }
    }
    return false;
}

/* Requires "dddd-dd-dd". A year of fewer digits would not round-trip. */
static bool has_form_of_day(const char *text)
{
    for (int i = 0; i < 10; ++i) {
        if (i == 4 || i == 7 ? text[i] != '-' : text[i] < (i == 0 ? '1' : '0') || text[i] > '9') {
            return false;
        }
    }
    return text[10] == '\0';
}

bool sw_day_of_text(const char *text, int64_t *out)
{
    struct tm day = {0}, back;
    int year, month;
    if (!has_form_of_day(text) || sscanf(text, "%d-%d-%d", &year, &month, &day.tm_mday) != 3) {
        return false;
    }
    day.tm_year = year - 1900;
    day.tm_mon = month - 1;
    const time_t at = timegm(&day);
    if (!gmtime_r(&at, &back) || back.tm_mday != day.tm_mday || back.tm_mon != month - 1 ||
        back.tm_year != year - 1900) {
        return false;
    }
    *out = (int64_t)at;
    return true;
}

void sw_day_text(int64_t day, char out[11])
{
    const time_t at = (time_t)day;
    struct tm parts;
    if (!gmtime_r(&at, &parts) || strftime(out, 11, "%Y-%m-%d", &parts) == 0) {
        out[0] = '\0';
    }
}

sw_status sw_chat_options_read(const char *template_path, const char *date, const char *loss_on,
                               struct sw_chat_options *out)
{
    enum { DAY_SECONDS = 86400 };
    const int64_t now = (int64_t)time(NULL);
    const bool off = !template_path || strcmp(template_path, "none") == 0;
    *out = (struct sw_chat_options){.template_path = template_path,
                                    .date = now - now % DAY_SECONDS,
                                    .asked_for = !off || date || loss_on};
    if (date && !sw_day_of_text(date, &out->date)) {
        return SW_FAIL(SW_E_ARG, "--chat-date: wanted a day such as 2026-11-22, got \"%s\"", date);
    }
    if (loss_on && !sw_loss_on_by_name(loss_on, &out->loss_on)) {
        return SW_FAIL(SW_E_ARG, "--loss-on: wanted answers, last or all, got \"%s\"", loss_on);
    }
    return SW_OK;
}

/* ---- opening ---- */

/* Hashes the templates and the special tokens that they may write. */
static sw_status take_digest(struct sw_chat *chat)
{
    struct sw_str tokens = {0};
    const struct sw_chat_template *const both[] = {&chat->templates.plain,
                                                   &chat->templates.with_tools};
    struct sw_digest *digest = NULL;
    sw_status st;
    sw_json_write(sw_json_root(chat->templates.tokens), 0, &tokens);
    if (tokens.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the special tokens");
        goto done;
    }
    SW_TRY_OR(done, sw_digest_open(&digest));
    for (size_t i = 0; i < SW_LEN(both); ++i) {
        const uint64_t len = both[i]->len;
        sw_digest_update(digest, &len, sizeof len);
        sw_digest_update(digest, both[i]->text ? both[i]->text : "", both[i]->len);
    }
    sw_digest_update(digest, sw_str_text(&tokens), tokens.len);
    sw_digest_hex(digest, chat->digest);
done:
    sw_digest_close(digest);
    sw_str_fini(&tokens);
    return st;
}

static sw_status check_opened(const struct sw_chat *chat, const char *folder)
{
    if (!chat->templates.plain.text) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: no chat template: wanted chat_template.jinja, or \"chat_template\" in "
                       "tokenizer_config.json; --chat-template FILE gives one",
                       folder);
    }
    if (!chat->tokenizer->ops->special) {
        return SW_FAIL(
            SW_E_UNSUP,
            "chats need a tokenizer that knows its special tokens: tokenizer.json, or vocab.json "
            "and merges.txt; %s has %s",
            folder, sw_tokenizer_kind(chat->tokenizer));
    }
    return SW_OK;
}

sw_status sw_chat_open(const struct sw_chat_options *options, struct sw_chat **out)
{
    sw_status st;
    SW_TRY_OPTIONS(options);
    if (options->tokenizer->no_bos) {
        return SW_FAIL(SW_E_CONFIG, "--no-bos: the data is chats, which begin as their template "
                                    "says; --chat-template none joins prompts and completions");
    }
    struct sw_chat *chat = sw_alloc_zero("chat", 1, sizeof(*chat));
    SW_TRY_ALLOC(chat, "a chat");
    chat->tokenizer = options->tokenizer;
    chat->date = options->date;
    chat->loss_on = options->loss_on;
    chat->from_file = options->template_path != NULL;
    SW_TRY_OR(fail,
              sw_chat_templates_open(&chat->templates, options->folder, options->template_path));
    SW_TRY_OR(fail, check_opened(chat, options->folder));
    SW_TRY_OR(fail, sw_chat_template_read(&chat->templates.plain));
    SW_TRY_OR(fail, take_digest(chat));
    *out = chat;
    return SW_OK;
fail:
    sw_chat_close(chat);
    return st;
}

/* *out false: prompts and completions are joined without a template. */
static sw_status pairs_are_chats(const struct sw_chat_options *options, bool *out)
{
    struct sw_chat_templates templates;
    *out = options->folder && options->template_path;
    if (options->folder && !options->template_path) {
        SW_TRY(sw_chat_templates_open(&templates, options->folder, NULL));
        *out = templates.plain.text != NULL;
        sw_chat_templates_close(&templates);
    }
    return SW_OK;
}

sw_status sw_chat_open_for(const struct sw_chat_options *options, enum sw_data_kind kind,
                           struct sw_chat **out)
{
    SW_TRY_OPTIONS(options);
    const bool off = options->template_path && strcmp(options->template_path, "none") == 0;
    bool wanted = kind == SW_DATA_CHATS;
    if (kind == SW_DATA_PAIRS && !off) {
        SW_TRY(pairs_are_chats(options, &wanted));
    }
    if (!wanted && options->asked_for) {
        return SW_FAIL(
            SW_E_CONFIG,
            "the data is %s; --chat-template, --chat-date and --loss-on apply to chats only",
            kind == SW_DATA_PAIRS ? "prompts and completions, without a chat template" : "text");
    }
    if (wanted && off) {
        return SW_FAIL(SW_E_CONFIG,
                       "--chat-template none: the data is chats, which need a template");
    }
    if (wanted && !options->folder) {
        return SW_FAIL(
            SW_E_CONFIG,
            "chats need a tokenizer with a chat template; give --tokenizer, or a model folder "
            "that has one");
    }
    *out = NULL;
    return wanted ? sw_chat_open(options, out) : SW_OK;
}

void sw_chat_close(struct sw_chat *chat)
{
    if (chat) {
        sw_chat_templates_close(&chat->templates);
        sw_json_close(chat->said);
        sw_free(chat);
    }
}

/* ---- stop tokens ---- */

static sw_status take_stops(struct sw_json_doc *doc, struct sw_ids *ids)
{
    const struct sw_json *eos = sw_json_get(sw_json_root(doc), "eos_token_id");
    if (!eos || eos->type == SW_JSON_NULL) {
        return SW_OK;
    }
    const struct sw_json *id = eos->type == SW_JSON_ARRAY ? eos->first : eos;
    for (; id; id = eos->type == SW_JSON_ARRAY ? id->next : NULL) {
        if (id->type != SW_JSON_INT || id->integer < 0 || id->integer > INT32_MAX) {
            return SW_FAIL(SW_E_FORMAT, "%s: eos_token_id: wanted an id, or an array of ids",
                           sw_json_name(doc));
        }
        SW_TRY(sw_ids_push(ids, (int32_t)id->integer));
    }
    return SW_OK;
}

sw_status sw_chat_stops(const char *folder, struct sw_ids *ids)
{
    sw_status st = SW_OK;
    struct sw_str path = {0};
    struct sw_json_doc *doc = NULL;
    sw_str_printf(&path, "%s/generation_config.json", folder);
    if (path.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a path");
    } else if (access(path.ptr, F_OK) == 0) {
        st = sw_json_read(path.ptr, SW_JSON_STRICT, &doc);
        st = st < 0 ? st : take_stops(doc, ids);
    }
    sw_json_close(doc);
    sw_str_fini(&path);
    return st;
}

/* ---- description ---- */

const char *sw_chat_source(const struct sw_chat *chat)
{
    return chat->templates.plain.source;
}

const char *sw_chat_digest(const struct sw_chat *chat)
{
    return chat->digest;
}

bool sw_chat_is_given(const struct sw_chat *chat)
{
    return chat->from_file;
}

enum sw_loss_on sw_chat_loss_on(const struct sw_chat *chat)
{
    return chat->loss_on;
}

int64_t sw_chat_date(const struct sw_chat *chat)
{
    return chat->date;
}

sw_status sw_chat_save_template(const struct sw_chat *chat, const char *folder)
{
    struct sw_str path = {0};
    sw_str_printf(&path, "%s/chat_template.jinja", folder);
    const sw_status st = path.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path")
                                     : sw_file_write_atomic(path.ptr, chat->templates.plain.text,
                                                            chat->templates.plain.len);
    sw_str_fini(&path);
    return st;
}
