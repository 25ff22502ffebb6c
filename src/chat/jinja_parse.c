// SPDX-License-Identifier: Apache-2.0
// The parser: text is cut at its tags. The inside of a tag is parsed token by token, by recursive
// descent that follows Jinja's own grammar.
#include "chat/jinja_tree.h"

#include "text/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 100, MOST_BYTES = 1 << 20 };

enum token_kind {
    TOKEN_END, /* of the tag */
    TOKEN_NAME,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_STRING,
    TOKEN_MARK /* an operator or a bracket */
};

struct token {
    enum token_kind kind;
    struct jinja_at at;
    const char *text; /* STRING: its value without escapes */
    size_t len;
};

struct reader {
    struct sw_jinja *out;
    const char *text;
    size_t len, pos;
    struct jinja_at at; /* of pos */
    size_t seen;        /* offset up to which `at` is counted */
    char closing;       /* of the current tag: '}' or '%' */
    int depth, braces;
    struct token token; /* the next one */
    bool trims;         /* a minus: white space after the tag is removed */
    bool keeps;         /* a plus: the newline after the tag stays */
    int loops;          /* that a break or continue here may leave */
    bool in_loop, in_macro, in_set, in_generation;
};

static sw_status fail_at(const struct reader *in, struct jinja_at at, sw_status st,
                         const char *what)
{
    return SW_FAIL(st, "%s:%d:%d: %s", in->out->name, at.line, at.column, what);
}

static sw_status fail_token(const struct reader *in, const char *wanted)
{
    const struct token *t = &in->token;
    return t->kind == TOKEN_END
               ? SW_FAIL(SW_E_FORMAT, "%s:%d:%d: wanted %s, found the end of the tag",
                         in->out->name, t->at.line, t->at.column, wanted)
               : SW_FAIL(SW_E_FORMAT, "%s:%d:%d: wanted %s, found '%.*s'", in->out->name,
                         t->at.line, t->at.column, wanted, (int)sw_min_i64((int64_t)t->len, 40),
                         t->text);
}

static struct jinja_at where(struct reader *in, size_t pos)
{
    for (; in->seen < pos; in->seen++) {
        if (in->text[in->seen] == '\n') {
            in->at.line++;
            in->at.column = 1;
        } else {
            in->at.column += sw_utf8_begins(in->text[in->seen]);
        }
    }
    return in->at;
}

/* ---- the tree ---- */

static sw_status new_node(struct reader *in, enum jinja_kind kind, struct jinja_at at,
                          struct jinja_node **out)
{
    *out = sw_arena_alloc(&in->out->arena, sizeof(**out));
    SW_TRY_ALLOC(*out, "a template");
    **out = (struct jinja_node){.kind = kind, .at = at, .text = ""};
    return SW_OK;
}

static sw_status add_kid(struct reader *in, struct jinja_node *node, struct jinja_node *kid)
{
    if (node->n_kids == node->cap_kids) {
        const int cap = node->cap_kids ? 2 * node->cap_kids : 4;
        struct jinja_node **kids = sw_arena_array(&in->out->arena, (size_t)cap, sizeof(*kids));
        SW_TRY_ALLOC(kids, "a template");
        for (int i = 0; i < node->n_kids; ++i) {
            kids[i] = node->kids[i];
        }
        node->kids = kids;
        node->cap_kids = cap;
    }
    node->kids[node->n_kids++] = kid;
    if (kid && kid->depth >= node->depth) {
        node->depth = kid->depth + 1;
    }
    return node->depth > JINJA_MOST_DEPTH
               ? fail_at(in, in->token.at, SW_E_FORMAT, "too many expressions in each other")
               : SW_OK;
}

static sw_status new_unary(struct reader *in, enum jinja_kind kind, struct jinja_at at,
                           struct jinja_node *kid, struct jinja_node **out)
{
    SW_TRY(new_node(in, kind, at, out));
    return add_kid(in, *out, kid);
}

static sw_status new_pair(struct reader *in, enum jinja_kind kind, struct jinja_at at,
                          struct jinja_node *const kids[2], struct jinja_node **out)
{
    struct jinja_node *node;
    SW_TRY(new_unary(in, kind, at, kids[0], &node));
    SW_TRY(add_kid(in, node, kids[1]));
    *out = node;
    return SW_OK;
}

/* ---- tokens ---- */

static char peek(const struct reader *in, size_t ahead)
{
    return in->pos + ahead < in->len ? in->text[in->pos + ahead] : '\0';
}

/* Length of the tag end here; 0: the tag does not end here. */
static size_t tag_end(const struct reader *in)
{
    const size_t sign = peek(in, 0) == '-' || peek(in, 0) == '+';
    return in->braces == 0 && peek(in, sign) == in->closing && peek(in, sign + 1) == '}' ? sign + 2
                                                                                         : 0;
}

static int hex_digits(const struct reader *in, size_t at, int n, int32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; ++i) {
        const char c = at + (size_t)i < in->len ? in->text[at + (size_t)i] : '\0';
        if (!isxdigit((unsigned char)c)) {
            return 0;
        }
        *out = *out * 16 + (c <= '9' ? c - '0' : tolower((unsigned char)c) - 'a' + 10);
    }
    return n;
}

/* Reads an escape as Python does. An unknown escape stays as it is. */
static void read_escape(struct reader *in, struct sw_str *out)
{
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    const char c = peek(in, 1);
    const char *known = c ? strchr(from, c) : NULL;
    const int n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    int32_t value;
    char bytes[4];
    in->pos += 2;
    if (known) {
        sw_str_putc(out, to[known - from]);
    } else if (n > 0 && hex_digits(in, in->pos, n, &value) && value >= 0 && value < 0x110000 &&
               (value < 0xD800 || value > 0xDFFF)) {
        in->pos += (size_t)n;
        sw_str_append(out, bytes, sw_utf8_put(value, bytes));
    } else if (c != '\n') {
        sw_str_putc(out, '\\');
        in->pos--;
    }
}

