// SPDX-License-Identifier: Apache-2.0
// task_rows - samples of all tasks other than next-token prediction: file contents as token ids
// with labels, and the rows built from them. A row depends only on the data read and on (seed,
// split, sample number).
#pragma once

#include "data/answers.h"
#include "data/images.h"
#include "data/labels.h"
#include "data/masking.h"
#include "chat/chat.h"
#include "token/token.h"

/* A sample. Texts are offsets into `ids`. */
struct sw_task_row {
    int64_t first, n;
    int64_t second, n_second; /* second text, target or word labels; n_second -1: absent */
    int64_t numbers;          /* offset in `labels` if n_classes >= 0, else in `numbers` */
    int64_t n_classes;        /* number of classes that apply; -1: the sample has numbers instead */
    int32_t label, label_end; /* class, or first and last token of an answer */
    int32_t question;
};

/* A question, and the windows of its context. Each window is a row. */
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

/* A prompt and a response of a row of preferences: n tokens of `ids` from `first` on. Those from
 * `begin` up to `end` are the response. */
struct sw_task_side {
    int64_t first, n, begin, end;
};

/* The data read from all files. All zero is empty. */
struct sw_task_rows {
    struct sw_ids ids;    /* token ids of all texts */
    struct sw_ids labels; /* word labels, or classes that apply */
    float *numbers;       /* [n_numbers] of all rows */
    int64_t n_numbers, numbers_cap;
    struct sw_task_row *rows; /* [n] */
    int64_t n, cap;
    struct sw_images images;
    struct sw_ids begins, ends; /* character range of each context token, parallel to ids; else 0 */
    struct sw_str texts;
    struct sw_task_question *questions;
    int64_t n_questions, questions_cap;
    struct sw_task_answer *answers;
    int64_t n_answers, answers_cap;
    /* Preferences: the sides of each row, [n, 2]: chosen and rejected, or a response alone, whose
     * label says whether it is desirable. KTO's second response is that of the row `question` rows
     * before. */
    struct sw_task_side *sides;
    int64_t sides_cap;
    int64_t n_documents, n_cut, n_dropped;
};
void sw_task_rows_fini(struct sw_task_rows *rows);

/* Settings shared by reading files and building rows. */
struct sw_task_form {
    const struct sw_task *task;
    int64_t T, U; /* tokens per row and per target */
    int64_t stride;
    uint64_t seed;
    int32_t pad, eos, mask, first_sentinel, n_sentinels;
    int64_t n_ids;                           /* vocabulary size, for random tokens */
    bool *special;                           /* [n_ids] by id; owned */
    struct sw_template single, pair, target; /* owned */
    int64_t n_labels;
    char **names; /* [n_labels] class names; NULL: classes are numbers; owned */
    struct sw_image_steps steps;
    int64_t channels, height, width;
};
/* Initialises `form` for a task and its tokenizer (NULL for images). Fails if the task cannot be
 * done with that tokenizer. */
sw_status sw_task_form_init(struct sw_task_form *form, const struct sw_task *task,
                            const struct sw_dataset_options *options, int64_t vocab_size);
void sw_task_form_fini(struct sw_task_form *form);
/* The image format that files must have. If the label is a number, its byte may have any value. */
struct sw_image_form sw_task_image_form(const struct sw_task_form *form);

/* Reads one file. */
struct sw_task_reading {
    const struct sw_task_form *form;
    const struct sw_dataset_options *options;
    struct sw_columns columns;
    struct sw_labels labels;
    int64_t vocab_size;
    struct sw_task_rows *rows;
    struct sw_chat_row chat_row; /* scratch */
    struct sw_str languages[2];  /* of translations: source and target */
    bool knows_languages;
    int64_t n_responses, n_merged; /* of preferences: texts; prompts that a token crosses */
    struct sw_str joined;          /* scratch */
    /* Targets longer than U: how many, the longest, and the name of the first. */
    int64_t n_long, longest;
    struct sw_str first_long;
};
sw_status sw_task_read_file(struct sw_task_reading *in, const char *path);
/* Checks target lengths and finishes the images after all files were read. */
sw_status sw_task_read_end(struct sw_task_reading *in);
void sw_task_reading_fini(struct sw_task_reading *in);
/* Appends a row. */
sw_status sw_task_add_row(struct sw_task_reading *in, const struct sw_task_row *row);
/* Makes room for one more item of `size` bytes in a list of n. False: out of memory. */
bool sw_task_grow(void *list, int64_t n, int64_t *cap, size_t size);

/* ---- preference.c ---- */
/* Warns of examples whose prompt has other tokens alone than before its response. */
void sw_warn_merged(const char *name, int64_t n_merged, int64_t n, const char *what);
/* Adds the rows of a record of preferences. */
sw_status sw_task_add_preference(struct sw_task_reading *in, const struct sw_json_doc *doc,
                                 const struct sw_json *record);

/* Rows of a part of the samples. */
struct sw_task_part {
    const struct sw_task_form *form;
    const struct sw_task_rows *rows;
    int64_t first, n; /* range of rows; a random second text comes from it, too */
    enum sw_split split;
    const float *reference; /* [n, 2] log-probabilities of the reference; NULL = 0 */
};
/* Writes data row `at` (-1: a blank row), drawn as number `sample`, to row `row` of each input. */
sw_status sw_task_put_row(const struct sw_task_part *part, int64_t at, int64_t sample,
                          const struct sw_row_input *inputs, int n_inputs, int64_t row);

/* ---- score.c ---- */
sw_status sw_score_open_part(const struct sw_task_form *form, const struct sw_task_rows *rows,
                             int64_t first, int64_t n, FILE *predictions, struct sw_score **out);
