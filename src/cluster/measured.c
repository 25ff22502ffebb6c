// SPDX-License-Identifier: Apache-2.0
// Times of kernels by shape, as `bench_kernels --json` writes them. The file is read as strictly as
// a cluster's.
#include <math.h>
#include <string.h>

#include "cluster/private.h"
#include "json/json.h"

struct file {
    struct sw_cluster *cluster;
    const char *name; /* for messages */
};

/* The file stands beside that of the cluster, unless its path is absolute. */
static sw_status path_of(const struct sw_cluster *c, struct sw_str *out)
{
    const char *slash = strrchr(c->path, '/');
    if (*c->device.measured != '/' && slash) {
        sw_str_append(out, c->path, (size_t)(slash - c->path) + 1);
    }
    sw_str_puts(out, c->device.measured);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path") : SW_OK;
}

static sw_status check_keys(const struct file *f, const struct sw_json *node, const char *what,
                            const char *const *keys, size_t n)
{
    if (node->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: %s: wanted an object, got %s", f->name, node->line,
                       what, sw_json_type_name(node->type));
    }
    for (size_t i = 0; i < n; i++) {
        if (!sw_json_get(node, keys[i])) {
            return SW_FAIL(SW_E_CONFIG, "%s:%d: %s.%s: is required", f->name, node->line, what,
                           keys[i]);
        }
    }
    for (const struct sw_json *child = node->first; child; child = child->next) {
        size_t i = 0;
        while (i < n && strcmp(keys[i], child->key) != 0) {
            i++;
        }
        if (i == n) {
            const char *nearest = sw_nearest(child->key, keys, n);
            return SW_FAIL(SW_E_CONFIG, "%s:%d: %s: unknown key \"%.80s\"%s", f->name,
                           child->key_line, what, child->key, sw_hint(nearest).text);
        }
    }
    return SW_OK;
}

static sw_status take_shape(const struct file *f, const struct sw_json *node, struct sw_shape *out)
{
    *out = (struct sw_shape){0};
    for (const struct sw_json *dim = node->first; dim; dim = dim->next) {
        if (out->rank == SW_MAX_RANK || dim->type != SW_JSON_INT || dim->integer < 1) {
            break;
        }
        out->dims[out->rank++] = dim->integer;
    }
    return node->type == SW_JSON_ARRAY && out->rank == node->n_children
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG,
                         "%s:%d: kernels.shapes: wanted a list of at most %d sizes above 0 for "
                         "each operand",
                         f->name, node->line, SW_MAX_RANK);
}

static sw_status take_shapes(const struct file *f, const struct sw_json *node,
                             struct sw_cluster_kernel *out)
{
    if (node->type != SW_JSON_ARRAY || node->n_children < 1) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: kernels.shapes: wanted the shapes of all operands",
                       f->name, node->line);
    }
    struct sw_shape *shapes =
        sw_arena_alloc(&f->cluster->arena, (size_t)node->n_children * sizeof *shapes);
    SW_TRY_ALLOC(shapes, "measured kernels");
    for (const struct sw_json *one = node->first; one; one = one->next) {
        SW_TRY(take_shape(f, one, &shapes[out->n_shapes++]));
    }
    out->shapes = shapes;
    return SW_OK;
}

static sw_status take_kernel(const struct file *f, const struct sw_json *node,
                             struct sw_cluster_kernel *out)
{
    static const char *const keys[] = {"op", "dtype", "shapes", "seconds"};
    *out = (struct sw_cluster_kernel){.line = node->line};
    SW_TRY(check_keys(f, node, "kernels", keys, SW_LEN(keys)));
    const struct sw_json *op = sw_json_get(node, "op"), *dtype = sw_json_get(node, "dtype");
    const struct sw_json *seconds = sw_json_get(node, "seconds");
    if (op->type != SW_JSON_STRING || !*op->string) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: kernels.op: wanted the name of an operation", f->name,
                       op->line);
    }
    if (dtype->type != SW_JSON_STRING || !sw_dtype_parse(dtype->string, &out->dtype) ||
        !sw_dtype_is_float(out->dtype)) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: kernels.dtype: wanted \"f32\", \"bf16\" or \"f16\"",
                       f->name, dtype->line);
    }
    if (!(seconds->number > 0 && isfinite(seconds->number))) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: kernels.seconds: wanted a number above 0", f->name,
                       seconds->line);
    }
    out->seconds = seconds->number;
    out->op = sw_arena_strdup(&f->cluster->arena, op->string);
    SW_TRY_ALLOC(out->op, "measured kernels");
    return take_shapes(f, sw_json_get(node, "shapes"), out);
}

static sw_status take_file(const struct file *f, const struct sw_json *root)
{
    static const char *const keys[] = {"format", "machine", "kernels"};
    struct sw_cluster_device *device = &f->cluster->device;
    SW_TRY(check_keys(f, root, "measured", keys, SW_LEN(keys)));
    const struct sw_json *list = sw_json_get(root, "kernels");
    const struct sw_json *format = sw_json_get(root, "format");
    const struct sw_json *machine = sw_json_get(root, "machine");
    if (format->type != SW_JSON_INT || format->integer != SW_CLUSTER_FORMAT) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: format: wanted %d", f->name, format->line,
                       SW_CLUSTER_FORMAT);
    }
    if (machine->type != SW_JSON_STRING) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: machine: wanted a text, got %s", f->name, machine->line,
                       sw_json_type_name(machine->type));
    }
    if (list->type != SW_JSON_ARRAY) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: kernels: wanted a list, got %s", f->name, list->line,
                       sw_json_type_name(list->type));
    }
    device->kernels = sw_arena_alloc(&f->cluster->arena,
                                     ((size_t)list->n_children + 1) * sizeof *device->kernels);
    SW_TRY_ALLOC(device->kernels, "measured kernels");
    for (const struct sw_json *node = list->first; node; node = node->next) {
        SW_TRY(take_kernel(f, node, &device->kernels[device->n_kernels]));
        device->n_kernels++;
    }
    return SW_OK;
}

sw_status sw_cluster_read_measured(struct sw_cluster *cluster)
{
    struct sw_str path = {0};
    struct sw_json_doc *doc = NULL;
    if (!cluster->device.measured) {
        return SW_OK;
    }
    sw_status st = path_of(cluster, &path);
    st = st < 0 ? st : sw_json_read(path.ptr, SW_JSON_STRICT, &doc);
    if (st >= 0) {
        const struct file f = {cluster, path.ptr};
        st = take_file(&f, sw_json_root(doc));
    } else {
        st = sw_fail_prefix(st, "%s: device.measured", cluster->path);
    }
    sw_json_close(doc);
    sw_str_fini(&path);
    return st;
}

double sw_cluster_kernel_seconds(const struct sw_cluster *cluster,
                                 const struct sw_cluster_kernel *like)
{
    for (int i = 0; i < cluster->device.n_kernels; i++) {
        const struct sw_cluster_kernel *one = &cluster->device.kernels[i];
        bool same = one->dtype == like->dtype && one->n_shapes == like->n_shapes &&
                    strcmp(one->op, like->op) == 0;
        for (int k = 0; k < one->n_shapes && same; k++) {
            same = sw_shape_equal(&one->shapes[k], &like->shapes[k]);
        }
        if (same) {
            return one->seconds;
        }
    }
    return 0;
}
