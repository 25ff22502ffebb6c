// SPDX-License-Identifier: Apache-2.0
// manifest.json: written last, read first. It is one JSON object. Its last member, "check", is the
// CRC-32C of everything before it, so that a torn or edited manifest is rejected. Its content is
// treated as untrusted: boxes must lie inside files, and must cover each tensor exactly once.
#include "ckpt/private.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT_NAME "spillway-checkpoint"
enum { FORMAT_VERSION = 1 };
/* Features that a reader must understand to read a checkpoint. Later features get their own
 * names. */
static const char *const known_features[] = {"boxes"};

static const char check_before[] = ",\"check\":\"";
static const char check_after[] = "\"}\n";
enum { CHECK_DIGITS = 8 };
enum { CHECK_LEN = sizeof(check_before) - 1 + CHECK_DIGITS + sizeof(check_after) - 1 };

static sw_status fail_memory(void)
{
    return SW_FAIL(SW_E_NOMEM, "out of host memory for the manifest of a checkpoint");
}

/* ---- tensors and their boxes ---- */

static int compare_entries(const struct sw_ckpt_entry *a, const struct sw_ckpt_entry *b)
{
    const int order = strcmp(a->param, b->param);
    return order ? order : strcmp(a->kind, b->kind);
}

static sw_status get_i64s(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, int64_t *out, int *out_n)
{
    const struct sw_json *array = sw_json_get(object, key);
    if (!array || array->type != SW_JSON_ARRAY || array->n_children > SW_MAX_RANK) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" must be an array of at most %d numbers",
                       sw_json_name(doc), key, SW_MAX_RANK);
    }
    int n = 0;
    for (const struct sw_json *item = array->first; item; item = item->next) {
        if (item->type != SW_JSON_INT || item->integer < 0) {
            return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" must hold whole numbers, at least 0",
                           sw_json_name(doc), key);
        }
        out[n++] = item->integer;
    }
    *out_n = n;
    return SW_OK;
}

static sw_status check_range(const struct sw_json_doc *doc, const char *key, int64_t value,
                             int64_t least, int64_t most)
{
    if (value < least || value > most) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %lld, wanted %lld .. %lld", sw_json_name(doc),
                       key, (long long)value, (long long)least, (long long)most);
    }
    return SW_OK;
}

/* Members that must be there. */
static sw_status need_i64(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, int64_t *out)
{
    const struct sw_json *member = sw_json_get(object, key);
    int64_t value = -1;
    if (!member || member->type == SW_JSON_NULL) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is missing", sw_json_name(doc), key);
    }
    SW_TRY(sw_json_get_i64(doc, object, key, -1, &value));
    SW_TRY(check_range(doc, key, value, 0, CKPT_MOST));
    *out = value;
    return SW_OK;
}

/* A member that older programs may have left out. */
static sw_status get_i64(const struct sw_json_doc *doc, const struct sw_json *object,
                         const char *key, int64_t fallback, int64_t least, int64_t most,
                         int64_t *out)
{
    int64_t value;
    SW_TRY(sw_json_get_i64(doc, object, key, fallback, &value));
    SW_TRY(check_range(doc, key, value, least, most));
    *out = value;
    return SW_OK;
}

/* NULL where it is absent or null. */
static sw_status get_member(const struct sw_json_doc *doc, const struct sw_json *object,
                            const char *key, enum sw_json_type type, const struct sw_json **out)
{
    const struct sw_json *member = sw_json_get(object, key);
    if (member && member->type == SW_JSON_NULL) {
        member = NULL;
    }
    if (member && member->type != type) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %s, wanted %s", sw_json_name(doc), key,
                       sw_json_type_name(member->type), sw_json_type_name(type));
    }
    *out = member;
    return SW_OK;
}

static sw_status need_str(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, const char **out)
{
    const char *text = NULL;
    SW_TRY(sw_json_get_str(doc, object, key, NULL, &text));
    if (!text) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is missing", sw_json_name(doc), key);
    }
    *out = text;
    return SW_OK;
}

