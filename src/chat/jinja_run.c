// SPDX-License-Identifier: Apache-2.0
// Rendering walks the tree. Names are looked up from the innermost scope outwards. Each iteration
// of a loop has its own scope, and so have blocks of `set` and `generation`; `if` has none. The
// scope of a macro call is enclosed by that of the whole template.
#include "chat/jinja_value.h"

#include "text/text.h"

#include <math.h>
#include <string.h>

enum { MOST_TEXT = 16 << 20 };

struct scope {
    struct scope *outer;
    struct jinja_value names, values; /* parallel lists: names, and their values */
};

struct walk {
    struct jinja_run *run;
    struct scope *scope, *outermost;
    bool broken, continued; /* `break` or `continue` of the innermost loop is pending */
    bool is_marked;         /* inside a generation block */
    int depth, blocks;      /* nesting of expressions; nesting of bodies */
};

static sw_status eval(struct walk *w, const struct jinja_node *node, struct jinja_value *out);
static sw_status exec(struct walk *w, const struct jinja_node *node);

/* ---- names ---- */

static sw_status open_scope(struct walk *w, struct scope *scope)
{
    scope->outer = w->scope;
    SW_TRY(sw_jinja_new_list(w->run, &scope->names));
    SW_TRY(sw_jinja_new_list(w->run, &scope->values));
    w->scope = scope;
    return SW_OK;
}

static sw_status assign_name(struct walk *w, const char *name, size_t len,
                             const struct jinja_value *value)
{
    struct jinja_list *names = w->scope->names.list, *values = w->scope->values.list;
    const struct jinja_value key = sw_jinja_string(name, len);
    for (int64_t i = 0; i < names->n; ++i) {
        if (sw_jinja_equal(w->run, &names->items[i], &key)) {
            values->items[i] = *value;
            return SW_OK;
        }
    }
    SW_TRY(sw_jinja_append(w->run, names, &key));
    return sw_jinja_append(w->run, values, value);
}

static struct jinja_value look_up(const struct walk *w, const char *name, size_t len)
{
    const struct jinja_value key = sw_jinja_string(name, len);
    for (const struct scope *scope = w->scope; scope; scope = scope->outer) {
        for (int64_t i = 0; i < scope->names.list->n; ++i) {
            if (sw_jinja_equal(w->run, &scope->names.list->items[i], &key)) {
                return scope->values.list->items[i];
            }
        }
    }
    return sw_jinja_is_function(name, len)
               ? (struct jinja_value){.type = JINJA_V_FUNCTION, .text = name, .len = len}
               : sw_jinja_undefined(name, len);
}

static sw_status assign(struct walk *w, const struct jinja_node *target,
                        const struct jinja_value *value)
{
    w->run->at = target->at;
    if (target->kind == JINJA_NAME) {
        return assign_name(w, target->text, target->len, value);
    }
    if (target->kind == JINJA_ATTR) {
        const struct jinja_node *of = target->kids[0];
        const struct jinja_value space = look_up(w, of->text, of->len);
        const struct jinja_value key = sw_jinja_string(target->text, target->len);
        return space.type == JINJA_V_NAMESPACE
                   ? sw_jinja_put_member(w->run, space.map, &key, value)
                   : sw_jinja_fail(w->run, SW_JINJA_RUNTIME,
                                   "only a namespace can be assigned to, '%.*s' is %s",
                                   (int)of->len, of->text, sw_jinja_type_name(&space));
    }
    struct jinja_value items;
    SW_TRY(sw_jinja_items(w->run, value, &items));
    if (items.list->n != target->n_kids) {
        return sw_jinja_fail(w->run, SW_JINJA_TYPE, "%lld values for %d names",
                             (long long)items.list->n, target->n_kids);
    }
    for (int i = 0; i < target->n_kids; ++i) {
        SW_TRY(assign(w, target->kids[i], &items.list->items[i]));
    }
    return SW_OK;
}

/* ---- members ---- */

static sw_status loop_member(const struct jinja_loop *loop, const char *name, size_t len,
                             struct jinja_value *out)
{
    const int64_t n = loop->over->n, i = loop->index;
    const struct {
        const char *name;
        struct jinja_value value;
    } members[] = {
        {"index", sw_jinja_int(i + 1)},
        {"index0", sw_jinja_int(i)},
        {"revindex", sw_jinja_int(n - i)},
        {"revindex0", sw_jinja_int(n - i - 1)},
        {"first", sw_jinja_bool(i == 0)},
        {"last", sw_jinja_bool(i == n - 1)},
        {"length", sw_jinja_int(n)},
        {"depth", sw_jinja_int(1)}, /* of recursion, which is not built */
        {"depth0", sw_jinja_int(0)},
        {"previtem", i > 0 ? loop->over->items[i - 1] : sw_jinja_undefined(name, len)},
        {"nextitem", i + 1 < n ? loop->over->items[i + 1] : sw_jinja_undefined(name, len)}};
    *out = sw_jinja_undefined(name, len);
    for (size_t k = 0; k < SW_LEN(members); ++k) {
        if (strlen(members[k].name) == len && memcmp(members[k].name, name, len) == 0) {
            *out = members[k].value;
        }
    }
    return SW_OK;
}

