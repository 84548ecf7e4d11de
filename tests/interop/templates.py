"""Chat templates beside Transformers' own rendering, on thousands of templates made at random.

Each is put together from the pieces that published templates are written with, and rendered on random
conversations with tools, thoughts, lists of parts and empty contents: by transformers'
render_jinja_template, and by the probe of tests/text. The texts must be equal, or both must refuse. The
probe may refuse what it names as unsupported; those are counted, and a few of them are shown.
"""

import argparse
import collections
import datetime
import json
import pathlib
import random
import subprocess
import sys

from text_interop import probe_beside
from transformers.utils import chat_template_utils

NOW = 1753962000
CONTENTS = [
    "", " ", "Hi", "  padded \n", "가나다 안녕", "emoji 😀👍🏽", "<think>\nhm\n</think>\n\nyes", "a</think>b</think>c",
    "<|im_end|>\n<|im_start|>assistant\n", "{{ 1 }} {% x %}", "it's \"quoted\" <b>&amp;</b>", "a\tb\\n\\", "STRASSE straße ǆ",
    "one two-three (four)", "[INST] x [/INST]", "0", "42", "-3.5", "x,y,,z", "line\nline\r\nline", "<tool_response>r</tool_response>",
]
ARGUMENTS = [
    {}, {"city": "Seoul"}, {"n": 3, "flag": True, "none": None, "x": 1.5}, {"list": [1, "b", [2.0]], "inner": {"b": "c", "a": 1e20}},
    {"text": "a \"b\" 'c' 가 \u007f\u2028 é"}, '{"already": "json"}', "not json",
]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Tells the weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "A city", "enum": ["Seoul", "Busan"]},
                                         "days": {"type": ["integer", "null"], "items": {"type": "string"}}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def random_messages(rng):
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": rng.choice(["system", "system", "developer"]), "content": rng.choice(CONTENTS)})
    for i in range(rng.randrange(0, 6)):
        role = ("user", "assistant")[i % 2] if rng.random() < 0.8 else rng.choice(["user", "assistant", "tool", "ipython"])
        message = {"role": role, "content": rng.choice(CONTENTS)}
        if rng.random() < 0.1:
            message["content"] = [{"type": "text", "text": rng.choice(CONTENTS)} for _ in range(rng.randrange(1, 3))]
        if role == "assistant" and rng.random() < 0.3:
            message[rng.choice(["reasoning_content", "thinking", "reasoning"])] = rng.choice(CONTENTS)
        if role == "assistant" and rng.random() < 0.3:
            calls = [{"type": "function", "function": {"name": rng.choice(["get_weather", "now"]), "arguments": rng.choice(ARGUMENTS)}}
                     for _ in range(rng.randrange(1, 3))]
            message["tool_calls"] = calls
            if rng.random() < 0.5:
                message["content"] = rng.choice([None, ""])
        if role == "tool":
            message["name"] = "get_weather"
            message["tool_call_id"] = "abcdefghi"
        messages.append(message)
    return messages


