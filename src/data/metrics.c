// SPDX-License-Identifier: Apache-2.0
// Metrics. Answers are compared by words, entities by spans. The rest is arithmetic.
#include "data/metrics.h"

#include "text/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/* 2 p r / (p + r), with one division; 0 if there was nothing. */
static double f1_of(int64_t n_both, int64_t n_predicted, int64_t n_wanted)
{
    const int64_t n = n_predicted + n_wanted;
    return n > 0 ? 2.0 * (double)n_both / (double)n : 0;
}

/* ---- classes ---- */

sw_status sw_confusion_init(struct sw_confusion *confusion, int32_t n_classes)
{
    *confusion = (struct sw_confusion){.n = n_classes};
    confusion->of = sw_alloc_zero("metrics", (size_t)n_classes, sizeof *confusion->of);
    SW_TRY_ALLOC(confusion->of, "the counts of classes");
    return SW_OK;
}

void sw_confusion_fini(struct sw_confusion *confusion)
{
    sw_free(confusion->of);
    *confusion = (struct sw_confusion){0};
}

void sw_confusion_add(struct sw_confusion *confusion, int32_t predicted, int32_t wanted)
{
    SW_ASSERT(predicted >= 0 && predicted < confusion->n && wanted >= 0 && wanted < confusion->n);
    confusion->of[predicted].predicted++;
    confusion->of[wanted].wanted++;
    confusion->of[wanted].right += predicted == wanted;
}

double sw_confusion_accuracy(const struct sw_confusion *confusion)
{
    int64_t right = 0, all = 0;
    for (int32_t c = 0; c < confusion->n; c++) {
        right += confusion->of[c].right;
        all += confusion->of[c].wanted;
    }
    return share((double)right, (double)all);
}

double sw_confusion_f1(const struct sw_confusion *confusion, int32_t class_id)
{
    const struct sw_class_counts *of = &confusion->of[class_id];
    return f1_of(of->right, of->predicted, of->wanted);
}

double sw_confusion_macro_f1(const struct sw_confusion *confusion)
{
    double sum = 0, n = 0;
    for (int32_t c = 0; c < confusion->n; c++) {
        if (confusion->of[c].predicted + confusion->of[c].wanted > 0) {
            sum += sw_confusion_f1(confusion, c);
            n++;
        }
    }
    return share(sum, n);
}

double sw_confusion_matthews(const struct sw_confusion *confusion)
{
    double right = 0, all = 0, both = 0, predicted_2 = 0, wanted_2 = 0;
    for (int32_t c = 0; c < confusion->n; c++) {
        const double predicted = (double)confusion->of[c].predicted;
        const double wanted = (double)confusion->of[c].wanted;
        right += (double)confusion->of[c].right;
        all += wanted;
        both += predicted * wanted;
        predicted_2 += predicted * predicted;
        wanted_2 += wanted * wanted;
    }
    const double spread = (all * all - predicted_2) * (all * all - wanted_2);
    return all == 0 ? NAN : spread > 0 ? (right * all - both) / sqrt(spread) : 0;
}

/* ---- any of several labels ---- */

void sw_label_bits_add(struct sw_label_bits *bits, const bool *predicted, const bool *wanted,
                       int64_t n)
{
    bool right = true;
    for (int64_t i = 0; i < n; i++) {
        bits->n_both += predicted[i] && wanted[i];
        bits->n_predicted += predicted[i];
        bits->n_wanted += wanted[i];
        right = right && predicted[i] == wanted[i];
    }
    bits->n_right += right;
    bits->n_rows++;
}

double sw_label_bits_f1(const struct sw_label_bits *bits)
{
    return bits->n_rows > 0 ? f1_of(bits->n_both, bits->n_predicted, bits->n_wanted) : NAN;
}

double sw_label_bits_accuracy(const struct sw_label_bits *bits)
{
    return share((double)bits->n_right, (double)bits->n_rows);
}

/* ---- numbers and losses ---- */

void sw_moments_add(struct sw_moments *moments, double predicted, double wanted)
{
    if (moments->n == 0) {
        moments->first_x = predicted;
        moments->first_y = wanted;
    }
    const double x = predicted - moments->first_x, y = wanted - moments->first_y;
    const double dx = x - moments->mean_x, dy = y - moments->mean_y;
    const double n = (double)++moments->n;
    moments->mean_x += dx / n;
    moments->mean_y += dy / n;
    moments->xx += dx * (x - moments->mean_x);
    moments->yy += dy * (y - moments->mean_y);
    moments->xy += dx * (y - moments->mean_y);
    moments->squares += (predicted - wanted) * (predicted - wanted);
}

