"""What a comparison amounts to, in one word and one sentence, and what would decide it where it is open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from calipers.stats.equivalence import equivalence
from calipers.stats.paired import Difference
from calipers.stats.power import MOST_TASKS, POWER, PairVariance, fewest, tasks_needed
from calipers.stats.wilson import t_quantile

Word = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One word on the first run against the second."""

    word: Word
    difference: Difference
    p: float | None  # of no difference, as judged by: adjusted where several were compared
    confidence: float
    margin: float | None = None
    more_tasks: int | None = None  # that would decide it if the truth is what was seen; clusters, where they are units
    more_samples: int | None = None  # per task and run, in place of more tasks; None where they would not
    clustered: bool = False

    @property
    def sentence(self) -> str:
        """The verdict for somebody who has to act on it."""
        value = self.difference.value
        if value is None:
            return f"undecided: {self.difference.why}"
        if self.word in ("better", "worse"):
            return f"{self.word} by {abs(value):.3g}{self._backing()}"
        if self.word == "equivalent":
            return f"equivalent within {self.margin:g}{self._shown()}: a difference of {_signed(value)}{self._range()}"
        return f"undecided: a difference of {_signed(value)}{self._backing()}{self._remedy()}"

    def _shown(self) -> str:
        """The p of equivalence: that of no difference says nothing for it, and beside it would be taken for it."""
        found = None if self.margin is None else equivalence(self.difference, self.margin, confidence=self.confidence).p
        return "" if found is None else f", p {found:.2g}"

    def _range(self) -> str:
        found = self.difference.interval
        return f" ({100 * self.confidence:.4g} % interval {_signed(found[0])} to {_signed(found[1])})" if found else ""

    def _backing(self) -> str:
        said = [part for part in (self._range()[2:-1], "" if self.p is None else f"p {self.p:.2g}") if part]
        return f" ({', '.join(said)})" if said else f" ({self.difference.why})" if self.difference.why else ""

    def _remedy(self) -> str:
        units = "cluster" if self.clustered else "task"
        ways = [f"about {_more(self.more_tasks, units)} like these"] if self.more_tasks else []
        ways += [f"{_more(self.more_samples, 'sample')} per task"] if self.more_samples else []
        if ways:
            return f"; {' or '.join(ways)} would decide it, if that is the true difference"
        if self.difference.value == 0 and self.difference.interval is None:
            return "; no difference was seen, and nothing here can show that there is none"
        if self.difference.value == 0 and self.margin is None:
            return "; no difference was seen, and only a margin can show that there is none"
        return ""


def verdict(
    difference: Difference,
    *,
    higher_is_better: bool = True,
    margin: float | None = None,
    confidence: float = 0.95,
    p: float | None = None,
    pair: PairVariance | None = None,
    samples: float | None = None,
    clustered: bool = False,
    tests: int = 1,
) -> Verdict:
    """Judge the first run against the second: better, worse, equivalent within a margin, or undecided.

    Equivalent where the difference has been shown to lie within the margin, be it significant or not: a
    margin says which differences do not matter. Else better or worse where p is at most 1 - confidence;
    ``p`` replaces that of the difference where it was adjusted for others, ``tests`` in all. Not significant
    is undecided, never equal.

    What would decide it supposes that the truth is what was seen, and asks for a power of 80 %. With
    ``pair``, the parts of the variance, and the ``samples`` per task that each run has, it also says how
    many more samples would do.
    """
    raw, value = difference.p, difference.value
    p = raw if p is None else p
    # a p that others have made larger must be as much smaller to begin with
    wanted = 1 - (1 - confidence) * _price(raw, p, tests) if raw and p else confidence
    if margin is not None and equivalence(difference, margin, confidence=confidence).shown:
        return Verdict("equivalent", difference, p, confidence, margin, clustered=clustered)
    if value and p is not None and p <= 1 - confidence:  # draws may lie on one side of a median that does not differ
        word: Word = "better" if (value > 0) == higher_is_better else "worse"
        return Verdict(word, difference, p, confidence, margin, clustered=clustered)
    tasks = _more_tasks(difference, margin, wanted, confidence)
    more = None
    if pair is not None and samples is not None:
        more = more_samples(difference, pair, samples, margin, confidence, wanted)
    return Verdict("undecided", difference, p, confidence, margin, tasks, more, clustered)


