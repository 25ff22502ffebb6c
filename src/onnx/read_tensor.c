// SPDX-License-Identifier: Apache-2.0
// Tensors of a file and their bytes: in the message, in fields of numbers, or in files beside it.
// Every length is checked against the shape before any element is looked at.
#include "onnx/reading.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/file.h"

/* ---- files ---- */

/* Opens a file below a folder. No part of its path may be a link, which could lead outside. */
static sw_status open_below(const char *folder, const char *name, int *out)
{
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *rest = name;
    while (at >= 0) {
        char part[256];
        const size_t len = strcspn(rest, "/");
        const bool last = rest[len] == '\0';
        if (len >= sizeof part) {
            close(at);
            return SW_FAIL(SW_E_FORMAT,
                           "external data: a part of the path has %zu bytes, wanted "
                           "at most 255",
                           len);
        }
        memcpy(part, rest, len);
        part[len] = '\0';
        const int next = openat(at, part,
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC |
                                    (last ? 0 : O_DIRECTORY));
        const int error = errno;
        close(at);
        errno = error;
        at = next;
        if (last || at < 0) {
            break;
        }
        rest += len + 1;
    }
    if (at < 0) {
        char words[256];
        const bool link = errno == ELOOP || errno == EMLINK || errno == ENOTDIR;
        return SW_FAIL(link ? SW_E_FORMAT : SW_E_IO, "external data %s: %s",
                       sw_plain_words(name, words, sizeof words),
                       link ? "it is a link, or below one; wanted a file in the folder"
                            : strerror(errno));
    }
    *out = at;
    return SW_OK;
}

/* No absolute path, no "..", no empty part. */
static sw_status check_location(const char *name)
{
    for (const char *at = name;; at++) {
        const size_t len = strcspn(at, "/");
        if (len == 0 || (len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.')) {
            char words[256];
            return SW_FAIL(SW_E_FORMAT,
                           "external data are in \"%s\", wanted the name of a file in the folder",
                           sw_plain_words(name, words, sizeof words));
        }
        at += len;
        if (!*at) {
            return SW_OK;
        }
    }
}

sw_status sw_onnx_map_file(struct sw_onnx_graph *g, const char *name, int32_t *out)
{
    struct sw_onnx_graph_own *own = g->own;
    struct stat info;
    size_t len = 0;
    int fd;
    if (g->n_files > 0 && strcmp(g->files[0].name, name) == 0) {
        return SW_FAIL(SW_E_FORMAT, "its external data are in the file itself");
    }
    for (int32_t i = 1; i < g->n_files; i++) {
        if (strcmp(g->files[i].name, name) == 0) {
            *out = i;
            return SW_OK;
        }
    }
    SW_TRY(sw_onnx_grow(&g->files, g->n_files, &own->cap_files, sizeof *g->files));
    if (g->n_files == 0) {
        SW_TRY(sw_file_open(g->path, &fd, &len));
    } else {
        SW_TRY(check_location(name));
        SW_TRY(open_below(own->folder, name, &fd));
        if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
            close(fd);
            return SW_FAIL(SW_E_IO, "external data %s: it is not a regular file", name);
        }
        len = (size_t)info.st_size;
    }
    void *map = len > 0 ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    const int error = errno;
    close(fd);
    if (map == MAP_FAILED) {
        return SW_FAIL(SW_E_IO, "cannot map %s (%zu bytes): %s", name, len, strerror(error));
    }
    struct sw_onnx_graph_file *file = &g->files[g->n_files];
    *file = (struct sw_onnx_graph_file){sw_arena_strdup(&own->arena, name), map, len};
    *out = g->n_files++;
    SW_TRY_ALLOC(file->name, "the names of an ONNX file");
    return SW_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct sw_onnx_range *x = a, *y = b;
    if (x->i_file != y->i_file) {
        return x->i_file < y->i_file ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

sw_status sw_onnx_check_ranges(struct sw_onnx_graph *g)
{
    struct sw_onnx_range *r = g->own->ranges;
    if (g->own->n_ranges > 1) {
        qsort(r, (size_t)g->own->n_ranges, sizeof *r, by_place);
    }
    for (int32_t i = 1; i < g->own->n_ranges; i++) {
        if (r[i].i_file == r[i - 1].i_file && r[i].offset < r[i - 1].offset + r[i - 1].bytes) {
            char a[200], b[200];
            return SW_FAIL(SW_E_FORMAT,
                           "initializer %s: its external data begin at byte %llu, within those of "
                           "initializer %s",
                           sw_plain_words(r[i].name, a, sizeof a), (unsigned long long)r[i].offset,
                           sw_plain_words(r[i - 1].name, b, sizeof b));
        }
    }
    return SW_OK;
}

/* ---- fields of a tensor ---- */

struct reading {
    struct sw_onnx_data data;
    const char *name, *location;
    int64_t n_dims, type, is_external;
    const unsigned char *raw; /* NULL = none */
    size_t n_raw;
    int numbers; /* the field that has them; 0 = none */
    int64_t n_numbers;
    bool packed_once; /* one packed field has all numbers */
    const unsigned char *packed;
    uint64_t offset, length;
    bool has_length;
};

static sw_status read_whole(const char *text, const char *key, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            break;
        }
    }
    if (*at || at == text) {
        char words[64];
        return SW_FAIL(SW_E_FORMAT, "external data: %s is \"%s\", wanted a number of bytes", key,
                       sw_plain_words(text, words, sizeof words));
    }
    *out = value;
    return SW_OK;
}

