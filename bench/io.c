// SPDX-License-Identifier: Apache-2.0
// Throughput of files on a fast disk: our store and fio's libaio, io_uring, and io_uring with
// registered memory and files. Each runs with memory in ordinary and in huge pages. All of them
// read, write, and mix both, on one existing file with O_DIRECT, with the same block size and
// depth. They run in turns, and each round starts with another one. Figures are medians; ratios are
// to fio's best way with the same kind of memory. A write's time includes making it durable.
//
//     bench_io [--path .] [--gib 2] [--rounds 7] [--block 1048576] [--depth 32]
//
// Without fio only our store is measured.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/nvme.h"

enum { IN_FLIGHT = 4, MAX_ROUNDS = 1000 };
#define GB 1e9

enum kind { READ, WRITE, MIXED, N_KINDS };
static const char *const kinds[] = {"read", "write", "mixed"};

enum { N_OURS = 2, N_WAYS = 8 };
static const struct {
    const char *name;
    bool huge;
    const char *arguments; /* arguments of fio; NULL = our store */
} ways[N_WAYS] = {
    {"spillway", true, NULL},
    {"spillway", false, NULL},
    {"libaio", true, "--ioengine=libaio"},
    {"libaio", false, "--ioengine=libaio"},
    {"io_uring", true, "--ioengine=io_uring"},
    {"io_uring", false, "--ioengine=io_uring"},
    {"registered", true, "--ioengine=io_uring --fixedbufs --registerfiles"},
    {"registered", false, "--ioengine=io_uring --fixedbufs --registerfiles"},
};

struct args {
    const char *path;
    int64_t gib, rounds, block, depth;
    char file[512];
};

static bool parse(int argc, char **argv, struct args *args)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--path") == 0) {
            args->path = value;
        } else if (strcmp(argv[i], "--gib") == 0) {
            args->gib = atoll(value);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            args->rounds = atoll(value);
        } else if (strcmp(argv[i], "--block") == 0) {
            args->block = atoll(value);
        } else if (strcmp(argv[i], "--depth") == 0) {
            args->depth = atoll(value);
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && args->gib > 0 && args->rounds > 0 && args->rounds <= MAX_ROUNDS &&
           args->block >= 4096 && args->block % 4096 == 0 && args->depth > 0;
}

/* ---- ours ---- */

struct ours {
    sw_nvme *store;
    sw_nvme_buffer *buffer;
    char *memory;         /* [IN_FLIGHT, piece] */
    int64_t bytes, piece; /* piece: size of a request */
};

static sw_status take_memory(struct ours *o, bool huge)
{
    const size_t bytes = (size_t)(o->piece * IN_FLIGHT);
    struct sw_nvme_buffer_info info;
    prctl(PR_SET_THP_DISABLE, huge ? 0 : 1, 0, 0, 0);
    SW_TRY(sw_nvme_buffer_open(o->store, bytes, &o->buffer));
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    sw_nvme_buffer_get_info(o->buffer, &info);
    o->memory = info.data;
    for (size_t i = 0; i + 8 <= bytes; i += 64) { /* random data, which a disk cannot compress */
        const uint64_t word = sw_philox_u64(3, 1, i);
        memcpy(o->memory + i, &word, sizeof word);
    }
    return SW_OK;
}

static sw_status open_ours(const struct args *args, bool reopen, bool huge, struct ours *o)
{
    const char *const paths[] = {args->file};
    struct sw_nvme_options options;
    sw_nvme_options_init(&options);
    options.block_bytes = args->block;
    options.queue_depth = args->depth;
    options.direct = SW_NVME_DIRECT_ON;
    options.reopen = reopen;
    o->bytes = args->gib << 30;
    o->piece = args->block * ((args->depth + 1) / 2);
    SW_TRY(sw_nvme_open(paths, 1, o->bytes, &options, &o->store));
    return take_memory(o, huge);
}

static void close_ours(struct ours *o)
{
    while (o->store && sw_nvme_wait_all(o->store, 0) < 0) {
    }
    sw_nvme_buffer_close(o->buffer);
    sw_nvme_close(o->store);
}

/* Transfers the whole file once. Mixed, like fio: alternates between reads and writes, each over
 * its half of the file. */
static sw_status sweep(struct ours *o, enum kind kind)
{
    struct sw_nvme_segment segments[IN_FLIGHT];
    sw_nvme_ticket tickets[IN_FLIGHT];
    const int64_t half = o->bytes / 2;
    int64_t at[2] = {0, kind == MIXED ? half : o->bytes};
    const int64_t end[2] = {at[1], o->bytes};
    for (int64_t n = 0; at[0] < end[0] || at[1] < end[1]; n++) {
        const int i = (int)(n % IN_FLIGHT);
        const int stream = at[n % 2] < end[n % 2] ? (int)(n % 2) : (int)(1 - n % 2);
        const int64_t bytes = sw_min_i64(o->piece, end[stream] - at[stream]);
        if (n >= IN_FLIGHT) {
            SW_TRY(sw_nvme_wait(o->store, tickets[i], 0));
        }
        segments[i] = (struct sw_nvme_segment){o->memory + i * o->piece, (size_t)bytes};
        const bool writes = kind == WRITE || (kind == MIXED && stream == 1);
        SW_TRY(writes ? sw_nvme_begin_write(o->store, at[stream], &segments[i], 1, &tickets[i])
                      : sw_nvme_begin_read(o->store, at[stream], &segments[i], 1, &tickets[i]));
        at[stream] += bytes;
    }
    SW_TRY(sw_nvme_wait_all(o->store, 0));
    return kind == READ ? SW_OK : sw_nvme_flush(o->store);
}

