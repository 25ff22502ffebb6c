// SPDX-License-Identifier: Apache-2.0
// Chats: recorded conversations with their text, ids and masks; and, without recordings, the kinds
// of lines, what is refused, and what the loss is on.
#include "chat/chat.h"

#include "support/chat_tokenizer.h"
#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"

#include <dirent.h>
#include <unistd.h>

/* ---- recorded ---- */

/* A folder of the recordings as it is opened: with its own template, or with the marked one. */
struct recorded {
    struct sw_json_doc *doc;
    const struct sw_json *root;
    sw_tokenizer *tokenizer;
    sw_chat *own, *marked;
    const char *name;
    int n, n_wrong;
};

static void wrong(struct recorded *r, const struct sw_json *row, const char *what)
{
    if (r->n_wrong++ < 8) {
        print_error("%s, %s: %s: %s\n", r->name, sw_json_get(row, "name")->string, what,
                    sw_error_message());
    }
}

static bool same_ids(const struct sw_chat_row *row, const struct sw_json *ids)
{
    const struct sw_json *id = ids->first;
    int64_t i = 0;
    for (; id && i < row->ids.len && row->ids.ptr[i] == id->integer; id = id->next) {
        i++;
    }
    return !id && i == row->ids.len;
}

static bool same_mask(const struct sw_chat_row *row, const struct sw_json *mask)
{
    const struct sw_json *one = mask->first;
    int64_t i = 0;
    for (; one && i < row->ids.len && (row->weights[i] > 0) == (one->integer == 1);
         one = one->next) {
        i++;
    }
    return !one && i == row->ids.len;
}

static void check_marked(struct recorded *r, const struct sw_json *row, struct sw_chat *chat)
{
    struct sw_chat_row found = {0};
    if (sw_chat_encode(chat, r->doc, row, &found) < 0) {
        wrong(r, row, "refused");
    } else if (strcmp(sw_str_text(&found.text), sw_json_get(row, "text")->string) != 0) {
        wrong(r, row, "text");
    } else if (!same_ids(&found, sw_json_get(row, "ids"))) {
        wrong(r, row, "ids");
    } else if (!same_mask(&found, sw_json_get(row, "mask"))) {
        wrong(r, row, "mask");
    }
    sw_chat_row_fini(&found);
}

/* A template without marks: the prefix rule gives the recorded mask, another one, or an error. */
static void check_by_prefix(struct recorded *r, const struct sw_json *row, const char *rule)
{
    struct sw_chat_row found = {0};
    const sw_status st = sw_chat_encode(r->own, r->doc, row, &found);
    if (strcmp(rule, "fails") == 0) {
        if (st >= 0 || !strstr(sw_error_message(), "--chat-template FILE")) {
            wrong(r, row, "not refused");
        }
    } else if (st < 0 || !same_ids(&found, sw_json_get(row, "ids"))) {
        wrong(r, row, "ids");
    } else if (same_mask(&found, sw_json_get(row, "mask")) != (strcmp(rule, "same") == 0)) {
        wrong(r, row, rule);
    }
    sw_chat_row_fini(&found);
}

static void check_error(struct recorded *r, const struct sw_json *row)
{
    const struct sw_json *message = sw_json_get(sw_json_get(row, "error"), "message");
    struct sw_chat_row found = {0};
    if (sw_chat_encode(r->own, r->doc, row, &found) >= 0 ||
        (message && !strstr(sw_error_message(), message->string))) {
        wrong(r, row, "error");
    }
    sw_chat_row_fini(&found);
}

/* false: this build lacks a library that the tokenizer needs. */
static bool open_recorded(struct recorded *r, const char *folder)
{
    struct sw_str path = {0};
    const struct sw_json *marked = sw_json_get(r->root, "template_marked");
    sw_str_printf(&path, "%s/%s", folder, sw_json_get(r->root, "tokenizer")->string);
    const sw_status st = sw_tokenizer_open(path.ptr, NULL, &r->tokenizer);
    sw_str_fini(&path);
    if (st == SW_E_UNSUP) {
        return false;
    }
    assert_int_equal(st, SW_OK);
    struct sw_chat_options options = {.folder = folder, .tokenizer = r->tokenizer};
    assert_int_equal(sw_chat_open(&options, &r->own), SW_OK);
    options.template_path = sw_test_write(0, "marked.jinja", marked->string, marked->string_len);
    assert_int_equal(sw_chat_open(&options, &r->marked), SW_OK);
    return true;
}

static void check_folder(struct recorded *r, const char *folder)
{
    if (!open_recorded(r, folder)) {
        return;
    }
    const bool has_marks = strcmp(sw_json_get(r->root, "template")->string,
                                  sw_json_get(r->root, "template_marked")->string) == 0;
    for (const struct sw_json *row = sw_json_get(r->root, "rows")->first; row; row = row->next) {
        const struct sw_json *rule = sw_json_get(row, "prefix_rule");
        r->n++;
        if (!rule) {
            check_error(r, row);
            continue;
        }
        check_marked(r, row, r->marked);
        if (has_marks) {
            check_marked(r, row, r->own);
        } else {
            check_by_prefix(r, row, rule->string);
        }
    }
    sw_chat_close(r->own);
    sw_chat_close(r->marked);
    sw_tokenizer_close(r->tokenizer);
}