static sw_status read_entry(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                            struct reading *t)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    char key[32] = "";
    const char *text = "";
    char *value = NULL;
    bool more;
    SW_TRY(sw_onnx_want_bytes(field, "external data"));
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            break;
        }
        if (part.number != ONNX_ENTRY_KEY && part.number != ONNX_ENTRY_VALUE) {
            continue;
        }
        SW_TRY(sw_onnx_read_text(g, &part, "external data", &text));
        if (part.number == ONNX_ENTRY_KEY) {
            snprintf(key, sizeof key, "%.31s", text);
        } else {
            value = sw_arena_strdup(&g->own->arena, text);
            SW_TRY_ALLOC(value, "the names of an ONNX file");
        }
    }
    value = value ? value : "";
    if (strcmp(key, "location") == 0) {
        t->location = value;
    } else if (strcmp(key, "offset") == 0) {
        SW_TRY(read_whole(value, key, &t->offset));
    } else if (strcmp(key, "length") == 0) {
        SW_TRY(read_whole(value, key, &t->length));
        t->has_length = true;
    }
    return SW_OK;
}

static sw_status read_dims(const struct sw_proto_field *field, struct reading *t)
{
    size_t at = 0;
    for (;;) {
        int64_t dim;
        bool more;
        SW_TRY(sw_onnx_next_number(field, SW_PROTO_VARINT, &at, &dim, &more));
        if (!more) {
            return SW_OK;
        }
        if (t->n_dims < ONNX_READ_RANK) {
            t->data.dims[t->n_dims] = dim;
        }
        t->n_dims++;
    }
}

static sw_status check_dims(struct reading *t)
{
    struct sw_onnx_data *data = &t->data;
    if (t->n_dims > ONNX_READ_RANK) {
        return SW_FAIL(SW_E_UNSUP, "it has %lld dimensions, wanted at most %d",
                       (long long)t->n_dims, ONNX_READ_RANK);
    }
    data->rank = (int)t->n_dims;
    for (int d = 0; d < data->rank; d++) {
        if (data->dims[d] < 0) {
            return SW_FAIL(SW_E_FORMAT, "dimension %d is %lld, wanted 0 or more", d,
                           (long long)data->dims[d]);
        }
    }
    if (!sw_onnx_elems(data->rank, data->dims, sw_onnx_type_bytes(data->type), &data->n)) {
        return SW_FAIL(SW_E_FORMAT, "the product of its dimensions overflows");
    }
    data->bytes = (uint64_t)data->n * sw_onnx_type_bytes(data->type);
    return SW_OK;
}

static int wire_of_numbers(int number)
{
    return number == ONNX_TENSOR_FLOATS    ? SW_PROTO_FIXED32
           : number == ONNX_TENSOR_DOUBLES ? SW_PROTO_FIXED64
                                           : SW_PROTO_VARINT;
}

