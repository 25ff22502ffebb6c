// SPDX-License-Identifier: Apache-2.0
// The front of every device: checks the caller's contract and counts. The back ends trust it.
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "device/gpu/open.h"

/* The rest of name after `prefix`, which must end name or be followed by ":" and more. NULL = name
 * does not match. */
static const char *after(const char *name, const char *prefix)
{
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || (name[n] != '\0' && (name[n] != ':' || !name[n + 1]))) {
        return NULL;
    }
    return name[n] ? name + n + 1 : name + n;
}

/* words: any of "64", "reversed", "early" and "direct", separated by ":". */
static sw_status open_emulation(const char *name, const char *words, int n_threads,
                                struct sw_device **out)
{
    enum { WIDE, REVERSED, EARLY, DIRECT };
    static const char *const known[] = {
        [WIDE] = "64", [REVERSED] = "reversed", [EARLY] = "early", [DIRECT] = "direct"};
    bool is[SW_LEN(known)] = {false};
    while (*words) {
        const size_t n = strcspn(words, ":");
        size_t i = 0;
        while (i < SW_LEN(known) && (strlen(known[i]) != n || strncmp(known[i], words, n) != 0)) {
            i++;
        }
        if (i == SW_LEN(known)) {
            return SW_FAIL(SW_E_ARG,
                           "no device \"%s\"; after \"emu\" wanted 64, reversed, early or direct",
                           name);
        }
        is[i] = true;
        words += n + (words[n] == ':');
    }
    struct sw_mock_options mock = {.n_threads = n_threads, .early = is[EARLY]};
    SW_TRY(sw_gpu_open(is[WIDE] ? "emu64" : "emu32", is[REVERSED], &mock.inner));
    if (is[DIRECT]) {
        mock.inner->ccl = &sw_gpu_no_ccl;
        *out = mock.inner;
        return SW_OK;
    }
    return sw_device_open_mock(&mock, out);
}

/* index: the number after "cuda:"; empty = round-robin by rank. */
static sw_status open_gpu(const char *name, const char *backend, const char *index,
                          const struct sw_device_place *place, struct sw_device **out)
{
    char *end;
    const long number = strtol(index, &end, 10);
    int n_gpus = 0;
    if (*end || number < 0 || number > INT16_MAX || (*index && (*index < '0' || *index > '9'))) {
        return SW_FAIL(SW_E_ARG, "no device \"%s\": wanted %s, or %s:0, %s:1, ..", name, backend,
                       backend, backend);
    }
    SW_TRY(sw_gpu_count(backend, &n_gpus));
    if (*index && number >= n_gpus) {
        return SW_FAIL(SW_E_UNSUP, "device %s: there %s %d", name, n_gpus == 1 ? "is" : "are",
                       n_gpus);
    }
    return sw_gpu_open(backend, *index ? (int)number : place->rank % n_gpus, out);
}

static const char *const backends[] = {"cuda", "hip"};

const char *sw_device_chosen(const char *name)
{
    const char *asked = getenv("SPILLWAY_DEVICE");
    if (strcmp(name, "auto") != 0) {
        return name;
    }
    if (asked && *asked && strcmp(asked, "auto") != 0) {
        return asked;
    }
    for (size_t i = 0; i < SW_LEN(backends); i++) {
        int n = 0;
        if (sw_gpu_count(backends[i], &n) >= 0 && n > 0) {
            return backends[i];
        }
    }
    return "cpu";
}

sw_status sw_device_open_at(const char *name, int n_threads, const struct sw_device_place *place,
                            struct sw_device **out)
{
    name = sw_device_chosen(name);
    const struct sw_device_place alone = {0, 1, 1};
    const char *rest = after(name, "cpu");
    if (rest && (!*rest || strcmp(rest, "reference") == 0 || strcmp(rest, "onednn") == 0)) {
        const struct sw_cpu_options cpu = {.n_threads = n_threads,
                                           .reference = strcmp(rest, "reference") == 0,
                                           .by_library = strcmp(rest, "onednn") == 0};
        return sw_device_open_cpu(&cpu, out);
    }
    rest = after(name, "mock");
    if (rest && (!*rest || strcmp(rest, "early") == 0)) {
        const struct sw_mock_options mock = {.n_threads = n_threads, .early = *rest != '\0'};
        return sw_device_open_mock(&mock, out);
    }
    if (after(name, "emu")) {
        return open_emulation(name, after(name, "emu"), n_threads, out);
    }
    rest = after(name, "sim");
    if (rest && *rest) {
        return sw_gpu_open_sim(rest, place ? place : &alone, out);
    }
    for (size_t i = 0; i < SW_LEN(backends); i++) {
        if (after(name, backends[i])) {
            return open_gpu(name, backends[i], after(name, backends[i]), place ? place : &alone,
                            out);
        }
    }
    return SW_FAIL(SW_E_ARG,
                   "no device \"%s\"; one of auto, cpu, cpu:reference, cpu:onednn, cuda, hip, emu, "
                   "mock, sim:CLUSTER",
                   name);
}

