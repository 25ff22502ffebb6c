// SPDX-License-Identifier: Apache-2.0
// ADAFACTOR_SUMS, ADAFACTOR_MOMENTS and ADAFACTOR_APPLY, with the reference's bits;
// ref_adafactor.inc has the formulas. Work done once per line, not per element, repeats the
// reference's arithmetic literally.
#include <math.h>
#include <string.h>

#include "device/cpu/fast_streams.h"

enum { PARTS = 64 };                     /* items, each with sums of its own in the workspace */
enum { COLUMNS = 64, COLUMN_ROWS = 32 }; /* columns of one item, and rows that it adds at a time */

struct job {
    const struct cpu_call *call;
    const struct cpu_vector *vector;
    const struct sw_update_op_attrs *of;
    struct cpu_streams streams;
    struct cpu_update update;
    int64_t *words;            /* SUMS: written; otherwise those of the whole tensor */
    int64_t n_rows, n_columns; /* over all matrices */
    float *mean, *square;      /* means of gradients; means of squares if there are no lines */
    float *kept[2];            /* means of rows and columns kept on this rank */
    const float *factors;      /* [n_rows + n_columns] */
    float mean_of_old, mean_of_new, step;
};

/* n_made: number of inputs between states and streams. */
static struct job job_of(const struct cpu_call *call, int n_made)
{
    const struct sw_update_op_attrs *of = &call->desc->op->attrs.update;
    const int last = of->rule.n_states, n_squares = of->matrices > 0 ? 2 : 1;
    const double kept = call->scalars[SW_SCALAR_SQUARES_KEPT];
    struct job job = {.call = call,
                      .vector = call->prepared,
                      .of = of,
                      .update = sw_cpu_update_of(call),
                      .n_rows = of->matrices * of->rows,
                      .n_columns = of->matrices * of->columns,
                      .mean = of->rule.beta1 != 0 ? call->in[last - n_squares] : NULL,
                      .square = of->matrices > 0 ? NULL : call->in[last],
                      .kept = {call->in[last - 1], call->in[last]},
                      .mean_of_old = (float)kept,
                      .mean_of_new = (float)(1 - kept)};
    sw_cpu_streams_of(&job.streams, call, 1 + last + n_made, of->n_elems);
    return job;
}

static void query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    const struct sw_update_op_attrs *of = &desc->op->attrs.update;
    const int lines = of->matrices > 0;
    const int n_made = desc->op->kind == SW_OP_ADAFACTOR_SUMS      ? 0
                       : desc->op->kind == SW_OP_ADAFACTOR_MOMENTS ? 1
                                                                   : 2 + lines;
    out->supported = cpu_is_fast_float(desc->in[0].dtype) &&
                     sw_cpu_takes_streams(desc, 1 + of->rule.n_states + n_made);
    out->workspace_bytes = desc->op->kind == SW_OP_ADAFACTOR_APPLY
                               ? 0
                               : (size_t)PARTS * SW_STATS_WORDS * sizeof(int64_t);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void load_masters(const struct cpu_update *u, int64_t first, int64_t n, float *w)
{
    if (u->dtype != SW_BF16) {
        memcpy(w, (const float *)(u->dtype == SW_F16 ? u->master : u->param) + first,
               (size_t)n * sizeof *w);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        w[i] = sw_master_join(((const uint16_t *)u->param)[first + i],
                              ((const int16_t *)u->master)[first + i]);
    }
}

static void store_masters(const struct cpu_update *u, int64_t first, int64_t n, const float *w)
{
    if (u->dtype != SW_BF16) {
        memcpy((float *)(u->dtype == SW_F16 ? u->master : u->param) + first, w,
               (size_t)n * sizeof *w);
    }
    for (int64_t i = 0; i < n && u->dtype == SW_F16; i++) {
        ((uint16_t *)u->param)[first + i] = sw_f32_to_f16(w[i]);
    }
    for (int64_t i = 0; i < n && u->dtype == SW_BF16; i++) {
        sw_master_split(w[i], &((uint16_t *)u->param)[first + i],
                        &((int16_t *)u->master)[first + i]);
    }
}

