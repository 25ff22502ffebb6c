// SPDX-License-Identifier: Apache-2.0
// data - datasets: files as numbered samples, the rows of all tasks, and the metrics of a split.
// The public interface is spillway/data.h.
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

/* Appends a description of the steps from image bytes to pixels, if the task has images. Returns
 * whether the images are pictures of a folder. */
bool sw_dataset_put_steps(const sw_dataset *dataset, struct sw_str *out);

/* Whether the dataset puts texts into the single-text template. Shards, chats and rows of other
 * tasks do not. */
bool sw_dataset_is_templated(const struct sw_dataset *dataset);

/* The kind of a file of preferences, by its first record: PAIRS of texts, CHATS, or TEXT without
 * prompts. */
sw_status sw_preferences_kind(const char *path, enum sw_data_kind *out);
/* Fetches samples in the order of the files, as if the split were validated. */
sw_status sw_dataset_fetch_in_order(const sw_dataset *dataset, enum sw_split split, int64_t first,
                                    int64_t n_rows, const struct sw_row_input *inputs,
                                    int n_inputs);
/* Sets the log-probabilities of the reference model for the rows of a split, in that order: copied,
 * [n_samples, 2]. */
sw_status sw_dataset_set_reference(sw_dataset *dataset, enum sw_split split, const float *values);
/* Hash of the rows of both splits of a dataset of preferences. */
uint64_t sw_dataset_hash_sides(const sw_dataset *dataset);

/* Classes found in the labels of the data. */
struct sw_label_list {
    char **names; /* [n] owned; NULL: classes are numbers */
    int64_t n;    /* 0: no class was found */
};
void sw_label_list_fini(struct sw_label_list *list);
/* Finds the classes in the files of options. Names are sorted. Numbers count up to the highest, and
 * a list of numbers has one class each. Images: the names of folders; CIFAR files give no class.
 *
 * n_known      classes of an existing head: a number below it is never too high
 *
 * SW_E_FORMAT  the highest number gives far more classes than there are labels
 */
sw_status sw_labels_find(const struct sw_dataset_options *options, int64_t n_known,
                         struct sw_label_list *out);

/* Metrics of a task over the rows of a split, in the order of its rows. */
struct sw_score;
/* predictions: receives answers as a JSON object of ids and texts; may be NULL. Borrows dataset and
 * predictions until closed. SW_E_ARG: the dataset is for next-token prediction. */
sw_status sw_score_open(const struct sw_dataset *dataset, enum sw_split split, FILE *predictions,
                        struct sw_score **out);
void sw_score_close(struct sw_score *score);
/* Rows from `first` on as fetched, with the model's output for each loss k of the task: widths[k]
 * numbers a row. Blank rows do not count. */
struct sw_score_rows {
    int64_t first, n;
    const struct sw_row_input *inputs; /* [n_inputs] includes the labels */
    int n_inputs;
    const float *outputs[SW_TASK_MAX_LOSSES];
    int64_t widths[SW_TASK_MAX_LOSSES];
};
sw_status sw_score_add(struct sw_score *score, const struct sw_score_rows *rows);
/* NaN: undefined, or not a metric of the task. Answer metrics are in per cent, as in SQuAD's
 * script. Perplexity is that of the loss. */
double sw_score_of(const struct sw_score *score, enum sw_metric metric);
/* Completes the output of predictions. */
sw_status sw_score_end(struct sw_score *score);
