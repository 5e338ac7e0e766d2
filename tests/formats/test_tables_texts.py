"""What the rows of CSV and Parquet files say."""

from __future__ import annotations

import gzip
import io
from datetime import date

import polars as pl
import pytest
from formats.given import written

from calipers.errors import InputError
from calipers.formats import tables
from calipers.formats.tables import texts

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
    """A file of one of both kinds, its kind and its path."""
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
    assert answers(found) == [("1", 0, date(2026, 1, 2), None)]  # bytes say nothing


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
