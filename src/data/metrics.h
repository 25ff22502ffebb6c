// SPDX-License-Identifier: Apache-2.0
// metrics - what predictions are worth, beside what was wanted: sums that samples are added to one
// by one. Each is that of a program which others compare with: scikit-learn's, SciPy's, SQuAD's
// script, seqeval's. NaN where a metric is not defined.
#pragma once

#include "base/base.h"

/* ---- classes ---- */

/* How often each class was predicted, was wanted, and was both at once: memory goes by classes, not
 * by pairs of them. All zero is empty. */
struct sw_confusion {
    struct sw_class_counts {
        int64_t predicted, wanted, right;
    } * of;    /* [n] owned */
    int32_t n; /* classes */
};
sw_status sw_confusion_init(struct sw_confusion *confusion, int32_t n_classes);
void sw_confusion_fini(struct sw_confusion *confusion);
/* Both below n. */
void sw_confusion_add(struct sw_confusion *confusion, int32_t predicted, int32_t wanted);
double sw_confusion_accuracy(const struct sw_confusion *confusion);
/* Of one class; 0 where it was neither predicted nor wanted. */
double sw_confusion_f1(const struct sw_confusion *confusion, int32_t class_id);
/* Mean over the classes that were predicted or wanted. */
double sw_confusion_macro_f1(const struct sw_confusion *confusion);
/* Matthews' correlation for any number of classes; 0 where one side is constant. */
double sw_confusion_matthews(const struct sw_confusion *confusion);

/* ---- any of several labels ---- */

/* Labels of all rows together, and rows whose labels are all right. All zero is empty. */
struct sw_label_bits {
    int64_t n_both, n_predicted, n_wanted, n_right, n_rows;
};
void sw_label_bits_add(struct sw_label_bits *bits, const bool *predicted, const bool *wanted,
                       int64_t n);
double sw_label_bits_f1(const struct sw_label_bits *bits);
double sw_label_bits_accuracy(const struct sw_label_bits *bits);

/* ---- numbers ---- */

/* Means and sums about them, kept up to date (Welford 1962): no difference of large sums. All zero
 * is empty. */
struct sw_moments {
    int64_t n;
    double first_x, first_y; /* what sums are of differences from, so that no offset blurs them */
    double mean_x, mean_y, xx, yy, xy, squares;
};
void sw_moments_add(struct sw_moments *moments, double predicted, double wanted);
double sw_moments_pearson(const struct sw_moments *moments);
double sw_moments_mse(const struct sw_moments *moments);

/* ---- losses ---- */

double sw_perplexity(double loss_sum, double count);

/* ---- answers ---- */

/* Appends a text as SQuAD's script compares it: small letters, no punctuation of ASCII, no
 * articles, one space between words. SW_E_UNSUP: it has letters beyond ASCII, and this build knows
 * none. */
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
/* Against the best of the answers that are wanted; none of them: "". */
sw_status sw_answer_scores_add(struct sw_answer_scores *scores, struct sw_answer_text predicted,
                               const struct sw_answer_text *wanted, int64_t n_wanted);

/* ---- entities ---- */

struct sw_entity_type {
    char *name; /* owned */
    int64_t n_both, n_predicted, n_wanted;
};
/* Spans of tags, B-PER I-PER O, that agree in type, first and last tag. All zero is empty. */
struct sw_entities {
    struct sw_entity_type *types; /* [n_types] in the order in which they were met; owned */
    int n_types, cap_types;
    struct sw_names places; /* of types by name */
    int64_t n_right, n_tags;
    /* Where the last entity of each side began. A tag that is none of B, I, E and S and has no type
     * ("X") goes on with it behind an O, as in seqeval also from one row to the next. */
    int64_t begins[2];
};
void sw_entities_fini(struct sw_entities *entities);
/* The tags of one row, [n] each. */
sw_status sw_entities_add(struct sw_entities *entities, const char *const *predicted,
                          const char *const *wanted, int64_t n);
struct sw_span_score {
    double precision, recall, f1; /* 0 where there was nothing */
};
struct sw_span_score sw_entity_type_score(const struct sw_entity_type *type);
/* Of all types together. */
struct sw_span_score sw_entities_score(const struct sw_entities *entities);
double sw_entities_accuracy(const struct sw_entities *entities); /* of single tags */