static sw_status read_string(struct reader *in, struct token *token)
{
    sw_status st = SW_OK;
    struct sw_str value = {0};
    const char quote = peek(in, 0);
    in->pos++;
    while (in->pos < in->len && in->text[in->pos] != quote) {
        if (in->text[in->pos] == '\\') {
            read_escape(in, &value);
        } else {
            sw_str_putc(&value, in->text[in->pos++]);
        }
    }
    if (in->pos >= in->len) {
        st = fail_at(in, token->at, SW_E_FORMAT, "a string does not end");
    } else {
        in->pos++;
        token->kind = TOKEN_STRING;
        token->text = sw_arena_strndup(&in->out->arena, sw_str_text(&value), value.len);
        token->len = value.len;
        st = token->text && !value.failed
                 ? SW_OK
                 : SW_FAIL(SW_E_NOMEM, "out of host memory for a template");
    }
    sw_str_fini(&value);
    return st;
}

static void read_number(struct reader *in, struct token *token)
{
    const size_t first = in->pos;
    token->kind = TOKEN_INT;
    while (isdigit((unsigned char)peek(in, 0)) ||
           (peek(in, 0) == '_' && isdigit((unsigned char)peek(in, 1)))) {
        in->pos++;
    }
    if (peek(in, 0) == '.' && isdigit((unsigned char)peek(in, 1))) {
        token->kind = TOKEN_FLOAT;
        in->pos++;
        while (isdigit((unsigned char)peek(in, 0))) {
            in->pos++;
        }
    }
    const size_t sign = peek(in, 1) == '+' || peek(in, 1) == '-';
    if ((peek(in, 0) == 'e' || peek(in, 0) == 'E') && isdigit((unsigned char)peek(in, 1 + sign))) {
        token->kind = TOKEN_FLOAT;
        in->pos += 1 + sign;
        while (isdigit((unsigned char)peek(in, 0))) {
            in->pos++;
        }
    }
    token->text = in->text + first;
    token->len = in->pos - first;
}

static void read_mark(struct reader *in, struct token *token)
{
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
    size_t n = 1;
    for (size_t i = 0; i < SW_LEN(pairs); ++i) {
        n = peek(in, 0) == pairs[i][0] && peek(in, 1) == pairs[i][1] ? 2 : n;
    }
    token->kind = TOKEN_MARK;
    token->text = in->text + in->pos;
    token->len = n;
    const char c = token->text[0];
    in->braces +=
        (c == '{' || c == '[' || c == '(') - ((c == '}' || c == ']' || c == ')') && in->braces > 0);
    in->pos += n;
}

static sw_status next(struct reader *in)
{
    struct token *token = &in->token;
    while (in->pos < in->len && isspace((unsigned char)in->text[in->pos])) {
        in->pos++;
    }
    *token = (struct token){.kind = TOKEN_END, .at = where(in, in->pos), .text = ""};
    if (in->pos >= in->len) {
        return fail_at(in, token->at, SW_E_FORMAT, "a tag does not end");
    }
    const char c = in->text[in->pos];
    if (tag_end(in) > 0) {
        return SW_OK;
    }
    if (isalpha((unsigned char)c) || c == '_') {
        const size_t first = in->pos;
        while (isalnum((unsigned char)peek(in, 0)) || peek(in, 0) == '_') {
            in->pos++;
        }
        token->kind = TOKEN_NAME;
        token->text = in->text + first;
        token->len = in->pos - first;
    } else if (isdigit((unsigned char)c)) {
        read_number(in, token);
    } else if (c == '\'' || c == '"') {
        return read_string(in, token);
    } else if (strchr("+-*/%~=!<>.,:|()[]{}", c)) {
        read_mark(in, token);
    } else {
        return fail_at(in, token->at, SW_E_FORMAT, "an unexpected character");
    }
    return SW_OK;
}

static bool is(const struct reader *in, enum token_kind kind, const char *text)
{
    return in->token.kind == kind && in->token.len == strlen(text) &&
           memcmp(in->token.text, text, in->token.len) == 0;
}

static bool is_mark(const struct reader *in, const char *text)
{
    return is(in, TOKEN_MARK, text);
}

static bool is_word(const struct reader *in, const char *text)
{
    return is(in, TOKEN_NAME, text);
}

static sw_status want_mark(struct reader *in, const char *text)
{
    return is_mark(in, text) ? next(in) : fail_token(in, text);
}

static sw_status want_word(struct reader *in, const char *text)
{
    return is_word(in, text) ? next(in) : fail_token(in, text);
}

static sw_status want_end(struct reader *in)
{
    return in->token.kind == TOKEN_END ? SW_OK : fail_token(in, "the end of the tag");
}

static void take_text(const struct reader *in, struct jinja_node *node)
{
    node->text = in->token.text;
    node->len = in->token.len;
}

/* ---- expressions ---- */

static sw_status read_expression(struct reader *in, struct jinja_node **out);
static sw_status read_unary(struct reader *in, bool with_filter, struct jinja_node **out);