/* Loads gradients of at most CPU_STREAM_ELEMS elements. */
static void load_gradients(const struct job *job, int64_t first, int64_t n, float *g)
{
    float buffer[CPU_STREAM_ELEMS];
    const float *sum = sw_cpu_streams_sum(job->vector, &job->streams, first, n, buffer);
    for (int64_t i = 0; i < n; i++) {
        g[i] = sum[i] * job->update.factor;
    }
}

/* ---- ADAFACTOR_SUMS: param, states.., streams.. -> words ---- */

/* Adds elements that lie in one row; line: the row's sum, or NULL. */
static void add_part(const struct job *job, int64_t first, int64_t n, int64_t *head, int64_t *line)
{
    float g[CPU_STREAM_ELEMS], w[CPU_STREAM_ELEMS];
    load_gradients(job, first, n, g);
    load_masters(&job->update, first, n, w);
    for (int64_t i = 0; i < n;) {
        const int64_t run = SW_SQUARES_RUN - (first + i) % SW_SQUARES_RUN;
        const int64_t end = sw_min_i64(n, i + run);
        double of_w = 0, of_g = 0;
        for (; i < end; i++) {
            of_w += (double)w[i] * (double)w[i];
            of_g += (double)g[i] * (double)g[i];
        }
        sw_exact_add_squares(head, &head[SW_EXACT_WORDS], of_w);
        if (line) {
            sw_exact_add_squares(line, &head[SW_EXACT_WORDS + 1], of_g);
        }
    }
}

static void rows_item(void *ctx, int64_t i_part, int i_worker)
{
    const struct job *job = ctx;
    const struct sw_update_op_attrs *of = job->of;
    int64_t *head = (int64_t *)job->call->workspace + i_part * SW_STATS_WORDS;
    const int64_t width = of->matrices > 0 ? of->columns : CPU_STREAM_ELEMS;
    const int64_t first = of->origin / width;
    const int64_t n_rows = of->n_elems > 0 ? (of->origin + of->n_elems - 1) / width + 1 - first : 0;
    (void)i_worker;
    memset(head, 0, SW_STATS_WORDS * sizeof *head);
    for (int64_t r = first + n_rows * i_part / PARTS; r < first + n_rows * (i_part + 1) / PARTS;
         r++) {
        int64_t *line = of->matrices > 0 ? job->words + SW_STATS_WORDS + r * SW_LINE_WORDS : NULL;
        const int64_t end = sw_min_i64((r + 1) * width - of->origin, of->n_elems);
        for (int64_t e = sw_max_i64(r * width - of->origin, 0); e < end;) {
            /* whole runs, so that the next part begins with one */
            const int64_t n = sw_min_i64(CPU_STREAM_ELEMS - e % SW_SQUARES_RUN, end - e);
            add_part(job, e, n, head, line);
            e += n;
        }
        if (line) {
            sw_exact_carry(line);
        }
    }
}

/* Exact sums of squares of some rows of some columns, in doubles. Each square is split at two
 * places below the largest of its column. The parts of all rows are then multiples of one power of
 * two, and few enough to add without error. The remainder of the smallest squares goes into the
 * accumulator. */
struct columns {
    int64_t n; /* number of columns */
    float g[COLUMN_ROWS][COLUMNS];
    double cut[2][COLUMNS]; /* adding and subtracting it rounds to that place */
    double sum[2][COLUMNS];
    double left[COLUMNS]; /* remainders of one row */
};

static void find_cuts(struct columns *b, int64_t n_rows)
{
    /* extra bits of a sum of COLUMN_ROWS parts, and one bit for the rounding */
    enum { MORE = 7 };
    for (int64_t c = 0; c < b->n; c++) {
        float most = 0x1p-140f;
        for (int64_t r = 0; r < n_rows; r++) {
            const float size = fabsf(b->g[r][c]);
            const bool good = size <= 0x1.fffffep127f; /* the rows have counted the bad elements */
            b->g[r][c] = good ? b->g[r][c] : 0;
            most = good && size > most ? size : most;
        }
        const int place = 2 * ilogbf(most) + 2 + MORE;
        b->cut[0][c] = ldexp(1.5, place);
        b->cut[1][c] = ldexp(1.5, place - 53 + MORE);
        b->sum[0][c] = b->sum[1][c] = 0;
    }
}

