// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target (LLVMFuzzerTestOneInput) on mutations of seed files, where libFuzzer is not
// linked. Execution i is a pure function of (seed, i, the seed files): what a crash prints is
// enough to repeat it alone.
//
//     fuzz_x [-n EXECUTIONS] [-s SEED] [-i ONLY] [FILE|FOLDER ..]
#include "base/base.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SEEDS = 256, INPUT_CAP = 1 << 16, MAX_EDITS = 6 };

/* Pieces that parsers of text and of length-prefixed headers stumble over. */
static const struct {
    const char *bytes;
    size_t len;
} pieces[] = {
#define PIECE(text)                                                                                \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
    PIECE("{"),
    PIECE("}"),
    PIECE("["),
    PIECE("]"),
    PIECE(":"),
    PIECE(","),
    PIECE("\""),
    PIECE("\\"),
    PIECE("{\"a\":"),
    PIECE("[[[[[[[["),
    PIECE("null"),
    PIECE("true"),
    PIECE("false"),
    PIECE("\"auto\""),
    PIECE("0"),
    PIECE("-1"),
    PIECE("1e999"),
    PIECE("1e-400"),
    PIECE("0.1"),
    PIECE("9223372036854775807"),
    PIECE("9223372036854775808"),
    PIECE("18446744073709551616"),
    PIECE("NaN"),
    PIECE("Infinity"),
    PIECE("//"),
    PIECE("/*"),
    PIECE("*/"),
    PIECE("#"),
    PIECE("\\u0000"),
    PIECE("\\ud800"),
    PIECE("\\udc00"),
    PIECE("\xc3"),
    PIECE("\xed\xa0\x80"),
    PIECE("\xf4\x90\x80\x80"),
    PIECE("\xef\xbb\xbf"),
    PIECE("\0"),
    PIECE("\0\0\0\0\0\0\0\0"),
    PIECE("\xff\xff\xff\xff\xff\xff\xff\xff"),
    PIECE("\x08\0\0\0\0\0\0\0"),
    PIECE("\xff\xff\xff\xff\xff\xff\xff\x7f"),
#undef PIECE
};

struct input {
    uint8_t *bytes;
    size_t len;
};

/* One stream of random numbers per execution. */
struct dice {
    uint64_t seed, stream, next;
};

static struct input seeds[MAX_SEEDS];
static size_t n_seeds;
static volatile long long current; /* the execution under way, for the handler */

static size_t roll(struct dice *dice, size_t sides)
{
    return sides ? (size_t)(sw_philox_u64(dice->seed, dice->stream, dice->next++) % sides) : 0;
}

/* Replaces `cut` bytes at `at` by `len` others; what passes the cap falls off the end. */
static void replace(struct input *in, size_t at, size_t cut, const uint8_t *with, size_t len)
{
    uint8_t kept[INPUT_CAP];
    const size_t n_tail = in->len - at - cut;
    memcpy(kept, in->bytes + at + cut, n_tail);
    len = len < INPUT_CAP - at ? len : INPUT_CAP - at;
    if (len) {
        memmove(in->bytes + at, with, len);
    }
    const size_t room = INPUT_CAP - at - len;
    memcpy(in->bytes + at + len, kept, n_tail < room ? n_tail : room);
    in->len = at + len + (n_tail < room ? n_tail : room);
}

static void edit(struct input *in, struct dice *dice)
{
    const size_t at = roll(dice, in->len + 1), rest = in->len - at;
    const size_t span = roll(dice, (rest < 64 ? rest : 64) + 1);
    const size_t i_piece = roll(dice, SW_LEN(pieces));
    const uint8_t *piece = (const uint8_t *)pieces[i_piece].bytes;
    const struct input *other = &seeds[roll(dice, n_seeds)];
    const size_t from = roll(dice, other->len + 1);
    const size_t n_other = roll(dice, other->len - from + 1);
    const uint8_t byte = (uint8_t)roll(dice, 256);
    switch (roll(dice, 9)) {
    case 0: /* flip a bit */
        if (rest) {
            in->bytes[at] ^= (uint8_t)(1 << byte % 8);
        }
        break;
    case 1: /* another byte */
        if (rest) {
            in->bytes[at] = byte;
        }
        break;
    case 2: /* remove a span */
        replace(in, at, span, NULL, 0);
        break;
    case 3: /* repeat a span */
        replace(in, at, 0, in->bytes + at, span);
        break;
    case 4: /* insert a piece */
        replace(in, at, 0, piece, pieces[i_piece].len);
        break;
    case 5: /* put a piece over a span */
        replace(in, at, span, piece, pieces[i_piece].len);
        break;
    case 6: /* a part of another seed */
        replace(in, at, span, other->bytes + from, n_other);
        break;
    case 7: /* another digit in the next number */
        for (size_t i = at; i < in->len; i++) {
            if (in->bytes[i] >= '0' && in->bytes[i] <= '9') {
                in->bytes[i] = (uint8_t)('0' + byte % 10);
                break;
            }
        }
        break;
    case 8: /* cut off the end */
        if (byte < 32) {
            in->len = at;
        }
        break;
    }
}

