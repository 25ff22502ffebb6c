// SPDX-License-Identifier: Apache-2.0
// Training on ranks of the tensor axis in other precisions, and with everything that needs less
// memory: offloading, tiles, recomputation, another order of micro-batches. Losses follow those of
// one rank, and no placement changes a bit.
#include "engine/tests/sliced.h"
#include "support/scratch.h"
#include "support/test.h"

#define STATES ", \"offload_optimizer\": {\"device\": \"cpu\"}"
#define PARAMS ", \"offload_param\": {\"device\": \"cpu\"}"
#define DISK(what) ", \"offload_" what "\": {\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}"

struct way {
    int data, stage;
    const char *zero, *more;
    bool tiles;
};

/* one: model, size of the tensor axis and precision */
static void check_ways(const struct sliced *sliced, double tolerance, const struct way *ways,
                       size_t n)
{
    struct sliced one = *sliced, first = *sliced;
    one.data = one.tensor = first.data = 1;
    sliced_run(&one);
    sliced_run(&first);
    sliced_assert_near(&first, &one, tolerance);
    for (size_t i = 0; i < n; i++) {
        struct sliced job = *sliced;
        job.data = ways[i].data;
        job.stage = ways[i].stage;
        job.zero = ways[i].zero;
        job.more = ways[i].more;
        sliced_run(&job);
        sliced_assert_same(&job, &first);
        assert_true(ways[i].tiles == (job.n_tiled > 0));
        sliced_clear(&job);
    }
    sliced_clear(&first);
    sliced_clear(&one);
}

static void no_placement_changes_a_bit(void **state)
{
    static const struct way ways[] = {
        {1, 2, STATES, ", \"update\": \"host\"", false},
        {2, 3, STATES PARAMS, ", \"tile_bytes\": 200", true},
        {1, 1, NULL, ", \"recompute\": \"blocks\"", false},
        {2, 2, NULL, ", \"schedule\": \"vertical\"", false},
    };
    (void)state;
    check_ways(&(struct sliced){.model = sliced_models.odd, .tensor = 2}, 1e-4, ways, SW_LEN(ways));
}

static void bf16_follows_one_rank(void **state)
{
    static const struct way ways[] = {
        {1, 3, DISK("optimizer") DISK("param"), NULL, false},
        {2, 3, STATES PARAMS, ", \"recompute\": \"blocks\"", false},
    };
    (void)state;
    check_ways(&(struct sliced){.model = sliced_models.shared,
                                .tensor = 4,
                                .top = "\"bf16\": {\"enabled\": true}, "},
               2e-2, ways, SW_LEN(ways));
}

/* Ranks skip the same steps, and change the scale alike. */
static void fp16_follows_one_rank(void **state)
{
    static const struct way ways[] = {
        {1, 3, STATES PARAMS, ", \"tile_bytes\": 100", true},
        {2, 3, DISK("optimizer") DISK("param") ", \"sub_group_size\": 450",
         ", \"recompute\": \"blocks\", \"schedule\": \"vertical\"", false},
    };
    (void)state;
    check_ways(&(struct sliced){.model = sliced_models.odd,
                                .tensor = 2,
                                .top = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": "
                                       "19, \"loss_scale_window\": 3}, "},
               2e-2, ways, SW_LEN(ways));
}

static void use_mock(struct sw_engine_options *o)
{
    o->run.device = "mock";
}

static void use_emu(struct sw_engine_options *o)
{
    o->run.device = "emu";
}

/* On devices whose memory no other rank reaches. */
static void devices_follow_one_rank(void **state)
{
    static const struct way ways[] = {{2, 3, STATES PARAMS, NULL, false}};
    struct sw_device *emu = NULL;
    (void)state;
    check_ways(&(struct sliced){.model = sliced_models.odd, .tensor = 2, .ask = use_mock}, 1e-4,
               ways, 1);
    if (sw_device_open("emu", 1, &emu) < 0) {
        print_message("not on an emulated GPU: %s\n", sw_error_message());
        return;
    }
    sw_device_close(emu);
    check_ways(&(struct sliced){.model = sliced_models.odd, .tensor = 2, .ask = use_emu}, 1e-4,
               ways, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_placement_changes_a_bit),
    cmocka_unit_test(bf16_follows_one_rank),
    cmocka_unit_test(fp16_follows_one_rank),
    cmocka_unit_test(devices_follow_one_rank),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = sliced_set_up};
