// SPDX-License-Identifier: Apache-2.0
// hf/safetensors_write - one file: all tensors are declared first, so header and offsets are
// settled before the first byte of data, and data can come in pieces, in any order, from several
// threads. The file has a temporary name until commit: whoever maps the old one keeps it.

#include "hf/private.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A declared tensor and where it goes. */
struct slot {
    const char *name;
    const struct sw_hf_dtype *dtype;
    struct sw_shape shape;
    uint64_t offset, bytes; /* in the data */
    _Atomic uint64_t written;
};

struct sw_safetensors_writer {
    struct sw_arena arena;
    const char *path;
    struct sw_output output; /* the file; committed once it has no temporary name any more */
    uint64_t data_start;
    int64_t n;
    struct slot *slots; /* in the caller's order */
};

/* ---- layout ---- */

static sw_status take_spec(struct sw_safetensors_writer *w, const struct sw_safetensor_spec *spec,
                           struct slot *slot)
{
    const size_t name_len = strlen(spec->name);
    slot->dtype = sw_hf_dtype_of(spec->dtype);
    if (!slot->dtype || !sw_shape_check(&spec->shape, sw_dtype_bytes(spec->dtype))) {
        return SW_FAIL(SW_E_ARG, "%s: tensor \"%s\" has a shape or dtype that cannot be written",
                       w->path, spec->name);
    }
    if (strcmp(spec->name, SW_HF_METADATA) == 0 ||
        sw_json_utf8_check(spec->name, name_len) != name_len) {
        return SW_FAIL(SW_E_ARG, "%s: \"%s\" cannot be the name of a tensor", w->path, spec->name);
    }
    slot->name = sw_arena_strdup(&w->arena, spec->name);
    SW_TRY_ALLOC(slot->name, w->path);
    slot->shape = spec->shape;
    slot->bytes = (uint64_t)sw_shape_elems(&spec->shape) * sw_dtype_bytes(spec->dtype);
    return SW_OK;
}

/* The reference writer's order: dtype from high to low alignment (the table's order), then name. */
static int compare_slots(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a;
    const struct slot *y = *(struct slot *const *)b;
    if (x->dtype != y->dtype) {
        return x->dtype > y->dtype ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

/* Gives every tensor its offset; order [n] becomes the order of the file. */
static sw_status place(struct sw_safetensors_writer *w, struct slot **order, uint64_t *out_bytes)
{
    for (int64_t i = 0; i < w->n; i++) {
        order[i] = &w->slots[i];
    }
    qsort(order, (size_t)w->n, sizeof(*order), compare_slots);
    uint64_t at = 0;
    for (int64_t i = 0; i < w->n; i++) {
        order[i]->offset = at;
        if (__builtin_add_overflow(at, order[i]->bytes, &at) || at > INT64_MAX / 2) {
            return SW_FAIL(SW_E_ARG, "%s: more bytes than a file can hold", w->path);
        }
    }
    *out_bytes = at;
    return SW_OK;
}

static void put_entry(const struct slot *slot, struct sw_str *out)
{
    sw_json_write_string(slot->name, strlen(slot->name), out);
    sw_str_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", slot->dtype->name);
    for (int i = 0; i < slot->shape.rank; i++) {
        sw_str_printf(out, "%s%lld", i > 0 ? "," : "", (long long)slot->shape.dims[i]);
    }
    sw_str_printf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)slot->offset,
                  (unsigned long long)(slot->offset + slot->bytes));
}

static void put_metadata(const struct sw_safetensors_options *options, struct sw_str *out)
{
    static const char *const usual[][2] = {{"format", "pt"}};
    const bool given = options && options->n_metadata > 0;
    const char *const(*pairs)[2] = given ? options->metadata : usual;
    const int n = given ? options->n_metadata : (int)SW_LEN(usual);
    sw_str_puts(out, "\"" SW_HF_METADATA "\":{");
    for (int i = 0; i < n; i++) {
        sw_str_puts(out, i > 0 ? "," : "");
        sw_json_write_string(pairs[i][0], strlen(pairs[i][0]), out);
        sw_str_putc(out, ':');
        sw_json_write_string(pairs[i][1], strlen(pairs[i][1]), out);
    }
    sw_str_putc(out, '}');
}

/* Length and header, padded with spaces so that the data behind them is aligned. */
static sw_status make_header(struct sw_safetensors_writer *w, struct slot *const *order,
                             const struct sw_safetensors_options *options, struct sw_str *out)
{
    sw_str_append(out, "\0\0\0\0\0\0\0\0", 8);
    sw_str_putc(out, '{');
    put_metadata(options, out);
    for (int64_t i = 0; i < w->n; i++) {
        sw_str_putc(out, ',');
        put_entry(order[i], out);
    }
    sw_str_putc(out, '}');
    const size_t end = sw_round_up(out->len, options && options->page_aligned ? 4096 : 8);
    sw_str_printf(out, "%*s", (int)(end - out->len), "");
    if (out->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the header of %s", w->path);
    }
    const uint64_t n = out->len - 8;
    if (n > SW_HF_HEADER_MAX) {
        return SW_FAIL(SW_E_ARG, "%s: a header of %llu bytes, at most %d are allowed", w->path,
                       (unsigned long long)n, SW_HF_HEADER_MAX);
    }
    for (int i = 0; i < 8; i++) {
        out->ptr[i] = (char)(n >> (8 * i));
    }
    w->data_start = out->len;
    return SW_OK;
}