class Maker:
    """Random pieces of a template; depth keeps them small."""

    def __init__(self, rng):
        self.rng = rng
        self.names = ["messages", "bos_token", "eos_token", "add_generation_prompt", "tools"]

    def pick(self, *choices):
        return self.rng.choice(choices)

    def text(self, depth):
        """An expression that is probably a str."""
        r = self.pick
        if depth <= 0:
            return r("message.content", "message['content']", "message.role", "message['role']", "'x'", "'<|im_end|>\\n'", '"\\n\\n"',
                     "bos_token", "eos_token", "messages[0].content", "messages[0]['role']", "'가 é'", "messages[-1].content",
                     "message.reasoning_content", "message.get('name', 'none')", "text", "ns.text", "''", "'a,b c'", "loop.index ~ ''", "message.content", "text")
        t = self.text
        d = depth - 1
        return r(
            lambda: f"{t(d)} + {t(d)}", lambda: f"{t(d)} ~ {t(d)}", lambda: f"({t(d)}) | trim", lambda: f"({t(d)}).strip({r('', chr(39) + 'x<' + chr(39), chr(39) + chr(92) + 'n' + chr(39))})",
            lambda: f"({t(d)}).split({r(chr(39) + '</think>' + chr(39), chr(39) + ' ' + chr(39), '', chr(39) + ',' + chr(39) + ', 1')})[{r('-1', '0')}]",
            lambda: f"({t(d)}).rsplit({r(chr(39) + 'e' + chr(39), chr(39) + '</think>' + chr(39) + ', 1')})[{r('-1', '0')}]",
            lambda: f"({t(d)}).{r('lstrip', 'rstrip')}({r('', chr(39) + chr(92) + 'n' + chr(39))})", lambda: f"({t(d)}) | {r('upper', 'lower', 'title', 'capitalize', 'string', 'safe', 'length', 'wordcount')}",
            lambda: f"({t(d)}).{r('upper', 'lower', 'title', 'capitalize', 'swapcase')}()",
            lambda: f"({t(d)})[{r('1:', ':-1', '::-1', ':3', '-2:', '1:4:2', '0', '-1', '5:1:-2')}]",
            lambda: f"({t(d)}) | replace({r(chr(39) + 'a' + chr(39), chr(39) + '<' + chr(39))}, {r(chr(39) + chr(39), chr(39) + '--' + chr(39))})",
            lambda: f"({t(d)}).replace('x', {t(0)})", lambda: f"{t(d)} if {self.test(d)} else {t(d)}", lambda: f"{t(d)} if {self.test(d)}",
            lambda: f"({t(d)}) | default({t(0)}{r('', ', true')})", lambda: f"({t(d)}) | indent({r('', '2', '2, true', '4, false, true', 'width=3, first=true')})",
            lambda: f"({self.value(d)}) | tojson{r('', '(indent=2)', '(ensure_ascii=true)', '(indent=4)', '(sort_keys=true)', '(separators=(chr(44), chr(58)))'.replace('chr(44)', repr(',')).replace('chr(58)', repr(':')))}",
            lambda: f"({self.items(d)}) | join({r('', repr(', '), repr(' '))})", lambda: f"'{r(', ', '')}'.join({self.items(d)} | map('string'))",
            lambda: f"({t(d)}).{r('removeprefix', 'removesuffix')}('x')", lambda: f"'{{}}:{{}}'.format({t(d)}, {t(0)})", lambda: f"'%s-%s' % ({t(d)}, {t(0)})",
            lambda: f"({t(d)}).{r('zfill', 'center', 'ljust', 'rjust')}(9)", lambda: f"({t(d)}).partition(' ')[{r('0', '1', '2')}]", lambda: f"({t(d)}).rpartition('e')[0]",
            lambda: f"({self.number(d)}) | string", lambda: f"strftime_now('{r('%d %b %Y', '%Y-%m-%d', '%B %d, %Y', '')}')", lambda: f"({t(d)}) * {r('2', '0')}",
        )()

    def items(self, depth):
        r = self.pick
        d = depth - 1
        if depth <= 0:
            return r("messages", "message.tool_calls", "tools", "[1, 2, 3]", "['b', 'a', 'B']", "range(4)", "messages[1:]", "[]", "('x', 'y')", "messages[::-1]")
        return r(
            lambda: self.items(0), lambda: f"{self.items(0)} | map(attribute='role')", lambda: f"messages | selectattr('role', '{r('equalto', 'eq', '==', 'ne', 'in')}', {r(repr('user'), '[' + repr('user') + ', ' + repr('tool') + ']')})",
            lambda: f"messages | rejectattr('{r('tool_calls', 'role')}', {r(repr('defined'), repr('equalto') + ', ' + repr('system'))})", lambda: f"({self.items(d)}) | list",
            lambda: f"({self.items(d)}) | reverse | list", lambda: f"({self.items(d)}) | map('{r('string', 'length', 'upper', 'trim', 'tojson')}') | list",
            lambda: f"({self.text(d)}).split({r('', repr(','), repr(' ') + ', 1')})", lambda: f"({self.text(d)}).splitlines()", lambda: f"({self.text(d)}) | list",
            lambda: f"({self.items(d)} | list)[{r('1:', ':2', '::-1', '-2:')}]", lambda: f"(['b', 'a', 'C', 'a'] + {r('[]', '[' + repr('B') + ']')}) | {r('sort', 'unique | list', 'sort(reverse=true)', 'sort(case_sensitive=true)', 'unique(case_sensitive=true) | list')}",
            lambda: f"{{'b': 1, 'a': {self.text(0)}}} | {r('dictsort', 'items | list', 'list')}", lambda: f"{{'k': {self.text(0)}, 'l': 2}}.{r('items', 'keys', 'values')}() | list",
            lambda: f"messages | groupby('role') | map('first') | list", lambda: f"[3, 1, 2] | {r('batch(2) | list', 'slice(2) | list', 'sort', 'list')}", lambda: f"({self.items(d)}) | select | list",
            lambda: f"[{self.value(d)}, {self.value(d)}]",
        )()

    def number(self, depth):
        r = self.pick
        d = depth - 1
        if depth <= 0:
            return r("1", "2", "0", "-3", "2.5", "loop.index0", "loop.length", "messages | length", "7", "true")
        n = self.number
        return r(
            lambda: f"{n(d)} {r('+', '-', '*', '//', '%', '/', '**')} {n(d)}", lambda: f"({n(d)}) | {r('int', 'float', 'abs', 'round', 'round(1)', 'round(0, ' + repr('floor') + ')')}",
            lambda: f"({self.text(d)}) | {r('length', 'int', 'int(7)', 'float', 'count')}", lambda: f"({self.items(d)} | list) | {r('length', 'count')}", lambda: f"[3, {n(0)}, 2] | {r('max', 'min', 'sum')}",
            lambda: f"({self.text(d)}).{r('find', 'count', 'rfind')}('e')", lambda: f"-({n(d)})",
        )()

    def value(self, depth):
        r = self.pick
        return r(
            lambda: self.text(depth), lambda: self.number(depth), lambda: self.items(max(0, depth - 1)), lambda: "none", lambda: "true",
            lambda: "message", lambda: "tools", lambda: "tools[0].function", lambda: f"{{'a': {self.text(0)}, 'b': [1, none, 2.0, true]}}", lambda: "message.tool_calls",
            lambda: "tools[0]['function']['parameters']['properties']",
        )()

    def test(self, depth):
        r = self.pick
        d = depth - 1
        if depth <= 0:
            return r("loop.first", "loop.last", "message.role == 'user'", "message['role'] == 'assistant'", "add_generation_prompt", "tools", "message.tool_calls",
                     "message.tool_calls is defined", "not loop.last", "message.content is string", "message.content is none", "'tool_calls' in message", "messages",
                     "tools is not none", "loop.index0 % 2 == 0", "enable_thinking is defined and enable_thinking is false", "message.content is not defined", "enable_thinking")
        return r(
            lambda: f"{self.test(d)} and {self.test(d)}", lambda: f"{self.test(d)} or {self.test(d)}", lambda: f"not ({self.test(d)})",
            lambda: f"'{r('</think>', 'e', '')}' in ({self.text(d)})", lambda: f"({self.text(d)}) not in ['x', 'user']", lambda: f"({self.text(d)}).{r('startswith', 'endswith')}({r(repr('<'), '(' + repr('x') + ', ' + repr('H') + ')')})",
            lambda: f"({self.value(d)}) is {r('string', 'mapping', 'sequence', 'iterable', 'number', 'boolean', 'none', 'defined', 'true', 'false', 'integer', 'float', 'not none')}",
            lambda: f"({self.number(d)}) {r('<', '>', '<=', '>=', '==', '!=')} {self.number(d)}", lambda: f"({self.number(0)}) is {r('odd', 'even', 'divisibleby 2', 'gt 1', 'eq(2)', 'ne 3', 'in [1, 2]')}",
            lambda: f"({self.text(d)}) == {self.text(d)}", lambda: f"({self.text(d)}).is{r('upper', 'lower', 'space')}()",
        )()

    def space(self):
        return self.pick("", "", "", "\n", " ", "  ", "\n    ", "\n\n")

    def tag(self, inner):
        return "{%" + self.pick("", "-", "-", "", "+") + " " + inner + " " + self.pick("", "-", "-", "") + "%}"

    def out(self, inner):
        return "{{" + self.pick("", "-", "-") + " " + inner + " " + self.pick("", "-", "") + "}}"

    def body(self, depth):
        return "".join(self.space() + self.statement(depth - 1) + self.space() for _ in range(self.rng.randrange(1, 4)))

    def statement(self, depth):
        r = self.pick
        d = self.rng.randrange(0, 3)
        if depth <= 0:
            return r(lambda: self.out(self.text(d)), lambda: self.out(self.value(d)), lambda: self.out("message.content | e"), lambda: r("text", "<|im_start|>", "[INST] ", "가", "{# note #}", "{#- note -#}"),
                     lambda: self.out("message.role") + "\n" + self.out(self.text(0)))()
        b = self.body
        e = depth - 1
        return r(
            lambda: self.tag(f"if {self.test(d)}") + b(e) + self.tag("endif"),
            lambda: self.tag(f"if {self.test(d)}") + b(e) + self.tag(f"elif {self.test(d)}") + b(e) + self.tag("else") + b(e) + self.tag("endif"),
            lambda: self.tag(f"for message in {r('messages', 'messages', 'messages[1:]', 'messages if message.role != ' + repr('system'))}") + b(e) + self.tag("endfor"),
            lambda: self.tag(f"for x in {self.items(d)}") + self.out("x") + r("", self.tag("if loop.index == 2") + self.tag(r("break", "continue")) + self.tag("endif")) + self.out(f"loop.{r('index', 'revindex', 'first', 'last', 'depth', 'cycle(1, 2)', 'nextitem', 'previtem', 'changed(x)')}") + self.tag("else") + "none" + self.tag("endfor"),
            lambda: self.tag(f"for k, v in {{'a': {self.text(d)}, 'b': 2}}.items()") + self.out("k ~ '=' ~ v") + self.tag("endfor"),
            lambda: self.tag(f"set text = {self.text(d)}") + self.out("text"), lambda: self.tag(f"set ns.text = {self.text(d)}") + self.out("ns.text"),
            lambda: self.tag("set text") + b(e) + self.tag("endset") + self.out("text | trim"), lambda: self.tag("set text | upper | trim") + b(e) + self.tag("endset") + self.out("text"),
            lambda: self.tag("filter " + r("upper", "trim", "replace('e', 'E') | trim", "indent(2)")) + b(e) + self.tag("endfilter"),
            lambda: self.tag(f"with text = {self.text(d)}, y = 2") + b(e) + self.out("y") + self.tag("endwith"),
            lambda: self.tag("generation") + b(e) + self.tag("endgeneration"), lambda: self.tag("call wrap('<')") + b(e) + self.tag("endcall"),
            lambda: self.out(f"say({self.text(d)}{r('', ', ' + repr('?'), ', end=' + repr('.'))})"), lambda: "{% raw %}{{ x }} {% y %}{% endraw %}",
            lambda: self.tag(f"if {self.test(0)}") + self.out("raise_exception('no')") + self.tag("endif"),
            lambda: self.tag("for x in [[1, [2, [3]]], 4] recursive") + self.out("x if x is number else '(' ~ loop(x) ~ ')'") + self.out("loop.depth") + self.tag("endfor"),
            lambda: self.tag("set a, b = 1, " + self.text(0)) + self.out("a ~ b"),
        )()

    def template(self):
        macros = ("{%- macro say(what, end='!') -%}{{ what }}{{ end }}{%- endmacro -%}"
                  "{%- macro wrap(mark) -%}{{ mark }}{{ caller() }}{{ mark }}{%- endmacro -%}")
        head = self.pick("", "{%- set text = 'T' -%}", "{% set text = bos_token %}\n")
        first = "{%- set message = messages[0] if messages else {'role': 'user', 'content': 'none'} -%}{%- set text = 'T' -%}"
        start = "{%- for once in [1] -%}" + self.body(3) + "{%- endfor -%}"
        return macros + "{%- set ns = namespace(text='N', n=0) -%}" + first + head + start + self.tag("for message in messages") + self.body(3) + self.tag("endfor") + self.space() + self.tag(
            "if add_generation_prompt") + "{{ '<|assistant|>' }}" + self.tag("endif") + self.pick("", "\n", "\n\n")


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW)


