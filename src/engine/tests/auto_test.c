// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// COST 6
// Keys that are "auto". The expected choice is found here by asking for every value in turn. Tests
// run on one rank, and on several ranks with different budgets. They also cover the report of a
// choice, resuming with it, and the refusal if nothing fits.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/private.h"
#include "spillway/comm.h"
#include "support/scratch.h"
#include "support/test.h"

enum { T = 8, V = 37, LARGE_V = 4001, TRAIN = 12, LAYERS = 8, MOST_RANKS = 3 };

/* The head takes most of the second model's memory, so that keeping fewer inputs makes a
 * difference. */
static char model_path[96], head_path[96];

static const char base_config[] =
    "{\"train_batch_size\": 12, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
    "\"spillway\": {\"threads\": 1}}";

/* The settings of one engine. */
struct settings {
    char text[12][96];
    const char *list[12];
    int n;
    bool large_head; /* the model with the large head */
};

static void set(struct settings *s, const char *key, int64_t value)
{
    assert_true(s->n < 12);
    snprintf(s->text[s->n], sizeof *s->text, "%s=%lld", key, (long long)value);
    s->list[s->n] = s->text[s->n];
    s->n++;
}

static void set_text(struct settings *s, const char *text)
{
    assert_true(s->n < 12);
    s->list[s->n++] = text;
}

/* Opens the plan of rank 0 of `ranks` ranks. */
static sw_status plan(const struct settings *s, int ranks, const char *resume_from, sw_engine **out)
{
    struct sw_engine_options o = {
        .config = {.text = base_config, .sets = s->list, .n_sets = s->n},
        .model.path = s->large_head ? head_path : model_path,
        .inputs.seq_len = T,
        .train.wanted = true,
        .plan = {.only = true, .resume_from = resume_from},
    };
    if (ranks > 1) {
        assert_int_equal(sw_comm_open(&(struct sw_transport){.size = ranks}, &o.run.comm), SW_OK);
    }
    const sw_status st = sw_initialize(&o, out);
    if (st < 0 && o.run.comm) {
        sw_comm_close(o.run.comm, true);
    }
    return st;
}

static void close_plan(sw_engine *e)
{
    sw_comm *comm = e->options.run.comm;
    sw_close(e);
    sw_comm_close(comm, false);
}

/* Least device budget in bytes with which the settings fit. Measured with a large one: without any
 * a plan may take more memory to be faster (plan/loss.c). On several ranks it is the figure in the
 * refusal, because less memory makes them prefetch less. */
static int64_t need_of(const struct settings *asked, int ranks)
{
    struct settings s = *asked; /* the strings stay those of `asked` */
    sw_engine *e = NULL;
    long long need = 0;
    if (ranks == 1) {
        set(&s, "spillway.device_memory", 1LL << 40);
        assert_int_equal(plan(&s, 1, NULL, &e), SW_OK);
        need = sw_engine_tier_bytes(e, SW_TIER_DEVICE);
        close_plan(e);
        return need;
    }
    set(&s, "spillway.device_memory", 1000);
    assert_int_equal(plan(&s, ranks, NULL, &e), SW_E_NOMEM);
    const char *message = strstr(sw_error_message(), "device memory needs ");
    assert_non_null(message);
    assert_int_equal(sscanf(message, "device memory needs %lld bytes", &need), 1);
    return need;
}

static void check_chosen(const sw_engine *e, int64_t micro_batch, int64_t every)
{
    const struct sw_config *c = e->config;
    assert_int_equal(sw_engine_micro_batch_size(e), micro_batch);
    assert_int_equal(c->batch.micro_batch_size, micro_batch);
    assert_int_equal(c->batch.micro_batch_size * c->batch.accumulation_steps * e->data.size, TRAIN);
    assert_int_equal(c->batch.micro_batches, TRAIN / micro_batch);
    assert_int_equal(c->spillway.recompute.every, every);
    assert_int_equal(sw_config_value(c, "train_micro_batch_size_per_gpu")->integer, micro_batch);
    assert_int_equal(sw_config_value(c, "spillway.micro_batch")->type, SW_JSON_NULL);
}

/* ---- the micro-batch ---- */

struct needs {
    int64_t micro[8], bytes[8]; /* from the largest micro-batch down */
    int n;
};

