// SPDX-License-Identifier: Apache-2.0
// The mesh of an engine: ranks along axes, as the configuration divides them. All ranks together
// (the world) agree on failures, devices and algorithms. The coordinate along the data axis says
// which micro-batches and which slices a rank has. Ranks that differ along other axes only have the
// same micro-batches; along the tensor axis, each computes its part of them (see fit.c).
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/private.h"

struct axis {
    enum sw_axis axis;
    int64_t size;
};
enum { N_CUTS = 4 };

/* The axes that the configuration gives sizes of. */
static void list_cuts(const struct sw_engine *e, struct axis out[N_CUTS])
{
    const struct sw_parallel_config *p = &e->config->parallel;
    out[0] = (struct axis){SW_AXIS_PIPE, p->pipe};
    out[1] = (struct axis){SW_AXIS_TENSOR, p->tensor};
    out[2] = (struct axis){SW_AXIS_CONTEXT, p->context};
    out[3] = (struct axis){SW_AXIS_EXPERT, p->expert};
}

/* Refuses a number of ranks that is not a multiple of the product of the sizes. */
static sw_status refuse_sizes(const struct sw_engine *e, int64_t cuts)
{
    const struct sw_parallel_config *p = &e->config->parallel;
    char why[320];
    snprintf(why, sizeof why,
             "pipe %lld x expert %lld x tensor %lld x context %lld do not make up %d ranks; wanted "
             "a multiple of %lld ranks, as the other ranks form the data axis, or sizes whose "
             "product divides %d",
             (long long)p->pipe, (long long)p->expert, (long long)p->tensor, (long long)p->context,
             e->world.size, (long long)cuts, e->world.size);
    return sw_config_refuse_mesh(e->config, why);
}

/* Lets messages name ranks by their coordinates, if there is more than the data axis. */
static sw_status name_ranks(const struct sw_engine *e)
{
    enum { NAME = 96 };
    const size_t n = (size_t)e->world.size;
    if (sw_mesh_size(&e->mesh, 1U << SW_AXIS_DATA) == e->world.size || e->options.plan.only) {
        return SW_OK;
    }
    char(*texts)[NAME] = sw_alloc("engine", n * sizeof *texts);
    const char **names = sw_alloc("engine", n * sizeof *names);
    for (size_t r = 0; texts && names && r < n; r++) {
        names[r] = sw_mesh_format(&e->mesh, (int)r, texts[r], NAME);
    }
    const sw_status st = texts && names
                             ? sw_comm_name_ranks(e->options.run.comm, names)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for the names of ranks");
    sw_free(texts);
    sw_free(names);
    return st;
}

sw_status sw_engine_take_mesh(struct sw_engine *e)
{
    struct axis cuts[N_CUTS];
    int size[SW_AXIS_COUNT] = {1, 1, 1, 1, 1};
    int64_t product = 1;
    list_cuts(e, cuts);
    for (int i = 0; i < N_CUTS; i++) {
        if (!sw_mul_i64(product, cuts[i].size, &product) || product > INT_MAX) {
            char why[64];
            snprintf(why, sizeof why, "the mesh has more than %d ranks", INT_MAX);
            return sw_config_refuse_mesh(e->config, why);
        }
        size[cuts[i].axis] = (int)cuts[i].size;
    }
    if (e->world.size % product != 0) {
        return refuse_sizes(e, product);
    }
    size[SW_AXIS_DATA] = (int)(e->world.size / product);
    SW_TRY(sw_mesh_init(&e->mesh, size, e->world.size));
    e->data = sw_mesh_coord(&e->mesh, SW_BATCH_AXES, e->world.rank);
    if (size[SW_AXIS_PIPE] > 1) {
        const int64_t n_parts = size[SW_AXIS_PIPE] * e->config->parallel.chunks;
        e->stage_blocks = sw_alloc("engine", ((size_t)n_parts + 1) * sizeof *e->stage_blocks);
        SW_TRY_ALLOC(e->stage_blocks, "the partition");
    }
    return name_ranks(e);
}

int sw_engine_batch_ranks(const struct sw_engine *e)
{
    const int64_t asked = e->options.run.batch_ranks;
    const int cuts = sw_mesh_size(&e->mesh, SW_ALL_AXES & ~(unsigned)SW_BATCH_AXES);
    return asked > 0 ? (int)sw_ceil_div(asked, cuts) : e->data.size;
}

