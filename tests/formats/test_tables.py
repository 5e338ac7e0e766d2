from __future__ import annotations

import csv
import datetime
import gzip
import io
import math
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import polars as pl
import pytest
import zstandard
from formats.given import refused, seen, written
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.formats import tables
from calipers.formats.read import read
from calipers.formats.tables import texts

BASE = {"sample": 0, "outcome": "missing"}


def rows_of(folder, content, **asked):
    return seen(read([written(folder, content, "rollouts.dat")], **asked)[0])


def parquet(frame: dict | pl.DataFrame, **options) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(frame).write_parquet(file, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task,reward\na,1\nb,2,3\n", ":3: a row of 3 cells; expected 2, as in the header"),
        ("task,reward\na,1\nb\n", ":3: a row of 1 cells; expected 2, as in the header"),
        ("id,reward\na,1\n", ":1: no column 'task'; name it with --columns task=KEY (columns here: id, reward)"),
        ("\n\nid\na\n", ":3: no column 'task'"),  # the header is the first line that is not blank
        ("task,x,x\na,1,2\n", ":1: column 'x' appears twice"),
        ("task,reward\n,1\n", ":2: task is missing; expected text or an integer"),
        ('task,reward\n"",1\n', ":2: task is missing"),  # quoted, but nothing in it
        ("task,reward\na,high\n", ':2: reward is "high"; expected a finite number, or an empty cell'),
        ("task,reward\na,NaN\n", ':2: reward is "NaN"; expected a finite number, or an empty cell'),
        ("task,reward\na,-inf\n", ':2: reward is "-inf"; expected a finite number'),
        ("task,reward\na,1e400\n", ':2: reward is "1e400"; expected a finite number'),
        ("task,reward\na,0x1\n", ':2: reward is "0x1"; expected a finite number'),
        ("task,reward\na,1_000\n", ':2: reward is "1_000"; expected a finite number'),
        ("task,rewards.x\na,high\n", ':2: rewards.x is "high"; expected a finite number'),
        ("task,usage.latency_s\na,high\n", ':2: usage.latency_s is "high"; expected a finite number'),
        ("task,x\na,1\nb,nan\n", ':3: x is "nan"; expected a finite number'),  # the column is otherwise numeric
        ("task,x\na,Infinity\nb,1\n", ':2: x is "Infinity"; expected a finite number'),
        ("task,x\na,1e400\nb,1\n", ':2: x is "1e400"; expected a finite number'),
        ("task,sample\na,-1\n", ':2: sample is "-1"; expected an integer >= 0'),
        ("task,sample\na,1.0\n", ':2: sample is "1.0"; expected an integer >= 0'),
        ("task,sample\na,9007199254740992\n", ":2: sample is 9007199254740992"),
        ("task,sample\na," + "9" * 30 + "\n", ':2: sample is "' + "9" * 30),
        ("task,attempt\na,0\n", ":2: attempt is 0; expected an integer >= 1"),
        ("task,outcome\na,scord\n", ':2: outcome is "scord"; expected one of scored, refused, '),
        ("task,outcome,reward\na,scored,\n", ":2: outcome is 'scored' but there is no reward"),
        ("task,rewards\na,{}\n", ':2: rewards is "{}"; expected a column for each key, such as rewards.accuracy'),
        ("task,reward,rewards.reward\na,1,\nb,1,1\n", ":3: reward appears twice in one row; expected it once"),
        ("task,reward\na,1\nb,1\na,1\n", ":4: task 'a' sample 0 attempt 1 appears twice, first at "),
        ('task,reward\na,"1\n', ":2: a quote is opened and never closed"),
        ('task,reward\na,1\n"b\nc""d\n', ":3: a quote is opened and never closed"),
        ('task,reward\na,1\nb"c,1\n', ":3: a quote inside a cell"),
        ('task,reward\n"a"b,1\n', ":2: a quote inside a cell"),
        ("task,reward\na,1\rb,1\n", ":2: a carriage return inside a line"),
        ("task,reward\ra,1\r", ":1: a carriage return inside a line"),
        ('"a\n",b\nx,1\n', ":1: no column 'task'; name it with --columns task=KEY (columns here: a, b)"),
        ('"a\nb"\nx\n', ":1: no column 'task'; name it with --columns task=KEY (columns here: \"a\\nb\")"),
        ('task,"rewards.a\nb"\nx,high\n', ':3: "rewards.a\\nb" is "high"'),  # an error is one line
        ("task,reward\n", ": no rollouts; expected at least one"),
        ("task;reward\na;1\n", ":1: no column 'task'; expected commas between columns, not \";\""),
        ("reward\ttask\n1\ta\n", ":1: no column 'task'; expected commas between columns, not \"\\t\""),
        ("hello world\n", ":1: no column 'task'"),
        ("task,reward\na,\0\n", ": is not a file of rollouts"),
        ("task,reward\n" + "a,1\n" * 99_999 + "a,\0\n", ":100001: a cell contains a NUL byte"),
    ],
)
def test_a_bad_csv_is_refused(tmp_path, text, expected):
    assert refused(written(tmp_path, text, "r.csv")).startswith(expected)


