// SPDX-License-Identifier: Apache-2.0
// The generation settings in a model's files: generation_config.json, or config.json if that is
// missing. A warning names keys that would change a text but are not supported.
#include <string.h>
#include <unistd.h>

#include "hf/hf.h"
#include "job/private.h"

bool sw_job_answers(const struct sw_task *task)
{
    return task->rows == SW_ROWS_TARGETS || task->rows == SW_ROWS_SPANS;
}

/* Reads an id or a list of ids. */
static sw_status read_ids(const struct sw_json_doc *doc, const struct sw_json *root,
                          const char *key, struct sw_ids *out)
{
    const struct sw_json *value = sw_json_get(root, key);
    if (!value || value->type == SW_JSON_NULL) {
        return SW_OK;
    }
    const struct sw_json *id = value->type == SW_JSON_ARRAY ? value->first : value;
    for (; id; id = value->type == SW_JSON_ARRAY ? id->next : NULL) {
        if (id->type != SW_JSON_INT || id->integer < -1 || id->integer > INT32_MAX) {
            return SW_FAIL(SW_E_FORMAT, "%s: %s: wanted an id, or an array of ids",
                           sw_json_name(doc), key);
        }
        if (id->integer >= 0) { /* -1 means no id, as in Whisper's files */
            SW_TRY(sw_ids_push(out, (int32_t)id->integer));
        }
    }
    return SW_OK;
}

/* *out is -1 if there is no id. */
static sw_status read_id(const struct sw_json_doc *doc, const struct sw_json *root, const char *key,
                         int32_t *out)
{
    struct sw_ids ids = {0};
    sw_status st = read_ids(doc, root, key, &ids);
    if (st >= 0 && ids.len > 1) {
        st = SW_FAIL(SW_E_UNSUP, "%s: %s has %lld ids; only one is built", sw_json_name(doc), key,
                     (long long)ids.len);
    }
    if (st >= 0) {
        *out = ids.len == 1 ? ids.ptr[0] : -1;
    }
    sw_ids_fini(&ids);
    return st;
}

/* Reads a number of tokens. Absent or null is -1. */
static sw_status read_count(const struct sw_json_doc *doc, const struct sw_json *root,
                            const char *key, int64_t *out)
{
    SW_TRY(sw_json_get_i64(doc, root, key, -1, out));
    if (*out < -1 || *out > INT32_MAX) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %lld; wanted a number of tokens", sw_json_name(doc),
                       key, (long long)*out);
    }
    return SW_OK;
}

static bool says_nothing(const struct sw_json *value, double neutral)
{
    switch (value->type) {
    case SW_JSON_NULL:
        return true;
    case SW_JSON_BOOL:
        return !value->boolean;
    case SW_JSON_INT:
    case SW_JSON_FLOAT:
        return value->number == neutral;
    case SW_JSON_STRING:
    case SW_JSON_ARRAY:
    case SW_JSON_OBJECT:
        return value->n_children == 0 && value->type != SW_JSON_STRING;
    }
    return false;
}

/* Whether all members are lists of one id. */
static bool are_ids(const struct sw_json *lists)
{
    bool good = lists && lists->type == SW_JSON_ARRAY;
    for (const struct sw_json *one = good ? lists->first : NULL; one && good; one = one->next) {
        good = one->type == SW_JSON_ARRAY && one->n_children == 1 &&
               one->first->type == SW_JSON_INT && one->first->integer >= 0 &&
               one->first->integer <= INT32_MAX;
    }
    return good;
}

/* Excludes bad_words_ids of one token, such as Marian's padding. Exception: ends of the text. */
static sw_status read_words(const struct sw_json *root, struct sw_job_settings *out)
{
    const struct sw_json *lists = sw_json_get(root, "bad_words_ids");
    for (const struct sw_json *one = are_ids(lists) ? lists->first : NULL; one; one = one->next) {
        const int32_t id = (int32_t)one->first->integer;
        bool ends = false;
        for (int64_t i = 0; i < out->stops.len; i++) {
            ends = ends || out->stops.ptr[i] == id;
        }
        SW_TRY(ends ? SW_OK : sw_ids_push(&out->never, id));
    }
    return SW_OK;
}