static sw_status need_array(const struct sw_json_doc *doc, const struct sw_json *object,
                            const char *key, const struct sw_json **out)
{
    const struct sw_json *array = sw_json_get(object, key);
    if (!array || array->type != SW_JSON_ARRAY) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" must be an array", sw_json_name(doc), key);
    }
    *out = array;
    return SW_OK;
}

static sw_status need_hex(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, uint64_t *out)
{
    const char *text;
    SW_TRY(need_str(doc, object, key, &text));
    enum { DIGITS = 16 };
    if (strlen(text) != DIGITS || strspn(text, "0123456789abcdefABCDEF") != DIGITS) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" must have 16 hexadecimal digits", sw_json_name(doc),
                       key);
    }
    *out = strtoull(text, NULL, 16);
    return SW_OK;
}

static sw_status read_entry(const struct sw_json_doc *doc, const struct sw_json *object,
                            struct sw_ckpt_entry *out)
{
    struct sw_ckpt_entry entry = {0};
    const char *dtype;
    SW_TRY(need_str(doc, object, "param", &entry.param));
    SW_TRY(need_str(doc, object, "kind", &entry.kind));
    SW_TRY(need_str(doc, object, "dtype", &dtype));
    SW_TRY(get_i64s(doc, object, "shape", entry.shape.dims, &entry.shape.rank));
    if (!sw_dtype_parse(dtype, &entry.dtype) ||
        !sw_shape_check(&entry.shape, sw_dtype_bytes(entry.dtype))) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s (%s) has no valid dtype and shape", sw_json_name(doc),
                       entry.param, entry.kind);
    }
    *out = entry;
    return SW_OK;
}

static sw_status read_piece(const struct sw_json_doc *doc, const struct sw_json *object,
                            const struct sw_ckpt_entry *entry, struct ckpt_piece *out)
{
    struct ckpt_piece piece = {0};
    int n_start, n_dims;
    SW_TRY(need_str(doc, object, "key", &piece.key));
    SW_TRY(need_i64(doc, object, "offset", &piece.offset));
    SW_TRY(get_i64s(doc, object, "start", piece.box.start, &n_start));
    SW_TRY(get_i64s(doc, object, "dims", piece.box.dims, &n_dims));
    if (n_start != entry->shape.rank || n_dims != entry->shape.rank ||
        !sw_box_inside(&entry->shape, &piece.box)) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is not inside its tensor", sw_json_name(doc),
                       piece.key);
    }
    *out = piece;
    return SW_OK;
}

static sw_status check_piece_in_file(const struct ckpt_manifest *m, const char *where,
                                     const struct sw_ckpt_entry *entry,
                                     const struct ckpt_piece *piece)
{
    const int64_t bytes =
        sw_box_elems(entry->shape.rank, &piece->box) * (int64_t)sw_dtype_bytes(entry->dtype);
    if (piece->i_file >= m->n_files || piece->offset > m->files[piece->i_file].bytes ||
        bytes > m->files[piece->i_file].bytes - piece->offset) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" lies outside its file", where, piece->key);
    }
    return SW_OK;
}

static void *array_of(struct ckpt_manifest *m, int64_t n, size_t bytes)
{
    return sw_arena_array(&m->arena, n > 0 ? (size_t)n : 1, bytes);
}

/* ---- reading ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Rejects duplicate file names: such a file would be read and compared once per entry. */
static sw_status check_names(const struct ckpt_manifest *m)
{
    sw_status st = SW_OK;
    const char **names = sw_alloc("checkpoint", (size_t)(m->n_files + 1) * sizeof(*names));
    if (!names) {
        return fail_memory();
    }
    for (int64_t i = 0; i < m->n_files; i++) {
        names[i] = m->files[i].name;
    }
    qsort(names, (size_t)m->n_files, sizeof(*names), compare_names);
    for (int64_t i = 1; i < m->n_files && st >= 0; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            st = SW_FAIL(SW_E_FORMAT, "%s: the file \"%s\" is named twice", sw_json_name(m->doc),
                         names[i]);
        }
    }
    sw_free(names);
    return st;
}

