// SPDX-License-Identifier: Apache-2.0
// The device's table over a module's. A timeline is a word of pinned host memory that streams write
// and wait for. The host polls it, with longer and longer sleeps.
#include "device/gpu/gpu.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/gpu/batch.h"
#include "device/gpu/blas.h"
#include "device/gpu/numa.h"
#include "device/gpu/open.h"

struct sw_stream_queue {
    void *stream;
    void *tickets;          /* int [GPU_TICKETS] on the device; kernels leave it zeroed */
    struct gpu_batch batch; /* launched before any other work */
};

struct sw_timeline {
    _Atomic uint64_t *word; /* pinned */
};

struct sw_kernel {
    const struct gpu_op *row;
    struct sw_op op; /* a copy that desc.op points to: the graph may be freed */
    struct sw_op_desc desc;
    bool is_predicated;
    void *prepared;
};

enum { MAX_GRID = 65536 };

sw_status sw_gpu_failed(const struct gpu_device *dev, int code, const char *doing)
{
    char text[256];
    dev->module->describe(code, text, sizeof text);
    return SW_FAIL(SW_E_DEVICE, "device %s:%d (%s): %s: %s", dev->module->backend, dev->index,
                   dev->facts.name, doing, text);
}

#define GPU_TRY(dev, doing, call)                                                                  \
    do {                                                                                           \
        const int gpu_code = (call);                                                               \
        if (gpu_code != 0) {                                                                       \
            return sw_gpu_failed(dev, gpu_code, doing);                                            \
        }                                                                                          \
    } while (0)

/* ---- memory ---- */

/* Pinned memory on the GPU's NUMA node, if that is known. */
static int host_alloc(const struct gpu_device *dev, size_t bytes, void **out)
{
    struct gpu_node_policy before = {.is_set = false};
    if (dev->node != GPU_NODE_UNKNOWN) {
        sw_gpu_prefer_node(dev->node, &before);
    }
    const int code = dev->module->host_alloc(dev->index, bytes, out);
    sw_gpu_put_back_policy(&before);
    return code;
}

static sw_status mem_alloc(struct sw_device *super, enum sw_mem kind, size_t bytes, void **out)
{
    struct gpu_device *dev = sw_gpu_of(super);
    const struct sw_gpu_module *m = dev->module;
    if (kind == SW_MEM_HOST) {
        if (host_alloc(dev, bytes, out) != 0) {
            char text[32];
            return SW_FAIL(SW_E_NOMEM, "device %s:%d: the system has no %s of pinned host memory",
                           m->backend, dev->index,
                           sw_format_bytes(text, sizeof text, (double)bytes));
        }
        return SW_OK;
    }
    if (m->alloc(dev->index, bytes, out) != 0) {
        char text[32], there[32];
        size_t free_bytes = 0, total = 0;
        m->memory(dev->index, &free_bytes, &total);
        return SW_FAIL(SW_E_NOMEM, "device %s:%d (%s): no %s of memory, %s are free", m->backend,
                       dev->index, dev->facts.name,
                       sw_format_bytes(text, sizeof text, (double)bytes),
                       sw_format_bytes(there, sizeof there, (double)free_bytes));
    }
    return SW_OK;
}

static void mem_free(struct sw_device *super, enum sw_mem kind, void *mem, size_t bytes)
{
    struct gpu_device *dev = sw_gpu_of(super);
    (void)bytes;
    if (kind == SW_MEM_HOST) {
        dev->module->host_release(dev->index, mem);
    } else {
        dev->module->release(dev->index, mem);
    }
}

/* ---- streams ---- */

static void release_stream(struct gpu_device *dev, struct sw_stream_queue *on)
{
    if (on->stream) {
        dev->module->stream_close(dev->index, on->stream);
    }
    if (on->tickets) {
        dev->module->release(dev->index, on->tickets);
    }
    sw_free(on);
}

