// SPDX-License-Identifier: Apache-2.0
// Folders of pictures. The order is torchvision's, independent of the file system: classes by name,
// within them folders by path and files by name.
#include "data/picture_folder.h"

#include "data/data.h"
#include "json/json.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_DEPTH = 32 };

void sw_pictures_fini(struct sw_pictures *pictures)
{
    sw_arena_fini(&pictures->texts);
    sw_free(pictures->classes);
    sw_free(pictures->places);
    *pictures = (struct sw_pictures){0};
}

/* ---- names ---- */

static bool ends_in(const char *name, const char *const *endings)
{
    const size_t len = strlen(name);
    bool does = false;
    for (; *endings; endings++) {
        const size_t n = strlen(*endings);
        does = does || (len > n && strcasecmp(name + len - n, *endings) == 0);
    }
    return does;
}

static bool is_picture(const char *name)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", NULL};
    return ends_in(name, endings);
}

/* Whether torchvision reads this extension and this program does not. */
static bool is_other_picture(const char *name)
{
    static const char *const endings[] = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", NULL};
    return ends_in(name, endings);
}

/* ---- going through folders ---- */

struct scan {
    struct sw_pictures *pictures;
    int32_t i_class;
    int64_t n_left_out;
    struct sw_str first_left_out;
    bool quiet; /* do not report skipped files: an earlier scan has done so */
};

static sw_status fail_memory(void)
{
    return SW_FAIL(SW_E_NOMEM, "out of host memory for the list of pictures");
}

static void leave_out(struct scan *s, const char *path)
{
    if (s->n_left_out++ == 0) {
        sw_str_puts(&s->first_left_out, path);
    }
}

static sw_status add_place(struct scan *s, const char *path)
{
    struct sw_pictures *p = s->pictures;
    if (p->n == p->cap) {
        const int64_t cap = p->cap ? 2 * p->cap : 256;
        struct sw_picture_place *places =
            sw_realloc("pictures", p->places, (size_t)cap * sizeof *places);
        if (!places) {
            return fail_memory();
        }
        p->places = places;
        p->cap = cap;
    }
    struct sw_picture_place *place = &p->places[p->n];
    *place = (struct sw_picture_place){sw_arena_strdup(&p->texts, path), s->i_class, 0, 0};
    p->n += place->path != NULL;
    return place->path ? SW_OK : fail_memory();
}

/* Links are followed. */
static bool is_folder_entry(const struct dirent *entry, const char *path)
{
    return entry->d_type == DT_DIR ||
           ((entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) && sw_is_folder(path));
}

/* Called for each entry of a folder that is not hidden, in any order. `path` is that of the entry
 * during the call. */
typedef sw_status (*entry_fn)(struct scan *s, struct sw_str *path, const char *name, bool folder,
                              int depth);

static sw_status each_entry(struct scan *s, struct sw_str *path, entry_fn fn, int depth)
{
    sw_status st = SW_OK;
    const size_t len = path->len;
    DIR *dir = opendir(path->ptr);
    if (!dir) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", path->ptr, strerror(errno));
    }
    for (struct dirent *entry = readdir(dir); entry && st >= 0; entry = readdir(dir)) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
            continue;
        }
        sw_str_printf(path, "/%s", name);
        if (path->failed) {
            st = fail_memory();
        } else if (name[0] == '.') {
            leave_out(s, path->ptr);
        } else {
            st = fn(s, path, name, is_folder_entry(entry, path->ptr), depth);
        }
        path->len = len;
        path->ptr[len] = '\0';
    }
    closedir(dir);
    return st;
}

static sw_status take_entry(struct scan *s, struct sw_str *path, const char *name, bool folder,
                            int depth)
{
    if (folder) {
        return depth < MOST_DEPTH
                   ? each_entry(s, path, take_entry, depth + 1)
                   : SW_FAIL(SW_E_FORMAT, "%s: more than %d folders within each other", path->ptr,
                             MOST_DEPTH);
    }
    if (is_picture(name)) {
        return add_place(s, path->ptr);
    }
    if (is_other_picture(name)) {
        return SW_FAIL(SW_E_UNSUP, "%s: pictures are read of .png, .jpg and .jpeg files only",
                       path->ptr);
    }
    leave_out(s, path->ptr);
    return SW_OK;
}

