// SPDX-License-Identifier: Apache-2.0
// Exchanges among the GPUs of several ranks by NCCL or RCCL, which are opened at run time, without
// their headers. Communicators do not block: each call returns at once, and its state is polled, so
// a deadline can end it. The library has not been run here: only its stand-ins have
// (device/gpu/standin/nccl.c).
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/gpu/gpu.h"
#include "device/gpu/libs.h"
#include "device/gpu/nccl.h"

_Static_assert((int)SW_CCL_ID_BYTES == (int)NCCL_ID_BYTES, "an id is sent as it is");

struct nccl_library {
    struct nccl_functions f;
    void *opened;
    struct sw_ccl_facts facts;
    int version;
};

struct sw_ccl {
    const struct nccl_library *library;
    pthread_mutex_t lock; /* held during the library's calls, none of which waits */
    void *comm;           /* NULL = not opened, or ended */
    int n;
    char name[64];
};

/* ---- the library ---- */

static const struct file {
    const char *backend;
    int warp; /* of the emulation; 0 = any */
    const char *name, *file;
    size_t bytes;    /* assumed for a communicator */
    const char *how; /* to get it */
} files[] = {
    {"cuda", 0, "nccl", "libnccl.so.2", (size_t)256 << 20,
     "it comes with NCCL, or with the Python package nvidia-nccl-cu12"},
    {"hip", 0, "rccl", "librccl.so.1", (size_t)256 << 20,
     "it comes with ROCm, in its package rccl"},
    /* stand-ins, which check their arguments */
    {"emu", 32, "nccl", "spillway_emu_nccl.so", (size_t)1 << 20,
     "a build with -DSPILLWAY_GPU_EMULATION=ON makes it"},
    {"emu", 64, "rccl", "spillway_emu_rccl.so", (size_t)1 << 20,
     "a build with -DSPILLWAY_GPU_EMULATION=ON makes it"},
};

static const struct file *file_of(const struct gpu_device *dev)
{
    for (size_t i = 0; i < SW_LEN(files); i++) {
        if (strcmp(files[i].backend, dev->module->backend) == 0 &&
            (files[i].warp == 0 || files[i].warp == dev->facts.warp)) {
            return &files[i];
        }
    }
    return NULL;
}

size_t sw_gpu_ccl_bytes(const struct gpu_device *dev)
{
    const struct file *file = file_of(dev);
    return file ? file->bytes : 0;
}

static sw_status find_functions(struct nccl_library *library)
{
#define NCCL_FUNCTION(name)                                                                        \
    {                                                                                              \
        "nccl" #name, offsetof(struct nccl_functions, name)                                        \
    }
    static const struct {
        const char *name;
        size_t at;
    } wanted[] = {NCCL_FUNCTION(GetVersion),
                  NCCL_FUNCTION(GetUniqueId),
                  NCCL_FUNCTION(CommInitRankConfig),
                  NCCL_FUNCTION(CommFinalize),
                  NCCL_FUNCTION(CommDestroy),
                  NCCL_FUNCTION(CommAbort),
                  NCCL_FUNCTION(CommGetAsyncError),
                  NCCL_FUNCTION(GetErrorString),
                  NCCL_FUNCTION(GetLastError),
                  NCCL_FUNCTION(ReduceScatter),
                  NCCL_FUNCTION(Broadcast),
                  NCCL_FUNCTION(AllGather),
                  NCCL_FUNCTION(Send),
                  NCCL_FUNCTION(Recv),
                  NCCL_FUNCTION(GroupStart),
                  NCCL_FUNCTION(GroupEnd)};
#undef NCCL_FUNCTION
    for (size_t i = 0; i < SW_LEN(wanted); i++) {
        void *function = dlsym(library->opened, wanted[i].name);
        if (!function) {
            return SW_FAIL(SW_E_UNSUP, "%s has no %s; wanted version 2.18 or later",
                           library->facts.path, wanted[i].name);
        }
        memcpy((char *)&library->f + wanted[i].at, &function, sizeof function);
    }
    return SW_OK;
}

