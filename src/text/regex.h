// SPDX-License-Identifier: Apache-2.0
// regex - the translation of patterns, which regex.c compiles.
#pragma once

#include "text/text.h"

/* Appends the pattern translated to PCRE2's syntax. Pure. */
sw_status sw_regex_translate(const char *pattern, size_t len, struct sw_str *out);