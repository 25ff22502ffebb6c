// SPDX-License-Identifier: Apache-2.0
// The JSON files beside a vocabulary whose class says how texts become tokens: which class, which
// special tokens, and which tokens the vocabulary lacks. They are read as transformers 5 does.
#pragma once

#include "token/pipeline.h"

/* Documents that are empty if their files are absent. */
struct sw_class_files {
    struct sw_json_doc *settings; /* tokenizer_config.json */
    struct sw_json_doc *model;    /* config.json */
    struct sw_json_doc *map;      /* special_tokens_map.json */
    struct sw_json_doc *added;    /* added_tokens.json */
};
sw_status sw_class_files_read(const char *folder, struct sw_class_files *out);
void sw_class_files_close(struct sw_class_files *files);

/* tokenizer_class of tokenizer_config.json, or else of config.json; "": neither names one. */
sw_status sw_class_files_class(const struct sw_class_files *files, const char **out);
/* model_type of config.json; "": it names none. */
sw_status sw_class_files_model(const struct sw_class_files *files, const char **out);
/* Whether a file's class is `name`, with "Tokenizer" or "TokenizerFast" at its end. */
bool sw_class_is(const char *class, const char *name);

/* A class by the names that files give it. Lists are words with a space between. */
struct sw_class_names {
    const char *classes; /* values of tokenizer_class, without "Tokenizer" and "Fast" */
    const char *models;  /* values of model_type that imply it if no class is named */
};
/* The classes of a kind of vocabulary. */
struct sw_class_table {
    const char *what; /* files of the vocabulary, for messages */
    const struct sw_class_names *names;
    size_t n;
    const char *others; /* models whose classes read these files by other rules */
};
/* Finds the class. *out: its index. Files that name no class, and a model that implies none, give
 * 0: a model may have been trained with any vocabulary.
 *
 * SW_E_UNSUP   a class that is not in the table, or a model of `others`; the message names it
 */
sw_status sw_class_files_find(const struct sw_class_files *files,
                              const struct sw_class_table *table, size_t *out);

/* Special tokens, in the order in which those that a vocabulary lacks get ids. */
enum sw_role {
    SW_ROLE_BOS,
    SW_ROLE_EOS,
    SW_ROLE_UNK,
    SW_ROLE_SEP,
    SW_ROLE_PAD,
    SW_ROLE_CLS,
    SW_ROLE_MASK,
    SW_ROLES
};
/* The special tokens that a class has by default. */
struct sw_class_roles {
    const char *text[SW_ROLES]; /* NULL: none */
    bool mask_lstrip;           /* the mask takes the white space before it */
};

/* Adds the tokens of the files to a pipeline whose vocabulary is complete: those of
 * added_tokens_decoder, or else of added_tokens.json, then the special tokens, then those in lists.
 *
 * appends  a special token of the class that the vocabulary lacks gets the next id
 * ids      of special tokens; -1: there is none
 */
sw_status sw_class_files_add_tokens(const struct sw_class_files *files,
                                    const struct sw_class_roles *roles, bool appends,
                                    struct sw_pipeline *self, int32_t ids[SW_ROLES]);
