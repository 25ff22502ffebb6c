// SPDX-License-Identifier: Apache-2.0
// images - images that are read when their sample is asked for, from folders of pictures by class
// or CIFAR's binary files. A record of CIFAR's has one label or two, and 3 x 32 x 32 bytes.
#pragma once

#include "data/picture_folder.h"
#include "data/preprocessor.h"

struct sw_image_file {
    char *path; /* owned */
    int fd;
    int64_t first, n; /* images of it among all */
    int labels;       /* bytes of labels in front of a record: 1, or 2 (coarse, fine) */
};
/* All zero is empty. */
struct sw_images {
    struct sw_image_file *files; /* [n_files] of CIFAR's; none where there are pictures */
    int n_files;
    struct sw_pictures pictures;
    int32_t *labels; /* [pictures.n_classes] of their classes */
    int64_t n;
};
/* How images are read; borrowed. */
struct sw_image_form {
    const struct sw_image_steps *steps;
    struct sw_image_size size;
    int64_t n_labels;   /* labels are below it */
    char *const *names; /* [n_labels] of classes; NULL: they are numbers */
};
enum { SW_IMAGE_CHANNELS = 3, SW_IMAGE_SIDE = 32, SW_IMAGE_COARSE = 20 };
void sw_images_fini(struct sw_images *images);
/*
 * sw_images_add - a file of CIFAR's, or a folder of pictures, of which the headers are looked at.
 *
 * If the model has as many classes as CIFAR-100 has coarse ones, labels of its files are the coarse
 * ones. Classes of a folder are labels by their names; if the model has no names, by their order.
 *
 * SW_E_FORMAT  no whole records (the bytes are named), a label outside the classes, with the number
 *              of its image, a class that the model does not have, a picture whose header is
 *              damaged or that would not have the model's size
 */
sw_status sw_images_add(struct sw_images *images, const char *path,
                        const struct sw_image_form *form);
/* After the last file: puts pictures in their order. */
sw_status sw_images_end(struct sw_images *images);
/* pixels [3, size.height, size.width]; either may be NULL. */
sw_status sw_images_read(const struct sw_images *images, int64_t i,
                         const struct sw_image_form *form, float *pixels, int32_t *label);
