// SPDX-License-Identifier: Apache-2.0
// Images. Labels are looked at when a file is opened: a wrong one should stop a run before it
// starts.
#include "data/images.h"

#include <string.h>
#include <unistd.h>

enum { PIXELS = SW_IMAGE_SIDE * SW_IMAGE_SIDE, BYTES = SW_IMAGE_CHANNELS * PIXELS };
enum { BLOCK = 64 }; /* records that are looked at together */

void sw_images_fini(struct sw_images *images)
{
    for (int i = 0; i < images->n_files; i++) {
        sw_free(images->files[i].path);
        if (images->files[i].fd >= 0) {
            close(images->files[i].fd);
        }
    }
    sw_free(images->files);
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

/* By the size: CIFAR-10's records, else CIFAR-100's; where both fit the number of classes says. */
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
            "cut short, or of another format, and images are read of no other",
            file->path, (long long)size, 1 + BYTES, 2 + BYTES);
    }
    file->labels = one && (!two || n_labels <= 10) ? 1 : 2;
    file->n = size / (file->labels + BYTES);
    return SW_OK;
}

sw_status sw_images_add(struct sw_images *images, const char *path, int64_t n_labels)
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
    SW_TRY(count_records(file, bytes, n_labels));
    SW_TRY(check_labels(file, n_labels));
    images->n += file->n;
    return SW_OK;
}

sw_status sw_images_read(const struct sw_images *images, int64_t i, int64_t n_labels,
                         const struct sw_pixel_scale *scale, float *pixels, int32_t *label)
{
    unsigned char record[2 + BYTES];
    const struct sw_image_file *file = images->files;
    SW_ASSERT(i >= 0 && i < images->n);
    while (i >= file->first + file->n) {
        file++;
    }
    const int64_t size = file->labels + BYTES, at = i - file->first;
    SW_TRY(sw_file_read_at(file->fd, file->path, record, (size_t)size, at * size));
    const int found = label_of(file, record, n_labels);
    SW_TRY(check_label(file, at, found, n_labels)); /* the file may have changed */
    for (int k = 0; k < BYTES && pixels; k++) {
        const int c = k / PIXELS;
        pixels[k] = (float)((record[file->labels + k] / 255.0 - scale->mean[c]) / scale->std[c]);
    }
    if (label) {
        *label = found;
    }
    return SW_OK;
}
