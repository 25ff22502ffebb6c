// SPDX-License-Identifier: Apache-2.0
// Generation: the prompt goes through in chunks, then one token at a time, over caches of keys and
// values that both programs share. Sampling is seeded and a pure function of (seed, place, logits).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"

struct candidate {
    float logit;
    int32_t id;
};

/* Larger logits first; equal ones by id, so that ties are settled alike everywhere. */
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
    if (s->top_p > 0 && s->top_p < 1) { /* the shortest head whose share reaches top_p */
        double sum = 0;
        for (int64_t i = 0; i < keep; i++) {
            sum += exp(((double)work[i].logit - work[0].logit) / s->temperature);
            if (sum >= s->top_p * total) {
                keep = i + 1;
                total = sum;
            }
        }
    }
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

/* An input that the program has; one token alone needs no "last". */
static sw_status give(struct sw_engine *e, int i_program, const char *name, const int32_t *ids,
                      int64_t n)
{
    const struct sw_port *port = sw_program_input(&e->plan->programs[i_program], name, 0);
    return port ? sw_executor_write(e->executor, port, ids, (size_t)n * sizeof *ids) : SW_OK;
}

/* Runs n tokens that begin at place `at`; n is the program's. */
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

static sw_status check(const struct sw_engine *e, const int32_t *prompt, int64_t n_prompt,
                       int64_t n_new)
{
    if (e->programs.decode < 0) {
        return SW_FAIL(SW_E_ARG, "sw_generate: the engine was opened without generate_tokens, or "
                                 "its model is no language model");
    }
    if (e->phase != 0) {
        return SW_FAIL(SW_E_ARG, "sw_generate: a step is under way");
    }
    if (n_prompt < 1 || n_new < 0 || n_prompt + n_new > e->options.generate_tokens) {
        return SW_FAIL(
            SW_E_ARG, "sw_generate: %lld + %lld tokens; wanted a prompt and at most %lld",
            (long long)n_prompt, (long long)n_new, (long long)e->options.generate_tokens);
    }
    for (int64_t i = 0; i < n_prompt; i++) {
        if (prompt[i] < 0 || prompt[i] >= e->model->vocab) {
            return SW_FAIL(SW_E_ARG, "sw_generate: token %d at %lld; the vocabulary has %lld",
                           prompt[i], (long long)i, (long long)e->model->vocab);
        }
    }
    return SW_OK;
}

/* The prompt in chunks of the prefill program, what is left token by token; *out_program: which one
 * ran last. */
static sw_status read_prompt(sw_engine *e, const int32_t *prompt, int64_t n_prompt,
                             int *out_program)
{
    const int64_t chunk = sw_min_i64(SW_PREFILL_TOKENS, e->options.generate_tokens);
    for (int64_t at = 0; at < n_prompt;) {
        const bool whole = n_prompt - at >= chunk;
        *out_program = whole ? e->programs.prefill : e->programs.decode;
        SW_TRY(run(e, *out_program, prompt + at, whole ? chunk : 1, at));
        at += whole ? chunk : 1;
    }
    return SW_OK;
}

static bool ends(const struct sw_sampling *sampling, int32_t id)
{
    bool any = id == sampling->stop_id;
    for (int64_t i = 0; i < sampling->n_stop_ids; i++) {
        any = any || id == sampling->stop_ids[i];
    }
    return any;
}

sw_status sw_generate(sw_engine *e, const int32_t *prompt, int64_t n_prompt, int64_t n_new,
                      const struct sw_sampling *sampling, int32_t *out, int64_t *out_n,
                      float *out_logits)
{
    static const struct sw_sampling plain = {.stop_id = -1};
    SW_TRY(check(e, prompt, n_prompt, n_new));
    sampling = sampling ? sampling : &plain;
    sw_status st = SW_OK;
    const int64_t vocab = e->model->vocab;
    float *logits = sw_alloc("engine", (size_t)vocab * sizeof *logits);
    struct candidate *work = sw_alloc("engine", (size_t)vocab * sizeof *work);
    int64_t at = n_prompt, n = 0;
    int last_program = e->programs.decode;
    if (!logits || !work) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for sampling");
        goto done;
    }
    SW_TRY_OR(done, read_prompt(e, prompt, n_prompt, &last_program));
    while (n < n_new) {
        const struct sw_program *program = &e->plan->programs[last_program];
        SW_TRY_OR(done, sw_engine_read_output(e, sw_program_output(program, "logits", 0), logits));
        if (out_logits) {
            memcpy(out_logits + n * vocab, logits, (size_t)vocab * sizeof *logits);
        }
        const int32_t id = sampling->temperature > 0 ? sample(logits, vocab, sampling, at, work)
                                                     : greedy(logits, vocab);
        out[n++] = id;
        if (ends(sampling, id) || n == n_new) {
            break;
        }
        last_program = e->programs.decode;
        SW_TRY_OR(done, run(e, last_program, &id, 1, at));
        at++;
    }
    *out_n = n;
done:
    sw_free(logits);
    sw_free(work);
    return st;
}
