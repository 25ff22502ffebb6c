// SPDX-License-Identifier: Apache-2.0
// The table of tasks. A new task consists of its inputs, its losses and a row.
#include "task/task.h"

#include <math.h>
#include <string.h>

/* ---- inputs that tasks share ---- */

// clang-format off
#define ROW_OF(dim) 2, {SW_DIM_BATCH, (dim)}
#define ONE_A_ROW   1, {SW_DIM_BATCH}
#define IMAGE       4, {SW_DIM_BATCH, SW_DIM_CHANNELS, SW_DIM_HEIGHT, SW_DIM_WIDTH}
#define A_TOKEN(name, recorded, pad, absent) \
    {(name), (recorded), SW_I32, ROW_OF(SW_DIM_TOKENS), (pad), (absent), false}

#define IDS       A_TOKEN("input_ids", NULL, SW_PAD_ID, SW_ABSENT_REFUSED)
#define MASK      A_TOKEN("attention_mask", NULL, SW_PAD_ZERO, SW_ABSENT_ONES)
#define TYPES     A_TOKEN("token_type_ids", NULL, SW_PAD_ZERO, SW_ABSENT_ZEROS)
#define POSITIONS A_TOKEN("positions", "position_ids", SW_PAD_ZERO, SW_ABSENT_COUNTED)
#define SEGMENTS  A_TOKEN("segments", "segment_ids", SW_PAD_ZERO, SW_ABSENT_REFUSED)
#define LENGTHS   {"lengths", NULL, SW_I32, ONE_A_ROW, SW_PAD_ZERO, SW_ABSENT_REFUSED, false}
#define PIXELS    {"pixel_values", NULL, SW_F32, IMAGE, SW_PAD_ZERO, SW_ABSENT_REFUSED, false}
#define LABEL_EACH(dim) \
    {"labels", NULL, SW_I32, ROW_OF(dim), SW_PAD_IGNORED, SW_ABSENT_REFUSED, true}
#define WEIGHTS \
    {SW_TASK_WEIGHTS, NULL, SW_F32, ROW_OF(SW_DIM_TOKENS), SW_PAD_ZERO, SW_ABSENT_ONES, true}
#define LABEL_ROW(name) {(name), NULL, SW_I32, ONE_A_ROW, SW_PAD_IGNORED, SW_ABSENT_REFUSED, true}
#define NUMBERS \
    {"labels", NULL, SW_F32, ROW_OF(SW_DIM_LABELS), SW_PAD_IGNORED, SW_ABSENT_REFUSED, true}
#define NUMBER_ROW(name) \
    {(name), NULL, SW_F32, ONE_A_ROW, SW_PAD_IGNORED, SW_ABSENT_REFUSED, true}
// clang-format on

static const struct sw_task_input causal_inputs[] = {
    IDS, MASK, POSITIONS, SEGMENTS, LABEL_EACH(SW_DIM_TOKENS), WEIGHTS};
static const struct sw_task_input token_inputs[] = {IDS,       MASK,     TYPES,
                                                    POSITIONS, SEGMENTS, LABEL_EACH(SW_DIM_TOKENS)};
static const struct sw_task_input pretrain_inputs[] = {
    IDS, MASK, TYPES, POSITIONS, LABEL_EACH(SW_DIM_TOKENS), LABEL_ROW("next_sentence_label")};
static const struct sw_task_input pair_inputs[] = {IDS, MASK, LABEL_EACH(SW_DIM_TARGETS)};
static const struct sw_task_input class_inputs[] = {IDS,       MASK,    TYPES,
                                                    POSITIONS, LENGTHS, LABEL_ROW("labels")};
static const struct sw_task_input number_inputs[] = {IDS, MASK, TYPES, POSITIONS, NUMBERS};
static const struct sw_task_input answer_inputs[] = {
    IDS, MASK, TYPES, POSITIONS, LABEL_ROW("start_positions"), LABEL_ROW("end_positions")};
static const struct sw_task_input dpo_inputs[] = {IDS, MASK, POSITIONS, LABEL_EACH(SW_DIM_TOKENS),
                                                  NUMBER_ROW(SW_TASK_REFERENCE)};
