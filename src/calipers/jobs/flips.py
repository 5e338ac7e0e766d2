"""Two rewards of the same rollouts, compared one by one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calipers.metrics.metric import PASS_THRESHOLD
from calipers.reports.flips import Flip
from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import OUTCOMES
from calipers.rollouts.table import Rollouts

NAMED = 1000  # rollouts of a kind that are named at all


def flips(table: Rollouts, old: str | None, new: str) -> list[Flip]:
    """Where every rollout went from one reward to the other; the kinds add up to all of them."""
    before = contributed(table, old) if old else Column.gaps(len(table))
    after = contributed(table, new)
    one, two = before.given & (before.values >= PASS_THRESHOLD), after.given & (after.values >= PASS_THRESHOLD)
    both = before.given & after.given
    same = (both & (before.values == after.values)) | ~(before.given | after.given)
    kinds: dict[str, Bools] = {
        "pass to fail": both & one & ~two,
        "fail to pass": both & ~one & two,
        "other reward": both & (one == two) & ~same,
        "number to gap": before.given & ~after.given,
        "gap to number": ~before.given & after.given,
    }
    found = [_flip(what, table, rows) for what, rows in kinds.items()]
    return [*found, Flip("the same", int(same.sum()), ())]


def moved(before: Ints, after: Ints) -> Mapping[str, tuple[int, int]]:
    """How many rollouts had each outcome, and have, by codes of the ledger, [R] each."""
    counts = [np.bincount(codes, minlength=len(OUTCOMES)).tolist() for codes in (before, after)]
    return {word: (one, two) for word, one, two in zip(OUTCOMES, *counts, strict=True) if one or two}


def _flip(what: str, table: Rollouts, rows: Bools) -> Flip:
    places = np.flatnonzero(rows)
    which = [(table.tasks[int(table.task[row])], int(table.sample[row])) for row in places[:NAMED]]
    return Flip(what, len(places), which)
