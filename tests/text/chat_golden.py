"""Chat templates as jinja2 renders them in transformers' settings: templates/*.jinja (written for these tests in the
style of the families) over conversations(), and small pieces of the language. Used by make_golden.py."""

import datetime
import glob
import os

import transformers.utils.chat_template_utils as peer


class OneDay(datetime.datetime):
    """What strftime_now sees: the date that kvscale always gives."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


peer.datetime = OneDay
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Weather of a \"place\".\nNow & <later>, für alle.", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "A city"}, "days": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}}, "how": {"type": ["string", "number"]}},
        "required": ["place"]}}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "description": "Time", "parameters": {"type": "object", "properties": {}, "required": []},
    "return": {"type": "string"}}}


def call(name, arguments, identity="abc123def"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    system, user = {"role": "system", "content": " Be brief. "}, {"role": "user", "content": "  What is 2+2?\n"}
    answer, more = {"role": "assistant", "content": "4\n"}, {"role": "user", "content": "Größer? 漢字 🙂 <|im_end|> {{ x }}"}
    thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}
    asked = {"role": "assistant", "content": "", "tool_calls": [call("weather", {"place": "Łódź", "days": 2, "x": None})]}
    both = {"role": "assistant", "content": "Both.", "tool_calls": [call("weather", {"place": "A"}), call("clock", {}, "fed321cba")]}
    result = {"role": "tool", "content": "{\"t\": 1.5}", "tool_call_id": "abc123def", "name": "weather"}
    parts = {"role": "user", "content": [{"type": "text", "text": " one "}, {"type": "image"}, {"type": "text", "text": "two"}]}
    for messages in [[user], [system, user], [user, answer, more], [system, user, answer, more, thought],
                     [user, thought, more], [user, user], [answer, user], [system], [parts], [{"role": "user", "content": ""}],
                     [{"role": "developer", "content": "x"}, user], [{**user, "name": None}, answer]]:
        yield messages, None
    tools = [WEATHER, CLOCK]
    for messages in [[user], [system, user], [user, asked, result], [system, user, asked, result, answer, more],
                     [user, both, result, result, {**answer, "reasoning_content": "because"}, more], [user, both, result]]:
        yield messages, tools
    yield [user, asked, result, answer], None


# Pieces of the language; each is a template of its own, with x, messages, tools and TOKENS known.
PIECES = r"""
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1.5 + 1 }}
{{ 1e3 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }} {{ 0.00001 }} {{ 1_000 }} {{ -0.0 }} {{ 1e300 * 1e10 }}
{{ 7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 3 * 'ab' }} {{ 'ab' * 2 }} {{ [1] * 3 }} {{ 'x' * -1 }}
{{ true }} {{ none }} {{ True and None }} {{ 0 or 'a' }} {{ not 0 }} {{ '' and 1 }}
{{ [1, 'a', none, true, 1.5, [2]] }} {{ (1,) }} {{ () }} {{ {'a': 1, 2: 'b'} }} {{ {} }} {{ (1, 2) + (3,) }}
{{ "it's" }} {{ ["it's", 'say "x"', "both ' and \"", "a\nb\t\\"] }} {{ ["é漢🙂\u200b\x00\u00ad"] }}
{{ 'a' 'b' "c" }} {{ 'tab\tq\'\x41\u00e9\U0001F642\101\q' }}
{{ 1 < 2 <= 2 < 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 == true }} {{ 1 != 2 }} {{ 'a' == 'a' }} {{ none == false }}
{{ 'a' in 'abc' }} {{ 1 in [1, 2] }} {{ 'a' in {'a': 1} }} {{ 3 not in [1] }} {{ 'z' not in 'abc' }} {{ 1 in (2,) }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] }} {{ 1 if false }} {{ 1 if 0 else 2 if 0 else 3 }}
{{ 'hello'[1] }} {{ 'hello'[-1] }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ 'hello'[:-2] }} {{ 'hello'[-3:] }} {{ 'hello'[::2] }} {{ 'hello'[10:] }}
{{ [1,2,3,4][1:] }} {{ [1,2,3,4][::-2] }} {{ [1,2,3,4][-2::-1] }} {{ (1,2,3)[:2] }} {{ [1,2][5] }} {{ [1,2].0 }} {{ [[1,2]].0.1 }}
{{ 'häß漢'[::-1] }} {{ 'häß漢'[1:3] }} {{ 'häß漢'|length }} {{ 'häß'|upper }} {{ 'HÄ'|lower }} {{ 'hello wOrld-foo (bar)'|title }} {{ 'hELLO'|capitalize }}
{{ "they're bill's".title() }} {{ 'aBc'.upper() }} {{ 'aBc'.lower() }} {{ 'abc'.capitalize() }} {{ 'a' is lower }} {{ 'A' is upper }}
{{ '  a b  '.strip() }}| {{ '  a'.lstrip() }}| {{ 'a  '.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ 'xyaxy'.rstrip('yx') }}
{{ ' a  b c '.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c'.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'a\nb\r\nc'.splitlines() }} {{ 'abc'.startswith('a') }} {{ 'abc'.startswith(('x', 'ab')) }} {{ 'abc'.endswith('bc') }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'abcb'.rfind('b') }} {{ 'aXbXc'.count('X') }}
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'ab'.replace('', '-') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ ','.join(['a', 'b']) }} {{ 'a-b'.partition('-') }}
{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isdigit() }}
{{ {'a': 1}.items() | list }} {{ {'a': 1}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': {'b': 3}}.a.b }} {{ {'items': 1}['items'] }}
{{ {'a': 1, 'b': 2}|items|list }} {{ {'b': 1, 'a': 2}|dictsort }} {{ {'b': 1, 'a': 2}|dictsort(by='value', reverse=true) }} {{ {'a': 1}|length }}
{{ missing }}| {{ missing is defined }} {{ missing|default('d') }} {{ ''|default('d') }} {{ ''|default('d', true) }} {{ none|default('d') }} {{ x.missing }}| {{ x['missing'] }}| {{ missing|length }} {{ missing|upper }}| {{ missing|list }}
{{ missing.y }}
{{ missing + 1 }}
{{ missing() }}
{{ none.y }}| {{ none|string }} {{ 1|string + 'a' }}
{{ 'a' + 1 }}
{{ 5 is even }} {{ 5 is odd }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ none is none }} {{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1.5 is float }} {{ true is boolean }} {{ 'a' is string }} {{ [] is sequence }} {{ {} is mapping }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ 'a' is in 'abc' }} {{ 1 is not none }} {{ 1 is eq 1 }} {{ 1 is sameas true }} {{ true is true }} {{ false is false }} {{ 1 is true }} {{ range is callable }} {{ missing is undefined }} {{ 3 is gt 2 }} {{ 3 is le(2) }}
{{ [3,1,2]|sort }} {{ ['b','A','c']|sort }} {{ ['b','A','c']|sort(case_sensitive=true) }} {{ [3,1,2]|sort(reverse=true) }} {{ [{'n': 2}, {'n': 1}]|sort(attribute='n') }} {{ [1,2,3]|sum }} {{ [{'n': 2}, {'n': 1}]|sum(attribute='n') }} {{ [1,3,2]|max }} {{ [1,3,2]|min }} {{ ['a', 'B']|max }}
{{ [1,2,3]|first }} {{ [1,2,3]|last }} {{ []|first }}| {{ 'abc'|first }} {{ [1,2,3]|reverse|list }} {{ 'abc'|reverse }} {{ [1,1,2,'a','A']|unique|list }} {{ [1,2]|join(', ') }} {{ [{'a': 1}, {'a': 2}]|join('-', attribute='a') }} {{ [[1, 2], [3]]|map('join', '+')|list }}
{{ ['a', 'b']|map('upper')|join }} {{ [{'a': {'b': 1}}]|map(attribute='a.b')|list }} {{ [{'a': 1}, {}]|map(attribute='a', default=0)|list }} {{ [0,1,2]|select|list }} {{ [0,1,2]|select('odd')|list }} {{ [0,1,2]|reject('odd')|list }} {{ [0,1,2]|select('gt', 1)|list }} {{ [{'r': 1, 'n': 'x'}, {'r': 2}]|selectattr('r', 'equalto', 1)|map(attribute='n')|list }} {{ [{'r': 1}, {}]|rejectattr('r')|list }} {{ [{'r': 1}, {}]|selectattr('r', 'defined')|list }}
{% set g = [1, 2]|map('string') %}{{ g|join }}{{ g|join }}{% if []|select %}yes{% endif %}
{{ ' a '|trim }}| {{ 'xax'|trim('x') }} {{ 'a b c'|wordcount }} {{ 'aXb'|replace('X', 'y') }} {{ 3.7|int }} {{ '12'|int }} {{ 'z'|int(5) }} {{ ' 1.9 '|int }} {{ '1.5'|float }} {{ 'z'|float }} {{ -3|abs }} {{ 3.14159|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 42.55|round(1, 'floor') }} {{ 42.4|round(method='ceil')|int }} {{ 7|round }}
{{ 'a\nb\n\nc'|indent }}| {{ 'a\nb'|indent(2, true) }} {{ 'a\n\nb'|indent(width='> ', blank=true) }} {{ 'a'|list }} {{ 'ab'|count }}
{{ {'a': [1, 2.5, none, true, 'é"\\/\n\t\u0001\x7f'], 'b': {}}|tojson }} {{ []|tojson(indent=2) }} {{ {'b': [1, {}], 'a': {'c': []}}|tojson(indent=2) }} {{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ {'b': 1, 'a': [1,2]}|tojson(separators=(',', ':')) }} {{ '<é🙂>&\x7f'|tojson(ensure_ascii=true) }} {{ {1: 2, none: 3, true: 4}|tojson }} {{ (1, 2)|tojson }} {{ 1e16|tojson }}
{{ missing|tojson }}
{% for a in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('x', 'y') }};{% endfor %}
{% for a, b in [[1, 2], [3, 4]] %}{{ a }}-{{ b }};{% endfor %}{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}{% for c in 'ab' %}{{ c }}.{% endfor %}{% for a in 1, 2 %}{{ a }}{% endfor %}{% for (a, b) in [(1, 2)] %}{{ a + b }}{% endfor %}
{% for a in [] %}x{% else %}none{% endfor %}{% for a in missing %}x{% else %}none{% endfor %}{% for a in [1,2,3,4] if a is even %}{{ loop.index }}/{{ loop.length }}:{{ a }} {% endfor %}{% for a in [1,2] if a > 5 %}x{% else %}e{% endfor %}
{% for a in [1,2,3,4,5] %}{% if a == 2 %}{% continue %}{% endif %}{% if a == 4 %}{% break %}{% endif %}{{ a }}{% endfor %}
{% for a in [1,2] %}{% for b in [1,2] %}{{ loop.depth }}{{ loop.index }}{% if b == 1 %}{% break %}{% endif %}{% endfor %}{{ loop.index }}{% endfor %}
{% for a in [1,1,2] %}{{ loop.changed(a) }}{% endfor %}
{% for a in 5 %}{% endfor %}
{{ [{}]|map(attribute='a.b')|list }}
{% set y = 1 %}{% for a in [1,2] %}{{ y }}{% set y = a + 10 %}{{ y }}{% endfor %}{{ y }}
{% set y = 1 %}{% if true %}{% set y = 2 %}{% endif %}{{ y }}{% set a, b = 3, 4 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}
{% set a, b = [1] %}
{% set ns = namespace(n=0, m='a') %}{% for a in [1,2,3] %}{% set ns.n = ns.n + a %}{% endfor %}{{ ns.n }}{{ ns.m }}{{ ns.q }}|{% set ns.q = [1] %}{{ ns.q }}
{% set q = {} %}{% set q.a = 1 %}
{% set z %}a{{ 1 }}b{% endset %}{{ z }}{{ z|length }}{% set z | upper | trim %} abc {% endset %}{{ z }}
{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c='y') }}{{ m(b=5, a=4) }}{{ m() }}{{ m(1, 2, 3)|length }}
{% macro m(a) %}{% endmacro %}{{ m(1,2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro r(n) %}{% if n > 0 %}{{ n }}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(5) }}{% macro w(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}in{{ 1 + 1 }}{% endcall %}
{% macro e(xs) %}{% for q in xs %}{{ caller(q) }}{% endfor %}{% endmacro %}{% call(v) e([1, 2]) %}({{ v }}){% endcall %}{% filter upper %}abc{{ 'd' }}{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}
{% set y = 'out' %}{% macro s() %}{{ y }}{% set y = 'in' %}{{ y }}{% endmacro %}{{ s() }}{{ y }}{% set y = 'later' %}{{ s() }}
{% if 0 %}a{% elif [] %}b{% elif 'x' %}c{% else %}d{% endif %}{% if missing %}a{% else %}b{% endif %}{% if not x %}n{% endif %}
{% raw %}{{ x }} {% if %}{% endraw %}|{%- raw -%}  {{ y }}  {%- endraw -%}  |{# a comment {{ x }} #}|{#- c -#} |
{{ range(3)|list }}{{ range(1, 4)|list }}{{ range(10, 0, -3)|list }}{{ dict(a=1, b=2) }}{{ dict([(1, 2)]) }}{{ dict({'a': 1}, b=2) }}{{ range(5)[2] }}{{ range(4)|length }}
{{ range(100001)|length }}
{{ strftime_now('%Y-%m-%d %d %B %b %A %j') }}
{{ raise_exception('no') }}
{{ messages[0].role }}{{ messages|length }}{{ messages[-1]['content']|length }}{{ tools is none }}{{ bos_token }}{{ pad_token }}|{{ add_generation_prompt }}
{{ {'a': 1}.update({'b': 2}) }}
{{ [1].append(2) }}
{{ ''.__class__ }}
{{ x.__init__ }}
{{ (1, 2) }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ (1) }} {{ 1, 2 }} {{ -1 ** 2 }} {{ (-1) ** 2 }} {{ 2 ** 3 ** 2 }} {{ not 1 == 2 }}
{{ -'a'|length }}
{{ x is mapping and x.a is defined }} {{ x.a.b.c[1].d }} {{ x['a']['b']['c'][0] }} {{ 'a' in x }} {{ x }}
{{ 1 is defined and missing is not defined }} {{ 'a' is string or 1 }} {{ ('a' if 1 else 'b') ~ 'c' }} {{ 'a' ~ 1 * 2 }}
{{ 1 + 2 ~ 'a' }}
{{ 1/0 }}
{{ [1]|nosuch }}
{% nosuch %}
{{ 1 +
{% if 1 %}
{{ 'a }}
{% for %}{% endfor %}
{{ a b }}
{{ 1 | }}
{{ [1, 2 }}
{{ (1]) }}
{% endif %}
{% set 1 = 2 %}
{% break %}
{{ 9223372036854775807 }} {{ '9' * 3 }} {{ 1 // 1.0 }} {{ 5 % -3 }} {{ true + true }} {{ 10 / 5 }} {{ 1 == '1' }} {{ 'a' * true }}
{{ 1 < 'a' }}
{{ [1] in {'a': 1} }}
{{ {'a': 1}[[1]] }}|
{{ [1,2] == [1,2] }} {{ (1,) == [1] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1] != [2] }} {{ [] or 'e' }} {{ {} and 1 }} {{ 'b' > 'a' > 'A' }}
""".strip("\n").split("\n")
PREFIX = "{% set x = messages[0].x %}{% set c = messages[0].content %}"

# White space around tags, where line breaks matter.
LINES = ["a\n{% if x %}\nb\n{% endif %}\nc\n", "  {% if x %}  b  {% endif %}  c", "a  \n  {%- if x -%}\n  b \n {%- endif -%} \n c",
         "a\n  {%+ if x +%}\n  b{% endif %}\n\n", "{{ 1 }}\n{{ 2 }}\n", "  {{ 1 }}  \n  {{- 2 -}}  \n 3", "{# c #}\n\n  {# d #}\nx\n",
         "x {# c #}\ny", "a\r\nb\rc\n\n", "\n\n{% set y = 1 %}\n\n  {% set z = 2 %}  \n{{ y }}", "{% for i in [1,2] %}\n  - {{ i }}\n{% endfor %}\nend",
         "a {%- if x %} b {%- endif %} c", "{%- if x %}\n\n b{% endif -%}\n\n c", "\t{% if x %}\tt\t{% endif %}\t", "a{{- ' b ' -}}c  {{- 'd' }}",
         "{% raw %}\n {{ x }}\n{% endraw %}\nz", "  {%- raw %} r {% endraw -%}  z", "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}", "{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}['a']['b'] }}",
         "a\u00a0\n\u3000{% if x %}b{% endif %}", "{#-\n c \n-#}\n x", "{{\n 1\n +\n 2\n}}\n", "line\n{{ missing.y }}", "{% if x -%}\n{% for i in [1] -%}\n  i\n{%- endfor %}\n{%- endif %}\n!",
         "{%if x%}a{%else%}b{%endif%}", "{{x.a}}{{-1}}{{- 1 }}{{ -1 }}", "{% if x %}{#\n#}\n\n{% endif %}e", "ab{", "ab{{ '{' }", "{ % if % } {", "$ {{ 'é' }} {%- set q = 'ü' %}ö"]


def render(template, messages, tools, prompt, more):
    chat = peer._normalize_chat_messages(messages)
    try:
        compiled = peer._compile_jinja_template(template)
        return {"text": compiled.render(messages=chat, tools=tools, documents=None, add_generation_prompt=prompt, **TOKENS, **more)}
    except Exception as error:  # whatever jinja2 raises is an error here too; its words are its own
        return {"error": type(error).__name__}


def golden(folder):
    out = {"tokens": TOKENS, "conversations": [{"messages": m, "tools": t} for m, t in conversations()], "templates": {}}
    for path in sorted(glob.glob(os.path.join(folder, "templates", "*.jinja"))):
        with open(path) as file:
            template = file.read()
        name = os.path.basename(path).removesuffix(".jinja")
        out["templates"][name] = [render(template, m, t, prompt, {}) for m, t in conversations() for prompt in (False, True)]
    x = {"a": {"b": {"c": [1, {"d": "deep"}]}}}
    messages = [{"role": "user", "content": "Hi", "x": x}]
    out["x"], out["prefix"] = x, PREFIX
    out["pieces"] = [{"template": piece, **render(PREFIX + piece, messages, None, True, {})} for piece in PIECES + LINES]
    return out
