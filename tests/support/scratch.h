// SPDX-License-Identifier: Apache-2.0
// What tests write and where: a folder of the test program, files in it, and the program spillway
// that writes there, too.
#pragma once

/* The folder of this program, below /tmp. The first call makes it; it is removed when the program
 * that made it exits. */
const char *test_folder(void);
/* The path of a file of that folder, valid until the program ends. */
const char *test_at(const char *name);
/* Writes a file of that folder; the test fails when it cannot. */
void test_put(const char *name, const char *text);
/* The text of a file of that folder, for sw_free; the test fails when it cannot be read. */
char *test_text(const char *name);
/* The test fails unless two files, by their paths, have the same bytes. */
void test_same_file(const char *a, const char *b);
/* Removes a file, or a folder and all in it; nothing need be there. */
void test_remove(const char *path);

/* Writes a text of n lines without line feeds, "line 0 of a small text, and then another; .." */
void test_put_lines(const char *name, int n);

/* The absolute path of the program spillway of this build. If there is none, says so and returns
 * NULL. */
const char *test_spillway(void);