static struct needs needs_of(int ranks)
{
    struct needs out = {.n = 0};
    for (int64_t micro = TRAIN; micro > 0; micro--) {
        if (TRAIN % (micro * ranks) == 0) {
            struct settings s = {.n = 0};
            set(&s, "train_micro_batch_size_per_gpu", micro);
            out.micro[out.n] = micro;
            out.bytes[out.n++] = need_of(&s, ranks);
        }
    }
    return out;
}

static int64_t largest_within(const struct needs *needs, int64_t budget)
{
    for (int i = 0; i < needs->n; i++) {
        if (needs->bytes[i] <= budget) {
            return needs->micro[i];
        }
    }
    return 0;
}

/* Each micro-batch fits exactly at its budget; one byte less selects the next smaller one. */
static void the_largest_micro_batch_that_fits(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        const struct needs needs = needs_of(ranks);
        int n_refused = 0;
        for (int i = 0; i < 2 * needs.n; i++) {
            const int64_t budget = needs.bytes[i / 2] - i % 2;
            const int64_t wanted = largest_within(&needs, budget);
            struct settings s = {.n = 0};
            sw_engine *e = NULL;
            set_text(&s, "spillway.micro_batch=auto");
            set(&s, "spillway.device_memory", budget);
            const sw_status st = plan(&s, ranks, NULL, &e);
            if (wanted > 0) {
                assert_int_equal(st, SW_OK);
                check_chosen(e, wanted, 0);
                close_plan(e);
            } else {
                assert_int_equal(st, SW_E_NOMEM);
                n_refused++;
            }
        }
        assert_true(n_refused > 0);
        assert_true(largest_within(&needs, needs.bytes[0] - 1) > 0);
        struct settings s = {.n = 0}; /* no budget: the whole batch */
        sw_engine *e = NULL;
        set_text(&s, "spillway.micro_batch=auto");
        assert_int_equal(plan(&s, ranks, NULL, &e), SW_OK);
        check_chosen(e, TRAIN / ranks, 0);
        close_plan(e);
    }
}

/* Accumulation steps, or K, determine the micro-batch. */
static void batch_keys_that_leave_one(void **state)
{
    (void)state;
    static const char *const keys[] = {"gradient_accumulation_steps", "spillway.micro_batches"};
    for (size_t k = 0; k < SW_LEN(keys); k++) {
        struct settings s = {.n = 0};
        sw_engine *e = NULL;
        set_text(&s, "spillway.micro_batch=auto");
        set(&s, keys[k], 4);
        assert_int_equal(plan(&s, 1, NULL, &e), SW_OK);
        check_chosen(e, 3, 0);
        close_plan(e);
        set(&s, "spillway.device_memory", 1000);
        assert_int_equal(plan(&s, 1, NULL, &e), SW_E_NOMEM);
        assert_non_null(strstr(sw_error_message(), "\"auto\" (at 3)"));
    }
}

/* ---- recomputation ---- */

/* One recomputation setting that a user may ask for, and its need. */
struct asked {
    int64_t every, blocks, need;
    double seconds;
};

static void set_recompute(struct settings *s, int64_t every, int64_t blocks)
{
    set(s, "train_micro_batch_size_per_gpu", TRAIN);
    if (every > 0) {
        set(s, "spillway.recompute", every);
    }
    if (blocks > 0) {
        set(s, "spillway.recompute_blocks", blocks);
    }
}

static double seconds_of(const struct settings *s)
{
    struct sw_machine_rates rates;
    double seconds;
    sw_engine *e = NULL;
    sw_builtin_rates(&rates);
    assert_int_equal(plan(s, 1, NULL, &e), SW_OK);
    assert_int_equal(sw_speeds_seconds(e->plan, &rates, &seconds), SW_OK);
    close_plan(e);
    return seconds;
}

/* Lists the settings: first no recomputation; then, for each group size, all blocks (given without
 * a number), and fewer blocks. */
static int ask_for_all(struct asked *out)
{
    int n = 0;
    for (int64_t every = 0; every <= LAYERS; every++) {
        for (int64_t blocks = LAYERS; blocks >= sw_max_i64(every, 1); blocks--) {
            struct settings s = {.large_head = true};
            set_recompute(&s, every, blocks < LAYERS ? blocks : 0);
            out[n].every = every;
            out[n].blocks = every == 0 ? 0 : blocks;
            out[n].need = need_of(&s, 1);
            out[n++].seconds = seconds_of(&s);
            if (every == 0) {
                break;
            }
        }
    }
    return n;
}

