"""Texts that Jinja makes of chat templates, with what transformers sets, for tests/spec/chat/template_spec.lua.

    python tests/oracle/chat.py > tests/oracle/chat.json
    python tests/oracle/chat.py random 20000 SEED > FILE           then: CHAT_CASES=FILE in front of the spec
    python tests/oracle/chat.py published FILE-OR-FOLDER... > FILE  .jinja, .gguf, .py with templates in it

A case is {template, values, text}; without text: Jinja refuses it. Dicts have their keys sorted.
"""

import ast
import json
import pathlib
import random
import sys

from transformers.utils import chat_template_utils as transformers_chat

ENVIRONMENT = transformers_chat._cached_compile_jinja_template  # noqa: SLF001


def render(template, values):
    return ENVIRONMENT(template).render(**values)


def case(template, values):
    row = {"template": template, "values": values}
    try:
        row["text"] = render(template, values)
        row["text"].encode()
    except RecursionError:
        return None
    except Exception as e:  # noqa: BLE001
        row.pop("text", None)
        row["error"] = f"{type(e).__name__}: {e}"[:200]
    if " object at 0x" in row.get("text", "") or "Markup" in row.get("text", ""):
        return None
    return row


# ---- by hand ------------------------------------------------------------------------------------------------

TURNS = [{"content": "Hi, \"you\" <b>日\n ", "role": "user"}, {"content": " Yes?", "role": "assistant"},
         {"content": "\n\u3000日本 😀", "role": "user"}]
TOOL = {"function": {"description": "Adds.", "name": "add", "parameters": {
    "properties": {"a": {"description": "one", "type": "integer"}, "b": {"type": ["integer", "null"]}},
    "required": ["a"], "type": "object"}}, "type": "function"}
ALL = {"messages": TURNS, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "n": 3, "x": 1.5,
       "none": None, "flag": False, "words": ["b", "A", "c", "a"], "tool": TOOL, "text": "  one two\tthree \n"}