double sw_moments_pearson(const struct sw_moments *moments)
{
    const double spread = sqrt(moments->xx) * sqrt(moments->yy);
    return spread > 0 ? fmax(-1, fmin(1, moments->xy / spread)) : NAN;
}

double sw_moments_mse(const struct sw_moments *moments)
{
    return share(moments->squares, (double)moments->n);
}

double sw_perplexity(double loss_sum, double count)
{
    return exp(share(loss_sum, count));
}

/* ---- answers ---- */

static bool is_ascii_punctuation(int32_t c)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
}

/* White space of Python's split, which includes the ASCII separators. */
static bool is_space(int32_t c)
{
    return (c >= 0x1C && c <= 0x1F) || sw_char_is_space(c);
}

/* Converts to lower case by the full rules, and drops punctuation. */
static sw_status lower(const char *text, size_t len, struct sw_str *out)
{
    for (size_t pos = 0; pos < len;) {
        const size_t at = pos;
        const int32_t c = sw_utf8_step(text, len, &pos);
        char bytes[4];
        if (c >= 128 && !SW_HAVE_UTF8PROC) {
            return SW_FAIL(SW_E_UNSUP,
                           "answers with letters beyond ASCII need utf8proc, which this build does "
                           "not have: install libutf8proc-dev and build again");
        }
        if (c == 0x130) {
            sw_str_puts(out, "i\xCC\x87");
        } else if (c == 0x3A3 && sw_text_is_final_sigma(text, len, at, pos)) {
            sw_str_puts(out, "\xCF\x82");
        } else if (c >= 0 && !is_ascii_punctuation(c)) {
            sw_str_append(out, bytes, sw_utf8_put(sw_char_lower(c), bytes));
        }
    }
    return SW_OK;
}

static bool is_article(const char *word, size_t len)
{
    return (len == 1 && word[0] == 'a') || (len == 2 && memcmp(word, "an", 2) == 0) ||
           (len == 3 && memcmp(word, "the", 3) == 0);
}

struct joined {
    struct sw_str *out;
    size_t begin; /* of this text in it */
    bool space;   /* waits for what comes next */
};

static void put_joined(struct joined *to, const char *text, size_t len)
{
    if (to->space && to->out->len > to->begin) {
        sw_str_putc(to->out, ' ');
    }
    to->space = false;
    sw_str_append(to->out, text, len);
}

/* A run of letters and numbers that is an article becomes a space; spaces are joined. */
static void leave_out_articles(const char *text, size_t len, struct sw_str *out)
{
    struct joined to = {.out = out, .begin = out->len};
    for (size_t pos = 0; pos < len;) {
        const size_t first = pos;
        const int32_t c = sw_utf8_step(text, len, &pos);
        if (!sw_char_is_word(c)) {
            if (is_space(c)) {
                to.space = true;
            } else {
                put_joined(&to, text + first, pos - first);
            }
            continue;
        }
        for (size_t next = pos; next < len && sw_char_is_word(sw_utf8_step(text, len, &next));) {
            pos = next;
        }
        if (is_article(text + first, pos - first)) {
            to.space = true;
        } else {
            put_joined(&to, text + first, pos - first);
        }
    }
}

