// SPDX-License-Identifier: Apache-2.0
// picture_folder - folders of pictures by class, laid out as for torchvision's ImageFolder: each
// subfolder is a class, and the files in it, at any depth, are its pictures.
#pragma once

#include "base/base.h"

struct sw_picture_place {
    const char *path;      /* in the arena */
    int32_t i_class;       /* index among the folder's classes, sorted by name */
    int64_t rank, of_rank; /* index within the class, and its size; set by sw_pictures_spread */
};
/* All zero is empty. */
struct sw_pictures {
    struct sw_arena texts;
    const char *folder;   /* the first one */
    const char **classes; /* [n_classes] by name; from the arena */
    int32_t n_classes;
    struct sw_picture_place *places; /* [n] by class, folder and name */
    int64_t n, cap;
};
void sw_pictures_fini(struct sw_pictures *pictures);

/*
 * sw_pictures_add - appends the pictures of a folder: files that end in .png, .jpg or .jpeg, in any
 * case. Other files and hidden ones are skipped; one message line gives their number.
 *
 * SW_E_FORMAT  there is no class; a class has no picture; the classes differ from those of the
 *              previous folder; a name is not UTF-8
 * SW_E_UNSUP   a picture of another format
 */
sw_status sw_pictures_add(struct sw_pictures *pictures, const char *folder);
/* Reads only the classes, into an empty list. */
sw_status sw_pictures_read_classes(struct sw_pictures *pictures, const char *folder);
/* Orders the pictures so that each stretch has all classes in proportion, including the end, which
 * is held out for validation. */
sw_status sw_pictures_spread(struct sw_pictures *pictures);
/* SW_E_FORMAT: the classes differ; the message names one that only one side has. */
sw_status sw_pictures_same_classes(const struct sw_pictures *a, const struct sw_pictures *b);
