// SPDX-License-Identifier: Apache-2.0
// Flags and helpers that the commands that open a model share.
#pragma once

#include "cli/cli.h"
#include "spillway/comm.h"
#include "spillway/data.h"
#include "spillway/engine.h"
#include "spillway/train.h"

/* Longest wait for another rank, in seconds. */
enum { CLI_DEADLINE_S = 300 };
/* Closes the communicator of sw_world_open. After a failure the other ranks are told first. NULL is
 * a no-op. */
void cli_close_world(sw_comm *comm, sw_status st);
/* True for the rank that reads and prints; comm: NULL = a single rank. */
bool cli_leads(const sw_comm *comm);

/* The tokenizer's folder: the one given, else the adapter's, else the model's. The adapter's is
 * used if it has a tokenizer, because it was trained with that. adapter: NULL = no adapter. */
const char *cli_tokenizer_folder(const char *tokenizer, const char *adapter, const char *model);
/* Opens the tokenizer. Reports first if the model does not exist. */
sw_status cli_open_tokenizer(const char *folder, const char *model, bool no_bos,
                             sw_tokenizer **out);
#define CLI_NO_BOS_FLAG(to)                                                                        \
    {                                                                                              \
        "--no-bos", FLAG_BOOL, &(to), NULL,                                                        \
            "leave out the token that the tokenizer puts before a text, such as <s>", 0            \
    }

/* Prints a number with nine digits. NaN is printed without a sign. JSON knows neither NaN nor
 * infinity and gets null. */
void cli_print_number(double value, bool json);

/* Flags for the tokenization of conversations. */
struct chat_flags {
    const char *template, *date, *loss_on; /* NULL: not given */
};
#define CLI_CHAT_FLAGS(to)                                                                         \
    {"--chat-template",                                                                            \
     FLAG_TEXT,                                                                                    \
     &(to).template,                                                                               \
     "FILE",                                                                                       \
     "template of conversations (default: chat_template.jinja or "                                 \
     "tokenizer_config.json beside the tokenizer)",                                                \
     0},                                                                                           \
    {                                                                                              \
        "--chat-date", FLAG_TEXT, &(to).date, "DAY",                                               \
            "date that chat templates are given, YYYY-MM-DD (default: today)", 0                   \
    }
/* Fills options from the flags. Returns -1 to go on, else the exit status. */
int cli_chat_options(const struct command *command, const struct chat_flags *flags,
                     struct sw_chat_options *out);

/* Values for configuration keys that are "auto", under the names of transformers' Trainer. The
 * library validates them. */
