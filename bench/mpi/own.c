// SPDX-License-Identifier: Apache-2.0
// MPI's own collectives for bench_zero, compiled with that MPI's wrapper. MPI is already
// initialized.
#include <mpi.h>
#include <stddef.h>

int own_all_gather(void *dst, size_t slice_bytes);
int own_reduce_scatter(const float *src, float *slice, size_t n);

/* dst: [ranks] slices; each rank's own slice is in place. */
__attribute__((visibility("default"))) int own_all_gather(void *dst, size_t slice_bytes)
{
    return MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, dst, (int)slice_bytes, MPI_BYTE,
                         MPI_COMM_WORLD);
}

/* src: [ranks, n]. */
__attribute__((visibility("default"))) int own_reduce_scatter(const float *src, float *slice,
                                                              size_t n)
{
    return MPI_Reduce_scatter_block(src, slice, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
