// SPDX-License-Identifier: Apache-2.0
// resize - pictures of another size, byte for byte as Pillow's resize makes them: filters that grow
// with the reduction (antialiasing), columns and rows one after the other, each rounded to bytes.
#pragma once

#include "data/picture.h"

enum sw_resample { SW_RESAMPLE_NEAREST, SW_RESAMPLE_BILINEAR, SW_RESAMPLE_BICUBIC };
const char *sw_resample_name(enum sw_resample resample);
/* By Pillow's code of a filter: 0, 2 or 3; false: another code. */
bool sw_resample_of_code(int64_t code, enum sw_resample *out);

/* The picture between the two passes counts as one for the limit. SW_E_FORMAT: it, or the result,
 * has too many pixels. */
sw_status sw_resize_check(const char *name, int64_t width, int64_t height, int64_t new_width,
                          int64_t new_height);
/* *out is a picture of its own. */
sw_status sw_resize(const char *name, const struct sw_picture *in, int64_t width, int64_t height,
                    enum sw_resample resample, struct sw_picture *out);
