// SPDX-License-Identifier: Apache-2.0
// A run may resume from a checkpoint only if both agree: on the arithmetic (by its fingerprint) and
// on the data (by sizes and digests). A refusal names every key that changed, with the old and the
// new value.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "weights/private.h"

/* Limits on one value in a message, and on all changes together. */
enum { VALUE_CAP = 64, CHANGES_CAP = 1200 };

struct changes {
    const struct sw_config *config;
    struct sw_str text; /* "key old -> new, key old -> new" */
    int n;
};

static void add_change(struct changes *c, const char *key, const char *was, const char *is)
{
    c->n++;
    if (c->text.len < CHANGES_CAP) {
        sw_str_printf(&c->text, "%s%s %s -> %s", c->n > 1 ? ", " : "", key, was, is);
    } else if (c->text.len < CHANGES_CAP + 8) { /* a message is one line of limited length */
        sw_str_puts(&c->text, ", and more");
    }
}

/* ---- keys of the configuration and of the model ---- */

static const char *value_text(const struct sw_json *value, char *buf)
{
    struct sw_str text = {0};
    if (!value) {
        return "not given";
    }
    sw_json_write(value, 0, &text);
    size_t len = text.len;
    while (len > 0 && text.ptr[len - 1] == '\n') {
        len--;
    }
    snprintf(buf, VALUE_CAP, len < VALUE_CAP ? "%.*s" : "%.*s..",
             (int)sw_min_i64((int64_t)len, VALUE_CAP - 3), sw_str_text(&text));
    sw_str_fini(&text);
    return buf;
}

static bool is_number(const struct sw_json *value)
{
    return value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT;
}

static bool equal(const struct sw_json *a, const struct sw_json *b)
{
    if (is_number(a) && is_number(b)) {
        return a->number == b->number;
    }
    struct sw_str x = {0}, y = {0};
    sw_json_write(a, 0, &x);
    sw_json_write(b, 0, &y);
    const bool same = strcmp(sw_str_text(&x), sw_str_text(&y)) == 0;
    sw_str_fini(&x);
    sw_str_fini(&y);
    return same;
}

/* True if the key, or the object that it is in, says how and not what is computed. */
static bool changes_no_bit(const char *key)
{
    static const char *const keys[] = {"pipeline",
                                       "spillway.chunks",
                                       "spillway.comm",
                                       "spillway.device_memory",
                                       "spillway.disk_slots",
                                       "spillway.host_memory",
                                       "spillway.mesh.pipe",
                                       "spillway.nvme_space",
                                       "spillway.partition",
                                       "spillway.recompute",
                                       "spillway.recompute_blocks",
                                       "spillway.schedule",
                                       "spillway.threads",
                                       "spillway.tile_bytes",
                                       "spillway.transfer_bytes"};
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        const size_t len = strlen(keys[i]);
        if (strncmp(key, keys[i], len) == 0 && (key[len] == '\0' || key[len] == '.')) {
            return true;
        }
    }
    return false;
}

/* True if the program that saved the checkpoint did not know the key, and the key is not set now.
 * Then nothing changed. */
static bool is_new_default(const struct changes *c, const char *key, const struct sw_json *was)
{
    return !was && sw_config_origin_of(c->config, key) == SW_CONFIG_DEFAULT;
}

static void compare(struct changes *c, const char *path, const struct sw_json *was,
                    const struct sw_json *is);

/* Compares the members of `one` with `other`; NULL = it has none. Two rounds cover both sides;
 * members that both have are compared in the first round only. */
static void compare_members(struct changes *c, const char *path, const struct sw_json *one,
                            const struct sw_json *other, bool first)
{
    for (const struct sw_json *m = one->first; m; m = m->next) {
        char key[512];
        const struct sw_json *match = other ? sw_json_get(other, m->key) : NULL;
        if (match && !first) {
            continue;
        }
        snprintf(key, sizeof key, "%s%s%s", path, *path ? "." : "", m->key);
        compare(c, key, first ? m : NULL, first ? match : m);
    }
}

static void compare(struct changes *c, const char *path, const struct sw_json *was,
                    const struct sw_json *is)
{
    char old_text[VALUE_CAP], new_text[VALUE_CAP];
    if (was && is && was->type == SW_JSON_OBJECT && is->type == SW_JSON_OBJECT) {
        compare_members(c, path, was, is, true);
        compare_members(c, path, is, was, false);
    } else if (!was && is->type == SW_JSON_OBJECT) {
        compare_members(c, path, is, NULL, false);
    } else if (!changes_no_bit(path) && !is_new_default(c, path, was) &&
               !(was && is && equal(was, is))) {
        add_change(c, path, value_text(was, old_text), value_text(is, new_text));
    }
}

