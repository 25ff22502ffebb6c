// SPDX-License-Identifier: Apache-2.0
// Rows of a task, written directly into the requested inputs without allocation.
#include "data/task_rows.h"

#include <math.h>
#include <string.h>

/* ---- settings from the tokenizer ---- */

void sw_task_form_fini(struct sw_task_form *form)
{
    for (int64_t i = 0; i < form->n_labels && form->names; i++) {
        sw_free(form->names[i]);
    }
    sw_free(form->names);
    sw_free(form->special);
    sw_template_fini(&form->single);
    sw_template_fini(&form->pair);
    sw_template_fini(&form->target);
    *form = (struct sw_task_form){0};
}

static sw_status copy_template(const struct sw_template *from, struct sw_template *to)
{
    for (int i = 0; i < from->n_items; i++) {
        const struct sw_template_item *item = &from->items[i];
        SW_TRY(sw_template_add(to, item->part, item->id, item->type_id));
    }
    return SW_OK;
}

static sw_status find_mask(struct sw_task_form *form, const struct sw_tokenizer *tokenizer)
{
    static const char *const names[] = {"[MASK]", "<mask>"};
    form->mask = -1;
    for (size_t i = 0; i < SW_LEN(names) && form->mask < 0; i++) {
        form->mask = sw_tokenizer_find(tokenizer, names[i]);
    }
    return form->mask >= 0
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG, "task \"%s\": the tokenizer has neither [MASK] nor <mask>",
                         form->task->name);
}

/* <extra_id_0>, <extra_id_1>, .. count down. If the tokenizer lacks them but the model has rows for
 * them, they are the 100 ids after the vocabulary. T5's follow its SentencePiece model the same
 * way. */
static sw_status find_sentinels(struct sw_task_form *form, const struct sw_tokenizer *tokenizer,
                                int64_t vocab_size)
{
    enum { SENTINELS = 100 };
    char name[32];
    form->first_sentinel = sw_tokenizer_find(tokenizer, "<extra_id_0>");
    form->eos = tokenizer->eos;
    if (form->first_sentinel < 0 && vocab_size >= tokenizer->vocab_size + SENTINELS) {
        form->first_sentinel = (int32_t)tokenizer->vocab_size + SENTINELS - 1;
        form->n_sentinels = SENTINELS - 1; /* counted below */
    }
    if (form->first_sentinel < 0 || form->eos < 0) {
        return SW_FAIL(SW_E_CONFIG, "task \"%s\": the tokenizer has no %s", form->task->name,
                       form->eos < 0 ? "end-of-text token" : "<extra_id_0>");
    }
    do {
        snprintf(name, sizeof name, "<extra_id_%d>", ++form->n_sentinels);
    } while (sw_tokenizer_find(tokenizer, name) == form->first_sentinel - form->n_sentinels);
    const int64_t most = sw_span_most(form->T, form->U);
    const struct sw_span_plan plan = sw_span_plan_of(most);
    if (most < 2 || plan.n_spans > form->n_sentinels) {
        return SW_FAIL(
            SW_E_CONFIG,
            "task \"%s\": rows of %lld tokens with targets of %lld have %lld spans; wanted "
            "1 to %d, the tokenizer's sentinels",
            form->task->name, (long long)form->T, (long long)form->U, (long long)plan.n_spans,
            form->n_sentinels);
    }
    return SW_OK;
}

static sw_status check_room(const struct sw_task_form *form)
{
    /* Special tokens, plus one token of each text that is cut. */
    const int64_t least = form->single.n_items - (form->task->rows != SW_ROWS_MASKED);
    if (form->T < least) {
        return SW_FAIL(SW_E_CONFIG, "task \"%s\": rows of %lld tokens, wanted at least %lld",
                       form->task->name, (long long)form->T, (long long)least);
    }
    return SW_OK;
}

