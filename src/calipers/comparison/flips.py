"""Which tasks went better and which worse, and what was answered there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from calipers.comparison.families import Cut
from calipers.reports.compare import Changed, Flips

Answer = Callable[[int, str], str | None]  # (side, the first run's id of a task) -> what that side answered


def flips(cuts: Sequence[Cut], tasks: Sequence[str], most: int) -> Flips | None:
    """The tasks whose value differs, by the first metric that has a value per task; None where none has."""
    for cut in cuts:
        measured = cut.measured
        if cut.by is not None or measured.values is None:
            continue
        first, second = measured.values
        with np.errstate(invalid="ignore"):
            moved = np.where(measured.there & np.isfinite(second - first), second - first, 0.0)
        gain = -moved if measured.higher_is_better is False else moved
        lists = []
        for sign in (-1.0, 1.0):
            size = np.where(sign * gain > 0, np.abs(gain), 0.0)
            order = np.argsort(-size, kind="stable")[:most].tolist()
            lists.append([Changed(tasks[t], float(first[t]), float(second[t])) for t in order if size[t] > 0])
        worse, better = int((gain < 0).sum()), int((gain > 0).sum())
        same = int((measured.there & (second == first)).sum())
        return Flips(measured.both.text, worse, better, same, lists[0], lists[1])
    return None


def answered(found: Flips, answer: Answer) -> Flips:
    """The same with what both sides answered."""
    lists = [
        [replace(one, answers=(answer(0, one.task), answer(1, one.task))) for one in those]
        for those in (found.regressions, found.fixes)
    ]
    return replace(found, regressions=lists[0], fixes=lists[1])
