# SPDX-License-Identifier: Apache-2.0
# Preprocessed public headers to a C program that prints the size of each public struct, the place of its fields, and
# the value of each constant of an enum.
{ text = text " " $0 }

function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }

# The name that a declarator gives: "*const *sets", "dims[6]", "(*exchange)(void *ctx, int n)".
function named(s) {
    if (match(s, /\(\*[a-z_0-9]+\)/)) { return substr(s, RSTART + 2, RLENGTH - 3) }
    sub(/\[.*/, "", s)
    match(s, /[A-Za-z_0-9]+[ ]*$/)
    return trim(substr(s, RSTART, RLENGTH))
}

function fields(struct, body,    part, n, i, one, m, k) {
    printf "    printf(\"struct %s %%zu:\", sizeof(struct %s));\n", struct, struct
    n = split(body, part, ";")
    for (i = 1; i < n; i++) {
        m = part[i] ~ /\(\*/ ? 1 : split(part[i], one, ",")
        if (m == 1) { one[1] = part[i] }
        for (k = 1; k <= m; k++) {
            printf "    printf(\" %s@%%zu+%%zu\", offsetof(struct %s, %s), sizeof((struct %s){0}.%s));\n",
                named(one[k]), struct, named(one[k]), struct, named(one[k])
        }
    }
    print "    puts(\"\");"
}

function constants(body,    part, n, i) {
    n = split(body, part, ",")
    for (i = 1; i <= n; i++) {
        sub(/=.*/, "", part[i])
        part[i] = trim(part[i])
        if (part[i] ~ /^SW_/) { printf "    printf(\"constant %s %%lld\\n\", (long long)%s);\n", part[i], part[i] }
    }
}

END {
    print "int main(void)\n{"
    while (match(text, /(struct sw_[a-z_0-9]+|enum( sw_[a-z_0-9]+)?) \{[^}]*\}/)) {
        what = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        head = trim(substr(what, 1, index(what, "{") - 1))
        body = substr(what, index(what, "{") + 1)
        sub(/\}$/, "", body)
        if (head ~ /^struct/) { fields(substr(head, 8), body) } else { constants(body) }
    }
    print "    return 0;\n}"
}
