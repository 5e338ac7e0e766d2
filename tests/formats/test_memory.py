import json
import random
from datetime import date

import numpy as np
import pandas
import polars as pl
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.errors import InputError
from examples import examples

ROWS = [
    {"task": "a", "sample": 0, "reward": 1.0, "level": "easy"},
    {"task": "a", "sample": 1, "reward": 0.0, "level": "easy"},
    {"task": "b", "sample": 0, "reward": 0.5, "level": "hard"},
    {"task": "b", "sample": 1, "reward": None, "level": "hard"},
]
COLUMNS = {key: [row[key] for row in ROWS] for key in ROWS[0]}
INDEXED = pandas.DataFrame(COLUMNS).set_index(["task", "sample"])
IN_MEMORY = {
    "records": ROWS,
    "tuple of records": tuple(ROWS),
    "columns": COLUMNS,
    "columns of numpy": {**COLUMNS, "sample": np.array(COLUMNS["sample"])},
    "polars": pl.DataFrame(COLUMNS),
    "lazy": pl.DataFrame(COLUMNS).lazy(),
    "pandas": pandas.DataFrame(COLUMNS),
    "pandas with an index": INDEXED,
    "arrow": pyarrow.table(COLUMNS),
}


@pytest.mark.parametrize("source", IN_MEMORY.values(), ids=IN_MEMORY)
def test_what_is_in_memory_scores_as_the_same_lines_in_a_file(source, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    expected = calipers.score(path, ["mean_reward", "pass@1"], by="level")
    scored = calipers.score(source, ["mean_reward", "pass@1"], by="level")
    assert scored.groups == expected.groups
    assert scored["mean_reward"].value == 0.5
    assert scored.groups[0].ledger.outcomes == {"scored": 3, "missing": 1}


@pytest.mark.parametrize("source", IN_MEMORY.values(), ids=IN_MEMORY)
def test_read_takes_the_same(source):
    assert len(calipers.read(source)) == 4


def test_columns_say_what_a_table_calls_a_role():
    frame = pl.DataFrame({"id": ["a", "b"], "score": [1, 0]})
    assert calipers.score(frame, columns={"task": "id", "reward": "score"})["mean_reward"].value == 0.5


def test_nan_of_pandas_is_missing_and_nan_of_polars_is_a_number():
    columns = {"task": ["a", "b"], "reward": [1.0, float("nan")]}
    assert calipers.score(pandas.DataFrame(columns))["mean_reward"].value == 1.0
    assert calipers.read(pl.DataFrame(columns)).rewards["reward"].given.all()


@pytest.mark.parametrize("kind", ["Int64", "Float64", "boolean", "category", "string"])
def test_kinds_of_columns_that_only_pandas_has(kind):
    values = {"category": ["x", "y", None], "string": ["x", "y", None]}.get(kind, [1, 0, None])
    frame = pandas.DataFrame({"task": ["a", "b", "c"], "reward": [1, 0, 1], "more": pandas.array(values, dtype=kind)})
    table = calipers.read(frame, labels=["more"])
    assert table.labels["more"].code.tolist()[2] == -1


def test_values_of_other_libraries_in_records_are_numbers():
    records = [{"task": np.int64(7), "reward": np.float32(0.5), "when": date(2026, 1, 1), "tags": np.array([1, 2])}]
    assert calipers.score(records)["mean_reward"].value == 0.5


def inside_itself() -> dict:
    """An object that holds itself."""
    value = {}
    value["again"] = value
    return value


BAD = [
    ([{"task": "a", "reward": float("nan")}], r"records:row 1: NaN is not JSON"),
    ([{"task": "a", "reward": 1}, {"task": "b", "reward": "high"}], r'records:row 2: reward is "high"; expected a nu'),
    ([{"id": "a", "reward": 1}], r"records:row 1: no key 'task'; name it with --columns task=KEY \(keys here: id"),
    ({"task": ["a"], "reward": [1, 2]}, r"table: the columns differ in length \(task 1, reward 2\)"),
    ({"task": ["a"], "reward": "1"}, r"table: column 'reward' is not a list"),
    ({"task": ["a", "b"], "reward": [1, "x"]}, r"table: column 'reward' contains int and str"),
    (pl.DataFrame({"id": ["a"], "reward": [1]}), r"table: no column 'task'; name it with --columns task=KEY"),
    (pl.DataFrame({"task": ["a", None], "reward": [1, 1]}), r"table:row 2: task is missing"),
    (pl.DataFrame({"task": [], "reward": []}, schema={"task": str, "reward": float}), r"table: no rollouts"),
    (pandas.DataFrame([["a", 1, 2]], columns=["task", "reward", "reward"]), r"table: two columns have the same name"),
    (pandas.DataFrame({"task": ["a"]}, index=pandas.Index(["b"], name="task")), r"table: two columns have the same"),
    ({"task": ["a"], 1: [1], "1": [2]}, r"table: two columns have the same name"),
    ([ROWS[0], {"task": "a", ("x", "y"): 1}], r"records:row 2: cannot be written as JSON \(keys must be str"),
    ([{"task": "a", "metadata": inside_itself()}], r"records:row 1: cannot be written as JSON \(Circular reference"),
    (pl.Series([1, 0]), r"a polars.Series cannot be scored; expected paths, a table, records"),
    (pandas.Series([1, 0]), r"a pandas.Series cannot be scored"),
    (7, r"a builtins.int cannot be scored"),
    ([{"task": "a"}, [1, 0]], r"rewards: task 0 is "),
]


@pytest.mark.parametrize(("source", "message"), BAD)
def test_what_is_no_table_of_rollouts_is_refused_in_one_line(source, message):
    with pytest.raises(InputError, match=message) as caught:
        calipers.score(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (pl.Series([1, 2], dtype=pl.Duration("us")), ["0:00:00.000001", "0:00:00.000002"]),
        (pl.Series([b"\xff", b"b"]), ["b'\\xff'", "b'b'"]),  # not all of it is text
        (pl.Series([b"a", b"b"]), ["a", "b"]),
        (pl.Series([1, 2], dtype=pl.Int128), ["1", "2"]),
        (pl.Series([1, 2], dtype=pl.Time), ["00:00:00.000000001", "00:00:00.000000002"]),
    ],
)
def test_any_kind_of_column_is_a_label(values, names):
    frame = pl.DataFrame({"task": ["a", "b"], "reward": [1, 0], "x": values})
    assert list(calipers.score(frame, by="x").groups[0].breakdowns["x"]) == names


