// SPDX-License-Identifier: Apache-2.0
// Training on ranks of the context axis: losses follow those of one rank, also if one rank has no
// label, or padding only, or if documents cross the cut. Ranks along data, stages of ZeRO and
// tiers change no bit, as the context axis alone cuts sums. Checkpoints load on any other mesh.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 8, V = 19, K = 3, STEPS = 10, MOST_RANKS = 8, MOST_ELEMS = 1 << 20, NEW = 4 };

static const char odd_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":19,"
    "\"n_positions\":12,\"n_embd\":12,\"n_layer\":2,\"n_head\":4,\"n_inner\":20,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}";
/* Two key heads for four query heads. */
static const char shared_json[] =
    "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],\"vocab_size\":19,"
    "\"max_position_embeddings\":8,\"hidden_size\":12,\"num_hidden_layers\":2,\"head_dim\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":20}";
static const char classes_json[] =
    "{\"model_type\":\"bert\",\"architectures\":[\"BertForSequenceClassification\"],"
    "\"vocab_size\":19,\"max_position_embeddings\":8,\"hidden_size\":12,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"intermediate_size\":20,\"num_labels\":19}";
static const char lstm_json[] =
    "{\"model_type\":\"bi_lstm_classifier\",\"vocab\":53,\"width\":8,\"hidden\":6}";
static const char vit_json[] =
    "{\"model_type\":\"vit\",\"architectures\":[\"ViTForImageClassification\"],\"hidden_size\":12,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":20,\"image_size\":8,"
    "\"patch_size\":4,\"num_labels\":3}";
static char odd_path[96], shared_path[96], classes_path[96], lstm_path[96], vit_path[96];

enum rows { PLAIN, HALF_LABELS, PADDED, PACKED };

struct job {
    const char *model;
    int data, context, tensor, pipe, stage;
    enum rows rows;
    bool idle; /* trains no step */
    bool keeps_gradients;
    const char *top;       /* further keys */
    const char *optimizer; /* NULL: AdamW */
    const char *zero;      /* further keys of zero_optimization */
    const char *load, *save;
    /* results */
    double losses[STEPS], norms[STEPS], evaluated;
    int32_t text[NEW];
    /* bytes that the first rank sends along the axis: in a micro-batch, by verb; in all steps */
    int64_t sent[SW_VERB_COUNT], planned, counted, grads; /* grads: along data and context */
    float *weights;                                       /* [MOST_ELEMS] of all ranks together */
    sw_status status;
    char message[1024];
};

static int ranks_of(const struct job *job)
{
    return job->data * job->context * job->tensor * job->pipe;
}

enum { PIXELS = 3 * 8 * 8 }; /* of a picture */

struct row_data {
    int32_t ids[B * T], labels[B * T], mask[B * T], segments[B * T], positions[B * T];
    float pixels[B * PIXELS];
};

static void fill(const struct job *job, int64_t first, struct row_data *out)
{
    for (int i = 0; i < B * T; i++) {
        const int t = i % T, end = job->rows == PADDED ? T / 2 : T;
        out->ids[i] = (int32_t)(sw_philox_u64(9, 1, (uint64_t)(first + i)) % V);
        out->labels[i] = job->rows == HALF_LABELS && t < T / 2 ? -100 : out->ids[i];
        out->labels[i] = t < end ? out->labels[i] : -100;
        out->mask[i] = t < end;
        out->segments[i] = t / 5; /* the second document begins in the middle of a part */
        out->positions[i] = t % 5;
    }
    for (int i = 0; i < B * PIXELS && job->model == vit_path; i++) {
        const uint64_t drawn = sw_philox_u64(9, 2, (uint64_t)(first * PIXELS + i));
        out->pixels[i] = (float)(drawn % 1000) / 500 - 1;
        out->labels[i % B] = (int32_t)(drawn % 3);
    }
}

