// SPDX-License-Identifier: Apache-2.0
// Evaluation, logits, hidden states, embeddings and generation on ranks of the tensor axis. All
// ranks get whole results, the same bits, near those of one rank.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/tests/sliced.h"
#include "support/scratch.h"
#include "support/test.h"

enum { PROMPT = 3, NEW = 5, MOST = 4096, MOST_RANKS = 4 };

/* Results of each rank. */
struct seen {
    float numbers[MOST];
    int64_t n;
    int32_t text[NEW];
    int64_t cache; /* width of a cache of keys */
};
static struct seen all[MOST_RANKS];

static const char seq2seq_json[] =
    "{\"model_type\":\"t5\",\"architectures\":[\"T5ForConditionalGeneration\"],\"vocab_size\":19,"
    "\"d_model\":12,\"d_kv\":4,\"d_ff\":20,\"num_layers\":2,\"num_heads\":4,"
    "\"decoder_start_token_id\":0,\"pad_token_id\":0,\"relative_attention_num_buckets\":8}";
static const char encoder_json[] =
    "{\"model_type\":\"bert\",\"architectures\":[\"BertModel\"],\"vocab_size\":19,"
    "\"hidden_size\":12,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"intermediate_size\":20,\"max_position_embeddings\":8,\"type_vocab_size\":2}";

static void keep(struct seen *to, const float *from, int64_t n)
{
    SW_ASSERT(to->n + n <= MOST);
    memcpy(to->numbers + to->n, from, (size_t)n * sizeof *from);
    to->n += n;
}

/* ids: [2, SLICED_BATCH, SLICED_TOKENS] tokens, and a mask of ones */
static void make_batch(const struct sw_engine *e, int32_t *ids, struct sw_tensor tensors[4],
                       struct sw_batch *out)
{
    int32_t *ones = ids + SLICED_BATCH * SLICED_TOKENS;
    const bool answers = sw_model_is_seq2seq(e->weights.model);
    const struct sw_shape shape = {2, {SLICED_BATCH, SLICED_TOKENS}};
    for (int i = 0; i < SLICED_BATCH * SLICED_TOKENS; i++) {
        ids[i] = (int32_t)(sw_philox_u64(9, 3, (uint64_t)i) % (SLICED_WORDS - 1)) + 1;
        ones[i] = 1;
    }
    const struct sw_view view = {.data = ids, .dtype = SW_I32, .shape = shape};
    const struct sw_view mask = {.data = ones, .dtype = SW_I32, .shape = shape};
    tensors[0] = (struct sw_tensor){"input_ids", view};
    tensors[1] = (struct sw_tensor){"labels", view};
    tensors[2] = (struct sw_tensor){"attention_mask", mask};
    *out = (struct sw_batch){tensors, answers ? 3 : 2};
}

static sw_status look(struct sliced *job, sw_engine *e)
{
    struct seen *to = &all[e->world.rank];
    int32_t ids[2 * SLICED_BATCH * SLICED_TOKENS];
    struct sw_tensor tensors[4];
    struct sw_batch batch;
    double loss[2];
    float out[1024];
    (void)job;
    *to = (struct seen){.n = 0};
    make_batch(e, ids, tensors, &batch);
    SW_TRY(sw_evaluate(e, &batch, &loss[0], &loss[1]));
    keep(to, &(float){(float)loss[0]}, 1);
    keep(to, &(float){(float)loss[1]}, 1);
    SW_ASSERT(sw_logits_elems(e) <= 1024);
    SW_TRY(sw_logits(e, &batch, out));
    keep(to, out, sw_logits_elems(e));
    const struct sw_program *program = &e->plan->programs[e->programs.logits];
    for (int i = 0; i < 3; i++) {
        char name[24];
        snprintf(name, sizeof name, "hidden.%d", i);
        const struct sw_port *port = sw_program_output(program, name, 0);
        if (port) {
            SW_TRY(sw_engine_read_output(e, port, out));
            keep(to, out, sw_shape_elems(&port->shape));
        }
    }
    to->cache = sw_shape_last(&sw_plan_find(e->plan, "cache.0.key")->shape);
    int64_t n = 0;
    const struct sw_sampling draws = {.temperature = 0.8, .seed = 4, .stop_id = -1};
    SW_TRY(sw_generate(e, ids, PROMPT, NEW, &draws, to->text, &n, out));
    keep(to, out, n * SLICED_WORDS);
    return n == NEW ? SW_OK : SW_FAIL(SW_E_ARG, "%lld tokens", (long long)n);
}