static sw_status read_files(struct ckpt_manifest *m, const struct sw_json *root)
{
    const struct sw_json *array;
    SW_TRY(need_array(m->doc, root, "files", &array));
    m->files = array_of(m, array->n_children, sizeof(*m->files));
    if (!m->files) {
        return fail_memory();
    }
    int64_t sum = 0;
    for (const struct sw_json *item = array->first; item; item = item->next) {
        struct ckpt_file *file = &m->files[m->n_files++];
        SW_TRY(need_str(m->doc, item, "name", &file->name));
        SW_TRY(need_i64(m->doc, item, "bytes", &file->bytes));
        SW_TRY(need_str(m->doc, item, "digest", &file->digest));
        if (strchr(file->name, '/') || file->name[0] == '.' || !file->name[0]) {
            return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is not a name of a file in the checkpoint",
                           sw_json_name(m->doc), file->name);
        }
        sum += file->bytes; /* two that are in bounds, and the sum is looked at each time */
        SW_TRY(check_range(m->doc, "total_bytes", m->total_bytes, sum, CKPT_MOST));
    }
    SW_TRY(check_names(m));
    return check_range(m->doc, "total_bytes", m->total_bytes, sum, sum);
}

static sw_status read_tensor(struct ckpt_manifest *m, const struct sw_json *object,
                             struct ckpt_stored *tensor)
{
    const char *where = sw_json_name(m->doc);
    const struct sw_json *boxes;
    SW_TRY(read_entry(m->doc, object, &tensor->entry));
    SW_TRY(need_array(m->doc, object, "boxes", &boxes));
    tensor->pieces = array_of(m, boxes->n_children, sizeof(*tensor->pieces));
    if (!tensor->pieces) {
        return fail_memory();
    }
    for (const struct sw_json *item = boxes->first; item; item = item->next) {
        struct ckpt_piece *piece = &tensor->pieces[tensor->n_pieces++];
        SW_TRY(read_piece(m->doc, item, &tensor->entry, piece));
        SW_TRY(need_i64(m->doc, item, "file", &piece->i_file));
        SW_TRY(check_piece_in_file(m, where, &tensor->entry, piece));
    }
    SW_TRY(sw_ckpt_check_cover(where, tensor));
    return SW_OK;
}

static sw_status read_tensors(struct ckpt_manifest *m, const struct sw_json *root)
{
    const struct sw_json *array;
    SW_TRY(need_array(m->doc, root, "tensors", &array));
    m->tensors = array_of(m, array->n_children, sizeof(*m->tensors));
    if (!m->tensors) {
        return fail_memory();
    }
    for (const struct sw_json *item = array->first; item; item = item->next) {
        struct ckpt_stored *tensor = &m->tensors[m->n_tensors];
        SW_TRY(read_tensor(m, item, tensor));
        if (m->n_tensors > 0 && compare_entries(&tensor[-1].entry, &tensor->entry) >= 0) {
            return SW_FAIL(SW_E_FORMAT, "%s: tensors are not sorted at %s", sw_json_name(m->doc),
                           tensor->entry.param);
        }
        m->n_tensors++;
    }
    return SW_OK;
}

static sw_status read_scaler(const struct sw_json_doc *doc, const struct sw_json *root,
                             struct sw_ckpt_scaler *out)
{
    const struct sw_json *scaler;
    SW_TRY(get_member(doc, root, "scaler", SW_JSON_OBJECT, &scaler));
    SW_TRY(sw_json_get_f64(doc, scaler, "scale", 1, &out->scale));
    if (!(out->scale > 0) || isinf(out->scale)) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"scale\" is %g, wanted a number above 0",
                       sw_json_name(doc), out->scale);
    }
    SW_TRY(get_i64(doc, scaler, "iteration", 0, 0, CKPT_MOST, &out->iteration));
    SW_TRY(get_i64(doc, scaler, "last_overflow", 0, -1, out->iteration, &out->last_overflow));
    return get_i64(doc, scaler, "hysteresis_left", 0, -CKPT_MOST, CKPT_MOST, &out->hysteresis_left);
}

