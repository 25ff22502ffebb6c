// SPDX-License-Identifier: Apache-2.0
// COST 4
// Generation with encoder-decoders. The cache gives the bits of the whole decoder, for any amount
// of padding. Stages, offloading and ranks change no bit. Rules of generation are followed, and
// invalid ones are named.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/private.h"
#include "support/test.h"

enum { V = 53, T = 12, U = 7, PROMPTS = 3 };

static char path[64]; /* path of config.json */

#define BART                                                                                       \
    "\"model_type\": \"bart\", \"vocab_size\": 53, \"d_model\": 16, \"encoder_layers\": 2, "       \
    "\"decoder_layers\": 2, \"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, "      \
    "\"encoder_ffn_dim\": 24, \"decoder_ffn_dim\": 20, \"max_position_embeddings\": 14, "          \
    "\"init_std\": 0.3, \"dropout\": 0.0"
#define T5                                                                                         \
    "\"model_type\": \"t5\", \"vocab_size\": 53, \"d_model\": 16, \"d_kv\": 6, \"d_ff\": 24, "     \
    "\"num_layers\": 2, \"num_heads\": 2, \"relative_attention_num_buckets\": 8, "                 \
    "\"relative_attention_max_distance\": 12, \"dropout_rate\": 0.0"

static const char *const families[] = {
    BART, T5, T5 ", \"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false"};

#define REFERENCE                                                                                  \
    "{\"train_micro_batch_size_per_gpu\": 1, \"spillway\": {\"kernels\": \"reference\"}}"

static const struct {
    int32_t ids[T];
    int64_t n;
} prompts[PROMPTS] = {{{7, 3, 2}, 3},
                      {{5, 9, 11, 30, 8, 41, 2}, 7},
                      {{4, 8, 15, 16, 23, 42, 6, 9, 12, 50, 1, 2}, 12}};

static void write_config(const char *members)
{
    char text[1024];
    snprintf(text, sizeof text, "{%s}", members);
    assert_int_equal(sw_file_write_atomic(path, text, strlen(text)), SW_OK);
}

static sw_status open_model(const char *members, struct sw_engine_options options, sw_engine **out)
{
    write_config(members);
    options.config.text = options.config.text ? options.config.text : REFERENCE;
    options.model.path = path;
    options.inputs.seq_len = options.inputs.seq_len > 0 ? options.inputs.seq_len : T;
    options.seed = 3;
    options.train.wanted = false;
    return sw_initialize(&options, out);
}

static sw_engine *open_or_fail(const char *members, struct sw_engine_options options)
{
    sw_engine *e = NULL;
    if (open_model(members, options, &e) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return e;
}

/* Computes the decoder's logits of all tokens at once: its input is `fresh`, shifted right. */
static void whole(sw_engine *e, int prompt, const int32_t fresh[U], float out[U * V])
{
    int32_t ids[T] = {0}, mask[T] = {0}, labels[U];
    const struct sw_shape source = {2, {1, T}}, target = {2, {1, U}};
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = source}},
        {"attention_mask", {.data = mask, .dtype = SW_I32, .shape = source}},
        {"labels", {.data = labels, .dtype = SW_I32, .shape = target}}};
    const struct sw_batch batch = {tensors, 3};
    for (int64_t i = 0; i < prompts[prompt].n; i++) {
        ids[i] = prompts[prompt].ids[i];
        mask[i] = 1;
    }
    memcpy(labels, fresh, sizeof labels);
    assert_int_equal(sw_logits_elems(e), U * V);
    assert_int_equal(sw_logits(e, &batch, out), SW_OK);
}

