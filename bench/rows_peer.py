"""pyarrow beside `rows_bench`: the same columns of the same files, in turns.

  rows_peer.py prepare DATA FOLDER [MEGABYTES]    rows of real sentences from the reference data, as an Arrow data set,
                                                  Parquet (snappy, zstd), JSONL and CSV
  rows_peer.py measure FOLDER ROWS_BENCH [ROUNDS [FORMAT…]]
                                                  one pass of each side a round; medians, least and most in brackets

`batches`: all record batches (garam: next()), `touched`: and every byte of their texts read, `rows`: every row as an
object of the language (pyarrow: to_pylist; garam: row(i), which also checks UTF-8), `spread`: row(i) on all processors.
With one thread in processor time, which other work on the machine distorts less, and with pyarrow's own choice of
threads in wall time. CSV has no column of lists.
"""
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

FILES = {
    "arrow": "arrow",
    "parquet-snappy": "snappy.parquet",
    "parquet-zstd": "zstd.parquet",
    "jsonl": "rows.jsonl",
    "csv": "rows.csv",
}


def sentences(data):
    lines = (data / "text" / "wikitext2.valid.raw").read_text("utf-8").split("\n")
    found = [part.strip() + " ." for line in lines for part in line.split(" . ") if len(part) > 20]
    for row in json.loads((data / "instruct" / "alpaca_en_demo.json").read_text("utf-8")):
        found.extend(text for text in (row["instruction"], row["input"], row["output"]) if text)
    return found


def prepare(data, folder, megabytes):
    found, pick = sentences(data), random.Random(1)
    texts = lambda least, most: " ".join(pick.choices(found, k=pick.randint(least, most)))
    message = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
    schema = pyarrow.schema(
        [("text", pyarrow.string()), ("id", pyarrow.int64()), ("stars", pyarrow.int32()), ("messages", pyarrow.list_(message))]
    )
    (folder / "arrow").mkdir(parents=True, exist_ok=True)
    (folder / "arrow" / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_data_files": None, "_split": "train"})
    )
    stream = pyarrow.ipc.new_stream(str(folder / "arrow" / "data-00000-of-00001.arrow"), schema)
    packed = [pyarrow.parquet.ParquetWriter(str(folder / f"{kind}.parquet"), schema, compression=kind) for kind in ("snappy", "zstd")]
    flat = pyarrow.csv.CSVWriter(str(folder / "rows.csv"), pyarrow.schema([schema.field(i) for i in range(3)]))
    size, count = 0, 0
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as lines:
        while size < megabytes * 1_000_000:
            rows = []
            for _ in range(20_000):
                turns = [{"role": ("user", "assistant")[i % 2], "content": texts(1, 4)} for i in range(pick.randint(1, 2) * 2)]
                rows.append({"text": texts(1, 6), "id": count, "stars": pick.randint(1, 5), "messages": turns})
                count += 1
            table = pyarrow.Table.from_pylist(rows, schema)
            stream.write_table(table, max_chunksize=1000)
            for writer in packed:
                writer.write_table(table)
            flat.write_table(table.select(["text", "id", "stars"]))
            lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            size += table.nbytes
    for writer in (stream, flat, *packed):
        writer.close()
    print(f"{count} rows, {size / 1e6:.0f} MB of columns")
    for name, file in FILES.items():
        whole = [path for path in (folder / file).rglob("*") if path.is_file()] or [folder / file]
        print(f"{name}: {sum(path.stat().st_size for path in whole) / 1e6:.0f} MB")


def batches_of(name, path, threads):
    if name == "arrow":
        return pyarrow.ipc.open_stream(pyarrow.memory_map(str(path / "data-00000-of-00001.arrow")))
    if name == "jsonl":
        return pyarrow.json.open_json(str(path), read_options=pyarrow.json.ReadOptions(use_threads=threads))
    if name == "csv":
        options = pyarrow.csv.ReadOptions(use_threads=threads)
        return pyarrow.csv.open_csv(str(path), options, pyarrow.csv.ParseOptions(newlines_in_values=True))
    return pyarrow.parquet.ParquetFile(str(path), memory_map=True).iter_batches(use_threads=threads)


def touch(array):
    """Looks at every byte of the texts."""
    if pyarrow.types.is_string(array.type):
        pyarrow.compute.string_is_ascii(array)
    elif pyarrow.types.is_list(array.type):
        touch(array.flatten())
    elif pyarrow.types.is_struct(array.type):
        for field in array.flatten():
            touch(field)


def timed(name, path, threads, use):
    clock = time.perf_counter if threads else time.process_time
    began = clock()
    for batch in batches_of(name, path, threads):
        use(batch)
    return clock() - began


USES = {
    "batches": lambda batch: None,
    "touched": lambda batch: [touch(column) for column in batch.columns],
    "rows": lambda batch: batch.to_pylist(),
}


def shown(seconds, size):
    speeds = sorted(size / second for second in seconds)
    return f"{statistics.median(speeds):.0f} ({speeds[0]:.0f}-{speeds[-1]:.0f})"


def measure(folder, bench, rounds, names):
    print(f"pyarrow {pyarrow.__version__}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; MB of text a second")
    for name in names or FILES:
        file = FILES[name]
        for threads in (False, True):
            pyarrow.set_cpu_count(len(os.sched_getaffinity(0)) if threads else 1)
            environment = dict(os.environ) if threads else {**os.environ, "OMP_NUM_THREADS": "1"}
            ours, theirs = {}, {}
            for _ in range(rounds):
                line = subprocess.run([bench, str(folder / file)], env=environment, check=True, capture_output=True, text=True).stdout
                found = json.loads(line)
                for key in ("batches", "rows", "spread"):
                    ours.setdefault(key, []).append(found[key][0 if threads else 1])
                for key, use in USES.items():
                    if key != "rows" or not threads:
                        theirs.setdefault(key, []).append(timed(name, folder / file, threads, use))
            size = found["bytes"] / 1e6
            print(f"{name}, {'threads, wall time' if threads else 'one thread, processor time'}: {found['count']} rows, {size:.0f} MB, peak {found['peak']} MB")
            for side, times in (("garam", ours), ("pyarrow", theirs)):
                listed = ", ".join(f"{key} {shown(seconds, size)}" for key, seconds in times.items() if threads or key != "spread")
                print(f"  {side}: {listed}", flush=True)


if sys.argv[1] == "prepare":
    prepare(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else 300)
else:
    measure(pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 5, sys.argv[5:])
