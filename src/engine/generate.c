// SPDX-License-Identifier: Apache-2.0
// Generation. The prompt is processed in chunks, then one token at a time, with key and value
// caches that both programs share. Sampling is seeded, and a pure function of (seed, position,
// logits).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"

struct candidate {
    float logit;
    int32_t id;
};

/* Larger logits first. Equal logits are ordered by id, so that ties are resolved the same
 * everywhere. */
static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit) {
        return x->logit < y->logit ? 1 : -1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static int32_t greedy(const float *logits, int64_t n)
{
    int32_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? (int32_t)i : best;
    }
    return best;
}

/* Draws a token from softmax(logits / temperature), restricted to the top_k largest logits and then
 * to top_p. place: position of the new token in the text. work [n]: scratch. */
static int32_t sample(const float *logits, int64_t n, const struct sw_sampling *s, int64_t place,
                      struct candidate *work)
{
    for (int64_t i = 0; i < n; i++) {
        work[i] = (struct candidate){logits[i], (int32_t)i};
    }
    qsort(work, (size_t)n, sizeof *work, by_logit);
    int64_t keep = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    double total = 0;
    for (int64_t i = 0; i < keep; i++) {
        total += exp(((double)work[i].logit - work[0].logit) / s->temperature);
    }
    if (s->top_p > 0 && s->top_p < 1) { /* shortest prefix whose probability reaches top_p */
        double sum = 0;
        for (int64_t i = 0; i < keep; i++) {
            sum += exp(((double)work[i].logit - work[0].logit) / s->temperature);
            if (sum >= s->top_p * total) {
                keep = i + 1;
                total = sum;
            }
        }
    }
    /* the stream "generate", in ASCII, so that no other use of the seed has the same numbers */
    const uint64_t word = sw_philox_u64(s->seed, UINT64_C(0x67656e6572617465), (uint64_t)place);
    double left = (double)(word >> 11) * 0x1p-53 * total;
    for (int64_t i = 0; i < keep; i++) {
        left -= exp(((double)work[i].logit - work[0].logit) / s->temperature);
        if (left < 0) {
            return work[i].id;
        }
    }
    return work[keep - 1].id;
}

/* State of one generation. */
struct writing {
    sw_engine *e;
    const struct sw_sampling *sampling;
    struct engine_text text;
    int program; /* the last program run */
    float *logits;
    struct candidate *work;
    int32_t *ids, *mask; /* [T] source text of an encoder-decoder and its attention mask */
    int32_t start;       /* first token of the decoder */
    int32_t *out;        /* new tokens */
    float *out_logits; /* [n_new, V] logits of each new token, before any rule; NULL = not wanted */
    const struct sw_each_token *each; /* NULL = no callback */
};

/* Sets an input if the program has it. A program for one token has no "last". */
static sw_status give(struct sw_engine *e, int i_program, const char *name, const int32_t *ids,
                      int64_t n)
{
    const struct sw_port *port = sw_program_input(&e->plan->programs[i_program], name, 0);
    return port ? sw_executor_write(e->executor, port, ids, (size_t)n * sizeof *ids) : SW_OK;
}

/* Runs n tokens, the program's count, from position `at`. */
static sw_status run(struct sw_engine *e, int i_program, const int32_t *ids, int64_t n, int64_t at)
{
    int32_t positions[SW_PREFILL_TOKENS];
    const int32_t position = (int32_t)at, last = (int32_t)n - 1;
    for (int64_t i = 0; i < n; i++) {
        positions[i] = (int32_t)(at + i);
    }
    SW_TRY(give(e, i_program, "input_ids", ids, n));
    SW_TRY(give(e, i_program, "positions", positions, n));
    SW_TRY(give(e, i_program, "position", &position, 1));
    SW_TRY(give(e, i_program, "last", &last, 1));
    return sw_executor_forward(e->executor, i_program);
}

/* Runs the token at position `at` of the text, prompt included. */
static sw_status run_token(struct writing *w, int32_t id, int64_t at)
{
    struct sw_engine *e = w->e;
    const int32_t position = (int32_t)at;
    w->program = e->programs.decode;
    if (!w->mask) {
        return run(e, w->program, &id, 1, at);
    }
    SW_TRY(give(e, w->program, "decoder_input_ids", &id, 1));
    SW_TRY(give(e, w->program, "position", &position, 1));
    SW_TRY(give(e, w->program, "attention_mask", w->mask, e->sizes.tokens));
    return sw_executor_forward(e->executor, w->program);
}

