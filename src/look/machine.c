// SPDX-License-Identifier: Apache-2.0
// Measures this machine, or the hosts of a started job, and writes it as a cluster's file. The
// kernels of a small training are timed as for a prediction, on all ranks at the same time. Ranks
// that share a host stand for its devices, so what they share is measured while all of them use it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cluster/cluster.h"
#include "engine/engine.h"
#include "spillway/comm.h"
#include "spillway/doctor.h"

enum { HOST_NAME = 64, LARGE = 1 << 20, GROUP_OF_HOST = 1, GROUP_OF_HOSTS };
static const double deadline_s = 600;

/* Sums over the kernels of a plan. */
struct sums {
    double products, product_s, best; /* FLOPs, seconds, FLOP/s of the fastest product */
    double bytes[2], byte_s[2];       /* other kernels: all, and those of LARGE bytes or more */
    double updated, host_bytes, host_s;
    double shortest; /* seconds of the shortest kernel */
};

/* Where a rank runs. */
struct place {
    char host[HOST_NAME];
    uint64_t cpus; /* sw_cpu_mask */
};

struct machine {
    const struct sw_doctor_cluster *wanted;
    sw_comm *world;                /* NULL = alone */
    int rank, size, local, n_here; /* n_here: ranks of a host */
    int threads;                   /* of this rank */
    struct place place;
    struct sw_cluster c;
    struct sw_cluster_link links[3];
    struct sw_cluster_disk disk;
    struct sums sums[SW_CLUSTER_DTYPES];
    bool sees_host; /* the device computes in host memory */
};

/* ---- ranks and hosts ---- */

static sw_status refuse_hosts(const struct place *places, int rank, int n_first, int n)
{
    return SW_FAIL(SW_E_CONFIG,
                   "a cluster has nodes that are alike, and ranks fill one after the other: %s has "
                   "%d ranks, but from rank %d on %s has %d",
                   places[0].host, n_first, rank, places[rank].host, n);
}

/* Ranks 0 .. n_here - 1 share the first host, the next n_here the second one, and so on. */
static sw_status check_hosts(struct machine *m, const struct place *places)
{
    int n = 1, n_alike = 0;
    while (n < m->size && strcmp(places[n].host, places[0].host) == 0) {
        n++;
    }
    for (int first = 0; first < m->size; first += n) {
        int here = 0;
        for (int r = first; r < m->size; r++) {
            here += strcmp(places[r].host, places[first].host) == 0;
        }
        if (here != n) {
            return refuse_hosts(places, first, n, here);
        }
    }
    m->n_here = n;
    m->local = m->rank % n;
    for (int r = m->rank - m->local; r < m->rank - m->local + n; r++) {
        n_alike += places[r].cpus == m->place.cpus;
    }
    m->threads = sw_cpu_share(n_alike, n);
    return SW_OK;
}

static sw_status find_hosts(struct machine *m)
{
    m->size = m->n_here = 1;
    m->threads = sw_cpu_count();
    gethostname(m->place.host, sizeof m->place.host - 1);
    m->place.cpus = sw_cpu_mask();
    if (!m->world) {
        return SW_OK;
    }
    m->rank = sw_comm_rank(m->world);
    m->size = sw_comm_size(m->world);
    struct place *places = sw_alloc_zero("look", (size_t)m->size, sizeof *places);
    SW_TRY_ALLOC(places, "names of machines");
    sw_status st =
        sw_comm_all_gather(m->world, &m->place, places, sizeof *places, "names of machines");
    st = st < 0 ? st : check_hosts(m, places);
    sw_free(places);
    return st;
}

/* ---- kernels, copies and the disk ---- */

static double largest_operand(const struct sw_program *program, const struct sw_instr *instr)
{
    size_t most = 0;
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        const struct sw_operand *operand = &program->operands[instr->operands + k];
        most = operand->tier < SW_TIER_COUNT && operand->bytes > most ? operand->bytes : most;
    }
    return (double)most;
}

