import math
import sys
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import GAP, rewards, rollouts

import calipers
from calipers.metrics.votes import maj_at_k
from calipers.rollouts.column import Column


def votes(answers, worth):
    """One task whose samples have these answers, with the given rewards; None is no answer."""
    column, by = rewards([worth.get(answer, 0) for answer in answers])
    code = [ord(answer) - ord("A") if answer else 0 for answer in answers]
    return column, Column.of(code, [answer is not None for answer in answers]), by


def expected(answers, worth, k):
    """maj@k by definition: all subsets, with all their winners."""
    found = []
    for subset in combinations(answers, k):
        ballots = Counter(answer for answer in subset if answer)
        best = [answer for answer, count in ballots.items() if count == max(ballots.values())]
        found.append(sum(worth.get(answer, 0) for answer in best) / len(best) if best else 0)
    return sum(found) / len(found)


@pytest.mark.parametrize(
    ("answers", "by_k"),
    [
        ("AAAABBBC", {1: 0.5, 2: 0.5, 3: 0.571429, 5: 0.660714, 8: 1}),
        ("AAABBBBC", {1: 0.375, 2: 0.375, 3: 0.357143, 5: 0.339286, 8: 0}),  # a wrong majority
    ],
)
def test_expectation_over_all_subsets_with_ties_shared(answers, by_k):
    for k, value in by_k.items():
        assert maj_at_k(*votes(answers, {"A": 1}), k=k).values[0] == pytest.approx(value, abs=1e-6)


@given(
    st.lists(st.sampled_from(["A", "B", "C", "D", None]), min_size=1, max_size=8),
    st.fixed_dictionaries({letter: st.sampled_from([0, 0.25, 1]) for letter in "ABCD"}),
    st.integers(1, 8),
)
def test_it_is_what_all_subsets_say(answers, worth, k):
    column = maj_at_k(*votes(answers, worth), k=k)
    assert column.given.tolist() == [k <= len(answers)]
    if column.given[0]:
        assert column.values[0] == pytest.approx(expected(answers, worth, k), abs=1e-12)


def test_an_answer_is_worth_the_mean_reward_of_its_samples():
    column, by = rewards([1, 0, 1])
    assert maj_at_k(column, Column.of([0, 0, 0]), by, k=3).values[0] == pytest.approx(2 / 3)


def test_large_tasks_keep_their_digits():
    answers = Column.of(np.arange(256) % 2)
    column, by = rewards([1.0, 0.0] * 128)
    assert maj_at_k(column, answers, by, k=255).values[0] == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(("n", "k"), [(1032, 1), (1032, 2), (1032, 516), (1032, 1032)])
def test_more_samples_than_floats_can_count_the_subsets_of(n, k):
    answers, worth = Column.of(np.arange(n) % 3 // 2), rewards([float(i % 3 < 2) for i in range(n)])
    assert math.comb(n, n // 2) > sys.float_info.max
    value = maj_at_k(worth[0], answers, worth[1], k=k).values[0]
    # two thirds answer 0, which is worth 1; a draw of two different answers is a tie
    assert value == pytest.approx({1: 2 / 3, 2: 2 / 3}.get(k, 1.0), abs=1e-9)


def test_chances_stand_for_counts_without_changing_the_answer(monkeypatch):
    column, by = rewards([1.0, 0.5, 0.0, 1.0, 0.25, 0.0, 1.0], [0.0] * 4, [1.0, 0.0, 0.5])
    answers = Column.of([0, 1, 1, 0, 2, 2, 3, 0, 0, 1, 1, 5, 6, 6], [i != 4 for i in range(14)])
    counted = {k: maj_at_k(column, answers, by, k=k).values for k in range(1, 8)}
    monkeypatch.setattr("calipers.metrics.votes.MOST_COUNTED", 0)
    for k, values in counted.items():
        assert maj_at_k(column, answers, by, k=k).values == pytest.approx(values, abs=1e-14)


def test_an_expectation_does_not_leave_its_values_by_a_rounding_error():
    rng = np.random.default_rng(0)
    by = rewards(*[[1.0] * 64] * 100)[1]
    values = maj_at_k(Column.of(np.ones(6400)), Column.of(rng.integers(0, 7, 6400)), by, k=32).values
    assert set(values.tolist()) == {1.0}  # without clipping, some would be 1.0000000000000002


def test_votes_come_from_the_records_answers():
    rows = [
        {"task": "a", "sample": s, "reward": r, "answer": a} for s, (a, r) in enumerate(zip(["x", "x", "y"], [1, 1, 0]))
    ]
    table = rollouts(*rows, {"task": "b", "reward": 0, "answer": None}, labels=["answer"])
    found = calipers.score(table, ["maj@1", "maj@3"])
    assert found["maj@1"].value == pytest.approx(1 / 3)  # (2/3 + 0) / 2: no answer is worth nothing
    assert (found["maj@3"].value, found["maj@3"].undefined_tasks) == (1.0, 1)


def test_without_any_answer_there_is_nothing_to_vote_on():
    with pytest.raises(calipers.InputError, match="no rollout has an answer"):
        calipers.score([[1, 0], [GAP]], "maj@1")


def test_tasks_are_counted_apart_however_many_share_a_block():
    tasks = ["AAB", "ABB", "ABC", "BBA", "AA", "B"]
    column, by = rewards(*([int(answer == "A") for answer in task] for task in tasks))
    answers = Column.of([ord(answer) - ord("A") for task in tasks for answer in task])
    for k in (1, 2, 3):
        found = maj_at_k(column, answers, by, k=k)
        by_hand = [expected(task, {"A": 1}, k) if k <= len(task) else None for task in tasks]
        assert [v if there else None for v, there in zip(found.values, found.given)] == [
            value if value is None else pytest.approx(value) for value in by_hand
        ]
