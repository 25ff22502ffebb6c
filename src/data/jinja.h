// SPDX-License-Identifier: Apache-2.0
// Chat templates: a strict subset of Jinja as the Hugging Face libraries run it (sandboxed,
// trim_blocks and lstrip_blocks on, `generation` blocks), as much of it as public templates use.
// What is not known is refused with line and column, never passed over.
//
// Built are: text, {{ }}, {% if for set macro generation break continue %}, {# #}, "-" and "+" at
// tags; all operators but **; slices; tests, filters and methods as listed in jinja_call.c; range,
// namespace, raise_exception, strftime_now.
#pragma once

#include "json/json.h"

struct sw_jinja;

/*
 * sw_jinja_open - reads a template.
 *
 * name         for messages: "<name>:<line>:<column>: .."
 * text         [len] UTF-8
 *
 * SW_E_FORMAT  it breaks the language's rules
 * SW_E_UNSUP   it asks for something that is not built, named
 */
sw_status sw_jinja_open(const char *name, const char *text, size_t len, struct sw_jinja **out);
void sw_jinja_close(struct sw_jinja *template);
/* Whether some part of it is marked as the model's (`generation`). */
bool sw_jinja_marks(const struct sw_jinja *template);

enum sw_jinja_error {
    SW_JINJA_NONE,
    SW_JINJA_RAISED,    /* by raise_exception, with its message */
    SW_JINJA_UNDEFINED, /* of something undefined more is wanted than to be printed or tested */
    SW_JINJA_TYPE,
    SW_JINJA_RUNTIME,
    SW_JINJA_SECURITY, /* what a sandbox forbids */
    SW_JINJA_LIMIT     /* too many steps, or too long a text */
};

struct sw_jinja_span { /* bytes of the text that a `generation` block made */
    size_t first, end;
};

struct sw_jinja_text {
    struct sw_str text;
    struct sw_jinja_span *spans; /* [n_spans] owned, in order */
    size_t n_spans;
    enum sw_jinja_error error; /* why it failed */
};
void sw_jinja_text_fini(struct sw_jinja_text *text);

/*
 * sw_jinja_render - the text for these variables. out is replaced.
 *
 * variables    an object; what it does not have is undefined; members of `messages` that are null
 *              are left out
 * today        seconds since 1970 that strftime_now tells, in UTC
 *
 * SW_E_ARG     the template failed on them: out->error, and a message with line and column
 */
sw_status sw_jinja_render(const struct sw_jinja *template, const struct sw_json *variables,
                          int64_t today, struct sw_jinja_text *out);