/* Row lengths are computed for a template that has each text exactly once. */
static sw_status check_template(const struct sw_template *template, int n_first, int n_second)
{
    int n[3] = {0};
    for (int i = 0; i < template->n_items; i++) {
        n[template->items[i].part]++;
    }
    if (n[SW_TEMPLATE_FIRST] == n_first && n[SW_TEMPLATE_SECOND] == n_second) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_UNSUP,
                   "the tokenizer's template for %s has the first text %d times and the second %d "
                   "times; rows of tasks have each once",
                   n_second > 0 ? "two texts" : "a text", n[SW_TEMPLATE_FIRST],
                   n[SW_TEMPLATE_SECOND]);
}

/* transformers takes the source's code for a target without one. */
static sw_status check_language(const struct sw_task *task, const struct sw_tokenizer *tokenizer)
{
    return !tokenizer->has_languages || tokenizer->target.n_items > 0
               ? SW_OK
               : SW_FAIL(
                     SW_E_CONFIG,
                     "task \"%s\": targets have the code of their language, and \"tgt_lang\" is "
                     "absent from tokenizer_config.json; add it, and \"src_lang\" of the sources",
                     task->name);
}

static sw_status init_text(struct sw_task_form *form, const struct sw_task_data *data,
                           struct sw_tokenizer *tokenizer)
{
    if (!tokenizer) {
        return SW_FAIL(SW_E_CONFIG, "task \"%s\" needs a tokenizer", form->task->name);
    }
    const int64_t vocab_size = form->n_ids;
    form->n_ids = sw_min_i64(vocab_size, tokenizer->vocab_size);
    form->pad = data->has_pad_id ? data->pad_id : sw_tokenizer_padding(tokenizer);
    if (form->task->rows ==
        SW_ROWS_TARGETS) { /* a decoder trained without an end token never stops */
        SW_TRY(sw_tokenizer_end_texts(tokenizer));
        SW_TRY(check_language(form->task, tokenizer));
    }
    SW_TRY(copy_template(&tokenizer->single, &form->single));
    SW_TRY(copy_template(&tokenizer->pair, &form->pair));
    SW_TRY(copy_template(sw_tokenizer_target_template(tokenizer), &form->target));
    SW_TRY(check_template(&form->single, 1, 0));
    SW_TRY(check_template(&form->target, 1, 0));
    SW_TRY(check_template(&form->pair, 1, 1));
    form->special = sw_alloc_zero("rows", (size_t)tokenizer->vocab_size, 1);
    SW_TRY_ALLOC(form->special, "special tokens");
    for (int32_t id = 0; id < tokenizer->vocab_size && tokenizer->ops->special; id++) {
        form->special[id] = tokenizer->ops->special->is_special(tokenizer, id);
    }
    SW_TRY(check_room(form));
    switch (form->task->rows) {
    case SW_ROWS_MASKED:
    case SW_ROWS_PAIRS:
        return find_mask(form, tokenizer);
    case SW_ROWS_SPANS:
        return find_sentinels(form, tokenizer, vocab_size);
    case SW_ROWS_ANSWERS:
        return tokenizer->ops->special
                   ? SW_OK
                   : SW_FAIL(SW_E_UNSUP,
                             "task \"%s\": %s do not tell which characters a token stands for",
                             form->task->name, sw_tokenizer_kind(tokenizer));
    default:
        return SW_OK;
    }
}

static bool tells_number(const struct sw_task_form *form)
{
    return form->task->losses[0].kind == SW_LOSS_SQUARES;
}

struct sw_image_form sw_task_image_form(const struct sw_task_form *form)
{
    return (struct sw_image_form){.steps = &form->steps,
                                  .size = {form->height, form->width},
                                  .n_labels = tells_number(form) ? 256 : form->n_labels,
                                  .names = form->names};
}