static sw_status stream_open(struct sw_device *super, struct sw_stream_queue **out)
{
    enum { TICKETS_BYTES = GPU_TICKETS * sizeof(int) };
    struct gpu_device *dev = sw_gpu_of(super);
    const struct sw_gpu_module *m = dev->module;
    struct sw_stream_queue *on = sw_alloc_zero("device", 1, sizeof *on);
    SW_TRY_ALLOC(on, "a stream");
    int code = m->stream_open(dev->index, &on->stream);
    code = code ? code : m->alloc(dev->index, TICKETS_BYTES, &on->tickets);
    code = code ? code : m->fill(dev->index, on->stream, on->tickets, 0, TICKETS_BYTES);
    if (code != 0) {
        release_stream(dev, on);
        return sw_gpu_failed(dev, code, "opening a stream");
    }
    *out = on;
    return SW_OK;
}

/* Launches batched ops before anything else is queued or waited for. */
static sw_status settle(struct gpu_device *dev, struct sw_stream_queue *on)
{
    SW_TRY(sw_gpu_batch_launch(&on->batch, dev, on->stream));
    return SW_OK;
}

static void stream_close(struct sw_device *super, struct sw_stream_queue *on)
{
    struct gpu_device *dev = sw_gpu_of(super);
    if (on && settle(dev, on) < 0) {
        sw_log(SW_LOG_ERROR, "work of a closed stream failed: %s", sw_error_message());
    }
    if (on) {
        release_stream(dev, on);
    }
}

sw_status sw_gpu_stream(struct gpu_device *dev, struct sw_stream_queue *on, void **out)
{
    SW_TRY(settle(dev, on));
    *out = on->stream;
    return SW_OK;
}

void *sw_gpu_raw_stream(const struct sw_stream_queue *on)
{
    return on->stream;
}

static sw_status stream_wait(struct sw_device *super, struct sw_stream_queue *on)
{
    struct gpu_device *dev = sw_gpu_of(super);
    SW_TRY(settle(dev, on));
    GPU_TRY(dev, "waiting for a stream", dev->module->stream_wait(dev->index, on->stream));
    return SW_OK;
}

static sw_status copy(struct sw_device *super, struct sw_stream_queue *on, void *dst,
                      const void *src, size_t bytes)
{
    struct gpu_device *dev = sw_gpu_of(super);
    SW_TRY(settle(dev, on));
    GPU_TRY(dev, "copying", dev->module->copy(dev->index, on->stream, dst, src, bytes));
    return SW_OK;
}

static sw_status fill(struct sw_device *super, struct sw_stream_queue *on, void *dst, int byte,
                      size_t bytes)
{
    struct gpu_device *dev = sw_gpu_of(super);
    SW_TRY(settle(dev, on));
    GPU_TRY(dev, "filling", dev->module->fill(dev->index, on->stream, dst, byte, bytes));
    return SW_OK;
}

sw_status sw_gpu_zero(const struct gpu_call *call, void *dst, size_t bytes)
{
    GPU_TRY(call->dev, "filling",
            call->dev->module->fill(call->dev->index, call->stream, dst, 0, bytes));
    return SW_OK;
}

/* ---- timelines ---- */

static sw_status timeline_open(struct sw_device *super, struct sw_timeline **out)
{
    struct gpu_device *dev = sw_gpu_of(super);
    void *word;
    struct sw_timeline *timeline = sw_alloc_zero("device", 1, sizeof *timeline);
    SW_TRY_ALLOC(timeline, "a timeline");
    const int code = dev->module->host_alloc(dev->index, sizeof *timeline->word, &word);
    if (code != 0) {
        sw_free(timeline);
        return sw_gpu_failed(dev, code, "opening a timeline");
    }
    timeline->word = word;
    atomic_store(timeline->word, 0);
    *out = timeline;
    return SW_OK;
}

static void timeline_close(struct sw_device *super, struct sw_timeline *timeline)
{
    struct gpu_device *dev = sw_gpu_of(super);
    if (timeline) {
        dev->module->host_release(dev->index, (void *)timeline->word);
        sw_free(timeline);
    }
}

