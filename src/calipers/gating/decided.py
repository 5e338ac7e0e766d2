"""Whether missing rollouts decide a requirement: it is held against the worst and the best they could have been."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from calipers.gating.answers import Answers
from calipers.gating.differences import Differences
from calipers.gating.groups import Cut, Group, Number
from calipers.gating.policy import Gaps
from calipers.gating.requirement import OPS, Requirement
from calipers.gating.worst import BOTTOM, NO_BOUNDS, NO_ENDS, TOP
from calipers.reports.figures import figure
from calipers.reports.gate import Check, Word

NO_INTERVAL: Final = "there is no interval with them filled in"
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Missing:
    """What is missing of what a requirement is about, and what its value is with that at both ends.

    Without ``ends`` nobody knows, and ``why`` says why; ``finished`` is a result that keeps too little to tell.
    """

    said: str  # 8 of 40 rollouts
    count: int
    ends: Ends | None = None
    why: str = NO_BOUNDS
    finished: bool = False


def decided(wanted: Requirement, word: Word, missing: Missing, too_many: str | None) -> tuple[Word, str | None]:
    """The answer, and why there is none; ``too_many`` says that more are missing than was allowed."""
    if missing.ends is None:
        if missing.finished and word == "failed" and not too_many:
            return "failed", None
        return (
            "undefined",
            too_many or f"{missing.said} are missing, and may decide it: {missing.why}; {allow(missing.count)}",
        )
    low, high = sorted(missing.ends)
    if not _could(wanted, low, high):
        return "failed", None
    if too_many:
        return "undefined", too_many
    if _must(wanted, low, high):
        return word, None
    told = f"{figure(low)} to {figure(high)}, whatever they are"
    return "undefined", f"{missing.said} are missing, and decide it: {told}; {allow(missing.count)}"


def allow(count: int) -> str:
    """What to do about rollouts that are missing."""
    return f"--max-gaps {count} takes it as it is"


def undecided(seen: Check, ends: Sequence[Check], group: Group) -> Check:
    """An answer as it was seen, unless what is missing makes another of it: then there is none."""
    words = {one.word for one in ends}
    if words == {seen.word}:
        return seen
    if words == {"failed"}:
        return replace(seen, word="failed", remark=ends[1].remark, failing=ends[1].failing)
    gaps = group.ledger.gaps
    why = f"{gaps:,} of {group.ledger.planned:,} rollouts are missing, and decide it; {allow(gaps)}"
    return replace(seen, word="undefined", value=None, why=why, failing=[])


def _could(wanted: Requirement, low: float, high: float) -> bool:
    """Whether it holds of some value from the low one to the high one."""
    if wanted.op == "==":
        return low <= wanted.number <= high
    return any(OPS[wanted.op](end, wanted.number) for end in (low, high))


def _must(wanted: Requirement, low: float, high: float) -> bool:
    return all(OPS[wanted.op](end, wanted.number) for end in (low, high))


def missing_of(part: Group | Cut, number: Number) -> str:
    """How many rollouts a number lacks, in words; "" where it lacks none."""
    ledger = part.ledger
    if ledger.gaps and (number.bounds is not None or number.samples < ledger.planned):
        return f"{ledger.gaps:,} of {ledger.planned:,} rollouts"
    return f"some of {ledger.planned:,} rollouts" if number.bounds is not None else ""


def at_ends(
    wanted: Requirement,
    part: Group | Cut,
    number: Number,
    twins: Callable[[int], Number | None] | None,
    unknown: str | None,
) -> Missing | None:
    """What is missing of a number of one result; None where nothing is.

    ``twins`` are the same number with what is missing at one end; None where nothing can be filled any more.
    """
    said, count = missing_of(part, number), part.ledger.gaps
    if not said:
        return None
    if wanted.end is None:
        return Missing(said, count, number.bounds, unknown or NO_BOUNDS)
    if twins is None:
        return Missing(said, count, None, NO_ENDS, finished=True)
    place = int(wanted.end == "upper")
    found = [twin.interval[place] if twin and twin.interval else math.nan for twin in (twins(BOTTOM), twins(TOP))]
    if unknown or not all(map(math.isfinite, found)):
        return Missing(said, count, None, unknown or NO_INTERVAL)
    return Missing(said, count, (found[0], found[1]))


def of_difference(wanted: Requirement, group: Group, number: Number, apart: Differences) -> Missing | None:
    """What is missing of a difference, in either run; None where nothing is."""
    ledgers = [("", group.ledger), (" of the baseline", apart.counterpart(group).ledger)]
    told = [f"{one.gaps:,} of {one.planned:,} rollouts{whose}" for whose, one in ledgers if one.gaps]
    if not told and number.bounds is None:
        return None
    said, count = " and ".join(told) or "some rollouts", max(one.gaps for _, one in ledgers)
    if apart.paired is not None and number.bounds is None and not number.lacking:
        return None  # none of the tasks that both have
    if wanted.end is None:
        return Missing(said, count, number.bounds, finished=apart.paired is None)
    if number.bounds is None or not apart.filled:
        return Missing(said, count, None, NO_BOUNDS)
    place = int(wanted.end == "upper")
    filled = [apart.with_filled(group, wanted, best) for best in (False, True)]
    found = [one.interval[place] if one.interval else math.nan for one in filled]
    if not all(map(math.isfinite, found)):
        return Missing(said, count, None, NO_INTERVAL)
    return Missing(said, count, (found[0], found[1]))


def lacking(found: Answers, most: Gaps | None) -> bool:
    """Whether a result lacks more rollouts than is allowed, of any of its groups."""
    for group in found.groups:
        gaps, planned = group.ledger.gaps, group.ledger.planned
        if most is None and (gaps or any(one.bounds for one in group.numbers().values())):
            return True
        if most is not None and not most.allow(gaps, planned):
            return True
    return False
