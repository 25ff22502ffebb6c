// SPDX-License-Identifier: Apache-2.0
// mesh - ranks arranged along axes: where a rank is, and with whom it shares an axis. Pure arithmetic.
// Ranks are row-major in the order of the axes, the last running fastest, as in DeepSpeed's
// PipeModelDataParallelTopology; its "model" is our tensor axis.
#pragma once

#include "base/base.h"

enum sw_axis { SW_AXIS_PIPE, SW_AXIS_DATA, SW_AXIS_TENSOR, SW_AXIS_COUNT };
const char *sw_axis_name(enum sw_axis axis); /* "pipe", "data", "tensor" */

struct sw_mesh {
    int size[SW_AXIS_COUNT];
};

/*
 * sw_mesh_init - so many ranks along each axis.
 *
 * n_ranks      what the communicator has; must be the product
 *
 * SW_E_ARG     a size below 1, or another product
 */
sw_status sw_mesh_init(struct sw_mesh *mesh, const int size[SW_AXIS_COUNT], int n_ranks);
/* Each rank is data-parallel. */
struct sw_mesh sw_mesh_of_data(int n_ranks);
int sw_mesh_ranks(const struct sw_mesh *mesh);

/* rank must be one of the mesh; coordinates within the sizes. */
void sw_mesh_place(const struct sw_mesh *mesh, int rank, int out_place[SW_AXIS_COUNT]);
int sw_mesh_rank(const struct sw_mesh *mesh, const int place[SW_AXIS_COUNT]);

/* The ranks that differ from `rank` along one axis only, itself among them, ascending: out has
 * mesh->size[axis] of them. */
void sw_mesh_group(const struct sw_mesh *mesh, enum sw_axis axis, int rank, int *out_ranks);

/* "pipe_00-data_03-tensor_01", the axes of size 1 left out; "" when all are. Returns buf. */
const char *sw_mesh_format(const struct sw_mesh *mesh, int rank, char *buf, size_t cap);