static sw_status stream_signal(struct sw_device *super, struct sw_stream_queue *on,
                               struct sw_timeline *timeline, int64_t value)
{
    struct gpu_device *dev = sw_gpu_of(super);
    SW_TRY(settle(dev, on));
    GPU_TRY(
        dev, "setting a timeline",
        dev->module->signal(dev->index, on->stream, (uint64_t *)timeline->word, (uint64_t)value));
    return SW_OK;
}

static sw_status stream_await(struct sw_device *super, struct sw_stream_queue *on,
                              struct sw_timeline *timeline, int64_t value)
{
    struct gpu_device *dev = sw_gpu_of(super);
    SW_TRY(settle(dev, on));
    GPU_TRY(
        dev, "waiting for a timeline",
        dev->module->await(dev->index, on->stream, (uint64_t *)timeline->word, (uint64_t)value));
    return SW_OK;
}

static sw_status timeline_set(struct sw_device *super, struct sw_timeline *timeline, int64_t value)
{
    (void)super;
    atomic_store(timeline->word, (uint64_t)value);
    return SW_OK;
}

static int64_t timeline_get(struct sw_device *super, const struct sw_timeline *timeline)
{
    (void)super;
    return (int64_t)atomic_load(timeline->word);
}

/* A device that has failed sets no timeline any more; every later call reports the failure. */
static sw_status check_alive(struct gpu_device *dev)
{
    size_t free_bytes, total;
    GPU_TRY(dev, "waiting for a timeline", dev->module->memory(dev->index, &free_bytes, &total));
    return SW_OK;
}

static sw_status timeline_wait(struct sw_device *super, struct sw_timeline *timeline, int64_t value)
{
    enum { LOOKS = 200, SHORT_NS = 5000, LONG_NS = 100000, CHECK = 2000 };
    for (int64_t i = 0; timeline_get(super, timeline) < value; i++) {
        if (i < LOOKS) {
            sched_yield();
        } else {
            const struct timespec t = {0, i < 4 * LOOKS ? SHORT_NS : LONG_NS};
            nanosleep(&t, NULL);
        }
        if (i % CHECK == CHECK - 1) {
            SW_TRY(check_alive(sw_gpu_of(super)));
        }
    }
    return SW_OK;
}

/* ---- sums of the ranks' slices ---- */

static struct gpu_call call_on(struct gpu_device *dev, struct sw_stream_queue *on)
{
    return (struct gpu_call){.dev = dev, .stream = on->stream, .tickets = on->tickets};
}

static sw_status add_slices(struct sw_device *super, struct sw_stream_queue *on,
                            const struct sw_slice_sum *sum)
{
    const struct gpu_call call = call_on(sw_gpu_of(super), on);
    SW_TRY(settle(call.dev, on));
    struct gpu_add_slices_args args = {.acc = sum->acc,
                                       .slices = sum->slices,
                                       .rounded = sum->rounded,
                                       .n = sum->n,
                                       .n_slices = sum->n_slices,
                                       .fresh = sum->fresh};
    GPU_LAUNCH(&call, add_slices, sw_gpu_type_of(sum->dtype), sw_gpu_grid_for(sum->n, 256), &args);
    return SW_OK;
}

static sw_status add_words(struct sw_device *super, struct sw_stream_queue *on, int64_t *out,
                           const int64_t *words, int64_t n_sets, int64_t n)
{
    const struct gpu_call call = call_on(sw_gpu_of(super), on);
    SW_TRY(settle(call.dev, on));
    struct gpu_add_words_args args = {.out = out, .words = words, .n_sets = n_sets, .n = n};
    GPU_LAUNCH(&call, add_words, SW_GPU_PLAIN, sw_gpu_grid_for(n, 256), &args);
    return SW_OK;
}

/* ---- kernels ---- */

