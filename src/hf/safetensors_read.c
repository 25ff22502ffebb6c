// SPDX-License-Identifier: Apache-2.0
// hf/safetensors_read - one file: u64 length of the header, header (JSON), data. Every claim of the
// header is checked before anything is lent; nothing is allocated by a size that only the file claims.
//
// The order of the checks and the names of the errors are the reference reader's, so that a file is
// refused by both for the same reason.

#include "hf/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sw_safetensors {
    struct sw_arena arena;
    const char *path;
    void *map; /* NULL when the bytes are borrowed */
    size_t map_bytes;
    struct sw_json_doc *header;
    const struct sw_json *metadata;
    int64_t n;
    struct sw_safetensor *tensors;        /* in order of the data */
    const struct sw_safetensor **by_name; /* [n] */
};

/* A tensor as the header claims it. */
struct claim {
    const struct sw_json *member;
    const struct sw_json *shape;
    const struct sw_hf_dtype *dtype;
    uint64_t begin, end;
};

/* ---- header: from JSON to claims (InvalidHeaderDeserialization) ---- */

static sw_status bad_header(const struct sw_safetensors *f, const struct sw_json *member,
                            const char *what)
{
    return SW_FAIL(SW_E_FORMAT, "%s: InvalidHeaderDeserialization: %s \"%s\": %s", f->path,
                   strcmp(member->key, SW_HF_METADATA) == 0 ? "key" : "tensor", member->key, what);
}

/* An unsigned 64-bit number in plain digits. */
static bool read_u64(const struct sw_json *value, uint64_t *out)
{
    if (!value || (value->type != SW_JSON_INT && value->type != SW_JSON_FLOAT)) {
        return false;
    }
    uint64_t sum = 0;
    for (const char *c = value->raw; *c; c++) {
        if (*c < '0' || *c > '9' || __builtin_mul_overflow(sum, (uint64_t)10, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(*c - '0'), &sum)) {
            return false;
        }
    }
    *out = sum;
    return true;
}

static sw_status check_metadata(const struct sw_safetensors *f, const struct sw_json *metadata)
{
    if (metadata->type != SW_JSON_OBJECT) {
        return bad_header(f, metadata, "must be an object");
    }
    for (const struct sw_json *m = metadata->first; m; m = m->next) {
        if (m->type != SW_JSON_STRING) {
            return bad_header(f, metadata, "its values must be strings");
        }
    }
    return SW_OK;
}

static sw_status read_claim(const struct sw_safetensors *f, const struct sw_json *member,
                            struct claim *out)
{
    if (strlen(member->key) != member->key_len) {
        return bad_header(f, member, "the name holds a NUL");
    }
    if (member->type != SW_JSON_OBJECT) {
        return bad_header(f, member, "must be an object");
    }
    const struct sw_json *dtype = sw_json_get(member, "dtype");
    const struct sw_json *shape = sw_json_get(member, "shape");
    const struct sw_json *offsets = sw_json_get(member, "data_offsets");
    struct claim claim = {.member = member, .shape = shape};
    if (!dtype || dtype->type != SW_JSON_STRING ||
        !(claim.dtype = sw_hf_dtype_of_name(dtype->string))) {
        return bad_header(f, member, "dtype is missing or unknown");
    }
    if (!shape || shape->type != SW_JSON_ARRAY) {
        return bad_header(f, member, "shape must be an array");
    }
    for (const struct sw_json *dim = shape->first; dim; dim = dim->next) {
        uint64_t value = 0;
        if (!read_u64(dim, &value)) {
            return bad_header(f, member, "shape must hold unsigned integers");
        }
    }
    if (!offsets || offsets->type != SW_JSON_ARRAY || offsets->n_children != 2 ||
        !read_u64(offsets->first, &claim.begin) || !read_u64(offsets->last, &claim.end)) {
        return bad_header(f, member, "data_offsets must be two unsigned integers");
    }
    *out = claim;
    return SW_OK;
}

static int compare_claims(const void *a, const void *b)
{
    const struct claim *x = a;
    const struct claim *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    if (x->end != y->end) {
        return x->end < y->end ? -1 : 1;
    }
    return strcmp(x->member->key, y->member->key); /* the same error on every machine */
}

/* All tensors of the header, sorted by their data. */
static sw_status read_claims(struct sw_safetensors *f, struct claim **out)
{
    const struct sw_json *root = sw_json_root(f->header);
    if (root->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: InvalidHeaderDeserialization: the header is %s, not an object", f->path,
                       sw_json_type_name(root->type));
    }
    struct claim *claims = sw_arena_array(&f->arena, (size_t)root->n_children + 1, sizeof(*claims));
    SW_TRY_ALLOC(claims, f->path);
    for (const struct sw_json *m = root->first; m; m = m->next) {
        if (strcmp(m->key, SW_HF_METADATA) == 0) {
            SW_TRY(check_metadata(f, m));
            f->metadata = m;
        } else {
            SW_TRY(read_claim(f, m, &claims[f->n]));
            f->n++;
        }
    }
    qsort(claims, (size_t)f->n, sizeof(*claims), compare_claims);
    *out = claims;
    return SW_OK;
}

