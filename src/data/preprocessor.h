// SPDX-License-Identifier: Apache-2.0
// preprocessor - from a picture to what a model reads: resizing, a crop from the middle, bytes as
// numbers, mean and deviation, as preprocessor_config.json asks for them and transformers' image
// processors on Pillow do them.
#pragma once

#include "data/resize.h"

struct sw_image_steps {
    bool resizes;
    int64_t height, width; /* size after resizing; 0: `shortest` decides */
    int64_t shortest;      /* shorter side after resizing, which keeps the proportions; else 0 */
    enum sw_resample resample;
    int64_t crop_height, crop_width; /* 0: nothing is cropped */
    double divisor;                  /* of bytes */
    double mean[3], std[3];
};

/* Size of the pictures that a model reads. */
struct sw_image_size {
    int64_t height, width;
};

/*
 * sw_image_steps_read - the steps of a file.
 *
 * path         preprocessor_config.json; NULL: there is none, and pictures are resized to what the
 *              model reads, bilinearly, with 0.5 as mean and deviation
 *
 * SW_E_FORMAT  a key has a value that makes no sense, or pictures would not have the model's size
 * SW_E_UNSUP   a key, or a kind of processor, asks for what is not built
 */
sw_status sw_image_steps_read(const char *path, struct sw_image_size model,
                              struct sw_image_steps *out);
/* SW_E_FORMAT: a picture of that size would not have the model's, or too many pixels on the way. */
sw_status sw_image_steps_check(const struct sw_image_steps *steps, const char *name, int64_t width,
                               int64_t height, struct sw_image_size model);
/* pixels [3, model.height, model.width]. */
sw_status sw_image_steps_apply(const struct sw_image_steps *steps, const char *name,
                               const struct sw_picture *picture, struct sw_image_size model,
                               float *pixels);
/* "resized to 256 x 256, bicubic; 224 x 224 from the middle; .." */
void sw_image_steps_text(const struct sw_image_steps *steps, struct sw_str *out);