def test_the_line_of_a_record_counts_the_newlines_inside_quotes(tmp_path):
    text = 'task,note,reward\na,"one\ntwo\n\nthree",1\n\nb,"x\r\ny",1\nb,,1\n'
    path = written(tmp_path, text)
    assert refused(path).startswith(f":9: task 'b' sample 0 attempt 1 appears twice, first at {path}:7;")
    assert refused(written(tmp_path, text.replace("b,,1", "b,,x"))).startswith(':9: reward is "x"')


def test_lines_are_right_in_every_block_of_a_long_file(tmp_path):
    text = "task,note,reward\n" + "".join(f'{n},"{"x" * 90}\n",1\n' for n in range(200_000))
    assert len(text) > 2 * tables.CHUNK
    assert refused(written(tmp_path, text + "0,,1\n")).startswith(":400002: task '0' sample 0 attempt 1 appears twice")
    assert refused(written(tmp_path, text + "a,,x\n")).startswith(':400002: reward is "x"')


@pytest.mark.parametrize("where", ["read", "skipped"])
def test_latin_1_is_refused(tmp_path, where):
    text = "task,completion\na,b\né,x\n" if where == "read" else "task,completion\na,b\nx,é\n"
    assert refused(written(tmp_path, text.encode("latin-1"))).startswith(":3: a cell is not UTF-8")


def test_a_record_longer_than_any_rollout_is_refused(tmp_path, shorter_lines):
    text = 'task,note\na,b\nc,"\n' + "x" * shorter_lines
    assert refused(written(tmp_path, text + '"\n')).startswith(":3: a record is longer than 3 MiB")
    assert len(read([written(tmp_path, text[:-100] + '"\n')])[0]) == 2


def test_a_million_columns_are_refused_before_they_are_read(tmp_path):
    wrong = refused(written(tmp_path, "task,reward" + ",c" * 1_000_000 + "\n"))
    assert wrong.startswith(":1: it has 1,000,002 columns (maximum 100,000); expected a rollout per row")


@pytest.mark.parametrize(
    "text",
    [
        "task,sample,reward\na,0,1\na,1,0.5\nb,,\n",
        "\ufefftask,sample,reward\na,0,1\na,1,0.5\nb,,\n",
        "task,sample,reward\r\na,0,1\r\na,1,0.5\r\nb,,\r\n",
        "task,sample,reward\r\na,0,1\r\na,1,0.5\r\nb,,\r",  # the last newline is missing
        "\n\ntask,sample,reward\n\na,0,1\n\r\na,1,0.5\nb,,",
        '"task","sample","reward"\n"a","0","1"\n"a","1","0.5"\n"b","",""\n',
        " task , sample , reward \na, 0 , +1. \na,1,5e-1\nb, , \n",  # blanks around numbers and names
        "reward,task,sample\nTrue,a,0\n0.5,a,1\n,b,\n",  # as pandas writes booleans
        "task,sample,reward,\na,0,1,9\na,1,0.5,9\nb,,,9\n",  # a column without a name is nobody's
    ],
)
def test_the_same_csv_however_it_is_laid_out(tmp_path, text):
    assert rows_of(tmp_path, text) == [
        {"task": "a", "sample": 0, "outcome": "scored", "reward reward": 1.0},
        {"task": "a", "sample": 1, "outcome": "scored", "reward reward": 0.5},
        {"task": "b", **BASE},
    ]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_csv_is_a_csv(tmp_path, pack):
    path = written(tmp_path, pack(b"task,reward\na,1\n"), "r.bin")
    found, inputs = read([path])
    assert (len(found), inputs[0].format) == (1, "csv")
    assert refused(written(tmp_path, pack(b"task,reward\na,x\n"), "r.bin")).startswith(':2: reward is "x"')