BY_HAND = r"""
{%- for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{% if not loop.last %}, {% else %}.{% endif %}{% endfor -%}
{% for m in messages %}
  {% if m.role == 'user' %}
    {{ m.content }}
  {% endif %}
  x {% set y = 1 %} z
{% endfor %}
end
===
{{ 1 + 2 * 3 ** 2 - 7 // 2 % 3 }} {{ -2 ** 2 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 1 ~ 2.0 ~ none ~ true }}
===
{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 0.1 + 0.2 }} {{ 1.5e-7 }} {{ 100.0 }} {{ 3.0 // 2 }} {{ 2 ** -1 }}
===
{{ [1, 'it\'s', "q\"", none, (1,), {'a': [true]}, 1.0, 'é\n\\'] }} {{ (1, 2) }} {{ () }} {{ {} }} {{ undefined_name }}
===
{{ 'abc'[0] }}{{ 'äbc'[1:] }}{{ 'abc'[::-1] }}{{ words[-1] }}{{ words[1:3] }}{{ words[9] }}{{ words[::2] }}{{ n[0] }}
===
{{ messages[0].role }} {{ messages[0]['role'] }} {{ messages.0.role }} {{ messages[0].nothing }} {{ none.a }}
===
{{ missing.a }}
===
{% set ns = namespace(found=false, n=0) %}{% for w in words if w != 'c' %}{% set ns.n = ns.n + loop.index %}{{ loop.length }}{% set ns.found = true %}{% endfor %}{{ ns.n }}{{ ns.found }}{{ ns.other is defined }}
===
{% set x = 1 %}{% for i in range(3) %}{{ x }}{% set x = i + 5 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
===
{% for k, v in tool.function.items() %}{{ loop.index0 }}{{ k }}={{ v if v is string else v | tojson }};{% else %}none{% endfor %}{% for a in [] %}{% else %}empty{% endfor %}
===
{{ tool | tojson }}|{{ tool | tojson(indent=2) }}|{{ [] | tojson(indent=2) }}|{{ "é\u0001</" | tojson }}|{{ 'é😀' | tojson(ensure_ascii=true) }}|{{ [1.0, 2, none, true] | tojson(separators=(',', ':')) }}
===
{% macro say(a, b='B', c=none) -%} <{{ a }}{{ b }}{{ c }}> {%- endmacro %}{{ say(1) }}{{ say('x', c=2) }}{{ say() }}{{ say(1, 2, 3) }}
===
{% macro down(k) %}{{ k }}{% if k > 0 %}{{ down(k - 1) }}{% endif %}{% endmacro %}{{ down(5) }}
===
{{ 'a' in 'cat' }} {{ 'x' not in words }} {{ 'role' in messages[0] }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ not n in [1] }} {{ 'a' < 'b' and 'x' or 'y' }}
===
{{ x is defined }}{{ y is not defined }}{{ none is none }}{{ n is number }}{{ tool is mapping }}{{ words is iterable }}{{ 'a' is string }}{{ words is sequence }}{{ flag is false }}{{ n is odd }}{{ n is divisibleby 3 }}{{ n is eq 3 }}{{ text is boolean }}{{ y is iterable }}
===
[{{ text.strip() }}][{{ text.split() }}][{{ text.lstrip() }}][{{ text | trim }}][{{ text.rstrip('\n ') }}][{{ 'a,b,,c'.split(',') }}][{{ 'a,b,c'.split(',', 1)[1] }}][{{ 'a,b,c'.rsplit(',', 1) }}][{{ 'xaxbx'.split('x') }}]
===
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.replace('b', 'xx') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'a b'.upper() }}{{ 'ABC'.lower() }}{{ 'one two'.title() }}{{ 'oNE'.capitalize() }}{{ 'a\nb\r\nc'.splitlines() }}{{ 'abcabc'.find('c') }}{{ 'aXbX'.count('X') }}{{ '-'.join(words) }}
===
{{ words | join(', ') }}{{ words | sort }}{{ words | sort(reverse=true) }}{{ words | first }}{{ words | last }}{{ words | length }}{{ words | reverse | list }}{{ [3, 1, 2] | max }}{{ [1, 1, 2] | unique | list }}{{ words | map('upper') | join }}
===
{{ messages | map(attribute='role') | list }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='content') | first }}{{ [0, 1, none, 'a'] | select | list }}
===
{{ y | default('d') }}{{ '' | default('d', true) }}{{ '' | default('d') }}{{ none | default('d') }}{{ 'a\nb\n\nc' | indent(2) }}{{ 'a\nb' | indent(2, true) }}{{ '12' | int + 1 }}{{ 'x' | int }}{{ '1.5' | float }}{{ 2.5 | round }}{{ 2.567 | round(2) }}{{ -3 | abs }}
===
{{ tool.function.parameters.properties | dictsort }}{{ tool | items | list | length }}{{ tool.get('type') }}{{ tool.get('no', 'd') }}{{ tool.keys() | list }}
===
{%- set text %}
 a {{ n }}
{% endset -%}
[{{ text }}]{% set t | trim | upper %} b {% endset %}[{{ t }}]
===
{% raw %}{{ x }}{% y %}{% endraw %} {# gone {{ #} a
{#- gone -#}   b {{- ' c ' -}}   d
   {%- if true +%}
e{% endif %}
===
{% for i in range(1, 10, 3) %}{% if i == 4 %}{% continue %}{% endif %}{% if i > 6 %}{% break %}{% endif %}{{ i }}{% endfor %}{% for i in range(3) %}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.cycle('a', 'b') }}{{ loop.previtem is defined }}{{ loop.nextitem }}{% endfor %}
===
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles alternate') }}{% endif %}{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}{% endfor %}{% if add_generation_prompt and messages[-1].role != 'assistant' %}<go>{% endif %}
===
{{ raise_exception('no') }}
===
{{ 'a' + 1 }}
===
{{ words.append('x') }}
===
{{ "a" "b" 'c' }}{{ '\x41\u00e9\n\q' }}{{ {'a': {'b': 1}}.a.b }}{{ {1: 'x', true: 'y'} }}{{ 'a' if none }}{{ ('b' if 1 else 'c') }}
===
{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q }}
===
{{ a if
===
{% if x %}
===
{{ 1 2 }}
===
{{ 'a' * 3 }}{{ 2 * [1, 2] }}{{ [1] + [2] }}{{ words == ['b', 'A', 'c', 'a'] }}{{ (1, 2) == [1, 2] }}{{ [1, 2] < [1, 3] }}{{ true + 1 }}{{ 10 // 0 }}
""".strip("\n").split("\n===\n")

