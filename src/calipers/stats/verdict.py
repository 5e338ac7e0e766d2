"""The verdict of a comparison in one word and one sentence, and what an undecided comparison needs.

If new tasks are added to an undecided comparison and tested together with the old ones, that is a second look: without
a true difference, following such advice once gives about 10 % false claims instead of 5 %. So the advice counts the
tasks of a new comparison, which is tested on its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from calipers.stats.anytime import BETTING
from calipers.stats.intervals import t_quantile
from calipers.stats.margins import equivalence, too_few, unseen_loss
from calipers.stats.paired import Difference
from calipers.stats.power import MOST_TASKS, POWER, PairVariance, fewest, tasks_needed

_POWER = f"{100 * POWER:g} %"

Word = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True, slots=True)
class ComparisonVerdict:
    """The verdict on the first run compared with the second."""

    word: Word
    difference: Difference
    p: float | None  # of no difference; adjusted where several were compared
    confidence: float
    margin: float | None = None
    # tasks that a new comparison needs if the true difference is the observed one; clusters, where they are units
    more_tasks: int | None = None
    more_samples: int | None = None  # per task and run, on as many tasks; None where no number is enough
    clustered: bool = False
    new_tasks: tuple[int, int | None] | None = None  # the same at the ends of the interval; None: no number is enough
    within: bool = False  # whether they would show that the difference is within the margin, not that there is one
    anytime: bool = True  # whether an anytime comparison could add tasks to these

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with advice where it is undecided."""
        value = self.difference.value
        if value is None:
            return f"undecided: {self.difference.why}"
        if self.word in ("better", "worse"):
            return f"{self.word} by {abs(value):.3g}{self._backing()}"
        if self.word == "equivalent":
            return f"equivalent within {self.margin:g}{self._shown()}: a difference of {_signed(value)}{self._range()}"
        return f"undecided: a difference of {_signed(value)}{self._backing()}{self._remedy()}"

    def _shown(self) -> str:
        """The p of equivalence; the p of no difference would be mistaken for it."""
        p = None if self.margin is None else equivalence(self.difference, self.margin, confidence=self.confidence).p
        return "" if p is None else f", p {p:.2g}"

    def _range(self) -> str:
        ends = self.difference.interval
        return f" ({100 * self.confidence:.4g} % interval {_signed(ends[0])} to {_signed(ends[1])})" if ends else ""

    def _backing(self) -> str:
        facts = [part for part in (self._range()[2:-1], "" if self.p is None else f"p {self.p:.2g}") if part]
        return f" ({', '.join(facts)})" if facts else f" ({self.difference.why})" if self.difference.why else ""

    def _remedy(self) -> str:
        if self.difference.method == BETTING and self.p is not None:
            return "; add tasks to the runs and compare again: this test is valid after every batch"
        if self.more_tasks:
            more = "; to add tasks to these runs instead, use compare --anytime" if self._may_go_on else ""
            return f"; {self._needed(self.more_tasks)}{self._allowed()}{more}"
        if self.difference.value == 0 and self.difference.interval is None:
            return "; no difference was observed, and this comparison cannot show that there is none"
        if self.difference.value == 0 and self.margin is None:
            return "; no difference was observed, and only a margin (--margin) can show that there is none"
        return ""

    @property
    def _may_go_on(self) -> bool:
        return self.anytime and self.difference.width is not None

    def _needed(self, tasks: int) -> str:
        """What a new comparison on so many tasks would show."""
        new, alone = f"{tasks:,} new {self._unit}s", "tested on their own"
        if self.within and self.difference.stderr == 0:
            return f"{new} without any difference, {alone}, would show that it is within {self.margin:g}"
        if self.more_samples:
            samples = f"{self.more_samples:,} sample{'' if self.more_samples == 1 else 's'}"
            new += f" (or {self.difference.units:,} with {samples} each)"
        if not self.within:
            return f"about {new}, {alone}, would show a difference this large with a power of {_POWER}"
        shown = f"would show with a power of {_POWER} that it is within {self.margin:g}"
        return f"if this is the true difference, about {new}, {alone}, {shown}"

    def _allowed(self) -> str:
        """The number of tasks needed at both ends of the interval."""
        ends = self.difference.interval
        if self.new_tasks is None or ends is None or self.difference.stderr == 0:
            return ""
        least, most = self.new_tasks
        if most is not None:
            return f"; for the differences in the interval it takes {least:,} to {most:,} {self._unit}s"
        beyond = "" if not ends[0] <= 0 <= ends[1] else ", because the interval contains 0"
        if self.within:
            beyond = ", because the interval reaches beyond the margin"
        takes = f"{least:,} {self._unit}s or more, and for some no number is enough"
        return f"; for the differences in the interval it takes {takes}{beyond}"

    @property
    def _unit(self) -> str:
        return "cluster" if self.clustered else "task"


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
    anytime: bool = True,
) -> ComparisonVerdict:
    """Compare the first run with the second: better, worse, equivalent within a margin, or undecided.

    Equivalent where the difference is shown to lie within the margin, significant or not: a margin defines which
    differences do not matter. Otherwise better or worse where p is at most 1 - confidence; ``p`` replaces the p of the
    difference where it was adjusted for ``tests`` tests. A difference that is not significant is undecided, never
    equal.

    The advice for a new comparison assumes a power of 80 %, at the observed difference and at both ends of its
    interval. With ``pair``, the parts of the variance, and the ``samples`` per task that each run has, it also gives
    the samples per task that are enough on as many tasks. ``anytime`` says whether an anytime comparison of this
    metric is possible.
    """
    raw, value = difference.p, difference.value
    p = raw if p is None else p
    # a p that others have made larger must be as much smaller to begin with
    wanted = 1 - (1 - confidence) * _price(raw, p, tests) if raw and p else confidence
    if margin is not None and equivalence(difference, margin, confidence=confidence).shown:
        return ComparisonVerdict("equivalent", difference, p, confidence, margin, clustered=clustered)
    if value and p is not None and p <= 1 - confidence:  # draws may lie on one side of a median that does not differ
        word: Word = "better" if (value > 0) == higher_is_better else "worse"
        return ComparisonVerdict(word, difference, p, confidence, margin, clustered=clustered)
    needed = _new_tasks(difference, margin, wanted, confidence) or _NewTasks(None)
    more = None
    if pair is not None and samples is not None:
        more = more_samples(difference, pair, margin, confidence, wanted)
    return ComparisonVerdict(
        "undecided",
        difference,
        p,
        confidence,
        margin,
        needed.likely,
        more,
        clustered,
        needed.ends,
        needed.within,
        anytime,
    )


