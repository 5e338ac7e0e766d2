import numpy as np
import pytest
from making import rewards

from calipers.metrics.votes import maj_at_k
from calipers.rollouts.column import Column, Groups
from calipers.stats.curve import majority_curve, worth_of_votes


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ("AAAABBBC", {1: 0.5, 2: 0.5, 3: 0.571429, 5: 0.660714, 8: 1}),
        ("AAABBBBC", {1: 0.375, 2: 0.375, 3: 0.357143, 5: 0.339286, 8: 0}),  # more samples, worse: B wins
        ("AB", {1: 0.5, 2: 0.5}),  # a tie is shared
        ("A-", {1: 0.5, 2: 1}),  # a sample without an answer does not vote; alone it is worth 0
        ("--", {1: 0, 2: 0}),
    ],
)
def test_the_worth_of_a_vote(votes, expected):
    column, by = rewards([float(answer == "A") for answer in votes])
    answers = Column.of([ord(answer) - ord("A") if answer != "-" else 0 for answer in votes], [a != "-" for a in votes])
    found = {point.k: point.value for point in majority_curve(column, answers, by, limits=(0, 1)).points}
    assert {k: found[k] for k in expected} == pytest.approx(expected, abs=1e-6)
    assert list(found) == list(range(1, len(votes) + 1))


def test_every_k_at_once_is_each_k_for_itself():
    rng = np.random.default_rng(11)
    tasks, most = 60, 13
    size = rng.integers(1, most + 1, tasks)
    by = Groups.of(np.repeat(np.arange(tasks), size), tasks)
    rows = int(size.sum())
    given, voted = rng.random(rows) < 0.9, rng.random(rows) < 0.8
    answers = Column(rng.integers(0, 5, rows).astype(float), voted)
    column = Column(rng.random(rows), given)  # rewards of any size, not the same for the same answer
    table = worth_of_votes(column, answers, by)
    for k in range(1, table.shape[1] + 1):
        one = maj_at_k(column, answers, by, k)
        np.testing.assert_allclose(table[one.given, k - 1], one.kept(), atol=1e-12)


def test_the_band_is_over_the_tasks_that_have_k_samples():
    column, by = rewards([1, 1, 0], [0, 1, 0], [1])
    answers = Column.of([0, 0, 1, 1, 0, 1, 0])
    first, _, last = majority_curve(column, answers, by, limits=(0, 1)).points
    assert (first.tasks, last.tasks) == (3, 2)
    assert last.interval is not None
    assert last.interval[0] < last.value < last.interval[1]


def test_nothing_to_vote_on():
    column, by = rewards([None, None])
    assert majority_curve(column, Column.of([0, 0]), by, limits=(0, 1)).points == ()