# ---- at random ----------------------------------------------------------------------------------------------


class Program:
    """A template of the grammar that templates are read in; mostly one that Jinja takes."""

    TEXTS = ["", "a", "Ab c", " x ", "日\\n", "日本", "a,b", "user", "0", "\\t- "]

    def __init__(self, seed):
        self.random, self.names, self.loops = random.Random(seed), ["n", "x", "flag", "none", "words", "text", "tool",
                                                                     "messages"], 0

    def one(self, *choices):
        return self.random.choice(choices)

    def chance(self, p):
        return self.random.random() < p

    def text(self, d):
        if d <= 0 or self.chance(0.3):
            return self.one("'" + self.one(*self.TEXTS) + "'", "text", "bos_token", "messages[0].role", "words[0]",
                            "messages[-1]['content']")
        a, b = self.text(d - 1), self.text(d - 1)
        return self.one(
            f"({a} ~ {self.any(d - 1)})", f"({a} + {b})", f"{a}.strip()", f"{a}.upper()", f"({a}|trim)", f"({a}|lower)",
            f"{a}.replace({b}, {self.text(d - 1)})", f"{a}[{self.slice()}]", f"({self.any(d - 1)}|string)",
            f"({self.list(d - 1)}|join({b}))", f"({self.any(d - 1)}|tojson)", f"({a}|capitalize)", f"({a}|title)",
            f"({a} if {self.truth(d - 1)} else {b})", f"({a} * {self.one(0, 1, 2)})", f"{a}.rstrip({b})",
            f"{a}.lstrip('{self.one('a', ' x', '日')}')", f"({a}|indent({self.one(1, 2)}))", f"({a}|replace({b}, 'Z'))",
            f"({self.any(d - 1)}|default({b}))", f"{a}.removeprefix({b})", f"({a}|first)", f"{a}.capitalize()",
            f"({a}|reverse)")

    def number(self, d):
        if d <= 0 or self.chance(0.3):
            return self.one("n", "x", "0", "1", "2", "-3", "2.5", "10", "7", "1e3") if not (
                self.loops and self.chance(0.5)) else self.one("loop.index", "loop.index0", "loop.length",
                                                               "loop.revindex")
        a, b = self.number(d - 1), self.number(d - 1)
        return self.one(f"({a} {self.one('+', '-', '*', '/', '//', '%')} {b})", f"({self.list(d - 1)}|length)",
                        f"({self.text(d - 1)}|length)", f"-{a}", f"({a}|int)", f"({a}|abs)", f"({a}|round)",
                        f"{self.text(d - 1)}.find({self.text(d - 1)})", f"({a} if {self.truth(d - 1)} else {b})",
                        f"({self.text(d - 1)}|int)", f"{self.text(d - 1)}.count({self.text(d - 1)})",
                        f"({a} {self.one('+', '-')} {b} {self.one('*', '//', '%')} {self.number(d - 1)})")

    def truth(self, d):
        if d <= 0 or self.chance(0.2):
            return self.one("true", "false", "flag", "n", "none", "words", "missing")
        a, b = self.any(d - 1), self.any(d - 1)
        test = self.one("defined", "none", "string", "mapping", "iterable", "number", "sequence", "boolean", "true",
                        "false", "undefined", "integer", "float")
        compared = self.one(("number",), ("text",))[0]
        x, y = getattr(self, compared)(d - 1), getattr(self, compared)(d - 1)
        return self.one(f"({x} {self.one('<', '>', '<=', '>=', '==', '!=')} {y})", f"({a} == {b})", f"(not {a})",
                        f"({a} {self.one('and', 'or')} {b})", f"({a} is {self.one('', 'not ')}{test})",
                        f"({self.text(d - 1)} {self.one('in', 'not in')} {self.text(d - 1)})",
                        f"({a} {self.one('in', 'not in')} {self.list(d - 1)})", f"{self.text(d - 1)}.startswith({self.text(d - 1)})",
                        f"('role' in messages[0])", f"({x} < {y} <= {x})", f"{self.text(d - 1)}.isdigit()",
                        f"{self.text(d - 1)}.endswith({self.text(d - 1)})", f"({a} != {b})")

    def list(self, d):
        if d <= 0 or self.chance(0.3):
            return self.one("words", "messages", "[]", "[1, 2]", "['b', 'a', 'B']", "(range(4)|list)", "(1, 'x')", "tool",
                            "'h日j'")
        a = self.list(d - 1)
        return self.one(f"[{self.any(d - 1)}, {self.any(d - 1)}]", f"{a}[{self.slice()}]", f"({a}|list)",
                        f"{self.text(d - 1)}.split({self.one('', repr(','), repr('a'))})", f"(words|map('{self.one('upper', 'length', 'trim')}')|list)",
                        "(messages|map(attribute='role')|list)", f"(words + [{self.any(d - 1)}])", f"(words|sort)",
                        f"({a}|reverse|list)", f"{self.text(d - 1)}.splitlines()", "(tool|dictsort)",
                        f"(messages|selectattr('role', 'equalto', '{self.one('user', 'x')}')|list)", f"({a}|unique|list)",
                        f"({a} if {self.truth(d - 1)} else {self.list(d - 1)})", "tool.keys()|list",
                        f"({a}|select('{self.one('string', 'number', 'defined')}')|list)")

    def slice(self):
        part = lambda: self.one("", "0", "1", "-1", "2", "-2", "n")  # noqa: E731
        return part() + ":" + part() + (":" + self.one("1", "2", "-1", "") if self.chance(0.3) else "")

    def any(self, d):
        kind = self.one(self.text, self.text, self.number, self.truth, self.list)
        if self.chance(0.1):
            return self.one(*self.names)
        if self.chance(0.08):
            return self.one("missing", "none", "tool.type", "tool.function.name", "messages[0].nope", "{'k': 1, 'a': [x]}",
                            "tool['function']['parameters']", "ns.a", "f(1)", "f(n, b=2)")
        return kind(d)

    def open(self, sign):
        return "{" + sign + self.one("", "", "", "-", "+" if sign == "%" else "")

    def tag(self, text):
        return self.open("%") + " " + text + " " + self.one("", "", "", "-", "+") + "%}"

    def data(self):
        return self.one("", "", "a", "\n", "  ", " b\n  ", "\n\n", "x ", "<|im|>", "\n \t", "é}")

    def statement(self, d):
        kind = self.random.random()
        if kind < 0.45 or d <= 0:
            return "{{" + self.one("", "", "-") + " " + self.any(2) + " " + self.one("", "", "-") + "}}"
        if kind < 0.6:
            words = [self.tag("if " + self.truth(2)), self.body(d - 1)]
            if self.chance(0.3):
                words += [self.tag("elif " + self.truth(1)), self.body(d - 1)]
            if self.chance(0.4):
                words += [self.tag("else"), self.body(d - 1)]
            return "".join(words) + self.tag("endif")
        if kind < 0.78:
            name = self.one("i", "w", "m", "n")
            self.names.append(name)
            self.loops += 1
            over = self.list(1) + (f" if {self.truth(1)}" if self.chance(0.3) else "")
            if self.chance(0.15):
                head = self.tag("for k, v in tool.items()")
            else:
                head = self.tag(f"for {name} in {over}")
            body = self.body(d - 1) + (self.tag(self.one("break", "continue")) if self.chance(0.1) else "")
            self.loops -= 1
            return head + body + (self.tag("else") + self.data() if self.chance(0.2) else "") + self.tag("endfor")
        if kind < 0.9:
            name = self.one("v", "u")
            self.names.append(name)
            if self.chance(0.3):
                return self.tag(f"set ns.a = {self.any(2)}")
            if self.chance(0.2):
                return self.tag(f"set {name}{self.one('', ' | trim', ' | upper')}") + self.body(d - 1) + self.tag("endset")
            if self.chance(0.15):
                return self.tag(f"set {name}, u = {self.any(1)}, {self.any(1)}")
            return self.tag(f"set {name} = {self.any(3)}")
        if kind < 0.95:
            return "{#" + self.one("", "-") + self.data() + self.one("", "-") + "#}"
        return self.tag("raw").replace("+%}", "%}") + "{{ x" + self.data() + self.tag("endraw")

    def body(self, d):
        return "".join(self.data() + self.statement(d) for _ in range(self.random.randint(1, 3))) + self.data()

    def template(self):
        return ("{% set ns = namespace(a=1) %}{% macro f(a, b='q') %}" + self.one("[{{ a }}{{ b }}]", "{{ a ~ n }}\n")
                + "{% endmacro %}\n" + self.body(3))


