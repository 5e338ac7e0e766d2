"""The verdict of a comparison in a sentence, and the tasks that an undecided comparison needs.

The word is that of `calipers.stats.claims.decide`.

To add new tasks to an undecided comparison and to test them together with the old ones is a second look: without a true
difference, it gives about 10 % false claims instead of 5 %. Therefore the advice is the number of tasks of a new
comparison, which is tested on its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.stats.anytime import BETTING
from calipers.stats.claims import Decision, Word
from calipers.stats.estimate import HUGE
from calipers.stats.intervals import t_quantile
from calipers.stats.margins import equivalence, too_few, unseen_loss
from calipers.stats.paired import Difference
from calipers.stats.power import MOST_TASKS, POWER, PairVariance, fewest, tasks_needed

_POWER = f"{100 * POWER:g} %"


@dataclass(frozen=True, slots=True)
class ComparisonVerdict:
    """The verdict on the first run compared with the second."""

    word: Word
    difference: Difference
    p: float | None  # of no difference; adjusted if several runs were compared
    confidence: float
    margin: float | None = None
    # tasks (or clusters, if these are the units) of a new comparison if the true difference is the observed one
    more_tasks: int | None = None
    more_samples: int | None = None  # per task and run, on the same number of tasks; None if no number is enough
    clustered: bool = False
    # tasks for the differences at the ends of the interval; the second is None if no number is enough
    new_tasks: tuple[int, int | None] | None = None
    within: bool = False  # the new comparison would show equivalence within the margin, not a difference
    anytime: bool = True  # whether an anytime comparison could add tasks to these

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with advice if it is undecided."""
        value = self.difference.value
        if value is None:
            return f"undecided: {self.difference.why}"
        if self.word in ("better", "worse"):
            return f"{self.word} by {abs(value):.3g}{self._backing()}"
        if self.word == "equivalent":
            return f"equivalent within {self.margin:g}{self._shown()}: a difference of {_signed(value)}{self._range()}"
        return f"undecided: a difference of {_signed(value)}{self._backing()}{self._remedy()}"

    def _shown(self) -> str:
        """The p of equivalence, in place of the p of no difference, which would be mistaken for it."""
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
            may_add = self.anytime and self.difference.width is not None
            more = "; to add tasks to these runs instead, use compare --anytime" if may_add else ""
            return f"; {self._needed(self.more_tasks)}{self._allowed()}{more}"
        if self.difference.value == 0 and self.difference.interval is None:
            return "; no difference was observed, and this comparison cannot show that there is none"
        if self.difference.value == 0 and self.margin is None:
            return "; no difference was observed, and only a margin (--margin) can show that there is none"
        return ""

    def _needed(self, tasks: int) -> str:
        """The advice on the size of a new comparison and on its result."""
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
    decision: Decision,
    difference: Difference,
    *,
    margin: float | None = None,
    confidence: float = 0.95,
    p: float | None = None,
    pair: PairVariance | None = None,
    samples: float | None = None,
    clustered: bool = False,
    tests: int = 1,
    anytime: bool = True,
) -> ComparisonVerdict:
    """The verdict with its numbers, and with advice if the tasks do not decide it.

    ``p`` replaces the p of the difference if it was adjusted for ``tests`` tests. The advice for a new comparison
    assumes a power of 80 %, at the observed difference and at both ends of its interval. With ``pair``, the parts of
    the variance, and the ``samples`` per task that each run has, it also gives the samples per task that are enough on
    the same number of tasks. ``anytime`` says whether an anytime comparison of this metric is possible.
    """
    raw = difference.p
    p = raw if p is None else p
    # an adjusted p is larger than the raw p, so that the raw p must be below a smaller level
    wanted = 1 - (1 - confidence) * _level_share(raw, p, tests) if raw and p else confidence
    if decision.undecided_by != "data":  # decided, or by something that more tasks do not change
        return ComparisonVerdict(decision.word, difference, p, confidence, margin, clustered=clustered)
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


def _level_share(raw: float, adjusted: float, tests: int) -> float:
    """The share of the level that a test has among others, from the ratio of its raw and adjusted p.

    An adjusted p of 1 may have been cut off there, and is taken as the smallest of ``tests`` p values: 1 / tests.
    """
    return min(1.0, raw / adjusted, 1 / tests if adjusted >= 1 else 1.0)


def more_samples(
    difference: Difference,
    pair: PairVariance,
    margin: float | None = None,
    confidence: float = 0.95,
    wanted: float | None = None,
) -> int | None:
    """The samples per task and run for a new comparison on the same number of tasks; None if no number is enough.

    ``wanted`` is the confidence that a difference needs, if it was adjusted for other tests; equivalence within the
    margin is not adjusted.
    """
    if difference.value is None or difference.p is None or not pair.divided:
        return None
    # the largest variance of one task's difference that is small enough, for each way to decide the comparison
    allowed = [
        difference.effective_units * min(way.distance / way.errors(difference.freedom), HUGE) ** 2
        for way in _ways(difference, margin, confidence, confidence if wanted is None else wanted)
    ]
    for_sampling = max(allowed, default=0.0) - pair.tasks
    if for_sampling <= 0:
        return None
    enough = math.ceil((pair.first + pair.second) / for_sampling)
    return max(1, enough) if enough < MOST_TASKS else None


