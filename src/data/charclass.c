// SPDX-License-Identifier: Apache-2.0
#include "data/charclass.h"

struct range {
    int32_t first, last;
};

static bool is_in(const struct range *ranges, size_t n, int32_t code_point)
{
    for (size_t i = 0; i < n; ++i) {
        if (code_point >= ranges[i].first && code_point <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

bool sw_char_is_space(int32_t code_point)
{
    static const struct range spaces[] = {
        {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
    };
    return is_in(spaces, SW_LEN(spaces), code_point);
}

bool sw_char_is_ideograph(int32_t code_point)
{
    static const struct range ideographs[] = {
        {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
        {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F},
    };
    return code_point >= 0x3400 && is_in(ideographs, SW_LEN(ideographs), code_point);
}

#if SW_HAVE_UTF8PROC

#include <utf8proc.h>

static bool is_ascii_punctuation(int32_t c)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
}

bool sw_char_is_punctuation(int32_t code_point)
{
    const utf8proc_category_t category = utf8proc_category(code_point);
    return code_point < 128 ? is_ascii_punctuation(code_point)
                            : category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool sw_char_is_mark(int32_t code_point)
{
    const utf8proc_category_t category = utf8proc_category(code_point);
    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool sw_char_is_nonspacing_mark(int32_t code_point)
{
    return utf8proc_category(code_point) == UTF8PROC_CATEGORY_MN;
}

bool sw_char_is_control(int32_t code_point)
{
    const utf8proc_category_t category = utf8proc_category(code_point);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO;
}

#else

bool sw_char_is_punctuation(int32_t code_point)
{
    (void)code_point;
    return false;
}

bool sw_char_is_mark(int32_t code_point)
{
    (void)code_point;
    return false;
}

bool sw_char_is_nonspacing_mark(int32_t code_point)
{
    (void)code_point;
    return false;
}

bool sw_char_is_control(int32_t code_point)
{
    (void)code_point;
    return false;
}

#endif