static sw_status read_any_number(struct reader *in, struct jinja_node **out)
{
    char digits[64];
    const struct token t = in->token;
    size_t n = 0;
    SW_TRY(new_node(in, t.kind == TOKEN_INT ? JINJA_INT : JINJA_FLOAT, t.at, out));
    for (size_t i = 0; i < t.len && n + 1 < sizeof(digits); ++i) {
        if (t.text[i] != '_') {
            digits[n++] = t.text[i];
        }
    }
    digits[n] = '\0';
    errno = 0;
    (*out)->integer = strtoll(digits, NULL, 10);
    (*out)->number = strtod(digits, NULL);
    if (errno != 0 || t.len >= sizeof(digits)) {
        return fail_at(in, t.at, SW_E_FORMAT, "a number is too large");
    }
    return next(in);
}

static sw_status read_strings(struct reader *in, struct jinja_node **out)
{
    SW_TRY(new_node(in, JINJA_STRING, in->token.at, out));
    take_text(in, *out);
    SW_TRY(next(in));
    while (in->token.kind == TOKEN_STRING) { /* neighbours are one */
        char *both = sw_arena_alloc(&in->out->arena, (*out)->len + in->token.len + 1);
        SW_TRY_ALLOC(both, "a template");
        memcpy(both, (*out)->text, (*out)->len);
        memcpy(both + (*out)->len, in->token.text, in->token.len);
        (*out)->text = both;
        (*out)->len += in->token.len;
        SW_TRY(next(in));
    }
    return SW_OK;
}

static sw_status read_name(struct reader *in, struct jinja_node **out)
{
    static const struct {
        const char *word;
        enum jinja_kind kind;
    } words[] = {{"true", JINJA_TRUE},   {"True", JINJA_TRUE}, {"false", JINJA_FALSE},
                 {"False", JINJA_FALSE}, {"none", JINJA_NONE}, {"None", JINJA_NONE}};
    static const char *const reserved[] = {"and", "or", "not", "in", "is", "if", "else"};
    enum jinja_kind kind = JINJA_NAME;
    for (size_t i = 0; i < SW_LEN(words); ++i) {
        kind = is_word(in, words[i].word) ? words[i].kind : kind;
    }
    for (size_t i = 0; i < SW_LEN(reserved); ++i) {
        if (is_word(in, reserved[i])) {
            return fail_token(in, "an expression");
        }
    }
    SW_TRY(new_node(in, kind, in->token.at, out));
    take_text(in, *out);
    return next(in);
}

/* Reads items up to and including `closing`. *out_comma: whether there was a comma. */
static sw_status read_items(struct reader *in, const char *closing, struct jinja_node *list,
                            bool *out_comma)
{
    *out_comma = false;
    while (!is_mark(in, closing)) {
        struct jinja_node *item;
        SW_TRY(read_expression(in, &item));
        SW_TRY(add_kid(in, list, item));
        if (!is_mark(in, closing)) {
            SW_TRY(want_mark(in, ","));
            *out_comma = true;
        }
    }
    return next(in);
}

static sw_status read_dict(struct reader *in, struct jinja_node **out)
{
    SW_TRY(new_node(in, JINJA_DICT, in->token.at, out));
    SW_TRY(next(in));
    while (!is_mark(in, "}")) {
        struct jinja_node *key, *value;
        SW_TRY(read_expression(in, &key));
        SW_TRY(want_mark(in, ":"));
        SW_TRY(read_expression(in, &value));
        SW_TRY(add_kid(in, *out, key));
        SW_TRY(add_kid(in, *out, value));
        if (!is_mark(in, "}")) {
            SW_TRY(want_mark(in, ","));
        }
    }
    return next(in);
}

static sw_status read_primary(struct reader *in, struct jinja_node **out)
{
    const struct jinja_at at = in->token.at;
    bool comma;
    switch (in->token.kind) {
    case TOKEN_NAME:
        return read_name(in, out);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return read_any_number(in, out);
    case TOKEN_STRING:
        return read_strings(in, out);
    default:
        break;
    }
    if (is_mark(in, "{")) {
        return read_dict(in, out);
    }
    const bool tuple = is_mark(in, "(");
    if (!tuple && !is_mark(in, "[")) {
        return fail_token(in, "an expression");
    }
    SW_TRY(new_node(in, JINJA_LIST, at, out));
    SW_TRY(next(in));
    SW_TRY(read_items(in, tuple ? ")" : "]", *out, &comma));
    if (tuple && !comma && (*out)->n_kids == 1) { /* brackets alone */
        *out = (*out)->kids[0];
    }
    return SW_OK;
}

/* The arguments of a call follow its first kid. */
static sw_status check_argument(const struct reader *in, const struct jinja_node *node,
                                const struct jinja_node *argument)
{
    const bool named = argument->kind == JINJA_KEYWORD;
    if (node->n_kids > JINJA_MOST_ARGUMENTS) {
        return fail_at(in, argument->at, SW_E_UNSUP, "a call of so many arguments");
    }
    for (int i = 1; i < node->n_kids; ++i) {
        const struct jinja_node *other = node->kids[i];
        if (other->kind == JINJA_KEYWORD && !named) {
            return fail_at(in, argument->at, SW_E_FORMAT,
                           "a positional argument after a named one");
        }
        if (other->kind == JINJA_KEYWORD && other->len == argument->len &&
            memcmp(other->text, argument->text, argument->len) == 0) {
            return fail_at(in, argument->at, SW_E_FORMAT, "two arguments have the same name");
        }
    }
    return SW_OK;
}

/* Reads ( a, b=c ) into `node`. */
static sw_status read_arguments(struct reader *in, struct jinja_node *node)
{
    SW_TRY(want_mark(in, "("));
    while (!is_mark(in, ")")) {
        struct jinja_node *value;
        SW_TRY(read_expression(in, &value));
        if (is_mark(in, "=") && value->kind == JINJA_NAME) {
            struct jinja_node *named, *of;
            SW_TRY(next(in));
            SW_TRY(read_expression(in, &of));
            SW_TRY(new_unary(in, JINJA_KEYWORD, value->at, of, &named));
            named->text = value->text;
            named->len = value->len;
            value = named;
        }
        SW_TRY(check_argument(in, node, value));
        SW_TRY(add_kid(in, node, value));
        if (!is_mark(in, ")")) {
            SW_TRY(want_mark(in, ","));
        }
    }
    return next(in);
}

