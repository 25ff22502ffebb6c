// SPDX-License-Identifier: Apache-2.0
// task - what a model is asked to learn, as a table: which inputs a batch has, what pads them,
// which losses are added with which weights, and which metrics are counted. The rooms that make
// batches, build heads, compare recorded runs or evaluate read a task's row; none of them names a
// task.
#pragma once

#include "base/base.h"
#include "tensor/tensor.h"

/* Sizes of a batch, of which the shapes of inputs are made. */
enum sw_task_dim {
    SW_DIM_BATCH,   /* rows of a micro-batch */
    SW_DIM_TOKENS,  /* of a row; of an encoder-decoder: what the encoder reads */
    SW_DIM_TARGETS, /* tokens that a decoder behind an encoder is asked for */
    SW_DIM_LABELS,  /* classes, or numbers, for each row */
    SW_DIM_CHANNELS,
    SW_DIM_HEIGHT,
    SW_DIM_WIDTH,
    SW_DIM_COUNT
};
struct sw_task_sizes {
    int64_t of[SW_DIM_COUNT];
};

/* What an input is where a batch does not give it. */
enum sw_task_absent {
    SW_ABSENT_REFUSED,
    SW_ABSENT_ZEROS,
    SW_ABSENT_ONES,
    SW_ABSENT_COUNTED /* 0, 1, .. along the last dim */
};

/* What stands behind the end of a row that is shorter than its tensor. */
enum sw_task_pad {
    SW_PAD_ZERO,
    SW_PAD_ID,     /* the model's or tokenizer's padding id, 0 where there is none */
    SW_PAD_IGNORED /* -100, of f32 NaN: has no loss */
};

enum { SW_TASK_MAX_RANK = 4, SW_TASK_MAX_INPUTS = 8, SW_TASK_MAX_LOSSES = 2 };

/* A graph has those of a task's inputs that its model reads. */
struct sw_task_input {
    const char *name;     /* of the sw_input */
    const char *recorded; /* in a batch of Hugging Face's; NULL: the same */
    enum sw_dtype dtype;  /* i32 or f32 */
    int rank;
    enum sw_task_dim dims[SW_TASK_MAX_RANK];
    enum sw_task_pad pad;
    enum sw_task_absent absent;
    bool is_label; /* asked for only where there is a loss */
};

enum sw_loss_kind {
    SW_LOSS_CLASSES, /* cross entropy; i32 labels, -100 ignored, mean over those that count */
    SW_LOSS_PLACE,   /* the same over the tokens of a row; a place beyond them is ignored */
    SW_LOSS_BITS,    /* binary cross entropy of each label by itself; f32 labels 0 or 1 */
    SW_LOSS_SQUARES  /* mean of squared differences; f32 labels */
};
/* One term: weight times the mean over its own labels. The loss of a batch is the sum of all. */
struct sw_task_loss {
    enum sw_loss_kind kind;
    const char *labels;   /* an input */
    const char *output;   /* what is compared with them */
    const char *recorded; /* that output in a recorded run; NULL: the same */
    double weight;
    /* The label of a token is the one after it: data and recordings that are not shifted yet have
     * each row's next element as its label, and none at the end. */
    bool shifted;
};

enum sw_metric {
    SW_METRIC_PERPLEXITY,
    SW_METRIC_ACCURACY,
    SW_METRIC_F1,       /* of class 1, where there are two; else the mean over classes */
    SW_METRIC_MATTHEWS, /* correlation of classes */
    SW_METRIC_PEARSON,  /* correlation of numbers */
    SW_METRIC_EXACT,    /* answers that are one of those wanted, normalised as SQuAD does */
    SW_METRIC_ANSWER_F1,
    SW_METRIC_ENTITY_F1,
    SW_METRIC_COUNT
};
/* "perplexity", "accuracy", "f1", "matthews", "pearson", "exact_match", "answer_f1", "entity_f1" */
const char *sw_metric_name(enum sw_metric metric);
/* SW_METRIC_COUNT: there is none of this name. */
enum sw_metric sw_metric_of(const char *name);
bool sw_metric_is_better(enum sw_metric metric, double a, double b); /* a than b; NaN never is */

/* How samples become rows. */
enum sw_row_kind {
    SW_ROWS_TEXT,    /* windows of a stream of text, or documents */
    SW_ROWS_MASKED,  /* pieces of texts, tokens of which are masked */
    SW_ROWS_PAIRS,   /* the same of two texts, the second of which may be another's */
    SW_ROWS_SPANS,   /* pieces of texts without some spans, and these */
    SW_ROWS_TARGETS, /* a text, and the one that is wanted for it */
    SW_ROWS_LABELS,  /* one or two texts with a class, classes or numbers */
    SW_ROWS_WORDS,   /* words with a class each */
    SW_ROWS_ANSWERS, /* a question and a window of a context */
    SW_ROWS_IMAGES,  /* an image with a class, classes or a number */
    SW_ROWS_NONE     /* there are none: nothing is lost */
};

struct sw_task {
    const char *name; /* of --task */
    const char *what; /* a phrase for readers */
    /* The task whose head a model needs for it: itself, or the one that differs in its data. */
    const char *head;
    enum sw_row_kind rows;
    const struct sw_task_input *inputs; /* [n_inputs] */
    int n_inputs;
    const struct sw_task_loss *losses; /* [n_losses] */
    int n_losses;
    const enum sw_metric *metrics; /* [n_metrics]; the first is the one that checkpoints compare */
    int n_metrics;
};

/* NULL: there is none of this name. */
const struct sw_task *sw_task_of(const char *name);
/* Number i = 0, 1, ..; NULL behind the last. */
const struct sw_task *sw_task_at(int i);
/* "causal, masked, .." */
void sw_task_list(struct sw_str *out);

/* NULL: the task has no input of this name. */
const struct sw_task_input *sw_task_input_of(const struct sw_task *task, const char *name);
struct sw_shape sw_task_shape(const struct sw_task_input *input, const struct sw_task_sizes *sizes);
/* The term whose labels an input is; NULL: it is no label. */
const struct sw_task_loss *sw_task_loss_of(const struct sw_task *task, const char *input);