/* Counts the numbers; they are decoded when the shape is known. */
static sw_status count_numbers(const struct sw_proto_field *field, struct reading *t)
{
    size_t at = 0;
    if (t->numbers && t->numbers != field->number) {
        return SW_FAIL(SW_E_FORMAT, "its elements are in two fields");
    }
    t->packed_once = t->n_numbers == 0 && field->wire == SW_PROTO_BYTES;
    t->packed = field->bytes;
    t->numbers = (int)field->number;
    for (;;) {
        int64_t number;
        bool more;
        SW_TRY(sw_onnx_next_number(field, wire_of_numbers(t->numbers), &at, &number, &more));
        if (!more) {
            return SW_OK;
        }
        t->n_numbers++;
    }
}

static sw_status read_field(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                            struct reading *t)
{
    const char *text;
    switch (field->number) {
    case ONNX_TENSOR_DIMS:
        return read_dims(field, t);
    case ONNX_TENSOR_TYPE:
        t->type = field->integer;
        return sw_onnx_want_int(field, "data_type");
    case ONNX_TENSOR_LOCATION:
        t->is_external = field->integer;
        return sw_onnx_want_int(field, "data_location");
    case ONNX_TENSOR_NAME:
        SW_TRY(sw_onnx_read_text(g, field, "the name of a tensor", &text));
        t->name = sw_arena_strdup(&g->own->arena, text);
        SW_TRY_ALLOC(t->name, "the names of an ONNX file");
        return SW_OK;
    case ONNX_TENSOR_RAW:
        SW_TRY(sw_onnx_want_bytes(field, "raw_data"));
        t->raw = field->bytes;
        t->n_raw = field->len;
        return SW_OK;
    case ONNX_TENSOR_FLOATS:
    case ONNX_TENSOR_INT32S:
    case ONNX_TENSOR_INT64S:
    case ONNX_TENSOR_DOUBLES:
    case ONNX_TENSOR_UINT64S:
        return count_numbers(field, t);
    case ONNX_TENSOR_EXTERNAL:
        return read_entry(g, field, t);
    case ONNX_TENSOR_SEGMENT:
        return SW_FAIL(SW_E_UNSUP, "it is a segment of a tensor, which is not read");
    default:
        return SW_OK;
    }
}

/* ---- elements ---- */

static int field_of_type(enum sw_onnx_type type)
{
    switch (type) {
    case ONNX_F32:
        return ONNX_TENSOR_FLOATS;
    case ONNX_F64:
        return ONNX_TENSOR_DOUBLES;
    case ONNX_I64:
        return ONNX_TENSOR_INT64S;
    case ONNX_U32:
    case ONNX_U64:
        return ONNX_TENSOR_UINT64S;
    default:
        return ONNX_TENSOR_INT32S;
    }
}

static sw_status decode_numbers(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                                struct reading *t)
{
    const size_t bytes = sw_onnx_type_bytes(t->data.type);
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    if (t->n_numbers != t->data.n || t->numbers != field_of_type(t->data.type)) {
        return SW_FAIL(SW_E_FORMAT, "it has %lld numbers in field %d, wanted %lld in field %d",
                       (long long)t->n_numbers, t->numbers, (long long)t->data.n,
                       field_of_type(t->data.type));
    }
    if (t->packed_once && (t->data.type == ONNX_F32 || t->data.type == ONNX_F64)) {
        t->raw = t->packed; /* the same bytes as raw_data */
        t->n_raw = (size_t)t->data.n * bytes;
        return SW_OK;
    }
    unsigned char *out = sw_arena_array(&g->own->arena, (size_t)t->data.n + 1, bytes), *to = out;
    SW_TRY_ALLOC(out, "a constant of an ONNX file");
    for (bool more = true; more;) {
        size_t at = 0;
        SW_TRY(sw_proto_next(&proto, &part, &more));
        for (bool inner = more && part.number == t->numbers; inner;) {
            int64_t number;
            SW_TRY(sw_onnx_next_number(&part, wire_of_numbers(t->numbers), &at, &number, &inner));
            if (inner) {
                for (size_t k = 0; k < bytes; k++) {
                    *to++ = (unsigned char)((uint64_t)number >> 8 * k);
                }
            }
        }
    }
    t->data.elems = out;
    return SW_OK;
}

