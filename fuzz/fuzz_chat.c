// SPDX-License-Identifier: Apache-2.0
// EXECUTIONS 5000
// Any bytes as a line of a file of conversations: refused with a message that names it, or ids that
// are those of the text, in which every answer comes after a token and ends with a control token.
// An answer may begin with one, if its text does.
#include "chat/chat.h"

#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void fuzz_end(void);

static sw_tokenizer *tokenizer; /* takes longer to make than all the rest */
static sw_chat *chat;

void fuzz_end(void)
{
    sw_chat_close(chat);
    sw_tokenizer_close(tokenizer);
}

/* Spaces become marks, as in a tokenizer of SentencePiece; what is no letter is unknown. */
static const char words[] =
    "{\"version\":\"1.0\",\"added_tokens\":["
    "{\"id\":8,\"content\":\"<s>\",\"special\":true,\"normalized\":false,\"single_word\":false,"
    "\"lstrip\":false,\"rstrip\":false},"
    "{\"id\":9,\"content\":\"</s>\",\"special\":true,\"normalized\":false,\"single_word\":false,"
    "\"lstrip\":true,\"rstrip\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
    "{\"type\":\"Prepend\",\"prepend\":\"_\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},"
    "\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,"
    "\"vocab\":{\"?\":0,\"_\":1,\"a\":2,\"b\":3,\"_a\":4,\"ab\":5,\"e\":6,\"_ab\":7},"
    "\"merges\":[\"a b\",\"_ ab\",\"_ a\"]}}";

enum { FIRST_CONTROL = 8 }; /* id */

static const char template[] =
    "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}</s>\n"
    "{% else %}<s>{{ m.role }}: {{ m.content | trim }}:{% endif %}{% endfor %}";

static void open_chat(void)
{
    char path[256], file[256];
    scratch_path(path, "tokenizer.json");
    scratch_write("tokenizer.json", words, sizeof words - 1);
    scratch_path(file, "chat.jinja");
    scratch_write("chat.jinja", template, sizeof template - 1);
    SW_ASSERT(sw_tokenizer_open(path, NULL, &tokenizer) == SW_OK);
    const struct sw_chat_options options = {
        .folder = path, .template_path = file, .tokenizer = tokenizer};
    SW_ASSERT(sw_chat_open(&options, &chat) == SW_OK);
}

static void check_row(const struct sw_chat_row *row)
{
    struct sw_ids plain = {0};
    SW_ASSERT(sw_tokenizer_encode(tokenizer, sw_str_text(&row->text), row->text.len, false,
                                  &plain) == SW_OK);
    SW_ASSERT(plain.len == row->ids.len);
    for (int64_t i = 0; i < plain.len; i++) {
        SW_ASSERT(plain.ptr[i] == row->ids.ptr[i]);
        const bool goes_on = i + 1 < plain.len && row->weights[i + 1] > 0;
        SW_ASSERT(row->weights[i] >= 0);
        SW_ASSERT(row->weights[i] == 0 || (i > 0 && (goes_on || row->ids.ptr[i] >= FIRST_CONTROL)));
    }
    sw_ids_fini(&plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_json_doc *doc;
    struct sw_chat_row row = {0};
    if (!chat) {
        open_chat();
    }
    if (sw_json_parse("line", size ? (const char *)data : "", size, SW_JSON_STRICT, &doc) < 0) {
        return 0;
    }
    if (sw_chat_encode(chat, doc, sw_json_root(doc), &row) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "line: ", 6) == 0);
    } else {
        check_row(&row);
    }
    sw_chat_row_fini(&row);
    sw_json_close(doc);
    return 0;
}