static void sum_kernels(const struct sw_plan *plan, const struct sw_speeds *speeds,
                        struct sums *out)
{
    const struct sw_program *program = &plan->programs[0];
    *out = (struct sums){.shortest = HUGE_VAL};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const double seconds = speeds->kernels[i][1].seconds;
        double work = 0;
        const enum sw_load load = sw_instr_load(plan, program, i, &work);
        if (instr->verb != SW_VERB_KERNEL || seconds <= 0) {
            continue;
        }
        out->shortest = fmin(out->shortest, seconds);
        if (load < SW_LOAD_OTHER) {
            out->products += work;
            out->product_s += seconds;
            out->best = fmax(out->best, work / seconds);
        } else if (load == SW_LOAD_HOST) {
            out->updated += largest_operand(program, instr) / (double)sizeof(float);
            out->host_bytes += work;
            out->host_s += seconds;
        } else {
            for (int k = 0; k <= (work >= LARGE); k++) {
                out->bytes[k] += work;
                out->byte_s[k] += seconds;
            }
        }
    }
}

static struct sw_figure figure(struct machine *m, double value, const char *what)
{
    const char *source =
        sw_arena_printf(&m->c.arena, "measured by spillway doctor on %s: %s", m->place.host, what);
    return (struct sw_figure){value, SW_FIGURE_MEASURED, source ? source : what, 0};
}

static const struct sw_rate_point *largest(const struct sw_rate_curve *curve)
{
    return &curve->at[curve->n - 1];
}

/* Latency of the first point of a curve, whose points are in units of `scale` bytes. */
static double latency_of(const struct sw_rate_curve *curve, double scale, double rate)
{
    return fmax(0, curve->at[0].cost.seconds - curve->at[0].bytes * scale / rate);
}

static void add_link(struct machine *m, const char *name, enum sw_joint joint, bool is_of_node,
                     struct sw_figure rate, struct sw_figure latency)
{
    m->links[m->c.n_links++] =
        (struct sw_cluster_link){.name = name,
                                 .joint = (int)joint,
                                 .shared_by = is_of_node ? SW_SHARER_NODE : SW_SHARER_DEVICE,
                                 .duplex = joint != SW_JOINT_HOST,
                                 .rate = rate,
                                 .latency = latency};
}

static void take_copies(struct machine *m, const struct sw_speeds *speeds)
{
    const struct sw_rate_curve *in = &speeds->curves[SW_CURVE_COPY_IN];
    const struct sw_rate_curve *out = &speeds->curves[SW_CURVE_COPY_OUT];
    const struct sw_rate_point *a = largest(in), *b = largest(out);
    const double rate = fmin(a->bytes / a->cost.seconds, b->bytes / b->cost.seconds);
    add_link(m, "copies", SW_JOINT_HOST, false,
             figure(m, rate, "copies of 8 MiB, the slower direction, all ranks at once"),
             figure(m, latency_of(in, 1, rate), "copies of 4 KiB to the device"));
}

/* Nearer to independent than to shared. */
static bool is_duplex(const struct sw_disk_share *share)
{
    return share->reads + share->writes > 1.5;
}

static sw_status take_disk(struct machine *m, const struct sw_speeds *speeds)
{
    const struct sw_rate_point *in = largest(&speeds->curves[SW_CURVE_READ]);
    const struct sw_rate_point *out = largest(&speeds->curves[SW_CURVE_WRITE]);
    struct statvfs fs;
    if (statvfs(m->wanted->disk, &fs) != 0) {
        return SW_FAIL(SW_E_IO, "%s: its free space is unknown", m->wanted->disk);
    }
    m->disk = (struct sw_cluster_disk){
        .name = "disk",
        .shared_by = SW_SHARER_NODE,
        .duplex = is_duplex(&speeds->disk_share),
        .count = figure(m, 1, "the folder counts as one disk"),
        .space = figure(m, (double)fs.f_bavail * (double)fs.f_frsize, "free space of the folder"),
        .read = figure(m, m->n_here * in->bytes / in->cost.seconds, "reads of all ranks at once"),
        .write =
            figure(m, m->n_here * out->bytes / out->cost.seconds, "writes of all ranks at once"),
        .latency = figure(m, speeds->curves[SW_CURVE_READ].at[0].cost.latency, "reads of 4 KiB")};
    m->c.disks = &m->disk;
    m->c.n_disks = 1;
    return SW_OK;
}

