// SPDX-License-Identifier: Apache-2.0
// The product: panels of both operands as fp32, PANEL rows by SLAB columns of the result at a time.
#include <math.h>
#include <stdlib.h>

#include "device/gpu/standin/standin.h"

enum { PANEL = 32, SLAB = 4 };

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
}

static const char *at(enum sw_dtype dtype, const void *x, int64_t i)
{
    return (const char *)x + i * (int64_t)sw_dtype_bytes(dtype);
}

/* Packs into to [k][width]: elements (first + i, kk) of a matrix at i outer + kk inner, with zeros
 * beyond row n. Either outer or inner is 1. line: k or width long. */
static void pack(const struct standin_product *p, const void *x, int64_t outer, int64_t inner,
                 int64_t first, int64_t n, int width, float *line, float *to)
{
    const int64_t left = n - first < width ? n - first : width;
    for (int64_t i = 0; i < p->k * width && left < width; i++) {
        to[i] = 0;
    }
    for (int64_t kk = 0; outer == 1 && kk < p->k; kk++) {
        const int64_t to_k = p->backwards ? p->k - 1 - kk : kk;
        sw_convert(SW_F32, to + to_k * width, p->in, at(p->in, x, first + kk * inner), left);
    }
    for (int64_t i = 0; outer != 1 && i < left; i++) {
        sw_convert(SW_F32, line, p->in, at(p->in, x, (first + i) * outer), p->k);
        for (int64_t kk = 0; kk < p->k; kk++) {
            to[(p->backwards ? p->k - 1 - kk : kk) * width + i] = line[kk];
        }
    }
}

static void multiply(int64_t k, const float *a, const float *b, float sums[SLAB][PANEL])
{
    for (int64_t kk = 0; kk < k; kk++) {
        for (int j = 0; j < SLAB; j++) {
            for (int i = 0; i < PANEL; i++) {
                sums[j][i] += a[kk * PANEL + i] * b[kk * SLAB + j];
            }
        }
    }
}

static void put(const struct standin_product *p, int64_t i, int64_t j, float sums[SLAB][PANEL])
{
    const int64_t rows = p->m - i < PANEL ? p->m - i : PANEL;
    for (int64_t jj = 0; jj < SLAB && j + jj < p->n; jj++) {
        float *column = sums[jj], bias[PANEL];
        if (p->bias) {
            sw_convert(SW_F32, bias, p->out, at(p->out, p->bias, i), rows);
        }
        for (int64_t ii = 0; p->bias && ii < rows; ii++) {
            column[ii] += bias[ii];
        }
        if (p->kept) {
            sw_convert(p->out, (void *)(uintptr_t)at(p->out, p->kept, i + (j + jj) * p->ld_kept),
                       SW_F32, column, rows);
        }
        for (int64_t ii = 0; p->gelu && ii < rows; ii++) {
            column[ii] = gelu(column[ii]);
        }
        sw_convert(p->out, (void *)(uintptr_t)at(p->out, p->d, i + (j + jj) * p->ldd), SW_F32,
                   column, rows);
    }
}

bool standin_run(const struct standin_product *p)
{
    const size_t k = (size_t)p->k, slabs = ((size_t)p->n + SLAB - 1) / SLAB;
    float *a = malloc(k * PANEL * sizeof *a), *b = malloc(slabs * SLAB * k * sizeof *b);
    float *line = malloc(k * sizeof *line);
    const bool good = a && b && line;
    for (size_t s = 0; good && s < slabs; s++) {
        pack(p, p->b, p->tb ? 1 : p->ldb, p->tb ? p->ldb : 1, (int64_t)s * SLAB, p->n, SLAB, line,
             b + s * SLAB * k);
    }
    for (int64_t i = 0; good && i < p->m; i += PANEL) {
        pack(p, p->a, p->ta ? p->lda : 1, p->ta ? 1 : p->lda, i, p->m, PANEL, line, a);
        for (size_t s = 0; s < slabs; s++) {
            float sums[SLAB][PANEL] = {{0}};
            multiply(p->k, a, b + s * SLAB * k, sums);
            put(p, i, (int64_t)s * SLAB, sums);
        }
    }
    free(line);
    free(b);
    free(a);
    return good;
}

static bool aligned(const void *x, enum sw_dtype dtype)
{
    return x && (uintptr_t)x % sw_dtype_bytes(dtype) == 0;
}

const char *standin_problem(const struct standin_product *p)
{
    const bool takes = p->in == SW_F32 ? p->out == SW_F32
                                       : (p->in == SW_BF16 || p->in == SW_F16) &&
                                             (p->out == p->in || p->out == SW_F32);
    return p->m < 1 || p->n < 1 || p->k < 1       ? "an empty matrix"
           : p->lda < (p->ta ? p->k : p->m)       ? "columns of the first operand overlap"
           : p->ldb < (p->tb ? p->n : p->k)       ? "columns of the second operand overlap"
           : p->ldd < p->m                        ? "columns of the result overlap"
           : !takes                               ? "types that do not go together"
           : !aligned(p->a, p->in)                ? "the first operand's address"
           : !aligned(p->b, p->in)                ? "the second operand's address"
           : !aligned(p->d, p->out)               ? "the result's address"
           : p->bias && !aligned(p->bias, p->out) ? "the bias's address"
           : p->kept && !aligned(p->kept, p->out) ? "the address of what is kept"
                                                  : NULL;
}
