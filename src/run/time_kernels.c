// SPDX-License-Identifier: Apache-2.0
// Times each kernel of a plan, in the order of the plan and at the plan's addresses, so that caches
// hold what they hold in a step. What a transfer or an exchange would bring is overwritten with
// ordinary numbers, since a kernel that meets NaN may take longer, as sums of squares do. If a step
// takes long, kernels that have run long enough are left out, and their results are overwritten,
// too.
#include <math.h>
#include <string.h>
#include <time.h>

#include "run/measure.h"

enum { PASSES = 3, LEAST_SAMPLES = 2, PAGE = 4096, OPERANDS = SW_MAX_INPUTS + SW_MAX_OUTPUTS };
static const double pass_s = 0.7;    /* short steps are repeated for so long in a pass */
static const double short_s = 2;     /* a step that takes longer is not run as a whole */
static const double enough_s = 0.01; /* time per kernel in a pass of a long step */
static const double long_s = 0.2;    /* kernels that take longer are launched once */
enum { MOST_OF_PLAN = 1 << 30, MOST_ROUNDS = 20, FILL = 1 << 20 };

/* ---- clocks ---- */

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct sw_stopwatch sw_stopwatch_start(void)
{
    return (struct sw_stopwatch){sw_now_s(), processor_s()};
}

struct sw_cost sw_stopwatch_cost(const struct sw_stopwatch *begin, int ranks)
{
    const double wall = sw_now_s() - begin->wall, processor = processor_s() - begin->processor;
    return (struct sw_cost){.seconds = wall, .cores = wall > 0 ? processor / wall / ranks : 0};
}

/* ---- classes of kernels with equal time ---- */

struct class
{
    int32_t instr; /* first instruction of the class */
    bool first;    /* time in the first micro-step, if that differs */
    uint64_t hash;
    double samples[PASSES], cores;
    /* of this pass: launches, their seconds, and those of all processors */
    int n;
    double seconds, processor;
};

/* The attributes without the position within the whole tensor, which does not affect time. */
static struct sw_attrs attrs_without_place(const struct sw_op *op)
{
    struct sw_op copy = *op;
    struct sw_tile_attrs *tile = sw_op_tile(&copy);
    const enum sw_attrs_kind kind = sw_op_info(op->kind)->attrs;
    if (tile) {
        tile->first = 0;
    } else if (kind == SW_ATTRS_UPDATE) {
        copy.attrs.update.first = 0;
    } else if (kind == SW_ATTRS_SELECT_INDEX) {
        copy.attrs.select_index.first = 0;
    } else if (kind == SW_ATTRS_NONE) {
        memset(&copy.attrs, 0, sizeof copy.attrs);
    }
    return copy.attrs;
}

static bool same_view(const struct sw_view *a, const struct sw_view *b)
{
    const size_t strides = a->shape.rank > 0 ? (size_t)a->shape.rank * sizeof *a->strides : 0;
    return a->dtype == b->dtype && a->shape.rank == b->shape.rank &&
           memcmp(a->shape.dims, b->shape.dims, strides) == 0 &&
           memcmp(a->strides, b->strides, strides) == 0;
}

static bool same_operands(const struct sw_op_desc *a, const struct sw_op_desc *b)
{
    bool same = a->op->n_in == b->op->n_in && a->op->n_out == b->op->n_out;
    for (int k = 0; k < a->op->n_in && same; k++) {
        same = same_view(&a->in[k], &b->in[k]);
    }
    for (int k = 0; k < a->op->n_out && same; k++) {
        same = same_view(&a->out[k], &b->out[k]);
    }
    return same;
}

/* True if the kernels of two classes differ only in the position within a tensor. */
static bool same_kernel(const struct sw_program *program, const struct class *a,
                        const struct class *b)
{
    struct sw_op_desc of_a, of_b;
    struct sw_op op_a, op_b;
    if (a->hash != b->hash || a->first != b->first) {
        return false;
    }
    sw_program_describe(program, a->instr, &op_a, &of_a);
    sw_program_describe(program, b->instr, &op_b, &of_b);
    const struct sw_attrs attrs[2] = {attrs_without_place(of_a.op), attrs_without_place(of_b.op)};
    return of_a.op->kind == of_b.op->kind && of_a.op->user == of_b.op->user &&
           of_a.is_predicated == of_b.is_predicated &&
           memcmp(&attrs[0], &attrs[1], sizeof attrs[0]) == 0 && same_operands(&of_a, &of_b);
}

static uint64_t hash_view(uint64_t h, const struct sw_view *view)
{
    const size_t rank = view->shape.rank > 0 ? (size_t)view->shape.rank : 0;
    return sw_hash(h, view->shape.dims, rank * sizeof *view->shape.dims);
}