static void recorded_text_ids_and_masks(void **state)
{
    (void)state;
    struct sw_str path = {0}, folder = {0};
    int n_folders = 0, n_wrong = 0;
    sw_str_printf(&path, "%s/chat", sw_test_fixtures());
    DIR *dir = opendir(path.ptr);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        struct recorded r = {.name = entry->d_name};
        sw_str_clear(&path);
        sw_str_clear(&folder);
        sw_str_printf(&folder, "%s/chat/%s", sw_test_fixtures(), entry->d_name);
        sw_str_printf(&path, "%s/reference.json", folder.ptr);
        if (entry->d_name[0] == '.' || sw_json_read(path.ptr, SW_JSON_STRICT, &r.doc) < 0) {
            continue;
        }
        r.root = sw_json_root(r.doc);
        if (sw_json_get(r.root, "template")) {
            check_folder(&r, folder.ptr);
            print_message("  %s: %d conversations, %d wrong\n", r.name, r.n, r.n_wrong);
            n_folders++;
            n_wrong += r.n_wrong;
        }
        sw_json_close(r.doc);
    }
    if (dir) {
        closedir(dir);
    }
    sw_str_fini(&path);
    sw_str_fini(&folder);
    if (n_folders == 0) {
        print_message("skipped: no recorded chats\n");
        skip();
    }
    assert_int_equal(n_wrong, 0);
}

/* ---- by the rules ---- */

static sw_tokenizer *tokenizer;

