// SPDX-License-Identifier: Apache-2.0
// Times each kernel of a plan. It is prepared as in the executor, and launched a few times on
// separate memory. That memory is as large as the plan's persistent and transient memory, up to a
// limit. Each launch uses the next places in it, so its operands are about as far from the caches
// as in a step. What a timed kernel has written is overwritten with ordinary numbers, since a
// kernel that meets NaN may take longer, as sums of squares do.
#include <math.h>
#include <string.h>
#include <time.h>

#include "run/measure.h"

enum {
    PASSES = 3,
    LEAST_SAMPLES = 2,
    MOST_SAMPLES = SW_MOST_LAUNCHES,
    PAGE = 4096,
    OPERANDS = SW_MAX_INPUTS + SW_MAX_OUTPUTS
};
static const double enough_s = 0.01; /* time per kernel in a pass */
static const double long_s = 0.2;    /* kernels that take longer are launched once */
enum { MOST_OF_REGION = 256 << 20, FILL = 1 << 20 };

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
    double *launches; /* [PASSES, MOST_SAMPLES] seconds; 0 = there was none */
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

/* FIXED: integers, which some kernels use as row indices, and workspace. PASSING: transient
 * numbers. STAYING: persistent numbers. */
enum region_name { FIXED, PASSING, STAYING, N_REGIONS };

/* A group of operands that overlap, and are placed together. */
struct cluster {
    size_t begin, end; /* in the plan's arena */
    enum region_name region;
};

struct place {
    struct cluster clusters[OPERANDS];
    int cluster[OPERANDS]; /* by operand; -1 = absent */
    int n;
};

struct region { /* a range of the bench's arena */
    size_t begin, bytes;
    size_t at; /* the next place to use */
};

struct bench {
    const struct sw_plan *plan;
    enum sw_queue queue; /* queue whose kernels run: the device's, or the host's */
    struct sw_device *dev;
    struct sw_stream_queue *on;
    void *arena, *host;
    struct region regions[N_REGIONS];
    size_t bytes;
    double *scalars;
    void *ordinary;       /* [FILL] numbers on the host */
    double *host_scalars; /* after two times FILL bytes of host memory */
};

static const struct sw_view *view_of(const struct sw_op_desc *desc, const struct sw_instr *instr,
                                     int k)
{
    return k < instr->n_in ? &desc->in[k] : &desc->out[k - instr->n_in];
}

/* True for float dtypes, including 16-bit ones. */
static bool is_number(enum sw_dtype dtype)
{
    return sw_dtype_is_float(dtype) || sw_dtype_bytes(dtype) == 2;
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
            one.region = c->region < one.region ? c->region : one.region;
            *c = place->clusters[--place->n];
            i = 0;
        } else {
            i++;
        }
    }
    place->clusters[place->n++] = one;
}

