// SPDX-License-Identifier: Apache-2.0
// nccl - our prototypes and constants for the used part of NCCL 2.18 and later. RCCL has the same
// interface under the same names. Used by ccl.c and by the stand-ins that check its calls.
// tests/checks/nccl.sh compares them with NVIDIA's nccl.h where there is one; RCCL's header has not
// been compared.
#pragma once

#include <stddef.h>

/* Oldest version that has all of it, in NCCL's numbering: 10000 major + 100 minor + patch. */
enum { NCCL_OLDEST = 21800 };

enum {
    NCCL_SUCCESS = 0,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};
enum { NCCL_UINT8 = 1, NCCL_FLOAT16 = 6, NCCL_FLOAT32 = 7, NCCL_BFLOAT16 = 9 };
enum { NCCL_SUM = 0 };

enum { NCCL_ID_BYTES = 128 };
struct nccl_id {
    char internal[NCCL_ID_BYTES];
};

/* The configuration of version 2.18. Later versions have more members, and take this one by its
 * size. */
enum { NCCL_MAGIC = (int)0xcafebeef, NCCL_UNDEFINED = -2147483647 - 1 };
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

/* By the name after the prefix. Communicators and streams are opaque. */
struct nccl_functions {
    int (*GetVersion)(int *version);
    int (*GetUniqueId)(struct nccl_id *id);
    int (*CommInitRankConfig)(void **comm, int n_ranks, struct nccl_id id, int rank,
                              struct nccl_config *config);
    int (*CommFinalize)(void *comm);
    int (*CommDestroy)(void *comm);
    int (*CommAbort)(void *comm);
    int (*CommGetAsyncError)(void *comm, int *error);
    const char *(*GetErrorString)(int error);
    const char *(*GetLastError)(void *comm);
    int (*ReduceScatter)(const void *src, void *dst, size_t dst_count, int type, int op, void *comm,
                         void *stream);
    int (*Broadcast)(const void *src, void *dst, size_t count, int type, int root, void *comm,
                     void *stream);
    int (*AllGather)(const void *src, void *dst, size_t src_count, int type, void *comm,
                     void *stream);
    int (*Send)(const void *src, size_t count, int type, int peer, void *comm, void *stream);
    int (*Recv)(void *dst, size_t count, int type, int peer, void *comm, void *stream);
    int (*GroupStart)(void);
    int (*GroupEnd)(void);
};
