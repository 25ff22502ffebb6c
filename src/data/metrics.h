// SPDX-License-Identifier: Apache-2.0
// metrics - compares predictions with the expected values. Samples are added one at a time. Each
// metric follows its reference program: scikit-learn, SciPy, SQuAD's script or seqeval. An
// undefined metric is NaN.
#pragma once

#include "base/base.h"

/* ---- classes ---- */

/* Counts per class: predicted, wanted, and both at once. Memory grows with the classes, not with
 * pairs of classes. All zero is empty. */
struct sw_confusion {
    struct sw_class_counts {
        int64_t predicted, wanted, right;
    } * of;    /* [n] owned */
    int32_t n; /* classes */
};
sw_status sw_confusion_init(struct sw_confusion *confusion, int32_t n_classes);
void sw_confusion_fini(struct sw_confusion *confusion);
/* Both classes must be below n. */
void sw_confusion_add(struct sw_confusion *confusion, int32_t predicted, int32_t wanted);
double sw_confusion_accuracy(const struct sw_confusion *confusion);
/* F1 of one class; 0 if it was neither predicted nor wanted. */
double sw_confusion_f1(const struct sw_confusion *confusion, int32_t class_id);
/* Mean F1 over the classes that were predicted or wanted. */
double sw_confusion_macro_f1(const struct sw_confusion *confusion);
/* Matthews' correlation for any number of classes; 0 if either side is constant. */
double sw_confusion_matthews(const struct sw_confusion *confusion);

/* ---- any of several labels ---- */

/* Label counts over all rows; n_right counts rows whose labels are all right. All zero is empty. */
struct sw_label_bits {
    int64_t n_both, n_predicted, n_wanted, n_right, n_rows;
};
void sw_label_bits_add(struct sw_label_bits *bits, const bool *predicted, const bool *wanted,
                       int64_t n);
double sw_label_bits_f1(const struct sw_label_bits *bits);
double sw_label_bits_accuracy(const struct sw_label_bits *bits);

/* ---- numbers ---- */

/* Running means and central sums (Welford 1962), which avoid differences of large sums. All zero is
 * empty. */
struct sw_moments {
    int64_t n;
    double first_x,
        first_y; /* subtracted from all values, so that a large mean costs no precision */
    double mean_x, mean_y, xx, yy, xy, squares;
};
void sw_moments_add(struct sw_moments *moments, double predicted, double wanted);
double sw_moments_pearson(const struct sw_moments *moments);
double sw_moments_mse(const struct sw_moments *moments);

/* ---- losses ---- */

double sw_perplexity(double loss_sum, double count);

/* ---- answers ---- */

/* Appends a text as SQuAD's script compares it: lower case, no ASCII punctuation, no articles, one
 * space between words. SW_E_UNSUP: the text has non-ASCII letters and this build lacks Unicode
 * tables. */
sw_status sw_answer_normalise(const char *text, size_t len, struct sw_str *out);

struct sw_answer_text {
    const char *text;
    size_t len;
};
/* All zero is empty. */
struct sw_answer_scores {
    int64_t n;
    double exact, f1; /* sums, 0 .. 1 each */
};
/* Scores against the best match among the wanted answers. Without any, the wanted answer is "". */
sw_status sw_answer_scores_add(struct sw_answer_scores *scores, struct sw_answer_text predicted,
                               const struct sw_answer_text *wanted, int64_t n_wanted);

/* ---- entities ---- */

struct sw_entity_type {
    char *name; /* owned */
    int64_t n_both, n_predicted, n_wanted;
};
/* Counts spans of tags (B-PER I-PER O) that agree in type, first and last tag. All zero is
 * empty. */
struct sw_entities {
    struct sw_entity_type *types; /* [n_types] in order of first appearance; owned */
    int n_types, cap_types;
    struct sw_names places; /* index of types by name */
    int64_t n_right, n_tags;
    /* Start of the last entity of each side. A tag without a type that is not B, I, E or S ("X")
     * continues that entity after an O. As in seqeval, it does so even across rows. */
    int64_t begins[2];
};
void sw_entities_fini(struct sw_entities *entities);
/* The tags of one row, [n] each. */
sw_status sw_entities_add(struct sw_entities *entities, const char *const *predicted,
                          const char *const *wanted, int64_t n);
struct sw_span_score {
    double precision, recall, f1; /* 0 if there was nothing to count */
};
struct sw_span_score sw_entity_type_score(const struct sw_entity_type *type);
/* Score over all types together. */
struct sw_span_score sw_entities_score(const struct sw_entities *entities);
double sw_entities_accuracy(const struct sw_entities *entities); /* share of right tags */
