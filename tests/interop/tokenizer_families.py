"""Tokenizers of many families beside the `tokenizers` and `sentencepiece` packages, on random Unicode strings: ids
with and without special tokens, decoded texts, texts decoded id by id, and offsets.

Real files where they lie in the reference data; for the other families files of the same structure, trained
here on text of the reference data (tokenizer_structures.py). The probe of tests/text answers in batches. The
full count is --count 100000; --only NAME takes the families whose name contains it.
"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys
import time
import unicodedata

import sentencepiece
import tokenizers
import transformers
from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "text" / "files"))

import tokenizer_structures
from text_interop import from_data, from_gguf, probe_beside, random_text, reference_data

BATCH = 500


def older(text):
    """Without characters younger than the tables that the reference normalises with, where it changes them."""

    def known(character):
        changes = unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf") or unicodedata.normalize("NFKD", character) != character
        return not changes or unicodedata.ucd_3_2_0.category(character) != "Cn"

    return "".join(character if known(character) else "x" for character in text)


class Probe:
    def __init__(self, program, model):
        self.process = subprocess.Popen(
            [str(program), str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def send(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the probe ended")
        return json.loads(line)

    def ask(self, **request):
        self.send(**request)
        return self.receive()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Differences:
    def __init__(self):
        self.count = 0
        self.shown = 0

    def equal(self, what, text, got, want):
        if got == want:
            return
        self.count += 1
        if self.shown < 4:
            self.shown += 1
            print(f"  {what} of {text!r}\n    got  {got!r}\n    want {want!r}")


def bos_and_eos(reference):
    """What the reference puts around a text."""
    around = reference.encode("", add_special_tokens=True).ids
    plain = reference.encode("a", add_special_tokens=False).ids
    whole = reference.encode("a", add_special_tokens=True).ids
    for cut in range(len(around) + 1):
        if around[:cut] + plain + around[cut:] == whole:
            return around[:cut], around[cut:]
    raise SystemExit("the reference changes a text's tokens when it adds special ones")


def once(ids, before, behind):
    """The product's rule: a text that carries them already gets no second ones."""
    made = ids if ids[: len(before)] == before else before + ids
    return made if made[len(made) - len(behind) :] == behind or not behind else made + behind


def byte_offsets(text):
    """Byte position of each character, and of the end."""
    places = [0]
    for character in text:
        places.append(places[-1] + len(character.encode("utf-8")))
    return places


def check_offsets(differences, text, spans, offsets, exact):
    size = len(text.encode("utf-8"))
    last = 0
    for begin, end in spans:
        differences.equal("order of spans", text, begin >= last and begin <= end <= size, True)
        last = begin
    if not exact:
        return
    places = byte_offsets(text)
    for (begin, end), (first, behind) in zip(spans, offsets):
        # Tokens that hold a part of a character, or were put there, cover more in the reference.
        if begin in places and end in places and begin < end:
            differences.equal(f"span {begin}", text, [begin, end], [places[first], places[behind]])