def test_every_header_means_what_the_key_of_a_record_means(tmp_path):
    header = "task,sample,attempt,outcome,reward,rewards.style,usage.latency_s,output_tokens,agent,model,dataset"
    more = "answer,prompt,completion,error,metadata.difficulty,metadata.site.city,flag,count,word"
    text = f"{header},{more}\n7,1,2,refused,0,0.5,1.5,12,A,M,D,42,p,c,e,easy,Oslo,TRUE,3,three\n"
    labels = ["answer", "difficulty", "site.city", "word", "count"]
    assert rows_of(tmp_path, text, labels=labels) == [
        {
            **{"task": "7", "sample": 1, "outcome": "refused", "reward reward": 0.0, "reward style": 0.5},
            **{"latency_s": 1.5, "output_tokens": 12.0, "agent": "A", "model": "M", "dataset": "D"},
            **{"flag": 1.0, "count": 3.0, "label answer": "42", "label metadata.difficulty": "easy"},
            **{"label metadata.site.city": "Oslo", "label word": "three", "label count": "3"},
        }
    ]


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1", "", "2"], [1.0, None, 2.0]),
        (["true", "FALSE", "0.5"], [1.0, 0.0, 0.5]),
        (["1", "x", "2"], None),  # one word makes it a column of text
        (["1", "nan", "x"], None),  # ... and NaN one of its words
        (["", "", ""], None),
        (["1e5", ".5", "-0"], [1e5, 0.5, 0.0]),
        (["१", "२", "३"], None),  # digits, but not those of a number
    ],
)
def test_a_column_is_of_numbers_when_every_cell_is(tmp_path, cells, numbers):
    text = "task,x\n" + "".join(f"{n},{cell}\n" for n, cell in enumerate(cells))
    rows = rows_of(tmp_path, text, labels=["x"])
    assert [row.get("x") for row in rows] == (numbers or [None] * len(cells))
    assert [row.get("label x", "") for row in rows] == cells  # reachable as it was written, either way


def test_a_column_turns_out_to_be_text_or_to_hold_a_nan_late(tmp_path):
    text = "task,x,pad\n" + "".join(f"{n},1,{'x' * 200}\n" for n in range(100_000))
    assert len(text) > 2 * tables.CHUNK
    found, _ = read([written(tmp_path, text + "a,word,\n")])
    assert "x" not in found.columns
    assert refused(written(tmp_path, text + "a,NaN,\n")).startswith(':100002: x is "NaN"')


@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20))
def test_what_python_writes_as_csv_is_read_back(tmp_path_factory, rows):
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    kept = [("text " + text.replace("\0", "").encode(errors="ignore").decode(), number) for text, number in rows]
    writer.writerows([("task", "reward", "note"), *((n, number, text) for n, (text, number) in enumerate(kept))])
    found = rows_of(tmp_path_factory.getbasetemp(), file.getvalue(), labels=["note"])
    assert [(row.get("label note", ""), row["reward reward"]) for row in found] == kept


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ({"id": [1]}, ": no column 'task'; name it with --columns task=KEY (columns here: id)"),
        ({"task": [1.0]}, ": column 'task' is Float64; expected text or an integer"),
        ({"task": ["a", None]}, ":row 2: task is missing; expected text or an integer"),
        ({"task": [None, None]}, ":row 1: task is missing"),
        ({"task": ["a"], "reward": ["1"]}, ": column 'reward' is String; expected a number"),
        ({"task": ["a"], "rewards": [{"x": "1"}]}, ": column 'rewards.x' is String; expected a number"),
        ({"task": ["a"], "rewards": ["{}"]}, ": column 'rewards' is String; expected a column for each key"),
        (
            {"task": ["a"], "usage": [{"latency_s": [1]}]},
            ": column 'usage.latency_s' is List(Int64); expected a number",
        ),
        ({"task": ["a", "b"], "sample": [0, -1]}, ":row 2: sample is -1; expected an integer >= 0"),
        ({"task": ["a", "b"], "sample": [0.0, 0.5]}, ":row 2: sample is 0.5; expected an integer >= 0"),
        ({"task": ["a", "b"], "sample": [0.0, math.nan]}, ":row 2: sample is NaN; expected an integer >= 0"),
        ({"task": ["a"], "sample": [True]}, ": column 'sample' is Boolean; expected an integer >= 0"),
        ({"task": ["a"], "sample": [2**53]}, ":row 1: sample is 9007199254740992"),
        ({"task": ["a"], "sample": pl.Series([2**64 - 1], dtype=pl.UInt64)}, ":row 1: sample is 18446744073709551615"),
        ({"task": ["a"], "attempt": pl.Series([0], dtype=pl.Int8)}, ":row 1: attempt is 0; expected an integer >= 1"),
        ({"task": ["a"], "outcome": ["scord"]}, ':row 1: outcome is "scord"; expected one of scored, refused, '),
        ({"task": ["a"], "outcome": [1]}, ": column 'outcome' is Int64; expected one of scored, refused, "),
        ({"task": ["a"], "outcome": ["scored"]}, ":row 1: outcome is 'scored' but there is no reward"),
        ({"task": ["a"], "model": [1]}, ": column 'model' is Int64; expected text"),
        ({"task": [7, 8, 7]}, ":row 3: task '7' sample 0 attempt 1 appears twice, first at "),
        ({"task": ["a"], "reward": [1], "rewards": [{"reward": 1}]}, ":row 1: reward appears twice in one row"),
        ({"task": ["a"], "rewards.x": [1], "rewards": [{"x": 1}]}, ": column 'rewards.x' appears twice"),
        ({"task": pl.Series([], dtype=pl.String)}, ": no rollouts; expected at least one"),
    ],
)
def test_a_bad_parquet_is_refused(tmp_path, frame, expected):
    assert refused(written(tmp_path, parquet(frame), "r.parquet")).startswith(expected)


