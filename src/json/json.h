// SPDX-License-Identifier: Apache-2.0
// json - a reader that reports line and column, and a writer. Two dialects: strict (RFC 8259, used
// by file formats) and tolerant (hjson as DeepSpeed reads ds_config.json). Tolerant adds comments,
// trailing or missing commas at line ends, unquoted keys and strings, single quotes, a missing
// outer pair of braces, and a byte order mark. Duplicate keys are an error in both. Nodes live in
// the document's arena.
#pragma once

#include "base/base.h"

enum sw_json_type {
    SW_JSON_NULL,
    SW_JSON_BOOL,
    SW_JSON_INT,   /* an integer that fits int64_t (tolerant: any spelling below 1e10) */
    SW_JSON_FLOAT, /* all other numbers */
    SW_JSON_STRING,
    SW_JSON_ARRAY,
    SW_JSON_OBJECT
};

enum sw_json_dialect { SW_JSON_STRICT, SW_JSON_TOLERANT };

struct sw_json {
    enum sw_json_type type;
    int line, column; /* of the value's first character, 1-based; 0 for nodes made by code */
    int key_line, key_column; /* of its key, if it is a member of an object */
    const char *key; /* NULL unless member of an object; UTF-8, may contain NUL, so use key_len */
    size_t key_len;
    bool boolean;
    int64_t integer;    /* INT: the value; FLOAT: truncated */
    double number;      /* INT and FLOAT */
    const char *string; /* STRING: unescaped UTF-8, NUL-terminated */
    size_t string_len;
    /* the number, or the string between its quotes, as in the text; NUL-terminated */
    const char *raw;
    struct sw_json *parent, *first, *last, *next; /* children in text order */
    int64_t n_children;
};

struct sw_json_doc; /* owns the nodes */

/*
 * sw_json_parse - reads one document from text.
 *
 * name         for messages: a path, or "--set"; borrowed for the call
 * text         [len] need not be NUL-terminated
 *
 * SW_E_FORMAT  "name:line:column: what was expected and what was found"
 */
sw_status sw_json_parse(const char *name, const char *text, size_t len,
                        enum sw_json_dialect dialect, struct sw_json_doc **out);
sw_status sw_json_read(const char *path, enum sw_json_dialect dialect, struct sw_json_doc **out);
/*
 * sw_json_scan - reports the parts of a strict document in text order, without a tree. Its memory
 * is
 * that of the longest string.
 *
 * fn           called for each scalar, and when a container opens and closes. `value` has type, key
 *              (NULL in an array, at the root and on closing) and a scalar's contents, borrowed for
 *              the call. `depth` counts the enclosing containers. A failure of fn ends the scan and
 *              is returned. fn must detect duplicate keys itself
 *
 * SW_E_FORMAT  as sw_json_parse
 */
enum sw_json_event { SW_JSON_SCALAR, SW_JSON_OPEN, SW_JSON_CLOSE };
typedef sw_status (*sw_json_event_fn)(void *ctx, enum sw_json_event event,
                                      const struct sw_json *value, int depth);
sw_status sw_json_scan(const char *name, const char *text, size_t len, sw_json_event_fn fn,
                       void *ctx);
/* Makes an empty object to build on. */
sw_status sw_json_new(const char *name, struct sw_json_doc **out);
void sw_json_close(struct sw_json_doc *doc);
struct sw_json *sw_json_root(struct sw_json_doc *doc);
const char *sw_json_name(const struct sw_json_doc *doc);

/* Member of an object by key (hash index for large objects); NULL if absent or not an object. */
struct sw_json *sw_json_get(const struct sw_json *object, const char *key);
/* Looks up "a.b.c" from object. */
struct sw_json *sw_json_path(const struct sw_json *object, const char *path);
const char *
sw_json_type_name(enum sw_json_type type); /* "an object", "a string", .. for messages */

/* Typed lookup with a default for optional members; JSON null counts as absent. SW_E_FORMAT: wrong
 * type; the message has file, line, key, and the wanted and found types. `doc` is for messages. */
sw_status sw_json_get_i64(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, int64_t fallback, int64_t *out);
sw_status sw_json_get_f64(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, double fallback, double *out);
sw_status sw_json_get_bool(const struct sw_json_doc *doc, const struct sw_json *object,
                           const char *key, bool fallback, bool *out);
/* out is borrowed from the document. */
sw_status sw_json_get_str(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, const char *fallback, const char **out);

/* Building and editing: returns the new or replaced member, NULL if out of memory. key NULL appends
 * to an array. */
struct sw_json *sw_json_put(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                            enum sw_json_type type);
struct sw_json *sw_json_put_i64(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                int64_t value);
struct sw_json *sw_json_put_f64(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                double value);
struct sw_json *sw_json_put_bool(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                 bool value);
struct sw_json *sw_json_put_str(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                const char *value);
/* Deep copy of `value` (of any document) under parent. */
struct sw_json *sw_json_put_copy(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                 const struct sw_json *value);
void sw_json_remove(struct sw_json *parent, struct sw_json *child);

/* Compact (indent 0) or indented text. Doubles print with the fewest digits that read back equal.
 * Integers beyond int64_t print as they were written. NaN and infinities print as null: JSON has
 * neither. */
void sw_json_write(const struct sw_json *value, int indent, struct sw_str *out);
/* One string as JSON, quotes included; invalid UTF-8 becomes U+FFFD. */
void sw_json_write_string(const char *text, size_t len, struct sw_str *out);
void sw_json_write_f64(double value, struct sw_str *out);
/* The same, with the strings "NaN", "Infinity" and "-Infinity" for what JSON has no numbers for. */
void sw_json_write_any_f64(double value, struct sw_str *out);
/* Reads what sw_json_write_any_f64 wrote; false: it is neither a number nor one of the strings. */
bool sw_json_any_f64(const struct sw_json *value, double *out);

/* Length of the well-formed UTF-8 prefix of text; len if all is well-formed. */
size_t sw_json_utf8_check(const char *text, size_t len);