/* [i] or [i:j:k] */
static sw_status read_subscript(struct reader *in, struct jinja_node **node)
{
    struct jinja_node *parts[3] = {NULL};
    const struct jinja_at at = in->token.at;
    int n = 0;
    SW_TRY(next(in));
    while (!is_mark(in, "]")) {
        if (is_mark(in, ":")) {
            if (++n > 2) {
                return fail_token(in, "]");
            }
            SW_TRY(next(in));
        } else if (parts[n]) {
            return fail_token(in, "]");
        } else {
            SW_TRY(read_expression(in, &parts[n]));
        }
    }
    if (n == 0 && !parts[0]) {
        return fail_token(in, "an index");
    }
    SW_TRY(next(in));
    struct jinja_node *item;
    SW_TRY(new_unary(in, n > 0 ? JINJA_SLICE : JINJA_ITEM, at, *node, &item));
    for (int i = 0; i < (n > 0 ? 3 : 1); ++i) {
        SW_TRY(add_kid(in, item, parts[i]));
    }
    *node = item;
    return SW_OK;
}

static sw_status read_postfix(struct reader *in, struct jinja_node **node)
{
    for (;;) {
        const struct jinja_at at = in->token.at;
        struct jinja_node *outer;
        if (is_mark(in, ".")) {
            SW_TRY(next(in));
            if (in->token.kind != TOKEN_NAME && in->token.kind != TOKEN_INT) {
                return fail_token(in, "a name");
            }
            SW_TRY(new_unary(in, JINJA_ATTR, at, *node, &outer));
            take_text(in, outer);
            SW_TRY(next(in));
            *node = outer;
        } else if (is_mark(in, "[")) {
            SW_TRY(read_subscript(in, node));
        } else if (is_mark(in, "(")) {
            SW_TRY(new_unary(in, JINJA_CALL, at, *node, &outer));
            SW_TRY(read_arguments(in, outer));
            *node = outer;
        } else {
            return SW_OK;
        }
    }
}

static sw_status read_filter(struct reader *in, struct jinja_node **node)
{
    struct jinja_node *outer;
    SW_TRY(next(in));
    if (in->token.kind != TOKEN_NAME) {
        return fail_token(in, "the name of a filter");
    }
    if (!sw_jinja_is_filter(in->token.text, in->token.len)) {
        return fail_token(in, "a filter that is built");
    }
    SW_TRY(new_unary(in, JINJA_FILTER, in->token.at, *node, &outer));
    take_text(in, outer);
    SW_TRY(next(in));
    *node = outer;
    return is_mark(in, "(") ? read_arguments(in, outer) : SW_OK;
}

/* Whether an argument without brackets begins here: x is divisibleby 3. */
static bool begins_argument(const struct reader *in)
{
    static const char *const words[] = {"else", "or", "and", "is", "if", "in", "not"};
    bool other = false;
    for (size_t i = 0; i < SW_LEN(words); ++i) {
        other |= is_word(in, words[i]);
    }
    return in->token.kind == TOKEN_MARK ? is_mark(in, "[") || is_mark(in, "{")
                                        : in->token.kind != TOKEN_END && !other;
}

static sw_status read_test(struct reader *in, struct jinja_node **node)
{
    struct jinja_node *outer, *argument;
    const struct jinja_at at = in->token.at;
    SW_TRY(next(in));
    const bool negated = is_word(in, "not");
    SW_TRY(negated ? next(in) : SW_OK);
    if (in->token.kind != TOKEN_NAME) {
        return fail_token(in, "the name of a test");
    }
    if (!sw_jinja_is_test(in->token.text, in->token.len)) {
        return fail_token(in, "a test that is built");
    }
    SW_TRY(new_unary(in, JINJA_TEST, at, *node, &outer));
    take_text(in, outer);
    SW_TRY(next(in));
    if (is_mark(in, "(")) {
        SW_TRY(read_arguments(in, outer));
    } else if (begins_argument(in)) {
        SW_TRY(read_primary(in, &argument));
        SW_TRY(read_postfix(in, &argument));
        SW_TRY(add_kid(in, outer, argument));
    }
    *node = outer;
    return negated ? new_unary(in, JINJA_NOT, at, outer, node) : SW_OK;
}

static sw_status read_unary(struct reader *in, bool with_filter, struct jinja_node **out)
{
    const struct jinja_at at = in->token.at;
    const bool minus = is_mark(in, "-"), plus = is_mark(in, "+");
    if (++in->depth > MOST_DEPTH) {
        return fail_at(in, at, SW_E_FORMAT, "too many expressions in each other");
    }
    if (minus || plus) {
        struct jinja_node *kid;
        SW_TRY(next(in));
        SW_TRY(read_unary(in, false, &kid));
        SW_TRY(new_unary(in, minus ? JINJA_MINUS : JINJA_PLUS, at, kid, out));
    } else {
        SW_TRY(read_primary(in, out));
        SW_TRY(read_postfix(in, out));
    }
    while (with_filter) {
        if (is_mark(in, "|")) {
            SW_TRY(read_filter(in, out));
        } else if (is_word(in, "is")) {
            SW_TRY(read_test(in, out));
        } else if (is_mark(in, "(") || is_mark(in, ".") || is_mark(in, "[")) {
            SW_TRY(read_postfix(in, out));
        } else {
            break;
        }
    }
    in->depth--;
    if (is_mark(in, "**")) {
        return fail_at(in, in->token.at, SW_E_UNSUP, "the operator ** is not built");
    }
    return SW_OK;
}

