// SPDX-License-Identifier: Apache-2.0
// Position tables without parameters: rotary angles and their extensions, and ALiBi's slopes. They
// are computed in fp32 where transformers does, so that its models give its numbers.
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>

/* Columns that the frequencies are spread over. */
static int64_t columns(const struct sw_rotary_spec *s)
{
    return s->width - s->is_odd;
}

/* Column at which a wave makes `turns` turns over the pretraining context. */
static double yarn_column(const struct sw_rotary_spec *s, double turns)
{
    return (double)columns(s) * log(s->original_tokens / (turns * 2 * M_PI)) / (2 * log(s->theta));
}

/* 0 for kept waves, 1 for stretched ones. */
static float yarn_ramp(const struct sw_rotary_spec *s, int64_t i)
{
    double low = yarn_column(s, s->beta_fast), high = yarn_column(s, s->beta_slow);
    low = fmax(s->keeps_fractions ? low : floor(low), 0);
    high = fmin(s->keeps_fractions ? high : ceil(high), (double)columns(s) - 1);
    high += low == high ? 0.001 : 0;
    return fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0), 1);
}

static float llama3_frequency(const struct sw_rotary_spec *s, float f)
{
    const float wave = (float)(2 * M_PI) / f;
    if (wave < (float)(s->original_tokens / s->high)) {
        return f;
    }
    if (wave > (float)(s->original_tokens / s->low)) {
        return f / (float)s->factor;
    }
    const float smooth =
        ((float)s->original_tokens / wave - (float)s->low) / (float)(s->high - s->low);
    return (1 - smooth) * f / (float)s->factor + smooth * f;
}

/* For rows of more than max_tokens all waves become longer, except the shortest. */
static double dynamic_theta(const struct sw_rotary_spec *s, int64_t tokens)
{
    const double n = (double)columns(s);
    if (!((double)tokens > s->max_tokens)) {
        return s->theta;
    }
    const float longer = (float)s->factor * (float)tokens / (float)s->max_tokens;
    const float grown = powf(longer - (float)(s->factor - 1), (float)(n / (n - 2)));
    return (double)((float)s->theta * grown);
}

void sw_rotary_frequencies(const struct sw_rotary_spec *spec, int64_t tokens, float *out)
{
    const double theta =
        spec->kind == SW_ROTARY_DYNAMIC ? dynamic_theta(spec, tokens) : spec->theta;
    const bool is_long = (double)tokens > spec->original_tokens;
    for (int64_t i = 0; i < spec->width / 2; i++) {
        const float power = (float)pow(theta, (double)((float)(2 * i) / (float)columns(spec)));
        const float f = 1.0F / power;
        switch (spec->kind) {
        case SW_ROTARY_DEFAULT:
        case SW_ROTARY_DYNAMIC:
            out[i] = f;
            break;
        case SW_ROTARY_LINEAR:
            out[i] = f / (float)spec->factor;
            break;
        case SW_ROTARY_LLAMA3:
            out[i] = llama3_frequency(spec, f);
            break;
        case SW_ROTARY_LONGROPE:
            out[i] = 1.0F / (spec->factors[i + (is_long ? spec->width / 2 : 0)] * power);
            break;
        case SW_ROTARY_YARN: {
            const float kept = 1 - yarn_ramp(spec, i);
            out[i] = 1.0F / ((float)spec->factor * power) * (1 - kept) + f * kept;
            break;
        }
        }
    }
}

static bool are_numbers(const float *x, int64_t n)
{
    bool all = true;
    for (int64_t i = 0; i < n; i++) {
        all = all && isfinite(x[i]);
    }
    return all;
}

sw_value sw_rotary_table(sw_graph *g, const char *name, const struct sw_rotary_spec *spec,
                         int64_t rows)
{
    const int64_t half = spec->width / 2;
    float *frequencies = sw_alloc("model", (size_t)half * sizeof *frequencies);
    float *table = sw_alloc("model", (size_t)(rows * spec->width) * sizeof *table);
    sw_value out = SW_NO_VALUE;
    if (!frequencies || !table) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the table of rotary positions");
        goto done;
    }
    const float factor = spec->attention_factor > 0 ? (float)spec->attention_factor : 1;
    sw_rotary_frequencies(spec, rows, frequencies);
    if (!are_numbers(frequencies, half) || !isfinite(factor)) {
        sw_graph_fail(
            g, SW_E_FORMAT,
            "rotary positions: theta %g, factor %g, attention_factor %g: the table would hold "
            "NaN or infinity",
            spec->theta, spec->factor, spec->attention_factor);
        goto done;
    }
    for (int64_t p = 0; p < rows; p++) {
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)((float)p * frequencies[i]);
            table[p * spec->width + i] = (float)cos(angle) * factor;
            table[p * spec->width + half + i] = (float)sin(angle) * factor;
        }
    }
    char full[48]; /* programs of other lengths have their own tables */
    snprintf(full, sizeof full, "%s.%lld", name, (long long)rows);
    out = sw_constant(g, full, SW_F32, SW_SHAPE(rows, spec->width), table);
done:
    sw_free(frequencies);
    sw_free(table);
    return out;
}

sw_value sw_alibi_slopes(sw_graph *g, int64_t heads, bool bf16)
{
    float *slopes = sw_alloc("model", (size_t)heads * sizeof *slopes);
    if (!slopes) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the slopes of ALiBi");
        return SW_NO_VALUE;
    }
    int64_t power = 1;
    while (2 * power <= heads) {
        power *= 2;
    }
    const double base = exp2(-8.0 / (double)power), extra = exp2(-4.0 / (double)power);
    for (int64_t i = 0; i < heads; i++) {
        slopes[i] = (float)(i < power ? pow(base, (double)(i + 1))
                                      : pow(extra, (double)(2 * (i - power) + 1)));
        slopes[i] = bf16 ? sw_bf16_to_f32(sw_f32_to_bf16(slopes[i])) : slopes[i];
    }
    const sw_value out = sw_constant(g, "alibi.slopes", SW_F32, SW_SHAPE(heads), slopes);
    sw_free(slopes);
    return out;
}
