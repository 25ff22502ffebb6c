// SPDX-License-Identifier: Apache-2.0
// Pipelines of an engine: whatever the schedule, the partition and the number of
// stages, losses, norms and weights equal those of one rank bit for bit.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 5, V = 19, BLOCKS = 4, STEPS = 2, MOST_K = 8, MAX_RANKS = 8 };
enum { TEXT = 3, PROMPT = 4 };
enum { MOST_PARAMS = 128, MOST_ELEMS = 1 << 10 };

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":19,"
    "\"n_positions\":8,\"n_embd\":8,\"n_layer\":4,\"n_head\":2,\"n_inner\":12,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1,\"tie_word_embeddings\":%s}";
/* Encoder-decoders: all blocks of the decoder read the encoder's output, and those of T5 a bias.
 * Their embeddings and the head share a table. */
static const char t5_json[] =
    "{\"model_type\":\"t5\",\"vocab_size\":19,\"d_model\":8,\"d_kv\":4,\"d_ff\":12,"
    "\"num_layers\":2,\"num_heads\":2,\"relative_attention_num_buckets\":8,"
    "\"relative_attention_max_distance\":12,\"dropout_rate\":0.1}";
static const char bart_json[] =
    "{\"model_type\":\"bart\",\"vocab_size\":19,\"d_model\":8,\"encoder_layers\":2,"
    "\"decoder_layers\":2,\"encoder_attention_heads\":2,\"decoder_attention_heads\":2,"
    "\"encoder_ffn_dim\":12,\"decoder_ffn_dim\":12,\"max_position_embeddings\":14,"
    "\"dropout\":0.1}";
static char untied[96], tied[96], t5[96], bart[96];

struct values {
    char name[96];
    float at[MOST_ELEMS];
    bool known[MOST_ELEMS], owned[MOST_ELEMS];
};

/* The results of an engine besides training. */
struct answers {
    double eval[2];
    float logits[B * T * V], of_text[TEXT * V]; /* of_text: of the tokens that it generates */
    int32_t text[TEXT];
};

struct job {
    int pipe, data, micro_batches, stage;
    const char *schedule, *partition; /* in JSON */
    int chunks;                       /* 0 = one */
    const char *model;
    const char *optimizer, *params; /* AdamW if NULL */
    /* further keys of zero_optimization, of the configuration and of the block "spillway" */
    const char *zero, *more, *block;
    bool no_clip;
    const char *load, *save;
};

/* The results of a job. */
struct outcome {
    struct job job;
    pthread_mutex_t lock;
    double losses[STEPS], norms[STEPS];
    struct answers answers;
    int bounds[MAX_RANKS + 1];
    int n_params;
    struct values params[MOST_PARAMS]; /* of all stages */
};

static bool is_seq2seq(const struct job *job)
{
    return job->model == t5 || job->model == bart;
}

/* True if the table of embedding and head is to be cut into tiles. Whole logits need all of it. */
static bool cuts_table(const struct job *job)
{
    return job->block && strstr(job->block, "loss_chunk");
}

static sw_status open_engine(const struct job *job, sw_comm *comm, sw_engine **out)
{
    char config[2048];
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": %s, "
        "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 30%s}, "
        "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.01%s}}, %s\"spillway\": "
        "{\"micro_batches\": %d, \"threads\": 1, \"device_memory\": \"1GiB\", "
        "\"schedule\": \"%s\", \"partition\": %s, \"chunks\": %d, "
        "\"mesh\": {\"pipe\": %d}%s}}",
        B, job->no_clip ? "0" : "0.5", job->stage, job->zero ? job->zero : "",
        job->optimizer ? job->optimizer : "AdamW", job->params ? job->params : "",
        job->more ? job->more : "", job->micro_batches,
        job->schedule ? job->schedule : "horizontal", job->partition ? job->partition : "\"time\"",
        job->chunks > 0 ? job->chunks : 1, job->pipe, job->block ? job->block : "");
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = job->model ? job->model : untied,
        .inputs = {.seq_len = T, .target_len = is_seq2seq(job) ? T : 0},
        .run = {.comm = comm, .verify = true},
        .seed = 5,
        .train.wanted = true,
        .evaluate = {.loss = true, .logits = !cuts_table(job)},
        .generate = {.wanted = !cuts_table(job), .tokens = cuts_table(job) ? 0 : PROMPT + TEXT}};
    return sw_initialize(&options, out);
}