static sw_status fail_undefined(struct jinja_run *run, const struct jinja_value *of)
{
    return sw_jinja_fail(run, SW_JINJA_UNDEFINED, "'%.*s' is undefined", (int)of->len, of->text);
}

/* of.name */
static sw_status attr(struct jinja_run *run, const struct jinja_value *of, const char *name,
                      size_t len, struct jinja_value *out)
{
    const struct jinja_value key = sw_jinja_string(name, len);
    const struct jinja_value *found = NULL;
    if (of->type == JINJA_V_UNDEFINED) {
        return fail_undefined(run, of);
    }
    if (len > 0 && name[0] == '_' && of->type != JINJA_V_MAP) {
        return sw_jinja_fail(run, SW_JINJA_SECURITY, "'%.*s' of %s is forbidden", (int)len, name,
                             sw_jinja_type_name(of));
    }
    if (of->type == JINJA_V_LOOP) {
        return loop_member(of->loop, name, len, out);
    }
    if (of->type == JINJA_V_MAP || of->type == JINJA_V_NAMESPACE) {
        found = sw_jinja_get(run, of->map, &key);
    }
    *out = found ? *found : sw_jinja_undefined(name, len);
    return SW_OK;
}

/* The character at an index of a string. */
static struct jinja_value char_at(const struct jinja_value *of, int64_t index)
{
    size_t pos = 0;
    for (int64_t i = 0; pos < of->len; ++i) {
        const size_t at = pos;
        sw_utf8_step(of->text, of->len, &pos);
        if (i == index) {
            return sw_jinja_string(of->text + at, pos - at);
        }
    }
    return sw_jinja_undefined("", 0);
}

sw_status sw_jinja_item(struct jinja_run *run, const struct jinja_value *of,
                        const struct jinja_value *key, struct jinja_value *out)
{
    if (of->type == JINJA_V_UNDEFINED) {
        return fail_undefined(run, of);
    }
    if (of->type == JINJA_V_MAP || of->type == JINJA_V_NAMESPACE) {
        const struct jinja_value *found = sw_jinja_get(run, of->map, key);
        *out = found ? *found
                     : sw_jinja_undefined(key->type == JINJA_V_STRING ? key->text : "",
                                          key->type == JINJA_V_STRING ? key->len : 0);
        return SW_OK;
    }
    *out = sw_jinja_undefined("", 0);
    if (key->type == JINJA_V_STRING) {
        return attr(run, of, key->text, key->len, out);
    }
    if (key->type != JINJA_V_INT && key->type != JINJA_V_BOOL) {
        return SW_OK;
    }
    if (of->type == JINJA_V_LIST) {
        const int64_t i = key->integer < 0 ? key->integer + of->list->n : key->integer;
        *out = i >= 0 && i < of->list->n ? of->list->items[i] : *out;
    } else if (of->type == JINJA_V_STRING) {
        const int64_t n = sw_utf8_count(of->text, of->len);
        *out = char_at(of, key->integer < 0 ? key->integer + n : key->integer);
    }
    return SW_OK;
}

/* Evaluates a bound of a slice, clipped as in Python. */
static sw_status bound(struct walk *w, const struct jinja_node *node, int64_t n, int64_t step,
                       bool is_end, int64_t *out)
{
    struct jinja_value value = {.type = JINJA_V_NONE};
    SW_TRY(node ? eval(w, node, &value) : SW_OK);
    if (value.type == JINJA_V_NONE) {
        *out = step < 0 ? (is_end ? -1 : n - 1) : (is_end ? n : 0);
        return SW_OK;
    }
    if (value.type != JINJA_V_INT && value.type != JINJA_V_BOOL) {
        return sw_jinja_fail(w->run, SW_JINJA_TYPE, "a slice of %s", sw_jinja_type_name(&value));
    }
    int64_t i = value.integer < 0 ? value.integer + n : value.integer;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    i = i < low ? low : i;
    *out = i > high ? high : i;
    return SW_OK;
}

