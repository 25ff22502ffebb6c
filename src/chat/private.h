// SPDX-License-Identifier: Apache-2.0
// Declarations that the files of src/chat share: lines as conversations, and the templates of a
// folder.
#pragma once

#include "chat/chat.h"
#include "chat/jinja.h"

/* ---- chat_line.c ---- */

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
