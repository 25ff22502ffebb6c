// SPDX-License-Identifier: Apache-2.0
// The shape of the field tables: one row a key, one table a block. Everything that the room does -
// defaults, reading, ranges, unknown keys, explaining, printing, the manual - walks these rows, so
// that a new key is one row (and a member of a struct in config.h when somebody reads it).
#pragma once

#include "config/config.h"
#include "json/json.h"

enum field_type {
    FIELD_BOOL,
    FIELD_INT,
    FIELD_NUMBER,
    FIELD_BYTES, /* whole number, or "512MiB" */
    FIELD_STRING,
    FIELD_CHOICE,  /* one of `choices`; stored as its index */
    FIELD_DTYPE,   /* one of the names of fp32, fp16, bf16; stored as enum sw_dtype */
    FIELD_WORD,    /* one of `choices`, or a whole number; a word stands for its index */
    FIELD_STRINGS, /* a string or a list of them */
    FIELD_NUMBERS, /* a number or a list of them */
    FIELD_JSON     /* anything; kept as it is, stored nowhere */
};

enum field_status {
    STATUS_BUILT,
    STATUS_NEEDLESS, /* accepted without effect; `why` says why nothing is lost */
    STATUS_LATER,    /* refused by name when it differs from its default */
    STATUS_GONE      /* like LATER; DeepSpeed itself has removed it */
};

enum field_flags {
    FIELD_NULL = 1,     /* null is a value */
    FIELD_NO_BOOL = 2,  /* in model blocks true is not 1 here */
    FIELD_ANY_CASE = 4, /* choices match in any case */
    FIELD_ABOVE = 8,    /* `lo` itself is excluded */
    FIELD_REQUIRED = 16,
    FIELD_CHOICE_INT = 32, /* a number outside the range is "not one of the allowed values" */
    FIELD_QUIET = 64,      /* stored nowhere, and not mentioned unless given */
    FIELD_AUTO = 128       /* WORD: "auto" is a value, stored as SW_CONFIG_AUTO */
};

/* First in a choice list = canonical; synonyms of one choice are separated by '|'. */
struct config_field {
    const char *key;
    enum field_type type;
    size_t offset;            /* in struct sw_config; 0 = stored in no struct */
    const char *default_json; /* JSON text */
    double lo, hi;
    double null_as;             /* value of the struct for null */
    const char *const *choices; /* NULL-terminated */
    const char *unit;
    const char *help;
    const char *alias; /* second name in use */
    enum field_status status;
    const char *why;
    unsigned flags;
};

enum section_flags {
    SECTION_MODEL = 1,    /* a typed block in DeepSpeed: converts, and "auto" means default */
    SECTION_NULL = 2,     /* null is the same as absent */
    SECTION_OPTIONAL = 4, /* absent is null, not a block of defaults */
    SECTION_QUIET = 8,    /* not printed unless given */
    SECTION_GATED = 16,   /* asks for nothing unless its `enabled` is true */
    SECTION_ASKS = 32     /* asks by being there */
};

struct config_section {
    const char *path; /* "zero_optimization.offload_param"; "" is the file itself */
    const struct config_field *fields;
    size_t n_fields;
    unsigned flags;
    const char *help;
};

/* An optimizer or a scheduler: what its `type` makes of its `params`. */
struct config_variant {
    const char *name;
    int type;                             /* enum sw_optimizer_type or sw_scheduler_type */
    const struct config_section *section; /* NULL: params kept as they are, refused later */
    bool built;
};

extern const struct config_variant sw_config_optimizers[];
extern const size_t sw_config_n_optimizers;
extern const struct config_variant sw_config_schedulers[];
extern const size_t sw_config_n_schedulers;

/* The tables, by file. */
extern const struct config_section sw_config_table_top, sw_config_table_optimizer,
    sw_config_table_scheduler, sw_config_table_fp16, sw_config_table_bf16,
    sw_config_table_data_types, sw_config_table_spillway, sw_config_table_lora,
    sw_config_table_preference, sw_config_table_contrastive, sw_config_table_mesh,
    sw_config_table_tensor_parallel;
extern const struct config_section sw_config_table_zero, sw_config_table_offload_param,
    sw_config_table_offload_optimizer, sw_config_table_leaf_module, sw_config_table_zenflow,
    sw_config_table_loco, sw_config_table_activation, sw_config_table_aio;
extern const struct config_section *const sw_config_other_tables[];
extern const size_t sw_config_n_other_tables;

/* ---- rows ---- */

#define NOWHERE 0
#define AT(member) offsetof(struct sw_config, member)
#define LOWEST (-__builtin_inf())
#define HIGHEST (__builtin_inf())
#define BUILT .status = STATUS_BUILT
#define NEEDLESS(reason) .status = STATUS_NEEDLESS, .why = (reason)
#define LATER .status = STATUS_LATER
#define LATER_BECAUSE(reason) .status = STATUS_LATER, .why = (reason)
#define GONE .status = STATUS_GONE

#define FIELD_ROW(k, t, at, def, text, ...)                                                        \
    {                                                                                              \
        .key = (k), .type = (t), .offset = (at), .default_json = (def), .help = (text),            \
        __VA_ARGS__                                                                                \
    }
#define BOOL(k, at, def, text, ...) FIELD_ROW(k, FIELD_BOOL, at, def, text, __VA_ARGS__)
#define INT(k, at, def, low, high, text, ...)                                                      \
    FIELD_ROW(k, FIELD_INT, at, def, text, .lo = (low), .hi = (high), __VA_ARGS__)
#define NUMBER(k, at, def, low, high, text, ...)                                                   \
    FIELD_ROW(k, FIELD_NUMBER, at, def, text, .lo = (low), .hi = (high), __VA_ARGS__)
#define NUMBERS(k, at, def, low, high, text, ...)                                                  \
    FIELD_ROW(k, FIELD_NUMBERS, at, def, text, .lo = (low), .hi = (high), __VA_ARGS__)
#define BYTES(k, at, def, low, text, ...)                                                          \
    FIELD_ROW(k, FIELD_BYTES, at, def, text, .lo = (low), .hi = HIGHEST, __VA_ARGS__)
#define STRING(k, at, def, text, ...) FIELD_ROW(k, FIELD_STRING, at, def, text, __VA_ARGS__)
#define STRINGS(k, at, def, text, ...) FIELD_ROW(k, FIELD_STRINGS, at, def, text, __VA_ARGS__)
#define CHOICE(k, at, def, list, text, ...)                                                        \
    FIELD_ROW(k, FIELD_CHOICE, at, def, text, .choices = (list), __VA_ARGS__)
#define WORD(k, at, def, list, text, ...)                                                          \
    FIELD_ROW(k, FIELD_WORD, at, def, text, .choices = (list), .lo = 1, .hi = HIGHEST, __VA_ARGS__)
#define DTYPE(k, at, def, text, ...) FIELD_ROW(k, FIELD_DTYPE, at, def, text, __VA_ARGS__)
#define JSON(k, def, text, ...) FIELD_ROW(k, FIELD_JSON, NOWHERE, def, text, __VA_ARGS__)

#define SECTION(name, where, rows, options, text)                                                  \
    const struct config_section name = {.path = (where),                                           \
                                        .fields = (rows),                                          \
                                        .n_fields = SW_LEN(rows),                                  \
                                        .flags = (options),                                        \
                                        .help = (text)}