/* For one group size, recomputing one block less takes more memory and less time. */
static void fewer_blocks_take_more_memory_and_less_time(void **state)
{
    (void)state;
    struct asked all[1 + LAYERS * LAYERS];
    const int n = ask_for_all(all);
    assert_int_equal(n, 1 + LAYERS * (LAYERS + 1) / 2);
    for (int i = 1; i < n; i++) {
        assert_true(all[i].need <= all[0].need && all[i].seconds > all[0].seconds);
        if (all[i].every == all[i - 1].every) {
            assert_true(all[i].need >= all[i - 1].need);
            assert_true(all[i].seconds < all[i - 1].seconds);
        }
    }
}

static sw_status choose_recompute(int64_t budget, sw_engine **out)
{
    struct settings s = {.large_head = true};
    set(&s, "train_micro_batch_size_per_gpu", TRAIN);
    set_text(&s, "spillway.recompute=auto");
    set(&s, "spillway.device_memory", budget);
    return plan(&s, 1, NULL, out);
}

/* Asserts that the chosen setting fits, and that no fitting setting takes less time. */
static const struct asked *assert_least(const struct asked *all, int n, int64_t budget,
                                        const sw_engine *e)
{
    const struct sw_recompute *chosen = &e->config->spillway.recompute;
    const int64_t blocks = chosen->every > 0 && chosen->blocks == 0 ? LAYERS : chosen->blocks;
    const struct asked *out = NULL;
    for (int i = 0; i < n; i++) {
        out = all[i].every == chosen->every && all[i].blocks == blocks ? &all[i] : out;
    }
    assert_non_null(out);
    assert_true(out->need <= budget);
    for (int i = 0; i < n; i++) {
        assert_true(all[i].need > budget || out->seconds <= all[i].seconds);
    }
    return out;
}

/* Without a budget nothing is recomputed; at every budget the cheapest fitting setting is
 * chosen. */
static void the_least_recomputation_that_fits(void **state)
{
    (void)state;
    struct asked all[1 + LAYERS * LAYERS];
    bool met[LAYERS + 1][LAYERS + 1] = {0};
    const int n = ask_for_all(all);
    int n_refused = 0, n_kinds = 0, n_groups = 0;
    for (int i = -1; i < 2 * n; i += i < 2 * n - 4 ? 3 : 1) { /* includes the last two budgets */
        const int64_t budget = i < 0 ? INT64_MAX : all[i / 2].need - i % 2;
        sw_engine *e = NULL;
        if (choose_recompute(budget, &e) != SW_OK) {
            for (int k = 0; k < n; k++) {
                assert_true(all[k].need > budget);
            }
            n_refused++;
            continue;
        }
        check_chosen(e, TRAIN, e->config->spillway.recompute.every);
        const struct asked *chosen = assert_least(all, n, budget, e);
        n_kinds += !met[chosen->every][chosen->blocks];
        n_groups += !met[chosen->every][chosen->blocks] && chosen->every > 1;
        met[chosen->every][chosen->blocks] = true;
        close_plan(e);
    }
    assert_true(n_refused > 0 && met[0][0] && n_kinds > LAYERS && n_groups > 0);
}

/* Given rates decide the choice; an invalid rate is refused. */
static void rates_are_an_input(void **state)
{
    (void)state;
    static const char *const rates[][1] = {{"f32=1"}, {"f31=1"}};
    for (int i = 0; i < 2; i++) {
        struct sw_engine_options o = {
            .config.text = base_config,
            .model.path = model_path,
            .inputs.seq_len = T,
            .train.wanted = true,
            .plan = {.only = true, .rates = rates[i], .n_rates = 1},
        };
        sw_engine *e = NULL;
        const sw_status st = sw_initialize(&o, &e);
        assert_int_equal(st, i == 0 ? SW_OK : SW_E_ARG);
        assert_true(i == 0 || strstr(sw_error_message(), "--rates f31=1"));
        sw_close(e);
    }
}

/* ---- sizes that follow from the model ---- */

static sw_value no_loss(sw_graph *graph, void *ctx, int64_t batch)
{
    (void)graph;
    (void)ctx;
    (void)batch;
    fail_msg("nothing is to be built");
    return 0;
}

