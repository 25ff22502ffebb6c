// SPDX-License-Identifier: Apache-2.0
// base - foundations of every room: status and error text, log, counted allocation, arenas,
// strings, checked arithmetic, Philox random numbers, hashes, clock, thread pool, fault points.
// Invariant: nothing here knows a tensor, a file format or a device.
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h> /* pthread_t */

#include "spillway/status.h"

#define SW_LEN(array) (sizeof(array) / sizeof((array)[0]))
#define SW_CONTAINER(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define SW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* ---- errors: SW_FAIL writes the message once, SW_TRY passes it on and adds a frame ---- */

sw_status sw_fail_at(const char *file, int line, sw_status code, const char *fmt, ...)
    SW_PRINTF(4, 5);
sw_status sw_frame_at(const char *file, int line, sw_status code);
/* Puts "text: " in front of the current message (a caller that knows the file, key or rank). */
sw_status sw_fail_prefix(sw_status code, const char *fmt, ...) SW_PRINTF(2, 3);

/* Both macros return a code that the compiler can see is negative. It then knows that outputs,
 * which are written only on success, are set wherever they are read. */
#define SW_FAIL(code, ...)                                                                         \
    __extension__({                                                                                \
        const sw_status sw_fail_st = (code);                                                       \
        sw_fail_at(__FILE__, __LINE__, sw_fail_st, __VA_ARGS__);                                   \
        sw_fail_st;                                                                                \
    })
#define SW_TRY(call)                                                                               \
    do {                                                                                           \
        const sw_status sw_try_st = (call);                                                        \
        if (sw_try_st < 0) {                                                                       \
            sw_frame_at(__FILE__, __LINE__, sw_try_st);                                            \
            return sw_try_st;                                                                      \
        }                                                                                          \
    } while (0)
/* Same, for functions that own something: sets the local `st` and jumps to the clean-up label. */
#define SW_TRY_OR(label, call)                                                                     \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st < 0) {                                                                              \
            sw_frame_at(__FILE__, __LINE__, st);                                                   \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/* For internal errors only: prints and aborts, in every build. */
_Noreturn void sw_assert_failed(const char *file, int line, const char *text);
#define SW_ASSERT(cond) ((cond) ? (void)0 : sw_assert_failed(__FILE__, __LINE__, #cond))

/* ---- modules ---- */

/* Finds a module by its file name, for dlopen. Returns false if it was not found; path is then the
 * last place that was searched. SPILLWAY_MODULES names one folder that is searched instead. */
bool sw_module_find(const char *file, char *path, size_t cap);
/* The same for a data file or folder, such as "clusters"; SPILLWAY_SHARE is its variable. */
bool sw_share_find(const char *file, char *path, size_t cap);

/* ---- log: stderr, one event per line, lower case; level from sw_log_set_level ---- */

enum sw_log_level { SW_LOG_ERROR, SW_LOG_WARN, SW_LOG_INFO, SW_LOG_DEBUG, SW_LOG_TRACE };
void sw_log(enum sw_log_level level, const char *fmt, ...) SW_PRINTF(2, 3);
void sw_log_set_level(enum sw_log_level level); /* default SW_LOG_WARN */
/* Receives every line instead of stderr; NULL restores stderr. `text` is borrowed for the call; one
 * call at a time, and the sink itself must not log. */
typedef void (*sw_log_sink_fn)(void *ctx, enum sw_log_level level, const char *text);
void sw_log_set_sink(sw_log_sink_fn sink, void *ctx);

/* ---- progress of long work (work.c) ---- */

/* Callback for progress. what: for example "reading weights"; NULL: the work has ended. done, of:
 * amounts in any unit; of 0 = the total is unknown. */
typedef void (*sw_work_fn)(void *ctx, const char *what, int64_t done, int64_t of);
struct sw_work_listener {
    sw_work_fn fn; /* NULL = no listener */
    void *ctx;
};
/* Sets the listener for the work of this thread. Returns the previous one. */
struct sw_work_listener sw_work_listen(struct sw_work_listener listener);
void sw_work_at(const char *what, int64_t done, int64_t of);
void sw_work_end(void); /* also after a failure */

/* ---- counted allocation: `tag` is a string literal naming the owner ---- */