static sw_status take_class(struct scan *s, struct sw_str *path, const char *name, bool folder,
                            int depth)
{
    struct sw_pictures *p = s->pictures;
    (void)depth;
    if (!folder) {
        leave_out(s, path->ptr);
        return SW_OK;
    }
    if (sw_json_utf8_check(name, strlen(name)) != strlen(name)) {
        return SW_FAIL(SW_E_FORMAT, "%s: the name of a class is not UTF-8", path->ptr);
    }
    const char **classes =
        sw_realloc("pictures", p->classes, (size_t)(p->n_classes + 1) * sizeof *classes);
    if (!classes) {
        return fail_memory();
    }
    p->classes = classes;
    classes[p->n_classes] = sw_arena_strdup(&p->texts, name);
    return classes[p->n_classes++] ? SW_OK : fail_memory();
}

/* ---- order ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_place(const void *a, const void *b)
{
    const struct sw_picture_place *x = a, *y = b;
    if (x->i_class != y->i_class) {
        return x->i_class < y->i_class ? -1 : 1;
    }
    const char *name_x = strrchr(x->path, '/'), *name_y = strrchr(y->path, '/');
    const size_t len_x = (size_t)(name_x - x->path), len_y = (size_t)(name_y - y->path);
    const int folders = memcmp(x->path, y->path, len_x < len_y ? len_x : len_y);
    return folders ? folders : len_x != len_y ? (len_x < len_y ? -1 : 1) : strcmp(name_x, name_y);
}

static int by_share(const void *a, const void *b)
{
    const struct sw_picture_place *x = a, *y = b;
    const int64_t left = (2 * x->rank + 1) * y->of_rank, right = (2 * y->rank + 1) * x->of_rank;
    return left != right ? (left < right ? -1 : 1)
                         : (x->i_class > y->i_class) - (x->i_class < y->i_class);
}

sw_status sw_pictures_spread(struct sw_pictures *pictures)
{
    struct sw_picture_place *places = pictures->places;
    int64_t *counts = sw_alloc_zero("pictures", (size_t)pictures->n_classes, sizeof *counts);
    if (!counts) {
        return fail_memory();
    }
    for (int64_t i = 0; i < pictures->n; i++) {
        places[i].rank = counts[places[i].i_class]++;
    }
    for (int64_t i = 0; i < pictures->n; i++) {
        places[i].of_rank = counts[places[i].i_class];
    }
    sw_free(counts);
    if (pictures->n > 0) {
        qsort(places, (size_t)pictures->n, sizeof *places, by_share);
    }
    return SW_OK;
}

/* ---- one folder ---- */

static sw_status read_class(struct scan *s, const char *folder, int32_t i_class)
{
    struct sw_str path = {0};
    const int64_t before = s->pictures->n;
    s->i_class = i_class;
    sw_str_printf(&path, "%s/%s", folder, s->pictures->classes[i_class]);
    sw_status st = path.failed ? fail_memory() : each_entry(s, &path, take_entry, 1);
    if (st >= 0 && s->pictures->n == before) {
        st = SW_FAIL(SW_E_FORMAT, "%s: no picture of this class (.png, .jpg, .jpeg)", path.ptr);
    }
    sw_str_fini(&path);
    return st;
}

static sw_status read_classes(struct scan *s, struct sw_str *path)
{
    struct sw_pictures *p = s->pictures;
    SW_TRY(each_entry(s, path, take_class, 0));
    if (p->n_classes == 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: no folder in it; pictures lie in one for each class",
                       path->ptr);
    }
    qsort(p->classes, (size_t)p->n_classes, sizeof *p->classes, by_text);
    return SW_OK;
}