enum sw_gpu_type sw_gpu_type_of(enum sw_dtype dtype)
{
    return dtype == SW_BF16  ? SW_GPU_BF16
           : dtype == SW_F16 ? SW_GPU_F16
           : dtype == SW_F32 ? SW_GPU_F32
                             : SW_GPU_PLAIN;
}

bool sw_gpu_all_floats(const struct sw_view *views, int n)
{
    int dtype = -1;
    for (int i = 0; i < n; i++) {
        if (views[i].shape.rank < 0) {
            continue;
        }
        if (sw_gpu_type_of(views[i].dtype) == SW_GPU_PLAIN ||
            (dtype >= 0 && (int)views[i].dtype != dtype)) {
            return false;
        }
        dtype = (int)views[i].dtype;
    }
    return dtype >= 0;
}

struct gpu_grid sw_gpu_grid_for(int64_t n, int n_threads)
{
    const int64_t blocks = sw_ceil_div(n, n_threads);
    return (struct gpu_grid){.x = sw_max_i64(1, sw_min_i64(blocks, MAX_GRID))};
}

/* CUDA takes 2^31 - 1 blocks along x. HIP takes fewer than 2^32 threads. */
static sw_status check_grid(const struct gpu_device *dev, const struct sw_gpu_kernel *kernel,
                            const struct gpu_grid *grid)
{
    enum { MOST_Y = 65535 };
    const bool is_amd = strcmp(dev->module->backend, "hip") == 0 || dev->facts.warp > 32;
    const int64_t most = is_amd ? UINT32_MAX / kernel->n_threads : INT32_MAX;
    if (grid->x <= most && grid->y <= MOST_Y && grid->z <= MOST_Y) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_UNSUP,
                   "%s: a launch of %lld x %lld x %lld blocks of %d threads, wanted at most %lld x "
                   "%d x %d; a smaller train_micro_batch_size_per_gpu or --seq-len takes fewer",
                   kernel->name, (long long)grid->x, (long long)grid->y, (long long)grid->z,
                   kernel->n_threads, (long long)most, MOST_Y, MOST_Y);
}

sw_status sw_gpu_run_kernel(const struct gpu_call *call, enum sw_gpu_kernel_id id,
                            enum sw_gpu_type type, struct gpu_grid grid, size_t shared, void *args,
                            size_t bytes)
{
    struct gpu_device *dev = call->dev;
    const struct sw_gpu_kernel *kernel = dev->kernels[id];
    SW_ASSERT(kernel->args_bytes == bytes && kernel->entry[type]);
    SW_TRY(check_grid(dev, kernel, &grid));
    const double *skip = call->is_predicated ? call->scalars + SW_SCALAR_SKIP : NULL;
    memcpy(args, &skip, sizeof skip);
    const struct sw_gpu_launch launch = {
        .grid = {(unsigned)(grid.x ? grid.x : 1), (unsigned)(grid.y ? grid.y : 1),
                 (unsigned)(grid.z ? grid.z : 1)},
        .shared = shared,
        .args = args,
    };
    const int code = dev->module->launch(dev->index, call->stream, kernel, type, &launch);
    return code == 0 ? SW_OK : sw_gpu_failed(dev, code, kernel->name);
}

static bool any_f64(const struct sw_view *views, int n)
{
    for (int i = 0; i < n; i++) {
        if (views[i].shape.rank >= 0 && views[i].dtype == SW_F64) {
            return true;
        }
    }
    return false;
}

void sw_gpu_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    const struct gpu_op *row = sw_gpu_ops[desc->op->kind];
    if (row && !any_f64(desc->in, desc->op->n_in) && !any_f64(desc->out, desc->op->n_out)) {
        out->path = dev->module->backend;
        row->query(dev, desc, out);
    }
}

static void query(struct sw_device *super, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    sw_gpu_query(sw_gpu_of(super), desc, out);
}