static const struct sw_task_input orpo_inputs[] = {IDS, MASK, POSITIONS, LABEL_EACH(SW_DIM_TOKENS)};
static const struct sw_task_input kto_inputs[] = {IDS,
                                                  MASK,
                                                  POSITIONS,
                                                  LABEL_EACH(SW_DIM_TOKENS),
                                                  NUMBER_ROW(SW_TASK_REFERENCE),
                                                  LABEL_ROW("kinds")};
static const struct sw_task_input reward_inputs[] = {IDS,       MASK,    TYPES,
                                                     POSITIONS, LENGTHS, NUMBER_ROW("labels")};
static const struct sw_task_input contrast_inputs[] = {
    IDS, MASK, TYPES, POSITIONS, NUMBERS, NUMBER_ROW(SW_TASK_OFFSETS)};
static const struct sw_task_input trunk_inputs[] = {IDS, MASK, TYPES, POSITIONS};
static const struct sw_task_input image_inputs[] = {PIXELS, LABEL_ROW("labels")};
static const struct sw_task_input image_number_inputs[] = {PIXELS, NUMBERS};

/* ---- losses ---- */

static const struct sw_task_loss next_token[] = {
    {SW_LOSS_CLASSES, "labels", "logits", NULL, 1, true}};
static const struct sw_task_loss class_of[] = {
    {SW_LOSS_CLASSES, "labels", "logits", NULL, 1, false}};
static const struct sw_task_loss pretrain_losses[] = {
    {SW_LOSS_CLASSES, "labels", "logits", "prediction_logits", 1, false},
    {SW_LOSS_CLASSES, "next_sentence_label", "next_logits", "seq_relationship_logits", 1, false}};
static const struct sw_task_loss bits_of[] = {{SW_LOSS_BITS, "labels", "logits", NULL, 1, false}};
static const struct sw_task_loss squares_of[] = {
    {SW_LOSS_SQUARES, "labels", "logits", NULL, 1, false}};
static const struct sw_task_loss dpo_losses[] = {
    {SW_LOSS_PREFERENCE, "labels", "logits", NULL, 1, true}};
static const struct sw_task_loss orpo_losses[] = {
    {SW_LOSS_ODDS, "labels", "logits", NULL, 1, true}};
static const struct sw_task_loss kto_losses[] = {
    {SW_LOSS_UNPAIRED, "labels", "logits", NULL, 1, true}};
static const struct sw_task_loss reward_losses[] = {
    {SW_LOSS_REWARD, "labels", "logits", NULL, 1, false}};
static const struct sw_task_loss contrast_losses[] = {
    {SW_LOSS_CONTRAST, "labels", "embeddings", NULL, 1, false}};
static const struct sw_task_loss answer_losses[] = {
    {SW_LOSS_PLACE, "start_positions", "start_logits", NULL, 0.5, false},
    {SW_LOSS_PLACE, "end_positions", "end_logits", NULL, 0.5, false}};

/* ---- metrics ---- */

static const enum sw_metric of_text[] = {SW_METRIC_PERPLEXITY};
static const enum sw_metric of_masked[] = {SW_METRIC_PERPLEXITY, SW_METRIC_ACCURACY};
static const enum sw_metric of_classes[] = {SW_METRIC_ACCURACY, SW_METRIC_F1, SW_METRIC_MATTHEWS};
static const enum sw_metric of_bits[] = {SW_METRIC_F1, SW_METRIC_ACCURACY};
static const enum sw_metric of_numbers[] = {SW_METRIC_PEARSON};
static const enum sw_metric of_entities[] = {SW_METRIC_ENTITY_F1, SW_METRIC_ACCURACY};
static const enum sw_metric of_answers[] = {SW_METRIC_ANSWER_F1, SW_METRIC_EXACT};

static const enum sw_metric of_dpo[] = {SW_METRIC_REWARDS_ACCURACIES, SW_METRIC_REWARDS_MARGINS,
                                        SW_METRIC_REWARDS_CHOSEN,     SW_METRIC_REWARDS_REJECTED,
                                        SW_METRIC_LOGPS_CHOSEN,       SW_METRIC_LOGPS_REJECTED};
