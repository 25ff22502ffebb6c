// SPDX-License-Identifier: Apache-2.0
// Samples: texts that the model generates between steps.
#include <string.h>

#include "job/training.h"

/* Tokenizes the prompt of a sample. */
static sw_status sample_prompt(const struct job *job, struct sw_ids *prompt)
{
    const char *text = job->options->sample_prompt, *prefix = job->options->task.source_prefix;
    if (sw_job_is_answered(job)) {
        struct sw_str whole = {0};
        sw_str_printf(&whole, "%s%s", prefix ? prefix : "", text);
        const sw_status st =
            whole.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a sample")
                         : sw_tokenizer_encode(job->tokenizer, whole.ptr, whole.len, true, prompt);
        sw_str_fini(&whole);
        return st;
    }
    const int32_t eos = sw_tokenizer_eos(job->tokenizer);
    if (text && *text && job->chat.chat) { /* the prompt is a question, the sample its answer */
        SW_TRY(sw_chat_ask(job->chat.chat, text, prompt));
        return SW_OK;
    }
    text = text ? text : "";
    SW_TRY(sw_tokenizer_encode_prompt(job->tokenizer, text, strlen(text), prompt));
    if (prompt->len > 0) {
        return SW_OK;
    }
    if (eos >= 0) {
        return sw_ids_push(prompt, eos);
    }
    return sw_tokenizer_encode(job->tokenizer, "\n", 1, false, prompt) < 0
               ? sw_ids_push(prompt, 0) /* tokens of a text without line breaks */
               : SW_OK;
}

sw_status sw_job_prepare_sample(struct job *job)
{
    struct sw_ids prompt = {0};
    if (job->options->sample_every < 1 || !job->tokenizer) {
        return SW_OK;
    }
    int64_t most = job->facts.generate_tokens;
    if (sw_job_is_answered(job)) {
        most = job->tokens + 1;
        const struct sw_sampling likeliest = {0};
        SW_TRY(sw_job_settings_read(job->options->model, true, &likeliest, &job->told.writing));
        SW_TRY(sw_job_settings_stop(&job->told.writing, job->tokenizer));
    }
    sw_status st = sample_prompt(job, &prompt);
    if (st < 0) {
        st = sw_fail_prefix(st, "--sample-prompt");
    } else if (prompt.len >= most) {
        st = SW_FAIL(SW_E_ARG, "--sample-prompt has %lld tokens; wanted fewer than %lld",
                     (long long)prompt.len, (long long)most);
    }
    sw_ids_fini(&prompt);
    return st;
}

sw_status sw_job_print_sample(struct job *job)
{
    const struct sw_train_options *o = job->options;
    const bool chat = job->chat.chat && o->sample_prompt && *o->sample_prompt;
    const bool answered = sw_job_is_answered(job);
    const char *between = chat || answered ? "\n" : "";
    const int64_t most = job->facts.generate_tokens;
    struct sw_ids prompt = {0};
    int32_t *out = NULL;
    struct sw_str text = {0};
    int64_t n = 0;
    sw_status st = SW_OK;
    SW_TRY_OR(done, sample_prompt(job, &prompt));
    const int64_t wanted = o->sample_tokens > 0 ? o->sample_tokens : 200;
    const int64_t n_new = sw_min_i64(wanted, answered ? most : most - prompt.len);
    out = sw_alloc("train", (size_t)(n_new > 0 ? n_new : 1) * sizeof *out);
    if (!out) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a sample");
        goto done;
    }
    struct sw_sampling sampling = {.temperature = answered ? 0 : 0.8,
                                   .top_k = 40,
                                   .seed = job->facts.seed + (uint64_t)sw_engine_step(job->engine),
                                   .stop_id = chat ? sw_tokenizer_eos(job->tokenizer) : -1};
    if (answered) { /* greedy, as `spillway generate` does */
        sw_job_settings_apply(&job->told.writing, prompt.len, true, &sampling);
    }
    SW_TRY_OR(done,
              sw_generate(job->engine, prompt.ptr, prompt.len, n_new, &sampling, out, &n, NULL));
    SW_TRY_OR(done, sw_tokenizer_decode_behind(job->tokenizer, prompt.ptr,
                                               *between ? 0 : prompt.len, out, n, &text));
    sw_progress_end(&job->progress);
    fprintf(job->out, "--- sample at step %lld ---\n%s%s%s\n---\n",
            (long long)sw_engine_step(job->engine), o->sample_prompt ? o->sample_prompt : "",
            between, sw_str_text(&text));
    if (job->leads) {
        st =
            sw_sample_record(o->output, sw_engine_step(job->engine),
                             o->sample_prompt ? o->sample_prompt : "", between, sw_str_text(&text));
    }
done:
    sw_ids_fini(&prompt);
    sw_free(out);
    sw_str_fini(&text);
    return st;
}