/* Lists the tensors of a micro-batch; returns their number. */
static int list_tensors(const struct job *job, struct row_data *rows, struct sw_tensor *out)
{
    const struct sw_shape shape = SW_SHAPE(B, T), classes = SW_SHAPE(B);
    const bool is_class = job->model == classes_path;
    int n = 0;
    if (job->model == vit_path) {
        out[0] =
            (struct sw_tensor){"pixel_values", {rows->pixels, SW_F32, SW_SHAPE(B, 3, 8, 8), {0}}};
        out[1] = (struct sw_tensor){"labels", {rows->labels, SW_I32, classes, {0}}};
        return 2;
    }
    out[n++] = (struct sw_tensor){"input_ids", {rows->ids, SW_I32, shape, {0}}};
    out[n++] =
        (struct sw_tensor){"labels", {rows->labels, SW_I32, is_class ? classes : shape, {0}}};
    if (job->rows == PADDED || is_class) {
        out[n++] = (struct sw_tensor){"attention_mask", {rows->mask, SW_I32, shape, {0}}};
    }
    if (job->rows == PACKED) {
        out[n++] = (struct sw_tensor){"segments", {rows->segments, SW_I32, shape, {0}}};
        out[n++] = (struct sw_tensor){"positions", {rows->positions, SW_I32, shape, {0}}};
    }
    return n;
}

static sw_status one_step(const struct job *job, sw_engine *e, struct sw_step_report *report)
{
    struct row_data rows[K];
    struct sw_tensor tensors[K][5];
    struct sw_batch batches[K];
    int n = 0;
    for (int k = e->data.rank; k < K; k += e->data.size, n++) {
        fill(job, (e->progress.step * K + k) * B * T, &rows[n]);
        batches[n] = (struct sw_batch){tensors[n], list_tensors(job, &rows[n], tensors[n])};
    }
    return sw_train_batch(e, batches, n, report);
}

static sw_status open_engine(const struct job *job, sw_comm *comm, sw_engine **out)
{
    const char *rule = job->optimizer ? job->optimizer : "AdamW";
    const bool any_length = job->model == lstm_path || job->model == vit_path;
    char config[1024];
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, %s"
        "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 30%s}, "
        "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.003%s}}, \"spillway\": "
        "{\"micro_batches\": %d, \"threads\": 1, \"allow_other_math\": true, \"packing\": %s, "
        "\"mesh\": {\"context\": %d, \"tensor\": %d, \"pipe\": %d}}}",
        B, job->top ? job->top : "", job->stage, job->zero ? job->zero : "", rule,
        strcmp(rule, "Adafactor") == 0 ? ", \"relative_step\": false" : "", K,
        job->rows == PACKED ? "true" : "false", job->context, job->tensor, job->pipe);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = job->model,
        .inputs = {.seq_len = any_length ? 0 : T, .mask = job->rows == PADDED},
        .run = {.comm = comm, .verify = true},
        .seed = 5,
        .train = {true, .keep_gradients = job->keeps_gradients},
        .evaluate.loss = true,
        .generate.wanted = job->model == odd_path};
    return sw_initialize(&options, out);
}

/* All ranks report the same. */
static sw_status keep(struct job *job, const struct sw_engine *e, int step,
                      const struct sw_step_report *report)
{
    SW_TRY(test_same_reports(e, report));
    if (e->world.rank == 0) {
        job->losses[step] = report->loss;
        job->norms[step] = report->grad_norm;
    }
    return SW_OK;
}

/* Evaluates a batch, and continues a prompt. */
static sw_status look(struct job *job, sw_engine *e)
{
    struct row_data rows;
    struct sw_tensor tensors[5];
    int32_t text[NEW];
    int64_t n_new = 0;
    double sum, count;
    fill(job, 1 << 20, &rows);
    SW_TRY(sw_evaluate(e, &(struct sw_batch){tensors, list_tensors(job, &rows, tensors)}, &sum,
                       &count));
    if (job->model == odd_path) {
        const struct sw_sampling drawn = {.temperature = 2, .seed = 3, .stop_id = -1};
        SW_TRY(sw_generate(e, rows.ids, 3, NEW, &drawn, text, &n_new, NULL));
        SW_ASSERT(n_new == NEW);
    }
    if (e->world.rank == 0) {
        job->evaluated = sum / count;
        memcpy(job->text, text, (size_t)n_new * sizeof *text);
    }
    return SW_OK;
}

