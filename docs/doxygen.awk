# SPDX-License-Identifier: Apache-2.0
# Turns the comments of a public header into Doxygen's: the head of the file, those that stand before what they are
# about, and those behind a field on its line. A word and two blanks before a text, as comments have parameters
# and failures, becomes a list. Characters that mean something to Doxygen are taken as they are.

function plain(text) {
    gsub(/[\\@<>#%&$"]/, "\\\\&", text)
    gsub(/(^| )\.\.+/, " \\&hellip;", text) # it would end a list
    return text
}

# A line of a comment without its frame.
function said(text) {
    if (text ~ /^ *[A-Za-z_][A-Za-z_0-9, ]*[A-Za-z_0-9]  +[^ ]/) {
        match(text, /[A-Za-z_0-9]  +/)
        return "@par " plain(substr(text, 1, RSTART)) "\n" plain(substr(text, RSTART + RLENGTH))
    }
    return plain(text)
}

# What stands behind an opening mark; knows whether the comment ends on this line.
function rest(text) {
    end = index(text, "*/")
    if (end > 0) {
        return said(substr(text, 1, end - 1)) substr(text, end)
    }
    inside = 1
    return said(text)
}

/^\/\/ SPDX/ { print "/// @file"; head = 1; next }
head && /^\/\// { print "///" plain(substr($0, 3)); next }
{ head = 0 }
/clang-format/ || /^ *\/\* ---- .* ---- \*\/$/ { print ""; next }

inside {
    text = $0
    end = index(text, "*/")
    inside = end == 0
    body = end > 0 ? substr(text, 1, end - 1) : text
    close_ = end > 0 ? substr(text, end) : ""
    sub(/^ *\*( |$)/, "", body)
    print said(body) close_
    next
}

{
    at = index($0, "/*")
    if (at == 0 || $0 ~ /^ *#/) {
        print
        next
    }
    before = substr($0, 1, at - 1)
    print before (before ~ /[^ ]/ ? "/**< " : "/** ") rest(substr($0, at + 2))
}
