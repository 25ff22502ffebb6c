// SPDX-License-Identifier: Apache-2.0
// The clock of coupled ranks with the plans of models: ranks of equal pace take exactly as long as
// one alone, and ranks of unequal pace all take as long as they must.
// SLOW SPILLWAY_CLOCK_RANKS=512
// That many ranks walk a step of a model of 175B parameters, in less than 2 GiB.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "support/scratch.h"
#include "support/test.h"

struct shape {
    int layers, width, heads;
    int ranks;
    const char *config; /* members of the configuration */
    const char *ours;   /* those of its block "spillway" */
};

struct opened {
    sw_engine *engine;
    sw_comm *comm;
    const struct sw_plan *plan;
    struct sw_cost (*costs)[2];
};

static sw_status open_engine(const struct shape *s, struct opened *out)
{
    char path[128], model[512], config[1024];
    *out = (struct opened){.engine = NULL};
    snprintf(path, sizeof path, "%s", test_at("model.json"));
    snprintf(model, sizeof model,
             "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": "
             "50257, \"n_positions\": 1024, \"n_embd\": %d, \"n_layer\": %d, \"n_head\": %d}",
             s->width, s->layers, s->heads);
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}, \"optimizer\": "
        "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.0001}}, %s, \"spillway\": {%s}}",
        s->config, s->ours);
    SW_TRY(sw_file_write_atomic(path, model, strlen(model)));
    const struct sw_transport transport = {.size = s->ranks};
    SW_TRY(s->ranks > 1 ? sw_comm_open(&transport, &out->comm) : SW_OK);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = path,
        .inputs.seq_len = 64,
        .run.comm = out->comm,
        .train.wanted = true,
        .plan.only = true,
    };
    return sw_initialize(&options, &out->engine);
}

/* Opens the engine, and finds the costs of its plan at the built-in rates. */
static struct opened open_shape(const struct shape *s)
{
    struct opened o;
    struct sw_speeds speeds;
    bool unknown[SW_LOAD_COUNT];
    memset(&speeds, 0, sizeof speeds);
    sw_builtin_rates(&speeds.given);
    if (open_engine(s, &o) < 0) {
        fail_msg("%s: %s", s->config, sw_error_message());
    }
    o.plan = sw_engine_facts(o.engine).plan;
    o.costs = sw_alloc_zero("test", (size_t)o.plan->programs[0].n_instrs + 1, sizeof *o.costs);
    assert_non_null(o.costs);
    sw_speeds_costs(o.plan, &speeds, unknown, o.costs);
    return o;
}

static void close_shape(struct opened *o)
{
    sw_free(o->costs);
    sw_close(o->engine);
    sw_comm_close(o->comm, false);
}

/* All ranks share the plan; slower: the last rank's factor on computation, that of the others lies
 * between. Returns when the last one has finished; *least: when the first one has. */
static double walk_ranks(const struct opened *o, int n, double slower, double *least)
{
    struct sw_clock_rank *ranks = sw_alloc_zero("test", (size_t)n, sizeof *ranks);
    struct sw_pace *paces = sw_alloc_zero("test", (size_t)n, sizeof *paces);
    double most = 0;
    assert_true(ranks && paces);
    for (int r = 0; r < n; r++) {
        paces[r] = (struct sw_pace){.costs = (const struct sw_cost(*)[2])o->costs,
                                    .meeting = 1e-4,
                                    .disk_share = {0.5, 0.5}};
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            paces[r].slower[q] = 1 + (slower - 1) * (r + 1) / n;
        }
        ranks[r] = (struct sw_clock_rank){.plan = o->plan, .pace = &paces[r]};
    }
    if (sw_clock_ranks(ranks, n) < 0) {
        fail_msg("%s", sw_error_message());
    }
    *least = ranks[0].seconds;
    for (int r = 0; r < n; r++) {
        *least = ranks[r].seconds < *least ? ranks[r].seconds : *least;
        most = ranks[r].seconds > most ? ranks[r].seconds : most;
    }
    sw_free(ranks);
    sw_free(paces);
    return most;
}

