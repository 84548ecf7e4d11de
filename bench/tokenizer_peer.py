"""The `tokenizers` package beside `tokenizer_bench`: the same texts, the same files.

  tokenizer_peer.py prepare DATA FOLDER    writes FOLDER/NAME.jsonl (one text a line, 200 to 2000 bytes, no text twice)
                                           and FOLDER/tokenizers/NAME from the reference data
  tokenizer_peer.py measure FOLDER [PASSES [--per_core]]    MB/s of encode_batch and encode_batch_fast, the faster counts

With --per_core one thread in its own time, which other work on the machine distorts less; else all processors.
`first` is the pass of a tokenizer that was just made, `steady` that of one which has seen the texts; medians, least and
most in brackets. The sum over the ids is to be the one that tokenizer_bench prints.
"""
import csv
import gzip
import json
import os
import pathlib
import statistics
import sys
import time

PER_CORE = "--per_core" in sys.argv
os.environ["TOKENIZERS_PARALLELISM"] = "false" if PER_CORE else "true"
clock = time.process_time if PER_CORE else time.perf_counter
LEAST, MOST = 200, 2000


def rows_of(lines, target):
    """Texts of about `target` bytes from neighbouring lines; nothing twice."""
    rows, seen, text = [], set(), ""
    for line in lines:
        if line in seen:
            continue
        seen.add(line)
        text += line
        if len(text.encode("utf-8")) >= target:
            rows.append(text)
            text = ""
    return [row for row in rows if LEAST <= len(row.encode("utf-8")) <= MOST]


def prepare(data, folder):
    lines = lambda path: path.read_text("utf-8").splitlines(keepends=True)
    wikitext = rows_of(lines(data / "text" / "wikitext2.valid.raw"), 300)
    instruct = json.loads((data / "instruct" / "alpaca_en_demo.json").read_text("utf-8"))
    alpaca = rows_of(["\n".join(row[key] for key in ("instruction", "input", "output")) for row in instruct], LEAST)
    pairs = [line.split("\t") for line in lines(data / "translation" / "tatoeba-eng-kor.txt")]
    with open(data / "spam" / "korean_smishing.csv", encoding="utf-8-sig", newline="") as file:
        smishing = [max(row, key=len) + "\n" for row in csv.reader(file) if row]
    korean = rows_of([pair[1].strip() + "\n" for pair in pairs if len(pair) > 1] + smishing, 600)
    root = pathlib.Path(__file__).resolve().parents[1]
    sources = [path for kind in ("src/**/*.cpp", "src/**/*.h", "tests/**/*.py", "bench/*.py") for path in sorted(root.glob(kind))]
    code = rows_of([line for path in sources for line in lines(path)], 900)
    german = gzip.open(data / "translation" / "multi30k" / "train.de.gz", "rt", encoding="utf-8").readlines()
    mixed = []
    for parts in zip(wikitext, korean * 8, code, rows_of(german, 300), alpaca):
        mixed.extend(parts)
    mixed = list(dict.fromkeys(mixed))
    for name, rows in (("english", wikitext + alpaca), ("korean", korean), ("code", code), ("mixed", mixed)):
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{name}: {len(rows)} texts, {sum(len(row.encode('utf-8')) for row in rows) / 1e6:.2f} MB")
    pipelines = json.loads((data / "golden" / "tokenizers" / "pipelines.json").read_text("utf-8"))
    for name in ("llama-3.1", "exaone-3.5", "gpt2", "qwen2.5", "llama-2"):
        write_tokenizer(data / "tokenizers", name, pipelines[name], folder / "tokenizers" / name)


def write_tokenizer(source, name, pipeline, target):
    target.mkdir(parents=True, exist_ok=True)

    def content(file):
        for path in (source / name / file, source / f"{name}.{file}"):
            for packed in (path, path.with_name(path.name + ".gz")):
                if packed.exists():
                    raw = packed.read_bytes()
                    return gzip.decompress(raw) if packed.suffix == ".gz" else raw
        return None

    made = content("tokenizer.json")
    if made is None:
        config = json.loads(content("tokenizer_config.json") or b"{}")
        added = [{"id": int(i), **token} for i, token in sorted(config.get("added_tokens_decoder", {}).items(), key=lambda e: int(e[0]))]
        merges = [line for line in content("merges.txt").decode("utf-8").split("\n") if line and not line.startswith("#version")]
        model = {**pipeline["model"], "vocab": json.loads(content("vocab.json")), "merges": merges}
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **pipeline, "model": model}
        made = json.dumps(whole, ensure_ascii=False).encode("utf-8")
    (target / "tokenizer.json").write_bytes(made)


def sum_of(encodings):
    total = 0
    for encoding in encodings:
        for place, token in enumerate(encoding.ids, 1):
            total += place * token
    return total % 2**64


def measure(folder, passes):
    import tokenizers

    processors = "one thread, processor time" if PER_CORE else f"{len(os.sched_getaffinity(0))} processors"
    print(f"tokenizers {tokenizers.__version__}, {processors}")
    for path in sorted((folder / "tokenizers").iterdir()):
        began = clock()
        tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        print(f"{path.name} loaded in {clock() - began:.3f} s")
        for rows in sorted(folder.glob("*.jsonl")):
            texts = [json.loads(line) for line in rows.read_text("utf-8").split("\n") if line]
            size = sum(len(text.encode("utf-8")) for text in texts) / 1e6
            speeds = {}
            for method in ("encode_batch", "encode_batch_fast"):
                first, steady = [], []
                for _ in range(max(passes // 2, 1)):
                    fresh = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
                    first.append(size / timed(fresh, method, texts))
                for _ in range(passes):
                    steady.append(size / timed(fresh, method, texts))
                speeds[method] = (first, steady)
            best = max(speeds, key=lambda method: statistics.median(speeds[method][1]))
            shown = [f"{statistics.median(s):.2f} ({min(s):.2f}-{max(s):.2f})" for s in speeds[best]]
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            print(f"{path.name} {rows.stem} {best}: first {shown[0]}, steady {shown[1]} MB/s, sum {sum_of(encodings)}", flush=True)


def timed(tokenizer, method, texts):
    encode = getattr(tokenizer, method)
    began = clock()
    encode(texts, add_special_tokens=False)
    return clock() - began


if sys.argv[1] == "prepare":
    prepare(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
else:
    measure(pathlib.Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 7)
