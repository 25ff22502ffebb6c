// SPDX-License-Identifier: Apache-2.0
// A pattern is compiled to a program of byte sets, splits and jumps. All its threads run over the
// text together (Thompson 1968), so matching takes at most pattern length times text length.
// Patterns come from untrusted files, so compilation is bounded as well.
#include "nn/pattern.h"

#include <string.h>

enum { MOST_INSTRS = 4096, MOST_DEPTH = 8, MOST_TIMES = 1000 };
enum { MOST_EMITTED = 1 << 17 }; /* counts instructions that a repetition drops and emits anew */
enum { MOST_ALTERNATIVES = 256 };
enum instr_op { INSTR_SET, INSTR_SPLIT, INSTR_BEGIN, INSTR_END, INSTR_MATCH };

struct instr {
    enum instr_op op;
    int x, y;        /* SPLIT: both successors; otherwise x is the successor */
    uint8_t set[32]; /* SET: the bytes that it accepts */
};

struct compiler {
    const char *pattern, *at;
    struct instr *instrs;
    int n, n_emitted, depth;
    const char *problem; /* NULL = no error so far */
};

static bool fail(struct compiler *c, const char *problem)
{
    c->problem = c->problem ? c->problem : problem;
    return false;
}

static int emit(struct compiler *c, enum instr_op op)
{
    if (c->n == MOST_INSTRS || ++c->n_emitted > MOST_EMITTED) {
        fail(c, "it is too long");
        return 0; /* instructions emitted there never run */
    }
    struct instr *instr = &c->instrs[c->n];
    memset(instr, 0, sizeof *instr);
    instr->op = op;
    instr->x = instr->y = c->n + 1;
    return c->n++;
}

static void add(uint8_t *set, int from, int to)
{
    for (int b = from; b <= to; b++) {
        set[b / 8] |= (uint8_t)(1U << (b % 8));
    }
}

/* \d, \w, \s and their opposites, or one character. Returns the character for the latter, else
 * -1. */
static int add_escape(struct compiler *c, char letter, uint8_t *set)
{
    uint8_t named[32] = {0};
    const char lower = (char)(letter | 0x20);
    if (strchr("dDwWsS", letter)) {
        add(named, '0', lower == 's' ? '0' - 1 : '9');
        if (lower == 'w') {
            add(named, 'a', 'z');
            add(named, 'A', 'Z');
            add(named, '_', '_');
        } else if (lower == 's') {
            add(named, '\t', '\r');
            add(named, ' ', ' ');
        }
        for (int i = 0; i < 32; i++) {
            set[i] |= letter == lower ? named[i] : (uint8_t)~named[i];
        }
        return -1;
    }
    if ((letter >= '0' && letter <= '9') || (lower >= 'a' && lower <= 'z')) {
        fail(c, "an escape that is not built (\\d, \\w, \\s and their capitals are)");
    }
    add(set, (unsigned char)letter, (unsigned char)letter);
    return (unsigned char)letter;
}

/* One member of a class; returns the character if it is one, else -1. */
static int class_member(struct compiler *c, uint8_t *set)
{
    const char letter = *c->at++;
    if (letter == '\\' && *c->at) {
        return add_escape(c, *c->at++, set);
    }
    add(set, (unsigned char)letter, (unsigned char)letter);
    return (unsigned char)letter;
}

/* Parses a class after its "[". */
static bool class_of(struct compiler *c, uint8_t *set)
{
    const bool inverted = *c->at == '^';
    c->at += inverted;
    for (bool first = true; *c->at != ']' || first; first = false) {
        if (!*c->at) {
            return fail(c, "a class without its ]");
        }
        const int from = class_member(c, set);
        if (*c->at == '-' && c->at[1] && c->at[1] != ']') {
            uint8_t last[32] = {0};
            c->at++;
            const int to = class_member(c, last);
            if (from < 0 || to < from) {
                return fail(c, "a reversed range in a class");
            }
            add(set, from, to);
        }
    }
    c->at++;
    for (int i = 0; inverted && i < 32; i++) {
        set[i] = (uint8_t)~set[i];
    }
    return true;
}