static sw_status check_ids(const struct sw_engine *e, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= e->weights.model->vocab) {
            return SW_FAIL(SW_E_ARG, "sw_generate: token %d at %lld; the vocabulary has %lld",
                           ids[i], (long long)i, (long long)e->weights.model->vocab);
        }
    }
    return SW_OK;
}

/* Each rule's id must be -1 or in the vocabulary. */
static sw_status check_rules(const struct sw_engine *e, const struct sw_text_rules *rules)
{
    const struct {
        const char *what;
        int32_t id;
    } ids[] = {
        {"start_id", rules->start_id}, {"first_id", rules->first_id}, {"last_id", rules->last_id}};
    for (size_t i = 0; i < SW_LEN(ids); i++) {
        if (ids[i].id < -1 || ids[i].id >= e->weights.model->vocab) {
            return SW_FAIL(SW_E_ARG, "sw_generate: rules.%s %d; the vocabulary has %lld",
                           ids[i].what, ids[i].id, (long long)e->weights.model->vocab);
        }
    }
    return SW_OK;
}

static sw_status check(const struct sw_engine *e, const int32_t *prompt, int64_t n_prompt,
                       int64_t n_new)
{
    if (e->programs.decode < 0) {
        return SW_FAIL(
            SW_E_ARG,
            "sw_generate: the engine was opened without generate.wanted, or its model is not a "
            "language model");
    }
    SW_TRY(sw_engine_check_idle(&e->progress, "sw_generate"));
    const int64_t most = e->options.generate.tokens;
    if (sw_model_is_seq2seq(e->weights.model)) {
        if (n_prompt < 1 || n_prompt > e->sizes.tokens || n_new < 0 || n_new > most) {
            return SW_FAIL(SW_E_ARG,
                           "sw_generate: a text of %lld tokens, and %lld for it; wanted 1 to %lld, "
                           "and at most %lld",
                           (long long)n_prompt, (long long)n_new, (long long)e->sizes.tokens,
                           (long long)most);
        }
    } else if (n_prompt < 1 || n_new < 0 || n_prompt + n_new > most) {
        return SW_FAIL(SW_E_ARG,
                       "sw_generate: %lld + %lld tokens; wanted a prompt and at most %lld",
                       (long long)n_prompt, (long long)n_new, (long long)most);
    }
    return check_ids(e, prompt, n_prompt);
}

/* Runs the encoder on the source text, whose output stays cached, and starts the decoder. */
static sw_status read_source(struct writing *w, const int32_t *prompt, int64_t n_prompt)
{
    struct sw_engine *e = w->e;
    const struct sw_text_rules *rules = w->sampling->rules;
    const int64_t n = e->sizes.tokens, pad = e->weights.model->pad_id;
    w->ids = sw_alloc("engine", (size_t)n * sizeof *w->ids);
    w->mask = sw_alloc("engine", (size_t)n * sizeof *w->mask);
    SW_TRY_ALLOC(w->ids && w->mask ? w : NULL, "a text");
    for (int64_t i = 0; i < n; i++) {
        w->ids[i] = i < n_prompt ? prompt[i] : (int32_t)sw_max_i64(pad, 0);
        w->mask[i] = i < n_prompt;
    }
    w->start =
        rules && rules->start_id >= 0 ? rules->start_id : (int32_t)e->weights.model->start_id;
    w->text.before = &w->start;
    w->text.n_before = 1;
    w->program = e->programs.prefill;
    SW_TRY(give(e, w->program, "input_ids", w->ids, n));
    SW_TRY(give(e, w->program, "attention_mask", w->mask, n));
    SW_TRY(sw_executor_forward(e->executor, w->program));
    return run_token(w, w->start, 0);
}

