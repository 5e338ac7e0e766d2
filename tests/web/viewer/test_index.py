"""The index of a log: positions and numbers of its rollouts; saved, extended and rebuilt; never an incomplete line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers
from calipers.errors import InputError
from calipers.web.viewer import index as indexing
from calipers.web.viewer.index import (
    SUFFIX,
    LogIndex,
    LogState,
    build,
    current_index,
    extend,
    has_grown,
    is_fresh,
    load_index,
)
from calipers.web.viewer.library import sources
from calipers.web.viewer.rollouts import lines_of
from calipers.web.viewer.summary import runs_in

ARITH = str(os.path.join(os.path.dirname(calipers.__file__), "examples", "arith.jsonl"))


def log(path, rows, end="\n"):
    path.write_text("\n".join(json.dumps(row) for row in rows) + end)
    return str(path)


def rows_of(count, **more):
    return [{"task": f"t{at // 2}", "sample": at % 2, "reward": at % 3 == 0, **more} for at in range(count)]


def described(index):
    """The content of an index as plain values."""
    return {
        "tasks": [index.name(int(code)) for code in index.columns["task"]],
        "lines": index.columns["line"].tolist(),
        "sample": index.columns["sample"].tolist(),
        "reward": np.where(
            index.number("reward", "reward").given, index.number("reward", "reward").values, -1
        ).tolist(),
        "texts": [line.decode() for line in lines_of(index, range(len(index)))],
        "current": index.current().tolist(),
        "before_answer": [] if (lost := index.part().before_answer) is None else lost.tolist(),
        "groups": [index.groups[code] for code in index.columns["group"].tolist()],
        "slices": {
            key: [values[code] if code >= 0 else None for code in index.columns[f"slice:{key}"].tolist()]
            for key, values in index.slices.items()
        },
    }


def test_an_index_says_where_every_line_stands():
    index = build(ARITH)
    with open(ARITH) as file:
        lines = [line.rstrip("\n") for line in file]
    assert described(index)["texts"] == lines
    assert described(index)["tasks"] == [json.loads(line)["task"] for line in lines]
    assert index.slices == {"difficulty": ["easy", "hard"]}
    assert index.groups == [(None, "tiny-calculator", "arith")]


RECORD = st.fixed_dictionaries(
    {"task": st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=8)},
    optional={
        "sample": st.integers(0, 3),
        "reward": st.floats(0, 1) | st.none(),
        "model": st.sampled_from(["a", "b"]),
        "completion": st.text(st.characters(codec="utf-8"), max_size=20),
        "error": st.fixed_dictionaries({"before_answer": st.booleans()}),
        "metadata": st.fixed_dictionaries({}, optional={"kind": st.sampled_from(["x", "y"])}),
    },
)


@settings(deadline=None, max_examples=60)
@given(
    records=st.lists(RECORD, min_size=1, max_size=12), cut=st.integers(0, 12), blank=st.booleans(), crlf=st.booleans()
)
def test_an_extended_index_is_the_one_that_is_built_at_once(tmp_path_factory, records, cut, blank, crlf):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    end = b"\r\n" if crlf else b"\n"
    lines = [json.dumps(record, ensure_ascii=False).encode() + end + (end if blank else b"") for record in records]
    path.write_bytes(b"".join(lines[:cut]))
    first = build(str(path))
    with open(path, "ab") as file:
        file.write(b"".join(lines[cut:]))
    second, whole = extend(first), build(str(path))
    found, expected = described(second), described(whole)
    found.pop("slices"), expected.pop("slices")  # they are those of the beginning
    assert found == expected
    assert [json.loads(text) for text in found["texts"]] == records


def test_chunks_of_a_log_are_one_index(tmp_path, monkeypatch):
    path = log(tmp_path / "log.jsonl", rows_of(400, completion="x" * 500, model="m"))
    whole = described(build(path))
    monkeypatch.setattr(indexing, "CHUNK", 10_000)  # a limit that no test would reach
    assert described(build(path)) == whole


def test_a_torn_line_is_not_there_until_it_is_whole(tmp_path):
    path = tmp_path / "log.jsonl"
    log(path, rows_of(3))
    whole = json.dumps({"task": "late", "completion": "a\nb", "reward": 1})
    index = build(str(path))
    for size in range(1, len(whole)):
        path.write_text("\n".join(json.dumps(row) for row in rows_of(3)) + "\n" + whole[:size])
        assert len(build(str(path))) == 3
        assert len(extend(index)) == 3
    path.write_text("\n".join(json.dumps(row) for row in rows_of(3)) + "\n" + whole)
    assert described(build(str(path)))["tasks"][-1] == "late"  # an object is complete without its newline, too


def test_a_line_that_is_no_rollout_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"task": "a", "reward": 1}\n{"task": "b", "reward": "high"}\n{"task": "c", "reward": 1}\n')
    with pytest.raises(InputError, match=r"log.jsonl:2: reward is"):
        build(str(path))


def test_the_last_attempt_is_current(tmp_path):
    rows = [{"task": "a", "sample": 0, "attempt": at, "reward": at - 1} for at in (1, 2)] + [{"task": "b", "reward": 0}]
    assert described(build(log(tmp_path / "log.jsonl", rows)))["current"] == [False, True, True]


def test_an_index_is_kept_beside_its_log_and_found_again(tmp_path):
    path = log(tmp_path / "log.jsonl", rows_of(50, model="m", metadata={"kind": "x"}))
    index = build(path)
    index.save(path + SUFFIX)
    loaded = load_index(path, path + SUFFIX)
    assert loaded is not None
    assert described(loaded) == described(index)
    assert is_fresh(loaded, LogState.of(path))
    assert [name for name in os.listdir(tmp_path) if name.endswith(".part")] == []


@pytest.mark.parametrize("damage", ["cut", "magic", "header", "empty", "rows"])
def test_a_damaged_index_is_not_used(tmp_path, damage):
    path = log(tmp_path / "log.jsonl", rows_of(50))
    target = path + SUFFIX
    build(path).save(target)
    data = bytearray(Path(target).read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "magic":
        data[0] ^= 1
    elif damage == "header":
        data[40] = 0
    elif damage == "rows":
        data = bytearray(bytes(data).replace(b'"rows":50', b'"rows":49'))
    else:
        data = bytearray()
    Path(target).write_bytes(data)
    assert load_index(path, target) is None


def test_a_changed_log_is_indexed_again(tmp_path, monkeypatch):
    monkeypatch.setattr("calipers.web.viewer.index.KEPT_FROM", 1)
    path = tmp_path / "log.jsonl"
    log(path, rows_of(40))
    [source], _ = sources([str(path)])
    first = current_index(source)
    assert os.path.exists(str(path) + SUFFIX)
    assert len(current_index(source)) == 40
    log(path, rows_of(60))  # the same file, more lines
    assert has_grown(first)
    assert len(current_index(source)) == 60
    rows = rows_of(60)
    rows[30]["reward"] = 0.5
    os.unlink(path)
    log(path, rows)  # another file of the same name
    changed = current_index(source)
    assert changed.number("reward", "reward").values[30] == 0.5


def test_an_index_lies_in_the_cache_where_the_folder_is_not_writable(tmp_path, monkeypatch):
    monkeypatch.setattr("calipers.web.viewer.index.KEPT_FROM", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "log.jsonl"
    log(path, rows_of(40))
    (tmp_path / f"log.jsonl{SUFFIX}").mkdir()  # nobody can replace a folder by a file, not even root
    (tmp_path / f"log.jsonl{SUFFIX}" / "x").write_text("")
    [source], _ = sources([str(path)])
    assert len(current_index(source)) == 40
    assert [*(tmp_path / "cache" / "calipers" / "view" / source.id).iterdir()]


@pytest.mark.parametrize("name", ["arith.jsonl", "arith_next.jsonl"])
def test_numbers_from_an_index_are_those_of_a_score(name):
    path = os.path.join(os.path.dirname(ARITH), name)
    [source], _ = sources([path])
    [run] = runs_in(source, current_index(source))
    result = calipers.score(path, list(run.group.metrics))
    for metric, estimate in run.group.metrics.items():
        assert (estimate.value, estimate.interval, estimate.bounds) == (
            result[metric].value, result[metric].interval, result[metric].bounds,
        )  # fmt: skip
    assert run.group.ledger == result.groups[0].ledger


def test_an_empty_log_has_an_empty_index(tmp_path):
    (tmp_path / "log.jsonl").write_text("")
    index = build(str(tmp_path / "log.jsonl"))
    assert isinstance(index, LogIndex)
    assert len(index) == index.tasks == 0


def test_slices_stand_in_the_order_of_the_log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(f'{{"task":"{n}","reward":1,"metadata":{{"z":"{n % 2}","a":"{n % 2}"}}}}\n' for n in range(9))
    )
    assert list(build(str(path)).slices) == ["z", "a"]