static sw_status init_images(struct sw_task_form *form, const struct sw_task_data *data)
{
    const struct sw_image_size size = {data->height, data->width};
    if (data->channels != SW_IMAGE_CHANNELS) {
        return SW_FAIL(SW_E_CONFIG,
                       "task \"%s\": the model reads images of %lld channels, wanted 3",
                       form->task->name, (long long)data->channels);
    }
    if (tells_number(form) && data->n_labels != 1) {
        return SW_FAIL(SW_E_CONFIG,
                       "task \"%s\": the model's head has %lld numbers; CIFAR's files have one",
                       form->task->name, (long long)data->n_labels);
    }
    return sw_image_steps_read(data->preprocessor, size, &form->steps);
}

sw_status sw_task_form_init(struct sw_task_form *form, const struct sw_task *task,
                            const struct sw_dataset_options *options, int64_t vocab_size)
{
    const struct sw_task_data *data = options->task;
    *form = (struct sw_task_form){.task = task,
                                  .T = options->seq_len,
                                  .U = data->target_len,
                                  .seed = options->seed,
                                  .n_ids = vocab_size,
                                  .n_labels = data->n_labels,
                                  .channels = data->channels,
                                  .height = data->height,
                                  .width = data->width};
    if (data->label_names && data->n_labels > 0) {
        form->names = sw_alloc_zero("rows", (size_t)data->n_labels, sizeof *form->names);
        SW_TRY_ALLOC(form->names, "names of classes");
    }
    for (int64_t i = 0; form->names && i < data->n_labels; i++) {
        form->names[i] = sw_strdup("rows", data->label_names[i]);
        SW_TRY_ALLOC(form->names[i], "names of classes");
    }
    form->stride = data->doc_stride > 0 ? data->doc_stride : sw_min_i64(128, form->T / 3);
    return task->rows == SW_ROWS_IMAGES ? init_images(form, data)
                                        : init_text(form, data, options->tokenizer);
}

/* ---- one row ---- */

/* Inputs of one row; NULL: not requested. */
struct row {
    int32_t *ids, *mask, *types, *positions, *segments, *lengths;
    int32_t *labels; /* labels of tokens or of the target, or the row's label */
    int32_t *follows, *start, *end;
    float *numbers, *pixels;
    float *reference; /* of preferences */
    int32_t *kinds;
};

static int64_t width_of(const struct sw_task_form *form, const struct sw_task_input *input)
{
    const struct sw_task_sizes sizes = {{[SW_DIM_BATCH] = 1,
                                         [SW_DIM_TOKENS] = form->T,
                                         [SW_DIM_TARGETS] = form->U,
                                         [SW_DIM_LABELS] = form->n_labels,
                                         [SW_DIM_CHANNELS] = form->channels,
                                         [SW_DIM_HEIGHT] = form->height,
                                         [SW_DIM_WIDTH] = form->width}};
    const struct sw_shape shape = sw_task_shape(input, &sizes);
    int64_t n = 1;
    for (int d = 0; d < shape.rank; d++) {
        n *= shape.dims[d];
    }
    return n;
}

/* Sets the pointers of row i. */
static sw_status place_row(const struct sw_task_form *form, const struct sw_row_input *inputs,
                           int n_inputs, int64_t i, struct row *out)
{
    const bool numbers = sw_task_input_of(form->task, "labels") &&
                         sw_task_input_of(form->task, "labels")->dtype == SW_F32;
    const struct {
        const char *name;
        void *to;
    } known[] = {{"input_ids", &out->ids},
                 {"attention_mask", &out->mask},
                 {"token_type_ids", &out->types},
                 {"positions", &out->positions},
                 {"segments", &out->segments},
                 {"lengths", &out->lengths},
                 {"labels", numbers ? (void *)&out->numbers : (void *)&out->labels},
                 {"next_sentence_label", &out->follows},
                 {"start_positions", &out->start},
                 {"end_positions", &out->end},
                 {"pixel_values", &out->pixels},
                 {SW_TASK_REFERENCE, &out->reference},
                 {SW_TASK_OFFSETS, &out->reference},
                 {"kinds", &out->kinds}};
    *out = (struct row){0};
    for (int k = 0; k < n_inputs; k++) {
        const struct sw_task_input *input = sw_task_input_of(form->task, inputs[k].name);
        size_t at = 0;
        while (at < SW_LEN(known) && strcmp(known[at].name, inputs[k].name) != 0) {
            at++;
        }
        if (!input || at == SW_LEN(known)) {
            return SW_FAIL(SW_E_ARG, "task \"%s\" has no input \"%s\"", form->task->name,
                           inputs[k].name);
        }
        char *data = (char *)inputs[k].data + i * width_of(form, input) * 4;
        memcpy(known[at].to, &(void *){data}, sizeof(void *));
    }
    return SW_OK;
}