/* The second word of a kernel set names the architecture. */
static sw_status take_device(struct machine *m, const struct sw_engine_facts *f)
{
    struct sw_cluster_device *d = &m->c.device;
    char backend[16] = "", arch[32] = "", name[128] = "";
    int processors = m->threads;
    const char *at = strstr(f->kernel_set, "processors:");
    sscanf(f->kernel_set, "%15s %31s", backend, arch);
    m->sees_host = (f->device->caps & SW_DEVICE_HOST_VISIBLE) && strcmp(backend, "cpu") == 0;
    if (!m->sees_host && strcmp(backend, "cuda") != 0 && strcmp(backend, "hip") != 0) {
        return SW_FAIL(SW_E_UNSUP, "a cluster's device is \"cpu\", \"cuda\" or \"hip\", not \"%s\"",
                       f->device_name);
    }
    if (m->sees_host) {
        sw_device_processor_name(name, sizeof name);
    }
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    d->name = sw_arena_strdup(&m->c.arena, *name ? name : f->device_name);
    d->backend = sw_arena_strdup(&m->c.arena, backend);
    d->arch = sw_arena_strdup(&m->c.arena, arch);
    if (!d->name || !d->backend || !d->arch) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a cluster");
    }
    if (at) {
        processors = atoi(at + strlen("processors:"));
    }
    d->processors = figure(m, processors, "counted");
    d->memory =
        figure(m, m->sees_host ? memory / m->n_here : (double)f->device->free_bytes,
               m->sees_host ? "its share of the host's memory" : "free, as the driver says");
    m->c.host.processors = figure(m, (double)sysconf(_SC_NPROCESSORS_ONLN), "counted");
    m->c.host.memory = figure(m, memory, "as the system says");
    return SW_OK;
}

/* ---- one training for each dtype ---- */

static void write_config(const struct machine *m, enum sw_dtype dtype, struct sw_str *out)
{
    const bool tiers = dtype == SW_F32;
    sw_str_printf(out,
                  "{\"train_micro_batch_size_per_gpu\":1,\"optimizer\":{\"type\":\"AdamW\","
                  "\"params\":{\"lr\":0.001}},\"spillway\":{\"threads\":%d},"
                  "\"bf16\":{\"enabled\":%s},\"fp16\":{\"enabled\":%s}",
                  m->threads, dtype == SW_BF16 ? "true" : "false",
                  dtype == SW_F16 ? "true" : "false");
    if (tiers && m->wanted->disk) {
        sw_str_puts(out, ",\"zero_optimization\":{\"stage\":3,\"offload_param\":{\"device\":\"cpu\""
                         "},\"offload_optimizer\":{\"device\":\"nvme\"}}");
    } else if (tiers) {
        sw_str_puts(out, ",\"zero_optimization\":{\"stage\":3,\"offload_param\":{\"device\":\"cpu\""
                         "},\"offload_optimizer\":{\"device\":\"cpu\"}}");
    }
    sw_str_puts(out, "}");
}

/* Takes the rates of one dtype; those of copies and disks are of f32. */
static sw_status take_speeds(struct machine *m, const struct sw_plan *plan, int dtype,
                             const struct sw_speeds *speeds)
{
    sum_kernels(plan, speeds, &m->sums[dtype]);
    if (dtype > 0) {
        return SW_OK;
    }
    take_copies(m, speeds);
    return m->wanted->disk ? take_disk(m, speeds) : SW_OK;
}

static sw_status measure_engine(struct machine *m, int dtype, sw_engine *e)
{
    const struct sw_engine_facts f = sw_engine_facts(e);
    const struct sw_swap_options swap = sw_engine_swap(e);
    struct sw_device *device = f.device, *host = f.host;
    struct sw_speeds speeds = {0};
    for (int k = SW_LOAD_OTHER; dtype > 0 && k < SW_LOAD_COUNT; k++) {
        speeds.given.work[k] = 1; /* those of f32 are enough */
    }
    const struct sw_measure_options options = {.devices = &device,
                                               .hosts = &host,
                                               .n_devices = 1,
                                               .ranks = 1,
                                               .swap = &swap,
                                               .comm = m->world};
    SW_TRY(take_device(m, &f));
    sw_status st = sw_speeds_measure(f.plan, &options, &speeds);
    st = st < 0 ? st : take_speeds(m, f.plan, dtype, &speeds);
    sw_speeds_close(&speeds);
    return st;
}

