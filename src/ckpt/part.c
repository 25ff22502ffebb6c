// SPDX-License-Identifier: Apache-2.0
// The part of a checkpoint that one rank writes: part-RANK.safetensors with its boxes, and
// part-RANK.json, the list of boxes that rank 0 turns into the manifest. Data is streamed in pieces
// of fixed size. The digest is computed while writing, so that nothing is read back. This requires
// sequential writes, and the writer of hf accepts pieces in any order.
#include "ckpt/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The names of the format, which are not those of people. */
static const char *const header_dtype[SW_DTYPE_COUNT] = {
    [SW_F32] = "F32", [SW_F64] = "F64", [SW_BF16] = "BF16", [SW_F16] = "F16", [SW_I8] = "I8",
    [SW_U8] = "U8",   [SW_I16] = "I16", [SW_U16] = "U16",   [SW_I32] = "I32", [SW_U32] = "U32",
    [SW_I64] = "I64", [SW_U64] = "U64", [SW_BOOL] = "BOOL"};

struct part {
    const struct sw_ckpt_tensor *tensors;
    int64_t n_tensors;
    int64_t *order;  /* [n_tensors] by falling element size, so that every box lies aligned */
    int64_t *offset; /* [n_tensors] of tensors[i] from the start of the data, in bytes */
    char **key;      /* [n_tensors] */
    int64_t data_bytes;
    struct sw_str header;
    int fd;
    char path[PATH_MAX];
    struct sw_digest *digest;
    int64_t written_bytes;
    struct sw_arena arena;
};

void sw_ckpt_part_name(int rank, const char *extension, char *buf, size_t cap)
{
    snprintf(buf, cap, "part-%05d.%s", rank, extension);
}

static int64_t box_bytes(const struct sw_ckpt_tensor *tensor)
{
    return sw_box_elems(tensor->shape.rank, &tensor->box) * (int64_t)sw_dtype_bytes(tensor->dtype);
}

static bool is_whole(const struct sw_ckpt_tensor *tensor)
{
    return sw_box_elems(tensor->shape.rank, &tensor->box) == sw_shape_elems(&tensor->shape);
}

static sw_status check_tensors(const struct sw_ckpt_tensor *tensors, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const struct sw_ckpt_tensor *t = &tensors[i];
        char text[128];
        if ((unsigned)t->dtype >= SW_DTYPE_COUNT || t->shape.rank < 0 ||
            t->shape.rank > SW_MAX_RANK || !sw_shape_check(&t->shape, sw_dtype_bytes(t->dtype)) ||
            !sw_box_inside(&t->shape, &t->box)) {
            return SW_FAIL(SW_E_ARG, "checkpoint: box %s of %s (%s) is not inside its tensor",
                           sw_box_format(t->shape.rank, &t->box, text, sizeof(text)), t->param,
                           t->kind);
        }
    }
    return SW_OK;
}

static sw_status lay_out(struct part *p)
{
    const size_t n = (size_t)p->n_tensors;
    p->order = sw_arena_array(&p->arena, n, sizeof(*p->order));
    p->offset = sw_arena_array(&p->arena, n, sizeof(*p->offset));
    p->key = sw_arena_array(&p->arena, n, sizeof(*p->key));
    if (!p->order || !p->offset || !p->key) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the list of a checkpoint");
    }
    int64_t n_placed = 0;
    for (size_t bytes = 8; bytes > 0; bytes /= 2) {
        for (int64_t i = 0; i < p->n_tensors; i++) {
            const struct sw_ckpt_tensor *t = &p->tensors[i];
            if (sw_dtype_bytes(t->dtype) != bytes) {
                continue;
            }
            char text[SW_MAX_RANK * 48] = "";
            if (!is_whole(t)) {
                sw_box_format(t->shape.rank, &t->box, text, sizeof(text));
            }
            p->key[i] = sw_arena_printf(&p->arena, "%s/%s%s", t->kind, t->param, text);
            if (!p->key[i]) {
                return SW_FAIL(SW_E_NOMEM, "out of host memory for the list of a checkpoint");
            }
            p->order[n_placed++] = i;
            p->offset[i] = p->data_bytes;
            p->data_bytes += box_bytes(t);
        }
    }
    return SW_OK;
}

