// SPDX-License-Identifier: Apache-2.0
// The functions that libspillway needs from an MPI, as a table in a separate module. The module is
// compiled once per MPI installation, because their ABIs differ. No type of MPI or of spillway
// appears in it.
#pragma once

enum { SW_MPI_MODULE_VERSION = 2 };

/* Functions return 0, or an error code of MPI. A request is a small number, valid until test
 * reports that it is done. */
struct sw_mpi_module {
    int version;
    /* Call it once. Any thread may call, one at a time (MPI_THREAD_SERIALIZED). */
    int (*init)(int *rank, int *size);
    int (*isend)(const void *data, int bytes, int peer, int tag, int *request);
    int (*irecv)(void *data, int bytes, int peer, int tag, int *request);
    int (*test)(int request, int *done);
    /* Gives a receive up, and does not wait. Nothing is received later unless its message has begun
     * to arrive. */
    int (*cancel)(int request);
    int (*probe)(int tag, int *here, int *peer); /* from any rank */
    int (*finalize)(void);
    void (*describe)(int code, char *text, int cap); /* text of an error code */
};

/* The only symbol of a module. */
const struct sw_mpi_module *sw_mpi_module(void);