@dataclass(frozen=True, slots=True)
class _NewTasks:
    """The tasks that a new comparison needs for the observed difference, and for those at the ends of its interval."""

    likely: int | None
    ends: tuple[int, int | None] | None = None
    within: bool = False


def _new_tasks(difference: Difference, margin: float | None, wanted: float, confidence: float) -> _NewTasks | None:
    """The new units that would show the difference, or that it is within the margin, whichever takes fewer."""
    if difference.value is None or difference.p is None or difference.stderr is None:
        return None
    if difference.stderr == 0:
        return _new_tasks_without_difference(difference, margin, confidence)
    variance = _test_stderr(difference) ** 2 * difference.effective_units

    def to_show_difference(truth: float) -> int | None:
        tasks = tasks_needed(variance, truth, POWER, wanted) if truth else None
        return None if tasks is None else max(tasks, _fewest_signs(difference.method, wanted))

    def to_show_equivalence(truth: float) -> int | None:
        ways = _equivalence_ways(truth, margin, confidence)

        def enough(units: int) -> bool:
            error = math.sqrt(variance / units)
            return any(way.distance >= way.errors(units - 1.0) * error for way in ways)

        tasks = fewest(enough, difference.units) if ways else None
        if tasks is None or margin is None or difference.width is None:
            return tasks
        # tasks without any difference need at least this many
        return max(tasks, unseen_loss(1.0, margin / difference.width, confidence) or 0)

    smallest, largest = _sizes_in_interval(difference)
    options = []
    for needed, easier, harder in (
        (to_show_difference, largest, smallest),
        (to_show_equivalence, smallest, largest),
    ):
        if (likely := needed(abs(difference.value))) is not None:
            least = needed(easier)
            ends = None if least is None else (least, needed(harder))
            options.append(_NewTasks(likely, ends, within=needed is to_show_equivalence))
    return min(options, key=lambda option: option.likely or 0, default=None)


def _sizes_in_interval(difference: Difference) -> tuple[float, float]:
    """The smallest and the largest absolute difference in the interval."""
    low, high = difference.interval or (difference.value or 0.0, difference.value or 0.0)
    return 0.0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high))


def _new_tasks_without_difference(difference: Difference, margin: float | None, confidence: float) -> _NewTasks | None:
    """The number of units without any difference that would show equivalence within the margin."""
    if margin is None or difference.effective_tasks:
        return None  # the strict test assumes a spread even without any difference
    units = too_few(difference, margin, confidence)
    return None if units is None else _NewTasks(units, (units, None), within=True)


def _fewest_signs(method: str, confidence: float) -> int:
    """The fewest units for a significant sign test: with all n on one side its p is 2^(1 - n), mid-p is 2^-n."""
    if method not in ("sign_flip", "mcnemar", "mid_p"):
        return 0
    halvings = math.ceil(-math.log2(1 - confidence))
    return halvings if method == "mid_p" else halvings + 1


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to decide a comparison: the true value must be ``errors`` standard errors away from a bound."""

    distance: float  # of the true value from the bound
    level: float  # one-sided
    power: float

    def errors(self, freedom: float) -> float:
        """The distance in standard errors that gives the power."""
        return t_quantile(self.level, freedom) + t_quantile(self.power, math.inf)


def _ways(difference: Difference, margin: float | None, confidence: float, wanted: float) -> list[_Way]:
    """The ways to decide a comparison: to show the observed difference, and to show equivalence within the margin."""
    value = abs(difference.value or 0.0)
    to_show_difference = [_Way(value, (1 + wanted) / 2, POWER)] if value else []
    return [*to_show_difference, *_equivalence_ways(value, margin, confidence)]


def _equivalence_ways(value: float, margin: float | None, confidence: float) -> list[_Way]:
    """The way to show that a true difference of size ``value`` lies within the margin; empty if it does not."""
    if margin is None or margin <= value:
        return []
    # for a true difference of 0, both one-sided tests can fail
    return [_Way(margin - value, confidence, (1 + POWER) / 2 if value == 0 else POWER)]


def _test_stderr(difference: Difference) -> float:
    """The standard error that the test uses; the strict test uses the largest one under no difference."""
    if difference.effective_tasks and difference.width is not None:
        return difference.width / math.sqrt(difference.effective_tasks)
    return difference.stderr or 0.0


def _signed(value: float) -> str:
    return f"{value:+.3g}" if value else "0"
