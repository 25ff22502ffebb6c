// SPDX-License-Identifier: Apache-2.0
// picture - PNG and JPEG files as the input of a model. They are decoded to RGB bytes, the same as
// Pillow's convert("RGB"). Files are untrusted: sizes are checked before memory is allocated.
#pragma once

#include "base/base.h"

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

/*
 * ---- preprocessor.c ----
 *
 * The steps from a picture to pixels: resize, centre crop, rescale, and normalise by mean and
 * deviation. preprocessor_config.json sets them. They match the Pillow-based image processors of
 * transformers.
 */

enum sw_resample { SW_RESAMPLE_NEAREST, SW_RESAMPLE_BILINEAR, SW_RESAMPLE_BICUBIC };

struct sw_image_steps {
    bool resizes;
    int64_t height, width; /* size after resizing; 0: `shortest` decides */
    int64_t shortest;      /* shorter side after resizing, which keeps the proportions; else 0 */
    enum sw_resample resample;
    int64_t crop_height, crop_width; /* 0: no crop */
    double divisor;                  /* bytes are divided by it */
    double mean[3], std[3];
};

/* Size of the pictures that a model reads. */
struct sw_image_size {
    int64_t height, width;
};

/*
 * sw_image_steps_read - reads the steps from a file.
 *
 * path         preprocessor_config.json; NULL: there is no file. Pictures are then resized to the
 *              model's size, bilinearly, with mean and deviation 0.5
 *
 * SW_E_FORMAT  a key has an invalid value, or pictures would not get the model's size
 * SW_E_UNSUP   a key or a kind of processor is not supported
 */
sw_status sw_image_steps_read(const char *path, struct sw_image_size model,
                              struct sw_image_steps *out);
/* SW_E_FORMAT: a picture of that size would not get the model's size, or an intermediate picture
 * would have too many pixels. */
sw_status sw_image_steps_check(const struct sw_image_steps *steps, const char *name, int64_t width,
                               int64_t height, struct sw_image_size model);
/* pixels [3, model.height, model.width]. */
sw_status sw_image_steps_apply(const struct sw_image_steps *steps, const char *name,
                               const struct sw_picture *picture, struct sw_image_size model,
                               float *pixels);
/* "resized to 256 x 256, bicubic; 224 x 224 from the middle; .." */
void sw_image_steps_text(const struct sw_image_steps *steps, struct sw_str *out);
