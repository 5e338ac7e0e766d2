"""EvSys' metrics: their golden cases through the classes and the dialect, and Calipers' own numbers beside them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.errors import InputError, UnknownName
from calipers.systems.evsys.lent import get_metric, list_metrics
from calipers.systems.evsys.metrics import EVSYS, PASS_THRESHOLD

NAN = math.nan
NAMES = ["mean_reward", "pass_rate", "pass@1", "pass@3", "pass^3"]

GOLDEN = {
    "four tasks of three": ([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], [0.5, 0.5, 0.75, 0.75, 0.25]),
    "no tasks": ([], [0, 0, 0, 0, 0]),
    "an empty task": ([[]], [0, 0, 0, 0, 0]),
    "an empty task between two": ([[1], [], [0]], [0.5, 0.5, 0.5, 0.5, 0.5]),
    "fewer than k": ([[1], [0]], [0.5, 0.5, 0.5, 0.5, 0.5]),
    "half rewards": ([[0.5, 0.5], [1, 1]], [0.75, 0.5, 0.5, 0.5, 0.5]),
    "no tolerance": ([[0.9999999]], [0.9999999, 0, 0, 0, 0]),
    "a reward of 2": ([[2, 0]], [1.0, 0.5, 1, 1, 0]),
    # the fourth sample only counts in the first two metrics
    "more than k": ([[0, 0, 0, 1], [1, 1, 1, 0]], [0.5, 0.5, 0.5, 0.5, 0.5]),
    "unlike numbers of samples": ([[1, 1], [0]], [0.5, 0.6666666666666666, 0.5, 0.5, 0.5]),
    "four samples beside one": ([[1, 1, 1, 1], [0]], [0.5, 0.8, 0.5, 0.5, 0.5]),
    "a negative reward": ([[-1, 1]], [0.0, 0.5, 0, 1, 0]),
    "NaN": ([[NAN, 1]], [NAN, 0.5, 0, 1, 0]),
    "two of three samples": ([[1, 1], [1, 0]], [0.75, 0.75, 1, 1, 0.5]),
    "no pass at all": ([[0.3, 0.3, 0.3], [0.7]], [0.5, 0, 0, 0, 0]),
}

# Calipers' own numbers: pass@k and pass^k are unbiased estimates from all samples, a task with
# fewer than k samples has no value, and nothing is None. The other two columns agree.
NATIVE = {
    "four tasks of three": [0.5, 0.75, 0.25],
    "no tasks": [None, None, None],
    "an empty task": [None, None, None],
    "an empty task between two": [0.5, None, None],
    "fewer than k": [0.5, None, None],
    "half rewards": [0.5, None, None],
    "no tolerance": [0, None, None],
    "a reward of 2": [0.5, None, None],
    "more than k": [0.5, 0.875, 0.125],
    "unlike numbers of samples": [0.5, None, None],
    "four samples beside one": [0.5, 1, 1],  # the task with one sample is undefined, and counted as undefined
    "a negative reward": [0.5, None, None],
    "NaN": [0.5, None, None],
    "two of three samples": [0.75, None, None],
    "no pass at all": [0, 0, 0],
}

cases = pytest.mark.parametrize("case", GOLDEN)


def same(values):
    return pytest.approx(values, rel=0, abs=1e-12, nan_ok=True)


@cases
def test_the_dialect_gives_evsys_numbers(case):
    rewards, expected = GOLDEN[case]
    result = calipers.score(rewards, [*NAMES, "avg"], dialect="evsys")
    assert [result[name].value for name in NAMES] == same(expected)
    assert result["avg"].value == same(expected[0])


@cases
def test_the_classes_give_evsys_numbers(case):
    rewards, expected = GOLDEN[case]
    assert [get_metric(name)().compute(rewards) for name in NAMES] == same(expected)
    assert get_metric("avg")().compute(rewards) == same(expected[0])


@cases
def test_both_doors_agree_to_the_last_digit(case):
    rewards, _ = GOLDEN[case]
    result = calipers.score(rewards, NAMES, dialect="evsys")
    assert [str(result[name].value) for name in NAMES] == [str(get_metric(name)().compute(rewards)) for name in NAMES]


@cases
def test_the_native_numbers_beside_them(case):
    rewards, expected = GOLDEN[case]
    result = calipers.score(rewards, NAMES, threshold=1)  # one case has rewards above 1
    plain = [result[name].value for name in NAMES[:2]]
    assert plain == (same(expected[:2]) if any(rewards) else [None, None])
    for name, value in zip(NAMES[2:], NATIVE[case], strict=True):
        assert result[name].value == (None if value is None else same(value))
        assert (result[name].why is None) or result[name].interval is None


@pytest.mark.parametrize(
    ("rewards", "name", "value", "why"),
    [
        ([[NAN, 1]], "mean_reward", None, "1 reward is NaN"),
        ([[NAN, 1], [NAN, NAN]], "mean_reward", None, "3 rewards are NaN"),
        ([], "mean_reward", 0.0, "no task has a value"),
        ([[]], "pass@3", 0.0, "no task has a value"),
    ],
)
def test_what_stands_in_the_json(rewards, name, value, why):
    result = calipers.score(rewards, name, dialect="evsys")
    found = json.loads(result.to_json())["groups"][0]["metrics"][name]
    assert (found["value"], found["why"], found["interval"]) == (value, why, None)


def test_one_string_is_one_metric():  # EvSys looks up 'a', 'v' and 'g'
    assert list(calipers.score([[1], [0]], "avg", dialect="evsys").groups[0].metrics) == ["avg"]
    with pytest.raises(UnknownName, match=r"^no metric named 'avg'; it is a name of --dialect evsys$"):
        calipers.score([[1], [0]], "avg")


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_nothing_asked_for_is_the_default(nothing):
    result = calipers.score([[1], [0]], nothing, dialect="evsys")
    assert {name: found.value for name, found in result.groups[0].metrics.items()} == {
        "mean_reward": 0.5,
        "pass_rate": 0.5,
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "pass@5",
            "no evsys metric named 'pass@5'; it is a native name: did you mean 'pass@3' or 'pass^3', or --dialect",
        ),
        ("pas_rate", "no evsys metric named 'pas_rate'; did you mean 'pass_rate'?"),
        ("solved_rate", "no evsys metric named 'solved_rate'; it is a native name: "),
        ("percentile", "no evsys metric named 'percentile'; it is a native name: use --dialect native"),
        ("zzz", "no evsys metric named 'zzz'; known: avg, mean_reward, pass@1, pass@3, pass^3, pass_rate"),
        (
            "pass@3(threshold=0.5)",
            "metric 'pass@3(threshold=0.5)': evsys's metrics take no parameters; expected pass@3",
        ),
    ],
)
def test_an_unknown_metric_is_an_error_before_anything_is_read(name, said):
    with pytest.raises(InputError) as caught:
        calipers.score("no_such_file.json", ["avg", name], dialect="evsys")
    assert str(caught.value).startswith(said)


def test_a_number_says_which_definition_made_it():
    result = calipers.score([[1, 0]], ["pass@3"], dialect="evsys")
    assert result["pass@3"].signature.startswith("any_of_first_{k}|k:3|")
    assert "|dialect:evsys|" in result["pass@3"].signature


def test_slices_are_named_as_evsys_names_them(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    values = [None, 1, 1.0, "1", [1, "a"], True]
    rows = [{"task": str(n), "reward": 1, "metadata": {"key": value}} for n, value in enumerate(values)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"task": "x", "reward": 0}]))
    (group,) = calipers.score(path, "avg", by="key", dialect="evsys").groups
    counts = {name: part.ledger.tasks for name, part in group.breakdowns["key"].items()}
    assert counts == {"None": 1, "1": 2, "1.0": 1, "[1, 'a']": 1, "True": 1, "__missing__": 1}


def test_the_table_names_what_exists():
    assert sorted(EVSYS.metrics) == ["avg", "mean_reward", "pass@1", "pass@3", "pass^3", "pass_rate"]
    for name in EVSYS.metrics:
        assert calipers.score([[1]], name, dialect="evsys")[name].value == 1.0


def test_the_threshold_is_one():
    assert PASS_THRESHOLD == 1.0


# The rules of EvSys' Metrics page, implemented again without any of Calipers' code.
def passing(rewards):
    return [reward >= 1.0 for reward in rewards]


def mean_reward(tasks):
    tasks = [rewards for rewards in tasks if rewards]
    return math.fsum(math.fsum(rewards) / len(rewards) for rewards in tasks) / len(tasks) if tasks else 0.0


def pass_rate(tasks):
    pooled = [reward for rewards in tasks for reward in rewards]
    return sum(passing(pooled)) / len(pooled) if pooled else 0.0


def share(tasks, k, holds):
    tasks = [rewards for rewards in tasks if rewards]
    return sum(holds(passing(rewards[:k])) for rewards in tasks) / len(tasks) if tasks else 0.0


REBUILT = {
    "avg": mean_reward,
    "mean_reward": mean_reward,
    "pass@1": lambda tasks: share(tasks, 1, any),
    "pass@3": lambda tasks: share(tasks, 3, any),
    "pass^3": lambda tasks: share(tasks, 3, all),
    "pass_rate": pass_rate,
}

reward = st.one_of(
    st.sampled_from([0, 1, True, 0.0, 1.0, 2.0, -1.0, 0.5, 0.9999999, math.nan, math.inf]),
    st.floats(-1e6, 1e6),
    st.integers(-5, 5),
)


@given(st.lists(st.lists(reward, max_size=6), max_size=8))
def test_every_class_follows_the_rules(tasks):
    for name in list_metrics():
        found = get_metric(name)().compute(tasks)
        assert type(found) is float
        assert found == pytest.approx(REBUILT[name](tasks), rel=1e-12, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", REBUILT)
def test_anything_that_can_be_walked_will_do(name):
    metric = get_metric(name)()
    expected = metric.compute([[1, 0], [1], []])
    assert metric.compute(((1, 0), (1,), ())) == expected
    assert metric.compute(iter([iter([1, 0]), iter([1]), iter([])])) == expected
    assert metric.compute([np.array([1.0, 0.0]), np.array([1]), np.array([])]) == expected


def test_a_row_of_numpy_that_holds_a_zero_is_a_task():
    """EvSys tests the truth value of such a row, and drops it as empty."""
    assert get_metric("mean_reward")().compute([np.array([0.0]), np.array([1.0])]) == 0.5


@pytest.mark.parametrize("name", REBUILT)
@pytest.mark.parametrize("bad", [None, "1", [1]])
def test_what_is_no_number_is_a_type_error(name, bad):
    with pytest.raises(TypeError):
        get_metric(name)().compute([[1.0], [bad]])
