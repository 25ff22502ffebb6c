// SPDX-License-Identifier: Apache-2.0
// Chats inside src/data: conversations in files, the template that renders one as text, and the
// tokens of that text that the loss counts.
#pragma once

#include "data/data.h"
#include "data/jinja.h"

/* ---- chat_line.c: conversations of JSON lines ---- */

enum sw_chat_form {
    SW_CHAT_NONE,
    SW_CHAT_MESSAGES,      /* {"messages": [{"role", "content"}]} */
    SW_CHAT_CONVERSATIONS, /* ShareGPT: {"conversations": [{"from", "value"}]} */
    SW_CHAT_INSTRUCTION,   /* Alpaca: {"instruction", "input", "output"} */
    SW_CHAT_PAIR           /* {"prompt", "completion"} */
};
/* The form of a line, by its keys. */
enum sw_chat_form sw_chat_form_of(const struct sw_json *line);
const char *sw_chat_form_keys(enum sw_chat_form form); /* for messages */
/* Puts "messages", an array of {role, content}, and "tools" into an object of `to`. line_doc names
 * the line. */
sw_status sw_chat_read_line(const struct sw_json_doc *line_doc, const struct sw_json *line,
                            struct sw_json_doc *to, struct sw_json *out);

/* ---- chat_template.c: choosing the template and its special tokens ---- */

struct sw_chat_template {
    char *source; /* the file; all owned */
    char *text;   /* [len] */
    size_t len;
    struct sw_jinja *jinja; /* NULL: not parsed yet */
};
/* Parses the text on first use. A template that is never used may thus contain unsupported
 * constructs. */
sw_status sw_chat_template_read(struct sw_chat_template *template);

struct sw_chat_templates {
    struct sw_chat_template plain, with_tools;
    struct sw_json_doc *tokens; /* {"bos_token": "<s>", ..} */
};
/* Opens the templates of `folder` (or of the folder that the file `folder` lies in). `path` is a
 * template file to use instead, or NULL. plain.text is NULL if there is no template. */
sw_status sw_chat_templates_open(struct sw_chat_templates *templates, const char *folder,
                                 const char *path);
void sw_chat_templates_close(struct sw_chat_templates *templates);

/* ---- chat.c ---- */

/* A conversation as the model reads it. All zero is a valid empty row. */
struct sw_chat_row {
    struct sw_jinja_text text;
    struct sw_ids ids;
    bool *wanted; /* [wanted_cap >= ids.len] whether the loss counts the token */
    int64_t wanted_cap;
};
void sw_chat_row_fini(struct sw_chat_row *row);
/* Replaces out. line_doc names the line in messages. */
sw_status sw_chat_encode(struct sw_chat *chat, const struct sw_json_doc *line_doc,
                         const struct sw_json *line, struct sw_chat_row *out);