class Probe:
    def __init__(self, program):
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"the probe ended with {self.process.wait()} at {json.dumps(request)}")
        return json.loads(answer)


def rendered(template, messages, prompt, tools, variables):
    """Transformers' text, or what it refuses with."""
    try:
        chat = chat_template_utils._normalize_chat_messages(messages)
        chat = chat_template_utils._alias_reasoning_fields(chat)
        texts, _ = chat_template_utils.render_jinja_template(
            conversations=[chat], tools=tools, chat_template=template, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>", **variables)
        return texts[0], None
    except RecursionError:
        raise
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def check_generation(probe, rng, count):
    """The built-in templates have generation blocks: Transformers must see the same spans in them."""
    different = 0
    compared = 0
    for name in probe.ask(op="builtin")["names"]:
        template = probe.ask(op="builtin", name=name)["template"]
        compiled = chat_template_utils._compile_jinja_template(template)
        for _ in range(count):
            messages = [{"role": "system", "content": rng.choice(CONTENTS)}] if rng.random() < 0.3 else []
            messages += [{"role": ("user", "assistant")[i % 2], "content": rng.choice(CONTENTS)} for i in range(rng.randrange(1, 6))]
            text, spans = chat_template_utils._render_with_assistant_indices(
                compiled, messages=messages, tools=None, documents=None, add_generation_prompt=False, bos_token="<s>", eos_token="</s>")
            got = probe.ask(op="turns", template=template, messages=messages, bos_token="<s>", eos_token="</s>")
            want = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans if begin < end]
            compared += 1
            if got.get("text") != text or [turn[1:] for turn in got["turns"]] != want:
                different += 1
                print(f"different: {name} {messages!r}\n{text!r} {want}\n{got}")
    print(f"generation blocks of the built-in templates: {compared - different} of {compared} conversations equal")
    return different