def test_a_tensor_of_several_numbers_is_a_list():
    class Tensor:
        """Like a tensor of torch: without a single item, `item` raises an error of another type."""

        def item(self):
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")

        def tolist(self):
            return [1, 2]

    table = calipers.read([{"task": "a", "reward": 1, "answer": Tensor()}], labels=["answer"])
    assert table.labels["answer"].values == [[1, 2]]


def test_a_list_of_lists_stays_rewards_by_task():
    assert calipers.score([[1, 0], [1, 1]])["mean_reward"].value == 0.75


# samples that nobody numbered


def test_repeats_that_nobody_numbered_are_refused_with_the_way_out(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("task,reward\na,1\na,0\nb,1\n")
    with pytest.raises(InputError, match=r"rows.csv:3: task 'a' sample 0 .* --columns sample=# numbers them in order"):
        calipers.score(path)
    scored = calipers.score(path, columns={"sample": "#"})
    assert scored["mean_reward"].value == 0.75
    assert scored.notes == ["samples are numbered in order of appearance, so a rollout that appears twice counts twice"]


def test_samples_that_somebody_numbered_are_not_told_to_be_numbered_again(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("task,sample,reward\na,1,1\na,1,0\n")
    with pytest.raises(InputError, match="give each rollout its own sample number") as caught:
        calipers.score(path)
    assert "#" not in str(caught.value)


def test_numbering_goes_on_from_file_to_file_and_apart_for_each_model(tmp_path):
    first, second = tmp_path / "1.jsonl", tmp_path / "2.csv"
    first.write_text('{"task": "a", "reward": 1, "model": "m"}\n{"task": "a", "reward": 1, "model": "n"}\n')
    second.write_text("task,reward,model\na,0,m\nb,0,m\na,0,\n")
    table = calipers.read([first, second], columns={"sample": "#"})
    told = {
        (key[1], part.tasks[t], s)
        for part in table.groups()
        for key in part.keys
        for t, s in zip(part.task, part.sample)
    }
    assert told == {("m", "a", 0), ("m", "a", 1), ("m", "b", 0), ("n", "a", 0), (None, "a", 0)}


def test_an_own_number_in_the_file_is_passed_over(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("task,sample,reward\na,7,1\na,7,0\n")
    assert calipers.read(path, columns={"sample": "#"}).sample.tolist() == [0, 1]


def test_a_retry_without_a_sample_number_cannot_be_numbered():
    rows = [{"task": "a", "attempt": 1, "reward": 0}, {"task": "a", "attempt": 2, "reward": 1}]
    with pytest.raises(InputError, match="records:row 2: an attempt, and samples without numbers"):
        calipers.score(rows, columns={"sample": "#"})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["m", "n", None])), min_size=1, max_size=40))
@examples(100)
def test_numbering_counts_each_task_of_each_model(rows):
    table = calipers.read([{"task": t, "model": m, "reward": 1} for t, m in rows], columns={"sample": "#"})
    count = {}
    for row in rows:
        count[row] = count.get(row, 0) + 1
    seen = {}
    for part in table.groups():
        for task, sample in zip(part.task, part.sample):
            seen.setdefault((part.tasks[task], part.keys[0][1]), []).append(int(sample))
    assert seen == {row: list(range(size)) for row, size in count.items()}


# dotted paths and words