/* Operators by precedence, tightest first: * / // %, then ~, then + -. */
static const char *const levels[][5] = {{"*", "/", "//", "%", NULL}, {"~", NULL}, {"+", "-", NULL}};

static sw_status read_operators(struct reader *in, int level, struct jinja_node **out)
{
    if (level < 0) {
        return read_unary(in, true, out);
    }
    SW_TRY(read_operators(in, level - 1, out));
    for (;;) {
        const struct token t = in->token;
        bool found = false;
        for (int i = 0; levels[level][i]; ++i) {
            found |= is_mark(in, levels[level][i]);
        }
        if (!found) {
            return SW_OK;
        }
        struct jinja_node *right;
        SW_TRY(next(in));
        SW_TRY(read_operators(in, level - 1, &right));
        SW_TRY(new_pair(in, JINJA_OPERATOR, t.at, (struct jinja_node *[]){*out, right}, out));
        (*out)->text = t.text;
        (*out)->len = t.len;
    }
}

/* Reads a comparison operator; "" if there is none. */
static sw_status read_comparison(struct reader *in, const char **out)
{
    static const char *const marks[] = {"==", "!=", "<", "<=", ">", ">="};
    *out = "";
    for (size_t i = 0; i < SW_LEN(marks); ++i) {
        *out = is_mark(in, marks[i]) ? marks[i] : *out;
    }
    if (is_word(in, "in")) {
        *out = "in";
    } else if (is_word(in, "not")) { /* after an operand only as "not in" */
        SW_TRY(next(in));
        if (!is_word(in, "in")) {
            return fail_token(in, "in");
        }
        *out = "not in";
    }
    return **out ? next(in) : SW_OK;
}

static sw_status read_compare(struct reader *in, struct jinja_node **out)
{
    enum { LOOSEST = 2 };
    struct jinja_node *whole = NULL;
    SW_TRY(read_operators(in, LOOSEST, out));
    for (;;) {
        const struct jinja_at at = in->token.at;
        const char *operator;
        struct jinja_node *right, *named;
        SW_TRY(read_comparison(in, &operator));
        if (!*operator) {
            *out = whole ? whole : *out;
            return SW_OK;
        }
        SW_TRY(read_operators(in, LOOSEST, &right));
        if (!whole) {
            SW_TRY(new_unary(in, JINJA_COMPARE, at, *out, &whole));
        }
        SW_TRY(new_unary(in, JINJA_KEYWORD, at, right, &named));
        named->text = operator;
        named->len = strlen(operator);
        SW_TRY(add_kid(in, whole, named));
    }
}

static sw_status read_not(struct reader *in, struct jinja_node **out)
{
    const struct jinja_at at = in->token.at;
    struct jinja_node *kid;
    if (!is_word(in, "not")) {
        return read_compare(in, out);
    }
    if (++in->depth > MOST_DEPTH) {
        return fail_at(in, at, SW_E_FORMAT, "too many expressions in each other");
    }
    SW_TRY(next(in));
    SW_TRY(read_not(in, &kid));
    in->depth--;
    return new_unary(in, JINJA_NOT, at, kid, out);
}

static sw_status read_and(struct reader *in, struct jinja_node **out)
{
    SW_TRY(read_not(in, out));
    while (is_word(in, "and")) {
        const struct jinja_at at = in->token.at;
        struct jinja_node *right;
        SW_TRY(next(in));
        SW_TRY(read_not(in, &right));
        SW_TRY(new_pair(in, JINJA_AND, at, (struct jinja_node *[]){*out, right}, out));
    }
    return SW_OK;
}

static sw_status read_or(struct reader *in, struct jinja_node **out)
{
    SW_TRY(read_and(in, out));
    while (is_word(in, "or")) {
        const struct jinja_at at = in->token.at;
        struct jinja_node *right;
        SW_TRY(next(in));
        SW_TRY(read_and(in, &right));
        SW_TRY(new_pair(in, JINJA_OR, at, (struct jinja_node *[]){*out, right}, out));
    }
    return SW_OK;
}

static sw_status read_expression(struct reader *in, struct jinja_node **out)
{
    if (++in->depth > MOST_DEPTH) {
        return fail_at(in, in->token.at, SW_E_FORMAT, "too many expressions in each other");
    }
    SW_TRY(read_or(in, out));
    while (is_word(in, "if")) {
        const struct jinja_at at = in->token.at;
        struct jinja_node *condition, *other = NULL, *whole;
        SW_TRY(next(in));
        SW_TRY(read_or(in, &condition));
        if (is_word(in, "else")) {
            SW_TRY(next(in));
            SW_TRY(read_expression(in, &other));
        }
        SW_TRY(new_pair(in, JINJA_IF_ELSE, at, (struct jinja_node *[]){condition, *out}, &whole));
        SW_TRY(add_kid(in, whole, other));
        *out = whole;
    }
    in->depth--;
    return SW_OK;
}

/* a, b, c without brackets is a list. */
static sw_status read_expressions(struct reader *in, struct jinja_node **out)
{
    const struct jinja_at at = in->token.at;
    SW_TRY(read_expression(in, out));
    if (!is_mark(in, ",")) {
        return SW_OK;
    }
    struct jinja_node *list;
    SW_TRY(new_unary(in, JINJA_LIST, at, *out, &list));
    while (is_mark(in, ",")) {
        struct jinja_node *item;
        SW_TRY(next(in));
        if (in->token.kind == TOKEN_END) {
            break;
        }
        SW_TRY(read_expression(in, &item));
        SW_TRY(add_kid(in, list, item));
    }
    *out = list;
    return SW_OK;
}

