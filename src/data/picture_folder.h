// SPDX-License-Identifier: Apache-2.0
// picture_folder - folders of pictures by class, as torchvision's ImageFolder has them: a folder in
// it is a class, and what lies within that, at any depth, are its pictures.
#pragma once

#include "base/base.h"

struct sw_picture_place {
    const char *path;      /* from the arena */
    int32_t i_class;       /* among those of the folder, by name */
    int64_t rank, of_rank; /* which of how many of its class; sw_pictures_spread sets them */
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
 * sw_pictures_add - the pictures of a folder behind those that are there: files that end in .png,
 * .jpg or .jpeg, in any case. Other and hidden files are left out; one line counts them.
 *
 * SW_E_FORMAT  there is no class; a class has no picture; the classes are not those of the folder
 *              before; a name is not UTF-8
 * SW_E_UNSUP   a picture of another format
 */
sw_status sw_pictures_add(struct sw_pictures *pictures, const char *folder);
/* The classes alone, into an empty list. */
sw_status sw_pictures_read_classes(struct sw_pictures *pictures, const char *folder);
/* Orders them so that each stretch has all classes in proportion. The end, which is held back for
 * validation, is such a stretch. */
sw_status sw_pictures_spread(struct sw_pictures *pictures);
/* SW_E_FORMAT names a class that one has and the other has not. */
sw_status sw_pictures_same_classes(const struct sw_pictures *a, const struct sw_pictures *b);