/* Class of the kernel of instruction i. first: in the first micro-step, where a sum begins. */
static struct class class_of(const struct sw_program *program, int32_t i, bool first)
{
    struct class class = {.instr = i};
    struct sw_op_desc desc;
    struct sw_op op;
    sw_program_describe(program, i, &op, &desc);
    class.first = first && sw_op_has(desc.op, SW_TRAIT_SUM);
    class.hash = sw_hash(SW_HASH_INIT, &desc.op->kind, sizeof desc.op->kind);
    for (int k = 0; k < desc.op->n_in; k++) {
        class.hash = hash_view(class.hash, &desc.in[k]);
    }
    for (int k = 0; k < desc.op->n_out; k++) {
        class.hash = hash_view(class.hash, &desc.out[k]);
    }
    return class;
}

/* ---- memory ---- */

/* A group of operands that overlap, and are placed together. */
struct cluster {
    size_t begin, end; /* in the plan's arena */
    bool has_indices;  /* it has integers that may be row indices */
};

struct place {
    struct cluster clusters[OPERANDS];
    int cluster[OPERANDS]; /* by operand; -1 = absent */
    int n;
};

struct bench {
    const struct sw_plan *plan;
    enum sw_queue queue; /* queue whose kernels run: the device's, or the host's */
    struct sw_device *dev;
    struct sw_stream_queue *on;
    void *arena, *host;
    /* The arena begins with `fixed` bytes for indices and workspace. The rest is as in the plan. */
    size_t fixed, bytes;
    /* Overwrites what a kernel has written: the arena is smaller than the plan's memory, or the
     * results of several kernels in turn leave the range of f16. */
    bool overwrites;
    double *scalars;
    void *ordinary;       /* [FILL] numbers on the host */
    double *host_scalars; /* after two times FILL bytes of host memory */
};

static const struct sw_view *view_of(const struct sw_op_desc *desc, const struct sw_instr *instr,
                                     int k)
{
    return k < instr->n_in ? &desc->in[k] : &desc->out[k - instr->n_in];
}

/* False for what may be an index, which has to be in range. */
static bool is_number(enum sw_dtype dtype)
{
    return dtype != SW_I32;
}

static bool is_there(const struct sw_operand *operand)
{
    return operand->tier <= SW_TIER_HOST && operand->bytes > 0;
}

static size_t end_of(const struct sw_operand *operand)
{
    return operand->offset + (operand->room > operand->bytes ? operand->room : operand->bytes);
}

/* Adds a cluster, and merges clusters that overlap. */
static void add_to_clusters(struct place *place, struct cluster one)
{
    for (int i = 0; i < place->n;) {
        struct cluster *c = &place->clusters[i];
        if (one.begin < c->end && c->begin < one.end) {
            one.begin = c->begin < one.begin ? c->begin : one.begin;
            one.end = c->end > one.end ? c->end : one.end;
            one.has_indices |= c->has_indices;
            *c = place->clusters[--place->n];
            i = 0;
        } else {
            i++;
        }
    }
    place->clusters[place->n++] = one;
}

/* Groups the operands of the kernel of instruction i by overlap. Notes which groups have
 * indices. */
static void find_place(const struct sw_plan *plan, int32_t i, struct place *place)
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_operand *operands = &program->operands[instr->operands];
    const int n = instr->n_in + instr->n_out;
    struct sw_op_desc desc;
    struct sw_op op;
    sw_program_describe(program, i, &op, &desc);
    place->n = 0;
    for (int k = 0; k < n; k++) {
        const bool number = is_number(view_of(&desc, instr, k)->dtype);
        if (is_there(&operands[k])) {
            add_to_clusters(place,
                            (struct cluster){operands[k].offset, end_of(&operands[k]), !number});
        }
    }
    for (int k = 0; k < n; k++) {
        place->cluster[k] = -1;
        for (int c = 0; c < place->n && is_there(&operands[k]); c++) {
            const bool in = place->clusters[c].begin <= operands[k].offset &&
                            end_of(&operands[k]) <= place->clusters[c].end;
            place->cluster[k] = in ? c : place->cluster[k];
        }
    }
}

/* Bytes that a group takes: whole pages, and one more for its offset within a
 * page. */
static size_t taken(const struct cluster *cluster)
{
    return sw_round_up(cluster->end - cluster->begin + PAGE, PAGE);
}

/* Makes `fixed` large enough for a kernel; *largest: bytes of the largest group of all. */
static void fit(struct bench *b, const struct class *class, size_t *largest)
{
    const struct sw_instr *instr = &b->plan->programs[0].instrs[class->instr];
    size_t bytes = sw_round_up(instr->about->kernel.workspace_bytes + PAGE, PAGE);
    struct place place;
    find_place(b->plan, class->instr, &place);
    for (int c = 0; c < place.n; c++) {
        const size_t needs = taken(&place.clusters[c]);
        bytes += place.clusters[c].has_indices ? needs : 0;
        *largest = needs > *largest ? needs : *largest;
    }
    b->fixed = bytes > b->fixed ? bytes : b->fixed;
}