static sw_status slice(struct walk *w, const struct jinja_node *node, const struct jinja_value *of,
                       struct jinja_value *out)
{
    struct jinja_value items, step = sw_jinja_int(1), made;
    int64_t first, end;
    if (of->type == JINJA_V_UNDEFINED) {
        return fail_undefined(w->run, of);
    }
    if (of->type != JINJA_V_LIST && of->type != JINJA_V_STRING) {
        return sw_jinja_fail(w->run, SW_JINJA_TYPE, "a slice of %s", sw_jinja_type_name(of));
    }
    SW_TRY(sw_jinja_items(w->run, of, &items));
    if (node->kids[3]) {
        SW_TRY(eval(w, node->kids[3], &step));
        if (step.type != JINJA_V_INT || step.integer == 0 || step.integer < -MOST_TEXT ||
            step.integer > MOST_TEXT) {
            return sw_jinja_fail(w->run, SW_JINJA_TYPE, "a slice in such steps");
        }
    }
    const int64_t n = items.list->n;
    SW_TRY(bound(w, node->kids[1], n, step.integer, false, &first));
    SW_TRY(bound(w, node->kids[2], n, step.integer, true, &end));
    SW_TRY(sw_jinja_new_list(w->run, &made));
    for (int64_t i = first; step.integer > 0 ? i < end : i > end; i += step.integer) {
        SW_TRY(sw_jinja_append(w->run, made.list, &items.list->items[i]));
    }
    *out = made;
    return of->type == JINJA_V_LIST
               ? SW_OK
               : sw_jinja_filter(w->run, "join", 4, &made, &(struct jinja_arguments){0}, out);
}

/* ---- calls ---- */

static sw_status read_arguments(struct walk *w, const struct jinja_node *node,
                                struct jinja_arguments *out)
{
    *out = (struct jinja_arguments){0};
    for (int i = 1; i < node->n_kids; ++i) {
        const struct jinja_node *kid = node->kids[i];
        const bool named = kid->kind == JINJA_KEYWORD;
        SW_TRY(eval(w, named ? kid->kids[0] : kid, &out->at[out->n]));
        out->names[out->n] = named ? kid->text : NULL;
        out->name_lens[out->n++] = kid->len;
        out->n_positional += !named;
    }
    return SW_OK;
}

static bool is_named(const struct jinja_node *parameter, const char *name, size_t len)
{
    return parameter->len == len && memcmp(parameter->text, name, len) == 0;
}

/* Each argument must have a parameter, and no parameter may have two arguments. */
static sw_status check_arguments(struct walk *w, const struct jinja_node *macro,
                                 const struct jinja_arguments *arguments)
{
    const int n = macro->n_kids - 1;
    if (arguments->n_positional > n) {
        return sw_jinja_fail(w->run, SW_JINJA_TYPE, "macro '%.*s' takes at most %d arguments",
                             (int)macro->len, macro->text, n);
    }
    for (int i = arguments->n_positional; i < arguments->n; ++i) {
        int k = arguments->n_positional;
        while (k < n && !is_named(macro->kids[k], arguments->names[i], arguments->name_lens[i])) {
            k++;
        }
        if (k == n) {
            return sw_jinja_fail(w->run, SW_JINJA_TYPE, "macro '%.*s' has no argument '%.*s' left",
                                 (int)macro->len, macro->text, (int)arguments->name_lens[i],
                                 arguments->names[i]);
        }
    }
    return SW_OK;
}

/* Sets each parameter in the macro's scope to its argument, its default, or undefined. */
static sw_status assign_parameters(struct walk *w, const struct jinja_node *macro,
                                   const struct jinja_arguments *arguments)
{
    for (int i = 0; i + 1 < macro->n_kids; ++i) {
        const struct jinja_node *parameter = macro->kids[i];
        struct jinja_value value = sw_jinja_undefined(parameter->text, parameter->len);
        int k = i < arguments->n_positional ? i : arguments->n_positional;
        while (i >= arguments->n_positional && k < arguments->n &&
               !is_named(parameter, arguments->names[k], arguments->name_lens[k])) {
            k++;
        }
        if (k < arguments->n) {
            value = arguments->at[k];
        } else if (parameter->kids[0]) {
            SW_TRY(eval(w, parameter->kids[0], &value));
        }
        SW_TRY(assign_name(w, parameter->text, parameter->len, &value));
    }
    return SW_OK;
}

/* Captures the output of a body as a value. */
static sw_status capture(struct walk *w, const struct jinja_node *body, struct jinja_value *out)
{
    struct sw_str before = w->run->out->text;
    w->run->out->text = (struct sw_str){0};
    sw_status st = exec(w, body);
    struct sw_str made = w->run->out->text;
    w->run->out->text = before;
    st = st >= 0 ? sw_jinja_copy(w->run, sw_str_text(&made), made.len, out) : st;
    sw_str_fini(&made);
    return st;
}

static sw_status call_macro(struct walk *w, const struct jinja_node *macro,
                            const struct jinja_arguments *arguments, struct jinja_value *out)
{
    struct scope *const caller = w->scope, scope;
    SW_TRY(check_arguments(w, macro, arguments));
    w->scope = w->outermost;
    SW_TRY(open_scope(w, &scope));
    SW_TRY(assign_parameters(w, macro, arguments));
    SW_TRY(capture(w, macro->kids[macro->n_kids - 1], out));
    w->scope = caller;
    return SW_OK;
}