static sw_status generate(sw_engine *e, struct answers *out)
{
    static const int32_t prompt[PROMPT] = {3, 14, 1, 5};
    const struct sw_sampling sampling = {.temperature = 0.9, .seed = 7, .stop_id = -1};
    int64_t n = 0;
    SW_TRY(sw_generate(e, prompt, PROMPT, TEXT, &sampling, out->text, &n, out->of_text));
    assert_int_equal(n, TEXT);
    return SW_OK;
}

/* All ranks get the same answers. */
static sw_status evaluate(struct outcome *out, sw_engine *e)
{
    int32_t ids[B * T];
    struct answers mine = {.eval = {0}};
    for (int i = 0; i < B * T; i++) {
        ids[i] = (int32_t)(sw_philox_u64(9, 2, (uint64_t)i) % V);
    }
    const struct sw_view view = {.data = ids, .dtype = SW_I32, .shape = {2, {B, T}}};
    const struct sw_tensor tensors[] = {{"input_ids", view}, {"labels", view}};
    const struct sw_batch batch = {tensors, 2};
    SW_TRY(sw_evaluate(e, &batch, &mine.eval[0], &mine.eval[1]));
    if (!cuts_table(&out->job)) {
        SW_TRY(sw_logits(e, &batch, mine.logits));
        SW_TRY(generate(e, &mine));
    }
    pthread_mutex_lock(&out->lock);
    const bool is_first = out->answers.eval[1] == 0;
    const bool same = is_first || memcmp(&out->answers, &mine, sizeof mine) == 0;
    out->answers = mine;
    pthread_mutex_unlock(&out->lock);
    return same ? SW_OK : SW_FAIL(SW_E_ARG, "rank %d has other answers", e->world.rank);
}

/* Every rank reports the same; the first one's results are kept. */
static sw_status keep_report(struct outcome *out, const struct sw_engine *e, int step,
                             const struct sw_step_report *report)
{
    SW_TRY(test_same_reports(e, report));
    if (e->world.rank == 0) {
        out->losses[step] = report->loss;
        out->norms[step] = report->grad_norm;
    }
    return SW_OK;
}

static struct values *values_of(struct outcome *out, const char *name)
{
    int i = 0;
    while (i < out->n_params && strcmp(out->params[i].name, name) != 0) {
        i++;
    }
    if (i == out->n_params) {
        SW_ASSERT(i < MOST_PARAMS);
        snprintf(out->params[i].name, sizeof out->params[i].name, "%s", name);
        out->n_params++;
    }
    return &out->params[i];
}

/* Collects a run of a parameter. What several ranks have is equal, and one of them owns it. */
static sw_status take_run(sw_engine *e, struct values *to, const struct sw_run *run, bool owned)
{
    float here[MOST_ELEMS];
    SW_TRY(sw_get_weight(e, to->name, run->first, run->n, here));
    for (int64_t i = 0; i < run->n; i++) {
        const int64_t at = run->first + i;
        if (to->known[at] && memcmp(&to->at[at], &here[i], sizeof here[i]) != 0) {
            return SW_FAIL(SW_E_ARG, "the copies of %s differ", to->name);
        }
        if (owned && to->owned[at]) {
            return SW_FAIL(SW_E_ARG, "two ranks own %s", to->name);
        }
        to->at[at] = here[i];
        to->known[at] = true;
        to->owned[at] |= owned;
    }
    return SW_OK;
}

/* Without slices, a rank can read what it does not own, too. */
static sw_status take_weights(struct outcome *out, sw_engine *e)
{
    sw_status st = SW_OK;
    for (int32_t i = 0; i < 2 * e->weights.params.n && st >= 0; i++) {
        const struct sw_persistent *item = e->weights.params.items[i / 2].work;
        const bool owned = i % 2 == 1;
        struct sw_run_iter iter;
        struct sw_run run;
        (owned ? sw_owned_begin : sw_runs_begin)(&item->layout, &iter);
        while (st >= 0 && (owned || e->data.size == 1) && sw_runs_next(&iter, &run)) {
            st = take_run(e, values_of(out, item->name), &run, owned);
        }
    }
    return st;
}

static sw_status check_tiles(const struct job *job, const sw_engine *e)
{
    bool is_tiled = e->world.rank > 0 || !cuts_table(job);
    for (int32_t i = 0; i < e->plan->n_tiled; i++) {
        is_tiled = is_tiled || strcmp(e->plan->tiled[i].name, "transformer.wte.weight") == 0;
    }
    return is_tiled ? SW_OK : SW_FAIL(SW_E_ARG, "the table is whole");
}