/* Opens a chat with the character tokenizer. template NULL: the folder's own. */
static sw_chat *open_chat(const char *template, enum sw_loss_on loss_on)
{
    sw_chat *chat = NULL;
    const struct sw_chat_options options = {
        .folder = test_folder(),
        .template_path = template ? sw_test_write_text(1, "own.jinja", template) : NULL,
        .tokenizer = tokenizer,
        .date = 20000 * INT64_C(86400),
        .loss_on = loss_on};
    if (sw_chat_open(&options, &chat) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return chat;
}

static sw_status encode(sw_chat *chat, const char *line, struct sw_chat_row *out)
{
    struct sw_json_doc *doc;
    assert_int_equal(sw_json_parse("line", line, strlen(line), SW_JSON_STRICT, &doc), SW_OK);
    const sw_status st = sw_chat_encode(chat, doc, sw_json_root(doc), out);
    sw_json_close(doc);
    return st;
}

/* Checks the text of a line; [ ] encloses the parts that the loss counts. */
static void check_line(sw_chat *chat, const char *line, const char *wanted)
{
    struct sw_chat_row row = {0};
    struct sw_str marked = {0};
    if (encode(chat, line, &row) < 0) {
        fail_msg("%s: %s", line, sw_error_message());
    }
    for (int64_t i = 0; i <= row.ids.len; ++i) {
        const bool before = i > 0 && row.weights[i - 1] > 0,
                   here = i < row.ids.len && row.weights[i] > 0;
        if (before != here) {
            sw_str_putc(&marked, here ? '[' : ']');
        }
        if (i < row.ids.len) {
            const char *token = sw_tokenizer_token(tokenizer, row.ids.ptr[i], NULL);
            sw_str_puts(&marked, strncmp(token, "<|im_", 5) != 0 ? token
                                 : token[5] == 's'               ? "<"
                                                                 : ">");
        }
    }
    assert_string_equal(sw_str_text(&marked), wanted);
    sw_str_fini(&marked);
    sw_chat_row_fini(&row);
}

#define Q "{\"role\":\"user\",\"content\":\"q\"}"
#define A "{\"role\":\"assistant\",\"content\":\"a\"}"

static void four_kinds_of_lines_are_one_conversation(void **state)
{
    (void)state;
    static const char wanted[] = "<user\nq\n\nmore>\n<assistant\n[a>]\n";
    sw_chat *chat = open_chat(NULL, SW_LOSS_ON_ANSWERS);
    check_line(chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\\n\\nmore\"}," A "]}",
               wanted);
    check_line(chat,
               "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\\n\\nmore\"},"
               "{\"from\":\"gpt\",\"value\":\"a\"}],\"id\":7}",
               wanted);
    check_line(chat, "{\"instruction\":\"q\",\"input\":\"more\",\"output\":\"a\"}", wanted);
    check_line(chat, "{\"prompt\":\"q\\n\\nmore\",\"completion\":\"a\"}", wanted);
    check_line(chat, "{\"instruction\":\"q\",\"input\":\"\",\"output\":\"a\"}",
               "<user\nq>\n<assistant\n[a>]\n");
    check_line(chat, "{\"instruction\":\"q\",\"output\":\"a\"}", "<user\nq>\n<assistant\n[a>]\n");
    check_line(chat,
               "{\"system\":\"s\",\"conversations\":[{\"from\":\"user\",\"value\":\"q\"},"
               "{\"from\":\"observation\",\"value\":\"o\"}]}",
               "<system\ns>\n<user\nq>\n<tool\no>\n");
    sw_chat_close(chat);
}

static void the_loss_is_on_answers_or_the_last_or_all(void **state)
{
    (void)state;
    static const char line[] = "{\"messages\":[" Q "," A "," Q "," A "," Q "]}";
    static const char *const wanted[] = {
        [SW_LOSS_ON_ANSWERS] =
            "<user\nq>\n<assistant\n[a>]\n<user\nq>\n<assistant\n[a>]\n<user\nq>\n",
        [SW_LOSS_ON_LAST] = "<user\nq>\n<assistant\na>\n<user\nq>\n<assistant\n[a>]\n<user\nq>\n",
        [SW_LOSS_ON_ALL] = "[<user\nq>\n<assistant\na>\n<user\nq>\n<assistant\na>\n<user\nq>\n]",
    };
    for (enum sw_loss_on on = SW_LOSS_ON_ANSWERS; on <= SW_LOSS_ON_ALL; ++on) {
        enum sw_loss_on named;
        sw_chat *chat = open_chat(NULL, on);
        check_line(chat, line, wanted[on]);
        sw_chat_close(chat);
        assert_true(sw_loss_on_by_name(sw_loss_on_name(on), &named) && named == on);
    }
}

#define LOOP "{% for m in messages %}"

static void generation_blocks_decide(void **state)
{
    (void)state;
    static const char template[] =
        LOOP "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!{% endgeneration %}"
             "{% else %}{{ m.content }}?{% endif %}{% endfor %}";
    sw_chat *chat = open_chat(template, SW_LOSS_ON_ANSWERS);
    check_line(chat, "{\"messages\":[" A "," Q "," A "]}", "[a!]q?[a!]");
    sw_chat_close(chat);
    chat = open_chat(template, SW_LOSS_ON_LAST);
    check_line(chat, "{\"messages\":[" A "," Q "," A "]}", "a!q?[a!]");
    sw_chat_close(chat);
}

#define A0 "{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}"
#define A1 "{\"role\":\"assistant\",\"content\":\"a\",\"weight\":1}"

/* With and without generation blocks. */
static void an_answer_of_weight_0_does_not_count(void **state)
{
    (void)state;
    static const char line[] = "{\"messages\":[" Q "," A0 "," Q "," A1 "," Q "," A "]}";
    static const char marked[] =
        LOOP "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!{% endgeneration %}"
             "{% else %}{{ m.content }}?{% endif %}{% endfor %}";
    sw_chat *chat = open_chat(NULL, SW_LOSS_ON_ANSWERS);
    check_line(chat, line,
               "<user\nq>\n<assistant\na>\n<user\nq>\n<assistant\n[a>]\n<user\nq>\n"
               "<assistant\n[a>]\n");
    check_line(chat,
               "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},"
               "{\"from\":\"gpt\",\"value\":\"a\",\"weight\":0}]}",
               "<user\nq>\n<assistant\na>\n");
    sw_chat_close(chat);
    chat = open_chat(marked, SW_LOSS_ON_ANSWERS);
    check_line(chat, line, "q?a!q?[a!]q?[a!]");
    sw_chat_close(chat);
    chat = open_chat(marked, SW_LOSS_ON_LAST);
    check_line(chat, "{\"messages\":[" Q "," A "," Q "," A0 "]}", "q?a!q?a!");
    sw_chat_close(chat);
}

/* Tokens of each answer have its weight, with and without generation blocks. */
static void answers_have_their_weights(void **state)
{
    (void)state;
    static const char line[] = "{\"messages\":[" Q "," A "," Q ",{\"role\":\"assistant\","
                               "\"content\":\"a\",\"weight\":0.25}," Q "," A0 "]}";
    static const char marked[] =
        LOOP "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!{% endgeneration %}"
             "{% else %}{{ m.content }}?{% endif %}{% endfor %}";
    static const char *const templates[] = {NULL, marked};
    for (size_t i = 0; i < SW_LEN(templates); i++) {
        struct sw_chat_row row = {0};
        sw_chat *chat = open_chat(templates[i], SW_LOSS_ON_ANSWERS);
        int n[2] = {0, 0};
        assert_int_equal(encode(chat, line, &row), SW_OK);
        for (int64_t t = 0; t < row.ids.len; t++) {
            assert_true(row.weights[t] == 0 || row.weights[t] == 0.25f || row.weights[t] == 1);
            n[0] += row.weights[t] == 1;
            n[1] += row.weights[t] == 0.25f;
        }
        assert_int_equal(n[0], 2); /* a letter and the end */
        assert_int_equal(n[1], 2);
        sw_chat_row_fini(&row);
        sw_chat_close(chat);
    }
}

/* Without a special token an answer ends where the texts with and without later messages differ. */
static void an_answer_without_an_end_token_ends_where_texts_part(void **state)
{
    (void)state;
    sw_chat *chat = open_chat(LOOP "{{ m.role[:1] ~ ':' ~ m.content }}{% if not loop.last %}, "
                                   "{% endif %}{% endfor %}{% if add_generation_prompt %}, a:"
                                   "{% endif %}",
                              SW_LOSS_ON_ANSWERS);
    check_line(chat, "{\"messages\":[" Q "," A "," Q "," A "]}", "u:q, a:[a], u:q, a:[a]");
    sw_chat_close(chat);
}

/* ---- templates of today's models: their shapes, with the special tokens of this tokenizer ---- */

/* Thoughts are written after the last question only. */
static const char like_qwen3[] =
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}"
    "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '\n' }}"
    "{%- if m.role == 'assistant' %}{%- set body = m.content %}{%- set why = '' %}"
    "{%- if '</think>' in body %}{%- set why = body.split('</think>')[0].split('<think>')[-1] %}"
    "{%- set body = body.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
    "{%- if loop.index0 > ns.last %}{{- '<think>\n' ~ why.strip('\n') ~ '\n</think>\n\n' }}"
    "{%- endif %}{{- body }}{%- else %}{{- m.content }}{%- endif %}{{- '<|im_end|>\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