/* u64 length, JSON padded with blanks to whole 8 bytes. */
static sw_status build_header(struct part *p)
{
    struct sw_str *h = &p->header;
    sw_str_append(h, "\0\0\0\0\0\0\0\0", 8);
    sw_str_puts(h, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i_place = 0; i_place < p->n_tensors; i_place++) {
        const int64_t i = p->order[i_place];
        const struct sw_ckpt_tensor *t = &p->tensors[i];
        sw_str_putc(h, ',');
        sw_json_write_string(p->key[i], strlen(p->key[i]), h);
        sw_str_printf(h, ":{\"dtype\":\"%s\",\"shape\":[", header_dtype[t->dtype]);
        for (int d = 0; d < t->shape.rank; d++) {
            sw_str_printf(h, "%s%lld", d ? "," : "", (long long)t->box.dims[d]);
        }
        sw_str_printf(h, "],\"data_offsets\":[%lld,%lld]}", (long long)p->offset[i],
                      (long long)(p->offset[i] + box_bytes(t)));
    }
    sw_str_putc(h, '}');
    while (h->len % 8 != 0 && !h->failed) {
        sw_str_putc(h, ' ');
    }
    if (h->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the header of %s", p->path);
    }
    const uint64_t json_bytes = h->len - 8;
    for (int i = 0; i < 8; i++) {
        h->ptr[i] = (char)(json_bytes >> (8 * i));
    }
    return SW_OK;
}

static sw_status put(struct part *p, const void *data, size_t len)
{
    SW_TRY(sw_ckpt_write(p->fd, p->path, data, len));
    sw_digest_update(p->digest, data, len);
    p->written_bytes += (int64_t)len;
    return SW_OK;
}

static sw_status stream(struct part *p, sw_ckpt_read_fn read, void *ctx, void *piece)
{
    SW_TRY(put(p, p->header.ptr, p->header.len));
    for (int64_t i_place = 0; i_place < p->n_tensors; i_place++) {
        const int64_t i = p->order[i_place];
        const struct sw_ckpt_tensor *t = &p->tensors[i];
        const size_t elem_bytes = sw_dtype_bytes(t->dtype);
        const int64_t piece_elems = (int64_t)(SW_CKPT_PIECE_BYTES / elem_bytes);
        const int64_t n_elems = sw_box_elems(t->shape.rank, &t->box);
        for (int64_t first = 0; first < n_elems; first += piece_elems) {
            const int64_t n = sw_min_i64(piece_elems, n_elems - first);
            SW_TRY(read(ctx, i, first, n, piece));
            SW_TRY(put(p, piece, (size_t)n * elem_bytes));
        }
    }
    SW_TRY(sw_ckpt_sync(p->fd, p->path));
    return SW_OK;
}

static sw_status write_data(struct part *p, sw_ckpt_read_fn read, void *ctx)
{
    p->fd = open(p->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (p->fd < 0) {
        return SW_FAIL(SW_E_IO, "cannot make %s: %s", p->path, strerror(errno));
    }
    sw_status st;
    void *piece = sw_alloc("checkpoint", SW_CKPT_PIECE_BYTES);
    if (!piece) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for writing %s", p->path);
        goto close_file;
    }
    st = stream(p, read, ctx, piece);
    sw_free(piece);
close_file:
    if (close(p->fd) != 0 && st == SW_OK) {
        st = SW_FAIL(SW_E_IO, "cannot write %s: %s", p->path, strerror(errno));
    }
    return st;
}

sw_status sw_ckpt_put_i64s(struct sw_json_doc *doc, struct sw_json *object, const char *key,
                           const int64_t *values, int n)
{
    struct sw_json *array = sw_json_put(doc, object, key, SW_JSON_ARRAY);
    for (int i = 0; i < n && array; i++) {
        if (!sw_json_put_i64(doc, array, NULL, values[i])) {
            array = NULL;
        }
    }
    SW_TRY_ALLOC(array, "the list of a checkpoint");
    return SW_OK;
}