static void count_sent(struct job *job, const sw_engine *e)
{
    const struct sw_program *p = &e->plan->programs[e->programs.train];
    const int context = sw_plan_group(e->plan, 1U << SW_AXIS_CONTEXT);
    struct sw_traffic traffic;
    if (context < 0 || e->world.rank > 0) {
        return;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const struct sw_instr *instr = &p->instrs[i];
        if (instr->verb == SW_VERB_REDUCE) {
            job->grads += sw_instr_traffic(instr, job->context, 0).sent;
        }
        if (sw_instr_exchanges(instr) && instr->exchange.group == context) {
            job->sent[instr->verb] += sw_instr_traffic(instr, job->context, 0).sent;
        }
    }
    sw_executor_traffic(e->executor, context, &traffic);
    job->planned = sw_plan_group_bytes(e->plan, context) * e->progress.step;
    for (int i = 0; i < SW_COMM_OP_COUNT; i++) {
        job->counted += traffic.sent[i];
    }
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    sw_engine *e = NULL;
    struct sw_step_report report;
    sw_status st = open_engine(job, comm, &e);
    st = st >= 0 && job->load ? sw_load(e, job->load) : st;
    for (int i = 0; st >= 0 && i < STEPS && !job->idle; i++) {
        st = one_step(job, e, &report);
        st = st < 0 ? st : keep(job, e, i, &report);
    }
    if (st >= 0) {
        count_sent(job, e);
    }
    st = st < 0 ? st : look(job, e);
    st = st >= 0 && job->save ? sw_save(e, job->save, NULL) : st;
    st = st < 0 ? st : test_owned_weights(e, job->weights, MOST_ELEMS);
    sw_close(e);
    return st;
}

static void run_it(struct job *job)
{
    job->data = job->data > 0 ? job->data : 1;
    job->context = job->context > 0 ? job->context : 1;
    job->tensor = job->tensor > 0 ? job->tensor : 1;
    job->pipe = job->pipe > 0 ? job->pipe : 1;
    job->weights = calloc(MOST_ELEMS, sizeof *job->weights);
    job->status = sw_threads_run(ranks_of(job), 60, train, job);
    snprintf(job->message, sizeof job->message, "%s", sw_error_message());
}

static void run(struct job *job)
{
    run_it(job);
    if (job->status < 0) {
        fail_msg("%s, data %d, context %d, tensor %d, pipe %d at stage %d: %s", job->model,
                 job->data, job->context, job->tensor, job->pipe, job->stage, job->message);
    }
}

static void clear(struct job *job)
{
    free(job->weights);
}

static void assert_same(const struct job *a, const struct job *b)
{
    for (int i = 0; i < STEPS; i++) {
        if (a->losses[i] != b->losses[i] || a->norms[i] != b->norms[i]) {
            fail_msg("%s, context %d: data %d at stage %d has in step %d loss %.17g and norm "
                     "%.17g, data %d at stage %d %.17g and %.17g",
                     a->model, a->context, a->data, a->stage, i, a->losses[i], a->norms[i], b->data,
                     b->stage, b->losses[i], b->norms[i]);
        }
    }
    assert_memory_equal(a->weights, b->weights, MOST_ELEMS * sizeof *a->weights);
    assert_memory_equal(&a->evaluated, &b->evaluated, sizeof a->evaluated);
    assert_memory_equal(a->text, b->text, sizeof a->text);
}

static bool is_near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fabs(b);
}

static void assert_near(const struct job *a, const struct job *b)
{
    for (int i = 0; i < STEPS; i++) {
        if (!is_near(a->losses[i], b->losses[i], 1e-4) ||
            !is_near(a->norms[i], b->norms[i], 1e-3)) {
            fail_msg("%s, context %d: step %d has loss %.17g and norm %.17g, context %d %.17g and "
                     "%.17g",
                     a->model, a->context, i, a->losses[i], a->norms[i], b->context, b->losses[i],
                     b->norms[i]);
        }
    }
    assert_true(is_near(a->evaluated, b->evaluated, 1e-4));
    assert_memory_equal(a->text, b->text, sizeof a->text);
}

/* ---- training ---- */