def _price(raw: float, adjusted: float, tests: int) -> float:
    """What part of its level a test has left among others: by what its own p became, as far as that shows it.

    An adjusted p of 1 may have been cut there; then the test is taken for the first of all to succeed.
    """
    return min(1.0, raw / adjusted, 1 / tests if adjusted >= 1 else 1.0)


def more_samples(
    difference: Difference,
    pair: PairVariance,
    margin: float | None = None,
    confidence: float = 0.95,
    wanted: float | None = None,
) -> int | None:
    """How many samples per task and run would do in a new comparison on as many tasks; None where none would.

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
    return max(1, enough) if enough < MOST_TASKS else None


@dataclass(frozen=True, slots=True)
class _NewTasks:
    """The tasks that a new comparison needs, where the truth is what was seen, and at the ends of its interval."""

    likely: int | None
    ends: tuple[int, int | None] | None = None
    within: bool = False


def _new_tasks(difference: Difference, margin: float | None, wanted: float, confidence: float) -> _NewTasks | None:
    """How many new units would show the difference, or that it is within the margin, whichever takes fewer."""
    if difference.value is None or difference.p is None or difference.stderr is None:
        return None
    if difference.stderr == 0:
        return _alike(difference, margin, confidence)
    variance = _spread(difference) ** 2 * difference.effective_units

    def shown(truth: float) -> int | None:
        tasks = tasks_needed(variance, truth, POWER, wanted) if truth else None
        return None if tasks is None else max(tasks, _fewest_signs(difference.method, wanted))

    def small(truth: float) -> int | None:
        ways = _within(truth, margin, confidence)

        def enough(units: int) -> bool:
            error = math.sqrt(variance / units)
            return any(way.distance >= way.errors(units - 1.0) * error for way in ways)

        tasks = fewest(enough, difference.units) if ways else None
        if tasks is None or margin is None or difference.width is None:
            return tasks
        return max(tasks, unseen_loss(1.0, margin / difference.width, confidence) or 0)  # even tasks alike take as many

    near, far = _nearest_and_farthest(difference)
    value = abs(difference.value)
    options = [
        _NewTasks(likely, None if (least := needed(ends[0])) is None else (least, needed(ends[1])), needed is small)
        for needed, ends in ((shown, (far, near)), (small, (near, far)))
        if (likely := needed(value)) is not None
    ]
    return min(options, key=lambda option: option.likely or 0, default=None)


def _nearest_and_farthest(difference: Difference) -> tuple[float, float]:
    """The smallest and the largest size of a difference that the interval holds."""
    low, high = difference.interval or (difference.value or 0.0, difference.value or 0.0)
    return 0.0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high))


def _alike(difference: Difference, margin: float | None, confidence: float) -> _NewTasks | None:
    """How many units without any difference would show that it is within the margin."""
    if margin is None or difference.effective_tasks:
        return None  # the strict test has a spread of its own, which no data take away
    units = too_few(difference, margin, confidence)
    return None if units is None else _NewTasks(units, (units, None), within=True)


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
    return [*shown, *_within(value, margin, confidence)]


def _within(value: float, margin: float | None, confidence: float) -> list[_Way]:
    """To show that a true difference of this size, from 0 on, lies within the margin."""
    if margin is None or margin <= value:
        return []
    # with no difference at all both sides of the margin must be cleared at once
    return [_Way(margin - value, confidence, (1 + POWER) / 2 if value == 0 else POWER)]


def _spread(difference: Difference) -> float:
    """The standard error that the test goes by: the strict one supposes the largest that no difference allows."""
    if difference.effective_tasks and difference.width is not None:
        return difference.width / math.sqrt(difference.effective_tasks)
    return difference.stderr or 0.0


def _signed(value: float) -> str:
    return f"{value:+.3g}" if value else "0"
