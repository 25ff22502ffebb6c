// SPDX-License-Identifier: Apache-2.0
// A task describes what a model learns, as a row of a table: the inputs of a batch and their
// padding, the losses and their weights, and the metrics. Rooms that make batches, build heads,
// compare recorded runs or evaluate read the row of a task. None of them names a task.
#pragma once

#include "base/base.h"
#include "tensor/tensor.h"

/* Sizes of a batch; the shapes of inputs consist of them. */
enum sw_task_dim {
    SW_DIM_BATCH,   /* rows of a micro-batch */
    SW_DIM_TOKENS,  /* tokens of a row; encoder-decoder: of the encoder's row */
    SW_DIM_TARGETS, /* tokens of a decoder row in an encoder-decoder */
    SW_DIM_LABELS,  /* classes, or numbers, per row */
    SW_DIM_CHANNELS,
    SW_DIM_HEIGHT,
    SW_DIM_WIDTH,
    SW_DIM_COUNT
};
struct sw_task_sizes {
    int64_t of[SW_DIM_COUNT];
};

/* Default of an input that a batch omits. */
enum sw_task_absent {
    SW_ABSENT_REFUSED,
    SW_ABSENT_ZEROS,
    SW_ABSENT_ONES,
    SW_ABSENT_COUNTED /* 0, 1, .. along the last dim */
};

/* Padding of a row that is shorter than its tensor. */
enum sw_task_pad {
    SW_PAD_ZERO,
    SW_PAD_ID,     /* the padding id of the model, or else of the tokenizer */
    SW_PAD_IGNORED /* -100, or NaN for f32: no loss */
};

enum { SW_TASK_MAX_RANK = 4, SW_TASK_MAX_INPUTS = 8, SW_TASK_MAX_LOSSES = 2 };
/* Terms of a loss: those of a task, or of a language model and its routers. */
enum { SW_TASK_MAX_TERMS = SW_TASK_MAX_LOSSES + 1 };

/* An input of a task. A graph contains the inputs that its model reads. */
struct sw_task_input {
    const char *name;     /* of the sw_input */
    const char *recorded; /* name in a Hugging Face batch; NULL = the same */
    enum sw_dtype dtype;  /* i32 or f32 */
    int rank;
    enum sw_task_dim dims[SW_TASK_MAX_RANK];
    enum sw_task_pad pad;
    enum sw_task_absent absent;
    bool is_label; /* needed only if there is a loss */
};

enum sw_loss_kind {
    SW_LOSS_CLASSES, /* cross-entropy; i32 labels, -100 ignored, mean over the others */
    SW_LOSS_PLACE, /* cross-entropy over the tokens of a row; a position out of range is ignored */
    SW_LOSS_BITS,  /* binary cross-entropy for each label; f32 labels 0 or 1 */
    SW_LOSS_SQUARES, /* mean squared error; f32 labels */
    /* Losses of preferences (graph/op.h, struct sw_preference_attrs). A sample is two rows. */
    SW_LOSS_PREFERENCE, /* DPO or IPO; i32 labels of tokens */
    SW_LOSS_ODDS,       /* ORPO; i32 labels of tokens */
    SW_LOSS_UNPAIRED,   /* KTO; i32 labels of tokens */
    SW_LOSS_REWARD,     /* a number a row; f32 labels: 1, or NaN for a row that does not count */
    /* Vectors of pairs against those of all pairs of the global batch. A step computes all vectors
     * first. labels are then the loss's gradients by the row's vector, and SW_TASK_OFFSETS what the
     * loss is besides vector times gradient. */
    SW_LOSS_CONTRAST
};
/* One term of the loss: weight times the mean over its own labels. The loss of a batch is the sum
 * of its terms. */
struct sw_task_loss {
    enum sw_loss_kind kind;
    const char *labels;   /* name of an input */
    const char *output;   /* name of the output to compare with the labels */
    const char *recorded; /* name of the output in a recorded run; NULL = the same */
    double weight;
    /* The label of a token is the next token. In data and recordings that are not yet shifted, the
     * label is the row's next element, and the last element has none. */
    bool shifted;
};

