// SPDX-License-Identifier: Apache-2.0
// What the files of a training job share. Private to the room, whose door is spillway/train.h.
#pragma once

#include "base/base.h"
#include "data/data.h"
#include "engine/engine.h"
#include "json/json.h"

/* ---- agree.c ---- */
/* The samples of a dataset of rows of so many tokens; and flags, as a text. SW_E_CONFIG names a
 * rank that has others. */
sw_status sw_job_agree(sw_comm *comm, const sw_dataset *dataset, int64_t tokens, const char *flags);

/* ---- data_record.c ---- */
struct sw_data_record_options {
    const char *const *files, *const *val_files; /* paths or globs */
    int n_files, n_val_files;
    const sw_tokenizer *tokenizer; /* NULL: shards need none */
    int64_t n_samples;             /* of an epoch */
};
/* What a training reads, for its checkpoints: names, sizes and digests of files, which are read
 * whole. */
sw_status sw_data_record(const struct sw_data_record_options *options, struct sw_json_doc **out);

/* ---- export.c ---- */
/* The weights of a checkpoint; note: which one it was, for people. */
sw_status sw_job_export_saved(const char *path, const char *folder, enum sw_dtype dtype, char *note,
                              size_t cap);
