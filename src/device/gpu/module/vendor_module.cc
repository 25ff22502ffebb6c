// SPDX-License-Identifier: Apache-2.0
// The table of spillway_cuda.so and of spillway_hip.so. The calls of the two runtimes have the same
// names after their prefix, and the same meaning. Every call sets its device, because threads
// change. A stream writes and waits for a word of pinned memory (CUDA) or of signal memory (HIP);
// the host sees it, too.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#define BACKEND "hip"
#define ARCHS_OPTION "HIP_ARCHS"
#else
#include <cuda.h> /* types only: the driver's library is not linked */
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#define BACKEND "cuda"
#define ARCHS_OPTION "CUDA_ARCHS"
#endif

#include "device/gpu/module/registry.h"
#include "device/gpu/module/tables.h"

#define SW_TEXT_OF(x) #x
#define SW_TEXT(x) SW_TEXT_OF(x)

/* Driver error codes start here, above the runtime's. */
enum { DRIVER_CODES = 100000 };

#define GPU_RETURN_IF(call)                                                                        \
    do {                                                                                           \
        const int failed_with = (int)(call);                                                       \
        if (failed_with != 0) {                                                                    \
            (void)GPU(GetLastError)(); /* or the next call would report it again */                \
            return failed_with;                                                                    \
        }                                                                                          \
    } while (0)

/* The vendor cuts smaller allocations out of a page, at multiples of 512 bytes. Memory must start
 * at multiples of 4096 (device.h), so each allocation gets pages of its own. */
enum { OWN_PAGE = 2 << 20 };

static size_t whole_pages(size_t bytes)
{
    return bytes < OWN_PAGE ? (size_t)OWN_PAGE : bytes;
}

/* ---- differences ---- */

#if defined(__HIP__)

#define BUILT_WITH                                                                                 \
    "clang " SW_TEXT(__clang_major__) "." SW_TEXT(__clang_minor__) ", HIP " SW_TEXT(               \
        HIP_VERSION_MAJOR) "." SW_TEXT(HIP_VERSION_MINOR)

static void describe_driver(char *text, size_t cap)
{
    snprintf(text, cap,
             "no AMD GPU was found: this needs the driver amdgpu, its device /dev/kfd, "
             "and the right to use it (group render)");
}

enum { NO_CODE = hipErrorNoBinaryForGpu };

static const char *driver_error(int code)
{
    (void)code;
    return "unknown error";
}

static bool is_no_device(int code)
{
    return code == hipErrorNoDevice || code == hipErrorInvalidDevice ||
           code == hipErrorInsufficientDriver || code == hipErrorNotInitialized;
}

static int count(int *n_devices)
{
    *n_devices = 0;
    GPU_RETURN_IF(hipGetDeviceCount(n_devices));
    return *n_devices > 0 ? 0 : (int)hipErrorNoDevice;
}

static void name_arch(const hipDeviceProp_t *p, struct sw_gpu_facts *out)
{
    snprintf(out->arch, sizeof out->arch, "%.*s", (int)strcspn(p->gcnArchName, ":"),
             p->gcnArchName);
    out->shared_max = p->sharedMemPerBlock;
}

/* No call is needed: a block may always use its maximum. */
static int allow_shared(const struct sw_gpu_kernel *kernel, const void *entry, size_t most)
{
    (void)kernel;
    (void)entry;
    (void)most;
    return 0;
}

static int host_alloc(int device, size_t bytes, void **out)
{
    GPU_RETURN_IF(hipSetDevice(device));
    if (bytes == sizeof(uint64_t)) { /* a timeline's word */
        GPU_RETURN_IF(hipExtMallocWithFlags(out, bytes, hipMallocSignalMemory));
        return 0;
    }
    GPU_RETURN_IF(
        hipHostMalloc(out, whole_pages(bytes), hipHostMallocPortable | hipHostMallocMapped));
    return 0;
}

static int host_release(int device, void *mem)
{
    GPU_RETURN_IF(hipSetDevice(device));
    if (hipHostFree(mem) != hipSuccess) { /* signal memory is freed as device memory */
        (void)hipGetLastError();
        GPU_RETURN_IF(hipFree(mem));
    }
    return 0;
}

static int instantiate(hipGraphExec_t *out, hipGraph_t graph, void *stream)
{
    (void)stream;
    GPU_RETURN_IF(hipGraphInstantiate(out, graph, nullptr, nullptr, 0));
    return 0;
}