/* sizes: of the context axis, ended by 0 */
static void follow_one_rank(struct job one, const int *sizes)
{
    struct job job = one;
    run(&one);
    for (; *sizes > 0; sizes++) {
        job.context = *sizes;
        run(&job);
        assert_near(&job, &one);
        clear(&job);
    }
    clear(&one);
}

static const int two[] = {2, 0}, two_and_four[] = {2, 4, 0};

static void losses_follow_those_of_one_rank(void **state)
{
    (void)state;
    follow_one_rank((struct job){.model = odd_path}, two_and_four);
    follow_one_rank((struct job){.model = shared_path}, two_and_four);
    follow_one_rank((struct job){.model = classes_path}, two_and_four);
    follow_one_rank((struct job){.model = vit_path}, two_and_four); /* 5 tokens */
    follow_one_rank((struct job){.model = "gpt2-tiny"}, two);
    follow_one_rank((struct job){.model = "t5-tiny"}, two);
}

static void uneven_rows_follow_one_rank(void **state)
{
    (void)state;
    for (enum rows rows = HALF_LABELS; rows <= PACKED; rows++) {
        follow_one_rank((struct job){.model = odd_path, .rows = rows}, two_and_four);
    }
}

/* Parameters are whole, so rules that need a whole matrix work. */
static void optimizers_follow_one_rank(void **state)
{
    static const char *const rules[] = {"Lamb", "Muon", "Adafactor"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(rules); i++) {
        follow_one_rank((struct job){.model = odd_path, .optimizer = rules[i], .stage = 1}, two);
    }
}

static void data_stages_and_tiers_change_no_bit(void **state)
{
    static const struct {
        int data, stage;
        const char *zero;
    } others[] = {
        {1, 1, NULL},
        {1, 3, NULL},
        {2, 0, NULL},
        {2, 1, NULL},
        {2, 2, NULL},
        {3, 3, NULL},
        {1, 2, ", \"offload_optimizer\": {\"device\": \"cpu\"}"},
        {2, 3,
         ", \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
         "\"cpu\"}"},
    };
    (void)state;
    struct job first = {odd_path, 1, 2, .stage = 0};
    run(&first);
    for (size_t i = 0; i < SW_LEN(others); i++) {
        struct job job = {odd_path, others[i].data, 2, .stage = others[i].stage,
                          .zero = others[i].zero};
        run(&job);
        assert_same(&job, &first);
        clear(&job);
    }
    clear(&first);
}

/* ---- bytes ---- */

/* widths: elements per token of q, k, v and o that all ranks have together; a key head counts as
 * often as ranks have it. The loss is a sum and a count. */
static void check_bytes(const char *model, int c, int64_t widths)
{
    const int64_t layers = 2, w = sizeof(float), rows = B * T / c;
    struct job job = {model, .context = c, .stage = 1};
    run(&job);
    /* of each the value and its gradient: (c-1)/c of what the rank has of its tokens */
    assert_int_equal(job.sent[SW_VERB_ALL_TO_ALL], layers * 2 * (c - 1) * rows * widths * w / c);
    assert_int_equal(job.sent[SW_VERB_ALL_REDUCE], 2 * 2 * (c - 1) * w);
    for (int v = 0; v < SW_VERB_COUNT; v++) {
        assert_true(job.sent[v] == 0 || v == SW_VERB_ALL_TO_ALL || v == SW_VERB_ALL_REDUCE);
    }
    assert_int_equal(job.counted, job.planned);
    assert_true(job.counted > 0);
    clear(&job);
}

/* The first token of each row is taken where it lies: each rank sends one token of a row to each
 * other one, and its gradient needs no exchange. Parts of 5 tokens are padded to 6 and 8. */
static void check_bytes_of_classes(const char *model, int c, int64_t tokens)
{
    const int64_t layers = 2, width = 12, w = sizeof(float), each = (tokens + c - 1) / c;
    struct job job = {model, .context = c, .stage = 1};
    run(&job);
    assert_int_equal(job.sent[SW_VERB_ALL_GATHER], (c - 1) * B * width * w);
    assert_int_equal(job.sent[SW_VERB_ALL_TO_ALL],
                     layers * 2 * (c - 1) * B * each * 4 * width * w / c);
    assert_int_equal(job.counted, job.planned);
    clear(&job);
}

