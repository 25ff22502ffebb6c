// SPDX-License-Identifier: Apache-2.0
// Reports the costs of each module, in the words and the order of DeepSpeed's flops profiler.
// Modules come from the scopes of forward instructions and from the names of parameters. Operations
// are those of the plan; times were measured by the caller.
#include <stdio.h>
#include <string.h>

#include "show/show.h"

/* A module and its subtree. */
struct module {
    const char *name; /* its own name, without a NUL */
    size_t name_len;
    int32_t parent, first, last, next; /* children form a list; -1 = none */
    int depth;
    int64_t params, macs, flops, ns;
};

struct tree {
    struct module *modules; /* [n] the first is the model; children come after their parents */
    int32_t n, cap;
};

/* Appends a module to the children of `parent`. -1 = out of memory */
static int32_t add_module(struct tree *t, int32_t parent, const char *name, size_t len)
{
    if (t->n == t->cap) {
        const int32_t cap = t->cap ? 2 * t->cap : 64;
        struct module *modules = sw_realloc("plan", t->modules, (size_t)cap * sizeof *t->modules);
        if (!modules) {
            return -1;
        }
        t->modules = modules;
        t->cap = cap;
    }
    struct module *m = &t->modules[t->n];
    *m = (struct module){.name = name,
                         .name_len = len,
                         .parent = parent,
                         .first = -1,
                         .last = -1,
                         .next = -1,
                         .depth = parent < 0 ? 0 : t->modules[parent].depth + 1};
    if (parent >= 0) {
        struct module *p = &t->modules[parent];
        *(p->last < 0 ? &p->first : &t->modules[p->last].next) = t->n;
        p->last = t->n;
    }
    return t->n++;
}

/* The module of a dotted path of `len` characters, which is created if new; -1 = out of memory. */
static int32_t module_of(struct tree *t, const char *path, size_t len)
{
    int32_t at = 0;
    while (len > 0 && at >= 0) {
        const char *dot = memchr(path, '.', len);
        const size_t part = dot ? (size_t)(dot - path) : len;
        int32_t child = t->modules[at].last; /* usually it is the latest child */
        if (child < 0 || t->modules[child].name_len != part ||
            memcmp(t->modules[child].name, path, part) != 0) {
            child = t->modules[at].first;
        }
        while (child >= 0 && (t->modules[child].name_len != part ||
                              memcmp(t->modules[child].name, path, part) != 0)) {
            child = t->modules[child].next;
        }
        at = child >= 0 ? child : add_module(t, at, path, part);
        path += part + (dot != NULL);
        len -= part + (dot != NULL);
    }
    return at;
}

/* Adds to a module and to all modules above it. */
static void count(struct tree *t, int32_t at, const struct module *more)
{
    for (; at >= 0; at = t->modules[at].parent) {
        struct module *m = &t->modules[at];
        m->params += more->params;
        m->macs += more->macs;
        m->flops += more->flops;
        m->ns += more->ns;
    }
}

/* Adds up parameters and forward kernels by module. The modules come from their names. */
static sw_status grow_tree(const struct sw_plan *plan, const struct sw_module_profile *o,
                           struct tree *t)
{
    const struct sw_program *program = &plan->programs[o->program];
    int32_t at = add_module(t, -1, o->model, strlen(o->model));
    for (int32_t i = 0; i < plan->n_persistent && at >= 0; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        const char *end = strrchr(item->name, '.');
        if (item->role == SW_ROLE_PARAM) {
            const struct module more = {.params = sw_shape_elems(&item->layout.whole)};
            at = module_of(t, item->name, end ? (size_t)(end - item->name) : 0);
            count(t, at, &more);
        }
    }
    for (int32_t i = 0; i < program->segment_first[SW_SEGMENT_BACKWARD] && at >= 0; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        if (instr->verb == SW_VERB_KERNEL) {
            const bool products = sw_kind_has(sw_instr_op(program, i).math.kind, SW_TRAIT_PRODUCTS);
            const int64_t flops = instr->flops / program->micro_batches;
            const struct module more = {.macs = products ? flops / 2 : 0,
                                        .flops = flops,
                                        .ns = o->ns ? o->ns[i] / o->runs : 0};
            at = module_of(t, instr->about->scope, strlen(instr->about->scope));
            count(t, at, &more);
        }
    }
    return at >= 0 ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a profile");
}

/* ---- numbers ---- */

/* A number with two decimals, a prefix and a unit, such as "12.30 GFLOPs". */
static const char *number_text(double value, const char *unit, char buf[48])
{
    static const struct {
        double from;
        const char *name;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}, {0, ""}};
    size_t i = 0;
    while (value < units[i].from) {
        i++;
    }
    const bool bare = !*units[i].name && !*unit;
    snprintf(buf, 48, bare ? "%.0f" : "%.2f %s%s", value / (units[i].from > 0 ? units[i].from : 1),
             units[i].name, unit);
    return buf;
}

