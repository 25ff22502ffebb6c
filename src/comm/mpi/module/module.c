// SPDX-License-Identifier: Apache-2.0
// The module for one MPI implementation; compiled with its own wrapper.
#include "comm/mpi/module/module.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* private, so that tags of other libraries do not interfere */
static MPI_Comm comm = MPI_COMM_NULL;
static MPI_Request *requests;
static int *is_free;
static int n_requests;

static int init(int *rank, int *size)
{
    int provided, st = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (st == MPI_SUCCESS && provided < MPI_THREAD_SERIALIZED) {
        st = MPI_ERR_OTHER;
    }
    st = st == MPI_SUCCESS ? MPI_Comm_dup(MPI_COMM_WORLD, &comm) : st;
    st = st == MPI_SUCCESS ? MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN) : st;
    st = st == MPI_SUCCESS ? MPI_Comm_rank(comm, rank) : st;
    return st == MPI_SUCCESS ? MPI_Comm_size(comm, size) : st;
}

/* Returns a slot for one more request. The array grows during the first exchanges only. */
static int slot(int *out)
{
    for (int i = 0; i < n_requests; i++) {
        if (is_free[i]) {
            *out = i;
            return MPI_SUCCESS;
        }
    }
    const int n = n_requests ? 2 * n_requests : 16;
    MPI_Request *more = realloc(requests, (size_t)n * sizeof *more);
    requests = more ? more : requests;
    int *flags = realloc(is_free, (size_t)n * sizeof *flags);
    is_free = flags ? flags : is_free;
    if (!more || !flags) {
        return MPI_ERR_NO_MEM;
    }
    for (int i = n_requests; i < n; i++) {
        is_free[i] = 1;
    }
    *out = n_requests;
    n_requests = n;
    return MPI_SUCCESS;
}

static int isend(const void *data, int bytes, int peer, int tag, int *request)
{
    int st = slot(request);
    if (st == MPI_SUCCESS) {
        st = MPI_Isend(data, bytes, MPI_BYTE, peer, tag, comm, &requests[*request]);
    }
    if (st == MPI_SUCCESS) {
        is_free[*request] = 0;
    }
    return st;
}

static int irecv(void *data, int bytes, int peer, int tag, int *request)
{
    int st = slot(request);
    if (st == MPI_SUCCESS) {
        st = MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, comm, &requests[*request]);
    }
    if (st == MPI_SUCCESS) {
        is_free[*request] = 0;
    }
    return st;
}

static int test(int request, int *done)
{
    const int st = MPI_Test(&requests[request], done, MPI_STATUS_IGNORE);
    if (st != MPI_SUCCESS || *done) {
        is_free[request] = 1;
    }
    return st;
}

static int cancel(int request)
{
    enum { TESTS = 100 };
    int done = 0, st = MPI_Cancel(&requests[request]);
    for (int i = 0; i < TESTS && st == MPI_SUCCESS && !done; i++) {
        st = test(request, &done);
    }
    return st;
}

static int probe(int tag, int *here, int *peer)
{
    MPI_Status status;
    const int st = MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, here, &status);
    if (st == MPI_SUCCESS && *here) {
        *peer = status.MPI_SOURCE;
    }
    return st;
}

static int finalize(void)
{
    free(requests);
    free(is_free);
    requests = NULL;
    is_free = NULL;
    n_requests = 0;
    const int st = MPI_Comm_free(&comm);
    return st == MPI_SUCCESS ? MPI_Finalize() : st;
}

static void describe(int code, char *text, int cap)
{
    char whole[MPI_MAX_ERROR_STRING + 1] = "";
    int len = 0;
    MPI_Error_string(code, whole, &len);
    snprintf(text, (size_t)cap, "%s", whole);
    text[strcspn(text, "\n")] = '\0';
}

__attribute__((visibility("default"))) const struct sw_mpi_module *sw_mpi_module(void)
{
    static const struct sw_mpi_module module = {
        .version = SW_MPI_MODULE_VERSION,
        .init = init,
        .isend = isend,
        .irecv = irecv,
        .test = test,
        .cancel = cancel,
        .probe = probe,
        .finalize = finalize,
        .describe = describe,
    };
    return &module;
}