static void ask(struct sw_engine_options *o)
{
    o->evaluate.loss = o->evaluate.logits = o->evaluate.hidden = o->generate.wanted = true;
}

/* Ranks have the same bits, and those of one rank are near. */
static void compare(const struct sliced *job, const struct seen *one, double tolerance)
{
    for (int r = 0; r < job->tensor * job->data; r++) {
        assert_int_equal(all[r].n, one->n);
        assert_memory_equal(all[r].numbers, all[0].numbers, (size_t)one->n * sizeof(float));
        assert_memory_equal(all[r].text, one->text, sizeof one->text);
        assert_true(2 * all[r].cache <= one->cache); /* at least two heads, which ranks divide */
    }
    for (int64_t i = 0; i < one->n; i++) {
        if (!(fabsf(all[0].numbers[i] - one->numbers[i]) <=
              tolerance * (1 + fabsf(one->numbers[i])))) {
            fail_msg("%s, tensor %d: number %lld is %.9g, on one rank %.9g", job->model,
                     job->tensor, (long long)i, all[0].numbers[i], one->numbers[i]);
        }
    }
}

static void check_uses(struct sliced job, const int *sizes, double tolerance)
{
    job.ask = job.ask ? job.ask : ask;
    job.after = job.after ? job.after : look;
    job.data = job.tensor = 1;
    job.idle = true;
    sliced_run(&job);
    sliced_clear(&job);
    const struct seen one = all[0];
    for (; *sizes > 0; sizes++) {
        job.tensor = *sizes;
        sliced_run(&job);
        sliced_clear(&job);
        compare(&job, &one, tolerance);
    }
}

static void results_are_whole_on_all_ranks(void **state)
{
    static const int both[] = {2, 4, 0};
    (void)state;
    test_put("t5.json", seq2seq_json);
    check_uses((struct sliced){.model = sliced_models.odd}, both, 1e-5);
    check_uses((struct sliced){.model = sliced_models.shared}, both, 1e-5);
    check_uses((struct sliced){.model = sliced_models.packed}, both, 1e-5);
    check_uses((struct sliced){.model = test_at("t5.json")}, both, 1e-5);
    check_uses((struct sliced){.model = sliced_models.shared,
                               .stage = 3,
                               .zero = ", \"offload_param\": {\"device\": \"cpu\"}",
                               .top = "\"bf16\": {\"enabled\": true}, "},
               both, 3e-2);
}

static void ask_to_embed(struct sw_engine_options *o)
{
    o->train.wanted = false;
    o->embed.wanted = true;
}

static sw_status embed(struct sliced *job, sw_engine *e)
{
    struct seen *to = &all[e->world.rank];
    int32_t ids[2 * SLICED_BATCH * SLICED_TOKENS];
    struct sw_tensor tensors[4];
    struct sw_batch batch;
    float out[SLICED_BATCH * 12];
    (void)job;
    *to = (struct seen){.n = 0};
    make_batch(e, ids, tensors, &batch);
    batch.n_tensors = 1;
    SW_TRY(sw_embed(e, &batch, &(struct sw_embed_options){.normalize = true}, out));
    keep(to, out, SLICED_BATCH * 12);
    return SW_OK;
}

static void vectors_are_those_of_one_rank(void **state)
{
    static const int both[] = {2, 4, 0};
    (void)state;
    test_put("bert.json", encoder_json);
    check_uses((struct sliced){.model = test_at("bert.json"), .ask = ask_to_embed, .after = embed},
               both, 1e-5);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_are_whole_on_all_ranks),
    cmocka_unit_test(vectors_are_those_of_one_rank),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = sliced_set_up};
