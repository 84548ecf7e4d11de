"""Rows of Arrow, Parquet, JSON, CSV and text files, beside those that pyarrow and datasets read from them.

Tables of random values in every type, with nulls, in several batches; save_to_disk folders; splits and slices. The
probe is the small program of tests/data; it lies in the build folder of the garam that is named.
"""

import argparse
import datetime
import decimal
import gzip
import json
import math
import os
import pathlib
import random
import subprocess

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

UTC = datetime.timezone.utc
WORDS = "the quick Fox 오늘은 비가 온다 日本語 naïve \U0001f600 \" \\ , ; \t 'x' {} [] \u0000 é".split(" ")


class Probe:
    def __init__(self, program):
        self.process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, path, **request):
        self.process.stdin.write(json.dumps({"path": str(path), **request}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def plain(value, kind=None):
    """A Python value of pyarrow as the JSON that a row holds."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if kind is not None and pa.types.is_map(kind) and value is not None:
        return {k: plain(v) for k, v in value}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def kinds(rng):
    def text():
        return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(6)))

    def whole(bits):
        return lambda: rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))

    chat = pa.struct([("role", pa.string()), ("content", pa.large_string())])
    return {
        "string": (pa.string(), text),
        "large": (pa.large_string(), text),
        "bool": (pa.bool_(), lambda: rng.random() < 0.5),
        "i8": (pa.int8(), whole(8)),
        "i16": (pa.int16(), whole(16)),
        "i32": (pa.int32(), whole(32)),
        "i64": (pa.int64(), whole(64)),
        "u8": (pa.uint8(), lambda: rng.randrange(2**8)),
        "u32": (pa.uint32(), lambda: rng.randrange(2**32)),
        "u64": (pa.uint64(), lambda: rng.randrange(2**63)),
        "f32": (pa.float32(), lambda: rng.uniform(-9, 9)),
        "f64": (pa.float64(), lambda: rng.choice([rng.uniform(-1e9, 1e9), math.nan, math.inf])),
        "dictionary": (pa.dictionary(pa.int16(), pa.string()), lambda: rng.choice(WORDS)),
        "list": (pa.list_(pa.int32()), lambda: [rng.choice([None, 1, -5]) for _ in range(rng.randrange(5))]),
        "nested": (pa.large_list(pa.list_(pa.string())), lambda: [[text()] * rng.randrange(3)] * rng.randrange(3)),
        "fixed": (pa.list_(pa.float64(), 3), lambda: [rng.random() for _ in range(3)]),
        "chat": (pa.list_(chat), lambda: [{"role": "user", "content": text()} for _ in range(rng.randrange(4))]),
        "struct": (pa.struct([("a", pa.int64()), ("b", chat)]), lambda: {"a": 1, "b": {"role": text(), "content": None}}),
        "map": (pa.map_(pa.string(), pa.int64()), lambda: [(w, 1) for w in rng.sample(WORDS, 2)]),
        "null": (pa.null(), lambda: None),
        "date": (pa.date32(), lambda: datetime.date.fromordinal(rng.randrange(1, 3_000_000))),
        "second": (pa.timestamp("s"), lambda: datetime.datetime(1900 + rng.randrange(300), 5, 6, 7, 8, 9)),
        "micro": (pa.timestamp("us", tz="UTC"), lambda: datetime.datetime(1960, 5, 6, 7, 8, 9, rng.randrange(10**6), UTC)),
        "time": (pa.time64("us"), lambda: datetime.time(3, 4, 5, rng.randrange(10**6))),
        "decimal": (pa.decimal128(12, 3), lambda: decimal.Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-3)),
    }


def random_table(rng, rows):
    columns = {}
    for name, (kind, make) in kinds(rng).items():
        values = [None if rng.random() < 0.2 else make() for _ in range(rows)]
        columns[name] = pa.array(values, type=kind)
    return pa.table(columns)


def expected_rows(table):
    columns = {
        name: [plain(v, table.schema.field(name).type) for v in table[name].to_pylist()] for name in table.column_names
    }
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


class Report:
    def __init__(self):
        self.failed = 0

    def equal(self, what, answer, expected):
        rows = answer.get("rows")
        if rows == expected:
            print(f"ok   {what}: {len(expected)} rows", flush=True)
            return
        self.failed += 1
        print(f"FAIL {what}: {answer.get('error', '')}", flush=True)
        for i, (ours, theirs) in enumerate(zip(rows or [], expected)):
            if ours != theirs:
                for key in theirs:
                    if ours.get(key) != theirs[key]:
                        print(f"     row {i}, {key}: {ours.get(key)!r}, expected {theirs[key]!r}")
                break


def check_tables(probe, report, work, rng):
    table = random_table(rng, 5000)
    rows = expected_rows(table)
    for compression in (None, "lz4", "zstd"):
        options = pa.ipc.IpcWriteOptions(compression=compression)
        for kind, new in (("stream", pa.ipc.new_stream), ("file", pa.ipc.new_file)):
            path = work / f"table-{kind}-{compression}.arrow"
            with new(path, table.schema, options=options) as writer:
                writer.write_table(table, max_chunksize=777)
            report.equal(f"Arrow {kind}, {compression}", probe.ask(path), rows)
    for compression in ("none", "snappy", "gzip", "zstd", "brotli", "lz4"):
        for version in ("1.0", "2.0"):
            path = work / f"table-{compression}-{version}.parquet"
            pq.write_table(table, path, compression=compression, data_page_version=version, row_group_size=1234)
            report.equal(f"Parquet {compression}, pages {version}", probe.ask(path), rows)
    only = ["chat", "decimal"]
    few = [{k: row[k] for k in row if k in only} for row in rows]
    report.equal("Parquet, two columns", probe.ask(work / "table-zstd-2.0.parquet", only=only), few)
    report.equal("Arrow, two columns", probe.ask(work / "table-stream-zstd.arrow", only=only), few)


def check_data_sets(probe, report, work, rng):
    names = ["ham", "spam", "other"]
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=names),
            "turns": datasets.List({"role": datasets.Value("string"), "rating": datasets.ClassLabel(names=names)}),
        }
    )
    rows = [
        {
            "text": f"text {i}",
            "label": rng.randrange(3),
            "turns": [{"role": "user", "rating": rng.randrange(3)} for _ in range(rng.randrange(3))],
        }
        for i in range(2345)
    ]

    def named(row):
        turns = [{**turn, "rating": names[turn["rating"]]} for turn in row["turns"]]
        return {**row, "label": names[row["label"]], "turns": turns}

    whole = datasets.Dataset.from_list(rows, features=features)
    whole.save_to_disk(work / "set", num_shards=3)
    report.equal("save_to_disk, three shards", probe.ask(work / "set"), [named(r) for r in rows])
    shuffled = whole.shuffle(seed=3)
    shuffled.save_to_disk(work / "shuffled")
    report.equal("save_to_disk of shuffled rows", probe.ask(work / "shuffled"), [named(r) for r in shuffled])
    parts = whole.train_test_split(test_size=0.1, seed=1)
    parts.save_to_disk(work / "dict")
    (work / "hub" / "data").mkdir(parents=True)
    for name in parts:
        parts[name].to_parquet(work / "hub" / "data" / f"{name}-00000-of-00001.parquet")
    for split in ("train", "test", "train+test", "train[:90%]", "test[33%:67%]", "train[-17:]+test[:5]", "test[50%:51%]"):
        loaded = datasets.load_dataset(str(work / "hub"), split=split, cache_dir=str(work / "cache"))
        theirs = [named(r) for r in loaded]
        report.equal(f"DatasetDict, {split}", probe.ask(work / "dict", split=split), theirs)
        report.equal(f"Hub layout in Parquet, {split}", probe.ask(work / "hub", split=split), theirs)


def check_texts(probe, report, work, rng):
    rows = [
        {"text": " ".join(rng.choice(WORDS) for _ in range(9)).replace("\0", "") + "\nend", "n": str(i)} for i in range(4000)
    ]
    table = pa.Table.from_pylist(rows)
    pa.csv.write_csv(table, work / "a.csv")
    report.equal("CSV", probe.ask(work / "a.csv"), rows)
    with gzip.open(work / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    report.equal("JSON Lines, gzip", probe.ask(work / "a.jsonl.gz"), rows)
    (work / "a.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")
    report.equal("JSON list", probe.ask(work / "a.json"), rows)
    (work / "b.json").write_text(json.dumps({"version": 1, "data": rows}), encoding="utf-8")
    report.equal("JSON with data", probe.ask(work / "b.json"), rows)
    (work / "a.txt").write_text("\n".join(row["n"] + " x" * (i % 4) if i % 7 else "" for i, row in enumerate(rows)))
    loaded = datasets.load_dataset("text", data_files=str(work / "a.txt"), split="train", cache_dir=str(work / "cache"))
    report.equal("text by lines", probe.ask(work / "a.txt"), list(loaded))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--garam", default="build/cpu/bin/garam")
    parser.add_argument("--probe", help="the program rows_probe; otherwise that of the build folder")
    parser.add_argument("--gguf")
    parser.add_argument("--work", required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    probe = Probe(arguments.probe or pathlib.Path(arguments.garam).parents[1] / "tests" / "data" / "rows_probe")
    work = pathlib.Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    report = Report()
    rng = random.Random(arguments.seed)
    for check in (check_tables, check_data_sets, check_texts):
        check(probe, report, work, rng)
    raise SystemExit(report.failed > 0)


main()