static void bytes_are_those_of_the_formula(void **state)
{
    (void)state;
    check_bytes_of_classes(classes_path, 2, T);
    check_bytes_of_classes(vit_path, 2, 5);
    check_bytes_of_classes(vit_path, 4, 5);
    check_bytes(odd_path, 2, 4 * 12); /* 4 heads of 3 */
    check_bytes(odd_path, 4, 4 * 12);
    check_bytes(shared_path, 2, 2 * 16 + 2 * 8);  /* 4 heads and 2 key heads of 4 */
    check_bytes(shared_path, 4, 2 * 16 + 2 * 16); /* each key head on two ranks */
}

/* Gradients of the tokens of all ranks travel in fp32, unless the key says otherwise. */
static void gradients_travel_in_the_type_of_sequence_parallelism(void **state)
{
    static const char *const tops[] = {
        "\"bf16\": {\"enabled\": true}, ",
        "\"bf16\": {\"enabled\": true}, \"seq_parallel_communication_data_type\": \"bf16\", "};
    int64_t sent[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job = {odd_path, .context = 2, .stage = 1, .top = tops[i]};
        run(&job);
        sent[i] = job.grads;
        clear(&job);
    }
    assert_true(sent[1] > 0);
    assert_int_equal(sent[0], 2 * sent[1]);
}

/* ---- other axes ---- */

static void near_one_rank(struct job job, const struct job *one)
{
    run(&job);
    assert_near(&job, one);
    clear(&job);
}

/* The pipe axis changes no bit, and the tensor axis cuts sums, too. */
static void tensor_and_pipe_train_beside_it(void **state)
{
    (void)state;
    struct job one = {.model = odd_path}, shared = {.model = shared_path};
    run(&one);
    run(&shared);
    near_one_rank((struct job){odd_path, .context = 2, .tensor = 2, .stage = 1}, &one);
    near_one_rank((struct job){shared_path, .context = 2, .tensor = 2, .stage = 3}, &shared);
    struct job stages = {odd_path, .context = 2, .pipe = 2}, without = {odd_path, .context = 2};
    run(&stages);
    run(&without);
    assert_same(&stages, &without);
    near_one_rank((struct job){odd_path, .data = 1, .context = 2, .tensor = 2, .pipe = 2}, &one);
    struct job pictures = {.model = vit_path};
    run(&pictures);
    near_one_rank((struct job){vit_path, .data = 1, .context = 2, .tensor = 2, .pipe = 2},
                  &pictures);
    clear(&pictures);
    clear(&without);
    clear(&stages);
    clear(&shared);
    clear(&one);
}

/* ---- checkpoints ---- */

static void assert_weights(struct job job, const struct job *want)
{
    run(&job);
    assert_memory_equal(job.weights, want->weights, MOST_ELEMS * sizeof *job.weights);
    clear(&job);
}

static void checkpoints_load_on_other_meshes(void **state)
{
    (void)state;
    struct job first = {odd_path, 2, 2, .stage = 2, .save = test_at("saved")};
    run(&first);
    assert_weights((struct job){odd_path, 1, 1, .idle = true, .load = test_at("saved"),
                                .save = test_at("back")},
                   &first);
    assert_weights((struct job){odd_path, 1, 4, .stage = 3, .idle = true, .load = test_at("back")},
                   &first);
    assert_weights((struct job){odd_path, 1, 1, 2, .idle = true, .load = test_at("saved")}, &first);
    /* the moments, too */
    struct job on = {odd_path, 1, 2, .stage = 0, .load = test_at("saved")};
    struct job round = {odd_path, 2, 2, .stage = 3, .load = test_at("back")};
    run(&on);
    run(&round);
    assert_same(&round, &on);
    clear(&round);
    clear(&on);
    clear(&first);
}

/* ---- refusals ---- */