/* Makes numbers that are small in every dtype: halves near 0.01, or 1 for f16. */
static void make_ordinary(uint16_t *halves)
{
    for (size_t i = 0; i < FILL / sizeof *halves; i++) {
        halves[i] = (uint16_t)(0x3c00 + sw_philox_u64(1, 0, i) % 256);
    }
}

static sw_status fill(const struct bench *b, void *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += FILL) {
        const size_t some = bytes - at < FILL ? bytes - at : FILL;
        SW_TRY(sw_device_copy(b->dev, b->on, (char *)memory + at, b->ordinary, some));
    }
    return b->dev->ops->stream_wait(b->dev, b->on);
}

static size_t bytes_of_host(void)
{
    return 2 * FILL + SW_SCALAR_COUNT * sizeof(double);
}

/* True if a kernel of the class has an operand in f16. */
static bool has_f16(const struct bench *b, const struct class *class)
{
    const struct sw_program *program = &b->plan->programs[0];
    const struct sw_instr *instr = &program->instrs[class->instr];
    struct sw_op_desc desc;
    struct sw_op op;
    bool has = false;
    sw_program_describe(program, class->instr, &op, &desc);
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        has |= view_of(&desc, instr, k)->dtype == SW_F16;
    }
    return has;
}

/* Sizes the memory for the plan and for each class, then allocates and fills the memory. */
static sw_status open_bench(const struct class *classes, int n, struct bench *b)
{
    const enum sw_tier tier = b->queue == SW_QUEUE_HOST ? SW_TIER_HOST : SW_TIER_DEVICE;
    const size_t has = b->plan->tier_bytes[tier];
    struct sw_device *dev = b->dev;
    size_t largest = 0;
    void *mem = NULL;
    b->overwrites = has > MOST_OF_PLAN;
    for (int i = 0; i < n; i++) {
        fit(b, &classes[i], &largest);
        b->overwrites |= has_f16(b, &classes[i]);
    }
    const size_t placed = sw_round_up(has < MOST_OF_PLAN ? has : MOST_OF_PLAN, PAGE);
    b->bytes = b->fixed + placed + largest;
    SW_TRY(dev->ops->stream_open(dev, &b->on));
    SW_TRY(sw_device_alloc(dev, SW_MEM_DEVICE, b->bytes, &b->arena));
    SW_TRY(sw_device_alloc(dev, SW_MEM_HOST, bytes_of_host(), &b->host));
    SW_TRY(sw_device_alloc(dev, SW_MEM_DEVICE, SW_SCALAR_COUNT * sizeof(double), &mem));
    b->scalars = mem;
    b->ordinary = (char *)b->host + FILL;
    b->host_scalars = (double *)(void *)((char *)b->ordinary + FILL);
    make_ordinary(b->ordinary);
    return fill(b, b->arena, b->bytes);
}

static void close_bench(struct bench *b)
{
    const size_t scalars = SW_SCALAR_COUNT * sizeof(double);
    sw_device_free(b->dev, SW_MEM_DEVICE, b->arena, b->bytes);
    sw_device_free(b->dev, SW_MEM_HOST, b->host, bytes_of_host());
    sw_device_free(b->dev, SW_MEM_DEVICE, b->scalars, scalars);
    if (b->on) {
        b->dev->ops->stream_close(b->dev, b->on);
    }
}

/* ---- one kernel ---- */

struct launch {
    bool first;      /* in the first micro-step */
    struct sw_op op; /* borrowed by desc */
    struct sw_op_desc desc;
    const struct sw_instr *instr;
    const struct sw_operand *operands;
    struct place place;
    struct sw_kernel *kernel;
    void *at[OPERANDS];
    void *workspace;
};

/* The place in memory of bytes that the plan has at `begin`: the same, if there is room for all. */
static char *placed(const struct bench *b, size_t begin, size_t bytes)
{
    const size_t page = begin / PAGE * PAGE;
    return (char *)b->arena + b->fixed + page % (b->bytes - b->fixed - bytes + PAGE) + begin % PAGE;
}

/* Sets the addresses of a launch. Each group of operands keeps its offset within a page. */
static void set_addresses(const struct bench *b, struct launch *l)
{
    char *bases[OPERANDS], *fixed = b->arena;
    for (int c = 0; c < l->place.n; c++) {
        const struct cluster *cluster = &l->place.clusters[c];
        const size_t bytes = taken(cluster);
        const bool stays = cluster->has_indices;
        bases[c] = stays ? fixed + cluster->begin % PAGE : placed(b, cluster->begin, bytes);
        fixed += stays ? bytes : 0;
    }
    for (int k = 0; k < l->instr->n_in + l->instr->n_out; k++) {
        const int c = l->place.cluster[k];
        l->at[k] = c < 0 ? NULL : bases[c] + (l->operands[k].offset - l->place.clusters[c].begin);
    }
    l->workspace = l->instr->workspace < 0 ? NULL : fixed;
}