static sw_status open_library(const struct gpu_device *dev, struct nccl_library *library)
{
    const struct file *file = file_of(dev);
    char *path = library->facts.path;
    const size_t cap = sizeof library->facts.path;
    const bool found =
        file->warp > 0 /* stand-ins are beside the modules */
            ? sw_gpu_find_named(file->file, path, cap) || sw_module_find(file->file, path, cap)
            : sw_gpu_find_library(file->file, path, cap);
    if (!found) {
        return SW_FAIL(SW_E_UNSUP, "there is no %s; %s. SPILLWAY_GPU_LIBS names its folder",
                       file->file, file->how);
    }
    library->opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library->opened) {
        const char *why = dlerror();
        return SW_FAIL(SW_E_UNSUP, "%s", why ? why : path);
    }
    SW_TRY(find_functions(library));
    if (library->f.GetVersion(&library->version) != NCCL_SUCCESS) {
        return SW_FAIL(SW_E_UNSUP, "%s does not tell its version", path);
    }
    const int v = library->version;
    snprintf(library->facts.name, sizeof library->facts.name, "%s %d.%d.%d", file->name, v / 10000,
             v / 100 % 100, v % 100);
    snprintf(library->facts.device, sizeof library->facts.device, "%s", dev->facts.bus);
    return v >= NCCL_OLDEST
               ? SW_OK
               : SW_FAIL(SW_E_UNSUP, "%s is %s; wanted 2.18 or later", path, library->facts.name);
}

/* Libraries stay open: their threads outlive communicators. */
void sw_gpu_ccl_forget(struct gpu_device *dev)
{
    sw_free(dev->nccl);
    dev->nccl = NULL;
}

static sw_status facts(struct sw_device *super, struct sw_ccl_facts *out)
{
    struct gpu_device *dev = sw_gpu_of(super);
    snprintf(out->device, sizeof out->device, "%s", dev->facts.bus);
    if (!dev->nccl) {
        dev->nccl = sw_alloc_zero("device", 1, sizeof *dev->nccl);
        SW_TRY_ALLOC(dev->nccl, "a library of exchanges");
        const sw_status st = open_library(dev, dev->nccl);
        if (st < 0) {
            sw_gpu_ccl_forget(dev);
            return sw_frame_at(__FILE__, __LINE__, st);
        }
    }
    *out = dev->nccl->facts;
    return SW_OK;
}

static sw_status facts_of_none(struct sw_device *super, struct sw_ccl_facts *out)
{
    snprintf(out->device, sizeof out->device, "%s", sw_gpu_of(super)->facts.bus);
    return SW_FAIL(SW_E_UNSUP, "its streams run their work at once");
}

const struct sw_ccl_ops sw_gpu_no_ccl = {.facts = facts_of_none};

/* ---- calls ---- */

static bool went_well(int code)
{
    return code == NCCL_SUCCESS || code == NCCL_IN_PROGRESS;
}

static sw_status failed(const struct sw_ccl *ccl, const char *call, int code)
{
    const struct nccl_library *library = ccl->library;
    const char *more = ccl->comm ? library->f.GetLastError(ccl->comm) : NULL;
    return SW_FAIL(code == NCCL_REMOTE_ERROR ? SW_E_PEER : SW_E_DEVICE,
                   "%s: %s of group %s: %s%s%s", library->facts.name, call, ccl->name,
                   library->f.GetErrorString(code), more && *more ? ": " : "", more ? more : "");
}

static sw_status ended(const struct sw_ccl *ccl)
{
    return SW_FAIL(SW_E_PEER, "%s: the communicator of group %s was ended",
                   ccl->library->facts.name, ccl->name);
}

