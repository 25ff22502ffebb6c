// SPDX-License-Identifier: Apache-2.0
// What the commands that open a model have in common.
#pragma once

#include "cli/cli.h"
#include "spillway/data.h"
#include "spillway/engine.h"
#include "spillway/train.h"

/* Where the tokenizer is: the folder given, else that of the adapter (NULL: none) where one is
 * beside it, as the adapter was trained with it, else the model's. */
const char *cli_tokenizer_folder(const char *tokenizer, const char *adapter, const char *model);
/* Opens it; says before that there is no such model. */
sw_status cli_open_tokenizer(const char *folder, const char *model, sw_tokenizer **out);

/* How conversations become tokens. */
struct chat_flags {
    const char *template, *date, *loss_on; /* NULL: not given */
};
#define CLI_CHAT_FLAGS(to)                                                                         \
    {"--chat-template",                                                                            \
     FLAG_TEXT,                                                                                    \
     &(to).template,                                                                               \
     "FILE",                                                                                       \
     "of chats; default: chat_template.jinja or tokenizer_config.json beside the tokenizer",       \
     0},                                                                                           \
    {                                                                                              \
        "--chat-date", FLAG_TEXT, &(to).date, "DAY",                                               \
            "that chat templates are told, as 2026-11-22 (today)", 0                               \
    }
/* Into options what the flags say; -1 to go on, else the exit status. */
int cli_chat_options(const struct command *command, const struct chat_flags *flags,
                     struct sw_chat_options *out);

/* What is learned, and how files say it. */
struct task_flags {
    struct sw_task_options o;
    struct words labels, text_columns;
};
#define CLI_TASK_FLAGS(to)                                                                         \
    {"--task",                                                                                     \
     FLAG_TEXT,                                                                                    \
     &(to).o.name,                                                                                 \
     "NAME",                                                                                       \
     "causal, masked, pretrain, seq2seq, denoise, classify, multi-label, regression, tokens, "     \
     "answers or images (what the model is for)",                                                  \
     0},                                                                                           \
        {"--labels",                                                                               \
         FLAG_LIST,                                                                                \
         &(to).labels,                                                                             \
         "NAME",                                                                                   \
         "classes in their order, or how many (the model's, else those of the data)",              \
         true},                                                                                    \
        {"--text-column",                                                                          \
         FLAG_LIST,                                                                                \
         &(to).text_columns,                                                                       \
         "NAME",                                                                                   \
         "field of the text, or of both; numbers count the columns of a table without names",      \
         true},                                                                                    \
        {"--label-column",                                                                         \
         FLAG_TEXT,                                                                                \
         &(to).o.label_column,                                                                     \
         "NAME",                                                                                   \
         "field of labels, tags or targets",                                                       \
         0},                                                                                       \
        {"--source-prefix",                                                                        \
         FLAG_TEXT,                                                                                \
         &(to).o.source_prefix,                                                                    \
         "TEXT",                                                                                   \
         "before each source, as \"summarize: \"",                                                 \
         0},                                                                                       \
    {                                                                                              \
        "--target-len", FLAG_INT, &(to).o.target_len, "U",                                         \
            "tokens of a target (as many as of a sample)", 0                                       \
    }
void cli_task_resolve(struct task_flags *flags);
void cli_task_fini(struct task_flags *flags);