/* ---- from claims to tensors ---- */

static sw_status check_claim(const struct sw_safetensors *f, const struct claim *claim,
                             uint64_t expected_begin)
{
    const char *name = claim->member->key;
    if (claim->begin != expected_begin || claim->end < claim->begin) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: InvalidOffset: tensor \"%s\" has bytes %llu to %llu, expected to start "
                       "at %llu, where the one before ends",
                       f->path, name, (unsigned long long)claim->begin,
                       (unsigned long long)claim->end, (unsigned long long)expected_begin);
    }
    uint64_t bits = 1;
    bool fits = true;
    for (const struct sw_json *dim = claim->shape->first; dim; dim = dim->next) {
        uint64_t value = 0;
        read_u64(dim, &value);
        fits = fits && !__builtin_mul_overflow(bits, value, &bits);
    }
    if (!fits || __builtin_mul_overflow(bits, (uint64_t)claim->dtype->bits, &bits)) {
        return SW_FAIL(SW_E_FORMAT, "%s: ValidationOverflow: tensor \"%s\" has more than 2^64 bits",
                       f->path, name);
    }
    if (bits % 8 != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: MisalignedSlice: tensor \"%s\" of %s ends inside a byte",
                       f->path, name, claim->dtype->name);
    }
    if (claim->end - claim->begin != bits / 8) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: TensorInvalidInfo: tensor \"%s\" has %llu bytes, its shape and dtype "
                       "want %llu",
                       f->path, name, (unsigned long long)(claim->end - claim->begin),
                       (unsigned long long)(bits / 8));
    }
    return SW_OK;
}

/* False when Spillway's shapes cannot hold it. */
static bool read_shape(const struct sw_json *dims, struct sw_shape *out)
{
    if (dims->n_children > SW_MAX_RANK) {
        return false;
    }
    struct sw_shape shape = {0};
    for (const struct sw_json *dim = dims->first; dim; dim = dim->next) {
        if (dim->type != SW_JSON_INT) { /* beyond int64_t, beside a dim of zero */
            return false;
        }
        shape.dims[shape.rank++] = dim->integer;
    }
    *out = shape;
    return true;
}

/* Elements that the file does not align (headers of odd length, small dtypes in between) are copied,
 * so that readers may use them in place. */
static sw_status lend_data(struct sw_safetensors *f, struct sw_safetensor *tensor,
                           const char *bytes, size_t align)
{
    tensor->data = bytes;
    if ((uintptr_t)bytes % align == 0) {
        return SW_OK;
    }
    void *copy = sw_arena_alloc(&f->arena, tensor->bytes);
    SW_TRY_ALLOC(copy, tensor->name);
    memcpy(copy, bytes, tensor->bytes);
    tensor->data = copy;
    return SW_OK;
}

static sw_status make_tensors(struct sw_safetensors *f, const struct claim *claims,
                              const char *data, size_t data_bytes)
{
    uint64_t end = 0;
    for (int64_t i = 0; i < f->n; i++) {
        SW_TRY(check_claim(f, &claims[i], end));
        end = claims[i].end;
    }
    if (end != data_bytes) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: MetadataIncompleteBuffer: the header describes %llu bytes of data, the "
                       "file has %zu",
                       f->path, (unsigned long long)end, data_bytes);
    }

    f->tensors = sw_arena_array(&f->arena, (size_t)f->n + 1, sizeof(*f->tensors));
    f->by_name = sw_arena_array(&f->arena, (size_t)f->n + 1, sizeof(*f->by_name));
    SW_TRY_ALLOC(f->tensors && f->by_name, f->path);
    for (int64_t i = 0; i < f->n; i++) {
        const struct claim *claim = &claims[i];
        struct sw_safetensor *tensor = &f->tensors[i];
        tensor->name = claim->member->key;
        tensor->file = f->path;
        tensor->dtype_name = claim->dtype->name;
        tensor->dtype =
            read_shape(claim->shape, &tensor->shape) ? claim->dtype->dtype : SW_DTYPE_COUNT;
        if (tensor->dtype == SW_DTYPE_COUNT) {
            tensor->shape = (struct sw_shape){0};
        }
        tensor->bytes = (size_t)(claim->end - claim->begin);
        const size_t align = (size_t)(claim->dtype->bits + 7) / 8;
        SW_TRY(lend_data(f, tensor, data + claim->begin, align));
        f->by_name[i] = tensor;
    }
    qsort(f->by_name, (size_t)f->n, sizeof(*f->by_name), sw_hf_compare_names);
    return SW_OK;
}

