// SPDX-License-Identifier: Apache-2.0
// Normalizers of tokenizer files: Unicode normal forms and lower case, applied in order.
#pragma once

#include "base/base.h"

enum sw_normal_form {
    SW_NORMAL_NFC,
    SW_NORMAL_NFD,
    SW_NORMAL_NFKC,
    SW_NORMAL_NFKD,
    SW_NORMAL_LOWER
};

enum { SW_NORMALIZER_MAX = 8 };

/* All zero: text stays as it is. */
struct sw_normalizer {
    enum sw_normal_form steps[SW_NORMALIZER_MAX];
    int n_steps;
};

/* The name of the type in tokenizer.json -> step; false if there is none of that name. */
bool sw_normal_form_by_name(const char *name, enum sw_normal_form *out);
/* SW_E_UNSUP where the build lacks utf8proc; for the moment a tokenizer is opened. */
sw_status sw_normalizer_check(const struct sw_normalizer *normalizer);
/* out is replaced. text is well-formed UTF-8. */
sw_status sw_normalizer_apply(const struct sw_normalizer *normalizer, const char *text, size_t len,
                              struct sw_str *out);