/* The launch of the kernel of instruction i, without a kernel. */
static void describe_launch(const struct bench *b, int32_t i, bool first, struct launch *l)
{
    const struct sw_program *program = &b->plan->programs[0];
    *l = (struct launch){.instr = &program->instrs[i], .first = first};
    l->operands = &program->operands[l->instr->operands];
    sw_program_describe(program, i, &l->op, &l->desc);
    find_place(b->plan, i, &l->place);
    set_addresses(b, l);
}

/* launches: [n] of which some may have no kernel */
static void release_all(struct sw_device *dev, const struct launch *launches, int n)
{
    for (int k = 0; k < n; k++) {
        if (launches[k].kernel) {
            dev->ops->release(dev, launches[k].kernel);
        }
    }
}

/* Fewest rows of all tables that the kernel's indices may refer to. */
static int64_t rows_of_all(const struct sw_op_desc *desc, const struct sw_instr *instr, int k)
{
    const struct sw_op_info *info = sw_op_info(desc->op->kind);
    int64_t least = INT64_MAX;
    if (info->n_indexed && k == info->index_input) {
        return info->n_indexed(desc);
    }
    for (int i = 0; i < instr->n_in + instr->n_out; i++) {
        const struct sw_view *view = view_of(desc, instr, i);
        const int rank = view->shape.rank;
        if (rank >= 2 && sw_dtype_is_float(view->dtype)) {
            least = sw_min_i64(least, view->shape.dims[rank - 2]);
            least = sw_min_i64(least, view->shape.dims[rank - 1]);
        }
    }
    return least == INT64_MAX ? 1 : sw_max_i64(1, least);
}

/* Fills ascending indices, which some kernels require. Other integers are 0. */
static sw_status fill_indices(struct bench *b, const struct launch *l, int k)
{
    const struct sw_view *view = view_of(&l->desc, l->instr, k);
    const size_t width = sw_dtype_bytes(view->dtype);
    const int64_t n = (int64_t)(l->operands[k].bytes / width);
    const int64_t rows = rows_of_all(&l->desc, l->instr, k);
    const int64_t each = FILL / (int64_t)width;
    for (int64_t first = 0; first < n; first += each) {
        const int64_t some = sw_min_i64(each, n - first);
        memset(b->host, 0, (size_t)some * width);
        for (int64_t i = 0; i < some && view->dtype == SW_I32; i++) {
            ((int32_t *)b->host)[i] = (int32_t)((double)(first + i) / (double)n * (double)rows);
        }
        SW_TRY(sw_device_copy(b->dev, b->on, (char *)l->at[k] + (size_t)first * width, b->host,
                              (size_t)some * width));
        SW_TRY(b->dev->ops->stream_wait(b->dev, b->on));
    }
    return SW_OK;
}

/* Sets the learning rate to 0, so that an update leaves its numbers unchanged. */
static sw_status set_scalars(struct bench *b, bool first)
{
    memset(b->host_scalars, 0, SW_SCALAR_COUNT * sizeof(double));
    b->host_scalars[SW_SCALAR_FIRST] = first;
    b->host_scalars[SW_SCALAR_LOSS_SCALE] = b->host_scalars[SW_SCALAR_GRAD_FACTOR] = 1;
    b->host_scalars[SW_SCALAR_OVERFLOW_FACTOR] = b->host_scalars[SW_SCALAR_CLIP] = 1;
    b->host_scalars[SW_SCALAR_BETA1] = b->host_scalars[SW_SCALAR_BETA2] = 0.9;
    b->host_scalars[SW_SCALAR_STEP] = 1;
    sw_scalars_complete(b->host_scalars);
    SW_TRY(sw_device_copy(b->dev, b->on, b->scalars, b->host_scalars,
                          SW_SCALAR_COUNT * sizeof(double)));
    return b->dev->ops->stream_wait(b->dev, b->on);
}

/* Times one launch of a kernel. */
static sw_status launch(struct bench *b, struct launch *l, double *out_s)
{
    SW_TRY(set_scalars(b, l->first));
    const double begin = sw_now_s();
    SW_TRY(sw_device_launch(b->dev, b->on, l->kernel, l->at, l->at + l->instr->n_in, l->workspace,
                            b->scalars));
    SW_TRY(b->dev->ops->stream_wait(b->dev, b->on));
    *out_s = sw_now_s() - begin;
    return SW_OK;
}

/* Overwrites what the kernel has written, or would write. */
static sw_status overwrite(struct bench *b, struct launch *l)
{
    for (int k = l->instr->n_in; k < l->instr->n_in + l->instr->n_out; k++) {
        if (l->at[k] && is_number(view_of(&l->desc, l->instr, k)->dtype)) {
            SW_TRY(fill(b, l->at[k], l->operands[k].bytes));
        }
    }
    return SW_OK;
}

