// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template: parsing builds it, rendering walks it. Private to jinja_*.c.
#pragma once

#include "chat/jinja.h"

struct jinja_at { /* position of a character, from 1 */
    int32_t line, column;
};

enum jinja_kind {
    /* expressions */
    JINJA_STRING,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TRUE,
    JINJA_FALSE,
    JINJA_NONE,
    JINJA_NAME,
    JINJA_LIST,    /* kids; tuples too */
    JINJA_DICT,    /* kids: key, value, .. */
    JINJA_ATTR,    /* kid . text */
    JINJA_ITEM,    /* kid [ kid ] */
    JINJA_SLICE,   /* kid [ kid : kid : kid ], absent ones NULL */
    JINJA_CALL,    /* kid ( arguments ) */
    JINJA_FILTER,  /* kid | text ( arguments ) */
    JINJA_TEST,    /* kid is text ( arguments ) */
    JINJA_KEYWORD, /* text = kid, among arguments */
    JINJA_NOT,
    JINJA_MINUS,
    JINJA_PLUS,
    JINJA_AND,
    JINJA_OR,
    JINJA_IF_ELSE,  /* kids: condition, then, else (NULL: undefined) */
    JINJA_OPERATOR, /* kid text kid */
    JINJA_COMPARE,  /* kids: first operand, then each next one under its operator (JINJA_KEYWORD) */
    /* statements */
    JINJA_TEXT,
    JINJA_OUTPUT,    /* {{ kid }} */
    JINJA_IF,        /* kids: condition, body, condition, body, .., [else body] */
    JINJA_FOR,       /* kids: target (NAME or LIST), iterable, filter or NULL, body, else or NULL */
    JINJA_SET,       /* kids: target (NAME, ATTR, LIST), value */
    JINJA_SET_BLOCK, /* kids: target, body */
    JINJA_GENERATION, /* kid: body */
    JINJA_MACRO,      /* text; kids: parameters (KEYWORD, its kid the default or NULL), body */
    JINJA_BODY,       /* kids: statements */
    JINJA_BREAK,
    JINJA_CONTINUE
};

/* Deepest nesting of expressions: calls, members and operators. Chains without brackets count,
 * too. */
enum { JINJA_MOST_DEPTH = 400 };
enum { JINJA_MOST_ARGUMENTS = 8 }; /* per call */

struct jinja_node {
    enum jinja_kind kind;
    int depth; /* height of the subtree */
    struct jinja_at at;
    const char *text; /* [len] */
    size_t len;
    int64_t integer;
    double number;
    struct jinja_node **kids; /* [n_kids] */
    int n_kids, cap_kids;
};

struct sw_jinja {
    struct sw_arena arena; /* owns the whole tree */
    const char *name;
    struct jinja_node *root; /* BODY */
    bool marks;
};

/* Whether a name is a supported filter or test. Checked when a template is parsed. */
bool sw_jinja_is_filter(const char *name, size_t len);
bool sw_jinja_is_test(const char *name, size_t len);