def test_paths_reach_inside_lines_and_arrays(tmp_path):
    rows = [{"doc": {"id": "a"}, "runs": [{"ok": True}, {"ok": False}]}, {"doc": {"id": "b"}, "runs": [{"ok": False}]}]
    lines, array = tmp_path / "rows.jsonl", tmp_path / "rows.json"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    array.write_text(json.dumps(rows, indent=2))
    names = {"task": "doc.id", "reward": "runs.0.ok"}
    for source in (lines, array, rows):
        assert calipers.score(source, columns=names)["mean_reward"].value == 0.5
    assert calipers.score(lines, columns={**names, "reward": "runs.1.ok"}).groups[0].ledger.outcomes == {
        "scored": 1,
        "missing": 1,
    }


def test_a_key_with_a_dot_in_it_is_that_key():
    rows = [{"doc.id": "x", "doc": {"id": "y"}, "reward": 1}]
    assert calipers.read(rows, columns={"task": "doc.id"}).tasks == ["x"]


def test_a_path_that_leads_nowhere_is_refused():
    with pytest.raises(InputError, match=r"records:row 1: no key 'doc.id'"):
        calipers.score([{"doc": {}, "reward": 1}], columns={"task": "doc.id"})
    with pytest.raises(InputError, match=r"no row has 'doc.score'"):
        calipers.score([{"task": "a", "reward": 1}], columns={"reward": "doc.score"})


WORDS = {"yes": 1, "no": 0}


@pytest.mark.parametrize(
    "text",
    [
        '{"task": "a", "ok": "Yes"}\n{"task": "b", "ok": " no "}\n{"task": "c", "ok": null}\n',
        "task,ok\na,Yes\nb,no\nc,\n",
    ],
)
def test_words_are_rewards_where_the_user_says_which(text, tmp_path):
    path = tmp_path / "rows"
    path.write_text(text)
    scored = calipers.score(path, columns={"reward": "ok"}, truth=WORDS)
    assert scored["mean_reward"].value == 0.5
    assert scored.groups[0].ledger.outcomes == {"scored": 2, "missing": 1}


def test_numbers_stay_numbers_beside_words():
    rows = [{"task": "a", "reward": "yes"}, {"task": "b", "reward": 0.5}, {"task": "c", "reward": False}]
    assert calipers.score(rows, truth=WORDS)["mean_reward"].value == 0.5
    frame = pl.DataFrame({"task": ["a", "b"], "reward": ["yes", "0.5"]})
    assert calipers.score(frame, truth=WORDS)["mean_reward"].value == 0.75


@pytest.mark.parametrize("source", [[{"task": "a", "reward": "maybe"}], {"task": ["a"], "reward": ["maybe"]}])
def test_a_word_that_nobody_explained_is_refused(source):
    with pytest.raises(InputError, match=r'row 1: reward is "maybe"; expected a number.* of --truth: yes, no'):
        calipers.score(source, truth=WORDS)


@pytest.mark.parametrize("source", [[{"task": "a", "reward": "Pass"}], {"task": ["a"], "reward": ["Pass"]}])
def test_the_message_about_a_word_names_the_option(source):
    with pytest.raises(InputError, match=r"words become rewards with --truth pass=1,fail=0"):
        calipers.score(source)


def test_words_are_read_in_every_process(tmp_path, monkeypatch):
    monkeypatch.setattr("calipers.formats.lines.WORTH_DIVIDING", 1000)
    monkeypatch.setattr("calipers.formats.lines.processes", lambda: 3)
    rows = [{"doc": {"id": f"t{n}"}, "ok": random.Random(n).choice(["yes", "no"])} for n in range(600)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored = calipers.score(path, columns={"task": "doc.id", "reward": "ok"}, truth=WORDS)
    assert scored["mean_reward"].value == pytest.approx(sum(row["ok"] == "yes" for row in rows) / 600)


# no reward at all


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            ["id", "is_correct", "score"],
            r"reward=score \(keys here: is_correct, score; score and is_correct look like a reward",
        ),
        (["id", "tokens"], r"reward=KEY \(keys here: tokens\)"),
    ],
)
def test_rows_without_a_reward_are_told_which_keys_look_like_one(keys, message, tmp_path):
    rows = [dict.fromkeys(keys, 1)]
    path = tmp_path / "rows.csv"
    path.write_text(",".join(keys) + "\n" + ",".join("1" for _ in keys) + "\n")
    for source in (rows, path):
        with pytest.raises(InputError, match="no row has a reward; name it with --columns " + message):
            calipers.score(source, columns={"task": "id"})


def test_rows_that_say_what_became_of_them_need_no_reward():
    rows = [{"task": "a", "outcome": "client_failed", "tokens": 3}]
    assert calipers.score(rows).groups[0].ledger.outcomes == {"client_failed": 1}


def test_a_metric_of_another_column_needs_no_reward():
    assert calipers.score([{"task": "a", "tokens": 3}], "mean(column=tokens)")["mean(column=tokens)"].value == 3
