// SPDX-License-Identifier: Apache-2.0
// chat - conversations: their forms in files, and the tokens of one with those that the loss
// counts. Opening a chat and talking are public (spillway/data.h).
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "token/token.h"

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

/* ---- chat.c ---- */

/* A conversation as the model reads it. All zero is a valid empty row. */
struct sw_chat_row {
    struct sw_str text;
    struct sw_ids ids;
    float *weights; /* [weights_cap >= ids.len] of the tokens in the loss; 0 = it leaves it out */
    int64_t weights_cap;
};
void sw_chat_row_fini(struct sw_chat_row *row);
/* Replaces out. line_doc names the line in messages. */
sw_status sw_chat_encode(struct sw_chat *chat, const struct sw_json_doc *line_doc,
                         const struct sw_json *line, struct sw_chat_row *out);