@pytest.mark.parametrize("cut", [4, 8, 50, 200, -4, -1])
def test_a_parquet_that_is_not_whole_is_refused(tmp_path, cut):
    whole = parquet({"task": list(range(1000)), "reward": [0.5] * 1000})
    assert refused(written(tmp_path, whole[:cut])).startswith(": cannot be read as Parquet (")


def test_a_gap_is_null_and_nan_is_a_number_somebody_sent(tmp_path):
    frame = {"task": ["a", "b", "c"], "reward": [math.nan, None, -math.inf], "x": [None, math.inf, math.nan]}
    found, _ = read([written(tmp_path, parquet(frame))])
    assert found.rewards["reward"].given.tolist() == [True, False, True]
    assert found.columns["x"].given.tolist() == [False, True, True]
    assert found.columns["x"].kept().tolist() == pytest.approx([math.inf, math.nan], nan_ok=True)


def test_every_kind_of_column_finds_its_place(tmp_path):
    frame = pl.DataFrame(
        {
            "task": pl.Series(["b", "a"], dtype=pl.Categorical),
            "sample": pl.Series([0.0, None]),  # what pandas makes of integers with a gap
            "outcome": pl.Series(["refused", None], dtype=pl.Enum(["refused", "scored"])),
            "reward": pl.Series([None, Decimal("0.25")], dtype=pl.Decimal(4, 2)),
            "rewards": [{"style": 1, "odd*name": True}, {"style": None, "odd*name": None}],
            "usage": [{"latency_s": 1.5}, None],
            "metadata": [{"difficulty": "easy", "site": {"city": "Oslo"}}, {"difficulty": None, "site": None}],
            "model": ["m", "m"],
            "prompt": ["skipped", "skipped"],
            "int": pl.Series([1, None], dtype=pl.Int8),
            "bool": [True, None],
            "*": [1, 2],
            "^.*$": [3, 4],
            "word": ["w", None],
            "day": [datetime.date(2024, 2, 29), None],
            "list": [[1, 2], None],
            "none": [None, None],
        }
    )
    labels = ["difficulty", "site.city", "site.none", "int", "bool", "word", "day", "list", "none"]
    assert rows_of(tmp_path, parquet(frame), labels=labels) == [
        {"task": "a", "sample": 0, "outcome": "scored", "model": "m", "reward reward": 0.25, "*": 2.0, "^.*$": 4.0},
        {
            **{
                "task": "b",
                "sample": 0,
                "outcome": "refused",
                "model": "m",
                "reward style": 1.0,
                "reward odd*name": 1.0,
            },
            **{"latency_s": 1.5, "int": 1.0, "bool": 1.0, "*": 1.0, "^.*$": 3.0},
            **{"label metadata.difficulty": "easy", "label metadata.site.city": "Oslo", "label int": "1"},
            **{"label bool": "true", "label word": "w", "label day": "2024-02-29", "label list": "[1,2]"},
        },
    ]