enum sw_metric {
    SW_METRIC_PERPLEXITY,
    SW_METRIC_ACCURACY,
    SW_METRIC_F1,       /* F1 of class 1 if there are two classes; else the mean over classes */
    SW_METRIC_MATTHEWS, /* Matthews correlation of classes */
    SW_METRIC_PEARSON,  /* Pearson correlation of numbers */
    SW_METRIC_EXACT,    /* exact match with one of the wanted answers, normalized as in SQuAD */
    SW_METRIC_ANSWER_F1,
    SW_METRIC_ENTITY_F1,
    /* Metrics of preferences have TRL's names. A reward is beta times the log-probability, minus
     * beta times that of the reference. */
    SW_METRIC_REWARDS_ACCURACIES, /* share of pairs whose chosen response has the higher reward */
    SW_METRIC_REWARDS_MARGINS,    /* mean reward of chosen responses minus that of rejected ones */
    SW_METRIC_REWARDS_CHOSEN,
    SW_METRIC_REWARDS_REJECTED,
    SW_METRIC_LOGPS_CHOSEN, /* mean log-probability */
    SW_METRIC_LOGPS_REJECTED,
    SW_METRIC_NLL,            /* ORPO: mean of -log p of a token of the chosen response */
    SW_METRIC_LOG_ODDS_RATIO, /* ORPO */
    SW_METRIC_LOG_ODDS_CHOSEN,
    SW_METRIC_KL,     /* KTO: the shift z */
    SW_METRIC_MARGIN, /* reward models: margin and mean of the scores */
    SW_METRIC_MEAN_REWARD,
    SW_METRIC_COUNT
};
/* Names of the metrics: "perplexity", "accuracy", "f1", .. */
const char *sw_metric_name(enum sw_metric metric);
/* SW_METRIC_COUNT if no metric has this name. */
enum sw_metric sw_metric_of(const char *name);
/* a better than b; a NaN is never better */
bool sw_metric_is_better(enum sw_metric metric, double a, double b);

/* Ways to make rows from samples. */
enum sw_row_kind {
    SW_ROWS_TEXT,        /* windows of a stream of text, or documents */
    SW_ROWS_MASKED,      /* pieces of text with masked tokens */
    SW_ROWS_PAIRS,       /* masked pieces of two texts; the second one may belong to another text */
    SW_ROWS_SPANS,       /* pieces of text with spans removed, and the spans as targets */
    SW_ROWS_TARGETS,     /* a text and its target text */
    SW_ROWS_LABELS,      /* one or two texts with a class, several classes, or numbers */
    SW_ROWS_WORDS,       /* words with one class each */
    SW_ROWS_ANSWERS,     /* a question and a window of a context */
    SW_ROWS_IMAGES,      /* an image with a class, several classes, or a number */
    SW_ROWS_PREFERENCES, /* a prompt with a chosen and a rejected response */
    SW_ROWS_CONTRAST,    /* two texts that belong together, a row each */
    SW_ROWS_NONE         /* no rows: the task has no loss */
};

struct sw_task {
    const char *name; /* value of --task */
    const char *what; /* a phrase for readers */
    /* The task whose head the model needs: itself, or a task that differs only in its data. */
    const char *head;
    enum sw_row_kind rows;
    const struct sw_task_input *inputs; /* [n_inputs] */
    int n_inputs;
    const struct sw_task_loss *losses; /* [n_losses] */
    int n_losses;
    const enum sw_metric *metrics; /* [n_metrics]; checkpoints compare the first one */
    int n_metrics;
};

/* Rows of a micro-batch that a sample takes: 2 for pairs. */
static inline int sw_task_rows(const struct sw_task *task)
{
    return task->rows == SW_ROWS_PREFERENCES || task->rows == SW_ROWS_CONTRAST ? 2 : 1;
}
#define SW_TASK_OFFSETS "offsets"
/* Name of the input with the weights of labels, above 0 for those that are not ignored. */
#define SW_TASK_WEIGHTS "weights"
/* Name of the input with the log-probabilities of the reference model. */
#define SW_TASK_REFERENCE "reference_log_probs"

/* NULL if no task has this name. */
const struct sw_task *sw_task_of(const char *name);
/* Task i = 0, 1, ..; NULL after the last one. */
const struct sw_task *sw_task_at(int i);
/* Appends the names: "causal, masked, ..". */
void sw_task_list(struct sw_str *out);

/* NULL if the task has no input of this name. */
const struct sw_task_input *sw_task_input_of(const struct sw_task *task, const char *name);
struct sw_shape sw_task_shape(const struct sw_task_input *input, const struct sw_task_sizes *sizes);
/* The loss term that uses an input as its labels; NULL if there is none. */
const struct sw_task_loss *sw_task_loss_of(const struct sw_task *task, const char *input);
