// SPDX-License-Identifier: Apache-2.0
// hf/safetensors_read - one file: u64 length of the header, header (JSON), data. Every claim of the
// header is checked before anything is lent; nothing is allocated by a size that only the file
// claims.
//
// The order of the checks and the names of the errors are the reference reader's, so that a file is
// refused by both for the same reason.

#include "hf/pickle.h"

#include <errno.h>
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
    int fd; /* mapped file, to query its length; -1 = none */
    int64_t n;
    struct sw_safetensor *tensors;        /* in order of the data */
    const struct sw_safetensor **by_name; /* [n] */
    char *metadata;                       /* [metadata_bytes] pairs, see put_pair */
    size_t metadata_bytes;
};

/* A tensor as the header claims it. */
struct claim {
    const char *name;
    const struct sw_hf_dtype *dtype;
    struct sw_shape shape;
    uint64_t begin, end;
    uint64_t elems;
    bool fits;      /* elems is the product of all dims */
    bool has_shape; /* one that Spillway can hold */
};

/* Claims become tensors where they stand: a header of many small ones then costs little more than
 * these. */
union slot {
    struct claim claim;
    struct sw_safetensor tensor;
};
_Static_assert(sizeof(union slot) == sizeof(struct sw_safetensor), "tensors follow each other");

/* ---- header: from JSON to claims (InvalidHeaderDeserialization) ---- */

/*
 * The header is read twice, as events and never as a tree, which would take fifty times its bytes:
 * first counted, so that memory is asked for once, by what is really there; then kept.
 */
enum field { FIELD_OTHER, FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS, N_FIELDS };

struct reading {
    struct sw_safetensors *f;
    bool counting, failed; /* failed: the message is ours, and has the path */
    union slot *slots;     /* [n] */
    int64_t n, n_pairs;
    size_t pair_bytes;
    /* the member of the header that is open */
    bool in_metadata, metadata_seen;
    struct claim claim;
    enum field field;
    bool seen[N_FIELDS];
    int n_offsets;
};

static sw_status bad_header(struct reading *in, const char *name, const char *what)
{
    in->failed = true;
    return SW_FAIL(SW_E_FORMAT, "%s: InvalidHeaderDeserialization: %s \"%s\": %s", in->f->path,
                   strcmp(name, SW_HF_METADATA) == 0 ? "key" : "tensor", name, what);
}

