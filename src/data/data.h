// SPDX-License-Identifier: Apache-2.0
// data - tokenizers and datasets for the other rooms: what users see (spillway/data.h) and the few
// calls that speak the strings of base.
#pragma once

#include "base/base.h"

#include "spillway/data.h"

/* Calls fn with each file that patterns (paths or globs) name, in the order in which a dataset
 * reads them. */
sw_status sw_data_each_file(const char *const *patterns, int n_patterns,
                            sw_status (*fn)(void *ctx, const char *path), void *ctx);

/* As sw_tokenizer_decode, appended to out. */
sw_status sw_tokenizer_decode_str(const struct sw_tokenizer *tokenizer, const int32_t *ids,
                                  int64_t n_ids, bool skip_special, struct sw_str *out);

/* Removes the files of a folder that sw_tokenizer_open would read, of every kind: another tokenizer
 * takes their place. */
void sw_tokenizer_remove(const char *folder);

/* Classes that data has, by its labels. */
struct sw_label_list {
    char **names; /* [n] owned; NULL: they are numbers */
    int64_t n;    /* 0: none was found */
};
void sw_label_list_fini(struct sw_label_list *list);
/* Of the files of options: names in rising order; numbers up to the highest; as many as a list has
 * numbers. */
sw_status sw_labels_find(const struct sw_dataset_options *options, struct sw_label_list *out);