static void put_token(const struct row *row, int64_t t, int32_t id, int32_t type, bool is_token)
{
    row->ids[t] = id;
    if (row->mask) {
        row->mask[t] = is_token;
    }
    if (row->types) {
        row->types[t] = type;
    }
    if (row->positions) {
        row->positions[t] = is_token ? (int32_t)t : 0;
    }
    if (row->segments) {
        row->segments[t] = is_token;
    }
}

/* Fills a row after n tokens with padding and ignored labels. */
static void pad_row(const struct sw_task_form *form, const struct row *row, int64_t n)
{
    for (int64_t t = n; t < form->T && row->ids; t++) {
        put_token(row, t, form->pad, 0, false);
    }
    if (row->lengths) {
        *row->lengths = (int32_t)n;
    }
}

static void no_labels(const struct sw_task_form *form, const struct row *row)
{
    const struct sw_task_input *input = sw_task_input_of(form->task, "labels");
    const int64_t n = input ? width_of(form, input) : 0;
    for (int64_t i = 0; i < n && row->labels; i++) {
        row->labels[i] = SW_IGNORED_LABEL;
    }
    for (int64_t i = 0; i < n && row->numbers; i++) {
        row->numbers[i] = NAN;
    }
    int32_t *const ones[] = {row->follows, row->start, row->end, row->kinds};
    for (size_t i = 0; i < SW_LEN(ones); i++) {
        if (ones[i]) {
            *ones[i] = SW_IGNORED_LABEL;
        }
    }
}

/* Fills a row without a sample. It has one token, because attention over no tokens would divide by
 * zero. */
static void blank_row(const struct sw_task_form *form, const struct row *row)
{
    no_labels(form, row);
    if (row->ids) {
        put_token(row, 0, 0, 0, true);
        pad_row(form, row, 1);
    }
    const int64_t n = form->channels * form->height * form->width;
    for (int64_t i = 0; i < n && row->pixels; i++) {
        row->pixels[i] = 0;
    }
}

struct text {
    const int32_t *ids;
    int64_t n;
};

/* Writes texts in their template. `at` gets the start of each. Returns the number of tokens. */
static int64_t wrap(const struct sw_task_form *form, const struct text texts[2], bool pair,
                    const struct row *row, int64_t at[2])
{
    const struct sw_template *template = pair ? &form->pair : &form->single;
    int64_t t = 0;
    for (int i = 0; i < template->n_items; i++) {
        const struct sw_template_item *item = &template->items[i];
        const bool special = item->part == SW_TEMPLATE_SPECIAL;
        const int which = item->part == SW_TEMPLATE_SECOND;
        const struct text one = special ? (struct text){&item->id, 1} : texts[which];
        if (!special) {
            at[which] = t;
        }
        for (int64_t k = 0; k < one.n; k++, t++) {
            put_token(row, t, one.ids[k], item->type_id, true);
        }
    }
    pad_row(form, row, t);
    return t;
}

