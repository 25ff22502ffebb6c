// SPDX-License-Identifier: Apache-2.0
// Tests that the list of a large plan stays small and fast: equal forms are shared, and transfers
// share a cell exactly if they move the same bytes.
#include "plan/private.h"

#include "support/test.h"

static struct sw_ir *empty_list(void)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    struct sw_graph *g;
    struct sw_ir *ir;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    assert_int_equal(sw_ir_open(g, &ir), SW_OK);
    sw_graph_close(g);
    return ir;
}

static void equal_forms_are_one(void **state)
{
    (void)state;
    struct sw_ir *ir = empty_list();
    const sw_value a = sw_ir_new_value(ir, SW_ROLE_TRANSIENT, SW_F32, SW_SHAPE(3, 5));
    const sw_value b = sw_ir_new_value(ir, SW_ROLE_GRAD, SW_BF16, SW_SHAPE(3, 5));
    const sw_value c = sw_ir_new_value(ir, SW_ROLE_TRANSIENT, SW_F32, SW_SHAPE(15));
    assert_ptr_equal(ir->values[a].form, ir->values[b].form);
    assert_ptr_not_equal(ir->values[a].form, ir->values[c].form);
    assert_int_equal(ir->values[a].form->elems, 15);
    for (int64_t n = 1; n < 1000; n++) { /* enough to make the table grow */
        sw_ir_new_value(ir, SW_ROLE_TRANSIENT, SW_F32, SW_SHAPE(n));
    }
    assert_ptr_equal(sw_ir_plain_form(ir, SW_SHAPE(3, 5)), ir->values[a].form);
    assert_ptr_equal(sw_ir_plain_form(ir, SW_SHAPE(15)), ir->values[c].form);

    const struct sw_layout shard =
        sw_layout_sharded(&ir->values[b].form->layout, (struct sw_coord){1, 3}, SW_SQUARES_RUN);
    sw_ir_set_layout(ir, b, &shard); /* changes only this value */
    assert_true(sw_ir_is_slice(&ir->values[b]) && !sw_ir_is_slice(&ir->values[a]));
    assert_int_equal(ir->values[b].form->elems, 8);
    const struct sw_layout gathered = sw_layout_gathered(&shard);
    sw_ir_set_layout(ir, c, &gathered);
    assert_int_equal(sw_ir_storage_bytes(&ir->values[c]), 96);
    assert_int_equal(ir->values[c].form->elems, 15);
    assert_int_equal(sw_ir_storage_bytes(&ir->values[a]), 60);
    sw_ir_close(ir);
}

/* Adds loads and stores of pieces alternately, some with other boundaries. */
static void add_transfers(struct sw_ir *ir, const sw_value *homes, int n_homes, int n)
{
    enum { PIECE = 64, ELEMS = 1 << 12 };
    for (int i = 0; i < n; i++) {
        const int h = i % n_homes;
        const bool odd = i % 7 == 3;
        const int64_t first = (int64_t)(i / n_homes / 2) * PIECE % (ELEMS - PIECE) + (odd ? 9 : 0);
        const sw_value here =
            sw_ir_new_value(ir, SW_ROLE_TRANSIENT, SW_F32, SW_SHAPE(odd ? 2 * PIECE : PIECE));
        const sw_value in[2] = {homes[h], here};
        const bool loads = i / n_homes % 2 == 0;
        const int32_t op =
            sw_ir_add_move(ir, loads ? SW_MOVE_LOAD : SW_MOVE_STORE, in, loads ? 1 : 2);
        assert_true(op >= 0);
        ir->ops[op].first = first;
        if (loads) {
            ir->ops[op].out[0] = here;
            ir->ops[op].n_out = 1;
        } else {
            assert_true(sw_ir_add_out_in_place(ir, op, homes[h]) >= 0);
        }
    }
}

static void transfers_share_cells_where_they_meet(void **state)
{
    enum { N_HOMES = 3, N = 600 };
    (void)state;
    struct sw_ir *ir = empty_list();
    sw_value homes[N_HOMES];
    struct sw_cells cells;
    int n_meet = 0;
    for (int h = 0; h < N_HOMES; h++) {
        const char *const names[N_HOMES] = {"a", "b", "c"};
        homes[h] = sw_ir_state(ir, names[h], SW_F32, SW_SHAPE(1 << 13));
        ir->values[homes[h]].tier = SW_TIER_DISK;
    }
    add_transfers(ir, homes, N_HOMES, N);
    assert_int_equal(sw_cells_open(&cells, ir), SW_OK);
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_range x = sw_transfer_range(ir, &ir->ops[i]);
        const struct sw_cell_range a = cells.of[i];
        assert_true(a.first >= 0 && a.first < a.end && a.end <= cells.n);
        for (int32_t j = 0; j < i; j++) {
            const struct sw_range y = sw_transfer_range(ir, &ir->ops[j]);
            const struct sw_cell_range b = cells.of[j];
            const bool meet =
                ir->ops[i].in[0] == ir->ops[j].in[0] && x.first < y.end && y.first < x.end;
            assert_int_equal(meet, a.first < b.end && b.first < a.end);
            n_meet += meet;
        }
    }
    assert_true(n_meet > 0);
    sw_cells_close(&cells);
    sw_ir_close(ir);
}

