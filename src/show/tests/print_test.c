// SPDX-License-Identifier: Apache-2.0
// Tests a plan as text: it names what runs, the tiers and the micro-batches.
#include "show/show.h"

#include <string.h>

#include "show/tests/tower.h"
#include "support/test.h"

static void says(const struct sw_plan_options *o, const char *const *words)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(SW_F32, TIED | BIAS, false)};
    struct sw_str text = {0};
    assert_int_equal(plan_once(&spec, 1, o, &plan), SW_OK);
    sw_plan_print(plan, true, &text);
    for (; *words; words++) {
        if (!strstr(sw_str_text(&text), *words)) {
            fail_msg("no \"%s\" in\n%s", *words, sw_str_text(&text));
        }
    }
    sw_str_fini(&text);
    sw_plan_close(plan);
}

static void prints_what_runs(void **state)
{
    (void)state;
    static const char *const words[] = {"update",   "linear_ce",   "device", "run forward",
                                        "imagined", "B workspace", "table",  NULL};
    const struct sw_plan_options o = options(1, 0, 1);
    says(&o, words);
}

static void names_the_micro_batches(void **state)
{
    (void)state;
    static const char *const words[] = {"3 micro-batches, block by block", "(micro-batch 2)", NULL};
    struct sw_plan_options o = options(1, 0, 3);
    o.policy.schedule = SW_STEP_VERTICAL;
    says(&o, words);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(prints_what_runs),
    cmocka_unit_test(names_the_micro_batches),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
