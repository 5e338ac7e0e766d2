"""Tables of questions in files and in memory, and the errors for those that cannot be read."""

from __future__ import annotations

import json

import polars as pl
import pytest

from calipers.errors import InputError
from calipers.tasks.table import is_table, read_table, table_of

ROWS = [{"question": "2 + 2?", "answer": "4"}, {"question": "What is\n3 + 4, then?", "answer": "7"}]
CSV = 'question,answer\n2 + 2?,4\n"What is\n3 + 4, then?",7\n'


def read(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(str(file))


SAME = {
    "plain.csv": CSV,
    "returns.csv": CSV.replace("\n", "\r\n").replace("What is\r\n", "What is\n"),
    "bom.csv": b"\xef\xbb\xbf" + CSV.encode(),
    "utf16.csv": CSV.encode("utf-16"),  # with a byte order mark
    "utf16be.csv": b"\xfe\xff" + CSV.encode("utf-16-be"),
    "utf16_without_mark.csv": CSV.encode("utf-16-le"),
    "semicolons.csv": 'question;answer\n2 + 2?;4\n"What is\n3 + 4, then?";7\n',  # a comma in a cell
    "excel.csv": 'sep=;\nquestion;answer\n2 + 2?;4\n"What is\n3 + 4, then?";7\n',
    "pipes.csv": 'question|answer\n2 + 2?|4\n"What is\n3 + 4, then?"|7\n',
    "tabs.tsv": 'question\tanswer\n2 + 2?\t4\n"What is\n3 + 4, then?"\t7\n',
    "tabs.csv": 'question\tanswer\n2 + 2?\t4\n"What is\n3 + 4, then?"\t7\n',
    "blank_lines.csv": CSV.replace("\n2 + 2", "\n\n2 + 2") + "\n,\n\n",
    "lines.jsonl": "".join(json.dumps(row) + "\n\n" for row in ROWS),
    "lines.json": "\n".join(map(json.dumps, ROWS)),
    "array.json": json.dumps(ROWS, indent=2),
    "array_of_utf16.json": json.dumps(ROWS).encode("utf-16"),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_questions_in_every_form(tmp_path, name):
    table = read(tmp_path, name, SAME[name])
    assert list(table.columns) == ["question", "answer"]
    assert list(table.rows) == ROWS
    assert table.name == name.partition(".")[0]
    assert is_table(str(tmp_path / name))


def test_parquet(tmp_path):
    pl.DataFrame(ROWS).write_parquet(tmp_path / "qa.parquet")
    table = read_table(str(tmp_path / "qa.parquet"))
    assert (list(table.rows), table.places[1]) == (ROWS, f"{tmp_path}/qa.parquet: row 2")


def test_a_cell_of_parquet_that_is_nan_is_empty(tmp_path):
    pl.DataFrame({"question": ["a", "b"], "answer": [1.5, float("nan")]}).write_parquet(tmp_path / "qa.parquet")
    assert [row["answer"] for row in read_table(str(tmp_path / "qa.parquet")).rows] == [1.5, None]


def test_a_row_knows_the_line_it_begins_on(tmp_path):
    table = read(tmp_path, "qa.csv", CSV + "five?,5\n")
    assert [place.rpartition(":")[2] for place in table.places] == ["2", "3", "5"]
    table = read(tmp_path, "sep.csv", SAME["excel.csv"])
    assert [place.rpartition(":")[2] for place in table.places] == ["3", "4"]


def test_a_cell_of_csv_is_text_and_an_empty_one_is_none(tmp_path):
    table = read(tmp_path, "qa.csv", "id,question,answer\n007,a?,\n7,b?,1.0\n")
    assert [row["id"] for row in table.rows] == ["007", "7"]
    assert [row["answer"] for row in table.rows] == [None, "1.0"]


REFUSED = {
    "ragged.csv": (
        "a,b\n1,2\n1,2,3\n",
        "ragged.csv:3: the row has 3 cells; expected 2, as in the header; put a cell that contains a , in quotes",
    ),
    "open.csv": ('a,b\n1,"2\n', "open.csv:2: is not valid CSV (unexpected end of data); expected a quote at both ends"),
    "twice.csv": ("a,a\n1,2\n", "twice.csv:1: column 'a' appears twice; expected each column once"),
    "latin.csv": ("question,answer\ncaf\u00e9?,1\n".encode("latin-1"), "latin.csv:2: byte 20 of the file is not UTF-8"),
    "nul.csv": ("a,b\n1,\0\n", "nul.csv:2: contains a NUL character; expected text"),
    "header.csv": ("a,b\n", "header.csv: has no rows; expected one question per row, after the header"),
    "empty.csv": ("", "empty.csv: has no rows; expected one question per row"),
    "sheet.xlsx": (b"PK\x03\x04", "sheet.xlsx: is a spreadsheet; save it as CSV (UTF-8) and use that file"),
    "packed.csv": (b"\x1f\x8b\x08", "packed.csv: is compressed; decompress it first"),
    "no.json": ('[{"a": 1},]', "no.json: is not valid JSON: "),
    "lines.jsonl": ('{"a": 1}\n{"a": }\n', "lines.jsonl:2: is not valid JSON: Expecting value at column 7"),
    "key.jsonl": ('{"a": 1, "a": 2}\n', 'key.jsonl:1: is not valid JSON: key "a" appears twice'),
    "numbers.json": ("[1, 2]", "numbers.json: item 1: is 1; expected a JSON object: a question with its columns"),
    "cut.parquet": (b"PAR1abc", "cut.parquet: cannot be read as Parquet ("),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_says_where(tmp_path, name):
    content, wrong = REFUSED[name]
    with pytest.raises(InputError) as error:
        read(tmp_path, name, content)
    assert str(error.value).removeprefix(f"{tmp_path}/").startswith(wrong)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file; expected questions as CSV"):
        read_table(str(tmp_path / "qa.csv"))


@pytest.mark.parametrize(
    ("name", "content", "is_one"),
    [
        ("tasks.jsonl", '{"task_id": "a", "instruction": "?", "verifier": {}}', False),
        ("mistyped.jsonl", '{"task_id": "a", "instruction": "?", "verifer": {}}', False),  # still an error
        ("qa.jsonl", '{"question": "?"}', True),
        ("array.json", "[]", True),
        ("broken.jsonl", "{", False),
        ("task.yaml", "task: arc", False),
        ("rows.tsv", "", True),
    ],
)
def test_which_files_are_tables(tmp_path, name, content, is_one):
    (tmp_path / name).write_text(content)
    assert is_table(str(tmp_path / name)) is is_one
    assert not is_table(str(tmp_path))


MEMORY = {
    "dicts": lambda: ROWS,
    "columns": lambda: {"question": [row["question"] for row in ROWS], "answer": [row["answer"] for row in ROWS]},
    "polars": lambda: pl.DataFrame(ROWS),
    "lazy": lambda: pl.LazyFrame(ROWS),
    "series": lambda: {name: pl.DataFrame(ROWS)[name] for name in ("question", "answer")},
}


@pytest.mark.parametrize("kind", MEMORY)
def test_a_table_in_memory(kind):
    table = table_of(MEMORY[kind]())
    assert (list(table.columns), list(table.rows)) == (["question", "answer"], ROWS)
    assert list(table.places) == ["row 1", "row 2"]


def test_a_pandas_frame_and_its_gaps():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"question": ["a?", "b?"], "answer": [4, None]})
    assert list(table_of(frame).rows) == [{"question": "a?", "answer": 4.0}, {"question": "b?", "answer": None}]


def test_an_arrow_table():
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert list(table_of(arrow.Table.from_pylist(ROWS)).rows) == ROWS


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (5, "a builtins.int is not a table of questions; expected a polars or pandas frame"),
        ("qa.csv", "a builtins.str is not a table of questions"),
        ([1], "row 1: is int; expected a polars"),
        ([], "table: the table has no rows"),
        ({"a": [1], "b": [1, 2]}, "the columns differ in length (a: 1, b: 2)"),
        ({"a": "text"}, "column 'a': is str; expected a list of its cells"),
    ],
)
def test_what_is_no_table_in_memory(source, wrong):
    with pytest.raises(InputError) as error:
        table_of(source)
    assert str(error.value).startswith(wrong)