static void add_columns(struct columns *b, int64_t n_rows, int64_t *lines)
{
    find_cuts(b, n_rows);
    for (int64_t r = 0; r < n_rows; r++) {
        bool is_left = false;
        for (int64_t c = 0; c < b->n; c++) {
            const double x = (double)b->g[r][c] * (double)b->g[r][c];
            const double high = (x + b->cut[0][c]) - b->cut[0][c], rest = x - high;
            const double low = (rest + b->cut[1][c]) - b->cut[1][c];
            b->sum[0][c] += high;
            b->sum[1][c] += low;
            b->left[c] = rest - low;
            is_left |= b->left[c] != 0;
        }
        for (int64_t c = 0; is_left && c < b->n; c++) {
            sw_exact_add(lines + c * SW_LINE_WORDS, b->left[c]);
        }
    }
    for (int64_t c = 0; c < b->n; c++) {
        sw_exact_add(lines + c * SW_LINE_WORDS, b->sum[0][c]);
        sw_exact_add(lines + c * SW_LINE_WORDS, b->sum[1][c]);
    }
}

static void columns_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct sw_update_op_attrs *of = job->of;
    const int64_t n_items = sw_ceil_div(of->columns, COLUMNS);
    const int64_t matrix = i_item / n_items, from = i_item % n_items * COLUMNS;
    const int64_t to = sw_min_i64(from + COLUMNS, of->columns);
    int64_t *lines =
        job->words + SW_STATS_WORDS + (job->n_rows + matrix * of->columns + from) * SW_LINE_WORDS;
    struct columns b = {.n = to - from};
    int64_t n_rows = 0;
    (void)i_worker;
    for (int64_t r = sw_max_i64(of->origin / of->columns, matrix * of->rows);
         r < (matrix + 1) * of->rows && r * of->columns - of->origin < of->n_elems; r++) {
        const int64_t row = r * of->columns - of->origin;
        const int64_t start = sw_max_i64(row + from, 0), end = sw_min_i64(row + to, of->n_elems);
        memset(b.g[n_rows], 0, sizeof b.g[n_rows]);
        if (start < end) {
            load_gradients(job, start, end - start, b.g[n_rows] + (start - row - from));
        }
        if (++n_rows == COLUMN_ROWS) {
            add_columns(&b, n_rows, lines);
            n_rows = 0;
        }
    }
    add_columns(&b, n_rows, lines);
    for (int64_t c = 0; c < b.n; c++) {
        sw_exact_carry(lines + c * SW_LINE_WORDS);
    }
}

/* Reports the means, before this step, of the lines kept on this rank. */
static void tell(const struct job *job, int k, int64_t *lines, int64_t n_lines)
{
    const struct sw_op_desc *desc = job->call->desc;
    const int64_t here = sw_shape_elems(&desc->in[job->of->rule.n_states - 1 + k].shape);
    const int64_t first = job->of->slice * here;
    for (int64_t i = 0; i < here && first + i < n_lines; i++) {
        const double mean = (double)job->kept[k][i];
        memcpy(&lines[(first + i) * SW_LINE_WORDS + SW_EXACT_WORDS], &mean, sizeof mean);
    }
}

/* Adds up the stats of the parts in the workspace. */
static void add_parts(const struct cpu_call *call, int64_t *stats)
{
    const int64_t *parts = call->workspace;
    memset(stats, 0, SW_STATS_WORDS * sizeof *stats);
    for (int64_t i = 0; i < PARTS * SW_STATS_WORDS; i++) {
        stats[i % SW_STATS_WORDS] += parts[i];
    }
    sw_exact_carry(stats);
}