/* A move with the inputs and outputs of its row is accepted. With one input more, another output in
 * place, an output less or one too many it is not. */
static void a_move_has_the_operands_of_its_row(void **state)
{
    (void)state;
    for (int move = SW_MOVE_NONE + 1; move < SW_N_MOVES; move++) {
        const struct sw_move_info *info = sw_move_info((enum sw_move)move);
        struct sw_ir *ir = empty_list();
        sw_value in[SW_MOVE_OPERANDS], operands[SW_MOVE_OPERANDS];
        for (int k = 0; k < SW_MOVE_OPERANDS; k++) {
            in[k] = sw_ir_new_value(ir, SW_ROLE_TRANSIENT, SW_F32, SW_SHAPE(8));
        }
        const bool in_place =
            !info->operands[0].is_output && info->operands[0].access != SW_ACCESS_READ;
        bool writes = false;
        for (int k = 0; k < info->n_operands; k++) {
            writes |= info->operands[k].access != SW_ACCESS_READ;
        }
        for (int rows = 0; rows <= (info->n_optional > 0); rows++) {
            const int n_in = info->n_in + (rows ? info->n_optional : 0);
            const int32_t i = sw_ir_add_move(ir, (enum sw_move)move, in, n_in);
            const sw_value out = !writes    ? SW_NO_VALUE
                                 : in_place ? sw_ir_add_out_in_place(ir, i, in[0])
                                            : sw_ir_add_out(ir, i, SW_F32, SW_SHAPE(8));
            struct sw_ir_op op = ir->ops[i];
            assert_int_equal(sw_move_check(ir, &op), SW_OK);
            const int n = sw_move_operands(&op, operands);
            assert_int_equal(n, info->n_operands + (rows ? info->n_optional : 0));
            for (int k = 0; k < n; k++) {
                assert_true(operands[k] == out || operands[k] == in[info->operands[k].index]);
                assert_int_equal(operands[k] == out, info->operands[k].is_output);
            }
            op.n_in++;
            assert_int_equal(sw_move_check(ir, &op),
                             info->n_optional == 1 && !rows ? SW_OK : SW_E_ARG);
            op = ir->ops[i];
            op.out[0] = in[3];
            assert_int_equal(sw_move_check(ir, &op), in_place ? SW_E_ARG : SW_OK);
            op.n_out = !writes;
            assert_int_equal(sw_move_check(ir, &op), SW_E_ARG);
        }
        assert_non_null(info->name);
        sw_ir_close(ir);
    }
}

/* Every micro-batch runs every stretch once, in order, and forward is complete before backward if
 * one run has all micro-batches. */
static void schedules_are_permutations(void **state)
{
    enum { MOST = 12 };
    (void)state;
    for (int s = 0; s < SW_STEP_SCHEDULE_COUNT; s++) {
        const struct sw_schedule_info *info = sw_schedule_info((enum sw_step_schedule)s);
        for (int32_t stretches = 1; stretches <= MOST; stretches++) {
            for (int micro_batches = 1; micro_batches <= MOST; micro_batches++) {
                const struct sw_order order = {stretches, stretches / 2, micro_batches};
                int32_t next[MOST] = {0};
                bool in_backward = false;
                for (int64_t i = 0; i < (int64_t)stretches * micro_batches; i++) {
                    const struct sw_turn turn = info->turn(&order, i);
                    assert_in_range(turn.micro, 0, micro_batches - 1);
                    assert_int_equal(turn.stretch, next[turn.micro]);
                    next[turn.micro]++;
                    assert_false(info->at_once && in_backward && turn.stretch < order.forward);
                    in_backward |= turn.stretch >= order.forward;
                }
                for (int m = 0; m < micro_batches; m++) {
                    assert_int_equal(next[m], stretches);
                }
            }
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(equal_forms_are_one),
    cmocka_unit_test(schedules_are_permutations),
    cmocka_unit_test(a_move_has_the_operands_of_its_row),
    cmocka_unit_test(transfers_share_cells_where_they_meet),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