/* The system message goes into the first question; contents are trimmed. */
static const char like_gemma3[] =
    "{{ '<|endoftext|>' }}{%- set first = '' %}{%- set rest = messages %}"
    "{%- if messages[0].role == 'system' %}{%- set first = messages[0].content ~ '\n\n' %}"
    "{%- set rest = messages[1:] %}{%- endif %}{%- for m in rest %}"
    "{{- '<|im_start|>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\n' }}"
    "{{- first if loop.first else '' }}{{- m.content | trim }}{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>model\n' }}{%- endif %}";

/* A special token stands between role and content. */
static const char like_phi4[] =
    "{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '<|endoftext|>' ~ m.content ~ "
    "'<|im_end|>' }}{%- endfor %}{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant<|endoftext|>' }}{%- endif %}";

/* No header of answers, and no prompt for one. */
static const char like_mistral[] =
    "{{- '<|im_start|>' }}{%- for m in messages %}{%- if m.role == 'system' %}"
    "{{- '[SYSTEM_PROMPT]' ~ m.content ~ '[/SYSTEM_PROMPT]' }}{%- elif m.role == 'user' %}"
    "{{- '[INST]' ~ m.content ~ '[/INST]' }}{%- else %}{{- m.content ~ '<|im_end|>' }}"
    "{%- endif %}{%- endfor %}";

/* Macros and channels; the last answer ends with another token than those before. */
static const char like_gpt_oss[] =
    "{%- macro channel(name, text='') -%}{{- '<|endoftext|>' ~ name ~ '<|endoftext|>' ~ text }}"
    "{%- endmacro -%}{%- for m in messages %}{%- if m.role == 'assistant' %}"
    "{{- '<|im_start|>assistant' ~ channel('final', text=m.content) }}"
    "{{- '<|endoftext|>' if loop.last and not add_generation_prompt else '<|im_end|>' }}"
    "{%- else %}{{- '<|im_start|>' ~ m.role ~ '<|endoftext|>' ~ m.content ~ '<|im_end|>' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant' }}"
    "{%- endif %}";

/* The system message switches thoughts off, and then empty ones are part of the prompt. */
static const char like_smollm3[] =
    "{%- set off = messages[0].role == 'system' and '/no_think' in messages[0].content %}"
    "{%- set quiet = '<think>\n\n</think>\n' if off else '' %}"
    "{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '\n' }}"
    "{%- if m.role == 'assistant' %}{{- quiet ~ m.content.lstrip('\n') }}{%- else %}"
    "{{- m.content.replace('/no_think', '').rstrip() }}{%- endif %}{{- '<|im_end|>\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' ~ quiet }}"
    "{%- endif %}";

#define S "{\"role\":\"system\",\"content\":\"s /no_think\"}"
#define THOUGHT "{\"role\":\"assistant\",\"content\":\"<think>\\nw\\n</think>\\n\\na\"}"
#define NOTHING "{\"role\":\"assistant\",\"content\":\"\"}"
#define SPACED "{\"role\":\"assistant\",\"content\":\" q \"}"

