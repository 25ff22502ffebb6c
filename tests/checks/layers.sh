#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every #include obeys LAYERS: a room includes its own headers, the doors of the rooms on its line, and
# public headers; nobody includes another room's private header; vendor headers stay in their backend.
# The tests of a room may use what the room is linked with: also the rooms of the rooms on its line.
# And LAYERS allows no more than that: a room on a line is included by some file, by its door or by a public
# header of its own, and rooms, and folders of rooms (`cpu/`) in the text behind a line, are there.
# With an argument, checks that tree instead of this one (checks_test.sh uses that).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"

find src include examples bench -name '*.[ch]' 2>/dev/null | sort | xargs awk -f "$here/code.awk" |
    awk '
    function complain(why) { print place ": " why ": " wanted; bad = 1 }
    function there(folder) { return system("test -d " folder) == 0 }

    BEGIN {
        split("status base nvme store train job checkpoint job doctor look", of, " ")
        for (i = 1; i in of; i += 2) { home["spillway/" of[i] ".h"] = of[i + 1] }
    }
    FILENAME == "LAYERS" {
        place = "LAYERS:" FNR
        text = $0
        sub(/^[^#]*/, "", text)
        sub(/#.*/, "")
        if (NF < 2) { next }
        line[$1] = place
        wanted = "src/" $1
        if (!there(wanted)) { complain("there is no such folder") }
        while (match(text, /[a-z]+\//)) {
            wanted = "src/" $1 "/" substr(text, RSTART, RLENGTH - 1)
            if (!there(wanted)) { complain("there is no such folder") }
            text = substr(text, RSTART + RLENGTH)
        }
        known[$1] = 1
        for (i = 3; i <= NF; i++) {
            if ($i != "-" && $i != "public") { may[$1, $i] = below[$1, $i] = 1 }
            for (room in known) { if ((($i, room) in below)) { below[$1, room] = 1 } }
        }
        next
    }
    !match($0, /^[^:]*:[0-9]+:[ \t]*#[ \t]*include[ \t]*/) { next }
    {
        split($0, part, ":")
        file = part[1]
        place = part[1] ":" part[2]
        wanted = substr($0, RLENGTH + 1)
        n_includes++
        n = split(file, dir, "/")
        room = dir[1] == "src" ? dir[2] : ""
        in_tests = room != "" && dir[3] == "tests"

        if (wanted ~ /^</) {
            if (wanted ~ /^<(cuda|hip|cublas|rocblas)/ && file !~ /^src\/(device\/gpu|comm\/nccl)\//) {
                complain("vendor header outside of its backend")
            }
            if (wanted ~ /^<mpi\.h/ && file !~ /^(src\/comm|bench)\/mpi\//) {
                complain("vendor header outside of its backend")
            }
            if (wanted ~ /^<(nccl|rccl)/ && file !~ /^src\/comm\/nccl\//) {
                complain("vendor header outside of its backend")
            }
            if (wanted ~ /^<liburing/ && file !~ /^src\/store\/uring\//) {
                complain("vendor header outside of its backend")
            }
            if (wanted ~ /^<(oneapi\/)?dnnl/ && file !~ /^src\/device\/cpu\/dnnl[^\/]*\.[ch]$/) {
                complain("vendor header outside of its backend")
            }
            if (match(wanted, /^<(pcre2|utf8proc|xxhash|hwloc|png|jpeglib)/)) {
                vendor = substr(wanted, 2, RLENGTH - 1)
                if ((room, vendor) in wrapper && wrapper[room, vendor] != file) {
                    complain("already wrapped by " wrapper[room, vendor])
                }
                wrapper[room, vendor] = file
            }
            next
        }
        header = wanted
        sub(/^"/, "", header)
        sub(/".*$/, "", header)
        m = split(header, to, "/")
        target = to[1]
        if (target == "spillway") {
            sub(/\.h$/, "", to[2])
            used[room, header in home ? home[header] : to[2]] = 1
            next
        }
        used[room, target] = 1
        if (dir[1] == "include") { complain("a public header includes a private one"); next }
        if (dir[1] == "examples") { complain("an example uses more than public headers"); next }
        if (in_tests && target == "support") { next }
        if (!(target in known)) { complain("include is not rooted at src/ or names no room"); next }
        if (target == room) { next }
        if (target == "cli") { complain("nobody includes cli"); next }
        if (header != target "/" target ".h") { complain("private header of another room"); next }
        if (in_tests && ((room, target) in below)) { next }
        if (room != "" && !((room, target) in may)) { complain("LAYERS does not let " room " use"); next }
    }
    END {
        for (pair in may) {
            split(pair, part, SUBSEP)
            place = line[part[1]]
            wanted = part[2]
            if (!(pair in used)) { complain("no file of " part[1] " includes it") }
        }
        if (n_includes == 0) { print "no include was found: the check looked in the wrong place"; bad = 1 }
        if (!bad) { print n_includes " includes obey LAYERS" }
        exit bad
    }' LAYERS -
