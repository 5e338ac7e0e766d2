"""Missing rollouts that a conclusion must survive, and the numbers that stand for them in the worst case.

A rollout that was lost before the model was asked says nothing about its answer, so it is left out. Any other missing
rollout may be missing because of its answer: a long answer times out, and a hard task breaks a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from calipers.rollouts.column import Bools, Column
from calipers.rollouts.ledger import lost_before_answer
from calipers.rollouts.record import FIRST_GAP
from calipers.rollouts.table import Rollouts

Ends = tuple[float, float]

UNIT: Final[Ends] = (0.0, 1.0)
FEWEST_SEEN: Final = 20
"""With fewer values the lowest and the highest one say too little about the range."""

MOST_LOST_BEFORE: Final = 0.1
"""Above this share of a run's rollouts, those lost before the model was asked are filled, too."""


def missing(rollouts: Rollouts, column: Column | None) -> Bools:
    """Which rollouts are missing, [R]: those without a value in ``column``, or without any number."""
    return np.asarray(rollouts.outcome >= FIRST_GAP) if column is None else ~column.given


def to_fill(rollouts: Rollouts, column: Column | None) -> Bools:
    """Which missing rollouts a conclusion must survive, [R]: those whose loss may depend on the answer.

    If more than a tenth of all rollouts were lost before the model was asked, these count as well.
    """
    gaps = missing(rollouts, column)
    before = lost_before_answer(rollouts) & gaps
    if not len(gaps) or float(before.mean()) > MOST_LOST_BEFORE:
        return gaps
    return np.asarray(gaps & ~before)


def ends_of(columns: Sequence[Column], declared: Ends | None) -> Ends | None:
    """The lowest and the highest number that a missing rollout may have; None if that is not known.

    The declared range; else 0 to 1 if every given value lies there; else the ends of the given values, of which there
    must be at least 20.
    """
    kept = np.concatenate([column.kept() for column in columns])
    kept = kept[np.isfinite(kept)]
    lowest, highest = kept.min(initial=np.inf), kept.max(initial=-np.inf)
    return ends_known(float(lowest), float(highest), len(kept), declared)


def ends_known(lowest: float, highest: float, number: int, declared: Ends | None) -> Ends | None:
    """The same from the lowest and the highest of a number of finite values.

    >>> ends_known(0.0, 1.0, 3, None), ends_known(-1.0, 7.5, 20, None), ends_known(-1.0, 7.5, 19, None)
    ((0.0, 1.0), (-1.0, 7.5), None)
    """
    if declared is not None:
        return declared
    if lowest >= UNIT[0] and highest <= UNIT[1]:
        return UNIT
    return (lowest, highest) if number >= FEWEST_SEEN else None


def filled(column: Column, rows: Bools, value: float) -> Column:
    """The column with a value in these rows, [R]."""
    return Column(np.where(rows, value, column.values), column.given | rows)