static void sums_run(const struct cpu_call *call)
{
    struct job job = job_of(call, 0);
    job.words = call->out[0];
    memset(job.words, 0, (size_t)sw_shape_elems(&call->desc->out[0].shape) * sizeof *job.words);
    sw_pool_run(call->pool, PARTS, rows_item, &job);
    add_parts(call, job.words);
    if (job.of->matrices > 0) {
        int64_t *lines = job.words + SW_STATS_WORDS;
        sw_pool_run(call->pool, job.of->matrices * sw_ceil_div(job.of->columns, COLUMNS),
                    columns_item, &job);
        tell(&job, 0, lines, job.n_rows);
        tell(&job, 1, lines + job.n_rows * SW_LINE_WORDS, job.n_columns);
    }
}

const struct cpu_kernel sw_cpu_adafactor_sums = {.name = "fast",
                                                 .query = query,
                                                 .prepare = sw_cpu_prepare_vector,
                                                 .release = sw_cpu_release_nothing,
                                                 .run = sums_run};

/* ---- ADAFACTOR_MOMENTS: param, states.., words, streams.. -> squares.., u^2, factors ---- */

/* Computes new means of n_lines lines of n elements, and stores those kept on this rank. */
static void move_means(const struct job *job, int k, const int64_t *lines, int64_t n_lines,
                       int64_t n, float *means)
{
    const struct sw_op_desc *desc = job->call->desc;
    const int64_t here = sw_shape_elems(&desc->in[job->of->rule.n_states - 1 + k].shape);
    const int64_t first = job->of->slice * here;
    const bool bad = job->words[SW_EXACT_WORDS + 1] > 0;
    for (int64_t i = 0; i < n_lines; i++) {
        const int64_t *line = lines + i * SW_LINE_WORDS;
        double before;
        memcpy(&before, &line[SW_EXACT_WORDS], sizeof before);
        const float mean =
            (float)((bad ? NAN : sw_exact_value(line) / (double)n) + job->of->rule.eps);
        means[i] = job->mean_of_old * (float)before + job->mean_of_new * mean;
        if (i >= first && i < first + here) {
            job->kept[k][i - first] = means[i];
        }
    }
}

static void make_factors(const struct job *job, float *factors)
{
    const struct sw_update_op_attrs *of = job->of;
    const int64_t *lines = job->words + SW_STATS_WORDS;
    float *columns = factors + job->n_rows;
    move_means(job, 0, lines, job->n_rows, of->columns, factors);
    move_means(job, 1, lines + job->n_rows * SW_LINE_WORDS, job->n_columns, of->rows, columns);
    for (int64_t m = 0; m < of->matrices; m++) {
        float *rows = factors + m * of->rows;
        double sum = 0;
        for (int64_t i = 0; i < of->rows; i++) {
            sum += (double)rows[i];
        }
        for (int64_t i = 0; i < of->rows; i++) {
            rows[i] = (float)(1 / sqrt((double)rows[i] / (sum / (double)of->rows)));
        }
    }
    for (int64_t i = 0; i < job->n_columns; i++) {
        columns[i] = (float)(1 / sqrt((double)columns[i]));
    }
}

/* Multiplies the gradients of elements first .. first + n - 1 by their factors. */
static void scale_gradients(const struct job *job, int64_t first, int64_t n, float *g)
{
    const struct sw_update_op_attrs *of = job->of;
    for (int64_t i = 0; i < n && of->matrices == 0; i++) {
        g[i] = g[i] * (1 / sqrtf(job->square[first + i]));
    }
    for (int64_t i = 0; i < n && of->matrices > 0;) {
        const int64_t at = of->origin + first + i, row = at / of->columns, c = at % of->columns;
        const float *columns = job->factors + job->n_rows + row / of->rows * of->columns + c;
        const float of_row = job->factors[row];
        const int64_t here = sw_min_i64(n - i, of->columns - c);
        for (int64_t k = 0; k < here; k++) {
            g[i + k] = g[i + k] * (of_row * columns[k]);
        }
        i += here;
    }
}