/* Polls until the last call is no longer in progress. deadline_s 0 = none */
static sw_status settle(struct sw_ccl *ccl, const char *call, double deadline_s)
{
    enum { LOOK_NS = 50000 };
    const double until = sw_now_s() + deadline_s;
    for (;;) {
        int state = NCCL_SUCCESS;
        pthread_mutex_lock(&ccl->lock);
        if (!ccl->comm) {
            pthread_mutex_unlock(&ccl->lock);
            return ended(ccl);
        }
        const int code = ccl->library->f.CommGetAsyncError(ccl->comm, &state);
        const sw_status st = code != NCCL_SUCCESS ? failed(ccl, "ncclCommGetAsyncError", code)
                             : !went_well(state)  ? failed(ccl, call, state)
                                                  : SW_OK;
        pthread_mutex_unlock(&ccl->lock);
        if (st < 0 || state == NCCL_SUCCESS) {
            return st;
        }
        if (deadline_s > 0 && sw_now_s() > until) {
            return SW_FAIL(SW_E_PEER, "%s: %s of group %s: not all %d ranks came within %g s",
                           ccl->library->facts.name, call, ccl->name, ccl->n, deadline_s);
        }
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
}

static sw_status new_id(struct sw_device *super, unsigned char id[SW_CCL_ID_BYTES])
{
    const struct gpu_device *dev = sw_gpu_of(super);
    struct nccl_id made;
    dev->module->use(dev->index);
    const int code = dev->nccl->f.GetUniqueId(&made);
    if (code != NCCL_SUCCESS) {
        return SW_FAIL(SW_E_DEVICE, "%s: ncclGetUniqueId: %s", dev->nccl->facts.name,
                       dev->nccl->f.GetErrorString(code));
    }
    memcpy(id, made.internal, SW_CCL_ID_BYTES);
    return SW_OK;
}

static void abort_ccl(struct sw_device *super, struct sw_ccl *ccl)
{
    const struct gpu_device *dev = sw_gpu_of(super);
    dev->module->use(dev->index);
    pthread_mutex_lock(&ccl->lock);
    if (ccl->comm) {
        ccl->library->f.CommAbort(ccl->comm);
        ccl->comm = NULL;
    }
    pthread_mutex_unlock(&ccl->lock);
}

static void close_ccl(struct sw_device *super, struct sw_ccl *ccl, bool has_failed)
{
    const struct gpu_device *dev = sw_gpu_of(super);
    enum { CLOSE_S = 10 };
    if (!ccl) {
        return;
    }
    dev->module->use(dev->index);
    if (ccl->comm && !has_failed && went_well(ccl->library->f.CommFinalize(ccl->comm)) &&
        settle(ccl, "ncclCommFinalize", CLOSE_S) >= 0) {
        ccl->library->f.CommDestroy(ccl->comm);
        ccl->comm = NULL;
    }
    abort_ccl(super, ccl);
    pthread_mutex_destroy(&ccl->lock);
    sw_free(ccl);
}

static sw_status connect(const struct sw_ccl_options *o, struct sw_ccl *ccl)
{
    const struct nccl_library *library = ccl->library;
    struct nccl_id id;
    struct nccl_config config = {
        .size = sizeof config,
        .magic = (unsigned)NCCL_MAGIC,
        .version = NCCL_OLDEST,
        .blocking = 0,
        .cga_cluster_size = NCCL_UNDEFINED,
        .min_ctas = NCCL_UNDEFINED,
        .max_ctas = NCCL_UNDEFINED,
        .split_share = NCCL_UNDEFINED,
    };
    memcpy(id.internal, o->id, sizeof id.internal);
    const int code = library->f.CommInitRankConfig(&ccl->comm, o->n, id, o->rank, &config);
    return went_well(code) ? settle(ccl, "ncclCommInitRankConfig", o->deadline_s)
                           : failed(ccl, "ncclCommInitRankConfig", code);
}

static sw_status open_ccl(struct sw_device *super, const struct sw_ccl_options *o,
                          struct sw_ccl **out)
{
    const struct gpu_device *dev = sw_gpu_of(super);
    struct sw_ccl *ccl = sw_alloc_zero("device", 1, sizeof *ccl);
    SW_TRY_ALLOC(ccl, "a communicator of devices");
    pthread_mutex_init(&ccl->lock, NULL);
    ccl->library = dev->nccl;
    ccl->n = o->n;
    snprintf(ccl->name, sizeof ccl->name, "%s", o->name);
    dev->module->use(dev->index);
    const sw_status st = connect(o, ccl);
    if (st < 0) {
        close_ccl(super, ccl, true);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = ccl;
    return SW_OK;
}

static sw_status check(struct sw_device *super, struct sw_ccl *ccl)
{
    int state = NCCL_SUCCESS;
    (void)super;
    pthread_mutex_lock(&ccl->lock);
    const int code =
        ccl->comm ? ccl->library->f.CommGetAsyncError(ccl->comm, &state) : NCCL_SUCCESS;
    const sw_status st = went_well(code) && went_well(state)
                             ? SW_OK
                             : failed(ccl, "an exchange", went_well(code) ? state : code);
    pthread_mutex_unlock(&ccl->lock);
    return st;
}

/* ---- exchanges ---- */

static int type_of(enum sw_dtype dtype)
{
    return dtype == SW_BF16 ? NCCL_BFLOAT16 : dtype == SW_F16 ? NCCL_FLOAT16 : NCCL_FLOAT32;
}

/* Bytes travel as they are. Only a sum asks for their type. */
static int call(const struct sw_ccl *ccl, const struct sw_ccl_op *op, void *stream)
{
    const struct nccl_functions *f = &ccl->library->f;
    switch (op->verb) {
    case SW_CCL_SEND:
        return f->Send(op->src, op->bytes, NCCL_UINT8, op->peer, ccl->comm, stream);
    case SW_CCL_RECEIVE:
        return f->Recv(op->dst, op->bytes, NCCL_UINT8, op->peer, ccl->comm, stream);
    case SW_CCL_ALL_GATHER:
        return f->AllGather(op->src, op->dst, op->bytes, NCCL_UINT8, ccl->comm, stream);
    case SW_CCL_REDUCE_SCATTER:
        return f->ReduceScatter(op->src, op->dst, op->bytes / sw_dtype_bytes(op->dtype),
                                type_of(op->dtype), NCCL_SUM, ccl->comm, stream);
    case SW_CCL_BROADCAST:
        break;
    }
    return f->Broadcast(op->src, op->dst, op->bytes, NCCL_UINT8, op->peer, ccl->comm, stream);
}

static const char *name_of(enum sw_ccl_verb verb)
{
    static const char *const names[] = {
        [SW_CCL_SEND] = "ncclSend",
        [SW_CCL_RECEIVE] = "ncclRecv",
        [SW_CCL_ALL_GATHER] = "ncclAllGather",
        [SW_CCL_REDUCE_SCATTER] = "ncclReduceScatter",
        [SW_CCL_BROADCAST] = "ncclBroadcast",
    };
    return names[verb];
}

/* The lock is held. A group that was begun is ended, also after a failure. */
static sw_status call_all(struct sw_ccl *ccl, const struct sw_ccl_op *ops, int n, void *stream)
{
    const struct nccl_functions *f = &ccl->library->f;
    int code = NCCL_SUCCESS, i = 0;
    if (!ccl->comm) {
        return ended(ccl);
    }
    if (n > 1) {
        code = f->GroupStart();
        if (!went_well(code)) {
            return failed(ccl, "ncclGroupStart", code);
        }
    }
    for (; i < n && went_well(code); i++) {
        code = call(ccl, &ops[i], stream);
    }
    sw_status st = went_well(code) ? SW_OK : failed(ccl, name_of(ops[i - 1].verb), code);
    if (n > 1) {
        code = f->GroupEnd();
        st = st < 0 || went_well(code) ? st : failed(ccl, "ncclGroupEnd", code);
    }
    return st;
}

static sw_status exchange(struct sw_device *super, struct sw_stream_queue *on, struct sw_ccl *ccl,
                          const struct sw_ccl_op *ops, int n)
{
    struct gpu_device *dev = sw_gpu_of(super);
    void *stream;
    SW_TRY(sw_gpu_stream(dev, on, &stream));
    dev->module->use(dev->index);
    pthread_mutex_lock(&ccl->lock);
    const sw_status st = call_all(ccl, ops, n, stream);
    pthread_mutex_unlock(&ccl->lock);
    return st < 0 ? st : settle(ccl, name_of(ops[0].verb), 0);
}

static sw_status busy(struct sw_device *super, struct sw_stream_queue *on, bool *out)
{
    struct gpu_device *dev = sw_gpu_of(super);
    void *stream;
    int is_busy = 0;
    SW_TRY(sw_gpu_stream(dev, on, &stream));
    const int code = dev->module->stream_busy(dev->index, stream, &is_busy);
    if (code != 0) {
        return sw_gpu_failed(dev, code, "asking for a stream's work");
    }
    *out = is_busy != 0;
    return SW_OK;
}

const struct sw_ccl_ops sw_gpu_ccl = {
    .facts = facts,
    .new_id = new_id,
    .open = open_ccl,
    .close = close_ccl,
    .check = check,
    .abort = abort_ccl,
    .exchange = exchange,
    .busy = busy,
};