/* Reads the metric, which only some runs have. */
static sw_status read_metric(const struct sw_json_doc *doc, const struct sw_json *root,
                             struct sw_ckpt_metric *out)
{
    const struct sw_json *metric = sw_json_get(root, "metric");
    *out = (struct sw_ckpt_metric){.value = NAN};
    if (!metric) {
        return SW_OK;
    }
    SW_TRY(get_member(doc, root, "metric", SW_JSON_OBJECT, &metric));
    SW_TRY(need_str(doc, metric, "name", &out->name));
    SW_TRY(sw_json_get_f64(doc, metric, "value", NAN, &out->value));
    SW_TRY(sw_json_get_bool(doc, metric, "falls", false, &out->falls));
    return isinf(out->value)
               ? SW_FAIL(SW_E_FORMAT, "%s: \"metric\" is not finite", sw_json_name(doc))
               : SW_OK;
}

static bool put_metric(struct sw_json_doc *doc, struct sw_json *root,
                       const struct sw_ckpt_metric *metric)
{
    struct sw_json *object;
    return !metric->name || ((object = sw_json_put(doc, root, "metric", SW_JSON_OBJECT)) &&
                             sw_json_put_str(doc, object, "name", metric->name) &&
                             sw_json_put_f64(doc, object, "value", metric->value) &&
                             sw_json_put_bool(doc, object, "falls", metric->falls));
}

static sw_status read_meta(struct ckpt_manifest *m, const struct sw_json *root)
{
    const struct sw_json_doc *doc = m->doc;
    struct sw_ckpt_meta *meta = &m->meta;
    SW_TRY(need_i64(doc, root, "applied", &meta->applied));
    SW_TRY(check_range(doc, "applied", meta->applied, 0, meta->step));
    SW_TRY(need_i64(doc, root, "samples", &meta->samples));
    SW_TRY(need_hex(doc, root, "seed", &meta->seed));
    SW_TRY(need_hex(doc, root, "fingerprint", &meta->fingerprint));
    SW_TRY(sw_json_get_f64(doc, root, "val_loss", NAN, &meta->val_loss));
    if (isinf(meta->val_loss)) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"val_loss\" is not finite", sw_json_name(doc));
    }
    SW_TRY(read_metric(doc, root, &meta->metric));
    SW_TRY(sw_json_get_str(doc, root, "kernel_set", NULL, &meta->kernel_set));
    SW_TRY(sw_json_get_str(doc, root, "algorithms", NULL, &meta->algorithms));
    SW_TRY(read_scaler(doc, root, &meta->scaler));
    SW_TRY(get_member(doc, root, "config", SW_JSON_OBJECT, &meta->config));
    SW_TRY(get_member(doc, root, "data", SW_JSON_OBJECT, &meta->data));
    SW_TRY(get_member(doc, root, "training", SW_JSON_OBJECT, &meta->training));
    SW_TRY(need_i64(doc, root, "writers", &m->n_writers));
    SW_TRY(check_range(doc, "writers", m->n_writers, 1, INT32_MAX));
    SW_TRY(need_i64(doc, root, "total_bytes", &m->total_bytes));
    SW_TRY(need_str(doc, root, "digest", &m->digest_name));
    return SW_OK;
}

/* Reads the members that every version of the format has, then checks whether this program can
 * read the rest. */
static sw_status read_head(struct ckpt_manifest *m, const struct sw_json *root)
{
    const char *where = sw_json_name(m->doc), *format;
    const struct sw_json *features;
    int64_t version;
    SW_TRY(need_str(m->doc, root, "format", &format));
    if (strcmp(format, FORMAT_NAME) != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: format \"%s\", wanted \"" FORMAT_NAME "\"", where, format);
    }
    SW_TRY(need_i64(m->doc, root, "version", &version));
    SW_TRY(need_array(m->doc, root, "requires", &features));
    SW_TRY(need_i64(m->doc, root, "serial", &m->serial));
    SW_TRY(need_i64(m->doc, root, "step", &m->meta.step));
    for (const struct sw_json *item = features->first; item; item = item->next) {
        bool known = false;
        for (size_t i = 0; i < SW_LEN(known_features) && item->type == SW_JSON_STRING; i++) {
            known = known || strcmp(item->string, known_features[i]) == 0;
        }
        if (!known) {
            return SW_FAIL(SW_E_UNSUP, "%s requires \"%s\", which this program does not know",
                           where, item->type == SW_JSON_STRING ? item->string : "?");
        }
    }
    if (version != FORMAT_VERSION) {
        return SW_FAIL(SW_E_UNSUP, "%s has version %lld of the format, this program reads %d",
                       where, (long long)version, FORMAT_VERSION);
    }
    return SW_OK;
}

