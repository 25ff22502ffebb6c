// SPDX-License-Identifier: Apache-2.0
// Scores of a model over the rows of a dataset: outputs and labels go into the metrics of the task.
// Rows come in order, so the windows of a question are adjacent.
#include "data/data.h"

#include "data/metrics.h"
#include "data/task_rows.h"
#include "text/text.h"

#include <math.h>
#include <string.h>

struct sw_score {
    const struct sw_task_form *form;
    const struct sw_task_rows *rows;
    int64_t first, n; /* rows of the split in `rows` */
    struct sw_confusion confusion;
    struct sw_label_bits bits;
    struct sw_moments moments;
    struct sw_entities entities;
    struct sw_answer_scores answers;
    int64_t n_right, n_labels; /* of single tokens */
    /* The question whose windows are being added. */
    float *starts, *ends; /* [windows_cap, T] */
    struct sw_window_scores *windows;
    int64_t windows_cap;
    bool any_none; /* some question has no answer, so "no answer" may be predicted */
    FILE *predictions;
    int64_t n_predicted;
};

void sw_score_close(struct sw_score *score)
{
    if (score) {
        sw_confusion_fini(&score->confusion);
        sw_entities_fini(&score->entities);
        sw_free(score->starts);
        sw_free(score->ends);
        sw_free(score->windows);
        sw_free(score);
    }
}

/* Entities are counted only if classes have names. */
static bool counts_entities(const struct sw_task_form *form)
{
    const struct sw_task *task = form->task;
    for (int i = 0; i < task->n_metrics; i++) {
        if (task->metrics[i] == SW_METRIC_ENTITY_F1 && form->names) {
            return true;
        }
    }
    return false;
}

/* Whether a row has one label, rather than one per token. */
static bool is_of_row(const struct sw_task *task)
{
    const struct sw_task_input *labels = sw_task_input_of(task, task->losses[0].labels);
    return labels && labels->rank == 1;
}

sw_status sw_score_open_part(const struct sw_task_form *form, const struct sw_task_rows *rows,
                             int64_t first, int64_t n, FILE *predictions, struct sw_score **out)
{
    struct sw_score *score = sw_alloc_zero("score", 1, sizeof *score);
    SW_TRY_ALLOC(score, "scores");
    score->form = form;
    score->rows = rows;
    score->first = first;
    score->n = n;
    score->predictions = predictions;
    for (int64_t i = 0; i < rows->n_questions; i++) {
        score->any_none = score->any_none || rows->questions[i].n_answers == 0;
    }
    sw_status st = SW_OK;
    if (form->task->losses[0].kind == SW_LOSS_CLASSES && is_of_row(form->task)) {
        st = sw_confusion_init(&score->confusion, (int32_t)form->n_labels);
    }
    if (st < 0) {
        sw_score_close(score);
        return st;
    }
    *out = score;
    return SW_OK;
}

static int32_t largest(const float *logits, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++) {
        at = logits[i] > logits[at] ? i : at;
    }
    return (int32_t)at;
}

static const void *input(const struct sw_score_rows *r, const char *name)
{
    for (int i = 0; i < r->n_inputs; i++) {
        if (strcmp(r->inputs[i].name, name) == 0) {
            return r->inputs[i].data;
        }
    }
    return NULL;
}

/* ---- kinds of comparison ---- */

static void add_classes(struct sw_score *s, const int32_t *labels, const float *logits, int64_t n,
                        int64_t width)
{
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] != SW_IGNORED_LABEL) {
            sw_confusion_add(&s->confusion, largest(logits + i * width, width), labels[i]);
        }
    }
}

static void add_tokens(struct sw_score *s, const int32_t *labels, const float *logits, int64_t n,
                       int64_t width)
{
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] != SW_IGNORED_LABEL) {
            s->n_right += largest(logits + i * width, width) == labels[i];
            s->n_labels++;
        }
    }
}

/* The tags of one row, without those that have no label. */
static sw_status add_tags(struct sw_score *s, const int32_t *labels, const float *logits,
                          int64_t width)
{
    const int64_t T = s->form->T;
    char *const *names = s->form->names;
    const char **tags = sw_alloc("score", 2 * (size_t)T * sizeof *tags);
    int64_t n = 0;
    SW_TRY_ALLOC(tags, "tags");
    for (int64_t t = 0; t < T; t++) {
        if (labels[t] != SW_IGNORED_LABEL) {
            tags[n] = names[largest(logits + t * width, width)];
            tags[T + n++] = names[labels[t]];
        }
    }
    const sw_status st = sw_entities_add(&s->entities, tags, tags + T, n);
    sw_free(tags);
    return st;
}

