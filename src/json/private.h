// SPDX-License-Identifier: Apache-2.0
// Declarations that the files of json share: the node behind struct sw_json, the document, the key
// index and the reader's state.
#pragma once

#include "json/json.h"

/* Objects with at least this many members are looked up through an index. */
enum { SW_JSON_INDEX_FROM = 16 };
/* Limit of nested containers. Nothing here recurses: the limit protects code that walks trees. */
enum { SW_JSON_MAX_DEPTH = 512 };

struct key_index; /* open addressing, maps keys to members */

/* Every struct sw_json is the first member of one of these. */
struct sw_json_node {
    struct sw_json json;
    struct key_index *index; /* OBJECT with many members, else NULL; in the document's arena */
};

struct sw_json_doc {
    struct sw_arena arena;
    const char *name;
    struct sw_json *root;
};

/* ---- tree.c ---- */

struct sw_json *sw_json_node_new(struct sw_json_doc *doc, enum sw_json_type type);
/* Appends child to parent. False if out of memory (for the index). */
bool sw_json_append(struct sw_json_doc *doc, struct sw_json *parent, struct sw_json *child);
struct sw_json *sw_json_find(const struct sw_json *object, const char *key, size_t key_len);

/* ---- utf8.c ---- */

/* Bytes of the well-formed UTF-8 sequence at text, 1 to 4; 0 if there is none within len bytes. */
size_t sw_json_utf8_len(const char *text, size_t len);
/* Writes code (at most 0x10ffff, not a surrogate) to out; returns the number of bytes, 1 to 4. */
size_t sw_json_utf8_put(uint32_t code, char *out);

/* ---- number.c: independent of the locale ---- */

/* Bytes of the longest JSON number at the start of text; 0 if there is none. */
size_t sw_json_number_len(const char *text, size_t len, bool *out_whole);
/* text must be exactly one JSON number, NUL-terminated. Infinity if it is out of range. */
double sw_json_number_f64(const char *text);
/* False if the integer does not fit. */
bool sw_json_number_i64(const char *text, int64_t *out);

/* Rounds towards zero; clamps to the range; 0 for NaN. */
int64_t sw_json_truncate(double value);

/* ---- reader ---- */

struct sw_json_reader {
    struct sw_json_doc *doc;
    const char *text, *end;
    const char *at; /* next byte to read */
    enum sw_json_dialect dialect;
    /* line and column of `mark`; marks only move forward, so counting is linear */
    const char *mark;
    int mark_line, mark_column;
    int depth;
    struct sw_json *braceless; /* root object without braces, closed by the end of the text */
    /* the first failure */
    sw_status status;
    const char *fail_at; /* NULL: no position (out of memory) */
    bool fail_final;     /* reading the text as a single value would not help */
    char fail_text[512];
};

/* Records the failure at a position of the text; returns false. */
bool sw_json_fail(struct sw_json_reader *r, const char *at, const char *fmt, ...) SW_PRINTF(3, 4);
bool sw_json_fail_nomem(struct sw_json_reader *r);
/* Describes the text at `at` for messages: "'x'", "the end of the text". Returns buf. */
const char *sw_json_found(const struct sw_json_reader *r, const char *at, char buf[32]);
void sw_json_locate(struct sw_json_reader *r, const char *at, int *out_line, int *out_column);
static inline bool sw_json_is(const struct sw_json_reader *r, char c)
{
    return r->at < r->end && *r->at == c;
}

/* ---- scalar.c: r->at is on the first character; each function moves it past the last ---- */

/* Reads a string in the quotes that it starts with: its unescaped text (arena), and the text
 * between the quotes as written. out_raw may be NULL. */
bool sw_json_read_quoted(struct sw_json_reader *r, const char **out_text, size_t *out_len,
                         const char **out_raw);
bool sw_json_set_string(struct sw_json_reader *r, struct sw_json *node, const char *text,
                        size_t len);
/* Sets node to the number whose text is [from, to). */
bool sw_json_set_number(struct sw_json_reader *r, struct sw_json *node, const char *from,
                        const char *to, bool whole);
/* Reads a strict scalar into node. */
bool sw_json_read_scalar(struct sw_json_reader *r, struct sw_json *node);

/* ---- tolerant.c: hjson's additions ---- */

bool sw_json_skip_comments(struct sw_json_reader *r);
bool sw_json_read_bare_key(struct sw_json_reader *r, const char **out_text, size_t *out_len);
bool sw_json_read_tolerant_scalar(struct sw_json_reader *r, struct sw_json *node);
