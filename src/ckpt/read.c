// SPDX-License-Identifier: Apache-2.0
// Reading a checkpoint: any box of a tensor out of whatever boxes it was written as. Rows go
// through a window over the file, so that thin boxes (a few columns of a matrix) cost few reads.
#include "ckpt/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW_BYTES = 1 << 18 };

/* ---- open and close ---- */

void sw_ckpt_close(struct sw_ckpt *ckpt)
{
    if (!ckpt) {
        return;
    }
    for (int64_t i = 0; i < ckpt->manifest.n_files && ckpt->fds; i++) {
        if (ckpt->fds[i] >= 0) {
            close(ckpt->fds[i]);
        }
    }
    if (ckpt->folder >= 0) {
        close(ckpt->folder);
    }
    sw_free(ckpt->fds);
    sw_free(ckpt->window.mem);
    sw_free(ckpt->path);
    sw_ckpt_manifest_fini(&ckpt->manifest);
    sw_free(ckpt);
}

/* Whether the path still leads to the folder that is open. */
static bool is_there(const struct sw_ckpt *ckpt, const char *path)
{
    struct stat open_one, named;
    return fstat(ckpt->folder, &open_one) == 0 && stat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* A job may save to the folder meanwhile: the manifest is read again if its name went to another
 * one. */
static sw_status read_manifest(struct sw_ckpt *ckpt, const char *path)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        ckpt->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const sw_status st = sw_ckpt_manifest_read(path, &ckpt->manifest);
        if (st < 0 || (ckpt->folder >= 0 && is_there(ckpt, path))) {
            return st;
        }
        if (ckpt->folder >= 0) {
            close(ckpt->folder);
        }
        ckpt->folder = -1;
        sw_ckpt_manifest_fini(&ckpt->manifest);
    }
    return SW_FAIL(SW_E_IO, "%s was replaced while it was read", path);
}

static sw_status fill(struct sw_ckpt *ckpt, const char *path)
{
    ckpt->path = sw_strdup("checkpoint", path);
    ckpt->window.mem = sw_alloc("checkpoint", WINDOW_BYTES);
    SW_TRY(read_manifest(ckpt, path));
    ckpt->fds = sw_alloc_zero("checkpoint", (size_t)ckpt->manifest.n_files, sizeof(int));
    for (int64_t i = 0; i < ckpt->manifest.n_files && ckpt->fds; i++) {
        ckpt->fds[i] = -1;
    }
    if (!ckpt->path || !ckpt->window.mem || !ckpt->fds) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    }
    return SW_OK;
}

