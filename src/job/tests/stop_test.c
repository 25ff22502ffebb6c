// SPDX-License-Identifier: Apache-2.0
// COST 2
// A training that is told to stop ends after the current step, or right after the sample or save in
// progress. All ranks stop at the same step.
#include <signal.h>
#include <stdlib.h>

#include "base/base.h"
#include "spillway/train.h"
#include "support/scratch.h"
#include "support/test.h"

/* The output of a training. `stop` is set once it contains `word`. */
struct lines {
    const char *word;
    struct sw_str text; /* so far */
    volatile sig_atomic_t stop;
};

static ssize_t take(void *ctx, const char *text, size_t len)
{
    struct lines *lines = ctx;
    sw_str_append(&lines->text, text, len);
    const bool found = strstr(sw_str_text(&lines->text), lines->word) != NULL;
    __atomic_store_n(&lines->stop, found, __ATOMIC_RELAXED); /* rank threads read it */
    return (ssize_t)len;
}

/* The step at which a training ends if it is told to stop at `word`. */
static int64_t stops_at(const char *word, int64_t save_every, int64_t sample_every, int ranks)
{
    static int n;
    struct lines lines = {.word = word};
    char data[96], run[96];
    struct sw_train_result result;
    bool started;
    FILE *out = fopencookie(&lines, "w", (cookie_io_functions_t){.write = take});
    setvbuf(out, NULL, _IONBF, 0);
    snprintf(data, sizeof data, "%s/text.txt", test_folder());
    snprintf(run, sizeof run, "%s/run-%d", test_folder(), n++);
    assert_int_equal(sw_file_write_atomic(data, "abcdefgh hgfedcba abcdefgh hgfedcba\n", 36),
                     SW_OK);
    const char *file = data, *set = "train_micro_batch_size_per_gpu=1";
    const struct sw_train_options o = {.model = "gpt2-tiny",
                                       .data = &file,
                                       .n_data = 1,
                                       .output = run,
                                       .ranks = ranks,
                                       .steps = 6,
                                       .seq_len = 8,
                                       .sets = &set,
                                       .n_sets = 1,
                                       .save_every = save_every,
                                       .sample_every = sample_every,
                                       .sample_tokens = 2,
                                       .no_export = true,
                                       .export_dtype = -1,
                                       .stop = &lines.stop};
    if (sw_train(&o, out, &started, &result) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(out);
    sw_str_fini(&lines.text);
    assert_int_equal(result.stopped, result.step < o.steps);
    return result.step;
}

static void it_ends_after_the_step_at_hand(void **state)
{
    (void)state;
    assert_int_equal(stops_at("step 3/6", 0, 0, 1), 4);
    assert_int_equal(stops_at("nothing says so", 2, 2, 1), 6);
}

/* The line of a step is printed when all ranks have agreed whether to stop. The save follows it. */
static void it_ends_right_after_a_saving_or_a_sample(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        assert_int_equal(stops_at("step 3/6", 3, 0, ranks), 3);
        assert_int_equal(stops_at("--- sample at step 2", 0, 2, ranks), 2);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_ends_after_the_step_at_hand),
    cmocka_unit_test(it_ends_right_after_a_saving_or_a_sample),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
