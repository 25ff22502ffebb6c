#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No line of C is longer than 100 columns, comments and strings included: clang-format keeps code within them, and leaves
# those alone. Rooms that still have such lines are listed here; one that has none any more is to be taken out.
# With an argument, checks that tree instead of this one (checks_test.sh uses that).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"
excepted=''
[ $# -eq 0 ] || excepted=${SPILLWAY_EXCEPTED:-}

# In bytes, without those that continue a character of UTF-8.
find src include examples bench fuzz tests -name '*.[ch]' 2> /dev/null | sort |
    LC_ALL=C xargs awk -v excepted="$excepted" '
    BEGIN { n_rooms = split(excepted, rooms, " ") }
    length($0) <= 100 { next }
    {
        text = $0
        gsub(/[\200-\277]/, "", text)
        if (length(text) <= 100) { next }
        split(FILENAME, dir, "/")
        for (i = 1; i <= n_rooms; i++) {
            if (dir[1] == "src" && dir[2] == rooms[i]) { met[rooms[i]] = 1; next }
        }
        print FILENAME ":" FNR ": " length(text) " columns, at most 100"
        bad = 1
    }
    END {
        for (i = 1; i <= n_rooms; i++) {
            if (!(rooms[i] in met)) { print "columns.sh: src/" rooms[i] " needs no exception any more"; bad = 1 }
        }
        exit bad
    }'