UNSUPPORTED = ("not supported", "is needed, but", "beyond 64 bits", "of such a character")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--garam", type=pathlib.Path, help="the program; the probe is looked for in its build")
    parser.add_argument("--probe", type=pathlib.Path, help="the text_probe program, when it lies elsewhere")
    parser.add_argument("--gguf", type=pathlib.Path, help="not used here")
    parser.add_argument("--work", type=pathlib.Path, help="not used here")
    parser.add_argument("--templates", type=pathlib.Path, help="a folder of .jinja files, compared as well")
    parser.add_argument("--count", type=int, default=3000, help="random templates")
    parser.add_argument("--conversations", type=int, default=3, help="of each template")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5, help="differences to print in full")
    parser.add_argument("--brief", action="store_true", help="a line for each further difference")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    chat_template_utils.datetime = Frozen
    program = options.probe or (options.garam and probe_beside(options.garam.resolve()))
    if program is None:
        print("FAIL text probe: not built; build the target text_probe or name it with --probe")
        return 1
    probe = Probe(program)
    counts = collections.Counter()
    unsupported = collections.Counter()
    sources = []
    if options.templates:
        sources = [path.read_text("utf-8") for path in sorted(options.templates.rglob("*.jinja")) for _ in range(30)]
    for source in sources + [None] * options.count:
        template = source if source is not None else Maker(rng).template()
        for _ in range(options.conversations):
            messages = random_messages(rng)
            tools = TOOLS[: rng.randrange(1, 3)] if rng.random() < 0.4 else None
            variables = {"enable_thinking": rng.random() < 0.5} if rng.random() < 0.3 else {}
            prompt = rng.random() < 0.5
            want, why = rendered(template, messages, prompt, tools, variables)
            if (why and "type range is not JSON" in why) or want and (any(word in want.lower() for word in (" object ", "<bound method", "range(0, "))):
                counts["printed Python objects"] += 1
                continue
            got = probe.ask(op="render", template=template, messages=messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>", tools=tools, variables=variables, now=NOW)
            if got.get("text") == want:
                counts["equal" if want is not None else "refused by both"] += 1
                continue
            error = got.get("error")
            if error and any(word in error for word in UNSUPPORTED):
                counts["named as unsupported"] += 1
                unsupported[error.split(": ", 2)[-1]] += 1
                continue
            counts["different"] += 1
            if counts["different"] <= options.show:
                print(f"--- template\n{template}\n--- messages {json.dumps(messages, ensure_ascii=False)}\n--- tools {bool(tools)} {variables} prompt {prompt}")
                print(f"--- transformers {why}\n{want!r}\n--- garam {error}\n{got.get('text')!r}\n")
            elif options.brief:
                text = got.get("text")
                at = next((i for i, (a, b) in enumerate(zip(want or "", text or "")) if a != b), 0)
                print(f"different: {why} {(want or '')[max(0, at - 20):at + 30]!r} / {error} {(text or '')[max(0, at - 20):at + 30]!r}")
    counts["different"] += check_generation(probe, rng, 100)
    verdict = "FAIL" if counts["different"] or not counts["equal"] else "ok"
    print(f"{verdict} templates:", ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    for error, count in unsupported.most_common(12):
        print(f"  unsupported {count} times: {error}")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