def _price(raw: float, adjusted: float, tests: int) -> float:
    """What part of its level a test has left among others: by what its own p became, as far as that shows it.

    An adjusted p of 1 may have been cut there; then the test is taken for the first of all to succeed.
    """
    return min(1.0, raw / adjusted, 1 / tests if adjusted >= 1 else 1.0)


def more_samples(
    difference: Difference,
    pair: PairVariance,
    samples: float,
    margin: float | None = None,
    confidence: float = 0.95,
    wanted: float | None = None,
) -> int | None:
    """How many more samples per task and run would decide it on the same tasks; None where none would.

    ``wanted`` is the confidence a difference is to be shown with, where that was adjusted for other tests;
    that it is small, within the margin, is each time shown by itself.
    """
    if difference.value is None or difference.p is None or not pair.divided:
        return None
    # what the variance of one task's difference may be, and what sampling may add to it
    allowed = [
        difference.effective_units * (way.distance / way.errors(difference.freedom)) ** 2
        for way in _ways(difference, margin, confidence, confidence if wanted is None else wanted)
    ]
    spare = max(allowed, default=0.0) - pair.tasks
    if spare <= 0:
        return None
    enough = math.ceil((pair.first + pair.second) / spare)
    return max(1, enough - math.floor(samples)) if enough < MOST_TASKS else None


def _more_tasks(difference: Difference, margin: float | None, wanted: float, confidence: float) -> int | None:
    """How many more units would decide it, by showing the difference or by showing that it is within the margin."""
    if difference.value is None or difference.p is None or difference.stderr is None:
        return None
    if difference.stderr == 0:
        return _more_alike(difference, margin, confidence)
    variance = _spread(difference) ** 2 * difference.effective_units

    def enough(units: int) -> bool:
        error = math.sqrt(variance / units)
        return any(way.distance >= way.errors(units - 1.0) * error for way in within)

    within = _within(difference, margin, confidence)
    ways = [fewest(enough, difference.units) if within else None]
    shown = tasks_needed(variance, difference.value, POWER, wanted)
    ways.append(None if shown is None else max(shown, _fewest_signs(difference.method, wanted)))
    found = min((way for way in ways if way is not None), default=None)
    return max(1, found - difference.units) if found is not None else None


def _more_alike(difference: Difference, margin: float | None, confidence: float) -> int | None:
    """How many more units without any difference would show that it is within the margin: (1 - margin)^n is small."""
    if margin is None or difference.width is None or margin >= difference.width or difference.effective_tasks:
        return None  # the strict test has a spread of its own, which no data take away
    enough = math.log(1 - confidence) / math.log1p(-margin / difference.width)
    units = math.ceil(enough * difference.units / difference.effective_units)
    return max(1, units - difference.units) if units < MOST_TASKS else None


def _fewest_signs(method: str, confidence: float) -> int:
    """How many units a test of signs takes at least: with all of n on one side its p is 2^(1 - n), mid-p's 2^-n."""
    if method not in ("sign_flip", "mcnemar", "mid_p"):
        return 0
    halvings = math.ceil(-math.log2(1 - confidence))
    return halvings if method == "mid_p" else halvings + 1


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to decide a comparison: an error of the estimate so small that this distance is clear."""

    distance: float
    level: float  # of the one side that is to be cleared
    power: float

    def errors(self, freedom: float) -> float:
        """How many standard errors the distance must hold."""
        return t_quantile(self.level, freedom) + t_quantile(self.power, math.inf)


def _ways(difference: Difference, margin: float | None, confidence: float, wanted: float) -> list[_Way]:
    """To show the difference that was seen, and to show that it lies within the margin."""
    value = abs(difference.value or 0.0)
    shown = [_Way(value, (1 + wanted) / 2, POWER)] if value else []
    return [*shown, *_within(difference, margin, confidence)]


def _within(difference: Difference, margin: float | None, confidence: float) -> list[_Way]:
    value = abs(difference.value or 0.0)
    if margin is None or margin <= value:
        return []
    # with no difference at all both sides of the margin must be cleared at once
    return [_Way(margin - value, confidence, (1 + POWER) / 2 if value == 0 else POWER)]


def _spread(difference: Difference) -> float:
    """The standard error that the test goes by: the strict one supposes the largest that no difference allows."""
    if difference.effective_tasks and difference.width is not None:
        return difference.width / math.sqrt(difference.effective_tasks)
    return difference.stderr or 0.0


def _more(count: int, what: str) -> str:
    return f"{count:,} more {what}" if count == 1 else f"{count:,} more {what}s"


def _signed(value: float) -> str:
    return f"{value:+.3g}" if value else "0"
