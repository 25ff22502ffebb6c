// SPDX-License-Identifier: Apache-2.0
// Status codes and the per-thread error record. Negative = error, 0 = done, positive = a state.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define SW_API
#else
#define SW_API __attribute__((visibility("default")))
#endif

// clang-format off
#define SW_STATUS_LIST(X)                                                     \
    X(SW_PENDING,   1, "not finished yet; ask again")                         \
    X(SW_OK,        0, "success")                                             \
    X(SW_E_ARG,    -1, "caller broke the contract")                           \
    X(SW_E_CONFIG, -2, "configuration is invalid")                            \
    X(SW_E_NOMEM,  -3, "a memory tier is exhausted")                          \
    X(SW_E_IO,     -4, "file or device I/O failed")                           \
    X(SW_E_FORMAT, -5, "file content is not what it claims")                  \
    X(SW_E_UNSUP,  -6, "this build or backend cannot do that")                \
    X(SW_E_PEER,   -7, "another rank failed")                                 \
    X(SW_E_DEVICE, -8, "accelerator runtime failed")                          \
    X(SW_E_STOP,   -9, "stopped on request")
// clang-format on

typedef enum sw_status {
#define SW_STATUS_ENUM(name, value, text) name = (value),
    SW_STATUS_LIST(SW_STATUS_ENUM)
#undef SW_STATUS_ENUM
} sw_status;

/* One sentence for the code; static storage. */
SW_API const char *sw_status_string(sw_status code);

/*
 * sw_error_message - what went wrong last on this thread, one line, without a trailing newline.
 *
 * Written once by the place that decided it was an error. Valid until the next failure on this
 * thread; empty when nothing failed yet.
 */
SW_API const char *sw_error_message(void);

/* The frames the last error passed through, innermost first, one "file:line" a line; for
 * reports. */
SW_API const char *sw_error_trace(void);

/*
 * sw_parse_bytes - a size as people write it: bytes, or a number with K, M, G or T (also KiB, MiB,
 * GiB, TiB), which are powers of 1024, or with KB, MB, GB or TB, which are powers of 1000. The case
 * of letters does not matter.
 *
 * Returns NULL, or what is wrong with the text, to be put behind it; *out is then unchanged.
 */
SW_API const char *sw_parse_bytes(const char *text, int64_t *out);

/* The candidate [n_candidates] nearest to `word` by edit distance, if it is near enough to be a
 * slip; else NULL. For "did you mean". */
SW_API const char *sw_nearest(const char *word, const char *const *candidates, size_t n_candidates);

/* Frees a text that a function gave to its caller. NULL is fine. */
SW_API void sw_text_free(char *text);

/* Version of the library, for example "0.1.0". */
SW_API const char *sw_version(void);

#ifdef __cplusplus
}
#endif
