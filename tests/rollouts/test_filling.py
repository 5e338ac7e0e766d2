"""The missing rollouts that a conclusion must survive, and the numbers that stand for them."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.rollouts.column import Column
from calipers.rollouts.filling import ends_of, filled, to_fill
from calipers.rollouts.record import CODE


class OfOutcomes:
    """Rollouts of which only the outcomes matter."""

    def __init__(self, *words):
        self.outcome = np.array([CODE[word] for word in words], dtype=np.uint8)
        self.before_answer = None

    def __len__(self):
        return len(self.outcome)


def test_a_rollout_that_never_ran_is_not_filled():
    rollouts = OfOutcomes(*["scored"] * 18, "not_run", "client_failed", "cancelled")
    assert np.flatnonzero(to_fill(rollouts, None)).tolist() == [19, 20]


def test_many_rollouts_that_never_ran_are_filled():
    rollouts = OfOutcomes(*["scored"] * 17, "not_run", "not_run", "not_run")
    assert np.flatnonzero(to_fill(rollouts, None)).tolist() == [17, 18, 19]


@pytest.mark.parametrize(
    ("values", "declared", "expected"),
    [
        ([0, 7.5] * 10, None, (0, 7.5)),
        ([0, 7.5] * 9, None, None),  # 18 values
        ([0.2, 0.9], None, (0, 1)),
        ([], None, (0, 1)),  # nothing lies outside
        ([0, 7.5], (0, 10), (0, 10)),
    ],
)
def test_the_ends_that_missing_rollouts_may_have(values, declared, expected):
    assert ends_of([Column.of(values)], declared) == expected


def test_a_filled_column_keeps_its_values():
    column = Column.of([0.5, 9.0], [True, False])
    both = filled(column, np.array([False, True]), 0.0)
    assert both.values.tolist() == [0.5, 0.0]
    assert both.given.tolist() == [True, True]