# ---- published --------------------------------------------------------------------------------------------------

CALLS = [{"content": "", "role": "assistant", "tool_calls": [
    {"function": {"arguments": {"a": 1, "b": "x"}, "name": "add"}, "id": "abcdefghi", "type": "function"}]},
    {"content": "3", "name": "add", "role": "tool", "tool_call_id": "abcdefghi"},
    {"content": "It is 3.", "role": "assistant"}]
PARTS = [{"content": [{"text": "Look", "type": "text"}], "role": "user"}]
SYSTEM = [{"content": "Be brief. ", "role": "system"}]


def scenarios():
    base = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
    for messages in ([TURNS[0]], SYSTEM + [TURNS[0]], TURNS, SYSTEM + TURNS, PARTS, SYSTEM + TURNS + CALLS[2:],
                     TURNS[:1] + CALLS, TURNS[:2]):
        yield {**base, "messages": messages}
        yield {**base, "messages": messages, "add_generation_prompt": False, "enable_thinking": False}
    yield {**base, "messages": SYSTEM + TURNS, "tools": [TOOL]}
    yield {**base, "messages": TURNS[:1] + CALLS, "tools": [TOOL], "enable_thinking": True}


def texts_of(path):
    if path.suffix == ".gguf":
        import gguf

        field = gguf.GGUFReader(path).get_field("tokenizer.chat_template")
        return [bytes(field.parts[-1]).decode()] if field else []
    text = path.read_text()
    if path.suffix != ".py":
        return [text]
    found = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)
             and isinstance(node.value, str)]
    return [t for t in found if "{%" in t and ("endfor" in t or "endif" in t) and "messages" in t]


def published(paths):
    seen = set()
    for root in map(pathlib.Path, paths):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.suffix not in (".jinja", ".gguf", ".py") or root.is_dir() and path.suffix == ".py":
                continue
            for template in texts_of(path):
                if template not in seen:
                    seen.add(template)
                    for values in scenarios():
                        yield {**case(template, values), "from": path.name}


def main(words):
    if words and words[0] == "published":
        rows = published(words[1:])
    elif words and words[0] == "random":
        rows = (case(Program(int(words[2]) * 1000003 + i).template(), ALL) for i in range(int(words[1])))
    else:
        rows = (case(template, ALL) for template in BY_HAND)
    for row in rows:
        if row:
            print(json.dumps(row, ensure_ascii=False, sort_keys=True))


main(sys.argv[1:])