static void what_is_not_cut_is_refused_by_name(void **state)
{
    static const struct {
        const char *model;
        int context;
        const char *words[3];
    } refused[] = {
        {odd_path, 3, {"spillway.mesh.context 3", "8 tokens", "multiple of 3 tokens"}},
        {odd_path, 8, {"tensor 1 x context 8", "4 heads", "ring attention"}},
        {lstm_path, 2, {"spillway.mesh.context 2", "LSTM", "data"}},
        {vit_path, 8, {"tensor 1 x context 8", "4 heads", "ring attention"}},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(refused); i++) {
        struct job job = {refused[i].model, 1, refused[i].context, .idle = true};
        run_it(&job);
        assert_true(job.status < 0);
        for (int k = 0; k < 3; k++) {
            if (!strstr(job.message, refused[i].words[k])) {
                fail_msg("\"%s\" lacks \"%s\"", job.message, refused[i].words[k]);
            }
        }
        clear(&job);
    }
}

static void put_model(char path[96], const char *name, const char *json)
{
    snprintf(path, 96, "%s/%s", test_folder(), name);
    test_put(name, json);
}

static int set_up(void **state)
{
    (void)state;
    put_model(odd_path, "odd.json", odd_json);
    put_model(shared_path, "shared.json", shared_json);
    put_model(classes_path, "classes.json", classes_json);
    put_model(lstm_path, "lstm.json", lstm_json);
    put_model(vit_path, "vit.json", vit_json);
    return 0;
}

/* ---- vectors of texts ---- */

enum { MOST = 7 }; /* tokens of the longest line */
static float vectors[2][B * 12];
static int64_t row_tokens;

static sw_status embed_rows(void *ctx, sw_comm *comm)
{
    float *out = ctx, others[B * 12];
    char config[128];
    const int ranks = comm ? sw_comm_size(comm) : 1;
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": %d, \"spillway\": {\"mesh\": {\"context\": %d}}}", B,
        ranks);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = classes_path,
                                              .inputs.most_tokens = MOST,
                                              .run.comm = comm,
                                              .seed = 5,
                                              .embed.wanted = true};
    const struct sw_embed_options how = {.pool = SW_POOL_MEAN};
    int32_t ids[B * T] = {0}, mask[B * T] = {0};
    sw_engine *e = NULL;
    SW_TRY(sw_initialize(&options, &e));
    const int64_t tokens = sw_engine_seq_len(e);
    for (int i = 0; i < B * MOST; i++) {
        const int64_t at = i / MOST * tokens + i % MOST;
        ids[at] = i % V;
        mask[at] = 1;
    }
    const struct sw_shape shape = SW_SHAPE(B, tokens);
    const struct sw_tensor tensors[] = {{"input_ids", {ids, SW_I32, shape, {0}}},
                                        {"attention_mask", {mask, SW_I32, shape, {0}}}};
    const bool leads = e->world.rank == 0;
    row_tokens = leads ? tokens : row_tokens;
    const sw_status st = sw_embed(e, &(struct sw_batch){tensors, 2}, &how, leads ? out : others);
    sw_close(e);
    return st;
}

/* Rows as long as the longest line are rounded up to what the ranks divide; padding has no part in
 * a vector. */
static void rows_of_odd_lines_are_embedded(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        if (sw_threads_run(k + 1, 60, embed_rows, vectors[k]) < 0) {
            fail_msg("%d ranks: %s", k + 1, sw_error_message());
        }
        assert_int_equal(row_tokens, MOST + k);
    }
    for (int i = 0; i < B * 12; i++) {
        assert_true(fabsf(vectors[1][i] - vectors[0][i]) <= 1e-5F * (1 + fabsf(vectors[0][i])));
    }
    assert_true(vectors[0][0] != 0);
}

/* ---- gradients ---- */

/* Gradients of all parameters, one after the other: as the first rank has them, and the last one.
 */
struct gradients {
    float values[2][1 << 14];
    int64_t n, first[64]; /* of each parameter; the end */
    int n_params;
};