static sw_status check_sizes(const struct ckpt_manifest *m, const char *folder)
{
    for (int64_t i = 0; i < m->n_files; i++) {
        char path[PATH_MAX];
        struct stat info;
        SW_TRY(sw_ckpt_join(folder, m->files[i].name, path));
        if (stat(path, &info) != 0) {
            return SW_FAIL(errno == ENOENT ? SW_E_FORMAT : SW_E_IO, "%s: %s", path,
                           strerror(errno));
        }
        if (!S_ISREG(info.st_mode)) {
            return SW_FAIL(SW_E_FORMAT, "%s is not a regular file", path);
        }
        if (info.st_size != m->files[i].bytes) {
            return SW_FAIL(SW_E_FORMAT, "%s has %lld bytes, the manifest says %lld", path,
                           (long long)info.st_size, (long long)m->files[i].bytes);
        }
    }
    return SW_OK;
}

static sw_status check_text(const char *path, const char *text, size_t len)
{
    char wanted[CHECK_LEN + 1];
    if (len > CHECK_LEN) {
        snprintf(wanted, sizeof(wanted), "%s%08" PRIx32 "%s", check_before,
                 sw_crc32c(0, text, len - CHECK_LEN), check_after);
        if (memcmp(wanted, text + len - CHECK_LEN, CHECK_LEN) == 0) {
            return SW_OK;
        }
    }
    return SW_FAIL(SW_E_FORMAT, "%s is truncated or was changed: its checksum does not match",
                   path);
}

static sw_status read_into(struct ckpt_manifest *m, const char *folder)
{
    char path[PATH_MAX];
    char *text;
    size_t len;
    SW_TRY(sw_ckpt_join(folder, CKPT_MANIFEST, path));
    SW_TRY(sw_file_read(path, &text, &len));
    m->hash = sw_hash(SW_HASH_INIT, text, len);
    sw_status st = check_text(path, text, len);
    if (st == SW_OK) {
        st = sw_json_parse(path, text, len, SW_JSON_STRICT, &m->doc);
    }
    sw_free(text);
    SW_TRY(st);
    const struct sw_json *root = sw_json_root(m->doc);
    SW_TRY(read_head(m, root));
    SW_TRY(read_meta(m, root));
    SW_TRY(read_files(m, root));
    SW_TRY(read_tensors(m, root));
    SW_TRY(check_sizes(m, folder));
    return SW_OK;
}

