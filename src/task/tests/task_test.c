// SPDX-License-Identifier: Apache-2.0
// Consistency of the table's rows. Losses name label inputs, and each label belongs to a loss. A
// head is a task with the same inputs and losses, unless samples are pairs of rows. Names lead back
// to their rows.
#include <math.h>
#include <string.h>

#include "support/test.h"
#include "task/task.h"

static void each_label_has_a_loss_and_each_loss_a_label(void **state)
{
    (void)state;
    for (int i = 0; sw_task_at(i); i++) {
        const struct sw_task *task = sw_task_at(i);
        assert_true(task->n_inputs <= SW_TASK_MAX_INPUTS && task->n_losses <= SW_TASK_MAX_LOSSES);
        for (int k = 0; k < task->n_losses; k++) {
            const struct sw_task_input *labels = sw_task_input_of(task, task->losses[k].labels);
            assert_true(labels && labels->is_label);
            const enum sw_loss_kind kind = task->losses[k].kind;
            const bool numbers = kind == SW_LOSS_BITS || kind == SW_LOSS_SQUARES ||
                                 kind == SW_LOSS_REWARD || kind == SW_LOSS_CONTRAST;
            assert_int_equal(labels->dtype, numbers ? SW_F32 : SW_I32);
            assert_int_equal(labels->pad, SW_PAD_IGNORED);
        }
        for (int k = 0; k < task->n_inputs; k++) {
            const struct sw_task_input *input = &task->inputs[k];
            const bool compared = strcmp(input->name, SW_TASK_REFERENCE) == 0 ||
                                  strcmp(input->name, SW_TASK_OFFSETS) == 0 ||
                                  strcmp(input->name, SW_TASK_WEIGHTS) == 0 ||
                                  strcmp(input->name, "kinds") == 0;
            assert_int_equal(input->is_label,
                             compared || sw_task_loss_of(task, input->name) != NULL);
            assert_ptr_equal(sw_task_input_of(task, input->name), input); /* names are unique */
        }
    }
}

static void a_head_serves_tasks_of_the_same_inputs_and_losses(void **state)
{
    (void)state;
    for (int i = 0; sw_task_at(i); i++) {
        const struct sw_task *task = sw_task_at(i), *head = sw_task_of(task->head);
        assert_non_null(head);
        if (sw_task_rows(task) == 1) { /* preferences compare what the head says of two rows */
            assert_ptr_equal(head->inputs, task->inputs);
            assert_ptr_equal(head->losses, task->losses);
        }
        assert_ptr_equal(sw_task_of(task->name), task);
    }
    assert_null(sw_task_of("none such"));
}

static void shapes_are_made_of_the_sizes_of_a_batch(void **state)
{
    const struct sw_task_sizes sizes = {{2, 7, 5, 3, 1, 8, 9}};
    const struct sw_task *pairs = sw_task_of("seq2seq"), *images = sw_task_of("images");
    (void)state;
    const struct sw_shape labels = sw_task_shape(sw_task_input_of(pairs, "labels"), &sizes);
    const struct sw_shape pixels = sw_task_shape(sw_task_input_of(images, "pixel_values"), &sizes);
    const struct sw_shape two = SW_SHAPE(2, 5), four = SW_SHAPE(2, 1, 8, 9);
    assert_true(sw_shape_equal(&labels, &two));
    assert_true(sw_shape_equal(&pixels, &four));
}

static void metrics_have_names_and_a_better_side(void **state)
{
    (void)state;
    for (int i = 0; i < SW_METRIC_COUNT; i++) {
        assert_int_equal(sw_metric_of(sw_metric_name((enum sw_metric)i)), i);
    }
    assert_int_equal(sw_metric_of("speed"), SW_METRIC_COUNT);
    assert_true(sw_metric_is_better(SW_METRIC_PERPLEXITY, 2, 3));
    assert_true(sw_metric_is_better(SW_METRIC_ACCURACY, 0.9, 0.8));
    assert_false(sw_metric_is_better(SW_METRIC_ACCURACY, 0.8, 0.8));
    assert_true(sw_metric_is_better(SW_METRIC_ACCURACY, 0.1, NAN));
    assert_false(sw_metric_is_better(SW_METRIC_ACCURACY, NAN, 0.1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_label_has_a_loss_and_each_loss_a_label),
    cmocka_unit_test(a_head_serves_tasks_of_the_same_inputs_and_losses),
    cmocka_unit_test(shapes_are_made_of_the_sizes_of_a_batch),
    cmocka_unit_test(metrics_have_names_and_a_better_side),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
