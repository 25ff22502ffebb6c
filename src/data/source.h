// SPDX-License-Identifier: Apache-2.0
// Data files as documents: which files, of which kind, and the texts in them.
#pragma once

#include "data/chat.h"

/* Paths after globs were expanded, each pattern's in sorted order. All zero is empty. */
struct sw_file_list {
    char **paths; /* [n] owned */
    int n;
};
/* SW_E_IO: a pattern that no file matches. */
sw_status sw_file_list_init(struct sw_file_list *list, const char *const *patterns, int n_patterns);
void sw_file_list_fini(struct sw_file_list *list);

/* By the ending: .bin, .jsonl (and .ndjson), everything else. */
enum sw_source_kind { SW_SOURCE_TEXT, SW_SOURCE_JSONL, SW_SOURCE_SHARD };
enum sw_source_kind sw_source_kind_of(const char *path);

/* Borrowed for the call it is passed to. */
struct sw_document {
    const char *name; /* for messages: "file", or "file line 7" */
    const char *text; /* [text_len]; the prompt, where there is a completion */
    size_t text_len;
    const char *completion; /* [completion_len], "" where there is none */
    size_t completion_len;
    bool has_completion;
    /* Of JSON lines: the line, and which kind of chat it could be; text is "" where it can be
     * nothing else. */
    enum sw_chat_form form;
    const struct sw_json_doc *doc;
    const struct sw_json *line;
};
typedef sw_status (*sw_document_fn)(void *ctx, const struct sw_document *document);

/* Calls fn with each object of a file of JSON lines, in order; sw_json_name(doc) is "file line 7".
 * SW_E_FORMAT: a line is no object, or the file is empty. */
sw_status sw_source_lines(const char *path,
                          sw_status (*fn)(void *ctx, const struct sw_json_doc *doc,
                                          const struct sw_json *object),
                          void *ctx);
/* Bytes of the byte order mark that a text begins with. */
size_t sw_source_mark_len(const char *text, size_t len);

/* Calls fn with each document of a text or JSONL file, in order. as_text: the file is one text,
 * whatever its name and however it begins; else SW_E_FORMAT says what a structured file is, and
 * what to make of it. */
sw_status sw_source_read(const char *path, bool as_text, sw_document_fn fn, void *ctx);