static int signal_word(int device, void *stream, uint64_t *word, uint64_t value)
{
    GPU_RETURN_IF(hipSetDevice(device));
    GPU_RETURN_IF(hipStreamWriteValue64((hipStream_t)stream, word, value, 0));
    return 0;
}

static int await_word(int device, void *stream, const uint64_t *word, uint64_t value)
{
    GPU_RETURN_IF(hipSetDevice(device));
    GPU_RETURN_IF(hipStreamWaitValue64((hipStream_t)stream, (void *)word, value,
                                       hipStreamWaitValueGte, UINT64_MAX));
    return 0;
}

#else

#define BUILT_WITH                                                                                 \
    "nvcc " SW_TEXT(__CUDACC_VER_MAJOR__) "." SW_TEXT(__CUDACC_VER_MINOR__) "." SW_TEXT(           \
        __CUDACC_VER_BUILD__) " (wants " NEEDS_DRIVER ")"
#if CUDART_VERSION >= 13000
#define NEEDS_DRIVER "driver 580 or later"
#elif CUDART_VERSION >= 12000
#define NEEDS_DRIVER "driver 525 or later"
#else
#define NEEDS_DRIVER "driver 450 or later"
#endif

#define GET_DRIVER " (nvidia.com/drivers, or Debian's package nvidia-driver where it is as new)"

static void describe_driver(char *text, size_t cap)
{
    int version = 0;
    if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
        snprintf(text, cap,
                 "there is no NVIDIA driver (libcuda.so.1): wanted " NEEDS_DRIVER GET_DRIVER
                 "; a container wants it passed in (--gpus all)");
    } else if (version / 1000 < CUDART_VERSION / 1000) {
        snprintf(text, cap,
                 "the NVIDIA driver is too old: it has CUDA %d.%d, this was built by CUDA %d.%d, "
                 "which wants " NEEDS_DRIVER GET_DRIVER "; an older nvcc wants less",
                 version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10);
    } else {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        snprintf(text, cap, "the NVIDIA driver sees no GPU%s%s",
                 visible ? "; CUDA_VISIBLE_DEVICES is " : "", visible ? visible : "");
    }
}

enum { NO_CODE = cudaErrorNoKernelImageForDevice };

static bool is_no_device(int code)
{
    return code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice ||
           code == cudaErrorStubLibrary;
}

static int count(int *n_devices)
{
    *n_devices = 0;
    GPU_RETURN_IF(cudaGetDeviceCount(n_devices));
    return *n_devices > 0 ? 0 : (int)cudaErrorNoDevice;
}

static void name_arch(const cudaDeviceProp *p, struct sw_gpu_facts *out)
{
    snprintf(out->arch, sizeof out->arch, "sm_%d%d", p->major, p->minor);
    out->shared_max = p->sharedMemPerBlockOptin;
}

static int allow_shared(const struct sw_gpu_kernel *kernel, const void *entry, size_t most)
{
    cudaFuncAttributes attributes;
    (void)kernel;
    GPU_RETURN_IF(cudaFuncGetAttributes(&attributes, entry)); /* this call also loads the kernel */
    if (attributes.sharedSizeBytes < most) {
        GPU_RETURN_IF(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           (int)(most - attributes.sharedSizeBytes)));
    }
    return 0;
}

static int host_alloc(int device, size_t bytes, void **out)
{
    GPU_RETURN_IF(cudaSetDevice(device));
    /* or a timeline's word */
    const size_t n = bytes == sizeof(uint64_t) ? bytes : whole_pages(bytes);
    GPU_RETURN_IF(cudaHostAlloc(out, n, cudaHostAllocPortable | cudaHostAllocMapped));
    return 0;
}

static int host_release(int device, void *mem)
{
    GPU_RETURN_IF(cudaSetDevice(device));
    GPU_RETURN_IF(cudaFreeHost(mem));
    return 0;
}

/* Allocates here what the graph takes on the device, and not in its first launch. */
static int instantiate(cudaGraphExec_t *out, cudaGraph_t graph, void *stream)
{
    GPU_RETURN_IF(cudaGraphInstantiateWithFlags(out, graph, 0));
    const cudaError_t code = cudaGraphUpload(*out, (cudaStream_t)stream);
    if (code != cudaSuccess) {
        (void)cudaGraphExecDestroy(*out);
    }
    GPU_RETURN_IF(code);
    return 0;
}