static const enum sw_metric of_orpo[] = {SW_METRIC_REWARDS_ACCURACIES,
                                         SW_METRIC_REWARDS_MARGINS,
                                         SW_METRIC_REWARDS_CHOSEN,
                                         SW_METRIC_REWARDS_REJECTED,
                                         SW_METRIC_LOGPS_CHOSEN,
                                         SW_METRIC_LOGPS_REJECTED,
                                         SW_METRIC_NLL,
                                         SW_METRIC_LOG_ODDS_RATIO,
                                         SW_METRIC_LOG_ODDS_CHOSEN};
static const enum sw_metric of_kto[] = {SW_METRIC_REWARDS_MARGINS,  SW_METRIC_REWARDS_CHOSEN,
                                        SW_METRIC_REWARDS_REJECTED, SW_METRIC_LOGPS_CHOSEN,
                                        SW_METRIC_LOGPS_REJECTED,   SW_METRIC_KL};
static const enum sw_metric of_contrast[] = {SW_METRIC_ACCURACY};
static const enum sw_metric of_reward[] = {SW_METRIC_ACCURACY, SW_METRIC_MARGIN,
                                           SW_METRIC_MEAN_REWARD};

#define ROW(inputs, losses, metrics)                                                               \
    inputs, (int)SW_LEN(inputs), losses, (int)SW_LEN(losses), metrics, (int)SW_LEN(metrics)

static const struct sw_task tasks[] = {
    {"causal", "the next token of a text", "causal", SW_ROWS_TEXT,
     ROW(causal_inputs, next_token, of_text)},
    {"masked", "tokens of a text that were masked", "masked", SW_ROWS_MASKED,
     ROW(token_inputs, class_of, of_masked)},
    {"pretrain", "masked tokens, and whether the second text follows the first", "pretrain",
     SW_ROWS_PAIRS, ROW(pretrain_inputs, pretrain_losses, of_masked)},
    {"seq2seq", "a text for a text", "seq2seq", SW_ROWS_TARGETS,
     ROW(pair_inputs, class_of, of_text)},
    {"denoise", "the spans of a text that were left out", "seq2seq", SW_ROWS_SPANS,
     ROW(pair_inputs, class_of, of_text)},
    {"classify", "one of several classes for a text", "classify", SW_ROWS_LABELS,
     ROW(class_inputs, class_of, of_classes)},
    {"multi-label", "any of several classes for a text", "multi-label", SW_ROWS_LABELS,
     ROW(number_inputs, bits_of, of_bits)},
    {"regression", "numbers for a text", "regression", SW_ROWS_LABELS,
     ROW(number_inputs, squares_of, of_numbers)},
    {"tokens", "a class for each word of a text", "tokens", SW_ROWS_WORDS,
     ROW(token_inputs, class_of, of_entities)},
    {"answers", "the place of an answer in a text", "answers", SW_ROWS_ANSWERS,
     ROW(answer_inputs, answer_losses, of_answers)},
    {"dpo", "which of two responses is preferred (DPO, IPO)", "causal", SW_ROWS_PREFERENCES,
     ROW(dpo_inputs, dpo_losses, of_dpo)},
    {"orpo", "the preferred response, against the other one (ORPO)", "causal", SW_ROWS_PREFERENCES,
     ROW(orpo_inputs, orpo_losses, of_orpo)},
    {"kto", "whether a response is desirable (KTO)", "causal", SW_ROWS_PREFERENCES,
     ROW(kto_inputs, kto_losses, of_kto)},
    {"reward", "a score, higher for the preferred response", "regression", SW_ROWS_PREFERENCES,
     ROW(reward_inputs, reward_losses, of_reward)},
    {"contrastive", "vectors: similar ones for texts that belong together", "embed",
     SW_ROWS_CONTRAST, ROW(contrast_inputs, contrast_losses, of_contrast)},
    {"embed", "nothing: texts become vectors", "embed", SW_ROWS_NONE, trunk_inputs,
     (int)SW_LEN(trunk_inputs), NULL, 0, NULL, 0},
    {"images", "one of several classes for an image", "images", SW_ROWS_IMAGES,
     ROW(image_inputs, class_of, of_classes)},
    {"images-multi-label", "any of several classes for an image", "images-multi-label",
     SW_ROWS_IMAGES, ROW(image_number_inputs, bits_of, of_bits)},
    {"images-regression", "numbers for an image", "images-regression", SW_ROWS_IMAGES,
     ROW(image_number_inputs, squares_of, of_numbers)},
};

