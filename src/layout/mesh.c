// SPDX-License-Identifier: Apache-2.0
// Converts between ranks and coordinates.
#include "layout/layout.h"

#include <stdio.h>
#include <string.h>

const char *sw_axis_name(enum sw_axis axis)
{
    static const char *const names[SW_AXIS_COUNT] = {"pipe", "expert", "data", "context", "tensor"};
    return names[axis];
}

sw_status sw_mesh_init(struct sw_mesh *mesh, const int size[SW_AXIS_COUNT], int n_ranks)
{
    int64_t product = 1;
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        if (size[a] < 1) {
            return SW_FAIL(SW_E_ARG, "mesh: %d ranks along %s; wanted at least 1", size[a],
                           sw_axis_name((enum sw_axis)a));
        }
        if (!sw_mul_i64(product, size[a], &product)) {
            product = -1;
            break;
        }
    }
    if (product != n_ranks) {
        char text[256] = "";
        size_t len = 0;
        for (int a = 0; a < SW_AXIS_COUNT; a++) {
            if (size[a] > 1 && len < sizeof text) {
                len += (size_t)snprintf(text + len, sizeof text - len, "%s%s %d", len ? " x " : "",
                                        sw_axis_name((enum sw_axis)a), size[a]);
            }
        }
        return SW_FAIL(SW_E_ARG, "mesh: %s are not the %d ranks there are", len ? text : "1 rank",
                       n_ranks);
    }
    memcpy(mesh->size, size, sizeof mesh->size);
    return SW_OK;
}

struct sw_mesh sw_mesh_of_data(int n_ranks)
{
    return (struct sw_mesh){{[SW_AXIS_DATA] = n_ranks}};
}

struct sw_mesh sw_mesh_of_pipe_and_data(int n_ranks)
{
    struct sw_mesh mesh = {{0}};
    int *pipe = &mesh.size[SW_AXIS_PIPE], *data = &mesh.size[SW_AXIS_DATA];
    *pipe = *data = 1;
    int n = 0; /* factors so far */
    for (int prime = 2; n_ranks > 1; prime++) {
        for (; n_ranks % prime == 0; n_ranks /= prime) {
            *(n++ % 2 == 0 ? pipe : data) *= prime;
        }
    }
    return mesh;
}

static int size_of(const struct sw_mesh *mesh, int axis)
{
    return mesh->size[axis] > 1 ? mesh->size[axis] : 1;
}

int sw_mesh_size(const struct sw_mesh *mesh, unsigned axes)
{
    int n = 1;
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        n *= (axes >> a & 1) ? size_of(mesh, a) : 1;
    }
    return n;
}

int sw_mesh_ranks(const struct sw_mesh *mesh)
{
    return sw_mesh_size(mesh, SW_ALL_AXES);
}

void sw_mesh_place(const struct sw_mesh *mesh, int rank, int out_place[SW_AXIS_COUNT])
{
    for (int a = SW_AXIS_COUNT - 1; a >= 0; a--) {
        out_place[a] = rank % size_of(mesh, a);
        rank /= size_of(mesh, a);
    }
}

int sw_mesh_rank(const struct sw_mesh *mesh, const int place[SW_AXIS_COUNT])
{
    int rank = 0;
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        rank = rank * size_of(mesh, a) + place[a];
    }
    return rank;
}

void sw_mesh_place_batch(const struct sw_mesh *mesh, int i, int place[SW_AXIS_COUNT])
{
    place[SW_AXIS_EXPERT] = i / size_of(mesh, SW_AXIS_DATA);
    place[SW_AXIS_DATA] = i % size_of(mesh, SW_AXIS_DATA);
}

struct sw_group sw_mesh_group(const struct sw_mesh *mesh, unsigned axes, int rank, int *ranks)
{
    struct sw_group group = {.axes = axes, .n = sw_mesh_size(mesh, axes), .ranks = ranks};
    int place[SW_AXIS_COUNT];
    sw_mesh_place(mesh, rank, place);
    for (int i = 0; i < group.n; i++) {
        int left = i;
        for (int a = SW_AXIS_COUNT - 1; a >= 0; a--) {
            if (axes >> a & 1) {
                place[a] = left % size_of(mesh, a);
                left /= size_of(mesh, a);
            }
        }
        ranks[i] = sw_mesh_rank(mesh, place);
        group.me = ranks[i] == rank ? i : group.me;
    }
    return group;
}

struct sw_group sw_mesh_some(const struct sw_mesh *mesh, enum sw_axis axis, int n, int rank,
                             int *ranks)
{
    int place[SW_AXIS_COUNT];
    sw_mesh_place(mesh, rank, place);
    const int me = place[axis] % n, first = place[axis] - me;
    for (int i = 0; i < n; i++) {
        place[axis] = first + i;
        ranks[i] = sw_mesh_rank(mesh, place);
    }
    return (struct sw_group){1U << axis, n, me, ranks, size_of(mesh, (int)axis)};
}

struct sw_coord sw_mesh_coord(const struct sw_mesh *mesh, unsigned axes, int rank)
{
    struct sw_coord coord = {0, 1};
    int place[SW_AXIS_COUNT];
    sw_mesh_place(mesh, rank, place);
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        if (axes >> a & 1) {
            coord.rank = coord.rank * size_of(mesh, a) + place[a];
            coord.size *= size_of(mesh, a);
        }
    }
    return coord;
}

const char *sw_group_format(const struct sw_group *group, char *buf, size_t cap)
{
    size_t len = (size_t)snprintf(buf, cap, "%s", group->axes == SW_ALL_AXES ? "world" : "");
    for (int a = 0; a < SW_AXIS_COUNT && group->axes != SW_ALL_AXES; a++) {
        if ((group->axes >> a & 1) && len < cap) {
            len += (size_t)snprintf(buf + len, cap - len, "%s%s", len ? "-" : "",
                                    sw_axis_name((enum sw_axis)a));
        }
    }
    if (group->of > 0 && len < cap) {
        snprintf(buf + len, cap - len, ", %d of %d", group->n, group->of);
    }
    return buf;
}

const char *sw_mesh_format(const struct sw_mesh *mesh, int rank, char *buf, size_t cap)
{
    int place[SW_AXIS_COUNT];
    size_t len = 0;
    sw_mesh_place(mesh, rank, place);
    buf[0] = '\0';
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        if (mesh->size[a] > 1 && len < cap) {
            len += (size_t)snprintf(buf + len, cap - len, "%s%s_%02d", len ? "-" : "",
                                    sw_axis_name((enum sw_axis)a), place[a]);
        }
    }
    return buf;
}
