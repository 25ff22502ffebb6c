// SPDX-License-Identifier: Apache-2.0
// Values of a template during rendering, and their operations, with Python's semantics. Values live
// in an arena until the rendering ends. Private to jinja_*.c.
#pragma once

#include "chat/jinja_tree.h"

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
    JINJA_V_FUNCTION /* a macro, or a built-in function by its name */
};

struct jinja_list;
struct jinja_map;
struct jinja_loop;

struct jinja_value {
    enum jinja_type type;
    int64_t integer;  /* BOOL, INT */
    double number;    /* FLOAT */
    const char *text; /* STRING, FUNCTION: [len]; UNDEFINED: the name that was looked up */
    size_t len;
    struct jinja_list *list;
    struct jinja_map *map; /* MAP, NAMESPACE */
    struct jinja_loop *loop;
    const struct jinja_node *macro; /* FUNCTION: NULL for a built-in */
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
    int64_t index; /* of the current item; after the loop, of the last one that was entered */
};

/* One rendering. */
struct jinja_run {
    const struct sw_jinja *template;
    struct sw_jinja_text *out;
    struct sw_arena arena;
    int64_t work, bytes; /* used so far */
    bool has_too_much;   /* memory beyond the limit was requested */
    int64_t today;
    struct jinja_at at; /* position of the node being evaluated */
};

/* Fails the rendering with an error kind and a message after "<name>:<line>:<column>: ". */
sw_status sw_jinja_fail(struct jinja_run *run, enum sw_jinja_error kind, const char *fmt, ...)
    SW_PRINTF(3, 4);

/*
 * Limits of one rendering: 10 million steps, and 64 MiB of values and texts. Code that walks bytes
 * or members counts them first. A function that cannot fail stops early instead; the next step,
 * copy or output then fails.
 */
enum {
    JINJA_STEP = 16, /* units of work per template node */
    JINJA_MOST_STEPS = 10000000,
    JINJA_MOST_BYTES = 64 << 20
};
/* Adds to the work done: four units a comparison, 1/8 to 4 units a byte walked. False: the run has
 * used all its steps. */
bool sw_jinja_work(struct jinja_run *run, int64_t units);
/* Reserves budget for `more` bytes of a text that becomes a value. False: the limit is reached. */
bool sw_jinja_room(struct jinja_run *run, const struct sw_str *text, size_t more);
/* SW_E_ARG if the rendering has exceeded a limit. */
sw_status sw_jinja_check(struct jinja_run *run);

struct jinja_value sw_jinja_undefined(const char *name, size_t len);
struct jinja_value sw_jinja_bool(bool value);
struct jinja_value sw_jinja_int(int64_t value);
struct jinja_value sw_jinja_string(const char *text, size_t len); /* borrowed */
/* Copies a string into the arena. */
sw_status sw_jinja_copy(struct jinja_run *run, const char *text, size_t len,
                        struct jinja_value *out);
sw_status sw_jinja_new_list(struct jinja_run *run, struct jinja_value *out);
sw_status sw_jinja_append(struct jinja_run *run, struct jinja_list *list,
                          const struct jinja_value *item);
sw_status sw_jinja_new_map(struct jinja_run *run, enum jinja_type type, struct jinja_value *out);
/* In the arena, because a namespace or a list may keep `loop` beyond its loop. */
sw_status sw_jinja_new_loop(struct jinja_run *run, const struct jinja_list *over,
                            struct jinja_value *out);
sw_status sw_jinja_put(struct jinja_run *run, struct jinja_map *map, const struct jinja_value *key,
                       const struct jinja_value *value);
/* Puts a member into the map of a namespace. Names that begin with "_" are forbidden. */
sw_status sw_jinja_put_member(struct jinja_run *run, struct jinja_map *map,
                              const struct jinja_value *name, const struct jinja_value *value);
/* NULL: the map has no such key. */
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
/* Prints a value as Python's str() does. */
void sw_jinja_print(struct jinja_run *run, const struct jinja_value *value, struct sw_str *out);
/* The options of json.dumps. */
struct jinja_json {
    const char *indent; /* [indent_len] for each level; NULL: on one line */
    size_t indent_len;
    struct jinja_value item, key; /* separators, both texts */
    bool ascii, sorted;
};
sw_status sw_jinja_print_json(struct jinja_run *run, const struct jinja_value *value,
                              const struct jinja_json *options, struct sw_str *out);
/* Lists the elements that a loop iterates over: items, keys or characters. An undefined value has
 * none. */
sw_status sw_jinja_items(struct jinja_run *run, const struct jinja_value *value,
                         struct jinja_value *out);

/* ---- jinja_run.c ---- */

/* of[key]; undefined if there is no such member */
sw_status sw_jinja_item(struct jinja_run *run, const struct jinja_value *of,
                        const struct jinja_value *key, struct jinja_value *out);
/* what in in */
sw_status sw_jinja_contains(struct jinja_run *run, const struct jinja_value *what,
                            const struct jinja_value *in, bool *out);

/* ---- jinja_call.c ---- */

struct jinja_arguments {
    struct jinja_value at[JINJA_MOST_ARGUMENTS];
    const char *names[JINJA_MOST_ARGUMENTS]; /* names of at[]; NULL: positional */
    size_t name_lens[JINJA_MOST_ARGUMENTS];
    int n, n_positional;
};
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
/* Whether there is a built-in function of that name. */
bool sw_jinja_is_function(const char *name, size_t len);
