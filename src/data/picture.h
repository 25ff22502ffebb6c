// SPDX-License-Identifier: Apache-2.0
// picture - decodes PNG and JPEG files to RGB bytes, the same as Pillow's convert("RGB"). Files are
// untrusted: sizes are checked before memory is allocated.
#pragma once

#include "base/base.h"

/* Limit on width times height; Pillow warns above it. */
#define SW_PICTURE_MOST_PIXELS INT64_C(89478485)
#define SW_PICTURE_MOST_SIDE INT64_C(1048576)
/* Limit on the bytes of a file. */
#define SW_PICTURE_MOST_BYTES ((size_t)256 << 20)

/* All zero is empty. */
struct sw_picture {
    int64_t width, height;
    uint8_t *rgb; /* [height, width, 3] owned */
};
void sw_picture_fini(struct sw_picture *picture);

/*
 * sw_picture_look - reads the size of a picture from the header of its file, and nothing else.
 *
 * SW_E_FORMAT  not PNG or JPEG by content; a truncated header; more pixels or bytes than the
 *              limits
 * SW_E_UNSUP   this build has no library for the format
 */
sw_status sw_picture_look(const char *path, int64_t *out_width, int64_t *out_height);

/* Reads and decodes a file. SW_E_FORMAT: it is damaged or truncated; the message names the path. */
sw_status sw_picture_read(const char *path, struct sw_picture *out);
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
/* On failure both leave *out unchanged. */
sw_status sw_png_decode(const struct sw_picture_file *file, struct sw_picture *out);
sw_status sw_jpeg_decode(const struct sw_picture_file *file, struct sw_picture *out);