static void every_answer_counts_whatever_the_template(void **state)
{
    (void)state;
    static const struct {
        const char *template, *line, *wanted;
    } cases[] = {
        {like_qwen3, "{\"messages\":[" Q "," A "," Q "," A "," Q "," A "]}",
         "<user\nq>\n<assistant\n[a>]\n<user\nq>\n<assistant\n[a>]\n<user\nq>\n<assistant\n"
         "[<think>\n\n</think>\n\na>]\n"},
        {like_qwen3, "{\"messages\":[" Q "," THOUGHT "," Q "," THOUGHT "]}",
         "<user\nq>\n<assistant\n[a>]\n<user\nq>\n<assistant\n[<think>\nw\n</think>\n\na>]\n"},
        {like_qwen3, "{\"messages\":[" Q "," NOTHING "," Q "," SPACED "," Q "]}",
         "<user\nq>\n<assistant\n[>]\n<user\nq>\n<assistant\n[ q >]\n<user\nq>\n"},
        {like_gemma3, "{\"messages\":[" Q "," SPACED "," Q "," A "]}",
         "<|endoftext|><user\nq>\n<model\n[q>]\n<user\nq>\n<model\n[a>]\n"},
        {like_gemma3, "{\"messages\":[" S "," Q "," A "," Q "," NOTHING "]}",
         "<|endoftext|><user\ns /no_think\n\nq>\n<model\n[a>]\n<user\nq>\n<model\n[>]\n"},
        {like_phi4, "{\"messages\":[" S "," Q "," A "," Q "," A "]}",
         "<system<|endoftext|>s /no_think><user<|endoftext|>q><assistant<|endoftext|>[a>]"
         "<user<|endoftext|>q><assistant<|endoftext|>[a>]"},
        {like_mistral, "{\"messages\":[" S "," Q "," A "," Q "," SPACED "]}",
         "<[SYSTEM_PROMPT]s /no_think[/SYSTEM_PROMPT][INST]q[/INST][a>][INST]q[/INST][ q >]"},
        {like_gpt_oss, "{\"messages\":[" Q "," A "," Q "," NOTHING "," Q "," A "]}",
         "<user<|endoftext|>q><assistant[<|endoftext|>final<|endoftext|>a>]<user<|endoftext|>q>"
         "<assistant[<|endoftext|>final<|endoftext|>>]<user<|endoftext|>q><assistant"
         "[<|endoftext|>final<|endoftext|>a<|endoftext|>]"},
        {like_smollm3, "{\"messages\":[" S "," Q "," A "," Q "," A "]}",
         "<system\ns>\n<user\nq>\n<assistant\n<think>\n\n</think>\n[a>]\n<user\nq>\n<assistant\n"
         "<think>\n\n</think>\n[a>]\n"},
        {like_smollm3, "{\"messages\":[" Q "," A "," Q "," THOUGHT "]}",
         "<user\nq>\n<assistant\n[a>]\n<user\nq>\n<assistant\n[<think>\nw\n</think>\n\na>]\n"},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        sw_chat *chat = open_chat(cases[i].template, SW_LOSS_ON_ANSWERS);
        check_line(chat, cases[i].line, cases[i].wanted);
        sw_chat_close(chat);
    }
}

/* Tokens: letters; 8 begins a message; 9 ends an answer and includes the spaces before it. */
static const char greedy_end[] =
    "{\"version\":\"1.0\",\"added_tokens\":["
    "{\"id\":8,\"content\":\"<s>\",\"special\":true,\"normalized\":false,\"single_word\":false,"
    "\"lstrip\":false,\"rstrip\":false},"
    "{\"id\":9,\"content\":\"</s>\",\"special\":true,\"normalized\":false,\"single_word\":false,"
    "\"lstrip\":true,\"rstrip\":false}],\"normalizer\":null,\"pre_tokenizer\":null,"
    "\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\","
    "\"vocab\":{\"?\":0,\" \":1,\"a\":2,\"b\":3,\"c\":4},\"merges\":[]}}";

static void expect_wanted(const sw_tokenizer *words, const char *template, const char *line,
                          const char *wanted)
{
    struct sw_chat_row row = {0};
    struct sw_str found = {0};
    sw_chat *chat = NULL;
    const char *file = sw_test_write_text(2, "greedy.jinja", template);
    const struct sw_chat_options options = {
        .folder = test_folder(), .template_path = file, .tokenizer = (sw_tokenizer *)words};
    assert_int_equal(sw_chat_open(&options, &chat), SW_OK);
    assert_int_equal(encode(chat, line, &row), SW_OK);
    for (int64_t i = 0; i < row.ids.len; i++) {
        sw_str_printf(&found, row.weights[i] > 0 ? "[%d]" : "%d", (int)row.ids.ptr[i]);
    }
    assert_string_equal(sw_str_text(&found), wanted);
    sw_str_fini(&found);
    sw_chat_row_fini(&row);
    sw_chat_close(chat);
}

/* Found by fuzzing. An end token began before the content of its answer, and thus ended nothing.
 * Content after a NUL was lost, so later answers were searched for too early. */
static void an_end_token_that_takes_in_spaces_ends_an_answer(void **state)
{
    (void)state;
    static const char spaced[] =
        "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}</s>c"
        "{% else %}<s>{{ m.content }}{% endif %}{% endfor %}";
    static const char headed[] =
        "{% for m in messages %}{% if m.role == 'assistant' %}<s>{{ m.content }}</s>"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}";
    sw_tokenizer *words = NULL;
    char folder[300];
    snprintf(folder, sizeof folder, "%s/greedy", test_folder());
    assert_int_equal(sw_mkdirs(folder), SW_OK);
    const char *file = sw_test_write_text(1, "greedy/tokenizer.json", greedy_end);
    assert_int_equal(sw_tokenizer_open(file, NULL, &words), SW_OK);
    expect_wanted(words, spaced,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"},"
                  "{\"role\":\"assistant\",\"content\":\"\"}]}",
                  "83[9]4");
    expect_wanted(words, spaced,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"},"
                  "{\"role\":\"assistant\",\"content\":\"a </s><s>\"}]}",
                  "83[1][2][9]894");
    expect_wanted(words, headed,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"},"
                  "{\"role\":\"assistant\",\"content\":\"a\\u0000b\"},"
                  "{\"role\":\"assistant\",\"content\":\"a\"}]}",
                  "3[8][2][0][3][9][8][2][9]");
    sw_tokenizer_close(words);
    assert_int_equal(unlink(file) | rmdir(folder), 0);
}

