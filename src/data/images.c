// SPDX-License-Identifier: Apache-2.0
// Images. Labels and picture headers are checked when files are opened, so that a wrong one stops a
// run before it starts.
#include "data/images.h"

#include "data/labels.h"

#include <string.h>
#include <unistd.h>

enum { PIXELS = SW_IMAGE_SIDE * SW_IMAGE_SIDE, BYTES = SW_IMAGE_CHANNELS * PIXELS };
enum { BLOCK = 64 }; /* records checked at a time */

void sw_images_fini(struct sw_images *images)
{
    for (int i = 0; i < images->n_files; i++) {
        sw_free(images->files[i].path);
        if (images->files[i].fd >= 0) {
            close(images->files[i].fd);
        }
    }
    sw_free(images->files);
    sw_pictures_fini(&images->pictures);
    sw_free(images->labels);
    *images = (struct sw_images){0};
}

static int label_of(const struct sw_image_file *file, const unsigned char *record, int64_t n_labels)
{
    return record[file->labels == 2 && n_labels != SW_IMAGE_COARSE];
}

static sw_status check_label(const struct sw_image_file *file, int64_t i, int label,
                             int64_t n_labels)
{
    return label < n_labels
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s: image %lld has the label %d, wanted one of %lld classes",
                         file->path, (long long)i, label, (long long)n_labels);
}

static sw_status check_labels(const struct sw_image_file *file, int64_t n_labels)
{
    const int64_t record = file->labels + BYTES;
    unsigned char *block = sw_alloc("images", (size_t)(BLOCK * record));
    SW_TRY_ALLOC(block, "images");
    sw_status st = SW_OK;
    for (int64_t i = 0; i < file->n && st >= 0; i += BLOCK) {
        const int64_t n = sw_min_i64(BLOCK, file->n - i);
        st = sw_file_read_at(file->fd, file->path, block, (size_t)(n * record), i * record);
        for (int64_t k = 0; k < n && st >= 0; k++) {
            st = check_label(file, i + k, label_of(file, block + k * record, n_labels), n_labels);
        }
    }
    sw_free(block);
    return st;
}

/* Infers CIFAR-10 or CIFAR-100 records from the file size. If both fit, the number of classes
 * decides. */
static sw_status count_records(struct sw_image_file *file, size_t bytes, int64_t n_labels)
{
    const int64_t size = (int64_t)bytes;
    const bool one = size % (1 + BYTES) == 0, two = size % (2 + BYTES) == 0;
    if (size == 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: the file is empty", file->path);
    }
    if (!one && !two) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s: %lld bytes; wanted whole records of %d (CIFAR-10) or %d (CIFAR-100): the file is "
            "cut short, or of another format. Pictures are read from a folder with a folder for "
            "each class",
            file->path, (long long)size, 1 + BYTES, 2 + BYTES);
    }
    file->labels = one && (!two || n_labels <= 10) ? 1 : 2;
    file->n = size / (file->labels + BYTES);
    return SW_OK;
}

/* ---- files of CIFAR's ---- */

static sw_status add_file(struct sw_images *images, const char *path,
                          const struct sw_image_form *form)
{
    size_t bytes;
    struct sw_image_file *files =
        sw_realloc("images", images->files, (size_t)(images->n_files + 1) * sizeof *files);
    SW_TRY_ALLOC(files, "files of images");
    images->files = files;
    struct sw_image_file *file = &files[images->n_files];
    *file = (struct sw_image_file){.path = sw_strdup("images", path), .fd = -1, .first = images->n};
    images->n_files++;
    SW_TRY_ALLOC(file->path, "files of images");
    SW_TRY(sw_file_open(path, &file->fd, &bytes));
    SW_TRY(count_records(file, bytes, form->n_labels));
    SW_TRY(check_labels(file, form->n_labels));
    SW_TRY(sw_image_steps_check(form->steps, path, SW_IMAGE_SIDE, SW_IMAGE_SIDE, form->size));
    images->n += file->n;
    return SW_OK;
}

/* The bytes of a record lie channel by channel. */
static sw_status put_record(const struct sw_image_file *file, const unsigned char *bytes,
                            const struct sw_image_form *form, float *pixels)
{
    uint8_t rgb[BYTES];
    const struct sw_picture picture = {SW_IMAGE_SIDE, SW_IMAGE_SIDE, rgb};
    for (int i = 0; i < PIXELS; i++) {
        for (int c = 0; c < SW_IMAGE_CHANNELS; c++) {
            rgb[SW_IMAGE_CHANNELS * i + c] = bytes[c * PIXELS + i];
        }
    }
    return sw_image_steps_apply(form->steps, file->path, &picture, form->size, pixels);
}