static sw_status gradients_of_rank(struct job *job, sw_engine *e, struct gradients *out)
{
    static const int n_most = (int)SW_LEN(out->first) - 1;
    const int last = ranks_of(job) - 1;
    const int ranks[] = {0, last};
    float values[4096];
    int64_t at = 0;
    SW_ASSERT(e->weights.params.n <= n_most);
    for (int32_t i = 0; i < e->weights.params.n; i++) {
        const struct sw_persistent *param = e->weights.params.items[i].work;
        const int64_t n = sw_shape_elems(&param->layout.whole);
        SW_ASSERT(n <= (int64_t)SW_LEN(values) && at + n <= (int64_t)SW_LEN(out->values[0]));
        SW_TRY(sw_gradient(e, param->name, values));
        for (int k = 0; k < 2; k++) {
            if (e->world.rank == ranks[k]) {
                memcpy(out->values[k] + at, values, (size_t)n * sizeof *values);
            }
        }
        at += n;
        if (e->world.rank == 0) {
            out->first[i + 1] = out->n = at;
            out->n_params = i + 1;
        }
    }
    return SW_OK;
}

static struct gradients *gradients_into;

static sw_status keep_gradients(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    struct sw_step_report report;
    sw_engine *e = NULL;
    sw_status st = open_engine(job, comm, &e);
    st = st < 0 ? st : one_step(job, e, &report);
    st = st < 0 ? st : gradients_of_rank(job, e, gradients_into);
    sw_close(e);
    return st;
}

static void run_gradients(struct job *job, struct gradients *out)
{
    memset(out, 0, sizeof *out);
    gradients_into = out;
    job->keeps_gradients = true;
    if (sw_threads_run(ranks_of(job), 60, keep_gradients, job) < 0) {
        fail_msg("%s, context %d, tensor %d: %s", job->model, job->context, job->tensor,
                 sw_error_message());
    }
}

static void assert_near_gradients(const struct gradients *a, const struct gradients *b)
{
    assert_int_equal(a->n, b->n);
    for (int p = 0; p < a->n_params; p++) {
        float most = 0;
        for (int64_t i = b->first[p]; i < b->first[p + 1]; i++) {
            most = fmaxf(most, fabsf(b->values[0][i]));
        }
        for (int64_t i = b->first[p]; i < b->first[p + 1]; i++) {
            if (!(fabsf(a->values[0][i] - b->values[0][i]) <= 1e-4F * most + 1e-7F)) {
                fail_msg("parameter %d, element %lld: gradient %g, by one rank %g, at most %g", p,
                         (long long)(i - b->first[p]), (double)a->values[0][i],
                         (double)b->values[0][i], (double)most);
            }
        }
    }
    assert_memory_equal(a->values[0], a->values[1], sizeof a->values[0]);
}

/* All of these ranks share the last micro-batch. */
static void gradients_are_those_of_one_rank(void **state)
{
    static const int meshes[][3] = {/* context, tensor, stage */ {2, 1, 0}, {1, 2, 3}, {2, 2, 2}};
    static struct gradients one, cut;
    const char *const models[] = {odd_path, shared_path, classes_path, vit_path};
    (void)state;
    for (size_t m = 0; m < SW_LEN(models); m++) {
        struct job alone = {models[m], 1, 1, 1, 1, .stage = 0};
        run_gradients(&alone, &one);
        for (size_t i = 0; i < SW_LEN(meshes); i++) {
            struct job job = {models[m], 1, meshes[i][0], meshes[i][1], 1, .stage = meshes[i][2]};
            run_gradients(&job, &cut);
            assert_near_gradients(&cut, &one);
        }
    }
    /* four ranks share two key heads */
    struct job alone = {shared_path, 1, 1, 1, 1, .stage = 0};
    struct job job = {shared_path, 1, 1, 4, 1, .stage = 1};
    run_gradients(&alone, &one);
    run_gradients(&job, &cut);
    assert_near_gradients(&cut, &one);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses_follow_those_of_one_rank),
    cmocka_unit_test(uneven_rows_follow_one_rank),
    cmocka_unit_test(optimizers_follow_one_rank),
    cmocka_unit_test(data_stages_and_tiers_change_no_bit),
    cmocka_unit_test(bytes_are_those_of_the_formula),
    cmocka_unit_test(gradients_travel_in_the_type_of_sequence_parallelism),
    cmocka_unit_test(tensor_and_pipe_train_beside_it),
    cmocka_unit_test(checkpoints_load_on_other_meshes),
    cmocka_unit_test(rows_of_odd_lines_are_embedded),
    cmocka_unit_test(gradients_are_those_of_one_rank),
    cmocka_unit_test(what_is_not_cut_is_refused_by_name),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