sw_status sw_device_open(const char *name, int n_threads, struct sw_device **out)
{
    return sw_device_open_at(name, n_threads, NULL, out);
}

void sw_device_close(struct sw_device *dev)
{
    if (dev) {
        dev->ops->close(dev);
    }
}

void sw_device_share(struct sw_device *dev, int n)
{
    dev->memory_bytes /= (size_t)n;
}

sw_status sw_device_alloc(struct sw_device *dev, enum sw_mem kind, size_t bytes, void **out)
{
    if ((unsigned)kind >= SW_MEM_COUNT || bytes == 0 || bytes > INT64_MAX) {
        return SW_FAIL(SW_E_ARG, "device %s: cannot allocate %zu bytes of memory kind %d",
                       dev->ops->name, bytes, (int)kind);
    }
    SW_TRY(dev->ops->mem_alloc(dev, kind, bytes, out));
    dev->n_allocs++;
    dev->live_bytes[kind] += (int64_t)bytes;
    dev->peak_bytes[kind] = sw_max_i64(dev->peak_bytes[kind], dev->live_bytes[kind]);
    return SW_OK;
}

void sw_device_free(struct sw_device *dev, enum sw_mem kind, void *mem, size_t bytes)
{
    if (!mem) {
        return;
    }
    SW_ASSERT((unsigned)kind < SW_MEM_COUNT && dev->live_bytes[kind] >= (int64_t)bytes);
    dev->live_bytes[kind] -= (int64_t)bytes;
    dev->ops->mem_free(dev, kind, mem, bytes);
}

sw_status sw_device_copy(struct sw_device *dev, struct sw_stream_queue *on, void *dst,
                         const void *src, size_t bytes)
{
    if (bytes == 0) {
        return SW_OK;
    }
    if (!on || !dst || !src) {
        return SW_FAIL(SW_E_ARG, "device %s: copy of %zu bytes without %s", dev->ops->name, bytes,
                       !on    ? "a stream"
                       : !dst ? "a destination"
                              : "a source");
    }
    SW_TRY(dev->ops->copy(dev, on, dst, src, bytes));
    return SW_OK;
}

sw_status sw_device_fill(struct sw_device *dev, struct sw_stream_queue *on, void *dst, int byte,
                         size_t bytes)
{
    if (bytes == 0) {
        return SW_OK;
    }
    if (!on || !dst) {
        return SW_FAIL(SW_E_ARG, "device %s: fill of %zu bytes without %s", dev->ops->name, bytes,
                       !on ? "a stream" : "a destination");
    }
    SW_TRY(dev->ops->fill(dev, on, dst, byte, bytes));
    return SW_OK;
}

sw_status sw_device_add_slices(struct sw_device *dev, struct sw_stream_queue *on,
                               const struct sw_slice_sum *sum)
{
    if (sum->n == 0 || sum->n_slices == 0) {
        return SW_OK;
    }
    if (!on || !sum->acc || !sum->slices || sum->n < 0 || sum->n_slices < 0 ||
        (sum->dtype != SW_F32 && sum->dtype != SW_BF16 && sum->dtype != SW_F16)) {
        return SW_FAIL(SW_E_ARG,
                       "device %s: a sum of %d slices of %lld elements of %s; wanted f32, bf16 or "
                       "f16, a stream, a sum and slices",
                       dev->ops->name, sum->n_slices, (long long)sum->n, sw_dtype_name(sum->dtype));
    }
    SW_TRY(dev->ops->add_slices(dev, on, sum));
    return SW_OK;
}

