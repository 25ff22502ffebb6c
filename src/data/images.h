// SPDX-License-Identifier: Apache-2.0
// images - CIFAR's binary files: records of a label, or two, and 3 x 32 x 32 bytes, read where they
// lie.
#pragma once

#include "base/base.h"

/* Of a channel: (byte / 255 - mean) / std. */
struct sw_pixel_scale {
    double mean[3], std[3];
};

struct sw_image_file {
    char *path; /* owned */
    int fd;
    int64_t first, n; /* images of it among all */
    int labels;       /* bytes of labels in front of a record: 1, or 2 (coarse, fine) */
};
/* All zero is empty. */
struct sw_images {
    struct sw_image_file *files; /* [n_files] */
    int n_files;
    int64_t n;
};
enum { SW_IMAGE_CHANNELS = 3, SW_IMAGE_SIDE = 32, SW_IMAGE_COARSE = 20 };
void sw_images_fini(struct sw_images *images);
/* n_labels: classes of the model; as many as CIFAR-100 has coarse ones: those are the labels.
 *
 * SW_E_FORMAT  no whole records (the bytes are named), or a label outside the classes, with the
 *              number of its image */
sw_status sw_images_add(struct sw_images *images, const char *path, int64_t n_labels);
/* Pixels [3, 32, 32]; either may be NULL. */
sw_status sw_images_read(const struct sw_images *images, int64_t i, int64_t n_labels,
                         const struct sw_pixel_scale *scale, float *pixels, int32_t *label);
