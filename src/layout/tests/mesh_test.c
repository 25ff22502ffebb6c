// SPDX-License-Identifier: Apache-2.0
// Ranks and coordinates are each other's inverse, groups cut the ranks into disjoint ones, and the
// order is that of DeepSpeed's topology.
#include "layout/layout.h"
#include "support/test.h"

enum { MOST = 60 };

static void check_mesh(const int size[SW_AXIS_COUNT])
{
    struct sw_mesh mesh;
    const int n = size[0] * size[1] * size[2];
    assert_int_equal(sw_mesh_init(&mesh, size, n), SW_OK);
    assert_int_equal(sw_mesh_ranks(&mesh), n);
    for (int axis = 0; axis < SW_AXIS_COUNT; axis++) {
        int met[MOST] = {0};
        for (int rank = 0; rank < n; rank++) {
            int place[SW_AXIS_COUNT], group[MOST];
            sw_mesh_place(&mesh, rank, place);
            assert_int_equal(sw_mesh_rank(&mesh, place), rank);
            sw_mesh_group(&mesh, (enum sw_axis)axis, rank, group);
            assert_int_equal(group[place[axis]], rank);
            for (int i = 0; i < size[axis]; i++) {
                int other[SW_AXIS_COUNT];
                sw_mesh_place(&mesh, group[i], other);
                met[group[i]]++;
                assert_true(i == 0 || group[i] > group[i - 1]);
                for (int a = 0; a < SW_AXIS_COUNT; a++) {
                    assert_int_equal(other[a], a == axis ? i : place[a]);
                }
            }
        }
        for (int rank = 0; rank < n; rank++) {
            assert_int_equal(met[rank], size[axis]); /* once for each member of its group */
        }
    }
}

static void places_and_groups(void **state)
{
    (void)state;
    for (int pipe = 1; pipe <= 3; pipe++) {
        for (int data = 1; data <= 5; data++) {
            for (int tensor = 1; tensor <= 4; tensor++) {
                const int size[] = {pipe, data, tensor};
                check_mesh(size);
            }
        }
    }
}

static void the_order_is_deepspeeds(void **state)
{
    (void)state;
    const int size[] = {2, 2, 2};
    const int place[] = {1, 0, 1};
    struct sw_mesh mesh;
    char text[64];
    assert_int_equal(sw_mesh_init(&mesh, size, 8), SW_OK);
    assert_int_equal(sw_mesh_rank(&mesh, place), 5); /* tensor runs fastest */
    assert_string_equal(sw_mesh_format(&mesh, 5, text, sizeof text), "pipe_01-data_00-tensor_01");
    mesh = sw_mesh_of_data(12);
    assert_string_equal(sw_mesh_format(&mesh, 11, text, sizeof text), "data_11");
    mesh = sw_mesh_of_data(1);
    assert_string_equal(sw_mesh_format(&mesh, 0, text, sizeof text), "");
}

static void wrong_sizes_are_named(void **state)
{
    (void)state;
    static const int none[] = {1, 0, 1}, other[] = {2, 2, 1}, huge[] = {INT32_MAX, INT32_MAX, 64};
    struct sw_mesh mesh;
    assert_int_equal(sw_mesh_init(&mesh, none, 1), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "along data"));
    assert_int_equal(sw_mesh_init(&mesh, other, 6), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "are not the 6 ranks"));
    assert_int_equal(sw_mesh_init(&mesh, huge, 6), SW_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_groups),
        cmocka_unit_test(the_order_is_deepspeeds),
        cmocka_unit_test(wrong_sizes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