@pytest.mark.parametrize("kind", [pl.String, pl.Int64, pl.UInt32, pl.Categorical])
def test_ids_hold_across_batches_in_any_order(tmp_path, kind):
    rows = 300_000  # more than a batch
    order = pl.int_range(rows, eager=True).shuffle(seed=0)
    task = (order // 4 * 7).cast(pl.String).cast(kind) if kind != pl.UInt32 else (order // 4 * 7).cast(kind)
    frame = pl.DataFrame(
        {"task": task, "sample": order % 4, "reward": order.cast(pl.Float64), "word": order.cast(pl.String)}
    )
    found, inputs = read([written(tmp_path, parquet(frame, row_group_size=100_000))], labels=["word"])
    assert inputs[0].rollouts == rows
    assert found.rewards["reward"].values.tolist() == list(range(rows))
    assert found.tasks[:3] == ["0", "7", "14"]
    held = found.labels["word"]
    assert [held.values[code] for code in held.code[:5].tolist()] == ["0", "1", "2", "3", "4"]


def test_ids_far_apart_are_told_apart(tmp_path):
    ids = [-(2**63), 2**63 - 1, 0]
    assert sorted(read([written(tmp_path, parquet({"task": ids}))])[0].tasks) == sorted(map(str, ids))


@pytest.mark.parametrize(
    ("kind", "ids"),
    [
        (pl.Int8, range(-100, 101)),  # the largest less the lowest does not fit the type
        (pl.Int16, range(-20_000, 20_001)),
        (pl.UInt64, range(2**63 - 3, 2**63 + 3)),
    ],
)
def test_ids_of_few_bytes_that_lie_far_apart_are_told_apart(tmp_path, kind, ids):
    frame = pl.DataFrame({"task": pl.Series(list(ids), dtype=kind), "reward": [1.0] * len(ids)})
    table, _ = read([written(tmp_path, parquet(frame), "rollouts.parquet")])
    assert sorted(table.tasks) == sorted(map(str, ids))


def test_parquet_comes_from_standard_input_and_packed_too(tmp_path, monkeypatch):
    content = parquet({"task": ["a"], "reward": [1]})
    assert len(rows_of(tmp_path, gzip.compress(content))) == 1
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content))))
    assert seen(read(["-"])[0]) == [{"task": "a", "sample": 0, "outcome": "scored", "reward reward": 1.0}]


def test_a_name_with_signs_of_a_pattern_is_a_name(tmp_path):
    assert len(read([written(tmp_path, parquet({"task": ["a"]}), "run [1]*?.parquet")])[0]) == 1


def test_progress_of_parquet_ends_at_its_size(tmp_path):
    content, told = parquet({"task": list(range(1000))}), []
    read([written(tmp_path, content)], progress=lambda *so_far: told.append(so_far))
    assert told[-1] == (len(content), len(content))


@pytest.mark.parametrize("make", [lambda frame: pl.DataFrame(frame).write_csv().encode(), parquet])
def test_a_role_may_have_another_name(tmp_path, make):
    content = make({"prompt": ["a"], "task": [3], "score": [1], "tok": [5], "reward": [9]})
    asked = {"task": "prompt", "reward": "score", "output_tokens": "tok"}
    found, _ = read([written(tmp_path, content)], columns=asked)
    assert seen(found)[0]["reward reward"] == 1
    # what lost its meaning to another is a column as any other
    assert {key: column.values.tolist() for key, column in found.columns.items()} == {
        "output_tokens": [5],
        "reward": [9],
        "task": [3],
    }
    assert found.tasks == ["a"]
    assert refused(written(tmp_path, content), columns={**asked, "sample": "n"}).startswith(": no row has 'n'")


FRAME = pl.DataFrame(
    {
        "task": ["a", "a", "b", "c"],
        "sample": [1, 0, 0, 0],
        "reward": [1.0, 0.0, 1.0, 1.0],
        "prompt": ["q, a?", 'q, "a"?', None, "q\nc?"],
        "answer": ["4", None, None, None],
        "completion": ["so 4", "so 5", "so 6", "so 7"],
    }
)


def file_of(folder, kind, frame=FRAME):
    """A CSV or Parquet file: its kind and its path."""
    file = io.BytesIO()
    frame.write_csv(file) if kind == "csv" else frame.write_parquet(file)
    return kind, written(folder, file.getvalue(), f"rollouts.{kind}")