static bool alternatives(struct compiler *c);

static bool group(struct compiler *c)
{
    if (c->at[0] == '?' && c->at[1] == ':') {
        c->at += 2;
    } else if (c->at[0] == '?') {
        return fail(c, "a group that is not built ((..) and (?:..) are)");
    }
    if (++c->depth > MOST_DEPTH || !alternatives(c) || *c->at != ')') {
        return fail(c, c->depth > MOST_DEPTH ? "its groups are too deep" : "a ( without its )");
    }
    c->depth--;
    c->at++;
    return true;
}

static bool atom(struct compiler *c)
{
    const char letter = *c->at++;
    if (letter == '(') {
        return group(c);
    }
    if (strchr("*+?{", letter)) {
        return fail(c, "a repetition of nothing");
    }
    const int i = emit(c, letter == '^' ? INSTR_BEGIN : letter == '$' ? INSTR_END : INSTR_SET);
    uint8_t *set = c->instrs[i].set;
    if (letter == '.') {
        add(set, 0, 255);
        set['\n' / 8] &= (uint8_t) ~(1U << ('\n' % 8));
    } else if (letter == '[') {
        return class_of(c, set);
    } else if (letter == '\\') {
        if (!*c->at) {
            return fail(c, "it ends in a backslash");
        }
        add_escape(c, *c->at++, set);
    } else if (letter != '^' && letter != '$') {
        add(set, (unsigned char)letter, (unsigned char)letter);
    }
    return !c->problem;
}

static bool number(struct compiler *c, int *out)
{
    const char *begin = c->at;
    int value = 0;
    while (*c->at >= '0' && *c->at <= '9') {
        value = value > MOST_TIMES ? value : 10 * value + (*c->at - '0');
        c->at++;
    }
    *out = value;
    return c->at > begin;
}

/* Parses the quantifier after an atom; *most -1 = unlimited. */
static bool quantifier(struct compiler *c, int *least, int *most)
{
    *least = *most = 1;
    if (*c->at == '*' || *c->at == '+' || *c->at == '?') {
        *least = *c->at == '+';
        *most = *c->at == '?' ? 1 : -1;
        c->at++;
    } else if (*c->at == '{') {
        c->at++;
        const bool some = number(c, least);
        *least = some ? *least : 0;
        *most = *least;
        if (*c->at == ',') {
            c->at++;
            *most = number(c, most) ? *most : -1;
        } else if (!some) {
            return fail(c, "{ without numbers");
        }
        if (*c->at++ != '}' || (*most >= 0 && *most < *least) || *least > MOST_TIMES ||
            *most > MOST_TIMES) {
            return fail(c, "an invalid {m,n}, or one above 1000");
        }
    } else {
        return true;
    }
    c->at += *c->at == '?'; /* laziness does not change whether the whole text matches */
    return strchr("*+{", *c->at) && *c->at ? fail(c, "a repetition of a repetition") : true;
}

/* An atom with its quantifier; the atom's text is compiled anew for each repetition. */
static bool piece(struct compiler *c)
{
    const char *begin = c->at;
    const int first = c->n;
    int least, most;
    if (!atom(c) || !quantifier(c, &least, &most)) {
        return false;
    }
    if (least == 1 && most == 1) {
        return true;
    }
    const char *end = c->at;
    c->n = first;
    for (int i = 0; i < least && !c->problem; i++) {
        c->at = begin;
        atom(c);
    }
    if (most < 0) {
        const int split = emit(c, INSTR_SPLIT);
        c->at = begin;
        atom(c);
        const int back = emit(c, INSTR_SPLIT);
        c->instrs[back].x = c->instrs[back].y = split;
        c->instrs[split].y = c->n;
    }
    int splits[MOST_TIMES];
    int n = 0;
    for (int i = least; i < most && !c->problem; i++) {
        splits[n++] = emit(c, INSTR_SPLIT);
        c->at = begin;
        atom(c);
    }
    while (n > 0) {
        c->instrs[splits[--n]].y = c->n;
    }
    c->at = end;
    return !c->problem;
}