static void expect_refusal(const char *template, const char *line, const char *wanted)
{
    struct sw_chat_row row = {0};
    sw_chat *chat = open_chat(template, SW_LOSS_ON_ANSWERS);
    if (encode(chat, line, &row) >= 0 || !strstr(sw_error_message(), wanted)) {
        fail_msg("%s: wanted \"%s\", got \"%s\"", line, wanted, sw_error_message());
    }
    assert_non_null(strstr(sw_error_message(), "line: "));
    sw_chat_row_fini(&row);
    sw_chat_close(chat);
}

/* Without special tokens, the end of an answer that is written in two ways is unknown. */
static void an_answer_whose_end_is_not_known_is_refused(void **state)
{
    (void)state;
    expect_refusal(
        "{%- for m in messages %}{{- m.role[:1] ~ ':' }}{%- if m.role == 'assistant' and "
        "loop.last %}{{- '(thinks)' }}{%- endif %}{{- m.content ~ ';' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- 'a:' }}{%- endif %}",
        "{\"messages\":[" Q "," A "," Q "," A "]}",
        "message 1 cannot be located in the output of this template: no special token ends it");
}

/* Each answer renders the text again. */
static void a_conversation_of_too_many_answers_is_refused(void **state)
{
    (void)state;
    struct sw_str line = {0};
    sw_str_puts(&line, "{\"messages\":[");
    for (int i = 0; i < 6000; i++) {
        sw_str_printf(&line, "%s{\"role\":\"%s\",\"content\":\"0123456789\"}", i ? "," : "",
                      i % 2 ? "assistant" : "user");
    }
    sw_str_puts(&line, "]}");
    expect_refusal(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}", line.ptr,
        "3000 answers in a text of 168000 bytes");
    sw_str_fini(&line);
}

static void what_is_wrong_with_a_line_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *template, *line, *wanted;
    } cases[] = {
        {NULL, "{\"messages\":[]}", "an empty conversation"},
        {NULL, "{\"conversations\":[]}", "an empty conversation"},
        {NULL, "{\"messages\":{}}", "\"messages\" is an object, wanted an array"},
        {NULL, "{\"messages\":[\"q\"]}", "message 0 is a string"},
        {NULL, "{\"conversations\":[{\"from\":\"bing\",\"value\":\"q\"}]}", "is from \"bing\""},
        {NULL, "{\"conversations\":[{\"from\":\"gpt\"}]}", "\"value\" is absent"},
        {NULL, "{\"instruction\":1,\"output\":\"a\"}", "\"instruction\" is an integer"},
        {NULL, "{\"prompt\":\"q\",\"completion\":[]}", "\"completion\" is an array"},
        {NULL, "{\"messages\":[" Q "],\"tools\":\"f\"}", "\"tools\" is a string"},
        {NULL, "{\"question\":\"q\"}", "not a chat; wanted \"messages\""},
        {NULL, "{\"messages\":[" A "]}", "message 0 cannot be located"},
        {LOOP "{{ m.content }}{% endfor %}{{ messages | length }}", "{\"messages\":[" Q "," A "]}",
         "--chat-template FILE"},
        {"{{ messages[0].content }}{% if messages | length > 1 or add_generation_prompt %}:"
         "{% endif %}",
         "{\"messages\":[" Q "," A "]}", "message 1 cannot be located"},
        {LOOP "{% if m.role == 'tool' %}{{ raise_exception('roles: user and assistant') }}"
              "{% endif %}{% endfor %}",
         "{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "roles: user and assistant"},
        {LOOP "{{ m.content.nothing.there }}{% endfor %}", "{\"messages\":[" Q "]}",
         "own.jinja:1:"},
        {NULL, "{\"messages\":[" Q ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":-1}]}",
         "the weight of message 1 is not a number from 0"},
        {NULL, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"weight\":1}," A "]}",
         "the weight of message 0 is 1"},
        {LOOP "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
         "{\"messages\":[" Q "," A0 "]}", "marks 2 texts of 1 answers"},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        expect_refusal(cases[i].template, cases[i].line, cases[i].wanted);
    }
}

/* ---- which template, and what it is given ---- */

static void check_source(const char *line, const char *wanted_text)
{
    sw_chat *chat = open_chat(NULL, SW_LOSS_ON_ALL);
    struct sw_chat_row row = {0};
    assert_int_equal(encode(chat, line, &row), SW_OK);
    assert_string_equal(sw_str_text(&row.text), wanted_text);
    sw_chat_row_fini(&row);
    sw_chat_close(chat);
}