sw_status sw_ckpt_manifest_read(const char *folder, struct ckpt_manifest *out)
{
    struct ckpt_manifest m = {0};
    sw_arena_init(&m.arena, "checkpoint");
    const sw_status st = read_into(&m, folder);
    if (st < 0) {
        const struct ckpt_manifest head = {.serial = m.serial, .meta.step = m.meta.step};
        sw_ckpt_manifest_fini(&m);
        if (st == SW_E_UNSUP) {
            *out = head;
        }
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = m;
    return SW_OK;
}

void sw_ckpt_manifest_fini(struct ckpt_manifest *manifest)
{
    sw_json_close(manifest->doc);
    sw_arena_fini(&manifest->arena);
    memset(manifest, 0, sizeof(*manifest));
}

int64_t sw_ckpt_manifest_find(const struct ckpt_manifest *manifest, const char *param,
                              const char *kind)
{
    const struct sw_ckpt_entry wanted = {.param = param, .kind = kind};
    int64_t low = 0, high = manifest->n_tensors;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        const int order = compare_entries(&manifest->tensors[mid].entry, &wanted);
        if (order == 0) {
            return mid;
        }
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return -1;
}

/* ---- writing: part lists of all ranks into one ---- */

struct loose_piece {
    struct sw_ckpt_entry entry;
    struct ckpt_piece piece;
};

static int compare_loose(const void *a, const void *b)
{
    const struct loose_piece *pa = a, *pb = b;
    return compare_entries(&pa->entry, &pb->entry);
}

/* The part lists, open, and their boxes side by side. */
struct gathered {
    struct sw_json_doc **docs; /* [n_ranks] */
    int n_ranks;
    struct loose_piece *loose;
    int64_t n_loose;
};

static sw_status open_parts(struct ckpt_manifest *m, const char *folder, struct gathered *g)
{
    int64_t n_boxes = 0;
    m->files = array_of(m, g->n_ranks, sizeof(*m->files));
    if (!m->files) {
        return fail_memory();
    }
    for (int rank = 0; rank < g->n_ranks; rank++) {
        char name[32], path[PATH_MAX];
        sw_ckpt_part_name(rank, "json", name, sizeof(name));
        SW_TRY(sw_ckpt_join(folder, name, path));
        SW_TRY(sw_json_read(path, SW_JSON_STRICT, &g->docs[rank]));
        const struct sw_json_doc *doc = g->docs[rank];
        const struct sw_json *root = sw_json_root(g->docs[rank]), *boxes;
        struct ckpt_file *file = &m->files[m->n_files++];
        const char *digest_name;
        SW_TRY(need_str(doc, root, "file", &file->name));
        SW_TRY(need_i64(doc, root, "bytes", &file->bytes));
        SW_TRY(need_str(doc, root, "digest", &file->digest));
        SW_TRY(need_str(doc, root, "digest_name", &digest_name));
        if (rank > 0 && strcmp(digest_name, m->digest_name) != 0) {
            return SW_FAIL(SW_E_UNSUP,
                           "%s: digest %s, but rank 0 uses %s; all ranks need the same build", path,
                           digest_name, m->digest_name);
        }
        m->digest_name = digest_name;
        m->total_bytes += file->bytes;
        SW_TRY(check_range(doc, "bytes", m->total_bytes, 0, CKPT_MOST));
        SW_TRY(need_array(doc, root, "boxes", &boxes));
        n_boxes += boxes->n_children;
    }
    g->loose = sw_alloc_zero("checkpoint", (size_t)n_boxes, sizeof(*g->loose));
    return g->loose ? SW_OK : fail_memory();
}

static sw_status gather_boxes(const struct ckpt_manifest *m, struct gathered *g)
{
    for (int rank = 0; rank < g->n_ranks; rank++) {
        const struct sw_json_doc *doc = g->docs[rank];
        const struct sw_json *boxes = sw_json_get(sw_json_root(g->docs[rank]), "boxes");
        for (const struct sw_json *item = boxes->first; item; item = item->next) {
            struct loose_piece *loose = &g->loose[g->n_loose++];
            SW_TRY(read_entry(doc, item, &loose->entry));
            SW_TRY(read_piece(doc, item, &loose->entry, &loose->piece));
            loose->piece.i_file = rank;
            SW_TRY(check_piece_in_file(m, sw_json_name(doc), &loose->entry, &loose->piece));
        }
    }
    if (g->n_loose > 0) {
        qsort(g->loose, (size_t)g->n_loose, sizeof(*g->loose), compare_loose);
    }
    return SW_OK;
}

static sw_status group_tensors(struct ckpt_manifest *m, const char *folder,
                               const struct gathered *g)
{
    m->tensors = array_of(m, g->n_loose, sizeof(*m->tensors));
    struct ckpt_piece *pieces = array_of(m, g->n_loose, sizeof(*pieces));
    if (!m->tensors || !pieces) {
        return fail_memory();
    }
    for (int64_t i = 0; i < g->n_loose; i++) {
        const struct loose_piece *loose = &g->loose[i];
        const bool starts = i == 0 || compare_loose(loose - 1, loose) != 0;
        m->n_tensors += starts;
        struct ckpt_stored *tensor = &m->tensors[m->n_tensors - 1];
        if (starts) {
            tensor->entry = loose->entry;
            tensor->pieces = pieces + i;
        } else if (tensor->entry.dtype != loose->entry.dtype ||
                   !sw_shape_equal(&tensor->entry.shape, &loose->entry.shape)) {
            return SW_FAIL(SW_E_ARG, "%s: ranks disagree on dtype and shape of %s (%s)", folder,
                           loose->entry.param, loose->entry.kind);
        }
        pieces[i] = loose->piece;
        tensor->n_pieces++;
    }
    for (int64_t i = 0; i < m->n_tensors; i++) {
        SW_TRY(sw_ckpt_check_cover(folder, &m->tensors[i]));
    }
    return SW_OK;
}

static bool put_hex(struct sw_json_doc *doc, struct sw_json *object, const char *key,
                    uint64_t value)
{
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, value);
    return sw_json_put_str(doc, object, key, text) != NULL;
}