/* ---- the whole ---- */

static sw_status read_bytes(struct sw_safetensors *f, const char *bytes, size_t len)
{
    if (len < 8) {
        return SW_FAIL(SW_E_FORMAT, "%s: HeaderTooSmall: the file has %zu bytes, a header needs 8",
                       f->path, len);
    }
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | (unsigned char)bytes[i];
    }
    if (n > SW_HF_HEADER_MAX) {
        return SW_FAIL(SW_E_FORMAT, "%s: HeaderTooLarge: %llu bytes, at most %d are allowed",
                       f->path, (unsigned long long)n, SW_HF_HEADER_MAX);
    }
    if (n > len - 8) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: InvalidHeaderLength: a header of %llu bytes in a file of %zu", f->path,
                       (unsigned long long)n, len);
    }
    const char *text = bytes + 8;
    const size_t text_len = (size_t)n;
    const size_t valid = sw_json_utf8_check(text, text_len);
    if (valid < text_len) {
        return SW_FAIL(SW_E_FORMAT, "%s: InvalidHeader: byte %zu of the header is not UTF-8",
                       f->path, valid);
    }
    const sw_status st = sw_json_parse("InvalidHeaderDeserialization: header", text, text_len,
                                       SW_JSON_STRICT, &f->header);
    if (st < 0) {
        return sw_fail_prefix(st, "%s", f->path);
    }
    struct claim *claims = NULL;
    SW_TRY(read_claims(f, &claims));
    SW_TRY(make_tensors(f, claims, text + text_len, len - 8 - text_len));
    return SW_OK;
}

static sw_status open_bytes(const char *path, const void *bytes, size_t len, bool mapped,
                            struct sw_safetensors **out)
{
    struct sw_safetensors *f = sw_alloc_zero("hf", 1, sizeof(*f));
    if (!f) {
        if (mapped) {
            munmap((void *)bytes, len);
        }
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    }
    sw_arena_init(&f->arena, "hf");
    if (mapped) {
        f->map = (void *)bytes;
        f->map_bytes = len;
    }
    f->path = sw_arena_strdup(&f->arena, path);
    const sw_status st = f->path ? read_bytes(f, bytes, len)
                                 : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    if (st < 0) {
        sw_safetensors_close(f);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = f;
    return SW_OK;
}

sw_status sw_safetensors_parse(const char *name, const void *bytes, size_t len,
                               struct sw_safetensors **out)
{
    SW_TRY(open_bytes(name, bytes, len, false, out));
    return SW_OK;
}

static sw_status map_file(const char *path, int fd, void **out_map, size_t *out_bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return SW_FAIL(SW_E_IO, "cannot read %s: it is not a regular file", path);
    }
    const size_t bytes = (size_t)info.st_size;
    void *map = NULL;
    if (bytes >= 8) { /* shorter ones have nothing to map: HeaderTooSmall */
        map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            return SW_FAIL(SW_E_IO, "cannot map %s (%zu bytes): %s", path, bytes, strerror(errno));
        }
    }
    *out_map = map;
    *out_bytes = bytes;
    return SW_OK;
}

sw_status sw_safetensors_open(const char *path, struct sw_safetensors **out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", path, strerror(errno));
    }
    void *map = NULL;
    size_t bytes = 0;
    const sw_status st = map_file(path, fd, &map, &bytes);
    close(fd); /* the mapping stays */
    SW_TRY(st);
    SW_TRY(open_bytes(path, map, bytes, map != NULL, out));
    return SW_OK;
}

void sw_safetensors_close(struct sw_safetensors *file)
{
    if (!file) {
        return;
    }
    sw_json_close(file->header);
    if (file->map) {
        munmap(file->map, file->map_bytes);
    }
    sw_arena_fini(&file->arena);
    sw_free(file);
}

int64_t sw_safetensors_count(const struct sw_safetensors *file)
{
    return file->n;
}

const struct sw_safetensor *sw_safetensors_at(const struct sw_safetensors *file, int64_t i)
{
    return &file->tensors[i];
}

const struct sw_safetensor *sw_safetensors_find(const struct sw_safetensors *file, const char *name)
{
    return sw_hf_find_by_name(file->by_name, file->n, name);
}

const char *sw_safetensors_metadata(const struct sw_safetensors *file, const char *key)
{
    const struct sw_json *value = sw_json_get(file->metadata, key);
    return value ? value->string : NULL;
}
