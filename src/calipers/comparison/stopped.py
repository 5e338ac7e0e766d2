"""Comparisons with a run that a stopping rule ended: what may still be said of a difference, and what may not.

Both runs are compared on the tasks that both have run, task by task, as always. But how many tasks these are depends
on what a run showed. A test or an interval for a fixed number of tasks then claims a difference too often, so that
none is given. A test that may be asked after every task holds (`calipers compare --anytime`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from calipers.comparison.draft import Draft
from calipers.comparison.families import Cut
from calipers.comparison.runs import Meeting
from calipers.comparison.side import Side
from calipers.reports.compare import Ranks
from calipers.rollouts.stop import Stop

SEQUENTIAL: Final = frozenset({"betting"})
"""Tests that hold after every task, and so after a stop."""

UNTESTED: Final = (
    "a run was stopped by what it showed, and a test for a fixed number of tasks does not hold then; "
    "compare --anytime does"
)
UNRANKED: Final = "a run was stopped by what it showed: ranks over a fixed number of tasks do not hold then"


def without_fixed_tests(draft: Draft | str) -> Draft | str:
    """Two runs measured, without the tests that a stopped run among them makes invalid; and what must be said of it."""
    if isinstance(draft, str):
        return draft
    names = (draft.meeting.names[place] for place in draft.places)
    stops = [(name, side.stop) for name, side in zip(names, draft.common.sides, strict=True)]
    stopped = [(name, stop) for name, stop in stops if stop is not None]
    if not stopped:
        return draft
    return replace(draft, cuts=[_untested(cut) for cut in draft.cuts], notes=[*draft.notes, *_notes(stopped)])


def without_ranks(found: Sequence[Ranks], meeting: Meeting) -> list[Ranks]:
    """The ranks of several runs; none where a stopping rule ended one of the runs."""
    if all(part.stop is None for part in meeting.parts):
        return list(found)
    return [replace(one, places=[], optimism=None, corrected=None, why=UNRANKED) for one in found]


def stop_notes(sides: Sequence[Side]) -> list[str]:
    """What the readers say of stops, which the pairs say in their own words."""
    return [note for side in sides for stop in side.rollouts.stops.values() for note in stop.notes]


def _untested(cut: Cut) -> Cut:
    found = cut.measured.difference
    if found.method in SEQUENTIAL or found.value is None:
        return cut
    bare = replace(found, interval=None, p=None, why=UNTESTED, evidence=None, draws=None)
    return replace(cut, measured=replace(cut.measured, difference=bare, mcnemar=None, pair=None))


def _notes(stopped: Sequence[tuple[str, Stop]]) -> list[str]:
    said = []
    for name, stop in stopped:
        leans = {"lower": "too high", "upper": "too low"}.get(stop.side)
        biased = f"; its value is {leans} on average, and the difference is off by up to as much" if leans else ""
        said.append(f"{name}: {stop.fact}: how many tasks are compared depends on what it showed{biased}")
    return said