/* An unsigned 64-bit number in plain digits. */
static bool read_u64(const struct sw_json *value, uint64_t *out)
{
    if (value->type != SW_JSON_INT && value->type != SW_JSON_FLOAT) {
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

/* ---- __metadata__: pairs in sequence: two lengths, both texts with their NUL ---- */

static size_t pair_bytes(size_t key_len, size_t value_len)
{
    return 2 * sizeof(uint32_t) + key_len + value_len + 2;
}

static void put_pair(const struct sw_json *value, char *at)
{
    const uint32_t lens[2] = {(uint32_t)value->key_len, (uint32_t)value->string_len};
    memcpy(at, lens, sizeof(lens));
    memcpy(at + sizeof(lens), value->key, value->key_len + 1);
    memcpy(at + sizeof(lens) + value->key_len + 1, value->string, value->string_len + 1);
}

static const char *pair_key(const char *pair)
{
    return pair + 2 * sizeof(uint32_t);
}

static const char *pair_value(const char *pair)
{
    uint32_t key_len;
    memcpy(&key_len, pair, sizeof(key_len));
    return pair_key(pair) + key_len + 1;
}

static const char *pair_next(const char *pair)
{
    uint32_t lens[2];
    memcpy(lens, pair, sizeof(lens));
    return pair + pair_bytes(lens[0], lens[1]);
}

static int compare_pairs(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(pair_key(*x), pair_key(*y));
}

static sw_status take_pair(struct reading *in, enum sw_json_event event,
                           const struct sw_json *value)
{
    if (event != SW_JSON_SCALAR || value->type != SW_JSON_STRING) {
        return bad_header(in, SW_HF_METADATA, "its values must be strings");
    }
    if (strlen(value->key) != value->key_len) {
        return bad_header(in, SW_HF_METADATA, "a key holds a NUL");
    }
    if (!in->counting) {
        put_pair(value, in->f->metadata + in->pair_bytes);
    }
    in->pair_bytes += pair_bytes(value->key_len, value->string_len);
    in->n_pairs++;
    return SW_OK;
}

static sw_status check_pairs(struct reading *in)
{
    sw_status st = SW_OK;
    const char **pairs = sw_alloc_zero("hf", (size_t)in->n_pairs, sizeof(*pairs));
    SW_TRY_ALLOC(pairs, in->f->path);
    const char *at = in->f->metadata;
    for (int64_t i = 0; i < in->n_pairs; i++, at = pair_next(at)) {
        pairs[i] = at;
    }
    qsort(pairs, (size_t)in->n_pairs, sizeof(*pairs), compare_pairs);
    for (int64_t i = 1; i < in->n_pairs && st >= 0; i++) {
        if (compare_pairs(&pairs[i - 1], &pairs[i]) == 0) {
            st = bad_header(in, SW_HF_METADATA, "it has a key twice");
        }
    }
    sw_free(pairs);
    return st;
}

/* ---- a tensor ---- */

static sw_status open_member(struct reading *in, enum sw_json_event event,
                             const struct sw_json *value)
{
    if (strlen(value->key) != value->key_len) {
        return bad_header(in, value->key, "the name holds a NUL");
    }
    if (event != SW_JSON_OPEN || value->type != SW_JSON_OBJECT) {
        return bad_header(in, value->key, "must be an object");
    }
    in->in_metadata = strcmp(value->key, SW_HF_METADATA) == 0;
    if (in->in_metadata) {
        if (in->metadata_seen) {
            return bad_header(in, SW_HF_METADATA, "it is given twice");
        }
        in->metadata_seen = true;
    } else if (!in->counting) {
        in->claim = (struct claim){.elems = 1, .fits = true, .has_shape = true};
        in->claim.name = sw_arena_strndup(&in->f->arena, value->key, value->key_len);
        SW_TRY_ALLOC(in->claim.name, in->f->path);
        memset(in->seen, 0, sizeof(in->seen));
        in->n_offsets = 0;
    }
    return SW_OK;
}

static sw_status close_member(struct reading *in)
{
    const char *name = in->claim.name;
    if (in->in_metadata) {
        return SW_OK;
    }
    if (!in->counting) {
        if (!in->seen[FIELD_DTYPE]) {
            return bad_header(in, name, "dtype is missing or unknown");
        }
        if (!in->seen[FIELD_SHAPE]) {
            return bad_header(in, name, "shape must be an array");
        }
        if (!in->seen[FIELD_OFFSETS] || in->n_offsets != 2) {
            return bad_header(in, name, "data_offsets must be two unsigned integers");
        }
        in->slots[in->n].claim = in->claim;
    }
    in->n++;
    return SW_OK;
}

static sw_status take_field(struct reading *in, enum sw_json_event event,
                            const struct sw_json *value)
{
    static const char *const names[N_FIELDS] = {"", "dtype", "shape", "data_offsets"};
    struct claim *claim = &in->claim;
    in->field = FIELD_OTHER;
    for (int i = FIELD_DTYPE; i < N_FIELDS; i++) {
        in->field = strcmp(value->key, names[i]) == 0 ? (enum field)i : in->field;
    }
    if (in->field == FIELD_OTHER) {
        return SW_OK;
    }
    if (in->seen[in->field]) {
        return bad_header(in, claim->name, "a key is given twice");
    }
    in->seen[in->field] = true;
    if (in->field == FIELD_DTYPE) {
        const bool text = event == SW_JSON_SCALAR && value->type == SW_JSON_STRING;
        claim->dtype = text ? sw_hf_dtype_of_name(value->string) : NULL;
        return claim->dtype ? SW_OK : bad_header(in, claim->name, "dtype is missing or unknown");
    }
    if (event != SW_JSON_OPEN || value->type != SW_JSON_ARRAY) {
        return bad_header(in, claim->name,
                          in->field == FIELD_SHAPE ? "shape must be an array"
                                                   : "data_offsets must be two unsigned integers");
    }
    return SW_OK;
}

static sw_status take_dim(struct reading *in, enum sw_json_event event, const struct sw_json *value)
{
    struct claim *claim = &in->claim;
    uint64_t dim = 0;
    if (event != SW_JSON_SCALAR || !read_u64(value, &dim)) {
        return bad_header(in, claim->name, "shape must hold unsigned integers");
    }
    claim->fits = claim->fits && !__builtin_mul_overflow(claim->elems, dim, &claim->elems);
    /* beyond int64_t: beside a dim of zero */
    if (claim->shape.rank == SW_MAX_RANK || dim > INT64_MAX) {
        claim->has_shape = false;
    } else {
        claim->shape.dims[claim->shape.rank++] = (int64_t)dim;
    }
    return SW_OK;
}

static sw_status take_offset(struct reading *in, enum sw_json_event event,
                             const struct sw_json *value)
{
    uint64_t *to = in->n_offsets == 0 ? &in->claim.begin : &in->claim.end;
    if (event != SW_JSON_SCALAR || in->n_offsets++ == 2 || !read_u64(value, to)) {
        return bad_header(in, in->claim.name, "data_offsets must be two unsigned integers");
    }
    return SW_OK;
}

/* depth 0 is the header, 1 its members, 2 the fields of a tensor, 3 the numbers in a field */
static sw_status take_event(void *ctx, enum sw_json_event event, const struct sw_json *value,
                            int depth)
{
    struct reading *in = ctx;
    if (depth == 0 && value->type != SW_JSON_OBJECT) {
        in->failed = true;
        return SW_FAIL(SW_E_FORMAT,
                       "%s: InvalidHeaderDeserialization: the header is %s, not an object",
                       in->f->path, sw_json_type_name(value->type));
    }
    if (depth == 1) {
        return event == SW_JSON_CLOSE ? close_member(in) : open_member(in, event, value);
    }
    if (depth == 2 && in->in_metadata) {
        return take_pair(in, event, value);
    }
    if (depth == 0 || event == SW_JSON_CLOSE || in->counting) {
        return SW_OK;
    }
    if (depth == 2) {
        return take_field(in, event, value);
    }
    if (in->field == FIELD_SHAPE) {
        return take_dim(in, event, value);
    }
    return in->field == FIELD_OFFSETS ? take_offset(in, event, value) : SW_OK;
}

static sw_status scan(struct reading *in, const char *text, size_t len)
{
    const sw_status st =
        sw_json_scan("InvalidHeaderDeserialization: header", text, len, take_event, in);
    return st < 0 && !in->failed ? sw_fail_prefix(st, "%s", in->f->path) : st;
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
    return strcmp(x->name, y->name); /* a fixed order makes errors the same on every machine */
}

static int compare_claim_names(const void *a, const void *b)
{
    const struct claim *const *x = a;
    const struct claim *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* All tensors of the header as claims, sorted by their data; their places by name. */
static sw_status read_claims(struct sw_safetensors *f, const char *text, size_t len,
                             union slot **out)
{
    struct reading counted = {.f = f, .counting = true}, in = {.f = f};
    SW_TRY(scan(&counted, text, len));
    const size_t n = (size_t)counted.n;
    in.slots = sw_arena_array(&f->arena, n + 1, sizeof(*in.slots));
    f->by_name = sw_arena_array(&f->arena, n + 1, sizeof(*f->by_name));
    f->metadata = sw_arena_alloc(&f->arena, counted.pair_bytes);
    SW_TRY_ALLOC(in.slots && f->by_name && f->metadata, f->path);
    SW_TRY(scan(&in, text, len));
    f->metadata_bytes = in.pair_bytes;
    SW_TRY(check_pairs(&in));
    f->n = in.n;
    qsort(in.slots, n, sizeof(*in.slots), compare_claims);
    for (size_t i = 0; i < n; i++) {
        f->by_name[i] = &in.slots[i].tensor;
    }
    qsort(f->by_name, n, sizeof(*f->by_name), compare_claim_names);
    for (size_t i = 1; i < n; i++) {
        if (compare_claim_names(&f->by_name[i - 1], &f->by_name[i]) == 0) {
            return bad_header(&in, ((const union slot *)f->by_name[i])->claim.name,
                              "it is given twice");
        }
    }
    *out = in.slots;
    return SW_OK;
}

/* ---- from claims to tensors ---- */

static sw_status check_claim(const struct sw_safetensors *f, const struct claim *claim,
                             uint64_t expected_begin)
{
    const char *name = claim->name;
    if (claim->begin != expected_begin || claim->end < claim->begin) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: InvalidOffset: tensor \"%s\" has bytes %llu to %llu, expected to start "
                       "at %llu, where the one before ends",
                       f->path, name, (unsigned long long)claim->begin,
                       (unsigned long long)claim->end, (unsigned long long)expected_begin);
    }
    uint64_t bits;
    if (!claim->fits || __builtin_mul_overflow(claim->elems, (uint64_t)claim->dtype->bits, &bits)) {
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

/* A map of a file that became shorter since would end the process where it is touched. */
static sw_status check_length(const struct sw_safetensors *f)
{
    struct stat info;
    if (f->fd < 0) {
        return SW_OK;
    }
    if (fstat(f->fd, &info) != 0) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", f->path, strerror(errno));
    }
    if ((uint64_t)info.st_size < f->map_bytes) {
        return SW_FAIL(SW_E_IO,
                       "%s became shorter while it was read: it has %lld bytes, wanted %zu",
                       f->path, (long long)info.st_size, f->map_bytes);
    }
    return SW_OK;
}

sw_status sw_safetensor_check(const struct sw_safetensor *tensor)
{
    return check_length(tensor->of);
}

void sw_safetensor_release(const struct sw_safetensor *tensor, size_t first, size_t n)
{
    const struct sw_safetensors *f = tensor->of;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), map = (uintptr_t)f->map;
    const uintptr_t begin = (uintptr_t)tensor->data + first, end = begin + n;
    if (!f->map || begin < map || end > map + f->map_bytes) {
        return; /* a copy, or borrowed */
    }
    const uintptr_t from = begin / page * page, to = end / page * page;
    if (from < to) {
        madvise((void *)from, to - from, MADV_DONTNEED);
    }
}

/* Elements that the file does not align (headers of odd length, small dtypes in between) are
 * copied, so that readers may use them in place. */
static sw_status lend_data(struct sw_safetensors *f, struct sw_safetensor *tensor,
                           const char *bytes, size_t align)
{
    tensor->data = bytes;
    if ((uintptr_t)bytes % align == 0) {
        return SW_OK;
    }
    void *copy = sw_arena_alloc(&f->arena, tensor->bytes);
    SW_TRY_ALLOC(copy, tensor->name);
    SW_TRY(check_length(f));
    memcpy(copy, bytes, tensor->bytes);
    tensor->data = copy;
    return SW_OK;
}

static sw_status make_tensors(struct sw_safetensors *f, union slot *slots, const char *data,
                              size_t data_bytes)
{
    uint64_t end = 0;
    for (int64_t i = 0; i < f->n; i++) {
        SW_TRY(check_claim(f, &slots[i].claim, end));
        end = slots[i].claim.end;
    }
    if (end != data_bytes) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: MetadataIncompleteBuffer: the header describes %llu bytes of data, the "
                       "file has %zu",
                       f->path, (unsigned long long)end, data_bytes);
    }
    for (int64_t i = 0; i < f->n; i++) {
        const struct claim claim = slots[i].claim;
        const bool ours = claim.has_shape && claim.dtype->dtype != SW_DTYPE_COUNT;
        slots[i].tensor =
            (struct sw_safetensor){.name = claim.name,
                                   .file = f->path,
                                   .of = f,
                                   .dtype_name = claim.dtype->name,
                                   .dtype = ours ? claim.dtype->dtype : SW_DTYPE_COUNT,
                                   .shape = ours ? claim.shape : (struct sw_shape){0},
                                   .bytes = (size_t)(claim.end - claim.begin)};
        const size_t align = (size_t)(claim.dtype->bits + 7) / 8;
        SW_TRY(lend_data(f, &slots[i].tensor, data + claim.begin, align));
    }
    f->tensors = &slots[0].tensor;
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
    union slot *slots = NULL;
    SW_TRY(read_claims(f, text, text_len, &slots));
    SW_TRY(make_tensors(f, slots, text + text_len, len - 8 - text_len));
    return SW_OK;
}