static sw_status add_bits(struct sw_score *s, const float *labels, const float *logits)
{
    const int64_t n = s->form->n_labels;
    bool *both = sw_alloc("score", 2 * (size_t)n);
    SW_TRY_ALLOC(both, "labels");
    for (int64_t i = 0; i < n; i++) {
        both[i] = logits[i] > 0;
        both[n + i] = labels[i] > 0.5F;
    }
    sw_label_bits_add(&s->bits, both, both + n, n);
    sw_free(both);
    return SW_OK;
}

/* ---- answers ---- */

/* The bytes of characters [begin, end) of a text. */
static struct sw_answer_text cut(const char *text, size_t len, int32_t begin, int32_t end)
{
    size_t pos = 0, first = 0;
    for (int32_t i = 0; i < end && pos < len; i++) {
        first = i == begin ? pos : first;
        sw_utf8_step(text, len, &pos);
    }
    return begin < end ? (struct sw_answer_text){text + first, pos - first}
                       : (struct sw_answer_text){"", 0};
}

static sw_status write_prediction(struct sw_score *s, const struct sw_task_question *q,
                                  struct sw_answer_text text)
{
    struct sw_str line = {0};
    const char *texts = sw_str_text(&s->rows->texts);
    if (!s->predictions) {
        return SW_OK;
    }
    sw_str_puts(&line, s->n_predicted++ == 0 ? "{\n" : ",\n");
    if (q->id >= 0) {
        sw_json_write_string(texts + q->id, (size_t)q->id_len, &line);
    } else {
        sw_str_printf(&line, "\"%lld\"", (long long)s->n_predicted - 1);
    }
    sw_str_puts(&line, ": ");
    sw_json_write_string(text.text, text.len, &line);
    const bool good = !line.failed && fwrite(line.ptr, 1, line.len, s->predictions) == line.len;
    sw_str_fini(&line);
    return good ? SW_OK : SW_FAIL(SW_E_IO, "the predictions cannot be written");
}

static sw_status judge(struct sw_score *s, const struct sw_task_question *q)
{
    const struct sw_task_rows *r = s->rows;
    const struct sw_context context = {r->begins.ptr + q->tokens, r->ends.ptr + q->tokens,
                                       q->n_tokens};
    const struct sw_answer_rules rules = {
        .n_best = SW_ANSWER_BEST, .longest = SW_ANSWER_LONGEST, .may_be_none = s->any_none};
    struct sw_answer_best best;
    struct sw_answer_text said = {"", 0};
    const char *texts = sw_str_text(&r->texts);
    sw_answer_choose(&context, s->windows, q->n_rows, &rules, &best);
    if (best.chosen >= 0) {
        said = cut(texts + q->text, (size_t)q->text_len, best.of[best.chosen].begin,
                   best.of[best.chosen].end);
    }
    struct sw_answer_text *wanted = sw_alloc("score", ((size_t)q->n_answers + 1) * sizeof *wanted);
    SW_TRY_ALLOC(wanted, "answers");
    for (int64_t i = 0; i < q->n_answers; i++) {
        const struct sw_task_answer *answer = &r->answers[q->answers + i];
        wanted[i] = (struct sw_answer_text){texts + answer->text, (size_t)answer->len};
    }
    const sw_status st = sw_answer_scores_add(&s->answers, said, wanted, q->n_answers);
    sw_free(wanted);
    return st < 0 ? st : write_prediction(s, q, said);
}

static sw_status make_room(struct sw_score *s, int64_t n)
{
    if (n <= s->windows_cap) {
        return SW_OK;
    }
    const size_t bytes = (size_t)(n * s->form->T) * sizeof(float);
    float *starts = sw_realloc("score", s->starts, bytes);
    s->starts = starts ? starts : s->starts;
    float *ends = sw_realloc("score", s->ends, bytes);
    s->ends = ends ? ends : s->ends;
    struct sw_window_scores *windows = sw_realloc("score", s->windows, (size_t)n * sizeof *windows);
    s->windows = windows ? windows : s->windows;
    SW_TRY_ALLOC(starts && ends && windows ? s : NULL, "scores of windows");
    s->windows_cap = n;
    return SW_OK;
}

/* Row index of the first token of the context. */
static int64_t context_at(const struct sw_task_form *form, const struct sw_task_row *row)
{
    int64_t at = 0;
    for (int i = 0; i < form->pair.n_items; i++) {
        if (form->pair.items[i].part == SW_TEMPLATE_SECOND) {
            break;
        }
        at += form->pair.items[i].part == SW_TEMPLATE_SPECIAL ? 1 : row->n;
    }
    return at;
}