static sw_status read_folder(struct scan *s, struct sw_str *path)
{
    struct sw_pictures *p = s->pictures;
    const int64_t before = p->n;
    SW_TRY(read_classes(s, path));
    for (int32_t i = 0; i < p->n_classes; i++) {
        SW_TRY(read_class(s, path->ptr, i));
    }
    qsort(p->places + before, (size_t)(p->n - before), sizeof *p->places, by_place);
    if (s->n_left_out > 0 && !s->quiet) {
        sw_log(SW_LOG_WARN,
               "%s: left out, being hidden or no .png, .jpg or .jpeg: %lld in all, first %s",
               path->ptr, (long long)s->n_left_out, sw_str_text(&s->first_left_out));
    }
    return SW_OK;
}

sw_status sw_pictures_same_classes(const struct sw_pictures *a, const struct sw_pictures *b)
{
    int32_t i = 0;
    while (i < a->n_classes && i < b->n_classes && strcmp(a->classes[i], b->classes[i]) == 0) {
        i++;
    }
    if (i == a->n_classes && i == b->n_classes) {
        return SW_OK;
    }
    const bool of_a =
        i == b->n_classes || (i < a->n_classes && strcmp(a->classes[i], b->classes[i]) < 0);
    return SW_FAIL(SW_E_FORMAT, "%s: no folder of the class \"%s\", which %s has",
                   of_a ? b->folder : a->folder, (of_a ? a : b)->classes[i],
                   of_a ? a->folder : b->folder);
}

/* A second folder keeps separate classes until they are known to be the same. */
static sw_status add_folder(struct scan *s, struct sw_str *path)
{
    struct sw_pictures *p = s->pictures, first = *p;
    p->folder = sw_arena_strdup(&p->texts, path->ptr);
    p->classes = NULL;
    p->n_classes = 0;
    sw_status st = p->folder ? read_folder(s, path) : fail_memory();
    if (first.classes) {
        st = st < 0 ? st : sw_pictures_same_classes(&first, p);
        sw_free(p->classes);
        p->classes = first.classes;
        p->n_classes = first.n_classes;
        p->folder = first.folder;
    }
    return st;
}

typedef sw_status (*folder_fn)(struct scan *s, struct sw_str *path);

static sw_status read_with(folder_fn fn, struct sw_pictures *pictures, const char *folder,
                           bool quiet)
{
    struct scan s = {.pictures = pictures, .quiet = quiet};
    struct sw_str path = {0};
    if (!pictures->texts.tag) {
        sw_arena_init(&pictures->texts, "pictures");
    }
    sw_str_puts(&path, folder);
    while (path.len > 1 && path.ptr[path.len - 1] == '/') {
        path.ptr[--path.len] = '\0';
    }
    const sw_status st = path.failed ? fail_memory() : fn(&s, &path);
    sw_str_fini(&s.first_left_out);
    sw_str_fini(&path);
    return st;
}

sw_status sw_pictures_add(struct sw_pictures *pictures, const char *folder)
{
    return read_with(add_folder, pictures, folder, false);
}

sw_status sw_pictures_read_classes(struct sw_pictures *pictures, const char *folder)
{
    return read_with(read_classes, pictures, folder, true);
}

/* ---- for other modules ---- */

sw_status sw_data_each_picture(const char *folder,
                               sw_status (*fn)(void *ctx, const char *path, const char *class_name),
                               void *ctx)
{
    struct sw_pictures pictures = {0};
    sw_status st = read_with(add_folder, &pictures, folder, true);
    for (int64_t i = 0; i < pictures.n && st >= 0; i++) {
        const struct sw_picture_place *place = &pictures.places[i];
        sw_work_at("checking the pictures", i, pictures.n);
        st = fn(ctx, place->path, pictures.classes[place->i_class]);
    }
    sw_work_end();
    sw_pictures_fini(&pictures);
    return st;
}
