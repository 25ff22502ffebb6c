// SPDX-License-Identifier: Apache-2.0
// picture - PNG and JPEG files as bytes of red, green and blue: those of Pillow's convert("RGB").
// A file is hostile until it is decoded: sizes are limited before memory is asked for.
#pragma once

#include "base/base.h"

/* Width times height; Pillow warns of more. */
#define SW_PICTURE_MOST_PIXELS INT64_C(89478485)
#define SW_PICTURE_MOST_SIDE INT64_C(1048576)
/* Bytes of a file. */
#define SW_PICTURE_MOST_BYTES ((size_t)256 << 20)

/* All zero is empty. */
struct sw_picture {
    int64_t width, height;
    uint8_t *rgb; /* [height, width, 3] owned */
};
void sw_picture_fini(struct sw_picture *picture);

/*
 * sw_picture_look - the size of a picture by the header of its file, of which no more is read.
 *
 * SW_E_FORMAT  neither PNG nor JPEG, whatever it is called; a header that is cut short; more pixels
 *              or bytes than the limits
 * SW_E_UNSUP   this build has no library for the format
 */
sw_status sw_picture_look(const char *path, int64_t *out_width, int64_t *out_height);

/* A whole file. SW_E_FORMAT: it is damaged, or cut short; the message names the path. */
sw_status sw_picture_read(const char *path, struct sw_picture *out);
/* Decodes bytes in memory; name: for messages. */
sw_status sw_picture_decode(const char *name, const uint8_t *bytes, size_t len,
                            struct sw_picture *out);

/* ---- png.c, jpeg.c: one format each ---- */

/* Bytes of a file under its name. */
struct sw_picture_file {
    const char *name;
    const uint8_t *bytes; /* [len] */
    size_t len;
};
/* SW_E_FORMAT: too many pixels. */
sw_status sw_picture_check_size(const char *name, int64_t width, int64_t height);
/* Both leave *out as it was on failure. */
sw_status sw_png_decode(const struct sw_picture_file *file, struct sw_picture *out);
sw_status sw_jpeg_decode(const struct sw_picture_file *file, struct sw_picture *out);
