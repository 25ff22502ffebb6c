#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file that a document or a comment names, `folder/file.h`, `.c` or `.md`, is there: from the root, from src/,
# include/ or tests/, from a room, or beside whoever names it.
# With an argument, checks that tree instead of this one (checks_test.sh uses that).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"

is_there() { # <name> <the folder of who names it>
    for at in . src include tests "$2" src/*; do
        if [ -e "$at/$1" ]; then return 0; fi
    done
    return 1
}

bad=0
n=0
find src include examples bench fuzz tests docs cmake .ci ./*.md LAYERS CMakeLists.txt \( -name '*.[ch]' -o -name '*.md' \
    -o -name '*.cmake' -o -name LAYERS -o -name CMakeLists.txt -o -name run \) -type f 2> /dev/null | sort > "${TMPDIR:-/tmp}/names.$$" || true
# words with a slash that end so; code names headers in #include alone, which is not looked at, and templates
# (`<x>.c`, `$name.c`) name no file
xargs grep -noE '(^|[^A-Za-z0-9_./<>$}{*"-])([A-Za-z0-9_]+/)+[A-Za-z0-9_]+\.(c|h|md)($|[^A-Za-z0-9_.]|\.($|[^A-Za-z0-9_]))' < "${TMPDIR:-/tmp}/names.$$" \
    > "${TMPDIR:-/tmp}/named.$$" || true
while IFS=: read -r file line name; do
    name=$(printf '%s' "$name" | sed -E 's|^[^A-Za-z0-9_]||; s|[^A-Za-z0-9_]*$||')
    n=$((n + 1))
    if ! is_there "$name" "$(dirname "$file")"; then
        echo "$file:$line: there is no $name"
        bad=1
    fi
done < "${TMPDIR:-/tmp}/named.$$"
rm -f "${TMPDIR:-/tmp}/names.$$" "${TMPDIR:-/tmp}/named.$$"
[ $bad -eq 0 ] && echo "$n names of files"
exit $bad
