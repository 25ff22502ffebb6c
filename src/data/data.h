// SPDX-License-Identifier: Apache-2.0
// data - tokenizers and datasets for the other rooms: what users see (spillway/data.h) and the few
// calls that speak the strings of base.
#pragma once

#include "base/base.h"

#include "spillway/data.h"
#include "task/task.h"

/* Calls fn with each file that patterns (paths or globs) name, in the order in which a dataset
 * reads them. */
sw_status sw_data_each_file(const char *const *patterns, int n_patterns,
                            sw_status (*fn)(void *ctx, const char *path), void *ctx);

/* Calls fn with each picture of a folder, class by class. */
sw_status sw_data_each_picture(const char *folder,
                               sw_status (*fn)(void *ctx, const char *path, const char *class_name),
                               void *ctx);
/* Appends the steps from bytes of images to pixels, if the task has images. Returns whether they
 * are pictures of a folder. */
bool sw_dataset_put_steps(const sw_dataset *dataset, struct sw_str *out);

/* As sw_tokenizer_decode, appended to out. */
sw_status sw_tokenizer_decode_str(const struct sw_tokenizer *tokenizer, const int32_t *ids,
                                  int64_t n_ids, bool skip_special, struct sw_str *out);

/* The text that ids add to that of a prompt: a first word keeps its space. Appended to out. */
sw_status sw_tokenizer_decode_behind(const struct sw_tokenizer *tokenizer, const int32_t *prompt,
                                     int64_t n_prompt, const int32_t *ids, int64_t n_ids,
                                     struct sw_str *out);

/* Appends what the template makes of one text, as "<s> ..": tokens as the vocabulary spells them.
 * Nothing if it adds none. */
void sw_tokenizer_template_text(const struct sw_tokenizer *tokenizer, struct sw_str *out);

/* Whether the template's types are not given to the model: all are 0. */
bool sw_tokenizer_has_no_types(const struct sw_tokenizer *tokenizer);

/* Whether a dataset has texts in that template. Shards, chats and rows of other tasks are none. */
bool sw_dataset_is_templated(const struct sw_dataset *dataset);

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
 * numbers. Images: the names of folders; none for files of CIFAR's.
 *
 * n_known      classes of a head that is there: a number below it is never too high
 *
 * SW_E_FORMAT  the highest number would make far more classes than there are labels: it is no class
 */
sw_status sw_labels_find(const struct sw_dataset_options *options, int64_t n_known,
                         struct sw_label_list *out);

/* Metrics of a task over rows of a split, from the first one on in their order. */
struct sw_score;
/* predictions: of answers, a JSON object of id and text; NULL: they are not written. Borrows both
 * while it is open. SW_E_ARG: the data set is one of text. */
sw_status sw_score_open(const struct sw_dataset *dataset, enum sw_split split, FILE *predictions,
                        struct sw_score **out);
void sw_score_close(struct sw_score *score);
/* Rows `first` and on as they were fetched, with what the model said of them: for each loss of the
 * task its output, widths[k] numbers a row. Blank rows do not count. */
struct sw_score_rows {
    int64_t first, n;
    const struct sw_row_input *inputs; /* [n_inputs] the labels among them */
    int n_inputs;
    const float *outputs[SW_TASK_MAX_LOSSES];
    int64_t widths[SW_TASK_MAX_LOSSES];
};
sw_status sw_score_add(struct sw_score *score, const struct sw_score_rows *rows);
/* NaN: not defined, or none of the task. Of answers in per cent, as SQuAD's script says them;
 * perplexity is the loss's. */
double sw_score_of(const struct sw_score *score, enum sw_metric metric);
/* Ends what predictions are written to. */
sw_status sw_score_end(struct sw_score *score);
