"""Makes the small tables of this folder, with pyarrow 26.0.1: `python make_tables.py`.

types.*: one row of each kind of value and one of nulls, in every type that is read, but for view types, which
Parquet's reader does not give. three.*: the column "i" of 0, 1, 2 in several batches. indices.arrow:
row numbers as a selection of a data set stores them. nulls.arrow, back.arrow, words.arrow, text_views.arrow:
small files of rows that would be many gigabytes.
"""

import datetime
import decimal
import json
import pathlib

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent
UTC = datetime.timezone.utc

COLUMNS = {
    "text": (pa.string(), "가람 river"),
    "large": (pa.large_string(), "quick \\ 오늘은 \0"),
    "bool": (pa.bool_(), True),
    "i8": (pa.int8(), -8),
    "u16": (pa.uint16(), 65535),
    "i64": (pa.int64(), -(2**62)),
    "u64": (pa.uint64(), 2**63 - 1),
    "half": (pa.float16(), 0.5),
    "float": (pa.float32(), 0.25),
    "double": (pa.float64(), 1e300),
    "word": (pa.dictionary(pa.int8(), pa.string()), "again"),
    "list": (pa.list_(pa.int32()), [1, None, 3]),
    "large_list": (pa.large_list(pa.string()), ["a", ""]),
    "pair": (pa.list_(pa.float32(), 2), [1.0, 2.0]),
    "chat": (
        pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    "none": (pa.null(), None),
    "date": (pa.date32(), datetime.date(2024, 2, 29)),
    "time": (pa.timestamp("us"), datetime.datetime(1969, 12, 31, 23, 59, 59, 250000)),
    "zoned": (pa.timestamp("ms", tz="UTC"), datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    "price": (pa.decimal128(9, 2), decimal.Decimal("12.50")),
    "label": (pa.int64(), 1),
}
FEATURES = {"label": {"names": ["ham", "spam"], "_type": "ClassLabel"}}


def write_stream(path, table, rows=None, **options):
    with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)


def main():
    schema = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()]).with_metadata(
        {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    )
    columns = [pa.array([value, None], type=kind) for kind, value in COLUMNS.values()]
    table = pa.table(columns, schema=schema)
    write_stream(HERE / "types.arrow", table)
    write_stream(HERE / "types_zstd.arrow", table, compression="zstd")
    with pa.ipc.new_file(HERE / "types_file.arrow", schema) as writer:
        writer.write_table(table)
    pq.write_table(table, HERE / "types.parquet")

    views = pa.table({"text": pa.array(["short", None, "longer than twelve bytes"], pa.string_view())})
    write_stream(HERE / "views.arrow", views)
    write_stream(HERE / "bytes.arrow", pa.table({"text": ["a"], "image": [b"\xff"]}))

    three = pa.table({"i": [0, 1, 2], "text": ["a", "b", "c"]})
    write_stream(HERE / "three.arrow", three, rows=1)
    pq.write_table(three, HERE / "three.parquet", row_group_size=2)
    write_stream(HERE / "indices.arrow", pa.table({"indices": pa.array([5, 0, 0, 1], pa.uint64())}))
    write_stream(HERE / "bad_indices.arrow", pa.table({"indices": pa.array([6], pa.uint64())}))

    def write_row(name, values, offsets=None):
        offsets = pa.array(offsets or [0, len(values)], pa.int32())
        lists = pa.ListArray.from_arrays(offsets, values)
        write_stream(HERE / name, pa.table({"list": lists}), compression="zstd")

    write_row("nulls.arrow", pa.nulls(2**31 - 1))
    write_row("back.arrow", pa.array([1, 2, 3], pa.int8()), [0, 3, 0, 3])
    indices = pa.array([0] * 100_000, pa.int8())
    words = pa.DictionaryArray.from_arrays(indices, pa.array(["word" * 5_000]))
    write_row("words.arrow", words)
    view = pa.array(["word" * 25_000], pa.string_view())
    views = pa.py_buffer(view.buffers()[1].to_pybytes()[:16] * 2_000)
    write_row(
        "text_views.arrow",
        pa.Array.from_buffers(pa.string_view(), 2_000, [None, views, view.buffers()[2]]),
    )
    for name in ("three.arrow", "three.parquet"):
        assert (HERE / name).stat().st_size < 4096


main()
