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
 * sw_error_message - the last error of this thread, as one line without a trailing newline.
 *
 * The text is valid until the next failure on this thread. It is empty if nothing has failed yet.
 */
SW_API const char *sw_error_message(void);

/* Frames that the last error passed through, innermost first, one "file:line" per line. */
SW_API const char *sw_error_trace(void);

/*
 * sw_parse_bytes - parse a size: a number of bytes, or a number with a unit.
 *
 * K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024. KB, MB, GB and TB are powers of 1000. Case
 * does not matter.
 *
 * Returns NULL on success. Otherwise returns a phrase that says what is wrong, to be printed after
 * the text, and leaves *out unchanged.
 */
SW_API const char *sw_parse_bytes(const char *text, int64_t *out);

/* The candidate [n_candidates] nearest to `word` by edit distance, for "did you mean". NULL if none
 * is close enough to be a typing error. */
SW_API const char *sw_nearest(const char *word, const char *const *candidates, size_t n_candidates);

/* Frees a text that the caller owns. NULL is a no-op. */
SW_API void sw_text_free(char *text);

/* Version of the library, for example "0.1.0". */
SW_API const char *sw_version(void);

#ifdef __cplusplus
}
#endif