/* Overwrites what a transfer or an exchange moves on the device. */
static sw_status overwrite_moved(struct bench *b, const struct sw_instr *instr)
{
    const struct sw_operand *operands = &b->plan->programs[0].operands[instr->operands];
    for (int k = 0; k < instr->n_in; k++) {
        if (operands[k].tier == SW_TIER_DEVICE && operands[k].bytes > 0) {
            const size_t room = b->bytes - b->fixed - 2 * PAGE;
            const size_t bytes = operands[k].bytes < room ? operands[k].bytes : room;
            SW_TRY(fill(b, placed(b, operands[k].offset, bytes + PAGE), bytes));
        }
    }
    return SW_OK;
}

static sw_status fill_all_indices(struct bench *b, const struct launch *l)
{
    for (int k = 0; k < l->instr->n_in + l->instr->n_out; k++) {
        const enum sw_dtype dtype = view_of(&l->desc, l->instr, k)->dtype;
        SW_TRY(l->at[k] && !is_number(dtype) ? fill_indices(b, l, k) : SW_OK);
    }
    return SW_OK;
}

/* Seconds of kernels from one event to the next; an event is an exchange, or a wait for one. The
 * last span has not ended. */
struct spans {
    double *seconds; /* [n + 1] */
    size_t *until;   /* [n] spans that all ranks must have done before the next one begins */
    size_t n;
};

/* One measurement: what all its passes use. */
struct timing {
    struct bench *b;
    sw_comm *meet;
    struct class *classes;   /* [n] */
    struct launch *of_class; /* [n] with kernels */
    int32_t (*of)[2];        /* [n_instrs] the class in the first and in a later micro-step */
    const struct sw_machine_rates *given;
    int n, ranks;
    double cores;                     /* of a rank */
    const atomic_bool *stop;          /* NULL = it ends by itself */
    sw_comm *begins;                  /* others that begin together with it */
    struct sw_kernels_beside *beside; /* NULL = not wanted */
    bool whole;                       /* runs every kernel of a step; not before the first pass */
    bool meets;                       /* ranks that compute the same wait for each other */
    struct spans spans;               /* of all passes; not used unless `meets` */
    size_t *begun; /* [n_instrs] spans that all ranks must have done before it can be complete */
    size_t waited; /* most of `until` */
};

/* Launches a kernel of a class, and adds its time. */
static sw_status time_launch(const struct timing *t, struct class *class, struct launch *l,
                             double *seconds)
{
    struct bench *b = t->b;
    SW_TRY(fill_all_indices(b, l));
    const struct sw_stopwatch begin = sw_stopwatch_start();
    SW_TRY(launch(b, l, seconds));
    const struct sw_cost cost = sw_stopwatch_cost(&begin, t->ranks);
    class->n++;
    class->seconds += *seconds;
    class->processor += *seconds * fmin(cost.cores, t->cores);
    t->spans.seconds[t->spans.n] += *seconds;
    return b->overwrites ? overwrite(b, l) : SW_OK;
}

/* Adds a launch beside jobs. */
static void add_beside(struct sw_kernels_beside *beside, const struct sw_cost *cost, double seconds)
{
    beside->seconds += seconds;
    beside->alone += cost->seconds;
    beside->shared += seconds * sw_clock_share(&beside->pace, cost, &beside->job);
}

/* A kernel does not run. Where results are overwritten, ordinary numbers are there already. */
static sw_status leave_out(struct bench *b, struct launch *l)
{
    return b->overwrites ? SW_OK : overwrite(b, l);
}

/* ---- timing all kernels ---- */

static bool is_wanted(const struct bench *b, int32_t i, const struct sw_machine_rates *given)
{
    const struct sw_program *program = &b->plan->programs[0];
    double work;
    return program->instrs[i].queue == b->queue &&
           given->work[sw_instr_load(b->plan, program, i, &work)] <= 0;
}

/* class_of_instr: [n_instrs][2]; classes: room for that many */
static int classify(const struct bench *b, const struct sw_machine_rates *given,
                    struct class *classes, int32_t (*class_of_instr)[2])
{
    const struct sw_program *program = &b->plan->programs[0];
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        for (int later = 0; later < 2 && is_wanted(b, i, given); later++) {
            const struct class class = class_of(program, i, !later);
            int k = 0;
            while (k < n && !same_kernel(program, &classes[k], &class)) {
                k++;
            }
            class_of_instr[i][later] = k;
            if (k == n) {
                classes[n++] = class;
            }
        }
    }
    return n;
}

