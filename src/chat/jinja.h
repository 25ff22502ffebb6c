// SPDX-License-Identifier: Apache-2.0
// Chat templates: the subset of Jinja that public templates use, as the Hugging Face libraries run
// it (sandboxed, trim_blocks and lstrip_blocks on, `generation` blocks). An unknown construct is
// refused with its line and column, never ignored.
//
// Supported: text, {{ }}, {% if for set macro generation break continue %}, {# #}, "-" and "+" at
// tags; all operators except **; slices; tests, filters and methods as listed in jinja_call.c;
// range, namespace, raise_exception, strftime_now.
#pragma once

#include "json/json.h"

struct sw_jinja;

/*
 * sw_jinja_open - reads a template.
 *
 * name         for messages: "<name>:<line>:<column>: .."
 * text         [len] UTF-8
 *
 * SW_E_FORMAT  the template is not valid Jinja
 * SW_E_UNSUP   the template uses an unsupported feature, which the message names
 */
sw_status sw_jinja_open(const char *name, const char *text, size_t len, struct sw_jinja **out);
void sw_jinja_close(struct sw_jinja *template);
/* Whether the template has a `generation` block, which marks the model's text. */
bool sw_jinja_marks(const struct sw_jinja *template);

enum sw_jinja_error {
    SW_JINJA_NONE,
    SW_JINJA_RAISED,    /* by raise_exception, with its message */
    SW_JINJA_UNDEFINED, /* an undefined value is used other than printed or tested */
    SW_JINJA_TYPE,
    SW_JINJA_RUNTIME,
    SW_JINJA_SECURITY, /* forbidden by the sandbox */
    SW_JINJA_LIMIT     /* too many steps, or too long a text */
};

struct sw_jinja_span { /* byte range of the text that a `generation` block produced */
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
 * sw_jinja_render - renders the template with these variables. out is replaced.
 *
 * variables    an object; other names are undefined; null members of `messages` are skipped
 * today        the time that strftime_now returns: seconds since 1970, UTC
 *
 * SW_E_ARG     the template failed: see out->error; the message has line and column
 */
sw_status sw_jinja_render(const struct sw_jinja *template, const struct sw_json *variables,
                          int64_t today, struct sw_jinja_text *out);