/* Called first, as by libFuzzer. A target that cannot do anything in this build exits there with
 * status 77. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

/* A target that keeps something from one execution to the next frees it here. */
__attribute__((weak)) void fuzz_end(void);

static void execute(uint64_t seed, long long i)
{
    static uint8_t mutated[INPUT_CAP];
    struct dice dice = {.seed = seed, .stream = (uint64_t)i};
    const struct input *base = &seeds[(size_t)i < n_seeds ? (size_t)i : roll(&dice, n_seeds)];
    struct input in = {mutated, base->len};
    memcpy(mutated, base->bytes, base->len);
    /* The first ones take the seeds as they are. */
    const size_t n_edits = (size_t)i < n_seeds ? 0 : 1 + roll(&dice, MAX_EDITS);
    for (size_t k = 0; k < n_edits; k++) {
        edit(&in, &dice);
    }
    /* A block of exactly this length, so that a sanitizer sees a read past the end. */
    uint8_t *exact = sw_alloc("fuzz", in.len);
    if (!exact) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    memcpy(exact, mutated, in.len);
    LLVMFuzzerTestOneInput(exact, in.len);
    sw_free(exact);
}

static void on_crash(int number)
{
    char text[64] = "\ncrashed in execution ";
    size_t len = strlen(text);
    char digits[24];
    int n = 0;
    for (long long i = current; i > 0 || n == 0; i /= 10) {
        digits[n++] = (char)('0' + i % 10);
    }
    while (n > 0) {
        text[len++] = digits[--n];
    }
    text[len++] = '\n';
    const ssize_t written = write(STDERR_FILENO, text, len);
    (void)written;
    signal(number, SIG_DFL);
    raise(number);
}

static void add_seed(const char *path)
{
    char *bytes;
    size_t len;
    if (sw_file_read(path, &bytes, &len) < 0) {
        fprintf(stderr, "%s\n", sw_error_message());
        exit(2);
    }
    if (len <= INPUT_CAP && n_seeds < MAX_SEEDS) {
        seeds[n_seeds++] = (struct input){(uint8_t *)bytes, len};
    } else {
        sw_free(bytes);
    }
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Folders in the order of names: an execution must not depend on the order of the file system. */
static void add_seeds(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        add_seed(path);
        return;
    }
    struct dirent **entries;
    const int n = scandir(path, &entries, is_visible, alphasort);
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
        add_seed(file);
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
}

int main(int argc, char **argv)
{
    long long n = 20000, only = -1;
    uint64_t seed = 1;
    if (LLVMFuzzerInitialize) {
        LLVMFuzzerInitialize(&argc, &argv);
    }
    for (int opt; (opt = getopt(argc, argv, "n:s:i:")) != -1;) {
        switch (opt) {
        case 'n':
            n = atoll(optarg);
            break;
        case 's':
            seed = strtoull(optarg, NULL, 10);
            break;
        case 'i':
            only = atoll(optarg);
            break;
        default:
            return 2;
        }
    }
    seeds[n_seeds++] = (struct input){sw_alloc_zero("fuzz", 1, 1), 0}; /* from nothing */
    for (int i = optind; i < argc; i++) {
        add_seeds(argv[i]);
    }
    const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < SW_LEN(signals); i++) {
        signal(signals[i], on_crash);
    }
    for (long long i = only >= 0 ? only : 0; i < (only >= 0 ? only + 1 : n); i++) {
        current = i;
        execute(seed, i);
    }
    for (size_t i = 0; i < n_seeds; i++) {
        sw_free(seeds[i].bytes);
    }
    if (fuzz_end) {
        fuzz_end();
    }
    struct sw_alloc_stats stats;
    sw_alloc_get_stats(&stats);
    printf("%lld executions on %zu seeds, %lld blocks left\n", only >= 0 ? 1 : n, n_seeds,
           (long long)stats.live_blocks);
    return stats.live_blocks != 0;
}
