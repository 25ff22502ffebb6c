// SPDX-License-Identifier: Apache-2.0
// What checkpoints say of their run, and whether a run may go on from one.
#pragma once

#include "ckpt/ckpt.h"
#include "engine/private.h"

/* ---- save.c ---- */
/* The effective configuration, the model's config.json, so that a checkpoint can be exported by
 * itself, and the length of a sample. The caller's. */
sw_status sw_engine_describe_run(const struct sw_engine *e, struct sw_json_doc **out);

/* ---- resume.c ---- */
/* SW_E_CONFIG names every key and file that changed, from what to what. */
sw_status sw_engine_check_resume(struct sw_engine *e, const struct sw_ckpt *ckpt);
