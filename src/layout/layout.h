// SPDX-License-Identifier: Apache-2.0
// layout - where the elements of a tensor are when ranks share it. Ranks are arranged along axes
// (the mesh); from the whole tensor to what one rank holds there are five steps, each
// optional:
//
//   whole shape -> part of the tensor axis -> stage of the pipeline axis that has it at all
//               -> tiles, runs of the flattened part -> of each its flat slice on the data axis
//
// Nobody else decodes them: a rank asks for the runs of elements that it holds or answers for, or
// for boxes of the whole tensor. Pure arithmetic: no memory, no communication.
#pragma once

#include "base/base.h"
#include "tensor/tensor.h"

/* ---- mesh.c: ranks along axes ---- */

/* Ranks are row-major in the order of the axes, the last running fastest, as in DeepSpeed's
 * PipeModelDataParallelTopology; its "model" is our tensor axis. */
enum sw_axis {
    SW_AXIS_PIPE,
    SW_AXIS_DATA,
    SW_AXIS_EXPERT,
    SW_AXIS_CONTEXT,
    SW_AXIS_TENSOR,
    SW_AXIS_COUNT
};
const char *sw_axis_name(enum sw_axis axis); /* "pipe", "data", "expert", "context", "tensor" */

/* All zeros: one rank. */
struct sw_mesh {
    int size[SW_AXIS_COUNT]; /* 0 counts as 1 */
};

/* Ranks that differ from one rank along some of the axes only, itself among them. */
struct sw_group {
    unsigned axes;    /* bits 1 << enum sw_axis */
    int n, me;        /* members; the number of that rank among them */
    const int *ranks; /* [n] of the mesh, ascending */
};
enum { SW_ALL_AXES = (1 << SW_AXIS_COUNT) - 1 };

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
/* Ranks along these axes, bits 1 << enum sw_axis. */
int sw_mesh_size(const struct sw_mesh *mesh, unsigned axes);
int sw_mesh_ranks(const struct sw_mesh *mesh);

/* rank must be one of the mesh; coordinates within the sizes. */
void sw_mesh_place(const struct sw_mesh *mesh, int rank, int out_place[SW_AXIS_COUNT]);
int sw_mesh_rank(const struct sw_mesh *mesh, const int place[SW_AXIS_COUNT]);

/* The group of `rank` along these axes. ranks: [sw_mesh_size(mesh, axes)], filled; borrowed by the
 * group. */
struct sw_group sw_mesh_group(const struct sw_mesh *mesh, unsigned axes, int rank, int *ranks);

/* "world" for all axes, else their names: "data", "data-tensor". Returns buf. */
const char *sw_group_format(const struct sw_group *group, char *buf, size_t cap);

/* "pipe_00-data_03-tensor_01", the axes of size 1 left out; "" when all are. Returns buf. */
const char *sw_mesh_format(const struct sw_mesh *mesh, int rank, char *buf, size_t cap);

/* ---- box.c: n-dimensional pieces of a tensor, without padding ---- */

/* The first shape.rank entries count; a scalar has one element and needs none. */
struct sw_box {
    int64_t start[SW_MAX_RANK], dims[SW_MAX_RANK];
};
struct sw_box sw_box_whole(const struct sw_shape *shape);
int64_t sw_box_elems(int rank, const struct sw_box *box);
/* Cuts elements [first, first + n) of the flattened tensor into boxes, in order; returns how
 * many. */
enum { SW_BOX_MAX_OF_RANGE = 2 * SW_MAX_RANK };
int sw_box_of_range(const struct sw_shape *shape, int64_t first, int64_t n,
                    struct sw_box out[SW_BOX_MAX_OF_RANGE]);
/* Common part of two boxes; false when it is empty. */
bool sw_box_common(int rank, const struct sw_box *a, const struct sw_box *b, struct sw_box *out);
bool sw_box_inside(const struct sw_shape *shape, const struct sw_box *box);
/* "[0:3,4:8]" */
const char *sw_box_format(int rank, const struct sw_box *box, char *buf, size_t cap);

/* ---- layout.c ---- */

struct sw_coord {
    int rank, size; /* of an axis */
};

struct sw_layout {
    struct sw_shape whole;
    struct sw_tensor_split split; /* along the tensor axis; all zeros: every rank of it has all */
    struct sw_coord tensor;       /* size 0 counts as 1, here and below */
    struct sw_coord data;
    bool is_absent; /* another stage of the pipeline has it */
    bool is_sliced; /* flat slices along the data axis; else each rank of it has all of its part */
    int64_t tile_elems; /* of the part: each tile is sliced by itself; 0 = one tile */
    int64_t run;        /* elements that slices do not cut; 0 = SW_SQUARES_RUN */
};

/* Elements [first, first + n) of the flattened whole tensor lie at elements [here, here + n) of
 * what this rank holds. */
struct sw_run {
    int64_t here, first, n;
};

/* Elements of a slice when `elems` are cut for `ranks`: whole runs, of SW_SQUARES_RUN or a multiple
 * of it, so that sums over runs do not depend on how a tensor was cut. Equal for all ranks, with
 * padding behind the last. */
int64_t sw_slice_elems(int64_t elems, int ranks, int64_t run);

/* The shape of this rank's part: whole.dims[split.dim] is what its groups give it. */
struct sw_shape sw_layout_part(const struct sw_layout *layout);
/* Elements held, with the padding of slices: what memory for it has. 0 when absent. */
int64_t sw_layout_elems(const struct sw_layout *layout);

/* The runs of what is held, in the order in which they lie: `next` gives them one by one, false
 * when there are no more. Runs are as long as they can be, never empty, and leave padding out. */
struct sw_run_iter {
    const struct sw_layout *layout;
    struct sw_shape part;
    int64_t part_elems;
    int64_t tile, at, end; /* this tile, and elements of the part that are left of its slice */
    int64_t here;          /* of element `at` */
    bool is_owned;         /* see sw_owned_begin */
    int64_t from, to;      /* see sw_runs_begin_within */
};
void sw_runs_begin(const struct sw_layout *layout, struct sw_run_iter *iter);
/* Those of elements [first, first + n) of the whole tensor alone. */
void sw_runs_begin_within(const struct sw_layout *layout, int64_t first, int64_t n,
                          struct sw_run_iter *iter);
bool sw_runs_next(struct sw_run_iter *iter, struct sw_run *out);

/* The longest run of what is held that begins with element `first` of the whole tensor; false when
 * that element is not held. */
bool sw_layout_find(const struct sw_layout *layout, int64_t first, struct sw_run *out);

/* What of it this rank answers for, when a tensor is written once by all ranks together: `here`
 * still counts elements of what is held. Of what several ranks hold, each rank of the data axis
 * answers for its flat slice, and the first of the tensor axis for all. Next works as above. */
void sw_owned_begin(const struct sw_layout *layout, struct sw_run_iter *iter);