static void sizes_follow_from_the_model(void **state)
{
    static const char text[] =
        "{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
        "\"auto\"}}, \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\", "
        "\"stage3_param_persistence_threshold\": \"auto\"}}";
    struct sw_engine_options o = {.config.text = text,
                                  .model.path = model_path,
                                  .inputs.seq_len = T,
                                  .train.wanted = true,
                                  .plan.only = true};
    sw_engine *e = NULL;
    int64_t width = 0;
    (void)state;
    assert_int_equal(sw_model_hidden_size(model_path, &width), SW_OK);
    assert_int_equal(sw_initialize(&o, &e), SW_OK);
    assert_int_equal(width, e->weights.model->width);
    assert_int_equal(e->config->zero.reduce_bucket_elems, width * width);
    assert_int_equal(e->config->zero.param_persistence_elems, 10 * width);
    sw_close(e);
    o.model.path = NULL;
    o.model.forward = no_loss;
    assert_int_equal(sw_initialize(&o, &e), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "zero_optimization.reduce_bucket_size"));
    assert_non_null(strstr(sw_error_message(), "stage3_param_persistence_threshold"));
    assert_non_null(strstr(sw_error_message(), "a model of your own has none"));
}

/* ---- reports and refusals ---- */

static void where_nothing_fits_the_same_is_said_twice(void **state)
{
    (void)state;
    static const char *const keys[][2] = {
        {"spillway.micro_batch=auto", "spillway.recompute=none"},
        {"spillway.micro_batch=auto", "spillway.recompute=auto"},
        {"train_micro_batch_size_per_gpu=2", "spillway.recompute=auto"}};
    static const char *const begins[] = {
        "micro-batch \"auto\" (at 1): does not fit: device memory needs ",
        "micro-batch \"auto\" (at 1), spillway.recompute \"auto\" (at ",
        "spillway.recompute \"auto\" (at "};
    struct settings least = {.n = 0};
    int n_advised = 0;
    set(&least, "train_micro_batch_size_per_gpu", 1);
    const int64_t need = need_of(&least, 1);
    for (size_t k = 0; k < SW_LEN(keys); k++) {
        for (int64_t budget = need / 4; budget < need; budget += need / 2) {
            struct settings s = {.n = 0};
            char first[4096];
            sw_engine *e = NULL;
            set_text(&s, keys[k][0]);
            set_text(&s, keys[k][1]);
            set(&s, "spillway.device_memory", budget);
            const sw_status st = plan(&s, 1, NULL, &e);
            if (st >= 0) {
                close_plan(e);
                continue;
            }
            assert_int_equal(st, SW_E_NOMEM);
            snprintf(first, sizeof first, "%s", sw_error_message());
            assert_int_equal(strncmp(first, begins[k], strlen(begins[k])), 0);
            assert_non_null(strstr(first, "what would help: "));
            n_advised += strstr(first, "; it fits with ") != NULL;
            assert_int_equal(plan(&s, 1, NULL, &e), SW_E_NOMEM);
            assert_string_equal(first, sw_error_message());
        }
    }
    assert_true(n_advised > 0);
}

/* ---- ranks that train, with checkpoints ---- */

struct job {
    int64_t budget[MOST_RANKS]; /* per rank; 0 = no budget */
    const char *sets[2];        /* further settings */
    const char *folder;         /* checkpoint folder; NULL = none */
    bool resumes;
    int n_steps;
    uint64_t digest; /* of the final weights, on rank 0 */
    int64_t micro_batch;
    struct sw_recompute recompute;
    char chosen[160];
};

static sw_status train(sw_engine *e, int n_steps)
{
    const int64_t b = sw_engine_micro_batch_size(e);
    const struct sw_shape shape = {2, {b, T}};
    int32_t ids[TRAIN * T];
    struct sw_tensor tensors[TRAIN][2];
    struct sw_batch batches[TRAIN];
    for (int s = 0; s < n_steps; s++) {
        int n = 0;
        for (int64_t k = e->data.rank; k < e->sizes.micro_batches; k += e->data.size, n++) {
            int32_t *mine = ids + n * b * T;
            /* values depend on the sample only, not on the micro-batch */
            for (int64_t i = 0; i < b * T; i++) {
                const uint64_t place = (uint64_t)(e->progress.step * TRAIN * T + k * b * T + i);
                mine[i] = (int32_t)(sw_philox_u64(3, 1, place) % V);
            }
            const struct sw_view view = {.data = mine, .dtype = SW_I32, .shape = shape};
            tensors[n][0] = (struct sw_tensor){"input_ids", view};
            tensors[n][1] = (struct sw_tensor){"labels", view};
            batches[n] = (struct sw_batch){tensors[n], 2};
        }
        SW_TRY(sw_train_batch(e, batches, n, NULL));
    }
    return SW_OK;
}