const struct sw_task *sw_task_at(int i)
{
    return i >= 0 && (size_t)i < SW_LEN(tasks) ? &tasks[i] : NULL;
}

const struct sw_task *sw_task_of(const char *name)
{
    for (size_t i = 0; i < SW_LEN(tasks); i++) {
        if (strcmp(tasks[i].name, name) == 0) {
            return &tasks[i];
        }
    }
    return NULL;
}

void sw_task_list(struct sw_str *out)
{
    for (size_t i = 0; i < SW_LEN(tasks); i++) {
        sw_str_printf(out, "%s%s", i ? ", " : "", tasks[i].name);
    }
}

const struct sw_task_input *sw_task_input_of(const struct sw_task *task, const char *name)
{
    for (int i = 0; i < task->n_inputs; i++) {
        if (strcmp(task->inputs[i].name, name) == 0) {
            return &task->inputs[i];
        }
    }
    return NULL;
}

struct sw_shape sw_task_shape(const struct sw_task_input *input, const struct sw_task_sizes *sizes)
{
    struct sw_shape shape = {.rank = input->rank};
    for (int d = 0; d < input->rank; d++) {
        shape.dims[d] = sizes->of[input->dims[d]];
    }
    return shape;
}

const struct sw_task_loss *sw_task_loss_of(const struct sw_task *task, const char *input)
{
    for (int i = 0; i < task->n_losses; i++) {
        if (strcmp(task->losses[i].labels, input) == 0) {
            return &task->losses[i];
        }
    }
    return NULL;
}

/* ---- metrics ---- */

static const char *const metric_names[SW_METRIC_COUNT] = {
    [SW_METRIC_PERPLEXITY] = "perplexity",
    [SW_METRIC_ACCURACY] = "accuracy",
    [SW_METRIC_F1] = "f1",
    [SW_METRIC_MATTHEWS] = "matthews",
    [SW_METRIC_PEARSON] = "pearson",
    [SW_METRIC_EXACT] = "exact_match",
    [SW_METRIC_ANSWER_F1] = "answer_f1",
    [SW_METRIC_ENTITY_F1] = "entity_f1",
    [SW_METRIC_REWARDS_ACCURACIES] = "rewards/accuracies",
    [SW_METRIC_REWARDS_MARGINS] = "rewards/margins",
    [SW_METRIC_REWARDS_CHOSEN] = "rewards/chosen",
    [SW_METRIC_REWARDS_REJECTED] = "rewards/rejected",
    [SW_METRIC_LOGPS_CHOSEN] = "logps/chosen",
    [SW_METRIC_LOGPS_REJECTED] = "logps/rejected",
    [SW_METRIC_NLL] = "nll_loss",
    [SW_METRIC_LOG_ODDS_RATIO] = "log_odds_ratio",
    [SW_METRIC_LOG_ODDS_CHOSEN] = "log_odds_chosen",
    [SW_METRIC_KL] = "kl",
    [SW_METRIC_MARGIN] = "margin",
    [SW_METRIC_MEAN_REWARD] = "mean_reward",
};

const char *sw_metric_name(enum sw_metric metric)
{
    return metric_names[metric];
}

enum sw_metric sw_metric_of(const char *name)
{
    int i = 0;
    while (i < SW_METRIC_COUNT && strcmp(metric_names[i], name) != 0) {
        i++;
    }
    return (enum sw_metric)i;
}

bool sw_metric_is_better(enum sw_metric metric, double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return isnan(b) && !isnan(a);
    }
    const bool falls = metric == SW_METRIC_PERPLEXITY || metric == SW_METRIC_NLL ||
                       metric == SW_METRIC_REWARDS_REJECTED || metric == SW_METRIC_LOGPS_REJECTED ||
                       metric == SW_METRIC_KL;
    return falls ? a < b : a > b;
}
