// SPDX-License-Identifier: Apache-2.0
// The partition of a model by time, by elements and by names of blocks, on graphs whose best cuts
// are plain.
#include "engine/private.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 16, BLOCKS = 4 };

static sw_value weight(struct sw_graph *g, const char *name, int64_t rows)
{
    return sw_param(g, name, SW_SHAPE(rows, WIDTH), (struct sw_init){SW_INIT_NORMAL, 0.1});
}

/* Blocks `first` to `end` - 1. The first two only move bytes; the others have a product each. */
static sw_value add_blocks(struct sw_graph *g, sw_value h, int first, int end)
{
    for (int i = first; i < end; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.%d", i < 2 ? "reader" : "writer", i);
        sw_scope_push_block(g, name);
        for (int k = 0; i < 2 && k < 8; k++) {
            h = sw_act(g, h, SW_ACT_GELU);
        }
        snprintf(name, sizeof name, "weight.%d", i);
        h = i < 2 ? h : sw_linear(g, h, weight(g, name, WIDTH), SW_NO_VALUE, true);
        sw_scope_pop(g);
    }
    return h;
}

/* A program with some of the blocks. rows: of the table and of the head; 0 = it has no head */
static struct sw_graph *program(int first, int end, int64_t rows, bool trains)
{
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .training = trains};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value ids = sw_input(g, "ids", SW_I32, SW_SHAPE(8, 8));
    sw_value h = sw_embedding(g, weight(g, "table", 8), ids, -1);
    h = add_blocks(g, h, first, end);
    if (rows > 0) {
        const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(8, 8));
        const sw_value loss =
            sw_linear_cross_entropy(g, h, weight(g, "head", rows), SW_NO_VALUE, labels, 0);
        sw_output(g, "loss", loss);
        assert_int_equal(trains ? sw_graph_backward(g, loss) : sw_graph_status(g), SW_OK);
    }
    return g;
}

static void cut(const struct sw_program_spec *specs, int n, struct sw_partition_config partition,
                double products, double bytes, int bounds[3])
{
    const struct sw_config config = {.parallel = {.pipe = 2, .chunks = 1, .partition = partition}};
    struct sw_machine_rates rates = {.work = {0}};
    for (int i = 0; i < SW_LOAD_COUNT; i++) {
        rates.work[i] = i == SW_LOAD_OTHER ? bytes : products;
    }
    if (sw_engine_cut_blocks(specs, n, &config, &rates, 2, bounds) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_true(bounds[0] == 0 && bounds[2] == BLOCKS);
}

static void time_follows_the_rates(void **state)
{
    const struct sw_partition_config by = {.by = SW_PARTITION_TIME};
    struct sw_program_spec spec = {SW_PROGRAM_TRAIN, program(0, BLOCKS, 8, true)};
    int bounds[3];
    (void)state;
    cut(&spec, 1, by, 1e15, 1e6, bounds); /* products take no time */
    assert_int_equal(bounds[1], 1);
    cut(&spec, 1, by, 1e6, 1e15, bounds); /* only products do: two equal blocks, and a small head */
    assert_int_equal(bounds[1], 3);
    sw_graph_close((struct sw_graph *)(uintptr_t)spec.graph);
    /* with a large head, the last stage has nothing else */
    spec.graph = program(0, BLOCKS, 4096, true);
    cut(&spec, 1, by, 1e6, 1e15, bounds);
    assert_int_equal(bounds[1], BLOCKS);
    sw_graph_close((struct sw_graph *)(uintptr_t)spec.graph);
}

/* Without training, all programs count. Blocks are numbered over all of them. */
static void programs_are_cut_together(void **state)
{
    const struct sw_program_spec specs[] = {{SW_PROGRAM_DECODE, program(0, 2, 0, false)},
                                            {SW_PROGRAM_DECODE, program(2, BLOCKS, 8, false)}};
    int bounds[3];
    (void)state;
    cut(specs, 2, (struct sw_partition_config){.by = SW_PARTITION_TIME}, 1e15, 1e6, bounds);
    assert_int_equal(bounds[1], 1);
    /* the two weights and the head count once; so does the table, which both programs have */
    cut(specs, 2, (struct sw_partition_config){.by = SW_PARTITION_PARAMETERS}, 1, 1, bounds);
    assert_int_equal(bounds[1], 3);
    for (int i = 0; i < 2; i++) {
        sw_graph_close((struct sw_graph *)(uintptr_t)specs[i].graph);
    }
}

static void blocks_are_chosen_by_name(void **state)
{
    static const struct {
        const char *type;
        int bound;
    } cases[] = {{"Reader", 1}, {"writer\\.", 3}, {"r", 2}};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, program(0, BLOCKS, 8, true)};
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        int bounds[3];
        cut(&spec, 1, (struct sw_partition_config){.by = SW_PARTITION_TYPE, .type = cases[i].type},
            1, 1, bounds);
        assert_int_equal(bounds[1], cases[i].bound);
    }
    sw_graph_close((struct sw_graph *)(uintptr_t)spec.graph);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(time_follows_the_rates),
    cmocka_unit_test(programs_are_cut_together),
    TEST_IF(SW_HAVE_PCRE2, blocks_are_chosen_by_name),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