/* Slices of weights that each micro-batch gathers again begin phases with a wait. */
static sw_status check_stays(const struct job *job, const sw_engine *e)
{
    const bool gathers = job->stage == 3 && job->data > 1 && job->micro_batches > job->data &&
                         !job->zero && !job->block;
    return !gathers || e->plan->programs[0].peak.kept_bytes > 0
               ? SW_OK
               : SW_FAIL(SW_E_ARG, "no weights stay for all micro-batches");
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct outcome *out = ctx;
    const struct job *job = &out->job;
    sw_engine *e = NULL;
    struct sw_step_report report;
    sw_status st = open_engine(job, comm, &e);
    st = st < 0 ? st : check_tiles(job, e);
    st = st < 0 ? st : check_stays(job, e);
    st = st >= 0 && job->load ? sw_load(e, job->load) : st;
    for (int i = 0; st >= 0 && i < STEPS; i++) {
        st = test_train_step(e, job->micro_batches, B, T, V, &report);
        st = st < 0 ? st : keep_report(out, e, i, &report);
    }
    st = st < 0 ? st : evaluate(out, e);
    st = st >= 0 && job->save ? sw_save(e, job->save, NULL) : st;
    if (st >= 0) {
        pthread_mutex_lock(&out->lock);
        st = take_weights(out, e);
        pthread_mutex_unlock(&out->lock);
    }
    if (st >= 0 && e->stage_blocks && e->world.rank == 0) {
        const size_t parts = (size_t)job->pipe * (size_t)(job->chunks > 0 ? job->chunks : 1);
        memcpy(out->bounds, e->stage_blocks, (parts + 1) * sizeof *out->bounds);
    }
    sw_close(e);
    return st;
}

static struct outcome *run(struct job job)
{
    struct outcome *out = calloc(1, sizeof *out);
    out->job = job;
    pthread_mutex_init(&out->lock, NULL);
    if (sw_threads_run(job.pipe * job.data, 20, train, out) < 0) {
        fail_msg("pipe %d, data %d, %d micro-batches, stage %d, %s%s%s%s: %s", job.pipe, job.data,
                 job.micro_batches, job.stage, job.schedule ? job.schedule : "one rank",
                 job.zero ? job.zero : "", job.more ? job.more : "", job.block ? job.block : "",
                 sw_error_message());
    }
    return out;
}

/* Compares b with a, and releases it. */
static void assert_same(const struct outcome *a, struct outcome *b)
{
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_memory_equal(a->norms, b->norms, sizeof a->norms);
    assert_memory_equal(&a->answers, &b->answers, sizeof a->answers);
    assert_true(a->answers.eval[0] > 0 && a->answers.eval[1] == B * T); /* labels are shifted */
    assert_int_equal(a->n_params, b->n_params);
    for (int i = 0; i < a->n_params; i++) {
        const struct values *x = &a->params[i], *y = values_of(b, a->params[i].name);
        assert_memory_equal(x->owned, y->owned, sizeof x->owned);
        assert_memory_equal(y->known, y->owned, sizeof y->owned);
        assert_memory_equal(x->at, y->at, sizeof x->at);
    }
    free(b);
}

#ifdef __SANITIZE_THREAD__ /* slow; each case begins the same threads */
enum { EACH = 5 };         /* the others are left out */
#elif defined TEST_SANITIZED
enum { EACH = 3 };
#else
enum { EACH = 1 };
#endif

static void stages_give_the_bits_of_one_rank(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zero-bubble"};
    static const int micro_batches[] = {1, 5, 8};
    (void)state;
    for (size_t m = 0; m < SW_LEN(micro_batches); m++) {
        struct outcome *one = run((struct job){1, 1, micro_batches[m], .stage = 0});
        assert_true(one->losses[0] > 1 && one->norms[0] > 0.5);
        for (size_t s = 0; s < SW_LEN(schedules); s++) {
            for (int pipe = 2; pipe <= BLOCKS; pipe += 2) {
                assert_same(
                    one, run((struct job){pipe, 1, micro_batches[m], 0, .schedule = schedules[s]}));
            }
        }
        free(one);
    }
}

/* Two chunks on each stage, with one block each. */
static void chunks_give_the_bits_of_one_rank(void **state)
{
    (void)state;
    for (int k = 1; k <= MOST_K; k += k == 1 ? 4 : 3) {
        for (int data = 1; data <= 2; data++) {
            struct outcome *one = run((struct job){1, 1, k, .stage = 0});
            assert_same(one, run((struct job){2, data, k, 0, "interleaved", .chunks = 2}));
            free(one);
        }
    }
}

