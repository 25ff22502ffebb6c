// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of look. Private to the room.
#pragma once

#include "engine/engine.h"

/* Hands the text to the caller (sw_text_free). If st is an error, or memory ran out while the text
 * was written, it frees the text and returns the error. */
sw_status sw_look_give(sw_status st, struct sw_str *text, char **out);
