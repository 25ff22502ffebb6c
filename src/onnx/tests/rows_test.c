// SPDX-License-Identifier: Apache-2.0
// Every kind of op has nodes or a reason, and every op of every family's forward has nodes.
#include <stdio.h>
#include <string.h>

#include "onnx/onnx.h"
#include "onnx/tests/models.h"
#include "support/test.h"

static void every_kind_of_op_has_nodes_or_a_reason(void **state)
{
    (void)state;
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        const struct sw_op op = {.kind = (enum sw_op_kind)kind};
        const char *reason = sw_onnx_reason((enum sw_op_kind)kind);
        if (reason && !*reason) {
            fail_msg("op \"%s\": src/onnx/rows.c has no row for it: write its nodes, or a reason "
                     "why no export has it",
                     sw_op_name(&op));
        }
    }
}

/* Marks the ops that the outputs depend on. */
static void mark(const struct sw_graph *g, bool *needed, bool *wanted)
{
    for (int32_t i = 0; i < g->n_outputs; i++) {
        wanted[g->outputs[i].value] = true;
    }
    for (int32_t i = g->n_ops - 1; i >= 0; i--) {
        const struct sw_op *op = &g->ops[i];
        for (int k = 0; k < op->n_out; k++) {
            needed[i] = needed[i] || (op->out[k] >= 0 && wanted[op->out[k]]);
        }
        for (int k = 0; k < op->n_in && needed[i]; k++) {
            wanted[op->in[k]] = true;
        }
    }
}

static void check_forward(const char *class_name, const struct sw_model *model)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    const struct sw_forward_spec spec = {
        .batch = 2, .tokens = 4, .targets = 3, .has_mask = true, .want_logits = true};
    struct sw_graph *g = NULL;
    sw_value loss;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    model->ops->forward(model, g, &spec, &loss);
    if (sw_graph_status(g) < 0) {
        fail_msg("%s: %s", class_name, sw_error_message());
    }
    bool *needed = sw_alloc_zero("test", (size_t)g->n_ops + 1, sizeof *needed);
    bool *wanted = sw_alloc_zero("test", (size_t)g->n_values + 1, sizeof *wanted);
    mark(g, needed, wanted);
    for (int32_t i = 0; i < g->n_ops; i++) {
        const char *reason = sw_onnx_reason(g->ops[i].kind);
        if (reason && needed[i]) {
            fail_msg("%s: its forward has op \"%s\", which has no nodes in src/onnx/rows.c (%s)",
                     class_name, sw_op_name(&g->ops[i]), *reason ? reason : "and no reason");
        }
    }
    sw_free(needed);
    sw_free(wanted);
    sw_graph_close(g);
}

/* The families that `spillway models` lists, with each of their classes. */
static void every_op_of_every_forward_has_nodes(void **state)
{
    (void)state;
    struct sw_str list = {0};
    int n = 0;
    sw_model_list(&list);
    for (char *rest = list.ptr, *line; (line = strsep(&rest, "\n"));) {
        char type[64];
        const struct sw_model_ops *family =
            sscanf(line, "%63s", type) == 1 ? sw_model_family(type) : NULL;
        for (int i = 0; family && i < SW_MODEL_MAX_CLASSES && family->classes[i].name; i++) {
            char config[256];
            snprintf(config, sizeof config, "{\"model_type\":\"%s\",\"architectures\":[\"%s\"]}",
                     type, family->classes[i].name);
            struct sw_model *model = test_model(config);
            check_forward(family->classes[i].name, model);
            sw_model_close(model);
            n++;
        }
    }
    sw_str_fini(&list);
    assert_true(n >= 40);
}

static void the_table_of_the_documentation_is_that_of_the_rows(void **state)
{
    (void)state;
    struct sw_str list = {0};
    char *page;
    size_t len;
    if (sw_file_read("docs/onnx.md", &page, &len) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_onnx_list(&list);
    if (!strstr(page, sw_str_text(&list))) {
        fail_msg("docs/onnx.md: its table of operators is not this one:\n%s", sw_str_text(&list));
    }
    sw_str_clear(&list);
    sw_onnx_list_patterns(&list);
    if (!strstr(page, sw_str_text(&list))) {
        fail_msg("docs/onnx.md: its table of patterns is not this one:\n%s", sw_str_text(&list));
    }
    sw_str_fini(&list);
    sw_free(page);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_kind_of_op_has_nodes_or_a_reason),
    cmocka_unit_test(every_op_of_every_forward_has_nodes),
    cmocka_unit_test(the_table_of_the_documentation_is_that_of_the_rows),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
