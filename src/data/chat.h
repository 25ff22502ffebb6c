// SPDX-License-Identifier: Apache-2.0
// Chats inside the room: conversations as files have them, the template that makes a text of one,
// and which tokens of that text the loss counts.
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
/* By the keys of a line. */
enum sw_chat_form sw_chat_form_of(const struct sw_json *line);
const char *sw_chat_form_keys(enum sw_chat_form form); /* for messages */
/* Puts "messages", an array of {role, content}, and "tools" into an object of `to`. line_doc names
 * the line. */
sw_status sw_chat_read_line(const struct sw_json_doc *line_doc, const struct sw_json *line,
                            struct sw_json_doc *to, struct sw_json *out);

/* ---- chat_template.c: which template, and what it is given ---- */

struct sw_chat_template {
    char *source; /* the file; all owned */
    char *text;   /* [len] */
    size_t len;
    struct sw_jinja *jinja; /* NULL: not read yet */
};
/* Reads the text, once: one that is never used may have in it what is not built. */
sw_status sw_chat_template_read(struct sw_chat_template *template);

struct sw_chat_templates {
    struct sw_chat_template plain, with_tools;
    struct sw_json_doc *tokens; /* {"bos_token": "<s>", ..} */
};
/* Those of a folder (or the folder of a file); path: a file that is used instead, or NULL.
 * plain.text is NULL where there is none. */
sw_status sw_chat_templates_open(struct sw_chat_templates *templates, const char *folder,
                                 const char *path);
void sw_chat_templates_close(struct sw_chat_templates *templates);

/* ---- chat.c ---- */

/* A conversation as the model reads it. All zero is legal. */
struct sw_chat_row {
    struct sw_jinja_text text;
    struct sw_ids ids;
    bool *wanted; /* [wanted_cap] at least ids.len: the loss counts it */
    int64_t wanted_cap;
};
void sw_chat_row_fini(struct sw_chat_row *row);
/* Replaces out. line_doc names the line in messages. */
sw_status sw_chat_encode(struct sw_chat *chat, const struct sw_json_doc *line_doc,
                         const struct sw_json *line, struct sw_chat_row *out);
