// SPDX-License-Identifier: Apache-2.0
// layout - which elements of a shared tensor each rank holds. Ranks are arranged along axes (the
// mesh). Up to five steps lead from the whole tensor to the elements of one rank:
//
//   whole shape -> part of the tensor axis -> stage of the pipeline axis that has it at all
//               -> tiles, runs of the flattened part -> of each its flat slice on the data axis
//
// Only this module knows these steps. Callers ask for the runs of elements that a rank holds or
// owns, or for boxes of the whole tensor. Pure arithmetic: no memory, no communication.
#pragma once

#include "base/base.h"
#include "tensor/tensor.h"

struct sw_coord {
    int rank, size; /* on an axis, or along several */
};

/* ---- mesh.c: ranks along axes ---- */

/* Ranks are row-major in the order of the axes, the last axis running fastest, as in DeepSpeed's
 * PipeModelDataParallelTopology. Its "model" axis is our tensor axis. The expert axis comes before
 * the data axis, as with DeepSpeed's use_data_before_expert_parallelism. So the micro-batches of
 * ranks that have the same experts are consecutive. */
enum sw_axis {
    SW_AXIS_PIPE,
    SW_AXIS_EXPERT,
    SW_AXIS_DATA,
    SW_AXIS_CONTEXT,
    SW_AXIS_TENSOR,
    SW_AXIS_COUNT
};
const char *sw_axis_name(enum sw_axis axis); /* "pipe", "expert", "data", "context", "tensor" */

/* All zeros = a single rank. */
struct sw_mesh {
    int size[SW_AXIS_COUNT]; /* 0 counts as 1 */
};

/* One rank, and the ranks that differ from it along the given axes only, or some of these. */
struct sw_group {
    unsigned axes;    /* set of bits 1 << enum sw_axis */
    int n, me;        /* number of members; index of that rank */
    const int *ranks; /* [n] ranks of the mesh, ascending */
    int of;           /* number of ranks along the axes, if not all of them are members; else 0 */
};
enum {
    SW_ALL_AXES = (1 << SW_AXIS_COUNT) - 1,
    /* ranks along these have different micro-batches: the expert axis takes some of data's */
    SW_BATCH_AXES = 1 << SW_AXIS_DATA | 1 << SW_AXIS_EXPERT
};

/*
 * sw_mesh_init - makes a mesh with so many ranks along each axis.
 *
 * n_ranks      size of the communicator; must be the product
 *
 * SW_E_ARG     a size below 1, or another product
 */
sw_status sw_mesh_init(struct sw_mesh *mesh, const int size[SW_AXIS_COUNT], int n_ranks);
/* A mesh in which all ranks are data-parallel. */
struct sw_mesh sw_mesh_of_data(int n_ranks);
/* The mesh that DeepSpeed makes if it is given ranks only: the prime factors of their number,
 * ascending, go to pipe and data in turn. */
struct sw_mesh sw_mesh_of_pipe_and_data(int n_ranks);
/* Number of ranks along these axes, bits 1 << enum sw_axis. */
int sw_mesh_size(const struct sw_mesh *mesh, unsigned axes);
int sw_mesh_ranks(const struct sw_mesh *mesh);

/* `rank` must be in the mesh, and coordinates within the sizes. */
void sw_mesh_place(const struct sw_mesh *mesh, int rank, int out_place[SW_AXIS_COUNT]);
int sw_mesh_rank(const struct sw_mesh *mesh, const int place[SW_AXIS_COUNT]);

/* Sets the coordinates along SW_BATCH_AXES of the ranks that are number i there. */
void sw_mesh_place_batch(const struct sw_mesh *mesh, int i, int place[SW_AXIS_COUNT]);

/* The group of `rank` along these axes. ranks: [sw_mesh_size(mesh, axes)], filled and borrowed by
 * the group */
