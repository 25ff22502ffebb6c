// SPDX-License-Identifier: Apache-2.0
// json/reader - from text to tree, in one loop over an explicit stack (the parent pointers), for
// both dialects. Linear in the length of the text: positions are counted as the reader moves, and
// the index finds duplicate keys.

#include "json/private.h"

#include <stdio.h>
#include <string.h>

/* ---- failures and positions ---- */

bool sw_json_fail(struct sw_json_reader *r, const char *at, const char *fmt, ...)
{
    r->status = SW_E_FORMAT;
    r->fail_at = at;
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->fail_text, sizeof(r->fail_text), fmt, args);
    va_end(args);
    return false;
}

bool sw_json_fail_nomem(struct sw_json_reader *r)
{
    r->status = SW_E_NOMEM;
    r->fail_at = NULL;
    r->fail_final = true;
    snprintf(r->fail_text, sizeof(r->fail_text), "out of host memory while reading");
    return false;
}

const char *sw_json_found(const struct sw_json_reader *r, const char *at, char buf[32])
{
    if (at >= r->end) {
        return "the end of the text";
    }
    const unsigned char c = (unsigned char)*at;
    if (c == '\n' || c == '\r') {
        return "the end of the line";
    }
    if (c < 0x20 || c == 0x7f) {
        snprintf(buf, 32, "control character U+%04X", c);
    } else {
        const int n = (int)sw_json_utf8_len(at, (size_t)(r->end - at));
        snprintf(buf, 32, "'%.*s'", n > 0 ? n : 1, at);
    }
    return buf;
}

/* Columns count characters, so UTF-8 continuation bytes are skipped. */
static void count(const char *from, const char *to, int *line, int *column)
{
    for (const char *c = from; c < to; c++) {
        if (*c == '\n') {
            (*line)++;
            *column = 1;
        } else {
            *column += ((unsigned char)*c & 0xc0) != 0x80;
        }
    }
}

void sw_json_locate(struct sw_json_reader *r, const char *at, int *out_line, int *out_column)
{
    SW_ASSERT(at >= r->mark);
    count(r->mark, at, &r->mark_line, &r->mark_column);
    r->mark = at;
    *out_line = r->mark_line;
    *out_column = r->mark_column;
}

/* ---- the grammar ---- */