static const char *time_text(double seconds, char buf[48])
{
    if (seconds >= 1) {
        snprintf(buf, 48, "%.2f s", seconds);
    } else if (seconds >= 1e-3) {
        snprintf(buf, 48, "%.2f ms", seconds * 1e3);
    } else {
        snprintf(buf, 48, "%.2f us", seconds * 1e6);
    }
    return buf;
}

static double over(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* ---- summary ---- */

static void put_line(struct sw_str *out, const char *what, const char *value)
{
    sw_str_printf(out, "%-70s  %s\n", what, value);
}

static void put_count(struct sw_str *out, const char *what, int64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)n);
    put_line(out, what, text);
}

static void put_rate(struct sw_str *out, const char *before, double factor, const char *behind,
                     double rate)
{
    char what[128], text[48];
    snprintf(what, sizeof what, "%s%g * fwd flops per GPU / %s: ", before, factor, behind);
    put_line(out, what, number_text(rate, "FLOPS", text));
}

static void put_summary(const struct sw_module_profile *o, const struct module *model,
                        struct sw_str *out)
{
    char text[48];
    const double flops = (double)model->flops, bwd = 2 + o->recompute_fwd_factor;
    const double iter_s = o->forward_s + o->backward_s + o->update_s;
    sw_str_printf(out,
                  "\n-------------------------- Flops Profiler --------------------------\n"
                  "Profile Summary at step %lld:\n"
                  "of one micro-batch of one rank; latency is of a step, in which times were not "
                  "taken instruction by instruction where there is one\n",
                  (long long)o->step);
    put_count(out, "world size: ", o->ranks);
    put_count(out, "data parallel size: ", o->ranks);
    put_count(out, "model parallel size: ", 1);
    put_count(out, "batch size per GPU: ", o->batch);
    put_line(out, "params per GPU: ", number_text((double)model->params, "", text));
    put_line(out, "fwd MACs per GPU: ", number_text((double)model->macs, "MACs", text));
    put_line(out, "fwd flops per GPU: ", number_text(flops, "", text));
    put_line(out, "fwd latency: ", time_text(o->forward_s, text));
    put_line(out, "fwd FLOPS per GPU = fwd flops per GPU / fwd latency: ",
             number_text(over(flops, o->forward_s), "FLOPS", text));
    put_line(out, "bwd latency: ", time_text(o->backward_s, text));
    put_rate(out, "bwd FLOPS per GPU = ", bwd, "bwd latency", over(bwd * flops, o->backward_s));
    put_rate(out, "fwd+bwd FLOPS per GPU = ", bwd + 1, "(fwd+bwd latency)",
             over((bwd + 1) * flops, o->forward_s + o->backward_s));
    put_line(out, "step latency: ", time_text(o->update_s, text));
    put_line(out, "iter latency: ", time_text(iter_s, text));
    put_rate(out, "FLOPS per GPU = ", bwd + 1, "iter latency", over((bwd + 1) * flops, iter_s));
    snprintf(text, sizeof text, "%.2f", over((double)(o->batch * o->ranks), iter_s));
    put_line(out, "samples/second: ", text);
}

/* ---- the largest modules of each depth ---- */

/* Elements of a list ("0", "1", ..) are alike, and are named after the list. */
static bool is_index(const struct module *m)
{
    bool digits = m->name_len > 0;
    for (size_t i = 0; i < m->name_len; i++) {
        digits = digits && m->name[i] >= '0' && m->name[i] <= '9';
    }
    return digits;
}

static void put_kind(const struct tree *t, const struct module *m, struct sw_str *out)
{
    const bool index = is_index(m) && m->parent >= 0;
    const struct module *named = index ? &t->modules[m->parent] : m;
    sw_str_printf(out, "%.*s%s", (int)named->name_len, named->name, index ? ".N" : "");
}

/* True if both have the same name. The name of a list's element is that of the list. */
static bool same_kind(const struct tree *t, const struct module *a, const struct module *b)
{
    const bool index = is_index(a) && a->parent >= 0;
    if (index != (is_index(b) && b->parent >= 0)) {
        return false;
    }
    const struct module *x = index ? &t->modules[a->parent] : a;
    const struct module *y = index ? &t->modules[b->parent] : b;
    return x->name_len == y->name_len && memcmp(x->name, y->name, x->name_len) == 0;
}

enum { BY_PARAMS, BY_MACS, BY_TIME };

static int64_t measure_of(const struct module *m, int by)
{
    return by == BY_PARAMS ? m->params : by == BY_MACS ? m->macs : m->ns;
}

/* Sums modules of one depth by kind. kinds: [n] the first module of each kind, with the sums. */
static int32_t sum_kinds(const struct tree *t, int depth, struct module *kinds)
{
    int32_t n = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const struct module *m = &t->modules[i];
        int32_t k = 0;
        if (m->depth != depth) {
            continue;
        }
        while (k < n && !same_kind(t, &kinds[k], m)) {
            k++;
        }
        if (k == n) {
            kinds[n++] = *m;
        } else {
            kinds[k].params += m->params;
            kinds[k].macs += m->macs;
            kinds[k].ns += m->ns;
        }
    }
    return n;
}