static sw_status add_window(struct sw_score *s, int64_t i_row, const float *starts,
                            const float *ends)
{
    const struct sw_task_row *row = &s->rows->rows[s->first + i_row];
    const struct sw_task_question *q = &s->rows->questions[row->question];
    const int64_t T = s->form->T, i = s->first + i_row - q->first_row;
    SW_TRY(make_room(s, q->n_rows));
    memcpy(s->starts + i * T, starts, (size_t)T * sizeof *starts);
    memcpy(s->ends + i * T, ends, (size_t)T * sizeof *ends);
    for (int64_t w = 0; w <= i; w++) { /* memory may have moved */
        const struct sw_task_row *of = &s->rows->rows[q->first_row + w];
        s->windows[w] = (struct sw_window_scores){.starts = s->starts + w * T,
                                                  .ends = s->ends + w * T,
                                                  .n_row = T,
                                                  .at = context_at(s->form, of),
                                                  .first = of->second - q->tokens,
                                                  .n = of->n_second};
    }
    return i + 1 == q->n_rows ? judge(s, q) : SW_OK;
}

/* ---- all ---- */

static sw_status add_row(struct sw_score *s, const struct sw_score_rows *r, int64_t i)
{
    const struct sw_task *task = s->form->task;
    const int64_t T = s->form->T, n = r->widths[0];
    const float *logits = r->outputs[0] + i * n;
    const void *labels = input(r, task->losses[0].labels);
    switch (task->losses[0].kind) {
    case SW_LOSS_BITS:
        return add_bits(s, (const float *)labels + i * s->form->n_labels, logits);
    case SW_LOSS_SQUARES:
        for (int64_t k = 0; k < s->form->n_labels; k++) {
            sw_moments_add(&s->moments, logits[k],
                           ((const float *)labels)[i * s->form->n_labels + k]);
        }
        return SW_OK;
    case SW_LOSS_PLACE:
        return add_window(s, r->first + i, logits, r->outputs[1] + i * r->widths[1]);
    default:
        break;
    }
    if (is_of_row(task)) {
        add_classes(s, (const int32_t *)labels + i, logits, 1, n);
    } else if (counts_entities(s->form)) {
        return add_tags(s, (const int32_t *)labels + i * T, logits, n / T);
    } else {
        const bool target =
            sw_task_input_of(task, task->losses[0].labels)->dims[1] == SW_DIM_TARGETS;
        const int64_t tokens = target ? s->form->U : T;
        add_tokens(s, (const int32_t *)labels + i * tokens, logits, tokens, n / tokens);
    }
    return SW_OK;
}

sw_status sw_score_add(struct sw_score *score, const struct sw_score_rows *rows)
{
    for (int64_t i = 0; i < rows->n && rows->first + i < score->n; i++) {
        SW_TRY(add_row(score, rows, i));
    }
    return SW_OK;
}

double sw_score_of(const struct sw_score *score, enum sw_metric metric)
{
    const struct sw_task *task = score->form->task;
    const bool bits = task->losses[0].kind == SW_LOSS_BITS;
    const double n_answers = (double)score->answers.n;
    switch (metric) {
    case SW_METRIC_ACCURACY:
        return bits                           ? sw_label_bits_accuracy(&score->bits)
               : is_of_row(task)              ? sw_confusion_accuracy(&score->confusion)
               : counts_entities(score->form) ? sw_entities_accuracy(&score->entities)
               : score->n_labels > 0          ? (double)score->n_right / (double)score->n_labels
                                              : NAN;
    case SW_METRIC_F1:
        return bits                      ? sw_label_bits_f1(&score->bits)
               : score->confusion.n == 2 ? sw_confusion_f1(&score->confusion, 1)
                                         : sw_confusion_macro_f1(&score->confusion);
    case SW_METRIC_MATTHEWS:
        return sw_confusion_matthews(&score->confusion);
    case SW_METRIC_PEARSON:
        return sw_moments_pearson(&score->moments);
    case SW_METRIC_EXACT:
        return n_answers > 0 ? 100 * score->answers.exact / n_answers : NAN;
    case SW_METRIC_ANSWER_F1:
        return n_answers > 0 ? 100 * score->answers.f1 / n_answers : NAN;
    case SW_METRIC_ENTITY_F1:
        return score->entities.n_tags > 0 ? sw_entities_score(&score->entities).f1 : NAN;
    default:
        return NAN;
    }
}

sw_status sw_score_end(struct sw_score *score)
{
    if (score->predictions &&
        (fputs(score->n_predicted == 0 ? "{}\n" : "\n}\n", score->predictions) < 0 ||
         fflush(score->predictions) != 0)) {
        return SW_FAIL(SW_E_IO, "the predictions cannot be written");
    }
    return SW_OK;
}