bool sw_engine_blocks(const sw_engine *e, int chunk, int *out_first, int *out_end)
{
    const struct sw_coord pipe = sw_mesh_coord(&e->mesh, 1U << SW_AXIS_PIPE, e->world.rank);
    const int layers = e->weights.model ? (int)e->weights.model->layers : 0;
    const int part = chunk * pipe.size + pipe.rank;
    if (chunk >= (e->stage_blocks ? e->config->parallel.chunks : 1)) {
        return false;
    }
    *out_first = e->stage_blocks ? e->stage_blocks[part] : 0;
    *out_end = e->stage_blocks ? e->stage_blocks[part + 1] : layers;
    return true;
}

/* ---- hosts ---- */

/* For a plan, the hosts that the rates describe: "host-0", "host-1", .. */
static void assume_hosts(struct sw_engine *e, int node_ranks)
{
    for (int r = 0; r < e->world.size; r++) {
        snprintf(e->machine.hosts[r].name, sizeof e->machine.hosts[r].name, "host-%d",
                 r / node_ranks);
    }
}

sw_status sw_engine_find_hosts(struct sw_engine *e)
{
    const struct sw_engine_plan *plan = &e->options.plan;
    struct sw_machine_rates rates = {.node_ranks = 0};
    struct engine_host mine = {.cpus = sw_cpu_mask()};
    SW_TRY(plan->only ? sw_engine_take_rates(plan->rates, plan->n_rates, &rates) : SW_OK);
    if (e->machine.hosts || e->world.size == 1 || (plan->only && rates.node_ranks == 0)) {
        return SW_OK;
    }
    e->machine.hosts = sw_alloc_zero("engine", (size_t)e->world.size, sizeof *e->machine.hosts);
    SW_TRY_ALLOC(e->machine.hosts, "names of machines");
    if (plan->only) {
        assume_hosts(e, rates.node_ranks);
        return SW_OK;
    }
    gethostname(mine.name, sizeof mine.name - 1);
    return sw_comm_all_gather(e->options.run.comm, &mine, e->machine.hosts, sizeof mine,
                              "the names of machines");
}

static const char *host_of(const struct sw_engine *e, int rank)
{
    return e->machine.hosts[rank].name;
}

const char *sw_engine_host(const sw_engine *e, int rank)
{
    return e->machine.hosts ? host_of(e, rank) : NULL;
}

static bool share_host(const struct sw_engine *e, int a, int b)
{
    return strcmp(host_of(e, a), host_of(e, b)) == 0;
}

/* Appends hosts by runs of ranks: " on host-1 (ranks 0 to 3), host-2 (ranks 4 to 7)". */
static void print_hosts(const struct sw_engine *e, struct sw_str *out)
{
    enum { MOST = 8 };
    int n = 0;
    for (int first = 0, end; first < e->world.size; first = end, n++) {
        for (end = first + 1; end < e->world.size && share_host(e, first, end); end++) {
        }
        if (n == MOST) {
            sw_str_puts(out, ", ..");
            return;
        }
        sw_str_printf(out, "%s%s (rank%s %d", n == 0 ? " on " : ", ", host_of(e, first),
                      end > first + 1 ? "s" : "", first);
        if (end > first + 1) {
            sw_str_printf(out, " to %d", end - 1);
        }
        sw_str_putc(out, ')');
    }
}

/* Names the first tensor neighbours that do not share a host. */
static void print_neighbours(const struct sw_engine *e, struct sw_str *out)
{
    const int n = sw_mesh_size(&e->mesh, 1U << SW_AXIS_TENSOR);
    for (int r = 0; r < e->world.size; r++) {
        const int first = r - sw_mesh_coord(&e->mesh, 1U << SW_AXIS_TENSOR, r).rank;
        if (!share_host(e, first, r)) {
            sw_str_printf(out,
                          "mesh: tensor neighbours %d (%s) and %d (%s) do not share a host; wanted "
                          "a multiple of %d ranks on each host, numbered host by host\n",
                          first, host_of(e, first), r, host_of(e, r), n);
            return;
        }
    }
}

