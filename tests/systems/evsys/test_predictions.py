import json
import math

import numpy as np
import polars as pl
import pytest
from formats.given import refused, seen, written

import calipers
from calipers.errors import InputError
from calipers.formats.read import read
from calipers.formats.rewards import from_rewards
from calipers.formats.source import LONGEST_LINE
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.table import assemble

NAN, INF = math.nan, math.inf


def rewards(table):
    """The rewards of each task, None for a gap."""
    column = table.rewards.get("reward")
    lists = [[] for _ in table.tasks]
    for row, task in enumerate(table.task.tolist()):
        lists[task].append(float(column.values[row]) if column is not None and column.given[row] else None)
    return lists


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[1,1,0],[1,0,0],[0,0,0],[1,1,1]]", [[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]]),
        ("[]", []),  # a set of no tasks is valid
        ("[[]]", [[]]),  # a task without rollouts is a task
        ("[[1],[],[0]]", [[1], [], [0]]),
        ("[[true,false]]", [[1, 0]]),
        ("[[null,1],[null]]", [[None, 1], [None]]),
        ("[[NaN,1],[Infinity,-Infinity]]", [[NAN, 1], [INF, -INF]]),  # as Python writes them
        ("\ufeff \n[\r\n [0.5, 1e-3],\n [-1]\n]\n\n", [[0.5, 0.001], [-1]]),
    ],
)
def test_rewards_are_numbered_by_their_place(tmp_path, text, expected):
    table, inputs = read([written(tmp_path, text, "rewards.txt")])
    assert inputs[0].format == "evsys_rewards"
    assert inputs[0].rollouts == sum(map(len, expected))
    assert list(table.tasks) == [str(task) for task in range(len(expected))]
    assert repr(rewards(table)) == repr([[None if v is None else float(v) for v in task] for task in expected])
    assert Ledger.of(table).gaps == sum(task.count(None) for task in expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[1],[0,"x"]]', ': task 1 sample 1 is "x"; expected a number'),
        ("[[1],[],[[2]]]", ": task 2 sample 0 is [2]; expected a number"),
        ("[[NaN,{}]]", ": task 0 sample 1 is {}; expected a number"),
        ("[[1e400]]", ': task 0 sample 0 is "1e400"; expected a number'),  # out of range, unlike Infinity
        ("[[0,1" + "0" * 400 + "]]", ': task 0 sample 1 is "1000'),
        ("[[0,1" + "0" * 5000 + "]]", ': task 0 sample 1 is "1000'),
        ("[[1],2]", ": task 1 is 2; expected a list with a list of rewards for each task"),
        ("[1,2]\n[3]", ":2: not JSON (Extra data"),
        ('[[1],{"task":1}]', ': task 1 is {"task": 1}; expected a list with a list of rewards for each task'),
        ("[[1],\n[0", ":2: not JSON (Expecting ',' delimiter"),
        ("[[1]] [[2]]", ":1: not JSON (Extra data"),
        ("[" * 100_000 + "]" * 100_000, ": it is nested too deeply"),
        ("[[" + "[" * 900 + "]" * 900 + "]]", ": "),
    ],
)
def test_anything_but_a_number_is_refused_with_its_task_and_sample(tmp_path, text, expected):
    assert refused(written(tmp_path, text)).startswith(expected)


def test_latin_1_is_refused(tmp_path):
    assert refused(written(tmp_path, b'[[1],\n["\xe9"]]')).startswith(":2: a byte is not UTF-8")


def test_two_files_of_rewards_are_the_same_tasks_twice(tmp_path):
    first, second = written(tmp_path, "[[1]]", "a"), written(tmp_path, "[[0, 1]]", "b")
    text = refused(first, second)
    assert text.startswith(f":reward 1: task '0' sample 0 attempt 1 appears twice, first at {first}:reward 1")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1, 0.5], [True]], [[1.0, 0.5], [1.0]]),
        (((1,), ()), [[1.0], []]),
        (np.array([[1, 0], [0, 1]]), [[1.0, 0.0], [0.0, 1.0]]),
        ([np.array([1.5], dtype=np.float32), [np.bool_(True), np.int8(2)]], [[1.5], [1.0, 2.0]]),
        ([[None, NAN]], [[None, NAN]]),
        ([range(3)], [[0.0, 1.0, 2.0]]),
        ([], []),
    ],
)
def test_rewards_from_python(rows, expected):
    assert repr(rewards(assemble([from_rewards(rows)]))) == repr(expected)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (7, "rewards: it is 7; expected a list with a list of rewards"),
        ({"a": [1]}, 'rewards: it is {"a": [1]}; expected a list'),
        ([1, 0], "rewards: task 0 is 1; expected a list"),
        (["10"], 'rewards: task 0 is "10"; expected a list'),
        ([[1], ["1"]], 'rewards: task 1 sample 0 is "1"; expected a number'),
        ([[1j]], 'rewards: task 0 sample 0 is "1j"; expected a number'),
        ([[10**400]], "rewards: task 0 sample 0 is 1000"),
    ],
)
def test_python_rewards_that_are_none(rows, expected):
    with pytest.raises(InputError) as caught:
        from_rewards(rows)
    assert str(caught.value).startswith(expected)