static bool skip(struct sw_json_reader *r)
{
    if (r->dialect == SW_JSON_TOLERANT) {
        return sw_json_skip_comments(r);
    }
    while (r->at < r->end &&
           (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) {
        r->at++;
    }
    return true;
}

/* Reads the colon after a key, and skippable text after it. */
static bool read_colon(struct sw_json_reader *r, const struct sw_json *member)
{
    char found[32];
    if (!sw_json_is(r, ':')) {
        return sw_json_fail(r, r->at, "expected ':' after the key \"%.200s\", found %s",
                            member->key, sw_json_found(r, r->at, found));
    }
    r->at++;
    return skip(r);
}

static bool read_key(struct sw_json_reader *r, struct sw_json *object, struct sw_json *member)
{
    char found[32];
    const char *from = r->at;
    sw_json_locate(r, from, &member->key_line, &member->key_column);
    const bool single = r->dialect == SW_JSON_TOLERANT && sw_json_is(r, '\'');
    if (sw_json_is(r, '"') || single) {
        if (!sw_json_read_quoted(r, &member->key, &member->key_len, NULL)) {
            return false;
        }
    } else if (r->dialect == SW_JSON_TOLERANT) {
        if (!sw_json_read_bare_key(r, &member->key, &member->key_len)) {
            return false;
        }
    } else {
        return sw_json_fail(r, from, "expected a key in double quotes, found %s",
                            sw_json_found(r, from, found));
    }

    const struct sw_json *other = sw_json_find(object, member->key, member->key_len);
    if (other) {
        r->fail_final = true;
        return sw_json_fail(r, from, "duplicate key \"%.200s\", first given in line %d, column %d",
                            member->key, other->key_line, other->key_column);
    }
    if (!skip(r)) {
        return false;
    }
    return read_colon(r, member);
}

/* Opens a container, or reads a complete scalar. */
static bool read_value(struct sw_json_reader *r, struct sw_json *node)
{
    sw_json_locate(r, r->at, &node->line, &node->column);
    if (sw_json_is(r, '{') || sw_json_is(r, '[')) {
        if (r->depth == SW_JSON_MAX_DEPTH) {
            r->fail_final = true;
            return sw_json_fail(r, r->at, "nested more than %d deep", SW_JSON_MAX_DEPTH);
        }
        node->type = *r->at == '{' ? SW_JSON_OBJECT : SW_JSON_ARRAY;
        r->at++;
        return true;
    }
    return r->dialect == SW_JSON_TOLERANT ? sw_json_read_tolerant_scalar(r, node)
                                          : sw_json_read_scalar(r, node);
}

static bool at_close(const struct sw_json_reader *r, const struct sw_json *container)
{
    if (container == r->braceless) {
        return r->at == r->end;
    }
    return sw_json_is(r, container->type == SW_JSON_OBJECT ? '}' : ']');
}

/* After a member: finds out whether another follows or the container ends, and takes the comma
 * between. Strict: a comma and a member, or no comma and the end. Tolerant: all four
 * combinations. */
static bool read_separator(struct sw_json_reader *r, const struct sw_json *container,
                           bool *out_closed)
{
    const char close = container->type == SW_JSON_OBJECT ? '}' : ']';
    char found[32];
    if (!skip(r)) {
        return false;
    }
    const bool comma = sw_json_is(r, ',');
    if (comma) {
        r->at++;
        if (!skip(r)) {
            return false;
        }
    }
    *out_closed = at_close(r, container);
    if (r->dialect == SW_JSON_STRICT) {
        if (comma && *out_closed) {
            return sw_json_fail(r, r->at, "'%c' after a comma", close);
        }
        if (!comma && !*out_closed) {
            return sw_json_fail(r, r->at, "expected ',' or '%c', found %s", close,
                                sw_json_found(r, r->at, found));
        }
    }
    if (!*out_closed && r->at == r->end) {
        return sw_json_fail(r, r->at,
                            "expected '%c' (opened in line %d, column %d), found the end"
                            " of the text",
                            close, container->line, container->column);
    }
    return true;
}

/* Leaves the containers that end here. *container becomes the one with more members, or NULL if the
 * outermost one has ended. */
static bool leave(struct sw_json_reader *r, struct sw_json **container)
{
    while (*container) {
        bool closed = false;
        if (!read_separator(r, *container, &closed)) {
            return false;
        }
        if (!closed) {
            return true;
        }
        r->at += *container != r->braceless;
        r->depth--;
        *container = (*container)->parent;
    }
    return true;
}

/* Adds one member to container; enters it if it is a container that is not empty. */
static bool read_member(struct sw_json_reader *r, struct sw_json **container, bool *out_entered)
{
    struct sw_json *member = sw_json_node_new(r->doc, SW_JSON_NULL);
    if (!member) {
        return sw_json_fail_nomem(r);
    }
    if ((*container)->type == SW_JSON_OBJECT && !read_key(r, *container, member)) {
        return false;
    }
    if (!read_value(r, member)) {
        return false;
    }
    if (!sw_json_append(r->doc, *container, member)) {
        return sw_json_fail_nomem(r);
    }
    *out_entered = member->type == SW_JSON_OBJECT || member->type == SW_JSON_ARRAY;
    if (*out_entered) {
        *container = member;
    }
    return true;
}

/* Reads the members of root, a container that was just opened, and all of their descendants. */
static bool read_members(struct sw_json_reader *r, struct sw_json *root)
{
    struct sw_json *container = root;
    bool entered = true;
    while (container) {
        if (entered) {
            r->depth++;
            if (!skip(r)) {
                return false;
            }
            if (container != r->braceless && at_close(r, container)) {
                r->at++;
                r->depth--;
                container = container->parent;
                entered = false;
            }
        }
        if (!entered) {
            if (!leave(r, &container)) {
                return false;
            }
            if (!container) {
                break;
            }
        }
        if (!read_member(r, &container, &entered)) {
            return false;
        }
    }
    return true;
}

static bool read_root(struct sw_json_reader *r, struct sw_json **out)
{
    struct sw_json *root = sw_json_node_new(r->doc, SW_JSON_NULL);
    if (!root) {
        return sw_json_fail_nomem(r);
    }
    if (!read_value(r, root)) {
        return false;
    }
    const bool container = root->type == SW_JSON_OBJECT || root->type == SW_JSON_ARRAY;
    if (container && !read_members(r, root)) {
        return false;
    }
    *out = root;
    return true;
}

/* Reads the members of an object without an opening brace, up to the end of the text. */
static bool read_braceless(struct sw_json_reader *r, struct sw_json **out)
{
    struct sw_json *root = sw_json_node_new(r->doc, SW_JSON_OBJECT);
    if (!root) {
        return sw_json_fail_nomem(r);
    }
    sw_json_locate(r, r->at, &root->line, &root->column);
    r->braceless = root;
    const bool done = read_members(r, root);
    r->braceless = NULL;
    if (done) {
        *out = root;
    }
    return done;
}

/* hjson: a text that does not start with a bracket is the inside of an object. If it cannot be read
 * so, it is a single value. A text with only comments is an empty object. */
static bool read_tolerant_root(struct sw_json_reader *r, struct sw_json **out)
{
    const bool marked = (size_t)(r->end - r->at) >= 3 && memcmp(r->at, "\xef\xbb\xbf", 3) == 0;
    if (marked) {
        r->at += 3;
        r->text = r->mark = r->at;
    }
    if (!skip(r)) {
        return false;
    }
    if (r->at == r->end && !marked) {
        *out = sw_json_node_new(r->doc, SW_JSON_OBJECT);
        return *out || sw_json_fail_nomem(r);
    }
    if (sw_json_is(r, '{') || sw_json_is(r, '[')) {
        return read_root(r, out);
    }
    const struct sw_json_reader start = *r;
    if (read_braceless(r, out)) {
        return true;
    }
    if (r->fail_final) {
        return false;
    }
    const struct sw_json_reader failed = *r;
    *r = start;
    if (!read_root(r, out)) {
        *r = failed;
        return false;
    }
    return true;
}

static bool read_text(struct sw_json_reader *r, struct sw_json **out)
{
    const size_t len = (size_t)(r->end - r->text);
    const size_t valid = sw_json_utf8_check(r->text, len);
    if (valid < len) {
        return sw_json_fail(r, r->text + valid, "byte 0x%02x is not UTF-8",
                            (unsigned)(unsigned char)r->text[valid]);
    }
    if (r->dialect == SW_JSON_TOLERANT) {
        if (!read_tolerant_root(r, out)) {
            return false;
        }
    } else if (!skip(r) || !read_root(r, out)) {
        return false;
    }
    if (!skip(r)) {
        return false;
    }
    if (r->at < r->end) {
        char found[32];
        return sw_json_fail(r, r->at, "expected the end of the text, found %s",
                            sw_json_found(r, r->at, found));
    }
    return true;
}

static sw_status report(const struct sw_json_reader *r, const char *name)
{
    if (!r->fail_at) {
        return SW_FAIL(r->status, "%s: %s", name, r->fail_text);
    }
    int line = 1, column = 1;
    count(r->text, r->fail_at, &line, &column);
    return SW_FAIL(r->status, "%s:%d:%d: %s", name, line, column, r->fail_text);
}

sw_status sw_json_parse(const char *name, const char *text, size_t len,
                        enum sw_json_dialect dialect, struct sw_json_doc **out)
{
    struct sw_json_doc *doc = NULL;
    SW_TRY(sw_json_new(name, &doc));
    struct sw_json_reader r = {.doc = doc,
                               .text = text,
                               .end = text + len,
                               .at = text,
                               .dialect = dialect,
                               .mark = text,
                               .mark_line = 1,
                               .mark_column = 1};
    struct sw_json *root = NULL;
    if (read_text(&r, &root)) {
        doc->root = root;
        *out = doc;
        return SW_OK;
    }

    sw_json_close(doc);
    return report(&r, name);
}

/* ---- without a tree ---- */

struct scan {
    struct sw_json_reader r;
    sw_json_event_fn fn;
    void *ctx;
    sw_status st;                      /* status of fn */
    char kinds[SW_JSON_MAX_DEPTH + 1]; /* '{' or '[' for each open container */
};

/* Reports an event, and then frees what the document held for it. */
static bool tell(struct scan *s, enum sw_json_event event, const struct sw_json *value)
{
    s->st = s->fn(s->ctx, event, value, s->r.depth);
    sw_arena_clear(&s->r.doc->arena);
    return s->st >= 0;
}

static bool scan_key(struct sw_json_reader *r, struct sw_json *member)
{
    char found[32];
    if (!sw_json_is(r, '"')) {
        return sw_json_fail(r, r->at, "expected a key in double quotes, found %s",
                            sw_json_found(r, r->at, found));
    }
    if (!sw_json_read_quoted(r, &member->key, &member->key_len, NULL) || !skip(r)) {
        return false;
    }
    return read_colon(r, member);
}

/* Reads a complete scalar, or the bracket that opens a container. */
static bool scan_value(struct scan *s, struct sw_json *value, bool *out_entered)
{
    struct sw_json_reader *r = &s->r;
    const char c = *(r->at < r->end ? r->at : "");
    *out_entered = c == '{' || c == '[';
    if (!*out_entered) {
        return sw_json_read_scalar(r, value) && tell(s, SW_JSON_SCALAR, value);
    }
    if (r->depth == SW_JSON_MAX_DEPTH) {
        return sw_json_fail(r, r->at, "nested more than %d deep", SW_JSON_MAX_DEPTH);
    }
    value->type = c == '{' ? SW_JSON_OBJECT : SW_JSON_ARRAY;
    r->at++;
    if (!tell(s, SW_JSON_OPEN, value)) {
        return false;
    }
    s->kinds[r->depth++] = c;
    return skip(r);
}

/* Leaves the containers that end here, each with the separator before the next member. */
static bool scan_ends(struct scan *s, bool entered)
{
    struct sw_json_reader *r = &s->r;
    char found[32];
    while (r->depth > 0) {
        const bool object = s->kinds[r->depth - 1] == '{';
        if (sw_json_is(r, object ? '}' : ']')) {
            r->at++;
            r->depth--;
            if (!tell(s, SW_JSON_CLOSE,
                      &(struct sw_json){.type = object ? SW_JSON_OBJECT : SW_JSON_ARRAY}) ||
                !skip(r)) {
                return false;
            }
            entered = false;
            continue;
        }
        if (entered) {
            return true;
        }
        if (!sw_json_is(r, ',')) {
            return sw_json_fail(r, r->at, "expected ',' or '%c', found %s", object ? '}' : ']',
                                sw_json_found(r, r->at, found));
        }
        r->at++;
        return skip(r);
    }
    return true;
}

static bool scan_text(struct scan *s)
{
    struct sw_json_reader *r = &s->r;
    char found[32];
    bool entered;
    const size_t valid = sw_json_utf8_check(r->text, (size_t)(r->end - r->text));
    if (r->text + valid < r->end) {
        return sw_json_fail(r, r->text + valid, "byte 0x%02x is not UTF-8",
                            (unsigned)(unsigned char)r->text[valid]);
    }
    if (!skip(r)) {
        return false;
    }
    do {
        struct sw_json value = {0};
        if (r->depth > 0 && s->kinds[r->depth - 1] == '{' && !scan_key(r, &value)) {
            return false;
        }
        if (!scan_value(s, &value, &entered) || !skip(r) || !scan_ends(s, entered)) {
            return false;
        }
    } while (r->depth > 0);
    if (r->at < r->end) {
        return sw_json_fail(r, r->at, "expected the end of the text, found %s",
                            sw_json_found(r, r->at, found));
    }
    return true;
}

sw_status sw_json_scan(const char *name, const char *text, size_t len, sw_json_event_fn fn,
                       void *ctx)
{
    struct sw_json_doc doc = {.name = name};
    sw_arena_init(&doc.arena, "json");
    struct scan s = {.r = {.doc = &doc,
                           .text = text,
                           .end = text + len,
                           .at = text,
                           .dialect = SW_JSON_STRICT,
                           .mark = text},
                     .fn = fn,
                     .ctx = ctx};
    const bool done = scan_text(&s);
    sw_arena_fini(&doc.arena);
    if (s.st < 0) {
        return sw_frame_at(__FILE__, __LINE__, s.st);
    }
    return done ? SW_OK : report(&s.r, name);
}

sw_status sw_json_read(const char *path, enum sw_json_dialect dialect, struct sw_json_doc **out)
{
    char *text = NULL;
    size_t len = 0;
    SW_TRY(sw_file_read(path, &text, &len));
    const sw_status st = sw_json_parse(path, text, len, dialect, out);
    sw_free(text);
    SW_TRY(st);
    return SW_OK;
}
