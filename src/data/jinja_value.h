// SPDX-License-Identifier: Apache-2.0
// Values of a template that is rendered, and what can be done with them, as Python does it. They
// live in an arena until the rendering ends. Private to jinja_*.c.
#pragma once

#include "data/jinja_tree.h"

enum jinja_type {
    JINJA_V_UNDEFINED,
    JINJA_V_NONE,
    JINJA_V_BOOL,
    JINJA_V_INT,
    JINJA_V_FLOAT,
    JINJA_V_STRING,
    JINJA_V_LIST,
    JINJA_V_MAP,
    JINJA_V_NAMESPACE,
    JINJA_V_LOOP,
    JINJA_V_FUNCTION /* a macro, or one of the environment by its name */
};

struct jinja_list;
struct jinja_map;
struct jinja_loop;

struct jinja_value {
    enum jinja_type type;
    int64_t integer;  /* BOOL, INT */
    double number;    /* FLOAT */
    const char *text; /* STRING, FUNCTION: [len]; UNDEFINED: what it would have been called */
    size_t len;
    struct jinja_list *list;
    struct jinja_map *map; /* MAP, NAMESPACE */
    const struct jinja_loop *loop;
    const struct jinja_node *macro; /* FUNCTION: NULL = of the environment */
};

struct jinja_list {
    struct jinja_value *items; /* [n] */
    int64_t n, cap;
};

struct jinja_map {
    struct jinja_value *keys, *values; /* [n] */
    int64_t n, cap;
};

struct jinja_loop {
    const struct jinja_list *over;
    int64_t index;
};

/* One rendering. */
struct jinja_run {
    const struct sw_jinja *template;
    struct sw_jinja_text *out;
    struct sw_arena arena;
    int64_t work, bytes; /* so far */
    bool has_too_much;   /* memory is wanted beyond the bound */
    int64_t today;
    struct jinja_at at; /* of what is evaluated */
};

/* The rendering fails: kind, and a message behind "<name>:<line>:<column>: ". */
sw_status sw_jinja_fail(struct jinja_run *run, enum sw_jinja_error kind, const char *fmt, ...)
    SW_PRINTF(3, 4);

/*
 * What a rendering may take: 10 million steps, and 64 MiB of values, texts and what becomes of
 * them. Whatever goes through bytes or members counts them before it does; where a function cannot
 * fail, it stops, and the next step, copy or output fails.
 */
enum {
    JINJA_STEP = 16, /* units of work: a node of the template; ..*/
    JINJA_MOST_STEPS = 10000000,
    JINJA_MOST_BYTES = 64 << 20
};
/* A comparison is four units, bytes gone through an eighth to four each. False: the run has used
 * all its steps. */
bool sw_jinja_work(struct jinja_run *run, int64_t units);
/* `more` bytes will be added to a text that becomes a value. False: there is no room. */
bool sw_jinja_room(struct jinja_run *run, const struct sw_str *text, size_t more);
/* SW_E_ARG if the rendering has taken too much. */
sw_status sw_jinja_check(struct jinja_run *run);

struct jinja_value sw_jinja_undefined(const char *name, size_t len);
struct jinja_value sw_jinja_bool(bool value);
struct jinja_value sw_jinja_int(int64_t value);
struct jinja_value sw_jinja_string(const char *text, size_t len); /* borrowed */
/* A copy in the arena. */
sw_status sw_jinja_copy(struct jinja_run *run, const char *text, size_t len,
                        struct jinja_value *out);
sw_status sw_jinja_new_list(struct jinja_run *run, struct jinja_value *out);
sw_status sw_jinja_append(struct jinja_run *run, struct jinja_list *list,
                          const struct jinja_value *item);
sw_status sw_jinja_new_map(struct jinja_run *run, enum jinja_type type, struct jinja_value *out);
sw_status sw_jinja_put(struct jinja_run *run, struct jinja_map *map, const struct jinja_value *key,
                       const struct jinja_value *value);
/* NULL: it has no such key. */
const struct jinja_value *sw_jinja_get(struct jinja_run *run, const struct jinja_map *map,
                                       const struct jinja_value *key);
sw_status sw_jinja_from_json(struct jinja_run *run, const struct sw_json *json,
                             struct jinja_value *out);

const char *sw_jinja_type_name(const struct jinja_value *value);
bool sw_jinja_is_true(const struct jinja_value *value);
bool sw_jinja_equal(struct jinja_run *run, const struct jinja_value *a,
                    const struct jinja_value *b);
bool sw_jinja_is_number(const struct jinja_value *value); /* BOOL, INT, FLOAT */
double sw_jinja_number(const struct jinja_value *value);
/* str(): what is printed. */
void sw_jinja_print(struct jinja_run *run, const struct jinja_value *value, struct sw_str *out);
/* json.dumps with ensure_ascii off; indent < 0: one line. */
sw_status sw_jinja_print_json(struct jinja_run *run, const struct jinja_value *value,
                              int64_t indent, struct sw_str *out);
/* What a loop goes through: items, keys, characters; nothing of what is undefined. */
sw_status sw_jinja_items(struct jinja_run *run, const struct jinja_value *value,
                         struct jinja_value *out);
/* jinja_call.c */
struct jinja_arguments {
    struct jinja_value at[JINJA_MOST_ARGUMENTS];
    const char *names[JINJA_MOST_ARGUMENTS]; /* of at; NULL by position */
    size_t name_lens[JINJA_MOST_ARGUMENTS];
    int n, n_positional;
};
/* The argument by position or name; NULL = not given. */
const struct jinja_value *sw_jinja_argument(const struct jinja_arguments *arguments, int position,
                                            const char *name);
sw_status sw_jinja_filter(struct jinja_run *run, const char *name, size_t len,
                          const struct jinja_value *value, const struct jinja_arguments *arguments,
                          struct jinja_value *out);
sw_status sw_jinja_test(struct jinja_run *run, const char *name, size_t len,
                        const struct jinja_value *value, const struct jinja_arguments *arguments,
                        bool *out);
sw_status sw_jinja_function(struct jinja_run *run, const char *name, size_t len,
                            const struct jinja_arguments *arguments, struct jinja_value *out);
sw_status sw_jinja_method(struct jinja_run *run, const struct jinja_value *of, const char *name,
                          size_t len, const struct jinja_arguments *arguments,
                          struct jinja_value *out);
/* Whether the environment has a function of that name. */
bool sw_jinja_is_function(const char *name, size_t len);
