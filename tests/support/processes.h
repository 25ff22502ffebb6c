// SPDX-License-Identifier: Apache-2.0
// Programs that a test runs: lines of the shell, the program spillway, and children.
#pragma once

#include <sys/types.h>

/* Exit statuses below are 128 + the signal for a process that a signal ended. */

/* Runs a line of the shell. Returns its exit status. */
int test_system(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Standard output and error of the last test_shell or test_run, cut at the end. */
extern char test_said[16384];
/* Runs a line of the shell in test_folder(). Returns its exit status. */
int test_shell(const char *line);
/* Runs spillway with these arguments in test_folder(). Returns its exit status. */
int test_run(const char *arguments);
/* The same; the test fails unless the status is this one and `wanted` is said. */
void test_expect(const char *arguments, int status, const char *wanted);

/* Waits for a child. Returns its exit status. */
int test_exit_of(pid_t pid);

/* A port of this machine that nobody listens at. */
int test_free_port(void);
/* A connection to a port of this machine, as soon as somebody listens there. */
int test_knock(int port);
