// SPDX-License-Identifier: Apache-2.0
// Tests that ranks and coordinates are inverse maps, that groups partition the ranks, and that the
// order is that of DeepSpeed's topology.
#include "layout/layout.h"
#include "support/test.h"

enum { MOST = 96 };

/* Members differ along these axes only, and each rank is in exactly one group. */
static void check_groups(const struct sw_mesh *mesh, unsigned axes)
{
    const int n = sw_mesh_ranks(mesh);
    int met[MOST] = {0};
    for (int rank = 0; rank < n; rank++) {
        int place[SW_AXIS_COUNT], ranks[MOST];
        sw_mesh_place(mesh, rank, place);
        assert_int_equal(sw_mesh_rank(mesh, place), rank);
        const struct sw_group group = sw_mesh_group(mesh, axes, rank, ranks);
        assert_int_equal(group.n, sw_mesh_size(mesh, axes));
        assert_int_equal(group.ranks[group.me], rank);
        const struct sw_coord coord = sw_mesh_coord(mesh, axes, rank);
        assert_int_equal(coord.rank, group.me);
        assert_int_equal(coord.size, group.n);
        for (int i = 0; i < group.n; i++) {
            int other[SW_AXIS_COUNT];
            sw_mesh_place(mesh, group.ranks[i], other);
            met[group.ranks[i]]++;
            assert_true(i == 0 || group.ranks[i] > group.ranks[i - 1]);
            for (int a = 0; a < SW_AXIS_COUNT; a++) {
                assert_true((axes >> a & 1) || other[a] == place[a]);
            }
        }
    }
    for (int rank = 0; rank < n; rank++) {
        assert_int_equal(met[rank], sw_mesh_size(mesh, axes)); /* once for each member */
    }
}

static void places_and_groups(void **state)
{
    (void)state;
    static const int sizes[][SW_AXIS_COUNT] = {
        {1, 1, 1, 1, 1}, {3, 1, 5, 1, 4}, {2, 3, 2, 2, 4}, {1, 7, 1, 3, 1}, {4, 1, 3, 1, 2}};
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        struct sw_mesh mesh;
        int n = 1;
        for (int a = 0; a < SW_AXIS_COUNT; a++) {
            n *= sizes[i][a];
        }
        assert_int_equal(sw_mesh_init(&mesh, sizes[i], n), SW_OK);
        assert_int_equal(sw_mesh_ranks(&mesh), n);
        for (unsigned axes = 0; axes <= SW_ALL_AXES; axes++) {
            check_groups(&mesh, axes);
        }
    }
    check_groups(&(struct sw_mesh){{0}}, SW_ALL_AXES);
}

static void the_order_is_deepspeeds(void **state)
{
    (void)state;
    const int size[] = {2, 1, 2, 1, 2};
    const int place[] = {1, 0, 0, 0, 1};
    struct sw_mesh mesh;
    char text[64];
    assert_int_equal(sw_mesh_init(&mesh, size, 8), SW_OK);
    assert_int_equal(sw_mesh_rank(&mesh, place), 5); /* the tensor axis runs fastest */
    assert_string_equal(sw_mesh_format(&mesh, 5, text, sizeof text), "pipe_01-data_00-tensor_01");
    mesh = sw_mesh_of_data(12);
    assert_string_equal(sw_mesh_format(&mesh, 11, text, sizeof text), "data_11");
    mesh = sw_mesh_of_data(1);
    assert_string_equal(sw_mesh_format(&mesh, 0, text, sizeof text), "");
    const struct sw_group world = {.axes = SW_ALL_AXES}, data = {.axes = 1U << SW_AXIS_DATA},
                          both = {.axes = 1U << SW_AXIS_DATA | 1U << SW_AXIS_TENSOR};
    assert_string_equal(sw_group_format(&world, text, sizeof text), "world");
    assert_string_equal(sw_group_format(&data, text, sizeof text), "data");
    assert_string_equal(sw_group_format(&both, text, sizeof text), "data-tensor");
}

static void wrong_sizes_are_named(void **state)
{
    (void)state;
    static const int none[] = {1, 1, 0, 1, 1}, other[] = {2, 1, 2, 1, 1},
                     huge[] = {INT32_MAX, INT32_MAX, 64, 1, 1};
    struct sw_mesh mesh;
    assert_int_equal(sw_mesh_init(&mesh, none, 1), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "along data"));
    assert_int_equal(sw_mesh_init(&mesh, other, 6), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "pipe 2 x data 2 are not the 6 ranks"));
    assert_int_equal(sw_mesh_init(&mesh, huge, 6), SW_E_ARG);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(places_and_groups),
    cmocka_unit_test(the_order_is_deepspeeds),
    cmocka_unit_test(wrong_sizes_are_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