/* Each rank of a host has a GPU of its own: the engine is alone, and would take the first one. */
static sw_status open_engine(const struct machine *m, const char *config, sw_engine **out)
{
    const char *path = m->wanted->disk ? m->wanted->disk : "";
    struct sw_str device = {0}, folder = {0};
    struct sw_engine_options o = {.config.text = config,
                                  .model.path = m->wanted->model ? m->wanted->model : "gpt2",
                                  .inputs.seq_len = m->wanted->seq_len,
                                  .train.wanted = true,
                                  .plan.only = true};
    sw_str_printf(&folder, "zero_optimization.offload_optimizer.nvme_path=%s", path);
    sw_str_puts(&device, sw_device_chosen(m->wanted->device ? m->wanted->device : "auto"));
    if (strcmp(device.ptr, "cuda") == 0 || strcmp(device.ptr, "hip") == 0) {
        sw_str_printf(&device, ":%d", m->local);
    }
    const char *const sets[] = {folder.ptr};
    o.run.device = device.ptr;
    o.config.sets = sets;
    o.config.n_sets = *path && strstr(config, "nvme") ? 1 : 0;
    const sw_status st = folder.failed || device.failed
                             ? SW_FAIL(SW_E_NOMEM, "out of host memory for a cluster")
                             : sw_initialize(&o, out);
    sw_str_fini(&device);
    sw_str_fini(&folder);
    return st;
}

static sw_status measure_dtype(struct machine *m, int dtype)
{
    static const enum sw_dtype dtypes[SW_CLUSTER_DTYPES] = {SW_F32, SW_BF16, SW_F16};
    struct sw_str config = {0};
    sw_engine *e = NULL;
    write_config(m, dtypes[dtype], &config);
    sw_status st = config.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a cluster")
                                 : open_engine(m, config.ptr, &e);
    st = st < 0 ? st : measure_engine(m, dtype, e);
    sw_close(e);
    sw_str_fini(&config);
    return st;
}

/* ---- links between ranks ---- */

static sw_status measure_group(struct machine *m, int number, int first, int step, int n,
                               struct sw_speeds *speeds)
{
    int *ranks = sw_alloc("look", (size_t)n * sizeof *ranks);
    sw_comm *group = NULL;
    SW_TRY_ALLOC(ranks, "a group of ranks");
    for (int i = 0; i < n; i++) {
        ranks[i] = first + i * step;
    }
    const struct sw_group_options options = {.number = number, .ranks = ranks, .n = n};
    sw_status st = sw_comm_open_group(m->world, &options, &group);
    st = st < 0 ? st : sw_speeds_measure_exchanges(group, speeds);
    sw_comm_close(group, st < 0);
    sw_free(ranks);
    return st;
}

/* users: ranks of a host that use the link at the same time */
static void take_exchanges(struct machine *m, const char *name, enum sw_joint joint, int n,
                           int users, const struct sw_speeds *speeds)
{
    const struct sw_rate_curve *curve = &speeds->curves[SW_CURVE_GATHER];
    if (m->rank > 0 || curve->n == 0) {
        return;
    }
    const double rate = largest(curve)->bytes * (n - 1) / largest(curve)->cost.seconds;
    add_link(m, name, joint, joint == SW_JOINT_NODES,
             figure(m, users * rate, "large exchanges, each rank with each other one"),
             figure(m, latency_of(curve, n - 1, rate), "exchanges of 4 KiB a rank"));
}

static sw_status measure_links(struct machine *m)
{
    const int n_hosts = m->size / m->n_here;
    struct sw_speeds speeds = {0};
    if (m->n_here > 1) {
        SW_TRY(measure_group(m, GROUP_OF_HOST, m->rank - m->local, 1, m->n_here, &speeds));
        take_exchanges(m, "ranks of a host", SW_JOINT_PEERS, m->n_here, 1, &speeds);
    }
    if (n_hosts > 1) {
        SW_TRY(measure_group(m, GROUP_OF_HOSTS, m->local, m->n_here, n_hosts, &speeds));
        take_exchanges(m, "hosts", SW_JOINT_NODES, n_hosts, m->n_here, &speeds);
    }
    return SW_OK;
}