def check(name, program, model, reference, count, rng, offsets=False, normalizes=False):
    started = time.time()
    probe = Probe(program, model)
    added = reference.get_added_tokens_decoder().values()
    names = [token.content for token in added][:300]
    # The reference cannot skip special tokens that are matched after the normalizer: it prints them.
    skips = not any(token.special and token.normalized for token in added)
    before, behind = bos_and_eos(reference)
    size = reference.get_vocab_size()
    differences = Differences()
    for first in range(0, count, BATCH):
        texts = [random_text(rng, names) for _ in range(min(BATCH, count - first))]
        if normalizes:
            texts = [older(text) for text in texts]
        probe.send(op="encode_all", texts=texts)
        wanted = reference.encode_batch(texts, add_special_tokens=False)
        got = probe.receive()["encodings"]
        for text, ours, want in zip(texts, got, wanted):
            if "error" in ours:
                differences.equal("error", text, ours, None)
                continue
            differences.equal("ids", text, ours["ids"], want.ids)
            differences.equal("ids with special tokens", text, ours["with_special"], once(want.ids, before, behind))
            if ours["ids"] == want.ids:
                check_offsets(differences, text, ours["spans"], want.offsets, offsets)
        ids = [want.ids for want in wanted]
        wild = [[rng.randrange(size) for _ in range(rng.randrange(1, 12))] for _ in range(len(texts) // 2)]
        for skip in (False, True) if skips else (False,):
            probe.send(op="decode_all", ids=ids + wild, skip_special_tokens=skip)
            texts_back = reference.decode_batch([row or [0] for row in ids + wild], skip_special_tokens=skip)
            for number, (row, ours, want) in enumerate(zip(ids + wild, probe.receive()["decodings"], texts_back)):
                if not row:
                    continue
                differences.equal(f"text (skip {skip})", row, ours["text"], want)
                if number < len(ids):  # whole characters
                    differences.equal(f"streamed text (skip {skip})", row, ours["streamed"], want)
    probe.close()
    verdict = "ok" if differences.count == 0 else "FAIL"
    tail = "" if differences.count == 0 else f": {differences.count} differences"
    print(f"{verdict} {name}: {count} strings, {time.time() - started:.0f} s{tail}", flush=True)
    return differences.count


def alone(text):
    """Without what joins the character before or behind it: sentencepiece and `tokenizers` (and so Transformers)
    apply a charsmap to such clusters each in its own way."""

    def joins(character):
        code = ord(character)
        jamo = 0x1100 <= code < 0x1200 or 0xA960 <= code < 0xA980 or 0xD7B0 <= code < 0xD800
        jamo = jamo or 0x3130 <= code < 0x3190 or 0xFFA0 <= code < 0xFFE0  # which charsmaps compose
        return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf", "Sk") or jamo or character == "\r" or 0xE33 == code or 0xEB3 == code

    return "".join(character for character in text if not joins(character))


def equally_likely(package, ours, want):
    """Whether two ways to cut a text differ by less than rounding: scores add up as float there, as double here."""
    mine, other = (math.fsum(package.get_score(piece) for piece in ids) for ids in (ours, want))
    return abs(mine - other) <= 2.0**-24 * len(want) * abs(other)


def check_sentencepiece(name, program, model_bytes, config, folder, count, rng):
    """A tokenizer.model beside the sentencepiece package, and saved beside `tokenizers` and Transformers."""
    target = folder / "".join(c if c.isalnum() else "-" for c in name)
    saved = target / "saved"
    saved.mkdir(parents=True)
    (target / "tokenizer.model").write_bytes(model_bytes)
    if config:
        (target / "tokenizer_config.json").write_text(json.dumps(config))
    proto = tokenizer_structures.proto_of(model_bytes)
    package_rules = proto.normalizer_spec.name
    unigram = proto.trainer_spec.model_type == 1
    package = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
    probe = Probe(program, target)
    answer = probe.ask(op="save", folder=str(saved))
    if answer:
        print(f"FAIL {name}: {answer}")
        return 1
    differences = Differences()
    for first in range(0, count, BATCH):
        # Control pieces are found in a text here, and by Transformers; sentencepiece spells them.
        texts = [random_text(rng, []) for _ in range(min(BATCH, count - first))]
        if "nmt_nfkc" in package_rules:
            texts = [alone(text) for text in texts]
        got = probe.ask(op="encode_all", texts=texts)["encodings"]
        for text, ours, want in zip(texts, got, package.encode(texts)):
            got_ids = ours.get("ids", ours)
            if got_ids == want or "ids" not in ours or not unigram or not equally_likely(package, got_ids, want):
                differences.equal("ids", text, got_ids, want)
        rows = [ids for ids in package.encode(texts)]
        for row, ours in zip(rows, probe.ask(op="decode_all", ids=rows)["decodings"]):
            if package.unk_id() not in row:  # a surface of its own there
                differences.equal("text", row, ours["text"], package.decode(row))
    probe.close()
    verdict = "ok" if differences.count == 0 else "FAIL"
    print(f"{verdict} {name}, beside sentencepiece: {count} strings, {differences.count} differences", flush=True)
    reference = Tokenizer.from_file(str(saved / "tokenizer.json"))
    auto = transformers.AutoTokenizer.from_pretrained(str(saved))
    texts = [random_text(rng, []) for _ in range(200)]
    differences_of_saved = Differences()
    for text in texts:
        differences_of_saved.equal(
            "Transformers' ids", text, auto(text, add_special_tokens=False)["input_ids"], reference.encode(text, add_special_tokens=False).ids
        )
    failures = check(f"{name}, saved as tokenizer.json", program, target, reference, count, rng, normalizes=True)
    return differences.count + differences_of_saved.count + failures


def made_here(name, tokenizer, folder):
    target = folder / "".join(c if c.isalnum() else "-" for c in name)
    target.mkdir()
    tokenizer.save(str(target / "tokenizer.json"))
    return Tokenizer.from_file(str(target / "tokenizer.json")), target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--garam", type=pathlib.Path, help="the program; the probe is looked for in its build")
    parser.add_argument("--probe", type=pathlib.Path, help="the text_probe program, when it lies elsewhere")
    parser.add_argument("--gguf", type=pathlib.Path, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="an empty folder to write to")
    parser.add_argument("--data", type=pathlib.Path, default=reference_data(), help="the reference data")
    parser.add_argument("--count", type=int, default=1500, help="random strings a family")
    parser.add_argument("--vocabulary", type=int, default=4000, help="tokens of the families trained here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="families whose name contains this")
    options = parser.parse_args()
    program = options.probe or (options.garam and probe_beside(options.garam.resolve()))
    if program is None:
        print("FAIL text probe: not built; build the target text_probe or name it with --probe")
        return 1
    print(f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}, seed {options.seed}")
    rng = random.Random(options.seed)
    failures = 0
    wanted = lambda name: options.only.lower() in name.lower()
    if options.gguf and wanted("SmolLM2"):
        failures += check("SmolLM2 (its GGUF)", program, options.gguf, from_gguf(options.gguf)[0], options.count, rng)
    if options.data.exists():
        for name, reference, model in from_data(options.data, options.work):
            if wanted(name):
                failures += check(f"{name} (its files)", program, model, reference, options.count, rng)
    else:
        print(f"skip published tokenizers: no reference data at {options.data}")
    lines = tokenizer_structures.corpus(options.data / "text" / "wikitext2.valid.raw")
    for name, make in tokenizer_structures.structures(lines, options.vocabulary).items():
        if wanted(name):
            reference, model = made_here(name, make(), options.work)
            normalizes = name in tokenizer_structures.NORMALIZED
            title = f"{name} (same structure)"
            failures += check(title, program, model, reference, options.count, rng, not normalizes, normalizes)
    for name, (make, config) in tokenizer_structures.sentencepiece_models(lines, options.vocabulary).items():
        if wanted(name):
            failures += check_sentencepiece(name, program, make(), config, options.work, options.count, rng)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
