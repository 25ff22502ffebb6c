// SPDX-License-Identifier: Apache-2.0
// The description of a run in its checkpoints, and the check whether a run may resume from one.
#pragma once

#include "ckpt/ckpt.h"
#include "engine/private.h"

/* ---- save.c ---- */
/* Describes the run: the effective configuration, the model's config.json (so that a checkpoint can
 * be exported by itself), and the sample length. The caller owns *out. */
sw_status sw_engine_describe_run(const struct sw_engine *e, struct sw_json_doc **out);

/* ---- resume.c ---- */
/* SW_E_CONFIG names every key and file that changed, with old and new value. */
sw_status sw_engine_check_resume(struct sw_engine *e, const struct sw_ckpt *ckpt);