/* Is the key a sampling setting that the caller overrides? */
static bool is_asked(const char *key, const struct sw_sampling *asked)
{
    const bool draws = asked->temperature > 0;
    return strcmp(key, "do_sample") == 0 ? draws
           : strcmp(key, "top_k") == 0   ? !draws || asked->top_k > 0
                                       : strcmp(key, "top_p") == 0 && (!draws || asked->top_p > 0);
}

/* Unsupported keys, and the neutral value of each. */
static const struct {
    const char *key;
    double neutral;
} others[] = {
    {"num_beams", 1},
    {"num_beam_groups", 1},
    {"penalty_alpha", 0},
    {"encoder_no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"exponential_decay_length_penalty", 0},
    {"bad_words_ids", 0},
    {"force_words_ids", 0},
    {"sequence_bias", 0},
    {"guidance_scale", 1},
    {"stop_strings", 0},
    {"max_time", 0},
    {"typical_p", 1},
    {"min_p", 0},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"watermarking_config", 0},
    {"dola_layers", 0},
    {"do_sample", 0},
    {"top_k", 0},
    {"top_p", 1},
};

/* Names, in one warning, the unsupported keys that would change a text. */
static void warn_of_others(const struct sw_json_doc *doc, const struct sw_json *root,
                           const struct sw_sampling *asked)
{
    const char *chosen = asked->temperature > 0 ? "drawn" : "the likeliest one";
    struct sw_str found = {0};
    for (size_t i = 0; i < SW_LEN(others); i++) {
        const struct sw_json *value = sw_json_get(root, others[i].key);
        const bool followed = strcmp(others[i].key, "bad_words_ids") == 0 && are_ids(value);
        if (value && !followed && !is_asked(others[i].key, asked) &&
            !says_nothing(value, others[i].neutral)) {
            sw_str_printf(&found, "%s%s", found.len > 0 ? ", " : "", others[i].key);
        }
    }
    if (found.len > 0) {
        sw_log(SW_LOG_WARN,
               "%s: not followed: %s (each token is %s; --temperature, --top-k and --top-p draw)",
               sw_json_name(doc), sw_str_text(&found), chosen);
    }
    sw_str_fini(&found);
}

static sw_status read_rules(const struct sw_json_doc *doc, const struct sw_json *root,
                            struct sw_job_settings *out)
{
    struct sw_text_rules *r = &out->rules;
    SW_TRY(read_ids(doc, root, "eos_token_id", &out->stops));
    SW_TRY(read_ids(doc, root, "suppress_tokens", &out->never));
    SW_TRY(read_words(root, out));
    SW_TRY(read_ids(doc, root, "begin_suppress_tokens", &out->begins));
    SW_TRY(read_id(doc, root, "decoder_start_token_id", &r->start_id));
    SW_TRY(read_id(doc, root, "forced_bos_token_id", &r->first_id));
    SW_TRY(read_id(doc, root, "forced_eos_token_id", &r->last_id));
    SW_TRY(read_count(doc, root, "no_repeat_ngram_size", &r->no_repeat));
    SW_TRY(read_count(doc, root, "min_length", &out->min_length));
    SW_TRY(read_count(doc, root, "min_new_tokens", &out->min_new));
    SW_TRY(read_count(doc, root, "max_length", &out->max_length));
    SW_TRY(read_count(doc, root, "max_new_tokens", &out->max_new));
    SW_TRY(sw_json_get_f64(doc, root, "repetition_penalty", 1, &r->repetition));
    if (!(r->repetition > 0)) {
        return SW_FAIL(SW_E_FORMAT, "%s: repetition_penalty is %g; wanted a number above 0",
                       sw_json_name(doc), r->repetition);
    }
    return SW_OK;
}