static struct text first_of(const struct sw_task_part *part, const struct sw_task_row *from)
{
    return (struct text){part->rows->ids.ptr + from->first, from->n};
}

static struct text second_of(const struct sw_task_part *part, const struct sw_task_row *from)
{
    return (struct text){part->rows->ids.ptr + from->second, sw_max_i64(from->n_second, 0)};
}

/* Marks the tokens of a text as maskable, except special tokens. */
static void mask_text(const struct sw_task_form *form, const struct row *row, int64_t at, int64_t n)
{
    for (int64_t t = at; t < at + n; t++) {
        row->labels[t] = form->special[row->ids[t]] ? SW_IGNORED_LABEL : row->ids[t];
    }
}

static sw_status put_masked(const struct sw_task_part *part, const struct sw_task_row *from,
                            const struct sw_draw *draw, const struct row *row)
{
    const struct sw_task_form *form = part->form;
    struct text texts[2] = {first_of(part, from), second_of(part, from)};
    const bool pair = from->n_second >= 0;
    int64_t at[2] = {0};
    if (pair) {
        int32_t label = from->label;
        if (label < 0) { /* half of the pairs get the second text of another record */
            const uint64_t u = sw_draw_at(draw, SW_DRAW_PAIR, 0);
            label = part->n > 1 && (u & 1);
            if (label) {
                const int64_t mine = from - (part->rows->rows + part->first);
                const int64_t step =
                    1 + (int64_t)(sw_draw_at(draw, SW_DRAW_PAIR, 1) % (uint64_t)(part->n - 1));
                texts[1] =
                    second_of(part, &part->rows->rows[part->first + (mine + step) % part->n]);
            }
        }
        const int64_t room = form->T - (form->pair.n_items - 2);
        texts[1].n = sw_min_i64(texts[1].n, room - texts[0].n);
        if (row->follows) {
            *row->follows = label;
        }
    }
    const int64_t n = wrap(form, texts, pair, row, at);
    if (row->labels) {
        for (int side = 0; side <= pair; side++) {
            mask_text(form, row, at[side], texts[side].n);
        }
        sw_mask_tokens(draw, form->mask, form->n_ids, n, row->ids, row->labels);
    }
    return SW_OK;
}

static sw_status put_spans(const struct sw_task_part *part, const struct sw_task_row *from,
                           const struct sw_draw *draw, const struct row *row)
{
    const struct text text = first_of(part, from);
    struct sw_span_writer writer = {.first_sentinel = part->form->first_sentinel,
                                    .n_sentinels = part->form->n_sentinels,
                                    .eos = part->form->eos,
                                    .inputs = row->ids,
                                    .labels = row->labels,
                                    .last = -1};
    SW_TRY(sw_span_corrupt(draw, text.ids, text.n, &writer));
    for (int64_t t = 0; t < writer.n_inputs; t++) {
        put_token(row, t, row->ids[t], 0, true);
    }
    pad_row(part->form, row, writer.n_inputs);
    return SW_OK;
}

/* The labels of the decoder are the target in its template. */
static void put_target(const struct sw_task_part *part, const struct sw_task_row *from,
                       const struct row *row)
{
    const struct text texts[2] = {first_of(part, from), {0}};
    const struct text targets[2] = {second_of(part, from), {0}};
    int64_t at[2];
    wrap(part->form, texts, false, row, at);
    if (row->labels) {
        const struct sw_task_form as = {.T = 0, .single = part->form->target};
        wrap(&as, targets, false, &(struct row){.ids = row->labels}, at);
    }
}

