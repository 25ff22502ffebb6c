#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# abi.sh <C compiler> <libspillway.so> [--record]: the binary interface - every public function with its types, every
# public struct with the places of its fields, every constant - is what abi.txt has. Where something is gone or is
# another thing, programs that were compiled before do not fit any more, and SW_ABI_VERSION (include/spillway/abi.h)
# has to be another one than that of the record. --record writes abi.txt; it refuses such a change under the old number.
# Skipped (77) where the compiler is not gcc, which tells the types of functions.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cc=$1 library=$(realpath "$2") record=${3:-}
root=$here/../..
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! echo 'int x;' | "$cc" -x c -c -o "$scratch/x.o" -aux-info "$scratch/x.aux" - 2> /dev/null; then
    echo "skipped: $cc has no -aux-info"
    exit 77
fi
cd "$root/include"
{
    echo '#include <stddef.h>'
    for header in spillway/*.h; do echo "#include \"$header\""; done
} > "$scratch/all.h"
"$cc" -I. -E "$scratch/all.h" | awk '/^# [0-9]+ "/ { ours = $3 ~ /^"(\.\/)?spillway\//; next } ours' > "$scratch/ours"
{
    cat "$scratch/all.h"
    awk -f "$here/abi.awk" "$scratch/ours"
} > "$scratch/probe.c"
"$cc" -I. -include stdio.h -o "$scratch/probe" "$scratch/probe.c"
"$cc" -I. -fsyntax-only -aux-info "$scratch/aux" -x c "$scratch/all.h"
{
    awk '$2 == "SW_ABI_VERSION" { print "version " $3 }' spillway/abi.h
    {
        "$scratch/probe"
        sed -n 's|^/\* \./*spillway/[^ ]* \*/ extern |function |p; s|^/\* spillway/[^ ]* \*/ extern |function |p' \
            "$scratch/aux"
    } | LC_ALL=C sort -u
} > "$scratch/abi.txt"

bad=0
complain() { echo "$*"; bad=1; }

# what the library exports is what the headers declare, and it knows all of their structs
nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }' | LC_ALL=C sort > "$scratch/exported"
sed -n 's/^function .*[ *]\(sw_[a-z_0-9]*\) (.*/\1/p' "$scratch/abi.txt" | LC_ALL=C sort > "$scratch/declared"
for name in $(LC_ALL=C comm -3 "$scratch/exported" "$scratch/declared"); do
    complain "$name: exported and declared are two things"
done
for name in $(sed -n 's/^struct \([^ ]*\) .*/\1/p' "$scratch/abi.txt"); do
    grep -q "SIZE($name)" "$root/src/engine/abi.c" || complain "struct $name: src/engine/abi.c does not have it"
done
version=$(sed -n 's/^version //p' "$scratch/abi.txt")
grep -q "^ABI_VERSION = $version\$" "$root/python/spillway/_library.py" ||
    complain "python/spillway/_library.py is for another SW_ABI_VERSION than $version"
grep -qx "Package: libspillway$version" "$root/debian/control" ||
    complain "debian/control: its library's package is not libspillway$version"

recorded=$here/abi.txt
[ -e "$recorded" ] || : > "$recorded"
if ! cmp -s "$recorded" "$scratch/abi.txt"; then
    LC_ALL=C sort "$recorded" > "$scratch/was"
    LC_ALL=C sort "$scratch/abi.txt" > "$scratch/is"
    gone=$(LC_ALL=C comm -23 "$scratch/was" "$scratch/is" | grep -v '^version ' || true)
    if [ -n "$gone" ] && grep -qx "version $version" "$recorded"; then
        complain "the binary interface has changed, and SW_ABI_VERSION is $version still: gone, or something else, is"
        printf '%s\n' "$gone"
        echo "raise it in include/spillway/abi.h, python/spillway/_library.py and debian/; then record it:"
        echo "    sh tests/checks/abi.sh cc build/libspillway.so --record"
    elif [ -n "$record" ] && [ $bad -eq 0 ]; then
        cp "$scratch/abi.txt" "$recorded"
        echo "recorded in tests/checks/abi.txt"
    else
        complain "the binary interface is not that of tests/checks/abi.txt:"
        LC_ALL=C comm -3 "$scratch/was" "$scratch/is"
        echo "record it: sh tests/checks/abi.sh cc build/libspillway.so --record"
    fi
fi
[ $bad -eq 0 ] && echo "binary interface $version: $(grep -c . "$recorded") lines"
exit $bad