static sw_status list_changes(const struct sw_weights *w, const struct sw_weights_run *run,
                              const struct sw_ckpt_meta *meta, struct changes *c)
{
    struct sw_json_doc *doc = NULL;
    char was[32], is[32];
    SW_TRY(sw_weights_describe_run(w, run->tokens, &doc));
    const struct sw_json *now = sw_json_root(doc);
    if (meta->config) {
        compare(c, "", sw_json_get(meta->config, "ds_config"), sw_json_get(now, "ds_config"));
        compare(c, "model", sw_json_get(meta->config, "model"), sw_json_get(now, "model"));
        if (sw_json_get(meta->config, "seq_len")) { /* older versions did not write it */
            compare(c, "seq_len", sw_json_get(meta->config, "seq_len"),
                    sw_json_get(now, "seq_len"));
        }
    }
    sw_json_close(doc);
    if (meta->seed != w->seed && !strstr(sw_str_text(&c->text), "spillway.seed ")) {
        snprintf(was, sizeof was, "%llu", (unsigned long long)meta->seed);
        snprintf(is, sizeof is, "%llu", (unsigned long long)w->seed);
        add_change(c, "seed", was, is);
    }
    const char *kernels = sw_device_kernel_set(run->device);
    if (meta->kernel_set && strcmp(meta->kernel_set, kernels) != 0) {
        add_change(c, "kernels", meta->kernel_set, kernels);
    }
    if (c->n == 0) {
        sw_str_printf(&c->text,
                      "no key of the configuration: its fingerprint is %016llx and this run's "
                      "%016llx, so another version of the program wrote it",
                      (unsigned long long)meta->fingerprint,
                      (unsigned long long)w->plan->fingerprint);
    }
    return SW_OK;
}

/* Lists changed library algorithms, where the kernels are the same. */
static sw_status list_algorithms(const struct sw_weights_run *run, const struct sw_ckpt_meta *meta,
                                 struct changes *c)
{
    struct sw_str now = {0};
    struct sw_other_algorithm other;
    sw_device_algorithms(run->device, &now);
    /* older versions did not record it */
    const char *was = meta->algorithms ? meta->algorithms : "";
    while (sw_device_next_other_algorithm(&was, sw_str_text(&now), &other)) {
        char key[sizeof other.product + 16];
        snprintf(key, sizeof key, "product of %s:", other.product);
        add_change(c, key, other.was, other.is);
    }
    const bool failed = now.failed;
    sw_str_fini(&now);
    return failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for algorithms") : SW_OK;
}

/* Appends the reasons for a refusal. Appends nothing if the arithmetic is the same, or if other
 * arithmetic is allowed. */
static sw_status check_math(const struct sw_weights *w, const struct sw_weights_run *run,
                            const struct sw_ckpt *ckpt, struct sw_str *refusal)
{
    const struct sw_ckpt_meta *meta = sw_ckpt_meta(ckpt);
    const bool same = meta->fingerprint == w->plan->fingerprint;
    struct changes c = {.config = w->config};
    const sw_status st = same ? list_algorithms(run, meta, &c) : list_changes(w, run, meta, &c);
    if (st >= 0 && c.n == 0 && same) {
        return SW_OK;
    }
    if (st >= 0 && w->config->spillway.allow_other_math) {
        sw_log(run->rank == 0 ? SW_LOG_WARN : SW_LOG_DEBUG,
               "%s: written under other arithmetic; continuing, because spillway.allow_other_math "
               "is set; changed: %s",
               sw_ckpt_path(ckpt), sw_str_text(&c.text));
    } else if (st >= 0) {
        sw_str_printf(refusal,
                      "it was written under %s; changed: %s; --set spillway.allow_other_math=true "
                      "continues anyway",
                      same ? "the same kernels, of which a library chose others"
                           : "another math fingerprint",
                      sw_str_text(&c.text));
    }
    refusal->failed |= c.text.failed;
    sw_str_fini(&c.text);
    return st;
}

/* ---- data ---- */

static const char *string_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *member = sw_json_get(object, key);
    return member && member->type == SW_JSON_STRING ? member->string : "?";
}

static int64_t count_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *member = sw_json_get(object, key);
    return member && member->type == SW_JSON_INT ? member->integer : -1;
}