/* *out stays NULL if neither file is there. */
static sw_status open_file(const char *model, struct sw_json_doc **out)
{
    struct sw_str path = {0};
    sw_status st = SW_OK;
    sw_str_printf(&path, "%s/generation_config.json", model);
    if (path.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a path");
    } else if (access(path.ptr, F_OK) == 0) {
        st = sw_json_read(path.ptr, SW_JSON_STRICT, out);
    } else if (access(model, F_OK) == 0) {
        st = sw_hf_read_config(model, out);
    }
    sw_str_fini(&path);
    return st;
}

sw_status sw_job_settings_read(const char *model, bool answers, const struct sw_sampling *asked,
                               struct sw_job_settings *out)
{
    struct sw_json_doc *doc = NULL;
    *out = (struct sw_job_settings){.rules = {.start_id = -1, .first_id = -1, .last_id = -1},
                                    .answers = answers,
                                    .min_length = -1,
                                    .min_new = -1,
                                    .max_length = -1,
                                    .max_new = -1};
    SW_TRY(open_file(model, &doc));
    sw_status st = SW_OK;
    if (doc) {
        st = read_rules(doc, sw_json_root(doc), out);
        warn_of_others(doc, sw_json_root(doc), asked);
    }
    sw_json_close(doc);
    if (st < 0) {
        sw_job_settings_fini(out);
    }
    return st;
}

sw_status sw_job_settings_stop(struct sw_job_settings *settings, const sw_tokenizer *tokenizer)
{
    const int32_t eos = sw_tokenizer_eos(tokenizer);
    if (settings->stops.len == 0 && eos >= 0) {
        SW_TRY(sw_ids_push(&settings->stops, eos));
    }
    return SW_OK;
}

void sw_job_settings_fini(struct sw_job_settings *settings)
{
    sw_ids_fini(&settings->stops);
    sw_ids_fini(&settings->never);
    sw_ids_fini(&settings->begins);
}

/* max_length includes the decoder's start token. It applies to encoder-decoders only. */
int64_t sw_job_settings_most(const struct sw_job_settings *s)
{
    const int64_t by_length = s->max_length > 1 ? s->max_length - 1 : 0;
    return !s->answers ? 0 : s->max_new > 0 ? s->max_new : by_length;
}

void sw_job_settings_apply(struct sw_job_settings *s, int64_t n_prompt, bool ends,
                           struct sw_sampling *out)
{
    const int64_t before = s->answers ? 1 : n_prompt;
    s->rules.least = s->min_new >= 0 ? s->min_new : sw_max_i64(0, s->min_length - before);
    s->rules.no_repeat = sw_max_i64(0, s->rules.no_repeat);
    s->rules.never = s->never.ptr;
    s->rules.n_never = s->never.len;
    s->rules.begins = s->begins.ptr;
    s->rules.n_begins = s->begins.len;
    out->stop_id = -1;
    out->stop_ids = ends ? s->stops.ptr : NULL;
    out->n_stop_ids = ends ? s->stops.len : 0;
    out->rules = &s->rules;
}

/* ---- for other programs ---- */

struct sw_writing {
    struct sw_job_settings settings;
};

sw_status sw_writing_open(const char *model, const sw_tokenizer *tokenizer,
                          const struct sw_sampling *asked, struct sw_writing **out)
{
    const struct sw_task *task;
    SW_TRY(sw_weights_find_task(model, NULL, 0, &task));
    struct sw_writing *w = sw_alloc_zero("generate", 1, sizeof *w);
    SW_TRY_ALLOC(w, "rules of a text");
    sw_status st = sw_job_settings_read(model, sw_job_answers(task), asked, &w->settings);
    st = st < 0 || !tokenizer ? st : sw_job_settings_stop(&w->settings, tokenizer);
    if (st < 0) {
        sw_writing_close(w);
        return st;
    }
    *out = w;
    return SW_OK;
}

void sw_writing_apply(struct sw_writing *writing, int64_t n_prompt, bool ends,
                      struct sw_sampling *sampling)
{
    sw_job_settings_apply(&writing->settings, n_prompt, ends, sampling);
}

void sw_writing_close(struct sw_writing *writing)
{
    if (writing) {
        sw_job_settings_fini(&writing->settings);
        sw_free(writing);
    }
}