static sw_status prepare(struct sw_device *super, const struct sw_op_desc *desc,
                         struct sw_kernel **out)
{
    struct gpu_device *dev = sw_gpu_of(super);
    struct sw_kernel_info info = {0};
    query(super, desc, &info);
    if (!info.supported) {
        return SW_FAIL(SW_E_UNSUP, "device %s:%d has no kernel for op %s", dev->module->backend,
                       dev->index, sw_op_name(desc->op));
    }
    struct sw_kernel *kernel = sw_alloc_zero("device", 1, sizeof *kernel);
    SW_TRY_ALLOC(kernel, "a kernel");
    kernel->row = sw_gpu_ops[desc->op->kind];
    kernel->op = *desc->op;
    kernel->desc = *desc;
    kernel->desc.op = &kernel->op;
    kernel->is_predicated = desc->is_predicated || sw_op_has(desc->op, SW_TRAIT_UPDATE);
    if (kernel->row->prepare) {
        sw_gpu_products_use(dev->products, true);
        const sw_status st = kernel->row->prepare(dev, &kernel->desc, &kernel->prepared);
        sw_gpu_products_use(dev->products, false);
        if (st < 0) {
            sw_free(kernel);
            return sw_frame_at(__FILE__, __LINE__, st);
        }
    }
    *out = kernel;
    return SW_OK;
}

static void release(struct sw_device *super, struct sw_kernel *kernel)
{
    if (kernel && kernel->row->release) {
        kernel->row->release(sw_gpu_of(super), kernel->prepared);
    }
    sw_free(kernel);
}

static sw_status launch(struct sw_device *super, struct sw_stream_queue *on,
                        struct sw_kernel *kernel, void *const *in, void *const *out,
                        void *workspace, double *scalars)
{
    struct gpu_call call = call_on(sw_gpu_of(super), on);
    call.desc = &kernel->desc;
    call.in = in;
    call.out = out;
    call.workspace = workspace;
    call.scalars = scalars;
    call.is_predicated = kernel->is_predicated;
    call.prepared = kernel->prepared;
    if (kernel->row->stands_in_line) {
        call.batch = &on->batch;
    } else {
        SW_TRY(settle(call.dev, on));
    }
    return kernel->row->run(&call);
}

static void algorithms(struct sw_device *super, struct sw_str *out)
{
    sw_gpu_products_describe(sw_gpu_of(super)->products, out);
}

/* ---- the device ---- */

static void close_device(struct sw_device *super)
{
    struct gpu_device *dev = sw_gpu_of(super);
    dev->module->use(dev->index); /* the library's handle belongs to this device */
    sw_gpu_products_close(dev->products);
    sw_gpu_ccl_forget(dev);
    sw_free(dev);
}

static const struct sw_device_ops gpu_ops = {
    .name = "gpu",
    SW_DEVICE_OPS,
    .algorithms = algorithms,
};

/* Requires every one of our kernels, with arguments of our size. */
static sw_status index_kernels(struct gpu_device *dev)
{
    const struct sw_gpu_module *m = dev->module;
    for (int t = 0; t < m->n_kernels; t++) {
        for (int i = 0; i < m->kernels[t]->n; i++) {
            const struct sw_gpu_kernel *row = &m->kernels[t]->rows[i];
            if (row->id >= 0 && row->id < GPU_N_KERNELS) {
                dev->kernels[row->id] = row;
            }
        }
    }
    for (int id = 0; id < GPU_N_KERNELS; id++) {
        if (!dev->kernels[id]) {
            return SW_FAIL(SW_E_DEVICE,
                           "the module for %s has no kernel %d; it belongs to another build",
                           m->backend, id);
        }
    }
    return SW_OK;
}

sw_status sw_gpu_count_of(const char *backend, const struct sw_gpu_module *module, int *out)
{
    const int code = module->count(out);
    if (code != 0 || *out == 0) {
        char text[512] = "the driver reports no GPU";
        if (code != 0) {
            module->describe(code, text, sizeof text);
        }
        return SW_FAIL(SW_E_UNSUP, "device %s: %s", backend, text);
    }
    return SW_OK;
}

