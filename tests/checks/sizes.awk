# SPDX-License-Identifier: Apache-2.0
# Of code as code.awk prints it: "function <room> <file:line> <name> <lines> <parameters>" and
# "struct <room> <file:line> <name> <fields>". A function's lines are those from the first of its declaration
# to its closing brace; fields of a struct inside of a struct count, too.

# How many names a list has, between commas outside of brackets of any kind.
function names(list,    i, c, depth, n) {
    n = 1
    for (i = 1; i <= length(list); i++) {
        c = substr(list, i, 1)
        if (c ~ /[([{]/) { depth++ }
        if (c ~ /[])}]/) { depth-- }
        n += c == "," && depth == 0
    }
    return n
}

# What is in the last outer pair of parentheses, and in `called` what stands before it.
function last_list(text,    i, c, depth, from, list) {
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "(" && depth++ == 0) { from = i }
        if (c == ")" && --depth == 0) {
            called = substr(text, 1, from - 1)
            list = substr(text, from + 1, i - from - 1)
        }
    }
    sub(/[ \t]+$/, "", called)
    sub(/^.*[ \t*]/, "", called)
    return list
}

{
    split($0, part, ":")
    file = part[1]
    line = part[2]
    code = substr($0, length(file) + length(line) + 3)
    if (file != at_file) { declared = structure = ""; in_function = 0; at_file = file }
    split(file, dir, "/")
    room = dir[2]
}

# a struct, with its fields until the brace that ends it
structure != "" {
    if (code ~ /^[ \t]*\}/ && --depth == 0) {
        print "struct", room, structure, n_fields
        structure = ""
        declared = code ~ /;[ \t]*$/ ? "" : code # of an array of them
        next
    }
    if (code ~ /\{[ \t]*$/) { depth++; held = ""; next }
    held = held " " code
    if (code ~ /;[ \t]*$/) {
        n_fields += code ~ /^[ \t]*\}/ ? 0 : names(held)
        held = ""
    }
    next
}
code ~ /^(static |typedef |const )*(struct|union)[ \t]*[a-z_0-9]*[ \t]*\{[ \t]*$/ {
    name = code
    sub(/[ \t]*\{.*/, "", name)
    sub(/.*[ \t]/, "", name)
    structure = file ":" line " " name
    n_fields = 0
    depth = 1
    held = ""
    next
}

# a function, from its declaration to the brace that ends it
in_function {
    if (code ~ /^\}/) {
        print "function", room, file ":" first, called, line - first + 1, n_parameters
        in_function = 0
        declared = ""
    }
    next
}
code ~ /^#/ { next }
code ~ /^\{/ && declared != "" {
    list = last_list(declared)
    n_parameters = list ~ /^[ \t]*(void)?[ \t]*$/ ? 0 : names(list)
    in_function = 1
    next
}
{
    if (declared == "") { first = line }
    declared = declared " " code
    if (code ~ /[;}][ \t]*$/) { declared = "" }
}
