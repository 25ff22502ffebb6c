// SPDX-License-Identifier: Apache-2.0
// What reading a template makes and rendering walks. Private to jinja_*.c.
#pragma once

#include "data/jinja.h"

struct jinja_at { /* of a character, from 1 */
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
    JINJA_COMPARE,  /* kids: a, then b, c, .. each under its operator (JINJA_KEYWORD) */
    /* statements */
    JINJA_TEXT,
    JINJA_OUTPUT, /* {{ kid }} */
    JINJA_IF,     /* kids: condition, body, condition, body, .., [else body] */
    JINJA_FOR,    /* kids: target (NAME or LIST of them), what, filter (NULL), body, else (NULL) */
    JINJA_SET,    /* kids: target (NAME, ATTR, LIST), value */
    JINJA_SET_BLOCK,  /* kids: target, body */
    JINJA_GENERATION, /* kid: body */
    JINJA_MACRO,      /* text; kids: parameters (KEYWORD, its kid the default or NULL), body */
    JINJA_BODY,       /* kids: statements */
    JINJA_BREAK,
    JINJA_CONTINUE
};

/* Of expressions in each other: calls, members, operators, also of chains without brackets. */
enum { JINJA_MOST_DEPTH = 400 };
enum { JINJA_MOST_ARGUMENTS = 8 }; /* of a call */

struct jinja_node {
    enum jinja_kind kind;
    int depth; /* of what is below it */
    struct jinja_at at;
    const char *text; /* [len] */
    size_t len;
    int64_t integer;
    double number;
    struct jinja_node **kids; /* [n_kids] */
    int n_kids, cap_kids;
};

struct sw_jinja {
    struct sw_arena arena; /* all of it */
    const char *name;
    struct jinja_node *root; /* BODY */
    bool marks;
};

/* Names that are known; checked when a template is read. */
bool sw_jinja_is_filter(const char *name, size_t len);
bool sw_jinja_is_test(const char *name, size_t len);