static sw_status time_ours(const struct args *args, int way, enum kind kind, double *out_rate)
{
    struct ours o = {0};
    sw_status st = open_ours(args, true, ways[way].huge, &o);
    const double begin = sw_now_s();
    st = st < 0 ? st : sweep(&o, kind);
    *out_rate = (double)(args->gib << 30) / (sw_now_s() - begin) / GB;
    close_ours(&o);
    return st;
}

static sw_status lay_out(const struct args *args)
{
    struct ours o = {0};
    sw_status st = open_ours(args, false, true, &o);
    st = st < 0 ? st : sweep(&o, WRITE);
    if (st >= 0) {
        struct sw_nvme_buffer_info info;
        sw_nvme_buffer_get_info(o.buffer, &info);
        printf("%s: %lld GiB, blocks of %lld, depth %lld; memory%s%s%s\n", args->file,
               (long long)args->gib, (long long)args->block, (long long)args->depth,
               info.registered ? " registered" : "", info.locked ? " locked" : "",
               info.huge_pages ? " huge" : " (huge pages were refused)");
    }
    close_ours(&o);
    return st;
}

/* ---- fio ---- */

/* Field i (from 0) of a line with fields separated by semicolons. */
static double field(const char *line, int i)
{
    for (; line && i > 0; i--) {
        line = strchr(line, ';');
        line = line ? line + 1 : NULL;
    }
    return line ? atof(line) : 0;
}

static sw_status time_fio(const struct args *args, int way, enum kind kind, double *out_rate)
{
    /* fields of terse format 3 */
    enum { READ_KIB = 5, READ_MS = 8, WRITE_KIB = 46, WRITE_MS = 49 };
    static const char *const patterns[] = {"read", "write --end_fsync=1", "rw --end_fsync=1"};
    char command[1536], line[8192] = "";
    snprintf(command, sizeof command,
             "%sfio --name=bench --filename='%s' --size=%lldg --bs=%lld --iodepth=%lld --direct=1 "
             "--rw=%s %s --output-format=terse --terse-version=3",
             ways[way].huge ? "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 " : "", args->file,
             (long long)args->gib, (long long)args->block, (long long)args->depth, patterns[kind],
             ways[way].arguments);
    FILE *pipe = popen(command, "r");
    const bool got = pipe && fgets(line, sizeof line, pipe);
    const int status = pipe ? pclose(pipe) : -1;
    const double ms =
        field(line, READ_MS) > field(line, WRITE_MS) ? field(line, READ_MS) : field(line, WRITE_MS);
    if (!got || status != 0 || ms <= 0) {
        return SW_FAIL(SW_E_IO, "fio failed: %s", command);
    }
    *out_rate = (field(line, READ_KIB) + field(line, WRITE_KIB)) * 1024 / (ms / 1e3) / GB;
    return SW_OK;
}

/* ---- main ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double rates[N_KINDS][N_WAYS][MAX_ROUNDS];

static void print(enum kind kind, int n_ways, int64_t rounds)
{
    double best[2] = {0, 0}, middle[N_WAYS];
    for (int way = 0; way < n_ways; way++) {
        double *r = rates[kind][way];
        qsort(r, (size_t)rounds, sizeof *r, by_value);
        middle[way] = r[rounds / 2];
        double *most = &best[ways[way].huge];
        *most = way >= N_OURS && middle[way] > *most ? middle[way] : *most;
        printf("%-6s %-11s %-9s %8.3f %8.3f %8.3f\n", kinds[kind], ways[way].name,
               ways[way].huge ? "huge" : "ordinary", r[0], middle[way], r[rounds - 1]);
    }
    for (int way = 0; way < N_OURS && n_ways > N_OURS; way++) {
        printf("%-6s %-21s %8.3f of the best of fio's\n", kinds[kind],
               ways[way].huge ? "huge" : "ordinary", middle[way] / best[ways[way].huge]);
    }
}

static sw_status bench(const struct args *args)
{
    const int n_ways = system("fio --version >/dev/null 2>&1") == 0 ? N_WAYS : N_OURS;
    if (n_ways == N_OURS) {
        printf("fio is not installed: only ours is measured\n");
    }
    SW_TRY(lay_out(args));
    for (int64_t round = 0; round < args->rounds; round++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            for (int i = 0; i < n_ways; i++) {
                const int way = (int)((i + round) % n_ways);
                double *rate = &rates[kind][way][round];
                SW_TRY(way < N_OURS ? time_ours(args, way, (enum kind)kind, rate)
                                    : time_fio(args, way, (enum kind)kind, rate));
            }
        }
    }
    printf("%-6s %-11s %-9s %8s %8s %8s  GB/s of %lld rounds\n", "", "", "pages", "least", "median",
           "most", (long long)args->rounds);
    for (int kind = 0; kind < N_KINDS; kind++) {
        print((enum kind)kind, n_ways, args->rounds);
    }
    return SW_OK;
}

int main(int argc, char **argv)
{
    struct args args = {.path = ".", .gib = 2, .rounds = 7, .block = 1 << 20, .depth = 32};
    if (!parse(argc, argv, &args)) {
        fprintf(stderr, "usage: bench_io [--path FOLDER] [--gib N] [--rounds N] [--block BYTES] "
                        "[--depth N]\n");
        return 2;
    }
    snprintf(args.file, sizeof args.file, "%s/spillway-bench-io-%d.tmp", args.path, (int)getpid());
    const sw_status st = bench(&args);
    if (st < 0) {
        fprintf(stderr, "bench_io: %s\n", sw_error_message());
    }
    const char *const paths[] = {args.file};
    sw_nvme_remove(paths, 1);
    return st < 0;
}
