import numpy as np
import pytest
from gym import row

from calipers.systems.nemo_gym import STATISTICS, aggregate
from calipers.systems.nemo_gym.row_builder import from_records


def described(*tasks, threads=False, monkeypatch=None):
    """The statistics of the key x per task, without missing ones; None is a rollout without x."""
    if threads:
        monkeypatch.setattr(aggregate, "WORTH_THREADS", 0)
    rows = [
        row(task, n, **({} if value is None else {"x": value}))
        for task, values in enumerate(tasks)
        for n, value in enumerate(values)
    ]
    table = from_records(rows)
    found = aggregate.per_task(aggregate.frame_of(table, np.arange(len(table))))["x"]
    return [
        {name: float(found.values[name][task]) for name in STATISTICS if found.given[name][task]}
        for task in range(len(tasks))
    ]


@pytest.mark.parametrize("threads", [False, True])
def test_each_task_for_itself(monkeypatch, threads):
    tasks = [(3, 1, 2), (4,), (None, 5), (float("nan"), 1.0, 2.0), (None, None), (True, False)]
    assert described(*tasks, threads=threads, monkeypatch=monkeypatch) == [
        {"mean": 2, "max": 3, "min": 1, "median": 2, "std": 1},
        {"mean": 4, "max": 4, "min": 4, "median": 4, "std": 0},  # one rollout has a standard deviation of 0
        {"mean": 5, "max": 5, "min": 5, "median": 5},  # two rollouts with one value have none
        {"mean": 1.5, "max": 2, "min": 1, "median": 1.5, "std": pytest.approx(0.5**0.5)},
        {},
        {"mean": 0.5, "max": 1, "min": 0, "median": 0.5, "std": pytest.approx(0.5**0.5)},
    ]


def test_sums_are_those_of_pandas_and_overflow_is_infinite():
    """The file agrees with NeMo Gym's to the last digit, so it has pandas' rounding errors; Calipers' means do not."""
    assert described((0.1,) * 10)[0] == {"mean": 0.1, "max": 0.1, "min": 0.1, "median": 0.1, "std": 0.0}
    assert described((1e16, 1.0, -1e16))[0]["mean"] == 0.0
    inf = float("inf")
    assert described((1e308, 1.7e308))[0] == {"mean": inf, "max": 1.7e308, "min": 1e308, "median": inf, "std": inf}


@pytest.mark.parametrize(
    ("rows", "integers"),
    [
        ([row(0, 0, 1, n=5), row(0, 1, 0, n=True)], True),
        ([row(0, 0, 1, n=5), row(0, 1, 0)], False),  # a gap turns a column into floats, and one such column all of them
        ([row(0, 0, 1.0, n=5)], False),
    ],
)
def test_extremes_are_integers_when_everything_is(rows, integers):
    table = from_records(rows)
    assert aggregate.frame_of(table, np.arange(len(table))).all_integers is integers


def test_keys_stand_as_a_walk_by_task_and_rollout_meets_them():
    rows = [row(1, 0, z=1), row(0, 1, y=1, x=1), row(0, 0, None, response={"usage": {"u": 1}}), row(0, 2, w=1)]
    table = from_records(rows)
    assert list(aggregate.frame_of(table, np.arange(len(table))).fields) == ["u", "reward", "y", "x", "w", "z"]