static sw_status call(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_arguments arguments;
    struct jinja_value of;
    const struct jinja_node *what = node->kids[0];
    if (what->kind == JINJA_ATTR) {
        SW_TRY(eval(w, what->kids[0], &of));
        w->run->at = what->at;
        if (of.type == JINJA_V_UNDEFINED) {
            return fail_undefined(w->run, &of);
        }
        if (what->len > 0 && what->text[0] == '_') {
            return sw_jinja_fail(w->run, SW_JINJA_SECURITY, "'%.*s' is forbidden", (int)what->len,
                                 what->text);
        }
        SW_TRY(read_arguments(w, node, &arguments));
        w->run->at = what->at;
        return sw_jinja_method(w->run, &of, what->text, what->len, &arguments, out);
    }
    SW_TRY(eval(w, what, &of));
    if (of.type == JINJA_V_UNDEFINED) {
        w->run->at = node->at;
        return fail_undefined(w->run, &of);
    }
    SW_TRY(read_arguments(w, node, &arguments));
    w->run->at = node->at;
    if (of.type != JINJA_V_FUNCTION) {
        return sw_jinja_fail(w->run, SW_JINJA_TYPE, "%s cannot be called", sw_jinja_type_name(&of));
    }
    return of.macro ? call_macro(w, of.macro, &arguments, out)
                    : sw_jinja_function(w->run, of.text, of.len, &arguments, out);
}

/* ---- operators ---- */

static sw_status join(struct walk *w, const struct jinja_value *a, const struct jinja_value *b,
                      struct jinja_value *out)
{
    struct sw_str text = {0};
    sw_jinja_print(w->run, a, &text);
    sw_jinja_print(w->run, b, &text);
    const sw_status st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a template")
                                     : sw_jinja_copy(w->run, sw_str_text(&text), text.len, out);
    sw_str_fini(&text);
    return st;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static sw_status compute_ints(struct walk *w, const char *op, int64_t a, int64_t b,
                              struct jinja_value *out)
{
    int64_t made = 0;
    bool over = false;
    switch (op[0]) {
    case '+':
        over = __builtin_add_overflow(a, b, &made);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &made);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &made);
        break;
    default:
        if (b == 0) {
            return sw_jinja_fail(w->run, SW_JINJA_TYPE, "division by zero");
        }
        if (b == -1) {
            over = __builtin_sub_overflow((int64_t)0, a, &made);
            made = op[0] == '%' ? 0 : made;
        } else {
            made = op[0] == '%' ? a - b * floor_div(a, b) : floor_div(a, b);
        }
    }
    *out = sw_jinja_int(made);
    return over ? sw_jinja_fail(w->run, SW_JINJA_TYPE, "a number is too large") : SW_OK;
}

static sw_status compute_numbers(struct walk *w, const struct jinja_node *node,
                                 const struct jinja_value *a, const struct jinja_value *b,
                                 struct jinja_value *out)
{
    const char *op = node->text;
    const bool division = node->len == 1 && op[0] == '/';
    if (a->type != JINJA_V_FLOAT && b->type != JINJA_V_FLOAT && !division) {
        return compute_ints(w, op, a->integer, b->integer, out);
    }
    const double x = sw_jinja_number(a), y = sw_jinja_number(b);
    if ((op[0] == '/' || op[0] == '%') && y == 0) {
        return sw_jinja_fail(w->run, SW_JINJA_TYPE, "division by zero");
    }
    const double made = op[0] == '+'   ? x + y
                        : op[0] == '-' ? x - y
                        : op[0] == '*' ? x * y
                        : division     ? x / y
                        : op[0] == '/' ? floor(x / y)
                                       : x - y * floor(x / y);
    *out = (struct jinja_value){.type = JINJA_V_FLOAT, .number = made};
    return SW_OK;
}

static sw_status concatenate(struct walk *w, const struct jinja_value *a,
                             const struct jinja_value *b, struct jinja_value *out)
{
    struct jinja_value made;
    if (a->type == JINJA_V_STRING) {
        return join(w, a, b, out);
    }
    SW_TRY(sw_jinja_new_list(w->run, &made));
    for (int64_t i = 0; i < a->list->n + b->list->n; ++i) {
        SW_TRY(
            sw_jinja_append(w->run, made.list,
                            i < a->list->n ? &a->list->items[i] : &b->list->items[i - a->list->n]));
    }
    *out = made;
    return SW_OK;
}