/* Prints the largest kinds by one measure, at most `most` of them. */
static void put_top(const struct tree *t, const struct module *kinds, int32_t n, int64_t most,
                    int by, struct sw_str *out)
{
    static const char *const names[] = {"params     ", "MACs       ", "fwd latency"};
    int64_t below = INT64_MAX;
    int32_t shown = 0, below_i = -1;
    sw_str_printf(out, "    %s - {", names[by]);
    while (shown < most && shown < n) { /* the largest one after the previous one */
        int32_t best = -1;
        for (int32_t k = 0; k < n; k++) {
            const int64_t value = measure_of(&kinds[k], by);
            const bool later = value < below || (value == below && k > below_i);
            if (later && (best < 0 || value > measure_of(&kinds[best], by))) {
                best = k;
            }
        }
        char text[48];
        below = measure_of(&kinds[best], by);
        below_i = best;
        sw_str_puts(out, shown++ ? ", '" : "'");
        put_kind(t, &kinds[best], out);
        sw_str_printf(out, "': '%s'",
                      by == BY_TIME
                          ? time_text((double)below * 1e-9, text)
                          : number_text((double)below, by == BY_MACS ? "MACs" : "", text));
    }
    sw_str_puts(out, "}\n");
}

static sw_status put_aggregated(const struct tree *t, const struct sw_module_profile *o,
                                struct sw_str *out)
{
    int deepest = 0;
    for (int32_t i = 0; i < t->n; i++) {
        deepest = t->modules[i].depth > deepest ? t->modules[i].depth : deepest;
    }
    const int64_t depths =
        o->module_depth < 0 ? deepest + 1 : sw_min_i64(o->module_depth, deepest + 1);
    struct module *kinds = sw_alloc("plan", (size_t)t->n * sizeof *kinds);
    SW_TRY_ALLOC(kinds, "a profile");
    sw_str_printf(out,
                  "\n----------------------------- Aggregated Profile per GPU "
                  "-----------------------------\n"
                  "Top %lld modules in terms of params, MACs or fwd latency at different model "
                  "depths:\n",
                  (long long)o->top_modules);
    for (int d = 0; d < depths; d++) {
        const int32_t n = sum_kinds(t, d, kinds);
        sw_str_printf(out, "depth %d:\n", d);
        for (int by = BY_PARAMS; by <= BY_TIME; by++) {
            put_top(t, kinds, n, o->top_modules, by, out);
        }
    }
    sw_free(kinds);
    return SW_OK;
}

/* ---- tree ---- */

/* Prints a module, and its children below it. */
static void put_module(const struct tree *t, int32_t i, struct sw_str *out)
{
    const struct module *m = &t->modules[i], *model = &t->modules[0];
    const double s = (double)m->ns * 1e-9;
    char params[48], macs[48], time[48], rate[48];
    sw_str_printf(out, "%*s", 2 * m->depth, "");
    sw_str_printf(out, i > 0 ? "(%.*s): " : "%.*s: ", (int)m->name_len, m->name);
    sw_str_printf(out, "%s = %.4g%% Params, %s = %.4g%% MACs, %s = %.4g%% latency, %s\n",
                  number_text((double)m->params, "", params),
                  100 * over((double)m->params, (double)model->params),
                  number_text((double)m->macs, "MACs", macs),
                  100 * over((double)m->macs, (double)model->macs), time_text(s, time),
                  100 * over((double)m->ns, (double)model->ns),
                  number_text(over((double)m->flops, s), "FLOPS", rate));
    for (int32_t child = m->first; child >= 0; child = t->modules[child].next) {
        put_module(t, child, out);
    }
}

sw_status sw_plan_profile(const struct sw_plan *plan, const struct sw_module_profile *profile,
                          struct sw_str *out)
{
    struct tree t = {0};
    sw_status st = grow_tree(plan, profile, &t);
    if (st >= 0) {
        put_summary(profile, &t.modules[0], out);
        st = put_aggregated(&t, profile, out);
    }
    if (st >= 0 && profile->detailed) {
        sw_str_puts(out, "\n------------------------------ Detailed Profile per GPU "
                         "------------------------------\n"
                         "Each module profile is listed after its name in the following order: \n"
                         "params, percentage of total params, MACs, percentage of total MACs, fwd "
                         "latency, percentage of total fwd latency, fwd FLOPS\n\n");
        put_module(&t, 0, out);
    }
    sw_str_puts(out, "---------------------------------------------------------------------------"
                     "---\n");
    sw_free(t.modules);
    return st < 0        ? st
           : out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a profile")
                         : SW_OK;
}