static sw_status list_box(const struct part *p, int64_t i, struct sw_json_doc *doc,
                          struct sw_json *boxes)
{
    const struct sw_ckpt_tensor *t = &p->tensors[i];
    struct sw_json *box = sw_json_put(doc, boxes, NULL, SW_JSON_OBJECT);
    if (!box || !sw_json_put_str(doc, box, "param", t->param) ||
        !sw_json_put_str(doc, box, "kind", t->kind) ||
        !sw_json_put_str(doc, box, "dtype", sw_dtype_name(t->dtype)) ||
        !sw_json_put_str(doc, box, "key", p->key[i]) ||
        !sw_json_put_i64(doc, box, "offset", (int64_t)p->header.len + p->offset[i])) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the list of a checkpoint");
    }
    SW_TRY(sw_ckpt_put_i64s(doc, box, "shape", t->shape.dims, t->shape.rank));
    SW_TRY(sw_ckpt_put_i64s(doc, box, "start", t->box.start, t->shape.rank));
    SW_TRY(sw_ckpt_put_i64s(doc, box, "dims", t->box.dims, t->shape.rank));
    return SW_OK;
}

static sw_status build_list(const struct part *p, const char *name, struct sw_json_doc *doc)
{
    struct sw_json *root = sw_json_root(doc);
    char hex[33];
    sw_digest_hex(p->digest, hex);
    struct sw_json *boxes = NULL;
    if (!sw_json_put_str(doc, root, "file", name) ||
        !sw_json_put_i64(doc, root, "bytes", p->written_bytes) ||
        !sw_json_put_str(doc, root, "digest_name", sw_digest_name()) ||
        !sw_json_put_str(doc, root, "digest", hex) ||
        !(boxes = sw_json_put(doc, root, "boxes", SW_JSON_ARRAY))) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the list of a checkpoint");
    }
    for (int64_t i = 0; i < p->n_tensors; i++) {
        if (box_bytes(&p->tensors[i]) > 0 || is_whole(&p->tensors[i])) {
            SW_TRY(list_box(p, i, doc, boxes));
        }
    }
    return SW_OK;
}

static sw_status write_list(const struct part *p, const char *folder, int rank)
{
    char name[32], path[PATH_MAX];
    sw_ckpt_part_name(rank, "json", name, sizeof(name));
    SW_TRY(sw_ckpt_join(folder, name, path));
    sw_ckpt_part_name(rank, "safetensors", name, sizeof(name));
    struct sw_json_doc *doc;
    SW_TRY(sw_json_new(path, &doc));
    struct sw_str text = {0};
    sw_status st;
    SW_TRY_OR(close_doc, build_list(p, name, doc));
    sw_json_write(sw_json_root(doc), 0, &text);
    SW_TRY_OR(close_doc, sw_file_write_str(path, &text));
close_doc:
    sw_str_fini(&text);
    sw_json_close(doc);
    return st;
}

static sw_status write_part(struct part *p, const char *folder, int rank, sw_ckpt_read_fn read,
                            void *ctx)
{
    char name[32];
    sw_ckpt_part_name(rank, "safetensors", name, sizeof(name));
    SW_TRY(sw_ckpt_join(folder, name, p->path));
    SW_TRY(lay_out(p));
    SW_TRY(build_header(p));
    SW_TRY(sw_digest_open(&p->digest));
    SW_TRY(write_data(p, read, ctx));
    SW_TRY(write_list(p, folder, rank));
    return SW_OK;
}

sw_status sw_ckpt_write_part(const char *dir, int64_t step, uint64_t token, int rank,
                             const struct sw_ckpt_tensor *tensors, int64_t n_tensors,
                             sw_ckpt_read_fn read, void *ctx)
{
    SW_TRY(check_tensors(tensors, n_tensors));
    char folder[PATH_MAX];
    SW_TRY(sw_ckpt_unfinished(dir, step, token, folder));
    struct part *part = sw_alloc_zero("checkpoint", 1, sizeof(*part));
    SW_TRY_ALLOC(part, "a part of a checkpoint");
    part->tensors = tensors;
    part->n_tensors = n_tensors;
    sw_arena_init(&part->arena, "checkpoint");
    const sw_status st = write_part(part, folder, rank, read, ctx);
    sw_digest_close(part->digest);
    sw_str_fini(&part->header);
    sw_arena_fini(&part->arena);
    sw_free(part);
    SW_TRY(st);
    return SW_OK;
}