static sw_status repeat(struct walk *w, const struct jinja_value *text, int64_t times,
                        struct jinja_value *out)
{
    struct sw_str made = {0};
    if (times > 0 && (double)times * (double)text->len > (double)MOST_TEXT) {
        return sw_jinja_fail(w->run, SW_JINJA_LIMIT, "a text of more than %d bytes", MOST_TEXT);
    }
    if (times > 0) {
        sw_jinja_room(w->run, &made, (size_t)times * text->len);
        SW_TRY(sw_jinja_check(w->run));
    }
    for (int64_t i = 0; i < times; ++i) {
        sw_str_append(&made, text->text, text->len);
    }
    const sw_status st = made.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a template")
                                     : sw_jinja_copy(w->run, sw_str_text(&made), made.len, out);
    sw_str_fini(&made);
    return st;
}

static sw_status operate(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value a, b;
    SW_TRY(eval(w, node->kids[0], &a));
    SW_TRY(eval(w, node->kids[1], &b));
    w->run->at = node->at;
    if (node->text[0] == '~') {
        return join(w, &a, &b, out);
    }
    if (a.type == JINJA_V_UNDEFINED || b.type == JINJA_V_UNDEFINED) {
        return fail_undefined(w->run, a.type == JINJA_V_UNDEFINED ? &a : &b);
    }
    if (sw_jinja_is_number(&a) && sw_jinja_is_number(&b)) {
        return compute_numbers(w, node, &a, &b, out);
    }
    if (node->text[0] == '+' && a.type == b.type &&
        (a.type == JINJA_V_STRING || a.type == JINJA_V_LIST)) {
        return concatenate(w, &a, &b, out);
    }
    if (node->text[0] == '*' && a.type == JINJA_V_STRING && b.type == JINJA_V_INT) {
        return repeat(w, &a, b.integer, out);
    }
    return sw_jinja_fail(w->run, SW_JINJA_TYPE, "%.*s between %s and %s", (int)node->len,
                         node->text, sw_jinja_type_name(&a), sw_jinja_type_name(&b));
}

sw_status sw_jinja_contains(struct jinja_run *run, const struct jinja_value *what,
                            const struct jinja_value *in, bool *out)
{
    struct jinja_value items;
    *out = false;
    if (in->type == JINJA_V_STRING) {
        if (what->type != JINJA_V_STRING) {
            return sw_jinja_fail(
                run, what->type == JINJA_V_UNDEFINED ? SW_JINJA_UNDEFINED : SW_JINJA_TYPE,
                "%s in a str", sw_jinja_type_name(what));
        }
        sw_jinja_work(run, (int64_t)in->len / 8);
        *out = what->len == 0 || memmem(in->text, in->len, what->text, what->len) != NULL;
        return SW_OK;
    }
    SW_TRY(sw_jinja_items(run, in, &items));
    for (int64_t i = 0; i < items.list->n && !*out; ++i) {
        *out = sw_jinja_equal(run, &items.list->items[i], what);
    }
    return SW_OK;
}

static sw_status order(struct walk *w, const struct jinja_value *a, const struct jinja_value *b,
                       double *out)
{
    if (a->type == JINJA_V_UNDEFINED || b->type == JINJA_V_UNDEFINED) {
        return fail_undefined(w->run, a->type == JINJA_V_UNDEFINED ? a : b);
    }
    if (sw_jinja_is_number(a) && sw_jinja_is_number(b)) {
        *out = sw_jinja_number(a) < sw_jinja_number(b)   ? -1
               : sw_jinja_number(a) > sw_jinja_number(b) ? 1
                                                         : 0;
        return SW_OK;
    }
    if (a->type == JINJA_V_STRING && b->type == JINJA_V_STRING) {
        const int first = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
        *out = first != 0 ? first : (double)(a->len > b->len) - (double)(a->len < b->len);
        return SW_OK;
    }
    return sw_jinja_fail(w->run, SW_JINJA_TYPE, "%s and %s have no order", sw_jinja_type_name(a),
                         sw_jinja_type_name(b));
}

static sw_status compare_two(struct walk *w, const struct jinja_node *op,
                             const struct jinja_value *a, const struct jinja_value *b, bool *out)
{
    const char c = op->text[0];
    double which = 0;
    w->run->at = op->at;
    if (c == '=' || c == '!') {
        *out = sw_jinja_equal(w->run, a, b) == (c == '=');
        return SW_OK;
    }
    if (c == 'i' || c == 'n') {
        SW_TRY(sw_jinja_contains(w->run, a, b, out));
        *out = *out == (c == 'i');
        return SW_OK;
    }
    SW_TRY(order(w, a, b, &which));
    *out = (which == 0 && op->len == 2) || (c == '<' ? which < 0 : which > 0);
    return SW_OK;
}