static void partitions_follow_the_configuration(void **state)
{
    static const struct {
        const char *partition;
        int bounds[3];
    } cases[] = {{"\"uniform\"", {0, 2, BLOCKS}},
                 {"[0, 3, 4]", {0, 3, BLOCKS}},
                 {"[0, 1, 4]", {0, 1, BLOCKS}},
                 {"[0, 0, 4]", {0, 0, BLOCKS}}, /* the embedding alone */
                 {"[0, 4, 4]", {0, 4, BLOCKS}}, /* norm and head alone */
                 /* the table and positions have 216 elements, a block 532, norm and head 168 */
                 {"\"parameters\"", {0, 2, BLOCKS}},
                 {"\"time\"", {0, 2, BLOCKS}}};
    (void)state;
    struct outcome *one = run((struct job){1, 1, 3, .stage = 0});
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct outcome *two =
            run((struct job){2, 1, 3, 0, .schedule = "1f1b", .partition = cases[i].partition});
        assert_memory_equal(two->bounds, cases[i].bounds, sizeof cases[i].bounds);
        assert_same(one, two);
    }
    free(one);
}

static void slices_work_in_each_stage(void **state)
{
    static const struct {
        int pipe, data, micro_batches;
        const char *schedule;
        int chunks;
    } cases[] = {{2, 2, 3, "1f1b", 1}, {2, 2, 8, "gpipe", 1},       {2, 3, 8, "1f1b", 1},
                 {4, 2, 3, "1f1b", 1}, {2, 2, 5, "zero-bubble", 1}, {2, 2, 8, "interleaved", 2}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct outcome *one = run((struct job){1, 1, cases[i].micro_batches, .stage = 0});
        for (int stage = 0; stage <= 3; stage += EACH) {
            assert_same(
                one, run((struct job){cases[i].pipe, cases[i].data, cases[i].micro_batches, stage,
                                      .schedule = cases[i].schedule, .chunks = cases[i].chunks}));
        }
        free(one);
    }
}

static void tied_tables_get_the_gradients_of_all_uses(void **state)
{
    static const struct {
        int pipe, data, micro_batches;
        const char *schedule;
        int chunks;
    } cases[] = {{2, 1, 1, "1f1b", 0}, {4, 1, 3, "gpipe", 0},       {2, 2, 3, "1f1b", 0},
                 {2, 2, 1, "1f1b", 0}, {2, 1, 3, "interleaved", 2}, {4, 1, 3, "zero-bubble", 0}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct outcome *one =
            run((struct job){1, 1, cases[i].micro_batches, .stage = 0, .model = tied});
        for (int stage = 0; stage <= (cases[i].data > 1 ? 3 : 0); stage += EACH) {
            assert_same(one, run((struct job){cases[i].pipe, cases[i].data, cases[i].micro_batches,
                                              stage, .schedule = cases[i].schedule, .model = tied,
                                              .chunks = cases[i].chunks}));
        }
        free(one);
    }
}

