"""Tokenizers and chat templates beside the reference libraries, on thousands of random texts: SmolLM2's from
the GGUF, and those of the reference data where it is there.

Ids, decoded texts and rendered conversations are compared for equality. The probe is the small program of
tests/text that answers requests line by line; it lies in the build folder of the garam that is named. More
texts: --count 20000 --seed 5.
"""

import argparse
import datetime
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import unicodedata

import gguf
import jinja2
import jinja2.ext
import jinja2.sandbox
import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Probe:
    def __init__(self, program, model=None):
        command = [str(program)] + ([str(model)] if model else [])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- random texts ----

WORDS = "the quick brown Fox isn't they'RE I'LL 오늘은 비가 온다 ㅋㅋ 日本語 テスト naïve Ünïcödé 1234 3.14 ½ ٣٤".split()
SPACES = [" ", "  ", "   ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2003", "\u180e", "\u200b", "\x85", "\x1c", "\ufeff"]
MARKS = ["\u0301", "\u0308", "\u093f", "\u1161", "\u11a8", "\u3099", "\u0344", "\u0f73", "\u0327", "\u20d0"]


# Of Unicode 15 and 16, which PCRE2 10.42 does not know: the blocks, and what was put into older ones.
YOUNG = [(0x2FFC, 0x2FFF), (0x31E4, 0x31E5), (0x31EF, 0x31EF), (0xA7CB, 0xA7DC), (0x10D40, 0x10D8F), (0x10EC2, 0x10EFF),
         (0x11240, 0x11241), (0x11380, 0x113E2), (0x116D0, 0x116E3), (0x11B00, 0x11B09), (0x11BC0, 0x11BF9),
         (0x11F00, 0x11F5A), (0x1342F, 0x143FA), (0x16100, 0x16139), (0x16D40, 0x16D79), (0x1B132, 0x1B132),
         (0x1B155, 0x1B155), (0x1CC00, 0x1CEB3), (0x1D2C0, 0x1D2D3), (0x1DF25, 0x1DF2A), (0x1E030, 0x1E08F),
         (0x1E4D0, 0x1E4F9), (0x1E5D0, 0x1E5FF), (0x2EBF0, 0x2EE5D), (0x31350, 0x323AF)]


def assigned(rng):
    """A character that the Unicode tables of all libraries here know.

    Combining marks have to be old: the reference normalises with older tables than utf8proc, and knows no
    order for newer ones.
    """
    while True:
        limit = rng.choice([0x80, 0x250, 0x3000, 0x10000, 0x20000, 0x110000])
        code = rng.randrange(limit)
        if 0xD800 <= code < 0xE000:
            continue
        if unicodedata.category(chr(code)) in ("Cn", "Co") or any(low <= code <= high for low, high in YOUNG):
            continue
        if unicodedata.combining(chr(code)) and unicodedata.ucd_3_2_0.category(chr(code)) == "Cn":
            continue
        return chr(code)


def random_text(rng, specials):
    parts = []
    for _ in range(rng.randrange(1, 24)):
        kind = rng.randrange(12)
        if kind < 3:
            parts.append(rng.choice(WORDS))
        elif kind < 5:
            parts.append(rng.choice(SPACES) * rng.randrange(1, 5))
        elif kind < 6:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 9))))
        elif kind < 7:
            parts.append("".join(rng.choice("!?.,;:'\"-_=+*/\\|<>[](){}@#$%^&~`") for _ in range(rng.randrange(1, 6))))
        elif kind < 8:
            parts.append(rng.choice("aeoukANㄱ가か") + "".join(rng.choice(MARKS) for _ in range(rng.randrange(1, 4))))
        elif kind < 9 and specials:
            token = rng.choice(specials)
            parts.append(token if rng.random() < 0.7 else token[: rng.randrange(1, len(token) + 1)])
        elif kind < 10:
            parts.append(rng.choice("ax \n가🦙") * rng.randrange(1, 70))
        else:
            parts.append("".join(assigned(rng) for _ in range(rng.randrange(1, 8))))
    return "".join(parts)


# ---- reference tokenizers ----


def field(reader, key):
    found = reader.fields.get(key)
    return None if found is None else found.contents()


def from_gguf(path):
    """The tokenizer that a GGUF's own keys describe (digits split off, which Transformers leaves out)."""
    reader = gguf.GGUFReader(str(path))
    tokens = field(reader, "tokenizer.ggml.tokens")
    types = field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in field(reader, "tokenizer.ggml.merges")]
    if field(reader, "tokenizer.ggml.pre") != "smollm":
        raise SystemExit("this script knows the pre-tokenizer smollm")
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    specials = [token for token, kind in zip(tokens, types) if kind == 3]
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return made, specials, field(reader, "tokenizer.chat_template")


def unpacked(path):
    return gzip.open(path, "rb").read() if path.suffix == ".gz" else path.read_bytes()


