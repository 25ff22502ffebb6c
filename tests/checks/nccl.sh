#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares our prototypes of NCCL (src/device/gpu/nccl.h) with those of NVIDIA's header: types of
# arguments and results, sizes and offsets of the configuration, and constants. The header is a peer
# to check against, and never needed by a build.
#
#   tests/checks/nccl.sh [FOLDER with nccl.h]
#
# Without a folder it is looked for in the Python package nvidia-nccl-cu12 (or -cu13) of an active
# environment and of python3. Status 77 = there is none.
set -eu
cd "$(dirname "$0")/../.."
folder=${1:-}
for python in "${VIRTUAL_ENV:-/nonexistent}/bin/python" python3; do
    [ -n "$folder" ] && break
    folder=$("$python" -c 'import importlib.util as u
s = u.find_spec("nvidia.nccl")
print(list(s.submodule_search_locations)[0] + "/include" if s else "")' 2>/dev/null || true)
done
if [ -z "$folder" ] || [ ! -f "$folder/nccl.h" ]; then
    echo "nccl.sh: there is no nccl.h; pip install nvidia-nccl-cu12, or name its folder"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# all that nccl.h takes from CUDA's headers
for header in cuda_runtime cuda_fp16 cuda_bf16 cuda_fp8 cuda_device_runtime_api; do
    printf '#include <stddef.h>\n#include <stdint.h>\n#define CUDART_VERSION 12000\n#define __CUDA_BF16_TYPES_EXIST__ 1\ntypedef struct CUstream_st *cudaStream_t;\ntypedef struct CUevent_st *cudaEvent_t;\n' \
        >"$work/$header.h"
done
mkdir "$work/theirs"
cp "$folder/nccl.h" "$work/theirs/nccl_theirs.h"
cat >"$work/compare.c" <<'END'
#include <stdint.h>
#include <stddef.h>
#include "nccl_theirs.h"
#include "device/gpu/nccl.h"

#define SAME(a, b) _Static_assert((a) == (b), #a " == " #b)

#if COMPILE_CALLS
void calls(void);
void calls(void)
{
    static const struct nccl_functions f;
    void *comm = 0, *stream = 0;
    ncclUniqueId id;
    struct nccl_id own;
    ncclConfig_t config;
    struct nccl_config own_config;
    int version;
    ncclResult_t state;
    const void *src = 0;
    void *dst = 0;
    /* each pair of calls compiles only with the same number and kinds of arguments */
    (void)ncclGetVersion(&version), (void)f.GetVersion(&version);
    (void)ncclGetUniqueId(&id), (void)f.GetUniqueId(&own);
    (void)ncclCommInitRankConfig((ncclComm_t *)&comm, 2, id, 1, &config);
    (void)f.CommInitRankConfig(&comm, 2, own, 1, &own_config);
    (void)ncclCommFinalize(comm), (void)f.CommFinalize(comm);
    (void)ncclCommDestroy(comm), (void)f.CommDestroy(comm);
    (void)ncclCommAbort(comm), (void)f.CommAbort(comm);
    (void)ncclCommGetAsyncError(comm, &state), (void)f.CommGetAsyncError(comm, &version);
    (void)ncclReduceScatter(src, dst, (size_t)1, ncclFloat32, ncclSum, comm, stream);
    (void)f.ReduceScatter(src, dst, (size_t)1, NCCL_FLOAT32, NCCL_SUM, comm, stream);
    (void)ncclBroadcast(src, dst, (size_t)1, ncclUint8, 0, comm, stream);
    (void)f.Broadcast(src, dst, (size_t)1, NCCL_UINT8, 0, comm, stream);
    (void)ncclAllGather(src, dst, (size_t)1, ncclUint8, comm, stream);
    (void)f.AllGather(src, dst, (size_t)1, NCCL_UINT8, comm, stream);
    (void)ncclSend(src, (size_t)1, ncclUint8, 0, comm, stream);
    (void)f.Send(src, (size_t)1, NCCL_UINT8, 0, comm, stream);
    (void)ncclRecv(dst, (size_t)1, ncclUint8, 0, comm, stream);
    (void)f.Recv(dst, (size_t)1, NCCL_UINT8, 0, comm, stream);
    (void)ncclGroupStart(), (void)f.GroupStart();
    (void)ncclGroupEnd(), (void)f.GroupEnd();
    const char *text = ncclGetErrorString(ncclSuccess);
    text = f.GetErrorString(NCCL_SUCCESS);
    text = ncclGetLastError(comm);
    text = f.GetLastError(comm);
    (void)text;
}

/* The types themselves, of each function: with enums as int, and handles as void pointers. */
#define TYPE(name, ...)                                                                            \
    _Static_assert(_Generic(&nccl##name, __VA_ARGS__ : 1, default : 0), "type of nccl" #name)
TYPE(GetVersion, ncclResult_t(*)(int *));
TYPE(GetUniqueId, ncclResult_t(*)(ncclUniqueId *));
TYPE(CommInitRankConfig, ncclResult_t(*)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *));
TYPE(CommFinalize, ncclResult_t(*)(ncclComm_t));
TYPE(CommDestroy, ncclResult_t(*)(ncclComm_t));
TYPE(CommAbort, ncclResult_t(*)(ncclComm_t));
TYPE(CommGetAsyncError, ncclResult_t(*)(ncclComm_t, ncclResult_t *));
TYPE(GetErrorString, const char *(*)(ncclResult_t));
TYPE(GetLastError, const char *(*)(ncclComm_t));
TYPE(ReduceScatter, ncclResult_t(*)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                    ncclComm_t, cudaStream_t));
TYPE(Broadcast, ncclResult_t(*)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                                cudaStream_t));
TYPE(AllGather, ncclResult_t(*)(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                                cudaStream_t));
TYPE(Send, ncclResult_t(*)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
TYPE(Recv, ncclResult_t(*)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
#endif

SAME(sizeof(ncclResult_t), sizeof(int));
SAME(sizeof(ncclDataType_t), sizeof(int));
SAME(sizeof(ncclRedOp_t), sizeof(int));
SAME(sizeof(ncclComm_t), sizeof(void *));
SAME(sizeof(cudaStream_t), sizeof(void *));
SAME(sizeof(ncclUniqueId), sizeof(struct nccl_id));
SAME(NCCL_UNIQUE_ID_BYTES, (int)NCCL_ID_BYTES);
SAME((int)ncclSuccess, (int)NCCL_SUCCESS);
SAME((int)ncclSystemError, (int)NCCL_SYSTEM_ERROR);
SAME((int)ncclInvalidArgument, (int)NCCL_INVALID_ARGUMENT);
SAME((int)ncclInvalidUsage, (int)NCCL_INVALID_USAGE);
SAME((int)ncclRemoteError, (int)NCCL_REMOTE_ERROR);
SAME((int)ncclInProgress, (int)NCCL_IN_PROGRESS);
SAME((int)ncclUint8, (int)NCCL_UINT8);
SAME((int)ncclFloat16, (int)NCCL_FLOAT16);
SAME((int)ncclFloat32, (int)NCCL_FLOAT32);
SAME((int)ncclBfloat16, (int)NCCL_BFLOAT16);
SAME((int)ncclSum, (int)NCCL_SUM);
SAME(NCCL_CONFIG_UNDEF_INT, (int)NCCL_UNDEFINED);
SAME(NCCL_VERSION(2, 18, 0), (int)NCCL_OLDEST);
/* their configuration begins with ours */
#define MEMBER(theirs, ours)                                                                       \
    SAME(offsetof(ncclConfig_t, theirs), offsetof(struct nccl_config, ours));                      \
    SAME(sizeof(((ncclConfig_t *)0)->theirs), sizeof(((struct nccl_config *)0)->ours))
MEMBER(size, size);
MEMBER(magic, magic);
MEMBER(version, version);
MEMBER(blocking, blocking);
MEMBER(cgaClusterSize, cga_cluster_size);
MEMBER(minCTAs, min_ctas);
MEMBER(maxCTAs, max_ctas);
MEMBER(netName, net_name);
MEMBER(splitShare, split_share);
static const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
int main(void)
{
    return initial.magic == (unsigned)NCCL_MAGIC && initial.blocking == (int)NCCL_UNDEFINED &&
                   initial.netName == 0
               ? 0
               : 1;
}
END
: "${CC:=cc}"
"$CC" -std=gnu11 -w -DCOMPILE_CALLS=1 -fsyntax-only -Isrc -I"$work" -I"$work/theirs" \
    "$work/compare.c"
"$CC" -std=gnu11 -w -Isrc -I"$work" -I"$work/theirs" "$work/compare.c" -o "$work/compare"
"$work/compare" || { echo "nccl.sh: the configuration's initial values differ"; exit 1; }
version=$(sed -n 's/^#define NCCL_VERSION_CODE *//p' "$folder/nccl.h" | head -1)
echo "nccl.sh: no difference from $folder/nccl.h, version $version"
