// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of config: the entries behind the structs, and the steps of
// reading.
#pragma once

#include <limits.h>

#include "config/table.h"

/* One key with its effective value and its source. */
struct config_entry {
    const struct config_section *section;
    const struct config_field *field;
    const char *path;      /* "fp16.enabled" */
    struct sw_json *value; /* in impl->effective */
    enum sw_config_origin origin;
    int line; /* FILE: 1-based; SET: index into impl->sets */
};

/* A size that is "auto" and follows from the model's width, which is not known yet. */
struct config_open_size {
    const char *path;
    int line;
};

/* A flag whose block the file lacks. */
struct config_idle {
    const char *set, *path;
};

struct sw_config_impl {
    struct sw_arena arena;
    const char *name;  /* name of the file, for messages */
    const char **sets; /* as given */
    int n_sets;
    struct sw_json_doc *given;     /* after --set and old spellings */
    struct sw_json_doc *effective; /* canonical values of everything */
    struct config_entry *entries;  /* in arena; in the order of the tables */
    int n_entries, cap_entries;
    const struct config_variant *optimizer, *scheduler; /* NULL without a block */
    bool given_batch[3];                                /* whether each batch key holds a number */
    struct sw_batch_config batch;                       /* as given */
    /* train_micro_batch_size_per_gpu is "auto": what fits, at most SW_CONFIG_MOST_PLANNED */
    bool plans_micro_batch;
    bool assumes_micro_batch; /* it is the most that it can be */
    int micro_batch_line;
    struct config_open_size sizes[3];
    int n_sizes;
    const char
        *open_steps; /* key that wants the number of steps, which is not known; NULL = none */
    int open_steps_line;
    struct config_idle idle[12];
    int n_idle;
    bool old_zero_form;                                  /* "zero_optimization": true or false */
    bool chose_micro_batch, chose_recompute, chose_mesh; /* they were "auto" */
    const char *chosen_from;                             /* see sw_config_choose; in arena */
};

/* Line numbers of nodes: > 0 the file's, < 0 made by --set number -line - 1, 0 made by us; and
 * those that the Trainer of transformers fills in, and the micro-batch that a plan found. */
enum {
    SW_CONFIG_LINE_OF_TRAINER = INT_MIN,
    SW_CONFIG_LINE_OF_PLAN = INT_MIN + 1,
    SW_CONFIG_MOST_PLANNED = 8
};
static inline int line_of_set(int i_set)
{
    return -i_set - 1;
}

/* "ds.json:4", "--set a.b=1" or "default"; in buf. */
const char *sw_config_where(const struct sw_config_impl *impl, int line, char *buf, size_t cap);
/* SW_E_CONFIG "<where>: <path>: <text>" */
sw_status sw_config_refuse(const struct sw_config_impl *impl, int line, const char *path,
                           const char *fmt, ...) SW_PRINTF(4, 5);

/* old.c: rewrites the spellings of earlier years into today's keys; may be called again. */
static inline bool sw_config_says_auto(const struct sw_json *node)
{
    return node && node->type == SW_JSON_STRING && strcmp(node->string, "auto") == 0;
}

sw_status sw_config_modernise(struct sw_config_impl *impl);

/* Replaces an old spelling in the path of an edit. The new path is in the arena. */
sw_status sw_config_modern_path(struct sw_config_impl *impl, char **path);

/* The block that the deprecated flag `key` of `block` stands for; NULL = it is no such flag. */
const char *sw_config_block_of_flag(const char *block, const char *key);

/* trainer.c: replaces "auto" by values, after all edits. */
sw_status sw_config_fill_auto(struct sw_config_impl *impl);
/* The edit is a flag, or something else that is known: "--lr=3e-5". */
bool sw_config_is_fact(const char *set);

/* set.c */
/* Sets the source line of a node and all its descendants. */
void sw_config_mark(struct sw_json *node, int line);
sw_status sw_config_apply_set(struct sw_config_impl *impl, int i_set);

/* convert.c: checks `node` against the row, puts the canonical value under `parent` and stores it
 * in the struct. model: the lenient rules of DeepSpeed's typed blocks. */
sw_status sw_config_convert(struct sw_config *config, const struct config_field *field, bool model,
                            const char *path, const struct sw_json *node, struct sw_json *parent,
                            struct sw_json **out);
/* Returns NULL, or the reason why the value is not valid. */
const char *sw_config_to_bool(const struct sw_json *node, bool model, bool *out);
/* The canonical name of a choice list's i-th entry has this length. */
size_t sw_config_choice_len(const char *choice);

/* check.c: combinations that cannot be. */
sw_status sw_config_check(const struct sw_config *config);

/* mesh.c: keys of DeepSpeed that name sizes of the mesh, the partition, the default schedule of a
 * pipeline. */
sw_status sw_config_derive_mesh(struct sw_config *config);
/* Notes that spillway.mesh is "auto", and replaces it by an empty block. */
sw_status sw_config_take_auto_mesh(struct sw_config *config);

/* choose.c: the micro-batch is "auto" by DeepSpeed's key for it. */
sw_status sw_config_open_micro_batch(struct sw_config *config);
/* SW_E_CONFIG says why spillway.micro_batch cannot be "auto" beside the other keys. */
sw_status sw_config_check_auto(const struct sw_config *config, int ranks, int64_t micro_batches);

/* find.c. Sections: parents come before their children. */
const struct config_section *sw_config_section_at(size_t i);
size_t sw_config_n_sections(void);
bool sw_config_is_set_name(const struct config_field *field, const char *key);
const struct config_field *sw_config_find_field(const char *section_path, const char *key,
                                                const struct config_section **out_section);
const struct config_section *sw_config_find_section(const char *path);
/* Is `path` a block directly inside `parent`? */
bool sw_config_is_child(const char *parent, const char *path);
const char *sw_config_leaf(const char *path);
const struct config_variant *sw_config_find_variant(const struct config_variant *list, size_t n,
                                                    const char *name);
struct config_entry *sw_config_find_entry(const struct sw_config *config, const char *path);
/* Adam8bit, AdamW8bit. */
bool sw_config_is_8bit(const struct config_variant *optimizer);
/* Effective value of a choice, compared with its canonical name. */
bool sw_config_choice_is(const struct sw_config *config, const char *path, const char *name);
bool sw_config_json_equal(const struct sw_json *a, const struct sw_json *b);
