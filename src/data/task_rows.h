// SPDX-License-Identifier: Apache-2.0
// task_rows - samples of tasks other than the next token: what files hold, as token ids with
// labels, and the rows that are made of them. A row is a function of (seed, split, sample number)
// and of what was read.
#pragma once

#include "data/answers.h"
#include "data/images.h"
#include "data/labels.h"
#include "data/masking.h"
#include "data/tokenizer.h"

/* A sample. Texts are places in `ids`. */
struct sw_task_row {
    int64_t first, n;
    int64_t second, n_second; /* a second text, a target, the labels of words; n_second -1: none */
    int64_t numbers;          /* first place in numbers; in labels, if n_classes is not -1 */
    int64_t n_classes;        /* classes that hold; -1: there are numbers instead */
    int32_t label, label_end; /* a class; the first and last token of an answer */
    int32_t question;
};

/* A question of a file, and the windows of its context, which are rows. */
struct sw_task_question {
    int64_t text, text_len;     /* of the context, in `texts` */
    int64_t tokens, n_tokens;   /* of the context, in ids, begins and ends */
    int64_t first_row, n_rows;  /* its windows */
    int64_t answers, n_answers; /* in `answers` */
    int64_t id, id_len;         /* in `texts`; -1: none */
};
struct sw_task_answer {
    int64_t text, len; /* in `texts` */
};

/* What was read. All zero is empty. */
struct sw_task_rows {
    struct sw_ids ids;    /* of all texts */
    struct sw_ids labels; /* of words; classes that hold */
    float *numbers;       /* [n_numbers] of all rows */
    int64_t n_numbers, numbers_cap;
    struct sw_task_row *rows; /* [n] */
    int64_t n, cap;
    struct sw_images images;
    struct sw_ids begins, ends; /* of tokens of contexts: beside ids, 0 where it is none */
    struct sw_str texts;
    struct sw_task_question *questions;
    int64_t n_questions, questions_cap;
    struct sw_task_answer *answers;
    int64_t n_answers, answers_cap;
    int64_t n_documents, n_cut, n_dropped;
};
void sw_task_rows_fini(struct sw_task_rows *rows);

/* What reading and making rows share. */
struct sw_task_form {
    const struct sw_task *task;
    int64_t T, U; /* tokens of a row and of a target */
    int64_t stride;
    uint64_t seed;
    int32_t pad, eos, mask, first_sentinel, n_sentinels;
    int64_t n_ids;                   /* of the tokenizer, for random ones */
    bool *special;                   /* [n_ids] by id; owned */
    struct sw_template single, pair; /* owned */
    int64_t n_labels;
    char **names; /* [n_labels] of classes; NULL: they are numbers; owned */
    struct sw_image_steps steps;
    int64_t channels, height, width;
};
/* What depends on the tokenizer (NULL: images), and refuses what the task cannot do with it. */
sw_status sw_task_form_init(struct sw_task_form *form, const struct sw_task *task,
                            const struct sw_dataset_options *options, int64_t vocab_size);
void sw_task_form_fini(struct sw_task_form *form);
/* How images are read. If the label is a number, its byte may have any value. */
struct sw_image_form sw_task_image_form(const struct sw_task_form *form);

/* Reads one file. */
struct sw_task_reading {
    const struct sw_task_form *form;
    const struct sw_dataset_options *options;
    struct sw_columns columns;
    struct sw_labels labels;
    int64_t vocab_size;
    struct sw_task_rows *rows;
    struct sw_str languages[2]; /* of translations, from and to */
    bool knows_languages;
    /* Targets that the decoder has no room for. */
    int64_t n_long, longest;
    struct sw_str first_long;
};
sw_status sw_task_read_file(struct sw_task_reading *in, const char *path);
/* What only all files together tell. */
sw_status sw_task_read_end(struct sw_task_reading *in);
void sw_task_reading_fini(struct sw_task_reading *in);

/* Rows of a part of the samples. */
struct sw_task_part {
    const struct sw_task_form *form;
    const struct sw_task_rows *rows;
    int64_t first, n; /* others that a second text may come from */
    enum sw_split split;
};
/* Row `at` (-1: a blank one) of sample `sample` as row `row` of each input. */
sw_status sw_task_put_row(const struct sw_task_part *part, int64_t at, int64_t sample,
                          const struct sw_row_input *inputs, int n_inputs, int64_t row);

/* ---- score.c ---- */
sw_status sw_score_open_part(const struct sw_task_form *form, const struct sw_task_rows *rows,
                             int64_t first, int64_t n, FILE *predictions, struct sw_score **out);