/* Formats a file: "text.txt (1234 bytes, 0123456789ab)". */
static const char *file_text(const struct sw_json *file, char *buf, size_t cap)
{
    if (!file) {
        return "none";
    }
    snprintf(buf, cap, "%.200s (%lld bytes, %.12s)", string_of(file, "name"),
             (long long)count_of(file, "bytes"), string_of(file, "digest"));
    return buf;
}

/* The same bytes in the same order are the same data; file names do not matter. */
static void compare_files(struct changes *c, const char *key, const struct sw_json *was,
                          const struct sw_json *is, bool digests)
{
    const struct sw_json *a = was ? was->first : NULL, *b = is ? is->first : NULL;
    while (a || b) {
        char old_text[320], new_text[320];
        if (!a || !b || count_of(a, "bytes") != count_of(b, "bytes") ||
            (digests && strcmp(string_of(a, "digest"), string_of(b, "digest")) != 0)) {
            add_change(c, key, file_text(a, old_text, sizeof old_text),
                       file_text(b, new_text, sizeof new_text));
        }
        a = a ? a->next : NULL;
        b = b ? b->next : NULL;
    }
}

/* Compares template, date and loss of chats. Data without chats counts as "none". */
static void compare_chats(struct changes *c, const struct sw_json *was, const struct sw_json *is,
                          bool digests)
{
    static const char *const keys[][2] = {
        {"template", "chat template"}, {"date", "--chat-date"}, {"loss_on", "--loss-on"}};
    for (size_t i = 0; (was || is) && i < SW_LEN(keys); i++) {
        const char *old_text = was ? string_of(was, keys[i][0]) : "none";
        const char *new_text = is ? string_of(is, keys[i][0]) : "none";
        if ((digests || i > 0) && strcmp(old_text, new_text) != 0) {
            add_change(c, keys[i][1], old_text, new_text);
        }
    }
}

/* Compares the tokens that the tokenizer adds around a text, and its token types. Records of older
 * versions lack these keys; those versions had neither. */
static void compare_templates(struct changes *c, const struct sw_json *was,
                              const struct sw_json *is)
{
    static const char *const keys[][3] = {{"texts", "tokens around a text (--no-bos)", "none"},
                                          {"token_types", "token types", "the template's"}};
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        const char *old_text =
            sw_json_get(was, keys[i][0]) ? string_of(was, keys[i][0]) : keys[i][2];
        const char *new_text = sw_json_get(is, keys[i][0]) ? string_of(is, keys[i][0]) : keys[i][2];
        if (strcmp(old_text, new_text) != 0) {
            add_change(c, keys[i][1], old_text, new_text);
        }
    }
}

/* "0.7 0.3", or "none". */
static void put_weights(const struct sw_json *record, char *buf, size_t cap)
{
    const struct sw_json *weights = sw_json_get(record, "weights");
    size_t n = 0;
    snprintf(buf, cap, "none");
    for (const struct sw_json *w = weights ? weights->first : NULL; w && n < cap; w = w->next) {
        n += (size_t)snprintf(buf + n, cap - n, "%s%g", n > 0 ? " " : "", w->number);
    }
}

/* The order of samples: shares of files, and the size of batches of similar lengths. */
static void compare_order(struct changes *c, const struct sw_json *was, const struct sw_json *is)
{
    char old_text[160], new_text[160];
    put_weights(was, old_text, sizeof old_text);
    put_weights(is, new_text, sizeof new_text);
    if (strcmp(old_text, new_text) != 0) {
        add_change(c, "weights of the data", old_text, new_text);
    }
    if (count_of(was, "group_by_length") != count_of(is, "group_by_length")) {
        snprintf(old_text, sizeof old_text, "%lld", (long long)count_of(was, "group_by_length"));
        snprintf(new_text, sizeof new_text, "%lld", (long long)count_of(is, "group_by_length"));
        add_change(c, "samples of a batch of similar lengths", old_text, new_text);
    }
}

/* Compares the vocabularies of tokenizers and, if these are the same, what else makes ids of a
 * text. Records of older versions have no digest of the latter. */