static sw_status compare(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value a, b;
    bool holds = true;
    SW_TRY(eval(w, node->kids[0], &a));
    for (int i = 1; i < node->n_kids && holds; ++i) {
        SW_TRY(eval(w, node->kids[i]->kids[0], &b));
        SW_TRY(compare_two(w, node->kids[i], &a, &b, &holds));
        a = b;
    }
    *out = sw_jinja_bool(holds);
    return SW_OK;
}

static sw_status sign(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    SW_TRY(eval(w, node->kids[0], out));
    w->run->at = node->at;
    if (out->type == JINJA_V_UNDEFINED) {
        return fail_undefined(w->run, out);
    }
    if (!sw_jinja_is_number(out)) {
        return sw_jinja_fail(w->run, SW_JINJA_TYPE, "a sign before %s", sw_jinja_type_name(out));
    }
    if (node->kind == JINJA_PLUS) {
        return SW_OK;
    }
    if (out->type == JINJA_V_FLOAT) {
        out->number = -out->number;
        return SW_OK;
    }
    return compute_ints(w, "-", 0, out->integer, out);
}

/* ---- expressions ---- */

static sw_status make_list(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value list, kid;
    SW_TRY(sw_jinja_new_list(w->run, &list));
    for (int i = 0; i < node->n_kids; ++i) {
        SW_TRY(eval(w, node->kids[i], &kid));
        SW_TRY(sw_jinja_append(w->run, list.list, &kid));
    }
    *out = list;
    return SW_OK;
}

static sw_status make_dict(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value map, key, value;
    SW_TRY(sw_jinja_new_map(w->run, JINJA_V_MAP, &map));
    for (int i = 0; i < node->n_kids; i += 2) {
        SW_TRY(eval(w, node->kids[i], &key));
        SW_TRY(eval(w, node->kids[i + 1], &value));
        SW_TRY(sw_jinja_put(w->run, map.map, &key, &value));
    }
    *out = map;
    return SW_OK;
}

static sw_status eval_member(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value of, key;
    struct jinja_arguments arguments;
    bool holds = false;
    SW_TRY(eval(w, node->kids[0], &of));
    w->run->at = node->at;
    switch (node->kind) {
    case JINJA_ATTR:
        return attr(w->run, &of, node->text, node->len, out);
    case JINJA_ITEM:
        SW_TRY(eval(w, node->kids[1], &key));
        w->run->at = node->at;
        return sw_jinja_item(w->run, &of, &key, out);
    case JINJA_SLICE:
        return slice(w, node, &of, out);
    default:
        break;
    }
    SW_TRY(read_arguments(w, node, &arguments));
    w->run->at = node->at;
    if (node->kind == JINJA_FILTER) {
        return sw_jinja_filter(w->run, node->text, node->len, &of, &arguments, out);
    }
    SW_TRY(sw_jinja_test(w->run, node->text, node->len, &of, &arguments, &holds));
    *out = sw_jinja_bool(holds);
    return SW_OK;
}

static sw_status eval_logic(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    SW_TRY(eval(w, node->kids[0], out));
    switch (node->kind) {
    case JINJA_NOT:
        *out = sw_jinja_bool(!sw_jinja_is_true(out));
        return SW_OK;
    case JINJA_AND:
        return sw_jinja_is_true(out) ? eval(w, node->kids[1], out) : SW_OK;
    case JINJA_OR:
        return sw_jinja_is_true(out) ? SW_OK : eval(w, node->kids[1], out);
    default: /* IF_ELSE */
        if (sw_jinja_is_true(out)) {
            return eval(w, node->kids[1], out);
        }
        *out = sw_jinja_undefined("", 0);
        return node->kids[2] ? eval(w, node->kids[2], out) : SW_OK;
    }
}

static sw_status step(struct walk *w, const struct jinja_node *node)
{
    w->run->at = node->at;
    sw_jinja_work(w->run, JINJA_STEP);
    return sw_jinja_check(w->run);
}

static sw_status eval_kind(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    switch (node->kind) {
    case JINJA_STRING:
        *out = sw_jinja_string(node->text, node->len);
        return SW_OK;
    case JINJA_INT:
        *out = sw_jinja_int(node->integer);
        return SW_OK;
    case JINJA_FLOAT:
        *out = (struct jinja_value){.type = JINJA_V_FLOAT, .number = node->number};
        return SW_OK;
    case JINJA_TRUE:
    case JINJA_FALSE:
        *out = sw_jinja_bool(node->kind == JINJA_TRUE);
        return SW_OK;
    case JINJA_NONE:
        *out = (struct jinja_value){.type = JINJA_V_NONE};
        return SW_OK;
    case JINJA_NAME:
        *out = look_up(w, node->text, node->len);
        return SW_OK;
    case JINJA_LIST:
        return make_list(w, node, out);
    case JINJA_DICT:
        return make_dict(w, node, out);
    case JINJA_CALL:
        return call(w, node, out);
    case JINJA_OPERATOR:
        return operate(w, node, out);
    case JINJA_COMPARE:
        return compare(w, node, out);
    case JINJA_MINUS:
    case JINJA_PLUS:
        return sign(w, node, out);
    case JINJA_NOT:
    case JINJA_AND:
    case JINJA_OR:
    case JINJA_IF_ELSE:
        return eval_logic(w, node, out);
    default:
        return eval_member(w, node, out);
    }
}

