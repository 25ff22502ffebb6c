// SPDX-License-Identifier: Apache-2.0
// What the files of a training job share. Private to the room, whose door is spillway/train.h.
#pragma once

#include "base/base.h"
#include "data/data.h"
#include "engine/engine.h"
#include "json/json.h"
#include "spillway/train.h"

/* ---- agree.c ---- */
/* The samples of a dataset of rows of so many tokens; and flags, as a text. SW_E_CONFIG names a
 * rank that has others. */
sw_status sw_job_agree(sw_comm *comm, const sw_dataset *dataset, int64_t tokens, const char *flags);

/* ---- chat.c ---- */
/* All zero: the data is text. */
struct sw_job_chat {
    enum sw_data_kind kind;
    int64_t day;       /* that the template is told */
    sw_chat *chat;     /* owned; NULL = none */
    const char **sets; /* [n_sets] the job's edits and those of chats; owned; NULL without a chat */
    int n_sets;
};
/* What the flags of chats say is legal. */
sw_status sw_job_chat_check(const struct sw_train_options *options);
/* What the data is, and the day; on all ranks the same. Collective. */
sw_status sw_job_chat_choose(const struct sw_train_options *options, sw_comm *comm,
                             struct sw_job_chat *out);
/* Opens the chat, if the data wants one. folder: of the tokenizer; NULL: it is made of the text. */
sw_status sw_job_chat_open(const struct sw_train_options *options, const char *folder,
                           sw_tokenizer *tokenizer, struct sw_job_chat *out);
void sw_job_chat_close(struct sw_job_chat *chat);
/* tokens: of a row. */
void sw_job_chat_print(const struct sw_job_chat *chat, const sw_dataset *dataset, int64_t tokens,
                       FILE *out);
/* What goes beside the weights: the template, where no other file of the folder has it. */
sw_status sw_job_chat_save(const struct sw_job_chat *chat, const char *folder);

/* ---- data_record.c ---- */
struct sw_data_record_options {
    const char *const *files, *const *val_files; /* paths or globs */
    int n_files, n_val_files;
    const sw_tokenizer *tokenizer; /* NULL: shards need none */
    const sw_chat *chat;           /* NULL: the data is no chats */
    int64_t n_samples;             /* of an epoch */
};
/* What a training reads, for its checkpoints: names, sizes and digests of files, which are read
 * whole. */
sw_status sw_data_record(const struct sw_data_record_options *options, struct sw_json_doc **out);

/* ---- export.c ---- */
/* The weights of a checkpoint; note: which one it was, for people. */
sw_status sw_job_export_saved(const char *path, const char *folder, enum sw_dtype dtype, char *note,
                              size_t cap);