static bool put_meta(struct sw_json_doc *doc, const struct ckpt_manifest *m)
{
    struct sw_json *root = sw_json_root(doc), *features, *scaler;
    const struct sw_ckpt_meta *meta = &m->meta;
    return sw_json_put_str(doc, root, "format", FORMAT_NAME) &&
           sw_json_put_i64(doc, root, "version", FORMAT_VERSION) &&
           (features = sw_json_put(doc, root, "requires", SW_JSON_ARRAY)) &&
           sw_json_put_str(doc, features, NULL, "boxes") &&
           sw_json_put_i64(doc, root, "serial", m->serial) &&
           sw_json_put_i64(doc, root, "step", meta->step) &&
           sw_json_put_i64(doc, root, "applied", meta->applied) &&
           sw_json_put_i64(doc, root, "samples", meta->samples) &&
           put_hex(doc, root, "seed", meta->seed) &&
           put_hex(doc, root, "fingerprint", meta->fingerprint) &&
           (!meta->kernel_set || sw_json_put_str(doc, root, "kernel_set", meta->kernel_set)) &&
           (!meta->algorithms || sw_json_put_str(doc, root, "algorithms", meta->algorithms)) &&
           sw_json_put_f64(doc, root, "val_loss", meta->val_loss) &&
           put_metric(doc, root, &meta->metric) &&
           (scaler = sw_json_put(doc, root, "scaler", SW_JSON_OBJECT)) &&
           sw_json_put_f64(doc, scaler, "scale", meta->scaler.scale) &&
           sw_json_put_i64(doc, scaler, "iteration", meta->scaler.iteration) &&
           sw_json_put_i64(doc, scaler, "last_overflow", meta->scaler.last_overflow) &&
           sw_json_put_i64(doc, scaler, "hysteresis_left", meta->scaler.hysteresis_left) &&
           (meta->config ? sw_json_put_copy(doc, root, "config", meta->config)
                         : sw_json_put(doc, root, "config", SW_JSON_OBJECT)) &&
           (!meta->data || sw_json_put_copy(doc, root, "data", meta->data)) &&
           (!meta->training || sw_json_put_copy(doc, root, "training", meta->training)) &&
           sw_json_put_i64(doc, root, "writers", m->n_writers) &&
           sw_json_put_i64(doc, root, "total_bytes", m->total_bytes) &&
           sw_json_put_str(doc, root, "digest", m->digest_name);
}

static bool put_files(struct sw_json_doc *doc, const struct ckpt_manifest *m)
{
    struct sw_json *array = sw_json_put(doc, sw_json_root(doc), "files", SW_JSON_ARRAY);
    bool done = array != NULL;
    for (int64_t i = 0; i < m->n_files && done; i++) {
        const struct ckpt_file *file = &m->files[i];
        struct sw_json *object = sw_json_put(doc, array, NULL, SW_JSON_OBJECT);
        done = object && sw_json_put_str(doc, object, "name", file->name) &&
               sw_json_put_i64(doc, object, "bytes", file->bytes) &&
               sw_json_put_str(doc, object, "digest", file->digest);
    }
    return done;
}