static uint64_t digest_of(sw_engine *e)
{
    uint64_t h = SW_HASH_INIT;
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const char *name;
        struct sw_shape shape;
        float values[2048];
        assert_int_equal(sw_engine_tensor(e, i, &name, &shape), SW_OK);
        const int64_t n = sw_min_i64(2048, sw_shape_elems(&shape));
        assert_int_equal(sw_get_weight(e, name, 0, n, values), SW_OK);
        h = sw_hash(h, values, (size_t)n * sizeof *values);
    }
    return h;
}

static sw_status on_rank(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    const int rank = comm ? sw_comm_rank(comm) : 0;
    struct settings s = {.n = 0};
    sw_engine *e = NULL;
    for (int i = 0; i < 2 && job->sets[i]; i++) {
        set_text(&s, job->sets[i]);
    }
    if (job->budget[rank] > 0) {
        set(&s, "spillway.device_memory", job->budget[rank]);
    }
    const struct sw_engine_options o = {
        .config = {.text = base_config, .sets = s.list, .n_sets = s.n},
        .model.path = model_path,
        .inputs.seq_len = T,
        .run.comm = comm,
        .train.wanted = true,
        .plan.resume_from = job->resumes ? job->folder : NULL,
    };
    SW_TRY(sw_initialize(&o, &e));
    sw_status st = job->resumes ? sw_load(e, job->folder) : SW_OK;
    st = st < 0 ? st : train(e, job->n_steps);
    st = st < 0 || !job->folder ? st : sw_save(e, job->folder, NULL);
    if (st >= 0 && rank == 0) {
        struct sw_str text = {0};
        job->digest = digest_of(e);
        job->micro_batch = sw_engine_micro_batch_size(e);
        job->recompute = e->config->spillway.recompute;
        sw_config_print_chosen(e->config, false, &text);
        snprintf(job->chosen, sizeof job->chosen, "%s", sw_str_text(&text));
        sw_str_fini(&text);
    }
    sw_close(e);
    return st;
}

static sw_status run(struct job *job, int ranks)
{
    return ranks == 1 ? on_rank(job, NULL) : sw_threads_run(ranks, 60, on_rank, job);
}

static void must(struct job *job, int ranks)
{
    if (run(job, ranks) < 0) {
        fail_msg("%d ranks: %s", ranks, sw_error_message());
    }
}

/* The rank with the least memory decides for all ranks. The results have the same bits as if the
 * chosen values were given as numbers. */
static void the_least_over_the_ranks(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        const struct needs needs = needs_of(ranks);
        char micro[96];
        const int next = 1; /* the second largest */
        snprintf(micro, sizeof micro, "train_micro_batch_size_per_gpu=%lld",
                 (long long)needs.micro[next]);
        struct job given = {.sets = {micro}, .n_steps = 2};
        must(&given, ranks);
        for (int poor = 3 - ranks; poor < ranks; poor += 2) {
            struct job job = {.sets = {"spillway.micro_batch=auto"}, .n_steps = 2};
            for (int r = 0; r < ranks; r++) {
                job.budget[r] = r == poor ? needs.bytes[0] - 1 : 0;
            }
            must(&job, ranks);
            assert_int_equal(job.micro_batch, needs.micro[next]);
            assert_true(job.digest == given.digest);
            job.budget[poor] = 20000; /* no rank continues if one cannot */
            assert_true(run(&job, ranks) < 0);
            if (!strstr(sw_error_message(), "\"auto\" (at 1)") &&
                !strstr(sw_error_message(), "cannot go on")) { /* the first one to leave says why */
                fail_msg("%s", sw_error_message());
            }
        }
    }
    struct settings none = {.n = 0};
    set(&none, "train_micro_batch_size_per_gpu", 6);
    struct job job = {.sets = {"train_micro_batch_size_per_gpu=6", "spillway.recompute=auto"},
                      .budget = {0, need_of(&none, 2) - 1}};
    must(&job, 2);
    assert_int_equal(job.recompute.every, 1);
    assert_int_equal(job.recompute.blocks, 1);
}

