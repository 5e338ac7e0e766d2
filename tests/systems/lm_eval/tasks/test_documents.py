import gzip
import json
import sys
import tracemalloc
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
import zstandard
from systems.lm_eval.tasks.given import config

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval.tasks import TaskFile
from calipers.systems.lm_eval.tasks.documents import (
    load_splits,
    processed,
    read_arrow,
    read_csv,
    read_json,
    read_parquet,
    read_text,
)


def splits(path=None, **fields):
    return load_splits(config(task="t", **fields), TaskFile(path, fields))


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"q": "{name}"}}\n')
    (tmp_path / "c.jsonl").write_text('{"other": 1}\n{"q": "c"}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("files", "split", "found"),
    [
        ("a.jsonl", "train", ["a"]),  # a path alone is the split train
        (["a.jsonl", "b.jsonl"], "train", ["a", "b"]),
        ("[ab].jsonl", "train", ["a", "b"]),
        ({"test": "b.jsonl", "dev": ["a.jsonl"]}, "test", ["b"]),
    ],
)
def test_data_files(data, files, split, found):
    rows = splits(dataset_path="json", dataset_kwargs={"data_files": files})[split]
    assert [row["q"] for row in rows] == found


def test_every_row_has_every_column(data):
    rows = splits(dataset_path="json", dataset_kwargs={"data_files": ["a.jsonl", "c.jsonl"]})["train"]
    assert rows == [{"q": "a", "other": None}, {"q": None, "other": 1}, {"q": "c", "other": None}]


def test_a_path_is_looked_for_here_and_then_beside_the_task(data, tmp_path):
    home = tmp_path / "tasks"
    home.mkdir()
    (home / "mine.jsonl").write_text('{"q": "mine"}\n')
    (home / "a.jsonl").write_text('{"q": "not this one"}\n')
    fields = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"x": "mine.jsonl", "y": "a.jsonl"}}}
    found = splits(home / "t.yaml", **fields)
    assert (found["x"], found["y"]) == ([{"q": "mine"}], [{"q": "a"}])


def test_a_folder_has_the_splits_that_its_names_tell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("train-00.csv", "my_test.csv", "valid.csv", "notes.md"):
        (tmp_path / "data" / name).write_text(f"q\n{name}\n")
    for fields in ({"dataset_path": "data"}, {"dataset_path": "csv", "dataset_kwargs": {"data_dir": "data"}}):
        found = splits(**fields)
        assert sorted(found.readers) == ["test", "train", "validation"]
        assert found["test"] == [{"q": "my_test.csv"}]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "no dataset_path; expected one"),
        ({"dataset_path": "json"}, "no data_files; expected files"),
        (
            {"dataset_path": "json", "dataset_kwargs": {"data_files": "gone.jsonl"}},
            "no file gone.jsonl; expected it in .",
        ),
        ({"dataset_path": "json", "dataset_kwargs": {"data_files": {"a": 3}}}, "data_files: is 3; expected a path"),
        ({"dataset_path": "json", "dataset_kwargs": {"data_files": "a.jsonl", "feild": "x"}}, "did you mean 'field'"),
        ({"dataset_path": "json", "dataset_kwargs": {"data_dir": "gone"}}, "no folder gone"),
    ],
)
def test_data_that_is_not_there_is_refused(data, fields, said):
    with pytest.raises(InputError) as caught:
        splits(**fields)["train"]
    assert said in str(caught.value)


def test_a_split_that_is_not_there_is_refused_with_those_that_are(data):
    found = splits(dataset_path="json", dataset_kwargs={"data_files": {"dev": "a.jsonl", "train": "b.jsonl"}})
    with pytest.raises(InputError, match=r"dataset_path: the dataset has no split 'test'; it has dev, train$"):
        found["test"]


def test_a_library_that_is_there_and_broken_is_not_said_to_be_missing(tmp_path, monkeypatch):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    with pytest.raises(InputError) as caught:
        splits(dataset_path="org/name")
    assert "datasets is installed but cannot be imported (No module named 'a_library" in str(caught.value)
    with pytest.raises(PluginError, match="the library datasets is installed but cannot be imported"):
        processed([{"q": 1}], lambda docs: docs.map(str), "here")


def test_a_dataset_of_the_hub_needs_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    for fields in (
        {"dataset_path": "openai/gsm8k"},
        {"dataset_path": "json", "dataset_kwargs": {"data_files": "https://example.org/x.jsonl"}},
    ):
        with pytest.raises(InputError, match=r"is a dataset of the hub; install calipers\[hf\]"):
            splits(**fields)