def prompts(found):
    return {one.task: one.prompt for one in reversed(found) if one.prompt is not None}


def answers(found):
    pairs = [(one.task, one.sample, one.answer, one.completion) for one in found]
    return sorted(pair for pair in pairs if pair[2:] != (None, None))


both = pytest.mark.parametrize("kind", ["csv", "parquet"])


@both
def test_prompts_of_all_and_answers_of_the_wanted(tmp_path, kind):
    found = list(texts(*file_of(tmp_path, kind), {}, {"a"}))
    assert prompts(found) == {"a": "q, a?", "c": "q\nc?"}  # an empty cell is none
    assert [said for said in answers(found) if said[0] == "a"] == [("a", 0, None, "so 5"), ("a", 1, "4", "so 4")]
    assert "b" not in {one.task for one in found}


@both
@pytest.mark.parametrize(
    "drop", [["prompt"], ["answer"], ["sample"], ["prompt", "answer", "completion"], ["answer", "completion"]]
)
def test_columns_that_are_not_there(tmp_path, kind, drop):
    found = list(texts(*file_of(tmp_path, kind, FRAME.drop(drop)), {}, {"b"}))
    assert bool(prompts(found)) == ("prompt" not in drop)
    expected = [] if "completion" in drop else [("b", 0, None, "so 6")]
    assert [said for said in answers(found) if said[0] == "b"] == expected


@both
def test_columns_by_other_names_and_names_given_away(tmp_path, kind):
    frame = FRAME.select(pl.col("task").alias("id"), "reward", pl.col("completion").alias("prompt"))
    path = file_of(tmp_path, kind, frame)
    assert answers(texts(*path, {"task": "id", "completion": "prompt"}, {"c"})) == [("c", 0, None, "so 7")]
    assert prompts(list(texts(*path, {"task": "id", "completion": "prompt"}, {"c"}))) == {}
    assert list(texts(*path, {"task": "prompt"}, {"so 7"})) == []  # no key is the prompt then


@both
def test_groups_are_told_apart_over_all_batches(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(tables, "BATCH", 2)
    rows = [{"task": 7, "model": model, "prompt": f"for {model}", "reward": 1} for model in ("m", "n", None) * 3]
    found = list(texts(*file_of(tmp_path, kind, pl.DataFrame(rows)), {}, ()))
    assert [(one.task, one.model, one.prompt) for one in found] == [
        ("7", "m", "for m"),
        ("7", "n", "for n"),
        ("7", None, "for None"),
    ]


def test_values_of_parquet_that_are_no_text(tmp_path):
    messages = [[{"role": "user", "content": "q?"}]]
    frame = pl.DataFrame({"task": [1], "prompt": messages, "answer": [date(2026, 1, 2)], "completion": [b"\0"]})
    found = list(texts(*file_of(tmp_path, "parquet", frame), {}, {"1"}))
    assert prompts(found) == {"1": messages[0]}
    assert answers(found) == [("1", 0, date(2026, 1, 2), None)]  # a column of bytes has no texts


def test_names_that_are_patterns_are_names(tmp_path):
    frame = pl.DataFrame({"task": ["a"], "*": ["star"], "^.*$": ["caret"]})
    path = file_of(tmp_path, "parquet", frame)
    assert answers(texts(*path, {"answer": "*", "completion": "^.*$"}, {"a"})) == [("a", 0, "star", "caret")]


def test_packed_files(tmp_path):
    for kind in ("csv", "parquet"):
        _, path = file_of(tmp_path, kind)
        packed = written(tmp_path, gzip.compress((tmp_path / f"rollouts.{kind}").read_bytes()), f"packed.{kind}")
        assert list(texts(kind, packed, {}, {"a"})) == list(texts(kind, path, {}, {"a"}))


def test_a_file_that_broke_since_its_numbers_were_read(tmp_path):
    _, path = file_of(tmp_path, "parquet")
    whole = (tmp_path / "rollouts.parquet").read_bytes()
    (tmp_path / "rollouts.parquet").write_bytes(whole[:-9])
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        list(texts("parquet", path, {}, {"a"}))
    with pytest.raises(InputError, match=r"rollouts.csv:2: a quote is opened and never closed"):
        list(texts("csv", written(tmp_path, 'task,prompt\na,"q', "rollouts.csv"), {}, {"a"}))
