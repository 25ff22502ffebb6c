// SPDX-License-Identifier: Apache-2.0
// Regular expressions over names of modules, as adapter configurations have them: Python's `re`
// without what looks around or back. Matching takes time in proportion to name times pattern.
#pragma once

#include "base/base.h"

/*
 * sw_nn_pattern_match - does the pattern match the whole of the text?
 *
 * Characters and classes are bytes: names are ASCII.
 *
 * SW_E_CONFIG  not a pattern, a construct that is not built, or a pattern that is too long
 */
sw_status sw_nn_pattern_match(const char *pattern, const char *text, bool *out);