static void templates_in_their_order(void **state)
{
    (void)state;
    static const char line[] = "{\"messages\":[" Q "]}";
    static const char with_tools[] = "{\"messages\":[" Q "],\"tools\":[{\"name\":\"f\"}]}";
    sw_chat *chat = NULL;
    const struct sw_chat_options options = {.folder = test_folder(), .tokenizer = tokenizer};
    sw_test_write_text(2, "tokenizer_config.json",
                       "{\"eos_token\":{\"content\":\"<|im_end|>\"},\"chat_template\":["
                       "{\"name\":\"tool_use\",\"template\":\"t{{ tools[0].name }}\"},"
                       "{\"name\":\"default\",\"template\":\"d{{ eos_token }}{{ bos_token }}"
                       "{{ tools is none }}{{ documents is none }}{{ strftime_now('%d.%m.%Y') }}\"}"
                       "]}");
    check_source(line, "d<|im_end|>TrueTrue04.10.2024");
    check_source(with_tools, "tf");
    sw_test_write_text(2, "special_tokens_map.json",
                       "{\"eos_token\":\"<|im_start|>\",\"bos_token\":\"<|im_start|>\"}");
    check_source(line, "d<|im_start|><|im_start|>TrueTrue04.10.2024");
    sw_test_write_text(2, "special_tokens_map.json", "{\"eos_token\":null}");
    check_source(line, "dTrueTrue04.10.2024");
    sw_test_write_text(2, "special_tokens_map.json",
                       "{\"eos_token\":\"no\",\"bos_token\":\"<|im_start|>\"}");
    sw_test_write_text(2, "tokenizer_config.json", /* the map does not count, as in transformers */
                       "{\"eos_token\":\"<|im_end|>\",\"added_tokens_decoder\":{},"
                       "\"chat_template\":\"d{{ eos_token }}{{ bos_token }}\"}");
    check_source(line, "d<|im_end|>");
    const char *file = sw_test_write_text(3, "chat_template.jinja", "f{{ eos_token }}");
    check_source(line, "f<|im_end|>");
    check_source(with_tools, "f<|im_end|>");
    chat = open_chat("o", SW_LOSS_ON_ALL);
    assert_true(sw_chat_is_given(chat) && strstr(sw_chat_source(chat), "own.jinja"));
    sw_chat_close(chat);
    unlink(file);
    sw_test_write_text(2, "tokenizer_config.json",
                       "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"\"}]}");
    assert_int_equal(sw_chat_open(&options, &chat), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "none is named \"default\""));
    sw_test_write_text(2, "tokenizer_config.json", "{\"chat_template\":\"{% if %}\"}");
    assert_int_equal(sw_chat_open(&options, &chat), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "tokenizer_config.json: chat_template:1:"));
    unlink(sw_test_write_text(2, "special_tokens_map.json", "{}"));
    test_write_chat_tokenizer(test_folder(), NULL);
    assert_int_equal(sw_chat_open(&options, &chat), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "--chat-template FILE gives one"));
    test_write_chat_tokenizer(test_folder(), test_chatml);
}

/* A resumed run needs the same rows, so the digest covers all that a template may write. */
static void another_template_or_special_token_is_another_digest(void **state)
{
    static const char *const files[] = {
        "{\"bos_token\":\"<a>\",\"chat_template\":\"{{ bos_token }}\"}",
        "{\"bos_token\":\"<b>\",\"chat_template\":\"{{ bos_token }}\"}",
        "{\"bos_token\":\"<a>\",\"chat_template\":\"{{ bos_token }} \"}",
        "{\"x\":1,\"chat_template\":\"{{ bos_token }}\",\"bos_token\":{\"content\":\"<a>\"}}"};
    char digests[SW_LEN(files)][40];
    (void)state;
    for (size_t i = 0; i < SW_LEN(files); ++i) {
        sw_test_write_text(2, "tokenizer_config.json", files[i]);
        sw_chat *chat = open_chat(NULL, SW_LOSS_ON_ALL);
        snprintf(digests[i], sizeof digests[i], "%s", sw_chat_digest(chat));
        sw_chat_close(chat);
    }
    assert_string_not_equal(digests[0], digests[1]);
    assert_string_not_equal(digests[0], digests[2]);
    assert_string_equal(digests[0], digests[3]);
    test_write_chat_tokenizer(test_folder(), test_chatml);
}

static void days_are_days(void **state)
{
    (void)state;
    static const char *const bad[] = {"2026-02-29",  "2026-13-01", "26-01-01",   "2026-1-1",
                                      "2026-01-01x", "",           "today",      "2026- 1- 1",
                                      " 2026-01-01", "-026-01-01", "0999-01-01", "2026-01--1"};
    int64_t day;
    char text[11];
    assert_true(sw_day_of_text("1970-01-02", &day) && day == 86400);
    assert_true(sw_day_of_text("2024-02-29", &day));
    sw_day_text(day, text);
    assert_string_equal(text, "2024-02-29");
    for (size_t i = 0; i < SW_LEN(bad); ++i) {
        day = 7;
        if (sw_day_of_text(bad[i], &day) || day != 7) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
    }
}

/* ---- conversations that go on ---- */

static void a_conversation_grows_turn_by_turn(void **state)
{
    (void)state;
    struct sw_ids ids = {0};
    struct sw_str text = {0};
    sw_chat *chat = open_chat(NULL, SW_LOSS_ON_ANSWERS);
    assert_int_equal(sw_chat_prompt(chat, &ids), SW_E_ARG);
    assert_int_equal(sw_chat_say(chat, "user", "q"), SW_OK);
    assert_int_equal(sw_chat_say(chat, "assistant", "a"), SW_OK);
    assert_int_equal(sw_chat_ask(chat, "other", &ids), SW_OK);
    assert_int_equal(sw_chat_say(chat, "user", "r"), SW_OK);
    assert_int_equal(sw_chat_prompt(chat, &ids), SW_OK);
    assert_int_equal(sw_tokenizer_decode_str(tokenizer, ids.ptr, ids.len, true, &text), SW_OK);
    assert_string_equal(text.ptr, "user\nother\nassistant\nuser\nq\nassistant\na\nuser\nr\n"
                                  "assistant\n");
    sw_str_fini(&text);
    sw_ids_fini(&ids);
    sw_chat_close(chat);
}