enum auto_flag {
    AUTO_LR,
    AUTO_BATCH_SIZE,
    AUTO_ACCUMULATE,
    AUTO_LR_SCHEDULER,
    AUTO_WARMUP_STEPS,
    AUTO_WEIGHT_DECAY,
    AUTO_CLIP,
    AUTO_ADAM_BETA1,
    AUTO_ADAM_BETA2,
    AUTO_ADAM_EPS,
    AUTO_BF16,
    AUTO_FP16,
    N_AUTO_FLAGS
};
struct auto_flags {
    const char *text[N_AUTO_FLAGS]; /* NULL: not given */
    char *owned[2 * N_AUTO_FLAGS + 4];
};
#define CLI_AUTO_FLAGS(to)                                                                         \
    {"--lr",                                                                                       \
     FLAG_TEXT,                                                                                    \
     &(to).text[AUTO_LR],                                                                          \
     "X",                                                                                          \
     "learning rate; like the next eleven options, it sets a key that is \"auto\" or "             \
     "missing",                                                                                    \
     0},                                                                                           \
        {"--batch-size",                                                                           \
         FLAG_TEXT,                                                                                \
         &(to).text[AUTO_BATCH_SIZE],                                                              \
         "B",                                                                                      \
         "train_micro_batch_size_per_gpu (default: what fits, at most 8)",                         \
         0},                                                                                       \
        {"--accumulate",                                                                           \
         FLAG_TEXT,                                                                                \
         &(to).text[AUTO_ACCUMULATE],                                                              \
         "N",                                                                                      \
         "gradient_accumulation_steps (default: 1)",                                               \
         0},                                                                                       \
        {"--lr-scheduler",                                                                         \
         FLAG_TEXT,                                                                                \
         &(to).text[AUTO_LR_SCHEDULER],                                                            \
         "NAME",                                                                                   \
         "schedule of transformers' Trainer: linear, cosine, constant, "                           \
         "constant_with_warmup or inverse_sqrt (default: the file's, else constant)",              \
         0},                                                                                       \
        {"--warmup-steps",                                                                         \
         FLAG_TEXT,                                                                                \
         &(to).text[AUTO_WARMUP_STEPS],                                                            \
         "N",                                                                                      \
         "steps of warm-up, or below 1 a share of all steps; without --lr-scheduler it "           \
         "implies constant_with_warmup (default: 0)",                                              \
         0},                                                                                       \
        {"--weight-decay",                                                                         \
         FLAG_TEXT,                                                                                \
         &(to).text[AUTO_WEIGHT_DECAY],                                                            \
         "X",                                                                                      \
         "weight decay of the optimizer (default: 0)",                                             \
         0},                                                                                       \
        {"--clip", FLAG_TEXT, &(to).text[AUTO_CLIP], "X", "gradient_clipping (default: 1)", 0},    \
        {"--adam-beta1",                                                                           \
         FLAG_TEXT,                                                                                \
         &(to).text[AUTO_ADAM_BETA1],                                                              \
         "X",                                                                                      \
         "beta1 of Adam (default: 0.9)",                                                           \
         0},                                                                                       \
        {"--adam-beta2",                                                                           \
         FLAG_TEXT,                                                                                \
         &(to).text[AUTO_ADAM_BETA2],                                                              \
         "X",                                                                                      \
         "beta2 of Adam (default: 0.999)",                                                         \
         0},                                                                                       \
        {"--adam-eps",                                                                             \
         FLAG_TEXT,                                                                                \
         &(to).text[AUTO_ADAM_EPS],                                                                \
         "X",                                                                                      \
         "epsilon of Adam (default: 1e-8)",                                                        \
         0},                                                                                       \
        {"--bf16",                                                                                 \
         FLAG_SWITCH,                                                                              \
         &(to).text[AUTO_BF16],                                                                    \
         NULL,                                                                                     \
         "train in bf16; --bf16=false turns it off",                                               \
         0},                                                                                       \
    {                                                                                              \
        "--fp16", FLAG_SWITCH, &(to).text[AUTO_FP16], NULL,                                        \
            "train in fp16 with dynamic loss scaling; --fp16=false turns it off", 0                \
    }
/* Returns -1 to go on, else the exit status: the schedule is unknown, or takes no warm-up. */
int cli_check_auto(const struct command *command, const struct auto_flags *flags);
/* Appends the edits for the flags. Without a file they override the built-in configuration. steps:
 * of the training; below 1 = unknown. False: out of memory. */
bool cli_add_auto(struct words *sets, struct auto_flags *flags, bool has_file, int64_t steps);
void cli_auto_fini(struct auto_flags *flags);

/* Flags for the task and for the fields of its files. */
struct task_flags {
    struct sw_task_options o;
    struct words labels, text_columns;
};
#define CLI_TASK_FLAGS(to)                                                                         \
    {"--task",                                                                                     \
     FLAG_TEXT,                                                                                    \
     &(to).o.name,                                                                                 \
     "NAME",                                                                                       \
     "causal, masked, pretrain, seq2seq, denoise, classify, multi-label, regression, "             \
     "tokens, answers or images (default: what the model is for)",                                 \
     0},                                                                                           \
        {"--labels",                                                                               \
         FLAG_LIST,                                                                                \
         &(to).labels,                                                                             \
         "NAME",                                                                                   \
         "class names in order, or their number (default: the model's, else those in the "         \
         "data)",                                                                                  \
         true},                                                                                    \
        {"--text-column",                                                                          \
         FLAG_LIST,                                                                                \
         &(to).text_columns,                                                                       \
         "NAME",                                                                                   \
         "field of the text, or the two fields of a pair; numbers count the columns of a "         \
         "table without names",                                                                    \
         true},                                                                                    \
        {"--label-column",                                                                         \
         FLAG_TEXT,                                                                                \
         &(to).o.label_column,                                                                     \
         "NAME",                                                                                   \
         "field of the labels, tags or targets",                                                   \
         0},                                                                                       \
        {"--source-prefix",                                                                        \
         FLAG_TEXT,                                                                                \
         &(to).o.source_prefix,                                                                    \
         "TEXT",                                                                                   \
         "text put before each source, such as \"summarize: \"",                                   \
         0},                                                                                       \
    {                                                                                              \
        "--target-len", FLAG_INT, &(to).o.target_len, "U",                                         \
            "tokens per target (default: as many as per sample)", 0                                \
    }
void cli_task_resolve(struct task_flags *flags);
void cli_task_fini(struct task_flags *flags);