static int compare_tensor_names(const void *a, const void *b)
{
    const struct sw_safetensor *const *x = a;
    const struct sw_safetensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Reads the tensors of a torch.save file, in the order of the file. */
static sw_status read_pickled(struct sw_safetensors *f, const char *bytes, size_t len)
{
    SW_TRY(sw_pickle_read(&f->arena, f->path, bytes, len, &f->tensors, &f->n));
    f->by_name = sw_arena_array(&f->arena, (size_t)f->n + 1, sizeof(*f->by_name));
    SW_TRY_ALLOC(f->by_name, f->path);
    size_t may_copy = len; /* tensors that share a storage are each as large as it */
    for (int64_t i = 0; i < f->n; i++) {
        struct sw_safetensor *tensor = &f->tensors[i];
        tensor->file = f->path;
        tensor->of = f;
        const size_t width = (size_t)sw_hf_dtype_of_name(tensor->dtype_name)->bits / 8;
        const size_t copied = (uintptr_t)tensor->data % width == 0 ? 0 : tensor->bytes;
        if (copied > may_copy) {
            return SW_FAIL(SW_E_FORMAT, "%s: tensor \"%s\": too many tensors that are not aligned",
                           f->path, tensor->name);
        }
        may_copy -= copied;
        SW_TRY(lend_data(f, tensor, tensor->data, width));
        f->by_name[i] = tensor;
    }
    qsort(f->by_name, (size_t)f->n, sizeof(*f->by_name), compare_tensor_names);
    for (int64_t i = 1; i < f->n; i++) {
        if (compare_tensor_names(&f->by_name[i - 1], &f->by_name[i]) == 0) {
            return SW_FAIL(SW_E_FORMAT, "%s: tensor \"%s\" is given twice", f->path,
                           f->by_name[i]->name);
        }
    }
    return SW_OK;
}

typedef sw_status (*read_fn)(struct sw_safetensors *f, const char *bytes, size_t len);

/* Takes the map and its descriptor; fd -1: borrows the bytes. */
static sw_status open_bytes(const char *path, const void *bytes, size_t len, int fd, read_fn read,
                            struct sw_safetensors **out)
{
    struct sw_safetensors *f = sw_alloc_zero("hf", 1, sizeof(*f));
    if (!f) {
        if (fd >= 0) {
            munmap((void *)bytes, len);
            close(fd);
        }
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    }
    sw_arena_init(&f->arena, "hf");
    f->fd = fd;
    if (fd >= 0) {
        f->map = (void *)bytes;
        f->map_bytes = len;
    }
    f->path = sw_arena_strdup(&f->arena, path);
    const sw_status st =
        f->path ? read(f, bytes, len) : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
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
    SW_TRY(open_bytes(name, bytes, len, -1, read_bytes, out));
    return SW_OK;
}

sw_status sw_pickled_parse(const char *name, const void *bytes, size_t len,
                           struct sw_safetensors **out)
{
    SW_TRY(open_bytes(name, bytes, len, -1, read_pickled, out));
    return SW_OK;
}

static sw_status open_file(const char *path, read_fn read, struct sw_safetensors **out)
{
    int fd;
    size_t bytes;
    SW_TRY(sw_file_open(path, &fd, &bytes));
    if (bytes < 8) { /* nothing to map: HeaderTooSmall */
        close(fd);   /* the message has the number, not the bytes */
        SW_TRY(open_bytes(path, "", bytes, -1, read, out));
        return SW_OK;
    }
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        const int error = errno;
        close(fd);
        return SW_FAIL(SW_E_IO, "cannot map %s (%zu bytes): %s", path, bytes, strerror(error));
    }
    SW_TRY(open_bytes(path, map, bytes, fd, read, out));
    return SW_OK;
}

sw_status sw_safetensors_open(const char *path, struct sw_safetensors **out)
{
    return open_file(path, read_bytes, out);
}

sw_status sw_pickled_open(const char *path, struct sw_safetensors **out)
{
    return open_file(path, read_pickled, out);
}

void sw_safetensors_close(struct sw_safetensors *file)
{
    if (!file) {
        return;
    }
    if (file->map) {
        munmap(file->map, file->map_bytes);
        close(file->fd);
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
    const char *end = file->metadata + file->metadata_bytes;
    for (const char *pair = file->metadata; pair < end; pair = pair_next(pair)) {
        if (strcmp(pair_key(pair), key) == 0) {
            return pair_value(pair);
        }
    }
    return NULL;
}