static void generation_without_the_cache_gives_the_same_bits(void **state)
{
    static float cached[U * V], all[U * V];
    (void)state;
    for (size_t f = 0; f < SW_LEN(families); f++) {
        sw_engine *e = open_or_fail(
            families[f], (struct sw_engine_options){.inputs.target_len = U,
                                                    .train.wanted = true,
                                                    .evaluate.logits = true,
                                                    .generate = {.wanted = true, .tokens = U}});
        int32_t first = -1;
        bool differ = false;
        for (int p = 0; p < PROMPTS; p++) {
            int32_t fresh[U];
            int64_t n = 0;
            assert_int_equal(
                sw_generate(e, prompts[p].ids, prompts[p].n, U, NULL, fresh, &n, cached), SW_OK);
            assert_int_equal(n, U);
            whole(e, p, fresh, all);
            assert_memory_equal(cached, all, sizeof all);
            first = p == 0 ? (int32_t)sw_hash(SW_HASH_INIT, cached, sizeof cached) : first;
            differ |= first != (int32_t)sw_hash(SW_HASH_INIT, cached, sizeof cached);
        }
        assert_true(differ); /* the source text matters */
        sw_close(e);
    }
}

static void padding_of_a_text_changes_no_bit(void **state)
{
    static float tight[U * V], loose[U * V];
    (void)state;
    for (size_t f = 0; f < SW_LEN(families); f++) {
        int32_t short_of[U], long_of[U];
        int64_t n = 0;
        for (int wide = 0; wide < 2; wide++) {
            sw_engine *e = open_or_fail(
                families[f], (struct sw_engine_options){.inputs.seq_len = wide ? 14 : prompts[1].n,
                                                        .train.wanted = true,
                                                        .generate = {.wanted = true, .tokens = U}});
            assert_int_equal(sw_generate(e, prompts[1].ids, prompts[1].n, U, NULL,
                                         wide ? long_of : short_of, &n, wide ? loose : tight),
                             SW_OK);
            sw_close(e);
        }
        assert_memory_equal(short_of, long_of, sizeof short_of);
        assert_memory_equal(tight, loose, sizeof tight);
    }
}

/* An ignored target gives padding to the decoder, and adds no loss. */
static void a_target_that_is_none_is_padding_for_the_decoder(void **state)
{
    static float ignored[U * V], padded[U * V];
    const int32_t labels[U] = {5, -100, 8, 9, -100, 2, -100};
    int32_t pads[U];
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        sw_engine *e =
            open_or_fail(families[f], (struct sw_engine_options){.inputs.target_len = U,
                                                                 .train.wanted = true,
                                                                 .evaluate.logits = true});
        for (int i = 0; i < U; i++) {
            pads[i] = labels[i] == -100 ? (int32_t)e->weights.model->pad_id : labels[i];
        }
        whole(e, 1, labels, ignored);
        whole(e, 1, pads, padded);
        assert_memory_equal(ignored, padded, sizeof padded);
        pads[1] = 30; /* the decoder reads its padding token */
        whole(e, 1, pads, padded);
        assert_memory_equal(ignored, padded, 2 * V * sizeof *padded);
        assert_true(memcmp(ignored + 2 * V, padded + 2 * V, V * sizeof *padded) != 0);
        sw_close(e);
    }
}

/* ---- other stages, tiers, devices and ranks ---- */

struct job {
    const char *config, *device;
    float logits[PROMPTS][U * V];
    int32_t ids[PROMPTS][U];
};

static sw_status write_all(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    static _Thread_local struct job others;
    struct job *to = sw_comm_rank(comm) == 0 ? job : &others;
    sw_engine *e = NULL;
    const struct sw_engine_options options = {
        .config.text = job->config,
        .model.path = path,
        .inputs.seq_len = T,
        .run = {.comm = comm, .device = job->device, .verify = true},
        .seed = 3,
        .train.wanted = true,
        .generate = {.wanted = true, .tokens = U},
    };
    sw_status st = sw_initialize(&options, &e);
    for (int p = 0; p < PROMPTS && st >= 0; p++) {
        int64_t n = 0;
        st = sw_generate(e, prompts[p].ids, prompts[p].n, U, NULL, to->ids[p], &n, to->logits[p]);
    }
    sw_close(e);
    return st;
}

/* Two devices with arithmetic of their own agree on the first token of each prompt, to some
 * roundings of bf16. Later ones may follow another of two tokens that are equally likely. */