struct sw_group sw_mesh_group(const struct sw_mesh *mesh, unsigned axes, int rank, int *ranks);
/* The same for n consecutive ranks along one axis, whose size is a multiple of n. ranks: [n] */
struct sw_group sw_mesh_some(const struct sw_mesh *mesh, enum sw_axis axis, int n, int rank,
                             int *ranks);

/* This rank's number along these axes, and the number of ranks there. */
struct sw_coord sw_mesh_coord(const struct sw_mesh *mesh, unsigned axes, int rank);

/* Writes "world" for all axes, else their names, such as "data", "data-tensor" or "tensor, 2 of 4".
 * Returns buf. */
const char *sw_group_format(const struct sw_group *group, char *buf, size_t cap);

/* Writes the coordinates without axes of size 1, such as "pipe_00-data_03-tensor_01", or "" for a
 * single rank. Returns buf. */
const char *sw_mesh_format(const struct sw_mesh *mesh, int rank, char *buf, size_t cap);

/* ---- box.c: n-dimensional ranges of a tensor, without padding ---- */

/* The first shape.rank entries count; a scalar has one element and needs no entries. */
struct sw_box {
    int64_t start[SW_MAX_RANK], dims[SW_MAX_RANK];
};
struct sw_box sw_box_whole(const struct sw_shape *shape);
int64_t sw_box_elems(int rank, const struct sw_box *box);
/* Splits elements [first, first + n) of the flattened tensor into boxes, in order; returns their
 * number. */
enum { SW_BOX_MAX_OF_RANGE = 2 * SW_MAX_RANK };
int sw_box_of_range(const struct sw_shape *shape, int64_t first, int64_t n,
                    struct sw_box out[SW_BOX_MAX_OF_RANGE]);
/* Intersection of two boxes; false = it is empty. */
bool sw_box_common(int rank, const struct sw_box *a, const struct sw_box *b, struct sw_box *out);
bool sw_box_inside(const struct sw_shape *shape, const struct sw_box *box);
/* Writes a box such as "[0:3,4:8]". */
const char *sw_box_format(int rank, const struct sw_box *box, char *buf, size_t cap);

/* ---- layout.c ---- */

struct sw_layout {
    struct sw_shape whole;
    /* along the tensor axis, or the expert axis for one tensor of all experts; all zeros = each of
     * its ranks has the whole */
    struct sw_tensor_split split;
    struct sw_coord tensor; /* size 0 counts as 1, here and below */
    struct sw_coord data;
    struct sw_coord copy; /* ranks of other axes that hold the same elements */
    bool is_absent;       /* another pipeline stage has it */
    /* sharded flat along the data axis; else each of its ranks has the whole part */
    bool is_sliced;
    /* Not sharded, but with room for all shards, so that it is scattered or gathered in place. */
    bool is_padded;
    /* elements per tile of the part, since each tile is sharded separately; 0 = one tile */
    int64_t tile_elems;
    int64_t run; /* shards are multiples of this many elements; 0 = SW_SQUARES_RUN */
};

/* Elements [first, first + n) of the flattened whole tensor are at [here, here + n) in this rank's
 * shard. */
struct sw_run {
    int64_t here, first, n;
};

/* Elements per shard if `elems` elements are sharded over `ranks`. A shard is a multiple of the
 * run, which is a multiple of SW_SQUARES_RUN. So sums over runs do not depend on the sharding. All
 * shards have this length; padding follows the last element. */
int64_t sw_slice_elems(int64_t elems, int ranks, int64_t run);

/* Shape of this rank's part: along split.dim it is the sum of its shares of the groups. If the unit
 * is 0, all ranks have parts of one shape, and what the last ones lack is padding. If a group has
 * fewer units than ranks, and the ranks are a multiple, consecutive ranks hold the same share. */
