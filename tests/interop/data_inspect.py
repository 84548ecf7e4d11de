"""`garam data inspect` on real rows beside a count of the same with Transformers' tokenizer and a few lines of
Python: rows, tokens, targets, lengths, what a shorter max_length takes, duplicates, leakage, padding.

Every number must be equal; none is a sum of floats.
"""

import collections
import csv
import json
import os
import pathlib
import subprocess
import sys

import transformers
from peers import program
from peers.checks import Checks

MAX_LENGTH = 96
BATCH = 8
ASKED = "Spam, phishing or harmless?\n{text}"


def data_folder():
    named = os.environ.get("GARAM_TEST_DATA")
    return pathlib.Path(named) if named else pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"


def sms_rows(folder):
    lines = (folder / "spam" / "SMSSpamCollection").read_text("utf-8").split("\n")
    for line in lines:
        if line:
            label, text = line.rstrip("\r").split("\t", 1)
            yield {"text": text, "label": label}


def smishing_rows(folder):
    with open(folder / "spam" / "korean_smishing.csv", encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            yield {"text": row["text"], "label": row["label"]}


def alpaca_rows(folder):
    for row in json.loads((folder / "instruct" / "alpaca_en_demo.json").read_text("utf-8")):
        yield {"prompt": row["instruction"] + "\n" + row["input"] + "\n", "completion": row["output"]}


def encode(tokenizer, row):
    """Ids, and the number of the first target: it and all behind it but the template's last line are targets."""
    if "prompt" in row:
        ids = tokenizer(row["prompt"] + row["completion"])["input_ids"] + [tokenizer.eos_token_id]
        alone = tokenizer(row["prompt"])["input_ids"]
        first = 0
        while first < min(len(ids), len(alone)) and ids[first] == alone[first]:
            first += 1
        return ids, first, len(ids)
    messages = [
        {"role": "user", "content": ASKED.replace("{text}", row["text"])},
        {"role": "assistant", "content": row["label"]},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    begins = len(tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True))
    ends = text.rindex("[|endofturn|]") + len("[|endofturn|]")
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    inside = [i for i, (begin, end) in enumerate(encoded["offset_mapping"]) if end > begins and begin < ends]
    return encoded["input_ids"], inside[0], inside[-1] + 1


def scored(first, last, length):
    """Targets among the first `length` tokens; the very first token is never scored."""
    return max(0, min(last, length) - max(first, 1))


def count(samples, max_length):
    kept = [(ids, first, last) for ids, first, last in samples if scored(first, last, max_length) > 0]
    lengths = sorted(len(ids) for ids, _, _ in samples)
    after = [min(len(ids), max_length) for ids, _, _ in kept]
    tokens = sum(after)
    targets = sum(scored(first, last, max_length) for _, first, last in kept)
    room = sum(max(after[i : i + BATCH]) * len(after[i : i + BATCH]) for i in range(0, len(after), BATCH))
    seen = collections.Counter(tuple(ids) for ids, _, _ in samples)
    return {
        "kept": len(kept),
        "dropped": len(samples) - len(kept),
        "truncated": sum(len(ids) > max_length for ids, _, _ in kept),
        "tokens": tokens,
        "targets": targets,
        "tokens_lost": sum(lengths) - tokens,
        "targets_lost": sum(scored(first, last, len(ids)) for ids, first, last in samples) - targets,
        "min": lengths[0],
        "p50": lengths[(len(lengths) * 50 + 99) // 100 - 1],
        "p99": lengths[(len(lengths) * 99 + 99) // 100 - 1],
        "max": lengths[-1],
        "duplicates": sum(number - 1 for number in seen.values()),
        "room": room,
        "steps": (len(kept) + BATCH - 1) // BATCH,
    }


def numbers_of(found):
    train, before = found["train"], found["lengths"]["before"]
    plain = next(way for way in found["batching"] if way["name"] == "plain")
    return {
        "kept": train["kept"],
        "dropped": sum(train["dropped"].values()),
        "truncated": train["truncated"],
        "tokens": train["tokens"],
        "targets": train["targets"],
        "tokens_lost": train["tokens_lost"],
        "targets_lost": train["targets_lost"],
        **{name: before[name] for name in ("min", "p50", "p99", "max")},
        "duplicates": found["findings"]["duplicates"]["count"],
        "room": plain["room"],
        "steps": plain["steps"],
    }


def inspect(garam, model, rows, **settings):
    words = program.settings_of(
        {
            "model": str(model),
            "data.train": str(rows),
            "data.instruction": ASKED,
            "data.shuffle": False,
            "data.cache": False,
            "train.max_length": MAX_LENGTH,
            "train.per_device_train_batch_size": BATCH,
            **settings,
        }
    )
    return json.loads(garam.run("data", "inspect", "--json", *words))


def check_numbers(checks, garam, tokenizer, model, work, name, rows):
    file = program.write_rows(work / f"{name}.jsonl", rows)
    samples = [encode(tokenizer, row) for row in rows]
    found = inspect(garam, model, file)
    want = count(samples, MAX_LENGTH)
    for key, value in numbers_of(found).items():
        checks.equal(f"{name} ({len(rows)} rows): {key} = {want[key]}", value, want[key])
    for limit in found["lengths"]["limits"]:
        other = count(samples, limit["max_length"])
        got = (limit["rows_truncated"], limit["rows_dropped"], limit["tokens_lost"], limit["targets_lost"])
        dropped = other["dropped"]
        checks.equal(
            f"{name}: what max_length={limit['max_length']} takes",
            got,
            (other["truncated"] + dropped, dropped, other["tokens_lost"], other["targets_lost"]),
        )


def check_leakage(checks, garam, model, work, rows):
    """Every tenth row in both files, as they stand."""
    train = program.write_rows(work / "train.jsonl", rows)
    held = program.write_rows(work / "held.jsonl", rows[::10] + [{"text": "no such row", "label": "ham"}])
    found = inspect(garam, model, train, **{"data.validation": str(held), "train.max_length": 4096})
    leakage = found["findings"]["leakage"]
    checks.equal("leakage of every tenth row", leakage["count"], len(rows[::10]))
    checks.equal("its first example", leakage["examples"][0]["where"], f"{held}:1")


class Page:
    """Nothing but well-formed markup that holds no script."""

    def __init__(self):
        import html.parser

        page = self
        self.open, self.faults, self.tags = [], [], set()

        class Parser(html.parser.HTMLParser):
            def handle_starttag(self, tag, attributes):
                page.tags.add(tag)
                if tag not in ("meta", "line"):
                    page.open.append(tag)
                page.faults += [name for name, _ in attributes if name.startswith("on") or name in ("src", "href")]

            def handle_startendtag(self, tag, attributes):
                page.tags.add(tag)

            def handle_endtag(self, tag):
                if not page.open or page.open.pop() != tag:
                    page.faults.append(tag)

        self.parser = Parser(convert_charrefs=True)


def check_page(checks, garam, model, work):
    attack = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;"
    file = program.write_rows(work / "attack.jsonl", [{"text": attack + str(i), "label": attack} for i in range(9)])
    out = work / "page.html"
    words = {"model": str(model), "data.train": str(file), "data.instruction": attack, "data.cache": False}
    subprocess.run(
        [garam.binary, "data", "inspect", "--html", str(out), *program.settings_of(words)], check=True, capture_output=True
    )
    page = Page()
    page.parser.feed(out.read_text("utf-8"))
    checks.equal("the page of hostile rows is well formed", (page.open, page.faults), ([], []))
    checks.equal("it has no script and loads nothing", page.tags & {"script", "img", "link", "iframe", "a"}, set())


def main():
    options = program.arguments(__doc__)
    garam, checks, folder = program.Garam(options.garam), Checks(), data_folder()
    model = folder / "tokenizers" / "exaone-3.5"
    if not model.exists():
        print(f"skip {model} is not here")
        return 0
    tokenizer = transformers.GPT2TokenizerFast.from_pretrained(model)
    for name, rows in (("sms", sms_rows), ("smishing", smishing_rows), ("alpaca", alpaca_rows)):
        checks.run(name, check_numbers, garam, tokenizer, model, options.work, name, list(rows(folder)))
    checks.run("leakage", check_leakage, garam, model, options.work, list(sms_rows(folder))[:400])
    checks.run("page", check_page, garam, model, options.work)
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