static sw_status open_folder(const char *path, struct sw_ckpt **out)
{
    struct sw_ckpt *ckpt = sw_alloc_zero("checkpoint", 1, sizeof(*ckpt));
    SW_TRY_ALLOC(ckpt, "a checkpoint");
    ckpt->folder = -1;
    const sw_status st = fill(ckpt, path);
    if (st < 0) {
        sw_ckpt_close(ckpt);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = ckpt;
    return SW_OK;
}

static sw_status choose(const char *dir, bool want_best, const struct sw_ckpt_list *list,
                        struct sw_ckpt **out)
{
    for (int64_t i = 0; i < list->n_items; i++) {
        if (!list->items[i].complete) {
            sw_log(SW_LOG_WARN, "%s is damaged: %s", list->items[i].path, list->items[i].problem);
        }
    }
    const struct sw_ckpt_summary *item = list->n_items ? &list->items[0] : NULL;
    const struct sw_ckpt_summary *damaged = sw_ckpt_newest_damaged(list);
    if (want_best) {
        item = sw_ckpt_best(list);
    } else if (damaged) {
        return item->complete
                   ? SW_FAIL(SW_E_FORMAT, "the checkpoint %s is damaged: %s; the one before is %s",
                             damaged->path, damaged->problem, item->path)
                   : SW_FAIL(SW_E_FORMAT, "the checkpoint %s is damaged: %s; there is no other",
                             damaged->path, damaged->problem);
    }
    if (!item || !item->complete) {
        return SW_PENDING;
    }
    if (item->problem) { /* going back to an older one would lose work without a word */
        return SW_FAIL(SW_E_UNSUP, "the newest checkpoint in %s: %s", dir, item->problem);
    }
    SW_TRY(open_folder(item->path, out));
    return SW_OK;
}

static sw_status open_newest(const char *dir, bool want_best, struct sw_ckpt **out)
{
    enum { TRIES = 10 };
    sw_status st = SW_OK;
    for (int i = 0; i < TRIES; i++) {
        struct sw_ckpt_list list;
        SW_TRY(sw_ckpt_list(dir, &list));
        st = choose(dir, want_best, &list, out);
        /* A job that saves to the folder may have deleted it in between: then there is a newer
         * one. */
        const bool gone = st < 0 && list.n_items > 0 && !sw_ckpt_exists(list.items[0].path);
        sw_ckpt_list_fini(&list);
        if (!gone) {
            break;
        }
    }
    return st < 0 ? sw_frame_at(__FILE__, __LINE__, st) : st;
}

/* The last name in path, without slashes at the end, and what is before it. */
static sw_status split_path(const char *path, char *dir, char *name)
{
    size_t len = strlen(path);
    if (len == 0 || len >= PATH_MAX) {
        return SW_FAIL(SW_E_ARG, "\"%s\" is not a name of a checkpoint", path);
    }
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    size_t start = len;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    memcpy(name, path + start, len - start);
    name[len - start] = '\0';
    const size_t end = start > 1 ? start - 1 : start; /* without the slash, but for that of "/" */
    memcpy(dir, start ? path : ".", start ? end : 1);
    dir[start ? end : 1] = '\0';
    return SW_OK;
}

/* Meaning of a path: a checkpoint, or the newest or best one of the folder `dir`. */
enum meaning { MEANS_ITSELF, MEANS_NEWEST, MEANS_BEST };

static sw_status understand(const char *path, char *dir, enum meaning *out)
{
    char name[PATH_MAX], manifest[PATH_MAX];
    int64_t step;
    SW_TRY(split_path(path, dir, name));
    SW_TRY(sw_ckpt_join(path, CKPT_MANIFEST, manifest));
    const bool best = strcmp(name, "best") == 0;
    if (sw_ckpt_parse_name(name, "", &step) || sw_ckpt_exists(manifest)) {
        *out = MEANS_ITSELF;
    } else if (!sw_is_folder(path) && (strcmp(name, "latest") == 0 || best)) {
        *out = best ? MEANS_BEST : MEANS_NEWEST;
    } else {
        snprintf(dir, PATH_MAX, "%s", path);
        *out = MEANS_NEWEST;
    }
    return SW_OK;
}

sw_status sw_ckpt_open(const char *path, struct sw_ckpt **out)
{
    char dir[PATH_MAX];
    enum meaning meaning;
    SW_TRY(understand(path, dir, &meaning));
    const sw_status st = meaning == MEANS_ITSELF ? open_folder(path, out)
                                                 : open_newest(dir, meaning == MEANS_BEST, out);
    return st < 0 ? sw_frame_at(__FILE__, __LINE__, st) : st;
}

sw_status sw_ckpt_open_named(const char *path, const char *name, struct sw_ckpt **out)
{
    char dir[PATH_MAX], whole[PATH_MAX];
    enum meaning meaning;
    SW_TRY(understand(path, dir, &meaning));
    SW_TRY(sw_ckpt_join(dir, name, whole));
    SW_TRY(open_folder(meaning == MEANS_ITSELF ? path : whole, out));
    return SW_OK;
}

/* ---- what it holds ---- */

const char *sw_ckpt_path(const struct sw_ckpt *ckpt)
{
    return ckpt->path;
}

const char *sw_ckpt_name(const struct sw_ckpt *ckpt)
{
    const char *slash = strrchr(ckpt->path, '/');
    return slash ? slash + 1 : ckpt->path;
}

const char *sw_ckpt_digest_name(const struct sw_ckpt *ckpt)
{
    return ckpt->manifest.digest_name;
}

struct sw_ckpt_identity sw_ckpt_identity(const struct sw_ckpt *ckpt)
{
    const struct ckpt_manifest *m = &ckpt->manifest;
    return (struct sw_ckpt_identity){m->serial, m->meta.step, m->meta.samples, m->hash};
}

const struct sw_ckpt_meta *sw_ckpt_meta(const struct sw_ckpt *ckpt)
{
    return &ckpt->manifest.meta;
}

int64_t sw_ckpt_n_tensors(const struct sw_ckpt *ckpt)
{
    return ckpt->manifest.n_tensors;
}

const struct sw_ckpt_entry *sw_ckpt_entry(const struct sw_ckpt *ckpt, int64_t i_tensor)
{
    SW_ASSERT(i_tensor >= 0 && i_tensor < ckpt->manifest.n_tensors);
    return &ckpt->manifest.tensors[i_tensor].entry;
}

int64_t sw_ckpt_find(const struct sw_ckpt *ckpt, const char *param, const char *kind)
{
    return sw_ckpt_manifest_find(&ckpt->manifest, param, kind);
}

/* ---- bytes ---- */

sw_status sw_ckpt_fail_file(const struct sw_ckpt *ckpt, int64_t i_file, const char *why)
{
    return SW_FAIL(SW_E_IO, "cannot read %s/%s: %s", ckpt->path, ckpt->manifest.files[i_file].name,
                   why);
}

sw_status sw_ckpt_open_file(const struct sw_ckpt *ckpt, int64_t i_file, int *out_fd)
{
    const int fd =
        openat(ckpt->folder, ckpt->manifest.files[i_file].name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return sw_ckpt_fail_file(ckpt, i_file, strerror(errno));
    }
    *out_fd = fd;
    return SW_OK;
}

/* As many bytes as there are from `start`, at most `len`. */
static sw_status pread_some(struct sw_ckpt *ckpt, int64_t i_file, int64_t start, void *dst,
                            int64_t len, int64_t *out_n)
{
    if (ckpt->fds[i_file] < 0) {
        SW_TRY(sw_ckpt_open_file(ckpt, i_file, &ckpt->fds[i_file]));
    }
    int64_t done = 0;
    while (done < len) {
        const ssize_t n = pread(ckpt->fds[i_file], (char *)dst + done, (size_t)(len - done),
                                (off_t)(start + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return sw_ckpt_fail_file(ckpt, i_file, strerror(errno));
        }
        if (n == 0) {
            break;
        }
        done += n;
    }
    *out_n = done;
    return SW_OK;
}

/* Lends up to `len` bytes from `start` out of the window, which moves there when it must. At least
 * one whole element of `elem_bytes`. */
static sw_status lend(struct sw_ckpt *ckpt, int64_t i_file, int64_t start, int64_t len,
                      int64_t elem_bytes, const void **out, int64_t *out_len)
{
    int64_t inside = ckpt->window.start + ckpt->window.len - start;
    if (ckpt->window.i_file != i_file || start < ckpt->window.start || inside < elem_bytes) {
        ckpt->window.len = 0;
        SW_TRY(pread_some(ckpt, i_file, start, ckpt->window.mem, WINDOW_BYTES, &inside));
        ckpt->window.i_file = i_file;
        ckpt->window.start = start;
        ckpt->window.len = inside;
        if (inside < elem_bytes) {
            return sw_ckpt_fail_file(ckpt, i_file, "it became shorter");
        }
    }
    *out = ckpt->window.mem + (start - ckpt->window.start);
    *out_len = sw_min_i64(len, inside / elem_bytes * elem_bytes);
    return SW_OK;
}

/* n elements that lie side by side in a file. */
static sw_status read_run(struct sw_ckpt *ckpt, int64_t i_file, int64_t start, int64_t n,
                          enum sw_dtype src_dtype, enum sw_dtype dst_dtype, void *dst)
{
    const int64_t src_bytes = (int64_t)sw_dtype_bytes(src_dtype);
    const int64_t dst_bytes = (int64_t)sw_dtype_bytes(dst_dtype);
    for (int64_t done = 0; done < n;) {
        const void *src;
        int64_t len;
        SW_TRY(lend(ckpt, i_file, start + done * src_bytes, (n - done) * src_bytes, src_bytes, &src,
                    &len));
        char *to = (char *)dst + done * dst_bytes;
        if (src_dtype == dst_dtype) {
            memcpy(to, src, (size_t)len);
        } else {
            sw_convert(dst_dtype, to, src_dtype, src, len / src_bytes);
        }
        done += len / src_bytes;
    }
    return SW_OK;
}

/* ---- boxes ---- */

/* Offset in elements of `index` in a row-major box. */
static int64_t place(int rank, const struct sw_box *box, const int64_t *index)
{
    int64_t offset = 0;
    for (int d = 0; d < rank; d++) {
        offset = offset * box->dims[d] + index[d] - box->start[d];
    }
    return offset;
}

/* The dims from this one on that are whole in all three boxes make one run with the one before. */
static int first_dim_of_run(int rank, const struct sw_box *common, const struct sw_box *stored,
                            const struct sw_box *wanted)
{
    int d = rank - 1;
    while (d > 0 && common->dims[d] == stored->dims[d] && common->dims[d] == wanted->dims[d]) {
        d--;
    }
    return d;
}

static sw_status copy_common(struct sw_ckpt *ckpt, const struct sw_ckpt_entry *entry,
                             const struct ckpt_piece *piece, const struct sw_box *wanted,
                             const struct sw_box *common, enum sw_dtype dtype, void *dst)
{
    const int rank = entry->shape.rank;
    const int64_t src_bytes = (int64_t)sw_dtype_bytes(entry->dtype);
    const int64_t dst_bytes = (int64_t)sw_dtype_bytes(dtype);
    const int run_dim = first_dim_of_run(rank, common, &piece->box, wanted);
    int64_t run = 1, n_runs = 1, index[SW_MAX_RANK];
    for (int d = 0; d < rank; d++) {
        *(d >= run_dim ? &run : &n_runs) *= common->dims[d];
        index[d] = common->start[d];
    }
    for (int64_t i_run = 0; i_run < n_runs; i_run++) {
        SW_TRY(read_run(ckpt, piece->i_file,
                        piece->offset + place(rank, &piece->box, index) * src_bytes, run,
                        entry->dtype, dtype, (char *)dst + place(rank, wanted, index) * dst_bytes));
        for (int d = run_dim - 1; d >= 0; d--) {
            if (++index[d] < common->start[d] + common->dims[d]) {
                break;
            }
            index[d] = common->start[d];
        }
    }
    return SW_OK;
}

sw_status sw_ckpt_read(struct sw_ckpt *ckpt, int64_t i_tensor, const struct sw_box *box,
                       enum sw_dtype dtype, void *dst)
{
    if (i_tensor < 0 || i_tensor >= ckpt->manifest.n_tensors) {
        return SW_FAIL(SW_E_ARG, "%s has no tensor %lld", ckpt->path, (long long)i_tensor);
    }
    const struct ckpt_stored *tensor = &ckpt->manifest.tensors[i_tensor];
    const struct sw_ckpt_entry *entry = &tensor->entry;
    const struct sw_box wanted = box ? *box : sw_box_whole(&entry->shape);
    if (!sw_box_inside(&entry->shape, &wanted)) {
        char text[256];
        return SW_FAIL(SW_E_ARG, "%s: box %s is not inside %s (%s)", ckpt->path,
                       sw_box_format(entry->shape.rank, &wanted, text, sizeof(text)), entry->param,
                       entry->kind);
    }
    if (dtype != entry->dtype && (!sw_dtype_is_float(dtype) || !sw_dtype_is_float(entry->dtype))) {
        return SW_FAIL(SW_E_ARG, "%s: %s (%s) is %s and cannot be read as %s", ckpt->path,
                       entry->param, entry->kind, sw_dtype_name(entry->dtype),
                       sw_dtype_name(dtype));
    }
    for (int64_t i = 0; i < tensor->n_pieces; i++) {
        const struct ckpt_piece *piece = &tensor->pieces[i];
        struct sw_box common;
        if (entry->shape.rank > 0 && piece->box.start[0] >= wanted.start[0] + wanted.dims[0]) {
            break; /* they are sorted by it */
        }
        if (sw_box_common(entry->shape.rank, &piece->box, &wanted, &common)) {
            SW_TRY(copy_common(ckpt, entry, piece, &wanted, &common, dtype, dst));
        }
    }
    return SW_OK;
}

sw_status sw_ckpt_read_flat(struct sw_ckpt *ckpt, int64_t i_tensor, int64_t first, int64_t n,
                            enum sw_dtype dtype, void *dst)
{
    if (i_tensor < 0 || i_tensor >= ckpt->manifest.n_tensors) {
        return SW_FAIL(SW_E_ARG, "%s has no tensor %lld", ckpt->path, (long long)i_tensor);
    }
    const struct sw_ckpt_entry *entry = &ckpt->manifest.tensors[i_tensor].entry;
    const int64_t n_all = sw_shape_elems(&entry->shape);
    if (first < 0 || n < 0 || first > n_all || n > n_all - first) {
        return SW_FAIL(SW_E_ARG, "%s: elements %lld to %lld are not inside %s (%s)", ckpt->path,
                       (long long)first, (long long)(first + n), entry->param, entry->kind);
    }
    struct sw_box boxes[SW_BOX_MAX_OF_RANGE];
    const int n_boxes = sw_box_of_range(&entry->shape, first, n, boxes);
    char *to = dst;
    for (int i = 0; i < n_boxes; i++) {
        SW_TRY(sw_ckpt_read(ckpt, i_tensor, &boxes[i], dtype, to));
        to += sw_box_elems(entry->shape.rank, &boxes[i]) * (int64_t)sw_dtype_bytes(dtype);
    }
    return SW_OK;
}