struct sw_shape sw_layout_part(const struct sw_layout *layout);
/* Number of different parts that the ranks of the tensor axis hold; 1 = all have the whole. */
int sw_layout_parts(const struct sw_layout *layout);
/* True if n consecutive ranks of the tensor axis hold the same share of some group. */
bool sw_layout_shares(const struct sw_layout *layout, int n);
/* Number of elements of the part, its first ones, that no earlier rank of the tensor axis holds: a
 * sum over the ranks has each element once. Shared groups must follow the others, along dimension
 * 0, unless all are shared. */
int64_t sw_layout_counted(const struct sw_layout *layout);
/* Number of elements that memory has room for, including padding of shards. 0 if absent. */
int64_t sw_layout_elems(const struct sw_layout *layout);
/* Number of elements of the whole tensor that this rank holds, without padding. */
int64_t sw_layout_held(const struct sw_layout *layout);
/* The first element of this rank's shard in the flattened part, or the end of the part or later if
 * the shard is padding only; 0 = it is not sharded. Not for layouts in tiles. */
int64_t sw_layout_first(const struct sw_layout *layout);
/* Elements per shard of a tile. */
int64_t sw_layout_tile_shard(const struct sw_layout *layout);
/* The element of the flattened part where the tile begins whose shard is at `here` in memory. */
int64_t sw_layout_tile_first(const struct sw_layout *layout, int64_t here);
bool sw_layout_equal(const struct sw_layout *a, const struct sw_layout *b);
uint64_t sw_layout_hash(uint64_t h, const struct sw_layout *layout);

/* ---- layouts made of others ---- */

/* A tensor of this shape that every rank of the data axis has whole. */
struct sw_layout sw_layout_of_whole(const struct sw_shape *shape);
/* The same tensor, sharded flat along the data axis. run: see struct sw_layout */
struct sw_layout sw_layout_sharded(const struct sw_layout *layout, struct sw_coord data,
                                   int64_t run);
/* The whole tensor of a sharded layout, with room for all shards. */
struct sw_layout sw_layout_gathered(const struct sw_layout *layout);
/* A tensor with one element for every n of `layout`. Shards and tiles are whole multiples of n. If
 * the tensor axis cuts `layout`, runs of n are counted in each part, and the parts of the result
 * follow one another; all parts of `layout` must have one shape. */
struct sw_layout sw_layout_per(const struct sw_layout *layout, int64_t n);

/* Iterates over the runs that this rank holds, in memory order; `next` returns false at the end.
 * Runs are maximal, never empty, and exclude padding. */
struct sw_run_iter {
    const struct sw_layout *layout;
    struct sw_shape part;
    int64_t part_elems;
    /* current tile; current position and end of its shard, in elements of the part */
    int64_t tile, at, end;
    int64_t here;     /* index in memory of element `at` */
    bool is_owned;    /* see sw_owned_begin */
    int64_t from, to; /* see sw_runs_begin_within */
};
void sw_runs_begin(const struct sw_layout *layout, struct sw_run_iter *iter);
/* Runs within elements [first, first + n) of the whole tensor. */
void sw_runs_begin_within(const struct sw_layout *layout, int64_t first, int64_t n,
                          struct sw_run_iter *iter);
bool sw_runs_next(struct sw_run_iter *iter, struct sw_run *out);

/* The longest held run that starts at element `first` of the whole tensor; false = this rank does
 * not hold that element. */
bool sw_layout_find(const struct sw_layout *layout, int64_t first, struct sw_run *out);

/* Runs that this rank owns, for writing a tensor once by all ranks together; `here` still counts
 * held elements. Elements that several ranks of the data axis hold are divided among them into flat
 * shards. For elements that several ranks of the tensor axis or of `copy` hold, the first rank is
 * the owner. `next` works as above. */
void sw_owned_begin(const struct sw_layout *layout, struct sw_run_iter *iter);
/* The same within elements [first, first + n) of the whole tensor. */
void sw_owned_begin_within(const struct sw_layout *layout, int64_t first, int64_t n,
                           struct sw_run_iter *iter);