/* All return NULL when out of memory. 0 bytes give a valid pointer. */
void *sw_alloc(const char *tag, size_t bytes);
void *sw_alloc_zero(const char *tag, size_t count, size_t bytes); /* checked product, zeroed */
void *sw_realloc(const char *tag, void *mem, size_t bytes); /* mem keeps its contents on failure */
void *sw_alloc_aligned(const char *tag, size_t align, size_t bytes); /* align: a power of two */
char *sw_strdup(const char *tag, const char *text);
void sw_free(void *mem); /* frees memory from any of the functions above; NULL is a no-op */

struct sw_alloc_stats {
    int64_t live_bytes, live_blocks; /* now */
    int64_t peak_bytes;              /* high-water mark of live_bytes */
    int64_t n_calls;                 /* successful requests since start: a step must not move it */
};
void sw_alloc_get_stats(struct sw_alloc_stats *out);
/* Makes the n-th following request (1 = the next) fail once; 0 switches it off. For tests. */
void sw_alloc_fail_nth(int64_t n);

/* Sets st and returns from a function that returns sw_status when ptr is NULL. */
#define SW_TRY_ALLOC(ptr, what)                                                                    \
    do {                                                                                           \
        if (!(ptr)) {                                                                              \
            return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", (what));                       \
        }                                                                                          \
    } while (0)

/* For public functions: the same if the pointer to options is NULL. */
#define SW_TRY_OPTIONS(options)                                                                    \
    do {                                                                                           \
        if (!(options)) {                                                                          \
            return SW_FAIL(SW_E_ARG, "%s: options are NULL", __func__);                            \
        }                                                                                          \
    } while (0)

/* ---- arena: freed whole; blocks are zeroed and 16-byte aligned ---- */

struct sw_arena {
    struct sw_arena_chunk *head;
    const char *tag;
};
void sw_arena_init(struct sw_arena *arena, const char *tag);
void sw_arena_fini(struct sw_arena *arena);
/* Frees all blocks but keeps a small chunk, for an arena that is filled and emptied repeatedly. */
void sw_arena_clear(struct sw_arena *arena);
void *sw_arena_alloc(struct sw_arena *arena, size_t bytes); /* NULL when out of memory */
void *sw_arena_array(struct sw_arena *arena, size_t count, size_t bytes);
char *sw_arena_strdup(struct sw_arena *arena, const char *text);
char *sw_arena_strndup(struct sw_arena *arena, const char *text, size_t len);
char *sw_arena_printf(struct sw_arena *arena, const char *fmt, ...) SW_PRINTF(2, 3);

/* ---- growing string; all zero is an empty string. After a failed append `failed` is set, the
 * contents stay valid, further appends do nothing: check once at the end. ---- */

struct sw_str {
    char *ptr; /* NUL-terminated, or NULL when nothing was appended */
    size_t len, cap;
    bool failed;
};
void sw_str_append(struct sw_str *str, const char *text, size_t len);
void sw_str_puts(struct sw_str *str, const char *text);
void sw_str_putc(struct sw_str *str, char c);
void sw_str_printf(struct sw_str *str, const char *fmt, ...) SW_PRINTF(2, 3);
const char *sw_str_text(const struct sw_str *str); /* never NULL */
void sw_str_clear(struct sw_str *str);             /* keeps the memory */
void sw_str_fini(struct sw_str *str);

/* Makes untrusted text safe for a terminal: control characters and invalid UTF-8 become \xNN.
 * Truncates to cap - 1 bytes. Returns out. */
const char *sw_plain_words(const char *text, char *out, size_t cap);

/* Levenshtein distance, for "did you mean"; -1 when out of memory. */
int sw_edit_distance(const char *a, const char *b);

struct sw_hint {
    char text[128];
};

/* `; the nearest is "NEAREST"`, for the end of a message; "" if nearest (of sw_nearest) is NULL. */
struct sw_hint sw_hint(const char *nearest);

/* Formats a size: "512 B", "1.5 KiB", "3.2 GiB". Returns buf. */
const char *sw_format_bytes(char *buf, size_t cap, double bytes);

/* ---- files ---- */

/* Opens a regular file for reading; *out_bytes is its current length. Folders, FIFOs and devices
 * are refused without blocking. Every reader of the library opens its files here. SW_E_IO names
 * path and errno. SW_E_FORMAT: the file is a Git LFS pointer. */
sw_status sw_file_open(const char *path, int *out_fd, size_t *out_bytes);
/* Reads bytes [at, at + bytes). SW_E_IO also if the file was truncated and ends before. */
sw_status sw_file_read_at(int fd, const char *path, void *out, size_t bytes, int64_t at);
/* Reads a whole small file. *out is NUL-terminated and the caller's (sw_free). */
sw_status sw_file_read(const char *path, char **out, size_t *out_len);
/* The folder part of a path, or "." if it has none. Returns false if it does not fit. */
bool sw_folder_of(const char *path, char *out, size_t cap);
/* A folder, or a link that leads to one; false: something else, or nothing. */
bool sw_is_folder(const char *path);
/* Calls make for each folder on the way to path and for path itself, outermost first.
 *
 * SW_E_ARG  path is empty or too long */
sw_status sw_each_folder(const char *path, sw_status (*make)(const char *folder));
/* mkdir -p. */
sw_status sw_mkdirs(const char *path);

/* ---- files that are written: output.c ----
 * A regular file is replaced as a whole, by a new one that was written beside it. If the name is a
 * folder, link, socket or device, the call fails with SW_E_IO. The message has the path and the
 * kind of file. */

enum sw_output_kind {
    SW_OUTPUT_NEW,      /* no file has the name */
    SW_OUTPUT_REPLACES, /* a regular file has the name */
    SW_OUTPUT_STREAM,   /* sequential: /dev/stdout, /dev/stderr, /dev/null, a FIFO */
};
struct sw_output {
    char *path; /* NULL = not open */
    char *temp; /* name of the new file until it is committed */
    int fd;     /* stream or new file; -1 = none */
    enum sw_output_kind kind;
};
/* Checks the file that has the name, and removes temporary files that killed writers left beside
 * it. Opens a stream if or_stream, else refuses it. */
sw_status sw_output_open(const char *path, bool or_stream, struct sw_output *out);
/* Makes the new file beside the path, open for reading and writing. */
sw_status sw_output_begin(struct sw_output *out);
sw_status sw_output_add(struct sw_output *out, const void *data, size_t len);
/* Renames the new file to the final name. durable: it survives a power loss from here on. */
sw_status sw_output_commit(struct sw_output *out, bool durable);
/* The three calls above; a failure leaves the old file, and `out` open. */
sw_status sw_output_put(struct sw_output *out, const void *data, size_t len, bool durable);
/* Discards an uncommitted file. All-zero output is a no-op. */
void sw_output_close(struct sw_output *out);

/* Whether a folder's entry has the name of a temporary file, in use or left by a killed writer, of
 * the file `name` in that folder. */
bool sw_output_is_temp(const char *entry, const char *name);

/* Writes a text durably, or to a stream. */
sw_status sw_output_text(const char *path, const void *data, size_t len);
/* Writes a regular file as a whole, durably. */
sw_status sw_file_write_atomic(const char *path, const void *data, size_t len);
/* The same for a text. SW_E_NOMEM: there was no memory for all of it; nothing is written. */
sw_status sw_file_write_str(const char *path, const struct sw_str *text);
/* Copies a regular file in blocks, as a whole and durably. */
sw_status sw_file_copy(const char *from, const char *to);
/* Opens or creates a regular file for appending. */
sw_status sw_file_append(const char *path, int *out_fd);

/* ---- checked arithmetic: false when the result does not fit ---- */

static inline bool sw_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool sw_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool sw_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool sw_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline size_t sw_round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}
static inline int64_t sw_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t sw_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* The greatest common divisor of two numbers, neither of them 0. */
static inline int64_t sw_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
/* The least common multiple of two numbers, neither of them 0. The caller knows that it fits. */
static inline int64_t sw_common_multiple(int64_t a, int64_t b)
{
    return a / sw_common_divisor(a, b) * b;
}
/* a / b, rounded up; b > 0. Never overflows. */
static inline int64_t sw_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

/* ---- random numbers: Philox4x32-10 (Salmon et al. 2011), a function of key and counter ---- */

void sw_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
/* Uniform in [0,1) with 24 bits; in (0,1) for logarithms. */
static inline float sw_u32_unit(uint32_t u)
{
    return (float)(u >> 8) * 0x1p-24f;
}
/* Element i of a standard normal stream (Box-Muller on Philox, double arithmetic): the value
 * depends on (seed, stream, i) only. */
double sw_philox_normal(uint64_t seed, uint64_t stream, uint64_t i);
/* Element i of a uniform u64 stream. */
uint64_t sw_philox_u64(uint64_t seed, uint64_t stream, uint64_t i);

/* ---- hashes ---- */

/* FNV-1a 64; start with SW_HASH_INIT. For names and fingerprints, not for integrity of files. */
#define SW_HASH_INIT UINT64_C(14695981039346656037)
uint64_t sw_hash(uint64_t h, const void *data, size_t len);
/* Hashes a string with its NUL, so that consecutive fields stay distinct. */
uint64_t sw_hash_str(uint64_t h, const char *text);

/* Adds a word to a hash. For tables in memory only: nothing that is stored may depend on it. */
static inline uint64_t sw_hash_word(uint64_t h, int64_t word)
{
    h = (h ^ (uint64_t)word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

/* For tables over names from files: SipHash-1-3 (Aumasson, Bernstein 2012) with a random key per
 * process, so that no file can be made whose names all collide. Nothing that is stored, compared
 * or ordered may depend on it. */
struct sw_hash_key {
    uint64_t words[2];
};
void sw_hash_key_init(struct sw_hash_key *key);
uint64_t sw_hash_keyed(const struct sw_hash_key *key, const void *data, size_t len);

/* ---- names: a table from names to numbers (names.c) ---- */

/* A table of entries (kind, name) -> value. All zero is an empty table. Names are borrowed and must
 * outlive it. */
struct sw_names {
    struct sw_name_entry {
        const char *name; /* NULL = free */
        int32_t kind, value;
    } * entries; /* [cap], at most half full; cap is a power of two */
    int32_t n, cap;
    struct sw_hash_key key; /* key of the hash, because names may come from a file */
};
void sw_names_close(struct sw_names *names);
/* Adds a name; if it is there already, the old value stays. Returns false if out of memory; the
 * table is then unchanged. */
bool sw_names_add(struct sw_names *names, int32_t kind, const char *name, int32_t value);
int32_t sw_names_find(const struct sw_names *names, int32_t kind, const char *name); /* -1 = none */
/* Copies the table to *out, with the same borrowed names. Returns false if out of memory. */
bool sw_names_copy(const struct sw_names *names, struct sw_names *out);

/* Integrity of files: XXH3-128 if xxHash was found at build time, else the built-in CRC-32C. */
struct sw_digest; /* streaming state */
sw_status sw_digest_open(struct sw_digest **out);
void sw_digest_update(struct sw_digest *digest, const void *data, size_t len);
void sw_digest_hex(const struct sw_digest *digest, char out[33]);
void sw_digest_close(struct sw_digest *digest);
const char *sw_digest_name(void); /* "xxh3-128" or "crc32c" */
/* Opens a digest by name, to check a file that another build wrote. SW_E_UNSUP: this build lacks
 * the library. SW_E_FORMAT: no such digest. */
sw_status sw_digest_open_named(const char *name, struct sw_digest **out);
/* CRC-32C of crc's bytes followed by data; start with 0. */
uint32_t sw_crc32c(uint32_t crc, const void *data, size_t len);

/* ---- the secret of a job; both ends of a connection prove that they know it (secret.c) ---- */

enum { SW_SECRET_BYTES = 16, SW_NONCE_BYTES = 16, SW_PROOF_BYTES = 32, SW_JOB_ID_CAP = 64 };

/* BLAKE2s (RFC 7693): key_len 0 .. 32, out_len 1 .. 32. */
void sw_blake2s(const void *key, size_t key_len, const void *data, size_t len, uint8_t *out,
                size_t out_len);
/* Compares in constant time. */
bool sw_same_secret(const void *a, const void *b, size_t len);
/* Random bytes from the system, suitable for secrets. */
sw_status sw_draw_bytes(void *out, size_t len);
void sw_hex_write(const uint8_t *bytes, size_t n, char *out); /* out [2 n + 1] */
bool sw_hex_read(const char *text, uint8_t *out, size_t n);   /* exactly 2 n digits */

struct sw_job_secret {
    bool known; /* false: the key is all zero, and serves on one machine only */
    uint8_t key[SW_SECRET_BYTES];
    char job[SW_JOB_ID_CAP]; /* no secret: tells one start of a job from the next */
};
/* Makes a new secret with a new id. */
sw_status sw_job_secret_draw(struct sw_job_secret *out);
/*
 * sw_job_secret_read - read the secret from values of the environment, each NULL or "" if unset:
 * the secret, or else the path of a file with it (mode 0600); the id of the job.
 *
 * SW_E_CONFIG  not a valid secret, or others may read the file
 */
sw_status sw_job_secret_read(const char *text, const char *path, const char *job,
                             struct sw_job_secret *out);

/* Content of a proof. The opener connects; the answerer listens. */
struct sw_proof_of {
    const char *role; /* role of the prover, below 16 bytes, so that no other role can reuse it */
    const uint8_t *opener, *answerer; /* [SW_NONCE_BYTES] fresh nonces of both */
    int32_t opener_rank, answerer_rank;
    const void *more; /* [more_len] more data that the proof authenticates */
    size_t more_len;
};
void sw_prove(const struct sw_job_secret *secret, const struct sw_proof_of *what,
              uint8_t out[SW_PROOF_BYTES]);
bool sw_proves(const struct sw_job_secret *secret, const struct sw_proof_of *what,
               const uint8_t proof[SW_PROOF_BYTES]);

/* ---- descriptors ---- */

/* Raises the soft limit of open files to at least `needed`.
 *
 * SW_E_CONFIG  the hard limit is too low; names it */
sw_status sw_allow_files(int64_t needed);

/* ---- clock ---- */

int64_t sw_now_ns(void); /* monotonic */
double sw_now_s(void);

/* ---- threads ---- */

/* Starts a thread that receives no signals. Returns 0 or an errno value. */
int sw_thread_start(pthread_t *out, void *(*main)(void *), void *ctx);

/* ---- thread pool: one driver thread calls, the pool's threads and the caller do the items ---- */

struct sw_pool;
typedef void (*sw_pool_fn)(void *ctx, int64_t i_item, int i_worker);
/* n_threads counts the caller: 1 starts no thread. 0 = the CPUs available to this process. The
 * pool's own threads avoid the CPU that the caller runs on. The affinity of the caller is not
 * changed. */
sw_status sw_pool_open(int n_threads, struct sw_pool **out);
int sw_pool_threads(const struct sw_pool *pool);
/* Runs fn(ctx, i, worker) once for each i in 0 .. n_items-1, in any order. Returns when all are
 * done. The result of an item must not depend on the worker. pool NULL: runs inline. */
void sw_pool_run(struct sw_pool *pool, int64_t n_items, sw_pool_fn fn, void *ctx);
void sw_pool_close(struct sw_pool *pool);
/* Number of CPUs that this process may use (affinity mask, cgroup quota). */
int sw_cpu_count(void);
/* Hash of the affinity mask of this thread; 0 = not known. */
uint64_t sw_cpu_mask(void);
/* Share of one of n_alike processes with the same mask, at least 1. The quota is divided by the
 * n_here processes of this host. */
int sw_cpu_share(int n_alike, int n_here);

/* ---- fault points: named places where tests make the program fail ----
 * SPILLWAY_FAULT="name:n:action[,...]" triggers the action at the n-th pass through `name` (1 =
 * first). Actions: eio, enospc, kill (SIGKILL), short. Faults are off unless the variable was set
 * at start-up or sw_fault_set was called. The points mkdir, create, write, fsync, rename and unlink
 * are each before the system call that does this. */
enum sw_fault_action { SW_FAULT_NONE, SW_FAULT_EIO, SW_FAULT_ENOSPC, SW_FAULT_SHORT };
enum sw_fault_action sw_fault_point(const char *name); /* kills the process itself for "kill" */
sw_status sw_fault_set(const char *spec);              /* NULL switches all off */
/* A pass before a system call. true: it is to fail, and errno is set as the system would. len:
 * bytes to be written, halved and rounded up if it is to write fewer; may be NULL. */
bool sw_fault_fails(const char *name, size_t *len);

#include "base/protobuf.h"
