// SPDX-License-Identifier: Apache-2.0
// Data files as documents: finding the files, their kinds, and the texts in them.
#pragma once

#include "chat/chat.h"

/* Paths after glob expansion, sorted within each pattern. All zero is empty. */
struct sw_file_list {
    char **paths; /* [n] owned */
    int n;
};
/* SW_E_IO: no file matches a pattern. */
sw_status sw_file_list_init(struct sw_file_list *list, const char *const *patterns, int n_patterns);
void sw_file_list_fini(struct sw_file_list *list);

/* The kind of a file, by its extension: .bin, .jsonl or .ndjson, anything else. */
enum sw_source_kind { SW_SOURCE_TEXT, SW_SOURCE_JSONL, SW_SOURCE_SHARD };
enum sw_source_kind sw_source_kind_of(const char *path);

/* A document, borrowed for the duration of the callback. */
struct sw_document {
    const char *name; /* for messages: "file", or "file line 7" */
    const char *text; /* [text_len]; the prompt if there is a completion */
    size_t text_len;
    const char *completion; /* [completion_len]; "" if absent */
    size_t completion_len;
    bool has_completion;
    /* JSON lines only: the line, and the form of chat that it could be. `text` is "" if the line
     * can only be a chat. */
    enum sw_chat_form form;
    const struct sw_json_doc *doc;
    const struct sw_json *line;
};
typedef sw_status (*sw_document_fn)(void *ctx, const struct sw_document *document);

/* Calls fn with each object of a file of JSON lines, in order; sw_json_name(doc) is "file line 7".
 * SW_E_FORMAT: a line is not an object, or the file is empty. */
sw_status sw_source_lines(const char *path,
                          sw_status (*fn)(void *ctx, const struct sw_json_doc *doc,
                                          const struct sw_json *object),
                          void *ctx);
/* How to convert a file of a columnar format, which is not read, to JSON lines: by its name. NULL =
 * it is none. */
const char *sw_source_conversion(const char *path);
/* Length of the byte order mark at the start of a text; 0 if absent. */
size_t sw_source_mark_len(const char *text, size_t len);

/* Calls fn with each document of a text or JSONL file, in order. as_text: read the file as one text
 * whatever its name and content. Otherwise a structured file fails with SW_E_FORMAT, whose message
 * says what to do with it. */
sw_status sw_source_read(const char *path, bool as_text, sw_document_fn fn, void *ctx);