/* Looks up a driver call in its CUDA 12 version; *cache is NULL before the first lookup. */
static int driver_call(const char *name, void **cache, void **out)
{
    *out = __atomic_load_n(cache, __ATOMIC_RELAXED);
    if (*out) {
        return 0;
    }
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    GPU_RETURN_IF(cudaGetDriverEntryPointByVersion(name, out, 12000, cudaEnableDefault, &found));
#else
    GPU_RETURN_IF(cudaGetDriverEntryPoint(name, out, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess) {
        return (int)cudaErrorSymbolNotFound;
    }
    __atomic_store_n(cache, *out, __ATOMIC_RELAXED);
    return 0;
}

typedef CUresult (*stream_value_fn)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
typedef CUresult (*error_string_fn)(CUresult, const char **);

static const char *driver_error(int code)
{
    void *cache = nullptr, *call = nullptr;
    const char *text = nullptr;
    if (driver_call("cuGetErrorString", &cache, &call) != 0 ||
        ((error_string_fn)call)((CUresult)code, &text) != CUDA_SUCCESS || !text) {
        return "unknown error";
    }
    return text;
}

/* Calls cuStreamWriteValue64 or cuStreamWaitValue64 with the given flags. */
static int stream_value(int device, const char *name, void **cache, void *stream,
                        const uint64_t *word, uint64_t value, unsigned flags)
{
    void *call = nullptr;
    GPU_RETURN_IF(cudaSetDevice(device));
    GPU_RETURN_IF(driver_call(name, cache, &call));
    const CUresult result = ((stream_value_fn)call)((CUstream)stream, (CUdeviceptr)(uintptr_t)word,
                                                    (cuuint64_t)value, flags);
    return result == CUDA_SUCCESS ? 0 : DRIVER_CODES + (int)result;
}

static int signal_word(int device, void *stream, uint64_t *word, uint64_t value)
{
    static void *cache; /* the same for all threads: whichever is first fills it */
    return stream_value(device, "cuStreamWriteValue64", &cache, stream, word, value,
                        CU_STREAM_WRITE_VALUE_DEFAULT);
}

static int await_word(int device, void *stream, const uint64_t *word, uint64_t value)
{
    static void *cache;
    return stream_value(device, "cuStreamWaitValue64", &cache, stream, word, value,
                        CU_STREAM_WAIT_VALUE_GEQ);
}

#endif

/* ---- common to both ---- */

static void describe(int code, char *text, size_t cap)
{
    if (is_no_device(code)) {
        describe_driver(text, cap);
    } else if (code >= DRIVER_CODES) {
        snprintf(text, cap, "%s (driver error %d)", driver_error(code - DRIVER_CODES),
                 code - DRIVER_CODES);
    } else if (code == NO_CODE) {
        snprintf(text, cap,
                 "this module has code for " SW_GPU_ARCHS ", and none for this GPU: build it with "
                 "-DSPILLWAY_" ARCHS_OPTION "=..");
    } else {
        snprintf(text, cap, "%s (%s %d)", GPU(GetErrorString)((GPU(Error_t))code), BACKEND, code);
    }
}

static int facts(int device, struct sw_gpu_facts *out)
{
#if defined(__HIP__)
    hipDeviceProp_t p;
#else
    cudaDeviceProp p;
#endif
    memset(out, 0, sizeof *out);
    GPU_RETURN_IF(GPU(GetDeviceProperties)(&p, device));
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    name_arch(&p, out);
    GPU_RETURN_IF(GPU(DeviceGetPCIBusId)(out->bus, (int)sizeof out->bus, device));
    out->major = p.major;
    out->minor = p.minor;
    out->n_processors = p.multiProcessorCount;
    out->warp = p.warpSize;
    GPU_RETURN_IF(GPU(DriverGetVersion)(&out->driver));
    GPU_RETURN_IF(GPU(RuntimeGetVersion)(&out->runtime));
    return 0;
}

/* A kernel's attributes are known once it is loaded. */
static int load(const struct sw_gpu_kernel *kernel, size_t shared_max)
{
    for (int type = 0; type < SW_GPU_N_TYPES; type++) {
        const void *entry = kernel->entry[type];
        GPU(FuncAttributes) attributes;
        if (entry) {
            GPU_RETURN_IF(GPU(FuncGetAttributes)(&attributes, entry));
            GPU_RETURN_IF(allow_shared(kernel, entry, shared_max));
        }
    }
    return 0;
}

static int open_device(int device)
{
    struct sw_gpu_facts about;
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(facts(device, &about));
    for (int t = 0; t < (int)SW_ROWS(all_kernels); t++) {
        for (int i = 0; i < all_kernels[t]->n; i++) {
            GPU_RETURN_IF(load(&all_kernels[t]->rows[i], about.shared_max));
        }
    }
    return 0;
}

static int use(int device)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    return 0;
}