/* A job that lost hosts goes on with fewer ranks along data, and says so. */
static void print_shrunk(const struct sw_engine *e, struct sw_str *out)
{
    const int asked = e->options.run.batch_ranks, before = asked > 0 ? sw_engine_batch_ranks(e) : 0;
    if (asked > 0 && before != e->data.size && e->search.mesh.n == 0) {
        sw_str_printf(
            out,
            "mesh: %d of the %d ranks that the job began with; data %d -> %d, pipe, tensor "
            "and context as before\n",
            e->world.size, asked, before, e->data.size);
    }
}

void sw_engine_print_mesh(const sw_engine *e, struct sw_str *out)
{
    bool any = false;
    print_shrunk(e, out);
    if (e->world.size == 1) {
        return;
    }
    if (e->search.mesh.n > 0) {
        sw_mesh_choice_print(&e->search.mesh, out);
    }
    sw_str_puts(out, "mesh: ");
    for (unsigned a = 0; a < SW_AXIS_COUNT; a++) {
        const int n = sw_mesh_size(&e->mesh, 1U << a);
        if (n > 1) {
            sw_str_printf(out, "%s%s %d", any ? " x " : "", sw_axis_name((enum sw_axis)a), n);
            any = true;
        }
    }
    if (e->machine.hosts) {
        print_hosts(e, out);
    }
    sw_str_putc(out, '\n');
    if (e->machine.hosts) {
        print_neighbours(e, out);
    }
}

/* ---- groups for the caller's own code ---- */

/* Numbers of lent groups begin here: plans count from 1, and MPI has numbers up to 16000. */
enum { FIRST_LENT = 15990 };

static sw_status open_lent(struct sw_engine *e, enum sw_axis axis)
{
    sw_comm *world = e->options.run.comm;
    if (!world) {
        return sw_threads_open(1, 1, &e->lent[axis]);
    }
    int *ranks = sw_alloc("engine", (size_t)sw_mesh_size(&e->mesh, 1U << axis) * sizeof *ranks);
    SW_TRY_ALLOC(ranks, "a group of ranks");
    const struct sw_group group = sw_mesh_group(&e->mesh, 1U << axis, e->world.rank, ranks);
    const struct sw_group_options options = {.number = FIRST_LENT + (int)axis,
                                             .ranks = group.ranks,
                                             .n = group.n,
                                             .name = sw_axis_name(axis)};
    const sw_status st = sw_comm_open_group(world, &options, &e->lent[axis]);
    sw_free(ranks);
    return st;
}

static sw_status find_axis(const char *axis, enum sw_axis *out)
{
    const char *names[SW_AXIS_COUNT];
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        names[a] = sw_axis_name((enum sw_axis)a);
        if (axis && strcmp(axis, names[a]) == 0) {
            *out = (enum sw_axis)a;
            return SW_OK;
        }
    }
    const char *nearest = axis ? sw_nearest(axis, names, SW_AXIS_COUNT) : NULL;
    return SW_FAIL(SW_E_ARG,
                   "there is no axis \"%.80s\"; wanted pipe, data, expert, context or tensor%s",
                   axis ? axis : "", sw_hint(nearest).text);
}

sw_status sw_engine_axis(const sw_engine *e, const char *axis, int *out_rank, int *out_size)
{
    enum sw_axis a;
    SW_TRY(find_axis(axis, &a));
    const struct sw_coord coord = sw_mesh_coord(&e->mesh, 1U << a, e->world.rank);
    *out_rank = coord.rank;
    *out_size = coord.size;
    return SW_OK;
}

void sw_engine_batch_axis(const sw_engine *e, int *out_rank, int *out_size)
{
    *out_rank = e->data.rank;
    *out_size = e->data.size;
}

sw_status sw_engine_group(sw_engine *e, const char *axis, sw_comm **out)
{
    enum sw_axis a;
    SW_TRY(find_axis(axis, &a));
    if (e->options.plan.only) {
        return SW_FAIL(SW_E_ARG, "sw_engine_group: an engine with plan.only has no ranks");
    }
    SW_TRY(e->lent[a] ? SW_OK : open_lent(e, a));
    *out = e->lent[a];
    return SW_OK;
}

void sw_engine_close_lent(struct sw_engine *e)
{
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        sw_comm_close(e->lent[a], false);
    }
}