static void check_first_logits(const struct job *a, const struct job *b)
{
    for (int p = 0; p < PROMPTS; p++) {
        for (int i = 0; i < V; i++) {
            const float x = a->logits[p][i], y = b->logits[p][i];
            if (!(fabsf(x - y) < 0.06f * (1 + fabsf(x)))) {
                fail_msg("prompt %d, logit %d: %g and %g", p, i, (double)x, (double)y);
            }
        }
    }
}

#define COMMON                                                                                     \
    "\"train_micro_batch_size_per_gpu\": 2, \"bf16\": {\"enabled\": true}, "                       \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "

static void stages_and_offloading_change_no_bit(void **state)
{
    static const struct {
        const char *config, *device;
        int ranks;
    } rows[] = {
        {"{" COMMON "\"spillway\": {\"micro_batches\": 2}}", "cpu", 1},
        {"{" COMMON "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": "
         "\"cpu\"}}, \"spillway\": {\"micro_batches\": 2}}",
         "cpu", 2},
        {"{" COMMON "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": "
         "20, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}, "
         "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}}, "
         "\"spillway\": {\"micro_batches\": 2, \"tile_bytes\": 512}}",
         "cpu", 2},
    };
    static const char mocked[] =
        "{" COMMON "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": "
        "\"cpu\"}, \"offload_param\": {\"device\": \"cpu\"}}, "
        "\"spillway\": {\"micro_batches\": 2}}";
    (void)state;
    for (size_t f = 0; f < SW_LEN(families); f++) {
        struct job *jobs = calloc(SW_LEN(rows) + 2, sizeof *jobs);
        assert_non_null(jobs);
        write_config(families[f]);
        for (size_t r = 0; r < SW_LEN(rows) + 2; r++) {
            const bool mock = r >= SW_LEN(rows);
            struct job *job = &jobs[r];
            job->config = r == SW_LEN(rows) ? rows[0].config : mock ? mocked : rows[r].config;
            job->device = mock ? "mock" : rows[r].device;
            if (sw_threads_run(mock ? 1 : rows[r].ranks, 60, write_all, job) < 0) {
                fail_msg("family %zu, run %zu: %s", f, r, sw_error_message());
            }
            const struct job *like = mock ? &jobs[SW_LEN(rows)] : &jobs[0];
            if (memcmp(job->ids, like->ids, sizeof job->ids) != 0 ||
                memcmp(job->logits, like->logits, sizeof job->logits) != 0) {
                fail_msg("family %zu, run %zu: other bits", f, r);
            }
        }
        check_first_logits(&jobs[0], &jobs[SW_LEN(rows)]);
        free(jobs);
    }
}

/* Programs of a training run with generation meet the parameters in different orders. */
static void what_stays_whole_is_the_same_in_all_programs(void **state)
{
    (void)state;
    for (size_t f = 0; f < SW_LEN(families); f++) {
        write_config(families[f]);
        for (int64_t total = 0; total < 1200; total += 37) {
            char text[512];
            snprintf(text, sizeof text,
                     "{" COMMON "\"zero_optimization\": {\"stage\": 3, "
                     "\"stage3_param_persistence_threshold\": 400, "
                     "\"stage3_model_persistence_threshold\": %lld}}",
                     (long long)total);
            struct sw_engine_options options = {
                .config.text = text,
                .model.path = path,
                .inputs.seq_len = T,
                .train.wanted = true,
                .evaluate.loss = true,
                .generate = {.wanted = true, .tokens = U},
                .plan.only = true,
            };
            sw_engine *e = NULL;
            int64_t whole = 0;
            assert_int_equal(sw_comm_open(&(struct sw_transport){.size = 2}, &options.run.comm),
                             SW_OK);
            if (sw_initialize(&options, &e) < 0) {
                fail_msg("family %zu, %lld in all: %s", f, (long long)total, sw_error_message());
            }
            for (int32_t i = 0; i < e->plan->n_persistent; i++) {
                const struct sw_persistent *item = &e->plan->persistent[i];
                whole += item->role == SW_ROLE_PARAM && !item->layout.is_sliced &&
                                 sw_shape_elems(&item->shape) <= 400
                             ? sw_shape_elems(&item->shape)
                             : 0;
            }
            assert_true(whole <= total + V); /* a view reads final_logits_bias */
            sw_close(e);
            sw_comm_close(options.run.comm, false);
        }
    }
}

