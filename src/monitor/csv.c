// SPDX-License-Identifier: Apache-2.0
// One CSV file for each tag, with the file names and headers of DeepSpeed's CSV monitor. Rows are
// in the order of x, so the rows after a checkpoint are the end of a file, which is cut off on
// resume. The names are the same for every run, so a file of the folder names the one that they are
// of.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json/json.h"
#include "monitor/private.h"

struct column {
    char *tag, *path;
    int fd;
};

struct sw_csv {
    char *folder;
    struct column *columns; /* [n] */
    int n;
};

/* ---- files of earlier runs ---- */

/* Length of the valid prefix: the header plus complete rows with x <= last. */
static size_t good_bytes(const char *text, int64_t last)
{
    const char *line = text;
    for (const char *end; (end = strchr(line, '\n')); line = end + 1) {
        char *number_end = NULL;
        const long long x = strtoll(line, &number_end, 10);
        if (line != text && (*number_end != ',' || x > last)) {
            break;
        }
    }
    return (size_t)(line - text);
}

static sw_status cut_file(const char *path, int64_t last)
{
    char *text = NULL;
    size_t len = 0;
    SW_TRY(sw_file_read(path, &text, &len));
    const size_t good = good_bytes(text, last);
    sw_free(text);
    return good == len ? SW_OK : sw_monitor_cut(path, good);
}

/* Keeps the file of a run that is not resumed: FILE.csv becomes FILE.csv.1, or the next free
 * number. */
static sw_status set_aside(const char *path)
{
    struct stat info;
    for (int i = 1; i < 10000; i++) {
        struct sw_str other = {0};
        sw_str_printf(&other, "%s.%d", path, i);
        const bool taken = !other.failed && lstat(other.ptr, &info) == 0;
        const sw_status st =
            other.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for CSV files")
            : taken      ? SW_OK
            : rename(path, other.ptr) == 0
                ? SW_OK
                : SW_FAIL(SW_E_IO, "%s: cannot be renamed: %s", path, strerror(errno));
        sw_str_fini(&other);
        if (!taken || st < 0) {
            return st;
        }
    }
    return SW_FAIL(SW_E_IO, "%s: ten thousand older files are beside it", path);
}

static bool is_ours(const char *name, const struct sw_monitor_place *place)
{
    (void)place;
    const size_t len = strlen(name);
    return (strncmp(name, "Train_", 6) == 0 || strncmp(name, "Validation_", 11) == 0) && len > 4 &&
           strcmp(name + len - 4, ".csv") == 0;
}

static sw_status clear_file(const char *path, const struct sw_monitor_place *place)
{
    return place->goes_on ? cut_file(path, place->last) : set_aside(path);
}

/* ---- whose the files are ---- */

static sw_status mark_path(const struct sw_monitor_place *place, struct sw_str *out)
{
    sw_str_printf(out, "%s/.spillway-run", place->folder);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for CSV files") : SW_OK;
}

/* *out: the files in the folder are of this run. */
static sw_status is_of_run(const struct sw_monitor_place *place, bool *out)
{
    struct sw_str path = {0};
    char *text = NULL;
    size_t len = 0;
    sw_status st = mark_path(place, &path);
    st = st < 0 ? st : sw_file_read(path.ptr, &text, &len);
    *out = st >= 0 && strcmp(text, place->run) == 0;
    sw_free(text);
    sw_str_fini(&path);
    return st == SW_E_NOMEM ? st : SW_OK;
}

/* Clears the files of earlier runs out of the way, and then takes their names for this run. */
static sw_status take_folder(const struct sw_monitor_place *place)
{
    struct sw_monitor_place mine = *place;
    struct sw_str path = {0};
    SW_TRY(place->goes_on ? is_of_run(place, &mine.goes_on) : SW_OK);
    SW_TRY(sw_monitor_each(&mine, "CSV files", is_ours, clear_file));
    sw_status st = mark_path(place, &path);
    st = st < 0 ? st : sw_file_write_atomic(path.ptr, place->run, strlen(place->run));
    sw_str_fini(&path);
    return st;
}

/* ---- writing ---- */

