// SPDX-License-Identifier: Apache-2.0
// EXECUTIONS 20000
// Any bytes as a pattern over names of modules and, behind the first byte 0, a name: refused with a
// message that quotes it, or it matches or does not; the same pattern in a group, or twice as an
// alternative, says the same unless that is too much.
#include "nn/pattern.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const char *before, const char *pattern, const char *between,
                       const char *again, const char *behind, const char *name, bool matches)
{
    struct sw_str text = {0};
    bool now = !matches;
    sw_str_printf(&text, "%s%s%s%s%s", before, pattern, between, again, behind);
    const sw_status st = sw_nn_pattern_match(sw_str_text(&text), name, &now);
    SW_ASSERT(st == SW_E_CONFIG || now == matches);
    sw_str_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_arena arena;
    bool matches = false;
    sw_arena_init(&arena, "fuzz");
    const char *pattern = sw_arena_strndup(&arena, (const char *)data, size);
    const size_t len = pattern ? strlen(pattern) : 0;
    const char *name = pattern && len < size
                           ? sw_arena_strndup(&arena, (const char *)data + len + 1, size - len - 1)
                           : pattern;
    if (name && sw_nn_pattern_match(pattern, name, &matches) == SW_OK) {
        check_same("(?:", pattern, "", "", ")", name, matches);
        check_same("", pattern, "|", pattern, "", name, matches);
    } else {
        SW_ASSERT(strstr(sw_error_message(), "is not a pattern of names: "));
    }
    sw_arena_fini(&arena);
    return 0;
}
