// SPDX-License-Identifier: Apache-2.0
// Ranks and coordinates.
#include "layout/layout.h"

#include <stdio.h>
#include <string.h>

const char *sw_axis_name(enum sw_axis axis)
{
    static const char *const names[SW_AXIS_COUNT] = {"pipe", "data", "tensor"};
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
        return SW_FAIL(SW_E_ARG,
                       "mesh: pipe %d x data %d x tensor %d are not the %d ranks there are",
                       size[SW_AXIS_PIPE], size[SW_AXIS_DATA], size[SW_AXIS_TENSOR], n_ranks);
    }
    memcpy(mesh->size, size, sizeof mesh->size);
    return SW_OK;
}

struct sw_mesh sw_mesh_of_data(int n_ranks)
{
    return (struct sw_mesh){{1, n_ranks, 1}};
}

int sw_mesh_ranks(const struct sw_mesh *mesh)
{
    return mesh->size[0] * mesh->size[1] * mesh->size[2];
}

void sw_mesh_place(const struct sw_mesh *mesh, int rank, int out_place[SW_AXIS_COUNT])
{
    for (int a = SW_AXIS_COUNT - 1; a >= 0; a--) {
        out_place[a] = rank % mesh->size[a];
        rank /= mesh->size[a];
    }
}

int sw_mesh_rank(const struct sw_mesh *mesh, const int place[SW_AXIS_COUNT])
{
    int rank = 0;
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        rank = rank * mesh->size[a] + place[a];
    }
    return rank;
}

void sw_mesh_group(const struct sw_mesh *mesh, enum sw_axis axis, int rank, int *out_ranks)
{
    int place[SW_AXIS_COUNT];
    sw_mesh_place(mesh, rank, place);
    for (int i = 0; i < mesh->size[axis]; i++) {
        place[axis] = i;
        out_ranks[i] = sw_mesh_rank(mesh, place);
    }
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