/* Each technique and each rule on stages, with a tied table. */
static void techniques_work_in_each_stage(void **state)
{
    static const struct {
        int pipe, data, chunks;
        const char *schedule;
    } ways[] = {{2, 2, 1, "zero-bubble"}, {4, 1, 1, "1f1b"},        {2, 1, 2, "interleaved"},
                {2, 2, 1, "gpipe"},       {2, 2, 2, "interleaved"}, {4, 1, 1, "zero-bubble"}};
    char disk[256];
    snprintf(disk, sizeof disk,
             ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}",
             test_folder(), test_folder());
    static const char host[] = ", \"offload_optimizer\": {\"device\": \"cpu\"}, "
                               "\"offload_param\": {\"device\": \"cpu\"}";
    static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24}, ";
    const struct job cases[] = {
        {.optimizer = "Lamb"},
        {.optimizer = "Muon"},
        {.optimizer = "Adafactor", .params = ", \"relative_step\": false"},
        {.more = "\"bf16\": {\"enabled\": true}, "},
        {.more = fp16},
        {.zero = ", \"offload_optimizer\": {\"device\": \"cpu\"}"},
        {.zero = host},
        {.zero = host, .no_clip = true},
        {.zero = host, .no_clip = true, .more = fp16},
        {.zero = disk},
        {.zero = disk, .no_clip = true},
        {.zero = disk, .no_clip = true, .block = ", \"disk_slots\": 1"},
        {.zero = disk, .block = ", \"moments\": \"8bit\""},
        {.block = ", \"moments\": \"8bit\""},
        {.block = ", \"tile_bytes\": 128", .zero = disk, .no_clip = true},
        /* tiles of the table that stages have in common */
        {.block = ", \"tile_bytes\": 200, \"loss_chunk\": 4", .zero = disk, .no_clip = true},
        {.block = ", \"tile_bytes\": 200, \"loss_chunk\": 4", .zero = host},
        {.block = ", \"tile_bytes\": 200, \"loss_chunk\": 4", .zero = host, .no_clip = true},
        {.block = ", \"recompute\": 1"},
        {.more = "\"sparse_gradients\": true, "},
        {.block = ", \"lora\": {\"r\": 2, \"target_modules\": \"all-linear\"}"},
        {.block = ", \"frozen\": [\"transformer.wte*\", \"transformer.h.1.*\"]"}, /* a tied one */
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i += EACH) {
        struct job job = cases[i];
        job.pipe = job.data = 1;
        job.micro_batches = 3;
        job.stage = 3;
        job.model = tied;
        struct outcome *one = run(job);
        job.pipe = ways[i % SW_LEN(ways)].pipe;
        job.data = ways[i % SW_LEN(ways)].data;
        job.schedule = ways[i % SW_LEN(ways)].schedule;
        job.chunks = ways[i % SW_LEN(ways)].chunks;
        assert_same(one, run(job));
        free(one);
    }
}

/* Norms of sums that leave the device are taken in backward, before which all stages meet. Messages
 * go on meanwhile. */
static void messages_pass_while_stages_meet(void **state)
{
    static const char *const schedules[] = {"1f1b", "zero-bubble", "interleaved"};
    static const char host[] = ", \"offload_optimizer\": {\"device\": \"cpu\"}";
    (void)state;
    for (int micro_batches = 3; micro_batches <= 7; micro_batches += 2 * EACH) {
        struct outcome *one = run((struct job){1, 1, micro_batches, 3, .zero = host});
        for (size_t s = 0; s < SW_LEN(schedules); s++) {
            assert_same(one, run((struct job){2, 1, micro_batches, 3, .zero = host,
                                              .schedule = schedules[s], .chunks = s == 2 ? 2 : 1}));
        }
        free(one);
    }
}

/* Here the bits depend on the ranks along data. */
static void sums_of_ranks_are_exchanged_once_a_step(void **state)
{
    static const struct job two = {
        1, 2, 5, .stage = 1, .model = tied, .block = ", \"reduce\": \"boundary\""};
    struct job four = two;
    (void)state;
    four.pipe = 2;
    four.schedule = "gpipe";
    struct outcome *out = run(two);
    assert_same(out, run(four));
    free(out);
}

/* Exports a checkpoint, and checks that it has the weights. */
static void assert_exported(const char *from, const char *to, struct outcome *trained)
{
    struct sw_safetensors *file = NULL;
    char path[256];
    enum sw_dtype dtype = SW_F32;
    struct sw_ckpt *ckpt = NULL;
    assert_int_equal(sw_ckpt_open(from, &ckpt), SW_OK);
    assert_int_equal(sw_weights_export_checkpoint(ckpt, to, &dtype), SW_OK);
    sw_ckpt_close(ckpt);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    assert_int_equal(sw_safetensors_open(path, &file), SW_OK);
    assert_int_equal(sw_safetensors_count(file), trained->n_params);
    for (int i = 0; i < trained->n_params; i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, i);
        assert_memory_equal(tensor->data, values_of(trained, tensor->name)->at, tensor->bytes);
    }
    sw_safetensors_close(file);
}

static void checkpoints_move_between_stages(void **state)
{
    (void)state;
    struct outcome *one = run((struct job){1, 1, 3, .stage = 0, .save = test_at("one")});
    struct outcome *two = run((struct job){2, 1, 3, 0, .schedule = "1f1b", .save = test_at("two")});
    assert_exported(test_at("two"), test_at("exported"), two);
    assert_same(one, two);
    free(one);
    /* on one rank from either, then on stages from either */
    one = run((struct job){1, 1, 3, .stage = 0, .load = test_at("one"), .save = test_at("next")});
    assert_same(one, run((struct job){1, 1, 3, .stage = 0, .load = test_at("two")}));
    assert_same(one, run((struct job){2, 1, 3, 0, .schedule = "gpipe", .load = test_at("one")}));
    assert_same(one, run((struct job){4, 1, 3, 0, .schedule = "1f1b", .load = test_at("two")}));
    assert_same(one, run((struct job){2, 2, 3, 2, .schedule = "1f1b", .load = test_at("two")}));
    free(one);
}