def from_data(data, folder):
    """(name, reference, model folder, special tokens) of the tokenizers in the reference data."""
    made = []
    for name in ("llama-3.1", "llama-2"):
        source = data / "tokenizers" / name / "tokenizer.json.gz"
        if not source.exists():
            continue
        target = folder / name
        target.mkdir()
        (target / "tokenizer.json").write_bytes(unpacked(source))
        config = source.parent / "tokenizer_config.json"
        if config.exists():
            (target / "tokenizer_config.json").write_bytes(config.read_bytes())
        made.append((name, Tokenizer.from_file(str(target / "tokenizer.json")), target))
    stories = data / "golden" / "stories260K-hf"
    if stories.exists():
        made.append(("stories260K", Tokenizer.from_file(str(stories / "tokenizer.json")), stories))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    qwen = [pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    digits = [pre_tokenizers.Digits(individual_digits=True), byte_level]
    for name, normalizer, pre in (
        ("qwen2.5", normalizers.NFC(), pre_tokenizers.Sequence(qwen)),
        ("exaone-3.5", None, pre_tokenizers.Sequence(digits)),
        ("gpt2", None, byte_level),
    ):
        target = folder / name
        target.mkdir()
        for file in ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"):
            for source in (data / "tokenizers" / name / file, data / "tokenizers" / f"{name}.{file}"):
                for packed in (source, source.with_name(source.name + ".gz")):
                    if packed.exists():
                        (target / file).write_bytes(unpacked(packed))
        if not (target / "merges.txt").exists():
            continue
        reference = Tokenizer(models.BPE.from_file(str(target / "vocab.json"), str(target / "merges.txt")))
        if normalizer:
            reference.normalizer = normalizer
        reference.pre_tokenizer = pre
        reference.decoder = decoders.ByteLevel()
        added = {"0": {"content": "<|endoftext|>", "special": True, "normalized": False}}
        if (target / "tokenizer_config.json").exists():
            added = json.loads((target / "tokenizer_config.json").read_text("utf-8"))["added_tokens_decoder"]
        for _, token in sorted(added.items(), key=lambda entry: int(entry[0])):
            token = AddedToken(**token)
            (reference.add_special_tokens if token.special else reference.add_tokens)([token])
        made.append((name, reference, target))
    return made


# ---- comparisons ----


class Report:
    """Counts what is compared, and prints one line a group."""

    def __init__(self):
        self.failures = 0
        self.group_failures = 0

    def equal(self, what, got, want):
        if got == want:
            return
        self.group_failures += 1
        if self.group_failures <= 3:
            print(f"  {what}\n    got  {got!r}\n    want {want!r}")

    def finish(self, name, count, things):
        if self.group_failures:
            print(f"FAIL {name}: {self.group_failures} differences in {count} {things}", flush=True)
        else:
            print(f"ok {name}: {count} {things}", flush=True)
        self.failures += self.group_failures
        self.group_failures = 0


def check_tokenizer(name, probe, reference, specials, count, rng, report):
    # The reference cannot skip special tokens that are matched after the normalizer: it prints them.
    skip = not any(token.special and token.normalized for token in reference.get_added_tokens_decoder().values())
    byte_level = "ByteLevel" in repr(reference.decoder) or "ByteLevel" in reference.to_str()[:200000]
    for _ in range(count):
        text = random_text(rng, specials)
        got = probe.ask(op="encode", text=text)
        want = reference.encode(text, add_special_tokens=False).ids
        report.equal(f"{name} encode {text!r}", got.get("ids", got), want)
        decoded = probe.ask(op="decode", ids=want)
        report.equal(f"{name} decode {text!r}", decoded["text"], reference.decode(want, skip_special_tokens=False))
        if byte_level:
            report.equal(f"{name} stream {text!r}", decoded["streamed"], decoded["text"])
        # Ids that no text gives: broken characters.
        size = reference.get_vocab_size()
        ids = [rng.randrange(size) for _ in range(rng.randrange(1, 12))]
        decoded = probe.ask(op="decode", ids=ids, skip_special_tokens=skip)
        report.equal(f"{name} decode {ids}", decoded["text"], reference.decode(ids, skip_special_tokens=skip))
        if byte_level:
            report.equal(f"{name} stream {ids}", decoded["streamed"], decoded["text"])
    report.finish(f"{name} tokenizer", count, "texts")


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, indent=None):
        return json.dumps(value, ensure_ascii=False, indent=indent)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


def random_messages(rng):
    messages = []
    for i in range(rng.randrange(0, 5)):
        role = rng.choice(["user", "assistant"]) if rng.random() < 0.2 else ("user", "assistant")[i % 2]
        if i == 0 and rng.random() < 0.3:
            role = "system"
        content = random_text(rng, ["<|im_end|>", "{{ x }}", "{% if %}", "</think>"]) if rng.random() < 0.9 else ""
        messages.append({"role": role, "content": content})
    return messages


