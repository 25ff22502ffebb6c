// SPDX-License-Identifier: Apache-2.0
// images - images that are read on demand, from folders of pictures by class or from CIFAR's binary
// files. A CIFAR record has one or two label bytes and 3 x 32 x 32 pixel bytes.
#pragma once

#include "data/picture_folder.h"
#include "picture/picture.h"

struct sw_image_file {
    char *path; /* owned */
    int fd;
    int64_t first, n; /* range of its images among all */
    int labels;       /* label bytes at the start of a record: 1, or 2 (coarse, fine) */
};
/* All zero is empty. */
struct sw_images {
    struct sw_image_file *files; /* [n_files] CIFAR files; empty if there are pictures */
    int n_files;
    struct sw_pictures pictures;
    int32_t *labels; /* [pictures.n_classes] label of each class */
    int64_t n;
};
/* How images are read; borrowed. */
struct sw_image_form {
    const struct sw_image_steps *steps;
    struct sw_image_size size;
    int64_t n_labels;   /* all labels are below n_labels */
    char *const *names; /* [n_labels] class names; NULL: classes are numbers */
};
enum { SW_IMAGE_CHANNELS = 3, SW_IMAGE_SIDE = 32, SW_IMAGE_COARSE = 20 };
void sw_images_fini(struct sw_images *images);
/*
 * sw_images_add - adds a CIFAR file, or a folder of pictures, whose headers are checked.
 *
 * CIFAR-100 files use coarse labels if the model has as many classes as there are coarse labels.
 * Classes of a folder map to labels by name, or by order if the model has no names.
 *
 * SW_E_FORMAT  the file is not a whole number of records; a label or class that the model does not
 *              have; a picture with a damaged header or of a wrong size
 */
sw_status sw_images_add(struct sw_images *images, const char *path,
                        const struct sw_image_form *form);
/* Call after the last file: puts pictures in their final order. */
sw_status sw_images_end(struct sw_images *images);
/* pixels [3, size.height, size.width]; either may be NULL. */
sw_status sw_images_read(const struct sw_images *images, int64_t i,
                         const struct sw_image_form *form, float *pixels, int32_t *label);