static void put_numbers(const struct sw_task_part *part, const struct sw_task_row *from, float *out)
{
    const int64_t n = part->form->n_labels;
    if (from->n_classes < 0) {
        memcpy(out, part->rows->numbers + from->numbers, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
    }
    for (int64_t i = 0; i < from->n_classes; i++) {
        out[part->rows->labels.ptr[from->numbers + i]] = 1;
    }
}

static void put_labelled(const struct sw_task_part *part, const struct sw_task_row *from,
                         const struct row *row)
{
    const struct text texts[2] = {first_of(part, from), second_of(part, from)};
    int64_t at[2];
    wrap(part->form, texts, from->n_second >= 0, row, at);
    if (row->labels) {
        *row->labels = from->label;
    }
    if (row->numbers) {
        put_numbers(part, from, row->numbers);
    }
}

static void put_words(const struct sw_task_part *part, const struct sw_task_row *from,
                      const struct row *row)
{
    const struct text texts[2] = {first_of(part, from), {0}};
    int64_t at[2] = {0};
    wrap(part->form, texts, false, row, at);
    for (int64_t i = 0; i < from->n && row->labels; i++) {
        row->labels[at[0] + i] = part->rows->labels.ptr[from->second + i];
    }
}

static void put_question(const struct sw_task_part *part, const struct sw_task_row *from,
                         const struct row *row)
{
    const struct text texts[2] = {first_of(part, from), second_of(part, from)};
    int64_t at[2] = {0};
    wrap(part->form, texts, true, row, at);
    const int32_t first = (int32_t)at[1];
    if (row->start) { /* without an answer: the first token */
        *row->start = from->label < 0 ? 0 : first + from->label;
    }
    if (row->end) {
        *row->end = from->label_end < 0 ? 0 : first + from->label_end;
    }
}

/* Writes the class of an image in the form of the task: a class, a number, or bits. */
static sw_status put_image(const struct sw_task_part *part, int64_t at, const struct row *row)
{
    const struct sw_task_form *form = part->form;
    int32_t label = 0;
    const struct sw_image_form images = sw_task_image_form(form);
    SW_TRY(sw_images_read(&part->rows->images, at, &images, row->pixels, &label));
    if (row->labels) {
        *row->labels = label;
    }
    for (int64_t i = 0; i < form->n_labels && row->numbers; i++) {
        row->numbers[i] = tells_number(form) ? (float)label : (float)(i == label);
    }
    return SW_OK;
}

/* ---- rows of preferences ---- */

/* Writes a prompt and the response of a side, which may belong to another prompt. */
static void put_side(const struct sw_task_part *part, const struct sw_task_side *prompt,
                     const struct sw_task_side *response, const struct row *row)
{
    const struct sw_task_form *form = part->form;
    const int32_t *ids = part->rows->ids.ptr;
    const bool scored = form->task->losses[0].kind == SW_LOSS_REWARD;
    const bool same = prompt == response;
    const int64_t begin = sw_min_i64(prompt->begin, form->T);
    const int64_t n_response = response->end - response->begin;
    const int64_t n_all = same ? prompt->n : begin + n_response; /* with what follows an answer */
    const int64_t n = sw_min_i64(n_all, form->T + !scored) - !scored;
    for (int64_t t = 0; t < n; t++) {
        const int64_t next = t + 1 - begin; /* the next token's number in the response */
        const bool of_prompt = same || t < begin;
        put_token(
            row, t,
            ids[of_prompt ? prompt->first + t : response->first + response->begin + t - begin], 0,
            true);
        if (row->labels && next >= 0 && next < n_response) {
            row->labels[t] = ids[response->first + response->begin + next];
        }
    }
    pad_row(form, row, n);
    if (row->numbers) {
        *row->numbers = 1;
    }
}

/* The rows of a sample: chosen and rejected; for KTO a response, and another one to the prompt. */
static sw_status put_preference(const struct sw_task_part *part, int64_t at,
                                const struct sw_row_input *inputs, int n_inputs, int64_t row)
{
    const struct sw_task_rows *r = part->rows;
    const bool unpaired = part->form->task->losses[0].kind == SW_LOSS_UNPAIRED;
    for (int side = 0; side < 2; side++) {
        struct row out;
        SW_TRY(place_row(part->form, inputs, n_inputs, 2 * row + side, &out));
        if (!out.ids) {
            return SW_FAIL(SW_E_ARG, "task \"%s\": its rows have input_ids",
                           part->form->task->name);
        }
        no_labels(part->form, &out);
        if (out.reference) {
            *out.reference = 0;
        }
        if (at < 0) {
            blank_row(part->form, &out);
            continue;
        }
        const int64_t mine = at - part->first, n = part->n;
        const int64_t other = part->first + ((mine - r->rows[at].question) % n + n) % n;
        const struct sw_task_side *prompt = &r->sides[2 * at + (unpaired ? 0 : side)];
        put_side(part, prompt, unpaired && side == 1 ? &r->sides[2 * other] : prompt, &out);
        if (out.reference && part->reference) {
            *out.reference = part->reference[2 * mine + side];
        }
        if (out.kinds) {
            *out.kinds = side == 1 ? 2 : r->rows[at].label;
        }
    }
    return SW_OK;
}

/* Two texts that belong together. What the loss reads is not of the data. */
static sw_status put_contrast(const struct sw_task_part *part, int64_t at,
                              const struct sw_row_input *inputs, int n_inputs, int64_t row)
{
    for (int side = 0; side < 2; side++) {
        struct row out;
        int64_t begin[2];
        SW_TRY(place_row(part->form, inputs, n_inputs, 2 * row + side, &out));
        out.numbers = NULL;
        if (!out.ids) {
            return SW_FAIL(SW_E_ARG, "task \"%s\": its rows have input_ids",
                           part->form->task->name);
        }
        if (at < 0) {
            blank_row(part->form, &out);
            continue;
        }
        const struct sw_task_row *from = &part->rows->rows[at];
        const struct text texts[2] = {side == 0 ? first_of(part, from) : second_of(part, from)};
        wrap(part->form, texts, false, &out, begin);
    }
    return SW_OK;
}

sw_status sw_task_put_row(const struct sw_task_part *part, int64_t at, int64_t sample,
                          const struct sw_row_input *inputs, int n_inputs, int64_t row)
{
    struct row out;
    const struct sw_task_form *form = part->form;
    if (form->task->rows == SW_ROWS_PREFERENCES) {
        return put_preference(part, at, inputs, n_inputs, row);
    }
    if (form->task->rows == SW_ROWS_CONTRAST) {
        return put_contrast(part, at, inputs, n_inputs, row);
    }
    const struct sw_draw draw = {form->seed, sample, part->split};
    SW_TRY(place_row(form, inputs, n_inputs, row, &out));
    if (form->task->rows != SW_ROWS_IMAGES &&
        (!out.ids || (!out.labels && form->U > 0 && form->task->rows == SW_ROWS_SPANS))) {
        return SW_FAIL(SW_E_ARG, "task \"%s\": its rows have input_ids%s", form->task->name,
                       form->task->rows == SW_ROWS_SPANS ? " and labels" : "");
    }
    if (at < 0) {
        blank_row(form, &out);
        return SW_OK;
    }
    no_labels(form, &out);
    const struct sw_task_row *from = part->rows->rows ? &part->rows->rows[at] : NULL;
    switch (form->task->rows) {
    case SW_ROWS_MASKED:
    case SW_ROWS_PAIRS:
        return put_masked(part, from, &draw, &out);
    case SW_ROWS_SPANS:
        return put_spans(part, from, &draw, &out);
    case SW_ROWS_TARGETS:
        put_target(part, from, &out);
        return SW_OK;
    case SW_ROWS_WORDS:
        put_words(part, from, &out);
        return SW_OK;
    case SW_ROWS_ANSWERS:
        put_question(part, from, &out);
        return SW_OK;
    case SW_ROWS_IMAGES:
        return put_image(part, at, &out);
    default:
        put_labelled(part, from, &out);
        return SW_OK;
    }
}