sw_status sw_device_add_words(struct sw_device *dev, struct sw_stream_queue *on, int64_t *out,
                              const int64_t *words, int64_t n_sets, int64_t n)
{
    if (!on || !out || !words || n_sets < 1 || n < 0) {
        return SW_FAIL(SW_E_ARG, "device %s: a sum of %lld sets of %lld words without %s",
                       dev->ops->name, (long long)n_sets, (long long)n,
                       !on ? "a stream" : "operands");
    }
    SW_TRY(dev->ops->add_words(dev, on, out, words, n_sets, n));
    return SW_OK;
}

sw_status sw_device_exchange(struct sw_device *dev, struct sw_stream_queue *on, struct sw_ccl *ccl,
                             const struct sw_ccl_op *ops, int n)
{
    if (n == 0) {
        return SW_OK;
    }
    for (int i = 0; i < n; i++) {
        const bool takes = ops[i].verb != SW_CCL_SEND, gives = ops[i].verb != SW_CCL_RECEIVE;
        if (!dev->ccl || !on || !ccl || (takes && !ops[i].dst) || (gives && !ops[i].src)) {
            return SW_FAIL(SW_E_ARG, "device %s: exchange %d of %d without %s", dev->ops->name, i,
                           n,
                           !dev->ccl ? "a library for it"
                           : !on     ? "a stream"
                           : !ccl    ? "a communicator"
                                     : "operands");
        }
    }
    SW_TRY(dev->ccl->exchange(dev, on, ccl, ops, n));
    return SW_OK;
}

sw_status sw_device_capture_begin(struct sw_device *dev, struct sw_stream_queue *on)
{
    if (!dev->capture || !on) {
        return SW_FAIL(SW_E_UNSUP, "device %s cannot capture: %s", dev->ops->name,
                       !on               ? "there is no stream"
                       : dev->no_capture ? dev->no_capture
                                         : "it has no graphs");
    }
    SW_TRY(dev->capture->begin(dev, on));
    return SW_OK;
}

sw_status sw_device_capture_end(struct sw_device *dev, struct sw_stream_queue *on,
                                struct sw_captured **out)
{
    SW_TRY(dev->capture->end(dev, on, out));
    return SW_OK;
}

sw_status sw_device_replay(struct sw_device *dev, struct sw_stream_queue *on,
                           struct sw_captured *captured)
{
    if (!dev->capture || !on || !captured) {
        return SW_FAIL(SW_E_ARG, "device %s: replay without %s", dev->ops->name,
                       !dev->capture ? "graphs"
                       : !on         ? "a stream"
                                     : "captured work");
    }
    SW_TRY(dev->capture->replay(dev, on, captured));
    return SW_OK;
}

void sw_device_captured_close(struct sw_device *dev, struct sw_captured *captured)
{
    if (captured) {
        dev->capture->close(dev, captured);
    }
}

void sw_device_query(struct sw_device *dev, const struct sw_op_desc *desc,
                     struct sw_kernel_info *out)
{
    memset(out, 0, sizeof *out);
    if (desc->op && (unsigned)desc->op->kind < SW_N_OP_KINDS) {
        dev->ops->query(dev, desc, out);
    }
}

sw_status sw_device_prepare(struct sw_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel **out)
{
    if (!desc->op || (unsigned)desc->op->kind >= SW_N_OP_KINDS) {
        return SW_FAIL(SW_E_ARG, "device %s: a description without an op", dev->ops->name);
    }
    SW_TRY(dev->ops->prepare(dev, desc, out));
    return SW_OK;
}

sw_status sw_device_launch(struct sw_device *dev, struct sw_stream_queue *on,
                           struct sw_kernel *kernel, void *const *in, void *const *out,
                           void *workspace, double *scalars)
{
    if (!on || !kernel || !scalars) {
        return SW_FAIL(SW_E_ARG, "device %s: launch without %s", dev->ops->name,
                       !on       ? "a stream"
                       : !kernel ? "a kernel"
                                 : "the table of scalars");
    }
    SW_TRY(dev->ops->launch(dev, on, kernel, in, out, workspace, scalars));
    return SW_OK;
}

void sw_device_algorithms(struct sw_device *dev, struct sw_str *out)
{
    if (dev->ops->algorithms) {
        dev->ops->algorithms(dev, out);
    }
}

const char *sw_device_kernel_set(struct sw_device *dev)
{
    return dev->kernel_set;
}
