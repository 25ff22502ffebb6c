// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this folder.
#pragma once

#include "json/json.h"
#include "show/show.h"

/* ---- dump.c: members of a JSON object, each preceded by a comma ---- */

/* Writes ports and instructions. */
void sw_program_dump(const struct sw_program *program, struct sw_str *out);
/* Writes all that programs share. */
void sw_plan_dump(const struct sw_plan *plan, struct sw_str *out);
