#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The checks themselves: a small tree that obeys passes, and each planted offence is found.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

header() {
    printf '// SPDX-License-Identifier: Apache-2.0\n// what it owns\n#pragma once\n%s\n' "$2" > "$tree/$1"
}
source() {
    printf '// SPDX-License-Identifier: Apache-2.0\n// what it owns\n%s\n' "$2" > "$tree/$1"
}
# expect <pass|find> <check> <what>
expect() {
    if sh "$here/$2.sh" "$tree" > "$tree/log" 2>&1; then found=pass; else found=find; fi
    if [ "$found" != "$1" ]; then
        echo "$2 should $1: $3"
        sed 's/^/    /' "$tree/log"
        failed=1
    fi
}
# offence <check> <file> <code>: planted, found, removed again
offence() {
    source "$2" "$3"
    expect find "$1" "$3"
    rm "$tree/$2"
}

mkdir -p "$tree/src/base/tests" "$tree/src/json" "$tree/src/store/uring" "$tree/src/cli" "$tree/src/config/tests" "$tree/src/plan" \
    "$tree/include/spillway" "$tree/examples" "$tree/tests"
layers() {
    printf '# comment\nbase 0 -\njson 1 base # x\nconfig 2 json\nstore 2 base # uring/\ncli 9 public\n' > "$tree/LAYERS"
}
# allowance <sed script> <what>: LAYERS is changed, found, and put back
allowance() {
    sed -i "$1" "$tree/LAYERS"
    expect find layers "$2"
    layers
}
layers
header src/base/base.h '#include "spillway/x.h"'
header src/base/private.h ''
header src/json/json.h '#include "base/base.h"'
source src/config/config.c '#include "json/json.h"'
source src/store/store.c '#include "spillway/status.h"'
header include/spillway/x.h '#include <stdint.h>'
source src/store/uring/ring.c '#include <liburing.h>'
source src/config/tests/a_test.c '#include "base/base.h"'
source src/json/json.c '#include "json/json.h"
/* free(x) and malloc( in a comment, "TO" "DO" */ int n = 0; // exit(1)
const char *text = "free(x) // \" malloc(";
int sw_free(int x); int reabort(int x); int f(void) { return ops->abort(1); }'
expect pass layers 'a tree that obeys'
expect pass sources 'a tree that obeys'
source src/plan/fuse.c 'int f(int k) { return k == SW_OP_MATMUL; } // not SW_OP_USER'
expect pass ops 'a tree that obeys'

offence layers src/base/up.c '#include "json/json.h"'
offence layers src/config/skip.c '#include "base/base.h"'
offence layers src/json/side.c '#include "store/store.h"'
offence layers src/json/inside.c '#include "base/private.h"'
offence layers src/json/bare.c '#include "json.h"'
offence layers src/json/ring.c '#include <liburing.h>'
offence layers src/json/mpi.c '  #  include <mpi.h>'
offence layers src/json/gpu.c '#include <cuda_runtime.h>'
offence layers src/json/dnnl.c '#include <dnnl.h>'
offence layers src/json/door.c '#include "cli/cli.h"'
allowance 's/^store 2 base/store 2 base json/' 'a room is allowed that no file includes'
allowance '$a gpu 9 base' 'a room without a folder'
allowance 's/uring/posix/' 'a part of a room without a folder'
offence layers src/cli/main.c '#include "base/base.h"'
offence layers examples/a.c '#include "base/base.h"'
offence layers include/spillway/y.h '#include "base/base.h"'
offence layers src/base/tests/a_test.c '#include "json/json.h"'
offence ops src/plan/new.c 'int f(int k) { return k == SW_OP_MATMUL; }'
offence ops src/plan/fetch.c 'int f(int k) { return k == SW_OP_CAST || k == SW_OP_UPDATE; }'
offence ops src/base/a.c 'int f(int k) { return k == SW_OP_CAST; }'
source src/json/b.c '/* see src/json/json.h, json/json.c and base/base.h. */'
expect pass names 'files that are there'
rm "$tree/src/json/b.c"
offence names src/json/a.c '/* see json/gone.h */'
offence names src/json/a.c '// as base/gone.c does.'
mkdir "$tree/docs"
echo 'Begin with `json/gone.h`.' > "$tree/docs/a.md"
expect find names 'a document'
rm -r "$tree/docs"

columns=$(printf '%0100d' 0 | tr 0 =)
source src/json/b.c "//${columns#==}
//${columns#====}✓✓"
expect pass columns '100 columns'
rm "$tree/src/json/b.c"
offence columns src/json/a.c "// ${columns#==}"
offence columns src/json/a.c "const char *s = \"${columns}\";"
export SPILLWAY_EXCEPTED=json
expect find columns 'an exception that nothing needs'
source src/json/a.c "// ${columns}"
expect pass columns 'a room that is excepted'
rm "$tree/src/json/a.c"
unset SPILLWAY_EXCEPTED

