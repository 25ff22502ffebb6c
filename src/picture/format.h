// SPDX-License-Identifier: Apache-2.0
// format - decoding bytes in memory: the limits, and one function for each format.
#pragma once

#include "picture/picture.h"

/* Limit on width times height; Pillow warns above it. */
#define SW_PICTURE_MOST_PIXELS INT64_C(89478485)
#define SW_PICTURE_MOST_SIDE INT64_C(1048576)
/* Limit on the bytes of a file. */
#define SW_PICTURE_MOST_BYTES ((size_t)256 << 20)

/* Decodes bytes in memory. `name` is for messages. */
sw_status sw_picture_decode(const char *name, const uint8_t *bytes, size_t len,
                            struct sw_picture *out);

/* ---- png.c, jpeg.c: one format each ---- */

/* A file's bytes and its name. */
struct sw_picture_file {
    const char *name;
    const uint8_t *bytes; /* [len] */
    size_t len;
};
/* SW_E_FORMAT: too many pixels. */
sw_status sw_picture_check_size(const char *name, int64_t width, int64_t height);
/* On failure, too, the caller owns *out and frees it. */
sw_status sw_png_decode(const struct sw_picture_file *file, struct sw_picture *out);
sw_status sw_jpeg_decode(const struct sw_picture_file *file, struct sw_picture *out);