/* The encoder's program has none of the layers that are adapted here. */
static void adapters_of_the_decoder_are_found(void **state)
{
    static const char adapted[] =
        "{\"train_micro_batch_size_per_gpu\": 1, \"spillway\": {\"kernels\": \"reference\", "
        "\"lora\": {\"r\": 2, \"target_modules\": [\"EncDecAttention.q\"]}}}";
    int32_t plain[U], out[U];
    int64_t n = 0;
    (void)state;
    sw_engine *e =
        open_or_fail(T5, (struct sw_engine_options){.train.wanted = true,
                                                    .generate = {.wanted = true, .tokens = U}});
    assert_int_equal(sw_generate(e, prompts[0].ids, prompts[0].n, U, NULL, plain, &n, NULL), SW_OK);
    sw_close(e);
    e = open_or_fail(T5, (struct sw_engine_options){.config.text = adapted,
                                                    .train.wanted = true,
                                                    .generate = {.wanted = true, .tokens = U}});
    assert_int_equal(sw_generate(e, prompts[0].ids, prompts[0].n, U, NULL, out, &n, NULL), SW_OK);
    assert_memory_equal(plain, out, sizeof out); /* new adapters add nothing */
    assert_true(sw_weights_trained(&e->weights) > 0);
    sw_close(e);
}

/* ---- rules ---- */

