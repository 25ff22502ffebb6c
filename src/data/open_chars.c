// SPDX-License-Identifier: Apache-2.0
// A tokenizer of characters, made from all text of data files.
#include "data/source.h"
#include "token/token.h"

static sw_status add_document(void *ctx, const struct sw_document *document)
{
    struct sw_char_set *set = ctx;
    SW_TRY(sw_char_set_add(set, document->name, document->text, document->text_len));
    return sw_char_set_add(set, document->name, document->completion, document->completion_len);
}

sw_status sw_tokenizer_open_chars_of(const char *const *files, int n_files, bool as_text,
                                     struct sw_tokenizer **out)
{
    sw_status st;
    struct sw_file_list list = {0};
    struct sw_char_set *set;
    SW_TRY(sw_char_set_open(&set));
    SW_TRY_OR(done, sw_file_list_init(&list, files, n_files));
    for (int i = 0; i < list.n; ++i) {
        SW_TRY_OR(done, sw_source_read(list.paths[i], as_text, add_document, set));
    }
    SW_TRY_OR(done, sw_tokenizer_open_char_set(list.n > 0 ? list.paths[0] : "data", set, out));
done:
    sw_file_list_fini(&list);
    sw_char_set_close(set);
    return st;
}
