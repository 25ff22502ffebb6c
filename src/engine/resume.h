// SPDX-License-Identifier: Apache-2.0
// What checkpoints say of their run, and whether a run may go on from one.
#pragma once

#include "ckpt/ckpt.h"
#include "engine/engine.h"
#include "spillway/data.h"

/* ---- save.c ---- */
/* The effective configuration, the model's config.json, so that a checkpoint can be exported by itself, and the length of
 * a sample. The caller's. */
sw_status sw_engine_describe_run(const struct sw_engine *e, struct sw_json_doc **out);
/* Of one checkpoint, whatever the ranks. */
int64_t sw_engine_checkpoint_bytes(const struct sw_engine *e);

/* ---- resume.c ---- */
/* SW_E_CONFIG names every key and file that changed, from what to what. */
sw_status sw_engine_check_resume(struct sw_engine *e, const struct sw_ckpt *ckpt);

/* ---- data_record.c ---- */
struct sw_data_record_options {
    const char *const *files, *const *val_files; /* paths or globs */
    int n_files, n_val_files;
    const sw_tokenizer *tokenizer; /* NULL: shards need none */
    int64_t n_samples;             /* of an epoch */
};
/* What a training reads, for its checkpoints: names, sizes and digests of files, which are read whole. */
sw_status sw_data_record(const struct sw_data_record_options *options, struct sw_json_doc **out);
