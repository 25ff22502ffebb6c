#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what chat templates make of filters, tests and methods with each of their arguments, for
src/chat/tests/jinja_test.c.

    python3 tests/peers/record_jinja.py tests/cases/jinja/reference.json

Wants transformers and jinja2. A row is {"template", "text"}, or {"template", "error": {"kind"}} if the template fails,
of any kind but a wrong syntax that is found before. The variables of all rows are beside them. A row with "refused" is
one that the reference renders, and Spillway refuses by name.
"""

import json
import pathlib
import sys

import jinja2
import transformers
from transformers.utils import chat_template_utils

VARIABLES = {
    "l": ["b", "a", "c"],
    "n": [3, 1.5, True],
    "m": {"b": 1, "a": [1, None], "\u00e9": "\u00fc\u007f\U0001f600"},
    "r": [{"role": "user", "at": {"x": [5, 6]}}, {"role": "bot", "at": {"x": [7]}}, {"role": "user", "at": {}}],
    "s": " a b  c ",
    "t": "they're HERE: x-RAY (of m\u00fcLL\u00e9) \u00e9t\u00c9",
    "g": "\u039f\u0394\u039f\u03a3 \u03a3 \u03b1\u03a3. \u03a3\u03b1 \u03a3\u0301 \u03b1\u03a3\u0301-\u0391\u03a3",
}

EXPRESSIONS = """
'xxaxx' | trim('x')
'xyaxy' | trim(chars='yx')
s | trim(none)
s | trim('')
12 | trim('1')
'a' | trim(1)
'a' | trim('a', 'b')
'a' | trim(char='a')
l | length
l | count
l | length(1)
none | default('d')
gone | default
gone | d('x', false)
'' | default('x', true)
'' | default(default_value='x', boolean=true)
'' | default('x', boolean=1)
'' | default('x', bool=1)
'' | default('x', true, 1)
'' | default('x', default_value='y')
m | tojson
m | tojson(true)
m | tojson(ensure_ascii=true, indent=1)
m | tojson(false, 2)
m | tojson(indent=0)
m | tojson(indent=-3)
m | tojson(indent='. ')
m | tojson(indent=true)
m | tojson(indent=false)
m | tojson(indent=1.5)
m | tojson(indent=none)
m | tojson(separators=(',', ':'))
m | tojson(separators=[', ', '='], indent=1)
m | tojson(separators=',:')
m | tojson(separators=none)
m | tojson(separators=(',',))
m | tojson(separators=(1, 2))
m | tojson(separators=3)
m | tojson(sort_keys=true)
{'b': 1, 'a': 2, '\u00e9': 3, 'B': 4} | tojson(sort_keys=true)
{3: 1, 1.5: 2, true: 3} | tojson(sort_keys=true)
{3: 1, 'a': 2} | tojson(sort_keys=true)
{none: 1, true: 2, false: 3, 1.5: 4, 7: 5} | tojson
[1e308 * 10, -1e308 * 10] | tojson
[] | tojson(indent=2)
[[], {}, [1]] | tojson(indent=2)
m | tojson(false, none, none, true)
m | tojson(false, none, none, true, 1)
m | tojson(skipkeys=true)
gone | tojson
l | join
l | join('-')
l | join(d='-')
l | join(1)
l | join(none)
n | join(', ')
r | join(', ', 'role')
r | join(', ', attribute='at.x.0')
r | join(', ', attribute='role')
[[1, 2], [3, 4]] | join('+', attribute=1)
['ab', 'cd'] | join('+', attribute=0)
r | join('+', none)
r | join('+', attribute='gone')
r | join('+', attribute='gone.more')
l | join('-', 'a', 'b')
l | join(sep='-')
m | join(',')
'abc' | join(',')
l | first
l | first(1)
[] | first
l | last
l | last(n=1)
'abc' | last
1 | string
1 | string(2)
'ab' | list
l | list(1)
'aXbXc' | replace('X', '-')
'aXbXc' | replace('X', '-', 1)
'aXbXc' | replace('X', '-', 0)
'aXbXc' | replace('X', '-', -1)
'aXbXc' | replace('X', '-', none)
'aXbXc' | replace('X', '-', count=1)
'aXbXc' | replace(old='X', new='', count=true)
'aXbXc' | replace('X', '-', '1')
'aXbXc' | replace('X', '-', 1.5)
'abc' | replace('', '-')
'abc' | replace('', '-', 2)
'\u00e9b' | replace('', '-', 9)
'' | replace('', '-')
'' | replace('', '-', 0)
121 | replace(1, 3)
'None' | replace(none, 1.5)
'a' | replace('a')
'a' | replace('a', 'b', 1, 2)
'a' | replace('a', 'b', n=1)
m | items | list | length
m | items(1)
gone | items | list
1 | items | list
l | reverse | list
'ab\u00e9' | reverse
l | reverse(1)
1 | reverse
'a' | safe
'a' | safe(1)
'ab' | upper
'ab' | upper(1)
'AB' | lower
'AB' | lower('x')
'aB cD' | capitalize
'aB' | capitalize(1)
'aB cD' | title(1)
r | selectattr('role') | list | length
r | selectattr('role', 'eq', 'user') | list | length
r | rejectattr('role', 'eq', 'user') | map(attribute='role') | join
r | selectattr('at.x') | list | length
r | selectattr('at.x.1') | map(attribute='at.x.1') | join
r | selectattr('at.x.0', 'divisibleby', num=7) | list | length
r | selectattr('at.x', 'defined') | list | length
r | rejectattr('at.x', 'defined') | list | length
r | selectattr('role', 'in', ['bot']) | map(attribute='role') | join
r | selectattr('role', 'in', seq='a bot') | map(attribute='role') | join
[[0, 1], [1, 0]] | selectattr(1) | first
r | selectattr('role', 'eq', 'user', 'bot') | list
r | selectattr('role', 'eq') | list
r | selectattr('role', 'defined', 1) | list
r | selectattr('role', 'nothing') | list
r | selectattr('gone.x') | list
r | selectattr() | list
r | selectattr(attribute='role') | list
none | selectattr('role') | list
none | map('upper') | list
gone | map('upper') | list
l | map('upper') | join
l | map('replace', 'a', 'x') | join
l | map('replace', 'a', new='x') | join
l | map('replace', 'a', 'x', count=0) | join
l | map('trim', chars='a') | join(',')
r | map(attribute='role') | join(',')
r | map(attribute='at.x') | map('first') | join(',')
r | map(attribute='at.x.1', default='-') | join(',')
r | map(attribute='at.gone.x', default='-') | join(',')
r | map(attribute='gone') | map('default', '-') | join(',')
r | map(attribute='gone.x') | list
[[1, 2], [3]] | map(attribute=1, default=0) | join(',')
r | map(attribute='role', other='-') | list
l | map('default', default='x') | list
l | map('nothing') | list
l | map() | list
l | map(other='a') | list
r | map('selectattr', 'x') | list | length
[l, l] | map('join', '-') | join(' ')
7 is divisibleby 3
6 is divisibleby(num=3)
4.5 is divisibleby 1.5
6 is divisibleby(3, 2)
6 is divisibleby
6 is divisibleby 0
6 is divisibleby(by=3)
'a' is divisibleby 2
true is divisibleby 1
-3 is odd
3.0 is odd
2.5 is even
true is odd
1 is odd(1)
'a' is odd
1 is eq 1.0
1 is equalto(1)
1 is ne 2
1 is eq
1 is eq(1, 2)
1 is eq(other=1)
'b' is in l
'a b' is in s
1 is in s
'b' is in m
'c' is in(seq='abc')
'c' is in 'abc'
'c' is in 5
'c' is in gone
'c' is in('a', 'c')
s is defined(1)
none is none(1)
s is string(1)
m is mapping(1)
gone is callable
range is callable
s is callable
gone is iterable
gone is sequence
5 is iterable
m is sequence
true is number
true is integer
1 is integer
1.0 is integer
1.0 is float
1 is float
1 is boolean
false is false
0 is false
1 is true
s.strip()
s.strip(none)
s.strip(' a')
s.strip(chars=' ')
s.strip(1)
s.strip('a', 'b')
'xax'.lstrip('x')
'xax'.rstrip('x')
'a'.upper(1)
'A'.lower(1)
'a'.capitalize(1)
'a'.title(1)
'abc'.startswith('b', 1)
'abc'.startswith('ab', 0, 1)
'abc'.startswith('', 3)
'abc'.startswith('', 4)
'abc'.startswith('c', -1)
'abc'.startswith('a', none, none)
'abc'.startswith(('x', 'a'))
'abc'.startswith(prefix='a')
'abc'.startswith()
'abc'.startswith(1)
'abc'.startswith('a', '0')
'abc'.startswith('a', 0, 1, 2)
'abc'.endswith('b', 0, 2)
'abc'.endswith('bc', 2)
'abc'.endswith('', 4)
'abc'.endswith('b', 0, -1)
'\u00e9\u00e9b'.endswith('\u00e9', 1, 2)
'abc'.endswith(('x', 'c'), -2)
'abc'.endswith('abc', -99, 99)
'a,b,c'.split(',')
'a,b,c'.split(',', 1)
'a,b,c'.split(',', maxsplit=1)
'a,b,c'.split(sep=',', maxsplit=0)
'a,b,c'.split(',', -2)
'a,b,c'.split(',', true)
'a,b,c'.split(',', none)
'a,b,c'.split(',', '1')
'a,b,c'.split(',', 1, 2)
'a,b,c'.split(by=',')
s.split()
s.split(none)
s.split(none, 1)
s.split(maxsplit=2)
s.split(none, 0)
s.split(none, 9)
'a b '.split(none, 2)
'   '.split(none, 0)
''.split()
''.split('x')
'a'.split('')
'a'.split(1)
'aXbX'.replace('X', '')
'aXbX'.replace('X', '-', 1)
'aXbX'.replace('X', '-', -1)
'ab'.replace('', '-')
'ab'.replace('', '-', 1)
'ab'.replace('a')
'ab'.replace('a', 1)
'ab'.replace(old='a', new='b')
'ab'.replace('a', 'b', none)
'ab'.replace('a', 'b', 1, 1)
'-'.join(l)
'-'.join('abc')
'-'.join(m)
'-'.join([])
'-'.join([1])
'-'.join(n)
'-'.join()
'-'.join(l, l)
'-'.join(iterable=l)
'-'.join(5)
m.get('b')
m.get('z')
m.get('z', 4)
m.get('z', default=4)
m.get(key='b')
m.get()
m.get('b', 1, 2)
m.items() | list | length
m.items(1)
m.keys() | list
m.keys(1)
m.values() | list
m.values(1)
range(3) | list
range(1, 9, 3) | list
range(stop=3) | list
range() | list
range(1.5) | list
namespace(a=1).a
namespace({'a': 1}).a
namespace({'a': 1}, a=2, b=3).a
namespace({'a': 1}, {'b': 1}).a
namespace(1).a
namespace(_a=1)
namespace({'_a': 1})
raise_exception('a')
raise_exception(message='a')
raise_exception()
raise_exception('a', 'b')
raise_exception(text='a')
strftime_now(format='%%')
strftime_now()
strftime_now(1)
strftime_now('%%', '%%')
t | title
t.title()
t | capitalize
t.capitalize()
"it's a2b x_y o\'no" | title
"it's a2b x_y o\'no".title()
'a-b(c{d[e<f>g)h}i]j/k.l,m' | title
'a-b(c{d[e<f>g)h}i]j/k.l,m'.title()
'a\u00a0b\u2003c\u001fd\te' | title
'--a ((b' | title
'' | title
12 | title
g | title
g.title()
g | lower
g | upper
g | capitalize
'\u01c6a \u01c6b' | title
'\u01c6a \u01c6b'.title()
'\u01c6a'.capitalize()
'\u00dfa \u00dfb' | title
'\u00dfa \u00dfb'.title()
'\u00dfa' | capitalize
'\u0130A' | lower
"""

TEMPLATES = [
    "{% set ns = namespace() %}{% set ns._a = 1 %}",
    "{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(b=1, a=3) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, c=2) }}",
    "{{ f(1, a=2, 3) }}",
    "{{ 'a' | replace(old='a', 'b') }}",
    "{% for a in [1, 2] %}{{ loop.depth }}{{ loop.depth0 }}{{ loop }}{% endfor %}",
]

# What the reference renders and Spillway refuses.
REFUSED = [
    "{{ r | selectattr('role', foo=1) | list | length }}",  # ignored there
    "{{ namespace([['a', 1]]).a }}",
]


def kind_of(error):
    """The name that jinja_test.c has for the kind of an error."""
    for cls, kind in [(jinja2.TemplateSyntaxError, "syntax"), (jinja2.exceptions.SecurityError, "security"),
                      (jinja2.UndefinedError, "undefined"), (jinja2.TemplateRuntimeError, "runtime"),
                      (jinja2.TemplateError, "raise_exception")]:
        if isinstance(error, cls):
            return kind
    return "type"


def record(template):
    row = {"template": template}
    try:
        row["text"] = chat_template_utils._compile_jinja_template(template).render(**VARIABLES)
    except Exception as error:
        row["error"] = {"kind": kind_of(error)}
    return row


def main(path):
    expressions = ["{{ %s }}" % e.encode("latin-1", "backslashreplace").decode("unicode_escape")
                   for e in EXPRESSIONS.strip().split("\n")]
    rows = [record(template) for template in expressions + TEMPLATES]
    rows += [{**record(template), "refused": True} for template in REFUSED]
    out = pathlib.Path(path)
    out.parent.mkdir(exist_ok=True)
    with out.open("w") as to:
        to.write('{"made_by": %s,\n"variables": %s,\n"rows": [\n' % (
            json.dumps({"transformers": transformers.__version__, "jinja2": jinja2.__version__,
                        "python": "%d.%d" % sys.version_info[:2]}), json.dumps(VARIABLES)))
        to.write(",\n".join(json.dumps(row) for row in rows) + "\n]}\n")


main(*sys.argv[1:])