static void moments_item(void *ctx, int64_t i_part, int i_worker)
{
    const struct job *job = ctx;
    const int64_t n_items = sw_ceil_div(job->of->n_elems, CPU_STREAM_ELEMS);
    int64_t *norm = (int64_t *)job->call->workspace + i_part * SW_STATS_WORDS;
    const float eps = job->update.eps;
    float g[CPU_STREAM_ELEMS];
    (void)i_worker;
    memset(norm, 0, SW_STATS_WORDS * sizeof *norm);
    for (int64_t i = n_items * i_part / PARTS; i < n_items * (i_part + 1) / PARTS; i++) {
        const int64_t start = i * CPU_STREAM_ELEMS;
        const int64_t n = sw_min_i64(CPU_STREAM_ELEMS, job->of->n_elems - start);
        load_gradients(job, start, n, g);
        for (int64_t e = 0; e < n && job->square; e++) {
            float *square = &job->square[start + e];
            *square = job->mean_of_old * *square + job->mean_of_new * (g[e] * g[e] + eps);
        }
        scale_gradients(job, start, n, g);
        sw_cpu_add_squares(job->vector, norm, g, n);
    }
}

static void moments_run(const struct cpu_call *call)
{
    struct job job = job_of(call, 1);
    const int n_squares = job.of->matrices > 0 ? 2 : 1;
    job.words = call->in[1 + job.of->rule.n_states];
    if (job.of->matrices > 0) {
        make_factors(&job, call->out[n_squares + 1]);
        job.factors = call->out[n_squares + 1];
    }
    sw_pool_run(call->pool, PARTS, moments_item, &job);
    add_parts(call, call->out[n_squares]);
}

const struct cpu_kernel sw_cpu_adafactor_moments = {.name = "fast",
                                                    .query = query,
                                                    .prepare = sw_cpu_prepare_vector,
                                                    .release = sw_cpu_release_nothing,
                                                    .run = moments_run};

/* ---- ADAFACTOR_APPLY: param, states.., words, sum of u^2 [, factors], streams.. ---- */

static void apply_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_update *u = &job->update;
    const int64_t start = i_item * CPU_STREAM_ELEMS;
    const int64_t n = sw_min_i64(CPU_STREAM_ELEMS, job->of->n_elems - start);
    float d[CPU_STREAM_ELEMS], w[CPU_STREAM_ELEMS];
    (void)i_worker;
    load_gradients(job, start, n, d);
    scale_gradients(job, start, n, d);
    load_masters(u, start, n, w);
    for (int64_t e = 0; e < n; e++) {
        d[e] = d[e] * job->step;
    }
    for (int64_t e = 0; e < n && job->mean; e++) {
        d[e] = u->beta1 * job->mean[start + e] + u->one_minus_beta1 * d[e];
        job->mean[start + e] = d[e];
    }
    for (int64_t e = 0; e < n && u->attrs->weight_decay != 0; e++) {
        w[e] = w[e] * u->decay;
    }
    for (int64_t e = 0; e < n; e++) {
        w[e] = w[e] - d[e];
    }
    store_masters(u, start, n, w);
}

static void apply_run(const struct cpu_call *call)
{
    const struct sw_update_op_attrs *of = &call->desc->op->attrs.update;
    struct job job = job_of(call, of->matrices > 0 ? 3 : 2);
    void *const *made = call->in + 1 + of->rule.n_states;
    const struct cpu_adafactor_step step =
        sw_cpu_adafactor_step(of, call->scalars, made[0], made[1]);
    job.factors = of->matrices > 0 ? made[2] : NULL;
    job.step = (float)step.size;
    job.update.decay = (float)(1 - step.lr * of->rule.weight_decay);
    sw_pool_run(call->pool, sw_ceil_div(of->n_elems, CPU_STREAM_ELEMS), apply_item, &job);
}

const struct cpu_kernel sw_cpu_adafactor_apply = {.name = "fast",
                                                  .query = query,
                                                  .prepare = sw_cpu_prepare_vector,
                                                  .release = sw_cpu_release_nothing,
                                                  .run = apply_run};