/* ---- the file ---- */

/* A device that shares the host's memory has its share of that memory's rate. */
static void fill(struct machine *m)
{
    struct sw_cluster_device *d = &m->c.device;
    struct sw_cluster_host *h = &m->c.host;
    const struct sums *f32 = &m->sums[0], *fast = f32;
    for (int t = 0; t < SW_CLUSTER_DTYPES; t++) {
        if (m->sums[t].best > 0) {
            d->peak[t] = figure(m, m->sums[t].best, "the fastest product of the training");
            fast = m->sums[t].best > fast->best ? &m->sums[t] : fast;
        }
    }
    const int k = f32->byte_s[1] > 0;
    const double rate = f32->bytes[k] / f32->byte_s[k];
    d->bandwidth = figure(m, rate, "kernels other than products, all ranks at once");
    d->sustained = figure(m, fmin(1, fast->products / fast->product_s / fast->best),
                          "all products of the training, in the fastest dtype");
    d->launch = figure(m, f32->shortest, "the shortest kernel of the training");
    h->bandwidth = f32->host_s > 0 ? figure(m, m->n_here * f32->host_bytes / f32->host_s,
                                            "updates on the host, all ranks at once")
                                   : figure(m, m->n_here * rate, "that of its devices together");
    if (f32->host_s > 0) {
        h->adam = figure(m, m->n_here * f32->updated / f32->host_s, "updates on the host");
    }
    m->c.node.devices = figure(m, m->n_here, "ranks of a host");
    m->c.node.most = figure(m, m->size / m->n_here, "hosts that were measured");
    m->c.format = 1;
    m->c.name = m->place.host;
    m->c.about = "Measured with the kernels of a small training. All nodes are taken to be like "
                 "the one of rank 0.";
    m->c.links = m->links;
}

/* The file is read before it is kept, so that a strange rate is refused here. */
static sw_status write_file(struct machine *m)
{
    struct sw_str text = {0};
    struct sw_cluster *again = NULL;
    fill(m);
    sw_cluster_write(&m->c, &text);
    sw_status st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a cluster")
                               : sw_cluster_parse(m->wanted->path, text.ptr, text.len, &again);
    st = st < 0 ? st : sw_file_write_str(m->wanted->path, &text);
    sw_cluster_close(again);
    sw_str_fini(&text);
    return st;
}

static sw_status measure(struct machine *m)
{
    SW_TRY(find_hosts(m));
    for (int t = 0; t < SW_CLUSTER_DTYPES; t++) {
        SW_TRY(measure_dtype(m, t));
    }
    SW_TRY(measure_links(m));
    return m->rank == 0 ? write_file(m) : SW_OK;
}

static sw_status check(const struct sw_doctor_cluster *wanted)
{
    if (!wanted->path || !*wanted->path || wanted->seq_len < 0) {
        return SW_FAIL(SW_E_ARG, "a cluster: wanted a file and 0 or more tokens, got %s and %lld",
                       wanted->path && *wanted->path ? wanted->path : "no file",
                       (long long)wanted->seq_len);
    }
    return SW_OK;
}

sw_status sw_doctor_cluster(const struct sw_doctor_cluster *wanted, bool *out_wrote)
{
    struct machine m = {.wanted = wanted};
    sw_comm *world = NULL;
    SW_TRY_OPTIONS(wanted);
    SW_TRY(check(wanted));
    if (!wanted->comm) {
        SW_TRY(sw_world_open(deadline_s, &world));
    }
    m.world = wanted->comm ? wanted->comm : world;
    sw_arena_init(&m.c.arena, "look");
    const sw_status st = measure(&m);
    if (st < 0 && m.world) {
        sw_comm_abort(m.world, st);
    }
    sw_comm_close(world, st < 0);
    sw_arena_fini(&m.c.arena);
    *out_wrote = st >= 0 && m.rank == 0;
    return st;
}