static void compare_tokenizers(struct changes *c, const struct sw_json *was,
                               const struct sw_json *is)
{
    char old_text[160], new_text[160];
    if (strcmp(string_of(was, "digest"), string_of(is, "digest")) != 0) {
        snprintf(old_text, sizeof old_text, "%s of %lld tokens", string_of(was, "kind"),
                 (long long)count_of(was, "tokens"));
        snprintf(new_text, sizeof new_text, "%s of %lld tokens", string_of(is, "kind"),
                 (long long)count_of(is, "tokens"));
        add_change(c, "tokenizer", old_text, new_text);
    } else if (sw_json_get(was, "rules") && sw_json_get(is, "rules") &&
               strcmp(string_of(was, "rules"), string_of(is, "rules")) != 0) {
        snprintf(old_text, sizeof old_text, "%.12s", string_of(was, "rules"));
        snprintf(new_text, sizeof new_text, "%.12s", string_of(is, "rules"));
        add_change(c, "rules of the tokenizer (merges, normalizer, added tokens, ..)", old_text,
                   new_text);
    }
}

static void compare_data(struct changes *c, const struct sw_json *was, const struct sw_json *is)
{
    const bool digests = strcmp(string_of(was, "digest"), string_of(is, "digest")) == 0;
    const struct sw_json *old_val = sw_json_get(was, "val_files");
    const struct sw_json *new_val = sw_json_get(is, "val_files");
    const struct sw_json *old_words = sw_json_get(was, "tokenizer");
    const struct sw_json *new_words = sw_json_get(is, "tokenizer");
    char old_text[160], new_text[160];
    compare_files(c, "data", sw_json_get(was, "files"), sw_json_get(is, "files"), digests);
    if (old_val && new_val) { /* adding or dropping validation data is not a change */
        compare_files(c, "validation data", old_val, new_val, digests);
    }
    if (digests && old_words && new_words) {
        compare_tokenizers(c, old_words, new_words);
    }
    compare_chats(c, sw_json_get(was, "chat"), sw_json_get(is, "chat"), digests);
    compare_templates(c, was, is);
    if (strcmp(string_of(was, "task"), string_of(is, "task")) != 0) {
        add_change(c, "task", string_of(was, "task"), string_of(is, "task"));
    }
    compare_order(c, was, is);
    if (c->n == 0 && count_of(was, "samples") != count_of(is, "samples")) {
        snprintf(old_text, sizeof old_text, "%lld", (long long)count_of(was, "samples"));
        snprintf(new_text, sizeof new_text, "%lld (--eval-every holds back a part)",
                 (long long)count_of(is, "samples"));
        add_change(c, "training samples", old_text, new_text);
    }
}

static void check_data(const struct sw_config *config, const struct sw_training *training,
                       const struct sw_ckpt *ckpt, struct sw_str *refusal)
{
    const struct sw_json *was = sw_ckpt_meta(ckpt)->data;
    struct changes c = {.config = config};
    if (!training->data) {
        return; /* the caller feeds the data, or another rank checks it */
    }
    if (!was) {
        sw_log(SW_LOG_WARN,
               "%s does not say which data it was trained on (an older program wrote it); "
               "continuing with the given data",
               sw_ckpt_path(ckpt));
        return;
    }
    if (strcmp(string_of(was, "digest"), string_of(training->data, "digest")) != 0) {
        sw_log(SW_LOG_WARN,
               "%s: its digests of the data are %s, but this build computes %s; only sizes are "
               "compared",
               sw_ckpt_path(ckpt), string_of(was, "digest"), string_of(training->data, "digest"));
    }
    compare_data(&c, was, training->data);
    if (c.n > 0 && training->allow_other_data) {
        sw_log(SW_LOG_WARN, "%s: continuing with other data, as requested: %s", sw_ckpt_path(ckpt),
               sw_str_text(&c.text));
    } else if (c.n > 0) {
        sw_str_printf(refusal,
                      "%sit was trained on other data: %s; --allow-other-data continues anyway",
                      refusal->len ? "; and " : "", sw_str_text(&c.text));
    }
    refusal->failed |= c.text.failed;
    sw_str_fini(&c.text);
}

sw_status sw_weights_check_resume(const struct sw_weights *w, const struct sw_weights_run *run,
                                  const struct sw_ckpt *ckpt)
{
    struct sw_str refusal = {0};
    sw_status st = check_math(w, run, ckpt, &refusal);
    if (st >= 0) {
        sw_weights_check_base(w, ckpt, &refusal);
        check_data(w->config, run->training, ckpt, &refusal);
    }
    if (st >= 0 && refusal.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for comparing a checkpoint with this run");
    } else if (st >= 0 && refusal.len > 0) {
        st = SW_FAIL(SW_E_CONFIG, "%s: %s", sw_ckpt_path(ckpt), sw_str_text(&refusal));
    }
    sw_str_fini(&refusal);
    return st;
}