/* True if the class has run enough in this pass. Before the first pass one launch is enough. */
static bool has_enough(const struct class *class, int pass)
{
    const bool is_long = class->n > 0 && class->seconds > long_s * class->n;
    if (pass < 0) {
        return class->n > 0;
    }
    return is_long || (pass > 0 && class->samples[0] > long_s) ||
           (class->n >= LEAST_SAMPLES && class->seconds >= enough_s);
}

/* Ends a span. until: see struct spans */
static void end_span(struct timing *t, size_t until)
{
    t->spans.until[t->spans.n++] = until;
    t->waited = until > t->waited ? until : t->waited;
}

/* True for an exchange at which ranks that compute the same meet. Stages of a pipeline have none:
 * they compute different things. */
static bool is_meeting(const struct sw_instr *instr)
{
    return instr->verb >= SW_VERB_REDUCE && instr->verb != SW_VERB_MERGE &&
           instr->verb != SW_VERB_SEND && instr->verb != SW_VERB_RECV;
}

/* Ranks meet at an exchange. Those that travel together meet once. */
static sw_status meet(struct timing *t, int32_t i)
{
    const struct sw_instr_exchange *exchange = &t->b->plan->programs[0].instrs[i].exchange;
    if (exchange->batch > 0) {
        end_span(t, exchange->blocking ? t->spans.n + 1 : 0);
        SW_TRY(sw_comm_barrier(t->meet, "a measurement goes on"));
    }
    t->begun[i] = t->spans.n;
    return SW_OK;
}

/* An instruction waits for exchanges, which all ranks must have begun. */
static void wait_for_ranks(struct timing *t, int32_t i)
{
    const struct sw_instr *instr = &t->b->plan->programs[0].instrs[i];
    t->begun[i] = 0;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const int32_t j = instr->waits[q];
        t->begun[i] = j >= 0 && t->begun[j] > t->begun[i] ? t->begun[j] : t->begun[i];
    }
    if (instr->queue == SW_QUEUE_COMPUTE && t->begun[i] > t->waited) {
        end_span(t, t->begun[i]);
    }
}

static sw_status time_instr(struct timing *t, int32_t i, int later, int pass)
{
    struct bench *b = t->b;
    const struct sw_instr *instr = &b->plan->programs[0].instrs[i];
    struct launch l;
    if (t->meets && is_meeting(instr)) {
        SW_TRY(meet(t, i));
    } else if (t->meets) {
        wait_for_ranks(t, i);
    }
    if (instr->verb != SW_VERB_KERNEL) {
        const bool moves = b->queue == SW_QUEUE_COMPUTE && !b->overwrites && !t->stop;
        return moves ? overwrite_moved(b, instr) : SW_OK;
    }
    if (instr->queue != b->queue) {
        return SW_OK;
    }
    describe_launch(b, i, !later, &l);
    if (!is_wanted(b, i, t->given)) {
        return leave_out(b, &l);
    }
    struct class *class = &t->classes[t->of[i][later]];
    l.kernel = t->of_class[t->of[i][later]].kernel;
    if (!t->whole && has_enough(class, pass)) {
        return leave_out(b, &l);
    }
    double seconds = 0;
    SW_TRY(time_launch(t, class, &l, &seconds));
    if (t->beside) {
        add_beside(t->beside, &t->beside->pace.costs[i][later], seconds);
    }
    return SW_OK;
}

/* Runs the kernels of two micro-steps, the first one and a later one, each with an update. Ranks
 * agree before the update and after it. */
static sw_status run_round(struct timing *t, int pass)
{
    const struct sw_program *program = &t->b->plan->programs[0];
    const int32_t n = program->n_instrs, update = program->segment_first[SW_SEGMENT_UPDATE];
    for (int32_t i = 0; i < 2 * n; i++) {
        if (t->meets && (i % n == update || i % n == 0)) {
            end_span(t, t->spans.n + 1);
        }
        SW_TRY(time_instr(t, i % n, i >= n, pass));
    }
    return SW_OK;
}

/* Ends a pass: the means of its launches. */
static void end_pass(const struct timing *t, int pass)
{
    for (int k = 0; k < t->n; k++) {
        struct class *class = &t->classes[k];
        if (class->n > 0) {
            class->samples[pass] = class->seconds / class->n;
            class->cores += class->processor / class->seconds / PASSES;
        } else { /* it is slow, and has run in the first pass */
            class->samples[pass] = class->samples[0];
            class->cores += class->cores / pass;
        }
    }
}

static void begin_pass(const struct timing *t)
{
    for (int k = 0; k < t->n; k++) {
        t->classes[k].n = 0;
        t->classes[k].seconds = t->classes[k].processor = 0;
    }
}