/* a|b|c: each alternative is preceded by a split to it and the next one, and followed by a jump to
 * the end. */
static bool alternatives(struct compiler *c)
{
    int jumps[MOST_ALTERNATIVES];
    int n_jumps = 0;
    for (;;) {
        const int first = emit(c, INSTR_SPLIT); /* falls through unless there is a | */
        while (*c->at && *c->at != '|' && *c->at != ')') {
            if (!piece(c)) {
                return false;
            }
        }
        if (*c->at != '|') {
            break;
        }
        c->at++;
        if (n_jumps == MOST_ALTERNATIVES) {
            return fail(c, "it has too many alternatives");
        }
        jumps[n_jumps++] = emit(c, INSTR_SPLIT);
        c->instrs[first].y = c->n;
    }
    while (n_jumps > 0) {
        struct instr *jump = &c->instrs[jumps[--n_jumps]];
        jump->x = jump->y = c->n;
    }
    return !c->problem;
}

/* ---- running ---- */

struct threads {
    int *list; /* instructions that wait for a byte, and those leading to them; each once */
    int *seen; /* per instruction: text position at which it was added, + 1 */
    int n;
};

static void follow(const struct instr *instrs, struct threads *t, int start, const char *text,
                   size_t place)
{
    int at = t->n;
    if (t->seen[start] == (int)place + 1) {
        return;
    }
    t->seen[start] = (int)place + 1;
    t->list[t->n++] = start;
    for (; at < t->n; at++) {
        const struct instr *instr = &instrs[t->list[at]];
        const bool passes = instr->op == INSTR_SPLIT || (instr->op == INSTR_BEGIN && place == 0) ||
                            (instr->op == INSTR_END && text[place] == '\0');
        const int next[2] = {instr->x, instr->y};
        for (int k = 0; k < 2 && passes; k++) {
            if (t->seen[next[k]] != (int)place + 1) {
                t->seen[next[k]] = (int)place + 1;
                t->list[t->n++] = next[k];
            }
        }
    }
}

static bool run(const struct instr *instrs, int n, const char *text, int *memory)
{
    struct threads now = {memory, memory + n, 0};
    struct threads then = {memory + 2 * n, memory + 3 * n, 0};
    size_t place = 0;
    follow(instrs, &now, 0, text, 0);
    for (; text[place] && now.n > 0; place++) {
        const unsigned char byte = (unsigned char)text[place];
        then.n = 0;
        for (int i = 0; i < now.n; i++) {
            const struct instr *instr = &instrs[now.list[i]];
            if (instr->op == INSTR_SET && instr->set[byte / 8] >> (byte % 8) & 1) {
                follow(instrs, &then, instr->x, text, place + 1);
            }
        }
        const struct threads swap = now;
        now = then;
        then = swap;
    }
    for (int i = 0; i < now.n && text[place] == '\0'; i++) {
        if (instrs[now.list[i]].op == INSTR_MATCH) {
            return true;
        }
    }
    return false;
}

sw_status sw_nn_pattern_match(const char *pattern, const char *text, bool *out)
{
    struct compiler c = {.pattern = pattern, .at = pattern};
    sw_status st = SW_OK;
    int *memory = NULL;
    c.instrs = sw_alloc("nn", MOST_INSTRS * sizeof *c.instrs);
    SW_TRY_ALLOC(c.instrs, "a pattern");
    if (alternatives(&c) && *c.at == ')') {
        fail(&c, "a ) without its (");
    }
    emit(&c, INSTR_MATCH);
    if (c.problem) {
        st = SW_FAIL(SW_E_CONFIG, "\"%.200s\" is not a pattern of names: %s", pattern, c.problem);
        goto done;
    }
    memory = sw_alloc_zero("nn", 4 * (size_t)c.n, sizeof *memory);
    if (!memory) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a pattern");
        goto done;
    }
    *out = run(c.instrs, c.n, text, memory);
done:
    sw_free(c.instrs);
    sw_free(memory);
    return st;
}