/* ---- statements ---- */

static sw_status read_body(struct reader *in, const char *const *ends, struct jinja_node **out);

static bool is_loop(const struct jinja_node *name)
{
    return name->len == 4 && memcmp(name->text, "loop", 4) == 0;
}

/* Reads the target of an assignment: a name, several names, or a namespace member.
 * may_be_attr: a member is allowed, as in {% set %}; not in {% for %} */
static sw_status read_target(struct reader *in, bool may_be_attr, struct jinja_node **out)
{
    struct jinja_node *list = NULL;
    const bool brackets = is_mark(in, "(");
    SW_TRY(brackets ? next(in) : SW_OK);
    for (;;) {
        const struct jinja_at at = in->token.at;
        if (in->token.kind != TOKEN_NAME) {
            return fail_token(in, "a name");
        }
        SW_TRY(read_name(in, out));
        if ((*out)->kind != JINJA_NAME) {
            return fail_at(in, at, SW_E_FORMAT, "a constant cannot be assigned");
        }
        if (is_loop(*out) && !is_mark(in, ".") && (in->in_loop || !may_be_attr)) {
            return fail_at(in, at, SW_E_FORMAT, "`loop` cannot be assigned in a loop");
        }
        if (may_be_attr && is_mark(in, ".")) {
            struct jinja_node *attr;
            SW_TRY(next(in));
            if (in->token.kind != TOKEN_NAME) {
                return fail_token(in, "a name");
            }
            SW_TRY(new_unary(in, JINJA_ATTR, at, *out, &attr));
            take_text(in, attr);
            SW_TRY(next(in));
            *out = attr;
        }
        if (!list && is_mark(in, ",")) {
            SW_TRY(new_node(in, JINJA_LIST, at, &list));
        }
        SW_TRY(list ? add_kid(in, list, *out) : SW_OK);
        if (!is_mark(in, ",")) {
            break;
        }
        SW_TRY(next(in));
    }
    *out = list ? list : *out;
    return brackets ? want_mark(in, ")") : SW_OK;
}

/* After a body, the next token is the word that ended it. */
static sw_status read_if(struct reader *in, struct jinja_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    struct jinja_node *condition, *body;
    for (;;) {
        SW_TRY(next(in)); /* if, elif */
        SW_TRY(read_expression(in, &condition));
        SW_TRY(read_body(in, ends, &body));
        SW_TRY(add_kid(in, node, condition));
        SW_TRY(add_kid(in, node, body));
        if (!is_word(in, "elif")) {
            break;
        }
    }
    if (is_word(in, "else")) {
        SW_TRY(next(in));
        SW_TRY(read_body(in, last, &body));
        SW_TRY(add_kid(in, node, body));
    }
    return next(in);
}

static sw_status read_for(struct reader *in, struct jinja_node *node)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    struct jinja_node *target, *what, *filter = NULL, *body, *other = NULL;
    SW_TRY(next(in));
    SW_TRY(read_target(in, false, &target));
    SW_TRY(want_word(in, "in"));
    SW_TRY(read_or(in, &what)); /* "if" here is the loop's */
    if (is_word(in, "if")) {
        SW_TRY(next(in));
        SW_TRY(read_expression(in, &filter));
    }
    if (is_word(in, "recursive")) {
        return fail_at(in, in->token.at, SW_E_UNSUP, "a recursive loop is not built");
    }
    const bool in_loop = in->in_loop;
    in->loops++;
    in->in_loop = true;
    SW_TRY(read_body(in, ends, &body));
    in->in_loop = in_loop;
    in->loops--;
    if (is_word(in, "else")) {
        SW_TRY(next(in));
        SW_TRY(read_body(in, last, &other));
    }
    struct jinja_node *const kids[] = {target, what, filter, body, other};
    for (size_t i = 0; i < SW_LEN(kids); ++i) {
        SW_TRY(add_kid(in, node, kids[i]));
    }
    return next(in);
}

static sw_status read_set(struct reader *in, struct jinja_node *node)
{
    static const char *const ends[] = {"endset", NULL};
    struct jinja_node *target, *value;
    SW_TRY(next(in));
    SW_TRY(read_target(in, true, &target));
    SW_TRY(add_kid(in, node, target));
    if (is_mark(in, "=")) {
        SW_TRY(next(in));
        SW_TRY(read_expressions(in, &value));
        return add_kid(in, node, value);
    }
    if (is_mark(in, "|")) {
        return fail_at(in, in->token.at, SW_E_UNSUP, "a filter of a set block is not built");
    }
    const bool in_set = in->in_set;
    node->kind = JINJA_SET_BLOCK;
    in->in_set = true;
    SW_TRY(read_body(in, ends, &value));
    in->in_set = in_set;
    SW_TRY(add_kid(in, node, value));
    return next(in);
}

static sw_status read_generation(struct reader *in, struct jinja_node *node)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct jinja_node *body;
    if (in->in_macro || in->in_set) { /* the place where its text is printed is not known */
        return fail_at(in, node->at, SW_E_UNSUP,
                       in->in_set ? "a generation block inside a set block is not built"
                                  : "a generation block inside a macro is not built");
    }
    const bool in_generation = in->in_generation;
    const int loops = in->loops;
    in->out->marks = true;
    in->in_generation = true;
    in->loops = 0;
    SW_TRY(next(in));
    SW_TRY(read_body(in, ends, &body));
    in->loops = loops;
    in->in_generation = in_generation;
    SW_TRY(add_kid(in, node, body));
    return next(in);
}