/* A resumed run keeps its choice, with more memory and on other ranks, too. */
static void kept_on_resume(void **state)
{
    (void)state;
    static const char *const autos[] = {"spillway.micro_batch=auto", "spillway.recompute=auto"};
    struct settings blocks = {.n = 0};
    set(&blocks, "train_micro_batch_size_per_gpu", 4);
    set_text(&blocks, "spillway.recompute=blocks");
    const int64_t budget = need_of(&blocks, 1);
    struct job whole = {.sets = {"train_micro_batch_size_per_gpu=4", "spillway.recompute=blocks"},
                        .n_steps = 4};
    must(&whole, 1);
    struct job job = {.budget = {budget},
                      .sets = {autos[0], autos[1]},
                      .folder = test_at("kept"),
                      .resumes = true, /* no checkpoint exists yet */
                      .n_steps = 1};
    must(&job, 1);
    /* Backward begins with the last block, so recomputing it saves no memory. Exception: the peak
     * is at the loss, whose workspace depends on the processor. */
    set(&blocks, "spillway.recompute_blocks", 7);
    const int64_t need_7 = need_of(&blocks, 1);
    const bool fits = need_7 <= budget;
    char chosen[96];
    snprintf(chosen, sizeof chosen, "spillway.micro_batch 4, spillway.recompute \"blocks\"%s",
             fits ? ", spillway.recompute_blocks 7" : "");
    assert_string_equal(job.chosen, chosen);
    job.budget[0] = 0;
    static const int ranks[] = {1, 3, 1};
    for (int i = 0; i < 3; i++) {
        char wanted[160];
        snprintf(wanted, sizeof wanted, "%s, kept from checkpoint-%d", chosen, i + 1);
        must(&job, ranks[i]);
        assert_string_equal(job.chosen, wanted);
        assert_int_equal(job.micro_batch, 4);
        assert_int_equal(job.recompute.every, 1);
        assert_int_equal(job.recompute.blocks, fits ? LAYERS - 1 : 0);
    }
    assert_true(job.digest == whole.digest);
    /* 12 is not a multiple of 4 micro-batches on 2 ranks; the refusal is the same as for a file
     * with micro-batch 4 */
    assert_int_equal(run(&job, 2), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "spillway.micro_batch 4, "));
    assert_non_null(strstr(sw_error_message(), "kept from checkpoint-"));
    assert_non_null(strstr(sw_error_message(), "ranks 2"));
    job.budget[0] = (fits ? need_7 : budget) - 1;
    assert_int_equal(run(&job, 1), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "kept from checkpoint-"));
    assert_non_null(strstr(sw_error_message(), "does not fit"));
    sw_engine *e = NULL; /* plans the resumed run */
    struct settings s = {.n = 0};
    set_text(&s, autos[0]);
    set_text(&s, autos[1]);
    assert_int_equal(plan(&s, 1, test_at("kept"), &e), SW_OK);
    check_chosen(e, 4, 1);
    close_plan(e);
    job.budget[0] = 0;
    /* without resume_from the plan chooses anew, and sw_load refuses the difference */
    job.resumes = false;
    struct job other = job;
    other.folder = NULL;
    must(&other, 1);
    assert_int_equal(other.micro_batch, TRAIN);
}

static bool put_model(const char *path, int vocab)
{
    FILE *file = fopen(path, "w");
    const int n = file ? fprintf(file,
                                 "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],"
                                 "\"vocab_size\":%d,\"n_positions\":%d,\"n_embd\":16,"
                                 "\"n_layer\":%d,\"n_head\":2}",
                                 vocab, T, LAYERS)
                       : 0;
    return file && fclose(file) == 0 && n > 0;
}

static int open_folder(void **state)
{
    (void)state;
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    snprintf(head_path, sizeof head_path, "%s/head.json", test_folder());
    return put_model(model_path, V) && put_model(head_path, LARGE_V) ? 0 : -1;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_largest_micro_batch_that_fits),
    cmocka_unit_test(batch_keys_that_leave_one),
    cmocka_unit_test(fewer_blocks_take_more_memory_and_less_time),
    cmocka_unit_test(the_least_recomputation_that_fits),
    cmocka_unit_test(rates_are_an_input),
    cmocka_unit_test(sizes_follow_from_the_model),
    cmocka_unit_test(where_nothing_fits_the_same_is_said_twice),
    cmocka_unit_test(the_least_over_the_ranks),
    cmocka_unit_test(kept_on_resume),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = open_folder};