static sw_status find_external(struct sw_onnx_graph *g, struct reading *t, uint64_t bytes)
{
    struct sw_onnx_graph_own *own = g->own;
    int32_t i_file;
    if (!t->location) {
        return SW_FAIL(SW_E_FORMAT, "its external data have no location");
    }
    SW_TRY(sw_onnx_map_file(g, t->location, &i_file));
    const struct sw_onnx_graph_file *file = &g->files[i_file];
    if (t->has_length && t->length != bytes) {
        return SW_FAIL(SW_E_FORMAT, "its external data have %llu bytes, wanted %llu",
                       (unsigned long long)t->length, (unsigned long long)bytes);
    }
    if (t->offset > file->len || bytes > file->len - t->offset) {
        return SW_FAIL(SW_E_FORMAT,
                       "its external data are %llu bytes at offset %llu of %s, which has %zu bytes",
                       (unsigned long long)bytes, (unsigned long long)t->offset, file->name,
                       file->len);
    }
    SW_TRY(sw_onnx_grow(&own->ranges, own->n_ranges, &own->cap_ranges, sizeof *own->ranges));
    if (bytes > 0) {
        own->ranges[own->n_ranges++] =
            (struct sw_onnx_range){i_file, t->offset, bytes, t->name ? t->name : ""};
    }
    t->data.i_file = i_file;
    t->data.offset = t->offset;
    t->data.elems = file->bytes + (file->bytes ? t->offset : 0);
    return SW_OK;
}

static sw_status find_elements(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                               bool external, struct reading *t)
{
    struct sw_onnx_data *data = &t->data;
    const int64_t type = t->type;
    data->type = type >= 0 && type <= ONNX_BF16 ? (enum sw_onnx_type)type : ONNX_TEXTS;
    if (!sw_onnx_type_name(data->type)) {
        return SW_FAIL(
            SW_E_UNSUP,
            "its type is number %lld of TensorProto.DataType, wanted a float of 16 to 64 "
            "bits, an integer of 8 to 64, or bool",
            (long long)type);
    }
    SW_TRY(check_dims(t));
    data->i_file = -1;
    data->elems = "";
    if (t->is_external == ONNX_EXTERNAL) {
        if (!external) {
            return SW_FAIL(SW_E_UNSUP, "external data of an attribute are not read");
        }
        return find_external(g, t, data->bytes);
    }
    if (!t->raw && (t->numbers || data->n > 0)) {
        SW_TRY(decode_numbers(g, field, t));
    } else if (t->raw && t->numbers) {
        return SW_FAIL(SW_E_FORMAT, "its elements are in two fields");
    }
    if (t->raw && t->n_raw != data->bytes) {
        return SW_FAIL(SW_E_FORMAT, "raw_data has %zu bytes, wanted %llu", t->n_raw,
                       (unsigned long long)data->bytes);
    }
    if (t->raw) {
        data->elems = t->raw;
        data->i_file = 0;
        data->offset = (uint64_t)(t->raw - g->files[0].bytes);
    }
    return SW_OK;
}

static sw_status read_fields(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                             struct reading *t)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    bool more;
    SW_TRY(sw_onnx_want_bytes(field, "a tensor"));
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            return SW_OK;
        }
        SW_TRY(read_field(g, &part, t));
    }
}

sw_status sw_onnx_read_tensor(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                              bool external, const char *of, const char **out_name,
                              const struct sw_onnx_data **out)
{
    struct reading t = {0};
    sw_status st = read_fields(g, field, &t);
    if (st >= 0) {
        st = find_elements(g, field, external, &t);
    }
    if (st < 0) {
        char words[200];
        return sw_fail_prefix(
            st, "%s %s", of,
            sw_plain_words(t.name ? t.name : "without a name", words, sizeof words));
    }
    struct sw_onnx_data *data = sw_arena_alloc(&g->own->arena, sizeof *data);
    SW_TRY_ALLOC(data, "a tensor of an ONNX file");
    *data = t.data;
    *out = data;
    *out_name = t.name ? t.name : "";
    return SW_OK;
}