sw_status sw_answer_normalise(const char *text, size_t len, struct sw_str *out)
{
    struct sw_str small = {0};
    sw_status st = lower(text, len, &small);
    if (st >= 0) {
        leave_out_articles(sw_str_text(&small), small.len, out);
        st = small.failed || out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for an answer")
                                         : SW_OK;
    }
    sw_str_fini(&small);
    return st;
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Cuts a normalised text at its spaces; the words in order, *out the caller's. */
static sw_status words_of(struct sw_str *text, char ***out, int64_t *n)
{
    char **words = sw_alloc("metrics", (text->len / 2 + 1) * sizeof *words);
    SW_TRY_ALLOC(words, "the words of an answer");
    *n = 0;
    for (char *at = text->ptr, *end; text->len > 0 && at; at = end) {
        words[(*n)++] = at;
        end = strchr(at, ' ');
        if (end) {
            *end++ = '\0';
        }
    }
    qsort(words, (size_t)*n, sizeof *words, compare_words);
    *out = words;
    return SW_OK;
}

/* F1 over bags of words; 1 if both are empty. */
static double bags_f1(char **a, int64_t n_a, char **b, int64_t n_b)
{
    int64_t both = 0;
    for (int64_t i = 0, k = 0; i < n_a && k < n_b;) {
        const int order = strcmp(a[i], b[k]);
        both += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    return n_a == 0 || n_b == 0 ? n_a == n_b : f1_of(both, n_a, n_b);
}

/* Compares with one wanted answer. Words are cut in place, so the whole texts are compared
 * first. */
static sw_status compare_answer(const struct sw_str *predicted, struct sw_str *wanted,
                                double *exact, double *f1)
{
    struct sw_str mine = {0};
    char **a = NULL, **b = NULL;
    int64_t n_a, n_b;
    sw_status st = SW_OK;
    *exact = predicted->len == wanted->len &&
             memcmp(sw_str_text(predicted), sw_str_text(wanted), wanted->len) == 0;
    sw_str_append(&mine, sw_str_text(predicted), predicted->len);
    if (mine.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for an answer");
        goto done;
    }
    SW_TRY_OR(done, words_of(&mine, &a, &n_a));
    SW_TRY_OR(done, words_of(wanted, &b, &n_b));
    *f1 = bags_f1(a, n_a, b, n_b);
done:
    sw_str_fini(&mine);
    sw_free(a);
    sw_free(b);
    return st;
}

sw_status sw_answer_scores_add(struct sw_answer_scores *scores, struct sw_answer_text predicted,
                               const struct sw_answer_text *wanted, int64_t n_wanted)
{
    struct sw_str mine = {0}, other = {0};
    double exact = 0, f1 = 0, one_exact, one_f1;
    bool any = false;
    sw_status st;
    SW_TRY_OR(done, sw_answer_normalise(predicted.text, predicted.len, &mine));
    for (int64_t i = 0; i <= n_wanted; i++) { /* last round: without usable answers, "" is wanted */
        sw_str_clear(&other);
        if (i < n_wanted) {
            SW_TRY_OR(done, sw_answer_normalise(wanted[i].text, wanted[i].len, &other));
        }
        if (i < n_wanted ? other.len == 0 : any) {
            continue;
        }
        any = true;
        SW_TRY_OR(done, compare_answer(&mine, &other, &one_exact, &one_f1));
        exact = fmax(exact, one_exact);
        f1 = fmax(f1, one_f1);
    }
    scores->n++;
    scores->exact += exact;
    scores->f1 += f1;
done:
    sw_str_fini(&mine);
    sw_str_fini(&other);
    return st;
}

/* ---- entities ---- */

void sw_entities_fini(struct sw_entities *entities)
{
    for (int i = 0; i < entities->n_types; i++) {
        sw_free(entities->types[i].name);
    }
    sw_free(entities->types);
    sw_names_close(&entities->places);
    *entities = (struct sw_entities){0};
}

static struct sw_entity_type *type_of(struct sw_entities *entities, const char *name)
{
    const int32_t place = sw_names_find(&entities->places, 0, name);
    if (place >= 0) {
        return &entities->types[place];
    }
    if (entities->n_types == entities->cap_types) {
        const int cap = entities->cap_types > 0 ? 2 * entities->cap_types : 8;
        struct sw_entity_type *types =
            sw_realloc("metrics", entities->types, (size_t)cap * sizeof *types);
        if (!types) {
            return NULL;
        }
        entities->types = types;
        entities->cap_types = cap;
    }
    struct sw_entity_type *type = &entities->types[entities->n_types];
    *type = (struct sw_entity_type){.name = sw_strdup("metrics", name)};
    if (!type->name || !sw_names_add(&entities->places, 0, type->name, entities->n_types)) {
        sw_free(type->name);
        return NULL;
    }
    entities->n_types++;
    return type;
}

/* A tag: its first letter gives the position within the entity; the rest is the entity's type. */
struct tag {
    int32_t mark;
    const char *type;
};

static struct tag tag_of(const char *name)
{
    size_t pos = 0;
    if (*name == '\0') {
        return (struct tag){'O', "_"};
    }
    const int32_t mark = sw_utf8_step(name, strlen(name), &pos);
    const char *hyphen = strchr(name + pos, '-'), *type = hyphen ? hyphen + 1 : name + pos;
    return (struct tag){mark, *type ? type : "_"};
}

static bool is_one_of(int32_t mark, const char *marks)
{
    return mark > 0 && mark < 128 && strchr(marks, mark);
}

/* B and I are tags of two schemes; E, the end, and S, an entity alone, of a third. */
static bool ends(struct tag before, struct tag here)
{
    return is_one_of(before.mark, "ES") ||
           (is_one_of(before.mark, "BI") && is_one_of(here.mark, "BSO")) ||
           (!is_one_of(before.mark, "O.") && strcmp(before.type, here.type) != 0);
}

static bool begins(struct tag before, struct tag here)
{
    return is_one_of(here.mark, "BS") ||
           (is_one_of(here.mark, "EI") && is_one_of(before.mark, "ESO")) ||
           (!is_one_of(here.mark, "O.") && strcmp(before.type, here.type) != 0);
}

/* The current entity in a row of tags. */
struct entity {
    struct tag last;
    int64_t begin; /* among the tags of all rows */
};

/* Advances to the tag at i. Returns the type of the entity that ended before it; NULL: none
 * ended. */
static const char *go_on(struct entity *e, struct tag here, int64_t i, int64_t *begin)
{
    const char *ended = ends(e->last, here) ? e->last.type : NULL;
    *begin = e->begin;
    e->begin = begins(e->last, here) ? i : e->begin;
    e->last = here;
    return ended;
}

/* Counts entities of both sides that end before the same tag. They agree if they also begin
 * alike. */
static sw_status count(struct sw_entities *entities, const char *predicted, const char *wanted,
                       bool begin_alike)
{
    struct sw_entity_type *type;
    if (predicted) {
        type = type_of(entities, predicted);
        SW_TRY_ALLOC(type, "the types of entities");
        type->n_predicted++;
    }
    if (wanted) {
        type = type_of(entities, wanted);
        SW_TRY_ALLOC(type, "the types of entities");
        type->n_wanted++;
        type->n_both += predicted && begin_alike && strcmp(predicted, wanted) == 0;
    }
    return SW_OK;
}

sw_status sw_entities_add(struct sw_entities *entities, const char *const *predicted,
                          const char *const *wanted, int64_t n)
{
    const struct tag none = {'O', "_"};
    struct entity p = {none, entities->begins[0]}, w = {none, entities->begins[1]};
    for (int64_t i = 0; i <= n; i++) { /* the end of a row closes an open entity */
        const int64_t at = entities->n_tags;
        int64_t p_begin, w_begin;
        const char *p_ended = go_on(&p, i < n ? tag_of(predicted[i]) : none, at, &p_begin);
        const char *w_ended = go_on(&w, i < n ? tag_of(wanted[i]) : none, at, &w_begin);
        SW_TRY(count(entities, p_ended, w_ended, p_begin == w_begin));
        if (i < n) {
            entities->n_right += strcmp(predicted[i], wanted[i]) == 0;
            entities->n_tags++;
        }
    }
    entities->begins[0] = p.begin;
    entities->begins[1] = w.begin;
    return SW_OK;
}

struct sw_span_score sw_entity_type_score(const struct sw_entity_type *type)
{
    const double both = (double)type->n_both;
    return (struct sw_span_score){
        type->n_predicted > 0 ? both / (double)type->n_predicted : 0,
        type->n_wanted > 0 ? both / (double)type->n_wanted : 0,
        f1_of(type->n_both, type->n_predicted, type->n_wanted),
    };
}

struct sw_span_score sw_entities_score(const struct sw_entities *entities)
{
    struct sw_entity_type all = {0};
    for (int i = 0; i < entities->n_types; i++) {
        all.n_both += entities->types[i].n_both;
        all.n_predicted += entities->types[i].n_predicted;
        all.n_wanted += entities->types[i].n_wanted;
    }
    return sw_entity_type_score(&all);
}

double sw_entities_accuracy(const struct sw_entities *entities)
{
    return share((double)entities->n_right, (double)entities->n_tags);
}