/* Runs the prompt in chunks of the prefill program, and the rest token by token. */
static sw_status read_prompt(struct writing *w, const int32_t *prompt, int64_t n_prompt)
{
    sw_engine *e = w->e;
    const int64_t chunk = sw_min_i64(SW_PREFILL_TOKENS, e->options.generate.tokens);
    w->text.before = prompt;
    w->text.n_before = n_prompt;
    for (int64_t at = 0; at < n_prompt;) {
        const bool whole = n_prompt - at >= chunk;
        w->program = whole ? e->programs.prefill : e->programs.decode;
        SW_TRY(run(e, w->program, prompt + at, whole ? chunk : 1, at));
        at += whole ? chunk : 1;
    }
    return SW_OK;
}

/* Chooses the next token from the logits of the last one. */
static sw_status choose(struct writing *w, int32_t *out)
{
    struct sw_engine *e = w->e;
    const int64_t vocab = e->weights.model->vocab, at = w->text.n_before + w->text.n_fresh;
    const struct sw_program *program = &e->plan->programs[w->program];
    SW_TRY(sw_engine_read_output(e, sw_program_output(program, "logits", 0), w->logits));
    if (w->out_logits) {
        memcpy(w->out_logits + w->text.n_fresh * vocab, w->logits,
               (size_t)vocab * sizeof *w->logits);
    }
    *out = sw_engine_apply_rules(&w->text, w->sampling, w->logits, vocab);
    if (*out < 0) {
        *out = w->sampling->temperature > 0 ? sample(w->logits, vocab, w->sampling, at, w->work)
                                            : greedy(w->logits, vocab);
    }
    return SW_OK;
}

static sw_status write_text(struct writing *w, const int32_t *prompt, int64_t n_prompt)
{
    const int64_t vocab = w->e->weights.model->vocab;
    w->logits = sw_alloc("engine", (size_t)vocab * sizeof *w->logits);
    w->work = sw_alloc("engine", (size_t)vocab * sizeof *w->work);
    SW_TRY_ALLOC(w->logits && w->work ? w : NULL, "sampling");
    SW_TRY(sw_model_is_seq2seq(w->e->weights.model) ? read_source(w, prompt, n_prompt)
                                                    : read_prompt(w, prompt, n_prompt));
    struct engine_text *t = &w->text;
    while (t->n_fresh < t->most) {
        int32_t id;
        SW_TRY(choose(w, &id));
        w->out[t->n_fresh++] = id;
        SW_TRY(w->each ? w->each->fn(w->each->ctx, w->out, t->n_fresh) : SW_OK);
        if (sw_engine_ends_text(w->sampling, id) || t->n_fresh == t->most) {
            break;
        }
        SW_TRY(run_token(w, id, t->n_before + t->n_fresh - 1));
    }
    return SW_OK;
}

/* w: set up by the caller, except for the members allocated here. */
static sw_status generate(struct writing *w, const int32_t *prompt, int64_t n_prompt,
                          int64_t *out_n)
{
    static const struct sw_sampling plain = {.stop_id = -1};
    SW_TRY(check(w->e, prompt, n_prompt, w->text.most));
    SW_TRY(sw_engine_settle(w->e));
    w->sampling = w->sampling ? w->sampling : &plain;
    if (w->sampling->rules) {
        SW_TRY(check_rules(w->e, w->sampling->rules));
    }
    w->text.fresh = w->out;
    const sw_status st = write_text(w, prompt, n_prompt);
    if (st >= 0) {
        *out_n = w->text.n_fresh;
    }
    sw_free(w->logits);
    sw_free(w->work);
    sw_free(w->ids);
    sw_free(w->mask);
    return st;
}

sw_status sw_generate(sw_engine *e, const int32_t *prompt, int64_t n_prompt, int64_t n_new,
                      const struct sw_sampling *sampling, int32_t *out, int64_t *out_n,
                      float *out_logits)
{
    struct writing w = {.e = e,
                        .sampling = sampling,
                        .text = {.most = n_new},
                        .out = out,
                        .out_logits = out_logits};
    return generate(&w, prompt, n_prompt, out_n);
}

sw_status sw_generate_each(sw_engine *e, const int32_t *prompt, int64_t n_prompt, int64_t n_new,
                           const struct sw_sampling *sampling, const struct sw_each_token *each,
                           int32_t *out, int64_t *out_n)
{
    struct writing w = {
        .e = e, .sampling = sampling, .text = {.most = n_new}, .out = out, .each = each};
    return generate(&w, prompt, n_prompt, out_n);
}
