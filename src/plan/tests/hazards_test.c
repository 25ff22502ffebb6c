// SPDX-License-Identifier: Apache-2.0
// Tests which write to disk follows which: random writes are compared one with another.
#include "plan/private.h"
#include "support/test.h"

enum { MOST = 60 };

struct writes {
    struct sw_instr instrs[MOST];
    struct sw_operand operands[MOST];
    struct sw_loop loops[MOST];
    struct sw_program program;
};

static uint64_t draw(uint64_t seed, int i, uint64_t below)
{
    return sw_philox_u64(seed, 3, (uint64_t)i) % below;
}

/* Some instructions read; some writes are loops of pieces. */
static void draw_writes(struct writes *w, uint64_t seed)
{
    w->program = (struct sw_program){
        .instrs = w->instrs, .operands = w->operands, .loops = w->loops, .n_instrs = MOST};
    for (int i = 0; i < MOST; i++) {
        const bool loops = draw(seed, 8 * i, 4) == 0;
        const bool reads = draw(seed, 8 * i + 1, 4) == 0;
        const size_t bytes = 1 + draw(seed, 8 * i + 2, 50);
        w->instrs[i] = (struct sw_instr){.queue = reads ? SW_QUEUE_READ : SW_QUEUE_WRITE,
                                         .turn.loop = loops ? i + 1 : 0,
                                         .operands = i};
        w->loops[i] = (struct sw_loop){i, 1, 1 + (int32_t)draw(seed, 8 * i + 3, 5)};
        w->operands[i] = (struct sw_operand){.offset = draw(seed, 8 * i + 4, 2000),
                                             .bytes = bytes,
                                             .tier = SW_TIER_DISK,
                                             .ring[1] = {.stride = bytes, .by = SW_RING_PIECE}};
    }
}

static bool overlap(const struct writes *w, int i, int j)
{
    size_t first[2], end[2];
    for (int k = 0; k < 2; k++) {
        const int of = k == 0 ? i : j;
        const int32_t pieces = w->instrs[of].turn.loop > 0 ? w->loops[of].pieces : 1;
        first[k] = w->operands[of].offset;
        end[k] = first[k] + w->operands[of].bytes * (size_t)pieces;
    }
    return first[0] < end[1] && first[1] < end[0];
}

static void a_write_follows_the_latest_of_the_same_bytes(void **state)
{
    (void)state;
    int n_found = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        static struct writes w;
        draw_writes(&w, seed);
        assert_int_equal(sw_pass_hazards(&w.program), SW_OK);
        for (int i = 0; i < MOST; i++) {
            int32_t wanted = -1;
            for (int j = 0; j < i; j++) {
                const bool both =
                    w.instrs[i].queue == SW_QUEUE_WRITE && w.instrs[j].queue == SW_QUEUE_WRITE;
                wanted = both && overlap(&w, i, j) ? j : wanted;
            }
            assert_int_equal(w.instrs[i].follows, wanted);
            n_found += wanted >= 0;
        }
    }
    assert_true(n_found > 100 && n_found < 50 * MOST);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_write_follows_the_latest_of_the_same_bytes),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