static int64_t write_with(sw_engine *e, struct sw_sampling sampling,
                          const struct sw_text_rules *rules, int64_t n_new, int32_t *out)
{
    int64_t n = -1;
    sampling.rules = rules;
    if (sw_generate(e, prompts[1].ids, prompts[1].n, n_new, &sampling, out, &n, NULL) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return n;
}

static bool has(const int32_t *ids, int64_t n, int32_t id)
{
    bool found = false;
    for (int64_t i = 0; i < n; i++) {
        found |= ids[i] == id;
    }
    return found;
}

#define NO_IDS .start_id = -1, .first_id = -1, .last_id = -1

static void rules_of_a_text_are_followed(void **state)
{
    enum { N = 13 };
    const struct sw_sampling greedy = {.stop_id = -1};
    int32_t plain[N], out[N];
    (void)state;
    sw_engine *e =
        open_or_fail(BART, (struct sw_engine_options){.train.wanted = true,
                                                      .generate = {.wanted = true, .tokens = N}});
    assert_int_equal(write_with(e, greedy, NULL, N, plain), N);
    struct sw_text_rules rules = {NO_IDS};
    assert_int_equal(write_with(e, greedy, &rules, N, out), N);
    assert_memory_equal(plain, out, sizeof out);

    rules = (struct sw_text_rules){.start_id = 40, .first_id = 17, .last_id = 2};
    assert_int_equal(write_with(e, greedy, &rules, N, out), N);
    assert_true(out[0] == 17 && out[N - 1] == 2 && memcmp(out, plain, sizeof out) != 0);

    rules = (struct sw_text_rules){NO_IDS, .never = plain, .n_never = 1};
    write_with(e, greedy, &rules, N, out);
    assert_false(has(out, N, plain[0]));
    rules = (struct sw_text_rules){NO_IDS, .begins = plain, .n_begins = 1};
    write_with(e, greedy, &rules, N, out);
    assert_true(out[0] != plain[0]);

    const struct sw_sampling ended = {.stop_id = plain[0]};
    assert_int_equal(write_with(e, ended, NULL, N, out), 1);
    rules = (struct sw_text_rules){NO_IDS, .least = 5};
    assert_true(write_with(e, ended, &rules, N, out) > 5);
    assert_false(has(out, 5, plain[0]));

    /* nor may the start token, 2, be repeated */
    rules = (struct sw_text_rules){NO_IDS, .no_repeat = 1};
    write_with(e, greedy, &rules, N, out);
    for (int i = 0; i < N; i++) {
        assert_false(has(out, i, out[i]) || out[i] == 2);
    }
    rules = (struct sw_text_rules){NO_IDS, .repetition = 1e6};
    write_with(e, greedy, &rules, N, out);
    assert_true(memcmp(out, plain, sizeof out) != 0);
    sw_close(e);
}

static void no_run_of_tokens_occurs_twice(void **state)
{
    struct sw_text_rules rules = {NO_IDS, .no_repeat = 2};
    const struct sw_sampling with = {.stop_id = -1, .rules = &rules};
    float logits[6] = {0, 5, 1, 2, 0, 0};
    const int32_t before[] = {3, 1, 2, 3};
    const struct engine_text text = {.before = before, .n_before = 4, .most = 3};
    (void)state;
    assert_int_equal(sw_engine_apply_rules(&text, &with, logits, 6), -1);
    for (int i = 0; i < 6; i++) { /* 3 was followed by 1 */
        assert_int_equal(isinf(logits[i]) != 0, i == 1);
    }
    rules = (struct sw_text_rules){NO_IDS, .repetition = 2};
    float some[6] = {3, 4, -4, 2, 1, -1};
    const float want[6] = {3, 2, -8, 1, 1, -1};
    assert_int_equal(sw_engine_apply_rules(&text, &with, some, 6), -1);
    assert_memory_equal(some, want, sizeof some);
}

static void what_does_not_fit_is_named(void **state)
{
    static const struct {
        int64_t n_prompt, n_new;
        int32_t id, start;
        const char *says;
    } rows[] = {
        {T + 1, 1, 4, -1, "a text of 13 tokens, and 1 for it; wanted 1 to 12"},
        {3, U + 1, 4, -1, "a text of 3 tokens, and 8 for it; wanted 1 to 12, and at most 7"},
        {0, 1, 4, -1, "a text of 0 tokens"},
        {3, 1, V, -1, "token 53 at 1; the vocabulary has 53"},
        {3, 1, 4, V, "rules.start_id 53"}};
    (void)state;
    sw_engine *e =
        open_or_fail(T5, (struct sw_engine_options){.train.wanted = true,
                                                    .generate = {.wanted = true, .tokens = U}});
    for (size_t r = 0; r < SW_LEN(rows); r++) {
        const struct sw_text_rules rules = {
            .start_id = rows[r].start, .first_id = -1, .last_id = -1};
        const struct sw_sampling sampling = {.stop_id = -1, .rules = &rules};
        int32_t prompt[T + 1] = {3, rows[r].id, 2}, out[U + 1];
        int64_t n = 0;
        assert_int_equal(
            sw_generate(e, prompt, rows[r].n_prompt, rows[r].n_new, &sampling, out, &n, NULL),
            SW_E_ARG);
        if (!strstr(sw_error_message(), rows[r].says)) {
            fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), rows[r].says);
        }
    }
    sw_close(e);
    e = NULL;
    assert_int_equal(
        open_model(BART,
                   (struct sw_engine_options){.train.wanted = true,
                                              .generate = {.wanted = true, .tokens = 15}},
                   &e),
        SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "generation up to 15 tokens"));
    assert_int_equal(
        open_model(BART,
                   (struct sw_engine_options){.model = {.task = "classify", .labels = 3},
                                              .train.wanted = true,
                                              .generate = {.wanted = true, .tokens = 4}},
                   &e),
        SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "does not generate text"));
}

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/spillway-seq2seq-%ld.json", (long)getpid());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(generation_without_the_cache_gives_the_same_bits),
    cmocka_unit_test(padding_of_a_text_changes_no_bit),
    cmocka_unit_test(a_target_that_is_none_is_padding_for_the_decoder),
    cmocka_unit_test(stages_and_offloading_change_no_bit),
    cmocka_unit_test(what_stays_whole_is_the_same_in_all_programs),
    cmocka_unit_test(adapters_of_the_decoder_are_found),
    cmocka_unit_test(rules_of_a_text_are_followed),
    cmocka_unit_test(no_run_of_tokens_occurs_twice),
    cmocka_unit_test(what_does_not_fit_is_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
