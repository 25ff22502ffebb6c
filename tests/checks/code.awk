# SPDX-License-Identifier: Apache-2.0
# C source without comments, strings and character constants, as "file:line:code", for the checks in
# this folder. Names in #include lines are kept.

FNR == 1 { in_comment = 0 }

/^[ \t]*#[ \t]*include/ && !in_comment { print FILENAME ":" FNR ":" $0; next }

{
    rest = $0
    code = ""
    while (rest != "") {
        if (in_comment) {
            end = index(rest, "*/")
            if (!end) { rest = ""; break }
            rest = substr(rest, end + 2)
            in_comment = 0
            continue
        }
        if (!match(rest, /\/\/|\/\*|"|'/)) { code = code rest; break }
        code = code substr(rest, 1, RSTART - 1)
        mark = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (mark == "//") { break }
        if (mark == "/*") { in_comment = 1; continue }
        # a string or character: skip to its end, over escaped characters
        while (rest != "" && substr(rest, 1, 1) != mark) {
            rest = substr(rest, substr(rest, 1, 1) == "\\" ? 3 : 2)
        }
        rest = substr(rest, 2)
        code = code mark mark
    }
    if (code ~ /[^ \t]/) { print FILENAME ":" FNR ":" code }
}