/* Groups the operands of a kernel by overlap, each group with its region. */
static void find_place(const struct sw_plan *plan, const struct class *class, struct place *place)
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_instr *instr = &program->instrs[class->instr];
    const struct sw_operand *operands = &program->operands[instr->operands];
    const int n = instr->n_in + instr->n_out;
    struct sw_op_desc desc;
    struct sw_op op;
    sw_program_describe(program, class->instr, &op, &desc);
    place->n = 0;
    for (int k = 0; k < n; k++) {
        /* kernels of the host run on persistent memory, such as states */
        const bool stays = operands[k].tier == SW_TIER_HOST ||
                           operands[k].offset < plan->persistent_bytes[SW_TIER_DEVICE];
        const enum region_name region = !is_number(view_of(&desc, instr, k)->dtype) ? FIXED
                                        : stays                                     ? STAYING
                                                                                    : PASSING;
        if (is_there(&operands[k])) {
            add_to_clusters(place,
                            (struct cluster){operands[k].offset, end_of(&operands[k]), region});
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

/* Bytes that a group takes in its region: whole pages, and one more for its offset within a
 * page. */
static size_t taken(const struct cluster *cluster)
{
    return sw_round_up(cluster->end - cluster->begin + PAGE, PAGE);
}

static void add_up(const struct place *place, size_t sums[N_REGIONS])
{
    memset(sums, 0, N_REGIONS * sizeof *sums);
    for (int c = 0; c < place->n; c++) {
        sums[place->clusters[c].region] += taken(&place->clusters[c]);
    }
}

/* Sizes the regions so that any kernel fits. */
static void fit(const struct sw_plan *plan, const struct class *class,
                struct region regions[N_REGIONS])
{
    struct place place;
    size_t sums[N_REGIONS];
    find_place(plan, class, &place);
    add_up(&place, sums);
    sums[FIXED] += plan->programs[0].instrs[class->instr].about->kernel.workspace_bytes + PAGE;
    for (int r = 0; r < N_REGIONS; r++) {
        sums[r] = sw_round_up(sums[r], PAGE);
        regions[r].bytes = sums[r] > regions[r].bytes ? sums[r] : regions[r].bytes;
    }
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

/* Sizes the regions for the plan and for each class, then allocates and fills the memory. */
static sw_status open_bench(const struct class *classes, int n, struct bench *b)
{
    const struct sw_plan *plan = b->plan;
    struct sw_device *dev = b->dev;
    void *mem = NULL;
    size_t has[N_REGIONS] = {0, plan->programs[0].peak.bytes[SW_TIER_DEVICE],
                             plan->persistent_bytes[SW_TIER_DEVICE]};
    if (b->queue == SW_QUEUE_HOST) {
        has[PASSING] = 0;
        has[STAYING] = plan->tier_bytes[SW_TIER_HOST];
    }
    for (int r = 0; r < N_REGIONS; r++) {
        b->regions[r].bytes = sw_round_up(has[r] < MOST_OF_REGION ? has[r] : MOST_OF_REGION, PAGE);
    }
    for (int i = 0; i < n; i++) {
        fit(plan, &classes[i], b->regions);
    }
    b->bytes = PAGE;
    for (int r = 0; r < N_REGIONS; r++) {
        b->regions[r].begin = b->bytes - PAGE;
        b->bytes += b->regions[r].bytes;
    }
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
    const struct class *class;
    struct sw_op op; /* borrowed by desc */
    struct sw_op_desc desc;
    const struct sw_instr *instr;
    const struct sw_operand *operands;
    struct place place;
    struct sw_kernel *kernel;
    void *at[OPERANDS];
    void *workspace;
};

static void describe_launch(const struct bench *b, const struct class *class, struct launch *l)
{
    const struct sw_program *program = &b->plan->programs[0];
    *l = (struct launch){.class = class, .instr = &program->instrs[class->instr]};
    l->operands = &program->operands[l->instr->operands];
    sw_program_describe(program, class->instr, &l->op, &l->desc);
    find_place(b->plan, class, &l->place);
}

static char *next_place(struct bench *b, enum region_name region, size_t bytes)
{
    struct region *r = &b->regions[region];
    char *place = (char *)b->arena + r->begin + r->at;
    r->at += bytes;
    return place;
}

/* Places the operands of a launch after those of the one before, so that they are in no cache. Each
 * group keeps its offset within a page. */
static void set_addresses(struct bench *b, struct launch *l)
{
    char *bases[OPERANDS];
    size_t sums[N_REGIONS];
    add_up(&l->place, sums);
    b->regions[FIXED].at = 0;
    for (int r = PASSING; r < N_REGIONS; r++) { /* all regions of a launch are adjacent */
        b->regions[r].at = b->regions[r].at + sums[r] > b->regions[r].bytes ? 0 : b->regions[r].at;
    }
    for (int c = 0; c < l->place.n; c++) {
        const struct cluster *cluster = &l->place.clusters[c];
        bases[c] = next_place(b, cluster->region, taken(cluster)) + cluster->begin % PAGE;
    }
    for (int k = 0; k < l->instr->n_in + l->instr->n_out; k++) {
        const int c = l->place.cluster[k];
        l->at[k] = c < 0 ? NULL : bases[c] + (l->operands[k].offset - l->place.clusters[c].begin);
    }
    l->workspace = l->instr->workspace < 0
                       ? NULL
                       : next_place(b, FIXED, l->instr->about->kernel.workspace_bytes);
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

/* Times one launch of a kernel at the next places in memory. */
static sw_status launch(struct bench *b, struct launch *l, double *out_s)
{
    set_addresses(b, l);
    SW_TRY(set_scalars(b, l->class->first));
    const double begin = sw_now_s();
    SW_TRY(sw_device_launch(b->dev, b->on, l->kernel, l->at, l->at + l->instr->n_in, l->workspace,
                            b->scalars));
    SW_TRY(b->dev->ops->stream_wait(b->dev, b->on));
    *out_s = sw_now_s() - begin;
    return SW_OK;
}

/* Number of launches after which all addresses come again: those to the end of each region, and a
 * round from its beginning. */
static int64_t round_of(const struct bench *b, const struct launch *l)
{
    size_t sums[N_REGIONS];
    int64_t most = 1;
    add_up(&l->place, sums);
    for (int r = PASSING; r < N_REGIONS; r++) {
        const size_t round = sums[r] > 0 ? b->regions[r].bytes / sums[r] + 1 : 0;
        most = sw_max_i64(most, 2 * (int64_t)round);
    }
    return most;
}

/* Overwrites the outputs of the last n launches, the first of which began at `at`. */
static sw_status restore(struct bench *b, struct launch *l, const size_t at[N_REGIONS], int n)
{
    const int64_t distinct = sw_min_i64(n, round_of(b, l));
    for (int r = 0; r < N_REGIONS; r++) {
        b->regions[r].at = at[r];
    }
    for (int64_t i = 0; i < distinct; i++) {
        set_addresses(b, l);
        for (int k = l->instr->n_in; k < l->instr->n_in + l->instr->n_out; k++) {
            if (l->at[k] && is_number(view_of(&l->desc, l->instr, k)->dtype)) {
                SW_TRY(fill(b, l->at[k], l->operands[k].bytes));
            }
        }
    }
    return SW_OK;
}

/* Launches a kernel until it has run long enough. The cost is the mean, without the first launch: a
 * step has slow launches, too. */
static sw_status sample(struct bench *b, struct launch *l, int ranks, double *launches,
                        struct sw_cost *out)
{
    double sum = 0, first = 0;
    size_t at[N_REGIONS];
    int n = 0;
    set_addresses(b, l);
    for (int r = 0; r < N_REGIONS; r++) {
        at[r] = b->regions[r].at;
    }
    for (int k = 0; k < l->instr->n_in + l->instr->n_out; k++) {
        const enum sw_dtype dtype = view_of(&l->desc, l->instr, k)->dtype;
        if (l->at[k] && !is_number(dtype)) {
            SW_TRY(fill_indices(b, l, k));
        }
    }
    SW_TRY(launch(b, l, &first));
    const struct sw_stopwatch begin = sw_stopwatch_start();
    do {
        SW_TRY(launch(b, l, &launches[n]));
        sum += launches[n++];
    } while (n < MOST_SAMPLES && (n < LEAST_SAMPLES || sum < enough_s) && sum < long_s);
    *out = sw_stopwatch_cost(&begin, ranks);
    out->cores = fmin(out->cores, (double)sw_cpu_count() / ranks);
    out->seconds = sum / n;
    return restore(b, l, at, n + 1);
}

/* Times a class in a pass. If its kernel is slow, later passes repeat the first time. */
static sw_status time_class(struct bench *b, struct class *class, int pass, int ranks)
{
    struct sw_cost cost = {0};
    if (pass > 0 && class->samples[0] > long_s) {
        class->samples[pass] = class->samples[0];
        class->launches[(ptrdiff_t)pass * MOST_SAMPLES] = class->samples[0];
        class->cores += class->cores / pass;
        return SW_OK;
    }
    struct launch l;
    describe_launch(b, class, &l);
    SW_TRY(sw_device_prepare(b->dev, &l.desc, &l.kernel));
    const sw_status st =
        sample(b, &l, ranks, class->launches + (ptrdiff_t)pass * MOST_SAMPLES, &cost);
    class->samples[pass] = cost.seconds;
    class->cores += cost.cores / PASSES;
    b->dev->ops->release(b->dev, l.kernel);
    return st;
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

/* Repeats passes over all kernels, so that each is timed several times: a processor may be slower
 * for a while, since others use its memory or its other half. */
static sw_status time_all(struct bench *b, sw_comm *meet, struct class *classes, int n)
{
    const int ranks = meet ? sw_comm_size(meet) : 1;
    for (int k = 0; k < PASSES * n; k++) {
        if (meet) {
            SW_TRY(sw_comm_barrier(meet, "a measurement begins"));
        }
        SW_TRY(time_class(b, &classes[k % n], k / n, ranks));
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

/* Exchanges at which ranks that compute the same meet: each waits for the slowest. Stages of a
 * pipeline have none. */
static int64_t count_meetings(const struct sw_program *program)
{
    int64_t n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const enum sw_verb verb = program->instrs[i].verb;
        n += verb >= SW_VERB_REDUCE && verb != SW_VERB_MERGE && verb != SW_VERB_SEND &&
             verb != SW_VERB_RECV && program->instrs[i].exchange.batch > 0;
    }
    return n;
}

/* Seconds that ranks compute between two meetings; 0 = they do not meet. */
static double seconds_between(const struct bench *b, const struct class *classes, int32_t (*of)[2],
                              const struct sw_machine_rates *given)
{
    const struct sw_program *program = &b->plan->programs[0];
    const int64_t n = count_meetings(program);
    double sum = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        sum += is_wanted(b, i, given) ? mean_of(classes[of[i][1]].samples, PASSES) : 0;
    }
    return n > 0 ? sum / (double)n : 0;
}

/* Seconds of launches first .. end - 1 on the slowest rank; 0 = one of them has not that many. at:
 * of the first launch on rank 0 */
static double slowest(const struct sw_launches *g, size_t at, int first, int end)
{
    double most = 0;
    for (int r = 0; r < g->ranks; r++) {
        const double *launches = g->seconds + (size_t)r * g->stride + at;
        double sum = 0;
        for (int k = first; k < end; k++) {
            if (launches[k] <= 0) {
                return 0;
            }
            sum += launches[k];
        }
        most = fmax(most, sum);
    }
    return most;
}

double sw_launches_mean(const struct sw_launches *g, size_t at, int each)
{
    double sum = 0, one;
    int n = 0;
    for (; n + each <= MOST_SAMPLES && (one = slowest(g, at, n, n + each)) > 0; n += each) {
        sum += one;
    }
    return n > 0 ? sum / n : each > 1 ? sw_launches_mean(g, at, each - 1) : 0;
}

/* Agrees on the times of all ranks: those of the slowest if ranks meet, else the mean. */
static sw_status agree(const struct bench *b, sw_comm *meet, const struct sw_machine_rates *given,
                       struct class *classes, int n, int32_t (*of)[2])
{
    const size_t passes = (size_t)n * PASSES, stride = passes * (MOST_SAMPLES + 1);
    struct sw_launches g = {.stride = stride, .ranks = sw_comm_size(meet)};
    double *all = sw_alloc("run", (size_t)g.ranks * stride * sizeof *all);
    SW_TRY_ALLOC(all, "measurements of all ranks");
    g.seconds = all;
    for (size_t i = 0; i < passes; i++) { /* after the launches */
        classes[0].launches[passes * MOST_SAMPLES + i] = classes[i / PASSES].samples[i % PASSES];
    }
    const sw_status st = sw_comm_all_gather(meet, classes[0].launches, all, stride * sizeof *all,
                                            "measurements of all ranks");
    for (size_t i = 0; i < passes && st >= 0; i++) {
        double sum = 0;
        for (int r = 0; r < g.ranks; r++) {
            sum += all[(size_t)r * stride + passes * MOST_SAMPLES + i];
        }
        classes[i / PASSES].samples[i % PASSES] = sum / g.ranks;
    }
    const double between = st < 0 ? 0 : seconds_between(b, classes, of, given);
    for (size_t i = 0; i < passes && between > 0; i++) {
        double *seconds = &classes[i / PASSES].samples[i % PASSES];
        const int each = (int)fmax(1, fmin(MOST_SAMPLES, between / *seconds));
        const double met = sw_launches_mean(&g, i * MOST_SAMPLES, each);
        *seconds = met > 0 ? met : *seconds;
    }
    sw_free(all);
    return st;
}

/* Memory for the launches of all classes, and a time of each pass; NULL = there is none. */
static double *make_launches(struct class *classes, int n)
{
    double *launches =
        sw_alloc_zero("run", (size_t)n * PASSES * (MOST_SAMPLES + 1) + 1, sizeof *launches);
    for (int k = 0; k < n && launches; k++) {
        classes[k].launches = launches + (size_t)k * PASSES * MOST_SAMPLES;
    }
    return launches;
}

sw_status sw_measure_kernels(const struct sw_plan *plan, enum sw_queue queue, struct sw_device *dev,
                             sw_comm *meet, const struct sw_machine_rates *given,
                             struct sw_cost (*out)[2])
{
    const int32_t n_instrs = plan->programs[0].n_instrs;
    struct class *classes = sw_alloc_zero("run", 2 * (size_t)n_instrs + 1, sizeof *classes);
    int32_t(*of)[2] = sw_alloc_zero("run", (size_t)n_instrs + 1, sizeof *of);
    struct bench b = {.plan = plan, .queue = queue, .dev = dev};
    sw_status st = classes && of ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory to measure");
    const int n = st < 0 ? 0 : classify(&b, given, classes, of);
    double *launches = make_launches(classes, n);
    st = st < 0 || launches ? st : SW_FAIL(SW_E_NOMEM, "out of host memory to measure");
    if (n > 0 && st >= 0) {
        st = dev ? open_bench(classes, n, &b)
                 : SW_FAIL(SW_E_ARG, "the plan has kernels of the host and no device to measure "
                                     "them on");
        st = st < 0 ? st : time_all(&b, meet, classes, n);
        st = st < 0 || !meet ? st : agree(&b, meet, given, classes, n, of);
    }
    if (n > 0 && launches && dev) {
        close_bench(&b);
    }
    sw_free(launches);
    for (int32_t i = 0; i < n_instrs && st >= 0; i++) {
        for (int later = 0; later < 2 && is_wanted(&b, i, given); later++) {
            const struct class *class = &classes[of[i][later]];
            out[i][later] =
                (struct sw_cost){.seconds = mean_of(class->samples, PASSES), .cores = class->cores};
        }
    }
    sw_free(classes);
    sw_free(of);
    return st;
}

/* ---- kernels beside other work ---- */

static bool takes_integers(const struct launch *l)
{
    bool takes = false;
    for (int k = 0; k < l->instr->n_in + l->instr->n_out; k++) {
        takes |= l->place.cluster[k] >= 0 && !is_number(view_of(&l->desc, l->instr, k)->dtype);
    }
    return takes;
}

/* launches: [n] all 0; the caller releases their kernels */
static sw_status run_until(struct bench *b, const struct class *classes, struct launch *launches,
                           int n, sw_comm *meet, const atomic_bool *stop)
{
    double seconds;
    for (int k = 0; k < n; k++) {
        describe_launch(b, &classes[k], &launches[k]);
        SW_TRY(takes_integers(&launches[k])
                   ? SW_OK
                   : sw_device_prepare(b->dev, &launches[k].desc, &launches[k].kernel));
    }
    SW_TRY(sw_comm_barrier(meet, "a measurement begins"));
    for (int k = 0; n > 0 && !atomic_load(stop); k = (k + 1) % n) {
        SW_TRY(launches[k].kernel ? launch(b, &launches[k], &seconds) : SW_OK);
    }
    return SW_OK;
}

sw_status sw_run_kernels(const struct sw_plan *plan, struct sw_device *dev, sw_comm *meet,
                         const struct sw_machine_rates *given, const atomic_bool *stop)
{
    const size_t room = 2 * (size_t)plan->programs[0].n_instrs + 1;
    struct class *classes = sw_alloc_zero("run", room, sizeof *classes);
    struct launch *launches = sw_alloc_zero("run", room, sizeof *launches);
    int32_t(*of)[2] = sw_alloc_zero("run", room, sizeof *of);
    struct bench b = {.plan = plan, .queue = SW_QUEUE_COMPUTE, .dev = dev};
    sw_status st =
        classes && launches && of ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory to measure");
    const int n = st < 0 ? 0 : classify(&b, given, classes, of);
    st = st < 0 || n == 0 ? st : open_bench(classes, n, &b);
    st = st < 0 ? st : run_until(&b, classes, launches, n, meet, stop);
    for (int k = 0; k < n; k++) {
        if (launches[k].kernel) {
            dev->ops->release(dev, launches[k].kernel);
        }
    }
    if (n > 0) {
        close_bench(&b);
    }
    sw_free(launches);
    sw_free(classes);
    sw_free(of);
    return st;
}
