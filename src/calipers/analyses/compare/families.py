"""Several questions on one page: which one comes first, and what the others cost.

::

    each pair of runs:   primary question ──decided──► slices and further metrics: claims
                                          └─undecided► the same numbers: hints, not claims

The primary question keeps its full level, and only when it is decided are the others claims: so the whole page
makes a false claim with a chance of at most 5 %. Among each other the others are adjusted in one step (Sidak
1967), because then a line's interval can be adjusted like its p, and both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.analyses.compare.measure import resampled_difference
from calipers.analyses.compare.metric_pair import Measured, MetricPair
from calipers.analyses.compare.question import SIDAK, Primary, Question
from calipers.analyses.compare.result import Changed, Flips
from calipers.errors import UnknownName
from calipers.stats.multiplicity import benjamini_hochberg, holm, sidak
from calipers.stats.paired import FLOORED_T, STRICT, Difference, judged
from calipers.stats.paired_bootstrap import by_draws

DIGITS = 12  # of a test that must agree for two to be one: a rate and a mean round differently

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class SlicePair:
    """A difference and the tasks it is of: all of them, or one slice."""

    by: str | None
    slice: str | None
    measured: Measured
    matter: MetricPair  # what was measured, gaps and all; without columns for a number of a table

    @property
    def text(self) -> str:
        """The question as ``--primary`` names it."""
        return self.measured.both.text + ("" if self.by is None else f"[{self.by}={self.slice}]")


@dataclass(frozen=True, slots=True)
class TestedPair:
    """Where a question stands among the others of its page, and what p it has there."""

    primary: bool
    tests: int  # questions whose errors add up with its own, itself included; 1: it is judged by itself
    confidence: float  # of its interval
    p: float | None  # by which its verdict goes
    holm: float | None
    bh: float | None


def standings(families: Sequence[Sequence[SlicePair]], question: Question) -> tuple[list[list[TestedPair]], int]:
    """The standing of every question, pair by pair, and how many different tests there are.

    The same test under two names is one test: mean_reward and pass_rate where every reward is 0 or 1 and every
    task has the same number of samples, or the only slice there is.
    """
    keys = [[_key(number, cut, cuts[0]) for cut in cuts] for number, cuts in enumerate(families)]
    place = {key: index for index, key in enumerate(dict.fromkeys(key for some in keys for key in some if key))}
    raw = np.zeros(len(place))
    for cuts, own in zip(families, keys, strict=True):
        for cut, key in zip(cuts, own, strict=True):
            if key is not None:
                raw[place[key]] = cut.measured.difference.p
    stepped, rated = holm(raw), benjamini_hochberg(raw)
    confidence = question.plan.confidence
    found = []
    for cuts, own in zip(families, keys, strict=True):
        first = _primary(cuts, question.primary)
        below = {key for key in own if key is not None} - {own[first]}
        standing = []
        for number, (cut, key) in enumerate(zip(cuts, own, strict=True)):
            leads = number == first or (key is not None and key == own[first])
            tests = len(families) * (1 if leads else len(below)) if question.adjust == SIDAK else 1
            p = cut.measured.difference.p
            both = (None, None) if key is None else (float(stepped[place[key]]), float(rated[place[key]]))
            alone = None if p is None else sidak(p, tests)
            by = {"holm": both[0], "bh": both[1]}.get(question.adjust, alone)
            standing.append(TestedPair(leads, tests, confidence ** (1 / max(tests, 1)), by, *both))
        found.append(standing)
    return found, len(place)


def at_confidence(difference: Difference, confidence: float) -> Difference:
    """The same difference with its interval at another confidence; where that cannot be had, with none."""
    if difference.interval is None:
        return difference
    if difference.evidence is not None:
        limits = None if difference.width is None else (0.0, difference.width)
        test = STRICT if difference.method == STRICT else FLOORED_T
        again = judged(difference.evidence, limits, confidence, test)
        return replace(again, p=difference.p, method=difference.method)
    if difference.sequence is not None and difference.width is not None and difference.value is not None:
        ends = difference.sequence.ends(difference.value / difference.width, confidence)
        found = None if ends is None else (difference.width * ends[0], difference.width * ends[1])
        return replace(difference, interval=found)
    if difference.draws is not None and difference.value is not None:
        again = resampled_difference(by_draws(difference.value, difference.draws, confidence, difference.units))
        return replace(again, p=difference.p, method=difference.method)
    return replace(difference, interval=None, why=f"no interval at {100 * confidence:.4g} %")


def _primary(cuts: Sequence[SlicePair], wanted: Primary | None) -> int:
    """The place of a pair's primary question: the first metric on all tasks, unless one is named."""
    if wanted is None:
        return 0
    for number, cut in enumerate(cuts):
        if wanted.means(cut.measured.both.text, cut.by, cut.slice):
            return number
    raise UnknownName.of("question in this comparison", wanted.text, [cut.text for cut in cuts])


def _key(number: int, cut: SlicePair, first: SlicePair) -> Key | None:
    """What tells a test from others; None where there is no test."""
    p = cut.measured.difference.p
    if p is None:
        return None
    whole = len(cut.measured.there) == len(first.measured.there)
    return number, None if whole else (cut.by, cut.slice), _what(cut.measured), f"{p:.{DIGITS}g}"


def _what(measured: Measured) -> object:
    """What a test looks at: the differences of the tasks, where they have one; else the metric, whatever its name."""
    if measured.values is None:
        asked = measured.both.first
        return asked.metric.name, str(sorted(asked.params.items()))
    moved = np.where(measured.there, measured.values[1] - measured.values[0], np.nan)
    return np.round(moved, DIGITS).tobytes()


Answer = Callable[[int, str], str | None]  # (side, the first run's id of a task) -> what that side answered


def flips(cuts: Sequence[SlicePair], tasks: Sequence[str], most: int) -> Flips | None:
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