static double walk_alone(const struct opened *o, double slower)
{
    struct sw_clock_report report;
    struct sw_pace pace = {
        .costs = (const struct sw_cost(*)[2])o->costs, .meeting = 1e-4, .disk_share = {0.5, 0.5}};
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        pace.slower[q] = slower;
    }
    assert_int_equal(sw_clock_step(o->plan, &pace, &report), SW_OK);
    sw_free(report.instrs);
    return report.seconds;
}

#define ON_DISK "{\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}"
#define ON_HOST "{\"device\": \"cpu\"}"

static void equal_ranks_take_as_long_as_one_alone(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {2, 64, 2, 2, "\"zero_optimization\": {\"stage\": 0}", ""},
        {2, 64, 2, 5, "\"zero_optimization\": {\"stage\": 1}", ""},
        {2, 64, 2, 8, "\"zero_optimization\": {\"stage\": 2}", "\"recompute\": \"blocks\""},
        {3, 64, 2, 8, "\"zero_optimization\": {\"stage\": 3}, \"gradient_clipping\": 1.0", ""},
        {3, 64, 2, 3, "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": " ON_HOST "}",
         ""},
        {3, 64, 2, 4,
         "\"gradient_accumulation_steps\": 3, \"zero_optimization\": {\"stage\": 3, "
         "\"offload_optimizer\": " ON_DISK ", \"offload_param\": " ON_DISK "}",
         "\"tile_bytes\": \"16KiB\""},
        {2, 64, 2, 4,
         "\"gradient_accumulation_steps\": 4, \"zero_optimization\": {\"stage\": 3, "
         "\"offload_optimizer\": " ON_DISK "}",
         "\"schedule\": \"vertical\""},
    };
    for (size_t i = 0; i < SW_LEN(shapes); i++) {
        struct opened o = open_shape(&shapes[i]);
        const int n = shapes[i].ranks;
        const double alone = walk_alone(&o, 1);
        double least;
        assert_true(alone > 0);
        assert_true(walk_ranks(&o, n, 1, &least) == alone);
        assert_true(least == alone);
        const double most = walk_ranks(&o, n, 3, &least);
        assert_true(least > alone && most >= least && most <= 3.0001 * alone);
        close_shape(&o);
    }
}

static void many_ranks_walk_at_once(void **state)
{
    (void)state;
    const char *text = getenv("SPILLWAY_CLOCK_RANKS");
    const bool large = text != NULL;
    const struct shape shape = {large ? 96 : 6,
                                large ? 12288 : 128,
                                large ? 96 : 2,
                                large ? atoi(text) : 64,
                                "\"zero_optimization\": {\"stage\": 3}",
                                "\"recompute\": \"blocks\""};
    struct sw_alloc_stats stats;
    struct opened o = open_shape(&shape);
    double least;
    assert_true(!large || sw_engine_parameters(o.engine) > 170e9);
    const double begin = sw_now_s();
    const double most = walk_ranks(&o, shape.ranks, 1.5, &least);
    sw_alloc_get_stats(&stats);
    print_message("%d ranks, %d instructions: a step of %.6g s in %.3f s, %.1f MiB\n", shape.ranks,
                  o.plan->programs[0].n_instrs, most, sw_now_s() - begin,
                  (double)stats.peak_bytes / (1 << 20));
    /* the last rank is slower than all in everything, so the step takes as long as its own */
    const double slowest = walk_alone(&o, 1.5);
    assert_true(most >= slowest * (1 - 1e-9) && most <= slowest * (1 + 1e-9));
    assert_true(stats.peak_bytes < (int64_t)2 << 30);
    close_shape(&o);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(equal_ranks_take_as_long_as_one_alone),
    cmocka_unit_test(many_ranks_walk_at_once),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
