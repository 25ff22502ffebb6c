// SPDX-License-Identifier: Apache-2.0
// The record of the training data that checkpoints keep: files, tokenizer, chat template and
// samples per epoch. A file has a name, size and digest, in reading order; an image folder has one
// entry per class.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job/private.h"

enum { PIECE_BYTES = 1 << 20 };

struct record {
    struct sw_json_doc *doc;
    struct sw_json *files; /* the array being filled */
    void *piece;           /* [PIECE_BYTES] */
    /* The current class of an image folder. */
    struct sw_digest *digest;
    int64_t bytes;
    char class_name[256];
};

static sw_status fail_memory(void)
{
    return SW_FAIL(SW_E_NOMEM, "out of host memory for the record of the data");
}

/* all: total bytes, for progress; -1: no progress is reported. */
static sw_status digest_fd(int fd, int64_t all, const char *path, void *piece,
                           struct sw_digest *digest, int64_t *out_bytes)
{
    int64_t bytes = 0;
    for (;;) {
        if (all >= 0) {
            sw_work_at("checking the data", bytes, all);
        }
        const ssize_t n = read(fd, piece, PIECE_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return SW_FAIL(SW_E_IO, "cannot read %s: %s", path, strerror(errno));
        }
        if (n == 0) {
            *out_bytes = bytes;
            return SW_OK;
        }
        sw_digest_update(digest, piece, (size_t)n);
        bytes += n;
    }
}

static sw_status digest_path(const char *path, bool tells, void *piece, struct sw_digest *digest,
                             int64_t *out_bytes)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    sw_status st = SW_OK;
    if (fd < 0 || fstat(fd, &info) != 0) {
        st = SW_FAIL(SW_E_IO, "cannot read %s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        st = SW_FAIL(SW_E_IO, "cannot read %s: it is not a regular file", path);
    } else {
        posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        st = digest_fd(fd, tells ? (int64_t)info.st_size : -1, path, piece, digest, out_bytes);
    }
    if (fd >= 0) {
        close(fd);
    }
    return st;
}

static sw_status put_file(struct record *r, const char *name, int64_t bytes, const char hex[33])
{
    struct sw_json *file = sw_json_put(r->doc, r->files, NULL, SW_JSON_OBJECT);
    return file && sw_json_put_str(r->doc, file, "name", name) &&
                   sw_json_put_i64(r->doc, file, "bytes", bytes) &&
                   sw_json_put_str(r->doc, file, "digest", hex)
               ? SW_OK
               : fail_memory();
}

/* ---- folders of pictures: an entry for each class ---- */

/* Writes the entry of the current class. */
static sw_status end_class(struct record *r)
{
    char hex[33];
    if (!r->digest) {
        return SW_OK;
    }
    sw_digest_hex(r->digest, hex);
    sw_digest_close(r->digest);
    r->digest = NULL;
    return put_file(r, r->class_name, r->bytes, hex);
}

/* Hashes the name of the class, and the size and bytes of each picture. */
static sw_status add_picture(void *ctx, const char *path, const char *class_name)
{
    struct record *r = ctx;
    int64_t bytes;
    if (!r->digest || strcmp(r->class_name, class_name) != 0) {
        SW_TRY(end_class(r));
        SW_TRY(sw_digest_open(&r->digest));
        snprintf(r->class_name, sizeof r->class_name, "%s", class_name);
        sw_digest_update(r->digest, class_name, strlen(class_name) + 1);
        r->bytes = 0;
    }
    SW_TRY(digest_path(path, false, r->piece, r->digest, &bytes));
    sw_digest_update(r->digest, &bytes, sizeof bytes);
    r->bytes += bytes;
    return SW_OK;
}

static sw_status add_pictures(struct record *r, const char *folder)
{
    sw_status st = sw_data_each_picture(folder, add_picture, r);
    st = st < 0 ? st : end_class(r);
    if (r->digest) {
        sw_digest_close(r->digest);
        r->digest = NULL;
    }
    return st;
}

/* ---- the whole record ---- */

static sw_status add_file(void *ctx, const char *path)
{
    struct record *r = ctx;
    struct sw_digest *digest;
    char hex[33];
    int64_t bytes;
    if (sw_is_folder(path)) {
        return add_pictures(r, path);
    }
    SW_TRY(sw_digest_open(&digest));
    const sw_status st = digest_path(path, true, r->piece, digest, &bytes);
    sw_work_end();
    sw_digest_hex(digest, hex);
    sw_digest_close(digest);
    SW_TRY(st);
    const char *slash = strrchr(path, '/');
    return put_file(r, slash ? slash + 1 : path, bytes, hex);
}

static sw_status add_files(struct record *r, const char *key, const char *const *files, int n)
{
    r->files = sw_json_put(r->doc, sw_json_root(r->doc), key, SW_JSON_ARRAY);
    if (!r->files) {
        return fail_memory();
    }
    return sw_data_each_file(files, n, add_file, r);
}

static sw_status digest_vocabulary(const sw_tokenizer *tokenizer, char hex[33])
{
    struct sw_digest *digest;
    const int64_t n = sw_tokenizer_vocab_size(tokenizer);
    SW_TRY(sw_digest_open(&digest));
    for (int64_t id = 0; id < n; id++) {
        size_t len = 0;
        const char *token = sw_tokenizer_token(tokenizer, (int32_t)id, &len);
        const uint64_t head[] = {(uint64_t)id, token ? len : UINT64_MAX};
        sw_digest_update(digest, head, sizeof head);
        if (token) {
            sw_digest_update(digest, token, len);
        }
    }
    sw_digest_hex(digest, hex);
    sw_digest_close(digest);
    return SW_OK;
}