static void answers_end_at_one_id_or_at_several(void **state)
{
    (void)state;
    struct sw_ids ids = {0};
    assert_int_equal(sw_chat_stops(test_folder(), &ids), SW_OK);
    assert_int_equal(ids.len, 0);
    sw_test_write_text(2, "generation_config.json", "{\"eos_token_id\":97}");
    assert_int_equal(sw_chat_stops(test_folder(), &ids), SW_OK);
    sw_test_write_text(2, "generation_config.json", "{\"eos_token_id\":[98,97]}");
    assert_int_equal(sw_chat_stops(test_folder(), &ids), SW_OK);
    assert_true(ids.len == 3 && ids.ptr[0] == 97 && ids.ptr[1] == 98 && ids.ptr[2] == 97);
    const char *path =
        sw_test_write_text(2, "generation_config.json", "{\"eos_token_id\":\"<eos>\"}");
    assert_int_equal(sw_chat_stops(test_folder(), &ids), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "generation_config.json: eos_token_id"));
    unlink(path);
    sw_ids_fini(&ids);
}

/* ---- failures ---- */

static void survives_lack_of_memory(void **state)
{
    (void)state;
    static const char line[] = "{\"messages\":[" Q "," A "," Q "," A "]}";
    struct sw_json_doc *doc;
    const struct sw_chat_options options = {.folder = test_folder(), .tokenizer = tokenizer};
    struct sw_alloc_stats before, after;
    assert_int_equal(sw_json_parse("line", line, strlen(line), SW_JSON_STRICT, &doc), SW_OK);
    sw_alloc_get_stats(&before);
    for (int64_t n = 1;; ++n) {
        sw_chat *chat = NULL;
        struct sw_chat_row row = {0};
        struct sw_ids ids = {0};
        sw_alloc_fail_nth(n);
        sw_status st = sw_chat_open(&options, &chat);
        st = st < 0 ? st : sw_chat_encode(chat, doc, sw_json_root(doc), &row);
        st = st < 0 ? st : sw_chat_ask(chat, "q", &ids);
        sw_alloc_fail_nth(0);
        sw_chat_row_fini(&row);
        sw_ids_fini(&ids);
        sw_chat_close(chat);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
        if (st >= 0) {
            assert_true(n > 20);
            break;
        }
        if (st != SW_E_NOMEM) {
            fail_msg("allocation %lld: %s\n%s", (long long)n, sw_error_message(), sw_error_trace());
        }
    }
    sw_json_close(doc);
}

/* A conversation that failed to begin leaves no state for the next message. */
static void a_conversation_that_could_not_begin_begins_again(void **state)
{
    sw_status st = SW_E_NOMEM;
    (void)state;
    for (int64_t n = 1; st < 0; ++n) {
        sw_chat *chat = open_chat(NULL, SW_LOSS_ON_ALL);
        sw_alloc_fail_nth(n);
        st = sw_chat_say(chat, "user", "q");
        sw_alloc_fail_nth(0);
        assert_true(st == SW_OK || st == SW_E_NOMEM);
        assert_int_equal(sw_chat_say(chat, "user", "r"), SW_OK);
        sw_chat_close(chat);
    }
}

static int set_up(void **state)
{
    (void)state;
    tokenizer = test_open_chat_tokenizer(test_chatml);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_tokenizer_close(tokenizer);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(recorded_text_ids_and_masks),
    cmocka_unit_test(four_kinds_of_lines_are_one_conversation),
    cmocka_unit_test(the_loss_is_on_answers_or_the_last_or_all),
    cmocka_unit_test(generation_blocks_decide),
    cmocka_unit_test(an_answer_of_weight_0_does_not_count),
    cmocka_unit_test(answers_have_their_weights),
    cmocka_unit_test(an_answer_without_an_end_token_ends_where_texts_part),
    cmocka_unit_test(every_answer_counts_whatever_the_template),
    cmocka_unit_test(an_end_token_that_takes_in_spaces_ends_an_answer),
    cmocka_unit_test(an_answer_whose_end_is_not_known_is_refused),
    cmocka_unit_test(a_conversation_of_too_many_answers_is_refused),
    cmocka_unit_test(what_is_wrong_with_a_line_is_named),
    cmocka_unit_test(templates_in_their_order),
    cmocka_unit_test(another_template_or_special_token_is_another_digest),
    cmocka_unit_test(days_are_days),
    cmocka_unit_test(a_conversation_grows_turn_by_turn),
    cmocka_unit_test(answers_end_at_one_id_or_at_several),
    cmocka_unit_test(survives_lack_of_memory),
    cmocka_unit_test(a_conversation_that_could_not_begin_begins_again),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
