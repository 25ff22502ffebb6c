// SPDX-License-Identifier: Apache-2.0
// Losses of preferences between the rows of a micro-batch, in double and in row order
// (graph/op.h, struct sw_preference_attrs).
#include "device/gpu/module/registry.h"

enum { THREADS = 256 };
/* Kinds of losses, in the order of enum sw_preference_kind, and places in the totals. */
enum { SIGMOID, IPO, ORPO, KTO, REWARD, LINEAR };
enum {
    CHOSEN,
    REJECTED = 2,
    RIGHT = 4,
    LOGPS_CHOSEN = 6,
    LOGPS_REJECTED = 8,
    MORE = 10,
    ODDS = 12,
    TOTALS = 14
};

SW_DEVICE double log_sigmoid(double x)
{
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

SW_DEVICE double sigmoid_of(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

SW_KERNEL(THREADS) void preference_values(struct gpu_preference_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t r = first_element(); r < args.rows; r += grid_threads()) {
        double sum = 0, count = 0;
        for (int64_t t = r * args.width; t < (r + 1) * args.width; t++) {
            sum -= args.counts[t] > 0 ? (double)args.x[t] : 0;
            count += args.counts[t] > 0 ? 1 : 0;
        }
        args.value[r] = args.mean && count > 0 ? sum / count : sum;
        args.count[r] = count;
    }
}

/* pi - ref */
SW_DEVICE double gain(const struct gpu_preference_args &p, int64_t row)
{
    return p.value[row] - (p.reference ? (double)p.reference[row] : 0);
}

struct pair_loss {
    double loss, d_chosen, d_rejected, more, odds;
};

SW_DEVICE struct pair_loss loss_of_pair(const struct gpu_preference_args &p, double chosen,
                                        double rejected)
{
    const double d = chosen - rejected, e = p.smoothing;
    struct pair_loss out = {0, 0, 0, 0, 0};
    if (p.kind == ORPO) {
        out.odds = d - log(-expm1(chosen)) + log(-expm1(rejected));
        out.more = log_sigmoid(out.odds);
        out.loss = -chosen - p.beta * out.more;
        out.d_chosen = -1 + p.beta * sigmoid_of(-out.odds) / expm1(chosen);
        out.d_rejected = -p.beta * sigmoid_of(-out.odds) / expm1(rejected);
        return out;
    }
    if (p.kind == LINEAR) {
        out.loss = -chosen - rejected;
        out.d_chosen = out.d_rejected = -1;
        return out;
    }
    if (p.kind == IPO) {
        out.loss = (d - 1 / (2 * p.beta)) * (d - 1 / (2 * p.beta));
        out.d_chosen = 2 * (d - 1 / (2 * p.beta));
    } else {
        out.loss = -(1 - e) * log_sigmoid(p.beta * d) - e * log_sigmoid(-p.beta * d);
        out.d_chosen = p.beta * (e * sigmoid_of(p.beta * d) - (1 - e) * sigmoid_of(-p.beta * d));
    }
    out.d_rejected = -out.d_chosen;
    return out;
}

/* KTO's z. */
SW_DEVICE double shift_of(const struct gpu_preference_args &p)
{
    double sum = 0, n = 0;
    for (int64_t r = 0; r < p.rows; r++) {
        if (p.kinds[r] == 2 && p.count[r] > 0) {
            sum += gain(p, r);
            n += 1;
        }
    }
    return n > 0 && sum > 0 ? sum / n : 0;
}

SW_DEVICE double loss_of_row(const struct gpu_preference_args &p, int64_t row, double z,
                             double *derivative)
{
    const double sign = p.kinds[row] == 1 ? 1 : -1;
    const double weight = sign > 0 ? p.desirable : p.undesirable;
    const double s = sigmoid_of(sign * p.beta * (gain(p, row) - z));
    *derivative = -sign * weight * p.beta * s * (1 - s);
    return weight * (1 - s);
}

SW_DEVICE void count_in(double *total, double x)
{
    total[0] += x;
    total[1] += 1;
}

SW_KERNEL(THREADS) void preference(struct gpu_preference_args args)
{
    if (skipped(args.skip) || thread_index() != 0) {
        return;
    }
    double out[2] = {0, 0}, totals[TOTALS], ignored;
    for (int k = 0; k < TOTALS; k++) {
        totals[k] = 0;
    }
    const double z = args.kind == KTO ? shift_of(args) : 0;
    if (args.kind == KTO) {
        count_in(&totals[MORE], z);
    }
    for (int64_t r = 0; r < args.rows; r++) {
        const bool is_pair = args.kind != KTO && r % 2 == 0 && r + 1 < args.rows;
        if (args.values) {
            args.values[r] = (float)args.value[r];
        }
        if (args.kind == KTO && args.count[r] > 0 && (args.kinds[r] == 0 || args.kinds[r] == 1)) {
            const bool good = args.kinds[r] == 1;
            count_in(out, loss_of_row(args, r, z, &ignored));
            count_in(&totals[good ? CHOSEN : REJECTED], args.beta * gain(args, r));
            count_in(&totals[good ? LOGPS_CHOSEN : LOGPS_REJECTED], args.value[r]);
        } else if (is_pair && args.count[r] > 0 && args.count[r + 1] > 0) {
            const double chosen = gain(args, r), rejected = gain(args, r + 1);
            const struct pair_loss pair = loss_of_pair(args, chosen, rejected);
            count_in(out, pair.loss);
            count_in(&totals[CHOSEN], args.beta * chosen);
            count_in(&totals[REJECTED], args.beta * rejected);
            count_in(&totals[RIGHT], chosen > rejected ? 1 : 0);
            count_in(&totals[LOGPS_CHOSEN], args.value[r]);
            count_in(&totals[LOGPS_REJECTED], args.value[r + 1]);
            count_in(&totals[MORE], pair.more);
            count_in(&totals[ODDS], pair.odds);
        }
    }
    *args.sum = (float)out[0];
    *args.n = (float)out[1];
    for (int k = 0; k < TOTALS && args.totals; k++) {
        args.totals[k] = (float)totals[k];
    }
}

SW_KERNEL(THREADS) void preference_grad(struct gpu_preference_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t r = first_element(); r < args.rows; r += grid_threads()) {
        const int64_t chosen = r - r % 2;
        double d = 0;
        if (args.kind == KTO && args.count[r] > 0 && args.kinds[r] < 2) {
            loss_of_row(args, r, shift_of(args), &d);
        } else if (args.kind != KTO && chosen + 1 < args.rows && args.count[chosen] > 0 &&
                   args.count[chosen + 1] > 0) {
            const struct pair_loss pair =
                loss_of_pair(args, gain(args, chosen), gain(args, chosen + 1));
            d = r == chosen ? pair.d_chosen : pair.d_rejected;
        }
        const double each = -d * (double)*args.dsum / (args.mean ? args.count[r] : 1);
        for (int64_t t = r * args.width; t < (r + 1) * args.width; t++) {
            args.dx[t] = args.counts[t] > 0 && d != 0 ? (float)each : 0.0f;
        }
    }
}

static const struct sw_gpu_kernel rows[] = {SW_PLAIN(preference_values, THREADS),
                                            SW_PLAIN(preference, THREADS),
                                            SW_PLAIN(preference_grad, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_preference = {rows, SW_ROWS(rows)};