/* Writes NaN and infinities as Python spells them. */
static void put_value(double value, struct sw_str *out)
{
    if (isfinite(value)) {
        sw_json_write_f64(value, out);
    } else {
        sw_str_puts(out, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    }
}

static sw_status write_row(const struct column *column, const struct sw_str *row)
{
    if (row->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", column->path);
    }
    const ssize_t n = write(column->fd, row->ptr, row->len);
    return n == (ssize_t)row->len
               ? SW_OK
               : SW_FAIL(SW_E_IO, "%s: %s", column->path, n < 0 ? strerror(errno) : "disk full");
}

/* Opens the column's file, and writes a header if the file is new. */
static sw_status open_column(const struct sw_csv *csv, const char *tag, struct column *out)
{
    struct sw_str path = {0}, head = {0};
    const char *name = strrchr(tag, '/') ? strrchr(tag, '/') + 1 : tag;
    sw_str_printf(&path, "%s/", csv->folder);
    for (const char *c = tag; *c; c++) {
        sw_str_putc(&path, *c == '/' || *c == ' ' ? '_' : *c);
    }
    sw_str_puts(&path, ".csv");
    *out = (struct column){.tag = sw_strdup("monitor", tag), .path = path.ptr, .fd = -1};
    if (path.failed || !out->tag) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for CSV files");
    }
    SW_TRY(sw_file_append(path.ptr, &out->fd));
    const off_t end = lseek(out->fd, 0, SEEK_END);
    if (end < 0) {
        return SW_FAIL(SW_E_IO, "%s: %s", out->path, strerror(errno));
    }
    sw_str_printf(&head, "step,%s\n", name);
    const sw_status st = end == 0 ? write_row(out, &head) : SW_OK;
    sw_str_fini(&head);
    return st;
}

static void close_column(struct column *column)
{
    if (column->fd >= 0) {
        close(column->fd);
    }
    sw_free(column->tag);
    sw_free(column->path);
}

static sw_status column_of(struct sw_csv *csv, const char *tag, struct column **out)
{
    for (int i = 0; i < csv->n; i++) {
        if (strcmp(csv->columns[i].tag, tag) == 0) {
            *out = &csv->columns[i];
            return SW_OK;
        }
    }
    struct column *columns =
        sw_realloc("monitor", csv->columns, ((size_t)csv->n + 1) * sizeof *columns);
    SW_TRY_ALLOC(columns, "CSV files");
    csv->columns = columns;
    const sw_status st = open_column(csv, tag, &columns[csv->n]);
    if (st < 0) {
        close_column(&columns[csv->n]);
        return st;
    }
    *out = &columns[csv->n++];
    return SW_OK;
}

sw_status sw_csv_add(struct sw_csv *csv, int64_t x, const struct sw_point *points, int n)
{
    for (int i = 0; i < n; i++) {
        struct column *column = NULL;
        struct sw_str row = {0};
        SW_TRY(column_of(csv, points[i].tag, &column));
        sw_str_printf(&row, "%lld,", (long long)x);
        put_value(points[i].value, &row);
        sw_str_putc(&row, '\n');
        const sw_status st = write_row(column, &row);
        sw_str_fini(&row);
        SW_TRY(st);
    }
    return SW_OK;
}

/* ---- open, close ---- */

sw_status sw_csv_open(const struct sw_monitor_place *place, struct sw_csv **out)
{
    SW_TRY(sw_mkdirs(place->folder));
    SW_TRY(take_folder(place));
    struct sw_csv *csv = sw_alloc_zero("monitor", 1, sizeof *csv);
    SW_TRY_ALLOC(csv, "CSV files");
    csv->folder = sw_strdup("monitor", place->folder);
    if (!csv->folder) {
        sw_free(csv);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for CSV files");
    }
    *out = csv;
    return SW_OK;
}

void sw_csv_close(struct sw_csv *csv)
{
    for (int i = 0; csv && i < csv->n; i++) {
        close_column(&csv->columns[i]);
    }
    if (csv) {
        sw_free(csv->columns);
        sw_free(csv->folder);
    }
    sw_free(csv);
}