@pytest.mark.filterwarnings("ignore")  # the library's own, where it is installed
def test_the_library_reads_what_we_do_not(data):
    """The code that calls the library ``datasets``, on local data."""
    pytest.importorskip("datasets")
    from calipers.systems.lm_eval.tasks.documents import _library

    made = config(task="t", dataset_path="json")
    kwargs = {"data_files": {"test": str(data / "a.jsonl")}, "trust_remote_code": True}
    assert _library(made, kwargs, "here")["test"] == [{"q": "a"}]
    with pytest.raises(InputError, match="json cannot be loaded"):
        _library(made, {"data_files": str(data / "gone.jsonl")}, "here")


def test_a_dataset_of_the_tasks_own_making():
    def make(size, version=1, **rest):
        return {"test": [{"n": n} for n in range(size * version)], "rest": [rest]}

    fields = {"custom_dataset": make, "metadata": {"version": 2, "note": "x"}, "dataset_kwargs": {"size": 2}}
    found = splits(**fields)
    assert (found["test"], found["rest"]) == ([{"n": n} for n in range(4)], [{"note": "x"}])
    with pytest.raises(PluginError, match="make failed: TypeError"):
        splits(custom_dataset=make)
    with pytest.raises(PluginError, match="returns a list; expected a mapping of splits"):
        splits(custom_dataset=lambda: [])


@pytest.mark.filterwarnings("ignore")  # the library's own, where it is installed
def test_documents_are_processed_by_a_function_of_the_task():
    rows = [{"q": "a"}, {"q": "b"}]
    assert processed(rows, None, "here") is rows
    assert processed(rows, lambda docs: [{**doc, "n": 1} for doc in docs], "here") == [
        {"q": "a", "n": 1},
        {"q": "b", "n": 1},
    ]


def test_a_function_that_expects_the_librarys_dataset_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(PluginError, match=r"here: .* expects a datasets.Dataset; install calipers\[hf\]"):
        processed([{"q": 1}], lambda docs: docs.map(dict), "here")
    with pytest.raises(PluginError, match=r"here: failed: ZeroDivisionError"):
        processed([{"q": 1}], lambda docs: 1 / 0, "here")
    with pytest.raises(PluginError, match=r"here: returns a int; expected documents"):
        processed([{"q": 1}], lambda docs: 3, "here")


@pytest.mark.filterwarnings("ignore")  # the library's own, where it is installed
def test_with_the_library_a_function_gets_its_dataset():
    pytest.importorskip("datasets")
    found = processed([{"q": "a"}, {"q": "b"}], lambda docs: docs.filter(lambda doc: doc["q"] == "b"), "here")
    assert found == [{"q": "b"}]


def test_a_folder_is_named_once_where_it_is_both(data):
    asked = {"dataset_path": "json", "dataset_kwargs": {"data_files": "gone.jsonl"}}
    with pytest.raises(InputError, match=r"no file gone.jsonl; expected it in \.$"):
        splits(Path("task.yaml"), **asked)["train"]


