// SPDX-License-Identifier: Apache-2.0
// Classes of code points that tokenizers ask for. White space is a short list and always there; the
// general categories are utf8proc's.
#pragma once

#include "base/base.h"

/* Unicode's White_Space. */
bool sw_char_is_space(int32_t code_point);
/* The ideographs that BERT's normalizer puts spaces around. */
bool sw_char_is_ideograph(int32_t code_point);

/* ---- with utf8proc alone; false without ---- */

/* Category P, and the rest of ASCII that is neither letter, digit nor space. */
bool sw_char_is_punctuation(int32_t code_point);
/* Category M: what StripAccents leaves out. */
bool sw_char_is_mark(int32_t code_point);
/* Category Mn: what BERT's normalizer leaves out with accents. */
bool sw_char_is_nonspacing_mark(int32_t code_point);
/* Categories Cc, Cf and Co. */
bool sw_char_is_control(int32_t code_point);
