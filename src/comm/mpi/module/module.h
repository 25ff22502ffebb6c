// SPDX-License-Identifier: Apache-2.0
// What libspillway asks of an MPI: a table of plain functions in a module of its own, compiled once
// for each MPI at hand, because their binary interfaces differ. Nothing of MPI's and nothing of
// ours is seen through it.
#pragma once

enum { SW_MPI_MODULE_VERSION = 1 };

/* Functions give 0 or an error code of MPI's. A request is a small number until test says done. */
struct sw_mpi_module {
    int version;
    /* Call once, from the thread that makes all other calls or with calls one at a time. */
    int (*init)(int *rank, int *size);
    int (*isend)(const void *data, int bytes, int peer, int tag, int *request);
    int (*irecv)(void *data, int bytes, int peer, int tag, int *request);
    int (*test)(int request, int *done);
    int (*probe)(int tag, int *here, int *peer); /* from anybody */
    int (*finalize)(void);
    void (*describe)(int code, char *text, int cap); /* of an error */
};

/* The one symbol of a module. */
const struct sw_mpi_module *sw_mpi_module(void);