/* Reads a name and its default into the parameters of a macro. */
static sw_status read_parameter(struct reader *in, struct jinja_node *macro)
{
    struct jinja_node *name, *standard = NULL, *parameter;
    if (in->token.kind != TOKEN_NAME) {
        return fail_token(in, "the name of a parameter");
    }
    SW_TRY(read_name(in, &name));
    bool is_taken = name->kind != JINJA_NAME;
    for (int i = 0; i < macro->n_kids; ++i) {
        const struct jinja_node *other = macro->kids[i];
        is_taken |= other->len == name->len && memcmp(other->text, name->text, name->len) == 0;
    }
    if (is_taken) {
        return fail_at(in, name->at, SW_E_FORMAT,
                       "a parameter has the name of another one, or of a constant");
    }
    if (is_mark(in, "=")) {
        SW_TRY(next(in));
        SW_TRY(read_expression(in, &standard));
    } else if (macro->n_kids > 0 && macro->kids[macro->n_kids - 1]->kids[0]) {
        return fail_at(in, name->at, SW_E_FORMAT,
                       "a parameter without a default comes after one that has a default");
    }
    SW_TRY(new_unary(in, JINJA_KEYWORD, name->at, standard, &parameter));
    parameter->text = name->text;
    parameter->len = name->len;
    return add_kid(in, macro, parameter);
}

static sw_status read_parameters(struct reader *in, struct jinja_node *macro)
{
    SW_TRY(want_mark(in, "("));
    while (!is_mark(in, ")")) {
        if (macro->n_kids == JINJA_MOST_ARGUMENTS) {
            return fail_at(in, in->token.at, SW_E_UNSUP, "a macro of so many parameters");
        }
        SW_TRY(read_parameter(in, macro));
        if (!is_mark(in, ")")) {
            SW_TRY(want_mark(in, ","));
        }
    }
    return next(in);
}

/* A macro sees its parameters and the names of the whole template. A macro inside a block that has
 * its own names would see names that no longer exist when it is called. */
static sw_status read_macro(struct reader *in, struct jinja_node *node)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct jinja_node *body;
    if (in->in_loop || in->in_macro || in->in_set || in->in_generation) {
        return fail_at(in, node->at, SW_E_UNSUP,
                       in->in_loop || in->in_macro
                           ? "a macro inside a loop or a macro is not built"
                           : "a macro inside a set or generation block is not built");
    }
    SW_TRY(next(in));
    if (in->token.kind != TOKEN_NAME) {
        return fail_token(in, "the name of a macro");
    }
    take_text(in, node);
    SW_TRY(next(in));
    SW_TRY(read_parameters(in, node));
    in->in_macro = true;
    SW_TRY(read_body(in, ends, &body));
    in->in_macro = false;
    SW_TRY(add_kid(in, node, body));
    return next(in);
}

static sw_status read_jump(struct reader *in, struct jinja_node *node)
{
    (void)node;
    return in->loops > 0 ? next(in) : fail_token(in, "this inside a loop");
}

static sw_status read_statement(struct reader *in, struct jinja_node **out)
{
    static const struct {
        const char *word;
        enum jinja_kind kind;
        sw_status (*read)(struct reader *in, struct jinja_node *node);
    } statements[] = {{"if", JINJA_IF, read_if},
                      {"for", JINJA_FOR, read_for},
                      {"set", JINJA_SET, read_set},
                      {"generation", JINJA_GENERATION, read_generation},
                      {"macro", JINJA_MACRO, read_macro},
                      {"break", JINJA_BREAK, read_jump},
                      {"continue", JINJA_CONTINUE, read_jump}};
    static const char *const unbuilt[] = {"call",    "filter",     "block", "extends",
                                          "include", "import",     "from",  "with",
                                          "raw",     "autoescape", "do"};
    for (size_t i = 0; i < SW_LEN(statements); ++i) {
        if (is_word(in, statements[i].word)) {
            SW_TRY(new_node(in, statements[i].kind, in->token.at, out));
            SW_TRY(statements[i].read(in, *out));
            return want_end(in);
        }
    }
    for (size_t i = 0; i < SW_LEN(unbuilt); ++i) {
        if (is_word(in, unbuilt[i])) {
            return SW_FAIL(SW_E_UNSUP, "%s:%d:%d: the statement %s is not built", in->out->name,
                           in->token.at.line, in->token.at.column, unbuilt[i]);
        }
    }
    return fail_token(in, "a statement");
}

/* ---- text and tags ---- */

/* Removes the white space or newline that the end of a tag consumes. */
static void end_tag(struct reader *in)
{
    const char sign = peek(in, 0);
    in->pos += tag_end(in);
    if (sign == '-') {
        while (in->pos < in->len && isspace((unsigned char)in->text[in->pos])) {
            in->pos++;
        }
    } else if (in->closing == '%' && sign != '+' && peek(in, 0) == '\n') {
        in->pos++;
    }
}

/* Offset of the next tag; the length if there is none. */
static size_t find_tag(const struct reader *in)
{
    size_t at = in->pos;
    while (at + 1 < in->len && !(in->text[at] == '{' && strchr("{%#", in->text[at + 1]))) {
        at++;
    }
    return at + 1 < in->len ? at : in->len;
}