/* The parser also limits the depth of expressions (JINJA_MOST_DEPTH). */
static sw_status eval(struct walk *w, const struct jinja_node *node, struct jinja_value *out)
{
    SW_TRY(step(w, node));
    if (w->depth == JINJA_MOST_DEPTH) {
        return sw_jinja_fail(w->run, SW_JINJA_LIMIT, "expressions are nested deeper than %d",
                             JINJA_MOST_DEPTH);
    }
    w->depth++;
    SW_TRY(eval_kind(w, node, out));
    w->depth--;
    return SW_OK;
}

/* ---- statements ---- */

static sw_status put(struct walk *w, const char *text, size_t len)
{
    struct sw_str *out = &w->run->out->text;
    if (out->len + len > MOST_TEXT) {
        return sw_jinja_fail(w->run, SW_JINJA_LIMIT, "a text of more than %d bytes", MOST_TEXT);
    }
    w->run->bytes += (int64_t)len; /* nested `set` blocks each have their own text */
    SW_TRY(sw_jinja_check(w->run));
    sw_str_append(out, text, len);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a text") : SW_OK;
}

static sw_status output(struct walk *w, const struct jinja_node *node)
{
    struct jinja_value value;
    struct sw_str text = {0};
    SW_TRY(eval(w, node->kids[0], &value));
    w->run->at = node->at;
    if (value.type == JINJA_V_STRING) {
        return put(w, value.text, value.len);
    }
    sw_jinja_print(w->run, &value, &text);
    const sw_status st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a text")
                                     : put(w, sw_str_text(&text), text.len);
    sw_str_fini(&text);
    return st;
}

static sw_status exec_if(struct walk *w, const struct jinja_node *node)
{
    for (int i = 0; i + 1 < node->n_kids; i += 2) {
        struct jinja_value condition;
        SW_TRY(eval(w, node->kids[i], &condition));
        if (sw_jinja_is_true(&condition)) {
            return exec(w, node->kids[i + 1]);
        }
    }
    return node->n_kids % 2 ? exec(w, node->kids[node->n_kids - 1]) : SW_OK;
}

/* Filters the items by the loop's `if`. `loop` counts only the items kept. */
static sw_status filter_items(struct walk *w, const struct jinja_node *node,
                              struct jinja_value *items)
{
    struct jinja_value kept, holds;
    struct scope scope;
    SW_TRY(sw_jinja_new_list(w->run, &kept));
    for (int64_t i = 0; i < items->list->n; ++i) {
        SW_TRY(open_scope(w, &scope));
        SW_TRY(assign(w, node->kids[0], &items->list->items[i]));
        SW_TRY(eval(w, node->kids[2], &holds));
        w->scope = scope.outer;
        SW_TRY(sw_jinja_is_true(&holds) ? sw_jinja_append(w->run, kept.list, &items->list->items[i])
                                        : SW_OK);
    }
    *items = kept;
    return SW_OK;
}

static sw_status exec_for(struct walk *w, const struct jinja_node *node)
{
    struct jinja_value what, items, self;
    SW_TRY(eval(w, node->kids[1], &what));
    w->run->at = node->at;
    SW_TRY(sw_jinja_items(w->run, &what, &items));
    SW_TRY(node->kids[2] ? filter_items(w, node, &items) : SW_OK);
    SW_TRY(sw_jinja_new_loop(w->run, items.list, &self));
    for (int64_t i = 0; i < items.list->n && !w->broken; ++i) {
        struct scope scope;
        self.loop->index = i; /* stays at the last item that was entered, as in Jinja */
        SW_TRY(open_scope(w, &scope));
        SW_TRY(assign_name(w, "loop", 4, &self));
        SW_TRY(assign(w, node->kids[0], &items.list->items[i]));
        SW_TRY(exec(w, node->kids[3]));
        w->scope = scope.outer;
        w->continued = false;
    }
    w->broken = false;
    return items.list->n == 0 && node->kids[4] ? exec(w, node->kids[4]) : SW_OK;
}

static sw_status exec_set_block(struct walk *w, const struct jinja_node *node)
{
    struct jinja_value value;
    struct scope scope;
    SW_TRY(open_scope(w, &scope));
    SW_TRY(capture(w, node->kids[1], &value));
    w->scope = scope.outer;
    return w->broken || w->continued ? SW_OK : assign(w, node->kids[0], &value);
}