sw_status sw_gpu_count(const char *backend, int *out)
{
    const struct sw_gpu_module *module;
    SW_TRY(sw_gpu_module_open(backend, &module));
    const sw_status st = sw_gpu_count_of(backend, module, out);
    return st;
}

static int find_memory(struct gpu_device *dev)
{
    size_t free_bytes = 0, total = 0;
    const int code = dev->module->memory(dev->index, &free_bytes, &total);
    char text[32];
    dev->super.free_bytes = free_bytes;
    dev->super.memory_bytes = sw_gpu_usable(free_bytes);
    snprintf(dev->what, sizeof dev->what, "%s:%d, %s (%s), %s free", dev->module->backend,
             dev->index, dev->facts.name, dev->facts.arch,
             sw_format_bytes(text, sizeof text, (double)free_bytes));
    return code;
}

/* Sets the NUMA node of staging memory, or the reason why it lies anywhere. */
static void find_node(struct gpu_device *dev)
{
    struct gpu_node_policy before;
    dev->node = dev->facts.bus[0]
                    ? sw_gpu_node_of(dev->facts.bus, dev->no_node, sizeof dev->no_node)
                    : GPU_NODE_UNKNOWN;
    if (dev->node == GPU_NODE_UNKNOWN) {
        return;
    }
    if (!sw_gpu_prefer_node(dev->node, &before)) {
        snprintf(dev->no_node, sizeof dev->no_node, "its NUMA node is %d, but %s", dev->node,
                 strerror(errno));
        dev->node = GPU_NODE_UNKNOWN;
    }
    sw_gpu_put_back_policy(&before);
}

/* Names everything that may change a bit. That includes the compiler, since functions like expf are
 * its own. */
static void name_kernels(struct gpu_device *dev, const char *backend)
{
    const char *compiler = dev->module->built_with;
    char text[64];
    size_t n = 0;
    for (; compiler[n] && compiler[n] != ',' && n < sizeof text - 1; n++) {
        text[n] = compiler[n];
        if (text[n] == ' ') {
            text[n] = '-';
        }
    }
    text[n] = '\0';
    snprintf(dev->kernel_set, sizeof dev->kernel_set,
             "%s %s processors:%d products:%s kernels:%s compiler:%s", backend, dev->facts.arch,
             dev->facts.n_processors, sw_gpu_products_name(dev->products), dev->module->digest,
             text);
}

sw_status sw_gpu_open(const char *backend, int index, struct sw_device **out)
{
    struct gpu_device *dev = sw_alloc_zero("device", 1, sizeof *dev);
    SW_TRY_ALLOC(dev, "a device");
    sw_status st;
    int n = 0;
    SW_TRY_OR(close, sw_gpu_module_open(backend, &dev->module));
    SW_TRY_OR(close, index_kernels(dev));
    SW_TRY_OR(close, sw_gpu_count_of(backend, dev->module, &n));
    dev->index = index;
    int code = dev->module->facts(index, &dev->facts);
    code = code ? code : dev->module->open(index);
    if (code != 0) {
        st = sw_gpu_failed(dev, code, "opening");
        goto close;
    }
    SW_TRY_OR(close, sw_gpu_products_open(dev, &dev->products));
    code = find_memory(dev); /* after the library's allocations */
    if (code != 0) {
        st = sw_gpu_failed(dev, code, "asking for its memory");
        goto close;
    }
    find_node(dev);
    name_kernels(dev, backend);
    dev->super.ops = &gpu_ops;
    dev->super.ccl_bytes = sw_gpu_ccl_bytes(dev);
    dev->super.ccl = dev->super.ccl_bytes > 0 ? &sw_gpu_ccl : NULL;
    sw_gpu_find_capture(dev);
    dev->super.staging_bytes = GPU_STAGING_BYTES;
    dev->super.kernel_set = dev->kernel_set;
    dev->super.what = dev->what;
    dev->super.address = dev->facts.bus;
    *out = &dev->super;
    return SW_OK;
close:
    sw_gpu_products_close(dev->products);
    sw_free(dev);
    return st;
}