ROLLOUT = {
    **{"kind": "eval", "eval_id": "arith", "task_id": "t1", "sample_idx": 2, "step": None, "instruction": "2+2?"},
    **{"expected": "4", "reward": 1.0, "completion_token_ids": [1, 2]},
    "metadata": {"difficulty": "easy", "latency_s": 0.5, "prompt_tokens": 10, "completion_tokens": 3},
}
IN_PROCESS = {
    "kind": "eval",
    "task_id": 7,
    "instruction": "q",
    "expected": 4,
    "reward": 0.5,
    "output": "5",
    "metadata": {},
}


def test_both_forms_of_prediction_rows(tmp_path):
    lines = "\n".join(map(json.dumps, [ROLLOUT, {**ROLLOUT, "sample_idx": 3, "metadata": None, "reward": None}]))
    table, inputs = read([written(tmp_path, lines)], labels=["difficulty"])
    assert inputs[0].format == "evsys_predictions"
    usage = {"latency_s": 0.5, "input_tokens": 10.0, "output_tokens": 3.0}
    scored = {"task": "t1", "sample": 2, "outcome": "scored", "dataset": "arith", "reward reward": 1.0}
    assert seen(table) == [
        scored | usage | {"label metadata.difficulty": "easy"},
        {"task": "t1", "sample": 3, "outcome": "missing", "dataset": "arith"},
    ]
    assert seen(read([written(tmp_path, json.dumps(IN_PROCESS))])[0]) == [
        {"task": "7", "sample": 0, "outcome": "scored", "reward reward": 0.5, "expected": 4.0}
    ]


def test_rows_of_several_steps_are_several_models(tmp_path):
    rows = [{**ROLLOUT, "step": step} for step in (0, 10, None)]
    table, _ = read([written(tmp_path, "\n".join(map(json.dumps, rows)))])
    assert [key[1] for key in table.keys] == [None, "step 0", "step 10"]


def test_metadata_that_only_looks_like_usage_stays_metadata(tmp_path):
    row = {**IN_PROCESS, "metadata": {"latency_s": "slow", "prompt_tokens": None}}
    table, _ = read([written(tmp_path, json.dumps(row))], labels=["latency_s"])
    assert "label metadata.latency_s" in seen(table)[0]
    assert "latency_s" not in table.columns


def test_usage_that_is_there_already_stays(tmp_path):
    row = {**ROLLOUT, "usage": {"latency_s": 9}, "model": "m", "step": 3}
    found = seen(read([written(tmp_path, json.dumps(row))])[0])[0]
    assert (found["latency_s"], found["model"]) == (9.0, "m")


@pytest.mark.parametrize("ends", ["}", " } \r", ',"usage":null}', ',"model":null }'])
def test_usage_and_the_step_are_added_however_the_row_ends(tmp_path, ends):
    line = '{"task_id":"a","sample_idx":0,"reward":1,"step":3,"metadata":{"latency_s":2}' + ends
    (found,) = seen(read([written(tmp_path, line)])[0])
    assert (found["latency_s"], found["model"]) == (2.0, "step 3")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"task_id":"b","rew', "not JSON (Unterminated string"),
        ('{"task_id":"b","reward":NaN}', "NaN is not JSON"),
        ('{"task_id":"b","reward":"high","metadata":{"latency_s":1}}', 'reward is "high"; expected a number or null'),
        ('{"task_id":null}', "task_id is null; expected text or an integer"),
        ('{"task_id":"b","sample_idx":-1}', "sample_idx is -1; expected an integer >= 0"),
        ('{"task":"b"}', "no key 'task_id'"),
        ('{"task_id":"b","metadata":[1]}', "metadata is [1]; expected an object"),
        ('{"task_id":"b","metadata":{"latency_s":1e400}}', "a number is out of range"),
        ('{"task_id":"b","step":1e400}', "a number is out of range"),
        ('{"task_id":"b","metadata":' + '{"x":' * 100_000 + "1" + "}" * 100_001, "it is nested too deeply"),
        ('{"task_id":"b"}{"task_id":"c"}', "two values on one line"),
        ('{"task_id":"b","reward":1,"reward":0,"metadata":{"latency_s":1}}', 'key "reward" appears twice'),
        ('{"task_id":"b","reward":1,"reward":0,"step":3,"model":null} ', 'key "reward" appears twice'),
        ('{"task_id":"a"}', "task 'a' sample 0 attempt 1 appears twice, first at "),
        ('{"task_id":"b","output":"' + "x" * LONGEST_LINE + '"}', "a line is longer than 64 MiB"),
    ],
)
def test_a_bad_prediction_row_is_named_in_its_own_words(tmp_path, line, expected):
    path = written(tmp_path, '{"task_id":"a","reward":1}\r\n\n' + line)
    assert refused(path).startswith(f":3: {expected}")


def test_other_keys_may_be_named_beside_theirs(tmp_path):
    path = written(tmp_path, '{"task_id":"a","score":1,"metadata":{}}')
    table, inputs = read([path], columns={"reward": "score"})
    assert inputs[0].format == "evsys_predictions"
    assert seen(table) == [{"task": "a", "sample": 0, "outcome": "scored", "reward reward": 1.0}]


@pytest.mark.parametrize(
    "source",
    [
        pl.Series([1.0, 0.5]),
        {1.0, 0.5},
        iter([[1.0]]),
    ],
)
def test_what_is_not_understood_is_refused(source):
    with pytest.raises(InputError, match="cannot be scored; expected paths, a table, records, a list of rewards"):
        calipers.score(source, "mean_reward")
