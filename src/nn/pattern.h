// SPDX-License-Identifier: Apache-2.0
// Regular expressions over module names, for adapter configurations: Python's `re` without
// lookaround and backreferences. Matching takes time proportional to name length times pattern
// length.
#pragma once

#include "base/base.h"

/*
 * sw_nn_pattern_match - does the pattern match the whole of the text?
 *
 * Characters and classes are bytes: names are ASCII.
 *
 * SW_E_CONFIG  not a pattern, an unsupported construct, or too long a pattern
 */
sw_status sw_nn_pattern_match(const char *pattern, const char *text, bool *out);