static sw_status check_unique(const struct sw_safetensors_writer *w, struct slot *const *order)
{
    /* neighbours share the dtype only, so this compares by name across all of them */
    struct sw_safetensor *names = sw_alloc_zero("hf", (size_t)w->n + 1, sizeof(*names));
    const struct sw_safetensor **by_name = sw_alloc_zero("hf", (size_t)w->n + 1, sizeof(*by_name));
    sw_status st = SW_OK;
    if (!names || !by_name) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for %s", w->path);
    } else {
        for (int64_t i = 0; i < w->n; i++) {
            names[i].name = order[i]->name;
            by_name[i] = &names[i];
        }
        qsort(by_name, (size_t)w->n, sizeof(*by_name), sw_hf_compare_names);
        for (int64_t i = 1; i < w->n && st == SW_OK; i++) {
            if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0) {
                st = SW_FAIL(SW_E_ARG, "%s: two tensors are named \"%s\"", w->path,
                             by_name[i]->name);
            }
        }
    }
    sw_free(by_name);
    sw_free(names);
    return st;
}

/* ---- the file ---- */

static sw_status fail_write(const struct sw_safetensors_writer *w)
{
    return SW_FAIL(SW_E_IO, "cannot write %s: %s", w->path, strerror(errno));
}

static sw_status write_at(const struct sw_safetensors_writer *w, const char *data, size_t bytes,
                          uint64_t offset)
{
    while (bytes > 0) {
        size_t ask = bytes;
        if (sw_fault_fails("hf.write", &ask)) {
            return fail_write(w);
        }
        const ssize_t n = pwrite(w->output.fd, data, ask, (off_t)offset);
        if (n < 0 && errno != EINTR) {
            return fail_write(w);
        }
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
            offset += (uint64_t)n;
        }
    }
    return SW_OK;
}

static sw_status start(struct sw_safetensors_writer *w, const struct sw_safetensor_spec *specs,
                       const struct sw_safetensors_options *options, struct sw_str *header)
{
    w->slots = sw_arena_array(&w->arena, (size_t)w->n + 1, sizeof(*w->slots));
    struct slot **order = sw_arena_array(&w->arena, (size_t)w->n + 1, sizeof(*order));
    SW_TRY_ALLOC(w->slots && order, w->path);
    for (int64_t i = 0; i < w->n; i++) {
        SW_TRY(take_spec(w, &specs[i], &w->slots[i]));
    }
    uint64_t data_bytes = 0;
    SW_TRY(place(w, order, &data_bytes));
    SW_TRY(check_unique(w, order));
    SW_TRY(make_header(w, order, options, header));
    SW_TRY(sw_output_open(w->path, false, &w->output));
    SW_TRY(sw_output_begin(&w->output));
    SW_TRY(write_at(w, header->ptr, header->len, 0));
    if (sw_fault_fails("hf.write", NULL) ||
        ftruncate(w->output.fd, (off_t)(w->data_start + data_bytes)) != 0) {
        return fail_write(w);
    }
    return SW_OK;
}

sw_status sw_safetensors_create(const char *path, const struct sw_safetensor_spec *specs,
                                int64_t n_specs, const struct sw_safetensors_options *options,
                                struct sw_safetensors_writer **out)
{
    struct sw_safetensors_writer *w = sw_alloc_zero("hf", 1, sizeof(*w));
    SW_TRY_ALLOC(w, path);
    sw_arena_init(&w->arena, "hf");
    w->n = n_specs;
    w->path = sw_arena_strdup(&w->arena, path);
    struct sw_str header = {0};
    const sw_status st = w->path ? start(w, specs, options, &header)
                                 : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    sw_str_fini(&header);
    if (st < 0) {
        sw_safetensors_writer_close(w);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = w;
    return SW_OK;
}

sw_status sw_hf_check_tensor(const char *path, int64_t i, int64_t n)
{
    return i >= 0 && i < n ? SW_OK
                           : SW_FAIL(SW_E_ARG, "%s: there is no tensor %lld; it has %lld", path,
                                     (long long)i, (long long)n);
}

sw_status sw_safetensors_write(struct sw_safetensors_writer *writer, int64_t i_spec, size_t offset,
                               const void *data, size_t bytes)
{
    SW_TRY(sw_hf_check_tensor(writer->path, i_spec, writer->n));
    struct slot *slot = &writer->slots[i_spec];
    if (offset > slot->bytes || bytes > slot->bytes - offset) {
        return SW_FAIL(SW_E_ARG, "%s: tensor \"%s\" has %llu bytes, %zu at %zu do not fit",
                       writer->path, slot->name, (unsigned long long)slot->bytes, bytes, offset);
    }
    SW_TRY(write_at(writer, data, bytes, writer->data_start + slot->offset + offset));
    atomic_fetch_add(&slot->written, bytes);
    return SW_OK;
}

sw_status sw_safetensors_commit(struct sw_safetensors_writer *writer)
{
    struct sw_safetensors_writer *w = writer;
    if (!w->output.temp) {
        return SW_FAIL(SW_E_ARG, "%s was committed already", w->path);
    }
    for (int64_t i = 0; i < w->n; i++) {
        const uint64_t written = atomic_load(&w->slots[i].written);
        if (written != w->slots[i].bytes) {
            return SW_FAIL(SW_E_ARG, "%s: of tensor \"%s\" %llu of %llu bytes were written",
                           w->path, w->slots[i].name, (unsigned long long)written,
                           (unsigned long long)w->slots[i].bytes);
        }
    }
    return sw_output_commit(&w->output, true);
}

void sw_safetensors_writer_close(struct sw_safetensors_writer *writer)
{
    if (!writer) {
        return;
    }
    sw_output_close(&writer->output);
    sw_arena_fini(&writer->arena);
    sw_free(writer);
}