static sw_status exec_macro(struct walk *w, const struct jinja_node *node)
{
    const struct jinja_value macro = {
        .type = JINJA_V_FUNCTION, .text = node->text, .len = node->len, .macro = node};
    return assign_name(w, node->text, node->len, &macro);
}

/* A block inside another one adds nothing to its span. */
static sw_status exec_generation(struct walk *w, const struct jinja_node *node)
{
    struct sw_jinja_text *out = w->run->out;
    const size_t first = out->text.len;
    const bool is_inner = w->is_marked;
    struct scope scope;
    w->is_marked = true;
    SW_TRY(open_scope(w, &scope));
    SW_TRY(exec(w, node->kids[0]));
    w->scope = scope.outer;
    w->is_marked = is_inner;
    if (is_inner) {
        return SW_OK;
    }
    struct sw_jinja_span *spans =
        sw_realloc("spans", out->spans, (out->n_spans + 1) * sizeof(*spans));
    SW_TRY_ALLOC(spans, "the spans of a text");
    out->spans = spans;
    spans[out->n_spans++] = (struct sw_jinja_span){first, out->text.len};
    return SW_OK;
}

static sw_status exec_body(struct walk *w, const struct jinja_node *node)
{
    if (w->blocks == JINJA_MOST_DEPTH) {
        return sw_jinja_fail(w->run, SW_JINJA_LIMIT, "blocks are nested deeper than %d",
                             JINJA_MOST_DEPTH);
    }
    w->blocks++;
    for (int i = 0; i < node->n_kids && !w->broken && !w->continued; ++i) {
        SW_TRY(exec(w, node->kids[i]));
    }
    w->blocks--;
    return SW_OK;
}

static sw_status exec(struct walk *w, const struct jinja_node *node)
{
    struct jinja_value value;
    SW_TRY(step(w, node));
    switch (node->kind) {
    case JINJA_TEXT:
        return put(w, node->text, node->len);
    case JINJA_OUTPUT:
        return output(w, node);
    case JINJA_IF:
        return exec_if(w, node);
    case JINJA_FOR:
        return exec_for(w, node);
    case JINJA_SET:
        SW_TRY(eval(w, node->kids[1], &value));
        return assign(w, node->kids[0], &value);
    case JINJA_SET_BLOCK:
        return exec_set_block(w, node);
    case JINJA_GENERATION:
        return exec_generation(w, node);
    case JINJA_MACRO:
        return exec_macro(w, node);
    case JINJA_BREAK:
        w->broken = true;
        return SW_OK;
    case JINJA_CONTINUE:
        w->continued = true;
        return SW_OK;
    default:
        return exec_body(w, node);
    }
}

/* Drops null members of messages, as the reference does. An example is the content of a tool
 * call. */
static void drop_null_members(struct jinja_value *messages)
{
    for (int64_t i = 0; messages->type == JINJA_V_LIST && i < messages->list->n; ++i) {
        const struct jinja_value *message = &messages->list->items[i];
        struct jinja_map *map = message->type == JINJA_V_MAP ? message->map : NULL;
        int64_t n = 0;
        for (int64_t k = 0; map && k < map->n; ++k) {
            if (map->values[k].type != JINJA_V_NONE) {
                map->keys[n] = map->keys[k];
                map->values[n++] = map->values[k];
            }
        }
        if (map) {
            map->n = n;
        }
    }
}

static sw_status render(struct walk *w, const struct sw_json *variables)
{
    struct scope scope = {0};
    SW_TRY(open_scope(w, &scope));
    w->outermost = &scope;
    for (const struct sw_json *kid = variables->first; kid; kid = kid->next) {
        struct jinja_value value, name;
        SW_TRY(sw_jinja_copy(w->run, kid->key, kid->key_len, &name));
        SW_TRY(sw_jinja_from_json(w->run, kid, &value));
        if (strcmp(kid->key, "messages") == 0) {
            drop_null_members(&value);
        }
        SW_TRY(assign_name(w, name.text, name.len, &value));
    }
    return exec(w, w->run->template->root);
}

void sw_jinja_text_fini(struct sw_jinja_text *text)
{
    sw_str_fini(&text->text);
    sw_free(text->spans);
    *text = (struct sw_jinja_text){0};
}

sw_status sw_jinja_render(const struct sw_jinja *template, const struct sw_json *variables,
                          int64_t today, struct sw_jinja_text *out)
{
    struct jinja_run run = {.template = template, .out = out, .today = today, .at = {1, 1}};
    struct walk w = {.run = &run};
    sw_str_clear(&out->text);
    out->n_spans = 0;
    out->error = SW_JINJA_NONE;
    sw_arena_init(&run.arena, "template");
    sw_status st = render(&w, variables);
    st = st < 0 ? st : sw_jinja_check(&run); /* functions that cannot fail stop early instead */
    sw_arena_fini(&run.arena);
    return st;
}