static void refused(struct job job, const char *words)
{
    struct outcome *out = calloc(1, sizeof *out);
    out->job = job;
    assert_true(sw_threads_run(job.pipe, 20, train, out) < 0);
    if (!strstr(sw_error_message(), words)) {
        fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), words);
    }
    free(out);
}

static void what_stages_cannot_share_is_refused(void **state)
{
    (void)state;
    refused((struct job){2, 1, 1, 0, .schedule = "1f1b", .partition = "[0, 2, 5]"},
            "0 to the 4 blocks");
    refused((struct job){2, 1, 1, 0, .schedule = "interleaved", .chunks = 3},
            "2 with 3 chunks per stage: the model has 4 blocks");
}

static void names_of_blocks_choose_stages(void **state)
{
    (void)state;
    /* blocks 2 and 3 count */
    struct outcome *one = run((struct job){1, 1, 3, .stage = 0});
    struct outcome *two =
        run((struct job){2, 1, 3, 0, .schedule = "1f1b", .partition = "\"type:H\\\\.[23]\""});
    assert_int_equal(two->bounds[1], 3);
    assert_same(one, two);
    free(one);
    refused((struct job){2, 1, 1, 0, .schedule = "1f1b", .partition = "\"type:decoder\""},
            "no block has such a name; wanted a part of names such as");
    refused((struct job){2, 1, 1, 0, .schedule = "1f1b", .partition = "\"type:(\""},
            "spillway.partition \"type:(\"");
}

static void encoder_decoders_are_cut_in_all_programs(void **state)
{
    static const char *const models[] = {t5, bart};
    static const char *const partitions[] = {"\"time\"", "\"uniform\"", "[0, 1, 4]", "[0, 3, 4]"};
    (void)state;
    for (size_t m = 0; m < SW_LEN(models); m++) {
        struct outcome *one = run((struct job){1, 1, 3, .stage = 0, .model = models[m]});
        for (size_t i = 0; i < SW_LEN(partitions); i++) {
            assert_same(one, run((struct job){2, 1, 3, 0, .schedule = "1f1b", .model = models[m],
                                              .partition = partitions[i]}));
        }
        assert_same(one, run((struct job){4, 1, 3, 0, .schedule = "gpipe", .model = models[m]}));
        assert_same(one,
                    run((struct job){2, 1, 3, 0, "interleaved", .model = models[m], .chunks = 2}));
        assert_same(one, run((struct job){4, 1, 3, 0, "zero-bubble", .model = models[m]}));
        assert_same(one, run((struct job){2, 2, 3, 3, .schedule = "1f1b", .model = models[m]}));
        free(one);
    }
}

static void put_model(const char *file, const char *text, char *path, size_t cap)
{
    test_put(file, text);
    snprintf(path, cap, "%s/%s", test_folder(), file);
}

static int set_up(void **state)
{
    (void)state;
    char text[sizeof model_json + 8];
    snprintf(text, sizeof text, model_json, "false");
    put_model("untied.json", text, untied, sizeof untied);
    snprintf(text, sizeof text, model_json, "true");
    put_model("tied.json", text, tied, sizeof tied);
    put_model("t5.json", t5_json, t5, sizeof t5);
    put_model("bart.json", bart_json, bart, sizeof bart);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_give_the_bits_of_one_rank),
    cmocka_unit_test(chunks_give_the_bits_of_one_rank),
    cmocka_unit_test(partitions_follow_the_configuration),
    cmocka_unit_test(slices_work_in_each_stage),
    cmocka_unit_test(tied_tables_get_the_gradients_of_all_uses),
    cmocka_unit_test(encoder_decoders_are_cut_in_all_programs),
    cmocka_unit_test(techniques_work_in_each_stage),
    cmocka_unit_test(messages_pass_while_stages_meet),
    cmocka_unit_test(sums_of_ranks_are_exchanged_once_a_step),
    cmocka_unit_test(checkpoints_move_between_stages),
    cmocka_unit_test(what_stages_cannot_share_is_refused),
    TEST_IF(SW_HAVE_PCRE2, names_of_blocks_choose_stages),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