/* Seconds of a round by the launches so far, on the slowest rank. */
static sw_status estimate_round(const struct timing *t, double *out)
{
    double sum = 0, *all = sw_alloc("run", (size_t)t->ranks * sizeof *all);
    SW_TRY_ALLOC(all, "times of all ranks");
    for (int32_t i = 0; i < t->b->plan->programs[0].n_instrs; i++) {
        for (int later = 0; later < 2 && is_wanted(t->b, i, t->given); later++) {
            const struct class *class = &t->classes[t->of[i][later]];
            sum += class->seconds / fmax(1, class->n);
        }
    }
    all[0] = sum;
    const sw_status st =
        t->meet ? sw_comm_all_gather(t->meet, &sum, all, sizeof sum, "a measurement") : SW_OK;
    *out = 0;
    for (int r = 0; r < t->ranks && st >= 0; r++) {
        *out = fmax(*out, all[r]);
    }
    sw_free(all);
    return st;
}

static void free_spans(struct timing *t)
{
    sw_free(t->spans.seconds);
    sw_free(t->spans.until);
    sw_free(t->begun);
}

/* Memory for the spans of so many rounds; none has begun. An exchange ends one, and so does the
 * instruction that waits for it. */
static sw_status make_spans(struct timing *t, int rounds)
{
    const struct sw_program *program = &t->b->plan->programs[0];
    size_t meetings = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        meetings += is_meeting(&program->instrs[i]);
    }
    const size_t most = 4 * (meetings + 1) * (size_t)rounds + 1;
    t->meets = t->meet && meetings > 0;
    free_spans(t);
    t->spans = (struct spans){.seconds = sw_alloc_zero("run", most, sizeof *t->spans.seconds),
                              .until = sw_alloc_zero("run", most, sizeof *t->spans.until)};
    t->begun = sw_alloc_zero("run", (size_t)program->n_instrs, sizeof *t->begun);
    t->waited = 0;
    return t->spans.seconds && t->spans.until && t->begun
               ? SW_OK
               : SW_FAIL(SW_E_NOMEM, "out of host memory to measure");
}

/* Repeats passes over all kernels, so that each is timed several times: a processor may be slower
 * for a while, since others use its memory or its other half. */
static sw_status time_all(struct timing *t)
{
    double seconds;
    SW_TRY(t->meet ? sw_comm_barrier(t->meet, "a measurement begins") : SW_OK);
    SW_TRY(make_spans(t, 1));
    SW_TRY(run_round(t, -1));
    SW_TRY(estimate_round(t, &seconds));
    t->whole = seconds < short_s;
    const int rounds =
        t->whole ? (int)fmax(1, fmin(MOST_ROUNDS, ceil(pass_s / fmax(seconds, 1e-6)))) : 1;
    SW_TRY(make_spans(t, PASSES * rounds));
    for (int pass = 0; pass < PASSES; pass++) {
        begin_pass(t);
        for (int r = 0; r < rounds; r++) {
            SW_TRY(run_round(t, pass));
        }
        end_pass(t, pass);
    }
    return SW_OK;
}

static double mean_of(const double *values, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += values[i];
    }
    return sum / n;
}

/* The time when all ranks have run their first n spans. ends: [ranks, stride] of each span */
static double end_of_all(const double *ends, size_t n, size_t stride, int ranks)
{
    double end = 0;
    for (int r = 0; r < ranks && n > 0; r++) {
        end = fmax(end, ends[(size_t)r * stride + n - 1]);
    }
    return end;
}

double sw_slowest_over_mean(double *seconds, const size_t *until, size_t n, int ranks)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) {
        const double begun = k > 0 ? end_of_all(seconds, until[k - 1], n, ranks) : 0;
        for (int r = 0; r < ranks; r++) {
            double *end = &seconds[(size_t)r * n + k];
            sum += *end;
            *end += k > 0 ? fmax(end[-1], begun) : 0;
        }
    }
    return sum > 0 ? end_of_all(seconds, n, n, ranks) * ranks / sum : 1;
}

/* Sets the times of all ranks: their mean, times the factor by which waiting for each other slows
 * them down. */
static sw_status agree(const struct timing *t)
{
    const size_t passes = (size_t)t->n * PASSES, n = t->spans.n;
    double *mine = sw_alloc("run", (passes + n + 1) * sizeof *mine);
    double *all = sw_alloc("run", (size_t)t->ranks * (passes + n + 1) * sizeof *all);
    sw_status st = mine && all ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory to measure");
    for (size_t i = 0; i < passes && st >= 0; i++) {
        mine[i] = t->classes[i / PASSES].samples[i % PASSES];
    }
    st = st < 0 ? st
                : sw_comm_all_gather(t->meet, mine, all, passes * sizeof *mine,
                                     "measurements of all ranks");
    for (size_t i = 0; i < passes && st >= 0; i++) {
        double sum = 0;
        for (int r = 0; r < t->ranks; r++) {
            sum += all[(size_t)r * passes + i];
        }
        t->classes[i / PASSES].samples[i % PASSES] = sum / t->ranks;
    }
    st = st < 0 || n == 0 ? st
                          : sw_comm_all_gather(t->meet, t->spans.seconds, all, n * sizeof *all,
                                               "measurements of all ranks");
    const double slower = st < 0 ? 1 : sw_slowest_over_mean(all, t->spans.until, n, t->ranks);
    for (size_t i = 0; i < passes && st >= 0; i++) {
        t->classes[i / PASSES].samples[i % PASSES] *= slower;
    }
    sw_free(mine);
    sw_free(all);
    return st;
}