static int memory(int device, size_t *free_bytes, size_t *total_bytes)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(MemGetInfo)(free_bytes, total_bytes));
    return 0;
}

static int alloc(int device, size_t bytes, void **out)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(Malloc)(out, whole_pages(bytes)));
    return 0;
}

static int release(int device, void *mem)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(Free)(mem));
    return 0;
}

static int stream_open(int device, void **out)
{
    GPU(Stream_t) stream;
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(StreamCreateWithFlags)(&stream, GPU(StreamNonBlocking)));
    *out = (void *)stream;
    return 0;
}

static int stream_close(int device, void *stream)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(StreamDestroy)((GPU(Stream_t))stream));
    return 0;
}

static int stream_wait(int device, void *stream)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(StreamSynchronize)((GPU(Stream_t))stream));
    return 0;
}

static int stream_busy(int device, void *stream, int *busy)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    const GPU(Error_t) code = GPU(StreamQuery)((GPU(Stream_t))stream);
    *busy = code == GPU(ErrorNotReady);
    if (*busy) {
        (void)GPU(GetLastError)();
        return 0;
    }
    GPU_RETURN_IF(code);
    return 0;
}

static int copy(int device, void *stream, void *dst, const void *src, size_t bytes)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(MemcpyAsync)(dst, src, bytes, GPU(MemcpyDefault), (GPU(Stream_t))stream));
    return 0;
}

static int fill(int device, void *stream, void *dst, int byte, size_t bytes)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(MemsetAsync)(dst, byte, bytes, (GPU(Stream_t))stream));
    return 0;
}

static int launch(int device, void *stream, const struct sw_gpu_kernel *kernel,
                  enum sw_gpu_type type, const struct sw_gpu_launch *what)
{
    void *args[] = {(void *)what->args}; /* kernels take one struct, by value */
    const dim3 grid(what->grid[0], what->grid[1], what->grid[2]);
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(LaunchKernel)(kernel->entry[type], grid, dim3((unsigned)kernel->n_threads),
                                    args, what->shared, (GPU(Stream_t))stream));
    return 0;
}

static int capture_begin(int device, void *stream)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    /* other ranks of this process may allocate meanwhile */
    GPU_RETURN_IF(
        GPU(StreamBeginCapture)((GPU(Stream_t))stream, GPU(StreamCaptureModeThreadLocal)));
    return 0;
}

static int make_graph(GPU(Graph_t) graph, void *stream, void **out, int *n_nodes)
{
    GPU(GraphExec_t) made;
    size_t n = 0;
    GPU_RETURN_IF(GPU(GraphGetNodes)(graph, nullptr, &n));
    GPU_RETURN_IF(instantiate(&made, graph, stream));
    *out = (void *)made;
    *n_nodes = (int)n;
    return 0;
}

static int capture_end(int device, void *stream, void **out, int *n_nodes)
{
    GPU(Graph_t) graph;
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(StreamEndCapture)((GPU(Stream_t))stream, &graph));
    const int code = out ? make_graph(graph, stream, out, n_nodes) : 0;
    (void)GPU(GraphDestroy)(graph);
    return code;
}

static int replay(int device, void *stream, void *graph)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(GraphLaunch)((GPU(GraphExec_t))graph, (GPU(Stream_t))stream));
    return 0;
}

static int graph_release(int device, void *graph)
{
    GPU_RETURN_IF(GPU(SetDevice)(device));
    GPU_RETURN_IF(GPU(GraphExecDestroy)((GPU(GraphExec_t))graph));
    return 0;
}

extern "C" __attribute__((visibility("default"))) const struct sw_gpu_module sw_gpu_module;
const struct sw_gpu_module sw_gpu_module = {
    .abi = SW_GPU_ABI,
    .bytes = sizeof(struct sw_gpu_module),
    .backend = BACKEND,
    .built_with = BUILT_WITH,
    .archs = SW_GPU_ARCHS,
    .digest = SW_GPU_DIGEST,
    .kernels = all_kernels,
    .n_kernels = SW_ROWS(all_kernels),
    .describe = describe,
    .count = count,
    .facts = facts,
    .open = open_device,
    .use = use,
    .memory = memory,
    .alloc = alloc,
    .release = release,
    .host_alloc = host_alloc,
    .host_release = host_release,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_wait = stream_wait,
    .stream_busy = stream_busy,
    .copy = copy,
    .fill = fill,
    .signal = signal_word,
    .await = await_word,
    .launch = launch,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .graph_release = graph_release,
};