static sw_status read_record(const struct sw_images *images, int64_t i,
                             const struct sw_image_form *form, float *pixels, int32_t *label)
{
    unsigned char record[2 + BYTES];
    const struct sw_image_file *file = images->files;
    while (i >= file->first + file->n) {
        file++;
    }
    const int64_t size = file->labels + BYTES, at = i - file->first;
    SW_TRY(sw_file_read_at(file->fd, file->path, record, (size_t)size, at * size));
    const int found = label_of(file, record, form->n_labels);
    SW_TRY(check_label(file, at, found, form->n_labels)); /* the file may have changed */
    if (pixels) {
        SW_TRY(put_record(file, record + file->labels, form, pixels));
    }
    if (label) {
        *label = found;
    }
    return SW_OK;
}

/* ---- folders of pictures ---- */

static sw_status fail_class(const char *folder, const char *name, const struct sw_image_form *form)
{
    return SW_FAIL(
        SW_E_FORMAT, "%s/%s: the class \"%s\" is not one of the model's %lld (\"%.40s\"%s)", folder,
        name, name, (long long)form->n_labels, form->names[0], form->n_labels > 1 ? ", .." : "");
}

static sw_status find_labels(struct sw_images *images, const struct sw_image_form *form)
{
    const struct sw_pictures *p = &images->pictures;
    struct sw_labels known;
    if (!form->names && p->n_classes != form->n_labels) {
        return SW_FAIL(SW_E_FORMAT, "%s: %d folders of classes, and the model has %lld classes",
                       p->folder, p->n_classes, (long long)form->n_labels);
    }
    images->labels = sw_alloc_zero("images", (size_t)p->n_classes, sizeof *images->labels);
    SW_TRY_ALLOC(images->labels, "labels of pictures");
    sw_status st = sw_labels_init(&known, (const char *const *)form->names, form->n_labels);
    for (int32_t c = 0; c < p->n_classes && st >= 0; c++) {
        const char *name = p->classes[c];
        images->labels[c] = form->names ? sw_names_find(&known.places, 0, name) : c;
        st = images->labels[c] >= 0 ? SW_OK : fail_class(p->folder, name, form);
    }
    sw_labels_fini(&known);
    return st;
}

static sw_status look_at_heads(const struct sw_pictures *p, int64_t first,
                               const struct sw_image_form *form)
{
    for (int64_t i = first; i < p->n; i++) {
        int64_t width, height;
        const char *path = p->places[i].path;
        sw_work_at("looking at pictures", i - first, p->n - first);
        SW_TRY(sw_picture_look(path, &width, &height));
        SW_TRY(sw_image_steps_check(form->steps, path, width, height, form->size));
    }
    return SW_OK;
}

static sw_status add_folder(struct sw_images *images, const char *path,
                            const struct sw_image_form *form)
{
    const int64_t first = images->pictures.n;
    SW_TRY(sw_pictures_add(&images->pictures, path));
    if (!images->labels) {
        SW_TRY(find_labels(images, form));
    }
    const sw_status st = look_at_heads(&images->pictures, first, form);
    sw_work_end();
    images->n = images->pictures.n;
    return st;
}

static sw_status read_picture(const struct sw_images *images, int64_t i,
                              const struct sw_image_form *form, float *pixels, int32_t *label)
{
    const struct sw_picture_place *place = &images->pictures.places[i];
    struct sw_picture picture = {0};
    if (pixels) {
        SW_TRY(sw_picture_read(place->path, &picture));
        const sw_status st =
            sw_image_steps_apply(form->steps, place->path, &picture, form->size, pixels);
        sw_picture_fini(&picture);
        SW_TRY(st);
    }
    if (label) {
        *label = images->labels[place->i_class];
    }
    return SW_OK;
}

/* ---- either ---- */

sw_status sw_images_add(struct sw_images *images, const char *path,
                        const struct sw_image_form *form)
{
    const bool folder = sw_is_folder(path);
    if (folder ? images->n_files > 0 : images->pictures.n > 0) {
        return SW_FAIL(SW_E_CONFIG, "%s: a %s among %s; give them to two runs", path,
                       folder ? "folder of pictures" : "file", folder ? "files" : "folders");
    }
    return folder ? add_folder(images, path, form) : add_file(images, path, form);
}

sw_status sw_images_end(struct sw_images *images)
{
    return images->pictures.n > 0 ? sw_pictures_spread(&images->pictures) : SW_OK;
}

sw_status sw_images_read(const struct sw_images *images, int64_t i,
                         const struct sw_image_form *form, float *pixels, int32_t *label)
{
    SW_ASSERT(i >= 0 && i < images->n);
    return images->n_files > 0 ? read_record(images, i, form, pixels, label)
                               : read_picture(images, i, form, pixels, label);
}