static sw_status put_tensor(struct sw_json_doc *doc, struct sw_json *array,
                            const struct ckpt_stored *tensor)
{
    const struct sw_ckpt_entry *e = &tensor->entry;
    struct sw_json *object = sw_json_put(doc, array, NULL, SW_JSON_OBJECT), *boxes;
    if (!object || !sw_json_put_str(doc, object, "param", e->param) ||
        !sw_json_put_str(doc, object, "kind", e->kind) ||
        !sw_json_put_str(doc, object, "dtype", sw_dtype_name(e->dtype))) {
        return fail_memory();
    }
    SW_TRY(sw_ckpt_put_i64s(doc, object, "shape", e->shape.dims, e->shape.rank));
    if (!(boxes = sw_json_put(doc, object, "boxes", SW_JSON_ARRAY))) {
        return fail_memory();
    }
    for (int64_t i = 0; i < tensor->n_pieces; i++) {
        const struct ckpt_piece *piece = &tensor->pieces[i];
        struct sw_json *box = sw_json_put(doc, boxes, NULL, SW_JSON_OBJECT);
        if (!box || !sw_json_put_i64(doc, box, "file", piece->i_file) ||
            !sw_json_put_str(doc, box, "key", piece->key) ||
            !sw_json_put_i64(doc, box, "offset", piece->offset)) {
            return fail_memory();
        }
        SW_TRY(sw_ckpt_put_i64s(doc, box, "start", piece->box.start, e->shape.rank));
        SW_TRY(sw_ckpt_put_i64s(doc, box, "dims", piece->box.dims, e->shape.rank));
    }
    return SW_OK;
}

static sw_status put_all(struct sw_json_doc *doc, const struct ckpt_manifest *m)
{
    if (!put_meta(doc, m) || !put_files(doc, m)) {
        return fail_memory();
    }
    struct sw_json *array = sw_json_put(doc, sw_json_root(doc), "tensors", SW_JSON_ARRAY);
    if (!array) {
        return fail_memory();
    }
    for (int64_t i = 0; i < m->n_tensors; i++) {
        SW_TRY(put_tensor(doc, array, &m->tensors[i]));
    }
    return SW_OK;
}

static sw_status write_text(const struct ckpt_manifest *m, const char *path)
{
    struct sw_json_doc *doc;
    struct sw_str text = {0};
    sw_status st;
    SW_TRY(sw_json_new(path, &doc));
    SW_TRY_OR(close_doc, put_all(doc, m));
    sw_json_write(sw_json_root(doc), 0, &text);
    while (text.len > 0 && text.ptr[text.len - 1] != '}') {
        text.len--;
    }
    if (!text.failed) {
        text.ptr[--text.len] = '\0'; /* the closing brace comes after the check */
        const uint32_t crc = sw_crc32c(0, text.ptr, text.len);
        sw_str_printf(&text, "%s%08" PRIx32 "%s", check_before, crc, check_after);
    }
    SW_TRY_OR(close_doc, sw_file_write_str(path, &text));
close_doc:
    sw_str_fini(&text);
    sw_json_close(doc);
    return st;
}

static sw_status merge(struct ckpt_manifest *m, const char *folder, struct gathered *g)
{
    char path[PATH_MAX];
    SW_TRY(open_parts(m, folder, g));
    SW_TRY(gather_boxes(m, g));
    SW_TRY(group_tensors(m, folder, g));
    SW_TRY(sw_ckpt_join(folder, CKPT_MANIFEST, path));
    for (int rank = 0; rank < g->n_ranks; rank++) {
        char name[32], list[PATH_MAX];
        sw_ckpt_part_name(rank, "json", name, sizeof(name));
        SW_TRY(sw_ckpt_join(folder, name, list));
        SW_TRY(sw_ckpt_unlink(list));
    }
    SW_TRY(write_text(m, path)); /* syncs the folder: part files, removed lists and manifest */
    return SW_OK;
}

sw_status sw_ckpt_manifest_write(const char *folder, const struct sw_ckpt_meta *meta,
                                 int64_t serial, int n_ranks)
{
    struct ckpt_manifest m = {.serial = serial, .n_writers = n_ranks, .meta = *meta};
    struct gathered g = {.n_ranks = n_ranks};
    g.docs = sw_alloc_zero("checkpoint", (size_t)n_ranks, sizeof(struct sw_json_doc *));
    SW_TRY_ALLOC(g.docs, "the manifest of a checkpoint");
    sw_arena_init(&m.arena, "checkpoint");
    const sw_status st = merge(&m, folder, &g);
    for (int rank = 0; rank < n_ranks; rank++) {
        sw_json_close(g.docs[rank]);
    }
    sw_free(g.docs);
    sw_free(g.loose);
    sw_ckpt_manifest_fini(&m);
    SW_TRY(st);
    return SW_OK;
}
