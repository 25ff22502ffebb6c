#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How large things are in the rooms between the edges: a function has at most 60 lines, all but one in a hundred
# of a room's at most 42, and at most 8 parameters; a struct has at most 30 fields. What exceeds that stands in
# sizes.txt, which may only shrink.
# With an argument, checks that tree instead of this one (checks_test.sh uses that).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"
known=$here/sizes.txt
[ $# -eq 0 ] || known=sizes.txt

for room in graph layout plan show walk search run weights engine look check job; do
    [ ! -d "src/$room" ] || find "src/$room" -name '*.[ch]' ! -path '*/tests/*'
done | sort | xargs awk -f "$here/code.awk" | awk -f "$here/sizes.awk" | sort -k1,1 -k2,2 -k5,5n |
    awk '
    function complain(why) { print why; bad = 1 }

    # exceeds <kind> <room> <name> <size> <limit> <where>
    function exceeds(kind, room, name, size, limit, where,    key) {
        key = kind " " room " " name
        if (size <= limit) { return }
        if (!(key in most)) {
            complain(where ": " key " has " size ", at most " limit)
        } else if (size > most[key]) {
            complain(where ": " key " has " size ", and had " most[key] " at most")
        }
        met[key] = 1
    }
    function end_room() {
        if (n > 0) { exceeds("p99", room, "-", lines[int((99 * n + 99) / 100)], 42, "src/" room) }
        n = 0
    }

    FILENAME != "-" {
        sub(/#.*/, "")
        if (NF == 4) { most[$1 " " $2 " " $3] = $4 }
        next
    }
    $1 == "function" {
        if ($2 != room) { end_room() }
        room = $2
        lines[++n] = $5
        exceeds("function", $2, $4, $5, 60, $3)
        exceeds("parameters", $2, $4, $6, 8, $3)
        n_functions++
    }
    $1 == "struct" { exceeds("struct", $2, $4, $5, 30, $3) }
    END {
        end_room()
        for (key in most) {
            if (!(key in met)) { complain("sizes.txt: \"" key "\" exceeds nothing any more: take it out") }
        }
        if (n_functions == 0) { complain("no function was found: the check looked in the wrong place") }
        if (!bad) { print n_functions " functions are within the limits" }
        exit bad
    }' "$known" -