def test_json_lines_are_typed_column_by_column(tmp_path):
    rows = [
        {"day": "2024-01-02", "mixed": 1, "text": "2024-01-02", "at": "2024-01-02 10:30"},
        {"day": None, "mixed": 2.5, "text": "x", "at": "2024-01-02T10:30:05"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read_json(path)
    assert first == {
        "day": datetime(2024, 1, 2),
        "mixed": 1.0,
        "text": "2024-01-02",
        "at": datetime(2024, 1, 2, 10, 30),
    }
    assert (second["day"], second["mixed"], second["text"]) == (None, 2.5, "x")
    assert isinstance(first["mixed"], float)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([["2024-01-02", None], []], [[datetime(2024, 1, 2), None], []]),
        (
            [{"d": "2024-01-02", "x": 1}, {"x": 2.5, "d": None}],
            [{"d": datetime(2024, 1, 2), "x": 1.0}, {"d": None, "x": 2.5}],
        ),
        ([{"d": "2024-01-02"}, {}], [{"d": "2024-01-02"}, {}]),  # objects of several shapes stay as they are
        ([[1, "2024-01-02"]], [[1, "2024-01-02"]]),
        ([[[1], [2.5]]], [[[1.0], [2.5]]]),
        (["2024-01-02T10:20:30+02:00"], [datetime(2024, 1, 2, 8, 20, 30)]),
        (["2024-01-02T10Z"], [datetime(2024, 1, 2, 10)]),
        (["2024-01-02T10:20:30.5"], ["2024-01-02T10:20:30.5"]),
        ([1, 2**63], [1.0, 2.0**63]),
        ([True, 1], [True, 1]),
        ([1, "x"], [1, "x"]),
        ([1, 2.0, None], [1.0, 2.0, None]),
    ],
)
def test_json_is_typed_as_datasets_types_it(tmp_path, cells, expected):
    """The expectations were compared with ``datasets`` 5.2.0."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"c": cell}) + "\n" for cell in cells))
    assert repr([row["c"] for row in read_json(path)]) == repr(expected)


def test_a_date_that_is_none_leaves_its_column_text(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"d": "2024-01-02"}\n{"d": "2024-13-02"}\n')
    assert [row["d"] for row in read_json(path)] == ["2024-01-02", "2024-13-02"]


def test_numbers_beyond_a_float_leave_their_column_as_it_is(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"n": {10**400}}}\n{{"n": 2.5}}\n')
    assert [row["n"] for row in read_json(path)] == [10**400, 2.5]


def test_a_field_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('{"a": []}')
    with pytest.raises(InputError, match=r"no key \['a'\]; expected an object with it"):
        read_json(path, ["a"])


@pytest.mark.parametrize(
    ("text", "field", "rows"),
    [
        ('[{"a": 1}, {"b": 2}]', None, [{"a": 1}, {"b": 2}]),
        (' \n[{"d": "2024-01-02"}]', None, [{"d": datetime(2024, 1, 2)}]),
        ('{"data": [{"a": 1}], "x": 2}', "data", [{"a": 1}]),
        ('{"data": {"a": [1, 2], "b": [3, 4]}}', "data", [{"a": 1, "b": 3}, {"a": 2, "b": 4}]),
        # as datasets 5.2.0 reads the rows below a field: texts are dates by their column's name
        ('{"data": [{"d": "2024-01-02", "l": ["2024-01-02"]}]}', "data", [{"d": "2024-01-02", "l": ["2024-01-02"]}]),
        ('{"data": [{"Date": "2024-01-02"}]}', "data", [{"Date": datetime(2024, 1, 2)}]),
        ('{"a": 1}\n\n{"a": 2}\n', None, [{"a": 1}, {"a": 2}]),
    ],
)
def test_json_in_its_other_shapes(tmp_path, text, field, rows):
    path = tmp_path / "rows.json"
    path.write_text(text)
    assert read_json(path, field) == rows


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([1.0, None], [1, None]),
        ([1.0, 2.5], [1.0, 2.5]),
        ([1, 2.5], [1.0, 2.5]),
        ([1e20], [1e20]),
        ([[2.0]], [[2.0]]),
        ([True, False], [True, False]),
        ([None], [None]),
        ([1, "x"], [1, "x"]),
    ],
)
def test_whole_numbers_below_a_field_are_integers(tmp_path, cells, expected):
    """The expectations were compared with ``datasets`` 5.2.0, which refuses the last column."""
    for data in ([{"c": cell} for cell in cells], {"c": cells}):
        path = tmp_path / "rows.json"
        path.write_text(json.dumps({"data": data}))
        assert repr([row["c"] for row in read_json(path, "data")]) == repr(expected)


ROWS = b"".join(b'{"a": "%d %s"}\n' % (n, b"%x" % (n * 7919**5)) for n in range(60_000))
PACKED = {".gz": gzip.compress(ROWS, 1, mtime=0), ".zst": zstandard.compress(ROWS)}


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_packed_files_are_unpacked(tmp_path, suffix):
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(PACKED[suffix])
    assert len(read_json(path)) == 60_000
    path.write_bytes(2 * PACKED[suffix])  # two frames are one file
    assert len(read_json(path)) == 120_000


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        *((suffix, PACKED[suffix][:cut]) for suffix in PACKED for cut in (-1, -(len(PACKED[suffix]) // 2), 5)),
        *((suffix, b"no packing") for suffix in PACKED),
        *((suffix, PACKED[suffix][:30] + b"\xff" * 60 + PACKED[suffix][90:]) for suffix in PACKED),
    ],
)
def test_a_packed_file_that_is_not_whole_is_refused(tmp_path, suffix, content):
    """A reader must not return the rows before the cut as if they were the whole file."""
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(content)
    for read in (read_json, read_csv, read_text):
        with pytest.raises(InputError, match=rf"rows{suffix}: cannot be unpacked as .*; is it complete\?"):
            read(path)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_small_file_takes_little_room(tmp_path, suffix):
    """A reader that asks for the maximum size at once allocates 2 GiB first."""
    path = tmp_path / f"rows.jsonl{suffix}"
    text = b'{"a": "x"}\n'
    path.write_bytes({"": text, ".gz": gzip.compress(text), ".zst": zstandard.compress(text)}[suffix])
    tracemalloc.start()
    try:
        assert read_json(path) == [{"a": "x"}]
        assert read_text(path) == [{"text": '{"a": "x"}'}]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,x\n2,\n", [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
        ("a\n1\n\nNA\n", [{"a": 1.0}, {"a": None}]),  # integers with a gap are floats, as pandas has them
        ("a,b\nTrue,1.5\nfalse,2\n", [{"a": True, "b": 1.5}, {"a": False, "b": 2.0}]),
        ('a\n"x, ""y""\nz"\n', [{"a": 'x, "y"\nz'}]),
        ("a,b\n01x,1_0\n", [{"a": "01x", "b": "1_0"}]),
        ("a,b\n1\n", [{"a": 1, "b": None}]),
        ("a,a,\n 1,2,3\n", [{"a": 1, "a.1": 2, "Unnamed: 2": 3}]),
        ("a\n9223372036854775808\n", [{"a": 2**63}]),
        ("", []),
    ],
)
def test_csv_tells_what_its_columns_hold(tmp_path, text, rows):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    found = read_csv(path)
    assert found == rows
    assert [[type(cell) for cell in row.values()] for row in found] == [
        [type(cell) for cell in row.values()] for row in rows
    ]


def test_csv_of_another_shape(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("1\tx\n")
    assert read_csv(path, column_names=["n", "t"]) == [{"n": 1, "t": "x"}]
    path.write_text("n;t\n1;'a;b'\n")
    assert read_csv(path, sep=";", quotechar="'") == [{"n": 1, "t": "a;b"}]


def test_text_is_a_document_a_line(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes(b"one\r\n\r\ntwo\n")
    assert read_text(path) == [{"text": "one"}, {"text": ""}, {"text": "two"}]
    path.write_text("a\nb\n\nc\n")
    assert read_text(path, "paragraph") == [{"text": "a\nb"}, {"text": "c\n"}]
    assert read_text(path, "document") == [{"text": "a\nb\n\nc\n"}]


def test_parquet_and_both_forms_of_arrow(tmp_path):
    frame = pl.DataFrame({"q": ["a", "b"], "c": [["x"], ["y", "z"]]})
    frame.write_parquet(tmp_path / "rows.parquet")
    frame.write_ipc(tmp_path / "file.arrow")
    frame.write_ipc_stream(tmp_path / "stream.arrow")
    rows = frame.to_dicts()
    assert read_parquet(tmp_path / "rows.parquet") == rows
    assert read_parquet(tmp_path / "rows.parquet", ["q"]) == [{"q": "a"}, {"q": "b"}]
    assert read_arrow(tmp_path / "file.arrow") == rows
    assert read_arrow(tmp_path / "stream.arrow") == rows


@pytest.mark.parametrize(
    ("read", "content", "said"),
    [
        (read_json, b'{"a": 1}\n[1]\n', ":2: is a list; expected an object: one document"),
        (read_json, b'{"a": 1}\n{"a"\n', ":2: malformed json"),
        (read_json, b"[1, 2", ": malformed json"),
        (read_json, b"[1]", ": row 1: is a int; expected an object"),
        (lambda path: read_json(path, "data"), b'{"x": []}', ": no key 'data'; expected an object with it"),
        (read_csv, b"a\n1,2\n", ": record 1 has 2 cells for 1 columns; expected one per column"),
        (read_csv, b"\xff", ": byte 1 is not UTF-8"),
        (read_parquet, b"PAR1 no", ": cannot be read ("),
        (read_arrow, b"ARROW1 no", ": cannot be read ("),
        (lambda path: read_text(path, "word"), b"a", ": sample_by is 'word'; expected line, paragraph or document"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, read, content, said):
    path = tmp_path / "rows"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{said}")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    ("sample_by", "texts"), [("line", ["a", "b", "", "c"]), ("paragraph", ["a\nb", "c"]), ("document", ["a\nb\n\nc"])]
)
def test_every_end_of_a_line_is_one_newline(tmp_path, end, sample_by, texts):
    (tmp_path / "rows.txt").write_bytes(end.join([b"a", b"b", b"", b"c"]))
    assert [row["text"] for row in read_text(tmp_path / "rows.txt", sample_by)] == texts


def test_what_is_not_there_is_refused(tmp_path):
    for read in (read_json, read_csv, read_text, read_parquet, read_arrow):
        with pytest.raises(InputError, match=r"absent: cannot be read \(No such file or directory\)"):
            read(tmp_path / "absent")
    (tmp_path / "broken.jsonl.gz").write_bytes(b"not packed")
    for field in (None, "data"):
        with pytest.raises(InputError, match=r"^\S*broken\.jsonl\.gz: cannot be unpacked as gzip"):
            read_json(tmp_path / "broken.jsonl.gz", field)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.jsonl", '{"a": 1}\n{"a": 1, "a": 2}\n'),
        ("rows.jsonl.gz", '{"a": 1}\n{"a": 1, "a": 2}\n'),
        ("rows.json", '[{"a": 1}, {"a": 1, "a": 2}]'),
    ],
)
def test_a_key_twice_in_a_document_is_refused(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    with pytest.raises(InputError, match=r'rows\.json\S*: malformed json: key "a" appears twice'):
        read_json(path)