def check_template(name, source, probe, count, rng, report):
    template = environment().from_string(source)
    for _ in range(count):
        messages = random_messages(rng)
        prompt = rng.random() < 0.5
        try:
            want = template.render(
                messages=messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>", tools=None, documents=None
            )
        except Exception as error:  # what Jinja2 refuses, the interpreter must refuse too
            want = None
        got = probe.ask(
            op="render", template=source, messages=messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>"
        )
        report.equal(f"template {name} {messages!r} {got.get('error')}", got.get("text"), want)
        if want is None:
            continue
        # Each content is found where it is said to be, unless the template trims or cuts it.
        for message, (begin, end) in zip(messages, got["contents"]):
            part = want.encode("utf-8")[begin:end].decode("utf-8", "replace")
            report.equal(f"content of {name} {message!r}", part in message["content"] or not message["content"], True)
    report.finish(f"{name} template", count, "conversations")


def check_snippets(probe, report):
    """Small templates, each with a piece of the language."""
    path = pathlib.Path(__file__).with_name("template_snippets.txt")
    snippets = path.read_text("utf-8").split("\n%%%%\n")
    messages = [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "Grüße <b>\"x\"</b> 'y' 가나다"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nstraße ǆ"},
    ]
    for snippet in snippets:
        try:
            want = environment().from_string(snippet).render(
                messages=messages, add_generation_prompt=True, bos_token="<s>", eos_token="</s>", tools=None, documents=None
            )
        except Exception:
            want = None
        got = probe.ask(
            op="render", template=snippet, messages=messages, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
        )
        report.equal(f"snippet {snippet!r} {got.get('error')}", got.get("text"), want)
    report.finish("template language", len(snippets), "snippets")


def check_saved(name, probe, reference, specials, folder, template, count, rng, report):
    """What save() writes is read by tokenizers and Transformers to the same ids."""
    target = folder / f"saved-{name}"
    target.mkdir()
    answer = probe.ask(op="save", folder=str(target))
    report.equal(f"{name} save", answer, {})
    saved = Tokenizer.from_file(str(target / "tokenizer.json"))
    readers = [("tokenizers", lambda text: saved.encode(text, add_special_tokens=False).ids)]
    auto = transformers.AutoTokenizer.from_pretrained(str(target))
    readers.append(("transformers", lambda text: auto(text, add_special_tokens=False)["input_ids"]))
    if template:
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
        got = auto.apply_chat_template(messages, tokenize=False)
        want = environment().from_string(template).render(messages=messages, bos_token="", eos_token="")
        report.equal(f"{name} saved template", got, want)
    for _ in range(count):
        text = random_text(rng, specials)
        want = reference.encode(text, add_special_tokens=False).ids
        for reader, ids_of in readers:
            report.equal(f"{name} saved, read by {reader}: {text!r}", ids_of(text), want)
    report.finish(f"{name} saved, read by " + " and ".join(reader for reader, _ in readers), count, "texts")


def probe_beside(garam):
    """The probe in the build folder that holds this program."""
    for candidate in (garam.parent.parent / "tests" / "text" / "text_probe", garam.parent / "text_probe"):
        if candidate.exists():
            return candidate
    return None


def reference_data():
    named = os.environ.get("GARAM_TEST_DATA")
    return pathlib.Path(named) if named else pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--garam", type=pathlib.Path, help="the program; the probe is looked for in its build")
    parser.add_argument("--probe", type=pathlib.Path, help="the text_probe program, when it lies elsewhere")
    parser.add_argument("--gguf", required=True, type=pathlib.Path, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="an empty folder to write to")
    parser.add_argument("--data", type=pathlib.Path, default=reference_data(), help="the reference data")
    parser.add_argument("--count", type=int, default=2000, help="random texts a tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = options.probe or (options.garam and probe_beside(options.garam.resolve()))
    if program is None:
        print("FAIL text probe: not built; build the target text_probe or name it with --probe")
        return 1
    rng = random.Random(options.seed)
    report = Report()
    few = max(options.count // 10, 1)
    folder = options.work
    print(f"tokenizers {tokenizers.__version__}, jinja2 {jinja2.__version__}, seed {options.seed}")

    reference, specials, template = from_gguf(options.gguf)
    probe = Probe(program, options.gguf)
    check_tokenizer("SmolLM2", probe, reference, specials, options.count, rng, report)
    check_template("SmolLM2", template, probe, few, rng, report)
    check_snippets(probe, report)
    check_saved("SmolLM2", probe, reference, specials, folder, template, few, rng, report)
    if not options.data.exists():
        print(f"skip other tokenizers: no reference data at {options.data}")
    for path in sorted((options.data / "golden" / "chat").glob("*.template.jinja")):
        check_template(path.name.removesuffix(".template.jinja"), path.read_text("utf-8"), probe, few, rng, report)
    probe.close()
    for name, reference, model in from_data(options.data, folder):
        probe = Probe(program, model)
        specials = [token.content for token in reference.get_added_tokens_decoder().values()][:300]
        check_tokenizer(name, probe, reference, specials, options.count, rng, report)
        check_saved(name, probe, reference, specials, folder, None, few, rng, report)
        probe.close()
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
