// SPDX-License-Identifier: Apache-2.0
// resize - resizes pictures byte for byte as Pillow does. Filters widen with the reduction
// (antialiasing). Columns and rows are separate passes, each rounded to bytes.
#pragma once

#include "picture/picture.h"

const char *sw_resample_name(enum sw_resample resample);
/* Looks up a filter by Pillow's code: 0, 2 or 3. False: another code. */
bool sw_resample_of_code(int64_t code, enum sw_resample *out);

/* SW_E_FORMAT: the result, or the picture between the two passes, has too many pixels. */
sw_status sw_resize_check(const char *name, int64_t width, int64_t height, int64_t new_width,
                          int64_t new_height);
/* *out is a new picture, owned by the caller. */
sw_status sw_resize(const char *name, const struct sw_picture *in, int64_t width, int64_t height,
                    enum sw_resample resample, struct sw_picture *out);