/* Prepares a kernel of each class; release_all releases those that there are. */
static sw_status prepare_all(struct timing *t)
{
    for (int k = 0; k < t->n; k++) {
        struct launch *l = &t->of_class[k];
        describe_launch(t->b, t->classes[k].instr, t->classes[k].first, l);
        SW_TRY(sw_device_prepare(t->b->dev, &l->desc, &l->kernel));
    }
    return SW_OK;
}

/* Runs the kernels of step after step until it is stopped. */
static sw_status run_until_stopped(struct timing *t)
{
    const int32_t n = t->b->plan->programs[0].n_instrs;
    SW_TRY(make_spans(t, 1));
    SW_TRY(sw_comm_barrier(t->begins, "a measurement begins"));
    t->whole = true;
    for (int32_t i = 0; !atomic_load(t->stop); i = (i + 1) % (2 * n)) {
        SW_TRY(time_instr(t, i % n, i >= n, 0));
    }
    return SW_OK;
}

/* Prepares the kernels of all classes, and times them, or runs them until stopped. */
static sw_status prepare_and_run(struct timing *t)
{
    sw_status st = SW_OK;
    t->of_class = sw_alloc_zero("run", (size_t)t->n, sizeof *t->of_class);
    SW_TRY_ALLOC(t->of_class, "kernels to measure");
    SW_TRY_OR(close, prepare_all(t));
    SW_TRY_OR(close, t->stop ? run_until_stopped(t) : time_all(t));
    SW_TRY_OR(close, t->meet ? agree(t) : SW_OK);
close:
    release_all(t->b->dev, t->of_class, t->n);
    sw_free(t->of_class);
    free_spans(t);
    return st;
}

/* Opens memory, and runs the kernels of the classes that have been found. */
static sw_status open_and_run(struct timing *t)
{
    if (t->n == 0) {
        return t->begins ? sw_comm_barrier(t->begins, "a measurement begins") : SW_OK;
    }
    if (!t->b->dev) {
        return SW_FAIL(SW_E_ARG, "the plan has kernels of the host and no device to measure them "
                                 "on");
    }
    sw_status st = open_bench(t->classes, t->n, t->b);
    st = st < 0 ? st : prepare_and_run(t);
    close_bench(t->b);
    return st;
}

/* Runs the kernels of a queue. out: their times; NULL = not wanted */
static sw_status run_kernels(struct timing *t, struct sw_cost (*out)[2])
{
    struct bench *b = t->b;
    const int32_t n_instrs = b->plan->programs[0].n_instrs;
    sw_status st = SW_OK;
    t->cores = (double)sw_cpu_count() / t->ranks; /* asking the system takes 25 us */
    t->classes = sw_alloc_zero("run", 2 * (size_t)n_instrs + 1, sizeof *t->classes);
    t->of = sw_alloc_zero("run", (size_t)n_instrs + 1, sizeof *t->of);
    if (!t->classes || !t->of) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory to measure");
    } else {
        t->n = classify(b, t->given, t->classes, t->of);
        st = open_and_run(t);
    }
    for (int32_t i = 0; i < n_instrs && out && st >= 0; i++) {
        for (int later = 0; later < 2 && is_wanted(b, i, t->given); later++) {
            const struct class *class = &t->classes[t->of[i][later]];
            out[i][later] =
                (struct sw_cost){.seconds = mean_of(class->samples, PASSES), .cores = class->cores};
        }
    }
    sw_free(t->classes);
    sw_free(t->of);
    return st;
}

sw_status sw_measure_kernels(const struct sw_plan *plan, enum sw_queue queue, struct sw_device *dev,
                             sw_comm *meet, const struct sw_machine_rates *given,
                             struct sw_cost (*out)[2])
{
    struct bench b = {.plan = plan, .queue = queue, .dev = dev};
    struct timing t = {
        .b = &b, .meet = meet, .given = given, .ranks = meet ? sw_comm_size(meet) : 1};
    return run_kernels(&t, out);
}

sw_status sw_run_kernels(const struct sw_plan *plan, struct sw_device *dev, sw_comm *begins,
                         const struct sw_machine_rates *given, const atomic_bool *stop,
                         struct sw_kernels_beside *beside)
{
    struct bench b = {.plan = plan, .queue = SW_QUEUE_COMPUTE, .dev = dev};
    struct timing t = {
        .b = &b, .given = given, .ranks = 1, .stop = stop, .begins = begins, .beside = beside};
    return run_kernels(&t, NULL);
}