/* Texts have their template in the record, see add_template. */
static sw_status digest_rules(const sw_tokenizer *tokenizer, bool templated, char hex[33])
{
    struct sw_digest *digest;
    struct sw_str rules = {0};
    sw_status st = sw_tokenizer_put_rules(tokenizer, &rules);
    if (!templated) {
        sw_tokenizer_put_templates(tokenizer, &rules);
    }
    st = st >= 0 && rules.failed ? fail_memory() : st;
    st = st < 0 ? st : sw_digest_open(&digest);
    if (st >= 0) {
        sw_digest_update(digest, sw_str_text(&rules), rules.len);
        sw_digest_hex(digest, hex);
        sw_digest_close(digest);
    }
    sw_str_fini(&rules);
    return st;
}

/* Identifies a tokenizer by its vocabulary and its rules. Records of older versions have no rules;
 * the vocabulary alone is compared with them. */
static sw_status add_tokenizer(struct record *r, const sw_tokenizer *tokenizer, bool templated)
{
    char words[33], rules[33];
    SW_TRY(digest_vocabulary(tokenizer, words));
    SW_TRY(digest_rules(tokenizer, templated, rules));
    struct sw_json *object = sw_json_put(r->doc, sw_json_root(r->doc), "tokenizer", SW_JSON_OBJECT);
    if (!object || !sw_json_put_str(r->doc, object, "kind", sw_tokenizer_kind(tokenizer)) ||
        !sw_json_put_i64(r->doc, object, "tokens", sw_tokenizer_vocab_size(tokenizer)) ||
        !sw_json_put_str(r->doc, object, "digest", words) ||
        !sw_json_put_str(r->doc, object, "rules", rules)) {
        return fail_memory();
    }
    return SW_OK;
}

/* Omits the key if texts have no template, so that the record equals one from before the key
 * existed. */
static sw_status add_template(struct record *r, const sw_tokenizer *tokenizer)
{
    struct sw_str text = {0};
    sw_tokenizer_template_text(tokenizer, &text);
    const bool good =
        !text.failed &&
        (text.len == 0 || sw_json_put_str(r->doc, sw_json_root(r->doc), "texts", text.ptr));
    sw_str_fini(&text);
    return good ? SW_OK : fail_memory();
}

static sw_status add_chat(struct record *r, const sw_chat *chat)
{
    char day[11];
    struct sw_json *object = sw_json_put(r->doc, sw_json_root(r->doc), "chat", SW_JSON_OBJECT);
    sw_day_text(sw_chat_date(chat), day);
    if (!object || !sw_json_put_str(r->doc, object, "template", sw_chat_digest(chat)) ||
        !sw_json_put_str(r->doc, object, "date", day) ||
        !sw_json_put_str(r->doc, object, "loss_on", sw_loss_on_name(sw_chat_loss_on(chat)))) {
        return fail_memory();
    }
    return SW_OK;
}

/* Omits what is not set, as in the records of earlier versions. */
static sw_status add_order(struct record *r, const struct sw_data_record_options *o)
{
    struct sw_json *root = sw_json_root(r->doc);
    struct sw_json *weights =
        o->weights ? sw_json_put(r->doc, root, "weights", SW_JSON_ARRAY) : NULL;
    bool good = weights || !o->weights;
    for (int i = 0; i < o->n_files && weights && good; i++) {
        good = sw_json_put_f64(r->doc, weights, NULL, o->weights[i]);
    }
    good = good && (o->group == 0 || sw_json_put_i64(r->doc, root, "group_by_length", o->group));
    return good ? SW_OK : fail_memory();
}

static sw_status fill(struct record *r, const struct sw_data_record_options *o)
{
    struct sw_json *root = sw_json_root(r->doc);
    if (!r->piece || !sw_json_put_str(r->doc, root, "digest", sw_digest_name()) ||
        !sw_json_put_i64(r->doc, root, "samples", o->n_samples)) {
        return fail_memory();
    }
    SW_TRY(add_files(r, "files", o->files, o->n_files));
    if (o->n_val_files > 0) {
        SW_TRY(add_files(r, "val_files", o->val_files, o->n_val_files));
    }
    SW_TRY(add_order(r, o));
    if (o->chat) {
        SW_TRY(add_chat(r, o->chat));
    }
    if (o->task && !sw_json_put_str(r->doc, root, "task", o->task)) {
        return fail_memory();
    }
    if (o->task && o->tokenizer && sw_tokenizer_has_no_types(o->tokenizer) &&
        !sw_json_put_str(r->doc, root, "token_types", "all 0")) {
        return fail_memory();
    }
    if (o->templated) {
        SW_TRY(add_template(r, o->tokenizer));
    }
    return o->tokenizer ? add_tokenizer(r, o->tokenizer, o->templated) : SW_OK;
}

sw_status sw_data_record(const struct sw_data_record_options *options, struct sw_json_doc **out)
{
    struct record r = {.piece = sw_alloc("train", PIECE_BYTES)};
    sw_status st = sw_json_new("data", &r.doc);
    st = st < 0 ? st : fill(&r, options);
    sw_free(r.piece);
    if (st < 0) {
        sw_json_close(r.doc);
        return st;
    }
    *out = r.doc;
    return SW_OK;
}