/* Adds the text before a tag, without the white space that the tag consumes. */
static sw_status add_text(struct reader *in, size_t end, struct jinja_node *body)
{
    const size_t first = in->pos;
    size_t last = end;
    const char kind = end < in->len ? in->text[end + 1] : '\0';
    const char sign = end + 2 < in->len ? in->text[end + 2] : '\0';
    if (kind && sign == '-') {
        while (last > first && isspace((unsigned char)in->text[last - 1])) {
            last--;
        }
    } else if ((kind == '%' || kind == '#') && sign != '+') {
        while (last > first && (in->text[last - 1] == ' ' || in->text[last - 1] == '\t')) {
            last--;
        }
        if (last > 0 && in->text[last - 1] != '\n') { /* the line has other text */
            last = end;
        }
    }
    if (last > first) {
        struct jinja_node *text;
        SW_TRY(new_node(in, JINJA_TEXT, where(in, first), &text));
        text->text = in->text + first;
        text->len = last - first;
        SW_TRY(add_kid(in, body, text));
    }
    in->pos = end;
    return SW_OK;
}

static sw_status skip_comment(struct reader *in)
{
    const struct jinja_at at = where(in, in->pos);
    in->pos += 2;
    while (in->pos + 1 < in->len && !(in->text[in->pos] == '#' && in->text[in->pos + 1] == '}')) {
        in->pos++;
    }
    if (in->pos + 1 >= in->len) {
        return fail_at(in, at, SW_E_FORMAT, "a comment does not end");
    }
    const char sign = in->text[in->pos - 1];
    in->pos += 2;
    if (sign == '-') {
        while (in->pos < in->len && isspace((unsigned char)in->text[in->pos])) {
            in->pos++;
        }
    } else if (sign != '+' && peek(in, 0) == '\n') {
        in->pos++;
    }
    return SW_OK;
}

static sw_status open_tag(struct reader *in, char closing)
{
    in->closing = closing;
    in->braces = 0;
    in->pos += 2;
    in->pos += peek(in, 0) == '-' || peek(in, 0) == '+';
    return next(in);
}

static bool is_one_of(const struct reader *in, const char *const *words)
{
    for (; words && *words; ++words) {
        if (is_word(in, *words)) {
            return true;
        }
    }
    return false;
}

/* Reads statements up to a tag that begins with one of `ends` (NULL: to the end of the text). That
 * word is then the next token. The rest of the enclosing tag is read first. */
static sw_status read_body(struct reader *in, const char *const *ends, struct jinja_node **out)
{
    struct jinja_node *body, *statement;
    if (++in->depth > MOST_DEPTH) {
        return fail_at(in, in->token.at, SW_E_FORMAT, "too many blocks in each other");
    }
    SW_TRY(new_node(in, JINJA_BODY, in->token.at, &body));
    if (ends) {
        SW_TRY(want_end(in));
        end_tag(in);
    }
    for (;;) {
        SW_TRY(add_text(in, find_tag(in), body));
        if (in->pos >= in->len) {
            break;
        }
        const char kind = in->text[in->pos + 1];
        if (kind == '#') {
            SW_TRY(skip_comment(in));
            continue;
        }
        const struct jinja_at at = where(in, in->pos);
        SW_TRY(open_tag(in, kind == '{' ? '}' : '%'));
        if (kind == '%' && is_one_of(in, ends)) {
            in->depth--;
            *out = body;
            return SW_OK;
        }
        if (kind == '{') {
            SW_TRY(read_expressions(in, &statement));
            SW_TRY(want_end(in));
            SW_TRY(new_unary(in, JINJA_OUTPUT, at, statement, &statement));
        } else {
            SW_TRY(read_statement(in, &statement));
        }
        end_tag(in);
        SW_TRY(add_kid(in, body, statement));
    }
    in->depth--;
    *out = body;
    return ends ? SW_FAIL(SW_E_FORMAT, "%s:%d:%d: the block does not end: wanted %s", in->out->name,
                          body->at.line, body->at.column, ends[0])
                : SW_OK;
}

/* Converts line ends to 
 and removes the last one. */
static sw_status copy_text(struct sw_jinja *template, const char *text, size_t len,
                           struct reader *in)
{
    char *copy = sw_arena_alloc(&template->arena, len + 1);
    size_t n = 0;
    SW_TRY_ALLOC(copy, "a template");
    for (size_t i = 0; i < len; ++i) {
        if (text[i] == '\r') {
            copy[n++] = '\n';
            i += i + 1 < len && text[i + 1] == '\n';
        } else {
            copy[n++] = text[i];
        }
    }
    n -= n > 0 && copy[n - 1] == '\n';
    copy[n] = '\0';
    in->text = copy;
    in->len = n;
    return SW_OK;
}

static sw_status parse(struct sw_jinja *template, const char *name, const char *text, size_t len)
{
    struct reader in = {.out = template, .at = {1, 1}};
    template->name = sw_arena_strdup(&template->arena, name);
    SW_TRY_ALLOC(template->name, "a template");
    if (len > MOST_BYTES) {
        return SW_FAIL(SW_E_FORMAT, "%s: a template of %zu bytes, at most %d", name, len,
                       MOST_BYTES);
    }
    SW_TRY(sw_utf8_check(name, text, len));
    SW_TRY(copy_text(template, text, len, &in));
    return read_body(&in, NULL, &template->root);
}

sw_status sw_jinja_open(const char *name, const char *text, size_t len, struct sw_jinja **out)
{
    struct sw_jinja *template = sw_alloc_zero("template", 1, sizeof(*template));
    SW_TRY_ALLOC(template, "a template");
    sw_arena_init(&template->arena, "template");
    const sw_status st = parse(template, name, text, len);
    if (st < 0) {
        sw_jinja_close(template);
        return st;
    }
    *out = template;
    return SW_OK;
}

void sw_jinja_close(struct sw_jinja *template)
{
    if (template) {
        sw_arena_fini(&template->arena);
        sw_free(template);
    }
}

bool sw_jinja_marks(const struct sw_jinja *template)
{
    return template->marks;
}