# the order inside src/plan
mkdir -p "$tree/docs"
rm -f "$tree"/src/plan/*
planner() {
    printf '## Files of the planner\n\n| list | `low.c` |\n| passes | `high.c` |\n\n## Else\n' > "$tree/docs/ARCHITECTURE.md"
}
calls() { # <file> <function> <callee>: the file defines the function, which calls the other
    source "src/plan/$1.c" "int sw_$2(int a);
int sw_$2(int a)
{
    return sw_$3(a);
}"
}
planner
calls low low_1 none
calls high high_1 low_1
expect pass planner 'a file that calls a lower one'
calls low low_1 high_1
expect pass planner 'one arrow upward'
for i in 1 2 3 4 5 6 7 8 9 10 11; do
    calls "high_$i" "up_$i" none
done
printf '## Files of the planner\n\n| `low.c` `high.c` %s |\n' "$(for i in 1 2 3 4 5 6 7 8 9 10 11; do printf '`high_%s.c` ' $i; done)" > "$tree/docs/ARCHITECTURE.md"
expect pass planner 'files that nobody calls'
source src/plan/low.c "int sw_low(int a)
{
    return $(for i in 1 2 3 4 5 6 7 8 9 10 11; do printf 'sw_up_%s(a) + ' $i; done) 0;
}"
expect find planner 'eleven arrows upward'
rm "$tree"/src/plan/*.c
planner
calls low low_1 none
expect find planner 'a file of the table that is not there'
calls high high_1 low_1
expect pass planner 'both files again'
offence planner src/plan/other.c 'int f(int a);'
source src/plan/plan.h "$(printf 'struct large {\n'; for i in 1 2 3 4 5 6 7 8 9 10 11; do printf '    int a%s, b%s;\n' $i $i; done; printf '};\n')"
expect find planner 'a struct of 22 fields'
rm -r "$tree"/src/plan/* "$tree/docs"

# limits of size, with a list of what exceeds them
long() {
    printf '// what it is for\nint %s(int a,\n    int b)\n{\n' "$1"
    i=0
    while [ $i -lt "$2" ]; do
        echo '    a += b;'
        i=$((i + 1))
    done
    printf '}\n'
}
fields() {
    printf 'struct %s {\n' "$1"
    i=0
    while [ $i -lt "$2" ]; do
        printf '    int a%d, *b%d;\n' $i $i
        i=$((i + 2))
    done
    printf '};\n'
}
: > "$tree/sizes.txt"
mkdir -p "$tree/src/job"
source src/job/short.c "$(long f 38; long g 38; fields s 30)"
expect pass sizes 'functions of 42 lines, a struct of 30 fields'
offence sizes src/job/a.c "$(long half 39)"
offence sizes src/job/a.c "$(long whole 57)"
offence sizes src/job/a.c "$(fields large 31)"
offence sizes src/job/a.c 'int f(int a, int b, int c, int d, int e, int f, int g, int h, int (*i)(int, int))
{
}'
expect pass sizes 'eight parameters or less'
source src/job/a.c "$(fields large 31)"
echo 'struct job large 32 # for a while' > "$tree/sizes.txt"
expect pass sizes 'what is listed may exceed'
source src/job/a.c "$(fields large 33)"
expect find sizes 'what is listed grew'
source src/job/a.c "$(fields large 29)"
expect find sizes 'what is listed exceeds no more'
rm -r "$tree/src/job"
: > "$tree/sizes.txt"
source src/json/a.c '/* Whatever the input. */ int x; /* in bytes, of which .. */
// A line that goes on with
// What stands at the beginning of the next one.
const char *s = "// not";'
expect pass prose 'sentences'
offence prose src/json/b.c '/* What is read. */'
offence prose src/json/b.c 'int n; /* .. and the rest */'
offence prose src/json/b.c 'int n;
// Likewise, for b.'
source src/json/b.c '/* Of a file. */'
SPILLWAY_EXCEPTED='src/json src/base' expect find prose 'an exception that nothing needs'
SPILLWAY_EXCEPTED='src/json' expect pass prose 'a folder that is excepted'
rm "$tree/src/json/b.c"
mkdir "$tree/docs"
printf '%s\n' "| ${columns} a table |" '```' "${columns} a command" '```' "${columns#====}✓✓" > "$tree/docs/a.md"
expect pass prose '100 columns of a page, a table, a command'
printf '%s\n' "${columns} words" > "$tree/docs/a.md"
expect find prose 'a page with long lines'
rm -r "$tree/docs"

for left in src/base/base.c.orig docs.rej src/json/json.c~; do
    offence sources $left 'int x;'
done
offence sources src/json/a.c 'int x = f(malloc(3));'
offence sources src/json/a.c 'free(x);'
offence sources src/json/a.c '/* a */ free (x);'
offence sources src/json/a.c 'char c = '"'\"'"'; exit(1); char d = '"'\"'"';'
offence sources src/json/a.c 'abort();'
offence sources src/json/a.c '// TO''DO later'
offence sources src/base/tests/b_test.c 'int main(void)'
offence sources tests/b_test.c '    int main(int argc, char **argv)'
source examples/a.c 'int main(void)'
mkdir "$tree/tests/support"
source tests/support/main.c 'int main(int argc, char **argv)'
expect pass sources 'an example, and the main of test programs'
rm -r "$tree/examples/a.c" "$tree/tests/support"
header src/json/a.c 'int x;'
sed -i 1d "$tree/src/json/a.c"
expect find sources 'no SPDX line'
rm "$tree/src/json/a.c"
source src/json/a.h 'int x;'
expect find sources 'no #pragma once'
rm "$tree/src/json/a.h"
# commands of cmake
mkdir "$tree/cmake"
recipe() {
    printf 'function(f)\n    add_custom_command(OUTPUT a # (of an option\n        COMMAND cc %s)\nendfunction()\n' "$1" > "$tree/cmake/a.cmake"
}
recipe '$<$<BOOL:${W}>:-Werror> -o (a) COMMAND_EXPAND_LISTS'
expect pass sources 'arguments that may be empty are left out then'
recipe '-o $<TARGET_FILE:b>'
expect pass sources 'an argument that is never empty'
recipe '$<$<BOOL:${W}>:-Werror> -o (a)'
expect find sources 'an argument that may be empty'
recipe '${ARGN} -o a'
expect find sources 'arguments from elsewhere'
rm -r "$tree/cmake"
expect pass layers 'the tree as it was'
expect pass sources 'the tree as it was'
expect pass ops 'the tree as it was'
[ $failed -eq 0 ] && echo 'every offence was found'
exit $failed
