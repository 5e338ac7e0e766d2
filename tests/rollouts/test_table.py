from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import rollouts

from calipers.errors import InputError
from calipers.formats.jsonl import JsonLines
from calipers.formats.rewards import from_rewards
from calipers.rollouts.table import assemble, order_of, paired, renumbered


def rows(table, key="reward"):
    return [(table.tasks[t], int(s), v) for t, s, v in zip(table.task, table.sample, table.rewards[key].values)]


def test_rows_stand_by_task_and_sample_whatever_their_order():
    table = rollouts(
        {"task": "b", "sample": 1, "reward": 3},
        {"task": "a", "sample": 0, "reward": 1},
        {"task": "b", "sample": 0, "reward": 2},
    )
    assert rows(table) == [("a", 0, 1), ("b", 0, 2), ("b", 1, 3)]


def test_numbered_tasks_stand_by_size_and_before_words():
    table = rollouts(*({"task": task, "reward": 0} for task in ["10", "x", 9, "a", 2]))
    assert list(table.tasks) == ["2", "9", "10", "a", "x"]


def test_the_highest_attempt_counts_and_all_are_counted():
    table = rollouts(
        {"task": "a", "attempt": 2, "reward": 1},
        {"task": "a", "reward": 0},
        {"task": "a", "attempt": 3, "outcome": "client_failed"},
        {"task": "b", "reward": 1},
    )
    assert len(table) == 2
    assert table.tries.tolist() == [3, 1]
    assert table.rewards["reward"].given.tolist() == [False, True]


def test_a_rollout_that_stands_twice_is_refused_and_both_places_named():
    with pytest.raises(
        InputError, match=r"^made.jsonl:3: task 'a' sample 0 attempt 1 appears twice, first at made.jsonl:1"
    ):
        rollouts({"task": "a", "reward": 1}, {"task": "b", "reward": 1}, {"task": "a", "reward": 1})


def test_the_same_task_in_two_groups_is_two_tasks():
    table = rollouts(
        {"task": "a", "model": "m2", "reward": 1},
        {"task": "a", "model": "m1", "reward": 0},
        {"task": "b", "model": "m1", "reward": 0},
        {"task": "a", "reward": 0.5},
    )
    parts = list(table.groups())
    assert [part.keys[0] for part in parts] == [(None, None, None), (None, "m1", None), (None, "m2", None)]
    assert [rows(part) for part in parts] == [[("a", 0, 0.5)], [("a", 0, 0), ("b", 0, 0)], [("a", 0, 1)]]


def test_groups_are_sorted_by_dataset_then_model_then_agent():
    keys = [("z", "m", "d"), ("a", "n", "d"), ("b", "m", "c"), ("a", "m", "d")]
    table = rollouts(*({"task": "t", "agent": a, "model": m, "dataset": d, "reward": 1} for a, m, d in keys))
    assert list(table.keys) == [("b", "m", "c"), ("a", "m", "d"), ("z", "m", "d"), ("a", "n", "d")]


def test_scored_needs_a_reward():
    with pytest.raises(InputError, match=r"^made.jsonl:2: outcome is 'scored' but there is no reward"):
        rollouts({"task": "a", "reward": 1}, {"task": "b", "outcome": "scored"})


def test_where_keeps_only_the_tasks_of_the_rows_it_keeps():
    table = rollouts(*({"task": task, "sample": s, "reward": s} for task in "abc" for s in range(2)))
    some = table.where((table.task != 1) & (table.sample == 1))
    assert rows(some) == [("a", 1, 1), ("c", 1, 1)]


def test_a_task_without_rollouts_is_kept_beside_other_groups():
    named = JsonLines("m.jsonl", {}, ())
    named.read(b'{"task": "a", "model": "m", "reward": 1}\n')
    table = assemble([from_rewards([[1], [], [0]]), named.finish()])
    assert [list(part.tasks) for part in table.groups()] == [["0", "1", "2"], ["a"]]
    first, second = table.groups()
    assert rows(first) == [("0", 0, 1), ("2", 0, 0)]
    assert rows(second) == [("a", 0, 1)]


def test_each_task_keeps_its_turn():
    """The order of the tasks' first rows, in the table and its parts; None if it is the order of the tasks."""
    table = rollouts(
        {"task": "b", "model": "m2", "reward": 1},
        {"task": "a", "model": "m1", "reward": 1},
        {"task": "c", "model": "m1", "reward": 0},
        {"task": "a", "model": "m2", "reward": 0},
        {"task": "a", "model": "m1", "sample": 1, "reward": 1},
    )
    assert [(part.keys[0][1], part.tasks, part.turn.tolist()) for part in table.groups()] == [
        ("m1", ["a", "c"], [1, 2]),
        ("m2", ["a", "b"], [3, 0]),
    ]
    assert table.where(table.rewards["reward"].values == 1).turn.tolist() == [1, 0]
    assert rollouts({"task": "a", "reward": 1}, {"task": "b", "reward": 1}).turn is None


NUMBERS = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**40)), max_size=30)


def ints(values):
    return np.array(values, dtype=np.int64)


@given(NUMBERS)
def test_renumbered_as_sorting_would(values):
    known = sorted(set(values))
    assert renumbered(ints(values)).tolist() == [known.index(value) for value in values]


@given(NUMBERS)
def test_an_order_is_the_one_that_sorting_gives(values):
    found = order_of(ints(values))
    if found is not None:
        assert found.tolist() == sorted(range(len(values)), key=values.__getitem__)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([3, 1, 0, 2], [2, 1, 3, 0]),
        ([6, 0, 2], [1, 2, 0]),  # some are left out
        ([1, 0, 1], None),  # two rows share a number
        ([100, 0], None),  # hardly any number has a row
    ],
)
def test_which_rows_need_no_sorting(values, expected):
    found = order_of(ints(values))
    assert (None if found is None else found.tolist()) == expected


@given(st.lists(st.tuples(st.integers(0, 2**33), st.integers(0, 2**33)), min_size=1, max_size=20))
def test_pairs_sort_as_their_numbers_do(pairs):
    first, second = ints(pairs).T
    numbers = paired(first, second).tolist()
    assert [pairs[row] for row in np.argsort(numbers, kind="stable")] == sorted(pairs)
    assert len(set(numbers)) == len(set(pairs))
